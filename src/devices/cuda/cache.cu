/* cache.cu: cache_write, page_seal, cache_read.
 *
 * Encoding: one thread per group of a row with the reference's own text (encode.cuh), or one block per group for the
 * two formats whose search needs one (block_tcq, block_qjl).  A row's source is the f32 rows of an op, or a tail page's
 * f16. cache_write stores f16 into the exact tail instead, where the position has a tail page. */
#include "devices/cuda/space.cuh"
#include "devices/cuda/encode.cuh"

enum { THREADS = 128, GROUP_MAX = 128, STATES = 512, BRANCHES = 64, PLAIN_RUN = 32 };

/* Where rows come from and go to; seal: src/dst pages, else rows of the batch. */
typedef struct job {
    side_dev side;
    seqs_dev seqs;
    const float *x;
    int64_t ldx;
    const int32_t *src, *dst;
    int seal, n, h, groups, width;     /* units per row, and values per unit */
} job;

/* One unit: a group of one row.  tail: store f16 there instead of encoding. */
typedef struct unit {
    const float *x;
    const uint16_t *half;
    uint16_t *tail;
    uint8_t *out;
    int g, count;                      /* first value g, how many of the row's d values it has */
} unit;

static __device__ bool unit_at(const job &p, int64_t u, unit *o)
{
    const side_dev &s = p.side;
    const int g = (int)(u % p.groups), h = (int)(u / p.groups % p.h);
    int64_t row = u / p.groups / p.h;
    uint8_t *out;

    o->g = g * p.width;
    o->count = s.d - o->g < p.width ? s.d - o->g : p.width;
    o->x = NULL;
    o->half = NULL;
    o->tail = NULL;
    if (p.seal) {
        const int i = (int)(row / KVANT_PAGE), r = (int)(row % KVANT_PAGE);
        if (i >= p.n)
            return false;
        o->half = side_tail_row(s, p.src[i], p.h, h, r) + o->g;
        out = side_row(s, p.dst[i], h, r);
    } else {
        if (row >= p.seqs.n_tokens)
            return false;
        const int q = seq_of(p.seqs, (int)row), pos = p.seqs.pos0[q] + (int)row - p.seqs.q0[q], j = pos / KVANT_PAGE;
        const int t = side_tail_page(s, p.seqs, q, j, j, 1);
        o->x = p.x + row * p.ldx + (int64_t)h * s.d + o->g;
        out = NULL;
        if (t >= 0)
            o->tail = side_tail_row(s, t, p.h, h, pos % KVANT_PAGE) + o->g;
        else
            out = side_row(s, p.seqs.table[(size_t)q * p.seqs.stride + j], h, pos % KVANT_PAGE);
    }
    o->out = out ? out + (s.group > 1 ? g * s.group_bytes : o->g * s.group_bytes) : NULL;
    return true;
}

static __device__ __forceinline__ float unit_value(const unit &o, int i)
{
    if (i >= o.count)
        return 0.0f;                   /* padding up to the group */
    return o.half ? half_to_f32(o.half[i]) : o.x[i];
}

#define ENCODER(name)                                                                              \
    if (F == FMT_##name)                                                                           \
        ref_##name::name##_encode_group(param, v, out, encoder)

template <int F> static __device__ __forceinline__ void encode(const float *param, const float *v, uint8_t *out,
                                                               int encoder)
{
    ENCODER(f32);
    ENCODER(f16);
    ENCODER(bf16);
    ENCODER(f8_e4m3);
    ENCODER(q8_0);
    ENCODER(q4_0);
    ENCODER(tbq4_0);
    ENCODER(tbq3_0);
    ENCODER(turbo3);
    ENCODER(turbo4);
    ENCODER(turbo4_66);
    ENCODER(q4_polar);
    ENCODER(q4_polar_r);
}

template <int F> static __global__ void __launch_bounds__(THREADS) encode_kernel(job p)
{
    unit o;
    float v[GROUP_MAX];
    const int64_t u = blockIdx.x * (int64_t)THREADS + threadIdx.x;

    if (!unit_at(p, u, &o))
        return;
    if (o.tail) {
        for (int i = 0; i < o.count; i++)
            o.tail[i] = f32_to_half(o.x[i]);
        return;
    }
    if (p.side.group == 1) {
        for (int i = 0; i < o.count; i++) {
            v[0] = unit_value(o, i);
            encode<F>(p.side.param, v, o.out + i * p.side.group_bytes, p.side.encoder);
        }
        return;
    }
    for (int i = 0; i < p.side.group; i++)
        v[i] = unit_value(o, i);
    encode<F>(p.side.param, v, o.out, p.side.encoder);
}

/* ---- one block per group ---- */

/* The unit of this block with its values in v[128]; false: nothing to encode. */
static __device__ bool block_unit(const job &p, unit *o, float *v)
{
    if (!unit_at(p, blockIdx.x, o))
        return false;
    if (o->tail) {
        for (int i = threadIdx.x; i < o->count; i += blockDim.x)
            o->tail[i] = f32_to_half(o->x[i]);
        return false;
    }
    for (int i = threadIdx.x; i < GROUP_MAX; i += blockDim.x)
        v[i] = unit_value(*o, i);
    __syncthreads();
    return true;
}

/* 256 threads: bit j = <x, column j> > 0, the sum in the reference's order; norm in double. */
static __global__ void __launch_bounds__(256) qjl_kernel(job p)
{
    __shared__ float v[GROUP_MAX];
    unit o;
    const int j = threadIdx.x;

    if (!block_unit(p, &o, v))
        return;
    float sum = 0.0f;
    for (int i = 0; i < 128; i++)
        sum += v[i] * p.side.param[i * 256 + j];
    const unsigned bits = __ballot_sync(0xffffffffu, sum > 0.0f);
    if (j % 8 == 0)
        o.out[j / 8] = (uint8_t)(bits >> (j % 32));
    if (j == 0) {
        double square = 0.0;
        for (int i = 0; i < 128; i++)
            square += (double)v[i] * v[i];
        store_u16(o.out + 32, f32_to_bf16((float)sqrt(square)));
    }
}

/* The trellis search of one block of 64 threads: thread g owns the branch of the eight predecessors g*8 .. g*8+7. */
typedef struct trellis {
    float y[GROUP_MAX], wide[GROUP_MAX], cost[2][STATES];
    uint8_t back[GROUP_MAX][BRANCHES];
    uint16_t state[2][GROUP_MAX];
    int start[2];
    float norm;
} trellis;

static __device__ void tcq_viterbi(trellis &w, const float *y, int which)
{
    const int g = threadIdx.x;
    for (int s = g; s < STATES; s += BRANCHES)
        w.cost[0][s] = 0.0f;
    __syncthreads();
    for (int t = 0; t < GROUP_MAX; t++) {
        const float *cost = w.cost[t & 1];
        float best = cost[g << 3];
        int from = 0;
        for (int q = 1; q < 8; q++)
            if (cost[g << 3 | q] < best) {
                best = cost[g << 3 | q];
                from = q;
            }
        w.back[t][g] = (uint8_t)from;
        for (int s = g; s < STATES; s += BRANCHES) {
            const float e = y[t] - fmt_c_tcq[s];
            w.cost[~t & 1][s] = best + e * e;
        }
        __syncthreads();
    }
    if (g == 0) {
        int s = 0;
        for (int i = 1; i < STATES; i++)
            if (w.cost[0][i] < w.cost[0][s])
                s = i;
        for (int t = GROUP_MAX - 1; t >= 0; t--) {
            w.state[which][t] = (uint16_t)s;
            s = (s & 63) << 3 | w.back[t][s & 63];
        }
        w.start[which] = s;
    }
    __syncthreads();
}

static __device__ double tcq_error(const trellis &w, int which, uint16_t scale)
{
    double err = 0.0;
    for (int t = 0; t < GROUP_MAX; t++) {
        double e = (double)w.y[t] * w.norm - (double)fmt_c_tcq[w.state[which][t]] * half_to_f32(scale);
        err += e * e;
    }
    return err;
}

static __device__ uint16_t tcq_refit(const trellis &w, int which)
{
    double yv = 0.0, vv = 0.0;
    for (int t = 0; t < GROUP_MAX; t++) {
        const double c = fmt_c_tcq[w.state[which][t]];
        yv += (double)w.y[t] * c;
        vv += c * c;
    }
    return search_storable((float)(w.norm * yv / vv));
}

static __device__ void tcq_store(const trellis &w, int which, uint16_t scale, uint8_t *out)
{
    uint32_t word = (uint32_t)w.start[which] >> 3, have = 6;
    uint8_t *b = out + 2;
    store_u16(out, scale);
    for (int t = 0; t < GROUP_MAX; t++) {
        word |= (uint32_t)(w.state[which][t] >> 6) << have;
        for (have += 3; have >= 8; have -= 8, word >>= 8)
            *b++ = (uint8_t)word;
    }
    *b = (uint8_t)word;                /* bits 384 .. 389 */
    out[51] = 0;
}

static __global__ void __launch_bounds__(BRANCHES) tcq_kernel(job p)
{
    __shared__ trellis w;
    unit o;

    if (!block_unit(p, &o, w.y))
        return;
    if (threadIdx.x == 0) {
        float s = 0.0f;
        for (int i = 0; i < GROUP_MAX; i++)
            s += w.y[i] * w.y[i];
        w.norm = sqrtf(s);
    }
    __syncthreads();
    const float inv = w.norm > 1e-10f ? 1.0f / w.norm : 0.0f;
    for (int i = threadIdx.x; i < GROUP_MAX; i += BRANCHES)
        w.y[i] *= inv;
    space_rotate(SPACE_R128, 0, w.y, GROUP_MAX);
    tcq_viterbi(w, w.y, 0);
    if (p.side.encoder == KVANT_ENCODER_BEST) {
        for (int i = threadIdx.x; i < GROUP_MAX; i += BRANCHES)
            w.wide[i] = w.y[i] * (1.0f / 0.94f);
        __syncthreads();
        tcq_viterbi(w, w.wide, 1);
    }
    if (threadIdx.x != 0)
        return;
    float r = 0.0f;
    for (int t = 0; t < GROUP_MAX; t++)
        r += fmt_c_tcq[w.state[0][t]] * fmt_c_tcq[w.state[0][t]];
    const float rn = sqrtf(r);
    uint16_t scale = f32_to_half(rn > 1e-10f ? w.norm / rn : w.norm);
    int which = 0;
    if (p.side.encoder == KVANT_ENCODER_BEST) {
        uint16_t h = tcq_refit(w, 0);
        double err = tcq_error(w, 0, scale), refit = tcq_error(w, 0, h);
        if (refit < err || (!isfinite(err) && isfinite(refit))) {
            scale = h;
            err = refit;
        }
        h = tcq_refit(w, 1);
        if (tcq_error(w, 1, h) < err) {
            which = 1;
            scale = h;
        }
    }
    tcq_store(w, which, scale, o.out);
}

/* ---- dispatch ---- */

template <int F> static void launch(const job &p, int64_t units, cudaStream_t s)
{
    encode_kernel<F><<<cuda_blocks(units, THREADS), THREADS, 0, s>>>(p);
}

template <> void launch<FMT_turbo3_tcq>(const job &p, int64_t units, cudaStream_t s)
{
    tcq_kernel<<<(unsigned)units, BRANCHES, 0, s>>>(p);
}

template <> void launch<FMT_qjl1_256>(const job &p, int64_t units, cudaStream_t s)
{
    qjl_kernel<<<(unsigned)units, 256, 0, s>>>(p);
}

#define CUDA_FORMAT(name, space) launch<FMT_##name>,
static void (*const launches[])(const job &p, int64_t units, cudaStream_t s) = {
#include "devices/cuda/cuda_formats.def"
};
#undef CUDA_FORMAT

static void run_job(cuda_device *d, job *p, int64_t rows, int h)
{
    p->h = h;
    p->width = p->side.group > 1 ? p->side.group : PLAIN_RUN;
    p->groups = (p->side.dp + p->width - 1) / p->width;
    launches[p->side.fmt](*p, rows * h * p->groups, d->stream);
}

static int write_supports(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_cache_write_args *a = (const kvant_cache_write_args *)args;
    return cuda_side_supports(d, &a->side, a->d, diag);
}

static int write_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_cache_write_args *a = (const kvant_cache_write_args *)args;
    job p;
    memset(&p, 0, sizeof p);
    CUDA_TRY(cuda_side(d, &a->side, a->d, &p.side, diag));
    p.seqs = cuda_seqs(&a->seqs);
    p.x = a->x;
    p.ldx = a->ldx;
    if (a->seqs.n_tokens > 0)
        run_job(d, &p, a->seqs.n_tokens, a->h);
    return KVANT_OK;
}

static int seal_supports(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_page_seal_args *a = (const kvant_page_seal_args *)args;
    return cuda_side_supports(d, &a->side, a->d, diag);
}

static int seal_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_page_seal_args *a = (const kvant_page_seal_args *)args;
    job p;
    memset(&p, 0, sizeof p);
    CUDA_TRY(cuda_side(d, &a->side, a->d, &p.side, diag));
    p.seal = 1;
    p.src = a->src;
    p.dst = a->dst;
    p.n = a->n;
    if (a->n > 0)
        run_job(d, &p, (int64_t)a->n * KVANT_PAGE, a->h);
    return KVANT_OK;
}

/* One block per row and head. */
static __global__ void read_kernel(side_dev s, const int32_t *page, const int32_t *row, float *y, int h)
{
    __shared__ float acc[2 * KVANT_MAX_HEAD_DIM], x[2 * KVANT_MAX_HEAD_DIM];
    const int64_t i = blockIdx.x / h, head = blockIdx.x % h;
    const uint8_t *r = side_row(s, page[i], (int)head, row[i]);
    const float scale = side_scale(s);
    for (int j = threadIdx.x; j < s.sdim; j += blockDim.x)
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
    CUDA_TRY(cuda_side(d, &a->side, a->d, &s, diag));
    if (a->n > 0)
        read_kernel<<<(unsigned)(a->n * (int64_t)a->h), THREADS, 0, d->stream>>>(s, a->page, a->row, a->y, a->h);
    return KVANT_OK;
}

const cuda_op cuda_op_cache_write = { write_supports, NULL, write_run };
const cuda_op cuda_op_page_seal = { seal_supports, NULL, seal_run };
const cuda_op cuda_op_cache_read = { read_supports, NULL, read_run };
