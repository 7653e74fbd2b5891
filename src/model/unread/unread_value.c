/* unread_value.c: the values of keys that nobody read: which of them the model has anyway, and how they are shown. */
#include "model/unread/unread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "text/tokenizer_vocab.h"

/* One * at most matters: what stands behind it is the end of the name. */
int unread_fits(const char *pattern, const char *name, size_t n, int *number)
{
    size_t i = 0;

    for (; *pattern && *pattern != '*'; pattern++) {
        if (*pattern != '#') {
            if (i >= n || name[i++] != *pattern)
                return 0;
            continue;
        }
        const size_t from = i;
        for (*number = 0; i < n && i < from + 6 && name[i] >= '0' && name[i] <= '9'; i++)
            *number = *number * 10 + (name[i] - '0');
        if (i == from)
            return 0;
    }
    const size_t tail = *pattern ? strlen(pattern + 1) : 0;
    return *pattern ? n - i >= tail && memcmp(name + n - tail, pattern + 1, tail) == 0 : i == n;
}

/* "=NAME": a value that follows from what was read.  1: it is that; *x: the number it has to be; -1: no such number. */
static int known_value(const kvant_model *m, const char *name, double *x)
{
    const hparams *h = &m->hp;
    const struct {
        const char *name;
        int holds;
        double is;
    } list[] = {
        { "=dense", h->moe.n == 0, -1 },
        { "=nohead", h->attention_free, -1 },
        { "=nowindow", h->window == 0, -1 },
        { "=neox", h->rope.neox, -1 },
        { "=vocab", 0, h->n_vocab },
        { "=tokens", 0, m->tok ? tokenizer_count(m->tok) : -1 },
        { "=embd", 0, h->n_embd },
        { "=key", 0, h->d_k },
        { "=value", 0, h->d_v },
        { "=rot", 0, h->n_rot },
        { "=base", 0, (double)h->rope.base },
        { "=gating", 0, h->moe.gating + 1 },
        { "=norm", 0, !h->moe.raw },
    };

    *x = -1;
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        if (strcmp(list[i].name, name) == 0) {
            *x = list[i].is;
            return list[i].holds;
        }
    return 0;
}

static int is_number(const kvant_model *m, const gguf_kv *kv, uint64_t i, double want, int wide)
{
    double x = -1;

    if ((kv->type == GGUF_ARRAY ? kv->elem : kv->type) == GGUF_BOOL)
        x = kv->value[i] != 0;
    else if (!gguf_real_at(kv, i, &x))
        return 0;
    return wide ? x >= m->hp.n_ctx_train : x == want || (float)x == (float)want;
}

/* The newer name of the key stands in the file too, and was read. */
static int has_newer(const kvant_model *m, const gguf_kv *kv)
{
    static const char *const names[][2] = {
        { ".rope.scale_linear", ".rope.scaling.factor" },      { ".rope.local.freq_base", ".rope.freq_base_swa" },
        { ".rope.global.freq_base", ".rope.freq_base" },       { ".norm_top_k_prob", ".expert_weights_norm" },
        { ".rope.mrope_section", ".rope.dimension_sections" }, { ".mrope_sections", ".rope.dimension_sections" },
    };
    char key[96];

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const size_t arch = strlen(m->arch_name), n = strlen(names[i][0]);
        snprintf(key, sizeof key, "%s%s", m->arch_name, names[i][1]);
        if (kv->key.n == arch + n && memcmp(kv->key.s + arch, names[i][0], n) == 0)
            return gguf_find(m->file, key) != NULL;
    }
    return 0;
}

/* One word of the list, for all elements of an array. */
static int word_holds(const kvant_model *m, const gguf_kv *kv, const char *word)
{
    double want = -1;
    const int wide = strcmp(word, "=wide") == 0;
    const int type = kv->type == GGUF_ARRAY ? kv->elem : kv->type;

    if (strcmp(word, "=newer") == 0)
        return has_newer(m, kv);
    if (strcmp(word, "=empty") == 0)
        return kv->count == 0 || (kv->type == GGUF_STRING && kv->bytes <= 8);
    if (*word == '=' && !wide && known_value(m, word, &want))
        return 1;
    if (type == GGUF_STRING)
        return kv->type == GGUF_STRING && kv->bytes == 8 + strlen(word) &&
               memcmp(kv->value + 8, word, strlen(word)) == 0;
    if (*word != '=')
        want = strcmp(word, "true") == 0 ? 1 : strcmp(word, "false") == 0 ? 0 : strtod(word, NULL);
    for (uint64_t i = 0; i < kv->count; i++)
        if (!is_number(m, kv, i, want, wide))
            return 0;
    return 1;
}

int unread_is_neutral(const kvant_model *m, const gguf_kv *kv, const char *neutral)
{
    char word[32];

    while (*neutral) {
        const size_t n = strcspn(neutral, "|");
        snprintf(word, sizeof word, "%.*s", (int)n, neutral);
        if (word_holds(m, kv, word))
            return 1;
        neutral += n + (neutral[n] != 0);
    }
    return 0;
}

const char *unread_wanted(const char *neutral, char *buf, size_t cap)
{
    size_t n = 0;

    buf[0] = 0;
    while (*neutral) {
        const size_t len = strcspn(neutral, "|");
        const int wide = strncmp(neutral, "=wide", len) == 0;
        if (n + len + 64 < cap && (wide || *neutral != '='))
            n += (size_t)snprintf(buf + n, cap - n, "%s%.*s", n ? " or " : "", wide ? 27 : (int)len,
                                  wide ? "at least the context length" : neutral);
        neutral += len + (neutral[len] != 0);
    }
    snprintf(buf + n, cap - n, "%sno such key", n ? ", or " : "");
    return buf;
}

const char *unread_show(const gguf_kv *kv, char *buf, size_t cap)
{
    const int type = kv->type == GGUF_ARRAY ? kv->elem : kv->type;
    size_t n = 0;
    double x;

    buf[0] = 0;
    if (kv->type == GGUF_STRING)
        vocab_show((const char *)kv->value + 8, kv->bytes - 8, buf, cap < 44 ? cap : 44);
    for (uint64_t i = 0; type != GGUF_STRING && i < kv->count && i < 4 && n + 32 < cap; i++) {
        const int ok = type == GGUF_BOOL || gguf_real_at(kv, i, &x);
        n += (size_t)snprintf(buf + n, cap - n, i ? ", " : "");
        if (type == GGUF_BOOL)
            n += (size_t)snprintf(buf + n, cap - n, "%s", kv->value[i] ? "true" : "false");
        else
            n += (size_t)snprintf(buf + n, cap - n, "%.9g", ok ? x : 0);
    }
    if (kv->type == GGUF_ARRAY && (kv->count > 4 || type == GGUF_STRING))
        snprintf(buf + n, cap - n, " ... (%llu values)", (unsigned long long)kv->count);
    return buf;
}
