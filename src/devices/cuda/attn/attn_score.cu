/* attn_score.cu: attn_score over pages of rows of any format: one block per (token, head), one warp per key. */
#include "devices/cuda/core/page.cuh"

typedef struct score_job {
    side_dev k;
    seqs_dev seqs;
    const float *q;
    float *s;
    int64_t ldq, gq, lds;
    int h, h_kv, tail_pages;
    float scale;
} score_job;

static __global__ void __launch_bounds__(256) score_kernel(score_job p)
{
    __shared__ float raw[KVANT_MAX_PLAIN_HEAD_DIM], qp[2 * KVANT_MAX_HEAD_DIM];
    const int i = blockIdx.x / p.h, head = blockIdx.x % p.h, kv = head / (p.h / p.h_kv), lane = threadIdx.x % 32;
    const int seq = seq_of(p.seqs, i), pos = pos_of(p.seqs, seq, i);
    const float *q = p.q + (int64_t)i * p.ldq + (int64_t)head * p.gq, scale = side_scale(p.k);

    for (int j = threadIdx.x; j < p.k.dp; j += blockDim.x)
        raw[j] = j < p.k.d ? q[j] : 0.0f;
    space_prep(p.k, raw, qp);
    for (int j = (int)blockIdx.y * 8 + threadIdx.x / 32; j <= pos; j += 8 * gridDim.y) {
        const int page = j / KVANT_PAGE, r = j % KVANT_PAGE;
        const int t = side_tail_page(p.k, p.seqs, seq, page, pos / KVANT_PAGE, p.tail_pages);
        float sum = 0.0f;
        if (t >= 0) {
            const uint16_t *row = side_tail_row(p.k, t, p.h_kv, kv, r);
            for (int e = lane; e < p.k.d; e += 32)
                sum = fmaf(raw[e], __half2float(__ushort_as_half(row[e])), sum);
        } else if (is_paged(p.k)) {
            sum = page_dot(p.k, p.seqs.table[(size_t)seq * p.seqs.stride + page], kv, r, qp);
        } else {
            const uint8_t *row = side_row(p.k, p.seqs.table[(size_t)seq * p.seqs.stride + page], kv, r);
            for (int e = lane; e < p.k.sdim; e += 32)
                sum = fmaf(qp[e], fmt_value(p.k.fmt, row, e, scale), sum);
        }
        sum = warp_sum(sum);
        if (lane == 0)
            p.s[((int64_t)i * p.h + head) * p.lds + j] = sum * p.scale;
    }
}

static int score_supports(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_attn_score_args *a = (const kvant_attn_score_args *)args;
    if (a->sink_pages > 0)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: %d exact first pages (--kv-sink), wanted 0",
                         a->sink_pages);
    if (a->k.layout)
        return cuda_fail(diag, KVANT_EUNSUPPORTED, "device cuda: attn_score reads pages of rows only");
    return cuda_side_supports(d, &a->k, a->d_k, diag);
}

static int score_run(cuda_device *d, const void *args, kvant_diag *diag)
{
    const kvant_attn_score_args *a = (const kvant_attn_score_args *)args;
    score_job p;
    if (a->seqs.n_tokens <= 0)
        return KVANT_OK;
    memset(&p, 0, sizeof p);
    CUDA_TRY(cuda_side(d, &a->k, a->d_k, &p.k, diag));
    p.seqs = cuda_seqs(&a->seqs);
    p.q = a->q;
    p.s = a->s;
    p.ldq = a->ldq;
    p.gq = a->gq;
    p.lds = a->lds;
    p.h = a->h;
    p.h_kv = a->h_kv;
    p.tail_pages = a->tail_pages;
    p.scale = a->scale;
    score_kernel<<<dim3((unsigned)(a->seqs.n_tokens * (int64_t)a->h), 16), 256, 0, d->stream>>>(p);
    return KVANT_OK;
}

const cuda_op cuda_op_attn_score = { score_supports, NULL, score_run };
