/* hub_models.c: which models the cache holds, and taking one away.  A model is named USER/NAME:TAG, where TAG is the
 * last word of its file's name (as llama-server names them); files without one are no models here.
 *
 * Names in the cache's folders are the hub's: nothing outside the cache is ever removed.  A file is looked up in what
 * the folders list, never made of a client's text; a folder that leads elsewhere by a link ends the removal. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/mem.h"
#include "hub/hub_impl.h"

/* "q/m-q8_0-00001-of-00003.gguf" -> "Q8_0"; 0: it has no such word, or is no first file of a model. */
static int tag_of(const char *file, char tag[HUB_NAME])
{
    size_t end = strlen(file), begin;
    int i, shards;

    if (!hub_is_model(file))
        return 0;
    end -= hub_is_shard(file, &i, &shards) ? strlen("-00001-of-00003.gguf") : strlen(".gguf");
    for (begin = end; begin > 0 && (isalnum((unsigned char)file[begin - 1]) || file[begin - 1] == '_');)
        begin--;
    if (begin == end || begin == 0 || !strchr("-.", file[begin - 1]) || end - begin >= HUB_NAME / 2)
        return 0;
    for (i = 0; begin < end; i++)
        tag[i] = (char)toupper((unsigned char)file[begin++]);
    tag[i] = 0;
    return 1;
}

/* The file of l whose tag it is, the first of several; -1. */
static int find_tag(const hub_list *l, const char *tag)
{
    char one[HUB_NAME];

    for (int i = 0; i < l->n; i++)
        if (tag_of(l->files[i].name, one) && strcmp(one, tag) == 0)
            return i;
    return -1;
}

/* All files of the model of file `first`: -> which, n. */
static int shards_of(const hub_list *l, int first, int *which, int *n)
{
    return hub_choose(l, "", l->files[first].name, which, n, NULL);
}

/* ---- the list ---- */

static void tell_models(const hub_repo *r, hub_each each, void *user)
{
    char tag[HUB_NAME], name[2 * HUB_NAME + 2], path[HUB_PATH + HUB_FILE + 80];
    int which[HUB_SHARDS], n;
    hub_list l = { .n = 0 };

    const int known = hub_cached(r, &l, NULL) == KVANT_OK;
    for (int i = 0; known && i < l.n; i++) {
        if (!tag_of(l.files[i].name, tag) || find_tag(&l, tag) != i || shards_of(&l, i, which, &n) != KVANT_OK)
            continue;
        snprintf(name, sizeof name, "%s:%s", r->name, tag);
        snprintf(path, sizeof path, "%s/snapshots/%s/%s", r->folder, l.commit, l.files[i].name);
        each(user, name, path);
    }
    kvant_free(l.files);
}

/* "models--USER--NAME" -> a repository; 0: it is none. */
static int repo_of(const char *folder, hub_repo *r)
{
    const char *user = folder + strlen("models--"), *name;
    char text[2 * HUB_NAME];

    if (strncmp(folder, "models--", 8) != 0 || (name = strstr(user, "--")) == NULL)
        return 0;
    return snprintf(text, sizeof text, "%.*s/%s", (int)(name - user), user, name + 2) < (int)sizeof text &&
           !strchr(text, ':') && hub_repo_open(text, r, NULL) == KVANT_OK;
}

int hub_models(hub_each each, void *user, kvant_diag *diag)
{
    hub_repo *r = kvant_calloc(1, sizeof *r);
    char root[HUB_PATH];
    struct dirent *e;

    int code = r ? hub_root(root, diag) : kvant_fail(diag, KVANT_ENOMEM, "hub: out of memory");
    DIR *d = code == KVANT_OK ? opendir(root) : NULL;
    if (code == KVANT_OK && !d && errno != ENOENT)
        code = kvant_fail(diag, KVANT_EIO, "hub: %.200s: %s", root, strerror(errno));
    while (d && (e = readdir(d)) != NULL)
        if (repo_of(e->d_name, r))
            tell_models(r, each, user);
    if (d)
        closedir(d);
    kvant_free(r);
    return code;
}

/* ---- taking one away ---- */

typedef struct removal {
    const hub_repo *r;
    const char *name;  /* the file's path in a snapshot */
    char oid[HUB_OID]; /* bytes that the link named */
    int links, removed;
    kvant_diag *diag;
} removal;

/* path, or the folder that it stands in, is itself within the repository's folder: no link leads away. */
static int stays(const hub_repo *r, const char *path)
{
    char root[HUB_PATH], real[PATH_MAX], home[PATH_MAX];
    const char *last = strrchr(r->folder, '/');

    if (hub_root(root, NULL) != KVANT_OK || !realpath(root, home) || !realpath(path, real))
        return 0;
    const size_t n = strlen(home), m = strlen(last);
    return strncmp(real, home, n) == 0 && strncmp(real + n, last, m) == 0 && (!real[n + m] || real[n + m] == '/');
}

static int outside(const char *path, kvant_diag *diag)
{
    return kvant_fail(diag, KVANT_EINVAL, "hub: %.200s: it leaves the cache by a link: nothing is removed", path);
}

static int unlink_in(removal *x, const char *path)
{
    if (unlink(path) != 0 && errno != ENOENT)
        return kvant_fail(x->diag, KVANT_EIO, "hub: %.200s: %s", path, strerror(errno));
    x->removed++;
    return KVANT_OK;
}

/* "../../blobs/HASH" -> the hash; "": the link is of another kind, and what it names stays. */
static void blob_of(const char *path, char oid[HUB_OID])
{
    char to[HUB_PATH];
    const ssize_t n = readlink(path, to, sizeof to - 1);
    const char *p = to;

    oid[0] = 0;
    to[n > 0 ? n : 0] = 0;
    while (strncmp(p, "../", 3) == 0)
        p += 3;
    const size_t digits = strncmp(p, "blobs/", 6) == 0 ? strspn(p + 6, "0123456789abcdef") : 0;
    if ((digits == 40 || digits == 64) && !p[6 + digits])
        snprintf(oid, HUB_OID, "%s", p + 6);
}

/* Calls fn for each folder (or, with files, each other thing) below path. */
static int each_below(const char *path, int files, int depth, int (*fn)(removal *, const char *), removal *x)
{
    char one[HUB_PATH + HUB_FILE];
    struct dirent *e;
    struct stat st;
    int code = KVANT_OK;
    DIR *d = opendir(path);

    while (d && code == KVANT_OK && (e = readdir(d)) != NULL) {
        if (e->d_name[0] == '.' || snprintf(one, sizeof one, "%s/%s", path, e->d_name) >= (int)sizeof one ||
            lstat(one, &st) != 0)
            continue;
        if (S_ISDIR(st.st_mode) && files && depth < 5)
            code = each_below(one, files, depth + 1, fn, x);
        else if (S_ISDIR(st.st_mode) != files)
            code = fn(x, one);
    }
    if (d)
        closedir(d);
    return code;
}

static int count_link(removal *x, const char *path)
{
    char oid[HUB_OID];

    blob_of(path, oid);
    x->links += strcmp(oid, x->oid) == 0;
    return KVANT_OK;
}

/* The file of one snapshot, and its bytes when no other file is made of them. */
static int remove_of(removal *x, const char *snapshot)
{
    char path[HUB_PATH + HUB_FILE], folder[HUB_PATH + HUB_FILE];
    struct stat st;

    if (snprintf(path, sizeof path, "%s/%s", snapshot, x->name) >= (int)sizeof path || lstat(path, &st) != 0)
        return KVANT_OK;
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    if (S_ISDIR(st.st_mode) || !stays(x->r, folder))
        return outside(path, x->diag);
    blob_of(path, x->oid);
    KVANT_TRY(unlink_in(x, path));
    if (!x->oid[0])
        return KVANT_OK;
    x->links = 0;
    snprintf(folder, sizeof folder, "%s/snapshots", x->r->folder);
    KVANT_TRY(each_below(folder, 1, 0, count_link, x));
    snprintf(folder, sizeof folder, "%s/blobs", x->r->folder);
    snprintf(path, sizeof path, "%s/blobs/%s", x->r->folder, x->oid);
    if (!stays(x->r, folder))
        return outside(folder, x->diag);
    return x->links ? KVANT_OK : unlink_in(x, path);
}

/* A part that a download left, unless somebody goes on with it at this moment. */
static int remove_part(removal *x, const char *path)
{
    const size_t n = strlen(path), end = strlen(".incomplete");

    if (n < end || strcmp(path + n - end, ".incomplete") != 0)
        return KVANT_OK;
    const int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return KVANT_OK;
    const int code = flock(fd, LOCK_EX | LOCK_NB) == 0 ? unlink_in(x, path) : KVANT_OK;
    close(fd);
    return code;
}

static int remove_files(removal *x, const hub_list *l)
{
    const int first = find_tag(l, x->r->quant);
    int which[HUB_SHARDS], n = 0, code = KVANT_OK;
    char path[HUB_PATH + 16];

    snprintf(path, sizeof path, "%s/snapshots", x->r->folder);
    if (first >= 0 && shards_of(l, first, which, &n) != KVANT_OK)
        n = 0;
    if (first >= 0 && !stays(x->r, path))
        return outside(path, x->diag);
    for (int i = 0; i < n && code == KVANT_OK; i++) {
        x->name = l->files[which[i]].name;
        code = each_below(path, 0, 0, remove_of, x);
    }
    return code;
}

int hub_remove(const char *name, int parts, kvant_diag *diag)
{
    hub_repo *r = kvant_calloc(1, sizeof *r);
    hub_list l = { .n = 0 };
    removal x = { .r = r, .diag = diag };
    char path[HUB_PATH + 16];
    int code = r ? hub_repo_open(name, r, diag) : kvant_fail(diag, KVANT_ENOMEM, "hub: out of memory");

    if (code == KVANT_OK && !parts && hub_cached(r, &l, NULL) == KVANT_OK)
        code = remove_files(&x, &l);
    if (code == KVANT_OK) {
        snprintf(path, sizeof path, "%s/blobs", r->folder);
        if (stays(r, path))
            code = each_below(path, 1, 5, remove_part, &x);
    }
    if (code == KVANT_OK && !x.removed)
        code = kvant_fail(diag, KVANT_ENOENT, "hub: %.100s is not in the cache", name);
    kvant_free(l.files);
    kvant_free(r);
    return code;
}
