/* hf_vocab_template.c: the chat templates of a folder -> tokenizer.chat_template, tokenizer.chat_template.NAME and the
 * list of those names, tokenizer.chat_templates.  Owns the places where they may be and which of them counts:
 *
 *   chat_template.jinja with additional_chat_templates/NAME.jinja     as Transformers and vLLM, before the others
 *   "chat_template" of tokenizer_config.json, a text or a list of {"name", "template"}
 *   "chat_template" of chat_template.json, then of processor_config.json, the same (a processor's)
 *
 * A second place with another text is named in a warning. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file/file.h"
#include "base/file/folder.h"
#include "base/log.h"
#include "base/mem.h"
#include "make/convert/hf_config.h"
#include "make/convert/hf_vocab.h"
#include "model/gguf/gguf.h"

enum { MOST_BYTES = 16 << 20, MOST_TEMPLATES = 64, MOST_NAME = 64 }; /* arbitrary, above any model */

typedef struct one_template {
    char name[MOST_NAME];
    char *text;
    size_t n;
} one_template;

typedef struct templates {
    one_template list[MOST_TEMPLATES];
    int n;
    const char *from; /* the place that counts; NULL: none yet */
    const char *folder;
    kvant_diag *diag;
    int rc;
} templates;

/* Takes text.  In names of keys every byte but letters and digits is '_', as in the field's files. */
static int add(templates *t, const char *name, size_t n_name, char *text, size_t n)
{
    if (t->n == MOST_TEMPLATES || n_name == 0 || n_name >= MOST_NAME || !text) {
        kvant_free(text);
        return kvant_fail(t->diag, !text ? KVANT_ENOMEM : KVANT_EFORMAT,
                          "chat template \"%.*s\": %s", (int)(n_name < 40 ? n_name : 40), name,
                          !text ? "no memory for it" : "at most 64 wanted, with names of 1 to 63 bytes");
    }
    one_template *o = &t->list[t->n++];
    for (size_t i = 0; i < n_name; i++) {
        const char c = name[i];
        const int kept = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        o->name[i] = kept ? c : '_';
    }
    o->name[n_name] = 0;
    o->text = text;
    o->n = n;
    for (int i = 0; i + 1 < t->n; i++)
        if (strcmp(t->list[i].name, o->name) == 0)
            return kvant_fail(t->diag, KVANT_EFORMAT, "chat template \"%s\": there are two of this name", o->name);
    return KVANT_OK;
}

static int add_json(templates *t, const char *name, size_t n_name, gjson v)
{
    char *text = kvant_alloc(v.n);
    const size_t n = text ? gjson_unescape(v, text) : 0;

    if (n == SIZE_MAX) {
        kvant_free(text);
        return kvant_fail(t->diag, KVANT_EFORMAT, "chat_template: \"%.*s\" is %.*s, a text wanted",
                          (int)(n_name < 40 ? n_name : 40), name, hf_shown(v), v.p);
    }
    return add(t, name, n_name, text, n);
}

/* A text, [{"name": "default", "template": ...}, ...] or {"default": ..., ...}. */
static int read_value(templates *t, gjson v, const char *from)
{
    gjson it = { NULL, 0 }, key = { NULL, 0 };

    if (!v.p || *v.p == 'n')
        return KVANT_OK;
    t->from = from;
    if (*v.p == '"')
        return add_json(t, "default", 7, v);
    while (*v.p == '{' && gjson_member(v, &key, &it))
        KVANT_TRY(add_json(t, key.p + 1, key.n - 2, it));
    if (*v.p != '[' && *v.p != '{')
        return kvant_fail(t->diag, KVANT_EFORMAT, "%s: chat_template is %.*s, a text, a list or an object wanted", from,
                          hf_shown(v), v.p);
    while (*v.p == '[' && gjson_next(v, &it)) {
        const gjson name = gjson_get(it, "name"), text = gjson_get(it, "template");
        if (!name.p || *name.p != '"' || !text.p)
            return kvant_fail(t->diag, KVANT_EFORMAT, "%s: chat_template has %.*s, {\"name\", \"template\"} wanted",
                              from, hf_shown(it), it.p);
        KVANT_TRY(add_json(t, name.p + 1, name.n - 2, text));
    }
    return KVANT_OK;
}

static int read_file(templates *t, const char *file, const char *name, size_t n_name, int *found)
{
    char path[4096], *text = NULL;
    size_t n = 0;
    kvant_diag why = { "" };

    if (snprintf(path, sizeof path, "%s/%s", t->folder, file) >= (int)sizeof path)
        return kvant_fail(t->diag, KVANT_EINVAL, "%.120s: its name is too long", t->folder);
    const int rc = file_read(path, MOST_BYTES, &text, &n, &why);
    *found = rc == KVANT_OK;
    if (rc == KVANT_ENOENT)
        return KVANT_OK;
    return rc < 0 ? kvant_fail(t->diag, rc, "%.220s", why.text) : add(t, name, n_name, text, n);
}

static void each_file(void *user, int fd, const char *file)
{
    templates *t = user;
    const size_t n = strlen(file);
    char name[512];
    int found;

    (void)fd;
    if (t->rc != KVANT_OK || n <= 6 || n > 255 || strcmp(file + n - 6, ".jinja") != 0)
        return;
    snprintf(name, sizeof name, "additional_chat_templates/%s", file);
    t->rc = read_file(t, name, file, n - 6, &found);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const one_template *)a)->name, ((const one_template *)b)->name);
}

static int read_files(templates *t)
{
    char path[4096];
    kvant_diag none = { "" };
    int fd, found = 0;

    KVANT_TRY(read_file(t, "chat_template.jinja", "default", 7, &found));
    if (snprintf(path, sizeof path, "%s/additional_chat_templates", t->folder) < (int)sizeof path &&
        folder_open(path, &fd, &none) == KVANT_OK) {
        folder_each(fd, each_file, t);
        close(fd);
        KVANT_TRY(t->rc);
        qsort(t->list + found, (size_t)(t->n - found), sizeof *t->list, by_name); /* a folder has no order */
    }
    if (t->n > 0)
        t->from = found ? "chat_template.jinja" : "additional_chat_templates";
    return KVANT_OK;
}

/* A place that does not count, though its default template is another one. */
static void warn_of_others(const templates *t, gjson v, const char *place)
{
    char *text = v.p && *v.p == '"' ? kvant_alloc(v.n) : NULL;
    const size_t n = text ? gjson_unescape(v, text) : 0;
    int same = !v.p || *v.p == 'n';

    for (int i = 0; text && i < t->n; i++)
        same |= strcmp(t->list[i].name, "default") == 0 && t->list[i].n == n && memcmp(t->list[i].text, text, n) == 0;
    if (!same)
        log_msg(LOG_WARN, "convert: the chat template is that of %s; %s has another one, which is not read", t->from, place);
    kvant_free(text);
}

static int read_of_processor(templates *t, const char *place)
{
    char *json = NULL;
    gjson root;
    int rc = KVANT_OK;

    KVANT_TRY(hf_read(t->folder, place, &json, &root, t->diag));
    const gjson found = gjson_get(root, "chat_template");
    if (t->from)
        warn_of_others(t, found, place);
    else
        rc = read_value(t, found, place);
    kvant_free(json);
    return rc;
}

static int read_places(templates *t, const hf_vocab *v)
{
    KVANT_TRY(read_files(t));
    const gjson first = gjson_get(v->config, "chat_template");
    if (t->from)
        warn_of_others(t, first, "tokenizer_config.json");
    else
        KVANT_TRY(read_value(t, first, "tokenizer_config.json"));
    KVANT_TRY(read_of_processor(t, "chat_template.json"));
    return read_of_processor(t, "processor_config.json");
}

/* In the field's order: the others, their names, the default one. */
static void put_all(const templates *t, gguf_keys *k)
{
    const one_template *chosen = NULL;
    char key[128];
    int others = 0;

    for (int i = 0; i < t->n; i++) {
        const one_template *o = &t->list[i];
        if (strcmp(o->name, "default") == 0) {
            chosen = o;
            continue;
        }
        snprintf(key, sizeof key, "tokenizer.chat_template.%s", o->name);
        gguf_keys_str(k, key, o->text, o->n);
        others++;
    }
    if (others)
        gguf_keys_array(k, "tokenizer.chat_templates", GGUF_STRING, (uint64_t)others);
    for (int i = 0; i < t->n; i++)
        if (&t->list[i] != chosen)
            gguf_keys_array_str(k, t->list[i].name, strlen(t->list[i].name));
    if (chosen)
        gguf_keys_str(k, "tokenizer.chat_template", chosen->text, chosen->n);
}

int hf_vocab_put_template(const hf_vocab *v, gguf_keys *k, kvant_diag *diag)
{
    templates *t = kvant_calloc(1, sizeof *t);

    if (!t)
        return kvant_fail(diag, KVANT_ENOMEM, "chat template: no memory");
    t->folder = v->folder;
    t->diag = diag;
    const int rc = read_places(t, v);
    if (rc == KVANT_OK)
        put_all(t, k);
    for (int i = 0; i < t->n; i++)
        kvant_free(t->list[i].text);
    kvant_free(t);
    return rc;
}
