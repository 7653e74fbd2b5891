/* check_matmul.c: matmul, matmul_id and embed: every weight type, shape, variant and compute mode against a double
 * precision oracle that this file computes from the type's own dequantiser; then the bit rule (a row alone equals the
 * row in a batch, any number of parts, any ISA), guards around all buffers, NaN, and the device's weight_load. */
#include "support/check.h"

#include <stdint.h>
#include "base/cpu.h"
#include "base/half.h"
#include "base/mem.h"
#include "base/rng.h"
#include "devices/cpu/matmul/matmul_pack.h"
#include "devices/device.h"
#include "formats/weights/wtype_sample.h"

static const double limit_of[2] = { 5e-4, 1e-6 };       /* by enum kvant_compute: ops.def */

/* Random rows of a type; where it has no encoder: random codes under scales of about 1/64. */
static void make_rows(const kvant_wtype *t, uint8_t *dst, int64_t n, int64_t k, uint64_t seed)
{
    size_t row = (size_t)(k / t->block) * (size_t)t->bytes;
    float *f = malloc((size_t)k * sizeof *f);
    rng r = { seed };

    for (int64_t i = 0; i < n; i++) {
        check_fill_normal(f, (size_t)k, seed + (uint64_t)i);
        if (t->quant)
            t->quant(f, dst + (size_t)i * row, k);
        for (size_t j = 0; j < row && !t->quant; j++)
            dst[(size_t)i * row + j] = (uint8_t)(rng_u64(&r) >> 40);
        for (int64_t b = 0; b < k / t->block && !t->quant; b++) {
            uint8_t *block = dst + (size_t)i * row + (size_t)b * (size_t)t->bytes;
            kvant_wtype_set_halves(t, block, 0.01f + 0.02f * (float)rng_unit(&r), 0.05f);
        }
    }
    free(f);
}

typedef struct problem {
    kvant_weight w;
    uint8_t *data;
    float *f;              /* dequantised [n_expert*n][k] */
    float scale[8];
} problem;

static void problem_make(problem *p, const kvant_wtype *t, int64_t k, int64_t n, int experts, uint64_t seed)
{
    size_t row = (size_t)(k / t->block) * (size_t)t->bytes, bytes;
    kvant_diag diag = { "" };

    memset(p, 0, sizeof *p);
    p->data = check_guarded(row * (size_t)(n * experts), 2);
    p->f = malloc((size_t)(n * experts * k) * sizeof(float));
    make_rows(t, p->data, n * experts, k, seed);
    for (int64_t i = 0; i < n * experts; i++)
        t->dequant(p->data + (size_t)i * row, p->f + i * k, k);
    p->w = (kvant_weight){ .type = t, .data = p->data, .n_in = k, .n_out = n, .n_expert = experts, .name = "w" };
    for (int e = 0; e < 8; e++)
        p->scale[e] = 0.75f + 0.125f * (float)e;
    if (strcmp(t->name, "NVFP4") == 0) {
        p->w.scale = p->scale;
        p->w.n_scale = experts;
    }
    CHECK(kvant_cpu_pack_bytes(&p->w, &bytes, &diag) == KVANT_OK, "%s: %s", t->name, diag.text);
    p->w.packed = kvant_alloc(bytes);
    memset(p->w.packed, 0xFF, bytes);
    kvant_cpu_pack_begin(&p->w);
    for (int i = 2; i >= 0; i--)
        kvant_cpu_pack_part(&p->w, i, 3);
}

static void problem_free(problem *p)
{
    check_guard_free(p->data);
    free(p->f);
    kvant_free(p->w.packed);
}

static float scale_of(const problem *p, int e)
{
    return p->w.scale ? p->scale[e] : 1.0f;
}

/* Runs a kernel as a device would, parts one after the other, scratch poisoned. */
static void run_kernel(const kvant_cpu_kernel *kernel, const void *args, int parts)
{
    size_t shared = kernel->shared_bytes ? kernel->shared_bytes(args) : 0;
    size_t local = kernel->local_bytes ? kernel->local_bytes(args) : 0;
    void *s = kvant_alloc(shared + 64), *l = kvant_alloc(local + 64);
    kvant_work work = { s, l };

    memset(s, 0xFF, shared + 64);
    for (int st = kernel->first_stage ? kernel->first_stage(args) : 0; st < kernel->stages; st++)
        for (int part = parts - 1; part >= 0; part--) {
            memset(l, 0xFF, local + 64);
            kernel->fn[st](args, part, parts, &work);
        }
    for (size_t i = 0; i < 64; i++)
        if (((uint8_t *)s)[shared + i] != 0xFF || ((uint8_t *)l)[local + i] != 0xFF) {
            CHECK(0, "a kernel wrote past its scratch");
            break;
        }
    kvant_free(s);
    kvant_free(l);
}

static void oracle(const problem *p, int e, const float *x, float *y)
{
    for (int64_t j = 0; j < p->w.n_out; j++) {
        double acc = 0;
        for (int64_t i = 0; i < p->w.n_in; i++)
            acc += (double)p->f[(e * p->w.n_out + j) * p->w.n_in + i] * x[i];
        y[j] = (float)(acc * scale_of(p, e));
    }
}

/* x rows are exactly k wide and y rows exactly n wide at the end of their buffers. */
typedef struct buffers {
    float *x, *y, *want, *first;
    int64_t ldx, ldy;
    size_t x_count, y_count;
} buffers;

static buffers buffers_make(const problem *p, int m, uint64_t seed)
{
    buffers b = { .ldx = p->w.n_in + 3, .ldy = p->w.n_out + 5 };

    b.x_count = (size_t)((m - 1) * b.ldx + p->w.n_in);
    b.y_count = (size_t)((m - 1) * b.ldy + p->w.n_out);
    b.x = check_guarded(b.x_count * sizeof(float), 4);
    b.y = check_guarded(b.y_count * sizeof(float), 4);
    b.want = malloc((size_t)(m * p->w.n_out) * sizeof(float));
    b.first = malloc(b.y_count * sizeof(float));
    for (int r = 0; r < m; r++) {
        check_fill_normal(b.x + r * b.ldx, (size_t)p->w.n_in, seed + (uint64_t)r);
        oracle(p, 0, b.x + r * b.ldx, b.want + r * p->w.n_out);
    }
    return b;
}

static void buffers_free(buffers *b)
{
    check_guard_free(b->x);
    check_guard_free(b->y);
    free(b->want);
    free(b->first);
}

static double nmse_of(const problem *p, const buffers *b, int m)
{
    double num = 0, den = 0;

    for (int r = 0; r < m; r++)
        for (int64_t j = 0; j < p->w.n_out; j++) {
            double w = b->want[r * p->w.n_out + j], d = (double)b->y[r * b->ldy + j] - w;
            num += d * d;
            den += w * w;
        }
    return den > 0 ? num / den : num;
}

/* Gaps between rows of y keep their poison. */
static int gaps_ok(const problem *p, const buffers *b, int m)
{
    for (int r = 0; r + 1 < m; r++)
        for (int64_t j = p->w.n_out; j < b->ldy; j++)
            if (f32_bits(b->y[r * b->ldy + j]) != 0xFFFFFFFFu)
                return 0;
    return 1;
}

static int same_rows(const problem *p, const buffers *b, int m)
{
    for (int r = 0; r < m; r++)
        if (memcmp(b->y + r * b->ldy, b->first + r * b->ldy, (size_t)p->w.n_out * sizeof(float)) != 0)
            return 0;
    return 1;
}

static void check_variant(const problem *p, buffers *b, int m, int compute, const kvant_cpu_kernel *kernel,
                          const char *name, int have_first, int exact)
{
    static const int parts[] = { 1, 2, 5 };
    kvant_matmul_args a = { &p->w, b->x, b->y, m, b->ldx, b->ldy, compute };
    const char *type = p->w.type->name;

    for (int i = 0; i < 3; i++) {
        memset(b->y, 0xFF, b->y_count * sizeof(float));
        run_kernel(kernel, &a, parts[i]);
        double err = nmse_of(p, b, m);
        CHECK(err <= limit_of[compute], "%s %s compute %d m %d k %d n %d: NMSE %g", type, name, compute, m,
              (int)p->w.n_in, (int)p->w.n_out, err);
        CHECK(gaps_ok(p, b, m) && check_guard_ok(b->y) && check_guard_ok(b->x), "%s %s: wrote outside of y", type,
              name);
        if (!have_first && i == 0)
            memcpy(b->first, b->y, b->y_count * sizeof(float));
        else if (exact)
            CHECK(same_rows(p, b, m), "%s %s compute %d m %d, %d parts: other bits", type, name, compute, m, parts[i]);
    }
    for (int r = 0; r < m; r += m > 9 ? 7 : 1) {     /* a row alone */
        kvant_matmul_args one = { &p->w, b->x + r * b->ldx, b->y + r * b->ldy, 1, b->ldx, b->ldy, compute };
        memset(b->y + r * b->ldy, 0xFF, (size_t)p->w.n_out * sizeof(float));
        run_kernel(kernel, &one, 1);
    }
    if (exact)
        CHECK(same_rows(p, b, m), "%s %s compute %d m %d: a row alone has other bits", type, name, compute, m);
}

static void check_shape(const kvant_wtype *t, int m, int64_t k, int64_t n)
{
    problem p;
    const char *name;
    int usable;

    problem_make(&p, t, k, n, 1, 77 + (uint64_t)m);
    buffers b = buffers_make(&p, m, 1000);
    for (int compute = 0; compute < 2; compute++) {
        int have_first = 0;
        const kvant_cpu_kernel *kernel;
        for (int i = 0; (kernel = kvant_op_variant(KVANT_OP_MATMUL, i, &name, &usable)) != NULL; i++) {
            /* BF16 pairs (auto on CPUs with vdpbf16ps) round differently from the f32 chain of the other rungs */
            int own_bits = compute == KVANT_COMPUTE_AUTO && strcmp(t->name, "BF16") == 0;
            if (!usable)
                continue;
            check_variant(&p, &b, m, compute, kernel, name, i > 0 && have_first && !own_bits, i > 0);
            have_first |= i > 0;
        }
    }
    buffers_free(&b);
    CHECK(check_guard_ok(p.data), "%s: weights overwritten", t->name);
    problem_free(&p);
}

static void check_types(void)
{
    static const int ms[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 64, 65 };
    static const int64_t ns[] = { 1, 16, 40, 97 };

    for (int i = 0; i < kvant_wtype_count(); i++) {
        const kvant_wtype *t = kvant_wtype_at(i);
        for (int j = 0; j < 11; j++) {
            check_shape(t, ms[j], t->block == 1 ? 67 : t->block, ns[j % 4]);
            check_shape(t, ms[j], t->block == 1 ? 300 : 768, ns[(j + 1) % 4]);
        }
        check_shape(t, 17, 512, 200);
        check_shape(t, 130, 256, 33);
    }
}

static void check_nan(void)
{
    const char *name;
    int usable;

    for (int i = 0; i < kvant_wtype_count(); i++) {
        const kvant_wtype *t = kvant_wtype_at(i);
        int k = t->block == 1 ? 64 : 2 * t->block;
        const kvant_cpu_kernel *kernel;
        for (int v = 0; (kernel = kvant_op_variant(KVANT_OP_MATMUL, v, &name, &usable)) != NULL; v++)
            for (int m = 1; m <= 8 && usable; m += 7)
                for (int compute = 0; compute < 2; compute++) {
                    problem p;
                    problem_make(&p, t, k, 20, 1, 5);
                    buffers b = buffers_make(&p, m, 9);
                    kvant_matmul_args a = { &p.w, b.x, b.y, m, b.ldx, b.ldy, compute };
                    int bad = 0;
                    b.x[k / 2 + 1] = NAN;
                    run_kernel(kernel, &a, 2);
                    for (int r = 0; r < m; r++)
                        for (int j = 0; j < 20; j++)
                            bad += isnan(b.y[r * b.ldy + j]) != (r == 0);
                    CHECK(bad == 0, "%s %s compute %d m %d: NaN in row 0: %d wrong outputs", t->name, name, compute, m,
                          bad);
                    b.x[k / 2 + 1] = INFINITY;
                    run_kernel(kernel, &a, 2);
                    for (int j = 0; j < 20; j++)
                        bad += isfinite(b.y[j]) != 0;
                    CHECK(bad == 0, "%s %s compute %d m %d: Inf in row 0 gave finite outputs", t->name, name, compute,
                          m);
                    buffers_free(&b);
                    problem_free(&p);
                }
    }
}

/* A NaN inside a weight (its value, or its f16 block scale) reaches exactly its own output. */
static void check_nan_weight(const char *type, size_t at, uint16_t bits)
{
    const kvant_wtype *t = kvant_wtype_find(type);
    const char *name;
    int usable, k = t->block == 1 ? 64 : t->block;
    const kvant_cpu_kernel *kernel;

    for (int v = 0; (kernel = kvant_op_variant(KVANT_OP_MATMUL, v, &name, &usable)) != NULL; v++)
        for (int m = 1; m <= 8 && usable; m += 7)
            for (int compute = 0; compute < 2; compute++) {
                problem p;
                int bad = 0;
                problem_make(&p, t, k, 20, 1, 5);
                buffers b = buffers_make(&p, m, 9);
                kvant_matmul_args a = { &p.w, b.x, b.y, m, b.ldx, b.ldy, compute };
                store_u16(p.data + 7 * (size_t)(k / t->block) * (size_t)t->bytes + at, bits);
                kvant_cpu_pack_part(&p.w, 0, 1);
                run_kernel(kernel, &a, 3);
                for (int r = 0; r < m; r++)
                    for (int j = 0; j < 20; j++)
                        bad += isnan(b.y[r * b.ldy + j]) != (j == 7);
                CHECK(bad == 0, "%s %s compute %d m %d: NaN weight: %d wrong outputs", type, name, compute, m, bad);
                buffers_free(&b);
                problem_free(&p);
            }
}

/* Every code the same byte under sane scales: the largest integer sums, where a 16-bit accumulator would overflow. */
static void fill_extreme(const kvant_wtype *t, uint8_t *data, size_t bytes, uint8_t byte)
{
    memset(data, byte, bytes);
    for (size_t b = 0; b < bytes; b += (size_t)t->bytes) {
        if (strcmp(t->name, "MXFP4") == 0)
            data[b] = 120;
        else if (strcmp(t->name, "NVFP4") == 0)
            memset(data + b, 0x30, 4);
        else
            kvant_wtype_set_halves(t, data + b, 0.01f, 0.01f);
    }
}

static void check_extreme(const kvant_wtype *t, uint8_t byte, float value)
{
    enum { M = 8, N = 24, K = 256 };
    size_t row = (size_t)(K / t->block) * (size_t)t->bytes;
    const kvant_cpu_kernel *kernel;
    const char *name;
    problem p;
    int usable;

    problem_make(&p, t, K, N, 1, 5);
    fill_extreme(t, p.data, row * N, byte);
    for (int i = 0; i < N; i++)
        t->dequant(p.data + (size_t)i * row, p.f + i * K, K);
    kvant_cpu_pack_part(&p.w, 0, 1);
    buffers b = buffers_make(&p, M, 9);
    for (int r = 0; r < M; r++) {
        for (int i = 0; i < K; i++)
            b.x[r * b.ldx + i] = value;
        oracle(&p, 0, b.x + r * b.ldx, b.want + r * N);
    }
    for (int v = 0; (kernel = kvant_op_variant(KVANT_OP_MATMUL, v, &name, &usable)) != NULL; v++)
        for (int m = 1; m <= M && usable; m += M - 1)
            for (int compute = 0; compute < 2; compute++) {
                kvant_matmul_args a = { &p.w, b.x, b.y, m, b.ldx, b.ldy, compute };
                run_kernel(kernel, &a, 2);
                double err = nmse_of(&p, &b, m);
                CHECK(err <= 1e-6, "%s %s compute %d m %d, codes 0x%02x, x %g: NMSE %g", t->name, name, compute, m,
                      byte, (double)value, err);
            }
    buffers_free(&b);
    problem_free(&p);
}

static void check_extremes(void)
{
    static const uint8_t bytes[] = { 0x00, 0xFF, 0x80, 0x7F, 0x77 };

    for (int i = 0; i < kvant_wtype_count(); i++)
        for (int j = 0; j < 5 && kvant_wtype_at(i)->block > 1; j++) {
            check_extreme(kvant_wtype_at(i), bytes[j], 1.5f);
            check_extreme(kvant_wtype_at(i), bytes[j], -1.5f);
        }
}

/* n rows x slots experts; x_div 1 or slots. */
static void check_id_shape(const kvant_wtype *t, int n, int slots, int x_div, int64_t k, int64_t n_out)
{
    enum { EXPERTS = 5 };
    problem p;
    const char *name;
    int usable, rows = n * slots, x_rows = (rows + x_div - 1) / x_div, have_first = 0;
    const kvant_cpu_kernel *kernel;
    rng r = { 3 };

    problem_make(&p, t, k, n_out, EXPERTS, 31);
    size_t y_count = (size_t)(rows * n_out);
    float *x = check_guarded((size_t)((x_rows - 1) * (k + 1) + k) * sizeof(float), 4), *want = malloc(y_count * 4);
    float *y = check_guarded(y_count * sizeof(float), 4), *first = malloc(y_count * 4);
    int32_t *ids = malloc((size_t)rows * sizeof *ids);
    for (int i = 0; i < x_rows; i++)
        check_fill_normal(x + i * (k + 1), (size_t)k, 50 + (uint64_t)i);
    for (int i = 0; i < rows; i++) {
        ids[i] = (int32_t)rng_below(&r, EXPERTS - 1);                  /* the last expert gets nothing */
        oracle(&p, ids[i], x + i / x_div * (k + 1), want + i * n_out);
    }
    for (int compute = 0; compute < 2; compute++, have_first = 0)
        for (int v = 0; (kernel = kvant_op_variant(KVANT_OP_MATMUL_ID, v, &name, &usable)) != NULL; v++)
            for (int parts = 1; parts < 8 && usable; parts += 3) {
                kvant_matmul_id_args a = { &p.w, x, ids, y, n, slots, x_div, k + 1, compute };
                memset(y, 0xFF, y_count * 4);
                run_kernel(kernel, &a, parts);
                double err = check_nmse(y, want, y_count);
                CHECK(err <= limit_of[compute], "%s %s compute %d n %d x %d: NMSE %g", t->name, name, compute, n, slots,
                      err);
                CHECK(check_guard_ok(y) && check_guard_ok(x), "%s %s: wrote outside", t->name, name);
                int own_bits = compute == KVANT_COMPUTE_AUTO && strcmp(t->name, "BF16") == 0;
                if (v > 0 && have_first && (!own_bits || parts > 1))
                    CHECK(memcmp(first, y, y_count * 4) == 0, "%s %s compute %d, %d parts: other bits", t->name, name,
                          compute, parts);
                else if (v > 0)
                    memcpy(first, y, y_count * 4);
                have_first |= v > 0;
            }
    check_guard_free(x);
    check_guard_free(y);
    free(want), free(first), free(ids);
    problem_free(&p);
}

static void check_id(void)
{
    for (int i = 0; i < kvant_wtype_count(); i++) {
        const kvant_wtype *t = kvant_wtype_at(i);
        int64_t k = t->block == 1 ? 70 : 256;
        check_id_shape(t, 1, 2, 2, k, 40);
        check_id_shape(t, 1, 1, 1, k, 17);
        check_id_shape(t, 9, 2, 2, k, 33);
        check_id_shape(t, 9, 2, 1, k, 48);
        check_id_shape(t, 150, 2, 2, k, 20);
    }
}

enum { EMBED_IDS = 7 };

/* Ids of no row leave what is there. */
static void check_embed(void)
{
    static const int32_t ids[EMBED_IDS] = { 4, 0, -1, 4, 9, 10, 3 };
    const char *name;
    int usable;

    for (int i = 0; i < kvant_wtype_count(); i++) {
        const kvant_wtype *t = kvant_wtype_at(i);
        int64_t k = t->block == 1 ? 67 : 2 * t->block;
        problem p;
        problem_make(&p, t, k, 10, 1, 8);
        float *y = check_guarded((size_t)(EMBED_IDS * k) * sizeof(float), 4);
        const kvant_cpu_kernel *kernel;
        for (int v = 0; (kernel = kvant_op_variant(KVANT_OP_EMBED, v, &name, &usable)) != NULL; v++)
            for (int parts = 1; parts < 4 && usable; parts++) {
                kvant_embed_args a = { &p.w, ids, y, EMBED_IDS };
                int bad = 0;
                memset(y, 0xFF, (size_t)(EMBED_IDS * k) * sizeof(float));
                run_kernel(kernel, &a, parts);
                for (int r = 0; r < EMBED_IDS; r++)
                    for (int64_t j = 0; j < k; j++)
                        bad += ids[r] < 0 || ids[r] >= 10 ? y[r * k + j] == y[r * k + j]
                                                          : y[r * k + j] != p.f[ids[r] * k + j] * scale_of(&p, 0);
                CHECK(bad == 0 && check_guard_ok(y), "embed %s %s: %d wrong values", t->name, name, bad);
            }
        check_guard_free(y);
        problem_free(&p);
    }
}

/* n = 0, and what packing refuses. */
static void check_edges(void)
{
    const kvant_wtype *t = kvant_wtype_find("Q8_0");
    problem p;
    kvant_diag diag = { "" };
    const char *name;
    int usable;
    size_t bytes;
    const kvant_cpu_kernel *kernel;

    problem_make(&p, t, 64, 16, 1, 2);
    for (int v = 0; (kernel = kvant_op_variant(KVANT_OP_MATMUL, v, &name, &usable)) != NULL; v++) {
        kvant_matmul_args a = { &p.w, NULL, NULL, 0, 64, 16, 0 };
        if (usable)
            run_kernel(kernel, &a, 2);
    }
    CHECK(1, "m = 0 did nothing");
    kvant_weight w = p.w;
    w.n_in = 48;
    CHECK(kvant_cpu_pack_bytes(&w, &bytes, &diag) == KVANT_EINVAL, "half a block: %s", diag.text);
    w.n_in = 64, w.n_out = 0;
    CHECK(kvant_cpu_pack_bytes(&w, &bytes, &diag) == KVANT_EINVAL, "no outputs: %s", diag.text);
    w.n_out = INT64_MAX / 64;
    CHECK(kvant_cpu_pack_bytes(&w, &bytes, &diag) < 0, "2^57 outputs");
    problem_free(&p);
}

/* A list through the device: three matmuls of one input, then one that reads their outputs. */
static void check_device(int threads)
{
    const char *types[2] = { "BF16", "Q8_0" };
    enum { M = 9, K = 96, N = 64 };

    for (int t = 0; t < 2; t++) {
        kvant_device_config cfg = { .threads = threads };
        kvant_device *d = NULL;
        kvant_diag diag = { "" };
        kvant_weight w[4];
        problem p[4];
        float *x = kvant_alloc(M * K * 4), *y = kvant_alloc(4 * M * N * 4), *z = kvant_alloc(4 * M * N * 4);
        CHECK(device_open("cpu", &cfg, &d, &diag) == KVANT_OK, "%s", diag.text);
        check_fill_normal(x, M * K, 4);
        kvant_matmul_args a[4];
        kvant_op ops[4];
        for (int i = 0; i < 4; i++) {
            problem_make(&p[i], kvant_wtype_find(types[t]), i < 3 ? K : N, N, 1, 60 + (uint64_t)i);
            w[i] = p[i].w;
            w[i].packed = NULL;
            CHECK(d->vt->weight_load(d, &w[i], 0, &diag) == KVANT_OK, "%s", diag.text);
            a[i] = (kvant_matmul_args){ &w[i], i < 3 ? x : y + M * N, y + i * M * N, M, i < 3 ? K : N, N, 0 };
            ops[i] = (kvant_op){ KVANT_OP_MATMUL, &a[i] };
            CHECK(d->vt->supports(d, &ops[i], &diag) == KVANT_OK, "%s", diag.text);
        }
        CHECK(d->vt->submit(d, ops, 4, 1, &diag) == KVANT_OK, "%s", diag.text);
        for (int i = 0; i < 4; i++) {
            kvant_matmul_args one = a[i];
            one.y = z + i * M * N;
            one.x = i < 3 ? x : z + M * N;
            run_kernel(kvant_op_cpu(KVANT_OP_MATMUL), &one, 1);
            d->vt->weight_free(d, &w[i]);
            problem_free(&p[i]);
        }
        CHECK(memcmp(y, z, 4 * M * N * 4) == 0, "%s, %d threads: a list differs from its ops run alone", types[t],
              threads);
        d->vt->close(d);
        kvant_free(x), kvant_free(y), kvant_free(z);
    }
}

int main(void)
{
    check_types();
    check_nan();
    check_nan_weight("F32", 4 * 9 + 2, 0x7fc0);
    check_nan_weight("F16", 2 * 9, 0x7e00);
    check_nan_weight("BF16", 2 * 9, 0x7fc0);
    check_nan_weight("Q8_0", 0, 0x7e00);
    check_nan_weight("Q4_0", 0, 0x7e00);
    check_nan_weight("Q4_K", 0, 0x7e00);
    check_nan_weight("Q6_K", 208, 0x7e00);
    check_extremes();
    check_id();
    check_embed();
    check_edges();
    check_device(1);
    check_device(2);
    check_device(5);
    return check_end("check_matmul");
}
