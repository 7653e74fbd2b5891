/* request_fields.c: a body's fields, one by one, against the table of decisions (fields.def): a field that changes the
 * text in a server of this field and is not there is refused, unless its value is the one that changes nothing; so is a
 * field that looks like a misspelt one of ours.  All others that nothing reads are ignored, and the answer says so.
 *
 * Each route has its own list of the table's lines, sorted by path, so that the fields of one object stand side by
 * side; the lists are made once.  Nothing here allocates. */
#include "server/request/request_fields.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "server/request/json_scan.h"

enum {
    CHAT = REQUEST_CHAT,
    TEXT = REQUEST_TEXT,
    TEMPLATE = REQUEST_TEMPLATE,
    EMBED = REQUEST_EMBED,
    NATIVE = REQUEST_NATIVE,
    INFILL = REQUEST_INFILL,
    RERANK = REQUEST_RERANK,
    MESSAGES = REQUEST_MESSAGES,
    RESPONSES = REQUEST_RESPONSES,
    TOKENIZE = REQUEST_TOKENIZE,
    DETOKENIZE = REQUEST_DETOKENIZE,
    OLLAMA_CHAT = REQUEST_OLLAMA_CHAT,
    OLLAMA_GENERATE = REQUEST_OLLAMA_GENERATE,
    OLLAMA_EMBED = REQUEST_OLLAMA_EMBED,
    OLLAMA_SHOW = REQUEST_OLLAMA_SHOW,
    COHERE_EMBED = REQUEST_COHERE_EMBED,
    TGI = REQUEST_TGI,
    PREDICT = REQUEST_PREDICT,
    COHERE_CHAT = REQUEST_COHERE_CHAT,
    FIM = REQUEST_FIM,
    TEI = REQUEST_TEI,
    SIMILAR = REQUEST_SIMILAR,
};

/* Values that change nothing; null never does. */
enum { ZERO = 1, ONE = 2, MINUS = 4 /* -1 */, OFF = 8 /* false */, ON = 16 /* true */, EMPTY = 32 };

#define READ(path, routes) { path, routes, FIELD_READ, 0, NULL, NULL },
#define HARMLESS(path, routes, why) { path, routes, FIELD_HARMLESS, 0, NULL, why },
#define WARN(path, routes, neutral, words, why) { path, routes, FIELD_WARN, neutral, words, why },
#define REFUSE(path, routes, neutral, words, instead) { path, routes, FIELD_REFUSE, neutral, words, instead },
static const request_field fields[] = {
#include "server/request/fields.def"
};
#undef READ
#undef HARMLESS
#undef WARN
#undef REFUSE

enum { FIELDS = sizeof fields / sizeof *fields, NAME_MOST = 64, ROUTES = 22 };

/* The lines of one route, sorted. */
typedef struct route_list {
    int route, n;
    const request_field *rows[FIELDS];
} route_list;

static route_list lists[ROUTES];
static pthread_once_t lists_once = PTHREAD_ONCE_INIT;

int request_field_count(void)
{
    return FIELDS;
}

const request_field *request_field_at(int i)
{
    return &fields[i];
}

static int by_path(const void *a, const void *b)
{
    const request_field *x = *(const request_field *const *)a, *y = *(const request_field *const *)b;
    const int order = strcmp(x->path, y->path);

    return order ? order : x < y ? -1 : 1; /* of equal paths the first line counts */
}

static void make_list(route_list *l, int route)
{
    int n = 0;

    l->route = route;
    for (int i = 0; i < FIELDS; i++)
        if (fields[i].routes & route)
            l->rows[n++] = &fields[i];
    qsort(l->rows, (size_t)n, sizeof *l->rows, by_path);
    for (int i = 0; i < n; i++)
        if (!l->n || strcmp(l->rows[l->n - 1]->path, l->rows[i]->path) != 0)
            l->rows[l->n++] = l->rows[i];
}

static void make_lists(void)
{
    static const int routes[ROUTES] = { CHAT,        TEXT,            TEMPLATE,     EMBED,      NATIVE,
                                        NATIVE | INFILL, RERANK,      MESSAGES,     RESPONSES,  TOKENIZE,
                                        DETOKENIZE,  OLLAMA_CHAT,     OLLAMA_GENERATE, OLLAMA_EMBED, OLLAMA_SHOW,
                                        COHERE_EMBED, TGI, PREDICT, COHERE_CHAT, FIM,
                                        TEI, SIMILAR };

    for (int i = 0; i < ROUTES; i++)
        make_list(&lists[i], routes[i]);
}

static const route_list *list_of(int route)
{
    int i = 0;

    pthread_once(&lists_once, make_lists);
    while (i < ROUTES - 1 && lists[i].route != route)
        i++;
    return &lists[i];
}

/* ---- looking up ---- */

/* First line whose path is not below the n bytes at s. */
static int lower(const route_list *l, const char *s, size_t n)
{
    int lo = 0, hi = l->n;

    while (lo < hi) {
        const int mid = (lo + hi) / 2;
        const int order = strncmp(l->rows[mid]->path, s, n);
        if (order < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* An object of a body: its path, and the lines about its fields. */
typedef struct scope {
    char path[FIELD_PATH];
    size_t n; /* bytes of "PATH.", which its fields' paths begin with */
    int lo, hi;
} scope;

static void open_scope(const route_list *l, const char *path, scope *s)
{
    char end[FIELD_PATH + 2];

    snprintf(s->path, sizeof s->path, "%s", path);
    const int n = snprintf(end, sizeof end, path[0] ? "%s." : "%s", s->path);
    s->n = (size_t)n;
    s->lo = lower(l, end, s->n);
    if (!n) {
        s->hi = l->n;
        return;
    }
    end[n - 1] = '.' + 1;
    s->hi = lower(l, end, s->n);
}

static const request_field *find_in(const route_list *l, const scope *s, const char *name)
{
    int lo = s->lo, hi = s->hi;

    while (lo < hi) {
        const int mid = (lo + hi) / 2, order = strcmp(l->rows[mid]->path + s->n, name);
        if (order == 0)
            return l->rows[mid];
        if (order < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

static const request_field *find_path(const route_list *l, const char *path)
{
    const scope all = { .lo = 0, .hi = l->n };

    return find_in(l, &all, path);
}

/* The line about a field of the scope: its own, that of its name anywhere, or that of any field of the scope. */
static const request_field *find_field(const route_list *l, const scope *s, const char *name)
{
    char any[NAME_MOST + 4];
    const request_field *f = find_in(l, s, name);

    if (f || !s->n || strlen(name) > NAME_MOST)
        return f;
    snprintf(any, sizeof any, "*.%s", name);
    f = find_path(l, any);
    return f ? f : find_in(l, s, "*");
}

/* The scope of a list's item, or of an object with a type, at `path`: "path[type]", else "path[*]", else "path[]" or
 * "path".  *whole: a line that decides about all of it, or NULL. */
static void choose_scope(const route_list *l, const char *path, const char *type, int listed, scope *s,
                         const request_field **whole)
{
    char at[FIELD_PATH];

    *whole = NULL;
    if (type && strlen(type) <= NAME_MOST && !strpbrk(type, "[]*")) {
        snprintf(at, sizeof at, "%.120s[%s]", path, type);
        open_scope(l, at, s);
        *whole = find_path(l, at);
        if (*whole || s->lo < s->hi)
            return;
    }
    if (type) {
        snprintf(at, sizeof at, "%.120s[*]", path);
        *whole = find_path(l, at);
    }
    snprintf(at, sizeof at, "%.120s%s", path, listed ? "[]" : "");
    open_scope(l, at, s);
}

/* The line that decides about what stands in brackets behind a field, or NULL: *s is the scope to go on in. */
static const request_field *find_member(const route_list *l, const char *path, const char *type, scope *s)
{
    const request_field *whole;

    choose_scope(l, path, type[0] ? type : NULL, 1, s, &whole);
    return whole && (whole->what != FIELD_READ || s->lo == s->hi || strstr(whole->path, "[*]")) ? whole : NULL;
}

const request_field *request_field_find(int route, const char *path)
{
    const route_list *l = list_of(route);
    char name[NAME_MOST + 1], type[NAME_MOST + 1], at[FIELD_PATH];
    const request_field *f = NULL, *whole;
    scope s;

    if ((f = find_path(l, path)) != NULL) /* some servers have dots in their names */
        return f;
    open_scope(l, "", &s);
    while (*path && (!f || s.lo < s.hi)) { /* without lines below it, all that a field holds is its reader's */
        const size_t n = strcspn(path, ".[");
        snprintf(name, sizeof name, "%.*s", (int)n, path);
        f = find_field(l, &s, name);
        if (!f || f->what != FIELD_READ)
            return f;
        snprintf(at, sizeof at, "%.120s%s%s", s.path, s.n ? "." : "", name);
        open_scope(l, at, &s);
        path += n;
        if (*path == '[') {
            const size_t k = strcspn(path, "]");
            snprintf(type, sizeof type, "%.*s", (int)k - 1, path + 1);
            if ((whole = find_member(l, at, type, &s)))
                return whole;
            path += k + (path[k] == ']');
        }
        path += *path == '.';
    }
    return f;
}

/* ---- values ---- */

static int is_neutral(const request_field *f, const json_t *v)
{
    const char *s = json_is_array(v) && json_array_size(v) == 1 ? json_string_value(json_array_get(v, 0))
                                                                : json_string_value(v);
    char word[40];
    double d = json_number_value(v);

    if (json_is_null(v) || json_is_wide(v))
        return json_is_null(v);
    if (json_is_number(v))
        return (f->neutral & ZERO && d == 0) || (f->neutral & ONE && d == 1) || (f->neutral & MINUS && d == -1);
    if (json_is_boolean(v))
        return f->neutral & (json_is_true(v) ? ON : OFF);
    if (s && s[0])
        return f->words && snprintf(word, sizeof word, "|%s|", s) < (int)sizeof word && strstr(f->words, word);
    return f->neutral & EMPTY && (s || json_array_size(v) + json_object_size(v) == 0);
}

static int refuse(const request_field *f, const char *path, const json_t *v, api_error *e)
{
    char *text = json_text(v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_ENSURE_ASCII), param[NAME_MOST];
    int long_one = text && strlen(text) > 40;

    snprintf(param, sizeof param, "%.*s", (int)strcspn(path, ".["), path); /* as the client may look it up */
    api_fail(e, BAD, param, "%.80s: %.40s%s is not supported here and would change the answer; %s", path,
             text ? text : "this value", long_one ? "..." : "", f->text ? f->text : "leave the field out");
    free(text);
    return BAD;
}

/* ---- misspellings ---- */

enum { FOLDED = 40 };

/* Small letters and digits only: maxTokens and max-tokens are max_tokens.  0: longer than any name of ours. */
static int fold(const char *name, char out[FOLDED])
{
    int n = 0;

    for (; *name; name++) {
        if (!isalnum((unsigned char)*name))
            continue;
        if (n == FOLDED - 1)
            return 0;
        out[n++] = (char)tolower((unsigned char)*name);
    }
    out[n] = 0;
    return n;
}

/* Returns 1 if one letter inserted, removed, replaced or swapped with its neighbour (or nothing) makes b of a. */
static int one_off(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b), i = 0;

    while (a[i] && a[i] == b[i])
        i++;
    if (n == m && a[i] && a[i + 1] && a[i] == b[i + 1] && a[i + 1] == b[i] && strcmp(a + i + 2, b + i + 2) == 0)
        return 1;
    if (n == m)
        return !a[i] || strcmp(a + i + 1, b + i + 1) == 0;
    return (n == m + 1 && strcmp(a + i + 1, b + i) == 0) || (m == n + 1 && strcmp(a + i, b + i + 1) == 0);
}

/* Our field that the name was meant to be, or NULL.  Short names must match but for case and underscores. */
static const char *meant(const char *name, const route_list *l)
{
    char given[FOLDED], ours[FOLDED];
    int n = fold(name, given);

    for (int close = 0; n && close < 2; close++)
        for (int i = 0; i < l->n; i++) {
            const char *path = l->rows[i]->path;
            if (l->rows[i]->what != FIELD_READ || strpbrk(path, ".[*"))
                continue;
            const int m = fold(path, ours);
            if (m && (close ? n >= 4 && m >= 5 && one_off(given, ours) : strcmp(given, ours) == 0))
                return path;
        }
    return NULL;
}

/* ---- the check ---- */

static int is_noted(const char *name, const char *list)
{
    const size_t n = strlen(name);

    for (const char *p = list; (p = strstr(p, name)) != NULL; p += n)
        if ((p == list || p[-1] == ' ') && (!p[n] || p[n] == ','))
            return 1;
    return 0;
}

void request_note_ignored(const char *name, char ignored[REQUEST_IGNORED])
{
    name = *name ? name : "?"; /* JSON allows a field without a name */
    size_t at = strlen(ignored), n = strlen(name);

    if ((at >= 3 && strcmp(ignored + at - 3, "...") == 0) || is_noted(name, ignored))
        return;
    if (n > 64 || at + n + 8 > REQUEST_IGNORED) {
        snprintf(ignored + at, REQUEST_IGNORED - at, "%s...", at ? ", " : "");
        return;
    }
    at += (size_t)snprintf(ignored + at, REQUEST_IGNORED - at, "%s", at ? ", " : "");
    for (; *name; name++)
        ignored[at++] = isalnum((unsigned char)*name) || strchr("_-.[]*", *name) ? *name : '?';
    ignored[at] = 0;
}

typedef struct check {
    const request_env *env;
    const route_list *l;
    char *ignored;
    api_error *e;
} check;

static int check_object(const check *c, const json_t *o, const scope *s);

static int unknown(const check *c, const char *path, int top)
{
    const char *ours = top ? meant(path, c->l) : NULL;

    if (ours)
        return api_fail(c->e, BAD, ours, "%.64s: not a field of this route; did you mean %s?", path, ours);
    if (c->env->refuse_unknown)
        return api_fail(c->e, BAD, "", "%.64s: not a field of this route", path);
    request_note_ignored(path, c->ignored);
    return API_OK;
}

/* Does what a line of the table says of the value that came for it. */
static int decide(const check *c, const request_field *f, const char *path, const json_t *v)
{
    if (f->what == FIELD_REFUSE && !is_neutral(f, v))
        return refuse(f, path, v, c->e);
    if (f->what == FIELD_WARN && !is_neutral(f, v) && c->env->refuse_unknown)
        return refuse(f, path, v, c->e);
    if (f->what == FIELD_WARN && !is_neutral(f, v))
        request_note_ignored(path, c->ignored);
    return API_OK;
}

/* One object at `path`, of a list or by itself. */
static int check_one(const check *c, const json_t *v, const char *path, int listed)
{
    const char *type = json_string_value(json_object_get(v, "type"));
    const request_field *whole;
    char at[FIELD_PATH];
    scope s;

    choose_scope(c->l, path, type, listed, &s, &whole);
    snprintf(at, sizeof at, "%.120s[%.64s]", path, type ? type : "");
    if (whole && whole->what != FIELD_READ)
        return decide(c, whole, at, v);
    return s.lo < s.hi && !(whole && strstr(whole->path, "[*]")) ? check_object(c, v, &s) : API_OK;
}

/* Checks the value of a field that is read. */
static int check_value(const check *c, const json_t *v, const char *path)
{
    size_t i;
    json_t *x;

    if (json_is_object(v))
        return check_one(c, v, path, 0);
    json_array_foreach((json_t *)v, i, x) if (json_is_object(x)) API_TRY(check_one(c, x, path, 1));
    return API_OK;
}

static int check_object(const check *c, const json_t *o, const scope *s)
{
    const char *name;
    json_t *v;

    json_object_foreach((json_t *)o, name, v)
    {
        char path[FIELD_PATH];
        const request_field *f = find_field(c->l, s, name);
        snprintf(path, sizeof path, "%.120s%s%.64s", s->path, s->n ? "." : "", name);
        if (json_is_null(v) && (f || s->n))
            continue; /* as good as missing */
        if (!f)
            API_TRY(unknown(c, path, s->n == 0));
        else if (f->what != FIELD_READ)
            API_TRY(decide(c, f, path, v));
        else
            API_TRY(check_value(c, v, path));
    }
    return API_OK;
}

int request_check_fields(const request_env *env, const json_t *o, int route, char ignored[REQUEST_IGNORED],
                         api_error *e)
{
    const check c = { env, list_of(route), ignored, e };
    scope top;

    ignored[0] = 0;
    open_scope(c.l, "", &top);
    return check_object(&c, o, &top);
}
