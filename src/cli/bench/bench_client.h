/* cli/bench/bench_client.h: streamed HTTP requests to one server, many at once, from one thread: what bench-serve
 * measures with. Owns sockets, HTTP/1.1 framing and the event stream; decides nothing about load or numbers. */
#ifndef KVANT_CLI_BENCH_CLIENT_H
#define KVANT_CLI_BENCH_CLIENT_H

#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

typedef struct bc_url {
    char host[128], port[8], prefix[128];
} bc_url;
/* "http://host:port/prefix" (a final /v1 is dropped).  KVANT_EINVAL otherwise. */
int bc_parse_url(const char *text, bc_url *u, kvant_diag *diag);

typedef struct bc_request {
    /* given */
    const char *path, *body; /* path behind the prefix; body NULL: GET */
    size_t body_len;
    int64_t at_ns; /* not before this time (clock_ns) */
    int after;     /* not before request `after` has ended; -1: none */
    /* filled */
    int status;                                   /* of HTTP; 0: no answer */
    int64_t start_ns, first_ns, end_ns;           /* connected and sent; first streamed token; end of the answer */
    int chunks;                                   /* data events with text */
    int prompt_tokens, gen_tokens, cached_tokens; /* of usage; -1: not told */
    char *text;                                   /* the generated text, still escaped as in JSON; kvant_free */
    char *reply; /* an answer that is no stream, as it came; kvant_free */
    char error[96]; /* "" when it went well */
} bc_request;

typedef struct bc_options {
    const bc_url *url;
    const char *key; /* or NULL */
    int in_flight;   /* most at once */
    int64_t timeout_ns;
    /* Called before a request starts, to fill path and body; NULL: they are there. */
    int (*prepare)(void *user, int i, kvant_diag *diag);
    /* Called for every gap between two streamed tokens; NULL: none. */
    void (*gap)(void *user, int64_t ns);
    void *user;
} bc_options;

/* Runs all n; requests start in order.  KVANT_EIO only when nothing could be tried (no such host); a request's own
 * failure is in its error. */
int bc_run(const bc_options *o, bc_request *r, int n, kvant_diag *diag);
void bc_request_free(bc_request *r);

#endif
