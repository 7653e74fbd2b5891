/* tool_parser.c: see tool_parser.h.  New text is appended to `held`; each state takes from its front what it can
 * decide, or waits. */
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

    return m == MATCH_PART && p->final ? (*used ? MATCH_FULL : MATCH_NO) : m;
}

/* a, then b, as one pattern. */
int parser_try_both(const tool_parser *p, const char *a, const char *b, size_t *used)
{
    char both[160];
    const size_t n = a ? strlen(a) : 0, k = b ? strlen(b) : 0;

    if (!n && b)
        return parser_try(p, b, PATTERN_ALL, used);
    if (n + k >= sizeof both)
        return MATCH_NO;
    memcpy(both, a ? a : "", n); /* rows of a table: the longest two have 100 bytes */
    memcpy(both + n, b ? b : "", k);
    both[n + k] = 0;
    return parser_try(p, both, PATTERN_ALL, used);
}

static int is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

void parser_take(tool_parser *p, size_t n)
{
    if (parser_buffers(p) || p->state <= PARSE_MIDDLE)
        sbuf_put(&p->raw, p->held.s + p->at, n);
    p->at += n;
}

int parser_skip_blanks(tool_parser *p)
{
    size_t n = 0;

    while (p->at + n < p->held.n && is_blank(p->held.s[p->at + n]))
        n++;
    if (n)
        parser_take(p, n);
    return n > 0;
}

void parser_to(tool_parser *p, enum tool_state state)
{
    p->state = state;
    p->said = 0;
    p->blanks.n = p->broken = 0;
}

/* ---- texts and thoughts ---- */

void parser_text(tool_parser *p, int event, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (is_blank(s[i])) {
            if (p->said)
                sbuf_put(&p->blanks, s + i, 1);
            p->broken |= s[i] == '\n';
            continue;
        }
        if (p->blanks.n)
            parser_emit(p, event, p->blanks.s, p->blanks.n);
        p->blanks.n = p->broken = 0;
        p->said = p->wrote = 1;
        parser_emit(p, event, s + i, 1);
    }
}

int parser_line_starts(const tool_parser *p)
{
    return !p->said || p->broken;
}

/* raw is held again; tool_loose.c or the text after it have their turn. */
static void unread(tool_parser *p)
{
    sbuf all = { 0 };

    sbuf_put(&all, sbuf_text(&p->raw), p->raw.n);
    sbuf_put(&all, sbuf_text(&p->held) + p->at, p->held.n - p->at);
    p->raw.error |= all.error;
    p->reread += p->raw.n;
    p->raw.n = p->at = 0;
    sbuf_free(&p->held);
    p->held = all;
}

int parser_not_a_call(tool_parser *p, int plain)
{
    if (p->f != p->d) /* other forms had their turn */
        plain = p->raw.n < PARSER_HEAD ? PLAIN_ALL : PLAIN_NOT;
    parser_forget_calls(p);
    p->state = PARSE_TEXT;
    p->other = 0;
    p->args.n = 0;
    p->plain = plain;
    if (plain) {
        unread(p);
        return 1;
    }
    parser_text(p, TOOL_TEXT, sbuf_text(&p->raw), p->raw.n);
    p->raw.n = 0;
    return 1;
}

static int in_thought(tool_parser *p)
{
    size_t used;
    int wait = 0;
    const int m = parser_try(p, p->t->end, PATTERN_ALL, &used);

    if (m == MATCH_PART)
        return 0;
    if (m == MATCH_FULL) {
        p->at += used;
        p->wrote = 0; /* an answer begins behind its thoughts */
        p->plain = PLAIN_NOT;
        parser_to(p, PARSE_TEXT);
        return 1;
    }
    if (p->plain == PLAIN_NOT && parser_begins_in_thought(p, &wait))
        return 1;
    if (wait)
        return 0;
    p->plain = PLAIN_NOT;
    parser_text(p, TOOL_THINK, p->held.s + p->at++, 1);
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
        parser_to(p, PARSE_THINK);
        return 1;
    }
    if (m == MATCH_PART) /* before calls: "[THINK]" begins like a list of them */
        wait = 1;
    else if (p->plain == PLAIN_NOT && parser_begins(p, &wait))
        return 1;
    if (drops(p, p->t ? p->t->drop : NULL, &wait) || drops(p, p->d ? p->d->drop : NULL, &wait))
        return 1;
    if (!wait && p->plain != PLAIN_ALL && parser_begins_loose(p, &wait))
        return 1;
    if (wait)
        return 0;
    p->plain = PLAIN_NOT;
    parser_text(p, TOOL_TEXT, p->held.s + p->at++, 1);
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
    case PARSE_LOOSE: return parser_in_loose(p);
    case PARSE_THOUGHT: return parser_in_thought_call(p);
    case PARSE_OPEN:
    case PARSE_BEFORE:
    case PARSE_NAME:
    case PARSE_MIDDLE:
    case PARSE_AFTER:
    case PARSE_NEXT: return parser_in_frame(p);
    default: return parser_in_arguments(p);
    }
}

void tool_parser_begin(tool_parser *p, int thinks)
{
    p->f = p->d;
    p->state = thinks && p->t ? PARSE_THINK : PARSE_TEXT;
}

void tool_parser_free(tool_parser *p)
{
    sbuf_free(&p->held);
    sbuf_free(&p->raw);
    sbuf_free(&p->args);
    sbuf_free(&p->blanks);
    sbuf_free(&p->value);
    json_decref(p->loose.calls);
    p->loose.calls = NULL;
    parser_thought_free(p);
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
    return p->held.error || p->raw.error || p->args.error || p->blanks.error || p->value.error ? KVANT_ENOMEM
                                                                                                 : KVANT_OK;
}

int tool_parser_end(tool_parser *p)
{
    int code = KVANT_OK;

    parser_before_end(p);
    p->final = 1;
    /* Each turn ends one call or what looked like one: the rest of it may begin another. */
    for (size_t turns = p->held.n + p->raw.n + 2; turns > 0; turns--) {
        code = tool_parser_feed(p, "", 0);
        if (code != KVANT_OK || p->state <= PARSE_TEXT)
            break;
        if (p->state == PARSE_LOOSE)
            parser_end_loose(p);
        else if (p->state == PARSE_THOUGHT)
            parser_end_thought_call(p);
        else
            parser_end_call(p);
    }
    return code;
}

int tool_parser_framed(const tool_parser *p)
{
    const int args = p->state == PARSE_JSON && !p->json.kind; /* they have not begun */

    return !p->other && (args || (p->state >= PARSE_OPEN && p->state <= PARSE_MIDDLE));
}

typedef struct lively {
    int text, ends;
} lively;

static void on_lively(void *user, int event, const char *s, size_t n)
{
    (void)s;
    (void)n;
    ((lively *)user)->text |= event == TOOL_TEXT;
    ((lively *)user)->ends += event == TOOL_END;
}

int tool_parser_goes_on(const tool_parser *p, const char *s, size_t n)
{
    lively seen = { 0 };
    tool_parser q = { .d = p->d, .tools = p->tools, .emit = on_lively, .user = &seen, .wrote = p->wrote };
    int ok;

    tool_parser_begin(&q, 0);
    if (p->d->at_start)
        q.wrote = 0;
    ok = tool_parser_feed(&q, sbuf_text(&p->raw), p->raw.n) == KVANT_OK &&
         tool_parser_feed(&q, sbuf_text(&p->held), p->held.n) == KVANT_OK && tool_parser_feed(&q, s, n) == KVANT_OK;
    ok = ok && !seen.text && q.state > PARSE_TEXT;
    tool_parser_free(&q);
    return ok;
}

static sbuf copy_of(const sbuf *b)
{
    sbuf c = { 0 };

    if (b->n)
        sbuf_put(&c, b->s, b->n);
    return c;
}

/* Returns 1 if what is held ends a call, though it may go on. */
static int has_after(const tool_parser *p)
{
    size_t used, n = p->at;

    while (n < p->held.n && is_blank(p->held.s[n]))
        n++;
    return n < p->held.n &&
           pattern_match(p->d->after, PATTERN_ALL, p->held.s + p->at, p->held.n - p->at, &used) != MATCH_NO;
}

int tool_parser_completes(const tool_parser *p, const char *s, size_t n)
{
    const int done = p->state == PARSE_AFTER || p->state == PARSE_NEXT;
    lively seen = { 0 };
    tool_parser q = *p;

    if (p->other || p->state < PARSE_JSON || p->state >= PARSE_LOOSE || (!s && p->state == PARSE_KEY && !has_after(p)))
        return 0;
    q.held = copy_of(&p->held);
    q.raw = copy_of(&p->raw);
    q.args = copy_of(&p->args);
    q.blanks = copy_of(&p->blanks);
    q.value = copy_of(&p->value);
    q.emit = on_lively;
    q.user = &seen;
    const int code = s ? tool_parser_feed(&q, s, n) : tool_parser_end(&q);
    tool_parser_free(&q);
    return code == KVANT_OK && !seen.text && (s ? seen.ends > 0 : done || seen.ends > 0);
}
