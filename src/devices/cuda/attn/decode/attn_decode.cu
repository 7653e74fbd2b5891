/* attn_decode.cu: decode attention: the host's side, and kernels of ARCH_90.  See attn_decode.cuh. */
#include "devices/cuda/attn/decode/decode_kernel.cuh"

/* ---- before: sketches of queries, where no cluster of attn_whole.cu makes them (others: prep.cuh) ---- */

enum { SKETCH_HEADS = 4 };

/* Sketches of SKETCH_HEADS heads of row blockIdx.x by a block: a thread has one value of each, a warp a part. */
static __global__ void __launch_bounds__(SKETCH_VALUES) decode_sketch(decode_job p)
{
    __shared__ float x[SKETCH_DIM][SKETCH_HEADS], most[SKETCH_HEADS][SKETCH_PARTS];
    __shared__ int sums[SKETCH_HEADS][SKETCH_PARTS];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = (int)blockIdx.x;
    const int n = min(SKETCH_HEADS, p.h - (int)blockIdx.y * SKETCH_HEADS);
    const float *column = p.k.s.param + threadIdx.x;
    float y[SKETCH_HEADS] = { 0.0f };
    for (unsigned i = (blockIdx.x * gridDim.y + blockIdx.y) * blockDim.x + threadIdx.x;
         i < SKETCH_DIM * SKETCH_VALUES / 32; i += gridDim.x * gridDim.y * blockDim.x)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(p.k.s.param + 32 * i) : "memory");
    pdl_wait();
    pdl_go();
    const int first = row * p.h + (int)blockIdx.y * SKETCH_HEADS;
    for (int i = threadIdx.x; i < SKETCH_HEADS * SKETCH_DIM; i += SKETCH_VALUES) {
        const int k = i / SKETCH_DIM, j = i % SKETCH_DIM, head = first + k;
        const float v = k < n ? p.q[head / p.h * p.ldq + head % p.h * p.gq + j] : 0.0f;
        x[j][k] = v;
        if (k < n)
            p.raw[(size_t)head * SKETCH_DIM + j] = query_half(v * p.scale * PREP_LOG2E);
    }
    __syncthreads();
#pragma unroll 32
    for (int i = 0; i < SKETCH_DIM; i++)
        for (int k = 0; k < SKETCH_HEADS; k++)
            y[k] = fmaf(x[i][k], column[i * SKETCH_VALUES], y[k]);
    for (int k = 0; k < SKETCH_HEADS; k++) {
        const float top = warp_max(fabsf(y[k]));
        if (lane == 0)
            most[k][warp] = top;
    }
    __syncthreads();
    for (int k = 0; k < n; k++) {
        const float top = warp_max(most[k][lane % SKETCH_PARTS]);
        uint32_t *to = p.sketch + (size_t)(first + k) * SKETCH_WORDS;
        const int sum = sketch_words(to, warp, y[k], top);
        if (lane == 0)
            sums[k][warp] = sum;
        if (threadIdx.x == 0)
            to[SKETCH_END] = sketch_unit(top, p.scale);
    }
    __syncthreads();
    if ((int)threadIdx.x < n) {
        int sum = 0;
        for (int i = 0; i < SKETCH_PARTS; i++)
            sum += sums[threadIdx.x][i];
        p.sketch[(size_t)(first + (int)threadIdx.x) * SKETCH_WORDS + SKETCH_END + 1] = (uint32_t)sum;
    }
}

/* ---- the host's side ---- */

static int kind_of(const side_dev &s, int role)
{
    pack_shape shape;
    if (s.fmt >= FMT_COUNT)
        return PAGE_FAST && s.d % PAGE_GROUP == 0 ? KIND_PAGE2 + page_bits(s) - 2 : -1;
    switch (cuda_pack_class(s.fmt)) {
    case PACK_HALF: return KIND_HALF;
    case PACK_BF16: return KIND_BF16;
    case PACK_NONE: return -1;
    }
    if (!s.layout || !cuda_pack_shape(&s, role, &shape))
        return -1;
    switch (shape.cls) {
    case PACK_SYM4: return shape.rec == 128 ? KIND_LUT4_128 : KIND_LUT4_32;
    case PACK_LUT4: return shape.rec == 32 ? KIND_BOOK4_32 : -1;
    case PACK_LUT3: return KIND_LUT3_32;
    case PACK_INT8: return KIND_INT8;
    case PACK_TRELLIS: return KIND_TRELLIS;
    case PACK_SIGN: return KIND_SIGN;
    default: return KIND_FLOAT8;
    }
}

static bool side_fits(const side_dev &s, int role, int d, decode_side *out)
{
    pack_shape shape;
    out->s = s;
    out->kind = kind_of(s, role);
    if (out->kind < 0 || s.d != d || s.dp != d || ((s.page_bytes | s.head_bytes | (uintptr_t)s.pages) & 15))
        return false;
    if (is_page(out->kind))
        out->block_bytes = (uint32_t)(d / PAGE_GROUP) * (page_codes(page_bits(s)) + PAGE_REST);
    else if (is_plain(out->kind))
        out->block_bytes = (uint32_t)(PACK_BLOCK * 2 * d);
    else
        out->block_bytes = cuda_pack_shape(&s, role, &shape) ? (uint32_t)shape.block_bytes : 0;
    out->apart = is_page(out->kind) ? page_codes(page_bits(s)) : out->block_bytes;
    return is_plain(out->kind) || s.tail;
}

/* Sets the fields that depend on the shared memory: warps, their shares, whether a cluster takes a whole unit. */
static bool shape_90(decode_job *p, int max_pos)
{
    for (p->warps = most_warps(p->d); p->warps > 0; p->warps -= 4)
        if (room_fits(p)) {
            p->whole = decode_whole_blocks(*p, max_pos);
            p->desk = is_sign(p->k.kind) && desk_fits(*p);
            if (p->n_rows * p->h <= PREP_ALONE && !is_sign(p->k.kind))
                p->blocks--; /* the multiprocessor of prep_heads is free 3 us later than the others */
            p->share = (uint32_t)((1ull << 32) / ((uint64_t)p->blocks * p->warps));
            return true;
        }
    return false;
}

static bool shape_80(decode_job *p, size_t most)
{
    if (!room_fits_80(p, most))
        return false;
    p->share = (uint32_t)((1ull << 32) / ((uint64_t)p->blocks * p->warps));
    return true;
}

bool decode_shape(const cuda_device *d, const kvant_attn_args *a, const side_dev &k, const side_dev &v, decode_job *p)
{
    memset(p, 0, sizeof *p);
    if (a->compute == KVANT_COMPUTE_F32 || a->d_k != a->d_v || d->smem_first != ROOM_FIRST)
        return false;
    p->make = d->arch.make;
    p->d = a->d_k;
    if ((p->d != 64 && p->d != 128 && p->d != 256) || !side_fits(k, PACK_K, p->d, &p->k) ||
        !side_fits(v, PACK_V, p->d, &p->v))
        return false;
    if ((kernel_kind(p->k) == KIND_LUT4_RESIDUAL) != (kernel_kind(p->v) == KIND_LUT4_RESIDUAL))
        return false;
    const int beside = is_page(p->k.kind) ? p->v.kind : p->k.kind;
    if ((is_page(p->k.kind) || is_page(p->v.kind)) && (beside == KIND_BF16 || is_sign(beside))) /* no kernels */
        return false;
    static_cast<attn_call &>(*p) = cuda_attn_call(a);
    p->group = a->h / a->h_kv;
    p->heads = p->group < DECODE_HEADS ? p->group : DECODE_HEADS;
    p->head_tiles = (p->group + p->heads - 1) / p->heads;
    if (p->k.kind == KIND_SIGN && p->heads > 4)
        p->k.kind = KIND_SIGN8;
    p->n_rows = a->seqs.n_tokens;
    p->blocks = d->n_sm;
    fill_book(&p->k);
    fill_book(&p->v);
    /* trellises fill the pipe of shared memory, of which exact steps take nothing */
    const bool trellises = is_mixed(p->k.kind) && is_mixed(p->v.kind);
    p->exact_cost = p->d == 256 || p->make == ARCH_80 ? 2 : 1;
    p->exact_cost -= trellises && p->d != 256 ? 1 : 0;
    return p->make == ARCH_90 ? shape_90(p, a->max_pos) : shape_80(p, d->smem_max);
}

/* Returns true if a unit has pieces of four blocks or more, and a slot has room for one. */
static bool joins(const decode_job &p)
{
    return p.blocks >= 4 * p.n_rows * units_per_row(p) && p.slot_bytes >= piece_size(p.d, p.heads) * sizeof(float);
}

/* Lays a launch's scratch out from `at` on (NULL: only counts); returns its bytes. */
static size_t place(decode_job *p, unsigned char *at)
{
    const size_t rows = p->n_rows < DECODE_ROWS ? (size_t)p->n_rows : DECODE_ROWS;
    const size_t pieces = (size_t)p->blocks * p->warps + 2 * rows * p->h_kv * p->head_tiles;
    const size_t heads = (size_t)p->seqs.n_tokens * p->h, raw = cuda_aligned(heads * p->d * 2);
    const size_t made = is_sign(p->k.kind) ? cuda_aligned(heads * SKETCH_WORDS * 4) : raw;
    const size_t sums = cuda_aligned(pieces * piece_size(p->d, p->heads) * sizeof(float));
    p->raw = (uint16_t *)at;
    p->turned = (uint16_t *)(at + raw);
    p->sketch = (uint32_t *)(at + raw);
    p->pieces = (float *)(at + raw + made);
    p->rows = (merge_row *)(at + raw + made + sums);
    return raw + made + sums + cuda_aligned((rows + 1) * sizeof(merge_row));
}

size_t decode_scratch(decode_job p)
{
    return place(&p, NULL);
}

template <int D, int KIND_K, int KIND_V> static void launch(cuda_device *d, const decode_job &p)
{
    launch_make<D, KIND_K, KIND_V, ARCH_90>(d, p);
}

static void choose(cuda_device *d, const decode_job &p)
{
    if (is_page(p.k.kind) || is_page(p.v.kind))
        return decode_choose_page(d, p);
    KINDS_FAST();
    KINDS_ALL();
}

query_operands decode_operands(decode_job p, unsigned char *scratch)
{
    place(&p, scratch);
    return { p.raw, p.turned };
}

void decode_run(cuda_device *d, decode_job p, const query_operands *made)
{
    const int rows = p.n_rows;
    place(&p, d->scratch);
    if (made) {
        p.raw = made->raw;
        p.turned = made->turned;
        p.whole = 0; /* that launch makes them itself */
    } else if (is_sign(p.k.kind) && !p.desk) {
        const dim3 blocks((unsigned)rows, cuda_blocks(p.h, SKETCH_HEADS));
        cuda_launch(d, decode_sketch, blocks, SKETCH_VALUES, 0, p);
    } else if (!p.whole) {
        const prep_job prep = { p.q, p.raw, p.turned, p.ldq, p.gq, rows * p.h, p.h, p.scale * PREP_LOG2E, p.k.s };
        prep_run(d, p.d, parts_of(p.k.kind), prep);
    }
    if (p.whole) {
        decode_whole_run(d, p);
        return;
    }
    for (p.row0 = 0; p.row0 < rows; p.row0 += DECODE_ROWS) {
        p.n_rows = rows - p.row0 < DECODE_ROWS ? rows - p.row0 : (int)DECODE_ROWS;
        p.join = joins(p);
        if (p.make == ARCH_90)
            choose(d, p);
        else
            decode_choose_80(d, p);
    }
}
