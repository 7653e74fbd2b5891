/* ollama_write.c: the JSON shapes of Ollama's /api/chat and /api/generate; a stream is a line of JSON for each part.
 * Owns field names and their order; decides nothing.  A call comes whole: its arguments wait in it until it ended. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "base/clock.h"
#include "server/server_impl.h"

void ollama_put_time(const char *key, int64_t s, int64_t ns, jsonw *w)
{
    const time_t when = (time_t)s;
    char day[32], text[48];
    struct tm tm;

    gmtime_r(&when, &tm);
    strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text, sizeof text, "%s.%09lldZ", day, (long long)ns);
    jsonw_kstr(w, key, text);
}

static void put_head(const job *j, jsonw *w)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    jsonw_object(w);
    jsonw_kstr(w, "model", j->m->name);
    ollama_put_time("created_at", now.tv_sec, now.tv_nsec, w);
}

static void put_call(const call_out *out, int index, jsonw *w)
{
    jsonw_object(w);
    jsonw_kstr(w, "id", out->id);
    jsonw_key(w, "function");
    jsonw_object(w);
    jsonw_kint(w, "index", index);
    jsonw_kstr(w, "name", out->name);
    jsonw_key(w, "arguments");
    jsonw_raw(w, out->args.n ? out->args.s : "{}");
    jsonw_end(w);
    jsonw_end(w);
}

static void put_text(const char *key, const sbuf *text, jsonw *w)
{
    jsonw_key(w, key);
    jsonw_strn(w, sbuf_text(text), text->n);
}

/* The words of a part: text and thought (none where it is empty), and calls from `first` on. */
static void put_words(const job *j, const sbuf *text, const sbuf *thought, int first, int end, jsonw *w)
{
    const choice *c = &j->choices[0];
    const int generates = j->gen.ollama.generates;

    if (!generates) {
        jsonw_key(w, "message");
        jsonw_object(w);
        jsonw_kstr(w, "role", "assistant");
    }
    put_text(generates ? "response" : "content", text, w);
    if (thought->n)
        put_text("thinking", thought, w);
    if (first < end) {
        jsonw_key(w, "tool_calls");
        jsonw_array(w);
        for (int i = first; i < end; i++)
            put_call(&c->calls[i], i, w);
        jsonw_end(w);
    }
    if (!generates)
        jsonw_end(w);
}

static void put_counts(const choice *c, jsonw *w)
{
    const kvant_timings *t = &c->timings;

    jsonw_kbool(w, "done", 1);
    jsonw_kstr(w, "done_reason", c->finish == KVANT_FINISH_LENGTH ? "length" : "stop");
    jsonw_kint(w, "total_duration", clock_ns() - c->job->gen.submitted_ns);
    jsonw_kint(w, "load_duration", t->started_ns ? t->started_ns - t->submitted_ns : 0);
    jsonw_kint(w, "prompt_eval_count", c->n_prompt);
    jsonw_kint(w, "prompt_eval_duration", t->prompt_ns);
    jsonw_kint(w, "eval_count", c->n_generated);
    jsonw_kint(w, "eval_duration", t->decode_ns);
}

/* ---- streams ---- */

static void line(job *j, jsonw *w)
{
    if (jsonw_error(w)) {
        j->out.error = 1;
    } else {
        sbuf_put(&j->out, w->buf, w->len);
        sbuf_puts(&j->out, "\n");
    }
    jsonw_free(w);
}

static void text_line(job *j, const choice *c)
{
    static const sbuf nothing = { 0 };
    const int thinks = c->part == TOOL_THINK;
    jsonw w;

    jsonw_init(&w);
    put_head(j, &w);
    put_words(j, thinks ? &nothing : &c->text, thinks ? &c->text : &nothing, 0, 0, &w);
    jsonw_kbool(&w, "done", 0);
    jsonw_end(&w);
    line(j, &w);
}

/* Calls that have ended and were not told. */
static void tell_calls(job *j, const choice *c)
{
    static const sbuf nothing = { 0 };
    int *told = &j->gen.ollama.n_told, end = *told;
    jsonw w;

    while (end < c->n_calls && c->calls[end].complete)
        end++;
    if (end == *told)
        return;
    jsonw_init(&w);
    put_head(j, &w);
    put_words(j, &nothing, &nothing, *told, end, &w);
    jsonw_kbool(&w, "done", 0);
    jsonw_end(&w);
    line(j, &w);
    *told = end;
}

static void last_line(job *j, const choice *c)
{
    static const sbuf nothing = { 0 };
    jsonw w;

    jsonw_init(&w);
    put_head(j, &w);
    put_words(j, &nothing, &nothing, 0, 0, &w);
    put_counts(c, &w);
    jsonw_end(&w);
    line(j, &w);
}

static void ollama_chunk(job *j, choice *c, int ends)
{
    if (c->part == TOOL_ARGS && c->n_calls) {
        sbuf *args = &c->calls[c->n_calls - 1].args;
        sbuf_put(args, sbuf_text(&c->text), c->text.n);
        j->out.error |= args->error;
    } else if (c->text.n) {
        text_line(j, c);
    }
    sbuf_drop(&c->text, c->text.n);
    c->probs.n = 0;
    c->call_sent = 1;
    tell_calls(j, c);
    if (ends)
        last_line(j, c);
}

static void ollama_error_frame(job *j)
{
    jsonw w;

    jsonw_init(&w);
    api_error_json(&j->error, ERROR_OLLAMA, &w);
    line(j, &w);
}

/* ---- whole answers ---- */

static void ollama_whole(job *j, jsonw *w)
{
    const choice *c = &j->choices[0];

    put_head(j, w);
    put_words(j, &c->text, &c->thought, 0, c->n_calls, w);
    put_counts(c, w);
    jsonw_end(w);
}

void ollama_put_idle(const served *m, const api_request *r, jsonw *w)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    jsonw_object(w);
    jsonw_kstr(w, "model", m->name);
    ollama_put_time("created_at", now.tv_sec, now.tv_nsec, w);
    if (r->shape == BODY_OLLAMA_GENERATE) {
        jsonw_kstr(w, "response", "");
    } else {
        jsonw_key(w, "message");
        jsonw_raw(w, "{\"role\":\"assistant\",\"content\":\"\"}");
    }
    jsonw_kbool(w, "done", 1);
    jsonw_kstr(w, "done_reason", r->idle == IDLE_UNLOAD ? "unload" : "load");
    jsonw_end(w);
}

/* Nothing asks it for progress: the field is not one of this API. */
const answer_shape ollama_shape = { ollama_chunk, NULL, ollama_error_frame, ollama_whole, NULL };
