/* golden_fixture_fused.c: fixtures of the public fused kernels, "fused_attn_qjl_tbq" and "fused_attn_qjl_polar":
 *
 *   sm_scale, head_dim, k_block_bytes, v_block_bytes, v_blocks_per_token, use_qjl (polar: values with their residual)
 *   cases[]   n_heads n_kv_heads n_kv q_sketch k_blocks v_blocks expected_out; causal 1: tokens 0 .. q_pos_base alone
 *
 * Held to 1e-3 as the others, by the two-pass reference on the CPU and by attn of the device. */
#include "verify/golden/golden_run.h"

#include <stdio.h>
#include <string.h>
#include "kvant/fused.h"
#include "kvant/qjl.h"

enum { HEAD = 128, K_BYTES = 34 };
static const double tolerance = 1e-3;

typedef struct fused_kind {
    const char *kernel, *v, *v_residual; /* v_residual: the format where use_qjl is 1 */
    int block_bytes, blocks;
    void (*ref)(const kvant_attn_fused *a);
} fused_kind;

static const fused_kind kinds[] = {
    { "fused_attn_qjl_tbq", "tbq3_0", NULL, 14, 4, kvant_attn_fused_qjl_tbq_ref },
    { "fused_attn_qjl_polar", "q4_polar", "q4_polar_r", 82, 1, kvant_attn_fused_qjl_polar_ref },
};

/* A case: what both ways take, and what is wanted. */
typedef struct fused {
    golden_run *run;
    const fused_kind *kind;
    kvant_attn_fused args;
    const float *want;
    size_t n_out;
    int number;
} fused;

static void judge(const fused *x, const char *where)
{
    const int bad = golden_compare(x->args.out, x->want, x->n_out, tolerance);

    golden_check(x->run, bad < 0, "%s on %s, case %d: value %d: %.9g, want %.9g within %g", x->kind->kernel, where,
                 x->number, bad, (double)x->args.out[bad < 0 ? 0 : bad], (double)x->want[bad < 0 ? 0 : bad], tolerance);
}

static void on_device(const fused *x)
{
    const kvant_attn_fused *a = &x->args;
    const golden_task t = { .k = kvant_format_find("qjl1_256"),
                            .v = kvant_format_find(a->v_use_qjl ? x->kind->v_residual : x->kind->v),
                            .k_rows = a->k,
                            .v_rows = a->v,
                            .query = a->q_sketch,
                            .heads = a->n_heads,
                            .kv_heads = a->n_kv_heads,
                            .n = a->n_tokens,
                            .d = HEAD,
                            .scale = a->sm_scale,
                            .out = a->out,
                            .visible = a->causal ? a->q_pos_base + 1 : a->n_tokens };
    kvant_diag why = { "" };
    const int code = golden_device_run(x->run->dev, &t, &why);

    golden_check(x->run, code == KVANT_OK, "%s on %s, case %d: %s", x->kind->kernel, x->run->dev->vt->name, x->number,
                 why.text);
    if (code == KVANT_OK)
        judge(x, x->run->dev->vt->name);
}

/* 0: the numbers of the case do not fit each other. */
static int read_case(fused *x, gjson root, gjson json)
{
    golden_run *r = x->run;
    kvant_attn_fused *a = &x->args;
    const double base = gjson_number(gjson_get(json, "q_pos_base"));
    size_t nq, nk, nv, n_want;

    *a = (kvant_attn_fused){ .n_q_pos = 1,
                             .n_heads = golden_number_of(json, "n_heads", 0),
                             .n_kv_heads = golden_number_of(json, "n_kv_heads", 0),
                             .n_tokens = golden_number_of(json, "n_kv", 0),
                             .sm_scale = (float)gjson_number(gjson_get(root, "sm_scale")),
                             .causal = gjson_number(gjson_get(json, "causal")) > 0.0,
                             .v_use_qjl = gjson_number(gjson_get(root, "use_qjl")) > 0.0 };
    a->q_sketch = golden_numbers(r, gjson_get(json, "q_sketch"), &nq);
    a->k = golden_decimal_bytes(r, gjson_get(json, "k_blocks"), &nk);
    a->v = golden_decimal_bytes(r, gjson_get(json, "v_blocks"), &nv);
    x->want = golden_numbers(r, gjson_get(json, "expected_out"), &n_want);
    x->n_out = (size_t)a->n_heads * HEAD;
    a->out = arena_alloc(&r->memory, (x->n_out + 1) * sizeof(float));
    const size_t rows = (size_t)a->n_kv_heads * (size_t)a->n_tokens;
    if (!a->out || !a->n_tokens || kvant_attn_fused_check(a, NULL) != KVANT_OK || !x->want || !(a->sm_scale > 0.0f) ||
        (a->causal && !(base >= 0.0 && base < a->n_tokens)) || (a->v_use_qjl && !x->kind->v_residual))
        return 0;
    a->q_pos_base = a->causal ? (int)base : 0;
    return nq == (size_t)a->n_heads * KVANT_QJL_SKETCH && nk == rows * K_BYTES && n_want == x->n_out &&
           nv == rows * (size_t)(x->kind->block_bytes * x->kind->blocks);
}

static void run_case(golden_run *r, const fused_kind *kind, gjson root, gjson json, int number)
{
    fused x = { .run = r, .kind = kind, .number = number };

    if (!read_case(&x, root, json)) {
        golden_check(r, 0,
                     "%s, case %d: wants n_heads, n_kv_heads, n_kv, sm_scale, q_sketch, k_blocks, v_blocks, "
                     "expected_out and, if causal, q_pos_base below n_kv that fit each other",
                     kind->kernel, number);
        return;
    }
    if (r->host) {
        kind->ref(&x.args);
        judge(&x, "the reference");
    }
    if (r->dev)
        on_device(&x);
}

static int fits(const fused_kind *kind, gjson root)
{
    return golden_number_of(root, "head_dim", 0) == HEAD && golden_number_of(root, "k_block_bytes", 0) == K_BYTES &&
           golden_number_of(root, "v_block_bytes", 0) == kind->block_bytes &&
           golden_number_of(root, "v_blocks_per_token", 0) == kind->blocks;
}

int golden_fixture_fused(golden_run *r, gjson root, const char *kernel)
{
    const fused_kind *kind = NULL;
    gjson it = { NULL, 0 }, cases = gjson_get(root, "cases");
    const size_t mark = r->memory.used;
    int n = 0;

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        kind = strcmp(kinds[i].kernel, kernel) == 0 ? &kinds[i] : kind;
    if (!kind)
        return 0;
    golden_check(r, fits(kind, root), "%s: wants head_dim %d and blocks of %d bytes, %d of %d a token", kernel, HEAD,
                 K_BYTES, kind->blocks, kind->block_bytes);
    while (fits(kind, root) && gjson_next(cases, &it)) {
        run_case(r, kind, root, it, n++);
        r->memory.used = mark;
    }
    golden_check(r, n > 0, "%s: no cases", kernel);
    snprintf(r->file->format, sizeof r->file->format, "fused %s", kind->v);
    return 1;
}
