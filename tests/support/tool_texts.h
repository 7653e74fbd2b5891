/* tool_texts.h: events that a parser told, and calls written as a dialect's template writes them. */
#ifndef KVANT_TESTS_SUPPORT_TOOL_TEXTS_H
#define KVANT_TESTS_SUPPORT_TOOL_TEXTS_H

#include <jansson.h>
#include "base/mem.h"
#include "server/tools/tool_json.h"
#include "server/tools/tool_parser.h"
#include "support/check.h"

/* ---- events ---- */

typedef struct seen {
    sbuf text, flat; /* flat: all events, joined by their kinds */
    json_t *calls;   /* [name, arguments] */
    const tool_set *tools;
    sbuf args;
    int open, last, bad;
    char name[TOOL_NAME_MOST + 1];
} seen;

static inline void on_event(void *user, int event, const char *s, size_t n)
{
    seen *e = user;

    if (event != e->last || event == TOOL_CALL || event == TOOL_END)
        sbuf_printf(&e->flat, "\n%c:", "TRCAE"[event]);
    sbuf_put(&e->flat, s, n);
    e->last = event;
    if (event == TOOL_TEXT || event == TOOL_THINK)
        sbuf_put(&e->text, s, n);
    if (event == TOOL_CALL)
        e->args.n = 0;
    if (event == TOOL_CALL)
        snprintf(e->name, sizeof e->name, "%.*s", (int)n, s);
    if (event == TOOL_ARGS)
        sbuf_put(&e->args, s, n);
    e->open += (event == TOOL_CALL) - (event == TOOL_END);
    if (event != TOOL_END)
        return;
    json_t *v = json_loadb(sbuf_text(&e->args), e->args.n, JSON_ALLOW_NUL, NULL);
    if (!v) /* integers have any length */
        v = json_loadb(sbuf_text(&e->args), e->args.n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
    const int which = tool_set_find(e->tools, e->name, strlen(e->name));
    e->bad |= !json_is_object(v) || which < 0 || !tool_has_required(&e->tools->tools[which], v);
    json_array_append_new(e->calls, v ? json_pack("[s,o]", e->name, v) : json_null());
    e->args.n = 0;
}

static inline void seen_free(seen *e)
{
    sbuf_free(&e->text);
    sbuf_free(&e->flat);
    sbuf_free(&e->args);
    json_decref(e->calls);
}

static inline tool_set *tools_of(const json_t *list)
{
    kvant_diag diag = { "" };
    tool_set *s = NULL;

    CHECK(tool_set_read(list, &s, &diag) == KVANT_OK, "%s", diag.text);
    return s;
}

/* ---- a call in the dialect's own text ---- */

static inline void put_pattern(sbuf *b, const char *p)
{
    for (; p && *p && *p != '\v'; p++)
        if (*p == '%')
            sbuf_puts(b, "a1");
        else if (*p != '^' && *p != ' ')
            sbuf_put(b, p, 1);
}

/* value as a template writes it */
static inline void put_value(sbuf *b, const dialect_args *a, const json_t *v)
{
    if (json_is_string(v) && (a->bare || a->quote)) {
        sbuf_puts(b, a->lines ? "\n" : a->quote ? a->quote : "");
        sbuf_put(b, json_string_value(v), json_string_length(v));
        sbuf_puts(b, a->lines ? "\n" : a->quote ? a->quote : "");
    } else {
        tool_json_put(v, b);
    }
}

static inline void put_call(sbuf *b, const dialect *d, const char *name, const json_t *args)
{
    const char *key, *between = NULL;
    json_t *v;

    sbuf_puts(b, name);
    put_pattern(b, d->middle);
    if (!d->args)
        tool_json_put(args, b);
    if (d->args)
        json_object_foreach((json_t *)args, key, v)
        {
            const char *value = strchr(d->args->value, '\v');
            put_pattern(b, between);
            between = d->args->between;
            if (strchr(d->args->key, '<'))
                sbuf_puts(b, "\n");
            sbuf_puts(b, d->args->key + strspn(d->args->key, " "));
            sbuf_puts(b, key);
            if (value && !json_is_string(v))
                sbuf_printf(b, "%.*s", (int)strcspn(value + 1, "\v"), value + 1);
            else
                sbuf_printf(b, "%.*s", (int)strcspn(d->args->value, "\v"), d->args->value);
            put_value(b, d->args, v);
            put_pattern(b, d->args->end);
        }
    put_pattern(b, d->after);
}

static inline void put_calls(sbuf *b, const dialect *d, const json_t *calls)
{
    size_t i;
    json_t *c;

    put_pattern(b, d->lead);
    put_pattern(b, d->open);
    json_array_foreach((json_t *)calls, i, c)
    {
        if (i)
            put_pattern(b, d->between);
        put_pattern(b, d->before);
        put_call(b, d, json_string_value(json_array_get(c, 0)), json_array_get(c, 1));
    }
    put_pattern(b, d->close);
}

#endif
