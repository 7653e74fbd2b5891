/* weights.c: the tensor requests of an architecture: lookup, shape checks, and matrices put together from rows of
 * others. Reads no weight data before weight_copy. */
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "base/mem.h"
#include "base/thread/copy.h"
#include "model/model.h"

static int spec_new(kvant_model *m, weight_spec **out, int *id, kvant_diag *diag)
{
    if (m->n_specs == m->cap_specs) {
        int cap = m->cap_specs ? m->cap_specs * 2 : 256;
        weight_spec *p = kvant_realloc(m->specs, (size_t)m->n_specs * sizeof *p, (size_t)cap * sizeof *p);
        if (!p) {
            kvant_fail(diag, KVANT_ENOMEM, "tensor table: %d entries wanted", cap);
            return KVANT_ENOMEM;       /* a constant: the compiler sees that *out is set where this is 0 */
        }
        m->specs = p;
        m->cap_specs = cap;
    }
    *id = m->n_specs++;
    *out = &m->specs[*id];
    memset(*out, 0, sizeof **out);
    (*out)->scale_tensor = -1;
    return KVANT_OK;
}

static int tensor_index(const kvant_model *m, const char *name)
{
    const gguf_tensor *t = gguf_tensor_find(m->file, name);
    if (!t)
        return -1;
    return (int)(t - gguf_tensor_at(m->file, 0));
}

static int check_shape(const gguf_tensor *t, const char *name, int64_t n_in, int64_t n_out, int n_expert,
                       kvant_diag *diag)
{
    if (t->ne[0] == n_in && t->ne[1] == n_out && t->ne[2] == n_expert && t->ne[3] == 1)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EFORMAT, "%s: shape [%lld, %lld, %lld, %lld], wanted [%lld, %lld, %d, 1]", name,
                      (long long)t->ne[0], (long long)t->ne[1], (long long)t->ne[2], (long long)t->ne[3],
                      (long long)n_in, (long long)n_out, n_expert);
}

static int check_type(const gguf_tensor *t, const char *name, const kvant_wtype **type, kvant_diag *diag)
{
    const char *text = "?";
    int block, bytes;
    *type = kvant_wtype_by_id(t->type);
    if (*type)
        return KVANT_OK;
    kvant_ggml_type_info(t->type, &text, &block, &bytes);
    return kvant_fail(diag, KVANT_EUNSUPPORTED,
                      "%s: type %s (number %d) is not supported; wanted one of %s", name, text, t->type,
                      kvant_wtype_names());
}

int weight_bare_matrix(kvant_model *m, const char *name, int64_t n_in, int64_t n_out, int n_expert, int optional,
                       int *id, kvant_diag *diag)
{
    const kvant_wtype *type;
    weight_spec *s;
    int ti = tensor_index(m, name);

    *id = -1;
    if (ti < 0)
        return optional ? KVANT_OK
                        : kvant_fail(diag, KVANT_EFORMAT, "tensor %s: missing, wanted [%lld, %lld, %d]", name,
                                     (long long)n_in, (long long)n_out, n_expert);
    const gguf_tensor *t = gguf_tensor_at(m->file, ti);
    KVANT_TRY(check_shape(t, name, n_in, n_out, n_expert, diag));
    KVANT_TRY(check_type(t, name, &type, diag));
    KVANT_TRY(spec_new(m, &s, id, diag));
    snprintf(s->name, sizeof s->name, "%s", name);
    s->tensor = ti;
    s->type = type;
    s->n_in = n_in;
    s->n_out = n_out;
    s->n_expert = n_expert;
    return KVANT_OK;
}

int weight_matrix(kvant_model *m, const char *name, int64_t n_in, int64_t n_out, int n_expert, int optional, int *id,
                  kvant_diag *diag)
{
    char scale[96];

    KVANT_TRY(weight_bare_matrix(m, name, n_in, n_out, n_expert, optional, id, diag));
    if (*id < 0)
        return KVANT_OK;
    weight_spec *s = &m->specs[*id];
    size_t len = strlen(name);
    int stem = len > 7 && strcmp(name + len - 7, ".weight") == 0 ? (int)len - 7 : (int)len;
    snprintf(scale, sizeof scale, "%.*s.scale", stem, name);
    s->scale_tensor = tensor_index(m, scale);
    if (s->scale_tensor >= 0) {
        const gguf_tensor *st = gguf_tensor_at(m->file, s->scale_tensor);
        if (st->type != 0 || (st->ne[0] != 1 && st->ne[0] != n_expert) || st->ne[1] != 1)
            return kvant_fail(diag, KVANT_EFORMAT, "%s: type %d shape [%lld, %lld], wanted F32 [1] or [%d]", scale,
                              st->type, (long long)st->ne[0], (long long)st->ne[1], n_expert);
    }
    return KVANT_OK;
}

int weight_made(kvant_model *m, const char *name, int64_t n_in, int64_t n_out, int *id, kvant_diag *diag)
{
    weight_spec *s;

    KVANT_TRY(spec_new(m, &s, id, diag));
    snprintf(s->name, sizeof s->name, "%s", name);
    s->tensor = -1;
    s->type = kvant_wtype_find("F32");
    s->n_in = n_in;
    s->n_out = n_out;
    s->n_expert = 1;
    return KVANT_OK;
}

int weight_vector(kvant_model *m, const char *name, int64_t n, int optional, int *id, kvant_diag *diag)
{
    const kvant_wtype *type;
    weight_spec *s;
    int ti = tensor_index(m, name);

    *id = -1;
    if (ti < 0)
        return optional ? KVANT_OK
                        : kvant_fail(diag, KVANT_EFORMAT, "tensor %s: missing, wanted [%lld]", name, (long long)n);
    const gguf_tensor *t = gguf_tensor_at(m->file, ti);
    int64_t total = t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
    if (total != n)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %lld values, wanted %lld", name, (long long)total, (long long)n);
    KVANT_TRY(check_type(t, name, &type, diag));
    if (type->block != 1)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "%s: type %s, wanted F32, F16 or BF16 for a vector", name,
                          type->name);
    KVANT_TRY(spec_new(m, &s, id, diag));
    snprintf(s->name, sizeof s->name, "%s", name);
    s->tensor = ti;
    s->type = type;
    s->n_in = n;
    s->n_out = 1;
    s->n_expert = 1;
    s->is_vector = 1;
    s->bias = -1;
    return KVANT_OK;
}

int weight_layer_matrix(kvant_model *m, int l, const char *part, int64_t n_in, int64_t n_out, int n_expert,
                        int optional, int *id, kvant_diag *diag)
{
    char name[80];
    snprintf(name, sizeof name, "blk.%d.%s", l, part);
    return weight_matrix(m, name, n_in, n_out, n_expert, optional, id, diag);
}

int weight_layer_vector(kvant_model *m, int l, const char *part, int64_t n, int optional, int *id, kvant_diag *diag)
{
    char name[80];
    snprintf(name, sizeof name, "blk.%d.%s", l, part);
    return weight_vector(m, name, n, optional, id, diag);
}

static int seg_spec(kvant_model *m, const char *name, const weight_spec *like, weight_seg *segs, int n_segs,
                    int64_t n_out, int n_expert, int *id, kvant_diag *diag)
{
    weight_spec *s, model = *like;
    int code = spec_new(m, &s, id, diag);
    if (code < 0) {
        kvant_free(segs);
        return code;
    }
    snprintf(s->name, sizeof s->name, "%s", name);
    s->tensor = model.tensor;
    s->type = model.type;
    s->n_in = model.n_in;
    s->n_out = n_out;
    s->n_expert = n_expert;
    s->segs = segs;
    s->n_segs = n_segs;
    return KVANT_OK;
}

int weight_join(kvant_model *m, const char *name, const int *ids, int n, int *id, kvant_diag *diag)
{
    int64_t rows = 0;
    *id = -1;
    for (int i = 0; i < n; i++) {
        const weight_spec *a = &m->specs[ids[0]], *s = &m->specs[ids[i]];
        if (ids[i] < 0 || s->type != a->type || s->n_in != a->n_in || s->n_expert != 1 || s->scale_tensor >= 0 ||
            s->segs)
            return KVANT_OK;
        rows += s->n_out;
    }
    weight_seg *segs = kvant_calloc((size_t)n, sizeof *segs);
    if (!segs)
        return kvant_fail(diag, KVANT_ENOMEM, "%s: out of memory", name);
    for (int i = 0; i < n; i++)
        segs[i] = (weight_seg){ m->specs[ids[i]].tensor, 0, m->specs[ids[i]].n_out };
    return seg_spec(m, name, &m->specs[ids[0]], segs, n, rows, 1, id, diag);
}

int weight_join_vectors(kvant_model *m, const char *name, const int *ids, int n, int *id, kvant_diag *diag)
{
    KVANT_TRY(weight_join(m, name, ids, n, id, diag));
    if (*id < 0)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "%s: %s and others; wanted one type", name,
                          m->specs[ids[0]].type->name);
    weight_spec *s = &m->specs[*id];
    s->is_vector = 1;
    s->bias = -1;
    s->n_in *= s->n_out;
    s->n_out = 1;
    return KVANT_OK;
}

int weight_rows(kvant_model *m, const char *name, int src, const weight_seg *list, int n_segs, int64_t n_out, int *id,
                kvant_diag *diag)
{
    if (m->specs[src].scale_tensor >= 0)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "%s: has a second-level scale, which grouped rows cannot carry",
                          m->specs[src].name);
    weight_seg *segs = kvant_calloc((size_t)n_segs, sizeof *segs);
    if (!segs)
        return kvant_fail(diag, KVANT_ENOMEM, "%s: out of memory", name);
    for (int i = 0; i < n_segs; i++) {
        segs[i] = list[i];
        segs[i].tensor = m->specs[src].tensor;
    }
    return seg_spec(m, name, &m->specs[src], segs, n_segs, n_out, 1, id, diag);
}

int weight_join_experts(kvant_model *m, const char *name, int gate, int up, int *id, kvant_diag *diag)
{
    const weight_spec *g = &m->specs[gate], *u = &m->specs[up];
    int n = g->n_expert;
    *id = -1;
    if (g->type != u->type || g->n_in != u->n_in || g->n_out != u->n_out || g->scale_tensor >= 0 ||
        u->scale_tensor >= 0)
        return KVANT_OK;
    weight_seg *segs = kvant_calloc((size_t)n * 2, sizeof *segs);
    if (!segs)
        return kvant_fail(diag, KVANT_ENOMEM, "%s: out of memory", name);
    for (int e = 0; e < n; e++) {
        segs[2 * e] = (weight_seg){ g->tensor, e * g->n_out, g->n_out };
        segs[2 * e + 1] = (weight_seg){ u->tensor, e * u->n_out, u->n_out };
    }
    return seg_spec(m, name, g, segs, 2 * n, 2 * g->n_out, n, id, diag);
}

const gguf_tensor *weight_tensor(const kvant_model *m, int id)
{
    return gguf_tensor_at(m->file, m->specs[id].tensor);
}

static size_t row_bytes(const weight_spec *s)
{
    return (size_t)(s->n_in / s->type->block) * (size_t)s->type->bytes;
}

size_t weight_bytes(const weight_spec *s)
{
    return row_bytes(s) * (size_t)s->n_out * (size_t)s->n_expert;
}

/* Pieces of a copy of bytes: at most COPY_PIECE each, from list[n] on where list is not NULL.  Returns their end. */
static int cut_copy(copy_piece *list, int n, uintptr_t to, const uint8_t *from, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += COPY_PIECE, n++)
        if (list)
            list[n] = (copy_piece){ (void *)(to + at), from + at, bytes - at < COPY_PIECE ? bytes - at : COPY_PIECE };
    return n;
}

static int cut_weight(const kvant_model *m, const weight_spec *s, uintptr_t dst, copy_piece *list)
{
    const weight_seg whole = { s->tensor, 0, s->n_out * s->n_expert }, *g = s->segs ? s->segs : &whole;
    const size_t rb = row_bytes(s);
    int n = 0;
    for (int i = 0; i < (s->segs ? s->n_segs : 1); dst += (size_t)g[i++].rows * rb)
        n = cut_copy(list, n, dst, gguf_tensor_at(m->file, g[i].tensor)->data + (size_t)g[i].row0 * rb,
                     (size_t)g[i].rows * rb);
    return n;
}

int weight_pieces(const kvant_model *m, const weight_spec *s, const void *rows, copy_piece *list)
{
    return rows ? cut_copy(list, 0, 0, rows, weight_bytes(s)) : cut_weight(m, s, 0, list);
}

int weight_copy(const kvant_model *m, const weight_spec *s, uint8_t *dst)
{
    const int n = cut_weight(m, s, (uintptr_t)dst, NULL);
    copy_piece *list = kvant_calloc((size_t)n, sizeof *list);
    if (!list)
        return KVANT_ENOMEM;
    cut_weight(m, s, (uintptr_t)dst, list);
    copy_pieces(list, n);
    kvant_free(list);
    return KVANT_OK;
}

void weight_copy_f32(const kvant_model *m, const weight_spec *s, float *dst)
{
    const int64_t n = s->n_in * s->n_out * s->n_expert;

    if (m->made)
        synthetic_vector(s->name, dst, n);
    else if (!s->segs)
        s->type->dequant(gguf_tensor_at(m->file, s->tensor)->data, dst, n);
    else /* vectors of one length, one behind the other */
        for (int i = 0; i < s->n_segs; i++)
            s->type->dequant(gguf_tensor_at(m->file, s->segs[i].tensor)->data, dst + i * (n / s->n_segs),
                             n / s->n_segs);
}

void weight_specs_free(kvant_model *m)
{
    for (int i = 0; i < m->n_specs; i++)
        kvant_free(m->specs[i].segs);
    kvant_free(m->specs);
    m->specs = NULL;
    m->n_specs = m->cap_specs = 0;
}
