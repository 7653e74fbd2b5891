/* tensor_run.c: the lists of a cut program on their places, with the exchanges between.  Between CPUs an exchange
 * copies memory; with other devices each place's columns come to host memory and whole rows go from there to all. */
#include <string.h>

#include "engine/place/profile.h"
#include "engine/tensor/tensor.h"

static float *there(engine_tensor *t, int i, const void *at)
{
    return (float *)(uintptr_t)tensor_there(t, i, at);
}

/* One place's columns of one stretch: from its shadow to the whole rows of place `to`. */
static void copy_columns(kvant_engine *e, const tensor_rows *r, int k, int from, int to)
{
    const int first = tensor_from(&e->split, &r->shape, k, from), n = tensor_part(&e->split, &r->shape, k, from);
    const int ld = tensor_width(&e->split, &r->shape, from);
    const float *src = tensor_local(e, r, from, k, first);
    float *dst = there(e->way.tensor, to, r->base) + tensor_col(&r->shape, k) + first;

    for (int i = 0; i < r->rows; i++)
        memcpy(dst + i * r->ld, src + (size_t)i * (size_t)ld, (size_t)n * sizeof *dst);
}

static void exchange_memory(kvant_engine *e, const tensor_exchange *x)
{
    const int places = x->first ? 1 : e->way.tensor->n;

    for (int k = 0; k < x->r.shape.n; k++)
        for (int from = 0; x->parts >> k & 1 && from < e->way.tensor->n; from++)
            for (int to = 0; tensor_part(&e->split, &x->r.shape, k, from) && to < places; to++)
                copy_columns(e, &x->r, k, from, to);
}

/* ---- with other devices ---- */

/* Columns of a place side by side, in host memory; a single row: only those that somebody reads. */
static int fetch(kvant_engine *e, const tensor_exchange *x, int i, kvant_diag *diag)
{
    const tensor_rows *r = &x->r;
    kvant_device *dev = e->place[i].dev;
    const int width = tensor_width(&e->split, &r->shape, i);
    float *out = e->way.tensor->place[i].out;

    if (!width)
        return KVANT_OK;
    if (r->rows > 1)
        return dev->vt->copy_out(dev, out, tensor_local(e, r, i, 0, tensor_from(&e->split, &r->shape, 0, i)),
                                 (size_t)r->rows * (size_t)width * sizeof *out, diag);
    for (int k = 0; k < r->shape.n; k++) {
        const int n = tensor_part(&e->split, &r->shape, k, i);
        if (n && x->parts >> k & 1)
            KVANT_TRY(dev->vt->copy_out(dev, out, tensor_local(e, r, i, k, tensor_from(&e->split, &r->shape, k, i)),
                                        (size_t)n * sizeof *out, diag));
        out += n;
    }
    return KVANT_OK;
}

/* A stretch of all places as whole rows of it alone. */
static void join(kvant_engine *e, const tensor_rows *r, int k, float *to)
{
    const int cols = r->shape.cols[k];

    for (int i = 0; i < e->way.tensor->n; i++) {
        const int width = tensor_width(&e->split, &r->shape, i), n = tensor_part(&e->split, &r->shape, k, i);
        const float *from = e->way.tensor->place[i].out;
        for (int j = 0; j < k; j++)
            from += tensor_part(&e->split, &r->shape, j, i);
        for (int row = 0; n && row < r->rows; row++)
            memcpy(to + (size_t)row * (size_t)cols + tensor_from(&e->split, &r->shape, k, i),
                   from + (size_t)row * (size_t)width, (size_t)n * sizeof *to);
    }
}

/* Whole rows to a place: side by side in its shadow where ops behind the exchange move them, else where they belong. */
static int hand_out(kvant_engine *e, const tensor_exchange *x, int k, int i, kvant_diag *diag)
{
    const tensor_rows *r = &x->r;
    engine_tensor *t = e->way.tensor;
    kvant_device *dev = e->place[i].dev;
    const size_t col = (size_t)tensor_col(&r->shape, k), n = (size_t)r->rows * (size_t)r->shape.cols[k];
    float *to = x->staged ? tensor_base(e, r, i) + (size_t)r->rows * col : there(t, i, r->base) + col;

    return dev->vt->copy_in(dev, to, t->in + (size_t)r->rows * col, n * sizeof *to, diag);
}

static int exchange_devices(kvant_engine *e, const tensor_exchange *x, kvant_diag *diag)
{
    const tensor_rows *r = &x->r;
    engine_tensor *t = e->way.tensor;

    for (int i = 0; i < t->n; i++)
        KVANT_TRY(fetch(e, x, i, diag));
    for (int i = 0; i < t->n; i++)
        KVANT_TRY(e->place[i].dev->vt->sync(e->place[i].dev, diag));
    for (int k = 0; k < r->shape.n; k++) {
        if (!(x->parts >> k & 1))
            continue;
        join(e, r, k, t->in + (size_t)r->rows * (size_t)tensor_col(&r->shape, k));
        for (int i = 0; i < (x->first ? 1 : t->n); i++)
            KVANT_TRY(hand_out(e, x, k, i, diag));
    }
    return KVANT_OK;
}

/* ---- the program ---- */

/* Every place's ops up to its number in `end`. */
static int run_to(kvant_engine *e, int *at, const int *end, kvant_diag *diag)
{
    for (int i = 0; i < e->way.tensor->n; i++) {
        kvant_device *dev = e->place[i].dev;
        if (end[i] > at[i])
            KVANT_TRY(engine_submit_to(e, dev, e->way.tensor->place[i].ops + at[i], end[i] - at[i], 0, diag));
        at[i] = end[i];
    }
    return KVANT_OK;
}

/* ---- devices that meet ---- */

/* Place i's columns of an exchange, and where they go. */
static void fill_meet(kvant_engine *e, const tensor_exchange *x, int i, kvant_meet *m)
{
    engine_tensor *t = e->way.tensor;
    const tensor_rows *r = &x->r;

    m->ld = r->ld;
    m->rows = r->rows;
    m->n_parts = 0;
    m->wait = x->wait;
    for (int k = 0; k < r->shape.n; k++) {
        const int first = tensor_from(&e->split, &r->shape, k, i), n = tensor_part(&e->split, &r->shape, k, i);
        kvant_meet_part *p = &m->part[m->n_parts];
        if (!n || !(x->parts >> k & 1))
            continue;
        m->n_parts++;
        p->src = tensor_local(e, r, i, k, first);
        p->ld_src = tensor_width(&e->split, &r->shape, i);
        p->cols = n;
        for (int to = 0; to < t->n; to++)
            p->dst[to] = x->first && to ? NULL : there(t, to, r->base) + tensor_col(&r->shape, k) + first;
    }
}

static void fill_pieces(kvant_engine *e, int i)
{
    engine_tensor *t = e->way.tensor;
    tensor_place *p = &t->place[i];

    for (int k = 0, at = 0; k <= t->n_exchange; k++) {
        const int end = k < t->n_exchange ? t->exchange[k].at[i] : p->n;
        p->piece[k] = (kvant_meet_piece){ p->ops + at, end - at, k < t->n_exchange ? &p->meet[k] : NULL };
        if (k < t->n_exchange)
            fill_meet(e, &t->exchange[k], i, &p->meet[k]);
        at = end;
    }
}

/* Piece k on every place that has not been given its whole list. */
static int meet_piece(kvant_engine *e, const int *done, int k, kvant_diag *diag)
{
    for (int i = 0; i < e->way.tensor->n; i++) {
        kvant_device *dev = e->place[i].dev;
        const kvant_meet_piece *p = &e->way.tensor->place[i].piece[k];
        if (!done[i] && p->n > 0)
            KVANT_TRY(engine_submit_to(e, dev, p->ops, p->n, 0, diag));
        if (!done[i] && p->meet)
            KVANT_TRY(dev->vt->meet(dev, p->meet, diag));
    }
    return KVANT_OK;
}

/* Memory for all lists is there before one of them waits for another. */
static int submit_meeting(kvant_engine *e, uint64_t key, kvant_diag *diag)
{
    engine_tensor *t = e->way.tensor;
    int done[KV_MOST_PLACES] = { 0 };

    for (int i = 0; i < t->n; i++)
        fill_pieces(e, i);
    for (int turn = 0; turn < (key ? 2 : 1); turn++)
        for (int i = 0; i < t->n; i++) {
            kvant_device *dev = e->place[i].dev;
            done[i] = dev->vt->meet_list(dev, t->place[i].piece, t->n_exchange + 1, turn ? key : 0, diag);
            KVANT_TRY(done[i] < 0 ? done[i] : KVANT_OK);
        }
    for (int k = 0; k <= t->n_exchange; k++)
        KVANT_TRY(meet_piece(e, done, k, diag));
    return KVANT_OK;
}

int tensor_submit(kvant_engine *e, uint64_t key, kvant_diag *diag)
{
    engine_tensor *t = e->way.tensor;
    int at[KV_MOST_PLACES] = { 0 }, end[KV_MOST_PLACES];

    if (t->meets)
        return submit_meeting(e, e->watch.profile ? 0 : key, diag);
    for (int i = 0; i < t->n_exchange; i++) {
        KVANT_TRY(run_to(e, at, t->exchange[i].at, diag));
        if (t->direct)
            exchange_memory(e, &t->exchange[i]);
        else
            KVANT_TRY(exchange_devices(e, &t->exchange[i], diag));
    }
    for (int i = 0; i < t->n; i++)
        end[i] = t->place[i].n;
    return run_to(e, at, end, diag);
}
