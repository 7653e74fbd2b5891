/* matmul_int_neon.h: what the integer matmuls of NEON, dot product and int8 matrix product share: the packed codes and
 * scales (layouts: matmul_pack.h) in registers.  A QUAD is 4 of a panel's 16 outputs; one register holds 4 k of a quad.
 * Included only by *_neon.c, *_dotprod.c and *_i8mm.c. */
#ifndef KVANT_CPU_MATMUL_INT_NEON_H
#define KVANT_CPU_MATMUL_INT_NEON_H

#include <math.h>
#include <string.h>
#include "base/simd/vf_neon.h"
#include "devices/cpu/matmul/matmul_drive.h"

/* Defined in matmul_int_neon.c; the rows of a rung that has nothing better are those of the rung below. */
void matmul_quantise_neon(const float *x, const matmul_xq *q, int64_t row);
void matmul_expand_neon(const matmul_packed *h, const uint8_t *panel, int64_t k0, int64_t k, float *dst);
extern const matmul_unpack_fn matmul_unpack_neon[LAYOUT_COUNT];
extern const matmul_int_row_fn matmul_int_row_dotprod[LAYOUT_COUNT];

/* ---- codes: w[j] = k 16h + 4j .. 16h + 4j+3 of quad s; raw_<store> gives them `centre` above the signed code; byte,
 * table and wide: the signed code (t: levels_of(h)) ---- */

enum { LOOKED_UP_byte = 1, LOOKED_UP_table = 1, LOOKED_UP_wide = 1, LOOKED_UP_nibble = 0, LOOKED_UP_two = 0,
       LOOKED_UP_three = 0, LOOKED_UP_five = 0, LOOKED_UP_six = 0 };
#define centre_of(h, store) (LOOKED_UP_##store ? 0 : (h)->centre)

typedef struct weights {
    int8x16_t w0, w1, w2, w3;
} weights;

static inline int8x16_t levels_of(const matmul_packed *h)
{
    return vld1q_s8(h->levels);
}

static inline weights raw_byte(const uint8_t *codes, int h, int s, int8x16_t t)
{
    const int8_t *p = (const int8_t *)codes + h * 256 + s * 16;

    (void)t;
    return (weights){ vld1q_s8(p), vld1q_s8(p + 64), vld1q_s8(p + 128), vld1q_s8(p + 192) };
}

static inline int8x16_t nibble_low(uint8x16_t v)
{
    return vreinterpretq_s8_u8(vandq_u8(v, vdupq_n_u8(15)));
}

static inline int8x16_t nibble_high(uint8x16_t v)
{
    return vreinterpretq_s8_u8(vshrq_n_u8(v, 4));
}

static inline weights raw_nibble(const uint8_t *codes, int h, int s, int8x16_t t)
{
    uint8x16_t a = vld1q_u8(codes + h * 128 + s * 16), b = vld1q_u8(codes + h * 128 + 64 + s * 16);

    (void)t;
    return (weights){ nibble_low(a), nibble_high(a), nibble_low(b), nibble_high(b) };
}

static inline int8x16_t level(int8x16_t t, int8x16_t code)
{
    return vqtbl1q_s8(t, vreinterpretq_u8_s8(code));
}

static inline weights raw_table(const uint8_t *codes, int h, int s, int8x16_t t)
{
    weights n = raw_nibble(codes, h, s, t);

    return (weights){ level(t, n.w0), level(t, n.w1), level(t, n.w2), level(t, n.w3) };
}
#define raw_wide raw_table

/* Two bits of each code at bit `up`: field f of the plane is k 16h + 4f. */
static inline weights plane_two(const uint8_t *p, int h, int s, int up)
{
    const uint8x16_t two = vdupq_n_u8(3), v = vld1q_u8(p + h * 64 + s * 16);
    const int8x16_t by = vdupq_n_s8((int8_t)up);

#define PLANE_TWO(f) vreinterpretq_s8_u8(vshlq_u8(vandq_u8(vshrq_n_u8(v, f), two), by))
    return (weights){ vreinterpretq_s8_u8(vshlq_u8(vandq_u8(v, two), by)), PLANE_TWO(2), PLANE_TWO(4), PLANE_TWO(6) };
}

/* One bit of each code at bit `up`: bit g of the plane is k 4g. */
static inline weights plane_one(const uint8_t *p, int h, int s, int up)
{
    const uint8x16_t one = vdupq_n_u8(1), v = vshlq_u8(vld1q_u8(p + s * 16), vdupq_n_s8((int8_t)(-4 * h)));
    const int8x16_t by = vdupq_n_s8((int8_t)up);

#define PLANE_ONE(f) vreinterpretq_s8_u8(vshlq_u8(vandq_u8(vshrq_n_u8(v, f), one), by))
    return (weights){ vreinterpretq_s8_u8(vshlq_u8(vandq_u8(v, one), by)), PLANE_ONE(1), PLANE_ONE(2), PLANE_ONE(3) };
}

static inline weights both(weights a, weights b)
{
    return (weights){ vorrq_s8(a.w0, b.w0), vorrq_s8(a.w1, b.w1), vorrq_s8(a.w2, b.w2), vorrq_s8(a.w3, b.w3) };
}

static inline weights raw_two(const uint8_t *codes, int h, int s, int8x16_t t)
{
    (void)t;
    return plane_two(codes, h, s, 0);
}

static inline weights raw_three(const uint8_t *codes, int h, int s, int8x16_t t)
{
    (void)t;
    return both(plane_two(codes, h, s, 0), plane_one(codes + 128, h, s, 2));
}

static inline weights raw_five(const uint8_t *codes, int h, int s, int8x16_t t)
{
    return both(raw_nibble(codes, h, s, t), plane_one(codes + 256, h, s, 4));
}

static inline weights raw_six(const uint8_t *codes, int h, int s, int8x16_t t)
{
    return both(raw_nibble(codes, h, s, t), plane_two(codes + 256, h, s, 4));
}

/* ---- scales: 16 floats of one group ---- */

/* f16 d at p times 16 small integers: u8 or i8. */
static inline void scale_times(const uint8_t *p, const uint8_t *n, int is_signed, float *dst)
{
    for (int i = 0; i < 16; i += 8) {
        int16x8_t v = is_signed ? vmovl_s8(vreinterpret_s8_u8(vld1_u8(n + i)))
                                : vreinterpretq_s16_u16(vmovl_u8(vld1_u8(n + i)));
        vf f = { vcvtq_f32_s32(vmovl_s16(vget_low_s16(v))), vcvtq_f32_s32(vmovl_high_s16(v)) };
        vf_store(dst + i, vf_mul(vf_load_f16(p + 2 * i), f));
    }
}

/* 16 floats with their sign changed by `sign`. */
static inline void scale_sign(float *v, uint32_t sign)
{
    for (int i = 0; i < PANEL; i += 4)
        vst1q_f32(v + i, vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(vld1q_f32(v + i)), vdupq_n_u32(sign))));
}

#include "devices/cpu/matmul/matmul_scales8.h"

/* The f32 sums of a tile lie in acc (L1), because the integer sums need the registers. */
static inline void acc_load(float *acc, const float *y, int64_t ldy, int rows, int first)
{
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < PANEL; i++)
            acc[r * PANEL + i] = first ? 0.0f : y[r * ldy + i];
}

static inline void acc_store(const float *acc, float *y, int64_t ldy, int rows)
{
    for (int r = 0; r < rows; r++)
        memcpy(y + r * ldy, acc + r * PANEL, PANEL * sizeof *acc);
}

#endif
