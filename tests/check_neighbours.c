/* check_neighbours.c: what one request of a session does harms no other: it stands still and gives its place away
 * (A5), a step with it fails (A1), it leaves nothing that others could find (A9). */
#include "support/store_rig.h"

#include <stdatomic.h>
#include <time.h>
#include "support/check.h"
#include "support/session_audit.h"

enum { MOST = 12, PROMPT = 150, GEN = 60 };

static const char *const dense = "tests/golden/tiny/llama.gguf", *const hybrid = "tests/golden/tiny/qwen35.gguf";
static int32_t prompts[MOST][PROMPT + GEN + 40];
static serve_out alone[MOST], got[MOST];

static kvant_engine_params engine_params(const char *type, int max_seqs, int pages)
{
    kvant_engine_params p = kvant_engine_defaults();
    p.type_k = p.type_v = type;
    p.threads = 1;
    p.max_seqs = max_seqs;
    p.n_ctx = 512;
    p.n_ubatch = 128;
    p.pool_tokens = (int64_t)pages * KVANT_PAGE;
    p.snapshots = 8;
    return p;
}

static kvant_request request_of(int i, int n)
{
    return store_request(prompts[i], n, GEN, -1, NULL);
}

/* Each by itself, from nothing and leaving nothing. */
static void run_alone(serve_rig *r, int n)
{
    for (int i = 0; i < n; i++) {
        serve_tokens(prompts[i], PROMPT, 40 + (uint64_t)i);
        kvant_request q = request_of(i, PROMPT);
        q.cache = KVANT_CACHE_NO_READ | KVANT_CACHE_NO_WRITE;
        serve_one(r, &q, &alone[i]);
    }
}

static void submit(serve_rig *r, int i, kvant_request q, int pause_at)
{
    kvant_diag d = { "" };

    got[i].stop_after = pause_at;
    got[i].stop_how = KVANT_EVENT_PAUSE;
    CHECK(serve_submit(r, &q, &got[i], &d) == KVANT_OK, "submit: %s", d.text);
}

/* Waits until `out` has so many tokens; what hangs must fail, not stand still. */
static int has_tokens(serve_out *out, int n)
{
    const struct timespec ms = { 0, 1000000 };

    for (int i = 0; i < 10000 && atomic_load(&out->seen) < n; i++)
        nanosleep(&ms, NULL);
    return atomic_load(&out->seen) >= n;
}

static int ends(serve_rig *r, serve_out *out)
{
    const struct timespec ms = { 0, 1000000 };

    for (int i = 0; i < 10000 && !atomic_load(&out->done); i++)
        nanosleep(&ms, NULL);
    const int ended = atomic_load(&out->done);
    if (!ended)
        kvant_session_cancel(r->s, out->id);
    return ended;
}

/* Requests `from` to `to` - 1 end with the bits that they have alone. */
static void check_end_alone(serve_rig *r, const char *path, const char *what, int from, int to)
{
    for (int i = from; i < to; i++)
        CHECK(ends(r, &got[i]) && serve_same(&got[i], &alone[i]),
              "%s: %s: request %d: other bits, or none: %d tokens (%s)",
              path, what, i, got[i].n, got[i].text);
}

static void audit(kvant_session *s)
{
    char why[200];
    CHECK(session_audit(s, why, sizeof why), "audit: %s", why);
}

static void watch(serve_rig *r)
{
    pthread_mutex_lock(&r->s->lock);
    r->s->hooks.after_tick = audit;
    pthread_mutex_unlock(&r->s->lock);
}

/* ---- A5: who does not read ---- */

/* `readers` requests stand still and hold every place, or all pages; two others end all the same; then the readers go
 * on with the bits that they have alone. */
static void check_paused(const char *path, const char *type, int preempt, int readers, int max_seqs, int pages)
{
    kvant_session_params sp = kvant_session_defaults();
    kvant_session_stats st;
    serve_rig r;

    sp.preempt = preempt;
    if (!serve_open(&r, path, engine_params(type, max_seqs, pages), sp))
        return;
    run_alone(&r, readers + 2);
    watch(&r);
    for (int i = 0; i < readers; i++)
        submit(&r, i, request_of(i, PROMPT), 3 + i);
    for (int i = 0; i < readers; i++)
        CHECK(has_tokens(&got[i], 3 + i), "A5: reader %d has %d tokens", i, got[i].n);
    for (int i = readers; i < readers + 2; i++)
        submit(&r, i, request_of(i, PROMPT), 0);
    check_end_alone(&r, path, "A5, behind slow readers", readers, readers + 2);
    kvant_session_get_stats(r.s, &st);
    CHECK(st.preempted_paused > 0, "A5: nobody gave way");
    for (int i = 0; i < readers; i++) {
        CHECK(!atomic_load(&got[i].done) && got[i].n == 3 + i, "A5: reader %d went on to %d tokens", i, got[i].n);
        kvant_session_resume(r.s, got[i].id);
    }
    check_end_alone(&r, path, "A5, slow reader", 0, readers);
    serve_close(&r);
}

/* Nobody waits: the paused one keeps its place. */
static void check_paused_alone(void)
{
    kvant_session_stats st;
    serve_rig r;

    if (!serve_open(&r, dense, engine_params("f16", 2, 12), kvant_session_defaults()))
        return;
    run_alone(&r, 2);
    submit(&r, 0, request_of(0, PROMPT), 4);
    CHECK(has_tokens(&got[0], 4), "A5: %d tokens", got[0].n);
    submit(&r, 1, request_of(1, PROMPT), 0);
    CHECK(ends(&r, &got[1]), "A5: the other ends");
    kvant_session_get_stats(r.s, &st);
    CHECK(st.preempted_paused == 0 && st.preempted_recompute == 0, "A5: preempted though nobody waited");
    kvant_session_resume(r.s, got[0].id);
    check_end_alone(&r, dense, "A5, the paused one", 0, 1);
    serve_close(&r);
}

/* The second turn of a conversation in slot 0, which goes on from decode steps: paused at `at`, or not (0). */
static void second_turn(serve_rig *r, int at, serve_out *out)
{
    kvant_request q = request_of(0, PROMPT);

    q.slot = 0;
    got[0].stop_after = 0;
    serve_one(r, &q, &got[0]);
    memcpy(prompts[0] + PROMPT, got[0].tokens, GEN * sizeof(int32_t));
    q = request_of(0, PROMPT + GEN + 20);
    serve_tokens(prompts[0] + PROMPT + GEN, 20, 77);
    q.slot = 0;
    out->stop_after = at;
    out->stop_how = KVANT_EVENT_PAUSE;
    CHECK(serve_submit(r, &q, out, NULL) == KVANT_OK, "submit");
    CHECK(at ? has_tokens(out, at) : ends(r, out), "A5: second turn");
}

/* It has the only place, by its name; its rows can be had from no prompt, so it is saved, whatever the session does
 * with others. */
static void check_paused_slot(const char *path)
{
    static serve_out undisturbed, turn;
    serve_rig r;

    if (!serve_open(&r, path, engine_params("f16", 1, 20), kvant_session_defaults()))
        return;
    run_alone(&r, 2);
    watch(&r);
    second_turn(&r, 0, &undisturbed);
    second_turn(&r, 5, &turn);
    submit(&r, 1, request_of(1, PROMPT), 0);
    check_end_alone(&r, path, "A5, behind a slow reader in a slot", 1, 2);
    kvant_session_resume(r.s, turn.id);
    CHECK(ends(&r, &turn) && serve_same(&turn, &undisturbed), "A5: the slot's conversation: other bits, or none (%s)",
          turn.text);
    serve_close(&r);
}

/* ---- A3: who has more than its part ---- */

/* One tenant's requests, `held` of them, hold every place, or all pages, and stand still without giving way; another
 * tenant's two end all the same, then the first one's go on with the bits that they have alone. */
static void check_share(const char *path, const char *type, int preempt, int held, int max_seqs, int pages)
{
    enum { MANY = 6 };
    kvant_session_params sp = kvant_session_defaults();
    kvant_session_stats st;
    serve_rig r;

    sp.preempt = preempt;
    if (!serve_open(&r, path, engine_params(type, max_seqs, pages), sp))
        return;
    run_alone(&r, MANY + 2);
    watch(&r);
    pthread_mutex_lock(&r.s->lock); /* the owner sleeps */
    r.s->yield_ns = INT64_MAX;
    pthread_mutex_unlock(&r.s->lock);
    for (int i = 0; i < MANY + 2; i++) {
        kvant_request q = request_of(i, PROMPT);
        q.tenant = i < MANY ? 1 : 2;
        q.salt[0] = 9;
        submit(&r, i, q, i < MANY ? 3 : 0);
        CHECK(i >= held || has_tokens(&got[i], 3), "A3: request %d has %d tokens", i, got[i].n);
    }
    check_end_alone(&r, path, "A3, behind another tenant's", MANY, MANY + 2);
    kvant_session_get_stats(r.s, &st);
    CHECK(st.preempted_share > 0 && st.preempted_paused == 0, "A3: %d gave way for a tenant with less",
          (int)st.preempted_share);
    for (int i = 0; i < MANY; i++)
        got[i].stop_after = 0;
    for (int i = 0; i < MANY; i++)
        kvant_session_resume(r.s, got[i].id);
    check_end_alone(&r, path, "A3, who gave way", 0, MANY);
    serve_close(&r);
}

/* A tenant that is alone, and one whose part the other does not want, keeps what it has. */
static void check_share_alone(void)
{
    kvant_session_stats st;
    serve_rig r;

    if (!serve_open(&r, dense, engine_params("f16", 2, 20), kvant_session_defaults()))
        return;
    run_alone(&r, 4);
    watch(&r);
    for (int i = 0; i < 4; i++) {
        kvant_request q = request_of(i, PROMPT);
        q.tenant = 1;
        submit(&r, i, q, 0);
    }
    check_end_alone(&r, dense, "A3, the only tenant", 0, 4);
    kvant_session_get_stats(r.s, &st);
    CHECK(st.preempted_share == 0, "A3: %d gave way though nobody has less", (int)st.preempted_share);
    serve_close(&r);
}

/* ---- A1: a step that fails ---- */

enum { BAD_TOKEN = 251, BAD_RUN = 4 };

static kvant_device_vt faulty;
static const kvant_device_vt *real;
static const kvant_session *session;
static int fail_at; /* copies of steps of several until one fails, once; 0: none does */

static int has_bad_run(const int32_t *x, size_t n)
{
    int run = 0;

    for (size_t i = 0; i < n; i++) {
        run = x[i] == BAD_TOKEN ? run + 1 : 0;
        if (run == BAD_RUN)
            return 1;
    }
    return 0;
}

/* Without memory for whatever has a run of bad tokens, and once for a copy by its number. */
static int copy_in(kvant_device *d, void *dst, const void *src, size_t bytes, kvant_diag *diag)
{
    const int once = session->step.n > 1 && fail_at > 0 && --fail_at == 0; /* who is alone would be at fault */

    if (has_bad_run(src, bytes / sizeof(int32_t)) || once)
        return kvant_fail(diag, KVANT_ENOMEM, "device: out of memory for %zu bytes", bytes);
    return real->copy_in(d, dst, src, bytes, diag);
}

/* bad: this request cannot be run; -1: none, and the copies number 1, 14, 27 ... fail once each. */
static void check_failed_step(const char *path, int preempt, int bad)
{
    enum { N = 8 };
    kvant_session_params sp = kvant_session_defaults();
    kvant_session_stats st;
    serve_rig r;

    sp.preempt = preempt;
    if (!serve_open(&r, path, engine_params("tbq4_0", N, 40), sp))
        return;
    run_alone(&r, N);
    watch(&r);
    for (int k = 0; k < BAD_RUN && bad >= 0; k++)
        prompts[bad][70 + k] = BAD_TOKEN;
    pthread_mutex_lock(&r.s->lock); /* the owner sleeps */
    session = r.s;
    real = r.e->place[0].dev->vt;
    faulty = *real;
    faulty.copy_in = copy_in;
    r.e->place[0].dev->vt = &faulty;
    pthread_mutex_unlock(&r.s->lock);
    for (int round = 0; round < (bad < 0 ? 12 : 1); round++) {
        fail_at = bad < 0 ? 1 + 13 * round : 0;
        for (int i = 0; i < N; i++) {
            kvant_request q = request_of(i, PROMPT);
            q.salt[0] = (unsigned char)(round + 1);
            submit(&r, i, q, 0);
        }
        for (int i = 0; i < N; i++) {
            CHECK(ends(&r, &got[i]), "A1: request %d does not end", i);
            if (i == bad)
                CHECK(got[i].finish == KVANT_FINISH_ERROR && got[i].code == KVANT_ENOMEM &&
                          strstr(got[i].text, "out of memory"),
                      "A1: the request at fault: finish %d (%s)", got[i].finish, got[i].text);

                             else
                CHECK(serve_same(&got[i], &alone[i]),
                      "A1 %s: round %d: request %d is none at fault: finish %d (%s)", path,
                      round, i, got[i].finish, got[i].text);
        }
    }
    kvant_session_get_stats(r.s, &st);
    CHECK(st.failed_steps > 0 && st.failed == 0 && st.preempted_unplanned == 0, "A1: %d steps failed, session %d",
          (int)st.failed_steps, st.failed);
    serve_close(&r);
}

/* ---- A9: nothing left, nothing read ---- */

static void check_no_trace(const char *path)
{
    kvant_session_stats st;
    serve_rig r;

    if (!serve_open(&r, path, engine_params("f16", 2, 20), kvant_session_defaults()))
        return;
    memset(got, 0, sizeof got);
    serve_tokens(prompts[0], PROMPT, 50);
    kvant_request q = request_of(0, PROMPT);
    q.kind = KVANT_REQUEST_EMBED_MEAN;
    q.cache = KVANT_CACHE_NO_WRITE;
    serve_one(&r, &q, &got[0]);
    CHECK(got[0].n_embd > 0, "embedding: %s", got[0].text);
    for (int i = 0; i < 4; i++) { /* never written; written; there; there, and not read */
        q = request_of(0, PROMPT);
        q.cache = i == 0 ? KVANT_CACHE_NO_WRITE : i == 3 ? KVANT_CACHE_NO_READ : 0;
        serve_one(&r, &q, &got[i]);
        CHECK((got[i].n_cached > 0) == (i == 2), "A9 %s: request %d: %d tokens cached", path, i, got[i].n_cached);
        CHECK(serve_same(&got[i], &got[0]), "A9: request %d: other bits", i);
        kvant_session_get_stats(r.s, &st);
        CHECK(i > 0 || st.prefix_hits == 0, "A9: hits before anything was written");
    }
    serve_close(&r);
}

int main(void)
{
    for (int mode = 0; mode < 2; mode++) {
        check_paused(dense, "f16", mode, 4, 4, 40);
        check_paused(hybrid, "tbq4_0", mode, 4, 4, 40);
        check_paused(hybrid, "f16", mode, 4, 12, 14); /* places enough, pages not */
        check_paused(dense, "tbq4_0", mode, 8, 8, 30);
        check_failed_step(dense, mode, 3);
        check_failed_step(hybrid, mode, 3);
        check_failed_step(hybrid, mode, -1);
    }
    for (int mode = 0; mode < 2; mode++) {
        check_share(dense, "f16", mode, 4, 4, 60);
        check_share(hybrid, "tbq4_0", mode, 4, 4, 60);
        check_share(hybrid, "f16", mode, 3, 8, 12); /* places enough, pages not */
    }
    check_share_alone();
    check_paused_alone();
    check_paused_slot(dense);
    check_paused_slot(hybrid);
    check_no_trace(dense);
    check_no_trace(hybrid);
    return check_end("check_neighbours");
}
