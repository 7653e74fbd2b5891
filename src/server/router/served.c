/* served.c: one model as requests need it: its vocabulary, its tools, the thread that makes masks for it, the defaults
 * that requests are read against; and its prefix cache, which is kept in a file while the model is not loaded. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "base/thread/guard.h"
#include "server/server_impl.h"

enum { TEMPLATE_S = 10 }; /* of processor, for some 30 texts of it */

/* Variables that chats get too. */
#define PROBE_WORDS "{\"functions\":\"\",\"datetime\":\"\",\"date_string\":\"\"}"

/* A model whose template cannot be used answers completions but no chat: better said now than to every client. */
static void check_chat(served *m)
{
    kvant_chat_input probe = { .messages = "[{\"role\":\"user\",\"content\":\"x\"}]",
                               .kwargs = PROBE_WORDS,
                               .end = KVANT_CHAT_OPEN };
    kvant_diag diag = { "" };
    char *text = NULL;

    if (kvant_chat_render(m->model, &probe, &text, &diag) != KVANT_OK) {
        probe.tools = "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"\",\"parameters\":"
                      "{\"type\":\"object\",\"properties\":{}}}}]";
        const int with_tools = kvant_chat_render(m->model, &probe, &text, NULL) == KVANT_OK;
        snprintf(m->chat_problem, sizeof m->chat_problem, "%s", diag.text);
        log_msg(LOG_WARN, "every chat %swill be refused (400): %s", with_tools ? "without tools " : "", diag.text);
    }
    kvant_text_free(text);
}

/* A template that goes over the parts of a content writes one behind the other; for others a line ends between two
 * parts, as in llama.cpp and vLLM. */
static int joins_parts(const kvant_model *m)
{
    const kvant_chat_input probe = {
        .messages = "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"kvant \"},"
                    "{\"type\":\"text\",\"text\":\"words\"}]}]",
        .kwargs = PROBE_WORDS,
        .end = KVANT_CHAT_OPEN,
    };
    char *text = NULL;
    const int found = kvant_chat_render(m, &probe, &text, NULL) == KVANT_OK && strstr(text, "kvant words");

    kvant_text_free(text);
    return found;
}

static void tell_traits(const tool_traits *t)
{
    log_msg(LOG_INFO, "chats: tool calls %s%s, thoughts %s", t->d->name,
            !t->renders_tools ? " (the template has no tools: they are told in the system's message)"
            : t->guessed      ? " (the template does not tell how calls look: --tool-dialect names another way)"
                              : "",
            t->t ? t->t->begin : "none");
}

static int pooling_of(const server *s, const kvant_model *m)
{
    const int said = kvant_model_get_info(m)->pooling;

    if (s->p.pooling != KVANT_POOLING_UNSAID)
        return s->p.pooling;
    return said == KVANT_POOLING_UNSAID ? KVANT_POOLING_MEAN : said;
}

static int longest_token(const kvant_model *m)
{
    const int n = kvant_model_get_info(m)->n_vocab;
    int most = 1;

    for (int i = 0; i < n; i++) {
        int bytes = kvant_token_bytes(m, i, 1, NULL, 0);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static request_env env_of(const served *m)
{
    const server *s = m->s;
    const kvant_engine_params *p = kvant_engine_get_params(m->engine);

    return (request_env){ .model = m->model,
                          .alias = m->name,
                          .aliases = s->p.names.aliases,
                          .n_ctx = p->n_ctx,
                          .pool_tokens = p->pool_tokens,
                          .snapshots = p->snapshots,
                          .n_slots = p->max_seqs,
                          .default_max_tokens = s->p.lengths.max_tokens,
                          .shift = s->p.lengths.shift,
                          .keep = s->p.lengths.keep,
                          .sampler = s->p.sampler,
                          .ignore_eos = s->p.ignore_eos,
                          .has_seed = s->p.seed >= 0,
                          .seed = (uint64_t)s->p.seed,
                          .strict_model = s->p.names.strict,
                          .parts_joined = m->parts_joined,
                          .prefill = s->p.prefill,
                          .keep_billing = s->p.keep_billing,
                          .refuse_unknown = s->p.refuse_unknown,
                          .tell_thinking = s->p.thoughts.tell,
                          .thinking = s->p.thoughts.on,
                          .verbose = s->p.verbose,
                          .pooling = pooling_of(s, m->model),
                          .longest_token = longest_token(m->model),
                          .traits = m->traits,
                          .thoughts_apart = s->p.thoughts.apart,
                          .thought_budget = s->p.thoughts.budget,
                          .grammars = grammar_cache_new(),
                          .responses = s->kept.responses };
}

/* How the template writes tools and thoughts, and whether it writes a chat at all.  It is the file's: it has fuel. */
static int look_at_template(served *m, kvant_diag *diag)
{
    const int64_t second = 1000000000;
    const uint64_t failures = mem_failures();
    guard g;

    guard_begin(&g, TEMPLATE_S * second, 6 * TEMPLATE_S * second, &m->s->workers.stop, NULL);
    const int code = tool_traits_open(m->model, m->s->p.tool_dialect, &m->traits, diag);
    if (code == KVANT_OK) {
        check_chat(m);
        m->parts_joined = joins_parts(m->model);
    }
    if (guard_end() != GUARD_GOES_ON)
        return kvant_fail(diag, KVANT_EFORMAT, "chat template: it takes more than %d s to look at (--chat-template "
                          "chooses another)", TEMPLATE_S);
    if (mem_failures() != failures)
        return kvant_fail(diag, KVANT_ENOMEM, "chat template: out of memory");
    return code;
}

int served_open(served *m, kvant_diag *diag)
{
    m->model = m->parts.model;
    m->engine = m->parts.engine;
    m->session = m->parts.session;
    KVANT_TRY(grammar_vocab_create(m->model, NULL, &m->vocab, diag));
    KVANT_TRY(look_at_template(m, diag));
    m->env = env_of(m);
    if (m->s->p.pooling == KVANT_POOLING_RANK && !kvant_model_rank_classes(m->model))
        return kvant_fail(diag, KVANT_EINVAL, "--pooling rank, --rerank: the file has no rank head, wanted one with "
                          "cls.output.weight");
    if (!m->env.grammars)
        return kvant_fail(diag, KVANT_ENOMEM, "server: out of memory");
    KVANT_TRY(grammar_work_create(&m->masks, diag));
    tell_traits(m->traits);
    return KVANT_OK;
}

void served_stop(served *m)
{
    if (m->masks)
        grammar_work_stop(m->masks); /* it speaks to the session */
    kvant_session_free(m->parts.session);
    m->parts.session = NULL;
}

void served_close(served *m)
{
    served_stop(m);
    grammar_work_free(m->masks);
    grammar_cache_free(m->env.grammars);
    grammar_vocab_free(m->vocab);
    tool_traits_free(m->traits);
    kvant_engine_free(m->parts.draft);
    kvant_model_close(m->parts.draft_model);
    kvant_engine_free(m->parts.engine);
    kvant_model_close(m->parts.model);
    m->masks = NULL;
    m->env.grammars = NULL;
    m->vocab = NULL;
    m->traits = NULL;
    m->parts = (server_parts){ 0 };
    m->chat_problem[0] = 0;
}

/* ---- its prefix cache, while it is away ---- */

typedef struct waiting {
    pthread_mutex_t lock;
    pthread_cond_t news;
    int done;
    kvant_slot_result r;
    char text[200];
} waiting;

static void cache_done(void *user, const kvant_slot_result *r)
{
    waiting *w = user;

    pthread_mutex_lock(&w->lock);
    w->r = *r;
    snprintf(w->text, sizeof w->text, "%s", r->text ? r->text : "");
    w->done = 1;
    pthread_cond_signal(&w->news);
    pthread_mutex_unlock(&w->lock);
}

enum { CACHE_NAME = 48 };

static void cache_name(const served *m, char name[CACHE_NAME])
{
    unsigned char h[32];

    sha256(m->name, strlen(m->name), h);
    snprintf(name, CACHE_NAME, "model-%02x%02x%02x%02x%02x%02x%02x%02x", h[0], h[1], h[2], h[3], h[4], h[5], h[6],
             h[7]);
}

/* The file is found by the model's name and taken only for the model it was made with (the session sees to it).  The
 * file's salt is nobody's: no file of a client is mistaken for it. */
static int cache_action(served *m, int action, waiting *w)
{
    unsigned char hash[32], salt[16];
    char name[CACHE_NAME];
    kvant_diag diag = { "" };

    cache_name(m, name);
    sha256("kept while not loaded", 21, hash);
    memcpy(salt, hash, sizeof salt);
    const int code = kvant_session_slot(m->session, action, 0, name, salt, cache_done, w, &diag);
    if (code != KVANT_OK)
        return code;
    pthread_mutex_lock(&w->lock);
    while (!w->done)
        pthread_cond_wait(&w->news, &w->lock);
    pthread_mutex_unlock(&w->lock);
    return w->r.code;
}

/* 1: it is moved. */
static int move_cache(served *m, int action, const char *what)
{
    waiting w = { .lock = PTHREAD_MUTEX_INITIALIZER, .news = PTHREAD_COND_INITIALIZER };

    if (!m->s->p.caches)
        return 0;
    const int code = cache_action(m, action, &w);
    if (code == KVANT_OK)
        log_msg(LOG_INFO, "%s: %d cached tokens %s, %.1f ms", m->name, w.r.n_tokens, what, (double)w.r.ns * 1e-6);
    else if (code != KVANT_ENOENT)
        log_msg(LOG_WARN, "%s: its cache is not %s: %s", m->name, what, w.text[0] ? w.text : kvant_error_text(code));
    return code == KVANT_OK;
}

void served_keep_cache(served *m)
{
    m->cache_kept |= move_cache(m, KVANT_CACHE_SAVE, "kept");
}

void served_drop_cache(served *m)
{
    char name[CACHE_NAME], path[4096];

    if (!m->cache_kept)
        return;
    m->cache_kept = 0;
    cache_name(m, name);
    snprintf(path, sizeof path, "%s/%s.kvs", m->s->p.caches, name);
    if (unlink(path) != 0 && errno != ENOENT)
        log_msg(LOG_WARN, "%s: its cache cannot be removed: %s", m->name, strerror(errno));
}

void served_find_cache(served *m)
{
    if (move_cache(m, KVANT_CACHE_RESTORE, "taken up again") && !m->s->p.router)
        served_drop_cache(m);
}
