/* place_relay.c: a program over the CPU and one device that runs such programs by itself (vt.relay): the list of what
 * it, the CPU and the rows between them do, and the CPU's pieces.  Other pairs go piece by piece (place_run.c). */
#include <string.h>

#include "engine/engine.h"

enum { FEW_ROWS = 64 };            /* arbitrary, not tuned: of a pass that is over in milliseconds */

int engine_relay_place(const kvant_engine *e)
{
    int place = -1, others = 0;

    for (int i = 0; i < e->split.n; i++) {
        const kvant_device_vt *vt = e->place[i].dev->vt;
        if (vt->relay && place < 0)
            place = i;
        else
            others += strcmp(vt->name, "cpu") != 0;
    }
    return e->split.n > 1 && others == 0 ? place : -1;
}

/* ---- the list ---- */

/* Piece i: ops before crossing i, behind the one before; of the last, up to n.  Returns the place. */
static int piece(const kvant_engine *e, int i, int n, int *first, int *end)
{
    *first = i > 0 ? e->cross[i - 1].op : 0;
    *end = i < e->n_cross ? e->cross[i].op : n;
    return i > 0 ? e->cross[i - 1].next : e->split.of[0];
}

static int has_rows(const engine_crossing *c)
{
    size_t n = 0;

    for (int k = 0; k < CROSSING_PARTS; k++)
        n += c->n[k];
    return n > 0;
}

static void message(const engine_crossing *c, int kind, kvant_relay *r)
{
    *r = (kvant_relay){ .kind = kind };
    for (int k = 0; k < CROSSING_PARTS; k++) {
        r->src[k] = c->src[k];
        r->dst[k] = c->dst[k];
        r->bytes[k] = c->n[k] * sizeof(float);
    }
}

/* Rows between two places of the CPU are its piece's too. */
static int is_host_copy(const engine_crossing *c, int home)
{
    return c->from != home && c->to != home && has_rows(c);
}

static int relay_list(kvant_engine *e, int home, int n)
{
    kvant_relay *r = e->way.relay;

    for (int i = 0, first, end; i <= e->n_cross; i++) {
        const engine_crossing *c = i < e->n_cross ? &e->cross[i] : NULL;
        const int place = piece(e, i, n, &first, &end), copy = c && is_host_copy(c, home);
        if (place == home && end > first)
            *r++ = (kvant_relay){ .kind = KVANT_RELAY_OPS, .n = end - first, .ops = e->ops + first };
        if (copy || (place != home && end > first))
            *r++ = (kvant_relay){ .kind = KVANT_RELAY_HOST, .n = i };
        if (c && has_rows(c) && !copy)
            message(c, c->from == home ? KVANT_RELAY_OUT : KVANT_RELAY_IN, r++);
    }
    return (int)(r - e->way.relay);
}

/* ---- running it ---- */

typedef struct relay_run {
    kvant_engine *e;
    int home, n;
} relay_run;

static int run_piece(void *user, int i, kvant_diag *diag)
{
    const relay_run *r = user;
    kvant_engine *e = r->e;
    const engine_crossing *c = i < e->n_cross ? &e->cross[i] : NULL;
    int first, end;
    const int place = piece(e, i, r->n, &first, &end);

    if (place != r->home && end > first)
        KVANT_TRY(engine_submit_host(e, place, e->ops + first, end - first, diag));
    for (int k = 0; c && is_host_copy(c, r->home) && k < CROSSING_PARTS; k++)
        if (c->n[k])
            memcpy(c->dst[k], c->src[k], c->n[k] * sizeof(float));
    return KVANT_OK;
}

/* The threads of the CPU stay awake between the layers of a short step that comes again; a list without a key goes
 * piece by piece, with long waits between.  Threads of two places would take each other's processors. */
static void stay_awake(const kvant_engine *e, int home, int on)
{
    const kvant_device *dev = e->place[home == 0].dev;

    if (e->split.n == 2 && dev->vt->stay_awake)
        dev->vt->stay_awake(e->place[home == 0].dev, on);
}

int engine_relay(kvant_engine *e, int home, int n, uint64_t key, kvant_diag *diag)
{
    relay_run run = { e, home, n };
    kvant_device *dev = e->place[home].dev;
    const int len = relay_list(e, home, n), awake = key && e->b.n <= FEW_ROWS;

    if (awake)
        stay_awake(e, home, 1);
    const int code = dev->vt->relay(dev, e->way.relay, len, key, run_piece, &run, diag);
    if (awake)
        stay_awake(e, home, 0);
    return code;
}

/* ---- memory ---- */

/* The activations of the CPU, from and to which rows go. */
static void each_host(kvant_engine *e, int ready)
{
    const int home = engine_relay_place(e);
    const kvant_device_vt *vt = home < 0 ? NULL : e->place[home].dev->vt;

    for (int i = 0; vt && vt->host_ready && i < e->split.n; i++) {
        if (i == home || !e->place[i].scratch)
            continue;
        if (ready)
            vt->host_ready(e->place[home].dev, e->place[i].scratch, e->way.scratch_bytes);
        else
            vt->host_release(e->place[home].dev, e->place[i].scratch);
    }
}

void engine_relay_ready(kvant_engine *e)
{
    each_host(e, 1);
}

void engine_relay_release(kvant_engine *e)
{
    for (int i = 0; i < e->split.n; i++)
        if (!e->place[i].dev)
            return;                /* it was never made ready */
    each_host(e, 0);
}
