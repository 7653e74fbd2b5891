/* gdn_chunk.cu: the gated delta rule over whole prompts on tensor cores, dk = dv = 128.
 *
 * With G the running sum of g in a chunk of C = 64 tokens, S the state before it, and
 *     A[t][i] = beta_t e^(G_t - G_i) <k_t, k_i>, i < t        T = (I + A)^-1        (unit lower triangular)
 *     P[t][i] = e^(G_t - G_i) <q_t, k_i> / sqrt(dk), i <= t
 * a chunk is
 *     R = V - e^G (K S)        U = T diag(beta) R
 *     o = e^G (Q S) / sqrt(dk) + P U        S <- e^G_63 S + K^T (e^(G_63 - G) U)
 *
 * gdn_prep.cuh: T diag(beta), P, and K and Q as operands: what does not depend on the state, all chunks at once.
 * gdn_scan.cuh: the rest, chunk after chunk.
 *
 * Products are bf16 tensor cores on values split in two (hi + lo, 16 bits of mantissa): hi hi + hi lo + lo hi with f32
 * sums, which keeps the class of the op (NMSE 1e-7); sequences that do not begin or end on the 64 grid have rows of
 * zeros there, which change nothing.
 * Gates per channel are not taken: their A and P are no products of two matrices. */
#include "devices/cuda/gdn/gdn_prep.cuh"
#include "devices/cuda/gdn/gdn_scan.cuh"

bool gdn_chunk_fits(const cuda_device *d, const kvant_gdn_args *a)
{
    const uintptr_t at = (uintptr_t)a->q | (uintptr_t)a->k | (uintptr_t)a->v | (uintptr_t)a->state | (uintptr_t)a->o;
    return !a->per_channel && a->dk == D && a->dv == D && d->smem_max >= scan_room(d->arch.make) &&
           ((at | (uintptr_t)(4 * (a->ldq | a->ldk | a->ldv | a->slot_stride))) & 15) == 0;
}

static int64_t slots_of(const kvant_gdn_args *a)
{
    const int64_t all = a->seqs.n_tokens / C + 2 * (int64_t)a->seqs.n_seqs, most = (int64_t)SEGMENT * a->seqs.n_seqs;
    return all < most ? all : most;
}

size_t gdn_chunk_scratch(const kvant_gdn_args *a)
{
    return (size_t)slots_of(a) * ((size_t)a->hv * SLOT + (size_t)a->hk * KEY_SLOT);
}

template <int MAKE> static void (*scan_of(const chunk_job &p))(chunk_job)
{
    return p.g.a.state_type == KVANT_STATE_BF16 ? scan_kernel<__nv_bfloat16, MAKE> : scan_kernel<float, MAKE>;
}

/* As cuda_launch, with the blocks of a head as clusters: four where the GPU can hold all at once, else two. */
static void launch_clusters(const cuda_device *d, dim3 grid, const chunk_job &p)
{
    void (*const scan)(chunk_job) = scan_of<ARCH_90>(p);
    cudaLaunchAttribute attr[2] = {};
    cudaLaunchConfig_t cfg = {};
    attr[0].id = cudaLaunchAttributeClusterDimension;
    attr[0].val.clusterDim.x = CLUSTER;
    attr[0].val.clusterDim.y = attr[0].val.clusterDim.z = 1;
    attr[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attr[1].val.programmaticStreamSerializationAllowed = 1;
    cfg.gridDim = grid;
    cfg.blockDim = dim3(scan_threads(ARCH_90));
    cfg.dynamicSmemBytes = scan_room(ARCH_90);
    cfg.stream = d->stream;
    cfg.attrs = attr;
    cfg.numAttrs = 2;
    int fit = 0;
    const int want = (int)(grid.x * grid.y * grid.z) / CLUSTER, most = d->n_sm / CLUSTER;
    cuda_smem(scan, scan_room(ARCH_90));
    if (cudaOccupancyMaxActiveClusters(&fit, scan, &cfg) != cudaSuccess || fit < (want < most ? want : most - 1))
        attr[0].val.clusterDim.x = CLUSTER / 2;
    cudaLaunchKernelEx(&cfg, scan, p);
}

static void launch_scan(const cuda_device *d, dim3 grid, const chunk_job &p)
{
    if (d->arch.make == ARCH_90) {
        launch_clusters(d, grid, p);
        return;
    }
    cuda_smem(scan_of<ARCH_80>(p), scan_room(ARCH_80));
    cuda_launch(d, scan_of<ARCH_80>(p), grid, scan_threads(ARCH_80), scan_room(ARCH_80), p);
}

void gdn_chunk_run(cuda_device *d, const gdn_job *g, unsigned char *scratch)
{
    const kvant_gdn_args *a = &g->a;
    const int segments = (a->seqs.n_tokens / C + 2 + SEGMENT - 1) / SEGMENT;
    void (*const prep)(chunk_job) = d->arch.make == ARCH_90 ? prep_kernel<ARCH_90> : prep_kernel<ARCH_80>;
    chunk_job p = { *g, scratch, scratch + slots_of(a) * a->hv * SLOT, 0, (int)slots_of(a) };
    cuda_smem(prep, PREP_SMEM);
    for (p.segment = 0; p.segment < segments; p.segment++) {
        cuda_launch(d, prep, dim3((unsigned)(p.n_slots * a->hv)), PREP_THREADS, PREP_SMEM, p);
        launch_scan(d, dim3(CLUSTER, (unsigned)a->hv, (unsigned)a->seqs.n_seqs), p);
    }
}
