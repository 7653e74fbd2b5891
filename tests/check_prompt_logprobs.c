/* check_prompt_logprobs.c: log-probabilities of the tokens of a prompt: those of the logits of one plain step, once
 * each and in order, whatever else runs, after preemptions, and with what the prefix cache holds. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/session_impl.h"
#include "support/check.h"
#include "support/serve_rig.h"

enum { MANY = 12, LONGEST = 230, TOP = 3, AFTER = 120 };

static const char *const models[] = { "tests/golden/tiny/llama.gguf", "tests/golden/tiny/qwen35.gguf" };
static int32_t prompts[MANY][LONGEST];

typedef struct told {
    float logprob[LONGEST];
    kvant_token_prob top[LONGEST][TOP];
    int32_t answer[AFTER];
    int n, n_answer, wrong, finish, ends, cancel_at, n_cached, preempted;
    _Atomic int done;
} told;
static told alone[MANY], got[MANY];

static int length_of(int i)
{
    static const int lengths[] = { 1, 2, 63, 64, 65, 128, 129, 200, LONGEST };
    return lengths[i % 9];
}

static kvant_engine_params engine_params(int max_seqs, int pages, int rows)
{
    kvant_engine_params p = kvant_engine_defaults();
    p.threads = 1;
    p.max_seqs = max_seqs;
    p.n_ctx = 512;
    p.n_ubatch = 128;
    p.pool_tokens = (int64_t)pages * KVANT_PAGE;
    p.snapshots = 12;
    p.logits_rows = rows;
    return p;
}

static int on_event(void *user, const kvant_event *ev)
{
    told *o = user;

    if (ev->kind == KVANT_EVENT_PROMPT) {
        o->wrong += ev->index != o->n || o->n_answer > 0 || ev->n_top != (ev->index ? TOP : 0);
        o->logprob[o->n] = ev->logprob;
        memcpy(o->top[o->n], ev->top, (size_t)ev->n_top * sizeof *ev->top);
        return ++o->n == o->cancel_at ? KVANT_EVENT_CANCEL : KVANT_EVENT_GO;
    }
    if (ev->kind == KVANT_EVENT_TOKEN)
        o->answer[o->n_answer++] = ev->token;
    if (ev->kind != KVANT_EVENT_END)
        return KVANT_EVENT_GO;
    o->finish = ev->finish;
    o->ends++;
    o->n_cached = ev->n_cached;
    o->preempted = ev->timings->n_preempted;
    atomic_store(&o->done, 1);
    return KVANT_EVENT_GO;
}

static void submit(serve_rig *r, int i, int max_tokens, told *o)
{
    kvant_request q = kvant_request_defaults();
    kvant_diag d = { "" };
    const int cancel_at = o->cancel_at;

    memset(o, 0, sizeof *o);
    o->cancel_at = cancel_at;
    q.prompt = prompts[i];
    q.n_prompt = length_of(i);
    q.max_tokens = max_tokens;
    q.ignore_eos = 1;
    q.n_prompt_logprobs = TOP;
    q.event = on_event;
    q.user = o;
    uint64_t id;
    CHECK(kvant_session_submit(r->s, &q, &id, &d) == KVANT_OK, "submit: %s", d.text);
}

static void wait_for(told *o)
{
    const struct timespec ms = { 0, 200000 };

    while (!atomic_load(&o->done))
        nanosleep(&ms, NULL);
}

/* log(sum(exp(x))) */
static double log_sum(const float *x, int n)
{
    double max = -INFINITY, sum = 0;

    for (int i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (int i = 0; i < n; i++)
        sum += exp((double)x[i] - max);
    return max + log(sum);
}

/* By the definition, from the logits of one step of an engine of its own. */
static void check_values(const char *path, int i, const told *o)
{
    const kvant_model_params mp = { .size = sizeof(kvant_model_params), .path = path };
    const kvant_engine_params ep = engine_params(1, 8, LONGEST);
    const kvant_item it = { 0, prompts[i], length_of(i), 1, KVANT_LOGITS_ALL };
    kvant_model *m = NULL;
    kvant_engine *e = NULL;
    kvant_diag d = { "" };
    int seq;

    CHECK(kvant_model_open(&mp, &m, &d) == KVANT_OK && kvant_engine_create(m, &ep, &e, &d) == KVANT_OK &&
              kvant_seq_new(e, &seq, &d) == KVANT_OK && kvant_step(e, &it, 1, &d) == KVANT_OK,
          "%s: %s", path, d.text);
    const int v = kvant_model_get_info(m)->n_vocab;
    CHECK(isnan(o->logprob[0]), "%s: the first token has a log-probability", path);
    for (int k = 1; k < it.n; k++) {
        const float *x = kvant_step_logits(e, 0, k - 1);
        const double all = log_sum(x, v);
        int before = 0;
        CHECK(fabs((double)x[prompts[i][k]] - all - (double)o->logprob[k]) < 1e-5, "%s: prompt %d, token %d: %g", path,
              i, k, (double)o->logprob[k]);
        for (int t = 0; t < TOP; t++) {
            const kvant_token_prob *p = &o->top[k][t];
            CHECK(fabs((double)x[p->token] - all - (double)p->logprob) < 1e-5, "top %d of token %d", t, k);
            CHECK(t == 0 || p->logprob <= o->top[k][t - 1].logprob, "order of token %d", k);
        }
        for (int t = 0; t < v; t++)
            before += (double)x[t] - all > (double)o->top[k][TOP - 1].logprob + 1e-5;
        CHECK(before < TOP, "token %d: %d are likelier than the last of the top", k, before);
    }
    kvant_engine_free(e);
    kvant_model_close(m);
}

static int same(int i, const told *a, const told *b)
{
    const size_t n = (size_t)length_of(i);

    return a->n == b->n && a->n == length_of(i) && memcmp(a->logprob + 1, b->logprob + 1, (n - 1) * 4) == 0 &&
           memcmp(a->top[1], b->top[1], (n - 1) * sizeof a->top[0]) == 0;
}

/* All at once, beside requests that want none, in a pool that is too small for them. */
static void check_together(const char *path, int preempt, int pages)
{
    kvant_session_params sp = kvant_session_defaults();
    serve_out others[4] = { 0 };
    serve_rig r;
    kvant_diag d = { "" };
    int preempted = 0;

    sp.preempt = preempt;
    if (!serve_open(&r, path, engine_params(6, pages, 6 + KVANT_PAGE), sp))
        return;
    for (int i = 0; i < MANY; i++) {
        alone[i].cancel_at = 0;
        submit(&r, i, AFTER, &alone[i]);
        wait_for(&alone[i]);
        CHECK(alone[i].n == length_of(i) && alone[i].wrong == 0 && alone[i].n_answer == AFTER && alone[i].n_cached == 0,
              "%s: %d of %d tokens, %d wrong", path, alone[i].n, length_of(i), alone[i].wrong);
    }
    check_values(path, MANY - 4, &alone[MANY - 4]);
    check_values(path, 2, &alone[2]);
    for (int i = 0; i < MANY; i++) {
        kvant_request q = kvant_request_defaults();
        q.prompt = prompts[i % 4];
        q.n_prompt = LONGEST;
        q.max_tokens = 60;
        q.ignore_eos = 1;
        if (i < 4)
            CHECK(serve_submit(&r, &q, &others[i], &d) == KVANT_OK, "%s", d.text);
        got[i].cancel_at = i == 7 ? 70 : 0;
        submit(&r, i, i == 5 ? 0 : AFTER, &got[i]);
    }
    for (int i = 0; i < MANY; i++) {
        wait_for(&got[i]);
        preempted += got[i].preempted;
        CHECK(got[i].wrong == 0 && got[i].ends == 1, "%s: request %d: %d events out of order", path, i, got[i].wrong);
        if (i == 7) {
            CHECK(got[i].n == 70 && got[i].finish == KVANT_FINISH_CANCEL, "cancelled: %d events", got[i].n);
            continue;
        }
        CHECK(same(i, &got[i], &alone[i]), "%s: request %d: other values", path, i);
        CHECK(got[i].n_answer == (i == 5 ? 0 : AFTER) &&
                  memcmp(got[i].answer, alone[i].answer, (size_t)got[i].n_answer * 4) == 0,
              "%s: request %d: another answer", path, i);
    }
    for (int i = 0; i < 4; i++)
        serve_wait(&others[i]);
    CHECK(pages > 16 || preempted > 0, "%s: nothing was preempted", path);
    serve_close(&r);
}

/* What cannot be told is refused. */
static void check_refusals(void)
{
    for (int rows = 1 + KVANT_PAGE; rows < 3 + KVANT_PAGE; rows++) {
        kvant_request q = kvant_request_defaults();
        kvant_diag d = { "" };
        uint64_t id;
        serve_rig r;
        if (!serve_open(&r, models[0], engine_params(2, 8, rows), kvant_session_defaults()))
            return;
        q.prompt = prompts[0];
        q.n_prompt = 1;
        q.max_tokens = 0;
        q.n_prompt_logprobs = 0;
        const int code = kvant_session_submit(r.s, &q, &id, &d);
        CHECK(rows < 2 + KVANT_PAGE ? code == KVANT_EINVAL && strstr(d.text, "65 rows") && strstr(d.text, "wanted 66")
                                    : code == KVANT_OK,
              "%d rows: %s", rows, d.text);
        q.slot = 1;
        CHECK(kvant_session_submit(r.s, &q, &id, &d) == KVANT_EINVAL && strstr(d.text, "slot"), "%s", d.text);
        q.slot = -1;
        q.kind = KVANT_REQUEST_EMBED_MEAN;
        CHECK(kvant_session_submit(r.s, &q, &id, &d) == KVANT_EINVAL && strstr(d.text, "embedding"), "%s", d.text);
        q.n_prompt_logprobs = MAX_LOGPROBS + 1;
        CHECK(kvant_session_submit(r.s, &q, &id, &d) == KVANT_EINVAL && strstr(d.text, "21"), "%s", d.text);
        serve_close(&r);
    }
}

int main(void)
{
    for (int i = 0; i < MANY; i++)
        serve_tokens(prompts[i], LONGEST, 40 + (uint64_t)(i % 3));
    for (int m = 0; m < 2; m++)
        for (int preempt = 0; preempt < 2; preempt++) {
            check_together(models[m], preempt, 8);
            check_together(models[m], preempt, 40);
        }
    check_refusals();
    return check_end("check_prompt_logprobs");
}
