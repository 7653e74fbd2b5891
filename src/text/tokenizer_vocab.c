/* tokenizer_vocab.c: see tokenizer_vocab.h.  Owns the token texts, their hash table and the trie of special tokens. */
#include "text/tokenizer_vocab.h"

#include <string.h>
#include "base/log.h"
#include "base/mem.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

enum {
    MAX_TOKENS = 1 << 22, /* the largest vocabularies in use have 2^18; bounds what a hostile file can ask for */
    MAX_TEXT = TOKENIZER_MAX_TEXT,
    MAX_SPECIAL = 512, /* a special text is compared at every place of the input: bounds that product */
    MAX_PROBES = 512,  /* see bpe_add */
};

/* Texts that end a generation or open a turn in the chat formats we know.  Some files store them as normal or
 * user-defined tokens; taken so, a user's message could form them.  They are control tokens whatever the file says,
 * unless a merge makes them: then they are words of the language ("<s>" in a vocabulary trained on HTML). */
static const struct {
    const char *text;
    int eog;
} known_control[] = {
    { "<|im_end|>", 1 },
    { "<|endoftext|>", 1 },
    { "<|eot_id|>", 1 },
    { "<|eom_id|>", 1 },
    { "<|end_of_text|>", 1 },
    { "<end_of_turn>", 1 },
    { "<eos>", 1 },
    { "</s>", 1 },
    { "<|end|>", 1 },
    { "<|return|>", 1 },
    { "<|call|>", 1 },
    { "<|calls|>", 1 },
    { "<|flush|>", 1 },
    { "<turn|>", 1 },
    { "<|tool_response>", 1 },
    { "[e~[", 1 },
    { "<\xef\xbd\x9c"
      "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
      1 },
    { "<EOT>", 1 },
    { "_<EOT>", 1 },
    { "[EOT]", 1 },
    { "[EOS]", 1 },
    { "<end_of_utterance>", 1 },
    { "<|im_start|>", 0 },
    { "<|begin_of_text|>", 0 },
    { "<|start_header_id|>", 0 },
    { "<|end_header_id|>", 0 },
    { "<start_of_turn>", 0 },
    { "<bos>", 0 },
    { "<s>", 0 },
    { "<|turn>", 0 },
    { "[INST]", 0 },
    { "[/INST]", 0 },
    { "[SYSTEM_PROMPT]", 0 },
    { "[/SYSTEM_PROMPT]", 0 },
};

int vocab_is_known_end(const char *s, size_t n)
{
    for (size_t i = 0; i < sizeof known_control / sizeof *known_control; i++)
        if (known_control[i].eog && strlen(known_control[i].text) == n && memcmp(known_control[i].text, s, n) == 0)
            return 1;
    return 0;
}

const char *vocab_show(const char *s, size_t n, char *buf, size_t cap)
{
    size_t i = 0;
    for (; i < n && i + 1 < cap; i++)
        buf[i] = (char)((uint8_t)s[i] >= 0x20 && (uint8_t)s[i] != 0x7F ? s[i] : '?');
    while (i > 0 && i < n && ((uint8_t)s[i] & 0xC0) == 0x80)
        i--; /* cut between characters */
    i = utf8_valid_prefix((const uint8_t *)buf, i);
    buf[i] = 0;
    return buf;
}

/* ---- lookup ---- */

static uint32_t text_hash(const char *s, size_t n)
{
    uint64_t h = 0x9E3779B97F4A7C15u ^ n;

    for (size_t i = 0; i < n; i++)
        h = (h ^ (uint8_t)s[i]) * 0x100000001B3u;
    h = (h ^ (h >> 29)) * 0xBF58476D1CE4E5B9u;
    return (uint32_t)(h >> 32);
}

static int text_is(const vocab *v, uint32_t id, const char *s, size_t n)
{
    const vocab_token *t = &v->tokens[id];
    return t->len == n && memcmp(v->text + t->at, s, n) == 0;
}

int32_t vocab_find(const vocab *v, const char *text, size_t len)
{
    if (len == 0 || len > v->longest)
        return -1;
    for (uint32_t at = text_hash(text, len) & v->mask; v->slots[at]; at = (at + 1) & v->mask)
        if (text_is(v, v->slots[at] - 1, text, len))
            return (int32_t)(v->slots[at] - 1);
    return -1;
}

/* Returns -1 when it is new, -2 when the table clusters, else the id of the equal text. */
static int64_t insert(vocab *v, uint32_t id)
{
    const vocab_token *t = &v->tokens[id];
    uint32_t at = text_hash(v->text + t->at, t->len) & v->mask;

    for (int probes = 0; probes < MAX_PROBES; probes++, at = (at + 1) & v->mask) {
        if (!v->slots[at]) {
            v->slots[at] = id + 1;
            return -1;
        }
        if (text_is(v, v->slots[at] - 1, v->text + t->at, t->len))
            return v->slots[at] - 1;
    }
    return -2;
}

/* ---- reading ---- */

static int read_texts(vocab *v, const gguf *g, kvant_diag *diag)
{
    const char *key = "tokenizer.ggml.tokens";
    gguf_iter it, again;
    gguf_str s;
    int n;
    size_t total = 0;

    KVANT_TRY(gguf_strings(g, key, 1, &it, &n, diag));
    if (n < 1 || n > MAX_TOKENS)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %d tokens, want 1 to %d", key, n, MAX_TOKENS);
    again = it;
    for (int i = 0; gguf_next(&it, &s); i++) {
        if (s.n > MAX_TEXT)
            return kvant_fail(diag, KVANT_EFORMAT, "%s[%d]: %zu bytes, want 1 to %d", key, i, s.n, MAX_TEXT);
        if (!size_add(total, s.n, &total) || total > UINT32_MAX)
            return kvant_fail(diag, KVANT_EFORMAT, "%s: more than 4 GiB of text", key);
    }
    v->tokens = kvant_calloc((size_t)n, sizeof *v->tokens);
    v->text = kvant_alloc(total + 1);
    v->mask = 63;
    while (v->mask < 2 * (uint32_t)n)
        v->mask = 2 * v->mask + 1;
    v->slots = kvant_calloc((size_t)v->mask + 1, sizeof *v->slots);
    if (!v->tokens || !v->text || !v->slots)
        return kvant_fail(diag, KVANT_ENOMEM, "%s: no memory for %d tokens", key, n);
    uint32_t used = 0;
    while (v->n < (uint32_t)n && gguf_next(&again, &s)) {
        if (s.n > total - used)
            return kvant_fail(diag, KVANT_EIO, "%s: the file changed while it was read", key);
        memcpy(v->text + used, s.s, s.n);
        v->tokens[v->n++] = (vocab_token){ used, (uint32_t)s.n, VOCAB_NORMAL, 0, 0, 0, 0 };
        used += (uint32_t)s.n;
        if (s.n > v->longest)
            v->longest = (uint32_t)s.n;
    }
    if (v->n != (uint32_t)n)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %u texts, want %d", key, v->n, n);
    return KVANT_OK;
}

static int is_of_kind(const gguf_kv *kv, uint32_t i, int64_t wanted)
{
    int64_t kind = -1;

    return kv && i < kv->count && gguf_integer_at(kv, i, &kind) && kind == wanted;
}

/* Types as the file has them; a token without one is normal, or a byte by its text.  Type 0 says nothing where others
 * are normal, else it stands for normal.  Nothing is made of an empty text. */
static void take_kinds(vocab *v, const gguf_kv *kv, uint32_t *unknown)
{
    uint32_t any = 0;

    while (kv && any < v->n && !is_of_kind(kv, any, VOCAB_NORMAL))
        any++;
    for (uint32_t i = 0; i < v->n; i++) {
        const int byte = !kv && v->raw && vocab_byte(v, &v->tokens[i]) >= 0;
        int64_t kind = byte ? VOCAB_BYTE : VOCAB_NORMAL;
        const int odd = kv && i < kv->count && (!gguf_integer_at(kv, i, &kind) || kind < 0 || kind > VOCAB_BYTE);
        if (odd || (kind == 0 && any >= v->n)) {
            kind = VOCAB_NORMAL;
            ++*unknown;
        }
        v->tokens[i].kind = (uint8_t)(kind == 0 || v->tokens[i].len == 0 ? VOCAB_UNUSED : kind);
    }
}

static int read_kinds(vocab *v, const gguf *g, kvant_diag *diag)
{
    const char *key = "tokenizer.ggml.token_type";
    const gguf_kv *kv = gguf_find(g, key);
    uint32_t unknown = 0;

    if (kv && (kv->type != GGUF_ARRAY || kv->elem == GGUF_STRING || kv->elem == GGUF_BOOL))
        return kvant_fail(diag, KVANT_EFORMAT, "%s: no array of integers, want one with a type for each token", key);
    take_kinds(v, kv, &unknown);
    if (!kv)
        log_msg(LOG_WARN, "%s: absent; all %u tokens are taken as normal ones, bytes and special tokens by their texts",
                key, v->n);
    else if (kv->count != v->n)
        log_msg(LOG_WARN, "%s: %llu entries, wanted one per token: %u; tokens without one are taken as normal", key,
                (unsigned long long)kv->count, v->n);
    if (unknown)
        log_msg(LOG_WARN, "%s: %u tokens have a type that is not 1 to 6; they are taken as normal", key, unknown);
    return KVANT_OK;
}

/* Ids at the end that no row of the embedding has: added tokens that the model was not made wider for. */
static int drop_rowless(vocab *v, int rows, kvant_diag *diag)
{
    const uint32_t n = v->n;

    if (rows <= 0 || n <= (uint32_t)rows)
        return KVANT_OK;
    for (uint32_t i = (uint32_t)rows; i < n; i++)
        if (v->tokens[i].kind == VOCAB_NORMAL || v->tokens[i].kind == VOCAB_BYTE)
            return kvant_fail(diag, KVANT_EFORMAT,
                              "tokenizer.ggml.tokens: %u tokens, token_embd.weight has %d rows (token "
                              "%u without a row is no added one)",
                              n, rows, i);
    v->n = (uint32_t)rows;
    log_msg(LOG_WARN,
            "tokenizer.ggml.tokens: %u tokens, token_embd.weight has %d rows; the last %u, added tokens, are "
            "left out",
            n, rows, n - v->n);
    return KVANT_OK;
}

/* Which of two ids with one text stands for it: a special one, else a normal one, else the first. */
static int worth(const vocab_token *t)
{
    return t->kind == VOCAB_UNUSED ? 0 : t->kind == VOCAB_NORMAL ? 1 : 2;
}

static void settle_twins(vocab *v, uint32_t id, uint32_t first)
{
    vocab_token *t = &v->tokens[id], *f = &v->tokens[first];
    uint32_t at = text_hash(v->text + t->at, t->len) & v->mask;

    t->twin = 1;
    if (worth(t) <= worth(f))
        return;
    while (v->slots[at] != first + 1)
        at = (at + 1) & v->mask;
    v->slots[at] = id + 1;
    t->twin = 0;
    f->twin = 1;
}

static int fill_table(vocab *v, kvant_diag *diag)
{
    char shown[64] = "";
    uint32_t twins = 0, empty = 0, last = 0;

    for (uint32_t i = 0; i < v->n; i++) {
        const int64_t r = v->tokens[i].len ? insert(v, i) : -1;
        empty += v->tokens[i].len == 0;
        if (r == -1)
            continue;
        vocab_show(v->text + v->tokens[i].at, v->tokens[i].len, shown, sizeof shown);
        if (r < 0)
            return kvant_fail(diag, KVANT_EFORMAT, "tokenizer.ggml.tokens[%u] '%s': the texts collide beyond chance", i,
                              shown);
        settle_twins(v, i, (uint32_t)r);
        twins++;
        last = i;
    }
    if (twins)
        log_msg(LOG_WARN,
                "tokenizer.ggml.tokens: %u texts are there twice, for example '%s' (%u); one id stands for each in "
                "prompts",
                twins, shown, last);
    if (empty)
        log_msg(LOG_WARN, "tokenizer.ggml.tokens: %u tokens have an empty text; they write nothing", empty);
    return KVANT_OK;
}

static int has_text(const vocab *v, const char *text)
{
    return vocab_find(v, text, strlen(text)) >= 0;
}

/* Is the text a word of the language here?  Gemma has <bos> and <eos>; its <s> and </s> are HTML. */
static int is_word(const vocab *v, const char *text)
{
    return (strcmp(text, "<s>") == 0 || strcmp(text, "</s>") == 0) && has_text(v, "<bos>") && has_text(v, "<eos>");
}

/* In a vocabulary whose answers have parts, <|end|> ends one of them (a thought) and not the answer. */
static int end_is_of_part(const vocab *v)
{
    return (has_text(v, "<|channel|>") && has_text(v, "<|return|>")) ||
           (has_text(v, "<|calls|>") && has_text(v, "<|flush|>"));
}

static void mark_known(vocab *v)
{
    for (size_t i = 0; i < sizeof known_control / sizeof known_control[0]; i++) {
        int32_t id = vocab_find(v, known_control[i].text, strlen(known_control[i].text));
        if (id < 0 ||
            ((v->tokens[id].made || is_word(v, known_control[i].text)) && v->tokens[id].kind != VOCAB_CONTROL))
            continue;
        v->tokens[id].kind = VOCAB_CONTROL;
        v->tokens[id].eog |= (uint8_t)known_control[i].eog;
    }
    const int32_t end = vocab_find(v, "<|end|>", 7);
    if (end >= 0 && end_is_of_part(v))
        v->tokens[end].eog = 0;
}

static int fill_bytes(vocab *v, kvant_diag *diag)
{
    for (int b = 0; b < 256; b++) {
        char text[2];
        int32_t id = v->raw ? -1 : vocab_find(v, text, (size_t)vocab_alphabet((uint8_t)b, text));
        /* an added token may be a letter of the alphabet, too */
        v->byte_id[b] = id >= 0 && (v->tokens[id].kind == VOCAB_NORMAL || v->tokens[id].kind == VOCAB_USER) ? id : -1;
    }
    for (uint32_t i = 0; i < v->n; i++) {
        if (v->tokens[i].kind != VOCAB_BYTE)
            continue;
        char shown[64];
        int b = vocab_byte(v, &v->tokens[i]);
        if (b < 0)
            return kvant_fail(diag, KVANT_EFORMAT, "tokenizer.ggml.tokens[%u]: byte token '%s', want <0x00> to <0xFF>",
                              i, vocab_show(v->text + v->tokens[i].at, v->tokens[i].len, shown, sizeof shown));
        if (v->byte_id[b] < 0)
            v->byte_id[b] = (int32_t)i;
    }
    return KVANT_OK;
}

/* ---- special tokens ---- */

/* A token's text as it stands in a normalised text. */
static int add_normalised(vocab *v, uint32_t id, const normal *change, normal_work *w, kvant_diag *diag)
{
    const char *s = v->text + v->tokens[id].at;
    size_t n = v->tokens[id].len;

    KVANT_TRY(normal_apply(change, w, &s, &n, diag));
    if (n > 0 && added_insert(&v->special[ADDED_AFTER], v, id, s, n) < 0)
        return kvant_fail(diag, KVANT_ENOMEM, "tokenizer.ggml.tokens: out of memory for the special tokens");
    return KVANT_OK;
}

static int add_special(vocab *v, uint32_t id, const normal *change, normal_work *w, kvant_diag *diag)
{
    const vocab_token *t = &v->tokens[id];
    const char *s = v->text + t->at;
    const int after = t->flags & ADDED_NORMALIZED;

    if (t->len > MAX_SPECIAL)
        return kvant_fail(diag, KVANT_EFORMAT, "tokenizer.ggml.tokens[%u]: special token of %u bytes, want at most %d",
                          id, t->len, MAX_SPECIAL);
    if ((!after && added_insert(&v->special[ADDED_RAW], v, id, s, t->len) < 0) ||
        ((!after || vocab_is_format(v, (int32_t)id)) && added_insert(&v->special[ADDED_MARKED], v, id, s, t->len) < 0))
        return kvant_fail(diag, KVANT_ENOMEM, "tokenizer.ggml.tokens: out of memory for the special tokens");
    return after ? add_normalised(v, id, change, w, diag) : KVANT_OK;
}

static int fill_tries(vocab *v, const normal *change, kvant_diag *diag)
{
    normal_work w = { 0 };
    int rc = KVANT_OK;

    for (uint32_t i = 0; rc == KVANT_OK && i < v->n; i++)
        if (!v->tokens[i].twin && (v->tokens[i].kind == VOCAB_USER || vocab_is_control(v, (int32_t)i)))
            rc = add_special(v, i, change, &w, diag);
    normal_work_free(&w);
    return rc;
}

int vocab_open(vocab *v, const gguf *g, int raw, int rows, kvant_diag *diag)
{
    memset(v, 0, sizeof *v);
    v->raw = raw;
    int err = read_texts(v, g, diag);
    if (err == 0)
        err = read_kinds(v, g, diag);
    if (err == 0)
        err = drop_rowless(v, rows, diag);
    if (err == 0)
        err = fill_table(v, diag);
    if (err == 0)
        err = fill_bytes(v, diag);
    if (err < 0)
        vocab_close(v);
    return err;
}

int vocab_finish(vocab *v, const normal *change, kvant_diag *diag)
{
    mark_known(v);
    return fill_tries(v, change, diag);
}

int vocab_is_control(const vocab *v, int32_t id)
{
    return v->tokens[id].kind == VOCAB_CONTROL || v->tokens[id].kind == VOCAB_UNKNOWN;
}

int vocab_is_format(const vocab *v, int32_t id)
{
    return vocab_is_control(v, id) || (v->tokens[id].kind == VOCAB_USER && (v->tokens[id].flags & ADDED_MARKER));
}

void vocab_close(vocab *v)
{
    for (int i = 0; i < ADDED_SETS; i++)
        kvant_free(v->special[i].nodes);
    kvant_free(v->tokens);
    kvant_free(v->text);
    kvant_free(v->slots);
    memset(v, 0, sizeof *v);
}
