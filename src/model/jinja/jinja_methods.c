/* jinja_methods.c: methods of texts, lists, dicts and loops, as Python's.  Those that change their object are refused,
 * as jinja2's sandbox does, but for append and pop of a list that the template made itself. */
#include "model/jinja/jinja_methods.h"

#include <string.h>
#include <utf8proc.h>
#include "model/text/utf8.h"

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

/* ---- strip, case ---- */

static int strip(jinja_run *r, jval self, const jargs *a, int left, int right, jval *out)
{
    const jstr *chars;
    size_t from, to;

    KVANT_TRY(jargs_str(r, a, 0, "strip", &chars));
    KVANT_TRY(j_charge(r, self.u.s->n / 16 * (chars ? chars->n / 16 + 1 : 1)));
    jstr_strip(self.u.s, chars, left, right, &from, &to);
    return j_slice(r, self.u.s, from, to, out);
}

static int m_strip(jinja_run *r, jval self, const jargs *a, jval *out)
{
    return strip(r, self, a, 1, 1, out);
}

static int m_lstrip(jinja_run *r, jval self, const jargs *a, jval *out)
{
    return strip(r, self, a, 1, 0, out);
}

static int m_rstrip(jinja_run *r, jval self, const jargs *a, jval *out)
{
    return strip(r, self, a, 0, 1, out);
}

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

static int m_upper(jinja_run *r, jval self, const jargs *a, jval *out)
{
    (void)a;
    return jstr_recase(r, self.u.s, JCASE_UPPER, out);
}

static int m_lower(jinja_run *r, jval self, const jargs *a, jval *out)
{
    (void)a;
    return jstr_recase(r, self.u.s, JCASE_LOWER, out);
}

static int m_title(jinja_run *r, jval self, const jargs *a, jval *out)
{
    (void)a;
    return jstr_recase(r, self.u.s, JCASE_TITLE, out);
}

static int m_capitalize(jinja_run *r, jval self, const jargs *a, jval *out)
{
    (void)a;
    return jstr_recase(r, self.u.s, JCASE_CAPITALIZE, out);
}

/* ---- split, join, replace ---- */

static int add_piece(jinja_run *r, jval list, const jstr *s, size_t from, size_t to)
{
    jval piece;

    KVANT_TRY(j_charge(r, 1));
    KVANT_TRY(j_slice(r, s, from, to, &piece));
    return jlist_add(&r->mem, list.u.l, piece) ? KVANT_OK : j_nomem(r);
}

static void turn(jlist *l)
{
    for (size_t i = 0, j = l->n; i + 1 < j; i++) {
        jval v = l->v[i];
        l->v[i] = l->v[--j];
        l->v[j] = v;
    }
}

static size_t word_end(const jstr *s, size_t at, int space)
{
    int len;

    while (at < s->n && j_is_space(jstr_char(s, at, &len)) == space)
        at += (size_t)len;
    return at;
}

static size_t word_begin(const jstr *s, size_t at, int space)
{
    int len;

    while (at > 0 && j_is_space(jstr_char(s, jstr_back(s, at), &len)) == space)
        at = jstr_back(s, at);
    return at;
}

/* At white space: runs of it are one, none at the ends.  After `most` words the rest is one, to its far end. */
static int split_words(jinja_run *r, const jstr *s, int64_t most, jval list)
{
    for (size_t from = word_end(s, 0, 1); from<s->n; most -= most> 0) {
        size_t to = most == 0 ? s->n : word_end(s, from, 0);
        KVANT_TRY(add_piece(r, list, s, from, to));
        from = word_end(s, to, 1);
    }
    return KVANT_OK;
}

static int split_words_back(jinja_run *r, const jstr *s, int64_t most, jval list)
{
    for (size_t to = word_begin(s, s->n, 1); to > 0; most -= most > 0) {
        size_t from = most == 0 ? 0 : word_begin(s, to, 0);
        KVANT_TRY(add_piece(r, list, s, from, to));
        to = word_begin(s, from, 1);
    }
    return KVANT_OK;
}

static int split_at(jinja_run *r, const jstr *s, const jstr *sep, int64_t most, int right, jval list)
{
    size_t from = 0, to = s->n;

    if (sep->n == 0)
        return j_fail(r, "split: the separator is empty");
    for (; most != 0; most -= most > 0) {
        size_t at = jstr_find(s, sep, from, to, right);
        if (at == SIZE_MAX)
            break;
        KVANT_TRY(right ? add_piece(r, list, s, at + sep->n, to) : add_piece(r, list, s, from, at));
        if (right)
            to = at;
        else
            from = at + sep->n;
    }
    return add_piece(r, list, s, from, to);
}

static int split(jinja_run *r, jval self, const jargs *a, int right, jval *out)
{
    const jstr *sep;
    int64_t most;

    KVANT_TRY(jargs_str(r, a, 0, "split", &sep));
    KVANT_TRY(jargs_int(r, a, 1, "split", -1, &most));
    KVANT_TRY(j_charge(r, self.u.s->n / 16));
    if (!j_list(&r->mem, 0, out))
        return j_nomem(r);
    KVANT_TRY(sep     ? split_at(r, self.u.s, sep, most, right, *out)
              : right ? split_words_back(r, self.u.s, most, *out)
                      : split_words(r, self.u.s, most, *out));
    if (right)
        turn(out->u.l);
    return KVANT_OK;
}

static int m_split(jinja_run *r, jval self, const jargs *a, jval *out)
{
    return split(r, self, a, 0, out);
}

static int m_rsplit(jinja_run *r, jval self, const jargs *a, jval *out)
{
    return split(r, self, a, 1, out);
}

/* \n, \r, \r\n and the rest of str.splitlines. */
static int line_end(const jstr *s, size_t at, int len, uint32_t c)
{
    if (c == '\r' && at + 1 < s->n && s->s[at + 1] == '\n')
        return 2;
    return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029 ? len : 0;
}

static int m_splitlines(jinja_run *r, jval self, const jargs *a, jval *out)
{
    const jstr *s = self.u.s;
    const int keep = j_true(a->v[0]);
    size_t from = 0, at = 0;
    int len;

    if (!j_list(&r->mem, 0, out))
        return j_nomem(r);
    KVANT_TRY(j_charge(r, s->n / 16));
    while (at < s->n) {
        uint32_t c = jstr_char(s, at, &len);
        int end = line_end(s, at, len, c);
        at += (size_t)(end ? end : len);
        if (end)
            KVANT_TRY(add_piece(r, *out, s, from, keep ? at : at - (size_t)end));
        if (end)
            from = at;
    }
    return from < s->n ? add_piece(r, *out, s, from, s->n) : KVANT_OK;
}

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

/* The same text, as markup. */
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

    KVANT_TRY(j_charge(r, s->n / 16));
    while (most != 0 && (hit = jstr_find(s, old, at, s->n, 0)) != SIZE_MAX) {
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
    KVANT_TRY(jbuf_str(r, &b, s, at, s->n - at));
    return jbuf_done(r, &b, out);
}

static int m_replace(jinja_run *r, jval self, const jargs *a, jval *out)
{
    const jstr *old, *by;
    int64_t most;

    KVANT_TRY(jargs_str(r, a, 0, "replace", &old));
    KVANT_TRY(jargs_str(r, a, 1, "replace", &by));
    KVANT_TRY(jargs_int(r, a, 2, "replace", -1, &most));
    if (!old || !by)
        return j_fail(r, "replace: None, want a text");
    return jstr_replace(r, self.u.s, old, by, most, out);
}

static int m_join(jinja_run *r, jval self, const jargs *a, jval *out)
{
    const jlist *l;
    jbuf b = { 0 };

    KVANT_TRY(j_iterate(r, a->v[0], &l));
    for (size_t i = 0; i < l->n; i++) {
        if (l->v[i].type != J_STR)
            return j_fail(r, "join: item %zu is %s, want a text", i, j_type_name(l->v[i]));
        if (i)
            KVANT_TRY(jbuf_str(r, &b, self.u.s, 0, self.u.s->n));
        KVANT_TRY(jbuf_str(r, &b, l->v[i].u.s, 0, l->v[i].u.s->n));
    }
    return jbuf_done(r, &b, out);
}

/* ---- looking into a text ---- */

/* One text or a tuple of them at an end of self. */
static int at_end(jinja_run *r, jval self, const jargs *a, int end, jval *out)
{
    const jstr *s = self.u.s;
    const jval *v = a->v[0].type == J_TUPLE ? a->v[0].u.l->v : a->v;
    const size_t n = a->v[0].type == J_TUPLE ? a->v[0].u.l->n : 1;
    int found = 0;

    if (a->given > 1)
        return j_fail(r, "startswith and endswith: one argument");
    for (size_t i = 0; i < n; i++) {
        if (v[i].type != J_STR)
            return j_fail(r, "startswith and endswith: %s, want a text", j_type_name(v[i]));
        const jstr *w = v[i].u.s;
        found |= w->n <= s->n && (!w->n || memcmp(s->s + (end ? s->n - w->n : 0), w->s, w->n) == 0);
    }
    *out = j_bool(found);
    return KVANT_OK;
}

static int m_startswith(jinja_run *r, jval self, const jargs *a, jval *out)
{
    return at_end(r, self, a, 0, out);
}

static int m_endswith(jinja_run *r, jval self, const jargs *a, jval *out)
{
    return at_end(r, self, a, 1, out);
}

static int find(jinja_run *r, jval self, const jargs *a, int last, jval *out)
{
    const jstr *what;

    KVANT_TRY(jargs_str(r, a, 0, "find", &what));
    if (!what)
        return j_fail(r, "find: None, want a text");
    KVANT_TRY(j_charge(r, self.u.s->n / 16));
    size_t at = jstr_find(self.u.s, what, 0, self.u.s->n, last);
    jstr before = { self.u.s->s, NULL, (uint32_t)at, 0, 0 };
    *out = j_int(at == SIZE_MAX ? -1 : (int64_t)jstr_length(&before));
    return KVANT_OK;
}

static int m_find(jinja_run *r, jval self, const jargs *a, jval *out)
{
    return find(r, self, a, 0, out);
}

static int m_rfind(jinja_run *r, jval self, const jargs *a, jval *out)
{
    return find(r, self, a, 1, out);
}

static int m_index(jinja_run *r, jval self, const jargs *a, jval *out)
{
    KVANT_TRY(find(r, self, a, 0, out));
    return out->u.i < 0 ? j_fail(r, "index: not found") : KVANT_OK;
}

static int m_str_count(jinja_run *r, jval self, const jargs *a, jval *out)
{
    const jstr *what;
    int64_t n = 0;

    KVANT_TRY(jargs_str(r, a, 0, "count", &what));
    if (!what)
        return j_fail(r, "count: None, want a text");
    KVANT_TRY(j_charge(r, self.u.s->n / 16));
    if (what->n == 0)
        n = (int64_t)jstr_length(self.u.s) + 1;
    for (size_t at = 0; what->n && (at = jstr_find(self.u.s, what, at, self.u.s->n, 0)) != SIZE_MAX; at += what->n)
        n++;
    *out = j_int(n);
    return KVANT_OK;
}

/* partition: what is before, the separator, what is behind. */
static int m_partition(jinja_run *r, jval self, const jargs *a, jval *out)
{
    const jstr *s = self.u.s, *sep;

    KVANT_TRY(jargs_str(r, a, 0, "partition", &sep));
    if (!sep || !sep->n)
        return j_fail(r, "partition: the separator is empty");
    size_t at = jstr_find(s, sep, 0, s->n, 0), end = at == SIZE_MAX ? s->n : at + sep->n;
    if (at == SIZE_MAX)
        at = s->n;
    if (!j_list(&r->mem, 3, out))
        return j_nomem(r);
    KVANT_TRY(add_piece(r, *out, s, 0, at));
    KVANT_TRY(add_piece(r, *out, s, at, end));
    KVANT_TRY(add_piece(r, *out, s, end, s->n));
    out->type = J_TUPLE;
    return KVANT_OK;
}

static int remove_end(jinja_run *r, jval self, const jargs *a, int end, jval *out)
{
    const jstr *s = self.u.s;
    jval has;

    KVANT_TRY(at_end(r, self, a, end, &has));
    if (a->v[0].type != J_STR || !has.u.b)
        return j_slice(r, s, 0, s->n, out);
    const size_t n = a->v[0].u.s->n;
    return end ? j_slice(r, s, 0, s->n - n, out) : j_slice(r, s, n, s->n, out);
}

static int m_removeprefix(jinja_run *r, jval self, const jargs *a, jval *out)
{
    return remove_end(r, self, a, 0, out);
}

static int m_removesuffix(jinja_run *r, jval self, const jargs *a, jval *out)
{
    return remove_end(r, self, a, 1, out);
}

/* isdigit, isalpha, ...: there is a character, and all are of the kind. */
static int all_are(jval self, int is(uint32_t c), jval *out)
{
    int ok = self.u.s->n > 0, len;

    for (size_t at = 0; ok && at < self.u.s->n; at += (size_t)len)
        ok = is(jstr_char(self.u.s, at, &len));
    *out = j_bool(ok);
    return KVANT_OK;
}

static int is_digit(uint32_t c)
{
    return utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_ND;
}

static int is_letter(uint32_t c)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);

    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

static int is_letter_or_digit(uint32_t c)
{
    return is_letter(c) || is_digit(c);
}

static int m_isdigit(jinja_run *r, jval self, const jargs *a, jval *out)
{
    (void)a;
    KVANT_TRY(j_charge(r, self.u.s->n / 16));
    return all_are(self, is_digit, out);
}

static int m_isalpha(jinja_run *r, jval self, const jargs *a, jval *out)
{
    (void)a;
    KVANT_TRY(j_charge(r, self.u.s->n / 16));
    return all_are(self, is_letter, out);
}

static int m_isalnum(jinja_run *r, jval self, const jargs *a, jval *out)
{
    (void)a;
    KVANT_TRY(j_charge(r, self.u.s->n / 16));
    return all_are(self, is_letter_or_digit, out);
}

static int m_isspace(jinja_run *r, jval self, const jargs *a, jval *out)
{
    (void)a;
    KVANT_TRY(j_charge(r, self.u.s->n / 16));
    return all_are(self, j_is_space, out);
}

static int m_isupper(jinja_run *r, jval self, const jargs *a, jval *out)
{
    jval upper;

    (void)a;
    KVANT_TRY(jstr_recase(r, self.u.s, JCASE_UPPER, &upper));
    int ok = jkey_equal(self, upper);
    KVANT_TRY(jstr_recase(r, self.u.s, JCASE_LOWER, &upper));
    *out = j_bool(ok && !jkey_equal(self, upper));
    return KVANT_OK;
}

static int m_islower(jinja_run *r, jval self, const jargs *a, jval *out)
{
    jval lower;

    (void)a;
    KVANT_TRY(jstr_recase(r, self.u.s, JCASE_LOWER, &lower));
    int ok = jkey_equal(self, lower);
    KVANT_TRY(jstr_recase(r, self.u.s, JCASE_UPPER, &lower));
    *out = j_bool(ok && !jkey_equal(self, lower));
    return KVANT_OK;
}

/* ---- format: {} {0} {name}, without format specifications ---- */

static const jval *format_field(const jargs *a, const jstr *s, size_t from, size_t to, int *next)
{
    int64_t number = 0;
    size_t i = from;

    while (i < to && to - from < 6 && s->s[i] >= '0' && s->s[i] <= '9')
        number = number * 10 + (s->s[i++] - '0');
    if (i == to) {
        int at = to > from ? (int)number : (*next)++;
        return at < a->n_rest ? &a->rest[at] : NULL;
    }
    for (int k = 0; k < a->n_kw; k++)
        if (a->kw[2 * k].u.s->n == to - from && memcmp(a->kw[2 * k].u.s->s, s->s + from, to - from) == 0)
            return &a->kw[2 * k + 1];
    return NULL;
}

static int m_format(jinja_run *r, jval self, const jargs *a, jval *out)
{
    const jstr *s = self.u.s;
    jbuf b = { 0 };
    int next = 0;

    for (size_t i = 0; i < s->n; i++) {
        const char c = s->s[i];
        const char *close = c == '{' ? memchr(s->s + i, '}', s->n - i) : NULL;
        if ((c == '{' || c == '}') && i + 1 < s->n && s->s[i + 1] == c) {
            KVANT_TRY(jbuf_str(r, &b, s, i++, 1));
        } else if (c == '{' && close) {
            const jval *v = format_field(a, s, i + 1, (size_t)(close - s->s), &next);
            if (!v)
                return j_fail(r, "format: nothing for '%.*s' (plain fields only)", (int)(close - s->s - (int64_t)i + 1),
                              s->s + i);
            KVANT_TRY(j_print(r, &b, *v));
            i = (size_t)(close - s->s);
        } else if (c == '{' || c == '}') {
            return j_fail(r, "format: a single '%c'", c);
        } else {
            KVANT_TRY(jbuf_str(r, &b, s, i, 1));
        }
    }
    return jbuf_done(r, &b, out);
}

/* ---- lists, dicts, loops ---- */

static int m_refused(jinja_run *r, jval self, const jargs *a, jval *out)
{
    (void)a;
    (void)out;
    return j_fail(r, "a method that changes a %s is not allowed", j_type_name(self));
}

static int m_append(jinja_run *r, jval self, const jargs *a, jval *out)
{
    if (self.type != J_LIST || self.u.l->fixed)
        return m_refused(r, self, a, out);
    *out = J_NONE_VALUE;
    return jlist_add(&r->mem, self.u.l, a->v[0]) ? KVANT_OK : j_nomem(r);
}

static int m_pop(jinja_run *r, jval self, const jargs *a, jval *out)
{
    jlist *l = self.u.l;
    int64_t i;

    if (self.type != J_LIST || l->fixed)
        return m_refused(r, self, a, out);
    KVANT_TRY(jargs_int(r, a, 0, "pop", -1, &i));
    i += i < 0 ? (int64_t)l->n : 0;
    if (i < 0 || i >= (int64_t)l->n)
        return j_fail(r, "pop: %lld of a list of %zu", (long long)i, l->n);
    KVANT_TRY(j_charge(r, l->n));
    *out = l->v[i];
    memmove(l->v + i, l->v + i + 1, (l->n - 1 - (size_t)i) * sizeof *l->v);
    l->n--;
    return KVANT_OK;
}

static int m_list_count(jinja_run *r, jval self, const jargs *a, jval *out)
{
    int64_t n = 0;
    int same;

    for (size_t i = 0; i < self.u.l->n; i++) {
        KVANT_TRY(j_equal(r, self.u.l->v[i], a->v[0], &same));
        n += same;
    }
    *out = j_int(n);
    return KVANT_OK;
}

static int m_list_index(jinja_run *r, jval self, const jargs *a, jval *out)
{
    int same = 0;

    for (size_t i = 0; i < self.u.l->n && !same; i++) {
        KVANT_TRY(j_equal(r, self.u.l->v[i], a->v[0], &same));
        *out = j_int((int64_t)i);
    }
    return same ? KVANT_OK : j_fail(r, "index: not found");
}

static int m_list_copy(jinja_run *r, jval self, const jargs *a, jval *out)
{
    const jval all[3] = { J_NONE_VALUE, J_NONE_VALUE, J_NONE_VALUE };

    (void)a;
    return j_slice_of(r, self, all, out);
}

static int m_get(jinja_run *r, jval self, const jargs *a, jval *out)
{
    KVANT_TRY(j_hashable(r, a->v[0]));
    const jval *v = jdict_get(self.u.d, a->v[0], &r->steps);
    *out = v ? *v : a->given & 2 ? a->v[1] : J_NONE_VALUE;
    return KVANT_OK;
}

static int m_items(jinja_run *r, jval self, const jargs *a, jval *out)
{
    const jdict *d = self.u.d;

    (void)a;
    KVANT_TRY(j_charge(r, d->n));
    if (!j_list(&r->mem, d->n, out))
        return j_nomem(r);
    for (size_t i = 0; i < d->n; i++) {
        jval pair;
        if (!j_list(&r->mem, 2, &pair))
            return j_nomem(r);
        pair.type = J_TUPLE;
        pair.u.l->v[0] = d->keys[i];
        pair.u.l->v[1] = d->vals[i];
        pair.u.l->n = 2;
        out->u.l->v[out->u.l->n++] = pair;
    }
    return KVANT_OK;
}

static int listed(jinja_run *r, const jval *v, size_t n, jval *out)
{
    KVANT_TRY(j_charge(r, n));
    if (!j_list(&r->mem, n, out))
        return j_nomem(r);
    if (n)
        memcpy(out->u.l->v, v, n * sizeof *v);
    out->u.l->n = n;
    return KVANT_OK;
}

static int m_keys(jinja_run *r, jval self, const jargs *a, jval *out)
{
    (void)a;
    return listed(r, self.u.d->keys, self.u.d->n, out);
}

static int m_values(jinja_run *r, jval self, const jargs *a, jval *out)
{
    (void)a;
    return listed(r, self.u.d->vals, self.u.d->n, out);
}

static int m_dict_copy(jinja_run *r, jval self, const jargs *a, jval *out)
{
    (void)a;
    if (!j_dict(&r->mem, self.u.d->n, out))
        return j_nomem(r);
    for (size_t i = 0; i < self.u.d->n; i++)
        if (!jdict_put(&r->mem, out->u.d, self.u.d->keys[i], self.u.d->vals[i], &r->steps))
            return j_nomem(r);
    return KVANT_OK;
}

static int m_cycle(jinja_run *r, jval self, const jargs *a, jval *out)
{
    if (!a->n_rest)
        return j_fail(r, "cycle: no values");
    *out = a->rest[(self.u.loop->i - 1) % (size_t)a->n_rest];
    return KVANT_OK;
}

static int m_changed(jinja_run *r, jval self, const jargs *a, jval *out)
{
    jval now;
    int same = 0;

    KVANT_TRY(listed(r, a->rest, (size_t)a->n_rest, &now));
    if (self.u.loop->changed.type == J_LIST)
        KVANT_TRY(j_equal(r, self.u.loop->changed, now, &same));
    self.u.loop->changed = now;
    *out = j_bool(!same);
    return KVANT_OK;
}

/* clang-format off */
const jbuiltin jinja_str_methods[] = {
    { "strip", m_strip, "chars" }, { "lstrip", m_lstrip, "chars" }, { "rstrip", m_rstrip, "chars" },
    { "split", m_split, "sep,maxsplit" }, { "rsplit", m_rsplit, "sep,maxsplit" },
    { "splitlines", m_splitlines, "keepends" }, { "startswith", m_startswith, "prefix!,start,end" },
    { "endswith", m_endswith, "suffix!,start,end" }, { "replace", m_replace, "old!,new!,count" },
    { "upper", m_upper, "" }, { "lower", m_lower, "" }, { "casefold", m_lower, "" }, { "title", m_title, "" },
    { "capitalize", m_capitalize, "" }, { "join", m_join, "iterable!" }, { "format", m_format, "**" },
    { "find", m_find, "sub!" }, { "rfind", m_rfind, "sub!" }, { "index", m_index, "sub!" },
    { "count", m_str_count, "sub!" }, { "partition", m_partition, "sep!" },
    { "removeprefix", m_removeprefix, "prefix!" }, { "removesuffix", m_removesuffix, "suffix!" },
    { "isdigit", m_isdigit, "" }, { "isdecimal", m_isdigit, "" }, { "isnumeric", m_isdigit, "" },
    { "isalpha", m_isalpha, "" }, { "isalnum", m_isalnum, "" }, { "isspace", m_isspace, "" },
    { "isupper", m_isupper, "" }, { "islower", m_islower, "" }, { NULL, NULL, NULL },
};
const jbuiltin jinja_list_methods[] = {
    { "append", m_append, "object!" }, { "count", m_list_count, "value!" }, { "index", m_list_index, "value!" },
    { "copy", m_list_copy, "" }, { "extend", m_refused, "*" }, { "insert", m_refused, "*" }, { "pop", m_pop, "index" },
    { "remove", m_refused, "*" }, { "clear", m_refused, "*" }, { "reverse", m_refused, "*" },
    { "sort", m_refused, "**" }, { NULL, NULL, NULL },
};
const jbuiltin jinja_dict_methods[] = {
    { "get", m_get, "key!,default" }, { "items", m_items, "" }, { "keys", m_keys, "" }, { "values", m_values, "" },
    { "copy", m_dict_copy, "" }, { "pop", m_refused, "*" }, { "update", m_refused, "**" },
    { "setdefault", m_refused, "*" }, { "clear", m_refused, "*" }, { "popitem", m_refused, "*" },
    { NULL, NULL, NULL },
};
const jbuiltin jinja_loop_methods[] = {
    { "cycle", m_cycle, "*" }, { "changed", m_changed, "*" }, { NULL, NULL, NULL },
};
/* clang-format on */
