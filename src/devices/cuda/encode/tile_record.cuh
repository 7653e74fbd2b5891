/* tile_record.cuh: the encoder `best` (formats/search.c) for a tile's records of 32 values, one to a lane
 * (tile_codes.cuh): the one of eight fixed scales whose nearest codes err least, its codes, the unbiased scale.
 * Upstream's codes are no candidate of their own, as in tile_best.cuh.
 *
 * A value's errors at all eight scales are one table entry of 8 bytes, by the value's magnitude in 256 bins (q4_0: by
 * the value).  They are less the least of them, which changes no comparison, and end at `most`, more than what scales
 * that are taken differ by.  Two entries are added by bytes; products of tensor cores with eight times the identity add
 * those of all lanes, each record's to sums of its own.  A sum then gets the scale's number in its lowest bits: the
 * least sum says the scale.  An entry is found by the bits of one fma, its address by one more operation, so the tables
 * lie at multiples of their sizes.
 *
 * A code is found the same way, by an entry of 4 bytes: the level nearest to the value's bin, one of 256, with the
 * complement of the code in its lowest bits.  `near` is the half width of the bins for which boundaries lie next to the
 * edges between them: what values beside a boundary lose is .05 % of the squared error or less. */
#ifndef KVANT_CUDA_TILE_RECORD_CUH
#define KVANT_CUDA_TILE_RECORD_CUH

#include "devices/cuda/encode/encode_search.cuh"
#include "devices/cuda/encode/tile_codes.cuh"

enum { REC_SCALES = 8, REC_BINS = 256, REC_NEAR = 512, REC_CODE = 15 };

/* What is tried: those of 48 scales with which rows (Gaussian, Laplace, log-normal, with an outlier; rotated) err least
 * when the unbiased scale is stored, and that bound the loss of single rows. */
struct rec_scales {
    float at[REC_SCALES];
};

template <int F> static constexpr rec_scales rec_scales_of()
{
    switch (F) {
    case FMT_q4_0: return { { 0.892f, 0.9235f, 0.9445f, 0.9655f, 0.9865f, 1.018f, 1.102f, 1.144f } };
    case FMT_tbq3_0: return { { 0.72f, 0.81f, 0.89f, 0.97f, 1.055f, 1.15f, 1.26f, 1.4f } };
    default: return { { 0.68f, 0.74f, 0.8f, 0.865f, 0.935f, 1.015f, 1.13f, 1.3f } };
    }
}

/* Levels and boundaries for values of mean square 1 (q4_0: for values up to 8). */
template <int F> static constexpr float rec_level(int code)
{
    return F == FMT_q4_0 ? (float)(code - 8) : tile_centroid<F>(code);
}

template <int F> static constexpr float rec_boundary(int m)
{
    return F == FMT_q4_0 ? (float)m - 7.5f : tile_boundary<F>(m);
}

template <int F> struct rec_format {
    static constexpr bool book = F != FMT_q4_0;
    static constexpr int levels = book ? tile_format<F>::levels : 16;
    static constexpr float reach = book ? 5.66f : 8.03f;        /* of values of mean square 1: sqrt(32) */
    static constexpr float most = F == FMT_q4_0 ? 2.0f : F == FMT_tbq3_0 ? 2.25f : 0.8f;
    /* The table of levels has bins from -near to near, and as many lines again for what is below. */
    static constexpr float near = F == FMT_tbq3_0 ? 1.9458f : 2.5591f;
    /* In shared memory: at `at` and `near_at`, multiples of what lines and a lane's place in them take. */
    static constexpr int line = 128, near_line = 64, at = REC_BINS * line, near_at = 2 * at;
    static constexpr int end = near_at + (book ? REC_NEAR * near_line : 0);
};

typedef struct __align__(8) rec_errors {
    uint8_t at[REC_SCALES];
} rec_errors;

template <int F> struct rec_data {
    rec_errors e[REC_BINS];
    uint32_t near[REC_NEAR / 2];
    float scale[REC_SCALES];
};

/* The mean squared error of the values of a bin at a scale. */
template <int F> static constexpr float rec_error(int bin, float scale)
{
    float sum = 0.0f;
    int code = 0;
    for (int i = 0; i < 4; i++) {
        const float part = ((float)bin + ((float)i + 0.5f) / 4.0f) / (float)REC_BINS;
        const float y = rec_format<F>::reach * (rec_format<F>::book ? part : 2.0f * part - 1.0f);
        while (code < rec_format<F>::levels - 1 && y >= scale * rec_boundary<F>(code))
            code++;
        const float d = y - scale * rec_level<F>(code);
        sum += 0.25f * d * d;
    }
    return sum;
}

/* Two entries are added in bytes.  A record has at most one value beyond 5.2, and then no other beyond 2.3. */
template <int F> static constexpr rec_errors rec_errors_of(int bin)
{
    constexpr rec_scales scales = rec_scales_of<F>();
    const bool alone = rec_format<F>::book && (float)bin > 5.2f / rec_format<F>::reach * (float)REC_BINS;
    const float limit = alone ? 200.0f : 127.0f;
    float e[REC_SCALES] = {}, least = INFINITY;
    rec_errors t = {};
    for (int s = 0; s < REC_SCALES; s++) {
        e[s] = rec_error<F>(bin, scales.at[s]);
        least = e[s] < least ? e[s] : least;
    }
    for (int s = 0; s < REC_SCALES; s++) {
        const float n = (e[s] - least) * (127.0f / rec_format<F>::most) + 0.5f;
        t.at[s] = (uint8_t)(n < limit ? n : limit);
    }
    return t;
}

/* Level and, in its lowest bits, the complement of the code. */
template <int F> static constexpr uint32_t rec_near_of(int bin)
{
    constexpr int last = rec_format<F>::levels - 1;
    const float y = rec_format<F>::near * (2.0f * ((float)bin + 0.5f) / (float)(REC_NEAR / 2) - 1.0f);
    int code = 0;
    while (code < last && y >= rec_boundary<F>(code))
        code++;
    return (__builtin_bit_cast(uint32_t, rec_level<F>(code)) & ~(uint32_t)REC_CODE) | (uint32_t)(last - code);
}

/* Of what is beyond the bins. */
template <int F> struct rec_ends {
    static constexpr uint32_t low = rec_near_of<F>(0), high = rec_near_of<F>(REC_NEAR / 2 - 1);
};

template <int F> static constexpr rec_data<F> rec_data_of()
{
    rec_data<F> t = {};
    for (int i = 0; i < REC_BINS; i++)
        t.e[i] = rec_errors_of<F>(i);
    for (int i = 0; i < REC_NEAR / 2; i++)
        t.near[i] = rec_format<F>::book ? rec_near_of<F>(i) : 0;
    for (int i = 0; i < REC_SCALES; i++)
        t.scale[i] = rec_scales_of<F>().at[i];
    return t;
}

template <int F> static __device__ const rec_data<F> rec_table = rec_data_of<F>();

/* What a lane keeps of the block's tables: its copies in their first lines, and scale lane % 8; and its part of 8 times
 * the identity (rec_product). */
typedef struct rec_books {
    uint32_t error, near;
    float scale;
    uint32_t a[2];
} rec_books;

static __device__ __forceinline__ rec_books rec_books_of(uint32_t error, uint32_t near, float scale)
{
    const int lane = threadIdx.x % 32, row = lane / 4, q = lane % 4;
    const uint32_t pick = 8u << 8 * (row % 4);
    rec_books b = { error + lane % 16 * 8, near + lane % 16 * 4, scale,
                    { q == row / 4 ? pick : 0, q == row / 4 + 2 ? pick : 0 } };
    /* Else they are found anew for each value or tile. */
    asm("" : "+r"(b.error), "+r"(b.near), "+r"(b.a[0]), "+r"(b.a[1]));
    return b;
}

/* The block's copies: reads are under way from load on, store waits for them. */
template <int F, int THREADS> struct rec_copy {
    typedef rec_format<F> is;
    static constexpr int errors = REC_BINS * is::line / 16, each = (errors + THREADS - 1) / THREADS;
    static constexpr int levels = is::book ? REC_NEAR / 2 * is::near_line / 16 : 0;
    static constexpr int each_level = (levels + THREADS - 1) / THREADS;
    uint2 e[each];
    uint32_t near[each_level > 0 ? each_level : 1];
    float scale;

    __device__ __forceinline__ void load()
    {
#pragma unroll
        for (int k = 0, i = threadIdx.x; k < each; k++, i += THREADS)
            if (i < errors)
                e[k] = *(const uint2 *)&rec_table<F>.e[i / (is::line / 16)];
#pragma unroll
        for (int k = 0, i = threadIdx.x; k < each_level; k++, i += THREADS)
            if (i < levels)
                near[k] = rec_table<F>.near[i / (is::near_line / 16)];
        scale = rec_table<F>.scale[threadIdx.x % 8];
    }

    __device__ __forceinline__ rec_books store(uint8_t *room)
    {
        uint4 *error = (uint4 *)room, *level = (uint4 *)(room + is::near_at - is::at);
#pragma unroll
        for (int k = 0, i = threadIdx.x; k < each; k++, i += THREADS)
            if (i < errors)
                error[i] = make_uint4(e[k].x, e[k].y, e[k].x, e[k].y);
        /* Line 0 is what is beyond the top; the others of the lower half are below the bins. */
#pragma unroll
        for (int k = 0, i = threadIdx.x; k < each_level; k++, i += THREADS)
            if (i < levels) {
                const uint32_t w = i < is::near_line / 16 ? rec_ends<F>::high : rec_ends<F>::low;
                level[i] = make_uint4(w, w, w, w);
                level[levels + i] = make_uint4(near[k], near[k], near[k], near[k]);
            }
        return rec_books_of(is::at, is::near_at, scale);
    }
};

/* ---- the scale ---- */

/* C += A B: column n of B is unit n, row 4 q + i the i-th byte of its record q; A is 8 times the identity. */
static __device__ __forceinline__ void rec_product(uint32_t *c, const uint32_t *a, uint32_t b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.s32.u8.u8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(b));
}

/* Eights of sums of errors: here are those of scale lane / 4 % 4 and, in c[1], 4 more, of records lane / 16 and 2 more
 * of units 2 (lane % 4) and one more.  The least of this lane's record, plus its scale's number. */
static __device__ __forceinline__ uint32_t rec_pick(const uint32_t (*c)[4])
{
    const int lane = threadIdx.x % 32;
    uint32_t w[2];
#pragma unroll
    for (int i = 0; i < 2; i++)         /* a record of two units */
        w[i] = __vminu2(__byte_perm(c[0][2 * i], c[0][2 * i + 1], 0x5410),
                        __byte_perm(c[1][2 * i], c[1][2 * i + 1], 0x5410) + 0x40004u) +
               (uint32_t)(lane / 4 % 4) * 0x10001u;
    const uint32_t keep = lane & 8 ? w[1] : w[0], give = lane & 8 ? w[0] : w[1];
    uint32_t least = __vminu2(keep, __shfl_xor_sync(0xffffffffu, give, 8));
    least = __vminu2(least, __shfl_xor_sync(0xffffffffu, least, 4));
    least = lane & 4 ? least >> 16 : least;
    /* Here: record bit 4 + 2 bit 3 of unit 2 (lane % 4) + bit 2 of the lane. */
    return __shfl_sync(0xffffffffu, least, (lane & 1) * 16 + (lane & 2) * 4 + (lane & 4) + lane / 8);
}

/* The errors of y. */
template <int F> static __device__ __forceinline__ uint2 rec_errors_at(const rec_books &b, float y, float to)
{
    const float at = rec_format<F>::book ? fmaf(fabsf(y), to, 1.0f) : fmaf(y, to, 1.0f + 0x1p-9f);
    uint2 e;
    asm("ld.shared.v2.b32 {%0,%1}, [%2];"
        : "=r"(e.x), "=r"(e.y)
        : "r"(tile_bits(__float_as_uint(at), 0x7f80u, b.error)));
    return e;
}

/* The scale of y by, of mean square 1 (q4_0: up to 8); y's own is `by`'s inverse times that. */
template <int F> static __device__ __forceinline__ float rec_scale(const rec_books &b, const float *y, float by)
{
    typedef rec_format<F> is;
    const float to = by * ((is::book ? 0x1p-8f : 0x1p-9f) / is::reach);
    uint32_t c[2][4] = {};
#pragma unroll
    for (int k = 0; k < 32; k += 2) {
        const uint2 one = rec_errors_at<F>(b, y[k], to), two = rec_errors_at<F>(b, y[k + 1], to);
        rec_product(c[0], b.a, one.x + two.x);
        rec_product(c[1], b.a, one.y + two.y);
    }
    return __shfl_sync(0xffffffffu, b.scale, rec_pick(c));
}

/* ---- codes ---- */

/* The entry of y's level: all beyond the bins is at their ends, NaN at the top.  to: what y is multiplied by. */
template <int F> static __device__ __forceinline__ uint32_t rec_near(const rec_books &b, float y, float to)
{
    uint32_t entry;
    asm("ld.shared.b32 %0, [%1];"
        : "=r"(entry)
        : "r"(tile_bits(__float_as_uint(__saturatef(fmaf(y, to, 1.0f - 0x1p-11f))), 0x7fc0u, b.near)));
    return entry;
}

/* Complements of the codes of a record y, BITS each and 8 to a word, four bits in tile_nibble_of's order, and the scale
 * that is stored; the codes are nearest at a scale as stored.  y by has mean square 1, guess is the scale of that, yy
 * the sum of squares of y over it. */
template <int F, int BITS>
static __device__ __forceinline__ uint16_t rec_best(const rec_books &b, const float *y, float by, float guess, float yy,
                                                    uint32_t *word)
{
    /* Else nothing to search, or the least scale of a half is too much. */
    const bool any = by > 0.0f && guess > 1e-8f && guess <= 1e30f;
    const uint16_t near = enc_storable(rec_scale<F>(b, y, by) * guess);
    const float to = (any ? by * __fdividef(guess, enc_value(near)) : by) * (0x1p-11f / rec_format<F>::near);
    float yv[2] = { 0.0f, 0.0f };
#pragma unroll
    for (int n = 0; n < 32; n++) {
        const float x = y[BITS == 4 ? tile_nibble_of(n) : n];
        const uint32_t e = rec_near<F>(b, x, to);
        word[n / 8] = __funnelshift_r(word[n / 8], e, BITS);
        yv[n % 2] = fmaf(x, __uint_as_float(e), yv[n % 2]);
    }
#pragma unroll
    for (int n = 0; n < 4; n++)
        word[n] >>= 32 - 8 * BITS;
    if (!any)
        return enc_half(guess);
    return enc_unbiased_scale(guess * __fdividef(yy, yv[0] + yv[1]), near);
}

/* q4_0: the same at scale d; yy: the sum of squares of x.  d has the start's sign; the other gains nothing with these
 * scales. */
static __device__ __forceinline__ uint16_t rec_best4(const float *x, float d, float yy, uint32_t *word)
{
    const uint16_t near = enc_storable(d);
    const float by = __fdividef(-1.0f / 15.0f, enc_value(near));
    float yv = 0.0f;
#pragma unroll
    for (int n = 0; n < 32; n++) {
        const float y = x[tile_nibble_of(n)];
        const float v = fmaf(__saturatef(fmaf(y, by, 7.0f / 15.0f)), 15.0f, ENC_MAGIC);    /* 7 - the level */
        word[n / 8] = __funnelshift_r(word[n / 8], __float_as_uint(v), 4);
        yv = fmaf(y, (ENC_MAGIC + 7.0f) - v, yv);
    }
    return enc_unbiased_scale(yy / yv, near);
}

#endif
