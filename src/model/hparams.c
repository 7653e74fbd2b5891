/* hparams.c: a model's shapes as the keys say them that every architecture has; and what holds between them once the
 * architecture has read its own. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "model/build.h"

typedef struct key_reader {
    const gguf *g;
    const char *arch;
    kvant_diag *diag;
} key_reader;

static int read_int(const key_reader *r, const char *suffix, int required, int min, int max, int *v)
{
    char key[96];
    uint32_t u = (uint32_t)*v;
    snprintf(key, sizeof key, "%s.%s", r->arch, suffix);
    KVANT_TRY(gguf_u32(r->g, key, required, &u, r->diag));
    if (u < (uint32_t)min || u > (uint32_t)max)
        return kvant_fail(r->diag, KVANT_EFORMAT, "%s: %u, wanted %d to %d", key, u, min, max);
    *v = (int)u;
    return KVANT_OK;
}

/* An array with one value for each layer -> of[]; *given 0: the key is absent, or no array. */
static int read_layers(const key_reader *r, const hparams *hp, const char *key, int32_t of[MODEL_MAX_LAYERS],
                       int *given)
{
    const gguf_kv *kv = gguf_find(r->g, key);
    int n = 0;

    *given = kv && kv->type == GGUF_ARRAY;
    if (!*given)
        return KVANT_OK;
    KVANT_TRY(gguf_i32s(r->g, key, 1, of, MODEL_MAX_LAYERS, &n, r->diag));
    if (n < hp->n_layer)
        return kvant_fail(r->diag, KVANT_EFORMAT, "%s: %d values, wanted one for each of %d layers", key, n,
                          hp->n_layer);
    return KVANT_OK;
}

/* A value that may be an array with one for each layer (which: DIFFERS_*); *v becomes the largest.  0 marks a layer in
 * `without`.  The architecture says if they may differ (check_layers). */
static int read_per_layer(const key_reader *r, hparams *hp, int which, const char *suffix, int min, int max,
                          unsigned char *without, int *v)
{
    char key[96];
    int32_t per_layer[MODEL_MAX_LAYERS];
    int given, found = 0;
    snprintf(key, sizeof key, "%s.%s", r->arch, suffix);
    KVANT_TRY(read_layers(r, hp, key, per_layer, &given));
    if (!given)
        return read_int(r, suffix, 0, min, max, v);
    for (int i = 0; i < hp->n_layer; i++) {
        without[i] |= per_layer[i] == 0;
        if (per_layer[i] < 0 || per_layer[i] > max)
            return kvant_fail(r->diag, KVANT_EUNSUPPORTED, "%s: layer %d has %d, wanted 0 to %d", key, i, per_layer[i],
                              max);
        *(which == DIFFERS_KV ? &hp->layer[i].h_kv : &hp->layer[i].n_ff) = per_layer[i];
        if (found && per_layer[i] && per_layer[i] != found)
            hp->differs = which;
        found = per_layer[i] > found ? per_layer[i] : found;
    }
    if (!found)
        return kvant_fail(r->diag, KVANT_EFORMAT, "%s: 0 in every layer", key);
    *v = found;
    return KVANT_OK;
}

static int read_rope(const key_reader *r, hparams *hp)
{
    char key[96];
    hp->n_rot = hp->d_k;
    hp->rope.base = 10000.0f;
    KVANT_TRY(read_int(r, "rope.dimension_count", 0, 0, hp->d_k, &hp->n_rot));
    if (hp->n_rot == 0) {
        log_msg(LOG_WARN, "%s.rope.dimension_count: 0; the whole head of %d is taken, as where the key is absent",
                r->arch, hp->d_k);
        hp->n_rot = hp->d_k;
    }
    if (hp->n_rot % 2)
        return kvant_fail(r->diag, KVANT_EFORMAT, "%s.rope.dimension_count: %d, wanted an even number", r->arch,
                          hp->n_rot);
    snprintf(key, sizeof key, "%s.rope.freq_base", r->arch);
    KVANT_TRY(gguf_f32(r->g, key, 0, &hp->rope.base, r->diag));
    if (!(hp->rope.base >= 1.0f && hp->rope.base <= 1e12f))
        return kvant_fail(r->diag, KVANT_EFORMAT, "%s: %g, wanted 1 to 1e12", key, (double)hp->rope.base);
    return read_rope_scaling(r->g, r->arch, hp, r->diag);
}

/* A model without attention: the cache has pages of no bytes, for which a head is as good as another. */
static int read_no_attention(hparams *hp)
{
    memset(hp->no_attn, 1, (size_t)hp->n_layer);
    hp->attention_free = hp->n_head = hp->n_head_kv = 1;
    hp->d_k = hp->d_v = hp->n_rot = 64;
    hp->attn_scale = 1.0f;
    hp->rope.base = 10000.0f;
    return KVANT_OK;
}

/* One number, or one for each layer: 0 where it has no attention, else the same for all. */
static int read_heads(const key_reader *r, hparams *hp)
{
    char key[96];
    int32_t heads[MODEL_MAX_LAYERS];
    int given;

    snprintf(key, sizeof key, "%s.attention.head_count", r->arch);
    KVANT_TRY(read_layers(r, hp, key, heads, &given));
    if (!given)
        return read_int(r, "attention.head_count", 1, 0, 1 << 16, &hp->n_head);
    for (int i = 0; i < hp->n_layer; i++) {
        hp->no_attn[i] = heads[i] == 0;
        if (heads[i] < 0 || heads[i] > 1 << 16 || (heads[i] && hp->n_head && heads[i] != hp->n_head))
            return kvant_fail(r->diag, KVANT_EUNSUPPORTED,
                              "%s: %d in layer %d, %d before it; wanted 0 or one value for "
                              "all layers",
                              key, heads[i], i, hp->n_head);
        hp->n_head = heads[i] ? heads[i] : hp->n_head;
    }
    return KVANT_OK;
}

static int read_attention(const key_reader *r, hparams *hp)
{
    char key[96];
    KVANT_TRY(read_heads(r, hp));
    if (hp->n_head == 0)
        return read_no_attention(hp);
    hp->n_head_kv = hp->n_head;
    KVANT_TRY(read_per_layer(r, hp, DIFFERS_KV, "attention.head_count_kv", 1, 1 << 16, hp->no_attn, &hp->n_head_kv));
    hp->d_k = hp->n_embd / hp->n_head;
    KVANT_TRY(read_int(r, "attention.key_length", 0, 1, MODEL_MAX_HEAD_DIM, &hp->d_k));
    hp->d_v = hp->d_k;
    KVANT_TRY(read_int(r, "attention.value_length", 0, 1, MODEL_MAX_HEAD_DIM, &hp->d_v));
    if (hp->d_k < 1 || hp->d_k > MODEL_MAX_HEAD_DIM)
        return kvant_fail(r->diag, KVANT_EFORMAT, "%s: head size %d, wanted 1 to %d", r->arch, hp->d_k,
                          MODEL_MAX_HEAD_DIM);
    hp->attn_scale = 1.0f / sqrtf((float)hp->d_k);
    snprintf(key, sizeof key, "%s.attention.scale", r->arch);
    KVANT_TRY(gguf_f32(r->g, key, 0, &hp->attn_scale, r->diag));
    if (!(hp->attn_scale > 0 && hp->attn_scale < 1e6f))
        return kvant_fail(r->diag, KVANT_EFORMAT, "%s: %g, wanted a positive number", key, (double)hp->attn_scale);
    return read_rope(r, hp);
}

/* Some files say nothing, or 0: the context of Llama 1 then, which -c may exceed. */
static int read_context(const key_reader *r, hparams *hp)
{
    int n = 0;

    KVANT_TRY(read_int(r, "context_length", 0, 0, 1 << 28, &n));
    hp->n_ctx_train = n ? n : 2048;
    if (!n)
        log_msg(LOG_WARN,
                "%s.context_length: absent or 0; 2048 tokens are assumed, -c or --override-kv "
                "%s.context_length=int:N says another number",
                r->arch, r->arch);
    return KVANT_OK;
}

static int read_common(const key_reader *r, hparams *hp, int *n_nextn)
{
    char key[96], name[96];
    hp->n_ctx_train = 2048;
    hp->norm_names.ffn = "ffn_norm";
    hp->embd_scale = hp->residual_scale = hp->logit_scale = 1.0f;
    hp->norm_names.output = "output_norm";
    KVANT_TRY(read_int(r, "block_count", 1, 1, MODEL_MAX_LAYERS, &hp->n_layer));
    KVANT_TRY(read_int(r, "nextn_predict_layers", 0, 0, hp->n_layer - 1, n_nextn));
    hp->n_layer -= *n_nextn; /* multi-token-prediction blocks come last and are not part of the trunk */
    KVANT_TRY(read_int(r, "embedding_length", 1, 1, 1 << 20, &hp->n_embd));
    KVANT_TRY(read_context(r, hp));
    KVANT_TRY(read_int(r, "pooling_type", 0, KVANT_POOLING_NONE, KVANT_POOLING_RANK, &hp->pooling));
    snprintf(key, sizeof key, "%s.pooling_type", r->arch);
    hp->pooling = gguf_find(r->g, key) ? hp->pooling : KVANT_POOLING_UNSAID;
    KVANT_TRY(read_per_layer(r, hp, DIFFERS_FF, "feed_forward_length", 0, 1 << 22, hp->no_ffn, &hp->n_ff));
    snprintf(key, sizeof key, "%s.attention.layer_norm_epsilon", r->arch); /* some files say it only so */
    const int other = gguf_find(r->g, key) != NULL;
    snprintf(name, sizeof name, "%s.attention.layer_norm_rms_epsilon", r->arch);
    if (!other || gguf_find(r->g, name))
        snprintf(key, sizeof key, "%s", name);
    KVANT_TRY(gguf_f32(r->g, key, 1, &hp->norm.eps, r->diag));
    if (!(hp->norm.eps > 0 && hp->norm.eps < 1))
        return kvant_fail(r->diag, KVANT_EFORMAT, "%s: %g, wanted a number between 0 and 1", key, (double)hp->norm.eps);
    return read_attention(r, hp);
}

int hparams_read(const gguf *g, const char *arch, hparams *hp, int *n_nextn, kvant_diag *diag)
{
    const key_reader r = { g, arch, diag };

    return read_common(&r, hp, n_nextn);
}

/* ---- behind the architecture ---- */

/* An architecture without windows of its own has them where the file says which layers (kvant convert writes it so of
 * Mistral 7B v0.1, and of Qwen with use_sliding_window). */
static int read_own_window(const key_reader *r, hparams *hp)
{
    char key[96];

    snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", r->arch);
    const gguf_kv *kv = gguf_find(r->g, key);
    if (hp->window > 0 || !kv || kv->type != GGUF_ARRAY)
        return KVANT_OK;
    return read_window(r->g, hp, 0, r->diag);
}

/* A layer of which no key and no architecture says a value has the one of all layers; only an architecture that takes
 * different values may have them. */
static int check_layers(kvant_model *m, kvant_diag *diag)
{
    hparams *hp = &m->hp;

    if (hp->differs && !hp->layers_vary)
        return kvant_fail(diag, KVANT_EUNSUPPORTED,
                          "%s.%s: layers with different values, wanted 0 or one value for all", m->arch_name,
                          hp->differs == DIFFERS_KV ? "attention.head_count_kv" : "feed_forward_length");
    for (int l = 0; l < hp->n_layer + (m->n_nextn > 0); l++) {
        layer_shape *s = &hp->layer[l];
        s->h_kv = hp->layers_vary && s->h_kv ? s->h_kv : hp->n_head_kv;
        s->d_k = s->d_k ? s->d_k : hp->d_k;
        s->d_v = s->d_v ? s->d_v : hp->d_v;
        s->n_rot = s->n_rot ? s->n_rot : hp->n_rot;
        s->n_ff = hp->layers_vary && s->n_ff ? s->n_ff : hp->n_ff;
        s->kv_from = hp->layers_vary && l < hp->n_layer ? s->kv_from : l;
        if (hp->n_head % s->h_kv)
            return kvant_fail(diag, KVANT_EFORMAT,
                              "%s.attention.head_count_kv: %d in layer %d, wanted a divisor of %d "
                              "heads",
                              m->arch_name, s->h_kv, l, hp->n_head);
    }
    return KVANT_OK;
}

static int check_widths(const kvant_model *m, kvant_diag *diag)
{
    const hparams *hp = &m->hp;
    int64_t q = (int64_t)hp->n_head * hp->d_k * 2, c = hp->rec.in;
    int64_t f = 2 * (int64_t)(hp->moe.n_ff > 0 ? hp->moe.n_ff : 1) * (hp->moe.n_used > 0 ? hp->moe.n_used : 1);
    if (q > 1 << 24 || c > 1 << 24 || f > 1 << 26)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: a layer is too wide (query %lld, recurrent %lld, experts %lld)",
                          m->arch_name, (long long)q, (long long)c, (long long)f);
    int without = 0;
    for (int l = 0; l < hp->n_layer; l++) {
        without += hp->no_ffn[l];
        if (hp->no_ffn[l] && !hp->one_block)
            return kvant_fail(diag, KVANT_EUNSUPPORTED, "%s.feed_forward_length: 0 in layer %d, wanted at least 1",
                              m->arch_name, l);
    }
    if (!hp->moe.n && hp->n_ff < 1 && without < hp->n_layer)
        return kvant_fail(diag, KVANT_EFORMAT, "%s.feed_forward_length: %d, wanted at least 1", m->arch_name, hp->n_ff);
    return KVANT_OK;
}

int hparams_finish(kvant_model *m, kvant_diag *diag)
{
    const key_reader r = { m->file, m->arch->name, diag };

    KVANT_TRY(read_own_window(&r, &m->hp));
    if (m->hp.attention_free && !m->hp.one_block)
        return kvant_fail(diag, KVANT_EFORMAT, "%s.attention.head_count: 0, wanted 1 to 65536", m->arch_name);
    KVANT_TRY(check_layers(m, diag));
    return check_widths(m, diag);
}

int hparams_freq_dtype(kvant_model *m, const char *wanted, kvant_diag *diag)
{
    gguf_str v = { "f32", 3 };
    KVANT_TRY(gguf_string(m->file, "kvant.rope.freq_dtype", 0, &v, diag));
    if (wanted)
        v = (gguf_str){ wanted, strlen(wanted) };
    m->hp.rope.bf16 = v.n == 4 && memcmp(v.s, "bf16", 4) == 0;
    if (m->hp.rope.bf16 || (v.n == 3 && memcmp(v.s, "f32", 3) == 0))
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EINVAL, "RoPE frequency type: \"%.*s\", wanted f32 or bf16",
                      (int)(v.n < 40 ? v.n : 40), v.s);
}
