/* nibbles_avx512vnni.h: codes of 4 bits in the integer path: nibbles are indices of a byte table (vpermb), 64 at a
 * time. */
#include "formats/simd/simd_card.h"

static const uint8_t card_bytes8[16] = { CARD_BYTES8 };

#define INT_KEYS(row, stride, b, x) keys_nibbles16(card_codes(row, b), stride, card_bytes8, x)
#define INT_QUAD(row, stride, b, x) keys_nibbles4(card_codes(row, b), stride, card_bytes8, x)
#ifdef CARD_PAIRS
#define INT_VALUE(j) ((j) % 2 * 16 + (j) / 2)
#define INT_COLUMNS 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#else
#define INT_VALUE(j) (j)
#endif
