/* models_dir.c: the models of a folder.  A client's name of a model is looked up in this list and never made into a
 * path.  Files that a name cannot stand for (controls, not UTF-8, too long) are left out, with a message. */
#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/error.h"
#include "base/file/folder.h"
#include "base/log.h"
#include "base/mem.h"
#include "server/server_impl.h"

enum { PART_BYTES = 15 /* "-00001-of-00003" */ };

typedef struct found {
    server_model *list;
    int n, error;
    const char *dir, *sub; /* sub: the folder of one model, whose name it has; NULL: dir itself */
} found;

static int ends_with(const char *s, size_t n, const char *end)
{
    return n > strlen(end) && memcmp(s + n - strlen(end), end, strlen(end)) == 0;
}

/* The stem ends in -00002-of-00003: which part; 0: it is no part. */
static int part_of(const char *stem, size_t n)
{
    const char *p = stem + n - PART_BYTES;

    if (n <= PART_BYTES || p[0] != '-' || memcmp(p + 6, "-of-", 4) != 0)
        return 0;
    for (int i = 0; i < 5; i++)
        if (!isdigit((unsigned char)p[1 + i]) || !isdigit((unsigned char)p[10 + i]))
            return 0;
    return atoi(p + 1) > 0 ? atoi(p + 1) : 2;
}

int models_name_ok(const char *name, size_t n)
{
    json_t *text = json_stringn(name, n); /* NULL: not UTF-8 */

    json_decref(text);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return 0;
    return n > 0 && n < MODEL_NAME && text;
}

static int is_known(const found *f, const char *name, size_t n)
{
    for (int i = 0; i < f->n; i++)
        if (strlen(f->list[i].name) == n && memcmp(f->list[i].name, name, n) == 0)
            return 1;
    return 0;
}

static void add(found *f, const char *name, size_t n, const char *file)
{
    char path[4096];
    const int bytes = snprintf(path, sizeof path, "%s/%s%s%s", f->dir, f->sub ? f->sub : "", f->sub ? "/" : "", file);

    if (!models_name_ok(name, n) || bytes >= (int)sizeof path || is_known(f, name, n) || f->n == MODELS_MOST) {
        log_msg(LOG_WARN, "--models-dir: %.100s is left out: %s", file,
                is_known(f, name, n)  ? "another model has its name"
                : f->n == MODELS_MOST ? "there are 1024 models already"
                                      : "its name is too long, or not printable UTF-8");
        return;
    }
    server_model *m = &f->list[f->n];
    m->name = kvant_strndup(name, n);
    m->path = kvant_strdup(path);
    f->error |= !m->name || !m->path;
    f->n++;
}

static void look_at(void *user, int fd, const char *name);

/* A folder in the folder; what else it may be is of no interest. */
static void look_into(found *f, const char *name)
{
    char path[4096];
    int fd;

    if (snprintf(path, sizeof path, "%s/%s", f->dir, name) >= (int)sizeof path ||
        folder_open(path, &fd, NULL) != KVANT_OK)
        return;
    f->sub = name;
    folder_each(fd, look_at, f);
    f->sub = NULL;
    close(fd);
}

static void look_at(void *user, int fd, const char *name)
{
    found *f = user;
    size_t n = strlen(name);

    (void)fd;
    if (name[0] == '.' || strncmp(name, "mmproj", 6) == 0)
        return;
    if (!ends_with(name, n, ".gguf")) {
        if (!f->sub)
            look_into(f, name);
        return;
    }
    n -= 5;
    const int part = part_of(name, n);
    if (part > 1)
        return;
    if (f->sub)
        add(f, f->sub, strlen(f->sub), name);
    else
        add(f, name, part ? n - PART_BYTES : n, name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const server_model *)a)->name, ((const server_model *)b)->name);
}

int server_models_of(const char *dir, server_model **list, int *n, kvant_diag *diag)
{
    found f = { .list = kvant_calloc(MODELS_MOST, sizeof *f.list), .dir = dir };
    int fd, code;

    *list = f.list;
    if (!f.list)
        return kvant_fail(diag, KVANT_ENOMEM, "--models-dir: out of memory");
    KVANT_TRY(folder_open(dir, &fd, diag));
    code = folder_each(fd, look_at, &f);
    close(fd);
    *n = f.n;
    if (code < 0)
        return kvant_fail(diag, KVANT_EIO, "--models-dir %s: cannot list it", dir);
    if (f.error)
        return kvant_fail(diag, KVANT_ENOMEM, "--models-dir: out of memory");
    if (f.n == 0)
        return kvant_fail(diag, KVANT_ENOENT, "--models-dir %s: found no *.gguf, wanted one or more", dir);
    qsort(f.list, (size_t)f.n, sizeof *f.list, by_name);
    return KVANT_OK;
}

void server_models_free(server_model *list, int n)
{
    for (int i = 0; list && i < n; i++) {
        kvant_free(list[i].name);
        kvant_free(list[i].path);
        kvant_free(list[i].draft);
    }
    kvant_free(list);
}
