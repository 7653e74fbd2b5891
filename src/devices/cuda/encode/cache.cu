/* cache.cu: the ops cache_write, page_seal, cache_read.  A row's source is the f32 rows of an op, or a tail page's f16.
 * cache_write stores f16 into the exact tail instead, where the position has a tail page.  These encode:
 *   encode_rows.cu   any rows, tiles of eight units of 128 values to a warp (encode_core.cuh); chooses among the others
 *   encode_seal.cu   of whole pages the formats that have a private layout, straight to it
 *   encode_tail.cu   none: sides in a private layout, whose rows cache_write only copies to the tail; where attn comes
 *                    behind it and takes one launch, that copies them (attn_whole.cu)
 *   sketch/          qjl1_256: sketch_wgmma.cu on compute capability 9.0, where its projection came by param_load
 *                    or from the host, whole pages straight to their layout; else sketch_any.cu
 *   trellis/         turbo3_tcq, a warp to a unit: trellis_upstream.cu; trellis_best.cu: `best`, whole pages too
 *   encode_pages.cu  the formats of page scope, whole pages */
#include "devices/cuda/core/page.cuh"
#include "devices/cuda/encode/encode_job.cuh"
#include "devices/cuda/attn/decode/attn_decode.cuh"

enum { THREADS = 128 };

/* n_rows: tokens, or rows of the sealed pages. */
static int finish_job(encode_job *p, int64_t n_rows, int h, kvant_diag *diag)
{
    const uintptr_t at = (uintptr_t)p->x | (uintptr_t)(4 * p->ldx) | (uintptr_t)(4 * p->side.d);
    p->h = h;
    p->groups = (p->side.dp + GROUP_MAX - 1) / GROUP_MAX;
    p->vec = (at & 15) == 0 && ((uintptr_t)p->side.tail & 7) == 0;
    const bool plain = p->side.group == 1;
    const uintptr_t rows_at = (uintptr_t)p->side.pages | p->side.page_bytes | p->side.head_bytes | p->side.row_bytes;
    p->full = p->vec && p->side.d % GROUP_MAX == 0 && (!plain || (rows_at & 15) == 0);
    if (n_rows > INT32_MAX / ((int64_t)h * p->groups + 1))
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: %lld rows of %d heads, wanted fewer than 2^31 in all",
                         (long long)n_rows, h);
    p->units = (unsigned)(n_rows * h * p->groups);
    return KVANT_OK;
}

static int write_job(cuda_device *d, const kvant_cache_write_args *a, encode_job *p, kvant_diag *diag)
{
    memset(p, 0, sizeof *p);
    CUDA_TRY(cuda_side(d, &a->side, a->d, &p->side, diag));
    p->seqs = cuda_seqs(&a->seqs);
    p->x = a->x;
    p->ldx = a->ldx;
    return finish_job(p, a->seqs.n_tokens, a->h, diag);
}

static int encoder_of(const kvant_kv_side &s, kvant_diag *diag)
{
    if (cuda_encodes(cuda_format_find(s.fmt)))
        return KVANT_OK;
    return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: no encoder for the codes of cache format %s", s.fmt->name);
}

static int write_supports(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_cache_write_args *a = (const kvant_cache_write_args *)args;
    if ((a->side.layout || a->side.fmt->flags & KVANT_FORMAT_PAGE) && !a->side.tail)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: cache_write writes pages of rows only, wanted an exact tail");
    CUDA_TRY(cuda_side_supports(d, &a->side, a->d, diag));
    return encoder_of(a->side, diag);
}

static int write_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_cache_write_args *a = (const kvant_cache_write_args *)args;
    jobs p;
    memset(&p, 0, sizeof p);
    CUDA_TRY(write_job(d, a, &p.j[0], diag));
    if (a->seqs.n_tokens > 0)
        cuda_encode(d, p, 1);
    return KVANT_OK;
}

/* ---- forms: K and V of one layer ---- */

static int write_jobs(cuda_device *d, const kvant_op *ops, jobs *p, kvant_diag *diag)
{
    CUDA_TRY(write_job(d, OP_ARGS(cache_write, 0), &p->j[0], diag));
    return write_job(d, OP_ARGS(cache_write, 1), &p->j[1], diag);
}

/* One format, or only the exact tail. */
static bool writes_takes(cuda_device *d, const kvant_op *ops)
{
    const kvant_kv_side &k = OP_ARGS(cache_write, 0)->side, &v = OP_ARGS(cache_write, 1)->side;
    jobs p;
    return !k.layout == !v.layout && (k.layout || (k.fmt == v.fmt && k.encoder == v.encoder)) &&
           write_jobs(d, ops, &p, NULL) == KVANT_OK;
}

static int writes_run(cuda_device *d, const kvant_op *ops, enum fuse_pass, kvant_diag *diag)
{
    jobs p;
    CUDA_TRY(write_jobs(d, ops, &p, diag));
    cuda_encode(d, p, 2);
    return KVANT_OK;
}

static bool whole_takes(cuda_device *d, const kvant_op *ops)
{
    return cuda_attn_write_takes(d, OP_ARGS(cache_write, 0), OP_ARGS(cache_write, 1), OP_ARGS(attn, 2), NULL);
}

static int whole_run(cuda_device *d, const kvant_op *ops, enum fuse_pass, kvant_diag *diag)
{
    return cuda_attn_write(d, OP_ARGS(cache_write, 0), OP_ARGS(cache_write, 1), OP_ARGS(attn, 2), NULL, diag);
}

/* The private layout of a side that asks for one. */
static int layout_of(cuda_device *d, const kvant_kv_side &s, int head_dim, pack_shape *shape, kvant_diag *diag)
{
    side_dev side;
    memset(shape, 0, sizeof *shape);
    CUDA_TRY(cuda_side(d, &s, head_dim, &side, diag));
    if (s.layout && !cuda_pack_shape(&side, s.layout, shape))
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: %s pages with head_dim %d have no private layout %d",
                         s.fmt->name, head_dim, s.layout);
    return KVANT_OK;
}

static int seal_supports(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_page_seal_args *a = (const kvant_page_seal_args *)args;
    pack_shape shape;
    CUDA_TRY(layout_of(d, a->side, a->d, &shape, diag));
    return encoder_of(a->side, diag);
}

static int seal_job(cuda_device *d, const kvant_page_seal_args *a, encode_job *p, pack_side *to, kvant_diag *diag)
{
    memset(p, 0, sizeof *p);
    CUDA_TRY(cuda_side(d, &a->side, a->d, &p->side, diag));
    p->seal = 1;
    p->src = a->src;
    p->dst = a->dst;
    p->n = a->n;
    CUDA_TRY(finish_job(p, a->n * (int64_t)KVANT_PAGE, a->h, diag));
    to->s = p->side;
    return layout_of(d, a->side, a->d, &to->shape, diag);
}

/* At once, or rows that another launch packs. */
static void seal_pages(cuda_device *d, const jobs &p, const pack_side *to, int sides)
{
    const encode_job &j = p.j[0];
    if (cuda_seal_encode(d, p, to, sides))
        return;
    cuda_encode(d, p, sides);
    if (j.side.layout)
        cuda_pack_pages(d, to, sides, j.dst, j.n, j.h, false);
}

static size_t seal_scratch(const cuda_device *d, const void *args)
{
    const kvant_page_seal_args *a = (const kvant_page_seal_args *)args;
    pack_side to;
    encode_job p;
    if (!(a->side.fmt->flags & KVANT_FORMAT_PAGE) || seal_job((cuda_device *)d, a, &p, &to, NULL) < 0)
        return 0;
    return cuda_pages_scratch(p);
}

static int no_book(kvant_diag *diag)
{
    return cuda_fail(diag, KVANT_EDEVICE, "device cuda: page_seal: no book");
}

static int seal_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_page_seal_args *a = (const kvant_page_seal_args *)args;
    jobs p;
    pack_side to;
    memset(&p, 0, sizeof p);
    CUDA_TRY(seal_job(d, a, &p.j[0], &to, diag));
    if (a->n > 0 && p.j[0].side.fmt >= FMT_COUNT)
        return cuda_pages_seal(d, p, 1) ? KVANT_OK : no_book(diag);
    if (a->n > 0)
        seal_pages(d, p, &to, 1);
    return KVANT_OK;
}

/* Two formats: two launches, side by side where the first one takes one only. */
static void seal_beside(cuda_device *d, const jobs &p, const pack_side *to)
{
    jobs first = p, second = p;
    first.j[0].beside = JOB_FIRST;
    second.j[0] = p.j[1];
    if (cuda_seal_encode(d, first, to, 1))
        second.j[0].beside = JOB_SECOND;
    else
        seal_pages(d, p, to, 1);
    if (second.j[0].beside && cuda_seal_encode(d, second, to + 1, 1))
        return;
    second.j[0].beside = JOB_ALONE;
    seal_pages(d, second, to + 1, 1);
}

static int seal_jobs(cuda_device *d, const kvant_op *ops, jobs *p, pack_side *to, kvant_diag *diag)
{
    CUDA_TRY(seal_job(d, OP_ARGS(page_seal, 0), &p->j[0], &to[0], diag));
    return seal_job(d, OP_ARGS(page_seal, 1), &p->j[1], &to[1], diag);
}

static bool seals_takes(cuda_device *d, const kvant_op *ops)
{
    const kvant_kv_side &k = OP_ARGS(page_seal, 0)->side, &v = OP_ARGS(page_seal, 1)->side;
    pack_side to[2];
    jobs p;
    return (k.fmt == v.fmt || !((k.fmt->flags | v.fmt->flags) & KVANT_FORMAT_PAGE)) &&
           seal_jobs(d, ops, &p, to, NULL) == KVANT_OK;
}

static int seals_run(cuda_device *d, const kvant_op *ops, enum fuse_pass, kvant_diag *diag)
{
    const kvant_kv_side &k = OP_ARGS(page_seal, 0)->side, &v = OP_ARGS(page_seal, 1)->side;
    pack_side to[2];
    jobs p;
    CUDA_TRY(seal_jobs(d, ops, &p, to, diag));
    if (k.fmt->flags & KVANT_FORMAT_PAGE)
        return cuda_pages_seal(d, p, 2) ? KVANT_OK : no_book(diag);
    if (k.fmt == v.fmt && k.encoder == v.encoder)
        seal_pages(d, p, to, 2);
    else
        seal_beside(d, p, to);
    return KVANT_OK;
}

/* Row r of a packed head, as rows have it. */
static __device__ void unpack_row(const pack_shape &p, const uint8_t *head, int r, uint8_t *to)
{
    const int recs = p.rec ? p.n_rec : p.d / 32, bytes = p.rec ? p.rec_bytes : 32, half = p.block_bytes / 2;
    if (p.codes == CODES_WORDS)
        for (int i = threadIdx.x; i < half; i += blockDim.x) {
            const int from = pack_half_from(&p, i) - r % PACK_BLOCK * (p.row_bytes / 2);
            if (from >= 0 && from < p.row_bytes / 2)
                ((uint16_t *)to)[from] = ((const uint16_t *)head)[r / PACK_BLOCK * half + i];
        }
    else
        for (int i = threadIdx.x; i < recs; i += blockDim.x)
            pack_record(&p, head, r, i, to + i * bytes);
    __syncthreads();
}

/* One block per row and head. */
static __global__ void read_kernel(side_dev s, pack_shape p, const int32_t *page, const int32_t *row, float *y, int h)
{
    __shared__ float acc[2 * KVANT_MAX_HEAD_DIM], x[2 * KVANT_MAX_HEAD_DIM];
    __shared__ __align__(16) uint8_t packed[8 * KVANT_MAX_HEAD_DIM];
    const int64_t i = blockIdx.x / h, head = blockIdx.x % h;
    const uint8_t *r = side_row(s, page[i], (int)head, row[i]);
    if (s.layout) {
        unpack_row(p, side_row(s, page[i], (int)head, 0), row[i], packed);
        r = packed;
    }
    const float scale = side_scale(s);
    if (is_paged(s) && threadIdx.x < 32)
        page_values(s, page[i], (int)head, row[i], acc);
    for (int j = threadIdx.x; j < s.sdim && !is_paged(s); j += blockDim.x)
        acc[j] = fmt_value(s.fmt, r, j, scale);
    space_finish(s, acc, x);
    for (int j = threadIdx.x; j < s.d; j += blockDim.x)
        y[(int64_t)blockIdx.x * s.d + j] = x[j];
}

static int read_supports(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_cache_read_args *a = (const kvant_cache_read_args *)args;
    return cuda_side_supports(d, &a->side, a->d, diag);
}

static int read_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_cache_read_args *a = (const kvant_cache_read_args *)args;
    side_dev s;
    pack_shape shape;
    CUDA_TRY(cuda_side(d, &a->side, a->d, &s, diag));
    CUDA_TRY(layout_of(d, a->side, a->d, &shape, diag));
    if (a->n > 0)
        read_kernel<<<(unsigned)(a->n * (int64_t)a->h), THREADS, 0, d->stream>>>(s, shape, a->page, a->row, a->y, a->h);
    return KVANT_OK;
}

const cuda_op cuda_op_cache_write = { write_supports, NULL, write_run };
const cuda_op cuda_op_page_seal = { seal_supports, seal_scratch, seal_run, true };
const cuda_op cuda_op_cache_read = { read_supports, NULL, read_run };
const cuda_form cuda_fused_writes = { writes_takes, writes_run };
const cuda_form cuda_fused_writes_attn = { whole_takes, whole_run };
const cuda_form cuda_fused_seals = { seals_takes, seals_run };
