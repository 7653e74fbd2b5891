/* page_pairs.h: the rows of a page as bytes for the integer path of AVX2 and NEON: two values a load, from a table of
 * 512 << k pairs (4 to 16 KiB).  (AVX2's gathers take as long on Intel, and five times as long on Zen 3.) */
#include "formats/ptcq/page_record.h"

static const uint16_t page_pair[CARD_N << CARD_K] = { CARD_PAIRS8 };

/* 8 values, from k bytes of codes behind the byte before them. */
static inline void page_eight(uint64_t w, uint8_t *out)
{
#define PAGE_PAIR(p) memcpy(out + 2 * (p), &page_pair[w >> (CARD_K * (2 * (p) + 1) - 1) & ((CARD_N << CARD_K) - 1)], 2);
    PAGE_PAIR(0) PAGE_PAIR(1) PAGE_PAIR(2) PAGE_PAIR(3)
}

static inline uint64_t page_word(const uint8_t *p)
{
    uint64_t w;
    memcpy(&w, p, sizeof w);
    return w;
}

/* Row r of a page of 128 values.  Behind the codes of a page lie its scales: reads of 8 bytes end in them. */
static inline void page_row_bytes(const uint8_t *page, int r, uint8_t *out)
{
    const uint8_t *codes = page + r * 16 * CARD_K;

    page_eight(page_word(codes) << 8 | (uint64_t)page_before(CARD_K, page, r), out);
    for (int i = 1; i < PTCQ_GROUP / 8; i++)
        page_eight(page_word(codes + CARD_K * i - 1), out + 8 * i);
}

#if defined(__AVX2__)
static inline __m256i card_bytes(const uint8_t *row, int b)
{
    return load256(card_codes(row, b));
}

static inline __m256i card_signed(const uint8_t *row, int b)
{
    return _mm256_xor_si256(card_bytes(row, b), _mm256_set1_epi8(-128));
}
#else
static inline vb card_signed(const uint8_t *row, int b)
{
    const uint8_t *q = card_codes(row, b);
    const uint8x16_t flip = vdupq_n_u8(128);
    return (vb){ veorq_u8(vld1q_u8(q), flip), veorq_u8(vld1q_u8(q + 16), flip) };
}
#endif
