/* session_step.c: one step of a session: its items, room for their pages, the engine's step, what each request got.
 *
 * A step that fails ends no more than the request at fault.  The engine says of a failed step only that it failed, so
 * those that were in it and got nothing step alone from there on, until they are past the place.  A request that fails
 * alone ends. */
#include <string.h>

#include "base/clock.h"
#include "engine/session_impl.h"

/* ---- what is run ---- */

static void add_item(kvant_session *s, request *q)
{
    const int len = request_len(s, q), is_prompt = len < q->r.n_prompt;
    /* the device chooses, or leaves few to choose from, where nobody looks at the logits */
    const int wants = q->r.mask || q->r.n_logprobs >= 0 ? KVANT_LOGITS_LAST
                      : q->greedy                       ? KVANT_LOGITS_GREEDY
                                                        : kvant_sampler_wants(q->sampler);
    int logits = len + q->rows < q->n_tokens ? KVANT_LOGITS_NONE : wants;

    if (is_prompt && q->r.kind != KVANT_REQUEST_GENERATE)
        logits = KVANT_LOGITS_HIDDEN;
    if (request_tells_prompt(q))
        logits = KVANT_LOGITS_ALL;
    s->step.items[s->step.n] = (kvant_item){
        .seq = q->seq, .tokens = q->tokens + len, .n = q->rows + q->drafts.n, .prompt = is_prompt, .logits = logits
    };
    s->step.draft[s->step.n] = q->drafts.n;
    s->step.req[s->step.n++] = q;
}

/* A request that was in a step that failed runs by itself; nobody else has rows then. */
static void isolate_suspect(kvant_session *s)
{
    request *alone = NULL;

    for (int i = 0; i < s->n_running && !alone; i++)
        if (s->running[i]->fault_to > 0 && s->running[i]->rows > 0)
            alone = s->running[i];
    if (!alone)
        return;
    for (int i = 0; i < s->n_running; i++)
        if (s->running[i] != alone)
            s->running[i]->rows = 0;
    s->sched.plan.n_decode = request_len(s, alone) >= alone->r.n_prompt;
    s->sched.plan.prompt_tokens = s->sched.plan.n_decode ? 0 : alone->rows;
}

/* A step has logits rows for one page of one request that wants those of every prompt token.  Within a page nothing
 * cuts the piece: all its rows come, or none. */
static void trim_told(kvant_session *s)
{
    int rows = KVANT_PAGE;

    for (int i = 0; i < s->n_running; i++) {
        request *q = s->running[i];
        const int planned = q->rows, page = KVANT_PAGE - request_len(s, q) % KVANT_PAGE;
        if (planned == 0 || !request_tells_prompt(q))
            continue;
        q->rows = rows == 0 ? 0 : planned < page ? planned : page;
        s->sched.plan.prompt_tokens -= planned - q->rows;
        rows = 0;
    }
}

/* Returns the pages that the items take. */
static int make_items(kvant_session *s)
{
    int pages = 0;

    s->step.n = 0;
    for (int i = 0; i < s->n_running; i++) {
        request *q = s->running[i];
        if (q->rows == 0)
            continue;
        add_item(s, q);
        pages += kv_pages_missing(&s->e->kv, q->seq, request_len(s, q) + q->rows);
    }
    return pages;
}

/* The plan takes only what can be had, so that eviction is enough.  Should a promise be wrong all the same, the
 * youngest pay for it with time, and `preempted_unplanned` says that there is a fault. */
static void make_room(kvant_session *s)
{
    const page_pool *pool = &s->e->kv.pages;
    int pages = make_items(s);

    if (pages > pool->n_free)
        prefix_evict(&s->prefix, pages - pool->n_free);
    while (pages > pool->n_free && s->n_running > 0) {
        session_preempt(s, s->n_running - 1);
        s->st.preempted_unplanned++;
        pages = make_items(s);
        if (pages > pool->n_free)
            prefix_evict(&s->prefix, pages - pool->n_free);
    }
}

/* ---- what came of it ---- */

/* The engine cannot go on: a lost device, a vanished model file. */
static int is_fatal(int code)
{
    return code == KVANT_EDEVICE || code == KVANT_EIO || code == KVANT_EINTERNAL;
}

static int place_of(const kvant_session *s, const request *q)
{
    int i = 0;

    while (s->running[i] != q)
        i++;
    return i;
}

/* The pages that a request took come out of its promise. */
static void settle(kvant_session *s, request *q, int before)
{
    const int taken = kv_pages_held(&s->e->kv, q->seq) - kv_pages_at(&s->e->kv, before);

    q->promised -= taken < q->promised ? (taken > 0 ? taken : 0) : q->promised;
}

static void collect(kvant_session *s, int item, int before, kvant_diag *diag)
{
    request *q = s->step.req[item];
    const int rows = request_len(s, q) - before, at = place_of(s, q);

    settle(s, q, before);
    q->fault_to = request_len(s, q) < q->fault_to ? q->fault_to : 0;
    if (request_after_step(s, q, item, rows, diag))
        session_remove(s->running, &s->n_running, at);
}

/* Nothing came of this item.  If the sequence is unusable, the request begins anew. */
static void suspect(kvant_session *s, request *q, int before)
{
    settle(s, q, before);
    q->fault_to = before + q->rows;
    if (s->e->kv.seqs[q->seq].broken)
        session_preempt(s, place_of(s, q));
}

static void step_failed(kvant_session *s, const int *before, int code, kvant_diag *diag)
{
    const int refused = s->e->n_items == 0; /* before anything ran */

    s->st.failed_steps++;
    if (s->step.n == 1) {
        request *q = s->step.req[0];
        session_remove(s->running, &s->n_running, place_of(s, q));
        request_end(s, q, KVANT_FINISH_ERROR, -1, code, diag->text);
        return;
    }
    for (int i = 0; i < s->step.n; i++) {
        const int own = refused ? code : kvant_step_code(s->e, i);
        if (own == KVANT_OK || own == KVANT_ENUMERIC)
            collect(s, i, before[i], diag);
        else
            suspect(s, s->step.req[i], before[i]);
    }
}

static void take_results(kvant_session *s, const int *before, int code, kvant_diag *diag)
{
    if (is_fatal(code)) {
        s->st.failed = code;
        session_end_all(s, code, diag->text);
    } else if (code == KVANT_OK || code == KVANT_ECANCELED || code == KVANT_ENUMERIC) {
        for (int i = 0; i < s->step.n; i++)
            collect(s, i, before[i], diag);
    } else {
        step_failed(s, before, code, diag);
    }
}

void session_run_step(kvant_session *s, int waiting)
{
    kvant_diag diag = { "" };
    int *before = s->step.next_token; /* [max_seqs] */

    isolate_suspect(s);
    trim_told(s);
    draft_plan(s);
    make_room(s);
    for (int i = 0; i < s->step.n; i++)
        before[i] = request_len(s, s->step.req[i]);
    const int64_t t0 = clock_ns();
    const int code = s->step.n ? kvant_step_drafts(s->e, s->step.items, s->step.draft, s->step.n, &diag) : KVANT_OK;
    const int64_t t1 = clock_ns();
    session_count_step(s, t0, t1, waiting);
    pace_count(s, t1 - t0);
    fair_charge(s, t1 - t0);
    draft_count_step(s, t1 - t0);
    const kvant_step_record r = { s->st.steps,
                                  t0,
                                  t1,
                                  s->sched.plan.n_decode,
                                  s->sched.plan.prompt_tokens,
                                  waiting,
                                  s->n_running,
                                  s->sched.plan.n_deferred,
                                  s->sched.plan.n_preempt,
                                  s->e->kv.pages.n - s->e->kv.pages.n_free };
    take_results(s, before, code, &diag);
    session_publish(s, &r);
}
