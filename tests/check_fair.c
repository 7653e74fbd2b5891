/* check_fair.c: who gives way to whom (session_pace.c, session_tenant.c, scheduler.c), by a clock of its own and
 * without an engine: a step takes the time of its rows.  Two of eight tenants flood the session with prompts beside six
 * that ask little; and eight that do alike, who must lose nothing by the rule. */
#include <stdlib.h>
#include "base/rng.h"
#include "engine/session_impl.h"
#include "support/check.h"

enum { TENANTS = 8, PLACES = 8, REQUESTS = 32, HEADS = 16, TIMES = 100000, UBATCH = 512, MS = 1000000 };

/* A step's time: of itself, of a decode row, of a token of a prompt. */
typedef struct speed {
    double step_ns, row_ns, token_ns;
} speed;

static const speed tiny = { 300e3, 40e3, 30e3 }, large = { 100e6, 5e6, 15e6 }, card = { 7e6, 20e3, 27e3 };


/* A tenant's way to ask. */
typedef struct habit {
    int at_once, prompt[2], tokens[2]; /* least and most of each */
    int64_t pause;
} habit;

typedef struct asked {
    request q;
    int pos, running, alive;
    int64_t came, again; /* again: when its next request comes */
} asked;

typedef struct sim {
    kvant_session s;
    kvant_engine e;
    tenant tenants[TENANTS], *ranked[PLACES + HEADS];
    asked all[REQUESTS];
    int n_all, use_rule, stands;
    request *running[PLACES], *waiting[REQUESTS], *item_req[PLACES];
    sched_seq run_in[PLACES];
    sched_wait wait_in[HEADS];
    kvant_item items[PLACES];
    unsigned char heavy[PLACES + HEADS];
    int decode[PLACES], preempt[PLACES], admit[HEADS], tokens[PLACES + HEADS];
    sched_piece prompt[PLACES + HEADS];
    habit habits[TENANTS];
    speed speed;
    int64_t now;
    rng r;
    double times[TIMES]; /* of requests of tenants that pause, ms */
    int n_times;
    long long steps, given_way, prompt_tokens[TENANTS], generated;
} sim;

static int between(sim *m, const int *range)
{
    return range[0] + (int)rng_below(&m->r, (uint32_t)(range[1] - range[0] + 1));
}

static asked *of(request *q)
{
    return (asked *)q; /* its first member */
}

static void open_sim(sim *m, const habit *habits, int use_rule, const speed *v, int target_ms)
{
    memset(m, 0, sizeof *m);
    m->r.state = 11;
    m->use_rule = use_rule;
    m->speed = *v;
    m->e.p.n_ubatch = UBATCH;
    m->s = (kvant_session){ .e = &m->e,
                            .max_seqs = PLACES,
                            .tenants.list = m->tenants,
                            .tenants.ranked = m->ranked,
                            .running = m->running,
                            .waiting = m->waiting,
                            .sched.running = m->run_in,
                            .sched.waiting = m->wait_in,
                            .step.items = m->items,
                            .step.req = m->item_req,
                            .tenants.arrived = TENANTS,
                            .fair = { .heavy = m->heavy } };
    m->s.p.batch_tokens = 2048;
    m->s.p.target_itl_ms = target_ms;
    m->s.sched.plan = (sched_plan){
        .decode = m->decode, .preempt = m->preempt, .admit = m->admit, .prompt = m->prompt, .tokens = m->tokens
    };
    for (int t = 0; t < TENANTS; t++) {
        m->habits[t] = habits[t];
        m->tenants[t].id = (uint32_t)t;
        for (int i = 0; i < habits[t].at_once; i++)
            m->all[m->n_all++] = (asked){ .q.tenant = &m->tenants[t], .again = t * MS };
    }
}

/* ---- a step ---- */

static void arrive(sim *m, asked *a)
{
    const habit *h = &m->habits[a->q.tenant - m->tenants];

    a->alive = 1;
    a->came = m->now;
    a->pos = a->running = 0;
    a->q.r.n_prompt = between(m, h->prompt);
    a->q.most_tokens = a->q.r.n_prompt + between(m, h->tokens);
    a->q.n_generated = 0;
    a->q.r.tenant = a->q.tenant->id;
    m->s.waiting[m->s.n_waiting++] = &a->q;
    tenant_arrives(&m->s, &a->q);
}

/* The one who was served least, then the one that waits longest, as in session_plan.c. */
static int goes_before(const request *a, const request *b)
{
    if (a->tenant->served != b->tenant->served)
        return a->tenant->served < b->tenant->served;
    return ((const asked *)a)->came < ((const asked *)b)->came;
}

static int fill_heads(sim *m)
{
    kvant_session *s = &m->s;
    const int n = s->n_running == PLACES ? 0 : s->n_waiting < HEADS ? s->n_waiting : HEADS;

    for (int i = 0; i < s->n_waiting; i++)
        for (int j = i; j > 0 && goes_before(s->waiting[j], s->waiting[j - 1]); j--) {
            request *q = s->waiting[j];
            s->waiting[j] = s->waiting[j - 1];
            s->waiting[j - 1] = q;
        }
    for (int i = 0; i < n; i++)
        s->sched.waiting[i] = (sched_wait){ .prompt_left = s->waiting[i]->r.n_prompt, .pages = 1 };
    return n;
}

static void fill_running(sim *m)
{
    for (int i = 0; i < m->s.n_running; i++) {
        const asked *a = of(m->s.running[i]);
        const int left = a->q.r.n_prompt - a->pos;
        m->s.sched.running[i] = (sched_seq){
            .pos = a->pos, .prompt_left = left > 0 ? left : 0, .decoded = a->q.n_generated, .tenant = a->q.tenant->rank
        };
    }
}

static void plan(sim *m)
{
    kvant_session *s = &m->s;
    const int heads = fill_heads(m), tenants = tenants_rank(s, heads), heavy = fair_weigh(s, heads, tenants);
    sched_config c = { .batch_tokens = 2048, .n_ubatch = UBATCH, .n_ctx = 4096, .max_seqs = PLACES,
                       .step_tokens = pace_tokens(s), .n_tenants = tenants, .heavy = m->heavy,
                       .heavy_tokens = m->use_rule ? heavy : -1 };

    fill_running(m);
    sched_make(&c, s->sched.running, s->n_running, s->sched.waiting, heads, 1000, 0, &s->sched.plan);
    m->given_way += heavy >= 0;
}

static void add_item(sim *m, asked *a, int n, int prompt)
{
    m->s.step.items[m->s.step.n] = (kvant_item){ .n = n, .prompt = prompt };
    m->s.step.req[m->s.step.n++] = &a->q;
}

static void take_rows(sim *m)
{
    kvant_session *s = &m->s;
    const sched_plan *p = &s->sched.plan;
    request *heads[HEADS];
    const int was = s->n_running;

    memcpy(heads, s->waiting, sizeof heads);
    s->step.n = 0;
    for (int i = 0; i < p->n_decode; i++)
        add_item(m, of(s->running[p->decode[i]]), 1, 0);
    for (int i = 0; i < p->n_prompt; i++)
        add_item(m, of(p->prompt[i].index < was ? s->running[p->prompt[i].index] : heads[p->prompt[i].index - was]),
                 p->prompt[i].n, 1);
    for (int i = 0; i < p->n_admit; i++) {
        int at = 0;
        while (s->waiting[at] != heads[p->admit[i]])
            at++;
        session_remove(s->waiting, &s->n_waiting, at);
        s->running[s->n_running++] = heads[p->admit[i]];
    }
}

static void end_request(sim *m, asked *a)
{
    kvant_session *s = &m->s;
    const habit *h = &m->habits[a->q.tenant - m->tenants];
    int at = 0;

    while (s->running[at] != &a->q)
        at++;
    session_remove(s->running, &s->n_running, at);
    fair_forget(s);
    a->q.tenant->live--;
    a->alive = 0;
    a->again = m->now + h->pause;
    if (h->pause > 0 && m->n_times < TIMES)
        m->times[m->n_times++] = (double)(m->now - a->came) / MS;
}

static void collect(sim *m)
{
    for (int i = 0; i < m->s.step.n; i++) {
        asked *a = of(m->s.step.req[i]);
        a->pos += m->s.step.items[i].n;
        a->q.tenant->served += m->s.step.items[i].n;
        if (m->s.step.items[i].prompt)
            m->prompt_tokens[a->q.tenant - m->tenants] += m->s.step.items[i].n;
        if (a->pos < a->q.r.n_prompt)
            continue;
        a->q.n_generated++;
        m->generated++;
        if (a->q.r.n_prompt + a->q.n_generated >= a->q.most_tokens)
            end_request(m, a);
    }
}

static void step(sim *m)
{
    const sched_plan *p = &m->s.sched.plan;

    for (int i = 0; i < m->n_all; i++)
        if (!m->all[i].alive && m->now >= m->all[i].again)
            arrive(m, &m->all[i]);
    if (m->s.n_running + m->s.n_waiting == 0) {
        m->now += MS / 10;
        return;
    }
    plan(m);
    take_rows(m);
    m->stands = m->s.step.n == 0;
    const double spread = 1 + 0.07 * (2 * rng_unit(&m->r) - 1);
    const int64_t ns = (int64_t)(spread * (m->speed.step_ns + m->speed.row_ns * p->n_decode +
                                           m->speed.token_ns * p->prompt_tokens));
    m->now += ns;
    m->steps++;
    pace_count(&m->s, ns);
    fair_charge(&m->s, ns);
    collect(m);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double p99(sim *m)
{
    qsort(m->times, (size_t)m->n_times, sizeof m->times[0], by_size);
    return m->n_times ? m->times[m->n_times * 99 / 100] : 0;
}

static void run(sim *m, const habit *habits, int use_rule, const speed *v, int target_ms, int64_t seconds)
{
    open_sim(m, habits, use_rule, v, target_ms);
    while (m->now < seconds * 1000 * MS && !m->stands)
        step(m);
    CHECK(!m->stands, "a step without rows at %.1f ms", (double)m->now / MS);
}

/* ---- what is asked of it ---- */

#define CHAT { 1, { 33, 33 }, { 8, 8 }, 20 * MS }
#define NOBODY { 0, { 1, 1 }, { 1, 1 }, 0 }
#define FLOOD { 2, { 600, 600 }, { 4, 4 }, 0 }

/* Chats beside a flood: three times their time alone at most, and the flood has a third of what it would have. */
static void check_flood(void)
{
    static const habit alone[TENANTS] = { NOBODY, NOBODY, CHAT, CHAT, CHAT, CHAT, CHAT, CHAT };
    static const habit beside[TENANTS] = { FLOOD, FLOOD, CHAT, CHAT, CHAT, CHAT, CHAT, CHAT };
    static sim a, without, with;

    run(&a, alone, 1, &tiny, 10, 20);
    run(&without, beside, 0, &tiny, 10, 20);
    run(&with, beside, 1, &tiny, 10, 20);
    const double ta = p99(&a), tw = p99(&without), tr = p99(&with);
    const long long most = without.prompt_tokens[0] + without.prompt_tokens[1];
    const long long has = with.prompt_tokens[0] + with.prompt_tokens[1];
    printf("check_fair: p99 of a chat %.1f ms alone, %.1f beside a flood without the rule, %.1f with it; the flood has %.2f\n",
           ta, tw, tr, (double)has / (double)most);
    CHECK(tr <= 3 * ta, "p99 beside a flood: %.1f ms, alone %.1f", tr, ta);
    CHECK(tw > 4 * ta, "without the rule %.1f ms: the flood is none", tw);
    CHECK(3 * has >= most, "the flood: %lld prompt tokens of %lld", has, most);
    CHECK(a.given_way * 100 <= a.steps, "chats gave way to each other in %lld of %lld steps", a.given_way, a.steps);
}

/* Eight that do alike: as many tokens as without the rule. */
static void check_equal(const char *name, const habit *one, const speed *v, int target_ms, int64_t seconds)
{
    static sim without, with;
    habit all[TENANTS];

    for (int t = 0; t < TENANTS; t++)
        all[t] = *one;
    run(&without, all, 0, v, target_ms, seconds);
    run(&with, all, 1, v, target_ms, seconds);
    const double part = (double)with.generated / (double)without.generated;
    printf("check_fair: eight alike, %s: %.4f of the tokens, %lld of %lld steps gave way\n", name, part, with.given_way,
           with.steps);
    CHECK(part >= 0.98, "%s: %.4f of the tokens", name, part);
}

int main(void)
{
    static const habit same = { 1, { 300, 300 }, { 100, 100 }, 0 }, mixed = { 1, { 50, 1000 }, { 20, 200 }, 0 };
    static const habit several = { 2, { 50, 1000 }, { 20, 200 }, 5 * MS };

    check_flood();
    check_equal("300 tokens", &same, &tiny, 60, 60);
    check_equal("50 to 1000 tokens", &mixed, &tiny, 60, 60);
    check_equal("50 to 1000 tokens, a target of 10 ms", &mixed, &tiny, 10, 60);
    check_equal("two requests each, with pauses", &several, &tiny, 60, 60);
    check_equal("a large model on a CPU", &mixed, &large, 60, 40000);
    check_equal("a large model on a card", &mixed, &card, 60, 600);
    return check_end("check_fair");
}
