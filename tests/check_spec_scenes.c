/* check_spec_scenes.c: a session with drafts gives every request the bytes of tokens and log-probabilities that a
 * session without gives it, in each of these scenes: a crowd of 16 in a pool that is too small (preempted and saved,
 * preempted and computed anew), conversations in slots that are saved, restored and go on, prefixes of answers,
 * requests that are cancelled, adapters.
 *
 * A model of each kind of recurrent layer, and one without; the drafter knows the text three times of four. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "engine/session_impl.h"
#include "support/check.h"
#include "support/gguf_build.h"
#include "support/store_rig.h"

enum { REQUESTS = 16, OUTS = 24, PROMPT = 150, GEN = 40, ROOM = 512 };

static const unsigned char salt[16] = "scenes";
static char folder[64], adapters[2][96];

/* What a scene asked, in order, and got without drafts and with them. */
typedef struct scene {
    const char *model, *name;
    int n, gen, n_prompt[OUTS];
    int32_t prompt[OUTS][ROOM];
    serve_out plain[OUTS], got[OUTS];
    rng random;
    int n_preempted, n_drafted, n_accepted;
} scene;

static scene c; /* one at a time */

/* ---- the drafter: what came behind these tokens without drafts, or guesses ---- */

static int knowing(void *user, const int32_t *tokens, int n, int32_t *out, int k)
{
    const int32_t *text = NULL;
    int left = 0;

    (void)user;
    for (int i = 0; i < c.n && !text; i++) {
        const int p = c.n_prompt[i], at = n - p;
        if (at >= 0 && at < c.plain[i].n && memcmp(tokens, c.prompt[i], (size_t)p * sizeof *tokens) == 0 &&
            memcmp(tokens + p, c.plain[i].tokens, (size_t)at * sizeof *tokens) == 0) {
            text = c.plain[i].tokens + at;
            left = c.plain[i].n - at;
        }
    }
    for (int i = 0; i < k; i++)
        out[i] = i < left && rng_below(&c.random, 4) ? text[i] : (int32_t)rng_below(&c.random, 200);
    return (int)rng_below(&c.random, (uint32_t)k + 1);
}

/* ---- requests ---- */

static void make_prompts(void)
{
    for (int i = 0; i < OUTS; i++) {
        c.n_prompt[i] = 3 + i * (PROMPT - 3) / OUTS;
        serve_tokens(c.prompt[i], ROOM, 31 + (uint64_t)(i % 5));
        for (int t = 0; t < ROOM; t++)
            c.prompt[i][t] %= 200;
        c.prompt[i][c.n_prompt[i] - 1] = i;
    }
}

static kvant_request request_of(int i, int slot, kvant_sampler_params *sp)
{
    kvant_request q = store_request(c.prompt[i], c.n_prompt[i], c.gen, slot, salt);

    *sp = kvant_sampler_defaults();
    sp->seed = 7 + (uint64_t)i;
    sp->temp = 0.9f;
    q.sampler = i % 2 ? sp : NULL;
    q.draft_max = i % 8;
    return q;
}

static void submit(serve_rig *r, int i, serve_out *out, const float *lora)
{
    kvant_sampler_params sp;
    kvant_request q = request_of(i, -1, &sp);
    kvant_diag d = { "" };

    q.lora = lora;
    CHECK(serve_submit(r, &q, &out[i], &d) == KVANT_OK, "%s: %s", c.name, d.text);
}

static void one(serve_rig *r, int i, int slot, serve_out *out)
{
    kvant_sampler_params sp;
    kvant_request q = request_of(i, slot, &sp);

    serve_one(r, &q, &out[i]);
}

/* ---- scenes: each plays the same with and without drafts ---- */

static kvant_engine_params ep;
static kvant_session_params sp;
static kvant_model_params mp;

static void crowd(serve_rig *r, serve_out *out)
{
    c.n = REQUESTS;
    for (int i = 0; i < REQUESTS; i++)
        submit(r, i, out, NULL);
    for (int i = 0; i < REQUESTS; i++)
        serve_wait(&out[i]);
}

/* Some end early by their owner's will, in the midst of a step with drafts. */
static void leavers(serve_rig *r, serve_out *out)
{
    c.n = REQUESTS;
    for (int i = 0; i < REQUESTS; i++) {
        out[i].stop_after = i % 3 ? 5 + i : 0;
        out[i].stop_how = i % 3 == 1 ? KVANT_EVENT_CANCEL : KVANT_EVENT_STOP;
        submit(r, i, out, NULL);
    }
    for (int i = 0; i < REQUESTS; i++)
        serve_wait(&out[i]);
}

/* The conversation of out[from], and `more` tokens. */
static void go_on(int from, int to, int more, const serve_out *out)
{
    const int p = c.n_prompt[from], n = out[from].n;

    memcpy(c.prompt[to], c.prompt[from], (size_t)p * sizeof(int32_t));
    memcpy(c.prompt[to] + p, out[from].tokens, (size_t)n * sizeof(int32_t));
    serve_tokens(c.prompt[to] + p + n, more, (uint64_t)to);
    for (int t = 0; t < more; t++)
        c.prompt[to][p + n + t] %= 200;
    c.n_prompt[to] = p + n + more;
}

static void act(serve_rig *r, int what, int slot)
{
    const reply o = store_act(r, what, slot, "talk", salt);
    CHECK(o.r.code == KVANT_OK, "%s: action %d: %s", c.name, what, o.text);
}

/* A conversation is saved in the midst of a page, behind rows that were drafts; it goes on, and so does its copy. */
static void slots(serve_rig *r, serve_out *out)
{
    c.n = 8;
    for (int i = 0; i < 2; i++) {
        const int at = 4 * i;
        c.n_prompt[at] = i ? 30 : 100;
        one(r, at, 0, out);
        act(r, KVANT_SLOT_SAVE, 0);
        go_on(at, at + 1, 5, out);
        one(r, at + 1, 0, out);
        act(r, KVANT_SLOT_RESTORE, 1);
        go_on(at, at + 2, 9, out);
        one(r, at + 2, 1, out);
        go_on(at + 2, at + 3, 2, out);
        one(r, at + 3, 1, out);
        act(r, KVANT_SLOT_ERASE, 0);
        act(r, KVANT_SLOT_ERASE, 1);
    }
}

/* Answers enter the prefix cache, with the states at their page ends; others go on behind them. */
static void reuse(serve_rig *r, serve_out *out)
{
    c.n = 9;
    for (int i = 0; i < 3; i++) {
        c.n_prompt[3 * i] = 40 + 20 * i;
        one(r, 3 * i, -1, out);
        for (int k = 1; k < 3; k++) {
            go_on(3 * i + k - 1, 3 * i + k, 7, out);
            one(r, 3 * i + k, -1, out);
        }
    }
}

static void with_adapters(serve_rig *r, serve_out *out)
{
    static const float sets[4][2] = { { 0, 0 }, { 1, 0 }, { 0.5f, -1 }, { 0, 1 } };

    c.n = REQUESTS;
    for (int i = 0; i < REQUESTS; i++)
        submit(r, i, out, sets[i % 4]);
    for (int i = 0; i < REQUESTS; i++)
        serve_wait(&out[i]);
}

/* ---- comparison ---- */

static void run(void (*play)(serve_rig *, serve_out *), int spec, serve_out *out)
{
    serve_rig r;

    sp.spec = spec;
    c.n_preempted = c.n_drafted = c.n_accepted = 0;
    memset(out, 0, OUTS * sizeof *out);
    make_prompts();
    if (!serve_open_model(&r, &mp, ep, sp))
        return;
    r.s->hooks.drafter = knowing;
    play(&r, out);
    serve_close(&r);
    for (int i = 0; i < c.n; i++) {
        c.n_preempted += out[i].t.n_preempted;
        c.n_drafted += out[i].t.n_drafted;
        c.n_accepted += out[i].t.n_draft_accepted;
    }
}

static void check_scene(const char *name, void (*play)(serve_rig *, serve_out *), int least)
{
    c.name = name;
    c.random = (rng){ 3 };
    run(play, KVANT_SPEC_OFF, c.plain);
    CHECK(c.n_drafted == 0, "%s, %s: drafts without drafts", c.model, name);
    run(play, KVANT_SPEC_NGRAM, c.got);
    for (int i = 0; i < c.n; i++) {
        const serve_out *a = &c.plain[i], *b = &c.got[i];
        CHECK(a->n > 0 && a->n == b->n && a->finish == b->finish && b->finish != KVANT_FINISH_ERROR,
              "%s, %s: request %d: %d of %d tokens, finish %d and %d (%s)", c.model, name, i, b->n, a->n, b->finish,
              a->finish, b->text);
        CHECK(memcmp(a->tokens, b->tokens, (size_t)a->n * sizeof *a->tokens) == 0, "%s, %s: request %d: tokens",
              c.model, name, i);
        CHECK(memcmp(a->logprob, b->logprob, (size_t)a->n * sizeof *a->logprob) == 0,
              "%s, %s: request %d: log-probabilities", c.model, name, i);
    }
    CHECK(c.n_accepted > least, "%s, %s: %d of %d drafts accepted", c.model, name, c.n_accepted, c.n_drafted);
}

static void set_defaults(const char *model)
{
    c.model = model;
    c.gen = GEN;
    mp = kvant_model_defaults();
    mp.path = model;
    ep = kvant_engine_defaults();
    ep.threads = 1;
    ep.max_seqs = REQUESTS;
    ep.n_ctx = ROOM;
    ep.n_ubatch = 128;
    ep.pool_tokens = 60 * KVANT_PAGE;
    ep.logits_rows = REQUESTS + 40;
    ep.draft_rows = 56;
    ep.snapshots = 8;
    sp = kvant_session_defaults();
    sp.batch_tokens = 128;
    sp.snapshot_dir = folder;
}

static void check_model(const char *model)
{
    set_defaults(model);
    check_scene("leavers", leavers, 50);
    check_scene("slots", slots, 30);
    sp.prefix_reuse_decode = 1;
    check_scene("reuse", reuse, 20);
    for (int save = 0; save < 2; save++) {
        set_defaults(model);
        ep.pool_tokens = 9 * KVANT_PAGE;
        c.gen = 3 * GEN;
        sp.preempt = save ? KVANT_PREEMPT_SAVE : KVANT_PREEMPT_RECOMPUTE;
        check_scene(save ? "crowd, saved" : "crowd, computed anew", crowd, 100);
        CHECK(c.n_preempted > 0, "%s: none was preempted", model);
    }
}

/* ---- adapters of the hybrids, made here ---- */

static void make_adapter(const char *path, const char *arch, const char *base, int n_in, int n_out, uint64_t seed)
{
    const int64_t a[2] = { n_in, 4 }, b[2] = { 4, n_out };
    char name[2][80];
    gb g = { 0 };
    rng random = { seed };

    gb_begin(&g, 3, 2, 4);
    gb_kv_str(&g, "general.type", "adapter");
    gb_kv_str(&g, "general.architecture", arch);
    gb_kv_str(&g, "adapter.type", "lora");
    gb_kv_f32(&g, "adapter.lora.alpha", 4.0f);
    for (int i = 0; i < 2; i++) {
        snprintf(name[i], sizeof name[i], "%s.lora_%c", base, i ? 'b' : 'a');
        gb_tensor(&g, name[i], 2, i ? b : a, 0, i ? (uint64_t)n_in * 4 * sizeof(float) : 0);
    }
    gb_pad(&g, 32);
    for (int i = 0; i < 4 * (n_in + n_out); i++) {
        const float x = ((float)rng_below(&random, 2001) - 1000.0f) / 2000.0f;
        gb_bytes(&g, &x, sizeof x);
    }
    CHECK(gb_write(&g, path) == 0, "%s: cannot be written", path);
    gb_free(&g);
}

static void check_adapters(const char *model, const char *arch, const char *base, int n_in, int n_out)
{
    const kvant_lora lora[2] = { { adapters[0], 0.0f }, { adapters[1], 0.0f } };

    for (int i = 0; i < 2; i++)
        make_adapter(adapters[i], arch, base, n_in, n_out, 40 + (uint64_t)i);
    set_defaults(model);
    mp.lora = lora;
    mp.n_lora = 2;
    check_scene("adapters", with_adapters, 100);
    for (int i = 0; i < 2; i++)
        unlink(adapters[i]);
}

int main(int argc, char **argv)
{
    static const char *const models[] = { "tests/golden/tiny/qwen35.gguf", "tests/archs/kimi-linear.gguf",
                                          "tests/archs/falcon-h1.gguf",    "tests/archs/lfm2.gguf",
                                          "tests/archs/gemma4-e.gguf" };
    char path[96];

    snprintf(folder, sizeof folder, "/tmp/check_spec_scenes_XXXXXX");
    CHECK(mkdtemp(folder) != NULL, "no folder %s", folder);
    for (int i = 0; i < 2; i++)
        snprintf(adapters[i], sizeof adapters[i], "%s/%d.gguf", folder, i);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (argc < 2 || strstr(models[i], argv[1]))
            check_model(models[i]);
    check_adapters("tests/golden/tiny/qwen35.gguf", "qwen35", "blk.0.attn_qkv.weight", 256, 320);
    snprintf(path, sizeof path, "%s/talk.kvs", folder);
    unlink(path);
    rmdir(folder);
    return check_end("check_spec_scenes");
}
