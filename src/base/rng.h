/* base/rng.h: splitmix64, the one random generator of kvant.  Reproducible everywhere; not for secrets. */
#ifndef KVANT_BASE_RNG_H
#define KVANT_BASE_RNG_H

#include <stdint.h>

typedef struct rng {
    uint64_t state;
} rng;

static inline uint64_t rng_u64(rng *r)
{
    uint64_t z = (r->state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Uniform in [0, 1) with 53 bits. */
static inline double rng_unit(rng *r)
{
    return (double)(rng_u64(r) >> 11) * 0x1p-53;
}

/* Uniform in [0, n), n >= 1 (bias below 2^-32 for n < 2^32). */
static inline uint32_t rng_below(rng *r, uint32_t n)
{
    return (uint32_t)(((rng_u64(r) >> 32) * n) >> 32);
}

/* Standard normal; Box-Muller, one value per call pair of uniforms. Defined in rng.c. */
float rng_normal(rng *r);

#endif
