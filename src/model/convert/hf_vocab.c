/* hf_vocab.c: see hf_vocab.h.  Owns the list of tokens: tokenizer.json's vocabulary and its added tokens, or what
 * hf_vocab_spm.c read, with the tokens that the JSON files add to it. */
#include "model/convert/hf_vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/file/file.h"
#include "base/mem.h"
#include "model/convert/hf_config.h"
#include "model/gguf/gguf.h"

enum { MAX_TOKENS = 1 << 24, MAX_SPM = 64 << 20 }; /* arbitrary, far above any model */

int hf_vocab_slot(hf_vocab *v, uint64_t id, hf_vocab_token **t, kvant_diag *diag)
{
    if (id >= v->n)
        return kvant_fail(diag, KVANT_EFORMAT, "tokenizer: a token with id %llu, at most %u wanted (vocab_size)",
                          (unsigned long long)id, v->n - 1);
    *t = &v->tokens[id];
    return KVANT_OK;
}

int hf_vocab_name(hf_vocab *v, gjson s, hf_vocab_token *t, kvant_diag *diag)
{
    if (v->cap_names - v->n_names < s.n)
        return kvant_fail(diag, KVANT_EFORMAT, "tokenizer: more than %zu bytes of tokens", v->cap_names);
    const size_t n = gjson_unescape(s, v->names + v->n_names);
    if (n == SIZE_MAX || n == 0)
        return kvant_fail(diag, KVANT_EFORMAT, "tokenizer: a token is %.*s, a text wanted", hf_shown(s),
                          s.p ? s.p : "");
    t->s = v->names + v->n_names;
    t->n = n;
    v->n_names += n;
    return KVANT_OK;
}

static int is_one_of(const hf_vocab_token *t, const char *const *list)
{
    for (; *list; list++)
        if (t->n == strlen(*list) && memcmp(t->s, *list, t->n) == 0)
            return 1;
    return 0;
}

static int is_between(const char *s, size_t n, const char *head, const char *tail)
{
    const size_t h = strlen(head), t = strlen(tail);
    return n >= h && n >= t && memcmp(s, head, h) == 0 && memcmp(s + n - t, tail, t) == 0;
}

int hf_vocab_looks_special(const char *s, size_t n)
{
    static const char *const known[] = { "<pad>", "<mask>", "<2mass>", "[@BOS@]", NULL };
    const hf_vocab_token t = { .s = s, .n = n };

    return is_one_of(&t, known) || is_between(s, n, "<|", "|>") || is_between(s, n, "<\xEF\xBD\x9C", "\xEF\xBD\x9C>") ||
           is_between(s, n, "<unused", ">");
}

static int is_true(gjson v)
{
    return v.n == 4 && memcmp(v.p, "true", 4) == 0;
}

/* U+2581 stands for a space in the files; a token that users write has the space itself. */
static void with_spaces(hf_vocab_token *t, char *s)
{
    size_t n = 0;

    for (size_t i = 0; i < t->n;) {
        const int mark = i + 3 <= t->n && memcmp(s + i, "\xE2\x96\x81", 3) == 0;
        s[n++] = mark ? ' ' : s[i];
        i += mark ? 3 : 1;
    }
    t->n = n;
}

static int add_token(hf_vocab *v, gjson id, gjson content, int special, kvant_diag *diag)
{
    hf_vocab_token t = { .score = -1000.0f }, *slot = NULL;
    uint32_t i = 0;

    KVANT_TRY(hf_to_u32(id, "tokenizer: \"id\" of an added token", &i, diag));
    if (v->spm && i >= v->n)
        return KVANT_OK; /* such ids are dropped: the embedding has no row for them */
    KVANT_TRY(hf_vocab_slot(v, i, &slot, diag));
    KVANT_TRY(hf_vocab_name(v, content, &t, diag));
    t.type = special || hf_vocab_looks_special(t.s, t.n) ? TOKEN_CONTROL : TOKEN_USER;
    if (t.type == TOKEN_USER)
        with_spaces(&t, v->names + (t.s - v->names));
    *slot = t;
    return KVANT_OK;
}

static int add_listed(hf_vocab *v, kvant_diag *diag)
{
    const gjson list = gjson_get(v->json, "added_tokens");
    gjson it = { NULL, 0 };

    while (gjson_next(list, &it))
        KVANT_TRY(add_token(v, gjson_get(it, "id"), gjson_get(it, "content"), is_true(gjson_get(it, "special")), diag));
    return KVANT_OK;
}

/* tokenizer_config.json: {"151643": {"content", "special"}}. */
static int add_decoder(hf_vocab *v, kvant_diag *diag)
{
    const gjson map = gjson_get(v->config, "added_tokens_decoder");
    gjson key = { NULL, 0 }, it = { NULL, 0 };

    while (gjson_member(map, &key, &it)) {
        const gjson id = { key.p + 1, key.n - 2 };
        KVANT_TRY(add_token(v, id, gjson_get(it, "content"), is_true(gjson_get(it, "special")), diag));
    }
    return KVANT_OK;
}

static int add_vocabulary(hf_vocab *v, kvant_diag *diag)
{
    const gjson map = gjson_at(v->json, "model.vocab");
    gjson key = { NULL, 0 }, it = { NULL, 0 };

    if (!map.p || *map.p != '{')
        return kvant_fail(diag, KVANT_EFORMAT, "tokenizer.json: no object \"model\".\"vocab\"");
    while (gjson_member(map, &key, &it)) {
        uint32_t id = 0;
        hf_vocab_token *t = NULL;
        KVANT_TRY(hf_to_u32(it, "tokenizer.json: an id of \"vocab\"", &id, diag));
        KVANT_TRY(hf_vocab_slot(v, id, &t, diag));
        if (t->s)
            return kvant_fail(diag, KVANT_EFORMAT, "tokenizer.json: id %u has two tokens, one wanted", id);
        KVANT_TRY(hf_vocab_name(v, key, t, diag));
        t->type = TOKEN_NORMAL;
    }
    return KVANT_OK;
}

static int read_bpe(hf_vocab *v, kvant_diag *diag)
{
    const gjson type = gjson_at(v->json, "model.type");

    if (!v->json.p)
        return kvant_fail(diag, KVANT_ENOENT, "%.120s: neither tokenizer.model nor tokenizer.json", v->folder);
    if (type.n != 5 || memcmp(type.p, "\"BPE\"", 5) != 0 ||
        is_true(gjson_at(v->json, "model.byte_fallback")) != v->characters)
        return kvant_fail(diag, KVANT_EUNSUPPORTED,
                          "tokenizer.json: model %.*s%s, %s wanted", hf_shown(type), type.p ? type.p : "",
                          type.p && !v->characters ? " with byte_fallback" : "",
                          v->characters ? "BPE with byte_fallback" : "byte-level BPE (or tokenizer.model beside it)");
    KVANT_TRY(add_vocabulary(v, diag));
    return v->characters ? hf_vocab_read_characters(v, diag) : add_listed(v, diag);
}

static int read_spm(hf_vocab *v, kvant_diag *diag)
{
    char path[4096];
    size_t n = 0;
    char *data = NULL;

    snprintf(path, sizeof path, "%s/tokenizer.model", v->folder);
    KVANT_TRY(file_read(path, MAX_SPM, &data, &n, diag));
    v->spm = 1;
    v->names = kvant_alloc(n + v->cap_names + 1);
    v->cap_names += n;
    int rc = v->names ? hf_vocab_read_spm(v, (const uint8_t *)data, n, diag)
                      : kvant_fail(diag, KVANT_ENOMEM, "tokenizer.model: no memory for its tokens");
    kvant_free(data);
    for (uint32_t i = 0; rc == KVANT_OK && i < v->n; i++)
        if (v->tokens[i].type == TOKEN_USER)
            with_spaces(&v->tokens[i], v->names + (v->tokens[i].s - v->names));
    return rc == KVANT_OK ? add_decoder(v, diag) : rc;
}

static int has_spm(const char *folder)
{
    char path[4096];
    FILE *f = snprintf(path, sizeof path, "%s/tokenizer.model", folder) < (int)sizeof path ? fopen(path, "rb") : NULL;

    if (f)
        fclose(f);
    return f != NULL;
}

static int read_all(hf_vocab *v, kvant_diag *diag)
{
    KVANT_TRY(hf_read(v->folder, "tokenizer.json", &v->text, &v->json, diag));
    KVANT_TRY(hf_read(v->folder, "tokenizer_config.json", &v->config_text, &v->config, diag));
    v->cap_names = v->json.n + v->config.n;
    v->tokens = kvant_calloc(v->n, sizeof *v->tokens);
    if (!v->tokens)
        return kvant_fail(diag, KVANT_ENOMEM, "tokenizer: no memory for %u tokens", v->n);
    for (uint32_t i = 0; i < v->n; i++)
        v->tokens[i] = (hf_vocab_token){ .score = -10000.0f, .type = TOKEN_UNUSED };
    if (!v->characters && has_spm(v->folder))
        return read_spm(v, diag);
    v->names = kvant_alloc(v->cap_names + 1);
    return v->names ? read_bpe(v, diag) : kvant_fail(diag, KVANT_ENOMEM, "tokenizer.json: no memory for its tokens");
}

int hf_vocab_open(const char *folder, uint32_t size, const char *pre, int characters, hf_vocab *v, kvant_diag *diag)
{
    *v = (hf_vocab){ .folder = folder, .n = size, .pre = pre, .characters = characters };
    if (size < 1 || size > MAX_TOKENS)
        return kvant_fail(diag, KVANT_EFORMAT, "vocab_size: is %u, 1 to %d wanted", size, MAX_TOKENS);
    return read_all(v, diag);
}

void hf_vocab_close(hf_vocab *v)
{
    kvant_free(v->text);
    kvant_free(v->config_text);
    kvant_free(v->names);
    kvant_free(v->tokens);
    memset(v, 0, sizeof *v);
}

static void put_tokens(const hf_vocab *v, gguf_keys *k)
{
    char pad[32];

    gguf_keys_array(k, "tokenizer.ggml.tokens", GGUF_STRING, v->n);
    for (uint32_t i = 0; i < v->n; i++) {
        const hf_vocab_token *t = &v->tokens[i];
        if (t->s)
            gguf_keys_array_str(k, t->s, t->n);
        else
            gguf_keys_array_str(k, pad, (size_t)snprintf(pad, sizeof pad, "[PAD%u]", i));
    }
    const int scores = v->spm || v->characters;
    if (scores)
        gguf_keys_array(k, "tokenizer.ggml.scores", GGUF_F32, v->n);
    for (uint32_t i = 0; scores && i < v->n; i++)
        gguf_keys_put(k, &v->tokens[i].score, sizeof(float));
    gguf_keys_array(k, "tokenizer.ggml.token_type", GGUF_I32, v->n);
    for (uint32_t i = 0; i < v->n; i++) {
        const int32_t type = v->tokens[i].type;
        gguf_keys_put(k, &type, sizeof type);
    }
}

/* The keys that only unigram models have. */
static void put_unigram(const hf_vocab *v, gguf_keys *k)
{
    gguf_keys_bool(k, "tokenizer.ggml.add_space_prefix", v->unigram.space_prefix);
    gguf_keys_bool(k, "tokenizer.ggml.remove_extra_whitespaces", v->unigram.squeeze);
    if (!v->unigram.n_map)
        return;
    gguf_keys_array(k, "tokenizer.ggml.precompiled_charsmap", GGUF_U8, v->unigram.n_map);
    gguf_keys_put(k, v->unigram.map, v->unigram.n_map);
}

int hf_vocab_put(const hf_vocab *v, gguf_keys *k, kvant_diag *diag)
{
    const char *pre = v->pre ? v->pre : "default", *model = v->unigram.on ? "t5" : v->spm ? "llama" : "gpt2";

    if (v->characters) {
        gguf_keys_str(k, "tokenizer.ggml.model", "gemma4", 6);
        put_tokens(v, k);
        return KVANT_OK;
    }
    if (!v->pre && !v->spm)
        KVANT_TRY(hf_vocab_find_pre(v->json, &pre, diag));
    gguf_keys_str(k, "tokenizer.ggml.model", model, strlen(model));
    gguf_keys_str(k, "tokenizer.ggml.pre", pre, strlen(pre));
    put_tokens(v, k);
    if (v->unigram.on)
        put_unigram(v, k);
    return KVANT_OK;
}
