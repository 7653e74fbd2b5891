/* conv.c: scalar references of conv_step and conv_chunk: depthwise causal convolution over time, then SiLU.
 *
 * Two stages: every sequence's window is gathered before any state is written, so that a slot may be read by one
 * sequence and written by another (fork, swap, chain).  Taps are added in ascending order in f32, then the bias, or
 * +0.0f: a sum of -0.0 becomes +0.0, as in the unfused graph.  Source: docs/ops.md, conv_step.
 * A sequence without tokens reads and writes nothing; slot_out -1: its window is not written. */
#include <math.h>
#include <string.h>
#include "ops/op_util.h"

enum { DECODE = 0, PROMPT = 1 };

/* shared: f32[n_seqs][c][k-1] */
static void conv_gather(const kvant_conv_args *a, int phase, int part, int parts, const kvant_work *work)
{
    const size_t n = (size_t)a->c * (size_t)(a->k - 1);
    int64_t lo, hi;

    part_range(a->seqs.n_seqs, part, parts, &lo, &hi);
    for (int s = (int)lo; s < hi; s++) {
        float *window = (float *)work->shared + (size_t)s * n;

        if (!takes_part(&a->seqs, s, phase))
            continue;
        if (a->seqs.slot_in[s] < 0)
            memset(window, 0, n * sizeof(float));
        else
            memcpy(window, a->state + a->seqs.slot_in[s] * a->slot_stride, n * sizeof(float));
    }
}

/* One channel of one sequence: window f32[k-1], oldest first, slides over the tokens. */
static void conv_channel(const kvant_conv_args *a, int s, int ch, float *window)
{
    const float *w = a->w + (int64_t)ch * a->k;

    for (int i = a->seqs.q0[s]; i < a->seqs.q0[s + 1]; i++) {
        const float x = a->x[(int64_t)i * a->ldx + ch];
        float sum = 0.0f;

        for (int j = 0; j < a->k - 1; j++)
            sum += window[j] * w[j];
        sum += x * w[a->k - 1];
        sum += a->bias ? a->bias[ch] : 0.0f;
        a->y[(int64_t)i * a->c + ch] = a->linear ? sum : sum / (1.0f + expf(-sum));
        for (int j = 0; j + 1 < a->k - 1; j++)
            window[j] = window[j + 1];
        if (a->k > 1)
            window[a->k - 2] = x;
    }
    if (a->seqs.slot_out[s] >= 0)
        memcpy(a->state + a->seqs.slot_out[s] * a->slot_stride + (int64_t)ch * (a->k - 1), window,
               (size_t)(a->k - 1) * sizeof(float));
}

static void conv_run(const kvant_conv_args *a, int phase, int part, int parts, const kvant_work *work)
{
    int64_t lo, hi;

    part_range(a->c, part, parts, &lo, &hi);
    for (int s = 0; s < a->seqs.n_seqs; s++)
        if (takes_part(&a->seqs, s, phase))
            for (int ch = (int)lo; ch < hi; ch++)
                conv_channel(a, s, ch,
                             (float *)work->shared + ((size_t)s * (size_t)a->c + (size_t)ch) * (size_t)(a->k - 1));
}

static size_t conv_shared(const void *args)
{
    const kvant_conv_args *a = args;

    return (size_t)a->seqs.n_seqs * (size_t)a->c * (size_t)(a->k - 1) * sizeof(float);
}

static void step_gather(const void *args, int part, int parts, const kvant_work *work)
{
    conv_gather(args, DECODE, part, parts, work);
}

static void step_run(const void *args, int part, int parts, const kvant_work *work)
{
    conv_run(args, DECODE, part, parts, work);
}

static void chunk_gather(const void *args, int part, int parts, const kvant_work *work)
{
    conv_gather(args, PROMPT, part, parts, work);
}

static void chunk_run(const void *args, int part, int parts, const kvant_work *work)
{
    conv_run(args, PROMPT, part, parts, work);
}

const kvant_cpu_kernel kvant_conv_step_ref = { .stages = 2,
                                               .fn = { step_gather, step_run },
                                               .shared_bytes = conv_shared };
const kvant_cpu_kernel kvant_conv_chunk_ref = { .stages = 2,
                                                .fn = { chunk_gather, chunk_run },
                                                .shared_bytes = conv_shared };
