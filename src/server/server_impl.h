/* server/server_impl.h: the server's insides, shared by its files.
 *
 * Threads: everything here belongs to the loop thread but what says otherwise.  server->dirty_lock guards the list of
 * jobs with news.  Bodies are read by the workers (worker.c). */
#ifndef KVANT_SERVER_SERVER_IMPL_H
#define KVANT_SERVER_SERVER_IMPL_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include "server/job.h"
#include "server/metrics.h"
#include "server/server.h"
#include "server/work_queue.h"

enum {
    MAX_STREAM_BYTES = 256 << 10, /* unsent bytes of one stream; beyond it the client is cut */
    STREAM_HIGH = 128 << 10,      /* from here on its request is paused, */
    STREAM_LOW = 32 << 10,        /* and goes on below this; */
    STREAM_TIGHT_HIGH = 8 << 10,  /* where streams hold their share already */
    STREAM_TIGHT_LOW = 2 << 10,
    SMALL_ANSWER = 4 << 10,       /* one that the library copies, uncounted */
    MAX_HEADERS = 100,
    HEADER_BYTES = 16 << 10,
    WORKERS = 4,            /* threads that read bodies (worker.c) */
    SPARE_CONNECTIONS = 16, /* beyond --max-connections: room for those that are being shut, and for /health */
    KEEP_ALIVE_S = 60,      /* headers of the next request after a response */
    MODEL_NAME = 256,
    MODELS_MOST = 1024,
    LISTEN_MOST = 8, /* addresses */
    ADDRESS_TEXT = 48,
};

typedef struct call call;
typedef struct sent_text sent_text; /* answers.c */

/* A body that is read beside the loop (worker.c); its job's, and the worker's until the job is done. */
typedef int (*work_fn)(work *w, api_error *e); /* API_OK with result or reply set, or the error's kind.  Any thread. */
struct work {
    work_node node; /* while it waits for a worker; of its key, large or not */
    server *s;
    job *job;
    work_fn fn;
    int shape;        /* of its route */
    served *m;        /* the model, held; NULL: not known yet */
    int picks;        /* it is for one */
    api_error refused; /* why there is none */
    int key, autoload;
    int admin; /* the key was an administrator's when the request came, or there are no keys */
    _Atomic int left; /* its client */
    sbuf body;
    int64_t reserved; /* of the budget of bodies */
    char ignored[REQUEST_IGNORED];
    job *result;      /* a request that runs now, */
    jsonw reply;      /* or the answer */
    work *next;       /* while it waits for its model */
};

typedef struct work_list {
    work *first, *last;
} work_list;

typedef struct workers {
    pthread_mutex_t lock; /* guards all but thread, n and open, which are the loop's */
    pthread_cond_t news;
    work_queue queue;
    int64_t moved_ns; /* a body was taken, or the first one came */
    _Atomic int stop;
    pthread_t thread[WORKERS];
    int n, open;
} workers;

/* One connection. */
struct client {
    int fd, watched;
    int64_t since_ns; /* accepted, or the last response was done */
    int64_t call_ns;  /* headers of the current request were read; 0: none */
    int fresh;        /* no request yet */
    size_t body_bytes;
    int body_done;
    int left; /* it has closed, while a request of it goes on (kept.h) */
    int known; /* one of its requests was allowed to more than the public routes */
    int cut;   /* shut down to make room */
    char address[ADDRESS_TEXT]; /* as it was when it connected: a reset socket tells none */
    job *job;
    client *prev, *next;
};

typedef struct route route;

/* One request on a connection. */
struct call {
    server *s;
    client *client;
    const route *route;
    served *m; /* with ROUTE_ONE: held; NULL: a router's request that names none */
    const char *method;
    char path[320]; /* as it came, cut */
    int api; /* whose errors it gets: ERROR_* */
    char allow[40]; /* methods that the path exists with */
    sbuf body;
    int64_t body_reserved; /* of the budgets of all bodies and of its key's */
    int key;               /* index of its API key, -1: none; its tenant is key + 1 */
    int counted;           /* among the busy connections */
    int answered;
    int status;
    char ignored[REQUEST_IGNORED]; /* fields of its body that nothing read: a header of the answer */
    int64_t t0_ns;
    job *job;
};

/* The part of each limit that a tenant uses (budget.c). */
typedef struct tenant_use {
    _Atomic int texts; /* to embed or to rank, of requests that have not ended */
    _Atomic int64_t body_bytes, stream_bytes;
    int64_t answer_bytes;
    int calls; /* requests between head and end of the answer */
    int kept;  /* streams (kept.h), */
    int64_t kept_bytes;
} tenant_use;

typedef struct budget {
    int64_t body_all, body_key; /* bytes of bodies at once: of all, of one key; so many of whole answers too */
    int calls_key;              /* busy connections of one key */
    _Atomic int64_t body_bytes, stream_bytes;
    int64_t answer_bytes, kept_bytes;
    int calls;
    tenant_use *tenants; /* by key index + 1 */
    struct key_use *uses; /* likewise (access.c) */
} budget;

/* A model that sleeps, as it was told when it fell asleep. */
typedef struct asleep_facts {
    char *props, *meta, *name; /* /props; meta of /v1/models; the name in its file; kvant_alloc's */
    int n_ctx;
    kvant_session_stats stats;
} asleep_facts;

/* A model: a file's name, and all that there is of it while it is loaded. */
enum { SERVED_NOT, SERVED_LOADING, SERVED_READY, SERVED_LEAVING };
struct served {
    server *s;
    const char *name; /* for clients */
    const char *path; /* of a router's models clients see the last part alone */
    const char *draft; /* a draft model of its own, or NULL */
    char *own_name, *own_path, *own_draft; /* of one that came later (models_reload.c) */
    _Atomic int unlisted;      /* its file went: nobody finds it by its name */
    _Atomic int cached, hidden; /* it is the hub's cache's; lists leave it out */
    _Atomic int fetching;       /* it is being downloaded: there is no file yet */
    /* under models.lock */
    int state;
    int users;   /* who holds it: requests; it stays as it is until nobody does */
    int goes;    /* it is to be unloaded when nobody holds it; new requests wait */
    int asked;   /* by an administrator, so that it is loaded although no request waits */
    int wished;  /* in the list of wishes */
    int failed;  /* the last attempt to load it */
    int asleep;  /* it was unloaded because nobody used it; the next request loads it */
    asleep_facts facts; /* while it is asleep */
    int cache_kept;     /* in a file, by this process; the loader's, and then the closing thread's */
    char why[256];
    int64_t bytes, used_ns, wished_ns;
    work_list parked; /* requests that wait for it */
    served *next_wish;
    /* the loader's while the model is not ready; constant for those who hold it */
    server_parts parts;
    kvant_model *model;
    kvant_engine *engine;
    kvant_session *session;
    grammar_vocab *vocab;
    tool_traits *traits;
    grammar_work *masks; /* makes masks beside the steps */
    request_env env;
    int parts_joined;       /* as request_env has it */
    char chat_problem[256]; /* why chats are refused; "" when they are not */
    metrics metrics;        /* since the server's start */
};

/* All models (router/models.c) and the thread that loads and unloads them (router/loader.c). */
typedef struct models {
    pthread_mutex_t lock; /* taken before a job's, never while one is held */
    pthread_cond_t news;
    served *list; /* constant, with room for `room` */
    int room;
    _Atomic int n; /* grows on the loop thread alone */
    served *wishes, *last_wish; /* to be loaded, the one that waits longest first */
    int stop, draining, running;
    int queue_key; /* places of one key in a session's queue since keys were read again; 0: as the session began */
    pthread_t thread;
} models;

/* A change of the hub's cache (router/downloads.c), in a thread of its own. */
typedef struct cache_task {
    server *s;
    char name[MODEL_NAME];
    int parts; /* a removal's: of downloads that broke alone */
    /* the loop's */
    int runs; /* the thread is to be joined */
    job *job; /* waits for what it says, held; NULL: answered */
    pthread_t thread;
    /* under downloads.lock */
    int cancel, begun, done, code;
    char why[256], file[256];
    int64_t file_done, file_total, told_ns;
} cache_task;

typedef struct downloads {
    pthread_mutex_t lock; /* taken after models.lock */
    cache_task fetch, removal;
    sbuf events; /* that no stream has yet */
} downloads;

/* The first address that is listened to, for the start's message and the end. */
typedef struct server_address {
    char url[160], socket_path[108];
    uint64_t socket_inode; /* of what we made under socket_path */
    int port;
} server_address;

/* Answers of all keys that stay for a while. */
typedef struct kept_answers {
    struct response_store *responses;
    struct kept_stream *streams; /* http/kept.h */
} kept_answers;

struct server {
    server_params p;
    struct MHD_Daemon *daemon;
    int listen_fds[LISTEN_MOST], n_listen, listens; /* listens: those but the first are watched */
    int epoll, event_fd, timer_fd, signal_fd, mhd_fd;
    server_address address;
    _Atomic uint64_t gone, http[6]; /* clients that left before their body was read; responses by status / 100 */
    int64_t started_ns, wall_s;
    _Atomic uint64_t next_id;
    unsigned char secret[32]; /* ids of requests are made of it */
    client *clients;
    sent_text *answers;
    job *jobs;
    int n_clients, n_streams, n_cut;
    budget budget;
    workers workers;
    int draining, stop, signals, killed_by;
    int stuck; /* a thread does not end */
    int64_t stop_ns;
    pthread_mutex_t dirty_lock; /* guards dirty, and what other threads tell the loop below */
    job *dirty;
    int not_loaded; /* the only model: the end comes at once, while that of a lost engine waits for last bytes */
    int fail_code;
    kvant_diag fail_diag;
    models models;
    downloads downloads;
    kept_answers kept;
};

/* ---- answers.c ---- */
struct stored_text;
/* A response that sends the text, which it holds; NULL: it has no room (its key's share, or all), or no memory. */
struct MHD_Response *answers_begin(call *c, struct stored_text *text);
int64_t answers_most(const server *s);         /* bytes of the greatest answer */
void answers_tick(server *s, int64_t now);     /* once a second: who reads too slowly is cut */
void answers_count_stream(job *j);             /* its unsent bytes.  Any thread, under j->lock */
int answers_tight(const job *j);               /* 1: streams hold their share: it pauses early */

/* ---- respond.c ---- */
/* Queues a whole response; fixed: the body is there as long as the program. */
enum MHD_Result respond_fixed(call *c, struct MHD_Connection *conn, int status, const char *type, const char *body,
                              size_t n);
/* The body is kvant_alloc's, and taken over. */
enum MHD_Result respond_text(call *c, struct MHD_Connection *conn, int status, const char *type, char *body, size_t n);
enum MHD_Result respond_stored(call *c, struct MHD_Connection *conn, struct stored_text *text); /* JSON; holds it */
enum MHD_Result respond_json(call *c, struct MHD_Connection *conn, int status, jsonw *w); /* frees w */
enum MHD_Result respond_success(call *c, struct MHD_Connection *conn); /* {"success": true} */
enum MHD_Result respond_error(call *c, struct MHD_Connection *conn, const api_error *e);
enum MHD_Result respond_fail(call *c, struct MHD_Connection *conn, int kind, const char *text); /* an api_error of it */
/* Sends the error past the library, for a request whose body will not be read; the caller closes (MHD_NO). */
void respond_cut(call *c, const api_error *e);
int origin_listed(const char *list, const char *origin);
/* Ties a job to the call: a stream's response is queued now, another one waits (suspended) for its end. */
enum MHD_Result respond_job(call *c, struct MHD_Connection *conn, job *j);
enum MHD_Result respond_done(call *c, struct MHD_Connection *conn); /* that end: the response of a job that is done */
void call_unlink_job(call *c);
void job_resume(job *j);              /* its connection goes on, if it waits */
void client_watch(client *k, int on); /* its socket in the loop's set, while it waits for a job */
const char *query_value(struct MHD_Connection *conn, const char *key);

/* ---- head.c ---- */
int server_has_keys(const server *s);
/* -1: the request may go on to its body, else the result of the answer that was queued. */
int head_check(call *c, struct MHD_Connection *conn, const char *url, const char *version);

/* ---- access.c ---- */
/* A key's use, for the operator; loop thread. */
typedef struct key_use {
    uint64_t requests, failed, prompt, cached, generated;
} key_use;
int access_open(server *s, kvant_diag *diag);
void access_close(server *s);
void access_address(const struct sockaddr *a, char out[ADDRESS_TEXT]); /* "unix"; NULL: "-" */
key_use access_tokens(job *j); /* of its request, as its answer's usage tells them */
void access_done(call *c, int whole);              /* a request has ended: counted, and logged if that is wanted */
void access_metrics(const call *c, sbuf *out); /* the counters of all keys for an administrator, else of the own one */

/* ---- budget.c ---- */
int budget_open(server *s, kvant_diag *diag);
void budget_share(server *s); /* what one key may have, by the number of keys; once the workers are there */
void budget_close(server *s);
/* Room for a body of so many bytes (-1: unknown, chunked), and for its first n bytes.  API_OK, or why not. */
int budget_body_begin(call *c, int64_t bytes, api_error *e);
int budget_body_grow(call *c, size_t n, api_error *e);
void budget_body_free(call *c);
void budget_body_release(server *s, int tenant, int64_t bytes); /* any thread */
/* A busy connection more, within what there is and what its key may have. */
int budget_call_begin(call *c, api_error *e);
void budget_call_end(call *c);
/* Shuts idle connections while there are more than allowed. */
void budget_make_room(server *s);
/* The tenant that has most: member is the place of an int64_t in tenant_use. */
int budget_greatest(const server *s, size_t member);

/* ---- worker.c ---- */
int workers_start(server *s, kvant_diag *diag);
/* Before the sessions go.  0: one does not end, so that nothing it uses may go. */
int workers_stop(server *s);
int workers_stuck(server *s, int64_t ns); /* bodies wait, and none was taken for so long */
void work_enqueue(work *w);   /* any thread: a worker shall go on with it */
/* The call's body goes to a worker, its connection waits. */
enum MHD_Result work_begin(call *c, struct MHD_Connection *conn);
int work_submitted(work *w, int kind); /* without its job, where that was not taken */
void work_drop_body(work *w);
void work_free(work *w);

/* ---- listen.c ---- */
int listen_open(server *s, kvant_diag *diag);
void listen_close(server *s);
/* As the library does with the first one: while all places are taken connections wait in the system. */
void listen_watch(server *s);
/* fd: the address of one of the server's fields.  1: it listens, and its connections were taken. */
int listen_accept(server *s, const void *fd);
int listen_is_host(const server *s, const char *name, size_t n); /* one of those that --host lists */

/* ---- call.c: callbacks of libmicrohttpd ---- */
enum MHD_Result call_access(void *cls, struct MHD_Connection *conn, const char *url, const char *method,
                            const char *version, const char *data, size_t *n, void **con_cls);
void call_completed(void *cls, struct MHD_Connection *conn, void **con_cls, enum MHD_RequestTerminationCode how);
void call_connection(void *cls, struct MHD_Connection *conn, void **socket_context,
                     enum MHD_ConnectionNotificationCode what);
size_t call_keep_escapes(void *cls, struct MHD_Connection *conn, char *s);

/* ---- framing.c ---- */
/* Returns the fault of a request's head, or NULL.  method: as the library handed it over, where the head begins. */
const char *framing_error(struct MHD_Connection *conn, const char *method, const char *version);

/* ---- live.c ---- */
void live_json(served *m, jsonw *w); /* stats, slots: what the page shows */
const char *live_ftype(const kvant_model *m); /* of most of its weights */
void live_props(served *m, int asleep, jsonw *w);
void live_tokenizer(const served *m, jsonw *w); /* members: the chat template and the texts of BOS and EOS */
void live_lora(served *m, jsonw *w);
void live_slots(served *m, int all, jsonw *w); /* all: free ones too */
int live_trace(served *m, sbuf *out);          /* Chrome trace of the last steps */
void live_tick(server *s, int64_t now);        /* feeds the streams of /debug/events */

/* ---- router/models.c: which models there are, who uses them; any thread ---- */
int models_open(server *s, kvant_diag *diag);
void models_end(server *s); /* nothing runs on: no request waits, no session is left */
void models_close(server *s);
void models_free_facts(asleep_facts *f);
/* One model alone has any name.  API_OK, or what there is instead. */
int models_named(server *s, const char *name, served **m, api_error *e);
int models_is_listed(const served *m);
int models_is_named(const served *m, const char *name); /* "NAME:latest" is Ollama's way to write NAME */
/* For a while: a model that is ready stays so.  1: it is. */
int served_hold(served *m);
void served_share(served *m); /* once more, by one who holds it */
void served_release(served *m); /* NULL is accepted */
/* The model that was used last of those that are ready, held; NULL: none. */
served *models_last(server *s);
int models_ready(server *s); /* requests are taken: always, but by a server of one model that is loading */
/* The model of w's body into w->m.  1: go on, or w->refused; 0: w waits for it and comes back (work_enqueue). */
int models_pick(work *w);
/* 1: it will be loaded, or unloaded; 0: it is already, or it is on its way. */
int models_load(served *m);
int models_unload(served *m);
void models_drain(server *s, int64_t ms); /* new requests and those that wait for a model are refused */
void models_share(server *s, int queue_key); /* of each session's queue so many places for one key */
int models_busy(server *s);               /* requests that run or wait in a session */
int models_failed(server *s);             /* the code of an engine that stopped and ends the server; 0: none */
int models_loaded(server *s);             /* how many are ready */
/* The only model told and counted this until it fell asleep.  0: it does not sleep. */
int models_asleep(server *s, sbuf *props, kvant_session_stats *st);

/* ---- router/models_dir.c ---- */
int models_name_ok(const char *name, size_t n); /* printable UTF-8, shorter than MODEL_NAME */

/* ---- router/models_reload.c ---- */
int models_reload(server *s, kvant_diag *diag); /* loop thread; on error the list stays as it was */
served *models_entry(server *s, const char *name); /* also one that is not listed; NULL: none */
served *models_add(server *s, const char *name); /* without a file yet; loop thread; NULL: no room */

/* ---- router/downloads.c ---- */
void downloads_open(server *s);
int downloads_stop(server *s); /* 0: a thread does not end */
void downloads_close(server *s);
void downloads_tick(server *s); /* loop thread: what its threads have to tell, and events to who reads them */
/* API_OK: it began, and j (held from now on) gets its answer; loop thread. */
int downloads_fetch(server *s, const char *name, job *j, api_error *e);
int downloads_remove(server *s, const char *name, job *j, api_error *e);
int downloads_cancel(server *s, const char *name); /* 1: it was being downloaded; loop thread */
void downloads_put_progress(served *m, jsonw *w); /* {FILE: {"done": N, "total": N}}; loop thread */
/* An event of /models/sse; data: a JSON text, or NULL.  Any thread. */
void models_tell(server *s, const char *event, const char *name, const char *data);
void models_tell_status(served *m, const char *status);

/* ---- router/loader.c ---- */
int models_start(server *s, kvant_diag *diag);
int models_stop(server *s); /* the thread, 0: it does not end; models that are loaded stay */
void models_refuse(work *parked, int kind, const char *text); /* those that waited */

/* ---- router/served.c ---- */
/* Opens what requests need of a model whose parts are there. */
int served_open(served *m, kvant_diag *diag);
void served_stop(served *m);  /* masks; then the session may go */
void served_close(served *m); /* with its session, engine and model */
/* Save and restore the model's prefix cache in the folder of slots, if there is one. */
void served_keep_cache(served *m);
void served_find_cache(served *m);
void served_drop_cache(served *m); /* the file that served_keep_cache wrote, if it did */

/* ---- router/models_routes.c ---- */
void models_put(server *s, const char *key, void (*put)(served *m, jsonw *w), jsonw *w); /* a list of all of them */
/* The model that the path ends with, as JSON. */
enum MHD_Result models_answer(call *c, struct MHD_Connection *conn, void (*put)(served *, jsonw *));
int models_context(served *m); /* tokens, of one that is loaded or sleeps; 0: not known */
void models_put_meta(served *m, jsonw *w); /* of one that is held */
int models_is_other(served *m, const char *name, api_error *e);         /* not the only model's name */
void router_props(server *s, jsonw *w);
/* The query's `model`, unescaped; 0: it has none. */
int query_model(struct MHD_Connection *conn, char *name, size_t cap);

/* ---- http.c ---- */
/* server_run ends and returns code and diag (any thread). */
void server_fail(server *s, int code, const kvant_diag *diag);

/* ---- ui.c ---- */
typedef struct ui_file {
    const char *name;
    const unsigned char *bytes;
    size_t n;
} ui_file;
const ui_file *ui_find(const char *name);
const char *ui_type(const char *name);

#endif
