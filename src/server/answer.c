/* answer.c: what an answer is made of: tokens become text, and where a chat has tools or thoughts, the text is taken
 * apart (tools/tool_parser.h).  Streams send each part as it comes; whole answers keep all of them. */
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "server/server_impl.h"

static const text_stops no_stops;

/* A call whose arguments a stop string may still cut is not told before it is complete: half of one may be run. */
static int withheld(const job *j, const choice *c)
{
    return c->part == TOOL_ARGS && j->gen.n_stops && c->n_calls && !c->calls[c->n_calls - 1].complete;
}

/* ---- log-probabilities: of the visible text ---- */

int64_t answer_characters(const char *s, size_t n)
{
    int64_t count = 0;

    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)s[i] & 0xC0) != 0x80;
    return count;
}

int64_t answer_at(const choice *c)
{
    return c->chars + answer_characters(sbuf_text(&c->out.held), c->out.held.n);
}

/* Those that may be told: their text begins in what is given out. */
static int ready_probs(const job *j, const choice *c)
{
    int n = 0;

    if (j->gen.parses && c->part != TOOL_TEXT)
        return 0;
    if (!j->gen.parses && !c->out.held.n && !(c->out.stopped && j->gen.probs.wanted))
        return c->probs.n;
    while (n < c->probs.n && (n < c->probs.n_prompt || c->probs.list[n].at < c->chars))
        n++;
    return n;
}

/* Tokens of a thought or a call, and blanks before the text, are none of it. */
void answer_settle(job *j, choice *c, int ended)
{
    const tool_parser *p = &c->parser;
    const int64_t at = answer_at(c);
    const int elsewhere = j->gen.parses && (p->state == PARSE_THINK || p->state >= PARSE_JSON ||
                                        (p->state == PARSE_TEXT && !p->said && !p->held.n));

    if (!j->gen.probs.wanted || j->gen.keep_tokens > 1 ||
        !(elsewhere || (ended && (j->gen.parses || c->out.stopped))))
        return;
    while (c->probs.n > c->probs.n_prompt && c->probs.list[c->probs.n - 1].at >= at)
        c->probs.n--;
}

static void send_chunk(job *j, choice *c, int ends)
{
    const int all = c->probs.n, n = ends ? all : ready_probs(j, c);

    c->probs.n = n;
    j->gen.shape->chunk(j, c, ends);
    c->probs.n = all - n;
    if (all > n)
        memmove(c->probs.list, c->probs.list + n, (size_t)(all - n) * sizeof *c->probs.list);
}

void answer_flush(job *j, choice *c)
{
    const int head = c->part == TOOL_ARGS && !c->call_sent; /* of a call */

    if (j->stream && !withheld(j, c) && (c->text.n || ready_probs(j, c) || !c->role_sent || head))
        send_chunk(j, c, 0);
}

/* Room for a call more; 0: no memory. */
static int grow_calls(choice *c)
{
    const int cap = c->cap_calls ? c->cap_calls * 2 : 4;

    if (c->n_calls < c->cap_calls)
        return 1;
    call_out *p = kvant_realloc(c->calls, (size_t)c->cap_calls * sizeof *p, (size_t)cap * sizeof *p);
    if (!p)
        return 0;
    c->calls = p;
    c->cap_calls = cap;
    return 1;
}

/* "call_" ("toolu_" in Anthropic's API) and 16 digits; 9 letters and digits where templates check that. */
static void make_id(const job *j, choice *c, char id[24])
{
    const char *own = j->id + strlen(j->id) - 24; /* 24 hexadecimal digits: of the server, of the request */
    const unsigned number = (unsigned)(c->index * 256 + c->n_calls);

    if (j->gen.traits->d->short_ids)
        snprintf(id, 24, "%.6s%03x", own + 18, number & 0xFFF);
    else
        snprintf(id, 24, "%s_%.12s%04x", strncmp(j->id, "msg_", 4) == 0 ? "toolu" : "call", own + 12, number & 0xFFFF);
}

static void begin_call(job *j, choice *c, const char *name, size_t n)
{
    const int which = tool_set_find(j->gen.tools, name, n);

    if (!grow_calls(c)) {
        c->text.error = 1;
        return;
    }
    call_out *out = &c->calls[c->n_calls];
    *out = (call_out){ .name = j->gen.tools->tools[which].name };
    make_id(j, c, out->id);
    c->n_calls++;
    c->call_sent = 0;
}

/* Before min_tokens of the visible answer nothing ends it. */
int answer_is_early(const choice *c)
{
    return c->n_generated - c->n_thought < c->job->gen.min_tokens;
}

static sbuf *place_of(choice *c, int part)
{
    if (c->job->stream || part == TOOL_TEXT)
        return &c->text;
    return part == TOOL_THINK ? &c->thought : &c->calls[c->n_calls - 1].args;
}

/* The held text, which could have been the beginning of a stop string, is none and goes out. */
static void let_go(choice *c)
{
    const size_t n = c->out.held.n;

    if (!n || c->out.stopped)
        return;
    sbuf_put(place_of(c, c->part), c->out.held.s, n);
    c->chars += c->part == TOOL_TEXT ? answer_characters(c->out.held.s, n) : 0;
    sbuf_drop(&c->out.held, n);
}

/* A stop string within a call's arguments, or the end of the answer: there is no call.  A stream that has told of it
 * tells no more. */
static void drop_call(choice *c)
{
    c->cut_call = 1;
    sbuf_free(&c->calls[--c->n_calls].args);
    if (c->job->stream)
        sbuf_drop(&c->text, c->text.n);
    c->call_sent = 1;
    c->part = TOOL_TEXT;
}

/* More of the visible answer: a stop string ends it. */
static void put_visible(job *j, choice *c, const char *s, size_t n)
{
    sbuf *to = place_of(c, c->part);
    const size_t from = to->n;

    const int stop = textout_text(&c->out, s, n, answer_is_early(c) ? &no_stops : &j->gen.stops, to);
    if (c->part == TOOL_TEXT)
        c->chars += answer_characters(sbuf_text(to) + from, to->n - from);
    c->text.error |= stop < 0;
    if (stop == 1 && c->part == TOOL_ARGS)
        drop_call(c);
}

/* A part of the answer: of a stream into c->text (what is there of another part goes out first), else where it is
 * kept. */
static void on_part(void *user, int event, const char *s, size_t n)
{
    choice *c = user;
    job *j = c->job;
    const int part = event == TOOL_CALL || event == TOOL_END ? TOOL_ARGS : event;

    if (c->out.stopped || (part == TOOL_THINK && j->gen.thoughts.hidden))
        return;
    if (part != c->part || event == TOOL_CALL || event == TOOL_END)
        let_go(c);
    if (j->stream && (part != c->part || event == TOOL_CALL) && (c->text.n || (c->part == TOOL_ARGS && !c->call_sent)))
        send_chunk(j, c, 0);
    c->part = part;
    if (event == TOOL_CALL)
        begin_call(j, c, s, n);
    else if (event == TOOL_END)
        c->calls[c->n_calls - 1].complete = 1;
    else if (event == TOOL_THINK)
        sbuf_put(place_of(c, part), s, n);
    else
        put_visible(j, c, s, n);
}

void answer_begin(job *j, choice *c)
{
    if (!j->gen.parses)
        return;
    c->parser = (tool_parser){ .d = j->gen.tools ? j->gen.traits->d : NULL,
                               .t = j->gen.thoughts.apart ? j->gen.traits->t : NULL,
                               .tools = j->gen.tools,
                               .guarded = j->gen.tools && j->gen.grammar,
                               .wanted = j->gen.tools && j->gen.grammar && j->gen.grammar_begins != GRAMMAR_AT_CALL,
                               .emit = on_part,
                               .user = c };
    tool_parser_begin(&c->parser, j->gen.thoughts.begun);
}

static int parse_piece(choice *c)
{
    if (c->unguarded)
        c->parser.guarded = 0;
    const int code = tool_parser_feed(&c->parser, sbuf_text(&c->piece), c->piece.n);
    sbuf_drop(&c->piece, c->piece.n);
    return code == KVANT_OK && !c->piece.error && !c->text.error ? KVANT_OK : KVANT_ENOMEM;
}

/* A control token that the format is made of counts with its text. */
static int shown_token(job *j, choice *c, int32_t token)
{
    char text[80];
    int n = kvant_detok_flush(&c->out.detok, text, sizeof text);

    if (n > 0)
        sbuf_put(&c->piece, text, (size_t)n);
    n = kvant_token_bytes(j->m->model, token, 1, text, sizeof text);
    if (n > 0 && n <= (int)sizeof text)
        sbuf_put(&c->piece, text, (size_t)n);
    return c->piece.error ? KVANT_ENOMEM : KVANT_OK;
}

/* Without a parser all of the text is visible. */
static int plain_token(job *j, choice *c, int32_t token)
{
    const size_t from = c->text.n;
    const text_stops *stops = answer_is_early(c) ? &no_stops : &j->gen.stops;
    const int stop = textout_token(&c->out, j->m->model, token, stops, &c->text);

    c->chars += answer_characters(sbuf_text(&c->text) + from, c->text.n - from);
    return stop;
}

int answer_token(job *j, choice *c, int32_t token)
{
    int code;

    if (!j->gen.parses)
        return plain_token(j, c, token);
    c->n_thought += c->parser.state == PARSE_THINK;
    if (j->gen.traits->shown && j->gen.traits->shown[token])
        code = shown_token(j, c, token);
    else
        code = textout_detok(&c->out, j->m->model, token, &c->piece);
    return code < 0 || parse_piece(c) != KVANT_OK ? KVANT_ENOMEM : c->out.stopped != 0;
}

void answer_end(job *j, choice *c)
{
    if (!j->gen.parses) {
        const size_t from = c->text.n;
        textout_end(&c->out, &c->text);
        c->chars += answer_characters(sbuf_text(&c->text) + from, c->text.n - from);
    } else if (!c->out.stopped) {
        char last[16];
        const int n = kvant_detok_flush(&c->out.detok, last, sizeof last);
        c->thought_cut = c->parser.state == PARSE_THINK || c->parser.state == PARSE_THOUGHT;
        sbuf_put(&c->piece, last, n > 0 ? (size_t)n : 0);
        parse_piece(c);
        c->parser.cut = c->finish != KVANT_FINISH_STOP || c->out.stopped;
        tool_parser_end(&c->parser);
        let_go(c);
        if (c->n_calls && !c->calls[c->n_calls - 1].complete)
            drop_call(c);
    }
    answer_settle(j, c, 1);
    answer_flush(j, c);
}

void answer_last(job *j, choice *c)
{
    send_chunk(j, c, 1);
}

void answer_free(choice *c)
{
    textout_free(&c->out);
    sbuf_free(&c->text);
    sbuf_free(&c->piece);
    sbuf_free(&c->thought);
    tool_parser_free(&c->parser);
    tool_parser_free(&c->gate.parser);
    sbuf_free(&c->gate.since);
    for (int i = 0; i < c->n_calls; i++)
        sbuf_free(&c->calls[i].args);
    kvant_free(c->calls);
}
