/* hf_rules.c: see hf_rules.h.  Owns the list of what is understood: normalizers, the spaces of a vocabulary of
 * characters, the model's options, decoders, what is added to a text.  How texts are cut is hf_vocab_pre.c's. */
#include "make/convert/vocab/hf_rules.h"

#include <stdio.h>
#include <string.h>
#include "base/log.h"
#include "base/mem.h"
#include "make/convert/hf_config.h"
#include "make/convert/hf_vocab.h"
#include "model/gguf/gguf.h"
#include "text/added/added.h"

#define MARK "\xE2\x96\x81" /* U+2581 */

int hf_is(gjson v, const char *word)
{
    const size_t n = strlen(word);

    return v.p && v.n == n + 2 && v.p[0] == '"' && memcmp(v.p + 1, word, n) == 0;
}

int hf_true(gjson v)
{
    return v.p && v.n == 4 && memcmp(v.p, "true", 4) == 0;
}

static int is_null(gjson v)
{
    return !v.p || (v.n == 4 && memcmp(v.p, "null", 4) == 0);
}

static int refuse(kvant_diag *diag, const char *where, gjson found, const char *wanted)
{
    return kvant_fail(diag, KVANT_EUNSUPPORTED, "tokenizer.json: %s is %.*s, %s wanted", where, hf_shown(found),
                      found.p ? found.p : "absent", wanted);
}

/* One string of at most NORMAL_MAX_TEXT bytes -> out[*n]. */
static int take_text(gjson v, const char *where, char *out, size_t *n, kvant_diag *diag)
{
    char *text = v.p && *v.p == '"' ? kvant_alloc(v.n) : NULL;

    *n = text ? gjson_unescape(v, text) : SIZE_MAX;
    if (*n <= NORMAL_MAX_TEXT)
        memcpy(out, text, *n);
    kvant_free(text);
    return *n <= NORMAL_MAX_TEXT ? KVANT_OK : refuse(diag, where, v, "a text of at most 64 bytes");
}

/* The parts of a Sequence under `list`, or the one part that v is: calls `each` for them. */
static int for_each(hf_vocab *v, gjson part, const char *list, int (*each)(hf_vocab *, gjson, kvant_diag *),
                    kvant_diag *diag)
{
    gjson it = { NULL, 0 };

    if (is_null(part))
        return KVANT_OK;
    if (!hf_is(gjson_get(part, "type"), "Sequence"))
        return each(v, part, diag);
    while (gjson_next(gjson_get(part, list), &it))
        KVANT_TRY(for_each(v, it, list, each, diag)); /* a Sequence may hold another; JSON_DEPTH bounds that */
    return KVANT_OK;
}

/* ---- normalizers ---- */

static int add_step(hf_rules *r, enum normal_kind kind, kvant_diag *diag)
{
    return normal_add(&r->steps, kind, "", 0, "", 0) < 0
               ? kvant_fail(diag, KVANT_EUNSUPPORTED, "tokenizer.json: more than %d normalizers", NORMAL_MOST)
               : KVANT_OK;
}

static int add_strip(hf_rules *r, gjson part, kvant_diag *diag)
{
    if (hf_true(gjson_get(part, "strip_left")))
        KVANT_TRY(add_step(r, NORMAL_STRIP_LEFT, diag));
    return hf_true(gjson_get(part, "strip_right")) ? add_step(r, NORMAL_STRIP_RIGHT, diag) : KVANT_OK;
}

/* In a vocabulary of characters "prepend U+2581" and "U+2581 for a space" are the vocabulary's own way. */
static int is_own_prepend(const hf_rules *r, const char *s, size_t n)
{
    return !r->byte_level && n == 3 && memcmp(s, MARK, 3) == 0 && r->spaces == HF_SPACES_UNSAID;
}

static int add_prepend(hf_rules *r, gjson part, kvant_diag *diag)
{
    char s[NORMAL_MAX_TEXT];
    size_t n;

    KVANT_TRY(take_text(gjson_get(part, "prepend"), "normalizer Prepend", s, &n, diag));
    if (is_own_prepend(r, s, n)) {
        r->spaces = HF_SPACES_PREPEND;
        return KVANT_OK;
    }
    return normal_add(&r->steps, NORMAL_PREPEND, s, n, "", 0) < 0
               ? refuse(diag, "normalizer Prepend", part, "at most 16 normalizers")
               : KVANT_OK;
}

static int add_replace(hf_rules *r, gjson part, kvant_diag *diag)
{
    char from[NORMAL_MAX_TEXT], to[NORMAL_MAX_TEXT];
    size_t n_from, n_to;
    const gjson text = gjson_at(part, "pattern.String");

    if (!text.p)
        return refuse(diag, "normalizer Replace with pattern", gjson_get(part, "pattern"), "a \"String\"");
    KVANT_TRY(take_text(text, "normalizer Replace with pattern", from, &n_from, diag));
    KVANT_TRY(take_text(gjson_get(part, "content"), "normalizer Replace with content", to, &n_to, diag));
    if (!r->byte_level && n_from == 1 && from[0] == ' ' && n_to == 3 && memcmp(to, MARK, 3) == 0) {
        r->spaces = r->spaces == HF_SPACES_PREPEND ? HF_SPACES_PREPEND : HF_SPACES_REPLACE;
        return KVANT_OK;
    }
    return normal_add(&r->steps, NORMAL_REPLACE, from, n_from, to, n_to) < 0
               ? refuse(diag, "normalizer Replace", part, "a text that is not empty, at most 16 normalizers")
               : KVANT_OK;
}

static int add_normalizer(hf_vocab *v, gjson part, kvant_diag *diag)
{
    static const struct {
        const char *type;
        enum normal_kind kind;
    } plain[] = { { "NFC", NORMAL_NFC },
                  { "NFD", NORMAL_NFD },
                  { "NFKC", NORMAL_NFKC },
                  { "NFKD", NORMAL_NFKD },
                  { "Lowercase", NORMAL_LOWERCASE },
                  { "StripAccents", NORMAL_STRIP_ACCENTS } };
    hf_rules *r = &v->rules;
    const gjson type = gjson_get(part, "type");

    if (r->spaces == HF_SPACES_REPLACE || (r->spaces == HF_SPACES_PREPEND && !hf_is(type, "Replace")))
        return refuse(diag, "a normalizer behind the one that replaces spaces", type, "none");
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (hf_is(type, plain[i].type))
            return add_step(r, plain[i].kind, diag);
    if (hf_is(type, "Strip"))
        return add_strip(r, part, diag);
    if (hf_is(type, "Prepend"))
        return add_prepend(r, part, diag);
    if (hf_is(type, "Replace"))
        return add_replace(r, part, diag);
    return refuse(diag, "a normalizer", type,
                  "NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Prepend or Replace");
}

/* ---- the spaces of a vocabulary of characters ---- */

static int add_metaspace(hf_rules *r, gjson part, kvant_diag *diag)
{
    const gjson scheme = gjson_get(part, "prepend_scheme"), old = gjson_get(part, "add_prefix_space");
    const gjson split = gjson_get(part, "split");

    if (!hf_is(gjson_get(part, "replacement"), MARK) && !hf_is(gjson_get(part, "replacement"), "\\u2581"))
        return refuse(diag, "pre_tokenizer Metaspace with replacement", gjson_get(part, "replacement"), "U+2581");
    if (r->spaces != HF_SPACES_UNSAID)
        return refuse(diag, "pre_tokenizer behind a normalizer of spaces", gjson_get(part, "type"), "none");
    r->split_spaces = is_null(split) || hf_true(split);
    if (is_null(scheme) ? hf_true(old) || is_null(old) : hf_is(scheme, "always"))
        r->spaces = HF_SPACES_ALWAYS;
    else if (hf_is(scheme, "first"))
        r->spaces = HF_SPACES_FIRST;
    else if (is_null(scheme) || hf_is(scheme, "never"))
        r->spaces = HF_SPACES_NEVER;
    else
        return refuse(diag, "pre_tokenizer Metaspace with prepend_scheme", scheme, "always, first or never");
    return KVANT_OK;
}

static int add_pre_tokenizer(hf_vocab *v, gjson part, kvant_diag *diag)
{
    const gjson type = gjson_get(part, "type");

    if (hf_is(type, "Metaspace"))
        return add_metaspace(&v->rules, part, diag);
    /* Gemma's: no space is left to split at. */
    if (hf_is(type, "Split") && hf_is(gjson_at(part, "pattern.String"), " ") && v->rules.spaces <= HF_SPACES_PREPEND)
        return KVANT_OK;
    return refuse(diag, "pre_tokenizer of a vocabulary of characters", type, "Metaspace, or none");
}

/* ---- the model ---- */

static int has_all_bytes(const hf_vocab *v)
{
    const gjson map = gjson_at(v->json, "model.vocab");
    gjson key = { NULL, 0 }, it = { NULL, 0 };
    int n = 0;

    while (gjson_member(map, &key, &it)) { /* the alphabet's characters: one, or two bytes from C2 to C5 */
        char s[8];
        const size_t k = key.n <= 8 ? gjson_unescape(key, s) : 0;
        n += (k == 1 && s[0] > 32 && s[0] < 127) || (k == 2 && (uint8_t)s[0] >= 0xC2 && (uint8_t)s[0] <= 0xC5);
    }
    return n >= 256;
}

/* The options of BPE. */
static int read_model(hf_vocab *v, kvant_diag *diag)
{
    const gjson m = gjson_get(v->json, "model"), dropout = gjson_get(m, "dropout");
    const gjson fuse = gjson_get(m, "fuse_unk"), fallback = gjson_get(m, "byte_fallback");
    static const char *const affixes[] = { "continuing_subword_prefix", "end_of_word_suffix" };

    if (!is_null(dropout) && gjson_number(dropout) != 0)
        return refuse(diag, "model's dropout", dropout, "none");
    for (int i = 0; i < 2; i++) {
        const gjson affix = gjson_get(m, affixes[i]);
        if (!is_null(affix) && affix.n != 2)
            return refuse(diag, affixes[i], affix, "none");
    }
    v->rules.fuse_unk = hf_true(fuse);
    v->rules.ignore_merges = hf_true(gjson_get(m, "ignore_merges"));
    if (!v->rules.byte_level && v->rules.ignore_merges)
        return refuse(diag, "model's ignore_merges of a vocabulary of characters", gjson_get(m, "ignore_merges"),
                      "false");
    if (v->rules.byte_level && (hf_true(fuse) || hf_true(fallback)) && !has_all_bytes(v))
        return refuse(diag, hf_true(fuse) ? "model's fuse_unk" : "model's byte_fallback",
                      hf_true(fuse) ? fuse : fallback, "false, or a token for each of the 256 bytes");
    return KVANT_OK;
}

static int check_decoder(hf_vocab *v, gjson part, kvant_diag *diag)
{
    (void)diag;
    static const char *const characters[] = { "Replace", "ByteFallback", "Fuse", "Strip", "Metaspace", NULL };
    static const char *const bytes[] = { "ByteLevel", "Fuse", NULL };
    const gjson type = gjson_get(part, "type");

    for (const char *const *k = v->rules.byte_level ? bytes : characters; *k; k++)
        if (hf_is(type, *k))
            return KVANT_OK;
    log_msg(LOG_WARN, "tokenizer.json: decoder is %.*s, %s expected: tokens are shown as the vocabulary has them",
            hf_shown(type), type.p ? type.p : "absent",
            v->rules.byte_level ? "ByteLevel" : "Replace, ByteFallback, Fuse and Strip");
    return KVANT_OK; /* ids are not its business */
}

/* ---- what is added to a text ---- */

/* "single" of a TemplateProcessing: tokens, the text, at most one token. */
static int read_single(hf_vocab *v, gjson single, kvant_diag *diag)
{
    gjson it = { NULL, 0 }, before[HF_MOST_PREFIX] = { { NULL, 0 } };
    int n = 0, texts = 0, behind = 0;

    while (gjson_next(single, &it)) {
        const gjson id = gjson_at(it, "SpecialToken.id");
        if (gjson_get(it, "Sequence").p)
            texts++;
        else if (!id.p || (!texts && n == HF_MOST_PREFIX))
            return refuse(diag, "post_processor TemplateProcessing with", it, "at most 8 tokens and a Sequence");
        else if (!texts)
            before[n++] = id;
        else
            behind++;
    }
    if (texts != 1 || behind > 1)
        return refuse(diag, "post_processor TemplateProcessing's single", single,
                      "tokens, the text once, and at most one token");
    memcpy(v->rules.prefix, before, (size_t)n * sizeof *before);
    v->rules.n_prefix = n;
    return KVANT_OK;
}

static int check_processor(hf_vocab *v, gjson part, kvant_diag *diag)
{
    const gjson type = gjson_get(part, "type");

    if (hf_is(type, "TemplateProcessing"))
        return read_single(v, gjson_get(part, "single"), diag);
    if (hf_is(type, "RobertaProcessing") || hf_is(type, "BertProcessing")) {
        v->rules.prefix[0] = gjson_at(part, "cls.0");
        v->rules.n_prefix = v->rules.prefix[0].p != NULL;
        return KVANT_OK; /* what ends a text is not added to prompts */
    }
    if (hf_is(type, "ByteLevel"))
        return KVANT_OK; /* offsets */
    return refuse(diag, "post_processor", type, "TemplateProcessing, ByteLevel, RobertaProcessing or BertProcessing");
}

/* ---- all of it ---- */

int hf_has_byte_level(gjson json)
{
    const gjson pre = gjson_get(json, "pre_tokenizer");
    gjson it = { NULL, 0 };

    if (hf_is(gjson_get(pre, "type"), "ByteLevel"))
        return 1;
    while (gjson_next(gjson_get(pre, "pretokenizers"), &it))
        if (hf_is(gjson_get(it, "type"), "ByteLevel"))
            return 1;
    return 0;
}

int hf_rules_read(hf_vocab *v, kvant_diag *diag)
{
    hf_rules *r = &v->rules;

    KVANT_TRY(for_each(v, gjson_get(v->json, "normalizer"), "normalizers", add_normalizer, diag));
    if (!r->byte_level)
        KVANT_TRY(for_each(v, gjson_get(v->json, "pre_tokenizer"), "pretokenizers", add_pre_tokenizer, diag));
    if (!r->byte_level && r->spaces == HF_SPACES_UNSAID)
        return refuse(diag, "pre_tokenizer of a vocabulary of characters", gjson_get(v->json, "pre_tokenizer"),
                      "ByteLevel or Metaspace, or normalizers that replace spaces by U+2581");
    KVANT_TRY(read_model(v, diag));
    KVANT_TRY(for_each(v, gjson_get(v->json, "decoder"), "decoders", check_decoder, diag));
    return for_each(v, gjson_get(v->json, "post_processor"), "processors", check_processor, diag);
}

static int prepends(gjson normalizer)
{
    gjson it = { NULL, 0 };

    if (hf_is(gjson_get(normalizer, "type"), "Prepend"))
        return 1;
    while (gjson_next(gjson_get(normalizer, "normalizers"), &it))
        if (hf_is(gjson_get(it, "type"), "Prepend"))
            return 1;
    return 0;
}

void hf_rules_read_spm(hf_vocab *v)
{
    const gjson legacy = gjson_get(v->config, "legacy"), pre = gjson_get(v->json, "pre_tokenizer");
    const gjson scheme = gjson_get(pre, "prepend_scheme"), prefix = gjson_get(v->config, "add_prefix_space");
    const int metaspace = hf_is(gjson_get(pre, "type"), "Metaspace");

    if (metaspace && hf_is(scheme, "first"))
        v->rules.spaces = HF_SPACES_FIRST;
    else if (metaspace && hf_is(scheme, "always") && !v->unigram.on)
        v->rules.spaces = HF_SPACES_ALWAYS;
    else if (metaspace && hf_is(scheme, "never") && !v->unigram.on)
        v->rules.spaces = HF_SPACES_NEVER;
    else if (!v->unigram.on && prepends(gjson_get(v->json, "normalizer")))
        v->rules.spaces = HF_SPACES_PREPEND;
    else if (!v->json.p && legacy.p && *legacy.p == 'f' && v->unigram.space_prefix && !(prefix.p && *prefix.p == 'f'))
        v->rules.spaces = HF_SPACES_BEGIN;
}

/* ---- keys ---- */

static int put_flag(const hf_vocab *v, gguf_keys *k, const char *key, int flag)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < v->n; i++)
        n += v->tokens[i].flags & flag ? 1 : 0;
    if (!n)
        return 0;
    gguf_keys_array(k, key, GGUF_U32, n);
    for (uint32_t i = 0; i < v->n; i++)
        if (v->tokens[i].flags & flag)
            gguf_keys_put(k, &i, sizeof i);
    return 1;
}

/* Does it matter which added tokens are looked for in the normalised text? */
static int order_matters(const hf_vocab *v)
{
    int with = 0, without = 0;

    for (uint32_t i = 0; i < v->n; i++) {
        with |= v->tokens[i].flags & ADDED_NORMALIZED;
        without |= v->tokens[i].is_added && !(v->tokens[i].flags & ADDED_NORMALIZED);
    }
    const int changes = v->rules.steps.n > 0 || v->rules.spaces != HF_SPACES_UNSAID;
    return with && (without || changes);
}

static int put_steps(const normal *c, gguf_keys *k)
{
    uint64_t n = 0;

    for (int i = 0; i < c->n; i++)
        n += c->steps[i].kind == NORMAL_REPLACE ? 3 : c->steps[i].kind == NORMAL_PREPEND ? 2 : 1;
    gguf_keys_array(k, "kvant.tokenizer.normalizers", GGUF_STRING, n);
    for (int i = 0; i < c->n; i++) {
        const normal_step *s = &c->steps[i];
        gguf_keys_array_str(k, normal_name(s->kind), strlen(normal_name(s->kind)));
        if (s->kind == NORMAL_PREPEND || s->kind == NORMAL_REPLACE)
            gguf_keys_array_str(k, s->from, s->n_from);
        if (s->kind == NORMAL_REPLACE)
            gguf_keys_array_str(k, s->to, s->n_to);
    }
    return 1;
}

void hf_rules_put_prefix(const hf_vocab *v, int is_bos, gguf_keys *k)
{
    const hf_rules *r = &v->rules;
    uint32_t ids[HF_MOST_PREFIX];
    int n = 0;

    for (int i = 0; i < r->n_prefix; i++) {
        const int64_t id = hf_vocab_listed_id(v, r->prefix[i]);
        if (id >= 0 && id < v->n)
            ids[n++] = (uint32_t)id;
    }
    if (n == 0 || (n == 1 && is_bos))
        return;
    gguf_keys_array(k, "kvant.tokenizer.prefix", GGUF_U32, (uint64_t)n);
    gguf_keys_put(k, ids, (size_t)n * sizeof *ids);
}

static int token_is(const hf_vocab *v, uint32_t id, const char *text)
{
    return id < v->n && v->tokens[id].s && v->tokens[id].n == strlen(text) &&
           memcmp(v->tokens[id].s, text, v->tokens[id].n) == 0;
}

/* Tokens by which a reader knows a model, and takes what the file does not say from that: added_models.c. */
static int looks_known(const hf_vocab *v)
{
    for (uint32_t i = 0; i < v->n; i++)
        if (token_is(v, i, "<|im_sep|>") || token_is(v, i, "<|user|>"))
            return 1;
    return 0;
}

void hf_rules_put(const hf_vocab *v, gguf_keys *k)
{
    static const char *const spaces[] = { "replace", "prepend", "always", "first", "never", "begin" };
    const hf_rules *r = &v->rules;
    int said = put_flag(v, k, "kvant.tokenizer.lstrip", ADDED_LSTRIP);

    said |= put_flag(v, k, "kvant.tokenizer.rstrip", ADDED_RSTRIP);
    said |= put_flag(v, k, "kvant.tokenizer.single_word", ADDED_WORD);
    said |= put_flag(v, k, "kvant.tokenizer.symbols", ADDED_SYMBOL);
    if (order_matters(v))
        said |= put_flag(v, k, "kvant.tokenizer.normalized", ADDED_NORMALIZED);
    if (r->other_nfc || (r->steps.n && !r->byte_level))
        said |= put_steps(&r->steps, k);
    const int named = r->spaces == HF_SPACES_PREPEND && token_is(v, 3, "[INST]"); /* read as Mistral's third else */
    if (r->spaces >= HF_SPACES_ALWAYS ? r->spaces < HF_SPACES_UNSAID : r->by_rank || named) {
        gguf_keys_str(k, "kvant.tokenizer.spaces", spaces[r->spaces], strlen(spaces[r->spaces]));
        said = 1;
    }
    if (r->by_rank) {
        gguf_keys_bool(k, "kvant.tokenizer.by_rank", 1);
        gguf_keys_bool(k, "kvant.tokenizer.split_spaces", r->split_spaces);
        gguf_keys_bool(k, "kvant.tokenizer.fuse_unk", r->fuse_unk);
        said = 1;
    }
    if (r->other_ignore) {
        gguf_keys_bool(k, "kvant.tokenizer.ignore_merges", r->ignore_merges);
        said = 1;
    }
    if (said || looks_known(v))
        gguf_keys_u32(k, "kvant.tokenizer.rules", 1);
}
