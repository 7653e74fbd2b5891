/* fit.c: the context, the page pool and the snapshots that fit.  See kvant/fit.h.  Owns the policy; what an engine with
 * some parameters takes is kvant_plan_make's. */
#include <limits.h>
#include <stdio.h>
#include "base/abi/sized.h"
#include "base/error.h"
#include "base/least.h"
#include "engine/engine.h"
#include "engine/fit/fit_device.h"
#include "engine/fit/fit_place.h"
#include "kvant/format.h"

enum { AUTO_SNAPSHOTS = 32, AUTO_WINDOW_SNAPSHOTS = 4, FEW_SNAPSHOTS = 4 };

/* Bytes, -1: any.  most: that the engine may have; share: that it takes where it can do with less. */
typedef struct fit_room {
    int64_t most, share;
    int slots;                     /* 1: leaves slots of prompts their room */
} fit_room;

void kvant_fit_request_init(kvant_fit_request *r, size_t size)
{
    const kvant_fit_request defaults = { .memory = -1, .snapshots = -1 };

    params_give(r, size, &defaults, sizeof defaults);
}

/* A caller's parameters, of whichever version its header is. */
static int take(const kvant_engine_params *theirs, kvant_engine_params *own, kvant_diag *diag)
{
    *own = kvant_engine_defaults();
    return params_take(own, sizeof *own, theirs, "kvant_engine_params", diag);
}

static int64_t whole_pages(int tokens)
{
    return ((int64_t)tokens + KVANT_PAGE - 1) / KVANT_PAGE * KVANT_PAGE;
}

static int train_of(const kvant_model *m)
{
    return kvant_model_get_info(m)->n_ctx_train;
}

/* Whose memory it is, as an end of "N MiB are". */
static const char *place(const kvant_engine_params *p, char *buf, size_t cap)
{
    if (device_is_host(p->device))
        return "available";
    snprintf(buf, cap, "free on device %.40s (--device cpu: this machine's memory)", p->device);
    return buf;
}

/* ---- the context ---- */

/* The plan fits; where nobody says who has layers and experts, in some placement. */
static int fits_placed(const kvant_model *m, const kvant_engine_params *p, int64_t memory, int slots)
{
    kvant_engine_params q = *p;

    if (q.cpu_experts >= 0)
        return fit_beside(m, p, memory, slots);
    return fit_place(m, &q, NULL) == KVANT_OK && fit_fits(m, &q, fit_memory(m, &q, memory));
}

static int largest(const kvant_model *m, const kvant_engine_params *p, int max, int whole, int64_t memory, int slots)
{
    int64_t lo = 0, hi = ((int64_t)max + KVANT_PAGE - 1) / KVANT_PAGE;

    while (lo < hi) {
        kvant_engine_params q = *p;
        const int64_t mid = lo + (hi - lo + 1) / 2;
        q.n_ctx = mid * KVANT_PAGE < max ? (int)(mid * KVANT_PAGE) : max;
        q.pool_tokens = whole * mid * KVANT_PAGE;
        if (fits_placed(m, &q, memory, slots))
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo * KVANT_PAGE < max ? (int)(lo * KVANT_PAGE) : max;
}

int kvant_fit_largest(const kvant_model *m, const kvant_engine_params *p, int max, int whole, int64_t memory)
{
    kvant_engine_params own;

    return take(p, &own, NULL) == KVANT_OK ? largest(m, &own, max, whole, memory, 0) : 0;
}

/* p->n_ctx: the training context, or less: at most max, and what fits in `less` of the memory beside room for `whole`
 * such sequences. */
static int choose_context(const kvant_model *m, kvant_engine_params *p, int max, int whole, int64_t memory,
                          int64_t less, int slots, kvant_diag *diag)
{
    const int most = min_int(max, train_of(m));
    kvant_engine_params one_page = *p;
    kvant_plan plan;
    char buf[128];

    one_page.n_ctx = min_int(train_of(m), KVANT_PAGE);
    KVANT_TRY(kvant_plan_make(m, &one_page, &plan, diag)); /* what is wrong for other reasons than memory */
    p->n_ctx = memory < 0 ? most : largest(m, p, most, whole, less, slots);
    if (p->n_ctx >= min_int(KVANT_PAGE, most))
        return KVANT_OK;
    return kvant_fail(diag, KVANT_ENOSPC, "model: does not fit in the %lld MiB that are %s, with any context",
                      (long long)(memory >> 20), place(p, buf, sizeof buf));
}

/* The plan, which must fit. */
static int check_plan(const kvant_model *m, const kvant_engine_params *p, int64_t memory, kvant_plan *out,
                      kvant_diag *diag)
{
    kvant_plan plan;
    char buf[128];

    KVANT_TRY(kvant_plan_make(m, p, &plan, diag));
    if (memory >= 0 && plan.total > memory)
        return kvant_fail(diag, KVANT_ENOSPC,
                          "context of %d tokens (%s/%s): needs %lld MiB, %lld MiB are %s; kvant plan shows what fits",
                          plan.n_ctx, p->type_k ? p->type_k : "f16", p->type_v ? p->type_v : "f16",
                          (long long)(plan.total >> 20), (long long)(memory >> 20), place(p, buf, sizeof buf));
    if (out)
        *out = plan;
    return engine_check_room(m, p, 0, diag);
}

/* The placement that was chosen; the caller's struct may be one of before there were such. */
static void give(kvant_engine_params *p, const kvant_engine_params *own)
{
    p->n_ctx = own->n_ctx;
    if (p->size >= sizeof *p) {
        p->gpu_layers = own->gpu_layers;
        p->cpu_experts = own->cpu_experts;
    }
}

int kvant_fit_whole(const kvant_model *m, int64_t memory, kvant_engine_params *p, kvant_plan *plan, kvant_diag *diag)
{
    kvant_engine_params own;

    KVANT_TRY(take(p, &own, diag));
    KVANT_TRY(fit_place(m, &own, diag));
    memory = fit_memory(m, &own, memory);
    if (own.n_ctx == 0)
        KVANT_TRY(choose_context(m, &own, INT_MAX, own.max_seqs > 1 ? own.max_seqs : 1, memory,
                                 fit_less(&own, memory), fit_has_slots(m, &own), diag));
    KVANT_TRY(check_plan(m, &own, memory, plan, diag));
    give(p, &own);
    return KVANT_OK;
}

/* ---- room that sequences share ---- */

/* A sixteenth of a GPU's memory is left free.  Half of what the weights leave is for others, as long as nobody asks. */
static int room_of(const kvant_model *m, const kvant_fit_request *r, const kvant_engine_params *p, fit_room *out,
                   kvant_diag *diag)
{
    kvant_engine_params one_page = *p;
    kvant_plan plan;

    *out = (fit_room){ r->memory, r->share, fit_has_slots(m, p) };
    if (r->memory < 0)
        out->share = -1;
    if (r->memory < 0 || r->share > 0)
        return KVANT_OK;
    one_page.n_ctx = min_int(train_of(m), KVANT_PAGE);
    KVANT_TRY(kvant_plan_make(m, &one_page, &plan, diag));
    out->most = device_is_cpu(p->device) ? out->most : fit_less(p, r->memory);
    out->share = plan.weights < out->most ? plan.weights + (out->most - plan.weights) / 2 : out->most;
    return KVANT_OK;
}

/* A snapshot of windows takes their pages: fewer of them, or what the windows save would go into snapshots. */
static int auto_snapshots(const kvant_model_info *m, const kvant_engine_params *p)
{
    if (m->n_gdn_layers || p->kv_tail > KVANT_PAGE || p->kv_sink > 0)
        return AUTO_SNAPSHOTS + p->max_seqs;
    return m->n_window_layers && !p->full_windows ? AUTO_WINDOW_SNAPSHOTS + 2 * p->max_seqs : 0;
}

/* As many as leave room for a sequence of KVANT_FIT_TOKENS. */
static void choose_snapshots(const kvant_model *m, int given, kvant_engine_params *p, const fit_room *r)
{
    kvant_engine_params one = *p;

    one.snapshots = given < 0 ? auto_snapshots(kvant_model_get_info(m), p) : given;
    one.n_ctx = p->n_ctx ? p->n_ctx : min_int(train_of(m), KVANT_FIT_TOKENS);
    one.pool_tokens = whole_pages(one.n_ctx);
    while (given < 0 && one.snapshots > 0 &&
           !fit_beside(m, &one, one.snapshots > FEW_SNAPSHOTS ? r->share : r->most, r->slots))
        one.snapshots /= 2;
    p->snapshots = one.snapshots;
}

/* The exact tail and the windows of the sequences are part of the bytes that were given. */
static int pool_of_bytes(const kvant_model *m, int64_t bytes, kvant_engine_params *p, kvant_diag *diag)
{
    kvant_plan plan;
    kvant_engine_params one = *p;

    one.pool_tokens = KVANT_PAGE;
    KVANT_TRY(kvant_plan_make(m, &one, &plan, diag));
    const int64_t fixed = plan.tail + plan.window, token = plan.kv_bytes_per_token ? plan.kv_bytes_per_token : 1;
    p->pool_tokens = (bytes - fixed) / token / KVANT_PAGE * KVANT_PAGE;
    if (p->pool_tokens < KVANT_PAGE)
        return kvant_fail(diag, KVANT_EINVAL,
                          "page pool (--kv-pool-size): %lld bytes, want at least %lld: the exact tail and windows (%lld, "
                          "for %d sequences) and a page of %d tokens",
                          (long long)bytes, (long long)(fixed + token * KVANT_PAGE), (long long)fixed, p->max_seqs,
                          KVANT_PAGE);
    if (p->n_ctx == 0)
        p->n_ctx = p->pool_tokens < train_of(m) ? (int)p->pool_tokens : train_of(m);
    return KVANT_OK;
}

/* The context, with pages for one sequence of that length: what the share holds, or more than that up to
 * KVANT_FIT_TOKENS. */
static int one_sequence(const kvant_model *m, kvant_engine_params *p, const fit_room *r, kvant_diag *diag)
{
    const int least = min_int(train_of(m), KVANT_FIT_TOKENS), cpu = device_is_cpu(p->device);

    if (r->share >= 0 && largest(m, p, least, 1, fit_less(p, r->share), r->slots) < least)
        return choose_context(m, p, least, 1, r->most, cpu ? fit_less(p, r->most) : r->most, r->slots, diag);
    return choose_context(m, p, INT_MAX, 1, r->share, fit_less(p, r->share), r->slots, diag);
}

/* Pages for what the sequences want, or what the share holds; at least one sequence. */
static void choose_pool(const kvant_model *m, kvant_engine_params *p, int slots_asked, const fit_room *r)
{
    const int64_t one = whole_pages(p->n_ctx),
                  other = slots_asked ? one : whole_pages(min_int(p->n_ctx, KVANT_FIT_TOKENS));

    p->pool_tokens = one + (p->max_seqs - 1) * other;
    while (p->pool_tokens > one && !fit_beside(m, p, r->share, r->slots))
        p->pool_tokens = p->pool_tokens / 2 > one ? p->pool_tokens / 2 / KVANT_PAGE * KVANT_PAGE : one;
}

static int shared(const kvant_model *m, const kvant_fit_request *r, kvant_engine_params *p, fit_room *has,
                  kvant_diag *diag)
{
    KVANT_TRY(room_of(m, r, p, has, diag));
    choose_snapshots(m, r->snapshots, p, has);
    if (r->pool_bytes > 0)
        return pool_of_bytes(m, r->pool_bytes, p, diag);
    if (p->n_ctx == 0)
        KVANT_TRY(one_sequence(m, p, has, diag));
    choose_pool(m, p, r->slots_asked, has);
    return KVANT_OK;
}

/* Sequences that were asked for, or bytes of a pool, come before experts on the device. */
static int place_shared(const kvant_model *m, kvant_fit_request *r, kvant_engine_params *p, kvant_diag *diag)
{
    kvant_engine_params q = *p;

    if (r->slots_asked && p->n_ctx)
        q.pool_tokens = whole_pages(p->n_ctx) * p->max_seqs;
    if (r->pool_bytes > 0 && p->cpu_experts < 0)
        KVANT_TRY(pool_of_bytes(m, r->pool_bytes, &q, diag));
    KVANT_TRY(fit_place(m, &q, diag));
    p->cpu_experts = q.cpu_experts;
    p->gpu_layers = q.gpu_layers;
    r->memory = fit_memory(m, p, r->memory);
    return KVANT_OK;
}

int kvant_fit_shared(const kvant_model *m, const kvant_fit_request *request, kvant_engine_params *p, kvant_plan *plan,
                     int64_t *most, kvant_diag *diag)
{
    kvant_fit_request r = kvant_fit_request_defaults();
    kvant_engine_params own;
    kvant_plan done;
    fit_room has;

    KVANT_TRY(params_take(&r, sizeof r, request, "kvant_fit_request", diag));
    KVANT_TRY(take(p, &own, diag));
    own.max_seqs = own.max_seqs ? own.max_seqs : 1;
    KVANT_TRY(place_shared(m, &r, &own, diag));
    KVANT_TRY(shared(m, &r, &own, &has, diag));
    KVANT_TRY(check_plan(m, &own, has.most, &done, diag));
    give(p, &own);
    p->pool_tokens = own.pool_tokens;
    p->snapshots = own.snapshots;
    if (most)
        *most = has.most < 0 ? -1 : has.most - (done.total - done.kv - done.window - done.tail);
    if (plan)
        *plan = done;
    return KVANT_OK;
}
