/* place_show.c: which device has what of a model: bytes by group of tensors, and the bytes that a decoded token reads,
 * which over the memory's bandwidth (--bandwidth) is the least time that it takes. */
#include "cli/place/place_show.h"

#include <stdlib.h>

#include "cli/term.h"
#include "engine/place/place_stream.h"

/* Gigabytes per second of device i by --bandwidth; 0: not given. */
static double bandwidth(const opts *o, int i)
{
    char item[32];

    return opt_item(o, OPT_BANDWIDTH, i, item, sizeof item) ? strtod(item, NULL) : 0;
}

/* A token reads the cache of its whole context, and states. */
static int64_t cache_bytes(const kvant_plan *plan)
{
    return (plan->kv + plan->window + plan->tail + plan->state) / plan->max_seqs;
}

static void group_text(const kvant_plan_group *g)
{
    char bytes[32], token[32];

    printf("    %-15s %4d tensors %11s, a token reads %s\n", g->group, g->tensors,
           human_bytes(g->bytes, bytes, sizeof bytes), human_bytes(g->token_bytes, token, sizeof token));
}

static void group_json(const kvant_plan_group *g, jsonw *w)
{
    jsonw_object(w);
    jsonw_kstr(w, "group", g->group);
    jsonw_kint(w, "tensors", g->tensors);
    jsonw_kint(w, "bytes", g->bytes);
    jsonw_kint(w, "token_bytes", g->token_bytes);
    jsonw_end(w);
}

/* Shows groups from *at on, those of one device; returns what a token reads of them. */
static int64_t show_groups(const kvant_model *m, const kvant_engine_params *p, int place, int *at, jsonw *w)
{
    kvant_plan_group g;
    int64_t token = 0;

    for (; kvant_plan_group_at(m, p, *at, &g, NULL) == KVANT_OK && g.place == place; (*at)++) {
        if (w)
            group_json(&g, w);
        else
            group_text(&g);
        token += g.token_bytes;
    }
    return token;
}

/* One device; returns the milliseconds of a token, or -1. */
static double show_part(const opts *o, const kvant_model *m, const kvant_engine_params *p, int i,
                        const kvant_plan_part *part, int *at, jsonw *w)
{
    char total[32], cache[32], token[32];
    int64_t reads;
    const double rate = bandwidth(o, i);

    if (w) {
        jsonw_object(w);
        jsonw_kstr(w, "device", part->device);
        jsonw_kint(w, "layers", part->layers);
        jsonw_kint(w, "total", part->plan.total);
        jsonw_kint(w, "cache", part->plan.kv + part->plan.window + part->plan.tail + part->plan.state);
        jsonw_kint(w, "work", part->plan.scratch);
        jsonw_key(w, "groups");
        jsonw_array(w);
        reads = show_groups(m, p, i, at, w) + cache_bytes(&part->plan);
        jsonw_end(w);
        jsonw_kint(w, "token_bytes", reads);
        jsonw_end(w);
        return rate > 0 ? (double)reads / rate / 1e6 : -1;
    }
    printf("  %s: %d layers, %s (caches and states %s, work %s)\n", part->device, part->layers,
           human_bytes(part->plan.total, total, sizeof total),
           human_bytes(part->plan.kv + part->plan.window + part->plan.tail + part->plan.state, cache, sizeof cache),
           human_bytes(part->plan.scratch, token, sizeof token));
    reads = show_groups(m, p, i, at, w) + cache_bytes(&part->plan);
    printf("    a token at the end of the context reads %s", human_bytes(reads, token, sizeof token));
    printf(rate > 0 ? ": %.2f ms at %.0f GB/s\n" : "\n", (double)reads / rate / 1e6, rate);
    return rate > 0 ? (double)reads / rate / 1e6 : -1;
}

/* Passes that do not leave experts to the CPU. */
static void show_stream(const kvant_model *m, const kvant_engine_params *p, jsonw *w)
{
    char device[40];
    const int rows = engine_stream_about(m, p, device, sizeof device);

    if (w)
        jsonw_kint(w, "stream_rows", rows);
    else if (rows > 0)
        printf("  prompts: from %d rows of a pass on %s computes with the CPU's experts, which go there\n", rows, device);
}

void place_show(const opts *o, const kvant_model *m, const kvant_engine_params *p, jsonw *w, int always)
{
    kvant_plan_part part;
    double ms = 0;
    int at = 0, known = 1;

    if (!w && !always && kvant_plan_device(m, p, 1, &part, NULL) < 0)
        return;
    if (w) {
        jsonw_key(w, "devices");
        jsonw_array(w);
    }
    for (int i = 0; kvant_plan_device(m, p, i, &part, NULL) == KVANT_OK; i++) {
        const double t = show_part(o, m, p, i, &part, &at, w);
        known &= t >= 0;
        ms += t;
    }
    if (w)
        jsonw_end(w);
    show_stream(m, p, w);
    if (!w && known)
        printf("  bound: %.2f ms for a token, %.1f tokens per second\n", ms, 1000 / ms);
}
