/* server/metrics.h: counters and histograms, and their Prometheus text.  Names are API: docs/server.md.
 * Recording is lock-free (relaxed atomics), from any thread. */
#ifndef KVANT_SERVER_METRICS_H
#define KVANT_SERVER_METRICS_H

#include <stdatomic.h>
#include <stdint.h>
#include "kvant/session.h"
#include "server/grammar/grammar_cache.h"
#include "base/text/sbuf.h"

/* X(id, "name behind the prefix", "help", edges) */
#define METRIC_HISTOGRAMS(X)                                                                                           \
    X(TTFT, "time_to_first_token_seconds", "From a request's arrival to its first token.", edges_seconds)              \
    X(ITL, "inter_token_latency_seconds", "Between two tokens of a sequence.", edges_token)                            \
    X(E2E, "e2e_request_latency_seconds", "From a request's arrival to its end.", edges_seconds)                       \
    X(QUEUE, "request_queue_time_seconds", "From a request's arrival to its start.", edges_seconds)                    \
    X(PREFILL, "request_prefill_time_seconds", "From a request's start to its first token.", edges_seconds)            \
    X(DECODE, "request_decode_time_seconds", "From a request's first token to its last.", edges_seconds)               \
    X(INFERENCE, "request_inference_time_seconds", "From a request's start to its last token.", edges_seconds)         \
    X(TPOT, "request_time_per_output_token_seconds", "A request's mean time per token after the first.", edges_token)  \
    X(PROMPT, "request_prompt_tokens", "Tokens of a request's prompt.", edges_tokens)                                  \
    X(GENERATION, "request_generation_tokens", "Tokens that a request generated.", edges_tokens)                       \
    X(MOST, "request_max_num_generation_tokens", "Tokens of the longest of a request's choices.", edges_tokens)        \
    X(PARAM_N, "request_params_n", "A request's n.", edges_tokens)                                                     \
    X(PARAM_MAX, "request_params_max_tokens", "A request's max_tokens, where it has one.", edges_tokens)

enum {
#define METRIC_ENUM(id, name, help, edges) METRIC_##id,
    METRIC_HISTOGRAMS(METRIC_ENUM)
#undef METRIC_ENUM
        METRIC_COUNT,
    METRIC_EDGES = 18, /* finite bucket edges of every histogram */
};

typedef struct metrics {
    struct {
        _Atomic uint64_t bucket[METRIC_EDGES + 1];
        _Atomic uint64_t sum; /* nanoseconds, or tokens */
    } hist[METRIC_COUNT];
    _Atomic uint64_t finished[KVANT_FINISH_COUNT], rejected, gone;
    _Atomic uint64_t longest; /* tokens */
    struct metrics_seen {
        double read, read_s, made, made_s;
    } seen; /* by the last who asked for llama-server's names; loop thread */
} metrics;

/* value: nanoseconds for times, tokens for counts. */
void metrics_observe(metrics *m, int hist, int64_t value);
/* The END event of a request. */
void metrics_finish(metrics *m, const kvant_event *ev);
/* A request was taken: its n, and its max_tokens (-1: none). */
void metrics_taken(metrics *m, int n, int max_tokens);

typedef struct metrics_view {
    const char *model; /* label model_name */
    int vllm, llamacpp; /* also under vLLM's names, under llama-server's */
    int connections, streams;
    int ready;         /* models that are loaded */
    uint64_t http[6]; /* responses by hundreds of the status */
    uint64_t gone;    /* clients that left before a model had their request */
    int64_t uptime_ns;
    grammar_cache_stats grammars;
} metrics_view;
/* The whole exposition text.  m and st NULL: what is not of a model. */
void metrics_text(metrics *m, const kvant_session_stats *st, const metrics_view *v, sbuf *out);

#endif
