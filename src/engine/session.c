/* session.c: the public calls of a session.  See kvant/session.h and session_impl.h. */
#include <string.h>

#include "base/clock.h"
#include "base/abi/sized.h"
#include "base/mem.h"
#include "engine/session_impl.h"

enum { YIELD_NS = 100000000 }; /* 0.1 s: arbitrary, not tuned; masks of grammars take milliseconds */

void kvant_session_params_init(kvant_session_params *p, size_t size)
{
    const kvant_session_params defaults = { 0 };

    params_give(p, size, &defaults, sizeof defaults);
}

void kvant_request_init(kvant_request *r, size_t size)
{
    const kvant_request defaults = { .max_tokens = -1, .n_logprobs = -1, .n_prompt_logprobs = -1, .slot = -1,
                                     .draft_max = -1, .draft_min = -1, .draft_p_min = -1 };

    params_give(r, size, &defaults, sizeof defaults);
}

/* ---- create, free ---- */

static int resolve(kvant_session_params *p, int max_seqs, kvant_diag *diag)
{
    const int big = 1 << 24, least = max_seqs + KVANT_PAGE;

    p->max_queue = p->max_queue ? p->max_queue : 1024;
    p->max_queue_tenant = p->max_queue_tenant ? p->max_queue_tenant : p->max_queue;
    p->batch_tokens = p->batch_tokens ? p->batch_tokens : least > 2048 ? least : 2048;
    p->save_bytes = p->save_bytes ? p->save_bytes : (int64_t)256 << 20;
    p->ladder = p->ladder ? p->ladder : 1024;
    p->target_itl_ms = p->target_itl_ms ? p->target_itl_ms : 60;
    p->n_trace = p->n_trace ? p->n_trace : 4096;
    p->draft_max = p->draft_max ? p->draft_max : 16;
    KVANT_TRY(engine_in_range("queue length", p->max_queue, 1, 1 << 20, diag));
    KVANT_TRY(engine_in_range("queue length of a tenant", p->max_queue_tenant, 1, p->max_queue, diag));
    KVANT_TRY(engine_in_range("tokens per step", p->batch_tokens, least, big, diag));
    KVANT_TRY(engine_in_range("target time between tokens", p->target_itl_ms, -1, 1 << 20, diag));
    KVANT_TRY(engine_in_range("prefill budget", p->prefill_budget, 0, big, diag));
    KVANT_TRY(engine_in_range("dynamic batch tokens", p->max_batch_tokens, 0, big, diag));
    KVANT_TRY(engine_in_range("prefill cap", p->prefill_cap, 0, big, diag));
    KVANT_TRY(engine_in_range("prefill-first", p->prefill_first, 0, 1, diag));
    KVANT_TRY(engine_in_range("prefill-first threshold", p->prefill_first_waiting, 0, big, diag));
    KVANT_TRY(engine_in_range("prefill-first deferral", p->prefill_first_defer, 0, big, diag));
    KVANT_TRY(engine_in_range("preemption mode", p->preempt, KVANT_PREEMPT_RECOMPUTE, KVANT_PREEMPT_SAVE, diag));
    KVANT_TRY(engine_in_range("bytes for saved sequences", p->save_bytes, 0, INT64_MAX, diag));
    KVANT_TRY(engine_in_range("speculation", p->spec, KVANT_SPEC_OFF, KVANT_SPEC_MTP, diag));
    KVANT_TRY(engine_in_range("most drafts", p->draft_max, 1, KVANT_MOST_DRAFTS, diag));
    KVANT_TRY(engine_in_range("least drafts", p->draft_min, 0, KVANT_MOST_DRAFTS, diag));
    if (!(p->draft_p_min >= 0 && p->draft_p_min <= 1))
        return kvant_fail(diag, KVANT_EINVAL, "least chance of a draft: %g, wanted 0 to 1", (double)p->draft_p_min);
    if (p->spec == KVANT_SPEC_DRAFT && !p->draft)
        return kvant_fail(diag, KVANT_EINVAL, "speculation: a draft model, found none");
    KVANT_TRY(engine_in_range("host memory of prefixes", p->host_bytes, 0, INT64_MAX, diag));
    KVANT_TRY(engine_in_range("bytes of stored prefixes", p->store_bytes, 0, INT64_MAX, diag));
    KVANT_TRY(engine_in_range("trace length", p->n_trace, 1, 1 << 20, diag));
    KVANT_TRY(engine_in_range("snapshot ladder", p->ladder, -1, big, diag));
    if (p->ladder > 0 && p->ladder % KVANT_PAGE)
        return kvant_fail(diag, KVANT_EINVAL, "snapshot ladder: %d, wanted a multiple of %d", p->ladder, KVANT_PAGE);
    return KVANT_OK;
}

static int take_memory(kvant_session *s, kvant_diag *diag)
{
    const size_t n = (size_t)s->max_seqs, w = (size_t)s->p.max_queue + n;
    sched_plan *p = &s->sched.plan;

    s->cap_waiting = (int)w;
    s->waiting = kvant_calloc(w, sizeof *s->waiting);
    s->tenants.list = kvant_calloc(w, sizeof *s->tenants.list);
    s->running = kvant_calloc(n, sizeof *s->running);
    s->shown.trace = kvant_calloc((size_t)s->p.n_trace, sizeof *s->shown.trace);
    s->shown.slots = kvant_calloc(n, sizeof *s->shown.slots);
    s->parked = kvant_calloc(n, sizeof *s->parked);
    s->sched.running = kvant_calloc(n, sizeof *s->sched.running);
    s->sched.waiting = kvant_calloc(QUEUE_HEADS, sizeof *s->sched.waiting);
    s->tenants.ranked = kvant_calloc(n + QUEUE_HEADS, sizeof(tenant *));
    s->fair.heavy = kvant_calloc(n + QUEUE_HEADS, sizeof *s->fair.heavy);
    p->decode = kvant_calloc(n, sizeof *p->decode);
    p->preempt = kvant_calloc(n, sizeof *p->preempt);
    p->admit = kvant_calloc(QUEUE_HEADS, sizeof *p->admit);
    p->prompt = kvant_calloc(n + QUEUE_HEADS, sizeof *p->prompt);
    p->tokens = kvant_calloc(n + QUEUE_HEADS, sizeof *p->tokens);
    s->step.items = kvant_calloc(n, sizeof *s->step.items);
    s->step.req = kvant_calloc(n, sizeof *s->step.req);
    s->step.draft = kvant_calloc(n, sizeof *s->step.draft);
    s->step.next_token = kvant_calloc(n, sizeof *s->step.next_token);
    s->drafts.lanes = kvant_calloc(n, sizeof *s->drafts.lanes);
    s->drafts.lane_req = kvant_calloc(n, sizeof *s->drafts.lane_req);
    s->drafts.chances = kvant_calloc(n, sizeof *s->drafts.chances);
    s->drafts.guesses = kvant_calloc(n, sizeof *s->drafts.guesses);
    s->scratch = kvant_calloc((size_t)s->n_vocab, sizeof *s->scratch);
    s->hidden = kvant_calloc((size_t)s->n_embd, sizeof *s->hidden);
    if (!s->waiting || !s->tenants.list || !s->running || !s->shown.trace || !s->shown.slots || !s->parked ||
        !s->sched.running || !s->sched.waiting || !s->tenants.ranked || !s->fair.heavy || !p->tokens || !p->decode ||
        !p->preempt || !p->admit || !p->prompt || !s->step.items || !s->step.req || !s->step.draft ||
        !s->drafts.lanes || !s->drafts.lane_req || !s->drafts.chances || !s->drafts.guesses || !s->step.next_token ||
        !s->scratch || !s->hidden)
        return kvant_fail(diag, KVANT_ENOMEM, "session: out of memory for %d sequences", s->max_seqs);
    for (int i = 0; i < s->max_seqs; i++)
        s->shown.slots[i].slot = i;
    return prefix_create(&s->prefix, &s->e->kv, diag);
}

static void release(kvant_session *s)
{
    slots_free(s);
    draft_model_free(&s->drafts.model);
    if (s->e)
        s->e->mtp.rests = 0;
    prefix_destroy(&s->prefix);
    blocks_close(s);
    void *mem[] = { s->waiting,
                    s->tenants.list,
                    s->running,
                    s->shown.trace,
                    s->shown.slots,
                    s->parked,
                    s->sched.running,
                    s->sched.waiting,
                    s->sched.plan.decode,
                    s->sched.plan.preempt,
                    s->sched.plan.admit,
                    s->sched.plan.prompt,
                    s->step.items,
                    s->step.req,
                    s->step.next_token,
                    s->scratch,
                    s->hidden,
                    s->tenants.ranked,
                    s->sched.plan.tokens,
                    s->fair.heavy,
                    (void *)(uintptr_t)s->p.snapshot_dir,
                    s->lora.scales,
                    s->lora.digest,
                    s->step.draft,
                    s->drafts.lanes,
                    s->drafts.lane_req,
                    s->drafts.chances,
                    s->drafts.guesses };
    for (size_t i = 0; i < sizeof mem / sizeof *mem; i++)
        kvant_free(mem[i]);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->work);
    kvant_free(s);
}

static int check_engine(const kvant_session *s, kvant_diag *diag)
{
    const kvant_engine *e = s->e;

    for (int i = 0; i < e->p.max_seqs; i++)
        if (e->kv.seqs[i].used)
            return kvant_fail(diag, KVANT_EINVAL, "session: sequence %d of the engine is in use, wanted an idle engine",
                              i);
    if (e->p.logits_rows < e->p.max_seqs)
        return kvant_fail(diag, KVANT_EINVAL, "session: the engine has %d rows of logits, wanted one per sequence (%d)",
                          e->p.logits_rows, e->p.max_seqs);
    if (s->p.spec == KVANT_SPEC_OFF)
        return KVANT_OK;
    if (s->p.spec == KVANT_SPEC_MTP && !e->p.mtp)
        return kvant_fail(diag, KVANT_EINVAL, "speculation: MTP, and the engine was made without (params.mtp)");
    if (e->p.logits_rows == e->p.max_seqs)
        return kvant_fail(diag, KVANT_EINVAL, "speculation: the engine has %d rows of logits, wanted some beyond one per "
                          "sequence", e->p.logits_rows);
    return kvant_engine_verifies(e, diag);
}

static int start(kvant_session *s, kvant_diag *diag)
{
    KVANT_TRY(check_engine(s, diag));
    KVANT_TRY(resolve(&s->p, s->max_seqs, diag));
    KVANT_TRY(take_memory(s, diag));
    if (s->p.draft && s->p.spec != KVANT_SPEC_OFF)
        KVANT_TRY(draft_model_create(&s->drafts.model, s->e, s->p.draft, diag));
    KVANT_TRY(session_lora_create(s, diag));
    KVANT_TRY(slots_create(s, diag));
    KVANT_TRY(blocks_create(s, diag));
    session_publish(s, NULL); /* what others see before the owner's first turn */
    if (pthread_create(&s->owner, NULL, session_main, s) != 0)
        return kvant_fail(diag, KVANT_ENOMEM, "session: its thread could not be started");
    return KVANT_OK;
}

int kvant_session_create(kvant_engine *e, const kvant_session_params *params, kvant_session **out, kvant_diag *diag)
{
    kvant_session *s = kvant_calloc(1, sizeof *s);
    const kvant_model_info *info = kvant_model_get_info(e->m);
    pthread_condattr_t attr;
    const char *dir;
    int code;

    if (!s)
        return kvant_fail(diag, KVANT_ENOMEM, "session: out of memory");
    s->e = e;
    s->p = kvant_session_defaults();
    code = params_take(&s->p, sizeof s->p, params, "kvant_session_params", diag);
    dir = code == KVANT_OK ? s->p.snapshot_dir : NULL;
    s->p.snapshot_dir = dir ? kvant_strdup(dir) : NULL;
    if (dir && !s->p.snapshot_dir)
        code = kvant_fail(diag, KVANT_ENOMEM, "session: out of memory");
    s->max_seqs = e->p.max_seqs;
    s->n_ctx = e->p.n_ctx;
    s->n_vocab = info->n_vocab;
    s->n_embd = info->n_embd;
    s->pages_suffice = kv_pages_suffice(&e->kv);
    s->counts.next_id = 1;
    s->yield_ns = YIELD_NS;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); /* timed waits, whatever the wall clock does */
    pthread_cond_init(&s->work, &attr);
    pthread_condattr_destroy(&attr);
    if (code == KVANT_OK)
        code = start(s, diag);
    if (code < 0) {
        release(s);
        return code;
    }
    *out = s;
    return KVANT_OK;
}

void kvant_session_free(kvant_session *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->orders.stop = 1;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
    kvant_engine_cancel(s->e);
    pthread_join(s->owner, NULL);
    atomic_store(&s->e->cancel, 0); /* it may have come after the last step */
    release(s);
}

/* ---- requests ---- */

/* With the lock held. */
static int may_submit(const kvant_session *s, uint32_t whose, kvant_diag *diag)
{
    if (s->shown.stats.failed)
        return kvant_fail(diag, KVANT_EDEVICE, "engine: stopped after an error (%s)",
                          kvant_error_text(s->shown.stats.failed));
    if (s->orders.stop || s->orders.drain)
        return kvant_fail(diag, KVANT_EBUSY, "server: draining, no new requests");
    if (s->counts.queued >= s->p.max_queue)
        return kvant_fail(diag, KVANT_EBUSY, "queue: full, %d requests wait", s->counts.queued);
    if (tenant_queued(s, whose) >= s->p.max_queue_tenant)
        return kvant_fail(diag, KVANT_EBUSY, "queue: this key's share is full, %d of its requests wait",
                          s->p.max_queue_tenant);
    return KVANT_OK;
}

int kvant_session_set_queue_tenant(kvant_session *s, int most, kvant_diag *diag)
{
    KVANT_TRY(engine_in_range("queue length of a tenant", most, 1, s->p.max_queue, diag));
    pthread_mutex_lock(&s->lock);
    s->p.max_queue_tenant = most;
    pthread_mutex_unlock(&s->lock);
    return KVANT_OK;
}

static void live_add(kvant_session *s, request *q)
{
    q->id = s->counts.next_id++;
    q->next = s->live;
    if (s->live)
        s->live->prev = q;
    s->live = q;
    if (s->inbox.last)
        s->inbox.last->inbox = q;
    else
        s->inbox.first = q;
    s->inbox.last = q;
    tenant_join(s, q);
    s->counts.submitted++;
}

int kvant_session_submit(kvant_session *s, const kvant_request *r, uint64_t *id, kvant_diag *diag)
{
    request *q = NULL;
    int code;

    pthread_mutex_lock(&s->lock);
    code = may_submit(s, r->tenant, diag); /* a full queue costs no copy of the prompt */
    s->counts.rejected += code < 0;
    pthread_mutex_unlock(&s->lock);
    KVANT_TRY(code);
    KVANT_TRY(request_create(s, r, &q, diag));
    q->t.submitted_ns = clock_ns();
    pthread_mutex_lock(&s->lock);
    code = may_submit(s, r->tenant, diag);
    if (code == KVANT_OK) {
        session_lora_join(s, q, r->lora == NULL);
        live_add(s, q);
        *id = q->id; /* the owner sees the request only after the lock is free again */
        pthread_cond_signal(&s->work);
    }
    s->counts.rejected += code < 0;
    pthread_mutex_unlock(&s->lock);
    if (code < 0)
        request_free(q);
    return code;
}

void kvant_session_cancel(kvant_session *s, uint64_t id)
{
    int found = 0; /* only the first cancel of a request may disturb the step */

    pthread_mutex_lock(&s->lock);
    for (request *q = s->live; q && !found; q = q->next)
        found = q->id == id && atomic_exchange(&q->cancel, 1) == 0;
    pthread_mutex_unlock(&s->lock);
    if (found)
        kvant_engine_cancel(s->e); /* a long prompt step ends at its next pass; nothing of it is lost */
}

void kvant_session_resume(kvant_session *s, uint64_t id)
{
    pthread_mutex_lock(&s->lock);
    for (request *q = s->live; q; q = q->next)
        if (q->id == id)
            atomic_fetch_sub(&q->hold, 1);
    s->orders.resumed = 1;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
}

void kvant_session_drain(kvant_session *s, int64_t ms)
{
    const int64_t until = clock_ns() + (ms > 0 ? ms : 0) * 1000000;

    pthread_mutex_lock(&s->lock);
    if (!s->orders.drain || until < s->orders.drain_until_ns)
        s->orders.drain_until_ns = until;
    s->orders.drain = 1;
    s->shown.stats.draining = 1;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
}

/* ---- what it is doing ---- */

void kvant_session_get_stats(kvant_session *s, kvant_session_stats *out)
{
    pthread_mutex_lock(&s->lock);
    *out = s->shown.stats;
    out->queued = s->counts.queued;
    out->submitted = s->counts.submitted;
    out->rejected = s->counts.rejected;
    pthread_mutex_unlock(&s->lock);
}

int kvant_session_trace(kvant_session *s, kvant_step_record *out, int cap)
{
    uint64_t n, ring = (uint64_t)s->p.n_trace;

    pthread_mutex_lock(&s->lock);
    n = s->shown.n_trace < ring ? s->shown.n_trace : ring;
    n = cap < 0 ? 0 : n < (uint64_t)cap ? n : (uint64_t)cap;
    for (uint64_t i = 0; i < n; i++)
        out[i] = s->shown.trace[(s->shown.n_trace - n + i) % ring];
    pthread_mutex_unlock(&s->lock);
    return (int)n;
}

int kvant_session_slots(kvant_session *s, kvant_slot_info *out, int cap)
{
    const int n = cap < s->max_seqs ? cap : s->max_seqs;

    pthread_mutex_lock(&s->lock);
    if (n > 0)
        memcpy(out, s->shown.slots, (size_t)n * sizeof *out);
    pthread_mutex_unlock(&s->lock);
    return n > 0 ? n : 0;
}

/* ---- slots ---- */

static int name_ok(const char *name)
{
    const size_t n = name ? strlen(name) : 0;

    return n >= 1 && n <= 64 && name[0] != '.' &&
           strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-") == n;
}

static int check_action(const kvant_session *s, int what, int slot, const char *name, kvant_diag *diag)
{
    const int files = what == KVANT_SLOT_SAVE || what == KVANT_SLOT_RESTORE || what == KVANT_CACHE_SAVE ||
                      what == KVANT_CACHE_RESTORE;

    KVANT_TRY(engine_in_range("slot action", what, KVANT_SLOT_SAVE, KVANT_CACHE_CLEAR, diag));
    if (what <= KVANT_SLOT_ERASE)
        KVANT_TRY(engine_in_range("slot", slot, 0, s->max_seqs - 1, diag));
    if (files && !s->p.snapshot_dir)
        return kvant_fail(diag, KVANT_EINVAL, "snapshots: no directory was configured");
    if (files && !name_ok(name))
        return kvant_fail(diag, KVANT_EINVAL, "snapshot name: wanted 1 to 64 of A-Z a-z 0-9 _ . -, not a dot first");
    return KVANT_OK;
}

int kvant_session_slot(kvant_session *s, int what, int slot, const char *name, const unsigned char salt[16],
                       void (*done)(void *user, const kvant_slot_result *r), void *user, kvant_diag *diag)
{
    KVANT_TRY(check_action(s, what, slot, name, diag));
    action *a = kvant_calloc(1, sizeof *a);
    if (!a)
        return kvant_fail(diag, KVANT_ENOMEM, "slot action: out of memory");
    a->what = what;
    a->slot = slot;
    a->done = done;
    a->user = user;
    memcpy(a->salt, salt, sizeof a->salt);
    if (name)
        strncpy(a->name, name, sizeof a->name - 1);
    pthread_mutex_lock(&s->lock);
    const int refused = s->orders.stop;
    if (!refused) {
        if (s->inbox.last_action)
            s->inbox.last_action->next = a;
        else
            s->inbox.first_action = a;
        s->inbox.last_action = a;
        pthread_cond_signal(&s->work);
    }
    pthread_mutex_unlock(&s->lock);
    if (!refused)
        return KVANT_OK;
    kvant_free(a);
    return kvant_fail(diag, KVANT_EBUSY, "server: stopping");
}
