/* matmul_params.h: what kernels of this folder get besides buffers.  Weight rows row_from .. row_to-1 lie in this
 * part of the weight, the first at its begin; rows count through all experts.  Fields of 8 bytes first. */
#ifndef KVANT_PORTABLE_MATMUL_PARAMS_H
#define KVANT_PORTABLE_MATMUL_PARAMS_H

/* n_scale: 0, 1 or one per expert.  has_ids: output row r uses expert ids[r] and activation row r / x_div. */
struct p_matmul {
    int64_t row_bytes, row_from, row_to, ldx, ldy;
    int32_t n_in, n_out, rows, out_from, x_div, n_scale, has_ids;
};
struct p_embed { int64_t row_bytes, row_from, row_to; int32_t n_in, has_scale; };

#endif
