/* msgpack.c: see msgpack.h.  Numbers are big-endian behind a byte that says what comes. */
#include "server/events/msgpack.h"

#include <string.h>

/* `bytes` bytes of v behind the byte `type`. */
static void put(sbuf *b, int type, uint64_t v, int bytes)
{
    char out[9];

    out[0] = (char)type;
    for (int i = 0; i < bytes; i++)
        out[1 + i] = (char)(v >> 8 * (bytes - 1 - i));
    sbuf_put(b, out, (size_t)bytes + 1);
}

void msgpack_nil(sbuf *b)
{
    put(b, 0xC0, 0, 0);
}

void msgpack_uint(sbuf *b, uint64_t v)
{
    if (v < 0x80)
        put(b, (int)v, 0, 0);
    else if (v <= UINT8_MAX)
        put(b, 0xCC, v, 1);
    else if (v <= UINT16_MAX)
        put(b, 0xCD, v, 2);
    else if (v <= UINT32_MAX)
        put(b, 0xCE, v, 4);
    else
        put(b, 0xCF, v, 8);
}

void msgpack_double(sbuf *b, double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof bits);
    put(b, 0xCB, bits, 8);
}

void msgpack_str(sbuf *b, const char *s)
{
    const size_t n = strlen(s);

    if (n < 32)
        put(b, 0xA0 | (int)n, 0, 0);
    else if (n <= UINT8_MAX)
        put(b, 0xD9, n, 1);
    else
        put(b, 0xDA, n, 2);
    sbuf_put(b, s, n);
}

void msgpack_array(sbuf *b, uint32_t n)
{
    if (n < 16)
        put(b, 0x90 | (int)n, 0, 0);
    else if (n <= UINT16_MAX)
        put(b, 0xDC, n, 2);
    else
        put(b, 0xDD, n, 4);
}

void msgpack_map(sbuf *b, uint32_t n)
{
    put(b, 0x80 | (int)n, 0, 0);
}
