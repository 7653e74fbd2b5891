/* check_spec_recurrent.c: rows that may be taken back, in models with recurrent layers: after any mixture of steps with
 * and without drafts, accepted and refused, alone and in company, a sequence's logits and its copies are byte by byte
 * those of steps of one token; what the ring of a step holds is a limit, and no more memory than is planned.
 *
 * Every model with recurrent layers of tests/archs and tests/golden/tiny, and of models/; states in f32 and in bf16. */
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "engine/engine.h"
#include "support/check.h"

enum { SEQS = 6, TEXT = 100, VOCAB = 272, RING = 24, FORKED = 6 };

static const char *const names[] = {
    "golden/tiny/qwen35", "golden/tiny/qwen35moe", "golden/tiny/qwen3next",      "archs/qwen3next", "archs/qwen35",
    "archs/kimi-linear",  "archs/mamba2",          "archs/nemotron_h",           "archs/falcon-h1", "archs/qwen35moe",
    "archs/granitehybrid", "archs/granitehybrid-dense", "archs/nemotron_h_moe", "archs/nemotron_h_moe-latent",
    "archs/lfm2",         "archs/lfm2moe"
};

typedef struct rig {
    const char *name;
    kvant_model *m;
    kvant_engine *e;
    size_t vocab;
    int32_t text[SEQS][TEXT];
    int prompt[SEQS]; /* so many tokens of the text come as a prompt; 0: none */
    float *logits[SEQS]; /* [TEXT][vocab] behind each token of the text, by steps of one token */
    rng random;
} rig;

/* A sequence that takes its text by steps with drafts. */
typedef struct run {
    int seq, at, k, good; /* tokens in; drafts of this step, and how many of them are the text's */
    int32_t tokens[8];
} run;

static kvant_engine_params engine_of(const char *state)
{
    kvant_engine_params p = kvant_engine_defaults();

    p.state_type = state;
    p.threads = 2;
    p.max_seqs = 2 * SEQS;
    p.n_ctx = 128;
    p.n_ubatch = 64;
    p.logits_rows = 64;
    p.draft_rows = RING;
    return p;
}

static int rig_open(rig *r, const char *name, const char *state)
{
    char path[96];
    kvant_diag d = { "" };
    kvant_model_params mp = kvant_model_defaults();
    const kvant_engine_params p = engine_of(state);

    snprintf(path, sizeof path, strchr(name, '.') ? "%s" : "tests/%s.gguf", name);
    mp.path = path;
    *r = (rig){ .name = name, .random = { 5 } };
    CHECK(kvant_model_open(&mp, &r->m, &d) == KVANT_OK, "%s", d.text);
    CHECK(r->m && kvant_engine_create(r->m, &p, &r->e, &d) == KVANT_OK, "%s: %s", name, d.text);
    if (!r->e)
        return 0;
    CHECK(kvant_engine_verifies(r->e, &d) == KVANT_OK, "%s: %s", name, d.text);
    r->vocab = (size_t)kvant_model_get_info(r->m)->n_vocab;
    for (int i = 0; i < SEQS; i++) {
        r->prompt[i] = i == 0 ? 0 : 5 + 9 * i;
        r->logits[i] = malloc(TEXT * r->vocab * sizeof(float));
        for (int t = 0; t < TEXT; t++)
            r->text[i][t] = (int32_t)rng_below(&r->random, 200);
    }
    return 1;
}

static void rig_close(rig *r)
{
    kvant_engine_free(r->e);
    kvant_model_close(r->m);
    for (int i = 0; i < SEQS; i++)
        free(r->logits[i]);
}

static void step(rig *r, const kvant_item *items, const int *drafts, int n)
{
    kvant_diag d = { "" };

    CHECK(kvant_step_drafts(r->e, items, drafts, n, &d) == KVANT_OK, "%s: %s", r->name, d.text);
}

static int new_seq(rig *r)
{
    int seq = -1;

    CHECK(kvant_seq_new(r->e, &seq, NULL) == KVANT_OK, "%s: no sequence", r->name);
    return seq;
}

/* ---- without drafts ---- */

static void run_plain(rig *r, int i)
{
    const int seq = new_seq(r);

    for (int at = 0, n; at < TEXT; at += n) {
        n = at == 0 && r->prompt[i] ? r->prompt[i] : 1;
        const kvant_item it = { seq, r->text[i] + at, n, n > 1, KVANT_LOGITS_LAST };
        step(r, &it, NULL, 1);
        const float *x = kvant_step_logits(r->e, 0, 0);
        if (x)
            memcpy(r->logits[i] + (size_t)(at + n - 1) * r->vocab, x, r->vocab * sizeof *x);
    }
    kvant_seq_free(r->e, seq);
}

static int same_row(const rig *r, int i, int at, const float *x)
{
    return x && memcmp(r->logits[i] + (size_t)at * r->vocab, x, r->vocab * sizeof *x) == 0;
}

/* ---- with drafts ---- */

/* The next item: the text's next token, `good` more of it, and then guesses that are not. */
static kvant_item next_item(rig *r, int i, run *q, int ring)
{
    const int room = kvant_seq_draft_room(r->e, q->seq), left = TEXT - 1 - q->at;
    int k = (int)rng_below(&r->random, 8);

    CHECK(room >= 0 && room < KVANT_PAGE, "%s: room for %d drafts", r->name, room);
    k = k < room ? k : room;
    k = k < ring - 1 ? k : ring > 1 ? ring - 1 : 0;
    q->k = k < left ? k : left;
    q->good = (int)rng_below(&r->random, (uint32_t)q->k + 1);
    for (int t = 0; t <= q->k; t++)
        q->tokens[t] = t <= q->good ? r->text[i][q->at + t] : (r->text[i][q->at + t] + 1) % 200;
    return (kvant_item){ q->seq, q->tokens, 1 + q->k, 0, KVANT_LOGITS_LAST };
}

/* A copy goes on as its source would: the state that it got has exactly the rows that count. */
static void check_fork(rig *r, int i, int src, int at)
{
    int seq = -1;
    kvant_diag d = { "" };

    CHECK(kvant_seq_fork(r->e, src, &seq, &d) == KVANT_OK, "%s: %s", r->name, d.text);
    CHECK(kvant_seq_length(r->e, seq) == at, "%s: a copy of %d tokens has %d", r->name, at,
          kvant_seq_length(r->e, seq));
    for (int n = 0; n < FORKED && at < TEXT; n++, at++) {
        const kvant_item it = { seq, &r->text[i][at], 1, 0, KVANT_LOGITS_LAST };
        step(r, &it, NULL, 1);
        CHECK(same_row(r, i, at, kvant_step_logits(r->e, 0, 0)), "%s: text %d: copied, token %d: other logits", r->name,
              i, at);
    }
    kvant_seq_free(r->e, seq);
}

/* What the step gave: rows up to the first wrong guess are the text's. */
static void settle(rig *r, int i, int item, run *q)
{
    kvant_diag d = { "" };

    for (int t = 0; t <= q->good; t++)
        CHECK(same_row(r, i, q->at + t, kvant_step_logits(r->e, item, t)),
              "%s: text %d, token %d, draft %d of %d: other logits", r->name, i, q->at + t, t, q->k);
    CHECK(kvant_seq_length(r->e, q->seq) == q->at + 1, "%s: %d tokens, wanted %d", r->name,
          kvant_seq_length(r->e, q->seq), q->at + 1);
    if (q->good > 0 || rng_below(&r->random, 2))
        CHECK(kvant_seq_accept(r->e, q->seq, q->good, &d) == KVANT_OK, "%s: %s", r->name, d.text);
    q->at += 1 + q->good;
}

/* Every text at once, with drafts of its own; now and then one is copied, between its step and what is accepted too. */
static void run_drafts(rig *r)
{
    run q[SEQS];
    int left = SEQS;

    for (int i = 0; i < SEQS; i++) {
        q[i] = (run){ .seq = new_seq(r), .at = r->prompt[i] };
        const kvant_item it = { q[i].seq, r->text[i], r->prompt[i], 1, KVANT_LOGITS_NONE };
        if (r->prompt[i])
            step(r, &it, NULL, 1);
    }
    for (int round = 0; left > 0; round++) {
        kvant_item items[SEQS];
        int who[SEQS], drafts[SEQS], n = 0, ring = RING;
        for (int i = 0; i < SEQS; i++) {
            if (q[i].at >= TEXT || (round > 0 && rng_below(&r->random, 8) == 0))
                continue; /* waits, with its rows in the ring */
            items[n] = next_item(r, i, &q[i], ring);
            ring -= q[i].k ? 1 + q[i].k : 0;
            drafts[n] = q[i].k;
            who[n++] = i;
        }
        if (n)
            step(r, items, drafts, n);
        for (int k = 0; k < n; k++)
            settle(r, who[k], k, &q[who[k]]);
        if (n && round % 5 == 0)
            check_fork(r, who[n - 1], q[who[n - 1]].seq, q[who[n - 1]].at);
        left = 0;
        for (int i = 0; i < SEQS; i++)
            left += q[i].at < TEXT;
    }
    for (int i = 0; i < SEQS; i++)
        kvant_seq_free(r->e, q[i].seq);
}

/* A copy that is made before its source accepts has the row that counts; the source can accept all the same, and only
 * until the next step. */
static void check_early_fork(rig *r)
{
    const int i = 1, at = r->prompt[i];
    const run q = { .seq = new_seq(r) };
    int seq = -1, drafts = 3;
    kvant_diag d = { "" };
    const kvant_item prompt = { q.seq, r->text[i], at, 1, KVANT_LOGITS_NONE },
                     it = { q.seq, r->text[i] + at, 4, 0, KVANT_LOGITS_LAST };

    step(r, &prompt, NULL, 1);
    step(r, &it, &drafts, 1);
    CHECK(kvant_seq_fork(r->e, q.seq, &seq, &d) == KVANT_OK && kvant_seq_length(r->e, seq) == at + 1, "%s: %s", r->name,
          d.text);
    CHECK(kvant_seq_accept(r->e, q.seq, 2, &d) == KVANT_OK, "%s: %s", r->name, d.text);
    check_fork(r, i, seq, at + 1);
    check_fork(r, i, q.seq, at + 3);
    CHECK(kvant_seq_accept(r->e, q.seq, 1, &d) == KVANT_EINVAL && strstr(d.text, "accept: 1 drafts"), "%s: %s", r->name,
          d.text);
    kvant_seq_free(r->e, seq);
    kvant_seq_free(r->e, q.seq);
}

/* ---- limits ---- */

static void check_limits(rig *r)
{
    const int a = new_seq(r), b = new_seq(r);
    const int32_t tokens[RING + 1] = { 1, 2, 3 };
    int drafts[2] = { RING - 1, 1 };
    kvant_item items[2] = { { a, tokens, RING, 0, KVANT_LOGITS_LAST }, { b, tokens, 2, 0, KVANT_LOGITS_LAST } };
    kvant_diag d = { "" };

    CHECK(kvant_seq_draft_room(r->e, a) == RING - 1, "%s: room for %d drafts", r->name, kvant_seq_draft_room(r->e, a));
    CHECK(kvant_step_drafts(r->e, items, drafts, 2, &d) == KVANT_EINVAL && strstr(d.text, "draft_rows"), "%s: %s",
          r->name, d.text);
    CHECK(kvant_seq_length(r->e, a) == 0 && kvant_seq_length(r->e, b) == 0, "%s: a refused step changed a sequence",
          r->name);
    drafts[1] = 0;
    items[1].n = 1;
    step(r, items, drafts, 2);
    drafts[0] = RING;
    items[0].n = RING + 1;
    CHECK(kvant_step_drafts(r->e, items, drafts, 1, &d) == KVANT_EINVAL && strstr(d.text, "drafts among"), "%s: %s",
          r->name, d.text);
    kvant_seq_free(r->e, a);
    kvant_seq_free(r->e, b);
}

/* The plan counts the ring: a row costs what its convolution reads and its gates, in every recurrent layer. */
static void check_plan(const rig *r)
{
    const kvant_model_info *info = kvant_model_get_info(r->m);
    const ring_widths w = build_ring_widths(r->m);
    const int64_t row = (int64_t)(w.x + w.alpha + w.beta) * (int64_t)sizeof(float) * info->n_gdn_layers;
    kvant_engine_params p = engine_of("f32"), none = p;
    kvant_plan with, without;

    none.draft_rows = 0;
    CHECK(kvant_plan_make(r->m, &p, &with, NULL) == KVANT_OK, "%s: no plan", r->name);
    CHECK(kvant_plan_make(r->m, &none, &without, NULL) == KVANT_OK, "%s: no plan", r->name);
    CHECK(with.total - without.total == RING * row && with.state - without.state == RING * row,
          "%s: a ring of %d rows of %d bytes is planned with %d", r->name, RING, (int)row,
          (int)(with.total - without.total));
    none.device = "cpu";
    kvant_engine *e = NULL;
    kvant_diag d = { "" };
    CHECK(kvant_engine_create(r->m, &none, &e, &d) == KVANT_OK, "%s: %s", r->name, d.text);
    CHECK(e && kvant_engine_verifies(e, &d) == KVANT_EUNSUPPORTED && strstr(d.text, "draft_rows"), "%s: %s", r->name,
          d.text);
    kvant_engine_free(e);
}

static void check_model(const char *name, const char *state)
{
    rig r;

    if (!rig_open(&r, name, state))
        return;
    for (int i = 0; i < SEQS; i++)
        run_plain(&r, i);
    for (int again = 0; again < 3; again++)
        run_drafts(&r);
    check_early_fork(&r);
    check_limits(&r);
    check_plan(&r);
    rig_close(&r);
}

int main(void)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        check_model(names[i], "f32");
        if (strstr(names[i], "lfm2") == NULL) /* its window is f32 */
            check_model(names[i], "bf16");
    }
    return check_end("check_spec_recurrent");
}
