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

enum { KVANT_PAGE = 64 };          /* tokens per KV page; also the prompt grid and the GDN chunk */

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
    int n_ones;                    /* the first n_ones sequences have one row each; 0: not known, which is slower */
    const int32_t *q0;             /* [n_seqs + 1] */
    const int32_t *pos0;           /* [n_seqs] */
    const int32_t *prompt;         /* [n_seqs] 1: prompt rows (chunk forms), 0: decode rows (step forms) */
    const int32_t *table;          /* [n_seqs][table_stride] page id of logical page j (0..) */
    const int32_t *tail_table;     /* [n_seqs][table_stride] tail page id of logical page j, -1: none */
    int table_stride;
    const int32_t *slot_in;        /* [n_seqs] state slot to read, -1: start from zero state */
    const int32_t *slot_out;       /* [n_seqs] state slot to write */
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

/* y[i] = row ids[i] of w, dequantised.  y f32[n][n_in]. */
typedef struct kvant_embed_args { const kvant_weight *w; const int32_t *ids; float *y; int n; } kvant_embed_args;

/* y = x / sqrt(mean(x^2) + eps) * w over d values, for n rows of h groups.  y may be x.
 * Sum in double, mean rounded to f32.  x group (i,j) at x + i*ldx + j*gx; y likewise. */
typedef struct kvant_norm_rms_args {
    const float *x; const float *w; float *y; float eps; int n, h, d; int64_t ldx, gx, ldy, gy;
} kvant_norm_rms_args;

/* y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * w + b over d values, for n rows of h groups, as norm_rms's; b
 * NULL: none.  Group j of a row has w + j*gw and b + j*gw.  y may be x.  Sums in double, mean and scale in f32. */
typedef struct kvant_norm_layer_args {
    const float *x; const float *w, *b; float *y; float eps; int n, h, d; int64_t ldx, gx, ldy, gy, gw;
} kvant_norm_layer_args;

/* x += add, then y = norm_rms(x) * w.  x f32[n][d] in place, dense rows.  == add; norm_rms. */
typedef struct kvant_norm_add_rms_args {
    float *x; const float *add; const float *w; float *y; float eps; int n, d;
} kvant_norm_add_rms_args;

/* y *= x, f32 rows of d, ldy and ldx apart. */
typedef struct kvant_mul_args { float *y; const float *x; int n, d; int64_t ldy, ldx; } kvant_mul_args;

/* x += y, f32[n][d]. */
typedef struct kvant_add_args { float *x; const float *y; int n, d; } kvant_add_args;

/* y[i][j] += b[ids[i]][j]: the bias of a product; n rows of d values, ldy apart; b f32[n_b][d].  ids NULL: b[0]. */
typedef struct kvant_bias_args {
    float *y; const float *b; int n, d; int64_t ldy; const int32_t *ids; int n_b;
} kvant_bias_args;

/* x = cap * tanh(x / cap), f32[n][d]. */
typedef struct kvant_softcap_args { float *x; float cap; int n, d; } kvant_softcap_args;

/* y[i][j] = x[i][j]: values of 4 bytes, bits kept, in n rows of h groups of d; ldx = 0: every row has the same x. */
typedef struct kvant_rows_copy_args {
    const float *x; float *y; int n, h, d; int64_t ldx, gx, ldy, gy;
} kvant_rows_copy_args;

/* x *= s, f32[n][d]. */
typedef struct kvant_scale_args { float *x; float s; int n, d; } kvant_scale_args;

/* x[i] *= 1 + beta * log(1 + floor(pos[i] / length)): the temperature of attention beyond a model's first `length`
 * positions.  n rows of d values, ldx apart. */
typedef struct kvant_attn_temp_args {
    float *x; const int32_t *pos; float beta; int length, n, d; int64_t ldx;
} kvant_attn_temp_args;

/* x / max(sqrt(sum x^2), eps), in place over h groups of d.  Sum in double. */
typedef struct kvant_norm_l2_args { float *x; float eps; int n, h, d; int64_t ldx, gx; } kvant_norm_l2_args;

/* Rotates the first n_rot of each head in place.  angle = pos * inv_freq[i]; cos and sin times mscale.
 * neox 1: pairs (i, i+n_rot/2); 0: pairs (2i, 2i+1). */
typedef struct kvant_rope_args {
    float *x; const int32_t *pos; const float *inv_freq; float mscale; int neox, n_rot, n, h; int64_t ldx, gx;
} kvant_rope_args;

/* y = silu(gate) * up; f32 rows of f.  gate and up may be halves of one matrix (ld); y may be gate or up. */
typedef struct kvant_swiglu_args {
    const float *gate, *up; float *y; int n, f; int64_t ldg, ldu, ldy;
} kvant_swiglu_args;

/* y of gate g and up u, rows as swiglu's.  gelu: g * sigmoid(2 sqrt(2/pi) (g + 0.044715 g^3)) * u, the tanh form.
 * clamped: g and u at most `limit`, u at least -limit, then g * sigmoid(alpha g) * (u + 1).  relu: max(g, 0) * u; with
 * up = gate that is the squared ReLU.  gelu_alone: gelu without u, which counts for nothing (up = gate).  Only clamped
 * has a use for alpha and limit.  y may be gate, or both. */
enum kvant_glu { KVANT_GLU_GELU = 0, KVANT_GLU_CLAMPED = 1, KVANT_GLU_RELU = 2, KVANT_GLU_GELU_ALONE = 3 };
typedef struct kvant_glu_args {
    const float *gate, *up; float *y; int n, f; int64_t ldg, ldu, ldy; int kind; float alpha, limit;
} kvant_glu_args;

/* y *= sigmoid(gate); n rows of h groups of d: y at i*ldy + j*gy, gate at i*ldg + j*gg. */
typedef struct kvant_gate_mul_args {
    float *y; const float *gate; int n, h, d; int64_t ldy, gy, ldg, gg;
} kvant_gate_mul_args;

/* y[i] += x[i] * sigmoid(gate[i]): one scalar per row (shared expert). f32[n][d], gate f32[n]. */
typedef struct kvant_gate_add_args { float *y; const float *x; const float *gate; int n, d; } kvant_gate_add_args;

/* y[i] = W x[i]; x f32[m][ldx], y f32[m][ldy]; w->n_expert == 1. */
typedef struct kvant_matmul_args {
    const kvant_weight *w; const float *x; float *y; int m; int64_t ldx, ldy; int compute;
} kvant_matmul_args;

/* y[i*k + j] = W[ids[i*k + j]] x[(i*k + j)/x_div]; rows i < n, slots j < k.  x_div = k: x has one row per token;
 * x_div = 1: one row per slot.  y f32[n*k][n_out]. */
typedef struct kvant_matmul_id_args {
    const kvant_weight *w; const float *x; const int32_t *ids; float *y; int n, k, x_div; int64_t ldx; int compute;
} kvant_matmul_id_args;

enum kvant_gating { KVANT_GATING_SOFTMAX, KVANT_GATING_SIGMOID, KVANT_GATING_SOFTMAX_CHOSEN };

/* p = the gate of logits[n][n_expert] in f32: softmax over all, sigmoid, or the logit itself (SOFTMAX_CHOSEN).
 * score = p + bias[n_expert] (NULL: p).  The k largest scores (ties: lower id first; NaN last), descending ->
 * ids[n][k].  n_group > 1: experts lie in n_group groups of neighbours; only those of the top_groups groups can be
 * chosen whose group_best (1 or 2) largest scores have the largest sums.
 * wts = p / max(sum of the chosen p, 2^-14) * scale; raw: p * scale; SOFTMAX_CHOSEN: softmax of the chosen * scale. */
typedef struct kvant_moe_route_args {
    const float *logits; int32_t *ids; float *wts; int n, n_expert, k; float scale;
    int gating, raw; const float *bias; int n_group, top_groups, group_best;
} kvant_moe_route_args;

/* y[i] = sum_j wts[i*k+j] * x[i*k+j], j ascending; y f32[n][d] overwritten. */
typedef struct kvant_moe_combine_args {
    const float *x; const float *wts; float *y; int n, k, d;
} kvant_moe_combine_args;

/* y[i] = x[idx[i]]; f32 rows of d. */
typedef struct kvant_rows_gather_args {
    const float *x; const int32_t *idx; float *y; int n, d;
} kvant_rows_gather_args;

/* Writes the K (or V) rows of every token: x f32[n_tokens] rows of h heads (ldx, head j at j*d).
 * Side without tail: encodes into the page row.  Side with tail: stores f16 into the tail page of its position. */
typedef struct kvant_cache_write_args {
    kvant_seqs seqs; kvant_kv_side side; const float *x; int64_t ldx; int h, d;
} kvant_cache_write_args;

/* Encodes whole tail pages: for i < n: tail page src[i] -> page dst[i] (all heads, 64 rows), with side.encoder. */
typedef struct kvant_page_seal_args {
    kvant_kv_side side; const int32_t *src, *dst; int n, h, d;
} kvant_page_seal_args;

/* Rows of pages to f32, real space: for i < n: page[i], row[i] -> y[i][h][d] through decode and finish_out. */
typedef struct kvant_cache_read_args {
    kvant_kv_side side; const int32_t *page, *row; float *y; int n, h, d;
} kvant_cache_read_args;

/* Causal attention of every token row over its sequence's pages.
 *   q f32[n_tokens][ldq], head j at j*gq; out f32[n_tokens][ldo], head j at j*d_v.
 *   Query at position i reads key j exactly (tail, f16) iff i/64 - j/64 < tail_pages and the side has a tail; else from
 *   its encoded row.  h % h_kv == 0; head j uses KV head j / (h/h_kv).  softmax in f32, scores times `scale`.
 *   window > 0: a query at position i sees the keys j > i - window only.  softcap > 0: a scaled score s becomes
 *   softcap * tanh(s / softcap).  sinks not NULL: head j's softmax has one more term, exp(sinks[j]), without a value.
 *   The context is cut at fixed positions (every KVANT_SPLIT tokens) and merged in order. */
enum { KVANT_SPLIT = 1024 };
typedef struct kvant_attn_args {
    kvant_seqs seqs; kvant_kv_side k, v; const float *q; float *out; int64_t ldq, gq, ldo;
    int h, h_kv, d_k, d_v; float scale; int tail_pages; int compute; int max_pos; /* highest position in the batch */
    int window; float softcap; const float *sinks; /* 0, 0, NULL: none; sinks f32[h] */
} kvant_attn_args;

/* The K side alone: s[i][j][t] = scale*<q, k_t> for t <= position of token i; s f32[n_tokens][h][lds], rest
 * untouched. */
typedef struct kvant_attn_score_args {
    kvant_seqs seqs; kvant_kv_side k; const float *q; float *s; int64_t ldq, gq, lds; int h, h_kv, d_k; float scale;
    int tail_pages;
} kvant_attn_score_args;

/* Depthwise causal conv over time, then SiLU (linear 1: without).  x f32[n_tokens][ldx], c channels; w f32[c][k] (tap
 * fastest, last tap = current token); bias f32[c] or NULL; state f32[slot][c][k-1], oldest first, of PRE-conv inputs;
 * y f32[n_tokens][c].
 * s = 0; s += window[j]*w[j], j ascending; s += bias (NULL: 0.0f); y = s / (1 + exp(-s)), linear: y = s.
 * Reads slot_in of every sequence before any write; writes the last k-1 inputs to slot_out.  That holds within one op:
 * no decode sequence of a batch may read a slot that a prompt sequence writes, nor the other way round.
 * conv_step takes decode sequences, conv_chunk prompt sequences; each ignores the other's rows. */
typedef struct kvant_conv_args {
    kvant_seqs seqs; const float *x; const float *w; float *state; float *y; int c, k; int64_t slot_stride; int64_t ldx;
    const float *bias; int linear;
} kvant_conv_args;

/* g = a * softplus(alpha + dt), beta = sigmoid(beta): f32[n][h]; a, dt f32[h]; in place (alpha -> g).
 * channels > 0: so many gates a head: alpha f32[n][h*channels], dt f32[h*channels]; a and beta as before. */
typedef struct kvant_gdn_gates_args {
    float *alpha; float *beta; const float *a, *dt; int n, h, channels;
} kvant_gdn_gates_args;

/* Gated delta rule.  Per value head v, key head kh = interleaved ? v/(hv/hk) : v % hk, and state S:
 *   S <- exp(g) S;  u = beta (v - S^T k);  S <- S + k u^T;  o = dk^-1/2 S^T q.
 * One gate a head; per_channel 1 (Kimi Delta Attention, arXiv 2510.26692): g f32[n_tokens][hv][dk], a gate for every
 * row of S: S <- diag(exp(g)) S.  No gate is above 0.
 *   q,k f32[n_tokens][..] head j at j*dk with row stride ldq/ldk, already L2-normalised; v f32 row stride ldv, head j
 *   at j*dv; g, beta f32[n_tokens][hv]; state [slot][hv][dv][dk] (transposed: value column j is dk contiguous values;
 *   slot_stride in values); o f32[n_tokens][hv*dv].
 *   Reads slot_in (-1: zeros), writes slot_out; all reads before any write.
 * gdn_step: token by token, decode sequences only.  gdn_chunk: chunks of KVANT_PAGE on the absolute 64 grid, prompt
 * sequences only.
 * state_type bf16: all arithmetic is f32, and the state is rounded to bf16 (to nearest, ties to even) after every token
 * of gdn_step and after every chunk of gdn_chunk, so that it does not matter where a prompt was cut on the grid.
 * compute auto: a device may sum a long prompt's terms in another order than a short one's. */
typedef struct kvant_gdn_args {
    kvant_seqs seqs; const float *q, *k, *v, *g, *beta; void *state; float *o; int hk, hv, dk, dv, interleaved;
    int64_t ldq, ldk, ldv, slot_stride; int state_type; /* enum kvant_state_type */
    int per_channel, compute;
} kvant_gdn_args;

/* Mamba2: a state space model with a scalar decay per head (Dao and Gu 2024).  Per head j, of group j / (h/g), state S:
 *   dt = softplus(dt_j + dt_bias_j);  S <- exp(dt a_j) S + dt x B^T;  y = S C + d_j x.
 *   x f32[n_tokens][ldx], head j at j*p; dt f32[n_tokens][lddt]; b and c f32[n_tokens][ldb], group at group*n; a, d,
 *   dt_bias f32[h]; state [slot][h][p][n] (slot_stride in values); y f32[n_tokens][h*p].
 *   Reads slot_in (-1: zeros), writes slot_out; all reads before any write.
 * ssm_step: decode sequences only.  ssm_chunk: prompt sequences only.  state_type bf16: as of gdn_step, gdn_chunk. */
typedef struct kvant_ssm_args {
    kvant_seqs seqs; const float *x, *dt, *b, *c, *a, *d, *dt_bias; void *state; float *y; int h, p, g, n;
    int64_t ldx, lddt, ldb, slot_stride; int state_type; /* enum kvant_state_type */
} kvant_ssm_args;

/* y_h = norm_rms(o_h; w[dv]) * silu(z_h); o, z, y f32[n][h*dv] (z row stride ldz); y may be o. */
typedef struct kvant_norm_gated_args {
    const float *o, *z, *w; float *y; float eps; int n, h, dv; int64_t ldz;
} kvant_norm_gated_args;

/* ids[i] = the position of the largest of x[i][d] (ties: the lower), or -1 where a value is NaN or infinite. */
typedef struct kvant_argmax_args { const float *x; int32_t *ids; int n, d; } kvant_argmax_args;

/* values, ids [n][k]: the k largest of each x[i][d], the largest first (ties: the lower position first).  With d < k
 * the rest, and all of a row in which a value is NaN or infinite, is id -1, value 0.  k 1 to KVANT_TOP_K_MOST. */
enum { KVANT_TOP_K_MOST = 1024 };
typedef struct kvant_top_k_args { const float *x; float *values; int32_t *ids; int n, d, k; } kvant_top_k_args;

/* Copies between state slots or pages: base + src[i]*stride -> base + dst[i]*stride, `bytes` each; gathers first. */
typedef struct kvant_slot_copy_args {
    uint8_t *base; const int32_t *src, *dst; int n; size_t stride, bytes;
} kvant_slot_copy_args;

/* Zeroes slots: base + dst[i]*stride. */
typedef struct kvant_slot_zero_args {
    uint8_t *base; const int32_t *dst; int n; size_t stride, bytes;
} kvant_slot_zero_args;

/* Op ids: KVANT_OP_EMBED ... generated from ops.def. */
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
