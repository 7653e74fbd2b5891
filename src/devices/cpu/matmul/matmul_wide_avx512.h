/* matmul_wide_avx512.h: the f32 tiles of matmul in 16-lane vectors, shared by the AVX-512 rungs (matmul_avx512.c and
 * matmul_avx512vnni.c).  Included once by each. */
#include "base/simd/vf_avx512.h"

#define SUBS(M, r, p) M(r, p, 0)

/* BF16 pairs: lane i holds W[k] in the low and W[k+1] in the high half of output i. */
typedef __m512i vpair;

static inline vpair vpair_load(const uint8_t *p)
{
    return load512(p);
}

static inline vf vpair_lo(vpair v)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
}

static inline vf vpair_hi(vpair v)
{
    return _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32((int)0xffff0000u)));
}

#include "devices/cpu/matmul/matmul_body.h"

/* Few rows: at least 8 independent chains hide the FMA latency (4 cycles x 2 per cycle). */
#define TILES_512(M, form)                                                                                       \
    M(form, BY_COLS, 1, 1) M(form, BY_COLS, 1, 2) M(form, BY_COLS, 1, 3) M(form, BY_COLS, 1, 4)                  \
    M(form, BY_COLS, 1, 5) M(form, BY_COLS, 1, 6) M(form, BY_COLS, 1, 7) M(form, BY_COLS, 1, 8)                  \
    M(form, BY_COLS, 2, 1) M(form, BY_COLS, 2, 2) M(form, BY_COLS, 2, 3) M(form, BY_COLS, 2, 4)                  \
    M(form, BY_COLS, 3, 1) M(form, BY_COLS, 3, 2) M(form, BY_COLS, 3, 3) M(form, BY_COLS, 3, 4)                  \
    M(form, BY_COLS, 4, 1) M(form, BY_COLS, 4, 2) M(form, BY_COLS, 4, 3) M(form, BY_COLS, 4, 4)                  \
    M(form, BY_ROWS, 5, 1) M(form, BY_ROWS, 5, 2) M(form, BY_ROWS, 6, 1) M(form, BY_ROWS, 6, 2)                  \
    M(form, BY_ROWS, 7, 1) M(form, BY_ROWS, 7, 2) M(form, BY_ROWS, 8, 1) M(form, BY_ROWS, 8, 2)
#define TILES_512_BIG(M, form)                                                                                   \
    M(form, BY_ROWS, 9, 1) M(form, BY_ROWS, 9, 2) M(form, BY_ROWS, 10, 1) M(form, BY_ROWS, 10, 2)                \
    M(form, BY_ROWS, 11, 1) M(form, BY_ROWS, 11, 2) M(form, BY_ROWS, 12, 1) M(form, BY_ROWS, 12, 2)              \
    M(form, BY_ROWS, 13, 1) M(form, BY_ROWS, 13, 2) M(form, BY_ROWS, 14, 1) M(form, BY_ROWS, 14, 2)

static void expand_f16(const matmul_packed *h, const uint8_t *panel, int64_t k0, int64_t k, float *dst)
{
    const uint16_t *src = (const uint16_t *)(const void *)panel + k0 * PANEL;

    (void)h;
    for (int64_t i = 0; i < k; i++)
        vf_store(dst + i * PANEL, vf_load_f16(src + i * PANEL));
}

static void expand_bf16(const matmul_packed *h, const uint8_t *panel, int64_t k0, int64_t k, float *dst)
{
    const uint8_t *src = panel + k0 * PANEL * 2;

    (void)h;
    for (int64_t i = 0; i < k; i += 2, src += PANEL * 4) {
        vpair v = vpair_load(src);
        vf_store(dst + i * PANEL, vpair_lo(v));
        if (i + 1 < k)
            vf_store(dst + (i + 1) * PANEL, vpair_hi(v));
    }
}

/* The f32 half of a matmul_isa.  Rows 9 to 14 exist for f32 only: direct_rows keeps 16-bit weights below. */
#define ISA_512_F32                                                                                              \
    .rows = 14, .panels = { 0, 8, 4, 4, 4, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2 }, .direct_rows = 8,                     \
    .tile = { TILES_512(TILE_ENTRY, F32) TILES_512_BIG(TILE_ENTRY, F32) TILES_512(TILE_ENTRY, F16)               \
              TILES_512(TILE_ENTRY, BF16) },                                                                     \
    .expand = { [LAYOUT_F16] = expand_f16, [LAYOUT_BF16] = expand_bf16 }, .expand_int = matmul_expand_avx2
