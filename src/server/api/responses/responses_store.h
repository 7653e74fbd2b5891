/* server/api/responses/responses_store.h: the answers of /v1/responses, for previous_response_id and for who asks
 * for them again.  In memory, by tenant, the oldest go first; any thread. */
#ifndef KVANT_SERVER_RESPONSE_STORE_H
#define KVANT_SERVER_RESPONSE_STORE_H

#include <stdatomic.h>
#include <stddef.h>

enum {
    RESPONSE_STORE_BYTES = 16 << 20, /* of one tenant */
    RESPONSE_STORE_COUNT = 1024,
    RESPONSE_ID = 48
};

typedef struct response_store response_store;

/* A text that is shared; it goes with its last holder. */
typedef struct stored_text {
    char *s; /* ends with NUL */
    size_t n, bytes; /* bytes: that it takes */
    int readers;     /* answers that send it (http/answers.c) */
    _Atomic int refs;
} stored_text;

/* Takes s (kvant_alloc's, of so many bytes) over; one holder.  NULL: no memory, and s is the caller's still. */
stored_text *stored_text_new(char *s, size_t n, size_t bytes);
void stored_text_hold(stored_text *t);
void stored_text_release(stored_text *t); /* NULL is accepted */

response_store *response_store_new(int n_tenants); /* NULL: no memory */
void response_store_free(response_store *s);       /* NULL is accepted */
/* The conversation that it ended with (messages, a JSON array), the response itself, and the items of its input: a line
 * each, its id, a tab and its JSON. */
enum { STORED_MESSAGES, STORED_RESPONSE, STORED_INPUT, STORED_PARTS };
/* Whose: a key, and the cache_salt of the request (its hash; zeros: none). */
typedef struct store_owner {
    int tenant;
    unsigned char salt[32];
} store_owner;

store_owner store_owner_of(int tenant, const char *salt, size_t n); /* salt: NULL or empty: none */
/* A part, held, or NULL: this owner has no such response (any more). */
stored_text *response_store_get(response_store *s, const store_owner *o, const char *id, int part);
/* 1: they are kept; 0: more than a tenant may have, or no memory. */
int response_store_put(response_store *s, const store_owner *o, const char *id, const char *const parts[STORED_PARTS]);
int response_store_drop(response_store *s, const store_owner *o, const char *id); /* 1: it was there */

#endif
