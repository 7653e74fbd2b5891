/* ssm_body.h: ssm_step and ssm_chunk on vectors; included by ssm_<isa>.c after vf_<isa>.h.
 *
 * A unit is a block of state rows of one head of ALL sequences: it first copies the rows that another sequence may
 * overwrite (slots read and written by different sequences), then computes.  Rows are independent, units share nothing:
 * one stage, and forks, swaps and chains of slots are safe.
 * Both forms run the recurrence token by token with the rows in f32 scratch, so the results do not depend on where a
 * prompt was cut; they differ in when a bf16 state is rounded: after every token, or where a chunk ends. */
#include <math.h>
#include <string.h>
#include "base/half.h"
#include "devices/cpu/gdn/slot_moves.h"

enum { DECODE = 0, PROMPT = 1, ROWS = 16 };

/* Rows r0.. of head j in a slot. */
static char *rows_at(const kvant_ssm_args *a, int32_t slot, int j, int r0)
{
    const int64_t at = slot * a->slot_stride + ((int64_t)j * a->p + r0) * a->n;
    return (char *)a->state + at * (int64_t)kvant_state_bytes(a->state_type);
}

/* Values of a row in scratch: whole vectors, zeros behind n. */
static int row_room(const kvant_ssm_args *a)
{
    return (a->n + VF_LANES - 1) / VF_LANES * VF_LANES;
}

static void load_rows(const kvant_ssm_args *a, const char *from, float *to, int rows)
{
    memset(to, 0, (size_t)rows * (size_t)row_room(a) * sizeof *to);
    for (int r = 0; from && r < rows; r++, to += row_room(a))
        if (a->state_type == KVANT_STATE_F32)
            memcpy(to, from + (size_t)r * (size_t)a->n * sizeof *to, (size_t)a->n * sizeof *to);
        else
            for (int e = 0; e < a->n; e++)
                to[e] = bf16_to_f32(((const uint16_t *)(const void *)from)[r * a->n + e]);
}

static void store_rows(const kvant_ssm_args *a, const float *from, char *to, int rows)
{
    for (int r = 0; r < rows; r++, from += row_room(a))
        if (a->state_type == KVANT_STATE_F32)
            memcpy(to + (size_t)r * (size_t)a->n * sizeof *from, from, (size_t)a->n * sizeof *from);
        else
            for (int e = 0; e < a->n; e++)
                ((uint16_t *)(void *)to)[r * a->n + e] = f32_to_bf16(from[e]);
}

static void round_rows(const kvant_ssm_args *a, float *state, int rows)
{
    for (int i = 0; i < rows * row_room(a); i++)
        state[i] = bf16_to_f32(f32_to_bf16(state[i]));
}

/* Gathers the next rows of sequences that read another's slot, in sequence order. */
static void gather_rows(const kvant_ssm_args *a, int phase, int j, int r0, int rows, float *gathered)
{
    for (int s = 0; s < a->seqs.n_seqs; s++)
        if (takes_part(&a->seqs, s, phase) && is_moved(&a->seqs, s)) {
            load_rows(a, a->seqs.slot_in[s] < 0 ? NULL : rows_at(a, a->seqs.slot_in[s], j, r0), gathered, rows);
            gathered += (size_t)ROWS * (size_t)row_room(a);
        }
}

/* log(1 + exp(x)), x itself above 20; log1pf keeps the relative accuracy where exp(x) is small. */
static float softplus(float x)
{
    return x > 20.0f ? x : log1pf(expf(x));
}

typedef struct token {
    const float *x, *b, *c;
    float *y;
    float dt, decay, d;
} token;

static token token_at(const kvant_ssm_args *a, int i, int j)
{
    const int64_t group = (int64_t)(j / (a->h / a->g)) * a->n;
    const float dt = softplus(a->dt[i * a->lddt + j] + a->dt_bias[j]);

    return (token){ a->x + i * a->ldx + (int64_t)j * a->p, a->b + i * a->ldb + group, a->c + i * a->ldb + group,
                    a->y + ((int64_t)i * a->h + j) * a->p, dt, expf(dt * a->a[j]), a->d[j] };
}

/* Four rows of the state through one token: S = decay S + (dt x) B; y = <S, C> + D x. */
static void rows_4(const token *t, float *s, int room, int n, int r)
{
    const vf fade = vf_set1(t->decay);
    const vf x0 = vf_set1(t->dt * t->x[r]), x1 = vf_set1(t->dt * t->x[r + 1]), x2 = vf_set1(t->dt * t->x[r + 2]),
             x3 = vf_set1(t->dt * t->x[r + 3]);
    vf y0 = vf_zero(), y1 = vf_zero(), y2 = vf_zero(), y3 = vf_zero();

    for (int i = 0; i < n; i += VF_LANES, s += VF_LANES) {
        const int left = n - i;
        const vf b = left < VF_LANES ? vf_load_n(t->b + i, left) : vf_load(t->b + i);
        const vf c = left < VF_LANES ? vf_load_n(t->c + i, left) : vf_load(t->c + i);
        const vf s0 = vf_fma(b, x0, vf_mul(vf_load(s), fade)), s1 = vf_fma(b, x1, vf_mul(vf_load(s + room), fade)),
                 s2 = vf_fma(b, x2, vf_mul(vf_load(s + 2 * room), fade)),
                 s3 = vf_fma(b, x3, vf_mul(vf_load(s + 3 * room), fade));

        vf_store(s, s0);
        vf_store(s + room, s1);
        vf_store(s + 2 * room, s2);
        vf_store(s + 3 * room, s3);
        y0 = vf_fma(s0, c, y0);
        y1 = vf_fma(s1, c, y1);
        y2 = vf_fma(s2, c, y2);
        y3 = vf_fma(s3, c, y3);
    }
    t->y[r] = vf_reduce_add(y0) + t->d * t->x[r];
    t->y[r + 1] = vf_reduce_add(y1) + t->d * t->x[r + 1];
    t->y[r + 2] = vf_reduce_add(y2) + t->d * t->x[r + 2];
    t->y[r + 3] = vf_reduce_add(y3) + t->d * t->x[r + 3];
}

static void row_1(const token *t, float *s, int n, int r)
{
    const vf fade = vf_set1(t->decay), x = vf_set1(t->dt * t->x[r]);
    vf y = vf_zero();

    for (int i = 0; i < n; i += VF_LANES) {
        const int left = n - i < VF_LANES ? n - i : VF_LANES;
        const vf next = vf_fma(vf_load_n(t->b + i, left), x, vf_mul(vf_load(s + i), fade));

        vf_store(s + i, next);
        y = vf_fma(next, vf_load_n(t->c + i, left), y);
    }
    t->y[r] = vf_reduce_add(y) + t->d * t->x[r];
}

/* All tokens of sequence s over rows r0.. of head j, which lie in `state`. */
static void run_sequence(const kvant_ssm_args *a, int phase, int s, int j, int r0, int rows, float *state)
{
    const int room = row_room(a), first = a->seqs.q0[s];

    for (int i = first; i < a->seqs.q0[s + 1]; i++) {
        const token t = token_at(a, i, j);
        const int ends = phase == DECODE || (a->seqs.pos0[s] + i - first + 1) % KVANT_PAGE == 0;
        int r = 0;

        for (; r + 4 <= rows; r += 4)
            rows_4(&t, state + (size_t)r * (size_t)room, room, a->n, r0 + r);
        for (; r < rows; r++)
            row_1(&t, state + (size_t)r * (size_t)room, a->n, r0 + r);
        if (ends && a->state_type == KVANT_STATE_BF16)
            round_rows(a, state, rows);
    }
}

static void ssm_run(const kvant_ssm_args *a, int phase, int part, int parts, const kvant_work *work)
{
    const int blocks = (a->p + ROWS - 1) / ROWS;
    float *state = work->local, *moved = state + (size_t)ROWS * (size_t)row_room(a);
    int64_t lo, hi;

    part_range((int64_t)a->h * blocks, part, parts, &lo, &hi);
    for (int64_t unit = lo; unit < hi; unit++) {
        const int j = (int)(unit / blocks), r0 = (int)(unit % blocks) * ROWS;
        const int rows = a->p - r0 < ROWS ? a->p - r0 : ROWS;
        float *gathered = moved;

        gather_rows(a, phase, j, r0, rows, moved);
        for (int s = 0; s < a->seqs.n_seqs; s++) {
            const int in = a->seqs.slot_in[s], there = is_moved(&a->seqs, s);
            float *at = there ? gathered : state;

            if (!takes_part(&a->seqs, s, phase))
                continue;
            if (!there)
                load_rows(a, in < 0 ? NULL : rows_at(a, in, j, r0), state, rows);
            run_sequence(a, phase, s, j, r0, rows, at);
            if (a->seqs.slot_out[s] >= 0)
                store_rows(a, at, rows_at(a, a->seqs.slot_out[s], j, r0), rows);
            gathered += there ? (size_t)ROWS * (size_t)row_room(a) : 0;
        }
    }
}

static size_t ssm_local(const kvant_ssm_args *a, int phase)
{
    return (1 + count_moved(&a->seqs, phase)) * (size_t)ROWS * (size_t)row_room(a) * sizeof(float);
}

static void ssm_step(const void *args, int part, int parts, const kvant_work *work)
{
    ssm_run(args, DECODE, part, parts, work);
}

static void ssm_chunk(const void *args, int part, int parts, const kvant_work *work)
{
    ssm_run(args, PROMPT, part, parts, work);
}

static size_t ssm_step_local(const void *args)
{
    return ssm_local(args, DECODE);
}

static size_t ssm_chunk_local(const void *args)
{
    return ssm_local(args, PROMPT);
}

const kvant_cpu_kernel VF_KERNEL(ssm_step) = { .stages = 1, .fn = { ssm_step }, .local_bytes = ssm_step_local };
const kvant_cpu_kernel VF_KERNEL(ssm_chunk) = { .stages = 1, .fn = { ssm_chunk }, .local_bytes = ssm_chunk_local };
