/* sides.cu: one side of a cache (format, pages, parameter) as kernels want it, and the formats that they know. */
#include "devices/cuda/encode/sketch/sketch.cuh"
#include "devices/cuda/core/device.cuh"
#include "cards/cuda.cuh"

#define CARD_FORMAT(name, values, bytes, space, cls, codes) \
    { #name, values, bytes, SPACE_##space, CARD_##cls },
static const cuda_format formats[] = {
#include "cards/lists.inc"
#undef CARD_FORMAT
#define CARD_PAGE(name, values, bytes, space, bits, book) { #name, values, bytes, SPACE_##space, CARD_NONE },
#include "cards/lists.inc"
#undef CARD_PAGE
};

int cuda_format_find(const kvant_format *f)
{
    for (int i = 0; i < FMT_ALL; i++)
        if (strcmp(formats[i].name, f->name) == 0)
            return i;
    return -1;
}

const cuda_format *cuda_format_of(int id)
{
    return &formats[id];
}

static cuda_param *param_at(cuda_device *d, const void *at)
{
    for (int i = 0; i < CUDA_MAX_PARAMS; i++)
        if (d->params[i].at == at)
            return &d->params[i];
    return NULL;
}

/* Host memory to the device, and behind a projection its image, where there is a kernel for that.  A parameter named by
 * its device address (NULL) is dropped when it is freed, the rest when the device is closed. */
static int param_make(cuda_device *d, const void *at, const void *host, size_t bytes, cuda_param **out,
                      kvant_diag *diag)
{
    const bool image = bytes == SKETCH_VALUES * sizeof(float) && d->arch.make == ARCH_90;
    cuda_param *o = param_at(d, NULL);
    void *dev = NULL;
    if (!o)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: more than %d different format parameters",
                         CUDA_MAX_PARAMS);
    CUDA_TRY(cuda_alloc(&d->base, bytes + (image ? sizeof(sketch_image) : 0), &dev, diag));
    sketch_image *sketch = image ? (sketch_image *)((uint8_t *)dev + bytes) : NULL;
    int rc = cuda_copy_in(&d->base, dev, host, bytes, diag);
    if (rc == KVANT_OK && image)
        rc = cuda_sketch_image(d, (const float *)host, sketch, diag);
    if (rc < 0) {
        cuda_free(&d->base, dev);
        return rc;
    }
    *o = { at ? at : dev, bytes, (float *)dev, sketch };
    *out = o;
    return KVANT_OK;
}

int cuda_param_load(kvant_device *base, const void *host, size_t bytes, void **addr, kvant_diag *diag)
{
    cuda_param *o;
    CUDA_TRY(param_make((cuda_device *)base, NULL, host, bytes, &o, diag));
    *addr = o->dev;
    return KVANT_OK;
}

/* Recorded lists may read what lay behind it. */
void cuda_param_drop(cuda_device *d, const void *addr)
{
    cuda_param *o = addr ? param_at(d, addr) : NULL;
    if (!o)
        return;
    cuda_drop_graphs(d);
    memset(o, 0, sizeof *o);
}

bool cuda_param_holds(const cuda_device *d, const void *addr, size_t bytes)
{
    const uintptr_t from = (uintptr_t)addr;
    for (int i = 0; i < CUDA_MAX_PARAMS; i++) {
        const cuda_param &o = d->params[i];
        const uintptr_t at = (uintptr_t)o.dev, all = o.bytes + (o.sketch ? sizeof(sketch_image) : 0);
        if (o.at && from < at + all && at < from + bytes)
            return true;
    }
    return false;
}

/* A side's parameter: what was loaded, once from each host address; or memory of the device as it is. */
static int side_param(cuda_device *d, const void *param, size_t bytes, side_dev *o, kvant_diag *diag)
{
    cudaPointerAttributes at;
    o->param = (const float *)param;
    if (!param)
        return KVANT_OK;
    cuda_param *found = param_at(d, param);
    if (!found) {
        cudaError_t e = cudaPointerGetAttributes(&at, param);
        cudaGetLastError();
        if (e == cudaSuccess && (at.type == cudaMemoryTypeDevice || at.type == cudaMemoryTypeManaged))
            return KVANT_OK;
        CUDA_TRY(param_make(d, param, param, bytes, &found, diag));
    }
    o->param = found->dev;
    o->sketch = found->sketch;
    return KVANT_OK;
}

int cuda_side_supports(cuda_device *d, const kvant_kv_side *s, int head_dim, kvant_diag *diag)
{
    (void)d;
    if (!s->fmt || cuda_format_find(s->fmt) < 0)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: cache format %s has no kernels here",
                         s->fmt ? s->fmt->name : "(none)");
    const int most = s->fmt->group == 1 ? KVANT_MAX_PLAIN_HEAD_DIM : KVANT_MAX_HEAD_DIM;
    if (head_dim < 1 || head_dim > most)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: %s with head_dim %d, wanted 1 to %d", s->fmt->name,
                         head_dim, most);
    const cuda_format *f = cuda_format_of(cuda_format_find(s->fmt));
    const size_t align = f->values == 1 ? (size_t)f->bytes : 2; /* of the loads in cards/decode.h */
    const size_t rows = s->fmt->flags & KVANT_FORMAT_PAGE ? 0 : s->row_bytes; /* a share of a page is no place */
    if ((s->page_bytes | s->head_bytes | rows) % align)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: %s pages of %zu bytes, wanted a multiple of %zu",
                         s->fmt->name, s->page_bytes, align);
    return KVANT_OK;
}

int cuda_side(cuda_device *d, const kvant_kv_side *s, int head_dim, side_dev *out, kvant_diag *diag)
{
    const kvant_format *f = s->fmt;
    side_dev o;
    memset(&o, 0, sizeof o);
    CUDA_TRY(cuda_side_supports(d, s, head_dim, diag));
    o.fmt = cuda_format_find(f);
    o.space = formats[o.fmt].space;
    o.pages = s->pages;
    o.tail = s->tail;
    o.page_bytes = s->page_bytes;
    o.head_bytes = s->head_bytes;
    o.row_bytes = s->row_bytes;
    o.group = f->group;
    o.group_bytes = f->group_bytes;
    o.group_sdim = f->group_sdim;
    o.d = head_dim;
    o.dp = (head_dim + f->group - 1) / f->group * f->group;
    o.sdim = o.dp / f->group * f->group_sdim;
    o.encoder = s->encoder;
    o.layout = s->layout;
    const size_t params = o.space == SPACE_SKETCH ? SKETCH_VALUES : 1;
    CUDA_TRY(side_param(d, s->param, params * sizeof(float), &o, diag));
    *out = o;
    return KVANT_OK;
}
