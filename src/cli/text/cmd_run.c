/* cmd_run.c: `kvant run` with a prompt: a question where the model has a chat template, else raw text.  And the choice
 * between that and a chat (run_chat.c). */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "base/mem.h"
#include "cli/text/chat_state.h"
#include "cli/text/escape.h"
#include "cli/text/generate.h"
#include "cli/text/run_chat.h"
#include "cli/term.h"

/* The prompt as the user gave it: -p with its escapes, or the file's text. */
static int read_prompt(const opts *o, char **text, size_t *size, kvant_diag *diag)
{
    if (opt_str(o, OPT_FILE)) {
        KVANT_TRY(read_text(opt_str(o, OPT_FILE), text, size, diag));
        if (*size && (*text)[*size - 1] == '\n')
            (*text)[--*size] = 0;
        return KVANT_OK;
    }
    *text = kvant_strdup(opt_str(o, OPT_PROMPT));
    if (!*text)
        return kvant_fail(diag, KVANT_ENOMEM, "prompt: out of memory");
    if (!opt_flag(o, OPT_NO_ESCAPE))
        unescape(*text);
    *size = strlen(*text);
    int code = check_utf8("prompt", *text, *size, diag);
    if (code != KVANT_OK)
        kvant_free(*text);
    return code;
}

static void display_prompt(const opts *o, const char *text, size_t size)
{
    if (!opt_flag(o, OPT_DISPLAY_PROMPT) || opt_flag(o, OPT_JSON))
        return;
    printf("%s", term_color(stdout, 33));
    fwrite(text, 1, size, stdout);
    printf("%s", term_color(stdout, 0));
    fflush(stdout);
}

static void json_ids(jsonw *w, const char *key, const int32_t *ids, int n)
{
    jsonw_key(w, key);
    jsonw_array(w);
    for (int i = 0; i < n; i++)
        jsonw_int(w, ids[i]);
    jsonw_end(w);
}

int run_json_end(const generator *g, int reason, jsonw *w, kvant_diag *diag)
{
    jsonw_key(w, "text");
    jsonw_strn(w, g->text ? g->text : "", g->text_len);
    json_ids(w, "ids", g->ids.v, g->ids.n);
    jsonw_kstr(w, "stop", stop_text(reason));
    gen_json(g, w);
    jsonw_end(w);
    return put_json(w, diag);
}

static int raw_report(const generator *g, const char *prompt, size_t size, const int32_t *ids, int n, int reason,
                      kvant_diag *diag)
{
    jsonw w;

    gen_report(g);
    if (!opt_flag(g->o, OPT_JSON))
        return KVANT_OK;
    jsonw_init(&w);
    jsonw_object(&w);
    jsonw_kstr(&w, "model", kvant_model_get_info(g->m)->desc);
    jsonw_key(&w, "prompt");
    jsonw_strn(&w, prompt, size);
    json_ids(&w, "prompt_ids", ids, n);
    return run_json_end(g, reason, &w, diag);
}

static int generate_raw(generator *g, const char *text, size_t size, const int32_t *ids, int n, kvant_diag *diag)
{
    int reason;

    KVANT_TRY(gen_prompt(g, ids, n, diag));
    display_prompt(g->o, text, size);
    int code = gen_continue(g, opt_int(g->o, OPT_PREDICT), &reason, diag);
    if (code != KVANT_OK && code != KVANT_ECANCELED)
        return code;
    if (!g->quiet && g->text_len && g->text[g->text_len - 1] != '\n' && isatty(STDOUT_FILENO))
        putchar('\n');
    if (reason == STOP_CONTEXT && opt_int(g->o, OPT_PREDICT) >= 0)
        log_msg(LOG_WARN, "context of %d tokens is full: stopped before -n tokens",
                kvant_engine_get_params(g->e)->n_ctx);
    return raw_report(g, text, size, ids, n, reason, diag);
}

static int run_raw(generator *g, const char *text, size_t size, kvant_diag *diag)
{
    int32_t *ids = NULL;
    int n = 0, code;

    KVANT_TRY(tokenize_all(g->m, text, size, KVANT_TOK_SPECIAL | KVANT_TOK_BOS, &ids, &n, diag));
    if (n == 0)
        code = kvant_fail(diag, KVANT_EINVAL, "prompt: found 0 tokens, wanted text (this model adds no BOS token)");
    else
        code = generate_raw(g, text, size, ids, n, diag);
    kvant_free(ids);
    return code;
}

/* 1: a prompt is a message, since the model, or the user, has a template for it. */
static int has_template(const generator *g)
{
    int from_file = 0;

    kvant_chat_family(g->m, &from_file);
    return from_file || opt_given(g->o, OPT_CHAT_TEMPLATE) || opt_given(g->o, OPT_CHAT_TEMPLATE_FILE);
}

/* A prompt without -cnv: one question and its answer, or text that goes on. */
static int run_prompt(const opts *o, kvant_diag *diag)
{
    chat c = { .once = 1 };
    char *text = NULL;
    size_t size;

    KVANT_TRY(read_prompt(o, &text, &size, diag));
    int code = gen_open(&c.g, o, diag);
    if (code == KVANT_OK && !opt_flag(o, OPT_NO_CNV) && has_template(&c.g))
        code = chat_run(&c, text, size, diag);
    else if (code == KVANT_OK)
        code = run_raw(&c.g, text, size, diag);
    kvant_free(text);
    chat_close(&c);
    return code;
}

int cmd_run(const opts *o, kvant_diag *diag)
{
    int prompt = opt_given(o, OPT_PROMPT) || opt_given(o, OPT_FILE), sys = opt_given(o, OPT_SYSTEM);
    const char *path;

    KVANT_TRY(model_path(o, &path, diag));
    if (opt_given(o, OPT_PROMPT) && opt_given(o, OPT_FILE))
        return kvant_fail(diag, KVANT_EINVAL, "prompt: found both %s and %s, wanted one", opt_origin(o, OPT_PROMPT),
                          opt_origin(o, OPT_FILE));
    if (opt_flag(o, OPT_CNV) && opt_flag(o, OPT_NO_CNV))
        return kvant_fail(diag, KVANT_EINVAL, "chat: found both -cnv and -no-cnv, wanted one");
    if (opt_flag(o, OPT_NO_CNV) && (!prompt || sys))
        return kvant_fail(diag, KVANT_EINVAL,
                          sys ? "-sys: a system message needs a chat, found -no-cnv"
                              : "prompt: found none, wanted -p TEXT or -f FILE with -no-cnv");
    if (opt_flag(o, OPT_CNV) || sys || !prompt)
        return run_chat(o, diag);
    return run_prompt(o, diag);
}
