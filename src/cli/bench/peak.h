/* peak.h: what one thread of this CPU can do at most, measured: the yardstick beside the kernels in `kvant
 * bench-kernels`.  Read: the sum of a buffer, as fast as the vector unit loads.  FMA: independent chains in
 * registers. */
#ifndef KVANT_FORMATS_PEAK_H
#define KVANT_FORMATS_PEAK_H

#include <stddef.h>

/* The two loops on one instruction set. */
typedef struct peak_kernels {
    int flops;                             /* floating point operations of one step of fma: 2 per lane and chain */
    float (*read)(const float *x, size_t n);   /* sum of n floats, n a multiple of 256 */
    float (*fma)(long steps);
} peak_kernels;

/* GB/s of reading `bytes` (rounded up to 1 KiB) again and again for at least min_us microseconds, the best of 5
 * rounds; 0 without memory. */
double peak_read_gbs(size_t bytes, int min_us);

/* As peak_read_gbs, `threads` at once, each its share of the bytes. */
double peak_read_threads_gbs(size_t bytes, int threads, int min_us);

/* Gflop/s in f32, the best of 5 rounds. */
double peak_fma_gflops(int min_us);

#endif
