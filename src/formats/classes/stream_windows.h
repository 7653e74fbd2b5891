/* stream_windows.h: codes of CARD_BITS (5 to 7) bits in a stream, 16 at a time from 16 loaded bytes: code i lies in
 * a window of two bytes, `window` of them, from bit i * CARD_BITS % 8 on.  The second 16 codes are loaded so that
 * the last byte loaded is their last one. */
#ifndef KVANT_FORMATS_STREAM_WINDOWS_H
#define KVANT_FORMATS_STREAM_WINDOWS_H

#include <stdint.h>

enum { STREAM_HALF = 2 * CARD_BITS, STREAM_LATE = 16 - STREAM_HALF };

#define STREAM_LIST16(M, x) \
    M(x, 0) M(x, 1) M(x, 2) M(x, 3) M(x, 4) M(x, 5) M(x, 6) M(x, 7) \
    M(x, 8) M(x, 9) M(x, 10) M(x, 11) M(x, 12) M(x, 13) M(x, 14) M(x, 15)
#define STREAM_WINDOW(from, i) (i) * CARD_BITS / 8 + (from), (i) * CARD_BITS / 8 + 1 + (from),
#define STREAM_BIT(sign, i) (sign) * ((i) * CARD_BITS % 8),
#define STREAM_UP(top, i) (int16_t)(1 << ((top) - CARD_BITS - (i) * CARD_BITS % 8)),

static const uint8_t stream_window[2][32] = {
    { STREAM_LIST16(STREAM_WINDOW, 0) },
    { STREAM_LIST16(STREAM_WINDOW, STREAM_LATE) },
};

#endif
