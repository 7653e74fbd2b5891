/* bench_matmul.c: speed of the CPU matmul against peaks measured in the same run.  Not a test, not built by default:
 *     cc ... tests/bench_matmul.c build/release/lib/libkvant-all.a -lm -lpthread
 *     bench_matmul [threads] [type substring] [m]
 * Prefill rows: GFLOP/s and percent of the FMA peak.  Decode rows (m small): GB/s of weight bytes, with the weights
 * cold (a chain of matrices larger than the last cache) and percent of a plain read of the same size. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#include "base/clock.h"
#include "base/cpu.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/rng.h"
#include "devices/cpu/matmul/matmul_pack.h"
#include "devices/device.h"

/* One thread: its CPU time, so that a busy machine disturbs less; several: the wall clock. */
static int use_cpu_time;

static int64_t now_ns(void)
{
    struct timespec t;

    if (!use_cpu_time)
        return clock_ns();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static volatile double fma_sink[64];     /* volatile: the loops must not be optimised away */
static const uint8_t *read_base;
static size_t read_bytes;

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static void fma_part(void *arg, int part, int parts)
{
    __m256 a[10], m = _mm256_set1_ps(0.999f), c = _mm256_set1_ps(1e-3f);
    (void)arg, (void)parts;
    for (int i = 0; i < 10; i++)
        a[i] = _mm256_set1_ps((float)i);
    for (int n = 0; n < 4000000; n++) {
        a[0] = _mm256_fmadd_ps(a[0], m, c), a[1] = _mm256_fmadd_ps(a[1], m, c), a[2] = _mm256_fmadd_ps(a[2], m, c);
        a[3] = _mm256_fmadd_ps(a[3], m, c), a[4] = _mm256_fmadd_ps(a[4], m, c), a[5] = _mm256_fmadd_ps(a[5], m, c);
        a[6] = _mm256_fmadd_ps(a[6], m, c), a[7] = _mm256_fmadd_ps(a[7], m, c), a[8] = _mm256_fmadd_ps(a[8], m, c);
        a[9] = _mm256_fmadd_ps(a[9], m, c);
    }
    for (int i = 1; i < 10; i++)
        a[0] = _mm256_add_ps(a[0], a[i]);
    fma_sink[part] = (double)_mm_cvtss_f32(_mm256_castps256_ps128(a[0]));
}

__attribute__((target("avx512f"))) static void fma_part_512(void *arg, int part, int parts)
{
    __m512 a[10], m = _mm512_set1_ps(0.999f), c = _mm512_set1_ps(1e-3f);
    (void)arg, (void)parts;
    for (int i = 0; i < 10; i++)
        a[i] = _mm512_set1_ps((float)i);
    for (int n = 0; n < 4000000; n++) {
        a[0] = _mm512_fmadd_ps(a[0], m, c), a[1] = _mm512_fmadd_ps(a[1], m, c), a[2] = _mm512_fmadd_ps(a[2], m, c);
        a[3] = _mm512_fmadd_ps(a[3], m, c), a[4] = _mm512_fmadd_ps(a[4], m, c), a[5] = _mm512_fmadd_ps(a[5], m, c);
        a[6] = _mm512_fmadd_ps(a[6], m, c), a[7] = _mm512_fmadd_ps(a[7], m, c), a[8] = _mm512_fmadd_ps(a[8], m, c);
        a[9] = _mm512_fmadd_ps(a[9], m, c);
    }
    for (int i = 1; i < 10; i++)
        a[0] = _mm512_add_ps(a[0], a[i]);
    fma_sink[part] = (double)_mm512_cvtss_f32(a[0]);
}

__attribute__((target("avx2"))) static void read_part(void *arg, int part, int parts)
{
    size_t lo = read_bytes / 256 * (size_t)part / (size_t)parts * 256,
           hi = read_bytes / 256 * (size_t)(part + 1) / (size_t)parts * 256;
    __m256i s0 = _mm256_setzero_si256(), s1 = s0, s2 = s0, s3 = s0;
    (void)arg;
    for (size_t i = lo; i < hi; i += 128) {
        const __m256i *p = (const __m256i *)(const void *)(read_base + i);
        s0 = _mm256_xor_si256(s0, p[0]), s1 = _mm256_xor_si256(s1, p[1]);
        s2 = _mm256_xor_si256(s2, p[2]), s3 = _mm256_xor_si256(s3, p[3]);
    }
    s0 = _mm256_xor_si256(_mm256_xor_si256(s0, s1), _mm256_xor_si256(s2, s3));
    fma_sink[part] = _mm256_extract_epi32(s0, 0);
}
#endif

static double best_of(pool *p, pool_fn fn, int runs)
{
    int64_t best = INT64_MAX;

    for (int i = 0; i < runs; i++) {
        int64_t t = now_ns();
        pool_run(p, fn, NULL);
        t = now_ns() - t;
        best = t < best ? t : best;
    }
    return (double)best;
}

static double peak_gflops(pool *p, int threads)
{
    int wide = (kvant_cpu_features() & CPU_AVX512) != 0;
    double ns = best_of(p, wide ? fma_part_512 : fma_part, 5);

    return 4e6 * 10 * (wide ? 32 : 16) * threads / ns;
}

static double read_gbs(pool *p, const void *base, size_t bytes)
{
    read_base = base;
    read_bytes = bytes;
    return (double)bytes / best_of(p, read_part, 7);
}

/* `copies` weights of one shape behind each other in one block, packed. */
typedef struct bench {
    kvant_device *d;
    kvant_weight w;
    uint8_t *block;
    size_t each;
    int copies;
    float *x, *y;
    int threads;
} bench;

static void bench_setup(bench *b, const kvant_wtype *type, int64_t k, int64_t n, size_t total)
{
    size_t bytes = (size_t)(k / type->block) * (size_t)type->bytes * (size_t)n;
    float *f = kvant_alloc((size_t)k * sizeof *f);
    uint8_t *data = kvant_alloc(bytes);
    rng r = { 5 };

    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < k; j++)
            f[j] = rng_normal(&r);
        uint8_t *row = data + (size_t)i * (bytes / (size_t)n);
        if (type->quant)
            type->quant(f, row, k);
        else
            for (size_t j = 0; j < bytes / (size_t)n; j++)
                row[j] = (uint8_t)(j % 18 < 2 ? 0x20 : rng_u64(&r) >> 40);
    }
    kvant_free(f);
    b->w = (kvant_weight){ .type = type, .data = data, .n_in = k, .n_out = n, .n_expert = 1, .name = "bench" };
    kvant_diag diag;
    if (kvant_cpu_pack_bytes(&b->w, &b->each, &diag) < 0)
        printf("%s\n", diag.text), exit(1);
    b->each = (b->each + 63) / 64 * 64;
    b->copies = (int)(total / b->each) + 1;
    void *block;
    b->d->vt->alloc(b->d, b->each * (size_t)b->copies, &block, NULL);
    b->block = block;
    b->w.packed = block;
    kvant_cpu_pack_begin(&b->w);
    kvant_cpu_pack_part(&b->w, 0, 1);
    for (int i = 1; i < b->copies; i++)
        memcpy(b->block + b->each * (size_t)i, b->block, b->each);
}

static double run_ns(bench *b, int m, int compute, int reps)
{
    enum { MOST = 256 };
    static kvant_weight w[MOST];
    static kvant_matmul_args a[MOST];
    static kvant_op ops[MOST];
    int n = b->copies < MOST ? b->copies : MOST;
    int64_t best = INT64_MAX;

    for (int i = 0; i < n; i++) {
        w[i] = b->w;
        w[i].packed = b->block + b->each * (size_t)i;
        a[i] = (kvant_matmul_args){ &w[i], b->x + (i % 2) * 16, b->y + i, m, b->w.n_in + 16, b->w.n_out, compute };
        ops[i] = (kvant_op){ KVANT_OP_MATMUL, &a[i] };
    }
    for (int r = 0; r < reps; r++) {
        int64_t t = now_ns();
        if (b->d->vt->submit(b->d, ops, n, 0, NULL) < 0)
            exit(1);
        t = now_ns() - t;
        best = t < best ? t : best;
    }
    return (double)best / n;
}

static void bench_free(bench *b)
{
    b->d->vt->free(b->d, b->block);
    kvant_free((void *)(uintptr_t)b->w.data);
}

int main(int argc, char **argv)
{
    static const int64_t shapes[][2] = { { 512, 256 }, { 512, 1024 }, { 1024, 512 }, { 384, 1024 }, { 512, 8192 } };
    int threads = argc > 1 ? atoi(argv[1]) : 0, only_m = argc > 3 ? atoi(argv[3]) : 0;
    const char *filter = argc > 2 ? argv[2] : "";
    kvant_device_config cfg = { .threads = threads };
    bench b = { 0 };
    char text[256];
    pool *p;

    if (device_open("cpu", &cfg, &b.d, NULL) < 0)
        return 1;
    threads = threads > 0 ? threads : cpu_count();
    use_cpu_time = threads == 1;
    b.d->vt->describe(b.d, text, sizeof text);
    printf("%s\n", text);
    if (pool_create(threads, &p, NULL) < 0)
        return 1;
    double peak = peak_gflops(p, threads);
    uint8_t *big = kvant_alloc((size_t)192 << 20);
    memset(big, 1, (size_t)192 << 20);
    double dram = read_gbs(p, big, (size_t)192 << 20), l3 = read_gbs(p, big, (size_t)8 << 20);
    printf("f32 FMA peak %.0f GFLOP/s; read 192 MiB %.1f GB/s, 8 MiB %.1f GB/s\n", peak, dram, l3);
    kvant_free(big);
    b.x = kvant_alloc((size_t)(1040 * 520) * 4);
    b.y = kvant_alloc((size_t)(8192 * 512 + 4096) * 4);
    for (int i = 0; i < 1040 * 520; i++)
        b.x[i] = (float)(i % 1009) * 1e-3f - 0.5f;
    for (int t = 0; t < kvant_wtype_count(); t++)
        for (int compute = 0; compute < 2; compute++)
            for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
                const kvant_wtype *type = kvant_wtype_at(t);
                static const int ms[] = { 1, 2, 4, 8, 32, 64, 512 };
                int wide = type->block == 1;
                if (!strstr(type->name, filter) || shapes[s][0] % type->block || (wide && compute == 0))
                    continue;
                bench_setup(&b, type, shapes[s][0], shapes[s][1], (size_t)64 << 20);
                printf("%-6s %-4s k %4d n %4d:", type->name, compute ? "f32" : "auto", (int)shapes[s][0],
                       (int)shapes[s][1]);
                for (size_t i = 0; i < sizeof ms / sizeof ms[0]; i++) {
                    int m = ms[i];
                    if (only_m && m != only_m)
                        continue;
                    int copies = b.copies;
                    b.copies = m > 32 ? (copies < 4 ? copies : 4) : copies;
                    double ns = run_ns(&b, m, compute, m > 32 ? 4 : 6);
                    b.copies = copies;
                    double gf = 2.0 * m * (double)shapes[s][0] * (double)shapes[s][1] / ns;
                    if (m <= 4) {
                        double cold = (double)b.each / ns;
                        b.copies = (int)(((size_t)4 << 20) / b.each) + 1;
                        double warm = (double)b.each / run_ns(&b, m, compute, 20);
                        b.copies = copies;
                        printf("  m%d %.1f/%.1f GB/s", m, cold, warm);
                    } else {
                        printf("  m%d %.0f GF (%.0f%%)", m, gf, 100 * gf / peak);
                    }
                }
                printf("\n");
                fflush(stdout);
                bench_free(&b);
            }
    pool_free(p);
    b.d->vt->close(b.d);
    return 0;
}
