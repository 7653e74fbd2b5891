/* vbank.c: values and rows of weights that many cases want, made once in a process.
 *
 * Cases differ in shapes and devices but take their values from few seeds, and their weights from one: what a case has
 * of a seed or type is the beginning of what a larger case has.  Making them anew for every case took half of
 * check_variants.  Every caller gets a copy of its own, whose end an address sanitizer sees. */
#include <pthread.h>
#include <string.h>
#include "base/mem.h"
#include "base/rng.h"
#include "formats/weights/wtype_sample.h"
#include "verify/vcase.h"

enum { FEWEST = 2048, WEIGHT_SEED = 17 }; /* fewer are made as fast as found */

/* n values of a seed, or of a type rows that hold such values; t: NULL for values. */
typedef struct kept_bytes {
    const kvant_wtype *t;
    uint64_t seed;
    size_t n;
    void *data;
    struct kept_bytes *next;
} kept_bytes;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static kept_bytes *list;

static void make_values(float *x, size_t n, uint64_t seed)
{
    rng r = { seed };

    for (size_t i = 0; i < n; i++)
        x[i] = rng_normal(&r);
}

/* ---- under the lock; NULL: no memory ---- */

static kept_bytes *entry_of(const kvant_wtype *t, uint64_t seed)
{
    kept_bytes *k = list;

    while (k && (k->t != t || k->seed != seed))
        k = k->next;
    if (!k && (k = kvant_calloc(1, sizeof *k)) != NULL) {
        *k = (kept_bytes){ .t = t, .seed = seed, .next = list };
        list = k;
    }
    return k;
}

static const void *kept_of(const kvant_wtype *t, uint64_t seed, size_t n);

static int make(void *to, const kvant_wtype *t, uint64_t seed, size_t n)
{
    const float *x;

    if (!t)
        make_values(to, n, seed);
    else if ((x = kept_of(NULL, seed, n)) != NULL)
        kvant_wtype_sample(t, x, to, (int64_t)n);
    else
        return 0;
    return 1;
}

static size_t bytes_of(const kvant_wtype *t, size_t n)
{
    return t ? n / (size_t)t->block * (size_t)t->bytes : n * sizeof(float);
}

/* At least n of them. */
static const void *kept_of(const kvant_wtype *t, uint64_t seed, size_t n)
{
    kept_bytes *k = entry_of(t, seed);

    if (!k || k->n >= n)
        return k ? k->data : NULL;
    void *data = kvant_alloc(bytes_of(t, n));
    if (!data || !make(data, t, seed, n)) {
        kvant_free(data);
        return NULL;
    }
    kvant_free(k->data);
    k->data = data;
    k->n = n;
    return data;
}

static int copy_kept(void *to, const kvant_wtype *t, uint64_t seed, size_t n)
{
    pthread_mutex_lock(&lock);
    const void *from = kept_of(t, seed, n);
    if (from)
        memcpy(to, from, bytes_of(t, n));
    pthread_mutex_unlock(&lock);
    return from != NULL;
}

/* ---- for cases ---- */

void vcase_fill(float *x, size_t n, uint64_t seed)
{
    if (n < FEWEST || !copy_kept(x, NULL, seed, n))
        make_values(x, n, seed);
}

int vcase_weights(void *to, const kvant_wtype *t, size_t n)
{
    return copy_kept(to, t, WEIGHT_SEED, n);
}
