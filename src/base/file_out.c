/* file_out.c: see file_out.h.  Every call to the system goes through one gate, which the fault tests count down. */
#include "base/file_out.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TEMP_PREFIX ".kvant-tmp-"

static _Atomic long gate_calls, gate_at = -1;
static _Atomic int gate_sticky, gate_error;
static void (*_Atomic gate_first)(void);
static _Atomic unsigned temp_count;

long file_out_fail_after(long n, int sticky, int error, void (*first)(void))
{
    const long made = atomic_exchange(&gate_calls, 0);

    atomic_store(&gate_sticky, sticky);
    atomic_store(&gate_error, error);
    atomic_store(&gate_first, first);
    atomic_store(&gate_at, n);
    return made;
}

/* 1: this call fails, with errno set (0: comes up short). */
static int gate(void)
{
    const long call = atomic_fetch_add(&gate_calls, 1), at = atomic_load(&gate_at);

    if (at < 0 || call < at || (call > at && !atomic_load(&gate_sticky)))
        return 0;
    void (*const first)(void) = atomic_load(&gate_first);
    if (first)
        first();
    errno = atomic_load(&gate_error);
    return 1;
}

static int failed(const file_out *f, const char *what, kvant_diag *diag)
{
    return kvant_fail(diag, KVANT_EIO, "%.64s: cannot %s: %s", f->name, what, errno ? strerror(errno) : "short write");
}

int file_out_begin(const char *dir, const char *name, file_out *f, kvant_diag *diag)
{
    *f = (file_out){ -1, -1, 0, "", "" };
    if (!*name || strchr(name, '/') || strlen(name) >= sizeof f->name)
        return kvant_fail(diag, KVANT_EINVAL, "file name \"%.60s\": wanted 1 to 95 bytes without '/'", name);
    snprintf(f->name, sizeof f->name, "%s", name);
    snprintf(f->temp, sizeof f->temp, TEMP_PREFIX "%ld-%u", (long)getpid(), atomic_fetch_add(&temp_count, 1));
    f->dir = gate() ? -1 : open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->dir < 0)
        return kvant_fail(diag, errno == ENOENT ? KVANT_ENOENT : KVANT_EIO, "%.120s: cannot open the directory: %s",
                          dir, strerror(errno));
    f->fd = gate() ? -1 : openat(f->dir, f->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (f->fd >= 0)
        return KVANT_OK;
    const int code = failed(f, "create", diag);
    file_out_abort(f);
    return code;
}

int file_out_write(file_out *f, const void *data, size_t n, kvant_diag *diag)
{
    const char *p = data;

    while (n > 0) {
        const int faulted = gate(), is_short = faulted && errno == 0;
        const ssize_t w = faulted && !is_short ? -1 : write(f->fd, p, is_short && n > 1 ? n / 2 : n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return failed(f, "write", diag);
        p += w;
        n -= (size_t)w;
        f->bytes += w;
    }
    return KVANT_OK;
}

int file_out_commit(file_out *f, kvant_diag *diag)
{
    int code = KVANT_OK, fd = f->fd;

    if (gate() || fsync(fd) != 0)
        code = failed(f, "sync", diag);
    f->fd = -1;
    const int closed = close(fd);
    if ((gate() || closed != 0) && code == KVANT_OK)
        code = failed(f, "close", diag);
    if (code == KVANT_OK && (gate() || renameat(f->dir, f->temp, f->dir, f->name) != 0))
        code = failed(f, "rename", diag);
    if (code == KVANT_OK)
        f->temp[0] = 0;
    if (code == KVANT_OK && (gate() || fsync(f->dir) != 0))
        code = failed(f, "sync the directory of", diag);
    file_out_abort(f);
    return code;
}

void file_out_abort(file_out *f)
{
    if (f->fd >= 0)
        close(f->fd);
    if (f->dir >= 0 && f->temp[0])
        unlinkat(f->dir, f->temp, 0);
    if (f->dir >= 0)
        close(f->dir);
    f->fd = f->dir = -1;
}

int file_out_sweep(const char *dir)
{
    DIR *d = opendir(dir);
    int n = 0;

    if (!d)
        return 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (strncmp(e->d_name, TEMP_PREFIX, strlen(TEMP_PREFIX)) == 0 && unlinkat(dirfd(d), e->d_name, 0) == 0)
            n++;
    closedir(d);
    return n;
}
