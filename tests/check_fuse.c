/* check_fuse.c: the table of fused forms (src/ops/fuse) on lists made by hand: the form that a list begins with, and
 * lists without one: other sizes, operands that overlap, a value that is read again. */
#include <unistd.h>

#include "kvant/format.h"
#include "ops/fuse/fuse.h"
#include "support/check.h"

enum { D = 8, H = 2, H_KV = 1, LD = (H + 2 * H_KV) * D, F = 6 };

enum { ON_vulkan = 1, ON_portable = 1, ON_gpus = 1, ON_cuda = 0, ON_vulkan_cuda = 1 };
#define FUSED(ID, name, on, ins, links, where) ON_##on,
static const int here[FUSED_COUNT] = {
    /* CUDA's alone: check_fuse_cuda.c */
#include "ops/fuse/fused.def"
};

static float mem[4096];
static int matched[FUSED_COUNT];

static int all(void *user, const kvant_op *op)
{
    (void)user;
    return here[op->id - KVANT_OP_COUNT];
}

/* Ops that the first entry of the list stands for, of the forms that `takes` accepts. */
static int took(const kvant_op *ops, int n, int (*takes)(void *user, const kvant_op *op), const char **name)
{
    kvant_op out = { -1, NULL };
    const int count = fuse_next(ops, n, PASS_NONE, takes, NULL, &out);
    const fuse_form *form = fuse_get(out.id);

    CHECK(form ? out.args == ops : out.id == ops[0].id && out.args == ops[0].args && count == 1, "op %d", out.id);
    if (form)
        matched[out.id - KVANT_OP_COUNT]++;
    *name = form ? form->name : "";
    return count;
}

static void expect(const kvant_op *ops, int n, int count, const char *form, const char *what)
{
    const char *name;
    const int got = took(ops, n, all, &name);

    CHECK(got == count && strcmp(name, form) == 0, "%s: %d ops by \"%s\", wanted %d by \"%s\"", what, got, name, count,
          form);
}

/* ---- norms, ropes, writes: queries, keys and values side by side in rows of LD ---- */

typedef struct heads {
    kvant_norm_rms_args nq, nk;
    kvant_rope_args rq, rk;
    kvant_cache_write_args wk, wv;
    kvant_op ops[6];
} heads;

static void make_heads(heads *h, int n)
{
    static const int32_t pos[4], q0[2], table[2];
    float *q = mem, *k = q + H * D, *v = k + H_KV * D;

    h->nq = (kvant_norm_rms_args){ q, mem + 2000, q, 1e-6f, n, H, D, LD, D, LD, D };
    h->nk = (kvant_norm_rms_args){ k, mem + 2000, k, 1e-6f, n, H_KV, D, LD, D, LD, D };
    h->rq = (kvant_rope_args){ q, pos, mem + 2100, 1.0f, 1, D, n, H, LD, D };
    h->rk = (kvant_rope_args){ k, pos, mem + 2100, 1.0f, 1, D, n, H_KV, LD, D };
    const kvant_seqs seqs = { .n_seqs = 1, .n_tokens = n, .q0 = q0, .pos0 = q0, .table = table, .table_stride = 2 };
    const kvant_kv_side side = { .fmt = kvant_format_find("f16"), .pages = (uint8_t *)(mem + 3000) };
    h->wk = (kvant_cache_write_args){ seqs, side, k, LD, H_KV, D };
    h->wv = (kvant_cache_write_args){ seqs, side, v, LD, H_KV, D };
    h->wv.side.pages += 2000;
    const kvant_op ops[6] = { { KVANT_OP_NORM_RMS, &h->nq },    { KVANT_OP_NORM_RMS, &h->nk },
                              { KVANT_OP_ROPE, &h->rq },        { KVANT_OP_ROPE, &h->rk },
                              { KVANT_OP_CACHE_WRITE, &h->wk }, { KVANT_OP_CACHE_WRITE, &h->wv } };
    memcpy(h->ops, ops, sizeof ops);
}

/* Another count where the expression has changed the heads. */
#define WITH(change, count, form)                                                                                      \
    make_heads(&h, n);                                                                                                 \
    change;                                                                                                            \
    expect(h.ops, 6, count, form, #change)

static void norms_and_ropes(int n)
{
    heads h;

    WITH((void)0, 6, "norm_rope_write");
    expect(h.ops, 5, 4, "norm_rope", "the list ends before the second write");
    expect(h.ops, 3, 1, "", "the list ends before the second rope");
    expect(h.ops + 1, 5, 1, "", "from the second norm on");
    WITH(h.ops[0].id = KVANT_OP_NORM_L2, 1, "");
    WITH(h.rq.n_rot = D + 2, 1, "");
    WITH(h.rk.n = n + 1, 1, "");
    WITH(h.rk.h = H_KV + 1, 1, "");
    WITH(h.nk.ldy = LD + D, 1, "");
    WITH(h.rq.gx = 2 * D, 1, "");
    WITH(h.rk.x = mem + 1000, 1, "");
    WITH(h.nq.y = h.rq.x = mem + 1000, 1, "");
    WITH(h.nk.x = h.nk.y = h.rk.x = mem + H * D - 2, 1, ""); /* keys that overlap the queries */
    WITH(h.nq.w = mem + 3, 1, "");                           /* a weight in what is written */
    WITH(h.wk.d = D / 2, 4, "norm_rope");
    WITH(h.wk.x = mem + 1000, 4, "norm_rope");
    WITH(h.wk.seqs.n_tokens = n + 1, 4, "norm_rope");
    WITH(h.wv.seqs.n_tokens = n + 1, 4, "norm_rope");
    WITH(h.wv.x = h.wk.x, 4, "norm_rope"); /* values that are the keys */
    WITH(h.wv.x -= 1, 4, "norm_rope");
    WITH(h.wv.side.pages = h.wk.side.pages, 4, "norm_rope");
}
#undef WITH

/* ---- products ---- */

typedef struct products {
    kvant_weight w, w2;
    kvant_matmul_args a, b;
    kvant_matmul_id_args e;
    kvant_norm_add_rms_args norm;
    kvant_swiglu_args s;
    kvant_op chain[4], pair[2], experts[2];
} products;

static void make_products(products *p, int m)
{
    float *in = mem, *delta = mem + 200, *x = mem + 400, *a = mem + 600, *y = mem + 800;

    p->w = (kvant_weight){ .n_in = D, .n_out = D, .n_expert = 1 };
    p->w2 = (kvant_weight){ .n_in = D, .n_out = 2 * F, .n_expert = 3 };
    p->a = (kvant_matmul_args){ &p->w, in, delta, m, D, D, KVANT_COMPUTE_AUTO };
    p->norm = (kvant_norm_add_rms_args){ x, delta, mem + 2000, a, 1e-6f, m, D };
    p->b = (kvant_matmul_args){ &p->w2, a, y, m, D, 2 * F, KVANT_COMPUTE_AUTO };
    p->s = (kvant_swiglu_args){ y, y + F, y, m, F, 2 * F, 2 * F, 2 * F };
    p->e = (kvant_matmul_id_args){ &p->w2, a, (int32_t *)(mem + 2100), y, m, 1, 1, D, KVANT_COMPUTE_AUTO };
    const kvant_op chain[4] = { { KVANT_OP_MATMUL, &p->a },
                                { KVANT_OP_NORM_ADD_RMS, &p->norm },
                                { KVANT_OP_MATMUL, &p->b },
                                { KVANT_OP_SWIGLU, &p->s } };
    const kvant_op experts[2] = { { KVANT_OP_MATMUL_ID, &p->e }, chain[3] };
    memcpy(p->chain, chain, sizeof chain);
    memcpy(p->pair, chain + 2, sizeof p->pair);
    memcpy(p->experts, experts, sizeof experts);
}

#define WITH(change, list, n, count, form)                                                                             \
    make_products(&p, m);                                                                                              \
    change;                                                                                                            \
    expect(p.list, n, count, form, #change)

static void chains(int m)
{
    products p;

    WITH((void)0, chain, 4, 4, "matmul_norm_swiglu");
    WITH((void)0, chain, 3, 3, "matmul_norm");
    WITH((void)0, chain, 2, 1, "");
    WITH(p.s.f = F - 1, chain, 4, 3, "matmul_norm");
    WITH(p.norm.add = mem + 1200, chain, 4, 1, "");
    WITH(p.b.x = mem + 1200, chain, 4, 1, "");
    WITH(p.norm.n = m + 1, chain, 4, 1, "");
    WITH(p.b.ldx = D + 1, chain, 4, 1, "");
    WITH(p.norm.x = mem, chain, 4, 1, "");                                 /* the sum where the first product reads */
    WITH(p.norm.x = mem + 196, chain, 4, 1, "");                           /* where it writes */
    WITH(p.norm.y = mem + 399 + m * D; p.b.x = p.norm.y, chain, 4, 1, ""); /* the normed rows over the sum */
    WITH(p.b.y = p.norm.x + 1, chain, 3, 1, "");                           /* the second product over the sum */
    WITH(p.b.y = p.norm.y + 1, chain, 3, 1, "");
}

static void pairs(int m)
{
    products p;

    WITH((void)0, pair, 2, 2, "matmul_swiglu");
    WITH((void)0, experts, 2, 2, "matmul_id_swiglu");
    WITH(p.s.y = mem + 1200, pair, 2, 1, "");
    WITH(p.s.gate = mem + 1200, pair, 2, 1, "");
    WITH(p.s.up = mem + 1200, experts, 2, 1, "");
    WITH(p.s.n = m + 1, pair, 2, 1, "");
    WITH(p.s.n = m + 1, experts, 2, 1, "");
    WITH(p.s.ldu = 2 * F + 1, pair, 2, 1, "");
    WITH(p.w2.n_out = 2 * F + 1, pair, 2, 1, "");
}
#undef WITH

/* ---- what a device takes ---- */

static int no_writes(void *user, const kvant_op *op)
{
    const kvant_op *ops = op->args;

    CHECK(ops[0].id == KVANT_OP_NORM_RMS, "the fused op has its ops");
    return op->id != FUSED_NORM_ROPE_WRITE && all(user, op);
}

static int nothing(void *user, const kvant_op *op)
{
    (void)user;
    (void)op;
    return 0;
}

static void of_a_device(void)
{
    const char *name;
    heads h;

    make_heads(&h, 1);
    CHECK(took(h.ops, 6, no_writes, &name) == 4 && strcmp(name, "norm_rope") == 0, "the next form: %s", name);
    CHECK(took(h.ops, 6, nothing, &name) == 1, "it takes none");
    CHECK(!fuse_get(KVANT_OP_COUNT - 1) && !fuse_get(KVANT_OP_COUNT + FUSED_COUNT * PASS_COUNT) && !fuse_get(-1),
          "ids of no form");
}

/* ---- a value that is gone: y of y *= x; z += y ---- */

static int mul_add(const kvant_op *ops, fuse_links *l)
{
    const kvant_mul_args *m = ops[0].args;
    const kvant_add_args *a = ops[1].args;

    fuse_same(l, &m->y, m->y, &a->y, a->y);
    fuse_gone(l, &m->y);
    return m->n == a->n && m->d == a->d;
}

static void gone(void)
{
    static const fuse_form form = { "mul_add", 2, { KVANT_OP_MUL, KVANT_OP_ADD }, mul_add };
    const kvant_mul_args m = { mem, mem + 100, 2, D, D, D };
    const kvant_add_args a = { mem + 200, mem, 2, D }, again = { mem + 300, mem, 2, D },
                         apart = { mem + 200, mem + 300, 2, D }, more = { mem, mem + 300, 2, D };
    kvant_rows_copy_args all = { mem + 300, mem, .n = 2, .h = 1, .d = D, .ldx = D, .gx = D, .ldy = D, .gy = D };
    kvant_rows_copy_args part = all;
    kvant_op ops[5] = { { KVANT_OP_MUL, &m },
                        { KVANT_OP_ADD, &a },
                        { KVANT_OP_ADD, &apart },
                        { KVANT_OP_ROWS_COPY, &all },
                        { KVANT_OP_ADD, &again } };

    part.n = 1;
    CHECK(fuse_is(&form, ops, 5), "overwritten before it is read again");
    CHECK(!fuse_is(&form, ops, 3), "the list ends: whoever comes next may read it");
    ops[2].args = &again;
    CHECK(!fuse_is(&form, ops, 5), "read again behind the form");
    ops[2].args = &more;
    CHECK(!fuse_is(&form, ops, 5), "added to: read as well");
    ops[2] = (kvant_op){ KVANT_OP_ROWS_COPY, &part };
    CHECK(!fuse_is(&form, ops, 5), "overwritten in part");
    ops[2] = (kvant_op){ KVANT_OP_ADD, &apart };
    all.ldy = D + 1;
    CHECK(!fuse_is(&form, ops, 5), "overwritten with a gap between rows");
    all.ldy = D, all.x = mem + 4;
    CHECK(!fuse_is(&form, ops, 5), "copied from itself");
}

/* ---- the table ---- */

/* The ops of a device's own fusions exist, and so do the files. */
static void own(void)
{
    const char *devices[] = { "cpu" }, *name, *ops, *file;
    char path[160];
    int n = 0;

    for (int d = 0; d < 1; d++)
        for (int i = 0; fuse_own(devices[d], i, &name, &ops, &file); i++, n++) {
            snprintf(path, sizeof path, "src/devices/%s/%s", devices[d], file);
            CHECK(access(path, R_OK) == 0, "%s: no file", path);
            for (const char *w = ops; *w; w += strcspn(w, " "), w += *w == ' ') {
                int found = 0;
                for (int id = 0; id < KVANT_OP_COUNT; id++) {
                    const char *op = kvant_op_get(id)->name;
                    found |= strlen(op) == strcspn(w, " ") && strncmp(op, w, strlen(op)) == 0;
                }
                CHECK(found, "%s: %s names no op", name, w);
            }
        }
    CHECK(n >= 1 && !fuse_own("cuda", 0, &name, &ops, &file), "%d fusions of the CPU", n);
}

int main(void)
{
    for (int n = 1; n <= 3; n += 2) {
        norms_and_ropes(n);
        chains(n);
        pairs(n);
    }
    of_a_device();
    gone();
    own();
    for (int id = KVANT_OP_COUNT; id < FUSED_END; id++)
        CHECK(!here[id - KVANT_OP_COUNT] || matched[id - KVANT_OP_COUNT] > 0, "%s: no list of this test is one",
              fuse_get(id)->name);
    return check_end("check_fuse");
}
