/* cohere_write.c: the JSON shapes of Cohere's /v2/chat.  Owns field names and their order; decides nothing. */
#include "server/server_impl.h"

static const char *finish_reason(const choice *c)
{
    if (c->finish == KVANT_FINISH_LENGTH)
        return "MAX_TOKENS";
    return c->out.stopped ? "STOP_SEQUENCE" : c->n_calls ? "TOOL_CALL" : "COMPLETE";
}

static void put_counts(const char *key, const choice *c, jsonw *w)
{
    jsonw_key(w, key);
    jsonw_object(w);
    jsonw_kint(w, "input_tokens", c->n_prompt);
    jsonw_kint(w, "output_tokens", c->n_generated);
    jsonw_end(w);
}

static void put_usage(const choice *c, jsonw *w)
{
    jsonw_key(w, "usage");
    jsonw_object(w);
    put_counts("billed_units", c, w);
    put_counts("tokens", c, w);
    jsonw_kint(w, "cached_tokens", c->n_cached);
    jsonw_end(w);
}

/* ---- streams ---- */

/* An event whose delta is open, and in it, with `inner`, a message. */
static void begin(jsonw *w, const char *name, int index, int inner)
{
    jsonw_init(w);
    jsonw_object(w);
    jsonw_kstr(w, "type", name);
    if (index >= 0)
        jsonw_kint(w, "index", index);
    jsonw_key(w, "delta");
    jsonw_object(w);
    if (inner) {
        jsonw_key(w, "message");
        jsonw_object(w);
    }
}

/* Closes `open` objects. */
static void end(job *j, const char *name, int open, jsonw *w)
{
    for (int i = 0; i < open; i++)
        jsonw_end(w);
    event_frame(j, name, w);
}

static void message_start(job *j, choice *c)
{
    static const char *const lists[] = { "content", "tool_calls", "citations" };
    jsonw w;

    jsonw_init(&w);
    jsonw_object(&w);
    jsonw_kstr(&w, "type", "message-start");
    jsonw_kstr(&w, "id", j->id);
    jsonw_key(&w, "delta");
    jsonw_object(&w);
    jsonw_key(&w, "message");
    jsonw_object(&w);
    jsonw_kstr(&w, "role", "assistant");
    jsonw_kstr(&w, "tool_plan", "");
    for (int i = 0; i < 3; i++) {
        jsonw_key(&w, lists[i]);
        jsonw_array(&w);
        jsonw_end(&w);
    }
    end(j, "message-start", 3, &w);
    c->role_sent = 1;
}

static void part_end(job *j, choice *c)
{
    const int calls = c->blocks.part == TOOL_ARGS;
    const char *name = calls ? "tool-call-end" : "content-end";
    jsonw w;

    if (!c->blocks.open)
        return;
    jsonw_init(&w);
    jsonw_object(&w);
    jsonw_kstr(&w, "type", name);
    jsonw_kint(&w, "index", calls ? c->blocks.n_calls - 1 : c->blocks.n - 1);
    end(j, name, 1, &w);
    c->blocks.open = 0;
}

static void put_call(const call_out *out, const char *args, size_t n, jsonw *w)
{
    jsonw_object(w);
    if (out) {
        jsonw_kstr(w, "id", out->id);
        jsonw_kstr(w, "type", "function");
    }
    jsonw_key(w, "function");
    jsonw_object(w);
    if (out)
        jsonw_kstr(w, "name", out->name);
    jsonw_key(w, "arguments");
    jsonw_strn(w, args, n);
    jsonw_end(w);
    jsonw_end(w);
}

static void put_text(int part, const char *text, size_t n, int typed, jsonw *w)
{
    const char *kind = part == TOOL_THINK ? "thinking" : "text";

    jsonw_object(w);
    if (typed)
        jsonw_kstr(w, "type", kind);
    jsonw_key(w, kind);
    jsonw_strn(w, text, n);
    jsonw_end(w);
}

static void part_start(job *j, choice *c)
{
    const int calls = c->part == TOOL_ARGS;
    const char *name = calls ? "tool-call-start" : "content-start";
    jsonw w;

    part_end(j, c);
    begin(&w, name, calls ? c->blocks.n_calls++ : c->blocks.n++, 1);
    jsonw_key(&w, calls ? "tool_calls" : "content");
    if (calls)
        put_call(&c->calls[c->n_calls - 1], "", 0, &w);
    else
        put_text(c->part, "", 0, 1, &w);
    end(j, name, 3, &w);
    c->blocks.open = 1;
    c->blocks.part = c->part;
    c->call_sent = 1;
}

static void part_delta(job *j, choice *c)
{
    const int calls = c->part == TOOL_ARGS;
    const char *name = calls ? "tool-call-delta" : "content-delta";
    jsonw w;

    begin(&w, name, calls ? c->blocks.n_calls - 1 : c->blocks.n - 1, 1);
    jsonw_key(&w, calls ? "tool_calls" : "content");
    if (calls)
        put_call(NULL, c->text.s, c->text.n, &w);
    else
        put_text(c->part, c->text.s, c->text.n, 0, &w);
    end(j, name, 3, &w);
}

static void message_end(job *j, choice *c)
{
    jsonw w;

    part_end(j, c);
    begin(&w, "message-end", -1, 0);
    jsonw_kstr(&w, "finish_reason", finish_reason(c));
    put_usage(c, &w);
    end(j, "message-end", 2, &w);
}

static void cohere_chunk(job *j, choice *c, int ends)
{
    const int head = c->part == TOOL_ARGS && !c->call_sent; /* of a call */

    if (!c->role_sent)
        message_start(j, c);
    if ((c->text.n || head) && (head || !c->blocks.open || c->blocks.part != c->part))
        part_start(j, c);
    if (c->text.n)
        part_delta(j, c);
    if (ends)
        message_end(j, c);
    sbuf_drop(&c->text, c->text.n);
    c->probs.n = 0;
}

static void cohere_error_frame(job *j)
{
    jsonw w;

    begin(&w, "message-end", -1, 0);
    jsonw_kstr(&w, "finish_reason", "ERROR");
    jsonw_kstr(&w, "error", j->error.message);
    end(j, "message-end", 2, &w);
}

/* ---- whole answers ---- */

static void put_message(const choice *c, jsonw *w)
{
    jsonw_key(w, "message");
    jsonw_object(w);
    jsonw_kstr(w, "role", "assistant");
    jsonw_key(w, "content");
    jsonw_array(w);
    if (c->thought.n)
        put_text(TOOL_THINK, c->thought.s, c->thought.n, 1, w);
    if (c->text.n || !c->n_calls)
        put_text(TOOL_TEXT, sbuf_text(&c->text), c->text.n, 1, w);
    jsonw_end(w);
    if (c->n_calls) {
        jsonw_key(w, "tool_calls");
        jsonw_array(w);
        for (int i = 0; i < c->n_calls; i++)
            put_call(&c->calls[i], sbuf_text(&c->calls[i].args), c->calls[i].args.n, w);
        jsonw_end(w);
    }
    jsonw_end(w);
}

static void cohere_whole(job *j, jsonw *w)
{
    const choice *c = &j->choices[0];

    jsonw_object(w);
    jsonw_kstr(w, "id", j->id);
    jsonw_kstr(w, "finish_reason", finish_reason(c));
    put_message(c, w);
    put_usage(c, w);
    jsonw_end(w);
}

/* Nothing asks it for progress: the request has no field for it. */
const answer_shape cohere_shape = { cohere_chunk, NULL, cohere_error_frame, cohere_whole, NULL };
