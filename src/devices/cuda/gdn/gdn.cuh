/* gdn.cuh: the gated delta rule, as gdn.cu (tokens one by one) and gdn_chunk.cu (chunks on tensor cores) share it. */
#ifndef KVANT_CUDA_GDN_CUH
#define KVANT_CUDA_GDN_CUH

#include "devices/cuda/gdn/state.cuh"

typedef struct gdn_job {
    kvant_gdn_args a;
    seqs_dev seqs;
    const void *gathered;              /* [n_seqs][hv][dv][dk]: states read from another slot, as they are stored */
    int phase;                         /* 1: prompt sequences */
    float scale;
} gdn_job;

/* gdn_chunk.cu: shapes it takes; scratch beside the gathered states; the launches. */
bool gdn_chunk_fits(const cuda_device *d, const kvant_gdn_args *a);
size_t gdn_chunk_scratch(const kvant_gdn_args *a);
void gdn_chunk_run(cuda_device *d, const gdn_job *g, unsigned char *scratch);

#endif
