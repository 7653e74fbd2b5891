/* qjl.c: include/qjl.h over the kernels of the format qjl1_256.  A library of its own: this file, the format's, and
 * what they need of base (cmake/qjl.cmake). */
#include "qjl.h"

#include "base/cpu.h"
#include "base/error.h"
#include "base/sha256.h"
#include "formats/format.h"
#include "formats/qjl/score_i8.h"

enum { ROW = sizeof(block_qjl1_256) };
_Static_assert(sizeof(block_qjl1_256) == 34 && (int)QJL_PROJECTION == (int)KVANT_QJL_VALUES &&
                   (int)QJL_DIM == (int)KVANT_QJL_DIM && (int)QJL_SKETCH == (int)KVANT_QJL_SKETCH &&
                   (int)QJL_SEED == (int)KVANT_QJL_SEED,
               "the sizes of the format");
_Static_assert((int)QJL_EINVAL == (int)KVANT_EINVAL && (int)QJL_EFORMAT == (int)KVANT_EFORMAT &&
                   (int)QJL_EIO == (int)KVANT_EIO && (int)QJL_ENOENT == (int)KVANT_ENOENT &&
                   sizeof(qjl_diag) == sizeof(kvant_diag),
               "errors pass through");

static const struct rung {
    const char *isa;
    uint32_t mask;
    const kvant_format_kernels *kernels;
} rungs[] = {
    { "ref", 0, &kvant_format_qjl1_256.ref },
#if defined(__x86_64__)
    { "avx2", CPU_AVX2, &kvant_qjl1_256_kernels_avx2 },
    { "avx512", CPU_AVX2 | CPU_AVX512, &kvant_qjl1_256_kernels_avx512 },
#elif defined(__aarch64__)
    { "neon", CPU_NEON, &kvant_qjl1_256_kernels_neon },
#endif
};

static const struct rung *best(void)
{
    const struct rung *r = rungs;
    for (size_t i = 1; i < sizeof rungs / sizeof rungs[0]; i++)
        r = (kvant_cpu_features() & rungs[i].mask) == rungs[i].mask ? &rungs[i] : r;
    return r;
}

const char *qjl_isa(void)
{
    return best()->isa;
}

const char *qjl_isa_i8(void)
{
    const char *isa, *found = NULL;
    int usable;
    for (int i = 0; kvant_qjl_score_i8_rung(i, &isa, &usable); i++)
        found = usable ? isa : found;
    return found;
}

void qjl_projection_build(uint64_t seed, float *pi)
{
    kvant_qjl_projection_build(seed, pi);
}

void qjl_fingerprint(const float *pi, int layers, uint8_t fingerprint[QJL_FINGERPRINT])
{
    sha256(pi, (size_t)layers * QJL_PROJECTION * sizeof *pi, fingerprint);
}

static int check_fingerprint(const char *path, const float *pi, int layers, const uint8_t *want, kvant_diag *diag)
{
    uint8_t got[QJL_FINGERPRINT];

    qjl_fingerprint(pi, layers, got);
    if (!want || memcmp(got, want, sizeof got) == 0)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EFORMAT,
                      "projection %s: its fingerprint begins with %02x%02x%02x%02x, want %02x%02x%02x%02x", path,
                      got[0], got[1], got[2], got[3], want[0], want[1], want[2], want[3]);
}

int qjl_projections_read(const char *path, int layers, const uint8_t *fingerprint, float *pi, qjl_diag *out)
{
    kvant_diag text = { "" };
    int found = 0, code = kvant_qjl_projection_count(path, &found, &text);

    if (code == KVANT_OK && found != layers)
        code = kvant_fail(&text, KVANT_EINVAL, "projection %s: %d matrices, want %d, one for each layer", path, found,
                          layers);
    for (int i = 0; code == KVANT_OK && i < layers; i++)
        code = kvant_qjl_projection_read(path, i, pi + (size_t)i * QJL_PROJECTION, &text);
    if (code == KVANT_OK)
        code = check_fingerprint(path, pi, layers, fingerprint, &text);
    if (out)
        memcpy(out->text, text.text, sizeof out->text);
    return code;
}

void qjl_quantize(const float *pi, const float *keys, int n, block_qjl1_256 *blocks)
{
    const kvant_format_kernels *k = best()->kernels;
    uint8_t *rows = (uint8_t *)blocks;

    if (k->encode_rows)
        k->encode_rows(pi, keys, QJL_DIM, n, rows, ROW, QJL_DIM, KVANT_ENCODER_UPSTREAM);
    for (int i = 0; !k->encode_rows && i < n; i++)
        k->encode(pi, keys + (size_t)i * QJL_DIM, rows + (size_t)i * ROW, QJL_DIM, KVANT_ENCODER_UPSTREAM);
}

void qjl_project(const float *pi, const float *queries, int n, float *sketches)
{
    const kvant_format_kernels *k = best()->kernels;
    for (int i = 0; i < n; i++)
        k->prep_q(pi, queries + (size_t)i * QJL_DIM, sketches + (size_t)i * QJL_SKETCH, QJL_DIM);
}

static int shape_fits(int heads, int kv_heads, int tokens)
{
    return heads > 0 && kv_heads > 0 && tokens >= 0 && heads % kv_heads == 0;
}

int qjl_score(const float *sketches, int heads, const block_qjl1_256 *blocks, int kv_heads, int tokens, float *scores)
{
    if (!shape_fits(heads, kv_heads, tokens))
        return QJL_EINVAL;
    const int group = heads / kv_heads;
    const size_t n = (size_t)tokens;
    for (int h = 0; h < kv_heads; h++)
        best()->kernels->score(NULL, sketches + (size_t)(h * group) * QJL_SKETCH, QJL_SKETCH, group,
                               (const uint8_t *)(blocks + (size_t)h * n), ROW, tokens, scores + (size_t)(h * group) * n,
                               n, QJL_DIM);
    return QJL_OK;
}

void qjl_query_i8(const float *sketches, int n, int8_t *q, float *scales)
{
    for (int i = 0; i < n; i++)
        kvant_qjl_query_i8(sketches + (size_t)i * QJL_SKETCH, q + (size_t)i * QJL_SKETCH, scales + i);
}

int qjl_score_i8(const int8_t *q, const float *scales, int heads, const block_qjl1_256 *blocks, int kv_heads,
                 int tokens, float *scores)
{
    if (!shape_fits(heads, kv_heads, tokens))
        return QJL_EINVAL;
    for (int h = 0; h < heads; h++) {
        const block_qjl1_256 *of = blocks + (size_t)(h / (heads / kv_heads)) * (size_t)tokens;
        kvant_qjl_score_i8(q + (size_t)h * QJL_SKETCH, scales[h], (const uint8_t *)of, ROW, tokens,
                           scores + (size_t)h * (size_t)tokens);
    }
    return QJL_OK;
}

void qjl_dequantize(const float *pi, const block_qjl1_256 *blocks, int n, float *keys)
{
    const kvant_format_kernels *k = &kvant_format_qjl1_256.ref;
    float acc[QJL_SKETCH];

    for (int i = 0; i < n; i++) {
        k->decode_acc(NULL, (const uint8_t *)(blocks + i), ROW, 1, acc, QJL_DIM);
        k->finish_out(pi, acc, keys + (size_t)i * QJL_DIM, QJL_DIM);
    }
}
