/* ssm.c: scalar references of ssm_step and ssm_chunk: Mamba2's state space model with a scalar decay per head.
 *
 * Per (sequence, head) a state S[p][n], n contiguous.  In the words of the paper (Dao and Gu 2024, section 6):
 *     a_t = exp(dt_t A);  S <- a_t S + dt_t x_t B_t^T;  y_t = S C_t + D x_t;  dt_t = softplus(dt_t + bias).
 * ssm_step is that recurrence.  ssm_chunk is the paper's dual form over chunks of KVANT_PAGE tokens that end on the
 * absolute 64 grid: inside a chunk y = (L o C B^T) (dt x), L[t][s] = a_{s+1} ... a_t; across chunks the state.
 * Two stages: all states are gathered before any is written (swaps, chains and forks of slots).
 * A bf16 state is f32 while it is worked on, and rounded after every token or chunk.
 * A sequence without tokens reads and writes nothing; slot_out -1: its state is not written. */
#include <math.h>
#include <string.h>
#include "base/half.h"
#include "ops/op_util.h"

enum { DECODE = 0, PROMPT = 1, CHUNK = KVANT_PAGE };

static size_t state_floats(const kvant_ssm_args *a)
{
    return (size_t)a->h * (size_t)a->p * (size_t)a->n;
}

static void *slot_at(const kvant_ssm_args *a, int32_t slot, size_t at)
{
    return (char *)a->state + ((size_t)slot * (size_t)a->slot_stride + at) * kvant_state_bytes(a->state_type);
}

static void load_state(const kvant_ssm_args *a, const void *from, float *to, size_t n)
{
    if (a->state_type == KVANT_STATE_F32)
        memcpy(to, from, n * sizeof *to);
    for (size_t i = 0; i < n && a->state_type == KVANT_STATE_BF16; i++)
        to[i] = bf16_to_f32(((const uint16_t *)from)[i]);
}

static void store_state(const kvant_ssm_args *a, const float *from, void *to, size_t n)
{
    if (a->state_type == KVANT_STATE_F32)
        memcpy(to, from, n * sizeof *from);
    for (size_t i = 0; i < n && a->state_type == KVANT_STATE_BF16; i++)
        ((uint16_t *)to)[i] = f32_to_bf16(from[i]);
}

/* Rounds a state as storing and reading it would. */
static void round_state(const kvant_ssm_args *a, float *state)
{
    for (size_t i = 0; i < (size_t)a->p * (size_t)a->n && a->state_type == KVANT_STATE_BF16; i++)
        state[i] = bf16_to_f32(f32_to_bf16(state[i]));
}

/* shared: f32[n_seqs][h][p][n] */
static void gather(const kvant_ssm_args *a, int phase, int part, int parts, const kvant_work *work)
{
    const size_t n = state_floats(a);
    int64_t lo, hi;

    part_range(a->seqs.n_seqs, part, parts, &lo, &hi);
    for (int s = (int)lo; s < hi; s++) {
        float *state = (float *)work->shared + (size_t)s * n;

        if (!takes_part(&a->seqs, s, phase))
            continue;
        if (a->seqs.slot_in[s] < 0)
            memset(state, 0, n * sizeof(float));
        else
            load_state(a, slot_at(a, a->seqs.slot_in[s], 0), state, n);
    }
}

/* The inputs of token row i, head j. */
typedef struct token {
    const float *x, *b, *c;
    double dt;
} token;

static token token_at(const kvant_ssm_args *a, int i, int j)
{
    const int64_t group = j / (a->h / a->g);
    const double dt = (double)a->dt[i * a->lddt + j] + (double)a->dt_bias[j];

    return (token){ a->x + i * a->ldx + (int64_t)j * a->p, a->b + i * a->ldb + group * a->n,
                    a->c + i * a->ldb + group * a->n, dt > 20.0 ? dt : log1p(exp(dt)) };
}

static double dot(const float *x, const float *y, int n)
{
    double sum = 0.0;

    for (int i = 0; i < n; i++)
        sum += (double)x[i] * (double)y[i];
    return sum;
}

static float *output(const kvant_ssm_args *a, int i, int j)
{
    return a->y + ((int64_t)i * a->h + j) * a->p;
}

static void step_head(const kvant_ssm_args *a, int s, int j, float *state, const kvant_work *work)
{
    (void)work;
    for (int i = a->seqs.q0[s]; i < a->seqs.q0[s + 1]; i++) {
        const token t = token_at(a, i, j);
        const double decay = exp(t.dt * (double)a->a[j]);

        for (int r = 0; r < a->p; r++) {
            float *row = state + (size_t)r * (size_t)a->n;

            for (int e = 0; e < a->n; e++)
                row[e] = (float)(decay * (double)row[e] + t.dt * (double)t.x[r] * (double)t.b[e]);
            output(a, i, j)[r] = (float)(dot(row, t.c, a->n) + (double)a->d[j] * (double)t.x[r]);
        }
        round_state(a, state);
    }
}

/* Scratch of one chunk: l[t] = log of a_1 ... a_t; m[t][s] = L[t][s] <C_t, B_s> dt_s; to_end[s] = L[last][s] dt_s; the
 * row of the state behind the chunk. */
typedef struct ssm_chunk {
    double *l, *m, *to_end, *row;
} ssm_chunk;

static void chunk_matrix(const kvant_ssm_args *a, int j, int lo, int n, const ssm_chunk *w)
{
    double sum = 0.0;

    for (int t = 0; t < n; t++)
        w->l[t] = sum += token_at(a, lo + t, j).dt * (double)a->a[j];
    for (int s = 0; s < n; s++) {
        const token y = token_at(a, lo + s, j);

        w->to_end[s] = exp(w->l[n - 1] - w->l[s]) * y.dt;
        for (int t = s; t < n; t++)
            w->m[t * CHUNK + s] = exp(w->l[t] - w->l[s]) * dot(token_at(a, lo + t, j).c, y.b, a->n) * y.dt;
    }
}

/* Row r of the outputs of the chunk, from the state before it. */
static void chunk_outputs(const kvant_ssm_args *a, int j, int lo, int n, int r, const float *row, const ssm_chunk *w)
{
    for (int t = 0; t < n; t++) {
        const token x = token_at(a, lo + t, j);
        double y = exp(w->l[t]) * dot(row, x.c, a->n) + (double)a->d[j] * (double)x.x[r];

        for (int s = 0; s <= t; s++)
            y += w->m[t * CHUNK + s] * (double)(x.x + (s - t) * a->ldx)[r];
        output(a, lo + t, j)[r] = (float)y;
    }
}

/* Row r of the state behind the chunk. */
static void chunk_row(const kvant_ssm_args *a, int j, int lo, int n, int r, float *row, const ssm_chunk *w)
{
    for (int e = 0; e < a->n; e++)
        w->row[e] = exp(w->l[n - 1]) * (double)row[e];
    for (int s = 0; s < n; s++) {
        const token x = token_at(a, lo + s, j);

        for (int e = 0; e < a->n; e++)
            w->row[e] += w->to_end[s] * (double)x.x[r] * (double)x.b[e];
    }
    for (int e = 0; e < a->n; e++)
        row[e] = (float)w->row[e];
}

static void chunk_head(const kvant_ssm_args *a, int s, int j, float *state, const kvant_work *work)
{
    double *at = work->local;
    const ssm_chunk w = { at, at + 2 * CHUNK, at + CHUNK, at + 2 * CHUNK + CHUNK * CHUNK };
    const int end = a->seqs.q0[s + 1];

    for (int lo = a->seqs.q0[s], n; lo < end; lo += n) {
        n = CHUNK - (a->seqs.pos0[s] + lo - a->seqs.q0[s]) % CHUNK;
        if (n > end - lo)
            n = end - lo;
        chunk_matrix(a, j, lo, n, &w);
        for (int r = 0; r < a->p; r++) {
            float *row = state + (size_t)r * (size_t)a->n;

            chunk_outputs(a, j, lo, n, r, row, &w);
            chunk_row(a, j, lo, n, r, row, &w);
        }
        round_state(a, state);
    }
}

static void run(const kvant_ssm_args *a, int phase, int part, int parts, const kvant_work *work)
{
    const size_t n = state_floats(a), head = (size_t)a->p * (size_t)a->n;
    int64_t lo, hi;

    part_range((int64_t)a->seqs.n_seqs * a->h, part, parts, &lo, &hi);
    for (int64_t unit = lo; unit < hi; unit++) {
        const int s = (int)(unit / a->h), j = (int)(unit % a->h);
        float *state = (float *)work->shared + (size_t)s * n + (size_t)j * head;

        if (!takes_part(&a->seqs, s, phase))
            continue;
        if (phase == PROMPT)
            chunk_head(a, s, j, state, work);
        else
            step_head(a, s, j, state, work);
        if (a->seqs.slot_out[s] >= 0)
            store_state(a, state, slot_at(a, a->seqs.slot_out[s], (size_t)j * head), head);
    }
}

static size_t ssm_shared(const void *args)
{
    const kvant_ssm_args *a = args;

    return (size_t)a->seqs.n_seqs * state_floats(a) * sizeof(float);
}

static size_t ssm_local(const void *args)
{
    const kvant_ssm_args *a = args;

    return (size_t)(2 * CHUNK + CHUNK * CHUNK + a->n) * sizeof(double);
}

static void step_gather(const void *args, int part, int parts, const kvant_work *work)
{
    gather(args, DECODE, part, parts, work);
}

static void step_run(const void *args, int part, int parts, const kvant_work *work)
{
    run(args, DECODE, part, parts, work);
}

static void chunk_gather(const void *args, int part, int parts, const kvant_work *work)
{
    gather(args, PROMPT, part, parts, work);
}

static void chunk_run(const void *args, int part, int parts, const kvant_work *work)
{
    run(args, PROMPT, part, parts, work);
}

const kvant_cpu_kernel kvant_ssm_step_ref = { .stages = 2,
                                              .fn = { step_gather, step_run },
                                              .shared_bytes = ssm_shared };
const kvant_cpu_kernel kvant_ssm_chunk_ref = {
    .stages = 2, .fn = { chunk_gather, chunk_run }, .shared_bytes = ssm_shared, .local_bytes = ssm_local
};
