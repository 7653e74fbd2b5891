/* server/api/responses/responses.h: OpenAI's /v1/responses: what its request leaves for the answer, and the answer's
 * items. */
#ifndef KVANT_SERVER_API_RESPONSES_H
#define KVANT_SERVER_API_RESPONSES_H

#include <jansson.h>
#include "base/text/sbuf.h"

/* An answer repeats these fields of its request, each value as JSON, and the conversation that it goes on with
 * (messages of a chat, without the instructions). */
enum { RESPONSES_TOLD = 13 };
extern const char *const responses_told[RESPONSES_TOLD]; /* names */
typedef struct responses_body {
    char *told[RESPONSES_TOLD];
    char *history;
    sbuf items; /* of the input, as the store keeps them */
    json_t *names; /* of tools as the model sees them -> {"name", "namespace", "custom"}, where they differ */
    int store;
    unsigned char salt[32]; /* of cache_salt, whose the response is beside the key */
} responses_body;
void responses_body_free(responses_body *b); /* NULL is accepted */

/* A part of an answer. */
typedef struct response_item {
    int part, which; /* TOOL_TEXT, TOOL_THINK or TOOL_ARGS; of a call: which one */
    sbuf text;
} response_item;

typedef struct responses_answer {
    responses_body *body; /* NULL: of another API */
    response_item *items;
    int n_items, cap_items;
    int item_open, n_events; /* of a stream: the newest item has not ended; events sent */
} responses_answer;

void responses_answer_free(responses_answer *a);

#endif
