/* spec_scene.c: see spec_scene.h. */
#include "engine/session_impl.h"
#include "support/spec_scene.h"

#include "support/check.h"

/* ---- drafters ---- */

static const serve_out *text_of(const spec_scene *c, const int32_t *tokens, int n, int *at)
{
    for (int i = 0; i < SCENE_REQUESTS; i++) {
        const int p = c->n_prompt[i];
        if (n >= p && memcmp(tokens, c->prompt[i], (size_t)p * sizeof *tokens) == 0) {
            *at = n - p;
            return &c->plain[i];
        }
    }
    return NULL;
}

/* Owner thread. */
static int half_knowing(void *user, const int32_t *tokens, int n, int32_t *out, int k)
{
    spec_scene *c = user;
    int at = 0;
    const serve_out *o = text_of(c, tokens, n, &at);

    for (int i = 0; i < k; i++) {
        const int known = o && at + i < o->n && (int)rng_below(&c->random, 1000) < c->in_thousand;
        out[i] = known ? o->tokens[at + i] : (int32_t)rng_below(&c->random, 200);
    }
    return k - (int)rng_below(&c->random, 2) * (int)rng_below(&c->random, (uint32_t)k + 1);
}

/* ---- requests ---- */

/* Bans every token that is a multiple of 3 plus the number of tokens chosen so far. */
typedef struct mask_user {
    int n, n_masks;
} mask_user;

static int mask(void *user, float *logits, int n_vocab)
{
    mask_user *m = user;

    m->n_masks++;
    for (int i = m->n % 3; i < n_vocab; i += 3)
        logits[i] = -INFINITY;
    return KVANT_OK;
}

static void accepted(void *user, int32_t token)
{
    mask_user *m = user;

    CHECK(token % 3 != m->n % 3, "token %d at %d is banned", token, m->n);
    CHECK(m->n_masks == m->n + 1, "%d masks before token %d", m->n_masks, m->n);
    m->n++;
}

static const int32_t bias_ids[] = { 5, 9, 77 };
static const float bias[] = { 2.0f, -3.0f, 1.0f };

/* Request i of a scene: every way to choose a token. */
static kvant_request request_of(const spec_scene *c, int i, kvant_sampler_params *sp, mask_user *m)
{
    kvant_request q = kvant_request_defaults();

    *sp = kvant_sampler_defaults();
    *m = (mask_user){ 0, 0 };
    sp->seed = 100 + (uint64_t)i;
    sp->temp = i % 2 ? 1.1f : 0.3f;
    if (i % 4 == 3) {
        sp->repeat_penalty = 1.2f;
        sp->presence_penalty = 0.3f;
        sp->bias_ids = bias_ids;
        sp->bias = bias;
        sp->n_bias = 3;
    }
    q.prompt = c->prompt[i];
    q.n_prompt = c->n_prompt[i];
    q.max_tokens = SCENE_GEN;
    q.ignore_eos = 1;
    q.sampler = i % 4 == 0 ? NULL : sp;
    q.n_logprobs = i % 3 == 0 ? -1 : i % 3;
    q.post_probs = i % 8 == 5;
    if (i % 8 == 6) {
        q.mask = mask;
        q.accepted = accepted;
        q.mask_user = m;
    }
    q.draft_max = i % 8;
    return q;
}

static void run_all(spec_scene *c, serve_rig *r, serve_out *out)
{
    kvant_sampler_params sp[SCENE_REQUESTS];
    mask_user masks[SCENE_REQUESTS];
    kvant_diag d = { "" };

    for (int i = 0; i < SCENE_REQUESTS; i++) {
        kvant_request q = request_of(c, i, &sp[i], &masks[i]);
        CHECK(serve_submit(r, &q, &out[i], &d) == KVANT_OK, "%s: %s", c->model, d.text);
    }
    for (int i = 0; i < SCENE_REQUESTS; i++)
        serve_wait(&out[i]);
}

/* ---- comparison ---- */

static void compare(spec_scene *c, const char *drafter)
{
    for (int i = 0; i < SCENE_REQUESTS; i++) {
        const serve_out *a = &c->plain[i], *b = &c->got[i];
        CHECK(a->n == SCENE_GEN && b->n == SCENE_GEN && a->finish == b->finish && b->ends == 1,
              "%s, %s: request %d: %d of %d tokens (%s)", c->model, drafter, i, b->n, a->n, b->text);
        CHECK(memcmp(a->tokens, b->tokens, (size_t)SCENE_GEN * sizeof *a->tokens) == 0,
              "%s %s tail %d, %s: request %d: tokens", c->model, c->type, c->tail, drafter, i);
        CHECK(memcmp(a->logprob, b->logprob, (size_t)SCENE_GEN * sizeof *a->logprob) == 0,
              "%s %s tail %d, %s: request %d: log-probabilities", c->model, c->type, c->tail, drafter, i);
        CHECK(i % 8 != 0 || b->t.n_drafted == 0, "%s: request %d wants no drafts, had %d", c->model, i,
              b->t.n_drafted);
        c->preempted += (uint64_t)b->n_preempted;
        c->drafted += (uint64_t)b->t.n_drafted;
        c->accepted += (uint64_t)b->t.n_draft_accepted;
    }
}

/* What the session counted is what its requests had. */
static void check_counts(const spec_scene *c, serve_rig *r)
{
    kvant_session_stats st;
    uint64_t at = 0, steps = 0;

    kvant_session_get_stats(r->s, &st);
    for (int i = 0; i < KVANT_MOST_DRAFTS; i++)
        at += st.draft_accepted_at[i];
    for (int i = 1; i <= KVANT_MOST_DRAFTS; i++)
        steps += st.draft_steps[i] * (uint64_t)i;
    CHECK(st.drafted == c->drafted && st.draft_accepted == c->accepted && at == st.draft_accepted &&
              steps == st.drafted,
          "%s: %d drafted, %d accepted", c->model, (int)st.drafted, (int)st.draft_accepted);
    CHECK(st.preempted_unplanned == 0 && st.failed_steps == 0, "%s: %d steps failed", c->model, (int)st.failed_steps);
}

/* ---- a scene ---- */

kvant_engine_params spec_scene_engine(const spec_scene *c)
{
    kvant_engine_params p = kvant_engine_defaults();

    p.type_k = p.type_v = c->type;
    p.kv_tail = c->tail;
    p.threads = 1;
    p.max_seqs = SCENE_REQUESTS;
    p.n_ctx = 256;
    p.n_ubatch = 256;
    p.logits_rows = SCENE_REQUESTS + 64;
    p.draft_rows = SCENE_REQUESTS + 64;
    p.snapshots = 4;
    p.pool_tokens = c->pool_tokens;
    p.mtp = c->mtp;
    return p;
}

void spec_scene_run(spec_scene *c, const char *name, kvant_session_params sp, int in_thousand)
{
    serve_rig r;

    c->in_thousand = in_thousand;
    c->drafted = c->accepted = c->preempted = 0;
    if (!serve_open(&r, c->model, spec_scene_engine(c), sp))
        return;
    if (in_thousand >= 0) { /* before the first request: the owner looks only then */
        r.s->hooks.drafter = half_knowing;
        r.s->hooks.drafter_user = c;
    }
    run_all(c, &r, c->got);
    compare(c, name);
    check_counts(c, &r);
    CHECK(in_thousand < 500 || c->accepted > 300, "%s: %s: %d of %d accepted", c->model, name, (int)c->accepted,
          (int)c->drafted);
    run_all(c, &r, c->got); /* again: with prefix hits */
    compare(c, name);
    serve_close(&r);
}

/* Prompts repeat themselves, so that the lookup finds something, and end before, at and behind the end of a page. */
static void make_prompts(spec_scene *c, int n_vocab)
{
    for (int i = 0; i < SCENE_REQUESTS; i++) {
        c->n_prompt[i] = i < 4 ? 60 + i * 2 : 3 + i * 11;
        serve_tokens(c->prompt[i], 24, 77 + (uint64_t)i);
        for (int k = 0; k < c->n_prompt[i]; k++)
            c->prompt[i][k] = k < 24 ? c->prompt[i][k] % n_vocab : c->prompt[i][k - 24];
    }
}

/* Formats want heads of so many values; those of some models are smaller. */
static const char *type_for(const char *path, const char *type)
{
    kvant_model_params mp = kvant_model_defaults();
    kvant_model *m = NULL;
    kvant_diag d = { "" };

    mp.path = path;
    CHECK(kvant_model_open(&mp, &m, &d) == KVANT_OK, "%s: %s", path, d.text);
    const kvant_model_info *info = m ? kvant_model_get_info(m) : NULL;
    const int fits = info && info->d_k % 32 == 0 && info->d_v % 32 == 0 && info->d_k_window % 32 == 0;
    kvant_model_close(m);
    return fits ? type : "f16";
}

int spec_scene_open(spec_scene *c, const char *path, const char *type, int tail)
{
    serve_rig r;
    kvant_diag d = { "" };

    memset(c, 0, sizeof *c);
    c->model = path;
    c->type = type_for(path, type);
    c->tail = tail;
    c->random = (rng){ 11 };
    if (!serve_open(&r, path, spec_scene_engine(c), kvant_session_defaults()))
        return 0;
    const int can = kvant_engine_verifies(r.e, &d) == KVANT_OK;
    make_prompts(c, r.n_vocab < 200 ? r.n_vocab : 200);
    if (can)
        run_all(c, &r, c->plain);
    serve_close(&r);
    CHECK(can, "%s: %s", path, d.text);
    return can;
}
