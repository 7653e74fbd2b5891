/* cmd_serve.c: `kvant serve`: options -> server, engines and sessions.  The server listens first; a thread of it loads
 * models through what is here. */
#include <string.h>
#include "base/error.h"
#include "cli/common.h"

#ifdef KVANT_HAVE_SERVER
#include <stdio.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text/names.h"
#include "cli/sampling.h"
#include "cli/serve/serve_models.h"
#include "cli/serve/serve_room.h"
#include "cli/text/draft.h"
#include "cli/text/spec.h"
#include "server/events/kv_events.h"
#include "server/server.h"

static const int64_t SLOT_HOLD_NS = 60000000000; /* arbitrary, not tuned; docs/server.md */

typedef struct loader {
    const opts *o;
    int n_keys;        /* at the start */
    int64_t memory;    /* of all models of a router together; 0: any */
    kv_events *events; /* or NULL */
} loader;

/* ---- engine and session ---- */

static int check_parallel(const opts *o, kvant_diag *diag)
{
    if (opt_int(o, OPT_SERVE_PARALLEL) == 0)
        return kvant_fail(diag, KVANT_EINVAL, "%s: found 0, wanted 1 or more sequences, or -1 for %d",
                          opt_origin(o, OPT_SERVE_PARALLEL), KVANT_FIT_SLOTS);
    return KVANT_OK;
}

/* An answer on another device may depend, in its last bits, on what shares its steps. */
static int check_deterministic(const opts *o, kvant_diag *diag)
{
    if (opt_flag(o, OPT_DETERMINISTIC) && !device_is_cpu(opt_str(o, OPT_DEVICE)))
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "%s: found --device %.40s, wanted cpu",
                          opt_origin(o, OPT_DETERMINISTIC), opt_str(o, OPT_DEVICE));
    return KVANT_OK;
}

/* Host memory behind a pool that lies in host memory would only cost copies. */
static int check_tiers(const opts *o, kvant_diag *diag)
{
    if (opt_int(o, OPT_KV_HOST) > 0 && device_is_cpu(opt_str(o, OPT_DEVICE)))
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "%s: the CPU's pool is host memory: --kv-pool-size makes it larger",
                          opt_origin(o, OPT_KV_HOST));
    if ((opt_int(o, OPT_KV_HOST) > 0 || opt_str(o, OPT_KV_STORE)) && opt_flag(o, OPT_NO_PREFIX_CACHE))
        return kvant_fail(diag, KVANT_EINVAL, "%s and --no-prefix-cache: wanted one of them",
                          opt_origin(o, opt_str(o, OPT_KV_STORE) ? OPT_KV_STORE : OPT_KV_HOST));
    return KVANT_OK;
}

/* A preset's draft model is as one of the command line, for its own model. */
static opts options_of(const loader *l, const server_parts *parts)
{
    opts mine = *l->o;

    if (parts->draft_path)
        mine.v[OPT_DRAFT_MODEL] = (opt_value){ .text = parts->draft_path, .origin = "model-draft", .count = 1 };
    return mine;
}

static int open_part(void *user, const char *path, server_parts *parts, kvant_diag *diag)
{
    const loader *l = user;
    const opts mine = options_of(l, parts), *o = &mine;
    kvant_engine_params *p = &parts->params;
    int64_t more;

    KVANT_TRY(open_model_at(o, path, &parts->model, diag));
    params_from_opts(o, p);
    serve_slots(p, opt_int(o, OPT_SERVE_PARALLEL));
    p->draft_rows = spec_draft_rows(o, p->max_seqs);
    spec_engine(o, parts->model, p);
    KVANT_TRY(serve_room(o, parts->model, p, l->memory, &parts->bytes, diag));
    KVANT_TRY(draft_bytes(o, p, &more, diag));
    parts->bytes += more;
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
static int queue_of_key(const opts *o, int n_keys)
{
    const int all = (int)opt_int(o, OPT_MAX_QUEUE), given = (int)opt_int(o, OPT_MAX_QUEUE_KEY);

    if (given)
        return given < all ? given : all;
    return n_keys < 2 ? all : n_keys < all ? all / n_keys : 1;
}

static kvant_session_params session_params(const loader *l, const opts *o, server *s, const server_parts *parts)
{
    const kvant_engine *e = parts->engine;
    kvant_session_params p = kvant_session_defaults();

    p.max_queue = (int)opt_int(o, OPT_MAX_QUEUE);
    p.max_queue_tenant = queue_of_key(o, l->n_keys);
    p.batch_tokens = batch_of(o, kvant_engine_get_params(e)->max_seqs);
    p.prefill_budget = (int)opt_int(o, OPT_PREFILL_BUDGET);
    p.target_itl_ms = opt_int(o, OPT_TARGET_ITL) > 0 ? (int)opt_int(o, OPT_TARGET_ITL) : -1;
    p.max_batch_tokens = (int)opt_int(o, OPT_MAX_BATCH_TOKENS);
    p.prefill_cap = (int)opt_int(o, OPT_PREFILL_CAP);
    p.prefill_first = opt_flag(o, OPT_PREFILL_FIRST);
    p.prefill_first_waiting = (int)opt_int(o, OPT_PREFILL_WAITING);
    p.prefill_first_defer = (int)opt_int(o, OPT_PREFILL_DEFER);
    spec_params(o, e, parts->draft, &p);
    p.preempt = opt_is(o, OPT_PREEMPT, "save") ? KVANT_PREEMPT_SAVE : KVANT_PREEMPT_RECOMPUTE;
    p.save_bytes = opt_int(o, OPT_PREEMPT_RAM);
    p.no_prefix_cache = opt_flag(o, OPT_NO_PREFIX_CACHE);
    p.prefix_reuse_decode = opt_flag(o, OPT_REUSE_DECODE);
    p.snapshot_dir = opt_str(o, OPT_KV_DIR);
    p.snapshot_tenant_bytes = opt_int(o, OPT_SAVE_QUOTA);
    p.slot_hold_ns = SLOT_HOLD_NS;
    p.snapshot_bytes = opt_int(o, OPT_SAVE_TOTAL);
    p.host_bytes = opt_int(o, OPT_KV_HOST);
    p.store_dir = opt_str(o, OPT_KV_STORE);
    p.store_bytes = opt_int(o, OPT_KV_STORE_SIZE);
    p.wake = server_wake;
    p.wake_user = s;
    p.kv_event = l->events ? kv_events_put : NULL;
    p.kv_event_user = l->events;
    return p;
}

static void banner(const server_parts *l)
{
    const kvant_engine_params *p = kvant_engine_get_params(l->engine);
    char device[256];

    kvant_engine_describe(l->engine, device, sizeof device);
    log_msg(LOG_INFO, "%s on %s", kvant_model_get_info(l->model)->desc, device);
    log_msg(LOG_INFO,
            "cache: K %s, V %s, tail %d; %d sequences of at most %d tokens, pool of %lld tokens, %d snapshots",
            p->type_k, p->type_v, p->kv_tail, p->max_seqs, p->n_ctx, (long long)p->pool_tokens, p->snapshots);
}

static int warm(const opts *o, kvant_engine *e, kvant_diag *diag)
{
    const int64_t begin = clock_ns();
    int tokens = 0;

    if (!opt_flag(o, OPT_SERVE_NO_WARMUP))
        KVANT_TRY(kvant_engine_warm(e, &tokens, diag));
    if (tokens)
        log_msg(LOG_INFO, "warm-up: passes of up to %d tokens in %.2f s", tokens, (double)(clock_ns() - begin) * 1e-9);
    return KVANT_OK;
}

static int start_part(void *user, server *s, server_parts *parts, kvant_diag *diag)
{
    const loader *l = user;
    const opts mine = options_of(l, parts), *o = &mine;

    KVANT_TRY(create_engine(parts->model, &parts->params, server_ends, s, &parts->engine, diag));
    keep_in_memory(o, parts->model);
    KVANT_TRY(warm(o, parts->engine, diag));
    draft_parts draft;
    const int code = draft_open(o, parts->engine, &draft, diag);
    parts->draft_model = draft.m;
    parts->draft = draft.e;
    KVANT_TRY(code);
    kvant_session_params p = session_params(l, o, s, parts);
    KVANT_TRY(kvant_session_create(parts->engine, &p, &parts->session, diag));
    KVANT_TRY(spec_start_synth(l->o, parts->session, diag));
    banner(parts);
    return KVANT_OK;
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
        log_msg(LOG_WARN, "%s on the command line can be seen by every user of this machine; %s-file cannot", name,
                name);
    else if (single && single[0])
        KVANT_TRY(auth_add(keys, single, strlen(single), diag));
    return file ? auth_add_file(keys, file, diag) : KVANT_OK;
}

/* An admin key is a key like any other, and more. */
static int read_keys(const opts *o, auth *keys, kvant_diag *diag)
{
    KVANT_TRY(
        read_keys_of(o, OPT_API_KEY, opt_str(o, OPT_API_KEY), opt_str(o, OPT_API_KEY_FILE), "--api-key", keys, diag));
    keys->admin = 1;
    keys->grows = opt_str(o, OPT_API_KEY_FILE) || opt_str(o, OPT_ADMIN_KEY_FILE);
    return read_keys_of(o, OPT_ADMIN_KEY, opt_str(o, OPT_ADMIN_KEY), opt_str(o, OPT_ADMIN_KEY_FILE), "--admin-key",
                        keys, diag);
}

typedef struct key_files {
    const opts *o;
    auth *keys;
} key_files;

/* SIGHUP: the files again. */
static int renew_keys(void *user, kvant_diag *diag)
{
    key_files *f = user;
    auth fresh = { 0 };
    int code = read_keys(f->o, &fresh, diag);

    if (code == KVANT_OK)
        code = auth_renew(f->keys, &fresh, diag);
    auth_free(&fresh);
    return code;
}

static int renewed_share(void *user)
{
    const key_files *f = user;

    return queue_of_key(f->o, auth_count(f->keys, 0));
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

static int pooling_option(const opts *o)
{
    static const char *const names[] = { "none", "mean", "cls", "last", "rank" };

    if (opt_flag(o, OPT_RERANK))
        return KVANT_POOLING_RANK;
    for (int i = KVANT_POOLING_NONE; i <= KVANT_POOLING_RANK; i++)
        if (opt_is(o, OPT_POOLING, names[i]))
            return i;
    return KVANT_POOLING_UNSAID;
}

static void server_options(const opts *o, const auth *keys, server_params *p)
{
    const char *compat = opt_str(o, OPT_METRICS_COMPAT);

    *p = server_defaults();
    p->host = opt_str(o, OPT_HOST);
    p->port = (int)opt_int(o, OPT_PORT);
    p->names.tags = opt_str(o, OPT_TAGS);
    p->keys = keys;
    p->api_prefix = opt_str(o, OPT_API_PREFIX) ? opt_str(o, OPT_API_PREFIX) : "";
    p->cors = (struct server_cors){ opt_str(o, OPT_CORS), opt_str(o, OPT_CORS_METHODS), opt_str(o, OPT_CORS_HEADERS),
                                    opt_flag(o, OPT_CORS_CREDENTIALS) };
    p->max_connections = (int)opt_int(o, OPT_MAX_CONNECTIONS);
    p->max_body = opt_int(o, OPT_MAX_BODY);
    p->max_body_memory = opt_int(o, OPT_MAX_BODY_MEMORY);
    p->stream.ping_s = (int)opt_int(o, OPT_PING);
    p->drain_ms = (int)opt_int(o, OPT_DRAIN) * 1000;
    p->watchdog_s = (int)opt_int(o, OPT_WATCHDOG);
    p->stream.stall_s = (int)opt_int(o, OPT_STREAM_TIMEOUT);
    p->stream.keep_s = (int)opt_int(o, OPT_STREAM_KEEP);
    p->lengths = (struct server_lengths){ opt_int(o, OPT_PREDICT) < 1 ? -1 : (int)opt_int(o, OPT_PREDICT),
                                          opt_flag(o, OPT_CONTEXT_SHIFT), (int)opt_int(o, OPT_KEEP) };
    p->compat.vllm = compat && strstr(compat, "vllm");
    p->compat.llamacpp = compat && strstr(compat, "llamacpp");
    p->on.slots = !opt_flag(o, OPT_NO_SLOTS);
    p->on.metrics = !opt_flag(o, OPT_NO_METRICS);
    p->prefill = !opt_flag(o, OPT_SERVE_NO_PREFILL);
    p->on.page = !opt_flag(o, OPT_NO_UI);
    p->ignore_eos = opt_flag(o, OPT_IGNORE_EOS);
    p->seed = opt_int(o, OPT_SEED);
    p->names.strict = opt_flag(o, OPT_STRICT_MODEL);
    p->access_log = opt_is(o, OPT_LOG_ACCESS, "json")   ? SERVER_LOG_JSON
                    : opt_is(o, OPT_LOG_ACCESS, "text") ? SERVER_LOG_TEXT
                                                        : SERVER_LOG_NONE;
    p->compat.header = opt_str(o, OPT_SERVER_HEADER);
    p->keep_billing = opt_flag(o, OPT_KEEP_BILLING);
    p->refuse_unknown = opt_is(o, OPT_UNKNOWN_FIELDS, "refuse");
    p->tool_dialect = opt_str(o, OPT_TOOL_DIALECT);
    p->thoughts.apart = !opt_is(o, OPT_REASONING_FORMAT, "none");
    p->thoughts.budget = (int)opt_int(o, OPT_REASONING_BUDGET);
    p->thoughts.tell = opt_given(o, OPT_REASONING);
    p->thoughts.on = !opt_is(o, OPT_REASONING, "off");
    p->verbose = opt_flag(o, OPT_VERBOSE);
    p->pooling = pooling_option(o);
    p->catch_signals = 1;
    p->end_fd = opt_flag(o, OPT_END_WITH_STDIN) ? STDIN_FILENO : -1;
    sampling_numbers(o, &p->sampler); /* defaults of requests */
}

static int serve(const server_params *p, kvant_diag *diag)
{
    server *s;

    log_drop_not_wait(); /* the loop and the engines write messages too */
    KVANT_TRY(server_open(p, &s, diag));
    log_msg(LOG_INFO, "listening on %s", server_url(s));
    const int code = server_run(s, diag);
    if (server_killed_by(s)) /* the second signal: nothing is waited for */
        _exit(128 + server_killed_by(s));
    if (server_stuck(s))
        _exit(code == KVANT_OK ? 0 : 1);
    server_close(s);
    return code;
}

/* ---- one model, or a folder of them ---- */

/* Several names with commas: the first by the alphabet, as llama-server chooses it. */
static int first_alias(const char *list, char *out, size_t cap, kvant_diag *diag)
{
    const char *rest = list, *p;
    size_t n = 0;

    out[0] = 0;
    while (n < cap && names_next(&rest, &p, &n))
        if (n < cap && (!out[0] || strncmp(p, out, n) < 0 || (strncmp(p, out, n) == 0 && n < strlen(out))))
            snprintf(out, cap, "%.*s", (int)n, p);
    if (out[0] && n < cap)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EINVAL,
                      "--alias: found \"%.100s\", wanted a name of 1 to %zu bytes, or several "
                      "with commas",
                      list, cap - 1);
}

static int serve_one(const opts *o, server_params *p, kvant_diag *diag)
{
    const char *path;
    char alias[256];

    KVANT_TRY(model_path(o, &path, diag));
    p->names.aliases = opt_str(o, OPT_ALIAS);
    if (p->names.aliases)
        KVANT_TRY(first_alias(p->names.aliases, alias, sizeof alias, diag));
    else
        file_alias(path, alias, sizeof alias);
    const server_model m = { .name = alias, .path = (char *)(uintptr_t)path };
    p->models = &m;
    p->n_models = 1;
    p->caches = p->sleep_s && !opt_flag(o, OPT_NO_PREFIX_CACHE) ? opt_str(o, OPT_KV_DIR) : NULL;
    return serve(p, diag);
}

static int serve_several(const opts *o, server_params *p, kvant_diag *diag)
{
    server_model *list = NULL;
    int code = serve_list(o, p, &list, diag);

    if (code == KVANT_OK) {
        p->router = 1;
        p->caches = opt_flag(o, OPT_NO_PREFIX_CACHE) ? NULL : opt_str(o, OPT_KV_DIR);
        if (!p->caches)
            log_msg(LOG_INFO, "prefix caches go with a model that is unloaded; --slot-save-path DIR keeps them");
        code = serve(p, diag);
    }
    server_models_free(list, p->n_models);
    return code;
}

/* Bytes that a router's models may take together; on another device, with memory of its own, the given number. */
static int64_t memory_of(const opts *o)
{
    const int64_t given = opt_int(o, OPT_MODELS_MEMORY), free_bytes = device_memory(NULL);

    if (serve_router(o) < 0 || given > 0 || !device_is_cpu(opt_str(o, OPT_DEVICE)) || free_bytes < 0)
        return given;
    return free_bytes;
}

/* Blocks of one model: a reader could not tell those of several apart. */
static int open_events(const opts *o, kv_events **events, kvant_diag *diag)
{
    const char *topic = opt_str(o, OPT_KV_EVENTS_TOPIC);
    const kv_events_params p = { opt_str(o, OPT_KV_EVENTS), opt_str(o, OPT_KV_EVENTS_REPLAY), topic ? topic : "",
                                 opt_is(o, OPT_KV_EVENTS_ENCODING, "array") };

    if (!p.endpoint)
        return KVANT_OK;
    if (serve_router(o) >= 0)
        return kvant_fail(diag, KVANT_EINVAL, "%s and %s: wanted one of them; events are of one model",
                          opt_origin(o, OPT_KV_EVENTS), opt_origin(o, serve_router(o)));
    if (opt_flag(o, OPT_NO_PREFIX_CACHE))
        return kvant_fail(diag, KVANT_EINVAL, "--kv-events and --no-prefix-cache: wanted one of them");
    if (opt_int(o, OPT_SLEEP_IDLE) > 0)
        return kvant_fail(diag, KVANT_EINVAL,
                          "%s and %s: wanted one of them; a model that goes tells no reader that its "
                          "blocks went",
                          opt_origin(o, OPT_KV_EVENTS), opt_origin(o, OPT_SLEEP_IDLE));
    return kv_events_open(&p, events, diag);
}

int cmd_serve(const opts *o, kvant_diag *diag)
{
    auth keys = { 0 };
    server_params p;
    draft_synth synth;

    KVANT_TRY(serve_check_texts(o, diag));
    KVANT_TRY(serve_check_alone(o, diag));
    KVANT_TRY(check_parallel(o, diag));
    if (opt_flag(o, OPT_RERANK) && opt_given(o, OPT_POOLING) && !opt_is(o, OPT_POOLING, "rank"))
        return kvant_fail(diag, KVANT_EINVAL, "--rerank and --pooling %s: wanted one of them", opt_str(o, OPT_POOLING));
    KVANT_TRY(check_deterministic(o, diag));
    KVANT_TRY(check_tiers(o, diag));
    KVANT_TRY(spec_synth(o, &synth, diag));
    loader l = { .o = o, .memory = memory_of(o) };
    int code = read_keys(o, &keys, diag);
    if (code == KVANT_OK)
        code = open_events(o, &l.events, diag);
    if (code == KVANT_OK) {
        l.n_keys = auth_count(&keys, 0);
        const server_loader how = { &l, open_part, start_part, serve_downloads(o) };
        key_files files = { o, &keys };
        server_options(o, &keys, &p);
        p.renew = (server_renew){ keys.grows ? renew_keys : NULL, renewed_share, &files };
        p.loader = &how;
        p.models_max = (int)opt_int(o, OPT_MODELS_MAX);
        p.models_memory = l.memory;
        p.autoload = !opt_flag(o, OPT_NO_AUTOLOAD);
        p.sleep_s = opt_int(o, OPT_SLEEP_IDLE) > 0 ? (int)opt_int(o, OPT_SLEEP_IDLE) : 0;
        code = serve_router(o) >= 0 ? serve_several(o, &p, diag) : serve_one(o, &p, diag);
    }
    kv_events_close(l.events);
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
