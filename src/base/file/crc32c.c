/* crc32c.c: see crc32c.h.  Eight tables, eight bytes per round ("slicing by 8", Kounavis and Berry 2005). */
#include "base/file/crc32c.h"

#include <pthread.h>
#include <string.h>

static const uint32_t crc_poly = 0x82F63B78u; /* reflected */

static uint32_t crc_tables[8][256]; /* written once */
static pthread_once_t crc_once = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++)
            c = c >> 1 ^ (crc_poly & (0u - (c & 1)));
        crc_tables[0][i] = c;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int t = 1; t < 8; t++)
            crc_tables[t][i] = crc_tables[t - 1][i] >> 8 ^ crc_tables[0][crc_tables[t - 1][i] & 255];
}

static uint32_t load_le(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

uint32_t crc32c(uint32_t crc, const void *data, size_t n)
{
    const uint8_t *p = data;
    uint32_t c = ~crc;

    pthread_once(&crc_once, make_tables);
    for (; n >= 8; n -= 8, p += 8) {
        const uint32_t a = c ^ load_le(p), b = load_le(p + 4);
        c = crc_tables[7][a & 255] ^ crc_tables[6][a >> 8 & 255] ^ crc_tables[5][a >> 16 & 255] ^
            crc_tables[4][a >> 24] ^ crc_tables[3][b & 255] ^ crc_tables[2][b >> 8 & 255] ^
            crc_tables[1][b >> 16 & 255] ^ crc_tables[0][b >> 24];
    }
    for (; n > 0; n--, p++)
        c = c >> 8 ^ crc_tables[0][(c ^ *p) & 255];
    return ~c;
}
