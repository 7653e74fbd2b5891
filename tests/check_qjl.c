/* check_qjl.c: qjl1_256 at the size it is for, and as an estimator.
 *
 *   check_qjl          a cache of 2^20 keys (34 bytes each) scored against 32 heads by every variant; 256 projections
 *   check_qjl long     the reference too on every key (it takes ten seconds), and 4096 projections
 *
 * Bounds: f32 DOT: every term of a score is +-scale*q_j, so sum|q k| = scale*sum|q_j|; (256/4 + 16) 2^-24 of it.
 * int8 QDOT: DOT, and half a step of the query per term.  The projections: the estimate is unbiased, with variance
 * (pi/2 |q|^2|k|^2 - <q,k>^2)/256 (docs/formats/qjl1_256.md), over projections as over keys. */
#include <stdint.h>
#include "base/half.h"
#include "base/rng.h"
#include "kvant/format.h"
#include "formats/qjl/score_i8.h"
#include "support/check.h"

enum { KEYS = 1 << 20, HEADS = 32, D = 128, SDIM = 256, ROW = 34, DISTINCT = 8192, BLOCK = 4096, SPARSE = 61 };

static float projection[KVANT_QJL_VALUES];
static float queries[HEADS * SDIM], query_size[HEADS];     /* sum |q_j| */
static uint8_t *cache;

/* DISTINCT encoded keys; further ones are the same sign bytes turned round by one byte, with another norm. */
static void make_cache(const kvant_format *f)
{
    float x[D];

    for (int i = 0; i < DISTINCT; i++) {
        check_fill_normal(x, D, 10 + (unsigned)i);
        kvant_format_best(f)->encode(projection, x, cache + (size_t)i * ROW, D, KVANT_ENCODER_UPSTREAM);
    }
    for (int i = DISTINCT; i < KEYS; i++) {
        const uint8_t *from = cache + (size_t)(i % DISTINCT) * ROW;
        uint8_t *to = cache + (size_t)i * ROW;
        const int turn = i / DISTINCT % 32;
        for (int b = 0; b < 32; b++)
            to[b] = from[(b + turn) % 32];
        store_u16(to + 32, f32_to_bf16(bf16_to_f32(load_u16(from + 32)) * (1.0f + (float)(i / DISTINCT) / 64.0f)));
    }
}

static void make_queries(const kvant_format *f)
{
    float x[D];

    for (int h = 0; h < HEADS; h++) {
        check_fill_normal(x, D, 900 + (unsigned)h);
        f->ref.prep_q(projection, x, queries + h * SDIM, D);
        for (int j = 0; j < SDIM; j++)
            query_size[h] += fabsf(queries[h * SDIM + j]);
    }
}

static double scale_of(int key)
{
    return 1.2533141373155 / 256.0 * (double)bf16_to_f32(load_u16(cache + (size_t)key * ROW + 32));
}

/* Scores of every step-th key: s f32[HEADS][KEYS/step]. */
static void score_all(const kvant_format_kernels *k, int step, float *s)
{
    const int n = KEYS / step;

    for (int i = 0; i < n; i += BLOCK)
        k->score(NULL, queries, SDIM, HEADS, cache + (size_t)i * (size_t)step * ROW, (size_t)step * ROW,
                 n - i < BLOCK ? n - i : BLOCK, s + i, (size_t)n, D);
}

/* The largest error of got (every key) as a part of the bound; want: every step-th key. */
static double worst_part(const float *got, const float *want, int step, double both)
{
    const int n = KEYS / step;
    double worst = 0;

    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < n; i++) {
            const float *g = &got[(size_t)h * KEYS + (size_t)(i * step)], *w = &want[(size_t)h * (size_t)n + (size_t)i];
            const double err = fabs((double)*g - (double)*w);
            const double part = err / (both * (SDIM / 4 + 16) * 0x1p-24 * scale_of(i * step) * (double)query_size[h]);
            worst = !(part <= worst) ? part : worst;
        }
    return worst;
}

/* The integer path of a variant on every key, against its f32 scores. */
static void check_q8(const kvant_format *f, const kvant_format_kernels *k, const char *name, const float *f32_scores,
                     float *s)
{
    const size_t ld = kvant_format_q8_bytes(f, D);
    uint8_t *block = malloc(HEADS * ld + 32), *q8 = block + (-(uintptr_t)block & 31);
    double worst = 0;

    for (int h = 0; h < HEADS; h++)
        k->prep_q8(projection, queries + h * SDIM, q8 + (size_t)h * ld, D);
    for (int i = 0; i < KEYS; i += BLOCK)
        k->score_q8(NULL, q8, ld, HEADS, cache + (size_t)i * ROW, ROW, BLOCK, s + i, KEYS, D);
    for (int h = 0; h < HEADS; h++) {
        double top = 0;
        for (int j = 0; j < SDIM; j++)
            top = fmax(top, fabs((double)queries[h * SDIM + j]));
        for (int i = 0; i < KEYS; i++) {
            const size_t at = (size_t)h * KEYS + (size_t)i;
            const double bound = scale_of(i) * (top / 127.0 * 0.5 * SDIM);
            const double part = fabs((double)s[at] - (double)f32_scores[at]) / bound;
            worst = !(part <= worst) ? part : worst;
        }
    }
    CHECK(worst <= 1, "%s, int8: error of %.3g times its bound", name, worst);
    printf("%s, int8 path: largest error %.3g of its bound\n", name, worst);
    free(block);
}

/* The int8 query of kvant_qjl_score_i8 on some keys. */
static void check_int8(const float *f32_scores)
{
    static float s[KEYS / SPARSE];
    int8_t q[SDIM];
    float scale;
    double worst = 0;

    for (int h = 0; h < HEADS; h += 5) {
        kvant_qjl_query_i8(queries + h * SDIM, q, &scale);
        kvant_qjl_score_i8(q, scale, cache, (size_t)SPARSE * ROW, KEYS / SPARSE, s);
        for (int i = 0; i < KEYS / SPARSE; i++) {
            const double bound = scale_of(i * SPARSE) * ((double)scale * 0.5 * SDIM +
                                                         (SDIM / 4 + 16) * 0x1p-24 * (double)query_size[h]);
            const float *want = &f32_scores[(size_t)h * KEYS + (size_t)(i * SPARSE)];
            const double part = fabs((double)s[i] - (double)*want) / bound;
            worst = !(part <= worst) ? part : worst;
        }
    }
    CHECK(worst <= 1, "int8 query: error of %.3g times its bound", worst);
    printf("int8 query, every %dth key: largest error %.3g of its bound\n", SPARSE, worst);
}

/* Every rung of the int8 scores gives the bits of the reference: rows of any bytes, at any stride, at the end of a
 * page. */
static void check_rungs(const char *isa, kvant_qjl_score_i8_fn *score)
{
    enum { ROWS = 37, STRIDE = 41 };
    static uint8_t bytes[ROWS * STRIDE];
    uint8_t *rows = check_guarded(ROWS * STRIDE - STRIDE + ROW, 1);
    int8_t q[SDIM];
    float got[ROWS + 1], want[ROWS];

    for (int seed = 0; seed < 64; seed++) {
        rng r = { (uint64_t)seed };
        for (int i = 0; i < ROWS * STRIDE; i++)
            bytes[i] = seed == 0 ? 0xff : seed == 1 ? 0 : (uint8_t)rng_u64(&r);
        for (int i = 0; i < SDIM; i++)
            q[i] = seed < 4 ? (int8_t)(seed & 1 ? -127 : 127) : (int8_t)((int)(rng_u64(&r) % 255) - 127);
        memcpy(rows, bytes, ROWS * STRIDE - STRIDE + ROW);
        got[ROWS] = 7.0f;
        kvant_qjl_score_i8_ref(q, 0.37f, rows, STRIDE, ROWS, want);
        score(q, 0.37f, rows, STRIDE, ROWS, got);
        CHECK(memcmp(got, want, sizeof want) == 0 && got[ROWS] == 7.0f,
              "int8 scores, %s, seed %d: not the reference's", isa, seed);
    }
    CHECK(check_guard_ok(rows), "int8 scores, %s: written outside", isa);
    check_guard_free(rows);
}

static void check_ladder(void)
{
    const char *isa;
    kvant_qjl_score_i8_fn *score;
    int usable;

    for (int i = 1; (score = kvant_qjl_score_i8_rung(i, &isa, &usable)) != NULL; i++)
        if (usable)
            check_rungs(isa, score);
        else
            printf("SKIP check_qjl: int8 scores, %s: not on this CPU\n", isa);
}

/* Every variant on every key against the reference on some (or all) of them, and against the first variant on all. */
static void check_million(int step)
{
    const kvant_format *f = kvant_format_find("qjl1_256");
    float *ref = malloc((size_t)HEADS * (size_t)(KEYS / step) * sizeof *ref);
    float *first = malloc((size_t)HEADS * KEYS * sizeof *first), *s = malloc((size_t)HEADS * KEYS * sizeof *s);
    const kvant_format_kernels *k;
    const char *name;
    int usable, checked = 0;

    cache = malloc((size_t)KEYS * ROW);
    if (!ref || !first || !s || !cache) {
        CHECK(0, "out of memory");
        return;
    }
    make_cache(f);
    make_queries(f);
    score_all(&f->ref, step, ref);
    for (int i = 1; (k = kvant_format_variant(f, i, &name, &usable)) != NULL; i++) {
        if (!usable)
            continue;
        float *to = checked++ ? s : first;
        score_all(k, 1, to);
        const double part = worst_part(to, ref, step, 1.0), other = to == s ? worst_part(s, first, 1, 2.0) : 0;
        CHECK(part <= 1, "%s: error of %.3g times the bound", name, part);
        CHECK(other <= 1, "%s: differs from the first variant by %.3g times both bounds", name, other);
        printf("%s: %d keys x %d heads: largest error %.3g of the bound; against the first variant %.3g\n", name, KEYS,
               HEADS, part, other);
        if (k->prep_q8)
            check_q8(f, k, name, first, s);
    }
    if (checked)
        check_int8(first);
    free(ref);
    free(first);
    free(s);
    free(cache);
}

/* One pair (q, k) under n projections. */
static void check_projections(int n)
{
    const kvant_format *f = kvant_format_find("qjl1_256");
    static float pi[KVANT_QJL_VALUES];
    float q[D], k[D], sketch[SDIM], s;
    uint8_t row[ROW];
    double qq = 0, kk = 0, qk = 0, sum = 0, sum2 = 0;

    check_fill_normal(q, D, 1);
    check_fill_normal(k, D, 2);
    for (int j = 0; j < D; j++) {
        k[j] = 0.7f * q[j] + 0.7f * k[j];
        qq += (double)q[j] * (double)q[j];
        kk += (double)k[j] * (double)k[j];
        qk += (double)q[j] * (double)k[j];
    }
    for (int i = 0; i < n; i++) {
        kvant_qjl_projection_build(1000 + (uint64_t)i, pi);
        kvant_format_best(f)->encode(pi, k, row, D, 0);
        kvant_format_best(f)->prep_q(pi, q, sketch, D);
        kvant_format_best(f)->score(NULL, sketch, SDIM, 1, row, ROW, 1, &s, 1, D);
        sum += (double)s - qk;
        sum2 += ((double)s - qk) * ((double)s - qk);
    }
    const double theory = (1.5707963267948966 * qq * kk - qk * qk) / SDIM, error = sqrt(theory / n);
    /* the stored norm is bf16: half an ulp, 2^-9, on top */
    CHECK(fabs(sum / n) <= 4 * error + 0x1p-9 * fabs(qk), "bias %.4g over %d projections, standard error %.4g",
          sum / n, n, error);
    /* a variance over n samples is off by sqrt(2/n), four times that */
    CHECK_CLOSE(sum2 / n / theory, 1.0, 4 * sqrt(2.0 / n), "variance over theory, %d projections", n);
    printf("%d projections: <q,k> = %.3f, bias %.4f (standard error %.4f), variance/theory %.4f\n", n, qk, sum / n,
           error, sum2 / n / theory);
}

int main(int argc, char **argv)
{
    const int whole = argc > 1 && strcmp(argv[1], "long") == 0;

    kvant_qjl_projection_build(KVANT_QJL_SEED, projection);
    check_ladder();
    check_million(whole ? 1 : SPARSE);
    check_projections(whole ? 4096 : 256);
    return check_end("check_qjl");
}
