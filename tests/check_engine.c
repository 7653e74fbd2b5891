/* check_engine.c: what the engine promises about sequences: the same bits whatever else is in the batch, whatever the
 * number of threads, and however a prompt is cut on the 64-token grid; exact accounting of pages; errors that leave
 * sequences as they were.  Tiny seeded models of every architecture (tests/golden/tiny) and several cache formats. */
#include "kvant/engine.h"

#include <pthread.h>
#include <stdint.h>

#include "base/rng.h"
#include "kvant/qjl.h"
#include "support/check.h"

enum { LEN = 200, STEPS = 6, VOCAB_LIMIT = 256 };

typedef struct rig {
    kvant_model *m;
    kvant_engine *e;
    int n_vocab;
} rig;

static int rig_open(rig *r, const char *arch, kvant_engine_params p)
{
    char path[128];
    kvant_diag d = { "" };
    snprintf(path, sizeof path, "tests/golden/tiny/%s.gguf", arch);
    const kvant_model_params mp = { .size = sizeof(kvant_model_params), .path = path };
    memset(r, 0, sizeof *r);
    CHECK(kvant_model_open(&mp, &r->m, &d) == KVANT_OK, "%s: %s", path, d.text);
    if (!r->m)
        return 0;
    CHECK(kvant_engine_create(r->m, &p, &r->e, &d) == KVANT_OK, "%s: %s", path, d.text);
    r->n_vocab = kvant_model_get_info(r->m)->n_vocab;
    return r->e != NULL;
}

static void rig_close(rig *r)
{
    kvant_engine_free(r->e);
    kvant_model_close(r->m);
}

static void make_tokens(int32_t *t, int n, uint64_t seed)
{
    rng r = { seed };
    for (int i = 0; i < n; i++)
        t[i] = (int32_t)rng_below(&r, VOCAB_LIMIT);
}

static int argmax(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

/* Prompt of n tokens in pieces of `cut`, then STEPS greedy tokens; logits of the last prompt row and of each step to
 * out. */
static void solo(rig *r, const int32_t *prompt, int n, int cut, float *out)
{
    int seq;
    kvant_diag d = { "" };
    size_t v = (size_t)r->n_vocab;
    kvant_seq_new(r->e, &seq, NULL);
    for (int off = 0; off < n; off += cut) {
        int k = n - off < cut ? n - off : cut;
        const kvant_item it = { seq, prompt + off, k, 1, KVANT_LOGITS_LAST };
        CHECK(kvant_step(r->e, &it, 1, &d) == KVANT_OK, "%s", d.text);
    }
    for (int i = 0; i <= STEPS; i++) {
        const float *x = kvant_step_logits(r->e, 0, 0);
        if (!x)
            return;
        memcpy(out + (size_t)i * v, x, v * sizeof *out);
        const int32_t t = argmax(x, r->n_vocab);
        const kvant_item it = { seq, &t, 1, 0, KVANT_LOGITS_LAST };
        CHECK(kvant_step(r->e, &it, 1, &d) == KVANT_OK, "%s", d.text);
    }
    kvant_seq_free(r->e, seq);
}

static const char *state_type; /* of the engines from here on; NULL: the default */

static kvant_engine_params params(const char *type, int threads, int max_seqs)
{
    kvant_engine_params p = kvant_engine_defaults();
    p.state_type = state_type;
    p.type_k = p.type_v = type;
    p.threads = threads;
    p.max_seqs = max_seqs;
    p.n_ctx = 320;
    p.n_ubatch = 192;
    return p;
}

static float reference[(STEPS + 1) * 4096], other[(STEPS + 1) * 4096];

static void check_threads_and_cuts(const char *arch, const char *type, int compute)
{
    int32_t prompt[LEN];
    rig r;
    make_tokens(prompt, LEN, 7);
    for (int threads = 1; threads <= 7; threads += threads == 1 ? 1 : 5) {
        kvant_engine_params p = params(type, threads, 1);
        p.compute = compute;
        if (!rig_open(&r, arch, p))
            return;
        size_t bytes = (size_t)(STEPS + 1) * (size_t)r.n_vocab * sizeof(float);
        for (int run = 0; run < 3; run++) {
            memset(other, 0xFF, bytes);
            solo(&r, prompt, LEN, run == 0 ? LEN : run == 1 ? 64 : 128, other);
            if (threads == 1 && run == 0)
                memcpy(reference, other, bytes);
            CHECK(memcmp(reference, other, bytes) == 0, "%s %s: %d threads, cut %d: other bits", arch, type, threads,
                  run);
        }
        rig_close(&r);
    }
}

/* n sequences of different lengths in one batch; sequence `me` must give the reference's bits. */
static void check_batch(const char *arch, const char *type, int n, int me)
{
    static int32_t prompts[64][LEN];
    static kvant_item items[64];
    static int32_t next[64];
    int seq[64];
    rig r;
    kvant_diag d = { "" };

    if (!rig_open(&r, arch, params(type, 2, 64)))
        return;
    make_tokens(prompts[me], LEN, 7);
    for (int i = 0; i < n; i++) {
        if (i != me)
            make_tokens(prompts[i], LEN, 100 + (uint64_t)i);
        kvant_seq_new(r.e, &seq[i], NULL);
        items[i] = (kvant_item){ seq[i], prompts[i], i == me ? LEN : 1 + (i * 37) % LEN, 1, KVANT_LOGITS_LAST };
    }
    CHECK(kvant_step(r.e, items, n, &d) == KVANT_OK, "%s", d.text);
    for (int step = 0; step <= STEPS; step++) {
        size_t v = (size_t)r.n_vocab;
        const float *x = kvant_step_logits(r.e, me, 0);
        CHECK(x && memcmp(x, reference + (size_t)step * v, v * sizeof *x) == 0,
              "%s %s: batch of %d, step %d: other bits", arch, type, n, step);
        if (!x)
            break;
        for (int i = 0; i < n; i++) {
            next[i] = argmax(kvant_step_logits(r.e, i, 0), r.n_vocab);
            items[i] = (kvant_item){ seq[i], &next[i], 1, 0, KVANT_LOGITS_LAST };
        }
        CHECK(kvant_step(r.e, items, n, &d) == KVANT_OK, "%s", d.text);
    }
    rig_close(&r);
}

/* Decode rows of one sequence and prompt rows of another in the same step. */
static void check_mixed(const char *arch, const char *type)
{
    int32_t a[LEN], b[LEN], t;
    int sa, sb;
    rig r;
    kvant_diag d = { "" };
    make_tokens(a, LEN, 7);
    make_tokens(b, LEN, 8);
    if (!rig_open(&r, arch, params(type, 2, 2)))
        return;
    size_t v = (size_t)r.n_vocab;
    solo(&r, a, LEN, LEN, reference);
    kvant_seq_new(r.e, &sa, NULL);
    kvant_seq_new(r.e, &sb, NULL);
    kvant_item it = { sa, a, LEN, 1, KVANT_LOGITS_LAST };
    kvant_step(r.e, &it, 1, NULL);
    for (int step = 0; step < 3; step++) {
        CHECK(memcmp(kvant_step_logits(r.e, 0, 0), reference + (size_t)step * v, v * 4) == 0, "%s: mixed step %d", arch,
              step);
        t = argmax(kvant_step_logits(r.e, 0, 0), r.n_vocab);
        const kvant_item two[] = { { sa, &t, 1, 0, KVANT_LOGITS_LAST },
                                   { sb, b + 64 * step, 64, 1, KVANT_LOGITS_NONE } };
        CHECK(kvant_step(r.e, two, 2, &d) == KVANT_OK, "%s", d.text);
    }
    rig_close(&r);
}

/* Logits of the last row of prompt[n], evaluated with logits of all its rows or not, alone or beside `beside` tokens of
 * another sequence, to out. */
static void last_row(rig *r, const int32_t *prompt, int n, int logits, int beside, float *out)
{
    int32_t other_prompt[LEN];
    int seq[2];
    kvant_diag d = { "" };

    make_tokens(other_prompt, LEN, 8);
    kvant_seq_new(r->e, &seq[0], NULL);
    kvant_seq_new(r->e, &seq[1], NULL);
    const kvant_item two[] = { { seq[0], prompt, n, 1, logits },
                               { seq[1], other_prompt, beside, 1, KVANT_LOGITS_LAST } };
    CHECK(kvant_step(r->e, two, beside > 0 ? 2 : 1, &d) == KVANT_OK, "%s", d.text);
    const float *x = kvant_step_logits(r->e, 0, logits == KVANT_LOGITS_ALL ? n - 1 : 0);
    CHECK(x != NULL, "%d tokens: no logits", n);
    if (x)
        memcpy(out, x, (size_t)r->n_vocab * sizeof *out);
    kvant_seq_free(r->e, seq[0]);
    kvant_seq_free(r->e, seq[1]);
}

/* The layers that share the K and V of others see only the rows that give logits where these are fewer than all: the
 * bits are those of a pass in which they see every row. */
static void check_early_end(const char *arch, const char *type, int n)
{
    int32_t prompt[LEN];
    kvant_engine_params p = params(type, 2, 2);
    rig r;

    p.kv_tail = 0;
    p.logits_rows = 64;
    make_tokens(prompt, LEN, 7);
    if (!rig_open(&r, arch, p))
        return;
    const size_t bytes = (size_t)r.n_vocab * sizeof(float);
    last_row(&r, prompt, n, KVANT_LOGITS_ALL, 0, reference);
    last_row(&r, prompt, n, KVANT_LOGITS_LAST, 0, other);
    CHECK(memcmp(reference, other, bytes) == 0, "%s %s: %d tokens with logits of the last: other bits", arch, type, n);
    last_row(&r, prompt, n, KVANT_LOGITS_LAST, 20, other);
    CHECK(memcmp(reference, other, bytes) == 0, "%s %s: %d tokens beside others: other bits", arch, type, n);
    rig_close(&r);
}

/* The last logits of a prompt of 60 tokens and 8 decoded ones, `at_once` in a step, to out. */
static void decode_past_page(const char *arch, const char *type, int at_once, float *out)
{
    int32_t t[68];
    int seq;
    rig r;
    kvant_diag d = { "" };
    make_tokens(t, 68, 7);
    if (!rig_open(&r, arch, params(type, 2, 1)))
        return;
    kvant_seq_new(r.e, &seq, NULL);
    const kvant_item it = { seq, t, 60, 1, KVANT_LOGITS_LAST };
    kvant_step(r.e, &it, 1, NULL);
    for (int i = 60; i < 68; i += at_once) {
        const kvant_item next = { seq, t + i, at_once, 0, KVANT_LOGITS_LAST };
        CHECK(kvant_step(r.e, &next, 1, &d) == KVANT_OK, "%s", d.text);
    }
    const float *x = kvant_step_logits(r.e, 0, 0);
    CHECK(x, "%s %s: no logits", arch, type);
    if (x)
        memcpy(out, x, (size_t)r.n_vocab * sizeof *out);
    rig_close(&r);
}

/* A page is sealed behind the pass, but before rows of the same pass that read it. */
static void check_page_end(const char *arch, const char *type)
{
    decode_past_page(arch, type, 1, reference);
    for (int n = 2; n <= 8; n *= 2) {
        memset(other, 0xFF, sizeof other);
        decode_past_page(arch, type, n, other);
        CHECK(memcmp(reference, other, VOCAB_LIMIT * sizeof *other) == 0, "%s %s: %d rows past a page: other bits",
              arch, type, n);
    }
}

/* What TOP gave for item i is the head of the sorted logits x. */
static void expect_top(const rig *r, int i, const float *x)
{
    const float *top = NULL;
    const int32_t *ids = NULL;
    const int n = kvant_step_top(r->e, i, &top, &ids), want = r->n_vocab < KVANT_STEP_TOP ? r->n_vocab : KVANT_STEP_TOP;
    int before = 0;

    CHECK(n == want, "item %d: %d of the largest logits, wanted %d", i, n, want);
    for (int k = 0; k < n; k++) {
        CHECK(ids[k] >= 0 && ids[k] < r->n_vocab && top[k] == x[ids[k]], "item %d: place %d is %d", i, k, ids[k]);
        CHECK(k == 0 || top[k] < top[k - 1] || (top[k] == top[k - 1] && ids[k] > ids[k - 1]), "item %d: order at %d", i,
              k);
    }
    for (int j = 0; j < r->n_vocab && n > 0; j++)
        before += x[j] > top[n - 1];
    CHECK(before < n, "item %d: %d logits are larger than the last of %d", i, before, n);
    CHECK(n == 0 || kvant_step_token(r->e, i) == ids[0], "item %d: token %d", i, kvant_step_token(r->e, i));
}

/* With top-k 1 a sampler takes the likeliest token, whatever an item asked for; without a sampler GREEDY has it too. */
static void expect_samples(const rig *r, int n)
{
    kvant_sampler_params p = kvant_sampler_defaults();
    kvant_sampler *s = NULL;
    kvant_diag d = { "" };
    int32_t token;

    p.top_k = 1;
    CHECK(kvant_sampler_create(&p, r->n_vocab, &s, &d) == KVANT_OK, "%s", d.text);
    for (int i = 0; i < n; i++) {
        const float *x = kvant_step_logits(r->e, i, 0);
        const int32_t want = x ? argmax(x, r->n_vocab) : kvant_step_token(r->e, i);
        CHECK(kvant_step_sample(r->e, i, s, &token, &d) == KVANT_OK && token == want, "item %d: %d, wanted %d: %s", i,
              token, want, d.text);
    }
    CHECK(kvant_step_sample(r->e, 2, NULL, &token, &d) == KVANT_OK && token == kvant_step_token(r->e, 2), "%s", d.text);
    CHECK(kvant_step_sample(r->e, n, s, &token, &d) == KVANT_EINVAL && strstr(d.text, "asked for no logits"), "%s",
          d.text);
    kvant_sampler_free(s);
}

/* Items of the same tokens, one asked for TOP, one for LAST: samplers of one seed draw the same. */
static void expect_draws(const rig *r, int top, int last)
{
    enum { DRAWS = 16 };
    kvant_sampler_params p = kvant_sampler_defaults();
    kvant_sampler *s[2] = { NULL, NULL };
    kvant_diag d = { "" };
    int unlikely = 0;

    p.temp = 4.0f;
    p.top_p = 1.0f;
    p.min_p = 0.0f;
    for (int i = 0; i < 2; i++)
        CHECK(kvant_sampler_create(&p, r->n_vocab, &s[i], &d) == KVANT_OK, "%s", d.text);
    for (int i = 0; i < DRAWS; i++) {
        int32_t a = -1, b = -2;
        CHECK(kvant_step_sample(r->e, top, s[0], &a, &d) == KVANT_OK, "%s", d.text);
        CHECK(kvant_step_sample(r->e, last, s[1], &b, &d) == KVANT_OK, "%s", d.text);
        CHECK(a == b, "draw %d: %d of the largest logits, %d of all", i, a, b);
        unlikely += a != kvant_step_token(r->e, top);
    }
    CHECK(unlikely > 0, "%d draws gave the likeliest token only", DRAWS);
    kvant_sampler_free(s[0]);
    kvant_sampler_free(s[1]);
}

/* Two prompts in a step, asked for in every way; then decode steps of the same. */
static void check_top(const char *arch, const char *type)
{
    static const int ways[5] = { KVANT_LOGITS_TOP, KVANT_LOGITS_LAST, KVANT_LOGITS_GREEDY, KVANT_LOGITS_TOP,
                                 KVANT_LOGITS_LAST };
    int32_t prompts[2][LEN], next[5];
    kvant_item items[5];
    rig r;
    kvant_diag d = { "" };

    make_tokens(prompts[0], LEN, 7);
    make_tokens(prompts[1], LEN, 8);
    if (!rig_open(&r, arch, params(type, 2, 5)))
        return;
    for (int i = 0; i < 5; i++) {
        kvant_seq_new(r.e, &items[i].seq, NULL);
        items[i] = (kvant_item){ items[i].seq, prompts[i / 3], LEN, 1, ways[i] };
    }
    for (int step = 0; step <= STEPS; step++) {
        CHECK(kvant_step(r.e, items, 5, &d) == KVANT_OK, "%s", d.text);
        const float *x = kvant_step_logits(r.e, 1, 0), *y = kvant_step_logits(r.e, 4, 0), *none = NULL;
        const int32_t *ids = NULL;
        if (!x || !y)
            break;
        expect_top(&r, 0, x);
        expect_top(&r, 3, y);
        CHECK(!kvant_step_logits(r.e, 0, 0) && kvant_step_top(r.e, 1, &none, &ids) == 0 &&
                  kvant_step_top(r.e, 2, &none, &ids) == 0 && kvant_step_top(r.e, 5, &none, &ids) == 0,
              "what was not asked for");
        CHECK(kvant_step_token(r.e, 2) == argmax(x, r.n_vocab), "%s %s: greedy beside top", arch, type);
        expect_samples(&r, 5);
        expect_draws(&r, 0, 1);
        expect_draws(&r, 3, 4);
        for (int i = 0; i < 5; i++) {
            next[i] = argmax(i < 3 ? x : y, r.n_vocab);
            items[i] = (kvant_item){ items[i].seq, &next[i], 1, 0, ways[i] };
        }
    }
    rig_close(&r);
}

static void expect(const rig *r, const kvant_item *it, int n, int code, const char *word)
{
    kvant_diag d = { "" };
    int got = kvant_step(r->e, it, n, &d);
    CHECK(got == code, "got %s, wanted %s (%s)", kvant_error_name(got), kvant_error_name(code), d.text);
    CHECK(strstr(d.text, word) != NULL, "message \"%s\" does not say \"%s\"", d.text, word);
}

static void check_errors(void)
{
    int32_t t[400] = { 0 }, bad[2] = { 1, 1 << 30 }, minus = -1;
    rig r;
    int a, b, c;
    kvant_engine_params p = params("tbq4_0", 1, 2);
    p.pool_tokens = 256;
    if (!rig_open(&r, "qwen35", p))
        return;
    kvant_seq_new(r.e, &a, NULL);
    kvant_seq_new(r.e, &b, NULL);
    kvant_diag d = { "" };
    CHECK(kvant_seq_new(r.e, &c, &d) == KVANT_ENOSPC, "a third sequence of two: %s", d.text);
    expect(&r, &(kvant_item){ 9, t, 1, 1, 0 }, 1, KVANT_EINVAL, "sequence 9");
    expect(&r, &(kvant_item){ a, t, 0, 1, 0 }, 1, KVANT_EINVAL, "0 tokens");
    expect(&r, &(kvant_item){ a, bad, 2, 1, 0 }, 1, KVANT_EINVAL, "token 1");
    expect(&r, &(kvant_item){ a, &minus, 1, 1, 0 }, 1, KVANT_EINVAL, "token 0 is -1");
    expect(&r, &(kvant_item){ a, t, 321, 1, 0 }, 1, KVANT_ENOSPC, "context holds 320");
    expect(&r, &(kvant_item){ a, t, 320, 1, 0 }, 1, KVANT_ENOSPC, "pages");
    expect(&r, &(kvant_item){ a, t, 3, 1, KVANT_LOGITS_ALL }, 1, KVANT_EINVAL, "logits");
    expect(&r, &(kvant_item){ a, t, 3, 1, 6 }, 1, KVANT_EINVAL, "logits 6");
    expect(&r, (kvant_item[]){ { a, t, 1, 1, 0 }, { a, t, 1, 1, 0 } }, 2, KVANT_EINVAL, "sequence");
    expect(&r, (kvant_item[]){ { a, t, 200, 1, 0 }, { b, t, 200, 1, 0 } }, 2, KVANT_ENOSPC, "pages");
    CHECK(kvant_seq_length(r.e, a) == 0 && kvant_seq_length(r.e, b) == 0, "a failed step changed a length");
    expect(&r, NULL, 0, KVANT_EINVAL, "0 items");
    const kvant_item ok = { a, t, 250, 1, 0 };
    CHECK(kvant_step(r.e, &ok, 1, &d) == KVANT_OK, "%s", d.text);
    expect(&r, &(kvant_item){ b, t, 128, 1, 0 }, 1, KVANT_ENOSPC, "pages");
    CHECK(kvant_seq_length(r.e, a) == 250, "length %d", kvant_seq_length(r.e, a));
    kvant_seq_free(r.e, a);
    const kvant_item again = { b, t, 250, 1, 0 };
    CHECK(kvant_step(r.e, &again, 1, &d) == KVANT_OK, "pages came back: %s", d.text);
    CHECK(kvant_step_logits(r.e, 0, 0) == NULL && kvant_seq_free(r.e, a) == KVANT_EINVAL, "freed twice");
    rig_close(&r);
}

static void check_params(void)
{
    struct { kvant_engine_params p; const char *word; } cases[14];
    int n = 0;
    for (int i = 0; i < 14; i++)
        cases[i].p = params("f16", 1, 1);
    cases[n].p.state_type = "f16"; cases[n++].word = "state type: \"f16\", wanted f32 or bf16";
    cases[n].p.kv_tail = 65; cases[n++].word = "multiple of 64";
    cases[n].p.kv_tail = 0; cases[n].p.kv_sink = 64; cases[n++].word = "a tail of 64 or more";
    cases[n].p.kv_sink = -1; cases[n++].word = "exact first tokens";
    cases[n].p.type_k = "q9_0"; cases[n++].word = "q9_0";
    cases[n].p.type_layers = "0-99=f16"; cases[n++].word = "layers 0 to";
    cases[n].p.type_layers = "x=f16"; cases[n++].word = "wanted LAYER";
    cases[n].p.threads = -1; cases[n++].word = "threads";
    cases[n].p.max_seqs = 5000; cases[n++].word = "sequences";
    cases[n].p.device = "toaster"; cases[n++].word = "toaster";
    cases[n].p.n_ctx = 1 << 24; cases[n].p.max_seqs = 4096; cases[n++].word = "MiB wanted";
    cases[n].p.compute = 9; cases[n++].word = "compute";
    for (int i = 0; i < n; i++) {
        kvant_model *m = NULL;
        kvant_engine *e = NULL;
        kvant_diag d = { "" };
        const kvant_model_params mp = { .size = sizeof(kvant_model_params), .path = "tests/golden/tiny/qwen3.gguf" };
        CHECK(kvant_model_open(&mp, &m, &d) == KVANT_OK, "%s", d.text);
        int code = kvant_engine_create(m, &cases[i].p, &e, &d);
        CHECK(code < 0 && strstr(d.text, cases[i].word), "case %d: code %d, \"%s\", wanted \"%s\"", i, code, d.text,
              cases[i].word);
        kvant_engine_free(code < 0 ? NULL : e);
        kvant_model_close(m);
    }
}

/* bf16 states: the same bits for any threads, cuts on the grid and batch; half of the states' bytes; other bits than
 * f32 states give. */
static void check_bf16_states(const char *arch)
{
    static float exact[(STEPS + 1) * 4096];
    kvant_plan f32, bf16;
    rig r;

    check_threads_and_cuts(arch, "f16", KVANT_COMPUTE_F32);
    memcpy(exact, reference, sizeof exact);
    if (!rig_open(&r, arch, params("f16", 1, 1)))
        return;
    const kvant_model_info info = *kvant_model_get_info(r.m);
    const int64_t conv = (int64_t)info.n_gdn_layers * (info.conv_k - 1) *
                         (2 * info.gdn_hk * info.gdn_dk + info.gdn_hv * info.gdn_dv) * 4;
    kvant_engine_params p = params("f16", 1, 1);
    CHECK(kvant_plan_make(r.m, &p, &f32, NULL) == KVANT_OK, "plan");
    p.state_type = "bf16";
    CHECK(kvant_plan_make(r.m, &p, &bf16, NULL) == KVANT_OK, "plan");
    CHECK(f32.state - conv == 2 * (bf16.state - conv), "%s: states of %lld bytes, %lld in bf16, %lld of conv", arch,
          (long long)f32.state, (long long)bf16.state, (long long)conv);
    rig_close(&r);
    state_type = "bf16";
    check_threads_and_cuts(arch, "f16", KVANT_COMPUTE_F32);
    CHECK(memcmp(reference, exact, sizeof exact) != 0, "%s: bf16 states change nothing", arch);
    check_threads_and_cuts(arch, "tbq4_0", KVANT_COMPUTE_AUTO);
    check_batch(arch, "tbq4_0", 7, 3);
    check_mixed(arch, "tbq4_0");
    state_type = NULL;
}

static void *cancel_soon(void *e)
{
    kvant_engine_cancel(e);
    return NULL;
}

static void check_cancel(void)
{
    int32_t t[LEN] = { 0 };
    int a;
    rig r;
    kvant_diag d = { "" };
    pthread_t th;
    if (!rig_open(&r, "qwen3", params("f16", 1, 1)))
        return;
    kvant_seq_new(r.e, &a, NULL);
    pthread_create(&th, NULL, cancel_soon, r.e);
    pthread_join(th, NULL);
    const kvant_item it = { a, t, LEN, 1, 0 };
    CHECK(kvant_step(r.e, &it, 1, &d) == KVANT_ECANCELED, "cancel: %s", d.text);
    CHECK(kvant_seq_length(r.e, a) == 0, "cancelled step counted");
    CHECK(kvant_step(r.e, &it, 1, &d) == KVANT_OK, "after cancel: %s", d.text);
    rig_close(&r);
}

/* A prompt of LEN tokens in pieces of `cut` and decoded ones, with so many exact first tokens and such a tail. */
static void with_sink(const char *arch, const char *type, int sink, int tail, int cut, float *out)
{
    kvant_engine_params p = params(type, 1, 1);
    int32_t prompt[LEN];
    rig r;

    p.kv_sink = sink;
    p.kv_tail = tail;
    make_tokens(prompt, LEN, 7);
    memset(out, 0xFF, sizeof reference);
    if (!rig_open(&r, arch, p))
        return;
    solo(&r, prompt, LEN, cut, out);
    rig_close(&r);
}

/* First tokens stay exact as long as the sequence: where they are all of it, as a tail of that length; how a prompt is
 * cut does not matter. */
static void check_sink(const char *arch, const char *type)
{
    const size_t bytes = (size_t)(STEPS + 1) * VOCAB_LIMIT * sizeof(float);

    with_sink(arch, type, 0, 256, LEN, reference);
    with_sink(arch, type, 193, 64, 64, other);
    CHECK(memcmp(reference, other, bytes) == 0, "%s %s: 193 exact first tokens are no exact tail", arch,
          type);
    with_sink(arch, type, 1, 64, LEN, reference);
    with_sink(arch, type, 64, 64, 64, other);
    CHECK(memcmp(reference, other, bytes) == 0, "%s %s: one exact token is not a page, cut", arch, type);
    with_sink(arch, type, 0, 64, 64, other);
    CHECK(memcmp(reference, other, bytes) != 0, "%s %s: exact first tokens change nothing", arch, type);
}

/* A file of n projections, of the seeds from `seed` on (step 0: all of it). */
static void write_projections(const char *path, int n, int seed, int step)
{
    static float pi[KVANT_QJL_VALUES];
    FILE *file = fopen(path, "wb");

    CHECK(file != NULL, "cannot write %s", path);
    for (int i = 0; file && i < n; i++) {
        kvant_qjl_projection_build((uint64_t)(seed + i * step), pi);
        fwrite(pi, sizeof *pi, KVANT_QJL_VALUES, file);
    }
    if (file)
        fclose(file);
}

static void with_projection(const char *arch, const char *path, float *out)
{
    kvant_engine_params p = params("qjl1_256", 1, 1);
    int32_t prompt[LEN];
    rig r;

    p.qjl_projection = path;
    make_tokens(prompt, LEN, 7);
    memset(out, 0xFF, sizeof reference);
    if (!rig_open(&r, arch, p))
        return;
    solo(&r, prompt, LEN, LEN, out);
    rig_close(&r);
}

/* One projection for each of a model's layers: equal ones are the default's bits, others of one layer are not. */
static void check_projections(const char *arch, int layers)
{
    const char *path = "check_engine.projections.tmp";
    const size_t bytes = (size_t)(STEPS + 1) * VOCAB_LIMIT * sizeof(float);
    kvant_engine_params p = params("qjl1_256", 1, 1);
    char model[128];
    kvant_diag d = { "" };
    kvant_engine *e = NULL;
    rig r;

    with_projection(arch, NULL, reference);
    write_projections(path, layers, KVANT_QJL_SEED, 0);
    with_projection(arch, path, other);
    CHECK(memcmp(reference, other, bytes) == 0, "%s: %d equal projections differ from one", arch, layers);
    write_projections(path, layers, KVANT_QJL_SEED, 1);
    with_projection(arch, path, other);
    CHECK(memcmp(reference, other, bytes) != 0, "%s: %d projections, and only the first counts", arch, layers);
    write_projections(path, layers + 1, KVANT_QJL_SEED, 1);
    snprintf(model, sizeof model, "tests/golden/tiny/%s.gguf", arch);
    const kvant_model_params mp = { .size = sizeof mp, .path = model };
    p.qjl_projection = path;
    memset(&r, 0, sizeof r);
    CHECK(kvant_model_open(&mp, &r.m, &d) == KVANT_OK, "%s", d.text);
    CHECK(kvant_engine_create(r.m, &p, &e, &d) == KVANT_EINVAL && strstr(d.text, "want one, or"), "%s: %s", arch,
          d.text);
    kvant_model_close(r.m);
    remove(path);
}

int main(void)
{
    const char *archs[] = { "llama", "qwen3", "qwen3moe", "qwen3next", "qwen35", "qwen35moe" };
    for (int i = 0; i < 6; i++) {
        /* the tiny qwen3 has heads of 80, which the 32-value formats cannot hold */
        const int wide = strcmp(archs[i], "qwen3") == 0;
        const char *types[] = { "f16", wide ? "bf16" : "tbq4_0", wide ? "f32" : "q8_0" };
        check_threads_and_cuts(archs[i], "f16", KVANT_COMPUTE_F32);
        for (int j = 0; j < 3; j++) {
            check_threads_and_cuts(archs[i], types[j], KVANT_COMPUTE_AUTO);
            check_batch(archs[i], types[j], 2, 1);
            check_batch(archs[i], types[j], 7, 3);
            if (j == 1)
                check_batch(archs[i], types[j], 64, 40);
        }
        check_mixed(archs[i], types[1]);
        check_top(archs[i], types[1]);
    }
    for (int n = 1; n < 30; n += 9) {
        check_early_end("../../archs/gemma4-e", "tbq4_0", n);
        check_early_end("../../archs/gemma4-e", "q8_0", n);
    }
    check_page_end("llama", "tbq4_0");
    check_page_end("llama", "ptcq2");
    check_threads_and_cuts("llama", "ptcq3", KVANT_COMPUTE_AUTO);
    check_batch("llama", "ptcq3", 7, 3);
    check_mixed("qwen35", "ptcq4");
    check_page_end("qwen3moe", "q8_0");
    check_bf16_states("qwen3next");
    check_bf16_states("qwen35");
    check_sink("llama", "tbq4_0");
    check_sink("qwen35", "ptcq3");
    check_projections("llama", 2);
    check_errors();
    check_params();
    check_cancel();
    return check_end("check_engine");
}
