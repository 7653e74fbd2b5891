/* check_scheduler.c: the scheduler alone, in a simulation without an engine: thousands of random traces of requests,
 * pools and knobs, with the invariants of the plan checked after every step, and everything finished at the end.
 * The ids in the texts (S-08, S-13) are those of the reliability specification. */
#include "engine/scheduler.h"

#include "base/rng.h"
#include "kvant/ops.h"
#include "support/check.h"

enum { MAX_SEQS = 12, MAX_REQ = 40, MOST_PREEMPTIONS = 3 };

typedef struct sim_req {
    int prompt, gen, limit; /* limit: pages that it can ever need */
    int arrival, tenant;
    int pos, decoded, hit; /* hit: pages that came from the cache */
    int held, promised, keep, preempted;
    int done;
} sim_req;

typedef struct sim {
    sched_config c;
    unsigned char heavy[4];
    rng r;
    int pool, free, idle, step, deferred, n_req;
    sim_req req[MAX_REQ];
    int run[MAX_SEQS], n_run;
    int queue[MAX_REQ], n_queue;
    unsigned long long seed;
    int bad;
} sim;

#define WANT(s, cond)                                                                                                  \
    do {                                                                                                               \
        if (!(cond) && !(s)->bad++)                                                                                    \
            CHECK(cond, "seed %llu, step %d", (s)->seed, (s)->step);                                                   \
    } while (0)

/* Pages of a sequence of so many tokens (cache/kv.h). */
static int pages_at(const sim *s, int tokens)
{
    return s->c.late_pages ? tokens / KVANT_PAGE : (tokens + KVANT_PAGE - 1) / KVANT_PAGE;
}

static int roll(sim *s, int lo, int hi)
{
    return lo + (int)rng_below(&s->r, (uint32_t)(hi - lo + 1));
}

static void setup(sim *s, unsigned long long seed)
{
    memset(s, 0, sizeof *s);
    s->seed = seed;
    s->r.state = seed;
    s->c = (sched_config){ .n_ubatch = 64 * roll(s, 1, 4), .n_ctx = 2048, .max_seqs = roll(s, 1, MAX_SEQS) };
    s->c.batch_tokens = s->c.max_seqs + 64 * roll(s, 1, 8);
    s->c.prefill_budget = roll(s, 0, 2) ? 0 : roll(s, 1, 400);
    s->c.max_batch_tokens = roll(s, 0, 2) ? 0 : roll(s, 1, 600);
    s->c.prefill_cap = roll(s, 0, 1) * roll(s, 0, 300);
    s->c.prefill_first = roll(s, 0, 2) == 0;
    s->c.first_waiting = roll(s, 0, 3);
    s->c.first_defer = roll(s, 0, 1) * roll(s, 1, 5);
    s->c.late_pages = roll(s, 0, 1);
    s->c.step_tokens = roll(s, 0, 2) ? 0 : 64 * roll(s, 1, 8);
    s->c.n_tenants = roll(s, 1, 4);
    for (int t = 0; t < s->c.n_tenants; t++)
        s->heavy[t] = roll(s, 0, 2) == 0;
    s->c.heavy = roll(s, 0, 1) ? s->heavy : NULL;
    s->pool = s->free = roll(s, 1, 3) == 1 ? roll(s, 1, 3) : roll(s, 4, 60); /* S-08: pools of 1, 2, 3 pages */
    s->n_req = roll(s, 1, MAX_REQ);
    for (int i = 0; i < s->n_req; i++) {
        sim_req *q = &s->req[i];
        const int most = s->pool * KVANT_PAGE;
        q->prompt = roll(s, 1, most < 700 ? most : 700);
        q->gen = roll(s, 1, 150);
        if (q->prompt + q->gen > most)
            q->gen = most - q->prompt + 1;
        q->limit = pages_at(s, q->prompt + q->gen - 1);
        q->arrival = roll(s, 0, 60);
        q->tenant = roll(s, 0, s->c.n_tenants - 1);
    }
}

static void arrive(sim *s)
{
    for (int i = 0; i < s->n_req; i++)
        if (s->req[i].arrival == s->step)
            s->queue[s->n_queue++] = i;
}

static int prompt_left(const sim_req *q)
{
    return q->pos < q->prompt ? q->prompt - q->pos : 0;
}

/* Cached pages lie idle, the others go back to the free ones. */
static void release(sim *s, sim_req *q, int cached)
{
    const int idle = cached < q->held ? cached : q->held;
    s->idle += idle;
    s->free += q->held - idle;
    q->held = q->promised = 0;
}

static void take_page(sim *s, sim_req *q)
{
    WANT(s, s->free + s->idle > 0);
    if (s->free > 0)
        s->free--;
    else
        s->idle--;
    q->held++;
    if (q->promised > 0)
        q->promised--;
}

/* The least served first; here simply another one in each step. */
static int rank(const sim *s, int tenant)
{
    return (tenant + s->step) % s->c.n_tenants;
}

static void fill_running(sim *s, sched_seq *out)
{
    for (int i = 0; i < s->n_run; i++) {
        const sim_req *q = &s->req[s->run[i]];
        const int next = (q->pos / KVANT_PAGE + 1 + (int)(s->seed % 3)) * KVANT_PAGE;
        out[i] = (sched_seq){ q->pos,
                              prompt_left(q),
                              next < q->prompt ? next : 0,
                              q->held,
                              q->promised,
                              q->keep,
                              q->decoded,
                              s->seed % 4 == 0 && prompt_left(q) == 0 && roll(s, 0, 2) == 0,
                              rank(s, q->tenant) };
    }
}

static void fill_queue(sim *s, sched_wait *out)
{
    int idle = s->idle;

    for (int i = 0; i < s->n_queue; i++) {
        sim_req *q = &s->req[s->queue[i]];
        const int most = (q->prompt - 1) / KVANT_PAGE;
        q->hit = roll(s, 0, 2) == 0 ? roll(s, 0, most < idle ? most : idle) : 0;
        const int pos = q->hit * KVANT_PAGE;
        q->keep = q->preempted >= MOST_PREEMPTIONS;
        const int first = pages_at(s, q->prompt + 1) < q->limit ? pages_at(s, q->prompt + 1) : q->limit;
        out[i] = (sched_wait){ pos, q->prompt - pos, 0, (q->keep ? q->limit : first) - q->hit, q->hit, 0,
                               rank(s, q->tenant) };
        idle -= q->hit;
    }
}

static void drop_from_queue(sim *s, int at)
{
    s->n_queue--;
    memmove(s->queue + at, s->queue + at + 1, (size_t)(s->n_queue - at) * sizeof *s->queue);
}

static void apply_preemptions(sim *s, const sched_plan *p)
{
    int kept = 0, gone[MAX_SEQS] = { 0 };

    for (int k = 0; k < p->n_preempt; k++)
        gone[p->preempt[k]] = 1;
    for (int i = 0; i < s->n_run; i++) {
        sim_req *q = &s->req[s->run[i]];
        if (!gone[i]) {
            s->run[kept++] = s->run[i];
            continue;
        }
        WANT(s, !q->keep && q->preempted < MOST_PREEMPTIONS);
        q->preempted++;
        release(s, q, q->pos >= q->prompt ? q->prompt / KVANT_PAGE : 0);
        q->pos = 0;
        memmove(s->queue + 1, s->queue, (size_t)s->n_queue++ * sizeof *s->queue);
        s->queue[0] = s->run[i];
    }
    s->n_run = kept;
}

static void run_rows(sim *s, sim_req *q, int n, int is_decode)
{
    for (int i = 0; i < n; i++, q->pos++)
        if (pages_at(s, q->pos + 1) > q->held)
            take_page(s, q);
    /* tokens that a preemption threw away are computed again before new ones come */
    const int made = q->pos - q->prompt + 1;
    WANT(s, !is_decode || made > 0);
    if (made > q->decoded)
        q->decoded = made;
    q->done = q->decoded >= q->gen && q->pos >= q->prompt;
}

static void check_budget(sim *s, const sched_plan *p, int n_decode_ready)
{
    int budget, cap, prompts = 0;

    for (int i = 0; i < s->n_run; i++)
        prompts += prompt_left(&s->req[s->run[i]]) > 0;
    sched_budget(&s->c, p->n_decode, &budget, &cap);
    WANT(s, p->n_decode + p->prompt_tokens <= s->c.batch_tokens);
    WANT(s, budget == 0 || p->prompt_tokens <= budget || (p->prompt_tokens <= KVANT_PAGE && p->n_prompt == 1));
    for (int k = 0; k < p->n_prompt; k++)
        WANT(s, p->prompt[k].n > 0 && (cap == 0 || p->prompt[k].n <= cap));
    WANT(s, p->n_deferred == 0 || (s->c.prefill_first && prompts >= s->c.first_waiting && prompts > 0));
    WANT(s, p->n_deferred == 0 || s->c.first_defer == 0 || s->deferred < s->c.first_defer);
    WANT(s, p->n_decode + p->n_deferred + p->n_preempt >= n_decode_ready);
}

/* Heavy tenants have prompt tokens in a step of five, and whenever nothing else can run, as in session_plan.c. */
static void make_plan(sim *s, const sched_seq *run, const sched_wait *wait, sched_plan *p)
{
    int heavy = 0;

    s->c.heavy_tokens = s->step % 5 ? 0 : 100;
    sched_make(&s->c, run, s->n_run, wait, s->n_queue, s->free + s->idle, s->deferred, p);
    for (int k = 0; k < p->n_prompt; k++) {
        const int i = p->prompt[k].index, t = i < s->n_run ? run[i].tenant : wait[i - s->n_run].tenant;
        heavy += s->c.heavy && s->heavy[t] ? p->prompt[k].n : 0;
    }
    WANT(s, heavy <= s->c.heavy_tokens + (s->c.heavy_tokens > 0 ? KVANT_PAGE : 0)); /* who has less gets a page */
    if (p->n_decode + p->n_prompt + p->n_preempt + p->n_admit > 0)
        return;
    s->c.heavy_tokens = -1;
    sched_make(&s->c, run, s->n_run, wait, s->n_queue, s->free + s->idle, s->deferred, p);
}

/* In order: only heavy tenants' requests are overtaken. */
static void check_order(sim *s, const sched_plan *p, const sched_wait *wait)
{
    for (int k = 0, i = 0; k < p->n_admit; k++, i++)
        for (; i < p->admit[k]; i++)
            WANT(s, s->c.heavy && s->c.heavy_tokens >= 0 && s->heavy[wait[i].tenant]);
}

/* One step; 0 when nothing is left to do. */
static int tick(sim *s)
{
    sched_seq run[MAX_SEQS];
    sched_wait wait[MAX_REQ];
    int decode[MAX_SEQS], preempt[MAX_SEQS], admit[MAX_REQ], ids[MAX_SEQS + MAX_REQ], ready = 0, held = 0;
    int tokens[4];
    sched_piece pieces[MAX_SEQS + MAX_REQ];
    sched_plan p = {
        .decode = decode, .preempt = preempt, .admit = admit, .prompt = pieces, .tokens = tokens
    };

    arrive(s);
    fill_running(s, run);
    fill_queue(s, wait);
    for (int i = 0; i < s->n_run; i++) {
        ready += run[i].prompt_left == 0 && !run[i].held;
        held += run[i].held;
    }
    make_plan(s, run, wait, &p);
    check_budget(s, &p, ready);
    for (int i = 0; i < s->n_run; i++)
        ids[i] = s->run[i];
    for (int i = 0; i < s->n_queue; i++)
        ids[s->n_run + i] = s->queue[i];
    const int n_run = s->n_run, waiting = s->n_queue;
    check_order(s, &p, wait);
    apply_preemptions(s, &p);
    for (int k = 0; k < p.n_admit; k++) {
        sim_req *q = &s->req[ids[n_run + p.admit[k]]];
        q->pos = q->hit * KVANT_PAGE;
        q->held = q->hit;
        s->idle -= q->hit;
        q->promised = wait[p.admit[k]].pages;
        drop_from_queue(s, p.admit[k] - k);
        s->run[s->n_run++] = ids[n_run + p.admit[k]];
    }
    WANT(s, s->n_run <= s->c.max_seqs);
    for (int k = 0; k < p.n_decode; k++) {
        WANT(s, !run[p.decode[k]].held); /* H-14: a slow reader's request stands still */
        run_rows(s, &s->req[ids[p.decode[k]]], 1, 1);
    }
    for (int k = 0; k < p.n_prompt; k++) {
        sim_req *q = &s->req[ids[p.prompt[k].index]];
        const sched_seq *was = p.prompt[k].index < n_run ? &run[p.prompt[k].index] : NULL;
        run_rows(s, q, p.prompt[k].n, 0);
        WANT(s, q->pos % KVANT_PAGE == 0 || q->pos == q->prompt);
        WANT(s, q->pos <= q->prompt && (!was || was->cut == 0 || q->pos <= was->cut));
    }
    WANT(s, p.n_decode + p.n_prompt + p.n_preempt + held + (s->n_run == 0 && waiting == 0) > 0); /* progress */
    s->deferred = p.n_deferred > 0 ? s->deferred + 1 : 0;
    for (int i = 0; i < s->n_run; i++) {
        sim_req *q = &s->req[s->run[i]];
        if (!q->done)
            continue;
        release(s, q, roll(s, 0, 1) ? q->prompt / KVANT_PAGE : 0);
        s->n_run--;
        memmove(s->run + i, s->run + i + 1, (size_t)(s->n_run - i) * sizeof *s->run);
        i--;
    }
    s->step++;
    return s->step <= 60 || s->n_run > 0 || s->n_queue > 0;
}

static void check_accounts(sim *s)
{
    int held = 0, promised = 0;

    for (int i = 0; i < s->n_req; i++) {
        held += s->req[i].held;
        promised += s->req[i].promised;
    }
    WANT(s, held + s->free + s->idle == s->pool && s->free >= 0 && s->idle >= 0); /* no page leaks */
    WANT(s, promised <= s->free + s->idle);
}

static void check_traces(int n)
{
    long long steps = 0, preemptions = 0;

    for (int t = 1; t <= n; t++) {
        static sim s;
        setup(&s, (unsigned long long)t * 7919);
        while (tick(&s) && s.step < 100000 && !s.bad)
            check_accounts(&s);
        check_accounts(&s);
        for (int i = 0; i < s.n_req; i++) {
            WANT(&s, s.req[i].done); /* nobody starves (S-13) */
            WANT(&s, s.req[i].preempted <= MOST_PREEMPTIONS);
            preemptions += s.req[i].preempted;
        }
        CHECK(!s.bad, "seed %llu: %d invariants broken", s.seed, s.bad);
        steps += s.step;
    }
    CHECK(preemptions > n / 10, "S-08: only %lld preemptions in %d traces: the pools were never full", preemptions, n);
    printf("check_scheduler: %d traces, %lld steps, %lld preemptions\n", n, steps, preemptions);
}

/* The numbers of the specification's formulas. */
static void check_budgets(void)
{
    sched_config c = { .batch_tokens = 2048, .n_ubatch = 512, .n_ctx = 32768, .max_seqs = 64 };
    int budget, cap;

    sched_budget(&c, 8, &budget, &cap);
    CHECK(budget == 0 && cap == 0, "off: %d %d", budget, cap);
    c.prefill_budget = 256;
    sched_budget(&c, 8, &budget, &cap);
    CHECK(budget == 256 && cap == 0, "static: %d %d", budget, cap);
    c.max_batch_tokens = 1024;
    sched_budget(&c, 100, &budget, &cap);
    CHECK(budget == 924 && cap == 1024, "dynamic: %d %d, wanted 924 and min(1024, ceil(32768/25))", budget, cap);
    sched_budget(&c, 900, &budget, &cap);
    CHECK(budget == 512, "dynamic: %d, wanted n_ubatch", budget);
    c.prefill_cap = 100;
    sched_budget(&c, 0, &budget, &cap);
    CHECK(cap == 512, "cap: %d, wanted n_ubatch", cap);
    c.max_batch_tokens = 4096;
    sched_budget(&c, 0, &budget, &cap);
    CHECK(budget == 2048 && cap == 2048, "whole batch: %d %d", budget, cap);
}

/* By time, a step has no pass of less than half its rows, unless nothing would be left for prompts. */
static void check_full_passes(void)
{
    static const struct { int tokens, decode, want; } list[] = {
        { 2048, 63, 1985 }, { 2048, 0, 2048 }, { 3071, 0, 2048 }, { 3072, 0, 3072 }, { 4096, 20, 4076 },
        { 1985, 63, 1985 }, { 960, 50, 960 },  { 64, 2000, 64 },  { 64, 2040, 64 },  { 112, 2000, 112 },
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        sched_config c = { .batch_tokens = 8192, .n_ubatch = 2048, .n_ctx = 4096, .max_seqs = 4096 };
        int budget, cap;
        c.step_tokens = list[i].tokens;
        sched_budget(&c, list[i].decode, &budget, &cap);
        CHECK(budget == list[i].want, "%d tokens by time beside %d rows: %d, wanted %d", list[i].tokens, list[i].decode,
              budget, list[i].want);
    }
}

/* Decode rows hold back while prompts are at work, for at most first_defer steps in a row. */
static void check_prefill_first(void)
{
    const sched_config c = { .batch_tokens = 2048,
                             .n_tenants = 1,
                             .n_ubatch = 512,
                             .n_ctx = 4096,
                             .max_seqs = 4,
                             .prefill_first = 1,
                             .first_waiting = 2,
                             .first_defer = 3 };
    sched_seq run[] = { { .pos = 10, .decoded = 4 }, { .pos = 20 }, { .prompt_left = 300 }, { .prompt_left = 300 } };
    int decode[4], preempt[4], admit[1], tokens[1];
    sched_piece pieces[4];
    sched_plan p = {
        .decode = decode, .preempt = preempt, .admit = admit, .prompt = pieces, .tokens = tokens
    };

    sched_make(&c, run, 4, NULL, 0, 100, 0, &p);
    CHECK(p.n_deferred == 1 && p.n_decode == 1 && decode[0] == 1, "%d held back, %d run", p.n_deferred, p.n_decode);
    sched_make(&c, run, 4, NULL, 0, 100, 3, &p);
    CHECK(p.n_deferred == 0 && p.n_decode == 2, "cap of 3 steps: %d held back", p.n_deferred);
    sched_make(&c, run, 3, NULL, 0, 100, 0, &p);
    CHECK(p.n_deferred == 0, "one prompt, the threshold is two");
}

/* A neighbour's long prompts, older ones too, leave each tenant an equal part of a step's tokens, and what others do
 * not want of theirs; where a part is less than a page, who is served next takes one. */
static void check_shares(void)
{
    sched_config c = { .batch_tokens = 2048, .n_ubatch = 512, .n_ctx = 4096, .max_seqs = 8, .n_tenants = 3 };
    sched_seq run[] = { { .prompt_left = 3000, .tenant = 1 },
                        { .prompt_left = 3000, .tenant = 1 },
                        { .prompt_left = 3000, .tenant = 2 } };
    sched_wait wait[] = { { .prompt_left = 100 } };
    int decode[4], preempt[4], admit[1], tokens[3];
    sched_piece pieces[4];
    sched_plan p = {
        .decode = decode, .preempt = preempt, .admit = admit, .prompt = pieces, .tokens = tokens
    };

    sched_make(&c, run, 3, wait, 1, 100, 0, &p);
    CHECK(p.n_prompt == 3 && p.n_admit == 1 && pieces[0].index == 0 && pieces[0].n == 960 && pieces[1].index == 2 &&
              pieces[1].n == 960 && pieces[2].index == 3 && pieces[2].n == 100,
          "2048 tokens: %d pieces, %d %d %d", p.n_prompt, pieces[0].n, pieces[1].n, pieces[2].n);
    c.step_tokens = 512;
    sched_make(&c, run, 3, wait, 1, 100, 0, &p);
    CHECK(p.budget == 512 && p.n_prompt == 3 && pieces[0].n == 192 && pieces[1].n == 192 && pieces[2].n == 100,
          "512 tokens: %d pieces, %d %d %d", p.n_prompt, pieces[0].n, pieces[1].n, pieces[2].n);
    c.step_tokens = 64;
    run[2].tenant = 0;
    sched_make(&c, run, 3, NULL, 0, 100, 0, &p);
    CHECK(p.n_prompt == 1 && pieces[0].index == 2 && pieces[0].n == 64, "64 tokens: piece 0 is %d, %d tokens",
          pieces[0].index, pieces[0].n);
}

/* Those that give way have the tokens that they may have together, and none that waits behind them waits for them. */
static void check_heavy(void)
{
    static const unsigned char heavy[] = { 0, 1, 1 };
    sched_config c = { .batch_tokens = 2048, .n_ubatch = 512, .n_ctx = 4096, .max_seqs = 8, .n_tenants = 3,
                       .heavy = heavy };
    sched_seq run[] = { { .prompt_left = 3000, .tenant = 1 }, { .pos = 70, .tenant = 0 } };
    sched_wait wait[] = { { .prompt_left = 500, .tenant = 2 }, { .prompt_left = 100, .tenant = 0 } };
    int decode[4], preempt[4], admit[2], tokens[3];
    sched_piece pieces[4];
    sched_plan p = {
        .decode = decode, .preempt = preempt, .admit = admit, .prompt = pieces, .tokens = tokens
    };

    sched_make(&c, run, 2, wait, 2, 100, 0, &p);
    CHECK(p.n_decode == 1 && p.n_prompt == 1 && p.n_admit == 1 && pieces[0].index == 3 && admit[0] == 1,
          "none for them: %d pieces, the first of %d", p.n_prompt, pieces[0].index);
    c.heavy_tokens = 256;
    sched_make(&c, run, 2, wait, 2, 100, 0, &p);
    CHECK(p.n_prompt == 2 && pieces[0].index == 0 && pieces[0].n == 256 && pieces[1].index == 3 && admit[0] == 1,
          "256: %d pieces, the first has %d", p.n_prompt, pieces[0].n);
    c.heavy_tokens = -1;
    sched_make(&c, run, 2, wait, 2, 100, 0, &p);
    CHECK(p.n_prompt == 3 && p.prompt_tokens > 2047 - KVANT_PAGE, "any: %d pieces, %d tokens", p.n_prompt,
          p.prompt_tokens);
}

int main(void)
{
    check_budgets();
    check_heavy();
    check_full_passes();
    check_prefill_first();
    check_shares();
    check_traces(4000);
    return check_end("check_scheduler");
}
