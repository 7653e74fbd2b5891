/* detok.c: see detok.h.  Owns nothing: the state is the caller's. */
#include "text/detok.h"

#include <string.h>
#include "text/utf8.h"

enum { HELD_MAX = 3 }; /* a character has at most 4 bytes, so at most 3 wait for the last one */

static const uint8_t replacement[3] = { 0xEF, 0xBF, 0xBD };

static int state_ok(const kvant_detok *d)
{
    return d->n_pending >= 0 && d->n_pending <= HELD_MAX;
}

int detok_push(kvant_detok *d, const char *bytes, int n, char *out, int cap)
{
    if (!state_ok(d) || n < 0)
        return KVANT_EINVAL;
    const int64_t held = d->n_pending, total = held + n;
    int64_t i = 0;
    int w = 0;
    uint8_t window[4];

    while (i < total) {
        int m = total - i < 4 ? (int)(total - i) : 4;
        for (int j = 0; j < m; j++)
            window[j] = (uint8_t)(i + j < held ? d->pending[i + j] : bytes[i + j - held]);
        uint32_t cp;
        int k = utf8_decode(window, (size_t)m, &cp);
        if (k == 0)
            break; /* m < 4 here: these are the last bytes */
        int size = k > 0 ? k : (int)sizeof replacement;
        if (size >= cap - w)
            return KVANT_ENOSPC;
        memcpy(out + w, k > 0 ? window : replacement, (size_t)size);
        w += size;
        i += k > 0 ? k : -k;
    }
    if (w >= cap)
        return KVANT_ENOSPC;
    out[w] = 0;
    d->n_pending = (int)(total - i);
    memcpy(d->pending, window, (size_t)d->n_pending); /* what is left is what the last window held */
    return w;
}

int detok_flush(kvant_detok *d, char *out, int cap)
{
    if (!state_ok(d))
        return KVANT_EINVAL;
    int size = d->n_pending ? (int)sizeof replacement : 0;
    if (size >= cap)
        return KVANT_ENOSPC;
    memcpy(out, replacement, (size_t)size);
    out[size] = 0;
    d->n_pending = 0;
    return size;
}
