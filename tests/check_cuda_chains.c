/* check_cuda_chains.c: launches that do several ops of a layer give the bits of the ops one by one: the choice of
 * experts, their products and their sum with a shared expert, residual and norm; convolution, gates, gated delta rule
 * and its norm of decode sequences, with states that move between slots and with prompts in the batch; norms and
 * SwiGLU of rows that go to cuBLASLt, where gate and up are rounded to bf16, so that what comes after them is only
 * near.  Prints "skipped: no device" without a GPU. */
#include <math.h>
#include "support/device_lists.h"

static float *filled(size_t n)
{
    float *p = room(n);
    fill(p, n);
    return p;
}

static void release(float *const *p, int n)
{
    for (int i = 0; i < n; i++)
        dev->vt->free(dev, p[i]);
}

static int32_t *ints(const int32_t *v, size_t n)
{
    int32_t *at = (int32_t *)room(n);
    CHECK(dev->vt->copy_in(dev, at, v, n * sizeof *v, &diag) == KVANT_OK, "%s", diag.text);
    CHECK(dev->vt->sync(dev, &diag) == KVANT_OK, "%s", diag.text);
    return at;
}

/* What experts give, summed, with a shared one's (0: none, 1: as it is, 2: by its gate), and the norm behind it. */
static void check_combine(int n, int k, int d, int shared)
{
    const size_t rows = (size_t)n * (size_t)d;
    float *x = room(rows * (size_t)k), *wts = room((size_t)(n * k)), *more = room(rows), *gate = room((size_t)n),
          *w = room((size_t)d), *y[2], *stream[2], *out[2];
    char what[96];
    fill(x, rows * (size_t)k), fill(wts, (size_t)(n * k)), fill(more, rows), fill(gate, (size_t)n), fill(w, (size_t)d);
    for (int i = 0; i < 2; i++) {
        y[i] = room(rows), stream[i] = room(rows), out[i] = room(rows);
        state = 29;
        fill(y[i], rows), fill(stream[i], rows), fill(out[i], rows);
        const kvant_moe_combine_args c = { x, wts, y[i], n, k, d };
        const kvant_add_args a = { y[i], more, n, d };
        const kvant_gate_add_args g = { y[i], more, gate, n, d };
        const kvant_norm_add_rms_args s = { stream[i], y[i], w, out[i], 1e-6f, n, d };
        kvant_op ops[3] = { { KVANT_OP_MOE_COMBINE, &c } };
        int count = 1;
        if (shared)
            ops[count++] = (kvant_op){ shared == 1 ? KVANT_OP_ADD : KVANT_OP_GATE_ADD,
                                       shared == 1 ? (const void *)&a : (const void *)&g };
        ops[count++] = (kvant_op){ KVANT_OP_NORM_ADD_RMS, &s };
        submit_list(ops, count, i);
    }
    snprintf(what, sizeof what, "combine %d rows of %d, %d experts, shared %d", n, d, k, shared);
    expect_equal(y[0], y[1], rows, what), expect_equal(stream[0], stream[1], rows, what);
    expect_equal(out[0], out[1], rows, what);
    for (int i = 0; i < 2; i++)
        dev->vt->free(dev, y[i]), dev->vt->free(dev, stream[i]), dev->vt->free(dev, out[i]);
    dev->vt->free(dev, x), dev->vt->free(dev, wts), dev->vt->free(dev, more), dev->vt->free(dev, gate);
    dev->vt->free(dev, w);
}

/* Rows against experts of their own, and the swiglu of their gate and up. */
static void check_expert_glu(const char *type, int n, int k, int d, int f)
{
    kvant_weight m = matrix(type, d, 8 * f); /* four experts' */
    m.n_out = 2 * f, m.n_expert = 4;
    int32_t ids[64], *at = (int32_t *)room(64);
    float *x = room((size_t)(n * d)), *y[2];
    const size_t all = (size_t)(n * k) * 2 * (size_t)f;
    char what[96];
    for (int i = 0; i < n * k; i++)
        ids[i] = i * 7 % 4;
    CHECK(dev->vt->copy_in(dev, at, ids, sizeof ids, &diag) == KVANT_OK, "%s", diag.text);
    fill(x, (size_t)(n * d));
    for (int i = 0; i < 2; i++) {
        y[i] = room(all);
        state = 31;
        fill(y[i], all);
        const kvant_matmul_id_args a = { &m, x, at, y[i], n, k, k, d, KVANT_COMPUTE_AUTO };
        const kvant_swiglu_args g = { y[i], y[i] + f, y[i], n * k, f, 2 * f, 2 * f, 2 * f };
        const kvant_op ops[2] = { { KVANT_OP_MATMUL_ID, &a }, { KVANT_OP_SWIGLU, &g } };
        submit_list(ops, 2, i);
    }
    snprintf(what, sizeof what, "experts %s %d rows, %d each, %d -> 2 x %d swiglu", type, n, k, d, f);
    expect_equal(y[0], y[1], all, what);
    dev->vt->free(dev, y[0]), dev->vt->free(dev, y[1]), dev->vt->free(dev, x), dev->vt->free(dev, at);
    m.n_out = 8 * f, m.n_expert = 1;
    dev->vt->weight_free(dev, &m);
}

/* A product to the residual row, its norm, the router, a shared expert's gate if there is one, the choice. */
static void check_router(const char *type, int k_in, int d, int experts, int used, int gating, int gate)
{
    enum { ROOMS = 7 };
    kvant_weight o = matrix(type, k_in, d), r = matrix("F32", d, experts), sr = matrix("F32", d, 1);
    float *x = filled((size_t)k_in), *w = filled((size_t)d), *to[2][ROOMS];
    const size_t sizes[ROOMS] = { (size_t)d, (size_t)d, (size_t)d, (size_t)experts, (size_t)used, (size_t)used, 1 };
    char what[96];
    for (int i = 0; i < 2; i++) {
        state = 41;
        for (int j = 0; j < ROOMS; j++)
            to[i][j] = filled(sizes[j]);
        float **t = to[i];
        const kvant_matmul_args g = { &sr, t[2], t[6], 1, d, 1, KVANT_COMPUTE_AUTO };
        const kvant_matmul_args a = { &o, x, t[0], 1, k_in, d, KVANT_COMPUTE_AUTO };
        const kvant_norm_add_rms_args n = { t[1], t[0], w, t[2], 1e-6f, 1, d };
        const kvant_matmul_args m = { &r, t[2], t[3], 1, d, experts, KVANT_COMPUTE_AUTO };
        const kvant_moe_route_args c = {
            t[3], (int32_t *)t[4], t[5], 1, experts, used, 1.5f, gating, 0, NULL, 1, 1, 1
        };
        kvant_op ops[5] = {
            { KVANT_OP_MATMUL, &a }, { KVANT_OP_NORM_ADD_RMS, &n }, { KVANT_OP_MATMUL, &m }, { KVANT_OP_MATMUL, &g }
        };
        ops[3 + gate] = (kvant_op){ KVANT_OP_MOE_ROUTE, &c };
        for (int again = 0; again < 2; again++) /* the second time the residual row is another */
            submit_list(ops, 4 + gate, i);
    }
    snprintf(what, sizeof what, "router %s %d -> %d, %d of %d experts, gating %d, gate %d", type, k_in, d, used,
             experts, gating, gate);
    for (int j = 0; j < ROOMS; j++)
        expect_equal(to[0][j], to[1][j], sizes[j], what);
    release(to[0], ROOMS), release(to[1], ROOMS), release((float *[]){ x, w }, 2);
    dev->vt->weight_free(dev, &o), dev->vt->weight_free(dev, &r), dev->vt->weight_free(dev, &sr);
}

/* Experts of matrices of their own, which the device has as one. */
static kvant_weight expert_matrices(const char *type, int n_in, int n_out, int n)
{
    kvant_weight w = matrix(type, n_in, n_out * n);
    w.n_out = n_out, w.n_expert = n;
    return w;
}

/* All experts of n tokens, the shared one (0: none, 1: without a gate, 2: with one), the norm, and the next product. */
static void check_experts(const char *up, const char *down, int n, int d, int f, int shared)
{
    enum { N = 6, K = 4, ROOMS = 9 };
    static const int32_t chosen[48] = { 5, 0, 3, 2, 1, 4, 0, 5, 2, 2, 4, 1, 3, 3, 0 };
    kvant_weight g = expert_matrices(up, d, 2 * f, N), e = expert_matrices(down, f, d, N), sg = matrix(up, d, 2 * f),
                 se = matrix(down, f, d), next = matrix(up, d, 256);
    int32_t *ids = ints(chosen, sizeof chosen / sizeof *chosen);
    const size_t rows = (size_t)(n * d), all = (size_t)(n * K);
    float *x = filled(rows), *wts = filled(all), *w = filled((size_t)d), *to[2][ROOMS];
    /* gate and up, the shared one's, what experts give, and the shared one; its gate, sum, residual, norm, next */
    const size_t sizes[ROOMS] = {
        all * 2 * (size_t)f, (size_t)(n * 2 * f), all * (size_t)d, rows, (size_t)n, rows, rows, rows, (size_t)n * 256
    };
    char what[128];
    for (int i = 0; i < 2; i++) {
        state = 43;
        for (int j = 0; j < ROOMS; j++)
            to[i][j] = filled(sizes[j]);
        float **t = to[i];
        const kvant_matmul_id_args a = { &g, x, ids, t[0], n, K, K, d, KVANT_COMPUTE_AUTO };
        const kvant_swiglu_args u = { t[0], t[0] + f, t[0], n * K, f, 2 * f, 2 * f, 2 * f };
        const kvant_matmul_id_args b = { &e, t[0], ids, t[2], n, K, 1, 2 * f, KVANT_COMPUTE_AUTO };
        const kvant_matmul_args sa = { &sg, x, t[1], n, d, 2 * f, KVANT_COMPUTE_AUTO };
        const kvant_swiglu_args su = { t[1], t[1] + f, t[1], n, f, 2 * f, 2 * f, 2 * f };
        const kvant_matmul_args sb = { &se, t[1], t[3], n, 2 * f, d, KVANT_COMPUTE_AUTO };
        const kvant_moe_combine_args c = { t[2], wts, t[5], n, K, d };
        const kvant_gate_add_args ga = { t[5], t[3], t[4], n, d };
        const kvant_add_args ad = { t[5], t[3], n, d };
        const kvant_norm_add_rms_args s = { t[6], t[5], w, t[7], 1e-6f, n, d };
        const kvant_matmul_args m = { &next, t[7], t[8], n, d, 256, KVANT_COMPUTE_AUTO };
        kvant_op ops[12] = { { KVANT_OP_MATMUL_ID, &a }, { KVANT_OP_SWIGLU, &u }, { KVANT_OP_MATMUL_ID, &b } };
        int k = 3;
        if (shared) {
            ops[k++] = (kvant_op){ KVANT_OP_MATMUL, &sa };
            ops[k++] = (kvant_op){ KVANT_OP_SWIGLU, &su };
            ops[k++] = (kvant_op){ KVANT_OP_MATMUL, &sb };
        }
        ops[k++] = (kvant_op){ KVANT_OP_MOE_COMBINE, &c };
        if (shared)
            ops[k++] = shared == 2 ? (kvant_op){ KVANT_OP_GATE_ADD, &ga } : (kvant_op){ KVANT_OP_ADD, &ad };
        ops[k++] = (kvant_op){ KVANT_OP_NORM_ADD_RMS, &s };
        ops[k++] = (kvant_op){ KVANT_OP_MATMUL, &m };
        submit_list(ops, k, i);
    }
    snprintf(what, sizeof what, "experts %s %s, %d tokens, %d -> 2 x %d -> %d, shared %d", up, down, n, d, f, d,
             shared);
    for (int j = 4; j < ROOMS; j++) /* what is between the products is not written in one launch */
        expect_equal(to[0][j], to[1][j], sizes[j], what);
    release(to[0], ROOMS), release(to[1], ROOMS), release((float *[]){ x, wts, w, (float *)ids }, 4);
    g.n_out *= N, e.n_out *= N, g.n_expert = e.n_expert = 1;
    kvant_weight *const all_weights[] = { &g, &e, &sg, &se, &next };
    for (size_t i = 0; i < sizeof all_weights / sizeof all_weights[0]; i++)
        dev->vt->weight_free(dev, all_weights[i]);
}

/* ---- the gated delta rule ---- */

/* bf16 values of 1/32 to 1/8 in the room of n floats. */
static void fill_bf16(float *to, size_t n)
{
    uint16_t *host = malloc(2 * n * sizeof *host);
    for (size_t i = 0; i < 2 * n; i++)
        host[i] = (uint16_t)(0x3d00u | ((uint32_t)(int32_t)(uniform() * 32768.0f) & 0x80ffu));
    CHECK(dev->vt->copy_in(dev, to, host, n * sizeof(float), &diag) == KVANT_OK, "%s", diag.text);
    CHECK(dev->vt->sync(dev, &diag) == KVANT_OK, "%s", diag.text);
    free(host);
}

/* Sequences of a batch: tokens, whether they are prompts, the slots they read (-1: none) and write. */
typedef struct batch {
    int n, tokens[10], prompt[10], in[10], out[10];
} batch;

static void check_delta(const batch *b, int hk, int hv, int state_type)
{
    enum { D = 128, SLOTS = 12, ROOMS = 5, WIDE = 512 };
    const int c = (2 * hk + hv) * D, ld = c + hv * D;
    int32_t v[10 * 5 + 1], q = 0;
    for (int s = 0; s < b->n; s++) {
        v[s] = q, v[11 + s] = 7 * s, v[21 + s] = b->prompt[s], v[31 + s] = b->in[s], v[41 + s] = b->out[s];
        q += b->tokens[s];
    }
    v[b->n] = q;
    int32_t *at = ints(v, sizeof v / sizeof *v);
    const kvant_seqs seqs = { .n_seqs = b->n,
                              .n_tokens = q,
                              .q0 = at,
                              .pos0 = at + 11,
                              .prompt = at + 21,
                              .slot_in = at + 31,
                              .slot_out = at + 41 };
    const size_t rows = (size_t)q, states = (size_t)SLOTS * (size_t)(hv * D * D);
    const size_t sizes[ROOMS] = { rows * (size_t)c, rows * (size_t)hv, rows * (size_t)hv, rows * (size_t)(hv * D),
                                  (size_t)SLOTS * (size_t)c * 3 };
    float *x = filled(rows * (size_t)ld), *w = filled((size_t)c * 4), *a = filled((size_t)hv), *dt = filled((size_t)hv),
          *norm = filled(D), *in = filled(rows * WIDE), *to[2][ROOMS], *st[2];
    kvant_weight alpha = matrix("F32", WIDE, hv), beta = matrix("F32", WIDE, hv);
    char what[96];
    for (int i = 0; i < 2; i++) {
        state = 47;
        for (int j = 0; j < ROOMS; j++)
            to[i][j] = filled(sizes[j]);
        st[i] = filled(states);
        if (state_type == KVANT_STATE_BF16) /* halves of f32 values may be anything */
            fill_bf16(st[i], states);
        float **t = to[i];
        const kvant_conv_args cv = { seqs, x, w, t[4], t[0], c, 4, (int64_t)c * 3, ld, NULL, 0 };
        const kvant_norm_l2_args l = { t[0], 1e-6f, q, 2 * hk, D, c, D };
        const kvant_gdn_gates_args g = { t[1], t[2], a, dt, q, hv, 0 };
        const kvant_gdn_args gd = { seqs,
                                    t[0],
                                    t[0] + hk * D,
                                    t[0] + 2 * hk * D,
                                    t[1],
                                    t[2],
                                    st[i],
                                    t[3],
                                    hk,
                                    hv,
                                    D,
                                    D,
                                    0,
                                    c,
                                    c,
                                    c,
                                    (int64_t)hv * D * D,
                                    state_type,
                                    0,
                                    KVANT_COMPUTE_AUTO };
        const kvant_norm_gated_args o = { t[3], x + c, norm, t[3], 1e-6f, q, hv, D, ld };
        const kvant_matmul_args mb = { &beta, in, t[2], q, WIDE, hv, KVANT_COMPUTE_AUTO };
        const kvant_matmul_args ma = { &alpha, in, t[1], q, WIDE, hv, KVANT_COMPUTE_AUTO };
        const kvant_op ops[7] = { { KVANT_OP_MATMUL, &mb },   { KVANT_OP_MATMUL, &ma },   { KVANT_OP_CONV_STEP, &cv },
                                  { KVANT_OP_NORM_L2, &l },   { KVANT_OP_GDN_GATES, &g }, { KVANT_OP_GDN_STEP, &gd },
                                  { KVANT_OP_NORM_GATED, &o } };
        const int skip = hk == 2 ? 2 : 0; /* without the products */
        submit_list(ops + skip, 7 - skip, i);
    }
    snprintf(what, sizeof what, "delta rule, %d sequences, %d tokens, heads %d, %d, states %d", b->n, q, hk, hv,
             state_type);
    for (int j = 0; j < ROOMS; j++)
        expect_equal(to[0][j], to[1][j], sizes[j], what);
    expect_equal(st[0], st[1], states, what);
    release(to[0], ROOMS), release(to[1], ROOMS), release(st, 2);
    release((float *[]){ x, w, a, dt, norm, in, (float *)at }, 7);
    dev->vt->weight_free(dev, &alpha), dev->vt->weight_free(dev, &beta);
}

/* Two products of one x. */
static void check_twins(const char *type, int m, int n_in, int n_out)
{
    kvant_weight w[2] = { matrix(type, n_in, n_out), matrix(type, n_in, n_out) };
    const size_t all = (size_t)(m * n_out);
    float *x = filled((size_t)(m * n_in)), *y[2][2];
    char what[96];
    for (int i = 0; i < 2; i++) {
        y[i][0] = filled(all), y[i][1] = filled(all);
        const kvant_matmul_args a = { &w[0], x, y[i][0], m, n_in, n_out, KVANT_COMPUTE_F32 };
        const kvant_matmul_args b = { &w[1], x, y[i][1], m, n_in, n_out, KVANT_COMPUTE_F32 };
        const kvant_op ops[2] = { { KVANT_OP_MATMUL, &a }, { KVANT_OP_MATMUL, &b } };
        submit_list(ops, 2, i);
    }
    snprintf(what, sizeof what, "twins %s %d rows %d -> %d", type, m, n_in, n_out);
    for (int j = 0; j < 2; j++)
        expect_equal(y[0][j], y[1][j], all, what);
    release(y[0], 2), release(y[1], 2), dev->vt->free(dev, x);
    dev->vt->weight_free(dev, &w[0]), dev->vt->weight_free(dev, &w[1]);
}

/* Two layers' norm, query and key, gate and up, SwiGLU, down; what the second reads of the first is near, its query of
 * the first norm the same. */
static void check_rows(const char *type, int n, int d, int f)
{
    enum { STREAM, ROWS, Q, K, FF, DELTA, ROOMS };
    kvant_weight q = matrix(type, d, 160), k = matrix(type, d, 64);
    kvant_weight up = matrix(type, d, 2 * f), down = matrix(type, f, d);
    float *w = filled((size_t)d), *to[2][ROOMS];
    const size_t sizes[ROOMS] = { (size_t)(n * d), (size_t)(n * d), (size_t)(n * 160),
                                  (size_t)(n * 64), (size_t)(n * 2 * f), (size_t)(n * d) };
    char what[96];
    for (int i = 0; i < 2; i++) {
        float **t = to[i];
        state = 41;
        for (int j = 0; j < ROOMS; j++)
            t[j] = filled(sizes[j]);
        const kvant_norm_add_rms_args norm = { t[STREAM], t[DELTA], w, t[ROWS], 1e-6f, n, d };
        const kvant_matmul_args mq = { &q, t[ROWS], t[Q], n, d, 160, KVANT_COMPUTE_AUTO };
        const kvant_matmul_args mk = { &k, t[ROWS], t[K], n, d, 64, KVANT_COMPUTE_AUTO };
        const kvant_matmul_args mu = { &up, t[ROWS], t[FF], n, d, 2 * f, KVANT_COMPUTE_AUTO };
        const kvant_swiglu_args glu = { t[FF], t[FF] + f, t[FF], n, f, 2 * f, 2 * f, 2 * f };
        const kvant_matmul_args md = { &down, t[FF], t[DELTA], n, 2 * f, d, KVANT_COMPUTE_AUTO };
        const kvant_op ops[10] = {
            { KVANT_OP_NORM_ADD_RMS, &norm }, { KVANT_OP_MATMUL, &mq }, { KVANT_OP_MATMUL, &mk },
            { KVANT_OP_MATMUL, &mu },         { KVANT_OP_SWIGLU, &glu }, { KVANT_OP_MATMUL, &md },
            { KVANT_OP_NORM_ADD_RMS, &norm }, { KVANT_OP_MATMUL, &mu }, { KVANT_OP_SWIGLU, &glu },
            { KVANT_OP_MATMUL, &md },
        };
        submit_list(ops, 10, i);
    }
    snprintf(what, sizeof what, "%s rows %d of %d, %d", type, n, d, f);
    expect_equal(to[0][Q], to[1][Q], sizes[Q], what), expect_equal(to[0][K], to[1][K], sizes[K], what);
    expect_near(to[0][STREAM], to[1][STREAM], sizes[STREAM], 2e-5, what);
    expect_near(to[0][ROWS], to[1][ROWS], sizes[ROWS], 2e-5, what);
    expect_near(to[0][FF], to[1][FF], sizes[FF], 1e-4, what);
    expect_near(to[0][DELTA], to[1][DELTA], sizes[DELTA], 1e-4, what);
    release(to[0], ROOMS), release(to[1], ROOMS), dev->vt->free(dev, w);
    dev->vt->weight_free(dev, &q), dev->vt->weight_free(dev, &k);
    dev->vt->weight_free(dev, &up), dev->vt->weight_free(dev, &down);
}

int main(void)
{
    static const batch batches[] = {
        { 1, { 1 }, { 0 }, { 3 }, { 3 } },
        { 1, { 4 }, { 0 }, { -1 }, { 0 } },
        { 3, { 1, 2, 1 }, { 0, 0, 0 }, { 1, 2, 0 }, { 2, 1, 0 } },              /* two change slots */
        { 4, { 1, 5, 1, 0 }, { 0, 1, 0, 0 }, { 4, -1, 6, 7 }, { 5, 9, 6, 7 } }, /* a prompt, and one without tokens */
        { 9, { 1, 1, 1, 1, 1, 1, 1, 1, 1 }, { 0 }, { 0, 1, 2, 3, 4, 5, 6, 7, 8 }, { 1, 0, 2, 3, 4, 5, 6, 7, 8 } },
    };
    const kvant_device_config cfg = { 0 };
    if (device_open("cuda", &cfg, &dev, &diag) < 0) {
        printf("skipped: no device (%s)\n", diag.text);
        return check_end("check_cuda_chains");
    }
    for (int k = 0; k < 12; k++)
        check_combine(k < 6 ? 1 : 70, k % 2 ? 8 : 5, k % 4 < 2 ? 2048 : 5120, k % 3);
    for (int n = 1; n < 9; n += 3)
        check_expert_glu("BF16", n, 4, 512, 96), check_expert_glu("Q4_K", n, 4, 512, 96);
    for (int gating = 0; gating < 3; gating++) {
        check_router("Q4_K", 2048, 2048, 128, 8, gating, 0), check_router("BF16", 4096, 5120, 256, 6, gating, 1);
        check_router("Q6_K", 1024, 1024, 60, 4, gating, 1), check_router("Q4_K", 1024, 1024, 600, 10, gating, 0);
    }
    check_experts("Q4_K", "Q6_K", 3 * 4, 1024, 512, 0);
    for (int k = 0; k < 9; k++) {
        check_experts("Q4_K", "Q6_K", 1 + k / 3, 2048, 512, k % 3),
            check_experts("Q4_K", "Q4_K", 1 + k / 3, 1024, 768, k % 3);
        check_experts("MXFP4", "MXFP4", 1 + k / 3, 512, 2560, k % 3),
            check_experts("Q8_0", "Q5_K", 1 + k / 3, 2048, 256, k % 3);
    }
    for (size_t k = 0; k < sizeof batches / sizeof batches[0]; k++)
        for (int kind = 0; kind < 2; kind++)
            check_delta(&batches[k], 2, 4, kind), check_delta(&batches[k], 16, 32, kind);
    for (int m = 1; m < 40; m += 4)
        check_twins("F32", m, 2048, 32), check_twins("BF16", m, 512, 48), check_twins("Q4_K", m, 1024, 31);
    for (int n = 2; n < 700; n = 7 * n - 5) { /* 2, 9, 58, 401 */
        check_rows("BF16", n, 1024, 704), check_rows("BF16", n, 5120, 96);
        check_rows("Q8_0", n, 512, 512), check_rows("Q4_K", n + 400, 1024, 512);
    }
    dev->vt->close(dev);
    return check_end("check_cuda_chains");
}
