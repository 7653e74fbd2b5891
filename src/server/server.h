/* server/server.h: kvant serve.  One loop thread (the caller of server_run) owns all connections; the session's owner
 * thread fills the buffers of requests and wakes the loop.  No thread per connection or stream.
 *
 * server_open listens; server_run serves.  A thread of the server loads models: the only one at once (/health answers
 * 503 until it is there), those of a router when requests name them.
 * SIGTERM and SIGINT drain, and SIGHUP where there is nothing to reload; a second one ends at once (server_run returns
 * KVANT_ECANCELED). */
#ifndef KVANT_SERVER_SERVER_H
#define KVANT_SERVER_SERVER_H

#include "kvant/session.h"
#include "server/http/auth.h"

typedef struct server server;

/* The parts of a loaded model. */
typedef struct server_parts {
    kvant_model *model;
    kvant_engine_params params;
    int64_t bytes; /* of its plan */
    const char *draft_path; /* of its own draft model, before `open`; NULL: the options' */
    kvant_engine *engine;
    kvant_session *session;
    kvant_model *draft_model; /* NULL: none */
    kvant_engine *draft;
} server_parts;

/* A repository's file that is in the cache -> its path. */
typedef int (*server_hub)(void *user, const char *repo, char *path, size_t cap, kvant_diag *diag);
/* All models of the cache: USER/NAME:TAG, and the path. */
typedef void (*server_each)(void *user, const char *name, const char *path);
typedef int (*server_cache)(server_each each, void *user, kvant_diag *diag);

/* News of a fetch; after a nonzero answer it ends.  `ended` is asked once a second, or more often. */
typedef struct server_fetch {
    int (*begun)(void *user, int64_t bytes); /* the repository has it, and the disk has room for so much */
    int (*progress)(void *user, const char *file, int64_t done, int64_t total);
    int (*ended)(void *user);
    void *user;
} server_fetch;

/* Changes the cache (docs/router.md); each by one thread at a time.  Errors as hub_pull and hub_remove (hub/hub.h). */
typedef struct server_downloads {
    int (*fetch)(const char *repo, const server_fetch *tell, kvant_diag *diag);
    int (*remove)(const char *name, int parts, kvant_diag *diag);
} server_downloads;

/* How models are loaded; called by one thread, one model at a time.  The server frees the parts that are there after an
 * error, too. */
typedef struct server_loader {
    void *user;
    int (*open)(void *user, const char *path, server_parts *p, kvant_diag *diag);       /* model, params, bytes */
    int (*start)(void *user, server *s, server_parts *p, kvant_diag *diag); /* engine, session (with server_wake) */
    const server_downloads *downloads; /* NULL: clients change nothing */
} server_loader;

/* A file, and its name for clients. */
typedef struct server_model {
    char *name, *path;
    char *draft; /* a draft model of its own, or NULL */
    int cached;  /* it is the hub's cache's */
    int hidden;  /* lists leave it out */
    int dedup;   /* of a preset: the cache's entries of its files are hidden */
} server_model;
/* The models of a folder by name: its *.gguf (of a model in parts the first one; no mmproj), and folders of one such
 * model.  KVANT_EINVAL: there is none. */
int server_models_of(const char *dir, server_model **list, int *n, kvant_diag *diag);
void server_models_free(server_model *list, int n);

/* The places that a router's list comes from: dir or preset, and the cache; NULL: not from there. */
typedef struct server_sources {
    const char *dir, *preset;
    int of_hub;     /* the preset came from a hub: it names files of hubs alone */
    server_hub hub; /* with preset */
    void *hub_user;
    server_cache cache;
    int may_be_empty;
} server_sources;
/* Those that f->preset names (docs/router.md).  KVANT_EINVAL with the line; the list is the caller's after errors. */
int server_models_preset(const server_sources *f, server_model **list, int *n, kvant_diag *diag);
/* The list is the caller's after errors too. */
int server_models_read(const server_sources *f, server_model **list, int *n, kvant_diag *diag);

/* On SIGHUP, loop thread: keys are read again; fn NULL: they cannot be.  queue_key: then a key's share of a queue. */
typedef struct server_renew {
    int (*fn)(void *user, kvant_diag *diag);
    int (*queue_key)(void *user);
    void *user;
} server_renew;

/* Routes that may be switched off: GET /slots, GET /metrics, the page at /. */
typedef struct server_open_routes {
    int slots, metrics, page;
} server_open_routes;

/* As another server: its names in /metrics, and what answers' header Server says (NULL: nothing). */
typedef struct server_compat {
    int vllm, llamacpp;
    const char *header;
} server_compat;

enum { SERVER_LOG_NONE, SERVER_LOG_TEXT, SERVER_LOG_JSON };

/* Defaults of requests about thoughts. */
typedef struct server_thoughts {
    int apart;    /* they come as reasoning_content */
    int budget;   /* most tokens of one; -1: any */
    int tell, on; /* tell 1: templates get enable_thinking, as `on` says */
} server_thoughts;

/* Names of the only model. */
typedef struct server_names {
    const char *aliases; /* all, with commas, or NULL: its name alone */
    const char *tags;    /* with commas, or NULL: /v1/models tells them */
    int strict;          /* 1: another model's name in a request is 404 */
} server_names;

/* Seconds of streams. */
typedef struct server_streams {
    int ping_s;  /* comment line on silent ones; 0: never */
    int stall_s; /* one whose client takes nothing for so long is cut */
    int keep_s;  /* those with a name are kept for so long; 0: they are not (http/kept.h) */
} server_streams;

typedef struct server_params {
    const server_model *models;
    int n_models;
    const server_loader *loader;
    server_sources sources; /* of a router: its list is read again there */
    int router;            /* 1: requests name a model, which is loaded when it is not there; 0: there is one */
    int models_max;        /* models that are loaded at once; 0: any number */
    int64_t models_memory; /* bytes of their plans together; 0: any */
    int autoload;          /* 0: only administrators load */
    int sleep_s;           /* a model that no request used for so long is unloaded until the next one; 0: never */
    const char *caches;    /* a folder of the sessions' for the cache of a model that is not loaded; NULL: none */
    const char *host;         /* addresses or names with commas, or the path of a socket (ends in .sock) */
    server_names names;
    int port;                 /* 0: any free one */
    const auth *keys;         /* NULL or empty: no key is asked for */
    server_renew renew;
    int access_log;           /* SERVER_LOG_*: a line on standard output for each request */
    const char *api_prefix;   /* in front of every route, "" for none */
    struct server_cors {
        const char *origins;           /* NULL: no CORS; "*", or a comma list of origins */
        const char *methods, *headers; /* of a preflight's answer; headers NULL: those that are asked for */
        int credentials; /* pages may send cookies; the origin goes back instead of "*" */
    } cors;
    int max_connections;
    int64_t max_body;        /* bytes */
    int64_t max_body_memory; /* of all bodies at once; 0: eight of the largest */
    server_streams stream;
    int drain_ms;            /* after SIGTERM */
    int watchdog_s;          /* /health fails when requests wait and no step ended for so long; 0: off */
    struct server_lengths {
        int max_tokens;  /* -1: up to the context */
        int shift, keep; /* 1: a full context ends no request (kvant_request.shift); n_keep, without BOS */
    } lengths;           /* defaults of requests, but for shift */
    server_compat compat;
    server_open_routes on;
    int ignore_eos;               /* default of requests */
    int64_t seed;                 /* default of requests; -1: a new one for each */
    int catch_signals;            /* 1: SIGTERM and SIGINT drain, SIGHUP reloads */
    int end_fd;                   /* a descriptor whose end is as SIGTERM; -1: none */
    int prefill;                  /* 1: a chat's last message, an assistant's, goes on */
    int keep_billing;             /* 1: system texts keep Claude Code's line for the bill */
    int refuse_unknown;           /* 1: a field that nothing reads is 400 */
    const char *tool_dialect;     /* NULL: as the model's template tells */
    server_thoughts thoughts;
    int pooling;                  /* KVANT_POOLING_*; UNSAID: as the file says */
    int verbose;                  /* default of requests: chats' answers tell their prompt */
    kvant_sampler_params sampler; /* defaults of requests */
} server_params;

server_params server_defaults(void);
/* KVANT_EINVAL (a parameter), KVANT_EBUSY (address in use), KVANT_EIO.  Strings and keys must outlive the server. */
int server_open(const server_params *p, server **out, kvant_diag *diag);
/* "http://127.0.0.1:8686" (of several addresses the first) or "unix:/run/kvant.sock" */
int server_is_token_list(const char *s); /* names of headers or methods, with commas between them */
const char *server_url(const server *s);
/* wake and wake_user for kvant_session_params. */
void server_wake(void *server_pointer);
/* 1: nothing more has to be loaded (a loader's thread, with the server as a pointer to anything). */
int server_ends(void *server_pointer);
/* Serves until stopped.  KVANT_OK after a drain; when the only model cannot be loaded, its error. */
int server_run(server *s, kvant_diag *diag);
/* The signal that ended server_run although requests were running; 0: none. */
int server_killed_by(const server *s);
/* After server_run: a thread does not end, and uses what server_close would free: the caller ends the process. */
int server_stuck(const server *s);
void server_close(server *s); /* and all models */

#endif
