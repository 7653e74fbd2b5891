/* pretok.c: cutting a text into pieces with PCRE2, by the rows of pretok_table.c.  Owns the compiled patterns and the
 * limits; knows nothing of tokens.
 *
 * Security: patterns come only from the table, only the backtracking matchers are used (never DFA), each match runs
 * under limits that scale with the text, and a limit hit is an error: ids are never cut short. */
#include "text/pretok.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>
#include "base/log.h"
#include "base/mem.h"
#include "text/pretok_table.h"

struct pretok {
    const pretok_row *row;
    pcre2_general_context *memory;
    pcre2_code *code[PRETOK_STAGES];
    int n, jit;
};

struct pretok_scan {
    const pretok *p;
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    size_t bound[PRETOK_STAGES]; /* where the part that each stage found ends; at or before the next piece: none yet */
    size_t grouped;              /* where the digits end that are cut in threes; as above */
};

static void *pcre_alloc(PCRE2_SIZE bytes, void *unused)
{
    (void)unused;
    return kvant_alloc(bytes);
}

static void pcre_free(void *p, void *unused)
{
    (void)unused;
    kvant_free(p);
}

/* A name from a file, made safe to print. */
static const char *printable(const char *s, size_t n, char *buf, size_t cap)
{
    size_t i = 0;
    for (; i < n && i + 1 < cap; i++)
        buf[i] = (char)(s[i] >= 0x20 && s[i] < 0x7F ? s[i] : '?');
    buf[i] = 0;
    return buf;
}

/* JIT is refused where pages may not be made executable (SELinux, some containers): the interpreter gives the same. */
static int compile_stage(pretok *p, int k, pcre2_compile_context *context, kvant_diag *diag)
{
    int code;
    PCRE2_SIZE at;

    p->code[k] = pcre2_compile((PCRE2_SPTR)p->row->stages[k], PCRE2_ZERO_TERMINATED,
                               PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &at, context);
    if (!p->code[k])
        return kvant_fail(diag, code == PCRE2_ERROR_HEAP_FAILED ? KVANT_ENOMEM : KVANT_EINTERNAL,
                          "pre-tokenizer %s: PCRE2 error %d at %zu of pattern %d", p->row->name, code, (size_t)at, k);
    p->jit = p->jit && pcre2_jit_compile(p->code[k], PCRE2_JIT_COMPLETE) == 0;
    return KVANT_OK;
}

static int pretok_compile(pretok *p, int flags, kvant_diag *diag)
{
    pcre2_compile_context *context = pcre2_compile_context_create(p->memory);
    int err = KVANT_OK;

    if (!context)
        return kvant_fail(diag, KVANT_ENOMEM, "pre-tokenizer %s: out of memory", p->row->name);
    p->jit = !(flags & PRETOK_NO_JIT) && p->row->stages[0];
    for (; err == 0 && p->n < PRETOK_STAGES && p->row->stages[p->n]; p->n++)
        err = compile_stage(p, p->n, context, diag);
    pcre2_compile_context_free(context);
    return err;
}

/* A diagnosis has no room for all names: the log has them. */
static int unknown_name(const char *name, size_t len, kvant_diag *diag)
{
    char shown[48], all[1024] = "";
    size_t n = 0;

    for (int i = 0; pretok_known(i) && n + strlen(pretok_known(i)) + 2 < sizeof all; i++) {
        memcpy(all + n, " ", 2);
        strcpy(all + n + 1, pretok_known(i));
        n += strlen(all + n);
    }
    log_msg(LOG_WARN, "tokenizer.ggml.pre: known are%s", all);
    return kvant_fail(diag, KVANT_EFORMAT, "tokenizer.ggml.pre: '%s' is not a known pre-tokenizer, want one of%s",
                      printable(name, len, shown, sizeof shown), all);
}

int pretok_open(const char *name, size_t len, int flags, pretok **out, kvant_diag *diag)
{
    const pretok_row *r = pretok_row_find(name, len);

    if (!r)
        return unknown_name(name, len, diag);
    pretok *p = kvant_calloc(1, sizeof *p);
    if (!p)
        return kvant_fail(diag, KVANT_ENOMEM, "pre-tokenizer %s: out of memory", r->name);
    p->row = r;
    p->memory = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    int err = p->memory ? pretok_compile(p, flags, diag)
                        : kvant_fail(diag, KVANT_ENOMEM, "pre-tokenizer %s: out of memory", r->name);
    if (err < 0) {
        pretok_close(p);
        return err;
    }
    *out = p;
    return KVANT_OK;
}

void pretok_close(pretok *p)
{
    if (!p)
        return;
    for (int i = 0; i < PRETOK_STAGES; i++)
        pcre2_code_free(p->code[i]);
    pcre2_general_context_free(p->memory);
    kvant_free(p);
}

const char *pretok_name(const pretok *p)
{
    return p->row->name;
}

int pretok_nfc(const pretok *p)
{
    return p->row->nfc;
}

int pretok_ignore_merges(const pretok *p)
{
    return p->row->ignore_merges;
}

int pretok_add_bos(const pretok *p)
{
    return p->row->add_bos;
}

int pretok_raw(const pretok *p)
{
    return p->row->raw;
}

int pretok_has_jit(const pretok *p)
{
    return p->jit;
}

int pretok_scan_open(const pretok *p, pretok_scan **out, kvant_diag *diag)
{
    /* The JIT would otherwise use 32 KiB of a caller's stack, which may be 64 KiB. */
    enum { JIT_STACK_MIN = 32 * 1024, JIT_STACK_MAX = 1024 * 1024 };
    pretok_scan *s = kvant_calloc(1, sizeof *s);

    if (!s)
        goto fail;
    s->p = p;
    s->data = pcre2_match_data_create(1, p->memory);
    s->context = pcre2_match_context_create(p->memory);
    if (!s->data || !s->context)
        goto fail;
    if (p->jit) {
        s->stack = pcre2_jit_stack_create(JIT_STACK_MIN, JIT_STACK_MAX, p->memory);
        if (!s->stack)
            goto fail;
        pcre2_jit_stack_assign(s->context, NULL, s->stack);
    }
    pretok_scan_limits(s, 0);
    *out = s;
    return KVANT_OK;
fail:
    pretok_scan_close(s);
    return kvant_fail(diag, KVANT_ENOMEM, "pre-tokenizer %s: out of memory", p->row->name);
}

void pretok_scan_close(pretok_scan *s)
{
    if (!s)
        return;
    pcre2_jit_stack_free(s->stack);
    pcre2_match_context_free(s->context);
    pcre2_match_data_free(s->data);
    kvant_free(s);
}

void pretok_scan_limits_raw(pretok_scan *s, uint32_t match, uint32_t depth, uint32_t heap_kib)
{
    pcre2_set_match_limit(s->context, match);
    pcre2_set_depth_limit(s->context, depth);
    pcre2_set_heap_limit(s->context, heap_kib);
}

void pretok_scan_limits(pretok_scan *s, size_t len)
{
    /* Measured with PCRE2 10.42's interpreter on runs of 300,000 bytes: at most one step per byte (a run of spaces is
     * given back character by character), 4 deep, 1 KiB of frames.  8 steps per byte, 1,000 deep and 16 MiB leave room
     * for another version of the library; nothing in the patterns nests with the text, so the latter two are
     * constants. */
    uint64_t match = 100000 + 8 * (uint64_t)len;
    pretok_scan_limits_raw(s, match > UINT32_MAX ? UINT32_MAX : (uint32_t)match, 1000, 16 * 1024);
}

static int match_fail(const pretok_scan *s, int code, size_t at, kvant_diag *diag)
{
    const char *name = s->p->row->name;

    switch (code) {
    case PCRE2_ERROR_MATCHLIMIT:
    case PCRE2_ERROR_DEPTHLIMIT:
    case PCRE2_ERROR_HEAPLIMIT:
        return kvant_fail(diag, KVANT_EINVAL,
                          "text: pre-tokenizer %s passed its resource limit (PCRE2 error %d) at byte %zu", name, code,
                          at);
    case PCRE2_ERROR_NOMEMORY:
        return kvant_fail(diag, KVANT_ENOMEM, "pre-tokenizer %s: out of memory at byte %zu", name, at);
    default: return kvant_fail(diag, KVANT_EINTERNAL, "pre-tokenizer %s: PCRE2 error %d at byte %zu", name, code, at);
    }
}

/* The first match of stage k in text[at..len) -> [*from, *end); none: both are len. */
static int find_match(pretok_scan *s, int k, const char *text, size_t len, size_t at, size_t *from, size_t *end,
                      kvant_diag *diag)
{
    const pcre2_code *code = s->p->code[k];
    const PCRE2_SPTR subject = (PCRE2_SPTR)text + at; /* what is before is another part: no lookbehind sees it */
    int r = PCRE2_ERROR_JIT_STACKLIMIT;

    if (s->p->jit)
        r = pcre2_jit_match(code, subject, len - at, 0, 0, s->data, s->context);
    if (r == PCRE2_ERROR_JIT_STACKLIMIT)
        r = pcre2_match(code, subject, len - at, 0, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, s->data, s->context);
    if (r < 0 && r != PCRE2_ERROR_NOMATCH)
        return match_fail(s, r, at, diag);
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(s->data);
    *from = r < 0 ? len : at + found[0];
    *end = r < 0 ? len : at + found[1];
    return r >= 0 && *end <= *from ? match_fail(s, 0, at, diag) : KVANT_OK;
}

/* Characters of text[at..end). */
static size_t count_chars(const char *text, size_t at, size_t end)
{
    size_t n = 0;

    for (; at < end; at++)
        n += ((uint8_t)text[at] & 0xC0) != 0x80;
    return n;
}

static size_t skip_chars(const char *text, size_t at, size_t end, size_t n)
{
    while (at < end && n--)
        for (at++; at < end && ((uint8_t)text[at] & 0xC0) == 0x80;)
            at++;
    return at;
}

/* Finds the end of the part of text[at..len) that begins at `at`, in stage k: a match, or the text before the next. */
static int find_part(pretok_scan *s, int k, const char *text, size_t len, size_t at, size_t *part_end, kvant_diag *diag)
{
    const int in_threes = k == 0 && s->p->row->groups;
    size_t from = at, end = at;

    if (in_threes && s->grouped > at) { /* the first group took what is more than threes */
        *part_end = skip_chars(text, at, s->grouped, 3);
        return KVANT_OK;
    }
    KVANT_TRY(find_match(s, k, text, len, at, &from, &end, diag));
    *part_end = from > at ? from : end;
    if (in_threes && from == at) {
        s->grouped = end;
        *part_end = skip_chars(text, at, end, (count_chars(text, at, end) - 1) % 3 + 1);
    }
    return KVANT_OK;
}

int pretok_next(pretok_scan *s, const char *text, size_t len, size_t at, size_t *end, kvant_diag *diag)
{
    size_t bound = len;

    if (at == 0) { /* another text */
        memset(s->bound, 0, sizeof s->bound);
        s->grouped = 0;
    }
    for (int k = 0; k < s->p->n; k++) {
        if (s->bound[k] <= at)
            KVANT_TRY(find_part(s, k, text, bound, at, &s->bound[k], diag));
        bound = s->bound[k];
    }
    *end = bound;
    return KVANT_OK;
}
