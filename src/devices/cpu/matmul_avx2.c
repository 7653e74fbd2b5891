/* matmul_avx2.c: matmul with 8-lane vectors: 6 x 16 tiles (12 accumulators, 2 weights, 1 broadcast of 16 registers). */
#include "devices/cpu/matmul_int.h"
#include "devices/cpu/matmul_kernels.h"
#include "devices/cpu/vec_avx2.h"

#define SUBS(M, r, p) M(r, p, 0) M(r, p, 1)

/* BF16 pairs: lane i holds W[k] in the low and W[k+1] in the high half of output i. */
typedef __m256i vpair;

static inline vpair vpair_load(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

static inline vf vpair_lo(vpair v)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
}

static inline vf vpair_hi(vpair v)
{
    return _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32((int)0xffff0000u)));
}

#include "devices/cpu/matmul_body.h"

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
        vf_store(dst + i, vf_load_half(src + i));
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

static const matmul_isa isa = {
    .rows = 6,
    .panels = { 0, 6, 3, 2, 1, 1, 1 },
    .direct_rows = 12,
    .tile = { TILES(TILE_ENTRY, F32) TILES(TILE_ENTRY, F16) TILES(TILE_ENTRY, BF16) },
    .expand = { [LAYOUT_F16] = expand_f16, [LAYOUT_BF16] = expand_bf16, [LAYOUT_Q8_0] = matmul_expand_avx2,
                [LAYOUT_Q4_0] = matmul_expand_avx2, [LAYOUT_Q4_K] = matmul_expand_avx2,
                [LAYOUT_Q6_K] = matmul_expand_avx2, [LAYOUT_MXFP4] = matmul_expand_avx2,
                [LAYOUT_NVFP4] = matmul_expand_avx2 },
    .quantise = matmul_quantise_avx2,
    .unpack = matmul_unpack_avx2,
    .int_row = matmul_int_row_avx2,
    .int_rows = 6,
    .int_direct_rows = 4,
    .int_tile = matmul_int_tile_avx2,
};

MATMUL_KERNELS(avx2)
