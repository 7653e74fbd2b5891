/* serve_room.c: how much of the memory a model of `kvant serve` takes.  Memory that nobody asked for gives way: first
 * pages for every sequence at full length, then snapshots of recurrent states, then the context. */
#include <string.h>
#include "base/error.h"
#include "base/log.h"
#include "cli/serve_room.h"

/* CONTEXT: tokens of one sequence that snapshots leave room for; it and FEW_SNAPSHOTS may take more than the share. */
enum { AUTO_SNAPSHOTS = 32, AUTO_WINDOW_SNAPSHOTS = 4, FEW_SNAPSHOTS = 4, AUTO_MODELS = 4, CONTEXT = 8192 };

/* Bytes, -1: any.  most: that the engine may have; share: that it takes where it can do with less. */
typedef struct room {
    int64_t most, share;
} room;

/* Half of this machine's memory is left to others; a GPU's is there for the model; a model of a router has one of
 * --models-max parts of the router's memory. */
static room room_of(const opts *o, const kvant_engine_params *p, int64_t router)
{
    const int64_t models = opt_int(o, OPT_MODELS_MAX);

    if (router > 0)
        return (room){ router, router / (models ? models : AUTO_MODELS) };
    const int64_t free_bytes = device_memory(p->device);
    return (room){ free_bytes, free_bytes < 0         ? -1
                               : is_cpu(p->device) ? free_bytes / 2
                                                   : free_bytes - free_bytes / 16 };
}

static int fits(const kvant_model *m, const kvant_engine_params *p, int64_t memory)
{
    kvant_plan plan;

    return memory < 0 || (kvant_plan_make(m, p, &plan, NULL) == KVANT_OK && plan.total <= memory);
}

static int64_t whole_pages(int tokens)
{
    return ((int64_t)tokens + KVANT_PAGE - 1) / KVANT_PAGE * KVANT_PAGE;
}

/* A snapshot of windows takes their pages: fewer of them, or what the windows save would go into snapshots. */
static int auto_snapshots(const kvant_model_info *m, const kvant_engine_params *p)
{
    if (m->n_gdn_layers || p->kv_tail > 64)
        return AUTO_SNAPSHOTS + p->max_seqs;
    return m->n_window_layers && !p->full_windows ? AUTO_WINDOW_SNAPSHOTS + 2 * p->max_seqs : 0;
}

/* As many as leave room for a sequence of CONTEXT tokens. */
static void choose_snapshots(const opts *o, const kvant_model *m, kvant_engine_params *p, const room *r)
{
    const kvant_model_info *info = kvant_model_get_info(m);
    const int given = opt_flag(o, OPT_NO_PREFIX_CACHE) ? 0 : (int)opt_int(o, OPT_SNAPSHOTS);

    kvant_engine_params one = *p;

    one.snapshots = given < 0 ? auto_snapshots(info, p) : given;
    one.n_ctx = p->n_ctx ? p->n_ctx : info->n_ctx_train < CONTEXT ? info->n_ctx_train : CONTEXT;
    one.pool_tokens = whole_pages(one.n_ctx);
    while (given < 0 && one.snapshots > 0 && !fits(m, &one, one.snapshots > FEW_SNAPSHOTS ? r->share : r->most))
        one.snapshots /= 2;
    p->snapshots = one.snapshots;
}

/* The exact tail and the windows of the sequences are part of the bytes that were given. */
static int pool_of_bytes(const opts *o, const kvant_model *m, kvant_engine_params *p, kvant_diag *diag)
{
    const int64_t bytes = opt_int(o, OPT_POOL);
    kvant_plan plan;
    kvant_engine_params one = *p;

    one.pool_tokens = 64;
    KVANT_TRY(kvant_plan_make(m, &one, &plan, diag));
    const int64_t fixed = plan.tail + plan.window;
    p->pool_tokens = (bytes - fixed) / (plan.kv_bytes_per_token ? plan.kv_bytes_per_token : 1) / 64 * 64;
    if (p->pool_tokens >= 64)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EINVAL,
                      "%s: %lld bytes, want at least %lld: the exact tail and windows (%lld, for -np %d) and a page of "
                      "64 tokens",
                      opt_origin(o, OPT_POOL), (long long)bytes, (long long)(fixed + plan.kv_bytes_per_token * 64),
                      (long long)fixed, p->max_seqs);
}

/* The context, with pages for one sequence of that length: what the share holds, or more than that up to CONTEXT. */
static int one_sequence(const kvant_model *m, kvant_engine_params *p, const room *r, kvant_diag *diag)
{
    const int train = kvant_model_get_info(m)->n_ctx_train, least = train < CONTEXT ? train : CONTEXT;

    if (r->share >= 0 && largest_context(m, p, least, 1, r->share - r->share / 16) < least)
        return choose_context(m, p, least, 1, r->most, diag);
    return choose_context(m, p, train, 1, r->share, diag);
}

/* Pages for every sequence at full length, or what the share holds; at least one sequence. */
static void choose_pool(const kvant_model *m, kvant_engine_params *p, int64_t share)
{
    const int64_t one = whole_pages(p->n_ctx);

    p->pool_tokens = p->max_seqs * one;
    while (p->pool_tokens > one && !fits(m, p, share))
        p->pool_tokens = p->pool_tokens / 2 > one ? p->pool_tokens / 2 / 64 * 64 : one;
}

int serve_room(const opts *o, const kvant_model *m, kvant_engine_params *p, int64_t router, int64_t *bytes,
               kvant_diag *diag)
{
    const room r = room_of(o, p, router);

    choose_snapshots(o, m, p, &r);
    if (opt_given(o, OPT_POOL)) {
        KVANT_TRY(pool_of_bytes(o, m, p, diag));
        const int train = kvant_model_get_info(m)->n_ctx_train;
        if (p->n_ctx == 0)
            p->n_ctx = p->pool_tokens < train ? (int)p->pool_tokens : train;
    } else {
        if (p->n_ctx == 0)
            KVANT_TRY(one_sequence(m, p, &r, diag));
        choose_pool(m, p, r.share);
    }
    return fit_engine(m, p, r.most, bytes, diag);
}
