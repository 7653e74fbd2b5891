/* run_chat.c: a chat on standard input through the model's template.
 *
 * The tokens that the model generated stay in the cache as they are.  A new turn appends only what the template puts
 * between them: the conversation is tokenised twice, up to where the last answer began and with an empty
 * answer and the new
 * message behind it, and the difference is fed.  Tokenising the answer's text again could give other tokens
 * than the ones that the model chose, and would throw the cache away. */
#include "cli/text/run_chat.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "base/mem.h"
#include "cli/text/chat_state.h"
#include "cli/text/escape.h"
#include "cli/term.h"

int chat_add(chat *c, const char *role, const char *text, size_t len, kvant_diag *diag)
{
    if (c->n == c->cap) {
        int cap = c->cap ? c->cap * 2 : 16;
        void *p = kvant_realloc(c->msgs, (size_t)c->cap * sizeof *c->msgs, (size_t)cap * sizeof *c->msgs);
        if (!p)
            return kvant_fail(diag, KVANT_ENOMEM, "chat: no memory for %d messages", cap);
        c->msgs = p;
        c->cap = cap;
    }
    char *copy = kvant_strndup(text, len);
    if (!copy)
        return kvant_fail(diag, KVANT_ENOMEM, "chat: no memory for a message");
    c->msgs[c->n++] = (kvant_chat_msg){ role, copy };
    return KVANT_OK;
}

void chat_drop(chat *c, int keep)
{
    while (c->n > keep)
        kvant_free((void *)c->msgs[--c->n].content);
}

static int chat_ids(const chat *c, const kvant_chat_msg *msgs, int n, int32_t **ids, int *n_ids, kvant_diag *diag)
{
    int cap = 1024, code;
    int32_t *v = NULL;

    for (;;) {
        kvant_free(v);
        v = kvant_calloc((size_t)cap, sizeof *v);
        if (!v)
            return kvant_fail(diag, KVANT_ENOMEM, "chat: no memory for %d tokens", cap);
        code = kvant_chat_tokenize(c->g.m, msgs, n, 1, v, cap, n_ids, diag);
        if (code != KVANT_ENOSPC || *n_ids <= cap)
            break;
        cap = *n_ids;
    }
    if (code != KVANT_OK) {
        kvant_free(v);
        return code;
    }
    *ids = v;
    return KVANT_OK;
}

/* The whole conversation, from the beginning. */
static int feed_all(chat *c, kvant_diag *diag)
{
    int32_t *ids;
    int n;

    gen_restart(&c->g);
    KVANT_TRY(chat_ids(c, c->msgs, c->n, &ids, &n, diag));
    int code = gen_prompt(&c->g, ids, n, diag);
    kvant_free(ids);
    return code;
}

/* Makes the tokens behind the last answer: msgs = [.., assistant, user]; ids[from..n) are to be appended.  *from 0: the
 * template does not keep the earlier text as it was. */
static int next_turn(chat *c, int32_t **ids, int *from, int *n, kvant_diag *diag)
{
    int32_t *before;
    int n_before;

    KVANT_TRY(chat_ids(c, c->msgs, c->n - 2, &before, &n_before, diag));
    kvant_chat_msg answer = c->msgs[c->n - 2];
    c->msgs[c->n - 2].content = "";
    int code = chat_ids(c, c->msgs, c->n, ids, n, diag);
    c->msgs[c->n - 2] = answer;
    *from = 0;
    if (code == KVANT_OK && *n > n_before && memcmp(before, *ids, (size_t)n_before * sizeof **ids) == 0)
        *from = n_before;
    kvant_free(before);
    return code;
}

static int feed_turn(chat *c, kvant_diag *diag)
{
    int32_t *ids;
    int from, n;

    if (c->in_cache == 0)
        return feed_all(c, diag);
    KVANT_TRY(next_turn(c, &ids, &from, &n, diag));
    if (from == 0) {
        kvant_free(ids);
        log_msg(LOG_DEBUG, "chat: the template rewrote earlier turns; the conversation is read again");
        return feed_all(c, diag);
    }
    int code = gen_prompt(&c->g, ids + from, n - from, diag);
    kvant_free(ids);
    return code;
}

static int answer(chat *c, int *reason, kvant_diag *diag)
{
    int code = feed_turn(c, diag);

    *reason = STOP_INTERRUPT;
    if (code != KVANT_OK)
        return code;
    gen_text_reset(&c->g);
    KVANT_TRY(gen_continue(&c->g, opt_int(c->g.o, OPT_PREDICT), reason, diag));
    KVANT_TRY(chat_add(c, "assistant", c->g.text ? c->g.text : "", c->g.text_len, diag));
    c->in_cache = c->n;
    if (!c->g.quiet)
        printf("\n%s", isatty(STDOUT_FILENO) ? "\n" : "");
    fflush(stdout);
    if (*reason == STOP_CONTEXT)
        log_msg(LOG_WARN, "context of %d tokens is full; /clear starts again", kvant_engine_get_params(c->g.e)->n_ctx);
    return KVANT_OK;
}

void chat_json(const chat *c, jsonw *w)
{
    jsonw_key(w, "messages");
    jsonw_array(w);
    for (int i = 0; i < c->n; i++) {
        jsonw_object(w);
        jsonw_kstr(w, "role", c->msgs[i].role);
        jsonw_kstr(w, "content", c->msgs[i].content);
        jsonw_end(w);
    }
    jsonw_end(w);
}

static int turn_json(const chat *c, int reason, kvant_diag *diag)
{
    const generator *g = &c->g;
    jsonw w;

    jsonw_init(&w);
    jsonw_object(&w);
    jsonw_kstr(&w, "model", kvant_model_get_info(g->m)->desc);
    jsonw_kstr(&w, "template", kvant_chat_family(g->m, NULL));
    chat_json(c, &w);
    return run_json_end(g, reason, &w, diag);
}

/* A turn that did not come about leaves the messages that were there, and a sequence that is read again. */
static int undone(chat *c, int code, int keep, kvant_diag *diag)
{
    if (code == KVANT_OK)
        return code;
    chat_drop(c, keep);
    c->in_cache = 0;
    if (code == KVANT_ECANCELED)
        log_msg(LOG_INFO, "%s", diag->text);
    return code == KVANT_ECANCELED ? KVANT_OK : code;
}

int chat_turn(chat *c, const char *text, size_t len, int *reason, kvant_diag *diag)
{
    int before = c->n;

    KVANT_TRY(check_utf8("message", text, len, diag));
    KVANT_TRY(chat_add(c, "user", text, len, diag));
    return undone(c, answer(c, reason, diag), before, diag);
}

int chat_regenerate(chat *c, int *reason, kvant_diag *diag)
{
    if (c->n <= c->n_system || strcmp(c->msgs[c->n - 1].role, "assistant") != 0)
        return kvant_fail(diag, KVANT_EINVAL, "/regen: found no answer, wanted one");
    const kvant_chat_msg old = c->msgs[--c->n];
    const int before = c->n;
    c->in_cache = 0;
    int code = undone(c, answer(c, reason, diag), before, diag);
    if (c->n == before)
        c->msgs[c->n++] = old;
    else
        kvant_free((void *)old.content);
    return code;
}

static int first_message(const opts *o, char **text, size_t *len, kvant_diag *diag)
{
    *text = NULL;
    if (opt_given(o, OPT_FILE))
        return read_text(opt_str(o, OPT_FILE), text, len, diag);
    if (!opt_given(o, OPT_PROMPT))
        return KVANT_OK;
    *text = kvant_strdup(opt_str(o, OPT_PROMPT));
    if (!*text)
        return kvant_fail(diag, KVANT_ENOMEM, "prompt: out of memory");
    if (!opt_flag(o, OPT_NO_ESCAPE))
        unescape(*text);
    *len = strlen(*text);
    return KVANT_OK;
}

static int add_system(chat *c, kvant_diag *diag)
{
    if (!opt_given(c->g.o, OPT_SYSTEM))
        return KVANT_OK;
    char *s = kvant_strdup(opt_str(c->g.o, OPT_SYSTEM));
    if (!s)
        return kvant_fail(diag, KVANT_ENOMEM, "system message: out of memory");
    if (!opt_flag(c->g.o, OPT_NO_ESCAPE))
        unescape(s);
    int code = check_utf8("system message", s, strlen(s), diag);
    if (code == KVANT_OK)
        code = chat_add(c, "system", s, strlen(s), diag);
    kvant_free(s);
    return code;
}

int chat_run(chat *c, const char *first, size_t first_len, kvant_diag *diag)
{
    int from_file = 1, reason = STOP_NONE, json = opt_flag(c->g.o, OPT_JSON);
    const char *family = kvant_chat_family(c->g.m, &from_file);

    if (!from_file && !opt_given(c->g.o, OPT_CHAT_TEMPLATE))
        log_msg(LOG_WARN, "the model file has no chat template: %s is assumed (--chat-template chooses another)",
                family);
    KVANT_TRY(add_system(c, diag));
    c->n_system = c->n;
    if (first)
        KVANT_TRY(chat_turn(c, first, first_len, &reason, diag));
    else if (json)
        return kvant_fail(diag, KVANT_EINVAL, "--json: a chat needs its message with -p or -f");
    if (json)
        KVANT_TRY(turn_json(c, reason, diag));
    if (!json && !(first && (c->once || opt_flag(c->g.o, OPT_SINGLE_TURN))))
        KVANT_TRY(chat_converse(c, diag));
    gen_report(&c->g);
    return KVANT_OK;
}

void chat_close(chat *c)
{
    chat_drop(c, 0);
    kvant_free(c->msgs);
    kvant_free(c->front);
    gen_close(&c->g);
}

int run_chat(const opts *o, kvant_diag *diag)
{
    chat c;
    char *first;
    size_t len = 0;
    int code;

    memset(&c, 0, sizeof c);
    KVANT_TRY(first_message(o, &first, &len, diag));
    code = gen_open(&c.g, o, diag);
    if (code == KVANT_OK)
        code = chat_run(&c, first, len, diag);
    kvant_free(first);
    chat_close(&c);
    return code;
}
