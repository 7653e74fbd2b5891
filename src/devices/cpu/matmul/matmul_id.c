/* matmul_id.c: the stages of matmul_id (expert weights) for any ISA table.
 * One token: one stage, each row is a product of its own.
 * Several (prompts, steps of several sequences, drafts):
 *     stage 0   part 0 sorts the rows by expert, stable, so the order depends on the ids alone
 *     stage 1   activations are gathered (and quantised) in that order
 *     stage 2   one product per expert that has rows, rows scattered to y
 * Either way a part takes panels that follow one another over the rows, or the experts, as if they were one matrix: it
 * reads one stretch of memory, has few rows to quantise, and no part waits where the panels of one expert cannot be
 * shared out evenly.  A row's result depends on nothing but its own x and its expert. */
#include <string.h>
#include "devices/cpu/matmul/matmul_drive.h"
#include "ops/op_util.h"

enum {
    ID_PANEL_ROWS = 8,          /* reading a panel takes as long as so many rows of it: an estimate, 12 GB/s a core */
    ID_LEAST_PANELS = 4,        /* of each part, or the rows of an expert are shared out too */
};

extern const kvant_cpu_kernel kvant_matmul_id_ref;

static int64_t row_count(const kvant_matmul_id_args *a)
{
    return (int64_t)a->n * a->k;
}

/* A token's experts are all different; those of several tokens are read once each when their rows are sorted. */
static int is_few(const kvant_matmul_id_args *a)
{
    return a->n <= 1;
}

/* Shared scratch: first row of each expert [n_expert + 1], rows in sorted order, activations in that order. */
typedef struct id_scratch {
    int32_t *first, *order;
    void *x;
} id_scratch;

static size_t id_lists_bytes(const kvant_matmul_id_args *a)
{
    return align64(((size_t)a->w->n_expert + 1 + (size_t)row_count(a)) * sizeof(int32_t));
}

static id_scratch id_scratch_at(const kvant_matmul_id_args *a, void *base)
{
    id_scratch s = { base, (int32_t *)base + a->w->n_expert + 1, (uint8_t *)base + id_lists_bytes(a) };

    return s;
}

size_t matmul_id_shared_bytes(const void *args)
{
    const kvant_matmul_id_args *a = args;
    size_t rows = (size_t)row_count(a), x = rows * (size_t)a->w->n_in * sizeof(float);
    size_t xq = a->w->n_in % 32 ? 0 : matmul_xq_bytes(row_count(a), a->w->n_in);

    if (!a->w->packed || is_few(a))
        return 0;
    return id_lists_bytes(a) + (x > xq ? x : xq);
}

size_t matmul_id_local_bytes(const void *args)
{
    const kvant_matmul_id_args *a = args;
    size_t few = matmul_tile_scratch() + (a->w->n_in % 32 ? 0 : matmul_xq_bytes(1, a->w->n_in));
    size_t ref = a->w->packed ? 0 : kvant_matmul_id_ref.local_bytes(args);

    return ref > few ? ref : few;
}

int matmul_id_first_stage(const void *args)
{
    const kvant_matmul_id_args *a = args;

    return is_few(a) || !a->w->packed ? 2 : 0;
}

void matmul_id_group(const matmul_isa *isa, const kvant_matmul_id_args *a, int part, int parts, const kvant_work *work)
{
    (void)isa, (void)parts;
    if (part != 0 || matmul_id_first_stage(a) > 0)
        return;
    id_scratch s = id_scratch_at(a, work->shared);
    int32_t rows = (int32_t)row_count(a), at = 0;
    memset(s.first, 0, ((size_t)a->w->n_expert + 1) * sizeof *s.first);
    for (int32_t i = 0; i < rows; i++)
        s.first[a->ids[i]]++;
    for (int e = 0; e <= a->w->n_expert; e++) {             /* counts to starts */
        int32_t count = s.first[e];
        s.first[e] = at;
        at += count;
    }
    for (int32_t i = 0; i < rows; i++)                      /* leaves each start at the next expert's */
        s.order[s.first[a->ids[i]]++] = i;
    for (int e = a->w->n_expert; e > 0; e--)
        s.first[e] = s.first[e - 1];
    s.first[0] = 0;
}

static const float *x_of(const kvant_matmul_id_args *a, int64_t row)
{
    return a->x + row / a->x_div * a->ldx;
}

void matmul_id_gather(const matmul_isa *isa, const kvant_matmul_id_args *a, int part, int parts, const kvant_work *work)
{
    int64_t lo, hi, k = a->w->n_in;

    if (matmul_id_first_stage(a) > 0)
        return;
    id_scratch s = id_scratch_at(a, work->shared);
    int integer = matmul_uses_int(isa, a->w, a->compute);
    matmul_xq q = matmul_xq_at(s.x, row_count(a), k);
    part_range(row_count(a), part, parts, &lo, &hi);
    for (int64_t r = lo; r < hi; r++) {
        if (integer)
            isa->quantise(x_of(a, s.order[r]), &q, r);
        else
            memcpy((float *)s.x + r * k, x_of(a, s.order[r]), (size_t)k * sizeof(float));
    }
}

static matmul_job job_of(const kvant_matmul_id_args *a, int expert)
{
    matmul_job j = { .w = a->w->packed,
                     .expert = expert,
                     .m = 1,
                     .n_out = a->w->n_out,
                     .k = a->w->n_in,
                     .ldx = a->w->n_in,
                     .y = a->y,
                     .ldy = a->w->n_out,
                     .scale = 1.0f };

    if (a->w->scale)
        j.scale = a->w->scale[a->w->n_scale > 1 ? expert : 0];
    return j;
}

/* Panels [p0, p1) of one row; x_before: what the part's own room holds quantised. */
static void run_row(const matmul_isa *isa, const kvant_matmul_id_args *a, int64_t r, matmul_cut c,
                    const float **x_before, const kvant_work *work)
{
    matmul_job j = job_of(a, a->ids[r]);

    j.y = a->y + r * j.ldy;
    j.x = x_of(a, r);
    if (!matmul_uses_int(isa, a->w, a->compute)) {
        matmul_f32(isa, &j, c, work->local);
        return;
    }
    matmul_xq q = matmul_xq_at((uint8_t *)work->local + matmul_tile_scratch(), 1, j.k);
    if (j.x != *x_before)
        isa->quantise(j.x, &q, 0);
    *x_before = j.x;
    matmul_int(isa, &j, &q, c, work->local);
}

static void run_few(const matmul_isa *isa, const kvant_matmul_id_args *a, int part, int parts, const kvant_work *work)
{
    const int64_t panels = ((const matmul_packed *)a->w->packed)->panels;
    const float *x = NULL;
    int64_t at, end;

    part_range(row_count(a) * panels, part, parts, &at, &end);
    while (at < end) {
        matmul_cut c = { 0, 1, at % panels, at % panels + end - at };
        c.p1 = c.p1 < panels ? c.p1 : panels;
        run_row(isa, a, at / panels, c, &x, work);
        at += c.p1 - c.p0;
    }
}

/* Rows q0 .. of a block of quantised rows. */
static matmul_xq xq_from(matmul_xq q, int64_t row)
{
    q.q8 += row * q.k;
    q.u8 += row * q.k;
    q.q16 += row * q.k;
    q.d += row * (q.k / 32);
    q.s += row * (q.k / 32);
    q.s16 += row * (q.k / 16);
    q.sum += row * (q.k / 16);
    return q;
}

/* Returns the cost of a panel of an expert with m rows. */
static int64_t panel_cost(int64_t m)
{
    return m > 0 ? m + ID_PANEL_ROWS : 0;
}

static int64_t clamp(int64_t v, int64_t most)
{
    return v < 0 ? 0 : v > most ? most : v;
}

/* Walks the experts for one part: its range of the cost of all panels, or of none (cost 0: rows are shared out too). */
typedef struct id_walk {
    int64_t lo, hi, before;
} id_walk;

static id_walk walk_begin(const kvant_matmul_id_args *a, const id_scratch *s, int64_t panels, int part, int parts)
{
    id_walk w = { 0, 0, 0 };
    int64_t cost = 0, filled = 0;

    for (int e = 0; e < a->w->n_expert; e++) {
        cost += panel_cost(s->first[e + 1] - s->first[e]);
        filled += s->first[e + 1] > s->first[e];
    }
    if (filled * panels >= (int64_t)ID_LEAST_PANELS * parts)
        part_range(cost * panels, part, parts, &w.lo, &w.hi);
    else
        w.hi = -1;
    return w;
}

/* The part's share of the next expert, which has m rows. */
static matmul_cut walk_next(id_walk *w, int64_t m, int64_t panels, int tile, int part, int parts)
{
    const int64_t cost = panel_cost(m), lo = w->lo - w->before, hi = w->hi - w->before;

    if (w->hi < 0)
        return matmul_split(m, panels, tile, part, parts);
    w->before += cost * panels;
    return (matmul_cut){ 0, m, clamp((lo + cost - 1) / cost, panels), clamp((hi + cost - 1) / cost, panels) };
}

static void run_experts(const matmul_isa *isa, const kvant_matmul_id_args *a, int part, int parts,
                        const kvant_work *work)
{
    id_scratch s = id_scratch_at(a, work->shared);
    int integer = matmul_uses_int(isa, a->w, a->compute);
    matmul_xq all = matmul_xq_at(s.x, row_count(a), a->w->n_in);
    const int64_t panels = ((const matmul_packed *)a->w->packed)->panels;
    id_walk walk = walk_begin(a, &s, panels, part, parts);

    for (int e = 0; e < a->w->n_expert; e++) {
        matmul_job j = job_of(a, e);
        j.m = s.first[e + 1] - s.first[e];
        j.to = s.order + s.first[e];
        j.x = (const float *)s.x + s.first[e] * j.k;
        if (j.m == 0)
            continue;
        matmul_cut c = walk_next(&walk, j.m, panels, integer ? isa->int_rows : isa->rows, part, parts);
        if (c.p0 >= c.p1)
            continue;
        matmul_xq q = xq_from(all, s.first[e]);
        if (integer)
            matmul_int(isa, &j, &q, c, work->local);
        else
            matmul_f32(isa, &j, c, work->local);
    }
}

void matmul_id_run(const matmul_isa *isa, const kvant_matmul_id_args *a, int part, int parts, const kvant_work *work)
{
    if (row_count(a) <= 0)
        return;
    if (!a->w->packed)
        kvant_matmul_id_ref.fn[0](a, part, parts, work);
    else if (is_few(a))
        run_few(isa, a, part, parts, work);
    else
        run_experts(isa, a, part, parts, work);
}
