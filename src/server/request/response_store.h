/* server/request/response_store.h: the answers of /v1/responses, for previous_response_id and for who asks for them
 * again.  In memory, by tenant, the oldest go first; any thread. */
#ifndef KVANT_SERVER_RESPONSE_STORE_H
#define KVANT_SERVER_RESPONSE_STORE_H

enum {
    RESPONSE_STORE_BYTES = 16 << 20, /* of one tenant */
    RESPONSE_STORE_COUNT = 1024,
    RESPONSE_ID = 48
};

typedef struct response_store response_store;

response_store *response_store_new(int n_tenants); /* NULL: no memory */
void response_store_free(response_store *s);       /* NULL is accepted */
/* The conversation that it ended with (messages, a JSON array), the response itself, and the items of its input: a line
 * each, its id, a tab and its JSON. */
enum { STORED_MESSAGES, STORED_RESPONSE, STORED_INPUT, STORED_PARTS };
/* A part (kvant_free), or NULL: this tenant has no such response (any more). */
char *response_store_get(response_store *s, int tenant, const char *id, int part);
/* 1: they are kept; 0: more than a tenant may have, or no memory. */
int response_store_put(response_store *s, int tenant, const char *id, const char *const parts[STORED_PARTS]);
int response_store_drop(response_store *s, int tenant, const char *id); /* 1: it was there */

#endif
