/* peak.c: see peak.h. */
#include "cli/bench/peak.h"

#include <stdint.h>
#include <string.h>
#include "base/clock.h"
#include "base/cpu.h"
#include "base/mem.h"
#include "base/pool.h"

enum { ROUNDS = 5, STEP_FLOATS = 256 };

#define KVANT_PEAK(isa, mask) extern const peak_kernels kvant_peak_##isa;
#include "cli/bench/peaks.def"
#undef KVANT_PEAK

static float scalar_read(const float *x, size_t n)
{
    float s = 0.0f;
    for (size_t i = 0; i < n; i++)
        s += x[i];
    return s;
}

static float scalar_fma(long steps)
{
    float a = 0.0f;
    for (long i = 0; i < steps; i++)
        a = a * 0.5f + 1.0f;
    return a;
}

static const peak_kernels scalar = { 2, scalar_read, scalar_fma };

static const struct {
    uint32_t mask;
    const peak_kernels *kernels;
} list[] = {
    { 0, &scalar },
#define KVANT_PEAK(isa, mask) { (mask), &kvant_peak_##isa },
#include "cli/bench/peaks.def"
#undef KVANT_PEAK
};

static const peak_kernels *best(void)
{
    int i = (int)(sizeof list / sizeof list[0]) - 1;
    while (list[i].mask & ~kvant_cpu_features())
        i--;
    return list[i].kernels;
}

typedef struct read_job {
    const peak_kernels *k;
    float *x;
    size_t n;                              /* of each part */
    int first;                             /* its pages are touched for the first time, by who reads them */
} read_job;

static void read_part(void *arg, int part, int parts)
{
    const read_job *j = arg;
    float *x = j->x + (size_t)part * j->n;
    volatile float sink = 0.0f;

    (void)parts;
    if (j->first)
        memset(x, 0, j->n * sizeof *x);
    else
        sink = sink + j->k->read(x, j->n);
}

/* GB/s of one round. */
static double read_round(pool *p, read_job *j, int min_us)
{
    const double once = (double)j->n * sizeof(float) * pool_threads(p);
    const int64_t start = clock_ns();
    int64_t now = start;
    double read = 0.0;

    while (now - start < (int64_t)min_us * 1000) {
        pool_run(p, read_part, j);
        read += once;
        now = clock_ns();
    }
    return read / (double)(now - start);
}

double peak_read_threads_gbs(size_t bytes, int threads, int min_us)
{
    const size_t each = bytes / sizeof(float) / (size_t)threads;
    read_job j = { best(), NULL, (each + STEP_FLOATS) / STEP_FLOATS * STEP_FLOATS, 1 };
    double top = 0.0, rate;
    pool *p = NULL;

    j.x = kvant_alloc(j.n * (size_t)threads * sizeof *j.x);
    if (j.x && pool_create(threads, &p, NULL) == KVANT_OK) {
        pool_run(p, read_part, &j);
        j.first = 0;
        for (int r = 0; r < ROUNDS; r++) {
            rate = read_round(p, &j, min_us);
            top = rate > top ? rate : top;
        }
    }
    pool_free(p);
    kvant_free(j.x);
    return top;
}

double peak_read_gbs(size_t bytes, int min_us)
{
    return peak_read_threads_gbs(bytes, 1, min_us);
}

double peak_fma_gflops(int min_us)
{
    const peak_kernels *k = best();
    volatile float sink = 0.0f;
    double top = 0.0;

    for (int r = 0; r < ROUNDS; r++) {
        int64_t start = clock_ns(), now = start;
        double steps = 0.0;
        while (now - start < (int64_t)min_us * 1000) {
            sink = sink + k->fma(10000);
            steps += 10000.0;
            now = clock_ns();
        }
        top = steps * k->flops / (double)(now - start) > top ? steps * k->flops / (double)(now - start) : top;
    }
    return top;
}
