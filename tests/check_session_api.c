/* check_session_api.c: what kvant/session.h promises about one request: limits, errors, events, sampling, masks,
 * log-probabilities, embeddings, slots, the queue's cap, time-outs, draining and the trace.  Ids in the texts (S-11
 * ...) are those of the reliability specification. */
#include <math.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "base/trace.h"
#include "engine/session_impl.h"
#include "support/check.h"
#include "support/serve_rig.h"

enum { CONTEXT = 192 };

static const char *const hybrid = "tests/golden/tiny/qwen35.gguf", *const dense = "tests/golden/tiny/llama.gguf";
static int32_t prompt[512];
static serve_out out, other;

static kvant_engine_params engine_params(int max_seqs, int pages)
{
    kvant_engine_params p = kvant_engine_defaults();
    p.threads = 1;
    p.max_seqs = max_seqs;
    p.n_ctx = CONTEXT;
    p.n_ubatch = 64;
    p.pool_tokens = (int64_t)pages * KVANT_PAGE;
    p.snapshots = 8;
    return p;
}

static kvant_request request_of(int n, int max_tokens)
{
    kvant_request q = kvant_request_defaults();
    q.prompt = prompt;
    q.n_prompt = n;
    q.max_tokens = max_tokens;
    q.ignore_eos = 1;
    return q;
}

/* ---- S-11: ends of the context and of the pool ---- */

static void check_limits(void)
{
    kvant_diag d = { "" };
    serve_rig r;

    if (!serve_open(&r, hybrid, engine_params(2, 8), kvant_session_defaults()))
        return;
    const struct {
        int n, want, made;
    } ends[] = { { CONTEXT - 1, -1, 2 }, { CONTEXT, -1, 1 }, { CONTEXT, 50, 1 },
                 { CONTEXT - 3, 2, 2 },  { 10, 0, 0 },       { 1, 1, 1 } };
    for (int i = 0; i < 6; i++) {
        kvant_request q = request_of(ends[i].n, ends[i].want);
        serve_one(&r, &q, &out);
        CHECK(out.n == ends[i].made && out.finish == KVANT_FINISH_LENGTH,
              "S-11 prompt %d, max %d: %d tokens, finish %d", ends[i].n, ends[i].want, out.n, out.finish);
    }
    kvant_request q = request_of(CONTEXT + 1, 1);
    CHECK(serve_submit(&r, &q, &out, &d) == KVANT_ENOSPC && strstr(d.text, "context"), "S-11: %s", d.text);
    serve_close(&r);

    if (!serve_open(&r, dense, engine_params(2, 2), kvant_session_defaults()))
        return;
    q = request_of(129, 1);
    CHECK(serve_submit(&r, &q, &out, &d) == KVANT_ENOSPC && strstr(d.text, "pool"), "S-08 too long: %s", d.text);
    q = request_of(100, 40); /* max_tokens is a bound: the pool ends earlier */
    serve_one(&r, &q, &out);
    CHECK(out.n == 29 && out.finish == KVANT_FINISH_LENGTH, "S-08: %d tokens of 40 until the pool ends", out.n);
    q = request_of(100, 29);
    serve_one(&r, &q, &out);
    CHECK(out.n == 29, "S-08: %d tokens, wanted the whole pool", out.n);
    q = request_of(100, -1);
    serve_one(&r, &q, &out);
    CHECK(out.n == 29 && out.finish == KVANT_FINISH_LENGTH, "S-08: %d tokens until the pool ends", out.n);
    serve_close(&r);
}

static void refused(serve_rig *r, kvant_request q, const char *word)
{
    kvant_diag d = { "" };
    const int code = serve_submit(r, &q, &out, &d);
    CHECK(code == KVANT_EINVAL && strstr(d.text, word), "%s: %s \"%s\"", word, kvant_error_name(code), d.text);
}

static void check_refusals(void)
{
    int32_t bad[2] = { 1, 1 << 28 };
    kvant_sampler_params sp = kvant_sampler_defaults();
    serve_rig r;
    kvant_request q;

    if (!serve_open(&r, dense, engine_params(2, 8), kvant_session_defaults()))
        return;
    q = request_of(0, 1), refused(&r, q, "prompt: 0 tokens");
    q = request_of(2, 1), q.prompt = bad, refused(&r, q, "token 1 is");
    q = request_of(2, -2), refused(&r, q, "max_tokens");
    q = request_of(2, 1), q.n_logprobs = 21, refused(&r, q, "logprobs");
    q = request_of(2, 1), q.slot = 2, refused(&r, q, "slot");
    q = request_of(2, 1), q.kind = 5, refused(&r, q, "kind");
    q = request_of(2, 1), q.n_stop_ids = -1, refused(&r, q, "stop ids");
    sp.top_p = 2;
    q = request_of(2, 1), q.sampler = &sp, refused(&r, q, "top_p");
    kvant_session_cancel(r.s, 12345);
    serve_close(&r);

    const size_t size = sizeof(kvant_session_params);
    kvant_session_params bad_params[] = { { size, .batch_tokens = 10 },
                                          { size, .ladder = 65 },
                                          { size, .preempt = 2 },
                                          { size, .prefill_first = -1 },
                                          { size, .max_queue = 4, .max_queue_tenant = 5 },
                                          { .batch_tokens = 0 } };
    const char *words[] = { "tokens per step", "ladder", "preemption", "prefill-first", "of a tenant",
                            "kvant_session_params.size: 0, wanted its sizeof" };
    const kvant_model_params mp = { .size = sizeof(kvant_model_params), .path = dense };
    const kvant_engine_params ep = engine_params(2, 8);
    kvant_model *m = NULL;
    kvant_engine *e = NULL;
    CHECK(kvant_model_open(&mp, &m, NULL) == KVANT_OK && kvant_engine_create(m, &ep, &e, NULL) == KVANT_OK, "open");
    for (int i = 0; e && i < 6; i++) {
        kvant_session *s = NULL;
        kvant_diag d = { "" };
        CHECK(kvant_session_create(e, &bad_params[i], &s, &d) == KVANT_EINVAL && strstr(d.text, words[i]), "%s",
              d.text);
    }
    kvant_engine_free(e);
    kvant_model_close(m);
}

/* ---- what comes out ---- */

/* The session's tokens are those of plain engine calls; log-probabilities are those of its logits. */
static void check_plain(void)
{
    const kvant_model_params mp = { .size = sizeof(kvant_model_params), .path = hybrid };
    const kvant_engine_params ep = engine_params(2, 8);
    int32_t want[12];
    kvant_model *m = NULL;
    kvant_engine *e = NULL;
    serve_rig r;

    CHECK(kvant_model_open(&mp, &m, NULL) == KVANT_OK && kvant_engine_create(m, &ep, &e, NULL) == KVANT_OK, "open");
    if (!e || !serve_open(&r, hybrid, ep, kvant_session_defaults()))
        return;
    serve_alone(e, prompt, 150, 12, want);
    kvant_request q = request_of(150, 12);
    serve_one(&r, &q, &out);
    CHECK(out.n == 12 && memcmp(want, out.tokens, sizeof want) == 0, "a session gives other tokens than plain steps");
    q.n_logprobs = 5;
    serve_one(&r, &q, &out);
    CHECK(memcmp(want, out.tokens, sizeof want) == 0, "log-probabilities change the tokens");
    int seq;
    kvant_seq_new(e, &seq, NULL);
    const kvant_item it = { seq, prompt, 150, 1, KVANT_LOGITS_LAST };
    CHECK(kvant_step(e, &it, 1, NULL) == KVANT_OK, "step");
    const float *x = kvant_step_logits(e, 0, 0);
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < r.n_vocab; i++)
        max = (double)x[i] > max ? (double)x[i] : max;
    for (int i = 0; i < r.n_vocab; i++)
        sum += exp((double)x[i] - max);
    CHECK_CLOSE(out.logprob[0], (double)x[want[0]] - max - log(sum), 1e-6, "log-probability of the first token");
    serve_close(&r);
    kvant_engine_free(e);
    kvant_model_close(m);
}

typedef struct top_check {
    int tokens, bad;
} top_check;

static int on_top(void *user, const kvant_event *ev)
{
    top_check *c = user;

    if (ev->kind != KVANT_EVENT_TOKEN)
        return KVANT_EVENT_GO;
    c->tokens++;
    double sum = 0;
    for (int i = 0; i < ev->n_top; i++) {
        sum += exp((double)ev->top[i].logprob);
        c->bad += i > 0 && ev->top[i].logprob > ev->top[i - 1].logprob;
    }
    c->bad += ev->n_top != 7 || sum > 1.0001 || ev->top[0].token != ev->token || ev->top[0].logprob != ev->logprob;
    return KVANT_EVENT_GO;
}

static void wait_ended(serve_rig *r, uint64_t n)
{
    kvant_session_stats st;
    const struct timespec ms = { 0, 300000 };

    do {
        nanosleep(&ms, NULL);
        kvant_session_get_stats(r->s, &st);
    } while (st.finished[1] + st.finished[2] + st.finished[3] + st.finished[4] < n);
}

static int ban_below(void *user, float *logits, int n)
{
    for (int i = 0; i < *(int *)user && i < n; i++)
        logits[i] = -INFINITY;
    return KVANT_OK;
}

static int refuse(void *user, float *logits, int n)
{
    (void)user;
    (void)logits;
    (void)n;
    return KVANT_EGATE;
}

static void count_accepted(void *user, int32_t token)
{
    (void)token;
    (*(int *)user)++;
}

static void check_choices(void)
{
    kvant_sampler_params sp = kvant_sampler_defaults();
    int least = 300, all = 1 << 28;
    top_check top = { 0, 0 };
    uint64_t id;
    serve_rig r;

    if (!serve_open(&r, dense, engine_params(4, 40), kvant_session_defaults()))
        return;
    kvant_request q = request_of(20, 10);
    q.n_logprobs = 7;
    q.event = on_top;
    q.user = &top;
    CHECK(kvant_session_submit(r.s, &q, &id, NULL) == KVANT_OK, "submit");
    wait_ended(&r, 1);
    CHECK(top.tokens == 10 && top.bad == 0, "%d tokens, %d bad lists of the most likely", top.tokens, top.bad);

    sp.seed = 5;
    q = request_of(20, 30);
    q.sampler = &sp;
    serve_one(&r, &q, &out);
    serve_one(&r, &q, &other);
    CHECK(out.n == 30 && memcmp(out.tokens, other.tokens, 120) == 0, "a seed gives other tokens the second time");
    sp.seed = 6;
    serve_one(&r, &q, &other);
    CHECK(memcmp(out.tokens, other.tokens, 120) != 0, "another seed gives the same tokens");

    q = request_of(20, 30);
    q.mask = ban_below;
    q.mask_user = &least;
    serve_one(&r, &q, &out);
    for (int i = 0; i < out.n; i++)
        CHECK(out.tokens[i] >= 300, "a masked token %d came out", out.tokens[i]);
    q.mask_user = &all;
    serve_one(&r, &q, &out);
    CHECK(out.finish == KVANT_FINISH_ERROR && out.code == KVANT_ENUMERIC && out.n == 0, "T-12: all masked: finish %d",
          out.finish);
    q.mask = refuse;
    serve_one(&r, &q, &out);
    CHECK(out.finish == KVANT_FINISH_ERROR && out.code == KVANT_EGATE, "a mask that fails: %s", out.text);
    int accepted = 0;
    q = request_of(20, 9);
    q.accepted = count_accepted;
    q.mask_user = &accepted;
    serve_one(&r, &q, &out);
    CHECK(accepted == 9, "%d tokens were told to the grammar", accepted);

    const int32_t stops[] = { out.tokens[3] };
    int first = 0;
    while (out.tokens[first] != stops[0])
        first++;
    q.stop_ids = stops;
    q.n_stop_ids = 1;
    serve_one(&r, &q, &other);
    CHECK(other.n == first + 1 && other.finish == KVANT_FINISH_STOP, "stop id: %d tokens, finish %d", other.n,
          other.finish);
    serve_close(&r);
}

static void check_embeddings(void)
{
    static float once[4096];
    serve_rig r;

    for (int i = 0; i < 2; i++) {
        kvant_engine_params ep = engine_params(4, 40);
        kvant_session_params sp = kvant_session_defaults();
        ep.n_ubatch = i ? 192 : 64;
        sp.batch_tokens = i ? 2048 : 68;
        if (!serve_open(&r, hybrid, ep, sp))
            return;
        kvant_request q = request_of(150, 0);
        q.kind = KVANT_REQUEST_EMBED_MEAN;
        serve_one(&r, &q, &out);
        CHECK(out.n_embd > 0 && out.n == 0 && out.finish == KVANT_FINISH_LENGTH, "embedding: %d values", out.n_embd);
        if (i == 0)
            memcpy(once, out.embedding, sizeof once);
        CHECK(memcmp(once, out.embedding, (size_t)out.n_embd * 4) == 0, "an embedding depends on the chunks");
        q.kind = KVANT_REQUEST_EMBED_LAST;
        serve_one(&r, &q, &other);
        CHECK(memcmp(other.embedding, out.embedding, (size_t)out.n_embd * 4) != 0, "mean and last are the same");
        q.n_prompt = 1;
        serve_one(&r, &q, &other);
        q.kind = KVANT_REQUEST_EMBED_MEAN;
        serve_one(&r, &q, &out);
        CHECK(memcmp(other.embedding, out.embedding, (size_t)out.n_embd * 4) == 0, "one token: mean and last differ");
        serve_close(&r);
    }
}

/* ---- queue, time-outs, draining ---- */

/* Submits n long requests to one place; returns how many were taken. */
static int fill(serve_rig *r, serve_out *outs, int n, int64_t timeout_ns)
{
    int taken = 0;

    for (int i = 0; i < n; i++) {
        kvant_diag d = { "" };
        kvant_request q = request_of(10, 100);
        q.timeout_ns = timeout_ns;
        const int code = serve_submit(r, &q, &outs[i], &d);
        CHECK(code == KVANT_OK || (code == KVANT_EBUSY && strstr(d.text, "full")), "%s", d.text);
        if (code == KVANT_OK)
            taken++;
        else
            outs[i].done = 1;
    }
    return taken;
}

static void check_queue(void)
{
    static serve_out outs[40];
    kvant_session_params sp = kvant_session_defaults();
    kvant_session_stats st;
    kvant_diag d = { "" };
    serve_rig r;
    int late = 0, ended = 0;

    sp.max_queue = 4;
    if (!serve_open(&r, dense, engine_params(1, 8), sp))
        return;
    const int taken = fill(&r, outs, 40, 0);
    CHECK(taken >= 4 && taken < 40, "S-08: %d of 40 taken with a queue of 4", taken);
    for (int i = 0; i < 40; i++)
        serve_wait(&outs[i]);
    kvant_session_get_stats(r.s, &st);
    CHECK(st.rejected == (uint64_t)(40 - taken) && st.submitted == (uint64_t)taken, "%llu rejected",
          (unsigned long long)st.rejected);
    fill(&r, outs, 5, 1);
    for (int i = 0; i < 5; i++) {
        serve_wait(&outs[i]);
        late += outs[i].finish == KVANT_FINISH_ERROR && outs[i].code == KVANT_EBUSY;
    }
    CHECK(late >= 3, "%d of 5 requests timed out in the queue", late);

    fill(&r, outs, 4, 0);
    kvant_session_drain(r.s, 0);
    kvant_request q = request_of(10, 1);
    CHECK(serve_submit(&r, &q, &out, &d) == KVANT_EBUSY && strstr(d.text, "draining"), "A-07: %s", d.text);
    for (int i = 0; i < 4; i++) {
        serve_wait(&outs[i]);
        ended += outs[i].ends;
        CHECK(outs[i].finish == KVANT_FINISH_LENGTH ||
                  (outs[i].finish == KVANT_FINISH_ERROR && outs[i].code == KVANT_ECANCELED),
              "A-07: finish %d, %s", outs[i].finish, outs[i].text);
    }
    CHECK(ended == 4, "I4: %d END events", ended);
    serve_close(&r);

    if (!serve_open(&r, dense, engine_params(1, 8), sp))
        return;
    fill(&r, outs, 4, 0);
    kvant_session_drain(r.s, 60000);
    for (int i = 0; i < 4; i++) {
        serve_wait(&outs[i]);
        CHECK(outs[i].finish == KVANT_FINISH_LENGTH, "A-07: what runs may finish: %s", outs[i].text);
    }
    serve_close(&r);

    if (!serve_open(&r, dense, engine_params(1, 8), sp))
        return;
    fill(&r, outs, 4, 0);
    serve_close(&r); /* freed while they run: each gets its END */
    for (int i = 0; i < 4; i++)
        CHECK(atomic_load(&outs[i].done) && outs[i].ends == 1, "I4: freed session, %d END events", outs[i].ends);
}

/* A3: one tenant's share of the queue is full; another's request is taken all the same, and what was preempted or has
 * ended counts no more than it waits. */
static void check_queue_share(void)
{
    static serve_out outs[12];
    kvant_session_params sp = kvant_session_defaults();
    kvant_request q = request_of(10, 60);
    serve_rig r;
    int taken = 0;

    sp.max_queue = 8;
    sp.max_queue_tenant = 2;
    if (!serve_open(&r, dense, engine_params(1, 8), sp))
        return;
    for (int round = 0; round < 2; round++) {
        taken = 0;
        for (int i = 0; i < 12; i++) {
            kvant_diag d = { "" };
            q.tenant = i < 11 ? 1 : 2;
            const int code = serve_submit(&r, &q, &outs[i], &d);
            CHECK(code == KVANT_OK || (i < 11 && code == KVANT_EBUSY && strstr(d.text, "this key's share")),
                  "A3: tenant %u: %s", q.tenant, d.text);
            outs[i].done |= code != KVANT_OK;
            taken += code == KVANT_OK && i < 11;
        }
        CHECK(taken >= 2 && taken < 11, "A3: %d of 11 taken with a share of 2", taken);
        for (int i = 0; i < 12; i++)
            serve_wait(&outs[i]);
    }
    serve_close(&r);
}

/* A13: both limits of the queue to the request.  Held requests wait until told to go on, so no clock decides. */
static void check_queue_exact(void)
{
    static const struct {
        uint32_t tenant;
        const char *refusal;
    } asked[] = { { 1, NULL }, { 1, NULL }, { 1, "share is full, 2" }, { 2, NULL }, { 3, NULL }, { 4, "full, 4" } };
    enum { N = sizeof asked / sizeof asked[0] };
    static serve_out outs[N];
    kvant_session_params sp = kvant_session_defaults();
    kvant_request q = request_of(10, 2);
    kvant_diag d;
    serve_rig r;

    sp.max_queue = 4;
    sp.max_queue_tenant = 2;
    if (!serve_open(&r, dense, engine_params(1, 8), sp))
        return;
    for (int i = 0; i < N; i++) {
        const char *refusal = asked[i].refusal;
        q.tenant = asked[i].tenant;
        q.held = 1;
        d.text[0] = 0;
        const int code = serve_submit(&r, &q, &outs[i], &d);
        CHECK(code == (refusal ? KVANT_EBUSY : KVANT_OK) && (!refusal || strstr(d.text, refusal)),
              "A13: request %d of tenant %u: code %d %s", i, q.tenant, code, d.text);
        outs[i].done |= code != KVANT_OK;
    }
    for (int i = 0; i < N; i++)
        if (!atomic_load(&outs[i].done))
            kvant_session_resume(r.s, outs[i].id);
    for (int i = 0; i < N; i++)
        serve_wait(&outs[i]);
    serve_close(&r);
}

static void check_priority(void)
{
    static serve_out outs[6];
    serve_rig r;
    int first = 1;

    if (!serve_open(&r, dense, engine_params(1, 8), kvant_session_defaults()))
        return;
    for (int i = 0; i < 6; i++) {
        kvant_request q = request_of(30, 60);
        q.priority = i == 5;
        CHECK(serve_submit(&r, &q, &outs[i], NULL) == KVANT_OK, "submit");
    }
    for (int i = 0; i < 6; i++)
        serve_wait(&outs[i]);
    for (int i = 2; i < 5; i++)
        first &= outs[5].t.started_ns < outs[i].t.started_ns;
    CHECK(first, "a higher priority started later");
    serve_close(&r);
}

/* ---- slots, reuse of decode steps, trace ---- */

static void check_slots(void)
{
    kvant_slot_info info[4];
    serve_rig r;

    if (!serve_open(&r, hybrid, engine_params(2, 6), kvant_session_defaults()))
        return;
    kvant_request q = request_of(70, 4);
    q.slot = 1;
    serve_one(&r, &q, &out);
    wait_ended(&r, 1);
    CHECK(kvant_session_slots(r.s, info, 4) == 2 && info[1].state == KVANT_SLOT_PARKED && info[1].n_tokens == 73 &&
              info[1].bytes > 0 && info[0].bytes == 0 && info[0].state == KVANT_SLOT_FREE,
          "slot 1: state %d, %d tokens", info[1].state, info[1].n_tokens);
    q = request_of(150, 2); /* does not begin with what is parked there */
    q.slot = 1;
    q.salt[3] = 9;
    serve_one(&r, &q, &out);
    CHECK(out.n_cached == 0, "another tenant continues a parked sequence: %d tokens", out.n_cached);
    for (int i = 0; i < 4; i++) { /* pages are needed: the parked one goes */
        q = request_of(180 - i, 10);
        serve_one(&r, &q, &other);
        CHECK(other.finish == KVANT_FINISH_LENGTH, "beside a parked sequence: %s", other.text);
    }
    serve_close(&r);
}

static void check_reuse_decode(const char *path)
{
    kvant_session_params sp = kvant_session_defaults();
    serve_rig r;

    sp.prefix_reuse_decode = 1;
    if (!serve_open(&r, path, engine_params(2, 12), sp))
        return;
    kvant_request q = request_of(60, 80);
    serve_one(&r, &q, &out);
    memcpy(prompt + 60, out.tokens, 80 * 4);
    q = request_of(150, 4);
    serve_one(&r, &q, &other);
    CHECK(other.n_cached == 128, "%s: %d tokens of decode steps were reused, wanted 128", path, other.n_cached);
    serve_tokens(prompt, 512, 1);
    serve_close(&r);
}

static void check_trace(void)
{
    static kvant_step_record rec[64];
    kvant_session_params sp = kvant_session_defaults();
    char path[] = "/tmp/kvant-trace-XXXXXX", *text = calloc(1, 1 << 20);
    serve_rig r;
    const int fd = mkstemp(path);

    CHECK(fd >= 0 && trace_open(path, NULL) == KVANT_OK, "trace file");
    close(fd);
    sp.n_trace = 16;
    if (!serve_open(&r, dense, engine_params(2, 12), sp))
        return;
    kvant_request q = request_of(100, 20);
    serve_one(&r, &q, &out);
    wait_ended(&r, 1);
    const int n = kvant_session_trace(r.s, rec, 64);
    CHECK(n == 16, "%d records, wanted 16", n);
    for (int i = 0; i < n; i++)
        CHECK(rec[i].t1_ns >= rec[i].t0_ns && (i == 0 || rec[i].step == rec[i - 1].step + 1) && rec[i].decode_rows <= 1,
              "record %d", i);
    serve_close(&r);
    CHECK(trace_close(NULL) == KVANT_OK, "trace file");
    FILE *f = fopen(path, "r");
    CHECK(f && text && fread(text, 1, (1 << 20) - 1, f) > 100 && strstr(text, "\"step\"") &&
              strstr(text, "\"decode rows\":1") && strstr(text, "\"ph\":\"C\""),
          "Chrome trace: %.200s", text ? text : "");
    free(text);
    if (f)
        fclose(f);
    unlink(path);
}

int main(void)
{
    serve_tokens(prompt, 512, 1);
    check_limits();
    check_refusals();
    check_plain();
    check_choices();
    check_embeddings();
    check_queue();
    check_queue_share();
    check_queue_exact();
    check_priority();
    check_slots();
    check_reuse_decode(dense);
    check_reuse_decode(hybrid);
    check_trace();
    return check_end("check_session_api");
}
