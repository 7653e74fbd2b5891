/* check_pace.c: session_pace.c alone: how many prompt tokens a step may have.  Steps take the time of a model that it
 * does not know, each a little more or less; those that it sizes must stay under the target, and not far below. */
#include "base/rng.h"
#include "engine/session_impl.h"
#include "support/check.h"

enum { TARGET = 60, SEQS = 64, STEPS = 4000, LEARNED = 50 };

static const double DECODE_NS = 7.0e6, TOKEN_NS = 27e3, SPREAD = 0.07; /* of a step: a bit less than MARGIN leaves */

static double spread(rng *r)
{
    return 1.0 + SPREAD * (2.0 * rng_unit(r) - 1.0);
}

/* A session of which nothing but the measurement is looked at. */
static void begin(kvant_session *s, kvant_engine *e)
{
    memset(s, 0, sizeof *s);
    memset(e, 0, sizeof *e);
    e->p.n_ubatch = 512;
    s->e = e;
    s->p.batch_tokens = 8192;
    s->p.target_itl_ms = TARGET;
    s->n_running = SEQS;
}

static double step(kvant_session *s, rng *r, int decode, int prompt)
{
    const double ns = spread(r) * ((decode > 0 ? DECODE_NS : 0.0) + TOKEN_NS * prompt);
    s->sched.plan.n_decode = decode;
    s->sched.plan.prompt_tokens = prompt;
    pace_count(s, (int64_t)ns);
    return ns / 1e6;
}

static void check_under_target(void)
{
    static kvant_session s;
    static kvant_engine e;
    rng r = { 7 };
    double sum = 0.0;
    int over = 0, n = 0;

    begin(&s, &e);
    for (int i = 0; i < STEPS; i++) {
        const double ms = step(&s, &r, SEQS, i % 3 == 0 ? pace_tokens(&s) : 0);
        if (i % 3 != 0 || i < LEARNED)
            continue;
        over += ms > TARGET;
        sum += ms;
        n++;
    }
    CHECK(over * 100 <= n, "%d of %d steps with prompts over %d ms, wanted 1 %% at most", over, n, TARGET);
    CHECK(sum / n >= 0.85 * TARGET, "they take %.1f ms on average, wanted %.1f or more", sum / n, 0.85 * TARGET);
}

static void check_limits(void)
{
    static kvant_session s;
    static kvant_engine e;
    rng r = { 9 };

    begin(&s, &e);
    CHECK(pace_tokens(&s) == 512, "nothing measured: %d, wanted a pass", pace_tokens(&s));
    for (int i = 0; i < LEARNED; i++)
        step(&s, &r, 0, 1024);
    s.p.target_itl_ms = 1;
    CHECK(pace_tokens(&s) == KVANT_PAGE, "a target of 1 ms: %d, wanted a page", pace_tokens(&s));
    s.n_running = 1;
    CHECK(pace_tokens(&s) == 512, "alone: %d, wanted a pass", pace_tokens(&s));
    s.p.target_itl_ms = 1000;
    CHECK(pace_tokens(&s) == 8192, "a second: %d, wanted the whole batch", pace_tokens(&s));
    s.p.target_itl_ms = -1;
    CHECK(pace_tokens(&s) == 0, "no target: %d, wanted 0", pace_tokens(&s));
}

int main(void)
{
    check_under_target();
    check_limits();
    return check_end("check_pace");
}
