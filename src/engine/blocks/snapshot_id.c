/* snapshot_id.c: the fingerprint of a session's files: what a saved sequence was computed with.  Four parts of 8 bytes,
 * so that a refusal can say which one differs (cache/store.h).  Finds a wrong file, withstands no attacker. */
#include <stddef.h>
#include <string.h>

#include "base/mem.h"
#include "engine/session_impl.h"
#include "kvant/qjl.h"

typedef uint64_t mix;

static void mix_bytes(mix *h, const void *data, size_t n)
{
    const uint8_t *p = data;
    uint64_t v;

    for (; n >= sizeof v; n -= sizeof v, p += sizeof v) {
        memcpy(&v, p, sizeof v);
        *h = (*h ^ v) * 0x9E3779B97F4A7C15u;
        *h ^= *h >> 32;
    }
    v = (uint64_t)n << 56;
    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)p[i] << (8 * i);
    *h = (*h ^ v) * 0xD6E8FEB86659FD93u;
    *h ^= *h >> 29;
}

static void mix_text(mix *h, const char *s)
{
    mix_bytes(h, s, strlen(s) + 1);
}

/* Names, types and shapes of all tensors, and of each the first, middle and last 4 KiB: a model that differs only
 * between those would pass. */
static void mix_weights(mix *h, const kvant_model *model)
{
    enum { SAMPLE = 4096 };

    for (int i = 0; i < gguf_tensor_count(model->file); i++) {
        const gguf_tensor *t = gguf_tensor_at(model->file, i);
        const size_t n = t->bytes < SAMPLE ? t->bytes : SAMPLE;
        mix_bytes(h, t->name.s, t->name.n);
        mix_bytes(h, t->ne, sizeof t->ne);
        mix_bytes(h, &t->type, sizeof t->type);
        if (!t->data)
            continue; /* made, not read: the model's name says which */
        mix_bytes(h, t->data, n);
        mix_bytes(h, t->data + (t->bytes - n) / 2, n);
        mix_bytes(h, t->data + t->bytes - n, n);
    }
    mix_text(h, kvant_model_get_info(model)->arch);
    if (model->made)
        mix_text(h, kvant_model_get_info(model)->name);
}

/* Keys that only describe the file, or how text becomes a prompt (the tokens are in the snapshot). */
static int only_describes(gguf_str key)
{
    static const char *const begins[] = { "general.", "split.", "tokenizer.chat_template", "quantize." };

    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (key.n >= strlen(begins[i]) && memcmp(key.s, begins[i], strlen(begins[i])) == 0)
            return 1;
    return 0;
}

/* Every other key with its value, whether or not this version reads it: shapes, RoPE, epsilons, scales, the whole
 * tokenizer.  A sum, because writers put keys in any order. */
static void mix_keys(mix *h, const kvant_model *model)
{
    mix sum = 0;

    for (int i = 0; i < gguf_kv_count(model->file); i++) {
        const gguf_kv *kv = gguf_kv_at(model->file, i);
        mix one = 1;
        if (only_describes(kv->key))
            continue;
        mix_bytes(&one, kv->key.s, kv->key.n);
        mix_bytes(&one, &kv->type, sizeof kv->type);
        mix_bytes(&one, &kv->elem, sizeof kv->elem);
        mix_bytes(&one, kv->value, kv->bytes);
        sum += one;
    }
    mix_bytes(h, &sum, sizeof sum);
}

/* Mixes in the results of the keys, the options and the defaults: all numbers of hparams, which stand in one run of
 * 4-byte fields.  A field added behind moe changes the size, and then belongs in the range here. */
static void mix_hparams(mix *h, const hparams *hp, int n_ctx)
{
    const int long_rope = rope_is_long(hp, n_ctx);
    enum { NUMBERS = offsetof(hparams, moe) + sizeof(model_moe) };
    _Static_assert(sizeof(hparams) - NUMBERS <= 4 + 2 * sizeof(char *), "hparams: a field is not in the fingerprint");

    mix_bytes(h, hp, NUMBERS);
    mix_bytes(h, &long_rope, sizeof long_rope);
}

/* The tokens as this version decodes them. */
static void mix_vocabulary(mix *h, const kvant_model *model)
{
    const int32_t ids[] = { kvant_token_bos(model), kvant_token_eos(model), kvant_token_add_bos(model) };
    char text[256];

    for (int i = 0; i < kvant_model_get_info(model)->n_vocab; i++) {
        const int n = kvant_token_bytes(model, i, 1, text, sizeof text), eog = kvant_token_is_eog(model, i);
        mix_bytes(h, text, n < 0 ? 0 : n < (int)sizeof text ? (size_t)n : sizeof text);
        mix_bytes(h, &eog, sizeof eog);
    }
    mix_bytes(h, ids, sizeof ids);
}

static int mix_projection(mix *h, const kvant_engine *e, kvant_diag *diag)
{
    const size_t bytes = KVANT_QJL_VALUES * sizeof(float);

    const engine_place *first = &e->place[0];

    if (first->n_projections == 0)
        return KVANT_OK;
    float *host = kvant_alloc(bytes);
    int code = host ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "session: out of memory");
    for (int i = 0; code == KVANT_OK && i < first->n_projections; i++) {
        code = first->dev->vt->copy_out(first->dev, host, first->projections[i], bytes, diag);
        if (code == KVANT_OK)
            mix_bytes(h, host, bytes);
    }
    kvant_free(host);
    return code;
}

static int mix_formats(mix *h, const kvant_engine *e, kvant_diag *diag)
{
    const kv_config *c = &e->kv.cfg;
    const int shape[] = { c->n_layer, e->kv.tail_pages | e->kv.sink_pages << 16, KVANT_PAGE };

    mix_bytes(h, shape, sizeof shape);
    if (e->kv.window_pages > 0)    /* their pages are apart */
        mix_bytes(h, &c->window, sizeof c->window);
    for (int l = 0; l < c->n_layer; l++) {
        if (!kv_has_attn(c, l))
            continue;
        const int rows[] = { c->types[l].h_kv, c->types[l].d_k, c->types[l].d_v };
        mix_bytes(h, rows, sizeof rows);
        mix_text(h, c->types[l].k->name);
        mix_text(h, c->types[l].v->name);
    }
    return mix_projection(h, e, diag);
}

uint64_t snapshot_devices(const kvant_engine *e)
{
    const engine_split *s = &e->split;
    mix h = 5;

    for (int l = 0; l <= e->m->hp.n_layer; l++) {
        mix_text(&h, e->place[s->of[l]].dev->vt->name);
        mix_text(&h, e->place[l < e->m->hp.n_layer ? s->experts[l] : s->of[l]].dev->vt->name);
    }
    return h;
}

/* The type of recurrent states has a field of its own in the file's header. */
int snapshot_identity(const kvant_engine *e, unsigned char out[STORE_FINGERPRINT], kvant_diag *diag)
{
    mix parts[STORE_PARTS] = { 1, 2, 3, 4 };

    mix_weights(&parts[STORE_WEIGHTS], e->m);
    mix_keys(&parts[STORE_HPARAMS], e->m);
    mix_hparams(&parts[STORE_HPARAMS], &e->m->hp, e->p.n_ctx);
    mix_vocabulary(&parts[STORE_HPARAMS], e->m);
    KVANT_TRY(mix_formats(&parts[STORE_FORMATS], e, diag));
    mix_bytes(&parts[STORE_COMPUTE], &e->p.encoder, sizeof e->p.encoder);
    mix_bytes(&parts[STORE_COMPUTE], &e->p.compute, sizeof e->p.compute);
    memcpy(out, parts, STORE_FINGERPRINT);
    return KVANT_OK;
}
