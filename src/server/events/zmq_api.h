/* server/events/zmq_api.h: the functions of libzmq (4.x) that KV events need, by dlopen: who publishes none needs no
 * libzmq.  zmq_api_open may be called once at a time; the functions are those of its header. */
#ifndef KVANT_SERVER_ZMQ_API_H
#define KVANT_SERVER_ZMQ_API_H

#include <stddef.h>
#include "base/error.h"

/* Numbers of libzmq's header. */
enum { ZMQ_PUB = 1, ZMQ_ROUTER = 6 };                                                     /* sockets */
enum { ZMQ_RCVMORE = 13, ZMQ_LINGER = 17, ZMQ_MAXMSGSIZE = 22, ZMQ_SNDHWM = 23, ZMQ_LAST_ENDPOINT = 32,
       ZMQ_ROUTER_MANDATORY = 33 };                                                       /* options */
enum { ZMQ_DONTWAIT = 1, ZMQ_SNDMORE = 2 };                                               /* flags */
enum { ZMQ_POLLIN = 1 };

typedef struct zmq_item {
    void *socket;
    int fd; /* where socket is NULL */
    short events, revents;
} zmq_item; /* zmq_pollitem_t */

typedef struct zmq_msg {
    _Alignas(void *) unsigned char bytes[64];
} zmq_msg; /* zmq_msg_t */

typedef struct zmq_api {
    void *(*ctx_new)(void);
    int (*ctx_term)(void *ctx);
    void *(*socket)(void *ctx, int type);
    int (*close)(void *socket);
    int (*bind)(void *socket, const char *endpoint);
    int (*setsockopt)(void *socket, int option, const void *v, size_t n);
    int (*getsockopt)(void *socket, int option, void *v, size_t *n);
    int (*send)(void *socket, const void *data, size_t n, int flags);
    int (*recv)(void *socket, void *data, size_t n, int flags);
    int (*msg_init_data)(zmq_msg *m, void *data, size_t n, void (*done)(void *data, void *user), void *user);
    int (*msg_send)(zmq_msg *m, void *socket, int flags);
    int (*msg_close)(zmq_msg *m);
    int (*poll)(zmq_item *items, int n, long ms);
    int (*error)(void);
    const char *(*strerror)(int error);
} zmq_api;

/* KVANT_EUNSUPPORTED: libzmq is not there, or lacks a function. */
int zmq_api_open(zmq_api *z, kvant_diag *diag);

#endif
