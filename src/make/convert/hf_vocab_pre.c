/* hf_vocab_pre.c: which pre-tokenizer a tokenizer.json has.  The file holds patterns, GGUF a name: the name is found by
 * cutting one text with the file's own patterns and with each of kvant's, and taking the first that cuts alike.
 *
 * Security: the patterns of a file run here and nowhere else, on this one short text, under PCRE2's limits. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>
#include "base/mem.h"
#include "make/convert/hf_config.h"
#include "make/convert/hf_vocab.h"
#include "text/pretok.h"

enum { MAX_PATTERN = 8192, MAX_CUTS = 8192 };

/* Every difference that the known patterns make: digits in runs, spaces of all kinds, contractions in both cases,
 * letters where the case changes, marks, signs, paths, scripts. */
static const char sample[] =
    "\n \n\n \n\n\n \t \t\t \t\n  \n   \n    \n     \n\xF0\x9F\x9A\x80 (normal) \xF0\x9F\x98\xB6\xE2\x80\x8D\xF0\x9F\x8C"
    "\xAB\xEF\xB8\x8F (several) \xE2\x9C\x85 3 33 333 3333 33333 333333 3333333 33333333 3.3 3..3 3...3 "
    "\xE1\x9E\x80\xE1\x9E\xB6\xE1\x9E\x93\xE1\x9F\x8B\xE1\x9E\x8F\xE1\x9F\x82 ?\xE6\x88\x91\xE6\x83\xB3\xE5\x9C\xA8"
    "apple\xE5\xB7\xA5\xE4\xBD\x9C"
    "1314151\xE5\xA4\xA9\xEF\xBD\x9E ------======= "
    "\xD0\xBD\xD0\xB5\xD1\x89\xD0\xBE ''''''```````\"\"\"\"......!!!!!!?????? I've been 'told he's there, 'RE you sure? "
    "'M not sure I'll make it, 'D you? We'Ve a'lL camelCase HTTPServer src/main.c\r\n\r\n e\xCC\x81t\xC3\xA9 "
    "\xEA\xB0\x80\xEB\x82\x98 \xE3\x81\x8B\xE3\x81\xAA\xE3\x82\xAB a_b $5+6=<11> \xC2\xA0\xE3\x80\x80x /n//\n/ .text "
    "\xE2\x80\x9Cquoted\xE2\x80\x9D\xE2\x80\xA6 \xD9\xA3\xD9\xA4  end  ";

/* The ends of the pieces of a text, in order. */
typedef struct cuts {
    const char *s;
    size_t len;
    size_t end[MAX_CUTS];
    int n;
} cuts;

static const char gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* A match becomes one of these: a piece of its own; one with the matches that touch it; a part of the piece before it
 * or behind it, where that is no match. */
enum behavior { ISOLATED, CONTIGUOUS, MERGED_WITH_PREVIOUS, MERGED_WITH_NEXT, COVERING };

static int add_cut(cuts *c, size_t end, kvant_diag *diag)
{
    if (end <= (c->n ? c->end[c->n - 1] : 0))
        return KVANT_OK;
    if (c->n == MAX_CUTS)
        return kvant_fail(diag, KVANT_EFORMAT, "tokenizer.json: pre_tokenizer cuts a text into more than %d pieces",
                          MAX_CUTS);
    c->end[c->n++] = end;
    return KVANT_OK;
}

/* The cuts at a match [from, to); before: where the last one ended, 0 none. */
static int cut_match(enum behavior b, size_t before, size_t from, size_t to, cuts *out, kvant_diag *diag)
{
    const int touches = before && before == from;

    if (b == CONTIGUOUS && before && !touches)
        KVANT_TRY(add_cut(out, before, diag));
    if (b == MERGED_WITH_PREVIOUS ? touches : b == CONTIGUOUS ? !touches : 1)
        KVANT_TRY(add_cut(out, from, diag));
    return b == CONTIGUOUS || b == MERGED_WITH_NEXT ? KVANT_OK : add_cut(out, to, diag);
}

static int not_covered(kvant_diag *diag)
{
    return kvant_fail(
        diag, KVANT_EUNSUPPORTED,
        "tokenizer.json: pre_tokenizer Split with behavior Removed takes parts of the text away, Isolated "
        "wanted");
}

/* The matches of code in [from, to), and what is between them. */
static int cut_part(pcre2_code *code, pcre2_match_context *context, pcre2_match_data *data, enum behavior b,
                    const cuts *in, size_t from, size_t to, cuts *out, kvant_diag *diag)
{
    size_t before = 0;

    for (size_t at = from; at < to;) {
        const int r = pcre2_match(code, (PCRE2_SPTR)in->s + from, to - from, at - from, 0, data, context);
        if (r == PCRE2_ERROR_NOMATCH)
            break;
        if (r < 0)
            return kvant_fail(diag, KVANT_EFORMAT, "tokenizer.json: a pattern of pre_tokenizer failed (PCRE2 error %d)",
                              r);
        const PCRE2_SIZE *found = pcre2_get_ovector_pointer(data);
        if (found[1] <= found[0])
            return kvant_fail(diag, KVANT_EUNSUPPORTED, "tokenizer.json: a pattern of pre_tokenizer matches nothing");
        if (b == COVERING && found[0] + from != at)
            return not_covered(diag);
        KVANT_TRY(cut_match(b, before, from + found[0], from + found[1], out, diag));
        before = at = from + found[1];
    }
    if (b == COVERING && before != to)
        return not_covered(diag);
    if (b == CONTIGUOUS && before)
        KVANT_TRY(add_cut(out, before, diag));
    return add_cut(out, to, diag);
}

/* Cuts every piece of c by one pattern. */
static int cut_by(const char *pattern, enum behavior b, cuts *c, kvant_diag *diag)
{
    int error, rc;
    PCRE2_SIZE at;
    cuts *next = kvant_alloc(sizeof *next);
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                     PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at, NULL);
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    pcre2_match_context *context = pcre2_match_context_create(NULL);

    if (!code)
        rc = kvant_fail(diag, KVANT_EUNSUPPORTED, "tokenizer.json: a pattern of pre_tokenizer is not understood at %zu",
                        (size_t)at);
    else if (!data || !context || !next)
        rc = kvant_fail(diag, KVANT_ENOMEM, "tokenizer.json: no memory for a pattern");
    else
        rc = KVANT_OK;
    if (rc == KVANT_OK) {
        pcre2_set_match_limit(context, 1000000);
        pcre2_set_depth_limit(context, 1000);
        pcre2_set_heap_limit(context, 16 * 1024);
        next->s = c->s;
        next->len = c->len;
        next->n = 0;
    }
    for (int i = 0; rc == KVANT_OK && i < c->n; i++)
        rc = cut_part(code, context, data, b, c, i ? c->end[i - 1] : 0, c->end[i], next, diag);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
    pcre2_code_free(code);
    if (rc == KVANT_OK)
        *c = *next;
    kvant_free(next);
    return rc;
}

static int is_false(gjson v)
{
    return v.p && *v.p == 'f';
}

/* absent: Isolated, as Punctuation has it. */
static int read_behavior(gjson step, enum behavior *b, kvant_diag *diag)
{
    static const char *const names[] = { "Isolated", "Contiguous", "MergedWithPrevious", "MergedWithNext" };
    const gjson found = gjson_get(step, "behavior");
    const int inverts = hf_true(gjson_get(step, "invert"));

    *b = hf_is(found, "Removed") && inverts ? COVERING : ISOLATED;
    if (*b == COVERING || !found.p || hf_is(found, "Isolated"))
        return KVANT_OK; /* turned around, the pieces are the others, and the cuts those */
    for (int i = 1; i < 4; i++)
        if (hf_is(found, names[i]) && !inverts) {
            *b = (enum behavior)i;
            return KVANT_OK;
        }
    return kvant_fail(diag, KVANT_EUNSUPPORTED,
                      "tokenizer.json: pre_tokenizer Split with behavior %.*s%s, Isolated, Contiguous or MergedWith... "
                      "wanted",
                      hf_shown(found), found.p, inverts ? " and invert" : "");
}

/* A Split by a pattern, or by a text: which is quoted. */
static int cut_split(gjson step, cuts *c, kvant_diag *diag)
{
    char pattern[MAX_PATTERN + 8];
    const gjson regex = gjson_at(step, "pattern.Regex"), text = gjson_at(step, "pattern.String");
    const gjson p = regex.p ? regex : text;

    enum behavior b;

    KVANT_TRY(read_behavior(step, &b, diag));
    if (p.n > MAX_PATTERN || !p.p || *p.p != '"')
        return kvant_fail(diag, KVANT_EFORMAT, "tokenizer.json: a pattern of %zu bytes, 1 to %d wanted", p.n,
                          MAX_PATTERN);
    memcpy(pattern, "\\Q", regex.p ? 0 : 2);
    pattern[(regex.p ? 0 : 2) + gjson_unescape(p, pattern + (regex.p ? 0 : 2))] = 0;
    return cut_by(pattern, b, c, diag);
}

static int cut_step(gjson step, cuts *c, kvant_diag *diag)
{
    const gjson type = gjson_get(step, "type");
    enum behavior b;

    if (hf_is(type, "Split"))
        return cut_split(step, c, diag);
    if (hf_is(type, "ByteLevel"))
        return is_false(gjson_get(step, "use_regex")) ? KVANT_OK : cut_by(gpt2, ISOLATED, c, diag);
    if (hf_is(type, "Digits"))
        return cut_by("\\p{N}", hf_true(gjson_get(step, "individual_digits")) ? ISOLATED : CONTIGUOUS, c, diag);
    KVANT_TRY(read_behavior(step, &b, diag));
    if (hf_is(type, "Punctuation"))
        return cut_by("[\\p{P}!-/:-@\\[-`{-~]", b, c, diag);
    return kvant_fail(diag, KVANT_EUNSUPPORTED,
                      "tokenizer.json: pre_tokenizer %.*s, Split, Digits, Punctuation and ByteLevel are known",
                      hf_shown(type), type.p ? type.p : "(none)");
}

/* ByteLevel's space before a text: before every piece that it gets, so nothing may cut before it. */
static int read_prefix(hf_vocab *v, gjson step, int first, kvant_diag *diag)
{
    if (!hf_is(gjson_get(step, "type"), "ByteLevel") || !hf_true(gjson_get(step, "add_prefix_space")))
        return KVANT_OK;
    if (!first)
        return kvant_fail(diag, KVANT_EUNSUPPORTED,
                          "tokenizer.json: pre_tokenizer ByteLevel with add_prefix_space behind another, false wanted");
    v->rules.spaces = HF_SPACES_ALWAYS;
    return KVANT_OK;
}

static int cut_by_file(hf_vocab *v, cuts *c, kvant_diag *diag)
{
    const gjson pre = gjson_get(v->json, "pre_tokenizer"), list = gjson_get(pre, "pretokenizers");
    gjson it = { NULL, 0 };

    c->n = 0;
    KVANT_TRY(add_cut(c, c->len, diag));
    if (!list.p) {
        KVANT_TRY(read_prefix(v, pre, 1, diag));
        return cut_step(pre, c, diag);
    }
    for (int i = 0; gjson_next(list, &it); i++) {
        KVANT_TRY(read_prefix(v, it, i == 0, diag));
        KVANT_TRY(cut_step(it, c, diag));
    }
    return KVANT_OK;
}

/* 1: p cuts the text as c. */
static int cuts_alike(const pretok *p, const cuts *c, kvant_diag *diag)
{
    pretok_scan *s = NULL;
    int i = 0, rc;

    KVANT_TRY(pretok_scan_open(p, &s, diag));
    pretok_scan_limits(s, c->len);
    for (size_t at = 0, end = 0; at < c->len; at = end, i++) {
        rc = pretok_next(s, c->s, c->len, at, &end, diag);
        if (rc < 0 || i >= c->n || end != c->end[i]) {
            pretok_scan_close(s);
            return rc < 0 ? rc : 0;
        }
    }
    pretok_scan_close(s);
    return i == c->n;
}

/* Drawn behind the sample. */
/* clang-format off */
static const char *const parts[] = {
    "a", "b", "s", "t", "e", "Z", "B", "L", "\xC3\xA9", "\xC3\x89", "\xC3\x9F", "\xD1\x8F", "\xD0\xAF",
    "\xE4\xB8\xAD", "\xE3\x81\x8B", "\xE3\x82\xAB", "\xED\x95\x9C", "\xD8\xA7", "\xE0\xB8\x81", "\xCC\x81", "0",
    "1", "7", "9", "\xD9\xA3", "\xC2\xB2", "\xE2\x85\xA7", " ", " ", " ", "\t", "\n", "\n", "\r\n", "\xC2\xA0",
    "\xE3\x80\x80", ".", ",", "!", "?", "'", "\"", "-", "_", "/", "\\", "(", ")", "[", "]", "{", "}", "<", ">",
    "@", "#", "$", "%", "^", "&", "*", "+", "=", "~", "`", "|", ";", ":", "\xE2\x80\xA6", "\xE2\x80\x9C",
    "\xEF\xBC\x8C", "\xE3\x80\x82", "\xF0\x9F\x9A\x80", "'s", "'ll", "'re", "'d", "'t", "'m", "'ve", "'T", "'VE",
    "'S", "'M", "'LL", "'Re", "'D",
};
/* clang-format on */

/* The sample, and characters at random behind it: neighbours that nobody thought of.  Malloc'd. */
static char *make_sample(size_t *n)
{
    enum { PARTS = sizeof parts / sizeof *parts, DRAWN = 3000 };
    char *s = kvant_alloc(sizeof sample + 4 * DRAWN);
    uint64_t x = 1;

    if (!s)
        return NULL;
    memcpy(s, sample, *n = sizeof sample - 1);
    for (int i = 0; i < DRAWN; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        const char *p = parts[(x >> 33) % PARTS];
        memcpy(s + *n, p, strlen(p));
        *n += strlen(p);
    }
    return s;
}

/* The row that cuts as c and says most of the rest. */
static int choose(hf_vocab *v, int nfc, const cuts *c, kvant_diag *diag)
{
    int best = 4, rc = KVANT_OK;

    for (int i = 0; rc == KVANT_OK && best > 0 && pretok_known(i); i++) {
        pretok *p = NULL;
        rc = pretok_open(pretok_known(i), strlen(pretok_known(i)), PRETOK_NO_JIT, &p, diag);
        if (rc < 0)
            return rc;
        const int off = 2 * (pretok_nfc(p) != nfc) + (pretok_ignore_merges(p) != v->rules.ignore_merges);
        rc = !pretok_raw(p) && off < best ? cuts_alike(p, c, diag) : 0;
        if (rc == 1) {
            v->pre = pretok_name(p);
            best = off;
            rc = KVANT_OK;
        }
        pretok_close(p);
    }
    return rc;
}

static int find_pre(hf_vocab *v, int nfc, kvant_diag *diag)
{
    cuts *c = kvant_alloc(sizeof *c);
    char *s = NULL;
    int rc = KVANT_ENOMEM;

    if (c && (s = make_sample(&c->len))) {
        c->s = s;
        rc = cut_by_file(v, c, diag);
    }
    if (rc == KVANT_OK && !v->pre)
        rc = choose(v, nfc, c, diag);
    kvant_free(s);
    kvant_free(c);
    if (rc == KVANT_ENOMEM)
        return kvant_fail(diag, rc, "tokenizer.json: out of memory");
    if (rc == KVANT_OK && !v->pre)
        return kvant_fail(diag, KVANT_EUNSUPPORTED,
                          "tokenizer.json: its pre_tokenizer cuts as none of kvant's does; --pre-tokenizer names one");
    return rc;
}

int hf_vocab_find_pre(hf_vocab *v, kvant_diag *diag)
{
    const normal *steps = &v->rules.steps;
    const int nfc = steps->n == 1 && steps->steps[0].kind == NORMAL_NFC;
    pretok *p = NULL;

    KVANT_TRY(find_pre(v, nfc, diag));
    KVANT_TRY(pretok_open(v->pre, strlen(v->pre), PRETOK_NO_JIT, &p, diag));
    v->rules.other_nfc = pretok_nfc(p) ? !nfc : steps->n > 0;
    v->rules.other_ignore = pretok_ignore_merges(p) != v->rules.ignore_merges;
    pretok_close(p);
    return KVANT_OK;
}
