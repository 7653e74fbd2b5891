/* textout.c: see textout.h.  A stop string begins with the first byte of a character, so what is held back always
 * begins at a character too. */
#include "server/textout.h"

#include <string.h>
#include "base/error.h"
#include "base/mem.h"

enum { TOKEN_BYTES = 4096, TOKEN_OUT = 3 * TOKEN_BYTES + 16 };

void textout_free(textout *t)
{
    sbuf_free(&t->held);
}

/* Place of the first complete stop string in s[n], or -1.  *which: its index, from 1. */
static long find_stop(const char *s, size_t n, const text_stops *stops, int *which)
{
    long first = -1;

    for (int i = 0; i < stops->n; i++) {
        const char *hit = memmem(s, n, stops->text[i], (size_t)stops->len[i]);
        if (hit && (first < 0 || hit - s < first)) {
            first = hit - s;
            *which = i + 1;
        }
    }
    return first;
}

/* Length of the longest end of s[n] that a stop string begins with. */
static size_t held_length(const char *s, size_t n, const text_stops *stops)
{
    size_t most = 0;

    for (int i = 0; i < stops->n; i++) {
        size_t k = (size_t)stops->len[i] - 1;
        for (k = k < n ? k : n; k > most; k--)
            if (memcmp(s + n - k, stops->text[i], k) == 0) {
                most = k;
                break;
            }
    }
    return most;
}

int textout_text(textout *t, const char *s, size_t n, const text_stops *stops, sbuf *out)
{
    if (t->stopped)
        return 1;
    if (stops->n == 0) {
        sbuf_put(out, s, n);
        return out->error ? KVANT_ENOMEM : 0;
    }
    sbuf_put(&t->held, s, n);
    if (t->held.error)
        return KVANT_ENOMEM;
    if (t->held.n == 0)
        return 0;
    int which = 0;
    long at = find_stop(t->held.s, t->held.n, stops, &which);
    size_t safe = at >= 0 ? (size_t)at : t->held.n - held_length(t->held.s, t->held.n, stops);
    sbuf_put(out, t->held.s, safe);
    sbuf_drop(&t->held, at >= 0 ? t->held.n : safe);
    t->stopped = which;
    return out->error ? KVANT_ENOMEM : at >= 0;
}

int textout_token(textout *t, const kvant_model *m, int32_t token, const text_stops *stops, sbuf *out)
{
    char small[256], *big = NULL;
    int n = kvant_detok_push(m, &t->detok, token, small, sizeof small);

    if (n == KVANT_ENOSPC) {
        big = kvant_alloc(TOKEN_OUT);
        if (!big)
            return KVANT_ENOMEM;
        n = kvant_detok_push(m, &t->detok, token, big, TOKEN_OUT);
    }
    int result = n < 0 ? n : textout_text(t, big ? big : small, (size_t)n, stops, out);
    kvant_free(big);
    return result;
}

int textout_detok(textout *t, const kvant_model *m, int32_t token, sbuf *out)
{
    static const text_stops none;
    textout plain = { .detok = t->detok };
    const int code = textout_token(&plain, m, token, &none, out);

    t->detok = plain.detok;
    return code;
}

int textout_end(textout *t, sbuf *out)
{
    char last[16];
    int n = kvant_detok_flush(&t->detok, last, sizeof last);

    if (t->stopped)
        return KVANT_OK;
    if (t->held.n)
        sbuf_put(out, t->held.s, t->held.n);
    sbuf_drop(&t->held, t->held.n);
    if (n > 0)
        sbuf_put(out, last, (size_t)n);
    return out->error ? KVANT_ENOMEM : KVANT_OK;
}
