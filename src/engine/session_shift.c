/* session_shift.c: a request whose context is full goes on with a part of its text (kvant_request.shift).
 *
 * Rows lie in the cache as they were made: in their format, turned to their positions, and recurrent layers have summed
 * them.  So none is moved: the request waits in the queue with what is left of its text as its prompt, and is computed
 * anew as one that was preempted.  That is slower at that moment than moving rows would be, and exact: what follows is
 * what a request with that prompt gives. */
#include <inttypes.h>
#include <string.h>

#include "base/least.h"
#include "base/log.h"
#include "engine/session_impl.h"

/* A shift computes the rest of the context anew: so few tokens must not be all that it brings. */
enum { LEAST_PART = 16 };

int session_longest(const kvant_session *s)
{
    const int64_t pool = (int64_t)s->e->kv.pages.n * KVANT_PAGE;

    return (int)(pool < s->n_ctx ? pool : s->n_ctx) + 1;
}

int request_may_shift(const request *q)
{
    return q->r.shift && q->r.kind == KVANT_REQUEST_GENERATE &&
           (q->r.max_tokens < 0 || q->n_generated < q->r.max_tokens);
}

/* Tokens that stay at the front, and how many behind them go; of the others at least the last two are left. */
static void choose(const kvant_session *s, const request *q, int *keep, int *drop)
{
    const int room = session_longest(s) - 1, least = max_int(room / LEAST_PART, 1);
    const int wanted = q->r.n_keep < 0 ? q->t.n_prompt : q->r.n_keep;

    *keep = min_int(wanted, room - 2 * least);
    const int behind = q->n_tokens - 1 - *keep;
    *drop = min_int(max_int(q->r.n_discard ? q->r.n_discard : behind / 2, least), behind - 1);
}

/* Once for each request; times of the others would tell no more. */
static void say(const kvant_session *s, const request *q, int keep, int drop)
{
    if (q->t.n_shifts == 1)
        log_msg(LOG_INFO,
                "request %" PRIu64
                ": the context of %d tokens is full: the first %d stay, %d behind them go, the other "
                "%d are computed anew, as whenever it is full",
                q->id, session_longest(s) - 1, keep, drop, q->n_tokens - keep);
}

/* Positions of the text mean other tokens now: guesses by them, and prefixes found for it, are those of another. */
static void forget(request *q)
{
    draft_ngram_free(&q->drafts.ngram);
    memset(&q->drafts.ngram, 0, sizeof q->drafts.ngram);
    memset(&q->looked, 0, sizeof q->looked);
    q->hit = (prefix_hit){ .node = -1, .snap = -1 };
    q->branch = 0;
    q->fault_to = 0;
    q->own_rows_only = 0;
    q->r.cache |= KVANT_CACHE_NO_WRITE; /* nobody asks for a text that begins in its middle */
}

static void cut(kvant_session *s, request *q)
{
    int keep, drop;

    choose(s, q, &keep, &drop);
    memmove(q->tokens + keep, q->tokens + keep + drop, (size_t)(q->n_tokens - keep - drop) * sizeof *q->tokens);
    q->n_tokens -= drop;
    q->r.n_prompt = q->n_tokens;
    q->t.n_shifts++;
    s->st.context_shifts++;
    q->t.n_kept = keep;
    q->t.n_dropped += drop;
    const int left = q->r.max_tokens < 0 ? session_longest(s) : q->r.max_tokens - q->n_generated;
    q->most_tokens = left < session_longest(s) - q->n_tokens ? q->n_tokens + left : session_longest(s);
    say(s, q, keep, drop);
}

void request_shift(kvant_session *s, request *q)
{
    request_leave(s, q);
    cut(s, q);
    forget(q);
    q->shifted = 1;
    q->rows = 0;
    pthread_mutex_lock(&s->lock);
    request_queued(s, q, 1);
    pthread_mutex_unlock(&s->lock);
    s->waiting[s->n_waiting++] = q; /* room: as for one that was preempted */
}
