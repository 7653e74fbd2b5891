/* attn.cu: attn over pages of any pair of formats: which kernels take it, and what they need. */
#include "devices/cuda/attn/attn_any.cuh"
#include "devices/cuda/attn/attn_front.cuh"
#include "devices/cuda/attn/prefill/attn_prefill.cuh"

static size_t smem_bytes(const attn_job &p)
{
    layout w;
    return layout_floats(p, NULL, &w) * sizeof(float);
}

static void any_run(cuda_device *d, const attn_job &p)
{
    const size_t bytes = smem_bytes(p);
    const dim3 grid((unsigned)(p.n_tiles * p.h_kv * p.head_tiles), (unsigned)p.n_split);
    if (p.rows <= WARPS) {
        cuda_smem(attn_kernel<1>, bytes);
        attn_kernel<1><<<grid, THREADS, bytes, d->stream>>>(p);
    } else if (p.rows <= 2 * WARPS) {
        cuda_smem(attn_kernel<2>, bytes);
        attn_kernel<2><<<grid, THREADS, bytes, d->stream>>>(p);
    } else {
        cuda_smem(attn_kernel<4>, bytes);
        attn_kernel<4><<<grid, THREADS, bytes, d->stream>>>(p);
    }
}

/* Tiles that n tokens of n_seqs sequences can touch at most. */
static int most_tiles(const attn_job &p)
{
    const int64_t a = p.seqs.n_tokens, b = a / p.tokens + 2 * (int64_t)p.seqs.n_seqs;
    return (int)(a < b ? a : b);
}

static size_t tile_bytes(const attn_job &p)
{
    const size_t width = (size_t)p.v.sdim + (p.v.tail ? p.v.d : 0) + 2;
    return (size_t)p.h_kv * p.head_tiles * p.n_split * p.rows * width * sizeof(float);
}

static size_t prep_bytes(const attn_job &p)
{
    return cuda_aligned((size_t)p.seqs.n_tokens * p.h * p.k.sdim * sizeof(float));
}

/* Fills everything but the scratch addresses; KVANT_EUNSUPPORTED where no kernel fits. */
static int attn_shape(cuda_device *d, const kvant_attn_args *a, attn_job *p, kvant_diag *diag)
{
    const int group = a->h / a->h_kv;
    memset(p, 0, sizeof *p);
    CUDA_TRY(cuda_side(d, &a->k, a->d_k, &p->k, diag));
    CUDA_TRY(cuda_side(d, &a->v, a->d_v, &p->v, diag));
    if (p->k.layout || p->v.layout)
        return cuda_fail(diag, KVANT_EUNSUPPORTED,
                         "device cuda: attn: %s x %s with head_dim %d, %d has no kernel for the private page layout",
                         a->k.fmt->name, a->v.fmt->name, a->d_k, a->d_v);
    static_cast<attn_call &>(*p) = cuda_attn_call(a);
    p->n_split = a->max_pos / KVANT_SPLIT + 1;
    for (int rows = MAX_ROWS; rows >= 1; rows /= 2) {
        p->heads = group < rows ? group : rows;
        p->head_tiles = (group + p->heads - 1) / p->heads;
        p->tokens = 1;
        while (a->seqs.n_tokens > a->seqs.n_seqs && 2 * p->tokens * p->heads <= rows && p->tokens < KVANT_PAGE)
            p->tokens *= 2;
        p->rows = p->tokens * p->heads;
        if (smem_bytes(*p) <= d->smem_max)
            return KVANT_OK;
    }
    return cuda_fail(diag, KVANT_EUNSUPPORTED,
                     "device cuda: attn: %s x %s with head_dim %d, %d needs more than %zu bytes "
                     "of shared memory",
                     a->k.fmt->name, a->v.fmt->name, a->d_k, a->d_v, d->smem_max);
}

/* The kernels of decode/ take the first sequences, of few rows each, those of prefill/ the others; together they take
 * all of these arguments, or none and the general kernel runs. */
typedef struct fast_job {
    bool decode, prefill;
    decode_job one;
    prefill_job many;
} fast_job;

/* The sequences behind those of few rows; rows keep their numbers.  all: those too. */
static kvant_seqs seqs_behind(kvant_seqs s, bool all)
{
    const int n = all ? 0 : s.n_few;
    const size_t tables = (size_t)n * (size_t)s.table_stride;
    s.n_seqs -= n;
    s.few_rows = all ? 0 : s.few_rows;
    s.q0 += n;
    s.pos0 += n;
    s.table += tables;
    s.tail_table = s.tail_table ? s.tail_table + tables : NULL;
    return s;
}

static bool fast_shape(cuda_device *d, const kvant_attn_args *a, fast_job *o)
{
    side_dev k, v;
    if (!d->fast_attn || cuda_side(d, &a->k, a->d_k, &k, NULL) < 0 || cuda_side(d, &a->v, a->d_v, &v, NULL) < 0)
        return false;
    if (a->seqs.n_tokens <= a->seqs.n_seqs || a->seqs.n_tokens == a->seqs.few_rows) {
        o->prefill = false;
        return o->decode = decode_shape(d, a, k, v, &o->one);
    }
    kvant_attn_args one = *a, many = *a;
    one.seqs.n_seqs = a->seqs.n_few;
    one.seqs.n_tokens = a->seqs.few_rows;
    o->decode = a->seqs.few_rows > 0 && decode_shape(d, &one, k, v, &o->one);
    many.seqs = seqs_behind(a->seqs, !o->decode);
    o->prefill = prefill_shape(d, &many, k, v, &o->many);
    return o->prefill;
}

/* Private where the sides are only written by whole pages and both of those kernels take them. */
void cuda_kv_layout(kvant_device *base, kvant_attn_args *a)
{
    cuda_device *d = (cuda_device *)base;
    const kvant_attn_args before = *a;
    fast_job fast;
    side_dev side;
    pack_shape shape;

    a->max_pos = 0;
    a->seqs.n_seqs = 2;
    a->seqs.n_tokens = 3;
    a->seqs.n_few = a->seqs.few_rows = 1;
    if (a->k.tail && cuda_side(d, &a->k, a->d_k, &side, NULL) == KVANT_OK && cuda_pack_shape(&side, PACK_K, &shape))
        a->k.layout = KVANT_LAYOUT_PRIVATE_K;
    if (a->v.tail && cuda_side(d, &a->v, a->d_v, &side, NULL) == KVANT_OK && cuda_pack_shape(&side, PACK_V, &shape))
        a->v.layout = KVANT_LAYOUT_PRIVATE_V;
    const bool good = fast_shape(d, a, &fast) && fast.decode && fast.prefill;
    const int k = good ? a->k.layout : KVANT_LAYOUT_ROWS, v = good ? a->v.layout : KVANT_LAYOUT_ROWS;
    *a = before;
    a->k.layout = k;
    a->v.layout = v;
}

static size_t fast_scratch(const cuda_device *d, const fast_job &o)
{
    return (o.decode ? decode_scratch(o.one) : 0) + (o.prefill ? prefill_scratch(d, o.many) : 0);
}

static unsigned char *prefill_room(const cuda_device *d, const fast_job &o)
{
    return d->scratch + (o.decode ? decode_scratch(o.one) : 0);
}

/* Returns the operands of all rows: those of decode/ come first. */
static query_operands operands_of(const cuda_device *d, const fast_job &o)
{
    return o.prefill ? prefill_operands(o.many, prefill_room(d, o)) : decode_operands(o.one, d->scratch);
}

static void fast_run(cuda_device *d, const fast_job &o, bool made)
{
    const query_operands at = operands_of(d, o);
    if (o.decode)
        decode_run(d, o.one, made ? &at : NULL);
    if (o.prefill)
        prefill_run(d, o.many, prefill_room(d, o), made);
}

static int attn_supports(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_attn_args *a = (const kvant_attn_args *)args;
    attn_job p;
    fast_job fast;
    if (a->sink_pages > 0)         /* the kernels read encoded pages up to one, exact ones from there on */
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: %d exact first pages (--kv-sink), wanted 0",
                         a->sink_pages);
    if (fast_shape(d, a, &fast))
        return KVANT_OK;
    return attn_shape(d, a, &p, diag);
}

static int tiles_per_launch(const attn_job &p)
{
    const size_t fit = SCRATCH_CAP / tile_bytes(p), most = (size_t)most_tiles(p);
    return (int)(fit < 1 ? 1 : fit < most ? fit : most);
}

static size_t attn_scratch(const cuda_device *d, const void *args)
{
    const kvant_attn_args *a = (const kvant_attn_args *)args;
    attn_job p;
    fast_job fast;
    if (a->seqs.n_tokens > 0 && fast_shape((cuda_device *)d, a, &fast))
        return fast_scratch(d, fast);
    if (a->seqs.n_tokens <= 0 || attn_shape((cuda_device *)d, a, &p, NULL) < 0)
        return 0;
    return prep_bytes(p) + (size_t)tiles_per_launch(p) * tile_bytes(p);
}

static int attn_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_attn_args *a = (const kvant_attn_args *)args;
    attn_job p;
    fast_job fast;
    if (a->seqs.n_tokens <= 0)
        return KVANT_OK;
    if (fast_shape(d, a, &fast)) {
        fast_run(d, fast, false);
        return KVANT_OK;
    }
    CUDA_TRY(attn_shape(d, a, &p, diag));
    const int tiles = most_tiles(p), per = tiles_per_launch(p);
    p.qp = (float *)d->scratch;
    p.part = (float *)(d->scratch + prep_bytes(p));
    prep_kernel<<<(unsigned)(a->seqs.n_tokens * (int64_t)a->h), 64, 0, d->stream>>>(p.k, a->q, a->ldq, a->gq, a->h,
                                                                                    p.qp);
    for (p.tile0 = 0; p.tile0 < tiles; p.tile0 += per) {
        p.n_tiles = tiles - p.tile0 < per ? tiles - p.tile0 : per;
        any_run(d, p);
        merge_kernel<<<dim3((unsigned)(p.n_tiles * p.h_kv * p.head_tiles), (unsigned)p.rows), 128, 0, d->stream>>>(p);
    }
    return KVANT_OK;
}

static int row_class(const kvant_kv_side &s)
{
    return cuda_pack_class(cuda_format_find(s.fmt));
}

/* Rows of a side are stored as they are: in the exact tail, or in pages of 16-bit rows. */
static bool stores_rows(const kvant_kv_side &s, int tail_pages)
{
    const int cls = row_class(s);
    if (s.layout || s.fmt->flags & KVANT_FORMAT_PAGE)
        return s.tail && tail_pages > 0;
    return !s.tail && (cls == PACK_HALF || cls == PACK_BF16);
}

/* A unit of attn_whole.cu stores its own rows. */
static bool write_shape(cuda_device *d, const kvant_cache_write_args *k, const kvant_cache_write_args *v,
                        const kvant_attn_args *a, const head_ahead *ahead, fast_job *fast)
{
    if (!stores_rows(a->k, a->tail_pages) || !stores_rows(a->v, a->tail_pages) || !fast_shape(d, a, fast) ||
        fast->prefill || !fast->one.whole || (ahead && !decode_whole_ahead(fast->one, *ahead)))
        return false;
    if (ahead)
        fast->one.ahead = *ahead;
    fast->one.in_place = !a->k.tail && !a->v.tail;
    fast->one.k_rows = k->x;
    fast->one.v_rows = v->x;
    fast->one.ld_rows = k->ldx;
    return true;
}

bool cuda_attn_write_takes(cuda_device *d, const kvant_cache_write_args *k, const kvant_cache_write_args *v,
                           const kvant_attn_args *a, const head_ahead *ahead)
{
    fast_job fast;
    return write_shape(d, k, v, a, ahead, &fast);
}

static int other_shape(kvant_diag *diag)
{
    return cuda_fail(diag, KVANT_EINTERNAL, "device cuda: attn: another shape than before");
}

int cuda_attn_write(cuda_device *d, const kvant_cache_write_args *k, const kvant_cache_write_args *v,
                    const kvant_attn_args *a, const head_ahead *ahead, kvant_diag *diag)
{
    fast_job fast;
    if (!write_shape(d, k, v, a, ahead, &fast))
        return other_shape(diag);
    fast_run(d, fast, false);
    return KVANT_OK;
}

static bool front_shape(cuda_device *d, const kvant_cache_write_args *k, const kvant_cache_write_args *v,
                        const kvant_attn_args *a, const head_ahead &ahead, front_job *p)
{
    fast_job fast;
    if (!stores_rows(a->k, a->tail_pages) || !stores_rows(a->v, a->tail_pages) || a->d_k != a->d_v ||
        !fast_shape(d, a, &fast))
        return false;
    p->k_bf16 = row_class(a->k) == PACK_BF16;
    p->v_bf16 = row_class(a->v) == PACK_BF16;
    if (p->k_bf16 && fast.prefill)
        return false; /* beside bf16 keys a prompt's queries are halves, a decode row's two parts */
    const query_operands at = operands_of(d, fast);
    static_cast<attn_call &>(*p) = cuda_attn_call(a);
    p->k = fast.prefill ? fast.many.k.s : fast.one.k.s;
    p->v = fast.prefill ? fast.many.v.s : fast.one.v.s;
    p->k_rows = k->x;
    p->v_rows = v->x;
    p->ld_rows = k->ldx;
    p->ahead = ahead;
    p->raw = at.raw;
    p->turned = at.turned;
    p->d = a->d_k;
    return front_fits(*p);
}

bool cuda_attn_front_takes(cuda_device *d, const kvant_cache_write_args *k, const kvant_cache_write_args *v,
                           const kvant_attn_args *a, const head_ahead &ahead)
{
    front_job p = {};
    return front_shape(d, k, v, a, ahead, &p);
}

int cuda_attn_front(cuda_device *d, const kvant_cache_write_args *k, const kvant_cache_write_args *v,
                    const kvant_attn_args *a, const head_ahead &ahead, kvant_diag *diag)
{
    front_job p = {};
    if (!front_shape(d, k, v, a, ahead, &p))
        return other_shape(diag);
    front_run(d, p);
    return KVANT_OK;
}

static void run_to(cuda_device *d, fast_job fast, const kvant_attn_args *a, bool made, bool halves)
{
    fast.one.halves = fast.many.halves = halves ? (uint16_t *)a->out : NULL;
    fast_run(d, fast, made);
}

int cuda_attn_behind(cuda_device *d, const kvant_attn_args *a, bool sealed, bool halves, kvant_diag *diag)
{
    fast_job fast;
    if (!fast_shape(d, a, &fast))
        return other_shape(diag);
    fast.one.sealing = sealed || !a->k.tail || !a->v.tail;
    run_to(d, fast, a, true, halves);
    return KVANT_OK;
}

/* Rows of a launch that takes whole units stay f32: few rows have products that want them so. */
static bool halves_shape(cuda_device *d, const kvant_attn_args *a, fast_job *fast)
{
    return fast_shape(d, a, fast) && !(fast->decode && fast->one.whole);
}

static bool halves_takes(cuda_device *d, const kvant_op *ops)
{
    fast_job fast;
    return halves_shape(d, OP_ARGS(attn, 0), &fast);
}

static int halves_run(cuda_device *d, const kvant_op *ops, enum fuse_pass, kvant_diag *diag)
{
    fast_job fast;
    if (!halves_shape(d, OP_ARGS(attn, 0), &fast))
        return other_shape(diag);
    run_to(d, fast, OP_ARGS(attn, 0), false, true);
    return KVANT_OK;
}

const cuda_form cuda_fused_attn_halves = { halves_takes, halves_run };
const cuda_op cuda_op_attn = { attn_supports, attn_scratch, attn_run };

