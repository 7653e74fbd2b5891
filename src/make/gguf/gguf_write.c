/* gguf_write.c: see gguf_write.h.  Owns the temporary file; knows nothing about what a model contains. */
#include "make/gguf/gguf_write.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/mem.h"

/* A new file beside path: PATH.N.tmp, with the permissions that the user's umask gives. */
static int create_temp(gguf_out *o, kvant_diag *diag)
{
    const size_t cap = strlen(o->path) + 32;

    o->temp = kvant_alloc(cap);
    if (!o->temp)
        return kvant_fail(diag, KVANT_ENOMEM, "%.160s: no memory for a path", o->path);
    for (int i = 0; i < 100; i++) {
        snprintf(o->temp, cap, "%s.%ld.%d.tmp", o->path, (long)getpid(), i);
        const int fd = open(o->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0) {
            o->file = fdopen(fd, "wb");
            if (o->file)
                return KVANT_OK;
            close(fd);
            unlink(o->temp);
            break;
        }
        if (errno != EEXIST)
            break;
    }
    const int e = errno;
    kvant_fail(diag, KVANT_EIO, "%.140s: cannot create a file beside it: %s", o->path, strerror(e));
    kvant_free(o->temp);
    o->temp = NULL;
    return KVANT_EIO;
}

int gguf_out_open(gguf_out *o, const char *path, kvant_diag *diag)
{
    struct stat st;

    memset(o, 0, sizeof *o);
    if (!path || !*path)
        return kvant_fail(diag, KVANT_EINVAL, "output file: empty name, a path wanted");
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return kvant_fail(diag, KVANT_EINVAL, "%.160s: exists and is not a regular file", path);
    o->path = kvant_strdup(path);
    if (!o->path)
        return kvant_fail(diag, KVANT_ENOMEM, "%.160s: no memory for its name", path);
    const int rc = create_temp(o, diag);
    if (rc < 0)
        gguf_out_abort(o);
    return rc;
}

void gguf_out_put(gguf_out *o, const void *p, size_t n)
{
    if (o->error || n == 0)
        return;
    if (fwrite(p, 1, n, o->file) != n)
        o->error = errno ? errno : EIO;
    o->at += n;
}

void gguf_out_u32(gguf_out *o, uint32_t v)
{
    gguf_out_put(o, &v, sizeof v);
}

void gguf_out_u64(gguf_out *o, uint64_t v)
{
    gguf_out_put(o, &v, sizeof v);
}

void gguf_out_str(gguf_out *o, gguf_str s)
{
    gguf_out_u64(o, s.n);
    gguf_out_put(o, s.s, s.n);
}

void gguf_out_kv(gguf_out *o, const gguf_kv *kv)
{
    gguf_out_str(o, kv->key);
    gguf_out_u32(o, (uint32_t)kv->type);
    if (kv->type == GGUF_ARRAY) {
        gguf_out_u32(o, (uint32_t)kv->elem);
        gguf_out_u64(o, kv->count);
    }
    gguf_out_put(o, kv->value, kv->bytes);
}

void gguf_out_kv_u32(gguf_out *o, const char *key, uint32_t v)
{
    gguf_out_str(o, (gguf_str){ key, strlen(key) });
    gguf_out_u32(o, GGUF_U32);
    gguf_out_u32(o, v);
}

void gguf_out_pad(gguf_out *o, uint64_t alignment)
{
    static const uint8_t zero[64];

    for (uint64_t left = (0 - o->at) & (alignment - 1); left > 0;) {
        const size_t n = left < sizeof zero ? (size_t)left : sizeof zero;
        gguf_out_put(o, zero, n);
        left -= n;
    }
}

int gguf_out_check(const gguf_out *o, kvant_diag *diag)
{
    if (!o->error)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EIO, "%.140s: cannot write after %llu bytes: %s", o->path, (unsigned long long)o->at,
                      strerror(o->error));
}

/* The rename is on disk only when its directory is; a file system that cannot sync directories is not an error. */
static void sync_directory(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *dir = slash ? kvant_strndup(path, slash == path ? 1 : (size_t)(slash - path)) : kvant_strdup(".");

    if (!dir)
        return;
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    kvant_free(dir);
}

int gguf_out_commit(gguf_out *o, kvant_diag *diag)
{
    KVANT_TRY(gguf_out_check(o, diag));
    if (fflush(o->file) != 0 || fsync(fileno(o->file)) != 0)
        o->error = errno;
    if (fclose(o->file) != 0 && !o->error)
        o->error = errno;
    o->file = NULL;
    if (!o->error && rename(o->temp, o->path) != 0)
        o->error = errno;
    KVANT_TRY(gguf_out_check(o, diag));
    kvant_free(o->temp);
    o->temp = NULL;
    sync_directory(o->path);
    return KVANT_OK;
}

void gguf_out_abort(gguf_out *o)
{
    if (o->file)
        fclose(o->file);
    if (o->temp)
        unlink(o->temp);
    kvant_free(o->temp);
    kvant_free(o->path);
    memset(o, 0, sizeof *o);
}
