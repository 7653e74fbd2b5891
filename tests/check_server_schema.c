/* check_server_schema.c: values that come out under the grammar of a JSON schema are valid: random schemas as
 * pydantic, zod and OpenAI's strict mode write them, a random model, and a validator of its own.  Every keyword of the
 * inventory has its decision tried.  `check_server_schema -` reads schemas, a line each, and writes a value of each. */
#include <jansson.h>
#include "base/mem.h"
#include "base/rng.h"
#include "base/text/sbuf.h"
#include "server/grammar/grammar.h"
#include "server/request/json_scan.h"
#include "support/check.h"

/* ---- a random model ---- */

static const char *const extra[] = { "\", \"", "\": ",  "true",  "false", "null", "12",  "345", "\":",
                                     "},",     "]}",    "abc",   " \"",   "0.",   "-1",  "99",  "\",\"",
                                     "e-1",    "2026-", "\\u00", "é",     "日",   "\\n", ".5" };
enum { N_EXTRA = sizeof extra / sizeof *extra, N_PLAIN = 95, N_TOKENS = N_PLAIN + 1 + N_EXTRA + 1, MOST = 3000 };

static grammar_vocab *vocabulary(void)
{
    static char plain[N_PLAIN + 1][2];
    static const char *text[N_TOKENS];
    static int len[N_TOKENS];
    static unsigned char eog[N_TOKENS];
    grammar_vocab *v = NULL;
    kvant_diag diag = { "" };

    for (int i = 0; i <= N_PLAIN; i++) {
        plain[i][0] = i == N_PLAIN ? '\n' : (char)(' ' + i);
        text[i] = plain[i];
        len[i] = 1;
    }
    for (int i = 0; i < N_EXTRA; i++) {
        text[N_PLAIN + 1 + i] = extra[i];
        len[N_PLAIN + 1 + i] = (int)strlen(extra[i]);
    }
    text[N_TOKENS - 1] = "";
    eog[N_TOKENS - 1] = 1;
    grammar_vocab_from_list(text, len, eog, N_TOKENS, &v, &diag);
    return v;
}

/* Among the tokens that may come; the longer the text, the rather one that closes something. */
static int choose(const float *logits, int n_text, rng *r)
{
    static const char closing[] = "\"]}:,";
    int list[N_TOKENS], n = 0;

    for (int pass = rng_below(r, 100) < (unsigned)(n_text < 60    ? 15
                                                   : n_text < 300 ? 60
                                                                  : 95)
                        ? 0
                        : 1;
         pass < 2 && !n; pass++)
        for (int i = 0; i < N_TOKENS; i++)
            if (logits[i] == 0 && (pass || i == N_TOKENS - 1 || (i < N_PLAIN && strchr(closing, ' ' + i) && i)))
                list[n++] = i;
    if (logits[N_TOKENS - 1] == 0 && rng_below(r, 4) == 0)
        return N_TOKENS - 1;
    return n ? list[rng_below(r, (uint32_t)n)] : -1;
}

/* 1: a whole value; 0: cut; -1: the grammar left no token. */
static int generate(grammar *g, const grammar_vocab *v, rng *r, sbuf *out, kvant_diag *diag)
{
    grammar_run *run = NULL;
    float logits[N_TOKENS];
    int left, complete, result = 0;

    if (grammar_run_create(g, v, &run, diag) != KVANT_OK)
        return -1;
    for (int i = 0; i < MOST; i++) {
        memset(logits, 0, sizeof logits);
        int code = grammar_run_try(run, diag);
        while (code == KVANT_EBUSY)
            code = grammar_run_work(run, diag);
        if (code == KVANT_OK)
            code = grammar_run_apply(run, logits, N_TOKENS, &left, &complete, diag);
        const int token = code == KVANT_OK ? choose(logits, (int)out->n, r) : -1;
        if (token < 0 || token == N_TOKENS - 1 || complete) {
            result = code == KVANT_OK && token >= 0 ? 1 : -1;
            break;
        }
        size_t n;
        const char *s = grammar_vocab_text(v, token, &n);
        sbuf_put(out, s, n);
        if (grammar_run_take(run, token, diag) != KVANT_OK) {
            result = -1;
            break;
        }
    }
    grammar_run_free(run);
    return result;
}

/* ---- a validator: draft 2020-12, what the generator below uses; nothing of the server's ---- */

static const json_t *root;

static int valid(const json_t *s, const json_t *v);

static double num(const json_t *v)
{
    return json_is_wide(v) ? strtod(json_string_value(v) + 1, NULL) : json_number_value(v);
}

static int is_number(const json_t *v)
{
    return json_is_number(v) || json_is_wide(v);
}

static int typed(const json_t *v, const char *t)
{
    if (json_is_wide(v))
        return !strcmp(t, "number") || (!strcmp(t, "integer") && !strpbrk(json_string_value(v) + 1, ".eE"));
    if (!strcmp(t, "integer"))
        return json_is_integer(v) || (json_is_real(v) && num(v) == floor(num(v)));
    return !strcmp(t, json_is_object(v)    ? "object"
                      : json_is_array(v)   ? "array"
                      : json_is_string(v)  ? "string"
                      : json_is_number(v)  ? "number"
                      : json_is_boolean(v) ? "boolean"
                                           : "null");
}

static int same(const json_t *a, const json_t *b)
{
    return is_number(a) && is_number(b) ? num(a) == num(b) : json_equal((json_t *)a, (json_t *)b);
}

static int among(const json_t *list, const json_t *v)
{
    size_t i;
    json_t *x;

    json_array_foreach((json_t *)list, i, x) if (same(x, v)) return 1;
    return 0;
}

static size_t length(const json_t *v)
{
    size_t n = 0;

    for (const char *s = json_string_value(v); *s; s++)
        n += ((unsigned char)*s & 0xC0) != 0x80;
    return n;
}

static int within(const json_t *s, const char *lo, const char *hi, double n)
{
    const json_t *a = json_object_get(s, lo), *b = json_object_get(s, hi);

    return (!a || n >= num(a)) && (!b || n <= num(b));
}

static int valid_number(const json_t *s, const json_t *v)
{
    const json_t *a = json_object_get(s, "exclusiveMinimum"), *b = json_object_get(s, "exclusiveMaximum");
    const json_t *m = json_object_get(s, "multipleOf");
    const double q = m ? num(v) / num(m) : 0;

    return within(s, "minimum", "maximum", num(v)) && (!a || num(v) > num(a)) && (!b || num(v) < num(b)) &&
           fabs(q - round(q)) < 1e-9 * (1 + fabs(q));
}

static int valid_array(const json_t *s, const json_t *v)
{
    const json_t *items = json_object_get(s, "items"), *first = json_object_get(s, "prefixItems");
    size_t i, k, hits = 0;
    json_t *x;

    json_array_foreach((json_t *)v, i, x)
    {
        const json_t *own = i < json_array_size(first) ? json_array_get(first, i) : items;
        if (own && !valid(own, x))
            return 0;
        hits += json_object_get(s, "contains") && valid(json_object_get(s, "contains"), x);
        for (k = 0; k < i && json_is_true(json_object_get(s, "uniqueItems")); k++)
            if (same(json_array_get(v, k), x))
                return 0;
    }
    return within(s, "minItems", "maxItems", (double)json_array_size(v)) && (!json_object_get(s, "contains") || hits);
}

static int valid_object(const json_t *s, const json_t *v)
{
    const json_t *p = json_object_get(s, "properties"), *more = json_object_get(s, "additionalProperties"), *d;
    const char *key;
    json_t *x;
    size_t i;

    json_object_foreach((json_t *)v, key, x)
    {
        const json_t *own = json_object_get(p, key) ? json_object_get(p, key) : more;
        json_t *name = json_string(key);
        const int ok = (!own || valid(own, x)) &&
                       (!json_object_get(s, "propertyNames") || valid(json_object_get(s, "propertyNames"), name));
        json_decref(name);
        if (!ok)
            return 0;
        d = json_object_get(json_object_get(s, "dependentRequired"), key);
        for (i = 0; i < json_array_size(d); i++)
            if (!json_object_get(v, json_string_value(json_array_get(d, i))))
                return 0;
    }
    json_array_foreach(json_object_get(s, "required"), i, x) if (!json_object_get(v, json_string_value(x))) return 0;
    return within(s, "minProperties", "maxProperties", (double)json_object_size(v));
}

static int valid_choices(const json_t *s, const json_t *v)
{
    const json_t *any = json_object_get(s, "anyOf"), *one = json_object_get(s, "oneOf"),
                 *all = json_object_get(s, "allOf");
    size_t i, hits = 0, n = 0;
    json_t *x;

    json_array_foreach((json_t *)all, i, x) if (!valid(x, v)) return 0;
    json_array_foreach((json_t *)any, i, x) hits += valid(x, v) != 0;
    json_array_foreach((json_t *)one, i, x) n += valid(x, v) != 0;
    return (!any || hits) && (!one || n == 1);
}

static int valid(const json_t *s, const json_t *v)
{
    const json_t *t = json_object_get(s, "type"), *ref = json_object_get(s, "$ref"), *c = json_object_get(s, "const");
    int ok = !t;
    size_t i;
    json_t *x;

    if (!json_is_object(s))
        return !json_is_false(s);
    if (ref && !valid(json_object_get(json_object_get(root, "$defs"), strrchr(json_string_value(ref), '/') + 1), v))
        return 0;
    if (json_is_string(t))
        ok = typed(v, json_string_value(t));
    json_array_foreach((json_t *)t, i, x) ok |= typed(v, json_string_value(x));
    if (!ok || (c && !same(c, v)) || (json_object_get(s, "enum") && !among(json_object_get(s, "enum"), v)))
        return 0;
    if (!valid_choices(s, v) || (is_number(v) && !valid_number(s, v)))
        return 0;
    if (json_is_string(v) && !json_is_wide(v) && !within(s, "minLength", "maxLength", (double)length(v)))
        return 0;
    return (!json_is_array(v) || valid_array(s, v)) && (!json_is_object(v) || valid_object(s, v));
}

/* ---- random schemas ---- */

static void schema(rng *r, sbuf *b, int depth);

static const char *pick(rng *r, const char *const *list, int n)
{
    return list[rng_below(r, (uint32_t)n)];
}

static void of_number(rng *r, sbuf *b)
{
    static const char *const kinds[] = { "\"integer\"",
                                         "\"integer\",\"minimum\":-9007199254740991,\"maximum\":9007199254740991",
                                         "\"integer\",\"exclusiveMinimum\":0",
                                         "\"integer\",\"minimum\":0,\"maximum\":18446744073709551615",
                                         "\"integer\",\"minimum\":-128,\"maximum\":127",
                                         "\"integer\",\"multipleOf\":5",
                                         "\"integer\",\"multipleOf\":7,\"minimum\":0",
                                         "\"integer\",\"multipleOf\":250,\"minimum\":1000,\"maximum\":9000",
                                         "\"integer\",\"exclusiveMinimum\":-3,\"exclusiveMaximum\":12",
                                         "\"integer\",\"minimum\":1000000000000000000",
                                         "\"integer\",\"minimum\":0.5,\"maximum\":9.5",
                                         "\"number\"",
                                         "\"number\",\"minimum\":0,\"maximum\":1",
                                         "\"number\",\"exclusiveMinimum\":0",
                                         "\"number\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":1",
                                         "\"number\",\"minimum\":-90,\"maximum\":90",
                                         "\"number\",\"multipleOf\":0.01",
                                         "\"number\",\"multipleOf\":0.25,\"minimum\":0,\"maximum\":20",
                                         "\"number\",\"minimum\":-0.75,\"maximum\":-0.125",
                                         "\"number\",\"exclusiveMinimum\":99.95,\"maximum\":1000.5",
                                         "\"number\",\"maximum\":-1e20",
                                         "\"number\",\"minimum\":1e-7,\"maximum\":3e-7",
                                         "\"number\",\"minimum\":2.5,\"exclusiveMaximum\":2.75",
                                         "\"number\",\"multipleOf\":3,\"minimum\":-30",
                                         "[\"integer\",\"null\"],\"minimum\":1",
                                         "\"number\",\"exclusiveMaximum\":0",
                                         "\"number\",\"minimum\":10,\"maximum\":10",
                                         "\"number\",\"minimum\":0.1" };

    sbuf_printf(b, "{\"type\":%s}", pick(r, kinds, sizeof kinds / sizeof *kinds));
}

static void of_string(rng *r, sbuf *b)
{
    static const char *const kinds[] = {
        "",
        ",\"minLength\":1",
        ",\"maxLength\":10",
        ",\"minLength\":2,\"maxLength\":5",
        ",\"enum\":[\"red\",\"green\",\"blue\"]",
        ",\"format\":\"date-time\"",
        ",\"format\":\"date\"",
        ",\"format\":\"time\"",
        ",\"format\":\"duration\"",
        ",\"format\":\"email\"",
        ",\"format\":\"uuid\"",
        ",\"format\":\"ipv4\"",
        ",\"format\":\"ipv6\"",
        ",\"format\":\"uri\"",
        ",\"format\":\"hostname\"",
        ",\"format\":\"uri\",\"maxLength\":2083,\"minLength\":1",
        ",\"pattern\":\"^[A-Z]{3}-[0-9]+$\",\"maxLength\":9",
        ",\"pattern\":\"^[a-z]*$\",\"minLength\":4",
        ",\"const\":\"fixed\"",
        ",\"format\":\"email\",\"pattern\":\"^(?!\\\\.)(?!.*\\\\.\\\\.)([A-Za-z0-9_'+\\\\-\\\\.]*)[A-Za-z0-9_+-]@x$\"",
        ",\"title\":\"T\",\"default\":\"d\"",
        ",\"enum\":[\"a\",\"bbb\"],\"minLength\":2"
    };

    sbuf_printf(b, "{\"type\":\"string\"%s}", pick(r, kinds, sizeof kinds / sizeof *kinds));
}

static void of_array(rng *r, sbuf *b, int depth)
{
    static const char *const kinds[] = { "", ",\"minItems\":1", ",\"maxItems\":3", ",\"minItems\":2,\"maxItems\":2" };
    const unsigned which = rng_below(r, 7);

    sbuf_puts(b, "{\"type\":\"array\",");
    if (which == 0) {
        sbuf_puts(b, "\"prefixItems\":[");
        schema(r, b, depth + 1);
        sbuf_puts(b, ",{\"type\":\"boolean\"}],\"items\":false,\"minItems\":2,\"maxItems\":2}");
    } else if (which == 1) {
        sbuf_printf(b, "\"items\":%s,\"uniqueItems\":true%s}",
                    rng_below(r, 2) ? "{\"enum\":[\"a\",\"b\",\"c\"]}"
                                    : "{\"type\":\"integer\",\"minimum\":0,\"maximum\":9}",
                    pick(r, kinds, 3));
    } else if (which == 2) {
        sbuf_puts(b,
                  "\"items\":{\"type\":\"integer\"},\"contains\":{\"type\":\"integer\",\"minimum\":5,\"maximum\":7}}");
    } else {
        sbuf_puts(b, "\"items\":");
        schema(r, b, depth + 1);
        sbuf_printf(b, "%s}", pick(r, kinds, 4));
    }
}

static void of_map(rng *r, sbuf *b, int depth)
{
    static const char *const kinds[] = { "", ",\"minProperties\":1,\"maxProperties\":1",
                                         ",\"propertyNames\":{\"type\":\"string\",\"minLength\":2}",
                                         ",\"propertyNames\":{\"enum\":[\"k1\",\"k2\"]},\"maxProperties\":1" };

    sbuf_puts(b, "{\"type\":\"object\",\"additionalProperties\":");
    schema(r, b, depth + 1);
    sbuf_printf(b, "%s}", pick(r, kinds, 4));
}

static void of_object(rng *r, sbuf *b, int depth)
{
    const int n = 1 + (int)rng_below(r, 4);
    static const char *const ends[] = {
        "", ",\"additionalProperties\":false", ",\"minProperties\":1",
        ",\"dependentRequired\":{\"p0\":[\"p1\"]},\"additionalProperties\":{\"type\":\"null\"}",
        ",\"title\":\"O\",\"description\":\"d\",\"$comment\":\"c\",\"deprecated\":true"
    };

    sbuf_puts(b, "{\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < n; i++) {
        sbuf_printf(b, "%s\"p%d\":", i ? "," : "", i);
        schema(r, b, depth + 1);
    }
    sbuf_puts(b, "},\"required\":[");
    for (int i = 0, c = 0; i < n; i++)
        if (rng_below(r, 3))
            sbuf_printf(b, "%s\"p%d\"", c++ ? "," : "", i);
    sbuf_printf(b, "]%s}", pick(r, ends, sizeof ends / sizeof *ends));
}

static void of_choice(rng *r, sbuf *b, int depth)
{
    switch (rng_below(r, 7)) {
    case 0:
        sbuf_puts(b, "{\"anyOf\":[");
        schema(r, b, depth + 1);
        sbuf_puts(b, ",{\"type\":\"null\"}],\"default\":null}");
        break;
    case 1:
        sbuf_puts(
            b,
            "{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"kind\":{\"type\":\"string\",\"const\":\"a\"},\"v\":");
        schema(r, b, depth + 1);
        sbuf_puts(
            b,
            "},\"required\":[\"kind\",\"v\"]},{\"type\":\"object\",\"properties\":{\"kind\":{\"const\":\"b\"}},\"required\":[\"kind\"]}],"
            "\"discriminator\":{\"propertyName\":\"kind\"}}");
        break;
    case 2:
        sbuf_puts(
            b,
            "{\"allOf\":[{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"number\",\"minimum\":0}},\"required\":[\"x\"]},"
            "{\"properties\":{\"x\":{\"type\":\"integer\",\"maximum\":99},\"y\":");
        schema(r, b, depth + 1);
        sbuf_puts(b, "},\"required\":[\"y\"]}]}");
        break;
    case 3: sbuf_puts(b, "{\"type\":[\"string\",\"null\"],\"enum\":[\"a\",null,1]}"); break;
    case 4:
        sbuf_puts(
            b,
            "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"maxLength\":3},\"b\":{\"type\":\"boolean\"}},"
            "\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}");
        break;
    case 5: sbuf_puts(b, "{\"allOf\":[{\"$ref\":\"#/$defs/Tree\"}],\"description\":\"d\"}"); break;
    default: sbuf_puts(b, "{\"$ref\":\"#/$defs/Tree\"}"); break;
    }
}

static void schema(rng *r, sbuf *b, int depth)
{
    static const char *const leaves[] = { "{\"type\":\"boolean\"}",
                                          "{\"type\":\"null\"}",
                                          "{\"const\":\"k\"}",
                                          "{\"enum\":[1,\"2\",null,[3],{\"a\":4}]}",
                                          "{\"type\":\"object\",\"properties\":{}}",
                                          "{\"const\":18014398509481985}" };
    const unsigned which = rng_below(r, depth > 3 ? 5 : 10);

    if (which == 0)
        sbuf_puts(b, pick(r, leaves, sizeof leaves / sizeof *leaves));
    else if (which < 3)
        of_number(r, b);
    else if (which < 5)
        of_string(r, b);
    else if (which == 5)
        of_array(r, b, depth);
    else if (which == 6)
        of_map(r, b, depth);
    else if (which == 7)
        of_choice(r, b, depth);
    else
        of_object(r, b, depth);
}

static int one_schema(const char *text, size_t n, const grammar_vocab *v, rng *r, sbuf *value, kvant_diag *diag)
{
    char *gbnf = NULL;
    grammar *g = NULL;
    int done = -2;

    if (grammar_from_schema(text, n, &gbnf, diag) == KVANT_OK &&
        grammar_compile(gbnf, strlen(gbnf), &g, diag) == KVANT_OK)
        done = generate(g, v, r, value, diag);
    grammar_release(g);
    kvant_free(gbnf);
    return done;
}

static void check_random(const grammar_vocab *v, int n)
{
    rng r = { 20261129 };
    int whole = 0, repeats = 0;

    for (int i = 0; i < n; i++) {
        sbuf text = { 0 }, value = { 0 };
        json_t *s = NULL, *x = NULL;
        kvant_diag diag = { "" };
        sbuf_puts(&text, "{\"$schema\":\"https://json-schema.org/draft/2020-12/schema\",\"allOf\":[");
        schema(&r, &text, 0);
        sbuf_puts(
            &text,
            "],\"$defs\":{\"Tree\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"next\":{\"anyOf\":[{\"$ref\":"
            "\"#/$defs/Tree\"},{\"type\":\"null\"}]}},\"required\":[\"v\",\"next\"],\"additionalProperties\":false}}}");
        const int done = one_schema(text.s, text.n, v, &r, &value, &diag);
        CHECK(done >= 0, "%s: %s", text.s, diag.text);
        if (done == 1) {
            const int ok = json_read(text.s, text.n, &s, &diag) == KVANT_OK &&
                           json_read(sbuf_text(&value), value.n, &x, &diag) == KVANT_OK;
            root = s;
            whole++;
            const int again = strstr(diag.text, "duplicate object key") != NULL; /* of a map: docs/server.md */
            repeats += again;
            CHECK(again || (ok && valid(s, x)), "%s\n  gave %.*s %s", text.s, (int)value.n, sbuf_text(&value),
                  diag.text);
        }
        json_decref(s);
        json_decref(x);
        sbuf_free(&text);
        sbuf_free(&value);
    }
    CHECK(repeats < n / 20, "%d of %d values have a key twice", repeats, n);
    CHECK(whole >= n * 9 / 10, "%d of %d values are whole", whole, n);
    printf("%d schemas, %d whole values\n", n, whole);
}

/* ---- the inventory ---- */

static const struct {
    const char *name, *decision;
} words[] = {
#define WORD(name, what, why) { name, #what },
#include "server/grammar/schema_words.def"
#undef WORD
};

/* Draft 2020-12's vocabularies and OpenAPI 3.0: all of them have a decision. */
static void check_inventory(void)
{
    static const char *const standard[] = { "$schema",
                                            "$id",
                                            "$ref",
                                            "$anchor",
                                            "$dynamicRef",
                                            "$dynamicAnchor",
                                            "$vocabulary",
                                            "$comment",
                                            "$defs",
                                            "prefixItems",
                                            "items",
                                            "contains",
                                            "additionalProperties",
                                            "properties",
                                            "patternProperties",
                                            "dependentSchemas",
                                            "propertyNames",
                                            "if",
                                            "then",
                                            "else",
                                            "allOf",
                                            "anyOf",
                                            "oneOf",
                                            "not",
                                            "unevaluatedItems",
                                            "unevaluatedProperties",
                                            "type",
                                            "const",
                                            "enum",
                                            "multipleOf",
                                            "maximum",
                                            "exclusiveMaximum",
                                            "minimum",
                                            "exclusiveMinimum",
                                            "maxLength",
                                            "minLength",
                                            "pattern",
                                            "maxItems",
                                            "minItems",
                                            "uniqueItems",
                                            "maxContains",
                                            "minContains",
                                            "maxProperties",
                                            "minProperties",
                                            "required",
                                            "dependentRequired",
                                            "title",
                                            "description",
                                            "default",
                                            "deprecated",
                                            "readOnly",
                                            "writeOnly",
                                            "examples",
                                            "format",
                                            "contentEncoding",
                                            "contentMediaType",
                                            "contentSchema",
                                            "nullable",
                                            "discriminator",
                                            "xml",
                                            "externalDocs",
                                            "example",
                                            "definitions",
                                            "dependencies",
                                            "additionalItems" };
    char text[256], *gbnf, *plain = NULL;
    kvant_diag diag = { "" };

    CHECK(grammar_from_schema("{\"type\":\"string\"}", 17, &plain, &diag) == KVANT_OK, "%s", diag.text);
    for (size_t i = 0; i < sizeof standard / sizeof *standard; i++) {
        size_t k = 0;
        while (k < sizeof words / sizeof *words && strcmp(words[k].name, standard[i]) != 0)
            k++;
        CHECK(k < sizeof words / sizeof *words, "%s: no decision", standard[i]);
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        gbnf = NULL;
        snprintf(text, sizeof text, "{\"type\":\"string\",\"%s\":{}}", words[i].name);
        const int code = grammar_from_schema(text, strlen(text), &gbnf, &diag);
        if (strcmp(words[i].decision, "ANNOTATION") == 0)
            CHECK(code == KVANT_OK && strcmp(gbnf, plain) == 0, "%s: %s", words[i].name, diag.text);
        else if (strcmp(words[i].decision, "REFUSED") == 0)
            CHECK(code == KVANT_EINVAL && strstr(diag.text, words[i].name), "%s: %s", words[i].name, diag.text);
        kvant_free(gbnf);
    }
    gbnf = NULL;
    CHECK(grammar_from_schema("{\"type\":\"string\",\"planted\":1}", 29, &gbnf, &diag) == KVANT_EINVAL &&
              strstr(diag.text, "#/planted"),
          "%s", diag.text);
    kvant_free(plain);
}

/* ---- what is impossible names the place ---- */

static void check_refused(void)
{
    static const char *const cases[][2] = {
        { "{\"properties\":{\"a\":{\"not\":{}}}}", "#/properties/a/not" },
        { "{\"if\":{},\"then\":{}}", "#/if" },
        { "{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}", "#/minimum" },
        { "{\"type\":\"number\",\"exclusiveMinimum\":1,\"maximum\":1}", "#/minimum" },
        { "{\"type\":\"string\",\"const\":5}", "#/enum" },
        { "{\"type\":[\"string\"],\"enum\":[1,2]}", "#/enum" },
        { "{\"allOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}", "#/type" },
        { "{\"type\":\"string\",\"pattern\":\"^\\\\u-161a$\"}", "escape cut short" },
        { "{\"allOf\":[{\"pattern\":\"a\"},{\"pattern\":\"b\"}]}", "#/pattern" },
        { "{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"string\",\"minLength\":1}]}", "#/oneOf" },
        { "{\"$ref\":\"http://x/y\"}", "#/$ref" },
        { "{\"allOf\":[{\"$ref\":\"#\"}]}", "#/$ref" },
        { "{\"$defs\":{\"a\":{\"allOf\":[{\"$ref\":\"#/$defs/a\"}]}},\"$ref\":\"#/$defs/a\"}", "leads to itself, or is more than 48" },
        { "{\"type\":\"array\",\"items\":{\"enum\":[1,1.0]},\"uniqueItems\":true,\"minItems\":2}", "#/minItems" },
        { "{\"type\":\"string\",\"format\":\"nonsense\"}", "#/format" },
        { "{\"type\":\"string\",\"format\":\"uuid\",\"maxLength\":5}", "#/format" },
        { "{\"type\":\"integer\",\"multipleOf\":10,\"minimum\":1,\"maximum\":9}", "#/multipleOf" },
        { "{\"type\":\"object\",\"properties\":{\"a\":true},\"minProperties\":2}", "#/minProperties" },
        { "{\"type\":\"string\",\"pattern\":\"^[ab]{3}$\",\"maxLength\":2}", "#/pattern" },
        { "{\"multipleOf\":0}", "#/multipleOf" }
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *gbnf = NULL;
        kvant_diag diag = { "" };
        const int code = grammar_from_schema(cases[i][0], strlen(cases[i][0]), &gbnf, &diag);
        CHECK(code == KVANT_EINVAL && strstr(diag.text, cases[i][1]), "%s: %d %s, want %s", cases[i][0], code,
              diag.text, cases[i][1]);
        kvant_free(gbnf);
    }
}

static void from_input(const grammar_vocab *v)
{
    static char line[1 << 20];
    rng r = { 7 };

    while (fgets(line, sizeof line, stdin)) {
        sbuf value = { 0 };
        kvant_diag diag = { "" };
        const int done = one_schema(line, strlen(line), v, &r, &value, &diag);
        sbuf_puts(&value, "");
        for (size_t i = 0; i < value.n; i++)
            value.s[i] = value.s[i] == '\n' ? ' ' : value.s[i];
        printf("%d\t%s\n", done, done < 0 ? diag.text : sbuf_text(&value));
        sbuf_free(&value);
    }
}

int main(int argc, char **argv)
{
    grammar_vocab *v = vocabulary();

    if (argc > 1 && strcmp(argv[1], "-") == 0) {
        from_input(v);
        grammar_vocab_free(v);
        return 0;
    }
    check_inventory();
    check_refused();
    check_random(v, check_sanitized ? 300 : 2000);
    grammar_vocab_free(v);
    return check_end("check_server_schema");
}
