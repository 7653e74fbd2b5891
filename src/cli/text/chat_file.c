/* chat_file.c: see chat_file.h. */
#include "cli/text/chat_file.h"

#include <errno.h>
#include <string.h>
#include "base/mem.h"
#include "base/text/json.h"

int chat_save(const chat *c, const char *path, kvant_diag *diag)
{
    jsonw w;
    FILE *f = fopen(path, "wxe"); /* what is there already is not lost */

    if (!f)
        return kvant_fail(diag, KVANT_EIO, "%.160s cannot be written: %s", path, strerror(errno));
    jsonw_init(&w);
    jsonw_object(&w);
    chat_json(c, &w);
    jsonw_end(&w);
    const int bad = jsonw_error(&w);
    const int wrote = !bad && fwrite(w.buf, 1, w.len, f) == w.len && fputc('\n', f) != EOF;
    jsonw_free(&w);
    if (fclose(f) != 0 || !wrote)
        return kvant_fail(diag, bad ? KVANT_ENOMEM : KVANT_EIO, "%.160s: not written: %s", path,
                          bad ? "out of memory" : strerror(errno));
    return KVANT_OK;
}

/* ---- a conversation ---- */

static const char *role_of(gjson v)
{
    static const char *const roles[] = { "system", "user", "assistant" };
    char name[16] = "";

    gjson_text(v, name, sizeof name);
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(name, roles[i]) == 0)
            return roles[i];
    return NULL;
}

static int load_message(chat *c, gjson m, const char *path, kvant_diag *diag)
{
    const char *role = role_of(gjson_get(m, "role"));
    gjson content = gjson_get(m, "content");

    if (!role || !content.p || content.p[0] != '"' || (c->n && strcmp(role, "system") == 0))
        return kvant_fail(diag, KVANT_EFORMAT,
                          "%.160s: message %d: wanted a role (user, assistant; system for the first one) and a content "
                          "that is a text",
                          path, c->n + 1);
    char *text = kvant_calloc(content.n, 1);
    if (!text)
        return kvant_fail(diag, KVANT_ENOMEM, "%.160s: no memory for %zu bytes", path, content.n);
    const size_t len = gjson_unescape(content, text);
    int code = memchr(text, 0, len)
                   ? kvant_fail(diag, KVANT_EFORMAT, "%.160s: message %d: has a NUL", path, c->n + 1)
                   : chat_add(c, role, text, len, diag);
    kvant_free(text);
    return code;
}

static int load_messages(chat *c, const char *text, size_t size, const char *path, kvant_diag *diag)
{
    gjson root, item = { NULL, 0 };
    kvant_diag why;

    if (gjson_parse(text, size, &root, &why) != KVANT_OK)
        return kvant_fail(diag, KVANT_EFORMAT, "%.160s: %.200s", path, why.text);
    const gjson list = gjson_get(root, "messages");
    while (gjson_next(list, &item))
        KVANT_TRY(load_message(c, item, path, diag));
    return c->n ? KVANT_OK
                : kvant_fail(diag, KVANT_EFORMAT, "%.160s: found no messages, wanted {\"messages\": [...]}", path);
}

int chat_load(chat *c, const char *path, kvant_diag *diag)
{
    chat loaded = { 0 };
    char *text;
    size_t size;

    KVANT_TRY(read_text(path, &text, &size, diag));
    int code = load_messages(&loaded, text, size, path, diag);
    kvant_free(text);
    if (code == KVANT_OK) {
        const kvant_chat_msg *msgs = loaded.msgs;
        kvant_chat_msg *old = c->msgs;
        chat_drop(c, 0);
        c->msgs = loaded.msgs;
        c->n = loaded.n;
        c->cap = loaded.cap;
        c->n_system = strcmp(msgs[0].role, "system") == 0;
        c->in_cache = 0;
        kvant_free(old);
        return KVANT_OK;
    }
    chat_drop(&loaded, 0);
    kvant_free(loaded.msgs);
    return code;
}
