/* tool_traits.c: see tool_traits.h. */
#include "server/tools/tool_traits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/mem.h"
#include "server/request/json_scan.h"
#include "server/tools/tool_parser.h"

#define THOUGHT "probe thought"
#define THINKS  "{\"role\":\"assistant\",\"reasoning_content\":\"" THOUGHT "\",\"content\":\"\"}"
#define USER "{\"role\":\"user\",\"content\":\"probe question\"}"
#define TOOLS                                                                                                          \
    "[{\"type\":\"function\",\"function\":{\"name\":\"probe_tool\",\"description\":\"probe\",\"parameters\":"          \
    "{\"type\":\"object\",\"properties\":{\"probe_key\":{\"type\":\"string\",\"description\":\"probe\"}},"             \
    "\"required\":[\"probe_key\"]}}}]"
#define CALL                                                                                                           \
    "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"abcdefghi\",\"type\":\"function\","            \
    "\"function\":{\"name\":\"probe_tool\",\"arguments\":\"{\\\"probe_key\\\": \\\"probe value\\\"}\"}}]},"            \
    "{\"role\":\"tool\",\"tool_call_id\":\"abcdefghi\",\"name\":\"probe_tool\",\"content\":\"probe result\"}"

/* The text of a probe, to be freed with kvant_text_free; NULL: the template refuses it. */
static char *render(const kvant_model *m, const char *messages, const char *tools, int end)
{
    kvant_chat_input in = { .messages = messages, .tools = tools, .end = end };
    char *text = NULL;
    json_t *more = json_pack("{s:s,s:s}", "functions", tools ? tools : "", "datetime", "now"); /* Firefunction's */
    char *kwargs = more ? json_dumps(more, JSON_COMPACT) : NULL;

    in.kwargs = kwargs;
    const int code = kvant_chat_render(m, &in, &text, NULL);
    json_decref(more);
    free(kwargs); /* jansson's */
    return code == KVANT_OK ? text : NULL;
}

/* Returns 1 if the chat's prompt has the words. */
static int shows(const kvant_model *m, const char *messages, const char *tools, const char *words)
{
    char *text = render(m, messages, tools, KVANT_CHAT_CLOSED);
    const int found = text && strstr(text, words);

    kvant_text_free(text);
    return found;
}

/* ---- the dialect ---- */

typedef struct probe {
    int calls;
    sbuf args;
} probe;

static void on_probe(void *user, int event, const char *s, size_t n)
{
    probe *p = user;

    p->calls += event == TOOL_CALL;
    if (event == TOOL_ARGS)
        sbuf_put(&p->args, s, n);
}

static int finds_call(const dialect *d, const tool_set *tools, const char *text)
{
    probe seen = { 0 };
    tool_parser p = { .d = d, .tools = tools, .emit = on_probe, .user = &seen, .strict = 1 };

    tool_parser_begin(&p, 0);
    int ok = tool_parser_feed(&p, text, strlen(text)) == KVANT_OK && seen.calls == 1 && seen.args.n;
    ok = ok && strstr(seen.args.s, "\"probe_key\"") && strstr(seen.args.s, "\"probe value\"");
    tool_parser_free(&p);
    sbuf_free(&seen.args);
    return ok;
}

/* Returns the template's text for a call, without that which it writes before an answer: from the end of a marker or a
 * blank, as both may begin with the same letters. */
static const char *written_call(const char *open, const char *call)
{
    size_t n = 0;

    while (open && open[n] && open[n] == call[n])
        n++;
    while (n && !strchr(" \n>]", call[n - 1]))
        n--;
    return call + n;
}

/* Bytes of one of the dialect's hints that a prompt holds. */
static size_t hinted(const dialect *d, const char *text)
{
    char hint[80];
    size_t n;

    for (const char *p = d->hint; p && *p; p += n + (p[n] != 0)) {
        n = strcspn(p, "\v");
        snprintf(hint, sizeof hint, "%.*s", (int)n, p);
        if (strstr(text, hint))
            return n;
    }
    return 0;
}

/* Bytes of the dialect's texts that a prompt holds; 0 when one of them is missing.  Plain JSON says nothing. */
static size_t told(const dialect *d, const char *text)
{
    const char *const all[] = {
        d->open, d->before, d->middle, d->after, d->close, d->args ? d->args->key : NULL, d->args ? d->args->end : NULL
    };
    char piece[80];
    size_t sum = hinted(d, text);

    if (sum || d->at_start)
        return sum;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        for (const char *p = all[i]; p && *p;) {
            const size_t n = strcspn(p, " ^%\v");
            memcpy(piece, p, n);
            piece[n] = 0;
            if (!strstr(text, piece))
                return 0;
            sum += n;
            p += n + (p[n] != 0);
        }
    return sum;
}

static const dialect *dialect_told(const char *text)
{
    const dialect *best = NULL;
    size_t most = 8; /* fewer bytes are in any text about JSON */

    for (int i = 0; i < dialect_count(); i++) {
        const size_t n = told(dialect_at(i), text);
        if (n > most) {
            most = n;
            best = dialect_at(i);
        }
    }
    return best;
}

static const dialect *find_dialect(const kvant_model *m, const char *tools_text)
{
    char *open = render(m, "[" USER "]", TOOLS, KVANT_CHAT_OPEN);
    char *call = render(m, "[" USER "," CALL "]", TOOLS, KVANT_CHAT_CLOSED);
    const dialect *found = NULL;
    json_t *list = NULL;
    tool_set *tools = NULL;

    if (call && json_read(TOOLS, strlen(TOOLS), &list, NULL) == KVANT_OK &&
        tool_set_read(list, &tools, NULL) == KVANT_OK)
        for (int i = 0; i < dialect_count() && !found; i++)
            if (finds_call(dialect_at(i), tools, written_call(open, call)))
                found = dialect_at(i);
    tool_set_free(tools);
    json_decref(list);
    if (!found && call)
        found = dialect_told(written_call(open, call));
    kvant_text_free(open);
    kvant_text_free(call);
    return found ? found : dialect_told(tools_text);
}

static void probe_tools(const kvant_model *m, tool_traits *t)
{
    char *text = render(m, "[" USER "]", TOOLS, KVANT_CHAT_OPEN);

    t->renders_tools = text && strstr(text, "probe_tool");
    if (t->renders_tools)
        t->d = find_dialect(m, text);
    t->guessed = !t->d;
    if (t->guessed) /* Falcon-H1 tells of calls in words; the parser reads other forms too */
        t->d = dialect_named("hermes");
    t->shows_calls = t->renders_tools && shows(m, "[" USER "," CALL "]", TOOLS, "probe value");
    t->shows_results = t->renders_tools && shows(m, "[" USER "," CALL "]", TOOLS, "probe result");
    t->takes_system = shows(m, "[{\"role\":\"system\",\"content\":\"probe system\"}," USER "]", NULL, "probe system");
    kvant_text_free(text);
}

/* ---- thoughts ---- */

/* Returns 1 if the vocabulary has the marker that s begins with ("<think>", "[THINK]") as one token. */
static int is_token(const kvant_model *m, const char *s)
{
    const size_t n = strcspn(s, ">]") + 1;
    int32_t ids[8];
    int count = 0;

    return kvant_tokenize(m, s, n, KVANT_TOK_SPECIAL, ids, 8, &count, NULL) == KVANT_OK && count == 1;
}

static size_t without_blanks(const char *s, size_t n)
{
    while (n && strchr(" \n\t\r", s[n - 1]))
        n--;
    return n;
}

static int ends_with(const char *s, size_t n, const char *end)
{
    const size_t k = without_blanks(end, strlen(end));

    n = without_blanks(s, n);
    return n >= k && memcmp(s + n - k, end, k) == 0;
}

/* Returns 1 if the chat shows an earlier thought behind the marker. */
static int shows_behind(const char *chat, const char *marker)
{
    const char *s = chat ? strstr(chat, marker) : NULL;

    return s && strncmp(s + strlen(marker) + strspn(s + strlen(marker), " \n"), THOUGHT, strlen(THOUGHT)) == 0;
}

static void probe_thoughts(const kvant_model *m, tool_traits *t)
{
    char *open = render(m, "[" USER "]", NULL, KVANT_CHAT_OPEN);
    char *earlier = render(m, "[" USER "," THINKS "]", NULL, KVANT_CHAT_CLOSED);

    for (int i = 0; i < thinking_count() && !t->t; i++) {
        const thinking *k = thinking_at(i);
        if ((is_token(m, k->begin) && is_token(m, k->end)) || (open && ends_with(open, strlen(open), k->begin)) ||
            shows_behind(earlier, k->begin))
            t->t = k;
    }
    kvant_text_free(open);
    kvant_text_free(earlier);
}

static int read_end(const kvant_model *m, tool_traits *t, kvant_diag *diag)
{
    char text[128];

    if (!t->t)
        return KVANT_OK;
    snprintf(text, sizeof text, "%s%s", t->t->end, t->t->then ? t->t->then : "\n\n");
    return kvant_tokenize(m, text, strlen(text), KVANT_TOK_SPECIAL, t->end_ids, THOUGHT_END_IDS, &t->n_end, diag);
}

int tool_traits_opened(const tool_traits *t, const kvant_model *m, const int32_t *ids, int n)
{
    char text[512];
    size_t at = 0;

    for (int i = n > 16 ? n - 16 : 0; i < n && t->t; i++) {
        const int k = kvant_token_bytes(m, ids[i], 1, text + at, (int)(sizeof text - at));
        if (k < 0 || at + (size_t)k > sizeof text)
            at = 0; /* a long one: what came before it is not the end */
        else
            at += (size_t)k;
    }
    return t->t && ends_with(text, at, t->t->begin);
}

/* ---- control tokens that are part of the formats ---- */

static int is_part(const char *const *texts, int n, const char *token)
{
    for (int i = 0; i < n; i++)
        if (texts[i] && strstr(texts[i], token))
            return 1;
    return 0;
}

static int find_shown(const kvant_model *m, tool_traits *t, kvant_diag *diag)
{
    const dialect *d = t->d;
    const thinking *k = t->t;
    const char *const texts[] = {
        d ? d->open : NULL,  d ? d->before : NULL, d ? d->middle : NULL, d ? d->after : NULL,
        d ? d->close : NULL, d ? d->lead : NULL,   d ? d->drop : NULL,   d ? d->also : NULL,
        d && d->args ? d->args->quote : NULL,
        k ? k->begin : NULL, k ? k->end : NULL,    k ? k->then : NULL,   k ? k->drop : NULL
    };
    const int n = kvant_model_get_info(m)->n_vocab;
    unsigned char *shown = kvant_calloc((size_t)n, 1);
    int any = 0;

    if (!shown)
        return kvant_fail(diag, KVANT_ENOMEM, "server: out of memory");
    for (int i = 0; i < n; i++) {
        char text[64];
        const int bytes = kvant_token_bytes(m, i, 1, text, sizeof text - 1);
        if (bytes < 3 || bytes >= (int)sizeof text - 1 || kvant_token_bytes(m, i, 0, NULL, 0) ||
            kvant_token_is_eog(m, i))
            continue;
        text[bytes] = 0;
        shown[i] = (unsigned char)is_part(texts, (int)(sizeof texts / sizeof texts[0]), text);
        any |= shown[i];
    }
    if (any) {
        t->shown = shown;
        return KVANT_OK;
    }
    kvant_free(shown);
    return KVANT_OK;
}

/* ---- opening ---- */

static int open_traits(const kvant_model *m, const char *chosen, tool_traits *t, kvant_diag *diag)
{
    probe_tools(m, t);
    t->guessed &= !chosen;
    if (chosen && !(t->d = dialect_named(chosen)))
        return kvant_fail(diag, KVANT_EINVAL, "--tool-dialect: %.40s is none that is known", chosen);
    probe_thoughts(m, t);
    KVANT_TRY(read_end(m, t, diag));
    KVANT_TRY(find_shown(m, t, diag));
    return t->shown ? grammar_vocab_create(m, t->shown, &t->vocab, diag) : KVANT_OK;
}

int tool_traits_open(const kvant_model *m, const char *chosen, tool_traits **out, kvant_diag *diag)
{
    tool_traits *t = kvant_calloc(1, sizeof *t);
    const int code = t ? open_traits(m, chosen, t, diag) : kvant_fail(diag, KVANT_ENOMEM, "server: out of memory");

    if (code == KVANT_OK)
        *out = t;
    else
        tool_traits_free(t);
    return code;
}

void tool_traits_free(tool_traits *t)
{
    if (!t)
        return;
    kvant_free(t->shown);
    grammar_vocab_free(t->vocab);
    kvant_free(t);
}
