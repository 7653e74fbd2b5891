/* check_session.c: many requests on one engine give the tokens, and the log-probabilities to the last bit, that each
 * gives alone: in any batch, after prefix hits, preemptions, cancels of others and with small pools; and every request
 * ends exactly once.  Ids in the texts (S-01 ...) are those of the reliability specification.
 *
 * Tiny seeded models of the families (dense, hybrid, mixture of experts); with models of ../shared/models where
 * present. */
#include "engine/session_impl.h"
#include "support/serve_rig.h"

#include <stdatomic.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/rng.h"
#include "support/check.h"

enum { MANY = 64, LONGEST = 320 };

static int32_t prompts[MANY][LONGEST];
static int lengths[MANY], gens[MANY];
static serve_out alone[MANY], got[MANY];

static kvant_engine_params engine_params(const char *type, int max_seqs, int pages)
{
    kvant_engine_params p = kvant_engine_defaults();
    p.type_k = p.type_v = type;
    p.threads = 1;
    p.max_seqs = max_seqs;
    p.n_ctx = 512;
    p.n_ubatch = 128;
    p.pool_tokens = (int64_t)pages * KVANT_PAGE;
    p.snapshots = 12;
    return p;
}

static kvant_session_params session_params(void)
{
    kvant_session_params p = kvant_session_defaults();
    p.batch_tokens = 256;
    p.ladder = 64;
    return p;
}

/* n prompts of mixed lengths; every third begins like the one before it, as chats do. */
static void make_prompts(int n, int longest, uint64_t seed)
{
    rng r = { seed };

    for (int i = 0; i < n; i++) {
        lengths[i] = 1 + (int)rng_below(&r, (uint32_t)longest);
        gens[i] = 1 + (int)rng_below(&r, 12);
        serve_tokens(prompts[i], LONGEST, seed * 1000 + (uint64_t)i);
        if (i % 3 == 2)
            memcpy(prompts[i], prompts[i - 1], (size_t)(lengths[i - 1] < lengths[i] ? lengths[i - 1] : lengths[i]) * 4);
    }
}

static kvant_request request_of(int i, int cache)
{
    kvant_request q = kvant_request_defaults();
    q.prompt = prompts[i];
    q.n_prompt = lengths[i];
    q.max_tokens = gens[i];
    q.ignore_eos = 1;
    q.n_logprobs = 0;
    q.cache = cache;
    q.n_system = lengths[i] / 2;
    return q;
}

/* Each request by itself, without the prefix cache. */
static void run_alone(serve_rig *r, int n)
{
    for (int i = 0; i < n; i++) {
        kvant_request q = request_of(i, KVANT_CACHE_NO_READ | KVANT_CACHE_NO_WRITE);
        serve_one(r, &q, &alone[i]);
        CHECK(alone[i].n == gens[i] && alone[i].finish == KVANT_FINISH_LENGTH, "%d: %d tokens, finish %d", i,
              alone[i].n, alone[i].finish);
    }
}

static void submit_all(serve_rig *r, int n, int held, const char *what)
{
    kvant_diag d = { "" };

    for (int i = 0; i < n; i++) {
        kvant_request q = request_of(i, 0);
        q.held = held;
        CHECK(serve_submit(r, &q, &got[i], &d) == KVANT_OK, "%s: %s", what, d.text);
    }
}

static void wait_all(int n, const char *what)
{
    for (int i = 0; i < n; i++) {
        serve_wait(&got[i]);
        CHECK(serve_same(&got[i], &alone[i]),
              "%s: request %d (%d tokens, %d cached, %d preempted): other tokens or bits (%s)", what, i, lengths[i],
              got[i].n_cached, got[i].n_preempted, got[i].text);
        CHECK(got[i].ends == 1, "I4: %d END events", got[i].ends);
    }
}

static void run_all(serve_rig *r, int n, const char *what)
{
    submit_all(r, n, 0, what);
    wait_all(n, what);
}

/* Everything back: no page, tail page, snapshot or sequence is held but by the prefix index. */
static void check_no_leak(serve_rig *r, const char *what)
{
    kvant_session_stats st;
    kv_cache *kv = &r->e->kv;
    int used = 0;

    for (int i = 0; i < 1000; i++) { /* END comes before the numbers of its step */
        const struct timespec ms = { 0, 1000000 };
        kvant_session_get_stats(r->s, &st);
        if (st.running == 0 && st.queued == 0)
            break;
        nanosleep(&ms, NULL);
    }
    CHECK(st.running == 0 && st.queued == 0, "%s: %d running, %d queued", what, st.running, st.queued);
    kvant_session_free(r->s);
    r->s = NULL;
    for (int i = 0; i < kv->cfg.max_seqs; i++)
        used += kv->seqs[i].used;
    CHECK(used == 0 && kv->pages.n_free == kv->pages.n && kv->tails.n_free == kv->tails.n &&
              kv->snaps.n_free == kv->snaps.n && kv->pages.n_idle == 0,
          "I1 %s: %d sequences, %d of %d pages, %d of %d tail pages, %d of %d snapshots free", what, used,
          kv->pages.n_free, kv->pages.n, kv->tails.n_free, kv->tails.n, kv->snaps.n_free, kv->snaps.n);
}

static const char *const tiny[] = { "tests/golden/tiny/llama.gguf", "tests/golden/tiny/qwen35.gguf",
                                    "tests/golden/tiny/qwen35moe.gguf", "tests/golden/tiny/qwen3moe.gguf" };

/* The pages, tail pages and slots of a part of layer l. */
static void poison_part(kv_cache *kv, int part, int l)
{
    const int at = kv_at(&kv->cfg, part, l), heads = kv_heads(&kv->cfg, part, l);

    for (int p = 0; p < kv->pages.n && kv_has_attn(&kv->cfg, l); p++)
        if (kv->pages.refs[p] == 0) {
            memset(kv->k[at].pages + (size_t)p * kv->k[at].page_bytes, 0xFF, kv->k[at].page_bytes);
            memset(kv->v[at].pages + (size_t)p * kv->v[at].page_bytes, 0xFF, kv->v[at].page_bytes);
        }
    for (int t = 0; t < kv->tails.n && kv_has_attn(&kv->cfg, l); t++) {
        const size_t k = kv_tail_bytes(heads, kv->cfg.types[l].d_k) / 2;
        const size_t v = kv_tail_bytes(heads, kv->cfg.types[l].d_v) / 2;
        if (kv->tails.refs[t] == 0 && kv->k[at].tail)
            memset(kv->k[at].tail + (size_t)t * k, 0xFF, k * 2);
        if (kv->tails.refs[t] == 0 && kv->v[at].tail)
            memset(kv->v[at].tail + (size_t)t * v, 0xFF, v * 2);
    }
    for (int i = 0; i < kv->cfg.max_seqs + kv->snaps.n && kv_has_state(&kv->cfg, l); i++)
        if (i < kv->cfg.max_seqs ? !kv->seqs[i].used : kv->snaps.refs[i - kv->cfg.max_seqs] == 0) {
            memset((char *)kv->state[at] + (size_t)i * kv_state_bytes(&kv->cfg), 0xFF, kv_state_bytes(&kv->cfg));
            memset(kv->conv[at] + i * kv->cfg.conv_floats, 0xFF, (size_t)kv->cfg.conv_floats * 4);
        }
}

/* S-02: what is free reads as NaN from here on: pages, tail pages, snapshots, and states of sequences not in use.
 * Between requests only: the owner is idle. */
static void poison_free(kv_cache *kv)
{
    for (int part = 0; part < kv_parts(&kv->cfg); part++)
        for (int l = 0; l < kv->cfg.n_layer; l++)
            poison_part(kv, part, l);
}

static void wait_idle(serve_rig *r)
{
    kvant_session_stats st;

    for (int i = 0; i < 2000; i++) {
        const struct timespec ms = { 0, 1000000 };
        kvant_session_get_stats(r->s, &st);
        if (st.running == 0 && st.queued == 0)
            return;
        nanosleep(&ms, NULL);
    }
}

/* ---- 64 at once ---- */

typedef struct saved {
    int code;
    _Atomic int done;
} saved;

static void on_saved(void *user, const kvant_slot_result *r)
{
    saved *o = user;
    o->code = r->code;
    atomic_store(&o->done, 1);
}

static void act(serve_rig *r, int what, const char *name)
{
    static const unsigned char salt[16];
    const struct timespec ms = { 0, 200000 };
    kvant_diag d = { "" };
    saved o = { KVANT_OK, 0 };

    const int code = kvant_session_slot(r->s, what, 0, name, salt, on_saved, &o, &d);
    CHECK(code == KVANT_OK, "%s", d.text);
    while (code == KVANT_OK && !atomic_load(&o.done))
        nanosleep(&ms, NULL);
    CHECK(o.code == KVANT_OK, "snapshot: %s", kvant_error_name(o.code));
}

/* The invariants of the admission trace, after three rounds of n requests. */
static void check_counts(serve_rig *r, int n, const char *what)
{
    kvant_session_stats st;
    uint64_t prompts_sum = 0, generated = 0, hist[3] = { 0, 0, 0 };

    wait_idle(r);
    kvant_session_get_stats(r->s, &st);
    for (int i = 0; i < n; i++) {
        prompts_sum += 3 * (uint64_t)lengths[i];
        generated += 3 * (uint64_t)gens[i];
    }
    for (int i = 0; i < KVANT_HIST; i++) {
        hist[0] += st.prompt_hist[i];
        hist[1] += st.decode_hist[i];
        hist[2] += st.waiting_hist[i];
    }
    CHECK(st.prompt_tokens == prompts_sum && st.cached_tokens + st.computed_tokens == prompts_sum,
          "%s: %llu prompt tokens, %llu cached, %llu computed, wanted %llu", what, (unsigned long long)st.prompt_tokens,
          (unsigned long long)st.cached_tokens, (unsigned long long)st.computed_tokens,
          (unsigned long long)prompts_sum);
    CHECK(st.generated_tokens == generated && st.decode_rows == generated - 3 * (uint64_t)n,
          "%s: %llu generated, %llu decode rows", what, (unsigned long long)st.generated_tokens,
          (unsigned long long)st.decode_rows);
    CHECK(hist[0] == st.steps && hist[1] == st.steps && hist[2] == st.steps && st.started == 3 * (uint64_t)n,
          "%s: histograms do not add up to %llu steps", what, (unsigned long long)st.steps);
    uint64_t steps = 0;
    for (int i = 0; i <= KVANT_STEP_EDGES; i++)
        steps += st.tokens_hist[i];
    CHECK(steps == st.steps && st.step_tokens == st.decode_rows + st.computed_tokens,
          "B5 %s: %llu of %llu steps by tokens, %llu tokens", what, (unsigned long long)steps,
          (unsigned long long)st.steps, (unsigned long long)st.step_tokens);
}

/* S-12: n at once, cold and with hits, with pages for all; then in a new session with the saved prefix cache. */
static void check_concurrent(const char *path, const char *type, int n, int longest)
{
    char dir[] = "/tmp/kvant-session-XXXXXX", what[128], file[64];
    kvant_session_params sp = session_params();
    serve_rig r;
    kvant_session_stats st;

    CHECK(mkdtemp(dir) != NULL, "mkdtemp");
    snprintf(file, sizeof file, "%s/all.kvs", dir);
    sp.snapshot_dir = dir;
    snprintf(what, sizeof what, "S-12 %s %s", path, type);
    if (!serve_open(&r, path, engine_params(type, 64, 400), sp))
        return;
    poison_free(&r.e->kv);
    make_prompts(n, longest, 1);
    run_alone(&r, n);
    wait_idle(&r);
    poison_free(&r.e->kv);
    run_all(&r, n, what);
    kvant_session_get_stats(r.s, &st);
    const uint64_t hits = st.prefix_hits;
    wait_idle(&r);
    poison_free(&r.e->kv);
    run_all(&r, n, what);
    kvant_session_get_stats(r.s, &st);
    CHECK(st.prefix_hits > hits, "%s: the second round had no prefix hit", what);
    check_counts(&r, n, what);
    act(&r, KVANT_CACHE_SAVE, "all");
    check_no_leak(&r, what);
    serve_close(&r);
    if (!serve_open(&r, path, engine_params(type, 64, 400), sp))
        return;
    act(&r, KVANT_CACHE_RESTORE, "all");
    snprintf(what, sizeof what, "S-12 P-07 restored %s %s", path, type);
    run_all(&r, n, what);
    kvant_session_get_stats(r.s, &st);
    CHECK(st.prefix_hits > 0, "%s: no prefix hit", what);
    serve_close(&r);
    unlink(file);
    rmdir(dir);
}

/* S-12: the knobs of the scheduler, the passes of the engine and the threads change no bit. */
static void check_knobs(const char *path)
{
    const struct {
        int batch, budget, dynamic, cap, first, ubatch, threads, itl;
    } knobs[] = { { 128, 0, 0, 0, 0, 64, 1, -1 },
                  { 2048, 70, 0, 0, 0, 512, 2, 0 },
                  { 512, 0, 200, 100, 0, 128, 2, -1 },
                  { 512, 0, 0, 0, 1, 128, 1, 1 },
                  { 256, 10, 0, 0, 1, 64, 2, 5 } };
    char what[128];
    serve_rig r;

    make_prompts(24, 200, 11);
    for (int k = -1; k < 5; k++) {
        kvant_engine_params ep = engine_params("tbq4_0", 16, 100);
        kvant_session_params sp = session_params();
        if (k >= 0) {
            sp.batch_tokens = knobs[k].batch;
            sp.prefill_budget = knobs[k].budget;
            sp.max_batch_tokens = knobs[k].dynamic;
            sp.prefill_cap = knobs[k].cap;
            sp.prefill_first = knobs[k].first;
            sp.prefill_first_defer = 3;
            sp.target_itl_ms = knobs[k].itl;
            ep.n_ubatch = knobs[k].ubatch;
            ep.threads = knobs[k].threads;
        }
        if (!serve_open(&r, path, ep, sp))
            return;
        snprintf(what, sizeof what, "S-12 knobs %d, %s", k, path);
        if (k < 0)
            run_alone(&r, 24);
        else
            run_all(&r, 24, what);
        check_no_leak(&r, what);
        serve_close(&r);
    }
}

/* Steps that had more than 256 tokens, of 12 prompts of 300 at once under a target of so many ms.  None begins before
 * all are there, and each generates long enough that the last prompt has begun before it is alone: who is alone may
 * fill a step. */
static uint64_t large_steps(const char *path, int target)
{
    kvant_engine_params ep = engine_params("f16", 16, 100);
    kvant_session_params sp = session_params();
    kvant_session_stats st;
    uint64_t n = 0;
    serve_rig r;

    sp.target_itl_ms = target;
    sp.batch_tokens = 2048;
    ep.n_ubatch = 512;
    make_prompts(12, 300, 5);
    for (int i = 0; i < 12; i++) {
        lengths[i] = 300;
        gens[i] = 12;
    }
    if (!serve_open(&r, path, ep, sp))
        return 0;
    run_alone(&r, 12);
    kvant_session_get_stats(r.s, &st);
    for (int i = 7; i <= KVANT_STEP_EDGES; i++) /* beyond 256: session_stats.c */
        n -= st.tokens_hist[i];
    submit_all(&r, 12, 1, "target");
    for (int i = 0; i < 12; i++)
        kvant_session_resume(r.s, got[i].id);
    wait_all(12, "target");
    kvant_session_get_stats(r.s, &st);
    for (int i = 7; i <= KVANT_STEP_EDGES; i++)
        n += st.tokens_hist[i];
    serve_close(&r);
    return n;
}

/* Without a target prompts fill steps; with one of a millisecond they come in pieces. */
static void check_target(const char *path)
{
    const uint64_t without = large_steps(path, -1), with = large_steps(path, 1);

    CHECK(without > 0 && with == 0, "target of 1 ms: %d steps of more than 256 tokens, without a target %d", (int)with,
          (int)without);
}

/* S-08, S-09: a pool far too small for what runs; both ways of preemption. */
static void check_small_pool(const char *path, const char *type, int preempt, int pages)
{
    kvant_session_params sp = session_params();
    serve_rig r;
    kvant_session_stats st;
    char what[128];

    sp.preempt = preempt;
    snprintf(what, sizeof what, "S-08 S-09 %s %s, %d pages, mode %d", path, type, pages, preempt);
    if (!serve_open(&r, path, engine_params(type, 12, pages), sp))
        return;
    make_prompts(24, pages * KVANT_PAGE - 110 < 150 ? pages * KVANT_PAGE - 110 : 150, 2);
    for (int i = 0; i < 24; i++)
        gens[i] = pages < 5 ? 40 + i % 60 : pages < 8 ? 100 + i % 50 : 130 + i;
    run_alone(&r, 24);
    wait_idle(&r);
    poison_free(&r.e->kv);
    run_all(&r, 24, what);
    kvant_session_get_stats(r.s, &st);
    CHECK(pages < 4 || st.preempted_recompute + st.preempted_saved > 0, "%s: nothing was preempted", what);
    CHECK(pages < 4 || (preempt == KVANT_PREEMPT_SAVE) == (st.preempted_saved > 0), "%s: %llu saved", what,
          (unsigned long long)st.preempted_saved);
    for (int i = 0; i < 24; i++)
        CHECK(got[i].n_preempted <= MAX_PREEMPTIONS, "S-13: preempted %d times", got[i].n_preempted);
    check_no_leak(&r, what);
    serve_close(&r);
}

/* ---- traces ---- */

/* S-01, S-04, S-06, S-14, S-15: random arrivals of several tenants, who share prompts that must not be shared, cancels
 * at random moments, slots, both ends of the id counter; whoever is not cancelled gets its own tokens. */
static void check_trace(const char *path, const char *type, uint64_t seed, int rounds)
{
    enum { N = 48 };
    kvant_session_params sp = session_params();
    rng random = { seed };
    serve_rig r;
    kvant_diag d = { "" };
    char what[128];
    int cancelled = 0;

    snprintf(what, sizeof what, "S-01 S-14 %s %s seed %llu", path, type, (unsigned long long)seed);
    make_prompts(N, 180, seed);
    sp.preempt = (int)(seed & 1);
    sp.max_queue = 2 * N;
    sp.preempt = (int)(seed / 8 % 2);
    if (!serve_open(&r, path, engine_params(type, 8, 18 - (int)(seed / 16 % 8)), sp))
        return;
    run_alone(&r, N);
    wait_idle(&r);
    r.s->counts.next_id = ((uint64_t)1 << 32) - 20; /* the owner sleeps; submit takes the lock before it wakes */
    for (int round = 0; round < rounds; round++) {
        unsigned char dead[N] = { 0 };
        for (int i = 0; i < N; i++) {
            kvant_request q = request_of(i, 0);
            q.salt[0] = (unsigned char)rng_below(&random, 3);
            q.priority = (int)rng_below(&random, 2);
            q.slot = rng_below(&random, 8) ? -1 : (int)rng_below(&random, 8);
            got[i].stop_after = rng_below(&random, 10) ? 0 : 1 + (int)rng_below(&random, 4);
            got[i].stop_how = rng_below(&random, 2) ? KVANT_EVENT_CANCEL : KVANT_EVENT_PAUSE;
            CHECK(serve_submit(&r, &q, &got[i], &d) == KVANT_OK, "%s: %s", what, d.text);
            if (got[i].stop_after && got[i].stop_how == KVANT_EVENT_PAUSE)
                kvant_session_resume(r.s, got[i].id); /* before its pause, or after it */
            if (rng_below(&random, 6) == 0) {
                const int victim = (int)rng_below(&random, (uint32_t)i + 1);
                const struct timespec us = { 0, 1000 * (long)rng_below(&random, 300) };
                nanosleep(&us, NULL);
                kvant_session_cancel(r.s, got[victim].id);
                kvant_session_cancel(r.s, rng_u64(&random));
                dead[victim] = 1;
            }
        }
        for (int i = 0; i < N; i++) {
            serve_wait(&got[i]);
            if (got[i].finish == KVANT_FINISH_CANCEL)
                cancelled++;
            CHECK(got[i].ends == 1, "I4: %d END events", got[i].ends);
            CHECK(got[i].finish == KVANT_FINISH_LENGTH ||
                      (got[i].finish == KVANT_FINISH_CANCEL &&
                       (dead[i] || (got[i].stop_after && got[i].stop_how == KVANT_EVENT_CANCEL))),
                  "%s: finish %d (%s)", what, got[i].finish, got[i].text);
            if (got[i].finish == KVANT_FINISH_LENGTH)
                CHECK(serve_same(&got[i], &alone[i]),
                      "%s: request %d, %d cached: other bits", what, i, got[i].n_cached);
            else
                CHECK(memcmp(got[i].tokens, alone[i].tokens, (size_t)got[i].n * 4) == 0, "%s: cancelled %d", what, i);
            got[i].stop_after = 0;
        }
        wait_idle(&r);
        poison_free(&r.e->kv);
    }
    CHECK(cancelled > rounds, "S-06 %s: only %d were cancelled", what, cancelled);
    check_no_leak(&r, what);
    serve_close(&r);
}

/* S-06: cancelled by its own callback at every event; the prompt then gives what it gives cold. */
static void check_cancel_everywhere(const char *path, const char *type)
{
    serve_rig r;

    make_prompts(2, 200, 3);
    lengths[0] = 190;
    gens[0] = 6;
    if (!serve_open(&r, path, engine_params(type, 2, 20), session_params()))
        return;
    run_alone(&r, 1);
    for (int at = 1; at <= 6; at++) {
        kvant_request q = request_of(0, 0);
        got[0].stop_after = at;
        got[0].stop_how = at % 2 ? KVANT_EVENT_CANCEL : KVANT_EVENT_STOP;
        serve_one(&r, &q, &got[0]);
        CHECK(got[0].n == at && got[0].finish == (at % 2 ? KVANT_FINISH_CANCEL : KVANT_FINISH_STOP),
              "S-06: %d tokens, finish %d", got[0].n, got[0].finish);
        got[0].stop_after = 0;
        serve_one(&r, &q, &got[0]);
        CHECK(serve_same(&got[0], &alone[0]), "S-06: other bits after a cancel at token %d", at);
    }
    check_no_leak(&r, "S-06");
    serve_close(&r);
}

static _Atomic int storm_over;

static void *storm(void *session)
{
    rng random = { 99 };
    while (!atomic_load(&storm_over)) {
        for (int i = 0; i < 100; i++)
            kvant_session_cancel(session, rng_u64(&random));
        const struct timespec ms = { 0, 1000000 };
        nanosleep(&ms, NULL);
    }
    return NULL;
}

/* S-07: cancels of ids that are not there, and of those that have ended, disturb nobody. */
static void check_cancel_storm(const char *path)
{
    serve_rig r;
    pthread_t t;

    make_prompts(24, 120, 5);
    if (!serve_open(&r, path, engine_params("f16", 8, 60), session_params()))
        return;
    run_alone(&r, 24);
    atomic_store(&storm_over, 0);
    CHECK(pthread_create(&t, NULL, storm, r.s) == 0, "thread");
    run_all(&r, 24, "S-07");
    for (int i = 0; i < 24; i++)
        kvant_session_cancel(r.s, got[i].id);
    run_all(&r, 24, "S-07");
    atomic_store(&storm_over, 1);
    pthread_join(t, NULL);
    check_no_leak(&r, "S-07");
    serve_close(&r);
}

/* H-14: clients that read too slowly stand still, alone; they go on where they were, or are cancelled.  The pool is
 * small: some are preempted meanwhile.  One resume may come before its pause. */
static void check_pause(const char *path, const char *type, int preempt)
{
    enum { N = 24 };
    kvant_session_params sp = session_params();
    kvant_session_stats before, after;
    const struct timespec pause = { 0, 60000000 };
    serve_rig r;
    kvant_diag d = { "" };

    sp.preempt = preempt;
    make_prompts(N, 120, 5);
    for (int i = 0; i < N; i++)
        gens[i] = 60 + i;
    if (!serve_open(&r, path, engine_params(type, 16, 20), sp))
        return;
    run_alone(&r, N);
    for (int i = 0; i < N; i++) {
        kvant_request q = request_of(i, 0);
        got[i].stop_after = i % 3 ? 0 : 1 + i;
        got[i].stop_how = KVANT_EVENT_PAUSE;
        CHECK(serve_submit(&r, &q, &got[i], &d) == KVANT_OK, "%s", d.text);
        if (i == 0)
            kvant_session_resume(r.s, got[0].id);
    }
    for (int i = 0; i < N; i++)
        if (i % 3 || i == 0)
            serve_wait(&got[i]);
    nanosleep(&pause, NULL);
    kvant_session_get_stats(r.s, &before);
    nanosleep(&pause, NULL);
    kvant_session_get_stats(r.s, &after);
    CHECK(before.steps == after.steps && after.paused == after.running, "H-14: %d of %d are paused, %d steps ran",
          after.paused, after.running, (int)(after.steps - before.steps));
    for (int i = 3; i < N; i += 3) {
        CHECK(!atomic_load(&got[i].done) && got[i].n == 1 + i, "H-14: request %d has %d tokens", i, got[i].n);
        (i % 2 ? kvant_session_resume : kvant_session_cancel)(r.s, got[i].id);
    }
    for (int i = 0; i < N; i++) {
        serve_wait(&got[i]);
        if (i % 6 == 0 && i > 0)
            CHECK(got[i].finish == KVANT_FINISH_CANCEL, "H-14: cancelled while paused, finish %d", got[i].finish);
        else
            CHECK(serve_same(&got[i], &alone[i]), "H-14 %s: request %d: other bits (%s)", path, i, got[i].text);
        got[i].stop_after = 0;
    }
    check_no_leak(&r, "H-14");
    serve_close(&r);
}

/* S-13, A3: one tenant fills the queue, another comes last: it does not wait for all of them; many salts do not make
 * one tenant many. */
static void check_fairness(const char *path)
{
    serve_rig r;
    kvant_diag d = { "" };
    int earlier = 0;

    make_prompts(40, 150, 6);
    if (!serve_open(&r, path, engine_params("f16", 2, 60), session_params()))
        return;
    for (int i = 0; i < 40; i++) {
        kvant_request q = request_of(i, 0);
        q.max_tokens = 10;
        q.tenant = i == 39;
        q.salt[0] = (unsigned char)i;
        CHECK(serve_submit(&r, &q, &got[i], &d) == KVANT_OK, "%s", d.text);
    }
    for (int i = 0; i < 40; i++)
        serve_wait(&got[i]);
    for (int i = 0; i < 39; i++)
        earlier += got[i].t.started_ns < got[39].t.started_ns;
    CHECK(earlier <= 10, "S-13: %d requests of the other tenant started before", earlier);
    check_no_leak(&r, "S-13");
    serve_close(&r);
}

/* D-01: a page of the prefix cache turns into NaN: who hits it ends with "numeric", its batch mates do not notice, and
 * the prefix is forgotten, so that the next one is right again. */
static void check_numeric(const char *path)
{
    serve_rig r;
    kvant_request q;
    kvant_diag d = { "" };

    make_prompts(3, 180, 8);
    lengths[0] = 180;
    if (!serve_open(&r, path, engine_params("f16", 4, 60), session_params()))
        return;
    run_alone(&r, 3);
    q = request_of(0, 0);
    serve_one(&r, &q, &got[0]);
    wait_idle(&r);
    kv_cache *kv = &r.e->kv;
    for (int p = 0; p < kv->pages.n; p++)
        for (int l = 0; l < kv->cfg.n_layer && kv->pages.marked[p]; l++)
            if (kv_has_attn(&kv->cfg, l))
                memset(kv->v[l].pages + (size_t)p * kv->v[l].page_bytes, 0xFF, kv->v[l].page_bytes);
    for (int i = 0; i < 3; i++) {
        q = request_of(i, 0);
        CHECK(serve_submit(&r, &q, &got[i], &d) == KVANT_OK, "%s", d.text);
    }
    for (int i = 0; i < 3; i++)
        serve_wait(&got[i]);
    CHECK(got[0].finish == KVANT_FINISH_ERROR && got[0].code == KVANT_ENUMERIC && got[0].n_cached > 0,
          "D-01: finish %d, %s", got[0].finish, kvant_error_name(got[0].code));
    CHECK(serve_same(&got[1], &alone[1]) && serve_same(&got[2], &alone[2]), "D-01: a batch mate has other bits");
    q = request_of(0, 0);
    serve_one(&r, &q, &got[0]);
    CHECK(serve_same(&got[0], &alone[0]), "D-01: the poisoned prefix is still there (%s)", got[0].text);
    check_no_leak(&r, "D-01");
    serve_close(&r);
}

int main(int argc, char **argv)
{
    const char *types[] = { "f16", "tbq4_0" },
               *large[] = { "novella-dense-bf16.gguf", "novella-hybrid-bf16.gguf", "novella-moe-bf16.gguf" };
    char path[512];

    if (argc > 2 && strcmp(argv[1], "traces") == 0) { /* check_session traces SECONDS [SEED]: S-01, S-14, not in CI */
        const int64_t end = clock_ns() + atoll(argv[2]) * 1000000000;
        uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1000;
        for (; clock_ns() < end && check_failed == 0; seed++)
            check_trace(tiny[seed % 4], types[seed / 4 % 2], seed, 8);
        printf("check_session: traces up to seed %llu, 384 requests each\n", (unsigned long long)seed);
        return check_end("check_session");
    }
    if (argc > 2) { /* check_session N LONGEST [PAIR]: on the larger models, not in CI */
        for (int i = argc > 3 ? atoi(argv[3]) : 0; i < (argc > 3 ? atoi(argv[3]) + 1 : 6); i++)
            if (check_model_path(large[i / 2], path, sizeof path))
                check_concurrent(path, types[i % 2], atoi(argv[1]), atoi(argv[2]));
        return check_end("check_session");
    }
    for (int i = 0; i < 4; i++)
        for (int t = 0; t < 2; t++)
            check_concurrent(tiny[i], types[t], t == 0 || i < 2 ? MANY : 24, 200);
    check_concurrent("models/novella-hybrid-q8_0.gguf", "tbq4_0", 6, 90);
    check_knobs(tiny[0]);
    check_target(tiny[0]);
    check_knobs(tiny[1]);
    for (int i = 0; i < 2; i++)
        for (int mode = 0; mode < 2; mode++)
            for (int pages = 2; pages <= 8; pages += 3)
                check_small_pool(tiny[i], types[i], mode, pages);
    for (uint64_t seed = 1; seed <= 4; seed++)
        check_trace(tiny[seed % 4], types[seed / 2 % 2], seed, 3);
    check_cancel_everywhere(tiny[0], "tbq4_0");
    check_cancel_everywhere(tiny[1], "f16");
    check_cancel_storm(tiny[1]);
    for (int mode = 0; mode < 2; mode++)
        check_pause(tiny[mode], types[1 - mode], mode);
    check_fairness(tiny[0]);
    check_numeric(tiny[0]);
    return check_end("check_session");
}
