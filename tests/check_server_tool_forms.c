/* check_server_tool_forms.c: tool calls in other forms than the dialect's own, and values of random schemas.
 *
 * Forms that models are known to write are read in every dialect, whatever the cuts.  Calls of random tools, their
 * values drawn from the schemas and written as a template writes them, come out as they were drawn, cut at every byte.
 * Random changes of such texts are calls or text: never half, and never arguments that are no JSON. */
#include "base/rng.h"
#include "server/tools/tool_schema.h"
#include "support/tool_texts.h"

static struct {
    long long schemas, calls, cuts, texts; /* drawn; places where texts were cut, and these texts */
} counts;

/* step 0: two pieces, cut at `at`. */
static seen parse(const dialect *d, const thinking *t, int thinks, const tool_set *tools, const sbuf *text, size_t at,
                  size_t step)
{
    seen e = { .last = -1, .calls = json_array(), .tools = tools };
    tool_parser p = { .d = d, .t = t, .tools = tools, .emit = on_event, .user = &e };

    tool_parser_begin(&p, thinks);
    if (step) {
        for (size_t i = 0; i < text->n; i += step)
            tool_parser_feed(&p, text->s + i, step < text->n - i ? step : text->n - i);
    } else {
        tool_parser_feed(&p, text->s, at);
        tool_parser_feed(&p, text->s + at, text->n - at);
    }
    tool_parser_end(&p);
    tool_parser_free(&p);
    return e;
}

/* Every cut gives what the whole gives. */
static void check_cuts(const dialect *d, const thinking *t, int thinks, const tool_set *tools, const sbuf *text,
                       size_t every)
{
    seen whole = parse(d, t, thinks, tools, text, text->n, 0), bytes = parse(d, t, thinks, tools, text, 0, 1);

    CHECK(strcmp(sbuf_text(&whole.flat), sbuf_text(&bytes.flat)) == 0, "%s, byte by byte: %s\n%s\n%s", d->name, text->s,
          sbuf_text(&whole.flat), sbuf_text(&bytes.flat));
    counts.texts++;
    for (size_t i = 1; i < text->n; i += every) {
        counts.cuts++;
        seen cut = parse(d, t, thinks, tools, text, i, 0);
        CHECK(strcmp(sbuf_text(&whole.flat), sbuf_text(&cut.flat)) == 0, "%s, cut at %zu: %s\n%s\n%s", d->name, i,
              text->s, sbuf_text(&whole.flat), sbuf_text(&cut.flat));
        seen_free(&cut);
    }
    CHECK(!whole.bad && whole.open == 0, "%s: half a call: %s\n%s", d->name, text->s, sbuf_text(&whole.flat));
    seen_free(&whole);
    seen_free(&bytes);
}

/* ---- forms ---- */

#define TOOLS                                                                                                          \
    "[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":{\"type\":\"object\",\"properties\":"   \
    "{\"city\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]},\"days\":{\"type\":\"integer\"}},"              \
    "\"required\":[\"city\"]}}},{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]"
#define A "{\"city\": \"Paris\", \"days\": 3}"
#define BAR "\xEF\xBD\x9C"
#define CALL "{\"name\": \"weather\", \"arguments\": " A "}"

static const char *const forms[] = {
    "<tool_call>" CALL "</tool_call>",
    "<tool_call>\n" CALL "\n</tool_call>",
    "<tool_call>" CALL,
    "I look.\n<tool_call>\n" CALL "\n</tool_call>",
    "<tool_call>{\"arguments\": " A ", \"name\": \"weather\"}</tool_call>",
    "<tool_call>{\"type\": \"function\", \"name\": \"weather\", \"parameters\": " A "}</tool_call>",
    "<tool_call>{\"id\": \"call_1\", \"type\": \"function\", \"function\": " CALL "}</tool_call>",
    "<tool_call>{\"function\": \"weather\", \"arguments\": " A "}</tool_call>",
    "<tool_call>{\"name\": \"weather\", \"arguments\": \"{\\\"city\\\": \\\"Paris\\\", \\\"days\\\": 3}\"}</tool_call>",
    "<tool_call>[" CALL "]</tool_call>",
    "<tool_call>{'name': 'weather', 'arguments': {'city': 'Paris', 'days': 3}}</tool_call>",
    "<tool_call>\n```json\n" CALL "\n```\n</tool_call>",
    "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\", \"days\": 3,},}</tool_call>",
    "<tool_call>\n{\n  \"name\": \"weather\",\n  \"arguments\": {\n    \"city\": \"Paris\",\n    \"days\": 3\n  }\n}\n</tool_call>",
    "<tool_call>weather\n" A "</tool_call>",
    "<tool_call>[weather(city='Paris', days=3)]</tool_call>",
    "<tool_call>{\"weather\": " A "}</tool_call>",
    "<tool_calls>[" CALL "]</tool_calls>",
    "<function_call>" CALL "</function_call>",
    "<tools>\n" CALL "\n</tools>",
    "[TOOL_CALLS][" CALL "]",
    "[TOOL_CALLS]weather[ARGS]" A,
    "[TOOL_CALLS]weather" A,
    "<TOOLCALL>[" CALL "]</TOOLCALL>",
    "<|tool_call|>[" CALL "]",
    CALL,
    "\n\n" CALL "\n",
    "[" CALL "]",
    "{\"type\": \"function\", \"name\": \"weather\", \"parameters\": " A "}",
    "{\"name\": \"weather\", \"args\": " A "}",
    "{\"tool_name\": \"weather\", \"parameters\": " A "}",
    "{\"name\": \"functions.weather\", \"arguments\": " A "}",
    "```json\n" CALL "\n```",
    "```\n" CALL "\n```\n",
    "I look.\n" CALL,
    "I look.\n\n```json\n" CALL "\n```",
    "[weather(city=\"Paris\", days=3)]",
    "[weather(city='Paris', days=3)]",
    "```tool_code\nweather(city='Paris', days=3)\n```",
    "functools[{\"arguments\": " A ", \"name\": \"weather\"}]",
    "<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n"
    "</tool_call>",
    "<function name=\"weather\"><parameter name=\"city\">Paris</parameter><parameter name=\"days\">3</parameter></function>",
    "<function name='weather'><param name='city'>Paris</param><param name='days'>3</param></function>",
    "<function=weather><parameter=city>Paris<parameter=days>3</function>",
    "<function=weather>" A "</function>",
    "<function_calls>\n<invoke name=\"weather\">\n<parameter name=\"city\">Paris</parameter>\n"
    "<parameter name=\"days\" type=\"integer\">3</parameter>\n</invoke>\n</function_calls>",
    "<minimax:tool_call><invoke name=\"weather\"><parameter name=\"city\">Paris</parameter><parameter name=\"days\">3</parameter>"
    "</invoke></minimax:tool_call>",
    "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n"
    "<arg_value>3</arg_value>\n</tool_call>",
    "weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>",
    "<" BAR "DSML" BAR "function_calls><" BAR "DSML" BAR "invoke name=\"weather\"><" BAR "DSML" BAR "parameter name=\"city\">"
    "Paris</" BAR "DSML" BAR "parameter><" BAR "DSML" BAR "parameter name=\"days\" string=\"false\">3</" BAR "DSML" BAR
    "parameter></" BAR "DSML" BAR "invoke></" BAR "DSML" BAR "function_calls>",
    "<|tool_calls_section_begin|><|tool_call_begin|>weather:0<|tool_call_argument_begin|>" A
    "<|tool_call_end|><|tool_calls_section_end|>",
    "[weather(\n    city='Paris',\n    days=3,\n)]",
    "[weather(city=\"Paris\", days=3,),\n]",
    "{\"tool_calls\": [{\"id\": \"1\", \"type\": \"function\", \"function\": " CALL "}]}",
};

static const char *const no_forms[] = {
    "So: " CALL,
    CALL " is how a call looks.",
    "```json\n" CALL "\n```\nThat is how it looks.",
    "<tool_call>{\"name\": \"nobody\", \"arguments\": {}}</tool_call>",
    "{\"name\": \"weather\", \"arguments\": " A ", \"age\": 3}",
    "{\"city\": \"Paris\"}",
    "[1, 2, 3]",
    "[weather](http://x)",
    "```python\nprint('weather')\n```",
    "{\"name\": \"weather\"}", /* a tool that wants a city does not run without */
    "{\"name\": \"weather\", \"arguments\": [1]}",
    "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\":",
    "a < b and [x] {y} <tool",
    "weather\nis fine",
    "weather(city='Paris') is how it looks.",
    "weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value> is how it looks.",
    "<function name=\"nobody\"><parameter name=\"city\">Paris</parameter></function>",
    "<function name=\"weather\"><parameter name=\"days\">3</parameter></function>",
    "<tool_call><function=weather>\n<parameter=city",
    "<invoke name=\"weather\">",
    "<function=weather>",
    "```\nnow\n```",
};

static void check_forms(void)
{
    json_t *list = json_loads(TOOLS, 0, NULL), *want = json_loads("[[\"weather\", " A "]]", 0, NULL);
    tool_set *tools = tools_of(list);

    for (int k = 0; k < dialect_count(); k++) {
        const dialect *d = dialect_at(k);
        for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
            const sbuf text = { .s = (char *)forms[i], .n = strlen(forms[i]) };
            seen e = parse(d, NULL, 0, tools, &text, text.n, 0);
            const int strong = strncmp(forms[i], "I look.\n{", 9) != 0;
            if (strong || !d->at_start)
                CHECK(json_equal(e.calls, want), "%s: %s\n%s", d->name, forms[i], sbuf_text(&e.flat));
            if (strncmp(forms[i], "functools", 9) == 0) /* nor is a bracket of it left */
                CHECK(e.text.n == 0, "%s: %s\n%s", d->name, forms[i], sbuf_text(&e.flat));
            seen_free(&e);
            check_cuts(d, NULL, 0, tools, &text, 1);
        }
        for (size_t i = 0; i < sizeof no_forms / sizeof no_forms[0]; i++) {
            const sbuf text = { .s = (char *)no_forms[i], .n = strlen(no_forms[i]) };
            seen e = parse(d, NULL, 0, tools, &text, text.n, 0);
            if (!d->at_start) /* theirs are told at once */
                CHECK(json_array_size(e.calls) == 0 && strcmp(sbuf_text(&e.text), no_forms[i]) == 0, "%s: %s\n%s",
                      d->name, no_forms[i], sbuf_text(&e.flat));
            seen_free(&e);
            check_cuts(d, NULL, 0, tools, &text, 1);
        }
    }
    tool_set_free(tools);
    json_decref(list);
    json_decref(want);
}

/* ---- random schemas, and values of them ---- */

static json_t *random_text(rng *r)
{
    static const char *const parts[] = { "Paris", " ", "\n", "\"", "'", "é", "😀", "{", "}", "[1]", "<b>", "</", "3",
                                         "null", "true", ",", "=", ")", "\\", "a: b", "\t", "|", "&amp;", "None" };
    sbuf b = { 0 };

    for (int n = (int)rng_below(r, 6); n > 0; n--)
        sbuf_puts(&b, parts[rng_below(r, sizeof parts / sizeof parts[0])]);
    json_t *v = json_string(sbuf_text(&b));
    sbuf_free(&b);
    return v;
}

static json_t *random_any(rng *r, int depth)
{
    json_t *v;

    switch (rng_below(r, depth > 2 ? 5 : 7)) {
    case 0: return json_null();
    case 1: return json_boolean(rng_below(r, 2));
    case 2: return json_integer((json_int_t)rng_u64(r));
    case 3: return json_real((double)(int)rng_below(r, 1000) / 8 - 20);
    case 4: return random_text(r);
    case 5: v = json_array(); break;
    default: v = json_object();
    }
    for (int n = (int)rng_below(r, 3); n > 0; n--) {
        char key[8];
        snprintf(key, sizeof key, "k%d", n);
        if (json_is_array(v))
            json_array_append_new(v, random_any(r, depth + 1));
        else
            json_object_set_new(v, key, random_any(r, depth + 1));
    }
    return v;
}

/* A schema, and in *v a value that it accepts. */
static json_t *random_schema(rng *r, json_t **v)
{
    static const char *const spelled[] = { "{\"type\":\"string\"}",
                                           "{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}",
                                           "{\"type\":[\"string\",\"null\"]}",
                                           "{\"type\":\"string\",\"minLength\":1}",
                                           "{\"type\":\"string\",\"pattern\":\"^.*$\"}",
                                           "{\"$ref\":\"#/$defs/Name\"}",
                                           "{\"allOf\":[{\"$ref\":\"#/$defs/Name\"}],\"default\":\"\"}",
                                           "{\"type\":\"string\",\"format\":\"uri\"}",
                                           "{\"type\":\"string\",\"nullable\":true}",
                                           "{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}",
                                           "{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"array\"}]}",
                                           "{\"title\":\"T\"}",
                                           "true" };
    static const char *const others[][2] = { { "{\"type\":\"integer\"}", "7" },
                                             { "{\"type\":\"integer\"}", "-9007199254740993" },
                                             { "{\"type\":\"number\"}", "2.5" },
                                             { "{\"type\":\"boolean\"}", "true" },
                                             { "{\"type\":\"null\"}", "null" },
                                             { "{\"type\":\"array\",\"items\":{}}", "[\"a<b\", \"</x>\"]" },
                                             { "{\"type\":\"object\"}", "{\"a\": {\"b\": [1, null]}}" },
                                             { "{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]}", "null" },
                                             { "{\"enum\":[\"1\",2,null]}", "\"1\"" },
                                             { "{\"enum\":[\"1\",2,null]}", "2" },
                                             { "{\"const\":\"fixed\"}", "\"fixed\"" },
                                             { "{\"type\":[\"string\",\"null\"]}", "null" } };
    const size_t n = sizeof spelled / sizeof spelled[0], k = sizeof others / sizeof others[0];
    const size_t i = rng_below(r, (uint32_t)(n + k + 1));

    if (i < n) {
        *v = random_text(r);
        return json_loads(spelled[i], JSON_DECODE_ANY, NULL);
    }
    if (i < n + k) {
        *v = json_loads(others[i - n][1], JSON_DECODE_ANY, NULL);
        return json_loads(others[i - n][0], 0, NULL);
    }
    *v = random_any(r, 0);
    return json_object();
}

/* A text that the rule of tool_schema.h reads as something else, or that the markers cannot hold. */
static int cannot_be_written(const dialect *d, const json_t *schema, const json_t *root, const json_t *v)
{
    const dialect_args *a = d->args;
    int bad = 0;

    if (!a || !json_is_string(v) || (!a->bare && !a->quote))
        return a && a->quote && (json_is_object(v) || json_is_array(v)); /* quotes within are not counted */
    json_t *read = json_loads(json_string_value(v), JSON_DECODE_ANY, NULL);
    bad = strstr(json_string_value(v), a->quote ? a->quote : a->end) != NULL;
    if (a->bare && !strchr(a->value, '\v') && read && !json_is_string(read))
        bad |= schema_accepts(schema, root) != ACCEPTS_TEXT && schema_takes(schema, root, read);
    json_decref(read);
    return bad;
}

static json_t *random_tool(rng *r, const dialect *d, const char *name, json_t *calls)
{
    json_t *properties = json_object(), *args = json_object(), *required = json_array(), *root, *f;
    const int n = (int)rng_below(r, 5);

    root = json_pack("{s:s,s:{s:{s:s}},s:o,s:o}", "type", "object", "$defs", "Name", "type", "string", "properties",
                     properties, "required", required);
    for (int i = 0; i < n; i++) {
        static const char *const keys[] = { "city", "a_b", "x-1", "dotted.name", "k2" };
        json_t *v = NULL, *schema = random_schema(r, &v);
        json_object_set_new(properties, keys[i], schema);
        if (rng_below(r, 5) && !cannot_be_written(d, schema, root, v))
            json_object_set(args, keys[i], v);
        if (json_object_get(args, keys[i]) && rng_below(r, 2))
            json_array_append_new(required, json_string(keys[i]));
        json_decref(v);
    }
    json_array_append_new(calls, json_pack("[s,o]", name, args));
    counts.schemas += n;
    counts.calls++;
    f = json_pack("{s:s,s:o}", "name", name, "parameters", root);
    return json_pack("{s:s,s:o}", "type", "function", "function", f);
}

/* Bytes of the text changed at random. */
static void change(sbuf *text, rng *r)
{
    static const char *const pieces[] = { "\"",   "{", "}", "</",          ">", " ", "\n",
                                          "name", "[", "]", "<tool_call>", ",", ":" };
    const size_t at = rng_below(r, (uint32_t)text->n), n = 1 + rng_below(r, 12);
    sbuf out = { 0 };

    sbuf_put(&out, text->s, at);
    switch (rng_below(r, 3)) {
    case 0: break; /* left out */
    case 1:
        sbuf_puts(&out, pieces[rng_below(r, sizeof pieces / sizeof pieces[0])]);
        sbuf_put(&out, text->s + at, n < text->n - at ? n : text->n - at);
        break;
    default:
        for (int i = 0; i < 2; i++)
            sbuf_put(&out, text->s + at, n < text->n - at ? n : text->n - at);
    }
    if (at + n < text->n)
        sbuf_put(&out, text->s + at + n, text->n - at - n);
    sbuf_free(text);
    *text = out;
}

static void check_drawn(const dialect *d, rng *r, size_t every, int changes)
{
    json_t *calls = json_array(), *list = json_array();

    json_array_append_new(list, random_tool(r, d, "first", calls));
    if (!d->single)
        json_array_append_new(list, random_tool(r, d, "second_tool", calls));
    tool_set *tools = tools_of(list);
    sbuf text = { 0 };
    put_calls(&text, d, calls);
    seen e = parse(d, NULL, 0, tools, &text, text.n, 0);
    char *got = json_dumps(e.calls, 0), *want = json_dumps(calls, 0), *schemas = json_dumps(list, 0);
    CHECK(json_equal(e.calls, calls), "%s: %s\n got %s\nwant %s\n%s", d->name, text.s, got, want, schemas);
    CHECK(e.text.n == 0, "%s: %s\ntext: %s", d->name, text.s, sbuf_text(&e.text));
    free(got);
    free(want);
    free(schemas);
    seen_free(&e);
    check_cuts(d, NULL, 0, tools, &text, every);
    for (int i = 0; i < changes && text.n; i++) {
        change(&text, r);
        if (text.n)
            check_cuts(d, NULL, 0, tools, &text, text.n / 4 + 1);
    }
    sbuf_free(&text);
    tool_set_free(tools);
    json_decref(list);
    json_decref(calls);
}

/* ---- thoughts that are not ended ---- */

static void check_thoughts(void)
{
    static const struct {
        const char *text;
        int calls;
    } cases[] = {
        { "I should call it.\n\n<tool_call>\n" CALL "\n</tool_call>", 1 },
        { "<tool_call>" CALL "</tool_call>", 1 },
        { "Hm.<tool_call>" CALL "</tool_call>\n<tool_call>" CALL "</tool_call>\n", 2 },
        { "Hm.<tool_call>" CALL "</tool_call>\n</think>\n", 1 },
        { "Hm.<tool_call>" CALL "</tool_call> would do.</think>No.", 0 },
        { "Hm.<tool_call>" CALL "</tool_call></think>No.", 0 },
        { "I write <tool_call> and then.</think>\n<tool_call>" CALL "</tool_call>", 1 },
        { "<tool_call>{\"name\": \"weather\", </think>x", 0 },
        { "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"P", 0 },
        { "<tool_call>" CALL "</tool_call> or <tool_call>" CALL "</tool_call>", 1 },
        { "no call</think>x", 0 },
        { "<tool_call>[" CALL "]</tool_call>", 1 },
    };
    json_t *list = json_loads(TOOLS, 0, NULL);
    tool_set *tools = tools_of(list);

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const sbuf text = { .s = (char *)cases[i].text, .n = strlen(cases[i].text) };
        const dialect *d = dialect_named("hermes");
        seen e = parse(d, thinking_at(0), 1, tools, &text, text.n, 0);
        CHECK((int)json_array_size(e.calls) == cases[i].calls, "%s\n%s", cases[i].text, sbuf_text(&e.flat));
        seen_free(&e);
        check_cuts(d, thinking_at(0), 1, tools, &text, 1);
    }
    tool_set_free(tools);
    json_decref(list);
}

/* check_server_tool_forms N [FILE]: every cut of N draws a dialect; FILE gets the counts. */
static void put_counts(const char *path, int n, long failed)
{
    FILE *f = fopen(path, "w");

    CHECK(f, "%s", path);
    if (!f)
        return;
    fprintf(f,
            "{\n \"dialects\": %d,\n \"draws_a_dialect\": %d,\n \"calls\": %lld,\n \"schemas_of_parameters\": %lld,\n"
            " \"texts\": %lld,\n \"cuts\": %lld,\n \"failed\": %ld\n}\n",
            dialect_count(), n, counts.calls, counts.schemas, counts.texts, counts.cuts, failed);
    CHECK(fclose(f) == 0, "%s", path);
}

int main(int argc, char **argv)
{
    const int n = argc > 1 ? atoi(argv[1]) : 12;
    rng r = { 41 };

    check_forms();
    check_thoughts();
    for (int i = 0; i < dialect_count(); i++)
        for (int k = 0; k < n; k++)
            check_drawn(dialect_at(i), &r, argc > 1 ? 1 : 3, 16);
    if (argc > 2)
        put_counts(argv[2], n, check_failed);
    return check_end("check_server_tool_forms");
}
