/* tokenizer_charsmap.c: the normalisation that a unigram file brings: tokenizer.ggml.precompiled_charsmap.
 *
 *   u32 LE     bytes of the double array, a multiple of 4
 *   u32 LE []  the double array: a trie over the texts that are changed
 *   char []    what they become, each with a NUL after it
 *
 * A unit of the array (Darts-clone): bits 0-7 its byte, 8 a text ends here, 9 the offset is shifted by 8, 10-31 the
 * offset; a unit with bit 31 is a value instead, in bits 0-30: a place in the texts.  From unit `at` a byte b leads to
 * unit at ^ offset ^ b if that has byte b; the value of a text that ends there is at its own offset.
 * The file may be hostile: every step is checked, and no walk is longer than MAX_KEY, whatever circles there are. */
#include <string.h>
#include "base/mem.h"
#include "text/tokenizer_unigram.h"

enum { MAX_MAP = 16 << 20, MAX_KEY = 64 }; /* those in use have 300 KB and texts of at most 18 bytes */

#define KEY "tokenizer.ggml.precompiled_charsmap"

static uint32_t read_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static int texts_fit(const char *s, size_t n)
{
    for (size_t i = 0, from = 0; i < n; i++) {
        if (i - from > CHARSMAP_MAX_TEXT)
            return 0;
        if (!s[i])
            from = i + 1;
    }
    return n > 0 && !s[n - 1];
}

static int take(charsmap *m, const uint8_t *p, size_t n, kvant_diag *diag)
{
    const uint32_t array = n >= 4 ? read_u32(p) : 0;

    if (n < 4 || n > MAX_MAP || array % 4 || array == 0 || array > n - 4)
        return kvant_fail(diag, KVANT_EFORMAT,
                          KEY ": %zu bytes with an array of %u, want at most %d and 4 bytes more than the array has", n,
                          array, MAX_MAP);
    if (!texts_fit((const char *)p + 4 + array, n - 4 - array))
        return kvant_fail(diag, KVANT_EFORMAT,
                          KEY ": its texts (%zu bytes), want a NUL at the end and after at most %d", n - 4 - array,
                          CHARSMAP_MAX_TEXT);
    m->n_units = array / 4;
    m->n_texts = n - 4 - array;
    m->units = kvant_alloc(array);
    m->texts = kvant_alloc(m->n_texts);
    if (!m->units || !m->texts)
        return kvant_fail(diag, KVANT_ENOMEM, KEY ": out of memory");
    for (uint32_t i = 0; i < m->n_units; i++)
        m->units[i] = read_u32(p + 4 + 4 * (size_t)i);
    memcpy(m->texts, p + 4 + array, m->n_texts);
    return KVANT_OK;
}

int charsmap_read(charsmap *m, const gguf *g, kvant_diag *diag)
{
    const gguf_kv *kv = gguf_find(g, KEY);
    const uint8_t *p = NULL;
    int n = 0;

    if (!kv)
        return KVANT_OK;
    const int elem = kv->type == GGUF_ARRAY && kv->elem == GGUF_I8 ? GGUF_I8 : GGUF_U8;
    KVANT_TRY(gguf_raw_array(g, KEY, 1, elem, &p, &n, diag));
    return n ? take(m, p, (size_t)n, diag) : KVANT_OK;
}

static uint32_t offset(uint32_t unit)
{
    return unit >> 10 << ((unit & 0x200) >> 6);
}

size_t charsmap_find(const charsmap *m, const char *s, size_t n, const char **text)
{
    uint32_t at = m->n_units ? offset(m->units[0]) : 0;
    size_t found = 0;

    for (size_t i = 0; m->n_units && i < n && i < MAX_KEY; i++) {
        at ^= (uint8_t)s[i];
        if (at >= m->n_units || (m->units[at] & 0x800000FF) != (uint8_t)s[i])
            break;
        const uint32_t unit = m->units[at];
        at ^= offset(unit);
        if (!(unit & 0x100))
            continue;
        const uint32_t value = at < m->n_units ? m->units[at] & 0x7FFFFFFF : UINT32_MAX;
        if (value >= m->n_texts)
            break;
        *text = m->texts + value;
        found = i + 1;
    }
    return found;
}
