/* router.cuh: norm_add_rms, the product of its row with a router in f32, and moe_route, in one launch. */
#ifndef KVANT_CUDA_ROUTER_CUH
#define KVANT_CUDA_ROUTER_CUH

#include "devices/cuda/core/cuda_dev.cuh"

/* How many of the ops are those, of one row that a launch before adds to the residual row; between product and choice
 * there may be a shared expert's gate.  0: not these. */
int cuda_router_takes(const cuda_device *d, const kvant_op *ops, int n);
void cuda_router(cuda_device *d, const kvant_op *ops, int n);

#endif
