/* bench_attn.cu: see bench_attn.h. */
#include "devices/cuda/core/bench_attn.h"
#include <algorithm>
#include <vector>
#include "devices/cuda/attn/decode/attn_decode.cuh"
#include "devices/cuda/attn/prefill/attn_prefill.cuh"
#include "devices/cuda/core/page.cuh"
#include "cards/cuda.cuh"

enum { FLUSH_BYTES = 256 << 20, THREADS = 256 };

/* ---- random rows ---- */

static __device__ __forceinline__ uint32_t mix(uint64_t x)
{
    x = (x ^ x >> 31) * 0x7fb5d329728ea185ull;
    x = (x ^ x >> 27) * 0x81dadef4bc2dd44dull;
    return (uint32_t)(x ^ x >> 33);
}

static __device__ __forceinline__ float normal(uint64_t i)
{
    const float u = (float)(mix(2 * i) >> 8) + 0.5f, v = (float)(mix(2 * i + 1) >> 8);
    return sqrtf(-2.0f * logf(u / 16777216.0f)) * cospif(2.0f * v / 16777216.0f);
}

/* Returns the scale that a format needs for values of about one. */
static float unit_scale(const cuda_format *f)
{
    if (f->space == SPACE_REAL)
        return f->cls == CARD_INT8 ? 0.015f : 0.25f;
    return f->space == SPACE_P32 ? 1.0f : 11.3f;
}

/* Random codes everywhere, then (below) scales of about `scale`; rows of floats (CARD_NONE: f32) are values of about
 * one. */
static __global__ void fill_codes(uint8_t *to, size_t n, int cls, uint64_t seed)
{
    const size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n / 2; i += step) {
        uint32_t r = mix(i + seed);
        if (cls == CARD_FLOAT8)
            r = 0x3030u + (r & 0x8787u);
        else if (cls == CARD_HALF)
            r = __half_as_ushort(__float2half_rn(normal(i + seed)));
        else if (cls == CARD_BF16)
            r = __float_as_uint(normal(i + seed)) >> 16;
        else if (cls == CARD_NONE)
            r = (i & 1) ? __float_as_uint(normal(i / 2 + seed)) >> 16 : 0;
        ((uint16_t *)to)[i] = (uint16_t)r;
    }
}

static __global__ void fill_scales(uint8_t *to, size_t n_record, int record, int at, int bf16, float scale,
                                   uint64_t seed)
{
    const size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n_record; i += step) {
        const float x = scale * (0.75f + 0.5f * (float)(mix(i + seed) >> 8) / 16777216.0f);
        *(uint16_t *)(to + i * (size_t)record + at) = bf16 ? (uint16_t)(__float_as_uint(x) >> 16)
                                                           : __half_as_ushort(__float2half_rn(x));
    }
}

/* A page of page scope has random codes, means and starts by now; it gets scales of about one and a step that makes
 * means of less than that.  A thread to a row of 128 values. */
static __global__ void fill_pages(uint8_t *to, size_t n_row, int bits, uint64_t seed)
{
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x, row = i % KVANT_PAGE;
    if (i >= n_row)
        return;
    uint8_t *rest = to + i / KVANT_PAGE * (2 * page_codes(bits) + PAGE_REST) + 2 * page_codes(bits);
    const int step = row < 16 ? __half_as_ushort(__float2half_rn(0.005f)) >> row & 1 : 0;
    ((__half *)rest)[row] = __float2half_rn(0.75f + 0.5f * (float)(mix(i + seed) >> 8) / 16777216.0f);
    rest[PAGE_START + row] = (uint8_t)((rest[PAGE_START + row] & 127) | step << 7);
}

static __global__ void fill_normal(float *to, size_t n, float by, uint64_t seed)
{
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n)
        to[i] = by * normal(i + seed);
}

static __global__ void read_all(const uint4 *from, size_t n, uint4 *to)
{
    const size_t step = (size_t)gridDim.x * blockDim.x;
    uint4 sum = make_uint4(0, 0, 0, 0);
#pragma unroll 8
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += step) {
        const uint4 v = __ldcs(from + i);
        sum.x ^= v.x;
        sum.y ^= v.y;
        sum.z ^= v.z;
        sum.w ^= v.w;
    }
    if ((sum.x ^ sum.y ^ sum.z ^ sum.w) == 0x12345678u)
        *to = sum;
}

/* ---- a case on the device ---- */

typedef struct attn_room {
    cuda_device *d;
    kvant_diag *diag;
    std::vector<void *> mem;
    int rc;
} attn_room;

template <typename T> static T *take(attn_room *r, size_t n)
{
    void *p = NULL;
    if (r->rc == KVANT_OK)
        r->rc = r->d->base.vt->alloc(&r->d->base, n * sizeof(T), &p, r->diag);
    if (p)
        r->mem.push_back(p);
    return (T *)p;
}

static void drop(attn_room *r)
{
    cudaStreamSynchronize(r->d->stream);
    for (void *p : r->mem)
        cudaFree(p);
}

static int32_t *put(attn_room *r, const std::vector<int32_t> &x)
{
    int32_t *p = take<int32_t>(r, x.size());
    if (r->rc == KVANT_OK)
        r->rc = cuda_check(r->diag, cudaMemcpy(p, x.data(), x.size() * 4, cudaMemcpyHostToDevice), "copying a table");
    return p;
}

/* `pages` pages, and one behind them that holds no number. */
static void fill_side(attn_room *r, const kvant_cuda_attn_case *c, const kvant_format *f, int pages, int tails,
                      uint64_t seed, kvant_kv_side *s)
{
    const cuda_format *card = cuda_format_of(cuda_format_find(f));
    const bool sketch = card->space == SPACE_SKETCH;
    memset(s, 0, sizeof *s);
    s->fmt = f;
    s->row_bytes = (size_t)((c->d + f->group - 1) / f->group) * (size_t)f->group_bytes;
    s->head_bytes = s->row_bytes * KVANT_PAGE;
    s->page_bytes = s->head_bytes * (size_t)c->h_kv;
    s->pages = take<uint8_t>(r, s->page_bytes * (size_t)(pages + 1));
    const size_t n = s->page_bytes * (size_t)pages, tail = (size_t)tails * c->h_kv * KVANT_PAGE * c->d;
    if (c->tail_pages > 0 && !(f->flags & KVANT_FORMAT_WIDE))
        s->tail = take<uint16_t>(r, tail);
    if (sketch) {
        float *pi = take<float>(r, 128 * 256);
        if (r->rc == KVANT_OK)
            fill_normal<<<cuda_blocks(128 * 256, THREADS), THREADS, 0, r->d->stream>>>(pi, 128 * 256, 1.0f, 77);
        s->param = pi;
    }
    if (r->rc < 0)
        return;
    fill_codes<<<4096, THREADS, 0, r->d->stream>>>(s->pages, n, card->cls, seed << 40);
    if (f->flags & KVANT_FORMAT_PAGE) {
        const size_t n_row = n / (size_t)card->bytes;
        fill_pages<<<cuda_blocks((int64_t)n_row, THREADS), THREADS, 0, r->d->stream>>>(
            s->pages, n_row, (card->bytes - PAGE_SPARE) / 16, seed << 41);
    } else if (card->values > 1)
        fill_scales<<<4096, THREADS, 0, r->d->stream>>>(s->pages, n / card->bytes, card->bytes, sketch ? 32 : 0, sketch,
                                                        unit_scale(card), seed << 41);
    cudaMemsetAsync(s->pages + n, 0xff, s->page_bytes, r->d->stream);
    if (s->tail)
        fill_codes<<<1024, THREADS, 0, r->d->stream>>>((uint8_t *)s->tail, tail * 2, CARD_HALF, seed << 42);
}

/* Pages to the layout that the device has chosen for this side. */
static int pack_one(attn_room *r, const kvant_cuda_attn_case *c, const kvant_kv_side *s, const int32_t *all, int pages)
{
    pack_side side;
    CUDA_TRY(cuda_side(r->d, s, c->d, &side.s, r->diag));
    if (!s->layout || !cuda_pack_shape(&side.s, s->layout, &side.shape))
        return KVANT_OK;
    cuda_pack_pages(r->d, &side, 1, all, pages, c->h_kv, false);
    return cuda_check(r->diag, cudaGetLastError(), "packing pages");
}

static int run_op(attn_room *r, const kvant_attn_args *a)
{
    const kvant_op op = { KVANT_OP_ATTN, a };
    CUDA_TRY(r->d->base.vt->submit(&r->d->base, &op, 1, 0, r->diag));
    return r->d->base.vt->sync(&r->d->base, r->diag);
}

static double nmse(const std::vector<float> &got, const std::vector<float> &want)
{
    double err = 0.0, sum = 0.0;
    for (size_t i = 0; i < got.size(); i++) {
        const double e = (double)got[i] - want[i];
        err += e * e;
        sum += (double)want[i] * want[i];
    }
    return err / sum;
}

/* `runs` launches of the recorded op, each behind a read of FLUSH_BYTES, as weights are read before an attention:
 * after a write the L2 cache would write back while the op runs. */
static int time_op(attn_room *r, const kvant_attn_args *a, int runs, kvant_cuda_attn_time *out)
{
    const cudaStream_t s = r->d->stream;
    uint8_t *flush = take<uint8_t>(r, FLUSH_BYTES);
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cudaEvent_t from, to;
    std::vector<float> ms;

    CUDA_TRY(r->rc);
    CUDA_TRY(cuda_check(r->diag, cudaMemsetAsync(flush, 1, FLUSH_BYTES, s), "memory for timing"));
    CUDA_TRY(cuda_check(r->diag, cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), "recording"));
    const int rc = cuda_op_attn.run(r->d, a, r->diag);
    cudaStreamEndCapture(s, &graph);
    CUDA_TRY(rc);
    CUDA_TRY(cuda_check(r->diag, cudaGraphInstantiate(&exec, graph, 0), "preparing a graph"));
    cudaEventCreate(&from);
    cudaEventCreate(&to);
    for (int i = 0; i < runs + 3; i++) {
        float t = 0.0f;
        read_all<<<r->d->n_sm * 8, 512, 0, s>>>((const uint4 *)flush, FLUSH_BYTES / 16, (uint4 *)flush);
        cudaEventRecord(from, s);
        cudaGraphLaunch(exec, s);
        cudaEventRecord(to, s);
        cudaEventSynchronize(to);
        cudaEventElapsedTime(&t, from, to);
        if (i >= 3)
            ms.push_back(t);
    }
    std::sort(ms.begin(), ms.end());
    out->median_s = ms[ms.size() / 2] * 1e-3;
    out->least_s = ms[0] * 1e-3;
    cudaEventDestroy(from);
    cudaEventDestroy(to);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    return cuda_check(r->diag, cudaGetLastError(), "timing");
}

static int bench(attn_room *r, const kvant_cuda_attn_case *c, kvant_cuda_attn_time *out)
{
    const int per = (c->len + KVANT_PAGE - 1) / KVANT_PAGE, entries = per * c->seqs, n = c->new_tokens;
    const int pages = c->distinct > 0 && c->distinct < entries ? c->distinct : entries;
    const int rows = c->seqs * n, tails = c->seqs * ((n + KVANT_PAGE - 1) / KVANT_PAGE + c->tail_pages + 1);
    std::vector<int32_t> order(pages), table(entries), tail(entries, -1), q0(c->seqs + 1), pos0(c->seqs),
        prompt(c->seqs);
    kvant_attn_args a;

    for (int i = 0; i < pages; i++)
        order[i] = i;
    for (int i = 0; i < entries; i++)
        table[i] = i % pages;
    uint64_t seed = 88172645463325252ull;
    for (int i = entries - 1; i > 0; i--) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        std::swap(table[i], table[seed % (uint64_t)(i + 1)]);
    }
    int next = 0;
    const int behind = c->window > 0 && c->len - n >= c->window ? (c->len - n - c->window + 1) / KVANT_PAGE : 0;
    for (int i = 0; i < c->seqs; i++) {
        for (int j = 0; j < behind; j++) /* no query's window has these */
            table[(size_t)i * per + j] = pages;
        q0[i + 1] = (i + 1) * n;
        pos0[i] = c->len - n;
        prompt[i] = n > 1;
        const int first = (c->len - n) / KVANT_PAGE - c->tail_pages + 1;
        for (int j = first < 0 ? 0 : first; j < per && c->tail_pages > 0; j++)
            tail[(size_t)i * per + j] = next++;
    }
    memset(&a, 0, sizeof a);
    fill_side(r, c, c->k, pages, tails, 11, &a.k);
    fill_side(r, c, c->v, pages, tails, 13, &a.v);
    a.seqs.n_seqs = c->seqs;
    a.seqs.n_tokens = rows;
    a.seqs.table_stride = per;
    a.seqs.q0 = put(r, q0);
    a.seqs.pos0 = put(r, pos0);
    a.seqs.prompt = put(r, prompt);
    a.seqs.table = put(r, table);
    a.seqs.tail_table = put(r, tail);
    const int32_t *all = put(r, order);
    const size_t values = (size_t)rows * c->h * c->d;
    float *q = take<float>(r, values), *y = take<float>(r, values);
    CUDA_TRY(r->rc);
    fill_normal<<<cuda_blocks((int64_t)values, THREADS), THREADS, 0, r->d->stream>>>(q, values, 1.5f, 99);
    a.q = q;
    a.out = y;
    a.ldq = a.ldo = (int64_t)c->h * c->d;
    a.gq = c->d;
    a.h = c->h;
    a.h_kv = c->h_kv;
    a.d_k = a.d_v = c->d;
    a.scale = 1.0f / sqrtf((float)c->d);
    a.tail_pages = c->tail_pages;
    a.compute = KVANT_COMPUTE_F32;
    a.max_pos = c->len - 1;
    a.window = c->window;
    a.softcap = c->softcap;
    if (c->sinks) {
        float *sinks = take<float>(r, (size_t)c->h);
        CUDA_TRY(r->rc);
        fill_normal<<<cuda_blocks(c->h, THREADS), THREADS, 0, r->d->stream>>>(sinks, (size_t)c->h, 2.0f, 55);
        a.sinks = sinks;
    }

    std::vector<float> want(values), got(values);
    if (c->check) {
        CUDA_TRY(run_op(r, &a));
        CUDA_TRY(cuda_check(r->diag, cudaMemcpy(want.data(), y, values * 4, cudaMemcpyDeviceToHost), "copying out"));
    }
    a.compute = KVANT_COMPUTE_AUTO;
    cuda_kv_layout(&r->d->base, &a);
    CUDA_TRY(pack_one(r, c, &a.k, all, pages));
    CUDA_TRY(pack_one(r, c, &a.v, all, pages));
    cudaMemset(y, 0xff, values * 4);
    CUDA_TRY(run_op(r, &a));
    CUDA_TRY(cuda_check(r->diag, cudaMemcpy(got.data(), y, values * 4, cudaMemcpyDeviceToHost), "copying out"));
    out->nmse = c->check ? nmse(got, want) : -1.0;
    decode_job job;
    side_dev k, v;
    CUDA_TRY(cuda_side(r->d, &a.k, c->d, &k, r->diag));
    CUDA_TRY(cuda_side(r->d, &a.v, c->d, &v, r->diag));
    prefill_job many;
    out->fast = n == 1 ? decode_shape(r->d, &a, k, v, &job) : prefill_shape(r->d, &a, k, v, &many);
    out->bytes = 0.0;
    for (int i = 0; i < 2; i++) {
        const kvant_kv_side *s = i ? &a.v : &a.k;
        const double exact = s->tail ? (double)((c->len - 1) % KVANT_PAGE + 1 + (c->tail_pages - 1) * KVANT_PAGE) : 0.0;
        out->bytes += (double)c->seqs * c->h_kv * ((c->len - exact) * (double)s->row_bytes + exact * 2.0 * c->d);
    }
    return c->runs > 0 ? time_op(r, &a, c->runs, out) : KVANT_OK;
}

extern "C" __attribute__((visibility("default"))) int kvant_cuda_bench_attn(kvant_device *dev,
                                                                            const kvant_cuda_attn_case *c,
                                                                            kvant_cuda_attn_time *out, kvant_diag *diag)
{
    attn_room r = { (cuda_device *)dev, diag, {}, KVANT_OK };
    CUDA_TRY(cuda_check(diag, cudaSetDevice(r.d->index), "selecting the GPU"));
    memset(out, 0, sizeof *out);
    const int rc = bench(&r, c, out);
    drop(&r);
    return rc;
}

extern "C" __attribute__((visibility("default"))) int kvant_cuda_bench_copy(kvant_device *dev, size_t bytes,
                                                                            double *copy, double *read,
                                                                            kvant_diag *diag)
{
    attn_room r = { (cuda_device *)dev, diag, {}, KVANT_OK };
    cudaEvent_t from, to;
    std::vector<float> ms[2];
    uint8_t *a = take<uint8_t>(&r, bytes), *b = take<uint8_t>(&r, bytes);
    int rc = r.rc;
    cudaEventCreate(&from);
    cudaEventCreate(&to);
    for (int i = 0; i < 26 && rc == KVANT_OK; i++) {
        float t = 0.0f;
        cudaEventRecord(from, r.d->stream);
        if (i % 2)
            read_all<<<r.d->n_sm * 8, 512, 0, r.d->stream>>>((const uint4 *)a, bytes / 16, (uint4 *)b);
        else
            cudaMemcpyAsync(b, a, bytes, cudaMemcpyDeviceToDevice, r.d->stream);
        cudaEventRecord(to, r.d->stream);
        cudaEventSynchronize(to);
        cudaEventElapsedTime(&t, from, to);
        if (i >= 4)
            ms[i % 2].push_back(t);
        rc = cuda_check(diag, cudaGetLastError(), "copying");
    }
    if (rc == KVANT_OK) {
        std::sort(ms[0].begin(), ms[0].end());
        std::sort(ms[1].begin(), ms[1].end());
        *copy = 2.0 * (double)bytes / (ms[0][ms[0].size() / 2] * 1e-3);
        *read = (double)bytes / (ms[1][ms[1].size() / 2] * 1e-3);
    }
    cudaEventDestroy(from);
    cudaEventDestroy(to);
    drop(&r);
    return rc;
}
