/* added_marker.c: which user-defined tokens are a part of the chat's format.  Owns the rule.
 *
 * A file may call anything user-defined: HTML tags and runs of blanks, which every text may have, and the marks of
 * turns, thoughts and tool calls, which a user's text must never form.  A mark is known by its shape (<|...|>, [UPPER],
 * <a_name>, <<SYS>>), by its word (<think>), or because the file's own chat template writes it.  HTML tags are none. */
#include <string.h>
#include "text/added/added.h"
#include "text/tokenizer_vocab.h"

enum { LEAST = 3, MOST = 512 };

static int begins(const char *s, size_t n, const char *head)
{
    const size_t k = strlen(head);
    return n >= k && memcmp(s, head, k) == 0;
}

static int ends(const char *s, size_t n, const char *tail)
{
    const size_t k = strlen(tail);
    return n >= k && memcmp(s + n - k, tail, k) == 0;
}

static int is_upper(char c)
{
    return c >= 'A' && c <= 'Z';
}

static int is_letter(char c)
{
    return is_upper(c) || (c >= 'a' && c <= 'z');
}

static int is_name_char(char c)
{
    return is_letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == ':' || c == '@';
}

static int is_name(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!is_name_char(s[i]))
            return 0;
    return n > 0;
}

static int is_listed(const char *s, size_t n, const char *const *list)
{
    for (; *list; list++)
        if (strlen(*list) == n && memcmp(*list, s, n) == 0)
            return 1;
    return 0;
}

/* "[INST]", "[/INST]", "[gMASK]", "[BEGIN FINAL RESPONSE]": a name with two capitals.  "[unused9]" begins turns. */
static int is_bracketed(const char *s, size_t n)
{
    int capitals = 0, words = 1;

    if (n < LEAST + 1 || s[0] != '[' || s[n - 1] != ']')
        return 0;
    s += s[1] == '/' ? 2 : 1;
    n -= s[-1] == '/' ? 3 : 2;
    for (size_t i = 0; i < n; i++) {
        capitals += is_upper(s[i]);
        words &= s[i] == ' ' || is_name_char(s[i]);
    }
    return words && (capitals >= 2 || (begins(s, n, "unused") && is_name(s, n)));
}

/* "<name>", "</name>": a name of several words, one in other letters than ours, or a word of the list. */
static int is_tag(const char *s, size_t n)
{
    static const char *const words[] = {
        "think",     "thinking", "thought",  "reasoning", "reflection", "answer",    "observation", "scratchpad",
        "plan",      "tool",     "tools",    "call",      "function",   "functions", "parameter",   "parameters",
        "arguments", "result",   "response", "output",    "input",      "system",    "user",        "assistant",
        "human",     "bot",      "model",    "developer", "context",    "query",     "message",     "image",
        "audio",     "video",    "img",      "bos",       "eos",        "pad",       "unk",         "mask",
        "sep",       "cls",      "eot",      "eom",       "eod",        "sop",       "eop",         "invoke",
        "search",    "solution", "action",   "step",      "info",       "DONE",      "EOT",         "BOT",
        "PRE",       "SUF",      "MID",      "CLS",       "SEP",        "EOD",       "escape",      "role",
        "AI",        NULL
    };
    static const char *const html[] = { "!doctype", "http-equiv", NULL };
    int foreign = 0; /* no HTML tag has such letters */

    if (n < LEAST || s[0] != '<' || s[n - 1] != '>')
        return 0;
    s += s[1] == '/' ? 2 : 1;
    n -= s[-1] == '/' ? 3 : 2;
    for (size_t i = 0; i < n; i++)
        foreign |= (s[i] & 0x80) != 0;
    if (foreign || is_listed(s, n, html) || !is_name(s, n))
        return foreign;
    return begins(s, n, "unused") || memchr(s, '_', n) || memchr(s, ':', n) || memchr(s, '-', n) ||
           is_listed(s, n, words);
}

int added_is_marker(const char *s, size_t n)
{
    static const char *const pairs[][2] = {
        { "<|", ">" },
        { "<", "|>" },
        { "<\xef\xbd\x9c", ">" },
        { "<", "\xef\xbd\x9c>" },
        { "<<", ">>" },
        { ">>", "<<" },
        { "<[", "]>" },
        { "[|", "|]" },
        { "]~", "[" },
        { "\xef\xbd\x9c", "\xef\xbd\x9c" }, /* full-width bars */
        { "\xe2\x97\x81", "\xe2\x96\xb7" }, /* white triangles */
    };

    if (n < LEAST || n > MOST)
        return 0;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (n > strlen(pairs[i][0]) + strlen(pairs[i][1]) && begins(s, n, pairs[i][0]) && ends(s, n, pairs[i][1]))
            return 1;
    return is_bracketed(s, n) || is_tag(s, n);
}

/* Brackets of any kind around it, no HTML tag: what a template writes so is a mark. */
static int could_be_mark(const char *s, size_t n)
{
    static const char open[] = "<[{]", close[] = ">]}[";

    if (n < LEAST || n > MOST || !memchr(open, s[0], 4) || !memchr(close, s[n - 1], 4))
        return 0;
    for (size_t i = 1 + (s[0] == '<' && s[1] == '/'); s[0] == '<' && i + 1 < n; i++)
        if (!is_name_char(s[i]))
            return 1;
    return s[0] != '<' || n > 12; /* <blockquote> is the longest tag of HTML without attributes */
}

static int has(gguf_str text, const char *s, size_t n)
{
    for (size_t at = 0; at + n <= text.n; at++) {
        const char *next = memchr(text.s + at, s[0], text.n - n - at + 1);
        if (!next)
            return 0;
        if (memcmp(next, s, n) == 0)
            return 1;
        at = (size_t)(next - text.s);
    }
    return 0;
}

void added_mark(vocab *v, const gguf *g)
{
    enum { MOST_TEMPLATE = 1 << 20, MOST_LOOKED = 256 }; /* bounds the search of a hostile file */
    gguf_str chat = { "", 0 };
    int looked = 0;

    if (gguf_string(g, "tokenizer.chat_template", 0, &chat, NULL) < 0 || chat.n > MOST_TEMPLATE)
        chat.n = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        vocab_token *t = &v->tokens[i];
        const char *s = v->text + t->at;
        if (t->kind != VOCAB_USER)
            continue;
        if (added_is_marker(s, t->len) || (could_be_mark(s, t->len) && looked++ < MOST_LOOKED && has(chat, s, t->len)))
            t->flags |= ADDED_MARKER;
    }
}
