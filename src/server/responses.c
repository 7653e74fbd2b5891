/* responses.c: the JSON shapes of OpenAI's /v1/responses: items instead of choices, and streams as named events.  Owns
 * field names, the order of events, and the items of an answer; decides nothing. */
#include <stdio.h>
#include <string.h>
#include "base/clock.h"
#include "base/mem.h"
#include "server/request/json_scan.h"
#include "server/request/response_store.h"
#include "server/server_impl.h"

static const char *status_of(const choice *c)
{
    return c->finish == KVANT_FINISH_LENGTH || c->cut_call ? "incomplete" : "completed";
}

/* ---- items ---- */

void responses_free_items(job *j)
{
    for (int i = 0; i < j->n_items; i++)
        sbuf_free(&j->items[i].text);
    kvant_free(j->items);
}

/* Adds an item; which: a call's number, that of the newest but for whole answers.  NULL: no memory. */
static response_item *add_item(job *j, int part, int which)
{
    const int cap = j->cap_items ? j->cap_items * 2 : 4;

    if (j->n_items == j->cap_items) {
        response_item *p = kvant_realloc(j->items, (size_t)j->cap_items * sizeof *p, (size_t)cap * sizeof *p);
        if (!p) {
            j->out.error = 1;
            return NULL;
        }
        j->items = p;
        j->cap_items = cap;
    }
    j->items[j->n_items] = (response_item){ .part = part, .which = which };
    return &j->items[j->n_items++];
}

/* How the client knows the tool of a call: {"name", "namespace", "custom"}; NULL: as the model does. */
static const json_t *told_name(const job *j, const response_item *it)
{
    return it->part == TOOL_ARGS ? json_object_get(j->responses->names, j->choices[0].calls[it->which].name) : NULL;
}

static int is_custom(const job *j, const response_item *it)
{
    return json_is_true(json_object_get(told_name(j, it), "custom"));
}

static void item_id(const job *j, int i, char id[RESPONSE_ID])
{
    static const char *const kinds[] = { [TOOL_TEXT] = "msg", [TOOL_THINK] = "rs", [TOOL_ARGS] = "fc" };
    const char *kind = is_custom(j, &j->items[i]) ? "ctc" : kinds[j->items[i].part];

    snprintf(id, RESPONSE_ID, "%s_%s%02x", kind, strchr(j->id, '_') + 1, (unsigned)i);
}

static void put_text(const char *key, const sbuf *text, jsonw *w)
{
    jsonw_key(w, key);
    jsonw_strn(w, text->s ? text->s : "", text->n);
}

/* The one part of a message or a thought. */
static void put_part(const response_item *it, const sbuf *text, jsonw *w)
{
    jsonw_object(w);
    jsonw_kstr(w, "type", it->part == TOOL_THINK ? "reasoning_text" : "output_text");
    put_text("text", text, w);
    if (it->part == TOOL_TEXT) {
        jsonw_key(w, "annotations");
        jsonw_array(w);
        jsonw_end(w);
        jsonw_key(w, "logprobs");
        jsonw_array(w);
        jsonw_end(w);
    }
    jsonw_end(w);
}

/* The text that a custom tool gets: of arguments that were cut there is none. */
static void put_custom_input(const char *key, const sbuf *args, jsonw *w)
{
    json_t *v = NULL;
    const char *text = NULL;

    if (args->n && json_read(args->s, args->n, &v, NULL) == KVANT_OK)
        text = json_string_value(json_object_get(v, "input"));
    jsonw_kstr(w, key, text ? text : "");
    json_decref(v);
}

static void put_call(const job *j, const response_item *it, int begins, jsonw *w)
{
    static const sbuf nothing = { 0 };
    const call_out *out = &j->choices[0].calls[it->which];
    const json_t *told = told_name(j, it);
    const char *space = json_string_value(json_object_get(told, "namespace"));

    jsonw_kstr(w, "call_id", out->id);
    jsonw_kstr(w, "name", told ? json_string_value(json_object_get(told, "name")) : out->name);
    if (space)
        jsonw_kstr(w, "namespace", space);
    if (is_custom(j, it))
        put_custom_input("input", begins ? &nothing : &it->text, w);
    else
        put_text("arguments", begins ? &nothing : &it->text, w);
}

/* begins: without what it holds. */
static void put_item(const job *j, int i, int begins, const char *status, jsonw *w)
{
    static const char *const types[] = { [TOOL_TEXT] = "message",
                                         [TOOL_THINK] = "reasoning",
                                         [TOOL_ARGS] = "function_call" };
    const response_item *it = &j->items[i];
    char id[RESPONSE_ID];

    item_id(j, i, id);
    jsonw_object(w);
    jsonw_kstr(w, "type", is_custom(j, it) ? "custom_tool_call" : types[it->part]);
    jsonw_kstr(w, "id", id);
    jsonw_kstr(w, "status", begins ? "in_progress" : status);
    if (it->part == TOOL_ARGS) {
        put_call(j, it, begins, w);
        jsonw_end(w);
        return;
    }
    if (it->part == TOOL_THINK) {
        jsonw_key(w, "summary");
        jsonw_array(w);
        jsonw_end(w);
    } else {
        jsonw_kstr(w, "role", "assistant");
    }
    jsonw_key(w, "content");
    jsonw_array(w);
    if (!begins)
        put_part(it, &it->text, w);
    jsonw_end(w);
    jsonw_end(w);
}

/* The last one may have been cut, but no call is told that was; a thought is whole once its end has come, and where a
 * stop string ended the answer the text before it is. */
static const char *item_status(const job *j, int i)
{
    const choice *c = &j->choices[0];

    if (i < j->n_items - 1 || j->items[i].part == TOOL_ARGS || (j->items[i].part == TOOL_THINK && !c->thought_cut) ||
        c->cut_call)
        return "completed";
    return status_of(c);
}

/* ---- the response ---- */

static void put_usage(const choice *c, jsonw *w)
{
    jsonw_key(w, "usage");
    jsonw_object(w);
    jsonw_kint(w, "input_tokens", c->n_prompt);
    jsonw_key(w, "input_tokens_details");
    jsonw_object(w);
    jsonw_kint(w, "cached_tokens", c->n_cached);
    jsonw_kint(w, "cache_write_tokens", 0); /* nothing is written that a client would pay for */
    jsonw_end(w);
    jsonw_kint(w, "output_tokens", c->n_generated);
    jsonw_key(w, "output_tokens_details");
    jsonw_object(w);
    jsonw_kint(w, "reasoning_tokens", c->n_thought);
    jsonw_end(w);
    jsonw_kint(w, "total_tokens", c->n_prompt + c->n_generated);
    jsonw_end(w);
}

static void put_error(const job *j, jsonw *w)
{
    jsonw_key(w, "error");
    if (!j->error.kind) {
        jsonw_null(w);
        return;
    }
    jsonw_object(w);
    jsonw_kstr(w, "code", api_error_code(j->error.kind) ? api_error_code(j->error.kind) : "invalid_prompt");
    jsonw_kstr(w, "message", j->error.message);
    jsonw_end(w);
}

static void put_incomplete(const choice *c, const char *status, jsonw *w)
{
    jsonw_key(w, "incomplete_details");
    if (strcmp(status, "incomplete") != 0) {
        jsonw_null(w);
        return;
    }
    jsonw_object(w);
    jsonw_kstr(w, "reason", c->cut_call && c->out.stopped ? "stop_sequence" : "max_output_tokens");
    jsonw_end(w);
}

static void put_head(const job *j, const char *status, jsonw *w)
{
    jsonw_kstr(w, "id", j->id);
    jsonw_kstr(w, "object", "response");
    jsonw_kint(w, "created_at", j->created);
    jsonw_kstr(w, "status", status);
    jsonw_kstr(w, "model", j->m->name);
    jsonw_kbool(w, "background", 0);
    jsonw_kbool(w, "store", j->responses->store);
    jsonw_kstr(w, "service_tier", "default");
    put_error(j, w);
    put_incomplete(&j->choices[0], status, w);
    for (int i = 0; i < RESPONSES_TOLD; i++) {
        jsonw_key(w, responses_told[i]);
        jsonw_raw(w, j->responses->told[i]);
    }
}

static void put_response(const job *j, const char *status, jsonw *w)
{
    const int ended = strcmp(status, "in_progress") != 0;

    jsonw_object(w);
    put_head(j, status, w);
    jsonw_key(w, "output");
    jsonw_array(w);
    for (int i = 0; ended && i < j->n_items; i++)
        put_item(j, i, 0, item_status(j, i), w);
    jsonw_end(w);
    if (ended && !j->error.kind) {
        put_usage(&j->choices[0], w);
    } else {
        jsonw_key(w, "usage");
        jsonw_null(w);
    }
    jsonw_end(w);
}

/* ---- what the next turn finds under its id ---- */

static void put_calls(const job *j, jsonw *w)
{
    int open = 0;

    for (int i = 0; i < j->n_items; i++) {
        const response_item *it = &j->items[i];
        const call_out *out = it->part == TOOL_ARGS ? &j->choices[0].calls[it->which] : NULL;
        if (!out)
            continue;
        if (!open)
            jsonw_key(w, "tool_calls");
        if (!open)
            jsonw_array(w);
        open = 1;
        jsonw_object(w);
        jsonw_kstr(w, "id", out->id);
        jsonw_kstr(w, "type", "function");
        jsonw_key(w, "function");
        jsonw_object(w);
        jsonw_kstr(w, "name", out->name);
        put_text("arguments", &it->text, w);
        jsonw_end(w);
        jsonw_end(w);
    }
    if (open)
        jsonw_end(w);
}

/* The answer as a message of a chat. */
static void put_message(const job *j, jsonw *w)
{
    static const char *const keys[] = { [TOOL_TEXT] = "content", [TOOL_THINK] = "reasoning_content" };

    jsonw_object(w);
    jsonw_kstr(w, "role", "assistant");
    for (int part = TOOL_TEXT; part <= TOOL_THINK; part++) {
        sbuf all = { 0 };
        for (int i = 0; i < j->n_items; i++)
            if (j->items[i].part == part && j->items[i].text.n)
                sbuf_put(&all, j->items[i].text.s, j->items[i].text.n);
        if (all.n || part == TOOL_TEXT)
            put_text(keys[part], &all, w);
        w->error |= all.error;
        sbuf_free(&all);
    }
    put_calls(j, w);
    jsonw_end(w);
}

/* History and answer are kept; a conversation that is too large is not, and the response says so. */
static void keep(job *j)
{
    responses_body *b = j->responses;
    const size_t n = strlen(b->history);
    sbuf all = { 0 };
    jsonw w, told;

    if (!b->store)
        return;
    jsonw_init(&told);
    put_response(j, status_of(&j->choices[0]), &told);
    jsonw_init(&w);
    put_message(j, &w);
    sbuf_put(&all, b->history, n - 1);
    sbuf_puts(&all, n > 2 ? "," : "");
    if (w.buf)
        sbuf_put(&all, w.buf, w.len);
    sbuf_puts(&all, "]");
    const char *const parts[] = { all.s, told.buf, sbuf_text(&b->items) };
    store_owner own = { .tenant = (int)j->lane };
    memcpy(own.salt, b->salt, sizeof own.salt);
    b->store = !jsonw_error(&w) && !jsonw_error(&told) && !all.error &&
               response_store_put(j->s->responses, &own, j->id, parts);
    jsonw_free(&told);
    jsonw_free(&w);
    sbuf_free(&all);
}

/* ---- streams ---- */

static void begin_event(job *j, const char *name, jsonw *w)
{
    jsonw_init(w);
    jsonw_object(w);
    jsonw_kstr(w, "type", name);
    jsonw_kint(w, "sequence_number", j->n_events++);
}

/* t: the timings that stand beside the response, or NULL. */
static void response_event(job *j, const char *name, const char *status, const kvant_timings *t)
{
    jsonw w;

    begin_event(j, name, &w);
    jsonw_key(&w, "response");
    put_response(j, status, &w);
    if (t)
        openai_timings(t, &w);
    jsonw_end(&w);
    event_frame(j, name, &w);
}

/* An event of the newest item; of: the kind of what it tells. */
enum { OF_ITEM, OF_PART, OF_TEXT };
static void begin_item_event(job *j, const char *name, int of, jsonw *w)
{
    char id[RESPONSE_ID];

    begin_event(j, name, w);
    jsonw_kint(w, "output_index", j->n_items - 1);
    if (of == OF_ITEM)
        return;
    item_id(j, j->n_items - 1, id);
    jsonw_kstr(w, "item_id", id);
    if (j->items[j->n_items - 1].part != TOOL_ARGS)
        jsonw_kint(w, "content_index", 0);
}

static void item_event(job *j, const char *name, int begins)
{
    jsonw w;

    begin_item_event(j, name, OF_ITEM, &w);
    jsonw_key(&w, "item");
    put_item(j, j->n_items - 1, begins, item_status(j, j->n_items - 1), &w);
    jsonw_end(&w);
    event_frame(j, name, &w);
}

static void part_event(job *j, const char *name, const sbuf *text)
{
    const response_item *it = &j->items[j->n_items - 1];
    jsonw w;

    if (it->part == TOOL_ARGS)
        return;
    begin_item_event(j, name, OF_PART, &w);
    jsonw_key(&w, "part");
    put_part(it, text, &w);
    jsonw_end(&w);
    event_frame(j, name, &w);
}

/* The input of a custom tool is known when its call is whole: one delta, and the end. */
static void custom_event(job *j)
{
    static const char *const names[] = { "response.custom_tool_call_input.delta",
                                         "response.custom_tool_call_input.done" };
    jsonw w;

    for (int done = 0; done < 2; done++) {
        begin_item_event(j, names[done], OF_TEXT, &w);
        put_custom_input(done ? "input" : "delta", &j->items[j->n_items - 1].text, &w);
        jsonw_end(&w);
        event_frame(j, names[done], &w);
    }
}

static void text_event(job *j, const sbuf *text, int done)
{
    static const char *const names[][2] = {
        [TOOL_TEXT] = { "response.output_text.delta", "response.output_text.done" },
        [TOOL_THINK] = { "response.reasoning_text.delta", "response.reasoning_text.done" },
        [TOOL_ARGS] = { "response.function_call_arguments.delta", "response.function_call_arguments.done" }
    };
    const response_item *it = &j->items[j->n_items - 1];
    jsonw w;

    if (is_custom(j, it)) {
        if (done)
            custom_event(j);
        return;
    }
    begin_item_event(j, names[it->part][done], OF_TEXT, &w);
    if (it->part == TOOL_ARGS && done)
        jsonw_kstr(&w, "name", j->choices[0].calls[it->which].name);
    put_text(!done ? "delta" : it->part == TOOL_ARGS ? "arguments" : "text", text, &w);
    if (it->part == TOOL_TEXT) {
        jsonw_key(&w, "logprobs");
        jsonw_array(&w);
        jsonw_end(&w);
    }
    if (!done && j->timings_each)
        openai_timings(&j->choices[0].timings, &w);
    jsonw_end(&w);
    event_frame(j, names[it->part][done], &w);
}

static void close_item(job *j)
{
    if (!j->item_open)
        return;
    response_item *it = &j->items[j->n_items - 1];
    const sbuf *text = &it->text;
    if (it->part == TOOL_ARGS && it->which >= j->choices[0].n_calls) { /* it was cut: never done, nor in the output */
        sbuf_free(&it->text);
        j->n_items--;
        j->item_open = 0;
        return;
    }
    text_event(j, text, 1);
    part_event(j, "response.content_part.done", text);
    item_event(j, "response.output_item.done", 0);
    j->item_open = 0;
}

static void open_item(job *j, choice *c)
{
    static const sbuf nothing = { 0 };

    close_item(j);
    if (!add_item(j, c->part, c->n_calls - 1))
        return;
    j->item_open = 1;
    item_event(j, "response.output_item.added", 1);
    part_event(j, "response.content_part.added", &nothing);
    c->call_sent = 1;
}

static void begin_stream(job *j, choice *c)
{
    if (c->role_sent)
        return;
    response_event(j, "response.created", "in_progress", NULL);
    response_event(j, "response.in_progress", "in_progress", NULL);
    c->role_sent = 1;
}

static void progress_event(job *j, const kvant_event *ev, int done, int64_t ns)
{
    jsonw w;

    begin_event(j, "response.in_progress", &w);
    jsonw_key(&w, "response");
    put_response(j, "in_progress", &w);
    openai_put_progress(ev, done, ns, &w);
    jsonw_end(&w);
    event_frame(j, "response.in_progress", &w);
}

static void responses_progress(job *j, choice *c, const kvant_event *ev)
{
    begin_stream(j, c);
    if (!c->progress_ns) {
        c->progress_ns = j->submitted_ns;
        progress_event(j, ev, ev->n_cached, 0);
    }
    progress_event(j, ev, ev->prompt_done, clock_ns() - c->progress_ns);
}

/* Returns 1 if a message without text stands for an answer of nothing else, as where a stop string ended a call. */
static int wants_message(const choice *c)
{
    return !c->cut_call || c->out.stopped;
}

static void responses_chunk(job *j, choice *c, int ends)
{
    const int head = c->part == TOOL_ARGS && !c->call_sent; /* of a call */

    begin_stream(j, c);
    if (head || (c->text.n && (!j->item_open || j->items[j->n_items - 1].part != c->part)) ||
        (ends && !j->n_items && wants_message(c)))
        open_item(j, c);
    if (c->text.n && j->item_open) {
        response_item *it = &j->items[j->n_items - 1];
        sbuf_put(&it->text, c->text.s, c->text.n);
        j->out.error |= it->text.error;
        text_event(j, &c->text, 0);
    }
    if (ends)
        close_item(j);
    sbuf_drop(&c->text, c->text.n);
    c->n_probs = 0;
}

static void responses_end_stream(job *j)
{
    const char *status = status_of(&j->choices[0]);

    keep(j);
    response_event(j, strcmp(status, "incomplete") == 0 ? "response.incomplete" : "response.completed", status,
                   &j->choices[0].timings);
}

static void responses_error_frame(job *j)
{
    response_event(j, "response.failed", "failed", NULL);
}

/* ---- whole answers ---- */

static void take_text(job *j, int part, int which, const sbuf *text)
{
    response_item *it = add_item(j, part, which);

    if (it && text->n)
        sbuf_put(&it->text, text->s, text->n);
    j->out.error |= it ? it->text.error : 1;
}

static void responses_whole(job *j, jsonw *w)
{
    const choice *c = &j->choices[0];

    if (c->thought.n)
        take_text(j, TOOL_THINK, 0, &c->thought);
    if (c->text.n || (!c->n_calls && !c->thought.n && wants_message(c)))
        take_text(j, TOOL_TEXT, 0, &c->text);
    for (int i = 0; i < c->n_calls; i++)
        take_text(j, TOOL_ARGS, i, &c->calls[i].args);
    keep(j);
    put_response(j, status_of(c), w);
    w->error |= j->out.error;
}

const answer_shape responses_shape = { responses_chunk, responses_end_stream, responses_error_frame, responses_whole,
                                       responses_progress };
