/* bench_device_rows.c: the cases of bench_device.def on rows: products, convolutions, norms. */
#include <stdio.h>
#include "base/mem.h"
#include "base/rng.h"
#include "cli/bench/bench_device.h"
#include "formats/weights/wtype_sample.h"
#include "model/synthetic.h"

void case_matmul(room *r);
void case_matmul_id(room *r);
void case_conv(room *r);
void case_norms(room *r);

/* ---- products ---- */

/* A weight of sampled blocks, and the host rows that the device reads on; NULL: it has its own. */
typedef struct made_weight {
    kvant_weight w;
    uint8_t *rows;
} made_weight;

enum { BLOCKS = 4096 };

static int64_t blocks_of(const kvant_weight *w)
{
    return w->n_in / w->type->block * w->n_out * w->n_expert;
}

static int load_rows(room *r, made_weight *m, const uint8_t *table)
{
    kvant_weight *w = &m->w;
    const size_t each = (size_t)w->type->bytes;

    m->rows = room_host(r, (size_t)blocks_of(w) * each);
    if (!m->rows)
        return r->rc;
    synthetic_fill(table, BLOCKS, each, 1, (uint64_t)blocks_of(w), m->rows);
    w->data = m->rows;
    const int rc = r->dev->vt->weight_load(r->dev, w, KVANT_COMPUTE_AUTO, r->diag);
    if (rc != KVANT_OK || !w->data) {
        kvant_free(m->rows);
        m->rows = NULL;
    }
    return rc;
}

/* 0: the device does not take the type, which is said, or an error in r->rc. */
static int make_weight(room *r, made_weight *m)
{
    const kvant_wtype *t = m->w.type;
    const size_t values = (size_t)BLOCKS * (size_t)t->block;
    float *x = room_host(r, values * sizeof *x);
    uint8_t *table = room_host(r, (size_t)BLOCKS * (size_t)t->bytes);
    rng g = { 3 };
    int rc = r->rc;

    for (size_t i = 0; x && i < values; i++)
        x[i] = 0.02f * rng_normal(&g);
    if (rc == KVANT_OK) {
        kvant_wtype_sample(t, x, table, (int64_t)values);
        rc = r->dev->vt->weight_make
                 ? r->dev->vt->weight_make(r->dev, &m->w, KVANT_COMPUTE_AUTO, table, BLOCKS, 1, r->diag)
                 : load_rows(r, m, table);
    }
    kvant_free(x);
    kvant_free(table);
    if (rc == KVANT_EUNSUPPORTED)
        fprintf(stderr, "%s %s: not on this device: %s\n", r->name, t->name, r->diag->text);
    else
        r->rc = rc;
    return rc == KVANT_OK;
}

static void drop_weight(room *r, made_weight *m)
{
    r->dev->vt->weight_free(r->dev, &m->w);
    kvant_free(m->rows);
}

static made_weight weight_of(const kvant_wtype *t, int n_in, int n_out, int n_expert)
{
    const kvant_weight w = { .type = t, .n_in = n_in, .n_out = n_out, .n_expert = n_expert, .name = t->name,
                             .use = KVANT_WEIGHT_MATMUL };
    return (made_weight){ w, NULL };
}

void case_matmul(room *r)
{
    enum { N_IN = 4096, N_OUT = 12288, MOST = 8192 };
    static const int rows[] = { 1, 2, 4, 8, 16, 64, MOST };
    const float *x = room_normal(r, (size_t)MOST * N_IN);
    float *y = room_copy(r, NULL, (size_t)MOST * N_OUT * sizeof *y);

    for (int i = 0; r->rc == KVANT_OK && i < kvant_wtype_count(); i++) {
        const kvant_wtype *t = kvant_wtype_at(i);
        made_weight m = weight_of(t, N_IN, N_OUT, 1);
        if (!make_weight(r, &m))
            continue;
        for (int j = 0; j < 7; j++) {
            const double n = rows[j], bytes = (double)N_IN / t->block * t->bytes * N_OUT + 4.0 * n * (N_IN + N_OUT);
            const kvant_matmul_args a = { &m.w, x, y, rows[j], N_IN, N_OUT, KVANT_COMPUTE_AUTO };
            room_time(r, KVANT_OP_MATMUL, &a, bytes, 2.0 * n * N_IN * N_OUT, "%s, %d rows", t->name, rows[j]);
        }
        drop_weight(r, &m);
    }
}

enum { EXPERTS = 32, CHOSEN = 4, WIDTH = 2048, HIDDEN = 1024 };

/* Each token's experts, which differ; *used: how many have a token. */
static int32_t *routes_of(room *r, int n, int *used)
{
    int32_t *host = room_host(r, (size_t)n * CHOSEN * sizeof *host);
    char seen[EXPERTS] = { 0 };
    rng g = { 11 };

    *used = 0;
    for (int i = 0; host && i < n * CHOSEN; i++) {
        host[i] = i % CHOSEN ? (host[i - 1] + 7) % EXPERTS : (int32_t)rng_below(&g, EXPERTS);
        *used += !seen[host[i]];
        seen[host[i]] = 1;
    }
    int32_t *ids = room_copy(r, host, (size_t)n * CHOSEN * sizeof *ids);
    kvant_free(host);
    return ids;
}

void case_matmul_id(room *r)
{
    static const char *const types[] = { "bf16", "q8_0", "q4_k", "mxfp4" };
    const int most = room_counts[ROOM_COUNTS - 1];
    const float *x = room_normal(r, (size_t)most * WIDTH);
    float *y = room_copy(r, NULL, (size_t)most * CHOSEN * HIDDEN * sizeof *y);

    for (int i = 0; r->rc == KVANT_OK && i < 4; i++) {
        const kvant_wtype *t = kvant_wtype_find(types[i]);
        made_weight m = weight_of(t, WIDTH, HIDDEN, EXPERTS);
        if (!make_weight(r, &m))
            continue;
        for (int j = 0; j < ROOM_COUNTS; j++) {
            const int n = room_counts[j];
            int used;
            const kvant_matmul_id_args a = { .w = &m.w, .x = x, .ids = routes_of(r, n, &used), .y = y, .n = n,
                                             .k = CHOSEN, .x_div = CHOSEN, .ldx = WIDTH,
                                             .compute = KVANT_COMPUTE_AUTO };
            const double bytes = (double)used * WIDTH / t->block * t->bytes * HIDDEN +
                                 4.0 * n * (WIDTH + CHOSEN * HIDDEN);
            room_time(r, KVANT_OP_MATMUL_ID, &a, bytes, 2.0 * n * CHOSEN * WIDTH * HIDDEN, "%s, %d tokens, %d experts",
                      t->name, n, used);
        }
        drop_weight(r, &m);
    }
}

/* ---- convolutions ---- */

static void conv_rows(room *r, int n, int prompt)
{
    enum { C = 8192, K = 4 };
    const int mark = r->n_mem, seqs = prompt ? 1 : n;
    const kvant_conv_args a = { .seqs = room_seqs(r, seqs, n / seqs, 0, prompt),
                                .x = room_normal(r, (size_t)n * C),
                                .w = room_normal(r, (size_t)C * K),
                                .state = room_normal(r, (size_t)seqs * C * (K - 1)),
                                .y = room_copy(r, NULL, (size_t)n * C * sizeof(float)),
                                .c = C,
                                .k = K,
                                .slot_stride = C * (K - 1),
                                .ldx = C };

    room_time(r, prompt ? KVANT_OP_CONV_CHUNK : KVANT_OP_CONV_STEP, &a,
              4.0 * C * (2.0 * n + K + 2.0 * seqs * (K - 1)), 0.0,
              prompt ? "a prompt of %d tokens" : "%d sequences", n);
    room_drop(r, mark);
}

void case_conv(room *r)
{
    for (int i = 0; i < 2 * ROOM_COUNTS; i++)
        conv_rows(r, room_counts[i % ROOM_COUNTS], i / ROOM_COUNTS);
}

/* ---- norms ---- */

static void norm_rows(room *r, int n)
{
    enum { D = 4096, H = 32, HEAD = D / H };
    const size_t rows = (size_t)n * D;
    const float *w = room_normal(r, D), *z = room_normal(r, rows);
    float *x = room_normal(r, rows), *y = room_normal(r, rows);
    const kvant_norm_rms_args rms = { .x = x, .w = w, .y = y, .eps = 1e-6f, .n = n, .h = 1, .d = D, .ldx = D, .gx = D,
                                      .ldy = D, .gy = D };
    const kvant_norm_layer_args layer = { .x = x, .w = w, .b = w, .y = y, .eps = 1e-6f, .n = n, .h = 1, .d = D,
                                          .ldx = D, .gx = D, .ldy = D, .gy = D };
    const kvant_norm_add_rms_args add = { .x = x, .add = z, .w = w, .y = y, .eps = 1e-6f, .n = n, .d = D };
    const kvant_norm_l2_args l2 = { .x = x, .eps = 1e-6f, .n = n, .h = H, .d = HEAD, .ldx = D, .gx = HEAD };
    const kvant_norm_gated_args gated = { .o = x, .z = z, .w = w, .y = y, .eps = 1e-6f, .n = n, .h = H, .dv = HEAD,
                                          .ldz = D };
    const struct { int id, moved; const void *args; const char *name; } all[] = {
        { KVANT_OP_NORM_RMS, 2, &rms, "norm_rms" },
        { KVANT_OP_NORM_LAYER, 2, &layer, "norm_layer" },
        { KVANT_OP_NORM_ADD_RMS, 4, &add, "norm_add_rms" },
        { KVANT_OP_NORM_L2, 2, &l2, "norm_l2" },
        { KVANT_OP_NORM_GATED, 3, &gated, "norm_gated" },
    };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        room_time(r, all[i].id, all[i].args, 4.0 * (double)rows * all[i].moved, 0.0, "%s, %d rows", all[i].name, n);
}

void case_norms(room *r)
{
    for (int i = 0; i < ROOM_COUNTS; i++) {
        norm_rows(r, room_counts[i]);
        room_drop(r, 0);
    }
}
