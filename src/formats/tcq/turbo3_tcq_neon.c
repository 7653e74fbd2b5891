/* turbo3_tcq_neon.c: 52 bytes per 128 values: [norm fp16][qs u8 x 49][pad] (see turbo3_tcq.c).  There are no gathers:
 * eight loads of the codebook a vector, which a load of two lanes at once would not shorten. */
#include "formats/simd_encode_neon.h"
#include "formats/tcq/turbo3_tcq_int_neon.h"
#include "formats/tcq/turbo3_tcq_simd.h"

/* 8 values from the 3 bytes (and a bit) at p */
static inline vf tcq_chunk(const uint8_t *p, vf norm)
{
    uint32_t w;
    memcpy(&w, p, sizeof w);
#define TCQ_VALUE(k) codebook[w >> (3 * (k)) & 511]
    float32x4_t lo = { TCQ_VALUE(0), TCQ_VALUE(1), TCQ_VALUE(2), TCQ_VALUE(3) };
    float32x4_t hi = { TCQ_VALUE(4), TCQ_VALUE(5), TCQ_VALUE(6), TCQ_VALUE(7) };
    return vf_mul((vf){ lo, hi }, norm);
}

static inline void tcq_decode32(const uint8_t *row, int b, vf *v)
{
    const uint8_t *group = row + (size_t)(b / 4) * 52, *qs = group + 2 + b % 4 * 12;
    vf norm = vf_splat_f16(group);
    v[0] = tcq_chunk(qs, norm);
    v[1] = tcq_chunk(qs + 3, norm);
    v[2] = tcq_chunk(qs + 6, norm);
    v[3] = tcq_chunk(qs + 9, norm);        /* of the last block: bytes 47 to 50, before the pad */
}

#define BLOCK_DECODE tcq_decode32
#include "formats/simd_blocks.h"

const kvant_format_kernels kvant_turbo3_tcq_kernels_neon = {
    .encode = tcq_encode, .prep_q = turbo_prep_q, .finish_out = turbo_finish_out, .decode_acc = blocks_decode_acc,
    .score = blocks_score, .axpy = blocks_axpy,
    INT_KERNELS,
};
