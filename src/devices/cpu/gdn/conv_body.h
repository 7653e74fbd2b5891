/* conv_body.h: conv_step and conv_chunk on vectors of channels; included by conv_<isa>.c after vf_<isa>.h.
 *
 * A unit is a block of channels of ALL sequences: it first copies the windows that another sequence may overwrite
 * (slots that are read and written by different sequences), then computes.  Units share nothing: one stage is enough,
 * and forks, swaps and chains of slots are safe.
 * The sum is mul and add in tap order and then the bias or +0.0f: the same bits as the reference before SiLU. */
#include <string.h>
#include "devices/cpu/gdn/slot_moves.h"

enum { DECODE = 0, PROMPT = 1, CHANNELS = 64, MAX_TAPS = 8 };

/* Scratch of one part, channel fastest; behind it the windows gathered as they lie in the slots. */
typedef struct conv_scratch {
    float taps[MAX_TAPS][CHANNELS];
    float past[MAX_TAPS - 1][CHANNELS];
    float bias[CHANNELS];
    int linear;
} conv_scratch;

/* Taps with the channel fastest; zeros behind channel n, which are multiplied but never stored. */
static void load_taps(const float *from, int n, int k, conv_scratch *w)
{
    float *to = w->taps[0];

    if (n < CHANNELS)
        memset(w->taps, 0, sizeof w->taps);
    for (int c = 0; c < n && k == 4; c++, from += 4, to++) {
        to[0] = from[0];
        to[CHANNELS] = from[1];
        to[2 * CHANNELS] = from[2];
        to[3 * CHANNELS] = from[3];
    }
    for (int c = 0; c < n && k != 4; c++)
        for (int j = 0; j < k; j++)
            w->taps[j][c] = from[c * k + j];
}

/* Zeros where there is no bias: a sum of -0.0 becomes +0.0. */
static void load_bias(const kvant_conv_args *a, int c0, int n, conv_scratch *w)
{
    memset(w->bias, 0, sizeof w->bias);
    if (a->bias)
        memcpy(w->bias, a->bias + c0, (size_t)n * sizeof(float));
    w->linear = a->linear;
}

static inline vf conv_value(const conv_scratch *w, vf sum, int c)
{
    sum = vf_add(sum, vf_load(w->bias + c));
    return w->linear ? sum : vf_silu(sum);
}

/* Windows that must be gathered, in sequence order; count_moved of them. */
static void gather_windows(const kvant_conv_args *a, int phase, int c0, int n, float *gathered)
{
    const size_t floats = (size_t)n * (size_t)(a->k - 1);

    for (int s = 0; s < a->seqs.n_seqs; s++)
        if (takes_part(&a->seqs, s, phase) && is_moved(&a->seqs, s)) {
            if (a->seqs.slot_in[s] >= 0)
                memcpy(gathered, a->state + a->seqs.slot_in[s] * a->slot_stride + (int64_t)c0 * (a->k - 1),
                       floats * sizeof(float));
            gathered += floats; /* zeros need no copy */
        }
}

/* The window before the first token, channel fastest: zeros, the next gathered one, or the sequence's own. */
static void load_past(const kvant_conv_args *a, int s, int c0, int n, conv_scratch *w, const float **gathered)
{
    const int k1 = a->k - 1;
    const float *from = *gathered;

    if (is_moved(&a->seqs, s))
        *gathered += (size_t)n * (size_t)k1;
    else if (a->seqs.slot_in[s] >= 0)
        from = a->state + a->seqs.slot_out[s] * a->slot_stride + (int64_t)c0 * k1;
    if (a->seqs.slot_in[s] < 0) {
        memset(w->past, 0, sizeof w->past);
        return;
    }
    for (int c = 0; c < n && k1 == 3; c++, from += 3) {
        w->past[0][c] = from[0];
        w->past[1][c] = from[1];
        w->past[2][c] = from[2];
    }
    for (int c = 0; c < n && k1 != 3; c++)
        for (int j = 0; j < k1; j++)
            w->past[j][c] = from[c * k1 + j];
}

/* The last inputs, rows[0..k1-1], into the slot. */
static void store_past(const float *const *rows, int n, int k1, float *state)
{
    for (int c = 0; c < n && k1 == 3; c++, state += 3) {
        state[0] = rows[0][c];
        state[1] = rows[1][c];
        state[2] = rows[2][c];
    }
    for (int c = 0; c < n && k1 != 3; c++)
        for (int j = 0; j < k1; j++)
            state[c * k1 + j] = rows[j][c];
}

/* One token: rows[j] are the inputs under tap j, channel fastest. */
static void conv_token(const float *const *rows, const conv_scratch *w, int k, float *y, int n)
{
    for (int c = 0; c < n; c += VF_LANES) {
        const int left = n - c < VF_LANES ? n - c : VF_LANES;
        vf sum = vf_zero();

        for (int j = 0; j < k; j++)
            sum = vf_add(sum, vf_mul(vf_load_n(rows[j] + c, left), vf_load(w->taps[j] + c)));
        vf_store_n(y + c, conv_value(w, sum, c), left);
    }
}

/* As conv_token, for four taps and whole vectors, which models have. */
static void conv_token_4(const float *const *rows, const conv_scratch *w, float *y, int n)
{
    const float *r0 = rows[0], *r1 = rows[1], *r2 = rows[2], *r3 = rows[3];

    for (int c = 0; c < n; c += VF_LANES) {
        vf sum = vf_add(vf_zero(), vf_mul(vf_load(r0 + c), vf_load(w->taps[0] + c)));

        sum = vf_add(sum, vf_mul(vf_load(r1 + c), vf_load(w->taps[1] + c)));
        sum = vf_add(sum, vf_mul(vf_load(r2 + c), vf_load(w->taps[2] + c)));
        sum = vf_add(sum, vf_mul(vf_load(r3 + c), vf_load(w->taps[3] + c)));
        vf_store(y + c, conv_value(w, sum, c));
    }
}

static void conv_sequence(const kvant_conv_args *a, int s, int c0, int n, conv_scratch *w, const float **gathered)
{
    const int first = a->seqs.q0[s], tokens = a->seqs.q0[s + 1] - first, k = a->k, k1 = k - 1;
    const float *x = a->x + (int64_t)first * a->ldx + c0;
    const float *rows[MAX_TAPS];

    load_past(a, s, c0, n, w, gathered);
    for (int t = 0; t < tokens; t++) {
        for (int j = 0; j < k; j++)
            rows[j] = t + j < k1 ? w->past[t + j] : x + (int64_t)(t + j - k1) * a->ldx;
        if (k == 4 && n % VF_LANES == 0)
            conv_token_4(rows, w, a->y + (int64_t)(first + t) * a->c + c0, n);
        else
            conv_token(rows, w, k, a->y + (int64_t)(first + t) * a->c + c0, n);
    }
    if (a->seqs.slot_out[s] < 0)
        return;
    for (int j = 0; j < k1; j++)
        rows[j] = tokens + j < k1 ? w->past[tokens + j] : x + (int64_t)(tokens + j - k1) * a->ldx;
    store_past(rows, n, k1, a->state + a->seqs.slot_out[s] * a->slot_stride + (int64_t)c0 * k1);
}

static void conv_run(const kvant_conv_args *a, int phase, int part, int parts, const kvant_work *work)
{
    conv_scratch *w = work->local;
    float *moved = (float *)(void *)(w + 1);
    int64_t lo, hi;

    part_range((a->c + CHANNELS - 1) / CHANNELS, part, parts, &lo, &hi);
    for (int64_t u = lo; u < hi; u++) {
        const int c0 = (int)u * CHANNELS, n = a->c - c0 < CHANNELS ? a->c - c0 : CHANNELS;
        const float *gathered = moved;

        load_taps(a->w + (int64_t)c0 * a->k, n, a->k, w);
        load_bias(a, c0, n, w);
        gather_windows(a, phase, c0, n, moved);
        for (int s = 0; s < a->seqs.n_seqs; s++)
            if (takes_part(&a->seqs, s, phase))
                conv_sequence(a, s, c0, n, w, &gathered);
    }
}

static size_t conv_local(const kvant_conv_args *a, int phase)
{
    return sizeof(conv_scratch) + count_moved(&a->seqs, phase) * CHANNELS * (size_t)(a->k - 1) * sizeof(float);
}

static void conv_step(const void *args, int part, int parts, const kvant_work *work)
{
    conv_run(args, DECODE, part, parts, work);
}

static void conv_chunk(const void *args, int part, int parts, const kvant_work *work)
{
    conv_run(args, PROMPT, part, parts, work);
}

static size_t conv_step_local(const void *args)
{
    return conv_local(args, DECODE);
}

static size_t conv_chunk_local(const void *args)
{
    return conv_local(args, PROMPT);
}

const kvant_cpu_kernel VF_KERNEL(conv_step) = { .stages = 1, .fn = { conv_step }, .local_bytes = conv_step_local };
const kvant_cpu_kernel VF_KERNEL(conv_chunk) = { .stages = 1, .fn = { conv_chunk }, .local_bytes = conv_chunk_local };
