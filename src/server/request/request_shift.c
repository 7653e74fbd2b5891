/* request_shift.c: what a full context means for a request: llama.cpp's n_keep and n_discard. */
#include <limits.h>

#include "server/request/request_impl.h"

/* Tokens of an answer that no context ends: they are kept until it is whole.  With log-probabilities so many values, as
 * of prompts (REQUEST_MAX_ECHO).  A whole answer that tells of each token keeps 184 bytes for it (token_prob): it has
 * fewer.  A stream sends them at once. */
enum { MOST_TOKENS = 1 << 20, MOST_TOLD = 1 << 17 };

static int most_tokens(const api_request *r)
{
    const int values = MOST_TOKENS / (1 + (r->probs.wanted ? r->probs.top : 0));
    const int told = !r->stream && (r->probs.wanted || r->native.return_tokens);

    return (told && values > MOST_TOLD ? MOST_TOLD : values) / r->n;
}

int request_read_shift(const request_env *env, const json_t *o, api_request *r, api_error *e)
{
    r->native.n_keep = env->keep;
    API_TRY(body_count(o, "n_keep", -1, INT_MAX, &r->native.n_keep, e));
    return body_count(o, "n_discard", 0, INT_MAX, &r->native.n_discard, e);
}

/* As llama-server counts: the token before every text is none of n_keep. */
static int kept(const request_env *env, const api_request *r, const prompt *p)
{
    const int bos = kvant_token_add_bos(env->model) && p->n > 0 && p->ids[0] == kvant_token_bos(env->model);

    return r->native.n_keep < 0 || r->native.n_keep == INT_MAX ? r->native.n_keep : r->native.n_keep + bos;
}

void request_put_shift(const request_env *env, const api_request *r, const prompt *p, kvant_request *q)
{
    const int most = most_tokens(r);

    if (!env->shift)
        return;
    q->shift = 1;
    q->n_keep = kept(env, r, p);
    q->n_discard = r->native.n_discard;
    if (q->max_tokens < 0 || q->max_tokens > most)
        q->max_tokens = most;
}
