/* matmul_op.c: the stages of the matmul op for any ISA table (matmul_drive.h).
 *     stage 0   quantise the activations into shared scratch (integer form with many rows only)
 *     stage 1   the product, each part its own cut
 * With few rows every part quantises them itself in stage 1, which is cheaper than meeting at a barrier. */
#include "devices/cpu/matmul/matmul_drive.h"
#include "ops/op_util.h"

extern const kvant_cpu_kernel kvant_matmul_ref;

/* Integer form wanted (whether the ISA has it is the table's business; the space is reserved anyway). */
static int wants_int(const kvant_weight *w, int compute)
{
    return compute == KVANT_COMPUTE_AUTO && w->type->block > 1;
}

int matmul_uses_int(const matmul_isa *isa, const kvant_weight *w, int compute)
{
    return wants_int(w, compute) && isa->unpack && isa->unpack[((const matmul_packed *)w->packed)->layout] != NULL;
}

size_t matmul_tile_scratch(void)
{
    return align64(sizeof(matmul_unpacked) > EXPAND_BYTES ? sizeof(matmul_unpacked) : EXPAND_BYTES);
}

size_t matmul_shared_bytes(const void *args)
{
    const kvant_matmul_args *a = args;

    return wants_int(a->w, a->compute) && a->m > XQ_LOCAL_ROWS ? matmul_xq_bytes(a->m, a->w->n_in) : 0;
}

/* Tile scratch, then the rows that the part quantises itself; or what the reference needs for an unpacked weight. */
size_t matmul_local_bytes(const void *args)
{
    const kvant_matmul_args *a = args;
    size_t tile = matmul_tile_scratch(), ref;

    if (!a->w->packed) {
        ref = kvant_matmul_ref.local_bytes(args);
        return ref > tile ? ref : tile;
    }
    if (wants_int(a->w, a->compute) && a->m <= XQ_LOCAL_ROWS)
        tile += matmul_xq_bytes(a->m, a->w->n_in);
    return tile;
}

int matmul_first_stage(const void *args)
{
    return matmul_shared_bytes(args) == 0;
}

void matmul_quantise(const matmul_isa *isa, const kvant_matmul_args *a, int part, int parts, const kvant_work *work)
{
    int64_t lo, hi;

    if (!a->w->packed || matmul_first_stage(a) || !matmul_uses_int(isa, a->w, a->compute))
        return;
    matmul_xq q = matmul_xq_at(work->shared, a->m, a->w->n_in);
    part_range(a->m, part, parts, &lo, &hi);
    for (int64_t r = lo; r < hi; r++)
        isa->quantise(a->x + r * a->ldx, &q, r);
}

void matmul_run(const matmul_isa *isa, const kvant_matmul_args *a, int part, int parts, const kvant_work *work)
{
    const matmul_packed *w = a->w->packed;
    matmul_job j = { w, 0, a->m, a->w->n_out, a->w->n_in, a->x, a->ldx, a->y, a->ldy, 1.0f, NULL };

    if (a->m <= 0)
        return;
    if (!w) {                        /* not loaded through the device: file layout, which the reference reads */
        kvant_matmul_ref.fn[0](a, part, parts, work);
        return;
    }
    j.scale = a->w->scale ? a->w->scale[0] : 1.0f;
    if (!matmul_uses_int(isa, a->w, a->compute)) {
        matmul_f32(isa, &j, matmul_split(a->m, w->panels, isa->rows, part, parts), work->local);
        return;
    }
    matmul_cut c = matmul_split(a->m, w->panels, isa->int_rows, part, parts);
    if (!matmul_first_stage(a)) {
        matmul_xq q = matmul_xq_at(work->shared, a->m, j.k);
        matmul_int(isa, &j, &q, c, work->local);
    } else if (c.r1 > c.r0 && c.p1 > c.p0) {
        matmul_xq q = matmul_xq_at((uint8_t *)work->local + matmul_tile_scratch(), a->m, j.k);
        for (int64_t r = c.r0; r < c.r1; r++)
            isa->quantise(a->x + r * a->ldx, &q, r);
        matmul_int(isa, &j, &q, c, work->local);
    }
}
