/* tensor.c: memory of a tensor split: lists of ops, shadows, which memory of the first place is which of the others',
 * and the rows of matrices that a place has. */
#include "engine/tensor/tensor.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"

/* ---- weights ---- */

/* Rows [row0, row0 + n) of a spec, all its matrices counted on, in file layout. */
static uint8_t *copy_rows(const kvant_model *m, const weight_spec *s, int64_t row0, int64_t n, uint8_t *to)
{
    const weight_seg whole = { s->tensor, 0, s->n_out * s->n_expert }, *seg = s->segs ? s->segs : &whole;
    const size_t row = (size_t)(s->n_in / s->type->block) * (size_t)s->type->bytes;

    for (int i = 0; n > 0; row0 -= seg[i++].rows) {
        const int64_t left = seg[i].rows - row0, take = n < left ? n : left;
        if (take <= 0)
            continue;
        const uint8_t *from = gguf_tensor_at(m->file, seg[i].tensor)->data;
        memcpy(to, from + (size_t)(seg[i].row0 + row0) * row, (size_t)take * row);
        to += (size_t)take * row;
        row0 += take;
        n -= take;
    }
    return to;
}

/* The rows of one stretch of one matrix, in the file; NULL: they must be put together. */
static const void *rows_in_file(const kvant_model *m, const weight_spec *s, const tensor_shape *t, int64_t from)
{
    const size_t row = (size_t)(s->n_in / s->type->block) * (size_t)s->type->bytes;

    if (s->segs || s->n_expert > 1 || t->n > 1)
        return NULL;
    return gguf_tensor_at(m->file, s->tensor)->data + (size_t)from * row;
}

int tensor_rows_of(const kvant_engine *e, int place, int id, void **joined, kvant_diag *diag)
{
    const weight_spec *s = &e->m->specs[id];
    const tensor_shape *t = &e->way.tensor->shape[id];
    kvant_weight *w = &e->way.tensor->place[place].part[id];
    const size_t bytes = weight_bytes(s) / (size_t)s->n_out * (size_t)w->n_out;

    *joined = NULL;
    w->data = rows_in_file(e->m, s, t, tensor_from(&e->split, t, 0, place));
    if (w->data)
        return KVANT_OK;
    uint8_t *to = kvant_alloc(bytes);
    w->data = *joined = to;
    if (!to)
        return kvant_fail(diag, KVANT_ENOMEM, "%s: out of memory for %zu bytes", s->name, bytes);
    for (int x = 0; x < s->n_expert; x++)
        for (int k = 0; k < t->n; k++)
            to = copy_rows(e->m, s, x * s->n_out + tensor_col(t, k) + tensor_from(&e->split, t, k, place),
                           tensor_part(&e->split, t, k, place), to);
    return KVANT_OK;
}

/* ---- memory ---- */

static int create_place(kvant_engine *e, int i, kvant_diag *diag)
{
    engine_tensor *t = e->way.tensor;
    tensor_place *p = &t->place[i];
    const size_t n = (size_t)e->m->n_specs;
    void *mem;

    KVANT_TRY(e->place[i].dev->vt->alloc(e->place[i].dev, t->scratch_bytes, &mem, diag));
    p->shadow = mem;
    p->ops = kvant_calloc((size_t)t->cap, sizeof *p->ops);
    p->part = kvant_calloc(n, sizeof *p->part);
    p->host = kvant_calloc(n, sizeof *p->host);
    p->meet = kvant_calloc(t->meets ? (size_t)t->cap_exchange : 1, sizeof *p->meet);
    p->piece = kvant_calloc(t->meets ? (size_t)t->cap_exchange + 1 : 1, sizeof *p->piece);
    if (!p->ops || !p->part || !p->host || !p->meet || !p->piece)
        return kvant_fail(diag, KVANT_ENOMEM, "tensor split: out of memory");
    for (size_t k = 0; k < n; k++) {
        p->part[k] = e->place[i].weights.w[k];
        p->part[k].n_out = tensor_width(&e->split, &t->shape[k], i);
    }
    return KVANT_OK;
}

static int create_lists(kvant_engine *e, kvant_diag *diag)
{
    engine_tensor *t = e->way.tensor;
    const size_t ranges = 4 + (size_t)e->place[0].n_projections + 7 * (size_t)e->kv.cfg.n_layer;

    t->cap = 2 * build_max_ops(e->m);
    t->shape = kvant_calloc((size_t)e->m->n_specs, sizeof *t->shape);
    t->cap_exchange = 24 * (e->m->hp.n_layer + 2);
    t->exchange = kvant_calloc((size_t)t->cap_exchange, sizeof *t->exchange);
    t->range = kvant_calloc(ranges, sizeof *t->range);
    if (!t->shape || !t->exchange || !t->range)
        return kvant_fail(diag, KVANT_ENOMEM, "tensor split: out of memory");
    tensor_shapes(e->m, &e->split, t->shape);
    return arena_init(&t->args, (size_t)(t->n + 1) * build_args_bytes(e->m), diag);
}

/* Bytes of the rows of a pass that a matrix makes, or reads: of experts several for each token, of the head those with
 * logits.  A table of embeddings makes rows as long as its own. */
static size_t rows_bytes(const kvant_engine *e, int id)
{
    const weight_spec *s = &e->m->specs[id];
    const int table = (id == e->m->token_embd || id == e->m->layer_embd) && id != e->m->output;
    const int rows = id == e->m->output ? e->pass_rows : e->p.n_ubatch;
    const int64_t wide = table || s->n_in > s->n_out ? s->n_in : s->n_out;

    if (s->is_vector || s->lora)
        return 0;
    return (size_t)rows * (size_t)(s->n_expert > 1 ? e->m->hp.moe.n_used : 1) * (size_t)wide * sizeof(float);
}

/* Rows that are exchanged are what a matrix makes or the next one reads; all of them are in scratch. */
static size_t largest_exchange(const kvant_engine *e)
{
    size_t most = 0;

    for (int i = 0; i < e->m->n_specs; i++) {
        const size_t n = rows_bytes(e, i);
        most = n > most ? n : most;
    }
    return most < e->way.tensor->scratch_bytes ? most : e->way.tensor->scratch_bytes;
}

int tensor_host_memory(kvant_engine *e, kvant_diag *diag)
{
    engine_tensor *t = e->way.tensor;

    if (t->direct || t->meets)
        return KVANT_OK;
    t->host_bytes = largest_exchange(e);
    t->in = kvant_alloc(t->host_bytes);
    for (int i = 0; i < t->n; i++)
        t->place[i].out = kvant_alloc(t->host_bytes);
    for (int i = 0; i < t->n; i++)
        if (!t->in || !t->place[i].out)
            return kvant_fail(diag, KVANT_ENOMEM, "tensor split: out of memory for %zu bytes of each device's rows",
                              t->host_bytes);
    return KVANT_OK;
}

/* Devices that can write into each other's memory do; others exchange through this machine's. */
static void open_meetings(kvant_engine *e)
{
    engine_tensor *t = e->way.tensor;
    const kvant_device_vt *vt = e->place[0].dev->vt;
    kvant_device *devs[KV_MOST_PLACES];
    kvant_diag why = { "" };
    int same = vt->meet_open != NULL;

    for (int i = 0; i < t->n; i++) {
        devs[i] = e->place[i].dev;
        same &= devs[i]->vt == vt;
    }
    t->meets = same && vt->meet_open(devs, t->n, &why) == KVANT_OK;
    if (same && !t->meets)
        log_msg(LOG_INFO, "tensor split: through this machine's memory: %s", why.text);
}

int tensor_create(kvant_engine *e, kvant_diag *diag)
{
    engine_tensor *t;
    build_buffers buf;

    if (!e->split.tensors)
        return KVANT_OK;
    t = e->way.tensor = kvant_calloc(1, sizeof *t);
    if (!t)
        return kvant_fail(diag, KVANT_ENOMEM, "tensor split: out of memory");
    t->n = e->split.n;
    t->scratch_bytes = build_layout(e->m, e->p.n_ubatch, e->pass_rows, 0, NULL, &buf);
    t->direct = 1;
    for (int i = 0; i < t->n; i++)
        t->direct &= strcmp(e->place[i].dev->vt->name, "cpu") == 0;
    open_meetings(e);
    KVANT_TRY(create_lists(e, diag));
    for (int i = 0; i < t->n; i++)
        KVANT_TRY(create_place(e, i, diag));
    KVANT_TRY(tensor_host_memory(e, diag));
    tensor_ranges(e);
    return KVANT_OK;
}

static void free_place(kvant_engine *e, int i)
{
    tensor_place *p = &e->way.tensor->place[i];
    kvant_device *dev = e->place[i].dev;

    for (int k = 0; p->part && k < e->m->n_specs; k++)
        if (p->part[k].use)
            dev->vt->weight_free(dev, &p->part[k]);
    for (int k = 0; p->host && k < e->m->n_specs; k++)
        kvant_free(p->host[k]);
    if (p->shadow)
        dev->vt->free(dev, p->shadow);
    kvant_free(p->ops);
    kvant_free(p->part);
    kvant_free(p->host);
    kvant_free(p->out);
    kvant_free(p->meet);
    kvant_free(p->piece);
}

void tensor_free(kvant_engine *e)
{
    engine_tensor *t = e->way.tensor;

    if (!t)
        return;
    for (int i = 0; i < t->n; i++)
        free_place(e, i);
    kvant_free(t->shape);
    kvant_free(t->exchange);
    kvant_free(t->range);
    kvant_free(t->in);
    arena_free(&t->args);
    kvant_free(t);
    e->way.tensor = NULL;
}

/* ---- ranges ---- */

static void put(engine_tensor *t, size_t bytes, void *const *at)
{
    tensor_range *r = &t->range[t->n_range];

    if (!at[0])
        return;
    t->n_range++;
    r->lo = (uintptr_t)at[0];
    r->hi = r->lo + bytes;
    for (int i = 0; i < t->n; i++) {
        r->at[i] = (uintptr_t)at[i];
        r->side[i] = NULL;
    }
}

static int by_address(const void *x, const void *y)
{
    const tensor_range *a = x, *b = y;

    return a->lo < b->lo ? -1 : a->lo > b->lo;
}

/* The last range is pages of layer l. */
static void put_sides(kvant_engine *e, int l, const kvant_kv_side *sides)
{
    engine_tensor *t = e->way.tensor;

    for (int i = 0; i < t->n; i++)
        t->range[t->n_range - 1].side[i] = &sides[kv_at(&e->kv.cfg, i, l)];
}

/* Pages and states are named by where they begin. */
static void put_layer(kvant_engine *e, int l)
{
    const kv_cache *kv = &e->kv;
    void *at[7][KV_MOST_PLACES] = { { NULL } };

    for (int i = 0; i < e->way.tensor->n; i++) {
        const int k = kv_at(&kv->cfg, i, l);
        void *mem[] = { kv->k[k].pages, kv->k[k].tail, kv->v[k].pages, kv->v[k].tail, kv->state[k], kv->conv[k],
                        kv->ring[k] };
        for (int j = 0; j < 7; j++)
            at[j][i] = mem[j];
    }
    for (int j = 0; j < 7; j++) {
        put(e->way.tensor, j < 6 ? 1 : kv_ring_bytes(&kv->cfg), at[j]);
        if (at[j][0] && (j == 0 || j == 2))
            put_sides(e, l, j ? kv->v : kv->k);
    }
}

void tensor_ranges(kvant_engine *e)
{
    engine_tensor *t = e->way.tensor;
    void *at[4][KV_MOST_PLACES] = { { NULL } };
    const engine_place *first = &e->place[0];
    const size_t bytes[] = { t->scratch_bytes, first->in_values * sizeof(int32_t), first->weights.vec_bytes,
                             (size_t)e->p.n_ubatch * sizeof(int32_t) };

    t->n_range = 0;
    for (int i = 0; i < t->n; i++) {
        const engine_place *p = &e->place[i];
        void *mem[] = { p->scratch, p->in_dev, p->weights.vec_mem, p->lora_rows };
        for (int j = 0; j < 4; j++)
            at[j][i] = mem[j];
    }
    for (int j = 0; j < 4; j++)
        put(t, bytes[j], at[j]);
    for (int j = 0; j < first->n_projections; j++) {
        for (int i = 0; i < t->n; i++)
            at[0][i] = e->place[i].projections[j];
        put(t, 1, at[0]);
    }
    for (int l = 0; l < e->kv.cfg.n_layer; l++)
        put_layer(e, l);
    qsort(t->range, (size_t)t->n_range, sizeof *t->range, by_address);
}
