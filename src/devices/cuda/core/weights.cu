/* weights.cu: weights in device memory, in the layout of their file: copied from host rows, or made from a table of
 * blocks (base/pick.h), which spares a test model the trip through host memory. */
#include <stdlib.h>
#include "base/pick.h"
#include "devices/cuda/core/device.cuh"

#define CARD_WTYPE(sym, name, gguf, values, bytes, file_type) name,
static const char *const wtypes[] = {
#include "cards/lists.inc"
};
#undef CARD_WTYPE

int cuda_wtype_find(const kvant_wtype *t)
{
    for (int i = 0; i < WT_COUNT; i++)
        if (strcmp(wtypes[i], t->name) == 0)
            return i;
    return -1;
}

/* The struct of a weight, without memory for its rows. */
static int weight_of(const kvant_weight *w, cuda_weight **out, kvant_diag *diag)
{
    const char *name = w->name ? w->name : "weight";
    const int type = cuda_wtype_find(w->type);

    if (type < 0)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: %.64s: weight type %s has no kernels here", name,
                         w->type->name);
    cuda_weight *c = (cuda_weight *)calloc(1, sizeof *c);
    if (!c)
        return cuda_fail(diag, KVANT_ENOMEM, "%.64s: out of memory", name);
    c->type = type;
    c->row_bytes = (size_t)(w->n_in / w->type->block) * (size_t)w->type->bytes;
    c->bytes = c->row_bytes * (size_t)w->n_out * (size_t)w->n_expert;
    *out = c;
    return KVANT_OK;
}

static int weight_new(cuda_device *d, kvant_weight *w, cuda_weight **out, kvant_diag *diag)
{
    cuda_weight *c = NULL;
    void *p = NULL;

    CUDA_TRY(weight_of(w, &c, diag));
    int rc = cuda_alloc(&d->base, c->bytes + 16, &p, diag); /* copies of 16 bytes may end behind the last row */
    if (rc < 0) {
        free(c);
        return rc;
    }
    c->data = (uint8_t *)p;
    *out = c;
    return KVANT_OK;
}

static void weight_drop(cuda_weight *c)
{
    cudaFree(c->data);
    cudaFree(c->scale);
    cudaGetLastError();
    free(c);
}

/* The end of making a weight: w has it, or it is gone where rc is an error.  Returns rc. */
static int weight_keep(kvant_weight *w, cuda_weight *c, int rc)
{
    if (rc < 0) {
        weight_drop(c);
        return rc;
    }
    w->packed = c;
    w->data = NULL;
    return KVANT_OK;
}

static int load_scale(cuda_device *d, const kvant_weight *w, cuda_weight *c, kvant_diag *diag)
{
    void *p = NULL;
    if (!w->scale)
        return KVANT_OK;
    CUDA_TRY(cuda_alloc(&d->base, (size_t)w->n_scale * sizeof(float), &p, diag));
    c->scale = (float *)p;
    return cuda_copy_in(&d->base, c->scale, w->scale, (size_t)w->n_scale * sizeof(float), diag);
}

int cuda_weight_bytes(const kvant_weight *w, size_t *bytes, kvant_diag *diag)
{
    cuda_weight *c = NULL;
    CUDA_TRY(weight_of(w, &c, diag));
    *bytes = c->bytes + 16;
    free(c);
    return KVANT_OK;
}

int cuda_weight_at(cuda_device *d, kvant_weight *w, void *at, kvant_diag *diag)
{
    cuda_weight *c = NULL;
    CUDA_TRY(weight_of(w, &c, diag));
    const int rc = load_scale(d, w, c, diag);
    if (rc < 0)
        return weight_keep(w, c, rc);      /* the memory at `at` is not c's yet */
    c->data = (uint8_t *)at;
    return weight_keep(w, c, KVANT_OK);
}

int cuda_weight_load(kvant_device *base, kvant_weight *w, int compute, kvant_diag *diag)
{
    cuda_device *d = (cuda_device *)base;
    cuda_weight *c = NULL;
    (void)compute; /* one layout, the file's, serves both modes */
    CUDA_TRY(weight_new(d, w, &c, diag));
    int rc = cuda_upload(d, c->data, w->data, c->bytes, diag); /* the caller may drop its rows now */
    if (rc == KVANT_OK)
        rc = load_scale(d, w, c, diag);
    return weight_keep(w, c, rc);
}

/* Two bytes per turn, one where a block's size is odd. */
template <typename U>
static __global__ void make_kernel(U *to, uint64_t units, const U *table, uint32_t n, uint32_t per_block, uint64_t seed)
{
    const uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t u = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; u < units; u += step) {
        const uint64_t b = u / per_block;
        to[u] = table[(uint64_t)pick_block(seed, b, n) * per_block + (uint32_t)(u - b * per_block)];
    }
}

int cuda_weight_make(kvant_device *base, kvant_weight *w, int compute, const void *table, int n, uint64_t seed,
                     kvant_diag *diag)
{
    cuda_device *d = (cuda_device *)base;
    cuda_weight *c = NULL;
    void *t = NULL;
    const uint32_t block = (uint32_t)w->type->bytes;
    (void)compute;
    CUDA_TRY(weight_new(d, w, &c, diag));
    int rc = cuda_alloc(base, (size_t)n * block, &t, diag);
    if (rc == KVANT_OK)
        rc = cuda_copy_in(base, t, table, (size_t)n * block, diag);
    if (rc == KVANT_OK) {
        if (block % 2)
            make_kernel<<<4096, 256, 0, d->stream>>>(c->data, c->bytes, (const uint8_t *)t, (uint32_t)n, block, seed);
        else
            make_kernel<<<4096, 256, 0, d->stream>>>((uint16_t *)c->data, c->bytes / 2, (const uint16_t *)t,
                                                     (uint32_t)n, block / 2, seed);
        rc = cuda_check(diag, cudaGetLastError(), "making a weight");
    }
    if (rc == KVANT_OK)
        rc = cuda_sync(base, diag);
    cudaFree(t);
    return weight_keep(w, c, rc);
}

void cuda_weight_free(kvant_device *base, kvant_weight *w)
{
    cuda_weight *c = (cuda_weight *)w->packed;
    if (!c)
        return;
    cuda_free(base, c->data);
    cuda_free(base, c->scale);
    free(c);
    w->packed = NULL;
}
