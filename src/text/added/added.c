/* added.c: see added.h.  Owns the trie, the search, and what a match takes of the blanks around it.
 *
 * Fuel: a match walks at most the 512 bytes of the longest token; the blanks before a match are walked once, because
 * the match before ends there; those behind it are remembered, so that a token which is itself a blank does not walk
 * one run again from each of its places. */
#include "text/added/added.h"

#include <string.h>
#include <utf8proc.h>
#include "base/mem.h"
#include "text/tokenizer_vocab.h"
#include "text/utf8.h"

/* ---- the trie ---- */

static uint32_t node_add(added_trie *t, uint8_t byte)
{
    if (t->n == t->cap) {
        const uint32_t cap = t->cap ? 2 * t->cap : 256;
        added_node *p = kvant_realloc(t->nodes, t->n * sizeof *p, (size_t)cap * sizeof *p);
        if (!p)
            return 0;
        t->nodes = p;
        t->cap = cap;
    }
    if (t->n == 0)
        t->n = 1; /* node 0 means "none" */
    t->nodes[t->n] = (added_node){ .user = -1, .any = -1, .byte = byte };
    return t->n++;
}

static uint32_t node_child(const added_trie *t, uint32_t node, uint8_t byte)
{
    uint32_t c = t->nodes[node].child;

    while (c && t->nodes[c].byte != byte)
        c = t->nodes[c].sibling;
    return c;
}

int added_insert(added_trie *t, const vocab *v, uint32_t id, const char *text, size_t n)
{
    const uint8_t *s = (const uint8_t *)text;
    uint32_t node = t->root[s[0]];

    if (!node && !(node = t->root[s[0]] = node_add(t, s[0])))
        return KVANT_ENOMEM;
    for (size_t i = 1; i < n; i++) {
        uint32_t c = node_child(t, node, s[i]);
        if (!c) {
            c = node_add(t, s[i]);
            if (!c)
                return KVANT_ENOMEM;
            t->nodes[c].sibling = t->nodes[node].child;
            t->nodes[node].child = c;
        }
        node = c;
    }
    t->nodes[node].any = (int32_t)id;
    if (!vocab_is_format(v, (int32_t)id))
        t->nodes[node].user = (int32_t)id;
    return KVANT_OK;
}

/* ---- characters ---- */

/* Returns 1 for \w of `tokenizers`: Alphabetic, marks, digits, connectors and the joiners. */
static int is_word(uint32_t c)
{
    if (c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
        (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189))
        return 1;
    switch (utf8proc_category((int32_t)c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return 1;
    default: return 0;
    }
}

/* ---- the search ---- */

static int is_of_template(const added_text *t, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        if (t->origin[i] != ADDED_ORIGIN)
            return 0;
    return 1;
}

/* The longest token at text[at] that may be there: its end; 0: none. */
static size_t longest_at(const added_trie *t, const added_text *text, size_t at, int32_t *id)
{
    uint32_t node = t->root[(uint8_t)text->s[at]];
    size_t end = 0;

    for (size_t i = at; node; node = node_child(t, node, (uint8_t)text->s[i])) {
        const added_node *n = &t->nodes[node];
        i++;
        if (n->any >= 0 && n->any != n->user && (text->origin ? is_of_template(text, at, i) : text->control)) {
            *id = n->any;
            end = i;
        } else if (n->user >= 0) {
            *id = n->user;
            end = i;
        }
        if (i == text->n)
            break;
    }
    return end;
}

/* Does a letter touch text[from..to)? */
static int is_touched(const added_text *t, size_t from, size_t to)
{
    uint32_t c = 0;

    if (utf8_before(t->s, from, &c) && is_word(c))
        return 1;
    return to < t->n && utf8_decode((const uint8_t *)t->s + to, t->n - to, &c) > 0 && is_word(c);
}

static size_t blanks_before(const added_text *t, size_t least, size_t at)
{
    for (size_t k; (k = utf8_blank_before(t->s + least, at - least)) != 0;)
        at -= k;
    return at;
}

static size_t blanks_behind(const added_text *t, size_t at, size_t known)
{
    if (at < known)
        return known; /* a run that was walked: no character of it is anything else */
    for (size_t k; (k = utf8_blank_at(t->s + at, t->n - at)) != 0;)
        at += k;
    return at;
}

int added_next(const added_trie *t, const vocab *v, const added_text *text, added_scan *scan)
{
    for (size_t at = scan->next, end; at < text->n; at = end ? end : at + 1) {
        int32_t id = -1;
        end = t->n ? longest_at(t, text, at, &id) : 0;
        if (!end)
            continue;
        const int flags = v->tokens[id].flags;
        if ((flags & ADDED_WORD) && is_touched(text, at, end))
            continue;     /* and nothing else that begins inside of it */
        scan->next = end; /* a token may begin among the blanks that another took: `tokenizers` finds it, too, */
        const int taken = (flags & ADDED_LSTRIP) && at < scan->done; /* unless this one would take them as well */
        scan->from = flags & ADDED_LSTRIP && !taken ? blanks_before(text, scan->done, at) : at;
        scan->to = end;
        if (flags & ADDED_RSTRIP) {
            scan->to = blanks_behind(text, end, scan->blanks_end);
            scan->blanks_end = scan->to;
        }
        if (taken && scan->to <= scan->done)
            continue;
        scan->id = id;
        scan->done = scan->to;
        return 1;
    }
    return 0;
}

/* ---- the keys ---- */

static int read_flag(vocab *v, const gguf *g, const char *key, int flag, kvant_diag *diag)
{
    const uint8_t *p = NULL;
    const gguf_kv *kv = gguf_find(g, key);
    int n = 0;

    if (!kv)
        return KVANT_OK;
    KVANT_TRY(gguf_raw_array(g, key, 1, kv->elem == GGUF_I32 ? GGUF_I32 : GGUF_U32, &p, &n, diag));
    for (int i = 0; i < n; i++, p += 4) {
        const uint32_t id = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        if (id >= v->n)
            return kvant_fail(diag, KVANT_EFORMAT, "%s[%d]: %u, want below %u tokens", key, i, id, v->n);
        v->tokens[id].flags |= (uint8_t)flag;
    }
    return KVANT_OK;
}

int added_read(vocab *v, const gguf *g, kvant_diag *diag)
{
    KVANT_TRY(read_flag(v, g, "kvant.tokenizer.lstrip", ADDED_LSTRIP, diag));
    KVANT_TRY(read_flag(v, g, "kvant.tokenizer.rstrip", ADDED_RSTRIP, diag));
    KVANT_TRY(read_flag(v, g, "kvant.tokenizer.single_word", ADDED_WORD, diag));
    KVANT_TRY(read_flag(v, g, "kvant.tokenizer.normalized", ADDED_NORMALIZED, diag));
    KVANT_TRY(read_flag(v, g, "kvant.tokenizer.symbols", ADDED_SYMBOL, diag));
    if (!gguf_find(g, "kvant.tokenizer.rules"))
        added_known_model(v, g);
    return KVANT_OK;
}
