/* projection.c: the projection of qjl1_256: built from a seed, or read from a file.  Source: formats.md 6.1 item 1. */
#include "kvant/qjl.h"

#include <math.h>
#include <string.h>
#include "base/error.h"
#include "base/file.h"
#include "base/rng.h"

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

static int check(const float *pi, const char *path, kvant_diag *diag)
{
    for (int i = 0; i < KVANT_QJL_VALUES; i++)
        if (!isfinite(pi[i]))
            return kvant_fail(diag, KVANT_EFORMAT, "projection %s: value %d is %g, want a finite number", path, i,
                              (double)pi[i]);
    for (int j = 0; j < KVANT_QJL_SKETCH; j++) {
        int used = 0;
        for (int i = 0; i < KVANT_QJL_DIM; i++)
            used |= pi[i * KVANT_QJL_SKETCH + j] != 0.0f;
        if (!used)
            return kvant_fail(diag, KVANT_EFORMAT, "projection %s: column %d is zero, want a non-zero value", path, j);
    }
    return KVANT_OK;
}

int kvant_qjl_projection_load(const char *path, float *out, kvant_diag *diag)
{
    mapped_file file;
    int rc;
    KVANT_TRY(file_map(path, &file, diag));
    if (file.size != KVANT_QJL_FILE_BYTES)
        rc = kvant_fail(diag, KVANT_EFORMAT, "projection %s: %zu bytes, want %d (f32 [128][256])", path, file.size,
                        KVANT_QJL_FILE_BYTES);
    else
        rc = check((const float *)(const void *)file.data, path, diag);
    if (rc == KVANT_OK)
        memcpy(out, file.data, KVANT_QJL_FILE_BYTES);
    if (rc == KVANT_OK && file_poisoned(&file))
        rc = kvant_fail(diag, KVANT_EIO, "projection %s: the file was truncated while it was read", path);
    file_unmap(&file);
    return rc;
}
