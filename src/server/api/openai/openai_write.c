/* openai_write.c: the JSON shapes of OpenAI's API.  Owns field names and their order; decides nothing. */
#include <string.h>
#include "base/clock.h"
#include "base/mem.h"
#include "kvant/kvant.h"
#include "server/server_impl.h"

static const char *finish_reason(const choice *c)
{
    if (c->finish == KVANT_FINISH_LENGTH)
        return "length";
    return c->n_calls && !c->out.stopped ? "tool_calls" : "stop";
}

static void put_head(job *j, jsonw *w, const char *object)
{
    jsonw_object(w);
    jsonw_kstr(w, "id", j->id);
    jsonw_kstr(w, "object", object);
    jsonw_kint(w, "created", j->created);
    jsonw_kstr(w, "model", j->m->name);
    jsonw_kstr(w, "system_fingerprint", "build-kvant-" KVANT_VERSION_TEXT); /* clients know llama.cpp by the b */
}

static void put_usage(const job *j, jsonw *w)
{
    const int n = j->gen.n_prompt_texts ? j->gen.n_prompt_texts : 1;
    int64_t in = 0, out = 0, cached = 0;

    for (int i = 0; i < j->n_choices; i++) {
        const choice *c = &j->choices[i];
        out += c->n_generated;
        if (c->index % (j->n_choices / n) == 0) { /* one count per prompt */
            in += c->n_prompt;
            cached += c->n_cached;
        }
    }
    jsonw_key(w, "usage");
    jsonw_object(w);
    jsonw_kint(w, "prompt_tokens", in);
    jsonw_kint(w, "completion_tokens", out);
    jsonw_kint(w, "total_tokens", in + out);
    jsonw_key(w, "prompt_tokens_details");
    jsonw_object(w);
    jsonw_kint(w, "cached_tokens", cached);
    jsonw_end(w);
    jsonw_end(w);
}

/* llama.cpp's timings. */
void openai_timings(const kvant_timings *t, jsonw *w)
{
    double prompt_ms = (double)t->prompt_ns * 1e-6, decode_ms = (double)t->decode_ns * 1e-6;
    int rows = t->n_prompt - t->n_cached, steps = t->n_generated - 1;

    jsonw_key(w, "timings");
    jsonw_object(w);
    jsonw_kint(w, "cache_n", t->n_cached);
    jsonw_kint(w, "prompt_n", rows);
    jsonw_knum(w, "prompt_ms", prompt_ms);
    jsonw_knum(w, "prompt_per_second", prompt_ms > 0 ? rows * 1e3 / prompt_ms : 0);
    jsonw_knum(w, "prompt_per_token_ms", rows > 0 ? prompt_ms / rows : 0);
    jsonw_kint(w, "predicted_n", t->n_generated);
    jsonw_knum(w, "predicted_ms", decode_ms);
    jsonw_knum(w, "predicted_per_token_ms", steps > 0 ? decode_ms / steps : 0);
    jsonw_knum(w, "predicted_per_second", decode_ms > 0 && steps > 0 ? steps * 1e3 / decode_ms : 0);
    if (t->n_drafted > 0) {
        jsonw_kint(w, "draft_n", t->n_drafted);
        jsonw_kint(w, "draft_n_accepted", t->n_draft_accepted);
    }
    jsonw_knum(w, "queue_ms", (double)(t->started_ns ? t->started_ns - t->submitted_ns : 0) * 1e-6);
    jsonw_end(w);
}

/* ---- streams ---- */

void openai_frame(job *j, jsonw *w)
{
    if (jsonw_error(w)) {
        j->out.error = 1;
    } else {
        sbuf_puts(&j->out, "data: ");
        sbuf_put(&j->out, w->buf, w->len);
        sbuf_puts(&j->out, "\n\n");
    }
    jsonw_free(w);
}

static void put_finish(jsonw *w, const char *finish)
{
    jsonw_key(w, "finish_reason");
    if (finish)
        jsonw_str(w, finish);
    else
        jsonw_null(w);
}

/* One call of a delta: its head once, then only arguments. */
static void put_call_delta(choice *c, jsonw *w)
{
    const call_out *newest = &c->calls[c->n_calls - 1];

    jsonw_key(w, "tool_calls");
    jsonw_array(w);
    jsonw_object(w);
    jsonw_kint(w, "index", c->n_calls - 1);
    if (!c->call_sent) {
        jsonw_kstr(w, "id", newest->id);
        jsonw_kstr(w, "type", "function");
    }
    jsonw_key(w, "function");
    jsonw_object(w);
    if (!c->call_sent)
        jsonw_kstr(w, "name", newest->name);
    jsonw_key(w, "arguments");
    jsonw_strn(w, sbuf_text(&c->text), c->text.n);
    jsonw_end(w);
    jsonw_end(w);
    jsonw_end(w);
    c->call_sent = 1;
}

static void put_delta(choice *c, const char *finish, jsonw *w)
{
    jsonw_key(w, "delta");
    jsonw_object(w);
    if (finish) {
        jsonw_end(w);
        return;
    }
    if (c->part == TOOL_ARGS) {
        put_call_delta(c, w);
    } else {
        jsonw_key(w, c->part == TOOL_THINK ? "reasoning_content" : "content");
        jsonw_strn(w, sbuf_text(&c->text), c->text.n);
    }
    jsonw_end(w);
}

/* The first event of a chat's choice says who speaks, and nothing else. */
static void role_chunk(job *j, const choice *c)
{
    jsonw w;

    jsonw_init(&w);
    put_head(j, &w, "chat.completion.chunk");
    jsonw_key(&w, "choices");
    jsonw_array(&w);
    jsonw_object(&w);
    jsonw_kint(&w, "index", c->index);
    jsonw_key(&w, "delta");
    jsonw_object(&w);
    jsonw_kstr(&w, "role", "assistant");
    jsonw_key(&w, "content");
    jsonw_null(&w);
    jsonw_end(&w);
    jsonw_key(&w, "logprobs");
    jsonw_null(&w);
    put_finish(&w, NULL);
    jsonw_end(&w);
    jsonw_end(&w);
    jsonw_end(&w);
    openai_frame(j, &w);
}

static void openai_chunk(job *j, choice *c, int ends)
{
    const char *text = sbuf_text(&c->text), *finish = ends ? finish_reason(c) : NULL;
    const int first = j->gen.openai.chat && !c->role_sent;
    jsonw w;

    c->role_sent = 1;
    if (first)
        role_chunk(j, c);
    if (first && !ends && !c->text.n && !c->probs.n && c->part != TOOL_ARGS)
        return;
    jsonw_init(&w);
    put_head(j, &w, j->gen.openai.chat ? "chat.completion.chunk" : "text_completion");
    jsonw_key(&w, "choices");
    jsonw_array(&w);
    jsonw_object(&w);
    jsonw_kint(&w, "index", c->index);
    if (j->gen.openai.chat) {
        put_delta(c, finish, &w);
    } else {
        jsonw_key(&w, "text");
        jsonw_strn(&w, text, c->text.n);
    }
    openai_probs(j, c, &w);
    put_finish(&w, finish);
    jsonw_end(&w);
    jsonw_end(&w);
    if (ends ? !j->gen.openai.include_usage : j->gen.timings_each) /* with usage they stand beside it */
        openai_timings(&c->timings, &w);
    jsonw_end(&w);
    openai_frame(j, &w);
    c->probs.n = c->probs.n_prompt = 0;
    sbuf_drop(&c->text, c->text.n);
}

void openai_put_progress(const kvant_event *ev, int done, int64_t ns, jsonw *w)
{
    const kvant_timings t = { .n_prompt = done, .n_cached = ev->n_cached, .prompt_ns = ns };

    jsonw_key(w, "prompt_progress");
    jsonw_object(w);
    jsonw_kint(w, "total", ev->n_prompt);
    jsonw_kint(w, "cache", ev->n_cached);
    jsonw_kint(w, "processed", done);
    jsonw_knum(w, "time_ms", (double)ns * 1e-6);
    jsonw_end(w);
    openai_timings(&t, w);
}

static void put_progress(job *j, const choice *c, const kvant_event *ev, int done, int64_t ns)
{
    jsonw w;

    jsonw_init(&w);
    if (j->gen.shape == &native_shape) {
        jsonw_object(&w);
        jsonw_kint(&w, "index", c->index);
        jsonw_kstr(&w, "content", "");
        jsonw_kbool(&w, "stop", 0);
    } else {
        put_head(j, &w, j->gen.openai.chat ? "chat.completion.chunk" : "text_completion");
        jsonw_key(&w, "choices");
        jsonw_raw(&w, "[]");
    }
    openai_put_progress(ev, done, ns, &w);
    jsonw_end(&w);
    openai_frame(j, &w);
}

/* The first one says what came from the cache. */
void openai_progress(job *j, choice *c, const kvant_event *ev)
{
    const int64_t now = clock_ns();

    if (!c->progress_ns) {
        c->progress_ns = j->gen.submitted_ns;
        put_progress(j, c, ev, ev->n_cached, 0);
    }
    put_progress(j, c, ev, ev->prompt_done, now - c->progress_ns);
}

static void openai_end_stream(job *j)
{
    jsonw w;

    if (j->gen.openai.include_usage) {
        jsonw_init(&w);
        put_head(j, &w, j->gen.openai.chat ? "chat.completion.chunk" : "text_completion");
        jsonw_key(&w, "choices");
        jsonw_array(&w);
        jsonw_end(&w);
        put_usage(j, &w);
        openai_timings(&j->choices[0].timings, &w);
        jsonw_end(&w);
        openai_frame(j, &w);
    }
    sbuf_puts(&j->out, "data: [DONE]\n\n");
}

void openai_error_frame(job *j)
{
    jsonw w;

    jsonw_init(&w);
    api_error_json(&j->error, ERROR_PLAIN, &w);
    openai_frame(j, &w);
}

/* ---- whole responses ---- */

static void put_calls(const choice *c, jsonw *w)
{
    jsonw_key(w, "tool_calls");
    jsonw_array(w);
    for (int i = 0; i < c->n_calls; i++) {
        jsonw_object(w);
        jsonw_kstr(w, "id", c->calls[i].id);
        jsonw_kstr(w, "type", "function");
        jsonw_key(w, "function");
        jsonw_object(w);
        jsonw_kstr(w, "name", c->calls[i].name);
        jsonw_key(w, "arguments");
        jsonw_strn(w, c->calls[i].args.s ? c->calls[i].args.s : "", c->calls[i].args.n);
        jsonw_end(w);
        jsonw_end(w);
    }
    jsonw_end(w);
}

static void put_message(const choice *c, jsonw *w)
{
    jsonw_key(w, "message");
    jsonw_object(w);
    jsonw_kstr(w, "role", "assistant");
    if (c->thought.n) {
        jsonw_key(w, "reasoning_content");
        jsonw_strn(w, c->thought.s, c->thought.n);
    }
    jsonw_key(w, "content");
    if (c->n_calls && !c->text.n)
        jsonw_null(w);
    else
        jsonw_strn(w, sbuf_text(&c->text), c->text.n);
    jsonw_key(w, "refusal");
    jsonw_null(w);
    if (c->n_calls)
        put_calls(c, w);
    jsonw_end(w);
}

static void put_choice(const job *j, const choice *c, jsonw *w)
{
    jsonw_object(w);
    jsonw_kint(w, "index", c->index);
    if (j->gen.openai.chat) {
        put_message(c, w);
    } else {
        jsonw_key(w, "text");
        jsonw_strn(w, sbuf_text(&c->text), c->text.n);
    }
    openai_probs(j, c, w);
    put_finish(w, finish_reason(c));
    jsonw_end(w);
}

static void openai_whole(job *j, jsonw *w)
{
    put_head(j, w, j->gen.openai.chat ? "chat.completion" : "text_completion");
    jsonw_key(w, "choices");
    jsonw_array(w);
    for (int i = 0; i < j->n_choices; i++)
        put_choice(j, &j->choices[i], w);
    jsonw_end(w);
    put_usage(j, w);
    openai_timings(&j->choices[0].timings, w);
    if (j->gen.openai.verbose) {
        jsonw_key(w, "__verbose");
        native_put(j, &j->choices[0], w);
    }
    jsonw_end(w);
}

const answer_shape openai_shape = { openai_chunk, openai_end_stream, openai_error_frame, openai_whole,
                                    openai_progress };
