/* tile_best.cuh: the encoder `best` (formats/search.c) for tiles (tile_codes.cuh): codes and the scale that is stored,
 * at the scale that tile_try.cuh takes; records of 32 values: tile_record.cuh.  Upstream's codes are no candidate of
 * their own: a scale of 1 is among those tried, to 2 %, and whatever the codes, the scale is the unbiased one.
 *
 * A code is found by one table entry of 4 bytes, the nearest level to the value's bin of 510 and, in its lowest bits,
 * the code.  The bins end where boundaries lie next to the edges between them: what values beside a boundary lose is
 * .03 % of the squared error.  Codes are collected as complements (tile_codes.cuh). */
#ifndef KVANT_CUDA_TILE_BEST_CUH
#define KVANT_CUDA_TILE_BEST_CUH

#include "devices/cuda/tile_record.cuh"

enum { NEAR_BINS = 510, NEAR_CODE = 15 };

/* In shared memory.  Formats of 128 values: the entry of tile_try.cuh beyond its table, the table of levels, the table
 * of errors. */
template <int F, bool BEST> struct tile_tables {
    static constexpr bool search = BEST && F != FMT_q8_0, record = search && tile_format<F>::records;
    typedef tile_try<search && !record ? F : FMT_turbo3> tries;
    typedef rec_format<record ? F : FMT_q4_0> records;
    static constexpr int bytes = record   ? records::end - records::at
                                 : search ? tries::all
                                          : tile_format<F>::table_bytes;
};

/* Values of mean square 1 from -this to this have the bins. */
template <int F> static constexpr float near_reach()
{
    return F == FMT_turbo3 ? 1.87403f : F == FMT_turbo4_66 ? 2.4552f : 2.47845f;
}

/* Copies of an entry side by side. */
template <int F> struct near_at {
    static constexpr float half = -0.5f / near_reach<F>();
    static constexpr int copies = 32, line = 4 * copies;
};

typedef struct near_entry {
    float level;
    uint32_t code;      /* its complement */
} near_entry;

template <int F> struct near_entries {
    near_entry e[NEAR_BINS];
};

/* From the top. */
template <int F> static constexpr near_entries<F> near_entries_of()
{
    constexpr int last = tile_format<F>::levels - 1;
    near_entries<F> t = {};
    int code = last;
    for (int i = 0; i < NEAR_BINS; i++) {
        const float y = near_reach<F>() * (1.0f - 2.0f * (float)i / (float)(NEAR_BINS - 1));
        while (code > 0 && y < try_boundary<F>(code - 1))
            code--;
        t.e[i] = { tile_centroid<F>(code), (uint32_t)(last - code) };
    }
    return t;
}

template <int F> static __device__ const near_entries<F> near_table = near_entries_of<F>();

/* The block's copies of both tables, as tile_copy. */
template <int F, int THREADS> struct best_copy {
    static constexpr int levels = NEAR_BINS * near_at<F>::line / 16;
    static constexpr int tries = tile_try<F>::bytes / 16, copies = TRY_LINE / TRY_BYTES, line = tile_try<F>::line / 16;
    static constexpr int each = (levels + THREADS - 1) / THREADS, each_try = (tries + THREADS - 1) / THREADS;
    uint4 e[each_try], end;
    near_entry near[each];

    __device__ __forceinline__ void load()
    {
#pragma unroll
        for (int k = 0; k < each_try; k++) {
            const int i = THREADS * k + (int)threadIdx.x;
            if (i < tries)
                e[k] = *(const uint4 *)(try_table<F>.e[i / line].w + i % line / copies * 4);
        }
#pragma unroll
        for (int k = 0; k < each; k++) {
            const int i = THREADS * k + (int)threadIdx.x;
            if (i < levels)
                near[k] = near_table<F>.e[i / (near_at<F>::line / 16)];
        }
        end = *(const uint4 *)try_table<F>.e[tile_try<F>::bins].w;
    }

    /* What a lane adds to the bits of a bin + ENC_MAGIC, times a line, for the address of its level; and for that of
     * its errors (try_read, try_residuals). */
    __device__ __forceinline__ tile_books store(uint8_t *room)
    {
        constexpr uint32_t zero = 0x4b400000u;
#pragma unroll
        for (int k = 0; k < each_try; k++)
            if (THREADS * k + (int)threadIdx.x < tries)
                ((uint4 *)(room + tile_try<F>::at))[THREADS * k + threadIdx.x] = e[k];
#pragma unroll
        for (int k = 0; k < each; k++)
            if (THREADS * k + (int)threadIdx.x < levels) {
                const uint32_t w = (__float_as_uint(near[k].level) & ~(uint32_t)NEAR_CODE) | near[k].code;
                ((uint4 *)(room + tile_try<F>::levels_at))[THREADS * k + threadIdx.x] = make_uint4(w, w, w, w);
            }
        if (!tile_try<F>::two && threadIdx.x < copies)
            ((uint4 *)room)[threadIdx.x] = end;
        const uint32_t level = threadIdx.x % near_at<F>::copies * 4, error = threadIdx.x % copies * TRY_BYTES;
        return { shared_at(room) + tile_try<F>::levels_at + level - zero * near_at<F>::line,
                 shared_at(room) + error + (tile_try<F>::two ? tile_try<F>::at - zero * tile_try<F>::line : 0) };
    }
};

/* The entry of y by + add: all beyond the bins is at their ends, NaN at the top. */
template <int F> static __device__ __forceinline__ uint32_t near_read(uint32_t base, float y, float by, float add)
{
    constexpr float half = near_at<F>::half;
    const float part = __saturatef(fmaf(y, by * half, fmaf(add, half, 0.5f)));
    uint32_t entry;
    asm("ld.shared.b32 %0, [%1];"
        : "=r"(entry)
        : "r"(__float_as_uint(fmaf(part, (float)(NEAR_BINS - 1), ENC_MAGIC)) * near_at<F>::line + base));
    return entry;
}

/* A unit's values y, as tile_best takes them. */
typedef struct tile_guess {
    float by, guess;            /* y by has mean square 1; guess: the scale of y by */
    uint16_t upstream;          /* as it would be stored */
    float yy;                   /* the sum of squares of y, over guess */
} tile_guess;

/* Complements of the codes, BITS each and 8 to a word, and the scale; the codes are nearest at a scale as stored.
 * HALVES: tile_nibble_of's order.  *up: the residual is added, not taken away (q4_polar_r). */
template <int F, int BITS, bool HALVES>
static __device__ __forceinline__ uint16_t tile_best(const tile_books &b, const float *y, const tile_guess &at,
                                                     uint32_t *word, bool *up)
{
    /* Else nothing to search, or the least scale of a half is too much. */
    const bool any = at.by > 0.0f && at.guess > 1e-8f && at.guess <= 1e30f;
    const float found = try_best<F>(b.tries, y, at.by);
    const uint16_t near = enc_storable(fabsf(found) * at.guess);
    const float inv = any ? at.by * __fdividef(at.guess, enc_value(near)) : at.by;
    const float residual = found < 0.0f ? -tile_try<F>::residual : tile_try<F>::residual;
    float yv[2] = { 0.0f, 0.0f }, sum[2] = { 0.0f, 0.0f };
#pragma unroll
    for (int n = 0; n < 32; n++) {
        const float x = y[HALVES ? tile_nibble_of(n) : n];
        const uint32_t e = near_read<F>(b.codes, x, inv, tile_try<F>::two ? -residual : 0.0f);
        word[n / 8] = __funnelshift_r(word[n / 8], e, BITS);
        yv[n % 2] = fmaf(x, __uint_as_float(e), yv[n % 2]);
        if (tile_try<F>::two)
            sum[n % 2] += x;
    }
#pragma unroll
    for (int n = 0; n < 4; n++)
        word[n] >>= 32 - 8 * BITS;
    *up = found > 0.0f;
    const float fit = tile_lanes<F>(fmaf(residual, sum[0] + sum[1], yv[0] + yv[1]));
    return any ? enc_unbiased_scale(at.guess * (at.yy / fit), near) : at.upstream;
}

/* q8_0: the best of scales that need no level beyond the last; with less scale the largest value errs more than all
 * others may gain. */
template <int N> static __device__ __forceinline__ float tile_try8(const float *x, float id, const float (&scales)[N])
{
    float inv[N], sum[N];
#pragma unroll
    for (int s = 0; s < N; s++) {
        inv[s] = id * (1.0f / scales[s]);
        sum[s] = 0.0f;
    }
#pragma unroll
    for (int k = 0; k < 32; k++)
#pragma unroll
        for (int s = 0; s < N; s++) {
            const float v = fmaf(x[k], inv[s], ENC_MAGIC) - ENC_MAGIC, e = fmaf(x[k], inv[s], -v);
            sum[s] = fmaf(e, e, sum[s]);
        }
    trial best = { INFINITY, 1.0f };
#pragma unroll
    for (int s = 0; s < N; s++)
        trial_better(&best, sum[s] * (scales[s] * scales[s]), scales[s]);
    return best.scale;
}

/* Codes and scale of a record of values up to 127 d, with yy the sum of their squares. */
static __device__ __forceinline__ uint16_t tile_best8(const float *x, float d, float id, float yy, uint32_t *word)
{
    constexpr float scales[4] = { 0.999f, 1.009f, 1.024f, 1.09f };
    const uint16_t near = enc_storable(tile_try8(x, id, scales) * d);
    const float by = __fdividef(1.0f / 254.0f, enc_value(near));
    float yv = 0.0f;
#pragma unroll
    for (int n = 0; n < 8; n++) {
        uint32_t c[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const float y = x[4 * n + k];
            const float v = fmaf(__saturatef(fmaf(y, by, 0.5f)), 254.0f, ENC_MAGIC - 127.0f);
            yv = fmaf(y, v - ENC_MAGIC, yv);
            c[k] = __float_as_uint(v);
        }
        word[n] = __byte_perm(__byte_perm(c[0], c[1], 0x0040), __byte_perm(c[2], c[3], 0x0040), 0x5410);
    }
    return enc_unbiased_scale(yy / yv, near);
}

/* A block's tables. */
template <int F, bool BEST, int THREADS, bool SEARCH = tile_tables<F, BEST>::search,
          bool RECORD = tile_tables<F, BEST>::record>
struct tile_copies {
    tile_copy<F, THREADS> of;

    __device__ __forceinline__ void load()
    {
        of.load();
    }

    __device__ __forceinline__ tile_books store(uint8_t *room)
    {
        return { of.store(room), 0 };
    }
};

template <int F, bool BEST, int THREADS> struct tile_copies<F, BEST, THREADS, true, false> : best_copy<F, THREADS> {};
template <int F, bool BEST, int THREADS> struct tile_copies<F, BEST, THREADS, true, true> : rec_copy<F, THREADS> {};

#endif
