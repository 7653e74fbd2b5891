/* put_stream.h: 32 codes of 5 to 7 bits, one to a byte, to their places. */
#ifndef KVANT_FORMATS_PUT_STREAM_H
#define KVANT_FORMATS_PUT_STREAM_H

#include <stdint.h>
#include <string.h>

/* code j at bits j * bits .. of the stream */
static inline void put_stream_bytes(uint8_t *qs, const uint8_t code[32], int bits)
{
    for (int g = 0; g < 4; g++) {          /* 8 codes are `bits` bytes */
        uint64_t w = 0;
        for (int j = 0; j < 8; j++)
            w |= (uint64_t)code[8 * g + j] << (bits * j);
        memcpy(qs + bits * g, &w, (size_t)bits);
    }
}

#endif
