/* sketch_wgmma.cu: qjl1_256 for compute capability 9.0, one product in halves, bits near zero summed again.
 *
 * By Cauchy and Schwarz the product is off by |x| |dp| + |dx| |p| at most, with the lengths of the rounding errors;
 * where it is nearer to zero than that (about one bit of a row), eight lanes make the sum again in f32, and where that
 * is within the rounding of f32 too, one after another as the reference adds: the bits are the reference's.  Norms in
 * double where f32 could round them the other way.
 *
 * A warpgroup multiplies 64 units with all columns by wgmma; otherwise a warp works alone on 16 of them, a tile of one
 * head: values to shared memory, halves in registers, products to signs and to flags of those that are too near to zero
 * (one of a row's 256), which eight lanes each sum again with the projection's column from the L1.  The columns' halves
 * have one length, so one bound serves all, and an order that leaves a lane with neighbouring bits. */
#include "devices/cuda/encode/sketch/sketch_rows.cuh"
#include "devices/cuda/attn/pack.cuh"
#include "devices/cuda/core/wgmma.cuh"

enum {
    WIDE_GROUPS = 3, WIDE_WARPS = 4 * WIDE_GROUPS, WIDE_THREADS = 32 * WIDE_WARPS,
    WIDE_COPIES = 4,                /* of the halves */
    WIDE_LIST = 48, WIDE_SPARE = 16
};

/* Bits to sum again: row 256 + column each, and some that nobody wants; their rows' bounds (wide_row). */
typedef struct wide_list {
    uint16_t bit[WIDE_LIST + WIDE_SPARE];
    float sure[WIDE_ROWS];
} wide_list;

typedef struct wide_room {
    uint8_t halves[2 * SKETCH_VALUES];
    uint8_t x[WIDE_WARPS][WIDE_ROWS * WIDE_ROW];
    wide_list list[WIDE_WARPS];
    uint64_t there;                 /* the halves are */
} wide_room;

#if ARCH_GROUPS

/* ---- rows to halves ---- */

/* A lane knows this of a row of its products. */
typedef struct wide_row {
    uint32_t near;      /* a half, twice: products below are summed again; -1: none, infinite: all */
    float sure;         /* sums in f32 nearer to zero: again in order */
    float norm;
} wide_row;

/* The halves' power of two: one for rows of usual size. */
static __device__ __forceinline__ float wide_scale(float norm)
{
    return norm >= 0x1p-5f && norm <= 0x1p14f ? 1.0f : __uint_as_float((254u - (__float_as_uint(norm) >> 23)) << 23);
}

/* The row's bounds; by 0: a row whose sums could overflow. */
static __device__ __forceinline__ wide_row wide_bounds(const sketch_image *m, float norm, float by, float off)
{
    const float size = norm * 1.001f, sure = size * m->doubt;
    const float near = fmaf(size * by, m->off, sqrtf(off) * 1.001f * m->length);
    const uint32_t half = norm == 0.0f                        ? 0xbc00u
                          : !(by != 0.0f && near < 60000.0f) ? 0x7c00u
                                                             : __half_as_ushort(__float2half_ru(near)) + 1u;
    return { half | half << 16, by != 0.0f && sure > 1e-30f ? sure : INFINITY, norm };
}

/* Rows g and g + 8 of the warp's 16 as operands; live: bit r says that row r is wanted. */
static __device__ __forceinline__ void wide_convert(const sketch_image *m, const uint8_t *x, unsigned live,
                                                    uint32_t (*a)[4], wide_row *row)
{
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const int from = wide_at(g, 4 * t), last = wide_at(g, 16 * 7 + 4 * t);
    float v[2][32], norm[2], by[2], off[2][2] = {};
    bool there[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float square[4] = {};
        there[i] = live >> (g + 8 * i) & 1;
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const float4 f = *(const float4 *)(x + 8 * WIDE_ROW * i + (k < 7 ? from + 64 * k : last));
            v[i][4 * k] = f.x, v[i][4 * k + 1] = f.y, v[i][4 * k + 2] = f.z, v[i][4 * k + 3] = f.w;
        }
#pragma unroll
        for (int k = 0; k < 32; k++)
            square[k % 4] = fmaf(v[i][k], v[i][k], square[k % 4]);
        norm[i] = sketch_norm(enc_sum<4>((square[0] + square[1]) + (square[2] + square[3])), v[i], there[i]);
        by[i] = norm[i] > 0x1p-100f && norm[i] < 0x1p100f ? wide_scale(norm[i]) : 0.0f;
    }
    if (__any_sync(0xffffffffu, (there[0] && by[0] != 1.0f) || (there[1] && by[1] != 1.0f)))
#pragma unroll
        for (int k = 0; k < 64; k++)
            v[k / 32][k % 32] = by[k / 32] != 0.0f ? v[k / 32][k % 32] * by[k / 32] : 0.0f;
#pragma unroll
    for (int k = 0; k < 8; k++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            a[k][i] = sketch_halves(v[i][4 * k], v[i][4 * k + 1], &off[i][0]);
            a[k][2 + i] = sketch_halves(v[i][4 * k + 2], v[i][4 * k + 3], &off[i][1]);
        }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        row[i] = wide_bounds(m, norm[i], by[i], enc_sum<4>(off[i][0] + off[i][1]));
        if (!there[i])
            row[i].near = 0xbc00bc00u;
    }
}

/* ---- products to bits ---- */

/* The signs of four halves, each in a byte. */
static __device__ __forceinline__ uint32_t wide_signs(uint32_t a, uint32_t b)
{
    uint32_t v;
    asm("prmt.b32 %0, %1, %2, 0xfdb9;" : "=r"(v) : "r"(a), "r"(b));
    return v;
}

/* Half of the columns: 32 bits of both rows, and which of them are near. */
static __device__ __forceinline__ void wide_product(uint64_t halves, const uint32_t (*a)[4], const wide_row *row,
                                                    uint32_t *bits, uint32_t *again)
{
    float acc[16][4];
    group_open<128>(acc);
#pragma unroll
    for (int k = 0; k < 8; k++) {
        const uint64_t b = halves + (k / 4 * (SKETCH_COLUMNS * 128) + k % 4 * 32) / 16;
        if (k == 0)
            group_mma_regs<128, 0, 0>(acc, a[k], b);
        else
            group_mma_regs<128, 0>(acc, a[k], b);
    }
    group_close<128>(acc);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t word[2];
#pragma unroll
        for (int j = 0; j < 16; j++) {
            const uint32_t z = pack_halves(acc[j][2 * i], acc[j][2 * i + 1]), mask = 0x01010101u << j % 8;
            const __half2 left = __hsub2(__habs2(*(const __half2 *)&z), *(const __half2 *)&row[i].near);
            const uint32_t s = wide_signs(z, *(const uint32_t *)&left);
            word[j / 8] = j % 8 == 0 ? s : (s & mask) | (word[j / 8] & ~mask);
        }
        bits[2 * i] = row[i].norm == 0.0f ? 0 : ~permute(word[0], word[1], 0x5410);
        again[2 * i] = permute(word[0], word[1], 0x7632);
    }
}

/* ---- bits near zero ---- */

/* Seldom wanted: kept out of the loop. */
static __device__ __noinline__ bool wide_in_order(const uint8_t *x, int r, const float *column)
{
    return sketch_in_order(x, column, [r](int i) { return wide_at(r, i); });
}

static __device__ __forceinline__ void wide_add_products(const uint8_t *x, const float *column, float *sum)
{
    const float4 u = *(const float4 *)x, w = __ldg((const float4 *)column);
    sum[0] = fmaf(u.x, w.x, sum[0]);
    sum[1] = fmaf(u.y, w.y, sum[1]);
    sum[2] = fmaf(u.z, w.z, sum[2]);
    sum[3] = fmaf(u.w, w.w, sum[3]);
}

/* This lane's part of <row, column>, of eight lanes; want: row 256 + column. */
static __device__ __forceinline__ float wide_part(const sketch_image *m, const uint8_t *x, int want)
{
    const int l = threadIdx.x % 8, r = want >> 8, turned = 16 * l + r % 2 * 64;
    const float *column = m->columns[want & 255] + 4 * l;
    const uint8_t *row = x + WIDE_ROW * r;
    float sum[4] = {};
#pragma unroll
    for (int i = 0; i < 3; i++)
        wide_add_products(row + turned + 128 * i, column + 32 * i, sum);
    wide_add_products(row + (turned + 384 & 511), column + 96, sum);
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* Four sums over eight lanes: number l % 4 to lane l. */
static __device__ __forceinline__ float wide_fold(const float *s)
{
    const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
    const float low = (odd ? s[1] : s[0]) + __shfl_xor_sync(0xffffffffu, odd ? s[0] : s[1], 1);
    const float up = (odd ? s[3] : s[2]) + __shfl_xor_sync(0xffffffffu, odd ? s[2] : s[3], 1);
    const float sum = (high ? up : low) + __shfl_xor_sync(0xffffffffu, high ? low : up, 2);
    return sum + __shfl_xor_sync(0xffffffffu, sum, 4);
}

/* Bits 0 .. 15: whether the sums of sixteen bits of the list are > 0, four of them to every eight lanes. */
static __device__ __forceinline__ uint32_t wide_sixteen(const sketch_image *m, const wide_list &list, const uint8_t *x,
                                                        int at)
{
    const int lane = threadIdx.x % 32;
    const uint16_t *four = list.bit + at + lane / 8 * 4;
    float part[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        part[i] = wide_part(m, x, four[i]);
    const float sum = wide_fold(part);
    const int mine = four[lane % 4];
    bool set = sum > 0.0f;
    if (lane % 8 < 4 && !(fabsf(sum) > list.sure[mine >> 8]))
        set = wide_in_order(x, mine >> 8, m->columns[mine & 255]);
    const uint32_t fours = __ballot_sync(0xffffffffu, set) & 0x0f0f0f0fu, bytes = fours | fours >> 4;
    return (bytes & 255u) | (bytes >> 8 & 0xff00u);
}

/* Words 2 i, 2 i + 1 of bits and again: bits 64 t .. of row g + 8 i. */
static __device__ __forceinline__ void wide_again(const sketch_image *m, wide_list &list, const uint8_t *x,
                                                  const wide_row *row, uint32_t *bits, uint32_t *again)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    if (t < 2)
        list.sure[g + 8 * t] = t ? row[1].sure : row[0].sure;
    for (;;) {
        const int n = __popc(again[0]) + __popc(again[1]) + __popc(again[2]) + __popc(again[3]);
        int end = n;
#pragma unroll
        for (int k = 1; k < 32; k *= 2) {
            const int other = __shfl_up_sync(0xffffffffu, end, k);
            end += lane >= k ? other : 0;
        }
        const int want = __shfl_sync(0xffffffffu, end, 31), all = want < WIDE_LIST ? want : WIDE_LIST;
        if (all == 0)
            return;
        int at = end - n;
#pragma unroll
        for (int w = 0; w < 4; w++)
            for (uint32_t left = again[w]; left && at < WIDE_LIST; left &= left - 1)
                list.bit[at++] = (uint16_t)((g + w / 2 * 8) << 8 | (64 * t + w % 2 * 32 + __ffs((int)left) - 1));
        if (lane < WIDE_SPARE)
            list.bit[all + lane] = 0;
        __syncwarp();
        uint64_t set = 0;
        for (int i = 0; i < all; i += 16)
            set |= (uint64_t)wide_sixteen(m, list, x, i) << i;
        at = end - n;
#pragma unroll
        for (int w = 0; w < 4; w++)
            for (uint32_t left = again[w]; left && at < WIDE_LIST; left &= left - 1) {
                const uint32_t bit = left & (0u - left);
                again[w] &= ~bit;
                bits[w] = set >> at++ & 1u ? bits[w] | bit : bits[w] & ~bit;
            }
        if (want <= WIDE_LIST)
            return;
        __syncwarp();
    }
}

/* ---- stores ---- */

/* The bytes of the warp's rows, gathered where the values were. */
static __device__ __forceinline__ void wide_store(const encode_job &p, uint8_t *x, const wide_row *row,
                                                  const uint32_t *bits, const run_slot &slot)
{
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    __syncwarp();                   /* all lanes have read their values */
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint8_t *out = x + SKETCH_BYTES * (g + 8 * i);
#pragma unroll
        for (int k = 0; k < 4; k++)
            enc_put(out + 8 * t + 2 * k, (uint16_t)(bits[2 * i + k / 2] >> 16 * (k % 2)));
        if (t == i)
            enc_put(out + 32, f32_to_bf16(row[i].norm));
    }
    __syncwarp();
    wide_out(p, slot, x);
    __syncwarp();                   /* before the next values come here */
}

/* As wide_store, to a page sealed packed (pack.cuh): the tile is a head of it, a lane's words are neighbours. */
static __device__ __forceinline__ void wide_pack(const wide_row *row, const uint32_t *bits, uint8_t *to)
{
    enum { BLOCK = PACK_BLOCK * SKETCH_BYTES, CODES = PACK_BLOCK * (SKETCH_BYTES - 2) };
    const int lane = threadIdx.x % 32, w = threadIdx.x / 32 % 4;
    uint8_t *block = to + w / 2 * BLOCK;
    ((uint4 *)block)[w % 2 * 32 + lane] = make_uint4(bits[0], bits[2], bits[1], bits[3]);
    if (lane % 4 == 0)
        ((uint32_t *)(block + CODES))[w % 2 * 8 + lane / 4] = f32_to_bf16(row[0].norm) |
                                                              (uint32_t)f32_to_bf16(row[1].norm) << 16;
    __syncwarp();                   /* before the next values come where these were */
}

/* ---- the kernel ---- */

/* A tile whose values are on their way. */
template <bool SEAL>
static __device__ __forceinline__ void wide_encode(const encode_job &p, wide_room &s, const wide_tile &tile)
{
    const sketch_image *m = p.side.sketch;
    const uint64_t halves = swizzled(shared_at(s.halves), 0);
    uint8_t *x = s.x[threadIdx.x / 32];
    uint32_t a[8][4], bits[4], again[4];
    wide_row row[2];
    const run_unit unit = run_find(p, wide_first(tile), min(wide_left(p, tile), (int)WIDE_ROWS));
    async_wait<0>();
    __syncwarp();
    const run_slot slot = run_slot_of(p, unit, tile.h, SKETCH_BYTES);
    const unsigned tails = __ballot_sync(0xffffffffu, slot.tail >= 0);
    wide_convert(m, x, __ballot_sync(0xffffffffu, slot.page >= 0) & ~tails, a, row);
    if (tails)
        wide_tails(p, x, tails, slot);
    bar_wait(shared_at(&s.there), 0);
    wide_product(halves, a, row, bits, again);
    wide_product(halves + SKETCH_COLUMNS * 64 / 16, a, row, bits + 1, again + 1);
    wide_again(m, s.list[threadIdx.x / 32], x, row, bits, again);
    if (SEAL && p.side.layout)
        wide_pack(row, bits, side_row(p.side, p.dst[tile.n], tile.h, 0));
    else
        wide_store(p, x, row, bits, slot);
}

/* One thread: the halves of the projection on their way. */
static __device__ __forceinline__ void wide_begin(wide_room &s, const sketch_image *m)
{
    constexpr uint32_t bytes = sizeof s.halves / WIDE_COPIES;
    const uint32_t there = shared_at(&s.there);
    bar_init(there, 1);
    bar_publish();
    bar_expect(there, sizeof s.halves);
    for (int i = 0; i < WIDE_COPIES; i++)
        bulk_start(shared_at(s.halves) + bytes * i, (const uint8_t *)m->halves + bytes * i, bytes, there);
}

#endif

/* SEAL: the jobs' `seal` and `beside`; so that rows of the batch do not pay for it. */
template <bool SEAL> static __global__ void __launch_bounds__(WIDE_THREADS, 1) encode_sketch_wgmma_kernel(jobs js)
{
#if ARCH_GROUPS
    extern __shared__ __align__(1024) uint8_t wide_shared[];
    wide_room &s = *(wide_room *)wide_shared;
    const encode_job &p = js.j[blockIdx.y];
    const sketch_image *m = p.side.sketch;
    const unsigned all = (p.units / (unsigned)p.h + WIDE_TILE - 1) / WIDE_TILE * (unsigned)p.h;
    const unsigned first = blockIdx.x + threadIdx.x / 128 * gridDim.x, step = gridDim.x * WIDE_GROUPS;

    if (SEAL)
        job_begin(p);
    else
        pdl_go();
    if (threadIdx.x == 0)
        wide_begin(s, m);
    __syncthreads();
    if (SEAL)
        job_wait(p);
    else
        pdl_wait();
    wide_tile tile = wide_tile_at(p, first);
    if (first < all)
        wide_load<SEAL>(p, tile, s.x[threadIdx.x / 32]);
    /* the columns to the L2, once for all blocks */
    for (unsigned i = blockIdx.x * WIDE_THREADS + threadIdx.x; i < SKETCH_VALUES / 32; i += gridDim.x * WIDE_THREADS)
        asm volatile("prefetch.global.L2 [%0];" ::"l"((const float *)m->columns + 32 * i) : "memory");
    for (unsigned n = first; n < all; n += step) {
        wide_encode<SEAL>(p, s, tile);
        tile = wide_tile_at(p, n + step);
        if (n + step < all)
            wide_load<SEAL>(p, tile, s.x[threadIdx.x / 32]);
    }
    if (SEAL)
        job_end(p);
#endif
}

/* ---- the host's side ---- */

bool cuda_sketch_wide_encode(cuda_device *d, const jobs &p, int sides)
{
    const unsigned h = (unsigned)p.j[0].h, want = cuda_blocks(p.j[0].units / h, WIDE_TILE) * h;
    const unsigned most = cuda_blocks(d->n_sm, sides);
    constexpr int percent = (int)(100 * sizeof(wide_room) / (228 << 10));
    if (d->arch.make != ARCH_90 || !p.j[0].side.sketch || (sides > 1 && !p.j[1].side.sketch))
        return false;
    void (*const kernel)(jobs) = p.j[0].seal ? encode_sketch_wgmma_kernel<true> : encode_sketch_wgmma_kernel<false>;
    cuda_smem(kernel, sizeof(wide_room));
    cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, percent); /* the rest: L1 */
    cuda_launch(d, kernel, dim3(want < most ? want : most, (unsigned)sides), WIDE_THREADS, sizeof(wide_room), p);
    return true;
}
