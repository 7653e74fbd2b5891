/* model.c: opens a model: shapes, tensor table, tokenizer, template family; and the public text functions over them.
 * Reads no weight data. */
#include <stdio.h>
#include <string.h>

#include "base/abi/sized.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/build.h"
#include "model/model.h"
#include "model/unread/unread.h"

#define KVANT_ARCH(symbol) extern const arch_def arch_##symbol;
#include "model/archs.def"
#undef KVANT_ARCH

#define KVANT_ARCH(symbol) &arch_##symbol,
static const arch_def *const arch_list[] = {
#include "model/archs.def"
};
#undef KVANT_ARCH

enum { N_ARCHS = sizeof arch_list / sizeof arch_list[0] };

const arch_def *arch_find(const char *name, size_t n)
{
    for (int i = 0; i < N_ARCHS; i++)
        if (strlen(arch_list[i]->name) == n && memcmp(arch_list[i]->name, name, n) == 0)
            return arch_list[i];
    return NULL;
}

void arch_names(char *buf, size_t cap)
{
    buf[0] = 0;
    for (int i = 0; i < N_ARCHS; i++) {
        strncat(buf, i ? " " : "", cap - strlen(buf) - 1);
        strncat(buf, arch_list[i]->name, cap - strlen(buf) - 1);
    }
}

/* ---- opening ---- */

/* "NAME.weight", and "NAME.bias" where norms are LayerNorms. */
static int request_norm(kvant_model *m, const char *name, int *id, kvant_diag *diag)
{
    char full[96];
    int bias = -1;

    snprintf(full, sizeof full, "%s.bias", name);
    if (m->hp.norm.layer)
        KVANT_TRY(weight_vector(m, full, m->hp.n_embd, WEIGHT_OPTIONAL, &bias, diag));
    snprintf(full, sizeof full, "%s.weight", name);
    KVANT_TRY(weight_vector(m, full, m->hp.n_embd, WEIGHT_REQUIRED, id, diag));
    m->specs[*id].bias = bias;
    return KVANT_OK;
}

static int request_globals(kvant_model *m, kvant_diag *diag)
{
    hparams *hp = &m->hp;
    const gguf_tensor *embd = gguf_tensor_find(m->file, "token_embd.weight");
    if (!embd)
        return kvant_fail(diag, KVANT_EFORMAT, "tensor token_embd.weight: missing");
    if (embd->ne[1] < 1 || embd->ne[1] > 1 << 24)
        return kvant_fail(diag, KVANT_EFORMAT, "token_embd.weight: %lld rows, wanted 1 to %d", (long long)embd->ne[1],
                          1 << 24);
    hp->n_vocab = (int)embd->ne[1];
    KVANT_TRY(weight_matrix(m, "token_embd.weight", hp->n_embd, hp->n_vocab, 1, WEIGHT_REQUIRED, &m->token_embd, diag));
    KVANT_TRY(request_norm(m, hp->norm_names.output, &m->output_norm, diag));
    KVANT_TRY(weight_matrix(m, "output.weight", hp->n_embd, hp->n_vocab, 1, WEIGHT_OPTIONAL, &m->output, diag));
    if (m->output < 0)
        m->output = m->token_embd; /* tied embeddings */
    KVANT_TRY(weight_vector(m, "output.bias", hp->n_vocab, WEIGHT_OPTIONAL, &m->output_bias, diag));
    KVANT_TRY(request_layer_embds(m, diag));
    return request_rope_factors(m, diag);
}

int model_request_layer(kvant_model *m, int l, kvant_diag *diag)
{
    layer_weights *w = &m->layers[l];
    char name[80];

    memset(w, -1, sizeof *w); /* every id -1: absent */
    w->is_attn = w->is_state = 0;
    w->out_scale = 1.0f;
    snprintf(name, sizeof name, "blk.%d.attn_norm", l);
    if (!m->hp.norm.no_pre)
        KVANT_TRY(request_norm(m, name, &w->attn_norm, diag));
    snprintf(name, sizeof name, "blk.%d.%s", l, m->hp.norm_names.ffn);
    if (!m->hp.norm.no_pre && !m->hp.one_block && !m->hp.parallel)
        KVANT_TRY(request_norm(m, name, &w->ffn_norm, diag));
    return m->arch->layer(m, l, diag);
}

static int request_layers(kvant_model *m, kvant_diag *diag)
{
    const int n = m->hp.n_layer;

    m->layers = kvant_calloc((size_t)n + 1, sizeof *m->layers); /* and the block behind them */
    if (!m->layers)
        return kvant_fail(diag, KVANT_ENOMEM, "model: out of memory for %d layers", n);
    for (int l = 0; l < n; l++)
        KVANT_TRY(model_request_layer(m, l, diag));
    return request_mtp(m, diag);
}

/* KV heads of the layers without a window and of those with one. */
static void fill_heads(const hparams *hp, kvant_model_info *o)
{
    const layer_shape *full = NULL, *window = NULL;

    for (int l = 0; l < hp->n_layer; l++) {
        const layer_shape **kind = hp->window > 0 && hp->windowed[l] ? &window : &full;
        *kind = *kind ? *kind : &hp->layer[l];
        o->n_shared_layers += hp->layer[l].kv_from != l;
    }
    full = full ? full : window;
    window = window ? window : full;
    o->n_head_kv = full->h_kv;
    o->d_k = full->d_k;
    o->d_v = full->d_v;
    o->n_head_kv_window = window->h_kv;
    o->d_k_window = window->d_k;
    o->d_v_window = window->d_v;
}

static void fill_info(kvant_model *m)
{
    const hparams *hp = &m->hp;
    kvant_model_info *o = &m->info;
    int64_t params = 0, bytes = 0, best = 0;
    const char *type = "?";
    int block, tb;

    for (int i = 0; i < gguf_tensor_count(m->file); i++) {
        const gguf_tensor *t = gguf_tensor_at(m->file, i);
        params += t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
        bytes += (int64_t)t->bytes;
        if ((int64_t)t->bytes > best && t->n_dims >= 2) {
            best = (int64_t)t->bytes;
            kvant_ggml_type_info(t->type, &type, &block, &tb);
        }
    }
    snprintf(m->desc, sizeof m->desc, "%s %.1f M %s", m->arch_name, (double)params / 1e6, type);
    o->arch = m->arch_name;
    o->name = m->name;
    o->desc = m->desc;
    o->n_layer = hp->n_layer;
    o->n_mtp = m->n_mtp;
    o->n_embd = hp->n_embd;
    o->n_vocab = hp->n_vocab;
    o->n_ctx_train = hp->n_ctx_train;
    o->pooling = hp->pooling;
    o->n_head = hp->n_head;
    fill_heads(hp, o);
    for (int l = 0; l < hp->n_layer; l++)
        o->n_attn_layers += m->layers[l].is_attn;
    for (int l = 0; l < hp->n_layer; l++)
        o->n_gdn_layers += m->layers[l].is_state;
    for (int l = 0; l < hp->n_layer; l++)
        o->n_window_layers += hp->window > 0 && hp->windowed[l];
    o->window = o->n_window_layers > 0 ? hp->window : 0;
    o->gdn_hk = hp->gdn.hk;
    o->gdn_hv = hp->gdn.hv;
    o->gdn_dk = hp->gdn.dk;
    o->gdn_dv = hp->gdn.dv;
    o->conv_k = hp->rec.conv_k;
    o->n_expert = hp->moe.n;
    o->n_expert_used = hp->moe.n_used;
    o->n_params = params;
    o->weight_bytes = bytes;
    o->file_bytes = gguf_file_bytes(m->file);
    if (o->n_gdn_layers > 0)
        o->state_bytes = 4 * o->n_gdn_layers *
                         (hp->rec.state_values + (int64_t)hp->rec.conv_channels * (hp->rec.conv_k - 1));
}

static int open_shapes(kvant_model *m, kvant_diag *diag)
{
    gguf_str arch_name, name = { "", 0 };
    char known[1000];

    KVANT_TRY(gguf_string(m->file, "general.architecture", 1, &arch_name, diag));
    m->arch = arch_find(arch_name.s, arch_name.n);
    if (!m->arch) {
        arch_names(known, sizeof known);
        return kvant_fail(diag, KVANT_EUNSUPPORTED,
                          "general.architecture: \"%.*s\" is not supported; wanted one of: %s",
                          (int)(arch_name.n < 40 ? arch_name.n : 40), arch_name.s, known);
    }
    snprintf(m->arch_name, sizeof m->arch_name, "%s", m->arch->name);
    (void)gguf_string(m->file, "general.name", 0, &name, NULL); /* it describes the file: a list, or nothing, will do */
    snprintf(m->name, sizeof m->name, "%.*s", (int)(name.n < 90 ? name.n : 90), name.s);
    KVANT_TRY(hparams_read(m->file, m->arch->name, &m->hp, &m->n_nextn, diag));
    if (m->added && m->hp.n_layer + m->added > MODEL_MAX_LAYERS)
        return kvant_fail(diag, KVANT_EFORMAT, "%s.block_count: %d, wanted at most %d beside a further file's block",
                          m->arch_name, m->hp.n_layer, MODEL_MAX_LAYERS - m->added);
    m->n_nextn += m->added;
    KVANT_TRY(m->arch->shapes(m->file, &m->hp, diag));
    KVANT_TRY(hparams_finish(m, diag));
    KVANT_TRY(request_globals(m, diag));
    KVANT_TRY(rank_open(m->file, m->hp.n_embd, &m->rank, diag));
    return request_layers(m, diag);
}

/* Tokens that stand for pictures and sounds, for which models trained on them make no text. */
static int read_suppressed(kvant_model *m, kvant_diag *diag)
{
    static const char key[] = "tokenizer.ggml.suppress_tokens";
    const gguf_kv *kv = gguf_find(m->file, key);

    if (!kv || kv->type != GGUF_ARRAY || kv->count == 0)
        return KVANT_OK;
    if (kv->count > 1u << 22)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %llu tokens, wanted at most %d", key, (unsigned long long)kv->count,
                          1 << 22);
    m->suppressed = kvant_calloc((size_t)kv->count, sizeof *m->suppressed);
    if (!m->suppressed)
        return kvant_fail(diag, KVANT_ENOMEM, "%s: out of memory", key);
    uint64_t ignored = 0;
    for (uint64_t i = 0; i < kv->count; i++) {
        int64_t id = -1;
        if (!gguf_integer_at(kv, i, &id))
            return kvant_fail(diag, KVANT_EFORMAT, "%s: element %llu is no integer", key, (unsigned long long)i);
        if (id >= 0 && id < m->hp.n_vocab)
            m->suppressed[m->n_suppressed++] = (int32_t)id;
        else if (ignored++ == 0) /* one warning, however long a hostile list is */
            log_msg(LOG_WARN, "%s: %lld is ignored, the model has %d tokens", key, (long long)id, m->hp.n_vocab);
    }
    if (m->n_suppressed >= m->hp.n_vocab)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %d tokens, wanted fewer than the %d there are", key,
                          m->n_suppressed, m->hp.n_vocab);
    return KVANT_OK;
}

static int open_text(kvant_model *m, const char *template_name, kvant_diag *diag)
{
    KVANT_TRY(tokenizer_open_rows(m->file, m->hp.n_vocab, &m->tok, diag));
    KVANT_TRY(chat_template_open(m->file, template_name, &m->chat, &m->chat_from_file, diag));
    if (chat_template_problem(m->chat) && strcmp(chat_template_name(m->chat), "unknown") != 0)
        log_msg(LOG_WARN, "chat template: %s; prompts that need it will be refused", chat_template_problem(m->chat));
    return KVANT_OK;
}

/* The block of another file comes behind the trunk's. */
static int add_nextn(kvant_model *m, const char *path, kvant_diag *diag)
{
    gguf_str arch;
    char key[96];
    uint32_t nextn = 0;

    KVANT_TRY(gguf_string(m->file, "general.architecture", 1, &arch, diag));
    snprintf(key, sizeof key, "%.*s.nextn_predict_layers", arch.n < 40 ? (int)arch.n : 40, arch.s);
    KVANT_TRY(gguf_u32(m->file, key, 0, &nextn, diag));
    if (nextn > 0)
        return kvant_fail(diag, KVANT_EFORMAT, "%.120s: the model has a block that predicts further tokens, wanted one "
                          "without", path);
    m->added = 1;
    return gguf_add(m->file, path, diag);
}

void kvant_model_params_init(kvant_model_params *p, size_t size)
{
    const kvant_model_params defaults = { 0 };

    params_give(p, size, &defaults, sizeof defaults);
}

int kvant_model_open(const kvant_model_params *theirs, kvant_model **out, kvant_diag *diag)
{
    kvant_model_params own = kvant_model_defaults(), *params = &own;
    kvant_model *m;
    int code = KVANT_OK;

    KVANT_TRY(params_take(&own, sizeof own, theirs, "kvant_model_params", diag));
    m = kvant_calloc(1, sizeof *m);
    if (!m)
        return kvant_fail(diag, KVANT_ENOMEM, "model: out of memory");
    code = params->synthetic ? synthetic_open(params->synthetic, &m->made, &m->file, diag)
                             : gguf_open(params->path, &m->file, diag);
    if (code == KVANT_OK && params->nextn)
        code = add_nextn(m, params->nextn, diag);
    if (code == KVANT_OK)
        code = gguf_override(m->file, params->overrides, params->n_overrides, diag);
    if (code == KVANT_OK)
        code = open_shapes(m, diag);
    if (code == KVANT_OK && params->nextn && !m->n_mtp)
        code = kvant_fail(diag, KVANT_EFORMAT, "%.120s: no block that can predict further tokens behind %d layers",
                          params->nextn, m->hp.n_layer);
    if (code == KVANT_OK)
        code = lora_open(m, params->lora, params->n_lora, diag);
    if (code == KVANT_OK)
        code = hparams_freq_dtype(m, params->rope_freq_dtype, diag);
    if (code == KVANT_OK)
        code = open_text(m, params->chat_template, diag);
    if (code == KVANT_OK)
        code = read_suppressed(m, diag);
    if (code == KVANT_OK)
        code = unread_judge(m, diag);
    if (code < 0) {
        kvant_model_close(m);
        return code;
    }
    gguf_seen_end(m->file);
    fill_info(m);
    *out = m;
    return KVANT_OK;
}

void kvant_model_close(kvant_model *m)
{
    if (!m)
        return;
    chat_template_close(m->chat);
    tokenizer_close(m->tok);
    weight_specs_free(m);
    lora_close(&m->lora);
    rank_close(&m->rank);
    kvant_free(m->layers);
    kvant_free(m->suppressed);
    gguf_close(m->file);
    synthetic_close(m->made);
    kvant_free(m);
}

const kvant_model_info *kvant_model_get_info(const kvant_model *m)
{
    return &m->info;
}

int kvant_model_lora(const kvant_model *m, int i, kvant_lora_info *out)
{
    if (i < 0 || i >= m->lora.n)
        return KVANT_EINVAL;
    const lora_file *f = &m->lora.files[i];
    *out = (kvant_lora_info){
        .path = f->path, .scale = f->scale, .alpha = f->alpha, .rank = f->rank, .n_params = f->n_params
    };
    return KVANT_OK;
}

int kvant_model_layer_is_attn(const kvant_model *m, int layer)
{
    return layer >= 0 && layer < m->hp.n_layer && m->layers[layer].is_attn;
}
