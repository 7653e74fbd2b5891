/* registry.c: lookup of formats and the choice of their kernels.  Everything declared in kvant/format.h.
 * It knows no format by name: formats.def and variants.inc are the lists. */
#include "formats/format.h"

#include <pthread.h>
#include <stdio.h>
#include "base/cpu.h"
#include "base/error.h"

static const kvant_format *const formats[] = {
#define KVANT_FORMAT(name) &kvant_format_##name,
#include "formats/formats.def"
#undef KVANT_FORMAT
};

enum { FORMATS = (int)(sizeof formats / sizeof formats[0]) };

typedef struct format_variant {
    const kvant_format *format;
    const char *isa;
    uint32_t mask;
    const kvant_format_kernels *kernels; /* as written: NULL inherits */
} format_variant;

/* Ends with an empty line so that the list is never empty (a processor family without variants). */
static const format_variant variants[] = {
#define KVANT_FORMAT_VARIANT(format, isa, mask)                                                                        \
    { &kvant_format_##format, #isa, (mask), &kvant_##format##_kernels_##isa },
#include "cards/variants.inc"
#undef KVANT_FORMAT_VARIANT
    { NULL, NULL, 0, NULL },
};

enum { VARIANTS = (int)(sizeof variants / sizeof variants[0]) - 1, MAX_RUNGS = 8 };

/* One usable table: every pointer set, and everything the CPU must have to run any of them. */
typedef struct rung {
    const char *isa;
    uint32_t mask;
    kvant_format_kernels kernels;
} rung;

/* Constant after ladders_build, which runs once; readers need no lock. */
static struct ladder {
    int n;
    rung rungs[MAX_RUNGS];
} ladders[FORMATS];

static pthread_once_t ladders_once = PTHREAD_ONCE_INIT;

static void inherit(kvant_format_kernels *k, const kvant_format_kernels *above)
{
    if (above->encode)
        k->encode = above->encode;
    if (above->decode_acc)
        k->decode_acc = above->decode_acc;
    if (above->prep_q)
        k->prep_q = above->prep_q;
    if (above->score)
        k->score = above->score;
    if (above->axpy)
        k->axpy = above->axpy;
    if (above->finish_out)
        k->finish_out = above->finish_out;
    if (above->prep_q8)
        k->prep_q8 = above->prep_q8;
    if (above->score_q8)
        k->score_q8 = above->score_q8;
    if (above->axpy_q8)
        k->axpy_q8 = above->axpy_q8;
    if (above->encode_page)
        k->encode_page = above->encode_page;
    if (above->decode_page)
        k->decode_page = above->decode_page;
    if (above->score_page)
        k->score_page = above->score_page;
    if (above->axpy_page)
        k->axpy_page = above->axpy_page;
    if (above->score_page_q8)
        k->score_page_q8 = above->score_page_q8;
    if (above->axpy_page_q8)
        k->axpy_page_q8 = above->axpy_page_q8;
    if (above->encode) /* the two agree to the bit: rows never come from another rung than encode */
        k->encode_rows = above->encode_rows;
}

static void ladders_build(void)
{
    for (int f = 0; f < FORMATS; f++) {
        struct ladder *l = &ladders[f];
        l->rungs[0] = (rung){ "ref", 0, formats[f]->ref };
        l->n = 1;
        for (int v = 0; v < VARIANTS && l->n < MAX_RUNGS; v++) {
            if (variants[v].format != formats[f])
                continue;
            rung r = l->rungs[l->n - 1];
            r.isa = variants[v].isa;
            r.mask |= variants[v].mask;
            inherit(&r.kernels, variants[v].kernels);
            l->rungs[l->n++] = r;
        }
    }
}

static const struct ladder *ladder_of(const kvant_format *f)
{
    pthread_once(&ladders_once, ladders_build);
    for (int i = 0; i < FORMATS; i++)
        if (formats[i] == f)
            return &ladders[i];
    return NULL; /* a caller's own format: it has its reference only */
}

int kvant_format_count(void)
{
    return FORMATS;
}

const kvant_format *kvant_format_at(int i)
{
    return i >= 0 && i < FORMATS ? formats[i] : NULL;
}

/* True if `name` is one of the words of `list`. */
static int has_word(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = list; n && (p = strstr(p, name)) != NULL; p += n)
        if ((p == list || p[-1] == ' ') && (p[n] == 0 || p[n] == ' '))
            return 1;
    return 0;
}

const kvant_format *kvant_format_find(const char *name)
{
    if (!name)
        return NULL;
    for (int i = 0; i < FORMATS; i++)
        if (strcmp(formats[i]->name, name) == 0)
            return formats[i];
    if (strchr(name, ' '))
        return NULL;
    for (int i = 0; i < FORMATS; i++)
        if (has_word(formats[i]->aliases, name))
            return formats[i];
    return NULL;
}

int kvant_format_parse(const char *name, const kvant_format **out, kvant_diag *diag)
{
    const kvant_format *f = kvant_format_find(name);
    if (f) {
        *out = f;
        return KVANT_OK;
    }
    char names[200] = "";
    size_t used = 0;
    for (int i = 0; i < FORMATS; i++) {
        int n = snprintf(names + used, sizeof names - used, " %s", formats[i]->name);
        if (n < 0 || (size_t)n >= sizeof names - used)
            break;
        used += (size_t)n;
    }
    return kvant_fail(diag, KVANT_EINVAL, "cache format '%.24s' is unknown; known:%s", name ? name : "(null)", names);
}

int kvant_format_padded(const kvant_format *f, int d)
{
    return (d + f->group - 1) / f->group * f->group;
}

size_t kvant_format_row_bytes(const kvant_format *f, int d)
{
    return (size_t)(kvant_format_padded(f, d) / f->group) * (size_t)f->group_bytes;
}

int kvant_format_sdim(const kvant_format *f, int d)
{
    return kvant_format_padded(f, d) / f->group * f->group_sdim;
}

/* A head of at most 192 bytes, then at most 2 bytes per value; then, for what the mean of a page is multiplied with,
 * the query as it came. */
size_t kvant_format_q8_bytes(const kvant_format *f, int d)
{
    const size_t blocks = (size_t)((kvant_format_sdim(f, d) + 31) / 32);

    return 192 + blocks * (f->flags & KVANT_FORMAT_PAGE ? 64 + 128 : 64);
}

/* A head size is whole groups, or 64 in a 128-group, whose padding is counted in bits per value. */
int kvant_format_check(const kvant_format *f, int d, kvant_diag *diag)
{
    const int most = f->group == 1 ? KVANT_MAX_PLAIN_HEAD_DIM : KVANT_MAX_HEAD_DIM;

    if (d < 1 || d > most)
        return kvant_fail(diag, KVANT_EINVAL, "%s: head_dim %d, want 1 to %d", f->name, d, most);
    if (d % f->group == 0 || (f->group == 128 && d == 64))
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EINVAL, "%s: head_dim %d, want a multiple of %d%s", f->name, d, f->group,
                      f->group == 128 ? ", or 64" : "");
}

int kvant_format_check_param(const kvant_format *f, const void *param, kvant_diag *diag)
{
    if (param || !(f->flags & KVANT_FORMAT_PARAM))
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EINVAL, "%s: found no parameter (NULL), want its projection (kvant/qjl.h)", f->name);
}

const kvant_format_kernels *kvant_format_best(const kvant_format *f)
{
    const struct ladder *l = ladder_of(f);
    if (!l)
        return &f->ref;
    uint32_t have = kvant_cpu_features();
    int i = l->n - 1;
    while (i > 0 && (l->rungs[i].mask & ~have))
        i--;
    return &l->rungs[i].kernels;
}

const kvant_format_kernels *kvant_format_variant(const kvant_format *f, int i, const char **name, int *usable)
{
    const struct ladder *l = ladder_of(f);
    if (i < 0 || i >= (l ? l->n : 1))
        return NULL;
    if (name)
        *name = l ? l->rungs[i].isa : "ref";
    if (usable)
        *usable = !l || !(l->rungs[i].mask & ~kvant_cpu_features());
    return l ? &l->rungs[i].kernels : &f->ref;
}

void kvant_row_decode(const kvant_format *f, const void *param, const uint8_t *row, float *x, int d)
{
    float acc[FORMAT_MAX_SDIM];
    f->ref.decode_acc(param, row, kvant_format_row_bytes(f, d), 1, acc, d);
    f->ref.finish_out(param, acc, x, d);
}

void kvant_page_decode_acc(const kvant_format *f, const void *param, const uint8_t *page, int r, float *acc, int d)
{
    const size_t row = kvant_format_row_bytes(f, d);

    if (f->flags & KVANT_FORMAT_PAGE)
        f->ref.decode_page(param, page, r, 1, acc, d);
    else
        f->ref.decode_acc(param, page + (size_t)r * row, row, 1, acc, d);
}
