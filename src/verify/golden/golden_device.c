/* golden_device.c: a fixture on a device: its rows as pages of a cache, through attn_score or attn, by kvant/device.h.
 *
 * A fixture gives the query as its kernel takes it; an op takes a real one.  Sketches: the heads' queries are unit
 * vectors, and the projection has the sketches as its rows, so that the device's own product gives them. */
#include <string.h>
#include "base/mem.h"
#include "kvant/device.h"
#include "kvant/qjl.h"
#include "verify/golden/golden_run.h"

enum { ALIGN = 256, PARTS = 10 };

/* Buffers in one allocation of the device, and their copy in host memory. */
typedef struct image {
    unsigned char *host;
    void *device;
    size_t bytes;
} image;

enum part { Q0, POS0, PROMPT, TABLE, TAILS, QUERY, OUT, K_PAGES, V_PAGES };

typedef struct scene {
    const golden_task *t;
    image im;
    size_t at[PARTS], size[PARTS];
    int pages;
    void *param;
} scene;

static size_t page_bytes(const golden_task *t, const kvant_format *f)
{
    return f ? (size_t)t->kv_heads * KVANT_PAGE * kvant_format_row_bytes(f, t->d) : 0;
}

static size_t out_values(const golden_task *t)
{
    return (size_t)t->heads * (size_t)(t->v ? t->d : t->n);
}

static int image_open(kvant_device *dev, scene *s, kvant_diag *diag)
{
    const golden_task *t = s->t;
    const size_t table = (size_t)s->pages * sizeof(int32_t);
    const size_t size[PARTS] = { [Q0] = 2 * sizeof(int32_t),
                                 [POS0] = sizeof(int32_t),
                                 [PROMPT] = sizeof(int32_t),
                                 [TABLE] = table,
                                 [TAILS] = table,
                                 [QUERY] = (size_t)(t->heads * t->d) * sizeof(float),
                                 [OUT] = out_values(t) * sizeof(float),
                                 [K_PAGES] = page_bytes(t, t->k) * (size_t)s->pages,
                                 [V_PAGES] = page_bytes(t, t->v) * (size_t)s->pages };
    for (int i = 0; i < PARTS; i++) {
        s->at[i] = s->im.bytes;
        s->size[i] = size[i];
        s->im.bytes += (size[i] + ALIGN - 1) / ALIGN * ALIGN;
    }
    s->im.host = kvant_alloc(s->im.bytes);
    if (!s->im.host)
        return kvant_fail(diag, KVANT_ENOMEM, "fixture: %zu bytes", s->im.bytes);
    memset(s->im.host, 0xFF, s->im.bytes);
    return kvant_device_alloc(dev, s->im.bytes, &s->im.device, diag);
}

static void *host_part(scene *s, enum part p)
{
    return s->im.host + s->at[p];
}

static void *device_part(const scene *s, enum part p)
{
    return s->size[p] ? (unsigned char *)s->im.device + s->at[p] : NULL;
}

/* Row i of a head is row i % 64 of logical page i / 64; pages lie in the reverse order. */
static void put_rows(scene *s, enum part p, const kvant_format *f, const uint8_t *rows)
{
    const golden_task *t = s->t;
    const size_t row = kvant_format_row_bytes(f, t->d), page = page_bytes(t, f);
    unsigned char *to = host_part(s, p);

    for (int h = 0; h < t->kv_heads; h++)
        for (int i = 0; i < t->n; i++)
            memcpy(to + (size_t)(s->pages - 1 - i / KVANT_PAGE) * page +
                       (size_t)(h * KVANT_PAGE + i % KVANT_PAGE) * row,
                   rows + ((size_t)h * (size_t)t->n + (size_t)i) * row, row);
}

/* The queries of the heads; a format with a parameter gets it made here. */
static int put_query(kvant_device *dev, scene *s, kvant_diag *diag)
{
    const golden_task *t = s->t;
    float *q = host_part(s, QUERY);

    if (!(t->k->flags & KVANT_FORMAT_PARAM)) {
        memcpy(q, t->query, s->size[QUERY]);
        return KVANT_OK;
    }
    float *pi = kvant_calloc(KVANT_QJL_VALUES, sizeof *pi);
    if (!pi)
        return kvant_fail(diag, KVANT_ENOMEM, "fixture: a projection");
    memset(q, 0, s->size[QUERY]);
    for (int h = 0; h < t->heads; h++)
        q[h * t->d + h] = 1.0f;
    memcpy(pi, t->query, (size_t)(t->heads * KVANT_QJL_SKETCH) * sizeof *pi);
    const int code = kvant_device_param_load(dev, pi, KVANT_QJL_VALUES * sizeof *pi, &s->param, diag);
    kvant_free(pi);
    return code;
}

static void put_seqs(scene *s)
{
    const int32_t q0[2] = { 0, 1 }, pos0 = s->t->visible - 1, prompt = 0;
    int32_t *table = host_part(s, TABLE);

    memcpy(host_part(s, Q0), q0, sizeof q0);
    memcpy(host_part(s, POS0), &pos0, sizeof pos0);
    memcpy(host_part(s, PROMPT), &prompt, sizeof prompt);
    for (int i = 0; i < s->pages; i++)
        table[i] = s->pages - 1 - i; /* the tail table is all -1 */
}

static kvant_kv_side side_of(const scene *s, enum part p, const kvant_format *f)
{
    const size_t row = kvant_format_row_bytes(f, s->t->d);

    return (kvant_kv_side){ .fmt = f,
                            .param = f->flags & KVANT_FORMAT_PARAM ? s->param : NULL,
                            .pages = device_part(s, p),
                            .row_bytes = row,
                            .head_bytes = row * KVANT_PAGE,
                            .page_bytes = page_bytes(s->t, f) };
}

static int submit(kvant_device *dev, int id, const void *args, kvant_diag *diag)
{
    const kvant_op op = { id, args };

    KVANT_TRY(kvant_device_supports(dev, &op, diag));
    KVANT_TRY(kvant_device_submit(dev, &op, 1, 0, diag));
    return kvant_device_sync(dev, diag);
}

static int run_op(kvant_device *dev, const scene *s, kvant_diag *diag)
{
    const golden_task *t = s->t;
    const kvant_seqs seqs = { .n_seqs = 1,
                              .n_tokens = 1,
                              .n_few = 1,
                              .few_rows = 1,
                              .q0 = device_part(s, Q0),
                              .pos0 = device_part(s, POS0),
                              .prompt = device_part(s, PROMPT),
                              .table = device_part(s, TABLE),
                              .tail_table = device_part(s, TAILS),
                              .table_stride = s->pages };
    if (!t->v) {
        const kvant_attn_score_args a = { .seqs = seqs,
                                          .k = side_of(s, K_PAGES, t->k),
                                          .q = device_part(s, QUERY),
                                          .s = device_part(s, OUT),
                                          .ldq = t->heads * t->d,
                                          .gq = t->d,
                                          .lds = t->n,
                                          .h = t->heads,
                                          .h_kv = t->kv_heads,
                                          .d_k = t->d,
                                          .scale = t->scale };
        return submit(dev, KVANT_OP_ATTN_SCORE, &a, diag);
    }
    const kvant_attn_args a = { .seqs = seqs,
                                .k = side_of(s, K_PAGES, t->k),
                                .v = side_of(s, V_PAGES, t->v),
                                .q = device_part(s, QUERY),
                                .out = device_part(s, OUT),
                                .ldq = t->heads * t->d,
                                .gq = t->d,
                                .ldo = t->heads * t->d,
                                .h = t->heads,
                                .h_kv = t->kv_heads,
                                .d_k = t->d,
                                .d_v = t->d,
                                .scale = t->scale,
                                .compute = KVANT_COMPUTE_F32,
                                .max_pos = t->visible - 1 };
    return submit(dev, KVANT_OP_ATTN, &a, diag);
}

static int run_scene(kvant_device *dev, scene *s, kvant_diag *diag)
{
    const golden_task *t = s->t;

    KVANT_TRY(image_open(dev, s, diag));
    put_seqs(s);
    KVANT_TRY(put_query(dev, s, diag));
    put_rows(s, K_PAGES, t->k, t->k_rows);
    if (t->v)
        put_rows(s, V_PAGES, t->v, t->v_rows);
    KVANT_TRY(kvant_device_copy_in(dev, s->im.device, s->im.host, s->im.bytes, diag));
    KVANT_TRY(run_op(dev, s, diag));
    return kvant_device_copy_out(dev, t->out, device_part(s, OUT), s->size[OUT], diag);
}

int golden_device_run(kvant_device *dev, const golden_task *t, kvant_diag *diag)
{
    scene s = { .t = t, .pages = (t->n + KVANT_PAGE - 1) / KVANT_PAGE };

    if (t->k->flags & KVANT_FORMAT_PARAM && t->heads > KVANT_QJL_DIM)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "fixture: sketches of %d heads, at most %d", t->heads,
                          KVANT_QJL_DIM);
    const int code = run_scene(dev, &s, diag);
    if (s.param)
        kvant_device_free(dev, s.param);
    if (s.im.device)
        kvant_device_free(dev, s.im.device);
    kvant_free(s.im.host);
    return code;
}
