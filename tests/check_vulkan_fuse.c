/* check_vulkan_fuse.c: every fused form (ops/fuse) of the device "vulkan" leaves all buffers as its ops do one by one:
 * the same bits on a software driver where the form sums in the order of the ops; and an op in two dispatches.  Without
 * a Vulkan driver it says so and passes. */
#include <math.h>
#include <stdlib.h>

#include "devices/device.h"
#include "formats/format.h"
#include "ops/fuse/fuse.h"
#include "support/check.h"

enum { MOST = 4096, N_IN = 96, F = 70, EXPERTS = 3 };     /* F: not a multiple of a workgroup's outputs */

static kvant_device *dev;
static kvant_diag diag;

static float whole[4 * MOST], apart[4 * MOST];

static float *room(const float *from, size_t n)
{
    void *at = NULL;
    CHECK(dev->vt->alloc(dev, n * sizeof(float), &at, &diag) == KVANT_OK, "%s", diag.text);
    CHECK(dev->vt->copy_in(dev, at, from, n * sizeof(float), &diag) == KVANT_OK, "%s", diag.text);
    return at;
}

/* Runs the list as a whole or op by op from the same start; what x then holds. */
static void run(const kvant_op *ops, int n, int single, float *x, const float *start, size_t values, float *got)
{
    CHECK(dev->vt->copy_in(dev, x, start, values * sizeof(float), &diag) == KVANT_OK, "%s", diag.text);
    for (int i = 0; i < (single ? n : 1); i++)
        CHECK(dev->vt->submit(dev, ops + i, single ? 1 : n, 0, &diag) == KVANT_OK, "%s", diag.text);
    CHECK(dev->vt->copy_out(dev, got, x, values * sizeof(float), &diag) == KVANT_OK, "%s", diag.text);
}

static int taken[FUSED_END - KVANT_OP_COUNT];
/* The forms that Vulkan has. */
#define HAS_vulkan(...) __VA_ARGS__
#define HAS_gpus(...) __VA_ARGS__
#define HAS_vulkan_cuda(...) __VA_ARGS__
#define HAS_portable(...)
#define HAS_cuda(...)
static const int forms[] = {
#define FUSED(ID, name, on, ins, links, where) HAS_##on(FUSED_##ID,)
#include "ops/fuse/fused.def"
};

/* The device runs the first `want` ops of the list as this form. */
static void is_form(const kvant_op *ops, int n, int want, int form)
{
    kvant_op op;
    const int took = device_next_op(dev, ops, n, 0, &op);

    CHECK(took == want && op.id == form, "%s: %d ops by form %d", fuse_get(form)->name, took, op.id);
    taken[form - KVANT_OP_COUNT]++;
}

static void same(const kvant_op *ops, int n, float *x, const float *start, size_t values, int form, int bits)
{
    const char *what = fuse_get(form)->name;

    is_form(ops, n, n, form);
    run(ops, n, 0, x, start, values, whole);
    run(ops, n, 1, x, start, values, apart);
    CHECK(memcmp(whole, start, values * sizeof(float)) != 0, "%s: nothing was done", what);
    CHECK(check_nmse(whole, apart, values) <= 1e-13, "%s: error %g", what, check_nmse(whole, apart, values));
    if (bits && dev->vt->is_software(dev))
        CHECK(memcmp(whole, apart, values * sizeof(float)) == 0, "%s: other bits", what);
}

/* Queries of h heads and keys of two behind them, in place, as block_attention.c lists them. */
static void norms_and_ropes(int n, int d, int n_rot, int neox)
{
    enum { H = 4, H_KV = 2 };
    const int64_t ld = (H + H_KV) * d + 4;
    const int32_t positions[3] = { 7, 8, 1000 };
    float start[MOST], w[128], freq[64];

    check_fill_normal(start, (size_t)(n * ld), 1);
    check_fill(w, 128, 0.5f, 1.5f, 2);
    check_fill(freq, 64, 0.01f, 1.0f, 3);
    float pos[3];
    memcpy(pos, positions, sizeof pos);
    float *x = room(start, (size_t)(n * ld)), *k = x + H * d;
    const float *dw = room(w, 128), *df = room(freq, 64);
    const int32_t *dp = (const int32_t *)(const void *)room(pos, 3);
    const kvant_norm_rms_args nq = { x, dw, x, 1e-6f, n, H, d, ld, d, ld, d },
                              nk = { k, dw, k, 1e-6f, n, H_KV, d, ld, d, ld, d };
    const kvant_rope_args rq = { x, dp, df, 1.0f, neox, n_rot, n, H, ld, d },
                          rk = { k, dp, df, 1.0f, neox, n_rot, n, H_KV, ld, d };
    const kvant_op ops[] = { { KVANT_OP_NORM_RMS, &nq }, { KVANT_OP_NORM_RMS, &nk }, { KVANT_OP_ROPE, &rq },
                             { KVANT_OP_ROPE, &rk } };
    same(ops, 4, x, start, (size_t)(n * ld), FUSED_NORM_ROPE, 1);
}

static const int32_t *ints(const int32_t *from, int n)
{
    float as[8];
    memcpy(as, from, (size_t)n * sizeof *from);
    return (const int32_t *)(const void *)room(as, (size_t)n);
}

/* Then keys and values into pages of a format, by the form if `written`.  One buffer has the rows, two pages of keys
 * and two of values. */
static void norms_ropes_writes(int n, int d, const char *format, int written)
{
    enum { H = 2, H_KV = 1 };
    const kvant_format *f = kvant_format_find(format);
    const int64_t ld = (H + 2 * H_KV) * d;
    const size_t row = kvant_format_row_bytes(f, d), page = row * KVANT_PAGE * H_KV, rows = (size_t)n * (size_t)ld;
    const int32_t positions[3] = { 62, 63, 64 }, q0[2] = { 0, n }, first = 62, table[2] = { 1, 0 };
    static float start[4 * MOST];
    float w[64], freq[32];
    const size_t values = rows + page;             /* four pages of page / 4 floats */

    CHECK(values <= sizeof start / sizeof start[0] && d <= 64, "room");
    check_fill_normal(start, values, 12);
    check_fill(w, 64, 0.5f, 1.5f, 13);
    check_fill(freq, 32, 0.01f, 1.0f, 14);
    float *x = room(start, values), *k = x + H * d, *v = k + H_KV * d;
    const float *dw = room(w, 64), *df = room(freq, 32);
    const int32_t *pos = ints(positions, 3);
    kvant_seqs q = { .n_seqs = 1, .n_tokens = n, .table_stride = 2 };
    q.q0 = ints(q0, 2);
    q.pos0 = ints(&first, 1);
    q.table = ints(table, 2);
    const kvant_kv_side sk = { .fmt = f, .pages = (uint8_t *)(x + rows), .page_bytes = page,
                               .head_bytes = row * KVANT_PAGE, .row_bytes = row };
    kvant_kv_side sv = sk;
    sv.pages += 2 * page;
    const kvant_norm_rms_args nq = { x, dw, x, 1e-6f, n, H, d, ld, d, ld, d },
                              nk = { k, dw, k, 1e-6f, n, H_KV, d, ld, d, ld, d };
    const kvant_rope_args rq = { x, pos, df, 1.0f, 1, d, n, H, ld, d },
                          rk = { k, pos, df, 1.0f, 1, d, n, H_KV, ld, d };
    const kvant_cache_write_args ck = { q, sk, k, ld, H_KV, d }, cv = { q, sv, v, ld, H_KV, d };
    const kvant_op ops[] = { { KVANT_OP_NORM_RMS, &nq }, { KVANT_OP_NORM_RMS, &nk }, { KVANT_OP_ROPE, &rq },
                             { KVANT_OP_ROPE, &rk },     { KVANT_OP_CACHE_WRITE, &ck }, { KVANT_OP_CACHE_WRITE, &cv } };
    is_form(ops, 6, written ? 6 : 4, written ? FUSED_NORM_ROPE_WRITE : FUSED_NORM_ROPE);
    run(ops, 6, 0, x, start, values, whole);
    run(ops, 6, 1, x, start, values, apart);
    CHECK(check_nmse(whole, apart, rows) <= 1e-13, "%s: error %g", format, check_nmse(whole, apart, rows));
    const int16_t *one = (const int16_t *)(whole + rows), *other = (const int16_t *)(apart + rows);
    for (size_t i = 0; i < 2 * (values - rows); i++)           /* pages: a last bit may differ */
        CHECK(abs(one[i] - other[i]) <= 1, "%s: half %zu: %d, %d", format, i, one[i], other[i]);
    CHECK(memcmp(whole + rows, start + rows, 2 * page) != 0, "no key was written");
    CHECK(memcmp(whole + rows + page / 2, start + rows + page / 2, 2 * page) != 0, "no value was written");
}

static void load(kvant_weight *w, const char *type, int64_t n_in, int64_t n_out, int n_expert, uint64_t seed)
{
    static float rows[EXPERTS * 2 * F * N_IN];
    static unsigned char packed[EXPERTS * 2 * F * N_IN / 32 * 34];
    *w = (kvant_weight){ .type = kvant_wtype_find(type), .data = packed, .n_in = n_in, .n_out = n_out,
                         .n_expert = n_expert, .name = "a weight", .use = KVANT_WEIGHT_MATMUL };
    check_fill_normal(rows, (size_t)(n_in * n_out * n_expert), seed);
    w->type->quant(rows, packed, n_in * n_out * n_expert);
    CHECK(dev->vt->weight_load(dev, w, KVANT_COMPUTE_AUTO, &diag) == KVANT_OK, "%s", diag.text);
}

/* k > 0: of experts, k to a row. */
static void gate_and_up(int m, int k, const char *type)
{
    const int slots = k ? m * k : m;
    const size_t values = (size_t)(slots * 2 * F);
    const int32_t chosen[8] = { 2, 0, 1, 1, 2, 0, 0, 1 };
    float start[MOST], x[8 * N_IN];
    kvant_weight w;

    load(&w, type, N_IN, 2 * F, k ? EXPERTS : 1, 4);
    check_fill_normal(x, 8 * N_IN, 5);
    check_fill_normal(start, values, 6);
    float *y = room(start, values), *in = room(x, 8 * N_IN);
    const kvant_matmul_args a = { &w, in, y, m, N_IN, 2 * F, KVANT_COMPUTE_AUTO };
    const kvant_matmul_id_args e = { &w, in, ints(chosen, 8), y, m, k, k, N_IN, KVANT_COMPUTE_AUTO };
    const kvant_swiglu_args s = { y, y + F, y, slots, F, 2 * F, 2 * F, 2 * F };
    const kvant_op ops[] = { { k ? KVANT_OP_MATMUL_ID : KVANT_OP_MATMUL, k ? (const void *)&e : (const void *)&a },
                             { KVANT_OP_SWIGLU, &s } };
    same(ops, 2, y, start, values, k ? FUSED_MATMUL_ID_SWIGLU : FUSED_MATMUL_SWIGLU, 1);
    dev->vt->weight_free(dev, &w);
}

/* The residual stream, what is added, the normed rows and the second product's rows follow each other in one buffer. */
static void product_norm_product(int m, int gate)
{
    const int64_t row = (int64_t)m * N_IN;
    float start[MOST], in[8 * N_IN], w[N_IN];
    kvant_weight first = { 0 }, second = { 0 };

    load(&first, "Q8_0", N_IN, N_IN, 1, 7);
    load(&second, "IQ4_NL", N_IN, 2 * F, 1, 8);
    check_fill_normal(start, MOST, 9);
    check_fill_normal(in, 8 * N_IN, 10);
    check_fill(w, N_IN, 0.5f, 1.5f, 11);
    const size_t values = (size_t)(3 * row + m * 2 * F);
    float *x = room(start, values), *delta = x + row, *a = delta + row, *y = a + row;
    const kvant_matmul_args p = { &first, room(in, 8 * N_IN), delta, m, N_IN, N_IN, KVANT_COMPUTE_AUTO },
                            q = { &second, a, y, m, N_IN, 2 * F, KVANT_COMPUTE_AUTO };
    const kvant_norm_add_rms_args n = { x, delta, room(w, N_IN), a, 1e-6f, m, N_IN };
    const kvant_swiglu_args s = { y, y + F, y, m, F, 2 * F, 2 * F, 2 * F };
    const kvant_op ops[] = { { KVANT_OP_MATMUL, &p }, { KVANT_OP_NORM_ADD_RMS, &n }, { KVANT_OP_MATMUL, &q },
                             { KVANT_OP_SWIGLU, &s } };
    same(ops, 3 + gate, x, start, values, gate ? FUSED_MATMUL_NORM_SWIGLU : FUSED_MATMUL_NORM, 0);
    dev->vt->weight_free(dev, &first);
    dev->vt->weight_free(dev, &second);
}

/* Rows longer than a workgroup's piece: the largest anywhere, twice (the lower counts), and a NaN. */
static void long_rows(void)
{
    enum { D = 20001, ROWS = 4 };
    static float x[ROWS * D];
    static const int32_t want[ROWS] = { 8191, 8192, 20000, -1 };
    float none[ROWS] = { 0 };
    int32_t got[ROWS];

    check_fill_normal(x, ROWS * D, 15);
    x[8191] = x[16384] = x[D + 8192] = x[D + 20000] = x[2 * D + 20000] = x[3 * D] = 9.0f;
    x[3 * D + 19999] = NAN;
    float *ids = room(none, ROWS);
    const kvant_argmax_args a = { room(x, ROWS * D), (int32_t *)(void *)ids, ROWS, D };
    const kvant_op op = { KVANT_OP_ARGMAX, &a };
    CHECK(dev->vt->submit(dev, &op, 1, 0, &diag) == KVANT_OK, "%s", diag.text);
    CHECK(dev->vt->copy_out(dev, got, ids, sizeof got, &diag) == KVANT_OK, "%s", diag.text);
    for (int i = 0; i < ROWS; i++)
        CHECK(got[i] == want[i], "argmax of row %d: %d, wanted %d", i, got[i], want[i]);
}

int main(void)
{
    const kvant_device_config config = { .threads = 1 };
    if (device_open("vulkan", &config, &dev, &diag) != KVANT_OK) {
        printf("skipped: %s\n", diag.text);
        return check_end("check_vulkan_fuse");
    }
    long_rows();
    norms_and_ropes(1, 128, 128, 1);
    norms_and_ropes(3, 64, 32, 1);
    norms_and_ropes(3, 64, 64, 0);
    for (int n = 1; n <= 3; n += 2) {
        norms_ropes_writes(n, 64, "f16", 1);
        norms_ropes_writes(n, 32, "bf16", 0);
    }
    for (int m = 1; m <= 8; m = m < 3 ? m + 1 : m + 5)
        gate_and_up(m, 0, m == 2 ? "Q5_1" : "Q8_0");
    gate_and_up(1, 2, "Q8_0");
    gate_and_up(4, 2, "MXFP4");
    for (int m = 1; m <= 8; m = m < 3 ? m + 1 : m + 5)
        for (int gate = 0; gate < 2; gate++)
            product_norm_product(m, gate);
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        CHECK(taken[forms[i] - KVANT_OP_COUNT] > 0, "%s: this test has no list for it", fuse_get(forms[i])->name);
    dev->vt->close(dev);
    return check_end("check_vulkan_fuse");
}
