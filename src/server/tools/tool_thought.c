/* tool_thought.c: calls in a thought that the model forgot to end.  A parser of its own reads from the marker on; its
 * calls count when nothing but calls comes until the end of the output (the thought's end marker excepted).  If
 * anything else comes, all of it belongs to the thought. */
#include <string.h>
#include "base/mem.h"
#include "server/tools/tool_parser_impl.h"

/* The parser's events, each with its text: E n bytes. */
typedef struct thought_calls {
    sbuf flat;
    size_t sure; /* bytes of raw up to the end of the last call */
    int calls, open, text, closed;
    tool_parser *of;
} thought_calls;

static void on_event(void *user, int event, const char *s, size_t n)
{
    thought_calls *f = user;

    f->calls += event == TOOL_END;
    f->open += (event == TOOL_CALL) - (event == TOOL_END);
    f->text |= event == TOOL_TEXT;
    if (event == TOOL_END)
        f->sure = f->of->raw.n;
    if (event == TOOL_TEXT)
        return;
    sbuf_put(&f->flat, (const char *)&event, sizeof event);
    sbuf_put(&f->flat, (const char *)&n, sizeof n);
    sbuf_put(&f->flat, s, n);
}

void parser_thought_free(tool_parser *p)
{
    if (p->sub)
        tool_parser_free(p->sub);
    if (p->found)
        sbuf_free(&p->found->flat);
    kvant_free(p->sub);
    kvant_free(p->found);
    p->sub = NULL;
    p->found = NULL;
}

int parser_begins_in_thought(tool_parser *p, int *wait)
{
    size_t used = 0, other = 0;

    if (!p->d || p->d->at_start || p->strict || p->reread > PARSER_MOST_REREAD)
        return 0;
    int m = parser_marker(p, &used);
    const int o = p->d->also ? parser_try(p, p->d->also, PATTERN_ALL, &other) : MATCH_NO;
    *wait |= m == MATCH_PART || o == MATCH_PART;
    if ((m != MATCH_FULL && o != MATCH_FULL) || (*wait && m != MATCH_FULL))
        return 0;
    p->sub = kvant_calloc(1, sizeof *p->sub);
    p->found = kvant_calloc(1, sizeof *p->found);
    if (!p->sub || !p->found) {
        p->raw.error = 1;
        return 0;
    }
    p->found->of = p;
    *p->sub = (tool_parser){ .d = p->d, .tools = p->tools, .emit = on_event, .user = p->found };
    tool_parser_begin(p->sub, 0);
    p->raw.n = 0;
    p->state = PARSE_THOUGHT;
    return 1;
}

/* It was no call: of the thought is what came up to the last call's end, or the first byte; the rest is read again. */
static int thought_on(tool_parser *p)
{
    const size_t n = p->found->sure ? p->found->sure : 1;
    sbuf all = { 0 };

    parser_thought_free(p);
    p->state = PARSE_THINK;
    parser_text(p, TOOL_THINK, sbuf_text(&p->raw), n < p->raw.n ? n : p->raw.n);
    if (n < p->raw.n)
        sbuf_put(&all, p->raw.s + n, p->raw.n - n);
    sbuf_put(&all, sbuf_text(&p->held) + p->at, p->held.n - p->at);
    p->raw.error |= all.error;
    sbuf_free(&p->held);
    p->held = all;
    p->reread += p->raw.n;
    p->at = p->raw.n = 0;
    return 1;
}

static int is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

int parser_in_thought_call(tool_parser *p)
{
    thought_calls *f = p->found;
    size_t used;
    const int m = f->closed ? MATCH_NO : parser_try(p, p->t->end, PATTERN_ALL, &used);

    if (m == MATCH_PART)
        return 0;
    if (m == MATCH_FULL) { /* it had its place behind the calls, or they were none */
        if (!f->calls || f->open || !parser_idle(p->sub))
            return thought_on(p);
        f->closed = 1;
        sbuf_put(&p->raw, p->held.s + p->at, used);
        p->at += used;
        return 1;
    }
    const char c = p->held.s[p->at];
    if (f->closed && !is_blank(c))
        return thought_on(p);
    sbuf_put(&p->raw, &c, 1);
    p->at++;
    if (tool_parser_feed(p->sub, &c, 1) != KVANT_OK)
        p->raw.error = 1;
    return f->text ? thought_on(p) : 1;
}

void parser_end_thought_call(tool_parser *p)
{
    thought_calls *f = p->found;

    if (!p->cut && tool_parser_end(p->sub) != KVANT_OK)
        p->raw.error = 1;
    if (p->cut || f->text || !f->calls || f->open) {
        thought_on(p);
        return;
    }
    for (size_t i = 0; i < f->flat.n;) {
        int event;
        size_t n;
        memcpy(&event, f->flat.s + i, sizeof event);
        memcpy(&n, f->flat.s + i + sizeof event, sizeof n);
        i += sizeof event + sizeof n;
        parser_emit(p, event, f->flat.s + i, n);
        i += n;
    }
    p->n_calls += f->calls;
    p->wrote = 1;
    p->raw.n = 0;
    parser_thought_free(p);
    parser_to(p, PARSE_TEXT);
}
