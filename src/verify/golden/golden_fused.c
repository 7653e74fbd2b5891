/* golden_fused.c: golden cases of the fused attention, the fixture generators, and the published self-test scores. */
#include "verify/golden/golden_run.h"

#include <math.h>
#include "kvant/fused.h"
#include "kvant/qjl.h"

enum { HEAD = 128, K_BYTES = 34 };

typedef struct fused_case {
    golden_run *run;
    gjson json;
    kvant_attn_fused args;
    size_t n_out;
    float *out;
} fused_case;

/* Largest |score| of the case decides the tolerance: at hundreds, one ulp of the score is 1e-5 of the weight. */
static double tolerance(const fused_case *c)
{
    const kvant_attn_fused *a = &c->args;
    const kvant_format *f = kvant_format_find("qjl1_256");
    double top = 0.0;
    for (int h = 0; h < a->n_heads; h++)
        for (int t = 0; t < a->n_tokens; t++) {
            float s;
            size_t first = (size_t)(h / (a->n_heads / a->n_kv_heads)) * (size_t)a->n_tokens;
            const float *q = a->q_sketch + (size_t)h * KVANT_QJL_SKETCH;
            const uint8_t *k = a->k + (first + (size_t)t) * K_BYTES;
            f->ref.score(NULL, q, KVANT_QJL_SKETCH, 1, k, K_BYTES, 1, &s, 1, HEAD);
            top = fmax(top, fabs((double)s * a->sm_scale));
        }
    return top > 50.0 ? 1e-4 : 1e-5;
}

static void check_out(fused_case *c, gjson from, const char *field, int residual, int polar)
{
    size_t n;
    const float *want = golden_floats(c->run, gjson_get(from, field), &n);
    if (!want)
        return;
    c->args.v_use_qjl = residual;
    if (polar)
        kvant_attn_fused_qjl_polar_ref(&c->args);
    else
        kvant_attn_fused_qjl_tbq_ref(&c->args);
    double tol = tolerance(c);
    int bad = n == c->n_out ? golden_compare(c->out, want, n, tol) : 0;
    golden_check(c->run, bad < 0, "%s (%d/%d heads, %d tokens)[%d]: differs by more than %.0e", field, c->args.n_heads,
                 c->args.n_kv_heads, c->args.n_tokens, bad, tol);
}

static void check_outputs(fused_case *c, gjson from, int polar)
{
    if (polar) {
        check_out(c, from, "out_useqjl1_f32", 1, 1);
        check_out(c, from, "out_useqjl0_f32", 0, 1);
    } else {
        check_out(c, from, "out_f32", 0, 0);
    }
}

/* If the case also gives raw rows: encodes and sketches them and expects the case's own blocks. */
static void check_raw(fused_case *c, const kvant_format *f, const char *rows_field, const uint8_t *blocks)
{
    size_t n;
    const float *x = golden_floats(c->run, gjson_get(c->json, rows_field), &n);
    if (!x || (f->flags & KVANT_FORMAT_PARAM && !c->run->projection))
        return;
    size_t rb = kvant_format_row_bytes(f, HEAD), different = 0;
    uint8_t got[HEAD * 4];
    for (size_t i = 0; i < n / HEAD; i++) {
        f->ref.encode(c->run->projection, x + i * HEAD, got, HEAD, FORMAT_ENCODER_HALF_UP);
        different += memcmp(got, blocks + i * rb, rb) != 0;
    }
    golden_check(c->run, different == 0, "%s: %zu of %zu rows encode differently", rows_field, different, n / HEAD);
}

static void run_case(golden_run *r, gjson json, const kvant_format *v_format)
{
    int polar = strncmp(v_format->name, "q4_polar", 8) == 0;
    size_t nq, nk, nv, v_bytes = kvant_format_row_bytes(v_format, HEAD);
    fused_case c = { .run = r, .json = json };
    kvant_attn_fused *a = &c.args;
    a->n_q_pos = 1;
    a->n_heads = (int)gjson_number(gjson_get(json, "n_heads"));
    a->n_kv_heads = (int)gjson_number(gjson_get(json, "n_kv_heads"));
    a->n_tokens = (int)gjson_number(gjson_get(json, "n_kv"));
    a->sm_scale = (float)gjson_number(gjson_get(json, "sm_scale"));
    a->causal = gjson_number(gjson_get(json, "causal")) > 0.0;
    a->q_pos_base = a->causal ? (int)gjson_number(gjson_get(json, "q_pos_base")) : 0;
    a->q_sketch = golden_floats(r, gjson_get(json, "q_sketch_f32"), &nq);
    a->k = golden_bytes(r, gjson_get(json, "k_blocks"), &nk);
    a->v = golden_bytes(r, gjson_get(json, "v_blocks"), &nv);
    c.n_out = (size_t)(a->n_heads > 0 ? a->n_heads : 0) * HEAD;
    a->out = c.out = arena_alloc(&r->memory, c.n_out * sizeof(float));
    int ok = kvant_attn_fused_check(a, NULL) == KVANT_OK;
    size_t rows = ok ? (size_t)a->n_kv_heads * (size_t)a->n_tokens : 0;
    ok = ok && nq == (size_t)a->n_heads * KVANT_QJL_SKETCH && nk == rows * K_BYTES && nv == rows * v_bytes;
    golden_check(r, ok, "case %d/%d heads, %d tokens: shapes do not agree", a->n_heads, a->n_kv_heads, a->n_tokens);
    if (!ok)
        return;
    check_outputs(&c, json, polar);
    check_raw(&c, kvant_format_find("qjl1_256"), "k_rows_f32", a->k);
    check_raw(&c, polar ? kvant_format_find("q4_polar_r") : v_format, "v_rows_f32", a->v);
    gjson variant = gjson_get(json, "causal_variant");
    if (variant.p) {
        a->causal = 1;
        a->q_pos_base = (int)gjson_number(gjson_get(variant, "q_pos_base"));
        check_outputs(&c, variant, polar);
    }
}

void golden_fused(golden_run *r, gjson root, const kvant_format *v_format)
{
    gjson it = { NULL, 0 }, cases = gjson_get(root, "cases");
    size_t mark = r->memory.used;
    while (gjson_next(cases, &it)) {
        run_case(r, it, v_format);
        r->memory.used = mark;
    }
}

/* --- fixture generators ------------------------------------------------------------------------------------------- */

/* Marsaglia's polar method in f32 over 24-bit uniforms of some 64-bit generator; gives two values in turn. */
typedef struct gaussian {
    uint64_t state;
    uint64_t (*next)(uint64_t *state);
    float spare;
    int has_spare;
} gaussian;

static uint64_t splitmix(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static uint64_t lcg(uint64_t *state)
{
    return *state = *state * 6364136223846793005u + 1442695040888963407u;
}

static float uniform(gaussian *g)
{
    return (float)(g->next(&g->state) >> 11 & 0xFFFFFFu) / 16777216.0f * 2.0f - 1.0f;
}

static float normal(gaussian *g)
{
    float u, v, r;
    if (g->has_spare) {
        g->has_spare = 0;
        return g->spare;
    }
    do {
        u = uniform(g);
        v = uniform(g);
        r = u * u + v * v;
    } while (r >= 1.0f || r == 0.0f);
    float k = sqrtf(-2.0f * logf(r) / r);
    g->spare = v * k;
    g->has_spare = 1;
    return u * k;
}

void golden_projection_marsaglia(uint64_t seed, float *out)
{
    gaussian g = { seed ? seed : 0x42u, splitmix, 0.0f, 0 };
    for (int i = 0; i < KVANT_QJL_VALUES; i++)
        out[i] = normal(&g);
}

/* x encoded and scored.  rotated: q is used as given. */
static float selftest_score(const float *q, const float *x, const char *format, const void *param, int rotated)
{
    const kvant_format *f = kvant_format_find(format);
    float qp[2 * HEAD], s;
    uint8_t row[HEAD];
    f->ref.encode(param, x, row, HEAD, FORMAT_ENCODER_HALF_UP);
    if (rotated)
        memcpy(qp, q, HEAD * sizeof *q);
    else
        f->ref.prep_q(param, q, qp, HEAD);
    f->ref.score(param, qp, (size_t)kvant_format_sdim(f, HEAD), 1, row, sizeof row, 1, &s, 1, HEAD);
    return s;
}

int golden_selftest(float score[GOLDEN_SELFTEST], kvant_diag *diag)
{
    static const struct {
        const char *format;
        int rotated;
    } tests[GOLDEN_SELFTEST] = { { "turbo3", 1 }, { "turbo4", 1 }, { "turbo3_tcq", 1 }, { "qjl1_256", 0 },
                                 { "q4_polar", 0 }, { "q4_polar_r", 0 } };
    gaussian g = { 0x9E3779B97F4A7C15u, lcg, 0.0f, 0 };
    float q[HEAD], x[HEAD], *pi = kvant_alloc(KVANT_QJL_FILE_BYTES);
    if (!pi)
        return kvant_fail(diag, KVANT_ENOMEM, "self-test projection: %d bytes", KVANT_QJL_FILE_BYTES);
    golden_projection_marsaglia(0xCAFEBABE12345678u, pi);
    for (int i = 0; i < HEAD; i++) {       /* one pair for all six */
        q[i] = normal(&g);
        x[i] = normal(&g);
    }
    for (int i = 0; i < GOLDEN_SELFTEST; i++)
        score[i] = selftest_score(q, x, tests[i].format, pi, tests[i].rotated);
    kvant_free(pi);
    return KVANT_OK;
}
