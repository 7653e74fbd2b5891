/* tool_frame.c: calls in the dialect's own form: what stands around their arguments, which are in tool_args.c. */
#include <string.h>
#include "server/tools/tool_json.h"
#include "server/tools/tool_parser_impl.h"

enum { CUT_MARKER = 5 }; /* bytes: fewer are text too, as "<" is */

int parser_buffers(const tool_parser *p)
{
    return (!p->guarded || p->other) && !p->told;
}

static const char *trigger(const dialect *d)
{
    return d->open ? d->open : d->before;
}

int parser_begins(tool_parser *p, int *wait)
{
    size_t used, others;

    if (!p->d || (p->d->at_start && p->wrote))
        return 0;
    int m = parser_try(p, trigger(p->d), PATTERN_TRIGGER, &used);
    const int o = p->d->also && !p->strict ? parser_try(p, p->d->also, PATTERN_ALL, &others) : MATCH_NO;
    *wait |= m == MATCH_PART || (o == MATCH_PART && m != MATCH_FULL);
    if (m != MATCH_FULL && (o != MATCH_FULL || *wait))
        return 0;
    p->raw.n = p->args.n = 0;
    p->other = m != MATCH_FULL;
    p->rest = !p->other;
    p->state = p->other ? PARSE_NAME : p->d->open ? PARSE_OPEN : PARSE_BEFORE;
    parser_take(p, p->other ? others : used);
    return 1;
}

static int in_pattern(tool_parser *p, const char *pattern, int part, enum tool_state next)
{
    size_t used;
    const int m = parser_try(p, pattern, part, &used);

    if (m == MATCH_PART)
        return 0;
    if (m == MATCH_NO)
        return parser_not_a_call(p, PLAIN_TRIGGER);
    parser_take(p, used);
    p->rest = 0;
    p->state = next;
    return 1;
}

int parser_read_name(const tool_parser *p, size_t *n)
{
    const char *s = p->held.s + p->at;
    const size_t left = p->held.n - p->at;

    for (*n = 0; *n < left && dialect_name_char(s[*n]);)
        if (++*n > TOOL_NAME_MOST)
            return MATCH_NO;
    if (*n == left)
        return p->final ? MATCH_NO : MATCH_PART;
    return *n ? MATCH_FULL : MATCH_NO;
}

int parser_begins_name(const tool_set *tools, const char *s, size_t n)
{
    static const char space[] = "functions.";
    const size_t k = sizeof space - 1;

    if (strncmp(space, s, n < k ? n : k) == 0) {
        if (n <= k)
            return 1;
        s += k;
        n -= k;
    }
    for (int i = 0; i < tools->n; i++)
        if (strncmp(tools->tools[i].name, s, n) == 0)
            return 1;
    return 0;
}

static int in_name(tool_parser *p)
{
    size_t n;

    if (parser_skip_blanks(p))
        return 1;
    const int m = parser_read_name(p, &n);
    if (m == MATCH_PART && parser_begins_name(p->tools, p->held.s + p->at, n))
        return 0;
    p->tool = m == MATCH_FULL ? tool_json_find(p->tools, p->held.s + p->at, n) : -1;
    if (p->tool < 0)
        return parser_not_a_call(p, PLAIN_TRIGGER);
    parser_take(p, n);
    p->state = PARSE_MIDDLE;
    return 1;
}

void parser_tell_call(tool_parser *p)
{
    const char *name = p->tools->tools[p->tool].name;

    p->raw.n = 0;
    p->wrote = p->told = 1;
    p->n_calls++;
    parser_emit(p, TOOL_CALL, name, strlen(name));
}

static int in_middle(tool_parser *p)
{
    if (!in_pattern(p, p->f->middle, PATTERN_ALL, p->f->args ? PARSE_KEY : PARSE_JSON))
        return 0;
    if (p->state == PARSE_TEXT)
        return 1;
    if (!parser_buffers(p) && p->f->args)
        parser_tell_call(p);
    parser_begin_arguments(p);
    return 1;
}

/* The call of p->tool with p->args. */
static void tell(tool_parser *p)
{
    const char *name = p->tools->tools[p->tool].name;

    p->wrote = 1;
    p->n_calls++;
    parser_emit(p, TOOL_CALL, name, strlen(name));
    if (p->args.n)
        parser_emit(p, TOOL_ARGS, p->args.s, p->args.n);
    parser_emit(p, TOOL_END, "", 0);
    p->args.n = p->raw.n = 0;
}

int parser_call_done(tool_parser *p)
{
    sbuf whole = { 0 };

    if (p->f != p->d)
        return parser_form_done(p);
    if (!parser_buffers(p)) {
        parser_emit(p, TOOL_END, "", 0);
        p->told = 0;
        return 1;
    }
    const int ok = tool_json_arguments(sbuf_text(&p->args), p->args.n, &p->tools->tools[p->tool], &whole);
    sbuf_free(&p->args);
    p->args = whole;
    if (ok)
        tell(p);
    return ok;
}

static int in_after(tool_parser *p)
{
    size_t used;
    const int m = parser_try(p, p->d->after, PATTERN_ALL, &used);

    if (m == MATCH_PART)
        return 0;
    const int e = m == MATCH_NO ? parser_end_marker(p, &used) : MATCH_NO;
    if (e == MATCH_PART)
        return 0;
    p->raw.n = 0;
    if (m == MATCH_FULL || e == MATCH_FULL)
        p->at += used;
    p->state = PARSE_NEXT; /* what it does not end with may be forgotten */
    return 1;
}

/* Behind a call: the next one, or the end of them. */
static int in_next(tool_parser *p)
{
    size_t used = 0, last = 0;
    const int more = p->d->single ? MATCH_NO : parser_try_both(p, p->d->between, p->d->before, &used);
    const int end = p->d->close ? parser_try(p, p->d->close, PATTERN_ALL, &last) : MATCH_NO;

    p->raw.n = 0;
    if (end == MATCH_FULL) {
        p->at += last;
        parser_to(p, PARSE_TEXT);
    } else if (more == MATCH_PART || end == MATCH_PART) {
        return 0;
    } else if (more == MATCH_FULL) {
        p->state = PARSE_BEFORE; /* what is taken belongs to a frame */
        parser_take(p, used);
        p->state = PARSE_NAME;
    } else {
        parser_to(p, PARSE_TEXT);
    }
    return 1;
}

int parser_in_frame(tool_parser *p)
{
    switch (p->state) {
    case PARSE_OPEN: return in_pattern(p, p->d->open, PATTERN_REST, PARSE_BEFORE);
    case PARSE_BEFORE: return in_pattern(p, p->d->before, p->rest ? PATTERN_REST : PATTERN_ALL, PARSE_NAME);
    case PARSE_NAME: return in_name(p);
    case PARSE_MIDDLE: return in_middle(p);
    case PARSE_AFTER: return in_after(p);
    default: return in_next(p);
    }
}

/* Returns 1 if the begun call that was cut is more than a bracket, which text may have too: a key, or a name. */
static int cut_frame(const tool_parser *p)
{
    const int named = p->state == PARSE_MIDDLE ||
                      (p->state == PARSE_NAME &&
                       (p->d->before || tool_set_find(p->tools, p->held.s + p->at, p->held.n - p->at) >= 0));

    return p->cut && p->state >= PARSE_OPEN && p->state <= PARSE_MIDDLE &&
           (p->wanted || p->n_calls > 0 || !p->d->by_name || named);
}

/* Returns 1 if the text that was cut ends with most of a call's marker. */
static int cut_marker(const tool_parser *p)
{
    size_t used;

    return p->d && !p->d->at_start && p->held.n - p->at >= CUT_MARKER &&
           parser_try(p, trigger(p->d), PATTERN_TRIGGER, &used) == MATCH_PART;
}

/* The rest is a part of a marker: it does not hinder the call. */
void parser_before_end(tool_parser *p)
{
    const int key = p->state == PARSE_KEY || p->state == PARSE_AFTER || p->state == PARSE_NEXT;
    const int args = p->state > PARSE_MIDDLE && p->state < PARSE_LOOSE && p->state != PARSE_RAW &&
                     p->state != PARSE_COLLECT && p->state != PARSE_JSON && p->state != PARSE_PYTHON;
    const int frame = cut_frame(p);

    if (key || frame || (args && (p->cut || !parser_buffers(p))))
        parser_take(p, p->held.n - p->at);
    if (frame)
        p->state = PARSE_MIDDLE; /* parser_end_call finds the name gone */
    else if (p->cut && p->state == PARSE_TEXT && (p->wanted || cut_marker(p)))
        p->at = p->held.n;
}

/* Keys and values of which only the end is missing are a call. */
static int closes(tool_parser *p)
{
    if (p->state != PARSE_KEY)
        return 0;
    if (parser_buffers(p))
        sbuf_puts(&p->args, "}");
    else
        parser_emit(p, TOOL_ARGS, "}", 1);
    return parser_call_done(p);
}

void parser_end_call(tool_parser *p)
{
    if (p->state <= PARSE_MIDDLE) {
        if (!cut_frame(p)) { /* it broke off before its arguments */
            parser_not_a_call(p, PLAIN_TRIGGER);
            return;
        }
    } else if (p->state < PARSE_AFTER && !parser_buffers(p)) {
        if (!p->cut)
            closes(p);
    } else if (p->state < PARSE_AFTER) {
        if (!p->cut && !closes(p)) {
            parser_not_a_call(p, p->f == p->d ? PLAIN_TRIGGER : PLAIN_NOT);
            return;
        }
        if (!p->cut && p->state == PARSE_LOOSE)
            return; /* its calls are told there */
    }
    parser_forget_calls(p);
    p->told = 0;
    p->held.n = p->at = p->raw.n = p->args.n = 0; /* of a call that was cut nothing is shown */
    p->state = PARSE_TEXT;
}
