/* cmd_eval_ppl.c: `kvant eval ppl`: perplexity of a text. */
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "cli/eval/eval.h"
#include "cli/table.h"
#include "cli/term.h"

typedef struct ppl_run {
    const eval_text *t;
    double *nll;
    eval_stored stored;
    int path;
} ppl_run;

static int ppl_row(void *user, int64_t row, const float *logits, kvant_diag *diag)
{
    ppl_run *r = user;

    r->nll[row] = eval_logsumexp(logits, r->t->n_vocab) - (double)logits[eval_target(r->t, row)];
    if (!isfinite(r->nll[row]))
        return kvant_fail(diag, KVANT_ENUMERIC, "row %lld: the logits are not finite", (long long)row);
    return KVANT_OK;
}

static void ppl_json(const eval_text *t, const ppl_run *r, jsonw *w)
{
    eval_mean nll = eval_mean_of(r->nll, eval_text_rows(t));

    jsonw_object(w);
    jsonw_kstr(w, "path", path_name(r->path));
    jsonw_kstr(w, "type_k", r->stored.type_k);
    jsonw_kstr(w, "type_v", r->stored.type_v);
    jsonw_kint(w, "kv_tail", r->stored.kv_tail);
    jsonw_kint(w, "kv_sink", r->stored.kv_sink);
    jsonw_kstr(w, "state_type", r->stored.state_type);
    jsonw_kstr(w, "kv_encoder", encoder_name(r->stored.encoder));
    jsonw_kint(w, "cache_bytes_per_token", r->stored.bytes_per_token);
    jsonw_kint(w, "n_ctx", t->n_ctx);
    jsonw_kint(w, "chunks", t->n_chunk);
    jsonw_kint(w, "rows", eval_text_rows(t));
    jsonw_knum(w, "nll", nll.mean);
    jsonw_knum(w, "nll_err", nll.err);
    jsonw_knum(w, "ppl", exp(nll.mean));
    jsonw_knum(w, "ppl_err", exp(nll.mean) * nll.err);
    jsonw_knum(w, "seconds", r->stored.seconds);
    jsonw_end(w);
}

static void ppl_text(const eval_text *t, const ppl_run *r, int head)
{
    eval_mean nll = eval_mean_of(r->nll, eval_text_rows(t));

    static const char columns[] = "K|V|>tail|encoder|path|>c|>chunks|>NLL|>PPL|>t/s";

    if (head)
        table_head(stdout, columns);
    table_row(stdout, columns, "%s|%s|%d|%s|%s|%d|%d|%.5f \xC2\xB1 %.5f|%.4f \xC2\xB1 %.4f|%.0f", r->stored.type_k,
              r->stored.type_v, r->stored.kv_tail, encoder_name(r->stored.encoder), path_name(r->path), t->n_ctx,
              t->n_chunk, nll.mean, nll.err, exp(nll.mean), exp(nll.mean) * nll.err,
              (double)t->n_chunk * (t->n_ctx - 1) / r->stored.seconds);
}

static int ppl_paths(const opts *o, kvant_model *m, const eval_text *t, ppl_run *r, kvant_diag *diag)
{
    kvant_engine_params p;
    int paths[2], n = eval_paths(o, paths), json = opt_flag(o, OPT_JSON);
    jsonw w;

    params_from_opts(o, &p);
    jsonw_init(&w);
    jsonw_object(&w);
    jsonw_kstr(&w, "model", kvant_model_get_info(m)->desc);
    jsonw_key(&w, "results");
    jsonw_array(&w);
    for (int i = 0; i < n; i++) {
        r->path = paths[i];
        int code = eval_run(m, t, &p, r->path, path_name(r->path), ppl_row, r, &r->stored, diag);
        if (code != KVANT_OK) {
            jsonw_free(&w);
            return code;
        }
        if (json)
            ppl_json(t, r, &w);
        else
            ppl_text(t, r, i == 0);
    }
    jsonw_end(&w);
    jsonw_end(&w);
    if (json)
        return put_json(&w, diag);
    jsonw_free(&w);
    return KVANT_OK;
}

int cmd_eval_ppl(const opts *o, kvant_diag *diag)
{
    kvant_model *m = NULL;
    eval_text t = { 0 };
    ppl_run r;
    int code;

    memset(&r, 0, sizeof r);
    KVANT_TRY(open_model(o, &m, diag));
    term_catch_interrupt();
    code = eval_text_open(o, m, &t, diag);
    if (code == KVANT_OK) {
        r.t = &t;
        r.nll = kvant_calloc((size_t)eval_text_rows(&t), sizeof *r.nll);
        code = r.nll ? ppl_paths(o, m, &t, &r, diag) : kvant_fail(diag, KVANT_ENOMEM, "eval: out of memory");
    }
    kvant_free(r.nll);
    eval_text_close(&t);
    kvant_model_close(m);
    return code;
}
