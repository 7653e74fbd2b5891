/* session_pace.c: how many prompt tokens a step may have, by the time that steps have taken until now, and how far
 * prompts of tenants that used much of that time give way.
 *
 * Time of a step = time of its decode rows + prompt tokens * time of one.  Both are measured as steps go by.  A request
 * waits one step for its next token, or for its first; target_itl_ms bounds that.
 *
 * A step's time is charged to the tenants of its rows: that of decode rows evenly, that of prompts by their tokens.  As
 * requests end it is forgotten, so that the latest WINDOW requests of each tenant count, however long they take.  A
 * tenant is heavy beside one that has work if it used more than RATIO times as much, and PART of the average more:
 * tenants that do alike are not, nor is one that is alone.  Beside a lighter tenant's requests the prompts of all heavy
 * ones together take as much time as everything else does.  They take it in whole passes of the engine, as soon as one
 * is earned, so that they lose no speed of their own. */
#include "engine/session_impl.h"

enum { LEAST_TOKENS = KVANT_PAGE, WINDOW = 8 };

static const double KEEP = 0.75;   /* of what was measured before, per step */
static const double MARGIN = 0.92; /* steps of one size differ by about as much as is left out here */
static const double RATIO = 2, PART = 0.5, SAVINGS = 1.5; /* SAVINGS: most that is earned ahead, in passes */

/* ---- the time of a step ---- */

void pace_count(kvant_session *s, int64_t ns)
{
    const sched_plan *p = &s->sched.plan;
    step_pace *m = &s->pace;
    double rest = (double)ns;

    m->last_prompt_ns = 0;
    if (p->prompt_tokens == 0) {
        if (p->n_decode > 0)
            m->decode_ns = m->decode_ns > 0 ? KEEP * m->decode_ns + (1 - KEEP) * rest : rest;
        return;
    }
    if (p->n_decode > 0)
        rest -= m->decode_ns < rest / 2 ? m->decode_ns : rest / 2; /* a hiccup must not make prompts free */
    m->last_prompt_ns = rest;
    m->prompt_ns = KEEP * m->prompt_ns + rest;
    m->prompt_tokens = KEEP * m->prompt_tokens + p->prompt_tokens;
}

/* 1: nobody else runs or waits. */
static int is_alone(const kvant_session *s)
{
    return s->n_running + s->n_waiting < 2;
}

int pace_tokens(const kvant_session *s)
{
    const step_pace *m = &s->pace;
    const int pass = s->e->p.n_ubatch;
    double tokens = pass;

    if (s->p.target_itl_ms < 0)
        return 0;
    if (m->prompt_tokens > 0) {
        const double ns = MARGIN * s->p.target_itl_ms * 1e6 - (s->n_running > 0 ? m->decode_ns : 0);
        tokens = ns * m->prompt_tokens / m->prompt_ns;
    }
    if (is_alone(s) && tokens < pass)
        tokens = pass;
    tokens = tokens < s->p.batch_tokens ? tokens : s->p.batch_tokens;
    return tokens < LEAST_TOKENS ? LEAST_TOKENS : (int)tokens / KVANT_PAGE * KVANT_PAGE;
}

/* ---- what each tenant used ---- */

static double clamp(double x, double most)
{
    return x > most ? most : x < -most ? -most : x;
}

static double token_ns(const kvant_session *s)
{
    return s->pace.prompt_tokens > 0 ? s->pace.prompt_ns / s->pace.prompt_tokens : 0;
}

/* Tokens of prompts that are worth a step: a pass, or as many as the step may have. */
static int pass_tokens(const kvant_session *s)
{
    const int step = pace_tokens(s), pass = s->e->p.n_ubatch > KVANT_PAGE ? s->e->p.n_ubatch : KVANT_PAGE;

    return step > 0 && step < pass ? step : pass;
}

/* Rows that decode in the step, drafts among them. */
static int decode_rows(const kvant_session *s)
{
    int rows = 0;

    for (int i = 0; i < s->step.n; i++)
        rows += s->step.items[i].prompt ? 0 : s->step.items[i].n;
    return rows;
}

static double cost(const kvant_session *s, int item, double ns)
{
    const kvant_item *it = &s->step.items[item];
    const sched_plan *p = &s->sched.plan;

    if (it->prompt)
        return p->prompt_tokens > 0 ? s->pace.last_prompt_ns * it->n / p->prompt_tokens : 0;
    return p->n_decode > 0 ? (ns - s->pace.last_prompt_ns) * it->n / decode_rows(s) : 0;
}

void fair_charge(kvant_session *s, int64_t ns)
{
    double heavy = 0;

    for (int i = 0; i < s->step.n; i++) {
        tenant *t = s->step.req[i]->tenant;
        const double c = cost(s, i, (double)ns);
        t->used_ns += c;
        heavy += s->step.items[i].prompt && t->heavy ? c : 0;
    }
    if (s->fair.n_heavy == 0)
        s->fair.earned_ns = 0;
    else
        s->fair.earned_ns = clamp(s->fair.earned_ns + (double)ns - 2 * heavy, SAVINGS * pass_tokens(s) * token_ns(s));
}

static int count_active(const kvant_session *s)
{
    int n = 0;

    for (int i = 0; i < s->tenants.arrived; i++)
        n += s->tenants.list[i].live > 0;
    return n;
}

void fair_forget(kvant_session *s)
{
    const int n = count_active(s);

    for (int i = 0; i < s->tenants.arrived; i++)
        s->tenants.list[i].used_ns *= 1 - 1.0 / (WINDOW * (n > 0 ? n : 1));
}

/* ---- who is heavy ---- */

static double less(const request *q, double least)
{
    return !q->pause.now && (least < 0 || q->tenant->used_ns < least) ? q->tenant->used_ns : least;
}

/* Used by the lightest tenant that has work for the next step; below 0: nobody has. */
static double least_used(const kvant_session *s, int n_heads)
{
    double least = -1;

    for (int i = 0; i < s->n_running; i++)
        least = less(s->running[i], least);
    for (int i = 0; i < n_heads; i++)
        if (!s->sched.waiting[i].not_ready)
            least = less(s->waiting[i], least);
    return least;
}

static double average_used(const kvant_session *s)
{
    const int n = count_active(s);
    double sum = 0;

    for (int i = 0; i < s->tenants.arrived; i++)
        sum += s->tenants.list[i].used_ns;
    return n > 0 ? sum / n : sum;
}

int fair_weigh(kvant_session *s, int n_heads, int n_tenants)
{
    const double least = least_used(s, n_heads), bound = RATIO * least + PART * average_used(s);
    const double token = least < 0 ? 0 : token_ns(s); /* 0: nobody is heavy */

    s->fair.n_heavy = 0;
    for (int i = 0; i < n_tenants; i++) {
        tenant *t = s->tenants.ranked[i];
        t->heavy = s->fair.heavy[i] = token > 0 && t->used_ns > bound;
        s->fair.n_heavy += t->heavy;
    }
    if (s->fair.n_heavy == 0)
        return -1;
    return s->fair.earned_ns < pass_tokens(s) * token ? 0 : (int)(s->fair.earned_ns / token) / KVANT_PAGE * KVANT_PAGE;
}
