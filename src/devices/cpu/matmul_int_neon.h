/* matmul_int_neon.h: what the integer matmuls of NEON, dot product and int8 matrix product share: the packed codes and
 * scales (layouts: matmul_pack.h) in registers.  A QUAD is 4 of a panel's 16 outputs; one register holds 4 k of a quad.
 * Included only by *_neon.c, *_dotprod.c and *_i8mm.c. */
#ifndef KVANT_CPU_MATMUL_INT_NEON_H
#define KVANT_CPU_MATMUL_INT_NEON_H

#include <math.h>
#include <string.h>
#include "base/vf_neon.h"
#include "devices/cpu/matmul_drive.h"

/* Defined in matmul_int_neon.c; the rows of a rung that has nothing better are those of the rung below. */
void matmul_quantise_neon(const float *x, const matmul_xq *q, int64_t row);
void matmul_expand_neon(const matmul_packed *h, const uint8_t *panel, int64_t k0, int64_t k, float *dst);
extern const matmul_unpack_fn matmul_unpack_neon[LAYOUT_COUNT];
extern const matmul_int_row_fn matmul_int_row_dotprod[LAYOUT_COUNT];

/* ---- codes: w[j] = k 16h + 4j .. 16h + 4j+3 of quad s, still offset by OFFSET_* ---- */

enum { OFFSET_q8_0 = 0, OFFSET_q4_0 = 8, OFFSET_q4_k = 0, OFFSET_q6_k = 32, OFFSET_fp4 = 0 };

typedef struct weights {
    int8x16_t w0, w1, w2, w3;
} weights;

static inline weights codes_q8_0(const uint8_t *codes, int h, int s)
{
    const int8_t *p = (const int8_t *)codes + h * 256 + s * 16;

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

static inline weights codes_nibble(const uint8_t *codes, int h, int s)
{
    uint8x16_t a = vld1q_u8(codes + h * 128 + s * 16), b = vld1q_u8(codes + h * 128 + 64 + s * 16);

    return (weights){ nibble_low(a), nibble_high(a), nibble_low(b), nibble_high(b) };
}
#define codes_q4_0 codes_nibble
#define codes_q4_k codes_nibble

/* Twice the E2M1 value. */
static inline int8x16_t fp4_twice(int8x16_t code)
{
    static const int8_t twice[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };

    return vqtbl1q_s8(vld1q_s8(twice), vreinterpretq_u8_s8(code));
}

static inline weights codes_fp4(const uint8_t *codes, int h, int s)
{
    weights n = codes_nibble(codes, h, s);

    return (weights){ fp4_twice(n.w0), fp4_twice(n.w1), fp4_twice(n.w2), fp4_twice(n.w3) };
}

/* Two more bits of each code: field f of `high` is k 16h + 4f. */
static inline weights codes_q6_k(const uint8_t *codes, int h, int s)
{
    const uint8x16_t two = vdupq_n_u8(0x30);
    weights n = codes_nibble(codes, h, s);
    uint8x16_t high = vld1q_u8(codes + 256 + h * 64 + s * 16);

    n.w0 = vorrq_s8(n.w0, vreinterpretq_s8_u8(vandq_u8(vshlq_n_u8(high, 4), two)));
    n.w1 = vorrq_s8(n.w1, vreinterpretq_s8_u8(vandq_u8(vshlq_n_u8(high, 2), two)));
    n.w2 = vorrq_s8(n.w2, vreinterpretq_s8_u8(vandq_u8(high, two)));
    n.w3 = vorrq_s8(n.w3, vreinterpretq_s8_u8(vandq_u8(vshrq_n_u8(high, 2), two)));
    return n;
}

/* ---- scales: 16 floats of one group ---- */

/* Scale record of 32-block b. */
static inline const uint8_t *record(const matmul_packed *h, const uint8_t *panel, int64_t b)
{
    return panel + h->scale_offset + (size_t)(b * 32 / h->span) * (size_t)h->span_bytes;
}

static inline void scale_f16(const uint8_t *p, float *dst)
{
    vf_store(dst, vf_load_half(p));
    vf_store(dst + 8, vf_load_half(p + 16));
}

static inline void scale_bf16(const uint8_t *p, float *dst)
{
    for (int i = 0; i < 16; i += 4) {
        uint16x4_t v = vreinterpret_u16_u8(vld1_u8(p + 2 * i));
        vst1q_f32(dst + i, vreinterpretq_f32_u32(vshll_n_u16(v, 16)));
    }
}

/* f16 d at p times 16 small integers: u8 or i8. */
static inline void scale_times(const uint8_t *p, const uint8_t *n, int is_signed, float *dst)
{
    for (int i = 0; i < 16; i += 8) {
        int16x8_t v = is_signed ? vmovl_s8(vreinterpret_s8_u8(vld1_u8(n + i)))
                                : vreinterpretq_s16_u16(vmovl_u8(vld1_u8(n + i)));
        vf f = { vcvtq_f32_s32(vmovl_s16(vget_low_s16(v))), vcvtq_f32_s32(vmovl_high_s16(v)) };
        vf_store(dst + i, vf_mul(vf_load_half(p + 2 * i), f));
    }
}

#include "devices/cpu/matmul_scales8.h"

/* M(layout, name, codes, offset, scales, k per scale, has min) */
#define INT_LAYOUTS(M)                                            \
    M(Q8_0, q8_0, codes_q8_0, OFFSET_q8_0, scales_f16, 32, 0)     \
    M(Q4_0, q4_0, codes_q4_0, OFFSET_q4_0, scales_f16, 32, 0)     \
    M(Q4_K, q4_k, codes_q4_k, OFFSET_q4_k, scales_q4_k, 32, 1)    \
    M(Q6_K, q6_k, codes_q6_k, OFFSET_q6_k, scales_q6_k, 16, 0)    \
    M(MXFP4, mxfp4, codes_fp4, OFFSET_fp4, scales_mxfp4, 32, 0)   \
    M(NVFP4, nvfp4, codes_fp4, OFFSET_fp4, scales_nvfp4, 16, 0)

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
