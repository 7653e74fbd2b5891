/* check_server_grammar.c: GBNF, schemas and masks (T-10, T-11, T-12, T-13).  Every compile runs on a 64 KiB stack. */
#include <jansson.h>
#include <pthread.h>
#include <time.h>
#include "base/mem.h"
#include "base/rng.h"
#include "server/grammar/grammar_cache.h"
#include "support/check.h"

/* CPU time of this process: the machine may be busy with other things. */
static double cpu_seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

/* The mask of the next token, whatever work it takes, put over logits. */
static int filter(grammar_run *r, float *logits, int n, int *left, int *complete, kvant_diag *diag)
{
    int code = grammar_run_try(r, diag);

    while (code == KVANT_EBUSY)
        code = grammar_run_work(r, diag);
    return code == KVANT_OK ? grammar_run_apply(r, logits, n, left, complete, diag) : code;
}

static int accept_token(grammar_run *r, int32_t token, kvant_diag *diag)
{
    int code = grammar_run_try(r, diag);

    while (code == KVANT_EBUSY)
        code = grammar_run_work(r, diag);
    return code == KVANT_OK ? grammar_run_take(r, token, diag) : code;
}

/* 1 whole text, 0 prefix that may go on, -1 not in the grammar, -2 the grammar was refused (diag says why). */
static int try_text(const char *gbnf, const char *text, kvant_diag *diag)
{
    static const char *const none[1] = { "x" };
    static const int len[1] = { 1 };
    static const unsigned char eog[1] = { 0 };
    grammar *g;
    grammar_vocab *v;
    grammar_run *r;
    int complete = 0;

    if (grammar_compile(gbnf, strlen(gbnf), &g, diag) != KVANT_OK)
        return -2;
    grammar_vocab_from_list(none, len, eog, 1, &v, diag);
    int code = grammar_run_create(g, v, &r, diag);
    if (code == KVANT_OK) {
        code = grammar_run_bytes(r, text, strlen(text), &complete, diag);
        grammar_run_free(r);
    }
    grammar_release(g);
    grammar_vocab_free(v);
    return code != KVANT_OK ? -1 : complete;
}

static void want(const char *gbnf, const char *text, int result)
{
    kvant_diag diag = { "" };
    int got = try_text(gbnf, text, &diag);

    CHECK(got == result, "\"%.60s\" on \"%.60s\": %d, wanted %d (%s)", gbnf, text, got, result, diag.text);
}

static void check_syntax(void)
{
    want("root ::= \"a\" | \"bc\"+", "bcbc", 1);
    want("root ::= \"a\" | \"bc\"+", "bcb", 0);
    want("root ::= \"a\" | \"bc\"+", "ab", -1);
    want("root ::= [a-c]{2,3} # two or three\n", "abc", 1);
    want("root ::= [a-c]{2,3}", "a", 0);
    want("root ::= [a-c]{2,3}", "abca", -1);
    want("root ::= [^a-c]", "\xC3\xA4", 1);
    want("root ::= [^a-c]", "\xC3", 0);
    want("root ::= [^a-c]", "\xED\xA0\x80", -1); /* a surrogate is no UTF-8 */
    want("root ::= [\\u00e0-\\uFFFF]", "\xE2\x82\xAC", 1);
    want("root ::= .", "\xF4\x8F\xBF\xBF", 1);
    want("root ::= .", "\xF4\x90", -1);
    want("root ::= (a | b)* \"!\"\na ::= \"x\"\nb ::= \"y\" a", "xyxx!", 1);
    want("root ::= \"(\" root \")\" | \"\"", "((()))", 1);
    want("root ::= \"(\" root \")\" | \"\"", "((())", 0);
    want("root ::= \"a\" |\n  \"b\"", "b", 1);
    want("root ::= (\n\"a\"\n)?", "", 1);
    want("root ::= \"a\"{0}", "", 1);
    want("root ::= \"\\x41\\n\\\"\"", "A\n\"", 1);
}

static void refused(const char *gbnf, const char *part)
{
    kvant_diag diag = { "" };

    CHECK(try_text(gbnf, "", &diag) == -2 && strstr(diag.text, part), "\"%.60s\": \"%s\", wanted \"%s\"", gbnf,
          diag.text, part);
}

static void check_refusals(void)
{
    refused("", "root is used but not defined");
    refused("root ::= a", "a is used but not defined");
    refused("root ::= root \"x\"", "left recursion");
    refused("root ::= a\na ::= b \"x\"\nb ::= \"\" a", "left recursion");
    refused("root ::= n root\nn ::= \"\" | \"x\"", "left recursion");
    refused("root ::= (\"a\"*)*", "left recursion");
    refused("root ::= \"a", "not closed");
    refused("root ::= [a", "not closed");
    refused("root ::= (\"a\"", "not closed");
    refused("root ::= \"a\")", "without an opening");
    refused("root ::= *", "nothing before");
    refused("root ::= \"a\"{3,2}", "repetition");
    refused("root ::= \"a\"{2147483648}", "4096");
    refused("root ::= \"a\"{0,2147483648}", "4096");
    refused("root ::= \"\\q\"", "escape");
    refused("root ::= \"\\uD800\"", "Unicode");
    refused("root ::= \"\xff\"", "UTF-8");
    refused("root ::= \"a\"\nroot ::= \"b\"", "twice");
    refused("root = \"a\"", "::=");
    refused("root ::= [b-a]", "range");
}

/* T-10: sizes that break a recursive parser or matcher. */
static void check_t10(void)
{
    size_t n = 60000;
    char *text = malloc(n * 2 + 400000);
    kvant_diag diag = { "" };
    double t0 = cpu_seconds();

    strcpy(text, "root ::= ");
    memset(text + 9, '(', n);
    strcpy(text + 9 + n, "\"a\"");
    memset(text + 12 + n, ')', n);
    text[12 + 2 * n] = 0;
    refused(text, "nested groups");
    char *p = text;
    for (int i = 0; i < 5000; i++)
        p += sprintf(p, i ? "r%d ::= r%d\n" : "root ::= r1\n", i, i + 1);
    sprintf(p, "r5000 ::= \"z\"");
    CHECK(try_text(text, "z", &diag) == 1, "T-10 rule chain: %s", diag.text);
    want("root ::= ((((((\"a\"{4096}){4096}){4096}){4096}){4096}){4096})", "aaa", 0);
    p = text + sprintf(text, "root ::= ");
    for (int i = 0; i < 5000; i++)
        p += sprintf(p, "\"a\" | ");
    sprintf(p, "\"b\"");
    CHECK(try_text(text, "a", &diag) == 1, "T-10 many alternatives: %s", diag.text);
    CHECK(cpu_seconds() - t0 < 2.0, "T-10: %.2f s", cpu_seconds() - t0);
    want("root ::= \"[\" root \"]\" | \"x\" | \"[\" root \"]\" \"y\"", "[[[[[[[[[[[[x]]]]]]]]]]]]", 1);
    free(text);
}

/* ---- schemas ---- */

static int schema_text(const char *schema, const char *text, kvant_diag *diag)
{
    char *gbnf = NULL;

    if (grammar_from_schema(schema, strlen(schema), &gbnf, diag) != KVANT_OK)
        return -2;
    int got = try_text(gbnf, text, diag);
    if (got == -2)
        printf("grammar of %s:\n%s\n", schema, gbnf);
    kvant_free(gbnf);
    return got;
}

static grammar *any_object(void)
{
    kvant_diag diag = { "" };
    char *gbnf = NULL;
    grammar *g = NULL;

    CHECK(grammar_from_schema("{\"type\":\"object\"}", 17, &gbnf, &diag) == KVANT_OK &&
              grammar_compile(gbnf, strlen(gbnf), &g, &diag) == KVANT_OK,
          "%s", diag.text);
    kvant_free(gbnf);
    return g;
}

static void valid(const char *schema, const char *text, int result)
{
    kvant_diag diag = { "" };
    int got = schema_text(schema, text, &diag);

    CHECK(got == result, "%s on %s: %d, wanted %d (%s)", schema, text, got, result, diag.text);
}

static void rejected(const char *schema, const char *part)
{
    kvant_diag diag = { "" };

    CHECK(schema_text(schema, "", &diag) == -2 && strstr(diag.text, part), "%s: \"%s\", wanted \"%s\"", schema,
          diag.text, part);
}

#define PATTERN(p) "{\"type\":\"string\",\"pattern\":\"" p "\"}"

/* Each alternative of a pattern has anchors of its own. */
static void check_alternatives(void)
{
    static const struct {
        const char *schema, *text;
        int result;
    } cases[] = {
        { PATTERN("^a|b$"), "\"ax\"", 1 },       { PATTERN("^a|b$"), "\"xb\"", 1 },
        { PATTERN("^a|b$"), "\"xa\"", -1 },      { PATTERN("^a$|^b$"), "\"a\"", 1 },
        { PATTERN("^a$|^b$"), "\"b\"", 1 },      { PATTERN("^a$|^b$"), "\"ab", -1 },
        { PATTERN("^a$|^b$"), "\"xb", -1 },       { PATTERN("^$|^https?://[a-z]+$"), "\"\"", 1 },
        { PATTERN("^$|^https?://[a-z]+$"), "\"http://k\"", 1 },
        { PATTERN("^$|^https?://[a-z]+$"), "\"k", -1 },
        { PATTERN("^(a|b)c|d{2}$"), "\"bcx\"", 1 }, { PATTERN("^(a|b)c|d{2}$"), "\"xxdd\"", 1 },
        { PATTERN("^(a|b)c|d{2}$"), "\"xxd\"", -1 }, { PATTERN("a|^b|c$|^d$"), "\"d\"", 1 },
        { PATTERN("a|^b|c$|^d$"), "\"xd\"", -1 }, { PATTERN("a|^b|c$|^d$"), "\"xax\"", 1 },
        { PATTERN("^\\\\||b$"), "\"|x\"", 1 },  { PATTERN("^[|$^]$|^x$"), "\"$\"", 1 },
        { "{\"type\":\"string\",\"pattern\":\"^$|^[a-z]{3}$\",\"maxLength\":3}", "\"abc\"", 1 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        valid(cases[i].schema, cases[i].text, cases[i].result);
    rejected(PATTERN("(^a$)"), "alternatives only");
    rejected(PATTERN("^(a$|b)"), "alternatives only");
    rejected(PATTERN("a$b|c"), "alternatives only");
    rejected(PATTERN("^a$*|c"), "alternatives only");
}

#define DEFS(ref, names) "{\"$ref\":\"#/$defs/" ref "\",\"$defs\":{" names "}}"

/* A reference is a URI's fragment, whose names some generators leave as they are. */
static void check_pointers(void)
{
    valid(DEFS("A%3Cb%3e", "\"A<b>\":{\"type\":\"boolean\"}"), "true", 1);
    valid(DEFS("A<b>", "\"A<b>\":{\"type\":\"boolean\"}"), "true", 1);
    valid(DEFS("a~1b%25~0", "\"a/b%~\":{\"type\":\"boolean\"}"), "false", 1);
    valid(DEFS("a%41", "\"a%41\":{\"type\":\"null\"}"), "null", 1);
    valid(DEFS("a%41", "\"a%41\":{\"type\":\"null\"},\"aA\":{\"type\":\"boolean\"}"), "true", 1);
    valid(DEFS("100%", "\"100%\":{\"type\":\"null\"}"), "null", 1);
    valid(DEFS("%E4%B8%AD", "\"\xE4\xB8\xAD\":{\"type\":\"null\"}"), "null", 1);
    rejected(DEFS("A%3C", "\"A<b>\":{\"type\":\"boolean\"}"), "points to no schema");
    rejected(DEFS("a%00", "\"a\":{\"type\":\"boolean\"}"), "points to no schema");
}

static void check_schemas(void)
{
    const char *person =
        "{\"type\":\"object\",\"title\":\"P\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":"
        "\"integer\",\"minimum\":0,\"maximum\":130},\"tags\":{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"b\"]}"
        "}},\"required\":[\"name\",\"tags\"],\"additionalProperties\":false}";
    valid(person, "{\"name\": \"x\", \"age\": 7, \"tags\": [\"a\",\"b\"]}", 1);
    valid(person, "{\"name\":\"x\",\"tags\":[]}", 1);
    valid(person, "{\"name\":\"x\",\"age\":131", -1);
    valid(person, "{\"name\":\"x\",\"age\":130,\"tags\":[]}", 1);
    valid(person, "{\"name\":\"x\",\"age\":-1", -1);
    valid(person, "{\"age\"", -1);
    valid(person, "{\"name\":\"x\"}", -1);
    valid("{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}}}", "{}", 1);
    valid("{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}}}", "{\"b\":1}", 1);
    valid("{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}}}", "{\"a\":[1,{\"x\":null}],\"b\":\"\\u00e4\"}", 1);
    valid("{\"type\":\"object\",\"additionalProperties\":{\"type\":\"boolean\"}}", "{\"k\":true,\"l\":false}", 1);
    valid("{\"type\":\"object\",\"additionalProperties\":{\"type\":\"boolean\"}}", "{\"k\":1", -1);
    valid("{\"type\":[\"string\",\"null\"]}", "null", 1);
    valid("{\"anyOf\":[{\"type\":\"integer\"},{\"const\":{\"a\":[1]}}]}", "{\"a\":[1]}", 1);
    valid(
        "{\"$ref\":\"#/$defs/t\",\"$defs\":{\"t\":{\"type\":\"object\",\"properties\":{\"l\":{\"$ref\":\"#/$defs/t\"}}}}}",
        "{\"l\":{\"l\":{}}}", 1);
    valid("{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\"a\\n\"", 1);
    valid("{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\"a\"", -1);
    valid("{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\"abcd", -1);
    valid("{\"type\":\"string\",\"format\":\"date\"}", "\"2026-12-31\"", 1);
    valid("{\"type\":\"string\",\"format\":\"date\"}", "\"2026-13", -1);
    valid("{\"type\":\"string\",\"pattern\":\"^[a-z]{2}-\\\\d+$\"}", "\"ab-12\"", 1);
    valid("{\"type\":\"string\",\"pattern\":\"^[a-z]{2}-\\\\d+$\"}", "\"ab-12x", -1);
    valid("{\"type\":\"string\",\"pattern\":\"^(a|b\\\"c)$\"}", "\"b\\\"c\"", 1);
    valid("{\"type\":\"string\",\"pattern\":\"b\"}", "\"abc\"", 1);
    valid("{\"type\":\"string\",\"pattern\":\"a\\\\\\\\$\"}", "\"a\\\\x", 0);
    valid("{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}", "[1,2]", 1);
    valid("{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}", "[1]", -1);
    valid("{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}", "[1,2,3,", -1);
    valid("{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"},{\"type\":\"string\"}],\"items\":false}",
          "[null,\"x\"]", 1);
    valid("{\"type\":\"array\",\"maxItems\":0}", "[]", 1);
    valid("{\"type\":\"integer\",\"minimum\":-20,\"exclusiveMaximum\":105}", "-20", 1);
    valid("{\"type\":\"integer\",\"minimum\":-20,\"exclusiveMaximum\":105}", "-21", -1);
    valid("{\"type\":\"integer\",\"minimum\":-20,\"exclusiveMaximum\":105}", "104", 1);
    valid("{\"type\":\"integer\",\"minimum\":-20,\"exclusiveMaximum\":105}", "105", -1);
    valid("{}", "[{\"a\":1.5e-3}]", 1);
    valid("true", "false", 1);
    valid("{\"type\":\"object\"}", "{\"a\":[1,2,{\"b\":\"\\u00e4\\\\\"}],\"c\":-0.5e+7}", 1);
    valid("{\"type\":\"object\"}", "[", -1);
}

/* Every integer of small ranges, exactly those. */
static void check_ranges(void)
{
    static const int bounds[][2] = {
        { 0, 0 }, { 0, 9 }, { 3, 17 }, { -12, 104 }, { 95, 1010 }, { -300, -7 }, { 10, 99 }
    };
    kvant_diag diag = { "" };

    for (size_t k = 0; k < sizeof bounds / sizeof *bounds; k++) {
        char schema[128], text[16], *gbnf = NULL;
        int wrong = 0;
        snprintf(schema, sizeof schema, "{\"type\":\"integer\",\"minimum\":%d,\"maximum\":%d}", bounds[k][0],
                 bounds[k][1]);
        CHECK(grammar_from_schema(schema, strlen(schema), &gbnf, &diag) == KVANT_OK, "%s", diag.text);
        for (int v = -320; v <= 1030; v += v > 120 && v < 900 ? 7 : 1) {
            snprintf(text, sizeof text, "%d", v);
            wrong += (try_text(gbnf, text, &diag) == 1) != (v >= bounds[k][0] && v <= bounds[k][1]);
        }
        CHECK(wrong == 0, "%s: %d integers wrong", schema, wrong);
        kvant_free(gbnf);
    }
}

/* T-11: what is not understood is refused with its path, and nothing kills the process. */
static void check_t11(void)
{
    kvant_diag diag = { "" };
    char *big = malloc(4 << 20);

    rejected("{\"type\":\"object\",\"properties\":{\"a\":{\"not\":{}}}}", "#/properties/a/not");
    rejected("{\"type\":\"array\",\"items\":{\"type\":\"string\",\"minLength\":1e9}}", "#/items/minLength");
    rejected("{\"type\":\"array\",\"minItems\":1000000000}", "minItems");
    rejected("{\"type\":\"string\",\"maxLength\":1000000}", "maxLength");
    rejected("{\"type\":\"string\",\"pattern\":\"(?<=x)*\"}", "look around");
    rejected("{\"type\":\"string\",\"pattern\":\"a{1\"}", "repetition");
    rejected("{\"type\":\"string\",\"pattern\":\"a*+\"}", "possessive");
    rejected("{\"type\":\"string\",\"pattern\":\"(?=a)b\"}", "look around");
    rejected("{\"type\":\"string\",\"pattern\":\"(?<a b>c)\"}", "look around");
    valid("{\"type\":\"string\",\"pattern\":\"^a+?b{1,2}?$\"}", "\"aabb\"", 1);
    valid("{\"type\":\"string\",\"pattern\":\"^(?P<y>\\\\d{4})-(?<m>\\\\d\\\\d)$\"}", "\"2026-11\"", 1);
    valid("{\"type\":\"string\",\"pattern\":\"^(?!^[-+.]*$)[+-]?0*\\\\d*\\\\.?\\\\d*$\"}", "\"-0.5\"", 1);
    valid("{\"type\":\"string\",\"pattern\":\"^(?!^[-+.]*$)[+-]?0*\\\\d*\\\\.?\\\\d*$\"}", "\"+.\"", -1);
    valid("{\"type\":\"number\",\"exclusiveMaximum\":0}", "-0.5", 1);
    valid("{\"type\":\"number\",\"exclusiveMaximum\":0}", "-0", 0);
    valid("{\"type\":\"number\",\"exclusiveMaximum\":0}", "-0.00001", 1);
    valid("{\"type\":\"number\",\"exclusiveMinimum\":0}", "0.00003125", 1);
    valid("{\"type\":\"number\",\"exclusiveMinimum\":0}", "0.00000", 0);
    valid("{\"type\":\"number\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":1}", "0.00000625", 1);
    valid("{\"type\":\"number\",\"exclusiveMinimum\":2.5}", "2.500001", 1);
    valid("{\"type\":\"number\",\"exclusiveMinimum\":0}", "1e-5", -1);
    valid("{\"type\":\"number\"}", "1e-5", 1);
    valid("{\"type\":\"number\",\"minimum\":0.5,\"maximum\":0.5003}", "0.5", 1);
    valid("{\"type\":\"number\",\"minimum\":0.5,\"maximum\":0.5003}", "0.50031", -1);
    valid("{\"type\":\"number\",\"maximum\":1e-38}", "-3.5", 1);
    valid("{\"type\":\"number\",\"minimum\":-1.7976931348623157e308,\"maximum\":1.7976931348623157e308}", "-3.5", 1);
    valid("{\"type\":\"string\"}", "\"\\ud83d\\ude00\"", 1);
    valid("{\"type\":\"string\"}", "\"\\ud83d\"", -1);
    valid("{\"type\":\"string\"}", "\"\\ude00\"", -1);
    check_alternatives();
    check_pointers();
    rejected("{\"$ref\":\"http://x/y\"}", "$ref");
    rejected("{\"$ref\":\"#/nowhere\"}", "points to no schema");
    rejected("{\"type\":\"strin\"}", "type");
    rejected("false", "allows nothing");
    rejected("{\"enum\":[]}", "no value");
    rejected("{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}", "no integer");
    rejected("{\"allOf\":[]}", "wanted an array");
    rejected("[1]", "schema");
    rejected("{\"a\":1,\"a\":2}", "duplicate");
    valid("{\"$ref\":\"#\"}", "", -2); /* refers to itself: left recursion when compiled */
    valid("{\"type\":\"string\",\"pattern\":\"(a*)*b\"}", "", -2);
    memset(big, '[', 100000);
    big[100000] = 0;
    rejected(big, "nested deeper");
    char *p = big + sprintf(big, "{\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < 50000; i++)
        p += sprintf(p, "%s\"property number %d\":{\"type\":\"string\"}", i ? "," : "", i);
    strcpy(p, "}}");
    double t0 = cpu_seconds();
    rejected(big, "1024");
    CHECK(cpu_seconds() - t0 < 2.0, "T-11 large schema: %.2f s", cpu_seconds() - t0);
    CHECK(schema_text("{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":4096},\"maxItems\":4096}",
                      "[\"a\"]", &diag) == 1,
          "largest counts: %s", diag.text);
    free(big);
}

/* ---- masks ---- */

enum { N_VOCAB = 600 };

/* All bytes, then random pieces of JSON-like text; the last two are end tokens. */
typedef struct vocabulary {
    char pool[N_VOCAB][12];
    const char *text[N_VOCAB];
    int len[N_VOCAB];
    unsigned char eog[N_VOCAB];
} vocabulary;

static void make_vocabulary(vocabulary *v)
{
    static const char letters[] = "{}[]\",:0123456789truefalsn \\e\xC3\xA4";
    rng r = { 7 };

    memset(v, 0, sizeof *v);
    for (int i = 0; i < N_VOCAB; i++) {
        v->text[i] = v->pool[i];
        v->len[i] = i < 256 ? 1 : 1 + (int)rng_below(&r, 8);
        for (int k = 0; k < v->len[i]; k++)
            v->pool[i][k] = i < 256 ? (char)i : letters[rng_below(&r, sizeof letters - 1)];
    }
    v->eog[N_VOCAB - 1] = v->eog[N_VOCAB - 2] = 1;
    v->len[300] = 0;
}

/* The mask against trying every token alone. */
static int mask_errors(grammar *g, const grammar_vocab *gv, const vocabulary *v, const int *path, int n,
                       const float *logits)
{
    int wrong = 0;

    for (int t = 0; t < N_VOCAB; t++) {
        grammar_run *r;
        kvant_diag diag = { "" };
        int ok = grammar_run_create(g, gv, &r, &diag) == KVANT_OK, complete;
        for (int i = 0; i < n && ok; i++)
            ok = accept_token(r, path[i], &diag) == KVANT_OK;
        if (v->eog[t])
            ok = ok && grammar_run_bytes(r, "", 0, &complete, &diag) == KVANT_OK && complete;
        else
            ok = ok && v->len[t] && grammar_run_bytes(r, v->text[t], (size_t)v->len[t], &complete, &diag) == KVANT_OK;
        wrong += ok != !isinf(logits[t]);
        grammar_run_free(r);
    }
    return wrong;
}

/* A random walk; *out gets the text.  The number of tokens whose mask was wrong. */
static int walk(grammar *g, const grammar_vocab *gv, const vocabulary *v, rng *random, char *out, int *complete)
{
    grammar_run *r;
    kvant_diag diag = { "" };
    int path[64], n = 0, wrong = 0, left;
    size_t at = 0;

    if (grammar_run_create(g, gv, &r, &diag) != KVANT_OK)
        return 1;
    for (; n < 64; n++) {
        float logits[N_VOCAB] = { 0 };
        if (filter(r, logits, N_VOCAB, &left, complete, &diag) != KVANT_OK || *complete)
            break;
        if (n % 16 == 0)
            wrong += mask_errors(g, gv, v, path, n, logits);
        int pick = (int)rng_below(random, N_VOCAB);
        while (isinf(logits[pick]))
            pick = (pick + 1) % N_VOCAB;
        if (v->eog[pick]) {
            *complete = 1;
            break;
        }
        path[n] = pick;
        wrong += accept_token(r, pick, &diag) != KVANT_OK;
        memcpy(out + at, v->text[pick], (size_t)v->len[pick]);
        at += (size_t)v->len[pick];
    }
    out[at] = 0;
    grammar_run_free(r);
    return wrong;
}

/* Random tokens under a schema: masks exact, and every complete text is JSON that jansson reads. */
static void check_masks(void)
{
    static vocabulary v;
    grammar_vocab *gv = NULL;
    grammar *g = NULL;
    kvant_diag diag = { "" };
    rng random = { 3 };
    char text[1024];
    int wrong = 0, whole = 0, parsed = 0, complete;

    make_vocabulary(&v);
    CHECK(grammar_vocab_from_list(v.text, v.len, v.eog, N_VOCAB, &gv, &diag) == KVANT_OK, "%s", diag.text);
    g = any_object();
    for (int i = 0; i < 60; i++) {
        complete = 0;
        wrong += walk(g, gv, &v, &random, text, &complete);
        if (complete) {
            json_t *j = json_loads(text, 0, NULL);
            whole++;
            parsed += j != NULL;
            json_decref(j);
        }
    }
    CHECK(wrong == 0, "%d tokens masked wrongly", wrong);
    CHECK(whole == parsed && whole > 3, "%d of %d complete texts parse", parsed, whole);
    CHECK(grammar_bytes(g) < 70u << 20, "grammar takes %zu bytes", grammar_bytes(g));
    grammar_release(g);
    grammar_vocab_free(gv);
}

/* T-12: complete, dead ends, wrong tokens. */
static void check_t12(void)
{
    const char *text[] = { "a", "b", "ab", "<end>" };
    const int len[] = { 1, 1, 2, 5 };
    const unsigned char eog[] = { 0, 0, 0, 1 }, no_end[] = { 0, 0, 0, 0 };
    kvant_diag diag = { "" };
    grammar_vocab *v, *w;
    grammar *g;
    grammar_run *r;
    float logits[4] = { 0 };
    int left, complete;

    grammar_vocab_from_list(text, len, eog, 4, &v, &diag);
    grammar_vocab_from_list(text, len, no_end, 3, &w, &diag);
    grammar_compile("root ::= \"ab\"", 13, &g, &diag);
    grammar_run_create(g, v, &r, &diag);
    CHECK(filter(r, logits, 4, &left, &complete, &diag) == KVANT_OK && left == 2 && !complete, "left %d",
          left);
    CHECK(isinf(logits[1]) && isinf(logits[3]) && !isinf(logits[0]) && !isinf(logits[2]), "mask");
    CHECK(accept_token(r, 2, &diag) == KVANT_OK, "%s", diag.text);
    memset(logits, 0, sizeof logits);
    CHECK(filter(r, logits, 4, &left, &complete, &diag) == KVANT_OK && left == 1 && complete,
          "T-12 complete");
    CHECK(!isinf(logits[3]), "T-12 the end token is allowed");
    CHECK(accept_token(r, 0, &diag) == KVANT_EINVAL, "T-12 more after the end");
    CHECK(filter(r, logits, 4, &left, &complete, &diag) == KVANT_EINVAL, "T-12 stays refused");
    grammar_run_free(r);
    grammar_release(g);
    grammar_compile("root ::= \"a\"", 12, &g, &diag);
    grammar_run_create(g, w, &r, &diag);
    accept_token(r, 0, &diag);
    memset(logits, 0, sizeof logits);
    CHECK(filter(r, logits, 3, &left, &complete, &diag) == KVANT_OK && left == 0 && complete,
          "T-12 no end token");
    grammar_run_free(r);
    grammar_release(g);
    grammar_compile("root ::= \"ac\"", 13, &g, &diag);
    grammar_run_create(g, w, &r, &diag);
    accept_token(r, 0, &diag);
    CHECK(filter(r, logits, 3, &left, &complete, &diag) == KVANT_EINVAL, "T-12 dead end");
    grammar_run_free(r);
    grammar_release(g);
    grammar_vocab_free(v);
    grammar_vocab_free(w);
}

/* Nested text drives the automaton through many states: it is dropped and rebuilt within its limit, runs go on. */
static void check_bounded(void)
{
    static vocabulary v;
    grammar_vocab *gv = NULL;
    grammar *g = NULL;
    grammar_run *r, *other;
    kvant_diag diag = { "" };
    float logits[N_VOCAB];
    int left, complete, code = KVANT_OK;

    make_vocabulary(&v);
    grammar_vocab_from_list(v.text, v.len, v.eog, N_VOCAB, &gv, &diag);
    g = any_object();
    grammar_run_create(g, gv, &r, &diag);
    grammar_run_create(g, gv, &other, &diag);
    grammar_run_bytes(other, "{\"k\":[1,", 8, &complete, &diag);
    grammar_run_bytes(r, "{\"a\":", 5, &complete, &diag);
    for (int i = 0; i < 200 && code == KVANT_OK; i++) {
        code = filter(r, logits, N_VOCAB, &left, &complete, &diag);
        if (code == KVANT_OK)
            code = grammar_run_bytes(r, "[{\"a\":", 6, &complete, &diag);
    }
    CHECK(code == KVANT_OK, "%s", diag.text);
    CHECK(grammar_bytes(g) < 70u << 20, "%zu bytes", grammar_bytes(g));
    CHECK(grammar_run_bytes(other, "2]}", 3, &complete, &diag) == KVANT_OK && complete, "the other run: %s", diag.text);
    while (code == KVANT_OK)
        code = grammar_run_bytes(r, "[", 1, &complete, &diag);
    CHECK(code == KVANT_EINVAL, "nesting has a limit");
    grammar_run_free(r);
    grammar_run_free(other);
    grammar_release(g);
    grammar_vocab_free(gv);
}

/* T-13: the cache of compiled grammars is bounded, whatever comes; who uses what was evicted does not notice. */
static void check_cache(int n)
{
    enum { LARGE = 40, LENGTH = 390000, ROOM = LENGTH + 128 };
    grammar_cache *c = grammar_cache_new();
    grammar_cache_stats st;
    grammar_vocab *gv = NULL;
    grammar *first = NULL, *again = NULL;
    grammar_run *r = NULL;
    kvant_diag diag = { "" };
    char *text = malloc(ROOM);
    int complete, bad = 0;
    size_t most = 0;
    const char *none[] = { "" };

    CHECK(grammar_vocab_from_list(none, (int[]){ 0 }, (unsigned char[]){ 1 }, 1, &gv, &diag) == KVANT_OK, "%s",
          diag.text);
    CHECK(grammar_cache_get(c, NULL, "root ::= \"a\" root |", 19, &first, &diag) == KVANT_OK, "%s", diag.text);
    CHECK(grammar_cache_get(c, NULL, "root ::= \"a\" root |", 19, &again, &diag) == KVANT_OK && again == first,
          "T-13 a hit");
    grammar_release(again);
    CHECK(grammar_run_create(first, gv, &r, &diag) == KVANT_OK, "%s", diag.text);
    grammar_release(first);
    CHECK(grammar_cache_get(c, NULL, "root ::= x", 10, &again, &diag) == KVANT_EINVAL,
          "T-13 a bad grammar is not kept");
    for (int i = 0; i < n + LARGE; i++) { /* many small ones, then some that do not all fit */
        int len = snprintf(text, ROOM, "root ::= \"v%d\" [a-z]{1,%d} \"", i, 1 + i % 500);
        if (i >= n) {
            memset(text + len, 'x', LENGTH);
            len += LENGTH;
        }
        text[len++] = '"';
        if (grammar_cache_get(c, NULL, text, (size_t)len, &again, &diag) != KVANT_OK)
            bad++;
        else
            grammar_release(again);
        if (i % 64 == 0 || i >= n) {
            grammar_cache_get_stats(c, &st);
            most = st.bytes > most ? st.bytes : most;
        }
    }
    grammar_cache_get_stats(c, &st);
    CHECK(bad == 0 && most <= GRAMMAR_CACHE_BYTES && most > GRAMMAR_CACHE_BYTES / 2 && st.entries < LARGE,
          "T-13 %d bad, %zu bytes, %d kept", bad, most, st.entries);
    CHECK(st.hits == 1 && st.misses == (uint64_t)n + LARGE + 1,
          "T-13 %d hits, %d misses", (int)st.hits, (int)st.misses);
    CHECK(grammar_run_bytes(r, "aaa", 3, &complete, &diag) == KVANT_OK && complete, "T-13 its run goes on");
    CHECK(grammar_cache_get(c, NULL, "root ::= \"a\" root |", 19, &again, &diag) == KVANT_OK && again != first,
          "T-13 was evicted");
    grammar_release(again);
    free(text);
    grammar_run_free(r);
    grammar_cache_free(c);
    grammar_vocab_free(gv);
}

static void *all(void *unused)
{
    check_syntax();
    check_refusals();
    check_t10();
    check_schemas();
    check_ranges();
    check_t11();
    check_t12();
    return unused;
}

int main(void)
{
    pthread_attr_t attr;
    pthread_t thread;

    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, check_sanitized ? 512 << 10 : 64 << 10); /* instrumented frames are larger */
    if (pthread_create(&thread, &attr, all, NULL) == 0)
        pthread_join(thread, NULL);
    else
        CHECK(0, "no thread");
    check_masks();
    check_bounded();
    check_cache(20000);
    return check_end("check_server_grammar");
}
