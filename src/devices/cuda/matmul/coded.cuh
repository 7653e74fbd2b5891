/* coded.cuh: products of weights with blocks and many rows, decoded in registers on their way to the tensor cores: the
 * host's side (coded.cu) and the kernels' (coded_90.cuh, coded_80.cuh; a file of kernels for each number of columns).
 *
 * A block takes 128 to 256 rows of the matrix, 16 a warp, times N rows of activations, its columns.  The weights pass
 * through the rings of int8_unit.cuh in the file's layout.  The activations are written once, in bf16, as an image:
 * panels of 64 values, in each a line of 128 bytes for every row, swizzled as the tensor cores read them.  If the tiles
 * are fewer than the GPU has room for, `split` blocks share the length of the rows: as a cluster, or each writes its
 * part to memory and a second launch adds them. */
#ifndef KVANT_CUDA_CODED_CUH
#define KVANT_CUDA_CODED_CUH

#include <cuda_bf16.h>
#include "devices/cuda/matmul/int8/int8_unit.cuh"

enum { PANEL = 64, PANEL_LINE = 2 * PANEL, UNIT_PANELS = (int)UNIT / PANEL };
enum { CODED_SPLIT = 8 };

/* Returns true if rows may end within a unit. */
static __host__ __device__ constexpr bool coded_ends(const wshape &s)
{
    return UNIT / s.values * s.bytes % 16 != 0 && s.bytes % 2 != 0;
}

/* A tile of an expert: columns first .. first + n - 1 of the image are of this one. */
typedef struct coded_tile {
    int expert, first, n;
} coded_tile;

typedef struct coded_job {
    const uint8_t *image;      /* [panels][lines][PANEL_LINE] */
    int64_t lines;
    const int32_t *rows;       /* row of y by line, -1: none; NULL: they are the same */
    const coded_tile *tiles;   /* NULL: all rows are one expert's */
    const int *n_tiles;
    int split;                 /* blocks that share a tile, at most CODED_SPLIT */
    float *part;               /* ARCH_80, split > 1: [split][rows of y][n_out] */
} coded_job;

/* Kernels of a type for one number of columns; room: bytes of shared memory. */
typedef struct coded_kernels {
    size_t room;
    int outs;                  /* rows of the matrix of a block */
    void (*run)(const cuda_device *d, const mm &p, const coded_job &j, int row_tiles);
    int (*at_once)(const cuda_device *d, int split); /* tiles that so many blocks each work at */
} coded_kernels;
const coded_kernels *coded_32(int type, int warps); /* warps: 12 or 16; NULL: not a type with blocks */
const coded_kernels *coded_64(int type, int warps);
const coded_kernels *coded_128(int type, int warps);
const coded_kernels *coded_80_32(int type, size_t most); /* most: shared memory that there is */
const coded_kernels *coded_80_64(int type, size_t most);

/* Returns true if rows are so many that integers are slower, and so few that 16-bit copies and cuBLASLt are. */
bool cuda_coded_pays(const cuda_device *d, int type, int rows);

/* takes: true if a product can go this way; its scratch; its run, which sorts the rows by experts, if any (p.ids). */
bool cuda_coded_takes(const cuda_device *d, int type, const mm &p);
size_t cuda_coded_scratch(const cuda_device *d, int type, const mm &p);
void cuda_coded(const cuda_device *d, int type, const mm &p);

#endif
