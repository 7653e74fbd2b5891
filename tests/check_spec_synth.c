/* check_spec_synth.c: drafts that are accepted by stated chances (engine/draft/synth.h): with chances of 0 the text is
 * the model's, with chances of 1 all drafts stand in it; between them as often as stated, by the request's seed; none
 * ends a text, and no grammar goes on with one. */
#include <math.h>

#include "engine/session_impl.h"
#include "support/check.h"
#include "support/serve_rig.h"

enum { PLACES = 4, N_PROMPT = 40, MADE = 200 };

static const char *const model = "tests/golden/tiny/llama.gguf";
static int32_t prompt[N_PROMPT], guessed;
static serve_out plain, out, again;

static int guess(void *user, const int32_t *tokens, int n, int32_t *list, int k)
{
    (void)user;
    (void)tokens;
    for (int i = 0; i < k; i++)
        list[i] = guessed >= 0 ? guessed : 30 + (n + i) % 7;
    return k;
}

static int open_rig(serve_rig *r, const draft_synth *synth)
{
    kvant_engine_params p = kvant_engine_defaults();
    kvant_session_params sp = kvant_session_defaults();

    p.threads = 1;
    p.max_seqs = 1;
    p.n_ctx = 512;
    p.logits_rows = 1 + PLACES;
    p.draft_rows = 1 + PLACES;
    sp.spec = synth ? KVANT_SPEC_NGRAM : KVANT_SPEC_OFF;
    sp.draft_max = PLACES + 2; /* more than the chances are for */
    if (!serve_open(r, model, p, sp))
        return 0;
    r->s->hooks.drafter = guess;
    if (synth)
        synth_set(r->s, synth);
    return 1;
}

static kvant_request request_of(kvant_sampler_params *sp, uint64_t seed)
{
    kvant_request q = kvant_request_defaults();

    *sp = kvant_sampler_defaults();
    sp->seed = seed;
    sp->temp = 1.0f;
    q.prompt = prompt;
    q.n_prompt = N_PROMPT;
    q.max_tokens = MADE;
    q.ignore_eos = 1;
    q.sampler = sp;
    q.n_logprobs = 0;
    return q;
}

/* ---- the ends ---- */

static void run(const draft_synth *synth, serve_out *o)
{
    kvant_sampler_params sp;
    serve_rig r;

    if (!open_rig(&r, synth))
        return;
    kvant_request q = request_of(&sp, 7);
    serve_one(&r, &q, o);
    serve_close(&r);
}

static void check_ends(void)
{
    draft_synth none = synth_of_chance(0, PLACES), all = synth_of_chance(1, PLACES);
    int right = 0;

    guessed = -1;
    run(NULL, &plain);
    run(&none, &out);
    CHECK(plain.n == MADE && out.n == MADE && memcmp(plain.tokens, out.tokens, MADE * sizeof *plain.tokens) == 0,
          "chance 0: %d tokens, another text", out.n);
    CHECK(out.t.n_drafted > MADE && out.t.n_draft_accepted == 0, "chance 0: %d of %d accepted", out.t.n_draft_accepted,
          out.t.n_drafted);
    run(&all, &out);
    CHECK(out.n == MADE && out.t.n_drafted > 0 && out.t.n_draft_accepted == out.t.n_drafted,
          "chance 1: %d of %d accepted", out.t.n_draft_accepted, out.t.n_drafted);
    CHECK(out.tokens[0] == plain.tokens[0], "chance 1: the first token is %d, not the model's", out.tokens[0]);
    for (int i = 1; i < MADE; i++) {
        right += out.tokens[i] == 30 + (N_PROMPT + i) % 7;
        CHECK(isfinite(out.logprob[i]) && out.logprob[i] <= 0, "log-probability %g", (double)out.logprob[i]);
    }
    CHECK(right >= out.t.n_drafted, "chance 1: %d of %d drafts stand in the text", right, out.t.n_drafted);
}

/* ---- between them ---- */

static void check_rates(void)
{
    const double rates[PLACES] = { 0.8, 0.8, 0.2, 0 };
    kvant_sampler_params sp;
    kvant_session_stats st;
    draft_synth synth;
    serve_rig r;

    CHECK(synth_from_rates(rates, PLACES, &synth, NULL) == KVANT_OK && synth.n == PLACES, "rates");
    CHECK(fabs(synth_length(&synth) - 2.8) < 1e-9, "%g tokens of a step", synth_length(&synth));
    if (!open_rig(&r, &synth))
        return;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        kvant_request q = request_of(&sp, seed);
        serve_one(&r, &q, &out);
        serve_one(&r, &q, &again);
        CHECK(out.n == MADE && memcmp(out.tokens, again.tokens, MADE * sizeof *out.tokens) == 0 &&
                  out.t.n_draft_accepted == again.t.n_draft_accepted,
              "seed %d: another text the second time", (int)seed);
    }
    kvant_session_get_stats(r.s, &st);
    const double steps = (double)st.draft_steps[PLACES];
    CHECK(steps > 1000, "%g steps of %d drafts", steps, PLACES);
    for (int i = 0; i < PLACES; i++) {
        /* five deviations of a coin thrown so often; the ends of pages have fewer drafts */
        const double got = (double)st.draft_accepted_at[i] / steps, off = 5 * sqrt(0.25 / steps) + 0.05 * rates[i];
        CHECK(fabs(got - rates[i]) <= off, "place %d: accepted %.3f of the time, wanted %.3f +- %.3f", i, got, rates[i],
              off);
    }
    CHECK(st.draft_accepted_at[3] == 0, "place 3: %d accepted at chance 0", (int)st.draft_accepted_at[3]);
    serve_close(&r);
}

/* ---- what luck does not do ---- */

static int n_accepted;

static int mask(void *user, float *logits, int n_vocab)
{
    (void)user;
    for (int i = 0; i < n_vocab; i++)
        logits[i] = i == 50 ? logits[i] : -INFINITY;
    return KVANT_OK;
}

static void accepted(void *user, int32_t token)
{
    (void)user;
    CHECK(token == 50, "the grammar goes on with %d, a draft", token);
    n_accepted++;
}

static void check_limits(void)
{
    draft_synth all = synth_of_chance(1, PLACES);
    kvant_sampler_params sp;
    serve_rig r;

    guessed = -1;
    if (!open_rig(&r, &all))
        return;
    kvant_request q = request_of(&sp, 3);
    q.mask = mask;
    q.accepted = accepted;
    serve_one(&r, &q, &out);
    CHECK(out.n == MADE && n_accepted == MADE - out.t.n_draft_accepted, "%d of %d tokens for the grammar, %d drafts",
          n_accepted, out.n, out.t.n_draft_accepted);
    for (guessed = 0; guessed < r.n_vocab && !kvant_token_is_eog(r.m, guessed);)
        guessed++;
    CHECK(guessed < r.n_vocab, "the vocabulary has no end");
    q = request_of(&sp, 3);
    serve_one(&r, &q, &out);
    CHECK(out.n == MADE && out.t.n_drafted > 0 && out.t.n_draft_accepted == 0, "%d ends were accepted of %d",
          out.t.n_draft_accepted, out.t.n_drafted);
    const int32_t stop = guessed = 60;
    q.stop_ids = &stop;
    q.n_stop_ids = 1;
    serve_one(&r, &q, &out);
    CHECK(out.t.n_drafted > 0 && out.t.n_draft_accepted == 0, "%d stops were accepted", out.t.n_draft_accepted);
    serve_close(&r);
}

static void check_numbers(void)
{
    const double rising[2] = { 0.5, 0.6 }, wild[2] = { 0.5, -0.1 }, none[2] = { 0.5, NAN };
    draft_synth s;
    kvant_diag d = { "" };

    CHECK(synth_from_rates(rising, 2, &s, &d) == KVANT_EINVAL &&
              strstr(d.text, "rate 2: found 0.6, wanted at most 0.5"),
          "%s", d.text);
    CHECK(synth_from_rates(wild, 2, &s, &d) == KVANT_EINVAL && strstr(d.text, "found -0.1, wanted 0 to 1"), "%s",
          d.text);
    CHECK(synth_from_rates(none, 2, &s, &d) == KVANT_EINVAL, "%s", d.text);
    for (double length = 1; length <= 5; length += 0.25)
        CHECK(synth_from_length(length, 4, &s, &d) == KVANT_OK && fabs(synth_length(&s) - length) < 1e-9 &&
                  s.chance[0] >= 0 && s.chance[3] <= 1,
              "length %g: %g", length, synth_length(&s));
    CHECK(synth_from_length(5.1, 4, &s, &d) == KVANT_EINVAL && strstr(d.text, "wanted 1 to 5"), "%s", d.text);
}

int main(void)
{
    serve_tokens(prompt, N_PROMPT, 11);
    check_ends();
    check_rates();
    check_limits();
    check_numbers();
    return check_end("check_spec_synth");
}
