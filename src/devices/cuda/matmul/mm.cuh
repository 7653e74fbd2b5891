/* mm.cuh: what the matmul kernels share: a weight with its activations, and eight weights of any type. */
#ifndef KVANT_CUDA_MM_CUH
#define KVANT_CUDA_MM_CUH

#include "devices/cuda/core/cuda_dev.cuh"
#include "devices/cuda/ops/swiglu.cuh"
#include "cards/decode.h"

enum { GEMV_ROWS = 8, MM_EXPERTS = 1024 };    /* most rows of a batch that gemv.cu takes; most experts */

#define CARD_WTYPE(sym, name, gguf, values, bytes, file_type) \
    if (T == WT_##sym)                                                                             \
        wt_##sym(row, c, w);
template <int T> static __device__ __forceinline__ void chunk8(const uint8_t *row, int64_t c, float *w)
{
#include "cards/lists.inc"
}
#undef CARD_WTYPE

static constexpr card_plain plain_types[] = { CARD_PLAIN };

/* The rows of a loaded matrix of f32 values, one behind the other and without a scale; NULL: it is another. */
static inline const float *cuda_f32_rows(const kvant_weight *w)
{
    const cuda_weight *c = (const cuda_weight *)w->packed;
    return c && plain_types[c->type] == PLAIN_F32 && !c->scale && c->row_bytes == (size_t)w->n_in * sizeof(float)
               ? (const float *)c->data
               : NULL;
}

/* Returns the kind of the values of weight type T, PLAIN_NONE where it has blocks. */
template <int T> static __host__ __device__ __forceinline__ constexpr card_plain plain()
{
    constexpr card_plain of = plain_types[T];
    return of;
}

template <int T> static __host__ __device__ __forceinline__ constexpr bool half_wide()
{
    return plain<T>() == PLAIN_F16 || plain<T>() == PLAIN_BF16;
}

template <int T> static __device__ __forceinline__ bool wide()
{
    return plain<T>() != PLAIN_NONE;
}

/* One value of a row of the types without blocks, at any alignment of the row. */
template <int T> static __device__ __forceinline__ float value1(const uint8_t *row, int64_t k)
{
    constexpr card_plain of = plain<T>();
    return of == PLAIN_F32 ? wt_f32_one(row, k) : of == PLAIN_F16 ? wt_f16_one(row, k) : wt_bf16_one(row, k);
}

/* A weight and its activations, as kernels want them.  ids NULL: one expert.  x row of y row r: r / x_div. */
typedef struct mm {
    const uint8_t *w;
    const float *scale, *x;
    float *y;
    const int32_t *ids, *offs, *perm;  /* offs [n_expert + 1], perm [rows]: rows sorted by expert */
    int64_t n_in, n_out, row_bytes, ldx, ldy;
    int rows, n_expert, n_scale, x_div, x_vec, w_vec;
    float *add;                        /* gemv_stream.cu: y is added to this too, or NULL */
    const float *norm;                 /* and x is normalised with these weights (to normed), or NULL */
    float *normed;
    float eps;
    const uint8_t *x8;                 /* int8_few.cu: x in integers */
    unsigned *draws;                   /* gemv_stream.cu: which groups of rows are taken; 0 between launches */
    int beside;                        /* products of the same x (BESIDE_*): int8.cuh, coded.cuh */
    /* a second matrix of the same shape, without scales, to y2: int8_one.cu multiplies rows2 rows behind p.rows by it,
     * which are x rows 0 .., where the others have experts; gemv.cu all rows, where rows2 is not 0 */
    const uint8_t *w2;
    float *y2;
    int64_t ldy2;
    int rows2;
    bool sorted;                       /* coded.cu: the product before had these ids; its lists are in the scratch */
} mm;

/* Products of one x, one behind the other, whose kernels run side by side: the first makes of x what all of them read,
 * and lets the next begin only when all that came before is done; the others do not wait for it, but end after it. */
enum { BESIDE_LAST = 1, BESIDE_NEXT = 2 }; /* this one and the product before it; and the one behind it */

static __device__ __forceinline__ void beside_begin(const mm &p)
{
    if (p.beside != BESIDE_NEXT)
        pdl_go();
}

/* Before anything is read that launches wrote. */
static __device__ __forceinline__ void beside_wait(const mm &p)
{
    if (!(p.beside & BESIDE_LAST))
        pdl_wait();
    if (p.beside == BESIDE_NEXT)
        pdl_go();
}

static __device__ __forceinline__ void beside_end(const mm &p)
{
    if (p.beside & BESIDE_LAST)
        pdl_wait();
}

static __device__ __forceinline__ float scale_of(const mm &p, int e)
{
    return p.scale ? p.scale[p.n_scale > 1 ? e : 0] : 1.0f;
}

static __device__ __forceinline__ void load8(const float *x, int vec, float *v)
{
    if (vec) {
        const float4 a = *(const float4 *)x, b = *(const float4 *)(x + 4);
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = x[i];
}

/* Eight 16-bit weights in one word. */
template <int T> static __device__ __forceinline__ void unpack8(const uint4 &u, float *w)
{
    if constexpr (plain<T>() == PLAIN_BF16) {
        bf16_eight(u, w);
    } else {
        const uint32_t q[4] = { u.x, u.y, u.z, u.w };
#pragma unroll
        for (int i = 0; i < 4; i++) {
            w[2 * i] = __half2float(__ushort_as_half((unsigned short)q[i]));
            w[2 * i + 1] = __half2float(__ushort_as_half((unsigned short)(q[i] >> 16)));
        }
    }
}

/* y = W x for up to GEMV_ROWS rows; with ids: any number of rows, each against its own expert.  pair f > 0: rows j and
 * j + f of W give y[j] = silu(W_j x) * (W_j+f x) and y[j + f] = W_j+f x. */
void cuda_gemv(cuda_device *d, int type, const mm &p, int64_t pair);

/* Returns true if a matrix (a router's, a gate's) has so few outputs that cuda_gemv takes this number of rows too. */
bool cuda_gemv_small(int rows, int64_t n_out, int64_t row_bytes);

/* As cuda_gemv, for one row and 16-bit weights (gemv_stream.cu), where it takes the shape. */
bool cuda_gemv_streams(int type, const mm &p);
void cuda_gemv_stream(const cuda_device *d, int type, const mm &p, int64_t pair);

/* y = W x for any number of rows (matmul_tiles.cu); with experts, of rows that cuda_sort_experts sorted: it sets offs
 * and perm, which lie in the scratch block (MM_EXPERTS + 1 + rows numbers). */
void cuda_tiles(const cuda_device *d, int type, const mm &p, bool f32);
void cuda_sort_experts(cuda_device *d, mm *p);

/* By cuBLASLt (matmul_blas.cu): whether it takes these arguments, whether as bf16 (else TF32), its scratch (0 where it
 * does not take them), the run.  rows: x as bf16, [m][n_in]; NULL: they are made of x.  halves: takes y as bf16,
 * [m][ldy], where ldy is a multiple of 8; NULL: y. */
bool cuda_blas_takes(const cuda_device *d, const kvant_matmul_args *a);
bool cuda_blas_bf16(const cuda_device *d, const kvant_matmul_args *a);
size_t cuda_blas_scratch(const cuda_device *d, const void *args);
int cuda_blas_run(cuda_device *d, const kvant_matmul_args *a, const uint16_t *rows, uint16_t *halves,
                  kvant_diag *diag);

/* Room in the scratch block for the rows of a product in bf16, which products of as many values leave alone; the rows
 * of x in it. */
uint16_t *cuda_blas_rows(const cuda_device *d);
const uint16_t *cuda_blas_narrow(const cuda_device *d, const kvant_matmul_args *a);

#endif
