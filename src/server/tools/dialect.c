/* dialect.c: see dialect.h.  To add a dialect, add a row; the model files that use it are recognised by what their chat
 * template writes (tool_traits.c). */
#include "server/tools/dialect.h"

#include <string.h>

enum { MOST_BLANKS = 32, MOST_ID = DIALECT_MOST_ID, MOST_TAG = 100 };

/* DeepSeek's bar (U+FF5C) and space (U+2581). */
#define BAR "\xEF\xBD\x9C"
#define LOW "\xE2\x96\x81"

static const dialect_args qwen_coder_args = {
    " <parameter=", ">", "</parameter>", "", NULL, 1, "\n</parameter>\v</parameter>", NULL, NULL
};
static const dialect_args seed_args = { " <parameter=", ">", "</parameter>", "", NULL, 1, NULL, NULL, NULL };
static const dialect_args glm_args = {
    " <arg_key>", "</arg_key> <arg_value>", "</arg_value>", "", NULL, 1, NULL, NULL, NULL
};
static const dialect_args minimax_args = {
    " <parameter name=\"", "\">", "</parameter>", "", NULL, 1, NULL, NULL, NULL
};
static const dialect_args step3_args = {
    " <steptml:parameter name=\"", "\">", "</steptml:parameter>", "", NULL, 1, NULL,
    NULL, NULL
};
#define DSML "\xEF\xBD\x9C" "DSML" "\xEF\xBD\x9C"
static const dialect_args dsml_args = {
    " <" DSML "parameter name=\"", "\" string=\"true\">\v\" string=\"false\">", "</" DSML "parameter>", "", NULL, 1, NULL,
    NULL, NULL
};
static const dialect_args kimi3_args = {
    " <|open|>argument key=\"",
    "\" type=\"string\"<|sep|>\v\" type=\"number\"<|sep|>\v\" type=\"boolean\"<|sep|>\v\" type=\"null\"<|sep|>\v"
    "\" type=\"object\"<|sep|>\v\" type=\"array\"<|sep|>",
    "<|close|>argument<|sep|>", "", NULL, 1, NULL,
    NULL, NULL
};
static const dialect_args hunyuan3_args = {
    " <arg_key:opensource>", "</arg_key:opensource> <arg_value:opensource>", "</arg_value:opensource>", "", NULL, 1, NULL,
    NULL, NULL
};
static const dialect_args minicpm5_args = { .key = " <param name=\"",
                                            .value = "\">",
                                            .end = "</param>",
                                            .between = "",
                                            .bare = 1,
                                            .wrap = "<![CDATA[",
                                            .unwrap = "]]>" };
static const dialect_args gemma4_args = { "", ":", "", " , ", "<|\"|>", 0, NULL, NULL, NULL };
static const dialect_args gemma_args = { "", ":", "", " , ", "<escape>", 0, NULL, NULL, NULL };
static const dialect_args python_args = { "", "=", "", " , ", NULL, 0, NULL, NULL, NULL };

#define JSON_NAME      " { \"name\" : \""
#define JSON_ARGUMENTS "\" , \"arguments\" : "
/* Calls of a list: {"name": NAME, "arguments": {...}}, ... */
#define JSON_CALLS     .before = JSON_NAME, .middle = JSON_ARGUMENTS, .after = " }", .between = " ,"

static const dialect dialects[] = {
    { .name = "hermes",
      .before = "<tool_call>^" JSON_NAME,
      .middle = JSON_ARGUMENTS,
      .after = " } </tool_call>",
      .between = " " },
    { .name = "qwen3_coder",
      .before = "<tool_call>^ <function=",
      .middle = ">",
      .args = &qwen_coder_args,
      .after = " </function> </tool_call>\v </function>",
      .also = "<function=",
      .between = " " },
    { .name = "seed",
      .before = "<seed:tool_call>^ <function=",
      .middle = ">",
      .args = &seed_args,
      .after = " </function> </seed:tool_call>\v </function>",
      .also = "<function=",
      .between = " " },
    { .name = "glm",
      .before = "<tool_call>^ ",
      .middle = " ",
      .args = &glm_args,
      .after = " </tool_call>",
      .between = " " },
    { .name = "hunyuan3",
      .open = "<tool_calls:opensource>^",
      .before = " <tool_call:opensource>",
      .middle = "<tool_sep:opensource> ",
      .args = &hunyuan3_args,
      .also = "<tool_call:opensource>",
      .after = " </tool_call:opensource>",
      .close = " </tool_calls:opensource>" },
    { .name = "minicpm5",
      .before = "<function name=\"^",
      .middle = "\">",
      .args = &minicpm5_args,
      .after = " </function>",
      .between = " " },
    { .name = "minimax",
      .open = "<minimax:tool_call>^",
      .before = " <invoke name=\"",
      .middle = "\">",
      .args = &minimax_args,
      .also = "<invoke name=\"",
      .after = " </invoke>",
      .close = " </minimax:tool_call>" },
    { .name = "mistral",
      .open = "[TOOL_CALLS]^ [",
      .before = JSON_NAME,
      .middle = JSON_ARGUMENTS,
      .after = " , \"id\" : \"%\" }\v }",
      .between = " ,",
      .close = " ]",
      .short_ids = 1 },
    { .name = "mistral_args", .before = "[TOOL_CALLS]^", .middle = "[ARGS]\v[CALL_ID]%[ARGS]", .short_ids = 1 },
    { .name = "harmony",
      .before = " to=functions.^",
      .middle = " <|constrain|>json<|message|>\v<|channel|>commentary <|constrain|>json<|message|>\v"
                "<|channel|>commentary json<|message|>",
      .also = " to=",
      .single = 1,
      .lead = "<|channel|>commentary",
      .drop = "<|channel|>commentary\v<|channel|>analysis" },
    { .name = "gemma4",
      .before = "<|tool_call>^call:",
      .middle = "{",
      .args = &gemma4_args,
      .after = " }<tool_call|>" },
    { .name = "gemma",
      .before = "<start_function_call>^call:",
      .middle = "{",
      .args = &gemma_args,
      .after = " }<end_function_call>" },
    { .name = "lfm2",
      .open = "<|tool_call_start|>^[",
      .middle = "(",
      .args = &python_args,
      .after = " )",
      .between = " , ",
      .close = " ]<|tool_call_end|>",
      .hint = "<|tool_list_start|>\vList of tools: [" },
    { .name = "functionary", .before = "<function=^", .middle = ">", .after = "</function>", .between = " " },
    { .name = "deepseek",
      .also = "<" BAR "tool" LOW "call" LOW "begin" BAR ">",
      .open = "<" BAR "tool" LOW "calls" LOW "begin" BAR ">^",
      .before = "<" BAR "tool" LOW "call" LOW "begin" BAR ">",
      .middle = "<" BAR "tool" LOW "sep" BAR ">",
      .after = "<" BAR "tool" LOW "call" LOW "end" BAR ">",
      .close = "<" BAR "tool" LOW "calls" LOW "end" BAR ">" },
    { .name = "deepseek_r1",
      .also = "<" BAR "tool" LOW "call" LOW "begin" BAR ">function<" BAR "tool" LOW "sep" BAR ">",
      .open = "<" BAR "tool" LOW "calls" LOW "begin" BAR ">^",
      .before = "<" BAR "tool" LOW "call" LOW "begin" BAR ">function<" BAR "tool" LOW "sep" BAR ">",
      .middle = "\n```json ",
      .after = " ```<" BAR "tool" LOW "call" LOW "end" BAR ">",
      .between = " ",
      .close = " <" BAR "tool" LOW "calls" LOW "end" BAR ">" },
    { .name = "step3",
      .open = "<" BAR "tool_calls_begin" BAR ">^",
      .before = " <" BAR "tool_call_begin" BAR ">function<" BAR "tool_sep" BAR "><steptml:invoke name=\"",
      .middle = "\">",
      .args = &step3_args,
      .also = "<steptml:invoke name=\"",
      .after = " </steptml:invoke><" BAR "tool_call_end" BAR ">\v </steptml:invoke>",
      .close = " <" BAR "tool_calls_end" BAR ">" },
    { .name = "kimi",
      .open = "<|tool_calls_section_begin|>^",
      .before = "<|tool_call_begin|>functions.",
      .also = "<|tool_call_begin|>functions.",
      .middle = ":%<|tool_call_argument_begin|>",
      .after = "<|tool_call_end|>",
      .close = "<|tool_calls_section_end|>" },
    { .name = "kimi3",
      .open = "<|open|>tools<|sep|>^",
      .before = " <|open|>call tool=\"",
      .middle = "\" index=\"%\"<|sep|>",
      .args = &kimi3_args,
      .also = "<|open|>call tool=\"",
      .after = " <|close|>call<|sep|>",
      .close = " <|close|>tools<|sep|>",
      .drop = "<|close|>message<|sep|>\v<|end_of_msg|>" },
    { .name = "deepseek_v32",
      .open = "<" DSML "function_calls>^",
      .before = " <" DSML "invoke name=\"",
      .middle = "\">",
      .args = &dsml_args,
      .also = "<" DSML "invoke name=\"",
      .after = " </" DSML "invoke>",
      .close = " </" DSML "function_calls>" },
    { .name = "deepseek_v4",
      .open = "<" DSML "tool_calls>^",
      .before = " <" DSML "invoke name=\"",
      .middle = "\">",
      .args = &dsml_args,
      .also = "<" DSML "invoke name=\"",
      .after = " </" DSML "invoke>",
      .close = " </" DSML "tool_calls>" },
    { .name = "command_r",
      .open = "Action: ```json^ [",
      .before = " { \"tool_name\" : \"",
      .middle = "\" , \"parameters\" : ",
      .after = " }",
      .between = " ,",
      .close = " ] ```",
      .hint = "Write 'Action:' followed by" },
    { .name = "command",
      .open = "<|START_ACTION|>^ [",
      .before = " { \"tool_call_id\" : \"%\" , \"tool_name\" : \"",
      .middle = "\" , \"parameters\" : ",
      .after = " }",
      .between = " ,",
      .close = " ]<|END_ACTION|>" },
    { .name = "nemotron",
      .open = "<TOOLCALL>^ [",
      JSON_CALLS,
      .close = " ]</TOOLCALL>" },
    { .name = "granite",
      .open = "<|tool_call|>^ [",
      JSON_CALLS,
      .close = " ]",
      .drop = "<|/tool_call|>", /* Phi-4-mini ends its calls with it */
      .hint = "<|tool_call|> followed by" },
    { .name = "granite_function",
      .before = "<function_call>^" JSON_NAME,
      .middle = JSON_ARGUMENTS,
      .after = " }",
      .between = " " },
    { .name = "internlm",
      .before = "<|action_start|><|plugin|>^" JSON_NAME,
      .middle = "\" , \"parameters\" : ",
      .after = " }<|action_end|>",
      .single = 1 },
    { .name = "firefunction",
      .open = " functools[^",
      JSON_CALLS,
      .close = " ]" },
    { .name = "tool_calls",
      .open = "<tool_calls>^ [",
      JSON_CALLS,
      .close = " ]</tool_calls>" },
    { .name = "minimax_m1",
      .open = "<tool_calls>^",
      .before = JSON_NAME,
      .middle = JSON_ARGUMENTS,
      .after = " }",
      .between = "\n",
      .close = " </tool_calls>" },
    { .name = "apertus",
      .open = "<|tools_prefix|>^ [",
      .before = " { \"",
      .middle = "\" : ",
      .after = " }",
      .between = " ,",
      .close = " ]<|tools_suffix|>" },
    { .name = "solar",
      .before = "<|tool_call:begin|>^%<|tool_call:name|>",
      .middle = "<|tool_call:args|>",
      .after = "<|tool_call:end|>",
      .lead = "<|tool_calls|>",
      .drop = "<|begin|>assistant<|tool_calls|>\v<|tool_calls|>\v<|calls|>" },
    { .name = "gigachat",
      .before = "<|message_sep|> function call<|role_sep|>^" JSON_NAME,
      .middle = JSON_ARGUMENTS,
      .after = " }",
      .single = 1,
      .drop = "<|message_sep|>" },
    { .name = "gigachat31",
      .before = "<|function_call|>^" JSON_NAME,
      .middle = JSON_ARGUMENTS,
      .after = " }",
      .single = 1,
      .drop = "<|message_sep|>" },
    { .name = "olmo3",
      .open = "<function_calls>^ ",
      .middle = "(",
      .args = &python_args,
      .after = " )",
      .between = "\n",
      .close = " </function_calls>" },
    /* last: their triggers are plain JSON, or a bracket, which an answer of the others may hold */
    { .name = "llama3",
      .before = " { \"name\"^ : \"",
      .middle = "\" , \"parameters\" : ",
      .after = " }",
      .between = " ;",
      .drop = "<|python_tag|>",
      .at_start = 1 },
    { .name = "pythonic",
      .open = "[^",
      .middle = " (",
      .args = &python_args,
      .after = " )",
      .between = " , ",
      .close = " ]",
      .drop = "<|python_start|>\v<|python_end|>",
      .hint = "[func_name1(",
      .at_start = 1,
      .by_name = 1 },
    { .name = "xlam",
      .open = "[^",
      JSON_CALLS,
      .close = " ]",
      .hint = "calls in a single JSON array",
      .at_start = 1,
      .by_name = 1 },
};

/* ---- calls of keys and values in another form than the dialect's ---- */

#define KEYS(tag)                                                                                                      \
    " <" tag " name=\"\v <" tag " name='\v <" tag " name=\v <" tag "=\"\v <" tag "='\v <" tag "="
#define FORM_AFTER                                                                                                     \
    " </function>\v </invoke>\v </tool_call>\v </tool_calls>\v </function_calls>\v </function_call>\v"                \
    " </minimax:tool_call>\v </seed:tool_call>\v </" DSML "invoke>\v </" DSML "function_calls>\v </" DSML            \
    "tool_calls>\v </steptml:invoke>"

static const dialect_args form_args[] = {
    { KEYS("parameter") "\v" KEYS("param"), "~>", "</parameter>\v</param>", "", NULL, 1,
      "\n</parameter>\v</parameter>\v\n</param>\v</param>", NULL, NULL },
    { " <arg_key>", "</arg_key> <arg_value>", "</arg_value>", "", NULL, 1, NULL, NULL, NULL },
    { KEYS(DSML "parameter"), "\" string=\"true\">\v\" string=\"false\">\v~>",
      "</" DSML "parameter>", "", NULL, 1, NULL, NULL, NULL },
    { KEYS("steptml:parameter"), "~>", "</steptml:parameter>", "", NULL, 1, NULL, NULL, NULL },
};

static const dialect forms[] = {
    { .name = "xml", .args = &form_args[0], .after = FORM_AFTER },
    { .name = "arg_key", .args = &form_args[1], .after = FORM_AFTER },
    { .name = "dsml", .args = &form_args[2], .after = FORM_AFTER },
    { .name = "steptml", .args = &form_args[3], .after = FORM_AFTER },
};

int dialect_form_count(void)
{
    return (int)(sizeof forms / sizeof forms[0]);
}

const dialect *dialect_form(int i)
{
    return &forms[i];
}

#define HARMONY_DROP                                                                                                   \
    "<|start|>assistant\v<|channel|>final<|message|>\v<|channel|>final <|constrain|>json<|message|>\v"                 \
    "<|channel|>commentary<|message|>\v<|end|>\v<|return|>"

#define SOLAR_DROP "<|begin|>assistant<|content|>\v<|content|>\v<|begin|>assistant\v<|end|>"

static const thinking thinkings[] = {
    { "think", "<think>", "</think>", NULL, NULL },
    { "harmony", "<|channel|>analysis<|message|>", "<|end|>", "<|start|>assistant", HARMONY_DROP },
    { "mistral", "[THINK]", "[/THINK]", NULL, NULL },
    { "gemma4", "<|channel>thought\n", "<channel|>", NULL, NULL },
    { "command", "<|START_THINKING|>", "<|END_THINKING|>", NULL, "<|START_RESPONSE|>\v<|END_RESPONSE|>" },
    { "hunyuan3", "<think:opensource>", "</think:opensource>", NULL, NULL },
    { "seed", "<seed:think>", "</seed:think>", NULL, NULL },
    { "apertus", "<|inner_prefix|>", "<|inner_suffix|>", NULL, NULL },
    { "kimi3", "<|open|>think<|sep|>", "<|close|>think<|sep|>", NULL,
      "<|open|>response<|sep|>\v<|close|>response<|sep|>\v<|close|>message<|sep|>\v<|end_of_msg|>" },
    { "apriel", "Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]", NULL, "[END FINAL RESPONSE]" },
    { "solar", "<|think|>", "<|end|>", "<|begin|>assistant", SOLAR_DROP },
};

int dialect_count(void)
{
    return (int)(sizeof dialects / sizeof dialects[0]);
}

const dialect *dialect_at(int i)
{
    return &dialects[i];
}

const dialect *dialect_named(const char *name)
{
    for (int i = 0; i < dialect_count(); i++)
        if (strcmp(dialects[i].name, name) == 0)
            return &dialects[i];
    return NULL;
}

int thinking_count(void)
{
    return (int)(sizeof thinkings / sizeof thinkings[0]);
}

const thinking *thinking_at(int i)
{
    return &thinkings[i];
}

/* ---- patterns ---- */

static int is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static int is_id(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

int dialect_name_char(char c)
{
    return is_id(c) || c == '_' || c == '-' || c == '.' || c == '/';
}

/* One alternative p[len]. */
static int match_one(const char *p, size_t len, const char *s, size_t n, size_t *used)
{
    size_t at = 0, i = 0;

    for (; i < len; i++) {
        if (p[i] == '^')
            continue;
        if (p[i] == ' ' || p[i] == '%') {
            const size_t from = at, most = p[i] == '%' ? MOST_ID : MOST_BLANKS;
            if (p[i] == ' ' && i + 1 == len)
                break; /* blanks at the end are left to what follows */
            while (at < n && at - from <= most && (p[i] == '%' ? is_id(s[at]) : is_blank(s[at])))
                at++;
            if (at - from > most || (p[i] == '%' && at == from && at < n))
                return MATCH_NO;
            if (at == n)
                return MATCH_PART;
            continue;
        }
        if (p[i] == '~') {
            const size_t from = at;
            while (at < n && at - from <= MOST_TAG && s[at] != '<' && s[at] != '>')
                at++;
            if (at - from > MOST_TAG)
                return MATCH_NO;
            if (at == n)
                return MATCH_PART;
            continue;
        }
        if (at == n)
            return MATCH_PART;
        if (s[at++] != p[i])
            return MATCH_NO;
    }
    *used = at;
    return MATCH_FULL;
}

int pattern_match(const char *pattern, int part, const char *s, size_t n, size_t *used)
{
    const char *mark = strchr(pattern ? pattern : "", '^');
    int best = MATCH_NO, parts = 0;
    size_t k;

    *used = 0;
    if (!pattern)
        return MATCH_FULL;
    if (part == PATTERN_TRIGGER)
        return match_one(pattern, mark ? (size_t)(mark - pattern) : strlen(pattern), s, n, used);
    if (part == PATTERN_REST && mark)
        pattern = mark + 1;
    for (const char *p = pattern;; p += k + 1) {
        size_t u = 0;
        k = strcspn(p, "\v");
        const int m = match_one(p, k, s, n, &u);
        parts |= m == MATCH_PART; /* it may become a longer one */
        if (m == MATCH_FULL && (best != MATCH_FULL || u > *used)) {
            best = MATCH_FULL;
            *used = u;
        }
        if (!p[k])
            break;
    }
    return parts ? MATCH_PART : best;
}
