/* softmax_state.cuh: what a lane carries of a running softmax: maxima, weights and TILES tiles of weighted sums. */
#ifndef KVANT_CUDA_SOFTMAX_STATE_CUH
#define KVANT_CUDA_SOFTMAX_STATE_CUH

#define NOTHING (-3e38f) /* the maximum before any score */

template <int TILES> struct softmax_state {
    float m[2], l[2], o[TILES][4];
};

template <int TILES> static __device__ __forceinline__ void state_clear(softmax_state<TILES> &a)
{
    a.m[0] = a.m[1] = NOTHING;
    a.l[0] = a.l[1] = 0.0f;
#pragma unroll
    for (int i = 0; i < TILES; i++)
        a.o[i][0] = a.o[i][1] = a.o[i][2] = a.o[i][3] = 0.0f;
}

#endif
