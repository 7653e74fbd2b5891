/* cli/eval/eval.h: what the eval commands share: a text in chunks, the two paths through the engine, and statistics.
 *
 * A text of tokens is cut into n_chunk windows of n_ctx.  Position t of a chunk predicts token t+1; positions first =
 * n_ctx/2 .. n_ctx-2 are scored, `rows` per chunk, numbered chunk * rows + (t - first). */
#ifndef KVANT_CLI_EVAL_H
#define KVANT_CLI_EVAL_H

#include "cli/common.h"

typedef struct eval_text {
    const kvant_model *m;
    int32_t *ids; /* n_chunk * n_ctx, BOS at the head of each chunk where the model asks for it */
    int n_ctx, n_chunk, first, rows, n_vocab;
} eval_text;

/* -f, else valid.txt of $KVANT_MODELS (../shared/models). */
int eval_text_path(const opts *o, char *buf, size_t cap, kvant_diag *diag);
int eval_text_open(const opts *o, const kvant_model *m, eval_text *t, kvant_diag *diag);
void eval_text_close(eval_text *t);
int64_t eval_text_rows(const eval_text *t);
/* The token that row r should predict. */
int32_t eval_target(const eval_text *t, int64_t row);

enum eval_path { PATH_PREFILL, PATH_DECODE };
const char *path_name(int path);
/* Paths of --path into v[2]; returns how many. */
int eval_paths(const opts *o, int v[2]);

/* Called once per row with its logits f32[n_vocab]; rows of one chunk come in order. */
typedef int (*eval_row_fn)(void *user, int64_t row, const float *logits, kvant_diag *diag);

/* Runs the whole text through an engine made with p (n_ctx, sequences and logit rows are set here).  bar: title of the
 * progress bar.  *stored gets the resolved parameters and cache bytes per token of the engine that ran. */
typedef struct eval_stored {
    const char *type_k, *type_v, *state_type;
    int kv_tail, kv_sink, encoder;
    int64_t bytes_per_token;
    double seconds;
} eval_stored;
int eval_run(kvant_model *m, const eval_text *t, const kvant_engine_params *p, int path, const char *bar,
             eval_row_fn fn, void *user, eval_stored *stored, kvant_diag *diag);

/* log(sum(exp(x))), summed in double. */
double eval_logsumexp(const float *x, int n);
int eval_argmax(const float *x, int n); /* first index on ties */

/* Mean and its standard error, (n-1), 0 for n < 2. */
typedef struct eval_mean {
    double mean, err;
} eval_mean;
eval_mean eval_mean_of(const double *x, int64_t n);
/* Covariance of the means of two series. */
double eval_cov_of_means(const double *a, const double *b, int64_t n);
/* Sorts x. */
void eval_sort(double *x, int64_t n);
/* Quantile of sorted x by linear interpolation. */
double eval_quantile(const double *x, int64_t n, double q);

/* f32 rows kept for later: in memory, or in an unnamed temporary file when they would take more than a quarter
 * of it. */
typedef struct eval_store {
    float *mem;
    int fd;
    int64_t rows;
    int width;
} eval_store;
int eval_store_open(eval_store *s, int64_t rows, int width, kvant_diag *diag);
int eval_store_put(eval_store *s, int64_t row, const float *x, kvant_diag *diag);
int eval_store_get(const eval_store *s, int64_t row, float *x, kvant_diag *diag);
void eval_store_close(eval_store *s);

#endif
