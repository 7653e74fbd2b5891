/* template_ids.c: a rendered prompt as a text, and as ids.
 *
 * Control tokens and the marks of the chat's format are looked for in the template's own text; the rest is tokenised
 * as in one pass, so that a word may reach from a header into the content.  BOS comes where the template writes it, or
 * where the file asks for it; once. */
#include <string.h>
#include "base/mem.h"
#include "text/added/added.h"
#include "text/template.h"

_Static_assert((int)ADDED_ORIGIN == (int)JINJA_TEMPLATE, "one number for the template's own text");

int template_text_ids(const tokenizer *t, const jinja_text *text, int32_t *ids, int cap, int *n_ids, kvant_diag *diag)
{
    static const uint8_t none[1] = { JINJA_DATA }; /* of an empty text */

    return tokenizer_encode_marked(t, text->text, text->n, text->n ? text->origin : none, ids, cap, n_ids, diag);
}

int chat_template_tokenize(const chat_template *c, const tokenizer *t, const kvant_chat_input *in, int32_t *ids,
                           int cap, int *n_ids, kvant_diag *diag)
{
    jinja_run *run = NULL;
    jinja_text text;

    if (cap < 0 || (cap > 0 && !ids))
        return kvant_fail(diag, KVANT_EINVAL, "kvant_chat_tokenize: no buffer");
    KVANT_TRY(chat_template_render(c, t, in, &run, &text, diag));
    const int err = template_text_ids(t, &text, ids, cap, n_ids, diag);
    jinja_run_close(run);
    return err;
}

int chat_template_format(const chat_template *c, const tokenizer *t, const kvant_chat_input *in, char **out,
                         kvant_diag *diag)
{
    jinja_run *run = NULL;
    jinja_text text;
    size_t skip = 0;

    KVANT_TRY(chat_template_render(c, t, in, &run, &text, diag));
    if (t && tokenizer_add_bos(t) && text.n)
        skip = tokenizer_leading_bos(t, text.text, text.n, text.origin);
    *out = kvant_strndup(text.text + skip, text.n - skip);
    jinja_run_close(run);
    return *out ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "messages: no memory for %zu bytes", text.n);
}
