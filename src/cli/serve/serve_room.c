/* serve_room.c: how much of the memory a model of `kvant serve` takes; checks of its options. */
#include "cli/serve/serve_room.h"

#include <string.h>
#include "base/log.h"
#include "cli/term.h"
#ifdef KVANT_HAVE_SERVER
#include "server/server.h"
#endif

enum { AUTO_MODELS = 4 };

void serve_slots(kvant_engine_params *p, int64_t given)
{
    p->max_seqs = given < 1 ? KVANT_FIT_SLOTS : (int)given;
    p->logits_rows = p->max_seqs + KVANT_PAGE; /* a page of them for drafts, or prompts of echo with logprobs */
}

/* A model of a router has one of --models-max parts of the router's memory. */
static kvant_fit_request request_of(const opts *o, int64_t router)
{
    const int64_t models = opt_int(o, OPT_MODELS_MAX);
    kvant_fit_request r = kvant_fit_request_defaults();

    r.memory = router > 0 ? router : -1;
    r.share = router > 0 ? router / (models ? models : AUTO_MODELS) : 0;
    r.pool_bytes = opt_given(o, OPT_POOL) ? opt_int(o, OPT_POOL) : 0;
    r.snapshots = opt_flag(o, OPT_NO_PREFIX_CACHE) ? 0 : (int)opt_int(o, OPT_SNAPSHOTS);
    r.slots_asked = opt_int(o, OPT_SERVE_PARALLEL) > 0;
    return r;
}

int serve_room(const opts *o, const kvant_model *m, kvant_engine_params *p, int64_t router, int64_t *bytes,
               kvant_diag *diag)
{
    const kvant_fit_request r = request_of(o, router);
    const int given = p->n_ctx, chosen = p->cpu_experts < 0;
    kvant_plan plan;
    int64_t most;
    char pool[32], total[32];

    engine_memory(p);
    KVANT_TRY(kvant_fit_shared(m, &r, p, &plan, &most, diag));
    tell_placement(m, p, chosen);
    tell_context(m, given || r.pool_bytes ? p->n_ctx : 0, p->n_ctx);
    if (!r.pool_bytes && most > 0)
        log_msg(LOG_INFO, "pool: %s of the %s that are free for it; --kv-pool-size %lldM takes all",
                human_bytes(plan.kv + plan.window + plan.tail, pool, sizeof pool),
                human_bytes(most, total, sizeof total), (long long)(most >> 20));
    *bytes = plan.total;
    return KVANT_OK;
}

#ifdef KVANT_HAVE_SERVER

/* ---- options that are wrong whatever the model is ---- */

int serve_check_alone(const opts *o, kvant_diag *diag)
{
    static const struct {
        int id, with;
        const char *wanted;
    } pairs[] = {
        { OPT_KV_STORE_SIZE, OPT_KV_STORE, "--kv-store DIR" },
        { OPT_KV_EVENTS_REPLAY, OPT_KV_EVENTS, "--kv-events ENDPOINT" },
        { OPT_KV_EVENTS_ENCODING, OPT_KV_EVENTS, "--kv-events ENDPOINT" },
        { OPT_KV_EVENTS_TOPIC, OPT_KV_EVENTS, "--kv-events ENDPOINT" },
        { OPT_CORS_METHODS, OPT_CORS, "--cors-origins LIST" },
        { OPT_CORS_HEADERS, OPT_CORS, "--cors-origins LIST" },
        { OPT_CORS_CREDENTIALS, OPT_CORS, "--cors-origins LIST" },
    };

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (opt_given(o, pairs[i].id) && !opt_str(o, pairs[i].with))
            return kvant_fail(diag, KVANT_EINVAL, "%s: it wants %s", opt_origin(o, pairs[i].id), pairs[i].wanted);
    return KVANT_OK;
}

/* Names of methods or headers, which browsers read. */
static int check_names(const opts *o, int id, kvant_diag *diag)
{
    const char *s = opt_str(o, id);

    if (!s || server_is_token_list(s))
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EINVAL, "%s: found \"%.60s\", wanted names with commas between them",
                      opt_origin(o, id), s);
}

int serve_check_texts(const opts *o, kvant_diag *diag)
{
    const char *s = opt_str(o, OPT_API_PREFIX);

    for (const char *p = opt_str(o, OPT_SERVER_HEADER); p && *p; p++)
        if ((unsigned char)*p < ' ' || (unsigned char)*p > '~')
            return kvant_fail(diag, KVANT_EINVAL, "%s: found byte 0x%02x, wanted printable ASCII",
                              opt_origin(o, OPT_SERVER_HEADER), (unsigned)(unsigned char)*p);
    if (s && s[0] && (s[0] != '/' || s[strlen(s) - 1] == '/'))
        return kvant_fail(diag, KVANT_EINVAL, "--api-prefix: found \"%.60s\", wanted a path such as /llm", s);
    KVANT_TRY(check_names(o, OPT_CORS_METHODS, diag));
    return check_names(o, OPT_CORS_HEADERS, diag);
}

#endif
