/* responses_write_stream.c: an answer of /v1/responses as it comes: named events, each item opened, filled and
 * closed. */
#include <string.h>
#include "base/clock.h"
#include "server/api/responses/responses_items.h"

static response_item *newest(job *j)
{
    return &j->gen.responses.items[j->gen.responses.n_items - 1];
}

static void begin_event(job *j, const char *name, jsonw *w)
{
    jsonw_init(w);
    jsonw_object(w);
    jsonw_kstr(w, "type", name);
    jsonw_kint(w, "sequence_number", j->gen.responses.n_events++);
}

/* t: the timings that stand beside the response, or NULL. */
static void response_event(job *j, const char *name, const char *status, const kvant_timings *t)
{
    jsonw w;

    begin_event(j, name, &w);
    jsonw_key(&w, "response");
    response_put(j, status, &w);
    if (t)
        openai_timings(t, &w);
    jsonw_end(&w);
    event_frame(j, name, &w);
}

/* An event of the newest item; of: the kind of what it tells. */
enum { OF_ITEM, OF_PART, OF_TEXT };
static void begin_item_event(job *j, const char *name, int of, jsonw *w)
{
    responses_answer *a = &j->gen.responses;
    char id[RESPONSE_ID];

    begin_event(j, name, w);
    jsonw_kint(w, "output_index", a->n_items - 1);
    if (of == OF_ITEM)
        return;
    response_item_id(j, a->n_items - 1, id);
    jsonw_kstr(w, "item_id", id);
    if (newest(j)->part != TOOL_ARGS)
        jsonw_kint(w, "content_index", 0);
}

static void item_event(job *j, const char *name, int begins)
{
    responses_answer *a = &j->gen.responses;
    jsonw w;

    begin_item_event(j, name, OF_ITEM, &w);
    jsonw_key(&w, "item");
    response_put_item(j, a->n_items - 1, begins, response_item_status(j, a->n_items - 1), &w);
    jsonw_end(&w);
    event_frame(j, name, &w);
}

static void part_event(job *j, const char *name, const sbuf *text)
{
    const response_item *it = newest(j);
    jsonw w;

    if (it->part == TOOL_ARGS)
        return;
    begin_item_event(j, name, OF_PART, &w);
    jsonw_key(&w, "part");
    response_put_part(it, text, &w);
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
        response_put_input(done ? "input" : "delta", &newest(j)->text, &w);
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
    const response_item *it = newest(j);
    jsonw w;

    if (response_is_custom(j, it)) {
        if (done)
            custom_event(j);
        return;
    }
    begin_item_event(j, names[it->part][done], OF_TEXT, &w);
    if (it->part == TOOL_ARGS && done)
        jsonw_kstr(&w, "name", j->choices[0].calls[it->which].name);
    response_put_text(!done ? "delta" : it->part == TOOL_ARGS ? "arguments" : "text", text, &w);
    if (it->part == TOOL_TEXT) {
        jsonw_key(&w, "logprobs");
        jsonw_array(&w);
        jsonw_end(&w);
    }
    if (!done && j->gen.timings_each)
        openai_timings(&j->choices[0].timings, &w);
    jsonw_end(&w);
    event_frame(j, names[it->part][done], &w);
}

static void close_item(job *j)
{
    responses_answer *a = &j->gen.responses;
    if (!a->item_open)
        return;
    response_item *it = newest(j);
    const sbuf *text = &it->text;
    if (it->part == TOOL_ARGS && it->which >= j->choices[0].n_calls) { /* it was cut: never done, nor in the output */
        sbuf_free(&it->text);
        a->n_items--;
        a->item_open = 0;
        return;
    }
    text_event(j, text, 1);
    part_event(j, "response.content_part.done", text);
    item_event(j, "response.output_item.done", 0);
    a->item_open = 0;
}

static void open_item(job *j, choice *c)
{
    static const sbuf nothing = { 0 };

    close_item(j);
    if (!response_add_item(j, c->part, c->n_calls - 1))
        return;
    j->gen.responses.item_open = 1;
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
    response_put(j, "in_progress", &w);
    openai_put_progress(ev, done, ns, &w);
    jsonw_end(&w);
    event_frame(j, "response.in_progress", &w);
}

static void responses_progress(job *j, choice *c, const kvant_event *ev)
{
    begin_stream(j, c);
    if (!c->progress_ns) {
        c->progress_ns = j->gen.submitted_ns;
        progress_event(j, ev, ev->n_cached, 0);
    }
    progress_event(j, ev, ev->prompt_done, clock_ns() - c->progress_ns);
}

static void responses_chunk(job *j, choice *c, int ends)
{
    responses_answer *a = &j->gen.responses;
    const int head = c->part == TOOL_ARGS && !c->call_sent; /* of a call */

    begin_stream(j, c);
    if (head || (c->text.n && (!a->item_open || newest(j)->part != c->part)) ||
        (ends && !a->n_items && response_wants_message(c)))
        open_item(j, c);
    if (c->text.n && a->item_open) {
        response_item *it = newest(j);
        sbuf_put(&it->text, c->text.s, c->text.n);
        j->out.error |= it->text.error;
        text_event(j, &c->text, 0);
    }
    if (ends)
        close_item(j);
    sbuf_drop(&c->text, c->text.n);
    c->probs.n = 0;
}

static void responses_end_stream(job *j)
{
    const char *status = response_status(&j->choices[0]);

    response_keep(j);
    response_event(j, strcmp(status, "incomplete") == 0 ? "response.incomplete" : "response.completed", status,
                   &j->choices[0].timings);
}

static void responses_error_frame(job *j)
{
    response_event(j, "response.failed", "failed", NULL);
}

const answer_shape responses_shape = { responses_chunk, responses_end_stream, responses_error_frame, responses_whole,
                                       responses_progress };
