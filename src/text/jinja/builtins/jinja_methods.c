/* jinja_methods.c: methods of texts, as Python's. */
#include "text/jinja/jinja_methods.h"

#include <string.h>
#include <utf8proc.h>

/* ---- strip, case ---- */

static int strip(jinja_run *r, jval self, const jargs *a, int left, int right, jval *out)
{
    const jstr *chars;
    size_t from, to;

    KVANT_TRY(jargs_str(r, a, 0, "strip", &chars));
    KVANT_TRY(j_strip(r, self.u.s, chars, left, right, &from, &to));
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

static int m_casefold(jinja_run *r, jval self, const jargs *a, jval *out)
{
    (void)a;
    return jstr_recase(r, self.u.s, JCASE_FOLD, out);
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
        size_t at = j_seek(r, s, sep, from, to, right);
        if (at == SIZE_MAX)
            break; /* add_piece charges */
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
    KVANT_TRY(j_charge(r, sep ? 1 : self.u.s->n / 8));
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

size_t jstr_line_end(const jstr *s, size_t at, int *len)
{
    const uint32_t c = jstr_char(s, at, len);

    if (c == '\r' && at + 1 < s->n && s->s[at + 1] == '\n')
        return 2;
    return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029
               ? (size_t)*len
               : 0;
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
        const size_t end = jstr_line_end(s, at, &len);
        at += end ? end : (size_t)len;
        if (end)
            KVANT_TRY(add_piece(r, *out, s, from, keep ? at : at - end));
        if (end)
            from = at;
    }
    return from < s->n ? add_piece(r, *out, s, from, s->n) : KVANT_OK;
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
        KVANT_TRY(j_charge(r, w->n <= s->n ? w->n / 64 + 1 : 1));
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
    size_t at = j_seek(r, self.u.s, what, 0, self.u.s->n, last);
    jstr before = { self.u.s->s, NULL, (uint32_t)at, 0, 0 };
    KVANT_TRY(j_charge_chars(r, at == SIZE_MAX ? 0 : at));
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
    if (what->n == 0) {
        KVANT_TRY(j_charge_chars(r, self.u.s->n));
        n = (int64_t)jstr_length(self.u.s) + 1;
    }
    for (size_t at = 0; what->n && (at = j_seek(r, self.u.s, what, at, self.u.s->n, 0)) != SIZE_MAX; at += what->n)
        n++;
    *out = j_int(n);
    return j_charge(r, 1);
}

/* partition: what is before, the separator, what is behind. */
static int m_partition(jinja_run *r, jval self, const jargs *a, jval *out)
{
    const jstr *s = self.u.s, *sep;

    KVANT_TRY(jargs_str(r, a, 0, "partition", &sep));
    if (!sep || !sep->n)
        return j_fail(r, "partition: the separator is empty");
    size_t at = j_seek(r, s, sep, 0, s->n, 0), end = at == SIZE_MAX ? s->n : at + sep->n;
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
static int all_are(jinja_run *r, jval self, int is(uint32_t c), jval *out)
{
    int ok = self.u.s->n > 0, len;

    KVANT_TRY(j_charge(r, self.u.s->n / 16));
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
    return all_are(r, self, is_digit, out);
}

static int m_isalpha(jinja_run *r, jval self, const jargs *a, jval *out)
{
    (void)a;
    return all_are(r, self, is_letter, out);
}

static int m_isalnum(jinja_run *r, jval self, const jargs *a, jval *out)
{
    (void)a;
    return all_are(r, self, is_letter_or_digit, out);
}

static int m_isspace(jinja_run *r, jval self, const jargs *a, jval *out)
{
    (void)a;
    return all_are(r, self, j_is_space, out);
}

/* There is a letter of this case, and none of the other. */
static int in_case(jinja_run *r, jval self, enum jcase own, enum jcase other, jval *out)
{
    jval v;

    KVANT_TRY(jstr_recase(r, self.u.s, own, &v));
    const int ok = jkey_equal(self, v);
    KVANT_TRY(jstr_recase(r, self.u.s, other, &v));
    *out = j_bool(ok && !jkey_equal(self, v));
    return KVANT_OK;
}

static int m_isupper(jinja_run *r, jval self, const jargs *a, jval *out)
{
    (void)a;
    return in_case(r, self, JCASE_UPPER, JCASE_LOWER, out);
}

static int m_islower(jinja_run *r, jval self, const jargs *a, jval *out)
{
    (void)a;
    return in_case(r, self, JCASE_LOWER, JCASE_UPPER, out);
}

/* ---- format: {} {0} {name}, without format specifications ---- */

/* NULL: there is none, or {} and {0} are mixed: *next counts the {}, -1 where {0} came first. */
static const jval *format_field(const jargs *a, const jstr *s, size_t from, size_t to, int *next)
{
    int64_t number = 0;
    size_t i = from;

    while (i < to && to - from < 6 && s->s[i] >= '0' && s->s[i] <= '9')
        number = number * 10 + (s->s[i++] - '0');
    if (i == to) {
        if (to > from ? *next > 0 : *next < 0)
            return NULL;
        int at = to > from ? (int)number : (*next)++;
        *next = to > from ? -1 : *next;
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
            KVANT_TRY(j_charge(r, (size_t)a->n_kw / 4 + 1));
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

/* clang-format off */
const jbuiltin jinja_str_methods[] = {
    { "strip", m_strip, "chars" }, { "lstrip", m_lstrip, "chars" }, { "rstrip", m_rstrip, "chars" },
    { "split", m_split, "sep,maxsplit" }, { "rsplit", m_rsplit, "sep,maxsplit" },
    { "splitlines", m_splitlines, "keepends" }, { "startswith", m_startswith, "prefix!,start,end" },
    { "endswith", m_endswith, "suffix!,start,end" }, { "replace", m_replace, "old!,new!,count" },
    { "upper", m_upper, "" }, { "lower", m_lower, "" }, { "casefold", m_casefold, "" }, { "title", m_title, "" },
    { "capitalize", m_capitalize, "" }, { "join", m_join, "iterable!" }, { "format", m_format, "**" },
    { "find", m_find, "sub!" }, { "rfind", m_rfind, "sub!" }, { "index", m_index, "sub!" },
    { "count", m_str_count, "sub!" }, { "partition", m_partition, "sep!" },
    { "removeprefix", m_removeprefix, "prefix!" }, { "removesuffix", m_removesuffix, "suffix!" },
    { "isdigit", m_isdigit, "" }, { "isdecimal", m_isdigit, "" }, { "isnumeric", m_isdigit, "" },
    { "isalpha", m_isalpha, "" }, { "isalnum", m_isalnum, "" }, { "isspace", m_isspace, "" },
    { "isupper", m_isupper, "" }, { "islower", m_islower, "" }, { NULL, NULL, NULL },
};
/* clang-format on */
