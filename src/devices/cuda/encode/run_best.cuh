/* run_best.cuh: the encoder `best` (formats/search.c) for tiles of formats of 128 values, 32 values to a lane, its own
 * (encode_run.cuh): codes and the scale that is stored, at the scale that run_try.cuh takes.  Upstream's codes are no
 * candidate of their own: whatever the codes, the scale is the unbiased one.
 *
 * Values are halves once they are divided by their norm, two to a register, values k and k + 16 of a lane: what
 * roundings of 11 bits move are codes at a boundary, and the scale by 1e-4.  The rotation is four steps by tensor cores
 * and three in registers; nothing else passes between lanes.
 *
 * A code is found by one table entry of 4 bytes: the nearest level to the value's bin, as half, and the code's
 * complement.  The bins end where boundaries lie next to the edges between them: what values beside a boundary lose is
 * .12 % of the squared error or less.  Tensor cores add what values times levels are. */
#ifndef KVANT_CUDA_RUN_BEST_CUH
#define KVANT_CUDA_RUN_BEST_CUH

#include "devices/cuda/encode/run_try.cuh"

/* ---- tables ---- */

/* Values of mean square 1 from -reach to reach have the bins. */
template <int F> struct best_near {
    static constexpr int bins = F == FMT_turbo3 ? 126 : 254;
    static constexpr float reach = F == FMT_turbo3 ? 1.91314f : F == FMT_turbo4_66 ? 2.53068f : 2.57571f;
    static constexpr float half = -0.5f / reach;
};

/* The words of codes of a unit's lanes: zeros where signs turn a code. */
struct __align__(16) best_flips {
    uint32_t w[4][4];
};

/* minus: which of a lane's values change signs, by bits: by the first signs; q4_polar_r: the residual's. */
template <int F> struct __align__(16) best_consts {
    uint32_t minus[4];
    best_flips flips;
    uint32_t near[best_near<F>::bins];
};

/* Code n of a lane's 32 in words: 4 bits each; turbo3: 2 bits each, and the third bits in word 2. */
template <int F> static constexpr void best_flip(uint32_t *word, int n)
{
    if (F == FMT_turbo3) {
        word[n / 16] &= ~(3u << 2 * (n % 16));
        word[2] &= ~(1u << n);
    } else {
        word[n / 8] &= ~(15u << 4 * (n % 8));
    }
}

template <int F> static constexpr best_consts<F> best_consts_of()
{
    constexpr float first[128] = { ROTATE_SIGNS1 }, second[128] = { ROTATE_SIGNS2 }, residual[128] = { POLAR_SIGNS };
    constexpr bool polar = best_format<F>::polar;
    best_consts<F> t = {};
    for (int q = 0; q < 4; q++) {
        for (int k = 0; k < 4; k++)
            t.flips.w[q][k] = ~0u;
        for (int n = 0; n < 32; n++) {
            const int at = 32 * q + n;
            t.minus[q] |= (uint32_t)((polar ? residual : first)[at] < 0.0f) << n;
            if ((polar ? residual : second)[at] < 0.0f)
                best_flip<F>(t.flips.w[q], n);
        }
    }
    int code = tile_format<F>::levels - 1;
    for (int i = 0; i < best_near<F>::bins; i++) {      /* from the top */
        const float y = best_near<F>::reach * (1.0f - 2.0f * (float)i / (float)(best_near<F>::bins - 1));
        while (code > 0 && y < best_boundary<F>(code - 1))
            code--;
        t.near[i] = best_half(tile_centroid<F>(code)) << 16 | (uint32_t)(tile_format<F>::levels - 1 - code);
    }
    return t;
}

template <int F> static __device__ const best_consts<F> best_consts_table = best_consts_of<F>();

/* The block's copies: of a level one for each lane. */
template <int F> struct best_room {
    best_tries<F> tries;
    uint8_t near[best_near<F>::bins * (int)BEST_LINE];
    best_flips flips;
};

/* Right operands of the products that rotate: ones with signs.  Two registers each, and the compiler must not know that
 * they are alike, or it copies them for every product. */
typedef struct best_ones {
    uint32_t b[4][2];
} best_ones;

static __device__ __forceinline__ best_ones best_ones_of(void)
{
    constexpr uint32_t one = 0x3c00u, minus = 0x80008000u;
    const uint32_t lane = threadIdx.x % 32, row = lane % 4, column = lane / 4, odd = __popc(row & column >> 1) & 1u;
    const uint32_t first = (one | odd << 15) | (one | (odd ^ (column & 1u)) << 15) << 16;
    best_ones o;
#pragma unroll
    for (int t = 0; t < 4; t++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            o.b[t][i] = run_kept((t / 2 + t * i) % 2 ? first ^ minus : first);
    return o;
}

/* near: where levels are; minus: signs that values k and k + 16 of a lane change. */
typedef struct best_books {
    best_where tries;
    best_at near;
    best_ones ones;
    uint32_t minus[16];
    const uint4 *same;
} best_books;

/* By a block's last BEST_FILL threads; reads are under way from load on. */
template <int F> struct best_copy {
    best_tries_copy<F> tries;
    best_lines<best_near<F>::bins> near;
    uint4 flips;

    __device__ __forceinline__ void load(void)
    {
        tries.load();
        near.load([](int i) {
            const uint32_t w = best_consts_table<F>.near[i];
            return make_uint4(w, w, w, w);
        });
        flips = ((const uint4 *)&best_consts_table<F>.flips)[threadIdx.x % 4];
    }

    __device__ __forceinline__ void store(best_room<F> *room) const
    {
        const int t = threadIdx.x % BEST_FILL;
        tries.store(&room->tries);
        near.store(room->near);
        if (t < 4)
            ((uint4 *)&room->flips)[t] = flips;
    }
};

template <int F> static __device__ __forceinline__ best_books best_books_of(const best_room<F> *room)
{
    const int lane = threadIdx.x % 32;
    const uint32_t minus = best_consts_table<F>.minus[lane % 4];
    best_books b = { best_where_of<F>(&room->tries), best_at_of(shared_at(room->near) + 4 * lane), best_ones_of(), {},
                     (const uint4 *)room->flips.w[lane % 4] };
#pragma unroll
    for (int k = 0; k < 16; k++)
        b.minus[k] = minus << (15 - k) & 0x80008000u;
    return b;
}

/* ---- the rotation ---- */

/* C += A B, halves: rows r and r + 8 of A, and of C, are two parts of unit r. */
static __device__ __forceinline__ void best_product(uint32_t *c, const uint32_t *a, const uint32_t *b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};"
        : "+r"(c[0]), "+r"(c[1])
        : "r"(a[0]), "r"(a[8]), "r"(a[1]), "r"(a[9]), "r"(b[0]), "r"(b[1]));
}

/* The steps between lanes, between the two of a word, of 1 and of 2: words 0 to 3 and 8 to 11. */
static __device__ __forceinline__ void best_four(uint32_t *v, const best_ones &b)
{
    uint32_t c[4][2] = {};
#pragma unroll
    for (int t = 0; t < 4; t++) {
        best_product(c[t], v, b.b[t % 2]);
        best_product(c[t], v + 2, b.b[t]);
    }
#pragma unroll
    for (int t = 0; t < 4; t++)
        v[t] = c[t][0], v[8 + t] = c[t][1];
}

static __device__ __forceinline__ void best_step(uint32_t *a, uint32_t *b)
{
    const __half2 x = *(__half2 *)a, y = *(__half2 *)b, sum = __hadd2(x, y), less = __hsub2(x, y);
    *a = *(const uint32_t *)&sum, *b = *(const uint32_t *)&less;
}

/* Unnormalised Hadamard over the 128 values of four lanes; values k and k + 16 in word k. */
static __device__ __forceinline__ void best_rotate(const best_ones &b, uint32_t *v)
{
    best_four(v, b);
    best_four(v + 4, b);
#pragma unroll
    for (int i = 0; i < 4; i++)
        best_step(&v[i], &v[4 + i]), best_step(&v[8 + i], &v[12 + i]);
#pragma unroll
    for (int i = 0; i < 8; i++)
        best_step(&v[i], &v[8 + i]);
}

static __device__ __forceinline__ void best_signs(const best_books &b, uint32_t *v)
{
#pragma unroll
    for (int k = 0; k < 16; k++)
        v[k] ^= b.minus[k];
}

/* ---- codes ---- */

/* A unit: norm and its inverse, as enc_unit_root has them. */
typedef struct best_unit {
    float norm, by;
} best_unit;

/* What is found: the complements of codes, the scale as it is stored, whether the residual is added. */
typedef struct best_found {
    uint32_t word[4];
    uint32_t scale;
    bool up;
} best_found;

/* Entries of the values of 4 words; all beyond the bins is at their ends. */
template <int F>
static __device__ __forceinline__ void best_nearest(const best_books &b, const uint32_t *y, uint32_t by, uint32_t add,
                                                    uint32_t *e)
{
    uint32_t at[8];
#pragma unroll
    for (int i = 0; i < 4; i++)
        best_addresses(b.near, best_fma(best_fma_part(y[i], by, add), best_twice((float)(best_near<F>::bins - 1)),
                                        best_twice(BEST_MAGIC)), at + 2 * i);
#pragma unroll
    for (int i = 0; i < 8; i++)
        asm volatile("ld.shared.b32 %0, [%1];" : "=r"(e[i]) : "r"(at[i]));
}

/* Codes of two values of a quarter, after those before them: 4 bits each, turbo3's first 2. */
template <int F> static __device__ __forceinline__ uint32_t best_word(uint32_t word, uint32_t e, uint32_t next)
{
    constexpr int bits = F == FMT_turbo3 ? 2 : 4;
    return __funnelshift_r(__funnelshift_r(word, e, bits), next, bits);
}

/* Bit k of each byte of `all`: signs of the halves of two words. */
static __device__ __forceinline__ uint32_t best_minus(uint32_t all, int k, uint32_t a, uint32_t b)
{
    uint32_t four;
    asm("prmt.b32 %0, %1, %2, 0xfbd9;" : "=r"(four) : "r"(a), "r"(b));
    return tile_bits(four, 0x01010101u << k, all);
}

/* C += A B: rows r of A are words 0 and 2 of y, rows r + 8 words 1 and 3; the columns of B two words.  With those of
 * the same values, sums over units are on C's diagonal, or that of its lower half. */
static __device__ __forceinline__ void best_dot(float *c, const uint32_t *y, uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(y[0]), "r"(y[1]), "r"(y[2]), "r"(y[3]), "r"(b0), "r"(b1));
}

/* Codes nearest to y inv, and the sum of y times what they decode to at scale 1. */
template <int F>
static __device__ __forceinline__ float best_assign(const best_books &b, const uint32_t *y, float inv, float residual,
                                                    best_found *o)
{
    constexpr float half = best_near<F>::half;
    constexpr uint32_t ones = best_twice(1.0f);
    const int unit = threadIdx.x % 32 / 4;
    const uint32_t by = best_pair(inv * half);
    const uint32_t add = best_format<F>::two ? best_pair(fmaf(residual, -half, 0.5f)) : best_twice(0.5f);
    float yv[2][4] = {}, sum[4] = {};
    uint32_t word[4] = { 0, 0, 0, 0 }, minus = 0;
#pragma unroll
    for (int k = 0; k < 8; k += 2) {
        const uint32_t four[4] = { y[k], y[k + 1], y[k + 8], y[k + 9] };
        uint32_t e[8], level[4];
        best_nearest<F>(b, four, by, add, e);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            level[i] = __byte_perm(e[2 * i], e[2 * i + 1], 0x7632);
            word[i] = best_word<F>(word[i], e[i / 2 + i % 2 * 4], e[i / 2 + i % 2 * 4 + 2]);
        }
        best_dot(yv[0], four, level[0], level[2]);
        best_dot(yv[1], four, level[1], level[3]);
        if (best_format<F>::two)
            best_dot(sum, four, ones, ones);
        minus = best_minus(best_minus(minus, k, level[0], level[2]), k + 1, level[1], level[3]);
    }
    o->word[0] = F == FMT_turbo3 ? __byte_perm(word[0], word[1], 0x7632) : word[0];
    o->word[1] = F == FMT_turbo3 ? __byte_perm(word[2], word[3], 0x7632) : word[1];
    o->word[2] = F == FMT_turbo3 ? minus : word[2];
    o->word[3] = word[3];
    const float own = unit % 2 ? yv[0][1] + yv[1][3] : yv[0][0] + yv[1][2];
    const float all = __shfl_sync(0xffffffffu, own, (threadIdx.x & 28) + unit / 2);
    return best_format<F>::two ? fmaf(residual, sum[0] + sum[2], all) : all;
}

/* As half, of what is not negative; NaN and Inf stay what they are. */
static __device__ __forceinline__ uint32_t best_stored(float x)
{
    const __half2 h = __floats2half2_rn(x, 0.0f);
    return *(const uint32_t *)&h;
}

/* y has mean square 1. */
template <int F>
static __device__ __forceinline__ best_found best_find(const best_books &b, const uint32_t *y, const best_unit &u)
{
    constexpr float yy = best_format<F>::unit == 1.0f ? 128.0f : best_format<F>::unit;
    const bool any = u.by > 0.0f && u.norm > 1e-8f && u.norm <= 1e30f;  /* else the least scale of a half is too much */
    const float found = best_search<F>(b.tries, y);
    const uint32_t upstream = best_stored(u.norm);
    const uint32_t near = max(best_stored(fminf(fabsf(found) * u.norm, 65504.0f)), 1u);
    const float inv = any ? u.norm * best_inverse(enc_value((uint16_t)near)) : 1.0f;
    best_found o = { { 0, 0, 0, 0 }, upstream == 0x7c00u ? 0x7bffu : upstream, found > 0.0f };
    const float residual = found < 0.0f ? -best_format<F>::residual : best_format<F>::residual;
    const float fit = best_assign<F>(b, y, inv, residual, &o);
    const uint32_t unbiased = best_stored(u.norm * (yy * best_inverse(fit)));
    o.scale = !any ? o.scale : unbiased - 1u < 0x7bffu ? unbiased : near;       /* not 0, Inf or NaN */
    return o;
}

/* ---- packing ---- */

/* The residual's bit of a row of nearly nothing. */
static constexpr bool best_zero_of(void)
{
    constexpr float signs[128] = { POLAR_SIGNS };
    float sum = 0.0f;
    for (float s : signs)
        sum += s;
    return sum < 0.0f;
}

struct best_zero {
    static constexpr bool bit = best_zero_of();
};

/* Codes of their complements, with their signs. */
template <int F> static __device__ __forceinline__ void best_turn(uint32_t *word, const uint4 *same)
{
    const uint4 s = F != FMT_q4_polar ? *same : make_uint4(~0u, ~0u, ~0u, ~0u);
    word[0] ^= s.x, word[1] ^= s.y, word[2] ^= s.z, word[3] ^= s.w;
}

/* Words of a lane one behind the other, `before` before them; even: two bytes of each in the next one. */
template <int N>
static __device__ __forceinline__ void best_put(uint8_t *to, uint32_t before, const uint32_t *word, bool odd)
{
    const uint32_t select = odd ? 0x7654u : 0x5432u;
#pragma unroll
    for (int n = 0; n < N; n++)
        ((uint32_t *)to)[n] = __byte_perm(n ? word[n - 1] : before, word[n], select);
}

/* A record of 14 bytes to a lane: every other one begins between words. */
static __device__ __forceinline__ void best_put3(const best_found &o, uint8_t *out)
{
    const int lane = threadIdx.x % 32, odd = lane % 2;
    best_put<3>(out + 14 * lane + 2 * odd, o.scale << 16, o.word, odd);
    enc_put(out + 14 * lane + (odd ? 0 : 12), (uint16_t)(odd ? o.scale : o.word[2] >> 16));
}

/* 16 bytes of a unit to a lane; every other unit begins between words, and its scale is in one with the end of the unit
 * before. */
template <int F> static __device__ __forceinline__ void best_put4(const best_found &o, const best_unit &u, uint8_t *out)
{
    const int lane = threadIdx.x % 32, q = lane % 4;
    const bool odd = lane & 4, bit = u.by > 0.0f ? o.up : best_zero::bit && u.norm < INFINITY;
    uint8_t *row = out + lane / 4 * tile_format<F>::unit_bytes + (odd ? 2 : 0);
    const uint32_t before = __shfl_up_sync(0xffffffffu, o.word[3], 1), last = best_format<F>::polar ? 0 : before;
    best_put<4>(row + 16 * q, q ? before : o.scale << 16, o.word, odd);
    if (odd && q == 0)
        *(uint32_t *)(row - 4) = __byte_perm(last, o.scale, 0x5432);
    if (best_format<F>::polar) {
        const uint32_t up = best_format<F>::two && bit, end = odd ? up : o.word[3] >> 16 | up << 16;
        *(uint32_t *)(row + 64 + (4 * q + 4) % 16) = q == 3 ? end : 0;
    }
}

/* A lane's values; `out`: units one behind the other.  No branches but one: steps of one part run beside those of the
 * next. */
template <int F> static __device__ __forceinline__ void best_encode(const best_books &b, float *v, uint8_t *out)
{
    float p[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
    best_unit u;
    uint32_t y[16];
#pragma unroll
    for (int k = 0; k < 32; k++)
        p[k % 4] = fmaf(v[k], v[k], p[k % 4]);
    u.norm = enc_unit_root(enc_sum<4>((p[0] + p[1]) + (p[2] + p[3])), &u.by);
    const bool bad = !(u.norm < INFINITY);
    if (__any_sync(0xffffffffu, bad))   /* no NaN: bins are addresses */
        for (int k = 0; k < 32; k++)
            v[k] = bad ? 0.0f : v[k];
#pragma unroll
    for (int k = 0; k < 16; k++) {
        const __half2 h = __floats2half2_rn(v[k] * u.by, v[16 + k] * u.by);
        y[k] = *(const uint32_t *)&h;
    }
    if (!best_format<F>::polar)
        best_signs(b, y);
    best_rotate(b.ones, y);
    if (best_format<F>::two)            /* then they are all alike */
        best_signs(b, y);
    best_found o = best_find<F>(b, y, u);
    best_turn<F>(o.word, b.same);
    if constexpr (F == FMT_turbo3)
        best_put3(o, out);
    else
        best_put4<F>(o, u, out);
}

#endif
