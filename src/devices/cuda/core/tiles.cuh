/* tiles.cuh: tiles of consecutive token rows of one sequence inside one page, found by number on the device. */
#ifndef KVANT_CUDA_TILES_CUH
#define KVANT_CUDA_TILES_CUH

#include "devices/cuda/core/cuda_dev.cuh"

/* A tile: token rows first .. first+count-1 of sequence seq, all inside one page. */
typedef struct tile {
    int seq, first, count, pos;
} tile;

/* Tile number `t` of the batch, found by the first warp; tiles lie on the absolute grid of `tokens` positions. */
static __device__ bool tile_at(const seqs_dev &seqs, int tokens, int t, tile *o)
{
    __shared__ tile found;
    __syncthreads();
    if (threadIdx.x < 32) {
        const int lane = threadIdx.x;
        int left = t;
        if (lane == 0)
            found.seq = -1;
        __syncwarp();                  /* before another lane writes what it found */
        for (int base = 0; base < seqs.n_seqs; base += 32) {
            const int s = base + lane;
            int lo = 0, n = 0, pos0 = 0, tiles = 0;
            if (s < seqs.n_seqs) {
                lo = seqs.q0[s];
                n = seqs.q0[s + 1] - lo;
                pos0 = seqs.pos0[s];
                tiles = n > 0 ? (pos0 + n - 1) / tokens - pos0 / tokens + 1 : 0;
            }
            int sum = tiles;
            for (int m = 1; m < 32; m *= 2) {
                const int other = __shfl_up_sync(0xffffffffu, sum, m);
                sum += lane >= m ? other : 0;
            }
            if (left >= sum - tiles && left < sum) {
                const int from = (pos0 / tokens + left - (sum - tiles)) * tokens, to = from + tokens;
                const int a = from > pos0 ? from : pos0, b = to < pos0 + n ? to : pos0 + n;
                found.seq = s;
                found.first = lo + a - pos0;
                found.count = b - a;
                found.pos = a;
            }
            const int all = __shfl_sync(0xffffffffu, sum, 31);
            if (left < all)
                break;
            left -= all;
        }
    }
    __syncthreads();
    *o = found;
    return o->seq >= 0;
}

#endif
