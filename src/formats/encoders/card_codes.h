/* card_codes.h: the rule and the place of a card's codes, for the encoders of all spaces; over simd_encode_<isa>.h. */
#include "formats/simd/simd_card.h"

#ifdef CARD_N
static const float book_levels[CARD_N] = { CARD_LEVELS };
static const search_book card_book = { .c = book_levels, .n = CARD_N };

/* The codes of 8 normalised values.  At a boundary: the upper code, or where the card names no boundaries the lower
 * one. */
static inline vi card_code(vf y)
{
#ifdef CARD_MIDPOINTS
    static const float midpoints[CARD_N - 1] = { CARD_MIDPOINTS };
    return count_from(y, midpoints, CARD_N - 1);
#else
    static const float limits[CARD_N - 1] = { CARD_LIMITS };
    return count_above(y, limits, CARD_N - 1);
#endif
}

static inline vf card_level(vi code)
{
#if CARD_N == 16
    return vf_lookup16(vf_load(book_levels), vf_load(book_levels + 8), code);
#else
    return vf_lookup8(vf_load(book_levels), code);
#endif
}
#endif

/* Block b of a row: its record's scale, and its codes (8 per vector). */
static inline void card_put(uint8_t *row, int b, uint16_t scale, const vi *code)
{
    memcpy(row + (card_scale(row, b) - row), &scale, sizeof scale);
    CARD_OF(put)(row + (card_codes(row, b) - row), vb_pack(code));
}
