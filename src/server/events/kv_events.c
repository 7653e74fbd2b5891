/* kv_events.c: see kv_events.h. */
#include "server/events/kv_events.h"

#include <errno.h>
#include <pthread.h>
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
    LINGER_MS = 500,           /* for what is still to be sent at the end */
    BLOCK = 64,
};

typedef struct message {
    uint64_t number;
    char *bytes;
    size_t n;
} message;

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
    /* the thread's */
    uint64_t next;
    message kept[KEPT]; /* by number, a ring */
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

static void drop_oldest(kv_events *k)
{
    message *m = &k->kept[k->oldest++ % KEPT];

    k->kept_bytes -= m->n;
    kvant_free(m->bytes);
    *m = (message){ 0 };
}

/* Takes the batch. */
static void keep(kv_events *k, sbuf *batch)
{
    while (k->oldest < k->next && (k->next - k->oldest == KEPT || k->kept_bytes + batch->n > KEPT_BYTES))
        drop_oldest(k);
    k->kept[k->next % KEPT] = (message){ k->next, batch->s, batch->n };
    k->kept_bytes += batch->n;
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
    if (batch.error) {
        sbuf_free(&batch);
        batch = (sbuf){ 0 }; /* its number is left out */
    } else {
        k->z.send(k->pub, k->p.topic, strlen(k->p.topic), ZMQ_SNDMORE);
        k->z.send(k->pub, number, sizeof number, ZMQ_SNDMORE);
        k->z.send(k->pub, batch.s, batch.n, 0);
    }
    keep(k, &batch);
    k->next++;
}

/* 0: nothing more will come. */
static int take_news(kv_events *k)
{
    pthread_mutex_lock(&k->lock);
    sbuf events = k->waiting;
    const uint32_t n = k->n_waiting;
    const int lost = k->lost, stop = k->stop;
    k->waiting = (sbuf){ 0 };
    k->n_waiting = 0;
    k->lost = 0;
    pthread_mutex_unlock(&k->lock);
    if (lost) {
        log_msg(LOG_WARN, "--kv-events: events were lost, %llu is left out", (unsigned long long)k->next);
        keep(k, &(sbuf){ 0 });
        k->next++;
    }
    if (n > 0)
        publish(k, &events, n);
    sbuf_free(&events);
    return !stop;
}

static void answer(kv_events *k, const char *id, size_t n_id, uint64_t number, const char *bytes, size_t n)
{
    char text[8];

    big_endian(number, text);
    k->z.send(k->router, id, n_id, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    k->z.send(k->router, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    k->z.send(k->router, text, sizeof text, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    k->z.send(k->router, bytes, n, ZMQ_DONTWAIT);
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

static void replay(kv_events *k)
{
    char frames[3][256];
    int sizes[3];
    uint64_t from = 0;
    const int n = receive(k, frames, sizes);

    if (n < 0)
        return;
    if (n != 3 || sizes[0] > (int)sizeof frames[0] || sizes[1] != 0 || sizes[2] != 8) {
        log_msg(LOG_WARN, "--kv-events-replay: a request of %d frames, wanted an empty one and 8 bytes", n - 1);
        return;
    }
    for (int i = 0; i < 8; i++)
        from = from << 8 | (unsigned char)frames[2][i];
    for (uint64_t i = from > k->oldest ? from : k->oldest; i < k->next; i++)
        if (k->kept[i % KEPT].bytes)
            answer(k, frames[0], (size_t)sizes[0], i, k->kept[i % KEPT].bytes, k->kept[i % KEPT].n);
    answer(k, frames[0], (size_t)sizes[0], UINT64_MAX, "", 0);
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
    const int linger = LINGER_MS, room = 0; /* messages of a slow reader: as many as there are */

    *socket = k->z.socket(k->ctx, type);
    if (!*socket)
        return kvant_fail(diag, KVANT_ENOMEM, "%s: %s", option, k->z.strerror(k->z.error()));
    k->z.setsockopt(*socket, ZMQ_LINGER, &linger, sizeof linger);
    if (type == ZMQ_ROUTER)
        k->z.setsockopt(*socket, ZMQ_SNDHWM, &room, sizeof room);
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
    k->p = *p;
    k->news = -1;
    pthread_mutex_init(&k->lock, NULL);
    const int code = begin(k, diag);
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
