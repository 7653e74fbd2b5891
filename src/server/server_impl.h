/* server/server_impl.h: the server's insides, shared by its files.
 *
 * Threads: everything here belongs to the loop thread but what says otherwise.  A job is shared with the session's
 * owner thread, which runs its callbacks; job->lock guards the fields under that heading.  server->dirty_lock
 * guards the list of jobs with news.  Bodies are read by the workers (worker.c). */
#ifndef KVANT_SERVER_SERVER_IMPL_H
#define KVANT_SERVER_SERVER_IMPL_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include "server/grammar_work.h"
#include "server/metrics.h"
#include "server/request.h"
#include "server/server.h"
#include "server/textout.h"

enum {
    MAX_STREAM_BYTES = 256 << 10, /* unsent bytes of one stream; beyond it the client is cut */
    STREAM_HIGH = 128 << 10,      /* from here on its request is paused, */
    STREAM_LOW = 32 << 10,        /* and goes on below this */
    MAX_HEADERS = 100,
    HEADER_BYTES = 16 << 10,
    WORKERS = 2,            /* threads that read bodies (worker.c) */
    SPARE_CONNECTIONS = 16, /* beyond --max-connections: room for those that are being shut, and for /health */
    KEEP_ALIVE_S = 60,      /* headers of the next request after a response */
};

typedef struct job job;
typedef struct client client;
typedef struct call call;

/* One token's probabilities, kept until they are sent. */
typedef struct token_prob {
    int32_t token;
    float logprob;
    int n_top;
    kvant_token_prob top[REQUEST_MAX_LOGPROBS];
} token_prob;

typedef struct choice {
    job *job;
    int index;
    uint64_t id; /* session request; 0: not submitted */
    /* owner thread, or under job->lock */
    textout out;
    sbuf text; /* not sent yet (streams), or all of it */
    token_prob *probs;
    int n_probs, cap_probs;
    size_t text_sent; /* characters before `text` (text_offset of completions) */
    int role_sent, ended, finish, n_generated, n_prompt, n_cached;
    int waits; /* WAIT_*: why no further token may be chosen */
    int held;  /* the session holds it: to be resumed when nothing of that is left */
    int64_t last_token_ns;
    kvant_timings timings;
    float *embedding;
    /* owner thread only, but while WAIT_MASK: the grammar thread */
    grammar_run *run;
    int grammar_done;
    /* owner thread only */
    const char *echo; /* points into the job */
} choice;

enum { WAIT_CLIENT = 1, WAIT_MASK = 2 }; /* for the client to read; for the mask of the next token */

enum job_kind { JOB_GENERATE, JOB_EMBED, JOB_SLOT, JOB_LIVE, JOB_WORK };

/* A body that is read beside the loop (worker.c); its job's, and the worker's until the job is done. */
typedef struct work work;
typedef int (*work_fn)(work *w, api_error *e); /* API_OK with result or reply set, or the error's kind.  Any thread. */
struct work {
    server *s;
    job *job;
    work_fn fn;
    int key;
    sbuf body;
    int64_t reserved; /* of the budget of bodies */
    char ignored[REQUEST_IGNORED];
    job *result;      /* a request that runs now, */
    jsonw reply;      /* or the answer */
    work *next;
};

typedef struct work_list {
    work *first, *last;
} work_list;

typedef struct workers {
    pthread_mutex_t lock; /* guards all but thread, n and open, which are the loop's */
    pthread_cond_t news;
    work_list *lists; /* of tenant t: small ones at 2 t, large ones at 2 t + 1 */
    int waiting[2], turn[2], stop;
    pthread_t thread[WORKERS];
    int n, open;
} workers;

struct job {
    server *s;
    int kind;
    _Atomic int refs; /* the connection, each running choice, the dirty list */
    int chat, stream, include_usage, logprobs, base64, min_tokens, echo;
    int n_choices;
    char id[40];
    int64_t created;
    char *stop_text[REQUEST_MAX_STOPS];
    int stop_len[REQUEST_MAX_STOPS], n_stops;
    text_stops stops;
    char **prompt_texts; /* echo */
    int n_prompt_texts;
    grammar *grammar; /* until its runs are made */
    unsigned lane;    /* whose: masks are made in turns over these */
    pthread_mutex_t lock;
    /* under lock */
    sbuf out; /* stream: bytes to send */
    int n_ended, done, gone, n_paused; /* n_paused: choices with WAIT_CLIENT */
    int held_s; /* seconds that it was paused while others waited */
    api_error error;
    work *work; /* of JOB_WORK */
    kvant_slot_result slot;
    char slot_text[256];
    int slot_action;
    char slot_name[65];
    /* under server->dirty_lock */
    int dirty;
    job *dirty_next;
    /* loop thread: the list that it took over; dirty_next may already belong to a new one */
    job *taken_next;
    /* loop thread */
    struct MHD_Connection *conn;
    client *client;
    int suspended;
    int64_t last_out_ns, last_taken_ns, interval_ns, next_live_ns;
    job *prev, *next; /* server->jobs */
    choice choices[];
};

/* One connection. */
struct client {
    int fd, watched;
    int64_t since_ns; /* accepted, or the last response was done */
    int64_t call_ns;  /* headers of the current request were read; 0: none */
    int fresh;        /* no request yet */
    size_t body_bytes;
    int body_done;
    int known; /* one of its requests was allowed to more than the public routes */
    int cut;   /* shut down to make room */
    job *job;
    client *prev, *next;
};

typedef struct route route;

/* One request on a connection. */
struct call {
    server *s;
    client *client;
    const route *route;
    const char *method;
    char path[96]; /* as it came, cut */
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

/* What is taken of what there is (budget.c). */
typedef struct tenant_use {
    _Atomic int64_t body_bytes;
    int calls; /* requests between head and end of the answer */
} tenant_use;

typedef struct budget {
    int64_t body_all, body_key; /* bytes of bodies at once: of all, of one key */
    int calls_key;              /* busy connections of one key */
    _Atomic int64_t body_bytes;
    int calls;
    tenant_use *tenants; /* by key index + 1 */
} budget;

struct server {
    server_params p;
    struct MHD_Daemon *daemon;
    int listen_fd, epoll, event_fd, timer_fd, signal_fd, mhd_fd;
    char url[160], socket_path[108];
    uint64_t socket_inode; /* of what we made under socket_path */
    int port;
    metrics metrics;
    int64_t started_ns, wall_s;
    _Atomic uint64_t next_id;
    uint64_t nonce;
    client *clients;
    job *jobs;
    int n_clients, n_streams, n_cut;
    budget budget;
    workers workers;
    int draining, stop, signals, killed_by;
    int64_t stop_ns;
    pthread_mutex_t dirty_lock; /* guards dirty, and what other threads tell the loop below */
    job *dirty;
    int asked_stop, asked_drain;
    int fail_code;
    kvant_diag fail_diag;
    _Atomic int ready; /* set last by server_attach: model, engine, session, env, vocab are there */
    kvant_model *model;
    kvant_engine *engine;
    kvant_session *session;
    grammar_vocab *vocab;
    grammar_work *masks; /* makes masks beside the steps */
    request_env env;
    char chat_problem[256]; /* why chats are refused; "" when they are not */
};

/* ---- respond.c ---- */
/* Queues a whole response. */
enum MHD_Result respond(call *c, struct MHD_Connection *conn, int status, const char *type, const char *body, size_t n);
enum MHD_Result respond_json(call *c, struct MHD_Connection *conn, int status, jsonw *w); /* frees w */
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

/* ---- budget.c ---- */
int budget_open(server *s, kvant_diag *diag);
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

/* ---- worker.c ---- */
int workers_start(server *s, kvant_diag *diag);
void workers_stop(server *s); /* before the session goes */
/* The call's body goes to a worker, its connection waits. */
enum MHD_Result work_begin(call *c, struct MHD_Connection *conn, work_fn fn);
void work_drop_body(work *w);
void work_free(work *w);

/* ---- call.c: callbacks of libmicrohttpd ---- */
enum MHD_Result call_access(void *cls, struct MHD_Connection *conn, const char *url, const char *method,
                            const char *version, const char *data, size_t *n, void **con_cls);
void call_completed(void *cls, struct MHD_Connection *conn, void **con_cls, enum MHD_RequestTerminationCode how);
void call_connection(void *cls, struct MHD_Connection *conn, void **socket_context,
                     enum MHD_ConnectionNotificationCode what);
size_t call_keep_escapes(void *cls, struct MHD_Connection *conn, char *s);

/* ---- framing.c ---- */
/* What is wrong with the head of a request, or NULL. */
const char *framing_error(struct MHD_Connection *conn, const char *version);

/* ---- routes.c ---- */
typedef enum MHD_Result (*route_handler)(call *c, struct MHD_Connection *conn);
/* no key; needs the model; path ends in a number; an admin's, where there are keys; its body is short, since the loop
 * reads it */
enum { ROUTE_PUBLIC = 1, ROUTE_MODEL = 2, ROUTE_SLOT = 4, ROUTE_ADMIN = 8, ROUTE_SHORT = 16 };
struct route {
    const char *method, *path;
    route_handler handler;
    int flags;
};
/* *other: the path exists with another method. */
const route *route_find(const char *method, const char *path, int *other);
void route_slot_result(job *j, jsonw *w); /* the response of a slot or cache action; under job->lock */
int route_count(void);
const route *route_at(int i);

/* ---- job.c ---- */
/* n choices; one reference, the caller's.  NULL: no memory. */
job *job_new(server *s, int kind, int n);
void job_release(job *j);
/* Submits every choice of a parsed request; on error nothing runs on and *e says why.  key: its index, -1: none. */
int job_submit(job *j, const request *r, int key, const unsigned char salt[16], api_error *e);
int job_submit_embed(job *j, const embed_request *r, int key, const unsigned char salt[16], api_error *e);
/* Its client has read: choices that were paused go on where too little is left to send.  Without j->lock. */
void job_go_on(job *j);
/* The client left: cancels what runs. */
void job_gone(job *j);
/* Any thread: the loop shall look at it. */
void job_dirty(job *j);

/* ---- openai.c: shapes.  All under job->lock or before the job is shared ---- */
void openai_chunk(job *j, choice *c, const char *text, size_t n, const char *finish); /* to j->out */
void openai_end_stream(job *j);
void openai_error_frame(job *j);
void openai_whole(job *j, jsonw *w); /* the response of a generation that is done */
void openai_embeddings(job *j, jsonw *w);
void openai_models(server *s, jsonw *w);
const char *openai_finish(int finish);

/* ---- live.c ---- */
void live_json(server *s, jsonw *w); /* stats, slots: what the page shows */
void live_props(server *s, jsonw *w);
void live_slots(server *s, int all, jsonw *w); /* all: free ones too */
int live_trace(server *s, sbuf *out);          /* Chrome trace of the last steps */
void live_tick(server *s, int64_t now);        /* feeds the streams of /debug/events */

/* ---- ui.c ---- */
typedef struct ui_file {
    const char *name;
    const unsigned char *bytes;
    size_t n;
} ui_file;
const ui_file *ui_find(const char *name);
const char *ui_type(const char *name);

#endif
