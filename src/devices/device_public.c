/* device_public.c: the calls of kvant/device.h over the vtable.  Owns nothing; what a vtable leaves out is answered
 * here. */
#include "devices/device.h"

#include <string.h>

#include "base/abi/sized.h"
#include "base/error.h"

void kvant_device_params_init(kvant_device_params *p, size_t size)
{
    const kvant_device_params defaults = { 0 };

    params_give(p, size, &defaults, sizeof defaults);
}

const char *kvant_device_name(int i)
{
    const kvant_device_vt *vt = kvant_devices_at(i);

    return vt ? vt->name : NULL;
}

int kvant_device_open(const char *name, const kvant_device_params *params, kvant_device **out, kvant_diag *diag)
{
    kvant_device_params p = kvant_device_defaults();
    const kvant_device_vt *vt;
    int index = 0;

    if (params)
        KVANT_TRY(params_take(&p, sizeof p, params, "kvant_device_params", diag));
    name = name ? name : "cpu";
    KVANT_TRY(kvant_device_find(name, &vt, &index, diag));
    if (p.stream && !vt->takes_stream)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "device %s: has no streams, wanted stream NULL", name);
    if (p.threads < 0 || p.threads > 256 || p.reserved)
        return kvant_fail(diag, KVANT_EINVAL, "device %s: %d threads (reserved %d), wanted 0 to 256 (and 0)", name,
                          p.threads, p.reserved);
    return device_open(name, &(kvant_device_config){ p.threads, index, p.stream }, out, diag);
}

void kvant_device_close(kvant_device *d)
{
    if (d)
        d->vt->close(d);
}

void kvant_device_describe(const kvant_device *d, char *buf, int cap)
{
    d->vt->describe(d, buf, cap);
}

int64_t kvant_device_memory(const kvant_device *d)
{
    return d->vt->memory ? d->vt->memory(d) : -1;
}

/* ---- memory ---- */

int kvant_device_alloc(kvant_device *d, size_t bytes, void **addr, kvant_diag *diag)
{
    return d->vt->alloc(d, bytes, addr, diag);
}

void kvant_device_free(kvant_device *d, void *addr)
{
    if (addr)
        d->vt->free(d, addr);
}

int kvant_device_adopt(kvant_device *d, void *memory, size_t bytes, void **addr, kvant_diag *diag)
{
    if (!memory)
        return kvant_fail(diag, KVANT_EINVAL, "device %s: adopting NULL, wanted memory", d->vt->name);
    if (!d->vt->adopt)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "device %s: takes no memory of others, wanted kvant_device_alloc",
                          d->vt->name);
    return d->vt->adopt(d, memory, bytes, addr, diag);
}

int kvant_device_copy_in(kvant_device *d, void *addr, const void *src, size_t bytes, kvant_diag *diag)
{
    return d->vt->copy_in(d, addr, src, bytes, diag);
}

int kvant_device_copy_out(kvant_device *d, void *dst, const void *addr, size_t bytes, kvant_diag *diag)
{
    return d->vt->copy_out(d, dst, addr, bytes, diag);
}

/* ---- weights, parameters, layouts ---- */

int kvant_device_param_load(kvant_device *d, const void *host, size_t bytes, void **addr, kvant_diag *diag)
{
    return device_param_load(d, host, bytes, addr, diag);
}

int kvant_device_weight_load(kvant_device *d, kvant_weight *w, int compute, kvant_diag *diag)
{
    return d->vt->weight_load(d, w, compute, diag);
}

void kvant_device_weight_free(kvant_device *d, kvant_weight *w)
{
    d->vt->weight_free(d, w);
}

void kvant_device_layout(kvant_device *d, kvant_attn_args *a)
{
    a->k.layout = a->v.layout = KVANT_LAYOUT_ROWS;
    if (d->vt->kv_layout)
        d->vt->kv_layout(d, a);
}

static int check_page(const kvant_device *dev, const kvant_kv_side *s, int h, int d, int page, kvant_diag *diag)
{
    if (h >= 1 && page >= 0 && s->fmt && s->pages && s->row_bytes == kvant_format_row_bytes(s->fmt, d) &&
        s->head_bytes == KVANT_PAGE * s->row_bytes && s->page_bytes >= (size_t)h * s->head_bytes)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EINVAL,
                      "device %s: page %d of %d heads of %d values, rows of %zu, heads of %zu and "
                      "pages of %zu bytes: not those of a side",
                      dev->vt->name, page, h, d, s->row_bytes, s->head_bytes, s->page_bytes);
}

int kvant_device_page_read(kvant_device *dev, const kvant_kv_side *s, int h, int d, int page, void *rows,
                           kvant_diag *diag)
{
    const size_t at = (size_t)page * s->page_bytes;

    KVANT_TRY(check_page(dev, s, h, d, page, diag));
    if (s->layout != KVANT_LAYOUT_ROWS && dev->vt->page_read)
        return dev->vt->page_read(dev, s, h, d, page, rows, diag);
    return dev->vt->copy_out(dev, rows, s->pages + at, (size_t)h * s->head_bytes, diag);
}

int kvant_device_page_write(kvant_device *dev, const kvant_kv_side *s, int h, int d, int page, const void *rows,
                            kvant_diag *diag)
{
    const size_t at = (size_t)page * s->page_bytes;

    KVANT_TRY(check_page(dev, s, h, d, page, diag));
    if (s->layout != KVANT_LAYOUT_ROWS && dev->vt->page_write)
        return dev->vt->page_write(dev, s, h, d, page, rows, diag);
    return dev->vt->copy_in(dev, s->pages + at, rows, (size_t)h * s->head_bytes, diag);
}

/* ---- ops ---- */

int kvant_device_supports(kvant_device *d, const kvant_op *op, kvant_diag *diag)
{
    KVANT_TRY(kvant_op_check(op->id, op->args, diag));
    return d->vt->supports(d, op, diag);
}

int kvant_device_submit(kvant_device *d, const kvant_op *ops, int n, uint64_t key, kvant_diag *diag)
{
    if (n < 0 || (n > 0 && !ops))
        return kvant_fail(diag, KVANT_EINVAL, "device %s: a list of %d ops, wanted 0 or more", d->vt->name, n);
    for (int i = 0; i < n; i++)
        KVANT_TRY(kvant_device_supports(d, &ops[i], diag));
    return d->vt->submit(d, ops, n, key, diag);
}

int kvant_device_sync(kvant_device *d, kvant_diag *diag)
{
    return d->vt->sync(d, diag);
}
