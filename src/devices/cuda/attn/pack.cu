/* pack.cu: heads of pages between the row layout and the private layout (pack.cuh), in place: page_seal packs what its
 * encoder wrote, import and export convert whole pages. */
#include "devices/cuda/attn/decode/attn_decode.cuh"
#include "devices/cuda/attn/pack_head.cuh"

enum { THREADS = 256 };

#define CARD_FORMAT(name, values, bytes, space, cls, codes) { PACK_##cls, CODES_##codes },
static const struct {
    int cls, codes;
} kinds[] = {
#include "cards/lists.inc"
};
#undef CARD_FORMAT

int cuda_pack_class(int fmt)
{
    return fmt < FMT_COUNT ? kinds[fmt].cls : (int)PACK_NONE; /* pages of page scope have one order of bytes */
}

int cuda_pack_codes(int fmt)
{
    return fmt < FMT_COUNT ? kinds[fmt].codes : (int)CODES_NONE;
}

bool cuda_pack_shape(const side_dev *s, int role, pack_shape *out)
{
    return pack_shape_of(role, cuda_pack_class(s->fmt), cuda_pack_codes(s->fmt), s->d, s->group, s->group_bytes, out) &&
           s->dp == s->d && (size_t)out->row_bytes == s->row_bytes;
}

/* One side, or two in one launch: blockIdx.y. */
typedef struct pack_job {
    pack_side side[2];
    const int32_t *pages;           /* NULL: page 0 */
    int h;
} pack_job;

/* One block per head of a listed page: the head, copied to shared memory, is permuted back to where it came from, which
 * is returned. */
static __device__ __forceinline__ uint8_t *head_load(const pack_job &p, uint8_t *head)
{
    const pack_side &o = p.side[blockIdx.y];
    uint8_t *at = side_row(o.s, p.pages ? p.pages[blockIdx.x / p.h] : 0, blockIdx.x % p.h, 0);
    for (int i = threadIdx.x; i < KVANT_PAGE * o.shape.row_bytes / 16; i += THREADS)
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

template <int CLS, int CODES, int REC> static __global__ void __launch_bounds__(THREADS) pack_kernel(pack_job p)
{
    extern __shared__ __align__(16) uint8_t head[];
    uint8_t *at = head_load(p, head);
    if constexpr (CODES == CODES_WORDS)
        return head_halves<false>(p.side[blockIdx.y].shape, at, head);
    pack_shape shape = head_shape<CLS, CODES, REC>(p.side[blockIdx.y].shape);
    if (shape.role == PACK_K) {
        shape.role = PACK_K;            /* known to the compiler */
        head_codes(shape, at, head, (int)threadIdx.x, THREADS);
    } else {
        shape.role = PACK_V;
        head_codes(shape, at, head, (int)threadIdx.x, THREADS);
    }
}

static __global__ void __launch_bounds__(THREADS) unpack_kernel(pack_job job)
{
    extern __shared__ __align__(16) uint8_t head[];
    const pack_shape &p = job.side[blockIdx.y].shape;
    uint8_t *at = head_load(job, head);
    const int recs = p.rec ? p.n_rec : p.d / 32, bytes = p.rec ? p.rec_bytes : 32;

    if (p.codes == CODES_WORDS) {
        head_halves<true>(p, at, head);
        return;
    }
    for (int i = threadIdx.x; i < KVANT_PAGE * recs; i += THREADS)
        pack_record(&p, head, i / recs, i % recs, at + i / recs * p.row_bytes + i % recs * bytes);
}

/* The kernel that packs a shape. */
static void (*pack_kernel_of(const pack_shape &p))(pack_job)
{
    switch (p.codes) {
    case CODES_WORDS: return pack_kernel<PACK_TRELLIS, CODES_WORDS, 0>;
    case CODES_HALVES:
        return p.cls == PACK_LUT4 ? pack_kernel<PACK_LUT4, CODES_HALVES, 32> : pack_kernel<PACK_SYM4, CODES_HALVES, 32>;
    case CODES_PAIRS: return pack_kernel<PACK_SYM4, CODES_PAIRS, 128>;
    case CODES_SIGNED: return pack_kernel<PACK_SYM4, CODES_SIGNED, 128>;
    case CODES_STREAM: return pack_kernel<PACK_LUT3, CODES_STREAM, 32>;
    case CODES_PLANES: return pack_kernel<PACK_LUT3, CODES_PLANES, 32>;
    case CODES_BYTE: return pack_kernel<PACK_INT8, CODES_BYTE, 32>;
    default: return pack_kernel<PACK_FLOAT8, CODES_PLAIN, 0>;
    }
}

void cuda_pack_pages(cuda_device *d, const pack_side *sides, int n_sides, const int32_t *pages, int n, int h, bool back)
{
    const size_t bytes = (size_t)KVANT_PAGE * sides[0].shape.row_bytes;
    const pack_job p = { { sides[0], sides[n_sides - 1] }, pages, h };
    void (*const kernel)(pack_job) = back ? unpack_kernel : pack_kernel_of(sides[0].shape);
    if (n <= 0)
        return;
    cuda_smem(kernel, bytes);
    kernel<<<dim3((unsigned)(n * h), (unsigned)n_sides), THREADS, bytes, d->stream>>>(p);
}

/* ---- one page to and from host rows ---- */

static int page_side(cuda_device *d, const kvant_kv_side *s, int dim, pack_side *side, kvant_diag *diag)
{
    CUDA_TRY(cuda_side(d, s, dim, &side->s, diag));
    if (!cuda_pack_shape(&side->s, s->layout, &side->shape))
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: %s pages with head_dim %d have no private layout %d",
                         s->fmt->name, dim, s->layout);
    return cuda_check(diag, cudaSetDevice(d->index), "selecting the GPU");
}

int cuda_page_write(kvant_device *base, const kvant_kv_side *s, int h, int d, int page, const void *rows,
                    kvant_diag *diag)
{
    cuda_device *dev = (cuda_device *)base;
    pack_side side;
    CUDA_TRY(page_side(dev, s, d, &side, diag));
    side.s.pages += (size_t)page * s->page_bytes;
    CUDA_TRY(base->vt->copy_in(base, side.s.pages, rows, s->page_bytes, diag));
    cuda_pack_pages(dev, &side, 1, NULL, 1, h, false);
    return cuda_check(diag, cudaGetLastError(), "packing a page");
}

int cuda_page_read(kvant_device *base, const kvant_kv_side *s, int h, int d, int page, void *rows, kvant_diag *diag)
{
    cuda_device *dev = (cuda_device *)base;
    const uint8_t *from = s->pages + (size_t)page * s->page_bytes;
    pack_side side;
    void *copy = NULL;
    CUDA_TRY(page_side(dev, s, d, &side, diag));
    CUDA_TRY(cuda_check(diag, cudaMallocAsync(&copy, s->page_bytes, dev->stream), "memory for a page"));
    side.s.pages = (uint8_t *)copy;
    int rc = cuda_check(diag, cudaMemcpyAsync(copy, from, s->page_bytes, cudaMemcpyDeviceToDevice, dev->stream),
                        "a page");
    if (rc == KVANT_OK) {
        cuda_pack_pages(dev, &side, 1, NULL, 1, h, true);
        rc = base->vt->copy_out(base, rows, copy, s->page_bytes, diag);
    }
    cudaFreeAsync(copy, dev->stream);
    return rc == KVANT_OK ? cuda_check(diag, cudaGetLastError(), "unpacking a page") : rc;
}
