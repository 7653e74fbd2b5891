/* fit_place.c: a model that is larger than its device: caches, states and scratch come first, then layers without their
 * routed experts, then experts layer by layer, from the last one on; this machine's memory has the rest. */
#include "engine/fit/fit_place.h"

#include <string.h>

#include "base/error.h"
#include "base/least.h"
#include "engine/engine.h"
#include "engine/fit/fit_device.h"
#include "engine/place/place_stream.h"
#include "kvant/fit.h"

/* ---- memory ---- */

/* This machine's part of a plan of one page; it grows with the context where the CPU has layers. */
static int64_t host_bytes(const kvant_model *m, const kvant_engine_params *p, const engine_split *s)
{
    kvant_engine_params one = *p, own;
    kvant_plan plan;
    int64_t bytes = 0;

    one.n_ctx = min_int(m->hp.n_ctx_train, KVANT_PAGE);
    one.pool_tokens = KVANT_PAGE;
    if (engine_resolve(m, &one, &own, NULL) < 0)
        return 0;
    for (int i = 0; i < s->n; i++)
        if (engine_place_is_host(s, i) && engine_plan_place(m, &own, s, i, &plan, NULL) == KVANT_OK)
            bytes += plan.total;
    return bytes;
}

/* Memory of the devices; -1: not known of one.  The CPU's counts once, however many devices it is. */
static int64_t device_bytes(const kvant_engine_params *p, const engine_split *s)
{
    int64_t sum = 0;

    for (int i = 0, cpus = 0; i < s->n; i++) {
        const int64_t bytes = engine_place_memory(p, s, i);
        if (engine_place_is_host(s, i))
            continue;
        if (bytes <= 0)
            return -1;
        sum += strcmp(s->name[i], "cpu") == 0 && cpus++ ? 0 : bytes;
    }
    return sum;
}

int64_t fit_memory(const kvant_model *m, const kvant_engine_params *p, int64_t given)
{
    kvant_engine_params own;
    engine_split s;

    if (engine_resolve(m, p, &own, NULL) < 0 || engine_split_make(m, &own, &s, NULL) < 0)
        return given;
    const int64_t devices = device_bytes(&own, &s), host = own.gpu_layers ? own.host_memory : host_bytes(m, &own, &s);
    if (devices < 0 || (own.gpu_layers && host <= 0))
        return given;
    return given >= 0 && given < devices + host ? given : devices + host;
}

int64_t fit_less(const kvant_engine_params *p, int64_t bytes)
{
    int64_t devices = 0;

    for (int i = 0; i < KVANT_MOST_DEVICES; i++)
        devices += p->device_memory[i];
    return bytes - (devices > 0 && devices < bytes ? devices : bytes) / 16;
}

int fit_fits(const kvant_model *m, const kvant_engine_params *p, int64_t memory)
{
    kvant_plan plan;

    if (memory >= 0 && (kvant_plan_make(m, p, &plan, NULL) < 0 || plan.total > memory))
        return 0;
    return engine_check_room(m, p, 1, NULL) == KVANT_OK;
}

int fit_beside(const kvant_model *m, const kvant_engine_params *p, int64_t memory, int slots)
{
    return fit_fits(m, p, memory) && !(slots && engine_stream_lost(m, p));
}

/* ---- placement ---- */

/* The fewest layers whose experts are apart; -1: even so it does not fit. */
static int fewest_experts(const kvant_model *m, const kvant_engine_params *p, int slots)
{
    kvant_engine_params q = *p;

    for (q.cpu_experts = 1; q.cpu_experts <= m->hp.n_layer; q.cpu_experts++)
        if (fit_beside(m, &q, -1, slots))
            return q.cpu_experts;
    return -1;
}

/* The most layers, without experts, that the devices hold; 0: none. */
static int most_layers(const kvant_model *m, const kvant_engine_params *p)
{
    kvant_engine_params q = *p;

    q.cpu_experts = m->hp.moe.n ? m->hp.n_layer : 0;
    for (q.gpu_layers = m->hp.n_layer; q.gpu_layers > 0; q.gpu_layers--)
        if (fit_fits(m, &q, -1))
            return q.gpu_layers;
    return 0;
}

/* Slots of prompts are worth the experts of some layers, and no layer. */
static int choose(const kvant_model *m, const kvant_engine_params *p, kvant_engine_params *out)
{
    int experts = m->hp.moe.n ? fewest_experts(m, p, 1) : -1;

    if (experts < 0 && m->hp.moe.n)
        experts = fewest_experts(m, p, 0);
    if (experts >= 0) {
        out->cpu_experts = experts;
        return 1;
    }
    out->gpu_layers = most_layers(m, p);
    out->cpu_experts = out->gpu_layers && m->hp.moe.n ? m->hp.n_layer : 0;
    return out->gpu_layers > 0;
}

static int64_t pages_of(int tokens)
{
    return ((int64_t)tokens + KVANT_PAGE - 1) / KVANT_PAGE * KVANT_PAGE;
}

/* The context and the pool that placements are tried with. */
static kvant_engine_params least_of(const kvant_model *m, const kvant_engine_params *p)
{
    kvant_engine_params q = *p;

    q.n_ctx = p->n_ctx ? p->n_ctx : min_int(m->hp.n_ctx_train, KVANT_FIT_TOKENS);
    q.pool_tokens = p->pool_tokens ? p->pool_tokens : pages_of(q.n_ctx);
    return q;
}

int fit_has_slots(const kvant_model *m, const kvant_engine_params *p)
{
    const kvant_engine_params q = least_of(m, p);

    return !engine_stream_lost(m, &q);
}

/* Without a context of the caller's, shorter ones are tried before the model is said not to fit. */
int fit_place(const kvant_model *m, kvant_engine_params *p, kvant_diag *diag)
{
    const int chosen = p->cpu_experts < 0, given = p->n_ctx;
    kvant_engine_params q;
    kvant_plan plan;

    if (!chosen)
        return KVANT_OK;
    p->cpu_experts = 0;
    q = least_of(m, p);
    KVANT_TRY(kvant_plan_make(m, &q, &plan, diag)); /* what is wrong for other reasons than memory */
    if (p->gpu_layers > 0 || p->tensors || p->split_tensors ||
        device_is_host(p->device) || fit_fits(m, &q, -1) || choose(m, &q, p))
        return KVANT_OK;
    for (q.n_ctx /= 2; !given && q.n_ctx >= KVANT_PAGE; q.n_ctx /= 2) {
        q.pool_tokens = pages_of(q.n_ctx);
        if (fit_fits(m, &q, -1) || choose(m, &q, p))
            return KVANT_OK;
    }
    p->cpu_experts = p->gpu_layers = 0; /* the caller says what is too much */
    return KVANT_OK;
}
