/* gdn_front.cuh: decode sequences: the launch before the gated delta rule and that of it with what is behind it. */
#ifndef KVANT_CUDA_GDN_FRONT_CUH
#define KVANT_CUDA_GDN_FRONT_CUH

#include "devices/cuda/gdn/gdn_step.cuh"
#include "devices/cuda/ops/gates.cuh"

enum { FRONT_SEQS = 8, FRONT_MOST = 17 }; /* sequences of the kernel for few, and at most */

/* The products that the gates are of, in f32: alpha's and beta's rows times x[.][d]; x NULL: they are there. */
typedef struct front_gates {
    const float *alpha, *beta, *x;
    int64_t ldx;
    int d;
} front_gates;

/* conv_step, norm_l2 of the first heads of its result, gdn_gates (s NULL: the gates are there); and the states that are
 * read from other slots go to the job's scratch. */
bool gdn_front_fits(const kvant_conv_args *c, const kvant_norm_l2_args *n);
void gdn_front_run(cuda_device *d, const kvant_conv_args *c, const kvant_norm_l2_args *n,
                   const kvant_gdn_gates_args *s, const front_gates &products, const gdn_job &g);

/* gdn_step, after states were gathered, and norm_gated of its result. */
bool gdn_out_fits(const kvant_gdn_args *g, const kvant_norm_gated_args *a);
void gdn_out_run(cuda_device *d, const gdn_job &g, const kvant_norm_gated_args *a);

#endif
