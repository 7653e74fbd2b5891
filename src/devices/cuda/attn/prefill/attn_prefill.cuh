/* attn_prefill.cuh: attention of many tokens of a sequence on tensor cores; see attn_prefill.cu. */
#ifndef KVANT_CUDA_ATTN_PREFILL_CUH
#define KVANT_CUDA_ATTN_PREFILL_CUH

#include "devices/cuda/core/cuda_dev.cuh"
#include "devices/cuda/attn/decode/attn_decode.cuh"

/* How a tile of keys becomes halves: from packed pages by class, from f16 or bf16 rows (V's stay bf16), or value by
 * value from rows. */
typedef struct prefill_side {
    side_dev s;
    pack_shape shape;
    int cls;   /* enum pack_class; PACK_NONE: value by value */
    int width; /* values per row in acc space */
} prefill_side;

struct prefill_job : attn_call {
    prefill_side k, v;
    uint16_t *qp, *qraw; /* f16 [n_tokens][h][width of K], [n_tokens][h][d] */
    int heads, head_tiles, tokens, n_tiles, d;
    int make, rows; /* of the kernels; rows of a block */
    int n_raw; /* pages copied ahead */
    uint8_t *tiles; /* encoded pages as tiles of halves, [n_seqs][stride][h_kv]; NULL: each block makes its own */
    int first; /* rows before the first sequence's */
};

bool prefill_shape(const cuda_device *d, const kvant_attn_args *a, const side_dev &k, const side_dev &v,
                   prefill_job *p);
size_t prefill_scratch(const cuda_device *d, const prefill_job &p);
/* As decode_operands, decode_run. */
query_operands prefill_operands(const prefill_job &p, unsigned char *scratch);
void prefill_run(cuda_device *d, prefill_job p, unsigned char *scratch, bool made);

/* attn_prefill_80.cu: rows of a block in `most` bytes of shared memory (0: none fit), what they take; the kernel for a
 * job's `pages` (prefill_make.cuh), two threads to a row. */
typedef void (*prefill_fn)(prefill_job);
int prefill_rows_80(const prefill_job &p, size_t most);
size_t prefill_room_80(const prefill_job &p, int rows);
prefill_fn prefill_kernel_80(const prefill_job &p, int pages);

#endif
