/* coded.cuh: products of weights with blocks and many rows, decoded in registers on their way to the tensor cores: the
 * host's side (coded.cu) and the kernels' (coded_unit.cuh, one file of kernels for each number of columns).
 *
 * A block takes CODED_OUTS rows of the matrix, 16 a warp, times N rows of activations, its columns.  The weights pass
 * through the rings of int8_unit.cuh in the file's layout.  The activations are written once, in bf16, as an image:
 * panels of 64 values, in each a line of 128 bytes for every row, swizzled as the tensor cores read them.  Where the
 * tiles are fewer than the GPU has room for, the blocks of a cluster share the length of the rows. */
#ifndef KVANT_CUDA_CODED_CUH
#define KVANT_CUDA_CODED_CUH

#include <cuda_bf16.h>
#include "devices/cuda/matmul/int8_unit.cuh"

enum { CODED_WARPS = 16, CODED_THREADS = 32 * CODED_WARPS, CODED_OUTS = (int)INT8_TILE * CODED_WARPS };
enum { PANEL = 64, PANEL_LINE = 2 * PANEL, UNIT_PANELS = (int)UNIT / PANEL };

/* Whether rows may end within a unit. */
static __host__ __device__ constexpr bool coded_ends(const wshape &s)
{
    return UNIT / s.values * s.bytes % 16 != 0 && s.bytes % 2 != 0;
}

/* Of experts: columns first .. first + n - 1 of the image are of this one. */
typedef struct coded_tile {
    int expert, first, n;
} coded_tile;

typedef struct coded_job {
    const uint8_t *image;      /* [panels][lines][PANEL_LINE] */
    int64_t lines;
    const int32_t *rows;       /* row of y by line, -1: none; NULL: they are the same */
    const coded_tile *tiles;   /* NULL: all rows are one expert's */
    const int *n_tiles;
} coded_job;

/* Kernels of a type for one number of columns; room: bytes of shared memory. */
typedef struct coded_kernels {
    size_t room;
    void (*run)(const cuda_device *d, const mm &p, const coded_job &j, int row_tiles);
} coded_kernels;
const coded_kernels *coded_32(int type); /* NULL: not a type with blocks */
const coded_kernels *coded_64(int type);
const coded_kernels *coded_128(int type);

enum { CODED_ROWS = 12 }; /* to here integers are as fast (measured: an 8B model of every type on an H100) */

/* Rows up to which a type's products are faster this way than by 16-bit copies and cuBLASLt. */
int cuda_coded_most(int type);

/* Whether a product can go this way, its scratch, and its run; with experts (p.ids) it sorts the rows by them. */
bool cuda_coded_takes(const cuda_device *d, int type, const mm &p);
size_t cuda_coded_scratch(const mm &p);
void cuda_coded(const cuda_device *d, int type, const mm &p);

#endif
