/* attn_decode.cuh: what attn_decode.cu (the kernel), attn.cu (the choice) and bench_attn.cu share.
 *
 * Decode attention for compute capability 9.0: one token per row, packed pages (pack.cuh) or f16 rows, tensor cores
 * for the heads of a KV head.  A unit is one (token row, KV head, slot): slot 0 is the exact tail, slot 1 + s the
 * encoded pages of split s (KVANT_SPLIT keys).  Four warps share a unit; results depend on nothing but the row's own
 * sequence. */
#ifndef KVANT_CUDA_ATTN_DECODE_CUH
#define KVANT_CUDA_ATTN_DECODE_CUH

#include "devices/cuda/cuda_dev.cuh"
#include "devices/cuda/pack.cuh"

enum { DECODE_HEADS = 8, DECODE_SPLIT_PAGES = 16 };

/* How the codes of a side are decoded; the kernel is compiled for each, shapes are data. */
enum decode_kind {
    KIND_LUT4_32, KIND_LUT4_128, KIND_BOOK4_32, KIND_LUT3_32,      /* by a table, and (LUT) permutes */
    KIND_INT8, KIND_FLOAT8, KIND_HALF, KIND_TRELLIS, KIND_SIGN, KIND_COUNT
};

typedef struct decode_side {
    side_dev s;
    int kind;
    uint32_t block_bytes; /* of PACK_BLOCK rows of one head */
} decode_side;

/* A row of the job: token row (-1: not this kernel's), sequence and position; pages 0 .. encoded-1 are read encoded,
 * the rest up to `now` exactly. */
typedef struct row_span {
    int token, seq, pos, now, encoded;
} row_span;

typedef struct decode_job {
    decode_side k, v;
    seqs_dev seqs;
    const float *q;
    float *out;
    uint16_t *qp, *qraw; /* f16 [n_tokens][h][d]: rotated, times scale * log2(e); not rotated (tail) */
    float *ml, *part;    /* [row][kv tile][slot][8 heads] {m, l} and [d] */
    row_span *spans;     /* [n_rows] */
    int64_t ldq, gq, ldo;
    int h, h_kv, group, heads, head_tiles, d, n_slot, tail_pages;
    int n_rows, by_seq; /* rows: token rows, or (by_seq) sequences, of which those with one token */
    int warps;
    float scale;
} decode_job;

int cuda_pack_class(int fmt);
bool cuda_pack_shape(const side_dev *s, int role, pack_shape *out);
void cuda_pack_pages(cuda_device *d, const side_dev &s, const pack_shape &p, const int32_t *pages, int n, int h,
                     bool back);

/* Fills p from the arguments; false: not a shape of this kernel.  Scratch addresses are set by decode_place. */
bool decode_shape(const cuda_device *d, const kvant_attn_args *a, const side_dev &k, const side_dev &v, decode_job *p);
size_t decode_scratch(const decode_job &p);
void decode_run(cuda_device *d, decode_job p);

#endif
