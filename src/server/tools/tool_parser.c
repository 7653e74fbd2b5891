/* tool_parser.c: see tool_parser.h.  What comes is appended to `held`; each state takes from its front what it can
 * decide, or waits.  Arguments are in tool_args.c. */
#include <string.h>
#include "base/error.h"
#include "server/tools/tool_parser_impl.h"

void parser_emit(tool_parser *p, int event, const char *s, size_t n)
{
    if (p->emit)
        p->emit(p->user, event, s, n);
}

int parser_try(const tool_parser *p, const char *pattern, int part, size_t *used)
{
    const int m = pattern_match(pattern, part, p->held.s + p->at, p->held.n - p->at, used);

    return m == MATCH_PART && p->final ? MATCH_NO : m;
}

/* a, then b, as one pattern. */
int parser_try_both(const tool_parser *p, const char *a, const char *b, size_t *used)
{
    char both[160];
    const size_t n = a ? strlen(a) : 0, k = b ? strlen(b) : 0;

    memcpy(both, a ? a : "", n); /* rows of a table: the longest two have 80 bytes */
    memcpy(both + n, b ? b : "", k);
    both[n + k] = 0;
    return parser_try(p, both, PATTERN_ALL, used);
}

static int is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

int parser_skip_blanks(tool_parser *p)
{
    const size_t from = p->at;

    while (p->at < p->held.n && is_blank(p->held.s[p->at]))
        p->at++;
    return p->at > from;
}

static void to_state(tool_parser *p, enum tool_state state)
{
    p->state = state;
    p->said = 0;
    p->blanks.n = 0;
}

void parser_give_up(tool_parser *p)
{
    to_state(p, PARSE_TEXT);
}

/* ---- texts and thoughts ---- */

static void put_text(tool_parser *p, int event, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (is_blank(s[i])) {
            if (p->said)
                sbuf_put(&p->blanks, s + i, 1);
            continue;
        }
        if (p->blanks.n)
            parser_emit(p, event, p->blanks.s, p->blanks.n);
        p->blanks.n = 0;
        p->said = p->wrote = 1;
        parser_emit(p, event, s + i, 1);
    }
}

static int in_thought(tool_parser *p)
{
    size_t used;
    const int m = parser_try(p, p->t->end, PATTERN_ALL, &used);

    if (m == MATCH_PART)
        return 0;
    if (m == MATCH_FULL) {
        p->at += used;
        p->wrote = 0; /* an answer begins behind its thoughts */
        to_state(p, PARSE_TEXT);
        return 1;
    }
    put_text(p, TOOL_THINK, p->held.s + p->at++, 1);
    return 1;
}

static const char *trigger(const dialect *d)
{
    return d->open ? d->open : d->before;
}

/* 1: the front of `held` is a trigger, and the parser in a call; 0: it is none; MATCH_PART is told in *wait. */
static int begins_call(tool_parser *p, int *wait)
{
    size_t used;
    int m;

    if (!p->d || (p->d->at_start && p->wrote))
        return 0;
    m = parser_try(p, trigger(p->d), PATTERN_TRIGGER, &used);
    *wait |= m == MATCH_PART;
    if (m != MATCH_FULL)
        return 0;
    p->raw.n = 0;
    sbuf_put(&p->raw, p->held.s + p->at, used);
    p->at += used;
    p->rest = 1;
    p->state = p->d->open ? PARSE_OPEN : PARSE_BEFORE;
    return 1;
}

static int drops(tool_parser *p, const char *texts, int *wait)
{
    size_t used;
    const int m = texts ? parser_try(p, texts, PATTERN_ALL, &used) : MATCH_NO;

    *wait |= m == MATCH_PART;
    if (m != MATCH_FULL || *wait)
        return 0;
    p->at += used;
    return 1;
}

static int in_text(tool_parser *p)
{
    size_t used = 0;
    int wait = 0;

    const int m = p->t ? parser_try(p, p->t->begin, PATTERN_ALL, &used) : MATCH_NO;
    if (m == MATCH_FULL) {
        p->at += used;
        to_state(p, PARSE_THINK);
        return 1;
    }
    if (m == MATCH_PART) /* before calls: "[THINK]" begins like a list of them */
        wait = 1;
    else if (begins_call(p, &wait))
        return 1;
    if (drops(p, p->t ? p->t->drop : NULL, &wait) || drops(p, p->d ? p->d->drop : NULL, &wait))
        return 1;
    if (wait)
        return 0;
    put_text(p, TOOL_TEXT, p->held.s + p->at++, 1);
    return 1;
}

/* ---- the frame of a call ---- */

/* What came since the trigger was no call: it is text. */
static int not_a_call(tool_parser *p)
{
    p->state = PARSE_TEXT;
    put_text(p, TOOL_TEXT, p->raw.s, p->raw.n);
    p->raw.n = 0;
    return 1;
}

static int in_frame(tool_parser *p, const char *pattern, int part, enum tool_state next)
{
    size_t used;
    const int m = parser_try(p, pattern, part, &used);

    if (m == MATCH_PART)
        return 0;
    if (m == MATCH_NO)
        return not_a_call(p);
    sbuf_put(&p->raw, p->held.s + p->at, used);
    p->at += used;
    p->rest = 0;
    p->state = next;
    return 1;
}

int parser_read_name(tool_parser *p, size_t *n)
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

static int in_name(tool_parser *p)
{
    size_t n;

    if (p->held.s && is_blank(p->held.s[p->at])) {
        sbuf_put(&p->raw, p->held.s + p->at++, 1);
        return 1;
    }
    const int m = parser_read_name(p, &n);
    if (m == MATCH_PART)
        return 0;
    p->tool = m == MATCH_FULL ? tool_set_find(p->tools, p->held.s + p->at, n) : -1;
    if (p->tool < 0)
        return not_a_call(p);
    sbuf_put(&p->raw, p->held.s + p->at, n);
    p->at += n;
    p->state = PARSE_MIDDLE;
    return 1;
}

static int in_middle(tool_parser *p)
{
    const char *name = p->tools->tools[p->tool].name;

    if (!in_frame(p, p->d->middle, PATTERN_ALL, p->d->args ? PARSE_KEY : PARSE_JSON))
        return 0;
    if (p->state == PARSE_TEXT)
        return 1;
    p->raw.n = 0;
    p->wrote = 1;
    p->n_calls++;
    parser_emit(p, TOOL_CALL, name, strlen(name));
    parser_begin_arguments(p);
    return 1;
}

static int in_after(tool_parser *p)
{
    size_t used;
    const int m = parser_try(p, p->d->after, PATTERN_ALL, &used);

    if (m == MATCH_PART)
        return 0;
    if (m == MATCH_NO) {
        parser_give_up(p);
        return 1;
    }
    p->at += used;
    p->state = PARSE_NEXT;
    return 1;
}

/* Behind a call: the next one, or the end of them. */
static int in_next(tool_parser *p)
{
    size_t used = 0, last = 0;
    const int more = p->d->single ? MATCH_NO : parser_try_both(p, p->d->between, p->d->before, &used);
    const int end = p->d->close ? parser_try(p, p->d->close, PATTERN_ALL, &last) : MATCH_NO;

    if (end == MATCH_FULL) {
        p->at += last;
        to_state(p, PARSE_TEXT);
    } else if (more == MATCH_PART || end == MATCH_PART) {
        return 0;
    } else if (more == MATCH_FULL) {
        sbuf_put(&p->raw, p->held.s + p->at, used);
        p->at += used;
        p->state = PARSE_NAME;
    } else {
        to_state(p, PARSE_TEXT);
    }
    return 1;
}

/* ---- all of it ---- */

/* 1: something was decided.  More of `held` may be there afterwards; 0: it waits for more. */
static int progress(tool_parser *p)
{
    if (p->at == p->held.n)
        return 0;
    switch (p->state) {
    case PARSE_THINK: return in_thought(p);
    case PARSE_TEXT: return in_text(p);
    case PARSE_OPEN: return in_frame(p, p->d->open, PATTERN_REST, PARSE_BEFORE);
    case PARSE_BEFORE: return in_frame(p, p->d->before, p->rest ? PATTERN_REST : PATTERN_ALL, PARSE_NAME);
    case PARSE_NAME: return in_name(p);
    case PARSE_MIDDLE: return in_middle(p);
    case PARSE_AFTER: return in_after(p);
    case PARSE_NEXT: return in_next(p);
    default: return parser_in_arguments(p);
    }
}

void tool_parser_begin(tool_parser *p, int thinks)
{
    p->state = thinks && p->t ? PARSE_THINK : PARSE_TEXT;
}

void tool_parser_free(tool_parser *p)
{
    sbuf_free(&p->held);
    sbuf_free(&p->raw);
    sbuf_free(&p->blanks);
}

int tool_parser_feed(tool_parser *p, const char *s, size_t n)
{
    sbuf_put(&p->held, s, n);
    if (p->held.error)
        return KVANT_ENOMEM;
    while (progress(p))
        ;
    sbuf_drop(&p->held, p->at);
    p->at = 0;
    return p->raw.error || p->blanks.error ? KVANT_ENOMEM : KVANT_OK;
}

void tool_parser_no_calls(tool_parser *p)
{
    if (p->state >= PARSE_OPEN && p->state <= PARSE_MIDDLE)
        not_a_call(p);
    if (p->state <= PARSE_TEXT)
        p->d = NULL;
}

int tool_parser_end(tool_parser *p)
{
    const int broken_off = p->state > PARSE_TEXT && p->state <= PARSE_MIDDLE && p->n_calls > 0;

    /* What of the frame of a call has come is no text, but where nothing says yet that there is a call. */
    if ((p->state > PARSE_MIDDLE && p->state != PARSE_RAW) || broken_off)
        p->held.n = p->raw.n = 0;
    p->final = 1;
    int code = tool_parser_feed(p, "", 0);
    if (p->state >= PARSE_OPEN && p->state <= PARSE_MIDDLE && p->raw.n) {
        not_a_call(p); /* it broke off before its name */
        code = tool_parser_feed(p, "", 0);
    }
    return code;
}
