/* schema_values.c: strings of a JSON schema as alternatives of a grammar; numbers are in schema_numbers.c.  How a text
 * of each format is written is narrower than the formats: no comments in addresses, no leap seconds. */
#include <string.h>
#include "base/error.h"
#include "server/grammar/grammar_pattern.h"
#include "server/grammar/grammar_schema.h"

/* rule NULL: any string; lengths that it can have. */
typedef struct schema_format {
    const char *name, *rule; /* rule NULL: any string */
    int least, most;
} schema_format;

static const schema_format schema_formats[] = {
    { "date", "date", 10, 10 },
    { "time", "time", 9, 24 },
    { "date-time", "date \"T\" time", 20, 35 },
    { "duration", "duration", 3, 24 },
    { "email", "email", 6, 156 },
    { "idn-email", "email", 6, 156 },
    { "hostname", "hostname", 1, 131 },
    { "idn-hostname", "hostname", 1, 131 },
    { "ipv4", "ipv4", 7, 15 },
    { "ipv6", "ipv6", 2, 39 },
    { "uuid", "uuid", 36, 36 },
    { "uri", "uri", 11, 500 },
    { "url", "uri", 11, 500 },
    { "iri", "uri", 11, 500 },
    { "uri-reference", "uri", 11, 500 },
    { "iri-reference", "uri", 11, 500 },
    { "uri-template", "uri", 11, 500 },
    { "http-url", "uri", 11, 500 },
    { "multi-host-uri", "uri", 11, 500 },
    { "json-pointer", "(\"/\" [A-Za-z0-9_-]{1,32}){0,6}", 0, 198 },
    { "relative-json-pointer", "(\"0\" | [1-9]) (\"/\" [A-Za-z0-9_-]{1,32}){0,6}", 1, 199 },
    { "regex", "[A-Za-z0-9_ -]{0,64}", 0, 64 },
    { "byte", "([A-Za-z0-9+/]{4}){0,64}", 0, 256 },
    { "base64", "([A-Za-z0-9+/]{4}){0,64}", 0, 256 },
    { "base64url", "([A-Za-z0-9_-]{4}){0,64}", 0, 256 },
    { "ipv4network", "ipv4 \"/32\"", 10, 18 },
    { "ipvanyaddress", "ipv4", 7, 15 },
    { "uuid1", "uuid", 36, 36 },
    { "uuid3", "uuid", 36, 36 },
    { "uuid4", "hex{8} \"-\" hex{4} \"-4\" hex{3} \"-\" [89ab] hex{3} \"-\" hex{12}", 36, 36 },
    { "uuid5", "uuid", 36, 36 },
    { "binary", NULL, 0, 0 },
    { "password", NULL, 0, 0 },
    { "path", NULL, 0, 0 },
    { "file-path", NULL, 0, 0 },
    { "directory-path", NULL, 0, 0 },
    { "json-string", NULL, 0, 0 },
    { "textarea", NULL, 0, 0 },
    { "markdown", NULL, 0, 0 },
};

const char schema_format_rules[] =
    "date ::= [12] [0-9]{3} \"-\" ((\"0\" [13578] | \"1\" [02]) \"-\" (day28 | \"29\" | \"3\" [01]) | "
    "(\"0\" [469] | \"11\") \"-\" (day28 | \"29\" | \"30\") | \"02-\" day28)\n"
    "day28 ::= \"0\" [1-9] | \"1\" [0-9] | \"2\" [0-8]\n"
    "time ::= ([01] [0-9] | \"2\" [0-3]) \":\" [0-5] [0-9] \":\" [0-5] [0-9] (\".\" [0-9]{1,9})? "
    "(\"Z\" | [-+] ([01] [0-9] | \"2\" [0-3]) \":\" [0-5] [0-9])\n"
    "count ::= [0-9] | [1-9] [0-9]{1,3}\n"
    "duration ::= \"P\" (count \"W\" | count \"D\" (\"T\" clock)? | count \"Y\" (count \"M\" (count \"D\")?)? | "
    "\"T\" clock)\n"
    "clock ::= count \"H\" (count \"M\" (count \"S\")?)? | count \"M\" (count \"S\")? | count \"S\"\n"
    "uuid ::= hex{8} \"-\" hex{4} \"-\" hex{4} \"-\" hex{4} \"-\" hex{12}\n"
    "octet ::= [0-9] | [1-9] [0-9] | \"1\" [0-9]{2} | \"2\" [0-4] [0-9] | \"25\" [0-5]\n"
    "ipv4 ::= octet (\".\" octet){3}\n"
    "h16 ::= hex{1,4}\n"
    "ipv6 ::= (h16 \":\"){7} h16 | \"::\" h16? | (h16 \":\"){1,5} \":\" h16\n"
    "label ::= [A-Za-z0-9] ([A-Za-z0-9-]{0,30} [A-Za-z0-9])?\n"
    "hostname ::= label (\".\" label){0,3}\n"
    "mailbox ::= [A-Za-z0-9_+-]{1,32}\n"
    "email ::= mailbox (\".\" mailbox)? \"@\" label (\".\" label)? \".\" [A-Za-z]{2,24}\n"
    "uriword ::= [A-Za-z0-9._~-]{1,40}\n"
    "uri ::= (\"https\" | \"http\" | \"ftp\") \"://\" label (\".\" label)? \".\" [a-z]{2,24} "
    "(\":\" [1-9] [0-9]{0,3})? (\"/\" uriword){0,6} \"/\"? (\"?\" uriword \"=\" uriword)? (\"#\" uriword)?\n";

static const schema_format *find_format(const char *name)
{
    for (size_t i = 0; name && i < sizeof schema_formats / sizeof *schema_formats; i++)
        if (strcmp(schema_formats[i].name, name) == 0)
            return &schema_formats[i];
    return NULL;
}

static void put_plain(schema_maker *m, int least, int most)
{
    if (most < 0 && !least)
        sbuf_puts(&m->out, "string");
    else if (most < 0)
        sbuf_printf(&m->out, "\"\\\"\" char{%d,} \"\\\"\"", least);
    else if (most == 0)
        sbuf_puts(&m->out, "\"\\\"\\\"\"");
    else
        sbuf_printf(&m->out, "\"\\\"\" char{%d,%d} \"\\\"\"", least, most);
}

static int put_format(schema_maker *m, int at, const schema_format *f, int least, int most)
{
    if (!f->rule) {
        put_plain(m, least, most);
        return KVANT_OK;
    }
    if (least > f->least || (most >= 0 && most < f->most && f->most != 500))
        return schema_fail(m, at, "format", "its texts do not all have the lengths that are wanted");
    if (most >= 0 && most < f->most) { /* addresses of the web: short ones */
        if (most < 40 || least > f->least)
            return schema_fail(m, at, "maxLength", "too short for this format");
        sbuf_puts(&m->out,
                  "\"\\\"\" \"https://\" [a-z] [a-z0-9]{0,15} \".\" [a-z]{2,6} (\"/\" [a-z0-9]{0,7})? \"\\\"\"");
        return KVANT_OK;
    }
    sbuf_printf(&m->out, "\"\\\"\" (%s) \"\\\"\"", f->rule);
    return KVANT_OK;
}

/* Patterns that look around, which a grammar cannot, and what of the formats they stand beside obeys them (zod's). */
static int is_known(const char *pattern, const schema_format *f)
{
    static const char mail[] = "^(?!\\.)(?!.*\\.\\.)";

    return f && f->rule && strcmp(f->rule, "email") == 0 && strncmp(pattern, mail, sizeof mail - 1) == 0;
}

/* The pattern's texts of these lengths; where it may repeat without end, so often that they fit. */
static int put_pattern(schema_maker *m, int at, const char *pattern, int least, int most)
{
    static const int caps[] = { -1, 256, 64, 32, 16, 8, 4, 2, 1, 0 };
    const size_t from = m->out.n;
    kvant_diag why = { "" };

    for (size_t i = 0; i < sizeof caps / sizeof *caps; i++)
        for (int more = 0; more <= least && more <= GRAMMAR_MAX_REPEAT / 2; more = more ? more * 2 : 1) {
            pattern_lengths n = { .more = more, .cap = caps[i], .whole = least > 0 || most >= 0 };
            m->out.n = from;
            if (grammar_from_pattern(pattern, &n, &m->out, &why) != KVANT_OK)
                return schema_fail(m, at, "pattern", why.text);
            if (n.least >= least && (most < 0 || (n.most >= 0 && n.most <= most)))
                return KVANT_OK;
            if (least == 0 || strlen(pattern) > 2048)
                break;
        }
    return schema_fail(m, at, "pattern", "its texts do not all have the lengths that are wanted");
}

int schema_put_string(schema_maker *m, int at)
{
    const json_t *schema = m->jobs[at].schema, *pattern = json_object_get(schema, "pattern");
    const json_t *name = json_object_get(schema, "format");
    const schema_format *f = find_format(json_string_value(name));
    int least, most;

    KVANT_TRY(schema_count(m, at, "minLength", 0, &least));
    KVANT_TRY(schema_count(m, at, "maxLength", -1, &most));
    if (most >= 0 && most < least)
        return schema_fail(m, at, "maxLength", "below minLength");
    if (pattern && !json_is_string(pattern))
        return schema_fail(m, at, "pattern", "wanted a string");
    if (pattern && !is_known(json_string_value(pattern), f)) /* it says more than the format */
        return put_pattern(m, at, json_string_value(pattern), least, most);
    if (name && !f)
        return schema_fail(m, at, "format", json_is_string(name) ? "not known" : "wanted a string");
    if (f)
        return put_format(m, at, f, least, most);
    put_plain(m, least, most);
    return KVANT_OK;
}
