/* file.c: mapped files that survive truncation, and whole-file reads.
 * Owns the process's SIGBUS handler and the table of guarded maps (lock-free: the handler reads it).
 *
 * A file cut inside its last page raises no SIGBUS: the rest of that page just reads as zeroes.  So the descriptor
 * stays open, and file_poisoned also asks for the size (one fstat; about 0.2 us).
 *
 * Why the handler replaces the whole rest of the map and not one page: after a truncation every page behind the new end
 * is gone, and one anonymous page per fault would run into the kernel's limit of maps (65530) on a large model. */
#include "base/file/file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/mem.h"

enum { GUARD_SLOTS = 4096 }; /* mapped files at one time; arbitrary, not tuned */
enum { SLOT_FREE = 0, SLOT_SETUP = 1, SLOT_LIVE = 2 };

typedef struct guard_slot {
    _Atomic int state;
    _Atomic int poisoned;
    int fd; /* of the map's owner; the handler does not look at it */
    _Atomic uintptr_t base;
    _Atomic size_t bytes; /* rounded up to pages */
} guard_slot;

static guard_slot guard_slots[GUARD_SLOTS];
static struct sigaction guard_previous; /* written once, before the handler is installed */
static uintptr_t guard_page;
static int guard_error;
static pthread_once_t guard_once = PTHREAD_ONCE_INIT;

/* Hands a fault that is not ours to whoever had the signal before.  Default and ignore both end the process: the
 * faulting instruction runs again and there is nobody left to catch it. */
static void guard_chain(int sig, siginfo_t *info, void *context)
{
    if (guard_previous.sa_flags & SA_SIGINFO) {
        guard_previous.sa_sigaction(sig, info, context);
    } else if (guard_previous.sa_handler != SIG_DFL && guard_previous.sa_handler != SIG_IGN) {
        guard_previous.sa_handler(sig);
    } else {
        struct sigaction dfl;
        memset(&dfl, 0, sizeof dfl);
        dfl.sa_handler = SIG_DFL;
        sigaction(sig, &dfl, NULL);
        if (info->si_code <= 0) /* sent by kill(): there is no instruction to run again */
            raise(sig);
    }
}

static void guard_handler(int sig, siginfo_t *info, void *context)
{
    const int saved = errno;
    const uintptr_t at = (uintptr_t)info->si_addr;

    for (int i = 0; info->si_code > 0 && i < GUARD_SLOTS; i++) {
        guard_slot *s = &guard_slots[i];
        if (atomic_load(&s->state) != SLOT_LIVE)
            continue;
        const uintptr_t base = atomic_load(&s->base), bytes = atomic_load(&s->bytes);
        if (at < base || at - base >= bytes)
            continue;
        const uintptr_t page = at & ~(guard_page - 1);
        atomic_store(&s->poisoned, 1); /* before the zeroes become visible to anybody */
        void *p = mmap((void *)page, base + bytes - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        if (p == MAP_FAILED)
            break;
        errno = saved;
        return;
    }
    guard_chain(sig, info, context);
    errno = saved;
}

static void guard_install(void)
{
    struct sigaction sa;

    guard_page = (uintptr_t)sysconf(_SC_PAGESIZE);
    memset(&sa, 0, sizeof sa);
    sa.sa_sigaction = guard_handler;
    sa.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigemptyset(&sa.sa_mask);
    if (sigaction(SIGBUS, NULL, &guard_previous) != 0 || sigaction(SIGBUS, &sa, NULL) != 0)
        guard_error = 1;
}

static int guard_take(void)
{
    for (int i = 0; i < GUARD_SLOTS; i++) {
        int want = SLOT_FREE;
        if (atomic_compare_exchange_strong(&guard_slots[i].state, &want, SLOT_SETUP))
            return i;
    }
    return -1;
}

static void guard_arm(int slot, int fd, const void *base, size_t bytes)
{
    guard_slot *s = &guard_slots[slot];

    s->fd = fd;
    atomic_store(&s->poisoned, 0);
    atomic_store(&s->base, (uintptr_t)base);
    atomic_store(&s->bytes, (bytes + guard_page - 1) & ~(size_t)(guard_page - 1));
    atomic_store(&s->state, SLOT_LIVE);
}

static const char *kind_text(mode_t mode)
{
    if (S_ISDIR(mode))
        return "a directory";
    if (S_ISFIFO(mode))
        return "a FIFO";
    if (S_ISCHR(mode) || S_ISBLK(mode))
        return "a device";
    return S_ISSOCK(mode) ? "a socket" : "not a regular file";
}

static int open_error(const char *path, kvant_diag *diag)
{
    const int e = errno;

    if (e == ENXIO)
        return kvant_fail(diag, KVANT_EFORMAT, "%.160s: is a socket or a dead device, a regular file wanted", path);
    if (e == ENOENT)
        return kvant_fail(diag, KVANT_ENOENT, "%.180s: no such file", path);
    /* A path that cannot be followed is "absent" to the caller; the text has the reason. */
    const int absent = e == ENOTDIR || e == EACCES || e == EPERM || e == ELOOP || e == ENAMETOOLONG;
    return kvant_fail(diag, absent ? KVANT_ENOENT : KVANT_EIO, "%.160s: cannot open: %s", path, strerror(e));
}

/* Opens a regular file for reading.  O_NONBLOCK: a FIFO without a writer must not hang us. */
static int open_regular(int dir, const char *path, int flags, int *fd_out, size_t *size, kvant_diag *diag)
{
    struct stat st;

    if (!path || !*path)
        return kvant_fail(diag, KVANT_EINVAL, "file name: empty, a path wanted");
    int fd = openat(dir, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY | flags);
    if (fd < 0)
        return open_error(path, diag);
    if (fstat(fd, &st) != 0) {
        const int e = errno;
        close(fd);
        return kvant_fail(diag, KVANT_EIO, "%.160s: cannot stat: %s", path, strerror(e));
    }
    if (!S_ISREG(st.st_mode)) {
        close(fd);
        return kvant_fail(diag, KVANT_EFORMAT, "%.160s: is %s, a regular file wanted", path, kind_text(st.st_mode));
    }
    if (st.st_size < 0 || (uintmax_t)st.st_size > (uintmax_t)PTRDIFF_MAX) {
        close(fd);
        return kvant_fail(diag, KVANT_EFORMAT, "%.160s: size %jd cannot be addressed", path, (intmax_t)st.st_size);
    }
    *fd_out = fd;
    *size = (size_t)st.st_size;
    return KVANT_OK;
}

/* Maps fd and arms the guard, which then owns fd. */
static int map_guarded(const char *path, int fd, size_t size, mapped_file *out, kvant_diag *diag)
{
    if (size == 0)
        return kvant_fail(diag, KVANT_EFORMAT, "%.180s: is empty (0 bytes)", path);
    pthread_once(&guard_once, guard_install);
    if (guard_error)
        return kvant_fail(diag, KVANT_EIO, "%.160s: the SIGBUS guard could not be installed", path);
    const int slot = guard_take();
    if (slot < 0)
        return kvant_fail(diag, KVANT_ENOSPC, "%.140s: %d files are mapped already, the limit", path, GUARD_SLOTS);
    char *copy = kvant_strdup(path);
    if (!copy) {
        atomic_store(&guard_slots[slot].state, SLOT_FREE);
        return kvant_fail(diag, KVANT_ENOMEM, "%.180s: no memory for its name", path);
    }
    void *p = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) {
        const int e = errno;
        atomic_store(&guard_slots[slot].state, SLOT_FREE);
        kvant_free(copy);
        return kvant_fail(diag, e == ENOMEM ? KVANT_ENOMEM : KVANT_EIO, "%.140s: cannot map %zu bytes: %s", path, size,
                          strerror(e));
    }
    guard_arm(slot, fd, p, size);
    *out = (mapped_file){ p, size, copy, slot };
    return KVANT_OK;
}

int file_map(const char *path, mapped_file *out, kvant_diag *diag)
{
    int fd;
    size_t size;

    KVANT_TRY(open_regular(AT_FDCWD, path, 0, &fd, &size, diag));
    const int rc = map_guarded(path, fd, size, out, diag);
    if (rc < 0)
        close(fd);
    return rc;
}

int file_map_in(int dir, const char *name, mapped_file *out, kvant_diag *diag)
{
    int fd;
    size_t size;

    if (!*name || strchr(name, '/'))
        return kvant_fail(diag, KVANT_EINVAL, "file name \"%.60s\": wanted a name without '/'", name);
    KVANT_TRY(open_regular(dir, name, O_NOFOLLOW, &fd, &size, diag));
    const int rc = map_guarded(name, fd, size, out, diag);
    if (rc < 0)
        close(fd);
    return rc;
}

void file_unmap(mapped_file *f)
{
    if (!f || !f->data)
        return;
    atomic_store(&guard_slots[f->slot].state, SLOT_SETUP); /* a fault in a dying map is not ours to hide */
    munmap((void *)(uintptr_t)f->data, f->size);
    close(guard_slots[f->slot].fd);
    atomic_store(&guard_slots[f->slot].state, SLOT_FREE);
    kvant_free(f->path);
    memset(f, 0, sizeof *f);
}

int file_poisoned(const mapped_file *f)
{
    struct stat st;

    if (!f || !f->data)
        return 0;
    guard_slot *s = &guard_slots[f->slot];
    if (fstat(s->fd, &st) != 0 || st.st_size < (off_t)f->size)
        atomic_store(&s->poisoned, 1);
    return atomic_load(&s->poisoned);
}

/* Reads until `want` bytes or the end of the file; the file may shrink while we read. */
static int read_full(const char *path, int fd, char *buf, size_t want, size_t *got, kvant_diag *diag)
{
    size_t n = 0;

    while (n < want) {
        const ssize_t r = read(fd, buf + n, want - n);
        if (r == 0)
            break;
        if (r > 0)
            n += (size_t)r;
        else if (errno != EINTR)
            return kvant_fail(diag, KVANT_EIO, "%.140s: cannot read at byte %zu: %s", path, n, strerror(errno));
    }
    *got = n;
    return KVANT_OK;
}

int file_read(const char *path, size_t max_bytes, char **data, size_t *size, kvant_diag *diag)
{
    int fd, rc;
    size_t bytes, got = 0;
    char *buf = NULL;

    KVANT_TRY(open_regular(AT_FDCWD, path, 0, &fd, &bytes, diag));
    if (bytes > max_bytes) {
        rc = kvant_fail(diag, KVANT_EFORMAT, "%.160s: %zu bytes, at most %zu wanted", path, bytes, max_bytes);
        goto out;
    }
    buf = kvant_alloc(bytes + 1);
    if (!buf) {
        rc = kvant_fail(diag, KVANT_ENOMEM, "%.160s: no memory for its %zu bytes", path, bytes);
        goto out;
    }
    rc = read_full(path, fd, buf, bytes, &got, diag);
out:
    close(fd);
    if (rc < 0) {
        kvant_free(buf);
        return rc;
    }
    buf[got] = 0;
    *data = buf;
    *size = got;
    return KVANT_OK;
}
