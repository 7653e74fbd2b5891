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

static int same(const serve_out *a, const serve_out *b)
{
    return a->n == b->n && memcmp(a->tokens, b->tokens, (size_t)a->n * 4) == 0 &&
           memcmp(a->logprob, b->logprob, (size_t)a->n * 4) == 0;
}

static void run_all(serve_rig *r, int n, const char *what)
{
    kvant_diag d = { "" };

    for (int i = 0; i < n; i++) {
        kvant_request q = request_of(i, 0);
        CHECK(serve_submit(r, &q, &got[i], &d) == KVANT_OK, "%s: %s", what, d.text);
    }
    for (int i = 0; i < n; i++) {
        serve_wait(&got[i]);
        CHECK(same(&got[i], &alone[i]),
              "%s: request %d (%d tokens, %d cached, %d preempted): other tokens or bits (%s)", what, i, lengths[i],
              got[i].n_cached, got[i].n_preempted, got[i].text);
        CHECK(got[i].ends == 1, "I4: %d END events", got[i].ends);
    }
}

/* Everything back: no page, tail page, snapshot or sequence is held but by the prefix index. */
static void check_no_leak(serve_rig *r, const char *what)
{
    kvant_session_stats st;
    kv_cache *kv = &r->e->kv;
    int used = 0;

    kvant_session_get_stats(r->s, &st);
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

/* S-12: 64 at once, cold and with hits, with pages for all. */
static void check_concurrent(const char *path, const char *type, int n)
{
    serve_rig r;
    kvant_session_stats st;
    char what[128];

    snprintf(what, sizeof what, "S-12 %s %s", path, type);
    if (!serve_open(&r, path, engine_params(type, 64, 400), session_params()))
        return;
    make_prompts(n, 200, 1);
    run_alone(&r, n);
    run_all(&r, n, what);
    kvant_session_get_stats(r.s, &st);
    const uint64_t hits = st.prefix_hits;
    run_all(&r, n, what);
    kvant_session_get_stats(r.s, &st);
    CHECK(st.prefix_hits > hits, "%s: the second round had no prefix hit", what);
    CHECK(st.finished[KVANT_FINISH_LENGTH] == (uint64_t)(3 * n) && st.steps > 0, "%s: %llu finished", what,
          (unsigned long long)st.finished[KVANT_FINISH_LENGTH]);
    check_no_leak(&r, what);
    serve_close(&r);
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
        gens[i] = pages < 8 ? 40 + i % 60 : 130 + i;
    run_alone(&r, 24);
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

int main(void)
{
    const char *types[] = { "f16", "tbq4_0" };

    for (int i = 0; i < 4; i++)
        for (int t = 0; t < 2; t++)
            check_concurrent(tiny[i], types[t], t == 0 || i < 2 ? MANY : 24);
    for (int i = 0; i < 2; i++)
        for (int mode = 0; mode < 2; mode++)
            for (int pages = 2; pages <= 8; pages += 3)
                check_small_pool(tiny[i], types[i], mode, pages);
    return check_end("check_session");
}
