/* session_draft.c: speculative decoding: which sequences of a step carry drafts, how many, and what became of them.
 *
 * A draft is a guess of a token.  It has a decode row in the same step; the token is drawn from the row before with
 * the request's own sampler, mask and random numbers, in order, and the draft is accepted if it is that token.  So a
 * text with drafts is the text without (docs/speculative.md).
 *
 * How many: with KVANT_SPEC_AUTO as many as pay.  One more row makes the step longer by what rows have cost until now;
 * it brings a token with the probability that it and all drafts before it are accepted.  It is taken where that is more
 * tokens for the time than the step gives without it.  In a step of many sequences rows bring one token each: there a
 * draft hardly ever pays. */
#include <string.h>

#include "engine/session_impl.h"

/* ---- what has been seen ---- */

static const double KEEP_COST = 0.98, KEEP_RATE = 0.9; /* of what was seen before; arbitrary, not tuned */
static const double MARGIN = 1.05;                     /* a draft must pay by so much */

void draft_count_step(kvant_session *s, int64_t ns)
{
    draft_cost *c = &s->cost;
    double rows = s->plan.n_decode, y = (double)ns;

    if (s->plan.prompt_tokens > 0 || s->plan.n_decode == 0)
        return;
    for (int i = 0; i < s->n_items; i++)
        rows += s->item_draft[i];
    c->n = KEEP_COST * c->n + 1;
    c->x = KEEP_COST * c->x + rows;
    c->y = KEEP_COST * c->y + y;
    c->xx = KEEP_COST * c->xx + rows * rows;
    c->xy = KEEP_COST * c->xy + rows * y;
}

/* Time of a step is base + rows * row: a line through what steps took, drawn towards an eighth of a step for a row
 * where all had the same rows. */
static void step_costs(const draft_cost *c, double *base, double *row)
{
    const double n = c->n > 0 ? c->n : 1, x = c->n > 0 ? c->x / n : 1, y = c->n > 0 ? c->y / n : 1;
    const double var = c->xx / n - x * x, cov = c->xy / n - x * y, guess = y / (x + 7), weight = 0.5;
    double slope = (cov + weight * guess) / (var + weight);

    slope = slope > 0 ? slope : 0;
    slope = slope * x < y ? slope : y / x;
    *row = slope;
    *base = y - slope * x;
}

/* How often a draft of this grade is accepted when those before it were: of the request, and as long as it has few, of
 * all. */
static double rate_of(const kvant_session *s, const request *q, int grade)
{
    const draft_rate *own = &q->rates[grade], *all = &s->rates[grade];
    const double common = (all->taken + 1.4) / (all->tried + 2), weight = 3;

    return (own->taken + weight * common) / (own->tried + weight);
}

static void count_rate(draft_rate *r, int taken, int tried)
{
    r->taken = KEEP_RATE * r->taken + taken;
    r->tried = KEEP_RATE * r->tried + tried;
}

/* A grade that was held back is forgotten little by little, so that it is tried again one day. */
static void forget_rate(draft_rate *r)
{
    r->taken *= 0.98;
    r->tried *= 0.98;
}

/* ---- what is carried ---- */

/* Most drafts of this request in this step. */
static int room_of(const kvant_session *s, const request *q)
{
    const int len = request_len(s, q), most = q->r.draft_max >= 0 ? q->r.draft_max : s->p.draft_max;
    const int room = kvant_seq_draft_room(s->e, q->seq), left = q->most_tokens - q->n_tokens - 1;
    int k = most < room ? most : room;

    if (q->rows != 1 || len < q->r.n_prompt || len + 1 != q->n_tokens || q->fault_to > 0)
        return 0;
    k = k < left ? k : left;
    return k < KVANT_MOST_DRAFTS ? k : KVANT_MOST_DRAFTS;
}

/* Rows that the step's one pass, and its logits, have for drafts. */
static int rows_left(const kvant_session *s)
{
    const int pass = s->e->p.n_ubatch - s->plan.n_decode - s->plan.prompt_tokens;
    const int batch = s->p.batch_tokens - s->plan.n_decode - s->plan.prompt_tokens;
    int rows = s->e->p.logits_rows - s->max_seqs;

    for (int i = 0; i < s->n_running; i++)
        rows = s->running[i]->rows > 0 && request_tells_prompt(s->running[i]) ? 0 : rows;
    rows = rows < pass ? rows : pass;
    return rows < batch ? rows : batch;
}

/* The first n of k drafts that pay, in a step that has `tokens` tokens to expect and takes `ns`; both grow. */
static int paying(const kvant_session *s, request *q, int k, double row_ns, double *tokens, double *ns)
{
    const double rate = rate_of(s, q, q->grade);
    double p = rate;
    int n = 0;

    while (n < k && p * *ns > MARGIN * row_ns * *tokens) {
        *tokens += p;
        *ns += row_ns;
        p *= rate;
        n++;
    }
    return n;
}

static int propose(kvant_session *s, request *q, int k)
{
    int32_t *out = q->tokens + q->n_tokens;

    q->grade = 0;
    if (s->drafter)
        return s->drafter(s->drafter_user, q->tokens, q->n_tokens, out, k);
    const draft_guess g = draft_ngram_propose(&q->ngram, q->tokens, q->n_tokens, out, k);
    q->grade = g.grade;
    return g.n;
}

static int draft_one(kvant_session *s, request *q, int room, double row_ns, double *tokens, double *ns)
{
    const int least = q->r.draft_min >= 0 ? q->r.draft_min : s->p.draft_min;
    int k = room > 0 ? propose(s, q, room) : 0;

    if (k > 0 && s->p.spec == KVANT_SPEC_AUTO) {
        k = paying(s, q, k, row_ns, tokens, ns);
        if (k == 0)
            forget_rate(&q->rates[q->grade]), forget_rate(&s->rates[q->grade]);
    }
    return k < least ? 0 : k;
}

void draft_plan(kvant_session *s)
{
    int rows = s->p.spec == KVANT_SPEC_OFF ? 0 : rows_left(s);
    double base, row_ns, ns, tokens = s->plan.n_decode;

    step_costs(&s->cost, &base, &row_ns);
    ns = base + row_ns * tokens;
    for (int i = 0; i < s->n_running; i++) {
        request *q = s->running[i];
        const int room = rows > 0 ? room_of(s, q) : 0;
        q->n_draft = draft_one(s, q, room < rows ? room : rows, row_ns, &tokens, &ns);
        rows -= q->n_draft;
    }
}

/* ---- what became of them ---- */

void draft_settle(kvant_session *s, request *q, int taken, int tried)
{
    const int looked = taken < tried ? taken + 1 : taken;

    q->t.n_drafted += tried;
    q->t.n_draft_accepted += taken;
    s->st.drafted += (uint64_t)tried;
    s->st.draft_accepted += (uint64_t)taken;
    s->st.draft_steps[tried]++;
    for (int i = 0; i < taken; i++)
        s->st.draft_accepted_at[i]++;
    count_rate(&q->rates[q->grade], taken, looked);
    count_rate(&s->rates[q->grade], taken, looked);
    q->n_draft = 0;
}
