/* base/half.h: IEEE half and bfloat16 <-> f32, round to nearest even, portable and exact.
 * The scalar yardstick; SIMD code uses the CPU's own conversions, which give the same bits. */
#ifndef KVANT_BASE_HALF_H
#define KVANT_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float bits_f32(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline float half_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = (h >> 10) & 31u, m = h & 0x3ffu;
    if (e == 31)
        return bits_f32(sign | 0x7f800000u | (m << 13) | (m ? 0x400000u : 0));
    if (e)
        return bits_f32(sign | ((e + 112) << 23) | (m << 13));
    float v = (float)m * bits_f32(0x33800000u);          /* m * 2^-24, exact */
    return bits_f32(f32_bits(v) | sign);
}

static inline uint16_t f32_to_half(float f)
{
    uint32_t u = f32_bits(f), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | ((a >> 13) & 0x1ffu));  /* NaN, quiet */
    if (a >= 0x477ff000u)
        return (uint16_t)(sign | 0x7c00u);                          /* rounds to infinity */
    if (a < 0x38800000u) {                                          /* subnormal or zero */
        float t = bits_f32(a) + 0.5f;                               /* adds at 2^-24: rounds to nearest even */
        return (uint16_t)(sign | (f32_bits(t) - 0x3f000000u));
    }
    uint32_t r = a - 0x38000000u + 0xfffu + ((a >> 13) & 1u);
    return (uint16_t)(sign | (r >> 13));
}

static inline float bf16_to_f32(uint16_t b)
{
    return bits_f32((uint32_t)b << 16);
}

static inline uint16_t f32_to_bf16(float f)
{
    uint32_t u = f32_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((u >> 16) | 0x40u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

static inline uint16_t load_u16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void store_u16(void *p, uint16_t v)
{
    memcpy(p, &v, sizeof v);
}

static inline uint32_t load_u32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void store_u32(void *p, uint32_t v)
{
    memcpy(p, &v, sizeof v);
}

#endif
