/* fuzz_template.c: libFuzzer target of the chat templates and their language (reliability list, T-07 to T-09).
 *
 * First byte: bits 0-1 which built-in template (bit 3: the input's own instead), bit 2 an open answer, bit 4 the rest
 * is JSON.  The rest are strings that end with a zero byte: the file's template, then role, content, role, ...; or
 * messages and tools as JSON.
 * Promises: a template that is no program is refused with a text that names --chat-template; errors have a text; the
 * ids decode to the text of the same messages; with built-in templates the number of control ids does not depend on
 * what the messages say. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "support/gguf_make.h"
#include "support/promise.h"
#include "text/template.h"
#include "text/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_MSGS = 8 };
static const char *const control[] = { "<|im_start|>",      "<|im_end|>", "<|start_header_id|>",
                                       "<|end_header_id|>", "<|eot_id|>", "[INST]",
                                       "[/INST]",           "</s>",       "<start_of_turn>",
                                       "<end_of_turn>",     "<s>" };
enum { N_CONTROL = sizeof control / sizeof control[0] };

/* Bytes and the markers; gpt-2 rules, so that nothing is normalised. */
static tokenizer *vocab(void)
{
    gguf_make m = { 0 };
    gguf *g = NULL;
    tokenizer *t = NULL;
    int32_t types[256 + N_CONTROL];
    uint32_t next = 256;

    gguf_make_str(&m, "tokenizer.ggml.model", "gpt2");
    gguf_make_str(&m, "tokenizer.ggml.pre", "gpt-2");
    gguf_make_array(&m, "tokenizer.ggml.tokens", GGUF_STRING, 256 + N_CONTROL);
    for (uint32_t b = 0; b < 256; b++) {
        uint8_t text[4];
        int as_is = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        gguf_make_text(&m, (char *)text, (size_t)utf8_encode(as_is ? b : next++, text));
        types[b] = 1;
    }
    for (int i = 0; i < N_CONTROL; i++) {
        gguf_make_text(&m, control[i], strlen(control[i]));
        types[256 + i] = 3;
    }
    gguf_make_i32s(&m, "tokenizer.ggml.token_type", types, 256 + N_CONTROL);
    gguf_make_array(&m, "tokenizer.ggml.merges", GGUF_STRING, 0);
    gguf_make_finish(&m);
    PROMISE(gguf_open_mem(m.data, m.n, &g, NULL) == 0 && tokenizer_open(g, &t, NULL) == 0);
    gguf_close(g);
    gguf_make_free(&m);
    return t;
}

static chat_template *choose(const char *text, const char *choice)
{
    gguf_make m = { 0 };
    gguf *g = NULL;
    chat_template *c = NULL;
    kvant_diag diag = { "" };
    int from_file = -1;

    gguf_make_str(&m, "tokenizer.chat_template", text);
    gguf_make_finish(&m);
    PROMISE(gguf_open_mem(m.data, m.n, &g, NULL) == 0);
    PROMISE(chat_template_open(g, choice, &c, &from_file, &diag) == 0);
    PROMISE(from_file == (choice || *text));
    gguf_close(g);
    gguf_make_free(&m);
    return c;
}

/* Ids of the messages, malloc'd; *n -1 when they were refused. */
static int32_t *tokenise(const chat_template *c, const tokenizer *t, const kvant_chat_input *in, int *n)
{
    kvant_diag diag = { "" };
    int again = 0, err = chat_template_tokenize(c, t, in, NULL, 0, n, &diag);

    if (err != KVANT_ENOSPC && err != KVANT_OK) {
        PROMISE(diag.text[0] && (err == KVANT_EINVAL || err == KVANT_EUNSUPPORTED));
        PROMISE(strcmp(chat_template_name(c), "unknown") != 0 || strstr(diag.text, "--chat-template"));
        *n = -1;
        return NULL;
    }
    int32_t *ids = malloc((size_t)*n * sizeof *ids + 1);
    PROMISE(chat_template_tokenize(c, t, in, ids, *n, &again, &diag) == 0 && again == *n);
    return ids;
}

static int count_control(const int32_t *ids, int n)
{
    int count = 0;
    for (int i = 0; i < n; i++)
        count += ids[i] >= 256;
    return count;
}

static void check_text(const tokenizer *t, const int32_t *ids, int n, const char *text)
{
    size_t at = 0, len = strlen(text);

    for (int i = 0; i < n; i++) {
        char bytes[32];
        int k = tokenizer_bytes(t, ids[i], 1, bytes, sizeof bytes);
        PROMISE(k > 0 && k <= (int)sizeof bytes);
        if (at + (size_t)k > len) /* a template's own NUL ends the text */
            return;
        PROMISE(memcmp(text + at, bytes, (size_t)k) == 0 || memchr(bytes, 0, (size_t)k));
        at += (size_t)k;
    }
}

static void use(const chat_template *c, const tokenizer *t, const kvant_chat_input *in)
{
    kvant_chat_msg mild[MAX_MSGS];
    kvant_diag diag = { "" };
    char *text = NULL;
    int n, n_mild;
    int32_t *ids = tokenise(c, t, in, &n);

    PROMISE((chat_template_format(c, t, in, &text, &diag) == 0) == (n >= 0));
    if (n < 0)
        return;
    check_text(t, ids, n, text);
    if (in->msgs && strcmp(chat_template_name(c), "jinja") != 0) {
        kvant_chat_input other = *in;
        for (int i = 0; i < in->n; i++)
            mild[i] = (kvant_chat_msg){ in->msgs[i].role, "x" };
        other.msgs = mild;
        int32_t *more = tokenise(c, t, &other, &n_mild);
        PROMISE(n_mild >= 0 && count_control(ids, n) == count_control(more, n_mild));
        free(more);
    }
    free(ids);
    kvant_text_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = { "chatml", "llama3", "mistral", "gemma" };
    static tokenizer *t;
    kvant_chat_msg msgs[MAX_MSGS];
    kvant_chat_input in = { .msgs = msgs };

    if (size < 2)
        return 0;
    if (!t)
        t = vocab();
    char *copy = malloc(size);
    memcpy(copy, data + 1, size - 1);
    copy[size - 1] = 0;
    const char *end = copy + size, *p = copy + strlen(copy) + 1;
    in.end = data[0] >> 2 & 1;
    if (data[0] & 16 && p < end) {
        const char *tools = p + strlen(p) + 1;
        in = (kvant_chat_input){ .messages = p, .tools = tools < end ? tools : NULL, .end = in.end };
    }
    while (in.msgs && p < end && in.n < MAX_MSGS) {
        const char *role = p;
        p += strlen(p) + 1;
        if (p >= end)
            break;
        msgs[in.n++] = (kvant_chat_msg){ role, p };
        p += strlen(p) + 1;
    }
    chat_template *c = choose(copy, data[0] & 8 ? NULL : names[data[0] & 3]);
    use(c, t, &in);
    chat_template_close(c);
    free(copy);
    return 0;
}
