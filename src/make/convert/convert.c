/* convert.c: see convert.h.  Owns the order of the work and the rows; names, keys and tokens are made beside it. */
#include "make/convert/convert.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "kvant/engine.h"
#include "make/convert/convert_fp8.h"
#include "make/convert/convert_plan.h"
#include "make/convert/fields/hf_fields.h"
#include "make/convert/hf_vocab.h"
#include "make/gguf/gguf_write.h"
#include "model/gguf/gguf.h"

enum { ALIGNMENT = 32, QUANTIZATION_VERSION = 2 };

typedef struct convert_job {
    const char *folder;
    const convert_params *p;
    hf_config config;
    st_files *files;
    hf_vocab v;
    gguf_keys keys;
    convert_plan plan;
    gguf_out out;
    float *row, *moved;
    uint8_t *packed;
    convert_progress progress;
    void *user;
    kvant_diag *diag;
} convert_job;

/* ---- general keys ---- */

/* "gemma-3-4b-it" -> "Gemma 3 4b It": words of small letters get a large one. */
static void title(const char *folder, char *out, size_t size)
{
    size_t n = strlen(folder), at = 0;

    while (n > 1 && folder[n - 1] == '/')
        n--;
    while (at < n && memchr(folder + at, '/', n - at))
        at++;
    snprintf(out, size, "%.*s", (int)(n - at), folder + at);
    for (char *c = out; *c; c++) {
        const size_t word = strcspn(c, "-");
        int upper = 0;
        for (size_t i = 0; i < word; i++)
            upper |= isupper((unsigned char)c[i]) != 0;
        if (!upper && !(c[0] == 'v' && isdigit((unsigned char)c[1])))
            *c = (char)(word ? toupper((unsigned char)*c) : *c);
        c += word;
        if (!*c)
            break;
        *c = ' ';
    }
}

/* "55K", "7B", "4x55K", with at least two digits. */
static void size_label(const convert_plan *plan, char *out, size_t size)
{
    double total = 0.0, experts = 0.0, shared = 0.0;
    int n = 0;
    int64_t sum = 0;

    for (int i = 0; i < plan->n; i++) {
        const convert_item *it = &plan->items[i];
        const double values = (double)it->ne[0] * (double)it->ne[1] * (double)it->ne[2] * (double)it->ne[3];
        const int exps = strstr(it->name, "_exps.") && it->n_dims >= 3;
        total += values;
        experts += exps ? values / (double)it->ne[2] : 0.0;
        shared += exps ? 0.0 : values;
        sum += exps ? it->ne[2] : 0;
        n += exps;
    }
    double v = n ? shared + experts : total;
    const char *suffix = v > 1e12 ? "T" : v > 1e9 ? "B" : v > 1e6 ? "M" : "K";
    v *= v > 1e12 ? 1e-12 : v > 1e9 ? 1e-9 : v > 1e6 ? 1e-6 : 1e-3;
    const double whole = nearbyint(v);
    const int digits = whole >= 10.0 ? 0 : whole >= 1.0 ? 1 : 2;
    if (n)
        snprintf(out, size, "%lldx%.*f%s", (long long)(sum / n), digits, v, suffix);
    else
        snprintf(out, size, "%.*f%s", digits, v, suffix);
}

static int put_sampling(convert_job *j, gjson g)
{
    static const struct {
        const char *from, *key;
        int whole;
    } list[] = {
        { "top_k", "general.sampling.top_k", 1 },
        { "top_p", "general.sampling.top_p", 0 },
        { "min_p", "general.sampling.min_p", 0 },
        { "temperature", "general.sampling.temp", 0 },
        { "repetition_penalty", "general.sampling.penalty_repeat", 0 },
    };

    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        const gjson v = gjson_get(g, list[i].from);
        double d = 0.0;
        if (!v.p || *v.p == 'n')
            continue;
        KVANT_TRY(hf_to_number(v, list[i].from, &d, j->diag));
        if (list[i].whole && fabs(d) <= 2147483647.0)
            gguf_keys_i32(&j->keys, list[i].key, (int32_t)d);
        else
            gguf_keys_f32(&j->keys, list[i].key, d);
    }
    return KVANT_OK;
}

static int put_general(convert_job *j)
{
    char name[256], *text = NULL;
    gjson g;

    gguf_keys_str(&j->keys, "general.architecture", j->plan.arch->arch, strlen(j->plan.arch->arch));
    gguf_keys_str(&j->keys, "general.type", "model", 5);
    KVANT_TRY(hf_read(j->folder, "generation_config.json", &text, &g, j->diag));
    int rc = hf_fields_check_object(g, "GenerationConfig", "generation_config.json", j->diag);
    rc = rc == KVANT_OK ? put_sampling(j, g) : rc;
    kvant_free(text);
    KVANT_TRY(rc);
    title(j->folder, name, sizeof name);
    const char *given = j->p->name ? j->p->name : name;
    gguf_keys_str(&j->keys, "general.name", given, strlen(given));
    size_label(&j->plan, name, sizeof name);
    gguf_keys_str(&j->keys, "general.size_label", name, strlen(name));
    return KVANT_OK;
}

/* Tokens that a model is kept from writing, such as those of pictures and sounds. */
static int put_suppressed(convert_job *j)
{
    char *text = NULL;
    gjson g, it = { NULL, 0 };
    uint32_t n = 0, id = 0;

    KVANT_TRY(hf_read(j->folder, "generation_config.json", &text, &g, j->diag));
    const gjson list = gjson_get(g, "suppress_tokens");
    int rc = KVANT_OK;
    while (gjson_next(list, &it))
        n++;
    if (n > 0)
        gguf_keys_array(&j->keys, "tokenizer.ggml.suppress_tokens", GGUF_I32, n);
    for (it = (gjson){ NULL, 0 }; rc == KVANT_OK && gjson_next(list, &it);) {
        rc = hf_to_u32(it, "generation_config.json: an id of \"suppress_tokens\"", &id, j->diag);
        gguf_keys_put(&j->keys, &id, sizeof id);
    }
    kvant_free(text);
    return rc;
}

static int put_prefix(convert_job *j)
{
    const gjson prefix = gjson_get(j->v.config, "add_prefix_space");
    const int said = prefix.p && (*prefix.p == 't' || *prefix.p == 'f');

    if (j->plan.arch->flags & CONVERT_SPACE_PREFIX && !j->v.unigram.on && said && !j->v.rules.by_rank)
        gguf_keys_bool(&j->keys, "tokenizer.ggml.add_space_prefix", *prefix.p == 't');
    return KVANT_OK;
}

/* A file with MXFP4 experts is of that type whatever the rest has. */
static int file_type(const convert_plan *plan)
{
    for (int i = 0; i < plan->n_pieces; i++)
        if (plan->pieces[i].scales)
            return kvant_wtype_find("MXFP4")->file_type;
    return plan->type->file_type;
}

static int put_keys(convert_job *j)
{
    const convert_arch *a = j->plan.arch;

    j->keys.arch = a->arch;
    KVANT_TRY(put_general(j));
    KVANT_TRY(convert_put_keys(a, &j->config, file_type(&j->plan), &j->keys, j->diag));
    KVANT_TRY(put_suppressed(j));
    gguf_keys_u32(&j->keys, "general.quantization_version", QUANTIZATION_VERSION);
    KVANT_TRY(put_prefix(j));
    KVANT_TRY(hf_vocab_put(&j->v, &j->keys));
    KVANT_TRY(hf_vocab_put_special(&j->v, j->config.root, a->special, &j->keys, j->diag));
    if ((a->flags & CONVERT_NO_SPACE_PREFIX && j->v.spm && !j->v.unigram.on) || a->flags & CONVERT_CHARACTERS)
        gguf_keys_bool(&j->keys, "tokenizer.ggml.add_space_prefix", 0);
    return j->keys.bytes.error ? kvant_fail(j->diag, KVANT_ENOMEM, "convert: no memory for the keys") : KVANT_OK;
}

/* ---- the file ---- */

static int put_header(convert_job *j)
{
    gguf_out_put(&j->out, "GGUF", 4);
    gguf_out_u32(&j->out, 3);
    gguf_out_u64(&j->out, (uint64_t)j->plan.n);
    gguf_out_u64(&j->out, j->keys.n);
    gguf_out_put(&j->out, j->keys.bytes.s, j->keys.bytes.n);
    for (int i = 0; i < j->plan.n; i++) {
        const convert_item *it = &j->plan.items[i];
        gguf_out_str(&j->out, (gguf_str){ it->name, strlen(it->name) });
        gguf_out_u32(&j->out, (uint32_t)it->n_dims);
        for (int k = 0; k < it->n_dims; k++)
            gguf_out_u64(&j->out, (uint64_t)it->ne[k]);
        gguf_out_u32(&j->out, (uint32_t)it->type->ggml_id);
        gguf_out_u64(&j->out, it->offset);
    }
    gguf_out_pad(&j->out, ALIGNMENT);
    return gguf_out_check(&j->out, j->diag);
}

/* Place r of a head of `head` rows whose halves are to be pairs. */
static int64_t paired(int64_t r, int64_t head)
{
    const int64_t i = r % head;
    return r - i + (i % 2) * (head / 2) + i / 2;
}

/* Returns the source of value i of a moved row: a rotated head's halves become pairs, groups of heads tiles. */
static int64_t source_of(const convert_item *it, const convert_piece *c, int64_t i)
{
    if (c->head < 0)
        return paired(i, -c->head);
    const int64_t d = it->ne[0] / ((int64_t)it->tile_groups * it->tile_n), head = i / d;
    return (head % it->tile_groups * it->tile_n + head / it->tile_groups) * d + i % d;
}

static void read_row(convert_job *j, const convert_item *it, const convert_piece *c, int64_t r)
{
    const kvant_wtype *type = c->src->type;
    const int64_t n = it->ne[0], from = c->first + (c->head > 0 ? paired(r, c->head) : r);

    if (c->fp8) {
        const int apart = c->value_step != 0;
        const int64_t at = apart ? c->first + r * c->row_step : from * n;
        convert_fp8_read(&j->plan, c, at, apart ? c->value_step : 1, n, j->row);
        return;
    }
    const size_t bytes = (size_t)type->bytes;
    if (c->value_step == 0) {
        type->dequant(c->src->data + (size_t)(from * n) * bytes, j->row, n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        type->dequant(c->src->data + (size_t)(c->first + r * c->row_step + i * c->value_step) * bytes, j->row + i, 1);
}

/* Row r of a piece in f32. */
static void load_row(convert_job *j, const convert_item *it, const convert_piece *c, int64_t r)
{
    const int64_t n = it->ne[0];

    read_row(j, it, c, r);
    if (c->head < 0 || it->tile_n > 1) {
        memcpy(j->moved, j->row, (size_t)n * sizeof *j->row);
        for (int64_t i = 0; i < n; i++)
            j->row[i] = j->moved[source_of(it, c, i)];
    }
    for (int64_t i = 0; it->add != 0.0f && i < n; i++)
        j->row[i] += it->add;
    for (int64_t i = 0; it->minus_exp && i < n; i++)
        j->row[i] = (float)-exp((double)j->row[i]);
}

/* Row r of MXFP4 codes: a checkpoint's byte i has values 2i and 2i + 1, a block's byte values i and i + 16. */
static void put_codes(convert_job *j, const convert_item *it, const convert_piece *c, int64_t r)
{
    const int64_t blocks = it->ne[0] / 32, row = c->first + r * c->row_step;
    const uint8_t *codes = c->src->data + row * blocks * 16, *scales = c->scales->data + row * blocks;

    for (int64_t b = 0; b < blocks; b++, codes += 16) {
        uint8_t *to = j->packed + b * 17;
        to[0] = scales[b];
        for (int i = 0; i < 16; i++) {
            const int shift = i % 2 * 4;
            to[1 + i] = (uint8_t)((codes[i / 2] >> shift & 15) | (codes[8 + i / 2] >> shift & 15) << 4);
        }
    }
    gguf_out_put(&j->out, j->packed, (size_t)blocks * 17);
}

static void put_row(convert_job *j, const convert_item *it, const float *row)
{
    const int64_t n = it->ne[0];

    it->type->quant(row, j->packed, n);
    gguf_out_put(&j->out, j->packed, (size_t)(n / it->type->block) * (size_t)it->type->bytes);
}

static int put_item(convert_job *j, const convert_item *it)
{
    if (it->own)
        put_row(j, it, it->own);
    for (int i = 0; i < it->n_pieces; i++) {
        const convert_piece *c = &j->plan.pieces[it->first_piece + i];
        for (int64_t r = 0; r < c->rows; r++) {
            if (c->scales) {
                put_codes(j, it, c, r);
            } else {
                load_row(j, it, c, r);
                put_row(j, it, j->row);
            }
            if ((r & 1023) == 0)
                KVANT_TRY(gguf_out_check(&j->out, j->diag));
        }
    }
    gguf_out_pad(&j->out, ALIGNMENT);
    return gguf_out_check(&j->out, j->diag);
}

static int alloc_rows(convert_job *j)
{
    size_t n = 1;

    for (int i = 0; i < j->plan.n; i++)
        n = (size_t)j->plan.items[i].ne[0] > n ? (size_t)j->plan.items[i].ne[0] : n;
    j->row = kvant_calloc(n, sizeof *j->row);
    j->moved = kvant_calloc(n, sizeof *j->moved);
    j->packed = kvant_calloc(n, sizeof *j->row); /* F32 is the widest type */
    return j->row && j->moved && j->packed ? KVANT_OK
                                           : kvant_fail(j->diag, KVANT_ENOMEM, "convert: no memory for %zu values", n);
}

/* A configuration need not fit the tensors beside it: what no engine would load is not written. */
static int check_loads(const convert_job *j)
{
    kvant_model_params params = kvant_model_defaults();
    kvant_model *m = NULL;
    kvant_diag why = { "" };

    if (fflush(j->out.file) != 0)
        return KVANT_OK; /* the commit says why */
    params.path = j->out.temp;
    const int code = kvant_model_open(&params, &m, &why);
    kvant_model_close(m);
    return code == KVANT_OK ? KVANT_OK
                            : kvant_fail(j->diag, code, "convert: the model could not be loaded: %.400s", why.text);
}

static int put_all(convert_job *j, const char *out)
{
    KVANT_TRY(alloc_rows(j));
    KVANT_TRY(gguf_out_open(&j->out, out, j->diag));
    KVANT_TRY(put_header(j));
    for (int i = 0; i < j->plan.n; i++) {
        if (j->progress && j->progress(j->user, i, j->plan.n) != 0)
            return kvant_fail(j->diag, KVANT_ECANCELED, "convert: stopped at %s", j->plan.items[i].name);
        KVANT_TRY(put_item(j, &j->plan.items[i]));
    }
    if (st_poisoned(j->files))
        return kvant_fail(j->diag, KVANT_EIO, "convert: a file of the model shrank while it was read");
    KVANT_TRY(check_loads(j));
    return gguf_out_commit(&j->out, j->diag);
}

/* ---- the whole ---- */

/* The 16-bit type of the first matrix that has one. */
static const kvant_wtype *guess_type(const st_files *files)
{
    for (int i = 0; i < st_count(files); i++) {
        const st_tensor *t = st_at(files, i);
        if (t->n_dims >= 2 && t->type && t->type->bytes == 2 && !convert_fp8_is_scale(t->name))
            return t->type;
    }
    return kvant_wtype_find("F16");
}

static int refuse_quantized(const hf_config *c, unsigned flags, kvant_diag *diag)
{
    const gjson q = hf_find(c, "quantization_config"), method = gjson_get(q, "quant_method");
    char name[16] = "";

    gjson_text(method, name, sizeof name);
    const int taken = flags & CONVERT_MXFP4 && strcmp(name, "mxfp4") == 0;
    const int fp8 = strcmp(name, "fp8") == 0;
    return q.p && !taken && !fp8
               ? kvant_fail(diag, KVANT_EUNSUPPORTED,
                            "config.json: the weights are quantized already (quantization_config, quant_method %.*s), "
                            "F32, F16, BF16 or fp8 wanted",
                            hf_shown(method), method.p ? method.p : "none")
               : KVANT_OK;
}

static int run(convert_job *j, const char *out)
{
    convert_plan *plan = &j->plan;
    uint32_t vocab_size = 0;

    KVANT_TRY(hf_config_open(j->folder, &j->config, j->diag));
    KVANT_TRY(convert_arch_find(&j->config, &plan->arch, &plan->name, j->diag));
    KVANT_TRY(hf_config_class(&j->config, plan->name, j->diag));
    KVANT_TRY(refuse_quantized(&j->config, plan->arch->flags, j->diag));
    KVANT_TRY(hf_u32(&j->config, "vocab_size", 1, &vocab_size, j->diag));
    KVANT_TRY(
        hf_vocab_open(j->folder, vocab_size, j->p->pre, (plan->arch->flags & CONVERT_CHARACTERS) != 0, &j->v, j->diag));
    KVANT_TRY(st_open(j->folder, &j->files, j->diag));
    plan->config = &j->config;
    plan->files = j->files;
    plan->type = j->p->type ? j->p->type : guess_type(j->files);
    plan->n_tokens = j->v.n;
    plan->no_further = j->p->no_mtp;
    KVANT_TRY(convert_plan_make(plan, j->diag));
    j->config.further = plan->layers_kept;
    KVANT_TRY(convert_check_tensors(plan, j->diag));
    KVANT_TRY(put_keys(j));
    return put_all(j, out);
}

int model_convert(const char *folder, const char *out, const convert_params *p, convert_progress progress, void *user,
                  convert_result *result, kvant_diag *diag)
{
    convert_job j = { .folder = folder, .p = p, .progress = progress, .user = user, .diag = diag };
    const int rc = run(&j, out);

    if (rc == KVANT_OK && result)
        *result = (convert_result){ j.plan.arch->arch, j.plan.type->name, j.plan.n, j.plan.n_left_out,
                                    (int)j.plan.layers_kept, (size_t)j.out.at };
    gguf_out_abort(&j.out);
    gguf_keys_free(&j.keys);
    convert_plan_free(&j.plan);
    hf_vocab_close(&j.v);
    st_close(j.files);
    hf_config_close(&j.config);
    kvant_free(j.row);
    kvant_free(j.moved);
    kvant_free(j.packed);
    return rc;
}
