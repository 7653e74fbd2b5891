/* tests/support/snapshot_fix.h: makes the checksums of a snapshot file right again after its bytes were changed, as far
 * as its chunks can be followed, so that tests and the fuzzer reach what lies behind the checksums. */
#ifndef KVANT_TESTS_SNAPSHOT_FIX_H
#define KVANT_TESTS_SNAPSHOT_FIX_H

#include <string.h>
#include "base/file/crc32c.h"

static inline void snapshot_fix(uint8_t *data, size_t n)
{
    enum { HEADER = 128, CHUNK = 24, END = 9 };
    uint32_t all = 0, crc;

    if (n < HEADER)
        return;
    crc = crc32c(0, data, HEADER - 4);
    memcpy(data + HEADER - 4, &crc, 4);
    for (size_t at = HEADER; n - at >= CHUNK;) {
        uint64_t bytes;
        uint32_t type;
        memcpy(&type, data + at, 4);
        memcpy(&bytes, data + at + 8, 8);
        if (bytes > n - at - CHUNK)
            return;
        if (type == END && bytes == 4)
            memcpy(data + at + CHUNK, &all, 4);
        crc = crc32c(crc32c(0, data + at, 16), data + at + CHUNK, (size_t)bytes);
        memcpy(data + at + 16, &crc, 4);
        all = crc32c(all, &crc, 4);
        at += CHUNK + (size_t)bytes;
    }
}

#endif
