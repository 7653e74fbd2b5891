/* encode_best.cuh: the encoder `best` for a tile (formats/encoders/search.c has the rule to compare it with): codes
 * and the scale that is stored, at the scale that encode_tries.cuh takes.  Upstream's codes are no own candidate:
 * whatever the codes, the scale is the unbiased one.
 *
 * Values are halves once they are divided by their norm, two to a register, values k and k + 16 of a lane: what
 * roundings of 11 bits move are codes at a boundary, and the scale by some 1e-4.  Over 128 values the rotation is four
 * steps by tensor cores and three in registers; nothing else passes between lanes.
 *
 * A code is found by one table entry of 4 bytes: the nearest level to the value's bin, as half, and the code's
 * complement.  The bins (from -reach to reach) end where boundaries lie next to the edges between them: what values
 * beside a boundary lose is .12 % of the squared error or less. */
#ifndef KVANT_CUDA_ENCODE_BEST_CUH
#define KVANT_CUDA_ENCODE_BEST_CUH

#include "devices/cuda/encode/encode_tries.cuh"

/* ---- tables ---- */

/* Own lines: names (enc_name), groups of codes with zeros where signs turn one.  Lines: entries of tries, then levels
 * from the top. */
template <int F> struct enc_best_table {
    static constexpr int bins = card<F>::n_levels == 8 ? 126 : 254;
    static constexpr float half = -0.5f / card<F>::reach;
    typedef enc_lines<2, enc_best<F>::entries + bins> lines;
};

/* The signs that change values before the rotation (R128), or behind it (the residual's: then values are alike). */
template <int F> static constexpr bool enc_minus(int at)
{
    constexpr float first[128] = { ROTATE_SIGNS1 };
    if constexpr (enc_best<F>::residual)
        return card<F>::sign[at] < 0.0f;
    else
        return first[at] < 0.0f;
}

/* The signs that change codes: a code's complement is that of the value with the other sign. */
template <int F> static constexpr bool enc_turned(int at)
{
    constexpr float second[128] = { ROTATE_SIGNS2 };
    if constexpr (enc_best<F>::residual)
        return card<F>::sign[at] < 0.0f;
    else
        return enc_best<F>::turned && second[at] < 0.0f;
}

template <int F> static constexpr auto enc_best_lines(void)
{
    typedef enc_best_table<F> has;
    constexpr uint32_t last = card<F>::n_levels - 1;
    typename has::lines t = {};
    for (int q = 0; q < 4; q++)
        for (int g = 0; g < 4; g++) {
            t.own[0][q].w[g] = enc_name<F>(q, g);
            for (int i = 0; i < 8; i++)
                if (!enc_turned<F>(enc_format<F>::lanes == 4 ? 32 * q + enc_value_at<F>(g, i) : 0))
                    t.own[1][q].w[g] |= last << enc_format<F>::code_bits * i;
        }
    enc_tries_lines<F>(t.line);
    uint32_t code = last;
    for (int i = 0; i < has::bins; i++) {
        const float y = card<F>::reach * (1.0f - 2.0f * (float)i / (float)(has::bins - 1));
        while (code > 0 && y < enc_best<F>::unit * card<F>::boundary[code - 1])
            code--;
        for (int w = 0; w < 4; w++)
            t.line[enc_best<F>::entries + i].w[w] = enc_half_bits(card<F>::level[code]) << 16 | (last - code);
    }
    return t;
}

template <int F> static __device__ const typename enc_best_table<F>::lines enc_best_data = enc_best_lines<F>();

/* By bits: which of lane q's values change signs (enc_minus). */
template <int F> static constexpr uint32_t enc_minus_word(int q)
{
    uint32_t w = 0;
    for (int n = 0; n < 32; n++)
        w |= (uint32_t)enc_minus<F>(32 * q + n) << n;
    return w;
}

template <int F> struct enc_minus_of {
    static constexpr uint32_t w0 = enc_minus_word<F>(0), w1 = enc_minus_word<F>(1), w2 = enc_minus_word<F>(2),
                              w3 = enc_minus_word<F>(3);
};

/* Right operands of the products that rotate: ones with signs.  Two registers each, and the compiler must not know that
 * they are alike, or it copies them for every product. */
typedef struct enc_ones {
    uint32_t b[4][2];
} enc_ones;

/* x, in a register: the compiler does not compute it anew for every tile. */
static __device__ __forceinline__ uint32_t enc_kept(uint32_t x)
{
    return __shfl_sync(0xffffffffu, x, threadIdx.x % 32);
}

static __device__ __forceinline__ enc_ones enc_ones_of(void)
{
    constexpr uint32_t one = 0x3c00u, minus = 0x80008000u;
    const uint32_t lane = threadIdx.x % 32, row = lane % 4, column = lane / 4, odd = __popc(row & column >> 1) & 1u;
    const uint32_t first = (one | odd << 15) | (one | (odd ^ (column & 1u)) << 15) << 16;
    enc_ones o;
#pragma unroll
    for (int t = 0; t < 4; t++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            o.b[t][i] = enc_kept((t / 2 + t * i) % 2 ? first ^ minus : first);
    return o;
}

/* near: where levels are; minus: signs that values k and k + 16 of a lane change. */
typedef struct enc_best_books {
    const uint8_t *own;
    enc_tries tries;
    enc_at near;
    enc_ones ones;
    uint32_t minus[16];
} enc_best_books;

template <int F> static __device__ __forceinline__ enc_best_books enc_best_books_of(const uint8_t *room)
{
    typedef enc_minus_of<F> minus;
    const int lane = threadIdx.x % 32, q = lane % 4;
    const uint32_t first = shared_at(room) + 2 * ENC_LINE;
    enc_best_books b = { room, enc_tries_of<F>(first), enc_at_of(first + enc_best<F>::entries * ENC_LINE + 4 * lane) };
    if constexpr (enc_format<F>::lanes == 4) {
        const uint32_t mine = q == 0 ? minus::w0 : q == 1 ? minus::w1 : q == 2 ? minus::w2 : minus::w3;
        b.ones = enc_ones_of();
#pragma unroll
        for (int k = 0; k < 16; k++)
            b.minus[k] = mine << (15 - k) & 0x80008000u;
    }
    return b;
}

/* ---- the rotation ---- */

/* C += A B, halves: rows r and r + 8 of A, and of C, are two parts of unit r. */
static __device__ __forceinline__ void enc_product(uint32_t *c, const uint32_t *a, const uint32_t *b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};"
        : "+r"(c[0]), "+r"(c[1])
        : "r"(a[0]), "r"(a[8]), "r"(a[1]), "r"(a[9]), "r"(b[0]), "r"(b[1]));
}

/* The steps between lanes, between the two of a word, of 1 and of 2: words 0 to 3 and 8 to 11. */
static __device__ __forceinline__ void enc_four_steps(uint32_t *v, const enc_ones &b)
{
    uint32_t c[4][2] = {};
#pragma unroll
    for (int t = 0; t < 4; t++) {
        enc_product(c[t], v, b.b[t % 2]);
        enc_product(c[t], v + 2, b.b[t]);
    }
#pragma unroll
    for (int t = 0; t < 4; t++)
        v[t] = c[t][0], v[8 + t] = c[t][1];
}

/* Steps between words, of FIRST and more. */
template <int FIRST> static __device__ __forceinline__ void enc_word_steps(uint32_t *v)
{
#pragma unroll
    for (int h = FIRST; h < 16; h *= 2)
#pragma unroll
        for (int k = 0; k < 16; k++)
            if (!(k & h)) {
                const __half2 x = *(__half2 *)&v[k], y = *(__half2 *)&v[k + h];
                const __half2 sum = __hadd2(x, y), less = __hsub2(x, y);
                v[k] = *(const uint32_t *)&sum, v[k + h] = *(const uint32_t *)&less;
            }
}

/* Unnormalised Hadamard over the values of the lanes of a scale; values k and k + 16 in word k. */
template <int LANES> static __device__ __forceinline__ void enc_rotate2(const enc_ones &b, uint32_t *v)
{
    if constexpr (LANES == 4) {
        enc_four_steps(v, b);
        enc_four_steps(v + 4, b);
        enc_word_steps<4>(v);
    } else {
        enc_word_steps<1>(v);
#pragma unroll
        for (int k = 0; k < 16; k++)
            v[k] = enc_fma2(v[k], 0xbc003c00u, __byte_perm(v[k], 0, 0x1032));
    }
}

static __device__ __forceinline__ void enc_turn_signs(const enc_best_books &b, uint32_t *v)
{
#pragma unroll
    for (int k = 0; k < 16; k++)
        v[k] ^= b.minus[k];
}

/* ---- codes ---- */

/* The norm by which values are divided, its inverse, and the sum of the divided values' squares. */
typedef struct enc_unit {
    float norm, by, yy;
} enc_unit;

/* The encoder's result: the complements of codes, the scale as it is stored, whether the residual is added. */
typedef struct enc_found {
    uint32_t word[4];
    uint32_t scale;
    bool up;
} enc_found;

/* Entries of the values of 4 words; all beyond the bins is at their ends. */
template <int F>
static __device__ __forceinline__ void enc_nearest(const enc_best_books &b, const uint32_t *y, uint32_t by,
                                                   uint32_t add, uint32_t *e)
{
    constexpr uint32_t last = enc_twice((float)(enc_best_table<F>::bins - 1)), magic = enc_twice(ENC_HALF_MAGIC);
    uint32_t at[8];
#pragma unroll
    for (int i = 0; i < 4; i++)
        enc_addresses(b.near, enc_fma2(enc_part2(y[i], by, add), last, magic), at + 2 * i);
#pragma unroll
    for (int i = 0; i < 8; i++)
        asm volatile("ld.shared.b32 %0, [%1];" : "=r"(e[i]) : "r"(at[i]));
}

/* C += A B: rows r of A are words 0 and 2 of y, rows r + 8 words 1 and 3; the columns of B two words.  With those of
 * the same values, sums over units are on C's diagonal, or that of its lower half. */
static __device__ __forceinline__ void enc_dot(float *c, const uint32_t *y, uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(y[0]), "r"(y[1]), "r"(y[2]), "r"(y[3]), "r"(b0), "r"(b1));
}

/* Sums of values times levels: of a unit by tensor cores, of a record four words at a time in halves. */
template <int F> struct enc_fit {
    float yv[2][4], sum[4];

    __device__ __forceinline__ void add(const uint32_t *y, const uint32_t *level)
    {
        constexpr uint32_t ones = enc_twice(1.0f);
        if constexpr (enc_format<F>::lanes == 4) {
            enc_dot(yv[0], y, level[0], level[2]);
            enc_dot(yv[1], y, level[1], level[3]);
            if (enc_best<F>::residual)
                enc_dot(sum, y, ones, ones);
        } else {
            uint32_t all = 0;
#pragma unroll
            for (int i = 0; i < 4; i++)
                all = enc_fma2(y[i], level[i], all);
            yv[0][0] += low_half(all), yv[0][1] += high_half(all);
        }
    }

    __device__ __forceinline__ float of(float residual) const
    {
        const int lane = threadIdx.x % 32, unit = lane / 4;
        if constexpr (enc_format<F>::lanes == 1)
            return yv[0][0] + yv[0][1];
        const float own = unit % 2 ? yv[0][1] + yv[1][3] : yv[0][0] + yv[1][2];
        const float all = __shfl_sync(0xffffffffu, own, (lane & 28) + unit / 2);
        return enc_best<F>::residual ? fmaf(residual, sum[0] + sum[2], all) : all;
    }
};

/* Codes nearest to y inv, and the sum of y times what they decode to at scale 1. */
template <int F>
static __device__ __forceinline__ float enc_assign(const enc_best_books &b, const uint32_t *y, float inv,
                                                   float residual, uint32_t *word)
{
    constexpr float half = enc_best_table<F>::half;
    constexpr int bits = enc_format<F>::code_bits;
    const uint32_t by = enc_pair(inv * half);
    const uint32_t add = enc_best<F>::residual ? enc_pair(fmaf(residual, -half, 0.5f)) : enc_twice(0.5f);
    enc_fit<F> fit = {};
#pragma unroll
    for (int k = 0; k < 16; k += 4) {
        uint32_t e[8], level[4];
        enc_nearest<F>(b, y + k, by, add, e);
#pragma unroll
        for (int i = 0; i < 8; i++) {   /* in a group the values come in the codes' order */
            uint32_t &w = word[enc_group_of<F>(k + i / 2 + i % 2 * 16)];
            w = __funnelshift_r(w, e[i], bits);
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            level[i] = __byte_perm(e[2 * i], e[2 * i + 1], 0x7632);
        fit.add(y + k, level);
    }
#pragma unroll
    for (int g = 0; g < 4; g++)
        word[g] >>= 32 - 8 * bits;
    return fit.of(residual);
}

/* As half, of what is not negative; NaN and Inf stay what they are. */
static __device__ __forceinline__ uint32_t enc_stored(float x)
{
    const __half2 h = __floats2half2_rn(x, 0.0f);
    return *(const uint32_t *)&h;
}

/* The format's own values are y norm `part`, its levels those of y by `unit`. */
template <int F>
static __device__ __forceinline__ enc_found enc_find(const enc_best_books &b, const uint32_t *y, const enc_unit &u)
{
    constexpr float part = card<F>::norm == CARD_CORRECTED ? 0x1.6a09e6p-4f : card<F>::norm == CARD_RMS ? 0x1.6a09e6p-3f
                                                                                                        : 1.0f;
    constexpr float size = card<F>::norm == CARD_CORRECTED ? 1.0f : part;
    const float norm = fabsf(u.norm);
    const bool any = u.by != 0.0f && norm > 1e-8f && norm <= 1e30f;     /* else the least scale of a half is too much */
    const uint32_t sign = u.norm < 0.0f ? 0x8000u : 0, upstream = enc_stored(norm * size);
    const float found = enc_search<F>(b.tries, enc_own(b.own, 0), y);
    const uint32_t near = max(enc_stored(fminf(fabsf(found) * size * norm, 65504.0f)), 1u);
    const float inv = any ? norm * size * enc_inverse(enc_value((uint16_t)near)) : 1.0f;
    enc_found o = { { 0, 0, 0, 0 }, upstream == 0x7c00u ? 0x7bffu : upstream, found > 0.0f };
    const float residual = found < 0.0f ? -enc_best<F>::offset : enc_best<F>::offset;
    const float fit = enc_assign<F>(b, y, inv, residual, o.word);
    const uint32_t unbiased = enc_stored(norm * (u.yy * part * enc_inverse(fit)));
    o.scale = sign | (!any ? o.scale : unbiased - 1u < 0x7bffu ? unbiased : near);      /* not 0, Inf or NaN */
    return o;
}

/* ---- a tile ---- */

/* The residual's bit of a row of nearly nothing. */
template <int F> static constexpr bool enc_zero_bit(void)
{
    float sum = 0.0f;
    for (float s : card<F>::sign)
        sum += s;
    return sum < 0.0f;
}

template <int F> struct enc_zero {
    static constexpr bool bit = enc_zero_bit<F>();
};

/* The unit of a lane's values: of their largest, which is worth -8 (q4_0), or of their sum of squares. */
template <int F> static __device__ __forceinline__ enc_unit enc_unit_of(const float *v)
{
    enc_unit u;
    float p[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
#pragma unroll
    for (int k = 0; k < 32; k++)
        p[k % 4] = fmaf(v[k], v[k], p[k % 4]);
    const float sum = (p[0] + p[1]) + (p[2] + p[3]);
    if constexpr (enc_best<F>::largest) {
        const float top = enc_top_value(v);
        u.norm = sum < INFINITY ? top / -8.0f : sum;
        u.by = fabsf(u.norm) > 1e-30f && fabsf(u.norm) < 1e30f ? 1.0f / u.norm : 0.0f;
        u.yy = sum * u.by * u.by;
    } else {
        u.norm = enc_unit_root(enc_sum<enc_format<F>::lanes>(sum), &u.by);
        u.yy = enc_format<F>::lanes == 4 ? 128.0f : 32.0f;
    }
    return u;
}

/* Values by the unit, as halves, rotated. */
template <int F>
static __device__ __forceinline__ void enc_divide(const enc_best_books &b, const float *v, float by, uint32_t *y)
{
    constexpr float signs[32] = { ROTATE_SIGNS32 };
    constexpr bool p32 = card<F>::space == SPACE_P32;
#pragma unroll
    for (int k = 0; k < 16; k++) {
        const float low = v[k] * by, high = v[16 + k] * by;
        const __half2 h =
            __floats2half2_rn(p32 && signs[k] < 0.0f ? -low : low, p32 && signs[16 + k] < 0.0f ? -high : high);
        y[k] = *(const uint32_t *)&h;
    }
    if (enc_format<F>::signs)
        enc_turn_signs(b, y);
    if (!enc_best<F>::largest)
        enc_rotate2<enc_format<F>::lanes>(b.ones, y);
    if (enc_best<F>::residual)          /* then they are all alike */
        enc_turn_signs(b, y);
}

/* A lane's values; `out`: units one behind the other.  No branches but one: steps of one part run beside those of the
 * next. */
template <int F>
static __device__ __forceinline__ void enc_book_best(const enc_best_books &b, float *v, uint8_t *out)
{
    const enc_unit u = enc_unit_of<F>(v);
    const bool bad = !(fabsf(u.norm) < INFINITY);
    uint32_t y[16];
    if (__any_sync(0xffffffffu, bad))   /* no NaN: bins are addresses */
        for (int k = 0; k < 32; k++)
            v[k] = bad ? 0.0f : v[k];
    enc_divide<F>(b, v, u.by, y);
    enc_found o = enc_find<F>(b, y, u);
    constexpr uint32_t all = enc_eight<F>(card<F>::n_levels - 1);
    const uint4 same = enc_best<F>::turned ? enc_own(b.own, 1) : make_uint4(all, all, all, all);
    o.word[0] ^= same.x, o.word[1] ^= same.y, o.word[2] ^= same.z, o.word[3] ^= same.w;
    if (card<F>::norm == CARD_RMS && u.norm == 0.0f)
        o.word[0] = o.word[1] = o.word[2] = o.word[3] = 0;
    const bool up = enc_best<F>::residual && (u.by > 0.0f ? o.up : enc_zero<F>::bit && u.norm < INFINITY);
    enc_pack<F>(out, o.scale, o.word, up);
}

#endif
