/* check_spec_mtp.c: drafts of a model's own block for further tokens (MTP).  A text with them, of an engine that has
 * the block, is the text of one without: tokens and log-probabilities, 0 to 7 drafts, in company, with prefix hits, in
 * a small pool.  The block guesses the same however the text came in; a trained one is right often enough; files that
 * are no such block are refused.
 *
 *   check_spec_mtp */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file/file.h"
#include "base/mem.h"
#include "engine/session_impl.h"
#include "support/check.h"
#include "support/gguf_build.h"
#include "support/spec_scene.h"

static void run_as(spec_scene *c, const char *name, int spec, int preempt)
{
    kvant_session_params sp = kvant_session_defaults();

    sp.spec = spec;
    sp.preempt = preempt;
    spec_scene_run(c, name, sp, -1);
}

/* Guesses that the block thinks likely: it is asked how likely each is, and fewer are checked than of all. */
static void run_likely(spec_scene *c)
{
    const uint64_t all = c->drafted;
    kvant_session_params sp = kvant_session_defaults();

    sp.spec = KVANT_SPEC_MTP;
    sp.draft_p_min = 0.15f;
    spec_scene_run(c, "its block, likely guesses", sp, -1);
    CHECK(c->drafted > 0 && c->drafted < all, "%s: %d drafted of %d", c->model, (int)c->drafted, (int)all);
}

/* 0: the engine does not verify drafts of the model. */
static int run_model(const char *path, const char *type, int tail)
{
    static spec_scene c;

    if (!spec_scene_open(&c, path, type, tail))
        return 0;
    c.mtp = 1;
    run_as(&c, "its block", KVANT_SPEC_MTP, KVANT_PREEMPT_RECOMPUTE);
    CHECK(c.drafted > 500, "%s: %d drafted", path, (int)c.drafted);
    run_likely(&c);
    run_as(&c, "auto", KVANT_SPEC_AUTO, KVANT_PREEMPT_RECOMPUTE);
    run_as(&c, "n-grams beside the block", KVANT_SPEC_NGRAM, KVANT_PREEMPT_RECOMPUTE);
    c.pool_tokens = 10 * 64;
    run_as(&c, "its block, in a small pool", KVANT_SPEC_MTP, KVANT_PREEMPT_SAVE);
    return 1;
}

/* ---- the block's own numbers ---- */

typedef struct block_engine {
    kvant_model *m;
    kvant_engine *e;
} block_engine;

static int open_block(block_engine *b, const kvant_model_params *mp, const char *type)
{
    kvant_engine_params p = kvant_engine_defaults();
    kvant_diag d = { "" };

    *b = (block_engine){ NULL, NULL };
    p.threads = 1;
    p.n_ctx = 512;
    p.max_seqs = 4;
    p.type_k = p.type_v = type;
    p.mtp = 1;
    CHECK(kvant_model_open(mp, &b->m, &d) == KVANT_OK, "%s: %s", mp->path, d.text);
    if (b->m)
        CHECK(kvant_engine_create(b->m, &p, &b->e, &d) == KVANT_OK, "%s: %s", mp->path, d.text);
    return b->e != NULL;
}

static void close_block(block_engine *b)
{
    kvant_engine_free(b->e);
    kvant_model_close(b->m);
}

/* The guess behind tokens[n], of which all but the last are evaluated in pieces that end at `cuts`. */
static int32_t guess_after(kvant_engine *e, const int32_t *tokens, int n, const int *cuts, int n_cuts, int prompt)
{
    mtp_item it = { .at = 0, .n = 1, .token = tokens[n - 1] };
    kvant_diag d = { "" };

    CHECK(kvant_seq_new(e, &it.seq, &d) == KVANT_OK, "%s", d.text);
    for (int i = 0, from = 0; i <= n_cuts; i++) {
        const int to = i < n_cuts ? cuts[i] : n - 1;
        const kvant_item item = { .seq = it.seq, .tokens = tokens + from, .n = to - from, .prompt = prompt,
                                  .logits = KVANT_LOGITS_GREEDY };
        CHECK(kvant_step(e, &item, 1, &d) == KVANT_OK, "%s", d.text);
        from = to;
    }
    CHECK(engine_mtp_guess(e, &it, 1, 1, &d) == KVANT_OK && it.guess[0] >= 0, "no guess: %s", d.text);
    engine_mtp_end(e, it.seq);
    kvant_seq_free(e, it.seq);
    return it.guess[0];
}

/* However the text came in, the hidden states and rows are those of one piece. */
static void check_cuts(const char *path)
{
    static const int cuts[3][2] = { { 64, 128 }, { 64, 129 }, { 128, 129 } };
    const kvant_model_params mp = { .size = sizeof mp, .path = path };
    int32_t tokens[150];
    block_engine b;

    if (!open_block(&b, &mp, "f16"))
        return;
    serve_tokens(tokens, 150, 5);
    const int32_t whole = guess_after(b.e, tokens, 150, NULL, 0, 1);
    for (int i = 0; i < 3; i++)
        CHECK(guess_after(b.e, tokens, 150, cuts[i], 1 + (i == 0), 1) == whole, "%s: cuts %d: another guess", path, i);
    CHECK(guess_after(b.e, tokens, 150, NULL, 0, 0) == whole, "%s: as decode rows: another guess", path);
    close_block(&b);
}

enum { AHEAD_SEQS = 4, AHEAD_MOST = 6 };

/* Guesses of all items at once, against the same one by one, whose tokens the host sends: `cut` of them first. */
static void compare_ahead(kvant_engine *e, const mtp_item *want, const int *seqs, int cut, int likely)
{
    static mtp_item got[AHEAD_SEQS];
    int32_t before[AHEAD_SEQS];
    kvant_diag d = { "" };

    for (int part = 0; part < 2; part++) {
        for (int i = 0; i < AHEAD_SEQS; i++) {
            const int n = want[i].n, first = n < cut ? n : cut;
            before[i] = part ? got[i].guess[first - 1] : want[i].token;
            got[i] = (mtp_item){ .seq = seqs[i], .at = part * first, .n = part ? n - first : first,
                                .token = before[i] };
        }
        CHECK(engine_mtp_guess(e, got, AHEAD_SEQS, likely, &d) == KVANT_OK, "%s", d.text);
        for (int i = 0; i < AHEAD_SEQS; i++)
            for (int j = 0; j < got[i].n; j++)
                CHECK(got[i].guess[j] == want[i].guess[got[i].at + j] &&
                          got[i].p[j] == (likely ? want[i].p[got[i].at + j] : 1.0f),
                      "sequence %d, guess %d of %d, cut %d: %d of %g, wanted %d of %g", i, got[i].at + j, want[i].n, cut,
                      got[i].guess[j], (double)got[i].p[j], want[i].guess[got[i].at + j],
                      (double)want[i].p[got[i].at + j]);
    }
    for (int i = 0; i < AHEAD_SEQS; i++)
        engine_mtp_end(e, seqs[i]);
}

/* Sequences that want 2, 6, 1 and 4 guesses; a room of guesses that ends before the page does. */
static void check_ahead(const char *path)
{
    static const int wants[AHEAD_SEQS] = { 2, AHEAD_MOST, 1, 4 };
    static mtp_item want[AHEAD_SEQS];
    const kvant_model_params mp = { .size = sizeof mp, .path = path };
    int32_t tokens[64];
    int seqs[AHEAD_SEQS], others = 0;
    kvant_diag d = { "" };
    block_engine b;

    if (!open_block(&b, &mp, "f16"))
        return;
    for (int i = 0; i < AHEAD_SEQS; i++) {
        serve_tokens(tokens, 64, 60 + (uint64_t)i);
        CHECK(kvant_seq_new(b.e, &seqs[i], &d) == KVANT_OK, "%s", d.text);
        const kvant_item it = { .seq = seqs[i], .tokens = tokens, .n = 20 + 7 * i, .prompt = 1,
                                .logits = KVANT_LOGITS_GREEDY };
        CHECK(kvant_step(b.e, &it, 1, &d) == KVANT_OK, "%s", d.text);
        want[i] = (mtp_item){ .seq = seqs[i], .n = wants[i], .token = tokens[40] };
        for (int j = 0; j < wants[i]; j++) {
            mtp_item one = { .seq = seqs[i], .at = j, .n = 1, .token = j ? want[i].guess[j - 1] : tokens[40] };
            CHECK(engine_mtp_guess(b.e, &one, 1, 1, &d) == KVANT_OK && one.guess[0] >= 0, "no guess: %s", d.text);
            want[i].guess[j] = one.guess[0];
            want[i].p[j] = one.p[0];
            others += j > 0 && one.guess[0] != want[i].guess[j - 1];
        }
        engine_mtp_end(b.e, seqs[i]);
    }
    CHECK(others > 0, "%s: every guess is the one before", path);
    for (int cut = 1; cut <= AHEAD_MOST; cut++) {
        compare_ahead(b.e, want, seqs, cut, 0);
        compare_ahead(b.e, want, seqs, cut, 1);
    }
    mtp_item far = { .seq = seqs[0], .n = ENGINE_MTP_ROWS, .token = 5 };
    for (int i = 0, n = KVANT_PAGE - 1 - 20 - 3; i < n; i++) {
        const kvant_item it = { .seq = seqs[0], .tokens = tokens, .n = 1, .logits = KVANT_LOGITS_NONE };
        CHECK(kvant_step(b.e, &it, 1, &d) == KVANT_OK, "%s", d.text);
    }
    const int room = kv_draft_room(&b.e->kv, seqs[0]);
    CHECK(engine_mtp_guess(b.e, &far, 1, 0, &d) == KVANT_OK && room > 0 && far.guess[room] >= 0 &&
              far.guess[room + 1] < 0,
          "%s: room for %d drafts: guesses %d, %d", path, room, far.guess[room], far.guess[room + 1]);
    close_block(&b);
}

/* Logits of the last token of a text of single steps; the block rests in those of [from, to). */
static int32_t text_with_rest(kvant_engine *e, const int32_t *tokens, int n, int from, int to, float *logits)
{
    mtp_item it = { .n = 1, .token = 5 };
    kvant_diag d = { "" };

    CHECK(kvant_seq_new(e, &it.seq, &d) == KVANT_OK, "%s", d.text);
    for (int i = 0; i < n; i++) {
        const kvant_item one = { .seq = it.seq, .tokens = &tokens[i], .n = 1, .prompt = i == 0,
                                 .logits = KVANT_LOGITS_LAST };
        e->mtp.rests = i >= from && i < to;
        CHECK(kvant_step(e, &one, 1, &d) == KVANT_OK, "%s", d.text);
        CHECK((e->mtp.len[it.seq] < 0) == (e->mtp.rests && i > 0), "token %d: the state of %d tokens is kept", i,
              e->mtp.len[it.seq]);
    }
    e->mtp.rests = 0;
    memcpy(logits, kvant_step_logits(e, 0, 0), (size_t)e->m->hp.n_vocab * sizeof *logits);
    CHECK(engine_mtp_guess(e, &it, 1, 1, &d) == KVANT_OK && it.guess[0] >= 0, "no guess: %s", d.text);
    engine_mtp_end(e, it.seq);
    kvant_seq_free(e, it.seq);
    return it.guess[0];
}

/* Texts are those of steps with the block; a prompt is written all the same, and what is asked later has an answer. */
static void check_rests(const char *path)
{
    const kvant_model_params mp = { .size = sizeof mp, .path = path };
    static float logits[2][1 << 12];
    int32_t tokens[90];
    block_engine b;

    if (!open_block(&b, &mp, "f16"))
        return;
    serve_tokens(tokens, 90, 5);
    const size_t bytes = (size_t)b.e->m->hp.n_vocab * sizeof(float);
    const int32_t guess = text_with_rest(b.e, tokens, 90, 90, 90, logits[0]);
    CHECK(text_with_rest(b.e, tokens, 90, 0, 1, logits[1]) == guess, "%s: a prompt was not written", path);
    text_with_rest(b.e, tokens, 90, 20, 89, logits[1]); /* over a page's end */
    CHECK(memcmp(logits[0], logits[1], bytes) == 0, "%s: other logits after a rest", path);
    text_with_rest(b.e, tokens, 90, 20, 90, logits[1]); /* asked while nobody has the state */
    CHECK(memcmp(logits[0], logits[1], bytes) == 0, "%s: other logits in a rest", path);
    close_block(&b);
}

/* A step keeps the hidden states of its drafts: as many as the engine says, and it refuses one more. */
static void check_most(const char *path)
{
    const kvant_model_params mp = { .size = sizeof mp, .path = path };
    int32_t tokens[64];
    kvant_diag d = { "" };
    block_engine b;
    int seq, n = KVANT_MOST_DRAFTS + 1;

    if (!open_block(&b, &mp, "f16"))
        return;
    serve_tokens(tokens, 64, 5);
    CHECK(kvant_seq_new(b.e, &seq, &d) == KVANT_OK, "%s", d.text);
    const int room = kvant_seq_draft_room(b.e, seq);
    CHECK(room == KVANT_MOST_DRAFTS, "%s: room for %d drafts, wanted %d", path, room, KVANT_MOST_DRAFTS);
    kvant_item it = { .seq = seq, .tokens = tokens, .n = 1 + n };
    CHECK(kvant_step_drafts(b.e, &it, &n, 1, &d) == KVANT_EINVAL && strstr(d.text, "33 drafts among 34 tokens"),
          "%s: 33 drafts: \"%s\"", path, d.text);
    it.n = 1 + --n;
    CHECK(kvant_step_drafts(b.e, &it, &n, 1, &d) == KVANT_OK, "%s: 32 drafts: %s", path, d.text);
    CHECK(kvant_seq_accept(b.e, seq, n, &d) == KVANT_OK && kvant_seq_length(b.e, seq) == 1 + n, "%s: %s", path, d.text);
    close_block(&b);
}

/* ---- a trained block ---- */

enum { PIECES = 6, AHEAD = 60, WRITTEN = 64 };

/* Greedy texts after pieces of a text that it was not trained with: how often the first draft is the token. */
static void check_trained(void)
{
    char trunk[256], path[256], *text = NULL;
    const kvant_model_params mp = { .size = sizeof mp, .path = trunk, .nextn = "models/novella-dense-mtp.gguf" };
    kvant_session_params sp = kvant_session_defaults();
    kvant_engine_params p = kvant_engine_defaults();
    kvant_session_stats st;
    serve_rig r;
    static serve_out out[PIECES];
    static int32_t ids[1 << 18];
    size_t size;
    int n = 0;

    if (!check_model_path("novella-dense-bf16.gguf", trunk, sizeof trunk) ||
        !check_model_path("valid.txt", path, sizeof path) || file_read(path, 1 << 24, &text, &size, NULL) != KVANT_OK)
        return;
    p.mtp = 1;
    p.n_ctx = 256;
    p.max_seqs = PIECES;
    p.logits_rows = 64;
    sp.spec = KVANT_SPEC_MTP;
    if (!serve_open_model(&r, &mp, p, sp)) {
        kvant_free(text);
        return;
    }
    CHECK(kvant_tokenize(r.m, text + size / 2, size / 2, 0, ids, 1 << 18, &n, NULL) == KVANT_OK && n > PIECES * 4096,
          "%s: %d tokens", path, n);
    for (int i = 0; i < PIECES; i++) {
        kvant_request q = kvant_request_defaults();
        kvant_diag d = { "" };
        q.prompt = ids + 4096 * i;
        q.n_prompt = AHEAD;
        q.max_tokens = WRITTEN;
        q.ignore_eos = 1;
        q.draft_max = 3;
        CHECK(serve_submit(&r, &q, &out[i], &d) == KVANT_OK, "%s", d.text);
    }
    for (int i = 0; i < PIECES; i++)
        serve_wait(&out[i]);
    kvant_session_get_stats(r.s, &st);
    uint64_t tried = 0;
    for (int i = 1; i <= KVANT_MOST_DRAFTS; i++)
        tried += st.draft_steps[i];
    printf("check_spec_mtp: of %d first drafts %d were the text, of the second %d, of the third %d\n", (int)tried,
           (int)st.draft_accepted_at[0], (int)st.draft_accepted_at[1], (int)st.draft_accepted_at[2]);
    CHECK(st.draft_accepted_at[0] * 100 >= 60 * tried, "a trained block: %d of %d first drafts were the text",
          (int)st.draft_accepted_at[0], (int)tried);
    CHECK(st.draft_accepted_at[1] * 2 >= st.draft_accepted_at[0],
          "a trained block: behind %d drafts %d more were the text", (int)st.draft_accepted_at[0],
          (int)st.draft_accepted_at[1]);
    serve_close(&r);
    kvant_free(text);
}

/* ---- who is refused ---- */

static void refused(const char *path, const char *nextn, int mtp, const char *what)
{
    const kvant_model_params mp = { .size = sizeof mp, .path = path, .nextn = nextn };
    kvant_engine_params p = kvant_engine_defaults();
    kvant_model *m = NULL;
    kvant_engine *e = NULL;
    kvant_diag d = { "" };

    p.mtp = mtp;
    int code = kvant_model_open(&mp, &m, &d);
    if (code == KVANT_OK)
        code = kvant_engine_create(m, &p, &e, &d);
    CHECK(code < 0 && strstr(d.text, what), "%s, %s: found \"%s\", wanted \"%s\"", path, nextn ? nextn : "-", d.text,
          what);
    kvant_engine_free(e);
    kvant_model_close(m);
}

/* A block behind as many layers as a model may have. */
static void check_layers(void)
{
    static const char *const deep[] = { "qwen2vl.block_count=int:1024" };
    char path[] = "/tmp/check_spec_mtp_XXXXXX";
    const kvant_model_params mp = { .size = sizeof mp, .path = "tests/archs/qwen2vl.gguf", .nextn = path,
                                    .overrides = deep, .n_overrides = 1 };
    const int fd = mkstemp(path);
    kvant_model *m = NULL;
    kvant_diag d = { "" };
    gb b = { 0 };

    gb_begin(&b, 3, 1, 1);
    gb_kv_str(&b, "general.architecture", "qwen2vl");
    gb_tensor(&b, "x", 1, (const int64_t[]){ 8 }, 0, 0);
    gb_pad(&b, 32);
    gb_fill(&b, 32, 1);
    CHECK(fd >= 0 && gb_write(&b, path) == 0, "%s is not written", path);
    CHECK(kvant_model_open(&mp, &m, &d) == KVANT_EFORMAT && strstr(d.text, "block_count: 1024, wanted at most 1023"),
          "a block behind 1024 layers: \"%s\"", d.text);
    kvant_model_close(m);
    gb_free(&b);
    close(fd);
    unlink(path);
}

int main(void)
{
    int done = 0;

    refused("tests/archs/qwen2vl.gguf", NULL, 1, "no block that predicts");
    refused("tests/archs/qwen2vl.gguf", "tests/archs/glm4moe.gguf", 0, "general.architecture");
    refused("tests/archs/qwen2vl.gguf", "tests/archs/qwen2vl.gguf", 0, "found twice");
    refused("tests/mtp/qwen2vl.gguf", "tests/archs/qwen2vl.gguf", 0, "wanted one without");
    check_layers();
    check_cuts("tests/mtp/qwen2vl.gguf");
    check_cuts("tests/mtp/glm4moe.gguf");
    check_cuts("tests/mtp/deepseek2.gguf");
    check_ahead("tests/mtp/qwen2vl.gguf");
    check_ahead("tests/mtp/glm4moe.gguf");
    check_ahead("tests/mtp/qwen35.gguf");
    check_rests("tests/mtp/qwen2vl.gguf");
    check_rests("tests/mtp/qwen35.gguf");
    check_most("tests/mtp/qwen2vl.gguf");
    check_most("tests/mtp/glm4moe.gguf");
    done += run_model("tests/mtp/qwen2vl.gguf", "f16", 64);
    done += run_model("tests/mtp/glm4moe.gguf", "tbq4_0", 0);
    done += run_model("tests/mtp/deepseek2.gguf", "q8_0", 64);
    done += run_model("tests/mtp/qwen35.gguf", "f16", 64);
    CHECK(done >= 3, "%d models", done);
    check_trained();
    return check_end("check_spec_mtp");
}
