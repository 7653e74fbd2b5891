/* check_shift.c: a request whose context is full goes on (kvant_request.shift): its text is that of fresh requests,
 * each with what the one before left as its prompt, to the last bit of every log-probability; alone, with neighbours,
 * whose texts stay theirs, in a pool that is too small, with drafts of its text, of a draft model and of its own block,
 * in a slot; and it ends as others do. */
#include "support/session_audit.h"
#include "engine/session_impl.h"
#include "support/check.h"
#include "support/store_rig.h"

enum { CONTEXT = 128, PROMPT = 50, MADE = 420, OTHERS = 3 };

static const char *const dense = "tests/golden/tiny/llama.gguf";
static int32_t prompt[PROMPT], others[OTHERS][PROMPT];
static serve_out want, out, beside[OTHERS], alone[OTHERS];

static kvant_engine_params engine_params(int max_seqs, int pages)
{
    kvant_engine_params p = kvant_engine_defaults();

    p.type_k = p.type_v = "tbq4_0";
    p.threads = 1;
    p.max_seqs = max_seqs;
    p.n_ctx = CONTEXT;
    p.n_ubatch = 64;
    p.pool_tokens = (int64_t)pages * KVANT_PAGE;
    p.snapshots = 4;
    p.logits_rows = max_seqs + 8;
    p.draft_rows = max_seqs + 8;
    return p;
}

static void audit(kvant_session *s)
{
    char why[200];

    CHECK(session_audit(s, why, sizeof why), "%s", why);
}

/* of: the drafter of KVANT_SPEC_DRAFT, or NULL. */
static int open_with(serve_rig *r, const char *model, int max_seqs, int pages, int spec, const serve_rig *of)
{
    kvant_session_params sp = kvant_session_defaults();
    kvant_engine_params p = engine_params(max_seqs, pages);

    sp.spec = spec;
    sp.draft_max = 4;
    sp.draft = of ? of->e : NULL;
    p.mtp = spec == KVANT_SPEC_MTP;
    if (strncmp(model, "tests/mtp/", 10) == 0)
        p.type_k = p.type_v = "f16"; /* heads of 16 values */
    if (!serve_open(r, model, p, sp))
        return 0;
    atomic_store(&r->s->hooks.after_tick, audit);
    return 1;
}

static int open_rig(serve_rig *r, const char *model, int max_seqs, int pages, int spec)
{
    return open_with(r, model, max_seqs, pages, spec, NULL);
}

/* ---- what is wanted: one request after the other ---- */

typedef struct rule {
    int keep, discard; /* as of the request */
    int kept, dropped; /* the first time; by the header's words */
} rule;

/* Runs text[*n] as a request of its own until its context is full, and adds what it gave. */
static void run_part(serve_rig *r, int32_t *text, int *n, serve_out *all)
{
    static serve_out part;
    kvant_request q = store_request(text, *n, -1, -1, NULL);

    q.cache = KVANT_CACHE_NO_READ | KVANT_CACHE_NO_WRITE;
    serve_one(r, &q, &part);
    CHECK(part.n == CONTEXT + 1 - *n && part.finish == KVANT_FINISH_LENGTH, "part: %d tokens behind %d", part.n, *n);
    for (int i = 0; i < part.n && all->n < MADE; i++) {
        all->tokens[all->n] = part.tokens[i];
        all->logprob[all->n++] = part.logprob[i];
        text[(*n)++] = part.tokens[i];
    }
}

static void run_parts(serve_rig *r, const rule *k, serve_out *all)
{
    int32_t text[CONTEXT + 1];
    int n = PROMPT;

    memcpy(text, prompt, sizeof prompt);
    all->n = 0;
    while (all->n < MADE) {
        run_part(r, text, &n, all);
        const int left = n - 1 - k->kept, half = k->discard ? k->dropped : left / 2;
        memmove(text + k->kept, text + k->kept + half, (size_t)(n - k->kept - half) * sizeof *text);
        n -= half;
    }
}

/* ---- alone, in company, with drafts ---- */

static kvant_request shifting(const rule *k)
{
    kvant_request q = store_request(prompt, PROMPT, MADE, -1, NULL);

    q.shift = 1;
    q.n_keep = k->keep;
    q.n_discard = k->discard;
    return q;
}

static void check_text(const char *model, const char *what, const rule *k)
{
    CHECK(serve_same(&out, &want), "%s, %s, keep %d, discard %d: another text (%d tokens, %s)", model, what, k->keep,
          k->discard, out.n, out.text);
    CHECK(out.finish == KVANT_FINISH_LENGTH && out.ends == 1 && out.t.n_prompt == PROMPT && out.t.n_generated == MADE,
          "%s, %s: finish %d, %d of %d tokens", model, what, out.finish, out.t.n_generated, MADE);
    CHECK(out.t.n_kept == k->kept && out.t.n_shifts >= 3 && out.t.n_dropped >= 3 * CONTEXT / 16,
          "%s, %s: %d shifts, %d tokens kept, %d dropped", model, what, out.t.n_shifts, out.t.n_kept, out.t.n_dropped);
}

/* The pool of 5 pages has room for two contexts and a half: some are preempted. */
static void check_company(const char *model, const rule *k, int pages, int spec, const serve_rig *of)
{
    kvant_diag d = { "" };
    serve_rig r;

    if (!open_with(&r, model, 1 + OTHERS, pages, spec, of))
        return;
    kvant_request q = shifting(k);
    CHECK(serve_submit(&r, &q, &out, &d) == KVANT_OK, "%s", d.text);
    for (int i = 0; i < OTHERS; i++) {
        q = store_request(others[i], PROMPT, 60, -1, NULL);
        CHECK(serve_submit(&r, &q, &beside[i], &d) == KVANT_OK, "%s", d.text);
    }
    serve_wait(&out);
    for (int i = 0; i < OTHERS; i++) {
        serve_wait(&beside[i]);
        CHECK(serve_same(&beside[i], &alone[i]), "%s: neighbour %d has another text", model, i);
    }
    check_text(model, spec ? "with neighbours and drafts" : "with neighbours", k);
    CHECK(spec == KVANT_SPEC_OFF || out.t.n_drafted > 0, "no drafts");
    serve_close(&r);
}

/* Guesses of a whole model, the target itself: nearly all are right, and its places there are shifted too. */
static void check_drafter(const char *model, const rule *k)
{
    serve_rig of;

    if (!open_rig(&of, model, 1 + OTHERS, 8, KVANT_SPEC_OFF))
        return;
    check_company(model, k, 8, KVANT_SPEC_DRAFT, &of);
    CHECK(out.t.n_draft_accepted > MADE / 4, "%s: of %d guesses %d were right", model, out.t.n_drafted,
          out.t.n_draft_accepted);
    check_company(model, k, 5, KVANT_SPEC_DRAFT, &of);
    for (int i = 0; i < 1 + OTHERS; i++)
        CHECK(!of.e->kv.seqs[i].used, "%s: sequence %d of the draft model is left", model, i);
    serve_close(&of);
}

/* blocks: the model has one that guesses. */
static void check_model(const char *model, int blocks)
{
    static const rule rules[] = { { 0, 0, 0, 0 },
                                  { 10, 0, 10, 0 },
                                  { -1, 20, PROMPT, 20 },
                                  { 4000, 0, CONTEXT - CONTEXT / 8, 0 },
                                  { 3, 1, 3, CONTEXT / 16 } };
    serve_rig r;

    if (!open_rig(&r, model, 1, 2, KVANT_SPEC_OFF))
        return;
    for (int i = 0; i < OTHERS; i++) {
        kvant_request q = store_request(others[i], PROMPT, 60, -1, NULL);
        serve_one(&r, &q, &alone[i]);
    }
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        kvant_request q = shifting(&rules[i]);
        run_parts(&r, &rules[i], &want);
        serve_one(&r, &q, &out);
        check_text(model, "alone", &rules[i]);
        if (i < 3) {
            check_company(model, &rules[i], 8, KVANT_SPEC_OFF, NULL);
            check_company(model, &rules[i], 5, KVANT_SPEC_OFF, NULL);
            check_company(model, &rules[i], blocks ? 5 : 8, blocks ? KVANT_SPEC_MTP : KVANT_SPEC_NGRAM, NULL);
            if (model == dense)
                check_drafter(model, &rules[i]);
        }
    }
    serve_close(&r);
}

/* ---- how it ends, and where it does not begin ---- */

static void check_ends(serve_rig *r)
{
    kvant_request q = store_request(prompt, PROMPT, CONTEXT + 1 - PROMPT, -1, NULL);

    q.shift = 1;
    serve_one(r, &q, &out);
    CHECK(out.n == CONTEXT + 1 - PROMPT && out.t.n_shifts == 0, "the last token that fits: %d shifts", out.t.n_shifts);
    q.max_tokens++;
    serve_one(r, &q, &out);
    CHECK(out.n == q.max_tokens && out.t.n_shifts == 1 && out.finish == KVANT_FINISH_LENGTH, "one more: %d shifts",
          out.t.n_shifts);
    q.max_tokens = -1;
    const int how[] = { KVANT_EVENT_STOP, KVANT_EVENT_CANCEL }, ends[] = { KVANT_FINISH_STOP, KVANT_FINISH_CANCEL };
    for (int i = 0; i < 4; i++) { /* within a context, and with the token that fills one */
        out.stop_after = i < 2 ? 300 : CONTEXT + 1 - PROMPT;
        out.stop_how = how[i % 2];
        serve_one(r, &q, &out);
        CHECK(out.n == out.stop_after && out.finish == ends[i % 2] && out.t.n_shifts == (i < 2 ? 4 : 0),
              "without a limit: %d tokens, finish %d, %d shifts", out.n, out.finish, out.t.n_shifts);
    }
    out.stop_after = 0;
}

static void check_slot(serve_rig *r)
{
    kvant_request q = store_request(prompt, PROMPT, 200, -1, NULL);

    q.shift = 1;
    q.slot = 0;
    serve_one(r, &q, &out);
    CHECK(r->s->parked[0].tokens && r->s->parked[0].n <= CONTEXT, "nothing is parked");
    int32_t next[CONTEXT];
    const int n = r->s->parked[0].n;
    memcpy(next, r->s->parked[0].tokens, (size_t)n * sizeof *next);
    CHECK(next[n - 1] == out.tokens[198], "the slot ends with token %d", next[n - 1]);
    next[n] = out.tokens[199];
    q = store_request(next, n + 1, 5, -1, NULL);
    q.slot = 0;
    serve_one(r, &q, &want);
    CHECK(want.n_cached == n, "the next turn finds %d of %d tokens", want.n_cached, n);
}

static void check_refused(serve_rig *r)
{
    kvant_diag d = { "" };
    kvant_request q = store_request(prompt, PROMPT, 5, -1, NULL);

    q.shift = 2;
    CHECK(serve_submit(r, &q, &out, &d) == KVANT_EINVAL && strstr(d.text, "context shift: 2, wanted 0 to 1"), "%s",
          d.text);
    q.shift = 1;
    q.n_keep = -2;
    CHECK(serve_submit(r, &q, &out, &d) == KVANT_EINVAL && strstr(d.text, "keeps: -2"), "%s", d.text);
    q.n_keep = 0;
    q.n_discard = -1;
    CHECK(serve_submit(r, &q, &out, &d) == KVANT_EINVAL && strstr(d.text, "drops: -1"), "%s", d.text);
}

/* Random numbers and penalties go on: the same seed gives the same text. */
static void check_sampled(serve_rig *r)
{
    kvant_sampler_params sp = kvant_sampler_defaults();
    kvant_request q = store_request(prompt, PROMPT, MADE, -1, NULL);

    sp.seed = 5;
    sp.repeat_penalty = 1.2f;
    q.sampler = &sp;
    q.shift = 1;
    serve_one(r, &q, &out);
    serve_one(r, &q, &want);
    CHECK(out.n == MADE && out.t.n_shifts > 3 && serve_same(&out, &want), "the second text of a seed is another one");
}

int main(void)
{
    serve_rig r;

    serve_tokens(prompt, PROMPT, 3);
    for (int i = 0; i < OTHERS; i++)
        serve_tokens(others[i], PROMPT, 10 + (uint64_t)i);
    check_model(dense, 0);
    check_model("tests/golden/tiny/qwen35.gguf", 0);
    check_model("tests/mtp/qwen35.gguf", 1);
    check_model("tests/mtp/qwen2vl.gguf", 1);
    if (open_rig(&r, dense, 2, 4, KVANT_SPEC_OFF)) {
        check_ends(&r);
        check_slot(&r);
        check_refused(&r);
        check_sampled(&r);
        serve_close(&r);
    }
    return check_end("check_shift");
}
