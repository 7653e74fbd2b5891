/* port_side.c: a side of a cache: its pages, its parameter, and what its format's card says (cards/portable.inc). */
#include "devices/portable/core/port_side.h"

#include "kvant/qjl.h"

#define PORTABLE_FORMAT(name, encoder, unit, unit_bytes, factor, halves) \
    { #name, PORT_ENCODER_##encoder, unit, unit_bytes, factor, halves },
static const port_card cards[] = {
#include "cards/portable.inc"
};
#undef PORTABLE_FORMAT

static const port_card *card_of(const kvant_format *f)
{
    for (size_t i = 0; f && i < sizeof cards / sizeof cards[0]; i++)
        if (strcmp(cards[i].name, f->name) == 0)
            return &cards[i];
    return NULL;
}

int port_side_supports(const port_device *d, const kvant_kv_side *s, int head_dim, kvant_diag *diag)
{
    const char *name = d->base.vt->name;
    if (!card_of(s->fmt))
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "device %s: cache format %s has no kernels here", name,
                          s->fmt ? s->fmt->name : "(none)");
    if (head_dim < 1 || head_dim > KVANT_MAX_HEAD_DIM)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "device %s: head_dim %d, wanted 1 to %d", name, head_dim,
                          KVANT_MAX_HEAD_DIM);
    if (s->layout != KVANT_LAYOUT_ROWS)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "device %s: pages in layout %d, wanted rows", name, s->layout);
    return KVANT_OK;
}

/* A parameter may be host memory: it is uploaded once per address. */
static int param_of(port_device *d, const void *param, size_t bytes, const void **out, kvant_diag *diag)
{
    int i = 0;
    *out = param;
    if (!param || d->rest(d, param))
        return KVANT_OK;
    while (i < PORT_MAX_PARAMS && d->params[i].host && d->params[i].host != param)
        i++;
    if (i == PORT_MAX_PARAMS)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "device %s: more than %d different format parameters",
                          d->base.vt->name, PORT_MAX_PARAMS);
    if (!d->params[i].host) {
        KVANT_TRY(d->base.vt->alloc(&d->base, bytes, &d->params[i].dev, diag));
        KVANT_TRY(d->base.vt->copy_in(&d->base, d->params[i].dev, param, bytes, diag));
        d->params[i].host = param;
    }
    *out = d->params[i].dev;
    return KVANT_OK;
}

void port_params_drop(port_device *d)
{
    for (int i = 0; i < PORT_MAX_PARAMS; i++)
        if (d->params[i].dev)
            d->base.vt->free(&d->base, d->params[i].dev);
    memset(d->params, 0, sizeof d->params);
}

int port_side_of(port_device *d, const kvant_kv_side *s, int head_dim, port_side *out, kvant_diag *diag)
{
    KVANT_TRY(port_side_supports(d, s, head_dim, diag));
    out->s = s;
    out->card = card_of(s->fmt);
    out->d = head_dim;
    out->dp = kvant_format_padded(s->fmt, head_dim);
    out->sdim = kvant_format_sdim(s->fmt, head_dim);
    out->factor = out->card->factor && s->param;
    out->param_bytes = s->fmt->flags & KVANT_FORMAT_PARAM ? KVANT_QJL_FILE_BYTES : sizeof(float);
    return param_of(d, s->param, out->param_bytes, &out->param, diag);
}

static void to_end(const port_device *d, port_call *c, const void *addr, int write)
{
    const size_t bytes = addr ? d->rest(d, addr) : 0;
    if (write)
        port_write(c, addr, bytes);
    else
        port_read(c, addr, bytes);
}

void port_side_pages(const port_device *d, port_call *c, const port_side *s, int write)
{
    to_end(d, c, s->s->pages, write);
}

void port_side_tail(const port_device *d, port_call *c, const port_side *s, int write)
{
    to_end(d, c, s->s->tail, write);
}

void port_side_param(port_call *c, const port_side *s)
{
    port_read(c, s->param, s->param ? s->param_bytes : 0);
}

int64_t port_spans(const kvant_seqs *q, int n)
{
    const int64_t spans = q->n_tokens / n + 2 * (int64_t)q->n_seqs;
    return spans < q->n_tokens ? spans : q->n_tokens;
}

void port_seqs(port_call *c, const kvant_seqs *q, int tail)
{
    const size_t table = (size_t)q->n_seqs * (size_t)q->table_stride * 4;
    port_read(c, q->q0, (size_t)(q->n_seqs + 1) * 4);
    port_read(c, q->pos0, (size_t)q->n_seqs * 4);
    port_read(c, q->table, table);
    port_read(c, tail ? q->tail_table : NULL, tail ? table : 0);
}
