/* base/file/crc32c.h: CRC-32C (Castagnoli), as in RFC 3720 B.4: finds damage, does not authenticate. */
#ifndef KVANT_BASE_CRC32C_H
#define KVANT_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* crc of bytes that follow those of `crc` (0 for the first ones).  Any thread. */
uint32_t crc32c(uint32_t crc, const void *data, size_t n);

#endif
