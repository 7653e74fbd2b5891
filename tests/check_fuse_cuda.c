/* check_fuse_cuda.c: the fused forms of CUDA (src/ops/fuse/fused.def) on lists made by hand: the forms that run, how
 * one leaves a value to the next, and changes of a list that make it no form. */
#include "kvant/format.h"
#include "ops/fuse/fuse.h"
#include "support/check.h"

enum { D = 8, H = 2, H_KV = 1, LD = (H + 2 * H_KV) * D, F = 8, E = 6, MOST = 24 };

enum { ON_vulkan = 0, ON_portable = 0, ON_gpus = 0, ON_cuda = 1, ON_vulkan_cuda = 1 };
#define FUSED(ID, name, on, ins, links, where) ON_##on,
static const int on_cuda[FUSED_COUNT] = {
#include "ops/fuse/fused.def"
};

static float mem[16384];
static float *const q = mem, *const out = mem + 1000, *const stream = mem + 2000, *const delta = mem + 2400,
                    *const rows = mem + 2800, *const ff = mem + 3200, *const far = mem + 4000, *const w = mem + 5000,
                    *const more = mem + 6000, *const last = mem + 7000;
static int32_t *const ints = (int32_t *)(mem + 8000);
static int found[FUSED_COUNT];

/* ---- lists ---- */

typedef struct list {
    int n;
    kvant_op ops[MOST];
} list;

static void put(list *l, int id, const void *args)
{
    CHECK(l->n < MOST, "a longer list");
    l->ops[l->n++] = (kvant_op){ id, args };
}

/* The device takes all of CUDA's forms but those whose names are in `user`. */
static int takes(void *user, const kvant_op *op)
{
    const char *name = fuse_get(op->id)->name, *refused = user;
    const size_t n = strlen(name);

    for (const char *at = strstr(refused, name); at; at = strstr(at + 1, name))
        if ((at == refused || at[-1] == ' ') && (at[n] == ' ' || !at[n]))
            return 0;
    return on_cuda[fuse_id(op->id) - KVANT_OP_COUNT];
}

/* What runs, a word for each: the form and how it passes a value on, "-" for an op by itself. */
static void walk(const list *l, const char *refused, char *text, size_t cap)
{
    static const char *const passes[PASS_COUNT] = { "", ">rows", ">kept", ">halves", ">added" };
    kvant_op op = { 0, NULL };
    size_t at = 0;

    text[0] = 0;
    for (int i = 0; i < l->n && at < cap;) {
        const int took = fuse_next(l->ops + i, l->n - i, fuse_passes(op.id), takes, (void *)refused, &op);
        const fuse_form *form = fuse_get(op.id);
        CHECK(took == (form ? form->n_ops : 1) && op.args == (form ? (const void *)(l->ops + i) : l->ops[i].args),
              "op %d: %d ops", i, took);
        if (took < 1)
            return;
        found[form ? fuse_id(op.id) - KVANT_OP_COUNT : 0] += form != NULL;
        at += (size_t)snprintf(text + at, cap - at, "%s%s%s", i ? " " : "", form ? form->name : "-",
                               passes[fuse_passes(op.id)]);
        i += took;
    }
}

static void expect(const list *l, const char *refused, const char *want, const char *what)
{
    char text[512];

    walk(l, refused, text, sizeof text);
    CHECK(strcmp(text, want) == 0, "%s: \"%s\", wanted \"%s\"", what, text, want);
}

/* ---- heads, cache and attention ---- */

typedef struct heads {
    kvant_norm_rms_args nq, nk;
    kvant_rope_args rq, rk;
    kvant_cache_write_args wk, wv;
    kvant_page_seal_args sk, sv;
    kvant_attn_args a;
    kvant_weight wo;
    kvant_matmul_args o;
    kvant_rows_copy_args over;
    list l;
} heads;

/* n tokens; norms: 0 or 1; seals: 0 to 2; at the end the attention's rows are overwritten. */
static void make_heads(heads *h, int n, int norms, int seals)
{
    float *k = q + H * D, *v = k + H_KV * D;

    h->nq = (kvant_norm_rms_args){ q, w, q, 1e-6f, n, H, D, LD, D, LD, D };
    h->nk = (kvant_norm_rms_args){ k, w, k, 1e-6f, n, H_KV, D, LD, D, LD, D };
    h->rq = (kvant_rope_args){ q, ints, w + 100, 1.0f, 1, D, n, H, LD, D };
    h->rk = (kvant_rope_args){ k, ints, w + 100, 1.0f, 1, D, n, H_KV, LD, D };
    const kvant_seqs seqs = {
        .n_seqs = 1, .n_tokens = n, .q0 = ints + 8, .pos0 = ints + 8, .table = ints, .table_stride = 2
    };
    const kvant_kv_side ks = { .fmt = kvant_format_find("f16"),
                               .pages = (uint8_t *)(mem + 9000),
                               .tail = (uint16_t *)(mem + 9400) };
    kvant_kv_side vs = ks;
    vs.pages += 4000;
    vs.tail += 4000;
    h->wk = (kvant_cache_write_args){ seqs, ks, k, LD, H_KV, D };
    h->wv = (kvant_cache_write_args){ seqs, vs, v, LD, H_KV, D };
    h->sk = (kvant_page_seal_args){ ks, ints + 16, ints + 20, 1, H_KV, D };
    h->sv = (kvant_page_seal_args){ vs, ints + 16, ints + 20, 1, H_KV, D };
    h->a = (kvant_attn_args){ .seqs = seqs,
                              .k = ks,
                              .v = vs,
                              .q = q,
                              .out = out,
                              .ldq = LD,
                              .gq = D,
                              .ldo = H * D,
                              .h = H,
                              .h_kv = H_KV,
                              .d_k = D,
                              .d_v = D,
                              .scale = 1.0f,
                              .tail_pages = 1 };
    h->wo = (kvant_weight){ .n_in = H * D, .n_out = D, .n_expert = 1 };
    h->o = (kvant_matmul_args){ &h->wo, out, delta, n, H * D, D, KVANT_COMPUTE_AUTO };
    h->over = (kvant_rows_copy_args){ far,          out,         .n = n,       .h = 1,     .d = H * D,
                                      .ldx = H * D, .gx = H * D, .ldy = H * D, .gy = H * D };
    h->l.n = 0;
    if (norms) {
        put(&h->l, KVANT_OP_NORM_RMS, &h->nq);
        put(&h->l, KVANT_OP_NORM_RMS, &h->nk);
    }
    put(&h->l, KVANT_OP_ROPE, &h->rq);
    put(&h->l, KVANT_OP_ROPE, &h->rk);
    put(&h->l, KVANT_OP_CACHE_WRITE, &h->wk);
    put(&h->l, KVANT_OP_CACHE_WRITE, &h->wv);
    if (seals > 0)
        put(&h->l, KVANT_OP_PAGE_SEAL, &h->sk);
    if (seals > 1)
        put(&h->l, KVANT_OP_PAGE_SEAL, &h->sv);
    put(&h->l, KVANT_OP_ATTN, &h->a);
    put(&h->l, KVANT_OP_MATMUL, &h->o);
    put(&h->l, KVANT_OP_ROWS_COPY, &h->over);
}

/* Another walk where the expression has changed the lists. */
#define WITH(change, norms, seals, refused, want)                                                                      \
    make_heads(&h, n, norms, seals);                                                                                   \
    change;                                                                                                            \
    expect(&h.l, refused, want, #change)

static void attention(int n)
{
    const char *norm_wholes = "norm_rope_whole", *wholes = "rope_whole writes_attn",
               *norm_fronts = "norm_rope_whole norm_rope_attn";
    heads h;

    WITH((void)0, 1, 0, "", "norm_rope_whole - -");
    WITH((void)0, 1, 0, norm_wholes, "norm_rope_attn>halves halves_matmul -");
    WITH((void)0, 1, 1, "", "norm_rope_seal_attn>halves halves_matmul -");
    WITH((void)0, 1, 2, "", "norm_rope_seals_attn>halves halves_matmul -");
    WITH((void)0, 0, 0, "", "rope_whole - -");
    WITH((void)0, 0, 0, wholes, "rope_attn>halves halves_matmul -");
    WITH((void)0, 0, 1, "", "rope_seal_attn>halves halves_matmul -");
    WITH((void)0, 0, 2, "", "rope_seals_attn>halves halves_matmul -");
    WITH((void)0, 0, 2, "halves_matmul", "rope_seals_attn - -");
    WITH((void)0, 0, 2, "rope_seals_attn halves_matmul", "- - writes seals - - -");
    WITH((void)0, 1, 0, norm_fronts, "norm_rope writes_attn - -");
    WITH((void)0, 1, 2, "norm_rope_seals_attn", "norm_rope writes seals attn_halves>halves halves_matmul -");
    WITH(h.over.x = out, 1, 0, norm_wholes, "norm_rope_attn - -"); /* the rows are read again */
    WITH(h.l.n--, 1, 0, norm_wholes, "norm_rope_attn -");          /* whoever comes next may read them */
    WITH(h.o.x = far, 1, 0, norm_wholes, "norm_rope_attn - -");
    WITH(h.o.m = n + 1, 1, 0, norm_wholes, "norm_rope_attn - -");
    WITH(h.a.q = far, 1, 0, "", "norm_rope writes_attn - -");
    WITH(h.rk.pos = ints + 1, 1, 0, "", "norm_rope writes_attn - -");
    WITH(h.nk.ldy = LD + 1, 1, 0, "rope_whole rope_attn writes_attn",
         "- - - - writes attn_halves>halves halves_matmul -");
    WITH(h.wk.side.pages += 8, 1, 0, "", "norm_rope writes attn_halves>halves halves_matmul -");
    WITH(h.a.v.tail = NULL, 0, 0, "attn_halves", "- - writes - - -");
    WITH(h.wv.ldx = LD + 1, 0, 0, "attn_halves", "- - writes - - -");
    WITH(h.a.seqs.table_stride = 1, 0, 0, "attn_halves", "- - writes - - -");
    WITH(h.sv.dst = ints, 0, 2, "rope_seals_attn attn_halves", "- - writes - - - - -");
    WITH(h.over.x = q, 1, 0, "writes_attn attn_halves", "norm_rope writes - - -"); /* the turned queries are read */
    WITH(h.wv.d = D + 1, 0, 2, "attn_halves", "- - - - seals - - -");
    WITH(h.wv.side = h.wk.side, 0, 2, "attn_halves", "- - - - seals - - -"); /* both write the same pages */
}
#undef WITH

/* ---- norms and products ---- */

typedef struct products {
    kvant_weight wq, wu, wd, wr, we;
    kvant_norm_rms_args first;
    kvant_norm_add_rms_args norm;
    kvant_matmul_args mq, mk, mv, mx, up, down, router, gate;
    kvant_swiglu_args glu;
    kvant_moe_route_args route;
    kvant_rows_copy_args over, over_ff, over_delta;
    list l;
} products;

static void make_products(products *p, int m)
{
    p->wq = (kvant_weight){ .n_in = D, .n_out = D, .n_expert = 1 };
    p->wu = (kvant_weight){ .n_in = D, .n_out = 2 * F, .n_expert = 1 };
    p->wd = (kvant_weight){ .n_in = F, .n_out = D, .n_expert = 1 };
    p->wr = (kvant_weight){ .n_in = D, .n_out = E, .n_expert = 1 };
    p->we = (kvant_weight){ .n_in = D, .n_out = 1, .n_expert = 1 };
    p->first = (kvant_norm_rms_args){ stream, w, rows, 1e-6f, m, 1, D, D, D, D, D };
    p->norm = (kvant_norm_add_rms_args){ stream, delta, w, rows, 1e-6f, m, D };
    p->mq = (kvant_matmul_args){ &p->wq, rows, q, m, D, D, KVANT_COMPUTE_AUTO };
    p->mk = (kvant_matmul_args){ &p->wq, rows, out, m, D, D, KVANT_COMPUTE_AUTO };
    p->mv = (kvant_matmul_args){ &p->wq, rows, more, m, D, D, KVANT_COMPUTE_AUTO };
    p->mx = (kvant_matmul_args){ &p->wq, rows, last, m, D, D, KVANT_COMPUTE_AUTO };
    p->up = (kvant_matmul_args){ &p->wu, rows, ff, m, D, 2 * F, KVANT_COMPUTE_AUTO };
    p->glu = (kvant_swiglu_args){ ff, ff + F, ff, m, F, 2 * F, 2 * F, 2 * F };
    p->down = (kvant_matmul_args){ &p->wd, ff, delta, m, 2 * F, D, KVANT_COMPUTE_AUTO };
    p->router = (kvant_matmul_args){ &p->wr, rows, far, m, D, E, KVANT_COMPUTE_AUTO };
    p->gate = (kvant_matmul_args){ &p->we, rows, more, m, D, 1, KVANT_COMPUTE_AUTO };
    p->route = (kvant_moe_route_args){ .logits = far, .ids = ints, .wts = last, .n = m, .n_expert = E, .k = 2 };
    p->over = (kvant_rows_copy_args){ w, rows, .n = m, .h = 1, .d = D, .ldx = D, .gx = D, .ldy = D, .gy = D };
    p->over_ff = (kvant_rows_copy_args){ w,           ff,           .n = m,     .h = 1, .d = 2 * F, .ldx = 2 * F,
                                         .gx = 2 * F, .ldy = 2 * F, .gy = 2 * F };
    p->over_delta = p->over;
    p->over_delta.y = delta;
    p->l.n = 0;
}

/* The norm, query and key, gate and up to down, the next norm and query; all rows are overwritten at the end. */
static void put_layer(products *p)
{
    put(&p->l, KVANT_OP_NORM_ADD_RMS, &p->norm);
    put(&p->l, KVANT_OP_MATMUL, &p->mq);
    put(&p->l, KVANT_OP_MATMUL, &p->mk);
    put(&p->l, KVANT_OP_MATMUL, &p->up);
    put(&p->l, KVANT_OP_SWIGLU, &p->glu);
    put(&p->l, KVANT_OP_MATMUL, &p->down);
    put(&p->l, KVANT_OP_NORM_ADD_RMS, &p->norm);
    put(&p->l, KVANT_OP_MATMUL, &p->mq);
    put(&p->l, KVANT_OP_ROWS_COPY, &p->over);
    put(&p->l, KVANT_OP_ROWS_COPY, &p->over_ff);
    put(&p->l, KVANT_OP_ROWS_COPY, &p->over_delta);
}

#define CHAIN "rows_matmul>rows rows_matmul>rows rows_glu_matmul>halves halves_norm_rows>rows rows_matmul - - -"
#define WITH(change, refused, want)                                                                                    \
    make_products(&p, m);                                                                                              \
    put_layer(&p);                                                                                                     \
    change;                                                                                                            \
    expect(&p.l, refused, want, #change)

static void chains(int m)
{
    const char *few = "matmuls_2 matmuls_3 matmul_twins matmul_swiglu matmul_add added_matmul";
    products p;

    WITH((void)0, few, "norm_add_rows>rows " CHAIN);
    WITH(p.l.ops[0] = ((kvant_op){ KVANT_OP_NORM_RMS, &p.first }), few, "norm_rows>rows " CHAIN);
    WITH(
        p.over.x = rows, few, /* the last norm's rows are read again */
        "norm_add_rows>rows rows_matmul>rows rows_matmul>rows rows_glu_matmul>halves halves_norm_rows>kept rows_matmul - - -");
    WITH(p.over_ff.x = ff, few,
         "norm_add_rows>rows rows_matmul>rows rows_matmul>rows rows_matmul - narrow_matmul>halves "
         "halves_norm_rows>rows rows_matmul - - -");
    WITH(p.over_delta.x = delta, few,
         "norm_add_rows>rows rows_matmul>rows rows_matmul>rows rows_glu_matmul norm_add_rows>rows rows_matmul - - -");
    WITH(p.mk.x = far, few,
         "norm_add_rows>kept rows_matmul - glu_matmul>halves halves_norm_rows>rows rows_matmul - - -");
    WITH(p.mk.y = rows + 1, few,
         "norm_add_rows>kept rows_matmul - glu_matmul>halves halves_norm_rows>rows rows_matmul - - -");
    WITH(p.mq.ldx = D + 1, few, "- - narrow_matmul>rows rows_glu_matmul>halves halves_norm_rows - - - -");
    WITH(p.glu.f = F - 1, few,
         "norm_add_rows>rows rows_matmul>rows rows_matmul>rows rows_matmul - narrow_matmul>halves "
         "halves_norm_rows>rows rows_matmul - - -");
    WITH(p.norm.x = delta - 1, few,
         "norm_add_rows>rows rows_matmul>rows rows_matmul>rows rows_glu_matmul "
         "norm_add_rows>rows rows_matmul - - -");
    WITH(p.l.n -= 3, few, /* whoever comes next may read all of them */
         "norm_add_rows>rows rows_matmul>rows rows_matmul>rows rows_matmul - - norm_add_rows>kept rows_matmul");
    WITH((void)0,
         "norm_add_rows rows_matmul halves_norm_rows matmuls_2 matmul_twins matmul_swiglu matmul_add added_matmul",
         "- matmuls_3 - - - - - - -");
}

static void put_few(products *p, int n)
{
    const kvant_matmul_args *const all[4] = { &p->mq, &p->mk, &p->mv, &p->mx };
    for (int i = 0; i < n; i++)
        put(&p->l, KVANT_OP_MATMUL, all[i]);
}
#undef WITH
#define WITH(change, n, refused, want)                                                                                 \
    make_products(&p, m);                                                                                              \
    put_few(&p, n);                                                                                                    \
    change;                                                                                                            \
    expect(&p.l, refused, want, #change)

static void beside(int m)
{
    products p;

    WITH((void)0, 4, "", "matmuls_4");
    WITH((void)0, 3, "", "matmuls_3");
    WITH((void)0, 2, "", "matmuls_2");
    WITH((void)0, 4, "matmuls_4", "matmuls_3 -");
    WITH((void)0, 2, "matmuls_2", "matmul_twins");
    WITH((void)0, 3, "matmuls_3 matmuls_2 matmul_twins", "narrow_matmul>rows rows_matmul>rows rows_matmul");
    WITH(p.mx.y = p.mk.y + 1, 4, "", "matmuls_3 -");
    WITH(p.mv.x = far, 4, "", "matmuls_2 - -");
    WITH(p.mk.compute = KVANT_COMPUTE_F32, 2, "", "matmul_twins");
    WITH(p.mk.y = p.mq.y + 1, 2, "narrow_matmul", "- -");
    WITH(p.mk.w = &p.wr, 2, "matmuls_2 narrow_matmul", "- -");
    make_products(&p, m);
    put(&p.l, KVANT_OP_MATMUL, &p.up);
    put(&p.l, KVANT_OP_SWIGLU, &p.glu);
    expect(&p.l, "", "matmul_swiglu", "gate and up");
}
#undef WITH

/* A product, the norm of one row that it adds to, and what takes that. */
static void put_row(products *p, int next)
{
    put(&p->l, KVANT_OP_MATMUL, &p->down);
    put(&p->l, KVANT_OP_NORM_ADD_RMS, &p->norm);
    put(&p->l, KVANT_OP_MATMUL, next == 2 ? &p->up : next ? &p->router : &p->mq);
    if (next == 2)
        put(&p->l, KVANT_OP_SWIGLU, &p->glu);
    if (next == 4)
        put(&p->l, KVANT_OP_MATMUL, &p->gate);
    if (next > 2)
        put(&p->l, KVANT_OP_MOE_ROUTE, &p->route);
}
#define WITH(change, next, refused, want)                                                                              \
    make_products(&p, 1);                                                                                              \
    put_row(&p, next);                                                                                                 \
    change;                                                                                                            \
    expect(&p.l, refused, want, #change)

static void one_row(void)
{
    const char *blas = "norm_add_rows narrow_matmul matmuls_2 matmul_twins";
    products p;

    WITH((void)0, 0, blas, "matmul_add>added added_matmul");
    WITH(p.glu.gate = p.up.y = p.glu.y = far; p.glu.up = far + F, 2, blas, "matmul_add>added added_matmul_swiglu");
    WITH((void)0, 3, blas, "matmul_add>added added_route");
    WITH((void)0, 4, blas, "matmul_add>added added_route_gate");
    WITH((void)0, 4, "norm_add_rows narrow_matmul matmuls_2 matmul_twins added_route_gate",
         "matmul_add>added added_matmul - -");
    WITH((void)0, 3, "norm_add_rows narrow_matmul added_matmul added_route", "- - - -");
    WITH(p.norm.add = far, 0, blas, "- - -");
    WITH(p.norm.x = ff, 0, blas, "- - -"); /* the residual row where it reads */
    WITH(p.norm.y = stream + 1; p.mq.x = p.norm.y, 0, blas, "- - -");
    WITH(p.mq.x = far, 0, blas, "- - -");
    WITH(p.mq.y = stream, 0, blas, "- - -");
    WITH(p.down.m = 2, 0, blas, "- - -");
    WITH(p.route.logits = last + 100, 3, blas, "matmul_add>added added_matmul -");
    WITH(p.route.n_expert = E - 1, 3, blas, "matmul_add>added added_matmul -");
    WITH(p.wd.n_out = D - 1, 0, blas, "- - -");
}
#undef WITH

/* ---- experts ---- */

typedef struct experts {
    kvant_weight we, wd, ws, wsd;
    kvant_matmul_id_args up, down;
    kvant_matmul_args shared, shared_down;
    kvant_swiglu_args glu, shared_glu;
    kvant_moe_combine_args sum;
    kvant_gate_add_args gate;
    kvant_add_args add;
    kvant_norm_add_rms_args norm;
    kvant_matmul_args next;
    list l;
} experts;

/* shared: 0 none, 1 added, 2 by its gate. */
static void make_experts(experts *e, int n, int shared)
{
    enum { K = 2 };
    float *hidden = ff, *beside = ff + 200, *each = out, *each_shared = out + 200;

    e->we = (kvant_weight){ .n_in = D, .n_out = 2 * F, .n_expert = E };
    e->wd = (kvant_weight){ .n_in = F, .n_out = D, .n_expert = E };
    e->ws = e->we, e->wsd = e->wd;
    e->up = (kvant_matmul_id_args){ &e->we, rows, ints, hidden, n, K, K, D, KVANT_COMPUTE_AUTO };
    e->glu = (kvant_swiglu_args){ hidden, hidden + F, hidden, n * K, F, 2 * F, 2 * F, 2 * F };
    e->down = (kvant_matmul_id_args){ &e->wd, hidden, ints, each, n, K, 1, 2 * F, KVANT_COMPUTE_AUTO };
    e->shared = (kvant_matmul_args){ &e->ws, rows, beside, n, D, 2 * F, KVANT_COMPUTE_AUTO };
    e->shared_glu = (kvant_swiglu_args){ beside, beside + F, beside, n, F, 2 * F, 2 * F, 2 * F };
    e->shared_down = (kvant_matmul_args){ &e->wsd, beside, each_shared, n, 2 * F, D, KVANT_COMPUTE_AUTO };
    e->sum = (kvant_moe_combine_args){ each, last, delta, n, K, D };
    e->gate = (kvant_gate_add_args){ delta, each_shared, more, n, D };
    e->add = (kvant_add_args){ delta, each_shared, n, D };
    e->norm = (kvant_norm_add_rms_args){ stream, delta, w, far, 1e-6f, n, D };
    e->next = (kvant_matmul_args){ &e->ws, far, far + 200, n, D, 2 * F, KVANT_COMPUTE_AUTO };
    e->l.n = 0;
    put(&e->l, KVANT_OP_MATMUL_ID, &e->up);
    put(&e->l, KVANT_OP_SWIGLU, &e->glu);
    put(&e->l, KVANT_OP_MATMUL_ID, &e->down);
    if (shared) {
        put(&e->l, KVANT_OP_MATMUL, &e->shared);
        put(&e->l, KVANT_OP_SWIGLU, &e->shared_glu);
        put(&e->l, KVANT_OP_MATMUL, &e->shared_down);
    }
    put(&e->l, KVANT_OP_MOE_COMBINE, &e->sum);
    if (shared)
        put(&e->l, shared == 2 ? KVANT_OP_GATE_ADD : KVANT_OP_ADD, shared == 2 ? (const void *)&e->gate : &e->add);
    put(&e->l, KVANT_OP_NORM_ADD_RMS, &e->norm);
    put(&e->l, KVANT_OP_MATMUL, &e->next);
}
#define WITH(change, n, shared, refused, want)                                                                         \
    make_experts(&e, n, shared);                                                                                       \
    change;                                                                                                            \
    expect(&e.l, refused, want, #change)

static void experts_of_tokens(void)
{
    const char *blas = "norm_add_rows narrow_matmul glu_matmul",
               *sums = "norm_add_rows narrow_matmul glu_matmul combine_norm combine_shared_norm combine_gated_norm";
    experts e;

    WITH((void)0, 1, 0, blas, "experts>added added_matmul");
    WITH((void)0, 1, 1, blas, "experts_shared>added added_matmul");
    WITH((void)0, 1, 2, blas, "experts_gated>added added_matmul");
    WITH(e.norm.add = more, 1, 0, blas, "experts - -");
    WITH((void)0, 2, 0, blas, "experts_sorted combine_norm -");
    WITH((void)0, 2, 1, blas, "experts_sorted matmul_swiglu - combine_shared_norm -");
    WITH((void)0, 2, 2, "norm_add_rows narrow_matmul glu_matmul experts_sorted",
         "matmul_id_swiglu - matmul_swiglu - combine_gated_norm -");
    WITH(e.down.ids = ints + 50, 1, 0, sums, "matmul_id_swiglu - - - -");
    WITH(e.sum.x = far, 1, 0, sums, "experts_sorted - - -");
    WITH(e.up.compute = KVANT_COMPUTE_F32, 1, 0, sums, "experts_sorted - - -");
    WITH(e.shared.x = far, 1, 1, sums, "experts_sorted matmul_swiglu - - - - -");
    WITH(e.add.y = far, 1, 1, sums, "experts_sorted matmul_swiglu - - - - -");
    WITH(e.next.x = out; e.next.m = 1, 1, 0, sums, "experts_sorted - - -"); /* what experts give is read */
    WITH(e.glu.up = ff + F + 1, 2, 0, "norm_add_rows experts_sorted", "- - - combine_norm -");
    WITH(e.norm.add = more, 2, 0, blas, "experts_sorted - - -");
    WITH(e.gate.y = more, 2, 2, blas, "experts_sorted matmul_swiglu - - - - -");
    WITH(e.norm.y = stream, 2, 0, blas, "experts_sorted - - -");
}
#undef WITH

/* ---- the gated delta rule ---- */

typedef struct delta_ops {
    kvant_weight wg;
    kvant_matmul_args mb, ma;
    kvant_conv_args c;
    kvant_norm_l2_args l2;
    kvant_gdn_gates_args s;
    kvant_gdn_args g;
    kvant_norm_gated_args o;
    list l;
} delta_ops;

static void make_delta(delta_ops *d, int n)
{
    enum { HK = 1, HV = 2, C = (2 * HK + HV) * D };
    const kvant_seqs seqs = {
        .n_seqs = 1, .n_tokens = n, .q0 = ints, .pos0 = ints, .slot_in = ints + 4, .slot_out = ints + 8
    };
    float *y = out, *alpha = more, *beta = more + 100;

    d->wg = (kvant_weight){ .n_in = D, .n_out = HV, .n_expert = 1 };
    d->mb = (kvant_matmul_args){ &d->wg, rows, beta, n, D, HV, KVANT_COMPUTE_AUTO };
    d->ma = (kvant_matmul_args){ &d->wg, rows, alpha, n, D, HV, KVANT_COMPUTE_AUTO };
    d->c = (kvant_conv_args){ seqs, q, w, mem + 9000, y, C, 4, C * 3, C, NULL, 0 };
    d->l2 = (kvant_norm_l2_args){ y, 1e-6f, n, 2 * HK, D, C, D };
    d->s = (kvant_gdn_gates_args){ alpha, beta, w, w + 100, n, HV, 0 };
    d->g = (kvant_gdn_args){ .seqs = seqs,
                             .q = y,
                             .k = y + HK * D,
                             .v = y + 2 * HK * D,
                             .g = alpha,
                             .beta = beta,
                             .state = mem + 9800,
                             .o = ff,
                             .hk = HK,
                             .hv = HV,
                             .dk = D,
                             .dv = D,
                             .ldq = C,
                             .ldk = C,
                             .ldv = C,
                             .slot_stride = HV * D * D };
    d->o = (kvant_norm_gated_args){ ff, q, w, ff, 1e-6f, n, HV, D, C };
    d->l.n = 0;
    put(&d->l, KVANT_OP_MATMUL, &d->mb);
    put(&d->l, KVANT_OP_MATMUL, &d->ma);
    put(&d->l, KVANT_OP_CONV_STEP, &d->c);
    put(&d->l, KVANT_OP_NORM_L2, &d->l2);
    put(&d->l, KVANT_OP_GDN_GATES, &d->s);
    put(&d->l, KVANT_OP_GDN_STEP, &d->g);
    put(&d->l, KVANT_OP_NORM_GATED, &d->o);
}
#define WITH(change, refused, want)                                                                                    \
    make_delta(&d, n);                                                                                                 \
    change;                                                                                                            \
    expect(&d.l, refused, want, #change)

static void delta_rule(int n)
{
    const char *apart = "gates_delta matmuls_2 matmul_twins narrow_matmul";
    delta_ops d;

    WITH((void)0, "", "gates_delta");
    WITH((void)0, apart, "- - delta_step");
    WITH((void)0, "gates_delta delta_step", "matmuls_2 - - - delta_out");
    WITH(d.ma.x = far, apart, "- - delta_step");
    WITH(d.ma.x = far, "matmuls_2 matmul_twins narrow_matmul", "- - delta_step");
    WITH(d.mb.y = d.s.alpha, "matmuls_2 matmul_twins narrow_matmul", "- - delta_step");
    WITH(d.c.linear = 1, apart, "- - - - - delta_out");
    WITH(d.l2.x = far, apart, "- - - - - delta_out");
    WITH(d.s.channels = D, apart, "- - - - - delta_out");
    WITH(d.g.g = far, apart, "- - - - - delta_out");
    WITH(d.g.seqs.slot_in = ints, apart, "- - - - - delta_out");
    WITH(d.g.per_channel = 1, apart, "- - - - - - -");
    WITH(d.o.o = far, apart, "- - - - - - -");
    WITH(d.o.n = n + 1, apart, "- - - - - - -");
    WITH(d.o.y = far, apart, "- - delta_step");
    d.l.n = 0; /* rows that go into states: the gates are there */
    put(&d.l, KVANT_OP_CONV_STEP, &d.c);
    put(&d.l, KVANT_OP_NORM_L2, &d.l2);
    put(&d.l, KVANT_OP_GDN_STEP, &d.g);
    expect(&d.l, "", "delta_fold", "fold");
    d.g.seqs.slot_out = ints;
    expect(&d.l, "", "- - -", "another slot");
}
#undef WITH

int main(void)
{
    for (int n = 1; n <= 3; n += 2) {
        attention(n);
        chains(n + 1);
        beside(n);
        delta_rule(n);
    }
    one_row();
    experts_of_tokens();
    for (int i = 0; i < FUSED_COUNT; i++)
        CHECK(!on_cuda[i] || found[i] > 0, "%s: no list of this test is one", fuse_get(KVANT_OP_COUNT + i)->name);
    return check_end("check_fuse_cuda");
}
