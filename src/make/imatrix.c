/* imatrix.c: see imatrix.h.  Owns the layout of the file; the sums are made in make/collect.c. */
#include "make/imatrix.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "make/gguf/gguf_keys.h"
#include "make/gguf/gguf_write.h"
#include "model/gguf/gguf.h"

struct imatrix {
    gguf *g;
    uint32_t chunks;
};

enum { F32 = 0, ALIGNMENT = 32 };

/* ---- reading ---- */

int imatrix_open(const char *path, imatrix **out, kvant_diag *diag)
{
    imatrix *im = kvant_calloc(1, sizeof *im);
    gguf_str type = { "", 0 };
    int rc = im ? gguf_open(path, &im->g, diag) : kvant_fail(diag, KVANT_ENOMEM, "%.120s: out of memory", path);

    if (rc == KVANT_OK)
        rc = gguf_string(im->g, "general.type", 1, &type, diag);
    if (rc == KVANT_OK && (type.n != 7 || memcmp(type.s, "imatrix", 7) != 0))
        rc = kvant_fail(diag, KVANT_EFORMAT, "%.120s: general.type is not \"imatrix\"", path);
    if (rc == KVANT_OK)
        rc = gguf_u32(im->g, "imatrix.chunk_count", 1, &im->chunks, diag);
    if (rc < 0) {
        imatrix_close(im);
        return rc;
    }
    *out = im;
    return KVANT_OK;
}

void imatrix_close(imatrix *im)
{
    if (im)
        gguf_close(im->g);
    kvant_free(im);
}

int imatrix_entries(const imatrix *im)
{
    return gguf_tensor_count(im->g) / 2;
}

uint32_t imatrix_chunks(const imatrix *im)
{
    return im->chunks;
}

void imatrix_dataset(const imatrix *im, char *buf, int cap)
{
    gguf_iter it;
    gguf_str s = { "", 0 };
    int n = 0;

    if (gguf_strings(im->g, "imatrix.datasets", 0, &it, &n, NULL) == KVANT_OK && n > 0)
        gguf_next(&it, &s);
    snprintf(buf, (size_t)cap, "%.*s", (int)(s.n < 256 ? s.n : 256), s.s);
}

static const gguf_tensor *find(const imatrix *im, const char *tensor, const char *part)
{
    char name[96];

    snprintf(name, sizeof name, "%s%s", tensor, part);
    return gguf_tensor_find(im->g, name);
}

int imatrix_mean(const imatrix *im, const char *tensor, int64_t n_in, int64_t n, int64_t i, float *mean,
                 kvant_diag *diag)
{
    const gguf_tensor *sum = find(im, tensor, ".in_sum2"), *rows = find(im, tensor, ".counts");
    float count;

    if (!sum || !rows)
        return 0;
    if (sum->type != F32 || rows->type != F32 || sum->ne[0] != n_in || sum->ne[1] != n || rows->ne[0] != 1 ||
        rows->ne[1] != n || sum->ne[2] != 1 || rows->ne[2] != 1)
        return kvant_fail(diag, KVANT_EFORMAT,
                          "%s: the importance matrix has %lld columns of %lld matrices, %lld of %lld "
                          "wanted",
                          tensor, (long long)sum->ne[0], (long long)sum->ne[1], (long long)n_in, (long long)n);
    memcpy(&count, rows->data + (size_t)i * sizeof count, sizeof count);
    memcpy(mean, sum->data + (size_t)(i * n_in) * sizeof count, (size_t)n_in * sizeof count);
    if (!(count >= 0.0f) || isinf(count))
        return kvant_fail(diag, KVANT_EFORMAT, "%s.counts: is %g, a count wanted", tensor, (double)count);
    for (int64_t j = 0; j < n_in; j++) {
        if (!(mean[j] >= 0.0f) || isinf(mean[j]))
            return kvant_fail(diag, KVANT_EFORMAT, "%s.in_sum2: value %lld is %g, a sum of squares wanted", tensor,
                              (long long)j, (double)mean[j]);
        mean[j] = count > 0.0f ? mean[j] / count : 1.0f;
    }
    return count > 0.0f;
}

/* ---- writing ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const imatrix_entry *)a)->name, ((const imatrix_entry *)b)->name);
}

static void put_record(gguf_out *o, const imatrix_entry *e, const char *part, int64_t ne0, uint64_t *offset)
{
    char name[96];

    gguf_out_str(o, (gguf_str){ name, (size_t)snprintf(name, sizeof name, "%s%s", e->name, part) });
    gguf_out_u32(o, 2);
    gguf_out_u64(o, (uint64_t)ne0);
    gguf_out_u64(o, (uint64_t)e->n);
    gguf_out_u32(o, F32);
    gguf_out_u64(o, *offset);
    *offset += ((uint64_t)(ne0 * e->n) * sizeof(float) + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1);
}

static void put_values(gguf_out *o, const imatrix_entry *e)
{
    for (int64_t i = 0; i < e->n_in * e->n; i++) {
        const float v = (float)e->sum2[i];
        gguf_out_put(o, &v, sizeof v);
    }
    gguf_out_pad(o, ALIGNMENT);
    for (int i = 0; i < e->n; i++) {
        const float v = (float)e->rows[i];
        gguf_out_put(o, &v, sizeof v);
    }
    gguf_out_pad(o, ALIGNMENT);
}

static int put_all(gguf_out *o, const gguf_keys *k, const imatrix_entry *list, int n, kvant_diag *diag)
{
    uint64_t offset = 0;

    gguf_out_put(o, "GGUF", 4);
    gguf_out_u32(o, 3);
    gguf_out_u64(o, 2 * (uint64_t)n);
    gguf_out_u64(o, k->n);
    gguf_out_put(o, k->bytes.s, k->bytes.n);
    for (int i = 0; i < n; i++) {
        put_record(o, &list[i], ".in_sum2", list[i].n_in, &offset);
        put_record(o, &list[i], ".counts", 1, &offset);
    }
    gguf_out_pad(o, ALIGNMENT);
    for (int i = 0; i < n; i++)
        put_values(o, &list[i]);
    return gguf_out_commit(o, diag);
}

int imatrix_save(const char *path, imatrix_entry *list, int n, const char *dataset, uint32_t chunks,
                 uint32_t chunk_size, kvant_diag *diag)
{
    gguf_keys k = { .arch = "" };
    gguf_out o;

    qsort(list, (size_t)n, sizeof *list, by_name);
    gguf_keys_str(&k, "general.type", "imatrix", 7);
    gguf_keys_array(&k, "imatrix.datasets", GGUF_STRING, 1);
    gguf_keys_array_str(&k, dataset, strlen(dataset));
    gguf_keys_u32(&k, "imatrix.chunk_count", chunks);
    gguf_keys_u32(&k, "imatrix.chunk_size", chunk_size);
    int rc = k.bytes.error ? kvant_fail(diag, KVANT_ENOMEM, "imatrix: out of memory") : gguf_out_open(&o, path, diag);
    if (rc == KVANT_OK) {
        rc = put_all(&o, &k, list, n, diag);
        gguf_out_abort(&o);
    }
    gguf_keys_free(&k);
    return rc;
}
