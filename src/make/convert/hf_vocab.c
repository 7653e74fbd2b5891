/* hf_vocab.c: see hf_vocab.h.  Owns the list of tokens: tokenizer.json's vocabulary and its added tokens, or what
 * hf_vocab_spm.c read, with the tokens that the JSON files add to it. */
#include "make/convert/hf_vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/file/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "make/convert/hf_config.h"
#include "model/gguf/gguf.h"
#include "text/added/added.h"

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
    t.flags = v->rules.by_rank && slot->s && t.type == TOKEN_USER ? ADDED_SYMBOL : 0;
    *slot = t;
    return KVANT_OK;
}

static int add_listed(hf_vocab *v, kvant_diag *diag)
{
    const gjson list = gjson_get(v->json, "added_tokens");
    gjson it = { NULL, 0 };

    while (gjson_next(list, &it))
        KVANT_TRY(add_token(v, gjson_get(it, "id"), gjson_get(it, "content"), hf_true(gjson_get(it, "special")), diag));
    return KVANT_OK;
}

/* tokenizer_config.json: {"151643": {"content", "special"}}. */
static int add_decoder(hf_vocab *v, kvant_diag *diag)
{
    const gjson map = gjson_get(v->config, "added_tokens_decoder");
    gjson key = { NULL, 0 }, it = { NULL, 0 };

    while (gjson_member(map, &key, &it)) {
        const gjson id = { key.p + 1, key.n - 2 };
        KVANT_TRY(add_token(v, id, gjson_get(it, "content"), hf_true(gjson_get(it, "special")), diag));
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

/* Reads how an added token treats the text around it: an entry of added_tokens or added_tokens_decoder. */
static int mark_added(hf_vocab *v, gjson id, gjson token, kvant_diag *diag)
{
    static const struct {
        const char *name;
        uint8_t flag;
    } names[] = { { "lstrip", ADDED_LSTRIP },
                  { "rstrip", ADDED_RSTRIP },
                  { "single_word", ADDED_WORD },
                  { "normalized", ADDED_NORMALIZED } };
    uint32_t i = 0;

    KVANT_TRY(hf_to_u32(id, "tokenizer: \"id\" of an added token", &i, diag));
    if (i >= v->n || !v->tokens[i].s)
        return KVANT_OK;
    v->tokens[i].is_added = 1;
    for (int k = 0; k < 4; k++)
        if (hf_true(gjson_get(token, names[k].name)))
            v->tokens[i].flags |= names[k].flag;
    return KVANT_OK;
}

/* Tokens that tokenizer_config.json alone has: Transformers adds them, too. */
static int add_further(hf_vocab *v, kvant_diag *diag)
{
    gjson key = { NULL, 0 }, it = { NULL, 0 };

    while (gjson_member(gjson_get(v->config, "added_tokens_decoder"), &key, &it)) {
        const gjson id = { key.p + 1, key.n - 2 };
        const size_t used = v->n_names;
        hf_vocab_token t = { 0 };
        uint32_t i = 0;
        KVANT_TRY(hf_to_u32(id, "tokenizer_config.json: an id of added_tokens_decoder", &i, diag));
        KVANT_TRY(hf_vocab_name(v, gjson_get(it, "content"), &t, diag));
        v->n_names = used;
        const hf_vocab_token *had = i < v->n ? &v->tokens[i] : NULL;
        if (!had || (had->s && (had->n != t.n || memcmp(had->s, t.s, t.n) != 0)))
            log_msg(LOG_WARN, "convert: tokenizer_config.json: token %u of added_tokens_decoder, %.*s, is left out: "
                    "%s", i, hf_shown(gjson_get(it, "content")), gjson_get(it, "content").p,
                    had ? "tokenizer.json has another one" : "the embedding has no row for it");
        if (!had || had->s)
            continue;
        KVANT_TRY(add_token(v, id, gjson_get(it, "content"), hf_true(gjson_get(it, "special")), diag));
        KVANT_TRY(mark_added(v, id, it, diag));
    }
    return KVANT_OK;
}

/* A special token that tokenizer_config.json names and the vocabulary lacks. */
static void warn_of_unknown(const hf_vocab *v, gjson name, gjson token)
{
    const gjson text = token.p && *token.p == '{' ? gjson_get(token, "content") : token;
    char buf[256] = "";

    if (!text.p || *text.p != '"' || text.n >= sizeof buf || !gjson_text(text, buf, sizeof buf) || !*buf)
        return;
    for (uint32_t i = 0; i < v->n; i++)
        if (v->tokens[i].s && v->tokens[i].n == strlen(buf) && memcmp(v->tokens[i].s, buf, v->tokens[i].n) == 0)
            return;
    log_msg(LOG_WARN, "convert: tokenizer_config.json: %.*s has %.*s, which is no token of the vocabulary; it is left "
            "out", hf_shown(name), name.p, hf_shown(text), text.p);
}

static void warn_of_all_unknown(const hf_vocab *v)
{
    static const char tail[] = "_token\"";
    gjson key = { NULL, 0 }, it = { NULL, 0 }, more = { NULL, 0 };
    int fuel = 1024; /* arbitrary, above any model */

    while (gjson_member(v->config, &key, &it)) {
        const int list = *it.p == '[' && key.n == 27 && memcmp(key.p, "\"additional_special_tokens\"", 27) == 0;
        more = (gjson){ NULL, 0 };
        while (list && fuel-- > 0 && gjson_next(it, &more))
            warn_of_unknown(v, key, more);
        if (key.n > sizeof tail && memcmp(key.p + key.n - (sizeof tail - 1), tail, sizeof tail - 1) == 0 && fuel-- > 0)
            warn_of_unknown(v, key, it);
    }
}

static int mark_all_added(hf_vocab *v, kvant_diag *diag)
{
    gjson key = { NULL, 0 }, it = { NULL, 0 };

    while (!v->spm && gjson_next(gjson_get(v->json, "added_tokens"), &it))
        KVANT_TRY(mark_added(v, gjson_get(it, "id"), it, diag));
    while (v->spm && gjson_member(gjson_get(v->config, "added_tokens_decoder"), &key, &it))
        KVANT_TRY(mark_added(v, (gjson){ key.p + 1, key.n - 2 }, it, diag));
    return KVANT_OK;
}

static int is_byte(const hf_vocab_token *t)
{
    unsigned byte;
    char text[7] = "";

    if (!t->s || t->n != 6)
        return 0;
    memcpy(text, t->s, 6);
    return sscanf(text, "<0x%2X>", &byte) == 1 && text[5] == '>';
}

/* Characters merged by rank, written as a vocabulary with scores: the ids of such vocabularies are in the order of
 * their merges, which is what a reader without the key by_rank has. */
static void mark_characters(hf_vocab *v)
{
    const int bytes = hf_true(gjson_at(v->json, "model.byte_fallback"));

    for (uint32_t i = 0; i < v->n; i++) {
        hf_vocab_token *t = &v->tokens[i];
        t->score = -(float)i;
        if (bytes && t->type == TOKEN_NORMAL && is_byte(t))
            t->type = TOKEN_BYTE;
    }
}

static int read_bpe(hf_vocab *v, kvant_diag *diag)
{
    const gjson type = gjson_at(v->json, "model.type");

    if (!v->json.p)
        return kvant_fail(diag, KVANT_ENOENT, "%.120s: neither tokenizer.model nor tokenizer.json", v->folder);
    if (!hf_is(type, "BPE"))
        return kvant_fail(diag, KVANT_EUNSUPPORTED,
                          "tokenizer.json: model %.*s, byte-level BPE or BPE of characters wanted (or tokenizer.model "
                          "beside it)",
                          hf_shown(type), type.p ? type.p : "");
    if (v->characters && !hf_true(gjson_at(v->json, "model.byte_fallback")))
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "tokenizer.json: model BPE, BPE with byte_fallback wanted");
    v->rules.byte_level = !v->characters && hf_has_byte_level(v->json);
    v->rules.by_rank = !v->characters && !v->rules.byte_level;
    KVANT_TRY(hf_rules_read(v, diag));
    KVANT_TRY(add_vocabulary(v, diag));
    KVANT_TRY(v->characters ? hf_vocab_read_characters(v, diag) : add_listed(v, diag));
    if (!v->characters)
        KVANT_TRY(add_further(v, diag));
    warn_of_all_unknown(v);
    if (v->rules.by_rank)
        mark_characters(v);
    return KVANT_OK;
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
    hf_rules_read_spm(v);
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
    v->rules.spaces = HF_SPACES_UNSAID;
    if (size < 1 || size > MAX_TOKENS)
        return kvant_fail(diag, KVANT_EFORMAT, "vocab_size: is %u, 1 to %d wanted", size, MAX_TOKENS);
    KVANT_TRY(read_all(v, diag));
    KVANT_TRY(mark_all_added(v, diag));
    return v->rules.byte_level ? hf_vocab_find_pre(v, diag) : KVANT_OK;
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
    const int scores = v->spm || v->characters || v->rules.by_rank;
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

/* Writes how tokenizer.model changes a text beyond the spaces before it. */
static void put_normalised(const hf_vocab *v, gguf_keys *k)
{
    if (v->unigram.squeeze || v->unigram.on)
        gguf_keys_bool(k, "tokenizer.ggml.remove_extra_whitespaces", v->unigram.squeeze);
    if (!v->unigram.n_map)
        return;
    gguf_keys_array(k, "tokenizer.ggml.precompiled_charsmap", GGUF_U8, v->unigram.n_map);
    gguf_keys_put(k, v->unigram.map, v->unigram.n_map);
}

/* The keys that only unigram models have. */
static void put_unigram(const hf_vocab *v, gguf_keys *k)
{
    gguf_keys_bool(k, "tokenizer.ggml.add_space_prefix", v->unigram.space_prefix);
    put_normalised(v, k);
}

int hf_vocab_put(const hf_vocab *v, gguf_keys *k)
{
    const char *pre = v->pre ? v->pre : "default";
    const char *model = v->unigram.on ? "t5" : v->spm || v->rules.by_rank ? "llama" : "gpt2";

    if (v->characters) {
        gguf_keys_str(k, "tokenizer.ggml.model", "gemma4", 6);
        put_tokens(v, k);
        hf_rules_put(v, k);
        return KVANT_OK;
    }
    gguf_keys_str(k, "tokenizer.ggml.model", model, strlen(model));
    gguf_keys_str(k, "tokenizer.ggml.pre", pre, strlen(pre));
    put_tokens(v, k);
    if (v->unigram.on)
        put_unigram(v, k);
    else if (v->spm)
        put_normalised(v, k);
    if (v->rules.by_rank)
        gguf_keys_bool(k, "tokenizer.ggml.add_space_prefix",
                       v->rules.spaces != HF_SPACES_REPLACE && v->rules.spaces != HF_SPACES_NEVER);
    hf_rules_put(v, k);
    return KVANT_OK;
}
