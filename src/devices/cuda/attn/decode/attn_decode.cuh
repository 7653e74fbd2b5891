/* attn_decode.cuh: what attn_decode.cu (the host's side), the kernels, attn.cu (the choice) and bench_attn.cu share.
 *
 * Decode attention on tensor cores: one token per row, packed pages (pack.cuh) or f16 or bf16 rows, tensor
 * cores for the heads of a KV head.  A unit is one (token row, KV head, tile of 8 heads): its steps of encoded pages,
 * then its steps of exact keys.  All steps of the batch in order are one line that is cut evenly among the warps of the
 * grid; a warp sums its stretch, a launch behind it joins the warps' sums. */
#ifndef KVANT_CUDA_ATTN_DECODE_CUH
#define KVANT_CUDA_ATTN_DECODE_CUH

#include "devices/cuda/core/cuda_dev.cuh"
#include "devices/cuda/attn/pack.cuh"
#include "devices/cuda/ops/qk.cuh"

enum { DECODE_HEADS = 8, DECODE_ROWS = 256 }; /* rows of a launch */

/* Bits of a value of a query's sketch (two's complement). */
enum { SKETCH_BITS = 12 };

/* How the codes of a side are decoded; the kernel is compiled for each, shapes are data. */
enum decode_kind {
    KIND_LUT4_32, KIND_LUT4_128, KIND_BOOK4_32, KIND_LUT3_32,      /* by a table, and (LUT) permutes */
    KIND_INT8, KIND_FLOAT8, KIND_HALF, KIND_TRELLIS, KIND_SIGN, KIND_SIGN8, KIND_BF16,
    KIND_LUT4_RESIDUAL, KIND_PAGE2, KIND_PAGE3, KIND_PAGE4, KIND_COUNT
};

/* Signs: for up to 4 heads of a KV head, or for more. */
static __host__ __device__ constexpr bool is_sign(int kind)
{
    return kind == KIND_SIGN || kind == KIND_SIGN8;
}

/* Page scope (ptcq2, ptcq3, ptcq4), and the bits of a symbol. */
static __host__ __device__ constexpr bool is_page(int kind)
{
    return kind >= KIND_PAGE2 && kind <= KIND_PAGE4;
}

static __host__ __device__ constexpr int symbol_bits(int kind)
{
    return kind - KIND_PAGE2 + 2;
}

/* A lane's values of a group of 128 lie one behind the other. */
static __host__ __device__ constexpr bool is_mixed(int kind)
{
    return kind == KIND_TRELLIS || is_page(kind);
}

/* Rows as they are. */
static __host__ __device__ constexpr bool is_plain(int kind)
{
    return kind == KIND_HALF || kind == KIND_BF16;
}

/* Parts of a number that meets a side's values, a query's (K) or a probability (V): halves meet one half; bf16, whose
 * range halves do not have, two bf16 (split_rest). */
static __host__ __device__ constexpr int parts_of(int kind)
{
    return kind == KIND_BF16 ? 2 : 1;
}

/* f16 [n_tokens][h][d]: queries times scale * log2(e), as they are and rotated (prep.cuh). */
typedef struct query_operands {
    uint16_t *raw, *turned;
} query_operands;

typedef struct decode_side {
    side_dev s;
    int kind;
    uint32_t block_bytes; /* of PACK_BLOCK rows of one head in a slot; page scope: with what the whole page shares */
    uint32_t apart;       /* bytes from a block to the next one of its page */
    uint16_t book[16];    /* the halves of a code book (KIND_LUT...), and what byte permutes read of them */
    uint32_t mirror[4];
} decode_side;

/* A row of the decode kernel's plan: the steps of each of its units, of which `coded` are of encoded pages; steps of
 * all rows before it. */
typedef struct __align__(16) merge_row {
    int token, coded, steps, before;
} merge_row;

struct decode_job : attn_call {
    decode_side k, v;
    /* queries times scale * log2(e): f16 [n_tokens][h][d], as they are and rotated; for bf16 keys their two parts */
    uint16_t *raw, *turned;
    uint32_t *sketch;       /* [n_tokens][h][SKETCH_WORDS], instead of turned */
    const float *k_rows, *v_rows; /* rows that the launch stores first (one_batch), [n_tokens][ld_rows], or NULL */
    int64_t ld_rows;
    head_ahead ahead;    /* of those rows and of the queries; pos NULL: nothing */
    float *pieces;       /* sums that warps leave behind (decode_merge.cuh) */
    merge_row *rows;     /* [n_rows + 1], and the plan that they are of; `before` of the last one: all steps */
    int group, heads, head_tiles, d;
    int row0, n_rows;
    bool sealing;        /* the launch before writes pages: none is read ahead of its end */
    bool in_place;       /* no side has a tail: pages that the launch stores rows in are read exactly */
    int warps, blocks;
    uint32_t slot_bytes, slots_high; /* of a warp's slots; warps whose slots lie behind the tables */
    int make;            /* of the kernels; then ARCH_80's: */
    uint32_t slots_from; /* where the first slots begin */
    bool join;           /* many pieces of a unit: blocks join theirs (decode_plan.cuh) */
    uint32_t share;      /* 2^32 / (warps * blocks) */
    bool desk;           /* that launch makes the sketches too (decode_sketch.cuh) */
    int whole;           /* blocks that take a whole unit in one launch (attn_whole.cu); 0: the line of all steps */
    int exact_cost;      /* an exact step counts as 1 << exact_cost encoded ones: it takes as long */
};

int cuda_pack_class(int fmt);
int cuda_pack_codes(int fmt);

/* The kind that a side's kernel is compiled for; decode_side has one of the same tables and records. */
static inline int kernel_kind(const decode_side &s)
{
    return cuda_pack_codes(s.s.fmt) == CODES_SIGNED ? (int)KIND_LUT4_RESIDUAL : s.kind;
}

bool cuda_pack_shape(const side_dev *s, int role, pack_shape *out);
/* A side with pages in a private layout.  One, or two of one format: the listed pages are packed or (back) made rows
 * again. */
typedef struct pack_side {
    side_dev s;
    pack_shape shape;
} pack_side;
void cuda_pack_pages(cuda_device *d, const pack_side *sides, int n_sides, const int32_t *pages, int n, int h,
                     bool back);

/* attn_decode_80.cu: the launches of a job of ARCH_80.  attn_decode_page.cu, attn_decode_page_80.cu: of page scope. */
void decode_choose_80(cuda_device *d, const decode_job &p);
void decode_choose_page(cuda_device *d, const decode_job &p);
void decode_choose_page_80(cuda_device *d, const decode_job &p);

/* Fills p from the arguments; false: not a shape of this kernel. */
bool decode_shape(const cuda_device *d, const kvant_attn_args *a, const side_dev &k, const side_dev &v, decode_job *p);
size_t decode_scratch(decode_job p);
/* operands: the place in scratch memory of a launch's query operands; made: these exist already, there. */
query_operands decode_operands(decode_job p, unsigned char *scratch);
void decode_run(cuda_device *d, decode_job p, const query_operands *made);

/* attn.cu: cache_write of K and V and attn of the same batch in one launch, which first does to queries and keys what
 * `ahead` says, if it is not NULL. */
bool cuda_attn_write_takes(cuda_device *d, const kvant_cache_write_args *k, const kvant_cache_write_args *v,
                           const kvant_attn_args *a, const head_ahead *ahead);
int cuda_attn_write(cuda_device *d, const kvant_cache_write_args *k, const kvant_cache_write_args *v,
                    const kvant_attn_args *a, const head_ahead *ahead, kvant_diag *diag);
/* As cuda_attn_write, for longer contexts and prompts, in two steps, between which pages may be sealed.  front: all
 * that comes before attn (attn_front.cu).  behind: attn; halves: its rows as bf16. */
bool cuda_attn_front_takes(cuda_device *d, const kvant_cache_write_args *k, const kvant_cache_write_args *v,
                           const kvant_attn_args *a, const head_ahead &ahead);
int cuda_attn_front(cuda_device *d, const kvant_cache_write_args *k, const kvant_cache_write_args *v,
                    const kvant_attn_args *a, const head_ahead &ahead, kvant_diag *diag);
int cuda_attn_behind(cuda_device *d, const kvant_attn_args *a, bool sealed, bool halves, kvant_diag *diag);

/* attn_whole.cu: whether its launch can do that first */
bool decode_whole_ahead(const decode_job &p, const head_ahead &a);
/* attn_whole.cu, of what decode_shape filled: `whole` for positions up to max_pos; the launch. */
int decode_whole_blocks(const decode_job &p, int max_pos);
void decode_whole_run(cuda_device *d, const decode_job &p);

#endif
