/* check_server_tool_variants.c: near-variants of each dialect's calls.
 *
 * Two calls (one, where a dialect has no more) are pieces: markers, names, keys, values, ends.  Changes that models are
 * known to make are applied to them, alone and in pairs: pieces forgotten or written twice, blanks, quotes, commas,
 * Python's words, orders of keys, fences, other markers, wrong case.  At least 200 texts a dialect are different.
 *
 * Each text is read as the calls that were meant or, all that is not told, as text: never half a call, nor one that was
 * not meant; equal for every cut.  Where all its changes are ones that must be read, all calls must be told.
 *
 *   check_server_tool_variants [EVERY]           EVERY: bytes from cut to cut (default 31)
 *   check_server_tool_variants --show DIALECT    each text, and what it was read as */
#include "base/rng.h"
#include "server/tools/tool_parser_impl.h"
#include "support/tool_texts.h"

enum { MOST_PIECES = 64, LEAST = 200, MOST_TEXTS = 4096 };

#define TOOLS                                                                                                          \
    "[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":{\"type\":\"object\",\"properties\":"   \
    "{\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},\"exact\":{\"type\":\"boolean\"},"                \
    "\"unit\":{\"type\":[\"string\",\"null\"]},\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}},"        \
    "\"required\":[\"city\"]}}},{\"type\":\"function\",\"function\":{\"name\":\"send_mail\",\"parameters\":{"          \
    "\"type\":\"object\",\"properties\":{\"to\":{\"type\":\"string\"},\"body\":{\"type\":\"string\"}},"                \
    "\"required\":[\"to\"]}}}]"
#define FIRST  "{\"city\":\"New York\",\"days\":3,\"exact\":true,\"unit\":null,\"tags\":[\"a\",\"b c\"]}"
#define SECOND "{\"to\":\"Ann\",\"body\":\"Hi, you.\"}"

/* ---- pieces ---- */

enum { P_LEAD, P_OPEN, P_BEFORE, P_NAME, P_MIDDLE, P_ARGS, P_KEY, P_KEYNAME, P_SEP, P_VALUE, P_END, P_COMMA, P_AFTER,
       P_BETWEEN, P_CLOSE };

typedef struct piece {
    int kind, call;
    const char *pattern; /* a text of the dialect, or NULL: s as it is */
    char s[200];
} piece;

/* How values and patterns are written. */
typedef struct style {
    const char *blank, *quote, *comma, *colon, *tail; /* tail: before a closing bracket */
    int python;
} style;

typedef struct written {
    const dialect *d;
    piece p[MOST_PIECES];
    int n, must;
    style how;
    const char *before, *after; /* of all */
} written;

static void add(written *w, int kind, int call, const char *pattern, const char *s)
{
    if (!pattern && !s)
        return;
    piece *p = &w->p[w->n++];
    CHECK(w->n <= MOST_PIECES, "pieces");
    *p = (piece){ .kind = kind, .call = call, .pattern = pattern };
    if (s)
        snprintf(p->s, sizeof p->s, "%s", s);
}

static void put_json(sbuf *b, const json_t *v, const style *h)
{
    const char *key, *bar = "";
    json_t *x;
    size_t i;

    if (json_is_string(v)) {
        sbuf_printf(b, "%s%s%s", h->quote, json_string_value(v), h->quote);
    } else if (json_is_object(v) || json_is_array(v)) {
        sbuf_puts(b, json_is_object(v) ? "{" : "[");
        json_object_foreach((json_t *)v, key, x)
        {
            sbuf_printf(b, "%s%s%s%s%s%s", bar, h->blank, h->quote, key, h->quote, h->colon);
            put_json(b, x, h);
            bar = h->comma;
        }
        json_array_foreach((json_t *)v, i, x)
        {
            sbuf_puts(b, bar);
            put_json(b, x, h);
            bar = h->comma;
        }
        sbuf_puts(b, *bar ? h->tail : "");
        sbuf_puts(b, json_is_object(v) ? "}" : "]");
    } else if (h->python && (json_is_boolean(v) || json_is_null(v))) {
        sbuf_puts(b, json_is_null(v) ? "None" : json_is_true(v) ? "True" : "False");
    } else {
        tool_json_put(v, b);
    }
}

static void pieces_of(written *w, int call, const char *name, const json_t *args, const style *h)
{
    const dialect_args *a = w->d->args;
    const char *key;
    json_t *v;
    int first = 1;

    add(w, P_BEFORE, call, w->d->before, NULL);
    add(w, P_NAME, call, NULL, name);
    add(w, P_MIDDLE, call, w->d->middle, NULL);
    sbuf b = { 0 };
    if (!a) {
        put_json(&b, args, h);
        add(w, P_ARGS, call, NULL, b.s);
    }
    for (void *it = json_object_iter((json_t *)args); a && it; it = json_object_iter_next((json_t *)args, it)) {
        key = json_object_iter_key(it);
        v = json_object_iter_value(it);
        const char *typed = strchr(a->value, '\v');
        if (!first)
            add(w, P_COMMA, call, a->between, NULL);
        first = 0;
        add(w, P_KEY, call, a->key, NULL);
        add(w, P_KEYNAME, call, NULL, key);
        add(w, P_SEP, call, typed && !json_is_string(v) ? typed + 1 : a->value, NULL);
        b.n = 0;
        if (json_is_string(v) && (a->bare || a->quote))
            sbuf_printf(&b, "%s%s%s", a->quote ? a->quote : "", json_string_value(v), a->quote ? a->quote : "");
        else
            put_json(&b, v, h);
        add(w, P_VALUE, call, NULL, sbuf_text(&b));
        add(w, P_END, call, a->end, NULL);
    }
    add(w, P_AFTER, call, w->d->after, NULL);
    sbuf_free(&b);
}

static void write_calls(written *w, const dialect *d, const json_t *calls, const style *h)
{
    size_t i;
    json_t *c;

    *w = (written){ .d = d, .must = 1, .how = *h, .before = "", .after = "" };
    add(w, P_LEAD, 0, d->lead, NULL);
    add(w, P_OPEN, 0, d->open, NULL);
    json_array_foreach((json_t *)calls, i, c)
    {
        if (i)
            add(w, P_BETWEEN, (int)i, d->between, NULL);
        pieces_of(w, (int)i, json_string_value(json_array_get(c, 0)), json_array_get(c, 1), h);
    }
    add(w, P_CLOSE, (int)json_array_size(calls) - 1, d->close, NULL);
}

static int is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static void put_piece(sbuf *b, const piece *p, const char *blank)
{
    sbuf_puts(b, p->s);
    for (const char *c = p->pattern; c && *c && *c != '\v'; c++)
        if (*c == '%')
            sbuf_puts(b, "a1");
        else if (*c == ' ')
            sbuf_puts(b, c > p->pattern && (is_letter(c[-1]) || c[-1] == '"') && is_letter(c[1]) ? " " : blank);
        else if (*c != '^')
            sbuf_put(b, c, 1);
}

static void put_written(sbuf *b, const written *w)
{
    sbuf_puts(b, w->before);
    for (int i = 0; i < w->n; i++)
        put_piece(b, &w->p[i], w->how.blank);
    sbuf_puts(b, w->after);
}

/* ---- changes ---- */

enum { MAY, MUST, VALUE }; /* VALUE: as MAY, and the values are no longer those that were drawn */

/* Of values. */
static const struct {
    style how;
    int must;
} styles[] = {
    { { "", "\"", ",", ":", "", 0 }, MUST },       { { " ", "\"", ", ", ": ", "", 0 }, MUST },
    { { "\n", "\"", ",\n", ": ", "", 0 }, MUST },   { { "\n  ", "\"", " ,\n    ", " : ", "\n", 0 }, MUST },
    { { "", "'", ", ", ": ", "", 0 }, MUST },      { { "", "'", ", ", ": ", "", 1 }, MUST },
    { { "", "\"", ", ", ": ", "", 1 }, MUST },      { { "", "\"", ", ", ": ", ",", 0 }, MUST },
    { { "\n", "\"", ",\n", ": ", ",\n", 0 }, MUST }, { { "\t", "'", ",\n\t", ": ", ",\n", 1 }, MUST },
    { { "\r\n", "\"", ",\r\n", ":", "", 0 }, MUST },
};

/* Of pieces: the one of this kind is left out, or written twice. */
static const struct {
    int kind, call, twice, must;
} drops[] = {
    { P_LEAD, 0, 0, MUST }, { P_OPEN, 0, 0, MUST },  { P_OPEN, 0, 1, MUST },   { P_BEFORE, 0, 0, MAY },
    { P_BEFORE, 1, 0, MAY }, { P_BEFORE, 0, 1, MAY }, { P_MIDDLE, 0, 0, MAY }, { P_END, 0, 0, MAY },
    { P_END, 1, 0, MAY },    { P_END, 0, 1, MAY },    { P_AFTER, 0, 0, MAY },  { P_AFTER, 1, 0, MAY },
    { P_AFTER, 0, 1, MAY },  { P_AFTER, 1, 1, MAY },  { P_BETWEEN, 1, 0, MAY }, { P_BETWEEN, 1, 1, MAY },
    { P_CLOSE, 0, 0, MUST }, { P_CLOSE, 0, 1, MUST }, { P_COMMA, 0, 0, MAY },  { P_COMMA, 0, 1, MAY },
    { P_KEY, 0, 1, MAY },    { P_SEP, 0, 0, MAY },    { P_NAME, 0, 1, MAY },
};

/* Of texts, wherever they stand. */
static const struct {
    const char *from, *to;
    int must;
} texts[] = {
    { "functions.", "", MUST },
    { " string=\"true\"", "", MUST },
    { " string=\"false\"", "", MUST },
    { " string=", " type=", MAY },
    { "\"arguments\"", "\"parameters\"", MUST },
    { "\"parameters\"", "\"arguments\"", MUST },
    { "\"arguments\"", "\"args\"", MUST },
    { "\"arguments\"", "\"input\"", MUST },
    { "\"name\"", "\"function\"", MUST },
    { "\"name\"", "\"tool_name\"", MUST },
    { "\"tool_name\"", "\"name\"", MUST },
    { "\"name\"", "'name'", MUST },
    { "{\"name\"", "{\"type\":\"function\",\"name\"", MUST },
    { "{\"name\"", "{\"id\":\"call_1\",\"name\"", MUST },
    { "\"name\"", "\"Name\"", MAY },
    { "\"weather\"", "\"functions.weather\"", MUST },
    { "\"weather\"", "\"weather:0\"", MAY },
    { "\"weather\"", "\"Weather\"", MAY },
    { "\"name\"", "\"reason\":\"x\",\"name\"", MAY },
    { "<function=weather>", "<function name=\"weather\">", MUST },
    { "<function=weather>", "<function = weather>", MAY },
    { "<function=weather>", "<function='weather'>", MAY },
    { "<function=weather>", "<function=weather> ", MUST },
    { "<parameter=", "<parameter name=", MAY },
    { "<parameter=", "<param=", MAY },
    { "<parameter=city>", "<parameter name=\"city\">", MUST },
    { "<parameter=city>", "<parameter=\"city\">", MUST },
    { "<parameter name=\"city\">", "<parameter=city>", MUST },
    { "<parameter name=\"city\">", "<parameter name='city'>", MUST },
    { "parameter name=\"city\"", "parameter name=\"city\" type=\"string\"", MUST },
    { "<invoke name=\"weather\">", "<invoke name='weather'>", MUST },
    { "<invoke name=\"weather\">", "<function=weather>", MUST },
    { "</function>", "</function>\n</function>", MAY },
    { "</parameter>", "</param>", MAY },
    { "</parameter>", "", MUST },
    { "</parameter>", "\n</parameter>", VALUE },
    { "</function>", "", MUST },
    { "</invoke>", "", MAY },
    { "</invoke>", "</function>", MUST },
    { "<arg_key>", "<arg_key> ", MUST },
    { "</arg_key>", "</arg_key>\n", MUST },
    { "</arg_value>", "</arg_value>\n", MUST },
    { "</arg_key>", "", MAY },
    { "</arg_value>", "", MUST },
    { "</tool_call>", "", MUST },
    { "</tool_call>", "</tool_calls>", MUST },
    { "</tool_call>", "<tool_call>", MAY },
    { "</tool_call>", "</tool_call>\n</tool_call>", MUST },
    { "<tool_call>", "<tool_calls>", MUST },
    { "<tool_call>", "<function_call>", MUST },
    { "<tool_call>", "<tool_call", MAY },
    { "<tool_call>", "<Tool_Call>", MAY },
    { "<tool_call>", "<TOOL_CALL>", MAY },
    { "tool_call", "toolcall", MAY },
    { "weather", "get_weather", MAY },
    { "(", " (", MUST },
    { "(", "( ", MUST },
    { "(", "(\n    ", MUST },
    { "=3", " = 3", MUST },
    { ")", ",)", MUST },
    { ")", ",\n)", MUST },
    { "), ", "),\n", MUST },
    { "[ARGS]", "", MUST },
    { "[ARGS]", "[ARGS] ", MUST },
    { "[TOOL_CALLS]", "[TOOL_CALLS] ", MUST },
    { "[TOOL_CALLS]", "[tool_calls]", MAY },
    { "]", ",]", MAY },
    { "]", "", MAY },
    { "}", "", MAY },
    { "{", "{{", VALUE },
    { "}", "}}", VALUE },
    { "\"", "'", VALUE },
    { "\"", "“", VALUE },
    { "<|", "<", MAY },
    { "|>", ">", MAY },
    { ":", " : ", VALUE },
    { "call:", "call: ", MAY },
    { "call:", "", MAY },
    { ":a1", "", MAY },
    { "a1", "call_0", MAY },
    { "json", "", MAY },
    { "```json", "```", MAY },
    { "```", "", MAY },
    { "days", "Days", VALUE },
    { "city", "\"city\"", VALUE },
    { "New York", "New\nYork", VALUE },
    { "New York", "<b>", MUST },
    { "New York", "a=1, b", MUST },
    { "New York", "</", MUST },
    { "New York", "", VALUE },
    { "true", "yes", VALUE },
    { "3", "\"3\"", VALUE },
    { "3", "3.0", VALUE },
};

/* Around all. */
static const struct {
    const char *before, *after;
    int must;
} wraps[] = {
    { "\n", "", MUST },
    { "\n\n", "\n\n", MUST },
    { " ", " ", MUST },
    { "\t", "\r\n", MUST },
    { "I look.\n", "", MAY },
    { "I look.\n\n", "\n", MAY },
    { "I look. ", "", MAY },
    { "```json\n", "\n```", MAY },
    { "```\n", "\n```", MAY },
    { "```xml\n", "\n```\n", MAY },
    { "I look.\n```\n", "\n```", MAY },
    { "<tool_call>\n", "\n</tool_call>", MAY },
    { "<tool_call>", "", MAY },
    { "<tool_calls>", "</tool_calls>", MAY },
    { "<function_calls>\n", "\n</function_calls>", MAY },
    { "</think>\n\n", "", MAY },
    { "<think>\n\n</think>\n\n", "", MAY },
    { "", "\n\nDone.", MAY },
    { "", "</s>", MAY },
    { "", "<|im_end|>", MAY },
    { "", "\n</tool_call>", MAY },
    { "", "}", MAY },
    { "**", "**", MAY },
    { "`", "`", MAY },
    { "> ", "", MAY },
    { "- ", "", MAY },
    { "Action: ", "", MAY },
    { "(", ")", MAY },
};

enum { N_STYLES = sizeof styles / sizeof styles[0], N_DROPS = sizeof drops / sizeof drops[0],
       N_TEXTS = sizeof texts / sizeof texts[0], N_WRAPS = sizeof wraps / sizeof wraps[0] };

/* A variant: indices into the tables above, -1: none. */
typedef struct choice {
    int style, drop, text, wrap;
} choice;

static int take_drop(written *w, int i)
{
    int k = 0;

    while (k < w->n && !(w->p[k].kind == drops[i].kind && w->p[k].call >= drops[i].call))
        k++;
    if (k == w->n)
        return 0;
    w->must &= drops[i].must && !(drops[i].twice && w->d->at_start); /* a bracket more is another list */
    memmove(&w->p[k + drops[i].twice], &w->p[k + !drops[i].twice],
            sizeof w->p[0] * (size_t)(w->n - k - !drops[i].twice));
    w->n += drops[i].twice ? 1 : -1;
    return 1;
}

/* All of `from` in b becomes `to`; 0: there is none. */
static int replace(sbuf *b, const char *from, const char *to)
{
    const size_t k = strlen(from);
    sbuf out = { 0 };
    int n = 0;

    for (size_t i = 0; i < b->n;) {
        const int here = b->n - i >= k && memcmp(b->s + i, from, k) == 0;
        sbuf_put(&out, here ? to : b->s + i, here ? strlen(to) : 1);
        i += here ? k : 1;
        n += here;
    }
    sbuf_free(b);
    *b = out;
    return n > 0;
}

typedef struct variant {
    sbuf text;
    json_t *want;
    int must, values; /* values: as they were drawn */
} variant;

/* 0: a change of the choice changes nothing here. */
static int make(variant *v, const dialect *d, const json_t *calls, const choice *c)
{
    written w;
    style how = styles[c->style < 0 ? 1 : c->style].how;
    int ok = 1;

    if (c->style < 0 && d->args && d->args->quote)
        how.quote = d->args->quote; /* as its templates have texts within lists */
    if (c->style < 0)
        how.blank = "";
    write_calls(&w, d, calls, &how);
    *v = (variant){ .want = json_deep_copy(calls), .values = 1 };
    w.must = c->style < 0 || styles[c->style].must;
    if (c->drop >= 0)
        ok = take_drop(&w, c->drop);
    if (c->wrap >= 0) {
        w.before = wraps[c->wrap].before;
        w.after = wraps[c->wrap].after;
        w.must &= wraps[c->wrap].must;
    }
    put_written(&v->text, &w);
    if (c->text >= 0) {
        ok = ok && replace(&v->text, texts[c->text].from, texts[c->text].to);
        w.must &= texts[c->text].must == MUST;
        v->values = texts[c->text].must != VALUE;
        if (strcmp(texts[c->text].from, "New York") == 0)
            json_object_set_new(json_array_get(json_array_get(v->want, 0), 1), "city", json_string(texts[c->text].to));
    }
    if (how.python && d->args && d->args->bare && !strchr(d->args->value, '\v')) /* a text may be "None" */
        json_object_set_new(json_array_get(json_array_get(v->want, 0), 1), "unit", json_string("None"));
    v->must = w.must;
    return ok;
}

/* ---- reading ---- */

static struct {
    long long texts, cuts, read, must;
} counts;

static seen parse(const dialect *d, const tool_set *tools, const sbuf *text, size_t at, size_t step)
{
    seen e = { .last = -1, .calls = json_array(), .tools = tools };
    tool_parser p = { .d = d, .t = thinking_at(0), .tools = tools, .emit = on_event, .user = &e };

    tool_parser_begin(&p, 0);
    tool_parser_feed(&p, text->s, at);
    for (size_t i = at; i < text->n; i += step)
        tool_parser_feed(&p, text->s + i, step < text->n - i ? step : text->n - i);
    tool_parser_end(&p);
    tool_parser_free(&p);
    return e;
}

static int is_called(const json_t *calls, const char *name)
{
    size_t i;
    json_t *c;

    json_array_foreach((json_t *)calls, i, c) if (strcmp(json_string_value(json_array_get(c, 0)), name) == 0) return 1;
    return 0;
}

/* The calls that were meant, in their order, and the others as text. */
static int is_whole(const variant *v, const seen *e)
{
    size_t i, k = 0;
    json_t *c;

    json_array_foreach(v->want, i, c)
    {
        const char *name = json_string_value(json_array_get(c, 0));
        const json_t *got = json_array_get(e->calls, k);
        const int here = got && json_equal(json_array_get(got, 0), json_array_get(c, 0));
        if (here && v->values && !json_equal(got, c))
            return 0;
        if (!here && is_called(e->calls, name))
            return 0;
        if (!here && !strstr(sbuf_text(&e->text), i ? "mail" : "eather"))
            return 0;
        k += (size_t)here;
    }
    return k == json_array_size(e->calls);
}

static void check_variant(const dialect *d, const tool_set *tools, const variant *v, size_t every, int shows)
{
    seen whole = parse(d, tools, &v->text, v->text.n, 1), bytes = parse(d, tools, &v->text, 0, 1);
    const int read = json_array_size(whole.calls) == json_array_size(v->want);

    counts.texts++;
    counts.read += read;
    counts.must += v->must;
    if (shows && (!read || !is_whole(v, &whole)))
        printf("---- %s, %s: %s, %s\n%s\n====%s\n", d->name, v->must ? "MUST" : "may", read ? "read" : "text",
               is_whole(v, &whole) ? "whole" : "HALF", v->text.s, sbuf_text(&whole.flat));
    CHECK(read || !v->must, "%s: not read: %s\n%s", d->name, v->text.s, sbuf_text(&whole.flat));
    CHECK(is_whole(v, &whole) && !whole.bad && whole.open == 0, "%s: half, or another call: %s\n%s", d->name, v->text.s,
          sbuf_text(&whole.flat));
    CHECK(strcmp(sbuf_text(&whole.flat), sbuf_text(&bytes.flat)) == 0, "%s, byte by byte: %s\n%s\n%s", d->name,
          v->text.s, sbuf_text(&whole.flat), sbuf_text(&bytes.flat));
    for (size_t i = 1; i < v->text.n; i += every) {
        seen cut = parse(d, tools, &v->text, i, v->text.n);
        counts.cuts++;
        CHECK(strcmp(sbuf_text(&whole.flat), sbuf_text(&cut.flat)) == 0, "%s, cut at %zu: %s\n%s\n%s", d->name, i,
              v->text.s, sbuf_text(&whole.flat), sbuf_text(&cut.flat));
        seen_free(&cut);
    }
    seen_free(&whole);
    seen_free(&bytes);
}

/* ---- all of a dialect ---- */

typedef struct variants {
    const dialect *d;
    const tool_set *tools;
    const json_t *calls;
    json_t *known; /* texts as keys */
    size_t every;
    int shows;
} variants;

static void try_choice(variants *a, choice c)
{
    variant v;

    if (make(&v, a->d, a->calls, &c) && !json_object_get(a->known, v.text.s)) {
        json_object_set_new(a->known, v.text.s, json_true());
        check_variant(a->d, a->tools, &v, a->every, a->shows);
    }
    sbuf_free(&v.text);
    json_decref(v.want);
}

static void check_dialect(variants *a, int pairs)
{
    rng r = { 7 };

    try_choice(a, (choice){ -1, -1, -1, -1 });
    for (int i = 0; i < N_STYLES; i++)
        try_choice(a, (choice){ i, -1, -1, -1 });
    for (int i = 0; i < N_DROPS; i++)
        try_choice(a, (choice){ -1, i, -1, -1 });
    for (int i = 0; i < N_TEXTS; i++)
        try_choice(a, (choice){ -1, -1, i, -1 });
    for (int i = 0; i < N_WRAPS; i++)
        try_choice(a, (choice){ -1, -1, -1, i });
    const size_t alone = json_object_size(a->known);
    for (int i = 0; i < 20000 && json_object_size(a->known) < alone + (size_t)pairs; i++)
        try_choice(a, (choice){ (int)rng_below(&r, N_STYLES + 1) - 1,
                                rng_below(&r, 2) ? (int)rng_below(&r, N_DROPS) : -1,
                                rng_below(&r, 2) ? (int)rng_below(&r, N_TEXTS) : -1,
                                rng_below(&r, 2) ? (int)rng_below(&r, N_WRAPS) : -1 });
    CHECK(json_object_size(a->known) >= LEAST, "%s: %zu variants, want %d", a->d->name, json_object_size(a->known),
          LEAST);
}

/* ---- texts that never end a call: no more work than in proportion ---- */

static void check_fuel(const tool_set *tools)
{
    static const char *const parts[] = {
        "<function=weather><parameter=city>",
        "<tool_call><function=weather>\n<parameter=city>x\n",
        "weather\n<arg_key>city</arg_key><arg_value>",
        "<tool_call>weather",
        "</function></tool_call>",
        "<invoke name=\"weather\">",
        " ",
        "<parameter=days> ",
        "[weather(",
    };

    for (size_t k = 0; k < 2 * sizeof parts / sizeof parts[0]; k++) {
        const char *part = parts[k / 2];
        seen e = { .last = -1, .calls = json_array(), .tools = tools };
        tool_parser p = { .d = dialect_named("qwen3_coder"), .tools = tools, .emit = on_event, .user = &e };
        size_t n = 0;
        tool_parser_begin(&p, 0);
        tool_parser_feed(&p, k % 2 ? "<tool_call><function=weather><parameter=city>x</parameter>" : "", k % 2 ? 58 : 0);
        for (; n < (check_sanitized ? 100000 : 400000); n += strlen(part))
            tool_parser_feed(&p, part, strlen(part));
        tool_parser_end(&p);
        CHECK(p.reread <= PARSER_MOST_REREAD + 2 * n + 100, "%s: %zu bytes read again of %zu", part, p.reread, n);
        CHECK(!e.bad && !e.open, "%s: half a call", part);
        tool_parser_free(&p);
        seen_free(&e);
    }
}

int main(int argc, char **argv)
{
    const char *shown = argc > 2 && strcmp(argv[1], "--show") == 0 ? argv[2] : NULL;
    const size_t every = argc > 1 && !shown ? (size_t)atoi(argv[1]) : check_sanitized ? 1000 : 31;
    json_t *list = json_loads(TOOLS, 0, NULL);
    tool_set *tools = tools_of(list);

    for (int i = 0; i < dialect_count(); i++) {
        const dialect *d = dialect_at(i);
        json_t *calls = json_loads(d->single ? "[[\"weather\"," FIRST "]]"
                                             : "[[\"weather\"," FIRST "],[\"send_mail\"," SECOND "]]", 0, NULL);
        variants a = { .d = d, .tools = tools, .calls = calls, .known = json_object(), .every = every,
                       .shows = shown && (strcmp(shown, "all") == 0 || strcmp(shown, d->name) == 0) };
        if (!shown || a.shows)
            check_dialect(&a, 200);
        json_decref(a.known);
        json_decref(calls);
    }
    if (!shown)
        check_fuel(tools);
    printf("%lld texts, %lld cuts, %lld must be read, %lld are\n", counts.texts, counts.cuts, counts.must, counts.read);
    tool_set_free(tools);
    json_decref(list);
    return check_end("check_server_tool_variants");
}
