/* server/api/responses/responses_items.h: the items of an answer of /v1/responses, which a whole answer and a stream
 * share.  All under job->lock. */
#ifndef KVANT_SERVER_API_RESPONSES_ITEMS_H
#define KVANT_SERVER_API_RESPONSES_ITEMS_H

#include "server/api/responses/responses_store.h"
#include "server/server_impl.h"

/* Adds an item; which: a call's number.  NULL: no memory, and the answer fails. */
response_item *response_add_item(job *j, int part, int which);
int response_is_custom(const job *j, const response_item *it); /* a call of a tool that takes a text */
void response_item_id(const job *j, int i, char id[RESPONSE_ID]);
const char *response_item_status(const job *j, int i);
void response_put_text(const char *key, const sbuf *text, jsonw *w);
void response_put_part(const response_item *it, const sbuf *text, jsonw *w); /* the part of a message or a thought */
void response_put_input(const char *key, const sbuf *args, jsonw *w); /* the text that a custom tool gets */
void response_put_item(const job *j, int i, int begins, const char *status, jsonw *w); /* begins: without its text */

const char *response_status(const choice *c);
void response_put(const job *j, const char *status, jsonw *w);
/* The next turn finds it under its id; one that is too large is not kept, and says so. */
void response_keep(job *j);
int response_wants_message(const choice *c);
void responses_whole(job *j, jsonw *w);

#endif
