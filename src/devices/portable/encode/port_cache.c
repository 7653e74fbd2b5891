/* port_cache.c: cache_write, page_seal, cache_read. */
#include "devices/page_units.h"
#include "devices/portable/encode/port_pages.h"
#include "devices/portable/encode/encode_params.h"

enum { PLAIN_RUN = 4 };            /* values of a unit of a format without groups: few, so that threads are many */

/* The unit that one thread (or group) encodes; n of them in a head's row. */
typedef struct unit_shape { int width, n, by_group; } unit_shape;

static unit_shape unit_of(const port_side *s)
{
    const int encoder = s->card->encoder;
    if (port_paged(s))                     /* the exact tail alone is written a row at a time */
        return (unit_shape){ PLAIN_RUN, (s->d + PLAIN_RUN - 1) / PLAIN_RUN, 0 };
    unit_shape u = { encoder == PORT_ENCODER_FLOAT ? PLAIN_RUN : s->card->unit, 0,
                     encoder == PORT_ENCODER_TRELLIS || encoder == PORT_ENCODER_SKETCH };
    u.n = (s->dp + u.width - 1) / u.width;
    return u;
}

static void write_defines(port_call *c, const port_side *s, const unit_shape *u)
{
    port_define(c, "FMT %s", s->card->name);
    port_define(c, "BEST %d", s->s->encoder == KVANT_ENCODER_BEST);
    port_define(c, "WIDTH %d", u->width);
}

static int64_t unit_groups(const unit_shape *u, int64_t rows)
{
    const int64_t units = rows * u->n;
    return u->by_group ? units : (units + PORT_THREADS - 1) / PORT_THREADS;
}

static int write_supports(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_cache_write_args *a = args;
    return port_side_supports(d, &a->side, a->d, diag);
}

static int write_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_cache_write_args *a = args;
    const kvant_seqs *q = &a->seqs;
    const int tail = a->side.tail && q->tail_table;
    port_side s;

    if (q->n_tokens <= 0)
        return KVANT_OK;
    KVANT_TRY(port_side_of(d, &a->side, a->d, &s, diag));
    const unit_shape u = unit_of(&s);
    const struct p_cache_write p = {
        .page_bytes = (int64_t)a->side.page_bytes, .head_bytes = (int64_t)a->side.head_bytes,
        .row_bytes = (int64_t)a->side.row_bytes, .ldx = a->ldx, .n = q->n_tokens, .n_seqs = q->n_seqs,
        .stride = q->table_stride, .h = a->h, .d = a->d, .units = u.n, .has_tail = tail, .has_factor = s.factor,
    };
    port_call c = PORT_CALL(cache_write, p);
    port_read(&c, a->x, (size_t)((q->n_tokens - 1) * a->ldx + (int64_t)a->h * a->d) * 4);
    port_side_pages(d, &c, &s, 1);
    port_side_tail(d, &c, &s, 1);
    port_side_param(&c, &s);
    port_seqs(&c, q, tail);
    write_defines(&c, &s, &u);
    return port_dispatch(d, &c, unit_groups(&u, (int64_t)q->n_tokens * a->h), 1, 1, diag);
}

static int seal_supports(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_page_seal_args *a = args;
    return port_side_supports(d, &a->side, a->d, diag);
}

static size_t seal_scratch(port_device *d, const void *args)
{
    const kvant_page_seal_args *a = args;
    (void)d;
    return page_units_scratch(a);
}

static int seal_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_page_seal_args *a = args;
    port_side s;

    if (a->n <= 0)
        return KVANT_OK;
    KVANT_TRY(port_side_of(d, &a->side, a->d, &s, diag));
    if (port_paged(&s))
        return port_pages_seal(d, a, &s, diag);
    const unit_shape u = unit_of(&s);
    const struct p_page_seal p = {
        .page_bytes = (int64_t)a->side.page_bytes, .head_bytes = (int64_t)a->side.head_bytes,
        .row_bytes = (int64_t)a->side.row_bytes, .n = a->n, .h = a->h, .d = a->d, .units = u.n, .has_factor = s.factor,
    };
    port_call c = PORT_CALL(page_seal, p);
    port_side_pages(d, &c, &s, 1);
    port_side_tail(d, &c, &s, 0);
    port_side_param(&c, &s);
    port_read(&c, a->src, (size_t)a->n * 4);
    port_read(&c, a->dst, (size_t)a->n * 4);
    write_defines(&c, &s, &u);
    return port_dispatch(d, &c, unit_groups(&u, (int64_t)a->n * KVANT_PAGE * a->h), 1, 1, diag);
}

static int read_supports(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_cache_read_args *a = args;
    return port_side_supports(d, &a->side, a->d, diag);
}

static int read_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_cache_read_args *a = args;
    port_side s;

    if (a->n <= 0)
        return KVANT_OK;
    KVANT_TRY(port_side_of(d, &a->side, a->d, &s, diag));
    const struct p_cache_read p = {
        .page_bytes = (int64_t)a->side.page_bytes, .head_bytes = (int64_t)a->side.head_bytes,
        .row_bytes = (int64_t)a->side.row_bytes, .h = a->h, .has_factor = s.factor,
    };
    port_call c = PORT_CALL(cache_read, p);
    port_side_pages(d, &c, &s, 0);
    port_read(&c, a->page, (size_t)a->n * 4);
    port_read(&c, a->row, (size_t)a->n * 4);
    port_write(&c, a->y, (size_t)a->n * (size_t)a->h * (size_t)a->d * 4);
    port_side_param(&c, &s);
    port_define(&c, "FMT %s", s.card->name);
    port_define(&c, "D %d", s.d);
    port_define(&c, "DP %d", s.dp);
    port_define(&c, "SDIM %d", s.sdim);
    return port_dispatch(d, &c, a->n, a->h, 1, diag);
}

PORT_OP(cache_write, write_supports, write_run)
PORT_OP_SCRATCH(page_seal, seal_supports, seal_scratch, seal_run)
PORT_OP(cache_read, read_supports, read_run)
