/* check_server_tools.c: tool calls in every dialect: texts as models write them; calls that the grammar of random tools
 * allows, found by walking it at random, come out of the parser as arguments that follow the schema, whatever the cuts;
 * texts that are no calls stay texts. */
#include <jansson.h>
#include "base/error.h"
#include "base/mem.h"
#include "base/rng.h"
#include "server/grammar/grammar.h"
#include "server/tools/tool_grammar.h"
#include "server/tools/tool_parser.h"
#include "support/check.h"

/* ---- events of a text ---- */

enum { BAR = 0x1E };

typedef struct events {
    sbuf flat; /* "T:text" "R:thought" "C:name" "A:arguments" "E", each behind a BAR but the first */
    int last;
} events;

static void on_event(void *user, int event, const char *s, size_t n)
{
    events *e = user;

    if (event != e->last || event == TOOL_CALL || event == TOOL_END)
        sbuf_printf(&e->flat, "%s%c%s", e->flat.n ? (char[]){ BAR, 0 } : "", "TRCAE"[event],
                    event == TOOL_END ? "" : ":");
    e->last = event;
    sbuf_put(&e->flat, s, n);
}

/* The events of text[n], fed in pieces of 1 to `most` bytes (0: as one), to be freed. */
static char *parse(tool_parser *p, int thinks, const char *text, size_t n, int most, rng *r)
{
    events e = { .last = -1 };

    p->emit = on_event;
    p->user = &e;
    tool_parser_begin(p, thinks);
    for (size_t i = 0, k; i < n; i += k) {
        k = most ? 1 + rng_below(r, (uint32_t)most) : n;
        k = k < n - i ? k : n - i;
        CHECK(tool_parser_feed(p, text + i, k) == KVANT_OK, "feed");
    }
    CHECK(tool_parser_end(p) == KVANT_OK, "end");
    tool_parser_free(p);
    sbuf_put(&e.flat, "", 0);
    return e.flat.s;
}

static tool_set *tools_of(const char *json)
{
    kvant_diag diag = { "" };
    json_t *list = json_loads(json, 0, NULL);
    tool_set *s = NULL;

    CHECK(tool_set_read(list, &s, &diag) == KVANT_OK, "%.80s: %s", json, diag.text);
    json_decref(list);
    return s;
}

/* ---- texts as models write them ---- */

#define PARAMS                                                                                                         \
    "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"}},"            \
    "\"required\":[\"city\"]}"
#define TOOLS                                                                                                          \
    "[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":" PARAMS "}},"                          \
    "{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]"

typedef struct written {
    const char *dialect, *thinking, *text, *events;
} written;

static const written texts[] = {
    { "hermes", NULL,
      "Let me see.\n\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Pa<b>\"}}\n</tool_call>",
      "T:Let me see.\nC:weather\nA:{\"city\": \"Pa<b>\"}\nE" },
    { "hermes", "think",
      "<think>\nHm, <tool_call>.\n</think>\n\n<tool_call>{\"name\":\"now\",\"arguments\":{}}</tool_call>\n<tool_call>\n"
      "{\"name\": \"weather\", \"arguments\": {\"city\": \"}\\\"\"}}\n</tool_call>",
      "R:Hm, <tool_call>.\nC:now\nA:{}\nE\nC:weather\nA:{\"city\": \"}\\\"\"}\nE" },
    { "hermes", NULL, "a <tool_call>x</tool_call> b", "T:a <tool_call>x</tool_call> b" },
    { "hermes", NULL, "<tool_call>\n{\"name\": \"other\", \"arguments\": {}}",
      "T:<tool_call>\n{\"name\": \"other\", \"arguments\": {}}" },
    { "hermes", "think", "no thought, 1 <  2 ", "T:no thought, 1 <  2" },
    { "hermes", NULL, "<tool_call>", "T:<tool_call>" },
    { "qwen3_coder", NULL,
      "<tool_call>\n<function=weather>\n<parameter=city>\n\"New\n York\"</p>\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
      "</function>\n</tool_call>",
      "C:weather\nA:{\"city\": \"\\\"New\\n York\\\"</p>\", \"days\": 3}\nE" },
    { "qwen3_coder", NULL, "<tool_call>\n<function=now>\n</function>\n</tool_call>", "C:now\nA:{}\nE" },
    { "seed", "seed",
      "<seed:think>x</seed:think><seed:tool_call>\n<function=weather>\n<parameter=city>Paris</parameter>\n</function>\n"
      "</seed:tool_call>",
      "R:x\nC:weather\nA:{\"city\": \"Paris\"}\nE" },
    { "mistral_args", NULL, "[TOOL_CALLS]now[CALL_ID]abcdefghi[ARGS]{}", "C:now\nA:{}\nE" },
    { "glm", "think",
      "<think>x</think>\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n"
      "<arg_value>3</arg_value>\n</tool_call>",
      "R:x\nC:weather\nA:{\"city\": \"Paris\", \"days\": 3}\nE" },
    { "minicpm5", "think",
      "<think>\nx\n</think>\n\n<function name=\"weather\"><param name=\"city\"><![CDATA[a </param>\n&]]></param>"
      "<param name=\"days\">3</param></function>\n<function name=\"now\"></function>",
      "R:x\nC:weather\nA:{\"city\": \"a </param>\\n&\", \"days\": 3}\nE\nC:now\nA:{}\nE" },
    { "hunyuan3", "hunyuan3",
      "<think:opensource>x</think:opensource><tool_calls:opensource>\n<tool_call:opensource>weather<tool_sep:opensource>\n"
      "<arg_key:opensource>city</arg_key:opensource>\n<arg_value:opensource>Paris</arg_value:opensource>\n"
      "</tool_call:opensource>\n</tool_calls:opensource>",
      "R:x\nC:weather\nA:{\"city\": \"Paris\"}\nE" },
    { "minimax", NULL,
      "<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">Paris</parameter>\n</invoke>\n"
      "<invoke name=\"now\">\n</invoke>\n</minimax:tool_call>",
      "C:weather\nA:{\"city\": \"Paris\"}\nE\nC:now\nA:{}\nE" },
    { "mistral", NULL,
      "[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}, \"id\": \"abcdefghi\"}, "
      "{\"name\": \"now\", \"arguments\": {}, \"id\": \"123456789\"}]",
      "C:weather\nA:{\"city\": \"Paris\"}\nE\nC:now\nA:{}\nE" },
    { "mistral_args", "mistral",
      "[THINK]so[/THINK][TOOL_CALLS]weather[ARGS]{\"city\": \"Paris\"}[TOOL_CALLS]now[ARGS]{}",
      "R:so\nC:weather\nA:{\"city\": \"Paris\"}\nE\nC:now\nA:{}\nE" },
    { "harmony", "harmony",
      "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>commentary to=functions.weather "
      "<|constrain|>json<|message|>{\"city\":\"Paris\"}",
      "R:Think.\nC:weather\nA:{\"city\":\"Paris\"}\nE" },
    { "harmony", "harmony", " to=functions.now<|channel|>commentary <|constrain|>json<|message|>{}", "C:now\nA:{}\nE" },
    { "harmony", "harmony", "<|channel|>analysis<|message|>A.<|end|><|start|>assistant<|channel|>final<|message|>Well.",
      "R:A.\nT:Well." },
    { "harmony", "harmony",
      "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.now "
      "<|constrain|>json<|message|>{}",
      "T:I look.\nC:now\nA:{}\nE" },
    { "gemma4", "gemma4",
      "<|channel>thought\nHm.<channel|><|tool_call>call:weather{city:<|\"|>Pa\"r,is<|\"|>,days:3}<tool_call|>",
      "R:Hm.\nC:weather\nA:{\"city\": \"Pa\\\"r,is\", \"days\": 3}\nE" },
    { "gemma", NULL, "<start_function_call>call:weather{city:<escape>Paris<escape>}<end_function_call>",
      "C:weather\nA:{\"city\": \"Paris\"}\nE" },
    { "lfm2", NULL, "<|tool_call_start|>[weather(city=\"Pa)ris\", days=3), now()]<|tool_call_end|>",
      "C:weather\nA:{\"city\": \"Pa)ris\", \"days\": 3}\nE\nC:now\nA:{}\nE" },
    { "functionary", NULL, "<function=weather>{\"city\": \"Paris\"}</function>",
      "C:weather\nA:{\"city\": \"Paris\"}\nE" },
    { "llama3", NULL, "{\"name\": \"weather\", \"parameters\": {\"city\": \"Paris\"}}",
      "C:weather\nA:{\"city\": \"Paris\"}\nE" },
    { "llama3", NULL, "<|python_tag|>{\"name\": \"now\", \"parameters\": {}}", "C:now\nA:{}\nE" },
    { "llama3", NULL, "So: {\"name\": \"now\", \"parameters\": {}}", "T:So: {\"name\": \"now\", \"parameters\": {}}" },
    { "llama3", NULL, "{\"name\": \"Bob\"}", "T:{\"name\": \"Bob\"}" },
    { "pythonic", NULL, "[weather(city=\"Pa)r]is\", days=3), now()]", "C:weather\nA:{\"city\": \"Pa)r]is\", \"days\": 3}\nE\nC:now\nA:{}\nE" },
    { "pythonic", NULL, " [\nnow( )\n]", "C:now\nA:{}\nE" },
    { "pythonic", "think", "<think>[now()]</think>\n\n<|python_start|>[now()]<|python_end|>", "R:[now()]\nC:now\nA:{}\nE" },
    { "pythonic", "mistral", "\n[THINK]Hm[/THINK] [now()]", "R:Hm\nC:now\nA:{}\nE" },
    { "pythonic", "mistral", "[T] is a letter", "T:[T] is a letter" },
    { "pythonic", NULL, "[1] is a list, [now()] is a call", "T:[1] is a list, [now()] is a call" },
    { "pythonic", NULL, "[now] or never", "T:[now] or never" },
    { "pythonic", NULL, "[nowhere(x=1)]", "T:[nowhere(x=1)]" },
    { "pythonic", NULL, "So: [now()]", "T:So: [now()]" },
    { "pythonic", NULL, "[weather", "T:[weather" },
    { "pythonic", NULL, "[weather ", "T:[weather" },
    { "pythonic", NULL, "[", "T:[" },
    { "xlam", NULL, "[{\"name\": \"weather\", \"arguments\": {\"city\": \"]\"}}, {\"name\": \"now\", \"arguments\": {}}]",
      "C:weather\nA:{\"city\": \"]\"}\nE\nC:now\nA:{}\nE" },
    { "xlam", NULL, "[\n  {\n    \"name\": \"now\",\n    \"arguments\": {}\n  }\n]", "C:now\nA:{}\nE" },
    { "xlam", NULL, "[{\"name\": \"Bob\", \"age\": 3}]", "T:[{\"name\": \"Bob\", \"age\": 3}]" },
    { "xlam", NULL, "[{\"name\": \"now\", \"age\": 3}]", "T:[{\"name\": \"now\", \"age\": 3}]" },
    { "xlam", NULL, "[]", "T:[]" },
    { "xlam", NULL, "[{\"na", "T:[{\"na" },
    { "kimi", NULL,
      "<|tool_calls_section_begin|><|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
      "<|tool_calls_section_end|>",
      "C:now\nA:{}\nE" },
    { "command", "command",
      "<|START_THINKING|>p<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"now\", \"parameters\": "
      "{}}\n]<|END_ACTION|>",
      "R:p\nC:now\nA:{}\nE" },
    { "nemotron", NULL, "<TOOLCALL>[{\"name\": \"now\", \"arguments\": {}}]</TOOLCALL>", "C:now\nA:{}\nE" },
    { "tool_calls", "apriel",
      "So it is.\n[BEGIN FINAL RESPONSE]\nI look.\n<tool_calls>[{\"name\": \"weather\", \"arguments\": {\"city\": \"a]\"}}, "
      "{\"name\": \"now\", \"arguments\": {}}]</tool_calls>",
      "T:So it is.\n[BEGIN FINAL RESPONSE]\nI look.\nC:weather\nA:{\"city\": \"a]\"}\nE\nC:now\nA:{}\nE" },
    { "tool_calls", "apriel", "Here are my reasoning steps:\nHm.\n[BEGIN FINAL RESPONSE]\nYes.\n[END FINAL RESPONSE]",
      "R:Hm.\nT:Yes." },
    { "tool_calls", NULL, "<tool_calls>[{\"name\": \"other\"", "T:<tool_calls>[{\"name\": \"other\"" },
    { "apertus", "apertus",
      "<|inner_prefix|>Hm<|inner_suffix|>I look.<|tools_prefix|>[{\"weather\": {\"city\": \"Pa\"}}, {\"now\": {}}]<|tools_suffix|>",
      "R:Hm\nT:I look.\nC:weather\nA:{\"city\": \"Pa\"}\nE\nC:now\nA:{}\nE" },
    { "solar", "solar",
      "<|think|>Hm<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>weather"
      "<|tool_call:args|>{\"city\": \"Paris\"}<|tool_call:end|><|tool_call:begin|>f6<|tool_call:name|>now<|tool_call:args|>{}"
      "<|tool_call:end|><|calls|>",
      "R:Hm\nC:weather\nA:{\"city\": \"Paris\"}\nE\nC:now\nA:{}\nE" },
    { "solar", "solar", "<|think|>Hm<|end|><|begin|>assistant<|content|>Well.<|end|>", "R:Hm\nT:Well." },
    { "gigachat", NULL,
      "I look.<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}",
      "T:I look.\nC:weather\nA:{\"city\": \"Paris\"}\nE" },
    { "gigachat", NULL, "Well.<|message_sep|>\n\n", "T:Well." },
    { "gigachat31", NULL, "I look.<|function_call|>{\"name\": \"now\", \"arguments\": {}}<|message_sep|>\n\n",
      "T:I look.\nC:now\nA:{}\nE" },
    { "olmo3", NULL, "<function_calls>\nweather(city=\"Pa)ris\", days=3)\nnow()\n</function_calls>",
      "C:weather\nA:{\"city\": \"Pa)ris\", \"days\": 3}\nE\nC:now\nA:{}\nE" },
    { "deepseek_r1", "think",
      "<think>Hm</think>\nI look."
      "<\xEF\xBD\x9Ctool\xE2\x96\x81"
      "calls\xE2\x96\x81"
      "begin\xEF\xBD\x9C><\xEF\xBD\x9Ctool\xE2\x96\x81"
      "call\xE2\x96\x81"
      "begin\xEF\xBD\x9C>function<\xEF\xBD\x9Ctool\xE2\x96\x81sep\xEF\xBD\x9C>weather\n```json\n{\"city\": \"Paris\"}\n```<\xEF\xBD\x9Ctool\xE2\x96\x81"
      "call\xE2\x96\x81"
      "end\xEF\xBD\x9C>\n<\xEF\xBD\x9Ctool\xE2\x96\x81"
      "call\xE2\x96\x81"
      "begin\xEF\xBD\x9C>function<\xEF\xBD\x9Ctool\xE2\x96\x81sep\xEF\xBD\x9C>now\n```json\n{}\n```<\xEF\xBD\x9Ctool\xE2\x96\x81"
      "call\xE2\x96\x81"
      "end\xEF\xBD\x9C><\xEF\xBD\x9Ctool\xE2\x96\x81"
      "calls\xE2\x96\x81"
      "end\xEF\xBD\x9C>",
      "R:Hm\nT:I look.\nC:weather\nA:{\"city\": \"Paris\"}\nE\nC:now\nA:{}\nE" },
    { "deepseek_r1", NULL,
      "<\xEF\xBD\x9Ctool\xE2\x96\x81"
      "calls\xE2\x96\x81"
      "begin\xEF\xBD\x9C><\xEF\xBD\x9Ctool\xE2\x96\x81"
      "call\xE2\x96\x81"
      "begin\xEF\xBD\x9C>other",
      "T:<\xEF\xBD\x9Ctool\xE2\x96\x81"
      "calls\xE2\x96\x81"
      "begin\xEF\xBD\x9C><\xEF\xBD\x9Ctool\xE2\x96\x81"
      "call\xE2\x96\x81"
      "begin\xEF\xBD\x9C>other" },
    { "step3", NULL,
      "<\xEF\xBD\x9Ctool_calls_begin\xEF\xBD\x9C>\n<\xEF\xBD\x9Ctool_call_begin\xEF\xBD\x9C>function<\xEF\xBD\x9Ctool_sep\xEF\xBD\x9C><steptml:invoke name=\"weather\">\n<steptml:parameter name=\"city\">Pa<r>is</steptml:parameter>\n<steptml:parameter name=\"days\">3</steptml:parameter>\n</steptml:invoke><\xEF\xBD\x9Ctool_call_end\xEF\xBD\x9C>\n<\xEF\xBD\x9Ctool_calls_end\xEF\xBD\x9C>",
      "C:weather\nA:{\"city\": \"Pa<r>is\", \"days\": 3}\nE" },
    { "firefunction", NULL,
      "So: functools[{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}, {\"name\": \"now\", \"arguments\": {}}]",
      "T:So:\nC:weather\nA:{\"city\": \"Paris\"}\nE\nC:now\nA:{}\nE" },
    { "firefunction", NULL, "from functools import x; functools[3]", "T:from functools import x; functools[3]" },
    { "internlm", NULL,
      "I look.<|action_start|><|plugin|>\n{\"name\": \"weather\", \"parameters\": {\"city\": \"Paris\"}}<|action_end|>\n",
      "T:I look.\nC:weather\nA:{\"city\": \"Paris\"}\nE" },
    { "granite_function", NULL,
      "<function_call> {\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}} <function_call> {\"name\": \"now\", \"arguments\": {}}",
      "C:weather\nA:{\"city\": \"Paris\"}\nE\nC:now\nA:{}\nE" },
    { "granite", NULL, "<|tool_call|>[{\"name\": \"now\", \"arguments\": {}}]<|/tool_call|>", "C:now\nA:{}\nE" },
    { "granite", NULL, "<|tool_call|>[{\"name\": \"now\", \"arguments\": {}}]", "C:now\nA:{}\nE" },
    { "deepseek", NULL,
      "<\xEF\xBD\x9Ctool\xE2\x96\x81"
      "calls\xE2\x96\x81"
      "begin\xEF\xBD\x9C><\xEF\xBD\x9Ctool\xE2\x96\x81"
      "call\xE2\x96\x81"
      "begin\xEF\xBD\x9C>now<\xEF\xBD\x9Ctool\xE2\x96\x81sep\xEF\xBD\x9C>{}<\xEF\xBD\x9Ctool\xE2\x96\x81"
      "call\xE2\x96\x81"
      "end\xEF\xBD\x9C><\xEF\xBD\x9Ctool\xE2\x96\x81"
      "calls\xE2\x96\x81"
      "end\xEF\xBD\x9C>",
      "C:now\nA:{}\nE" },
};

static const thinking *thinking_named(const char *name)
{
    for (int i = 0; name && i < thinking_count(); i++)
        if (strcmp(thinking_at(i)->name, name) == 0)
            return thinking_at(i);
    return NULL;
}

/* A stream in two pieces, wherever it is cut, gives what the whole text gives. */
static void check_cuts(const written *w, const tool_set *tools)
{
    const size_t n = strlen(w->text);
    rng r = { 1 };

    for (size_t at = 1; at < n; at++) {
        events e = { .last = -1 };
        tool_parser p = { .d = dialect_named(w->dialect),
                          .t = thinking_named(w->thinking),
                          .tools = tools,
                          .emit = on_event,
                          .user = &e };
        tool_parser whole = { .d = p.d, .t = p.t, .tools = tools };
        tool_parser_begin(&p, 0);
        CHECK(tool_parser_feed(&p, w->text, at) == KVANT_OK && tool_parser_feed(&p, w->text + at, n - at) == KVANT_OK &&
                  tool_parser_end(&p) == KVANT_OK,
              "feed");
        tool_parser_free(&p);
        sbuf_put(&e.flat, "", 0);
        char *want = parse(&whole, 0, w->text, n, 0, &r);
        CHECK(strcmp(e.flat.s, want) == 0, "%s, cut at byte %zu: %.60s\n--- got\n%s\n--- want\n%s", w->dialect, at,
              w->text, e.flat.s, want);
        kvant_free(want);
        sbuf_free(&e.flat);
    }
}

static void check_texts(void)
{
    tool_set *tools = tools_of(TOOLS);
    rng r = { 5 };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        for (int cut = 0; cut < 40; cut++) {
            tool_parser p = { .d = dialect_named(texts[i].dialect),
                              .t = thinking_named(texts[i].thinking),
                              .tools = tools };
            CHECK(p.d && (p.t || !texts[i].thinking), "%s", texts[i].dialect);
            char *got = parse(&p, 0, texts[i].text, strlen(texts[i].text), cut / 2, &r);
            for (char *c = got; *c; c++)
                *c = *c == BAR ? '\n' : *c;
            CHECK(strcmp(got, texts[i].events) == 0, "%s, cut %d: %.60s\n--- got\n%s\n--- want\n%s", texts[i].dialect,
                  cut, texts[i].text, got, texts[i].events);
            kvant_free(got);
        }
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        check_cuts(&texts[i], tools);
    tool_set_free(tools);
}

/* ---- random tools ---- */

static json_t *random_schema(rng *r, int depth);

static json_t *random_object(rng *r, int depth)
{
    json_t *p = json_object(), *required = json_array();
    const int n = (int)rng_below(r, 4);
    char name[16];

    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%s%d", i % 2 ? "b-" : "a_", i);
        json_object_set_new(p, name, random_schema(r, depth + 1));
        if (rng_below(r, 2))
            json_array_append_new(required, json_string(name));
    }
    return json_pack("{s:s,s:o,s:o,s:b}", "type", "object", "properties", p, "required", required,
                     "additionalProperties", 0);
}

static json_t *random_schema(rng *r, int depth)
{
    switch (rng_below(r, depth > 2 ? 7 : 10)) {
    case 0: return json_pack("{s:s}", "type", "string");
    case 1: return json_pack("{s:s,s:[s,s,s]}", "type", "string", "enum", "red", "light blue", "\"x\"");
    case 2: return json_pack("{s:s,s:i,s:i}", "type", "string", "minLength", 1, "maxLength", 4);
    case 3: return json_pack("{s:s,s:i,s:i}", "type", "integer", "minimum", -3, "maximum", 120);
    case 4: return json_pack("{s:s}", "type", "number");
    case 5: return json_pack("{s:s}", "type", "boolean");
    case 6: return json_pack("{s:[{s:s},{s:s}]}", "anyOf", "type", "string", "type", "null");
    case 7: return json_pack("{s:s,s:o,s:i}", "type", "array", "items", random_schema(r, depth + 1), "maxItems", 3);
    case 8: return random_object(r, depth);
    default: return json_pack("{s:s}", "const", "fixed");
    }
}

static int follows(const json_t *v, const json_t *schema);

static int object_follows(const json_t *v, const json_t *schema)
{
    const char *key;
    json_t *x;
    size_t i;

    json_object_foreach((json_t *)v, key, x)
    {
        const json_t *s = json_object_get(json_object_get(schema, "properties"), key);
        if (!s || !follows(x, s))
            return 0;
    }
    json_array_foreach(json_object_get(schema, "required"), i,
                       x) if (!json_object_get(v, json_string_value(x))) return 0;
    return 1;
}

static int lengths_hold; /* dialects that write texts without quotes do not hold their lengths and patterns */

static int string_follows(const json_t *v, const json_t *schema)
{
    const char *s = json_string_value(v);
    const json_t *list = json_object_get(schema, "enum"), *most = json_object_get(schema, "maxLength");
    int characters = 0, listed = list == NULL;
    json_t *x;
    size_t i;

    if (!s)
        return 0;
    for (const char *c = s; *c; c++)
        characters += ((unsigned char)*c & 0xC0) != 0x80;
    json_array_foreach((json_t *)list, i, x) listed |= json_equal(x, v);
    return listed && (!most || !lengths_hold || (characters >= 1 && characters <= json_integer_value(most)));
}

static int follows(const json_t *v, const json_t *schema)
{
    const char *type = json_string_value(json_object_get(schema, "type"));
    size_t i;
    json_t *x;

    if (!type)
        return json_object_get(schema, "const") ? json_equal(v, json_object_get(schema, "const"))
                                                : json_is_null(v) || json_is_string(v);
    if (strcmp(type, "object") == 0)
        return json_is_object(v) && object_follows(v, schema);
    if (strcmp(type, "string") == 0)
        return string_follows(v, schema);
    if (strcmp(type, "integer") == 0)
        return json_is_integer(v) && json_integer_value(v) >= -3 && json_integer_value(v) <= 120;
    if (strcmp(type, "array") == 0) {
        json_array_foreach((json_t *)v, i, x) if (!follows(x, json_object_get(schema, "items"))) return 0;
        return json_is_array(v) && json_array_size(v) <= 3;
    }
    return strcmp(type, "number") == 0 ? json_is_number(v) : json_is_boolean(v);
}

static tool_set *random_tools(rng *r)
{
    json_t *list = json_array();
    const int n = 1 + (int)rng_below(r, 3);
    kvant_diag diag = { "" };
    tool_set *s = NULL;
    char name[16];

    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "tool%d", i);
        json_array_append_new(list, json_pack("{s:s,s:{s:s,s:b,s:o}}", "type", "function", "function", "name", name,
                                              "strict", 1, "parameters", random_object(r, 0)));
    }
    CHECK(tool_set_read(list, &s, &diag) == KVANT_OK, "%s", diag.text);
    json_decref(list);
    return s;
}

/* ---- walks ---- */

enum { END = 256, N_VOCAB = 257, MOST = 60000 };

static grammar_vocab *byte_vocab(void)
{
    static char bytes[N_VOCAB];
    const char *text[N_VOCAB];
    int len[N_VOCAB];
    unsigned char eog[N_VOCAB] = { 0 };
    grammar_vocab *v = NULL;

    for (int i = 0; i < N_VOCAB; i++) {
        bytes[i] = (char)i;
        text[i] = &bytes[i];
        len[i] = i < END;
    }
    eog[END] = 1;
    CHECK(grammar_vocab_from_list(text, len, eog, N_VOCAB, &v, NULL) == KVANT_OK, "vocabulary");
    return v;
}

/* A byte that may come: now and then a way out (the letters of what ends texts, or thoughts), else any. */
static int choose(const float *logits, rng *r, const char *const out[2], const char **at)
{
    int list[N_VOCAB], n = 0;

    if (!*at && rng_below(r, 12) == 0)
        *at = out[rng_below(r, 2)];
    if (*at && **at && isfinite(logits[(unsigned char)**at]))
        return (unsigned char)*(*at)++;
    *at = NULL;
    if (isfinite(logits[END]) && rng_below(r, 3) == 0)
        return END;
    if (isfinite(logits['"']) && rng_below(r, 8) == 0)
        return '"';
    for (int i = 0; i < END; i++)
        if (isfinite(logits[i]))
            list[n++] = i;
    return n ? list[rng_below(r, (uint32_t)n)] : END;
}

/* Appends one random text of the grammar; 0: it did not end in time. */
static int walk(const char *gbnf, const grammar_vocab *v, rng *r, const char *const out[2], sbuf *text)
{
    grammar *g = NULL;
    grammar_run *run = NULL;
    kvant_diag diag = { "" };
    const char *at = NULL;
    int token = 0, code = grammar_compile(gbnf, strlen(gbnf), &g, &diag);

    CHECK(code == KVANT_OK, "%s\n%s", diag.text, gbnf);
    if (code != KVANT_OK || grammar_run_create(g, v, &run, &diag) != KVANT_OK)
        return 0;
    for (int i = 0; i < MOST && token != END && code == KVANT_OK; i++) {
        float logits[N_VOCAB] = { 0 };
        int left, complete;
        for (code = KVANT_EBUSY; code == KVANT_EBUSY;)
            code = grammar_run_work(run, &diag);
        if (code == KVANT_OK)
            code = grammar_run_apply(run, logits, N_VOCAB, &left, &complete, &diag);
        if (code != KVANT_OK || left == 0)
            break;
        token = choose(logits, r, out, &at);
        if (token != END)
            sbuf_put(text, (char[]){ (char)token }, 1);
        code = grammar_run_take(run, token, &diag);
    }
    CHECK(code == KVANT_OK, "%s", diag.text);
    grammar_run_free(run);
    grammar_release(g);
    return code == KVANT_OK;
}

/* Every call in the lines of events: its tool is there and its arguments follow the schema.  Returns how many. */
static int check_events(const char *lines, const tool_set *tools, const char *text)
{
    static const char bar[] = { BAR, 0 };
    int calls = 0, ends = 0, which = -1;

    for (const char *s = lines; *s; s += strcspn(s, bar), s += *s == BAR) {
        const size_t n = strcspn(s, bar);
        if (s[0] == 'C' && ++calls)
            which = tool_set_find(tools, s + 2, n - 2);
        ends += s[0] == 'E' && n == 1;
        if (s[0] != 'A')
            continue;
        json_t *v = json_loadb(s + 2, n - 2, JSON_REJECT_DUPLICATES, NULL);
        CHECK(v && which >= 0 && follows(v, tools->tools[which].parameters), "%.*s\nof %.300s",
              (int)(n < 300 ? n : 300), s, text);
        json_decref(v);
    }
    CHECK(calls == ends, "%d calls, %d ends: %.300s\n%.300s", calls, ends, lines, text);
    return calls;
}

/* What the grammar allows, parsed. */
static int check_walk(const dialect *d, const thinking *t, const grammar_vocab *v, rng *r)
{
    tool_set *tools = random_tools(r);
    const int start = (int)rng_below(r, 2), only = rng_below(r, 3) ? -1 : 0;
    const tool_rules rules = { d, tools, only, rng_below(r, 2) != 0, start, t, NULL };
    const char *trigger = d->open ? d->open : d->before;
    const char *const end = d->args ? d->args->quote ? d->args->quote : d->args->end : "\"";
    const char *const out[2] = { end && *end ? end : "\"", t ? t->end : "\"" };
    kvant_diag diag = { "" };
    char *gbnf = NULL;
    sbuf text = { 0 };
    int calls = 0;

    lengths_hold = !d->args || (!d->args->bare && !d->args->quote);
    CHECK(tool_grammar(&rules, &gbnf, &diag) == KVANT_OK, "%s: %s", d->name, diag.text);
    for (const char *c = trigger; !start && *c && *c != '^'; c++)
        if (*c != ' ' || d->name[0] == 'h')
            sbuf_put(&text, c, 1);
    if (gbnf && walk(gbnf, v, r, out, &text)) {
        tool_parser p = { .d = d, .t = t, .tools = tools }, q = p;
        char *whole = parse(&p, 0, text.s, text.n, 0, r),
             *cut = parse(&q, 0, text.s, text.n, 1 + (int)rng_below(r, 9), r);
        CHECK(strcmp(whole, cut) == 0, "%s: %.300s\n---\n%.300s\n---\n%.300s", d->name, text.s, whole, cut);
        calls = check_events(whole, tools, text.s);
        CHECK(calls >= 1 && whole[0] != 'T' && !strstr(whole, "\x1E\x54:"), /* a BAR and T: */
              "%s: %.300s\n%.300s", d->name, whole, text.s);
        kvant_free(whole);
        kvant_free(cut);
    }
    sbuf_free(&text);
    kvant_free(gbnf);
    tool_set_free(tools);
    return calls;
}

static void check_walks(int n)
{
    grammar_vocab *v = byte_vocab();
    rng r = { 77 };
    int calls = 0;

    for (int i = 0; i < dialect_count(); i++)
        for (int k = 0; k < n; k++)
            calls += check_walk(dialect_at(i), k % 4 ? NULL : thinking_at(k / 4 % thinking_count()), v, &r);
    printf("%d calls in %d dialects\n", calls, dialect_count());
    grammar_vocab_free(v);
}

/* ---- spellings that are not JSON's ---- */

#define LISTS                                                                                                          \
    "[{\"type\":\"function\",\"function\":{\"name\":\"tag\",\"parameters\":{\"type\":\"object\",\"properties\":{"  \
    "\"names\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},"                                              \
    "\"flags\":{\"type\":\"array\",\"items\":{\"type\":[\"boolean\",\"null\"]}}},\"required\":[\"names\"]}}}]"

/* The grammar takes all of a call as the dialect's models write it, and the parser reads it. */
static void check_spelling(const tool_set *tools, const grammar_vocab *v, const written *w, int taken)
{
    const dialect *d = dialect_named(w->dialect);
    const tool_rules rules = { .d = d, .tools = tools, .only = -1, .from_start = 1 };
    grammar *g = NULL;
    grammar_run *run = NULL;
    char *gbnf = NULL;
    kvant_diag diag = { "" };
    tool_parser p = { .d = d, .tools = tools, .guarded = 1, .wanted = 1 };
    int complete = 0;

    int code = tool_grammar(&rules, &gbnf, &diag);
    CHECK(code == KVANT_OK && grammar_compile(gbnf, strlen(gbnf), &g, &diag) == KVANT_OK &&
              grammar_run_create(g, v, &run, &diag) == KVANT_OK, "%s: %s", w->dialect, diag.text);
    code = run ? grammar_run_bytes(run, w->text, strlen(w->text), &complete, &diag) : KVANT_EINVAL;
    CHECK((code == KVANT_OK && complete) == taken, "%s: %s: %s", w->dialect, w->text, diag.text);
    if (taken) {
        char *got = parse(&p, 0, w->text, strlen(w->text), 0, NULL);
        char want[400];
        size_t n = 0;
        for (const char *c = w->events; *c && n + 1 < sizeof want; c++)
            want[n++] = *c == '\n' ? BAR : *c;
        want[n] = 0;
        CHECK(strcmp(got, want) == 0, "%s: %s\n%s", w->dialect, w->text, got);
        kvant_free(got);
    }
    grammar_run_free(run);
    grammar_release(g);
    kvant_free(gbnf);
}

static void check_spellings(void)
{
    static const written taken[] = {
        { "lfm2", NULL, "<|tool_call_start|>[tag(names=['a', \"b\"],flags=[True,false,None])]<|tool_call_end|>",
          "C:tag\nA:{\"names\": [\"a\",\"b\"], \"flags\": [true,false,null]}\nE" },
        { "pythonic", NULL, "[tag(names=['it is'])]", "C:tag\nA:{\"names\": [\"it is\"]}\nE" },
        { "olmo3", NULL, "<function_calls>tag(names=[])</function_calls>", "C:tag\nA:{\"names\": []}\nE" },
        { "gemma4", NULL, "<|tool_call>call:tag{names:[<|\"|>a]\"b<|\"|>,<|\"|>c<|\"|>],flags:[true]}<tool_call|>",
          "C:tag\nA:{\"names\": [\"a]\\\"b\",\"c\"], \"flags\": [true]}\nE" },
        { "gemma", NULL, "<start_function_call>call:tag{names:[<escape>}<escape>]}<end_function_call>",
          "C:tag\nA:{\"names\": [\"}\"]}\nE" },
    };
    static const written refused[] = {
        { "hermes", NULL, "<tool_call>{\"name\": \"tag\", \"arguments\": {\"names\": ['a']}}</tool_call>", "" },
        { "glm", NULL, "<tool_call>tag<arg_key>names</arg_key><arg_value>['a']</arg_value></tool_call>", "" },
        { "gemma4", NULL, "<|tool_call>call:tag{names:['a']}<tool_call|>", "" },
    };
    tool_set *tools = tools_of(LISTS);
    grammar_vocab *v = byte_vocab();

    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
        check_spelling(tools, v, &taken[i], 1);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        check_spelling(tools, v, &refused[i], 0);
    grammar_vocab_free(v);
    tool_set_free(tools);
}

/* ---- hostile texts ---- */

/* Pieces of every dialect's texts and noise, in any order: the cut does not matter, and nothing crashes. */
static void check_noise(int n)
{
    static const char *const words[] = {
        "{}", "{\"city\": \"", "\"}", "weather", "now", "\n", " ", "[", "]", "{", "}", "\"", "<",
        "x",  "\xC3\xA9",      "\\",  "city",    "=",   "3",  ","
    };
    tool_set *tools = tools_of(TOOLS);
    rng r = { 9 };

    for (int i = 0; i < n; i++) {
        const dialect *d = dialect_at(i % dialect_count());
        const char *own[] = { d->open,
                              d->before,
                              d->middle,
                              d->after,
                              d->between,
                              d->close,
                              d->args ? d->args->key : NULL,
                              d->args ? d->args->value : NULL,
                              d->args ? d->args->end : NULL };
        sbuf text = { 0 };
        for (int k = 1 + (int)rng_below(&r, 20); k > 0; k--) {
            const char *w = rng_below(&r, 2) ? own[rng_below(&r, 9)] : words[rng_below(&r, 20)];
            for (; w && *w; w++)
                if (*w != '^' && *w != '\v')
                    sbuf_put(&text, w, 1);
        }
        tool_parser p = { .d = d, .t = thinking_at(i % thinking_count()), .tools = tools }, q = p;
        const int thinks = i % 5 == 0;
        char *whole = parse(&p, thinks, text.s ? text.s : "", text.n, 0, &r);
        char *cut = parse(&q, thinks, text.s ? text.s : "", text.n, 1 + (int)rng_below(&r, 5), &r);
        CHECK(strcmp(whole, cut) == 0, "%s: %.300s\n---\n%.300s\n---\n%.300s", d->name, text.s, whole, cut);
        kvant_free(whole);
        kvant_free(cut);
        sbuf_free(&text);
    }
    tool_set_free(tools);
}

/* ---- what is refused ---- */

static void check_refused(void)
{
    static const char *const bad[][2] = {
        { "[]", "want 1 to" },
        { "[{\"type\":\"x\"}]", "type: x" },
        { "[{\"type\":\"function\"}]", "function.name: missing" },
        { "[{\"type\":\"function\",\"function\":{\"name\":\"a b\"}}]", "function.name: a b" },
        { "[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"parameters\":3}}]", "want an object" },
        { "[{\"type\":\"function\",\"function\":{\"name\":\"a\"}},{\"type\":\"function\",\"function\":{\"name\":\"a\"}}]",
          "twice" },
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        json_t *list = json_loads(bad[i][0], 0, NULL);
        kvant_diag diag = { "" };
        tool_set *s = NULL;
        CHECK(tool_set_read(list, &s, &diag) == KVANT_EINVAL && strstr(diag.text, bad[i][1]), "%s: %s", bad[i][0],
              diag.text);
        json_decref(list);
    }
}

/* A keyword that no grammar can say: an error in a strict tool, any value in another. */
static void check_strict(void)
{
    static const char one[] =
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":%s,\"parameters\":{\"type\":\"object\","
        "\"properties\":{\"u\":{\"type\":\"string\",\"format\":\"nonsense\"},\"n\":{\"type\":\"integer\"}}}}}]";

    for (int strict = 0; strict < 2; strict++)
        for (int i = 0; i < dialect_count(); i++) {
            char json[512], *gbnf = NULL;
            kvant_diag diag = { "" };
            snprintf(json, sizeof json, one, strict ? "true" : "false");
            tool_set *s = tools_of(json);
            const int code = tool_grammar(&(tool_rules){ dialect_at(i), s, -1, 1, 1, NULL, NULL }, &gbnf, &diag);
            const dialect_args *a = dialect_at(i)->args;
            const int plain = a && (a->bare || a->quote); /* a plain text's format is not held */
            CHECK(strict && !plain ? code == KVANT_EINVAL && strstr(diag.text, "f:#/properties/u/format")
                                   : code == KVANT_OK,
                  "%s: %s", dialect_at(i)->name, diag.text);
            kvant_free(gbnf);
            tool_set_free(s);
        }
}

int main(int argc, char **argv)
{
    const int n = argc > 1 ? atoi(argv[1]) : 60; /* 1000 as the issue has it: check_server_tools 1000 */

    check_texts();
    check_refused();
    check_strict();
    check_noise(20 * n);
    check_spellings();
    check_walks(n);
    return check_end("check_server_tools");
}
