/* projection_file.c: files of projections of qjl1_256: f32 as they are, or numpy's .npy (docs/formats/qjl1_256.md).
 *
 * Read a row at a time: this library allocates nothing, and 128 KiB are too much for a small stack. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/error.h"
#include "kvant/qjl.h"

enum { ROW_BYTES = KVANT_QJL_SKETCH * sizeof(float), NPY_TEXT = 1024, MOST = 4096 };

/* An open file: n matrices from byte `at` on. */
typedef struct matrices {
    const char *path;
    int fd, n;
    long long at, size;
} matrices;

static int bad_shape(const matrices *f, kvant_diag *diag)
{
    return kvant_fail(diag, KVANT_EFORMAT, "projection %s: %lld bytes, want %d for each matrix (f32 [128][256])",
                      f->path, f->size, KVANT_QJL_FILE_BYTES);
}

static int read_at(const matrices *f, long long at, void *to, size_t bytes, kvant_diag *diag)
{
    size_t done = 0;

    while (done < bytes) {
        const ssize_t n = pread(f->fd, (char *)to + done, bytes - done, (off_t)at + (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return kvant_fail(diag, KVANT_EIO, "projection %s: %s", f->path,
                              n < 0 ? strerror(errno) : "the file was truncated while it was read");
        done += (size_t)n;
    }
    return KVANT_OK;
}

/* The text behind 'name': in a .npy header, or NULL. */
static const char *npy_value(const char *header, const char *name)
{
    const char *p = strstr(header, name);

    p = p ? strchr(p, ':') : NULL;
    while (p && (*p == ':' || *p == ' '))
        p++;
    return p;
}

/* (128, 256) or (n, 128, 256): n, else 0. */
static long npy_count(const char *shape)
{
    long d[3] = { 0, 0, 0 };
    int n = 0;

    if (!shape || *shape++ != '(')
        return 0;
    while (n < 3 && *shape >= '0' && *shape <= '9') {
        char *end;
        d[n++] = strtol(shape, &end, 10);
        for (shape = end; *shape == ',' || *shape == ' ';)
            shape++;
    }
    if (*shape != ')' || n < 2 || d[n - 2] != KVANT_QJL_DIM || d[n - 1] != KVANT_QJL_SKETCH)
        return 0;
    return n == 2 ? 1 : d[0];
}

static int open_npy(matrices *f, const unsigned char *head, kvant_diag *diag)
{
    const int wide = head[6] > 1;
    const long long first = wide ? 12 : 10;
    const long long text = wide ? (head[8] | head[9] << 8 | (long long)head[10] << 16 | (long long)head[11] << 24)
                                : (head[8] | head[9] << 8);
    char header[NPY_TEXT + 1] = "";

    if (head[6] < 1 || head[6] > 3 || text < 1 || text > NPY_TEXT || first + text > f->size)
        return kvant_fail(diag, KVANT_EFORMAT, "projection %s: a .npy header of version %d and %lld bytes, want 1 to 3 "
                          "and at most %d", f->path, head[6], text, NPY_TEXT);
    KVANT_TRY(read_at(f, first, header, (size_t)text, diag));
    const char *type = npy_value(header, "'descr'"), *order = npy_value(header, "'fortran_order'");
    if (!type || strncmp(type, "'<f4'", 5) != 0)
        return kvant_fail(diag, KVANT_EFORMAT, "projection %s: its descr is %.12s, want '<f4'", f->path,
                          type ? type : "absent");
    if (!order || strncmp(order, "False", 5) != 0)
        return kvant_fail(diag, KVANT_EFORMAT, "projection %s: columns first, want fortran_order False", f->path);
    const char *shape = npy_value(header, "'shape'");
    const long n = npy_count(shape);
    if (n < 1 || n > MOST)
        return kvant_fail(diag, KVANT_EFORMAT, "projection %s: its shape is %.40s, want (128, 256) or (n, 128, 256)",
                          f->path, shape ? shape : "absent");
    f->n = (int)n;
    f->at = first + text;
    return f->size == f->at + n * (long long)KVANT_QJL_FILE_BYTES ? KVANT_OK : bad_shape(f, diag);
}

/* A regular file of matrices; a FIFO must not make us wait. */
static int open_file(const char *path, matrices *f, kvant_diag *diag)
{
    unsigned char head[12] = { 0 };
    struct stat st;

    *f = (matrices){ .path = path, .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) };
    if (f->fd < 0)
        return kvant_fail(diag, errno == ENOENT ? KVANT_ENOENT : KVANT_EIO, "projection %s: %s", path, strerror(errno));
    int code = fstat(f->fd, &st) == 0 && S_ISREG(st.st_mode)
                   ? KVANT_OK
                   : kvant_fail(diag, KVANT_EFORMAT, "projection %s: not a regular file", path);
    f->size = (long long)st.st_size;
    if (code == KVANT_OK && f->size < KVANT_QJL_FILE_BYTES)
        code = bad_shape(f, diag);
    if (code == KVANT_OK)
        code = read_at(f, 0, head, sizeof head, diag);
    if (code == KVANT_OK && memcmp(head, "\x93NUMPY", 6) == 0)
        code = open_npy(f, head, diag);
    else if (code == KVANT_OK && (f->size % KVANT_QJL_FILE_BYTES != 0 || f->size / KVANT_QJL_FILE_BYTES > MOST))
        code = bad_shape(f, diag);
    else if (code == KVANT_OK)
        f->n = (int)(f->size / KVANT_QJL_FILE_BYTES);
    if (code < 0)
        close(f->fd);
    return code;
}

static int read_row(const matrices *f, int which, int i, float *row, kvant_diag *diag)
{
    const long long matrix = f->at + (long long)which * KVANT_QJL_FILE_BYTES;

    return read_at(f, matrix + (long long)i * (long long)ROW_BYTES, row, ROW_BYTES, diag);
}

static int check(const matrices *f, int which, kvant_diag *diag)
{
    float row[KVANT_QJL_SKETCH];
    unsigned char used[KVANT_QJL_SKETCH] = { 0 };

    for (int i = 0; i < KVANT_QJL_DIM; i++) {
        KVANT_TRY(read_row(f, which, i, row, diag));
        for (int j = 0; j < KVANT_QJL_SKETCH; j++) {
            if (!isfinite(row[j]))
                return kvant_fail(diag, KVANT_EFORMAT, "projection %s: value %d of matrix %d is %g, want finite numbers",
                                  f->path, i * KVANT_QJL_SKETCH + j, which, (double)row[j]);
            used[j] |= row[j] != 0.0f;
        }
    }
    for (int j = 0; j < KVANT_QJL_SKETCH; j++)
        if (!used[j])
            return kvant_fail(diag, KVANT_EFORMAT, "projection %s: column %d of matrix %d is zero, want another value",
                              f->path, j, which);
    return KVANT_OK;
}

static int read_matrix(const matrices *f, int which, float *out, kvant_diag *diag)
{
    int code = check(f, which, diag);

    for (int i = 0; code == KVANT_OK && i < KVANT_QJL_DIM; i++)
        code = read_row(f, which, i, out + i * KVANT_QJL_SKETCH, diag);
    return code;
}

int kvant_qjl_projection_count(const char *path, int *n, kvant_diag *diag)
{
    matrices f;

    KVANT_TRY(open_file(path, &f, diag));
    *n = f.n;
    close(f.fd);
    return KVANT_OK;
}

int kvant_qjl_projection_read(const char *path, int i, float *out, kvant_diag *diag)
{
    matrices f;

    KVANT_TRY(open_file(path, &f, diag));
    const int code = i >= 0 && i < f.n
                         ? read_matrix(&f, i, out, diag)
                         : kvant_fail(diag, KVANT_EINVAL, "projection %s: matrix %d, it has %d", path, i, f.n);
    close(f.fd);
    return code;
}

int kvant_qjl_projection_load(const char *path, float *out, kvant_diag *diag)
{
    matrices f;

    KVANT_TRY(open_file(path, &f, diag));
    const int code = f.n == 1 ? read_matrix(&f, 0, out, diag)
                              : kvant_fail(diag, KVANT_EFORMAT, "projection %s: %d matrices, want one (%d bytes)", path,
                                           f.n, KVANT_QJL_FILE_BYTES);
    close(f.fd);
    return code;
}
