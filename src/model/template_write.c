/* template_write.c: the four short writers of the chat formats (template.c says what each writes), and the string
 * functions of their templates. */
#include "model/template_impl.h"

#include <string.h>
#include "base/mem.h"
#include "model/utf8.h"

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

int chat_write(pieces *p, const chat_family *f, const chat *c, kvant_diag *diag)
{
    int err = KVANT_OK;

    if (!f)
        return chat_unknown(diag);
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
