/* quantize.c: see quantize.h.  First a plan (every output tensor with its type, size and place), then one pass that
 * writes it.  Owns the choice of types; the arithmetic is in formats/weights, the file in gguf_write.c. */
#include "make/quantize.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "make/gguf/gguf_write.h"
#include "make/imatrix.h"
#include "model/gguf/gguf.h"

enum { MAX_EXPERTS = 1 << 20 };    /* matrices in one tensor; arbitrary, far above any model */
enum { QUANTIZATION_VERSION = 2 }; /* general.quantization_version of the block layouts in docs/formats/weights.md */

/* One output tensor.  A scale item carries the second-level scales of the item before it. */
typedef struct item {
    const gguf_tensor *src;
    const kvant_wtype *from, *to; /* NULL: bytes are copied */
    const char *note;
    int action, is_scale;
    int n_scale; /* of a weight: second-level scales that follow it */
    char name[72];
    uint64_t offset;
    size_t bytes;
} item;

typedef struct quantize_job {
    const quantize_params *p;
    gguf *g;
    item *items;
    int n_items, n_layer, has_output;
    uint64_t alignment;
    gguf_out out;
    imatrix *im; /* NULL: none */
    float *row;  /* one row in f32 */
    float *mean; /* importance of its columns */
    int n_weighted;
    uint8_t *packed; /* one row in the new type */
    float *scales;   /* of the last NVFP4 weight, [n_scale] */
    kvant_diag *diag;
} quantize_job;

static int ends_with(const char *s, const char *tail)
{
    const size_t n = strlen(s), m = strlen(tail);
    return n >= m && strcmp(s + n - m, tail) == 0;
}

/* Why a tensor stays as it is, or NULL. */
static const char *kept_because(const quantize_job *j, const gguf_tensor *t, const char *name)
{
    static const char *const steering[] = { "ffn_gate_inp", "ssm_conv1d", "ssm_alpha", "ssm_beta", "ssm_ba", "_norm" };

    if (t->n_dims < 2)
        return "vector";
    if (!ends_with(name, ".weight"))
        return "not a weight matrix";
    for (size_t i = 0; i < sizeof steering / sizeof steering[0]; i++)
        if (strstr(name, steering[i]))
            return "small and sensitive";
    if (j->p->keep_embd && strcmp(name, "token_embd.weight") == 0)
        return "kept on request";
    return j->p->keep_output && strcmp(name, "output.weight") == 0 ? "kept on request" : NULL;
}

static int has_scale(const quantize_job *j, const char *name)
{
    char scale[80];

    snprintf(scale, sizeof scale, "%.*s.scale", (int)(strlen(name) - strlen(".weight")), name);
    return gguf_tensor_find(j->g, scale) != NULL;
}

/* The type for rows that blocks of 256 do not divide: the field's. */
static const kvant_wtype *narrow_type(const kvant_wtype *to, int64_t row)
{
    static const struct {
        const char *wide, *narrow;
    } pairs[] = {
        { "Q2_K", "IQ4_NL" }, { "Q3_K", "IQ4_NL" }, { "Q4_K", "Q5_0" },  { "Q5_K", "Q5_1" },
        { "Q6_K", "Q8_0" },   { "TQ1_0", "Q4_0" },  { "TQ2_0", "Q4_0" },
    };
    const char *name = strncmp(to->name, "IQ", 2) == 0 ? "IQ4_NL" : "Q8_0";

    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (strcmp(to->name, pairs[i].wide) == 0)
            name = pairs[i].narrow;
    const kvant_wtype *narrow = kvant_wtype_find(name);
    if (!narrow || !narrow->quant)
        narrow = kvant_wtype_find("Q8_0");
    return row % narrow->block == 0 ? narrow : kvant_wtype_find("F16");
}

/* The type that tensor t gets, and the reason when it is not the wanted one.  Tied embeddings are the output's matrix
 * too, and get its type. */
static const kvant_wtype *choose_type(const quantize_job *j, const gguf_tensor *t, const char *name, const char **note)
{
    const int embd = strcmp(name, "token_embd.weight") == 0;
    const int output = strcmp(name, embd && !j->has_output ? name : "output.weight") == 0;
    const kvant_wtype *to = j->p->type;

    if (j->p->mix)
        to = quantize_mix_type(j->p->mix, output ? "output.weight" : name, j->n_layer);
    if (output && j->p->output_type)
        to = j->p->output_type;
    if (embd && j->p->embd_type)
        to = j->p->embd_type;
    *note = "";
    if (to == kvant_wtype_find("NVFP4") && t->type != to->ggml_id && (embd || has_scale(j, name))) {
        *note = embd ? "NVFP4 needs a second-level scale, which an embedding table cannot have"
                     : "the tensor has a second-level scale already";
        to = kvant_wtype_find("Q8_0");
    }
    if (t->ne[0] % to->block != 0) {
        *note = "its row is no multiple of the block";
        to = narrow_type(to, t->ne[0]);
    }
    return to;
}

static int plan_tensor(quantize_job *j, const gguf_tensor *t, item *it)
{
    memset(it, 0, sizeof *it);
    it->src = t;
    it->bytes = t->bytes;
    it->action = QUANTIZE_KEPT;
    snprintf(it->name, sizeof it->name, "%.*s", (int)t->name.n, t->name.s);
    it->note = kept_because(j, t, it->name);
    if (it->note)
        return KVANT_OK;
    const char *type_name = "?";
    const kvant_wtype *from = kvant_wtype_by_id(t->type), *to = choose_type(j, t, it->name, &it->note);
    kvant_ggml_type_info(t->type, &type_name, NULL, NULL);
    if (from == to) {
        it->note = "is of that type already";
        return KVANT_OK;
    }
    if (!from)
        return kvant_fail(j->diag, KVANT_EUNSUPPORTED, "%s: type %s cannot be read, one of %s wanted", it->name,
                          type_name, kvant_wtype_names());
    if (from->block > 1 && !j->p->allow_requantize)
        return kvant_fail(j->diag, KVANT_EUNSUPPORTED,
                          "%s: is %s already, F32, F16 or BF16 wanted (or --allow-requantize)", it->name, type_name);
    it->from = from;
    it->to = to;
    it->action = it->note[0] ? QUANTIZE_FALLBACK : QUANTIZE_CONVERTED;
    if (t->ne[2] * t->ne[3] > MAX_EXPERTS)
        return kvant_fail(j->diag, KVANT_EFORMAT, "%s: %lld matrices found, at most %d wanted", it->name,
                          (long long)(t->ne[2] * t->ne[3]), MAX_EXPERTS);
    it->n_scale = to == kvant_wtype_find("NVFP4") ? (int)(t->n_dims > 2 ? t->ne[2] * t->ne[3] : 1) : 0;
    const size_t row = (size_t)(t->ne[0] / to->block) * (size_t)to->bytes;
    if (!size_mul(row, (size_t)(t->ne[1] * t->ne[2] * t->ne[3]), &it->bytes))
        return kvant_fail(j->diag, KVANT_EFORMAT, "%s: too large for %s", it->name, to->name);
    return KVANT_OK;
}

static void plan_scale(const item *weight, item *it)
{
    memset(it, 0, sizeof *it);
    it->src = weight->src;
    it->is_scale = 1;
    it->n_scale = weight->n_scale;
    it->bytes = (size_t)weight->n_scale * sizeof(float);
    snprintf(it->name, sizeof it->name, "%.*s.scale", (int)(strlen(weight->name) - strlen(".weight")), weight->name);
}

/* Layers that the names of tensors speak of. */
static int layers_of(const gguf *g)
{
    int n = 0;

    for (int i = 0; i < gguf_tensor_count(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        char name[72];
        int l;
        snprintf(name, sizeof name, "%.*s", (int)t->name.n, t->name.s);
        if (sscanf(name, "blk.%d.", &l) == 1 && l >= n && l < INT_MAX)
            n = l + 1;
    }
    return n;
}

/* All output tensors in order, with offsets.  Room for a scale behind every tensor. */
static int plan_all(quantize_job *j)
{
    const int n = gguf_tensor_count(j->g);
    uint32_t alignment = 32;
    uint64_t at = 0;

    j->n_layer = layers_of(j->g);
    j->has_output = gguf_tensor_find(j->g, "output.weight") != NULL;
    KVANT_TRY(gguf_u32(j->g, "general.alignment", 0, &alignment, j->diag));
    j->alignment = alignment;
    j->items = kvant_calloc(2 * (size_t)n + 1, sizeof *j->items);
    if (!j->items)
        return kvant_fail(j->diag, KVANT_ENOMEM, "quantize: no memory for %d tensors", n);
    for (int i = 0; i < n; i++) {
        item *it = &j->items[j->n_items++];
        KVANT_TRY(plan_tensor(j, gguf_tensor_at(j->g, i), it));
        if (it->n_scale > 0)
            plan_scale(it, &j->items[j->n_items++]);
    }
    for (int i = 0; i < j->n_items; i++) {
        j->items[i].offset = at;
        at += (j->items[i].bytes + j->alignment - 1) & ~(j->alignment - 1);
    }
    return KVANT_OK;
}

/* Buffers for the widest row and the most scales. */
static int alloc_rows(quantize_job *j)
{
    size_t row = 0, packed = 0, scales = 0;

    for (int i = 0; i < j->n_items; i++) {
        const item *it = &j->items[i];
        if (!it->to)
            continue;
        const size_t n = (size_t)it->src->ne[0], bytes = n / (size_t)it->to->block * (size_t)it->to->bytes;
        row = n > row ? n : row;
        packed = bytes > packed ? bytes : packed;
        scales = (size_t)it->n_scale > scales ? (size_t)it->n_scale : scales;
    }
    j->row = kvant_calloc(row + 1, sizeof *j->row);
    j->mean = kvant_calloc(row + 1, sizeof *j->mean);
    j->packed = kvant_alloc(packed + 1);
    j->scales = kvant_calloc(scales + 1, sizeof *j->scales);
    return j->row && j->mean && j->packed && j->scales
               ? KVANT_OK
               : kvant_fail(j->diag, KVANT_ENOMEM, "quantize: no memory for a row");
}

static int key_is(const gguf_kv *kv, const char *key)
{
    return kv->key.n == strlen(key) && memcmp(kv->key.s, key, kv->key.n) == 0;
}

/* Copied or not: shards are merged, and two keys are written fresh. */
static int copies_key(const gguf_kv *kv)
{
    return !key_is(kv, "general.file_type") && !key_is(kv, "general.quantization_version") && !key_is(kv, "split.no") &&
           !key_is(kv, "split.count") && !key_is(kv, "split.tensors.count") &&
           !(kv->key.n > 17 && memcmp(kv->key.s, "quantize.imatrix.", 17) == 0);
}

static void put_string(quantize_job *j, const char *key, const char *s)
{
    gguf_out_str(&j->out, (gguf_str){ key, strlen(key) });
    gguf_out_u32(&j->out, GGUF_STRING);
    gguf_out_str(&j->out, (gguf_str){ s, strlen(s) });
}

enum { IMATRIX_KEYS = 4 };

static void put_imatrix_keys(quantize_job *j)
{
    char dataset[260];

    imatrix_dataset(j->im, dataset, sizeof dataset);
    put_string(j, "quantize.imatrix.file", j->p->imatrix);
    put_string(j, "quantize.imatrix.dataset", dataset);
    gguf_out_kv_u32(&j->out, "quantize.imatrix.entries_count", (uint32_t)imatrix_entries(j->im));
    gguf_out_kv_u32(&j->out, "quantize.imatrix.chunks_count", imatrix_chunks(j->im));
}

static void put_keys(quantize_job *j)
{
    for (int i = 0; i < gguf_kv_count(j->g); i++)
        if (copies_key(gguf_kv_at(j->g, i)))
            gguf_out_kv(&j->out, gguf_kv_at(j->g, i));
    const int file_type = j->p->mix ? quantize_mix_file_type(j->p->mix) : j->p->type->file_type;
    gguf_out_kv_u32(&j->out, "general.file_type", (uint32_t)file_type);
    gguf_out_kv_u32(&j->out, "general.quantization_version", QUANTIZATION_VERSION);
    if (j->im)
        put_imatrix_keys(j);
}

static void put_record(quantize_job *j, const item *it)
{
    const gguf_tensor *t = it->src;
    const int dims = it->is_scale ? 1 : t->n_dims;

    gguf_out_str(&j->out, (gguf_str){ it->name, strlen(it->name) });
    gguf_out_u32(&j->out, (uint32_t)dims);
    for (int i = 0; i < dims; i++)
        gguf_out_u64(&j->out, it->is_scale ? (uint64_t)it->n_scale : (uint64_t)t->ne[i]);
    gguf_out_u32(&j->out, it->is_scale ? 0u : (uint32_t)(it->to ? it->to->ggml_id : t->type));
    gguf_out_u64(&j->out, it->offset);
}

static int put_header(quantize_job *j)
{
    uint64_t keys = j->im ? 2 + IMATRIX_KEYS : 2;

    for (int i = 0; i < gguf_kv_count(j->g); i++)
        keys += (uint64_t)copies_key(gguf_kv_at(j->g, i));
    gguf_out_put(&j->out, "GGUF", 4);
    gguf_out_u32(&j->out, 3);
    gguf_out_u64(&j->out, (uint64_t)j->n_items);
    gguf_out_u64(&j->out, keys);
    put_keys(j);
    for (int i = 0; i < j->n_items; i++)
        put_record(j, &j->items[i]);
    gguf_out_pad(&j->out, j->alignment);
    return gguf_out_check(&j->out, j->diag);
}

static void load_row(quantize_job *j, const item *it, int64_t r)
{
    const int64_t n = it->src->ne[0];
    const size_t bytes = (size_t)(n / it->from->block) * (size_t)it->from->bytes;

    it->from->dequant(it->src->data + (size_t)r * bytes, j->row, n);
}

/* Largest |x| a type can hold: its scale is f16 (or the value itself is); the others have the exponents of f32, and
 * NVFP4's second-level scale is f32. */
static float type_limit(const kvant_wtype *t)
{
    static const char *const wide[] = { "F32", "BF16", "MXFP4", "NVFP4" };

    for (size_t i = 0; i < sizeof wide / sizeof wide[0]; i++)
        if (strcmp(t->name, wide[i]) == 0)
            return 3.0e38f;
    return 65504.0f;
}

static int check_row(const quantize_job *j, const item *it, int64_t r)
{
    const float limit = type_limit(it->to);

    for (int64_t i = 0; i < it->src->ne[0]; i++)
        if (!(fabsf(j->row[i]) <= limit))
            return kvant_fail(j->diag, KVANT_ENUMERIC, "%s: value %lld of row %lld is %g, at most %g wanted for %s",
                              it->name, (long long)i, (long long)r, (double)j->row[i], (double)limit, it->to->name);
    return KVANT_OK;
}

/* Second-level scales: the largest value of a matrix falls on the largest NVFP4 value, 6 * 448. */
static int find_scales(quantize_job *j, const item *it)
{
    const int64_t rows = it->src->ne[1] * it->src->ne[2] * it->src->ne[3], each = rows / it->n_scale;

    for (int s = 0; s < it->n_scale; s++) {
        float amax = 0.0f;
        for (int64_t r = s * each; r < (s + 1) * each; r++) {
            load_row(j, it, r);
            KVANT_TRY(check_row(j, it, r));
            for (int64_t i = 0; i < it->src->ne[0]; i++)
                amax = fabsf(j->row[i]) > amax ? fabsf(j->row[i]) : amax;
        }
        j->scales[s] = amax > 1e-30f ? amax / (6.0f * 448.0f) : 1.0f;
    }
    return KVANT_OK;
}

/* The importance of the columns of row r into j->mean, when a matrix begins; 1: it counts for this row. */
static int find_mean(quantize_job *j, const item *it, int64_t r, int was)
{
    const int64_t per = it->src->ne[1], n = it->src->ne[2] * it->src->ne[3];

    if (!j->im || r % per != 0)
        return was;
    return imatrix_mean(j->im, it->name, it->src->ne[0], n, r / per, j->mean, j->diag);
}

static void pack_row(quantize_job *j, const item *it, int weighted)
{
    if (!weighted || !kvant_wtype_quant_weighted(it->to, j->row, j->mean, j->packed, it->src->ne[0]))
        it->to->quant(j->row, j->packed, it->src->ne[0]);
}

static int put_converted(quantize_job *j, const item *it)
{
    const int64_t n = it->src->ne[0], rows = it->src->ne[1] * it->src->ne[2] * it->src->ne[3];
    const size_t bytes = (size_t)(n / it->to->block) * (size_t)it->to->bytes;

    int weighted = 0, any = 0;

    if (it->n_scale)
        KVANT_TRY(find_scales(j, it));
    for (int64_t r = 0; r < rows; r++) {
        KVANT_TRY(weighted = find_mean(j, it, r, weighted));
        any |= weighted;
        load_row(j, it, r);
        KVANT_TRY(check_row(j, it, r));
        const float inv = it->n_scale ? 1.0f / j->scales[r / (rows / it->n_scale)] : 1.0f;
        for (int64_t i = 0; it->n_scale && i < n; i++)
            j->row[i] *= inv;
        pack_row(j, it, weighted);
        gguf_out_put(&j->out, j->packed, bytes);
        if ((r & 1023) == 0)
            KVANT_TRY(gguf_out_check(&j->out, j->diag));
    }
    j->n_weighted += any && kvant_wtype_quant_weighted(it->to, j->row, NULL, j->packed, 0);
    return KVANT_OK;
}

static int put_item(quantize_job *j, const item *it)
{
    if (it->is_scale)
        gguf_out_put(&j->out, j->scales, it->bytes);
    else if (it->to)
        KVANT_TRY(put_converted(j, it));
    else
        gguf_out_put(&j->out, it->src->data, it->bytes);
    gguf_out_pad(&j->out, j->alignment);
    return gguf_out_check(&j->out, j->diag);
}

static int report(const quantize_job *j, const item *it, int i, quantize_progress progress, void *user)
{
    quantize_event e = {
        i, gguf_tensor_count(j->g), it->name, "?", "?", it->action, it->note, it->src->bytes, it->bytes
    };

    kvant_ggml_type_info(it->src->type, &e.from, NULL, NULL);
    e.to = it->to ? it->to->name : e.from;
    if (progress && progress(user, &e) != 0)
        return kvant_fail(j->diag, KVANT_ECANCELED, "quantize: stopped at %s", it->name);
    return KVANT_OK;
}

static int put_all(quantize_job *j, quantize_progress progress, void *user, quantize_result *sum)
{
    KVANT_TRY(put_header(j));
    for (int i = 0; i < j->n_items; i++) {
        const item *it = &j->items[i];
        if (!it->is_scale) {
            KVANT_TRY(report(j, it, sum->n_tensors++, progress, user));
            sum->n_converted += it->action != QUANTIZE_KEPT;
            sum->n_fallback += it->action == QUANTIZE_FALLBACK;
        }
        KVANT_TRY(put_item(j, it));
    }
    if (gguf_poisoned(j->g))
        return kvant_fail(j->diag, KVANT_EIO, "quantize: the input file shrank while it was read");
    sum->out_bytes = (size_t)j->out.at;
    sum->n_weighted = j->n_weighted;
    return gguf_out_commit(&j->out, j->diag);
}

static int run(quantize_job *j, const char *in, const char *out, quantize_progress progress, void *user,
               quantize_result *sum)
{
    KVANT_TRY(gguf_open(in, &j->g, j->diag));
    sum->in_bytes = (size_t)gguf_file_bytes(j->g);
    if (gguf_is_part(j->g, out))
        return kvant_fail(j->diag, KVANT_EINVAL, "%.160s: is the input, another file wanted", out);
    if (j->p->imatrix)
        KVANT_TRY(imatrix_open(j->p->imatrix, &j->im, j->diag));
    KVANT_TRY(plan_all(j));
    KVANT_TRY(alloc_rows(j));
    KVANT_TRY(gguf_out_open(&j->out, out, j->diag));
    return put_all(j, progress, user, sum);
}

static int check_type(const kvant_wtype *t, kvant_diag *diag)
{
    if (t && !t->quant)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "quantize: %s can be read but not written", t->name);
    return KVANT_OK;
}

int model_quantize(const char *in, const char *out, const quantize_params *params, quantize_progress progress,
                   void *user, quantize_result *result, kvant_diag *diag)
{
    quantize_job j = { .p = params, .diag = diag };
    quantize_result sum = { 0 };

    if (!in || !out || !params || (!params->type && !params->mix))
        return kvant_fail(diag, KVANT_EINVAL, "quantize: an input, an output and a type wanted");
    KVANT_TRY(check_type(params->type, diag));
    KVANT_TRY(check_type(params->embd_type, diag));
    KVANT_TRY(check_type(params->output_type, diag));
    const int rc = run(&j, in, out, progress, user, &sum);
    gguf_out_abort(&j.out);
    kvant_free(j.items);
    kvant_free(j.row);
    kvant_free(j.mean);
    imatrix_close(j.im);
    kvant_free(j.packed);
    kvant_free(j.scales);
    gguf_close(j.g);
    if (rc == KVANT_OK && result)
        *result = sum;
    return rc;
}
