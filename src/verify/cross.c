/* cross.c: see cross.h. */
#include "verify/cross.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/half.h"
#include "base/mem.h"
#include "verify/golden/golden.h"
#include "kvant/fused.h"
#include "kvant/polar.h"
#include "kvant/qjl.h"
#include "verify/vcase.h"

enum { D = 128, SDIM = 256, TOKENS = 70, MAX_ROW = 4 * KVANT_MAX_HEAD_DIM };

static void note(verify_cross *c, double err, double bound, verify_report *texts, const char *what)
{
    const double part = c->limit == 1.0 ? (err == 0 ? 0 : err / bound) : err;
    char text[VERIFY_TEXT];

    c->cases++;
    c->worst = !(part <= c->worst) ? part : c->worst;
    if (part <= c->limit)
        return;
    c->failed++;
    snprintf(text, sizeof text, "cross-check %s: %s: %.3g, allowed %.3g", c->name, what, part, c->limit);
    report_failure(texts, text);
}

static double dot(const float *a, const float *b, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* ---- the six published numbers ---- */

static int check_selftest(verify_cross *c, verify_report *texts, kvant_diag *diag)
{
    static const double want[GOLDEN_SELFTEST] = { -2.501480, -23.721790, -4.822659, 3.696591, -1.994053, -1.438744 };
    static const char *const name[GOLDEN_SELFTEST] = { "turbo3",   "turbo4",   "turbo3_tcq",
                                                       "qjl1_256", "q4_polar", "q4_polar_r" };
    float got[GOLDEN_SELFTEST];

    KVANT_TRY(golden_selftest(got, diag));
    for (int i = 0; i < GOLDEN_SELFTEST; i++)
        note(c, fabs((double)got[i] - want[i]), 0, texts, name[i]);
    return KVANT_OK;
}

/* ---- score and decode-then-dot ---- */

static void spaces_of(verify_cross *c, const kvant_format *f, const kvant_format_kernels *k, const char *variant, int d,
                      verify_report *texts)
{
    float x[KVANT_MAX_HEAD_DIM], q[KVANT_MAX_HEAD_DIM], y[KVANT_MAX_HEAD_DIM], qp[2 * KVANT_MAX_HEAD_DIM], s;
    uint8_t row[MAX_ROW];
    char what[96];

    for (unsigned i = 0; i < 8; i++) {
        vcase_fill(x, (size_t)d, 11 + i);
        vcase_fill(q, (size_t)d, 31 + i);
        k->encode(NULL, x, row, d, KVANT_ENCODER_UPSTREAM);
        k->prep_q(NULL, q, qp, d);
        k->score(NULL, qp, 2 * KVANT_MAX_HEAD_DIM, 1, row, sizeof row, 1, &s, 1, d);
        kvant_row_decode(f, NULL, row, y, d);
        snprintf(what, sizeof what, "%s %s d %d", f->name, variant, d);
        note(c, fabs((double)s - dot(q, y, d)), (d / 4 + 16) * 0x1p-24 * sqrt(dot(q, q, d) * dot(y, y, d)), texts,
             what);
    }
}

/* Every variant of every format without a parameter (a projection is no isometry: the bound would not hold). */
static void check_spaces(verify_cross *c, verify_report *texts)
{
    static const int dims[] = { 64, 128, 256 };
    const kvant_format_kernels *k;
    const char *name;
    int usable;

    for (int i = 0; i < kvant_format_count(); i++) {
        const kvant_format *f = kvant_format_at(i);
        const int rows = !(f->flags & (KVANT_FORMAT_PARAM | KVANT_FORMAT_PAGE));
        for (int v = 0; rows && (k = kvant_format_variant(f, v, &name, &usable)); v++)
            for (int j = 0; j < 3 && usable; j++)
                spaces_of(c, f, k, name, kvant_format_padded(f, dims[j]), texts);
    }
}

/* ---- fused attention and two passes ---- */

typedef struct cross_case {
    kvant_attn_fused a;
    float q[3 * 4 * SDIM], fused[3 * 4 * D], two[3 * 4 * D];
    uint8_t k[2 * TOKENS * 34], v[2 * TOKENS * 82];
} cross_case;

static void fused_fill(cross_case *t, const kvant_format *fv)
{
    const kvant_format *fk = kvant_format_find("qjl1_256");
    const size_t rb = kvant_format_row_bytes(fv, D);
    float x[D];

    for (int i = 0; i < 2 * TOKENS; i++) {
        vcase_fill(x, D, 300 + (unsigned)i);
        kvant_format_best(fk)->encode(vcase_param(fk), x, t->k + i * 34, D, 0);
        vcase_fill(x, D, 600 + (unsigned)i);
        kvant_format_best(fv)->encode(NULL, x, t->v + (size_t)i * rb, D, 0);
    }
    for (int i = 0; i < 3 * 4; i++) {
        vcase_fill(x, D, 900 + (unsigned)i);
        kvant_format_best(fk)->prep_q(vcase_param(fk), x, t->q + i * SDIM, D);
    }
}

/* Scores of all visible tokens, softmax in double, then the weighted sum: the kernels of this CPU. */
static void two_pass(const cross_case *t, const kvant_format *fv, int pos, int head, float *out)
{
    const kvant_format *fk = kvant_format_find("qjl1_256");
    const size_t rb = kvant_format_row_bytes(fv, D);
    const int kv = head / (t->a.n_heads / t->a.n_kv_heads), last = t->a.q_pos_base + pos + 1;
    const int n = !t->a.causal || last > TOKENS ? TOKENS : last;
    float s[TOKENS], acc[D] = { 0 };
    double top = -INFINITY, sum = 0;

    kvant_format_best(fk)->score(NULL, t->q + (pos * t->a.n_heads + head) * SDIM, SDIM, 1, t->k + kv * TOKENS * 34, 34,
                                 n, s, TOKENS, D);
    for (int i = 0; i < n; i++)
        top = (double)s[i] > top ? (double)s[i] : top;
    for (int i = 0; i < n; i++)
        sum += exp(((double)s[i] - top) * (double)t->a.sm_scale);
    for (int i = 0; i < n; i++)
        s[i] = (float)(exp(((double)s[i] - top) * (double)t->a.sm_scale) / sum);
    kvant_format_best(fv)->axpy(NULL, s, TOKENS, 1, t->v + (size_t)(kv * TOKENS) * rb, rb, n, acc, D, D);
    kvant_format_best(fv)->finish_out(NULL, acc, out, D);
}

/* One fused op, causal or not, 4 heads over 2. */
static void fused_of(verify_cross *c, cross_case *t, const char *v_name, void (*op)(const kvant_attn_fused *a),
                     int use_qjl, verify_report *texts)
{
    const kvant_format *fv = kvant_format_find(v_name);
    double err = 0, sum = 0;

    fused_fill(t, fv);
    for (int causal = 0; causal < 2; causal++) {
        t->a = (kvant_attn_fused){ .q_sketch = t->q,
                                   .k = t->k,
                                   .v = t->v,
                                   .out = t->fused,
                                   .n_q_pos = 3,
                                   .n_heads = 4,
                                   .n_kv_heads = 2,
                                   .n_tokens = TOKENS,
                                   .sm_scale = 0.0883883461f,
                                   .causal = causal,
                                   .q_pos_base = 40,
                                   .v_use_qjl = use_qjl };
        op(&t->a);
        for (int p = 0; p < 3; p++)
            for (int h = 0; h < 4; h++)
                two_pass(t, fv, p, h, t->two + (p * 4 + h) * D);
        for (int i = 0; i < 3 * 4 * D; i++) {
            err += ((double)t->fused[i] - (double)t->two[i]) * ((double)t->fused[i] - (double)t->two[i]);
            sum += (double)t->two[i] * (double)t->two[i];
        }
        note(c, err / sum, 0, texts, v_name);
    }
}

static int check_fused(verify_cross *c, verify_report *texts, kvant_diag *diag)
{
    cross_case *t = kvant_calloc(1, sizeof *t);

    if (!t)
        return kvant_fail(diag, KVANT_ENOMEM, "verify: out of memory");
    fused_of(c, t, "tbq3_0", kvant_attn_fused_qjl_tbq_ref, 0, texts);
    fused_of(c, t, "q4_polar", kvant_attn_fused_qjl_polar_ref, 0, texts);
    fused_of(c, t, "q4_polar_r", kvant_attn_fused_qjl_polar_ref, 1, texts);
    kvant_free(t);
    return KVANT_OK;
}

/* ---- other forms of a query ---- */

static void check_preht(verify_cross *c, verify_report *texts)
{
    static const char *const names[] = { "q4_polar", "q4_polar_r" };
    float x[2 * D], q[2 * D], hq[2 * D], qp[2 * D], plain, preht;
    uint8_t row[MAX_ROW];

    for (int r = 0; r < 2; r++)
        for (unsigned i = 0; i < 16; i++) {
            const kvant_format *f = kvant_format_find(names[r]);
            const int d = i % 2 ? 2 * D : D;
            vcase_fill(x, (size_t)d, 70 + i);
            vcase_fill(q, (size_t)d, 90 + i);
            kvant_format_best(f)->encode(NULL, x, row, d, 0);
            kvant_format_best(f)->prep_q(NULL, q, qp, d);
            kvant_format_best(f)->score(NULL, qp, 2 * D, 1, row, sizeof row, 1, &plain, 1, d);
            kvant_polar_preht_query(q, hq, d);
            kvant_polar_preht_score(hq, row, sizeof row, 1, &preht, d, r);
            note(c, fabs((double)plain - (double)preht) / sqrt(dot(q, q, d) * dot(x, x, d)), 0, texts, names[r]);
        }
}

/* A bit's share of an int8 score is off by at most half a step of the query. */
static void check_qjl_i8(verify_cross *c, verify_report *texts)
{
    const kvant_format *f = kvant_format_find("qjl1_256");
    float x[D], q[D], qp[SDIM], scale, s, si;
    int8_t q8[SDIM];
    uint8_t row[34];

    for (unsigned i = 0; i < 64; i++) {
        vcase_fill(x, D, 40 + i);
        vcase_fill(q, D, 140 + i);
        kvant_format_best(f)->encode(vcase_param(f), x, row, D, 0);
        kvant_format_best(f)->prep_q(vcase_param(f), q, qp, D);
        kvant_format_best(f)->score(NULL, qp, SDIM, 1, row, sizeof row, 1, &s, 1, D);
        kvant_qjl_query_i8(qp, q8, &scale);
        kvant_qjl_score_i8(q8, scale, row, sizeof row, 1, &si);
        const double norm = (double)bf16_to_f32((uint16_t)(row[32] | row[33] << 8));
        note(c, fabs((double)s - (double)si), 1.2533141 / 256 * norm * (double)scale * 0.5 * SDIM * (1 + 1e-5), texts,
             "qjl1_256");
    }
}

int verify_cross_checks(verify_cross *out, verify_report *texts, kvant_diag *diag)
{
    static const verify_cross list[VERIFY_CROSS_CHECKS] = {
        { .name = "self-test numbers", .limit = 1e-5, .reason = "published with 6 decimals; sums in another order" },
        { .name = "score, decode-then-dot",
          .limit = 1,
          .reason = "DOT with the Cauchy bound (sdim/4 + 16) 2^-24 |q||k|, which also covers the rotations" },
        { .name = "fused, two passes", .limit = 1e-6, .reason = "NMSE of attention in f32" },
        { .name = "pre-Hadamard, plain", .limit = 1e-5, .reason = "of |q||k|: the same sum, factored otherwise" },
        { .name = "int8 query, f32 query", .limit = 1, .reason = "QDOT: half a step of the query per term" },
    };
    memcpy(out, list, sizeof list);
    KVANT_TRY(check_selftest(&out[0], texts, diag));
    check_spaces(&out[1], texts);
    KVANT_TRY(check_fused(&out[2], texts, diag));
    check_preht(&out[3], texts);
    check_qjl_i8(&out[4], texts);
    return KVANT_OK;
}
