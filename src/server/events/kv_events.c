/* kv_events.c: see kv_events.h. */
#include "server/events/kv_events.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "server/events/msgpack.h"
#include "server/events/zmq_api.h"

enum {
    KEPT = 10000,              /* messages that can be asked for again; vLLM's number */
    KEPT_BYTES = 64 << 20,     /* of them together */
    WAITING_BYTES = 64 << 20,  /* that the thread has not taken; more: a number is left out, which readers see */
    LIVE_BYTES = 2 * KEPT_BYTES, /* kept, and of dropped ones what a slow reader of a replay still waits for */
    REQUEST_BYTES = 1024,      /* of a frame from outside; more: the connection is closed */
    LINGER_MS = 500,           /* for what is still to be sent at the end */
    BLOCK = 64,
};

/* A batch's bytes: of the ring, and of every replay whose reader has not taken them. */
typedef struct shared_bytes {
    _Atomic int users;
    char *bytes;
    size_t n;
    _Atomic int64_t *live;
} shared_bytes;

struct kv_events {
    kv_events_params p;
    zmq_api z;
    void *ctx, *pub, *router;
    int news; /* eventfd */
    pthread_t thread;
    int runs;
    pthread_mutex_t lock; /* guards the next three, and stop */
    sbuf waiting;         /* events, one behind the other */
    uint32_t n_waiting;
    int lost, stop;
    _Atomic int64_t live; /* bytes of all batches that are in memory */
    /* the thread's */
    int told; /* of a bad request */
    uint64_t next;
    shared_bytes *kept[KEPT]; /* by number, a ring; NULL: lost */
    uint64_t oldest;    /* number of the first that is kept */
    size_t kept_bytes;
};

/* ---- events -> MessagePack ---- */

static const char *const kinds[] = { [KVANT_KV_STORED] = "BlockStored", [KVANT_KV_REMOVED] = "BlockRemoved",
                                     [KVANT_KV_CLEARED] = "AllBlocksCleared" };
/* vLLM's words.  Pages are "GPU", whatever computes on them: it is where a hit costs nothing. */
static const char *const media[] = { [KVANT_KV_POOL] = "GPU", [KVANT_KV_HOST] = "CPU", [KVANT_KV_STORE] = "STORAGE" };

/* The name of a field, where events are maps. */
static void key(const kv_events *k, sbuf *b, const char *name)
{
    if (!k->p.arrays)
        msgpack_str(b, name);
}

static void put_hashes(const kv_events *k, const kvant_kv_event *ev, sbuf *b)
{
    key(k, b, "block_hashes");
    msgpack_array(b, (uint32_t)ev->n);
    for (int i = 0; i < ev->n; i++)
        msgpack_uint(b, ev->hashes[i]);
}

static void put_stored(const kv_events *k, const kvant_kv_event *ev, sbuf *b)
{
    put_hashes(k, ev, b);
    key(k, b, "parent_block_hash");
    if (ev->has_parent)
        msgpack_uint(b, ev->parent);
    else
        msgpack_nil(b);
    key(k, b, "token_ids");
    msgpack_array(b, (uint32_t)ev->n * BLOCK);
    for (int i = 0; i < ev->n * BLOCK; i++)
        msgpack_uint(b, (uint64_t)ev->tokens[i]);
    key(k, b, "block_size");
    msgpack_uint(b, BLOCK);
    key(k, b, "lora_id");
    msgpack_nil(b);
    key(k, b, "medium");
    msgpack_str(b, media[ev->medium]);
    key(k, b, "lora_name");
    msgpack_nil(b);
}

static void put_event(const kv_events *k, const kvant_kv_event *ev, sbuf *b)
{
    static const uint32_t fields[] = { [KVANT_KV_STORED] = 8, [KVANT_KV_REMOVED] = 3, [KVANT_KV_CLEARED] = 1 };

    if (k->p.arrays)
        msgpack_array(b, fields[ev->kind]);
    else
        msgpack_map(b, fields[ev->kind]);
    key(k, b, "type");
    msgpack_str(b, kinds[ev->kind]);
    if (ev->kind == KVANT_KV_STORED)
        put_stored(k, ev, b);
    if (ev->kind != KVANT_KV_REMOVED)
        return;
    put_hashes(k, ev, b);
    key(k, b, "medium");
    msgpack_str(b, media[ev->medium]);
}

void kv_events_put(void *user, const kvant_kv_event *ev)
{
    kv_events *k = user;
    const uint64_t one = 1;

    pthread_mutex_lock(&k->lock);
    put_event(k, ev, &k->waiting);
    k->n_waiting++;
    if (k->waiting.error || k->waiting.n > WAITING_BYTES) {
        sbuf_free(&k->waiting);
        k->waiting = (sbuf){ 0 };
        k->n_waiting = 0;
        k->lost = 1;
    }
    pthread_mutex_unlock(&k->lock);
    if (write(k->news, &one, sizeof one) < 0)
        return; /* its count is full: the thread has not taken the last news yet */
}

/* ---- the thread ---- */

static void big_endian(uint64_t v, char out[8])
{
    for (int i = 0; i < 8; i++)
        out[i] = (char)(v >> 8 * (7 - i));
}

/* Any thread: libzmq calls it when bytes have been sent, or their reader is gone. */
static void release(void *bytes, void *user)
{
    shared_bytes *m = user;

    (void)bytes;
    if (!m || atomic_fetch_sub(&m->users, 1) > 1)
        return;
    atomic_fetch_sub(m->live, (int64_t)m->n);
    kvant_free(m->bytes);
    kvant_free(m);
}

static void drop_oldest(kv_events *k)
{
    shared_bytes **m = &k->kept[k->oldest++ % KEPT];

    k->kept_bytes -= *m ? (*m)->n : 0;
    release(NULL, *m);
    *m = NULL;
}

/* Takes the batch; an empty one leaves its number out. */
static void keep(kv_events *k, sbuf *batch)
{
    shared_bytes *m = batch->n ? kvant_alloc(sizeof *m) : NULL;

    while (k->oldest < k->next && (k->next - k->oldest == KEPT || k->kept_bytes + batch->n > KEPT_BYTES))
        drop_oldest(k);
    k->kept[k->next % KEPT] = m;
    k->next++;
    if (!m) {
        sbuf_free(batch);
        return;
    }
    *m = (shared_bytes){ 1, batch->s, batch->n, &k->live };
    k->kept_bytes += m->n;
    atomic_fetch_add(&k->live, (int64_t)m->n);
}

/* The next news begin with AllBlocksCleared. */
static void lose(kv_events *k)
{
    pthread_mutex_lock(&k->lock);
    k->lost = 1;
    pthread_mutex_unlock(&k->lock);
}

static void publish(kv_events *k, sbuf *events, uint32_t n)
{
    struct timespec now;
    sbuf batch = { 0 };
    char number[8];

    clock_gettime(CLOCK_REALTIME, &now);
    msgpack_array(&batch, 3);
    msgpack_double(&batch, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
    msgpack_array(&batch, n);
    sbuf_put(&batch, events->s, events->n);
    msgpack_uint(&batch, 0); /* the rank: one engine */
    big_endian(k->next, number);
    if (batch.error || events->error) {
        sbuf_free(&batch);
        batch = (sbuf){ 0 };
        lose(k);
    } else {
        k->z.send(k->pub, k->p.topic, strlen(k->p.topic), ZMQ_SNDMORE);
        k->z.send(k->pub, number, sizeof number, ZMQ_SNDMORE);
        k->z.send(k->pub, batch.s, batch.n, 0);
    }
    keep(k, &batch);
}

/* After a number that is left out: what readers know may be wrong, so they are told to forget it. */
static void put_cleared(kv_events *k, sbuf *events, uint32_t *n)
{
    sbuf all = { 0 };

    log_msg(LOG_WARN, "--kv-events: events were lost, %llu is left out", (unsigned long long)k->next);
    keep(k, &(sbuf){ 0 });
    put_event(k, &(kvant_kv_event){ .kind = KVANT_KV_CLEARED }, &all);
    sbuf_put(&all, events->s, events->n);
    sbuf_free(events);
    *events = all;
    ++*n;
}

/* 0: nothing more will come. */
static int take_news(kv_events *k)
{
    pthread_mutex_lock(&k->lock);
    sbuf events = k->waiting;
    uint32_t n = k->n_waiting;
    const int lost = k->lost, stop = k->stop;
    k->waiting = (sbuf){ 0 };
    k->n_waiting = 0;
    k->lost = 0;
    pthread_mutex_unlock(&k->lock);
    if (lost)
        put_cleared(k, &events, &n);
    if (n > 0)
        publish(k, &events, n);
    sbuf_free(&events);
    return !stop;
}

/* The bytes go without a copy, so that many replays share them; NULL: the end.  0: it was not taken. */
static int answer(kv_events *k, const char *id, size_t n_id, uint64_t number, shared_bytes *m)
{
    char text[8];
    zmq_msg msg;

    big_endian(number, text);
    if (k->z.send(k->router, id, n_id, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) /* its queue is full, or the reader left */
        return 0;
    k->z.send(k->router, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    k->z.send(k->router, text, sizeof text, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    if (!m)
        return k->z.send(k->router, "", 0, ZMQ_DONTWAIT) == 0;
    atomic_fetch_add(&m->users, 1);
    if (k->z.msg_init_data(&msg, m->bytes, m->n, release, m) != 0) {
        release(NULL, m);
        return k->z.send(k->router, "", 0, ZMQ_DONTWAIT) == 0;
    }
    if (k->z.msg_send(&msg, k->router, ZMQ_DONTWAIT) >= 0)
        return 1;
    k->z.msg_close(&msg);
    return 0;
}

/* One message: its frames, of which at most three are kept; returns how many there were, or -1. */
static int receive(kv_events *k, char frames[3][256], int sizes[3])
{
    char rest[256];
    int more = 1, n = 0;
    size_t size = sizeof more;

    for (; more; n++) {
        const int got = k->z.recv(k->router, n < 3 ? frames[n] : rest, sizeof rest, ZMQ_DONTWAIT);
        if (got < 0 || k->z.getsockopt(k->router, ZMQ_RCVMORE, &more, &size) != 0)
            return -1;
        if (n < 3)
            sizes[n] = got;
    }
    return n;
}

/* Once: who sends such requests could fill the log. */
static void tell_odd(kv_events *k, int n)
{
    if (!k->told++)
        log_msg(LOG_WARN, "--kv-events-replay: a request of %d frames, wanted an empty one and 8 bytes; further ones "
                          "are not told", n - 1);
    k->told = 1;
}

/* The queue of one reader holds all that is kept; a replay that finds it full ends, without the last message. */
static void replay(kv_events *k)
{
    char frames[3][256];
    int sizes[3];
    uint64_t from = 0;
    const int n = receive(k, frames, sizes);

    if (n < 0)
        return;
    if (n != 3 || sizes[0] > (int)sizeof frames[0] || sizes[1] != 0 || sizes[2] != 8) {
        tell_odd(k, n);
        return;
    }
    for (int i = 0; i < 8; i++)
        from = from << 8 | (unsigned char)frames[2][i];
    for (uint64_t i = from > k->oldest ? from : k->oldest; i < k->next; i++) {
        shared_bytes *m = k->kept[i % KEPT];
        if (m && (atomic_load(&k->live) > LIVE_BYTES || !answer(k, frames[0], (size_t)sizes[0], i, m)))
            return;
    }
    answer(k, frames[0], (size_t)sizes[0], UINT64_MAX, NULL);
}

static void *run(void *user)
{
    kv_events *k = user;
    uint64_t count;
    int go_on = 1;

    while (go_on) {
        zmq_item items[] = { { NULL, k->news, ZMQ_POLLIN, 0 }, { k->router, -1, ZMQ_POLLIN, 0 } };
        if (k->z.poll(items, k->router ? 2 : 1, -1) < 0 && k->z.error() != EINTR)
            log_msg(LOG_ERROR, "--kv-events: %s", k->z.strerror(k->z.error()));
        if (items[0].revents && read(k->news, &count, sizeof count) == (ssize_t)sizeof count)
            go_on = take_news(k);
        if (items[1].revents)
            replay(k);
    }
    return NULL;
}

/* ---- open, close ---- */

static int open_socket(kv_events *k, int type, const char *endpoint, const char *option, void **socket,
                       kvant_diag *diag)
{
    const int linger = LINGER_MS, room = KEPT + 1, on = 1; /* room: messages of one reader; all, and the last one */
    const int64_t most = REQUEST_BYTES;

    *socket = k->z.socket(k->ctx, type);
    if (!*socket)
        return kvant_fail(diag, KVANT_ENOMEM, "%s: %s", option, k->z.strerror(k->z.error()));
    k->z.setsockopt(*socket, ZMQ_LINGER, &linger, sizeof linger);
    k->z.setsockopt(*socket, ZMQ_MAXMSGSIZE, &most, sizeof most);
    if (type == ZMQ_ROUTER) {
        k->z.setsockopt(*socket, ZMQ_SNDHWM, &room, sizeof room);
        k->z.setsockopt(*socket, ZMQ_ROUTER_MANDATORY, &on, sizeof on); /* a send tells that there is no room */
    }
    if (k->z.bind(*socket, endpoint) != 0)
        return kvant_fail(diag, KVANT_EINVAL, "%s %.80s: %s; wanted an address to bind, as tcp://*:5557", option,
                          endpoint, k->z.strerror(k->z.error()));
    char at[256] = "";
    size_t n = sizeof at;
    k->z.getsockopt(*socket, ZMQ_LAST_ENDPOINT, at, &n);
    log_msg(LOG_INFO, "%s: %s", option, at);
    if (strncmp(at, "tcp://127.", 10) != 0 && strncmp(at, "ipc:", 4) != 0)
        log_msg(LOG_WARN, "%s: whoever reaches it reads the tokens of prompts, without a key", option);
    return KVANT_OK;
}

static int begin(kv_events *k, kvant_diag *diag)
{
    KVANT_TRY(zmq_api_open(&k->z, diag));
    k->news = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    k->ctx = k->z.ctx_new();
    if (!k->ctx || k->news < 0)
        return kvant_fail(diag, KVANT_ENOMEM, "--kv-events: no context or no descriptor");
    KVANT_TRY(open_socket(k, ZMQ_PUB, k->p.endpoint, "--kv-events", &k->pub, diag));
    if (k->p.replay)
        KVANT_TRY(open_socket(k, ZMQ_ROUTER, k->p.replay, "--kv-events-replay", &k->router, diag));
    if (pthread_create(&k->thread, NULL, run, k) != 0)
        return kvant_fail(diag, KVANT_ENOMEM, "--kv-events: its thread could not be started");
    k->runs = 1;
    return KVANT_OK;
}

int kv_events_open(const kv_events_params *p, kv_events **out, kvant_diag *diag)
{
    kv_events *k = kvant_calloc(1, sizeof *k);

    if (!k)
        return kvant_fail(diag, KVANT_ENOMEM, "--kv-events: out of memory");
    sigset_t all, before;
    k->p = *p;
    k->news = -1;
    pthread_mutex_init(&k->lock, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* threads inherit it: signals are the server's loop's */
    const int code = begin(k, diag);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code < 0)
        kv_events_close(k);
    else
        *out = k;
    return code;
}

void kv_events_close(kv_events *k)
{
    const uint64_t one = 1;

    if (!k)
        return;
    if (k->runs) {
        pthread_mutex_lock(&k->lock);
        k->stop = 1;
        pthread_mutex_unlock(&k->lock);
        if (write(k->news, &one, sizeof one) == (ssize_t)sizeof one)
            pthread_join(k->thread, NULL);
    }
    if (k->pub)
        k->z.close(k->pub);
    if (k->router)
        k->z.close(k->router);
    if (k->ctx)
        k->z.ctx_term(k->ctx);
    if (k->news >= 0)
        close(k->news);
    while (k->oldest < k->next)
        drop_oldest(k);
    sbuf_free(&k->waiting);
    pthread_mutex_destroy(&k->lock);
    kvant_free(k);
}
