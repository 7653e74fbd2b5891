/* check_server_tool_cuts.c: calls that may not run: without a parameter that the tool requires, and cut by max_tokens.
 *
 * A call that lacks a required parameter is text, all of it, in every dialect and form; one of a wrong type is a call.
 * An answer that is cut anywhere in its calls has those that are whole, and of the next no more than pieces of JSON
 * where a grammar holds, else nothing. */
#include "base/error.h"
#include "server/tools/tool_grammar.h"
#include "support/tool_texts.h"

#define DEFS                                                                                                           \
    "{\"type\":\"object\",\"properties\":{\"to\":{\"type\":\"string\"}},\"required\":[\"to\"]}"
#define TOOLS                                                                                                          \
    "[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":{\"type\":\"object\",\"properties\":"   \
    "{\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"}},\"required\":[\"city\"]}}},"                     \
    "{\"type\":\"function\",\"function\":{\"name\":\"now\"}},"                                                         \
    "{\"type\":\"function\",\"function\":{\"name\":\"send\",\"parameters\":{\"$defs\":{\"T\":" DEFS "},"               \
    "\"allOf\":[{\"$ref\":\"#/$defs/T\"}],\"properties\":{\"body\":{}},\"required\":[\"body\",\"to\"]}}}]"

enum { GUARDED = 1, WANTED = 2, CUT = 4 };

/* The first n bytes of the text, in pieces of `step`. */
static seen read_text(const dialect *d, const tool_set *tools, const char *s, size_t n, size_t step, int how)
{
    seen e = { .last = -1, .calls = json_array(), .tools = tools };
    tool_parser p = { .d = d,
                      .tools = tools,
                      .emit = on_event,
                      .user = &e,
                      .guarded = (how & GUARDED) != 0,
                      .wanted = (how & WANTED) != 0 };

    tool_parser_begin(&p, 0);
    for (size_t i = 0; i < n; i += step)
        CHECK(tool_parser_feed(&p, s + i, step < n - i ? step : n - i) == KVANT_OK, "feed");
    p.cut = (how & CUT) != 0;
    CHECK(tool_parser_end(&p) == KVANT_OK, "end");
    tool_parser_free(&p);
    return e;
}

/* Without blanks, and without what belongs to the dialect's format. */
static void put_bare(sbuf *b, const char *s, const char *drops)
{
    size_t n = strlen(s), used;

    for (size_t i = 0; i < n;) {
        const int drop = drops ? pattern_match(drops, PATTERN_ALL, s + i, n - i, &used) : MATCH_NO;
        if (drop == MATCH_FULL && used) {
            i += used;
            continue;
        }
        if (!strchr(" \n", s[i]))
            sbuf_put(b, s + i, 1);
        i++;
    }
}

static void check_text(const dialect *d, const seen *e, const char *text)
{
    sbuf got = { 0 }, want = { 0 };

    put_bare(&got, sbuf_text(&e->text), d->drop);
    put_bare(&want, text, d->drop);
    CHECK(strcmp(sbuf_text(&got), sbuf_text(&want)) == 0, "%s: not all of it is text: %s\n%s", d->name, text,
          sbuf_text(&e->flat));
    sbuf_free(&got);
    sbuf_free(&want);
}

/* calls: a list of [name, arguments]; ok: how many of them may run, the first ones. */
static const struct {
    const char *calls;
    int ok;
} own[] = {
    { "[[\"weather\",{}]]", 0 },
    { "[[\"weather\",{\"days\":3}]]", 0 },
    { "[[\"weather\",{\"City\":\"Paris\"}]]", 0 },
    { "[[\"send\",{}]]", 0 },
    { "[[\"send\",{\"to\":\"a\"}]]", 0 },
    { "[[\"send\",{\"body\":\"a\"}]]", 0 },
    { "[[\"now\",{}]]", 1 },
    { "[[\"now\",{\"zone\":\"CET\"}]]", 1 },
    { "[[\"weather\",{\"city\":\"Paris\"}]]", 1 },
    { "[[\"weather\",{\"city\":7}]]", 1 },
    { "[[\"weather\",{\"city\":\"\"}]]", 1 },
    { "[[\"send\",{\"to\":\"a\",\"body\":null}]]", 1 },
    { "[[\"now\",{}],[\"weather\",{}]]", 1 },
    { "[[\"weather\",{\"city\":\"Paris\"}],[\"send\",{\"to\":\"a\"}]]", 1 },
};

static void check_own(const dialect *d, const tool_set *tools)
{
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        json_t *calls = json_loads(own[i].calls, 0, NULL);
        sbuf text = { 0 };
        if (d->single && json_array_size(calls) > 1) {
            json_decref(calls);
            continue;
        }
        put_calls(&text, d, calls);
        for (size_t step = 1; step <= text.n; step += text.n / 3 + 1) {
            seen e = read_text(d, tools, text.s, text.n, step, 0);
            CHECK((int)json_array_size(e.calls) == own[i].ok && !e.bad && !e.open, "%s: %s\n%s", d->name, text.s,
                  sbuf_text(&e.flat));
            if (own[i].ok == 0)
                check_text(d, &e, text.s);
            else if (own[i].ok == (int)json_array_size(calls))
                CHECK(e.text.n == 0, "%s: %s\n%s", d->name, text.s, sbuf_text(&e.flat));
            seen_free(&e);
        }
        sbuf_free(&text);
        json_decref(calls);
    }
}

/* Forms of weather(...): {before, behind the arguments}. */
static const char *const forms[][2] = {
    { "<tool_call>{\"name\": \"weather\", \"arguments\": ", "}</tool_call>" },
    { "<tool_call>\n{\"name\": \"weather\", \"arguments\": ", "}\n</tool_call>" },
    { "<tool_call>{\"arguments\": ", ", \"name\": \"weather\"}</tool_call>" },
    { "<tool_call>{\"type\": \"function\", \"function\": {\"name\": \"weather\", \"parameters\": ", "}}</tool_call>" },
    { "<tool_call>{\"weather\": ", "}</tool_call>" },
    { "<tool_call>weather\n", "</tool_call>" },
    { "<tool_call>[{\"name\": \"weather\", \"arguments\": ", "}]</tool_call>" },
    { "<function_call>{\"name\": \"weather\", \"arguments\": ", "}</function_call>" },
    { "[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": ", "}]" },
    { "[TOOL_CALLS]weather[ARGS]", "" },
    { "<TOOLCALL>[{\"name\": \"weather\", \"arguments\": ", "}]</TOOLCALL>" },
    { "{\"name\": \"weather\", \"arguments\": ", "}" },
    { "[{\"name\": \"weather\", \"parameters\": ", "}]" },
    { "I look.\n\n```json\n{\"name\": \"weather\", \"args\": ", "}\n```" },
    { "{\"tool_calls\": [{\"type\": \"function\", \"function\": {\"name\": \"weather\", \"arguments\": ", "}}]}" },
};

static void check_forms(const dialect *d, const tool_set *tools)
{
    static const char *const args[] = { "{}", "{\"days\": 3}", "{ \"CITY\": \"Paris\"}", "{\"city\": \"Paris\"}",
                                        "{\"city\": null}", "{'city': 'Paris'}" };

    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        for (size_t k = 0; k < sizeof args / sizeof args[0]; k++) {
            sbuf text = { 0 };
            sbuf_printf(&text, "%s%s%s", forms[i][0], args[k], forms[i][1]);
            for (size_t step = 1; step <= text.n; step += text.n / 2) {
                seen e = read_text(d, tools, text.s, text.n, step, 0);
                CHECK(json_array_size(e.calls) == (k > 2) && !e.bad && !e.open, "%s: %s\n%s", d->name, text.s,
                      sbuf_text(&e.flat));
                if (k <= 2)
                    check_text(d, &e, text.s);
                seen_free(&e);
            }
            sbuf_free(&text);
        }
}

/* ---- cuts ---- */

/* The first n bytes: calls that are whole, and nothing that could run or be read as an answer. */
static void check_cut(const dialect *d, const tool_set *tools, const sbuf *text, size_t n, int how)
{
    seen e = read_text(d, tools, text->s, n, 1 + n % 5, how | CUT);

    CHECK(!e.bad && e.open <= ((how & GUARDED) != 0) && json_array_size(e.calls) <= 2, "%s, cut at %zu: %s\n%s",
          d->name, n, text->s, sbuf_text(&e.flat));
    if (e.open) {
        json_t *v = json_loadb(sbuf_text(&e.args), e.args.n, 0, NULL);
        CHECK(!v && e.args.n > 0 && e.args.s[0] == '{', "%s, cut at %zu: a call of %s", d->name, n, sbuf_text(&e.args));
        json_decref(v);
    }
    if (how & WANTED)
        CHECK(e.text.n == 0, "%s, cut at %zu of %s: text %s", d->name, n, text->s, sbuf_text(&e.text));
    else /* the trigger itself may be cut: that is text as it came */
        CHECK(!strstr(sbuf_text(&e.text), "weather") && !strstr(sbuf_text(&e.text), "send"),
              "%s, cut at %zu of %s: text %s", d->name, n, text->s, sbuf_text(&e.text));
    seen_free(&e);
}

static void check_cuts(const dialect *d, const tool_set *tools)
{
    json_t *calls = json_loads("[[\"weather\",{\"city\":\"New {York}\\\"\",\"days\":3}],[\"send\",{\"to\":\"a\",\"body\":"
                               "\"[1, {\"}]]", 0, NULL);
    sbuf text = { 0 };

    if (d->single)
        json_array_remove(calls, 1);
    put_calls(&text, d, calls);
    for (size_t n = 0; n <= text.n; n++)
        for (int how = 0; how < 4; how++)
            check_cut(d, tools, &text, n, how);
    sbuf_free(&text);
    json_decref(calls);
}

/* ---- grammars of schemas that they cannot hold ---- */

static void check_loose_grammar(void)
{
    static const char *const schemas[] = {
        "{\"type\":\"object\",\"properties\":{\"a\":{}},\"required\":[\"a\",\"b\"],\"unknownWord\":1,\"not\":{}}",
        "{\"type\":\"object\",\"required\":[\"a\",\"b\"],\"patternProperties\":{\"(?<n>x)\":{}},\"minProperties\":9}",
        "{\"required\":[\"a\",\"b\",\"a\"],\"if\":{\"properties\":{}},\"then\":{\"not\":{\"required\":[\"a\"]}}}",
        "{\"type\":\"object\",\"required\":[\"a\",\"b\"],\"additionalProperties\":{\"type\":\"integer\"}}",
    };
    static const char *const names[] = { "hermes", "mistral_args", "llama3", "hermes", "mistral_args", "llama3",
                                         "glm", "qwen3_coder", "pythonic", "gemma4" };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *schema = schemas[i < 6 ? i % 3 : 3];
        kvant_diag diag = { "" };
        json_t *list = json_pack("[{s:s,s:{s:s,s:o}}]", "type", "function", "function", "name", "f", "parameters",
                                 json_loads(schema, 0, NULL));
        tool_set *tools = tools_of(list);
        const tool_rules rules = { .d = dialect_named(names[i]), .tools = tools, .only = -1, .from_start = 1 };
        char *gbnf = NULL;
        CHECK(tool_grammar(&rules, &gbnf, &diag) == KVANT_OK, "%s: %s", schema, diag.text);
        const char *rule = i < 6 ? "\ns0 ::= \"{\" ws \"\\\"a\\\"\"" : "\nt0-a0 ::= t0-k0 t0-b1\n";
        CHECK(gbnf && strstr(gbnf, rule), "%s, %s: %s", names[i], schema, gbnf ? gbnf : "");
        kvant_free(gbnf);
        tool_set_free(tools);
        json_decref(list);
    }
}

int main(void)
{
    json_t *list = json_loads(TOOLS, 0, NULL);
    tool_set *tools = tools_of(list);

    for (int i = 0; i < dialect_count(); i++) {
        check_own(dialect_at(i), tools);
        check_forms(dialect_at(i), tools);
        check_cuts(dialect_at(i), tools);
    }
    check_loose_grammar();
    tool_set_free(tools);
    json_decref(list);
    return check_end("check_server_tool_cuts");
}
