/* json_scan.c: see json_scan.h.  Owns the limits on depth and nodes, and jansson's memory; jansson owns the syntax.
 *
 * jansson's lexer does not look whether its buffer could grow: it goes on without the character, which is another text,
 * or ends the program.  So a parse has a reserve, large enough for the buffer of its longest token: when memory fails,
 * what may be that buffer (it doubles: powers of two) comes from there, all else fails, and the parser gives up at the
 * token's end. */
#include "server/request/json_scan.h"

#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "base/text/sbuf.h"

enum { RESERVE_LEAST = 16 << 10, LEXER_LEAST = 32 };

static _Thread_local struct {
    char *base;
    size_t used, cap;
} reserve;

static void *alloc(size_t n)
{
    void *p = mem_library_alloc(n);

    if (p || !reserve.base || n < LEXER_LEAST || (n & (n - 1)) || n > reserve.cap - reserve.used)
        return p;
    p = reserve.base + reserve.used;
    reserve.used += n;
    return p;
}

static void release(void *p)
{
    const uintptr_t at = (uintptr_t)p, base = (uintptr_t)reserve.base;

    if (!base || at < base || at >= base + reserve.cap)
        free(p);
}

static void set_memory(void)
{
    json_set_alloc_funcs(alloc, release);
}

void json_memory(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, set_memory);
}

/* ---- limits ---- */

typedef struct tally {
    int depth;
    long nodes;
    size_t token, longest;
} tally;

/* Moves over a string that begins at text[i]; the place of its end. */
static size_t skip_string(const char *text, size_t len, size_t i, tally *t)
{
    const size_t from = i++;

    while (i < len && text[i] != '"')
        i += text[i] == '\\' ? 2 : 1;
    if (i - from > t->longest)
        t->longest = i - from;
    return i;
}

static void count(char c, tally *t)
{
    t->depth += c == '[' || c == '{';
    t->depth -= c == ']' || c == '}';
    t->nodes += c == ',' || c == '[' || c == '{';
    t->token = c == '[' || c == '{' || c == ']' || c == '}' || c == ',' || c == ':' ? 0 : t->token + 1;
    if (t->token > t->longest)
        t->longest = t->token;
}

static int scan(const char *text, size_t len, size_t *longest, kvant_diag *diag)
{
    tally t = { .nodes = 1 };

    for (size_t i = 0; i < len; i++) {
        if (text[i] == '"') {
            i = skip_string(text, len, i, &t);
            continue;
        }
        count(text[i], &t);
        if (t.depth > JSON_MAX_DEPTH)
            return kvant_fail(diag, KVANT_EINVAL, "JSON: nested deeper than %d at byte %zu", JSON_MAX_DEPTH, i);
        if (t.nodes > JSON_MAX_NODES)
            return kvant_fail(diag, KVANT_EINVAL, "JSON: more than %d values", JSON_MAX_NODES);
    }
    *longest = t.longest;
    return KVANT_OK;
}

int json_scan(const char *text, size_t len, kvant_diag *diag)
{
    size_t longest;

    return scan(text, len, &longest, diag);
}

/* ---- reading ---- */

/* A buffer that doubles takes in all less than four times what it holds at the end. */
static int open_reserve(size_t longest)
{
    reserve.cap = 4 * longest + RESERVE_LEAST;
    reserve.used = 0;
    reserve.base = kvant_alloc(reserve.cap);
    return reserve.base != NULL;
}

static void close_reserve(void)
{
    kvant_free(reserve.base);
    reserve.base = NULL;
}

int json_read_any(const char *text, size_t len, size_t longest, json_t **out, kvant_diag *diag)
{
    json_error_t error;

    json_memory();
    if (!open_reserve(longest))
        return kvant_fail(diag, KVANT_ENOMEM, "out of memory");
    const uint64_t before = mem_failures();
    json_t *v = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    const int failed = mem_failures() != before;
    if (failed)
        json_decref(v);
    close_reserve();
    if (failed)
        return kvant_fail(diag, KVANT_ENOMEM, "out of memory");
    if (!v)
        return kvant_fail(diag, KVANT_EINVAL, "JSON: %.120s (byte %d)", error.text, error.position);
    *out = v;
    return KVANT_OK;
}

int json_read(const char *text, size_t len, json_t **out, kvant_diag *diag)
{
    size_t longest;
    sbuf mended;

    if (len >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) { /* editors put a byte order mark there */
        text += 3;
        len -= 3;
    }
    KVANT_TRY(scan(text, len, &longest, diag));
    if (!json_mend(text, len, &mended))
        return json_read_any(text, len, longest, out, diag);
    int code = mended.error ? kvant_fail(diag, KVANT_ENOMEM, "out of memory") : KVANT_OK;
    if (code == KVANT_OK)
        code = json_read_any(mended.s, mended.n, longest + 8, out, diag);
    sbuf_free(&mended);
    return code;
}
