/* gdn_body.h: gdn_step on vectors; included by gdn_<isa>.c after vf_<isa>.h, before gdn_chunk_body.h.
 *
 * A unit is a block of value columns of one head of ALL sequences: it first copies the columns that another sequence
 * may overwrite (slots read and written by different sequences), then computes in place.  Columns are independent,
 * units share nothing: one stage, and forks, swaps and chains of slots are safe.
 * bf16 states: a token's columns are computed in f32 scratch and rounded into the slot.
 * Gates per channel: a token's decays, and its key with them, are made in scratch first. */
#include <string.h>
#include "base/half.h"
#include "devices/cpu/gdn/slot_moves.h"

enum { DECODE = 0, PROMPT = 1, STEP_COLUMNS = 16 };

/* Columns j0.. of head v in a slot. */
static char *columns_at(const kvant_gdn_args *a, int32_t slot, int v, int j0)
{
    const int64_t at = slot * a->slot_stride + ((int64_t)v * a->dv + j0) * a->dk;
    return (char *)a->state + at * (int64_t)kvant_state_bytes(a->state_type);
}

/* Bytes of n columns, as they are stored. */
static size_t columns_bytes(const kvant_gdn_args *a, int n)
{
    return (size_t)n * (size_t)a->dk * kvant_state_bytes(a->state_type);
}

/* Copies of the columns that must be gathered, in sequence order; count_moved of them. */
static void gather_columns(const kvant_gdn_args *a, int phase, int v, int j0, int n, char *gathered)
{
    const size_t bytes = columns_bytes(a, n);

    for (int s = 0; s < a->seqs.n_seqs; s++)
        if (takes_part(&a->seqs, s, phase) && is_moved(&a->seqs, s)) {
            if (a->seqs.slot_in[s] < 0)
                memset(gathered, 0, bytes);
            else
                memcpy(gathered, columns_at(a, a->seqs.slot_in[s], v, j0), bytes);
            gathered += bytes;
        }
}

/* The state a sequence starts from: its gathered copy (the next one), its own slot, or zeros put into its own slot. */
static void *entry_columns(const kvant_gdn_args *a, int s, int v, int j0, int n, char **gathered)
{
    const size_t bytes = columns_bytes(a, n);

    if (is_moved(&a->seqs, s)) {
        *gathered += bytes;
        return *gathered - bytes;
    }
    char *own = columns_at(a, a->seqs.slot_out[s], v, j0);
    if (a->seqs.slot_in[s] < 0)
        memset(own, 0, bytes);
    return own;
}

/* Between bf16 and f32; inner loops of a fixed length, which compilers vectorise at -O2. */
enum { WORDS = 16 };

static void widen(const uint16_t *restrict from, float *restrict to, int n)
{
    int i = 0;

    for (; i + WORDS <= n; i += WORDS)
        for (int k = 0; k < WORDS; k++)
            to[i + k] = bf16_to_f32(from[i + k]);
    for (; i < n; i++)
        to[i] = bf16_to_f32(from[i]);
}

static void narrow(const float *restrict from, uint16_t *restrict to, int n)
{
    int i = 0;

    for (; i + WORDS <= n; i += WORDS)
        for (int k = 0; k < WORDS; k++)
            to[i + k] = f32_to_bf16(from[i + k]);
    for (; i < n; i++)
        to[i] = f32_to_bf16(from[i]);
}

typedef struct token {
    const float *q, *k, *v, *g; /* g: gates_of */
    float *o;
    float beta;
    const float *fade, *faded; /* gates per channel: exp(g), exp(g) k */
} token;

/* Gates of a head. */
static int gates_of(const kvant_gdn_args *a)
{
    return a->per_channel ? a->dk : 1;
}

static token token_at(const kvant_gdn_args *a, int i, int v)
{
    const int kh = a->interleaved ? v / (a->hv / a->hk) : v % a->hk;
    const int64_t gate = (int64_t)i * a->hv + v;

    return (token){ a->q + i * a->ldq + (int64_t)kh * a->dk,
                    a->k + i * a->ldk + (int64_t)kh * a->dk,
                    a->v + i * a->ldv + (int64_t)v * a->dv,
                    a->g + gate * gates_of(a),
                    a->o + gate * a->dv,
                    a->beta[gate],
                    NULL,
                    NULL };
}

static float exp_one(float x)
{
    float y[VF_LANES];

    vf_store(y, vf_exp(vf_set1(x)));
    return y[0];
}

/* Columns of a group, unrolled by the preprocessor: an array of vectors would stay in memory at -O2. */
#define COLUMNS1(X)  X(0)
#define COLUMNS4(X)  COLUMNS1(X) X(1) X(2) X(3)
#define ZERO(c)      vf p##c = vf_zero(), o##c = vf_zero();
#define READ(c)      p##c = vf_fma(vf_load(src + c * dk + i), k, p##c);
#define READ_REST(c) p##c = vf_fma(vf_load_n(src + c * dk + i, dk - i), k, p##c);
#define ERROR(c)     const vf u##c = vf_set1(t->beta * (t->v[j + c] - decay * vf_reduce_add(p##c)));
#define UPDATE(c)                                                                                                      \
    s = vf_fma(k, u##c, vf_mul(vf_load(src + c * dk + i), fade));                                                      \
    vf_store(dst + c * dk + i, s);                                                                                     \
    o##c = vf_fma(s, q, o##c);
#define UPDATE_REST(c)                                                                                                 \
    s = vf_fma(k, u##c, vf_mul(vf_load_n(src + c * dk + i, dk - i), fade));                                            \
    vf_store_n(dst + c * dk + i, s, dk - i);                                                                           \
    o##c = vf_fma(s, q, o##c);
#define OUTPUT(c) t->o[j + c] = scale * vf_reduce_add(o##c);

/* Columns j.. of one token: src -> dst, which may be the same.  p = decay S^T KEY; S = FADE S + k u^T; o = S^T q. */
#define STEP_DEFINE(name, COLUMNS, KEY, FADE, FADE_REST)                                                               \
    static void name(const token *t, const float *src, float *dst, int j, int dk, float decay, float scale)            \
    {                                                                                                                  \
        int i = 0;                                                                                                     \
        COLUMNS(ZERO)                                                                                                  \
        for (; i + VF_LANES <= dk; i += VF_LANES) {                                                                    \
            const vf k = vf_load(KEY + i);                                                                             \
            COLUMNS(READ)                                                                                              \
        }                                                                                                              \
        if (i < dk) {                                                                                                  \
            const vf k = vf_load_n(KEY + i, dk - i);                                                                   \
            COLUMNS(READ_REST)                                                                                         \
        }                                                                                                              \
        COLUMNS(ERROR)                                                                                                 \
        for (i = 0; i + VF_LANES <= dk; i += VF_LANES) {                                                               \
            const vf k = vf_load(t->k + i), q = vf_load(t->q + i), fade = FADE;                                        \
            vf s;                                                                                                      \
            COLUMNS(UPDATE)                                                                                            \
        }                                                                                                              \
        if (i < dk) {                                                                                                  \
            const vf k = vf_load_n(t->k + i, dk - i), q = vf_load_n(t->q + i, dk - i), fade = FADE_REST;               \
            vf s;                                                                                                      \
            COLUMNS(UPDATE_REST)                                                                                       \
        }                                                                                                              \
        COLUMNS(OUTPUT)                                                                                                \
    }

STEP_DEFINE(step_4, COLUMNS4, t->k, vf_set1(decay), vf_set1(decay))
STEP_DEFINE(step_1, COLUMNS1, t->k, vf_set1(decay), vf_set1(decay))
STEP_DEFINE(channels_4, COLUMNS4, t->faded, vf_load(t->fade + i), vf_load_n(t->fade + i, dk - i))
STEP_DEFINE(channels_1, COLUMNS1, t->faded, vf_load(t->fade + i), vf_load_n(t->fade + i, dk - i))

/* fades: [2][dk]: exp(g), and k times it. */
static void fade_key(token *t, float *fades, int dk)
{
    t->fade = fades;
    t->faded = fades + dk;
    for (int i = 0; i < dk; i += VF_LANES) {
        const int n = dk - i < VF_LANES ? dk - i : VF_LANES;
        const vf f = vf_exp(vf_load_n(t->g + i, n));
        vf_store_n(fades + i, f, n);
        vf_store_n(fades + dk + i, vf_mul(f, vf_load_n(t->k + i, n)), n);
    }
}

/* Token i, columns j0 .. j0+n-1 of head v; fades: scratch of gates per channel. */
static void step_token(const kvant_gdn_args *a, int i, int v, int j0, int n, const float *src, float *dst, float *fades)
{
    const float scale = 1.0f / sqrtf((float)a->dk);
    token t = token_at(a, i, v);
    const float decay = a->per_channel ? 1.0f : exp_one(t.g[0]);
    int c = 0;

    if (a->per_channel)
        fade_key(&t, fades, a->dk);
    for (; c + 4 <= n; c += 4)
        (a->per_channel ? channels_4 : step_4)(&t, src + c * a->dk, dst + c * a->dk, j0 + c, a->dk, decay, scale);
    for (; c < n; c++)
        (a->per_channel ? channels_1 : step_1)(&t, src + c * a->dk, dst + c * a->dk, j0 + c, a->dk, decay, scale);
}

/* Floats of a unit's columns in f32; 0: they are worked on in place. */
static size_t room_floats(const kvant_gdn_args *a)
{
    return a->state_type == KVANT_STATE_F32 ? 0 : STEP_COLUMNS * (size_t)a->dk;
}

static size_t fade_floats(const kvant_gdn_args *a)
{
    return a->per_channel ? 2 * (size_t)a->dk : 0;
}

/* All tokens of sequence s; room: f32 scratch of the columns, for bf16 states, then of the fades.  A state that is not
 * written goes on where it was gathered. */
static void step_sequence(const kvant_gdn_args *a, int s, int v, int j0, int n, void *src, float *room)
{
    void *dst = a->seqs.slot_out[s] < 0 ? src : columns_at(a, a->seqs.slot_out[s], v, j0);
    float *fades = room + room_floats(a);

    for (int i = a->seqs.q0[s]; i < a->seqs.q0[s + 1]; i++, src = dst) {
        if (a->state_type == KVANT_STATE_F32) {
            step_token(a, i, v, j0, n, src, dst, fades);
            continue;
        }
        widen(src, room, n * a->dk);
        step_token(a, i, v, j0, n, room, room, fades);
        narrow(room, dst, n * a->dk);
    }
}

static void gdn_step(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_gdn_args *a = args;
    const int blocks = (a->dv + STEP_COLUMNS - 1) / STEP_COLUMNS;
    char *moved = (char *)((float *)work->local + room_floats(a) + fade_floats(a));
    int64_t lo, hi;

    part_range((int64_t)a->hv * blocks, part, parts, &lo, &hi);
    for (int64_t unit = lo; unit < hi; unit++) {
        const int v = (int)(unit / blocks), j0 = (int)(unit % blocks) * STEP_COLUMNS;
        const int n = a->dv - j0 < STEP_COLUMNS ? a->dv - j0 : STEP_COLUMNS;
        char *gathered = moved;

        gather_columns(a, DECODE, v, j0, n, moved);
        for (int s = 0; s < a->seqs.n_seqs; s++)
            if (takes_part(&a->seqs, s, DECODE))
                step_sequence(a, s, v, j0, n, entry_columns(a, s, v, j0, n, &gathered), work->local);
    }
}

static size_t gdn_step_local(const void *args)
{
    const kvant_gdn_args *a = args;

    return (room_floats(a) + fade_floats(a)) * sizeof(float) +
           count_moved(&a->seqs, DECODE) * columns_bytes(a, STEP_COLUMNS);
}

const kvant_cpu_kernel VF_KERNEL(gdn_step) = { .stages = 1, .fn = { gdn_step }, .local_bytes = gdn_step_local };
