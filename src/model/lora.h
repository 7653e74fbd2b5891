/* model/lora.h: low-rank adapters of a model (GGUF files as convert_lora_to_gguf.py writes them).
 *
 * An adapter has for a matrix W[n_out][n_in] of the model A[r][n_in] and B[n_out][r]; with scale s a row's product is
 * W x + s * alpha / r * B (A x).  All adapters of a model stand side by side: each has its columns of one common rank,
 * so that A of all of them is one matrix, B too, and a row of scales (zero in the columns of adapters that it has not)
 * chooses.  A row's result is the same whatever adapters the other rows of a batch have.
 * The matrices are specs of the model like any other, made (in f32) when an engine loads them. */
#ifndef KVANT_MODEL_LORA_H
#define KVANT_MODEL_LORA_H

#include "kvant/engine.h"
#include "model/gguf/gguf.h"

enum { LORA_MAX_RANK = 4096 };

typedef struct lora_file {
    gguf *file;
    char *path;
    float scale;                   /* of sequences that say nothing else */
    float alpha;                   /* 0: the file has none; alpha / r is then 1 */
    int rank, first;               /* its columns: the largest r of its tensors, and where they begin */
    int64_t n_params;
} lora_file;

/* Adapters add these to the rows [row0, row0 + n_out) of a matrix: they come from one tensor of the model. */
typedef struct lora_site {
    int spec, tensor;
    int row0, n_in, n_out;
    int a, b;                      /* specs [rank][n_in] and [n_out][rank] */
} lora_site;

typedef struct lora_set {
    int n;
    lora_file *files;
    int rank;                      /* columns of all files, a multiple of 16; 0: there are no adapters */
    int n_sites;
    lora_site *sites;              /* sites of one matrix stand together */
    int widest;                    /* most rows of a site, but for those of logits */
    int widest_output;
    int64_t bytes;                 /* of all matrices, f32, each tensor once */
} lora_set;

struct kvant_model;

/* Opens and checks the files of params against the model, whose specs are complete.  KVANT_EFORMAT or
 * KVANT_EUNSUPPORTED names the file, the tensor, what was found and what is wanted. */
int lora_open(struct kvant_model *m, const kvant_lora *list, int n, kvant_diag *diag);
void lora_close(lora_set *set);
/* The site of a spec that is its A or B, or NULL. */
const lora_site *lora_site_of(const struct kvant_model *m, int spec);
/* Fills such a spec's matrix, f32 in rows. */
void lora_fill(const struct kvant_model *m, int spec, float *dst);
/* scales[n] of the files -> row[rank]: a scale for each column. */
void lora_row(const lora_set *set, const float *scales, float *row);

#endif
