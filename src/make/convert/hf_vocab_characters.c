/* hf_vocab_characters.c: what the tokens of a vocabulary of characters are (Gemma 4): bytes, control tokens, those that
 * are always shown.  Their ids are there already.  The added tokens are mostly part of the vocabulary. */
#include <string.h>
#include "base/text/hex.h"
#include "make/convert/hf_config.h"
#include "make/convert/hf_vocab.h"

enum { MOST_TEXT = 256 }; /* of a special token; longer ones are none */

static void mark(hf_vocab *v, const char *text, int type)
{
    const size_t n = strlen(text);

    for (uint32_t i = 0; i < v->n; i++)
        if (v->tokens[i].s && v->tokens[i].n == n && memcmp(v->tokens[i].s, text, n) == 0)
            v->tokens[i].type = type;
}

/* "<s>", or an object with the text as "content". */
static void mark_control(hf_vocab *v, gjson token)
{
    const gjson text = token.p && *token.p == '{' ? gjson_get(token, "content") : token;
    char buf[MOST_TEXT] = "";

    if (text.p && *text.p == '"' && text.n < MOST_TEXT) {
        gjson_text(text, buf, sizeof buf);
        mark(v, buf, TOKEN_CONTROL);
    }
}

/* A list of tokens, or an object of them. */
static void mark_all(hf_vocab *v, gjson list)
{
    gjson key = { NULL, 0 }, it = { NULL, 0 };

    if (list.p && *list.p == '[')
        while (gjson_next(list, &it))
            mark_control(v, it);
    else if (list.p && *list.p == '{')
        while (gjson_member(list, &key, &it))
            mark_control(v, it);
}

/* Marks the tokens that tokenizer_config.json names for a use ("eos_token") or in its lists. */
static void mark_named(hf_vocab *v)
{
    static const char *const lists[] = { "additional_special_tokens", "extra_special_tokens",
                                         "model_specific_special_tokens" };
    static const char tail[] = "_token\"";
    gjson key = { NULL, 0 }, it = { NULL, 0 };

    while (gjson_member(v->config, &key, &it))
        if (key.n > sizeof tail && memcmp(key.p + key.n - (sizeof tail - 1), tail, sizeof tail - 1) == 0)
            mark_control(v, it);
    for (int i = 0; i < 3; i++)
        mark_all(v, gjson_get(v->config, lists[i]));
}

/* "<0x0A>" */
static int is_byte(const hf_vocab_token *t)
{
    return t->n == 6 && memcmp(t->s, "<0x", 3) == 0 && hex_digit(t->s[3]) >= 0 && hex_digit(t->s[4]) >= 0 &&
           t->s[5] == '>';
}

/* Ids behind the vocabulary. */
static int add_behind(hf_vocab *v, gjson token, kvant_diag *diag)
{
    hf_vocab_token *t = NULL;
    uint32_t id = 0;

    KVANT_TRY(hf_to_u32(gjson_get(token, "id"), "tokenizer: \"id\" of an added token", &id, diag));
    KVANT_TRY(hf_vocab_slot(v, id, &t, diag));
    if (t->s)
        return KVANT_OK;
    KVANT_TRY(hf_vocab_name(v, gjson_get(token, "content"), t, diag));
    t->type = TOKEN_USER;
    return KVANT_OK;
}

int hf_vocab_read_characters(hf_vocab *v, kvant_diag *diag)
{
    /* a chat's parser reads these, as the field's converter has it */
    static const char *const shown[] = { "<|channel>",       "<channel|>",       "<|tool_call>", "<tool_call|>",
                                         "<|tool_response>", "<tool_response|>", "<|\"|>" };
    const gjson list = gjson_get(v->json, "added_tokens");
    gjson it = { NULL, 0 };

    while (gjson_next(list, &it))
        KVANT_TRY(add_behind(v, it, diag));
    mark_named(v);
    for (uint32_t i = 0; i < v->n; i++) {
        hf_vocab_token *t = &v->tokens[i];
        t->score = t->s ? -1000.0f : t->score;
        t->type = t->s && is_byte(t) ? TOKEN_BYTE : t->type;
    }
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        mark(v, shown[i], TOKEN_USER);
    return KVANT_OK;
}
