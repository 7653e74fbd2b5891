/* native_read.c: the prompt of /infill: what stands before the gap, what stands after it, and the model's own tokens
 * between them.  They are known by their texts; a model whose vocabulary lacks them cannot fill in. */
#include "server/request/request_impl.h"

#include <string.h>
#include "base/mem.h"

typedef struct fim_form {
    const char *text[3]; /* before the text, before what follows the gap, before the answer */
} fim_form;

static const fim_form forms[] = {
    { { "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>" } },    /* Qwen */
    { { "<fim_prefix>", "<fim_suffix>", "<fim_middle>" } },          /* StarCoder, Granite */
    { { "<fim-prefix>", "<fim-suffix>", "<fim-middle>" } },          /* SantaCoder */
    { { "<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>" } },    /* DeepSeek */
    { { "<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>" } }, /* GLM */
};

/* The one token that a text is when control tokens are read in it, or -1. */
static int32_t control_token(const request_env *env, const char *text)
{
    kvant_diag diag = { "" };
    int32_t ids[64];
    int n = 0, plain = 0;

    if (kvant_tokenize(env->model, text, strlen(text), 0, ids, 64, &plain, &diag) == KVANT_OK && plain == 1)
        return -1;
    if (kvant_tokenize(env->model, text, strlen(text), KVANT_TOK_SPECIAL, ids, 64, &n, &diag) != KVANT_OK || n != 1)
        return -1;
    return ids[0];
}

static int find_form(const request_env *env, int32_t ids[3])
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        int found = 0;
        for (; found < 3 && (ids[found] = control_token(env, forms[i].text[found])) >= 0; found++) {}
        if (found == 3)
            return 1;
    }
    return 0;
}

/* Appends a control token (-1: none) and then a text, in which none are read. */
static int append(const request_env *env, int32_t control, const char *s, size_t n, int flags, prompt *p, api_error *e)
{
    prompt more = { 0 };
    int kind = prompt_of_text(env, s, n, flags, &more, e);

    if (kind == API_OK && control >= 0)
        kind = prompt_append(p, &(prompt){ .ids = &control, .n = 1 }, e);
    if (kind == API_OK)
        kind = prompt_append(p, &more, e);
    prompt_free(&more);
    return kind;
}

int prompt_of_infill(const request_env *env, const json_t *o, prompt *p, api_error *e)
{
    static const char *const keys[] = { "input_prefix", "prompt", "input_suffix" };
    const char *text[3];
    size_t n[3] = { 0 };
    int32_t ids[3];

    for (int i = 0; i < 3; i++) {
        API_TRY(body_string(o, keys[i], (size_t)1 << 30, &text[i], &n[i], e));
        if (!text[i] && i != 1)
            return api_fail(e, BAD, keys[i], "%s: missing", keys[i]);
    }
    if (!find_form(env, ids))
        return api_fail(e, API_UNSUPPORTED, "",
                        "infill: this model's vocabulary has no tokens for filling in the middle");
    API_TRY(prompt_check_bytes(env, n[0] + n[1] + n[2], "input_prefix", e));
    API_TRY(append(env, -1, "", 0, KVANT_TOK_BOS, p, e));
    API_TRY(append(env, ids[0], text[0], n[0], 0, p, e));
    if (text[1])
        API_TRY(append(env, -1, text[1], n[1], 0, p, e));
    API_TRY(append(env, ids[1], text[2], n[2], 0, p, e));
    API_TRY(append(env, ids[2], "", 0, 0, p, e));
    return prompt_check_length(env, p, "input_prefix", e);
}

/* ---- fields ---- */

/* response_fields: only these parts of the answer are wanted. */
static int read_paths(const json_t *o, request *r, api_error *e)
{
    const json_t *v = body_field(o, "response_fields");
    const size_t n = json_array_size(v);
    size_t i;
    json_t *x;

    if (v && (!json_is_array(v) || n > REQUEST_MAX_FIELDS))
        return api_fail(e, BAD, "response_fields", "response_fields: wanted an array of at most %d paths",
                        REQUEST_MAX_FIELDS);
    if (!n)
        return API_OK;
    r->fields = kvant_calloc(n, sizeof *r->fields);
    if (!r->fields)
        return api_no_memory(e);
    json_array_foreach((json_t *)v, i, x)
    {
        if (!json_is_string(x) || json_string_length(x) > 100)
            return api_fail(e, BAD, "response_fields", "response_fields: item %zu: wanted a path such as timings/prompt_n",
                            i);
        r->fields[i] = kvant_strdup(json_string_value(x));
        if (!r->fields[i])
            return api_no_memory(e);
        r->n_fields = (int)i + 1;
    }
    return API_OK;
}

int native_fields(const json_t *o, request *r, api_error *e)
{
    API_TRY(body_bool(o, "return_tokens", &r->return_tokens, e));
    return read_paths(o, r, e);
}
