/* make/convert/convert_plan.h: every tensor of the new file, before anything is written.  Internal to convert*.c. */
#ifndef KVANT_MAKE_CONVERT_PLAN_H
#define KVANT_MAKE_CONVERT_PLAN_H

#include "make/convert/convert_arch.h"
#include "make/convert/safetensors.h"

enum { CONVERT_NAME = 64, CONVERT_MOST_FURTHER = 16 }; /* the last: arbitrary, above any model */

/* Rows of one source tensor, in their order in the new one. */
typedef struct convert_piece {
    const st_tensor *src;
    int64_t first, rows;
    int64_t head; /* rows of a head whose halves become pairs; 0: rows stay where they are */
    /* value_step > 0: value i of row r is number first + r * row_step + i * value_step of src */
    int64_t row_step, value_step;
    const st_tensor *scales; /* of MXFP4 codes, a byte for each block, rows as src's; NULL: src has numbers */
    const st_tensor *fp8;    /* scales of src, which has FP8; NULL: it has not */
} convert_piece;

typedef struct convert_item {
    char name[CONVERT_NAME];
    int n_dims;
    int64_t ne[ST_DIMS]; /* ne[0] fastest */
    const kvant_wtype *type;
    int first_piece, n_pieces;
    float *own; /* values that no file has; NULL: of the pieces */
    float add;  /* to every value */
    int minus_exp;           /* every value x becomes -exp(x) */
    int tile_groups, tile_n; /* src has the tile_n heads of each group together; here the first of all groups lead */
    uint64_t offset;
    size_t bytes;
} convert_item;

typedef struct convert_plan {
    const convert_arch *arch;
    const char *name; /* in config.json's "architectures" */
    const hf_config *config;
    const st_files *files;
    const kvant_wtype *type;
    uint32_t heads, heads_kv, layers, experts;
    uint32_t layers_more, layers_kept; /* behind the others, for further tokens; of these, written */
    const char *further_lacks;         /* a tensor that they would need; NULL: none */
    int no_further;                    /* none is wanted */
    struct { int on; int64_t rows, cols; float values[256]; } fp8; /* FP8 weights; values that share a scale, 0: a whole
                                                                    * tensor; what the codes stand for */
    int64_t n_tokens; /* rows that the embedding has to have */
    convert_item *items;
    convert_piece *pieces;
    int *seen; /* per layer: tensors of single experts that came */
    int n, cap, n_pieces, cap_pieces, n_left_out, n_further;
    const char *further; /* the first of n_further tensors that predict further tokens and are left out */
} convert_plan;

/* arch, config, files, type and n_tokens are set. */
int convert_plan_make(convert_plan *p, kvant_diag *diag);
void convert_plan_free(convert_plan *p);
/* A new item with its name and dims (slowest first, as in the files), type chosen. */
int convert_plan_add(convert_plan *p, const char *name, int n_dims, const int64_t *dim, convert_item **out,
                     kvant_diag *diag);
/* A new item of the tensor that config.json's names call `name` ("model.layers.3.mlp.up_proj.weight"). */
int convert_plan_named(convert_plan *p, const char *name, int n_dims, const int64_t *dim, convert_item **out,
                       kvant_diag *diag);
/* `it` is the newest item. */
int convert_plan_piece(convert_plan *p, convert_item *it, convert_piece piece, kvant_diag *diag);
/* convert_further.c: layers_more, layers_kept.  A tensor's name without what stands around the language model and,
 * where it is one of a block for further tokens (returns 1), as that of a layer behind the trunk. */
int convert_further_find(convert_plan *p, kvant_diag *diag);
int convert_further_name(const convert_plan *p, const char *name, char *out, size_t size);
/* convert_check.c: the tensors are those that config.json says there are. */
int convert_check_tensors(const convert_plan *p, kvant_diag *diag);
/* rope_freqs or rope_factors_*, where the architecture has them. */
int convert_plan_rope(convert_plan *p, kvant_diag *diag);

#endif
