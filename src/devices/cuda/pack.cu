/* pack.cu: heads of pages between the row layout and the private layout (pack.cuh), in place: page_seal packs what its
 * encoder wrote, import and export convert whole pages. */
#include "devices/cuda/cuda_dev.cuh"
#include "devices/cuda/pack.cuh"

enum { THREADS = 256 };

#define CUDA_FORMAT(name, space, cls, codes) { PACK_##cls, CODES_##codes },
static const struct {
    int cls, codes;
} kinds[] = {
#include "devices/cuda/cuda_formats.def"
};
#undef CUDA_FORMAT

int cuda_pack_class(int fmt)
{
    return kinds[fmt].cls;
}

bool cuda_pack_shape(const side_dev *s, int role, pack_shape *out)
{
    return pack_shape_of(role, kinds[s->fmt].cls, kinds[s->fmt].codes, s->d, s->group, s->group_bytes, out) &&
           s->dp == s->d && (size_t)out->row_bytes == s->row_bytes;
}

/* One block per head of a listed page (pages NULL: page 0): the head, copied to shared memory, is permuted back to
 * where it came from, which is returned. */
static __device__ __forceinline__ uint8_t *head_load(const side_dev &s, const pack_shape &p, const int32_t *pages,
                                                     int h, uint8_t *head)
{
    uint8_t *at = side_row(s, pages ? pages[blockIdx.x / h] : 0, blockIdx.x % h, 0);
    for (int i = threadIdx.x; i < KVANT_PAGE * p.row_bytes / 16; i += THREADS)
        ((uint4 *)head)[i] = ((const uint4 *)at)[i];
    __syncthreads();
    return at;
}

/* CODES_WORDS: halves of a block in another order. */
template <bool BACK>
static __device__ __forceinline__ void head_halves(const pack_shape &p, uint8_t *at, const uint8_t *head)
{
    const int half = p.block_bytes / 2;
    for (int i = threadIdx.x; i < 2 * half; i += THREADS) {
        const int rows = i / half * half + pack_half_from(&p, i % half);
        ((uint16_t *)at)[BACK ? rows : i] = ((const uint16_t *)head)[BACK ? i : rows];
    }
}

static __global__ void __launch_bounds__(THREADS) pack_kernel(side_dev s, pack_shape p, const int32_t *pages, int h)
{
    extern __shared__ __align__(16) uint8_t head[];
    uint8_t *at = head_load(s, p, pages, h, head);

    if (p.codes == CODES_WORDS) {
        head_halves<false>(p, at, head);
        return;
    }
    const int quads = pack_quads(&p);
    for (int i = threadIdx.x; i < 2 * quads * 32; i += THREADS) {
        const int lane = i % 32, quad = i / 32 % quads, block = i / 32 / quads;
        uint32_t w[4];
        pack_quad(&p, head, block, quad, lane, w);
        for (int k = 0; k < (p.cls == PACK_LUT3 ? 3 : 4); k++)
            *(uint32_t *)(at + pack_word_at(&p, block, quad, lane, k)) = w[k];
    }
    for (int i = threadIdx.x; i < KVANT_PAGE * p.n_rec; i += THREADS) {
        const int row = i / p.n_rec, c = i % p.n_rec, block = row / PACK_BLOCK;
        const uint8_t *from = head + row * p.row_bytes + c * p.rec_bytes;
        *(uint16_t *)(at + block * p.block_bytes + p.code_bytes +
                      pack_scale_at(&p, row % PACK_BLOCK, c)) = *(const uint16_t *)from;
        for (int k = 0; k < p.rest; k++)
            at[2 * p.block_bytes + i * p.rest + k] = from[p.rec_bytes - p.rest + k];
    }
}

static __global__ void __launch_bounds__(THREADS) unpack_kernel(side_dev s, pack_shape p, const int32_t *pages, int h)
{
    extern __shared__ __align__(16) uint8_t head[];
    uint8_t *at = head_load(s, p, pages, h, head);
    const int recs = p.rec ? p.n_rec : p.d / 32, bytes = p.rec ? p.rec_bytes : 32;

    if (p.codes == CODES_WORDS) {
        head_halves<true>(p, at, head);
        return;
    }
    for (int i = threadIdx.x; i < KVANT_PAGE * recs; i += THREADS)
        pack_record(&p, head, i / recs, i % recs, at + i / recs * p.row_bytes + i % recs * bytes);
}

void cuda_pack_pages(cuda_device *d, const side_dev &s, const pack_shape &p, const int32_t *pages, int n, int h,
                     bool back)
{
    const size_t bytes = (size_t)KVANT_PAGE * p.row_bytes;
    if (n <= 0)
        return;
    if (back) {
        cuda_smem(unpack_kernel, bytes);
        unpack_kernel<<<(unsigned)(n * h), THREADS, bytes, d->stream>>>(s, p, pages, h);
    } else {
        cuda_smem(pack_kernel, bytes);
        pack_kernel<<<(unsigned)(n * h), THREADS, bytes, d->stream>>>(s, p, pages, h);
    }
}

/* ---- one page to and from host rows ---- */

static int page_side(cuda_device *d, const kvant_kv_side *s, int dim, side_dev *side, pack_shape *shape,
                     kvant_diag *diag)
{
    CUDA_TRY(cuda_side(d, s, dim, side, diag));
    if (!cuda_pack_shape(side, s->layout, shape))
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: %s pages with head_dim %d have no private layout %d",
                         s->fmt->name, dim, s->layout);
    return cuda_check(diag, cudaSetDevice(d->index), "selecting the GPU");
}

int cuda_page_write(kvant_device *base, const kvant_kv_side *s, int h, int d, int page, const void *rows,
                    kvant_diag *diag)
{
    cuda_device *dev = (cuda_device *)base;
    side_dev side;
    pack_shape shape;
    CUDA_TRY(page_side(dev, s, d, &side, &shape, diag));
    side.pages += (size_t)page * s->page_bytes;
    CUDA_TRY(base->vt->copy_in(base, side.pages, rows, s->page_bytes, diag));
    cuda_pack_pages(dev, side, shape, NULL, 1, h, false);
    return cuda_check(diag, cudaGetLastError(), "packing a page");
}

int cuda_page_read(kvant_device *base, const kvant_kv_side *s, int h, int d, int page, void *rows, kvant_diag *diag)
{
    cuda_device *dev = (cuda_device *)base;
    const uint8_t *from = s->pages + (size_t)page * s->page_bytes;
    side_dev side;
    pack_shape shape;
    void *copy = NULL;
    CUDA_TRY(page_side(dev, s, d, &side, &shape, diag));
    CUDA_TRY(cuda_check(diag, cudaMallocAsync(&copy, s->page_bytes, dev->stream), "memory for a page"));
    side.pages = (uint8_t *)copy;
    int rc = cuda_check(diag, cudaMemcpyAsync(copy, from, s->page_bytes, cudaMemcpyDeviceToDevice, dev->stream),
                        "a page");
    if (rc == KVANT_OK) {
        cuda_pack_pages(dev, side, shape, NULL, 1, h, true);
        rc = base->vt->copy_out(base, rows, copy, s->page_bytes, diag);
    }
    cudaFreeAsync(copy, dev->stream);
    return rc == KVANT_OK ? cuda_check(diag, cudaGetLastError(), "unpacking a page") : rc;
}
