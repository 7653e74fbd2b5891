/* server/events/kv_events.h: tells routers which prefixes this worker has, over ZeroMQ as vLLM does
 * (docs/use/workers.md).
 *
 * A PUB socket gets messages of three frames: topic, number of the message (u64, big-endian, from 0), and a batch in
 * MessagePack: [seconds since 1970, [event ...], 0].  A ROUTER socket gives the latest messages again: it is asked
 * with ["", first number], and answers with ["", number, batch] for each and with ["", -1, ""] at the end.
 * A thread of its own owns both sockets.  It takes what was told since it looked last as one batch. */
#ifndef KVANT_SERVER_KV_EVENTS_H
#define KVANT_SERVER_KV_EVENTS_H

#include "kvant/session.h"

typedef struct kv_events kv_events;

typedef struct kv_events_params {
    const char *endpoint, *replay; /* tcp://HOST:PORT, ipc://PATH; replay NULL: none */
    const char *topic;
    int arrays; /* 1: events are arrays (older readers), 0: maps */
} kv_events_params;

/* Binds and starts the thread.  Strings must outlive it.  KVANT_EUNSUPPORTED (no libzmq), KVANT_EINVAL (an endpoint),
 * KVANT_ENOMEM. */
int kv_events_open(const kv_events_params *p, kv_events **out, kvant_diag *diag);
/* The kv_event of kvant_session_params; user: the kv_events.  Any thread; never waits for a reader. */
void kv_events_put(void *user, const kvant_kv_event *ev);
/* Events that were told before go out first.  NULL is accepted. */
void kv_events_close(kv_events *k);

#endif
