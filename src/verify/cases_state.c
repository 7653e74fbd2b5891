/* cases_state.c: cases of the ops with recurrent state: conv, the gated delta rule, Mamba2, decode and prompt forms. */
#include <math.h>
#include <string.h>
#include "base/half.h"
#include "verify/cases.h"

/* Which slots three sequences read and write: their own; each other's (read before written); fresh; forked; and, of
 * decode rows alone, none; none beside others that are written. */
static const struct {
    const char *shape;
    int32_t in[VCASE_SEQS], out[VCASE_SEQS];
} slots[] = {
    { "in place", { 0, 1, 2 }, { 0, 1, 2 } },
    { "displaced", { 2, 1, 0 }, { 0, 1, 2 } },
    { "fresh", { -1, 3, 2 }, { 0, 1, 2 } },
    { "fork", { 1, 0, 1 }, { 1, 0, 3 } },
    { "kept", { 2, 1, -1 }, { -1, 1, -1 } },
    { "some kept", { 3, 1, 0 }, { -1, 1, 2 } },
};
enum { PATTERNS = sizeof slots / sizeof *slots, KEPT = PATTERNS - 2, SLOTS = 4 };

static int begin(vcase *c, int op, int phase, int pattern, const char *subject)
{
    if (pattern >= KEPT && phase)
        return 0;
    return vcase_begin(c, op, slots[pattern].shape, subject);
}

/* Three sequences with ask[] tokens; the middle one is of the other phase and belongs to the other op; the last one
 * begins `off` tokens behind a page's first. */
static kvant_seqs state_seqs(vcase *c, const int *ask, int phase, int pattern, int off)
{
    int32_t q0[VCASE_SEQS + 1] = { 0 }, pos0[VCASE_SEQS], prompt[VCASE_SEQS];

    for (int i = 0; i < VCASE_SEQS; i++) {
        q0[i + 1] = q0[i] + ask[i];
        pos0[i] = 64 * i + (i == VCASE_SEQS - 1 ? off : 0);
        prompt[i] = i == 1 ? !phase : phase;
    }
    return (kvant_seqs){ .n_seqs = VCASE_SEQS, .n_tokens = q0[VCASE_SEQS], .q0 = vcase_ints(c, q0, VCASE_SEQS + 1),
                         .pos0 = vcase_ints(c, pos0, VCASE_SEQS), .prompt = vcase_ints(c, prompt, VCASE_SEQS),
                         .slot_in = vcase_ints(c, slots[pattern].in, VCASE_SEQS),
                         .slot_out = vcase_ints(c, slots[pattern].out, VCASE_SEQS) };
}

/* kind: 0 as Qwen has it, 1 linear, 2 with a bias (Mamba2), 3 both (LFM2). */
static void conv(vcase *c, int phase, const int *ask, int pattern, int channels, int k, int kind)
{
    const int stride = channels * (k - 1) + 7, op = phase ? KVANT_OP_CONV_CHUNK : KVANT_OP_CONV_STEP;

    static const char *const kinds[] = { "", "linear", "bias", "linear, bias" };

    if (!begin(c, op, phase, pattern, kinds[kind]))
        return;
    const kvant_seqs seqs = state_seqs(c, ask, phase, pattern, 0);
    const int n = seqs.n_tokens;
    float *bias = kind > 1 ? vcase_normal(c, (size_t)channels, 4) : NULL;
    float *x = vcase_normal(c, (size_t)(n * (channels + 2)), 1), *w = vcase_normal(c, (size_t)(channels * k), 2);
    float *y = vcase_out(c, (size_t)(n * channels)), *state = vcase_normal(c, (size_t)(SLOTS * stride), 3);
    const kvant_conv_args a = { seqs, x, w, state, y, channels, k, stride, channels + 2, bias, kind % 2 };
    vcase_result(c, state);
    vcase_about(c, "%d channels, %d taps, %d tokens", channels, k, n);
    vcase_run(c, &a, 1e-7);
}

static const int one[VCASE_SEQS] = { 1, 1, 1 }, few[VCASE_SEQS] = { 2, 1, 0 }, many[VCASE_SEQS] = { 100, 3, 65 };

static void conv_empty(vcase *c, int op)
{
    if (!vcase_begin(c, op, "empty", ""))
        return;
    float *w = vcase_normal(c, 4 * 8, 2), *state = vcase_normal(c, 64, 3), *y = vcase_out(c, 8);
    const kvant_conv_args a = { { 0 }, y, w, state, y, 8, 4, 32, 8, NULL, 0 };
    vcase_run(c, &a, 0.0);
}

void cases_conv(vcase *c)
{
    for (int p = 0; p < PATTERNS; p++) {
        for (int kind = 0; kind < 4; kind++) {
            conv(c, 0, one, p, 70, 4, kind);
            conv(c, 0, few, p, 70, 3, kind);
            conv(c, 1, many, p, 70, 4, kind);
        }
        if (!c->quick)
            conv(c, 1, many, p, 1024, 4, 0);
    }
    conv_empty(c, KVANT_OP_CONV_STEP);
    conv_empty(c, KVANT_OP_CONV_CHUNK);
}

/* Keys and queries of unit length, as the model gives them. */
static void unit_rows(float *x, int rows, int d)
{
    for (int i = 0; i < rows; i++, x += d) {
        float sum = 0.0f;

        for (int e = 0; e < d; e++)
            sum += x[e] * x[e];
        for (int e = 0; e < d; e++)
            x[e] /= sqrtf(sum);
    }
}

typedef struct gdn_size {
    int hk, hv, dk, dv;
} gdn_size;

/* Four slots of normal values. */
static void *states(vcase *c, int stride, int type)
{
    const size_t n = (size_t)(SLOTS * stride);
    float *x = vcase_normal(c, n, 6);

    if (type == KVANT_STATE_F32) {
        vcase_result(c, x);
        return x;
    }
    uint16_t *state = vcase_take(c, n * sizeof *state);
    for (size_t i = 0; i < n; i++)
        state[i] = f32_to_bf16(x[i]);
    vcase_result_bf16(c, state);
    return state;
}

static void gdn(vcase *c, int phase, const int *ask, int pattern, gdn_size z, int type, int per_channel, int compute)
{
    static const char *const kinds[] = { "", "bf16", "channels", "channels, bf16" };
    const int stride = z.hv * z.dv * z.dk + 16, op = phase ? KVANT_OP_GDN_CHUNK : KVANT_OP_GDN_STEP;
    const int gates = z.hv * (per_channel ? z.dk : 1);

    if (!begin(c, op, phase, pattern, kinds[2 * per_channel + (type == KVANT_STATE_BF16)]))
        return;
    const kvant_seqs seqs = state_seqs(c, ask, phase, pattern, pattern % 2 ? 22 : 0);
    const int n = seqs.n_tokens;
    float *q = vcase_normal(c, (size_t)(n * z.hk * z.dk), 1), *k = vcase_normal(c, (size_t)(n * z.hk * z.dk), 2);
    float *v = vcase_normal(c, (size_t)(n * z.hv * z.dv), 3), *g = vcase_normal(c, (size_t)(n * gates), 4);
    float *beta = vcase_normal(c, (size_t)(n * z.hv), 5), *o = vcase_out(c, (size_t)(n * z.hv * z.dv));
    void *state = states(c, stride, type);
    unit_rows(q, n * z.hk, z.dk);
    unit_rows(k, n * z.hk, z.dk);
    for (int i = 0; i < n * gates; i++)
        g[i] = i % 17 == 3 ? -20.0f : -0.1f * fabsf(g[i]);         /* some forget everything */
    for (int i = 0; i < n * z.hv; i++)
        beta[i] = i % 13 == 2 ? 0.0f : 1.0f / (1.0f + expf(-beta[i]));
    const kvant_gdn_args a = { seqs, q, k, v, g, beta, state, o, z.hk, z.hv, z.dk, z.dv, pattern % 2,
                               z.hk * z.dk, z.hk * z.dk, z.hv * z.dv, stride, type, per_channel, compute };
    vcase_about(c, "heads %d/%d, d %d/%d, %d tokens, %s", z.hk, z.hv, z.dk, z.dv, n, compute ? "f32" : "auto");
    vcase_run(c, &a, 1e-7);
}

static void gdn_empty(vcase *c, int op)
{
    if (!vcase_begin(c, op, "empty", ""))
        return;
    float *state = vcase_normal(c, 2 * 1024, 3), *o = vcase_out(c, 32);
    const kvant_gdn_args a = { { 0 }, o, o, o, o, o, state, o, 1, 1, 32, 32, 0, 32, 32, 32, 1024, KVANT_STATE_F32,
                               0, KVANT_COMPUTE_AUTO };
    vcase_run(c, &a, 0.0);
}

void cases_gdn(vcase *c)
{
    const gdn_size big = { 2, 4, 128, 128 }, uneven = { 2, 4, 32, 48 }, small = { 2, 2, 16, 32 };

    for (int p = 0; p < PATTERNS; p++)
        for (int type = KVANT_STATE_F32; type <= KVANT_STATE_BF16; type++)
            for (int per_channel = 0; per_channel < 2; per_channel++) {
                gdn(c, 0, one, p, big, type, per_channel, KVANT_COMPUTE_AUTO);
                gdn(c, 0, few, p, uneven, type, per_channel, KVANT_COMPUTE_AUTO);
                for (int compute = 0; compute < 2; compute++) {
                    gdn(c, 1, many, p, c->quick ? uneven : big, type, per_channel, compute);
                    gdn(c, 1, many, p, small, type, per_channel, compute);
                }
            }
    gdn_empty(c, KVANT_OP_GDN_STEP);
    gdn_empty(c, KVANT_OP_GDN_CHUNK);
}

typedef struct ssm_size {
    int h, p, g, n;
} ssm_size;

static void ssm(vcase *c, int phase, const int *ask, int pattern, ssm_size z, int type)
{
    const int stride = z.h * z.p * z.n + 16, op = phase ? KVANT_OP_SSM_CHUNK : KVANT_OP_SSM_STEP;
    const int ldx = z.h * z.p + 2 * z.g * z.n, lddt = z.h + 3;

    if (!begin(c, op, phase, pattern, type == KVANT_STATE_BF16 ? "bf16" : ""))
        return;
    const kvant_seqs seqs = state_seqs(c, ask, phase, pattern, 22);
    const int n = seqs.n_tokens;
    float *x = vcase_normal(c, (size_t)(n * ldx), 1), *dt = vcase_normal(c, (size_t)(n * lddt), 2);
    float *a = vcase_normal(c, (size_t)z.h, 3), *d = vcase_normal(c, (size_t)z.h, 4);
    float *bias = vcase_normal(c, (size_t)z.h, 5), *y = vcase_out(c, (size_t)(n * z.h * z.p));
    void *state = states(c, stride, type);
    for (int i = 0; i < z.h; i++)
        a[i] = -fabsf(a[i]) * (i % 2 ? 1.0f : 0.003f);     /* some heads remember whole chunks */
    for (int i = 0; i < n * lddt; i += 13)
        dt[i] *= 25.0f;                 /* both ends of softplus; some forget everything */
    const kvant_ssm_args args = { seqs, x, dt, x + z.h * z.p, x + z.h * z.p + z.g * z.n, a, d, bias, state, y,
                                  z.h, z.p, z.g, z.n, ldx, lddt, ldx, stride, type };
    vcase_about(c, "%d heads of %d, %d groups, state %d, %d tokens", z.h, z.p, z.g, z.n, n);
    vcase_run(c, &args, 1e-7);
}

static void ssm_empty(vcase *c, int op)
{
    if (!vcase_begin(c, op, "empty", ""))
        return;
    float *state = vcase_normal(c, 2 * 1024, 3), *y = vcase_out(c, 32);
    const kvant_ssm_args a = { { 0 }, y, y, y, y, y, y, y, state, y, 1, 32, 1, 32, 32, 1, 32, 1024, KVANT_STATE_F32 };
    vcase_run(c, &a, 0.0);
}

void cases_ssm(vcase *c)
{
    const ssm_size big = { 4, 64, 1, 128 }, uneven = { 4, 38, 2, 20 }, small = { 2, 16, 2, 16 };
    const ssm_size wide = { 2, 24, 2, 256 };

    for (int p = 0; p < PATTERNS; p++)
        for (int type = KVANT_STATE_F32; type <= KVANT_STATE_BF16; type++) {
            ssm(c, 0, one, p, big, type);
            ssm(c, 0, one, p, wide, type);
            ssm(c, 1, many, p, wide, type);
            ssm(c, 0, few, p, uneven, type);
            ssm(c, 1, many, p, c->quick ? uneven : big, type);
            ssm(c, 1, many, p, small, type);
        }
    ssm_empty(c, KVANT_OP_SSM_STEP);
    ssm_empty(c, KVANT_OP_SSM_CHUNK);
}
