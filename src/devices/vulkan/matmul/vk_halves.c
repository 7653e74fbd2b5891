/* vk_halves.c: products of many rows on matrix units.  Rows of activations, and rows of weights a window at a time,
 * become halves in scratch memory (rows_half), each row with a power of two of its own; then they are multiplied
 * (matrix.glsl).  Decoding once into memory costs less than decoding in every tile of rows. */
#include "devices/vulkan/matmul/vk_mm.h"

/* Bytes of weights as halves at a time; chunks of eight values that a thread of rows_half keeps. */
enum { MOST_BYTES = 128 << 20, MOST_KEPT = 16, STEP = 64, ALIGN = 256 };
/* Limits of matmul_id: rows per expert from which decoding all experts once costs less than reading one for every row
 * (estimated by bytes, not measured); experts that experts_sort can count. */
enum { ROWS_PER_EXPERT = 4, MOST_EXPERTS = 1024 };

/* rows_half: scales are found and used; found only; known. */
enum { FIND, FIND_ONLY, KNOWN };

/* Outputs and rows of a workgroup, of a team; areas of shared memory; teams. */
typedef struct halves_tile {
    uint32_t o, r, team_o, team_r, areas, teams;
} halves_tile;

/* ALL: among the fastest in a whole model (bench/results/vulkan-h200.md).  PLAIN: its shaders have 128 threads.
 * EXPERTS: as fast as four others (35B-A3B). */
enum { TILE_ALL, TILE_PLAIN, TILE_EXPERTS };
static const halves_tile tiles[] = {
    [TILE_ALL] = { 128, 128, 64, 32, 1, 8 },
    [TILE_PLAIN] = { 64, 128, 32, 64, 1, 4 },
    [TILE_EXPERTS] = { 128, 32, 32, 32, 1, 4 },
};

/* The layout of scratch memory. */
typedef struct halves {
    size_t row_bytes; /* of halves */
    int64_t window;   /* weight rows at a time */
    int64_t x_rows;
    size_t x, w, order, tiles, end; /* the scales of x are at 0 */
    halves_tile tile;
    uint32_t n_tiles; /* of rows, at most */
} halves;

static size_t up(size_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static halves_tile tile_of(const vk_device *d, int ids)
{
    return tiles[ids ? TILE_EXPERTS : d->caps.bda ? TILE_ALL : TILE_PLAIN];
}

/* The most that one buffer should have. */
static int64_t bytes_at_once(const vk_device *d)
{
    return (int64_t)(d->caps.bda || d->caps.max_range / 2 > MOST_BYTES ? MOST_BYTES : d->caps.max_range / 2);
}

/* Whole experts. */
static int64_t experts_of(const vk_device *d, const vk_mm *p, size_t row_bytes)
{
    const int64_t all = p->w->n_out * p->w->n_expert, fit = bytes_at_once(d) / (int64_t)row_bytes,
                  read = vk_window_rows(d, p->w->packed, all), per = (fit < read ? fit : read) / p->w->n_out,
                  n = per > 0 ? (p->w->n_expert + per - 1) / per : 0;
    return n > 0 ? (p->w->n_expert + n - 1) / n : 0;
}

/* Rows of weights that begin at a word. */
static int64_t whole_words(int64_t rows)
{
    return rows < 4 ? 4 : rows / 4 * 4;
}

/* Weight rows at a time: all, or windows of about the same size, of whole tiles, within what may be bound. */
static int64_t window_of(const vk_device *d, const vk_mm *p, size_t row_bytes)
{
    const int64_t all = p->w->n_out, fit = bytes_at_once(d) / (int64_t)row_bytes,
                  read = vk_window_rows(d, p->w->packed, all), per = fit < read ? fit : read;
    if (per >= all)
        return all;
    if (per < 128)
        return whole_words(per);
    const int64_t n = (all + per / 128 * 128 - 1) / (per / 128 * 128);
    return ((all + n - 1) / n + 127) / 128 * 128;
}

static size_t row_halves(int64_t n_in)
{
    return (size_t)(n_in + STEP - 1) / STEP * STEP * 2;
}

static halves halves_of(const vk_device *d, const vk_mm *p)
{
    halves h = { .row_bytes = row_halves(p->w->n_in), .tile = tile_of(d, p->ids != NULL) };
    h.x_rows = (p->rows + p->x_div - 1) / p->x_div;
    h.window = p->ids ? experts_of(d, p, h.row_bytes) * p->w->n_out : window_of(d, p, h.row_bytes);
    h.n_tiles = ((uint32_t)p->rows + h.tile.r - 1) / h.tile.r + (p->ids ? (uint32_t)p->w->n_expert : 0);
    h.x = up((size_t)h.x_rows * 4);
    h.w = h.x + up((size_t)h.x_rows * h.row_bytes);
    h.order = h.w + up((size_t)h.window * h.row_bytes);
    h.tiles = h.order + (p->ids ? up((size_t)p->rows * 4) : 0);
    h.end = h.tiles + (p->ids ? up((size_t)h.n_tiles * 12 + 4) : 0);
    return h;
}

int vk_halves_take(const vk_device *d, const vk_mm *p)
{
    if (!d->caps.products || p->compute != KVANT_COMPUTE_AUTO || p->rows <= VEC_ROWS)
        return 0;
    return !p->ids || (p->rows >= ROWS_PER_EXPERT * p->w->n_expert && p->w->n_expert <= MOST_EXPERTS &&
                       experts_of(d, p, row_halves(p->w->n_in)) > 0);
}

size_t vk_halves_scratch(const vk_device *d, const vk_mm *p)
{
    return halves_of(d, p).end;
}

static void *scratch_at(const vk_device *d, size_t at)
{
    return (char *)d->scratch + at;
}

/* Rows as halves: what rows_half is told behind its first pointer. */
typedef struct rows {
    void *to; /* NULL: scales only */
    float *scale;
    int64_t n_in, n, row_bytes; /* bytes: of what is read */
    int type, scales;
} rows;

static int run_rows(vk_device *d, vk_list *l, vk_call *c, const rows *r, kvant_diag *diag)
{
    const size_t bytes = row_halves(r->n_in), chunks = bytes / 16, kept = (chunks + VK_GROUP - 1) / VK_GROUP;
    vk_ptr(c, r->to, r->to ? (size_t)r->n * bytes : 0, VK_WRITE);
    vk_ptr(c, r->scale, (size_t)r->n * 4, r->scales == KNOWN ? VK_READ : VK_WRITE);
    vk_grid_ptr(d, c, r->type);
    vk_uint(c, r->n_in);
    vk_uint(c, r->row_bytes);
    vk_uint(c, (int64_t)chunks);
    vk_uint(c, r->n);
    vk_spec(c, (uint32_t)r->type);
    vk_spec(c, (uint32_t)(kept < MOST_KEPT ? kept : MOST_KEPT));
    vk_spec(c, (uint32_t)r->scales);
    return vk_dispatch(d, l, c, (uint64_t)r->n, 1, 1, diag);
}

static int run_x(vk_device *d, vk_list *l, const vk_mm *p, const halves *h, kvant_diag *diag)
{
    vk_call c;
    vk_call_begin(&c, VK_SHADER_rows_half);
    const rows r = { .to = scratch_at(d, h->x),
                     .scale = d->scratch,
                     .n_in = p->w->n_in,
                     .n = h->x_rows,
                     .row_bytes = p->ldx * 4,
                     .type = vk_wtype_find(kvant_wtype_find("F32")),
                     .scales = FIND };
    vk_ptr(&c, p->x, vk_x_bytes(p), VK_READ);
    return run_rows(d, l, &c, &r, diag);
}

static int run_w(vk_device *d, vk_list *l, const vk_mm *p, const halves *h, int64_t from, int64_t n, kvant_diag *diag)
{
    const vk_weight *v = p->w->packed;
    const rows r = { .to = scratch_at(d, h->w),
                     .scale = v->row_scale + from,
                     .n_in = p->w->n_in,
                     .n = n,
                     .row_bytes = (int64_t)v->row_bytes,
                     .type = v->type,
                     .scales = KNOWN };
    vk_call c;
    vk_call_begin(&c, VK_SHADER_rows_half);
    vk_weight_ptr(&c, v, from, n);
    return run_rows(d, l, &c, &r, diag);
}

int vk_halves_scales(vk_device *d, vk_weight *v, int64_t n_in, int64_t all, kvant_diag *diag)
{
    const int64_t fit = vk_window_rows(d, v, all), window = fit < all ? whole_words(fit) : all;
    vk_list *l;
    if (!d->caps.products)
        return KVANT_OK;
    KVANT_TRY(vk_alloc(&d->base, (size_t)all * sizeof *v->row_scale, (void **)&v->row_scale, diag));
    KVANT_TRY(vk_list_open(d, &l, diag));
    for (int64_t from = 0; from < all; from += window) {
        const rows r = { .scale = v->row_scale + from,
                         .n_in = n_in,
                         .n = all - from < window ? all - from : window,
                         .row_bytes = (int64_t)v->row_bytes,
                         .type = v->type,
                         .scales = FIND_ONLY };
        vk_call c;
        vk_call_begin(&c, VK_SHADER_rows_half);
        vk_weight_ptr(&c, v, from, r.n);
        KVANT_TRY(run_rows(d, l, &c, &r, diag));
    }
    return KVANT_OK;
}

static int run_sort(vk_device *d, vk_list *l, const vk_mm *p, const halves *h, kvant_diag *diag)
{
    vk_call c;
    vk_call_begin(&c, VK_SHADER_experts_sort);
    vk_ptr(&c, p->ids, (size_t)p->rows * 4, VK_READ);
    vk_ptr(&c, scratch_at(d, h->order), (size_t)p->rows * 4, VK_WRITE);
    vk_ptr(&c, scratch_at(d, h->tiles), (size_t)h->n_tiles * 12 + 4, VK_WRITE);
    vk_uint(&c, p->rows);
    vk_uint(&c, p->w->n_expert);
    vk_uint(&c, h->tile.r);
    return vk_dispatch(d, l, &c, 1, 1, 1, diag);
}

static void spec_tile(vk_call *c, halves_tile t, int ids)
{
    vk_spec(c, t.o);
    vk_spec(c, t.r);
    vk_spec(c, t.team_o);
    vk_spec(c, t.team_r);
    vk_spec(c, t.areas);
    vk_spec(c, t.teams * 32);
    vk_spec(c, 16);
    vk_spec(c, (uint32_t)ids);
}

static int product_shader(const vk_device *d)
{
    return d->caps.products == VK_PRODUCTS_KHR ? VK_SHADER_matmul_khr : VK_SHADER_matmul_matrix;
}

/* Weight rows from .. from+n-1, which are in scratch memory; with ids, those of whole experts. */
static int run_product(vk_device *d, vk_list *l, const vk_mm *p, const halves *h, int64_t from, int64_t n,
                       kvant_diag *diag)
{
    const halves_tile t = h->tile;
    const vk_weight *v = p->w->packed;
    const int64_t outs = p->ids ? p->w->n_out : n;
    vk_call c;
    vk_call_begin(&c, product_shader(d));
    vk_ptr(&c, scratch_at(d, h->w), (size_t)n * h->row_bytes, VK_READ);
    vk_ptr(&c, v->row_scale + from, (size_t)n * 4, VK_READ);
    vk_ptr(&c, scratch_at(d, h->x), (size_t)h->x_rows * h->row_bytes, VK_READ);
    vk_ptr(&c, d->scratch, (size_t)h->x_rows * 4, VK_READ);
    vk_scale_ptr(&c, p->w, v);
    vk_ptr(&c, p->y, vk_y_bytes(p), VK_WRITE);
    vk_ptr(&c, p->ids ? scratch_at(d, h->order) : NULL, p->ids ? (size_t)p->rows * 4 : 0, VK_READ);
    vk_ptr(&c, p->ids ? scratch_at(d, h->tiles) : NULL, p->ids ? (size_t)h->n_tiles * 12 + 4 : 0, VK_READ);
    vk_uint(&c, outs);
    vk_uint(&c, p->rows);
    vk_uint(&c, (int64_t)(h->row_bytes / 2 / STEP));
    vk_uint(&c, p->ldy);
    vk_uint(&c, v->scale ? p->w->n_scale : 0);
    vk_uint(&c, p->ids ? 0 : from);
    vk_uint(&c, p->x_div);
    vk_uint(&c, p->ids ? from / p->w->n_out : 0);
    vk_uint(&c, p->ids ? n / p->w->n_out : 1);
    spec_tile(&c, t, p->ids != NULL);
    return vk_dispatch(d, l, &c, h->n_tiles, (uint32_t)((outs + t.o - 1) / t.o), 1, diag);
}

int vk_halves_run(vk_device *d, vk_list *l, const vk_mm *p, kvant_diag *diag)
{
    const int64_t all = p->w->n_out * (p->ids ? p->w->n_expert : 1);
    const halves h = halves_of(d, p);
    KVANT_TRY(run_x(d, l, p, &h, diag));
    if (p->ids)
        KVANT_TRY(run_sort(d, l, p, &h, diag));
    for (int64_t from = 0; from < all; from += h.window) {
        const int64_t left = all - from, n = left < h.window ? left : h.window;
        KVANT_TRY(run_w(d, l, p, &h, from, n, diag));
        KVANT_TRY(run_product(d, l, p, &h, from, n, diag));
    }
    return KVANT_OK;
}

/* ---- a small product when the device is opened: two workgroups and a part in each direction ---- */

enum { SEEN_O = 72, SEEN_R = 136, SEEN_K = 2 * STEP, SEEN_W = SEEN_O * SEEN_K / 2, SEEN_X = SEEN_R * SEEN_K / 2 };

/* Small integers: exact as halves, and so are their sums. */
static int seen_w(int o, int k)
{
    return (3 * o + 5 * k) % 7 - 3;
}
static int seen_x(int r, int k)
{
    return (5 * r + 2 * k) % 9 - 4;
}

static uint32_t half_bits(int v) /* -7 .. 7 */
{
    const uint32_t a = (uint32_t)(v < 0 ? -v : v), e = a >= 4 ? 2 : a >= 2 ? 1 : 0;
    return a == 0 ? 0 : (v < 0 ? 0x8000u : 0u) | (15 + e) << 10 | (a << 10 >> e & 0x3ffu);
}

/* Rows of halves, then ones: the scales of both sides. */
static void seen_fill(uint32_t *to)
{
    for (int i = 0; i < SEEN_W + SEEN_X; i++) {
        const int x = i >= SEEN_W, row = (i - x * SEEN_W) / (SEEN_K / 2), k = i % (SEEN_K / 2) * 2;
        to[i] = x ? half_bits(seen_x(row, k)) | half_bits(seen_x(row, k + 1)) << 16
                  : half_bits(seen_w(row, k)) | half_bits(seen_w(row, k + 1)) << 16;
    }
    for (int i = 0; i < SEEN_R; i++)
        to[SEEN_W + SEEN_X + i] = 0x3f800000u;
}

static int seen_run(vk_device *d, const uint32_t *in, float *y, kvant_diag *diag)
{
    const halves_tile t = tile_of(d, 0);
    const uint32_t *x = in + SEEN_W, *ones = x + SEEN_X;
    const uint32_t scalars[] = { SEEN_O, SEEN_R, SEEN_K / STEP, SEEN_O, 0, 0, 1, 0, 1 };
    vk_list *l;
    vk_call c;
    vk_call_begin(&c, product_shader(d));
    vk_ptr(&c, in, SEEN_W * 4, VK_READ);
    vk_ptr(&c, ones, SEEN_O * 4, VK_READ);
    vk_ptr(&c, x, SEEN_X * 4, VK_READ);
    vk_ptr(&c, ones, SEEN_R * 4, VK_READ);
    vk_ptr(&c, NULL, 0, VK_READ);
    vk_ptr(&c, y, SEEN_R * SEEN_O * 4, VK_WRITE);
    vk_ptr(&c, NULL, 0, VK_READ);
    vk_ptr(&c, NULL, 0, VK_READ);
    for (size_t i = 0; i < sizeof scalars / sizeof scalars[0]; i++)
        vk_uint(&c, scalars[i]);
    spec_tile(&c, t, 0);
    KVANT_TRY(vk_list_open(d, &l, diag));
    return vk_dispatch(d, l, &c, (SEEN_R + t.r - 1) / t.r, (SEEN_O + t.o - 1) / t.o, 1, diag);
}

static int seen_right(const float *y)
{
    for (int i = 0; i < SEEN_R * SEEN_O; i++) {
        int sum = 0;
        for (int k = 0; k < SEEN_K; k++)
            sum += seen_w(i % SEEN_O, k) * seen_x(i / SEEN_O, k);
        if (!(y[i] == (float)sum))
            return 0;
    }
    return 1;
}

int vk_products_check(vk_device *d, kvant_diag *diag)
{
    enum { WORDS = SEEN_W + SEEN_X + SEEN_R };
    static const size_t in_bytes = WORDS * 4, y_bytes = SEEN_R * SEEN_O * 4;
    uint32_t in[WORDS];
    float got[SEEN_R * SEEN_O] = { 0 };
    void *at = NULL, *y = NULL;
    int rc;

    if (!d->caps.products)
        return KVANT_OK;
    seen_fill(in);
    KVANT_TRY(vk_alloc(&d->base, in_bytes, &at, diag));
    KVANT_TRY(vk_alloc(&d->base, y_bytes, &y, diag));
    KVANT_TRY(vk_copy_in(&d->base, at, in, in_bytes, diag));
    rc = seen_run(d, at, y, diag);
    KVANT_TRY(vk_copy_out(&d->base, got, y, y_bytes, diag));
    vk_free(&d->base, at);
    vk_free(&d->base, y);
    if (rc != KVANT_OK || !seen_right(got))
        d->caps.products = VK_PRODUCTS_NONE; /* vulkan_describe says by what products are made */
    return KVANT_OK;
}
