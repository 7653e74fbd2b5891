/* anthropic_write.c: the JSON shapes of Anthropic's messages API.  Owns field names and their order; decides
 * nothing. */
#include <string.h>
#include "server/server_impl.h"

static const char *stop_reason(const choice *c)
{
    if (c->finish == KVANT_FINISH_LENGTH)
        return "max_tokens";
    return c->out.stopped ? "stop_sequence" : c->n_calls ? "tool_use" : "end_turn";
}

/* The head of a message, its content left open for the caller. */
static void put_head(const job *j, jsonw *w)
{
    jsonw_kstr(w, "id", j->id);
    jsonw_kstr(w, "type", "message");
    jsonw_kstr(w, "role", "assistant");
    jsonw_kstr(w, "model", j->m->name);
    jsonw_key(w, "content");
    jsonw_array(w);
}

static void put_usage(const choice *c, jsonw *w)
{
    jsonw_key(w, "usage");
    jsonw_object(w);
    jsonw_kint(w, "input_tokens", c->n_prompt - c->n_cached);
    jsonw_kint(w, "cache_creation_input_tokens", 0);
    jsonw_kint(w, "cache_read_input_tokens", c->n_cached);
    jsonw_kint(w, "output_tokens", c->n_generated);
    jsonw_end(w);
}

/* c: of a message that has ended, or NULL. */
static void put_reason(const job *j, const choice *c, jsonw *w)
{
    const int which = c ? c->out.stopped : 0;

    jsonw_key(w, "stop_reason");
    if (c)
        jsonw_str(w, stop_reason(c));
    else
        jsonw_null(w);
    jsonw_key(w, "stop_sequence");
    if (which)
        jsonw_strn(w, j->gen.stop_text[which - 1], (size_t)j->gen.stop_len[which - 1]);
    else
        jsonw_null(w);
}

/* ---- streams ---- */

void event_frame(job *j, const char *name, jsonw *w)
{
    if (jsonw_error(w)) {
        j->out.error = 1;
    } else {
        sbuf_printf(&j->out, "event: %s\ndata: ", name);
        sbuf_put(&j->out, w->buf, w->len);
        sbuf_puts(&j->out, "\n\n");
    }
    jsonw_free(w);
}

static void begin_event(jsonw *w, const char *name)
{
    jsonw_init(w);
    jsonw_object(w);
    jsonw_kstr(w, "type", name);
}

static void message_start(job *j, choice *c)
{
    jsonw w;

    begin_event(&w, "message_start");
    jsonw_key(&w, "message");
    jsonw_object(&w);
    put_head(j, &w);
    jsonw_end(&w);
    put_reason(j, NULL, &w);
    put_usage(c, &w);
    jsonw_end(&w);
    jsonw_end(&w);
    event_frame(j, "message_start", &w);
    c->role_sent = 1;
}

static void block_stop(job *j, choice *c)
{
    jsonw w;

    if (!c->blocks.open)
        return;
    begin_event(&w, "content_block_stop");
    jsonw_kint(&w, "index", c->blocks.n - 1);
    jsonw_end(&w);
    event_frame(j, "content_block_stop", &w);
    c->blocks.open = 0;
}

static void block_start(job *j, choice *c)
{
    jsonw w;

    block_stop(j, c);
    begin_event(&w, "content_block_start");
    jsonw_kint(&w, "index", c->blocks.n++);
    jsonw_key(&w, "content_block");
    jsonw_object(&w);
    if (c->part == TOOL_ARGS) {
        jsonw_kstr(&w, "type", "tool_use");
        jsonw_kstr(&w, "id", c->calls[c->n_calls - 1].id);
        jsonw_kstr(&w, "name", c->calls[c->n_calls - 1].name);
        jsonw_key(&w, "input");
        jsonw_object(&w);
        jsonw_end(&w);
    } else {
        jsonw_kstr(&w, "type", c->part == TOOL_THINK ? "thinking" : "text");
        jsonw_kstr(&w, c->part == TOOL_THINK ? "thinking" : "text", "");
        if (c->part == TOOL_THINK)
            jsonw_kstr(&w, "signature", "");
    }
    jsonw_end(&w);
    jsonw_end(&w);
    event_frame(j, "content_block_start", &w);
    c->blocks.open = 1;
    c->blocks.part = c->part;
    c->call_sent = 1;
}

static void block_delta(job *j, choice *c)
{
    static const char *const names[][2] = { [TOOL_TEXT] = { "text_delta", "text" },
                                            [TOOL_THINK] = { "thinking_delta", "thinking" },
                                            [TOOL_ARGS] = { "input_json_delta", "partial_json" } };
    jsonw w;

    begin_event(&w, "content_block_delta");
    jsonw_kint(&w, "index", c->blocks.n - 1);
    jsonw_key(&w, "delta");
    jsonw_object(&w);
    jsonw_kstr(&w, "type", names[c->part][0]);
    jsonw_key(&w, names[c->part][1]);
    jsonw_strn(&w, c->text.s, c->text.n);
    jsonw_end(&w);
    jsonw_end(&w);
    event_frame(j, "content_block_delta", &w);
}

static void message_delta(job *j, choice *c)
{
    jsonw w;

    block_stop(j, c);
    begin_event(&w, "message_delta");
    jsonw_key(&w, "delta");
    jsonw_object(&w);
    put_reason(j, c, &w);
    jsonw_end(&w);
    put_usage(c, &w);
    jsonw_end(&w);
    event_frame(j, "message_delta", &w);
}

static void anthropic_chunk(job *j, choice *c, int ends)
{
    const int head = c->part == TOOL_ARGS && !c->call_sent; /* of a call */

    if (!c->role_sent)
        message_start(j, c);
    if ((c->text.n || head) && (head || !c->blocks.open || c->blocks.part != c->part))
        block_start(j, c);
    if (c->text.n)
        block_delta(j, c);
    if (ends)
        message_delta(j, c);
    sbuf_drop(&c->text, c->text.n);
    c->probs.n = 0;
}

static void anthropic_end_stream(job *j)
{
    jsonw w;

    begin_event(&w, "message_stop");
    jsonw_end(&w);
    event_frame(j, "message_stop", &w);
}

static void anthropic_error_frame(job *j)
{
    jsonw w;

    begin_event(&w, "error");
    jsonw_key(&w, "error");
    jsonw_object(&w);
    jsonw_kstr(&w, "type", api_anthropic_type(j->error.kind));
    jsonw_kstr(&w, "message", j->error.message);
    jsonw_end(&w);
    jsonw_end(&w);
    event_frame(j, "error", &w);
}

/* ---- whole answers ---- */

static void put_block(const char *type, const char *key, const sbuf *text, jsonw *w)
{
    jsonw_object(w);
    jsonw_kstr(w, "type", type);
    jsonw_key(w, key);
    jsonw_strn(w, text->s, text->n);
    if (strcmp(type, "thinking") == 0)
        jsonw_kstr(w, "signature", "");
    jsonw_end(w);
}

static void put_call(const call_out *out, jsonw *w)
{
    jsonw_object(w);
    jsonw_kstr(w, "type", "tool_use");
    jsonw_kstr(w, "id", out->id);
    jsonw_kstr(w, "name", out->name);
    jsonw_key(w, "input");
    jsonw_raw(w, out->args.s);
    jsonw_end(w);
}

static void anthropic_whole(job *j, jsonw *w)
{
    const choice *c = &j->choices[0];

    jsonw_object(w);
    put_head(j, w);
    if (c->thought.n)
        put_block("thinking", "thinking", &c->thought, w);
    if (c->text.n)
        put_block("text", "text", &c->text, w);
    for (int i = 0; i < c->n_calls; i++)
        put_call(&c->calls[i], w);
    jsonw_end(w);
    put_reason(j, c, w);
    put_usage(c, w);
    jsonw_end(w);
}

/* Nothing asks it for progress: the request is refused. */
const answer_shape anthropic_shape = { anthropic_chunk, anthropic_end_stream, anthropic_error_frame,
                                       anthropic_whole, NULL };
