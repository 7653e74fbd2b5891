/* check_added.c: tokens that are looked for in a text: the blanks they take, words, the normalised text, the marks of a
 * chat's format, and what is known of a model whose file does not say it.  Ids against `tokenizers`: check_ids.c. */
#include "kvant/engine.h"
#include "support/check.h"
#include "support/gguf_make.h"
#include "text/added/added.h"
#include "text/template.h"
#include "text/utf8.h"

/* Bytes 0 to 255 as tokens of these ids, then `extra`; a type of 16 and more: its flags above. */
enum { MOST = 16, N_KEYS = 4 };
static const char *const flag_keys[N_KEYS] = { "kvant.tokenizer.lstrip", "kvant.tokenizer.rstrip",
                                               "kvant.tokenizer.single_word", "kvant.tokenizer.normalized" };

typedef struct extra_token {
    const char *text;
    int type, flags;
} extra_token;

static void put_bytes(gguf_make *m)
{
    uint32_t next = 256;

    for (uint32_t b = 0; b < 256; b++) {
        uint8_t text[4];
        const int plain = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        gguf_make_text(m, (char *)text, (size_t)utf8_encode(plain ? b : next++, text));
    }
}

static void make_vocab(gguf_make *m, const char *pre, const extra_token *x, int n)
{
    int32_t types[256 + MOST], ids[MOST];

    gguf_make_str(m, "tokenizer.ggml.model", "gpt2");
    gguf_make_str(m, "tokenizer.ggml.pre", pre);
    gguf_make_array(m, "tokenizer.ggml.tokens", GGUF_STRING, (uint64_t)(256 + n));
    put_bytes(m);
    for (int i = 0; i < 256 + n; i++)
        types[i] = i < 256 ? 1 : x[i - 256].type;
    for (int i = 0; i < n; i++)
        gguf_make_text(m, x[i].text, strlen(x[i].text));
    gguf_make_i32s(m, "tokenizer.ggml.token_type", types, (size_t)(256 + n));
    gguf_make_strs(m, "tokenizer.ggml.merges", (const char *const[]){ NULL });
    for (int k = 0; k < N_KEYS; k++) {
        size_t count = 0;
        for (int i = 0; i < n; i++)
            if (x[i].flags & 1 << k)
                ids[count++] = 256 + i;
        if (count)
            gguf_make_i32s(m, flag_keys[k], ids, count);
    }
}

static tokenizer *open_made(gguf_make *m, kvant_diag *diag)
{
    gguf *g = NULL;
    tokenizer *t = NULL;

    gguf_make_finish(m);
    if (gguf_open_mem(m->data, m->n, &g, diag) == 0 && tokenizer_open(g, &t, diag) < 0)
        t = NULL;
    gguf_close(g);
    gguf_make_free(m);
    return t;
}

/* Ids as a text: bytes as they are, extra token k as {k}. */
static void show(const int32_t *ids, int n, char *out)
{
    for (int i = 0; i < n; i++)
        out += ids[i] < 256 ? sprintf(out, "%c", ids[i]) : sprintf(out, "{%d}", ids[i] - 256);
    *out = 0;
}

static void expect(const tokenizer *t, const char *text, int flags, const char *want)
{
    int32_t ids[256];
    char got[1024] = "";
    int n = 0;
    kvant_diag diag = { "" };

    CHECK(tokenizer_encode(t, text, strlen(text), flags, ids, 256, &n, &diag) == 0, "'%s': %s", text, diag.text);
    show(ids, n, got);
    CHECK(strcmp(got, want) == 0, "'%s' flags %d: '%s', want '%s'", text, flags, got, want);
}

static void test_blanks(void)
{
    static const extra_token x[] = { { "<l>", 3, ADDED_LSTRIP },
                                     { "<r>", 3, ADDED_RSTRIP },
                                     { "<b>", 3, ADDED_LSTRIP | ADDED_RSTRIP },
                                     { "<n>", 3, 0 },
                                     { "\n", 4, 0 },
                                     { "{u}", 4, ADDED_RSTRIP } };
    static const char *const cases[][2] = {
        { "a <l> b", "a{0} b" },
        { "a <r> b", "a {1}b" },
        { "a <b> b", "a{2}b" },
        { "<n>", "{3}" },
        { "<l>", "{0}" },
        { " \t <l>", "{0}" },
        { "<r> \t ", "{1}" },
        { "<r> <l>", "{1}{0}" },
        { "<r>  <r>  <r>", "{1}{1}{1}" },
        { "<l>  <l>  <l>", "{0}{0}{0}" },
        { "<n> <l> <n>", "{3}{0} {3}" },
        { "a\xc2\xa0\xe3\x80\x80\xe2\x80\x89<b>\xe2\x80\xa9\xc2\x85z", "a{2}z" },
        { "a\xe2\x80\x8b<b>\xe2\x80\x8bz", "a\xe2\x80\x8b{2}\xe2\x80\x8bz" }, /* no White_Space */
        { "<r>\nx", "{1}{4}x" }, /* the line end is a token itself: found among the blanks, as `tokenizers` does */
        { "<r> \n x", "{1}{4} x" },
        { "x\n<l>", "x{4}{0}" },
        { "{u} x {u}", "{5}x {5}" },
        { "\xff <b> \xff", "\xff{2}\xff" },
        { "  ", "  " },
        { "a <b", "a <b" },
    };
    gguf_make m = { 0 };
    kvant_diag diag = { "" };

    make_vocab(&m, "gpt-2", x, 6);
    tokenizer *t = open_made(&m, &diag);
    CHECK(t, "%s", diag.text);
    for (size_t i = 0; t && i < sizeof cases / sizeof *cases; i++)
        expect(t, cases[i][0], KVANT_TOK_SPECIAL, cases[i][1]);
    if (t) {
        expect(t, "a <n> b", KVANT_TOK_SPECIAL, "a {3} b");
        expect(t, " <b> ", 0, " <b> "); /* a user's text has no control tokens, and keeps its blanks */
        expect(t, "{u}  x", 0, "{5}x");
    }
    tokenizer_close(t);
}

static void test_words(void)
{
    static const extra_token x[] = { { "foo", 4, ADDED_WORD },
                                     { "fo", 4, 0 },
                                     { "<w>", 3, ADDED_WORD | ADDED_LSTRIP } };
    static const char *const cases[][2] = {
        { "foo", "{0}" },
        { "food", "food" }, /* nothing inside of it either */
        { "a foo b", "a {0} b" },
        { "afoo", "afoo" },
        { "foo_", "foo_" },
        { "foo1", "foo1" },
        { "(foo)", "({0})" },
        { "foo-foo", "{0}-{0}" },
        { "foofoo", "foofoo" },
        { "foo\xc3\xa9", "foo\xc3\xa9" },
        { "\xe4\xb8\xad"
          "foo",
          "\xe4\xb8\xad"
          "foo" },
        { "\xcc\x81"
          "foo",
          "\xcc\x81"
          "foo" }, /* a mark */
        { "\xe2\x80\x8d"
          "foo",
          "\xe2\x80\x8d"
          "foo" }, /* a joiner */
        { "\xe2\x80\x9c"
          "foo\xe2\x80\x9d",
          "\xe2\x80\x9c{0}\xe2\x80\x9d" },
        { "\xe2\x93\x90"
          "foo",
          "\xe2\x93\x90"
          "foo" }, /* a circled letter */
        { "\xff"
          "foo\xff",
          "\xff{0}\xff" },
        { "fo foo", "{1} {0}" },
        { "a <w>", "a{2}" },
        { "a<w>", "a<w>" },
    };
    gguf_make m = { 0 };
    kvant_diag diag = { "" };

    make_vocab(&m, "gpt-2", x, 3);
    tokenizer *t = open_made(&m, &diag);
    CHECK(t, "%s", diag.text);
    for (size_t i = 0; t && i < sizeof cases / sizeof *cases; i++)
        expect(t, cases[i][0], KVANT_TOK_SPECIAL, cases[i][1]);
    tokenizer_close(t);
}

static void test_normalised(void)
{
    static const extra_token x[] = { { "e\xcc\x81x", 4, ADDED_NORMALIZED },
                                     { "Ab", 4, ADDED_NORMALIZED },
                                     { "Ab!", 3, 0 },
                                     { "b!!", 4, ADDED_NORMALIZED } };
    gguf_make m = { 0 };
    kvant_diag diag = { "" };

    make_vocab(&m, "qwen2", x, 4);
    gguf_make_strs(&m, "kvant.tokenizer.normalizers", (const char *const[]){ "nfc", "lowercase", NULL });
    tokenizer *t = open_made(&m, &diag);
    CHECK(t, "%s", diag.text);
    if (!t)
        return;
    expect(t, "\xc3\xa9x", 0, "{0}");
    expect(t, "e\xcc\x81X", 0, "{0}");
    expect(t, "\xc3\x89x", 0, "{0}");
    expect(t, "AB ab aB", 0, "{1} {1} {1}");
    expect(t, "AB!!", 0, "{1}!!");
    expect(t, "Ab!!", KVANT_TOK_SPECIAL, "{2}!"); /* the raw text's tokens go first */
    expect(t, "QB!!", 0, "q{3}");
    expect(t, "XYZ", 0, "xyz");
    expect(t, "\xc4\xb0", 0, "i\xcc\x87");
    expect(t, "", 0, "");
    tokenizer_close(t);
}

static void test_steps(void)
{
    static const struct {
        const char *steps[8], *text, *want;
    } cases[] = {
        { { "nfd" }, "\xc3\xa9", "e\xcc\x81" },
        { { "nfkc" }, "\xef\xbc\xa1\xef\xac\x81", "Afi" },
        { { "nfkd" }, "\xef\xbc\xa1\xc3\xa9", "Ae\xcc\x81" },
        { { "nfd", "strip_accents" }, "\xc3\xa9\xc3\xb6x", "eox" },
        { { "strip_left" }, "  a  ", "a  " },
        { { "strip_right" }, "  a\xc2\xa0 ", "  a" },
        { { "strip_left", "strip_right" }, " \n ", "" },
        { { "prepend", ">" }, "a", ">a" },
        { { "prepend", ">" }, "", "" },
        { { "replace", " ", "_" }, "a  b", "a__b" },
        { { "replace", "aa", "a" }, "aaaaa", "aaa" },
        { { "replace", "ab", "" }, "aabb", "ab" },
        { { "lowercase", "replace", "a", "bc", "prepend", "b" }, "AxA", "bbcxbc" },
        { { "lowercase" },
          "\xff"
          "A\xff",
          "\xff"
          "a\xff" },
        { { "nfd" },
          "\xff\xc3\xa9\xc3",
          "\xff"
          "e\xcc\x81\xc3" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gguf_make m = { 0 };
        kvant_diag diag = { "" };
        make_vocab(&m, "gpt-2", NULL, 0);
        gguf_make_strs(&m, "kvant.tokenizer.normalizers", cases[i].steps);
        tokenizer *t = open_made(&m, &diag);
        CHECK(t, "case %zu: %s", i, diag.text);
        if (t)
            expect(t, cases[i].text, 0, cases[i].want);
        tokenizer_close(t);
    }
}

static void test_bad_keys(void)
{
    static const char *const bad[][4] = {
        { "upper" }, { "replace" }, { "replace", "a" }, { "replace", "", "b" }, { "prepend" }
    };

    for (size_t i = 0; i < 5 + N_KEYS + 1; i++) {
        gguf_make m = { 0 };
        kvant_diag diag = { "" };
        const int32_t id = 256;
        const char *key = i < 5 ? "kvant.tokenizer.normalizers" : i < 9 ? flag_keys[i - 5] : "kvant.tokenizer.spaces";
        make_vocab(&m, "gpt-2", NULL, 0);
        if (i < 5)
            gguf_make_strs(&m, key, bad[i]);
        else if (i < 9)
            gguf_make_i32s(&m, key, &id, 1);
        else
            gguf_make_str(&m, key, "sometimes");
        tokenizer *t = open_made(&m, &diag);
        CHECK(!t && strstr(diag.text, key), "case %zu: '%s'", i, diag.text);
        tokenizer_close(t);
    }
}

/* ---- marks of the chat's format ---- */

static void test_marks(void)
{
    static const char *const marks[] = {
        "<|im_end|>",
        "<|tool_call>",
        "<channel|>",
        "<|\"|>",
        "<\xef\xbd\x9cUser\xef\xbd\x9c>",
        "[INST]",
        "[/INST]",
        "[TOOL_CALLS]",
        "[gMASK]",
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_response>",
        "<start_of_turn>",
        "<<SYS>>",
        "<</SYS>>",
        "<arg_key>",
        "<seed:think>",
        "<minimax:tool_call>",
        "\xe2\x97\x81think\xe2\x96\xb7",
        "<function_calls>",
        "<eos>",
        "<answer>",
        "<end_of_utterance>",
        "<image>",
        "<unused_7>",
        "<|reserved_1|>",
        ("\xef\xbd\x9c" "DSML\xef\xbd\x9c"), /* DeepSeek V3.2 */
        "[|tool|]",
        "]~!b[",
        "<escape>",
        "</role>",
        "<[begin\xe2\x96\x81of\xe2\x96\x81sentence]>",
        "<\xe7\x94\xa8\xe6\x88\xb7>", /* MiniCPM's user */
        "<AI>",
        "<unused94>",
        "[unused10]",
        "[BEGIN FINAL RESPONSE]",
        ">>QUESTION<<",
    };
    static const char *const words[] = {
        "\n\n", "\t\t",  "   ", "<table>", "</td>", "<b>", "<h1>", "</blockquote>", "<code>", "a",
        "the",  "[1]",   "[a]", "[X]",     "()",    "{}",  "<>",   "< >",           "<=",     "->",
        "1234", "<a b>", "|",   "||",      "--",    "<",   "[[",   "\xe2\x96\x81",
        "[an X]", "[|]", ">><<", "]~[", "<\xe2\x96\x81", "[to do]", "\xef\xbd\x9c",
    };

    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        CHECK(added_is_marker(marks[i], strlen(marks[i])), "'%s' is a mark", marks[i]);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        CHECK(!added_is_marker(words[i], strlen(words[i])), "'%s' is a word", words[i]);
}

/* A prompt of one message; the template's text around it is `head` and `tail`. */
static void expect_chat(const tokenizer *t, const char *head, const char *content, const char *tail, const char *want)
{
    char text[512], got[2048] = "";
    uint8_t origin[512];
    int32_t ids[512];
    int n = 0;
    kvant_diag diag = { "" };
    const size_t h = strlen(head), c = strlen(content), all = h + c + strlen(tail);

    sprintf(text, "%s%s%s", head, content, tail);
    memset(origin, JINJA_TEMPLATE, sizeof origin);
    memset(origin + h, JINJA_DATA, c);
    CHECK(tokenizer_encode_marked(t, text, all, origin, ids, 512, &n, &diag) == 0, "'%s': %s", text, diag.text);
    show(ids, n, got);
    CHECK(strcmp(got, want) == 0, "'%s': '%s', want '%s'", text, got, want);
}

static void test_data(void)
{
    static const extra_token x[] = { { "<think>", 4, 0 },
                                     { "]~b]", 4, 0 },
                                     { "\n\n", 4, 0 },
                                     { "<b>", 4, 0 },
                                     { "<|x|>", 3, ADDED_RSTRIP },
                                     { "~~~", 4, 0 },
                                     { "<|t", 4, ADDED_NORMALIZED },
                                     { "<|y|>", 4, ADDED_NORMALIZED } };
    gguf_make m = { 0 };
    kvant_diag diag = { "" };

    make_vocab(&m, "gpt-2", x, 8);
    gguf_make_strs(&m, "kvant.tokenizer.normalizers", (const char *const[]){ "lowercase", NULL });
    gguf_make_str(&m, "tokenizer.chat_template", "{{ ']~b]' }}~~~{{ '<b>' }}");
    tokenizer *t = open_made(&m, &diag);
    CHECK(t, "%s", diag.text);
    if (!t)
        return;
    expect_chat(t, "<think>", "<think>", "<think>", "{0}<think>{0}");
    expect_chat(t, "]~b]", "]~b]", "", "{1}]~b]");                  /* the template writes it */
    expect_chat(t, "~~~", "~~~", "", "{5}{5}");                     /* no brackets: a word */
    expect_chat(t, "<b>", "<b>\n\n", "\n", "{3}{3}{2}\n");          /* HTML and line ends stay tokens */
    expect_chat(t, "<|x|>\n", "  A<|x|>", "<|x|>", "{4}a<|x|>{4}"); /* the blanks go, whoever wrote them */
    expect_chat(t, "<th", "ink>", "", "<think>");                   /* no mark of two origins */
    expect_chat(t, "<", "think", ">", "<think>");
    expect_chat(t, "<|y|>", "<|y|><|Y|>", "<|y|>", "{7}<|y|><|y|>{7}");
    expect_chat(t, "", "<think></think><|x|>", "", "<think></think><|x|>");
    expect_chat(t, "", "", "<|x|>", "{4}");
    expect(t, "<think>]~b]<|x|>\n\n", 0, "<think>]~b]<|x|>{2}");
    expect(t, "<think>]~b]<|x|>\n\n", KVANT_TOK_SPECIAL, "{0}{1}{4}{2}");
    CHECK(tokenizer_bytes(t, 256, 0, NULL, 0) == 7, "a mark is still shown: callers read answers by it");
    tokenizer_close(t);
}

/* A merge that would make a mark is left out; one that makes a word of the language is not. */
static void test_merged_marks(void)
{
    static const extra_token x[] = {
        { "[A", 1, 0 }, { "[AB", 1, 0 }, { "[AB]", 4, 0 }, { "<s", 1, 0 }, { "<s>", 4, 0 }
    };
    gguf_make m = { 0 };
    kvant_diag diag = { "" };
    int32_t types[261];

    gguf_make_str(&m, "tokenizer.ggml.model", "gpt2");
    gguf_make_str(&m, "tokenizer.ggml.pre", "llama-bpe");
    gguf_make_array(&m, "tokenizer.ggml.tokens", GGUF_STRING, 261);
    put_bytes(&m);
    for (int i = 0; i < 261; i++)
        types[i] = i < 256 ? 1 : x[i - 256].type;
    for (int i = 0; i < 5; i++)
        gguf_make_text(&m, x[i].text, strlen(x[i].text));
    gguf_make_i32s(&m, "tokenizer.ggml.token_type", types, 261);
    gguf_make_strs(&m, "tokenizer.ggml.merges", (const char *const[]){ "[ A", "[A B", "[AB ]", "< s", "<s >", NULL });
    tokenizer *t = open_made(&m, &diag);
    CHECK(t, "%s", diag.text);
    if (t) {
        expect_chat(t, "", "[AB]", "", "{1}]");
        expect_chat(t, "[AB]", "", "", "{2}");
        expect_chat(t, "", "<s>", "", "{4}");
    }
    tokenizer_close(t);
}

/* ---- what is known of models ---- */

typedef struct placed {
    uint32_t id;
    const char *text;
} placed;

/* A vocabulary of n tokens with those of the list at their places; `raw`: of characters with scores. */
static tokenizer *make_model(uint32_t n, const placed *list, int raw, const char *name, int rules)
{
    gguf_make m = { 0 };
    kvant_diag diag = { "" };
    int32_t *types = malloc(n * sizeof *types);

    gguf_make_str(&m, "tokenizer.ggml.model", raw ? "llama" : "gpt2");
    if (!raw)
        gguf_make_str(&m, "tokenizer.ggml.pre", name && !strchr(name, ' ') ? name : "gpt-2");
    if (name)
        gguf_make_str(&m, "general.name", name);
    if (rules)
        gguf_make_u32(&m, "kvant.tokenizer.rules", 1);
    gguf_make_array(&m, "tokenizer.ggml.tokens", GGUF_STRING, n);
    if (!raw)
        put_bytes(&m);
    for (uint32_t i = raw ? 0 : 256; i < n; i++) {
        char text[32];
        const placed *p = list;
        while (p->text && p->id != i)
            p++;
        types[i] = p->text ? 3 : 1;
        if (raw && i >= 16 && i < 16 + 256) {
            types[i] = 6;
            snprintf(text, sizeof text, "<0x%02X>", i - 16);
        } else {
            snprintf(text, sizeof text, "%s%.0u", p->text ? p->text : "filler", p->text ? 0 : i);
        }
        gguf_make_text(&m, text, strlen(text));
    }
    for (int i = 0; !raw && i < 256; i++)
        types[i] = 1;
    gguf_make_i32s(&m, "tokenizer.ggml.token_type", types, n);
    gguf_make_array(&m, "tokenizer.ggml.scores", GGUF_F32, n);
    for (uint32_t i = 0; i < n; i++)
        gguf_make_bytes(&m, &(float){ 0 }, 4);
    gguf_make_strs(&m, "tokenizer.ggml.merges", (const char *const[]){ NULL });
    tokenizer *t = open_made(&m, &diag);
    CHECK(t, "%s", diag.text);
    free(types);
    return t;
}

static void expect_n(const tokenizer *t, const char *text, int n_want)
{
    int n = 0;

    tokenizer_encode(t, text, strlen(text), KVANT_TOK_SPECIAL, NULL, 0, &n, NULL);
    CHECK(n == n_want, "'%s': %d tokens, want %d", text, n, n_want);
}

static void test_models(void)
{
    static const placed phi3[] = { { 1, "<s>" },
                                   { 2, "</s>" },
                                   { 32000, "<|endoftext|>" },
                                   { 32001, "<|assistant|>" },
                                   { 32007, "<|end|>" },
                                   { 32010, "<|user|>" },
                                   { 0, NULL } };
    static const placed named[] = { { 1, "<s>" }, { 300, "<|user|>" }, { 0, NULL } };
    static const placed phi4[] = { { 100257, "<|endoftext|>" },
                                   { 100264, "<|im_start|>" },
                                   { 100265, "<|im_end|>" },
                                   { 100266, "<|im_sep|>" },
                                   { 0, NULL } };
    static const placed mini[] = { { 199999, "<|endoftext|>" }, { 200019, "<|assistant|>" }, { 200020, "<|end|>" },
                                   { 200021, "<|user|>" },      { 200023, "<|tool|>" },      { 0, NULL } };
    static const placed mask[] = { { 300, "<mask>" }, { 301, "[MASK]" }, { 0, NULL } };
    static const placed v3[] = { { 1, "<s>" }, { 3, "[INST]" }, { 4, "[/INST]" }, { 5, "[TOOL_CALLS]" }, { 0, NULL } };
    static const struct {
        uint32_t n;
        const placed *list;
        int raw;
        const char *name;
        int rules;
        struct {
            const char *text;
            int n;
        } texts[4];
    } cases[] = {
        /* U+2581 and 3 bytes for a blank; a span begins with one more */
        { 32064,
          phi3,
          1,
          "x",
          0,
          { { "<|user|>\n<|end|> \n", 2 }, { "<|endoftext|>\n", 5 }, { "<s>\n", 5 }, { "</s> ", 1 } } },
        { 32064, phi3, 1, "Phi3", 1, { { "<|user|>\n<|end|>", 6 } } },
        { 32000, named, 1, "My Phi-3 mini", 0, { { "<|user|>\n", 1 }, { "<s>\n", 5 } } },
        { 32000, named, 1, "Llama", 0, { { "<|user|>\n", 5 } } },
        { 100352, phi4, 0, NULL, 0, { { "a <|im_start|> b", 3 }, { "a <|im_sep|>\n", 2 } } },
        { 100352, phi4, 0, NULL, 1, { { "a <|im_start|> b", 5 } } },
        { 200064, mini, 0, NULL, 0, { { " <|user|> b", 3 }, { "<|tool|> ", 2 }, { "<|endoftext|> ", 2 } } },
        { 400, mask, 0, "jina-v2-de", 0, { { "a <mask> b", 4 }, { "a [MASK] b", 5 } } },
        { 400, mask, 0, "modern-bert", 0, { { "a <mask> b", 5 }, { "a [MASK] b", 4 } } },
        { 400, mask, 0, NULL, 0, { { "a <mask> b", 5 }, { "a [MASK] b", 5 } } },
        { 400, v3, 1, NULL, 0, { { "a", 4 }, { " a", 7 }, { "[INST]a", 2 }, { "a[INST] a[/INST]b", 11 } } },
        { 400, v3, 1, NULL, 1, { { "[INST]a", 2 } } },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tokenizer *t = make_model(cases[i].n, cases[i].list, cases[i].raw, cases[i].name, cases[i].rules);
        for (int k = 0; t && k < 4 && cases[i].texts[k].text; k++)
            expect_n(t, cases[i].texts[k].text, cases[i].texts[k].n);
        tokenizer_close(t);
    }
}

/* ---- time ---- */

/* A token that is a blank and takes blanks, in a run of them: the run is walked once. */
static void test_fuel(void)
{
    static const extra_token x[] = { { " ", 4, ADDED_RSTRIP }, { "\n", 4, ADDED_RSTRIP } };
    enum { N = 4 << 20 };
    gguf_make m = { 0 };
    kvant_diag diag = { "" };
    char *text = malloc(N);
    int n = 0;

    make_vocab(&m, "gpt-2", x, 2);
    tokenizer *t = open_made(&m, &diag);
    for (int i = 0; i < N; i++)
        text[i] = i % 3 ? ' ' : '\n';
    CHECK(t && tokenizer_encode(t, text, N, 0, NULL, 0, &n, &diag) == KVANT_ENOSPC && n == N, "%d of %d", n, N);
    free(text);
    tokenizer_close(t);
}

int main(void)
{
    test_blanks();
    test_words();
    test_normalised();
    test_steps();
    test_bad_keys();
    test_marks();
    test_data();
    test_merged_marks();
    test_models();
    test_fuel();
    return check_end("check_added");
}
