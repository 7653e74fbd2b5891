/* check_prefix.c: forks and the prefix index.  A sequence resumed from any (prefix, snapshot) pair, or forked at any
 * length, has the bits of one that was never shared; equal hashes of different tokens share nothing; what is evicted
 * leaves useful ancestors.  Ids in the texts (S-03 ...): the reliability specification. */
#include "engine/session_impl.h"
#include "support/serve_rig.h"

#include <time.h>
#include "base/rng.h"
#include "support/check.h"

enum { LONG = 300 };

static int sink; /* exact first tokens of the engines from here on */

static kvant_engine_params engine_params(const char *type, int tail, int snapshots)
{
    kvant_engine_params p = kvant_engine_defaults();
    p.type_k = p.type_v = type;
    p.threads = 1;
    p.max_seqs = 4;
    p.n_ctx = 384;
    p.n_ubatch = 384;
    p.pool_tokens = 60 * KVANT_PAGE;
    p.snapshots = snapshots;
    p.kv_tail = tail;
    p.kv_sink = sink;
    return p;
}

/* ---- S-05: forks ---- */

static void feed(serve_rig *r, int seq, const int32_t *tokens, int n, int prompt, float *logits)
{
    const kvant_item it = { seq, tokens, n, prompt, logits ? KVANT_LOGITS_LAST : KVANT_LOGITS_NONE };
    kvant_diag d = { "" };

    CHECK(kvant_step(r->e, &it, 1, &d) == KVANT_OK, "%s", d.text);
    if (logits && kvant_step_logits(r->e, 0, 0))
        memcpy(logits, kvant_step_logits(r->e, 0, 0), (size_t)r->n_vocab * sizeof *logits);
}

static float want[2][4096], have[4096];

/* Two sequences that share t[0..n) go on with different tokens; never forked. */
static void fork_reference(serve_rig *r, const int32_t *t, const int32_t *own, int n)
{
    for (int i = 0; i < 2; i++) {
        int seq = 0;
        kvant_seq_new(r->e, &seq, NULL);
        feed(r, seq, t, n, 1, NULL);
        for (int k = 0; k < 3; k++)
            feed(r, seq, own + 8 * i + k, 1, 0, want[i]);
        kvant_seq_free(r->e, seq);
    }
}

/* The parent's decode row and the child's in one batch; then one of them goes and the other still has its bits. */
static void fork_at(serve_rig *r, const int32_t *t, const int32_t *own, int n, int parent_first, const char *what)
{
    int seq[2] = { 0, 0 };
    kvant_diag d = { "" };

    kvant_seq_new(r->e, &seq[0], NULL);
    feed(r, seq[0], t, n, 1, NULL);
    CHECK(kvant_seq_fork(r->e, seq[0], &seq[1], &d) == KVANT_OK, "S-05 %s: %s", what, d.text);
    for (int k = 0; k < 2; k++) {
        const kvant_item both[] = { { seq[0], own + k, 1, 0, 0 }, { seq[1], own + 8 + k, 1, 0, 0 } };
        CHECK(kvant_step(r->e, both, 2, &d) == KVANT_OK, "%s", d.text);
    }
    for (int k = 0; k < 2; k++) {
        const int i = parent_first ? k : 1 - k;
        feed(r, seq[i], own + 8 * i + 2, 1, 0, have);
        CHECK(memcmp(have, want[i], (size_t)r->n_vocab * sizeof *have) == 0, "S-05 %s: %s, forked at %d: other bits",
              what, i ? "child" : "parent", n);
        kvant_seq_free(r->e, seq[i]);
    }
    CHECK(r->e->kv.pages.n_free == r->e->kv.pages.n && r->e->kv.tails.n_free == r->e->kv.tails.n,
          "S-05: a page is left");
}

/* A prompt chunk of the child and a decode row of the parent in one batch: the child starts from a copy of its own. */
static void fork_and_decode(serve_rig *r, const int32_t *t, const int32_t *own, const char *what)
{
    int seq[2] = { 0, 0 }, alone = 0;

    kvant_seq_new(r->e, &alone, NULL);
    feed(r, alone, t, 64, 1, NULL);
    feed(r, alone, t + 64, 50, 1, want[0]);
    kvant_seq_free(r->e, alone);
    kvant_seq_new(r->e, &seq[0], NULL);
    feed(r, seq[0], t, 64, 1, NULL);
    kvant_seq_fork(r->e, seq[0], &seq[1], NULL);
    const kvant_item both[] = { { seq[0], own, 1, 0, 0 }, { seq[1], t + 64, 50, 1, KVANT_LOGITS_LAST } };
    CHECK(kvant_step(r->e, both, 2, NULL) == KVANT_OK, "step");
    CHECK(memcmp(kvant_step_logits(r->e, 1, 0), want[0], (size_t)r->n_vocab * sizeof *have) == 0,
          "S-05 %s: a prompt forked from a decoding sequence has other bits", what);
    kvant_seq_free(r->e, seq[0]);
    kvant_seq_free(r->e, seq[1]);
}

static void check_forks(const char *path, const char *type, int tail, int step)
{
    int32_t t[LONG], own[16];
    serve_rig r;
    char what[128];

    if (!serve_open(&r, path, engine_params(type, tail, 0), kvant_session_defaults()))
        return;
    kvant_session_free(r.s);
    r.s = NULL;
    snprintf(what, sizeof what, "%s %s tail %d", path, type, tail);
    serve_tokens(t, LONG, 21);
    serve_tokens(own, 16, 22);
    for (int n = 128; n < 192; n += step) { /* every position of a page */
        fork_reference(&r, t, own, n);
        fork_at(&r, t, own, n, n & 1, what);
    }
    fork_and_decode(&r, t, own, what);
    serve_close(&r);
}

/* ---- S-10: every (prefix, snapshot) ---- */

static void wait_idle(serve_rig *r)
{
    kvant_session_stats st;
    const struct timespec ms = { 0, 300000 };

    do {
        nanosleep(&ms, NULL);
        kvant_session_get_stats(r->s, &st);
    } while (st.running > 0);
}

static kvant_request request_for(const int32_t *prompt, int n, int cache)
{
    kvant_request q = kvant_request_defaults();
    q.prompt = prompt;
    q.n_prompt = n;
    q.max_tokens = 2;
    q.ignore_eos = 1;
    q.n_logprobs = 0;
    q.cache = cache;
    return q;
}

/* A prompt of 257 tokens is cached with snapshots on the whole grid; then all but those in `keep` (bits: positions 64,
 * 128, 192, 256) are taken away.  Prompts that share its first `shared` tokens must hit the last one kept at or below
 * that, and have the bits of a cold run. */
static void check_pairs(const char *path, const char *type, int tail, int keep, int step)
{
    static serve_out warm, cold, first;
    int32_t base[257], prompt[LONG];
    kvant_session_params sp = kvant_session_defaults();
    serve_rig r;

    sp.ladder = 64;
    if (!serve_open(&r, path, engine_params(type, tail, 32), sp))
        return;
    const int suffice = r.s->pages_suffice;
    serve_tokens(base, 257, 31);
    for (int shared = 0; shared <= 256; shared += step) {
        kvant_request q = request_for(base, 257, 0);
        serve_one(&r, &q, &first);
        wait_idle(&r);
        int pages = 0;
        for (int i = r.s->prefix.oldest; i >= 0 && !suffice; i = r.s->prefix.nodes[i].newer) {
            prefix_node *n = &r.s->prefix.nodes[i];
            if (n->snap >= 0 && n->depth < 4 && !(keep >> n->depth & 1)) {
                kv_snapshot_free(&r.e->kv, n->snap);
                n->snap = -1;
            }
        }
        for (int p = 1; p <= shared / KVANT_PAGE; p++)
            pages = suffice || keep >> (p - 1) & 1 ? p : pages;
        memcpy(prompt, base, sizeof base);
        serve_tokens(prompt + shared, 270 - shared, 1000 + (uint64_t)shared);
        if (shared < 257 && prompt[shared] == base[shared])
            prompt[shared] ^= 1;
        q = request_for(prompt, 260, 0);
        serve_one(&r, &q, &warm);
        q = request_for(prompt, 260, KVANT_CACHE_NO_READ | KVANT_CACHE_NO_WRITE);
        serve_one(&r, &q, &cold);
        CHECK(warm.n_cached == pages * KVANT_PAGE, "S-10 %s %s: %d shared, snapshots %x: %d cached, wanted %d", path,
              type, shared, keep, warm.n_cached, pages * KVANT_PAGE);
        CHECK(serve_same(&warm, &cold),
              "S-10 %s %s tail %d: %d shared, snapshots %x: other bits", path, type, tail, shared,
              keep);
        wait_idle(&r);
        prefix_clear(&r.s->prefix);
    }
    serve_close(&r);
}

/* ---- S-03: hashes that collide ---- */

static void check_collisions(const char *path)
{
    static serve_out warm, cold;
    int32_t prompt[LONG];
    serve_rig r;

    if (!serve_open(&r, path, engine_params("f16", 64, 32), kvant_session_defaults()))
        return;
    r.s->prefix.hash_mask = 1;
    for (int i = 0; i < 24; i++) {
        serve_tokens(prompt, 140, 50 + (uint64_t)i / 2);
        prompt[i % 2 ? 70 : 130] ^= i % 4;
        kvant_request q = request_for(prompt, 140, 0);
        serve_one(&r, &q, &warm);
        q.cache = KVANT_CACHE_NO_READ;
        serve_one(&r, &q, &cold);
        CHECK(serve_same(&warm, &cold), "S-03: request %d, %d cached: other bits", i, warm.n_cached);
    }
    serve_close(&r);
}

/* ---- the index alone: what goes and what stays ---- */

static int cached_pages(const prefix_index *ix, const int32_t *tokens, int n)
{
    static const unsigned char salt[PREFIX_SALT];
    prefix_hit hit;
    prefix_find(ix, salt, tokens, n, &hit);
    return hit.pages;
}

static void insert(kvant_engine *e, prefix_index *ix, const int32_t *tokens, int n, int snap_every)
{
    static const unsigned char salt[PREFIX_SALT];
    prefix_snap snaps[8];
    int seq = 0, k = 0;

    CHECK(kv_seq_new(&e->kv, &seq, NULL) == KVANT_OK, "sequence");
    if (e->kv.pages.n_free < n)
        prefix_evict(ix, n - e->kv.pages.n_free);
    kv_reserve(&e->kv, seq, n * KVANT_PAGE);
    for (int p = 1; p <= n && snap_every; p++)
        if (p % snap_every == 0) {
            e->kv.seqs[seq].len = p * KVANT_PAGE;
            const int id = prefix_take_snap(ix);
            CHECK(id >= 0 && kv_snapshot_save(&e->kv, seq, id, NULL) == KVANT_OK, "snapshot");
            snaps[k++] = (prefix_snap){ p, id };
        }
    e->kv.seqs[seq].len = n * KVANT_PAGE;
    prefix_insert(ix, salt, tokens, seq, n, snaps, k);
    kv_seq_free(&e->kv, seq);
}

static void check_eviction(void)
{
    static int32_t t[3][8 * KVANT_PAGE];
    prefix_index ix;
    serve_rig r;

    if (!serve_open(&r, "tests/golden/tiny/llama.gguf", engine_params("f16", 64, 0), kvant_session_defaults()))
        return;
    kvant_session_free(r.s);
    r.s = NULL;
    CHECK(prefix_create(&ix, &r.e->kv, NULL) == KVANT_OK, "create");
    for (int i = 0; i < 3; i++)
        serve_tokens(t[i], 8 * KVANT_PAGE, 60 + (uint64_t)i);
    memcpy(t[1], t[0], 2 * KVANT_PAGE * 4); /* a branch behind two common pages */
    for (int i = 0; i < 3; i++)
        insert(r.e, &ix, t[i], 4, 0);
    CHECK(ix.n_nodes == 10 && r.e->kv.pages.n_idle == 10, "%d nodes, %d idle", ix.n_nodes, r.e->kv.pages.n_idle);
    CHECK(prefix_evict(&ix, 1) == 1 && cached_pages(&ix, t[0], 512) == 3, "the oldest leaf goes first");
    CHECK(prefix_evict(&ix, 1) == 1 && cached_pages(&ix, t[0], 512) == 2 && cached_pages(&ix, t[1], 512) == 4,
          "common ancestors stay while somebody needs them");
    CHECK(prefix_evict(&ix, 100) == 8 && ix.n_nodes == 0 && r.e->kv.pages.n_free == r.e->kv.pages.n, "all can go");
    prefix_destroy(&ix);
    serve_close(&r);
}

/* One tenant's flood of prompts takes its own pages and snapshots, not those of tenants that hold less than their
 * part. */
static void check_shares(const char *path, int snapshots)
{
    static int32_t t[4][512], flood[512];
    const int every = snapshots ? 4 : 0;
    prefix_index ix;
    serve_rig r;

    if (!serve_open(&r, path, engine_params("f16", 64, snapshots), kvant_session_defaults()))
        return;
    kvant_session_free(r.s);
    r.s = NULL;
    CHECK(prefix_create(&ix, &r.e->kv, NULL) == KVANT_OK, "create");
    for (int i = 0; i < 4; i++) {
        serve_tokens(t[i], 4 * KVANT_PAGE, 90 + (uint64_t)i);
        ix.owner = (uint32_t)i + 1;
        insert(r.e, &ix, t[i], 4, every);
    }
    ix.owner = 7;
    for (int i = 0; i < 200; i++) {
        serve_tokens(flood, 4 * KVANT_PAGE, 1000 + (uint64_t)i);
        insert(r.e, &ix, flood, 4, every);
        CHECK(cached_pages(&ix, flood, 512) > 0, "%s: prompt %d of the flood", path, i);
    }
    for (int i = 0; i < 4; i++)
        CHECK(cached_pages(&ix, t[i], 512) == 4, "%s: tenant %d: %d pages left", path, i + 1,
              cached_pages(&ix, t[i], 512));
    CHECK(ix.n_owners == 5, "%d owners", ix.n_owners);
    prefix_clear(&ix);
    CHECK(ix.n_owners == 0 && ix.n_nodes == 0 && ix.n_snaps == 0, "%d owners, %d snapshots", ix.n_owners, ix.n_snaps);
    CHECK(r.e->kv.pages.n_free == r.e->kv.pages.n, "all free again");
    prefix_destroy(&ix);
    serve_close(&r);
}

/* A sequence of n blocks with pages of its own, as a request has that found no place to resume. */
static int own_sequence(kvant_engine *e, int n)
{
    int seq = -1;

    CHECK(kv_seq_new(&e->kv, &seq, NULL) == KVANT_OK, "sequence");
    kv_reserve(&e->kv, seq, n * KVANT_PAGE);
    e->kv.seqs[seq].len = n * KVANT_PAGE;
    return seq;
}

/* A1: a sequence that enters known blocks goes on with the pages that the index has for them, so that what counts as
 * idle can be evicted while its own blocks hang below. */
static void check_adoption(void)
{
    static const unsigned char salt[PREFIX_SALT];
    static int32_t t[2][4 * KVANT_PAGE];
    prefix_index ix;
    serve_rig r;

    if (!serve_open(&r, "tests/golden/tiny/llama.gguf", engine_params("f16", 64, 0), kvant_session_defaults()))
        return;
    kvant_session_free(r.s);
    r.s = NULL;
    kv_cache *kv = &r.e->kv;
    CHECK(prefix_create(&ix, kv, NULL) == KVANT_OK, "create");
    for (int i = 0; i < 2; i++)
        serve_tokens(t[i], 4 * KVANT_PAGE, 90 + (uint64_t)i);
    memcpy(t[1], t[0], 2 * KVANT_PAGE * sizeof **t);
    const int a = own_sequence(r.e, 4), b = own_sequence(r.e, 4), free = kv->pages.n_free;
    prefix_insert(&ix, salt, t[0], a, 4, NULL, 0);
    prefix_insert(&ix, salt, t[1], b, 4, NULL, 0);
    CHECK(memcmp(kv->seqs[a].table, kv->seqs[b].table, 2 * sizeof(int32_t)) == 0 && kv->pages.n_free == free + 2,
          "A1: the second sequence keeps pages of its own for known blocks, %d of %d free", kv->pages.n_free, free + 2);
    CHECK(kv->pages.n_idle == 0, "A1: %d pages are idle, all are in use", kv->pages.n_idle);
    kv_seq_free(kv, a);
    const int idle = kv->pages.n_idle, gone = prefix_evict(&ix, 100);
    CHECK(idle == 2 && gone == 2, "A1: %d pages count as idle, wanted 2; %d could be evicted", idle, gone);
    kv_seq_free(kv, b);
    CHECK(kv->pages.n_idle == 4 && page_pool_room(&kv->pages) == kv->pages.n && prefix_evict(&ix, 100) == 4,
          "A1: all pages can be had again");
    prefix_destroy(&ix);
    serve_close(&r);
}

/* A sequence and its fork hold the same pages; the index has another page for their first block.  The second page must
 * not enter below it: the fork would use it under a page that counts as idle. */
static void check_held_otherwise(void)
{
    static const unsigned char salt[PREFIX_SALT];
    static int32_t t[2 * KVANT_PAGE];
    prefix_index ix;
    serve_rig r;

    if (!serve_open(&r, "tests/golden/tiny/llama.gguf", engine_params("f16", 64, 0), kvant_session_defaults()))
        return;
    kvant_session_free(r.s);
    r.s = NULL;
    kv_cache *kv = &r.e->kv;
    CHECK(prefix_create(&ix, kv, NULL) == KVANT_OK, "create");
    serve_tokens(t, 2 * KVANT_PAGE, 97);
    const int a = own_sequence(r.e, 2), other = own_sequence(r.e, 1);
    int fork = -1;
    CHECK(kv_seq_new(kv, &fork, NULL) == KVANT_OK, "sequence");
    kv_seq_share(kv, fork, kv->seqs[a].table, 2);
    prefix_insert(&ix, salt, t, other, 1, NULL, 0);
    prefix_insert(&ix, salt, t, a, 2, NULL, 0);
    CHECK(ix.n_nodes == 1, "a page that the fork holds behind another one is in the index: %d nodes", ix.n_nodes);
    kv_seq_free(kv, fork);
    prefix_insert(&ix, salt, t, a, 2, NULL, 0);
    CHECK(ix.n_nodes == 2, "without the fork the page enters: %d nodes", ix.n_nodes);
    kv_seq_free(kv, a);
    kv_seq_free(kv, other);
    CHECK(kv->pages.n_idle == 2 && prefix_evict(&ix, 100) == 2, "all pages can be had again");
    prefix_destroy(&ix);
    serve_close(&r);
}

/* A13: salts are compared, not only hashed: with no hash at all, another salt's blocks are not found. */
static void check_salts(void)
{
    static const unsigned char salt[3][PREFIX_SALT] = { { 1 }, { 2 }, { [PREFIX_SALT - 1] = 1 } };
    static int32_t t[2 * KVANT_PAGE + 1];
    prefix_index ix;
    prefix_hit hit;
    serve_rig r;

    if (!serve_open(&r, "tests/golden/tiny/llama.gguf", engine_params("f16", 64, 0), kvant_session_defaults()))
        return;
    kvant_session_free(r.s);
    r.s = NULL;
    CHECK(prefix_create(&ix, &r.e->kv, NULL) == KVANT_OK, "create");
    ix.hash_mask = 0;
    serve_tokens(t, 2 * KVANT_PAGE + 1, 95);
    for (int i = 0; i < 3; i++) {
        const int seq = own_sequence(r.e, 2);
        prefix_find(&ix, salt[i], t, 2 * KVANT_PAGE + 1, &hit);
        CHECK(hit.matched == 0 && hit.pages == 0, "A13: salt %d finds %d blocks of another one", i, hit.matched);
        prefix_insert(&ix, salt[i], t, seq, 2, NULL, 0);
        prefix_find(&ix, salt[i], t, 2 * KVANT_PAGE + 1, &hit);
        CHECK(hit.pages == 2 && ix.nodes[hit.node].page == r.e->kv.seqs[seq].table[1], "A13: salt %d: not its own page",
              i);
        kv_seq_free(&r.e->kv, seq);
    }
    CHECK(ix.n_nodes == 6, "A13: %d nodes, wanted 6", ix.n_nodes);
    prefix_forget(&ix, salt[1], t);
    CHECK(ix.n_nodes == 4, "A13: forgetting one salt's prefix left %d nodes, wanted 4", ix.n_nodes);
    prefix_destroy(&ix);
    serve_close(&r);
}

/* Four slots: a dense row of snapshots loses its neighbours first, the lone early one of another prompt stays. */
static void check_snapshot_eviction(void)
{
    static int32_t t[3][8 * KVANT_PAGE];
    prefix_index ix;
    serve_rig r;

    if (!serve_open(&r, "tests/golden/tiny/qwen35.gguf", engine_params("f16", 64, 4), kvant_session_defaults()))
        return;
    kvant_session_free(r.s);
    r.s = NULL;
    CHECK(prefix_create(&ix, &r.e->kv, NULL) == KVANT_OK, "create");
    for (int i = 0; i < 3; i++)
        serve_tokens(t[i], 8 * KVANT_PAGE, 70 + (uint64_t)i);
    insert(r.e, &ix, t[0], 4, 4);
    insert(r.e, &ix, t[1], 3, 1);
    CHECK(cached_pages(&ix, t[0], 512) == 4 && cached_pages(&ix, t[1], 512) == 3, "four snapshots fit");
    insert(r.e, &ix, t[2], 4, 4);
    CHECK(cached_pages(&ix, t[0], 512) == 4 && cached_pages(&ix, t[2], 512) == 4 && ix.evicted_snaps == 1,
          "a snapshot that saves 64 tokens goes before one that saves 256");
    CHECK(cached_pages(&ix, t[1], 512) > 0, "the row keeps something");
    prefix_clear(&ix);
    CHECK(r.e->kv.snaps.n_free == 4 && r.e->kv.pages.n_free == r.e->kv.pages.n, "all free again");
    prefix_destroy(&ix);
    serve_close(&r);
}

/* Of snapshots that save alike, one behind which a conversation went on goes before its end. */
static void check_snapshot_ends(void)
{
    static int32_t t[3][8 * KVANT_PAGE];
    prefix_index ix;
    serve_rig r;

    if (!serve_open(&r, "tests/golden/tiny/qwen35.gguf", engine_params("f16", 64, 4), kvant_session_defaults()))
        return;
    kvant_session_free(r.s);
    r.s = NULL;
    CHECK(prefix_create(&ix, &r.e->kv, NULL) == KVANT_OK, "create");
    for (int i = 0; i < 3; i++)
        serve_tokens(t[i], 8 * KVANT_PAGE, 90 + (uint64_t)i);
    insert(r.e, &ix, t[0], 2, 1);
    insert(r.e, &ix, t[1], 2, 1);
    insert(r.e, &ix, t[2], 1, 1);
    CHECK(ix.evicted_snaps == 1 && cached_pages(&ix, t[0], 512) == 2 && cached_pages(&ix, t[1], 512) == 2,
          "two conversations end at pages 2 and 2 of the cache, at %d and %d after a third prompt",
          cached_pages(&ix, t[0], 512), cached_pages(&ix, t[1], 512));
    prefix_destroy(&ix);
    serve_close(&r);
}

/* A prompt that leaves a cached one where there is no snapshot puts one there: the third is served from it. */
static void check_branch(void)
{
    static serve_out out;
    int32_t t[LONG];
    kvant_session_params sp = kvant_session_defaults();
    serve_rig r;

    sp.ladder = -1;
    if (!serve_open(&r, "tests/golden/tiny/qwen35.gguf", engine_params("f16", 64, 16), sp))
        return;
    for (int i = 0; i < 3; i++) {
        serve_tokens(t, LONG, 80);
        serve_tokens(t + 140, LONG - 140, 81 + (uint64_t)i);
        kvant_request q = request_for(t, LONG, 0);
        serve_one(&r, &q, &out);
        CHECK(out.n_cached == (i == 2 ? 128 : 0), "branch %d: %d cached", i, out.n_cached);
    }
    serve_close(&r);
}

int main(void)
{
    const char *hybrid = "tests/golden/tiny/qwen35.gguf", *dense = "tests/golden/tiny/llama.gguf";

    check_forks(dense, "f16", 64, 7);
    check_forks(dense, "tbq4_0", 64, 1);
    check_forks(hybrid, "tbq4_0", 128, 3);
    check_forks(hybrid, "f16", 64, 1);
    check_forks(dense, "ptcq3", 128, 1);
    for (int keep = 0; keep < 16; keep++)
        check_pairs(hybrid, keep & 1 ? "tbq4_0" : "f16", 64, keep, keep == 15 ? 1 : 41);
    check_pairs(hybrid, "tbq4_0", 192, 15, 37);
    check_pairs(dense, "tbq4_0", 192, 10, 37);
    check_pairs(dense, "tbq4_0", 64, 0, 17);
    sink = 100;
    check_forks(dense, "tbq4_0", 64, 3);
    check_forks(hybrid, "ptcq3", 128, 7);
    check_pairs(hybrid, "tbq4_0", 64, 15, 41);
    check_pairs(dense, "tbq4_0", 64, 10, 17);
    check_pairs(dense, "tbq4_0", 192, 10, 37);
    sink = 0;
    check_collisions(dense);
    check_collisions(hybrid);
    check_eviction();
    check_shares(dense, 0);
    check_shares(hybrid, 6);
    check_adoption();
    check_held_otherwise();
    check_salts();
    check_snapshot_eviction();
    check_snapshot_ends();
    check_branch();
    return check_end("check_prefix");
}
