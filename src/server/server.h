/* server/server.h: kvant serve.  One loop thread (the caller of server_run) owns all connections; the session's owner
 * thread fills the buffers of requests and wakes the loop.  No thread per connection or stream.
 *
 * server_open listens; server_run serves: /health answers 503 until server_attach (any thread) brings the model.
 * SIGTERM, SIGINT and SIGHUP drain; a second one ends at once (server_run returns KVANT_ECANCELED). */
#ifndef KVANT_SERVER_SERVER_H
#define KVANT_SERVER_SERVER_H

#include "kvant/session.h"
#include "server/auth.h"

typedef struct server server;

typedef struct server_params {
    const char *host;         /* address or name, or the path of a socket (ends in .sock) */
    int port;                 /* 0: any free one */
    const char *alias;        /* name of the model for clients */
    const auth *keys;         /* NULL or empty: no key is asked for */
    const char *api_prefix;   /* in front of every route, "" for none */
    const char *cors_origins; /* NULL: no CORS; "*", or a comma list of origins */
    int max_connections;
    int64_t max_body;        /* bytes */
    int64_t max_body_memory; /* of all bodies at once; 0: eight of the largest */
    int ping_s;              /* comment line on silent streams; 0: never */
    int drain_ms;            /* after SIGTERM */
    int stall_s;             /* a stream whose client takes nothing for so long is cut */
    int watchdog_s;          /* /health fails when requests wait and no step ended for so long; 0: off */
    int default_max_tokens;  /* -1: up to the context */
    int metrics_vllm;
    int slots;                    /* 1: /slots answers */
    int page;                     /* 1: the page at / answers */
    int ignore_eos;               /* default of requests */
    int64_t seed;                 /* default of requests; -1: a new one for each */
    int catch_signals;            /* 1: SIGTERM, SIGINT and SIGHUP drain */
    int strict_model;             /* 1: another model's name in a request is 404 */
    int refuse_unknown;           /* 1: a field that nothing reads is 400 */
    kvant_sampler_params sampler; /* defaults of requests */
} server_params;

server_params server_defaults(void);
/* KVANT_EINVAL (a parameter), KVANT_EBUSY (address in use), KVANT_EIO.  Strings and keys must outlive the server. */
int server_open(const server_params *p, server **out, kvant_diag *diag);
/* "http://127.0.0.1:8686" or "unix:/run/kvant.sock" */
const char *server_url(const server *s);
int server_port(const server *s);
/* wake and wake_user for kvant_session_params. */
void server_wake(void *server_pointer);
/* The model is there (any thread; once).  All three stay the caller's and must outlive server_run. */
int server_attach(server *s, kvant_model *m, kvant_engine *e, kvant_session *session, kvant_diag *diag);
/* The model could not be loaded: server_run returns code and diag (any thread). */
void server_fail(server *s, int code, const kvant_diag *diag);
/* As SIGTERM (any thread); drain 0: at once. */
void server_stop(server *s, int drain);
/* Serves until stopped.  KVANT_OK after a drain. */
int server_run(server *s, kvant_diag *diag);
/* The signal that ended server_run although requests were running; 0: none. */
int server_killed_by(const server *s);
/* After the session is freed: its callbacks use the server. */
void server_close(server *s);

#endif
