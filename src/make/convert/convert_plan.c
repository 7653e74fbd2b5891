/* convert_plan.c: see convert_plan.h.  Owns how tensors are renamed, stacked, split and typed. */
#include "make/convert/convert_plan.h"

#include "make/convert/convert_fp8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/mem.h"

enum { MAX_LAYERS = 4096, MAX_EXPERTS = 4096 }; /* arbitrary, above any model */

static int ends_with(const char *s, const char *tail)
{
    const size_t n = strlen(s), m = strlen(tail);
    return n >= m && strcmp(s + n - m, tail) == 0;
}

/* ---- items and pieces ---- */

static int grow(void **list, int n, int *cap, size_t bytes, kvant_diag *diag)
{
    if (n < *cap)
        return KVANT_OK;
    const int more = *cap ? 2 * *cap : 256;
    void *p = kvant_realloc(*list, (size_t)*cap * bytes, (size_t)more * bytes);
    if (!p)
        return kvant_fail(diag, KVANT_ENOMEM, "convert: no memory for %d tensors", more);
    *list = p;
    *cap = more;
    return KVANT_OK;
}

/* Vectors, norms, routers and what is no weight stay F32, as the field's converter has it. */
static const kvant_wtype *choose_type(const convert_plan *p, const char *name, int n_dims, int64_t row)
{
    const kvant_wtype *f32 = kvant_wtype_find("F32");

    if (n_dims < 2 || ends_with(name, "_norm.weight") || !ends_with(name, ".weight") || strstr(name, "ffn_gate_inp") ||
        strstr(name, ".ssm_conv1d.") || strstr(name, ".shortconv.conv."))
        return f32;
    return row % p->type->block == 0 ? p->type : kvant_wtype_find("F16");
}

int convert_plan_add(convert_plan *p, const char *name, int n_dims, const int64_t *dim, convert_item **out,
                     kvant_diag *diag)
{
    size_t rows = 1;
    convert_item it = { .n_dims = n_dims < 1 ? 1 : n_dims, .first_piece = p->n_pieces };

    if (strlen(name) >= CONVERT_NAME)
        return kvant_fail(diag, KVANT_EFORMAT, "%.100s: a name of %zu bytes, at most %d wanted", name, strlen(name),
                          CONVERT_NAME - 1);
    snprintf(it.name, sizeof it.name, "%s", name);
    for (int i = 0; i < ST_DIMS; i++)
        it.ne[i] = i < it.n_dims ? dim[it.n_dims - 1 - i] : 1;
    it.type = choose_type(p, it.name, it.n_dims, it.ne[0]);
    const size_t row = (size_t)(it.ne[0] / it.type->block) * (size_t)it.type->bytes;
    if (!size_mul((size_t)it.ne[1], (size_t)it.ne[2], &rows) || !size_mul(rows, (size_t)it.ne[3], &rows) ||
        !size_mul(rows, row, &it.bytes))
        return kvant_fail(diag, KVANT_EFORMAT, "%s: too large for %s", it.name, it.type->name);
    KVANT_TRY(grow((void **)&p->items, p->n, &p->cap, sizeof *p->items, diag));
    p->items[p->n] = it;
    *out = &p->items[p->n++];
    return KVANT_OK;
}

int convert_plan_piece(convert_plan *p, convert_item *it, convert_piece piece, kvant_diag *diag)
{
    KVANT_TRY(convert_fp8_piece(p, &piece, diag));
    if (!piece.src->type && !piece.scales && !piece.fp8)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "%s: type %s, one of F32 F16 BF16 wanted", piece.src->name,
                          piece.src->dtype);
    KVANT_TRY(grow((void **)&p->pieces, p->n_pieces, &p->cap_pieces, sizeof *p->pieces, diag));
    p->pieces[p->n_pieces++] = piece;
    it->n_pieces++;
    return KVANT_OK;
}

int convert_plan_named(convert_plan *p, const char *name, int n_dims, const int64_t *dim, convert_item **out,
                       kvant_diag *diag)
{
    char to[CONVERT_NAME * 2];

    KVANT_TRY(convert_tensor_name(p->arch, name, to, sizeof to, diag));
    return convert_plan_add(p, to, n_dims, dim, out, diag);
}

/* ---- one tensor into one ---- */

/* Rows of a head in q_proj and k_proj, weights and biases; 0 for all other tensors. */
static int rotated_head(const convert_plan *p, const st_tensor *t, int64_t *head, kvant_diag *diag)
{
    const int q = strstr(t->name, "self_attn.q_proj.") != NULL, k = strstr(t->name, "self_attn.k_proj.") != NULL;
    const uint32_t n = q ? p->heads : p->heads_kv;

    *head = 0;
    if (!(p->arch->flags & CONVERT_ROPE_PAIRS) || (!q && !k))
        return KVANT_OK;
    if (n == 0 || t->dim[0] % (2 * (int64_t)n) != 0)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %lld rows, a multiple of 2 x %u heads wanted", t->name,
                          (long long)t->dim[0], n);
    *head = t->dim[0] / n;
    return KVANT_OK;
}

static int add_whole(convert_plan *p, const st_tensor *t, const char *name, kvant_diag *diag)
{
    int64_t dim[ST_DIMS], head, rows = 1;
    convert_item *it = NULL;
    const unsigned flags = p->arch->flags;

    memcpy(dim, t->dim, sizeof dim);
    if (strcmp(name, "token_embd.weight") == 0 && dim[0] != p->n_tokens)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %lld rows, vocab_size is %lld", t->name, (long long)dim[0],
                          (long long)p->n_tokens);
    KVANT_TRY(convert_plan_add(p, name, t->n_dims, dim, &it, diag));
    const int plus_1 = ends_with(name, "norm.weight") && !ends_with(t->name, "linear_attn.norm.weight");
    it->add = flags & CONVERT_NORM_PLUS_1 && plus_1 ? 1.0f : 0.0f;
    KVANT_TRY(rotated_head(p, t, &head, diag));
    if (head && t->n_dims == 1) { /* a bias: its values are what rows are elsewhere */
        it->ne[0] = t->dim[0];
        return convert_plan_piece(p, it, (convert_piece){ .src = t, .rows = 1, .head = -head }, diag);
    }
    for (int i = 1; i < ST_DIMS; i++)
        rows *= it->ne[i];
    return convert_plan_piece(p, it, (convert_piece){ .src = t, .rows = rows, .head = head }, diag);
}

/* ---- several into one, one into several ---- */

/* Half of the rows of every matrix of t: the gate (half 0) or what it is multiplied with. */
static int add_half(convert_plan *p, const st_tensor *t, int half, const char *name, kvant_diag *diag)
{
    int64_t dim[ST_DIMS];
    convert_item *it = NULL;
    const int at = t->n_dims - 2;
    const int64_t n = t->n_dims == 3 ? t->dim[0] : 1;

    if (t->n_dims < 2 || t->n_dims > 3 || t->dim[at] % 2 != 0)
        return kvant_fail(diag, KVANT_EFORMAT,
                          "%s: %d dimensions and %lld rows, two or three and an even number wanted", t->name, t->n_dims,
                          (long long)t->dim[at < 0 ? 0 : at]);
    memcpy(dim, t->dim, sizeof dim);
    dim[at] /= 2;
    KVANT_TRY(convert_plan_add(p, name, t->n_dims, dim, &it, diag));
    for (int64_t i = 0; i < n; i++)
        KVANT_TRY(convert_plan_piece(
            p, it, (convert_piece){ .src = t, .first = (2 * i + half) * dim[at], .rows = dim[at] }, diag));
    return KVANT_OK;
}

static int add_halves(convert_plan *p, const st_tensor *t, const char *gate, const char *up, kvant_diag *diag)
{
    char name[CONVERT_NAME * 2];

    KVANT_TRY(convert_tensor_name(p->arch, gate, name, sizeof name, diag));
    KVANT_TRY(add_half(p, t, 0, name, diag));
    KVANT_TRY(convert_tensor_name(p->arch, up, name, sizeof name, diag));
    return add_half(p, t, 1, name, diag);
}

/* PREFIX.experts.0.W.weight, .1., ... of one layer -> one tensor of three dimensions. */
static int stack(convert_plan *p, const st_tensor *like, size_t prefix, int layer, const char *rest, const char *w,
                 kvant_diag *diag)
{
    char source[2 * ST_NAME], name[2 * ST_NAME], to[CONVERT_NAME * 2];
    convert_item *it = NULL;

    snprintf(name, sizeof name, "model.layers.%d.%.*s.experts.%s.weight", layer,
             (int)(strstr(rest, ".experts.") - rest), rest, w);
    KVANT_TRY(convert_tensor_name(p->arch, name, to, sizeof to, diag));
    for (uint32_t e = 0; e < p->experts; e++) {
        snprintf(source, sizeof source, "%.*s%u.%s.weight", (int)prefix, like->name, e, w);
        const st_tensor *t = st_find(p->files, source);
        if (!t || t->n_dims != 2)
            return kvant_fail(diag, KVANT_EFORMAT, "%s: %s", source, t ? "a matrix wanted" : "is not there");
        const int64_t dim[] = { p->experts, t->dim[0], t->dim[1] };
        if (e == 0)
            KVANT_TRY(convert_plan_add(p, to, 3, dim, &it, diag));
        if (t->dim[0] != it->ne[1] || t->dim[1] != it->ne[0])
            return kvant_fail(diag, KVANT_EFORMAT, "%s: %lld x %lld, %lld x %lld wanted as in expert 0", source,
                              (long long)t->dim[0], (long long)t->dim[1], (long long)it->ne[1], (long long)it->ne[0]);
        KVANT_TRY(convert_plan_piece(p, it, (convert_piece){ .src = t, .rows = t->dim[0] }, diag));
    }
    return KVANT_OK;
}

/* A matrix of a single expert: when the last of its layer came, all of them become three tensors.  rest: behind
 * "model.layers.N." in t's name. */
static int add_expert(convert_plan *p, const st_tensor *t, const char *rest, int layer, kvant_diag *diag)
{
    static const char *const names[2][3] = { { "down_proj", "gate_proj", "up_proj" }, { "w1", "w2", "w3" } };
    const char *of = strstr(rest, ".experts.") + strlen(".experts.");
    const int by_number = ends_with(t->name, ".w1.weight") || ends_with(t->name, ".w2.weight") ||
                          ends_with(t->name, ".w3.weight");
    char *end;

    if (strtoul(of, &end, 10) >= p->experts || *end != '.')
        return kvant_fail(diag, KVANT_EFORMAT, "%s: config.json has %u experts", t->name, p->experts);
    if (++p->seen[layer] < 3 * (int)p->experts)
        return KVANT_OK;
    const size_t prefix = (size_t)(strstr(t->name, "experts.") - t->name) + strlen("experts.");
    for (int i = 0; i < 3; i++)
        KVANT_TRY(stack(p, t, prefix, layer, rest, names[by_number][i], diag));
    return KVANT_OK;
}

/* ---- all ---- */

static int add_fused(convert_plan *p, const st_tensor *t, const char *name, const char *tail, kvant_diag *diag)
{
    char gate[2 * ST_NAME], up[2 * ST_NAME];
    const int n = (int)(strlen(name) - strlen(tail)), linear = tail[1] == 'i';

    snprintf(gate, sizeof gate, "%.*s%s.weight", n, name, linear ? ".input_linear.gate" : ".gate_proj");
    snprintf(up, sizeof up, "%.*s%s.weight", n, name, linear ? ".input_linear.up" : ".up_proj");
    return add_halves(p, t, gate, up, diag);
}

/* An output that Transformers ties to the embedding although the file has it: it does so only where both are equal. */
static int is_copy_of_embedding(const convert_plan *p, const st_tensor *t, const char *name)
{
    if (strcmp(name, "lm_head.weight") != 0)
        return 0;
    for (int i = 0; i < st_count(p->files); i++) {
        const st_tensor *e = st_at(p->files, i);
        if (ends_with(e->name, "embed_tokens.weight") && e->bytes == t->bytes && strcmp(e->dtype, t->dtype) == 0 &&
            memcmp(e->data, t->data, t->bytes) == 0)
            return 1;
    }
    if (hf_is_true(p->config, "tie_word_embeddings"))
        log_msg(LOG_WARN, "convert: tie_word_embeddings is true, but lm_head.weight is not the embedding: it is kept");
    return 0;
}

static void leave_out(convert_plan *p, const st_tensor *t, int predicts)
{
    p->n_left_out++;
    if (predicts && p->n_further++ == 0)
        p->further = t->name;
}

static int add_weight(convert_plan *p, const st_tensor *t, kvant_diag *diag)
{
    static const char *const fused[] = { ".experts.gate_up_proj", ".input_linear.weight" };
    char name[2 * ST_NAME], to[CONVERT_NAME * 2];
    const char *rest;
    int layer = -1, done = 0;

    convert_further_name(p, t->name, name, sizeof name - 8);
    const int inside = convert_layer(name, &layer, &rest);
    const uint32_t kept = p->layers + p->layers_kept;
    const int more = inside && (uint32_t)layer >= kept && (uint32_t)layer < p->layers + p->layers_more;
    if (more || (is_copy_of_embedding(p, t, name) && p->arch->flags & CONVERT_NO_OUTPUT)) {
        leave_out(p, t, more);
        return KVANT_OK;
    }
    if (inside && (uint32_t)layer >= kept)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: config.json has %u layers", t->name, p->layers);
    if (p->arch->tensor)
        KVANT_TRY(p->arch->tensor(p, t, name, inside ? rest : "", &done, diag));
    if (done)
        return KVANT_OK;
    for (int i = 0; inside && i < 2; i++)
        if (ends_with(name, fused[i]))
            return add_fused(p, t, name, i == 0 ? ".gate_up_proj" : fused[i], diag);
    const char *expert = inside ? strstr(rest, ".experts.") : NULL;
    if (expert && expert[9] >= '0' && expert[9] <= '9')
        return add_expert(p, t, rest, layer, diag);
    if (inside && ends_with(name, ".experts.down_proj"))
        strcat(name, ".weight");
    KVANT_TRY(convert_tensor_name(p->arch, name, to, sizeof to, diag));
    if (to[0])
        return add_whole(p, t, to, diag);
    leave_out(p, t, strcmp(convert_left_out(name), "predicts further tokens") == 0);
    return KVANT_OK;
}

static int add_tensor(convert_plan *p, const st_tensor *t, kvant_diag *diag)
{
    int skip;

    if (t->n_dims > ST_DIMS) { /* no weight of a language model */
        p->n_left_out++;
        return convert_left_out(t->name) ? KVANT_OK
                                         : kvant_fail(diag, KVANT_EUNSUPPORTED, "%s: %d dimensions, up to %d wanted",
                                                      t->name, t->n_dims, ST_DIMS);
    }
    KVANT_TRY(convert_fp8_skips(p, t, &skip, diag));
    return skip ? KVANT_OK : add_weight(p, t, diag);
}

static int read_sizes(convert_plan *p, kvant_diag *diag)
{
    const hf_config *c = p->config;

    KVANT_TRY(hf_u32(c, "num_hidden_layers n_layers n_layer num_layers", 1, &p->layers, diag));
    KVANT_TRY(hf_u32(c, "num_attention_heads n_head n_heads", 1, &p->heads, diag));
    p->heads_kv = p->heads;
    KVANT_TRY(hf_u32(c, "num_key_value_heads n_kv_heads", 0, &p->heads_kv, diag));
    KVANT_TRY(hf_u32(c, "num_local_experts num_experts n_routed_experts moe_num_experts", 0, &p->experts, diag));
    if (p->layers > MAX_LAYERS || p->experts > MAX_EXPERTS)
        return kvant_fail(diag, KVANT_EFORMAT, "config.json: %u layers and %u experts, at most %d of each wanted",
                          p->layers, p->experts, MAX_LAYERS);
    p->seen = kvant_calloc(p->layers + CONVERT_MOST_FURTHER, sizeof *p->seen);
    return p->seen ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "convert: no memory for %u layers", p->layers);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const convert_item *const *)a)->name, (*(const convert_item *const *)b)->name);
}

static int check_names(const convert_plan *p, kvant_diag *diag)
{
    const convert_item **list = kvant_calloc((size_t)p->n + 1, sizeof *list);
    int rc = list ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "convert: no memory for %d names", p->n);

    for (int i = 0; list && i < p->n; i++)
        list[i] = &p->items[i];
    if (list && p->n)
        qsort(list, (size_t)p->n, sizeof *list, by_name);
    for (int i = 1; rc == KVANT_OK && i < p->n; i++)
        if (strcmp(list[i - 1]->name, list[i]->name) == 0)
            rc = kvant_fail(diag, KVANT_EFORMAT, "%s: two tensors of the files become it", list[i]->name);
    kvant_free(list);
    return rc;
}

int convert_plan_make(convert_plan *p, kvant_diag *diag)
{
    uint64_t at = 0;

    KVANT_TRY(read_sizes(p, diag));
    KVANT_TRY(convert_further_find(p, diag));
    KVANT_TRY(convert_fp8_open(p, diag));
    KVANT_TRY(convert_plan_rope(p, diag));
    for (int i = 0; p->arch->flags & CONVERT_MXFP4 && i < st_count(p->files); i++) /* these first */
        if (ends_with(st_at(p->files, i)->name, "_blocks"))
            KVANT_TRY(add_tensor(p, st_at(p->files, i), diag));
    for (int i = 0; i < st_count(p->files); i++)
        if (!(p->arch->flags & CONVERT_MXFP4) || !ends_with(st_at(p->files, i)->name, "_blocks"))
            KVANT_TRY(add_tensor(p, st_at(p->files, i), diag));
    if (p->n_further && !p->no_further)
        log_msg(LOG_WARN, "convert: %d tensors of blocks that predict further tokens (MTP), the first %s, are left out%s%s: "
                "--spec mtp needs a file that has them", p->n_further, p->further,
                p->further_lacks ? ", since there is no " : "", p->further_lacks ? p->further_lacks : "");
    for (uint32_t l = 0; l < p->layers + p->layers_kept; l++)
        if (p->seen[l] % (p->experts ? 3 * (int)p->experts : 1) != 0)
            return kvant_fail(diag, KVANT_EFORMAT, "layer %u: %d matrices of experts, 3 x %u wanted", l, p->seen[l],
                              p->experts);
    for (int i = 0; i < p->n; i++) {
        p->items[i].offset = at;
        at += (p->items[i].bytes + 31) & ~(uint64_t)31;
    }
    return check_names(p, diag);
}

void convert_plan_free(convert_plan *p)
{
    for (int i = 0; i < p->n; i++)
        kvant_free(p->items[i].own);
    kvant_free(p->items);
    kvant_free(p->pieces);
    kvant_free(p->seen);
}
