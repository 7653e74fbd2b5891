/* port_weight.c: weights on the devices of the portable kernels: rows in file layout, in as many parts as the device's
 * largest allocation makes necessary. */
#include "devices/portable/core/port_dev.h"

#include "base/mem.h"

/* Reads the type's card; *type stays as it was if there is none. */
static void read_card(const kvant_wtype *t, const char **type, int *halves)
{
#define PORTABLE_WTYPE(symbol, name, halves) { #symbol, name, halves },
    static const struct { const char *symbol, *name; int halves; } types[] = {
#include "cards/portable.inc"
    };
#undef PORTABLE_WTYPE
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i].name, t->name) == 0) {
            *type = types[i].symbol;
            *halves = types[i].halves;
        }
}

static const char *name_of(const kvant_weight *w)
{
    return w->name ? w->name : "weight";
}

static void weight_drop(kvant_device *base, port_weight *v)
{
    for (int i = 0; v->part && i < v->n_parts; i++)
        if (v->part[i])
            base->vt->free(base, v->part[i]);
    if (v->scale)
        base->vt->free(base, v->scale);
    kvant_free(v->part);
    kvant_free(v);
}

static int weight_fill(kvant_device *base, const kvant_weight *w, port_weight *v, kvant_diag *diag)
{
    for (int i = 0; i < v->n_parts; i++) {
        const int64_t from = i * v->rows_per, left = v->rows - from, n = left < v->rows_per ? left : v->rows_per;
        const size_t bytes = (size_t)n * v->row_bytes;
        KVANT_TRY(base->vt->alloc(base, bytes, &v->part[i], diag));
        KVANT_TRY(base->vt->copy_in(base, v->part[i], (const char *)w->data + (size_t)from * v->row_bytes, bytes,
                                    diag));
    }
    if (!w->scale)
        return KVANT_OK;
    KVANT_TRY(base->vt->alloc(base, (size_t)w->n_scale * sizeof(float), &v->scale, diag));
    return base->vt->copy_in(base, v->scale, w->scale, (size_t)w->n_scale * sizeof(float), diag);
}

/* Plans the parts in which the rows of this weight lie. */
static int weight_plan(const port_device *d, const kvant_weight *w, port_weight *v, kvant_diag *diag)
{
    read_card(w->type, &v->type, &v->halves);
    if (!v->type)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "device %s: %.64s: weight type %s has no kernels here",
                          d->base.vt->name, name_of(w), w->type->name);
    v->row_bytes = (size_t)(w->n_in / w->type->block) * (size_t)w->type->bytes;
    v->rows = w->n_out * w->n_expert;
    v->rows_per = (int64_t)(d->max_alloc / v->row_bytes);
    if (v->rows_per < 1)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "device %s: %.64s: rows of %zu bytes, the largest allocation has %zu",
                          d->base.vt->name, name_of(w), v->row_bytes, d->max_alloc);
    v->rows_per = v->rows_per < v->rows ? v->rows_per : v->rows;
    v->n_parts = (int)((v->rows + v->rows_per - 1) / v->rows_per);
    v->part = kvant_calloc((size_t)v->n_parts, sizeof *v->part);
    return v->part ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "%.64s: out of memory", name_of(w));
}

int port_weight_load(kvant_device *base, kvant_weight *w, int compute, kvant_diag *diag)
{
    port_weight *v = kvant_calloc(1, sizeof *v);
    int rc;
    (void)compute;                         /* f32 in both modes */
    if (!v)
        return kvant_fail(diag, KVANT_ENOMEM, "%.64s: out of memory", name_of(w));
    rc = weight_plan((const port_device *)base, w, v, diag);
    if (rc == KVANT_OK)
        rc = weight_fill(base, w, v, diag);
    if (rc < 0) {
        weight_drop(base, v);
        return rc;
    }
    w->packed = v;
    w->data = NULL;
    return KVANT_OK;
}

void port_weight_free(kvant_device *base, kvant_weight *w)
{
    if (w->packed)
        weight_drop(base, w->packed);
    w->packed = NULL;
}
