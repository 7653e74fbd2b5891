/* serve_room.c: how much of the memory a model of `kvant serve` takes. */
#include "cli/serve_room.h"

#include "base/log.h"
#include "cli/term.h"

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
