/* pretok.c: the table of pre-tokenizers and their matching with PCRE2.  Owns the patterns and the limits; knows nothing
 * of tokens.
 *
 * The patterns are those of the tokenizer.json files, with \s written out as Unicode's White_Space: PCRE2 counts U+180E
 * as a space, the tokenizers that made the vocabularies do not.  \p{L}, \p{M}, \p{N} follow the Unicode version of the
 * linked PCRE2 (14 in 10.42): a character assigned later counts as "other".
 * NFC: GGUF has no key for it, so it is a column here.  The Qwen tokenizers normalise (tokenizer.json: normalizer NFC),
 * Llama 3 and GPT-2 do not.
 * Security: patterns come only from this table, only the backtracking matchers are used (never DFA), each match runs
 * under limits that scale with the text, and a limit hit is an error: ids are never cut short. */
#include "model/pretok.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>
#include "base/mem.h"

#define WS                                                                                                             \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}"                                                   \
    "\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define SPACES       "[" WS "]*[\\r\\n]+|[" WS "]+(?![^" WS "])|[" WS "]+"
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"

typedef struct row {
    const char *name, *pattern;
    int nfc, ignore_merges, add_bos;
} row;

static const row rows[] = {
    { "qwen2", CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" WS "\\p{L}\\p{N}]+[\\r\\n]*|" SPACES, 1, 0,
      0 },
    { "qwen35",
      CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES, 1,
      0, 0 },
    { "llama-bpe", CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^" WS "\\p{L}\\p{N}]+[\\r\\n]*|" SPACES,
      0, 1, 1 },
    { "gpt-2", "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+|[" WS "]+(?![^" WS "])|[" WS "]+",
      0, 0, 0 },
};

/* Names that llama.cpp treats as one of the four (its src/llama-vocab.cpp, read for the facts). */
static const struct {
    const char *name;
    int row;
} names[] = {
    { "qwen2", 0 },        { "qwen35", 1 },    { "llama-bpe", 2 }, { "gpt-2", 3 },    { "deepseek-r1-qwen", 0 },
    { "kormo", 0 },        { "f2llmv2", 0 },   { "megrez", 0 },    { "llama3", 2 },   { "llama-v3", 2 },
    { "falcon3", 2 },      { "falcon-h1", 2 }, { "pixtral", 2 },   { "midm-2.0", 2 }, { "lfm2", 2 },
    { "jina-v5-nano", 2 }, { "phi-2", 3 },     { "jina-es", 3 },   { "jina-de", 3 },  { "jina-v2-es", 3 },
    { "jina-v2-de", 3 },   { "gigachat", 3 },  { "a.x-4.0", 3 },   { "mellum", 3 },   { "modern-bert", 3 },
    { "exaone4", 3 },
};

struct pretok {
    const row *row;
    pcre2_general_context *memory;
    pcre2_code *code;
    int jit;
};

struct pretok_scan {
    const pretok *p;
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
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

const char *pretok_known(int i)
{
    return i >= 0 && i < (int)(sizeof names / sizeof names[0]) ? names[i].name : NULL;
}

static const row *row_find(const char *name, size_t len)
{
    for (int i = 0; pretok_known(i); i++)
        if (strlen(names[i].name) == len && memcmp(names[i].name, name, len) == 0)
            return &rows[names[i].row];
    return NULL;
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

static int pretok_compile(pretok *p, int flags, kvant_diag *diag)
{
    int code;
    PCRE2_SIZE at;
    pcre2_compile_context *context = pcre2_compile_context_create(p->memory);

    if (!context)
        return kvant_fail(diag, KVANT_ENOMEM, "pre-tokenizer %s: out of memory", p->row->name);
    p->code = pcre2_compile((PCRE2_SPTR)p->row->pattern, PCRE2_ZERO_TERMINATED,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C, &code, &at, context);
    pcre2_compile_context_free(context);
    if (!p->code)
        return kvant_fail(diag, code == PCRE2_ERROR_HEAP_FAILED ? KVANT_ENOMEM : KVANT_EINTERNAL,
                          "pre-tokenizer %s: PCRE2 error %d at %zu of the pattern", p->row->name, code, (size_t)at);
    /* Refused where pages may not be made executable (SELinux, some containers): the interpreter gives the same. */
    p->jit = !(flags & PRETOK_NO_JIT) && pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE) == 0;
    return KVANT_OK;
}

int pretok_open(const char *name, size_t len, int flags, pretok **out, kvant_diag *diag)
{
    char shown[48];
    const row *r = row_find(name, len);

    if (!r)
        return kvant_fail(
            diag, KVANT_EFORMAT,
            "tokenizer.ggml.pre: '%s' is not a known pre-tokenizer, want qwen2, qwen35, llama-bpe or gpt-2 "
            "(or a name of the same rules, such as deepseek-r1-qwen, llama3, llama-v3)",
            printable(name, len, shown, sizeof shown));
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
    pcre2_code_free(p->code);
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

int pretok_next(pretok_scan *s, const char *text, size_t len, size_t at, size_t *end, kvant_diag *diag)
{
    const pcre2_code *code = s->p->code;
    int r = PCRE2_ERROR_JIT_STACKLIMIT;

    if (s->p->jit)
        r = pcre2_jit_match(code, (PCRE2_SPTR)text, len, at, 0, s->data, s->context);
    if (r == PCRE2_ERROR_JIT_STACKLIMIT)
        r = pcre2_match(code, (PCRE2_SPTR)text, len, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, s->data, s->context);
    if (r < 0)
        return match_fail(s, r, at, diag);
    *end = pcre2_get_ovector_pointer(s->data)[1];
    if (*end <= at)
        return match_fail(s, 0, at, diag);
    return KVANT_OK;
}
