/* native_read.c: the prompt of /infill: what stands before the gap, what stands after it, and the model's own tokens
 * between them.  They are known by their texts; a model whose vocabulary lacks them cannot fill in.
 *
 * Pieces of other files (input_extra) come first, as many of the last ones as there is room for:
 *     [repo]myproject\n [file]NAME\n TEXT ... [file]filename\n [prefix] ...    (Qwen2.5-Coder, arXiv:2409.12186)
 * or, for a model without tokens for files, each behind a line of plain text.  Names and line are llama-server's, whose
 * editors' plugins send the pieces. */
#include "server/request/request_impl.h"

#include <string.h>
#include "base/mem.h"

/* More text of other files than so many contexts hold is refused before it is made into tokens.  Arbitrary. */
enum { EXTRA_CONTEXTS = 16, ANSWER_PART = 4 };
enum { FIM_PREFIX, FIM_SUFFIX, FIM_MIDDLE, FIM_REPO, FIM_FILE, FIM_TOKENS };

typedef struct fim_form {
    const char *text[FIM_TOKENS]; /* before the text, what follows the gap, the answer; a project, a file ("": none) */
} fim_form;

static const fim_form forms[] = {
    { { "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>" } }, /* Qwen */
    { { "<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<repo_name>", "<file_sep>" } }, /* StarCoder, Granite */
    { { "<fim-prefix>", "<fim-suffix>", "<fim-middle>", "", "" } }, /* SantaCoder */
    { { "<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", "", "" } }, /* DeepSeek */
    { { "<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>", "", "" } }, /* GLM */
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

static int find_form(const request_env *env, int32_t ids[FIM_TOKENS])
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        int found = 0;
        for (; found < FIM_REPO && (ids[found] = control_token(env, forms[i].text[found])) >= 0; found++) {}
        for (int k = FIM_REPO; k < FIM_TOKENS; k++)
            ids[k] = forms[i].text[k][0] ? control_token(env, forms[i].text[k]) : -1;
        if (found == FIM_REPO)
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

/* ---- pieces of other files ---- */

/* Appends a name and a newline, behind the token that announces it. */
static int append_name(const request_env *env, int32_t control, const char *name, size_t n, prompt *p,
                       api_error *e)
{
    API_TRY(append(env, control, name, n, 0, p, e));
    return append(env, -1, "\n", 1, 0, p, e);
}

/* All pieces are looked at, also those that there will be no room for; *bytes of their texts and names. */
static int check_pieces(const json_t *pieces, size_t *bytes, api_error *e)
{
    size_t i;
    json_t *piece;

    if (pieces && !json_is_array(pieces))
        return body_wrong(e, "input_extra", pieces, "input_extra: wanted an array of objects with text and filename");
    json_array_foreach((json_t *)pieces, i, piece)
    {
        const json_t *text = body_field(piece, "text"), *name = body_field(piece, "filename");
        if (!json_is_object(piece))
            return body_wrong(e, "input_extra", piece,
                              "input_extra: item %zu: wanted an object with text and filename", i);
        if (!body_is_text(text) || (name && !body_is_text(name)))
            return body_wrong(e, "input_extra", body_is_text(text) ? name : text,
                              "input_extra: item %zu: %s: wanted a string", i,
                              body_is_text(text) ? "filename" : "text");
        *bytes += json_string_length(text) + json_string_length(name);
    }
    return API_OK;
}

static int append_piece(const request_env *env, const int32_t ids[FIM_TOKENS], const json_t *piece, prompt *p,
                        api_error *e)
{
    static const char apart[] = "\n\n--- snippet ---\n\n";
    const json_t *text = body_field(piece, "text"), *name = body_field(piece, "filename");

    if (ids[FIM_FILE] >= 0 && name)
        API_TRY(append_name(env, ids[FIM_FILE], body_text(name), json_string_length(name), p, e));
    else if (ids[FIM_FILE] >= 0)
        API_TRY(append_name(env, ids[FIM_FILE], "tmp", 3, p, e));
    else
        API_TRY(append(env, -1, apart, sizeof apart - 1, 0, p, e));
    return append(env, -1, body_text(text), json_string_length(text), 0, p, e);
}

/* The first of the last pieces that fill the room: those before it are not made into tokens. */
static int first_piece(const request_env *env, const int32_t ids[FIM_TOKENS], const json_t *pieces, int64_t room,
                       size_t *first, api_error *e)
{
    int64_t n = 0;
    int kind = API_OK;

    for (*first = json_array_size(pieces); *first && n < room && kind == API_OK;) {
        prompt piece = { 0 };
        kind = append_piece(env, ids, json_array_get(pieces, --*first), &piece, e);
        n += piece.n;
        prompt_free(&piece);
    }
    return kind;
}

static int append_extra(const request_env *env, const int32_t ids[FIM_TOKENS], const json_t *pieces, int64_t room,
                        prompt *p, api_error *e)
{
    static const char project[] = "myproject", file[] = "filename";
    size_t i;

    API_TRY(first_piece(env, ids, pieces, room, &i, e));
    if (ids[FIM_REPO] >= 0)
        API_TRY(append_name(env, ids[FIM_REPO], project, sizeof project - 1, p, e));
    for (; i < json_array_size(pieces); i++)
        API_TRY(append_piece(env, ids, json_array_get(pieces, i), p, e));
    return ids[FIM_FILE] >= 0 ? append_name(env, ids[FIM_FILE], file, sizeof file - 1, p, e) : API_OK;
}

/* All of it in front of the rest, which is what the request is about: the last pieces that there is room for.  An
 * answer of any length has a quarter of the context. */
static int put_extra(const request_env *env, const int32_t ids[FIM_TOKENS], const json_t *pieces, int64_t wanted,
                     prompt *p, api_error *e)
{
    prompt all = { 0 };
    const int64_t most = env->n_ctx < env->pool_tokens ? env->n_ctx : env->pool_tokens;
    const int64_t room = most - 1 - p->n - (wanted < 0 ? most / ANSWER_PART : wanted);
    int kind = append_extra(env, ids, pieces, room, &all, e);

    if (kind == API_OK && all.n > room) {
        const int keep = room > 0 ? (int)room : 0;
        memmove(all.ids, all.ids + all.n - keep, (size_t)keep * sizeof *all.ids);
        all.n = keep;
    }
    if (kind == API_OK)
        kind = prompt_append(&all, p, e);
    if (kind == API_OK) {
        kvant_free(p->ids);
        p->ids = all.ids;
        p->n = all.n;
        p->cap = all.cap;
        all.ids = NULL;
    }
    prompt_free(&all);
    return kind;
}

/* ---- the prompt ---- */

int prompt_of_infill(const request_env *env, const json_t *o, int64_t wanted, prompt *p, api_error *e)
{
    static const char *const keys[] = { "input_prefix", "prompt", "input_suffix" };
    const json_t *pieces = body_field(o, "input_extra");
    const char *text[3];
    size_t n[3] = { 0 }, extra = 0;
    int32_t ids[FIM_TOKENS];

    for (int i = 0; i < 3; i++) {
        API_TRY(body_string(o, keys[i], (size_t)1 << 30, &text[i], &n[i], e));
        if (!text[i] && i != 1)
            return api_fail(e, BAD, keys[i], "%s: missing", keys[i]);
    }
    API_TRY(check_pieces(pieces, &extra, e));
    if (!find_form(env, ids))
        return api_fail(e, API_UNSUPPORTED, "",
                        "infill: this model's vocabulary has no tokens for filling in the middle");
    API_TRY(prompt_check_bytes(env, n[0] + n[1] + n[2], "input_prefix", e));
    API_TRY(prompt_check_bytes(env, extra / EXTRA_CONTEXTS, "input_extra", e));
    API_TRY(append(env, -1, "", 0, KVANT_TOK_BOS, p, e));
    API_TRY(append(env, ids[FIM_PREFIX], text[0], n[0], 0, p, e));
    if (text[1])
        API_TRY(append(env, -1, text[1], n[1], 0, p, e));
    API_TRY(append(env, ids[FIM_SUFFIX], text[2], n[2], 0, p, e));
    API_TRY(append(env, ids[FIM_MIDDLE], "", 0, 0, p, e));
    API_TRY(prompt_check_length(env, p, "input_prefix", e));
    return json_array_size(pieces) ? put_extra(env, ids, pieces, wanted, p, e) : API_OK;
}

/* ---- fields ---- */

/* response_fields: only these parts of the answer are wanted. */
static int read_paths(const json_t *o, api_request *r, api_error *e)
{
    const json_t *v = body_field(o, "response_fields");
    const size_t n = json_array_size(v);
    size_t i;
    json_t *x;

    if (v && (!json_is_array(v) || n > REQUEST_MAX_FIELDS))
        return body_wrong(e, "response_fields", v, "response_fields: wanted an array of at most %d paths",
                        REQUEST_MAX_FIELDS);
    if (!n)
        return API_OK;
    r->native.fields = kvant_calloc(n, sizeof *r->native.fields);
    if (!r->native.fields)
        return api_no_memory(e);
    json_array_foreach((json_t *)v, i, x)
    {
        if (!body_is_text(x) || json_string_length(x) > 100)
            return body_wrong(e, "response_fields", x, "response_fields: item %zu: wanted a path such as timings/prompt_n",
                            i);
        r->native.fields[i] = kvant_strdup(body_text(x));
        if (!r->native.fields[i])
            return api_no_memory(e);
        r->native.n_fields = (int)i + 1;
    }
    return API_OK;
}

int native_fields(const json_t *o, api_request *r, api_error *e)
{
    API_TRY(body_bool(o, "return_tokens", &r->native.return_tokens, e));
    return read_paths(o, r, e);
}
