/* page_record.h: a page unpacked for the integer path (simd_int_<isa>.h), which reads rows of bytes: a record of 128
 * values is their bytes u, value = scale * CARD_STEP8 * (u - 128), then the fp16 scale of the page's row.  16 records
 * lie 144 bytes apart, so that their lines fall into different sets of L1. */
#include "formats/ptcq/ptcq.h"
#include "formats/simd/simd_card.h"

#undef CARD_BYTES_OF_RECORD                /* from here on it is that of an unpacked row */
#undef CARD_DIGITS
#define CARD_BYTES_OF_RECORD 144
#if defined(__AVX2__) && !defined(__AVX512VNNI__)
#define CARD_DIGITS 2                      /* vpmaddubsw takes 7 bits beside 8-bit queries, which ptcq4 would notice */
#else
#define CARD_DIGITS 1
#endif
#define CARD_STEP7 CARD_STEP8              /* the paths of 7 bits take all 8 */
#define CARD_OFFSET7 CARD_OFFSET8

enum { CARD_BLOCKS = CARD_VALUES / 32 };   /* of a record */

static inline const uint8_t *card_codes(const uint8_t *row, int b)
{
    return row + (size_t)(b / CARD_BLOCKS) * CARD_BYTES_OF_RECORD + b % CARD_BLOCKS * 32;
}

static inline const uint8_t *card_scale(const uint8_t *row, int b)
{
    return row + (size_t)(b / CARD_BLOCKS) * CARD_BYTES_OF_RECORD + CARD_VALUES;
}

/* The byte before the codes of row r: its upper 9 - k bits are the state there. */
static inline int page_before(int k, const uint8_t *page, int r)
{
    return (page[PTCQ_START_AT(k) + r] << (k - 1)) & 0xff;
}
