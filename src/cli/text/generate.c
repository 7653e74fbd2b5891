/* generate.c: see generate.h.  Owns the loop prompt -> pick -> print -> step, and its clocks. */
#include "cli/text/generate.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/term.h"
#include "model/text/detok.h"

const char *stop_text(int reason)
{
    static const char *const text[] = { "none", "eos", "length", "context", "interrupt" };
    return text[reason];
}

/* ---- sampler ---- */

/* "15+1.5", "15-inf" -> id and value. */
static int parse_bias(const opts *o, const char *s, int n_vocab, int32_t *id, float *bias, kvant_diag *diag)
{
    char *end, *end2;
    long v = strtol(s, &end, 10);

    if (end != s && v >= 0 && v < n_vocab && (*end == '+' || *end == '-')) {
        double x = strtod(end, &end2);
        if (end2 != end + 1 && !*end2 && !isnan(x)) {
            *id = (int32_t)v;
            *bias = (float)x;
            return KVANT_OK;
        }
    }
    return kvant_fail(diag, KVANT_EINVAL, "%s: found \"%.60s\", wanted ID+X or ID-X with ID below %d",
                      opt_origin(o, OPT_LOGIT_BIAS), s, n_vocab);
}

typedef struct bias_list {
    int32_t *ids;
    float *values;
    int n;
} bias_list;

static int collect_bias(const opts *o, const kvant_model *m, bias_list *b, kvant_diag *diag)
{
    int n_vocab = kvant_model_get_info(m)->n_vocab;

    b->ids = kvant_calloc((size_t)n_vocab + (size_t)o->n_all, sizeof *b->ids);
    b->values = kvant_calloc((size_t)n_vocab + (size_t)o->n_all, sizeof *b->values);
    if (!b->ids || !b->values)
        return kvant_fail(diag, KVANT_ENOMEM, "logit bias: out of memory");
    for (int i = 0; i < o->n_all; i++)
        if (o->all[i].id == OPT_LOGIT_BIAS) {
            KVANT_TRY(parse_bias(o, o->all[i].text, n_vocab, &b->ids[b->n], &b->values[b->n], diag));
            b->n++;
        }
    for (int32_t id = 0; opt_flag(o, OPT_IGNORE_EOS) && id < n_vocab; id++)
        if (kvant_token_is_eog(m, id)) {
            b->ids[b->n] = id;
            b->values[b->n++] = -INFINITY;
        }
    return KVANT_OK;
}

static uint64_t choose_seed(const opts *o)
{
    uint32_t v = 0;

    if (opt_int(o, OPT_SEED) >= 0)
        return (uint64_t)opt_int(o, OPT_SEED);
    if (getrandom(&v, sizeof v, 0) != (ssize_t)sizeof v)
        v = (uint32_t)clock_ns();
    return v;
}

static int make_sampler(generator *g, kvant_diag *diag)
{
    kvant_sampler_params p = kvant_sampler_defaults();
    bias_list b = { NULL, NULL, 0 };
    const opts *o = g->o;

    p.temp = (float)opt_num(o, OPT_TEMP);
    p.top_k = (int)opt_int(o, OPT_TOP_K);
    p.top_p = (float)opt_num(o, OPT_TOP_P);
    p.min_p = (float)opt_num(o, OPT_MIN_P);
    p.repeat_penalty = (float)opt_num(o, OPT_REPEAT_PENALTY);
    p.presence_penalty = (float)opt_num(o, OPT_PRESENCE_PENALTY);
    p.frequency_penalty = (float)opt_num(o, OPT_FREQUENCY_PENALTY);
    p.penalty_last_n = (int)opt_int(o, OPT_REPEAT_LAST_N);
    p.seed = g->seed = choose_seed(o);
    int code = collect_bias(o, g->m, &b, diag);
    if (code == KVANT_OK) {
        p.bias_ids = b.ids;
        p.bias = b.values;
        p.n_bias = b.n;
        code = kvant_sampler_create(&p, kvant_model_get_info(g->m)->n_vocab, &g->sampler, diag);
    }
    kvant_free(b.ids);
    kvant_free(b.values);
    return code;
}

/* ---- open and close ---- */

static void banner(const generator *g)
{
    const kvant_engine_params *p = kvant_engine_get_params(g->e);
    char dev[200];
    kvant_plan plan;

    kvant_engine_describe(g->e, dev, sizeof dev);
    log_msg(LOG_INFO, "model: %s (%s) on %s", kvant_model_get_info(g->m)->desc, kvant_model_get_info(g->m)->arch, dev);
    if (kvant_plan_make(g->m, p, &plan, NULL) == KVANT_OK)
        log_msg(LOG_INFO, "cache: K %s, V %s%s%s, tail %d, encoder %s; %" PRId64 " bytes per token, context %d",
                p->type_k, p->type_v, p->type_layers ? ", layers " : "", p->type_layers ? p->type_layers : "",
                p->kv_tail, encoder_name(p->encoder), plan.kv_bytes_per_token, p->n_ctx);
}

int gen_open(generator *g, const opts *o, kvant_diag *diag)
{
    kvant_engine_params p;
    int64_t t0 = clock_ns();

    memset(g, 0, sizeof *g);
    g->o = o;
    g->pending = -1;
    g->special = opt_flag(o, OPT_SPECIAL);
    g->quiet = opt_flag(o, OPT_JSON);
    KVANT_TRY(params_from_opts(o, &p, diag));
    KVANT_TRY(open_model(o, &g->m, diag));
    KVANT_TRY(make_sampler(g, diag));
    KVANT_TRY(open_engine(g->m, &p, &g->e, diag));
    keep_in_memory(o, g->m);
    KVANT_TRY(kvant_seq_new(g->e, &g->seq, diag));
    g->load_ns = clock_ns() - t0;
    banner(g);
    return KVANT_OK;
}

void gen_close(generator *g)
{
    kvant_sampler_free(g->sampler);
    kvant_engine_free(g->e);
    kvant_model_close(g->m);
    kvant_free(g->text);
    kvant_free(g->ids);
    memset(g, 0, sizeof *g);
}

int gen_restart(generator *g, kvant_diag *diag)
{
    KVANT_TRY(kvant_seq_free(g->e, g->seq));
    g->pending = -1;
    return kvant_seq_new(g->e, &g->seq, diag);
}

/* ---- text ---- */

void gen_text_reset(generator *g)
{
    g->text_len = 0;
    g->n_ids = 0;
    memset(&g->detok, 0, sizeof g->detok);
}

static int grow(void **p, size_t used, size_t need, size_t *cap, size_t item, kvant_diag *diag)
{
    size_t want = *cap ? *cap : 256, bytes;

    if (need <= *cap)
        return KVANT_OK;
    while (want < need)
        want *= 2;
    void *q = size_mul(want, item, &bytes) ? kvant_realloc(*p, used * item, bytes) : NULL;
    if (!q)
        return kvant_fail(diag, KVANT_ENOMEM, "text: no memory for %zu more", need);
    *p = q;
    *cap = want;
    return KVANT_OK;
}

static int keep_text(generator *g, char *s, int n, kvant_diag *diag)
{
    void *p = g->text;

    KVANT_TRY(grow(&p, g->text_len, g->text_len + (size_t)n + 1, &g->text_cap, 1, diag));
    g->text = p;
    memcpy(g->text + g->text_len, s, (size_t)n);
    g->text_len += (size_t)n;
    g->text[g->text_len] = 0;
    if (g->quiet)
        return KVANT_OK;
    if (isatty(STDOUT_FILENO))
        term_sanitize(s);
    fwrite(s, 1, (size_t)n, stdout);
    fflush(stdout);
    return KVANT_OK;
}

enum { TOKEN_CAP = 4096 };

static int emit_token(generator *g, int32_t id, kvant_diag *diag)
{
    char bytes[TOKEN_CAP], out[3 * TOKEN_CAP + 64];
    void *ids = g->ids;
    size_t cap = (size_t)g->cap_ids;
    int n = kvant_token_bytes(g->m, id, g->special, bytes, sizeof bytes);

    if (n < 0 || n > TOKEN_CAP)
        return kvant_fail(diag, KVANT_EINTERNAL, "token %d: its text has %d bytes, at most %d wanted", id, n,
                          TOKEN_CAP);
    KVANT_TRY(grow(&ids, (size_t)g->n_ids, (size_t)g->n_ids + 1, &cap, sizeof *g->ids, diag));
    g->ids = ids;
    g->cap_ids = (int)cap;
    g->ids[g->n_ids++] = id;
    n = detok_push(&g->detok, bytes, n, out, sizeof out);
    if (n < 0)
        return kvant_fail(diag, n, "token %d: detokeniser failed", id);
    return keep_text(g, out, n, diag);
}

static int end_text(generator *g, kvant_diag *diag)
{
    char out[16];
    int n = kvant_detok_flush(&g->detok, out, sizeof out);

    return n > 0 ? keep_text(g, out, n, diag) : KVANT_OK;
}

/* ---- prompt and continuation ---- */

int gen_prompt(generator *g, const int32_t *ids, int n, kvant_diag *diag)
{
    int room = kvant_engine_get_params(g->e)->n_ctx - kvant_seq_length(g->e, g->seq);
    int64_t t0 = clock_ns();

    if (n < 1)
        return kvant_fail(diag, KVANT_EINVAL, "prompt: found 0 tokens, wanted at least 1");
    if (n > room)
        return kvant_fail(diag, KVANT_ENOSPC, "prompt: found %d tokens, wanted at most %d (context of %d tokens, -c)",
                          n, room, kvant_engine_get_params(g->e)->n_ctx);
    KVANT_TRY(feed_prompt(g->e, g->seq, ids, n, (int)opt_int(g->o, OPT_BATCH), kvant_sampler_wants(g->sampler),
                          "prompt", diag));
    for (int i = 0; i < n; i++)
        kvant_sampler_accept(g->sampler, ids[i]);
    g->prompt_n += n;
    g->prompt_ns += clock_ns() - t0;
    return KVANT_OK;
}

/* What ends the loop after a token was printed; STOP_NONE: go on. */
static int stop_after(const generator *g, int64_t made, int64_t limit)
{
    if (term_interrupted())
        return STOP_INTERRUPT;
    if (limit >= 0 && made >= limit)
        return STOP_LENGTH;
    return kvant_seq_length(g->e, g->seq) >= kvant_engine_get_params(g->e)->n_ctx ? STOP_CONTEXT : STOP_NONE;
}

static int decode_one(generator *g, kvant_diag *diag)
{
    int64_t t0 = clock_ns();
    kvant_item item = { g->seq, &g->pending, 1, 0, kvant_sampler_wants(g->sampler) };

    KVANT_TRY(kvant_step(g->e, &item, 1, diag));
    g->decode_ns += clock_ns() - t0;
    g->decode_n++;
    g->pending = -1;
    return KVANT_OK;
}

int gen_continue(generator *g, int64_t n, int *reason, kvant_diag *diag)
{
    int32_t token;

    *reason = n == 0 ? STOP_LENGTH : STOP_NONE;
    for (int64_t made = 0; *reason == STOP_NONE;) {
        KVANT_TRY(kvant_step_sample(g->e, 0, g->sampler, &token, diag));
        kvant_sampler_accept(g->sampler, token);
        if (kvant_token_is_eog(g->m, token)) {
            *reason = STOP_EOG;
            if (g->special)
                KVANT_TRY(emit_token(g, token, diag));
            break;
        }
        KVANT_TRY(emit_token(g, token, diag));
        g->pending = token;
        *reason = stop_after(g, ++made, n);
        if (*reason == STOP_NONE)
            KVANT_TRY(decode_one(g, diag));
    }
    return end_text(g, diag);
}

/* ---- reports ---- */

static double per_second(int64_t n, int64_t ns)
{
    return ns > 0 ? (double)n * 1e9 / (double)ns : 0.0;
}

int gen_stats(const generator *g, int i, char *buf, size_t cap)
{
    const kvant_engine_params *p = kvant_engine_get_params(g->e);
    char size[32];

    if (i == 0)
        snprintf(buf, cap, "prompt: %" PRId64 " tokens in %.1f ms, %.1f t/s", g->prompt_n, (double)g->prompt_ns / 1e6,
                 per_second(g->prompt_n, g->prompt_ns));
    else if (i == 1)
        snprintf(buf, cap, "decode: %" PRId64 " tokens in %.1f ms, %.1f t/s", g->decode_n, (double)g->decode_ns / 1e6,
                 per_second(g->decode_n, g->decode_ns));
    else if (i == 2)
        snprintf(buf, cap, "cache: %s for %d tokens (K %s, V %s), load %.1f ms",
                 human_bytes(kvant_seq_cache_bytes(g->e, g->seq), size, sizeof size), kvant_seq_length(g->e, g->seq),
                 p->type_k, p->type_v, (double)g->load_ns / 1e6);
    return i < 3;
}

void gen_report(const generator *g)
{
    char text[256];

    for (int i = 0; !opt_flag(g->o, OPT_NO_PERF) && gen_stats(g, i, text, sizeof text); i++)
        log_msg(LOG_INFO, "%s", text);
}

static void json_timings(const generator *g, jsonw *w)
{
    jsonw_key(w, "timings");
    jsonw_object(w);
    jsonw_knum(w, "load_ms", (double)g->load_ns / 1e6);
    jsonw_kint(w, "prompt_n", g->prompt_n);
    jsonw_knum(w, "prompt_ms", (double)g->prompt_ns / 1e6);
    jsonw_knum(w, "prompt_per_second", per_second(g->prompt_n, g->prompt_ns));
    jsonw_kint(w, "predicted_n", g->decode_n);
    jsonw_knum(w, "predicted_ms", (double)g->decode_ns / 1e6);
    jsonw_knum(w, "predicted_per_second", per_second(g->decode_n, g->decode_ns));
    jsonw_end(w);
}

void gen_json(const generator *g, jsonw *w)
{
    const kvant_engine_params *p = kvant_engine_get_params(g->e);
    char dev[200];

    json_timings(g, w);
    jsonw_key(w, "cache");
    jsonw_object(w);
    jsonw_kstr(w, "type_k", p->type_k);
    jsonw_kstr(w, "type_v", p->type_v);
    jsonw_kstr(w, "type_layers", p->type_layers);
    jsonw_kint(w, "tail", p->kv_tail);
    jsonw_kstr(w, "encoder", encoder_name(p->encoder));
    jsonw_kint(w, "tokens", kvant_seq_length(g->e, g->seq));
    jsonw_kint(w, "bytes", kvant_seq_cache_bytes(g->e, g->seq));
    jsonw_kint(w, "context", p->n_ctx);
    jsonw_end(w);
    kvant_engine_describe(g->e, dev, sizeof dev);
    jsonw_kstr(w, "device", dev);
    jsonw_kstr(w, "compute", p->compute == KVANT_COMPUTE_F32 ? "f32" : "auto");
    jsonw_kint(w, "seed", (int64_t)g->seed);
}
