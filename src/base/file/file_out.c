/* file_out.c: see file_out.h.  Every call to the system goes through one gate, which the fault tests count down. */
#include "base/file/file_out.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file/folder.h"

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

/* 1: nobody sweeps it while we hold it.  0: a sweep came first and has removed it, or is about to. */
static int lock_temp(int fd)
{
    struct stat st;

    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        return errno != EWOULDBLOCK; /* a file system without locks: sweeps leave its files alone */
    return fstat(fd, &st) != 0 || st.st_nlink > 0;
}

static int create_temp(file_out *f, kvant_diag *diag)
{
    enum { TRIES = 8 };

    for (int i = 0; i < TRIES; i++) {
        snprintf(f->temp, sizeof f->temp, TEMP_PREFIX "%ld-%u", (long)getpid(), atomic_fetch_add(&temp_count, 1));
        f->fd = gate() ? -1 : openat(f->dir, f->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (f->fd < 0 && errno != EEXIST) /* of a dead process that had our number */
            break;
        if (f->fd >= 0 && lock_temp(f->fd))
            return KVANT_OK;
        if (f->fd >= 0)
            close(f->fd);
        f->fd = -1;
    }
    f->temp[0] = 0;
    return failed(f, "create", diag);
}

int file_out_begin(int dir, const char *name, file_out *f, kvant_diag *diag)
{
    *f = (file_out){ .dir = dir, .fd = -1 };
    if (!*name || strchr(name, '/') || strlen(name) >= sizeof f->name)
        return kvant_fail(diag, KVANT_EINVAL, "file name \"%.60s\": wanted 1 to 95 bytes without '/'", name);
    snprintf(f->name, sizeof f->name, "%s", name);
    return create_temp(f, diag);
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

/* Closed last: the lock must outlast the temporary name.  A failed close loses nothing that was synced. */
int file_out_commit(file_out *f, kvant_diag *diag)
{
    int code = KVANT_OK;

    if (gate() || fsync(f->fd) != 0)
        code = failed(f, "sync", diag);
    if (code == KVANT_OK && (gate() || renameat(f->dir, f->temp, f->dir, f->name) != 0))
        code = failed(f, "rename", diag);
    if (code == KVANT_OK) {
        f->temp[0] = 0;
        if (gate() || fsync(f->dir) != 0)
            code = failed(f, "sync the directory of", diag);
        const int fd = f->fd, closed = close(fd);
        f->fd = -1;
        if ((gate() || closed != 0) && code == KVANT_OK)
            code = failed(f, "close", diag);
    }
    file_out_abort(f);
    return code;
}

void file_out_abort(file_out *f)
{
    if (f->fd >= 0 && f->temp[0])
        unlinkat(f->dir, f->temp, 0);
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
    f->temp[0] = 0;
}

/* The lock says whether its writer lives: a number of a process may be another's by now, or of another container. */
static void sweep_one(void *user, int dir, const char *name)
{
    int *n = user;

    if (strncmp(name, TEMP_PREFIX, strlen(TEMP_PREFIX)) != 0)
        return;
    const int fd = openat(dir, name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && unlinkat(dir, name, 0) == 0)
        ++*n;
    close(fd);
}

int file_out_sweep(int dir)
{
    int n = 0;

    return folder_each(dir, sweep_one, &n) < 0 ? 0 : n;
}
