/* template.c: the chat formats kvant knows, as data; template_write.c writes them.  Owns their marks; runs no Jinja.
 *
 * A template text is matched against the table below by the markers it contains; the first row whose marks are all
 * there (and whose `absent` is not) wins.  Rows of one family differ in details that their templates spell out.
 * What is written, with {} for content; the last line of each opens the answer:
 *
 *   chatml   <|im_start|>ROLE\n{}<|im_end|>\n ...
 *            <|im_start|>assistant\n
 *   llama3   <|start_header_id|>ROLE<|end_header_id|>\n\n{trimmed}<|eot_id|> ...
 *            <|start_header_id|>assistant<|end_header_id|>\n\n
 *   mistral  [INST] {system}\n\n{}[/INST] {answer}</s>[INST] ...     (spaces and the place of system by version)
 *            nothing
 *   gemma    <start_of_turn>user\n{system}\n\n{trimmed}<end_of_turn>\n ...      (assistant: model)
 *            <start_of_turn>model\n
 *
 * BOS is never part of the text.  As ids: llama3, mistral and gemma begin with BOS where the vocabulary has one (their
 * templates begin with bos_token); chatml where the file asks for it.
 *
 * Not rendered: tools and tool calls (a tool's answer is, for Qwen), images, dates ("Today Date" of Llama 3.1 is the
 * template's own fallback) and the long default system prompts of some Mistral templates. */
#include "model/template_impl.h"

#include <string.h>
#include "base/mem.h"

#define QWEN25_SYSTEM  "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
#define QWEN2_SYSTEM   "You are a helpful assistant."
#define LLAMA31_SYSTEM "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
#define IM             "<|im_start|>"

/* Most particular first within a family.  The backslashes are those of the Jinja source. */
/* clang-format off */
static const chat_family families[] = {
    { .name = "chatml", .variant = "qwen3.5-thinking", .style = CHATML, .qwen = 1, .think = THINK_QWEN35,
      .marks = { IM, "macro render_content", "enable_thinking is false" }, .answer = { "<think>", "\n" } },
    { .name = "chatml", .variant = "qwen3.5", .style = CHATML, .qwen = 1, .think = THINK_QWEN35,
      .marks = { IM, "macro render_content", "enable_thinking is true" }, .answer = { "<think>", "\n\n</think>\n\n" } },
    { .name = "chatml", .variant = "qwen3-thinking", .style = CHATML, .qwen = 1, .think = THINK_QWEN3,
      .marks = { IM, "ns.last_query_index", "<|im_start|>assistant\\n<think>\\n" }, .answer = { "<think>", "\n" } },
    { .name = "chatml", .variant = "qwen3", .style = CHATML, .qwen = 1, .think = THINK_QWEN3,
      .marks = { IM, "ns.last_query_index", "reasoning_content" } },
    { .name = "chatml", .variant = "qwq", .style = CHATML, .qwen = 1, .think = THINK_CUT,
      .marks = { IM, "</think>", "<|im_start|>assistant\\n<think>\\n" }, .answer = { "<think>", "\n" } },
    { .name = "chatml", .variant = "qwen2.5", .style = CHATML, .qwen = 1,
      .marks = { IM, QWEN25_SYSTEM }, .system = QWEN25_SYSTEM },
    { .name = "chatml", .variant = "qwen2", .style = CHATML,
      .marks = { IM, "<|im_start|>system\\n" QWEN2_SYSTEM "<|im_end|>" }, .system = QWEN2_SYSTEM },
    { .name = "chatml", .variant = "chatml", .style = CHATML,
      .marks = { IM, "<|im_end|>" }, .absent = "<|im_sep|>" },
    { .name = "llama3", .variant = "llama3.1", .style = LLAMA3,
      .marks = { "<|start_header_id|>", "<|end_header_id|>", "Cutting Knowledge Date: December 2023" },
      .system = LLAMA31_SYSTEM },
    { .name = "llama3", .variant = "llama3", .style = LLAMA3,
      .marks = { "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>" } },
    { .name = "mistral", .variant = "v7-tekken", .style = MISTRAL,
      .marks = { "[INST]", "[SYSTEM_PROMPT]" }, .absent = "[SYSTEM_PROMPT] ",
      .before = "", .after = "", .close = "", .lead = "", .system_tag = 1 },
    { .name = "mistral", .variant = "v7", .style = MISTRAL,
      .marks = { "[INST]", "[SYSTEM_PROMPT] " },
      .before = "", .after = " ", .close = "", .lead = " ", .system_tag = 1 },
    { .name = "mistral", .variant = "v1", .style = MISTRAL,
      .marks = { " [INST] ", " [/INST]", "system_message" }, .absent = "<<SYS>>",
      .before = " ", .after = " ", .close = " ", .lead = " " },
    { .name = "mistral", .variant = "v0", .style = MISTRAL,
      .marks = { "[INST] ", " [/INST]" }, .absent = "<<SYS>>",
      .before = "", .after = " ", .close = " ", .lead = "" },
    { .name = "mistral", .variant = "v3", .style = MISTRAL,
      .marks = { "[INST] ", "[/INST]" }, .absent = "<<SYS>>",
      .before = "", .after = " ", .close = "", .lead = " ", .system_last = 1, .trim_answer = 1 },
    { .name = "mistral", .variant = "v3-tekken", .style = MISTRAL,
      .marks = { "[INST]", "[/INST]" }, .absent = "<<SYS>>",
      .before = "", .after = "", .close = "", .lead = "", .system_last = 1 },
    { .name = "gemma", .variant = "gemma", .style = GEMMA,
      .marks = { "<start_of_turn>", "<end_of_turn>" } },
};
/* clang-format on */
enum { N_FAMILIES = sizeof families / sizeof families[0] };

/* What --chat-template NAME means where the file's own template is of another family or absent. */
static const struct {
    const char *name, *variant;
} plain[] = {
    { "chatml", "chatml" },
    { "llama3", "llama3" },
    { "mistral", "v3" },
    { "gemma", "gemma" },
};
enum { N_PLAIN = sizeof plain / sizeof plain[0] };
#define FAMILY_NAMES "chatml, llama3, mistral, gemma"

/* ---- choosing ---- */

static int contains(gguf_str text, const char *what)
{
    return memmem(text.s, text.n, what, strlen(what)) != NULL;
}

static int matches(const chat_family *f, gguf_str text)
{
    for (int i = 0; i < N_MARKS && f->marks[i]; i++)
        if (!contains(text, f->marks[i]))
            return 0;
    return !f->absent || !contains(text, f->absent);
}

static const chat_family *recognise(gguf_str text)
{
    for (int i = 0; i < N_FAMILIES; i++)
        if (matches(&families[i], text))
            return &families[i];
    return NULL;
}

static const chat_family *by_name(const char *name)
{
    for (int i = 0; i < N_PLAIN; i++)
        for (int j = 0; j < N_FAMILIES; j++)
            if (strcmp(plain[i].name, name) == 0 && strcmp(families[j].variant, plain[i].variant) == 0)
                return &families[j];
    return NULL;
}

int chat_unknown(kvant_diag *diag)
{
    return kvant_fail(diag, KVANT_EUNSUPPORTED,
                      "tokenizer.chat_template: not a format kvant knows; --chat-template with one of " FAMILY_NAMES
                      " chooses one");
}

int chat_family_choose(const gguf *g, const char *override, const chat_family **out, int *from_file, kvant_diag *diag)
{
    gguf_str text = { NULL, 0 };

    KVANT_TRY(gguf_string(g, "tokenizer.chat_template", 0, &text, diag));
    const chat_family *own = text.n ? recognise(text) : NULL;
    if (override) {
        const chat_family *f = by_name(override);
        if (!f)
            return kvant_fail(diag, KVANT_EINVAL, "--chat-template: '%.40s', want one of " FAMILY_NAMES, override);
        *out = own && strcmp(own->name, f->name) == 0 ? own : f;
    } else {
        *out = text.n ? own : by_name("chatml");
        if (!*out)
            chat_unknown(diag);
    }
    if (from_file)
        *from_file = override || text.n > 0;
    return KVANT_OK;
}

const char *chat_family_name(const chat_family *f)
{
    return f ? f->name : "unknown";
}

const char *chat_family_variant(const chat_family *f)
{
    return f ? f->variant : "unknown";
}

/* ---- text ---- */

/* Pieces from..to as one string of *len bytes, NUL-terminated. */
static int join(const pieces *p, size_t from, size_t to, char **out, size_t *len, kvant_diag *diag)
{
    size_t n = 0;

    for (size_t i = from; i < to; i++)
        if (!size_add(n, p->v[i].n, &n))
            return kvant_fail(diag, KVANT_ENOMEM, "messages: too long");
    char *s = n < SIZE_MAX ? kvant_alloc(n + 1) : NULL;
    if (!s)
        return kvant_fail(diag, KVANT_ENOMEM, "messages: no memory for %zu bytes", n);
    *len = n;
    n = 0;
    for (size_t i = from; i < to; i++) {
        memcpy(s + n, p->v[i].s, p->v[i].n);
        n += p->v[i].n;
    }
    s[n] = 0;
    *out = s;
    return KVANT_OK;
}

/* Drops what the format writes behind the last message's text. */
static int leave_open(pieces *p, const kvant_chat_msg *last, kvant_diag *diag)
{
    uintptr_t from = (uintptr_t)last->content, to = from + strlen(last->content);
    size_t n = p->n;

    if (strcmp(last->role, "assistant") != 0)
        return kvant_fail(diag, KVANT_EINVAL, "the last message is of role '%.24s', want assistant to continue it",
                          last->role);
    while (n && !((uintptr_t)p->v[n - 1].s >= from && (uintptr_t)p->v[n - 1].s < to))
        n--;
    if (n == 0)
        return kvant_fail(diag, KVANT_EINVAL, "the last message has no text that could be continued");
    p->n = n;
    return KVANT_OK;
}

/* The prompt in pieces; p->v is to be freed, on error too. */
static int write_prompt(pieces *p, const chat_family *f, const kvant_chat_msg *msgs, int n, int end, kvant_diag *diag)
{
    chat c = { msgs, n, end == KVANT_CHAT_OPEN };

    KVANT_TRY(chat_write(p, f, &c, diag));
    return end == KVANT_CHAT_CONTINUE ? leave_open(p, &msgs[n - 1], diag) : KVANT_OK;
}

int chat_family_format(const chat_family *f, const kvant_chat_msg *msgs, int n, int end, char **out, kvant_diag *diag)
{
    pieces p = { 0 };
    size_t len;
    int err = write_prompt(&p, f, msgs, n, end, diag);

    if (err == 0)
        err = join(&p, 0, p.n, out, &len, diag);
    kvant_free(p.v);
    return err;
}

/* ---- ids ---- */

typedef struct id_list {
    int32_t *ids;
    int cap;
    int64_t n; /* also beyond cap */
} id_list;

static void put_id(id_list *o, int32_t id)
{
    if (o->n < o->cap)
        o->ids[o->n] = id;
    o->n++;
}

/* Text between two markers, as one text: a word may reach from a header into the content. */
static int put_text(id_list *o, const tokenizer *t, const pieces *p, size_t from, size_t to, kvant_diag *diag)
{
    char *s = NULL;
    size_t len = 0;
    int n = 0;

    if (from == to)
        return KVANT_OK;
    KVANT_TRY(join(p, from, to, &s, &len, diag));
    int room = o->n < o->cap ? o->cap - (int)o->n : 0;
    int err = tokenizer_encode(t, s, len, 0, room ? o->ids + o->n : NULL, room, &n, diag);
    kvant_free(s);
    if (err < 0 && err != KVANT_ENOSPC)
        return err;
    o->n += n;
    return KVANT_OK;
}

static int put_pieces(id_list *o, const tokenizer *t, const pieces *p, kvant_diag *diag)
{
    size_t from = 0;

    for (size_t i = 0; i < p->n; i++) {
        /* A vocabulary without this marker: the model has never seen it as one token; it is text like any other. */
        int32_t id = p->v[i].marker ? tokenizer_find(t, p->v[i].s, p->v[i].n) : -1;
        if (id < 0)
            continue;
        KVANT_TRY(put_text(o, t, p, from, i, diag));
        put_id(o, id);
        from = i + 1;
    }
    return put_text(o, t, p, from, p->n, diag);
}

int chat_family_tokenize(const chat_family *f, const tokenizer *t, const kvant_chat_msg *msgs, int n, int end,
                         int32_t *ids, int cap, int *n_ids, kvant_diag *diag)
{
    pieces p = { 0 };
    id_list o = { ids, cap, 0 };

    if (cap < 0 || (cap > 0 && !ids))
        return kvant_fail(diag, KVANT_EINVAL, "kvant_chat_tokenize: no buffer");
    int err = write_prompt(&p, f, msgs, n, end, diag);
    if (err == 0) {
        if (f->style == CHATML ? tokenizer_add_bos(t) : tokenizer_bos(t) >= 0)
            put_id(&o, tokenizer_bos(t));
        err = put_pieces(&o, t, &p, diag);
    }
    kvant_free(p.v);
    if (err < 0)
        return err;
    if (o.n > INT32_MAX)
        return kvant_fail(diag, KVANT_EINVAL, "messages: %lld tokens, want at most %d", (long long)o.n, INT32_MAX);
    *n_ids = (int)o.n;
    if (o.n > cap)
        return kvant_fail(diag, KVANT_ENOSPC, "messages: %d tokens, room for %d", *n_ids, cap);
    return KVANT_OK;
}
