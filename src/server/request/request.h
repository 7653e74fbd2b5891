/* server/request/request.h: the body of a generation request, checked.  Field names and limits: docs/server.md.
 *
 * request_parse reads the bodies of all routes that generate (BODY_*) into one struct: prompts as token ids, sampling
 * parameters within their ranges, token ids below the logits' width.  A field that would change the text and is not
 * there is refused; other unknown ones are ignored, named in request.ignored, and change nothing of the server.
 * Stateless; any thread. */
#ifndef KVANT_SERVER_REQUEST_H
#define KVANT_SERVER_REQUEST_H

#include "base/text/sbuf.h"
#include "kvant/engine.h"
#include "kvant/session.h"
#include "server/api/responses/responses.h"
#include "server/api/tgi/tgi.h"
#include "server/api_error.h"
#include "server/grammar/grammar_cache.h"
#include "server/tools/tool_set.h"
#include "server/tools/tool_traits.h"

enum {
    REQUEST_MAX_N = 16, /* choices per prompt */
    REQUEST_MAX_PROMPTS = 64,
    REQUEST_MAX_CHOICES = 256, /* prompts times n */
    REQUEST_MAX_TEXTS = 2048,  /* to embed or to rank: what OpenAI's clients send at once */
    REQUEST_MAX_VALUES = 1 << 23, /* of their vectors */
    REQUEST_MAX_STOPS = 16,
    REQUEST_MAX_STOP_BYTES = 256,
    REQUEST_MAX_BIAS = 1024,
    REQUEST_MAX_LOGPROBS = 20,
    REQUEST_MAX_ECHO = 1 << 20, /* log-probabilities of prompts */
    REQUEST_MAX_FIELDS = 64,
    REQUEST_MAX_ROWS = 1 << 21, /* values of hidden states that are not pooled */
    REQUEST_MAX_MESSAGES = 10000,
    REQUEST_IGNORED = 256, /* bytes of the list of ignored fields */
};

/* A request is read against this: the model and the defaults that the server was started with. */
typedef struct request_env {
    const kvant_model *model;
    const char *alias;   /* the name that clients use */
    const char *aliases; /* all of them, with commas; NULL: that one */
    int n_ctx;
    int64_t pool_tokens;    /* a longer prompt can never run */
    int snapshots;          /* of states, in the prefix cache; 0: prefixes need none */
    int longest_token;      /* bytes; 0: not known */
    int default_max_tokens; /* -1: up to the context */
    int shift, keep;        /* 1: a full context ends no request; default of n_keep */
    kvant_sampler_params sampler;
    int ignore_eos;          /* default */
    int has_seed;            /* 1: requests without a seed take this one */
    uint64_t seed;
    grammar_cache *grammars; /* NULL: each request compiles its own */
    int n_slots;             /* id_slot is below it */
    int strict_model;        /* 1: a name that is not the model's is API_NOT_FOUND */
    int verbose;             /* default */
    int pooling;             /* KVANT_POOLING_* */
    int tell_thinking, thinking; /* 1: templates get enable_thinking, true or false */
    int parts_joined;        /* 1: the template joins a message's parts itself, with nothing between; 0: \n is */
    int prefill;             /* 1: a chat's last message, an assistant's, goes on */
    int keep_billing;        /* 1: system texts keep Claude Code's line for the bill */
    int refuse_unknown;      /* 1: every field that is not known is refused */
    const tool_traits *traits; /* NULL: neither tools nor thoughts */
    int thoughts_apart;        /* default: thoughts are no part of the answer's text */
    int thought_budget;        /* default: tokens; -1: any */
    struct response_store *responses; /* NULL: none are kept */
    int tenant;                       /* whose this request is */
    int no_bos;                       /* of one request: texts become their own tokens alone */
} request_env;

/* When the grammar of a request begins. */
enum { GRAMMAR_AT_START, GRAMMAR_AFTER_THOUGHT, GRAMMAR_AT_CALL };
enum { CALLS_NONE, CALLS_FREE, CALLS_WANTED };

typedef struct prompt {
    int32_t *ids;
    int n_system; /* of a chat: tokens with which other conversations begin too; 0: not known */
    int n, cap; /* cap: of one that grew (prompt_append), else 0 */
    char *text; /* completions with echo, and /completion: the prompt's text, else NULL */
} prompt;

typedef struct request_probs {
    int wanted, top; /* log-probabilities of the tokens, and of so many alternatives */
    int post;        /* of what the sampler chose among */
} request_probs;

typedef struct request_thoughts {
    int apart, hidden; /* told apart from the text; no part of the answer */
    int begun;         /* the prompt ends within one */
    int budget;        /* tokens; -1: any */
} request_thoughts;

typedef struct api_request {
    int shape; /* BODY_* */
    int chat, infill, stream, include_usage, echo; /* chat, infill: how the prompt is made */
    int idle; /* IDLE_*: nothing is asked, and nothing but shape and stream is here */
    int progress; /* return_progress: a stream tells how much of the prompt is evaluated */
    int timings_each; /* timings_per_token: each part of a stream has the timings until then */
    struct request_native {
        int return_tokens;
        int n_keep, n_discard; /* where the context is full; BOS is not counted */
        char **fields; /* response_fields: paths into the answer; or NULL */
        int n_fields;
    } native; /* of /completion; n_keep and n_discard of all */
    int verbose; /* of chats: the answer tells the prompt and the settings */
    int n; /* choices per prompt */
    prompt prompts[REQUEST_MAX_PROMPTS];
    int n_prompts;
    int max_tokens; /* -1: up to the context */
    int min_tokens, ignore_eos;
    struct request_drafts {
        int max, min;
        float p_min;
    } drafts; /* speculative.n_max, n_min, p_min; -1: the server's */
    request_probs probs;
    int has_seed;
    kvant_sampler_params sampler; /* bias arrays point into this struct */
    int32_t bias_ids[REQUEST_MAX_BIAS];
    float bias[REQUEST_MAX_BIAS];
    int32_t *dry_breakers; /* tokens; or NULL */
    char *stops[REQUEST_MAX_STOPS];
    int stop_len[REQUEST_MAX_STOPS];
    int n_stops;
    int slot;         /* id_slot; -1: any, and nothing stays in it */
    char *salt;       /* cache_salt, or NULL */
    struct request_lora {
        int given;
        float scale[KVANT_LORA_FILES]; /* of each adapter */
    } lora;
    grammar *grammar; /* or NULL */
    int grammar_begins;
    /* chats */
    tool_set *tools;          /* or NULL */
    int calls, only, several; /* CALLS_*; index of the one tool that may be called, -1: any; more calls than one */
    request_thoughts thoughts;
    responses_body *responses; /* of BODY_RESPONSES */
    tgi_wanted tgi;            /* of BODY_TGI and the like */
    char ignored[REQUEST_IGNORED]; /* fields that nothing reads, "a, b"; "" for none */
} api_request;

/* body[len] -> *out (request_dispose).  Returns API_OK or the kind of the error in *e. */
enum {
    BODY_TEXT,
    BODY_CHAT,
    BODY_MESSAGES,
    BODY_NATIVE,
    BODY_INFILL,
    BODY_RESPONSES,
    BODY_OLLAMA_CHAT,
    BODY_OLLAMA_GENERATE,
    BODY_TGI,
    BODY_TGI_STREAM,
    BODY_TGI_ROOT, /* of /: its `stream` decides */
    BODY_COHERE,
    BODY_FIM /* Mistral's */
};
enum { IDLE_NOT, IDLE_LOAD, IDLE_UNLOAD }; /* of Ollama's bodies: the model shall be there, or go */
int request_parse(const request_env *env, int shape, const char *body, size_t len, api_request **out, api_error *e);
void request_dispose(api_request *r);
/* Says in q whether a full context ends the request with this prompt. */
void request_put_shift(const request_env *env, const api_request *r, const prompt *p, kvant_request *q);

/* A request of another route, from the same reader.  All: API_OK or the error's kind. */
typedef struct embed_request {
    prompt prompts[REQUEST_MAX_TEXTS];
    int n, base64, kind; /* KVANT_REQUEST_EMBED_* */
    int shape;           /* EMBED_*, RANK_*: how the answer is written */
    int top_n;           /* ranks: most results */
    int norm;            /* embd_normalize: -1 none, 0 the largest value is 32760, p the p-norm is 1; not
                          * of what is not pooled */
    char *salt; /* cache_salt, or NULL */
    char ignored[REQUEST_IGNORED];
} embed_request;
enum { EMBED_OPENAI, EMBED_NATIVE, EMBED_OLLAMA, EMBED_OLLAMA_ONE, EMBED_COHERE, EMBED_TEI, EMBED_SIMILAR };
enum { RANK_JINA, RANK_TEI, RANK_SCORE };
int request_parse_embed(const request_env *env, int shape, const char *body, size_t len, embed_request **out,
                        api_error *e);
/* Prompts of a query and each document; their texts are there where the answer shows the documents. */
int request_parse_rerank(const request_env *env, int shape, const char *body, size_t len, embed_request **out,
                         api_error *e);
void embed_request_dispose(embed_request *r);
/* {"content"} -> ids; {"tokens"} -> ids; {"messages"} -> the prompt's text (kvant_text_free). */
int request_parse_tokenize(const request_env *env, const char *body, size_t len, prompt *out, int *with_pieces,
                           char ignored[REQUEST_IGNORED], api_error *e);
/* [{"id", "scale"}] of /lora-adapters: a scale of each adapter of the model, 0 for those that are not in the list. */
int request_parse_lora(const request_env *env, const char *body, size_t len, float scales[KVANT_LORA_FILES],
                       api_error *e);
int request_parse_detokenize(const request_env *env, const char *body, size_t len, prompt *out,
                             char ignored[REQUEST_IGNORED], api_error *e);
int request_parse_template(const request_env *env, const char *body, size_t len, char **text,
                           char ignored[REQUEST_IGNORED], api_error *e);
/* {"model"}, "" where it is missing.  cap: its longest and the end. */
int request_name_listed(const char *list, const char *name); /* one of those with commas */
int request_parse_model(const char *body, size_t len, char *name, size_t cap, api_error *e);
/* {"filename"} of /slots: letters, digits, _ . and -, 1 to 64 of them, not a dot first. */
int request_parse_filename(const char *body, size_t len, char name[65], api_error *e);
/* {"conversation_ids"}: an array of texts, the caller's. */
int request_parse_conversations(const char *body, size_t len, struct json_t **ids, api_error *e);
void prompt_free(prompt *p);

#endif
