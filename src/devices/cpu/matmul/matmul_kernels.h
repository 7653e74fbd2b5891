/* matmul_kernels.h: the two op kernels of an ISA from its table `isa`: MATMUL_KERNELS(avx2) defines kvant_matmul_avx2
 * and kvant_matmul_id_avx2.  Included once, at the end of a matmul_<isa>.c. */
#include "devices/cpu/matmul/matmul_drive.h"

#define MATMUL_STAGE(name, args_type)                                                          \
    static void stage_##name(const void *args, int part, int parts, const kvant_work *work)    \
    {                                                                                          \
        name(&isa, (const args_type *)args, part, parts, work);                                \
    }
#define MATMUL_KERNELS(isa_name)                                       \
    MATMUL_STAGE(matmul_quantise, kvant_matmul_args)                   \
    MATMUL_STAGE(matmul_run, kvant_matmul_args)                        \
    MATMUL_STAGE(matmul_id_group, kvant_matmul_id_args)                \
    MATMUL_STAGE(matmul_id_gather, kvant_matmul_id_args)               \
    MATMUL_STAGE(matmul_id_run, kvant_matmul_id_args)                  \
    const kvant_cpu_kernel kvant_matmul_##isa_name = {                 \
        .stages = 2,                                                   \
        .fn = { stage_matmul_quantise, stage_matmul_run },             \
        .shared_bytes = matmul_shared_bytes,                           \
        .local_bytes = matmul_local_bytes,                             \
        .first_stage = matmul_first_stage,                             \
    };                                                                 \
    const kvant_cpu_kernel kvant_matmul_id_##isa_name = {              \
        .stages = 3,                                                   \
        .fn = { stage_matmul_id_group, stage_matmul_id_gather,         \
                stage_matmul_id_run },                                 \
        .shared_bytes = matmul_id_shared_bytes,                        \
        .local_bytes = matmul_id_local_bytes,                          \
        .first_stage = matmul_id_first_stage,                          \
    };
