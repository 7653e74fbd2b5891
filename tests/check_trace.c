/* check_trace.c: random traces of a session with the auditor on: after every step, what is counted is what is held, and
 * what is promised can be had (A1; I1 to I3 of the reliability specification); whoever is not cancelled gets the
 * tokens that it gets alone.
 *
 *   check_trace [STEPS] [SEED]
 *
 * Prompts branch: they are made of a few blocks, so that they share prefixes and turn off at every place.  Several
 * tenants and salts, small pools, all families of models, both ways to preempt, pauses, cancels, slots, files.  All
 * that a trace does comes from its seed, at the end of a tick on the owner's thread: it does not depend on time, and
 * its failure can be run again alone. */
#include "support/serve_rig.h"

#include <stdatomic.h>
#include <time.h>
#include <unistd.h>
#include "base/rng.h"
#include "support/check.h"
#include "support/gguf_make.h"
#include "support/session_audit.h"

enum {
    PROMPTS = 20,
    LONGEST = 350,
    MOST_GEN = 160,
    ALIVE = 24,
    SLOTS = 8,
    SNAPSHOTS = 12,
    ROOM = 512,
    STEPS_PER_TRACE = 250,
#if defined(KVANT_SANITIZE_THREAD)
    STEPS_IN_CI = 3000 /* 20 times as long each */
#else
    STEPS_IN_CI = 12000
#endif
};

typedef struct job {
    struct trace *trace;
    int busy, which, exact; /* exact: its tokens are alone[which] */
    int n, max_tokens;
    int pause_at, cancel_at, paused;
    int slot;
    unsigned char salt;
    int n_prompt;
    int32_t tokens[ROOM]; /* prompt, then what came */
    uint64_t id;
} job;

/* What lies in a slot, as far as its last user knows. */
typedef struct talk {
    int n;
    unsigned char salt;
    int32_t tokens[ROOM];
} talk;

typedef struct trace {
    serve_rig rig;
    rng random;
    char name[160];
    int promised_bits; /* not with prefix_reuse_decode */
    int steps, alive, ended, cancelled, preempted, paused;
    uint64_t seen, drafted, accepted, by_model;
    kvant_model *draft_model;
    kvant_engine *draft;
    int actions; /* slot actions on their way */
    job jobs[ALIVE];
    talk talks[SLOTS];
    _Atomic int over;
} trace;

static int32_t prompts[PROMPTS][LONGEST], alone[PROMPTS][MOST_GEN];
static int lengths[PROMPTS];
static char folder[64];

/* ---- prompts ---- */

/* Up to four of three blocks, and a part of one: equal beginnings are common, whole prompts seldom equal. */
static void make_prompts(rng *r)
{
    static int32_t blocks[3][KVANT_PAGE];

    for (int b = 0; b < 3; b++)
        serve_tokens(blocks[b], KVANT_PAGE, rng_u64(r));
    for (int i = 0; i < PROMPTS; i++) {
        lengths[i] = (int)rng_below(r, i % 2 ? 2 : 5) * KVANT_PAGE + (int)rng_below(r, 30);
        lengths[i] = lengths[i] ? lengths[i] : 1;
        for (int p = 0; p * KVANT_PAGE < lengths[i]; p++) {
            const int n = lengths[i] - p * KVANT_PAGE;
            memcpy(prompts[i] + p * KVANT_PAGE, blocks[rng_below(r, p < 2 ? 2 : 3)],
                   (size_t)(n < KVANT_PAGE ? n : KVANT_PAGE) * sizeof(int32_t));
        }
    }
}

static void run_alone(trace *t)
{
    static serve_out out;

    for (int i = 0; i < PROMPTS; i++) {
        kvant_request q = kvant_request_defaults();
        q.prompt = prompts[i];
        q.n_prompt = lengths[i];
        q.max_tokens = MOST_GEN;
        q.ignore_eos = 1;
        q.draft_max = 0;
        q.cache = KVANT_CACHE_NO_READ | KVANT_CACHE_NO_WRITE;
        serve_one(&t->rig, &q, &out);
        CHECK(out.n == MOST_GEN, "%s: alone %d: %d tokens (%s)", t->name, i, out.n, out.text);
        memcpy(alone[i], out.tokens, sizeof alone[i]);
    }
}

/* ---- events ---- */

static void on_end(job *j, const kvant_event *ev)
{
    trace *t = j->trace;
    const int cancelled = ev->finish == KVANT_FINISH_CANCEL;

    CHECK(cancelled || (ev->finish == KVANT_FINISH_LENGTH && j->n == j->max_tokens),
          "%s: finish %d, %d of %d tokens (%s)", t->name, ev->finish, j->n, j->max_tokens, ev->text);
    CHECK(!j->exact || memcmp(j->tokens + j->n_prompt, alone[j->which], (size_t)j->n * sizeof(int32_t)) == 0,
          "%s: step %d: request %llu, prompt %d, %d cached, %d preempted: other tokens than alone", t->name, t->steps,
          (unsigned long long)j->id, j->which, ev->timings->n_cached, ev->timings->n_preempted);
    if (j->slot >= 0 && j->n > 0) { /* the last token was never run: it is not in the slot */
        talk *k = &t->talks[j->slot];
        k->n = j->n_prompt + j->n - 1;
        k->salt = j->salt;
        memcpy(k->tokens, j->tokens, sizeof k->tokens);
    }
    t->cancelled += cancelled;
    t->preempted += ev->timings->n_preempted;
    t->ended++;
    t->alive--;
    j->busy = 0;
}

static int on_event(void *user, const kvant_event *ev)
{
    job *j = user;

    if (ev->kind == KVANT_EVENT_END)
        on_end(j, ev);
    if (ev->kind != KVANT_EVENT_TOKEN)
        return KVANT_EVENT_GO;
    j->tokens[j->n_prompt + j->n++] = ev->token;
    if (j->n == j->cancel_at)
        return KVANT_EVENT_CANCEL;
    if (j->n != j->pause_at)
        return KVANT_EVENT_GO;
    j->paused = 1;
    j->trace->paused++;
    return KVANT_EVENT_PAUSE;
}

static void on_action(void *user, const kvant_slot_result *r)
{
    trace *t = user;

    t->actions--;
    CHECK(r->code == KVANT_OK || r->code == KVANT_EBUSY || r->code == KVANT_ENOENT || r->code == KVANT_ENOSPC ||
              r->code == KVANT_EFORMAT || r->code == KVANT_EINVAL,
          "%s: step %d: slot action: %s", t->name, t->steps, r->text);
}

/* ---- what a trace does ---- */

static int chance(trace *t, int in_thousand)
{
    return (int)rng_below(&t->random, 1000) < in_thousand;
}

/* The prompt: one of the set, or what a slot holds and a little more. */
static void choose_prompt(trace *t, job *j)
{
    const talk *k = &t->talks[j->slot < 0 ? 0 : j->slot];

    j->which = (int)rng_below(&t->random, PROMPTS);
    j->max_tokens = 1 + (int)rng_below(&t->random, chance(t, 300) ? MOST_GEN : 30);
    j->n_prompt = lengths[j->which];
    j->exact = t->promised_bits;
    memcpy(j->tokens, prompts[j->which], (size_t)j->n_prompt * sizeof(int32_t));
    if (j->slot < 0 || k->n == 0 || k->n > LONGEST || chance(t, 400))
        return;
    j->exact = 0; /* goes on from decode steps: promised are the bits of the conversation, not those of a cold prompt */
    j->salt = k->salt;
    j->n_prompt = k->n + 1 + (int)rng_below(&t->random, 30);
    memcpy(j->tokens, k->tokens, (size_t)k->n * sizeof(int32_t));
    serve_tokens(j->tokens + k->n, j->n_prompt - k->n, rng_u64(&t->random));
    j->max_tokens = j->max_tokens < ROOM - j->n_prompt ? j->max_tokens : ROOM - j->n_prompt;
}

static void submit(trace *t, job *j)
{
    kvant_request q = kvant_request_defaults();
    kvant_diag d = { "" };
    const int max_seqs = t->rig.s->max_seqs;

    *j = (job){ .trace = t, .busy = 1, .slot = -1, .salt = (unsigned char)rng_below(&t->random, 3) };
    if (chance(t, 150))
        j->slot = (int)rng_below(&t->random, (uint32_t)(max_seqs < SLOTS ? max_seqs : SLOTS));
    choose_prompt(t, j);
    j->pause_at = chance(t, 120) ? 1 + (int)rng_below(&t->random, 30) : 0;
    j->cancel_at = chance(t, 30) ? 1 + (int)rng_below(&t->random, 30) : 0;
    q.prompt = j->tokens;
    q.n_prompt = j->n_prompt;
    q.max_tokens = j->max_tokens;
    q.ignore_eos = 1;
    q.slot = j->slot;
    q.salt[0] = j->salt;
    q.tenant = rng_below(&t->random, 4);
    q.priority = chance(t, 150);
    q.n_system = (int)rng_below(&t->random, (uint32_t)j->n_prompt + 1);
    q.cache = chance(t, 60) ? KVANT_CACHE_NO_READ : chance(t, 60) ? KVANT_CACHE_NO_WRITE : 0;
    q.event = on_event;
    q.user = j;
    t->alive++; /* before the owner may end it: the first one comes from another thread */
    const int code = kvant_session_submit(t->rig.s, &q, &j->id, &d);
    CHECK(code == KVANT_OK, "%s: submit: %s", t->name, d.text);
    if (code != KVANT_OK) {
        j->busy = 0;
        t->alive--;
    }
}

static void submit_some(trace *t)
{
    for (int i = 0; i < ALIVE; i++)
        if (!t->jobs[i].busy && (t->alive == 0 || chance(t, 100)))
            submit(t, &t->jobs[i]);
}

static void resume(trace *t, job *j)
{
    j->paused = 0;
    t->paused--;
    kvant_session_resume(t->rig.s, j->id);
}

/* Cancels, and resumes of those that are paused; all of them when nothing else can run. */
static void disturb(trace *t)
{
    for (int i = 0; i < ALIVE; i++) {
        job *j = &t->jobs[i];
        if (j->busy && chance(t, 1))
            kvant_session_cancel(t->rig.s, j->id);
        if (j->busy && j->paused && (t->rig.s->blocked || t->over || chance(t, 40)))
            resume(t, j);
    }
}

static void act(trace *t)
{
    static const struct {
        int what, in_thousand;
    } actions[] = { { KVANT_SLOT_SAVE, 1 },  { KVANT_SLOT_RESTORE, 6 },  { KVANT_SLOT_ERASE, 6 },
                    { KVANT_CACHE_SAVE, 1 }, { KVANT_CACHE_RESTORE, 4 }, { KVANT_CACHE_CLEAR, 3 } };
    unsigned char salt[16] = { (unsigned char)rng_below(&t->random, 3) };
    kvant_diag d = { "" };

    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++) {
        const int slot = (int)rng_below(&t->random, (uint32_t)t->rig.s->max_seqs);
        if (!chance(t, actions[i].in_thousand))
            continue;
        t->actions++;
        const int code = kvant_session_slot(t->rig.s, actions[i].what, slot,
                                            actions[i].what < KVANT_CACHE_SAVE ? "slot" : "cache", salt, on_action, t,
                                            &d);
        CHECK(code == KVANT_OK, "%s: slot action: %s", t->name, d.text);
    }
}

static trace *current; /* one at a time; the session's hook has no user pointer */

/* Owner thread, after every step. */
static void after_tick(kvant_session *s)
{
    trace *t = current;
    char why[200];

    if (atomic_load(&t->over) > 1)
        return;
    t->steps += s->st.steps != t->seen;
    t->seen = s->st.steps;
    if (!session_audit(s, why, sizeof why)) {
        CHECK(0, "%s: step %d: %s", t->name, t->steps, why);
        t->over = 2; /* the rest would only repeat it */
        return;
    }
    disturb(t);
    if (t->over)
        t->over = t->alive == 0 ? 2 : 1;
    else
        submit_some(t), act(t);
    t->over = t->over ? t->over : t->steps >= STEPS_PER_TRACE;
    if (t->over == 1 && t->alive == 0 && t->actions == 0)
        t->over = 2;
}

/* ---- configurations ---- */

static char window_model[80]; /* layers that see 100 tokens, with pages of their own */
static const char *const models[] = { "tests/golden/tiny/qwen35.gguf", "tests/golden/tiny/llama.gguf",
                                      "tests/golden/tiny/qwen35moe.gguf", "tests/golden/tiny/qwen3moe.gguf",
                                      window_model, "tests/archs/kimi-linear.gguf", "tests/archs/falcon-h1.gguf",
                                      "tests/archs/lfm2.gguf" };
enum { MODELS = sizeof models / sizeof *models };

/* Formats want rows of 32 values: those of the last three are narrower. */
static const char *type_of(uint64_t seed)
{
    return seed / MODELS % 2 == 0 && seed % MODELS < 5 ? "tbq4_0" : "f16";
}

static kvant_engine_params engine_of(uint64_t seed, rng *r)
{
    static const int tails[] = { 64, 0, 128, 192 };
    kvant_engine_params p = kvant_engine_defaults();

    p.type_k = p.type_v = type_of(seed);
    p.kv_tail = tails[rng_below(r, 4)];
    p.kv_sink = p.kv_tail > 0 && seed / 3 % 3 == 0 ? 64 + 64 * (int)(seed % 2) : 0;
    p.threads = 1;
    p.max_seqs = 4 + (int)rng_below(r, 13);
    p.n_ctx = ROOM;
    p.n_ubatch = 64 + 64 * (int)rng_below(r, 2);
    p.pool_tokens = (int64_t)(8 + rng_below(r, 16)) * KVANT_PAGE;
    p.snapshots = 1 + (int)rng_below(r, SNAPSHOTS);
    p.logits_rows = p.max_seqs + 40;
    p.draft_rows = 8 + (int)(seed * 13 % 50);
    return p;
}

static kvant_session_params session_of(rng *r)
{
    kvant_session_params p = kvant_session_defaults();

    p.batch_tokens = 128 + 64 * (int)rng_below(r, 4);
    p.ladder = rng_below(r, 3) ? 64 : -1;
    p.preempt = (int)rng_below(r, 2);
    p.save_bytes = 1000 + (int64_t)rng_below(r, 2000000);
    p.prefix_reuse_decode = rng_below(r, 5) == 0;
    p.prefill_first = (int)rng_below(r, 2);
    p.prefill_budget = rng_below(r, 3) ? 0 : 64;
    p.max_batch_tokens = rng_below(r, 3) ? 0 : 128;
    p.snapshot_dir = folder;
    return p;
}

/* Half of the drafts are what the request gets alone; the others are guesses. */
static int half_knowing(void *user, const int32_t *tokens, int n, int32_t *out, int k)
{
    trace *t = user;

    for (int i = 0; i < k; i++)
        out[i] = (int32_t)rng_below(&t->random, 256);
    for (int w = chance(t, 300) ? PROMPTS : 0; w < PROMPTS; w++) {
        const int len = lengths[w], at = n - len;
        if (at < 0 || memcmp(tokens, prompts[w], (size_t)len * sizeof *tokens) != 0)
            continue;
        for (int i = 0; i < k && at + i < MOST_GEN; i++)
            out[i] = chance(t, 100) ? out[i] : alone[w][at + i];
    }
    return (int)rng_below(&t->random, (uint32_t)k + 1);
}

static void wait_over(trace *t)
{
    const struct timespec ms = { 0, 1000000 };

    while (atomic_load(&t->over) < 2)
        nanosleep(&ms, NULL);
}

/* A drafter: the model itself, in a pool of few pages. */
static int open_draft(trace *t, const char *path, const kvant_engine_params *like, kvant_session_params *sp)
{
    kvant_model_params mp = kvant_model_defaults();
    kvant_engine_params p = kvant_engine_defaults();
    kvant_diag d = { "" };

    mp.path = path;
    p.threads = 1;
    p.n_ctx = like->n_ctx;
    p.max_seqs = like->max_seqs;
    p.pool_tokens = like->pool_tokens;
    CHECK(kvant_model_open(&mp, &t->draft_model, &d) == KVANT_OK &&
              kvant_engine_create(t->draft_model, &p, &t->draft, &d) == KVANT_OK,
          "%s: %s", path, d.text);
    sp->draft = t->draft;
    return t->draft != NULL;
}

static void close_draft(trace *t, trace *totals)
{
    const page_pool *pool = t->draft ? &t->draft->kv.pages : NULL;

    CHECK(!pool || pool->n_free == pool->n, "%s: %d of %d pages of the draft model are left", t->name,
          pool ? pool->n - pool->n_free : 0, pool ? pool->n : 0);
    totals->by_model += t->draft != NULL;
    kvant_engine_free(t->draft);
    kvant_model_close(t->draft_model);
}

/* Returns the steps that it took. */
static int run_trace(uint64_t seed, trace *totals)
{
    static trace t;
    kvant_session_stats st;
    const kvant_engine_params ep = (memset(&t, 0, sizeof t), t.random = (rng){ seed * 7919 + 1 },
                                    engine_of(seed, &t.random));
    kvant_session_params sp = session_of(&t.random);
    const int drafts = seed / MODELS % 3 > 0, recurs = seed % MODELS == 0 || seed % MODELS == 2 || seed % MODELS > 4;

    snprintf(t.name, sizeof t.name, "check_trace %d %llu: %s %s tail %d, sink %d, %d pages, %d snapshots", STEPS_PER_TRACE,
             (unsigned long long)seed, strrchr(models[seed % MODELS], '/') + 1, ep.type_k, ep.kv_tail, ep.kv_sink,
             (int)(ep.pool_tokens / KVANT_PAGE), ep.snapshots);
    t.promised_bits = !sp.prefix_reuse_decode;
    const int by_model = drafts && !recurs && rng_below(&t.random, 2) == 0; /* the drafter is of the same kind */
    sp.spec = by_model ? KVANT_SPEC_DRAFT : drafts ? KVANT_SPEC_NGRAM : KVANT_SPEC_OFF;
    if (by_model && !open_draft(&t, models[seed % MODELS], &ep, &sp))
        return STEPS_PER_TRACE;
    if (!serve_open(&t.rig, models[seed % MODELS], ep, sp))
        return STEPS_PER_TRACE;
    make_prompts(&t.random);
    run_alone(&t);
    current = &t;
    pthread_mutex_lock(&t.rig.s->lock);
    t.rig.s->hooks.after_tick = after_tick;
    t.rig.s->hooks.drafter = by_model ? NULL : half_knowing;
    t.rig.s->hooks.drafter_user = &t;
    t.rig.s->yield_ns = 0; /* no clock in a trace */
    pthread_mutex_unlock(&t.rig.s->lock);
    submit(&t, &t.jobs[0]);
    wait_over(&t);
    kvant_session_get_stats(t.rig.s, &st);
    CHECK(st.preempted_unplanned == 0 && st.failed_steps == 0, "%s: %d preempted without a plan, %d steps failed",
          t.name, (int)st.preempted_unplanned, (int)st.failed_steps);
    serve_close(&t.rig);
    close_draft(&t, totals);
    totals->ended += t.ended;
    totals->cancelled += t.cancelled;
    totals->preempted += t.preempted;
    totals->steps += t.steps;
    totals->drafted += st.drafted;
    totals->accepted += st.draft_accepted;
    return t.steps;
}

int main(int argc, char **argv)
{
    const int steps = argc > 1 ? atoi(argv[1]) : STEPS_IN_CI;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    static trace totals;

    snprintf(folder, sizeof folder, "/tmp/check_trace_XXXXXX");
    CHECK(mkdtemp(folder) != NULL, "no folder %s", folder);
    snprintf(window_model, sizeof window_model, "%s/window.gguf", folder);
    CHECK(gguf_copy_u32("tests/archs/gemma4-e.gguf", window_model, "gemma4.attention.sliding_window", 100), "%s",
          window_model);
    run_trace(5162, &totals); /* a page that two sequences hold behind different ones */
    while (totals.steps < steps && check_failed == 0)
        run_trace(seed++, &totals);
    printf("check_trace: %d steps, audited one by one, up to seed %llu; %d requests, %d cancelled, %d preemptions, "
           "%llu of %llu drafts accepted\n",
           totals.steps, (unsigned long long)seed - 1, totals.ended, totals.cancelled, totals.preempted,
           (unsigned long long)totals.accepted, (unsigned long long)totals.drafted);
    CHECK(check_failed || steps < 2000 || totals.by_model > 0, "no trace had a draft model");
    CHECK(check_failed || totals.preempted > totals.steps / 500, "only %d preemptions", totals.preempted);
    for (int i = 0; i < 2; i++) {
        char path[96];
        snprintf(path, sizeof path, "%s/%s.kvs", folder, i ? "slot" : "cache");
        unlink(path);
    }
    unlink(window_model);
    rmdir(folder);
    return check_end("check_trace");
}
