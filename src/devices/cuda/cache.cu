/* cache.cu: cache_write, page_seal, cache_read.
 *
 * Eight lanes encode 128 values of a row (encode.cuh), a warp four at once; blocks stay for several, with the next
 * values on their way while the present ones are encoded.  Two formats need more: qjl1_256 a block for 16 rows,
 * turbo3_tcq a block for one.  A row's source is the f32 rows of an op, or a tail page's f16.  cache_write stores f16
 * into the exact tail instead, where the position has a tail page. */
#include "devices/cuda/encode.cuh"
#include "devices/cuda/attn_decode.cuh"

enum { THREADS = 128, WARPS = THREADS / 32, UNITS = 4, GROUP_MAX = 128, STATES = 512, BRANCHES = 64, SKETCH_ROWS = 16 };

/* Where rows come from and go to; seal: src/dst pages, else rows of the batch. */
typedef struct job {
    side_dev side;
    seqs_dev seqs;
    const float *x;
    int64_t ldx;
    const int32_t *src, *dst;
    int seal, n, h, groups; /* units per row, of 128 values */
    unsigned units;
    int vec;                /* x may be read by float4, tails by 8 bytes */
    int full;               /* and every unit has 128 values of the row, at an aligned place */
} job;

/* Two sides in one launch: blockIdx.y. */
typedef struct jobs {
    job j[2];
} jobs;

/* One unit: 128 values of one row.  tail: store f16 there instead of encoding. */
typedef struct unit {
    const float *x;
    const uint16_t *half;
    uint16_t *tail;
    uint8_t *row;
    int at, h;    /* token, or row of the sealed pages; head */
    int g, count; /* first value; how many of the row's d values it has */
} unit;

/* Unit `n` of a launch: g of its row, the row's head and token. */
typedef struct spot {
    unsigned n;
    int token, h, g;
} spot;

static __device__ __forceinline__ spot spot_at(const job &p, unsigned n)
{
    const unsigned row = n / (unsigned)p.groups, token = row / (unsigned)p.h;
    const spot o = { n, (int)token, (int)(row - token * (unsigned)p.h), (int)(n - row * (unsigned)p.groups) };
    return o;
}

/* `by` units further on: no division. */
static __device__ __forceinline__ void spot_add(const job &p, spot *o, const spot &by)
{
    o->n += by.n;
    o->g += by.g;
    const bool full = o->g >= p.groups;
    o->g -= full ? p.groups : 0;
    o->h += by.h + full;
    const bool last = o->h >= p.h;
    o->h -= last ? p.h : 0;
    o->token += by.token + last;
}

/* Where a unit's values come from; false past the end. */
static __device__ __forceinline__ bool unit_from(const job &p, const spot &u, unit *o)
{
    const side_dev &s = p.side;
    o->at = u.token;
    o->h = u.h;
    o->g = u.g * GROUP_MAX;
    o->count = s.d - o->g < GROUP_MAX ? s.d - o->g : GROUP_MAX;
    o->x = NULL;
    o->half = NULL;
    o->tail = NULL;
    o->row = NULL;
    if (u.n >= p.units)
        return false;
    if (p.seal)
        o->half = side_tail_row(s, p.src[o->at / KVANT_PAGE], p.h, o->h, o->at % KVANT_PAGE) + o->g;
    else
        o->x = p.x + o->at * p.ldx + o->h * s.d + o->g;
    return true;
}

/* Where they go: reads that wait for one another. */
static __device__ __forceinline__ void unit_to(const job &p, unit *o)
{
    const side_dev &s = p.side;
    if (p.seal) {
        o->row = side_row(s, p.dst[o->at / KVANT_PAGE], o->h, o->at % KVANT_PAGE);
        return;
    }
    const int q = seq_of(p.seqs, o->at), pos = p.seqs.pos0[q] + o->at - p.seqs.q0[q], j = pos / KVANT_PAGE;
    const int t = side_tail_page(s, p.seqs, q, j, j, 1);
    if (t >= 0)
        o->tail = side_tail_row(s, t, p.h, o->h, pos % KVANT_PAGE) + o->g;
    else
        o->row = side_row(s, p.seqs.table[(size_t)q * p.seqs.stride + j], o->h, pos % KVANT_PAGE);
}

static __device__ __forceinline__ bool unit_at(const job &p, unsigned u, unit *o)
{
    if (!unit_from(p, spot_at(p, u), o))
        return false;
    unit_to(p, o);
    return true;
}

static __device__ __forceinline__ float unit_value(const unit &o, int i)
{
    if (i >= o.count)
        return 0.0f; /* padding up to the group */
    return o.half ? __half2float(__ushort_as_half(o.half[i])) : o.x[i];
}

/* Values i .. i + 3 of the unit. */
template <bool FULL>
static __device__ __forceinline__ void unit_load4(const job &p, const unit &o, int i, float *v)
{
    if (FULL || (p.vec && i + 4 <= o.count)) {
        if (p.seal) {
            const uint2 u = *(const uint2 *)(o.half + i);
            v[0] = __half2float(__ushort_as_half((unsigned short)u.x));
            v[1] = __half2float(__ushort_as_half((unsigned short)(u.x >> 16)));
            v[2] = __half2float(__ushort_as_half((unsigned short)u.y));
            v[3] = __half2float(__ushort_as_half((unsigned short)(u.y >> 16)));
        } else {
            const float4 u = __ldcs((const float4 *)(o.x + i));
            v[0] = u.x, v[1] = u.y, v[2] = u.z, v[3] = u.w;
        }
    } else {
#pragma unroll
        for (int k = 0; k < 4; k++)
            v[k] = unit_value(o, i + k);
    }
}

/* This lane's values of a unit, as enc_unit wants them; past the end: zeros. */
template <bool FULL>
static __device__ __forceinline__ void unit_load(const job &p, const spot &u, unit *o, float *v)
{
    const bool some = unit_from(p, u, o);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if (some)
            unit_load4<FULL>(p, *o, 32 * j + 4 * (threadIdx.x % 8), v + 4 * j);
        else
            v[4 * j] = v[4 * j + 1] = v[4 * j + 2] = v[4 * j + 3] = 0.0f;
    }
}

template <bool FULL> static __device__ __forceinline__ void tail_store(const job &p, const unit &o, const float *v)
{
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int i = 32 * j + 4 * (threadIdx.x % 8);
        if (FULL || (p.vec && i + 4 <= o.count)) {
            *(uint2 *)(o.tail + i) = make_uint2(enc_half(v[4 * j]) | (uint32_t)enc_half(v[4 * j + 1]) << 16,
                                                enc_half(v[4 * j + 2]) | (uint32_t)enc_half(v[4 * j + 3]) << 16);
        } else {
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (i + k < o.count)
                    o.tail[i + k] = enc_half(v[4 * j + k]);
        }
    }
}

/* Blocks of a multiprocessor: what its registers hold. */
template <int F, bool BEST> static constexpr int encode_blocks()
{
    return !BEST ? 6 : enc_format<F>::kind == ENC_INT || enc_format<F>::kind == ENC_RMS32 ? 8 : 5;
}

template <int F, bool BEST, bool FULL>
static __global__ void __launch_bounds__(THREADS, encode_blocks<F, BEST>()) encode_kernel(jobs js)
{
    const job &p = js.j[blockIdx.y];
    const unsigned lane = threadIdx.x % 32;
    const enc_book book = enc_book_make<F>();
    const spot step = spot_at(p, gridDim.x * WARPS * UNITS);
    spot u = spot_at(p, (blockIdx.x * WARPS + threadIdx.x / 32) * UNITS + lane / 8);
    unit o, next;
    float v[16], w[16];

    pdl_go();
    pdl_wait();
    unit_load<FULL>(p, u, &o, v);
    while (u.n - lane / 8 < p.units) {
        const bool some = u.n < p.units;
        spot_add(p, &u, step);
        if (!BEST)
            unit_load<FULL>(p, u, &next, w);
        if (some)
            unit_to(p, &o);
        if (o.tail)
            tail_store<FULL>(p, o, v);
        enc_unit<F, BEST, FULL>(book, side_scale(p.side), v, o.row, o.g, p.side.dp - o.g, o.count);
        if (BEST)
            unit_load<FULL>(p, u, &next, w);
        o = next;
#pragma unroll
        for (int k = 0; k < 16; k++)
            v[k] = w[k];
    }
}

/* ---- one block per group ---- */

/* The unit of this block with its values in v[128]; false: nothing to encode. */
static __device__ bool block_unit(const job &p, unsigned u, unit *o, float *v)
{
    if (!unit_at(p, u, o))
        return false;
    if (o->tail) {
        for (int i = threadIdx.x; i < o->count; i += blockDim.x)
            o->tail[i] = enc_half(o->x[i]);
        return false;
    }
    for (int i = threadIdx.x; i < GROUP_MAX; i += blockDim.x)
        v[i] = unit_value(*o, i);
    return true;
}

/* ---- qjl1_256 ---- */

static __device__ __forceinline__ uint32_t bf16_bits(float a, float b)
{
    return f32_to_bf16(a) | (uint32_t)f32_to_bf16(b) << 16;
}

/* Two values as hi and lo pairs of bf16. */
static __device__ __forceinline__ void sketch_split(float a, float b, uint32_t *hi, uint32_t *lo)
{
    *hi = bf16_bits(a, b);
    *lo = bf16_bits(a - __uint_as_float(*hi << 16), b - __uint_as_float(*hi & 0xffff0000u));
}

static __device__ __forceinline__ void sketch_mma(float *c, const uint4 &a, uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

/* Columns 32 w .. of the projection as operands, hi and lo: [k tile][n tile]. */
static __device__ __forceinline__ void sketch_columns(const float *param, int w, uint4 (*b)[4])
{
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int k = 0; k < 8; k++)
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const float *at = param + (16 * k + 2 * t) * 256 + 32 * w + 8 * n + g;
            sketch_split(at[0], at[256], &b[k][n].x, &b[k][n].z);
            sketch_split(at[8 * 256], at[9 * 256], &b[k][n].y, &b[k][n].w);
        }
}

/* Values 2 of a unit from i on; into the tail too, where the unit goes there. */
static __device__ __forceinline__ float2 sketch_values(const unit &o, bool some, int i)
{
    if (!some)
        return make_float2(0.0f, 0.0f);
    const float2 x = make_float2(unit_value(o, i), unit_value(o, i + 1));
    if (o.tail && i < o.count)
        o.tail[i] = enc_half(x.x);
    if (o.tail && i + 1 < o.count)
        o.tail[i + 1] = enc_half(x.y);
    return x;
}

/* Eight warps, SKETCH_ROWS units at a time: bit j = <x, column j> > 0.  Warp w has values 16 w .. of the rows to split,
 * and columns 32 w .. of the product.  bf16 tensor cores on values split in two: sums to 16 bits, so that a bit differs
 * where the sum is nothing to that precision.  Norms in double. */
static __global__ void __launch_bounds__(256, 1) qjl_kernel(jobs js)
{
    __shared__ uint4 rows[8][2][32];
    __shared__ double part[8][SKETCH_ROWS];
    const job &p = js.j[blockIdx.y];
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, w = threadIdx.x / 32;
    const unsigned tiles = (p.units + SKETCH_ROWS - 1) / SKETCH_ROWS;
    uint4 b[8][4];

    pdl_go();
    sketch_columns(p.side.param, w, b);
    pdl_wait();
    for (unsigned tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        unit o[2];
        float2 x[2][2];
        bool some[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            some[r] = unit_at(p, tile * SKETCH_ROWS + g + 8 * r, &o[r]);
            x[r][0] = sketch_values(o[r], some[r], 16 * w + 2 * t);
            x[r][1] = sketch_values(o[r], some[r], 16 * w + 2 * t + 8);
            double square = (double)x[r][0].x * x[r][0].x + (double)x[r][0].y * x[r][0].y +
                            (double)x[r][1].x * x[r][1].x + (double)x[r][1].y * x[r][1].y;
            square += __shfl_xor_sync(0xffffffffu, square, 1);
            square += __shfl_xor_sync(0xffffffffu, square, 2);
            if (t == 0)
                part[w][g + 8 * r] = square;
        }
        uint4 hi, lo;
        sketch_split(x[0][0].x, x[0][0].y, &hi.x, &lo.x);
        sketch_split(x[1][0].x, x[1][0].y, &hi.y, &lo.y);
        sketch_split(x[0][1].x, x[0][1].y, &hi.z, &lo.z);
        sketch_split(x[1][1].x, x[1][1].y, &hi.w, &lo.w);
        rows[w][0][lane] = hi;
        rows[w][1][lane] = lo;
        __syncthreads();
        float acc[4][4] = {};
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const uint4 h = rows[k][0][lane], l = rows[k][1][lane];
#pragma unroll
            for (int n = 0; n < 4; n++)
                sketch_mma(acc[n], l, b[k][n].x, b[k][n].y);
#pragma unroll
            for (int n = 0; n < 4; n++)
                sketch_mma(acc[n], h, b[k][n].z, b[k][n].w);
#pragma unroll
            for (int n = 0; n < 4; n++)
                sketch_mma(acc[n], h, b[k][n].x, b[k][n].y);
        }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            uint32_t bits = 0;
#pragma unroll
            for (int n = 0; n < 4; n++)
                bits |= (acc[n][2 * r] > 0.0f ? 1u : 0u) << (8 * n + 2 * t) |
                        (acc[n][2 * r + 1] > 0.0f ? 2u : 0u) << (8 * n + 2 * t);
            bits |= __shfl_xor_sync(0xffffffffu, bits, 1);
            bits |= __shfl_xor_sync(0xffffffffu, bits, 2);
            if (!some[r] || o[r].tail)
                continue;
            uint8_t *out = o[r].row + o[r].g / GROUP_MAX * 34;
            if (t < 2)
                enc_put(out + 4 * w + 2 * t, (uint16_t)(bits >> 16 * t));
            if (w == g && t == 2) {
                double square = 0.0;
                for (int i = 0; i < 8; i++)
                    square += part[i][g + 8 * r];
                enc_put(out + 32, f32_to_bf16((float)sqrt(square)));
            }
        }
        __syncthreads(); /* rows and part are free again */
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
    return enc_storable((float)(w.norm * yv / vv));
}

/* The norm that leaves scores unbiased, as turbo3_tcq.c. */
static __device__ uint16_t tcq_unbiased(const trellis &w, int which, uint16_t scale)
{
    double yy = 0.0, yv = 0.0;
    for (int t = 0; t < GROUP_MAX; t++) {
        yy += (double)w.y[t] * w.y[t];
        yv += (double)w.y[t] * fmt_c_tcq[w.state[which][t]];
    }
    return enc_unbiased_scale((float)(w.norm * yy / yv), scale);
}

static __device__ void tcq_store(const trellis &w, int which, uint16_t scale, uint8_t *out)
{
    uint32_t word = (uint32_t)w.start[which] >> 3, have = 6;
    uint8_t *b = out + 2;
    enc_put(out, scale);
    for (int t = 0; t < GROUP_MAX; t++) {
        word |= (uint32_t)(w.state[which][t] >> 6) << have;
        for (have += 3; have >= 8; have -= 8, word >>= 8)
            *b++ = (uint8_t)word;
    }
    *b = (uint8_t)word; /* bits 384 .. 389 */
    out[51] = 0;
}

static __global__ void __launch_bounds__(BRANCHES) tcq_kernel(jobs js)
{
    __shared__ trellis w;
    const job &p = js.j[blockIdx.y];
    unit o;

    pdl_go();
    pdl_wait();
    if (!block_unit(p, blockIdx.x, &o, w.y))
        return;
    __syncthreads();
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
        scale = tcq_unbiased(w, which, scale);
    }
    tcq_store(w, which, scale, o.row + o.g / GROUP_MAX * 52);
}

/* ---- dispatch ---- */

template <int F, bool BEST, bool FULL> static void launch_encode(cuda_device *d, const jobs &p, int sides)
{
    const unsigned want = cuda_blocks(p.j[0].units, WARPS * UNITS), most = d->n_sm * encode_blocks<F, BEST>();
    cuda_launch(d, encode_kernel<F, BEST, FULL>, dim3(want < most ? want : most, (unsigned)sides), THREADS, 0, p);
}

template <int F> static void launch(cuda_device *d, const jobs &p, int sides)
{
    constexpr bool searches = enc_format<F>::kind != ENC_PLAIN;
    const bool best = searches && p.j[0].side.encoder == KVANT_ENCODER_BEST;
    const bool full = p.j[0].full && (sides < 2 || p.j[1].full);
    if (best && full)
        launch_encode<F, searches, true>(d, p, sides);
    else if (best)
        launch_encode<F, searches, false>(d, p, sides);
    else if (full)
        launch_encode<F, false, true>(d, p, sides);
    else
        launch_encode<F, false, false>(d, p, sides);
}

template <> void launch<FMT_turbo3_tcq>(cuda_device *d, const jobs &p, int sides)
{
    cuda_launch(d, tcq_kernel, dim3(p.j[0].units, (unsigned)sides), BRANCHES, 0, p);
}

template <> void launch<FMT_qjl1_256>(cuda_device *d, const jobs &p, int sides)
{
    const unsigned want = cuda_blocks(p.j[0].units, SKETCH_ROWS), most = (unsigned)d->n_sm;
    cuda_launch(d, qjl_kernel, dim3(want < most ? want : most, (unsigned)sides), 256, 0, p);
}

#define CUDA_FORMAT(name, space, cls, codes) launch<FMT_##name>,
static void (*const launches[])(cuda_device *d, const jobs &p, int sides) = {
#include "devices/cuda/cuda_formats.def"
};
#undef CUDA_FORMAT

/* n_rows: tokens, or rows of the sealed pages. */
static int finish_job(job *p, int64_t n_rows, int h, kvant_diag *diag)
{
    const uintptr_t at = (uintptr_t)p->x | (uintptr_t)(4 * p->ldx) | (uintptr_t)(4 * p->side.d);
    p->h = h;
    p->groups = (p->side.dp + GROUP_MAX - 1) / GROUP_MAX;
    p->vec = (at & 15) == 0 && ((uintptr_t)p->side.tail & 7) == 0;
    const int f = p->side.fmt;
    const bool plain = f == FMT_f32 || f == FMT_f16 || f == FMT_bf16 || f == FMT_f8_e4m3;
    const uintptr_t rows_at = (uintptr_t)p->side.pages | p->side.page_bytes | p->side.head_bytes | p->side.row_bytes;
    p->full = p->vec && p->side.d % GROUP_MAX == 0 && (!plain || (rows_at & 15) == 0);
    if (n_rows > INT32_MAX / ((int64_t)h * p->groups + 1))
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: %lld rows of %d heads, wanted fewer than 2^31 in all",
                         (long long)n_rows, h);
    p->units = (unsigned)(n_rows * h * p->groups);
    return KVANT_OK;
}

static int write_job(cuda_device *d, const kvant_cache_write_args *a, job *p, kvant_diag *diag)
{
    memset(p, 0, sizeof *p);
    CUDA_TRY(cuda_side(d, &a->side, a->d, &p->side, diag));
    p->seqs = cuda_seqs(&a->seqs);
    p->x = a->x;
    p->ldx = a->ldx;
    return finish_job(p, a->seqs.n_tokens, a->h, diag);
}

static int write_supports(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_cache_write_args *a = (const kvant_cache_write_args *)args;
    if (a->side.layout && !a->side.tail)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: cache_write writes pages of rows only");
    return cuda_side_supports(d, &a->side, a->d, diag);
}

static int write_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_cache_write_args *a = (const kvant_cache_write_args *)args;
    jobs p;
    memset(&p, 0, sizeof p);
    CUDA_TRY(write_job(d, a, &p.j[0], diag));
    if (a->seqs.n_tokens > 0)
        launches[p.j[0].side.fmt](d, p, 1);
    return KVANT_OK;
}

/* K and V of one layer: the same tokens, one format. */
static int write_fuse(cuda_device *d, const kvant_op *ops, int n)
{
    jobs p;
    if (n < 2 || ops[1].id != KVANT_OP_CACHE_WRITE)
        return 0;
    const kvant_cache_write_args *k = (const kvant_cache_write_args *)ops[0].args, *v = k;
    v = (const kvant_cache_write_args *)ops[1].args;
    if (k->seqs.n_tokens < 1 || k->seqs.n_tokens != v->seqs.n_tokens || k->h != v->h || k->d != v->d ||
        k->side.fmt != v->side.fmt || k->side.encoder != v->side.encoder ||
        write_job(d, k, &p.j[0], NULL) < 0 || write_job(d, v, &p.j[1], NULL) < 0)
        return 0;
    launches[p.j[0].side.fmt](d, p, 2);
    return 2;
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
    return layout_of(d, a->side, a->d, &shape, diag);
}

static int seal_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_page_seal_args *a = (const kvant_page_seal_args *)args;
    jobs p;
    memset(&p, 0, sizeof p);
    job *j = &p.j[0];
    CUDA_TRY(cuda_side(d, &a->side, a->d, &j->side, diag));
    j->seal = 1;
    j->src = a->src;
    j->dst = a->dst;
    j->n = a->n;
    CUDA_TRY(finish_job(j, a->n * (int64_t)KVANT_PAGE, a->h, diag));
    pack_shape shape;
    CUDA_TRY(layout_of(d, a->side, a->d, &shape, diag));
    if (a->n > 0)
        launches[j->side.fmt](d, p, 1);
    if (a->side.layout)
        cuda_pack_pages(d, j->side, shape, a->dst, a->n, a->h, false);
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
    pack_shape shape;
    CUDA_TRY(cuda_side(d, &a->side, a->d, &s, diag));
    CUDA_TRY(layout_of(d, a->side, a->d, &shape, diag));
    if (a->n > 0)
        read_kernel<<<(unsigned)(a->n * (int64_t)a->h), THREADS, 0, d->stream>>>(s, shape, a->page, a->row, a->y, a->h);
    return KVANT_OK;
}

const cuda_op cuda_op_cache_write = { write_supports, NULL, write_run, write_fuse };
const cuda_op cuda_op_page_seal = { seal_supports, NULL, seal_run };
const cuda_op cuda_op_cache_read = { read_supports, NULL, read_run };
