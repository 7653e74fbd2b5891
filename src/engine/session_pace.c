/* session_pace.c: how many prompt tokens a step may have, by the time that steps have taken until now.
 *
 * Time of a step = time of its decode rows + prompt tokens * time of one.  Both are measured as steps go by.  A request
 * waits one step for its next token, or for its first; target_itl_ms bounds that. */
#include "engine/session_impl.h"

enum { LEAST_TOKENS = KVANT_PAGE };

static const double KEEP = 0.75;   /* of what was measured before, per step */
static const double MARGIN = 0.92; /* steps of one size differ by about as much as is left out here */

void pace_count(kvant_session *s, int64_t ns)
{
    const sched_plan *p = &s->plan;
    step_pace *m = &s->pace;
    double rest = (double)ns;

    if (p->prompt_tokens == 0) {
        if (p->n_decode > 0)
            m->decode_ns = m->decode_ns > 0 ? KEEP * m->decode_ns + (1 - KEEP) * rest : rest;
        return;
    }
    if (p->n_decode > 0)
        rest -= m->decode_ns < rest / 2 ? m->decode_ns : rest / 2; /* a hiccup must not make prompts free */
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
