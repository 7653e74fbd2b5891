/* live.c: what the server is doing, as JSON: for the page, /props, /slots and the step trace; of one model each. */
#include <stdio.h>
#include <string.h>
#include "base/clock.h"
#include "base/mem.h"
#include "kvant/kvant.h"
#include "server/server_impl.h"

enum { MAX_TRACE = 4096 };

static const char *slot_state(int state)
{
    static const char *const names[] = { "free", "prefill", "decode", "parked" };

    return state >= 0 && state < 4 ? names[state] : "unknown";
}

/* All slots; *n of them.  NULL: no memory. */
static kvant_slot_info *read_slots(served *m, int *n)
{
    int cap = kvant_engine_get_params(m->engine)->max_seqs;
    kvant_slot_info *list = kvant_calloc((size_t)cap, sizeof *list);

    *n = list ? kvant_session_slots(m->session, list, cap) : 0;
    return list;
}

static double tokens_per_second(const kvant_slot_info *k, int64_t now)
{
    if (k->state != KVANT_SLOT_DECODE || !k->first_token_ns || now <= k->first_token_ns)
        return 0;
    return (k->n_generated - 1) * 1e9 / (double)(now - k->first_token_ns);
}

void live_slots(served *m, int all, jsonw *w)
{
    int n;
    int64_t now = clock_ns();
    kvant_slot_info *list = read_slots(m, &n);

    jsonw_array(w);
    for (int i = 0; i < n; i++) {
        const kvant_slot_info *k = &list[i];
        if (!all && k->state == KVANT_SLOT_FREE)
            continue;
        jsonw_object(w);
        jsonw_kint(w, "id", k->slot);
        jsonw_kstr(w, "state", slot_state(k->state));
        jsonw_kbool(w, "is_processing", k->state == KVANT_SLOT_PREFILL || k->state == KVANT_SLOT_DECODE);
        jsonw_kint(w, "id_task", (int64_t)k->request);
        jsonw_kint(w, "n_ctx", m->env.n_ctx);
        jsonw_kint(w, "n_prompt_tokens", k->n_prompt);
        jsonw_kint(w, "n_cached", k->n_cached);
        jsonw_kint(w, "n_tokens", k->n_tokens);
        jsonw_kint(w, "n_decoded", k->n_generated);
        jsonw_kint(w, "n_predict", k->max_tokens);
        jsonw_kint(w, "pages", k->pages);
        jsonw_knum(w, "tokens_per_second", tokens_per_second(k, now));
        jsonw_end(w);
    }
    jsonw_end(w);
    w->error |= !list;
    kvant_free(list);
}

static void put_budget(const kvant_session_stats *st, jsonw *w)
{
    jsonw_key(w, "pages");
    jsonw_object(w);
    jsonw_kint(w, "total", st->pages);
    jsonw_kint(w, "free", st->pages_free);
    jsonw_kint(w, "cached", st->pages_cached);
    jsonw_kint(w, "used", st->pages - st->pages_free - st->pages_cached);
    jsonw_end(w);
    jsonw_key(w, "states");
    jsonw_object(w);
    jsonw_kint(w, "total", st->states);
    jsonw_kint(w, "free", st->states_free);
    jsonw_end(w);
    jsonw_key(w, "bytes");
    jsonw_object(w);
    jsonw_kint(w, "total", st->cache_bytes);
    jsonw_kint(w, "used", st->cache_bytes_used);
    jsonw_kint(w, "cached", st->cache_bytes_cached);
    jsonw_end(w);
}

static void put_counters(const kvant_session_stats *st, jsonw *w)
{
    jsonw_kint(w, "running", st->running);
    jsonw_kint(w, "queued", st->queued);
    jsonw_kint(w, "prefilling", st->prefilling);
    jsonw_kint(w, "decoding", st->decoding);
    jsonw_kint(w, "max_seqs", st->max_seqs);
    jsonw_kint(w, "max_queue", st->max_queue);
    jsonw_kint(w, "prompt_tokens", (int64_t)st->prompt_tokens);
    jsonw_kint(w, "computed_tokens", (int64_t)st->computed_tokens);
    jsonw_kint(w, "cached_tokens", (int64_t)st->cached_tokens);
    jsonw_kint(w, "generated_tokens", (int64_t)st->generated_tokens);
    jsonw_kint(w, "prefix_queries", (int64_t)st->prefix_queries);
    jsonw_kint(w, "prefix_hits", (int64_t)st->prefix_hits);
    jsonw_kint(w, "prefix_known", (int64_t)st->prefix_known);
    jsonw_kint(w, "preemptions", (int64_t)(st->preempted_recompute + st->preempted_saved));
    jsonw_kint(w, "steps", (int64_t)st->steps);
    jsonw_kint(w, "replayed_passes", (int64_t)st->replayed_passes);
    jsonw_kint(w, "rejected", (int64_t)st->rejected);
    jsonw_kbool(w, "draining", st->draining);
}

void live_json(served *m, jsonw *w)
{
    const server *s = m->s;
    kvant_session_stats st;

    kvant_session_get_stats(m->session, &st);
    jsonw_object(w);
    jsonw_kstr(w, "model", m->name);
    jsonw_knum(w, "time", (double)(clock_ns() - s->started_ns) * 1e-9);
    jsonw_kint(w, "connections", s->n_clients);
    jsonw_kint(w, "streams", s->n_streams);
    put_counters(&st, w);
    put_budget(&st, w);
    jsonw_key(w, "slots");
    live_slots(m, 0, w);
    jsonw_end(w);
}

static void put_token(const kvant_model *m, const char *key, int32_t id, jsonw *w)
{
    char text[256];
    const int n = id < 0 ? -1 : kvant_token_bytes(m, id, 1, text, sizeof text);

    jsonw_key(w, key);
    if (n >= 0 && n <= (int)sizeof text)
        jsonw_strn(w, text, (size_t)n);
    else
        jsonw_null(w);
}

void live_tokenizer(const served *m, jsonw *w)
{
    jsonw_kstr(w, "chat_template", kvant_chat_source(m->model));
    put_token(m->model, "bos_token", kvant_token_bos(m->model), w);
    put_token(m->model, "eos_token", kvant_token_eos(m->model), w);
}

/* The last word of "qwen35 18.9 M Q8_0". */
const char *live_ftype(const kvant_model *m)
{
    const char *desc = kvant_model_get_info(m)->desc, *blank = strrchr(desc, ' ');

    return blank ? blank + 1 : desc;
}

/* llama-server's names; texts are all that models see here. */
static void put_abilities(const served *m, int asleep, jsonw *w)
{
    const int tools = m->traits->renders_tools, calls = tools && m->traits->d != NULL;

    jsonw_key(w, "modalities");
    jsonw_object(w);
    jsonw_kbool(w, "vision", 0);
    jsonw_kbool(w, "audio", 0);
    jsonw_end(w);
    jsonw_key(w, "chat_template_caps");
    jsonw_object(w);
    jsonw_kbool(w, "supports_tools", tools);
    jsonw_kbool(w, "supports_tool_calls", calls);
    jsonw_kbool(w, "supports_parallel_tool_calls", calls);
    jsonw_kbool(w, "supports_string_content", 1);
    jsonw_end(w);
    jsonw_kbool(w, "endpoint_slots", m->s->p.on.slots);
    jsonw_kbool(w, "endpoint_metrics", m->s->p.on.metrics);
    jsonw_kbool(w, "endpoint_props", 0);
    jsonw_kbool(w, "webui", m->s->p.on.page);
    jsonw_kbool(w, "is_sleeping", asleep);
}

void live_props(served *m, int asleep, jsonw *w)
{
    const server *s = m->s;
    const kvant_engine_params *p = kvant_engine_get_params(m->engine);
    const kvant_model_info *i = kvant_model_get_info(m->model);
    int from_file;
    char device[256];
    kvant_plan plan = { 0 };

    kvant_engine_describe(m->engine, device, sizeof device);
    kvant_plan_make(m->model, p, &plan, NULL);
    jsonw_object(w);
    jsonw_kstr(w, "model_alias", m->name);
    jsonw_kstr(w, "model_path", strrchr(m->path, '/') ? strrchr(m->path, '/') + 1 : m->path);
    jsonw_kstr(w, "model_desc", i->desc);
    jsonw_kstr(w, "model_ftype", live_ftype(m->model));
    put_abilities(m, asleep, w);
    jsonw_kstr(w, "build_info", "build-kvant-" KVANT_VERSION_TEXT);
    jsonw_kstr(w, "device", device);
    jsonw_kstr(w, "type_k", p->type_k);
    jsonw_kstr(w, "type_v", p->type_v);
    jsonw_kstr(w, "type_layers", p->type_layers ? p->type_layers : "");
    jsonw_kint(w, "kv_tail", p->kv_tail);
    jsonw_kint(w, "kv_sink", p->kv_sink);
    jsonw_kstr(w, "state_type", p->state_type);
    jsonw_kint(w, "kv_bytes_per_token", plan.kv_bytes_per_token);
    jsonw_kint(w, "pool_tokens", p->pool_tokens);
    jsonw_kint(w, "total_slots", p->max_seqs);
    jsonw_kint(w, "n_ctx", p->n_ctx);
    jsonw_kint(w, "max_body_bytes", s->p.max_body);
    jsonw_kstr(w, "chat_template_family", kvant_chat_family(m->model, &from_file));
    live_tokenizer(m, w);
    if (m->chat_problem[0])
        jsonw_kstr(w, "chat_template_problem", m->chat_problem);
    jsonw_kstr(w, "tool_dialect", m->traits->d->name);
    jsonw_kstr(w, "thoughts", m->traits->t ? m->traits->t->name : "");
    jsonw_key(w, "default_generation_settings");
    jsonw_object(w);
    jsonw_kint(w, "n_ctx", p->n_ctx);
    jsonw_kint(w, "n_predict", s->p.lengths.max_tokens);
    jsonw_knum(w, "temperature", (double)s->p.sampler.temp);
    jsonw_kint(w, "top_k", s->p.sampler.top_k);
    jsonw_knum(w, "top_p", (double)s->p.sampler.top_p);
    jsonw_knum(w, "min_p", (double)s->p.sampler.min_p);
    jsonw_kint(w, "seed", s->p.seed);
    jsonw_kbool(w, "ignore_eos", s->p.ignore_eos);
    jsonw_key(w, "params"); /* where llama-server has it */
    jsonw_object(w);
    jsonw_kint(w, "n_predict", s->p.lengths.max_tokens);
    jsonw_knum(w, "temperature", (double)s->p.sampler.temp);
    jsonw_kint(w, "seed", s->p.seed);
    jsonw_end(w);
    jsonw_end(w);
    jsonw_end(w);
}

/* The adapters, with the scales of requests that bring none; of a path its last part, as a client needs no more. */
void live_lora(served *m, jsonw *w)
{
    float scales[KVANT_LORA_FILES] = { 0 };
    kvant_lora_info info;

    kvant_session_get_lora(m->session, scales, KVANT_LORA_FILES);
    jsonw_array(w);
    for (int i = 0; kvant_model_lora(m->model, i, &info) == KVANT_OK; i++) {
        const char *slash = strrchr(info.path, '/');
        jsonw_object(w);
        jsonw_kint(w, "id", i);
        jsonw_kstr(w, "path", slash ? slash + 1 : info.path);
        jsonw_knum(w, "scale", (double)scales[i]);
        jsonw_kint(w, "rank", info.rank);
        jsonw_knum(w, "alpha", (double)info.alpha);
        jsonw_end(w);
    }
    jsonw_end(w);
}

/* Chrome trace events: a span per step, and its counts as counters. */
int live_trace(served *m, sbuf *out)
{
    kvant_step_record *list = kvant_calloc(MAX_TRACE, sizeof *list);
    int n = list ? kvant_session_trace(m->session, list, MAX_TRACE) : 0;

    sbuf_puts(out, "{\"traceEvents\":[");
    for (int i = 0; i < n; i++) {
        const kvant_step_record *r = &list[i];
        double t = (double)r->t0_ns * 1e-3, d = (double)(r->t1_ns - r->t0_ns) * 1e-3;
        sbuf_printf(
            out,
            "%s{\"name\":\"step %llu\",\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"decode\":%d,"
            "\"prompt\":%d,\"waiting\":%d,\"running\":%d,\"deferred\":%d,\"preempted\":%d}}",
            i ? ",\n" : "\n", (unsigned long long)r->step, t, d, r->decode_rows, r->prompt_tokens, r->waiting,
            r->running, r->deferred, r->preempted);
        sbuf_printf(
            out, ",\n{\"name\":\"tokens\",\"ph\":\"C\",\"pid\":1,\"ts\":%.3f,\"args\":{\"decode\":%d,\"prompt\":%d}}",
            t, r->decode_rows, r->prompt_tokens);
        sbuf_printf(
            out,
            ",\n{\"name\":\"requests\",\"ph\":\"C\",\"pid\":1,\"ts\":%.3f,\"args\":{\"running\":%d,\"waiting\":%d}}", t,
            r->running, r->waiting);
        sbuf_printf(out, ",\n{\"name\":\"pages\",\"ph\":\"C\",\"pid\":1,\"ts\":%.3f,\"args\":{\"used\":%d}}", t,
                    r->pages_used);
    }
    sbuf_puts(out, "\n]}\n");
    int ok = list && !out->error;
    kvant_free(list);
    return ok ? KVANT_OK : KVANT_ENOMEM;
}

/* The numbers of m, or of the model that was used last. */
static void tell(job *j, served *m)
{
    jsonw w;

    jsonw_init(&w);
    live_json(m, &w);
    pthread_mutex_lock(&j->lock);
    if (!jsonw_error(&w) && j->out.n < MAX_STREAM_BYTES) {
        sbuf_puts(&j->out, "data: ");
        sbuf_put(&j->out, w.buf, w.len);
        sbuf_puts(&j->out, "\n\n");
    }
    pthread_mutex_unlock(&j->lock);
    jsonw_free(&w);
}

void live_tick(server *s, int64_t now)
{
    for (job *j = s->jobs; j; j = j->link.next) {
        if (j->kind != JOB_LIVE || j->live.events || now < j->live.next_ns)
            continue;
        j->live.next_ns = now + j->live.interval_ns - 100000000; /* the timer's ticks are not exact */
        served *m = j->live.of && served_hold(j->live.of) ? j->live.of : j->live.of ? NULL : models_last(s);
        if (m)
            tell(j, m);
        served_release(m);
        pthread_mutex_lock(&j->lock);
        j->done |= s->draining;
        pthread_mutex_unlock(&j->lock);
    }
}
