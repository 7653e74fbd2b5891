/* kept.c: see kept.h.  The loop takes the bytes of such a stream from its job; readers are jobs of their own, which
 * take what is kept at their own pace.  Beyond its room a stream loses its oldest bytes, but none that a reader wants:
 * while one is so far behind, the job keeps its bytes and is paused like any other whose client does not read.  Streams
 * that have ended make room first, the oldest before the others: the key's own when it has its share, else those of the
 * key that holds most. */
#include "server/http/kept.h"

#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "base/clock.h"
#include "base/mem.h"
#include "server/request/request_impl.h"

enum {
    FIRST_BYTES = 16 << 10, /* room of a new stream */
    FEED_BYTES = 8 << 10,   /* a reader's unsent bytes */
};

static tenant_use *use_of(const kept_stream *k)
{
    return &k->s->budget.tenants[k->tenant];
}

static uint64_t end_of(const kept_stream *k)
{
    return k->lost + k->n;
}

/* ---- which there are ---- */

kept_stream *kept_find(const server *s, int tenant, const char *name)
{
    kept_stream *k = s->kept.streams;

    while (k && !(k->listed && k->tenant == tenant && strcmp(k->name, name) == 0))
        k = k->next;
    return k;
}

static void count_bytes(kept_stream *k, int64_t more)
{
    use_of(k)->kept_bytes += more;
    k->s->budget.kept_bytes += more;
}

/* Nobody finds it and nobody reads it. */
static void settle(kept_stream *k)
{
    if (k->listed || k->readers || k->job)
        return;
    if (k->prev)
        k->prev->next = k->next;
    else
        k->s->kept.streams = k->next;
    if (k->next)
        k->next->prev = k->prev;
    count_bytes(k, -(int64_t)k->cap);
    kvant_free(k->bytes);
    kvant_free(k);
}

static void unlist(kept_stream *k)
{
    use_of(k)->kept -= k->listed;
    k->listed = 0;
    settle(k);
}

/* ---- its job ---- */

static void count_tokens(kept_stream *k)
{
    key_use *sum = &k->s->budget.uses[k->tenant];

    k->use = access_tokens(k->job);
    sum->prompt += k->use.prompt;
    sum->cached += k->use.cached;
    sum->generated += k->use.generated;
}

static void drop_job(kept_stream *k)
{
    job *j = k->job;

    if (!j)
        return;
    if (j->kind == JOB_GENERATE)
        count_tokens(k);
    j->kept = NULL;
    k->job = NULL;
    k->ended_s = clock_wall_s();
    k->alone_ns = clock_ns();
    job_release(j);
}

/* ---- its bytes ---- */

static int has_room(const kept_stream *k, size_t more)
{
    return use_of(k)->kept_bytes + (int64_t)more <= KEPT_KEY_BYTES &&
           k->s->budget.kept_bytes + (int64_t)more <= k->s->budget.body_all;
}

/* The oldest one that has ended, unread.  0: the tenant has none. */
static int drop_oldest(server *s, int tenant)
{
    kept_stream *old = NULL;

    for (kept_stream *k = s->kept.streams; k; k = k->next)
        if (k->tenant == tenant && k->listed && !k->job && !k->readers)
            old = k;
    if (old)
        unlist(old);
    return old != NULL;
}

static void grow(kept_stream *k, size_t need)
{
    while (need > k->cap && k->cap < KEPT_BYTES) {
        const size_t cap = k->cap ? k->cap * 2 : FIRST_BYTES;
        while (k->cap && !has_room(k, cap - k->cap)) {
            const int own = use_of(k)->kept_bytes + (int64_t)(cap - k->cap) > KEPT_KEY_BYTES;
            if (!drop_oldest(k->s, own ? k->tenant : budget_greatest(k->s, offsetof(tenant_use, kept_bytes))))
                return;
        }
        char *p = kvant_realloc(k->bytes, k->cap, cap);
        if (!p)
            return;
        count_bytes(k, (int64_t)(cap - k->cap));
        k->bytes = p;
        k->cap = cap;
    }
}

/* Bytes that no reader wants any more. */
static size_t spare(const kept_stream *k)
{
    size_t n = k->n;

    for (const job *r = k->readers; r; r = r->read.next)
        if (r->read.at < k->lost + n)
            n = r->read.at < k->lost ? 0 : (size_t)(r->read.at - k->lost);
    return n;
}

/* The oldest n bytes, and some more, since those behind are moved. */
static void lose(kept_stream *k, size_t n)
{
    const size_t most = spare(k), more = most < k->cap / 4 ? most : k->cap / 4;

    n = n < more ? more : n < k->n ? n : k->n;
    memmove(k->bytes, k->bytes + n, k->n - n);
    k->n -= n;
    k->lost += n;
}

static void append(kept_stream *k, const char *s, size_t n)
{
    k->last_ns = clock_ns();
    grow(k, k->n + n);
    if (k->n && k->n + n > k->cap)
        lose(k, k->n + n - k->cap);
    if (n > k->cap) {
        k->lost += n - k->cap;
        s += n - k->cap;
        n = k->cap;
    }
    if (n)
        memcpy(k->bytes + k->n, s, n);
    k->n += n;
}

static void feed(job *r)
{
    const kept_stream *k = r->read.of;

    pthread_mutex_lock(&r->lock);
    if (k && !r->out.n && !r->gone && r->read.at < k->lost) {
        r->out.error = 1; /* too slow: what it wants next is lost */
    } else if (k && !r->out.n && !r->gone) {
        const size_t left = (size_t)(end_of(k) - r->read.at), n = left < FEED_BYTES ? left : FEED_BYTES;
        if (n)
            sbuf_put(&r->out, k->bytes + (r->read.at - k->lost), n);
        r->read.at += n;
        r->done = !k->job && r->read.at == end_of(k);
        answers_count_stream(r);
    }
    pthread_mutex_unlock(&r->lock);
}

static void feed_all(const kept_stream *k)
{
    for (job *r = k->readers; r; r = r->read.next) {
        feed(r);
        job_resume(r);
    }
}

/* An error is the last that its readers hear.  Under j->lock. */
static void fail(job *j, int kind, const char *text)
{
    if (j->error.kind || j->done)
        return;
    api_fail(&j->error, kind, "", "%s", text);
    j->gen.shape->error_frame(j);
}

/* How many of n bytes there is room for; few are not worth the copies. */
static size_t fitting(kept_stream *k, size_t n)
{
    grow(k, k->n + n);
    const size_t room = k->cap - (k->n - spare(k));
    return n <= room || !k->cap ? n : room < k->cap / 2 ? 0 : room;
}

/* The bytes that its job has for its client; all: those without room too. */
static void take_bytes(kept_stream *k, int all)
{
    job *j = k->job;

    pthread_mutex_lock(&j->lock);
    const int failed = j->out.error;
    j->out.error = 0;
    if (failed)
        fail(j, API_UNAVAILABLE, "out of memory");
    const size_t n = all || failed || !k->readers ? j->out.n : fitting(k, j->out.n);
    if (n)
        append(k, j->out.s, n);
    sbuf_drop(&j->out, n);
    k->waits = j->out.n > 0;
    if (!k->waits)
        sbuf_free(&j->out);
    answers_count_stream(j);
    const int done = failed || (j->done && !k->waits), paused = j->n_paused > 0;
    pthread_mutex_unlock(&j->lock);
    if (paused)
        job_go_on(j);
    if (failed)
        job_gone(j);
    if (done)
        drop_job(k);
    feed_all(k);
}

void kept_feed(job *r)
{
    feed(r);
    if (r->read.of && r->read.of->waits && r->read.of->job)
        take_bytes(r->read.of, 0);
}

int kept_holds(const job *r)
{
    return r->read.of && r->read.of->waits && r->out.n;
}

/* ---- from the request to its end ---- */

int kept_check_name(const char *field, const char *name, size_t n, api_error *e)
{
    json_t *text = json_stringn(name, n); /* NULL: not UTF-8 */
    int bad = !text || !n || n >= KEPT_NAME;

    json_decref(text);
    for (size_t i = 0; i < n; i++)
        bad |= (unsigned char)name[i] < 0x20 || name[i] == 0x7F;
    if (!bad)
        return API_OK;
    return api_fail(e, API_INVALID, field, "%s: found %zu bytes, wanted 1 to %d of printable UTF-8", field, n,
                    KEPT_NAME - 1);
}

int kept_open(call *c, struct MHD_Connection *conn, job *reading, api_error *e)
{
    server *s = c->s;
    const char *name = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, "X-Conversation-Id");

    if (!s->p.stream.keep_s || !name || !name[0])
        return API_OK;
    API_TRY(kept_check_name("X-Conversation-Id", name, strlen(name), e));
    kept_stream *old = kept_find(s, c->key + 1, name);
    if (old)
        kept_stop(old);
    if (s->budget.tenants[c->key + 1].kept >= KEPT_KEY_STREAMS && !drop_oldest(s, c->key + 1))
        return api_fail(e, API_OVERLOAD, "X-Conversation-Id",
                        "X-Conversation-Id: found %d streams of this key that run, wanted fewer; try later",
                        KEPT_KEY_STREAMS);
    kept_stream *k = kvant_calloc(1, sizeof *k);
    if (!k)
        return api_fail(e, API_UNAVAILABLE, "", "out of memory");
    *k = (kept_stream){ .s = s, .tenant = c->key + 1, .listed = 1, .job = reading, .next = s->kept.streams };
    snprintf(k->name, sizeof k->name, "%s", name);
    k->started_s = clock_wall_s();
    k->alone_ns = k->last_ns = clock_ns();
    if (s->kept.streams)
        s->kept.streams->prev = k;
    s->kept.streams = k;
    use_of(k)->kept++;
    atomic_fetch_add(&reading->refs, 1);
    reading->kept = k;
    return API_OK;
}

job *kept_reader(kept_stream *k, uint64_t at, served *m)
{
    job *r = job_new(k->s, m, JOB_READ, 0);

    if (!r)
        return NULL;
    r->stream = 1;
    r->lane = (unsigned)k->tenant;
    r->read = (kept_reading){ .of = k, .at = at, .next = k->readers };
    k->readers = r;
    feed(r);
    return r;
}

job *kept_made(kept_stream *k, job *made)
{
    drop_job(k);
    if (!made || !made->stream) {
        unlist(k);
        return made;
    }
    k->job = made;
    k->ended_s = 0;
    k->began = 1;
    k->lines = job_sends_lines(made);
    made->kept = k;
    job *r = kept_reader(k, 0, made->m);
    if (r) {
        r->read.first = 1;
        snprintf(r->id, sizeof r->id, "%s", made->id);
    }
    take_bytes(k, 0);
    return r;
}

/* The client left while the request was read. */
static void made_alone(job *reading)
{
    job *made = reading->work->result;

    reading->work->result = NULL;
    job *r = kept_made(reading->kept, made);
    if (r && r == made)
        job_gone(made);
    else if (r)
        kept_left(r);
    job_release(r);
}

static int is_done(job *j)
{
    pthread_mutex_lock(&j->lock);
    const int done = j->done;
    pthread_mutex_unlock(&j->lock);
    return done;
}

void kept_news(job *j)
{
    if (j->kind != JOB_WORK)
        take_bytes(j->kept, 0);
    else if (j->link.conn)
        job_resume(j);
    else if (is_done(j))
        made_alone(j);
}

int kept_left(job *j)
{
    kept_stream *k = j->kind == JOB_READ ? j->read.of : j->kept;

    if (j->kind == JOB_READ && k) {
        job **at = &k->readers;
        while (*at != j)
            at = &(*at)->read.next;
        *at = j->read.next;
        j->read.of = NULL;
        if (k->job)
            k->alone_ns = clock_ns();
        if (k->job && k->waits)
            take_bytes(k, 0);
        settle(k);
    } else if (k && is_done(j)) {
        made_alone(j);
    }
    return k && j->kind != JOB_READ;
}

void kept_stop(kept_stream *k)
{
    job *j = k->job;

    if (j && j->kind == JOB_WORK) {
        j->stopped = 1;
        job_gone(j);
        job_resume(j);
    } else if (j) {
        atomic_fetch_add(&j->refs, 1);
        pthread_mutex_lock(&j->lock);
        fail(j, API_INVALID, "the stream was stopped (DELETE /v1/stream, or another request of its name)");
        pthread_mutex_unlock(&j->lock);
        take_bytes(k, 1);
        job_gone(j);
        job_release(j);
    }
    drop_job(k);
    feed_all(k);
    unlist(k);
}

static kept_stream *find_old(const server *s, int64_t now)
{
    kept_stream *k = s->kept.streams;

    while (k && !(k->listed && now - k->alone_ns > s->p.stream.keep_s * (int64_t)1000000000))
        k = k->next;
    return k;
}

void kept_tick(server *s, int64_t now)
{
    const int64_t ping_ns = s->p.stream.ping_s * (int64_t)1000000000;

    for (kept_stream *k = s->kept.streams; k; k = k->next) {
        if (k->job && (k->readers || k->job->link.conn))
            k->alone_ns = now;
        if (ping_ns && k->began && k->job && !k->lines && !k->waits && now - k->last_ns >= ping_ns) {
            append(k, ": ping\n\n", strlen(": ping\n\n")); /* counted as all bytes are: places stay true */
            feed_all(k);
        }
    }
    for (kept_stream *k; (k = find_old(s, now)) != NULL;)
        kept_stop(k);
}

void kept_close(server *s)
{
    while (s->kept.streams) {
        drop_job(s->kept.streams);
        unlist(s->kept.streams);
    }
}

key_use kept_use(const job *r)
{
    const kept_stream *k = r->read.first ? r->read.of : NULL;

    return !k ? (key_use){ .requests = 0 } : k->job ? access_tokens(k->job) : k->use;
}
