/* session_check.c: a new request of a session: its checks, and its own copy of what the caller passed. */
#include <limits.h>
#include <string.h>

#include "base/abi/sized.h"
#include "base/mem.h"
#include "engine/sampler/sampler_impl.h"
#include "engine/session_impl.h"

static int check_prompt(const kvant_session *s, const kvant_request *r, kvant_diag *diag)
{
    if (!r->prompt || r->n_prompt < 1)
        return kvant_fail(diag, KVANT_EINVAL, "prompt: %d tokens, wanted at least 1", r->n_prompt);
    if (r->n_prompt > s->n_ctx)
        return kvant_fail(diag, KVANT_ENOSPC, "prompt: %d tokens, the context holds %d", r->n_prompt, s->n_ctx);
    for (int i = 0; i < r->n_prompt; i++)
        if (r->prompt[i] < 0 || r->prompt[i] >= s->n_vocab)
            return kvant_fail(diag, KVANT_EINVAL, "prompt: token %d is %d, wanted 0 to %d", i, r->prompt[i],
                              s->n_vocab - 1);
    return KVANT_OK;
}

static int check_logprobs(const kvant_session *s, const kvant_request *r, kvant_diag *diag)
{
    const int rows = s->e->p.logits_rows, want = s->max_seqs + KVANT_PAGE;

    if (r->n_logprobs < -1 || r->n_logprobs > MAX_LOGPROBS)
        return kvant_fail(diag, KVANT_EINVAL, "logprobs: %d, wanted -1 to %d", r->n_logprobs, MAX_LOGPROBS);
    if (r->n_prompt_logprobs < -1 || r->n_prompt_logprobs > MAX_LOGPROBS)
        return kvant_fail(diag, KVANT_EINVAL, "prompt logprobs: %d, wanted -1 to %d", r->n_prompt_logprobs,
                          MAX_LOGPROBS);
    if (r->n_prompt_logprobs < 0)
        return KVANT_OK;
    if (r->kind != KVANT_REQUEST_GENERATE || r->slot >= 0)
        return kvant_fail(diag, KVANT_EINVAL, "prompt logprobs: not together with %s",
                          r->slot >= 0 ? "a slot" : "an embedding");
    if (rows < want)
        return kvant_fail(diag, KVANT_EINVAL, "prompt logprobs: the engine has %d rows of logits, wanted %d", rows,
                          want);
    return KVANT_OK;
}

static int check_fields(const kvant_session *s, const kvant_request *r, kvant_diag *diag)
{
    if (r->kind < KVANT_REQUEST_GENERATE || r->kind > KVANT_REQUEST_EMBED_EACH)
        return kvant_fail(diag, KVANT_EINVAL, "request kind: %d, wanted 0 to %d", r->kind, KVANT_REQUEST_EMBED_EACH);
    if (r->max_tokens < -1)
        return kvant_fail(diag, KVANT_EINVAL, "max_tokens: %d, wanted -1 or more", r->max_tokens);
    KVANT_TRY(check_logprobs(s, r, diag));
    if (r->lora)
        KVANT_TRY(engine_lora_check(s->e->m, r->lora, "request", diag));
    if (r->n_stop_ids < 0 || r->n_stop_ids > 1024)
        return kvant_fail(diag, KVANT_EINVAL, "stop ids: %d, wanted 0 to 1024", r->n_stop_ids);
    if (r->slot < -1 || r->slot >= s->max_seqs)
        return kvant_fail(diag, KVANT_EINVAL, "slot: %d, wanted -1 to %d", r->slot, s->max_seqs - 1);
    KVANT_TRY(engine_in_range("most drafts", r->draft_max, -1, KVANT_MOST_DRAFTS, diag));
    KVANT_TRY(engine_in_range("least drafts", r->draft_min, -1, KVANT_MOST_DRAFTS, diag));
    KVANT_TRY(engine_in_range("context shift", r->shift, 0, 1, diag));
    KVANT_TRY(engine_in_range("tokens that a shift keeps", r->n_keep, -1, INT_MAX, diag));
    KVANT_TRY(engine_in_range("tokens that a shift drops", r->n_discard, 0, INT_MAX, diag));
    if (r->n_system < 0 || r->timeout_ns < 0)
        return kvant_fail(diag, KVANT_EINVAL, "request: %s is negative", r->n_system < 0 ? "n_system" : "timeout");
    return KVANT_OK;
}

/* The last generated token is never run, so n tokens need the pages of n - 1. */
static int check_room(const kvant_session *s, const kvant_request *r, int *most, kvant_diag *diag)
{
    const int pool = s->e->kv.pages.n;
    int64_t want = (int64_t)r->n_prompt + (r->kind == KVANT_REQUEST_GENERATE ? r->max_tokens : 0);
    const int64_t room = session_longest(s);

    if (kv_pages_for(r->n_prompt) > pool)
        return kvant_fail(diag, KVANT_ENOSPC, "prompt: %d tokens, the whole pool holds %d", r->n_prompt,
                          pool * KVANT_PAGE);
    *most = (int)(r->max_tokens >= 0 && want < room ? want : room);
    return KVANT_OK;
}

/* A sampler is large (several values per token of the vocabulary): one is made here to check its parameters, and the
 * request gets its own only when it starts, so that a long queue stays small. */
static int check_sampler(const kvant_session *s, const kvant_request *r, kvant_diag *diag)
{
    kvant_sampler *tried = NULL;

    if (!r->sampler)
        return KVANT_OK;
    KVANT_TRY(kvant_sampler_create(r->sampler, s->n_vocab, &tried, diag));
    kvant_sampler_free(tried);
    return KVANT_OK;
}

static int copy_ints(const int32_t **field, int n, kvant_diag *diag)
{
    int32_t *copy = NULL;

    if (n > 0) {
        copy = kvant_calloc((size_t)n, sizeof *copy);
        if (!copy)
            return kvant_fail(diag, KVANT_ENOMEM, "request: out of memory");
        memcpy(copy, *field, (size_t)n * sizeof *copy);
    }
    *field = copy;
    return KVANT_OK;
}

static int copy_bias(kvant_sampler_params *sp, kvant_diag *diag)
{
    const int32_t *ids = sp->bias_ids;
    const float *bias = sp->bias;

    sp->bias_ids = NULL;
    sp->bias = NULL;
    if (sp->n_bias <= 0 || !ids || !bias)
        return KVANT_OK;
    KVANT_TRY(copy_ints(&ids, sp->n_bias, diag));
    sp->bias_ids = ids;
    float *values = kvant_calloc((size_t)sp->n_bias, sizeof *values);
    if (!values)
        return kvant_fail(diag, KVANT_ENOMEM, "request: out of memory");
    memcpy(values, bias, (size_t)sp->n_bias * sizeof *values);
    sp->bias = values;
    return KVANT_OK;
}

static int copy_sampler(kvant_sampler_params *sp, kvant_diag *diag)
{
    const int32_t *breakers = sp->dry_breakers;

    sp->dry_breakers = NULL;
    KVANT_TRY(copy_bias(sp, diag));
    KVANT_TRY(copy_ints(&breakers, sp->n_dry_breakers, diag));
    sp->dry_breakers = breakers;
    return KVANT_OK;
}

/* Room for the scales of the adapters; the session's come when it is queued. */
static int copy_lora(request *q, const kvant_session *s, const kvant_request *r, kvant_diag *diag)
{
    const size_t n = (size_t)s->e->m->lora.n;

    if (n == 0)
        return KVANT_OK;
    q->lora = kvant_calloc(n, sizeof *q->lora);
    if (!q->lora)
        return kvant_fail(diag, KVANT_ENOMEM, "request: out of memory");
    if (r->lora)
        memcpy(q->lora, r->lora, n * sizeof *q->lora);
    return KVANT_OK;
}

/* Arrays become ours, or NULL where copying failed: request_free needs no more than that. */
static int copy_arrays(request *q, const kvant_session *s, const kvant_request *r, kvant_diag *diag)
{
    const int32_t *prompt = r->prompt, *stop_ids = r->stop_ids;

    q->r.prompt = NULL;
    q->r.stop_ids = NULL;
    q->r.sampler = NULL;
    q->r.lora = NULL;
    if (r->sampler) {
        q->sp = *r->sampler;
        KVANT_TRY(copy_sampler(&q->sp, diag));
    }
    KVANT_TRY(copy_lora(q, s, r, diag));
    KVANT_TRY(copy_ints(&prompt, r->n_prompt, diag));
    q->tokens = (int32_t *)(uintptr_t)prompt;
    KVANT_TRY(copy_ints(&stop_ids, r->n_stop_ids, diag));
    q->r.stop_ids = stop_ids;
    return KVANT_OK;
}

static int is_greedy(const kvant_sampler_params *p)
{
    return p->temp <= 0 && p->n_bias == 0 && p->repeat_penalty == 1 && p->presence_penalty == 0 &&
           p->frequency_penalty == 0 && !chain_is_on(p) && !repeat_is_on(p);
}

/* r, and the sampler in it, as this library's structs. */
static int take_request(const kvant_request *r, kvant_request *own, kvant_sampler_params *sampler, kvant_diag *diag)
{
    KVANT_TRY(params_take(own, sizeof *own, r, "kvant_request", diag));
    if (!own->sampler)
        return KVANT_OK;
    KVANT_TRY(params_take(sampler, sizeof *sampler, own->sampler, "kvant_sampler_params", diag));
    own->sampler = sampler;
    return KVANT_OK;
}

int request_create(const kvant_session *s, const kvant_request *theirs, request **out, kvant_diag *diag)
{
    kvant_request own = kvant_request_defaults(), *r = &own;
    kvant_sampler_params sampler = kvant_sampler_defaults();
    request *q;
    int most = 0, code;

    KVANT_TRY(take_request(theirs, r, &sampler, diag));
    KVANT_TRY(check_prompt(s, r, diag));
    KVANT_TRY(check_fields(s, r, diag));
    KVANT_TRY(check_room(s, r, &most, diag));
    KVANT_TRY(check_sampler(s, r, diag));
    q = kvant_calloc(1, sizeof *q);
    if (!q)
        return kvant_fail(diag, KVANT_ENOMEM, "request: out of memory");
    q->r = *r;
    q->seq = q->rolling = -1;
    q->n_tokens = r->n_prompt;
    q->most_tokens = most;
    atomic_store(&q->hold, r->held != 0);
    q->greedy = !r->sampler || is_greedy(r->sampler);
    if (r->kind != KVANT_REQUEST_GENERATE || r->n_prompt_logprobs >= 0)
        q->r.cache |= KVANT_CACHE_NO_READ; /* every token's hidden state, or logits, are wanted */
    q->t.n_prompt = r->n_prompt;
    q->drafts.luck.state = sampler.seed ^ 0x5EED5EED5EED5EEDu; /* other numbers than the sampler's */
    code = copy_arrays(q, s, r, diag);
    if (code < 0) {
        request_free(q);
        return code;
    }
    *out = q;
    return KVANT_OK;
}

void request_free(request *q)
{
    kvant_sampler_free(q->sampler);
    draft_ngram_free(&q->drafts.ngram);
    kvant_free(q->tokens);
    kvant_free(q->saved.data);
    kvant_free(q->hidden);
    kvant_free(q->lora);
    kvant_free((void *)(uintptr_t)q->r.stop_ids);
    kvant_free((void *)(uintptr_t)q->sp.bias_ids);
    kvant_free((void *)(uintptr_t)q->sp.bias);
    kvant_free((void *)(uintptr_t)q->sp.dry_breakers);
    kvant_free(q);
}
