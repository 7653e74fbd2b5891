/* jinja_text.c: work on texts that methods and filters share: case, escapes, replacement.  See jinja_methods.h. */
#include "text/jinja/jinja_methods.h"

#include <string.h>
#include <utf8proc.h>
#include "text/utf8.h"

/* Argument i as text; NULL where it is not given or None. */
int jargs_str(jinja_run *r, const jargs *a, int i, const char *name, const jstr **out)
{
    *out = NULL;
    if (!(a->given & 1u << i) || a->v[i].type == J_NONE)
        return KVANT_OK;
    if (a->v[i].type != J_STR)
        return j_fail(r, "%s: %s, want a text", name, j_type_name(a->v[i]));
    *out = a->v[i].u.s;
    return KVANT_OK;
}

/* ---- case ---- */

static const struct special {
    uint16_t c;
    const char *upper, *title;
} specials[] = {
#include "text/jinja/builtins/special_case.def"
};

static const struct special *special_case(uint32_t c)
{
    size_t low = 0, high = sizeof specials / sizeof *specials;

    while (low < high) {
        const size_t mid = (low + high) / 2;
        if (specials[mid].c == c)
            return &specials[mid];
        *(specials[mid].c < c ? &low : &high) = specials[mid].c < c ? mid + 1 : mid;
    }
    return NULL;
}

/* Characters that are folded become up to four. */
static int put_folded(jinja_run *r, jbuf *b, uint32_t c, int origin)
{
    utf8proc_int32_t many[8];
    uint8_t text[32];
    size_t n = 0;
    int last = 0;

    const utf8proc_ssize_t k = utf8proc_decompose_char((utf8proc_int32_t)c, many, 8, UTF8PROC_CASEFOLD, &last);
    for (utf8proc_ssize_t i = 0; i < k && i < 8; i++)
        n += (size_t)utf8_encode((uint32_t)many[i], text + n);
    return jbuf_put(r, b, (char *)text, n, origin);
}

static int cased(uint32_t c)
{
    int k = (int)utf8proc_category((utf8proc_int32_t)c);

    return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT;
}

/* Marks and the like, which stand between letters of a word without ending it. */
static int case_ignorable(uint32_t c)
{
    const int k = (int)utf8proc_category((utf8proc_int32_t)c);

    return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF ||
           k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_SK || (c < 0x80 && c && strchr("'.:", (int)c)) ||
           c == 0xB7 || c == 0x2019;
}

/* The sigma at `at` has a letter before it and none behind it: its lower case is another one. */
static int ends_word(const jstr *s, size_t at, int len)
{
    uint32_t c = '.';
    int n;

    while (at > 0 && case_ignorable(c)) {
        for (at--; at > 0 && (s->s[at] & 0xC0) == 0x80;)
            at--, len++;
        c = jstr_char(s, at, &n);
        len++;
    }
    if (!cased(c))
        return 0;
    c = '.';
    for (size_t i = at + (size_t)len; i < s->n && case_ignorable(c); i += (size_t)n)
        c = jstr_char(s, i, &n);
    return !cased(c);
}

/* One character of s in another case, with its origin. */
static int put_case(jinja_run *r, jbuf *b, const jstr *s, size_t at, int len, uint32_t c, enum jcase to)
{
    const int origin = s->origin == J_MIXED ? s->mask[at] : s->origin;
    uint8_t text[4];

    const struct special *more = to == JCASE_LOWER ? NULL : special_case(c);
    if (to == JCASE_FOLD)
        return put_folded(r, b, c, origin);
    if (more || (to == JCASE_LOWER && c == 0x130)) {
        const char *t = !more ? "i\u0307" : to == JCASE_UPPER ? more->upper : more->title;
        return jbuf_put(r, b, t, strlen(t), origin);
    }
    if (to == JCASE_LOWER && c == 0x3A3 && ends_word(s, at, len))
        return jbuf_put(r, b, "\u03C2", 2, origin);
    uint32_t d = (uint32_t)(to == JCASE_UPPER   ? utf8proc_toupper((utf8proc_int32_t)c)
                            : to == JCASE_LOWER ? utf8proc_tolower((utf8proc_int32_t)c)
                                                : utf8proc_totitle((utf8proc_int32_t)c));
    if (d == c)
        return jbuf_str(r, b, s, at, (size_t)len);
    return jbuf_put(r, b, (char *)text, (size_t)utf8_encode(d, text), origin);
}

/* The case of a character: `how` may look at the one before it. */
int jstr_recase(jinja_run *r, const jstr *s, enum jcase how, jval *out)
{
    jbuf b = { 0 };
    int len, inside = 0;

    for (size_t at = 0; at < s->n; at += (size_t)len) {
        uint32_t c = jstr_char(s, at, &len);
        enum jcase to = how;
        if (how == JCASE_CAPITALIZE)
            to = at == 0 ? JCASE_TITLE : JCASE_LOWER;
        else if (how == JCASE_TITLE || how == JCASE_WORDS)
            to = inside ? JCASE_LOWER : how == JCASE_WORDS ? JCASE_UPPER : JCASE_TITLE;
        inside = how == JCASE_WORDS ? !j_is_space(c) && !(c < 0x80 && c && strchr("-({[<", (int)c)) : cased(c);
        KVANT_TRY(j_charge(r, 1));
        KVANT_TRY(put_case(r, &b, s, at, len, c, to));
    }
    return jbuf_done(r, &b, out);
}

/* ---- escapes, replacement ---- */

int jstr_escape(jinja_run *r, const jstr *s, jval *out)
{
    static const char from[] = "&<>'\"";
    static const char *const to[] = { "&amp;", "&lt;", "&gt;", "&#39;", "&#34;" };
    jbuf b = { 0 };

    for (size_t i = 0; i < s->n; i++) {
        const char *hit = s->s[i] ? strchr(from, s->s[i]) : NULL;
        const int origin = s->origin == J_MIXED ? s->mask[i] : s->origin;
        KVANT_TRY(hit ? jbuf_put(r, &b, to[hit - from], strlen(to[hit - from]), origin) : jbuf_str(r, &b, s, i, 1));
    }
    KVANT_TRY(jbuf_done(r, &b, out));
    return jstr_mark(r, out->u.s, out);
}

/* Marks this text as markup. */
int jstr_mark(jinja_run *r, const jstr *s, jval *out)
{
    jstr *t = jarena_alloc(&r->mem, sizeof *t);

    if (!t)
        return j_nomem(r);
    *t = *s;
    t->markup = 1;
    *out = (jval){ .type = J_STR, .u.s = t };
    return KVANT_OK;
}

int jstr_replace(jinja_run *r, const jstr *s, const jstr *old, const jstr *by, int64_t most, jval *out)
{
    jbuf b = { 0 };
    size_t at = 0, hit;
    int len;

    while (most != 0 && (hit = j_seek(r, s, old, at, s->n, 0)) != SIZE_MAX) {
        KVANT_TRY(jbuf_str(r, &b, s, at, hit - at));
        KVANT_TRY(jbuf_str(r, &b, by, 0, by->n));
        KVANT_TRY(j_charge(r, 1));
        most -= most > 0;
        at = hit + old->n;
        if (old->n)
            continue;
        if (at >= s->n) { /* between all characters, and at both ends */
            most = 0;
            continue;
        }
        jstr_char(s, at, &len);
        KVANT_TRY(jbuf_str(r, &b, s, at, (size_t)len));
        at += (size_t)len;
    }
    KVANT_TRY(j_charge(r, 1)); /* what was not found for want of steps */
    KVANT_TRY(jbuf_str(r, &b, s, at, s->n - at));
    return jbuf_done(r, &b, out);
}
