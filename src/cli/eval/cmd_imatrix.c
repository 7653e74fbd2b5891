/* cmd_imatrix.c: `kvant imatrix`: a text through the model, every product counted. */
#include <string.h>
#include "cli/eval/eval.h"
#include "cli/term.h"
#include "make/collect.h"

/* Logits of every row are asked for, so that the last layer sees every row. */
static int run_chunk(kvant_engine *e, const eval_text *t, int chunk, int piece, kvant_diag *diag)
{
    const int32_t *ids = t->ids + (int64_t)chunk * t->n_ctx;
    int seq;

    KVANT_TRY(kvant_seq_new(e, &seq, diag));
    for (int at = 0; at < t->n_ctx; at += piece) {
        const int n = t->n_ctx - at < piece ? t->n_ctx - at : piece;
        const kvant_item item = { seq, ids + at, n, 1, KVANT_LOGITS_ALL };
        if (term_interrupted())
            return kvant_fail(diag, KVANT_ECANCELED, "stopped by Ctrl-C");
        KVANT_TRY(kvant_step(e, &item, 1, diag));
    }
    return kvant_seq_free(e, seq);
}

static int run_text(kvant_engine *e, const eval_text *t, int piece, kvant_diag *diag)
{
    progress bar;
    int rc = KVANT_OK;

    memset(&bar, 0, sizeof bar);
    progress_start(&bar, "imatrix", t->n_chunk);
    for (int c = 0; rc == KVANT_OK && c < t->n_chunk; c++) {
        rc = run_chunk(e, t, c, piece, diag);
        progress_show(&bar, c + 1);
    }
    progress_end(&bar);
    return rc;
}

static int report(const opts *o, const eval_text *t, int matrices, kvant_diag *diag)
{
    jsonw w;

    if (!opt_flag(o, OPT_JSON)) {
        printf("%s: %d matrices, %d chunks of %d tokens\n", opt_str(o, OPT_IMATRIX_OUT), matrices, t->n_chunk,
               t->n_ctx);
        return KVANT_OK;
    }
    jsonw_init(&w);
    jsonw_object(&w);
    jsonw_kstr(&w, "file", opt_str(o, OPT_IMATRIX_OUT));
    jsonw_kint(&w, "matrices", matrices);
    jsonw_kint(&w, "chunks", t->n_chunk);
    jsonw_kint(&w, "chunk_size", t->n_ctx);
    jsonw_end(&w);
    const int rc = put_json(&w, diag);
    jsonw_free(&w);
    return rc;
}

static int measure(const opts *o, kvant_engine *e, const eval_text *t, int piece, kvant_diag *diag)
{
    char path[1024];
    collect *c = NULL;
    int matrices = 0, rc;

    KVANT_TRY(eval_text_path(o, path, sizeof path, diag));
    KVANT_TRY(collect_open(e, &c, diag));
    rc = run_text(e, t, piece, diag);
    if (rc == KVANT_OK)
        rc = collect_save(c, opt_str(o, OPT_IMATRIX_OUT), path, (uint32_t)t->n_chunk, (uint32_t)t->n_ctx, &matrices,
                          diag);
    collect_close(c);
    return rc == KVANT_OK ? report(o, t, matrices, diag) : rc;
}

int cmd_imatrix(const opts *o, kvant_diag *diag)
{
    kvant_model *m = NULL;
    kvant_engine *e = NULL;
    kvant_engine_params p;
    eval_text t = { 0 };

    KVANT_TRY(open_model(o, &m, diag));
    term_catch_interrupt();
    int rc = eval_text_open(o, m, &t, diag);
    params_from_opts(o, &p);
    if (rc == KVANT_OK) {
        p.n_ctx = t.n_ctx;
        p.max_seqs = 1;
        p.logits_rows = KVANT_PAGE;
        rc = open_engine(m, &p, &e, diag);
    }
    if (rc == KVANT_OK)
        rc = measure(o, e, &t, KVANT_PAGE, diag);
    kvant_engine_free(e);
    eval_text_close(&t);
    kvant_model_close(m);
    return rc;
}
