/* check_session_lora.c: requests of one session with adapters of their own.  The same tokens and the same bits of
 * log-probabilities alone, beside others, after a prefix hit, in a slot, preempted, restored; and nothing that was made
 * with one set of scales ever serves another: not in memory, not from a file. */
#include <unistd.h>

#include "support/check.h"
#include "support/store_rig.h"

enum { N_SETS = 5, PROMPT = 200, GEN = 12 };

static const float sets[N_SETS][2] = { { 0, 0 }, { 1, 0 }, { 0.5f, 0 }, { 0, 1 }, { 1, -0.5f } };
static const unsigned char salt[16] = "lora";
static char folder[64];
static int32_t prompt[PROMPT + 64];
static serve_out alone[N_SETS];

static int rig_open_cut(serve_rig *r, int pages, int pass)
{
    static const kvant_lora lora[2] = { { "tests/lora/qwen2-a.gguf", 1.0f }, { "tests/lora/qwen2-b.gguf", 0.0f } };
    const kvant_model_params mp = { sizeof(kvant_model_params), .path = "tests/archs/qwen2.gguf", .lora = lora,
                                    .n_lora = 2 };
    kvant_engine_params ep = kvant_engine_defaults();
    kvant_session_params sp = kvant_session_defaults();

    ep.threads = 2;
    ep.n_ctx = 512;
    ep.max_seqs = 6;
    ep.n_ubatch = pass;
    ep.pool_tokens = (int64_t)pages * KVANT_PAGE;
    sp.batch_tokens = pass < 128 ? 128 : pass;
    sp.snapshot_dir = folder;
    return serve_open_model(r, &mp, ep, sp);
}

static int rig_open(serve_rig *r, int pages)
{
    return rig_open_cut(r, pages, 128);
}

static kvant_request request_of(int set, int n, int slot)
{
    kvant_request q = store_request(prompt, n, GEN, slot, salt);
    q.lora = sets[set];
    return q;
}

static void check_alone(serve_rig *r)
{
    for (int i = 0; i < N_SETS; i++) {
        kvant_request q = request_of(i, PROMPT, -1);
        q.cache = KVANT_CACHE_NO_READ | KVANT_CACHE_NO_WRITE;
        serve_one(r, &q, &alone[i]);
        CHECK(alone[i].n == GEN, "set %d: %d tokens: %s", i, alone[i].n, alone[i].text);
        for (int k = 0; k < i; k++)
            CHECK(!serve_same(&alone[i], &alone[k]), "sets %d and %d give the same", i, k);
    }
}

/* All at once, twice: the second time every one finds its own pages, and only those. */
static void check_together(serve_rig *r)
{
    static serve_out out[2 * N_SETS];
    kvant_diag d = { "" };

    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N_SETS; i++) {
            kvant_request q = request_of(i, PROMPT, -1);
            CHECK(serve_submit(r, &q, &out[round * N_SETS + i], &d) == KVANT_OK, "%s", d.text);
        }
        for (int i = 0; i < N_SETS; i++) {
            const serve_out *o = &out[round * N_SETS + i];
            serve_wait(&out[round * N_SETS + i]);
            CHECK(serve_same(o, &alone[i]), "set %d, round %d: other bits", i, round);
            CHECK(o->n_cached == (round ? PROMPT / KVANT_PAGE * KVANT_PAGE : 0), "set %d, round %d: %d tokens cached",
                  i, round, o->n_cached);
        }
    }
}

/* A session's scales: of requests that bring none. */
static void check_default(serve_rig *r)
{
    serve_out out;
    float now[2] = { 9, 9 };
    const float bad[2] = { 0, INFINITY };
    kvant_diag d = { "" };
    kvant_request q = request_of(0, PROMPT, -1);

    CHECK(kvant_session_get_lora(r->s, now, 2) == 2 && now[0] == 1 && now[1] == 0, "%g %g", (double)now[0],
          (double)now[1]);
    for (int i = 1; i < N_SETS; i++) {
        q.lora = NULL;
        serve_one(r, &q, &out);
        CHECK(serve_same(&out, &alone[i]), "the session's scales %d: other bits", i);
        CHECK(kvant_session_set_lora(r->s, sets[(i + 1) % N_SETS], 2, &d) == KVANT_OK, "%s", d.text);
    }
    CHECK(kvant_session_set_lora(r->s, sets[1], 1, &d) == KVANT_EINVAL && strstr(d.text, "the model has 2"), "%s",
          d.text);
    CHECK(kvant_session_set_lora(r->s, bad, 2, &d) == KVANT_EINVAL && strstr(d.text, "inf of adapter 1"), "%s", d.text);
    q.lora = bad;
    CHECK(serve_submit(r, &q, &out, &d) == KVANT_EINVAL && strstr(d.text, "inf of adapter 1"), "%s", d.text);
    CHECK(kvant_session_set_lora(r->s, sets[1], 2, &d) == KVANT_OK, "%s", d.text);
}

/* A slot is continued only with the scales that it was made with; longer: the prompt and what came of it. */
static void check_slot(serve_rig *r)
{
    static serve_out first, more, cold;
    kvant_request q = request_of(2, PROMPT, 1);
    CHECK(store_act(r, KVANT_CACHE_CLEAR, 0, NULL, salt).r.code == KVANT_OK, "clear");
    q.cache = KVANT_CACHE_NO_WRITE;
    serve_one(r, &q, &first);
    memcpy(prompt + PROMPT, first.tokens, GEN * sizeof *prompt);
    for (int set = 1; set < 3; set++) {
        q = request_of(3 - set, PROMPT + GEN, -1);
        q.cache = KVANT_CACHE_NO_READ | KVANT_CACHE_NO_WRITE;
        serve_one(r, &q, &cold);
        q = request_of(2, PROMPT, 1);
        q.cache = KVANT_CACHE_NO_WRITE;
        serve_one(r, &q, &first);
        q = request_of(3 - set, PROMPT + GEN, 1);
        q.cache = KVANT_CACHE_NO_WRITE;
        serve_one(r, &q, &more);
        CHECK(more.n_cached == (set == 1 ? PROMPT + GEN - 1 : 0), "set %d: %d tokens of the slot", 3 - set,
              more.n_cached);
        CHECK(set == 1 || serve_same(&more, &cold), "set %d in another's slot: other bits", 3 - set);
    }
}

/* A file is restored only where the session has the scales that the sequence was made with. */
static void check_files(serve_rig *r)
{
    static serve_out out, hit;
    kvant_diag d = { "" };
    kvant_request q = request_of(1, PROMPT, 2);

    serve_one(r, &q, &out);
    CHECK(store_act(r, KVANT_SLOT_SAVE, 2, "one", salt).r.code == KVANT_OK, "save");
    kvant_session_set_lora(r->s, sets[2], 2, &d);
    const reply no = store_act(r, KVANT_SLOT_RESTORE, 3, "one", salt);
    CHECK(no.r.code < 0 && strstr(no.text, "adapters"), "restored with other scales: %d %s", no.r.code, no.text);
    kvant_session_set_lora(r->s, sets[1], 2, &d);
    CHECK(store_act(r, KVANT_SLOT_RESTORE, 3, "one", salt).r.code == KVANT_OK, "restore");
    memcpy(prompt + PROMPT, out.tokens, GEN * sizeof *prompt);
    q = request_of(1, PROMPT + GEN, 2);
    serve_one(r, &q, &out);
    q = request_of(1, PROMPT + GEN, 3);
    serve_one(r, &q, &hit);
    CHECK(hit.n_cached == PROMPT + GEN - 1 && serve_same(&hit, &out),
          "restored: %d tokens, or other bits", hit.n_cached);
}

static void check_saved_cache(serve_rig *r)
{
    static serve_out out;
    serve_rig two;
    kvant_request q = request_of(1, PROMPT, -1);

    CHECK(store_act(r, KVANT_CACHE_CLEAR, 0, NULL, salt).r.code == KVANT_OK, "clear");
    serve_one(r, &q, &out);
    CHECK(store_act(r, KVANT_CACHE_SAVE, 0, "all", salt).r.code == KVANT_OK, "save");
    if (!rig_open(&two, 64))
        return;
    CHECK(store_act(&two, KVANT_CACHE_RESTORE, 0, "all", salt).r.code == KVANT_OK, "restore");
    for (int i = 0; i < N_SETS; i++) {
        q = request_of(i, PROMPT, -1);
        q.cache = KVANT_CACHE_NO_WRITE;
        serve_one(&two, &q, &out);
        CHECK(serve_same(&out, &alone[i]) && (out.n_cached > 0) == (i == 1),
              "set %d after a restore: %d tokens cached", i,
              out.n_cached);
    }
    serve_close(&two);
}

static void check_preempted(void)
{
    static serve_out out[3];
    serve_rig r;
    kvant_diag d = { "" };
    int n = 0;

    if (!rig_open(&r, 7))
        return;
    for (int i = 0; i < 3; i++) {
        kvant_request q = request_of(i, 130, -1);
        q.max_tokens = 100;
        CHECK(serve_submit(&r, &q, &out[i], &d) == KVANT_OK, "%s", d.text);
    }
    for (int i = 0; i < 3; i++)
        serve_wait(&out[i]);
    for (int i = 0; i < 3; i++) {
        static serve_out want;
        kvant_request q = request_of(i, 130, -1);
        q.max_tokens = 100;
        q.cache = KVANT_CACHE_NO_READ | KVANT_CACHE_NO_WRITE;
        serve_one(&r, &q, &want);
        CHECK(out[i].n == 100 && serve_same(&out[i], &want), "set %d in a small pool: other bits", i);
        n += out[i].n_preempted;
    }
    CHECK(n > 0, "nobody was preempted");
    serve_close(&r);
}

/* More tokens in a pass than an engine has rows of logits: adapters of the output matrix have nothing to say there. */
static void check_embeddings(void)
{
    static serve_out whole, cut;

    for (int i = 0; i < 2; i++) {
        serve_rig r;
        if (!rig_open_cut(&r, 64, i ? 64 : 512))
            return;
        kvant_request q = request_of(1, PROMPT, -1);
        q.kind = KVANT_REQUEST_EMBED_MEAN;
        serve_one(&r, &q, i ? &cut : &whole);
        serve_close(&r);
    }
    CHECK(whole.n_embd > 0 && memcmp(whole.embedding, cut.embedding, (size_t)whole.n_embd * 4) == 0,
          "an embedding of %d tokens with an adapter depends on the passes", PROMPT);
}

int main(void)
{
    char remove[96];
    serve_rig r;

    snprintf(folder, sizeof folder, "/tmp/kvant-lora-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    serve_tokens(prompt, PROMPT, 5);
    if (rig_open(&r, 64)) {
        check_alone(&r);
        check_together(&r);
        check_default(&r);
        check_slot(&r);
        check_files(&r);
        check_saved_cache(&r);
        serve_close(&r);
    }
    check_preempted();
    check_embeddings();
    snprintf(remove, sizeof remove, "rm -rf %s", folder);
    CHECK(system(remove) == 0, "%s", remove);
    return check_end("check_session_lora");
}
