/* ops.h: the op contract: arguments of every op that a model's step is made of.
 *
 * Shapes are written [slowest][..][fastest]; strides (ld*) count elements, *_bytes count bytes.  All pointers are
 * DEVICE addresses (on the CPU: plain pointers).  Outputs may not overlap inputs unless said.  n = 0 does nothing.
 * Rows that ops hand each other are named in the arguments themselves, never behind another pointer: a device may look
 * there for who reads a buffer next.
 * Every op is checked once by kvant_op_check before it is queued; kernels then trust their arguments.
 * Results never depend on the number of parts, threads, or on other rows of the batch.
 *
 * CPU calling form, for devices/cpu and for other engines:
 *     for (stage = 0; stage < kernel->stages; stage++) { fn[stage](args, part, parts, work) for each part; barrier }
 * Threads: checks and lookups are pure; the parts of a stage may run on any threads at once.
 * Source: the formulas below are the contract, the scalar references in src/ops compute them in the order written
 * there; tolerances: docs/ops.md; why it is cut like this: docs/decisions/0006-ops-and-programs.md. */
#ifndef KVANT_OPS_H
#define KVANT_OPS_H

#include <stddef.h>
#include <stdint.h>
#include "kvant/format.h"
#include "kvant/wtype.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)     /* what libkvant.so exports */

/* Compute mode: f32 serves the contract; auto may use 16-bit or 8-bit activations and int8 queries. */
enum kvant_compute { KVANT_COMPUTE_AUTO = 0, KVANT_COMPUTE_F32 = 1 };

enum { KVANT_WEIGHT_EMBED = 1, KVANT_WEIGHT_MATMUL = 2 };

/* A weight matrix W[n_expert][n_out][n_in] in a block type.  y = scale_e * (W_e x). */
typedef struct kvant_weight {
    const kvant_wtype *type;
    const void *data;              /* rows in file layout, n_out * n_expert of them */
    int64_t n_in, n_out;
    int n_expert;                  /* 1 for a plain matrix */
    const float *scale;            /* NULL, or [1] or [n_expert]: NVFP4's second-level scale */
    int n_scale;
    void *packed;                  /* the device's private layout, made by kvant_device weight_load; NULL before */
    const char *name;              /* "blk.0.attn_q.weight" */
    int use;                       /* KVANT_WEIGHT_*: which ops read it; a device packs only for those */
} kvant_weight;

/* How the states of gdn_step and gdn_chunk are stored, and the bytes of a value. */
enum kvant_state_type { KVANT_STATE_F32 = 0, KVANT_STATE_BF16 = 1 };
static inline size_t kvant_state_bytes(int state_type)
{
    return state_type == KVANT_STATE_BF16 ? 2 : 4;
}

/* A ragged batch: sequence s owns token rows q0[s] .. q0[s+1]-1, at positions pos0[s] .. */
typedef struct kvant_seqs {
    int n_seqs, n_tokens;
    int n_few, few_rows;           /* the first n_few sequences have few rows each, as decode rows do, and
                                      few_rows = q0[n_few], which is not checked: q0 may be in a GPU's memory;
                                      0, 0: not known, which is slower */
    const int32_t *q0;             /* [n_seqs + 1] */
    const int32_t *pos0;           /* [n_seqs] */
    const int32_t *prompt;         /* [n_seqs] 1: prompt rows (chunk forms), 0: decode rows (step forms) */
    const int32_t *table;          /* [n_seqs][table_stride] page id of logical page j (0..) */
    const int32_t *tail_table;     /* [n_seqs][table_stride] tail page id of logical page j, -1: none */
    int table_stride;
    const int32_t *slot_in;        /* [n_seqs] state slot to read, -1: start from zero state */
    const int32_t *slot_out;       /* [n_seqs] state slot to write; step forms, drafts: -1: none */
} kvant_seqs;

/* ROWS: as written below.  PRIVATE_K, PRIVATE_V: a permutation of the same bytes that the device chose (device.h) for
 * K's or V's full pages; page_seal writes it, and only that device's kernels read it. */
enum kvant_layout { KVANT_LAYOUT_ROWS = 0, KVANT_LAYOUT_PRIVATE_K = 1, KVANT_LAYOUT_PRIVATE_V = 2 };

/* One side (K or V) of one attention layer's cache.
 * Row r of head h of page p: pages + p*page_bytes + h*head_bytes + r*row_bytes; head_bytes = 64*row_bytes.
 * Tail rows are f16: tail + ((t*n_head_kv + h)*64 + r)*d (d = head_dim, not padded).  tail NULL: no exact tail. */
typedef struct kvant_kv_side {
    const kvant_format *fmt;
    const void *param;             /* the format's parameter (projection) or NULL */
    uint8_t *pages;
    size_t page_bytes, head_bytes, row_bytes;
    uint16_t *tail;
    int encoder;                   /* enum kvant_encoder */
    int layout;                    /* enum kvant_layout: the order of bytes inside a head of a page */
} kvant_kv_side;

/* The arguments of each op, with what it computes: made of the cards in src/ops/cards; docs/ops.md shows them. */
#include "kvant/op_args.h"

/* Op ids: KVANT_OP_EMBED ... made of the cards. */
#define KVANT_OP(ID, name, args, tol, fused, text) KVANT_OP_##ID,
enum kvant_op_id {
#include "kvant/ops.def"
    KVANT_OP_COUNT
};
#undef KVANT_OP

typedef struct kvant_op { int id; const void *args; } kvant_op;

/* Name ("attn"), argument struct size, tolerance class text, decomposition ("" for primitives), one line of meaning. */
typedef struct kvant_op_info {
    const char *name; size_t args_bytes; const char *tolerance, *fused, *text;
} kvant_op_info;
const kvant_op_info *kvant_op_get(int id);                 /* NULL if id is out of range */

/* Checks shapes, strides, types and NULLs of an op's arguments; run once before it is queued.  KVANT_EINVAL names the
 * op, the argument, the value found and the value wanted. */
int kvant_op_check(int id, const void *args, kvant_diag *diag);

/* Scratch of one op on the CPU: one block shared by all parts, one block per part.  64-byte aligned. */
typedef struct kvant_work { void *shared; void *local; } kvant_work;
typedef void (*kvant_op_fn)(const void *args, int part, int parts, const kvant_work *work);

enum { KVANT_MAX_STAGES = 4 };
typedef struct kvant_cpu_kernel {
    int stages;
    kvant_op_fn fn[KVANT_MAX_STAGES];
    size_t (*shared_bytes)(const void *args);              /* NULL: 0 */
    size_t (*local_bytes)(const void *args);               /* NULL: 0 */
    int (*first_stage)(const void *args);                  /* NULL: 0; earlier stages do nothing for these arguments */
} kvant_cpu_kernel;

/* The reference of an op, single part, scalar, written to be read (src/ops); every op has one. */
const kvant_cpu_kernel *kvant_op_reference(int id);
/* The kernel this CPU uses (src/devices/cpu).  Never NULL for an op that the CPU supports. */
const kvant_cpu_kernel *kvant_op_cpu(int id);

/* Packing: the layout from which the CPU's matmul kernels are fast.  A weight without it (packed NULL) is multiplied
 * by the reference.  The caller owns the memory that w->packed points to, 64-byte aligned.  Once packed, only the
 * reference and embed read w->data.
 * Bytes of the packed block of w; KVANT_EUNSUPPORTED for a type without a layout. */
int kvant_cpu_pack_bytes(const kvant_weight *w, size_t *bytes, kvant_diag *diag);
/* Fills the header of w->packed (which has kvant_cpu_pack_bytes bytes). */
void kvant_cpu_pack_begin(kvant_weight *w);
/* Packs the panels of one part; all parts 0 .. parts-1 must run, in any order, on any threads. */
void kvant_cpu_pack_part(const kvant_weight *w, int part, int parts);
/* Two neighbouring ops are matmuls of the same activations in the same form: their common first stage need run only
 * once, and no barrier is needed between them.  Both must write different y. */
int kvant_cpu_same_input(const kvant_op *a, const kvant_op *b);

/* Variants for the harness: 0 is the reference; NULL past the last.  *usable: this CPU and the test mask allow it. */
const kvant_cpu_kernel *kvant_op_variant(int id, int i, const char **name, int *usable);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
