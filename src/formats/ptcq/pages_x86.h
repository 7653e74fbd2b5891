/* pages_x86.h: pages of trellis codes: a value's state is the nine bits of a row's stream that end with its symbol.
 * Sixteen values lie in 2k bytes and the byte before them; each lane takes the two bytes that hold its window. */
#include "formats/ptcq/page_row.h"

static const float card_levels[CARD_N] = { CARD_LEVELS };

/* Window v of 16: k (v + 1) - 1 bits behind the byte before the codes. */
#define PAGE_BIT(v) (CARD_K * ((v) + 1) - 1)
#define PAGE_BYTES(v) (char)(PAGE_BIT(v) / 8), (char)(PAGE_BIT(v) / 8 + 1), -1, -1
#define PAGE_FOUR(v) PAGE_BYTES(v), PAGE_BYTES((v) + 1), PAGE_BYTES((v) + 2), PAGE_BYTES((v) + 3)
#define PAGE_DOWN(v) PAGE_BIT(v) % 8

static const int8_t page_window[64] = { PAGE_FOUR(0), PAGE_FOUR(4), PAGE_FOUR(8), PAGE_FOUR(12) };
static const int32_t page_shift[16] = {
    PAGE_DOWN(0), PAGE_DOWN(1), PAGE_DOWN(2),  PAGE_DOWN(3),  PAGE_DOWN(4),  PAGE_DOWN(5),  PAGE_DOWN(6),  PAGE_DOWN(7),
    PAGE_DOWN(8), PAGE_DOWN(9), PAGE_DOWN(10), PAGE_DOWN(11), PAGE_DOWN(12), PAGE_DOWN(13), PAGE_DOWN(14), PAGE_DOWN(15)
};

/* 15 bytes of codes behind the byte before them.  Behind the codes of a page lie its scales. */
static inline __m128i page_codes(const uint8_t *codes, int before)
{
    const __m128i x = load128(codes);
    return _mm_insert_epi8(_mm_slli_si128(x, 1), before, 0);
}

/* Values VF_LANES i .. of the 16 whose codes are x; register j of the block. */
static inline vf page_values(__m128i x, int i)
{
#if VF_LANES == 16
    const __m512i w = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(x), load512(page_window));
    const __m512i down = _mm512_srlv_epi32(w, load512(page_shift));
    const __m512i state = _mm512_and_si512(down, _mm512_set1_epi32(511));
    (void)i;
    return _mm512_i32gather_ps(state, card_levels, 4);
#else
    const __m256i window = load256(page_window + 32 * i);
    const __m256i shift = load256(page_shift + 8 * i);
    const __m256i w = _mm256_srlv_epi32(_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(x), window), shift);
    return _mm256_i32gather_ps(card_levels, _mm256_and_si256(w, _mm256_set1_epi32(511)), 4);
#endif
}

static inline void card_decode32(const uint8_t *row, int b, vf *v)
{
    const page_block p = page_block_of(CARD_K, row, b);
    const vf scale = vf_splat_f16(p.scale);
    const __m128i x[2] = { page_codes(p.codes, p.before), page_codes(p.codes + 2 * CARD_K, p.codes[2 * CARD_K - 1]) };
    enum { PER = 16 / VF_LANES };              /* registers of 16 values */
#define PAGE_PUT(i) \
    v[i] = vf_add(vf_mul(page_values(x[(i) / PER], (i) % PER), scale), vf_load(p.mean + VF_LANES * (i)));
    VF_BLOCK(PAGE_PUT)
}
