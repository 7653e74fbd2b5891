/* server/api/anthropic/anthropic.h: Anthropic's /v1/messages and Cohere's /v2/chat: what a stream has told so far. */
#ifndef KVANT_SERVER_API_ANTHROPIC_H
#define KVANT_SERVER_API_ANTHROPIC_H

/* The content blocks of a stream. */
typedef struct content_blocks {
    int n, open; /* begun; the newest one has not ended */
    int n_calls; /* begun; Cohere numbers calls apart */
    int part;    /* of the newest one: TOOL_* */
} content_blocks;

#endif
