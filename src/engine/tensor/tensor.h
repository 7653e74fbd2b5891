/* engine/tensor/tensor.h: every layer in parts over devices (-sm tensor).
 *
 * A matrix is cut by its outputs: a place has some columns of the product, each the whole sum that one device computes.
 * A program is built for one device and then cut (tensor_cut.c): products give each place its columns; ops of heads,
 * pages and columns follow on them (tensor_ops.c); before an op that reads all columns they are gathered on every place
 * (an exchange, tensor_run.c), and ops that are not cut run everywhere.  So no sum is in two halves: on the CPU the
 * bits are those of one device.  docs/decisions/0012-tensor-split.md says why.
 *
 * A place has buffers as one device has them, whose addresses the cut translates, and a second block (`shadow`) where
 * the columns that it made lie side by side until they are gathered.  Owner thread of the engine only. */
#ifndef KVANT_ENGINE_TENSOR_TENSOR_H
#define KVANT_ENGINE_TENSOR_TENSOR_H

#include "engine/engine.h"
#include "ops/operands.h"

enum { TENSOR_PARTS = 4, TENSOR_LIVE = 16, TENSOR_TOUCHED = 64 };

/* The outputs of a matrix, or the columns of rows: stretches one behind the other, each shared out in whole units. */
typedef struct tensor_shape {
    int n;                         /* 0: not cut */
    int cols[TENSOR_PARTS], unit[TENSOR_PARTS];
} tensor_shape;

/* Rows of which each place has its columns; addresses are those of the program before it was cut. */
typedef struct tensor_rows {
    float *base;
    int64_t ld;
    int rows;
    tensor_shape shape;
} tensor_rows;

/* Columns to all places, or to the first: before op number at[place] of each. */
typedef struct tensor_exchange {
    tensor_rows r;
    int at[KV_MOST_PLACES];
    unsigned parts;                /* a bit for each stretch that somebody reads */
    int first;                     /* 1: the first place alone reads it */
    int staged;                    /* rows come side by side in the shadow: ops behind it move them */
    int wait;                      /* ops since the exchange before may have used the rows: kvant_meet */
} tensor_exchange;

/* Memory of place 0 [lo, hi) and where each place has the same. */
typedef struct tensor_range {
    uintptr_t lo, hi;
    uintptr_t at[KV_MOST_PLACES];
    const kvant_kv_side *side[KV_MOST_PLACES];     /* NULL, or whose pages begin there */
} tensor_range;

typedef struct tensor_place {
    kvant_op *ops;
    int n;
    unsigned char *shadow;         /* as large as scratch */
    kvant_weight *part;            /* [n_specs] the place's rows of matrices that are cut */
    void **host;                   /* [n_specs] rows put together, which the device still reads, or NULL */
    float *out;                    /* host memory of exchanges, where they go through it */
    kvant_meet *meet;              /* [exchanges] where devices meet */
    kvant_meet_piece *piece;       /* [exchanges + 1] */
} tensor_place;

/* Memory that ops used as whole rows since the last exchange; n over TENSOR_TOUCHED: any. */
typedef struct tensor_touched {
    op_operand list[TENSOR_TOUCHED];
    int n;
} tensor_touched;

typedef struct engine_tensor {
    int n;                         /* places */
    tensor_shape *shape;           /* [n_specs] */
    tensor_place place[KV_MOST_PLACES];
    tensor_exchange *exchange;
    int n_exchange, cap_exchange, cap;         /* cap: most ops of a place */
    tensor_touched touched;
    tensor_rows live[TENSOR_LIVE];
    int n_live;
    tensor_range *range;           /* ascending */
    int n_range;
    arena args;
    size_t scratch_bytes, host_bytes;          /* host_bytes: the largest rows that are exchanged, in host memory */
    float *in;                     /* host memory of exchanges: whole rows */
    int direct;                    /* every place is a CPU: an exchange is copies of memory */
    int meets;                     /* every place's device writes into the others' memory */
    int error;                     /* 1: more ops than there is room for; 2: an address of nobody; 3: an exchange
                                    * that is larger than its memory */
} engine_tensor;

/* ---- tensor_shape.c: who has which part; no memory ---- */

/* The first unit of n that is place i's; of place n_places: n.  Fewer units than places: the first place has one more
 * than nothing. */
int tensor_share(const engine_split *s, int units, int i);
/* Names and shares are read: the rest of engine_split_make. */
int tensor_split_make(const kvant_model *m, const kvant_engine_params *p, engine_split *s, kvant_diag *diag);
/* KVANT_EUNSUPPORTED for what a tensor split does not go with, however many devices there are. */
int tensor_check_beside(const kvant_model *m, const kvant_engine_params *p, kvant_diag *diag);
/* KV heads of a layer that a place has: its share, or all, where there are fewer than places and of latent
 * attention. */
int tensor_heads(const kvant_model *m, const engine_split *s, int place, int l);
/* shape[n_specs] of all matrices. */
void tensor_shapes(const kvant_model *m, const engine_split *s, tensor_shape *shape);
/* Bytes of the weights of a place, and of one tensor of the file there (embed: with the table that tokens read; of a
 * block that predicts further tokens: 0).  -1: out of memory. */
int64_t tensor_weights(const kvant_model *m, const engine_split *s, int place);
int64_t tensor_bytes(const kvant_model *m, const engine_split *s, int place, int tensor);

/* Columns of a stretch up to place i's; of a place; of all stretches; and of the whole. */
static inline int tensor_from(const engine_split *s, const tensor_shape *t, int k, int i)
{
    return t->unit[k] * tensor_share(s, t->cols[k] / t->unit[k], i);
}

static inline int tensor_part(const engine_split *s, const tensor_shape *t, int k, int i)
{
    return tensor_from(s, t, k, i + 1) - tensor_from(s, t, k, i);
}

static inline int tensor_width(const engine_split *s, const tensor_shape *t, int i)
{
    int n = 0;
    for (int k = 0; k < t->n; k++)
        n += tensor_part(s, t, k, i);
    return n;
}

static inline int tensor_col(const tensor_shape *t, int k)
{
    int n = 0;
    for (int j = 0; j < k; j++)
        n += t->cols[j];
    return n;
}

/* ---- tensor.c ---- */

/* Shadows, lists and ranges: after the cache, the buffers and the builder's weights are there. */
int tensor_create(kvant_engine *e, kvant_diag *diag);
void tensor_free(kvant_engine *e);
/* Again, once weights are loaded. */
void tensor_ranges(kvant_engine *e);
/* Host memory of exchanges, where they go through it: not between CPUs and where devices meet. */
int tensor_host_memory(kvant_engine *e, kvant_diag *diag);
/* The place's part of a matrix gets the rows of the file; *joined: memory in which they were put together, or NULL. */
int tensor_rows_of(const kvant_engine *e, int place, int id, void **joined, kvant_diag *diag);

/* ---- tensor_cut.c: the program in e->ops -> one list for each place ---- */

int tensor_cut(kvant_engine *e, kvant_diag *diag);
/* kvant_op_check of all ops, once weights are loaded. */
int tensor_check(const kvant_engine *e, kvant_diag *diag);
/* The address on place i of what place 0 has at `at`. */
const void *tensor_there(engine_tensor *t, int place, const void *at);
/* The cut rows that begin at or before `at` and reach beyond; NULL: none. */
tensor_rows *tensor_find(engine_tensor *t, const void *at);
/* Gathers what op i and those behind it read of cut rows that its operands touch, but for those at the addresses in
 * keep[n]; they are no longer cut. */
void tensor_settle(kvant_engine *e, int i, const void *const *keep, int n);
/* From here on the rows at r->base are cut so. */
void tensor_mark(engine_tensor *t, const tensor_rows *r);
/* Place i's columns of these rows in its shadow, where whole rows would have room. */
float *tensor_base(const kvant_engine *e, const tensor_rows *r, int i);
/* Place i's column `col` (of stretch k, one of its own) of the first row. */
float *tensor_local(const kvant_engine *e, const tensor_rows *r, int i, int k, int col);
/* A copy of an op's arguments with place i's addresses and sides, and the op in its list; *args: of op id. */
void *tensor_args(kvant_engine *e, int i, const kvant_op *op);
void tensor_put(engine_tensor *t, int i, int id, const void *args);

/* ---- tensor_ops.c ---- */

/* 1: op i is in the lists, on parts; 0: it wants whole rows. */
int tensor_op(kvant_engine *e, int i);

/* ---- tensor_run.c ---- */

int tensor_submit(kvant_engine *e, uint64_t key, kvant_diag *diag);

#endif
