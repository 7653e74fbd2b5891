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

#include "base/clock.h"
#include "engine/fit/fit_device.h"
#include "engine/session_impl.h"

enum { REST_AFTER = 16 }; /* steps; arbitrary, not tuned */

/* ---- what has been seen ---- */

static const double KEEP_COST = 0.98, KEEP_RATE = 0.9; /* of what was seen before; arbitrary, not tuned */
static const double MARGIN = 1.05;                     /* a draft must pay by so much */

static void count_cost(draft_cost *c, double rows, double ns)
{
    c->n = KEEP_COST * c->n + 1;
    c->x = KEEP_COST * c->x + rows;
    c->y = KEEP_COST * c->y + ns;
    c->xx = KEEP_COST * c->xx + rows * rows;
    c->xy = KEEP_COST * c->xy + rows * ns;
}

void draft_count_step(kvant_session *s, int64_t ns)
{
    double rows = s->sched.plan.n_decode;

    if (s->sched.plan.prompt_tokens > 0 || s->sched.plan.n_decode == 0)
        return;
    for (int i = 0; i < s->step.n; i++)
        rows += s->step.draft[i];
    count_cost(&s->drafts.cost, rows, (double)ns);
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
    const draft_rate *own = &q->drafts.rates[grade], *all = &s->drafts.rates[grade];
    const double common = (all->taken + 1.4) / (all->tried + 2), weight = 3;

    return (own->taken + weight * common) / (own->tried + weight);
}

static void count_rate(draft_rate *r, const draft_rate *seen)
{
    r->taken = KEEP_RATE * r->taken + seen->taken;
    r->tried = KEEP_RATE * r->tried + seen->tried;
}

static void forget_rate(draft_rate *r)
{
    r->taken *= 0.98;
    r->tried *= 0.98;
}

/* A grade that was held back is forgotten little by little, so that it is tried again one day. */
static void forget_rates(kvant_session *s, request *q, int grade)
{
    forget_rate(&q->drafts.rates[grade]);
    forget_rate(&s->drafts.rates[grade]);
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
    k = s->drafts.synth.n > 0 && s->drafts.synth.n < k ? s->drafts.synth.n : k;
    return k < KVANT_MOST_DRAFTS ? k : KVANT_MOST_DRAFTS;
}

static int least_of(const kvant_session *s, const request *q)
{
    return q->r.draft_min >= 0 ? q->r.draft_min : s->p.draft_min;
}

/* Rows that the step's one pass, its logits and the ring have for drafts. */
static int rows_left(const kvant_session *s)
{
    const int pass = s->e->p.n_ubatch - s->sched.plan.n_decode - s->sched.plan.prompt_tokens;
    const int batch = s->p.batch_tokens - s->sched.plan.n_decode - s->sched.plan.prompt_tokens;
    const int ring = s->e->kv.cfg.ring_rows; /* has the row before a sequence's drafts too */
    int rows = s->e->p.logits_rows - s->max_seqs;

    for (int i = 0; i < s->n_running; i++)
        rows = s->running[i]->rows > 0 && request_tells_prompt(s->running[i]) ? 0 : rows;
    rows = rows < pass ? rows : pass;
    rows = rows < batch ? rows : batch;
    return ring > 0 && ring - s->sched.plan.n_decode < rows ? ring - s->sched.plan.n_decode : rows;
}

/* A step as it is planned: tokens to expect, and its time; the time of a row more, and of a round of a model's
 * drafts. */
typedef struct outlook {
    double tokens, ns, row_ns, round_ns, round_row_ns;
    int rows;                      /* that are left for drafts */
} outlook;

static int pays(const outlook *o, double p, double ns)
{
    return p * o->ns > MARGIN * ns * o->tokens;
}

static void add_row(outlook *o, double p)
{
    o->tokens += p;
    o->ns += o->row_ns;
    o->rows--;
}

/* The first n of k drafts, all of one grade, that pay. */
static int paying(kvant_session *s, request *q, int k, outlook *o)
{
    const double rate = rate_of(s, q, q->drafts.grades[0]);
    double p = rate;
    int n = 0;

    for (; n < k && pays(o, p, o->row_ns); n++) {
        add_row(o, p);
        p *= rate;
    }
    if (n == 0)
        forget_rates(s, q, q->drafts.grades[0]);
    o->rows += n; /* draft_plan counts them */
    return n;
}

static int propose(kvant_session *s, request *q, int k)
{
    int32_t *out = q->tokens + q->n_tokens;

    memset(q->drafts.grades, 0, sizeof q->drafts.grades);
    if (s->hooks.drafter)
        return s->hooks.drafter(s->hooks.drafter_user, q->tokens, q->n_tokens, out, k);
    const draft_guess g = draft_ngram_propose(&q->drafts.ngram, q->tokens, q->n_tokens, out, k);
    memset(q->drafts.grades, g.grade, sizeof q->drafts.grades);
    return g.n;
}

/* ---- a model's drafts: round by round, for all sequences that want some ---- */

static int grade_of(float p)
{
    return RATE_MODEL + (p >= 0.3f) + (p >= 0.6f) + (p >= 0.85f);
}

static double p_min_of(const kvant_session *s, const request *q)
{
    return q->r.draft_p_min >= 0 ? (double)q->r.draft_p_min : (double)s->p.draft_p_min;
}

/* A sequence's part of a round for n of them. */
static double round_part(const outlook *o, int n)
{
    return o->round_row_ns + o->round_ns / (n > 0 ? n : 1);
}

/* A lane's guess becomes a draft of its request; chance: that all of its drafts are accepted.  Returns 1 if another is
 * worth a round. */
static int take_one(kvant_session *s, request *q, const draft_lane *lane, double *chance, int n_lanes, outlook *o)
{
    const int is_auto = s->p.spec == KVANT_SPEC_AUTO, grade = grade_of(lane->p);
    const double p = *chance * rate_of(s, q, grade);

    if ((double)lane->p < p_min_of(s, q) || (is_auto && !pays(o, p, o->row_ns))) {
        forget_rates(s, q, grade);
        return 0;
    }
    q->tokens[q->n_tokens + q->drafts.n] = lane->token;
    q->drafts.grades[q->drafts.n++] = (unsigned char)grade;
    *chance = p;
    add_row(o, p);
    if (q->drafts.n == lane->most || o->rows == 0)
        return 0;
    return !is_auto || pays(o, p * rate_of(s, q, RATE_MEAN), o->row_ns + round_part(o, n_lanes));
}

/* rows: that the drafter evaluated in a round for n sequences; one that took in much text says nothing of others. */
static void count_round(kvant_session *s, int rows, int n, int64_t ns, outlook *o)
{
    const int rounds = s->drafts.model.e ? 1 : s->drafts.asked;

    o->ns += (double)ns;
    if (rows > 0 && rows <= 2 * n)
        count_cost(&s->drafts.round_cost, n, (double)ns / rounds);
}

static int count_live(const draft_lane *lanes, int n)
{
    int live = 0;

    for (int i = 0; i < n; i++)
        live += lanes[i].live;
    return live;
}

/* How many rounds the block makes before anybody looks: all of them where every guess is taken.  Else, on a device that
 * would wait for the host between them, those that are more likely looked at than not. */
static int rounds_ahead(const kvant_session *s, int n, int likely)
{
    const draft_state *d = &s->drafts;
    double rate = 0, p;
    int most = 1, k = 1;

    for (int i = 0; i < n; i++) {
        const request *q = d->lane_req[i];
        const double own = rate_of(s, q, RATE_MEAN);
        if (!d->lanes[i].live)
            continue;
        most = d->lanes[i].most - q->drafts.n > most ? d->lanes[i].most - q->drafts.n : most;
        rate = own > rate ? own : rate;
    }
    if (!likely)
        return most;
    for (p = rate; k < most && p >= 0.5 && !device_is_cpu(s->e->p.device); p *= rate)
        k++;
    return k;
}

/* Rounds of the target's own block; a failure costs their guesses. */
static int mtp_ask(kvant_session *s, int n, int first, int likely)
{
    draft_state *d = &s->drafts;
    const int rounds = rounds_ahead(s, n, likely);
    int count = 0;

    for (int i = 0; i < n; i++) {
        draft_lane *lane = &d->lanes[i];
        const int left = lane->most - d->lane_req[i]->drafts.n;
        if (!lane->live)
            continue;
        lane->fed += first ? 0 : d->asked;
        lane->item = count;
        d->guesses[count++] = (mtp_item){ .seq = lane->seq, .at = lane->fed, .n = left < rounds ? left : rounds,
                                          .token = first ? lane->tokens[lane->n - 1] : lane->token };
    }
    d->asked = rounds;
    d->looked = 0;
    engine_mtp_guess(s->e, d->guesses, count, likely, NULL);
    return count;
}

/* A round's guesses to their lanes.  Returns rows of a round, 0 where it had been made before. */
static int mtp_round(kvant_session *s, int n, int first, int likely)
{
    draft_state *d = &s->drafts;
    const int count = first || d->looked == d->asked ? mtp_ask(s, n, first, likely) : 0;

    for (int i = 0; i < n; i++) {
        draft_lane *lane = &d->lanes[i];
        if (!lane->live)
            continue;
        lane->token = d->guesses[lane->item].guess[d->looked];
        lane->p = d->guesses[lane->item].p[d->looked];
        lane->live = lane->token >= 0;
    }
    d->looked++;
    return count;
}

static int next_round(kvant_session *s, int n, int first, int likely)
{
    draft_model *m = &s->drafts.model;

    if (!m->e)
        return mtp_round(s, n, first, likely);
    return (first ? draft_model_begin : draft_model_next)(m, s->drafts.lanes, n, likely);
}

static void run_lanes(kvant_session *s, int n, outlook *o)
{
    draft_state *d = &s->drafts;
    int likely = s->p.spec == KVANT_SPEC_AUTO;

    for (int i = 0; i < n; i++) {
        d->chances[i] = 1;
        likely |= p_min_of(s, d->lane_req[i]) > 0;
    }
    for (int round = 0, live = count_live(d->lanes, n); live > 0; round++) {
        const int64_t t0 = clock_ns();
        const int rows = next_round(s, n, round == 0, likely);
        count_round(s, rows, live, clock_ns() - t0, o);
        for (int i = 0; i < n; i++)
            if (d->lanes[i].live)
                d->lanes[i].live = o->rows > 0 && take_one(s, d->lane_req[i], &d->lanes[i], &d->chances[i], live, o);
        live = count_live(d->lanes, n);
    }
    for (int i = 0; !d->model.e && i < n; i++)
        engine_mtp_end(s->e, d->lanes[i].seq);
    for (int i = 0; i < n; i++)
        if (d->lane_req[i]->drafts.n < least_of(s, d->lane_req[i]))
            d->lane_req[i]->drafts.n = 0;
}

/* 1: the model guesses for q in this step. */
static int wants_model(kvant_session *s, request *q, int room, const outlook *o)
{
    if (s->p.spec == KVANT_SPEC_DRAFT || s->p.spec == KVANT_SPEC_MTP)
        return !s->hooks.drafter;
    if (s->p.spec != KVANT_SPEC_AUTO || !(s->drafts.model.e || s->e->p.mtp) || s->hooks.drafter)
        return 0;
    const double mean = rate_of(s, q, RATE_MEAN);
    if (propose(s, q, room) > 0 && rate_of(s, q, q->drafts.grades[0]) >= mean)
        return 0;
    if (pays(o, mean, o->row_ns + round_part(o, s->n_running))) {
        s->drafts.unasked = 0;
        return !s->e->mtp.rests; /* it has rows from this step on */
    }
    forget_rates(s, q, RATE_MEAN);
    return 0;
}

/* ---- the plan ---- */

static void add_lane(kvant_session *s, request *q, int most, int *n)
{
    s->drafts.lane_req[*n] = q;
    s->drafts.lanes[(*n)++] = (draft_lane){
        .at = &q->drafts.model, .tokens = q->tokens, .n = q->n_tokens, .most = most, .seq = q->seq, .live = 1
    };
}

static int draft_one(kvant_session *s, request *q, int room, outlook *o)
{
    int k = propose(s, q, room);

    if (k > 0 && s->p.spec == KVANT_SPEC_AUTO)
        k = paying(s, q, k, o);
    return k < least_of(s, q) ? 0 : k;
}

static outlook look_out(const kvant_session *s)
{
    outlook o = { .tokens = s->sched.plan.n_decode, .rows = rows_left(s) };
    double base;

    step_costs(&s->drafts.cost, &base, &o.row_ns);
    o.ns = base + o.row_ns * o.tokens;
    step_costs(&s->drafts.round_cost, &o.round_ns, &o.round_row_ns);
    return o;
}

void draft_plan(kvant_session *s)
{
    outlook o;
    int n_lanes = 0;

    for (int i = 0; i < s->n_running; i++)
        s->running[i]->drafts.n = 0;
    if (s->p.spec == KVANT_SPEC_OFF)
        return;
    o = look_out(s);
    for (int i = 0; i < s->n_running; i++) {
        request *q = s->running[i];
        const int fits = room_of(s, q), room = fits < o.rows ? fits : o.rows;
        if (room > 0 && wants_model(s, q, room, &o)) {
            add_lane(s, q, room, &n_lanes);
        } else if (room > 0) {
            q->drafts.n = draft_one(s, q, room, &o);
            o.rows -= q->drafts.n;
        }
    }
    if (n_lanes > 0)
        run_lanes(s, n_lanes, &o);
    s->e->mtp.rests = s->p.spec == KVANT_SPEC_AUTO && s->e->p.mtp && ++s->drafts.unasked > REST_AFTER;
}

void draft_drop(kvant_session *s, request *q)
{
    if (s->drafts.model.e)
        draft_model_drop(&s->drafts.model, &q->drafts.model);
}

/* ---- what became of them ---- */

void draft_settle(kvant_session *s, request *q, int taken, int tried)
{
    const int looked = taken < tried ? taken + 1 : taken;
    draft_rate seen[N_RATES] = { { 0, 0 } };

    q->t.n_drafted += tried;
    q->t.n_draft_accepted += taken;
    s->st.drafted += (uint64_t)tried;
    s->st.draft_accepted += (uint64_t)taken;
    s->st.draft_steps[tried]++;
    for (int i = 0; i < taken; i++)
        s->st.draft_accepted_at[i]++;
    for (int i = 0; i < looked; i++) {
        draft_rate *r = &seen[q->drafts.grades[i]], *all = &seen[RATE_MEAN];
        r->taken += i < taken;
        r->tried += 1;
        all->taken += q->drafts.grades[i] >= RATE_MODEL && i < taken;
        all->tried += q->drafts.grades[i] >= RATE_MODEL;
    }
    for (int i = 0; i < N_RATES; i++)
        if (seen[i].tried > 0) {
            count_rate(&q->drafts.rates[i], &seen[i]);
            count_rate(&s->drafts.rates[i], &seen[i]);
        }
    q->drafts.n = 0;
}
