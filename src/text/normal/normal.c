/* normal.c: see normal.h.  Owns the steps; Unicode's forms are pretok_nfc.c's. */
#include "text/normal/normal.h"

#include <string.h>
#include <utf8proc.h>
#include "base/mem.h"
#include "text/tokenizer_vocab.h"
#include "text/utf8.h"

enum { MAX_OUT = 1 << 30 };

static const struct {
    const char *name;
    int arguments;
} kinds[NORMAL_KINDS] = {
    [NORMAL_NFC] = { "nfc", 0 },
    [NORMAL_NFD] = { "nfd", 0 },
    [NORMAL_NFKC] = { "nfkc", 0 },
    [NORMAL_NFKD] = { "nfkd", 0 },
    [NORMAL_LOWERCASE] = { "lowercase", 0 },
    [NORMAL_STRIP_ACCENTS] = { "strip_accents", 0 },
    [NORMAL_STRIP_LEFT] = { "strip_left", 0 },
    [NORMAL_STRIP_RIGHT] = { "strip_right", 0 },
    [NORMAL_PREPEND] = { "prepend", 1 },
    [NORMAL_REPLACE] = { "replace", 2 },
};

#define KEY "kvant.tokenizer.normalizers"

const char *normal_name(enum normal_kind kind)
{
    return kinds[kind].name;
}

/* ---- the key ---- */

int normal_add(normal *c, enum normal_kind kind, const char *from, size_t n_from, const char *to, size_t n_to)
{
    if (c->n == NORMAL_MOST || n_from > NORMAL_MAX_TEXT || n_to > NORMAL_MAX_TEXT ||
        (kind == NORMAL_REPLACE && n_from == 0))
        return KVANT_EINVAL;
    normal_step *s = &c->steps[c->n++];
    *s = (normal_step){ .kind = kind, .n_from = n_from, .n_to = n_to };
    if (n_from)
        memcpy(s->from, from, n_from);
    if (n_to)
        memcpy(s->to, to, n_to);
    return KVANT_OK;
}

static int kind_of(gguf_str name)
{
    int k = 0;

    while (k < NORMAL_KINDS && !(strlen(kinds[k].name) == name.n && memcmp(kinds[k].name, name.s, name.n) == 0))
        k++;
    return k;
}

int normal_read(normal *c, const gguf *g, int *said, kvant_diag *diag)
{
    gguf_iter it;
    gguf_str name;
    int n = 0;
    char shown[48];

    c->n = 0;
    *said = gguf_find(g, KEY) != NULL;
    if (!*said)
        return KVANT_OK;
    KVANT_TRY(gguf_strings(g, KEY, 1, &it, &n, diag));
    while (gguf_next(&it, &name)) {
        gguf_str args[2] = { { "", 0 }, { "", 0 } };
        const int kind = kind_of(name);
        if (kind == NORMAL_KINDS)
            return kvant_fail(diag, KVANT_EFORMAT,
                              KEY ": '%s', want nfc, nfd, nfkc, nfkd, lowercase, strip_accents, "
                                  "strip_left, strip_right, prepend or replace",
                              vocab_show(name.s, name.n, shown, sizeof shown));
        for (int i = 0; i < kinds[kind].arguments; i++)
            if (!gguf_next(&it, &args[i]))
                return kvant_fail(diag, KVANT_EFORMAT, KEY ": %s without its text", kinds[kind].name);
        if (normal_add(c, (enum normal_kind)kind, args[0].s, args[0].n, args[1].s, args[1].n) < 0)
            return kvant_fail(diag, KVANT_EFORMAT,
                              KEY ": more than %d steps, or a text that is empty or has more than "
                                  "%d bytes",
                              NORMAL_MOST, NORMAL_MAX_TEXT);
    }
    return KVANT_OK;
}

/* ---- the steps ---- */

void normal_work_free(normal_work *w)
{
    pretok_buf_free(&w->a);
    pretok_buf_free(&w->b);
    pretok_buf_free(&w->form);
}

static int put(pretok_buf *b, const char *s, size_t n)
{
    if (n > MAX_OUT || b->len > MAX_OUT - n)
        return KVANT_EINVAL;
    if (b->len + n > b->cap) {
        const size_t cap = 2 * (b->len + n) + 64;
        uint8_t *p = kvant_realloc(b->data, b->len, cap);
        if (!p)
            return KVANT_ENOMEM;
        b->data = p;
        b->cap = cap;
    }
    if (n)
        memcpy(b->data + b->len, s, n);
    b->len += n;
    return KVANT_OK;
}

static int is_mark(uint32_t c)
{
    const utf8proc_category_t k = utf8proc_category((int32_t)c);

    return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME;
}

/* One character without its case, or nothing for a mark. */
static int put_char(enum normal_kind kind, uint32_t c, pretok_buf *out)
{
    uint8_t bytes[4];

    if (kind == NORMAL_STRIP_ACCENTS && is_mark(c))
        return KVANT_OK;
    if (kind == NORMAL_LOWERCASE && c == 0x130) /* the one letter that becomes two */
        return put(out, "i\xCC\x87", 3);
    if (kind == NORMAL_LOWERCASE)
        c = (uint32_t)utf8proc_tolower((int32_t)c);
    return put(out, (const char *)bytes, (size_t)utf8_encode(c, bytes));
}

static int each_char(enum normal_kind kind, const char *s, size_t n, pretok_buf *out)
{
    uint32_t c = 0;

    for (size_t i = 0; i < n;) {
        const int k = utf8_decode((const uint8_t *)s + i, n - i, &c);
        KVANT_TRY(k > 0 ? put_char(kind, c, out) : put(out, s + i, 1));
        i += k > 0 ? (size_t)k : 1;
    }
    return KVANT_OK;
}

static int each_form(enum pretok_form form, const char *s, size_t n, pretok_buf *work, pretok_buf *out,
                     kvant_diag *diag)
{
    for (size_t i = 0; i < n;) {
        const size_t k = utf8_valid_prefix((const uint8_t *)s + i, n - i);
        const char *made = s + i;
        size_t len = k ? k : 1;
        if (k)
            KVANT_TRY(pretok_to_form(form, work, s + i, k, &made, &len, diag));
        KVANT_TRY(put(out, made, len));
        i += k ? k : 1;
    }
    return KVANT_OK;
}

static int replace(const normal_step *step, const char *s, size_t n, pretok_buf *out)
{
    for (size_t i = 0; i < n;) {
        const char *next = n - i >= step->n_from ? memchr(s + i, step->from[0], n - i - step->n_from + 1) : NULL;
        const size_t at = next ? (size_t)(next - s) : n;
        KVANT_TRY(put(out, s + i, at - i));
        i = at;
        if (at == n)
            break;
        const int found = memcmp(s + i, step->from, step->n_from) == 0;
        KVANT_TRY(found ? put(out, step->to, step->n_to) : put(out, s + i, 1));
        i += found ? step->n_from : 1;
    }
    return KVANT_OK;
}

static int prepend(const normal_step *step, const char *s, size_t n, pretok_buf *out)
{
    if (n)
        KVANT_TRY(put(out, step->from, step->n_from));
    return put(out, s, n);
}

static void strip(enum normal_kind kind, const char **s, size_t *n)
{
    size_t k;

    while (kind == NORMAL_STRIP_LEFT && (k = utf8_blank_at(*s, *n)) != 0) {
        *s += k;
        *n -= k;
    }
    while (kind == NORMAL_STRIP_RIGHT && (k = utf8_blank_before(*s, *n)) != 0)
        *n -= k;
}

static int apply_step(const normal_step *step, const char *s, size_t n, normal_work *w, pretok_buf *out,
                      kvant_diag *diag)
{
    out->len = 0;
    switch (step->kind) {
    case NORMAL_PREPEND: return prepend(step, s, n, out);
    case NORMAL_REPLACE: return replace(step, s, n, out);
    case NORMAL_LOWERCASE:
    case NORMAL_STRIP_ACCENTS: return each_char(step->kind, s, n, out);
    default: return each_form((enum pretok_form)((int)step->kind - NORMAL_NFC + PRETOK_NFC), s, n, &w->form, out, diag);
    }
}

/* Does the step leave out the first character of s[n], n >= 1? */
static int takes_first(const normal_step *step, const char *s, size_t n)
{
    uint32_t c = 0;

    if (step->kind == NORMAL_REPLACE)
        return step->n_to == 0 && n >= step->n_from && memcmp(s, step->from, step->n_from) == 0;
    return step->kind == NORMAL_STRIP_ACCENTS && utf8_decode((const uint8_t *)s, n, &c) > 0 && is_mark(c);
}

int normal_apply(const normal *c, normal_work *w, const char **s, size_t *len, kvant_diag *diag)
{
    w->cut = 0;
    for (int i = 0; i < c->n && *len; i++) {
        w->cut |= takes_first(&c->steps[i], *s, *len);
        if (c->steps[i].kind == NORMAL_STRIP_LEFT || c->steps[i].kind == NORMAL_STRIP_RIGHT) {
            const char *before = *s;
            strip(c->steps[i].kind, s, len);
            w->cut |= *s != before;
            continue;
        }
        const int err = apply_step(&c->steps[i], *s, *len, w, &w->a, diag);
        if (err < 0)
            return kvant_fail(diag, err, "text: %s of %zu bytes: %s", kinds[c->steps[i].kind].name, *len,
                              kvant_error_text(err));
        *s = (const char *)w->a.data; /* the next step reads it and writes the other one */
        *len = w->a.len;
        const pretok_buf made = w->a;
        w->a = w->b;
        w->b = made;
    }
    return KVANT_OK;
}
