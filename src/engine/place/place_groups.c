/* place_groups.c: what each device has of a model, by group of tensors, and what a decoded token reads of it. */
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/tensor/tensor.h"

enum { EMBEDDINGS, ATTENTION, DENSE, SHARED, ROUTERS, EXPERTS, OUTPUT, GROUPS };
static const char *const group_names[] = { "embeddings", "attention", "feed-forward", "shared experts", "routers",
                                           "routed experts", "output" };

static int has(const gguf_tensor *t, const char *part)
{
    char name[128];

    snprintf(name, sizeof name, "%.*s", (int)t->name.n, t->name.s);
    return strstr(name, part) != NULL;
}

/* Recurrent blocks and norms count as attention. */
static int group_of(const gguf_tensor *t)
{
    int l;

    if (engine_is_expert(t, &l))
        return EXPERTS;
    if (has(t, "token_embd") || has(t, "per_layer_"))
        return EMBEDDINGS;
    if (!has(t, "blk."))
        return OUTPUT;
    if (has(t, "_shexp"))
        return SHARED;
    if (has(t, "ffn_gate_inp") || has(t, "exp_probs"))
        return ROUTERS;
    return has(t, ".ffn_") && !has(t, "norm") ? DENSE : ATTENTION;
}

/* A token reads one row of the embeddings and the experts that it is given; of the rest everything. */
static int64_t token_bytes(const kvant_model *m, int64_t bytes, int group)
{
    if (group == EMBEDDINGS)
        return bytes / m->hp.n_vocab;
    return group == EXPERTS ? bytes / m->hp.moe.n * m->hp.moe.n_used : bytes;
}

static void add(kvant_plan_group *to, int64_t bytes, int64_t token)
{
    to->bytes += bytes;
    to->token_bytes += token;
    to->tensors++;
}

/* Adds a tensor to groups[GROUPS] of a place. */
static void add_tensor(const kvant_model *m, const engine_split *s, int place, const gguf_tensor *t,
                       kvant_plan_group *groups)
{
    const int group = group_of(t), head = s->of[m->hp.n_layer];
    int l = 0, here = engine_tensor_place(m, s, t);

    if (group == EXPERTS && engine_is_expert(t, &l) && l < m->hp.n_layer)
        here = s->experts[l];
    if (here == place)
        add(&groups[group], (int64_t)t->bytes, token_bytes(m, (int64_t)t->bytes, group));
    if (group == EMBEDDINGS && m->output == m->token_embd && head == place && has(t, "token_embd"))
        add(&groups[OUTPUT], here == place ? 0 : (int64_t)t->bytes, (int64_t)t->bytes);
}

/* Adds a place's part of tensor i.  The first place has the table of embeddings, and a part of it for the output
 * where that has no matrix of its own. */
static int add_part(const kvant_model *m, const engine_split *s, int place, int i, kvant_plan_group *groups,
                    kvant_diag *diag)
{
    const gguf_tensor *t = gguf_tensor_at(m->file, i);
    const int group = group_of(t), tied = group == EMBEDDINGS && m->output == m->token_embd && has(t, "token_embd");
    const int64_t bytes = tensor_bytes(m, s, place, i), table = place ? 0 : (int64_t)t->bytes;

    if (bytes < 0)
        return kvant_fail(diag, KVANT_ENOMEM, "plan: out of memory");
    if (!tied && bytes)
        add(&groups[group], bytes, token_bytes(m, bytes, group));
    if (tied && table)
        add(&groups[group], table, token_bytes(m, table, group));
    if (tied)
        add(&groups[OUTPUT], bytes - table, bytes - table);
    return KVANT_OK;
}

/* Group i of those that have tensors, counted over all places. */
static int find_group(const kvant_model *m, const engine_split *s, int i, kvant_plan_group *out, kvant_diag *diag)
{
    int n = 0;

    for (int place = 0; place < s->n; place++) {
        kvant_plan_group groups[GROUPS];
        memset(groups, 0, sizeof groups);
        for (int t = 0; t < gguf_tensor_count(m->file); t++)
            if (s->tensors)
                KVANT_TRY(add_part(m, s, place, t, groups, diag));
            else
                add_tensor(m, s, place, gguf_tensor_at(m->file, t), groups);
        for (int g = 0; g < GROUPS; g++)
            if (groups[g].tensors && n++ == i) {
                *out = groups[g];
                out->place = place;
                snprintf(out->device, sizeof out->device, "%s", s->name[place]);
                snprintf(out->group, sizeof out->group, "%s", group_names[g]);
                return KVANT_OK;
            }
    }
    return engine_in_range("group of tensors", i, 0, n - 1, diag);
}

int kvant_plan_group_at(const kvant_model *m, const kvant_engine_params *params, int i, kvant_plan_group *out,
                        kvant_diag *diag)
{
    kvant_engine_params p;
    engine_split s;

    KVANT_TRY(engine_resolve(m, params, &p, diag));
    KVANT_TRY(engine_split_make(m, &p, &s, diag));
    return find_group(m, &s, i, out, diag);
}
