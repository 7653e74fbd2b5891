/* access.c: what the operator learns of each request: a line of the access log, and counters of each key.  Loop
 * thread.
 *
 * A line goes out when the connection is done with the answer.  It has no text of a prompt, and of a key the name
 * alone (auth.h). */
#include <arpa/inet.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "server/http/kept.h"
#include "server/routes/routes.h"

enum { LINE_BYTES = 4096, METHOD_BYTES = 24 }; /* a pipe takes so many bytes at once */

int access_open(server *s, kvant_diag *diag)
{
    s->budget.uses = kvant_calloc((size_t)auth_room(s->p.keys) + 1, sizeof *s->budget.uses);
    return s->budget.uses ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "server: out of memory");
}

void access_close(server *s)
{
    kvant_free(s->budget.uses);
    s->budget.uses = NULL;
}

static const char *name_of(const server *s, int key)
{
    return key < 0 ? "" : s->p.keys->keys[key].name;
}

/* A prompt counts once for its choices. */
key_use access_tokens(job *j)
{
    key_use u = { .requests = 0 };

    if (!j || (j->kind != JOB_GENERATE && j->kind != JOB_EMBED && j->kind != JOB_RERANK))
        return u;
    const int n = j->kind == JOB_GENERATE && j->gen.n_prompt_texts ? j->gen.n_prompt_texts
                  : j->kind == JOB_GENERATE                        ? 1
                                                                   : j->n_choices;
    pthread_mutex_lock(&j->lock);
    for (int i = 0; i < j->n_choices; i++) {
        const choice *c = &j->choices[i];
        const int first = c->index % (j->n_choices / n) == 0;
        u.generated += (uint64_t)c->n_generated;
        u.prompt += first ? (uint64_t)c->n_prompt : 0;
        u.cached += first ? (uint64_t)c->n_cached : 0;
    }
    pthread_mutex_unlock(&j->lock);
    return u;
}

void access_address(const struct sockaddr *a, char out[ADDRESS_TEXT])
{
    snprintf(out, ADDRESS_TEXT, "%s", a ? "unix" : "-");
    if (a && a->sa_family == AF_INET)
        inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)a)->sin_addr, out, ADDRESS_TEXT);
    else if (a && a->sa_family == AF_INET6)
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr, out, ADDRESS_TEXT);
}

static void time_text(char out[40])
{
    struct timespec now;
    struct tm tm;

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    const size_t n = strftime(out, 40, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out + n, 40 - n, ".%03ldZ", now.tv_nsec / 1000000);
}

/* A text from outside could begin a line of its own, or hide one. */
static void plain(const char *s, char *out, size_t cap)
{
    size_t n = 0;

    for (; *s && n + 1 < cap; s++)
        out[n++] = (unsigned char)*s > ' ' && (unsigned char)*s < 0x7F ? *s : '?';
    out[n] = 0;
}

/* brief: without texts that may be long.  0: the line is too long, or there is no memory. */
static int put_line(const call *c, const key_use *u, int whole, const char *when, double ms, int brief)
{
    char method[METHOD_BYTES], line[LINE_BYTES];
    jsonw w;

    plain(c->method, method, sizeof method);

    jsonw_init(&w);
    jsonw_object(&w);
    jsonw_kstr(&w, "time", when);
    jsonw_kstr(&w, "client", c->client ? c->client->address : "-");
    jsonw_kstr(&w, "key", name_of(c->s, c->key));
    jsonw_kstr(&w, "method", method);
    jsonw_kstr(&w, "path", brief ? "" : c->path);
    jsonw_kint(&w, "status", c->status);
    jsonw_kbool(&w, "complete", whole);
    jsonw_key(&w, "ms");
    jsonw_num(&w, ms);
    jsonw_kstr(&w, "id", c->job ? c->job->id : "");
    jsonw_kstr(&w, "model", !brief && c->job && c->job->m ? c->job->m->name : "");
    jsonw_kint(&w, "prompt_tokens", (int64_t)u->prompt);
    jsonw_kint(&w, "cached_tokens", (int64_t)u->cached);
    jsonw_kint(&w, "completion_tokens", (int64_t)u->generated);
    jsonw_end(&w);
    const int fits = !jsonw_error(&w) && snprintf(line, sizeof line, "%s\n", w.buf) < (int)sizeof line;
    if (fits)
        log_emit(STDOUT_FILENO, line);
    jsonw_free(&w);
    return fits;
}

static void put_json(const call *c, const key_use *u, int whole, const char *when, double ms)
{
    if (!put_line(c, u, whole, when, ms, 0) && !put_line(c, u, whole, when, ms, 1))
        log_msg(LOG_ERROR, "--log-access: a line of a request with status %d could not be written", c->status);
}

static void put_text(const call *c, const key_use *u, int whole, const char *when, double ms)
{
    char line[LINE_BYTES], path[sizeof c->path], method[METHOD_BYTES], key[AUTH_NAME];
    const char *name = name_of(c->s, c->key);

    plain(c->path, path, sizeof path);
    plain(c->method, method, sizeof method);
    plain(name[0] ? name : "-", key, sizeof key);
    snprintf(line, sizeof line, "%s %s %s %s %s %d%s %.1fms %s prompt=%llu cached=%llu completion=%llu\n", when,
             c->client ? c->client->address : "-", key, method, path, c->status, whole ? "" : " cut", ms,
             c->job && c->job->id[0] ? c->job->id : "-", (unsigned long long)u->prompt,
             (unsigned long long)u->cached, (unsigned long long)u->generated);
    log_emit(STDOUT_FILENO, line);
}

void access_done(call *c, int whole)
{
    key_use *sum = &c->s->budget.uses[c->key + 1];
    const int kept = c->job && c->job->kind == JOB_READ; /* its tokens count when the stream ends */
    const key_use u = kept ? kept_use(c->job) : access_tokens(c->job);
    char when[40];

    sum->requests++;
    sum->failed += c->status >= 400 || !whole;
    sum->prompt += kept ? 0 : u.prompt;
    sum->cached += kept ? 0 : u.cached;
    sum->generated += kept ? 0 : u.generated;
    if (c->s->p.access_log == SERVER_LOG_NONE)
        return;
    time_text(when);
    (c->s->p.access_log == SERVER_LOG_JSON ? put_json : put_text)(c, &u, whole, when,
                                                                  (double)(clock_ns() - c->t0_ns) * 1e-6);
}

/* ---- counters ---- */

static const struct {
    const char *name, *help;
    size_t at;
} counters[] = {
    { "requests", "Requests with this key.", offsetof(key_use, requests) },
    { "requests_failed", "Of them those with a status of 400 or more, or whose client left.", offsetof(key_use, failed) },
    { "prompt_tokens", "Prompt tokens of this key's requests.", offsetof(key_use, prompt) },
    { "prompt_tokens_cached", "Of them those whose KV was kept.", offsetof(key_use, cached) },
    { "generation_tokens", "Tokens generated for this key.", offsetof(key_use, generated) },
};

static uint64_t value_of(const key_use *u, size_t at)
{
    uint64_t v;

    memcpy(&v, (const char *)u + at, sizeof v);
    return v;
}

/* The first key with the name of key k: keys that took each other's place have one series, which never falls. */
static int first_of_name(const auth *keys, int k)
{
    int i = 0;

    while (strcmp(keys->keys[i].name, keys->keys[k].name) != 0)
        i++;
    return i;
}

/* first: of each key; NULL: of key k alone. */
static uint64_t sum_of(const call *c, const int *first, int k, size_t at)
{
    uint64_t n = 0;

    for (int i = k; i < (first ? c->s->p.keys->n : k + 1); i++)
        n += first && first[i] != k ? 0 : value_of(&c->s->budget.uses[i + 1], at);
    return n;
}

void access_metrics(const call *c, sbuf *out)
{
    const auth *keys = c->s->p.keys;
    const int all = server_has_keys(c->s) && auth_is_admin(keys, c->key);
    int first[AUTH_MAX_KEYS];

    for (int k = 0; all && k < keys->n; k++)
        first[k] = first_of_name(keys, k);
    for (size_t i = 0; server_has_keys(c->s) && i < sizeof counters / sizeof *counters; i++) {
        sbuf_printf(out, "# HELP kvant_key_%s_total %s\n# TYPE kvant_key_%s_total counter\n", counters[i].name,
                    counters[i].help, counters[i].name);
        for (int k = 0; k < keys->n; k++)
            if (all ? first[k] == k : k == c->key)
                sbuf_printf(out, "kvant_key_%s_total{key=\"%s\"} %llu\n", counters[i].name, keys->keys[k].name,
                            (unsigned long long)sum_of(c, all ? first : NULL, k, counters[i].at));
    }
}
