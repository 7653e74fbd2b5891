/* hub_list.c: the files of a repository, as /api/models/REPO/revision/main lists them, and which of them are meant.
 * The list is somebody else's: a name that leaves its folder is left out. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/mem.h"
#include "base/text/json.h"
#include "hub/hub_impl.h"

int hub_name_ok(const char *name)
{
    const char *part = name;

    for (const char *p = name;; p++) {
        if (*p && *p != '/') {
            if ((unsigned char)*p < 32 || *p == '\\' || *p == 127)
                return 0;
            continue;
        }
        if (p == part || part[0] == '.') /* empty, "..", or hidden */
            return 0;
        if (!*p)
            return 1;
        part = p + 1;
    }
}

static int is_hex(const char *s, size_t n)
{
    return strlen(s) == n && strspn(s, "0123456789abcdef") == n;
}

static int read_file(gjson v, hub_file *f, kvant_diag *diag)
{
    gjson lfs = gjson_get(v, "lfs");
    const double size = gjson_number(gjson_get(v, "size"));

    if (!gjson_text(gjson_get(v, "rfilename"), f->name, sizeof f->name) || strlen(f->name) >= sizeof f->name - 1)
        return kvant_fail(diag, KVANT_EFORMAT, "hub: a file without a name, or with too long a one");
    f->size = size >= 0 && size < 9e15 ? (int64_t)size : -1;
    f->is_sha256 = gjson_text(gjson_get(lfs, "sha256"), f->oid, sizeof f->oid);
    if (!f->is_sha256 && !gjson_text(gjson_get(v, "blobId"), f->oid, sizeof f->oid))
        f->oid[0] = 0;
    if (f->oid[0] && !is_hex(f->oid, f->is_sha256 ? 64 : 40))
        return kvant_fail(diag, KVANT_EFORMAT, "hub: %.80s: found the hash \"%.40s\", wanted hex digits", f->name,
                          f->oid);
    return KVANT_OK;
}

int hub_list_read(const char *json, size_t n, hub_list *l, kvant_diag *diag)
{
    gjson root, it = { 0 }, files;

    KVANT_TRY(gjson_parse(json, n, &root, diag));
    files = gjson_get(root, "siblings");
    if (!gjson_text(gjson_get(root, "sha"), l->commit, sizeof l->commit) || !is_hex(l->commit, 40))
        return kvant_fail(diag, KVANT_EFORMAT, "hub: the list of files names no commit (sha)");
    l->files = kvant_calloc(HUB_FILES, sizeof *l->files);
    if (!l->files)
        return kvant_fail(diag, KVANT_ENOMEM, "hub: out of memory");
    while (gjson_next(files, &it) && l->n < HUB_FILES) {
        hub_file *f = &l->files[l->n];
        KVANT_TRY(read_file(it, f, diag));
        l->n += hub_name_ok(f->name); /* a hidden file, or one outside the folder, is no model */
    }
    return KVANT_OK;
}

/* ---- which one ---- */

static const char *base_of(const char *name)
{
    const char *slash = strrchr(name, '/');

    return slash ? slash + 1 : name;
}

int hub_is_shard(const char *name, int *i, int *n)
{
    const size_t len = strlen(name), tail = strlen("-00001-of-00003.gguf");
    int end = 0;

    return len > tail && sscanf(name + len - tail, "-%5d-of-%5d.gguf%n", i, n, &end) == 2 && (size_t)end == tail &&
           *n >= 1 && *n <= HUB_SHARDS;
}

int hub_is_model(const char *name)
{
    const size_t n = strlen(name);
    const char *base = base_of(name);
    int i, shards;

    if (n < 6 || strcasecmp(name + n - 5, ".gguf") != 0 || strncasecmp(base, "mmproj", 6) == 0 ||
        strstr(base, "imatrix"))
        return 0;
    return !hub_is_shard(name, &i, &shards) || i == 1;
}

/* Returns 1 if quant is a word of the name; its folder counts. */
static int has_word(const char *name, const char *quant)
{
    const size_t n = strlen(quant);

    for (const char *p = name; *p; p++)
        if (strncasecmp(p, quant, n) == 0 && (p == name || strchr("-._/", p[-1])) && p[n] && strchr("-._/", p[n]))
            return 1;
    return 0;
}

static int find(const hub_list *l, const char *quant)
{
    for (int i = 0; i < l->n; i++)
        if (hub_is_model(l->files[i].name) && has_word(l->files[i].name, quant))
            return i;
    return -1;
}

static int refuse(const hub_list *l, const char *what, kvant_diag *diag)
{
    char names[300] = "";
    size_t at = 0;

    for (int i = 0; i < l->n && at + 48 < sizeof names; i++)
        if (hub_is_model(l->files[i].name))
            at += (size_t)snprintf(names + at, sizeof names - at, "%s%.44s", at ? ", " : "", base_of(l->files[i].name));
    return kvant_fail(diag, KVANT_ENOENT, "hub: found no GGUF file %s, wanted one of: %s", what,
                      at ? names : "(there is none)");
}

static int first_of(const hub_list *l, const char *quant, const char *file, kvant_diag *diag)
{
    static const char *const usual[] = { "Q4_K_M", "Q8_0" };
    int i = -1;

    if (file) {
        for (i = 0; i < l->n && strcmp(l->files[i].name, file) != 0;)
            i++;
        return i < l->n ? i : refuse(l, file, diag);
    }
    if (quant[0]) {
        i = find(l, quant);
        return i >= 0 ? i : refuse(l, quant, diag);
    }
    for (int k = 0; k < 2 && i < 0; k++)
        i = find(l, usual[k]);
    for (int k = 0; k < l->n && i < 0; k++)
        if (hub_is_model(l->files[k].name))
            i = k;
    return i >= 0 ? i : refuse(l, "at all", diag);
}

int hub_choose(const hub_list *l, const char *quant, const char *file, int *which, int *n, kvant_diag *diag)
{
    const int first = first_of(l, quant, file, diag);
    char name[HUB_FILE];
    int i, shards;

    if (first < 0)
        return first;
    which[0] = first;
    *n = 1;
    snprintf(name, sizeof name, "%s", l->files[first].name);
    if (!hub_is_shard(name, &i, &shards) || i != 1)
        return KVANT_OK;
    for (int k = 2; k <= shards; k++) {
        char digits[8];
        snprintf(digits, sizeof digits, "%05d", k % 10000);
        memcpy(name + strlen(name) - strlen("00001-of-00003.gguf"), digits, 5);
        for (i = 0; i < l->n && strcmp(l->files[i].name, name) != 0;)
            i++;
        if (i == l->n)
            return kvant_fail(diag, KVANT_ENOENT, "hub: shard %d of %d is missing: %.120s", k, shards, name);
        which[(*n)++] = i;
    }
    return KVANT_OK;
}
