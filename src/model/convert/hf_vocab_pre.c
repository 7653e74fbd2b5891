/* hf_vocab_pre.c: which pre-tokenizer a tokenizer.json has.  The file holds patterns, GGUF a name: the name is found by
 * cutting one text with the file's own patterns and with each of kvant's, and taking the first that cuts alike.
 *
 * Security: the patterns of a file run here and nowhere else, on this one short text, under PCRE2's limits. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>
#include "base/mem.h"
#include "model/convert/hf_config.h"
#include "model/convert/hf_vocab.h"
#include "model/text/pretok.h"

enum { MAX_PATTERN = 8192, MAX_CUTS = 1024 };

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

/* Where the pieces end, in order. */
typedef struct cuts {
    size_t end[MAX_CUTS];
    int n;
} cuts;

static const char gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

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

/* The matches of code in text[from..to), and what is between them. */
static int cut_part(pcre2_code *code, pcre2_match_context *context, pcre2_match_data *data, size_t from, size_t to,
                    cuts *out, kvant_diag *diag)
{
    for (size_t at = from; at < to;) {
        const int r = pcre2_match(code, (PCRE2_SPTR)sample + from, to - from, at - from, 0, data, context);
        if (r == PCRE2_ERROR_NOMATCH)
            break;
        if (r < 0)
            return kvant_fail(diag, KVANT_EFORMAT, "tokenizer.json: a pattern of pre_tokenizer failed (PCRE2 error %d)",
                              r);
        const PCRE2_SIZE *found = pcre2_get_ovector_pointer(data);
        if (found[1] <= found[0])
            return kvant_fail(diag, KVANT_EUNSUPPORTED, "tokenizer.json: a pattern of pre_tokenizer matches nothing");
        KVANT_TRY(add_cut(out, from + found[0], diag));
        KVANT_TRY(add_cut(out, from + found[1], diag));
        at = from + found[1];
    }
    return add_cut(out, to, diag);
}

/* Cuts every piece of c by one pattern. */
static int cut_by(const char *pattern, cuts *c, kvant_diag *diag)
{
    int error, rc = KVANT_ENOMEM;
    PCRE2_SIZE at;
    cuts next = { .n = 0 };
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                     PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at, NULL);
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    pcre2_match_context *context = pcre2_match_context_create(NULL);

    if (!code)
        rc = kvant_fail(diag, KVANT_EUNSUPPORTED, "tokenizer.json: a pattern of pre_tokenizer is not understood at %zu",
                        (size_t)at);
    else if (!data || !context)
        rc = kvant_fail(diag, KVANT_ENOMEM, "tokenizer.json: no memory for a pattern");
    else
        rc = KVANT_OK;
    if (rc == KVANT_OK) {
        pcre2_set_match_limit(context, 1000000);
        pcre2_set_depth_limit(context, 1000);
        pcre2_set_heap_limit(context, 16 * 1024);
    }
    for (int i = 0; rc == KVANT_OK && i < c->n; i++)
        rc = cut_part(code, context, data, i ? c->end[i - 1] : 0, c->end[i], &next, diag);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
    pcre2_code_free(code);
    if (rc == KVANT_OK)
        *c = next;
    return rc;
}

static int is_word(gjson v, const char *word)
{
    const size_t n = strlen(word);
    return v.n == n + 2 && v.p[0] == '"' && memcmp(v.p + 1, word, n) == 0;
}

static int is_false(gjson v)
{
    return v.p && *v.p == 'f';
}

/* A Split by a pattern, or by a text: which is quoted. */
static int cut_split(gjson step, cuts *c, kvant_diag *diag)
{
    char pattern[MAX_PATTERN + 8];
    const gjson regex = gjson_at(step, "pattern.Regex"), text = gjson_at(step, "pattern.String");
    const gjson p = regex.p ? regex : text;

    if (!is_word(gjson_get(step, "behavior"), "Isolated") && !is_word(gjson_get(step, "behavior"), "Removed"))
        return kvant_fail(diag, KVANT_EUNSUPPORTED,
                          "tokenizer.json: pre_tokenizer Split with a behavior that is not "
                          "Isolated");
    if (p.n > MAX_PATTERN || !p.p || *p.p != '"')
        return kvant_fail(diag, KVANT_EFORMAT, "tokenizer.json: a pattern of %zu bytes, 1 to %d wanted", p.n,
                          MAX_PATTERN);
    memcpy(pattern, "\\Q", regex.p ? 0 : 2);
    pattern[(regex.p ? 0 : 2) + gjson_unescape(p, pattern + (regex.p ? 0 : 2))] = 0;
    return cut_by(pattern, c, diag);
}

static int cut_step(gjson step, cuts *c, kvant_diag *diag)
{
    const gjson type = gjson_get(step, "type");

    if (is_word(type, "Split"))
        return cut_split(step, c, diag);
    if (is_word(type, "ByteLevel"))
        return is_false(gjson_get(step, "use_regex")) ? KVANT_OK : cut_by(gpt2, c, diag);
    if (is_word(type, "Digits"))
        return cut_by(is_false(gjson_get(step, "individual_digits")) ? "\\p{N}+" : "\\p{N}", c, diag);
    if (is_word(type, "Punctuation"))
        return cut_by("[\\p{P}!-/:-@\\[-`{-~]", c, diag);
    return kvant_fail(diag, KVANT_EUNSUPPORTED,
                      "tokenizer.json: pre_tokenizer %.*s, Split, Digits, Punctuation and ByteLevel are known",
                      hf_shown(type), type.p ? type.p : "(none)");
}

static int cut_by_file(gjson pre, cuts *c, kvant_diag *diag)
{
    const gjson list = gjson_get(pre, "pretokenizers");
    gjson it = { NULL, 0 };

    c->n = 0;
    KVANT_TRY(add_cut(c, sizeof sample - 1, diag));
    if (!list.p)
        return cut_step(pre, c, diag);
    while (gjson_next(list, &it))
        KVANT_TRY(cut_step(it, c, diag));
    return KVANT_OK;
}

/* 1: p cuts the sample as c. */
static int cuts_alike(const pretok *p, const cuts *c, kvant_diag *diag)
{
    pretok_scan *s = NULL;
    int i = 0, rc;

    KVANT_TRY(pretok_scan_open(p, &s, diag));
    pretok_scan_limits(s, sizeof sample - 1);
    for (size_t at = 0, end = 0; at < sizeof sample - 1; at = end, i++) {
        rc = pretok_next(s, sample, sizeof sample - 1, at, &end, diag);
        if (rc < 0 || i >= c->n || end != c->end[i]) {
            pretok_scan_close(s);
            return rc < 0 ? rc : 0;
        }
    }
    pretok_scan_close(s);
    return i == c->n;
}

static int has_nfc(gjson normalizer)
{
    gjson it = { NULL, 0 };

    if (is_word(gjson_get(normalizer, "type"), "NFC"))
        return 1;
    while (gjson_next(gjson_get(normalizer, "normalizers"), &it))
        if (is_word(gjson_get(it, "type"), "NFC"))
            return 1;
    return 0;
}

int hf_vocab_find_pre(gjson json, const char **name, kvant_diag *diag)
{
    const int nfc = has_nfc(gjson_get(json, "normalizer"));
    const gjson ignores = gjson_at(json, "model.ignore_merges");
    const int ignore = ignores.p && *ignores.p == 't';
    cuts *c = kvant_alloc(sizeof *c);
    int rc = c ? cut_by_file(gjson_get(json, "pre_tokenizer"), c, diag)
               : kvant_fail(diag, KVANT_ENOMEM, "tokenizer.json: out of memory");

    *name = NULL;
    for (int i = 0; rc == KVANT_OK && !*name && pretok_known(i); i++) {
        pretok *p = NULL;
        rc = pretok_open(pretok_known(i), strlen(pretok_known(i)), PRETOK_NO_JIT, &p, diag);
        if (rc == KVANT_OK && !pretok_raw(p) && pretok_nfc(p) == nfc && pretok_ignore_merges(p) == ignore)
            rc = cuts_alike(p, c, diag);
        if (rc == 1) {
            *name = pretok_name(p);
            rc = KVANT_OK;
        }
        pretok_close(p);
    }
    kvant_free(c);
    if (rc == KVANT_OK && !*name)
        return kvant_fail(diag, KVANT_EUNSUPPORTED,
                          "tokenizer.json: its pre_tokenizer (%s NFC, %s ignore_merges) cuts as none of kvant's does; "
                          "--pre-tokenizer names one",
                          nfc ? "with" : "without", ignore ? "with" : "without");
    return rc;
}
