/* gdn.c: scalar references of gdn_step and gdn_chunk: the gated delta rule with a gate per head or per channel.
 *
 * Per (sequence, value head) a state S[dk][dv], kept transposed: value column j is S + j*dk, dk contiguous floats.
 *     S <- exp(g_t) S;  p = S^T k_t;  u = beta_t (v_t - p);  S <- S + k_t u^T;  o_t = dk^-1/2 S^T q_t
 * gdn_chunk computes the same over chunks of KVANT_PAGE tokens that end on the absolute 64 grid.
 * Two stages: all states are gathered before any is written (swaps, chains and forks of slots).
 * A bf16 state is f32 while it is worked on, and rounded after every token or chunk.
 * A sequence without tokens reads and writes nothing; slot_out -1: its state is not written. */
#include <math.h>
#include <string.h>
#include "base/half.h"
#include "ops/op_util.h"

enum { DECODE = 0, PROMPT = 1, CHUNK = KVANT_PAGE };

static size_t state_floats(const kvant_gdn_args *a)
{
    return (size_t)a->hv * (size_t)a->dv * (size_t)a->dk;
}

static void *slot_at(const kvant_gdn_args *a, int32_t slot, size_t at)
{
    return (char *)a->state + ((size_t)slot * (size_t)a->slot_stride + at) * kvant_state_bytes(a->state_type);
}

static void load_state(const kvant_gdn_args *a, const void *from, float *to, size_t n)
{
    if (a->state_type == KVANT_STATE_F32)
        memcpy(to, from, n * sizeof *to);
    for (size_t i = 0; i < n && a->state_type == KVANT_STATE_BF16; i++)
        to[i] = bf16_to_f32(((const uint16_t *)from)[i]);
}

static void store_state(const kvant_gdn_args *a, const float *from, void *to, size_t n)
{
    if (a->state_type == KVANT_STATE_F32)
        memcpy(to, from, n * sizeof *from);
    for (size_t i = 0; i < n && a->state_type == KVANT_STATE_BF16; i++)
        ((uint16_t *)to)[i] = f32_to_bf16(from[i]);
}

/* Rounds a state as storing and reading it would. */
static void round_state(const kvant_gdn_args *a, float *state, size_t n)
{
    for (size_t i = 0; i < n && a->state_type == KVANT_STATE_BF16; i++)
        state[i] = bf16_to_f32(f32_to_bf16(state[i]));
}

/* shared: f32[n_seqs][hv][dv][dk] */
static void gather(const kvant_gdn_args *a, int phase, int part, int parts, const kvant_work *work)
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

/* The inputs of token row i, value head v. */
typedef struct token {
    const float *q, *k, *v, *g; /* g: gates_of */
    float beta;
} token;

/* Gates of a head. */
static int gates_of(const kvant_gdn_args *a)
{
    return a->per_channel ? a->dk : 1;
}

static token token_at(const kvant_gdn_args *a, int i, int v)
{
    const int kh = a->interleaved ? v / (a->hv / a->hk) : v % a->hk;

    return (token){ a->q + i * a->ldq + (int64_t)kh * a->dk, a->k + i * a->ldk + (int64_t)kh * a->dk,
                    a->v + i * a->ldv + (int64_t)v * a->dv, a->g + ((int64_t)i * a->hv + v) * gates_of(a),
                    a->beta[(int64_t)i * a->hv + v] };
}

static double dot(const float *x, const float *y, int n)
{
    double sum = 0.0;

    for (int i = 0; i < n; i++)
        sum += (double)x[i] * (double)y[i];
    return sum;
}

/* One token of one value column. */
static float step_column(const token *t, float *column, int j, int dk, int per_channel, double scale)
{
    const float decay = (float)exp((double)t->g[0]);

    for (int i = 0; i < dk; i++)
        column[i] *= per_channel ? (float)exp((double)t->g[i]) : decay;
    const float u = (float)((double)t->beta * ((double)t->v[j] - dot(column, t->k, dk)));
    for (int i = 0; i < dk; i++)
        column[i] += t->k[i] * u;
    return (float)(scale * dot(column, t->q, dk));
}

static void step_head(const kvant_gdn_args *a, int s, int v, float *state, const kvant_work *work)
{
    const double scale = 1.0 / sqrt((double)a->dk);

    (void)work;
    for (int i = a->seqs.q0[s]; i < a->seqs.q0[s + 1]; i++) {
        const token t = token_at(a, i, v);
        float *o = a->o + ((int64_t)i * a->hv + v) * a->dv;

        for (int j = 0; j < a->dv; j++)
            o[j] = step_column(&t, state + (size_t)j * (size_t)a->dk, j, a->dk, a->per_channel, scale);
        round_state(a, state, (size_t)a->dv * (size_t)a->dk);
    }
}

/* Scratch of one chunk, rows of [C]: cumulative gates c[gates]; a[C] = beta_t <k_t, D k_j> and p[C] = <q_t, D k_j> with
 * D = exp(c_t - c_j); keys and queries with their decay since the chunk began, keys with the decay until it ends: k, q,
 * left[dk]; one column u. */
typedef struct chunk {
    double *c, *a, *p, *k, *q, *left, *u;
} chunk;

static chunk chunk_parts(const kvant_gdn_args *a, double *p)
{
    const size_t rows = CHUNK * (size_t)a->dk, square = CHUNK * CHUNK;
    double *k = p + CHUNK + (size_t)CHUNK * (size_t)gates_of(a) + 2 * square;

    return (chunk){ p + CHUNK + 2 * square, p + CHUNK, p + CHUNK + square, k, k + rows, k + 2 * rows, p };
}

/* <x, exp(ct - cj) y>, where cj came before: never overflows. */
static double decayed_dot(const kvant_gdn_args *a, const float *x, const float *y, const double *ct, const double *cj)
{
    double sum = 0.0;

    if (!a->per_channel)
        return exp(ct[0] - cj[0]) * dot(x, y, a->dk);
    for (int i = 0; i < a->dk; i++)
        sum += (double)x[i] * (double)y[i] * exp(ct[i] - cj[i]);
    return sum;
}

/* Rows lo..lo+n-1 of one head: all but u. */
static void chunk_matrices(const kvant_gdn_args *a, int v, int lo, int n, const chunk *w)
{
    const int gates = gates_of(a), dk = a->dk;
    const double *last = w->c + (n - 1) * gates;

    for (int t = 0; t < n; t++)
        for (int i = 0; i < gates; i++)
            w->c[t * gates + i] = (t > 0 ? w->c[(t - 1) * gates + i] : 0.0) + (double)token_at(a, lo + t, v).g[i];
    for (int t = 0; t < n; t++) {
        const token x = token_at(a, lo + t, v);
        const double *c = w->c + t * gates;

        for (int j = 0; j <= t; j++) {
            const float *key = token_at(a, lo + j, v).k;
            w->a[t * CHUNK + j] = (double)x.beta * decayed_dot(a, x.k, key, c, w->c + j * gates);
            w->p[t * CHUNK + j] = decayed_dot(a, x.q, key, c, w->c + j * gates);
        }
        for (int i = 0; i < dk; i++) {
            const int of = a->per_channel ? i : 0;
            w->k[t * dk + i] = exp(c[of]) * (double)x.k[i];
            w->q[t * dk + i] = exp(c[of]) * (double)x.q[i];
            w->left[t * dk + i] = exp(last[of] - c[of]) * (double)x.k[i];
        }
    }
}

static double dot_f64(const float *x, const double *y, int n)
{
    double sum = 0.0;

    for (int i = 0; i < n; i++)
        sum += (double)x[i] * y[i];
    return sum;
}

/* One value column j: U by forward substitution, the outputs, then the state. */
static void chunk_column(const kvant_gdn_args *a, int v, int lo, int n, int j, float *column, const chunk *w)
{
    const double scale = 1.0 / sqrt((double)a->dk), *last = w->c + (n - 1) * gates_of(a);
    double *u = w->u;

    for (int t = 0; t < n; t++) {
        const token x = token_at(a, lo + t, v);
        double r = (double)x.beta * ((double)x.v[j] - dot_f64(column, w->k + t * a->dk, a->dk));
        double o = dot_f64(column, w->q + t * a->dk, a->dk);

        for (int m = 0; m < t; m++)
            r -= w->a[t * CHUNK + m] * u[m];
        u[t] = r;
        for (int m = 0; m <= t; m++)
            o += w->p[t * CHUNK + m] * u[m];
        a->o[((int64_t)(lo + t) * a->hv + v) * a->dv + j] = (float)(scale * o);
    }
    for (int i = 0; i < a->dk; i++) {
        double sum = exp(last[a->per_channel ? i : 0]) * (double)column[i];

        for (int t = 0; t < n; t++)
            sum += w->left[t * a->dk + i] * u[t];
        column[i] = (float)sum;
    }
}

/* Chunks end where (position + 1) % CHUNK == 0, so the result does not depend on how a prompt was cut on that grid. */
static void chunk_head(const kvant_gdn_args *a, int s, int v, float *state, const kvant_work *work)
{
    const chunk w = chunk_parts(a, work->local);
    const int end = a->seqs.q0[s + 1];

    for (int lo = a->seqs.q0[s], n; lo < end; lo += n) {
        n = CHUNK - (a->seqs.pos0[s] + lo - a->seqs.q0[s]) % CHUNK;
        if (n > end - lo)
            n = end - lo;
        chunk_matrices(a, v, lo, n, &w);
        for (int j = 0; j < a->dv; j++)
            chunk_column(a, v, lo, n, j, state + (size_t)j * (size_t)a->dk, &w);
        round_state(a, state, (size_t)a->dv * (size_t)a->dk);
    }
}

static void run(const kvant_gdn_args *a, int phase, int part, int parts, const kvant_work *work)
{
    const size_t n = state_floats(a), head = (size_t)a->dv * (size_t)a->dk;
    int64_t lo, hi;

    part_range((int64_t)a->seqs.n_seqs * a->hv, part, parts, &lo, &hi);
    for (int64_t unit = lo; unit < hi; unit++) {
        const int s = (int)(unit / a->hv), v = (int)(unit % a->hv);
        float *state = (float *)work->shared + (size_t)s * n + (size_t)v * head;

        if (!takes_part(&a->seqs, s, phase))
            continue;
        if (phase == PROMPT)
            chunk_head(a, s, v, state, work);
        else
            step_head(a, s, v, state, work);
        if (a->seqs.slot_out[s] >= 0)
            store_state(a, state, slot_at(a, a->seqs.slot_out[s], (size_t)v * head), head);
    }
}

static size_t gdn_shared(const void *args)
{
    const kvant_gdn_args *a = args;

    return (size_t)a->seqs.n_seqs * state_floats(a) * sizeof(float);
}

static size_t gdn_local(const void *args)
{
    const kvant_gdn_args *a = args;

    return CHUNK * (1 + 2 * CHUNK + (size_t)gates_of(a) + 3 * (size_t)a->dk) * sizeof(double);
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

const kvant_cpu_kernel kvant_gdn_step_ref = { .stages = 2,
                                              .fn = { step_gather, step_run },
                                              .shared_bytes = gdn_shared };
const kvant_cpu_kernel kvant_gdn_chunk_ref = {
    .stages = 2, .fn = { chunk_gather, chunk_run }, .shared_bytes = gdn_shared, .local_bytes = gdn_local
};
