/* template.c: the chat formats kvant knows, as data and four short writers.  Owns the exact strings; runs no Jinja.
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
#include "model/template.h"

#include <string.h>
#include "base/mem.h"
#include "model/utf8.h"

enum style { CHATML, LLAMA3, MISTRAL, GEMMA };
/* Reasoning in earlier answers: kept; cut from all but the last message; kept only after the last question. */
enum think { THINK_KEEP, THINK_CUT, THINK_QWEN3, THINK_QWEN35 };
enum { N_MARKS = 3 };

struct chat_family {
    const char *name, *variant;
    enum style style;
    const char *marks[N_MARKS], *absent;
    const char *system; /* chatml: when the first message is none; llama3: before the system message */
    int qwen;           /* chatml: roles are system, user, assistant, tool */
    enum think think;
    const char *answer[2];                     /* chatml: after the header of the open answer: a marker, and text */
    const char *before, *after, *close, *lead; /* mistral: around [INST], before [/INST], before an answer */
    int system_last, system_tag;               /* mistral: folded into the last question; in [SYSTEM_PROMPT] */
    int trim_answer;
};

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

static int unknown(kvant_diag *diag)
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
            unknown(diag);
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

/* ---- pieces ---- */

/* A piece of the prompt: a marker of the format, or text that must stay text. */
typedef struct piece {
    const char *s;
    size_t n;
    int marker;
} piece;

typedef struct pieces {
    piece *v;
    size_t n, cap;
    int failed; /* out of memory: later pieces are dropped, the writers need not look */
} pieces;

static void add(pieces *p, const char *s, size_t n, int marker)
{
    if (n == 0 || p->failed)
        return;
    if (p->n == p->cap) {
        size_t cap = p->cap ? 2 * p->cap : 64;
        piece *v = kvant_realloc(p->v, p->n * sizeof *v, cap * sizeof *v);
        if (!v) {
            p->failed = 1;
            return;
        }
        p->v = v;
        p->cap = cap;
    }
    p->v[p->n++] = (piece){ s, n, marker };
}

static void mark(pieces *p, const char *s)
{
    add(p, s, strlen(s), 1);
}

static void text(pieces *p, const char *s)
{
    add(p, s, strlen(s), 0);
}

/* ---- strings as Python's: a span of the caller's text ---- */

typedef struct span {
    const char *s;
    size_t n;
} span;

static span span_of(const char *s)
{
    return (span){ s, strlen(s) };
}

static void put(pieces *p, span t)
{
    add(p, t.s, t.n, 0);
}

static int is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

/* Jinja's trim, which is Python's str.strip(). */
static span trim(span t)
{
    uint32_t c = 0;
    int k;

    while (t.n && (k = utf8_decode((const uint8_t *)t.s, t.n, &c)) > 0 && is_space(c)) {
        t.s += k;
        t.n -= (size_t)k;
    }
    while (t.n) {
        size_t from = t.n - 1;
        while (from > 0 && t.n - from < 4 && ((uint8_t)t.s[from] & 0xC0) == 0x80)
            from--;
        if (utf8_decode((const uint8_t *)t.s + from, t.n - from, &c) != (int)(t.n - from) || !is_space(c))
            break;
        t.n = from;
    }
    return t;
}

static span strip_newlines(span t, int left, int right)
{
    for (; left && t.n && t.s[0] == '\n'; t.n--)
        t.s++;
    while (right && t.n && t.s[t.n - 1] == '\n')
        t.n--;
    return t;
}

static const char *find(span t, const char *what)
{
    return memmem(t.s, t.n, what, strlen(what));
}

/* t.split(what)[-1] */
static span after_last(span t, const char *what)
{
    for (const char *at; (at = find(t, what));) {
        const char *next = at + strlen(what);
        t = (span){ next, t.n - (size_t)(next - t.s) };
    }
    return t;
}

static int starts(span t, const char *what)
{
    return t.n >= strlen(what) && memcmp(t.s, what, strlen(what)) == 0;
}

static int ends(span t, const char *what)
{
    return t.n >= strlen(what) && memcmp(t.s + t.n - strlen(what), what, strlen(what)) == 0;
}

/* ---- the writers ---- */

typedef struct chat {
    const kvant_chat_msg *msgs;
    int n, add_assistant;
} chat;

static int is_role(const chat *c, int i, const char *role)
{
    return i >= 0 && i < c->n && strcmp(c->msgs[i].role, role) == 0;
}

/* Index of the last question: a user's message that is not a tool's answer in disguise. */
static int last_question(const chat_family *f, const chat *c)
{
    for (int i = c->n - 1; i >= 0; i--) {
        span t = span_of(c->msgs[i].content);
        if (f->think == THINK_QWEN35)
            t = trim(t);
        if (is_role(c, i, "user") && !(starts(t, "<tool_response>") && ends(t, "</tool_response>")))
            return i;
    }
    return c->n - 1;
}

static void qwen_answer(pieces *p, const chat_family *f, const chat *c, int i, int question)
{
    span all = span_of(c->msgs[i].content), body = all, reason = { "", 0 };
    const int v35 = f->think == THINK_QWEN35;

    if (v35)
        all = body = trim(all);
    const char *end = find(all, "</think>");
    if (end && f->think == THINK_CUT && i + 1 == c->n)
        end = NULL; /* the last message stays as it is */
    if (end) {
        body = strip_newlines(after_last(all, "</think>"), 1, 0);
        reason = strip_newlines((span){ all.s, (size_t)(end - all.s) }, 0, 1);
        reason = strip_newlines(after_last(reason, "<think>"), 1, 0);
        reason = v35 ? trim(reason) : strip_newlines(reason, 1, 1);
    }
    if (f->think != THINK_CUT && i > question && (v35 || i + 1 == c->n || reason.n)) {
        mark(p, "<think>");
        text(p, "\n");
        put(p, reason);
        text(p, "\n");
        mark(p, "</think>");
        text(p, "\n\n");
        body = v35 ? body : strip_newlines(body, 1, 0);
    }
    put(p, body);
}

static void chatml_turn(pieces *p, const char *role, span content)
{
    mark(p, "<|im_start|>");
    text(p, role);
    text(p, "\n");
    put(p, content);
    mark(p, "<|im_end|>");
    text(p, "\n");
}

/* Qwen: the answers of tools, in one user turn. */
static void chatml_tool(pieces *p, const chat *c, int i, span content)
{
    if (!is_role(c, i - 1, "tool")) {
        mark(p, "<|im_start|>");
        text(p, "user");
    }
    text(p, "\n");
    mark(p, "<tool_response>");
    text(p, "\n");
    put(p, content);
    text(p, "\n");
    mark(p, "</tool_response>");
    if (!is_role(c, i + 1, "tool")) {
        mark(p, "<|im_end|>");
        text(p, "\n");
    }
}

static int write_chatml(pieces *p, const chat_family *f, const chat *c, kvant_diag *diag)
{
    const int question = last_question(f, c);

    if (f->system && !is_role(c, 0, "system"))
        chatml_turn(p, "system", span_of(f->system));
    for (int i = 0; i < c->n; i++) {
        span content = span_of(c->msgs[i].content);
        if (f->think == THINK_QWEN35)
            content = trim(content);
        if (f->think == THINK_QWEN35 && i > 0 && is_role(c, i, "system"))
            return kvant_fail(diag, KVANT_EINVAL, "message %d: role system, want it first only (%s)", i, f->variant);
        if (f->qwen && is_role(c, i, "tool")) {
            chatml_tool(p, c, i, content);
        } else if (f->think != THINK_KEEP && is_role(c, i, "assistant")) {
            mark(p, "<|im_start|>");
            text(p, "assistant\n");
            qwen_answer(p, f, c, i, question);
            mark(p, "<|im_end|>");
            text(p, "\n");
        } else {
            chatml_turn(p, c->msgs[i].role, content);
        }
    }
    if (c->add_assistant) {
        mark(p, "<|im_start|>");
        text(p, "assistant\n");
        if (f->answer[0]) {
            mark(p, f->answer[0]);
            text(p, f->answer[1]);
        }
    }
    return KVANT_OK;
}

static void llama3_header(pieces *p, const char *role)
{
    mark(p, "<|start_header_id|>");
    text(p, role);
    mark(p, "<|end_header_id|>");
    text(p, "\n\n");
}

static int write_llama3(pieces *p, const chat_family *f, const chat *c)
{
    int first = 0;

    if (f->system) {
        llama3_header(p, "system");
        text(p, f->system);
        if (is_role(c, 0, "system"))
            put(p, trim(span_of(c->msgs[first++].content)));
        mark(p, "<|eot_id|>");
    }
    for (int i = first; i < c->n; i++) {
        llama3_header(p, c->msgs[i].role);
        put(p, trim(span_of(c->msgs[i].content)));
        mark(p, "<|eot_id|>");
    }
    if (c->add_assistant)
        llama3_header(p, "assistant");
    return KVANT_OK;
}

/* The system message, if any, is the first; *user is the question it is folded into. */
static int fold_system(const chat *c, int last, int *user, kvant_diag *diag)
{
    *user = -1;
    for (int i = 0; i < c->n; i++) {
        if (i > 0 && is_role(c, i, "system"))
            return kvant_fail(diag, KVANT_EINVAL, "message %d: role system, want it first only", i);
        if (is_role(c, i, "user") && (*user < 0 || last))
            *user = i;
    }
    if (is_role(c, 0, "system") && *user < 0)
        return kvant_fail(diag, KVANT_EINVAL, "messages: a system message alone, want a user's message after it");
    return KVANT_OK;
}

static void mistral_turn(pieces *p, const chat_family *f, const chat *c, int i, int folded)
{
    if (is_role(c, i, "assistant")) {
        span answer = span_of(c->msgs[i].content);
        text(p, f->lead);
        put(p, f->trim_answer ? trim(answer) : answer);
        mark(p, "</s>");
        return;
    }
    if (is_role(c, i, "system")) {
        mark(p, "[SYSTEM_PROMPT]");
        text(p, f->after);
        text(p, c->msgs[i].content);
        mark(p, "[/SYSTEM_PROMPT]");
        return;
    }
    text(p, f->before);
    mark(p, "[INST]");
    text(p, f->after);
    if (folded) {
        text(p, c->msgs[0].content);
        text(p, "\n\n");
    }
    text(p, c->msgs[i].content);
    text(p, f->close);
    mark(p, "[/INST]");
}

static int write_mistral(pieces *p, const chat_family *f, const chat *c, kvant_diag *diag)
{
    const int fold = !f->system_tag && is_role(c, 0, "system");
    int user = -1;

    if (!f->system_tag)
        KVANT_TRY(fold_system(c, f->system_last, &user, diag));
    for (int i = fold; i < c->n; i++)
        mistral_turn(p, f, c, i, fold && i == user);
    return KVANT_OK;
}

static int write_gemma(pieces *p, const chat *c, kvant_diag *diag)
{
    const int fold = is_role(c, 0, "system");
    int user;

    KVANT_TRY(fold_system(c, 0, &user, diag));
    for (int i = fold; i < c->n; i++) {
        mark(p, "<start_of_turn>");
        text(p, is_role(c, i, "assistant") ? "model\n" : "user\n");
        if (fold && i == user) {
            text(p, c->msgs[0].content);
            text(p, "\n\n");
        }
        put(p, trim(span_of(c->msgs[i].content)));
        mark(p, "<end_of_turn>");
        text(p, "\n");
    }
    if (c->add_assistant) {
        mark(p, "<start_of_turn>");
        text(p, "model\n");
    }
    return KVANT_OK;
}

static int check_messages(const chat_family *f, const chat *c, kvant_diag *diag)
{
    const int closed = f->style == MISTRAL || f->style == GEMMA || f->qwen; /* the template knows its roles */

    if (c->n < 1 || !c->msgs)
        return kvant_fail(diag, KVANT_EINVAL, "messages: %d, want at least one", c->n);
    for (int i = 0; i < c->n; i++) {
        const kvant_chat_msg *m = &c->msgs[i];
        if (!m->role || !m->content || !m->role[0])
            return kvant_fail(diag, KVANT_EINVAL, "message %d: no role or no content", i);
        if (closed && !is_role(c, i, "system") && !is_role(c, i, "user") && !is_role(c, i, "assistant") &&
            !(f->qwen && is_role(c, i, "tool")))
            return kvant_fail(diag, KVANT_EINVAL, "message %d: role '%.24s', want system, user or assistant (%s)", i,
                              m->role, f->name);
    }
    return KVANT_OK;
}

static int write_pieces(pieces *p, const chat_family *f, const chat *c, kvant_diag *diag)
{
    int err = KVANT_OK;

    if (!f)
        return unknown(diag);
    KVANT_TRY(check_messages(f, c, diag));
    switch (f->style) {
    case CHATML: err = write_chatml(p, f, c, diag); break;
    case LLAMA3: err = write_llama3(p, f, c); break;
    case MISTRAL: err = write_mistral(p, f, c, diag); break;
    case GEMMA: err = write_gemma(p, c, diag); break;
    }
    if (err == 0 && p->failed)
        err = kvant_fail(diag, KVANT_ENOMEM, "messages: no memory for %d", c->n);
    return err;
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

int chat_family_format(const chat_family *f, const kvant_chat_msg *msgs, int n, int add_assistant, char **out,
                       kvant_diag *diag)
{
    pieces p = { 0 };
    chat c = { msgs, n, add_assistant };
    size_t len;
    int err = write_pieces(&p, f, &c, diag);

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

int chat_family_tokenize(const chat_family *f, const tokenizer *t, const kvant_chat_msg *msgs, int n, int add_assistant,
                         int32_t *ids, int cap, int *n_ids, kvant_diag *diag)
{
    pieces p = { 0 };
    chat c = { msgs, n, add_assistant };
    id_list o = { ids, cap, 0 };

    if (cap < 0 || (cap > 0 && !ids))
        return kvant_fail(diag, KVANT_EINVAL, "kvant_chat_tokenize: no buffer");
    int err = write_pieces(&p, f, &c, diag);
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
