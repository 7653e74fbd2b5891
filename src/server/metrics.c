/* metrics.c: see metrics.h.  The exposition text is written here, by hand: version 0.0.4 of the Prometheus text
 * format. */
#include "server/metrics.h"

#include <stdio.h>

/* Upper edges, in seconds or tokens.  vLLM's ranges, thinned out to one number of buckets. */
static const double edges_seconds[METRIC_EDGES] = { 0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25,
                                                    0.5,   0.75,  1,    2.5,  5,    10,   20,   40,  80 };
static const double edges_token[METRIC_EDGES] = { 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.015, 0.025, 0.05, 0.075,
                                                  0.1,    0.15,  0.2,    0.3,   0.4,  0.5,   0.75,  1,    2.5 };
static const double edges_tokens[METRIC_EDGES] = { 1,    2,    5,    10,    20,    50,    100,    200,    500,
                                                   1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000 };
static const double edges_step[KVANT_STEP_EDGES] = { 1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384 };

static const struct {
    const char *name, *help;
    const double *edges;
} hists[METRIC_COUNT] = {
#define METRIC_ROW(id, name, help, edges) { name, help, edges },
    METRIC_HISTOGRAMS(METRIC_ROW)
#undef METRIC_ROW
};

static double unit_of(int hist)
{
    return hists[hist].edges == edges_tokens ? 1.0 : 1e-9;
}

void metrics_observe(metrics *m, int hist, int64_t value)
{
    double v = (double)value * unit_of(hist);
    int i = 0;

    while (i < METRIC_EDGES && v > hists[hist].edges[i])
        i++;
    atomic_fetch_add_explicit(&m->hist[hist].bucket[i], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&m->hist[hist].sum, value > 0 ? (uint64_t)value : 0, memory_order_relaxed);
}

static void keep_longest(metrics *m, uint64_t tokens)
{
    uint64_t was = atomic_load(&m->longest);

    while (tokens > was && !atomic_compare_exchange_weak(&m->longest, &was, tokens))
        ;
}

void metrics_finish(metrics *m, const kvant_event *ev)
{
    const kvant_timings *t = ev->timings;

    atomic_fetch_add_explicit(&m->finished[ev->finish], 1, memory_order_relaxed);
    if (t->started_ns)
        metrics_observe(m, METRIC_QUEUE, t->started_ns - t->submitted_ns);
    if (ev->finish == KVANT_FINISH_ERROR || ev->finish == KVANT_FINISH_CANCEL)
        return; /* latencies of unfinished work would only blur the others */
    keep_longest(m, (uint64_t)t->n_prompt + (uint64_t)t->n_generated);
    metrics_observe(m, METRIC_E2E, t->ended_ns - t->submitted_ns);
    metrics_observe(m, METRIC_PROMPT, t->n_prompt);
    metrics_observe(m, METRIC_GENERATION, t->n_generated);
    if (t->first_token_ns) {
        metrics_observe(m, METRIC_TTFT, t->first_token_ns - t->submitted_ns);
        metrics_observe(m, METRIC_PREFILL, t->prompt_ns);
        metrics_observe(m, METRIC_DECODE, t->decode_ns);
        metrics_observe(m, METRIC_INFERENCE, t->prompt_ns + t->decode_ns);
    }
    if (t->n_generated > 1)
        metrics_observe(m, METRIC_TPOT, t->decode_ns / (t->n_generated - 1));
}

void metrics_taken(metrics *m, int n, int max_tokens)
{
    metrics_observe(m, METRIC_PARAM_N, n);
    if (max_tokens > 0)
        metrics_observe(m, METRIC_PARAM_MAX, max_tokens);
}

/* ---- text ---- */

typedef struct writer {
    sbuf *out;
    const char *prefix, *label; /* "kvant:", {model_name="..."} without the braces */
} writer;

static void head(const writer *w, const char *name, const char *type, const char *help)
{
    sbuf_printf(w->out, "# HELP %s%s %s\n# TYPE %s%s %s\n", w->prefix, name, help, w->prefix, name, type);
}

static void sample(const writer *w, const char *name, const char *more, double v)
{
    sbuf_printf(w->out, "%s%s{%s%s} %.15g\n", w->prefix, name, w->label, more, v);
}

static void single(const writer *w, const char *name, const char *type, const char *help, double v)
{
    head(w, name, type, help);
    sample(w, name, "", v);
}

/* counts[n + 1]: how many were at most edges[0], above it and at most edges[1], ..., above edges[n - 1]. */
static void put_buckets(const writer *w, const char *of, const char *help, const uint64_t *counts, const double *edges,
                        int n, double sum)
{
    uint64_t total = 0;
    char name[64], more[32];

    head(w, of, "histogram", help);
    snprintf(name, sizeof name, "%s_bucket", of);
    for (int k = 0; k <= n; k++) {
        total += counts[k];
        if (k < n)
            snprintf(more, sizeof more, ",le=\"%g\"", edges[k]);
        else
            snprintf(more, sizeof more, ",le=\"+Inf\"");
        sample(w, name, more, (double)total);
    }
    snprintf(name, sizeof name, "%s_sum", of);
    sample(w, name, "", sum);
    snprintf(name, sizeof name, "%s_count", of);
    sample(w, name, "", (double)total);
}

static void put_hist(const writer *w, metrics *m, int i, const char *name)
{
    uint64_t counts[METRIC_EDGES + 1];

    for (int k = 0; k <= METRIC_EDGES; k++)
        counts[k] = atomic_load_explicit(&m->hist[i].bucket[k], memory_order_relaxed);
    put_buckets(w, name, hists[i].help, counts, hists[i].edges, METRIC_EDGES,
                (double)atomic_load_explicit(&m->hist[i].sum, memory_order_relaxed) * unit_of(i));
}

static double used_part(const kvant_session_stats *st)
{
    return st->pages ? (double)(st->pages - st->pages_free - st->pages_cached) / st->pages : 0;
}

/* Metrics that both name sets have. */
static void put_common(const writer *w, metrics *m, const kvant_session_stats *st)
{
    static const char *const reasons[KVANT_FINISH_COUNT] = { NULL, "stop", "length", "abort", "error" };

    single(w, "num_requests_running", "gauge", "Requests that run now.", st->running);
    single(w, "num_requests_waiting", "gauge", "Requests in the queue.", st->queued);
    single(w, "kv_cache_usage_perc", "gauge", "Part of the KV pages in use, 0 to 1.", used_part(st));
    single(w, "prefix_cache_queries_total", "counter", "Prompt tokens looked up in the prefix cache.",
           (double)st->prefix_queries);
    single(w, "prefix_cache_hits_total", "counter", "Prompt tokens found in the prefix cache.",
           (double)st->prefix_hits);
    single(w, "prompt_tokens_total", "counter", "Prompt tokens of started requests.", (double)st->prompt_tokens);
    single(w, "prompt_tokens_cached_total", "counter", "Prompt tokens that were not evaluated: their KV was kept.",
           (double)st->cached_tokens);
    single(w, "generation_tokens_total", "counter", "Generated tokens.", (double)st->generated_tokens);
    single(w, "num_preemptions_total", "counter", "Sequences that gave up their pages.",
           (double)(st->preempted_recompute + st->preempted_saved));
    head(w, "request_success_total", "counter", "Finished requests by reason.");
    for (int i = 1; i < KVANT_FINISH_COUNT; i++) {
        char more[48];
        snprintf(more, sizeof more, ",finished_reason=\"%s\"", reasons[i]);
        sample(w, "request_success_total", more, (double)atomic_load(&m->finished[i]));
    }
    for (int i = 0; i < METRIC_COUNT; i++)
        put_hist(w, m, i, hists[i].name);
    put_buckets(w, "iteration_tokens_total", "Tokens of a step: decode rows and prompt tokens.", st->tokens_hist,
                edges_step, KVANT_STEP_EDGES, (double)st->step_tokens);
}

/* Only vLLM has names for these; the last two are names of its earlier versions, which dashboards still ask for. */
static void put_vllm(const writer *w, metrics *m, const kvant_session_stats *st)
{
    char more[80];

    head(w, "num_requests_waiting_by_reason", "gauge", "Requests in the queue by what they wait for.");
    sample(w, "num_requests_waiting_by_reason", ",reason=\"capacity\"", st->queued);
    sample(w, "num_requests_waiting_by_reason", ",reason=\"deferred\"", 0);
    head(w, "cache_config_info", "gauge", "The KV cache's pages, as labels.");
    snprintf(more, sizeof more, ",block_size=\"64\",num_gpu_blocks=\"%d\"", st->pages);
    sample(w, "cache_config_info", more, 1);
    single(w, "gpu_cache_usage_perc", "gauge", "kv_cache_usage_perc under its earlier name.", used_part(st));
    put_hist(w, m, METRIC_ITL, "time_per_output_token_seconds");
}

static void put_steps(const writer *w, const char *name, const char *help, const uint64_t *counts,
                      const char *const *sizes)
{
    char more[48];

    head(w, name, "counter", help);
    for (int i = 0; i < KVANT_HIST; i++) {
        snprintf(more, sizeof more, ",size=\"%s\"", sizes[i]);
        sample(w, name, more, (double)counts[i]);
    }
}

static void put_own(const writer *w, metrics *m, const kvant_session_stats *st, uint64_t gone)
{
    static const char *const prompt[KVANT_HIST] = { "0", "1-64", "65-128", "129-256", "257-512", "513+" };
    static const char *const decode[KVANT_HIST] = { "0", "1-63", "64-127", "128-255", "256-511", "512+" };
    static const char *const waiting[KVANT_HIST] = { "0", "1-7", "8-15", "16-31", "32-63", "64+" };

    single(w, "num_requests_paused", "gauge", "Running requests that wait for their clients to read, or for a grammar's mask.", st->paused);
    single(w, "requests_rejected_total", "counter", "Requests refused because the queue was full.",
           (double)atomic_load(&m->rejected));
    single(w, "clients_gone_total", "counter", "Requests cancelled because their client left.",
           (double)(atomic_load(&m->gone) + gone));
    single(w, "kv_pages", "gauge", "KV pages of 64 tokens.", st->pages);
    single(w, "kv_pages_free", "gauge", "KV pages that hold nothing.", st->pages_free);
    single(w, "prefix_cache_known_tokens_total", "counter",
           "Prompt tokens that an earlier prompt began with and whose pages were there: what hits could be.",
           (double)st->prefix_known);
    single(w, "kv_pages_cached", "gauge", "KV pages that only the prefix cache holds.", st->pages_cached);
    single(w, "state_slots", "gauge", "State snapshots that fit.", st->states);
    single(w, "state_slots_free", "gauge", "State snapshot places that are free.", st->states_free);
    single(w, "cache_bytes", "gauge", "Bytes of the cache pools.", (double)st->cache_bytes);
    single(w, "cache_bytes_used", "gauge", "Bytes of the cache pools that running sequences hold.",
           (double)st->cache_bytes_used);
    single(w, "cache_bytes_cached", "gauge", "Bytes of the cache pools that only the prefix cache holds.",
           (double)st->cache_bytes_cached);
    single(w, "computed_prompt_tokens_total", "counter", "Prompt tokens evaluated, again after preemption included.",
           (double)st->computed_tokens);
    single(w, "evicted_pages_total", "counter", "Cached pages given up for new ones.", (double)st->evicted_pages);
    single(w, "evicted_states_total", "counter", "Cached snapshots given up for new ones.", (double)st->evicted_states);
    single(w, "host_cache_bytes", "gauge", "Host memory for prefixes that the pool gave up.", (double)st->host_bytes);
    single(w, "host_cache_bytes_used", "gauge", "Of it, what they take.", (double)st->host_bytes_used);
    single(w, "host_cache_hits_total", "counter", "Blocks found in host memory.", (double)st->host_hits);
    single(w, "kv_store_hits_total", "counter", "Blocks found in the directory of prefixes.", (double)st->store_hits);
    single(w, "kv_store_written_total", "counter", "Files of it that were written.", (double)st->store_written);
    single(w, "kv_store_dropped_total", "counter", "Pages and states that were not written: no room, or an error.",
           (double)st->store_dropped);
    single(w, "kv_store_damaged_total", "counter", "Files of it that were damaged, and removed.",
           (double)st->store_damaged);
    single(w, "preemptions_paused_total", "counter", "Sequences of slow readers that gave way to others.",
           (double)st->preempted_paused);
    single(w, "preemptions_share_total", "counter", "Sequences that gave way for a key with less than its part.",
           (double)st->preempted_share);
    single(w, "preemptions_unplanned_total", "counter", "Sequences that gave way to a fault in kvant: 0.",
           (double)st->preempted_unplanned);
    single(w, "context_shifts_total", "counter", "Full contexts that went on without their oldest part.",
           (double)st->context_shifts);
    single(w, "steps_failed_total", "counter", "Steps that failed as a whole and were run one by one.",
           (double)st->failed_steps);
    single(w, "draft_tokens_total", "counter", "Guessed tokens that were checked.", (double)st->drafted);
    single(w, "draft_tokens_accepted_total", "counter", "Guessed tokens that were the text.",
           (double)st->draft_accepted);
    single(w, "passes_replayed_total", "counter", "Passes that the device ran as a recorded program (CUDA graphs).",
           (double)st->replayed_passes);
    single(w, "steps_total", "counter", "Steps of the engine.", (double)st->steps);
    single(w, "step_seconds_total", "counter", "Time in steps.", (double)st->step_ns * 1e-9);
    single(w, "draining", "gauge", "1: no new requests are taken.", st->draining);
    put_steps(w, "steps_by_prompt_tokens_total", "Steps by prompt tokens.", st->prompt_hist, prompt);
    put_steps(w, "steps_by_decode_rows_total", "Steps by decode rows.", st->decode_hist, decode);
    put_steps(w, "steps_by_waiting_total", "Steps by waiting requests.", st->waiting_hist, waiting);
}

static void put_process(const writer *w, const metrics_view *v)
{
    char more[32];

    single(w, "ready", "gauge", "1: the model is loaded; of a router: how many are.", v->ready);
    single(w, "uptime_seconds", "gauge", "Since the start.", (double)v->uptime_ns * 1e-9);
    single(w, "http_connections", "gauge", "Open connections.", v->connections);
    single(w, "http_streams", "gauge", "Open event streams.", v->streams);
    single(w, "grammar_cache_hits_total", "counter", "Grammars that were kept from an earlier request.",
           (double)v->grammars.hits);
    single(w, "grammar_cache_misses_total", "counter", "Grammars that were compiled.", (double)v->grammars.misses);
    single(w, "grammar_cache_bytes", "gauge", "Bytes of kept grammars: rules, states, masks.",
           (double)v->grammars.bytes);
    head(w, "http_responses_total", "counter", "Responses by class of status.");
    for (int i = 2; i < 6; i++) {
        snprintf(more, sizeof more, ",code=\"%dxx\"", i);
        sample(w, "http_responses_total", more, (double)v->http[i]);
    }
}

/* llama-server's names carry no labels. */
static void put_bare(sbuf *out, const char *name, const char *type, const char *help, double v)
{
    sbuf_printf(out, "# HELP llamacpp:%s %s\n# TYPE llamacpp:%s %s\n", name, help, name, type);
    sbuf_printf(out, "llamacpp:%s %.15g\n", name, v);
}

static double hist_seconds(metrics *m, int hist)
{
    return (double)atomic_load_explicit(&m->hist[hist].sum, memory_order_relaxed) * 1e-9;
}

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

/* A rate since the last scrape; tokens begin again where a model was loaded again. */
static double rate_since(double n, double s, double n_seen, double s_seen)
{
    return n >= n_seen ? ratio(n - n_seen, s - s_seen) : 0;
}

/* How often a sequence carried drafts. */
static double draft_steps(const kvant_session_stats *st)
{
    uint64_t n = 0;

    for (int i = 1; i <= KVANT_MOST_DRAFTS; i++)
        n += st->draft_steps[i];
    return (double)n;
}

static void put_llamacpp(metrics *m, const kvant_session_stats *st, sbuf *out)
{
    const double prompt_s = hist_seconds(m, METRIC_PREFILL), decode_s = hist_seconds(m, METRIC_DECODE);
    const double cached = (double)st->cached_tokens, read = (double)st->prompt_tokens - cached;
    const double made = (double)st->generated_tokens, longest = (double)atomic_load(&m->longest);

    put_bare(out, "prompt_tokens_total", "counter", "Prompt tokens that were evaluated.", read);
    put_bare(out, "prompt_tokens_cached_total", "counter", "Prompt tokens whose KV was kept.", cached);
    put_bare(out, "prompt_seconds_total", "counter", "Time of finished requests in their prompts.", prompt_s);
    put_bare(out, "tokens_predicted_total", "counter", "Generated tokens.", made);
    put_bare(out, "tokens_predicted_seconds_total", "counter", "Time of finished requests in their answers.", decode_s);
    put_bare(out, "n_decode_total", "counter", "Steps of the engine.", (double)st->steps);
    put_bare(out, "n_tokens_max", "counter", "Tokens of the longest finished request.", longest);
    put_bare(out, "spec_decode_num_draft_tokens_total", "counter", "Drafted tokens.",
             (double)st->drafted);
    put_bare(out, "spec_decode_num_accepted_tokens_total", "counter", "Accepted ones.", (double)st->draft_accepted);
    put_bare(out, "spec_decode_num_drafts_total", "counter", "Drafts.", draft_steps(st));
    put_bare(out, "prompt_tokens_seconds", "gauge", "Prompt tokens per second since the last scrape.",
             rate_since(read, prompt_s, m->seen.read, m->seen.read_s));
    put_bare(out, "predicted_tokens_seconds", "gauge", "Generated tokens per second since the last scrape.",
             rate_since(made, decode_s, m->seen.made, m->seen.made_s));
    m->seen = (struct metrics_seen){ read, prompt_s, made, decode_s };
    put_bare(out, "requests_processing", "gauge", "Requests that run now.", st->running);
    put_bare(out, "requests_deferred", "gauge", "Requests in the queue.", st->queued);
    put_bare(out, "n_busy_slots_per_decode", "gauge", "Decode rows of a step, on average.",
             ratio((double)st->decode_rows, (double)st->steps));
}

/* The model's name as a label value. */
static void put_label(const char *name, char *out, size_t cap)
{
    size_t n = (size_t)snprintf(out, cap, "model_name=\"");

    for (; *name && n + 4 < cap && n < 200; name++) {
        if (*name == '"' || *name == '\\')
            out[n++] = '\\';
        if ((unsigned char)*name >= 0x20)
            out[n++] = *name;
    }
    snprintf(out + n, cap - n, "\"");
}

void metrics_text(metrics *m, const kvant_session_stats *st, const metrics_view *v, sbuf *out)
{
    char label[256], engine[272]; /* vLLM's dashboards filter by both */
    writer own = { out, "kvant:", label }, vllm = { out, "vllm:", engine };

    put_label(v->model, label, sizeof label);
    snprintf(engine, sizeof engine, "%s,engine=\"0\"", label);
    put_process(&own, v);
    if (!st)
        return;
    put_common(&own, m, st);
    put_own(&own, m, st, v->gone);
    if (v->vllm) {
        put_common(&vllm, m, st);
        put_vllm(&vllm, m, st);
    }
    if (v->llamacpp)
        put_llamacpp(m, st, out);
}
