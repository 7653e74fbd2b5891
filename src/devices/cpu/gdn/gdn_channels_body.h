/* gdn_channels_body.h: what a chunk needs where every channel of the keys has a gate of its own (Kimi Delta Attention);
 * included by gdn_chunk_body.h, whose chunk it fills.
 *
 * A[t][j] = -beta_t sum_i k_t[i] k_j[i] exp(c_t[i] - c_j[i]) is no product of two matrices, and with exp(-c_j) as a
 * factor it would overflow.  So rows go in blocks of SOLVE: with r the sums before the block, keys before it have the
 * factor exp(r - c_j), its own rows exp(c_t - r), both at most 1; inside a block every pair has an exponential per
 * channel (Yang et al., arXiv 2312.06635, section 4.3: secondary chunks). */

/* Floats of room: keys, queries and keys for the state [CHUNK][dk]; of a block's rows: sums, keys, queries; a row. */
static size_t channel_floats(const kvant_gdn_args *a)
{
    return a->per_channel ? (3 * CHUNK + 3 * SOLVE + 1) * (size_t)a->dk : 0;
}

/* y = exp(c - before); before NULL: zeros. */
static void decay_row(const double *c, const double *before, float *y, int dk)
{
    for (int i = 0; i < dk; i++)
        y[i] = (float)(before ? c[i] - before[i] : c[i]);
    for (int i = 0; i < dk; i += VF_LANES) {
        const int n = dk - i < VF_LANES ? dk - i : VF_LANES;
        vf_store_n(y + i, vf_exp(vf_load_n(y + i, n)), n);
    }
}

static void multiply_row(const float *x, const float *by, float *y, int dk)
{
    for (int i = 0; i < dk; i += VF_LANES) {
        const int n = dk - i < VF_LANES ? dk - i : VF_LANES;
        vf_store_n(y + i, vf_mul(vf_load_n(x + i, n), vf_load_n(by + i, n)), n);
    }
}

/* Cumulative gates, and the rows that meet the state. */
static void channel_rows(const kvant_gdn_args *a, const token *first, int n, chunk *w)
{
    const int dk = a->dk;
    const double *last = w->c + (n - 1) * dk;
    float *k = w->room, *q = k + CHUNK * dk, *left = q + CHUNK * dk, *row = left + (CHUNK + 3 * SOLVE) * dk;

    for (int t = 0; t < n; t++) {
        const float *g = first->g + (int64_t)t * a->hv * dk;
        for (int i = 0; i < dk; i++)
            w->c[t * dk + i] = (t > 0 ? w->c[(t - 1) * dk + i] : 0.0) + (double)g[i];
    }
    for (int t = 0; t < n; t++) {
        decay_row(w->c + t * dk, NULL, row, dk);
        multiply_row(first->k + t * a->ldk, row, k + t * dk, dk);
        multiply_row(first->q + t * a->ldq, row, q + t * dk, dk);
        decay_row(last, w->c + t * dk, row, dk);
        multiply_row(first->k + t * a->ldk, row, left + t * dk, dk);
        w->decay[t] = w->left[t] = 1.0f;
    }
    decay_row(last, NULL, w->last, dk);
    w->k = k;
    w->q = q;
    w->k_left = left;
    w->ldk = w->ldq = w->ld_left = dk;
}

/* Rows b .. b+rows-1 of A and P against the keys before them. */
static void channel_before(const kvant_gdn_args *a, const token *first, int b, int rows, const chunk *w)
{
    const int dk = a->dk, width = (b + TILE - 1) / TILE * TILE;
    const double *before = w->c + (b - 1) * dk;
    float *k = w->room + (3 * CHUNK + SOLVE) * dk, *q = k + SOLVE * dk, *row = q + SOLVE * dk;

    for (int t = 0; t < rows; t++) {
        decay_row(w->c + (b + t) * dk, before, row, dk);
        multiply_row(first->k + (b + t) * a->ldk, row, k + t * dk, dk);
        multiply_row(first->q + (b + t) * a->ldq, row, q + t * dk, dk);
    }
    for (int j = 0; j < b; j++) {
        decay_row(before, w->c + j * dk, row, dk);
        multiply_row(first->k + j * a->ldk, row, row, dk);
        for (int i = 0; i < dk; i++)
            w->kt[i * CHUNK + j] = row[i];
    }
    for (int i = 0; i < dk; i++)
        for (int j = b; j < width; j++)
            w->kt[i * CHUNK + j] = 0.0f;
    product(k, dk, 1, w->kt, CHUNK, w->a + b * CHUNK, CHUNK, rows, width, dk, 0);
    product(q, dk, 1, w->kt, CHUNK, w->p + b * CHUNK, CHUNK, rows, width, dk, 0);
}

/* Rows b .. of A and P among themselves. */
static void channel_inside(const kvant_gdn_args *a, const token *first, int b, int rows, const chunk *w)
{
    const int dk = a->dk;
    float *c = w->room + 3 * CHUNK * dk;

    for (int t = 0; t < rows; t++)
        for (int i = 0; i < dk; i++)
            c[t * dk + i] = (float)(w->c[(b + t) * dk + i] - (b > 0 ? w->c[(b - 1) * dk + i] : 0.0));
    for (int t = 0; t < rows; t++)
        for (int j = 0; j <= t; j++) {
            const float *kt = first->k + (b + t) * a->ldk, *qt = first->q + (b + t) * a->ldq;
            const float *kj = first->k + (b + j) * a->ldk;
            vf sa = vf_zero(), sp = vf_zero();
            for (int i = 0; i < dk; i += VF_LANES) {
                const int m = dk - i < VF_LANES ? dk - i : VF_LANES;
                const vf d = vf_exp(vf_sub(vf_load_n(c + t * dk + i, m), vf_load_n(c + j * dk + i, m)));
                const vf x = vf_mul(d, vf_load_n(kj + i, m));
                sa = vf_fma(vf_load_n(kt + i, m), x, sa);
                sp = vf_fma(vf_load_n(qt + i, m), x, sp);
            }
            w->a[(b + t) * CHUNK + b + j] = vf_reduce_add(sa);
            w->p[(b + t) * CHUNK + b + j] = vf_reduce_add(sp);
        }
}

/* As chunk_matrices. */
static void channel_matrices(const kvant_gdn_args *a, int v, int lo, int n, chunk *w)
{
    const token first = token_at(a, lo, v);

    channel_rows(a, &first, n, w);
    for (int b = 0; b < n; b += SOLVE) {
        const int rows = n - b < SOLVE ? n - b : SOLVE;
        if (b > 0)
            channel_before(a, &first, b, rows, w);
        channel_inside(a, &first, b, rows, w);
    }
    for (int t = 0; t < n; t++) {
        const vf beta = vf_set1(-a->beta[(int64_t)(lo + t) * a->hv + v]);
        for (int j = 0; j <= t; j += VF_LANES)
            vf_store(w->a + t * CHUNK + j, vf_mul(vf_load(w->a + t * CHUNK + j), beta));
    }
}
