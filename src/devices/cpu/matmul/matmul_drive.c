/* matmul_drive.c: cuts one matmul into register tiles (see matmul_drive.h).  Loop order, outermost first:
 *     120 rows of x (L2) -> 512 k -> panels (expanded to f32 once, L1) -> row tiles
 * A panel is expanded from its 16-bit or quantised form once per 120 rows, which costs 2-3 % of the FMAs it feeds. */
#include "devices/cpu/matmul/matmul_drive.h"

#include <string.h>
#include "base/half.h"
#include "ops/op_util.h"

int matmul_tile_rows(int64_t left, int most)
{
    if (left <= most)
        return (int)left;
    return left >= 2 * most ? most : (int)(left + 1) / 2;
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

matmul_cut matmul_split(int64_t m, int64_t panels, int tile, int part, int parts)
{
    int64_t tiles = ceil_div(m, tile), best = INT64_MAX;
    int across = 1; /* parts along m; the others go along the panels */
    matmul_cut c = { 0, 0, 0, 0 };

    for (int a = 1; a <= parts && a <= tiles; a++) {
        int64_t cost = ceil_div(tiles, a) * ceil_div(panels, parts / a);
        if (cost < best) {
            best = cost;
            across = a;
        }
    }
    int along = parts / across;
    if (part >= across * along)
        return c;
    part_range(tiles, part / along, across, &c.r0, &c.r1);
    part_range(panels, part % along, along, &c.p0, &c.p1);
    c.r0 = c.r0 * tile < m ? c.r0 * tile : m;
    c.r1 = c.r1 * tile < m ? c.r1 * tile : m;
    return c;
}

/* One pass: rows [r0, r1), k [k0, k0+kc), panels [p, p+count) whose weights are at w in form `form`. */
typedef struct drive_pass {
    const uint8_t *w;
    size_t stride;
    int form;
    int64_t r0, r1, k0, kc, p;
    int count;
} drive_pass;

static float *y_row(const matmul_job *j, int64_t r, int64_t col)
{
    return j->y + (j->to ? j->to[r] : r) * j->ldy + col;
}

/* The last panel has columns past n_out, or rows of y are scattered: compute in a buffer, copy what exists. */
static void tile_edge(const matmul_job *j, const drive_pass *s, matmul_tile_fn tile, int64_t r, int rows)
{
    float t[TILE_ROWS * TILE_PANELS * PANEL];
    int64_t ld = s->count * PANEL, col = s->p * PANEL, valid = j->n_out - col < ld ? j->n_out - col : ld;

    for (int i = 0; i < rows && s->k0; i++) {
        memcpy(t + i * ld, y_row(j, r + i, col), (size_t)valid * sizeof(float));
        memset(t + i * ld + valid, 0, (size_t)(ld - valid) * sizeof(float));
    }
    tile(s->w, s->stride, j->x + r * j->ldx + s->k0, j->ldx, s->kc, t, ld, s->k0 == 0);
    for (int i = 0; i < rows; i++)
        memcpy(y_row(j, r + i, col), t + i * ld, (size_t)valid * sizeof(float));
}

static void pass_rows(const matmul_isa *isa, const matmul_job *j, const drive_pass *s)
{
    int edge = j->to || (s->p + s->count) * PANEL > j->n_out;

    for (int64_t r = s->r0; r < s->r1;) {
        int rows = matmul_tile_rows(s->r1 - r, isa->rows);
        matmul_tile_fn tile = isa->tile[s->form][rows][s->count];
        if (edge)
            tile_edge(j, s, tile, r, rows);
        else
            tile(s->w, s->stride, j->x + r * j->ldx + s->k0, j->ldx, s->kc, j->y + r * j->ldy + s->p * PANEL, j->ldy,
                 s->k0 == 0);
        r += rows;
    }
}

/* Weights of k0.. as they lie in the panel: only for F32, F16, BF16. */
static size_t wide_offset(int layout, int64_t k0)
{
    return (size_t)k0 * PANEL * (layout == LAYOUT_F32 ? 4 : 2);
}

static void scale_cut(const matmul_job *j, matmul_cut c)
{
    int64_t end = c.p1 * PANEL < j->n_out ? c.p1 * PANEL : j->n_out;

    for (int64_t r = c.r0; r < c.r1; r++)
        for (int64_t i = c.p0 * PANEL; i < end; i++)
            *y_row(j, r, i) *= j->scale;
}

static void run_pass(const matmul_isa *isa, const matmul_job *j, drive_pass *s, int direct, float *scratch)
{
    const matmul_packed *h = j->w;
    const uint8_t *panel = matmul_panel(h, j->expert, s->p);
    const matmul_expand_fn expand = h->layout > LAYOUT_BF16 ? isa->expand_int : isa->expand[h->layout];

    s->form = direct ? h->layout : LAYOUT_F32;
    s->stride = direct ? h->panel_bytes : (size_t)s->kc * PANEL * sizeof(float);
    s->w = direct ? panel + wide_offset(h->layout, s->k0) : (const uint8_t *)scratch;
    for (int i = 0; i < s->count && !direct; i++)
        expand(h, panel + (size_t)i * h->panel_bytes, s->k0, s->kc, scratch + i * s->kc * PANEL);
    pass_rows(isa, j, s);
}

void matmul_f32(const matmul_isa *isa, const matmul_job *j, matmul_cut c, void *scratch)
{
    int layout = j->w->layout;
    int64_t rows = c.r1 - c.r0;
    int direct = layout == LAYOUT_F32 || (layout <= LAYOUT_BF16 && rows <= isa->direct_rows);
    int most = isa->panels[matmul_tile_rows(rows < TILE_BLOCK ? rows : TILE_BLOCK, isa->rows)];
    most = direct || most < EXPAND_PANELS ? most : EXPAND_PANELS;
    int64_t kc = direct && rows <= isa->direct_rows ? j->k : TILE_K;

    for (int64_t r = c.r0; r < c.r1; r += TILE_BLOCK)
        for (int64_t k0 = 0; k0 < j->k; k0 += kc)
            for (int64_t p = c.p0, left; (left = c.p1 - p) > 0;) {
                drive_pass s = { .r0 = r, .k0 = k0, .p = p };
                s.r1 = r + TILE_BLOCK < c.r1 ? r + TILE_BLOCK : c.r1;
                s.kc = k0 + kc < j->k ? kc : j->k - k0;
                s.count = (int)ceil_div(left, ceil_div(left, most));
                run_pass(isa, j, &s, direct, scratch);
                p += s.count;
            }
    if (j->scale != 1.0f)
        scale_cut(j, c);
}

size_t matmul_xq_bytes(int64_t m, int64_t k)
{
    return align64((size_t)(m * k) * 4) + align64((size_t)(m * k / 32) * 24) + 64;
}

matmul_xq matmul_xq_at(void *base, int64_t m, int64_t k)
{
    matmul_xq q = { .k = k };

    q.q16 = base;
    q.q8 = (int8_t *)(q.q16 + m * k);
    q.u8 = (uint8_t *)(q.q8 + m * k);
    q.d = (float *)(void *)((uint8_t *)base + align64((size_t)(m * k) * 4));
    q.s = q.d + m * k / 32;
    q.s16 = q.s + m * k / 32;
    q.sum = (int32_t *)(void *)(q.s16 + m * k / 16);
    return q;
}

static void int_rows(const matmul_isa *isa, const matmul_job *j, const matmul_xq *q, matmul_cut c)
{
    for (int64_t p = c.p0; p < c.p1; p++) {
        const uint8_t *panel = matmul_panel(j->w, j->expert, p);
        int64_t valid = j->n_out - p * PANEL < PANEL ? j->n_out - p * PANEL : PANEL;
        for (int64_t r = c.r0; r < c.r1; r++) {
            _Alignas(64) float t[PANEL];
            isa->int_row[j->w->layout](j->w, panel, q, r, t);
            memcpy(y_row(j, r, p * PANEL), t, (size_t)valid * sizeof(float));
        }
    }
}

/* One unpacked piece times rows [r0, r1). */
static void int_pass(const matmul_isa *isa, const matmul_job *j, const matmul_xq *q, const matmul_unpacked *u,
                     drive_pass s)
{
    int64_t col = s.p * PANEL, valid = j->n_out - col < PANEL ? j->n_out - col : PANEL;

    for (int64_t r = s.r0; r < s.r1;) {
        int rows = matmul_tile_rows(s.r1 - r, isa->int_rows);
        matmul_int_tile_fn tile = isa->int_tile[j->w->layout][rows];
        if (valid == PANEL && !j->to) {
            tile(u, q, r, s.k0 / 32, s.kc / 32, j->y + r * j->ldy + col, j->ldy, s.k0 == 0);
        } else {
            float t[TILE_ROWS * PANEL] = { 0 };
            for (int i = 0; i < rows && s.k0; i++)
                memcpy(t + i * PANEL, y_row(j, r + i, col), (size_t)valid * sizeof(float));
            tile(u, q, r, s.k0 / 32, s.kc / 32, t, PANEL, s.k0 == 0);
            for (int i = 0; i < rows; i++)
                memcpy(y_row(j, r + i, col), t + i * PANEL, (size_t)valid * sizeof(float));
        }
        r += rows;
    }
}

void matmul_int(const matmul_isa *isa, const matmul_job *j, const matmul_xq *q, matmul_cut c, void *scratch)
{
    matmul_unpacked *u = scratch;

    if (c.r1 - c.r0 <= isa->int_direct_rows) {
        int_rows(isa, j, q, c);
    } else {
        for (int64_t r = c.r0; r < c.r1; r += TILE_BLOCK)
            for (int64_t k0 = 0; k0 < j->k; k0 += TILE_K)
                for (int64_t p = c.p0; p < c.p1; p++) {
                    drive_pass s = { .r0 = r, .r1 = r + TILE_BLOCK < c.r1 ? r + TILE_BLOCK : c.r1, .k0 = k0, .p = p };
                    s.kc = k0 + TILE_K < j->k ? TILE_K : j->k - k0;
                    isa->unpack[j->w->layout](j->w, matmul_panel(j->w, j->expert, p), k0, s.kc, u);
                    int_pass(isa, j, q, u, s);
                }
    }
    if (j->scale != 1.0f)
        scale_cut(j, c);
}
