/* scheduler.c: see scheduler.h.  Knobs and their semantics: docs/scheduler.md. */
#include "engine/scheduler.h"

#include <assert.h>
#include <stddef.h>
#include "base/least.h"
#include "kvant/ops.h"

/* Prompt tokens of a step by its time, beside d rows that decode.  A pass more for few rows would read all weights for
 * them: there are none of less than half a pass. */
static int tokens_by_time(const sched_config *c, int d)
{
    const int all = c->step_tokens + d, over = all % c->n_ubatch, full = all - over - d;
    return all > c->n_ubatch && over < c->n_ubatch / 2 && full >= KVANT_PAGE ? full : c->step_tokens;
}

void sched_budget(const sched_config *c, int d, int *budget, int *cap)
{
    *budget = *cap = 0;
    if (c->max_batch_tokens > 0) {
        const int t = max_int(c->n_ubatch, min_int(c->batch_tokens, c->max_batch_tokens));
        const int own = min_int(t, max_int(c->n_ubatch, (c->n_ctx + 24) / 25));
        *budget = max_int(c->n_ubatch, t - d);
        *cap = c->prefill_cap > 0 ? c->prefill_cap : own;
        *cap = min_int(max_int(*cap, c->n_ubatch), c->batch_tokens);
        if (t == c->batch_tokens)
            *cap = c->batch_tokens;
    } else if (c->prefill_budget > 0) {
        *budget = min_int(c->batch_tokens, c->prefill_budget);
    }
    if (c->step_tokens > 0)
        *budget = min_int(*budget > 0 ? *budget : c->batch_tokens, tokens_by_time(c, d));
}

typedef struct scheduler_state {
    const sched_config *c;
    const sched_seq *run;
    int n_run;
    int available; /* pages that nobody has been promised */
    int decode_rows;
    sched_plan *plan;
} scheduler_state;

static int is_listed(const int *list, int n, int x)
{
    for (int i = 0; i < n; i++)
        if (list[i] == x)
            return 1;
    return 0;
}

/* Rows step aside while prompts are at work, but only those that have shown a first token. */
static int is_deferred(const scheduler_state *s, const sched_seq *q, int prompts, int deferred)
{
    const sched_config *c = s->c;
    return c->prefill_first && prompts > 0 && prompts >= c->first_waiting && q->decoded > 0 &&
           (c->first_defer == 0 || deferred < c->first_defer);
}

static void choose_decode(scheduler_state *s, int deferred)
{
    int prompts = 0;

    for (int i = 0; i < s->n_run; i++)
        prompts += s->run[i].prompt_left > 0;
    for (int i = 0; i < s->n_run; i++) {
        if (s->run[i].prompt_left > 0 || s->run[i].held)
            continue;
        if (is_deferred(s, &s->run[i], prompts, deferred))
            s->plan->n_deferred++;
        else
            s->plan->decode[s->plan->n_decode++] = i;
    }
}

static int wants_page(const scheduler_state *s, const sched_seq *q)
{
    const int row = s->c->late_pages ? KVANT_PAGE - 1 : 0;
    return q->pos % KVANT_PAGE == row && q->promised == 0;
}

/* The youngest that may go, is not gone yet and gives something back; `self` is always one of them. */
static int choose_victim(const scheduler_state *s, int self)
{
    for (int i = s->n_run - 1; i >= 0; i--) {
        const sched_seq *q = &s->run[i];
        if (!q->keep && !is_listed(s->plan->preempt, s->plan->n_preempt, i) &&
            (i == self || q->pages_back + q->promised > 0))
            return i;
    }
    return -1;
}

/* Grants pages to the decode rows in order of age.  The victims are known to give back only the pages that nobody
 * shares, so this errs towards one victim more. */
static void grant_pages(scheduler_state *s)
{
    sched_plan *p = s->plan;
    int kept = 0;

    for (int k = 0; k < p->n_decode; k++) {
        const int i = p->decode[k];
        while (!is_listed(p->preempt, p->n_preempt, i) && wants_page(s, &s->run[i]) && s->available < 1) {
            const int v = choose_victim(s, i);
            assert(v >= i); /* a younger one, or itself: those before it have their page or do not want one */
            s->available += s->run[v].pages_back + s->run[v].promised;
            p->preempt[p->n_preempt++] = v;
        }
        if (!is_listed(p->preempt, p->n_preempt, i))
            s->available -= wants_page(s, &s->run[i]);
    }
    for (int k = 0; k < p->n_decode; k++)
        if (!is_listed(p->preempt, p->n_preempt, p->decode[k]))
            p->decode[kept++] = p->decode[k];
    p->n_decode = kept;
}

/* Prompt tokens that the step still has room for. */
static int tokens_left(const scheduler_state *s)
{
    const sched_plan *p = s->plan;
    const int room = s->c->batch_tokens - s->decode_rows - p->prompt_tokens;

    return p->budget > 0 ? min_int(room, p->budget - p->prompt_tokens) : room;
}

/* Prompt tokens that each tenant has, written to plan->tokens. */
static void count_wanted(scheduler_state *s, const sched_wait *queue, int n_wait)
{
    int *tokens = s->plan->tokens;

    for (int t = 0; t < s->c->n_tenants; t++)
        tokens[t] = 0;
    for (int i = 0; i < s->n_run; i++)
        tokens[s->run[i].tenant] += s->run[i].prompt_left;
    for (int i = 0; i < n_wait; i++)
        tokens[queue[i].tenant] += queue[i].not_ready ? 0 : queue[i].prompt_left;
}

static int is_heavy(const scheduler_state *s, int tenant)
{
    return s->c->heavy_tokens >= 0 && s->c->heavy && s->c->heavy[tenant];
}

/* Those that give way want no more than they may have, who is served next first. */
static void limit_heavy(scheduler_state *s)
{
    int *tokens = s->plan->tokens, left = s->c->heavy_tokens;

    for (int t = 0; t < s->c->n_tenants; t++)
        if (is_heavy(s, t)) {
            tokens[t] = min_int(tokens[t], left);
            left -= tokens[t];
        }
}

/* Equal parts of the step's prompt tokens; what a tenant does not want of its part goes to the others. */
static void share_tokens(scheduler_state *s, const sched_wait *queue, int n_wait)
{
    int *tokens = s->plan->tokens, left = tokens_left(s), n = 0, part, full;

    count_wanted(s, queue, n_wait);
    limit_heavy(s);
    for (int t = 0; t < s->c->n_tenants; t++)
        n += tokens[t] > 0;
    do { /* those that want no more than an equal part have what they want */
        part = n > 0 ? left / n : 0;
        full = 0;
        for (int t = 0; t < s->c->n_tenants; t++) {
            if (tokens[t] <= 0 || tokens[t] > part)
                continue;
            left -= tokens[t];
            tokens[t] = -tokens[t];
            full++;
        }
        n -= full;
    } while (full > 0);
    for (int t = 0; t < s->c->n_tenants; t++)
        tokens[t] = tokens[t] < 0 ? -tokens[t] : min_int(tokens[t], max_int(part, KVANT_PAGE));
}

/* Tokens of the next chunk of a prompt; 0: it does not start in this step. */
static int chunk(const scheduler_state *s, int tenant, int pos, int left, int cut)
{
    const sched_plan *p = s->plan;
    int room = min_int(tokens_left(s), p->tokens[tenant]);

    if (room <= 0)
        return 0;
    if (p->cap > 0)
        room = min_int(room, p->cap);
    if (cut > pos)
        left = min_int(left, cut - pos);
    if (left <= room)
        return left;
    int end = (pos + room) / KVANT_PAGE * KVANT_PAGE;
    if (end <= pos && p->prompt_tokens == 0) /* a budget below the grid: one page, or nothing would ever move */
        end = (pos / KVANT_PAGE + 1) * KVANT_PAGE;
    return end > pos ? min_int(end - pos, left) : 0;
}

static int add_chunk(scheduler_state *s, int index, int tenant, int pos, int left, int cut)
{
    sched_plan *p = s->plan;
    const int n = chunk(s, tenant, pos, left, cut);

    if (n == 0)
        return 0;
    p->prompt[p->n_prompt++] = (sched_piece){ index, n };
    p->prompt_tokens += n;
    p->tokens[tenant] -= n;
    return 1;
}

/* A tenant's oldest first; the first that does not fit ends the tenant's round, so that no younger one overtakes it.
 * Returns whether all fit. */
static int running_prompts_of(scheduler_state *s, int tenant)
{
    for (int i = 0; i < s->n_run; i++) {
        const sched_seq *q = &s->run[i];
        if (q->tenant == tenant && q->prompt_left > 0 && !is_listed(s->plan->preempt, s->plan->n_preempt, i) &&
            !add_chunk(s, i, tenant, q->pos, q->prompt_left, q->cut)) {
            s->plan->tokens[tenant] = 0;
            return 0;
        }
    }
    return 1;
}

/* Returns whether there is a tenant all of whose running prompts fit. */
static int running_prompts(scheduler_state *s)
{
    int open = 0;

    for (int t = 0; t < s->c->n_tenants; t++)
        open |= running_prompts_of(s, t);
    return open;
}

/* A page for each running sequence stays behind, so that an admission is not undone by the next pages of those. */
static void admit(scheduler_state *s, const sched_wait *queue, int n_wait)
{
    sched_plan *p = s->plan;

    for (int i = 0; i < n_wait && s->n_run + p->n_admit < s->c->max_seqs; i++) {
        const sched_wait *w = &queue[i];
        const int spare = s->n_run + p->n_admit;
        if (w->not_ready || (w->prompt_left > 0 && is_heavy(s, w->tenant) && p->tokens[w->tenant] == 0))
            continue;
        p->no_pages = w->pages + w->pinned + spare > s->available;
        if (p->no_pages)
            return;
        if (w->prompt_left > 0 && !add_chunk(s, s->n_run + i, w->tenant, w->pos, w->prompt_left, w->cut))
            return;
        s->available -= w->pages + w->pinned;
        p->admit[p->n_admit++] = i;
    }
}

void sched_make(const sched_config *c, const sched_seq *running, int n_running, const sched_wait *queue, int n_wait,
                int room, int deferred, sched_plan *plan)
{
    scheduler_state s = { c, running, n_running, room, 0, plan };

    plan->n_decode = plan->n_prompt = plan->n_admit = plan->n_preempt = plan->n_deferred = plan->prompt_tokens =
        plan->no_pages = 0;
    for (int i = 0; i < n_running; i++)
        s.available -= running[i].promised;
    assert(s.available >= 0);
    choose_decode(&s, deferred);
    grant_pages(&s);
    s.decode_rows = plan->n_decode;
    sched_budget(c, plan->n_decode, &plan->budget, &plan->cap);
    share_tokens(&s, queue, n_wait);
    if (running_prompts(&s) && plan->n_preempt == 0)
        admit(&s, queue, n_wait);
}
