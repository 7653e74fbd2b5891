/* openai_write_probs.c: log-probabilities as OpenAI's APIs tell them: of the visible text's tokens. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "server/server_impl.h"

enum { TOKEN_TEXT = 4096 };

static void put_token_text(const job *j, int32_t token, jsonw *w, int bytes)
{
    char text[TOKEN_TEXT];
    int n = kvant_token_bytes(j->m->model, token, 1, text, sizeof text);

    n = n < 0 || n > (int)sizeof text ? 0 : n;
    if (!bytes) {
        jsonw_strn(w, text, (size_t)n);
        return;
    }
    jsonw_array(w);
    for (int i = 0; i < n; i++)
        jsonw_int(w, (unsigned char)text[i]);
    jsonw_end(w);
}

static double finite_logprob(float v)
{
    return isfinite(v) ? (double)v : -9999.0; /* what OpenAI's API gives for "never" */
}

/* The prompt's first token has no logprob. */
static void put_logprob(float v, jsonw *w)
{
    if (isnan(v))
        jsonw_null(w);
    else
        jsonw_num(w, finite_logprob(v));
}

void openai_token(const job *j, int32_t token, float logprob, jsonw *w)
{
    jsonw_key(w, "token");
    put_token_text(j, token, w, 0);
    if (!isnan(logprob))
        jsonw_knum(w, "logprob", finite_logprob(logprob));
    jsonw_key(w, "bytes");
    put_token_text(j, token, w, 1);
}

static int has_top(const token_prob *p, int32_t token)
{
    for (int k = 0; k < p->n_top; k++)
        if (p->top[k].token == token)
            return 1;
    return 0;
}

static void put_chat_probs(const job *j, const choice *c, jsonw *w)
{
    jsonw_object(w);
    jsonw_key(w, "content");
    jsonw_array(w);
    for (int i = 0; i < c->probs.n; i++) {
        const token_prob *p = &c->probs.list[i];
        jsonw_object(w);
        openai_token(j, p->token, p->logprob, w);
        jsonw_key(w, "top_logprobs");
        jsonw_array(w);
        for (int k = 0; k < p->n_top; k++) {
            jsonw_object(w);
            openai_token(j, p->top[k].token, p->top[k].logprob, w);
            jsonw_end(w);
        }
        if (p->n_top && !has_top(p, p->token)) { /* the token that came is always there */
            jsonw_object(w);
            openai_token(j, p->token, p->logprob, w);
            jsonw_end(w);
        }
        jsonw_end(w);
        jsonw_end(w);
    }
    jsonw_end(w);
    jsonw_key(w, "refusal");
    jsonw_null(w);
    jsonw_end(w);
}

static int is_text(const char *s, size_t n)
{
    json_t *v = memchr(s, 0, n) ? NULL : json_stringn(s, n); /* NULL: it is not UTF-8 */

    json_decref(v);
    return v != NULL;
}

/* A token as a text that no other token's bytes have: what is not UTF-8 is spelt out, as OpenAI's completions do. */
static void unique_text(const job *j, int32_t token, char out[4 * TOKEN_TEXT + 8])
{
    char text[TOKEN_TEXT + 1];
    int n = kvant_token_bytes(j->m->model, token, 1, text, TOKEN_TEXT), k = 6;

    n = n < 0 || n > TOKEN_TEXT ? 0 : n;
    text[n] = 0;
    if (is_text(text, (size_t)n)) {
        memcpy(out, text, (size_t)n + 1);
        return;
    }
    memcpy(out, "bytes:", 7);
    for (int i = 0; i < n; i++)
        k += snprintf(out + k, 5, "\\x%02x", (unsigned char)text[i]);
}

static void put_unique(const job *j, int32_t token, jsonw *w)
{
    char text[4 * TOKEN_TEXT + 8];

    unique_text(j, token, text);
    jsonw_str(w, text);
}

/* One candidate of a map whose keys so far are those of the tokens used[n]; of two with the same text the second has
 * its id as key. */
static void put_candidate(const job *j, int32_t token, float logprob, const int32_t *used, int n, jsonw *w)
{
    char text[4 * TOKEN_TEXT + 8], other[4 * TOKEN_TEXT + 8];

    unique_text(j, token, text);
    for (int i = 0; i < n; i++) {
        unique_text(j, used[i], other);
        if (strcmp(text, other) != 0)
            continue;
        snprintf(text, sizeof text, "token_id:%d", (int)token);
        break;
    }
    jsonw_key(w, text);
    jsonw_num(w, finite_logprob(logprob));
}

/* The token that came is always there, under its own text. */
static void put_top_map(const job *j, const token_prob *p, jsonw *w)
{
    int32_t used[REQUEST_MAX_LOGPROBS + 1] = { p->token };
    int n = 1;

    if (isnan(p->logprob)) {
        jsonw_null(w);
        return;
    }
    jsonw_object(w);
    for (int k = 0; k < p->n_top; k++) {
        put_candidate(j, p->top[k].token, p->top[k].logprob, used, p->top[k].token == p->token ? 0 : n, w);
        if (p->top[k].token != p->token)
            used[n++] = p->top[k].token;
    }
    if (!has_top(p, p->token)) /* the map's, with logprobs 0 too */
        put_candidate(j, p->token, p->logprob, used, 0, w);
    jsonw_end(w);
}

/* Puts the offset of each token's text, in characters of the visible text. */
static void put_offsets(const choice *c, jsonw *w)
{
    jsonw_key(w, "text_offset");
    jsonw_array(w);
    for (int i = 0; i < c->probs.n; i++)
        jsonw_int(w, c->probs.list[i].at);
    jsonw_end(w);
}

static void put_completion_probs(const job *j, const choice *c, jsonw *w)
{
    jsonw_object(w);
    jsonw_key(w, "tokens");
    jsonw_array(w);
    for (int i = 0; i < c->probs.n; i++)
        put_unique(j, c->probs.list[i].token, w);
    jsonw_end(w);
    jsonw_key(w, "token_logprobs");
    jsonw_array(w);
    for (int i = 0; i < c->probs.n; i++)
        put_logprob(c->probs.list[i].logprob, w);
    jsonw_end(w);
    jsonw_key(w, "top_logprobs");
    jsonw_array(w);
    for (int i = 0; i < c->probs.n; i++)
        put_top_map(j, &c->probs.list[i], w);
    jsonw_end(w);
    put_offsets(c, w);
    jsonw_end(w);
}

void openai_probs(const job *j, const choice *c, jsonw *w)
{
    jsonw_key(w, "logprobs");
    if (!j->gen.probs.wanted || (j->stream && c->probs.n == 0))
        jsonw_null(w);
    else if (j->gen.openai.chat)
        put_chat_probs(j, c, w);
    else
        put_completion_probs(j, c, w);
}
