/* server/api/embed/embed.h: embeddings and ranks, of OpenAI's, llama.cpp's, Jina's and Text Embeddings Inference's
 * routes: their texts, and how far the session is with them. */
#ifndef KVANT_SERVER_API_EMBED_H
#define KVANT_SERVER_API_EMBED_H

#include "base/text/jsonw.h"
#include "server/request/request.h"

typedef struct job job;

typedef struct embed_answer {
    embed_request *request; /* some of its texts run or wait, the others follow as those end */
    unsigned char salt[16];
    /* under job->lock */
    int n_sent, filling; /* how many the session has got; a thread is at it */
} embed_answer;

/* The answer to one text: [n_rows][n_embd]; a rank has a score. */
typedef struct text_vectors {
    float *v;
    int n_rows;
    float score;
} text_vectors;

void embed_whole(job *j, jsonw *w); /* the response of JOB_EMBED and JOB_RERANK; under job->lock */

#endif
