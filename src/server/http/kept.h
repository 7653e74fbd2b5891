/* server/http/kept.h: streams that their clients may come back to.  A request with the header X-Conversation-Id names
 * one; it goes on when its client leaves, its bytes are kept for a while, and GET /v1/stream reads them from any place
 * on (kept_routes.c), as llama-server's clients do.  Streams are of one key each; limits: docs/server-limits.md.  Loop
 * thread. */
#ifndef KVANT_SERVER_KEPT_H
#define KVANT_SERVER_KEPT_H

#include "server/server_impl.h"

enum {
    KEPT_NAME = 512,
    KEPT_BYTES = 4 << 20, /* the last ones of a stream */
    KEPT_KEY_BYTES = 16 << 20,
    KEPT_KEY_STREAMS = 64,
};

typedef struct kept_stream {
    server *s;
    char name[KEPT_NAME];
    int tenant;
    int listed; /* it is found by its name */
    job *job;   /* held: it reads the request, then it makes the stream; NULL: the stream has ended */
    int began;  /* it is a stream, and may be read */
    int lines;  /* job_sends_lines */
    int waits;  /* the job has more bytes than there is room for before a reader takes some */
    char *bytes; /* the last n of those that came, in room for cap */
    size_t n, cap;
    uint64_t lost; /* those that came before them */
    int64_t started_s, ended_s; /* for clients; 0: not yet */
    int64_t alone_ns;           /* since then nobody read it, or it has ended */
    int64_t last_ns;            /* bytes came */
    key_use use;                /* tokens, once it has ended */
    job *readers;
    struct kept_stream *prev, *next; /* server->kept.streams, the newest first */
} kept_stream;

/* Keeps the stream that the call's header names, if it names one: `reading` works for it.  A stream of its name stops.
 * API_OK, or why it cannot be kept. */
int kept_open(call *c, struct MHD_Connection *conn, job *reading, api_error *e);
/* The request is read: `made` (NULL: it was refused) goes on for the stream.  Gives the reader that its client is, or
 * `made` itself where that is no stream; NULL: none of these, or out of memory. */
job *kept_made(kept_stream *k, job *made);
void kept_news(job *j); /* of a job that works for a stream */
/* A new reader from byte `at` on, whose reference is the caller's.  NULL: no memory. */
job *kept_reader(kept_stream *k, uint64_t at, served *m);
void kept_feed(job *reader); /* it has sent what it had */
int kept_holds(const job *reader); /* the stream waits, and it is behind.  Under its lock */
/* The connection of this job is gone.  1: the job goes on without it. */
int kept_left(job *j);
void kept_stop(kept_stream *k); /* on request: its readers are told */
void kept_tick(server *s, int64_t now);
void kept_close(server *s);
key_use kept_use(const job *reader); /* tokens of the request that it is the client of */
kept_stream *kept_find(const server *s, int tenant, const char *name);
/* A name's bytes: printable UTF-8, not too many. */
int kept_check_name(const char *field, const char *name, size_t n, api_error *e);

#endif
