/* cmd_serve.c: `kvant serve`: options -> server, engine and session.  The server listens first; a second thread
 * loads the model meanwhile, so that /health can say so. */
#include <string.h>
#include "base/error.h"
#include "cli/common.h"

#ifdef KVANT_HAVE_SERVER
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
#include "base/log.h"
#include "base/mem.h"
#include "server/server.h"

static const int64_t SLOT_HOLD_NS = 60000000000; /* arbitrary, not tuned; docs/server.md */

enum { AUTO_PARALLEL = 16, AUTO_SNAPSHOTS = 32 };

typedef struct loader {
    const opts *o;
    int n_keys;
    server *s;
    kvant_model *m;
    kvant_engine *e;
    kvant_session *session;
} loader;

/* ---- engine and session ---- */

static int parallel_of(const opts *o)
{
    int n = (int)opt_int(o, OPT_SERVE_PARALLEL);

    return n < 1 ? AUTO_PARALLEL : n;
}

static int fits(const kvant_model *m, const kvant_engine_params *p, int64_t memory)
{
    kvant_plan plan;

    return memory < 0 || (kvant_plan_make(m, p, &plan, NULL) == KVANT_OK && plan.total <= memory);
}

static int check_parallel(const opts *o, kvant_diag *diag)
{
    if (opt_int(o, OPT_SERVE_PARALLEL) == 0)
        return kvant_fail(diag, KVANT_EINVAL, "%s: found 0, wanted 1 or more sequences, or -1 for %d",
                          opt_origin(o, OPT_SERVE_PARALLEL), AUTO_PARALLEL);
    return KVANT_OK;
}

/* An answer on another device may depend, in its last bits, on what shares its steps. */
static int check_deterministic(const opts *o, kvant_diag *diag)
{
    if (opt_flag(o, OPT_DETERMINISTIC) && strcmp(opt_str(o, OPT_DEVICE), "cpu") != 0)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "%s: found --device %.40s, wanted cpu",
                          opt_origin(o, OPT_DETERMINISTIC), opt_str(o, OPT_DEVICE));
    return KVANT_OK;
}

/* Pages for every sequence at full length, or what half of the free memory holds; at least one sequence. */
static void choose_pool(const kvant_model *m, kvant_engine_params *p)
{
    int64_t memory = memory_available(), half = memory < 0 ? -1 : memory / 2;
    int n_ctx = p->n_ctx ? p->n_ctx : kvant_model_get_info(m)->n_ctx_train;

    p->pool_tokens = (int64_t)p->max_seqs * n_ctx;
    while (p->pool_tokens > n_ctx && !fits(m, p, half))
        p->pool_tokens = p->pool_tokens / 2 > n_ctx ? p->pool_tokens / 2 / 64 * 64 : n_ctx;
}

/* The exact tail of the sequences is part of the bytes that were given. */
static int pool_of_bytes(const opts *o, const kvant_model *m, kvant_engine_params *p, kvant_diag *diag)
{
    const int64_t bytes = opt_int(o, OPT_POOL);
    kvant_plan plan;
    kvant_engine_params one = *p;

    one.pool_tokens = 64;
    KVANT_TRY(kvant_plan_make(m, &one, &plan, diag));
    p->pool_tokens = (bytes - plan.tail) / (plan.kv_bytes_per_token ? plan.kv_bytes_per_token : 1) / 64 * 64;
    if (p->pool_tokens >= 64)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EINVAL,
                      "%s: %lld bytes, want at least %lld: the exact tail (%lld, for -np %d) and a page of 64 tokens",
                      opt_origin(o, OPT_POOL), (long long)bytes, (long long)(plan.tail + plan.kv_bytes_per_token * 64),
                      (long long)plan.tail, p->max_seqs);
}

static int load_engine(loader *l, kvant_diag *diag)
{
    kvant_engine_params p;
    const opts *o = l->o;

    KVANT_TRY(open_model(o, &l->m, diag));
    KVANT_TRY(params_from_opts(o, &p, diag));
    p.max_seqs = parallel_of(o);
    p.snapshots = (int)opt_int(o, OPT_SNAPSHOTS);
    if (p.snapshots < 0)
        p.snapshots = kvant_model_get_info(l->m)->n_gdn_layers || p.kv_tail > 64 ? AUTO_SNAPSHOTS + p.max_seqs : 0;
    if (opt_flag(o, OPT_NO_PREFIX_CACHE))
        p.snapshots = 0;
    if (opt_given(o, OPT_POOL))
        KVANT_TRY(pool_of_bytes(o, l->m, &p, diag));
    else
        choose_pool(l->m, &p);
    KVANT_TRY(open_engine(l->m, &p, &l->e, diag));
    keep_in_memory(o, l->m);
    return KVANT_OK;
}

/* A step takes a token of every sequence and a page of a prompt, at least. */
static int batch_of(const opts *o, int max_seqs)
{
    const int given = (int)opt_int(o, OPT_SERVE_BATCH), least = max_seqs + 64;

    if (given >= least)
        return given;
    if (opt_given(o, OPT_SERVE_BATCH))
        log_msg(LOG_INFO, "%s %d: raised to %d, a token of each sequence and a page of a prompt",
                opt_origin(o, OPT_SERVE_BATCH), given, least);
    return least;
}

/* A key's share of the queue: no key can fill it, however many requests it sends. */
static int queue_of_key(const loader *l)
{
    const int all = (int)opt_int(l->o, OPT_MAX_QUEUE), given = (int)opt_int(l->o, OPT_MAX_QUEUE_KEY);

    if (given)
        return given < all ? given : all;
    return l->n_keys < 2 ? all : l->n_keys < all ? all / l->n_keys : 1;
}

static kvant_session_params session_params(const loader *l)
{
    kvant_session_params p = kvant_session_defaults();
    const opts *o = l->o;

    p.max_queue = (int)opt_int(o, OPT_MAX_QUEUE);
    p.max_queue_tenant = queue_of_key(l);
    p.batch_tokens = batch_of(o, kvant_engine_get_params(l->e)->max_seqs);
    p.prefill_budget = (int)opt_int(o, OPT_PREFILL_BUDGET);
    p.max_batch_tokens = (int)opt_int(o, OPT_MAX_BATCH_TOKENS);
    p.prefill_cap = (int)opt_int(o, OPT_PREFILL_CAP);
    p.prefill_first = opt_flag(o, OPT_PREFILL_FIRST);
    p.prefill_first_waiting = (int)opt_int(o, OPT_PREFILL_WAITING);
    p.prefill_first_defer = (int)opt_int(o, OPT_PREFILL_DEFER);
    p.preempt = opt_is(o, OPT_PREEMPT, "save") ? KVANT_PREEMPT_SAVE : KVANT_PREEMPT_RECOMPUTE;
    p.save_bytes = opt_int(o, OPT_PREEMPT_RAM);
    p.no_prefix_cache = opt_flag(o, OPT_NO_PREFIX_CACHE);
    p.prefix_reuse_decode = opt_flag(o, OPT_REUSE_DECODE);
    p.snapshot_dir = opt_str(o, OPT_KV_DIR);
    p.snapshot_tenant_bytes = opt_int(o, OPT_SAVE_QUOTA);
    p.slot_hold_ns = SLOT_HOLD_NS;
    p.snapshot_bytes = opt_int(o, OPT_SAVE_TOTAL);
    p.wake = server_wake;
    p.wake_user = l->s;
    return p;
}

static void banner(const loader *l)
{
    const kvant_engine_params *p = kvant_engine_get_params(l->e);
    char device[256];

    kvant_engine_describe(l->e, device, sizeof device);
    log_msg(LOG_INFO, "%s on %s", kvant_model_get_info(l->m)->desc, device);
    log_msg(LOG_INFO,
            "cache: K %s, V %s, tail %d; %d sequences of at most %d tokens, pool of %lld tokens, %d snapshots",
            p->type_k, p->type_v, p->kv_tail, p->max_seqs, p->n_ctx, (long long)p->pool_tokens, p->snapshots);
}

static int load(loader *l, kvant_diag *diag)
{
    KVANT_TRY(load_engine(l, diag));
    kvant_session_params p = session_params(l);
    KVANT_TRY(kvant_session_create(l->e, &p, &l->session, diag));
    KVANT_TRY(server_attach(l->s, l->m, l->e, l->session, diag));
    banner(l);
    log_msg(LOG_INFO, "ready: %s", server_url(l->s));
    return KVANT_OK;
}

static void *load_thread(void *user)
{
    loader *l = user;
    kvant_diag diag = { "" };
    int code = load(l, &diag);

    if (code != KVANT_OK)
        server_fail(l->s, code, &diag);
    return NULL;
}

/* ---- server ---- */

/* The keys of an option (from the command line, else from its variable) and of its file. */
static int read_keys_of(const opts *o, int option, const char *single, const char *file, const char *name, auth *keys,
                        kvant_diag *diag)
{
    int n = 0;

    for (int i = 0; i < o->n_all; i++)
        if (o->all[i].id == option) {
            KVANT_TRY(auth_add(keys, o->all[i].text, strlen(o->all[i].text), diag));
            n++;
        }
    if (n)
        log_msg(LOG_WARN, "%s on the command line can be seen by every user of this machine; %s-file cannot", name, name);
    else if (single && single[0])
        KVANT_TRY(auth_add(keys, single, strlen(single), diag));
    return file ? auth_add_file(keys, file, diag) : KVANT_OK;
}

/* An admin key is a key like any other, and more. */
static int read_keys(const opts *o, auth *keys, kvant_diag *diag)
{
    KVANT_TRY(read_keys_of(o, OPT_API_KEY, opt_str(o, OPT_API_KEY), opt_str(o, OPT_API_KEY_FILE), "--api-key", keys,
                           diag));
    const int plain = keys->n;
    KVANT_TRY(read_keys_of(o, OPT_ADMIN_KEY, opt_str(o, OPT_ADMIN_KEY), opt_str(o, OPT_ADMIN_KEY_FILE), "--admin-key",
                           keys, diag));
    keys->n_admin = keys->n - plain;
    return KVANT_OK;
}

/* "dir/novella-hybrid.gguf" -> "novella-hybrid" */
static void file_alias(const char *path, char *out, size_t cap)
{
    const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    size_t n = strlen(base);

    if (n > 5 && strcmp(base + n - 5, ".gguf") == 0)
        n -= 5;
    snprintf(out, cap, "%.*s", (int)(n < cap ? n : cap - 1), base);
}

static int check_prefix(const opts *o, kvant_diag *diag)
{
    const char *s = opt_str(o, OPT_API_PREFIX);

    if (s && s[0] && (s[0] != '/' || s[strlen(s) - 1] == '/'))
        return kvant_fail(diag, KVANT_EINVAL, "--api-prefix: found \"%.60s\", wanted a path such as /llm", s);
    return KVANT_OK;
}

static void server_options(const opts *o, const auth *keys, const char *alias, server_params *p)
{
    *p = server_defaults();
    p->host = opt_str(o, OPT_HOST);
    p->port = (int)opt_int(o, OPT_PORT);
    p->alias = alias;
    p->keys = keys;
    p->api_prefix = opt_str(o, OPT_API_PREFIX) ? opt_str(o, OPT_API_PREFIX) : "";
    p->cors_origins = opt_str(o, OPT_CORS);
    p->max_connections = (int)opt_int(o, OPT_MAX_CONNECTIONS);
    p->max_body = opt_int(o, OPT_MAX_BODY);
    p->max_body_memory = opt_int(o, OPT_MAX_BODY_MEMORY);
    p->ping_s = (int)opt_int(o, OPT_PING);
    p->drain_ms = (int)opt_int(o, OPT_DRAIN) * 1000;
    p->watchdog_s = (int)opt_int(o, OPT_WATCHDOG);
    p->stall_s = (int)opt_int(o, OPT_STREAM_TIMEOUT);
    p->default_max_tokens = opt_int(o, OPT_PREDICT) < 1 ? -1 : (int)opt_int(o, OPT_PREDICT);
    p->metrics_vllm = opt_str(o, OPT_METRICS_COMPAT) != NULL;
    p->slots = !opt_flag(o, OPT_NO_SLOTS);
    p->page = !opt_flag(o, OPT_NO_UI);
    p->ignore_eos = opt_flag(o, OPT_IGNORE_EOS);
    p->seed = opt_int(o, OPT_SEED);
    p->strict_model = opt_flag(o, OPT_STRICT_MODEL);
    p->refuse_unknown = opt_is(o, OPT_UNKNOWN_FIELDS, "refuse");
    p->catch_signals = 1;
    p->sampler.temp = (float)opt_num(o, OPT_TEMP);
    p->sampler.top_k = (int)opt_int(o, OPT_TOP_K);
    p->sampler.top_p = (float)opt_num(o, OPT_TOP_P);
    p->sampler.min_p = (float)opt_num(o, OPT_MIN_P);
    p->sampler.repeat_penalty = (float)opt_num(o, OPT_REPEAT_PENALTY);
    p->sampler.presence_penalty = (float)opt_num(o, OPT_PRESENCE_PENALTY);
    p->sampler.frequency_penalty = (float)opt_num(o, OPT_FREQUENCY_PENALTY);
    p->sampler.penalty_last_n = (int)opt_int(o, OPT_REPEAT_LAST_N);
}

static int serve(const opts *o, const server_params *p, kvant_diag *diag)
{
    loader l = { .o = o, .n_keys = p->keys ? p->keys->n : 0 };
    pthread_t thread;

    log_drop_not_wait(); /* the loop and the engine write messages too */
    KVANT_TRY(server_open(p, &l.s, diag));
    log_msg(LOG_INFO, "listening on %s", server_url(l.s));
    int code = pthread_create(&thread, NULL, load_thread, &l) == 0
                   ? KVANT_OK
                   : kvant_fail(diag, KVANT_ENOMEM, "serve: no thread to load the model");
    if (code == KVANT_OK) {
        code = server_run(l.s, diag);
        if (server_killed_by(l.s)) { /* the second signal: nothing is waited for */
            pthread_detach(thread);
            _exit(128 + server_killed_by(l.s));
        }
        pthread_join(thread, NULL);
    }
    kvant_session_free(l.session);
    server_close(l.s);
    kvant_engine_free(l.e);
    kvant_model_close(l.m);
    return code;
}

int cmd_serve(const opts *o, kvant_diag *diag)
{
    auth keys = { 0 };
    server_params p;
    const char *path;
    char alias[256];

    KVANT_TRY(model_path(o, &path, diag));
    KVANT_TRY(check_prefix(o, diag));
    KVANT_TRY(check_parallel(o, diag));
    KVANT_TRY(check_deterministic(o, diag));
    file_alias(path, alias, sizeof alias);
    int code = read_keys(o, &keys, diag);
    if (code == KVANT_OK) {
        server_options(o, &keys, opt_str(o, OPT_ALIAS) ? opt_str(o, OPT_ALIAS) : alias, &p);
        code = serve(o, &p, diag);
    }
    auth_free(&keys);
    return code;
}

#else

int cmd_serve(const opts *o, kvant_diag *diag)
{
    (void)o;
    return kvant_fail(
        diag, KVANT_EUNSUPPORTED,
        "serve: this build has no server (libmicrohttpd and jansson were not there, or KVANT_SERVER was OFF, when cmake ran)");
}

#endif
