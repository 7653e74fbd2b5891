/* responses_write.c: the JSON shapes of OpenAI's /v1/responses: items instead of choices, and streams as named
 * events.  Owns field names, the order of events, and the items of an answer; decides nothing. */
#include <stdio.h>
#include <string.h>
#include "base/clock.h"
#include "base/mem.h"
#include "server/request/json_scan.h"
#include "server/api/responses/responses_store.h"
#include "server/api/responses/responses_items.h"

const char *response_status(const choice *c)
{
    return c->finish == KVANT_FINISH_LENGTH || c->cut_call ? "incomplete" : "completed";
}

/* ---- items ---- */

void responses_answer_free(responses_answer *a)
{
    responses_body_free(a->body);
    for (int i = 0; i < a->n_items; i++)
        sbuf_free(&a->items[i].text);
    kvant_free(a->items);
}

/* Adds an item; which: a call's number, that of the newest but for whole answers.  NULL: no memory. */
response_item *response_add_item(job *j, int part, int which)
{
    responses_answer *a = &j->gen.responses;
    const int cap = a->cap_items ? a->cap_items * 2 : 4;

    if (a->n_items == a->cap_items) {
        response_item *p = kvant_realloc(a->items, (size_t)a->cap_items * sizeof *p, (size_t)cap * sizeof *p);
        if (!p) {
            j->out.error = 1;
            return NULL;
        }
        a->items = p;
        a->cap_items = cap;
    }
    a->items[a->n_items] = (response_item){ .part = part, .which = which };
    return &a->items[a->n_items++];
}

/* How the client knows the tool of a call: {"name", "namespace", "custom"}; NULL: as the model does. */
static const json_t *told_name(const job *j, const response_item *it)
{
    const json_t *names = j->gen.responses.body->names;

    return it->part == TOOL_ARGS ? json_object_get(names, j->choices[0].calls[it->which].name) : NULL;
}

int response_is_custom(const job *j, const response_item *it)
{
    return json_is_true(json_object_get(told_name(j, it), "custom"));
}

void response_item_id(const job *j, int i, char id[RESPONSE_ID])
{
    const responses_answer *a = &j->gen.responses;
    static const char *const kinds[] = { [TOOL_TEXT] = "msg", [TOOL_THINK] = "rs", [TOOL_ARGS] = "fc" };
    const char *kind = response_is_custom(j, &a->items[i]) ? "ctc" : kinds[a->items[i].part];

    snprintf(id, RESPONSE_ID, "%s_%s%02x", kind, strchr(j->id, '_') + 1, (unsigned)i);
}

void response_put_text(const char *key, const sbuf *text, jsonw *w)
{
    jsonw_key(w, key);
    jsonw_strn(w, text->s ? text->s : "", text->n);
}

/* The one part of a message or a thought. */
void response_put_part(const response_item *it, const sbuf *text, jsonw *w)
{
    jsonw_object(w);
    jsonw_kstr(w, "type", it->part == TOOL_THINK ? "reasoning_text" : "output_text");
    response_put_text("text", text, w);
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
void response_put_input(const char *key, const sbuf *args, jsonw *w)
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
    if (response_is_custom(j, it))
        response_put_input("input", begins ? &nothing : &it->text, w);
    else
        response_put_text("arguments", begins ? &nothing : &it->text, w);
}

/* begins: without what it holds. */
void response_put_item(const job *j, int i, int begins, const char *status, jsonw *w)
{
    static const char *const types[] = { [TOOL_TEXT] = "message",
                                         [TOOL_THINK] = "reasoning",
                                         [TOOL_ARGS] = "function_call" };
    const response_item *it = &j->gen.responses.items[i];
    char id[RESPONSE_ID];

    response_item_id(j, i, id);
    jsonw_object(w);
    jsonw_kstr(w, "type", response_is_custom(j, it) ? "custom_tool_call" : types[it->part]);
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
        response_put_part(it, &it->text, w);
    jsonw_end(w);
    jsonw_end(w);
}

/* The last one may have been cut, but no call is told that was; a thought is whole once its end has come, and where a
 * stop string ended the answer the text before it is. */
const char *response_item_status(const job *j, int i)
{
    const responses_answer *a = &j->gen.responses;
    const choice *c = &j->choices[0];

    const int part = a->items[i].part;
    if (i < a->n_items - 1 || part == TOOL_ARGS || (part == TOOL_THINK && !c->thought_cut) || c->cut_call)
        return "completed";
    return response_status(c);
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
    const responses_answer *a = &j->gen.responses;
    jsonw_kstr(w, "id", j->id);
    jsonw_kstr(w, "object", "response");
    jsonw_kint(w, "created_at", j->created);
    jsonw_kstr(w, "status", status);
    jsonw_kstr(w, "model", j->m->name);
    jsonw_kbool(w, "background", 0);
    jsonw_kbool(w, "store", a->body->store);
    jsonw_kstr(w, "service_tier", "default");
    put_error(j, w);
    put_incomplete(&j->choices[0], status, w);
    for (int i = 0; i < RESPONSES_TOLD; i++) {
        jsonw_key(w, responses_told[i]);
        jsonw_raw(w, a->body->told[i]);
    }
}

void response_put(const job *j, const char *status, jsonw *w)
{
    const int ended = strcmp(status, "in_progress") != 0;

    jsonw_object(w);
    put_head(j, status, w);
    jsonw_key(w, "output");
    jsonw_array(w);
    for (int i = 0; ended && i < j->gen.responses.n_items; i++)
        response_put_item(j, i, 0, response_item_status(j, i), w);
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
    const responses_answer *a = &j->gen.responses;
    int open = 0;

    for (int i = 0; i < a->n_items; i++) {
        const response_item *it = &a->items[i];
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
        response_put_text("arguments", &it->text, w);
        jsonw_end(w);
        jsonw_end(w);
    }
    if (open)
        jsonw_end(w);
}

/* The answer as a message of a chat. */
static void put_message(const job *j, jsonw *w)
{
    const responses_answer *a = &j->gen.responses;
    static const char *const keys[] = { [TOOL_TEXT] = "content", [TOOL_THINK] = "reasoning_content" };

    jsonw_object(w);
    jsonw_kstr(w, "role", "assistant");
    for (int part = TOOL_TEXT; part <= TOOL_THINK; part++) {
        sbuf all = { 0 };
        for (int i = 0; i < a->n_items; i++)
            if (a->items[i].part == part && a->items[i].text.n)
                sbuf_put(&all, a->items[i].text.s, a->items[i].text.n);
        if (all.n || part == TOOL_TEXT)
            response_put_text(keys[part], &all, w);
        w->error |= all.error;
        sbuf_free(&all);
    }
    put_calls(j, w);
    jsonw_end(w);
}

/* History and answer are kept; a conversation that is too large is not, and the response says so. */
void response_keep(job *j)
{
    responses_body *b = j->gen.responses.body;
    const size_t n = strlen(b->history);
    sbuf all = { 0 };
    jsonw w, told;

    if (!b->store)
        return;
    jsonw_init(&told);
    response_put(j, response_status(&j->choices[0]), &told);
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
               response_store_put(j->s->kept.responses, &own, j->id, parts);
    jsonw_free(&told);
    jsonw_free(&w);
    sbuf_free(&all);
}

/* Returns 1 if a message without text stands for an answer of nothing else, as where a stop string ended a call. */
int response_wants_message(const choice *c)
{
    return !c->cut_call || c->out.stopped;
}

/* ---- whole answers ---- */

static void take_text(job *j, int part, int which, const sbuf *text)
{
    response_item *it = response_add_item(j, part, which);

    if (it && text->n)
        sbuf_put(&it->text, text->s, text->n);
    j->out.error |= it ? it->text.error : 1;
}

void responses_whole(job *j, jsonw *w)
{
    const choice *c = &j->choices[0];

    if (c->thought.n)
        take_text(j, TOOL_THINK, 0, &c->thought);
    if (c->text.n || (!c->n_calls && !c->thought.n && response_wants_message(c)))
        take_text(j, TOOL_TEXT, 0, &c->text);
    for (int i = 0; i < c->n_calls; i++)
        take_text(j, TOOL_ARGS, i, &c->calls[i].args);
    response_keep(j);
    response_put(j, response_status(c), w);
    w->error |= j->out.error;
}
