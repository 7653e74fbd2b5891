/* gdn_chunk_body.h: gdn_chunk on vectors; included after gdn_body.h, whose helpers it uses.
 *
 * Per chunk of n <= 64 tokens that ends on the absolute 64 grid, with the state W[dk][columns] (row-major here, so that
 * every product is a broadcast times a vector of columns; transposed only when a sequence enters and leaves):
 *     A = -strict_lower(beta_t D <k_t,k_j>), P = lower(D <q_t,k_j>), D = exp(c_t - c_j), j <= t  (never exp(-c_j))
 *     U = beta (V - exp(c) K W), then U_t += sum_{j<t} A_tj U_j       forward substitution in blocks of 16 rows
 *     O = scale (exp(c) Q W + P U)
 *     W = exp(c_last) W + K^T (exp(c_last - c) U)
 * bf16 states: W is rounded after every chunk.
 * Gates per channel (gdn_channels_body.h): c and D are vectors; the decays stand in K and Q themselves.
 * Every output is one FMA chain in ascending order, whatever the tile, so columns may be cut among threads freely.
 * Triangular parts stop at the diagonal: later tokens never touch earlier ones, not even when they are NaN. */

enum { CHUNK = KVANT_PAGE, SOLVE = 16, TILE_ROWS = 6, TILE = 2 * VF_LANES };

/* Scratch of one part, in floats; every row of columns has ld = columns rounded up to TILE. */
typedef struct chunk {
    float *w;     /* [dk][ld] state */
    float *u, *o; /* [CHUNK][ld] */
    float *kt;    /* [dk][CHUNK] keys of the chunk, transposed */
    float *a, *p; /* [CHUNK][CHUNK] */
    float *decay; /* [CHUNK] exp(c_t); 1 with gates per channel */
    float *left;  /* [CHUNK] exp(c_last - c_t); 1 with gates per channel */
    float *line;  /* [CHUNK] */
    float *last;  /* [dk] exp(c_last) */
    double *c;    /* [CHUNK][gates_of] cumulative log gates */
    float *room;  /* of gates per channel: channel_floats */
    int ld;
    /* Keys and queries that meet the state before the chunk, keys that add to the state after it. */
    const float *k, *q, *k_left;
    int64_t ldk, ldq, ld_left;
} chunk;

/* Rows of a tile, unrolled by the preprocessor: an array of vectors would stay in memory at -O2. */
#define ROWS1(X) X(0)
#define ROWS2(X) ROWS1(X) X(1)
#define ROWS4(X) ROWS2(X) X(2) X(3)
#define ROWS6(X) ROWS4(X) X(4) X(5)
#define TILE_LOAD(i)                                                                                                   \
    vf x##i = add ? vf_load(c + i * ldc) : vf_zero(), y##i = add ? vf_load(c + i * ldc + VF_LANES) : vf_zero();
#define TILE_STEP(i)                                                                                                   \
    x = vf_set1(a[i * ra]);                                                                                            \
    x##i = vf_fma(x, b0, x##i);                                                                                        \
    y##i = vf_fma(x, b1, y##i);
#define TILE_STORE(i)                                                                                                  \
    vf_store(c + i * ldc, x##i);                                                                                       \
    vf_store(c + i * ldc + VF_LANES, y##i);

/* C[rows][TILE] (+)= A[rows][depth] B[depth][TILE]; A element (i, k) at a[i*ra + k*ca]. */
#define TILE_DEFINE(name, ROWS)                                                                                        \
    static void name(const float *a, int64_t ra, int64_t ca, const float *b, int64_t ldb, float *c, int64_t ldc,       \
                     int depth, int add)                                                                               \
    {                                                                                                                  \
        ROWS(TILE_LOAD)                                                                                                \
        for (int k = 0; k < depth; k++, a += ca, b += ldb) {                                                           \
            const vf b0 = vf_load(b), b1 = vf_load(b + VF_LANES);                                                      \
            vf x;                                                                                                      \
            ROWS(TILE_STEP)                                                                                            \
        }                                                                                                              \
        ROWS(TILE_STORE)                                                                                               \
    }

TILE_DEFINE(tile_6, ROWS6)
TILE_DEFINE(tile_4, ROWS4)
TILE_DEFINE(tile_2, ROWS2)
TILE_DEFINE(tile_1, ROWS1)

/* C[m][n] (+)= A[m][depth] B[depth][n]; n is a multiple of TILE. */
static void product(const float *a, int64_t ra, int64_t ca, const float *b, int64_t ldb, float *c, int64_t ldc, int m,
                    int n, int depth, int add)
{
    for (int j = 0; j < n; j += TILE) {
        int i = 0;

        for (; i + 6 <= m; i += 6)
            tile_6(a + i * ra, ra, ca, b + j, ldb, c + i * ldc + j, ldc, depth, add);
        for (; i + 4 <= m; i += 4)
            tile_4(a + i * ra, ra, ca, b + j, ldb, c + i * ldc + j, ldc, depth, add);
        for (; i + 2 <= m; i += 2)
            tile_2(a + i * ra, ra, ca, b + j, ldb, c + i * ldc + j, ldc, depth, add);
        for (; i < m; i++)
            tile_1(a + i * ra, ra, ca, b + j, ldb, c + i * ldc + j, ldc, depth, add);
    }
}

/* row[ld] += sum_{k < depth} a[k] b[k][ld], k ascending. */
static void row_product(const float *a, const float *b, float *row, int ld, int depth)
{
    for (int j = 0; j < ld; j += TILE) {
        vf r0 = vf_load(row + j), r1 = vf_load(row + j + VF_LANES);

        for (int k = 0; k < depth; k++) {
            const vf x = vf_set1(a[k]);
            r0 = vf_fma(x, vf_load(b + (int64_t)k * ld + j), r0);
            r1 = vf_fma(x, vf_load(b + (int64_t)k * ld + j + VF_LANES), r1);
        }
        vf_store(row + j, r0);
        vf_store(row + j + VF_LANES, r1);
    }
}

static void scale_row(float *row, int ld, float by)
{
    for (int j = 0; j < ld; j += VF_LANES)
        vf_store(row + j, vf_mul(vf_load(row + j), vf_set1(by)));
}

/* Keys transposed, columns behind n zero. */
static void transpose_keys(const kvant_gdn_args *a, const token *first, int n, const chunk *w)
{
    for (int i0 = 0; i0 < a->dk; i0 += 16)
        for (int t = 0; t < CHUNK; t++)
            for (int i = i0; i < i0 + 16 && i < a->dk; i++)
                w->kt[i * CHUNK + t] = t < n ? first->k[t * a->ldk + i] : 0.0f;
}

/* line[j] = exp(c_t - c_j) for j < whole vectors over n; differences in double, since c can reach -1280. */
static void decays(const chunk *w, double ct, int n, float *line)
{
    for (int j = 0; j < n; j++)
        line[j] = (float)(ct - w->c[j]);
    for (int j = n; j % VF_LANES != 0; j++)
        line[j] = 0.0f;
    for (int j = 0; j < n; j += VF_LANES)
        vf_store(line + j, vf_exp(vf_load(line + j)));
}

/* c, decay, left, A and P of the chunk of n tokens at batch row lo. */
static void chunk_matrices(const kvant_gdn_args *a, int v, int lo, int n, chunk *w)
{
    const token first = token_at(a, lo, v);
    double sum = 0.0;

    transpose_keys(a, &first, n, w);
    for (int t = 0; t < n; t += TILE_ROWS) { /* rows t.. need columns up to themselves only */
        const int rows = n - t < TILE_ROWS ? n - t : TILE_ROWS, width = (t + rows + TILE - 1) / TILE * TILE;

        product(first.k + t * a->ldk, a->ldk, 1, w->kt, CHUNK, w->a + t * CHUNK, CHUNK, rows, width, a->dk, 0);
        product(first.q + t * a->ldq, a->ldq, 1, w->kt, CHUNK, w->p + t * CHUNK, CHUNK, rows, width, a->dk, 0);
    }
    for (int t = 0; t < n; t++)
        w->c[t] = sum += (double)a->g[(int64_t)(lo + t) * a->hv + v];
    for (int t = 0; t < n; t++) {
        const float beta = -a->beta[(int64_t)(lo + t) * a->hv + v];
        float *row_a = w->a + t * CHUNK, *row_p = w->p + t * CHUNK;

        decays(w, w->c[t], t + 1, w->line);
        for (int j = 0; j <= t; j += VF_LANES) {
            const vf d = vf_load(w->line + j);
            vf_store(row_a + j, vf_mul(vf_mul(vf_load(row_a + j), d), vf_set1(beta)));
            vf_store(row_p + j, vf_mul(vf_load(row_p + j), d));
        }
        w->decay[t] = exp_one((float)w->c[t]);
    }
    decays(w, sum, n, w->left);
    for (int i = 0; i < a->dk; i++)
        w->last[i] = w->decay[n - 1];
    w->k = w->k_left = first.k;
    w->q = first.q;
    w->ldk = w->ld_left = a->ldk;
    w->ldq = a->ldq;
}

#include "devices/cpu/gdn/gdn_channels_body.h"

/* u = beta (v - exp(c) K W), then the unit lower triangular solve. */
static void chunk_solve(const kvant_gdn_args *a, int v, int lo, int n, int j0, int columns, const chunk *w)
{
    const token first = token_at(a, lo, v);

    product(w->k, w->ldk, 1, w->w, w->ld, w->u, w->ld, n, w->ld, a->dk, 0);
    for (int t = 0; t < n; t++) {
        const float *value = first.v + t * a->ldv + j0;
        float *row = w->u + (int64_t)t * w->ld;
        const vf fade = vf_set1(w->decay[t]), beta = vf_set1(a->beta[(int64_t)(lo + t) * a->hv + v]);

        for (int j = 0; j < columns; j += VF_LANES) {
            const vf x = vf_load_n(value + j, columns - j < VF_LANES ? columns - j : VF_LANES);
            vf_store(row + j, vf_mul(beta, vf_fnma(fade, vf_load(row + j), x)));
        }
    }
    for (int b = 0; b < n; b += SOLVE) {
        const int rows = n - b < SOLVE ? n - b : SOLVE;

        product(w->a + b * CHUNK, CHUNK, 1, w->u, w->ld, w->u + (int64_t)b * w->ld, w->ld, rows, w->ld, b, 1);
        for (int t = b + 1; t < b + rows; t++)
            row_product(w->a + t * CHUNK + b, w->u + (int64_t)b * w->ld, w->u + (int64_t)t * w->ld, w->ld, t - b);
    }
}

/* o = scale (exp(c) Q W + P U), written to the op's output. */
static void chunk_output(const kvant_gdn_args *a, int v, int lo, int n, int j0, int columns, const chunk *w)
{
    const token first = token_at(a, lo, v);
    const vf scale = vf_set1(1.0f / sqrtf((float)a->dk));

    product(w->q, w->ldq, 1, w->w, w->ld, w->o, w->ld, n, w->ld, a->dk, 0);
    for (int t = 0; t < n; t++)
        scale_row(w->o + (int64_t)t * w->ld, w->ld, w->decay[t]);
    for (int b = 0; b < n; b += SOLVE) {
        const int rows = n - b < SOLVE ? n - b : SOLVE;

        product(w->p + b * CHUNK, CHUNK, 1, w->u, w->ld, w->o + (int64_t)b * w->ld, w->ld, rows, w->ld, b, 1);
        for (int t = b; t < b + rows; t++) {
            float *row = w->o + (int64_t)t * w->ld, *out = first.o + (int64_t)t * a->hv * a->dv + j0;

            row_product(w->p + t * CHUNK + b, w->u + (int64_t)b * w->ld, row, w->ld, t - b + 1);
            for (int j = 0; j < columns; j += VF_LANES)
                vf_store_n(out + j, vf_mul(vf_load(row + j), scale), columns - j < VF_LANES ? columns - j : VF_LANES);
        }
    }
}

/* W = exp(c_last) W + K^T (exp(c_last - c) U) */
static void chunk_state(const kvant_gdn_args *a, int n, const chunk *w)
{
    for (int t = 0; t < n; t++)
        scale_row(w->u + (int64_t)t * w->ld, w->ld, w->left[t]);
    for (int i = 0; i < a->dk; i++)
        scale_row(w->w + (int64_t)i * w->ld, w->ld, w->last[i]);
    product(w->k_left, 1, w->ld_left, w->u, w->ld, w->w, w->ld, a->dk, w->ld, n, 1);
}

/* W[i][j] = columns[j][i], columns behind n zero; and back. */
static void load_state(const float *columns, int n, int dk, const chunk *w)
{
    for (int i0 = 0; i0 < dk; i0 += 16)
        for (int j = 0; j < w->ld; j++)
            for (int i = i0; i < i0 + 16 && i < dk; i++)
                w->w[(int64_t)i * w->ld + j] = j < n ? columns[(int64_t)j * dk + i] : 0.0f;
}

static void store_state(float *columns, int n, int dk, const chunk *w)
{
    for (int i0 = 0; i0 < dk; i0 += 16)
        for (int j = 0; j < n; j++)
            for (int i = i0; i < i0 + 16 && i < dk; i++)
                columns[(int64_t)j * dk + i] = w->w[(int64_t)i * w->ld + j];
}

static void load_bf16(const uint16_t *columns, int n, int dk, const chunk *w)
{
    for (int i0 = 0; i0 < dk; i0 += 16)
        for (int j = 0; j < w->ld; j++)
            for (int i = i0; i < i0 + 16 && i < dk; i++)
                w->w[(int64_t)i * w->ld + j] = j < n ? bf16_to_f32(columns[(int64_t)j * dk + i]) : 0.0f;
}

static void store_bf16(uint16_t *columns, int n, int dk, const chunk *w)
{
    for (int i0 = 0; i0 < dk; i0 += 16)
        for (int j = 0; j < n; j++)
            for (int i = i0; i < i0 + 16 && i < dk; i++)
                columns[(int64_t)j * dk + i] = f32_to_bf16(w->w[(int64_t)i * w->ld + j]);
}

static void round_state(int dk, const chunk *w)
{
    for (int64_t i = 0; i < (int64_t)dk * w->ld; i++)
        w->w[i] = bf16_to_f32(f32_to_bf16(w->w[i]));
}

static void chunk_sequence(const kvant_gdn_args *a, int s, int v, int j0, int columns, const void *src, chunk *w)
{
    const int end = a->seqs.q0[s + 1], is_bf16 = a->state_type == KVANT_STATE_BF16;

    if (is_bf16)
        load_bf16(src, columns, a->dk, w);
    else
        load_state(src, columns, a->dk, w);
    for (int lo = a->seqs.q0[s], n; lo < end; lo += n) {
        n = CHUNK - (a->seqs.pos0[s] + lo - a->seqs.q0[s]) % CHUNK;
        if (n > end - lo)
            n = end - lo;
        (a->per_channel ? channel_matrices : chunk_matrices)(a, v, lo, n, w);
        chunk_solve(a, v, lo, n, j0, columns, w);
        chunk_output(a, v, lo, n, j0, columns, w);
        chunk_state(a, n, w);
        if (is_bf16)
            round_state(a->dk, w);
    }
    if (a->seqs.slot_out[s] < 0)
        return;
    void *dst = columns_at(a, a->seqs.slot_out[s], v, j0);
    if (is_bf16)
        store_bf16(dst, columns, a->dk, w);
    else
        store_state(dst, columns, a->dk, w);
}

static int round_up(int n, int to)
{
    return (n + to - 1) / to * to;
}

/* Columns of one unit: the whole head where the heads alone feed the threads evenly, else down to 32. */
static int unit_columns(const kvant_gdn_args *a, int parts)
{
    int columns = a->dv;

    while (columns > 32 && a->hv * (a->dv / columns) < 4 * parts && a->hv * (a->dv / columns) % parts != 0)
        columns = (columns + 1) / 2;
    return columns;
}

/* Floats of scratch; fills *w when base is not NULL.  Sized for whole heads, so that parts do not matter. */
static size_t chunk_layout(const kvant_gdn_args *a, int columns, float *base, chunk *w)
{
    enum { N = 11 };
    const int ld = round_up(columns, TILE);
    const size_t dk = (size_t)a->dk, wide = (size_t)ld;
    const size_t sizes[N] = { dk * wide, CHUNK * wide, CHUNK * wide, dk * CHUNK, CHUNK * CHUNK,    CHUNK * CHUNK,
                              CHUNK,     CHUNK,        CHUNK,        dk,         channel_floats(a) };
    float *at[N];
    size_t total = 2 * CHUNK * (size_t)gates_of(a); /* doubles first: aligned */

    for (int i = 0; i < N; i++) {
        at[i] = base != NULL ? base + total : NULL;
        total += sizes[i];
    }
    if (base != NULL)
        *w = (chunk){ .w = at[0],
                      .u = at[1],
                      .o = at[2],
                      .kt = at[3],
                      .a = at[4],
                      .p = at[5],
                      .decay = at[6],
                      .left = at[7],
                      .line = at[8],
                      .last = at[9],
                      .c = (double *)(void *)base,
                      .room = at[10],
                      .ld = ld };
    return total;
}

static void gdn_chunk(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_gdn_args *a = args;
    const int columns = unit_columns(a, parts), blocks = (a->dv + columns - 1) / columns;
    chunk w;
    char *moved = (char *)((float *)work->local + chunk_layout(a, columns, work->local, &w));

    for (int unit = part; unit < a->hv * blocks; unit += parts) {
        const int v = unit / blocks, j0 = unit % blocks * columns;
        const int n = a->dv - j0 < columns ? a->dv - j0 : columns;
        char *gathered = moved;

        gather_columns(a, PROMPT, v, j0, n, moved);
        for (int s = 0; s < a->seqs.n_seqs; s++)
            if (takes_part(&a->seqs, s, PROMPT))
                chunk_sequence(a, s, v, j0, n, entry_columns(a, s, v, j0, n, &gathered), &w);
    }
}

static size_t gdn_chunk_local(const void *args)
{
    const kvant_gdn_args *a = args;

    const size_t moved = count_moved(&a->seqs, PROMPT) * columns_bytes(a, a->dv);

    return chunk_layout(a, a->dv, NULL, NULL) * sizeof(float) + moved;
}

const kvant_cpu_kernel VF_KERNEL(gdn_chunk) = { .stages = 1, .fn = { gdn_chunk }, .local_bytes = gdn_chunk_local };
