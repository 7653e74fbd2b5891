/* page_int.h: the integer path of a format of page scope: a page's rows are unpacked once for all query rows of the
 * call, as bytes in L1 (page_record.h), and read by the kernels of simd_int_<isa>.h; the mean, which all rows share, is
 * one product in f32 with the query as it came, or with the sum of the weights. */

/* A page's rows, unpacked. */
typedef struct page_bytes {
    _Alignas(64) uint8_t rows[KVANT_PAGE * (KVANT_MAX_HEAD_DIM / CARD_VALUES) * CARD_BYTES_OF_RECORD];
    float mean[KVANT_MAX_HEAD_DIM];
    size_t stride;
} page_bytes;

static void page_unpack(page_bytes *b, const uint8_t *page, int first, int n, int d)
{
    b->stride = (size_t)(d / CARD_VALUES) * CARD_BYTES_OF_RECORD;
    for (int g = 0; n > 0 && g < d / CARD_VALUES; g++, page += PTCQ_PAGE_BYTES(CARD_K)) {
        uint8_t *row = b->rows + g * CARD_BYTES_OF_RECORD;
        for (int i = first; i < first + n; i++, row += b->stride) {
            page_row_bytes(page, i, row);
            memcpy(row + CARD_VALUES, page + PTCQ_SCALE_AT(CARD_K) + 2 * i, 2);
        }
        ptcq_mean(CARD_K, page, b->mean + g * CARD_VALUES);
    }
}

/* The query as it came lies behind what the integers take. */
static inline size_t page_query_at(int d)
{
    return 192 + (size_t)d * 2;
}

static void pages_prep_q8(const void *param, const float *qp, void *q8, int d)
{
    int_prep_q8(param, qp, q8, d);
    memcpy((uint8_t *)q8 + page_query_at(d), qp, (size_t)d * sizeof *qp);
}

static inline float page_lanes(vf v)
{
    float lane[VF_LANES], sum = 0.0f;
    vf_store(lane, v);
    for (int i = 0; i < VF_LANES; i++)
        sum += lane[i];
    return sum;
}

static inline float page_dot(const float *a, const float *b, int d)
{
    vf sum = vf_zero();
    for (int j = 0; j < d; j += VF_LANES)
        sum = vf_fma(vf_load(a + j), vf_load(b + j), sum);
    return page_lanes(sum);
}

static void pages_score_q8(const void *param, const void *q8, size_t ldq8, int r, const uint8_t *page, int first, int n,
                           float *s, size_t lds, int d)
{
    page_bytes b;

    page_unpack(&b, page, first, n, d);
    int_score_q8(param, q8, ldq8, r, b.rows, b.stride, n, s, lds, d);
    for (int j = 0; j < r && n > 0; j++, s += lds) {
        const uint8_t *q = (const uint8_t *)q8 + (size_t)j * ldq8 + page_query_at(d);
        const float m = page_dot((const float *)(const void *)q, b.mean, d);
        int i = 0;
        for (; i + VF_LANES <= n; i += VF_LANES)
            vf_store(s + i, vf_add(vf_load(s + i), vf_set1(m)));
        for (; i < n; i++)
            s[i] += m;
    }
}

/* Weight i is in lane i modulo VF_LANES. */
static inline float page_weights(const float *w, int n)
{
    float lane[VF_LANES] = { 0 };
    vf sum = vf_zero();
    int i = 0;
    for (; i + VF_LANES <= n; i += VF_LANES)
        sum = vf_add(sum, vf_load(w + i));
    memcpy(lane, w + i, (size_t)(n - i) * sizeof *w);
    return page_lanes(vf_add(sum, vf_load(lane)));
}

static void pages_axpy_q8(const void *param, const float *w, size_t ldw, int r, const uint8_t *page, int first, int n,
                          float *acc, size_t lda, int d)
{
    page_bytes b;

    if (n <= 0)
        return;
    page_unpack(&b, page, first, n, d);
    int_axpy_q8(param, w, ldw, r, b.rows, b.stride, n, acc, lda, d);
    for (int j = 0; j < r; j++, w += ldw, acc += lda) {
        const vf sum = vf_set1(page_weights(w, n));
        for (int e = 0; e < d; e += VF_LANES)
            vf_store(acc + e, vf_fma(sum, vf_load(b.mean + e), vf_load(acc + e)));
    }
}

#define PAGE_Q8_KERNELS .prep_q8 = pages_prep_q8, .score_page_q8 = pages_score_q8, .axpy_page_q8 = pages_axpy_q8,
