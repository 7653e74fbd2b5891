/* place_room.c: the memory that parameters give to each place, and whether the engine's parts fit. */
#include <string.h>

#include "engine/engine.h"

int engine_place_is_host(const engine_split *s, int place)
{
    return s->device[place] < 0 && strcmp(s->name[place], "cpu") == 0;
}

int64_t engine_place_memory(const kvant_engine_params *p, const engine_split *s, int place)
{
    if (engine_place_is_host(s, place))
        return p->host_memory;
    return s->device[place] < 0 ? 0 : p->device_memory[s->device[place]];
}

static int check(const kvant_plan *plan, const char *name, int64_t have, kvant_diag *diag)
{
    const int64_t cache = plan->kv + plan->window + plan->tail;

    if (have <= 0 || plan->total <= have)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_ENOSPC, "device %s: %.1f MiB wanted (weights %.1f, cache %.1f, state %.1f, work %.1f), "
                      "%.1f may be used; kvant plan shows what fits", name, (double)plan->total / 1048576,
                      (double)plan->weights / 1048576, (double)cache / 1048576, (double)plan->state / 1048576,
                      (double)plan->scratch / 1048576, (double)have / 1048576);
}

static void add(kvant_plan *to, const kvant_plan *one)
{
    to->weights += one->weights;
    to->kv += one->kv;
    to->window += one->window;
    to->tail += one->tail;
    to->state += one->state;
    to->scratch += one->scratch;
    to->total += one->total;
}

int engine_check_room(const kvant_model *m, const kvant_engine_params *params, int spare, kvant_diag *diag)
{
    kvant_engine_params p;
    engine_split s;
    kvant_plan host = { 0 }, one;

    KVANT_TRY(engine_resolve(m, params, &p, diag));
    KVANT_TRY(engine_split_make(m, &p, &s, diag));
    for (int i = 0; i < s.n; i++) {
        const int64_t have = engine_place_memory(&p, &s, i);
        KVANT_TRY(engine_plan_place(m, &p, &s, i, &one, diag));
        if (engine_place_is_host(&s, i))
            add(&host, &one);
        else
            KVANT_TRY(check(&one, s.name[i], spare && strcmp(s.name[i], "cpu") != 0 ? have - have / 16 : have, diag));
    }
    return check(&host, "cpu", p.host_memory, diag);
}
