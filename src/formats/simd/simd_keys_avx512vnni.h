/* simd_keys_avx512vnni.h: 16 bytes of several rows at once, turned so that lanes are rows (INT_KEYS) or columns
 * (INT_QUAD of simd_int_avx512vnni.h), and byte tables on 64 codes at a time. */
#ifndef KVANT_FORMATS_SIMD_KEYS_AVX512VNNI_H
#define KVANT_FORMATS_SIMD_KEYS_AVX512VNNI_H

#include "base/simd/vf_avx512.h"
#include "formats/simd/simd_rep.h"

/* The 16 bytes at p, p + step, p + 2 step, p + 3 step, one to a 128-bit lane. */
static inline __m512i keys_four(const uint8_t *p, size_t step)
{
    __m512i z = _mm512_castsi128_si512(load128(p));
    z = _mm512_inserti32x4(z, load128(p + step), 1);
    z = _mm512_inserti32x4(z, load128(p + 2 * step), 2);
    return _mm512_inserti32x4(z, load128(p + 3 * step), 3);
}

/* a .. d: rows 4l, 4l + 1, 4l + 2, 4l + 3 in lane l -> x[i]: dword i of row k in lane k. */
static inline void keys_turn(__m512i a, __m512i b, __m512i c, __m512i d, __m512i *x)
{
    __m512i ab = _mm512_unpacklo_epi32(a, b), cd = _mm512_unpacklo_epi32(c, d);
    __m512i ba = _mm512_unpackhi_epi32(a, b), dc = _mm512_unpackhi_epi32(c, d);
    x[0] = _mm512_unpacklo_epi64(ab, cd);
    x[1] = _mm512_unpackhi_epi64(ab, cd);
    x[2] = _mm512_unpacklo_epi64(ba, dc);
    x[3] = _mm512_unpackhi_epi64(ba, dc);
}

/* 16 bytes of 16 rows: x[i] holds dword i of all rows. */
static inline void keys_sixteen(const uint8_t *p, size_t stride, __m512i *x)
{
    keys_turn(keys_four(p, 4 * stride), keys_four(p + stride, 4 * stride), keys_four(p + 2 * stride, 4 * stride),
              keys_four(p + 3 * stride, 4 * stride), x);
}

/* As keys_sixteen, with each row's bytes first rearranged as vpshufb does. */
static inline void keys_sixteen_spread(const uint8_t *p, size_t stride, __m512i spread, __m512i *x)
{
    keys_turn(_mm512_shuffle_epi8(keys_four(p, 4 * stride), spread),
              _mm512_shuffle_epi8(keys_four(p + stride, 4 * stride), spread),
              _mm512_shuffle_epi8(keys_four(p + 2 * stride, 4 * stride), spread),
              _mm512_shuffle_epi8(keys_four(p + 3 * stride, 4 * stride), spread), x);
}

/* X(0) .. X(15), comma separated: index lists of a vpermb. */
#define KEYS_LIST16(X) \
    X(0), X(1), X(2), X(3), X(4), X(5), X(6), X(7), X(8), X(9), X(10), X(11), X(12), X(13), X(14), X(15)

/* dword i takes byte i of the four 128-bit lanes */
static const uint8_t keys_quad_index[64] = {
#define KEYS_QUAD(i) (i), (i) + 16, (i) + 32, (i) + 48
    KEYS_LIST16(KEYS_QUAD)
};

/* 16 bytes of 4 rows: lane i holds byte i of the four. */
static inline __m512i keys_quad(const uint8_t *p, size_t stride)
{
    return _mm512_permutexvar_epi8(load512(keys_quad_index), keys_four(p, stride));
}

/* A table of 16 bytes, repeated so that vpermb (6 bits of an index) reads the low 4 bits. */
static inline __m512i keys_table16(const uint8_t *table)
{
    return _mm512_broadcast_i32x4(load128(table));
}

/* The bytes of the low and of the high nibbles. */
static inline void keys_nibbles(__m512i table, __m512i x, __m512i *low, __m512i *high)
{
    *low = _mm512_permutexvar_epi8(x, table);
    *high = _mm512_permutexvar_epi8(_mm512_srli_epi16(x, 4), table);
}

/* Blocks of 32 nibbles in 16 bytes at p: INT_KEYS and INT_QUAD.  halves: value j < 16 is the low nibble of byte j,
 * j + 16 the high one; pairs: values 2j and 2j + 1.  The order of a prepared query differs, the code does not. */
static inline void keys_nibbles16(const uint8_t *p, size_t stride, const uint8_t *table, __m512i *x)
{
    __m512i t = keys_table16(table), w[4];
    keys_sixteen(p, stride, w);
    keys_nibbles(t, w[0], &x[0], &x[4]);
    keys_nibbles(t, w[1], &x[1], &x[5]);
    keys_nibbles(t, w[2], &x[2], &x[6]);
    keys_nibbles(t, w[3], &x[3], &x[7]);
}

static inline void keys_nibbles4(const uint8_t *p, size_t stride, const uint8_t *table, __m512i *x)
{
    keys_nibbles(keys_table16(table), keys_quad(p, stride), &x[0], &x[1]);
}

/* Codes of 3 bits in 12 bytes, 8 to 24 bits: windows of 4 bytes that begin at bytes 0, 3, 6, 9 (+ early). */
static inline __m512i keys_windows(int early)
{
    __m128i at = _mm_setr_epi8(0, 1, 2, 3, 3, 4, 5, 6, 6, 7, 8, 9, 9, 10, 11, 12);
    return _mm512_broadcast_i32x4(_mm_add_epi8(at, _mm_set1_epi8((char)early)));
}

/* Four codes of 3 bits of each of two dwords, from bit `first` of a dword on, one to a byte (upper bits: others). */
static inline __m512i keys_bits3(__m512i x, int first)
{
    const __m512i at = _mm512_set1_epi64(0x2926232009060300);
    return _mm512_multishift_epi64_epi8(_mm512_add_epi8(at, _mm512_set1_epi8((char)first)), x);
}

/* Half h of 32 codes of 3 bits of 4 rows (12 bytes in each lane from byte `early` on): values 16h .. 16h + 15 of the
 * rows, one to a byte.  A 64-bit lane takes the two bytes of a pair of codes from each row. */
static inline __m512i keys_quad_bits3(__m512i rows, int h, int early)
{
    static const uint8_t pair[64] = {
#define KEYS_WORD(r, p) 16 * (r) + 6 * (p) / 8, 16 * (r) + 6 * (p) / 8 + 1
#define KEYS_WORDS(p) KEYS_WORD(0, p), KEYS_WORD(1, p), KEYS_WORD(2, p), KEYS_WORD(3, p)
        KEYS_WORDS(0), KEYS_WORDS(1), KEYS_WORDS(2), KEYS_WORDS(3),
        KEYS_WORDS(4), KEYS_WORDS(5), KEYS_WORDS(6), KEYS_WORDS(7)
    };
    /* bit of the pair in its word: 0 6 4 2; the second code is 3 bits on */
    const __m512i at = _mm512_broadcast_i64x4(
        _mm256_set_epi64x(0x3525150532221202, 0x3727170734241404, 0x3929190936261606, 0x3323130330201000));
    __m512i index = _mm512_add_epi8(load512(pair), _mm512_set1_epi8((char)(6 * h + early)));
    return _mm512_multishift_epi64_epi8(at, _mm512_permutexvar_epi8(index, rows));
}

/* 32 bytes at p are the codes themselves. */
static inline void keys_bytes16(const uint8_t *p, size_t stride, __m512i flip, __m512i *x)
{
    keys_sixteen(p, stride, x);
    keys_sixteen(p + 16, stride, x + 4);
#define KEYS_FLIP(c) x[c] = _mm512_xor_si512(x[c], flip);
    REP8(KEYS_FLIP)
}

#endif
