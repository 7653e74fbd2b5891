/* hub_pull.c: see hub.h.  Bytes come under blobs/HASH.incomplete, locked, and get their name once their number and
 * their hash are right; what is there is not fetched again. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "base/file/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "hub/hub_impl.h"

enum { ATTEMPTS = 5, LIST_MOST = 16 << 20 };

/* ---- one file ---- */

typedef struct fetch {
    const hub_ask *ask;
    const hub_file *f;
} fetch;

static int tell(void *user, int64_t done)
{
    const fetch *x = user;

    if (x->ask->ended && x->ask->ended(x->ask->user))
        return 1;
    return x->ask->progress && x->ask->progress(x->ask->user, x->f->name, done, x->f->size);
}

static int has_size(const char *path, int64_t size)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && (size < 0 || st.st_size == size);
}

static int check_hash(const char *path, const hub_file *f, kvant_diag *diag)
{
    mapped_file m;
    unsigned char hash[32];
    char hex[65];

    if (!f->is_sha256)
        return KVANT_OK;
    KVANT_TRY(file_map(path, &m, diag));
    sha256(m.data, m.size, hash);
    file_unmap(&m);
    for (int i = 0; i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", hash[i]);
    if (strcmp(hex, f->oid) == 0)
        return KVANT_OK;
    unlink(path);
    return kvant_fail(diag, KVANT_EIO, "%.120s: found the SHA-256 %.16s..., wanted %.16s...: what came is removed",
                      f->name, hex, f->oid);
}

/* Adds to the open file until it has all bytes; a broken connection is tried again where more came since. */
static int fill(const hub_ask *ask, const char *url, const hub_file *f, int fd, kvant_diag *diag)
{
    fetch x = { ask, f };
    hub_sink to = { .fd = fd, .at = lseek(fd, 0, SEEK_END), .most = f->size, .progress = tell, .user = &x };
    int code = KVANT_OK, again = 1;

    if (to.at > f->size && ftruncate(fd, 0) == 0)
        to.at = lseek(fd, 0, SEEK_SET);
    if (to.at > 0)
        log_msg(LOG_INFO, "%s: goes on at byte %lld of %lld", f->name, (long long)to.at, (long long)f->size);
    for (int i = 0; i < ATTEMPTS && to.at < f->size && again; i++) {
        code = hub_get(url, &to, &again, diag);
        again |= code == KVANT_OK; /* it ended early, and said nothing */
        if (code != KVANT_OK && again && i + 1 < ATTEMPTS)
            log_msg(LOG_WARN, "%s; once more", diag ? diag->text : "");
    }
    if (to.at == f->size)
        return fsync(fd) == 0 ? KVANT_OK : kvant_fail(diag, KVANT_EIO, "%.120s: %s", f->name, strerror(errno));
    return code != KVANT_OK ? code
                            : kvant_fail(diag, KVANT_EIO, "%.120s: found %lld bytes, wanted %lld", f->name,
                                         (long long)to.at, (long long)f->size);
}

/* name as a path of an address, RFC 3986: other bytes than letters, digits, "-._~/" become %XX; to has 3 times its
 * room. */
static void escape(const char *name, char *to)
{
    for (; *name; name++) {
        const unsigned char c = (unsigned char)*name;
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("-._~/", c))
            *to++ = (char)c;
        else
            to += snprintf(to, 4, "%%%02X", c);
    }
    *to = 0;
}

static int fetch_blob(const hub_ask *ask, const hub_repo *r, const hub_list *l, const hub_file *f, const char *blob,
                      kvant_diag *diag)
{
    char part[HUB_PATH + 16], url[2 * HUB_PATH], name[3 * HUB_FILE];

    snprintf(part, sizeof part, "%s.incomplete", blob);
    escape(f->name, name);
    if (snprintf(url, sizeof url, "%.1000s/%s/resolve/%s/%s", hub_endpoint(), r->name, l->commit, name) >=
        (int)sizeof url)
        return kvant_fail(diag, KVANT_EINVAL, "hub: the address of %.120s is longer than %zu bytes", f->name,
                          sizeof url);
    const int fd = open(part, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return kvant_fail(diag, KVANT_EIO, "%.200s: %s", part, strerror(errno));
    int code = flock(fd, LOCK_EX) == 0 ? KVANT_OK : kvant_fail(diag, KVANT_EIO, "%.200s: %s", part, strerror(errno));
    if (code == KVANT_OK && !has_size(blob, f->size)) { /* else another process has fetched it meanwhile */
        code = fill(ask, url, f, fd, diag);
        if (code == KVANT_OK)
            code = check_hash(part, f, diag);
        if (code == KVANT_OK && rename(part, blob) != 0)
            code = kvant_fail(diag, KVANT_EIO, "%.200s: %s", blob, strerror(errno));
    }
    close(fd);
    return code;
}

static int fetch_file(const hub_ask *ask, const hub_repo *r, const hub_list *l, const hub_file *f, kvant_diag *diag)
{
    char rest[80], blob[HUB_PATH];

    if (!f->oid[0] || f->size < 0)
        return kvant_fail(diag, KVANT_EFORMAT, "hub: %.120s: its size or its hash is not in the list", f->name);
    snprintf(rest, sizeof rest, "blobs/%s", f->oid);
    KVANT_TRY(hub_path(r, rest, blob, diag));
    if (!has_size(blob, f->size))
        KVANT_TRY(fetch_blob(ask, r, l, f, blob, diag));
    return hub_link(r, l, f, diag);
}

/* ---- the repository ---- */

/* Bytes that are still to come -> *bytes; KVANT_ENOSPC: the disk has fewer.  A list is the hub's: it may say any
 * number. */
static int check_room(const hub_repo *r, const hub_list *l, const int *which, int n, int64_t *bytes, kvant_diag *diag)
{
    char rest[96], path[HUB_PATH];
    struct statvfs disk;
    struct stat st;
    int64_t need = 0;

    for (int i = 0; i < n; i++) {
        const hub_file *f = &l->files[which[i]];
        snprintf(rest, sizeof rest, "blobs/%s", f->oid);
        KVANT_TRY(hub_path(r, rest, path, diag));
        if (f->size < 0 || has_size(path, f->size))
            continue;
        snprintf(rest, sizeof rest, "blobs/%s.incomplete", f->oid);
        KVANT_TRY(hub_path(r, rest, path, diag));
        const int64_t there = stat(path, &st) == 0 && st.st_size < f->size ? st.st_size : 0;
        need = need > INT64_MAX / 2 ? need : need + f->size - there;
    }
    KVANT_TRY(hub_path(r, "blobs", path, diag));
    *bytes = need;
    if (need == 0 || statvfs(path, &disk) != 0 || need / (int64_t)disk.f_frsize < (int64_t)disk.f_bavail)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_ENOSPC, "hub: %.100s: found %lld MiB free for it, wanted %lld", r->name,
                      (long long)disk.f_bavail * (long long)disk.f_frsize >> 20, (long long)(need >> 20));
}

static int list_ended(void *user, int64_t done)
{
    const hub_ask *ask = user;

    (void)done;
    return ask->ended && ask->ended(ask->user);
}

static int fetch_list(const hub_ask *ask, const hub_repo *r, hub_list *l, kvant_diag *diag)
{
    char url[2 * HUB_PATH];
    sbuf text = { 0 };
    hub_sink to = { .fd = -1, .most = LIST_MOST, .text = &text, .progress = list_ended };
    int again;

    to.user = (void *)(uintptr_t)ask;
    snprintf(url, sizeof url, "%.1000s/api/models/%s/revision/main?blobs=true", hub_endpoint(), r->name);
    int code = hub_get(url, &to, &again, diag);
    if (code == KVANT_OK)
        code = hub_list_read(sbuf_text(&text), text.n, l, diag);
    sbuf_free(&text);
    return code;
}

static int is_offline(const hub_ask *ask)
{
    const char *v = getenv("HF_HUB_OFFLINE");

    return ask->offline || (v && v[0] && strcmp(v, "0") != 0);
}

/* The file that is asked for; NULL: a model's, by its quant. */
static const char *file_of(const hub_ask *ask, const hub_repo *r, const hub_list *l)
{
    for (int i = 0; i < l->n && !ask->file && ask->instead && !r->quant[0]; i++)
        if (strcmp(l->files[i].name, ask->instead) == 0)
            return ask->instead;
    return ask->file;
}

static int pull(const hub_ask *ask, const hub_repo *r, hub_list *l, char path[HUB_PATH], kvant_diag *diag)
{
    int which[HUB_SHARDS], n = 0;
    char rest[2 * HUB_FILE];
    int64_t bytes = 0;

    if (is_offline(ask))
        KVANT_TRY(hub_cached(r, l, diag));
    else
        KVANT_TRY(fetch_list(ask, r, l, diag));
    KVANT_TRY(hub_choose(l, r->quant, file_of(ask, r, l), which, &n, diag));
    if (!is_offline(ask))
        KVANT_TRY(check_room(r, l, which, n, &bytes, diag));
    if (ask->begun && ask->begun(ask->user, bytes))
        return kvant_fail(diag, KVANT_ECANCELED, "interrupted before it began");
    for (int i = 0; i < n && !is_offline(ask); i++)
        KVANT_TRY(fetch_file(ask, r, l, &l->files[which[i]], diag));
    if (!is_offline(ask))
        KVANT_TRY(hub_write_ref(r, l->commit, diag));
    snprintf(rest, sizeof rest, "snapshots/%s/%s", l->commit, l->files[which[0]].name);
    return hub_path(r, rest, path, diag);
}

int hub_pull(const hub_ask *ask, char path[HUB_PATH], kvant_diag *diag)
{
    hub_repo *r = kvant_calloc(1, sizeof *r);
    hub_list l = { .n = 0 };
    kvant_diag first = { "" };
    const int offline = is_offline(ask);
    int code = r ? hub_repo_open(ask->repo, r, diag) : kvant_fail(diag, KVANT_ENOMEM, "hub: out of memory");

    if (code == KVANT_OK && ask->file && !hub_name_ok(ask->file))
        code = kvant_fail(diag, KVANT_EINVAL, "hub: found the file \"%.80s\", wanted a path in the repository",
                          ask->file);
    if (code == KVANT_OK) {
        code = pull(ask, r, &l, path, &first);
        if (code != KVANT_OK)
            kvant_fail(diag, code, "%s%s", first.text,
                       offline             ? " (offline: nothing is fetched)"
                       : code == KVANT_EIO ? " (--offline takes what the cache has)"
                                           : "");
    }
    kvant_free(l.files);
    kvant_free(r);
    return code;
}
