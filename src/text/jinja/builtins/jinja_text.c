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

/* One character of s in another case, with its origin.  Special casing of Unicode beyond one character: German ss. */
static int put_case(jinja_run *r, jbuf *b, const jstr *s, size_t at, int len, uint32_t c, enum jcase to)
{
    const int origin = s->origin == J_MIXED ? s->mask[at] : s->origin;
    uint8_t text[4];

    if (c == 0xDF && to != JCASE_LOWER)
        return jbuf_put(r, b, to == JCASE_UPPER ? "SS" : "Ss", 2, origin);
    uint32_t d = (uint32_t)(to == JCASE_UPPER   ? utf8proc_toupper((utf8proc_int32_t)c)
                            : to == JCASE_LOWER ? utf8proc_tolower((utf8proc_int32_t)c)
                                                : utf8proc_totitle((utf8proc_int32_t)c));
    if (d == c)
        return jbuf_str(r, b, s, at, (size_t)len);
    return jbuf_put(r, b, (char *)text, (size_t)utf8_encode(d, text), origin);
}

static int cased(uint32_t c)
{
    int k = (int)utf8proc_category((utf8proc_int32_t)c);

    return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT;
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
