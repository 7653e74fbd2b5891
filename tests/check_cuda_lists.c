/* check_cuda_lists.c: launches that do several ops of a list give the bits of the ops one by one: product, residual
 * sum, norm, product and SwiGLU of one row, at widths that the tiny models do not have; pages of K and V that are
 * sealed; rows of K and V that are normed, rotated, written,
 * perhaps sealed, then attended to; rows of 16 bits go to their pages.  Pages sealed in the private layout hold
 * what is sealed as rows, and that follows the projection, wherever it lies and whatever lay there before.  Prints
 * "skipped: no device" without a GPU. */
#include "base/half.h"
#include "kvant/format.h"
#include "kvant/qjl.h"
#include "support/device_lists.h"

/* k -> d, residual sum and norm, d -> 2 f, SwiGLU where it is asked for. */
static void check_chain(const char *type, int k, int d, int f, int swiglu)
{
    kvant_weight a = matrix(type, k, d), b = matrix(type, d, 2 * f);
    float *in = room((size_t)k), *w = room((size_t)d), *x[2], *delta[2], *y[2], *ff[2];
    char what[96];
    fill(in, (size_t)k);
    fill(w, (size_t)d);
    for (int i = 0; i < 2; i++) {
        x[i] = room((size_t)d), delta[i] = room((size_t)d), y[i] = room((size_t)d), ff[i] = room(2 * (size_t)f);
        state = 7;
        fill(x[i], (size_t)d);
        const kvant_matmul_args m = { &a, in, delta[i], 1, k, d, KVANT_COMPUTE_AUTO };
        const kvant_norm_add_rms_args s = { x[i], delta[i], w, y[i], 1e-6f, 1, d };
        const kvant_matmul_args n = { &b, y[i], ff[i], 1, d, 2 * f, KVANT_COMPUTE_AUTO };
        const kvant_swiglu_args g = { ff[i], ff[i] + f, ff[i], 1, f, 2 * f, 2 * f, 2 * f };
        const kvant_op ops[] = {
            { KVANT_OP_MATMUL, &m }, { KVANT_OP_NORM_ADD_RMS, &s }, { KVANT_OP_MATMUL, &n }, { KVANT_OP_SWIGLU, &g }
        };
        submit_list(ops, swiglu ? 4 : 3, i);
    }
    snprintf(what, sizeof what, "%s %d -> %d -> 2 x %d%s", type, k, d, f, swiglu ? " swiglu" : "");
    expect_equal(delta[0], delta[1], (size_t)d, what);
    expect_equal(x[0], x[1], (size_t)d, what);
    expect_equal(y[0], y[1], (size_t)d, what);
    expect_equal(ff[0], ff[1], 2 * (size_t)f, what);
    for (int i = 0; i < 2; i++) {
        dev->vt->free(dev, x[i]), dev->vt->free(dev, delta[i]);
        dev->vt->free(dev, y[i]), dev->vt->free(dev, ff[i]);
    }
    dev->vt->free(dev, in), dev->vt->free(dev, w);
    dev->vt->weight_free(dev, &a), dev->vt->weight_free(dev, &b);
}

enum { HEADS = 3, PAGES = 4, TAILS = 2 };

static float projection[KVANT_QJL_VALUES];

/* Tails of random halves, pages of zeros. */
static kvant_kv_side side_of(const kvant_format *f, int d, int encoder, int layout, size_t *bytes)
{
    const size_t row = kvant_format_row_bytes(f, d), tail = (size_t)TAILS * HEADS * KVANT_PAGE * (size_t)d / 2;
    kvant_kv_side s = { .fmt = f, .row_bytes = row, .encoder = encoder };
    s.layout = f->flags & KVANT_FORMAT_PAGE ? KVANT_LAYOUT_ROWS : layout; /* page scope has one layout */
    s.param = f->flags & KVANT_FORMAT_PARAM && strstr(f->name, "qjl") ? projection : NULL;
    s.head_bytes = row * KVANT_PAGE;
    s.page_bytes = s.head_bytes * HEADS;
    *bytes = s.page_bytes * PAGES;
    s.pages = (uint8_t *)room(*bytes / sizeof(float));
    s.tail = (uint16_t *)room(tail);
    uint32_t *host = calloc(*bytes > 4 * tail ? *bytes : 4 * tail, 1);
    CHECK(dev->vt->copy_in(dev, s.pages, host, *bytes, &diag) == KVANT_OK, "%s", diag.text);
    for (size_t i = 0; i < tail; i++)
        host[i] = f32_to_half(uniform()) | (uint32_t)f32_to_half(uniform()) << 16;
    CHECK(dev->vt->copy_in(dev, s.tail, host, 4 * tail, &diag) == KVANT_OK, "%s", diag.text);
    CHECK(dev->vt->sync(dev, &diag) == KVANT_OK, "%s", diag.text);
    free(host);
    return s;
}

/* Pages of random rows of 16 bits, without a tail. */
static kvant_kv_side wide_side_of(const kvant_format *f, int d, size_t *bytes)
{
    kvant_kv_side s = side_of(f, d, 0, KVANT_LAYOUT_ROWS, bytes);
    uint16_t *host = malloc(*bytes);
    for (size_t i = 0; i < *bytes / 2; i++)
        host[i] = f32_to_half(uniform());
    CHECK(dev->vt->copy_in(dev, s.pages, host, *bytes, &diag) == KVANT_OK, "%s", diag.text);
    CHECK(dev->vt->sync(dev, &diag) == KVANT_OK, "%s", diag.text);
    free(host);
    dev->vt->free(dev, s.tail);
    s.tail = NULL;
    return s;
}

static kvant_kv_side attend_side(const kvant_format *f, int d, int layout, size_t *bytes)
{
    return f->flags & KVANT_FORMAT_WIDE ? wide_side_of(f, d, bytes) : side_of(f, d, 0, layout, bytes);
}

/* K and V: two pages sealed by one list of two ops, and by two lists. */
static void check_seal(const kvant_format *fk, const kvant_format *fv, int d, int encoder, int private)
{
    static const int32_t ids[4] = { 1, 0, 3, 1 }; /* from tails 1 and 0 to pages 3 and 1 */
    int32_t *at = (int32_t *)room(4);
    size_t bytes[2] = { 0 };
    kvant_kv_side side[2][2];
    char what[96];
    CHECK(dev->vt->copy_in(dev, at, ids, sizeof ids, &diag) == KVANT_OK, "%s", diag.text);
    for (int i = 0; i < 2; i++) {
        state = 11;
        for (int j = 0; j < 2; j++)
            side[i][j] = side_of(j ? fv : fk, d, encoder, private ? KVANT_LAYOUT_PRIVATE_K + j : 0, &bytes[j]);
        const kvant_page_seal_args a[2] = { { side[i][0], at, at + 2, 2, HEADS, d },
                                            { side[i][1], at, at + 2, 2, HEADS, d } };
        const kvant_op ops[2] = { { KVANT_OP_PAGE_SEAL, &a[0] }, { KVANT_OP_PAGE_SEAL, &a[1] } };
        const int both = dev->vt->supports(dev, &ops[0], &diag) == KVANT_OK &&
                         dev->vt->supports(dev, &ops[1], &diag) == KVANT_OK;
        for (int n = 0; n < 2 && both; n += i ? 2 : 1)
            CHECK(dev->vt->submit(dev, ops + n, i ? 2 : 1, 0, &diag) == KVANT_OK, "%s", diag.text);
    }
    for (int j = 0; j < 2; j++) {
        snprintf(what, sizeof what, "seal %s %s d %d encoder %d %s %c", fk->name, fv->name, d, encoder,
                 private ? "private" : "rows", "KV"[j]);
        expect_equal((float *)side[0][j].pages, (float *)side[1][j].pages, bytes[j] / sizeof(float), what);
        for (int i = 0; i < 2; i++)
            dev->vt->free(dev, side[i][j].pages), dev->vt->free(dev, side[i][j].tail);
    }
    dev->vt->free(dev, at);
}

/* How queries and new keys are made ready: as they are; norm and rotation of halves; rotation of a part, pairwise. */
enum ready { AS_THEY_ARE, NORM_HALVES, PART_PAIRS, READY_COUNT };

/* The ops of one attention: two seals, what makes ready, two writes, attn. */
typedef struct attend_ops {
    kvant_page_seal_args seal[2];
    kvant_norm_rms_args norm[2];
    kvant_rope_args rope[2];
    kvant_cache_write_args write[2];
    kvant_attn_args attn;
    kvant_op ops[9];
    int n;
} attend_ops;

static void add_ops(attend_ops *o, int id, const void *args, size_t each, int n)
{
    for (int i = 0; i < n; i++)
        o->ops[o->n++] = (kvant_op){ id, (const char *)args + (size_t)i * each };
}

/* Queries x[.][h][d], keys and values of HEADS heads behind them; weights: d of a norm, d/2 frequencies. */
static void make_ready(attend_ops *o, enum ready how, float *x, int rows, int ld, int h, int d, const int32_t *pos,
                       const float *weights)
{
    const int n_rot = how == PART_PAIRS ? d / 2 : d, neox = how == NORM_HALVES;
    for (int k = 0; k < 2; k++) {
        float *at = x + (k ? h * d : 0);
        const int heads = k ? HEADS : h;
        o->norm[k] = (kvant_norm_rms_args){ at, weights, at, 1e-6f, rows, heads, d, ld, d, ld, d };
        o->rope[k] = (kvant_rope_args){ at, pos, weights + d, 1.25f, neox, n_rot, rows, heads, ld, d };
    }
    if (how == NORM_HALVES)
        add_ops(o, KVANT_OP_NORM_RMS, o->norm, sizeof o->norm[0], 2);
    if (how != AS_THEY_ARE)
        add_ops(o, KVANT_OP_ROPE, o->rope, sizeof o->rope[0], 2);
}

/* All supported, and submitted: op by op, or all from op `first` on in one list. */
static int submit_attend(const attend_ops *o, int first, int at_once)
{
    for (int k = 0; k < o->n; k++)
        if (dev->vt->supports(dev, &o->ops[k], &diag) < 0)
            return 0;
    for (int k = 0, n; k < o->n; k += n) {
        n = at_once && k == first ? o->n - k : 1;
        CHECK(dev->vt->submit(dev, o->ops + k, n, 0, &diag) == KVANT_OK, "%s", diag.text);
    }
    return 1;
}

/* New rows of the two sequences: one each, where attn is one launch with all before it; two and none; one each, where
 * it has launches of its own because a context may be long; one and a prompt's, with seals before attn. */
enum rows_of { ONE_EACH, TWO, FAR, WITH_PROMPT, ROWS_COUNT };

/* New rows of two sequences to their tails or pages, and attention over them and over sealed pages: one list, and op by
 * op.  Queries of a prompt are rotated in another order then; rows in a page are summed in another order. */
static int check_attend(const kvant_format *fk, const kvant_format *fv, int d, enum rows_of of, enum ready how)
{
    enum { GROUP = 4, STRIDE = 3, MORE = 30, SECOND = 9, LONG = 1 << 17 };
    const int rows = of == WITH_PROMPT ? 1 + MORE : 2;
    const int wide = fk->flags & fv->flags & KVANT_FORMAT_WIDE; /* then two rows lie in two pages */
    const int first = wide && of == TWO ? 2 * KVANT_PAGE - 1 : 2 * KVANT_PAGE + 5;
    int32_t ids[21 + 1 + MORE] = { 0,  1,
                                   2,  3,
                                   0,  of == TWO ? 2 : 1,
                                   rows, first,
                                   SECOND, /* seals, q0, pos0 */
                                   2,  3,
                                   1,  0,
                                   0,  0,
                                   -1, -1,
                                   0,  1,
                                   -1, -1 }; /* pages, tails */
    for (int i = 0; i < rows; i++)
        ids[21 + i] = i < ids[5] ? first + i : SECOND + i - ids[5]; /* positions */
    const int h = HEADS * GROUP, ld = (h + 2 * HEADS) * d;
    const size_t n_out = (size_t)(rows * h * d), tails = (size_t)TAILS * HEADS * KVANT_PAGE * (size_t)d / 2;
    int32_t *at = (int32_t *)room(sizeof ids / 4);
    float *x = room((size_t)(rows * ld)), *weights = room((size_t)(2 * d)), *out[2];
    kvant_kv_side side[2][2];
    size_t bytes = 0;
    int ran = 0;
    char what[96];
    CHECK(dev->vt->copy_in(dev, at, ids, sizeof ids, &diag) == KVANT_OK, "%s", diag.text);
    const kvant_seqs seqs = { .n_seqs = 2,
                              .n_tokens = rows,
                              .n_few = of == WITH_PROMPT,
                              .few_rows = of == WITH_PROMPT,
                              .q0 = at + 4,
                              .pos0 = at + 7,
                              .prompt = at + 4,
                              .table = at + 9,
                              .tail_table = at + 15,
                              .table_stride = STRIDE };
    for (int i = 0; i < 2; i++) {
        attend_ops o = { .n = 0 };
        out[i] = room(n_out);
        state = 5;
        fill(x, (size_t)(rows * ld));
        fill(weights, (size_t)(2 * d));
        fill(out[i], n_out);
        side[i][0] = attend_side(fk, d, KVANT_LAYOUT_PRIVATE_K, &bytes);
        side[i][1] = attend_side(fv, d, KVANT_LAYOUT_PRIVATE_V, &bytes);
        int seals = 0;
        for (int k = 0; k < 2; k++) {
            if (side[i][k].tail)
                o.seal[seals++] = (kvant_page_seal_args){ side[i][k], at, at + 2, 2, HEADS, d };
            o.write[k] = (kvant_cache_write_args){ seqs, side[i][k], x + (h + k * HEADS) * d, ld, HEADS, d };
        }
        o.attn = (kvant_attn_args){ seqs,
                                    side[i][0],
                                    side[i][1],
                                    x,
                                    out[i],
                                    ld,
                                    d,
                                    h * d,
                                    h,
                                    HEADS,
                                    d,
                                    d,
                                    0.1f,
                                    1,
                                    KVANT_COMPUTE_AUTO,
                                    of == FAR ? LONG : STRIDE * KVANT_PAGE - 1,
                                    0,
                                    0.0f,
                                    NULL,
                                    0 };
        if (of != WITH_PROMPT)
            add_ops(&o, KVANT_OP_PAGE_SEAL, o.seal, sizeof o.seal[0], seals);
        make_ready(&o, how, x, rows, ld, h, d, at + 21, weights);
        add_ops(&o, KVANT_OP_CACHE_WRITE, o.write, sizeof o.write[0], 2);
        if (of == WITH_PROMPT)
            add_ops(&o, KVANT_OP_PAGE_SEAL, o.seal, sizeof o.seal[0], seals);
        add_ops(&o, KVANT_OP_ATTN, &o.attn, sizeof o.attn, 1);
        ran += submit_attend(&o, of == WITH_PROMPT ? 0 : seals, i);
    }
    snprintf(what, sizeof what, "attend %s %s d %d ready %d rows %d", fk->name, fv->name, d, how, of);
    if (of == WITH_PROMPT || wide)
        expect_near(out[0], out[1], n_out, 1e-6, what);
    else
        expect_equal(out[0], out[1], n_out, what);
    for (int i = 0; i < 2; i++) {
        if (side[0][i].tail)
            expect_equal((float *)side[0][i].tail, (float *)side[1][i].tail, tails, what);
        expect_equal((float *)side[0][i].pages, (float *)side[1][i].pages, side[0][i].page_bytes, what); /* all four */
    }
    for (int i = 0; i < 2; i++) {
        dev->vt->free(dev, out[i]);
        for (int j = 0; j < 2; j++)
            dev->vt->free(dev, side[i][j].pages), dev->vt->free(dev, side[i][j].tail);
    }
    dev->vt->free(dev, at), dev->vt->free(dev, x), dev->vt->free(dev, weights);
    return ran == 2;
}

/* Pages sealed in the private layout hold, as rows, what is sealed as rows. */
static void check_layout(const kvant_format *f, int d, int encoder, int role)
{
    static const int32_t ids[4] = { 1, 0, 3, 1 };
    int32_t *at = (int32_t *)room(4);
    size_t bytes = 0;
    kvant_kv_side side[2];
    kvant_op op = { KVANT_OP_PAGE_SEAL, NULL };
    int sealed = 0;
    CHECK(dev->vt->copy_in(dev, at, ids, sizeof ids, &diag) == KVANT_OK, "%s", diag.text);
    for (int i = 0; i < 2; i++) {
        state = 23;
        side[i] = side_of(f, d, encoder, i ? role : 0, &bytes);
        const kvant_page_seal_args a = { side[i], at, at + 2, 2, HEADS, d };
        op.args = &a;
        sealed += dev->vt->supports(dev, &op, &diag) == KVANT_OK && dev->vt->submit(dev, &op, 1, 0, &diag) == KVANT_OK;
    }
    uint8_t *rows = calloc(side[0].page_bytes, 1), *packed = calloc(side[0].page_bytes, 1);
    for (int k = 2; k < 4 && sealed == 2; k++) {
        CHECK(dev->vt->copy_out(dev, rows, side[0].pages + (size_t)ids[k] * side[0].page_bytes, side[0].page_bytes,
                                &diag) == KVANT_OK,
              "%s", diag.text);
        CHECK(dev->vt->page_read(dev, &side[1], HEADS, d, ids[k], packed, &diag) == KVANT_OK, "%s", diag.text);
        CHECK(memcmp(rows, packed, side[0].page_bytes) == 0, "seal %s d %d encoder %d layout %d page %d: not the rows",
              f->name, d, encoder, role, (int)ids[k]);
    }
    free(rows), free(packed);
    for (int i = 0; i < 2; i++)
        dev->vt->free(dev, side[i].pages), dev->vt->free(dev, side[i].tail);
    dev->vt->free(dev, at);
}

/* ---- projections ---- */

/* Two pages sealed by a list op by op and by the same one recorded; as rows. */
static void seal_rows(const kvant_page_seal_args *a, const int32_t *ids, uint8_t *rows)
{
    const kvant_kv_side *s = &a->side;
    const kvant_op op = { KVANT_OP_PAGE_SEAL, a };
    for (int i = 0; i < 2; i++)
        CHECK(dev->vt->submit(dev, &op, 1, (uint64_t)(uintptr_t)s->param + (uint64_t)s->layout, &diag) == KVANT_OK,
              "%s", diag.text);
    for (int k = 0; k < 2; k++) {
        uint8_t *to = rows + (size_t)k * s->page_bytes;
        const size_t at = (size_t)ids[2 + k] * s->page_bytes;
        if (s->layout)
            CHECK(dev->vt->page_read(dev, s, HEADS, 128, ids[2 + k], to, &diag) == KVANT_OK, "%s", diag.text);
        else
            CHECK(dev->vt->copy_out(dev, to, s->pages + at, s->page_bytes, &diag) == KVANT_OK, "%s", diag.text);
    }
}

/* Projection i at an address, as a rule that of the one before: 0 to 3 in plain memory, which is written over, 4 to 7
 * loaded, 8 in plain memory again. */
static void *put_projection(int i, void *before, const float *host)
{
    void *at = before;
    if (i == 0 || i >= 4)
        dev->vt->free(dev, before);
    if (i >= 4 && i < 8)
        CHECK(dev->vt->param_load(dev, host, sizeof projection, &at, &diag) == KVANT_OK, "%s", diag.text);
    else if (i == 0 || i == 8)
        at = room(KVANT_QJL_VALUES);
    const int rc = dev->vt->copy_in(dev, at, host, sizeof projection, &diag);
    CHECK(rc == (i >= 4 && i < 8 ? KVANT_EINVAL : KVANT_OK), "projection %d written over: %d", i, rc);
    return at;
}

/* Pages are those of the projection that is there: two of them in turn. */
static void check_projection(int layout)
{
    static const int32_t ids[4] = { 1, 0, 3, 1 };
    static float other[KVANT_QJL_VALUES];
    const float *const host[2] = { projection, other };
    int32_t *at = (int32_t *)room(4);
    void *param = NULL;
    size_t bytes = 0;
    kvant_kv_side s = side_of(kvant_format_find("qjl1_256"), 128, KVANT_ENCODER_BEST, layout, &bytes);
    uint8_t *want[2] = { malloc(bytes), malloc(bytes) }, *rows = malloc(bytes);
    kvant_page_seal_args a = { s, at, at + 2, 2, HEADS, 128 };
    kvant_qjl_projection_build(7, other);
    CHECK(dev->vt->copy_in(dev, at, ids, sizeof ids, &diag) == KVANT_OK, "%s", diag.text);
    for (int i = 0; i < 9; i++) {
        a.side.param = param = put_projection(i, param, host[i % 2]);
        seal_rows(&a, ids, i < 2 ? want[i] : rows);
        CHECK(i < 2 || memcmp(want[i % 2], rows, 2 * s.page_bytes) == 0, "projection %d, layout %d: other rows", i,
              layout);
    }
    CHECK(memcmp(want[0], want[1], 2 * s.page_bytes) != 0, "two projections, the same rows");
    free(want[0]), free(want[1]), free(rows);
    dev->vt->free(dev, param), dev->vt->free(dev, at), dev->vt->free(dev, s.pages), dev->vt->free(dev, s.tail);
}

int main(void)
{
    static const char *const pairs[][2] = { { "tbq4_0", "tbq4_0" },        { "q8_0", "q8_0" },
                                            { "turbo3", "turbo4_66" },     { "turbo3_tcq", "turbo3_tcq" },
                                            { "qjl1_256", "tbq3_0" },      { "qjl1_256", "turbo3_tcq" },
                                            { "q4_polar_r", "q4_polar_r" },{ "f16", "f16" },
                                            { "bf16", "bf16" },            { "f16", "tbq4_0" },
                                            { "tbq4_0", "bf16" },          { "bf16", "f16" },
                                            { "ptcq3", "ptcq3" },          { "ptcq4", "ptcq2" },
                                            { "ptcq3", "tbq4_0" },         { "f16", "ptcq4" } };
    int attended = 0;
    static const int shapes[][3] = {
        { 1024, 1024, 512 }, { 4096, 4096, 3072 }, { 12288, 4096, 1000 }, { 6144, 5120, 768 }, { 2048, 2560, 100 }
    };
    const kvant_device_config cfg = { 0 };
    if (device_open("cuda", &cfg, &dev, &diag) < 0) {
        printf("skipped: no device (%s)\n", diag.text);
        return check_end("check_cuda_lists");
    }
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int swiglu = 0; swiglu < 2; swiglu++) {
            check_chain("BF16", shapes[i][0], shapes[i][1], shapes[i][2], swiglu);
            check_chain("F16", shapes[i][0], shapes[i][1], shapes[i][2], swiglu);
        }
    kvant_qjl_projection_build(KVANT_QJL_SEED, projection);
    for (int i = 0; i < kvant_format_count(); i++)
        for (int k = 0; k < 8; k++) {
            const int d = k & 4 ? 256 : 128;
            const int paged = (kvant_format_at(i)->flags & KVANT_FORMAT_PAGE) != 0;
            if (kvant_format_check(kvant_format_at(i), d, NULL) == KVANT_OK)
                check_seal(kvant_format_at(i), kvant_format_at(i), d, k & 1, k & 2);
            if (!paged && kvant_format_check(kvant_format_at(i), d, NULL) == KVANT_OK)
                check_layout(kvant_format_at(i), d, k & 1, KVANT_LAYOUT_PRIVATE_K + (k & 2) / 2);
        }
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        for (int k = 0; k < 6; k++) {
            const kvant_format *fk = kvant_format_find(pairs[i][0]), *fv = kvant_format_find(pairs[i][1]);
            const int d = 64 << k / 2;
            if (kvant_format_check(fk, d, NULL) < 0 || kvant_format_check(fv, d, NULL) < 0)
                continue;
            if (!((fk->flags | fv->flags) & KVANT_FORMAT_WIDE))
                check_seal(fk, fv, d, k % 2, 1), check_seal(fv, fk, d, k % 2, 0);
            for (int how = 0; how < READY_COUNT; how++)
                for (int of = k % 2; of < ROWS_COUNT; of += 2)
                    attended += check_attend(fk, fv, d, (enum rows_of)of, (enum ready)how);
        }
    check_projection(KVANT_LAYOUT_ROWS);
    check_projection(KVANT_LAYOUT_PRIVATE_K);
    printf("%d lists of attention\n", attended);
    dev->vt->close(dev);
    return check_end("check_cuda_lists");
}
