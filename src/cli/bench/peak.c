/* peak.c: see peak.h. */
#include "cli/bench/peak.h"

#include <stdint.h>
#include <string.h>
#include "base/clock.h"
#include "base/cpu.h"
#include "base/mem.h"

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

double peak_read_gbs(size_t bytes, int min_us)
{
    const peak_kernels *k = best();
    size_t n = (bytes / sizeof(float) + STEP_FLOATS) / STEP_FLOATS * STEP_FLOATS;
    float *x = kvant_alloc(n * sizeof *x);
    volatile float sink = 0.0f;
    double top = 0.0;

    if (!x)
        return 0.0;
    memset(x, 0, n * sizeof *x);
    for (int r = 0; r < ROUNDS; r++) {
        int64_t start = clock_ns(), now = start;
        double read = 0.0;
        while (now - start < (int64_t)min_us * 1000) {
            sink = sink + k->read(x, n);
            read += (double)(n * sizeof *x);
            now = clock_ns();
        }
        top = read / (double)(now - start) > top ? read / (double)(now - start) : top;
    }
    kvant_free(x);
    return top;
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
