/* server/api/tgi/tgi.h: /generate, /generate_stream and /info of Hugging Face's text-generation-inference. */
#ifndef KVANT_SERVER_API_TGI_H
#define KVANT_SERVER_API_TGI_H

#include "base/text/sbuf.h"

typedef struct api_request api_request;
typedef struct token_prob token_prob;

/* Parts of the answer that a request asks for. */
typedef struct tgi_wanted {
    int details, prefill; /* the tokens of the answer; of the prompt */
    int full_text;        /* the answer begins with the prompt */
    int truncate;         /* so many of the prompt's last tokens; 0: all */
} tgi_wanted;

typedef struct tgi_answer {
    int listed; /* the whole answer is the only item of a list */
    int max_tokens, n_ctx;
    tgi_wanted wanted;
    int has_seed;
    uint64_t seed;
    /* of a stream */
    int n_sent, waits;
    token_prob *last; /* the newest token; it waits while it may be the last one, which tells how the answer ended */
    sbuf text, said;  /* of that token; all of the answer */
} tgi_answer;

void tgi_take(tgi_answer *a, const api_request *r, int n_ctx);
void tgi_free(tgi_answer *a);

#endif
