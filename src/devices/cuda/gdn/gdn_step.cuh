/* gdn_step.cuh: a token of the gated delta rule where dk = 128: a warp owns STEP_COLS columns of the state, four values
 * of each per lane; the sums of all columns go through one tree of shuffles, after which lane 4 c holds column c. */
#ifndef KVANT_CUDA_GDN_STEP_CUH
#define KVANT_CUDA_GDN_STEP_CUH

#include "devices/cuda/gdn/gdn.cuh"

enum { STEP_COLS = 8, STEP_WARPS = 4 };

/* exp of the gates of a lane's four channels. */
template <bool CHANNELS>
static __device__ __forceinline__ float4 fades_of(const kvant_gdn_args &a, int t, int v, int lane)
{
    const int64_t head = (int64_t)t * a.hv + v;
    if (!CHANNELS) {
        const float decay = expf(a.g[head]);
        return make_float4(decay, decay, decay, decay);
    }
    const float4 g = *(const float4 *)(a.g + head * 128 + 4 * lane);
    return make_float4(expf(g.x), expf(g.y), expf(g.z), expf(g.w));
}

/* A warp's columns col .. of head v. */
template <typename T> struct gdn_columns {
    float4 c[STEP_COLS];
    int first, end, v, kh, col, mine;
    T *to; /* NULL: the state is not written */

    /* Reads the state; false: the sequence or the columns take no part. */
    __device__ __forceinline__ bool begin(const gdn_job &p, int s, int head, int column)
    {
        const kvant_gdn_args &a = p.a;
        const int lane = threadIdx.x % 32;
        /* all that says where the state is, at once: one round trip before the state itself */
        const int prompt = p.seqs.prompt[s] != 0, in = p.seqs.slot_in[s], out = p.seqs.slot_out[s];
        first = p.seqs.q0[s];
        end = p.seqs.q0[s + 1];
        v = head;
        kh = a.interleaved ? v / (a.hv / a.hk) : v % a.hk;
        col = column;
        mine = lane / 4;
        if (col >= a.dv || prompt != p.phase || end <= first)
            return false;
        const int64_t at = ((int64_t)v * a.dv + col) * 128 + 4 * lane, n = (int64_t)a.hv * a.dv * 128;
        to = out < 0 ? NULL : (T *)a.state + out * a.slot_stride + at;
        const T *from = reads_in_place(in, out) ? (const T *)a.state + in * a.slot_stride + at
                                                : (const T *)p.gathered + s * n + at;
#pragma unroll
        for (int j = 0; j < STEP_COLS; j++)
            c[j] = in < 0 ? make_float4(0.0f, 0.0f, 0.0f, 0.0f) : load_four(from + 128 * j);
        return true;
    }

    /* Token t; what column col + mine gives. */
    template <bool CHANNELS> __device__ __forceinline__ float step(const gdn_job &p, int s, int t)
    {
        const kvant_gdn_args &a = p.a;
        const int lane = threadIdx.x % 32;
        const float4 k = *(const float4 *)(a.k + t * a.ldk + (int64_t)kh * 128 + 4 * lane);
        const float4 q = *(const float4 *)(a.q + t * a.ldq + (int64_t)kh * 128 + 4 * lane);
        const float value = a.v[t * a.ldv + (int64_t)v * a.dv + col + mine];
        const float beta = a.beta[(int64_t)t * a.hv + v];
        const float4 f = fades_of<CHANNELS>(a, t, v, lane);
        float part[STEP_COLS];
#pragma unroll
        for (int j = 0; j < STEP_COLS; j++) {
            c[j] = make_float4(c[j].x * f.x, c[j].y * f.y, c[j].z * f.z, c[j].w * f.w);
            part[j] = fmaf(c[j].w, k.w, fmaf(c[j].z, k.z, fmaf(c[j].y, k.y, c[j].x * k.x)));
        }
        const float u = beta * (value - sum_lanes<STEP_COLS>(part));
#pragma unroll
        for (int j = 0; j < STEP_COLS; j++) {
            const float w = __shfl_sync(0xffffffffu, u, 4 * j);
            c[j] = make_float4(fmaf(k.x, w, c[j].x), fmaf(k.y, w, c[j].y), fmaf(k.z, w, c[j].z), fmaf(k.w, w, c[j].w));
            part[j] = fmaf(c[j].w, q.w, fmaf(c[j].z, q.z, fmaf(c[j].y, q.y, c[j].x * q.x)));
        }
        const float o = p.scale * sum_lanes<STEP_COLS>(part);
        if (sizeof(T) != sizeof(float) && rounds_after(p.seqs, p.phase, s, t))
#pragma unroll
            for (int j = 0; j < STEP_COLS; j++)
                c[j] = rounded_four<T>(c[j]);
        return o;
    }

    __device__ __forceinline__ void end_state() const
    {
        if (!to)
            return;
#pragma unroll
        for (int j = 0; j < STEP_COLS; j++)
            store_four(to + 128 * j, c[j]);
    }
};

/* The shapes of these columns: whole columns, words of four values. */
static inline bool gdn_step_fits(const kvant_gdn_args *a)
{
    const uintptr_t gates = a->per_channel ? (uintptr_t)a->g : 0;
    const uintptr_t at = (uintptr_t)a->q | (uintptr_t)a->k | (uintptr_t)a->state | gates;
    return a->dk == 128 && a->dv % STEP_COLS == 0 && (at & 15) == 0 && ((a->ldq | a->ldk | a->slot_stride) & 3) == 0;
}

#endif
