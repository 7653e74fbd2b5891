/* projection.c: the projection of qjl1_256, from a seed or a file.  Source: docs/formats/qjl1_256.md. */
#include "kvant/qjl.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/error.h"
#include "base/rng.h"

enum { ROW_BYTES = KVANT_QJL_SKETCH * sizeof(float) };

/* (0, 1): the low bit is forced so that the logarithm is finite. */
static double unit(rng *r)
{
    return (double)(rng_u64(r) >> 11 | 1) * 0x1p-53;
}

void kvant_qjl_projection_build(uint64_t seed, float *out)
{
    rng r = { seed ^ 0xC0FFEE1234567890u };
    for (int i = 0; i < KVANT_QJL_VALUES; i += 2) {
        double u1 = unit(&r), u2 = unit(&r);
        double radius = sqrt(-2.0 * log(u1)), angle = 6.28318530717958647692 * u2;
        out[i] = (float)(radius * cos(angle));
        out[i + 1] = (float)(radius * sin(angle));
    }
}

/* A regular file of the right size, open for reading; a FIFO must not make us wait. */
static int open_file(const char *path, int *fd, kvant_diag *diag)
{
    struct stat st;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0)
        return kvant_fail(diag, errno == ENOENT ? KVANT_ENOENT : KVANT_EIO, "projection %s: %s", path, strerror(errno));
    int regular = fstat(*fd, &st) == 0 && S_ISREG(st.st_mode);
    if (regular && st.st_size == KVANT_QJL_FILE_BYTES)
        return KVANT_OK;
    close(*fd);
    if (!regular)
        return kvant_fail(diag, KVANT_EFORMAT, "projection %s: not a regular file", path);
    return kvant_fail(diag, KVANT_EFORMAT, "projection %s: %lld bytes, want %d (f32 [128][256])", path,
                      (long long)st.st_size, KVANT_QJL_FILE_BYTES);
}

/* Row i of the file, whole. */
static int read_row(int fd, const char *path, int i, float *row, kvant_diag *diag)
{
    size_t done = 0;
    while (done < ROW_BYTES) {
        ssize_t n = pread(fd, (char *)row + done, ROW_BYTES - done, (off_t)((size_t)i * ROW_BYTES + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return kvant_fail(diag, KVANT_EIO, "projection %s: %s", path,
                              n < 0 ? strerror(errno) : "the file was truncated while it was read");
        done += (size_t)n;
    }
    return KVANT_OK;
}

/* Reads the file a row at a time: this library allocates nothing, and 128 KiB are too much for a small stack. */
static int check(int fd, const char *path, kvant_diag *diag)
{
    float row[KVANT_QJL_SKETCH];
    unsigned char used[KVANT_QJL_SKETCH] = { 0 };
    for (int i = 0; i < KVANT_QJL_DIM; i++) {
        KVANT_TRY(read_row(fd, path, i, row, diag));
        for (int j = 0; j < KVANT_QJL_SKETCH; j++) {
            if (!isfinite(row[j]))
                return kvant_fail(diag, KVANT_EFORMAT, "projection %s: value %d is %g, want a finite number", path,
                                  i * KVANT_QJL_SKETCH + j, (double)row[j]);
            used[j] |= row[j] != 0.0f;
        }
    }
    for (int j = 0; j < KVANT_QJL_SKETCH; j++)
        if (!used[j])
            return kvant_fail(diag, KVANT_EFORMAT, "projection %s: column %d is zero, want a non-zero value", path, j);
    return KVANT_OK;
}

int kvant_qjl_projection_load(const char *path, float *out, kvant_diag *diag)
{
    int fd;
    KVANT_TRY(open_file(path, &fd, diag));
    int rc = check(fd, path, diag);
    for (int i = 0; rc == KVANT_OK && i < KVANT_QJL_DIM; i++)
        rc = read_row(fd, path, i, out + i * KVANT_QJL_SKETCH, diag);
    close(fd);
    return rc;
}
