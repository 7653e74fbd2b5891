/* session_stats.c: what a session counts per step, and what other threads may see of it. */
#include "base/trace.h"
#include "cache/kv_image.h"
#include "engine/session_impl.h"

static int bucket(int v, const int *last, int n)
{
    int i = 0;
    while (i < n && v > last[i])
        i++;
    return i;
}

void session_count_step(kvant_session *s, int64_t t0, int64_t t1, int waiting)
{
    static const int prompt_last[] = { 0, 64, 128, 256, 512 }, decode_last[] = { 0, 63, 127, 255, 511 };
    static const int waiting_last[] = { 0, 7, 15, 31, 63 };
    static const int tokens_last[KVANT_STEP_EDGES] = { 1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384 };
    const sched_plan *p = &s->sched.plan;
    kvant_session_stats *st = &s->st;
    const kvant_device *dev = engine_head(s->e)->dev;

    st->steps++;
    st->replayed_passes = dev->vt->replayed ? dev->vt->replayed(dev) : 0;
    st->decode_rows += (uint64_t)p->n_decode;
    st->decode_only_steps += p->n_decode > 0 && p->prompt_tokens == 0;
    st->deferred_rows += (uint64_t)p->n_deferred;
    st->waiting_sum += (uint64_t)waiting;
    st->waiting_max = waiting > st->waiting_max ? waiting : st->waiting_max;
    st->step_ns += t1 - t0;
    st->last_step_ns = t1;
    st->prompt_hist[bucket(p->prompt_tokens, prompt_last, KVANT_HIST - 1)]++;
    st->decode_hist[bucket(p->n_decode, decode_last, KVANT_HIST - 1)]++;
    st->waiting_hist[bucket(waiting, waiting_last, KVANT_HIST - 1)]++;
    st->tokens_hist[bucket(p->n_decode + p->prompt_tokens, tokens_last, KVANT_STEP_EDGES)]++;
    st->step_tokens += (uint64_t)(p->n_decode + p->prompt_tokens);
    if (trace_on()) {
        const char *names[] = { "decode rows", "prompt tokens", "waiting" };
        const int values[] = { p->n_decode, p->prompt_tokens, waiting };
        trace_span("step", 0, t0, t1);
        trace_counters("scheduler", t0, names, values, 3);
    }
}

static void fill_slot(const kvant_session *s, kvant_slot_info *o, const request *q)
{
    const int len = request_len(s, q);

    *o = (kvant_slot_info){ .slot = q->seq,
                            .state = len < q->r.n_prompt ? KVANT_SLOT_PREFILL : KVANT_SLOT_DECODE,
                            .request = q->id,
                            .n_prompt = q->t.n_prompt,
                            .n_cached = q->t.n_cached,
                            .n_tokens = len,
                            .n_generated = q->n_generated,
                            .max_tokens = q->r.max_tokens,
                            .pages = s->e->kv.seqs[q->seq].n_pages,
                            .started_ns = q->t.started_ns,
                            .first_token_ns = q->t.first_token_ns };
}

static void fill_now(kvant_session *s)
{
    kvant_session_stats *st = &s->st;
    const kv_cache *kv = &s->e->kv;
    kvant_plan plan = { 0 };

    st->running = s->n_running;
    st->prefilling = 0;
    for (int i = 0; i < s->n_running; i++)
        st->prefilling += request_len(s, s->running[i]) < s->running[i]->r.n_prompt;
    st->decoding = st->running - st->prefilling;
    st->paused = 0;
    for (int i = 0; i < s->n_running; i++)
        st->paused += atomic_load(&s->running[i]->hold) > 0;
    st->max_seqs = s->max_seqs;
    st->max_queue = s->p.max_queue;
    st->pages = kv->pages.n;
    st->pages_free = kv->pages.n_free;
    st->pages_cached = kv->pages.n_idle;
    st->states = kv->snaps.n;
    st->states_free = kv->snaps.n_free;
    st->evicted_pages = s->prefix.evicted_pages;
    st->evicted_states = s->prefix.evicted_snaps;
    tiers_stats(s, st);
    if (st->cache_bytes == 0 && kvant_plan_make(s->e->m, &s->e->p, &plan, NULL) == KVANT_OK)
        st->cache_bytes = plan.kv + plan.window + plan.tail + plan.state;
    st->cache_bytes_used = (int64_t)kv_page_image_bytes(kv) * (kv->pages.n - kv->pages.n_free - kv->pages.n_idle) +
                           (int64_t)kv_window_image_bytes(kv) * (kv->windows.n - kv->windows.n_free) +
                           (int64_t)kv_tail_image_bytes(kv) * (kv->tails.n - kv->tails.n_free) +
                           (int64_t)kv_state_image_bytes(kv) * s->n_running;
    st->cache_bytes_cached = (int64_t)kv_page_image_bytes(kv) * kv->pages.n_idle +
                             (int64_t)kv_state_image_bytes(kv) * (kv->snaps.n - kv->snaps.n_free);
}

void session_publish(kvant_session *s, const kvant_step_record *step)
{
    fill_now(s);
    pthread_mutex_lock(&s->lock);
    const int draining = s->shown.stats.draining;
    s->shown.stats = s->st;
    s->shown.stats.draining = draining;
    for (int i = 0; i < s->max_seqs; i++) {
        const int held = s->parked[i].tokens != NULL;
        s->shown.slots[i] = (kvant_slot_info){ .slot = i,
                                               .state = held ? KVANT_SLOT_PARKED : KVANT_SLOT_FREE,
                                               .n_tokens = held ? s->parked[i].n : 0,
                                               .pages = held ? s->e->kv.seqs[i].n_pages : 0,
                                               .bytes = held ? s->parked[i].bytes : 0 };
    }
    for (int i = 0; i < s->n_running; i++)
        fill_slot(s, &s->shown.slots[s->running[i]->seq], s->running[i]);
    if (step)
        s->shown.trace[s->shown.n_trace++ % (uint64_t)s->p.n_trace] = *step;
    pthread_mutex_unlock(&s->lock);
    if (s->step.events > 0 && s->p.wake)
        s->p.wake(s->p.wake_user);
    s->step.events = 0;
}
