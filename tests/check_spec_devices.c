/* check_spec_devices.c: drafts on devices other than the CPU.  There a row's bits may depend on how many rows a step
 * has, so what is promised is the class: rows of a step with drafts have the logits of steps of one token within it,
 * whatever was accepted before, and greedy texts have the same tokens, but where two are as likely within it.
 *
 *   check_spec_devices           vulkan and opencl on a few models and short texts, where they are
 *   check_spec_devices NAME      that device, on more of them: check_spec_devices cuda
 *
 * Fed texts: some sequences at once with 0 to 7 drafts each, of which a chance says how many are the text's, are copied
 * now and then; by steps that give logits and by steps that give the likeliest token.  How far a device's own ways
 * without drafts are apart, a token alone and beside others, is measured first: drafts may be about as far.  A mixture
 * is run as it is with f32 products, and with all of its experts used with auto's, by which a router would choose anew
 * now and then.  Own texts: sessions with a drafter that mostly knows the text, with the model itself as draft model,
 * with its own block. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "engine/session_impl.h"
#include "support/check.h"
#include "support/device_here.h"
#include "support/serve_rig.h"

enum { SEQS = 4, TEXT = 90, RING = 20, GEN = 40, MOST = 7, FORKED = 3, BESIDE = 20 };

static const struct subject {
    const char *path, *type;
    int few, own;                      /* among the few models too; with own texts there */
} subjects[] = {
    { "tests/golden/tiny/qwen35.gguf", "tbq4_0", 1, 0 }, { "tests/mtp/qwen35.gguf", "f16", 1, 1 },
    { "tests/archs/mamba2.gguf", "f16", 1, 0 },          { "tests/archs/lfm2.gguf", "f16", 1, 0 },
    { "tests/archs/kimi-linear.gguf", "f16", 1, 0 },     { "tests/golden/tiny/qwen3.gguf", "bf16", 0, 0 },
    { "tests/golden/tiny/qwen35moe.gguf", "f16", 0, 0 }, { "tests/golden/tiny/qwen3next.gguf", "bf16", 0, 0 },
    { "tests/golden/tiny/qwen3moe.gguf", "turbo3", 0, 0 }, { "tests/golden/tiny/llama.gguf", "tbq3_0", 0, 0 },
    { "tests/archs/falcon-h1.gguf", "f16", 0, 0 },       { "tests/archs/granitehybrid.gguf", "f16", 0, 0 },
    { "tests/archs/nemotron_h.gguf", "f16", 0, 0 },      { "tests/archs/gemma3.gguf", "f16", 0, 0 },
    { "tests/mtp/qwen2vl.gguf", "f16", 0, 0 },           { "tests/mtp/glm4moe.gguf", "f16", 0, 0 },
    { "tests/mtp/deepseek2.gguf", "f16", 0, 0 },         { "tests/golden/tiny/llama.gguf", "q8_0", 0, 0 },
};

typedef struct rig {
    const char *path, *type, *device;
    char all[2][64];                   /* "KEY=int:N" by which a mixture uses all of its experts */
    const char *told[2];
    int n_told;
    int compute, quick;                /* quick: two texts, of which the last tokens are fed one by one */
    kvant_model *m;
    kvant_engine *e;
    int vocab;
    int32_t text[SEQS][TEXT];
    float *logits[SEQS];               /* [TEXT][vocab] behind each token, by steps of one token */
    double limit, worst;               /* NMSE of logits: wanted, found */
    rng random;
} rig;

static kvant_engine_params engine_of(const rig *r, int mtp)
{
    kvant_engine_params p = kvant_engine_defaults();

    p.device = r->device;
    p.type_k = p.type_v = r->type;
    p.compute = r->compute;
    p.threads = 1;
    p.max_seqs = r->quick ? 2 * SEQS : BESIDE;
    p.n_ctx = 256;
    p.n_ubatch = 64;
    p.logits_rows = 64;
    p.draft_rows = RING;
    p.mtp = mtp;
    return p;
}

static kvant_model_params model_of(const rig *r)
{
    kvant_model_params mp = kvant_model_defaults();

    mp.path = r->path;
    mp.overrides = r->told;
    mp.n_overrides = r->n_told;
    return mp;
}

static int open_model(rig *r)
{
    const kvant_model_params mp = model_of(r);
    kvant_diag d = { "" };

    CHECK(kvant_model_open(&mp, &r->m, &d) == KVANT_OK, "%s", d.text);
    r->vocab = r->m ? kvant_model_get_info(r->m)->n_vocab : 0;
    return r->m != NULL;
}

static kvant_engine *open_engine(rig *r, int mtp)
{
    const kvant_engine_params p = engine_of(r, mtp);
    kvant_engine *e = NULL;
    kvant_diag d = { "" };

    CHECK(kvant_engine_create(r->m, &p, &e, &d) == KVANT_OK, "%s on %s: %s", r->path, r->device, d.text);
    return e;
}

/* ---- fed texts ---- */

static void step(rig *r, const kvant_item *items, const int *drafts, int n)
{
    kvant_diag d = { "" };

    CHECK(kvant_step_drafts(r->e, items, drafts, n, &d) == KVANT_OK, "%s: %s", r->path, d.text);
}

static int new_seq(rig *r)
{
    int seq = -1;

    CHECK(kvant_seq_new(r->e, &seq, NULL) == KVANT_OK, "%s: no sequence", r->path);
    return seq;
}

/* Prompts end within a page, before its end and at it; one text has none. */
static int prompt_of(const rig *r, int i)
{
    static const int n[SEQS] = { 0, 5, 58, 64 }, late[SEQS] = { 47, 58, 0, 0 };
    return r->quick ? late[i] : n[i];
}

static int texts_of(const rig *r)
{
    return r->quick ? 2 : SEQS;
}

static int length_of(const rig *r)
{
    return r->quick ? 72 : TEXT;
}

static void run_plain(rig *r, int i)
{
    const int seq = new_seq(r);

    for (int at = 0, n; at < length_of(r); at += n) {
        n = at == 0 && prompt_of(r, i) ? prompt_of(r, i) : 1;
        const kvant_item it = { seq, r->text[i] + at, n, at == 0 && prompt_of(r, i) > 0, KVANT_LOGITS_LAST };
        step(r, &it, NULL, 1);
        const float *x = kvant_step_logits(r->e, 0, 0);
        if (x)
            memcpy(r->logits[i] + (size_t)(at + n - 1) * (size_t)r->vocab, x, (size_t)r->vocab * sizeof *x);
    }
    kvant_seq_free(r->e, seq);
}

/* Of a row's logits: sums in another order; on CUDA, where auto says so, in 8 or 16 bits for some numbers of rows. */
static double class_of(const rig *r)
{
    return r->compute == KVANT_COMPUTE_AUTO && strncmp(r->device, "cuda", 4) == 0 ? 2e-3 : 1e-6;
}

static double energy(const float *x, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

static const float *plain_at(const rig *r, int i, int at)
{
    return r->logits[i] + (size_t)at * (size_t)r->vocab;
}

/* Differences that the class allows in a single logit: four deviations. */
static float close_of(const rig *r, const float *x)
{
    return 4.0f * (float)sqrt(r->limit * energy(x, r->vocab) / r->vocab);
}

/* NMSE of logits behind token `at` of text i against those of steps of one token; 0 where there are none. */
static double off_by(const rig *r, int i, int at, const float *x)
{
    const float *want = plain_at(r, i, at);
    double sum = 0;

    for (int k = 0; x && k < r->vocab; k++)
        sum += (double)(x[k] - want[k]) * (double)(x[k] - want[k]);
    return sum / energy(want, r->vocab);
}

static void check_row(rig *r, int i, int at, const float *x, const char *what)
{
    const double nmse = off_by(r, i, at, x);

    CHECK(x != NULL, "%s: text %d, token %d, %s: no logits", r->path, i, at, what);
    CHECK(!x || nmse <= r->limit, "%s on %s, %s: text %d, token %d, %s: logits off by NMSE %.2g, wanted at most %.2g",
          r->path, r->device, r->type, i, at, what, nmse, r->limit);
    r->worst = !(nmse <= r->worst) ? nmse : r->worst;
}

/* The likeliest token, or one as likely within the class. */
static void check_token(rig *r, int i, int at, int32_t token)
{
    const float *want = plain_at(r, i, at);
    const int32_t best = sampler_argmax(want, r->vocab);

    CHECK(token >= 0 && token < r->vocab, "%s: text %d, token %d: likeliest %d", r->path, i, at, token);
    CHECK(token < 0 || token >= r->vocab || want[best] - want[token] <= close_of(r, want),
          "%s on %s: text %d, token %d: likeliest %d of %g, wanted %d of %g", r->path, r->device, i, at, token,
          (double)want[token], best, (double)want[best]);
}

/* A sequence that takes its text by steps with drafts: k of this step, `good` of them the text's. */
typedef struct run {
    int seq, at, k, good;
    int32_t tokens[MOST + 1];
} run;

static kvant_item next_item(rig *r, int i, run *q, int ring, int greedy)
{
    const int room = kvant_seq_draft_room(r->e, q->seq), left = length_of(r) - 1 - q->at;
    int k = (int)rng_below(&r->random, MOST + 1);

    CHECK(room >= 0 && room < KVANT_PAGE, "%s: room for %d drafts", r->path, room);
    k = k < room ? k : room;
    k = k < ring - 1 ? k : ring > 1 ? ring - 1 : 0;
    q->k = k < left ? k : left;
    q->good = (int)rng_below(&r->random, (uint32_t)q->k + 1);
    for (int t = 0; t <= q->k; t++)
        q->tokens[t] = t <= q->good ? r->text[i][q->at + t] : (r->text[i][q->at + t] + 1) % 200;
    return (kvant_item){ q->seq, q->tokens, 1 + q->k, 0, greedy ? KVANT_LOGITS_GREEDY : KVANT_LOGITS_LAST };
}

static void settle(rig *r, int i, int item, run *q, int greedy)
{
    kvant_diag d = { "" };

    for (int t = 0; t <= q->good; t++)
        if (greedy)
            check_token(r, i, q->at + t, engine_row_token(r->e, item, t));
        else
            check_row(r, i, q->at + t, kvant_step_logits(r->e, item, t), t ? "a draft" : "no draft");
    CHECK(kvant_seq_accept(r->e, q->seq, q->good, &d) == KVANT_OK, "%s: %s", r->path, d.text);
    q->at += 1 + q->good;
}

static void check_fork(rig *r, int i, int src, int at)
{
    int seq = -1;
    kvant_diag d = { "" };

    CHECK(kvant_seq_fork(r->e, src, &seq, &d) == KVANT_OK, "%s: %s", r->path, d.text);
    for (int n = 0; n < FORKED && at < length_of(r); n++, at++) {
        const kvant_item it = { seq, &r->text[i][at], 1, 0, KVANT_LOGITS_LAST };
        step(r, &it, NULL, 1);
        check_row(r, i, at, kvant_step_logits(r->e, 0, 0), "a copy");
    }
    kvant_seq_free(r->e, seq);
}

static void run_drafts(rig *r, int greedy)
{
    run q[SEQS];
    int left = texts_of(r);

    for (int i = 0; i < texts_of(r); i++) {
        q[i] = (run){ .seq = new_seq(r), .at = prompt_of(r, i) };
        const kvant_item it = { q[i].seq, r->text[i], prompt_of(r, i), 1, KVANT_LOGITS_NONE };
        if (prompt_of(r, i))
            step(r, &it, NULL, 1);
    }
    for (int round = 0; left > 0; round++) {
        kvant_item items[SEQS];
        int who[SEQS], drafts[SEQS], n = 0, ring = RING;
        for (int i = 0; i < texts_of(r); i++) {
            if (q[i].at >= length_of(r) || (round > 0 && rng_below(&r->random, 8) == 0))
                continue; /* waits, with its rows in the ring */
            items[n] = next_item(r, i, &q[i], ring, greedy);
            ring -= q[i].k ? 1 + q[i].k : 0;
            drafts[n] = q[i].k;
            who[n++] = i;
        }
        if (n)
            step(r, items, drafts, n);
        for (int k = 0; k < n; k++)
            settle(r, who[k], k, &q[who[k]], greedy);
        if (n && round % 5 == 0)
            check_fork(r, who[n - 1], q[who[n - 1]].seq, q[who[n - 1]].at);
        left = 0;
        for (int i = 0; i < texts_of(r); i++)
            left += q[i].at < length_of(r);
    }
    for (int i = 0; i < texts_of(r); i++)
        kvant_seq_free(r->e, q[i].seq);
}

/* The texts again by plain steps of `width` sequences, a token of each: the worst NMSE. */
static double run_beside(rig *r, int width)
{
    run q[BESIDE];
    double worst = 0;

    for (int k = 0; k < width; k++) {
        const int i = k % SEQS;
        q[k] = (run){ .seq = new_seq(r), .at = prompt_of(r, i) };
        const kvant_item it = { q[k].seq, r->text[i], prompt_of(r, i), 1, KVANT_LOGITS_NONE };
        if (prompt_of(r, i))
            step(r, &it, NULL, 1);
    }
    for (int n = width; n > 0;) {
        kvant_item items[BESIDE];
        int who[BESIDE];
        n = 0;
        for (int k = 0; k < width; k++)
            if (q[k].at < length_of(r)) {
                who[n] = k;
                items[n++] = (kvant_item){ q[k].seq, &r->text[k % SEQS][q[k].at], 1, 0, KVANT_LOGITS_LAST };
            }
        if (n)
            step(r, items, NULL, n);
        for (int j = 0; j < n; j++) {
            const float *x = kvant_step_logits(r->e, j, 0);
            const double nmse = off_by(r, who[j] % SEQS, q[who[j]].at++, x);
            CHECK(x != NULL, "%s: beside %d others: no logits", r->path, n - 1);
            worst = !(nmse <= worst) ? nmse : worst;
        }
    }
    for (int k = 0; k < width; k++)
        kvant_seq_free(r->e, q[k].seq);
    return worst;
}

/* What rows with drafts may be off by.  A device whose products depend on the number of rows moves values over the
 * rounding boundaries of a cache's format, drafts or none, and what was stored there stays.  So where plain steps of
 * several rows are further from those of one than the class of a product says, drafts may be twice as far (four times
 * by NMSE); they must be of the same text all the same. */
static void find_limit(rig *r)
{
    static const int widths[] = { 2, 4, 8, BESIDE };
    double worst = 0;

    r->limit = class_of(r);
    for (size_t i = 0; i < sizeof widths / sizeof *widths && !r->quick; i++) {
        const double nmse = run_beside(r, widths[i]);
        worst = !(nmse <= worst) ? nmse : worst;
    }
    CHECK(worst <= (r->compute == KVANT_COMPUTE_AUTO ? 1e-2 : 1e-6),
          "%s on %s, %s: tokens beside others are off by NMSE %.2g", r->path, r->device, r->type, worst);
    if (r->compute == KVANT_COMPUTE_AUTO && 4 * worst > r->limit)
        r->limit = 4 * worst;
    if (!r->quick)
        printf("%s on %s, %s, %s: tokens beside others are off by NMSE %.2g at most\n", r->path, r->device, r->type,
               r->compute ? "f32" : "auto", worst);
}

static void check_fed(rig *r)
{
    r->e = open_engine(r, 0);
    if (!r->e)
        return;
    for (int i = 0; i < texts_of(r); i++) {
        r->logits[i] = malloc(TEXT * (size_t)r->vocab * sizeof(float));
        for (int t = 0; t < TEXT; t++)
            r->text[i][t] = (int32_t)rng_below(&r->random, 200);
        run_plain(r, i);
    }
    find_limit(r);
    run_drafts(r, 0);
    run_drafts(r, 1);
    kvant_engine_free(r->e);
    r->e = NULL;
}

/* ---- own texts ---- */

typedef struct own {
    rig *r;
    int32_t prompt[SEQS][TEXT];
    serve_out plain[SEQS], got[SEQS];
    rng random;
} own;

static int gen_of(const rig *r)
{
    return r->quick ? 16 : GEN;
}

static void run_all(own *o, serve_rig *s, serve_out *out)
{
    kvant_diag d = { "" };

    for (int i = 0; i < texts_of(o->r); i++) {
        kvant_request q = kvant_request_defaults();
        q.prompt = o->prompt[i];
        q.n_prompt = 8 + 18 * i;
        q.max_tokens = gen_of(o->r);
        q.ignore_eos = 1;
        q.n_logprobs = i % 2 ? 0 : -1;
        q.draft_max = 2 + i;
        CHECK(serve_submit(s, &q, &out[i], &d) == KVANT_OK, "%s: %s", o->r->path, d.text);
    }
    for (int i = 0; i < texts_of(o->r); i++)
        serve_wait(&out[i]);
}

/* Mostly right, sometimes not. */
static int knowing(void *user, const int32_t *tokens, int n, int32_t *out, int k)
{
    own *o = user;

    for (int i = 0; i < texts_of(o->r); i++) {
        const int p = 8 + 18 * i, at = n - p;
        if (n < p || memcmp(tokens, o->prompt[i], (size_t)p * sizeof *tokens) != 0)
            continue;
        for (int j = 0; j < k; j++)
            out[j] = at + j < o->plain[i].n && rng_below(&o->random, 8) ? o->plain[i].tokens[at + j] : 7;
        return k;
    }
    return 0;
}

/* Token `at` of text i is another one: they must be as likely, after the same text. */
static void check_tie(own *o, serve_rig *s, int i, int at)
{
    const int32_t a = o->plain[i].tokens[at], b = o->got[i].tokens[at];
    int32_t text[2 * TEXT];
    int seq = -1, n = 8 + 18 * i;
    kvant_diag d = { "" };

    memcpy(text, o->prompt[i], (size_t)n * sizeof *text);
    memcpy(text + n, o->plain[i].tokens, (size_t)at * sizeof *text);
    n += at;
    kvant_session_free(s->s);          /* the engine is the test's again */
    s->s = NULL;
    CHECK(kvant_seq_new(s->e, &seq, &d) == KVANT_OK, "%s", d.text);
    const kvant_item it = { seq, text, n, 1, KVANT_LOGITS_LAST };
    CHECK(kvant_step(s->e, &it, 1, &d) == KVANT_OK, "%s", d.text);
    const float *x = kvant_step_logits(s->e, 0, 0);
    CHECK(x && fabsf(x[a] - x[b]) <= close_of(o->r, x), "%s on %s: text %d, token %d: %d of %g, without drafts %d of %g",
          o->r->path, o->r->device, i, at, b, x ? (double)x[b] : 0.0, a, x ? (double)x[a] : 0.0);
    kvant_seq_free(s->e, seq);
}

static void compare(own *o, serve_rig *s, const char *drafter)
{
    int drafted = 0, accepted = 0, tied = 0;

    for (int i = 0; i < texts_of(o->r); i++) {
        drafted += o->got[i].t.n_drafted;
        accepted += o->got[i].t.n_draft_accepted;
        CHECK(o->plain[i].n == gen_of(o->r) && o->got[i].n == gen_of(o->r),
              "%s, %s: text %d: %d and %d of %d tokens (%s)", o->r->path, drafter, i, o->plain[i].n, o->got[i].n,
              gen_of(o->r), o->got[i].text);
    }
    for (int i = 0; i < texts_of(o->r); i++) {
        int at = 0;
        while (at < gen_of(o->r) && o->plain[i].tokens[at] == o->got[i].tokens[at])
            at++;
        tied += at < gen_of(o->r);
        if (at < gen_of(o->r))
            check_tie(o, s, i, at);
    }
    CHECK(drafted > texts_of(o->r), "%s, %s: %d drafted", o->r->path, drafter, drafted);
    CHECK(accepted > 0 || strcmp(drafter, "its block") == 0, "%s, %s: none accepted", o->r->path, drafter);
    printf("%s on %s, %s: %d of %d drafts accepted, %d of %d texts left at tokens as likely\n", o->r->path, o->r->device,
           drafter, accepted, drafted, tied, texts_of(o->r));
}

static void run_session(own *o, const char *drafter, int spec, kvant_engine *draft)
{
    const kvant_model_params mp = model_of(o->r);
    kvant_session_params sp = kvant_session_defaults();
    serve_rig s;

    sp.spec = spec;
    sp.draft = draft;
    if (!serve_open_model(&s, &mp, engine_of(o->r, spec == KVANT_SPEC_MTP), sp))
        return;
    if (spec == KVANT_SPEC_NGRAM) {
        s.s->hooks.drafter = knowing;
        s.s->hooks.drafter_user = o;
    }
    run_all(o, &s, spec == KVANT_SPEC_OFF ? o->plain : o->got);
    if (spec != KVANT_SPEC_OFF)
        compare(o, &s, drafter);
    serve_close(&s);
}

static void check_own(rig *r)
{
    static own o;
    const kvant_model_info *info = kvant_model_get_info(r->m);

    memset(&o, 0, sizeof o);
    o.r = r;
    o.random = (rng){ 3 };
    for (int i = 0; i < SEQS; i++)
        serve_tokens(o.prompt[i], TEXT, 50 + (uint64_t)i);
    for (int i = 0; i < SEQS * TEXT; i++)
        o.prompt[i / TEXT][i % TEXT] %= 200;
    run_session(&o, "off", KVANT_SPEC_OFF, NULL);
    run_session(&o, "a knowing drafter", KVANT_SPEC_NGRAM, NULL);
    if (info->n_mtp)
        run_session(&o, "its block", KVANT_SPEC_MTP, NULL);
    if (info->n_gdn_layers == 0) { /* recurrent layers take no guesses back */
        kvant_engine *draft = open_engine(r, 0);
        run_session(&o, "itself as draft model", KVANT_SPEC_DRAFT, draft);
        kvant_engine_free(draft);
    }
}

/* ---- devices ---- */

static void check_model(const struct subject *s, rig *r)
{
    if (!open_model(r))
        return;
    CHECK(!r->n_told || r->m->hp.moe.n_used == r->m->hp.moe.n, "%s: %d of %d experts used", r->path,
          r->m->hp.moe.n_used, r->m->hp.moe.n);
    check_fed(r);
    printf("%s on %s, %s, %s: logits off by NMSE %.2g at most\n", r->path, r->device, r->type,
           r->compute ? "f32" : "auto", r->worst);
    fflush(stdout);
    if (r->compute == KVANT_COMPUTE_AUTO && (!r->quick || s->own))
        check_own(r);
    kvant_model_close(r->m);
    for (int i = 0; i < SEQS; i++)
        free(r->logits[i]);
}

static void tell(rig *r, const char *key, int n)
{
    snprintf(r->all[r->n_told], sizeof r->all[0], "%s.%s=int:%d", kvant_model_get_info(r->m)->arch, key, n);
    r->told[r->n_told] = r->all[r->n_told];
    r->n_told++;
}

/* A router's choice is a step: the smallest difference may take another expert, after which a tiny model says something
 * else altogether.  With all experts chosen their weights still come from the router, but go with its input. */
static void use_all_experts(rig *r)
{
    if (!open_model(r))
        return;
    const model_moe moe = r->m->hp.moe;
    if (moe.n > 0)
        tell(r, "expert_used_count", moe.n);
    if (moe.n > 0 && moe.n_group > 1)
        tell(r, "expert_group_used_count", moe.n_group);
    kvant_model_close(r->m);
    r->m = NULL;
}

static void check_subject(const struct subject *s, const char *device, int compute, int quick)
{
    rig r = { .path = s->path, .type = s->type, .device = device, .compute = compute, .quick = quick, .random = { 5 } };

    if (compute == KVANT_COMPUTE_AUTO)
        use_all_experts(&r);
    check_model(s, &r);
}

static void check_device(const char *device, int all)
{
    if (!device_here(device))
        return;
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++) {
        if (!all && !subjects[i].few)
            continue;
        check_subject(&subjects[i], device, KVANT_COMPUTE_AUTO, !all);
        if (all)
            check_subject(&subjects[i], device, KVANT_COMPUTE_F32, 0);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        check_device(argv[1], 1);
    } else {
        check_device("vulkan", 0);
        if (!check_sanitized) /* PoCL's compiler frees nothing at its end */
            check_device("opencl", 0);
    }
    return check_end("check_spec_devices");
}
