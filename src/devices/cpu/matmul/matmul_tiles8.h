/* matmul_tiles8.h: the f32 tiles of matmul in 8-lane vectors, 6 x 16 (12 accumulators, 2 weights, 1 broadcast: 15 of
 * AVX2's 16 registers, 29 of NEON's 32).  Included once by matmul_avx2.c and matmul_f32_neon.h, after vf_<isa>.h
 * and the pairs of BF16: vpair_load, vpair_lo, vpair_hi. */
#define SUBS(M, r, p) M(r, p, 0) M(r, p, 1)

#include "devices/cpu/matmul/matmul_body.h"

/* One row needs 12 independent chains to hide the FMA latency (4 cycles x 2 per cycle = 8 would do in theory). */
#define TILES(M, form)                                                                                            \
    M(form, BY_COLS, 1, 1) M(form, BY_COLS, 1, 2) M(form, BY_COLS, 1, 3) M(form, BY_COLS, 1, 4)                   \
    M(form, BY_COLS, 1, 5) M(form, BY_COLS, 1, 6) M(form, BY_COLS, 2, 1) M(form, BY_COLS, 2, 2)                   \
    M(form, BY_COLS, 2, 3) M(form, BY_COLS, 3, 1) M(form, BY_COLS, 3, 2) M(form, BY_ROWS, 4, 1)                   \
    M(form, BY_ROWS, 5, 1) M(form, BY_ROWS, 6, 1)
TILES(TILE, F32)
TILES(TILE, F16)
TILES(TILE, BF16)

static void expand_f16(const matmul_packed *h, const uint8_t *panel, int64_t k0, int64_t k, float *dst)
{
    const uint16_t *src = (const uint16_t *)(const void *)panel + k0 * PANEL;

    (void)h;
    for (int64_t i = 0; i < k * PANEL; i += VF_LANES)
        vf_store(dst + i, vf_load_f16(src + i));
}

static void expand_bf16(const matmul_packed *h, const uint8_t *panel, int64_t k0, int64_t k, float *dst)
{
    const uint8_t *src = panel + k0 * PANEL * 2;

    (void)h;
    for (int64_t i = 0; i < k; i += 2, src += PANEL * 4)
        for (int s = 0; s < 2; s++) {
            vpair v = vpair_load(src + s * 32);
            vf_store(dst + i * PANEL + s * VF_LANES, vpair_lo(v));
            if (i + 1 < k)
                vf_store(dst + (i + 1) * PANEL + s * VF_LANES, vpair_hi(v));
        }
}

/* The f32 half of a matmul_isa; ints: f32 from the quantised layouts. */
#define ISA_8_F32(ints)                                                                                           \
    .rows = 6, .panels = { 0, 6, 3, 2, 1, 1, 1 }, .direct_rows = 12,                                              \
    .tile = { TILES(TILE_ENTRY, F32) TILES(TILE_ENTRY, F16) TILES(TILE_ENTRY, BF16) },                            \
    .expand = { [LAYOUT_F16] = expand_f16, [LAYOUT_BF16] = expand_bf16 }, .expand_int = ints
