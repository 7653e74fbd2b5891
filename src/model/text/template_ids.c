/* template_ids.c: a rendered prompt as a text, and as ids.
 *
 * Control tokens are looked for in runs of the template's own text.  What is between two of them is tokenised as one
 * text, so that a word may reach from a header into the content as it does in one pass.  BOS comes where the template
 * writes it, or where the file asks for it; once. */
#include <string.h>
#include "base/mem.h"
#include "model/text/template.h"

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

static int put_text(id_list *o, const tokenizer *t, const char *s, size_t len, kvant_diag *diag)
{
    const int room = o->n < o->cap ? o->cap - (int)o->n : 0;
    int n = 0;

    if (len == 0)
        return KVANT_OK;
    int err = tokenizer_encode(t, s, len, 0, room ? o->ids + o->n : NULL, room, &n, diag);
    if (err < 0 && err != KVANT_ENOSPC)
        return err;
    o->n += n;
    return KVANT_OK;
}

/* First control token at or after `at` in one run of the template's text; -1: none. */
static int32_t next_control(const tokenizer *t, const jinja_text *text, size_t at, size_t *from, size_t *to)
{
    while (at < text->n) {
        const uint8_t *begin = memchr(text->origin + at, JINJA_TEMPLATE, text->n - at);
        if (!begin)
            break;
        at = (size_t)(begin - text->origin);
        const uint8_t *data = memchr(begin, JINJA_DATA, text->n - at);
        const size_t end = data ? (size_t)(data - text->origin) : text->n;
        int32_t id = tokenizer_next_control(t, text->text + at, end - at, from, to);
        if (id >= 0) {
            *from += at;
            *to += at;
            return id;
        }
        at = end;
    }
    return -1;
}

static int put_all(id_list *o, const tokenizer *t, const jinja_text *text, kvant_diag *diag)
{
    size_t at = 0, from = 0, to = 0;
    int32_t id = next_control(t, text, 0, &from, &to);

    if (tokenizer_add_bos(t) && !(id == tokenizer_bos(t) && from == 0))
        put_id(o, tokenizer_bos(t));
    for (; id >= 0; id = next_control(t, text, at, &from, &to)) {
        KVANT_TRY(put_text(o, t, text->text + at, from - at, diag));
        put_id(o, id);
        at = to;
    }
    return put_text(o, t, text->text + at, text->n - at, diag);
}

int template_text_ids(const tokenizer *t, const jinja_text *text, int32_t *ids, int cap, int *n_ids, kvant_diag *diag)
{
    id_list o = { ids, cap, 0 };

    KVANT_TRY(put_all(&o, t, text, diag));
    if (o.n > INT32_MAX)
        return kvant_fail(diag, KVANT_EINVAL, "messages: %lld tokens, want at most %d", (long long)o.n, INT32_MAX);
    *n_ids = (int)o.n;
    if (o.n > cap)
        return kvant_fail(diag, KVANT_ENOSPC, "messages: %d tokens, room for %d", *n_ids, cap);
    return KVANT_OK;
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
    size_t skip = 0, from, to;

    KVANT_TRY(chat_template_render(c, t, in, &run, &text, diag));
    if (t && tokenizer_add_bos(t) && next_control(t, &text, 0, &from, &to) == tokenizer_bos(t) && from == 0)
        skip = to;
    *out = kvant_strndup(text.text + skip, text.n - skip);
    jinja_run_close(run);
    return *out ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "messages: no memory for %zu bytes", text.n);
}
