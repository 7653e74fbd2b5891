/* base/sha256.h: SHA-256.  Any thread. */
#ifndef KVANT_BASE_SHA256_H
#define KVANT_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

void sha256(const void *data, size_t n, unsigned char out[32]);

#endif
