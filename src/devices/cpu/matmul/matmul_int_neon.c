/* matmul_int_neon.c: what every NEON rung of the integer matmul needs: activations in 8 bits, panels unpacked for a
 * tile of many rows, and quantised panels to f32.
 *
 * Unpacked codes are signed bytes [k/4][16][4], their offset taken out: NEON multiplies signed by signed, so nothing
 * has to be put right afterwards. */
#include "devices/cpu/matmul/matmul_int_neon.h"

/* 16 values; returns their sum. */
static inline int32_t quantise16(const float *x, float by, int8_t *q8)
{
    int32x4_t a = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x), by));
    int32x4_t b = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 4), by));
    int32x4_t c = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 8), by));
    int32x4_t d = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 12), by));
    int16x8_t ab = vcombine_s16(vmovn_s32(a), vmovn_s32(b)), cd = vcombine_s16(vmovn_s32(c), vmovn_s32(d));

    vst1q_s8(q8, vcombine_s8(vmovn_s16(ab), vmovn_s16(cd)));
    return vaddvq_s32(vaddq_s32(vaddq_s32(a, b), vaddq_s32(c, d)));
}

/* Largest magnitude of 32 values; NaN if one of them is. */
static inline float block_amax(const float *x)
{
    float32x4_t best = vdupq_n_f32(0.0f);

    for (int i = 0; i < 32; i += 4)
        best = vmaxq_f32(best, vabsq_f32(vld1q_f32(x + i)));
    return vmaxvq_f32(best);
}

void matmul_quantise_neon(const float *x, const matmul_xq *q, int64_t row)
{
    int64_t k = q->k;
    int8_t *q8 = q->q8 + row * k;
    int32_t *sum = q->sum + row * k / 16;

    for (int64_t b = 0; b < k / 32; b++, x += 32) {
        float amax = block_amax(x), d = amax < INFINITY ? amax / 127.0f : NAN;
        if (amax > 1e-30f && amax < INFINITY) {     /* below, 127 / amax could overflow; such a block counts as 0 */
            sum[2 * b] = quantise16(x, 127.0f / amax, q8 + b * 32);
            sum[2 * b + 1] = quantise16(x + 16, 127.0f / amax, q8 + b * 32 + 16);
        } else {
            memset(q8 + b * 32, 0, 32);
            sum[2 * b] = sum[2 * b + 1] = 0;
        }
        q->d[row * (k / 32) + b] = d;
        q->s[row * (k / 32) + b] = d * (float)(sum[2 * b] + sum[2 * b + 1]);
        q->s16[row * (k / 16) + 2 * b] = d * (float)sum[2 * b];
        q->s16[row * (k / 16) + 2 * b + 1] = d * (float)sum[2 * b + 1];
    }
}

static inline weights signed_codes(weights w, int offset)
{
    const int8x16_t o = vdupq_n_s8((int8_t)offset);

    return (weights){ vsubq_s8(w.w0, o), vsubq_s8(w.w1, o), vsubq_s8(w.w2, o), vsubq_s8(w.w3, o) };
}

#define UNPACK(name, store, scales, group_k, with_min, steps)                                           \
    static void unpack_##name(const matmul_packed *h, const uint8_t *panel, int64_t k0, int64_t k, matmul_unpacked *u) \
    {                                                                                                                  \
        enum { FOLDS = 32 / (group_k) };                                                                               \
        const int8x16_t t = levels_of(h);                                                                              \
        int8_t *dst = (int8_t *)u->codes;                                                                              \
        u->group = group_k;                                                                                            \
        u->has_min = with_min;                                                                                         \
        for (int64_t i = 0; i < k / 32; i++, dst += 512) {                                                             \
            int64_t b = k0 / 32 + i;                                                                                   \
            for (int hs = 0; hs < 8; hs++) {                                                                           \
                int8_t *to = dst + hs / 4 * 256 + hs % 4 * 16;                                                         \
                weights w = signed_codes(raw_##store(panel + b * h->code_bytes, hs / 4, hs % 4, t),                    \
                                         centre_of(h, store));                                                         \
                vst1q_s8(to, w.w0);                                                                                    \
                vst1q_s8(to + 64, w.w1);                                                                               \
                vst1q_s8(to + 128, w.w2);                                                                              \
                vst1q_s8(to + 192, w.w3);                                                                              \
            }                                                                                                          \
            scales_##scales(h, record(h, panel, b), b, FOLDS, u->scale + i * FOLDS * PANEL,                            \
                            u->min + i * FOLDS * PANEL);                                                               \
        }                                                                                                              \
    }
INT_LAYOUTS(UNPACK)

#define UNPACK_ENTRY(name, store, scales, group_k, with_min, steps) [LAYOUT_##name] = unpack_##name,
const matmul_unpack_fn matmul_unpack_neon[LAYOUT_COUNT] = { INT_LAYOUTS(UNPACK_ENTRY) };

/* One register of codes (4 outputs x 4 k) to f32 at dst[k][16]: scale * code + min, the product rounded first as the
 * types say. */
static inline void expand4(int8x16_t codes, float32x4_t scale, float32x4_t min, float *dst)
{
    int32x4_t c = vreinterpretq_s32_s8(codes);
    int32x4_t k0 = vshrq_n_s32(vshlq_n_s32(c, 24), 24), k1 = vshrq_n_s32(vshlq_n_s32(c, 16), 24);
    int32x4_t k2 = vshrq_n_s32(vshlq_n_s32(c, 8), 24), k3 = vshrq_n_s32(c, 24);

    vst1q_f32(dst, vaddq_f32(vmulq_f32(vcvtq_f32_s32(k0), scale), min));
    vst1q_f32(dst + PANEL, vaddq_f32(vmulq_f32(vcvtq_f32_s32(k1), scale), min));
    vst1q_f32(dst + 2 * PANEL, vaddq_f32(vmulq_f32(vcvtq_f32_s32(k2), scale), min));
    vst1q_f32(dst + 3 * PANEL, vaddq_f32(vmulq_f32(vcvtq_f32_s32(k3), scale), min));
}

/* -0.0 as min leaves every product as it is, -0.0 and NaN included. */
#define EXPAND(name, store, scales, group_k, with_min, steps)                                   \
    static void expand_##name(const matmul_packed *h, const uint8_t *panel, int64_t k0, int64_t k, float *dst) \
    {                                                                                                          \
        enum { FOLDS = 32 / (group_k) };                                                                       \
        const int8x16_t t = levels_of(h);                                                                      \
        float scale[2 * PANEL], min[2 * PANEL];                                                                \
        for (int64_t b = k0 / 32; b < (k0 + k) / 32; b++, dst += 32 * PANEL) {                                 \
            scales_##scales(h, record(h, panel, b), b, FOLDS, scale, min);                                     \
            for (int hs = 0; hs < 8; hs++) {                                                                   \
                const int i = hs / 4, s = hs % 4, at = ((group_k) == 16 ? i : 0) * PANEL + s * 4;              \
                float *to = dst + i * 16 * PANEL + s * 4;                                                      \
                weights w = signed_codes(raw_##store(panel + b * h->code_bytes, i, s, t), centre_of(h, store)); \
                float32x4_t by = vld1q_f32(scale + at);                                                        \
                float32x4_t m = (with_min) ? vld1q_f32(min + at) : vdupq_n_f32(-0.0f);                         \
                expand4(w.w0, by, m, to);                                                                      \
                expand4(w.w1, by, m, to + 4 * PANEL);                                                          \
                expand4(w.w2, by, m, to + 8 * PANEL);                                                          \
                expand4(w.w3, by, m, to + 12 * PANEL);                                                         \
            }                                                                                                  \
        }                                                                                                      \
    }
INT_LAYOUTS(EXPAND)

#define EXPAND_ENTRY(name, store, scales, group_k, with_min, steps) [LAYOUT_##name] = expand_##name,
void matmul_expand_neon(const matmul_packed *h, const uint8_t *panel, int64_t k0, int64_t k, float *dst)
{
    static const matmul_expand_fn expand[LAYOUT_COUNT] = { INT_LAYOUTS(EXPAND_ENTRY) };

    expand[h->layout](h, panel, k0, k, dst);
}
