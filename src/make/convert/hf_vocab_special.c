/* hf_vocab_special.c: the special tokens, what a tokenizer adds to a text, and the merges.  Owns the rules by which
 * tokenizer.json's post-processor, tokenizer_config.json, config.json and generation_config.json say so. */
#include <stdio.h>
#include <string.h>
#include "base/log.h"
#include "base/mem.h"
#include "make/convert/hf_config.h"
#include "make/convert/hf_vocab.h"
#include "model/gguf/gguf.h"
#include "text/tokenizer_vocab.h"

enum { MAX_ENDS = 256 }; /* arbitrary, above any model */
enum { BOS, EOS, UNK, SEP, PAD, CLS, MASK, EOT, EOM, KINDS };

/* In the order in which they are looked for; cls has no key in GGUF. */
static const struct {
    const char *name, *key, *add;
} kinds[KINDS] = {
    [BOS] = { "bos", "tokenizer.ggml.bos_token_id", "tokenizer.ggml.add_bos_token" },
    [EOS] = { "eos", "tokenizer.ggml.eos_token_id", "tokenizer.ggml.add_eos_token" },
    [UNK] = { "unk", "tokenizer.ggml.unknown_token_id", NULL },
    [SEP] = { "sep", "tokenizer.ggml.seperator_token_id", "tokenizer.ggml.add_sep_token" },
    [PAD] = { "pad", "tokenizer.ggml.padding_token_id", NULL },
    [CLS] = { "cls", NULL, NULL },
    [MASK] = { "mask", "tokenizer.ggml.mask_token_id", NULL },
    [EOT] = { "eot", "tokenizer.ggml.eot_token_id", NULL },
    [EOM] = { "eom", "tokenizer.ggml.eom_token_id", NULL },
};

/* Strings stay spans of the files: JSON escapes are compared as they are written. */
typedef struct special {
    const hf_vocab *v;
    gjson text[KINDS]; /* "<s>" with its quotes; absent: none */
    int64_t id[KINDS]; /* -1: none */
    int add[KINDS];    /* -1: not said */
    int id_order[KINDS], n_ids;
    int add_order[KINDS], n_adds;
} special;

static int same(gjson a, gjson b)
{
    return a.p && b.p && a.n == b.n && memcmp(a.p, b.p, a.n) == 0;
}

static int is_text(gjson v)
{
    return v.p && *v.p == '"';
}

static void set_add(special *s, int kind, int on)
{
    if (s->add[kind] < 0)
        s->add_order[s->n_adds++] = kind;
    s->add[kind] = on;
}

static void set_id(special *s, int kind, int64_t id)
{
    if (id < 0 || id >= s->v->n || s->id[kind] >= 0)
        return;
    s->id[kind] = id;
    s->id_order[s->n_ids++] = kind;
}

/* ---- the post-processor ---- */

static gjson element(gjson list, int last)
{
    gjson it = { NULL, 0 }, found = { NULL, 0 };

    while (gjson_next(list, &it)) {
        found = it;
        if (!last)
            break;
    }
    return found;
}

static int count(gjson list)
{
    gjson it = { NULL, 0 };
    int n = 0;

    while (n < 2 && gjson_next(list, &it))
        n++;
    return n;
}

/* "single" of a TemplateProcessing: what stands first and last is added to every text. */
static void read_template(special *s, gjson single)
{
    if (count(single) < 2)
        return;
    const gjson first = gjson_at(element(single, 0), "SpecialToken.id");
    const gjson last = gjson_at(element(single, 1), "SpecialToken.id");
    if (is_text(first)) {
        if (!same(first, s->text[BOS]) && !same(first, s->text[CLS])) {
            s->text[BOS] = s->text[BOS].p ? s->text[BOS] : first;
            s->text[CLS] = s->text[CLS].p ? s->text[CLS] : first;
        }
        set_add(s, BOS, same(first, s->text[BOS]) || same(first, s->text[CLS]));
    }
    if (is_text(last)) {
        if (!same(last, s->text[EOS])) { /* what ends a turn, beside what ends a text */
            const int turn = s->text[EOT].p ? EOM : EOT;
            s->text[turn] = s->text[EOS];
            s->text[EOS] = last;
        }
        set_add(s, EOS, 1);
    }
}

/* "pair": whether a separator stands between the two texts, behind what begins and before what ends them. */
static void read_pair(special *s, gjson pair, gjson first, gjson last)
{
    gjson it = { NULL, 0 };
    int n = 0, between = 0, sep = 0, closed = 0;

    for (; gjson_next(pair, &it); n++) {
        const gjson id = gjson_at(it, "SpecialToken.id");
        closed |= between > 0 && !is_text(id);
        if (closed || (n == 0 && same(id, first)))
            continue;
        between += is_text(id);
        sep |= is_text(id) && (same(id, s->text[SEP]) || same(id, s->text[EOS])) && (between > 1 || !is_text(last));
    }
    if (between > 0 && closed)
        set_add(s, SEP, sep);
}

static void read_processor(special *s, gjson p)
{
    const gjson type = gjson_get(p, "type");

    if (type.n == 11 && memcmp(type.p, "\"ByteLevel\"", 11) == 0) {
        if (s->add[BOS] < 0)
            set_add(s, BOS, 0);
        if (s->add[EOS] < 0)
            set_add(s, EOS, 0);
    } else if (type.n == 20 && memcmp(type.p, "\"TemplateProcessing\"", 20) == 0) {
        const gjson single = gjson_get(p, "single"), none = { NULL, 0 };
        const int two = count(single) >= 2;
        read_template(s, single);
        if (s->v->characters)
            read_pair(s, gjson_get(p, "pair"), two ? gjson_at(element(single, 0), "SpecialToken.id") : none,
                      two ? gjson_at(element(single, 1), "SpecialToken.id") : none);
    }
}

static void read_processors(special *s)
{
    const gjson post = gjson_get(s->v->json, "post_processor"), list = gjson_get(post, "processors");
    gjson it = { NULL, 0 };

    if (!list.p)
        read_processor(s, post);
    while (gjson_next(list, &it))
        read_processor(s, it);
}

/* ---- tokenizer_config.json and config.json ---- */

static gjson entry_of(gjson config, const char *name)
{
    char key[32];

    snprintf(key, sizeof key, "%s_token", name);
    const gjson v = gjson_get(config, key);
    return is_text(v) ? v : gjson_get(v, "content");
}

int64_t hf_vocab_listed_id(const hf_vocab *v, gjson text)
{
    const gjson list = gjson_get(v->json, "added_tokens");
    gjson it = { NULL, 0 };
    uint32_t id;

    while (gjson_next(list, &it))
        if (same(gjson_get(it, "content"), text))
            return hf_to_u32(gjson_get(it, "id"), "id", &id, NULL) == KVANT_OK ? (int64_t)id : -1;
    return -1;
}

static void read_config(special *s)
{
    char key[32];

    for (int i = 0; s->v->config.p && i < KINDS; i++) {
        if (i >= EOT && !s->text[i].p)
            continue; /* looked for only when the template named it */
        snprintf(key, sizeof key, "add_%s_token", kinds[i].name);
        const gjson add = gjson_get(s->v->config, key);
        if (add.p && (*add.p == 't' || *add.p == 'f') && s->add[i] < 0)
            set_add(s, i, *add.p == 't');
        set_id(s, i, s->text[i].p ? hf_vocab_listed_id(s->v, s->text[i]) : -1);
    }
}

static void read_ids(special *s, gjson root)
{
    char key[32];
    uint32_t id;

    for (int i = 0; i < KINDS; i++) {
        snprintf(key, sizeof key, "%s_token_id", kinds[i].name);
        gjson v = gjson_get(root, key);
        if (gjson_number(v) != gjson_number(v))
            v = gjson_get(gjson_get(root, "text_config"), key);
        if (i < EOT && hf_to_u32(v, key, &id, NULL) == KVANT_OK)
            set_id(s, i, id);
    }
}

/* The token of what BPE does not know: the model's own, wherever it is in the vocabulary. */
static void read_unknown(special *s)
{
    const gjson text = gjson_at(s->v->json, "model.unk_token");
    char *unk = is_text(text) && !s->v->spm ? kvant_alloc(text.n) : NULL;
    const size_t n = unk ? gjson_unescape(text, unk) : 0;

    if (s->v->rules.by_rank && s->id[UNK] >= 0 && !unk)
        s->id[UNK] = -1; /* what tokenizer_config.json calls so is nothing to BPE */
    for (uint32_t i = 0; unk && i < s->v->n; i++) {
        if (!s->v->tokens[i].s || s->v->tokens[i].n != n || memcmp(s->v->tokens[i].s, unk, n) != 0)
            continue;
        set_id(s, UNK, i);
        s->id[UNK] = i;
    }
    kvant_free(unk);
}

/* Sets the kinds that the architecture fixes: pairs of a kind's name and a token of the list; '!' before the name:
 * whatever the files say. */
static void read_names(special *s, const char *const *names)
{
    char text[64];

    for (; names && names[0]; names += 2)
        for (int i = 0; i < KINDS; i++) {
            const int always = names[0][0] == '!';
            if (strcmp(kinds[i].name, names[0] + always) != 0)
                continue;
            snprintf(text, sizeof text, "\"%s\"", names[1]);
            const int64_t id = hf_vocab_listed_id(s->v, (gjson){ text, strlen(text) });
            if (always && id >= 0 && s->id[i] >= 0)
                s->id[i] = id;
            set_id(s, i, id);
        }
}

/* ---- the ends of an answer ---- */

static int is_an_end(const special *s, uint32_t id)
{
    const hf_vocab_token *t = &s->v->tokens[id];

    return s->id[EOS] == id || s->id[EOT] == id || s->id[EOM] == id || (t->s && vocab_is_known_end(t->s, t->n));
}

/* One id that is none: what ends an answer is then said by the tokenizer's files alone. */
static void warn_of_end(const special *s, gjson one)
{
    const double id = gjson_number(one);

    if (one.p && *one.p != '[' && *one.p != 'n' && !(id >= 0 && id < s->v->n && id == (double)(uint32_t)id))
        log_msg(LOG_WARN, "convert: eos_token_id is %.*s, an id below %u (vocab_size) wanted: left out", hf_shown(one),
                one.p, s->v->n);
}

/* eos_token_id of generation_config.json (else config.json) may be a list.  If neither a key of a single token nor
 * its text says that one of them ends an answer, all are in an array. */
static int put_ends(const special *s, gjson root, gguf_keys *k, kvant_diag *diag)
{
    gjson g, it = { NULL, 0 };
    uint32_t ids[MAX_ENDS], n = 0, more = 0;
    char *text = NULL;

    KVANT_TRY(hf_read(s->v->folder, "generation_config.json", &text, &g, diag));
    gjson list = gjson_get(g, "eos_token_id");
    list = list.p && *list.p != 'n' ? list : gjson_get(root, "eos_token_id");
    list = list.p ? list : gjson_at(root, "text_config.eos_token_id");
    warn_of_end(s, list);
    int rc = KVANT_OK;
    while (rc == KVANT_OK && gjson_next(list, &it)) {
        if (n == MAX_ENDS)
            rc = kvant_fail(diag, KVANT_EFORMAT, "eos_token_id: a list of more than %d ids", MAX_ENDS);
        else
            rc = hf_to_u32(it, "an id of the list eos_token_id", &ids[n], diag);
        if (rc == KVANT_OK && ids[n] >= s->v->n) {
            log_msg(LOG_WARN, "convert: eos_token_id has %u, and vocab_size is %u: left out", ids[n], s->v->n);
            continue;
        }
        more += rc == KVANT_OK && !is_an_end(s, ids[n]);
        n += rc == KVANT_OK;
    }
    kvant_free(text);
    if (rc == KVANT_OK && n > 0 && s->id[EOS] < 0)
        gguf_keys_u32(k, kinds[EOS].key, ids[0]);
    if (rc == KVANT_OK && more > 0) {
        gguf_keys_array(k, "tokenizer.ggml.eos_token_ids", GGUF_I32, n);
        gguf_keys_put(k, ids, n * sizeof *ids);
    }
    return rc;
}

/* ---- merges ---- */

/* One side of a merge; a space inside is the byte alphabet's sign for it, because a space parts the two. */
static int put_side(sbuf *b, gjson side, kvant_diag *diag)
{
    if (!is_text(side))
        return kvant_fail(diag, KVANT_EFORMAT, "tokenizer.json: a side of a merge is %.*s, a text wanted",
                          hf_shown(side), side.p ? side.p : "");
    char *text = kvant_alloc(side.n);
    if (!text)
        return kvant_fail(diag, KVANT_ENOMEM, "tokenizer.json: no memory for a merge");
    const size_t n = gjson_unescape(side, text);
    for (size_t i = 0; i < n; i++)
        sbuf_put(b, text[i] == ' ' ? "\xC4\xA0" : text + i, text[i] == ' ' ? 2 : 1);
    kvant_free(text);
    return KVANT_OK;
}

static int put_merge(gguf_keys *k, sbuf *b, gjson merge, kvant_diag *diag)
{
    sbuf_drop(b, b->n);
    if (is_text(merge)) {
        char *text = kvant_alloc(merge.n);
        if (!text)
            return kvant_fail(diag, KVANT_ENOMEM, "tokenizer.json: no memory for a merge");
        sbuf_put(b, text, gjson_unescape(merge, text));
        kvant_free(text);
    } else {
        KVANT_TRY(put_side(b, element(merge, 0), diag));
        sbuf_put(b, " ", 1);
        KVANT_TRY(put_side(b, element(merge, 1), diag));
    }
    if (b->error)
        return kvant_fail(diag, KVANT_ENOMEM, "tokenizer.json: no memory for a merge");
    gguf_keys_array_str(k, b->s, b->n);
    return KVANT_OK;
}

static int put_merges(const hf_vocab *v, gguf_keys *k, kvant_diag *diag)
{
    const gjson list = gjson_at(v->json, "model.merges");
    gjson it = { NULL, 0 };
    sbuf b = { 0 };
    uint64_t n = 0;
    int rc = KVANT_OK;

    while (gjson_next(list, &it))
        n++;
    if (n == 0 && !list.p)
        return KVANT_OK;
    gguf_keys_array(k, "tokenizer.ggml.merges", GGUF_STRING, n);
    for (it = (gjson){ NULL, 0 }; rc == KVANT_OK && gjson_next(list, &it);)
        rc = put_merge(k, &b, it, diag);
    sbuf_free(&b);
    return rc;
}

int hf_vocab_put_special(const hf_vocab *v, gjson root, const char *const *names, gguf_keys *k, kvant_diag *diag)
{
    special s = { .v = v };

    for (int i = 0; i < KINDS; i++) {
        s.id[i] = s.add[i] = -1;
        s.text[i] = i < EOT ? entry_of(v->config, kinds[i].name) : (gjson){ NULL, 0 };
    }
    s.text[BOS] = s.text[BOS].p ? s.text[BOS] : s.text[CLS];
    s.text[EOS] = s.text[EOS].p ? s.text[EOS] : s.text[SEP];
    read_processors(&s);
    read_config(&s);
    read_ids(&s, root);
    read_names(&s, names);
    read_unknown(&s);
    for (int i = BOS; i <= EOS; i++) /* added to texts though no file but tokenizer.json names them */
        if (s.add[i] == 1 && s.id[i] < 0 && s.text[i].p)
            set_id(&s, i, hf_vocab_listed_id(v, s.text[i]));
    if (v->characters)
        set_add(&s, BOS, 1); /* whatever the files say */
    if (!v->spm)
        KVANT_TRY(put_merges(v, k, diag));
    for (int i = 0; i < s.n_ids; i++)
        if (kinds[s.id_order[i]].key && s.id[s.id_order[i]] >= 0)
            gguf_keys_u32(k, kinds[s.id_order[i]].key, (uint32_t)s.id[s.id_order[i]]);
    for (int i = 0; i < s.n_adds; i++)
        if (kinds[s.add_order[i]].add)
            gguf_keys_bool(k, kinds[s.add_order[i]].add, s.add[s.add_order[i]]);
    hf_rules_put_prefix(v, s.add[BOS] == 1 && v->rules.n_prefix > 0 && same(v->rules.prefix[0], s.text[BOS]), k);
    KVANT_TRY(put_ends(&s, root, k, diag));
    return hf_vocab_put_template(v, k, diag);
}
