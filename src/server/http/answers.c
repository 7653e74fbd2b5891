/* answers.c: whole answers that wait to be sent.  Their bytes are counted, of each key and of all, and each has to be
 * read at a least rate; where one more has no room the slowest reader goes: of the key's own when it has its share,
 * else of the key that holds most.  Loop thread, but answers_count_stream.  Small answers are in a connection's memory,
 * a file of the page is in the program's. */
#include <string.h>
#include <sys/socket.h>
#include "base/clock.h"
#include "base/mem.h"
#include "server/api/responses/responses_store.h"
#include "server/server_impl.h"

enum {
    ANSWER_BLOCK = 8 << 10, /* bytes handed to the library at once: its copy */
    GRACE_S = 10,
    LEAST_RATE = 16 << 10,  /* then at least so many bytes a second on average */
    YOUNG_MS = 1000,        /* its own key's: it has not had its chance to be read */
    FAST_RATE = 1 << 20,    /* so is one that is read as fast as this */
};

struct sent_text {
    server *s;
    client *client;
    int tenant;
    stored_text *text;
    size_t sent;
    int64_t begun_ns, taken_ns;
    int cut; /* its bytes are counted no more */
    sent_text *prev, *next;
};

int64_t answers_most(const server *s)
{
    return s->budget.body_all;
}

/* Bytes more for one answer more; a text that several share is counted once (they are all of one key). */
static int64_t bytes_for(const stored_text *t)
{
    return ANSWER_BLOCK + (t->readers ? 0 : (int64_t)t->bytes);
}

static void count_bytes(const sent_text *a, int64_t more)
{
    a->s->budget.answer_bytes += more;
    a->s->budget.tenants[a->tenant].answer_bytes += more;
}

static void begin_reading(sent_text *a)
{
    count_bytes(a, bytes_for(a->text));
    a->text->readers++;
}

static void end_reading(sent_text *a)
{
    a->text->readers--;
    count_bytes(a, -bytes_for(a->text));
}

static void cut(sent_text *a)
{
    a->cut = 1;
    end_reading(a);
    shutdown(a->client->fd, SHUT_RDWR);
}

static int64_t age_ms(const sent_text *a, int64_t now)
{
    return (now - a->begun_ns) / 1000000;
}

static int64_t rate(const sent_text *a, int64_t now)
{
    return (int64_t)a->sent * 1000 / (age_ms(a, now) + 1);
}

/* Finds the answer of a tenant that is read most slowly; spare: but not one that is young or read fast. */
static sent_text *slowest(const server *s, int tenant, int spare, int64_t now)
{
    sent_text *found = NULL;

    for (sent_text *a = s->answers; a; a = a->next) {
        if (a->cut || a->tenant != tenant || (spare && (age_ms(a, now) < YOUNG_MS || rate(a, now) > FAST_RATE)))
            continue;
        if (!found || rate(a, now) < rate(found, now))
            found = a;
    }
    return found;
}

/* An sent_text of a key that has no other may be as large as all together. */
static int make_room(server *s, int tenant, int64_t bytes)
{
    const budget *b = &s->budget;
    const int64_t now = clock_ns(), *own = &b->tenants[tenant].answer_bytes;
    sent_text *a;

    while (*own && *own + bytes > b->body_key) {
        if (!(a = slowest(s, tenant, 1, now)))
            return 0;
        cut(a);
    }
    while (b->answer_bytes && b->answer_bytes + bytes > b->body_all) {
        const int most = budget_greatest(s, offsetof(tenant_use, answer_bytes));
        if (!(a = slowest(s, most, most == tenant, now)))
            return 0;
        cut(a);
    }
    return bytes <= b->body_all + ANSWER_BLOCK;
}

/* ---- an answer ---- */

static void end_answer(void *cls)
{
    sent_text *a = cls;

    if (!a->cut)
        end_reading(a);
    if (a->prev)
        a->prev->next = a->next;
    else
        a->s->answers = a->next;
    if (a->next)
        a->next->prev = a->prev;
    stored_text_release(a->text);
    kvant_free(a);
}

static ssize_t read_answer(void *cls, uint64_t pos, char *buf, size_t most)
{
    sent_text *a = cls;
    const size_t left = a->text->n - (size_t)pos, n = left < most ? left : most;

    if (a->cut)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    memcpy(buf, a->text->s + pos, n);
    a->sent = (size_t)pos;
    a->taken_ns = clock_ns();
    return (ssize_t)n;
}

struct MHD_Response *answers_begin(call *c, stored_text *text)
{
    server *s = c->s;
    sent_text *a = make_room(s, c->key + 1, bytes_for(text)) ? kvant_alloc(sizeof *a) : NULL;
    const int64_t now = clock_ns();

    if (!a)
        return NULL;
    *a = (sent_text){ .s = s, .client = c->client, .tenant = c->key + 1, .text = text };
    a->begun_ns = a->taken_ns = now;
    struct MHD_Response *r = MHD_create_response_from_callback(text->n, ANSWER_BLOCK, read_answer, a, end_answer);
    if (!r) {
        kvant_free(a);
        return NULL;
    }
    stored_text_hold(text);
    begin_reading(a);
    if ((a->next = s->answers))
        a->next->prev = a;
    s->answers = a;
    return r;
}

void answers_tick(server *s, int64_t now)
{
    for (sent_text *a = s->answers; a; a = a->next) {
        const int late = now - a->taken_ns > s->p.stream.stall_s * (int64_t)1000000000;
        if (!a->cut && (late || (age_ms(a, now) > GRACE_S * 1000 && rate(a, now) < LEAST_RATE)))
            cut(a);
    }
}

/* ---- streams ---- */

void answers_count_stream(job *j)
{
    const int64_t more = (int64_t)j->out.cap - j->counted;

    j->counted += more;
    atomic_fetch_add(&j->s->budget.stream_bytes, more);
    atomic_fetch_add(&j->s->budget.tenants[j->lane].stream_bytes, more);
}

int answers_tight(const job *j)
{
    const budget *b = &j->s->budget;

    return atomic_load(&b->stream_bytes) > b->body_all / 2 ||
           atomic_load(&b->tenants[j->lane].stream_bytes) > b->body_key / 4;
}
