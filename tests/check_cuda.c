/* check_cuda.c: the device "cuda": every op against its scalar reference on random arguments, every pair of cache
 * formats, and whole tiny models.  Prints "skipped: no device" without a GPU (the host side is then all that is
 * checked).
 *
 *   check_cuda                  everything
 *   check_cuda small            a reduced set, for compute-sanitizer
 *   check_cuda ... --json FILE  also a capability report
 *
 * Each buffer of an op lives twice, on the host and on the device, filled with 0xFF before and behind and where nothing
 * was written.  After the op the device's copy of every buffer is compared: outputs within their class, all other bytes
 * equal. */
#include <stdint.h>
#include "base/rng.h"
#include "devices/device.h"
#include "kvant/engine.h"
#include "kvant/qjl.h"
#include "support/check.h"
#include "support/op_run.h"

enum { MAX_BUFS = 40, GUARD = 256 };

static kvant_device *dev;
static int small;                  /* the reduced set */
static kvant_diag diag;

/* ---- the report ---- */

typedef struct tally {
    int cases, failed;
    double worst;                  /* NMSE; bytes that differ for CODE and EXACT */
} tally;
static tally tallies[KVANT_OP_COUNT];

/* ---- buffers ---- */

typedef struct buf {
    unsigned char *host, *dev;     /* both with GUARD bytes before and behind */
    size_t bytes;
    int floats;                    /* output: compared as f32 by NMSE */
    int loose;                     /* output: differing bytes are counted, not an error by themselves */
} buf;
static buf bufs[MAX_BUFS];
static int n_bufs;

static void *take(size_t bytes)
{
    buf *b = &bufs[n_bufs++];
    void *p = NULL;
    memset(b, 0, sizeof *b);
    b->bytes = bytes;
    b->host = malloc(bytes + 2 * GUARD);
    memset(b->host, 0xFF, bytes + 2 * GUARD);
    CHECK(dev->vt->alloc(dev, bytes + 2 * GUARD, &p, &diag) == KVANT_OK, "%s", diag.text);
    b->dev = p;
    return b->host + GUARD;
}

static float *take_f32(size_t n, unsigned long long seed)
{
    float *x = take(n * sizeof(float));
    check_fill_normal(x, n, seed);
    return x;
}

/* An f32 output: nothing but NaN before. */
static float *take_out(size_t n)
{
    float *x = take(n * sizeof(float));
    bufs[n_bufs - 1].floats = 1;
    return x;
}

static buf *buf_of(const void *p)
{
    for (int i = 0; i < n_bufs; i++)
        if ((const unsigned char *)p >= bufs[i].host + GUARD &&
            (const unsigned char *)p <= bufs[i].host + GUARD + bufs[i].bytes)
            return &bufs[i];
    return NULL;
}

/* The device address of a host address. */
static void *at(const void *p)
{
    const buf *b = buf_of(p);
    return b ? b->dev + ((const unsigned char *)p - b->host) : NULL;
}

static void upload(void)
{
    for (int i = 0; i < n_bufs; i++)
        CHECK(dev->vt->copy_in(dev, bufs[i].dev, bufs[i].host, bufs[i].bytes + 2 * GUARD, &diag) == KVANT_OK, "%s",
              diag.text);
}

static void drop(void)
{
    for (int i = 0; i < n_bufs; i++) {
        free(bufs[i].host);
        dev->vt->free(dev, bufs[i].dev);
    }
    n_bufs = 0;
}

/* NMSE of the values that the reference wrote; what it left (NaN) must be untouched. */
static double float_error(const unsigned char *got, const unsigned char *want, size_t n, int *stray)
{
    double err = 0.0, sum = 0.0;
    for (size_t i = 0; i < n; i++) {
        float g, w;
        memcpy(&g, got + 4 * i, 4);
        memcpy(&w, want + 4 * i, 4);
        if (w != w) {
            *stray += memcmp(got + 4 * i, want + 4 * i, 4) != 0 && g == g;
            continue;
        }
        err += ((double)g - w) * ((double)g - w);
        sum += (double)w * w;
    }
    return sum > 0.0 ? err / sum : err;
}

static size_t differing(const unsigned char *a, const unsigned char *b, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += a[i] != b[i];
    return count;
}

/* Runs the op on both sides (the device first: it gets the state before) and compares every buffer. */
static void run(int id, const void *host, const void *device, double tol, const char *what)
{
    const kvant_op op = { id, device };
    const char *name = kvant_op_get(id)->name;
    tally *t = &tallies[id];
    int rc, before = check_failed;

    upload();
    rc = dev->vt->supports(dev, &op, &diag);
    CHECK(rc == KVANT_OK, "%s %s: unsupported: %s", name, what, diag.text);
    if (rc == KVANT_OK)
        rc = dev->vt->submit(dev, &op, 1, 0, &diag);
    CHECK(rc == KVANT_OK && dev->vt->sync(dev, &diag) == KVANT_OK, "%s %s: %s", name, what, diag.text);
    op_run(id, kvant_op_reference(id), host, 1);
    for (int i = 0; i < n_bufs && rc == KVANT_OK; i++) {
        const buf *b = &bufs[i];
        unsigned char *got = malloc(b->bytes + 2 * GUARD);
        const unsigned char *g = got + GUARD, *w = b->host + GUARD;
        int stray = 0;
        CHECK(dev->vt->copy_out(dev, got, b->dev, b->bytes + 2 * GUARD, &diag) == KVANT_OK, "%s", diag.text);
        CHECK(differing(got, b->host, GUARD) == 0 && differing(g + b->bytes, w + b->bytes, GUARD) == 0,
              "%s %s: wrote outside buffer %d", name, what, i);
        if (b->floats) {
            const double e = float_error(g, w, b->bytes / 4, &stray);
            CHECK(e <= tol, "%s %s: NMSE %.3g in buffer %d, wanted %.1g", name, what, e, i, tol);
            CHECK(stray == 0, "%s %s: %d values of buffer %d written that the reference leaves", name, what, stray, i);
            t->worst = !(e <= t->worst) ? e : t->worst;
        } else {
            const size_t n = differing(g, w, b->bytes);
            CHECK(n == 0 || (b->loose && (double)n <= tol * (double)b->bytes),
                  "%s %s: %zu of %zu bytes of buffer %d differ", name, what, n, b->bytes, i);
            t->worst = (double)n > t->worst ? (double)n : t->worst;
        }
        free(got);
    }
    t->cases++;
    t->failed += check_failed > before;
    drop();
}

/* ---- small ops ---- */

static void check_elementwise(int n, int d)
{
    float *x = take_f32((size_t)(n * d), 1), *y = take_f32((size_t)(n * d), 2);
    buf_of(x)->floats = 1;
    const kvant_add_args add = { x, y, n, d }, add_dev = { at(x), at(y), n, d };
    run(KVANT_OP_ADD, &add, &add_dev, 0.0, "");

    float *g = take_f32((size_t)(n * (2 * d + 3)), 3), *out = take_out((size_t)(n * (d + 1)));
    const kvant_swiglu_args sw = { g, g + d, out, n, d, 2 * d + 3, 2 * d + 3, d + 1 };
    const kvant_swiglu_args sw_dev = { at(g), at(g + d), at(out), n, d, 2 * d + 3, 2 * d + 3, d + 1 };
    run(KVANT_OP_SWIGLU, &sw, &sw_dev, 1e-7, "");

    y = take_f32((size_t)(n * 3 * d), 4);
    g = take_f32((size_t)(n * 6 * d), 5);
    buf_of(y)->floats = 1;
    const kvant_gate_mul_args gm = { y, g, n, 3, d, 3 * d, d, 6 * d, 2 * d };
    const kvant_gate_mul_args gm_dev = { at(y), at(g), n, 3, d, 3 * d, d, 6 * d, 2 * d };
    run(KVANT_OP_GATE_MUL, &gm, &gm_dev, 1e-7, "");

    y = take_f32((size_t)(n * d), 6);
    x = take_f32((size_t)(n * d), 7);
    g = take_f32((size_t)n, 8);
    buf_of(y)->floats = 1;
    const kvant_gate_add_args ga = { y, x, g, n, d }, ga_dev = { at(y), at(x), at(g), n, d };
    run(KVANT_OP_GATE_ADD, &ga, &ga_dev, 1e-7, "");

    float *alpha = take_f32((size_t)(n * d), 9), *beta = take_f32((size_t)(n * d), 10), *a = take_f32((size_t)d, 11),
          *dt = take_f32((size_t)d, 12);
    alpha[0] = 25.0f;
    buf_of(alpha)->floats = buf_of(beta)->floats = 1;
    const kvant_gdn_gates_args gg = { alpha, beta, a, dt, n, d };
    const kvant_gdn_gates_args gg_dev = { at(alpha), at(beta), at(a), at(dt), n, d };
    run(KVANT_OP_GDN_GATES, &gg, &gg_dev, 1e-7, "");
}

static void check_rows(int n, int d)
{
    rng r = { 3 };
    float *x = take_f32((size_t)(n * d), 1), *y = take_out((size_t)(n * d));
    int32_t *idx = take((size_t)n * 4);
    for (int i = 0; i < n; i++)
        idx[i] = (int32_t)rng_below(&r, (uint32_t)n);
    const kvant_rows_gather_args rg = { x, idx, y, n, d }, rg_dev = { at(x), at(idx), at(y), n, d };
    run(KVANT_OP_ROWS_GATHER, &rg, &rg_dev, 0.0, "");

    x = take_f32((size_t)(n * d), 5);
    idx = take((size_t)n * 4);
    x[n * d - 1] = NAN;
    x[d / 2] = x[d / 3] = 9.0f;        /* a tie */
    const kvant_argmax_args am = { x, idx, n, d }, am_dev = { at(x), at(idx), n, d };
    run(KVANT_OP_ARGMAX, &am, &am_dev, 0.0, "");

    const int h = 3, n_rot = d / 2 / 2 * 2;
    for (int neox = 0; neox < 2; neox++) {
        x = take_f32((size_t)(n * h * d), 2);
        int32_t *pos = take((size_t)n * 4);
        float *freq = take_f32((size_t)(n_rot / 2), 3);
        buf_of(x)->floats = 1;
        for (int i = 0; i < n; i++)
            pos[i] = (int32_t)rng_below(&r, 100000);
        for (int i = 0; i < n_rot / 2; i++)
            freq[i] = 1.0f / powf(10000.0f, (float)i / (float)n_rot * 2.0f);
        const kvant_rope_args ro = { x, pos, freq, 1.1f, neox, n_rot, n, h, h * d, d };
        const kvant_rope_args ro_dev = { at(x), at(pos), at(freq), 1.1f, neox, n_rot, n, h, h * d, d };
        run(KVANT_OP_ROPE, &ro, &ro_dev, 1e-7, neox ? "neox" : "pairs");
    }
}

static void check_norms(int n, int d)
{
    const int h = 3;
    float *x = take_f32((size_t)(n * h * d), 1), *w = take_f32((size_t)d, 2), *y = take_out((size_t)(n * h * d));
    const kvant_norm_rms_args nr = { x, w, y, 1e-6f, n, h, d, h * d, d, h * d, d };
    const kvant_norm_rms_args nr_dev = { at(x), at(w), at(y), 1e-6f, n, h, d, h * d, d, h * d, d };
    run(KVANT_OP_NORM_RMS, &nr, &nr_dev, 1e-7, "");

    x = take_f32((size_t)(n * d), 3);
    buf_of(x)->floats = 1;
    float *add = take_f32((size_t)(n * d), 4);
    w = take_f32((size_t)d, 5);
    y = take_out((size_t)(n * d));
    const kvant_norm_add_rms_args na = { x, add, w, y, 1e-6f, n, d };
    const kvant_norm_add_rms_args na_dev = { at(x), at(add), at(w), at(y), 1e-6f, n, d };
    run(KVANT_OP_NORM_ADD_RMS, &na, &na_dev, 1e-7, "");

    x = take_f32((size_t)(n * h * d), 6);
    buf_of(x)->floats = 1;
    memset(x, 0, (size_t)d * 4);       /* a zero group must stay finite */
    const kvant_norm_l2_args nl = { x, 1e-6f, n, h, d, h * d, d }, nl_dev = { at(x), 1e-6f, n, h, d, h * d, d };
    run(KVANT_OP_NORM_L2, &nl, &nl_dev, 1e-7, "");

    float *o = take_f32((size_t)(n * h * d), 7), *z = take_f32((size_t)(n * (h * d + 5)), 8);
    w = take_f32((size_t)d, 9);
    y = take_out((size_t)(n * h * d));
    const kvant_norm_gated_args ng = { o, z, w, y, 1e-6f, n, h, d, h * d + 5 };
    const kvant_norm_gated_args ng_dev = { at(o), at(z), at(w), at(y), 1e-6f, n, h, d, h * d + 5 };
    run(KVANT_OP_NORM_GATED, &ng, &ng_dev, 1e-7, "");
}

static void check_slots(size_t bytes)
{
    const size_t stride = bytes + 48;
    for (int pattern = 0; pattern < 3; pattern++) {        /* chain, swap, fork */
        static const int32_t from[3][3] = { { 1, 2, 3 }, { 1, 0, 3 }, { 2, 2, 4 } },
                             to[3][3] = { { 0, 1, 2 }, { 0, 1, 2 }, { 0, 1, 2 } };
        uint8_t *base = take(6 * stride);
        int32_t *src = take(12), *dst = take(12);
        check_fill_normal((float *)(void *)base, 6 * stride / 4, 3);
        memcpy(src, from[pattern], 12);
        memcpy(dst, to[pattern], 12);
        const kvant_slot_copy_args sc = { base, src, dst, 3, stride, bytes };
        const kvant_slot_copy_args sc_dev = { at(base), at(src), at(dst), 3, stride, bytes };
        run(KVANT_OP_SLOT_COPY, &sc, &sc_dev, 0.0, "");
    }
    uint8_t *base = take(6 * stride);
    int32_t *dst = take(8);
    dst[0] = 4;
    dst[1] = 1;
    const kvant_slot_zero_args sz = { base, dst, 2, stride, bytes }, sz_dev = { at(base), at(dst), 2, stride, bytes };
    run(KVANT_OP_SLOT_ZERO, &sz, &sz_dev, 0.0, "");
}

static void check_moe(int n, int n_expert, int k)
{
    float *logits = take_f32((size_t)(n * n_expert), 1), *wts = take_out((size_t)(n * k));
    int32_t *ids = take((size_t)(n * k) * 4);
    logits[1] = logits[0] = 9.0f;      /* a tie at the top */
    const kvant_moe_route_args mr = { logits, ids, wts, n, n_expert, k, 1.5f };
    const kvant_moe_route_args mr_dev = { at(logits), at(ids), at(wts), n, n_expert, k, 1.5f };
    run(KVANT_OP_MOE_ROUTE, &mr, &mr_dev, 1e-7, "");

    float *x = take_f32((size_t)(n * k * 70), 2), *y = take_out((size_t)(n * 70));
    wts = take_f32((size_t)(n * k), 3);
    const kvant_moe_combine_args mc = { x, wts, y, n, k, 70 }, mc_dev = { at(x), at(wts), at(y), n, k, 70 };
    run(KVANT_OP_MOE_COMBINE, &mc, &mc_dev, 1e-7, "");
}

/* ---- weights ---- */

/* A weight with random rows that its type can decode to finite numbers; freed by weight_close. */
static kvant_weight weight_open(const kvant_wtype *t, int64_t n_in, int64_t n_out, int n_expert, int scaled,
                                float *scale)
{
    const size_t n = (size_t)(n_in * n_out * n_expert), bytes = n / (size_t)t->block * (size_t)t->bytes;
    float *x = malloc(n * sizeof(float));
    uint8_t *rows = malloc(bytes);
    check_fill_normal(x, n, 17);
    t->quant(x, rows, (int64_t)n);
    free(x);
    for (int e = 0; e < n_expert; e++)
        scale[e] = 0.5f + 0.25f * (float)e;
    return (kvant_weight){ .type = t, .data = rows, .n_in = n_in, .n_out = n_out, .n_expert = n_expert, .name = "test",
                           .scale = scaled ? scale : NULL, .n_scale = scaled ? n_expert : 0,
                           .use = KVANT_WEIGHT_MATMUL | KVANT_WEIGHT_EMBED };
}

static void check_weight(const kvant_wtype *t, int64_t n_in, int64_t n_out, int m, int compute)
{
    char what[64];
    float scale[16];
    const double tol = compute == KVANT_COMPUTE_F32 ? 1e-6 : 5e-4;
    kvant_weight w = weight_open(t, n_in, n_out, 1, m % 2, scale), on = w;

    snprintf(what, sizeof what, "%s %lldx%lld m %d %s", t->name, (long long)n_out, (long long)n_in, m,
             compute ? "f32" : "auto");
    CHECK(dev->vt->weight_load(dev, &on, compute, &diag) == KVANT_OK, "%s: %s", what, diag.text);
    float *x = take_f32((size_t)(m * (n_in + 4)), 2), *y = take_out((size_t)(m * (n_out + 1)));
    const kvant_matmul_args a = { &w, x, y, m, n_in + 4, n_out + 1, compute };
    const kvant_matmul_args a_dev = { &on, at(x), at(y), m, n_in + 4, n_out + 1, compute };
    run(KVANT_OP_MATMUL, &a, &a_dev, tol, what);

    int32_t *ids = take((size_t)m * 4);
    y = take_out((size_t)(m * n_in));
    for (int i = 0; i < m; i++)
        ids[i] = (int32_t)(i * 7 % n_out);
    const kvant_embed_args e = { &w, ids, y, m }, e_dev = { &on, at(ids), at(y), m };
    run(KVANT_OP_EMBED, &e, &e_dev, 0.0, what);
    dev->vt->weight_free(dev, &on);
    free((void *)(uintptr_t)w.data);
}

static void check_experts(const kvant_wtype *t, int64_t n_in, int64_t n_out, int n, int k, int div, int compute)
{
    enum { EXPERTS = 6 };
    char what[64];
    float scale[16];
    rng r = { 4 };
    const double tol = compute == KVANT_COMPUTE_F32 ? 1e-6 : 5e-4;
    kvant_weight w = weight_open(t, n_in, n_out, EXPERTS, n % 2, scale), on = w;

    snprintf(what, sizeof what, "%s n %d k %d x_div %d %s", t->name, n, k, div, compute ? "f32" : "auto");
    CHECK(dev->vt->weight_load(dev, &on, compute, &diag) == KVANT_OK, "%s: %s", what, diag.text);
    float *x = take_f32((size_t)(n * k / div * n_in), 2), *y = take_out((size_t)(n * k * n_out));
    int32_t *ids = take((size_t)(n * k) * 4);
    for (int i = 0; i < n; i++)
        for (int j = 0, first = (int)rng_below(&r, EXPERTS); j < k; j++)
            ids[i * k + j] = (first + j) % (EXPERTS - 1) + (first == 0 && j == 0);
    const kvant_matmul_id_args a = { &w, x, ids, y, n, k, div, n_in, compute };
    const kvant_matmul_id_args a_dev = { &on, at(x), at(ids), at(y), n, k, div, n_in, compute };
    run(KVANT_OP_MATMUL_ID, &a, &a_dev, tol, what);
    dev->vt->weight_free(dev, &on);
    free((void *)(uintptr_t)w.data);
}

static void check_weights(void)
{
    for (int i = 0; i < kvant_wtype_count(); i++) {
        const kvant_wtype *t = kvant_wtype_at(i);
        for (int c = 0; c < 2; c++) {
            static const int rows[] = { 1, 3, 8, 9, 70, 150 };
            for (size_t j = small ? 4 : 0; j < sizeof rows / sizeof rows[0] - (small ? 1 : 0); j++)
                check_weight(t, 512, 130, rows[j], c);
            if (t->block == 1)
                check_weight(t, 77, 33, 70, c);
            check_experts(t, 256, 70, 5, 2, 2, c);
            check_experts(t, 256, 70, small ? 20 : 90, 2, 1, c);
            check_experts(t, 256, 70, small ? 20 : 91, 3, 3, c);
        }
    }
}

/* ---- caches ---- */

enum { SEQS = 3, STRIDE = 40 };

typedef struct scene {
    kvant_seqs host, dev;          /* the queries */
    kvant_seqs all, all_dev;       /* every cached token */
    kvant_kv_side side[2], side_dev[2];
    int pages, n, len[SEQS];
} scene;

static const void *param_of(const kvant_format *f)
{
    static float projection[KVANT_QJL_VALUES];
    if (projection[0] == 0.0f)
        kvant_qjl_projection_build(1, projection);
    return f->flags & KVANT_FORMAT_PARAM ? projection : NULL;
}

static int32_t *take_ints(const int32_t *from, int n)
{
    int32_t *p = take((size_t)n * 4);
    memcpy(p, from, (size_t)n * 4);
    return p;
}

/* Sequences of the given lengths with `ask` queries at their ends; tables are a shuffle of the pages. */
static void scene_seqs(scene *s, const int *len, const int *ask)
{
    int32_t q0[SEQS + 1] = { 0 }, pos0[SEQS], all0[SEQS + 1] = { 0 }, zero[SEQS] = { 0 }, prompt[SEQS],
                      ids[SEQS * STRIDE];
    int32_t *table, *tails;
    rng r = { 11 };

    s->n = 0;
    for (int i = 0; i < SEQS; i++) {
        s->len[i] = len[i];
        q0[i + 1] = q0[i] + ask[i];
        pos0[i] = len[i] - ask[i];
        all0[i + 1] = all0[i] + len[i];
        prompt[i] = ask[i] > 1;
        s->n += (len[i] + KVANT_PAGE - 1) / KVANT_PAGE;
    }
    s->pages = s->n + 2;
    for (int i = 0; i < s->pages; i++)
        ids[i] = i;
    for (int i = s->pages - 1; i > 0; i--) {
        const int j = (int)rng_below(&r, (uint32_t)i + 1), t = ids[i];
        ids[i] = ids[j];
        ids[j] = t;
    }
    table = take(SEQS * STRIDE * 4);
    tails = take(SEQS * STRIDE * 4);
    for (int i = 0, next = 0; i < SEQS; i++)
        for (int j = 0; j < (len[i] + KVANT_PAGE - 1) / KVANT_PAGE; j++, next++) {
            table[i * STRIDE + j] = ids[next];
            tails[i * STRIDE + j] = ids[s->pages - 1 - next];
        }
    int32_t *a = take_ints(q0, SEQS + 1), *b = take_ints(pos0, SEQS), *c = take_ints(prompt, SEQS),
            *d = take_ints(all0, SEQS + 1), *e = take_ints(zero, SEQS);
    s->host = (kvant_seqs){ SEQS, q0[SEQS], a, b, c, table, tails, STRIDE, NULL, NULL };
    s->dev = (kvant_seqs){ SEQS, q0[SEQS], at(a), at(b), at(c), at(table), at(tails), STRIDE, NULL, NULL };
    s->all = (kvant_seqs){ SEQS, all0[SEQS], d, e, c, table, tails, STRIDE, NULL, NULL };
    s->all_dev = (kvant_seqs){ SEQS, all0[SEQS], at(d), at(e), at(c), at(table), at(tails), STRIDE, NULL, NULL };
}

static void scene_side(scene *s, int which, const kvant_format *f, int h, int d, int tail, int encoder)
{
    kvant_kv_side side = {
        .fmt = f, .param = param_of(f), .row_bytes = kvant_format_row_bytes(f, d), .encoder = encoder
    };
    side.head_bytes = side.row_bytes * KVANT_PAGE;
    side.page_bytes = side.head_bytes * (size_t)h + 4;
    side.pages = take(side.page_bytes * (size_t)s->pages);
    if (tail)
        side.tail = take((size_t)s->pages * (size_t)(h * KVANT_PAGE * d) * 2);
    s->side[which] = side;
    s->side_dev[which] = side;
    s->side_dev[which].pages = at(side.pages);
    s->side_dev[which].tail = tail ? at(side.tail) : NULL;
}

/* Fills one side on the host through the references: tail pages, and sealed pages where they are full. */
static void scene_fill(scene *s, int which, int h, int d)
{
    const size_t n = (size_t)s->all.n_tokens * (size_t)(h * d);
    float *x = malloc(n * sizeof(float));
    int32_t src[SEQS * STRIDE], dst[SEQS * STRIDE];
    int sealed = 0;

    check_fill_normal(x, n, 30u + (unsigned)which);
    const kvant_cache_write_args w = { s->all, s->side[which], x, h * d, h, d };
    op_run(KVANT_OP_CACHE_WRITE, kvant_op_reference(KVANT_OP_CACHE_WRITE), &w, 1);
    for (int i = 0; i < SEQS && s->side[which].tail; i++)
        for (int j = 0; j < s->len[i] / KVANT_PAGE; j++) {
            src[sealed] = s->all.tail_table[i * STRIDE + j];
            dst[sealed++] = s->all.table[i * STRIDE + j];
        }
    const kvant_page_seal_args seal = { s->side[which], src, dst, sealed, h, d };
    op_run(KVANT_OP_PAGE_SEAL, kvant_op_reference(KVANT_OP_PAGE_SEAL), &seal, 1);
    free(x);
}

/* cache_write (page and tail), page_seal, cache_read of one format. */
static void check_cache(const kvant_format *f, int d, int encoder)
{
    static const int len[SEQS] = { 70, 1, 150 }, ask[SEQS] = { 1, 1, 1 };
    const int h = 2;
    char what[64];
    scene s;

    snprintf(what, sizeof what, "%s d %d %s", f->name, d, encoder ? "best" : "upstream");
    for (int tail = 0; tail < 2; tail++) {
        scene_seqs(&s, len, ask);
        scene_side(&s, 0, f, h, d, tail, encoder);
        float *x = take_f32((size_t)s.all.n_tokens * (size_t)(h * d), 5);
        memset(x, 0, (size_t)(h * d) * 4);                 /* a zero row too */
        const kvant_cache_write_args a = { s.all, s.side[0], x, h * d, h, d };
        const kvant_cache_write_args a_dev = { s.all_dev, s.side_dev[0], at(x), h * d, h, d };
        run(KVANT_OP_CACHE_WRITE, &a, &a_dev, 0.0, what);
    }
    scene_seqs(&s, len, ask);
    scene_side(&s, 0, f, h, d, 1, encoder);
    scene_fill(&s, 0, h, d);
    static const int32_t from[2] = { 1, 0 }, to[2] = { 0, 2 };
    int32_t *src = take_ints(from, 2), *dst = take_ints(to, 2);
    src[0] = s.all.tail_table[2 * STRIDE];
    src[1] = s.all.tail_table[0];
    const kvant_page_seal_args p = { s.side[0], src, dst, 2, h, d },
                               p_dev = { s.side_dev[0], at(src), at(dst), 2, h, d };
    run(KVANT_OP_PAGE_SEAL, &p, &p_dev, 0.0, what);

    scene_seqs(&s, len, ask);
    scene_side(&s, 0, f, h, d, 0, encoder);
    scene_fill(&s, 0, h, d);
    int32_t *page = take(20), *row = take(20);
    float *y = take_out((size_t)(5 * h * d));
    for (int i = 0; i < 5; i++) {
        page[i] = s.all.table[2 * STRIDE + i % 2];
        row[i] = 13 * i;
    }
    const kvant_cache_read_args c = { s.side[0], page, row, y, 5, h, d };
    const kvant_cache_read_args c_dev = { s.side_dev[0], at(page), at(row), at(y), 5, h, d };
    run(KVANT_OP_CACHE_READ, &c, &c_dev, 1e-12, what);
}

typedef struct pair {
    const char *k, *v;
    int h, h_kv, d_k, d_v, tail;
} pair;

static void check_pair(const pair *p, const int *len, const int *ask, const char *phase)
{
    char what[96];
    scene s;
    const kvant_format *fk = kvant_format_find(p->k), *fv = kvant_format_find(p->v);

    snprintf(what, sizeof what, "%s x %s h %d/%d d %d/%d tail %d %s", p->k, p->v, p->h, p->h_kv, p->d_k, p->d_v,
             p->tail, phase);
    scene_seqs(&s, len, ask);
    scene_side(&s, 0, fk, p->h_kv, p->d_k, p->tail > 0 && !(fk->flags & KVANT_FORMAT_WIDE), 0);
    scene_side(&s, 1, fv, p->h_kv, p->d_v, p->tail > 0 && !(fv->flags & KVANT_FORMAT_WIDE), 0);
    scene_fill(&s, 0, p->h_kv, p->d_k);
    scene_fill(&s, 1, p->h_kv, p->d_v);
    const int n = s.host.n_tokens, top = len[0] > len[2] ? len[0] : len[2];
    const float scale = 1.0f / sqrtf((float)p->d_k);
    float *q = take_f32((size_t)(n * p->h * p->d_k), 8), *out = take_out((size_t)(n * p->h * p->d_v));
    const kvant_attn_args a = { s.host,        s.side[0], s.side[1],     q,       out,
                                p->h * p->d_k, p->d_k,    p->h * p->d_v, p->h,    p->h_kv,
                                p->d_k,        p->d_v,    scale,         p->tail, KVANT_COMPUTE_F32,
                                top - 1 };
    kvant_attn_args b = a;
    b.seqs = s.dev;
    b.k = s.side_dev[0];
    b.v = s.side_dev[1];
    b.q = at(q);
    b.out = at(out);
    run(KVANT_OP_ATTN, &a, &b, 1e-6, what);
}

static void check_score(const char *name, int h, int h_kv, int d, int tail)
{
    static const int len[SEQS] = { 70, 1, 150 }, ask[SEQS] = { 3, 1, 20 };
    const kvant_format *f = kvant_format_find(name);
    scene s;

    scene_seqs(&s, len, ask);
    scene_side(&s, 0, f, h_kv, d, tail > 0 && !(f->flags & KVANT_FORMAT_WIDE), 0);
    scene_fill(&s, 0, h_kv, d);
    const int n = s.host.n_tokens;
    float *q = take_f32((size_t)(n * h * d), 8), *out = take_out((size_t)(n * h * 160));
    const kvant_attn_score_args a = { s.host, s.side[0], q, out, h * d, d, 160, h, h_kv, d, 0.125f, tail };
    kvant_attn_score_args b = a;
    b.seqs = s.dev;
    b.k = s.side_dev[0];
    b.q = at(q);
    b.s = at(out);
    run(KVANT_OP_ATTN_SCORE, &a, &b, 1e-11, name);
}

static void check_caches(void)
{
    static const int decode_len[SEQS] = { 130, 1, 200 }, one[SEQS] = { 1, 1, 1 };
    static const int prompt_len[SEQS] = { 100, 30, 150 }, many[SEQS] = { 37, 30, 90 };
    static const int long_len[SEQS] = { 2100, 64, 1030 }, mixed[SEQS] = { 1, 5, 2 };
    const int n = kvant_format_count();

    for (int i = 0; i < n; i++) {
        const kvant_format *f = kvant_format_at(i);
        for (int e = 0; e < 2; e++) {
            check_cache(f, 128, e);
            if (!small)
                check_cache(f, f->group == 1 ? 80 : f->group == 32 ? 96 : 64, e);
            if (!small)
                check_cache(f, 256, e);
        }
        check_score(f->name, 4, 2, 128, 0);
        check_score(f->name, 2, 2, small ? 64 : 256, 1);
        for (int j = 0; j < n; j++) {
            const char *v = kvant_format_at(j)->name;
            const pair decode = { f->name, v, 4, 2, 128, 128, (i + j) % 3 },
                       prompt = { f->name, v, 2, 1, 64, 64, (i + j + 1) % 3 };
            if (small && (i + j) % 5)
                continue;
            check_pair(&decode, decode_len, one, "decode");
            check_pair(&prompt, prompt_len, many, "prompt");
        }
    }
    static const pair shapes[] = {
        { "tbq4_0", "tbq4_0", 16, 1, 128, 128, 1 }, { "q8_0", "q4_0", 24, 1, 64, 96, 2 },
        { "f16", "f16", 5, 5, 80, 80, 0 },          { "turbo4_66", "turbo3_tcq", 16, 2, 256, 256, 1 },
        { "f32", "f32", 6, 3, 33, 17, 0 },          { "qjl1_256", "tbq3_0", 8, 2, 256, 256, 1 },
        { "q8_0", "q8_0", 2, 1, 512, 512, 1 },      { "turbo3", "q4_polar_r", 12, 4, 384, 384, 1 },
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0] && !small; i++) {
        check_pair(&shapes[i], decode_len, one, "decode");
        check_pair(&shapes[i], prompt_len, many, "prompt");
        check_pair(&shapes[i], long_len, mixed, "long");
    }
}

/* ---- recurrent state ---- */

static void state_seqs(scene *s, const int *ask, int phase, const int32_t *in, const int32_t *out)
{
    int32_t q0[SEQS + 1] = { 0 }, pos0[SEQS], prompt[SEQS];
    for (int i = 0; i < SEQS; i++) {
        q0[i + 1] = q0[i] + ask[i];
        pos0[i] = 64 * i;
        prompt[i] = i == 1 ? !phase : phase;               /* the middle one is not this op's */
    }
    int32_t *a = take_ints(q0, SEQS + 1), *b = take_ints(pos0, SEQS), *c = take_ints(prompt, SEQS),
            *d = take_ints(in, SEQS), *e = take_ints(out, SEQS);
    s->host = (kvant_seqs){ SEQS, q0[SEQS], a, b, c, NULL, NULL, 0, d, e };
    s->dev = (kvant_seqs){ SEQS, q0[SEQS], at(a), at(b), at(c), NULL, NULL, 0, at(d), at(e) };
}

static const int32_t SLOT_IN[4][SEQS] = { { 0, 1, 2 }, { 2, 1, 0 }, { -1, 3, 2 }, { 1, 0, 1 } },
                     SLOT_OUT[4][SEQS] = { { 0, 1, 2 }, { 0, 1, 2 }, { 0, 1, 2 }, { 1, 0, 3 } };

static void check_conv(int phase, const int *ask, int pattern, int c, int k)
{
    scene s;
    state_seqs(&s, ask, phase, SLOT_IN[pattern], SLOT_OUT[pattern]);
    const int n = s.host.n_tokens, stride = c * (k - 1) + 7;
    float *x = take_f32((size_t)(n * (c + 2)), 1), *w = take_f32((size_t)(c * k), 2), *y = take_out((size_t)(n * c)),
          *state = take_f32((size_t)(4 * stride), 3);
    buf_of(state)->floats = 1;
    const kvant_conv_args a = { s.host, x, w, state, y, c, k, stride, c + 2 };
    const kvant_conv_args b = { s.dev, at(x), at(w), at(state), at(y), c, k, stride, c + 2 };
    run(phase ? KVANT_OP_CONV_CHUNK : KVANT_OP_CONV_STEP, &a, &b, 1e-7, "");
}

static void check_gdn(int phase, const int *ask, int pattern, int hk, int hv, int dk, int dv)
{
    scene s;
    char what[64];
    snprintf(what, sizeof what, "slots %d heads %d/%d d %d/%d", pattern, hk, hv, dk, dv);
    state_seqs(&s, ask, phase, SLOT_IN[pattern], SLOT_OUT[pattern]);
    const int n = s.host.n_tokens, stride = hv * dv * dk + 16;
    float *q = take_f32((size_t)(n * hk * dk), 1), *k = take_f32((size_t)(n * hk * dk), 2),
          *v = take_f32((size_t)(n * hv * dv), 3), *g = take_f32((size_t)(n * hv), 4),
          *beta = take_f32((size_t)(n * hv), 5), *state = take_f32((size_t)(4 * stride), 6),
          *o = take_out((size_t)(n * hv * dv));
    buf_of(state)->floats = 1;
    for (int i = 0; i < n * hk; i++)                       /* normalised keys and queries, as the model gives them */
        for (int which = 0; which < 2; which++) {
            float *x = (which ? k : q) + i * dk, sum = 0.0f;
            for (int e = 0; e < dk; e++)
                sum += x[e] * x[e];
            for (int e = 0; e < dk; e++)
                x[e] /= sqrtf(sum);
        }
    for (int i = 0; i < n * hv; i++) {
        g[i] = i % 17 == 3 ? -20.0f : -0.1f * fabsf(g[i]);
        beta[i] = i % 13 == 2 ? 0.0f : 1.0f / (1.0f + expf(-beta[i]));
    }
    const kvant_gdn_args a = { s.host, q,  k,  v,           g,       beta,    state,   o,     hk,
                               hv,     dk, dv, pattern % 2, hk * dk, hk * dk, hv * dv, stride };
    const kvant_gdn_args b = { s.dev, at(q), at(k), at(v),       at(g),   at(beta), at(state), at(o), hk,
                               hv,    dk,    dv,    pattern % 2, hk * dk, hk * dk,  hv * dv,   stride };
    run(phase ? KVANT_OP_GDN_CHUNK : KVANT_OP_GDN_STEP, &a, &b, 1e-7, what);
}

static void check_states(void)
{
    static const int one[SEQS] = { 1, 1, 1 }, few[SEQS] = { 2, 1, 0 }, many[SEQS] = { 100, 3, 65 };
    for (int pattern = 0; pattern < 4; pattern++) {
        check_conv(0, one, pattern, 70, 4);
        check_conv(0, few, pattern, 70, 3);
        check_conv(1, many, pattern, 70, 4);
        check_gdn(0, one, pattern, 2, 4, 128, 128);
        check_gdn(0, few, pattern, 2, 4, 32, 48);
        check_gdn(1, many, pattern, 2, 4, small ? 32 : 128, small ? 32 : 128);
        check_gdn(1, many, pattern, 2, 2, 16, 32);
    }
}

/* ---- whole models, and lists recorded under a key ---- */

/* The same list under a key: the first run, the recording and a replay give the bits of a run without a key. */
static void check_replay(void)
{
    enum { N = 5, D = 96 };
    float *x = take_f32(N * D, 1), *w = take_f32(D, 2), *y = take_out(N * D), want[N * D], got[N * D];
    const kvant_norm_rms_args norm = { at(x), at(w), at(y), 1e-6f, N, 1, D, D, D, D, D };
    const kvant_add_args add = { at(x), at(y), N, D };
    const kvant_op ops[] = { { KVANT_OP_NORM_RMS, &norm }, { KVANT_OP_ADD, &add } };

    for (int i = 0; i < 5; i++) {
        upload();
        CHECK(dev->vt->submit(dev, ops, 2, i ? 77 : 0, &diag) == KVANT_OK, "replay %d: %s", i, diag.text);
        CHECK(dev->vt->copy_out(dev, i ? got : want, at(x), sizeof want, &diag) == KVANT_OK, "%s", diag.text);
        CHECK(i == 0 || memcmp(got, want, sizeof want) == 0, "replay %d gives other bits", i);
    }
    drop();
}

typedef struct expect {
    int32_t n_prompt, n_vocab, n_greedy, prompt[256], greedy[64];
    float *logits;
} expect;

static int expect_read(const char *path, expect *e)
{
    char magic[8];
    FILE *f = fopen(path, "rb");
    int ok = f && fread(magic, 1, 8, f) == 8 && memcmp(magic, "KVTINY1", 8) == 0 && fread(e, 4, 3, f) == 3 &&
             e->n_prompt > 0 && e->n_prompt <= 256 && e->n_greedy > 0 && e->n_greedy <= 64 && e->n_vocab > 0;
    if (ok) {
        const size_t n = (size_t)e->n_prompt * (size_t)e->n_vocab;
        e->logits = malloc(n * sizeof(float));
        ok = fread(e->prompt, 4, (size_t)e->n_prompt, f) == (size_t)e->n_prompt &&
             fread(e->greedy, 4, (size_t)e->n_greedy, f) == (size_t)e->n_greedy && fread(e->logits, 4, n, f) == n;
    }
    if (f)
        fclose(f);
    return ok;
}

static int argmax(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

/* The prompt whole (step 0) or token by token (step 1), then greedy; prints the error. */
static void model_path(const char *arch, kvant_engine *eng, const expect *e, int step, double tol)
{
    const size_t row = (size_t)e->n_vocab;
    float *logits = malloc((size_t)e->n_prompt * row * sizeof(float)), *next = malloc(row * sizeof(float));
    int seq, ok = kvant_seq_new(eng, &seq, &diag) == KVANT_OK, right = 0;

    for (int at_i = 0, n; ok && at_i < e->n_prompt; at_i += n) {
        n = step ? 1 : e->n_prompt;
        const kvant_item item = { .seq = seq, .tokens = e->prompt + at_i, .n = n, .prompt = !step,
                                  .logits = KVANT_LOGITS_ALL };
        ok = kvant_step(eng, &item, 1, &diag) == KVANT_OK;
        CHECK(ok, "%s: %s", arch, diag.text);
        for (int i = 0; ok && i < n; i++)
            memcpy(logits + (size_t)(at_i + i) * row, kvant_step_logits(eng, 0, i), row * sizeof(float));
    }
    if (ok) {
        const double nmse = check_nmse(logits, e->logits, (size_t)e->n_prompt * row);
        CHECK(nmse <= tol, "%s: logits NMSE %.3g, wanted %.1g", arch, nmse, tol);
        memcpy(next, logits + (size_t)(e->n_prompt - 1) * row, row * sizeof(float));
        for (int i = 0; ok && i < e->n_greedy; i++) {
            const int32_t id = argmax(next, e->n_vocab);
            right += id == e->greedy[i];
            const kvant_item item = { .seq = seq, .tokens = &e->greedy[i], .n = 1, .logits = KVANT_LOGITS_LAST };
            ok = kvant_step(eng, &item, 1, &diag) == KVANT_OK;
            CHECK(ok, "%s: %s", arch, diag.text);
            if (ok)
                memcpy(next, kvant_step_logits(eng, 0, 0), row * sizeof(float));
        }
        CHECK(right == e->n_greedy, "%s: %d of %d greedy ids", arch, right, e->n_greedy);
        printf("model %s %s: logits NMSE %.3g, greedy %d of %d\n", arch, step ? "token by token" : "whole prompt", nmse,
               right, e->n_greedy);
    }
    kvant_seq_free(eng, seq);
    free(logits);
    free(next);
}

static void check_model(const char *arch)
{
    char path[256];
    expect e = { 0 };
    kvant_model *model = NULL;
    kvant_engine *eng = NULL;

    snprintf(path, sizeof path, "tests/golden/tiny/%s.expect", arch);
    CHECK(expect_read(path, &e), "%s is missing or malformed", path);
    snprintf(path, sizeof path, "tests/golden/tiny/%s.gguf", arch);
    const kvant_model_params mp = { .path = path };
    CHECK(kvant_model_open(&mp, &model, &diag) == KVANT_OK, "%s: %s", path, diag.text);
    kvant_engine_params p = kvant_engine_defaults();
    p.device = "cuda";
    p.compute = KVANT_COMPUTE_F32;
    p.n_ctx = 256;
    p.type_k = p.type_v = "f32";
    p.logits_rows = 256;
    if (model)
        CHECK(kvant_engine_create(model, &p, &eng, &diag) == KVANT_OK, "%s: %s", arch, diag.text);
    for (int step = 0; eng && step < 2; step++)
        model_path(arch, eng, &e, step, 1e-6);
    kvant_engine_free(eng);
    kvant_model_close(model);
    free(e.logits);
}

/* ---- main ---- */

static void report(const char *path, const char *text)
{
    FILE *f = path ? fopen(path, "w") : NULL;
    printf("%-14s %6s %6s %s\n", "op", "cases", "failed", "largest error");
    for (int id = 0; id < KVANT_OP_COUNT; id++)
        printf("%-14s %6d %6d %.3g\n", kvant_op_get(id)->name, tallies[id].cases, tallies[id].failed,
               tallies[id].worst);
    if (!f)
        return;
    fprintf(f, "{\n  \"device\": \"%s\",\n  \"ops\": {\n", text);
    for (int id = 0; id < KVANT_OP_COUNT; id++) {
        const tally *t = &tallies[id];
        fprintf(
            f, "    \"%s\": {\"state\": \"%s\", \"class\": \"%s\", \"cases\": %d, \"failed\": %d, \"worst\": %.4g}%s\n",
            kvant_op_get(id)->name,
            t->cases && !t->failed ? "verified"
            : t->cases             ? "failed"
                                   : "supported",
            kvant_op_get(id)->tolerance, t->cases, t->failed, t->worst, id + 1 < KVANT_OP_COUNT ? "," : "");
    }
    fprintf(f, "  },\n  \"checks_passed\": %d,\n  \"checks_failed\": %d\n}\n", check_passed, check_failed);
    fclose(f);
}

/* Without a GPU: opening must fail with the code for "no device" and one line, and say so again. */
static int no_device(int rc)
{
    CHECK(rc == KVANT_EDEVICE, "opening cuda: code %d, wanted %d", rc, KVANT_EDEVICE);
    CHECK(diag.text[0] && !strchr(diag.text, '\n'), "no reason, or more than one line: \"%s\"", diag.text);
    const kvant_device_config far = { 0, 200 };
    CHECK(kvant_device_open("cuda", &far, &dev, &diag) == KVANT_EDEVICE, "cuda:200 opened");
    printf("skipped: no device (%s)\n", diag.text);
    return check_end("check_cuda");
}

int main(int argc, char **argv)
{
    static const char *const archs[] = { "qwen3", "qwen3moe", "llama", "qwen35", "qwen35moe", "qwen3next" };
    const char *json = NULL;
    char text[256];

    for (int i = 1; i < argc; i++) {
        small |= strcmp(argv[i], "small") == 0;
        json = strcmp(argv[i], "--json") == 0 && i + 1 < argc ? argv[i + 1] : json;
    }
    const int rc = kvant_device_open("cuda", NULL, &dev, &diag);
    if (rc != KVANT_OK)
        return no_device(rc);
    dev->vt->describe(dev, text, sizeof text);
    printf("%s\n", text);
    check_elementwise(1, 64);
    check_elementwise(7, 333);
    check_rows(9, 130);
    check_norms(1, 64);
    check_norms(5, 1000);
    check_slots(40000);
    check_slots(100);
    check_moe(5, 8, 2);
    check_moe(33, 130, 8);
    check_weights();
    check_caches();
    check_states();
    check_replay();
    for (size_t i = 0; i < sizeof archs / sizeof archs[0] && !(small && i); i++)
        check_model(archs[i]);
    report(json, text);
    dev->vt->close(dev);
    return check_end("check_cuda");
}
