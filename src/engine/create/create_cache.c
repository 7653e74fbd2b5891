/* create_cache.c: the cache of an engine over its devices: formats of the layers, heads of each place, and the matrices
 * of formats that project (QJL). */
#include "base/mem.h"
#include "engine/engine.h"
#include "engine/tensor/tensor.h"
#include "kvant/qjl.h"

static int wants_projection(const kvant_engine *e)
{
    int wanted = 0;
    for (int l = 0; l < e->m->hp.n_layer + e->p.mtp; l++)
        wanted |= (e->kinds[l] & KV_LAYER_ATTN) &&
                  ((e->types[l].k->flags | e->types[l].v->flags) & KVANT_FORMAT_PARAM);
    return wanted;
}

/* Matrices of the user's file: one for all layers, or one for each with K and V (drafting blocks take the last). */
static int count_projections(const kvant_engine *e, int *n, kvant_diag *diag)
{
    int layers = 0;

    *n = 1;
    if (!e->p.qjl_projection)
        return KVANT_OK;
    for (int l = 0; l < e->m->hp.n_layer; l++)
        layers += (e->kinds[l] & KV_LAYER_ATTN) != 0;
    KVANT_TRY(kvant_qjl_projection_count(e->p.qjl_projection, n, diag));
    if (*n == 1 || *n == layers)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EINVAL, "projection %s: %d matrices, want one, or %d for the layers with K and V",
                      e->p.qjl_projection, *n, layers);
}

/* Projection i on each device. */
static int create_projection(kvant_engine *e, int i, float *host, kvant_diag *diag)
{
    if (e->p.qjl_projection)
        KVANT_TRY(kvant_qjl_projection_read(e->p.qjl_projection, i, host, diag));
    else
        kvant_qjl_projection_build(KVANT_QJL_SEED, host);
    for (int at = 0; at < e->split.n; at++) {
        engine_place *place = &e->place[at];
        KVANT_TRY(device_param_load(place->dev, host, KVANT_QJL_VALUES * sizeof *host, &place->projections[i], diag));
        place->n_projections = i + 1;
    }
    return KVANT_OK;
}

static int create_projections(kvant_engine *e, kvant_diag *diag)
{
    int n, code = KVANT_OK;

    KVANT_TRY(count_projections(e, &n, diag));
    float *host = kvant_alloc(KVANT_QJL_VALUES * sizeof *host);
    for (int at = 0; at < e->split.n; at++) {
        e->place[at].projections = kvant_calloc((size_t)n, sizeof(void *));
        if (!e->place[at].projections)
            code = KVANT_ENOMEM;
    }
    if (!host || code < 0)
        code = kvant_fail(diag, KVANT_ENOMEM, "projection: out of memory");
    for (int i = 0; code == KVANT_OK && i < n; i++)
        code = create_projection(e, i, host, diag);
    kvant_free(host);
    e->p.qjl_projection = NULL;    /* the caller's string: not kept */
    return code;
}

static int fold(void *e, int seq, kvant_diag *diag)
{
    return engine_fold(e, seq, diag);
}

/* KV heads of every place. */
static int share_heads(kvant_engine *e, kv_config *cfg, kvant_diag *diag)
{
    int *heads = e->way.part_heads = kvant_calloc((size_t)e->split.n * (size_t)cfg->n_layer, sizeof *heads);

    if (!heads)
        return kvant_fail(diag, KVANT_ENOMEM, "engine: out of memory");
    cfg->n_parts = e->split.n;
    cfg->part_heads = heads;
    for (int i = 0; i < cfg->n_parts; i++)
        for (int l = 0; l < cfg->n_layer; l++)
            heads[kv_at(cfg, i, l)] = tensor_heads(e->m, &e->split, i, l);
    return KVANT_OK;
}

int engine_create_cache(kvant_engine *e, kvant_diag *diag)
{
    kv_config cfg;
    size_t n = (size_t)e->m->hp.n_layer + 1;
    e->types = kvant_calloc(n, sizeof *e->types);
    e->kinds = kvant_calloc(n, 1);
    if (!e->types || !e->kinds)
        return kvant_fail(diag, KVANT_ENOMEM, "engine: out of memory");
    KVANT_TRY(engine_types(e->m, &e->p, e->types, diag));
    engine_kv_config(e->m, &e->p, e->types, e->kinds, &cfg);
    if (wants_projection(e))
        KVANT_TRY(create_projections(e, diag));
    for (int i = 0; i < e->split.n; i++)
        e->kv_places[i] = (kv_place){ e->place[i].dev, e->place[i].projections, e->place[i].n_projections };
    cfg.places = e->kv_places;
    cfg.n_places = e->split.n;
    cfg.place_of = e->split.of;
    if (e->split.tensors)
        KVANT_TRY(share_heads(e, &cfg, diag));
    KVANT_TRY(kv_create(&cfg, &e->kv, diag));
    e->kv.fold = fold;
    e->kv.fold_ctx = e;
    return KVANT_OK;
}
