/* int8.cuh: products of 4- to 8-bit weights with few rows, activations in 8 bits per 32 values: what int8_one.cu (one
 * row) and int8_few.cu (up to INT8_ROWS) share with matmul.cu.
 *
 * A block takes 16 rows of the matrix (or 8 of gate and 8 of up), its warps take units of 256 values of them by turns
 * of their own: bytes pass through a ring in shared memory in the file's layout (cp.async), codes go to the tensor
 * cores as integers (mma.m16n8k32, or k16 where groups have 16 values), sums of a group are multiplied in f32.  A
 * row's bits depend on its own values alone. */
#ifndef KVANT_CUDA_INT8_CUH
#define KVANT_CUDA_INT8_CUH

#include "devices/cuda/matmul/mm.cuh"
#include "cards/cuda_weights.cuh"

enum { INT8_ROWS = 32, INT8_WARPS = 8, INT8_TILE = 16 };

/* Numbers of 32 activations: their scale, the sums of the first and of the last 16 integers, and of all. */
typedef float4 int8_group;

/* Returns true if a product goes this way: the type, whole rows that copies can take, shared memory. */
bool cuda_int8_takes(const cuda_device *d, int type, const mm &p);

/* Bytes of scratch: the activations of more than one row, where they are not each an expert's. */
size_t cuda_int8_scratch(const mm &p);

/* y = W x as cuda_gemv, with its `pair`; p.add and p.norm as in gemv_stream.cu for one row (then
 * the job that cuda_int8_takes is asked about has them too). */
void cuda_int8(const cuda_device *d, int type, const mm &p, int64_t pair);

/* Types whose factors are small integers with one scale for 256 values (int8_eight.cuh). */
static __host__ __device__ constexpr bool int8_has_eight(const wshape &s)
{
    return s.values == 256 && (s.sub == WSUB_PAIRS || s.sub == WSUB_I8);
}

/* Up to how many rows integers are faster than coded.cuh: measured with Q4_K_M on an H200
 * (bench/results/cuda-h200-serving.md). */
static inline int int8_best_rows(const wshape &s)
{
    return int8_has_eight(s) ? 16 : 8;
}

/* Kernels of a type; room: whether `most` bytes of shared memory are enough for a product (0: they are not). */
typedef struct int8_kernels {
    size_t (*room)(const mm &p, size_t most);
    void (*run)(const cuda_device *d, const mm &p, int64_t pair);
} int8_kernels;
const int8_kernels *cuda_int8_one(int type); /* NULL: no integers hold the type */
const int8_kernels *cuda_int8_few(int type);

#endif
