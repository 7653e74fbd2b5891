/* session_token.c: the next token of a request: chosen by the device or a sampler, with log-probabilities, told to its
 * owner. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "engine/sampler/sampler_impl.h"
#include "engine/session_impl.h"

static int pick(kvant_session *s, request *q, const float *logits, int32_t *token, kvant_diag *diag)
{
    const float *x = logits;

    if (q->r.mask) {
        memcpy(s->scratch, logits, (size_t)s->n_vocab * sizeof *logits);
        const int code = q->r.mask(q->r.mask_user, s->scratch, s->n_vocab);
        if (code < 0)
            return kvant_fail(diag, code, "grammar: %s", kvant_error_text(code));
        x = s->scratch;
    }
    if (q->greedy) {
        *token = sampler_argmax(x, s->n_vocab);
        return *token >= 0 ? KVANT_OK
                           : kvant_fail(diag, KVANT_ENUMERIC, "logits: none is finite; the grammar bans every token");
    }
    const int code = kvant_sampler_pick(q->sampler, x, token, diag);
    if (code != KVANT_OK && (code != KVANT_ENUMERIC || (*token = sampler_argmax(x, s->n_vocab)) < 0))
        return code; /* else a bias or an n-gram bans all that a grammar leaves: the ban yields */
    return KVANT_OK;
}

/* Log-probability of token and the n most likely ones, by softmax over all of logits. */
static float logprobs(const float *logits, int v, int32_t token, kvant_token_prob *top, int n)
{
    double max = -INFINITY, sum = 0;
    int have = 0;

    for (int i = 0; i < v; i++) {
        const float x = logits[i];
        max = (double)x > max ? (double)x : max;
        if (n == 0 || (have == n && !(x > top[n - 1].logprob)))
            continue;
        int k = have < n ? have++ : n - 1;
        for (; k > 0 && x > top[k - 1].logprob; k--)
            top[k] = top[k - 1];
        top[k] = (kvant_token_prob){ i, x };
    }
    for (int i = 0; i < v; i++)
        sum += exp((double)logits[i] - max);
    for (int k = 0; k < have; k++)
        top[k].logprob = (float)((double)top[k].logprob - max - log(sum));
    return (float)((double)logits[token] - max - log(sum));
}

/* As logprobs, among the tokens that the sampler left; greedy choices are certain. */
static int left(const request *q, int32_t token, float *logprob, kvant_token_prob *top, int n)
{
    cand list[MAX_LOGPROBS] = { { 0, token } };
    int have = n > 0;

    *logprob = 0;
    if (!q->greedy)
        have = sampler_left(q->sampler, token, logprob, list, n);
    for (int i = 0; i < have; i++)
        top[i] = (kvant_token_prob){ list[i].id, list[i].logit };
    return have;
}

/* ---- the prompt ---- */

int request_tells_prompt(const request *q)
{
    return q->r.n_prompt_logprobs >= 0 && !q->prompt_done;
}

/* logits: those that came before the token at `index`; NULL: it is the first. */
static int tell(kvant_session *s, request *q, int index, const float *logits)
{
    kvant_token_prob top[MAX_LOGPROBS];
    kvant_event ev = {
        .kind = KVANT_EVENT_PROMPT, .token = q->tokens[index], .index = index, .logprob = NAN, .top = top
    };

    if (logits) {
        ev.n_top = q->r.n_prompt_logprobs < s->n_vocab ? q->r.n_prompt_logprobs : s->n_vocab;
        ev.logprob = logprobs(logits, s->n_vocab, ev.token, top, ev.n_top);
    }
    q->told = index + 1;
    return request_send(s, q, &ev);
}

/* Tokens told before a preemption are not told again. */
int request_tell_prompt(kvant_session *s, request *q, int item, int rows)
{
    const int first = request_len(s, q) - rows;
    int said = q->told == 0 ? tell(s, q, 0, NULL) : KVANT_EVENT_GO;

    for (int i = 0; i < rows && said != KVANT_EVENT_CANCEL; i++)
        if (first + i + 1 == q->told && q->told < q->r.n_prompt)
            said = tell(s, q, q->told, kvant_step_logits(s->e, item, i));
    return said;
}

/* ---- the answer ---- */

int request_is_stop(const kvant_session *s, const request *q, int32_t token)
{
    for (int i = 0; i < q->r.n_stop_ids; i++)
        if (q->r.stop_ids[i] == token)
            return 1;
    return !q->r.ignore_eos && kvant_token_is_eog(s->e->m, token);
}

/* by_luck: a draft that chance accepted; neither a grammar nor a thought goes on with it, as in llama-server. */
static void count_token(kvant_session *s, request *q, int32_t token, int by_luck)
{
    q->tokens[q->n_tokens++] = token;
    q->n_generated++;
    s->st.generated_tokens++;
    q->tenant->served += 1;
    if (q->n_generated == 1)
        q->t.first_token_ns = clock_ns();
    if (q->r.accepted && !by_luck)
        q->r.accepted(q->r.mask_user, token);
}

/* Returns how the owner's answer to a token ends the request: KVANT_FINISH_*, or NONE. */
static int finish_of(const kvant_session *s, request *q, int said, int32_t token)
{
    if (said == KVANT_EVENT_CANCEL)
        return KVANT_FINISH_CANCEL;
    if (said == KVANT_EVENT_PAUSE)
        atomic_fetch_add(&q->hold, 1);
    if (said == KVANT_EVENT_STOP || request_is_stop(s, q, token))
        return KVANT_FINISH_STOP;
    return q->n_tokens >= q->most_tokens && !request_may_shift(q) ? KVANT_FINISH_LENGTH : KVANT_FINISH_NONE;
}

/* The model's choice, which the device makes, or the sampler among all tokens or the device's likeliest. */
static int choose(kvant_session *s, request *q, int item, int row, int32_t *token, kvant_diag *diag)
{
    const float *logits = kvant_step_logits(s->e, item, row);

    return logits ? pick(s, q, logits, token, diag)
                  : kvant_step_sample_row(s->e, item, row, q->sampler, token, diag);
}

/* A draft stands where the model chose it.  Stated chances (draft_synth) decide instead, whatever the model
 * chose, but for a draft that would end the text. */
typedef struct verdict {
    int32_t draft; /* -1: none */
    int lucky, stands;
} verdict;

static verdict judge(kvant_session *s, request *q, int place, int32_t draft, int32_t chosen)
{
    const draft_synth *luck = &s->drafts.synth;
    int lucky;

    if (draft < 0 || luck->n == 0)
        return (verdict){ draft, 0, draft >= 0 && chosen == draft };
    lucky = synth_takes(luck, place, &q->drafts.luck) && !request_is_stop(s, q, draft) &&
            !kvant_token_is_eog(s->e->m, draft);
    return (verdict){ draft, lucky, lucky };
}

/* The token after the item's row at this place behind the last token.  v->draft: the guess of it; the rest is told. */
static int next_token(kvant_session *s, request *q, int item, int place, verdict *v, int32_t *token, kvant_diag *diag)
{
    const kvant_item *it = &s->step.items[item];
    const int row = (it->logits == KVANT_LOGITS_ALL ? it->n - 1 : 0) + place;
    const float *logits = kvant_step_logits(s->e, item, row);
    kvant_token_prob top[MAX_LOGPROBS];
    kvant_event ev = { .kind = KVANT_EVENT_TOKEN,
                       .prompt_done = q->t.n_prompt,
                       .index = q->n_generated,
                       .logprob = NAN,
                       .top = top,
                       .timings = &q->t };

    if (engine_row_code(s->e, item, row) < 0)
        return kvant_fail(diag, KVANT_ENUMERIC, "the model gave a result that is not a finite number");
    KVANT_TRY(choose(s, q, item, row, token, diag));
    *v = judge(s, q, place, v->draft, *token);
    if (v->lucky)
        *token = v->draft;
    if (!q->greedy)
        kvant_sampler_accept(q->sampler, *token);
    if (q->r.n_logprobs >= 0 && q->r.post_probs) {
        ev.n_top = left(q, *token, &ev.logprob, top, q->r.n_logprobs);
    } else if (q->r.n_logprobs >= 0) {
        ev.n_top = q->r.n_logprobs < s->n_vocab ? q->r.n_logprobs : s->n_vocab;
        ev.logprob = logprobs(logits, s->n_vocab, *token, top, ev.n_top);
    }
    ev.token = *token;
    count_token(s, q, *token, v->lucky);
    request_times(q);
    return finish_of(s, q, request_send(s, q, &ev), *token);
}

int request_next_tokens(kvant_session *s, request *q, int item, int32_t *token, kvant_diag *diag)
{
    const kvant_item *it = &s->step.items[item];
    const int tried = s->step.draft[item];
    int taken = 0, finish;

    for (;; taken++) {
        verdict v = { taken < tried ? it->tokens[1 + taken] : -1, 0, 0 }; /* the choice will stand in its place */
        finish = next_token(s, q, item, taken, &v, token, diag);
        if (finish != KVANT_FINISH_NONE || !v.stands || atomic_load(&q->hold) > 0)
            break;
    }
    if (tried > 0)
        draft_settle(s, q, taken, tried);
    if (taken > 0 && finish >= 0)
        KVANT_TRY(kvant_seq_accept(s->e, q->seq, taken, diag));
    return finish;
}
