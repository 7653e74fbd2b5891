/* text.c: the public text functions: thin faces of the tokenizer, the streaming detokeniser and the chat templates. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "text/detok.h"
#include "model/model.h"

int kvant_tokenize(const kvant_model *m, const char *text, size_t len, int flags, int32_t *ids, int cap, int *n,
                   kvant_diag *diag)
{
    return tokenizer_encode(m->tok, text, len, flags, ids, cap, n, diag);
}

int kvant_token_bytes(const kvant_model *m, int32_t id, int special, char *buf, int cap)
{
    return tokenizer_bytes(m->tok, id, special, buf, cap);
}

int kvant_token_is_eog(const kvant_model *m, int32_t id)
{
    return tokenizer_is_eog(m->tok, id);
}

int32_t kvant_token_bos(const kvant_model *m)
{
    return tokenizer_bos(m->tok);
}

int32_t kvant_token_eos(const kvant_model *m)
{
    return tokenizer_eos(m->tok);
}

int kvant_token_add_bos(const kvant_model *m)
{
    return tokenizer_add_bos(m->tok);
}

int kvant_token_add_eos(const kvant_model *m)
{
    return m->tok && tokenizer_add_eos(m->tok);
}

int kvant_detok_push(const kvant_model *m, kvant_detok *d, int32_t id, char *out, int cap)
{
    char bytes[TOKENIZER_MAX_TEXT];
    int n = tokenizer_bytes(m->tok, id, 0, bytes, sizeof bytes);
    if (n < 0)
        return n;
    if (n > (int)sizeof bytes)
        return KVANT_ENOSPC;
    return detok_push(d, bytes, n, out, cap);
}

int kvant_detok_flush(kvant_detok *d, char *out, int cap)
{
    return detok_flush(d, out, cap);
}

int kvant_chat_render(const kvant_model *m, const kvant_chat_input *in, char **text, kvant_diag *diag)
{
    return chat_template_format(m->chat, m->tok, in, text, diag);
}

int kvant_chat_encode(const kvant_model *m, const kvant_chat_input *in, int32_t *ids, int cap, int *n_ids,
                      kvant_diag *diag)
{
    return chat_template_tokenize(m->chat, m->tok, in, ids, cap, n_ids, diag);
}

int kvant_chat_format(const kvant_model *m, const kvant_chat_msg *msgs, int n, int end, char **text, kvant_diag *diag)
{
    const kvant_chat_input in = { .msgs = msgs, .n = n, .end = end };

    return kvant_chat_render(m, &in, text, diag);
}

int kvant_chat_tokenize(const kvant_model *m, const kvant_chat_msg *msgs, int n, int end, int32_t *ids, int cap,
                        int *n_ids, kvant_diag *diag)
{
    const kvant_chat_input in = { .msgs = msgs, .n = n, .end = end };

    return kvant_chat_encode(m, &in, ids, cap, n_ids, diag);
}

const char *kvant_chat_family(const kvant_model *m, int *from_file)
{
    if (from_file)
        *from_file = m->chat_from_file;
    return chat_template_name(m->chat);
}

const char *kvant_chat_source(const kvant_model *m)
{
    return chat_template_source(m->chat);
}

void kvant_text_free(char *text)
{
    kvant_free(text);
}
