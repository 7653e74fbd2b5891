/* session_request.c: one request of a session: its snapshots, its start in a sequence, what a step gave it, its end. */
#include <assert.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cache/kv_image.h"
#include "engine/session_impl.h"

/* ---- where snapshots are taken ---- */

static void take_cut(int *best, int pos, int c)
{
    if (c > pos && (*best == 0 || c < *best))
        *best = c;
}

/* The end of the prompt on the grid; the end of its system part; where another prompt turned off; and a ladder from the
 * end back, each rung twice as far, on multiples of `ladder` so that prompts of other lengths find the same rungs. */
int request_cut(const kvant_session *s, const request *q, int pos)
{
    const int end = (q->r.n_prompt - 1) / KVANT_PAGE * KVANT_PAGE, step = s->p.ladder, snaps = s->e->kv.snaps.n;
    int best = 0;

    if (s->pages_suffice || s->p.no_prefix_cache || snaps == 0 || (q->r.cache & KVANT_CACHE_NO_WRITE) ||
        q->own_rows_only || pos >= end)
        return 0;
    take_cut(&best, pos, end);
    if (q->r.n_system < end)
        take_cut(&best, pos, q->r.n_system / KVANT_PAGE * KVANT_PAGE);
    take_cut(&best, pos, q->branch);
    for (int k = 0, back = step; step > 0 && back < end && k < snaps / 4; k++, back *= 2)
        take_cut(&best, pos, (end - back) / step * step);
    if (step > 0 && snaps >= 8)
        take_cut(&best, pos, end / 4 / step * step);
    return best;
}

int request_share_point(const kvant_session *s, const request *q, int pos)
{
    int last = 0;

    if (s->pages_suffice)
        return pos / KVANT_PAGE * KVANT_PAGE;
    for (int c = request_cut(s, q, 0); c > 0 && c <= pos; c = request_cut(s, q, c))
        last = c;
    return last;
}

/* ---- start, preemption ---- */

int request_len(const kvant_session *s, const request *q)
{
    return q->seq < 0 ? 0 : s->e->kv.seqs[q->seq].len;
}

/* Room for the hidden states that the request wants one by one. */
static int take_hidden(kvant_session *s, request *q, kvant_diag *diag)
{
    const int n = q->r.kind == KVANT_REQUEST_EMBED_FIRST  ? 1
                  : q->r.kind == KVANT_REQUEST_EMBED_EACH ? q->r.n_prompt
                                                          : 0;

    if (n == 0)
        return KVANT_OK;
    q->hidden = kvant_calloc((size_t)n * (size_t)s->n_embd, sizeof *q->hidden);
    if (!q->hidden)
        return kvant_fail(diag, KVANT_ENOMEM, "request: out of memory for %d hidden states", n);
    q->n_hidden = n;
    return KVANT_OK;
}

static int first_start(kvant_session *s, request *q, kvant_diag *diag)
{
    const int room = q->most_tokens + 1;
    int32_t *all = kvant_realloc(q->tokens, (size_t)q->n_tokens * sizeof *all, (size_t)room * sizeof *all);

    if (!all)
        return kvant_fail(diag, KVANT_ENOMEM, "request: out of memory for %d tokens", room);
    q->tokens = all;
    if (!q->greedy) {
        KVANT_TRY(kvant_sampler_create(&q->sp, s->n_vocab, &q->sampler, diag));
        for (int i = 0; i < q->r.n_prompt; i++)
            kvant_sampler_accept(q->sampler, q->tokens[i]);
    }
    KVANT_TRY(take_hidden(s, q, diag));
    q->t.started_ns = clock_ns();
    return KVANT_OK;
}

void request_take_sequence(kvant_session *s, request *q)
{
    int seq = q->r.slot;

    if (slots_continues(s, q)) {
        q->own_rows_only = 1;
        kvant_free(s->parked[seq].tokens); /* the prompt has them */
        s->parked[seq].tokens = NULL;
    } else if (seq >= 0) {
        slots_drop(s, seq);
        kv_seq_take(&s->e->kv, seq);
    } else if (kv_seq_new(&s->e->kv, &seq, NULL) < 0) {
        slots_drop_oldest(s);
        kv_seq_new(&s->e->kv, &seq, NULL);
    }
    engine_lora_set(s->e, seq, q->lora);
    q->seq = seq;
}

static int load_saved(kvant_session *s, request *q, kvant_diag *diag)
{
    const int code = kv_image_load(&s->e->kv, q->seq, q->saved.n, q->saved.data, diag);

    kvant_free(q->saved.data);
    q->saved.data = NULL;
    s->saved_bytes -= (int64_t)q->saved.bytes;
    return code;
}

/* Tokens of its prompt that need no evaluation, found or not yet looked for; the last token is always evaluated. */
static int known_tokens(const request *q)
{
    const int most = (q->r.n_prompt - 1) / KVANT_PAGE * KVANT_PAGE;
    const int matched = q->hit.matched * KVANT_PAGE < most ? q->hit.matched * KVANT_PAGE : most;

    return matched > q->t.n_cached ? matched : q->t.n_cached;
}

int request_start(kvant_session *s, request *q, kvant_diag *diag)
{
    const int first = q->t.started_ns == 0;

    q->shifted = 0;
    if (first)
        KVANT_TRY(first_start(s, q, diag));
    s->e->hidden_sinks[q->seq] = (hidden_sink){ q->hidden, q->n_hidden };
    if (request_len(s, q) > 0)
        assert(q->own_rows_only); /* goes on in its slot */
    else if (q->saved.data)
        KVANT_TRY(load_saved(s, q, diag));
    else if (q->hit.pages > 0)
        KVANT_TRY(prefix_resume(&s->prefix, &q->hit, q->seq, diag));
    if (!first)
        return KVANT_OK;
    q->t.n_cached = request_len(s, q);
    s->st.prompt_tokens += (uint64_t)q->r.n_prompt;
    s->st.cached_tokens += (uint64_t)q->t.n_cached;
    s->st.prefix_queries += (uint64_t)q->r.n_prompt;
    s->st.prefix_hits += (uint64_t)q->t.n_cached;
    s->st.prefix_known += (uint64_t)known_tokens(q);
    s->st.started++;
    return KVANT_OK;
}

static void drop_snaps(kvant_session *s, request *q)
{
    for (int i = 0; i < q->n_snaps; i++)
        kv_snapshot_free(&s->e->kv, q->snaps[i].id);
    if (q->rolling >= 0)
        kv_snapshot_free(&s->e->kv, q->rolling);
    q->n_snaps = 0;
    q->rolling = -1;
}

static int can_save(const kvant_session *s, const request *q)
{
    const int len = request_len(s, q);

    return len > 0 && !s->e->kv.seqs[q->seq].broken &&
           (int64_t)kv_image_bytes(&s->e->kv, len) <= s->p.save_bytes - s->saved_bytes;
}

int request_can_yield(const kvant_session *s, const request *q)
{
    return !q->own_rows_only || can_save(s, q);
}

static int save(kvant_session *s, request *q)
{
    const int len = request_len(s, q);
    const size_t bytes = kv_image_bytes(&s->e->kv, len);

    if (!can_save(s, q))
        return 0;
    q->saved.data = kvant_alloc(bytes);
    if (!q->saved.data)
        return 0; /* no memory: it is computed again instead */
    if (kv_image_save(&s->e->kv, q->seq, q->saved.data, NULL) < 0) {
        kvant_free(q->saved.data);
        q->saved.data = NULL;
        return 0;
    }
    q->saved.n = len;
    q->saved.bytes = bytes;
    s->saved_bytes += (int64_t)bytes;
    return 1;
}

void request_leave(kvant_session *s, request *q)
{
    kv_seq_free(&s->e->kv, q->seq);
    draft_drop(s, q);
    q->seq = -1;
    q->promised = 0;
}

void request_preempt(kvant_session *s, request *q)
{
    /* the sums of hidden states are no part of an image */
    if ((s->p.preempt == KVANT_PREEMPT_SAVE || q->own_rows_only) && q->r.kind == KVANT_REQUEST_GENERATE && save(s, q)) {
        s->st.preempted_saved++;
    } else {
        drop_snaps(s, q);
        q->own_rows_only = 0; /* computed anew, from the prompt on */
        s->st.preempted_recompute++;
    }
    request_leave(s, q);
    q->t.n_preempted++;
}

/* ---- events ---- */

int request_send(kvant_session *s, request *q, kvant_event *ev)
{
    ev->id = q->id;
    ev->n_prompt = q->t.n_prompt;
    ev->n_cached = q->t.n_cached;
    if (!q->r.event)
        return KVANT_EVENT_GO;
    s->step.events++;
    return q->r.event(q->r.user, ev);
}

void request_times(request *q)
{
    q->t.ended_ns = clock_ns();
    q->t.n_generated = q->n_generated;
    if (q->t.first_token_ns) {
        q->t.prompt_ns = q->t.first_token_ns - q->t.started_ns;
        q->t.decode_ns = q->t.ended_ns - q->t.first_token_ns;
    }
}

static void live_remove(kvant_session *s, request *q)
{
    pthread_mutex_lock(&s->lock);
    if (q->prev)
        q->prev->next = q->next;
    else
        s->live = q->next;
    if (q->next)
        q->next->prev = q->prev;
    tenant_leave(s, q);
    pthread_mutex_unlock(&s->lock);
}

void request_end(kvant_session *s, request *q, int finish, int32_t stop_token, int code, const char *text)
{
    kvant_event ev = { .kind = KVANT_EVENT_END,
                       .finish = finish,
                       .stop_token = stop_token,
                       .code = code,
                       .text = text,
                       .timings = &q->t };

    ev.prompt_done = q->prompt_done ? q->t.n_prompt : request_len(s, q);
    drop_snaps(s, q);
    draft_drop(s, q);
    if (q->seq >= 0 && finish != KVANT_FINISH_ERROR && q->r.kind != KVANT_REQUEST_GENERATE) {
        kvant_seq_hidden(s->e, q->seq, q->r.kind == KVANT_REQUEST_EMBED_MEAN ? s->hidden : NULL,
                         q->r.kind == KVANT_REQUEST_EMBED_LAST ? s->hidden : NULL);
        ev.embedding = finish == KVANT_FINISH_CANCEL ? NULL : q->hidden ? q->hidden : s->hidden;
        ev.n_embd = ev.embedding ? s->n_embd : 0;
        ev.n_rows = !ev.embedding ? 0 : q->hidden ? q->n_hidden : 1;
    }
    if (q->seq >= 0 && q->r.slot >= 0 && finish != KVANT_FINISH_ERROR && request_len(s, q) > 0)
        slots_park(s, q);
    else if (q->seq >= 0)
        kv_seq_free(&s->e->kv, q->seq);
    if (q->seq >= 0)
        s->e->hidden_sinks[q->seq] = (hidden_sink){ NULL, 0 };
    if (q->saved.data)
        s->saved_bytes -= (int64_t)q->saved.bytes;
    request_times(q);
    s->st.finished[finish]++;
    if (q->t.started_ns)
        fair_forget(s);
    q->tenant->live--;
    live_remove(s, q);
    request_send(s, q, &ev);
    request_free(q);
}

/* ---- after a step ---- */

static void take_snapshot(kvant_session *s, request *q, int pos)
{
    int id;

    if (q->n_snaps == MAX_SNAPS || (id = prefix_take_snap(&s->prefix)) < 0)
        return; /* none to be had: the prefix will be found at an earlier position */
    if (kv_snapshot_save(&s->e->kv, q->seq, id, NULL) < 0)
        kv_snapshot_free(&s->e->kv, id);
    else
        q->snaps[q->n_snaps++] = (prefix_snap){ pos / KVANT_PAGE, id };
}

/* Only now, with finite logits seen: nothing incomplete or spoilt enters the index. */
static void enter_prompt(kvant_session *s, request *q)
{
    if (!s->p.no_prefix_cache && !(q->r.cache & KVANT_CACHE_NO_WRITE) && !q->own_rows_only) {
        s->prefix.owner = q->r.tenant;
        prefix_insert(&s->prefix, q->share, q->tokens, q->seq, q->r.n_prompt / KVANT_PAGE, q->snaps, q->n_snaps);
        q->n_snaps = 0;
    }
    drop_snaps(s, q);
}

/* prefix_reuse_decode: the state at the last page boundary, and everything up to there at the end. */
static void roll_snapshot(kvant_session *s, request *q)
{
    if (q->rolling >= 0)
        kv_snapshot_free(&s->e->kv, q->rolling);
    q->rolling = prefix_take_snap(&s->prefix);
    if (q->rolling >= 0 && kv_snapshot_save(&s->e->kv, q->seq, q->rolling, NULL) < 0) {
        kv_snapshot_free(&s->e->kv, q->rolling);
        q->rolling = -1;
    }
}

static void enter_all(kvant_session *s, request *q)
{
    const int pages = request_len(s, q) / KVANT_PAGE;
    const prefix_snap snap = { pages, q->rolling };

    if (!s->p.prefix_reuse_decode || s->p.no_prefix_cache || (q->r.cache & KVANT_CACHE_NO_WRITE))
        return;
    s->prefix.owner = q->r.tenant;
    prefix_insert(&s->prefix, q->share, q->tokens, q->seq, pages, &snap, q->rolling >= 0);
    q->rolling = -1;
}

static int send_progress(kvant_session *s, request *q, int len)
{
    kvant_event ev = { .kind = KVANT_EVENT_PROGRESS, .prompt_done = len };
    return request_send(s, q, &ev) == KVANT_EVENT_CANCEL;
}

static int fail(kvant_session *s, request *q, int code, const char *text)
{
    /* Not finite: whatever of its prefix came from the index is suspect, and goes. */
    if (code == KVANT_ENUMERIC && q->r.n_prompt >= KVANT_PAGE)
        prefix_forget(&s->prefix, q->share, q->tokens);
    if (code == KVANT_ENUMERIC)
        tiers_forget(s, q);
    request_end(s, q, KVANT_FINISH_ERROR, -1, code, text);
    return 1;
}

/* The prompt went on by `rows`; 1 if the request has ended. */
static int after_prompt(kvant_session *s, request *q, int item, int len, int rows)
{
    int cancelled;

    s->st.computed_tokens += (uint64_t)rows;
    q->tenant->served += rows;
    if (q->prompt_done)
        return 0; /* again, after a preemption */
    if (len % KVANT_PAGE == 0 && request_cut(s, q, len - 1) == len)
        take_snapshot(s, q, len);
    if (len == q->r.n_prompt)
        enter_prompt(s, q);
    cancelled = request_tells_prompt(q) && request_tell_prompt(s, q, item, rows) == KVANT_EVENT_CANCEL;
    q->prompt_done = len == q->r.n_prompt;
    if (!send_progress(s, q, len) && !cancelled)
        return 0;
    request_end(s, q, KVANT_FINISH_CANCEL, -1, KVANT_OK, "");
    return 1;
}

int request_after_step(kvant_session *s, request *q, int item, int rows, kvant_diag *diag)
{
    const int code = kvant_step_code(s->e, item), len = request_len(s, q);
    int32_t token = -1;

    if (code < 0 && code != KVANT_ECANCELED)
        return fail(s, q, code,
                    code == KVANT_ENUMERIC ? "the model gave a result that is not a finite number" : diag->text);
    if (rows > 0 && len <= q->r.n_prompt && after_prompt(s, q, item, len, rows))
        return 1;
    if (s->p.prefix_reuse_decode && !s->pages_suffice && len > q->r.n_prompt && len % KVANT_PAGE == 0)
        roll_snapshot(s, q);
    if (code < 0 || len < q->n_tokens)
        return 0;
    if (q->r.kind != KVANT_REQUEST_GENERATE || q->n_tokens >= q->most_tokens) {
        request_end(s, q, KVANT_FINISH_LENGTH, -1, KVANT_OK, "");
        return 1;
    }
    const int finish = request_next_tokens(s, q, item, &token, diag);
    if (finish < 0)
        return fail(s, q, finish, diag->text);
    if (finish == KVANT_FINISH_NONE && q->n_tokens < q->most_tokens)
        return 0;
    if (finish == KVANT_FINISH_NONE) {
        drop_snaps(s, q);
        request_shift(s, q);
        return 1;
    }
    enter_all(s, q);
    request_end(s, q, finish, finish == KVANT_FINISH_STOP && request_is_stop(s, q, token) ? token : -1, KVANT_OK, "");
    return 1;
}
