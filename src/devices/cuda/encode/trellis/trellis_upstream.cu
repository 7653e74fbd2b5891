/* trellis_upstream.cu: turbo3_tcq, `upstream`: a warp to a unit of 128 values (`best`: trellis_best.cu). */
#include "devices/cuda/encode/trellis/trellis_exact.cuh"

enum { WARPS = 4, TCQ_FIRST = 16 + 6 };

/* A warp keeps this.  y: the unit, rotated, of length 1. */
typedef struct __align__(16) tcq_desk {
    float y[GROUP_MAX];
    tcq_room room;
    tcq_path path;
    uint32_t out[TCQ_WORDS];
} tcq_desk;

/* ---- norms ---- */

/* This lane's four levels of a path. */
static __device__ __forceinline__ void tcq_levels(const tcq_path &p, float *c)
{
    const uint2 states = ((const uint2 *)p.state)[threadIdx.x % 32];
    c[0] = fmt_c_turbo3_tcq_codebook[states.x & 511], c[1] = fmt_c_turbo3_tcq_codebook[states.x >> 16];
    c[2] = fmt_c_turbo3_tcq_codebook[states.y & 511], c[3] = fmt_c_turbo3_tcq_codebook[states.y >> 16];
}

/* Sum of squares, one after another as in the reference. */
static __device__ __forceinline__ float tcq_square(const float *x)
{
    float s = 0.0f;
#pragma unroll 8
    for (int i = 0; i < GROUP_MAX; i += 4) {
        const float4 v = *(const float4 *)(x + i);
        s += v.x * v.x;
        s += v.y * v.y;
        s += v.z * v.z;
        s += v.w * v.w;
    }
    return s;
}

/* ---- storing ---- */

/* Symbol t at bit 6 + 3 t behind the scale. */
static __device__ __forceinline__ void tcq_store(tcq_desk &w, const tcq_path &p, uint16_t scale, uint8_t *row)
{
    const int lane = threadIdx.x % 32, bit = TCQ_FIRST + 12 * lane;
    const uint2 states = ((const uint2 *)p.state)[lane];
    const uint32_t four =
        (states.x >> 6 & 7) | (states.x >> 22) << 3 | (states.y >> 6 & 7) << 6 | (states.y >> 22) << 9;
    const uint64_t at = (uint64_t)four << bit % 32;
    if (lane < TCQ_WORDS)
        w.out[lane] = lane == 0 ? scale | (uint32_t)(p.start >> 3) << 16 : 0;
    __syncwarp();
    atomicOr(&w.out[bit / 32], (uint32_t)at);
    if (at >> 32)
        atomicOr(&w.out[bit / 32 + 1], (uint32_t)(at >> 32));
    __syncwarp();
    if (lane < TCQ_BYTES / 2)
        enc_put(row + 2 * lane, (uint16_t)(w.out[lane / 2] >> lane % 2 * 16));
}

/* This warp's unit, its values in w.y; false: nothing to encode. */
static __device__ __forceinline__ bool tcq_load(const encode_job &p, unsigned n, unit *o, tcq_desk &w)
{
    const int at = threadIdx.x % 32 * 4;
    float v[4];
    if (!unit_at(p, n, o))
        return false;
    unit_load4<false>(p, *o, at, v);
    if (o->tail) {
        tail_store4<false>(p, o->tail, at, o->count, v);
        return false;
    }
    *(float4 *)(w.y + at) = make_float4(v[0], v[1], v[2], v[3]);
    __syncwarp();
    return true;
}

/* The unit at length 1, rotated; its length. */
static __device__ __forceinline__ float tcq_prepare(tcq_desk &w)
{
    const float norm = sqrtf(tcq_square(w.y)), inv = norm > 1e-10f ? 1.0f / norm : 0.0f;
    const int lane = threadIdx.x % 32;
    const float4 four = ((const float4 *)w.y)[lane];
    float y[4] = { four.x * inv, four.y * inv, four.z * inv, four.w * inv };
    warp_rotate<4>(SPACE_R128, y, lane);
    __syncwarp();
    ((float4 *)w.y)[lane] = make_float4(y[0], y[1], y[2], y[3]);
    __syncwarp();
    return norm;
}

/* Upstream's scale: that keeps the length. */
static __device__ __forceinline__ uint16_t tcq_upstream(tcq_desk &w, float norm)
{
    float c[4], *levels = (float *)w.room.back;      /* which nobody goes back by any more */
    tcq_levels(w.path, c);
    ((float4 *)levels)[threadIdx.x % 32] = make_float4(c[0], c[1], c[2], c[3]);
    __syncwarp();
    const float length = sqrtf(tcq_square(levels));
    __syncwarp();
    return f32_to_half(length > 1e-10f ? norm / length : norm);
}

static __global__ void __launch_bounds__(32 * WARPS) encode_trellis_upstream_kernel(jobs js)
{
    __shared__ tcq_desk room[WARPS];
    const encode_job &p = js.j[blockIdx.y];
    tcq_desk &w = room[threadIdx.x / 32];
    unit o;

    pdl_go();
    pdl_wait();
    if (!tcq_load(p, blockIdx.x * WARPS + threadIdx.x / 32, &o, w))
        return;
    const float norm = tcq_prepare(w);
    tcq_walk(w.y, 1.0f, w.room, &w.path);
    const uint16_t scale = tcq_upstream(w, norm);
    tcq_store(w, w.path, scale, o.row + o.g / GROUP_MAX * TCQ_BYTES);
}

void cuda_trellis_encode(cuda_device *d, const jobs &p, int sides)
{
    const dim3 blocks(cuda_blocks(p.j[0].units, WARPS), (unsigned)sides);
    if (cuda_trellis_best_encode(d, p, NULL, sides))
        return;
    /* not ahead of its turn (cuda_launch): its blocks would crowd on the first multiprocessors that are free */
    encode_trellis_upstream_kernel<<<blocks, 32 * WARPS, 0, d->stream>>>(p);
}
