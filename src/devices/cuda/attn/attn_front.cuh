/* attn_front.cuh: what comes between the products of queries, keys and values and the kernels of decode/ and prefill/,
 * in one launch; see attn_front.cu. */
#ifndef KVANT_CUDA_ATTN_FRONT_CUH
#define KVANT_CUDA_ATTN_FRONT_CUH

#include "devices/cuda/core/cuda_dev.cuh"
#include "devices/cuda/ops/qk.cuh"

struct front_job : attn_call {
    side_dev k, v;                /* they get the rows, in tails or pages of 16 bits; queries turn as K does */
    const float *k_rows, *v_rows; /* [n_tokens][ld_rows] */
    int64_t ld_rows;
    head_ahead ahead;
    uint16_t *raw, *turned;       /* operands of the queries (prep.cuh), [n_tokens][h][d] */
    bool k_bf16, v_bf16;          /* pages of bf16; then queries are in two parts (prep.cuh) */
    int d, each;                  /* heads of a token that a warp has */
};

/* Returns true if the launch can do this: rows where vectors may read and write them, rotations that a warp can do. */
bool front_fits(const front_job &p);
void front_run(const cuda_device *d, front_job p);

#endif
