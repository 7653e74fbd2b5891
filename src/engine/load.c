/* load.c: weights from the mapped file to the device: which ones the program reads, matrices put together from rows,
 * vectors as f32. */
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "engine/tensor/tensor.h"
#include "ops/operands.h"

/* Weights that a place's list of ops reads, whole ones (w) or its parts of them. */
static void part_use(const kvant_engine *e, int place, const kvant_weight *w, unsigned char *use)
{
    const tensor_place *p = &e->way.tensor->place[place];

    for (int i = 0; i < p->n; i++) {
        const kvant_weight *read = op_weight_of(p->ops[i].id, p->ops[i].args);
        if (read && read >= w && read < w + e->m->n_specs)
            use[read - w] |= (unsigned char)op_weight_use(p->ops[i].id);
    }
}

/* Spec ids that the sample program reads at a place: use[n_specs] of KVANT_WEIGHT_* bits. */
static void weight_use(const kvant_engine *e, int place, unsigned char *use)
{
    const kvant_weight *w = e->place[place].weights.w;

    if (e->way.tensor) {
        part_use(e, place, w, use);
        return;
    }
    for (int i = 0; i < e->b.n_ops; i++) {
        const kvant_weight *read = op_weight_of(e->ops[i].id, e->ops[i].args);
        if (read && engine_place_of_op(e, i) == place)
            use[read - w] |= (unsigned char)op_weight_use(e->ops[i].id);
    }
}

static void load_scale(const kvant_engine *e, engine_place *to, int id, kvant_weight *w, size_t *used)
{
    const weight_spec *s = &e->m->specs[id];

    if (s->scale_tensor < 0)
        return;
    const gguf_tensor *t = gguf_tensor_at(e->m->file, s->scale_tensor);
    memcpy(to->weights.scales + *used, t->data, (size_t)t->ne[0] * sizeof(float));
    w->scale = to->weights.scales + *used;
    w->n_scale = (int)t->ne[0];
    *used += (size_t)t->ne[0];
}

/* A weight that is loaded: the device's, and where rows stay that it still reads. */
typedef struct load_to {
    engine_place *at;
    kvant_weight *w;
    void **host;
    int part;                      /* 1: a place's part of the matrix */
} load_to;

static size_t bytes_to(const weight_spec *s, const load_to *to)
{
    return to->part ? weight_bytes(s) / (size_t)s->n_out * (size_t)to->w->n_out : weight_bytes(s);
}

/* The device gets rows; they were allocated where `own`, and then stay only if it reads them again. */
static int give(const load_to *to, const void *rows, int own, int compute, kvant_diag *diag)
{
    to->w->data = rows;
    const int code = to->at->dev->vt->weight_load(to->at->dev, to->w, compute, diag);
    void *mine = own ? (void *)(uintptr_t)rows : NULL;
    if (!to->w->data)
        kvant_free(mine);
    *to->host = to->w->data ? mine : NULL;
    return code;
}

/* A matrix of a synthetic model: made on the device where it can, else here.  Parts have numbers of their own. */
static int load_made(const kvant_engine *e, const load_to *to, int id, kvant_diag *diag)
{
    const weight_spec *s = &e->m->specs[id];
    const kvant_device_vt *vt = to->at->dev->vt;
    const uint64_t seed = synthetic_seed(id) + (to->part ? (uint64_t)(to->at - e->place) << 32 : 0);
    const uint8_t *table;
    uint8_t *rows;
    int n;

    KVANT_TRY(synthetic_table(e->m->made, s->type, &table, &n, diag));
    if (vt->weight_make)
        return vt->weight_make(to->at->dev, to->w, e->p.compute, table, n, seed, diag);
    rows = kvant_alloc(bytes_to(s, to));
    if (!rows)
        return kvant_fail(diag, KVANT_ENOMEM, "%s: out of memory for %zu bytes", s->name, bytes_to(s, to));
    synthetic_fill(table, n, (size_t)s->type->bytes, seed, bytes_to(s, to) / (size_t)s->type->bytes, rows);
    return give(to, rows, 1, e->p.compute, diag);
}

/* A matrix of the adapters, which is in no file as it is. */
static int load_lora(const kvant_engine *e, const load_to *to, int id, kvant_diag *diag)
{
    const weight_spec *s = &e->m->specs[id];
    float *rows = kvant_alloc(weight_bytes(s));

    if (!rows)
        return kvant_fail(diag, KVANT_ENOMEM, "%s: out of memory for %zu bytes", s->name, weight_bytes(s));
    lora_fill(e->m, id, rows);
    return give(to, rows, 1, KVANT_COMPUTE_F32, diag);
}

static int load_matrix(const kvant_engine *e, const load_to *to, int id, int use, kvant_diag *diag)
{
    const weight_spec *s = &e->m->specs[id];
    void *joined = NULL;

    to->w->use = use;
    if (s->lora)
        return load_lora(e, to, id, diag);
    if (e->m->made)
        return load_made(e, to, id, diag);
    if (to->part) {
        KVANT_TRY(tensor_rows_of(e, (int)(to->at - e->place), id, &joined, diag));
        return give(to, to->w->data, joined != NULL, e->p.compute, diag);
    }
    if (!s->segs)
        return give(to, gguf_tensor_at(e->m->file, s->tensor)->data, 0, e->p.compute, diag);
    joined = kvant_alloc(weight_bytes(s));
    if (!joined || weight_copy(e->m, s, joined) < 0) {
        kvant_free(joined);
        return kvant_fail(diag, KVANT_ENOMEM, "%s: out of memory for %zu bytes", s->name, weight_bytes(s));
    }
    return give(to, joined, 1, e->p.compute, diag);
}

/* Values that a vector takes in the block: to the next 64 bytes. */
static size_t vector_room(const weight_spec *s)
{
    return s->is_vector ? ((size_t)s->n_in + 15) & ~(size_t)15 : 0;
}

/* Values of the tables behind the vectors, each to the next 64 bytes. */
typedef struct table_sizes { size_t rope, heads, ones, suppress; } table_sizes;

static table_sizes sizes_of_tables(const kvant_model *m)
{
    const int window = rope_window_rot(&m->hp), n_rot = window > m->hp.n_rot ? window : m->hp.n_rot;
    const size_t up = 15;

    return (table_sizes){ ((size_t)n_rot / 2 + up) & ~up, ((size_t)m->hp.n_head + up) & ~up,
                          m->hp.norm.v ? MODEL_MAX_HEAD_DIM : 0, m->suppressed ? (size_t)m->hp.n_vocab : 0 };
}

/* Fills the tables at host, which will lie at dev.  Suppressed tokens get a finite number: their probability is 0. */
static void make_tables(const kvant_engine *e, engine_place *to, const table_sizes *t, float *host, float *dev)
{
    const kvant_model *m = e->m;
    float *heads = host + 2 * t->rope, *ones = heads + t->heads, *suppress = ones + t->ones;

    rope_frequencies(m, e->p.n_ctx, host);
    rope_window_frequencies(m, host, host + t->rope);
    for (int32_t h = 0; h < m->hp.n_head; h++)
        memcpy(heads + h, &h, sizeof h);
    for (size_t i = 0; i < t->ones; i++)
        ones[i] = 1.0f;
    for (int i = 0; i < m->n_suppressed; i++)
        suppress[m->suppressed[i]] = -1e30f;
    to->weights.inv_freq = dev;
    to->weights.inv_freq_window = dev + t->rope;
    to->weights.heads = dev + (heads - host);
    to->weights.ones = dev + (ones - host);
    to->weights.suppress = t->suppress ? dev + (suppress - host) : NULL;
}

static int load_vectors(const kvant_engine *e, engine_place *to, kvant_diag *diag)
{
    const kvant_model *m = e->m;
    const table_sizes t = sizes_of_tables(m);
    size_t total = 2 * t.rope + t.heads + t.ones + t.suppress, used = 0;
    float *host;
    int code;

    for (int i = 0; i < m->n_specs; i++)
        total += vector_room(&m->specs[i]);
    host = kvant_calloc(total, sizeof *host);
    if (!host)
        return kvant_fail(diag, KVANT_ENOMEM, "weights: out of memory for %zu vector values", total);
    code = to->dev->vt->alloc(to->dev, total * sizeof *host, &to->weights.vec_mem, diag);
    to->weights.vec_bytes = total * sizeof *host;
    for (int i = 0; code == KVANT_OK && i < m->n_specs; i++) {
        if (!m->specs[i].is_vector)
            continue;
        weight_copy_f32(m, &m->specs[i], host + used);
        to->weights.vec[i] = (float *)to->weights.vec_mem + used;
        used += vector_room(&m->specs[i]);
    }
    if (code == KVANT_OK) {
        make_tables(e, to, &t, host + used, (float *)to->weights.vec_mem + used);
        code = to->dev->vt->copy_in(to->dev, to->weights.vec_mem, host, total * sizeof *host, diag);
    }
    kvant_free(host);
    return code;
}

static int check_poison(const kvant_engine *e, kvant_diag *diag)
{
    if (!gguf_poisoned(e->m->file))
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EIO,
                      "model file: a mapped page is gone (the file was truncated or its device failed)");
}

/* Every tensor that an adapter changes is one that the program multiplies by. */
static int check_sites(const kvant_model *m, const unsigned char *use, kvant_diag *diag)
{
    const lora_set *set = &m->lora;

    for (int i = 0; i < set->n_sites; i++) {
        int used = 0;
        for (int k = 0; k < set->n_sites; k++)
            used |= set->sites[k].tensor == set->sites[i].tensor && use[set->sites[k].a];
        if (!used)
            return kvant_fail(diag, KVANT_EUNSUPPORTED,
                              "adapter: %s: %s does not multiply by that tensor as it is, wanted "
                              "a matrix of its layers",
                              m->specs[set->sites[i].a].name, m->arch_name);
    }
    return KVANT_OK;
}

/* Tells the caller of create; done == total comes once, at the end. */
static int tell(const kvant_engine *e, int64_t done, int64_t total, kvant_diag *diag)
{
    if (!e->p.progress || e->p.progress(e->p.progress_user, done, total) == 0)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_ECANCELED, "engine: cancelled by the progress callback at %lld of %lld bytes",
                      (long long)done, (long long)total);
}

/* Bytes of all places, and those that are loaded. */
typedef struct load_bytes { int64_t done, total; } load_bytes;

/* A matrix, or a place's part of it, if the program reads it there (use). */
static int load_one(const kvant_engine *e, const load_to *to, int id, int use, size_t *used, load_bytes *bytes,
                    kvant_diag *diag)
{
    if (!use)
        return KVANT_OK;
    load_scale(e, to->at, id, to->w, used);
    KVANT_TRY(load_matrix(e, to, id, use, diag));
    bytes->done += (int64_t)bytes_to(&e->m->specs[id], to);
    return bytes->done < bytes->total ? tell(e, bytes->done, bytes->total, diag) : KVANT_OK;
}

/* Matrices that the program reads at a place, one after the other; part: of which it reads the place's part. */
static int load_matrices(const kvant_engine *e, engine_place *to, const unsigned char *use, const unsigned char *part,
                         load_bytes *bytes, kvant_diag *diag)
{
    tensor_place *parts = e->way.tensor ? &e->way.tensor->place[to - e->place] : NULL;
    size_t used = 0;

    for (int i = 0; i < e->m->n_specs; i++) {
        const load_to whole = { to, &to->weights.w[i], &to->weights.host[i], 0 };
        KVANT_TRY(load_one(e, &whole, i, use[i], &used, bytes, diag));
        if (!parts)
            continue;
        const load_to cut = { to, &parts->part[i], &parts->host[i], 1 };
        KVANT_TRY(load_one(e, &cut, i, part[i], &used, bytes, diag));
    }
    return KVANT_OK;
}

static int load_place(const kvant_engine *e, engine_place *to, const unsigned char *use, const unsigned char *part,
                      load_bytes *bytes, kvant_diag *diag)
{
    const kvant_model *m = e->m;
    size_t scales = 1;

    for (int i = 0; i < m->n_specs; i++)
        scales += m->specs[i].scale_tensor >= 0 ? (size_t)gguf_tensor_at(m->file, m->specs[i].scale_tensor)->ne[0] : 0;
    to->weights.scales = kvant_calloc(2 * scales, sizeof(float)); /* of whole matrices and of parts */
    if (!to->weights.scales)
        return kvant_fail(diag, KVANT_ENOMEM, "weights: out of memory");
    KVANT_TRY(load_matrices(e, to, use, part, bytes, diag));
    return load_vectors(e, to, diag);
}

/* Bytes of a place's weights; what it uses of each is added to any[n_specs]. */
static int64_t place_bytes(const kvant_engine *e, int place, const unsigned char *use, const unsigned char *part,
                           unsigned char *any)
{
    int64_t sum = 0;

    for (int k = 0; k < e->m->n_specs; k++) {
        const weight_spec *s = &e->m->specs[k];
        const load_to cut = { NULL, part[k] ? &e->way.tensor->place[place].part[k] : NULL, NULL, 1 };
        any[k] |= use[k] | part[k];
        sum += (use[k] ? (int64_t)weight_bytes(s) : 0) + (part[k] ? (int64_t)bytes_to(s, &cut) : 0);
    }
    return sum;
}

/* use[2 n_places + 1][n_specs]: whole weights of each place, parts of each place, any of all. */
static int load_places(kvant_engine *e, unsigned char *use, kvant_diag *diag)
{
    const size_t n = (size_t)e->m->n_specs, places = (size_t)e->split.n;
    unsigned char *part = use + places * n, *any = part + places * n;
    load_bytes bytes = { 0 };

    for (int i = 0; i < e->split.n; i++) {
        unsigned char *own = use + (size_t)i * n, *cut = part + (size_t)i * n;
        weight_use(e, i, own);
        if (e->way.tensor)
            part_use(e, i, e->way.tensor->place[i].part, cut);
        bytes.total += place_bytes(e, i, own, cut, any);
    }
    KVANT_TRY(check_sites(e->m, any, diag));
    for (int i = 0; i < e->split.n; i++)
        KVANT_TRY(load_place(e, &e->place[i], use + (size_t)i * n, part + (size_t)i * n, &bytes, diag));
    return tell(e, bytes.total, bytes.total, diag);
}

int engine_load_weights(kvant_engine *e, kvant_diag *diag)
{
    unsigned char *use = kvant_calloc((2 * (size_t)e->split.n + 1) * (size_t)e->m->n_specs, 1);
    const int code = use ? load_places(e, use, diag) : kvant_fail(diag, KVANT_ENOMEM, "weights: out of memory");

    kvant_free(use);
    KVANT_TRY(code);
    return check_poison(e, diag);
}

static void free_place(const kvant_engine *e, engine_place *at)
{
    engine_weights *w = &at->weights;

    for (int i = 0; w->w && i < e->m->n_specs; i++)
        if (w->w[i].use)
            at->dev->vt->weight_free(at->dev, &w->w[i]);
    for (int i = 0; w->host && i < e->m->n_specs; i++)
        kvant_free(w->host[i]);
    if (w->vec_mem)
        at->dev->vt->free(at->dev, w->vec_mem);
    kvant_free(w->w);
    kvant_free(w->vec);
    kvant_free(w->host);
    kvant_free(w->scales);
    memset(w, 0, sizeof *w);
}

void engine_free_weights(kvant_engine *e)
{
    for (int i = 0; i < e->split.n; i++)
        if (e->place[i].dev)
            free_place(e, &e->place[i]);
}
