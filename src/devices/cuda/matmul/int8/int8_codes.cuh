/* int8_codes.cuh: weights as the tensor cores' 8-bit integers take them, from their bytes in shared memory: four codes
 * of any type in a word, and the factor and minimum of a group.  All of it comes from the card
 * (cards/cuda_weights.cuh); offsets are known when the kernel is compiled but for the lane's quarter of 16 values. */
#ifndef KVANT_CUDA_INT8_CODES_CUH
#define KVANT_CUDA_INT8_CODES_CUH

#include "devices/cuda/matmul/mm.cuh"
#include "cards/cuda_weights.cuh"

enum { UNIT = 256, UNIT_GROUPS = UNIT / 32 }; /* values that a warp takes at a time */

template <int T> static __host__ __device__ constexpr int unit_bytes()
{
    return UNIT / wshapes[T].values * wshapes[T].bytes;
}

/* whole: every unit begins at a 16-byte word, where the row does; steady: at least at a 4-byte one. */
template <int T> static __host__ __device__ constexpr bool unit_whole()
{
    return unit_bytes<T>() % 16 == 0;
}

template <int T> static __host__ __device__ constexpr bool unit_steady()
{
    return unit_bytes<T>() % 4 == 0 && wshapes[T].bytes % 2 == 0;
}

extern __shared__ __align__(128) uint8_t int8_room[];

/* Four bytes at at + off; steady: `at` is a multiple of 4 and `off` a constant. */
static __device__ __forceinline__ uint32_t word_at(uint32_t at, int off, bool steady)
{
    const uint32_t low = (uint32_t)off & 3, from = at + low; /* the same for many words: computed once */
    const uint32_t by = steady ? low : from & 3, first = steady ? at : from - by;
    const uint32_t *words = (const uint32_t *)(int8_room + first + ((uint32_t)off - low));
    if (steady && by == 0)
        return words[0];
    return __funnelshift_r(words[0], words[1], 8 * by);
}

static __device__ __forceinline__ float half_at(uint32_t at, int off)
{
    return __half2float(*(const __half *)(int8_room + at + off));
}

/* `bits` bits at bit `bit` of the record at `at`; they lie in one byte. */
static __device__ __forceinline__ int bits_at(uint32_t at, int bit, int bits)
{
    return int8_room[at + bit / 8] >> bit % 8 & ((1 << bits) - 1);
}

/* Entries 0..15 of a table of bytes for the four indices in c's bytes. */
static __device__ __forceinline__ uint32_t look_up(uint32_t l0, uint32_t l1, uint32_t l2, uint32_t l3, uint32_t c)
{
    const uint32_t pairs = c | c >> 4, at = __byte_perm(pairs, 0, 0x4420) & 0xffff;
    const uint32_t low = __byte_perm(l0, l1, at & 0x7777), high = __byte_perm(l2, l3, at & 0x7777);
    return __byte_perm(low, high, 0x3210 | (at & 0x8888) >> 1);
}

/* __byte_perm by inline assembly: for the built-in one the compiler first masks the selector's unused bits. */
static __device__ __forceinline__ uint32_t permuted(uint32_t a, uint32_t b, uint32_t by)
{
    uint32_t d;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(by));
    return d;
}

/* Looks up the eight 4-bit indices in w.  Lower and upper halves of its bytes are interleaved: x has those of bytes 0
 * and 1, y those of bytes 2 and 3. */
static __device__ __forceinline__ uint2 look_up_eight(const uint32_t *l, uint32_t w)
{
    const uint32_t at = w & 0x77777777u;
    uint32_t half;
    asm("lop3.b32 %0, %1, 0x44444444, %2, 0xea;" : "=r"(half) : "r"(w >> 1), "r"(0x32103210u));
    return make_uint2(permuted(permuted(l[0], l[1], at), permuted(l[2], l[3], at), half),
                      permuted(permuted(l[0], l[1], at >> 16), permuted(l[2], l[3], at >> 16), half >> 16));
}

template <int T, bool HIGH> static __device__ __forceinline__ uint32_t plane_codes(uint32_t at, int value, int quarter)
{
    constexpr wshape s = wshapes[T];
    constexpr wplane c = HIGH ? s.high : s.low;
    const int record = value / s.values * s.bytes, v = value % s.values;

    if (c.stream) {
        const uint32_t nibble = word_at(at, record + c.at + v / 32 * 4, unit_steady<T>()) >> (v % 32 + 4 * quarter) &
                                15;
        return nibble * 0x00204081u & 0x01010101u;
    }
    const int first = record + c.at + v / c.span * c.row + v % c.span % c.row;
    uint32_t w, shift;
    if (c.row >= 16) {
        w = word_at(at + 4 * quarter, first, unit_steady<T>());
        shift = c.bits * (v % c.span / c.row);
    } else { /* 16 values in 8 bytes */
        w = word_at(at + 4 * (quarter & 1), first, unit_steady<T>());
        shift = 4 * (quarter >> 1);
    }
    return c.bits == 8 ? w : w >> shift & 0x01010101u * ((1u << c.bits % 8) - 1);
}

/* Values value + 4 quarter .. + 3 of the unit at `at`, before the centre is taken away; value: a multiple of 16. */
template <int T> static __device__ __forceinline__ uint32_t four_codes(uint32_t at, int value, int quarter)
{
    constexpr wshape s = wshapes[T];
    uint32_t c = plane_codes<T, false>(at, value, quarter);
    if (s.high.bits)
        c |= plane_codes<T, true>(at, value, quarter) << s.low.bits;
    return s.table ? look_up(s.level[0], s.level[1], s.level[2], s.level[3], c) : c;
}

/* Returns true if codes index levels, two in a byte, so that a lane's part of a group takes one look_up_eight. */
template <int T> static __host__ __device__ constexpr bool levels_interleaved()
{
    constexpr wshape s = wshapes[T];
    return s.table && s.low.bits == 4 && s.low.row * 2 == s.low.span && s.low.span <= 32 && !s.high.bits;
}

/* Values 4 quarter .. + 3 of group g, interleaved with the values 16 places behind them. */
template <int T> static __device__ __forceinline__ uint2 codes_interleaved(uint32_t at, int g, int quarter)
{
    constexpr wshape s = wshapes[T];
    const int first = 32 * g / s.values * s.bytes + s.low.at + 32 * g % s.values / 2;
    if (s.low.span == 32)
        return look_up_eight(s.level, word_at(at + 4 * quarter, first, unit_steady<T>()));
    const uint32_t from = at + 4 * (quarter & 1), shift = 4 * (quarter >> 1); /* 16 values in 8 bytes */
    const uint32_t a = word_at(from, first, unit_steady<T>()) >> shift,
                   b = word_at(from, first + 8, unit_steady<T>()) >> shift;
    return look_up_eight(s.level, (a & 0x0f0f0f0fu) | (b << 4 & 0xf0f0f0f0u));
}

static __device__ __forceinline__ int number_at(uint32_t at, const wfield &f, int n)
{
    return bits_at(at, f.bit + f.step * (n % f.per) + f.skip * (n / f.per), f.bits);
}

/* The factor of group k of the unit at `at` and its minimum, with the sign that it is added with. */
template <int T> static __device__ __forceinline__ void numbers_of(uint32_t at, int k, float *factor, float *least)
{
    constexpr wshape s = wshapes[T];
    const uint32_t record = at + k * s.group / s.values * s.bytes;
    const int n = k * s.group % s.values / s.group;
    const float d = s.scale == WSCALE_F16    ? half_at(record, s.scale_at)
                    : s.scale == WSCALE_E8M0 ? port_e8m0_half(int8_room[record + s.scale_at])
                                             : 1.0f;
    const float m = s.least ? half_at(record, s.least_at) : 0.0f;

    *factor = d;
    *least = s.least_adds ? m : -m;
    if (s.sub == WSUB_I8)
        *factor = d * (float)(int8_t)int8_room[record + s.sub_at + n];
    else if (s.sub == WSUB_UE4M3)
        *factor = port_ue4m3_half(int8_room[record + s.sub_at + n]);
    else if (s.sub == WSUB_FIELDS) {
        int f = number_at(record, s.factor_low, n);
        if (s.factor_high.bits)
            f |= number_at(record, s.factor_high, n) << s.factor_low.bits;
        *factor = d * (float)(f - s.factor_centre);
        if (s.least_low.bits)
            *least = -m * (float)number_at(record, s.least_low, n);
    }
}

static __device__ __forceinline__ uint32_t two_at(uint32_t at)
{
    return *(const uint16_t *)(int8_room + at);
}

/* The numbers of groups 2 quarter and 2 quarter + 1 of a unit of six-bit pairs: two bytes at a time. */
template <int T> static __device__ __forceinline__ void two_pairs(uint32_t at, int quarter, float *factor, float *least)
{
    constexpr wshape s = wshapes[T];
    const uint32_t from = at + s.sub_at + 2 * (quarter & 1), a = two_at(from), b = two_at(from + 4),
                   c = two_at(from + 8);
    const bool late = quarter >= 2;
    const uint32_t f = late ? c & 0x0f0f | a >> 2 & 0x3030 : a & 0x3f3f;
    const uint32_t l = late ? c >> 4 & 0x0f0f | b >> 2 & 0x3030 : b & 0x3f3f;
    const float d = half_at(at, s.scale_at), m = -half_at(at, s.least_at);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        factor[i] = d * (float)(f >> 8 * i & 255);
        least[i] = m * (float)(l >> 8 * i & 255);
    }
}

/* The numbers of groups of 32 number 2 quarter and 2 quarter + 1: [group][half]. */
template <int T>
static __device__ __forceinline__ void lane_numbers(uint32_t at, int quarter, float (*factor)[2], float (*least)[2])
{
    constexpr int HALVES = 32 / wshapes[T].group;
    if constexpr (wshapes[T].sub == WSUB_PAIRS) {
        float f[2], l[2];
        two_pairs<T>(at, quarter, f, l);
        factor[0][0] = f[0], factor[1][0] = f[1], least[0][0] = l[0], least[1][0] = l[1];
    } else
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int h = 0; h < HALVES; h++)
                numbers_of<T>(at, HALVES * (2 * quarter + i) + h, &factor[i][h], &least[i][h]);
}

#endif
