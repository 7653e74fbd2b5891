/* check_metal_shim_gdn.c: chunks of the gated delta rule on Metal's matrices where gates of a chunk add up to far below
 * what a float holds in whole steps: what lies between two tokens must not be lost in it.  And sizes that no model has:
 * keys of 20 values, 21 value columns, a prompt that begins inside of a chunk.  On the device metal-shim, beside the
 * kernel that goes token by token (--compute f32). */
#include <string.h>
#include "base/error.h"
#include "support/shim_here.h"

enum { TOKENS = 90, HK = 1, HV = 2, DK = 20, DV = 21, STATE = HV * DV * DK, OUT = TOKENS * HV * DV };

typedef struct data {
    float q[TOKENS * HK * DK], k[TOKENS * HK * DK], v[OUT], g[TOKENS * HV], beta[TOKENS * HV], state[STATE], o[OUT];
    int32_t q0[2], pos0[1], prompt[1], slot[1];
} data;

static void normalise(float *x, int rows)
{
    for (int i = 0; i < rows; i++, x += DK) {
        float sum = 0.0f;
        for (int e = 0; e < DK; e++)
            sum += x[e] * x[e];
        for (int e = 0; e < DK; e++)
            x[e] /= sqrtf(sum);
    }
}

/* great: the first tokens forget everything, many times over. */
static void fill(data *d, int great)
{
    memset(d, 0, sizeof *d);
    check_fill(d->q, TOKENS * HK * DK, -1.0f, 1.0f, 1);
    check_fill(d->k, TOKENS * HK * DK, -1.0f, 1.0f, 2);
    check_fill(d->v, OUT, -1.0f, 1.0f, 3);
    check_fill(d->g, TOKENS * HV, -0.1f, 0.0f, 4);
    check_fill(d->beta, TOKENS * HV, 0.0f, 1.0f, 5);
    check_fill(d->state, STATE, -1.0f, 1.0f, 6);
    normalise(d->q, TOKENS * HK);
    normalise(d->k, TOKENS * HK);
    for (int i = 0; i < 4 * HV && great; i++)
        d->g[i] = -3e4f;
    d->q0[1] = TOKENS;
    d->pos0[0] = 50;
    d->prompt[0] = 1;
}

static int run(data *d, int compute)
{
    const kvant_gdn_args a = { .seqs = { .n_seqs = 1, .n_tokens = TOKENS, .q0 = d->q0, .pos0 = d->pos0,
                                         .prompt = d->prompt, .slot_in = d->slot, .slot_out = d->slot },
                               .q = d->q, .k = d->k, .v = d->v, .g = d->g, .beta = d->beta, .state = d->state,
                               .o = d->o, .hk = HK, .hv = HV, .dk = DK, .dv = DV, .ldq = HK * DK, .ldk = HK * DK,
                               .ldv = HV * DV, .slot_stride = STATE, .compute = compute };
    const kvant_op op = { .id = KVANT_OP_GDN_CHUNK, .args = &a };

    KVANT_TRY(dev->vt->submit(dev, &op, 1, 0, &diag));
    return dev->vt->sync(dev, &diag);
}

/* The op's class: squared differences within 1e-7 of the squares. */
static void compare(const float *got, const float *want, int n, const char *what, int great)
{
    const double error = check_nmse(got, want, (size_t)n);

    CHECK(error <= 1e-7, "%s, %s gates: relative error %g", what, great ? "great" : "small", error);
    CHECK(memcmp(got, want, (size_t)n * sizeof *got) != 0, "%s: equal bits: no matrices were used", what);
}

static void modes(data *d, int great)
{
    static data f32;

    fill(d, great);
    CHECK(run(d, KVANT_COMPUTE_F32) == KVANT_OK, "%s", diag.text);
    f32 = *d;
    fill(d, great);
    CHECK(run(d, KVANT_COMPUTE_AUTO) == KVANT_OK, "%s", diag.text);
    compare(d->o, f32.o, OUT, "outputs", great);
    compare(d->state, f32.state, STATE, "state", great);
}

static void tests(void *d)
{
    modes(d, 0);
    modes(d, 1);
}

int main(void)
{
    return shim_here("check_metal_shim_gdn", sizeof(data), tests);
}
