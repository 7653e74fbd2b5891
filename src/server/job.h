/* server/job.h: one HTTP request's work in the session: a common part, and one struct for each kind and API.
 *
 * A job is shared with the session's owner thread, which runs its callbacks; job->lock guards the fields under that
 * heading, and the choices'. */
#ifndef KVANT_SERVER_JOB_H
#define KVANT_SERVER_JOB_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include "server/api/anthropic/anthropic.h"
#include "server/api/embed/embed.h"
#include "server/api/native/native.h"
#include "server/api/ollama/ollama.h"
#include "server/api/openai/openai.h"
#include "server/api/responses/responses.h"
#include "server/api/tgi/tgi.h"
#include "server/grammar/grammar_work.h"
#include "server/request/request.h"
#include "server/textout.h"
#include "server/tools/tool_parser.h"

typedef struct server server;
typedef struct client client;
typedef struct served served;
typedef struct work work;

/* One token's probabilities, kept until they are sent. */
typedef struct token_prob {
    int32_t token;
    float logprob;
    int n_top;
    int64_t at; /* characters of the visible text before it */
    kvant_token_prob top[REQUEST_MAX_LOGPROBS];
} token_prob;

/* Those of a choice that are not sent yet. */
typedef struct token_probs {
    token_prob *list;
    int n, cap, n_prompt; /* the first n_prompt are of the prompt's tokens */
} token_probs;

/* A tool call of an answer. */
typedef struct call_out {
    char id[24];
    const char *name; /* of the job's tools */
    sbuf args;        /* all of them; of a stream what is not sent yet is in choice.text */
    int complete;
} call_out;

/* When the grammar begins, and when a thought has to end (masks.c). */
enum { GATE_CLOSED, GATE_JUST_OPEN, GATE_OPEN, GATE_SHUT };
typedef struct gate {
    int run;
    tool_parser parser;
    sbuf since; /* the trigger: what the grammar has to see where a name makes the call */
    int thought, forcing, force_at; /* tokens of it; the next of job.gen.thought_end is due */
} gate;

typedef struct choice {
    job *job;
    int index;
    uint64_t id; /* session request; 0: not submitted */
    /* owner thread, or under job->lock */
    textout out;
    sbuf text; /* not sent yet (streams), or all of it */
    int part;  /* of a stream: what `text` is of, TOOL_TEXT, TOOL_THINK or TOOL_ARGS */
    sbuf piece;         /* scratch: text of one token */
    tool_parser parser; /* with job.gen.parses */
    sbuf thought;       /* whole answers */
    call_out *calls;
    int n_calls, cap_calls, call_sent; /* call_sent: a stream has told of the newest call */
    content_blocks blocks; /* of a stream of /v1/messages or /v2/chat */
    int new_line;          /* of /completion: its text has one */
    int64_t progress_ns;   /* its prompt began, for return_progress; 0: not yet */
    int unguarded;         /* no grammar holds its calls (any more) */
    token_probs probs;
    int64_t chars; /* of the visible text so far: echo and answer, without what is held back */
    int thought_cut; /* it ended within a thought */
    int cut_call;  /* a stop string, or the end, came within a call's arguments: it is no call */
    int role_sent, ended, finish, n_generated, n_prompt, n_cached;
    int n_thought; /* tokens of thoughts */
    int waits; /* WAIT_*: why no further token may be chosen */
    int held;  /* the session holds it: to be resumed when nothing of that is left */
    int64_t last_token_ns;
    kvant_timings timings;
    text_vectors vectors;
    /* owner thread only, but while WAIT_MASK: the grammar thread */
    grammar_run *run;
    gate gate;
    int grammar_done, masked;
    /* owner thread only */
    const char *echo; /* points into the job */
} choice;

enum { JOB_ID = 40 }; /* bytes of an id */
enum { WAIT_CLIENT = 1, WAIT_MASK = 2 }; /* for the client to read; for the mask of the next token */

enum job_kind { JOB_GENERATE, JOB_EMBED, JOB_RERANK, JOB_SLOT, JOB_LIVE, JOB_WORK, JOB_PREDICT, JOB_CACHE, JOB_READ };

/* How an API writes an answer.  All under job->lock or before the job is shared. */
typedef struct answer_shape {
    void (*chunk)(job *j, choice *c, int ends); /* to j->out: c->text as a part of kind c->part, or the end */
    void (*end_stream)(job *j); /* NULL: the choice's last event was the stream's */
    void (*error_frame)(job *j);
    void (*whole)(job *j, jsonw *w); /* the response of a generation that is done */
    void (*progress)(job *j, choice *c, const kvant_event *ev); /* to a stream: so much of the prompt is read */
} answer_shape;
extern const answer_shape openai_shape, anthropic_shape, native_shape, responses_shape, ollama_shape, tgi_shape,
    cohere_shape;
void event_frame(job *j, const char *name, jsonw *w); /* a named event; frees w */

/* JOB_GENERATE: how text is made, of whichever API; constant while choices run. */
typedef struct generation {
    const answer_shape *shape;
    int min_tokens;
    request_probs probs;
    int keep_tokens; /* their ids are part of the answer; 2: those of its end and of a stop string too */
    int progress, timings_each;
    char *stop_text[REQUEST_MAX_STOPS];
    int stop_len[REQUEST_MAX_STOPS], n_stops;
    text_stops stops;
    char **prompt_texts; /* for echo and /completion */
    int n_prompt_texts;
    grammar *grammar; /* until its runs are made */
    int grammar_begins;
    const grammar_vocab *vocab, *gate_vocab; /* of the grammar; of what lets it begin */
    const tool_traits *traits;
    tool_set *tools; /* those that may be called, or NULL */
    int parses;      /* texts are read for calls and thoughts */
    request_thoughts thoughts;
    const int32_t *thought_end;
    int n_thought_end;
    int64_t submitted_ns;
    /* of one API each */
    openai_answer openai;
    native_answer native;
    responses_answer responses;
    ollama_answer ollama;
    tgi_answer tgi;
} generation;

/* JOB_SLOT */
typedef struct slot_answer {
    kvant_slot_result result;
    int action;
    char name[65];
} slot_answer;

/* JOB_LIVE; loop thread */
typedef struct live_answer {
    int64_t interval_ns, next_ns;
    served *of; /* not held; NULL: of whichever was used last */
    int events; /* 1: it is of /models/sse instead, and gets no numbers */
} live_answer;

/* JOB_READ: a connection that reads a kept stream (http/kept.h); loop thread */
typedef struct kept_reading {
    struct kept_stream *of;
    uint64_t at; /* of the stream's bytes those that it has */
    int first;   /* it is the connection of the stream's request */
    job *next;
} kept_reading;

/* JOB_PREDICT: several requests of one body; their answers, and those that made no job.  left: not ended yet. */
typedef struct predict_item {
    job *job;
    jsonw reply;
    api_error error;
} predict_item;
typedef struct predict_answer {
    predict_item *items;
    int n;
    _Atomic int left;
} predict_answer;

/* The connection that waits for a job, and the lists that it is in; loop thread but for dirty. */
typedef struct job_link {
    struct MHD_Connection *conn;
    client *client;
    int suspended;
    int64_t last_out_ns, last_taken_ns;
    job *prev, *next; /* server->jobs */
    int dirty;        /* and dirty_next: under server->dirty_lock */
    job *dirty_next;
    job *taken_next; /* the list that the loop took over; dirty_next may already belong to a new one */
} job_link;

struct job {
    server *s;
    served *m; /* held; NULL: of none */
    int kind;
    _Atomic int refs; /* the connection, each running choice, the dirty list */
    int stream, n_choices;
    char id[JOB_ID];
    int64_t created;
    unsigned lane; /* whose: masks are made in turns over these */
    pthread_mutex_t lock;
    /* under lock */
    sbuf out; /* stream: bytes to send */
    int64_t counted; /* of them, in the budget */
    int n_ended, done, gone, n_paused; /* n_paused: choices with WAIT_CLIENT */
    int held_s; /* seconds that it was paused while others waited */
    api_error error;
    /* by kind */
    generation gen;
    embed_answer embed;
    slot_answer slot;
    live_answer live;
    predict_answer predict;
    kept_reading read;
    struct kept_stream *kept; /* that it works for; loop thread */
    int stopped;              /* with `gone`: by a request, and its client is told; loop thread */
    job *whole; /* that it is a part of, until it is done; under lock, and held */
    work *work;
    job_link link;
    choice choices[];
};

/* ---- job.c, job_events.c ---- */
int job_event(void *user, const kvant_event *ev); /* of a request; user: its choice */
/* n choices; one reference, the caller's, which holds m (or NULL) too.  NULL: no memory. */
job *job_new(server *s, served *m, int kind, int n);
void job_release(job *j);
void job_id_text(server *s, const char *begins, char out[JOB_ID]); /* a new one; any thread */
void job_make_id(job *j, const char *begins); /* a new j->id; any thread that has the job alone */
/* Submits every choice of a parsed request, of which it takes the tools; on error nothing runs on and *e says why.
 * key: its index, -1: none. */
int job_submit(job *j, api_request *r, int key, const unsigned char salt[16], api_error *e);
int job_submit_embed(job *j, embed_request *r, int key, const unsigned char salt[16], api_error *e); /* takes r */
void job_next_texts(job *j); /* one of its texts has ended: more of them.  Owner thread, without j->lock */
/* The job's client has read: choices that were paused go on where too little is left to send.  Without j->lock. */
void job_go_on(job *j);
/* ---- api/native/predict.c ---- */
void predict_ended(job *part); /* a part may be done: its whole hears of it.  Without part->lock */
void predict_gone(job *j);
void predict_whole(job *j, jsonw *w); /* under j->lock */
void predict_free(job *j);

/* ---- job.c ---- */
/* The client left: cancels what runs. */
void job_gone(job *j);
/* Any thread: the loop shall look at it. */
void job_dirty(job *j);

int job_sends_lines(const job *j); /* its stream is a JSON text a line, without comments */
int job_stop_waiting(choice *c,
                     int why); /* 1: nothing holds its session request any more: to be resumed.  Under j->lock */

/* ---- masks.c: callbacks of the session, and what prepares them ---- */
int masks_constrain(const choice *c); /* the grammar has begun */
/* Before c is submitted: makes its run of g (or NULL) and sets c->masked (the session shall ask for masks).  *held: it
 * is to be submitted on hold. */
int masks_first(choice *c, grammar *g, int *held, kvant_diag *diag);
int masks_logits(void *user, float *logits, int n_vocab);
void masks_accepted(void *user, int32_t token);

/* ---- answer.c: from tokens to text, thoughts and calls; under j->lock ---- */
void answer_begin(job *j, choice *c);
/* 1: a stop string is complete; KVANT_ENOMEM. */
int answer_token(job *j, choice *c, int32_t token);
void answer_flush(job *j, choice *c); /* what there is of a stream goes out; with probabilities even when it is empty */
void answer_end(job *j, choice *c);
void answer_last(job *j, choice *c); /* of a stream: what is left, and why it ended */
int answer_is_early(const choice *c); /* fewer visible tokens than min_tokens */
int64_t answer_characters(const char *s, size_t n);
int64_t answer_at(const choice *c); /* where in the visible text the next token begins, in characters */
/* After each token and at the end: log-probabilities of what is not visible go. */
void answer_settle(job *j, choice *c, int ended);
void answer_free(choice *c);

#endif
