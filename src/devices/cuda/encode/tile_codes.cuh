/* tile_codes.cuh: what the encoders of many rows share.  A warp encodes a tile of 8 units of 128 values, four lanes to
 * a unit, 32 values to a lane, and most of a rule needs no other lane.
 *
 * Formats of 32-value records (q*, tbq*, turbo4): lane l has record l of the tile, whole.  Their sums are added in the
 * order of encode.cuh's lanes: upstream bytes are the same for both, whichever encoder a batch is large enough for.
 * Formats of 128 values: lane l has 32 values of unit l / 4, upstream (encode_run.cuh) 32 k + 8 (l % 4) + i, k < 4,
 * i < 8, in v[8 k + i], for `best` (run_best.cuh) those from 32 (l % 4) on.
 *
 * Upstream, a code is found by one table entry per value, its bin's (enc_bins): the one boundary in it.  Codes are
 * collected as complements, last - code: those count the boundaries above v, which is the entry's count plus the sign
 * of v - boundary.  The table has 16 copies side by side, so that lanes do not meet in a bank. */
#ifndef KVANT_CUDA_TILE_CODES_CUH
#define KVANT_CUDA_TILE_CODES_CUH

#include "devices/cuda/encode/encode_book.cuh"
#include "devices/cuda/core/hopper.cuh"

enum { TILE_UNITS = 8, TILE_BYTES = TILE_UNITS * 512, TILE_LINE = 128 };

template <int F> struct tile_format {
    static constexpr int kind = enc_format<F>::kind, levels = enc_format<F>::levels;
    static constexpr int unit_bytes = F == FMT_q8_0                          ? 136
                                      : F == FMT_tbq3_0 || F == FMT_turbo3   ? 56
                                      : kind == ENC_INT || kind == ENC_RMS32 ? 72
                                      : kind == ENC_POLAR                    ? 82
                                      : F == FMT_f8_e4m3                     ? 128
                                                                             : 66;
    static constexpr int reach = kind == ENC_INT ? 0 : 17;  /* bins on each side of zero */
    static constexpr int entries = 2 * reach + 1;
    static constexpr int table_bytes = kind == ENC_INT ? 0 : entries * TILE_LINE;
};

/* ---- tables ---- */

typedef struct __align__(8) tile_entry {
    float mid;
    uint32_t above;         /* boundaries above the one at mid */
} tile_entry;

template <int N> struct tile_entries {
    tile_entry e[N];
};

template <int F> static constexpr float tile_centroid(int k)
{
    constexpr float tbq4[16] = { TBQ4_CENTROIDS }, tbq3[8] = { TBQ3_CENTROIDS }, turbo4[16] = { TURBO4_CENTROIDS };
    constexpr float turbo3[8] = { TURBO3_CENTROIDS }, turbo66[16] = { TURBO4_66_CENTROIDS };
    constexpr float polar[16] = { POLAR_CENTROIDS };
    return F == FMT_tbq4_0 ? tbq4[k] : F == FMT_tbq3_0 ? tbq3[k] : F == FMT_turbo4 ? turbo4[k] : F == FMT_turbo3
        ? turbo3[k] : F == FMT_turbo4_66 ? turbo66[k] : polar[k];
}

template <int F> static constexpr float tile_boundary(int m)
{
    constexpr float turbo4[15] = { TURBO4_MIDPOINTS }, turbo3[7] = { TURBO3_MIDPOINTS };
    constexpr float turbo66[15] = { TURBO4_66_MIDPOINTS }, polar[15] = { POLAR_BOUNDARIES };
    return F == FMT_turbo4 ? turbo4[m] : F == FMT_turbo3 ? turbo3[m] : F == FMT_turbo4_66 ? turbo66[m]
        : tile_format<F>::kind == ENC_POLAR ? polar[m] : 0.5f * (tile_centroid<F>(m) + tile_centroid<F>(m + 1));
}

template <int F> static constexpr tile_entry tile_entry_of(int n)
{
    constexpr int last = tile_format<F>::levels - 1;
    const float low = (float)n - 0.5f;
    int below = 0, inside = -1;
    for (int m = 0; m < last; m++) {
        const float at = tile_boundary<F>(m) * enc_bins<F>();
        below += at < low;
        inside = at >= low && at < low + 1.0f ? m : inside;
    }
    if (inside < 0)         /* no boundary: as if v were above it */
        return { -INFINITY, (uint32_t)(last - below) };
    const float mid = tile_boundary<F>(inside);
    return { mid == 0.0f ? -0.0f : mid /* -0 - -0 is above it too */, (uint32_t)(last - 1 - inside) };
}

template <int F> static constexpr tile_entries<tile_format<F>::entries> tile_entries_of()
{
    tile_entries<tile_format<F>::entries> t = {};
    for (int i = 0; i < tile_format<F>::entries; i++)
        t.e[i] = tile_entry_of<F>(i - tile_format<F>::reach);
    return t;
}

template <int F> static __device__ const tile_entries<tile_format<F>::entries> tile_table = tile_entries_of<F>();

/* The block's copy of the table: reads are under way from load on, store waits for them. */
template <int F, int THREADS> struct tile_copy {
    static constexpr int size = 8, copies = TILE_LINE / size;
    static constexpr int all = tile_format<F>::kind == ENC_INT ? 0 : tile_format<F>::entries * copies;
    static constexpr int each = all > 0 ? (all + THREADS - 1) / THREADS : 1;
    float2 e[each];

    __device__ __forceinline__ void load()
    {
#pragma unroll
        for (int k = 0; k < each; k++)
            if (THREADS * k + (int)threadIdx.x < all)
                e[k] = *(const float2 *)&tile_table<F>.e[(THREADS * k + threadIdx.x) / copies];
    }

    /* What a lane adds to the bits of v * bins + ENC_MAGIC, times a line, to have its entry's address. */
    __device__ __forceinline__ uint32_t store(uint8_t *table)
    {
        constexpr uint32_t zero = 0x4b400000u * TILE_LINE;  /* the bits of ENC_MAGIC, modulo 2^32 */
#pragma unroll
        for (int k = 0; k < each; k++)
            if (THREADS * k + (int)threadIdx.x < all)
                ((float2 *)table)[THREADS * k + threadIdx.x] = e[k];
        return shared_at(table) + threadIdx.x % copies * size + tile_format<F>::reach * TILE_LINE - zero;
    }
};

/* One more code in front of those in `codes`, BITS each: the last bins for all beyond, the top for NaN. */
template <int F, int BITS>
static __device__ __forceinline__ void tile_code(uint32_t base, float v, uint32_t *codes)
{
    constexpr float all = 2.0f * (float)tile_format<F>::reach;
    const float from_top = __saturatef(fmaf(v, -enc_bins<F>() / all, 0.5f));
    const uint32_t bin = __float_as_uint(fmaf(from_top, -all, ENC_MAGIC + 0.5f * all));
    float mid;
    uint32_t above;
    asm("ld.shared.v2.b32 {%0,%1}, [%2];" : "=f"(mid), "=r"(above) : "r"(bin * TILE_LINE + base));
    *codes = (*codes << BITS) + above + (__float_as_uint(v - mid) >> 31);
}

/* x & mask | more. */
static __device__ __forceinline__ uint32_t tile_bits(uint32_t x, uint32_t mask, uint32_t more)
{
    uint32_t y;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(y) : "r"(x), "r"(mask), "r"(more));
    return y;
}

/* ---- sums ---- */

/* The tree of enc_sum<8> over the sums of its lanes. */
static __device__ __forceinline__ float tile_tree(const float *p)
{
    return ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7]));
}

/* The sum of two lanes of encode.cuh, p[0] and p[1], over the four lanes of a unit. */
static __device__ __forceinline__ float tile_sum(const float *p)
{
    return enc_sum<4>(p[0] + p[1]);
}

/* ---- packing, into the tile's bytes in shared memory ---- */

static __device__ __forceinline__ void tile_put(uint8_t *to, uint32_t word)
{
    enc_put(to, (uint16_t)word);
    enc_put(to + 2, (uint16_t)(word >> 16));
}

/* [scale][16 bytes]: code j low nibble of byte j, code j + 16 the high one.  order[n]: the code that comes n-th. */
static __device__ __forceinline__ constexpr int tile_nibble_of(int n)
{
    return n / 8 * 4 + n % 8 / 2 + (n % 2 ? 16 : 0);
}

/* Two bits from each nibble of a word, one behind the other. */
static __device__ __forceinline__ uint32_t tile_squeeze(uint32_t x)
{
    x = (x | x >> 2) & 0x0f0f0f0fu;
    x = (x | x >> 4) & 0x00ff00ffu;
    return (x | x >> 8) & 0xffffu;
}

#endif
