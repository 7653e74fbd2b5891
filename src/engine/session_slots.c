/* session_slots.c: sequences parked in slots, and the files they and the prefix cache are saved to. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/session_impl.h"

int slots_create(kvant_session *s, kvant_diag *diag)
{
    (void)s;
    (void)diag;
    return KVANT_OK;
}

void slots_free(kvant_session *s)
{
    for (int i = 0; s->parked && i < s->max_seqs; i++)
        slots_drop(s, i);
}

int slots_continues(const kvant_session *s, const request *q)
{
    if (q->r.slot < 0 || q->t.n_preempted > 0 || (q->r.cache & KVANT_CACHE_NO_READ))
        return 0;
    const parked *p = &s->parked[q->r.slot];
    return p->tokens && p->n < q->r.n_prompt && memcmp(p->salt, q->r.salt, PREFIX_SALT) == 0 &&
           memcmp(p->tokens, q->tokens, (size_t)p->n * sizeof *p->tokens) == 0;
}

void slots_drop(kvant_session *s, int slot)
{
    if (!s->parked[slot].tokens)
        return;
    kvant_free(s->parked[slot].tokens);
    s->parked[slot].tokens = NULL;
    kv_seq_free(&s->e->kv, slot);
}

int slots_drop_oldest(kvant_session *s)
{
    int oldest = -1;

    for (int i = 0; i < s->max_seqs; i++)
        if (s->parked[i].tokens && (oldest < 0 || s->parked[i].stamp < s->parked[oldest].stamp))
            oldest = i;
    if (oldest < 0)
        return 0;
    slots_drop(s, oldest);
    return 1;
}

void slots_park(kvant_session *s, request *q)
{
    parked *p = &s->parked[q->seq];

    p->n = request_len(s, q);
    p->tokens = q->tokens;                 /* the request ends: its tokens move here */
    q->tokens = NULL;
    memcpy(p->salt, q->r.salt, sizeof p->salt);
    p->stamp = ++s->stamp;
    q->seq = -1;
}

static void answer(const action *a, int code, const char *text, int n, int64_t bytes, int64_t t0)
{
    const kvant_slot_result r = { code, text, a->slot, n, bytes, clock_ns() - t0 };

    if (a->done)
        a->done(a->user, &r);
}

static int slot_runs(const kvant_session *s, int slot)
{
    for (int i = 0; i < s->n_running; i++)
        if (s->running[i]->seq == slot)
            return 1;
    return 0;
}

static int erase(kvant_session *s, const action *a, int *n, kvant_diag *diag)
{
    const parked *p = &s->parked[a->slot];

    if (slot_runs(s, a->slot))
        return kvant_fail(diag, KVANT_EBUSY, "slot %d: a request is running in it", a->slot);
    if (p->tokens && memcmp(p->salt, a->salt, PREFIX_SALT) != 0)
        return kvant_fail(diag, KVANT_ENOENT, "slot %d: nothing of this key is parked in it", a->slot);
    *n = p->tokens ? p->n : 0;
    slots_drop(s, a->slot);
    return KVANT_OK;
}

void slots_run(kvant_session *s, action *a)
{
    const int64_t t0 = clock_ns();
    kvant_diag diag = { "" };
    int n = 0, code;

    if (a->what == KVANT_SLOT_ERASE) {
        code = erase(s, a, &n, &diag);
    } else if (a->what == KVANT_CACHE_CLEAR) {
        prefix_clear(&s->prefix);
        code = KVANT_OK;
    } else {
        code = kvant_fail(&diag, KVANT_EUNSUPPORTED, "snapshots: not in this build");
    }
    answer(a, code, diag.text, n, 0, t0);
    kvant_free(a);
}
