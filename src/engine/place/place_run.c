/* place_run.c: a program over places: which place has which op, and what goes from one to another between. */
#include <string.h>

#include "engine/engine.h"
#include "engine/place/place_stream.h"
#include "engine/place/profile.h"

/* ---- crossings of a program ---- */

int engine_most_crossings(const kvant_engine *e)
{
    return e->split.n > 1 && !e->split.tensors ? e->split.n + 3 * e->m->hp.n_layer : 0;
}

size_t engine_crossing_width(const kvant_engine *e)
{
    const hparams *hp = &e->m->hp;
    const size_t stream = (size_t)hp->n_embd + (size_t)hp->n_layer * (size_t)hp->n_embd_layer,
                 routes = 2 * (size_t)hp->moe.n_used;

    return (size_t)hp->n_embd + (stream > routes ? stream : routes);
}

int engine_place_of_op(const kvant_engine *e, int i)
{
    int k = e->n_cross;

    while (k > 0 && e->cross[k - 1].op > i)
        k--;
    return k ? e->cross[k - 1].next : e->split.of[0];
}

void engine_bind(kvant_engine *e, int place)
{
    const engine_place *at = &e->place[place];
    builder *b = &e->b;

    b->w = at->weights.w;
    b->vec = at->weights.vec;
    b->tables.inv_freq = at->weights.inv_freq;
    b->tables.inv_freq_window = at->weights.inv_freq_window;
    b->tables.heads = at->weights.heads;
    b->tables.ones = at->weights.ones;
    b->tables.suppress = at->weights.suppress;
    b->fused = at->fused;
    b->tables.lora_row = at->lora_rows;
    b->buf = at->buf;
}

static engine_crossing *crossing(kvant_engine *e, int from, int to, int next)
{
    engine_crossing *c = &e->cross[e->n_cross++];

    *c = (engine_crossing){ .op = e->b.n_ops, .from = from, .to = to, .next = next };
    return c;
}

static void put(engine_crossing *c, int part, const void *src, void *dst, size_t n)
{
    c->src[part] = src;
    c->dst[part] = dst;
    c->n[part] = n;
}

void engine_cross(kvant_engine *e, int from, int to)
{
    builder *b = &e->b;
    const build_buffers *old = &e->place[from].buf, *now = &e->place[to].buf;
    const hparams *hp = &e->m->hp;
    const size_t rows = (size_t)b->rows, width = (size_t)hp->n_embd;
    engine_crossing *c = crossing(e, from, to, to);
    float *x = b->x == old->xs ? now->xs : now->x, *embd = b->embd == old->embd_proj ? now->embd_proj : now->embd;

    put(c, 0, b->x, x, rows * width);
    if (b->have_delta)
        put(c, 1, old->delta, now->delta, rows * width);
    if (hp->n_embd_layer)
        put(c, 2, b->embd, embd, rows * (size_t)hp->n_layer * (size_t)hp->n_embd_layer);
    engine_bind(e, to);
    b->x = x;
    b->embd = embd;
}

/* The input of the experts, who is chosen and with which weights go there; ops that follow are still at home. */
static void send_rows(kvant_engine *e, int home, int there, const float *x, int width)
{
    const build_buffers *old = &e->place[home].buf, *now = &e->place[there].buf;
    const size_t rows = (size_t)e->b.rows, routes = rows * (size_t)e->m->hp.moe.n_used;
    engine_crossing *c = crossing(e, home, there, home);

    put(c, 0, x, now->a, rows * (size_t)width);
    put(c, 1, old->route_ids, now->route_ids, routes);
    put(c, 2, old->route_wts, now->route_wts, routes);
}

const float *engine_apart(kvant_engine *e, int home, int l, int stage, const float *x, float *y, int width)
{
    const int there = e->split.experts[l];
    const build_buffers *now = &e->place[there].buf;

    if (there == home)
        return NULL;
    if (stage == APART_SEND && engine_stream_takes(e, home, l)) {
        crossing(e, home, home, home)->fill = l + 1;
        return NULL;
    }
    if (stage == APART_SEND) {
        send_rows(e, home, there, x, width);
    } else if (stage == APART_THERE) {
        crossing(e, home, there, there);
        engine_bind(e, there);
    } else {
        put(crossing(e, there, home, home), 0, now->delta, y, (size_t)e->b.rows * (size_t)width);
        engine_bind(e, home);
    }
    return now->a;
}

/* ---- running it ---- */

/* Addresses of the CPU are plain pointers. */
static int is_host(const kvant_device *d)
{
    return strcmp(d->vt->name, "cpu") == 0;
}

/* From one device to the other, through host memory where neither is the CPU. */
static int cross_over(const kvant_engine *e, const engine_crossing *c, kvant_diag *diag)
{
    kvant_device *from = e->place[c->from].dev, *to = e->place[c->to].dev;
    const int out = !is_host(from), in = !is_host(to) || !out;
    const void *at[CROSSING_PARTS];
    float *host = e->way.host;
    int any = 0;

    for (int i = 0; i < CROSSING_PARTS; host += c->n[i++]) {
        at[i] = out ? host : c->src[i];
        any |= c->n[i] > 0;
        if (out && c->n[i])
            KVANT_TRY(from->vt->copy_out(from, in ? host : c->dst[i], c->src[i], c->n[i] * sizeof *host, diag));
    }
    if (out && any)
        KVANT_TRY(from->vt->sync(from, diag));
    for (int i = 0; i < CROSSING_PARTS; i++)
        if (in && c->n[i])
            KVANT_TRY(to->vt->copy_in(to, c->dst[i], at[i], c->n[i] * sizeof *host, diag));
    return KVANT_OK;
}

static int submit_at(kvant_engine *e, int place, const kvant_op *ops, int n, uint64_t key, kvant_diag *diag)
{
    kvant_device *dev = e->place[place].dev;

    if (n == 0)
        return KVANT_OK;
    return is_host(dev) ? engine_submit_host(e, place, ops, n, diag) : engine_submit_to(e, dev, ops, n, key, diag);
}

static int fills_slots(const kvant_engine *e)
{
    int any = 0;

    for (int i = 0; i < e->n_cross; i++)
        any |= e->cross[i].fill;
    return any;
}

int engine_submit(kvant_engine *e, int n, uint64_t key, kvant_diag *diag)
{
    const int relay = e->n_cross > 0 && !fills_slots(e) ? engine_relay_place(e) : -1;
    int first = 0, place = e->split.of[0];

    if (relay >= 0 && !e->watch.profile)
        return engine_relay(e, relay, n, key, diag);
    for (int i = 0; i < e->n_cross; i++) {
        const engine_crossing *c = &e->cross[i];
        KVANT_TRY(submit_at(e, place, e->ops + first, c->op - first, key, diag));
        KVANT_TRY(c->fill ? engine_stream_fill(e, c->fill - 1, diag) : cross_over(e, c, diag));
        place = c->next;
        first = c->op;
    }
    return submit_at(e, place, e->ops + first, n - first, key, diag);
}
