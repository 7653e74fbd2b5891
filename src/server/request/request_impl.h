/* server/request/request_impl.h: what the readers of request bodies share.  Each reader returns API_OK or the kind
 * of *e. */
#ifndef KVANT_SERVER_REQUEST_IMPL_H
#define KVANT_SERVER_REQUEST_IMPL_H

#include <jansson.h>
#include "server/request/request.h"

enum { BAD = API_INVALID };

#define API_TRY(expr)                                                                                                  \
    do {                                                                                                               \
        int api_try_ = (expr);                                                                                         \
        if (api_try_ != API_OK)                                                                                        \
            return api_try_;                                                                                           \
    } while (0)

/* ---- request_body.c ---- */
int api_no_memory(api_error *e);
/* out.key = v (taken over). */
int body_put(json_t *out, const char *key, json_t *v, api_error *e);
/* out.as = o.key, where that is there and not null. */
int body_copy(const json_t *o, const char *key, json_t *out, const char *as, api_error *e);
/* All fields of o but the n `own`. */
int body_copy_rest(const json_t *o, const char *const *own, size_t n, json_t *out, api_error *e);
/* o.key = v (taken over), as the field `from` says; an error where another field has said something else. */
int body_say(json_t *o, const char *from, const char *key, json_t *v, api_error *e);
/* names: of one field, NULL at the end; an error where two of them are there with different values. */
int body_check_names(const json_t *o, const char *const *names, api_error *e);
int body_read(const char *body, size_t len, json_t **out, api_error *e); /* an object; the caller's to json_decref */
const json_t *body_field(const json_t *o, const char *key);              /* NULL when it is missing or null */
/* *v keeps its value when the field is missing or null. */
int body_int(const json_t *o, const char *key, int64_t lo, int64_t hi, int64_t *v, api_error *e);
int body_count(const json_t *o, const char *key, int lo, int hi, int *v, api_error *e);
int body_num(const json_t *o, const char *key, double lo, double hi, float *v, api_error *e);
int body_bool(const json_t *o, const char *key, int *v, api_error *e);
/* *v is NULL when it is missing or null; else n bytes that live as long as o. */
int body_string(const json_t *o, const char *key, size_t max, const char **v, size_t *n, api_error *e);
/* A string of the client: no number that is too wide for JSON's readers (json_is_wide).  Readers of fields ask these,
 * not jansson. */
int body_is_text(const json_t *v);
const char *body_text(const json_t *v); /* NULL where it is none */
/* api_fail of a field that is BAD; the text says ": wanted ...", and what was found comes before that: v's JSON as far
 * as it fits, "nothing" where v is NULL. */
#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
int body_wrong(api_error *e, const char *key, const json_t *v, const char *fmt, ...);

/* ---- request_prompt.c ---- */
/* flags: KVANT_TOK_* */
int prompt_of_text(const request_env *env, const char *s, size_t n, int flags, prompt *p, api_error *e);
int prompt_append(prompt *p, const prompt *more, api_error *e);
int prompt_of_ids(const request_env *env, const json_t *a, const char *key, prompt *p, api_error *e);
/* At most `most` prompts of v (a string, token ids, or an array of those); *n of them are to be freed, on error too.
 * keep: with their text. */
int prompts_read(const request_env *env, const json_t *v, const char *key, int keep, int most, prompt *list, int *n,
                 api_error *e);
int prompt_make_text(const request_env *env, prompt *p, api_error *e); /* of its tokens */
/* API_OK if the prompt fits: before it is made into tokens, and after. */
int prompt_check_bytes(const request_env *env, size_t bytes, const char *key, api_error *e);
int prompt_check_length(const request_env *env, const prompt *p, const char *key, api_error *e);
int prompt_keep_text(prompt *p, const char *s, size_t n, api_error *e);

/* ---- api/openai/openai_read.c ---- */
int prompt_of_chat(const request_env *env, const json_t *o, api_request *r, api_error *e); /* r->prompts[0] */
/* Text of a message's content: a string, or parts of type text joined.  *owned is set when it must be freed, on error
 * too. */
int content_text(const json_t *content, const char *between, const char *key, int i, const char **text, char **owned,
                 api_error *e);

typedef struct messages {
    char *json;   /* as the template gets them; free() */
    size_t bytes; /* of what no template leaves out */
    const char *between; /* parts of a message's text */
} messages;

/* add_generation_prompt, continue_final_message, and what env says of an assistant's last message -> kvant_chat_end */
int chat_end_read(const request_env *env, const json_t *o, int *end, api_error *e);
/* chat_template_kwargs as JSON, to be freed with free(); NULL: none.  *off: they say that the model shall not think. */
int chat_kwargs_read(const request_env *env, const json_t *o, char **kwargs, int *off, api_error *e);
int messages_read(const request_env *env, const json_t *o, messages *m, api_error *e); /* free after errors too */
void messages_free(messages *m);

/* ---- request_system.c ---- */
/* in: the chat that p is of -> p->n_system. */
int prompt_find_system(const request_env *env, const kvant_chat_input *in, prompt *p, api_error *e);

/* ---- api/native/native_read.c ---- */
int native_fields(const json_t *o, api_request *r, api_error *e); /* response_fields of /completion */
/* wanted: tokens of its answer, -1: any number */
int prompt_of_infill(const request_env *env, const json_t *o, int64_t wanted, prompt *p, api_error *e);

/* ---- bodies of other APIs as those of a chat, a completion or an infill ---- */
/* out: an empty object. */
typedef int translate_fn(const request_env *env, const json_t *o, api_request *r, json_t *out, api_error *e);
translate_fn messages_to_chat;  /* api/anthropic/anthropic_read.c */
translate_fn cohere_to_chat;    /* api/cohere/cohere_read.c */
translate_fn fim_to_text;       /* the same file; sets r->infill, include_usage */
translate_fn responses_to_chat; /* api/responses/responses_read.c; sets r->responses, on error too */
translate_fn ollama_to_chat;    /* api/ollama/ollama_read.c; sets r->chat, infill, idle */
translate_fn tgi_to_text;       /* api/tgi/tgi_read.c; sets r->stream, r->tgi */

/* ---- api/responses/responses_read_tools.c ---- */
/* tools, tool_choice of /v1/responses -> those of a chat; names: what the names that the model sees stand for. */
int agents_tools(const json_t *o, json_t *out, json_t *names, api_error *e);
int agents_choice(const json_t *o, json_t *out, api_error *e);
json_t *agents_flat_name(const json_t *item); /* of an item's name and namespace; a new reference, or NULL */

/* ---- api/tgi/tgi_read.c ---- */
int request_is_tgi(const api_request *r); /* request.c */
void tgi_widen(request_env *env); /* longer prompts are read: they are cut */
int tgi_truncate(const request_env *env, api_request *r, api_error *e);

/* ---- request_thoughts.c ---- */
int thoughts_spell_out(json_t *o, api_error *e); /* think, thinking, reasoning of a chat -> the fields that are read */
int thoughts_read(const request_env *env, const json_t *o, api_request *r, api_error *e);

/* ---- request_tools.c ---- */
int tools_list(const json_t *o, tool_set **out, api_error *e); /* NULL: none are to be used */
int tools_read(const request_env *env, const json_t *o, api_request *r, api_error *e); /* what may be called */
/* format: a schema that the answer has where it is no call; or NULL. */
int tools_grammar(const request_env *env, api_request *r, const json_t *format, api_error *e);

/* ---- request_grammar.c ---- */
/* GBNF that runs over `vocab` (NULL: the model's) -> r->grammar. */
int request_compile(const request_env *env, const grammar_vocab *vocab, const char *text, size_t n, const char *key,
                    api_request *r, api_error *e);
int request_read_grammar(const request_env *env, const json_t *o, api_request *r, api_error *e);

/* ---- request_choice.c ---- */
int request_read_sampling(const request_env *env, const json_t *o, api_request *r, api_error *e);

/* ---- request_lora.c ---- */
/* The field lora -> r->lora; an empty list is as good as none. */
int request_read_lora(const request_env *env, const json_t *o, api_request *r, api_error *e);

/* ---- request_samplers.c ---- */
int request_read_samplers(const request_env *env, const json_t *o, api_request *r, api_error *e);

/* ---- request_fields.c ---- */
enum {
    REQUEST_CHAT = 1,
    REQUEST_TEXT = 2,
    REQUEST_TEMPLATE = 4,
    REQUEST_EMBED = 8,
    REQUEST_NATIVE = 16,
    REQUEST_INFILL = 32, /* with REQUEST_NATIVE */
    REQUEST_RERANK = 64,
    REQUEST_MESSAGES = 128,
    REQUEST_RESPONSES = 256,
    REQUEST_TOKENIZE = 512,
    REQUEST_DETOKENIZE = 1024,
    REQUEST_OLLAMA_CHAT = 2048,
    REQUEST_OLLAMA_GENERATE = 4096,
    REQUEST_OLLAMA_EMBED = 8192,
    REQUEST_OLLAMA_SHOW = 16384,
    REQUEST_COHERE_EMBED = 32768,
    REQUEST_TGI = 65536,
    REQUEST_PREDICT = 131072,
    REQUEST_COHERE_CHAT = 262144,
    REQUEST_FIM = 524288,
    REQUEST_TEI = 1048576,
    REQUEST_SIMILAR = 2097152
};
int request_fields_of(int shape); /* REQUEST_* of a BODY_* */
int embed_fields_of(int shape);   /* of an EMBED_* */
/* Appends a name to a comma list that may stand in a response header; what does not fit is "...". */
void request_note_ignored(const char *name, char ignored[REQUEST_IGNORED]);
/* Every field of o that the route does not read: refused, or named in `ignored`. */
int request_check_fields(const request_env *env, const json_t *o, int route, char ignored[REQUEST_IGNORED],
                         api_error *e);

/* ---- request.c ---- */
int request_read_salt(const json_t *o, char **salt, api_error *e); /* cache_salt; NULL: none, or empty */
int request_check_unsupported(const json_t *o, int chat,
                              api_error *e); /* images and what else is refused by its shape */
int request_read_specials(const json_t *o, request_env *env, api_error *e); /* add_special_tokens -> no_bos */
int request_check_model(const request_env *env, const json_t *o, api_error *e); /* the name, where there is one */

/* ---- request_shift.c ---- */
int request_read_shift(const request_env *env, const json_t *o, api_request *r, api_error *e); /* n_keep, n_discard */

/* A body of embeddings or ranks: `read` fills the request, which is set in *out, or gone where an error is told. */
typedef int (*embed_reader)(const request_env *env, const json_t *o, embed_request *r, api_error *e);
int embed_parse(const request_env *env, int shape, const char *body, size_t len, embed_reader read,
                embed_request **out, api_error *e); /* api/embed/embed_read.c */

#endif
