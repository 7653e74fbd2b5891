/* cuda_dev.cuh: the insides of libkvant-cuda.so: the device object, what an op's file provides, and small device
 * helpers. One stream per device; ops of a list run in order on it.  Integer inputs are device buffers: no op reads
 * them on the host.  Compiled without FMA contraction; sums that may fuse call fmaf. */
#ifndef KVANT_CUDA_DEV_CUH
#define KVANT_CUDA_DEV_CUH

#include <cuda_runtime.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "cards/numbers.h"
#include "devices/cuda/core/arch.cuh"
#include "devices/cuda/core/cuda_api.h"

/* One of every file's kernels, by which kernels.cu finds the others. */
struct cuda_file {
    const void *kernel;
    const cuda_file *next;
    explicit cuda_file(const void *one);
};

static __global__ void cuda_file_kernel()
{
}

static const cuda_file cuda_this_file((const void *)cuda_file_kernel);

enum { CUDA_MAX_GRAPHS = 32, CUDA_MAX_PARAMS = 8, CUDA_PINNED = 8 << 20 };

typedef struct cuda_graph {
    uint64_t key;                  /* 0: free */
    uint64_t used;                 /* for least recently used */
    cudaGraphExec_t exec;          /* NULL: seen once, not yet recorded */
} cuda_graph;

/* A format's parameter that came by param_load, or was named by an address on the host. */
typedef struct cuda_param {
    const void *at;                /* as sides name it: dev, or the host's address; NULL: free */
    size_t bytes;
    float *dev;
    const struct sketch_image *sketch; /* of a projection, behind it in its allocation; or NULL */
} cuda_param;

/* A GPU has these features, or KVANT_CUDA_MASK leaves them (arch.cu). */
typedef struct cuda_arch {
    int make;                      /* of its kernels (enum arch_make) */
    int major, minor;              /* compute capability */
    bool bulk;                     /* bulk copies; launches that begin before the last one's end */
    size_t smem_max;               /* dynamic shared memory that a block may ask for */
} cuda_arch;

typedef struct cuda_device {
    kvant_device base;
    int index, n_sm;
    cuda_arch arch;
    size_t smem_max;               /* arch.smem_max */
    size_t smem_first;             /* where it begins: what is before it is CUDA's own */
    bool fast_attn;                /* not KVANT_CUDA_ATTN=general: attn_decode.cu, attn_prefill.cu, their page layout */
    char name[128];
    cudaStream_t stream;
    bool stream_theirs;            /* the caller's: not ours to destroy */
    unsigned char *scratch;        /* of the op that runs; grown before a list, never inside */
    size_t scratch_bytes;
    bool scarce;                   /* memory for more scratch could not be had: ops do with the least they can */
    unsigned char *pinned;         /* host memory that small copies pass through; CUDA_PINNED bytes, or NULL */
    size_t pinned_used;            /* since the last wait */
    struct cuda_uploader *uploader;        /* upload.cu; NULL but while weights are loaded */
    struct cuda_slot_room *slots;          /* slots.cu; NULL before the first is filled */
    struct cuda_relay_room *relay;         /* relay.cu; NULL before the first relay */
    struct cuda_meet_room *meet;           /* meet.cu; NULL: it meets nobody */
    unsigned *draws;               /* gemv_stream.cu's and router.cu's counter, 0 between launches */
    struct cuda_blas *blas;        /* cuBLASLt, or NULL where its library is missing */
    uint64_t clock, replayed;
    cuda_graph graphs[CUDA_MAX_GRAPHS];
    cuda_param params[CUDA_MAX_PARAMS];
} cuda_device;

/* Sizes of the parts of an op's scratch: each begins on 256 bytes. */
static inline size_t cuda_aligned(size_t bytes)
{
    return (bytes + 255) & ~(size_t)255;
}

/* w->packed points to this: the weight in file layout on the device. */
typedef struct cuda_weight {
    uint8_t *data;
    float *scale;
    int type;                      /* WT_* */
    size_t row_bytes, bytes;
} cuda_weight;

/* One op.  supports and scratch may be NULL: always, none. */
typedef struct cuda_op {
    int (*supports)(cuda_device *d, const void *args, kvant_diag *diag);
    size_t (*scratch)(const cuda_device *d, const void *args);
    int (*run)(cuda_device *d, const void *args, kvant_diag *diag);
    bool behind; /* its scratch is the end of the block, behind the other ops': it runs while theirs is in use */
} cuda_op;

#define KVANT_OP(ID, name, args, tol, fused, text) extern const cuda_op cuda_op_##name;
#include "kvant/ops.def"
#undef KVANT_OP

/* A fused form (ops/fuse/fused.def): whether the kernels take the shapes of its ops, and the run, which uses the
 * scratch of these ops.  pass: how it leaves a value to the form behind it (enum fuse_pass), which begins right behind
 * its ops.  Results have the bits of the ops one by one, but for a norm in int8_one.cu's products and what
 * blas_chain.cu leaves as bf16. */
typedef struct cuda_form {
    bool (*takes)(cuda_device *d, const kvant_op *ops);
    int (*run)(cuda_device *d, const kvant_op *ops, enum fuse_pass pass, kvant_diag *diag);
} cuda_form;

#define CUDA_HAS_cuda(...) __VA_ARGS__
#define CUDA_HAS_vulkan_cuda(...) __VA_ARGS__
#define CUDA_HAS_vulkan(...)
#define CUDA_HAS_portable(...)
#define CUDA_HAS_gpus(...)
#define FUSED(ID, name, on, ins, links, where) CUDA_HAS_##on(extern const cuda_form cuda_fused_##name;)
#include "ops/fuse/fused.def"

/* The arguments of op i of a form. */
#define OP_ARGS(name, i) ((const kvant_##name##_args *)ops[i].args)

enum cuda_space { SPACE_REAL, SPACE_P32, SPACE_R128, SPACE_H128, SPACE_SKETCH };

/* Errors: the code, with a text in diag. */
int cuda_fail(kvant_diag *diag, int code, const char *text, ...);
int cuda_check(kvant_diag *diag, cudaError_t e, const char *what);
#define CUDA_TRY(expr) do { int ct_ = (expr); if (ct_ < 0) return ct_; } while (0)

int cuda_format_find(const kvant_format *f);             /* -1: not on this device */
/* A format as its card has it: of a record, and the class of its codes (cards/cuda.cuh). */
typedef struct cuda_format {
    const char *name;
    int values, bytes, space, cls;
} cuda_format;
const cuda_format *cuda_format_of(int id);
int cuda_wtype_find(const kvant_wtype *t);
/* param_load of the device; what cuda_free does first; whether memory that it holds would be written. */
int cuda_param_load(kvant_device *base, const void *host, size_t bytes, void **addr, kvant_diag *diag);
void cuda_param_drop(cuda_device *d, const void *addr);
bool cuda_param_holds(const cuda_device *d, const void *addr, size_t bytes);

/* One side of a cache, as kernels want it. */
typedef struct side_dev {
    uint8_t *pages;
    const float *param;            /* the format's parameter, on the device, or NULL */
    const struct sketch_image *sketch; /* a projection as sketch_wgmma.cu wants it; NULL: plain device memory */
    uint16_t *tail;
    size_t page_bytes, head_bytes, row_bytes;
    int fmt, space, group, group_bytes, group_sdim, d, dp, sdim, encoder, layout;
} side_dev;
int cuda_side(cuda_device *d, const kvant_kv_side *s, int head_dim, side_dev *out, kvant_diag *diag);
int cuda_side_supports(cuda_device *d, const kvant_kv_side *s, int head_dim, kvant_diag *diag);

/* The device's page layout (device.h), in attn.cu and pack.cu. */
void cuda_kv_layout(kvant_device *base, kvant_attn_args *a);
int cuda_page_read(kvant_device *base, const kvant_kv_side *s, int h, int d, int page, void *rows, kvant_diag *diag);
int cuda_page_write(kvant_device *base, const kvant_kv_side *s, int h, int d, int page, const void *rows,
                    kvant_diag *diag);

/* Sequences as kernels want them: all addresses are on the device. */
typedef struct seqs_dev {
    const int32_t *q0, *pos0, *prompt, *table, *tail_table, *slot_in, *slot_out;
    int n_seqs, n_tokens, stride;
} seqs_dev;
static inline seqs_dev cuda_seqs(const kvant_seqs *s)
{
    seqs_dev r = { s->q0, s->pos0, s->prompt, s->table, s->tail_table, s->slot_in, s->slot_out, s->n_seqs, s->n_tokens,
                   s->table_stride };
    return r;
}

/* Every attention kernel takes these arguments; the jobs of the kernels begin with them. */
struct attn_call {
    seqs_dev seqs;
    const float *q;
    float *out;
    int64_t ldq, gq, ldo;
    int h, h_kv, tail_pages;
    float scale;
    int window;                    /* keys that a query sees, its own among them; ATTN_ALL: all */
    float cap, cap_rate;           /* of scores, 0: none; 2 / cap */
    const float *sinks;            /* [h], or NULL */
    uint16_t *halves;              /* instead of out: bf16, [n_tokens][ldo]; NULL: out */
};
enum { ATTN_ALL = 1 << 30 };       /* more than there are positions */
static inline attn_call cuda_attn_call(const kvant_attn_args *a)
{
    return { cuda_seqs(&a->seqs), a->q, a->out, a->ldq, a->gq, a->ldo, a->h, a->h_kv, a->tail_pages, a->scale,
             a->window > 0 && a->window < ATTN_ALL ? a->window : (int)ATTN_ALL, a->softcap,
             a->softcap > 0.0f ? 2.0f / a->softcap : 0.0f, a->sinks, NULL };
}

/* ---- blas.cu: cuBLASLt, found at run time ---- */

enum { CUDA_BLAS_WORK = 32 << 20 };    /* bytes of workspace */
void cuda_blas_open(cuda_device *d);   /* leaves d->blas NULL without the library */
void cuda_blas_close(cuda_device *d);
/* y[m][ldy] = x bf16[m][k] w bf16[n][k] transposed, in f32 or (halves) rounded to bf16; work: CUDA_BLAS_WORK bytes. */
int cuda_blas_matmul(cuda_device *d, const void *w, const void *x, void *y, bool halves, int m, int64_t n, int64_t k,
                     int64_t ldy, void *work, kvant_diag *diag);
/* As cuda_blas_matmul, of x f32[m][ldx] and w f32[n][k], in TF32: 10 bits of mantissa. */
int cuda_blas_matmul_f32(cuda_device *d, const float *w, const float *x, float *y, int m, int64_t n, int64_t k,
                         int64_t ldx, int64_t ldy, void *work, kvant_diag *diag);

/* Launches a kernel that begins with pdl_wait(): where the GPU can (9.0 and later), its blocks start while the launch
 * before it ends.  The compiler checks the arguments against the kernel's. */
template <typename... P, typename... A>
static inline void cuda_launch(const cuda_device *d, void (*kernel)(P...), dim3 grid, dim3 block, size_t smem,
                               A... args)
{
    cudaLaunchAttribute attr = {};
    cudaLaunchConfig_t cfg = {};
    attr.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attr.val.programmaticStreamSerializationAllowed = 1;
    cfg.gridDim = grid;
    cfg.blockDim = block;
    cfg.dynamicSmemBytes = smem;
    cfg.stream = d->stream;
    cfg.attrs = &attr;
    cfg.numAttrs = d->arch.bulk ? 1 : 0;
    cudaLaunchKernelEx(&cfg, kernel, static_cast<P>(args)...);
}

/* Opts a kernel into more than 48 KB of dynamic shared memory. */
template <typename K> static inline void cuda_smem(K kernel, size_t bytes)
{
    if (bytes > 48 * 1024)
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
}

/* As cuda_launch, of blocks that are clusters of `cluster` along x; attr: room for two, as long as cfg is used. */
template <typename K>
static inline cudaLaunchConfig_t cuda_cluster_config(const cuda_device *d, K kernel, int cluster, dim3 grid, dim3 block,
                                                     size_t smem, cudaLaunchAttribute *attr)
{
    cudaLaunchConfig_t cfg = {};
    attr[0].id = cudaLaunchAttributeClusterDimension;
    attr[0].val.clusterDim.x = (unsigned)cluster;
    attr[0].val.clusterDim.y = attr[0].val.clusterDim.z = 1;
    attr[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attr[1].val.programmaticStreamSerializationAllowed = 1;
    cfg.gridDim = grid;
    cfg.blockDim = block;
    cfg.dynamicSmemBytes = smem;
    cfg.stream = d->stream;
    cfg.attrs = attr;
    cfg.numAttrs = 2;
    cuda_smem(kernel, smem);
    return cfg;
}

template <typename... P, typename... A>
static inline void cuda_launch_clusters(const cuda_device *d, void (*kernel)(P...), int cluster, dim3 grid, dim3 block,
                                        size_t smem, A... args)
{
    cudaLaunchAttribute attr[2] = {};
    const cudaLaunchConfig_t cfg = cuda_cluster_config(d, kernel, cluster, grid, block, smem, attr);
    cudaLaunchKernelEx(&cfg, kernel, static_cast<P>(args)...);
}

/* Clusters that the GPU holds at once, less than 1: none; its multiprocessors come in parts that clusters do not
 * cross.  known: the answer, 0 before it was asked for. */
template <typename K>
static inline int cuda_clusters_at_once(const cuda_device *d, K kernel, int cluster, dim3 block, size_t smem,
                                        int *known)
{
    const dim3 one((unsigned)cluster);
    cudaLaunchAttribute attr[2] = {};
    int n = 0;
    if (cluster == 1)
        return d->n_sm;
    if (!*known) {
        const cudaLaunchConfig_t cfg = cuda_cluster_config(d, kernel, cluster, one, block, smem, attr);
        if (cudaOccupancyMaxActiveClusters(&n, kernel, &cfg) != cudaSuccess)
            cudaGetLastError(); /* none, then */
        *known = n > 0 ? n : -1;
    }
    return *known;
}

static inline unsigned cuda_blocks(int64_t n, int per)
{
    return (unsigned)((n + per - 1) / per);
}

#ifdef __CUDACC__
/* Sequence that owns token row i: the last s with q0[s] <= i. */
static __device__ __forceinline__ int seq_of(const seqs_dev &s, int i)
{
    int lo = 0, hi = s.n_seqs - 1;
    while (lo < hi) {
        int mid = (lo + hi + 1) / 2;
        if (s.q0[mid] <= i)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

/* Returns the position of token row i, of sequence seq. */
static __device__ __forceinline__ int pos_of(const seqs_dev &s, int seq, int i)
{
    return s.pos0[seq] + i - s.q0[seq];
}

static __device__ __forceinline__ float warp_sum(float v)
{
#pragma unroll
    for (int m = 16; m; m >>= 1)
        v += __shfl_xor_sync(0xffffffffu, v, m);
    return v;
}

/* Eight bf16 in one word as floats. */
static __device__ __forceinline__ void bf16_eight(const uint4 &u, float *v)
{
    const uint32_t q[4] = { u.x, u.y, u.z, u.w };
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v[2 * i] = __uint_as_float(q[i] << 16);
        v[2 * i + 1] = __uint_as_float(q[i] & 0xffff0000u);
    }
}

/* The sum of squares of 32 N values, in the order in which norms of heads have it (head_norm.cuh): of those that a warp
 * asked for before, or of v. */
template <int N, typename T> static __device__ __forceinline__ void warp_ask(const float *v, float *x, T lane)
{
#pragma unroll
    for (int k = 0; k < N; k++)
        x[k] = v[lane + 32 * k];
}

template <int N> static __device__ __forceinline__ float warp_squares_of(const float *x)
{
    float s = 0.0f;
#pragma unroll
    for (int k = 0; k < N; k++)
        s = fmaf(x[k], x[k], s);
    return warp_sum(s);
}

template <int N> static __device__ __forceinline__ float warp_squares(const float *v)
{
    float x[N];
    warp_ask<N>(v, x, threadIdx.x % 32);
    return warp_squares_of<N>(x);
}

static __device__ __forceinline__ float warp_max(float v)
{
#pragma unroll
    for (int m = 16; m; m >>= 1)
        v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, m));
    return v;
}

/* The first key that a query at `pos` sees. */
static __device__ __forceinline__ int attn_first(const attn_call &c, int pos)
{
    return max(pos + 1 - c.window, 0);
}

/* A head's sink: -infinity where there is none. */
static __device__ __forceinline__ float attn_sink(const attn_call &c, int head)
{
    return c.sinks ? c.sinks[head] : -INFINITY;
}

static __device__ __forceinline__ float sigmoid_dev(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* f8_e4m3's factor; 1 for all other formats. */
static __device__ __forceinline__ float side_scale(const side_dev &s)
{
    return s.space == SPACE_REAL && s.param ? *s.param : 1.0f;
}

/* Row r of head h of page p; f16 row of a tail page; tail page of logical page j for a query in page qp, or -1. */
static __device__ __forceinline__ uint8_t *side_row(const side_dev &s, int page, int h, int r)
{
    return s.pages + (size_t)page * s.page_bytes + (size_t)h * s.head_bytes + (size_t)r * s.row_bytes;
}

static __device__ __forceinline__ uint16_t *side_tail_row(const side_dev &s, int t, int n_head, int h, int r)
{
    return s.tail + (((size_t)t * n_head + h) * KVANT_PAGE + r) * s.d;
}

static __device__ __forceinline__ int side_tail_page(const side_dev &s, const seqs_dev &q, int seq, int j, int qp,
                                                     int tail_pages)
{
    if (!s.tail || !q.tail_table || qp - j >= tail_pages)
        return -1;
    return q.tail_table[(size_t)seq * q.stride + j];
}
#endif
#endif
