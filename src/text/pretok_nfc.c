/* pretok_nfc.c: Unicode's normalisation forms (C above all) of valid UTF-8.  Owns the segmentation and the canonical
 * ordering; the decompositions and compositions are utf8proc's tables.
 *
 * Why not utf8proc_NFC: it allocates outside of kvant's hook, and its ordering step is quadratic in a run of combining
 * marks (a megabyte of alternating marks would take minutes).  Here a run is sorted stably by combining class. */
#include "text/pretok.h"

#include <string.h>
#include <utf8proc.h>
#include "base/mem.h"
#include "text/utf8.h"

/* Characters that NFC leaves alone and that never join the character before them: a segment may end before them.
 * Only a shortcut for common text; what is not listed takes the full path.  Checked against utf8proc in
 * check_tokenizer.c. */
static int is_boundary(uint32_t c)
{
    return c < 0x300 || (c >= 0x400 && c <= 0x482) || (c >= 0x48A && c < 0x530) || (c >= 0x2010 && c <= 0x2027) ||
           (c >= 0x3041 && c <= 0x3096) || (c >= 0x30A1 && c <= 0x30FA) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0xAC00 && c <= 0xD7A3) || (c >= 0x1F300 && c <= 0x1F64F);
}

/* The other forms also change what NFC leaves alone. */
static int is_boundary_of(enum pretok_form form, uint32_t c)
{
    return form == PRETOK_NFC ? is_boundary(c) : c < 0x80 || (c >= 0x4E00 && c <= 0x9FFF);
}

void pretok_buf_free(pretok_buf *b)
{
    kvant_free(b->data);
    kvant_free(b->cps);
    memset(b, 0, sizeof *b);
}

static int grow(void **p, size_t *cap, size_t used, size_t more, size_t elem)
{
    size_t want, bytes;

    if (!size_add(used, more, &want))
        return KVANT_ENOMEM;
    if (want <= *cap)
        return KVANT_OK;
    if (want < 2 * *cap)
        want = 2 * *cap;
    if (want < 256)
        want = 256;
    if (!size_mul(want, elem, &bytes))
        return KVANT_ENOMEM;
    void *q = kvant_realloc(*p, used * elem, bytes);
    if (!q)
        return KVANT_ENOMEM;
    *p = q;
    *cap = want;
    return KVANT_OK;
}

static int put_bytes(pretok_buf *b, const uint8_t *s, size_t n)
{
    KVANT_TRY(grow((void **)&b->data, &b->cap, b->len, n, 1));
    if (n)
        memcpy(b->data + b->len, s, n);
    b->len += n;
    return KVANT_OK;
}

static int combining_class(int32_t cp)
{
    return utf8proc_get_property(cp)->combining_class;
}

static int decompose(pretok_buf *b, int options, const uint8_t *s, size_t n)
{
    enum { MOST = 18 }; /* longest decomposition in Unicode, compatibility ones included */

    b->n_cps = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        int ignored = 0, k = utf8_decode(s + i, n - i, &cp);
        KVANT_TRY(grow((void **)&b->cps, &b->cap_cps, b->n_cps, MOST, sizeof *b->cps));
        utf8proc_ssize_t m = utf8proc_decompose_char((int32_t)cp, b->cps + b->n_cps, MOST, options, &ignored);
        if (k <= 0 || m < 0 || m > MOST)
            return KVANT_EINTERNAL;
        b->n_cps += (size_t)m;
        i += (size_t)k;
    }
    return KVANT_OK;
}

/* Counting sort of a long run by class, stable; short runs by insertion. */
static int order_run(int32_t *run, size_t n)
{
    enum { SHORT = 32 };

    if (n <= SHORT) {
        for (size_t i = 1; i < n; i++)
            for (size_t j = i; j > 0 && combining_class(run[j - 1]) > combining_class(run[j]); j--) {
                int32_t t = run[j];
                run[j] = run[j - 1];
                run[j - 1] = t;
            }
        return KVANT_OK;
    }
    size_t start[257] = { 0 };
    int32_t *sorted = kvant_alloc(n * sizeof *sorted);
    if (!sorted)
        return KVANT_ENOMEM;
    for (size_t i = 0; i < n; i++)
        start[(combining_class(run[i]) & 0xFF) + 1]++;
    for (int c = 1; c <= 256; c++)
        start[c] += start[c - 1];
    for (size_t i = 0; i < n; i++)
        sorted[start[combining_class(run[i]) & 0xFF]++] = run[i];
    memcpy(run, sorted, n * sizeof *sorted);
    kvant_free(sorted);
    return KVANT_OK;
}

/* Canonical ordering: each run of characters with a class other than 0 is sorted. */
static int order(int32_t *cps, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t from = i;
        while (i < n && combining_class(cps[i]) != 0)
            i++;
        if (i - from > 1)
            KVANT_TRY(order_run(cps + from, i - from));
        if (i == from)
            i++;
    }
    return KVANT_OK;
}

static int put_segment(enum pretok_form form, pretok_buf *b, const uint8_t *s, size_t n)
{
    const int composes = form == PRETOK_NFC || form == PRETOK_NFKC;
    const int options = UTF8PROC_STABLE | (composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                        (form == PRETOK_NFKC || form == PRETOK_NFKD ? UTF8PROC_COMPAT : 0);

    KVANT_TRY(decompose(b, options, s, n));
    KVANT_TRY(order(b->cps, b->n_cps));
    utf8proc_ssize_t m = (utf8proc_ssize_t)b->n_cps;
    if (composes)
        m = utf8proc_normalize_utf32(b->cps, m, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (m < 0)
        return KVANT_EINTERNAL;
    for (utf8proc_ssize_t i = 0; i < m; i++) {
        uint8_t bytes[4];
        KVANT_TRY(put_bytes(b, bytes, (size_t)utf8_encode((uint32_t)b->cps[i], bytes)));
    }
    return KVANT_OK;
}

/* Segments begin at the boundary character before a character that is none, and end at the next boundary. */
static int to_form(enum pretok_form form, pretok_buf *b, const uint8_t *s, size_t len)
{
    size_t done = 0, before = 0, i = 0; /* before: start of the character before i */
    uint32_t cp = 0;

    b->len = 0;
    while (i < len) {
        size_t at = i;
        i += (size_t)utf8_decode(s + i, len - i, &cp);
        if (is_boundary_of(form, cp)) {
            before = at;
            continue;
        }
        size_t end = i;
        while (end < len) {
            int k = utf8_decode(s + end, len - end, &cp);
            if (is_boundary_of(form, cp))
                break;
            end += (size_t)k;
        }
        KVANT_TRY(put_bytes(b, s + done, before - done));
        KVANT_TRY(put_segment(form, b, s + before, end - before));
        done = before = i = end;
    }
    return put_bytes(b, s + done, len - done);
}

int pretok_to_form(enum pretok_form form, pretok_buf *b, const char *text, size_t len, const char **out,
                   size_t *out_len, kvant_diag *diag)
{
    const uint8_t *s = (const uint8_t *)text;
    size_t i = 0;
    uint32_t cp = 0;

    while (i < len) {
        int k = utf8_decode(s + i, len - i, &cp);
        if (!is_boundary_of(form, cp))
            break;
        i += (size_t)k;
    }
    if (i == len) {
        *out = text;
        *out_len = len;
        return KVANT_OK;
    }
    int err = to_form(form, b, s, len);
    if (err < 0)
        return kvant_fail(diag, err, "Unicode normalisation of %zu bytes: %s", len, kvant_error_text(err));
    *out = (const char *)b->data;
    *out_len = b->len;
    return KVANT_OK;
}

int pretok_to_nfc(pretok_buf *b, const char *text, size_t len, const char **out, size_t *out_len, kvant_diag *diag)
{
    return pretok_to_form(PRETOK_NFC, b, text, len, out, out_len, diag);
}
