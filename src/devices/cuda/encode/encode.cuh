/* encode.cuh: the encoders of the cache formats: eight lanes per 128 values, four rows at once in a warp.
 *
 * The rules are those of formats/<family>/<format>.c.  Rotations add in the references' order and give the same bits;
 * norms and the sums of the search are trees over the lanes where the references add one after another, so a code or a
 * scale may differ where it lies at a boundary, within rounding (class CODE).  NaN and Inf follow the references'
 * comparisons: whatever a row holds, no byte is undefined.
 *
 * A codebook lies across the lanes of a warp, read by shuffles.  best (search.c: the best of seven scales around the
 * start, refitted twice by least squares) judges scales by levels of a half's precision; codes and errors use the
 * book's. */
#ifndef KVANT_CUDA_ENCODE_CUH
#define KVANT_CUDA_ENCODE_CUH

#include "devices/cuda/encode/encode_search.cuh"

/* ---- packing: lane l of a record of 8 lanes holds values 4 l .. of each 32, a byte each in a word ---- */

/* [scale][16 bytes]: code j low nibble of byte j, code j + 16 the high one. */
static __device__ __forceinline__ void enc_pack_nibbles32(uint8_t *record, uint16_t scale, uint32_t code)
{
    const int l = threadIdx.x % 8;
    const uint32_t word = code | __shfl_down_sync(0xffffffffu, code, 4) << 4;
    if (!record)
        return;
    if (l == 0)
        enc_put(record, scale);
    if (l < 4) {
        enc_put(record + 2 + 4 * l, (uint16_t)word);
        enc_put(record + 4 + 4 * l, (uint16_t)(word >> 16));
    }
}

static __device__ __forceinline__ void enc_pack_q8(uint8_t *record, uint16_t scale, uint32_t code)
{
    const int l = threadIdx.x % 8;
    if (!record)
        return;
    if (l == 0)
        enc_put(record, scale);
    enc_put(record + 2 + 4 * l, (uint16_t)code);
    enc_put(record + 4 + 4 * l, (uint16_t)(code >> 16));
}

/* Fields of `bits` bits from each byte of a word, one behind the other. */
static __device__ __forceinline__ uint32_t enc_squeeze(uint32_t code, int bits)
{
    const uint32_t m = (1u << bits) - 1u;
    return (code & m) | (code >> 8 & m) << bits | (code >> 16 & m) << 2 * bits | (code >> 24 & m) << 3 * bits;
}

/* [scale][96 bits]: code j at bits 3 j. */
static __device__ __forceinline__ void enc_pack_tbq3(uint8_t *record, uint16_t scale, uint32_t code)
{
    const int l = threadIdx.x % 8;
    const uint32_t mine = enc_squeeze(code, 3), word = mine | __shfl_down_sync(0xffffffffu, mine, 1) << 12;
    if (!record)
        return;
    if (l == 0)
        enc_put(record, scale);
    if (l % 2 == 0)
        for (int b = 0; b < 3; b++)
            record[2 + 3 * (l / 2) + b] = (uint8_t)(word >> 8 * b);
}

/* [norm][low two bits of each code][high bits], a record per 32 values. */
static __device__ __forceinline__ void enc_pack_turbo3(uint8_t *record, uint16_t scale, uint32_t code)
{
    const int l = threadIdx.x % 8;
    const uint32_t high = enc_squeeze(code >> 2, 1), pair = high | __shfl_down_sync(0xffffffffu, high, 1) << 4;
    if (!record)
        return;
    if (l == 0)
        enc_put(record, scale);
    record[2 + l] = (uint8_t)enc_squeeze(code, 2);
    if (l % 2 == 0)
        record[10 + l / 2] = (uint8_t)pair;
}

/* [scale][64 bytes]: value 2 i the low nibble of byte i. */
static __device__ __forceinline__ void enc_pack_nibbles128(uint8_t *row, uint16_t scale, const uint32_t *code)
{
    const int l = threadIdx.x % 8;
    if (!row)
        return;
    if (l == 0)
        enc_put(row, scale);
#pragma unroll
    for (int j = 0; j < 4; j++)
        enc_put(row + 2 + 16 * j + 2 * l, (uint16_t)enc_squeeze(code[j], 4));
}

/* ---- the kinds ---- */

template <int F> static __device__ __forceinline__ uint16_t enc_short(float v)
{
    return F == FMT_bf16 ? f32_to_bf16(v) : enc_half(v);
}

template <int F, bool FULL>
static __device__ __forceinline__ void enc_plain(float scale, float *v, uint8_t *to, int count)
{
    constexpr int bytes = F == FMT_f32 ? 4 : F == FMT_f8_e4m3 ? 1 : 2;
    if (F == FMT_f8_e4m3 && scale != 1.0f) {
#pragma unroll
        for (int k = 0; k < 4; k++)
            v[k] = v[k] / scale;
    }
    if (FULL || (count >= 4 && ((uintptr_t)to & (4 * bytes - 1)) == 0)) {
        if (F == FMT_f32)
            *(float4 *)to = make_float4(v[0], v[1], v[2], v[3]);
        else if (F == FMT_f8_e4m3)
            *(uint32_t *)to = e4m3_four(v);
        else
            *(ushort4 *)to =
                make_ushort4(enc_short<F>(v[0]), enc_short<F>(v[1]), enc_short<F>(v[2]), enc_short<F>(v[3]));
    } else {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (k >= count)
                return;
            if (F == FMT_f32)
                ((float *)to)[k] = v[k];
            else if (F == FMT_f8_e4m3)
                to[k] = f32_to_e4m3_dev(v[k]);
            else
                ((uint16_t *)to)[k] = enc_short<F>(v[k]);
        }
    }
}

template <int F, bool BEST>
static __device__ __forceinline__ void enc_int(const enc_book &t, const float *x, uint8_t *record)
{
    float best = 0.0f, top = 0.0f;
    uint32_t code = 0;
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (fabsf(x[k]) > best) {
            best = fabsf(x[k]);
            top = x[k];
        }
#pragma unroll
    for (int m = 1; m < 8; m *= 2) {   /* the first of equals: lower lanes win */
        const float b = __shfl_xor_sync(0xffffffffu, best, m), o = __shfl_xor_sync(0xffffffffu, top, m);
        if (b > best || (b == best && (threadIdx.x & m))) {
            best = b;
            top = o;
        }
    }
    const float d = F == FMT_q8_0 ? best / 127.0f : top / -8.0f;
    const float id = best > 1e-30f && best < 1e30f ? __fdividef(1.0f, d) : d != 0.0f ? 1.0f / d : 0.0f;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const float v = x[k] * id;
        const int c = v != v                ? 0
                      : F == FMT_q8_0 ? (int)roundf(fminf(fmaxf(v, -127.0f), 127.0f))
                                            : (int)fminf(fmaxf(v + 8.5f, 0.0f), 15.0f) - 8;
        code |= ((uint32_t)c & 255u) << 8 * k;
    }
    uint16_t scale = enc_half(d);
    if (BEST) {
        enc_search<F, 4>(t, x, d, 0, &code, &scale);
        if (F == FMT_q4_0)
            enc_search<F, 4>(t, x, -d, 0, &code, &scale);  /* the codes are not symmetric */
        scale = enc_unbiased<F, 4>(t, x, 0, &code, scale);
    }
    if constexpr (F == FMT_q8_0)
        enc_pack_q8(record, scale, code);
    else
        enc_pack_nibbles32(record, scale, __vadd4(code, 0x08080808u));
}

template <int F, bool BEST>
static __device__ __forceinline__ void enc_rms32(const enc_book &t, float *y, uint8_t *record)
{
    const float4 signs = ((const float4 *)space_signs32)[threadIdx.x % 8];
    float s = 0.0f;
    uint32_t code = 0;
    y[0] *= signs.x, y[1] *= signs.y, y[2] *= signs.z, y[3] *= signs.w;
    enc_butterfly32(y);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        y[k] *= port_bits(0x3e3504f3u);
        s = fmaf(y[k], y[k], s);
    }
    float d, id;
    enc_root(enc_sum<8>(s) / 32.0f, &d, &id);
#pragma unroll
    for (int k = 0; k < 4; k++)
        code |= (uint32_t)enc_code(t, y[k] * id, enc_bins<F>()) << 8 * k;
    code = d != 0.0f ? code : 0;
    uint16_t scale = enc_half(d);
    if (BEST) {
        enc_search<F, 4>(t, y, d, 0, &code, &scale);
        scale = enc_unbiased<F, 4>(t, y, 0, &code, scale);
    }
    if (F == FMT_tbq3_0)
        enc_pack_tbq3(record, scale, code);
    else
        enc_pack_nibbles32(record, scale, code);
}

/* The norm of 128 values, and its inverse (0 for a norm of nearly nothing); lines of 32 are summed first. */
static __device__ __forceinline__ float enc_norm(const float *y, float *inverse)
{
    float p[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        p[j] = y[4 * j] * y[4 * j];
#pragma unroll
        for (int k = 1; k < 4; k++)
            p[j] = fmaf(y[4 * j + k], y[4 * j + k], p[j]);
        p[j] = enc_sum<8>(p[j]);
    }
    return enc_unit_root((p[0] + p[1]) + (p[2] + p[3]), inverse);
}

/* y *= k, then times the signs of a table of 128. */
static __device__ __forceinline__ void enc_signs(float *y, float k, const float *table)
{
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float4 s = ((const float4 *)table)[8 * j + threadIdx.x % 8];
        y[4 * j] = y[4 * j] * k * s.x, y[4 * j + 1] = y[4 * j + 1] * k * s.y;
        y[4 * j + 2] = y[4 * j + 2] * k * s.z, y[4 * j + 3] = y[4 * j + 3] * k * s.w;
    }
}

template <int F> static __device__ __forceinline__ void enc_codes(const enc_book &t, const float *y, uint32_t *code)
{
#pragma unroll
    for (int j = 0; j < 4; j++)
        code[j] = 0;
#pragma unroll
    for (int k = 0; k < 16; k++)
        code[k / 4] |= (uint32_t)enc_code(t, y[k], enc_bins<F>()) << 8 * (k % 4);
}

template <int F, bool BEST>
static __device__ __forceinline__ void enc_norm128(const enc_book &t, float *y, uint8_t *row)
{
    float inv;
    uint32_t code[4];
    int square = 0;         /* in 2^-28: the same sum in any order */
    const float norm = enc_norm(y, &inv);
    enc_signs(y, inv, space_signs1);
    enc_butterfly128(y);
    enc_signs(y, port_bits(0x3db504f3u), space_signs2);
    enc_codes<F>(t, y, code);
#pragma unroll
    for (int k = 0; k < 16; k++) {
        const float c = enc_level<F>(t, enc_byte<F>(code, k));
        square += (int)((double)c * c * 268435456.0 + 0.5);
    }
    uint16_t scale = enc_corrected(norm, enc_sum<8>(square));
    if (BEST) {
#pragma unroll
        for (int k = 0; k < 16; k++)
            y[k] *= norm;
        enc_search<F, 16>(t, y, norm, 0, code, &scale);
        scale = enc_unbiased<F, 16>(t, y, 0, code, scale);
    }
    if (F == FMT_turbo3)
#pragma unroll
        for (int j = 0; j < 4; j++)
            enc_pack_turbo3(row ? row + 14 * j : NULL, scale, code[j]);
    else
        enc_pack_nibbles128(row, scale, code);
}

/* Bit 4 j + k: the sign of value 32 j + 4 l + k is negative. */
static __device__ __forceinline__ uint32_t enc_polar_signs(void)
{
    uint32_t neg = 0;
#pragma unroll
    for (int k = 0; k < 16; k++)
        neg |= (fmt_c_polar_qjl_signs[32 * (k / 4) + 4 * (threadIdx.x % 8) + k % 4] < 0.0f ? 1u : 0u) << k;
    return neg;
}

template <int F, bool BEST>
static __device__ __forceinline__ void enc_polar128(const enc_book &t, float *y, uint8_t *row)
{
    uint32_t code[4];
    const uint32_t neg = F == FMT_q4_polar_r ? enc_polar_signs() : 0;
    float inv;
    const float d = enc_norm(y, &inv);
#pragma unroll
    for (int k = 0; k < 16; k++)
        y[k] *= inv;
    enc_butterfly128(y);
    enc_codes<F>(t, y, code);
    bool bit = false;
    if (F == FMT_q4_polar_r) {
        float p = 0.0f;
#pragma unroll
        for (int k = 0; k < 16; k++) {
            const float e = y[k] - enc_level<F>(t, enc_byte<F>(code, k));
            p = neg >> k & 1u ? p - e : p + e;
        }
        bit = enc_sum<8>(p) > 0.0f;
    }
    uint16_t scale = enc_half(d);
    if (BEST) {
#pragma unroll
        for (int k = 0; k < 16; k++)
            y[k] *= d;
        uint32_t other[4] = { code[0], code[1], code[2], code[3] };
        uint16_t other_scale = scale;
        const float err = enc_search<F, 16>(t, y, d, bit ? neg : ~neg, code, &scale);
        if (F == FMT_q4_polar_r && enc_search<F, 16>(t, y, d, bit ? ~neg : neg, other, &other_scale) < err) {
            bit = !bit;
            scale = other_scale;
#pragma unroll
            for (int j = 0; j < 4; j++)
                code[j] = other[j];
        }
        scale = enc_unbiased<F, 16>(t, y, bit ? neg : ~neg, code, scale);
    }
    enc_pack_nibbles128(row, scale, code);
    if (row)
        enc_put(row + 66 + 2 * (threadIdx.x % 8), (uint16_t)(threadIdx.x % 8 == 0 && bit));
}

/* One unit of 128 values of a row from value g on: value 32 j + 4 l + k in v[4 j + k] of lane l of its 8; count of them
 * are the row's own, padded to `left` with zeros.  A warp has four units; row NULL: nothing to store.  FULL: count is
 * 128, and rows of plain values are aligned. */
template <int F, bool BEST, bool FULL>
static __device__ __forceinline__ void enc_unit(const enc_book &t, float scale, float *v, uint8_t *row, int g, int left,
                                                int count)
{
    constexpr int kind = enc_format<F>::kind;
    constexpr int bytes = F == FMT_q8_0 ? 34 : F == FMT_tbq3_0 ? 14 : 18;
    constexpr int wide = F == FMT_f32 ? 4 : F == FMT_f8_e4m3 ? 1 : 2;
    if constexpr (kind == ENC_NORM128) {
        enc_norm128<F, BEST>(t, v, row ? row + g / 128 * (F == FMT_turbo3 ? 56 : 66) : NULL);
    } else if constexpr (kind == ENC_POLAR) {
        enc_polar128<F, BEST>(t, v, row ? row + g / 128 * 82 : NULL);
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int i = 32 * j + 4 * (threadIdx.x % 8);
            uint8_t *record = row && (FULL || 32 * j < left) ? row + (g / 32 + j) * bytes : NULL;
            if constexpr (kind == ENC_INT)
                enc_int<F, BEST>(t, v + 4 * j, record);
            else if constexpr (kind == ENC_RMS32)
                enc_rms32<F, BEST>(t, v + 4 * j, record);
            else if (row)
                enc_plain<F, FULL>(scale, v + 4 * j, row + (g + i) * wide, count - i);
        }
    }
}

#endif
