/* cmd_eval_kl.c: `kvant eval kl`: how far a compressed cache moves the next-token distribution.
 *
 * Per row, with p of the base, q of the tested cache and y the true next token:
 *   kld  = sum_i p_i (log p_i - log q_i)     over the whole vocabulary (llama.cpp leaves out p_i <= e^-16, because it
 *                                            stores its base in 16 bits; here the base is exact, but for a file of
 *                                            llama.cpp's: eval_logits.h)
 *   same = argmax p == argmax q,  dp = q_y - p_y,  nll_p, nll_q
 * Equal logits give exactly 0. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/mem.h"
#include "cli/eval/eval_logits.h"
#include "cli/table.h"
#include "cli/term.h"

typedef struct kl_run {
    const opts *o;
    kvant_model *m, *base_model; /* base_model: NULL: m */
    eval_text t;
    eval_store base;             /* logits of the base */
    char base_file[EVAL_LOGITS_NAME]; /* from a file: what it says of itself; else "" */
    double *base_lse, *base_nll; /* per row */
    float *row;                  /* one row of the base */
    double *kld, *nll, *dp, *same, *sorted;
    jsonw w;
    int json, n_shown;
    double worst; /* largest mean KL divergence so far */
} kl_run;

typedef struct kl_config {
    kv_pair pair;
    int path, tail, encoder;
} kl_config;

/* One configuration's results, for the tables and the JSON. */
typedef struct kl_result {
    kl_config c;
    eval_stored stored;
    eval_mean kld, same, dp, dp2, nll, base_nll;
    double median, q99, q999, max, ratio, ratio_err;
} kl_result;

static int base_row(void *user, int64_t row, const float *logits, kvant_diag *diag)
{
    kl_run *r = user;

    r->base_lse[row] = eval_logsumexp(logits, r->t.n_vocab);
    const float y = logits[eval_target(&r->t, row)];
    r->base_nll[row] = y == -INFINITY ? 16 : r->base_lse[row] - (double)y; /* left out by llama.cpp: e^-16 or less */
    if (!isfinite(r->base_nll[row]))
        return kvant_fail(diag, KVANT_ENUMERIC, "base, row %lld: the logits are not finite", (long long)row);
    return eval_store_put(&r->base, row, logits, diag);
}

static int test_row(void *user, int64_t row, const float *q, kvant_diag *diag)
{
    kl_run *r = user;
    const int n = r->t.n_vocab, y = eval_target(&r->t, row);
    const float *p = r->row;
    double lq = eval_logsumexp(q, n), lp = r->base_lse[row], kld = 0;

    KVANT_TRY(eval_store_get(&r->base, row, r->row, diag));
    for (int i = 0; i < n; i++)
        if (p[i] > -INFINITY)    /* llama.cpp's files leave out p <= e^-16; a NaN fails below */
            kld += (double)expf((float)((double)p[i] - lp)) * (((double)p[i] - lp) - ((double)q[i] - lq));
    r->kld[row] = kld;
    r->nll[row] = lq - (double)q[y];
    r->dp[row] = exp(-r->nll[row]) - exp(-r->base_nll[row]);
    r->same[row] = eval_argmax(p, n) == eval_argmax(q, n);
    if (!isfinite(kld) || !isfinite(r->nll[row]))
        return kvant_fail(diag, KVANT_ENUMERIC, "row %lld: the logits are not finite", (long long)row);
    return KVANT_OK;
}

/* ---- results ---- */

static void summarize(kl_run *r, kl_result *s)
{
    int64_t n = eval_text_rows(&r->t);

    s->kld = eval_mean_of(r->kld, n);
    s->same = eval_mean_of(r->same, n);
    s->dp = eval_mean_of(r->dp, n);
    s->nll = eval_mean_of(r->nll, n);
    s->base_nll = eval_mean_of(r->base_nll, n);
    for (int64_t i = 0; i < n; i++)
        r->sorted[i] = r->dp[i] * r->dp[i];
    s->dp2 = eval_mean_of(r->sorted, n);
    memcpy(r->sorted, r->kld, (size_t)n * sizeof *r->kld);
    eval_sort(r->sorted, n);
    s->median = eval_quantile(r->sorted, n, 0.5);
    s->q99 = eval_quantile(r->sorted, n, 0.99);
    s->q999 = eval_quantile(r->sorted, n, 0.999);
    s->max = r->sorted[n - 1];
    s->ratio = exp(s->nll.mean - s->base_nll.mean);
    double var = s->nll.err * s->nll.err + s->base_nll.err * s->base_nll.err -
                 2 * eval_cov_of_means(r->nll, r->base_nll, n);
    s->ratio_err = s->ratio * sqrt(var > 0 ? var : 0);
}

/* RMS of dp and its standard error, from the mean of squares. */
static eval_mean rms_of(const kl_result *s)
{
    double rms = sqrt(s->dp2.mean);
    return (eval_mean){ rms, rms > 0 ? s->dp2.err / (2 * rms) : 0 };
}

static void put_mean(jsonw *w, const char *key, const char *err_key, eval_mean m)
{
    jsonw_knum(w, key, m.mean);
    jsonw_knum(w, err_key, m.err);
}

static void result_json(jsonw *w, const kl_result *s)
{
    jsonw_object(w);
    jsonw_kstr(w, "type_k", s->stored.type_k);
    jsonw_kstr(w, "type_v", s->stored.type_v);
    jsonw_kint(w, "kv_tail", s->stored.kv_tail);
    jsonw_kint(w, "kv_sink", s->stored.kv_sink);
    jsonw_kstr(w, "state_type", s->stored.state_type);
    jsonw_kstr(w, "kv_encoder", encoder_name(s->stored.encoder));
    jsonw_kstr(w, "path", path_name(s->c.path));
    jsonw_kint(w, "cache_bytes_per_token", s->stored.bytes_per_token);
    put_mean(w, "mean", "mean_err", s->kld);
    jsonw_knum(w, "median", s->median);
    jsonw_knum(w, "p99", s->q99);
    jsonw_knum(w, "p99_9", s->q999);
    jsonw_knum(w, "max", s->max);
    put_mean(w, "same_top", "same_top_err", s->same);
    jsonw_knum(w, "ppl", exp(s->nll.mean));
    jsonw_knum(w, "ppl_err", exp(s->nll.mean) * s->nll.err);
    jsonw_knum(w, "ppl_ratio", s->ratio);
    jsonw_knum(w, "ppl_ratio_err", s->ratio_err);
    put_mean(w, "dp", "dp_err", s->dp);
    put_mean(w, "dp_rms", "dp_rms_err", rms_of(s));
    jsonw_knum(w, "seconds", s->stored.seconds);
    jsonw_end(w);
}

static void result_text(const kl_result *s, int head)
{
    static const char columns[] = "K|V|>tail|encoder|path|>B/token|>mean KLD|>median|>99 %|>99.9 %|>max|>same top, %|"
                                  ">PPL ratio|>mean dp, %|>RMS dp, %";

    if (head)
        table_head(stdout, columns);
    table_row(
        stdout, columns,
        "%s|%s|%d|%s|%s|%lld|%.4g \xC2\xB1 %.2g|%.3g|%.3g|%.3g|%.3g|%.2f \xC2\xB1 %.2f|%.5f \xC2\xB1 %.5f|%.3f \xC2\xB1 %.3f|%.3f "
        "\xC2\xB1 %.3f",
        s->stored.type_k, s->stored.type_v, s->stored.kv_tail, encoder_name(s->stored.encoder), path_name(s->c.path),
        (long long)s->stored.bytes_per_token, s->kld.mean, s->kld.err, s->median, s->q99, s->q999, s->max,
        100 * s->same.mean, 100 * s->same.err, s->ratio, s->ratio_err, 100 * s->dp.mean, 100 * s->dp.err,
        100 * rms_of(s).mean, 100 * rms_of(s).err);
    fflush(stdout);
}

static int run_config(kl_run *r, const kl_config *c, kl_result *s, kvant_diag *diag)
{
    kvant_engine_params p;
    char bar[96];

    params_from_opts(r->o, &p);
    p.type_k = c->pair.k;
    p.type_v = c->pair.v;
    p.kv_tail = c->tail;
    p.encoder = c->encoder;
    snprintf(bar, sizeof bar, "%s/%s tail %d %s %s", c->pair.k, c->pair.v, c->tail, encoder_name(c->encoder),
             path_name(c->path));
    s->c = *c;
    KVANT_TRY(eval_run(r->m, &r->t, &p, c->path, bar, test_row, r, &s->stored, diag));
    summarize(r, s);
    if (!(s->kld.mean <= r->worst))
        r->worst = s->kld.mean;
    if (r->json)
        result_json(&r->w, s);
    else
        result_text(s, r->n_shown == 0);
    r->n_shown++;
    return KVANT_OK;
}

/* Both paths of one configuration, and how far they are apart in units of their combined standard error. */
static int run_paths(kl_run *r, kl_config *c, kvant_diag *diag)
{
    int paths[2], n = eval_paths(r->o, paths);
    kl_result s[2];

    for (int i = 0; i < n; i++) {
        c->path = paths[i];
        KVANT_TRY(run_config(r, c, &s[i], diag));
    }
    if (n == 2) {
        double d = s[1].kld.mean - s[0].kld.mean, err = sqrt(s[0].kld.err * s[0].kld.err + s[1].kld.err * s[1].kld.err);
        log_msg(LOG_INFO, "%s/%s: decode - prefill = %.6f, %.2f combined standard errors", c->pair.k, c->pair.v, d,
                err > 0 ? d / err : 0.0);
    }
    return KVANT_OK;
}

/* ---- the sweep ---- */

enum { MAX_LIST = 16 };

static int encoder_list(const opts *o, int *v)
{
    char word[32];
    int n = 0;

    while (n < MAX_LIST && opt_item(o, OPT_ENCODER_LIST, n, word, sizeof word)) {
        v[n] = encoder_of(word);
        n++;
    }
    return n;
}

static int run_pairs(kl_run *r, kvant_diag *diag)
{
    kv_pair *pairs = kvant_calloc(MAX_PAIRS, sizeof *pairs);
    int64_t tails[MAX_LIST];
    int n_pairs = 0, n_tails = 0, encoders[MAX_LIST], n_enc = encoder_list(r->o, encoders);
    int code = pairs ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "eval: out of memory");

    if (code == KVANT_OK)
        code = pairs_from_opts(r->o, pairs, MAX_PAIRS, &n_pairs, diag);
    if (code == KVANT_OK)
        code = opt_ints(r->o, OPT_TAIL_LIST, tails, MAX_LIST, &n_tails, diag);
    for (int i = 0; i < n_pairs; i++)
        for (int t = 0; t < n_tails; t++)
            for (int e = 0; e < n_enc && code == KVANT_OK; e++) {
                kl_config c = { pairs[i], 0, (int)tails[t], encoders[e] };
                if ((t || e) && pair_is_wide(&pairs[i]))
                    continue; /* neither tail nor encoder changes a wide cache */
                code = run_paths(r, &c, diag);
            }
    kvant_free(pairs);
    return code;
}

/* The base may be another file, but of the same tokens: the text is the same ids in both. */
static int open_base(kl_run *r, kvant_diag *diag)
{
    eval_text t = { 0 };

    if (!opt_given(r->o, OPT_KL_BASE_MODEL))
        return KVANT_OK;
    KVANT_TRY(open_model_at(r->o, opt_str(r->o, OPT_KL_BASE_MODEL), &r->base_model, diag));
    KVANT_TRY(eval_text_open(r->o, r->base_model, &t, diag));
    const size_t n = (size_t)r->t.n_chunk * (size_t)r->t.n_ctx;
    const int same = t.n_vocab == r->t.n_vocab && t.n_chunk == r->t.n_chunk && t.n_ctx == r->t.n_ctx &&
                     memcmp(t.ids, r->t.ids, n * sizeof *t.ids) == 0;
    const int vocab = t.n_vocab;
    eval_text_close(&t);
    return same ? KVANT_OK
                : kvant_fail(diag, KVANT_EINVAL,
                             "--base-model %.80s: the text is other tokens there (%d entries), wanted the tested "
                             "model's vocabulary (%d)",
                             opt_str(r->o, OPT_KL_BASE_MODEL), vocab, r->t.n_vocab);
}

/* A file says what its base is: options that would say it again are refused. */
static int load_base(kl_run *r, eval_stored *stored, kvant_diag *diag)
{
    static const int others[] = { OPT_KL_BASE_MODEL, OPT_KL_BASE_COMPUTE, OPT_KL_BASE, OPT_KL_BASE_PATH,
                                  OPT_SAVE_LOGITS };

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (opt_given(r->o, others[i]))
            return kvant_fail(diag, KVANT_EINVAL, "%s: found beside --base-logits, wanted one of the two",
                              opt_origin(r->o, others[i]));
    *stored = (eval_stored){ .type_k = "file", .type_v = "file" };
    return eval_logits_load(opt_str(r->o, OPT_BASE_LOGITS), &r->t, base_row, r, r->base_file, diag);
}

static const char *base_compute(const kl_run *r)
{
    return opt_str(r->o, opt_is(r->o, OPT_KL_BASE_COMPUTE, "tested") ? OPT_COMPUTE : OPT_KL_BASE_COMPUTE);
}

static int save_base(const kl_run *r, const eval_stored *stored, kvant_diag *diag)
{
    char what[EVAL_LOGITS_NAME];

    snprintf(what, sizeof what, "%.80s, %s/%s on the %s path, compute %s",
             kvant_model_get_info(r->base_model ? r->base_model : r->m)->desc, stored->type_k, stored->type_v,
             opt_str(r->o, OPT_KL_BASE_PATH), base_compute(r));
    return eval_logits_save(opt_str(r->o, OPT_SAVE_LOGITS), &r->t, &r->base, what, diag);
}

static int run_base(kl_run *r, eval_stored *stored, kvant_diag *diag)
{
    kvant_engine_params p;
    int path = opt_is(r->o, OPT_KL_BASE_PATH, "decode") ? PATH_DECODE : PATH_PREFILL;

    if (opt_given(r->o, OPT_BASE_LOGITS))
        return load_base(r, stored, diag);

    params_from_opts(r->o, &p);
    p.type_layers = NULL; /* the base is the same format in every layer, */
    p.state_type = "f32"; /* with exact recurrent states */
    p.type_k = p.type_v = kvant_format_find(opt_str(r->o, OPT_KL_BASE))->name;
    if (!opt_is(r->o, OPT_KL_BASE_COMPUTE, "tested"))
        p.compute = opt_is(r->o, OPT_KL_BASE_COMPUTE, "f32") ? KVANT_COMPUTE_F32 : KVANT_COMPUTE_AUTO;
    KVANT_TRY(
        eval_run(r->base_model ? r->base_model : r->m, &r->t, &p, path, "base", base_row, r, stored, diag));
    return opt_given(r->o, OPT_SAVE_LOGITS) ? save_base(r, stored, diag) : KVANT_OK;
}

/* The base in words: a file's own, else model where it is another one, cache, path and compute mode. */
static void base_title(const kl_run *r, const eval_stored *base, char *out, size_t cap)
{
    if (r->base_file[0])
        snprintf(out, cap, "%s (file)", r->base_file);
    else
        snprintf(out, cap, "%s%s%s/%s on the %s path, compute %s",
                 r->base_model ? kvant_model_get_info(r->base_model)->desc : "", r->base_model ? ", " : "",
                 base->type_k, base->type_v, opt_str(r->o, OPT_KL_BASE_PATH), base_compute(r));
}

static void head(kl_run *r, const eval_stored *base)
{
    int64_t rows = eval_text_rows(&r->t);
    eval_mean nll = eval_mean_of(r->base_nll, rows);

    if (!r->json) {
        char title[512];
        base_title(r, base, title, sizeof title);
        printf("%s: %d chunks of %d tokens, %lld rows; base %s, PPL %.4f \xC2\xB1 %.4f%s\n\n",
               kvant_model_get_info(r->m)->desc, r->t.n_chunk, r->t.n_ctx, (long long)rows, title, exp(nll.mean),
               exp(nll.mean) * nll.err,
               opt_is(r->o, OPT_STATE_TYPE, "bf16") ? "; tested with bf16 recurrent states, base f32" : "");
        return;
    }
    jsonw_object(&r->w);
    jsonw_kstr(&r->w, "model", kvant_model_get_info(r->m)->desc);
    jsonw_kint(&r->w, "n_ctx", r->t.n_ctx);
    jsonw_kint(&r->w, "chunks", r->t.n_chunk);
    jsonw_kint(&r->w, "rows", rows);
    jsonw_kstr(&r->w, "compute", opt_str(r->o, OPT_COMPUTE));
    if (!r->base_file[0])
        jsonw_kstr(&r->w, "base_model", kvant_model_get_info(r->base_model ? r->base_model : r->m)->desc);
    if (r->base_file[0]) {
        jsonw_kstr(&r->w, "base_logits", r->base_file);
    } else {
        jsonw_kstr(&r->w, "base_compute", base_compute(r));
        jsonw_kstr(&r->w, "base_type_k", base->type_k);
        jsonw_kstr(&r->w, "base_type_v", base->type_v);
        jsonw_kstr(&r->w, "base_path", opt_str(r->o, OPT_KL_BASE_PATH));
    }
    jsonw_knum(&r->w, "base_ppl", exp(nll.mean));
    jsonw_knum(&r->w, "base_ppl_err", exp(nll.mean) * nll.err);
    jsonw_key(&r->w, "results");
    jsonw_array(&r->w);
}

static int kl_alloc(kl_run *r, kvant_diag *diag)
{
    size_t rows = (size_t)eval_text_rows(&r->t);
    double **const arrays[] = { &r->base_lse, &r->base_nll, &r->kld, &r->nll, &r->dp, &r->same, &r->sorted };

    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        if (!(*arrays[i] = kvant_calloc(rows, sizeof(double))))
            return kvant_fail(diag, KVANT_ENOMEM, "eval: no memory for %zu rows", rows);
    r->row = kvant_calloc((size_t)r->t.n_vocab, sizeof *r->row);
    if (!r->row)
        return kvant_fail(diag, KVANT_ENOMEM, "eval: no memory for a row");
    return eval_store_open(&r->base, (int64_t)rows, r->t.n_vocab, diag);
}

static int kl_all(kl_run *r, kvant_diag *diag)
{
    double gate = opt_num(r->o, OPT_KL_GATE);
    eval_stored base;

    KVANT_TRY(eval_text_open(r->o, r->m, &r->t, diag));
    KVANT_TRY(open_base(r, diag));
    KVANT_TRY(kl_alloc(r, diag));
    KVANT_TRY(run_base(r, &base, diag));
    head(r, &base);
    KVANT_TRY(run_pairs(r, diag));
    if (r->json) {
        jsonw_end(&r->w);
        jsonw_end(&r->w);
        KVANT_TRY(put_json(&r->w, diag));
    }
    if (gate > 0 && !(r->worst <= gate))
        return kvant_fail(diag, KVANT_EGATE, "mean KL divergence: found %.6f, wanted at most %.6f", r->worst, gate);
    return KVANT_OK;
}

int cmd_eval_kl(const opts *o, kvant_diag *diag)
{
    kl_run r;

    memset(&r, 0, sizeof r);
    r.o = o;
    r.json = opt_flag(o, OPT_JSON);
    r.base.fd = -1;
    jsonw_init(&r.w);
    KVANT_TRY(open_model(o, &r.m, diag));
    term_catch_interrupt();
    int code = kl_all(&r, diag);
    eval_store_close(&r.base);
    kvant_free(r.base_lse);
    kvant_free(r.base_nll);
    kvant_free(r.row);
    kvant_free(r.kld);
    kvant_free(r.nll);
    kvant_free(r.dp);
    kvant_free(r.same);
    kvant_free(r.sorted);
    jsonw_free(&r.w);
    eval_text_close(&r.t);
    kvant_model_close(r.base_model);
    kvant_model_close(r.m);
    return code;
}
