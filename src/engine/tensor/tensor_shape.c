/* tensor_shape.c: how matrices, heads and bytes are shared out over the places of a tensor split.  Owns no memory. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/tensor/tensor.h"

/* ---- shares ---- */

int tensor_share(const engine_split *s, int units, int i)
{
    int n;

    if (i <= 0 || i >= s->n)
        return i <= 0 ? 0 : units;
    if (units < s->n)
        return units < i ? units : i;
    n = (int)lround(units * s->end[i - 1]);
    n = n < i ? i : n;             /* nobody is left without one */
    return n > units - (s->n - i) ? units - (s->n - i) : n;
}

static int is_latent(const kvant_model *m)
{
    return m->hp.mla.rank > 0;
}

/* Layers with fewer KV heads than places have a copy of their cache on each. */
static int has_heads(const kvant_model *m, const engine_split *s, int l)
{
    return !is_latent(m) && m->hp.layer[l].h_kv >= s->n;
}

int tensor_heads(const kvant_model *m, const engine_split *s, int place, int l)
{
    const int h = m->hp.layer[l].h_kv;

    return has_heads(m, s, l) ? tensor_share(s, h, place + 1) - tensor_share(s, h, place) : h;
}

/* Shares that somebody gave are whole heads of every layer. */
static int check_heads(const kvant_model *m, const engine_split *s, const char *given, int l, kvant_diag *diag)
{
    const int h = m->hp.layer[l].h_kv;

    for (int i = 0; i < s->n; i++)
        if (fabs(h * s->end[i] - round(h * s->end[i])) > 1e-6)
            return kvant_fail(diag, KVANT_EINVAL, "split \"%.60s\": %d KV heads of layer %d do not divide so; wanted "
                              "whole heads such as \"%d,%d\"", given, h, l, h - h / 2, h / 2);
    return KVANT_OK;
}

int tensor_check_beside(const kvant_model *m, const kvant_engine_params *p, kvant_diag *diag)
{
    if (p->gpu_layers > 0 && p->gpu_layers <= m->hp.n_layer)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "tensor split: %d layers on the devices, wanted all of %d",
                          p->gpu_layers, m->hp.n_layer + 1);
    if (p->cpu_experts > 0 || p->tensors)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "tensor split: experts on another device, wanted them with their "
                          "layers");
    if (p->mtp)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "MTP: a tensor split, wanted one device");
    return KVANT_OK;
}

int tensor_split_make(const kvant_model *m, const kvant_engine_params *p, engine_split *s, kvant_diag *diag)
{
    double share[KV_MOST_PLACES], sum = 0, so_far = 0;

    KVANT_TRY(engine_split_shares(p->split, share, s->n, diag));
    for (int i = 0; i < s->n; i++)
        sum += share[i];
    for (int i = 0; i < s->n; i++)
        s->end[i] = (so_far += share[i]) / sum;
    s->tensors = 1;
    for (int l = 0; l < m->hp.n_layer; l++)
        if (p->split && m->layers[l].is_attn && has_heads(m, s, l))
            KVANT_TRY(check_heads(m, s, p->split, l, diag));
    return KVANT_OK;
}

/* ---- shapes ---- */

/* Units of columns: as large as leaves at least 16, so that shares come close to what was asked for. */
static int unit_of(int cols)
{
    int unit = 128;

    while (unit > 1 && (cols % unit || cols / unit < 16))
        unit /= 2;
    return unit;
}

static void add(tensor_shape *t, int cols, int unit)
{
    t->cols[t->n] = cols;
    t->unit[t->n++] = unit;
}

/* n stretches of `cols` each. */
static void put(tensor_shape *shape, int id, int n, int cols)
{
    if (id < 0)
        return;
    shape[id].n = 0;
    for (int i = 0; i < n; i++)
        add(&shape[id], cols, unit_of(cols));
}

static void put_heads(tensor_shape *shape, int id, int cols, int heads)
{
    if (id < 0)
        return;
    shape[id].n = 0;
    add(&shape[id], cols, cols / heads);
}

/* Queries go with their KV heads where those are shared out. */
static void shape_attention(const kvant_model *m, const engine_split *sp, int l, tensor_shape *shape)
{
    const hparams *hp = &m->hp;
    const layer_weights *w = &m->layers[l];
    const layer_shape *s = &hp->layer[l];
    const int q = hp->n_head * s->d_k * (hp->attn_gate ? 2 : 1), k = s->h_kv * s->d_k, v = s->h_kv * s->d_v;
    const int own = has_heads(m, sp, l), h = own ? s->h_kv : hp->n_head;

    put_heads(shape, w->attn.q, q, h);
    if (own) {
        put_heads(shape, w->attn.k, k, h);
        put_heads(shape, w->attn.v, v, h);
    }
    put_heads(shape, w->attn.qkv, q, h);
    if (w->attn.qkv < 0)
        return;
    add(&shape[w->attn.qkv], k, own ? s->d_k : unit_of(k));
    if (m->specs[w->attn.qkv].n_out > q + k)
        add(&shape[w->attn.qkv], v, own ? s->d_v : unit_of(v));
}

static void shape_experts(const kvant_model *m, int l, tensor_shape *shape)
{
    const layer_weights *w = &m->layers[l];
    const int f = m->hp.moe.n_ff;

    put(shape, w->exps.gate_up, 2, f);
    put(shape, w->exps.gate, 1, f);
    put(shape, w->exps.up, 1, f);
    put(shape, w->exps.shared_gate_up, 2, m->hp.moe.n_ff_shared);
    if (w->exps.down >= 0)
        put(shape, w->exps.down, 1, (int)m->specs[w->exps.down].n_out);
}

/* Matrices with few outputs (routers, gates of heads) are whole everywhere: an exchange costs more than they do. */
static void shape_plain(const kvant_model *m, int id, tensor_shape *shape)
{
    const weight_spec *s = &m->specs[id];

    if (!s->is_vector && !s->lora && s->n_expert == 1 && s->n_out * 2 >= m->hp.n_embd && s->n_out <= 1 << 24)
        put(shape, id, 1, (int)s->n_out);
}

void tensor_shapes(const kvant_model *m, const engine_split *s, tensor_shape *shape)
{
    memset(shape, 0, (size_t)m->n_specs * sizeof *shape);
    for (int i = 0; i < m->n_specs; i++)
        shape_plain(m, i, shape);
    for (int l = 0; l < m->hp.n_layer; l++) {
        const layer_weights *w = &m->layers[l];
        if ((w->attn.q >= 0 || w->attn.qkv >= 0) && !is_latent(m))
            shape_attention(m, s, l, shape);
        put(shape, w->gate_up, 2, m->hp.layer[l].n_ff);
        shape_experts(m, l, shape);
    }
}

/* ---- bytes ---- */

static int is_table(const kvant_model *m, int id)
{
    return id == m->token_embd || id == m->layer_embd;
}

/* The first place has the tables of embeddings. */
static int64_t spec_bytes(const kvant_model *m, const engine_split *s, int place, int id, const tensor_shape *t)
{
    const int64_t bytes = (int64_t)weight_bytes(&m->specs[id]), out = m->specs[id].n_out;
    const int64_t cut = t->n ? bytes / out * tensor_width(s, t, place) : bytes;

    if (!is_table(m, id))
        return cut;
    return (place == 0 ? bytes : 0) + (id == m->output ? cut : 0);
}

/* A spec that is this tensor as it is; -1: none, and then it counts on every place. */
static int spec_of(const kvant_model *m, int tensor)
{
    for (int i = 0; i < m->n_specs; i++)
        if (m->specs[i].tensor == tensor && !m->specs[i].segs && !m->specs[i].lora)
            return i;
    return -1;
}

/* A block that predicts further tokens is behind the layers; a tensor split refuses it, and nobody loads it. */
static int64_t bytes_of(const kvant_model *m, const engine_split *s, int place, int tensor, const tensor_shape *shape)
{
    const int id = spec_of(m, tensor);

    if (engine_tensor_layer(gguf_tensor_at(m->file, tensor)) >= m->hp.n_layer)
        return 0;
    return id < 0 ? (int64_t)gguf_tensor_at(m->file, tensor)->bytes : spec_bytes(m, s, place, id, &shape[id]);
}

/* Sum over tensors [first, end); -1: out of memory. */
static int64_t sum_bytes(const kvant_model *m, const engine_split *s, int place, int first, int end)
{
    tensor_shape *shape = kvant_calloc((size_t)m->n_specs, sizeof *shape);
    int64_t sum = 0;

    if (!shape)
        return -1;
    tensor_shapes(m, s, shape);
    for (int i = first; i < end; i++)
        sum += bytes_of(m, s, place, i, shape);
    kvant_free(shape);
    return sum;
}

int64_t tensor_bytes(const kvant_model *m, const engine_split *s, int place, int tensor)
{
    return sum_bytes(m, s, place, tensor, tensor + 1);
}

int64_t tensor_weights(const kvant_model *m, const engine_split *s, int place)
{
    return sum_bytes(m, s, place, 0, gguf_tensor_count(m->file));
}
