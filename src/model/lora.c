/* lora.c: see lora.h.  Owns the adapters' files, their checks, and where they change the model. */
#include "model/lora.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/model.h"

enum { NAME = 96, ALIGN = 16 };

/* One tensor pair of a file: NAME.lora_a and NAME.lora_b of the model's tensor NAME. */
typedef struct lora_pair {
    const gguf_tensor *a, *b, *base;
} lora_pair;

static int fail(const lora_file *f, const char *name, const char *found, const char *wanted, kvant_diag *diag)
{
    return kvant_fail(diag, KVANT_EFORMAT, "adapter %.80s: %.80s: %.60s, wanted %.60s", f->path, name, found, wanted);
}

/* ---- one file ---- */

static int check_word(const lora_file *f, const char *key, const char *wanted, kvant_diag *diag)
{
    gguf_str v = { "", 0 };
    char found[64];

    KVANT_TRY(gguf_string(f->file, key, 1, &v, diag));
    if (v.n == strlen(wanted) && memcmp(v.s, wanted, v.n) == 0)
        return KVANT_OK;
    snprintf(found, sizeof found, "\"%.*s\"", (int)(v.n < 40 ? v.n : 40), v.s);
    return fail(f, key, found, wanted, diag);
}

static int check_keys(const kvant_model *m, lora_file *f, kvant_diag *diag)
{
    KVANT_TRY(check_word(f, "general.type", "adapter", diag));
    KVANT_TRY(check_word(f, "adapter.type", "lora", diag));
    KVANT_TRY(check_word(f, "general.architecture", m->arch_name, diag));
    KVANT_TRY(gguf_f32(f->file, "adapter.lora.alpha", 0, &f->alpha, diag));
    if (gguf_find(f->file, "adapter.alora.invocation_tokens"))
        return kvant_fail(diag, KVANT_EUNSUPPORTED,
                          "adapter %.80s: adapter.alora.invocation_tokens: adapters that begin at a token are not "
                          "supported, wanted a plain LoRA",
                          f->path);
    if (gguf_tensor_count(f->file) == 0)
        return fail(f, "tensors", "none", "pairs NAME.lora_a and NAME.lora_b", diag);
    return KVANT_OK;
}

static int ends_with(gguf_str s, const char *end)
{
    const size_t n = strlen(end);
    return s.n > n && memcmp(s.s + s.n - n, end, n) == 0;
}

static const gguf_tensor *find_part(const gguf *g, gguf_str base, const char *end)
{
    char name[NAME];
    snprintf(name, sizeof name, "%.*s%s", (int)base.n, base.s, end);
    return gguf_tensor_find(g, name);
}

static int check_type(const lora_file *f, const char *name, const gguf_tensor *t, kvant_diag *diag)
{
    const kvant_wtype *type = kvant_wtype_by_id(t->type);
    const char *text = "?";
    int block, bytes;

    if (type && (type->block == 1 || strcmp(type->name, "Q8_0") == 0))
        return KVANT_OK;
    kvant_ggml_type_info(t->type, &text, &block, &bytes);
    return fail(f, name, text, "type F32, F16, BF16 or Q8_0", diag);
}

static int check_shape(const lora_file *f, const char *name, const gguf_tensor *t, int64_t n0, int64_t n1,
                       kvant_diag *diag)
{
    char found[100], wanted[60];

    if (t->ne[0] == n0 && t->ne[1] == n1 && t->ne[2] == 1 && t->ne[3] == 1)
        return KVANT_OK;
    snprintf(found, sizeof found, "shape [%lld, %lld, %lld]", (long long)t->ne[0], (long long)t->ne[1],
             (long long)t->ne[2]);
    snprintf(wanted, sizeof wanted, "[%lld, %lld]", (long long)n0, (long long)n1);
    return fail(f, name, found, wanted, diag);
}

static int check_pair(const lora_file *f, gguf_str base, const lora_pair *p, kvant_diag *diag)
{
    char a[NAME], b[NAME];

    snprintf(a, sizeof a, "%.*s.lora_a", (int)base.n, base.s);
    snprintf(b, sizeof b, "%.*s.lora_b", (int)base.n, base.s);
    if (!p->a || !p->b)
        return fail(f, p->a ? b : a, "missing", "both tensors of a pair", diag);
    if (!p->base)
        return fail(f, a, "the model has no such tensor", "an adapter of this model", diag);
    if (p->base->ne[1] < 2 || p->base->ne[2] != 1)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "adapter %.80s: %.80s: %s", f->path, a,
                          p->base->ne[2] != 1 ? "it changes the matrices of experts, which is not supported"
                                              : "the tensor is a vector, wanted a matrix");
    if (base.n == 17 && memcmp(base.s, "token_embd.weight", 17) == 0)
        return kvant_fail(diag, KVANT_EUNSUPPORTED,
                          "adapter %.80s: %.80s: it changes the embedding of tokens, which is "
                          "not supported; wanted matrices of layers, or output.weight",
                          f->path, a);
    KVANT_TRY(check_type(f, a, p->a, diag));
    KVANT_TRY(check_type(f, b, p->b, diag));
    const int64_t r = p->a->ne[1];
    if (r < 1 || r > LORA_MAX_RANK)
        return kvant_fail(diag, KVANT_EFORMAT, "adapter %.80s: %.80s: rank %lld, wanted 1 to %d", f->path, a,
                          (long long)r, LORA_MAX_RANK);
    KVANT_TRY(check_shape(f, a, p->a, p->base->ne[0], r, diag));
    return check_shape(f, b, p->b, r, p->base->ne[1], diag);
}

/* The name of the model's tensor that tensor t of an adapter belongs to. */
static int base_of(const lora_file *f, const gguf_tensor *t, gguf_str *base, kvant_diag *diag)
{
    char name[NAME];

    *base = (gguf_str){ t->name.s, t->name.n - 7 };
    if (t->name.n < NAME - 8 && (ends_with(t->name, ".lora_a") || ends_with(t->name, ".lora_b")))
        return KVANT_OK;
    snprintf(name, sizeof name, "tensor %.*s", (int)(t->name.n < 64 ? t->name.n : 64), t->name.s);
    return fail(f, name, "not part of a LoRA", "NAME.lora_a or NAME.lora_b", diag);
}

static lora_pair pair_at(const kvant_model *m, const lora_file *f, gguf_str base)
{
    return (lora_pair){ find_part(f->file, base, ".lora_a"), find_part(f->file, base, ".lora_b"),
                        find_part(m->file, base, "") };
}

static int open_file(const kvant_model *m, const kvant_lora *given, lora_file *f, kvant_diag *diag)
{
    f->path = kvant_strdup(given->path);
    f->scale = given->scale;
    if (!f->path)
        return kvant_fail(diag, KVANT_ENOMEM, "adapter: out of memory");
    if (!(f->scale >= -KVANT_LORA_MOST && f->scale <= KVANT_LORA_MOST))
        return kvant_fail(diag, KVANT_EINVAL, "adapter %.80s: scale %g, wanted -%g to %g", f->path, (double)f->scale,
                          (double)KVANT_LORA_MOST, (double)KVANT_LORA_MOST);
    KVANT_TRY(gguf_open(f->path, &f->file, diag));
    KVANT_TRY(check_keys(m, f, diag));
    for (int i = 0; i < gguf_tensor_count(f->file); i++) {
        const gguf_tensor *t = gguf_tensor_at(f->file, i);
        gguf_str base;
        KVANT_TRY(base_of(f, t, &base, diag));
        const lora_pair p = pair_at(m, f, base);
        KVANT_TRY(check_pair(f, base, &p, diag));
        f->rank = p.a->ne[1] > f->rank ? (int)p.a->ne[1] : f->rank;
        f->n_params += t->ne[0] * t->ne[1];
    }
    return KVANT_OK;
}

/* ---- where they change the model ---- */

/* Rows of spec s that come from a tensor: [*row0, *row0 + *n); rows of others may lie between. */
static int spec_range(const weight_spec *s, int tensor, int64_t *row0, int64_t *n)
{
    int64_t at = 0, end = -1;

    *row0 = 0;
    *n = s->n_out;
    if (!s->segs)
        return s->tensor == tensor;
    for (int i = 0; i < s->n_segs; at += s->segs[i++].rows)
        if (s->segs[i].tensor == tensor) {
            *row0 = end < 0 ? at : *row0;
            end = at + s->segs[i].rows;
        }
    *n = end - *row0;
    return end >= 0;
}

static int is_changed(const kvant_model *m, int tensor)
{
    for (int i = 0; i < m->lora.n; i++)
        if (find_part(m->lora.files[i].file, gguf_tensor_at(m->file, tensor)->name, ".lora_a"))
            return 1;
    return 0;
}

static int add_site(kvant_model *m, int spec, int tensor, kvant_diag *diag)
{
    lora_set *set = &m->lora;
    lora_site *o = &set->sites[set->n_sites];
    int64_t row0, n;
    char name[NAME];
    const weight_spec *s = &m->specs[spec];

    if (!spec_range(s, tensor, &row0, &n))
        return KVANT_OK;
    const gguf_str base = gguf_tensor_at(m->file, tensor)->name;
    *o = (lora_site){ .spec = spec, .tensor = tensor, .row0 = (int)row0, .n_in = (int)s->n_in, .n_out = (int)n };
    if (spec == m->output)
        set->widest_output = o->n_out;
    else
        set->widest = o->n_out > set->widest ? o->n_out : set->widest;
    snprintf(name, sizeof name, "%.*s.lora_a", (int)(base.n < 60 ? base.n : 60), base.s);
    KVANT_TRY(weight_made(m, name, o->n_in, set->rank, &o->a, diag));
    name[strlen(name) - 1] = 'b';
    KVANT_TRY(weight_made(m, name, set->rank, o->n_out, &o->b, diag));
    m->specs[o->a].lora = m->specs[o->b].lora = set->n_sites + 1;
    m->specs[spec].lora_first = set->n_sites - m->specs[spec].lora_n++;
    set->n_sites++;
    return KVANT_OK;
}

static int find_sites(kvant_model *m, kvant_diag *diag)
{
    lora_set *set = &m->lora;
    const int n_specs = m->n_specs, n_tensors = gguf_tensor_count(m->file);
    size_t most = 0;

    for (int i = 0; i < n_specs; i++)
        most += m->specs[i].segs ? (size_t)m->specs[i].n_segs : 1;
    set->sites = kvant_calloc(most, sizeof *set->sites);
    unsigned char *changed = kvant_calloc((size_t)n_tensors, 1);
    int code = set->sites && changed ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "adapters: out of memory");
    for (int t = 0; code == KVANT_OK && t < n_tensors; t++) {
        const gguf_tensor *g = gguf_tensor_at(m->file, t);
        changed[t] = (unsigned char)is_changed(m, t);
        set->bytes += changed[t] ? (g->ne[0] + g->ne[1]) * set->rank * (int64_t)sizeof(float) : 0;
    }
    for (int i = 0; code == KVANT_OK && i < n_specs; i++)
        for (int t = 0; code == KVANT_OK && !m->specs[i].is_vector && t < n_tensors; t++)
            if (changed[t])
                code = add_site(m, i, t, diag);
    kvant_free(changed);
    return code;
}

int lora_open(kvant_model *m, const kvant_lora *list, int n, kvant_diag *diag)
{
    lora_set *set = &m->lora;

    if (n == 0)
        return KVANT_OK;
    if (n < 0 || n > KVANT_LORA_FILES)
        return kvant_fail(diag, KVANT_EINVAL, "adapters: %d files, wanted at most %d", n, KVANT_LORA_FILES);
    set->files = kvant_calloc((size_t)n, sizeof *set->files);
    if (!set->files)
        return kvant_fail(diag, KVANT_ENOMEM, "adapters: out of memory");
    for (int i = 0; i < n; i++) {
        lora_file *f = &set->files[set->n++];
        KVANT_TRY(open_file(m, &list[i], f, diag));
        f->first = set->rank;
        set->rank += f->rank;
    }
    set->rank = (set->rank + ALIGN - 1) / ALIGN * ALIGN;
    if (set->rank > LORA_MAX_RANK)
        return kvant_fail(diag, KVANT_EINVAL, "adapters: ranks of %d in all, wanted at most %d", set->rank,
                          LORA_MAX_RANK);
    return find_sites(m, diag);
}

void lora_close(lora_set *set)
{
    for (int i = 0; i < set->n; i++) {
        gguf_close(set->files[i].file);
        kvant_free(set->files[i].path);
    }
    kvant_free(set->files);
    kvant_free(set->sites);
    memset(set, 0, sizeof *set);
}

/* ---- their matrices ---- */

const lora_site *lora_site_of(const kvant_model *m, int spec)
{
    const int i = m->specs[spec].lora;
    return i > 0 ? &m->lora.sites[i - 1] : NULL;
}

static void read_row(const gguf_tensor *t, int64_t row, float *dst)
{
    const kvant_wtype *type = kvant_wtype_by_id(t->type);
    const size_t bytes = (size_t)(t->ne[0] / type->block) * (size_t)type->bytes;

    type->dequant(t->data + (size_t)row * bytes, dst, t->ne[0]);
}

/* Row `row` of the model's tensor: its part of B, times alpha / r. */
static void read_b(const lora_file *f, const gguf_tensor *b, int64_t row, float *dst)
{
    const float factor = f->alpha != 0.0f ? f->alpha / (float)b->ne[0] : 1.0f;

    read_row(b, row, dst + f->first);
    for (int64_t j = 0; j < b->ne[0]; j++)
        dst[f->first + j] *= factor;
}

static void fill_b(const kvant_model *m, const lora_site *o, const lora_file *f, const gguf_tensor *b, float *dst)
{
    const weight_spec *s = &m->specs[o->spec];
    const weight_seg whole = { o->tensor, 0, s->n_out }, *segs = s->segs ? s->segs : &whole;
    int64_t at = -o->row0;

    for (int i = 0; i < (s->segs ? s->n_segs : 1); at += segs[i++].rows)
        for (int64_t k = 0; segs[i].tensor == o->tensor && k < segs[i].rows; k++)
            read_b(f, b, segs[i].row0 + k, dst + (at + k) * m->lora.rank);
}

void lora_fill(const kvant_model *m, int spec, float *dst)
{
    const lora_site *o = lora_site_of(m, spec);
    const gguf_str base = gguf_tensor_at(m->file, o->tensor)->name;

    memset(dst, 0, weight_bytes(&m->specs[spec]));
    for (int i = 0; i < m->lora.n; i++) {
        const lora_file *f = &m->lora.files[i];
        const lora_pair p = pair_at(m, f, base);
        if (p.a && spec == o->b)
            fill_b(m, o, f, p.b, dst);
        for (int64_t r = 0; p.a && spec == o->a && r < p.a->ne[1]; r++)
            read_row(p.a, r, dst + (f->first + r) * o->n_in);
    }
}

void lora_row(const lora_set *set, const float *scales, float *row)
{
    memset(row, 0, (size_t)set->rank * sizeof *row);
    for (int i = 0; i < set->n; i++)
        for (int j = 0; j < set->files[i].rank; j++)
            row[set->files[i].first + j] = scales[i];
}
