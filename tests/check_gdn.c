/* check_gdn.c: gdn_step, gdn_chunk, conv_step, conv_chunk: variants against the references (NMSE 1e-7, outputs and the
 * whole state), slots in every pattern, and the bit rules.  A case
 * runs prompts and decode rows in one batch; slots and gaps that nobody owns are NaN and must stay so. */
#include <stdint.h>
#include "base/half.h"
#include "base/rng.h"
#include "support/check.h"
#include "support/op_run.h"

enum { MAX_SEQS = 128, MAX_SLOTS = 2 * MAX_SEQS + 2, GAP = 5 };
enum pattern { IDENTITY, MOVED, SWAP, CHAIN_UP, CHAIN_DOWN, FORK, FRESH, MIXED, PATTERNS };
static const char *const pattern_names[PATTERNS] = { "identity",   "moved", "swap",  "chain up",
                                                     "chain down", "fork",  "fresh", "mixed" };

/* One batch for either family.  conv: c channels, k taps; gdn: heads and widths. */
typedef struct scene {
    int is_conv, n_seqs, n_tokens, n_slots, pattern;
    int32_t q0[MAX_SEQS + 1], pos0[MAX_SEQS], prompt[MAX_SEQS], in[MAX_SEQS], out[MAX_SEQS];
    kvant_gdn_args gdn;
    kvant_conv_args conv;
    float *x[5];                            /* gdn: q k v g beta; conv: x w */
    float *state;                           /* before the op */
    int64_t slot_floats, stride, width, ld; /* state of a slot, distance; output row */
} scene;

/* What an op left behind; bf16 states are widened. */
typedef struct result {
    float *state, *y;
} result;

static float *random_floats(size_t n, float lo, float hi, uint64_t seed)
{
    float *x = check_guarded(n * sizeof(float), 4);

    check_fill(x, n, lo, hi, seed);
    return x;
}

static void set_slots(scene *s, int pattern, rng *r)
{
    const int n = s->n_seqs;

    s->pattern = pattern;
    s->n_slots = 2 * n + 2;
    for (int i = 0; i < n; i++) {
        const int what = pattern == MIXED ? (int)rng_below(r, 4) : -1;

        s->in[i] = s->out[i] = i + 1;
        if (pattern == MOVED || what == 1)
            s->in[i] = n + 1 + i;
        if (pattern == SWAP)
            s->in[i] = (i ^ 1) < n ? (i ^ 1) + 1 : i + 1;
        if (pattern == CHAIN_UP || what == 2)
            s->in[i] = i > 0 ? i : 1; /* reads the slot that the sequence before it writes */
        if (pattern == CHAIN_DOWN)
            s->in[i] = i + 2; /* reads the slot that the sequence after it writes */
        if (pattern == FORK)
            s->in[i] = n / 2 + 1;
        if (pattern == FRESH || what == 3)
            s->in[i] = -1;
    }
}

/* tokens[i] per sequence; prompt[i] from prompts. */
static void scene_open(scene *s, int is_conv, int n_seqs, const int *tokens, int prompts, int pattern, uint64_t seed)
{
    rng r = { seed };

    memset(s, 0, sizeof *s);
    s->is_conv = is_conv;
    s->n_seqs = n_seqs;
    for (int i = 0; i < n_seqs; i++) {
        s->q0[i + 1] = s->q0[i] + tokens[i];
        s->pos0[i] = (int)rng_below(&r, 3) * 64;
        s->prompt[i] = prompts == 2 ? i % 2 : prompts;
    }
    s->n_tokens = s->q0[n_seqs];
    set_slots(s, pattern, &r);
}

static kvant_seqs seqs_of(const scene *s)
{
    return (kvant_seqs){ .n_seqs = s->n_seqs,
                         .n_tokens = s->n_tokens,
                         .q0 = s->q0,
                         .pos0 = s->pos0,
                         .prompt = s->prompt,
                         .slot_in = s->in,
                         .slot_out = s->out };
}

/* Slots that some sequence reads or writes get numbers; the others and all gaps stay NaN. */
static void fill_state(scene *s, uint64_t seed)
{
    s->stride = s->slot_floats + GAP;
    s->state = check_guarded((size_t)(s->n_slots * s->stride) * sizeof(float), 4);
    for (int i = 0; i < s->n_seqs; i++) {
        if (s->in[i] >= 0)
            check_fill(s->state + s->in[i] * s->stride, (size_t)s->slot_floats, -0.3f, 0.3f, seed + (uint64_t)s->in[i]);
        if (s->out[i] != s->in[i] && isnan(s->state[s->out[i] * s->stride]))
            check_fill(s->state + s->out[i] * s->stride, (size_t)s->slot_floats, -0.3f, 0.3f,
                       seed + (uint64_t)s->out[i]);
    }
}

static void normalise(float *x, int n, int64_t ld, int h, int d)
{
    const kvant_norm_l2_args a = { x, 1e-6f, n, h, d, ld, d };

    op_run(KVANT_OP_NORM_L2, kvant_op_reference(KVANT_OP_NORM_L2), &a, 1);
}

/* decay: lower end of g; the upper end is -1e-4.  beta: 0, 1 or (2) random. */
static void gdn_inputs(scene *s, int hk, int hv, int dk, int dv, int interleaved, float decay, int beta, int type,
                       int per_channel, uint64_t seed)
{
    const int64_t ldq = hk * dk + 3, ldv = hv * dv + 1, n = s->n_tokens, gates = hv * (per_channel ? dk : 1);

    s->slot_floats = (int64_t)hv * dv * dk;
    s->width = s->ld = (int64_t)hv * dv;
    s->x[0] = random_floats((size_t)(n * ldq), -1, 1, seed);
    s->x[1] = random_floats((size_t)(n * ldq), -1, 1, seed + 1);
    s->x[2] = random_floats((size_t)(n * ldv), -1, 1, seed + 2);
    s->x[3] = random_floats((size_t)(n * gates), decay, -1e-4f, seed + 3);
    s->x[4] = random_floats((size_t)(n * hv), beta == 1 ? 1 : 0, beta == 0 ? 0 : 1, seed + 4);
    normalise(s->x[0], s->n_tokens, ldq, hk, dk);
    normalise(s->x[1], s->n_tokens, ldq, hk, dk);
    fill_state(s, seed + 5);
    s->gdn = (kvant_gdn_args){ seqs_of(s), s->x[0], s->x[1], s->x[2],     s->x[3], s->x[4], NULL, NULL,     hk,
                               hv,         dk,      dv,      interleaved, ldq,     ldq,     ldv,  s->stride, type,
                               per_channel, KVANT_COMPUTE_AUTO };
    for (int64_t i = 0; i < s->n_slots * s->stride && type == KVANT_STATE_BF16; i++)
        s->state[i] = bf16_to_f32(f32_to_bf16(s->state[i]));
}

static void conv_inputs(scene *s, int c, int k, uint64_t seed)
{
    s->slot_floats = (int64_t)c * (k - 1);
    s->width = s->ld = c;
    const int64_t ldx = c + 3; /* the channels lie among other data */

    s->x[0] = random_floats((size_t)(s->n_tokens * ldx), -1, 1, seed);
    s->x[1] = random_floats((size_t)(c * k), -1, 1, seed + 1);
    for (int i = 0; i < s->n_tokens && c > 2; i++) /* channel 1: inputs 0 under negative taps: sums of -0.0 */
        s->x[0][i * ldx + 1] = 0.0f;
    for (int j = 0; j < k && c > 2; j++)
        s->x[1][k + j] = -1.0f;
    fill_state(s, seed + 2);
    for (int i = 0; i < s->n_slots && c > 2; i++)
        for (int j = 0; j < k - 1; j++)
            s->state[i * s->stride + (k - 1) + j] = 0.0f;
    s->conv = (kvant_conv_args){ seqs_of(s), s->x[0], s->x[1], NULL, NULL, c, k, s->stride, ldx, NULL, 0 };
}

static void scene_close(scene *s)
{
    for (int i = 0; i < 5; i++)
        if (s->x[i] != NULL)
            check_guard_free(s->x[i]);
    check_guard_free(s->state);
}

/* Runs a kernel; a bf16 state is made of `state` and widened into it afterwards. */
static void run_args(const scene *s, int id, const kvant_cpu_kernel *kernel, const void *args, int parts, float *state,
                     void **to)
{
    const size_t n = (size_t)(s->n_slots * s->stride);
    uint16_t *stored = s->gdn.state_type == KVANT_STATE_BF16 ? check_guarded(n * sizeof *stored, 2) : NULL;

    for (size_t i = 0; stored && i < n; i++)
        stored[i] = f32_to_bf16(state[i]);
    *to = stored ? (void *)stored : state;
    if (parts < 0)
        op_run_threads(id, kernel, args, -parts);
    else
        op_run(id, kernel, args, parts);
    if (!stored)
        return;
    for (size_t i = 0; i < n; i++)
        state[i] = bf16_to_f32(stored[i]);
    CHECK(check_guard_ok(stored), "wrote outside");
    check_guard_free(stored);
}

/* Runs `kernel` as op id on copies of the state; parts < 0: on -parts real threads. */
static result run(const scene *s, int id, const kvant_cpu_kernel *kernel, int parts)
{
    const size_t state_bytes = (size_t)(s->n_slots * s->stride) * sizeof(float);
    result r = { check_guarded(state_bytes, 4), check_guarded((size_t)(s->n_tokens * s->ld) * sizeof(float), 4) };
    kvant_gdn_args g = s->gdn;
    kvant_conv_args c = s->conv;
    const void *args = s->is_conv ? (void *)&c : (void *)&g;

    memcpy(r.state, s->state, state_bytes);
    c.state = r.state;
    g.o = c.y = r.y;
    run_args(s, id, kernel, args, parts, r.state, &g.state);
    CHECK(check_guard_ok(r.state) && check_guard_ok(r.y), "wrote outside");
    return r;
}

static void result_free(result *r)
{
    check_guard_free(r->state);
    check_guard_free(r->y);
}

static int same_bits(const scene *s, const result *a, const result *b)
{
    return memcmp(a->state, b->state, (size_t)(s->n_slots * s->stride) * sizeof(float)) == 0 &&
           memcmp(a->y, b->y, (size_t)(s->n_tokens * s->ld) * sizeof(float)) == 0;
}

static int phase_of(int id)
{
    return id == KVANT_OP_GDN_CHUNK || id == KVANT_OP_CONV_CHUNK;
}

/* Largest NMSE over output rows and written slots of this phase; infinite where bytes that nobody owns changed. */
static double distance(const scene *s, int id, const result *a, const result *b)
{
    char written[MAX_SLOTS] = { 0 };
    double worst = 0;

    for (int i = 0; i < s->n_seqs; i++) {
        const int64_t lo = s->q0[i] * s->ld, n = (s->q0[i + 1] - s->q0[i]) * s->ld;

        if (n > 0 && s->prompt[i] == phase_of(id)) {
            const double y = check_nmse(a->y + lo, b->y + lo, (size_t)n);
            const int64_t at = s->out[i] * s->stride;
            const double state = check_nmse(a->state + at, b->state + at, (size_t)s->slot_floats);

            written[s->out[i]] = 1;
            if (!(y <= worst))
                worst = y;
            if (!(state <= worst))
                worst = state;
        } else {
            for (int64_t e = lo; e < lo + n; e++)
                if (!isnan(a->y[e]))
                    worst = INFINITY;
        }
    }
    for (int i = 0; i < s->n_slots; i++) {
        const int64_t at = i * s->stride + (written[i] ? s->slot_floats : 0), n = (i + 1) * s->stride - at;

        if (memcmp(a->state + at, s->state + at, (size_t)n * sizeof(float)) != 0)
            worst = INFINITY;
    }
    return worst;
}

/* The unfused form: gather the states to dense rows, run with identity slots, scatter.  Bits must be equal. */
static void check_unfused(const scene *s, int id, const kvant_cpu_kernel *kernel, const char *name, const result *fused)
{
    scene dense = *s;
    result r, expect = { malloc((size_t)(s->n_slots * s->stride) * sizeof(float)), NULL };

    dense.state = check_guarded((size_t)(s->n_slots * s->stride) * sizeof(float), 4);
    for (int i = 0; i < s->n_seqs; i++) {
        dense.in[i] = dense.out[i] = i;
        if (s->in[i] < 0)
            memset(dense.state + i * s->stride, 0, (size_t)s->slot_floats * sizeof(float));
        else
            memcpy(dense.state + i * s->stride, s->state + s->in[i] * s->stride,
                   (size_t)s->slot_floats * sizeof(float));
    }
    dense.gdn.seqs = dense.conv.seqs = seqs_of(&dense);
    r = run(&dense, id, kernel, 2);
    memcpy(expect.state, s->state, (size_t)(s->n_slots * s->stride) * sizeof(float));
    for (int i = 0; i < s->n_seqs; i++)
        if (s->prompt[i] == phase_of(id) && s->q0[i + 1] > s->q0[i])
            memcpy(expect.state + s->out[i] * s->stride, r.state + i * s->stride,
                   (size_t)s->slot_floats * sizeof(float));
    expect.y = r.y;
    CHECK(same_bits(s, fused, &expect), "op %d %s, slots %s: fused and gather-run-scatter differ", id, name,
          pattern_names[s->pattern]);
    free(expect.state);
    check_guard_free(dense.state);
    result_free(&r);
}

static void check_scene(const scene *s, int id, const char *what)
{
    result ref = run(s, id, kvant_op_reference(id), 3);
    const kvant_cpu_kernel *kernel;
    const char *name;
    int usable;

    for (int i = 0; (kernel = kvant_op_variant(id, i, &name, &usable)) != NULL; i++) {
        if (!usable)
            continue;
        result one = run(s, id, kernel, 1);
        const double nmse = distance(s, id, &one, &ref);

        CHECK(nmse <= 1e-7, "op %d %s, %s, slots %s: NMSE %g", id, name, what, pattern_names[s->pattern], nmse);
        for (int parts = 0; parts < 3; parts++) {
            result more = run(s, id, kernel, parts == 0 ? 2 : parts == 1 ? 7 : -2);

            CHECK(same_bits(s, &one, &more), "op %d %s, %s: parts change the bits", id, name, what);
            result_free(&more);
        }
        check_unfused(s, id, kernel, name, &one);
        result_free(&one);
    }
    result_free(&ref);
}

static void gdn_case(int n_seqs, const int *tokens, int prompts, int pattern, int hk, int hv, int dk, int dv,
                     float decay, int beta, uint64_t seed)
{
    char what[120];
    scene s;

    for (int kind = 0; kind < 4; kind++) {
        const int type = kind % 2 ? KVANT_STATE_BF16 : KVANT_STATE_F32, per_channel = kind / 2;
        if (check_sanitized && kind != (int)(seed % 4))
            continue;
        scene_open(&s, 0, n_seqs, tokens, prompts, pattern, seed);
        gdn_inputs(&s, hk, hv, dk, dv, (int)(seed & 1), decay, beta, type, per_channel, seed);
        snprintf(what, sizeof what,
                 "gdn %d seqs of %d.. hk %d hv %d dk %d dv %d decay %g beta %d state type %d per channel %d", n_seqs,
                 tokens[0], hk, hv, dk, dv, (double)decay, beta, type, per_channel);
        check_scene(&s, KVANT_OP_GDN_STEP, what);
        check_scene(&s, KVANT_OP_GDN_CHUNK, what);
        scene_close(&s);
    }
}

static void conv_case(int n_seqs, const int *tokens, int prompts, int pattern, int c, int k, uint64_t seed)
{
    char what[80];
    scene s;

    scene_open(&s, 1, n_seqs, tokens, prompts, pattern, seed);
    conv_inputs(&s, c, k, seed);
    snprintf(what, sizeof what, "conv %d seqs of %d.. c %d k %d", n_seqs, tokens[0], c, k);
    check_scene(&s, KVANT_OP_CONV_STEP, what);
    check_scene(&s, KVANT_OP_CONV_CHUNK, what);
    scene_close(&s);
}

static void check_patterns(void)
{
    static const int few[3] = { 3, 70, 1 }, ones[3] = { 1, 1, 1 };
    static int many[MAX_SEQS];

    for (int i = 0; i < MAX_SEQS; i++)
        many[i] = 1;
    for (int p = 0; p < PATTERNS; p++)
        for (int prompts = 0; prompts < 3; prompts++) {
            gdn_case(3, few, prompts, p, 1, 2, 32, 24, -1, 2, 10 + (uint64_t)(p * 3 + prompts));
            gdn_case(1, ones, prompts, p, 2, 4, 16, 16, -1, 2, 50 + (uint64_t)p);
            conv_case(3, few, prompts, p, 70, 4, 100 + (uint64_t)(p * 3 + prompts));
            conv_case(1, ones, prompts, p, 9, 3, 200 + (uint64_t)p);
            gdn_case(128, many, prompts, p, 1, 1, 16, 8, -1, 2, 300 + (uint64_t)p);
            conv_case(128, many, prompts, p, 16, 4, 400 + (uint64_t)p);
        }
}

static void check_lengths(void)
{
    static const int lengths[] = { 0, 1, 15, 16, 17, 63, 64, 65, 100, 200 };
    static const float decays[] = { -1e-3f, -1, -20 };

    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int prompts = 0; prompts < 2; prompts++) {
            const int tokens[2] = { lengths[i], 1 };

            for (int d = 0; d < 3; d++)
                gdn_case(2, tokens, prompts, CHAIN_UP, 2, 4, 32, 32, decays[d], d, 1000 + i * 10 + (uint64_t)d);
            conv_case(2, tokens, prompts, CHAIN_UP, 33, 2 + (int)i % 6, 2000 + i);
        }
    const int one[1] = { 130 };
    gdn_case(1, one, 1, IDENTITY, 2, 4, 128, 128, -0.5f, 2, 3000);
    gdn_case(1, one, 0, IDENTITY, 2, 4, 128, 128, -0.5f, 2, 3001);
    gdn_case(1, one, 1, FRESH, 1, 3, 80, 96, -20, 1, 3002);
    gdn_case(1, one, 0, MOVED, 1, 3, 13, 5, -20, 0, 3003);
    gdn_case(1, one, 1, MOVED, 1, 3, 13, 5, -20, 0, 3004);
}

/* A prompt cut on the 64 grid, piece by piece through one slot, gives the bits of the whole; conv under any cut. */
static void check_chunking(int id, int pos, int type, int per_channel)
{
    static const int grid[] = { 0, 64, 192, 200 }, off_grid[] = { 0, 24, 152, 200 },
                     conv_cuts[] = { 0, 1, 3, 64, 127, 200 };
    const int is_conv = id == KVANT_OP_CONV_CHUNK, pieces = is_conv ? 5 : 3, tokens[1] = { 200 };
    const int *cuts = is_conv ? conv_cuts : pos % KVANT_PAGE ? off_grid : grid; /* a prompt may begin at 40: 24 to go */
    const kvant_cpu_kernel *kernel;
    const char *name;
    int usable;

    for (int v = 0; (kernel = kvant_op_variant(id, v, &name, &usable)) != NULL; v++) {
        scene s;

        if (!usable)
            continue;
        scene_open(&s, is_conv, 1, tokens, 1, FRESH, 77);
        s.pos0[0] = pos;
        if (is_conv)
            conv_inputs(&s, 40, 4, 78);
        else
            gdn_inputs(&s, 1, 2, 32, 32, 0, -1, 2, type, per_channel, 78);
        result whole = run(&s, id, kernel, 2);
        for (int i = 0; i < pieces; i++) {
            scene p = s;
            const int lo = cuts[i], n = cuts[i + 1] - lo;

            p.q0[1] = p.n_tokens = n;
            p.pos0[0] = pos + lo;
            p.in[0] = lo > 0 ? 1 : -1;
            p.gdn.seqs = p.conv.seqs = seqs_of(&p);
            if (is_conv) {      /* the rows of the other op are not there */
                p.conv.x += lo * p.conv.ldx;
            } else {
                p.gdn.q += lo * p.gdn.ldq;
                p.gdn.k += lo * p.gdn.ldk;
                p.gdn.v += lo * p.gdn.ldv;
                p.gdn.g += lo * p.gdn.hv * (per_channel ? p.gdn.dk : 1);
                p.gdn.beta += lo * p.gdn.hv;
            }
            result r = run(&p, id, kernel, 3);
            CHECK(memcmp(r.y, whole.y + lo * s.ld, (size_t)(n * s.ld) * sizeof(float)) == 0,
                  "op %d %s: rows %d.. differ from the whole prompt", id, name, lo);
            memcpy(s.state, r.state, (size_t)(s.n_slots * s.stride) * sizeof(float));
            result_free(&r);
        }
        CHECK(memcmp(s.state, whole.state, (size_t)(s.n_slots * s.stride) * sizeof(float)) == 0,
              "op %d %s: the last state differs from the whole prompt's", id, name);
        result_free(&whole);
        scene_close(&s);
    }
}

/* step and chunk are the same mathematics. */
static void check_step_is_chunk(int per_channel)
{
    const int tokens[1] = { 150 };
    scene s;

    scene_open(&s, 0, 1, tokens, 1, MOVED, 5);
    gdn_inputs(&s, 1, 2, 64, 64, 0, -0.3f, 2, KVANT_STATE_F32, per_channel, 6);
    result chunk = run(&s, KVANT_OP_GDN_CHUNK, kvant_op_cpu(KVANT_OP_GDN_CHUNK), 2);
    s.prompt[0] = 0;
    result step = run(&s, KVANT_OP_GDN_STEP, kvant_op_cpu(KVANT_OP_GDN_STEP), 2);
    const double nmse = check_nmse(chunk.y, step.y, (size_t)(s.n_tokens * s.ld));
    CHECK(nmse <= 1e-9, "gdn_step and gdn_chunk: NMSE %g", nmse);
    result_free(&chunk);
    result_free(&step);
    scene_close(&s);
}

/* One token, one chunk: the outputs of f32 states to the last bit, and those states rounded to nearest even. */
static void check_rounding(int per_channel)
{
    const int tokens[3] = { 1, 1, 1 };
    const kvant_cpu_kernel *kernel;
    const char *name;
    int usable;

    for (int id = KVANT_OP_GDN_STEP; id <= KVANT_OP_GDN_CHUNK; id++)
        for (int v = 0; (kernel = kvant_op_variant(id, v, &name, &usable)) != NULL; v++) {
            scene s;

            if (!usable)
                continue;
            scene_open(&s, 0, 3, tokens, phase_of(id), MOVED, 21);
            gdn_inputs(&s, 1, 2, 64, 40, 0, -1, 2, KVANT_STATE_BF16, per_channel, 22);
            result bf16 = run(&s, id, kernel, 2);
            s.gdn.state_type = KVANT_STATE_F32;
            result f32 = run(&s, id, kernel, 2);
            for (int64_t i = 0; i < s.n_slots * s.stride; i++)
                f32.state[i] = bf16_to_f32(f32_to_bf16(f32.state[i]));
            CHECK(same_bits(&s, &bf16, &f32), "op %d %s: a bf16 state is not the f32 state, rounded", id, name);
            result_free(&bf16);
            result_free(&f32);
            scene_close(&s);
        }
}

/* Planted mistakes that the comparison above must see: slot_in ignored; the gather forgotten (states read in turn). */
static void ignore_slot_in(const void *args, int part, int parts, const kvant_work *work)
{
    kvant_gdn_args a = *(const kvant_gdn_args *)args;

    a.seqs.slot_in = a.seqs.slot_out;
    if (part == 0)
        kvant_op_reference(KVANT_OP_GDN_STEP)->fn[0](&a, 0, 1, work);
    if (part == parts - 1)
        kvant_op_reference(KVANT_OP_GDN_STEP)->fn[1](&a, 0, 1, work);
}

static void one_by_one(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_gdn_args *a = args;

    (void)parts;
    for (int s = 0; s < a->seqs.n_seqs && part == 0; s++) {
        kvant_gdn_args b = *a;
        int32_t prompt[MAX_SEQS];

        for (int i = 0; i < a->seqs.n_seqs; i++)
            prompt[i] = i == s ? a->seqs.prompt[i] : 1;
        b.seqs.prompt = prompt;
        kvant_op_reference(KVANT_OP_GDN_STEP)->fn[0](&b, 0, 1, work);
        kvant_op_reference(KVANT_OP_GDN_STEP)->fn[1](&b, 0, 1, work);
    }
}

static double planted(kvant_op_fn fn, int pattern)
{
    const int tokens[4] = { 1, 1, 1, 1 };
    kvant_cpu_kernel wrong = *kvant_op_reference(KVANT_OP_GDN_STEP);
    scene s;

    wrong.stages = 1;
    wrong.fn[0] = fn;
    scene_open(&s, 0, 4, tokens, 0, pattern, 9);
    gdn_inputs(&s, 1, 2, 16, 16, 0, -1, 2, KVANT_STATE_F32, 0, 9);
    result good = run(&s, KVANT_OP_GDN_STEP, kvant_op_reference(KVANT_OP_GDN_STEP), 1);
    result bad = run(&s, KVANT_OP_GDN_STEP, &wrong, 1);
    const double d = distance(&s, KVANT_OP_GDN_STEP, &bad, &good);
    result_free(&good);
    result_free(&bad);
    scene_close(&s);
    return d;
}

static void check_planted(void)
{
    CHECK(planted(ignore_slot_in, IDENTITY) <= 1e-7, "the plant is right where slots are the same");
    CHECK(!(planted(ignore_slot_in, MOVED) <= 1e-7), "a kernel that ignores slot_in was not caught");
    CHECK(!(planted(ignore_slot_in, SWAP) <= 1e-7), "a kernel that ignores slot_in was not caught");
    CHECK(planted(one_by_one, MOVED) <= 1e-7, "the plant is right where no slot is both read and written");
    CHECK(!(planted(one_by_one, SWAP) <= 1e-7), "a kernel that does not gather was not caught by the swap");
    CHECK(!(planted(one_by_one, CHAIN_UP) <= 1e-7), "a kernel that does not gather was not caught by the chain");
    CHECK(!(planted(one_by_one, FORK) <= 1e-7), "a kernel that does not gather was not caught by the fork");
}

/* -0.0 sums become +0.0, so SiLU gives +0.0. */
static void check_minus_zero(void)
{
    const int tokens[1] = { 9 };
    const kvant_cpu_kernel *kernel;
    const char *name;
    int usable;

    for (int id = KVANT_OP_CONV_STEP; id <= KVANT_OP_CONV_CHUNK; id++)
        for (int v = 0; (kernel = kvant_op_variant(id, v, &name, &usable)) != NULL; v++) {
            scene s;

            if (!usable)
                continue;
            scene_open(&s, 1, 1, tokens, phase_of(id), IDENTITY, 3);
            conv_inputs(&s, 8, 4, 4);
            result r = run(&s, id, kernel, 1);
            for (int i = 0; i < 9; i++)
                CHECK(r.y[i * 8 + 1] == 0.0f && !signbit(r.y[i * 8 + 1]), "op %d %s: row %d is %g", id, name, i,
                      (double)r.y[i * 8 + 1]);
            result_free(&r);
            scene_close(&s);
        }
}

int main(void)
{
    check_planted();
    check_patterns();
    check_lengths();
    for (int type = KVANT_STATE_F32; type <= KVANT_STATE_BF16; type++) {
        for (int per_channel = 0; per_channel < 2; per_channel++) {
            check_chunking(KVANT_OP_GDN_CHUNK, 64, type, per_channel);
            check_chunking(KVANT_OP_GDN_CHUNK, 40, type, per_channel);
        }
    }
    check_chunking(KVANT_OP_CONV_CHUNK, 40, 0, 0);
    check_rounding(0);
    check_rounding(1);
    check_step_is_chunk(0);
    check_step_is_chunk(1);
    check_minus_zero();
    return check_end("check_gdn");
}
