/* hub_cache.c: the cache of Hugging Face's tools: models--USER--NAME/{blobs/HASH, snapshots/COMMIT/FILE -> blob,
 * refs/main}, in HF_HUB_CACHE, HF_HOME/hub or ~/.cache/huggingface/hub; and the access token beside it. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file/file.h"
#include "base/mem.h"
#include "hub/hub_impl.h"

static const char *env(const char *name)
{
    const char *v = getenv(name);

    return v && v[0] ? v : NULL;
}

/* HF_HOME, or where it is without. */
static int home_of(char *path, size_t cap)
{
    const char *home = env("HF_HOME"), *cache = env("XDG_CACHE_HOME"), *user = env("HOME");

    if (home)
        return snprintf(path, cap, "%s", home) < (int)cap;
    if (cache)
        return snprintf(path, cap, "%s/huggingface", cache) < (int)cap;
    return user && snprintf(path, cap, "%s/.cache/huggingface", user) < (int)cap;
}

const char *hub_endpoint(void)
{
    return env("HF_ENDPOINT") ? env("HF_ENDPOINT") : "https://huggingface.co";
}

const char *hub_token(char buf[512])
{
    char home[HUB_PATH], path[HUB_PATH + 8], *text = NULL;
    size_t n = 0;

    if (env("HF_TOKEN"))
        return env("HF_TOKEN");
    if (!home_of(home, sizeof home))
        return NULL;
    snprintf(path, sizeof path, "%s/token", home);
    if (file_read(path, 500, &text, &n, NULL) != KVANT_OK)
        return NULL;
    snprintf(buf, 512, "%.*s", (int)strcspn(text, " \r\n"), text);
    kvant_free(text);
    return buf[0] ? buf : NULL;
}

static int part_ok(const char *s, size_t n)
{
    return n > 0 && n < HUB_NAME / 2 && s[0] != '.' && s[0] != '-' &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") >= n;
}

int hub_root(char path[HUB_PATH], kvant_diag *diag)
{
    const char *cache = env("HF_HUB_CACHE");
    char home[HUB_PATH];

    if (!cache && !home_of(home, sizeof home))
        return kvant_fail(diag, KVANT_EINVAL, "hub: no folder for the cache: set HF_HOME");
    const int n = snprintf(path, HUB_PATH, "%s%s", cache ? cache : home, cache ? "" : "/hub");
    return n < HUB_PATH ? KVANT_OK : kvant_fail(diag, KVANT_EINVAL, "hub: the cache's path is too long");
}

int hub_repo_open(const char *text, hub_repo *r, kvant_diag *diag)
{
    const size_t user = strcspn(text, "/"), all = strcspn(text, ":");
    char root[HUB_PATH];

    if (text[user] != '/' || all <= user || !part_ok(text, user) || !part_ok(text + user + 1, all - user - 1) ||
        (text[all] && (!text[all + 1] || strlen(text + all) >= HUB_NAME)))
        return kvant_fail(diag, KVANT_EINVAL, "hub: found \"%.80s\", wanted USER/NAME or USER/NAME:QUANT", text);
    snprintf(r->name, sizeof r->name, "%.*s", (int)all, text);
    snprintf(r->quant, sizeof r->quant, "%s", text[all] ? text + all + 1 : "");
    KVANT_TRY(hub_root(root, diag));
    const int n = snprintf(r->folder, sizeof r->folder, "%s/models--%.*s--%s", root, (int)user, text,
                           r->name + user + 1);
    return n < HUB_PATH - 2 * HUB_FILE ? KVANT_OK : kvant_fail(diag, KVANT_EINVAL, "hub: the cache's path is too long");
}

/* The folders above path. */
static int make_folders(char *path, kvant_diag *diag)
{
    for (char *p = path + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = 0;
        const int failed = mkdir(path, 0777) != 0 && errno != EEXIST;
        *p = '/';
        if (failed)
            return kvant_fail(diag, KVANT_EIO, "%.200s: cannot make its folder: %s", path, strerror(errno));
    }
    return KVANT_OK;
}

int hub_path(const hub_repo *r, const char *rest, char path[HUB_PATH], kvant_diag *diag)
{
    if (snprintf(path, HUB_PATH, "%s/%s", r->folder, rest) >= HUB_PATH)
        return kvant_fail(diag, KVANT_EINVAL, "hub: the cache's path is too long");
    return make_folders(path, diag);
}

int hub_link(const hub_repo *r, const hub_list *l, const hub_file *f, kvant_diag *diag)
{
    char rest[2 * HUB_FILE], path[HUB_PATH], to[2 * HUB_FILE] = "";
    size_t at = 0;

    snprintf(rest, sizeof rest, "snapshots/%s/%s", l->commit, f->name);
    KVANT_TRY(hub_path(r, rest, path, diag));
    for (const char *p = rest; (p = strchr(p, '/')) != NULL && at + 80 < sizeof to; p++)
        at += (size_t)snprintf(to + at, sizeof to - at, "../");
    snprintf(to + at, sizeof to - at, "blobs/%s", f->oid);
    unlink(path);
    if (symlink(to, path) != 0)
        return kvant_fail(diag, KVANT_EIO, "%.200s: cannot make the link: %s", path, strerror(errno));
    return KVANT_OK;
}

int hub_write_ref(const hub_repo *r, const char *commit, kvant_diag *diag)
{
    char path[HUB_PATH];
    FILE *f;

    KVANT_TRY(hub_path(r, "refs/main", path, diag));
    f = fopen(path, "w");
    const int put = f && fputs(commit, f) >= 0;
    if ((f && fclose(f) != 0) || !put)
        return kvant_fail(diag, KVANT_EIO, "%.200s: cannot be written: %s", path, strerror(errno));
    return KVANT_OK;
}

/* ---- without the hub ---- */

/* Adds the files of a folder of the snapshot, and of its folders. */
static int scan(const char *root, const char *below, int depth, hub_list *l)
{
    char path[HUB_PATH + HUB_FILE];
    DIR *d;
    struct dirent *e;
    struct stat st;

    snprintf(path, sizeof path, "%s/%s", root, below);
    d = opendir(path);
    while (d && (e = readdir(d)) != NULL && l->n < HUB_FILES) {
        hub_file *f = &l->files[l->n];
        if (snprintf(f->name, sizeof f->name, "%s%s%s", below, below[0] ? "/" : "", e->d_name) >= HUB_FILE ||
            !hub_name_ok(f->name))
            continue;
        snprintf(path, sizeof path, "%s/%s", root, f->name);
        if (stat(path, &st) != 0) /* its bytes are not there */
            continue;
        f->size = st.st_size;
        if (S_ISREG(st.st_mode)) {
            l->n++;
        } else if (S_ISDIR(st.st_mode) && depth < 3) {
            char name[HUB_FILE];
            snprintf(name, sizeof name, "%s", f->name);
            scan(root, name, depth + 1, l);
        }
    }
    if (d)
        closedir(d);
    return l->n;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const hub_file *)a)->name, ((const hub_file *)b)->name);
}

int hub_cached(const hub_repo *r, hub_list *l, kvant_diag *diag)
{
    char path[HUB_PATH + 80], *text = NULL;
    size_t n = 0;

    snprintf(path, sizeof path, "%s/refs/main", r->folder);
    if (file_read(path, 64, &text, &n, NULL) == KVANT_OK)
        snprintf(l->commit, sizeof l->commit, "%.*s", (int)strspn(text, "0123456789abcdef"), text);
    kvant_free(text);
    l->files = kvant_calloc(HUB_FILES, sizeof *l->files);
    if (!l->files)
        return kvant_fail(diag, KVANT_ENOMEM, "hub: out of memory");
    snprintf(path, sizeof path, "%s/snapshots/%s", r->folder, l->commit);
    if (!l->commit[0] || !scan(path, "", 0, l))
        return kvant_fail(diag, KVANT_ENOENT, "hub: %.100s is not in the cache (%.200s)", r->name, r->folder);
    qsort(l->files, (size_t)l->n, sizeof *l->files, by_name);
    return KVANT_OK;
}
