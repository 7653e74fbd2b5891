/* wide.h: f32, f16 and bf16 (CARD_ORDER) over vf_<isa>.h: score and axpy at FMA speed, converted in registers; a
 * conversion is shared by the queries of a tile.  encode and decode_acc go element by element, so they equal the
 * reference bit for bit. */
#include "formats/simd/simd_card.h"
#include "formats/simd/simd_f32.h"

#define WIDE_BYTES CARD_BYTES_OF_RECORD
#define WIDE_LOAD CARD_OF(vf_load)
#include "formats/simd/simd_wide.h"

#if CARD_BYTES_OF_RECORD == 4
/* Prefill and the block formats end here too, with decoded rows.  The other kernels are copies: the reference
 * serves. */
void VF_KERNEL(f32_score)(const void *param, const float *qp, size_t ldq, int r, const uint8_t *rows, size_t stride,
                           int n, float *s, size_t lds, int d)
{
    wide_score(param, qp, ldq, r, rows, stride, n, s, lds, d);
}

void VF_KERNEL(f32_axpy)(const void *param, const float *w, size_t ldw, int r, const uint8_t *rows, size_t stride,
                          int n, float *acc, size_t lda, int d)
{
    wide_axpy(param, w, ldw, r, rows, stride, n, acc, lda, d);
}
#else
#if VF_LANES == 8
static void card_encode(const void *param, const float *x, uint8_t *row, int d, int encoder)
{
    int c = 0;
    (void)param;
    (void)encoder;
    for (; c + VF_LANES <= d; c += VF_LANES)
        CARD_OF(vf_store)(row + (size_t)c * WIDE_BYTES, vf_load(x + c));
    if (c < d) {
        uint8_t chunk[VF_LANES * WIDE_BYTES];
        CARD_OF(vf_store)(chunk, float_load_part(x + c, d - c));
        memcpy(row + (size_t)c * WIDE_BYTES, chunk, (size_t)(d - c) * WIDE_BYTES);
    }
}
#else
#define card_encode NULL                   /* that of AVX2 */
#endif

static void wide_decode_acc(const void *param, const uint8_t *rows, size_t stride, int n, float *out, int d)
{
    (void)param;
    for (int i = 0; i < n; i++, rows += stride, out += d) {
        int c = 0;
        for (; c + VF_LANES <= d; c += VF_LANES)
            vf_store(out + c, WIDE_LOAD(rows + (size_t)c * WIDE_BYTES));
        if (c < d) {
            float chunk[VF_LANES];
            vf_store(chunk, wide_load_part(rows + (size_t)c * WIDE_BYTES, d - c));
            memcpy(out + c, chunk, (size_t)(d - c) * sizeof *chunk);
        }
    }
}
#endif

const kvant_format_kernels CARD_KERNELS(CARD_NAME, VF_ISA) = {
#if CARD_BYTES_OF_RECORD != 4
    .encode = card_encode, .decode_acc = wide_decode_acc,
#endif
    .score = wide_score, .axpy = wide_axpy,
};
