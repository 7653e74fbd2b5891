/* sides.cu: one side of a cache (format, pages, parameter) as kernels want it, and the formats that they know. */
#include "devices/cuda/cache_sketch.cuh"

#define CUDA_FORMAT(name, space, cls, codes) { #name, SPACE_##space },
static const struct {
    const char *name;
    int space;
} formats[] = {
#include "devices/cuda/cuda_formats.def"
};
#undef CUDA_FORMAT

int cuda_format_find(const kvant_format *f)
{
    for (int i = 0; i < FMT_COUNT; i++)
        if (strcmp(formats[i].name, f->name) == 0)
            return i;
    return -1;
}

int cuda_format_space(int id)
{
    return formats[id].space;
}

int cuda_param(cuda_device *d, const void *param, size_t bytes, const float **out, kvant_diag *diag)
{
    cudaPointerAttributes at;
    *out = (const float *)param;
    if (!param)
        return KVANT_OK;
    for (int i = 0; i < CUDA_MAX_PARAMS; i++)
        if (d->params[i].host == param) {
            *out = d->params[i].dev;
            return KVANT_OK;
        }
    cudaError_t e = cudaPointerGetAttributes(&at, param);
    cudaGetLastError();
    if (e == cudaSuccess && (at.type == cudaMemoryTypeDevice || at.type == cudaMemoryTypeManaged))
        return KVANT_OK;
    for (int i = 0; i < CUDA_MAX_PARAMS; i++) {
        if (d->params[i].host)
            continue;
        CUDA_TRY(cuda_check(diag, cudaMalloc((void **)&d->params[i].dev, bytes), "allocating a format's parameter"));
        CUDA_TRY(cuda_check(diag, cudaMemcpy(d->params[i].dev, param, bytes, cudaMemcpyHostToDevice),
                            "copying a format's parameter"));
        d->params[i].host = param;
        *out = d->params[i].dev;
        return KVANT_OK;
    }
    return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: more than %d different format parameters",
                     CUDA_MAX_PARAMS);
}

/* The image of a projection that was uploaded, for the kernel of compute capability 9.0; one per host address. */
static int sketch_of(cuda_device *d, const void *param, const sketch_image **out, kvant_diag *diag)
{
    for (int i = 0; i < CUDA_MAX_PARAMS && d->major == 9 && d->minor == 0; i++) {
        if (!param || d->params[i].host != param)
            continue;
        if (!d->params[i].sketch)
            CUDA_TRY(cuda_sketch_image((const float *)param, &d->params[i].sketch, diag));
        *out = d->params[i].sketch;
    }
    return KVANT_OK;
}

int cuda_side_supports(cuda_device *d, const kvant_kv_side *s, int head_dim, kvant_diag *diag)
{
    (void)d;
    if (!s->fmt || cuda_format_find(s->fmt) < 0)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: cache format %s has no kernels here",
                         s->fmt ? s->fmt->name : "(none)");
    if (head_dim < 1 || head_dim > KVANT_MAX_HEAD_DIM)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: head_dim %d, wanted 1 to %d", head_dim,
                         KVANT_MAX_HEAD_DIM);
    const int id = cuda_format_find(s->fmt);
    const size_t align = id == FMT_f32 ? 4 : id == FMT_f8_e4m3 ? 1 : 2; /* of the loads in fmt.cuh */
    if ((s->page_bytes | s->head_bytes | s->row_bytes) % align)
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
    o.space = cuda_format_space(o.fmt);
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
    CUDA_TRY(cuda_param(d, s->param, params * sizeof(float), &o.param, diag));
    if (o.space == SPACE_SKETCH)
        CUDA_TRY(sketch_of(d, s->param, &o.sketch, diag));
    *out = o;
    return KVANT_OK;
}
