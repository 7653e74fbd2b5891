/* answer.c: what an answer is made of: tokens become text, and where a chat has tools or thoughts, the text is taken
 * apart (tools/tool_parser.h).  Streams send each part as it comes; whole answers keep all of them. */
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "server/server_impl.h"

void answer_flush(job *j, choice *c)
{
    const int head = c->part == TOOL_ARGS && !c->call_sent; /* of a call */

    if (j->stream && (c->text.n || c->n_probs || !c->role_sent || head))
        j->shape->chunk(j, c, 0);
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

/* "call_" and 16 digits; 9 letters and digits where templates check that. */
static void make_id(const job *j, choice *c, char id[24])
{
    const char *own = j->id + strlen(j->id) - 24; /* 24 hexadecimal digits: of the server, of the request */
    const unsigned number = (unsigned)(c->index * 256 + c->n_calls);

    if (j->traits->d->short_ids)
        snprintf(id, 24, "%.6s%03x", own + 18, number & 0xFFF);
    else
        snprintf(id, 24, "call_%.12s%04x", own + 12, number & 0xFFFF);
}

static void begin_call(job *j, choice *c, const char *name, size_t n)
{
    const int which = tool_set_find(j->tools, name, n);

    if (!grow_calls(c)) {
        c->text.error = 1;
        return;
    }
    call_out *out = &c->calls[c->n_calls];
    *out = (call_out){ .name = j->tools->tools[which].name };
    make_id(j, c, out->id);
    c->n_calls++;
    c->call_sent = 0;
}

/* A part of the answer: of a stream into c->text (what is there of another part goes out first), else where it is
 * kept. */
static void on_part(void *user, int event, const char *s, size_t n)
{
    choice *c = user;
    job *j = c->job;
    const int part = event == TOOL_CALL || event == TOOL_END ? TOOL_ARGS : event;

    if (j->stream && (part != c->part || event == TOOL_CALL) && (c->text.n || (c->part == TOOL_ARGS && !c->call_sent)))
        j->shape->chunk(j, c, 0);
    c->part = part;
    if (event == TOOL_CALL)
        begin_call(j, c, s, n);
    else if (event == TOOL_END)
        c->calls[c->n_calls - 1].complete = 1;
    else if (j->stream || event == TOOL_TEXT)
        sbuf_put(&c->text, s, n);
    else
        sbuf_put(event == TOOL_THINK ? &c->thought : &c->calls[c->n_calls - 1].args, s, n);
}

void answer_begin(job *j, choice *c)
{
    if (!j->parses)
        return;
    c->parser = (tool_parser){ .d = j->tools ? j->traits->d : NULL,
                               .t = j->thoughts_apart ? j->traits->t : NULL,
                               .tools = j->tools,
                               .emit = on_part,
                               .user = c };
    tool_parser_begin(&c->parser, j->in_thought);
}

static int parse_piece(choice *c)
{
    if (c->no_calls)
        tool_parser_no_calls(&c->parser);
    const int code = tool_parser_feed(&c->parser, sbuf_text(&c->piece), c->piece.n);
    sbuf_drop(&c->piece, c->piece.n);
    return code == KVANT_OK && !c->piece.error && !c->text.error ? KVANT_OK : KVANT_ENOMEM;
}

/* A control token that the format is made of counts with its text. */
static int shown_token(job *j, choice *c, int32_t token)
{
    char text[80];
    int n = kvant_detok_flush(&c->out.detok, text, sizeof text);

    if (n > 0 && textout_text(&c->out, text, (size_t)n, &j->stops, &c->piece) < 0)
        return KVANT_ENOMEM;
    n = kvant_token_bytes(j->m->model, token, 1, text, sizeof text);
    return textout_text(&c->out, text, n > 0 && n <= (int)sizeof text ? (size_t)n : 0, &j->stops, &c->piece);
}

int answer_token(job *j, choice *c, int32_t token)
{
    int stop;

    if (!j->parses)
        return textout_token(&c->out, j->m->model, token, &j->stops, &c->text);
    c->n_thought += c->parser.state == PARSE_THINK;
    if (j->traits->shown && j->traits->shown[token])
        stop = shown_token(j, c, token);
    else
        stop = textout_token(&c->out, j->m->model, token, &j->stops, &c->piece);
    return parse_piece(c) == KVANT_OK ? stop : KVANT_ENOMEM;
}

void answer_end(job *j, choice *c)
{
    textout_end(&c->out, j->parses ? &c->piece : &c->text);
    if (j->parses) {
        parse_piece(c);
        tool_parser_end(&c->parser);
    }
    answer_flush(j, c);
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
