/* check.c: see check.h. */
#include "support/check.h"

#include <stdint.h>
#include <unistd.h>
#include "base/rng.h"

_Atomic int check_passed, check_failed;

int check_end(const char *program)
{
    printf("%s: %d passed, %d failed\n", program, check_passed, check_failed);
    return check_failed ? 1 : 0;
}

double check_nmse(const float *a, const float *b, size_t n)
{
    double num = 0, den = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)a[i] - b[i];
        num += d * d;
        den += (double)b[i] * b[i];
    }
    return den > 0 ? num / den : num;
}

void check_fill(float *x, size_t n, float lo, float hi, unsigned long long seed)
{
    rng r = { seed };
    for (size_t i = 0; i < n; i++)
        x[i] = lo + (hi - lo) * (float)rng_unit(&r);
}

void check_fill_normal(float *x, size_t n, unsigned long long seed)
{
    rng r = { seed };
    for (size_t i = 0; i < n; i++)
        x[i] = rng_normal(&r);
}

enum { GUARD = 256 };
typedef struct guard_head {
    unsigned char *block;
    size_t n, misalign;
} guard_head;
static guard_head guards[256];

#if defined(KVANT_SANITIZE_ADDRESS)
static const size_t GUARD_BYTES = 0;       /* AddressSanitizer sees over-reads only outside of the heap block */
#else
static const size_t GUARD_BYTES = GUARD;
#endif

void *check_guarded(size_t n, size_t misalign)
{
    for (int i = 0; i < 256; i++) {
        if (guards[i].block)
            continue;
        size_t lead = GUARD_BYTES + misalign;
        unsigned char *b = malloc(lead + n + GUARD_BYTES + (n == 0));
        memset(b, 0xFF, lead + n + GUARD_BYTES);
        guards[i] = (guard_head){ b, n, lead };
        return b + lead;
    }
    abort();
}

static guard_head *guard_find(void *p)
{
    for (int i = 0; i < 256; i++)
        if (guards[i].block && guards[i].block + guards[i].misalign == (unsigned char *)p)
            return &guards[i];
    abort();
}

int check_guard_ok(void *p)
{
    guard_head *g = guard_find(p);
    for (size_t i = 0; i < g->misalign; i++)
        if (g->block[i] != 0xFF)
            return 0;
    for (size_t i = 0; i < GUARD_BYTES; i++)
        if (g->block[g->misalign + g->n + i] != 0xFF)
            return 0;
    return 1;
}

void check_guard_free(void *p)
{
    guard_head *g = guard_find(p);
    free(g->block);
    g->block = NULL;
}

const char *check_model_path(const char *name, char *buf, size_t cap)
{
    const char *dir = getenv("KVANT_MODELS");
    snprintf(buf, cap, "%s/%s", dir ? dir : "../shared/models", name);
    if (access(buf, R_OK) == 0)
        return buf;
    printf("SKIP: %s is absent (set KVANT_MODELS)\n", buf);
    return NULL;
}
