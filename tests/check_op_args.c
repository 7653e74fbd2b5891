/* check_op_args.c: kvant_op_check refuses every precondition that is broken, one at a time, with a message that names
 * the op; and accepts the same arguments unbroken, and empty batches. */
#include <stdint.h>
#include "support/check.h"
#include "kvant/ops.h"

static float buffer_a[64], buffer_b[64], buffer_c[64], buffer_d[64];
static int32_t ints[64];
static uint8_t bytes[64];

/* good with one field changed must be refused. */
#define REFUSE(type, id, good, field, value)                                                                           \
    do {                                                                                                               \
        type broken = good;                                                                                            \
        broken.field = value;                                                                                          \
        refuse(id, &broken, #type ": " #field " = " #value);                                                           \
    } while (0)

static void refuse(int id, const void *args, const char *what)
{
    kvant_diag diag = { "" };
    const int rc = kvant_op_check(id, args, &diag);

    CHECK(rc == KVANT_EINVAL, "%s was accepted", what);
    CHECK(rc == KVANT_OK || strstr(diag.text, kvant_op_get(id)->name) != NULL || strstr(diag.text, "head_dim") != NULL,
          "%s: the message does not name the op: '%s'", what, diag.text);
}

static void accept(int id, const void *args, const char *what)
{
    kvant_diag diag = { "" };

    CHECK(kvant_op_check(id, args, &diag) == KVANT_OK, "%s was refused: %s", what, diag.text);
    CHECK(kvant_op_check(id, args, NULL) == KVANT_OK, "%s without a diag", what);
}

static void embed(void)
{
    static const float numbers[64];
    const kvant_weight w = {
        .type = kvant_wtype_find("Q8_0"), .data = numbers, .n_in = 32, .n_out = 2, .n_expert = 1, .name = "w"
    };
    const kvant_embed_args good = { .w = &w, .ids = ints, .y = buffer_a, .n = 1 };

    accept(KVANT_OP_EMBED, &good, "embed");
    REFUSE(kvant_embed_args, KVANT_OP_EMBED, good, n, -1);
    REFUSE(kvant_embed_args, KVANT_OP_EMBED, good, w, NULL);
    REFUSE(kvant_embed_args, KVANT_OP_EMBED, good, ids, NULL);
    REFUSE(kvant_embed_args, KVANT_OP_EMBED, good, y, NULL);
    kvant_embed_args empty = good;
    empty.n = 0;
    empty.ids = NULL;
    empty.y = NULL;
    accept(KVANT_OP_EMBED, &empty, "embed of nothing");
}

static void norm_rms(void)
{
    const kvant_norm_rms_args good = { .x = buffer_a,
                                       .w = buffer_b,
                                       .y = buffer_c,
                                       .eps = 1e-6f,
                                       .n = 2,
                                       .h = 2,
                                       .d = 8,
                                       .ldx = 16,
                                       .gx = 8,
                                       .ldy = 16,
                                       .gy = 8 };

    accept(KVANT_OP_NORM_RMS, &good, "norm_rms");
    REFUSE(kvant_norm_rms_args, KVANT_OP_NORM_RMS, good, n, -1);
    REFUSE(kvant_norm_rms_args, KVANT_OP_NORM_RMS, good, h, 0);
    REFUSE(kvant_norm_rms_args, KVANT_OP_NORM_RMS, good, d, 0);
    REFUSE(kvant_norm_rms_args, KVANT_OP_NORM_RMS, good, x, NULL);
    REFUSE(kvant_norm_rms_args, KVANT_OP_NORM_RMS, good, w, NULL);
    REFUSE(kvant_norm_rms_args, KVANT_OP_NORM_RMS, good, y, NULL);
    REFUSE(kvant_norm_rms_args, KVANT_OP_NORM_RMS, good, ldx, 15);
    REFUSE(kvant_norm_rms_args, KVANT_OP_NORM_RMS, good, gx, 7);
    REFUSE(kvant_norm_rms_args, KVANT_OP_NORM_RMS, good, ldy, 15);
    REFUSE(kvant_norm_rms_args, KVANT_OP_NORM_RMS, good, gy, 7);
    REFUSE(kvant_norm_rms_args, KVANT_OP_NORM_RMS, good, eps, -1.0f);
    REFUSE(kvant_norm_rms_args, KVANT_OP_NORM_RMS, good, eps, NAN);
    REFUSE(kvant_norm_rms_args, KVANT_OP_NORM_RMS, good, eps, 2.0f);
    kvant_norm_rms_args empty = good;
    empty.n = 0;
    empty.x = NULL;
    empty.w = NULL;
    empty.y = NULL;
    accept(KVANT_OP_NORM_RMS, &empty, "norm_rms of nothing");
}

static void norm_add_rms(void)
{
    const kvant_norm_add_rms_args good = {
        .x = buffer_a, .add = buffer_b, .w = buffer_c, .y = buffer_d, .eps = 1e-6f, .n = 2, .d = 8
    };

    accept(KVANT_OP_NORM_ADD_RMS, &good, "norm_add_rms");
    REFUSE(kvant_norm_add_rms_args, KVANT_OP_NORM_ADD_RMS, good, n, -1);
    REFUSE(kvant_norm_add_rms_args, KVANT_OP_NORM_ADD_RMS, good, d, 0);
    REFUSE(kvant_norm_add_rms_args, KVANT_OP_NORM_ADD_RMS, good, x, NULL);
    REFUSE(kvant_norm_add_rms_args, KVANT_OP_NORM_ADD_RMS, good, add, NULL);
    REFUSE(kvant_norm_add_rms_args, KVANT_OP_NORM_ADD_RMS, good, w, NULL);
    REFUSE(kvant_norm_add_rms_args, KVANT_OP_NORM_ADD_RMS, good, y, NULL);
    REFUSE(kvant_norm_add_rms_args, KVANT_OP_NORM_ADD_RMS, good, y, buffer_a);
    REFUSE(kvant_norm_add_rms_args, KVANT_OP_NORM_ADD_RMS, good, y, buffer_b);
    REFUSE(kvant_norm_add_rms_args, KVANT_OP_NORM_ADD_RMS, good, add, buffer_a);
    REFUSE(kvant_norm_add_rms_args, KVANT_OP_NORM_ADD_RMS, good, eps, NAN);
    kvant_norm_add_rms_args empty = good;
    empty.n = 0;
    empty.x = NULL;
    accept(KVANT_OP_NORM_ADD_RMS, &empty, "norm_add_rms of nothing");
}

static void add(void)
{
    const kvant_add_args good = { .x = buffer_a, .y = buffer_b, .n = 1, .d = 3 };

    accept(KVANT_OP_ADD, &good, "add");
    REFUSE(kvant_add_args, KVANT_OP_ADD, good, n, -1);
    REFUSE(kvant_add_args, KVANT_OP_ADD, good, d, -3);
    REFUSE(kvant_add_args, KVANT_OP_ADD, good, x, NULL);
    REFUSE(kvant_add_args, KVANT_OP_ADD, good, y, NULL);
    kvant_add_args empty = good;
    empty.n = 0;
    empty.x = NULL;
    empty.y = NULL;
    accept(KVANT_OP_ADD, &empty, "add of nothing");
}

static void norm_l2(void)
{
    const kvant_norm_l2_args good = { .x = buffer_a, .eps = 1e-6f, .n = 2, .h = 2, .d = 8, .ldx = 16, .gx = 8 };

    accept(KVANT_OP_NORM_L2, &good, "norm_l2");
    REFUSE(kvant_norm_l2_args, KVANT_OP_NORM_L2, good, n, -1);
    REFUSE(kvant_norm_l2_args, KVANT_OP_NORM_L2, good, h, 0);
    REFUSE(kvant_norm_l2_args, KVANT_OP_NORM_L2, good, d, 0);
    REFUSE(kvant_norm_l2_args, KVANT_OP_NORM_L2, good, x, NULL);
    REFUSE(kvant_norm_l2_args, KVANT_OP_NORM_L2, good, ldx, 15);
    REFUSE(kvant_norm_l2_args, KVANT_OP_NORM_L2, good, gx, 7);
    REFUSE(kvant_norm_l2_args, KVANT_OP_NORM_L2, good, eps, -1.0f);
    kvant_norm_l2_args empty = good;
    empty.n = 0;
    empty.x = NULL;
    accept(KVANT_OP_NORM_L2, &empty, "norm_l2 of nothing");
}

static void rope(void)
{
    const kvant_rope_args good = { .x = buffer_a,
                                   .pos = ints,
                                   .inv_freq = buffer_b,
                                   .mscale = 1,
                                   .neox = 1,
                                   .n_rot = 8,
                                   .n = 2,
                                   .h = 2,
                                   .ldx = 16,
                                   .gx = 8 };

    accept(KVANT_OP_ROPE, &good, "rope");
    REFUSE(kvant_rope_args, KVANT_OP_ROPE, good, n, -1);
    REFUSE(kvant_rope_args, KVANT_OP_ROPE, good, n_rot, 0);
    REFUSE(kvant_rope_args, KVANT_OP_ROPE, good, n_rot, 7);
    REFUSE(kvant_rope_args, KVANT_OP_ROPE, good, neox, 2);
    REFUSE(kvant_rope_args, KVANT_OP_ROPE, good, h, 0);
    REFUSE(kvant_rope_args, KVANT_OP_ROPE, good, ldx, 15);
    REFUSE(kvant_rope_args, KVANT_OP_ROPE, good, gx, 7);
    REFUSE(kvant_rope_args, KVANT_OP_ROPE, good, x, NULL);
    REFUSE(kvant_rope_args, KVANT_OP_ROPE, good, pos, NULL);
    REFUSE(kvant_rope_args, KVANT_OP_ROPE, good, inv_freq, NULL);
    kvant_rope_args empty = good;
    empty.n = 0;
    empty.x = NULL;
    accept(KVANT_OP_ROPE, &empty, "rope of nothing");
}

static void swiglu(void)
{
    const kvant_swiglu_args good = {
        .gate = buffer_a, .up = buffer_b, .y = buffer_c, .n = 2, .f = 8, .ldg = 16, .ldu = 16, .ldy = 8
    };

    accept(KVANT_OP_SWIGLU, &good, "swiglu");
    REFUSE(kvant_swiglu_args, KVANT_OP_SWIGLU, good, n, -1);
    REFUSE(kvant_swiglu_args, KVANT_OP_SWIGLU, good, f, 0);
    REFUSE(kvant_swiglu_args, KVANT_OP_SWIGLU, good, ldg, 7);
    REFUSE(kvant_swiglu_args, KVANT_OP_SWIGLU, good, ldu, 7);
    REFUSE(kvant_swiglu_args, KVANT_OP_SWIGLU, good, ldy, 7);
    REFUSE(kvant_swiglu_args, KVANT_OP_SWIGLU, good, gate, NULL);
    REFUSE(kvant_swiglu_args, KVANT_OP_SWIGLU, good, up, NULL);
    REFUSE(kvant_swiglu_args, KVANT_OP_SWIGLU, good, y, NULL);
    REFUSE(kvant_swiglu_args, KVANT_OP_SWIGLU, good, y, buffer_a);
    kvant_swiglu_args empty = good;
    empty.n = 0;
    empty.y = NULL;
    accept(KVANT_OP_SWIGLU, &empty, "swiglu of nothing");
}

static void gate_mul(void)
{
    const kvant_gate_mul_args good = {
        .y = buffer_a, .gate = buffer_b, .n = 2, .h = 2, .d = 4, .ldy = 8, .gy = 4, .ldg = 16, .gg = 8
    };

    accept(KVANT_OP_GATE_MUL, &good, "gate_mul");
    REFUSE(kvant_gate_mul_args, KVANT_OP_GATE_MUL, good, n, -1);
    REFUSE(kvant_gate_mul_args, KVANT_OP_GATE_MUL, good, h, 0);
    REFUSE(kvant_gate_mul_args, KVANT_OP_GATE_MUL, good, d, 0);
    REFUSE(kvant_gate_mul_args, KVANT_OP_GATE_MUL, good, ldy, 7);
    REFUSE(kvant_gate_mul_args, KVANT_OP_GATE_MUL, good, gy, 3);
    REFUSE(kvant_gate_mul_args, KVANT_OP_GATE_MUL, good, ldg, 11);
    REFUSE(kvant_gate_mul_args, KVANT_OP_GATE_MUL, good, gg, 3);
    REFUSE(kvant_gate_mul_args, KVANT_OP_GATE_MUL, good, y, NULL);
    REFUSE(kvant_gate_mul_args, KVANT_OP_GATE_MUL, good, gate, NULL);
    kvant_gate_mul_args empty = good;
    empty.n = 0;
    empty.y = NULL;
    accept(KVANT_OP_GATE_MUL, &empty, "gate_mul of nothing");
}

static void gate_add(void)
{
    const kvant_gate_add_args good = { .y = buffer_a, .x = buffer_b, .gate = buffer_c, .n = 1, .d = 4 };

    accept(KVANT_OP_GATE_ADD, &good, "gate_add");
    REFUSE(kvant_gate_add_args, KVANT_OP_GATE_ADD, good, n, -1);
    REFUSE(kvant_gate_add_args, KVANT_OP_GATE_ADD, good, d, 0);
    REFUSE(kvant_gate_add_args, KVANT_OP_GATE_ADD, good, y, NULL);
    REFUSE(kvant_gate_add_args, KVANT_OP_GATE_ADD, good, x, NULL);
    REFUSE(kvant_gate_add_args, KVANT_OP_GATE_ADD, good, gate, NULL);
    kvant_gate_add_args empty = good;
    empty.n = 0;
    empty.y = NULL;
    accept(KVANT_OP_GATE_ADD, &empty, "gate_add of nothing");
}

static void matmul(void)
{
    static const float numbers[64];
    const kvant_weight w = {
        .type = kvant_wtype_find("Q8_0"), .data = numbers, .n_in = 32, .n_out = 2, .n_expert = 1, .name = "w"
    };
    const kvant_matmul_args good = { .w = &w, .x = buffer_a, .y = buffer_b, .m = 2, .ldx = 32, .ldy = 2 };

    accept(KVANT_OP_MATMUL, &good, "matmul");
    REFUSE(kvant_matmul_args, KVANT_OP_MATMUL, good, m, -1);
    REFUSE(kvant_matmul_args, KVANT_OP_MATMUL, good, w, NULL);
    REFUSE(kvant_matmul_args, KVANT_OP_MATMUL, good, x, NULL);
    REFUSE(kvant_matmul_args, KVANT_OP_MATMUL, good, y, NULL);
    REFUSE(kvant_matmul_args, KVANT_OP_MATMUL, good, y, buffer_a);
    REFUSE(kvant_matmul_args, KVANT_OP_MATMUL, good, ldx, 31);
    REFUSE(kvant_matmul_args, KVANT_OP_MATMUL, good, ldy, 1);
    REFUSE(kvant_matmul_args, KVANT_OP_MATMUL, good, compute, 2);
    kvant_matmul_args empty = good;
    empty.m = 0;
    empty.x = NULL;
    accept(KVANT_OP_MATMUL, &empty, "matmul of nothing");
}

static void matmul_id(void)
{
    static const float numbers[64];
    const kvant_weight w = {
        .type = kvant_wtype_find("Q8_0"), .data = numbers, .n_in = 32, .n_out = 2, .n_expert = 4, .name = "w"
    };
    const kvant_matmul_id_args good = {
        .w = &w, .x = buffer_a, .ids = ints, .y = buffer_b, .n = 1, .k = 2, .x_div = 2, .ldx = 32
    };

    accept(KVANT_OP_MATMUL_ID, &good, "matmul_id");
    REFUSE(kvant_matmul_id_args, KVANT_OP_MATMUL_ID, good, n, -1);
    REFUSE(kvant_matmul_id_args, KVANT_OP_MATMUL_ID, good, w, NULL);
    REFUSE(kvant_matmul_id_args, KVANT_OP_MATMUL_ID, good, k, 0);
    REFUSE(kvant_matmul_id_args, KVANT_OP_MATMUL_ID, good, k, 5);
    REFUSE(kvant_matmul_id_args, KVANT_OP_MATMUL_ID, good, x_div, 3);
    REFUSE(kvant_matmul_id_args, KVANT_OP_MATMUL_ID, good, x_div, 0);
    REFUSE(kvant_matmul_id_args, KVANT_OP_MATMUL_ID, good, x, NULL);
    REFUSE(kvant_matmul_id_args, KVANT_OP_MATMUL_ID, good, ids, NULL);
    REFUSE(kvant_matmul_id_args, KVANT_OP_MATMUL_ID, good, y, NULL);
    REFUSE(kvant_matmul_id_args, KVANT_OP_MATMUL_ID, good, compute, -1);
    kvant_matmul_id_args empty = good;
    empty.n = 0;
    empty.x = NULL;
    accept(KVANT_OP_MATMUL_ID, &empty, "matmul_id of nothing");
}

static void moe_route(void)
{
    const kvant_moe_route_args good = {
        .logits = buffer_a, .ids = ints, .wts = buffer_b, .n = 1, .n_expert = 4, .k = 2, .scale = 1
    };

    accept(KVANT_OP_MOE_ROUTE, &good, "moe_route");
    REFUSE(kvant_moe_route_args, KVANT_OP_MOE_ROUTE, good, n, -1);
    REFUSE(kvant_moe_route_args, KVANT_OP_MOE_ROUTE, good, n_expert, 0);
    REFUSE(kvant_moe_route_args, KVANT_OP_MOE_ROUTE, good, k, 0);
    REFUSE(kvant_moe_route_args, KVANT_OP_MOE_ROUTE, good, k, 5);
    REFUSE(kvant_moe_route_args, KVANT_OP_MOE_ROUTE, good, logits, NULL);
    REFUSE(kvant_moe_route_args, KVANT_OP_MOE_ROUTE, good, ids, NULL);
    REFUSE(kvant_moe_route_args, KVANT_OP_MOE_ROUTE, good, wts, NULL);
    kvant_moe_route_args empty = good;
    empty.n = 0;
    empty.logits = NULL;
    accept(KVANT_OP_MOE_ROUTE, &empty, "moe_route of nothing");
}

static void moe_combine(void)
{
    const kvant_moe_combine_args good = { .x = buffer_a, .wts = buffer_b, .y = buffer_c, .n = 1, .k = 2, .d = 4 };

    accept(KVANT_OP_MOE_COMBINE, &good, "moe_combine");
    REFUSE(kvant_moe_combine_args, KVANT_OP_MOE_COMBINE, good, n, -1);
    REFUSE(kvant_moe_combine_args, KVANT_OP_MOE_COMBINE, good, k, 0);
    REFUSE(kvant_moe_combine_args, KVANT_OP_MOE_COMBINE, good, d, 0);
    REFUSE(kvant_moe_combine_args, KVANT_OP_MOE_COMBINE, good, x, NULL);
    REFUSE(kvant_moe_combine_args, KVANT_OP_MOE_COMBINE, good, wts, NULL);
    REFUSE(kvant_moe_combine_args, KVANT_OP_MOE_COMBINE, good, y, NULL);
    REFUSE(kvant_moe_combine_args, KVANT_OP_MOE_COMBINE, good, y, buffer_a);
    kvant_moe_combine_args empty = good;
    empty.n = 0;
    empty.x = NULL;
    accept(KVANT_OP_MOE_COMBINE, &empty, "moe_combine of nothing");
}

static void rows_gather(void)
{
    const kvant_rows_gather_args good = { .x = buffer_a, .idx = ints, .y = buffer_b, .n = 1, .d = 4 };

    accept(KVANT_OP_ROWS_GATHER, &good, "rows_gather");
    REFUSE(kvant_rows_gather_args, KVANT_OP_ROWS_GATHER, good, n, -1);
    REFUSE(kvant_rows_gather_args, KVANT_OP_ROWS_GATHER, good, d, 0);
    REFUSE(kvant_rows_gather_args, KVANT_OP_ROWS_GATHER, good, x, NULL);
    REFUSE(kvant_rows_gather_args, KVANT_OP_ROWS_GATHER, good, idx, NULL);
    REFUSE(kvant_rows_gather_args, KVANT_OP_ROWS_GATHER, good, y, NULL);
    REFUSE(kvant_rows_gather_args, KVANT_OP_ROWS_GATHER, good, y, buffer_a);
    kvant_rows_gather_args empty = good;
    empty.n = 0;
    empty.x = NULL;
    accept(KVANT_OP_ROWS_GATHER, &empty, "rows_gather of nothing");
}

static void argmax(void)
{
    const kvant_argmax_args good = { .x = buffer_a, .ids = ints, .n = 1, .d = 4 };

    accept(KVANT_OP_ARGMAX, &good, "argmax");
    REFUSE(kvant_argmax_args, KVANT_OP_ARGMAX, good, n, -1);
    REFUSE(kvant_argmax_args, KVANT_OP_ARGMAX, good, d, 0);
    REFUSE(kvant_argmax_args, KVANT_OP_ARGMAX, good, x, NULL);
    REFUSE(kvant_argmax_args, KVANT_OP_ARGMAX, good, ids, NULL);
    kvant_argmax_args empty = good;
    empty.n = 0;
    empty.x = NULL;
    accept(KVANT_OP_ARGMAX, &empty, "argmax of nothing");
}

static void top_k(void)
{
    const kvant_top_k_args good = { .x = buffer_a, .values = buffer_b, .ids = ints, .n = 1, .d = 4, .k = 2 };

    accept(KVANT_OP_TOP_K, &good, "top_k");
    REFUSE(kvant_top_k_args, KVANT_OP_TOP_K, good, n, -1);
    REFUSE(kvant_top_k_args, KVANT_OP_TOP_K, good, d, 0);
    REFUSE(kvant_top_k_args, KVANT_OP_TOP_K, good, k, 0);
    REFUSE(kvant_top_k_args, KVANT_OP_TOP_K, good, k, KVANT_TOP_K_MOST + 1);
    REFUSE(kvant_top_k_args, KVANT_OP_TOP_K, good, x, NULL);
    REFUSE(kvant_top_k_args, KVANT_OP_TOP_K, good, values, NULL);
    REFUSE(kvant_top_k_args, KVANT_OP_TOP_K, good, ids, NULL);
    kvant_top_k_args empty = good;
    empty.n = 0;
    empty.x = NULL;
    accept(KVANT_OP_TOP_K, &empty, "top_k of nothing");
}

static void cache_write(void)
{
    const kvant_seqs seqs = { .n_seqs = 1,
                              .n_tokens = 2,
                              .q0 = ints,
                              .pos0 = ints,
                              .prompt = ints,
                              .table = ints,
                              .tail_table = ints,
                              .table_stride = 2,
                              .slot_in = ints,
                              .slot_out = ints };
    const kvant_kv_side side = { .fmt = kvant_format_find("q8_0"),
                                 .pages = bytes,
                                 .page_bytes = 34 * 64 * 2,
                                 .head_bytes = 34 * 64,
                                 .row_bytes = 34 };
    const kvant_cache_write_args good = { .seqs = seqs, .side = side, .x = buffer_a, .ldx = 64, .h = 2, .d = 32 };

    accept(KVANT_OP_CACHE_WRITE, &good, "cache_write");
    REFUSE(kvant_cache_write_args, KVANT_OP_CACHE_WRITE, good, seqs.n_seqs, -1);
    REFUSE(kvant_cache_write_args, KVANT_OP_CACHE_WRITE, good, seqs.n_seqs, 0);
    REFUSE(kvant_cache_write_args, KVANT_OP_CACHE_WRITE, good, seqs.n_tokens, -1);
    REFUSE(kvant_cache_write_args, KVANT_OP_CACHE_WRITE, good, seqs.q0, NULL);
    REFUSE(kvant_cache_write_args, KVANT_OP_CACHE_WRITE, good, seqs.pos0, NULL);
    REFUSE(kvant_cache_write_args, KVANT_OP_CACHE_WRITE, good, seqs.table, NULL);
    REFUSE(kvant_cache_write_args, KVANT_OP_CACHE_WRITE, good, seqs.table_stride, 0);
    REFUSE(kvant_cache_write_args, KVANT_OP_CACHE_WRITE, good, side.fmt, NULL);
    REFUSE(kvant_cache_write_args, KVANT_OP_CACHE_WRITE, good, side.pages, NULL);
    REFUSE(kvant_cache_write_args, KVANT_OP_CACHE_WRITE, good, side.row_bytes, 33);
    REFUSE(kvant_cache_write_args, KVANT_OP_CACHE_WRITE, good, side.head_bytes, 34 * 63);
    REFUSE(kvant_cache_write_args, KVANT_OP_CACHE_WRITE, good, side.page_bytes, 34 * 64);
    REFUSE(kvant_cache_write_args, KVANT_OP_CACHE_WRITE, good, side.encoder, 2);
    REFUSE(kvant_cache_write_args, KVANT_OP_CACHE_WRITE, good, side.fmt, kvant_format_find("qjl1_256"));
    REFUSE(kvant_cache_write_args, KVANT_OP_CACHE_WRITE, good, x, NULL);
    REFUSE(kvant_cache_write_args, KVANT_OP_CACHE_WRITE, good, ldx, 63);
    REFUSE(kvant_cache_write_args, KVANT_OP_CACHE_WRITE, good, h, 0);
    REFUSE(kvant_cache_write_args, KVANT_OP_CACHE_WRITE, good, d, 0);
    REFUSE(kvant_cache_write_args, KVANT_OP_CACHE_WRITE, good, d, 31);
    kvant_cache_write_args empty = good;
    empty.seqs.n_tokens = 0;
    empty.x = NULL;
    accept(KVANT_OP_CACHE_WRITE, &empty, "cache_write of nothing");
}

static void tail_needs_table(void)
{
    const kvant_seqs seqs = { .n_seqs = 1,
                              .n_tokens = 2,
                              .q0 = ints,
                              .pos0 = ints,
                              .prompt = ints,
                              .table = ints,
                              .tail_table = ints,
                              .table_stride = 2,
                              .slot_in = ints,
                              .slot_out = ints };
    const kvant_kv_side side = { .fmt = kvant_format_find("q8_0"),
                                 .pages = bytes,
                                 .page_bytes = 34 * 64 * 2,
                                 .head_bytes = 34 * 64,
                                 .row_bytes = 34,
                                 .tail = (uint16_t *)(void *)buffer_d };
    kvant_cache_write_args write = { .seqs = seqs, .side = side, .x = buffer_a, .ldx = 64, .h = 2, .d = 32 };

    accept(KVANT_OP_CACHE_WRITE, &write, "cache_write into a tail");
    REFUSE(kvant_cache_write_args, KVANT_OP_CACHE_WRITE, write, seqs.tail_table, NULL);
    const kvant_page_seal_args seal = { .side = side, .src = ints, .dst = ints, .n = 1, .h = 2, .d = 32 };
    accept(KVANT_OP_PAGE_SEAL, &seal, "page_seal");
    REFUSE(kvant_page_seal_args, KVANT_OP_PAGE_SEAL, seal, side.tail, NULL);
    REFUSE(kvant_page_seal_args, KVANT_OP_PAGE_SEAL, seal, src, NULL);
    REFUSE(kvant_page_seal_args, KVANT_OP_PAGE_SEAL, seal, dst, NULL);
    REFUSE(kvant_page_seal_args, KVANT_OP_PAGE_SEAL, seal, n, -1);
    REFUSE(kvant_page_seal_args, KVANT_OP_PAGE_SEAL, seal, h, 3);
    REFUSE(kvant_page_seal_args, KVANT_OP_PAGE_SEAL, seal, d, 64);
}

static void cache_read(void)
{
    const kvant_kv_side side = { .fmt = kvant_format_find("q8_0"),
                                 .pages = bytes,
                                 .page_bytes = 34 * 64 * 2,
                                 .head_bytes = 34 * 64,
                                 .row_bytes = 34 };
    const kvant_cache_read_args good = {
        .side = side, .page = ints, .row = ints, .y = buffer_a, .n = 1, .h = 2, .d = 32
    };

    accept(KVANT_OP_CACHE_READ, &good, "cache_read");
    REFUSE(kvant_cache_read_args, KVANT_OP_CACHE_READ, good, side.fmt, NULL);
    REFUSE(kvant_cache_read_args, KVANT_OP_CACHE_READ, good, side.pages, NULL);
    REFUSE(kvant_cache_read_args, KVANT_OP_CACHE_READ, good, side.row_bytes, 33);
    REFUSE(kvant_cache_read_args, KVANT_OP_CACHE_READ, good, side.head_bytes, 34 * 63);
    REFUSE(kvant_cache_read_args, KVANT_OP_CACHE_READ, good, side.page_bytes, 34 * 64);
    REFUSE(kvant_cache_read_args, KVANT_OP_CACHE_READ, good, side.encoder, 2);
    REFUSE(kvant_cache_read_args, KVANT_OP_CACHE_READ, good, side.fmt, kvant_format_find("qjl1_256"));
    REFUSE(kvant_cache_read_args, KVANT_OP_CACHE_READ, good, n, -1);
    REFUSE(kvant_cache_read_args, KVANT_OP_CACHE_READ, good, page, NULL);
    REFUSE(kvant_cache_read_args, KVANT_OP_CACHE_READ, good, row, NULL);
    REFUSE(kvant_cache_read_args, KVANT_OP_CACHE_READ, good, y, NULL);
    REFUSE(kvant_cache_read_args, KVANT_OP_CACHE_READ, good, h, 3);
    kvant_cache_read_args empty = good;
    empty.n = 0;
    empty.page = NULL;
    accept(KVANT_OP_CACHE_READ, &empty, "cache_read of nothing");
}

static void attn(void)
{
    const kvant_seqs seqs = { .n_seqs = 1,
                              .n_tokens = 2,
                              .q0 = ints,
                              .pos0 = ints,
                              .prompt = ints,
                              .table = ints,
                              .tail_table = ints,
                              .table_stride = 2,
                              .slot_in = ints,
                              .slot_out = ints };
    const kvant_kv_side side = { .fmt = kvant_format_find("q8_0"),
                                 .pages = bytes,
                                 .page_bytes = 34 * 64 * 2,
                                 .head_bytes = 34 * 64,
                                 .row_bytes = 34 };
    const kvant_attn_args good = { .seqs = seqs,
                                   .k = side,
                                   .v = side,
                                   .q = buffer_a,
                                   .out = buffer_b,
                                   .ldq = 128,
                                   .gq = 32,
                                   .ldo = 128,
                                   .h = 4,
                                   .h_kv = 2,
                                   .d_k = 32,
                                   .d_v = 32,
                                   .scale = 1,
                                   .max_pos = 127 };

    accept(KVANT_OP_ATTN, &good, "attn");
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, seqs.n_seqs, -1);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, seqs.n_seqs, 0);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, seqs.n_tokens, -1);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, seqs.q0, NULL);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, seqs.pos0, NULL);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, seqs.table, NULL);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, seqs.table_stride, 0);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, k.fmt, NULL);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, k.pages, NULL);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, k.row_bytes, 33);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, k.head_bytes, 34 * 63);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, k.page_bytes, 34 * 64);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, k.encoder, 2);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, k.fmt, kvant_format_find("qjl1_256"));
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, v.fmt, NULL);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, v.pages, NULL);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, v.row_bytes, 33);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, v.head_bytes, 34 * 63);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, v.page_bytes, 34 * 64);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, v.encoder, 2);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, v.fmt, kvant_format_find("qjl1_256"));
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, q, NULL);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, scale, 0.0f);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, h, 65536 * 2);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, seqs.n_seqs, 65537);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, scale, -1.0f);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, scale, NAN);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, out, NULL);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, out, buffer_a);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, ldq, 127);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, gq, 31);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, ldo, 127);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, h, 5);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, h, 0);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, h_kv, 0);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, h_kv, 4);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, d_k, 64);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, d_v, 16);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, tail_pages, -1);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, compute, 3);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, max_pos, 128);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, max_pos, -1);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, k.tail, (uint16_t *)(void *)buffer_d; broken.seqs.tail_table = NULL);
    REFUSE(kvant_attn_args, KVANT_OP_ATTN, good, v.tail, (uint16_t *)(void *)buffer_d; broken.seqs.tail_table = NULL);
    kvant_attn_args empty = good;
    empty.seqs.n_tokens = 0;
    empty.q = NULL;
    accept(KVANT_OP_ATTN, &empty, "attn of nothing");
}

static void attn_score(void)
{
    const kvant_seqs seqs = { .n_seqs = 1,
                              .n_tokens = 2,
                              .q0 = ints,
                              .pos0 = ints,
                              .prompt = ints,
                              .table = ints,
                              .tail_table = ints,
                              .table_stride = 2,
                              .slot_in = ints,
                              .slot_out = ints };
    const kvant_kv_side side = { .fmt = kvant_format_find("q8_0"),
                                 .pages = bytes,
                                 .page_bytes = 34 * 64 * 2,
                                 .head_bytes = 34 * 64,
                                 .row_bytes = 34 };
    const kvant_attn_score_args good = { .seqs = seqs,
                                         .k = side,
                                         .q = buffer_a,
                                         .s = buffer_b,
                                         .ldq = 128,
                                         .gq = 32,
                                         .lds = 128,
                                         .h = 4,
                                         .h_kv = 2,
                                         .d_k = 32,
                                         .scale = 1 };

    accept(KVANT_OP_ATTN_SCORE, &good, "attn_score");
    REFUSE(kvant_attn_score_args, KVANT_OP_ATTN_SCORE, good, seqs.n_seqs, -1);
    REFUSE(kvant_attn_score_args, KVANT_OP_ATTN_SCORE, good, seqs.n_seqs, 0);
    REFUSE(kvant_attn_score_args, KVANT_OP_ATTN_SCORE, good, seqs.n_tokens, -1);
    REFUSE(kvant_attn_score_args, KVANT_OP_ATTN_SCORE, good, seqs.q0, NULL);
    REFUSE(kvant_attn_score_args, KVANT_OP_ATTN_SCORE, good, seqs.pos0, NULL);
    REFUSE(kvant_attn_score_args, KVANT_OP_ATTN_SCORE, good, seqs.table, NULL);
    REFUSE(kvant_attn_score_args, KVANT_OP_ATTN_SCORE, good, seqs.table_stride, 0);
    REFUSE(kvant_attn_score_args, KVANT_OP_ATTN_SCORE, good, k.fmt, NULL);
    REFUSE(kvant_attn_score_args, KVANT_OP_ATTN_SCORE, good, k.pages, NULL);
    REFUSE(kvant_attn_score_args, KVANT_OP_ATTN_SCORE, good, k.row_bytes, 33);
    REFUSE(kvant_attn_score_args, KVANT_OP_ATTN_SCORE, good, k.head_bytes, 34 * 63);
    REFUSE(kvant_attn_score_args, KVANT_OP_ATTN_SCORE, good, k.page_bytes, 34 * 64);
    REFUSE(kvant_attn_score_args, KVANT_OP_ATTN_SCORE, good, k.encoder, 2);
    REFUSE(kvant_attn_score_args, KVANT_OP_ATTN_SCORE, good, k.fmt, kvant_format_find("qjl1_256"));
    REFUSE(kvant_attn_score_args, KVANT_OP_ATTN_SCORE, good, q, NULL);
    REFUSE(kvant_attn_score_args, KVANT_OP_ATTN_SCORE, good, s, NULL);
    REFUSE(kvant_attn_score_args, KVANT_OP_ATTN_SCORE, good, ldq, 127);
    REFUSE(kvant_attn_score_args, KVANT_OP_ATTN_SCORE, good, gq, 31);
    REFUSE(kvant_attn_score_args, KVANT_OP_ATTN_SCORE, good, lds, 0);
    REFUSE(kvant_attn_score_args, KVANT_OP_ATTN_SCORE, good, h, 5);
    REFUSE(kvant_attn_score_args, KVANT_OP_ATTN_SCORE, good, h_kv, 0);
    REFUSE(kvant_attn_score_args, KVANT_OP_ATTN_SCORE, good, d_k, 64);
    REFUSE(kvant_attn_score_args, KVANT_OP_ATTN_SCORE, good, tail_pages, -1);
    kvant_attn_score_args empty = good;
    empty.seqs.n_tokens = 0;
    empty.q = NULL;
    accept(KVANT_OP_ATTN_SCORE, &empty, "attn_score of nothing");
}

static void conv_step(void)
{
    const kvant_seqs seqs = { .n_seqs = 1,
                              .n_tokens = 2,
                              .q0 = ints,
                              .pos0 = ints,
                              .prompt = ints,
                              .table = ints,
                              .tail_table = ints,
                              .table_stride = 2,
                              .slot_in = ints,
                              .slot_out = ints };
    const kvant_conv_args good = { .seqs = seqs,
                                   .x = buffer_a,
                                   .w = buffer_b,
                                   .state = buffer_c,
                                   .y = buffer_d,
                                   .c = 8,
                                   .k = 4,
                                   .slot_stride = 24,
                                   .ldx = 8 };

    accept(KVANT_OP_CONV_STEP, &good, "conv_step");
    REFUSE(kvant_conv_args, KVANT_OP_CONV_STEP, good, seqs.n_seqs, -1);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_STEP, good, seqs.n_seqs, 0);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_STEP, good, seqs.n_tokens, -1);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_STEP, good, seqs.q0, NULL);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_STEP, good, seqs.pos0, NULL);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_STEP, good, seqs.prompt, NULL);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_STEP, good, seqs.slot_in, NULL);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_STEP, good, seqs.slot_out, NULL);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_STEP, good, x, NULL);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_STEP, good, w, NULL);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_STEP, good, state, NULL);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_STEP, good, y, NULL);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_STEP, good, y, buffer_a);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_STEP, good, c, 0);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_STEP, good, c, (1 << 24) + 1);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_STEP, good, k, 1);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_STEP, good, k, 9);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_STEP, good, slot_stride, 23);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_STEP, good, ldx, 7);
    kvant_conv_args empty = good;
    empty.seqs.n_tokens = 0;
    empty.x = NULL;
    accept(KVANT_OP_CONV_STEP, &empty, "conv_step of nothing");
}

static void conv_chunk(void)
{
    const kvant_seqs seqs = { .n_seqs = 1,
                              .n_tokens = 2,
                              .q0 = ints,
                              .pos0 = ints,
                              .prompt = ints,
                              .table = ints,
                              .tail_table = ints,
                              .table_stride = 2,
                              .slot_in = ints,
                              .slot_out = ints };
    const kvant_conv_args good = { .seqs = seqs,
                                   .x = buffer_a,
                                   .w = buffer_b,
                                   .state = buffer_c,
                                   .y = buffer_d,
                                   .c = 8,
                                   .k = 4,
                                   .slot_stride = 24,
                                   .ldx = 8 };

    accept(KVANT_OP_CONV_CHUNK, &good, "conv_chunk");
    REFUSE(kvant_conv_args, KVANT_OP_CONV_CHUNK, good, seqs.n_seqs, -1);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_CHUNK, good, seqs.n_seqs, 0);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_CHUNK, good, seqs.n_tokens, -1);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_CHUNK, good, seqs.q0, NULL);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_CHUNK, good, seqs.pos0, NULL);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_CHUNK, good, seqs.prompt, NULL);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_CHUNK, good, seqs.slot_in, NULL);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_CHUNK, good, seqs.slot_out, NULL);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_CHUNK, good, x, NULL);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_CHUNK, good, w, NULL);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_CHUNK, good, state, NULL);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_CHUNK, good, y, NULL);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_CHUNK, good, y, buffer_a);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_CHUNK, good, c, 0);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_CHUNK, good, k, 1);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_CHUNK, good, k, 9);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_CHUNK, good, slot_stride, 23);
    REFUSE(kvant_conv_args, KVANT_OP_CONV_CHUNK, good, ldx, 7);
    kvant_conv_args empty = good;
    empty.seqs.n_tokens = 0;
    empty.x = NULL;
    accept(KVANT_OP_CONV_CHUNK, &empty, "conv_chunk of nothing");
}

static void gdn_gates(void)
{
    const kvant_gdn_gates_args good = {
        .alpha = buffer_a, .beta = buffer_b, .a = buffer_c, .dt = buffer_d, .n = 1, .h = 2
    };

    accept(KVANT_OP_GDN_GATES, &good, "gdn_gates");
    REFUSE(kvant_gdn_gates_args, KVANT_OP_GDN_GATES, good, n, -1);
    REFUSE(kvant_gdn_gates_args, KVANT_OP_GDN_GATES, good, h, 0);
    REFUSE(kvant_gdn_gates_args, KVANT_OP_GDN_GATES, good, alpha, NULL);
    REFUSE(kvant_gdn_gates_args, KVANT_OP_GDN_GATES, good, beta, NULL);
    REFUSE(kvant_gdn_gates_args, KVANT_OP_GDN_GATES, good, a, NULL);
    REFUSE(kvant_gdn_gates_args, KVANT_OP_GDN_GATES, good, dt, NULL);
    kvant_gdn_gates_args empty = good;
    empty.n = 0;
    empty.alpha = NULL;
    accept(KVANT_OP_GDN_GATES, &empty, "gdn_gates of nothing");
}

static void gdn_step(void)
{
    const kvant_seqs seqs = { .n_seqs = 1,
                              .n_tokens = 2,
                              .q0 = ints,
                              .pos0 = ints,
                              .prompt = ints,
                              .table = ints,
                              .tail_table = ints,
                              .table_stride = 2,
                              .slot_in = ints,
                              .slot_out = ints };
    const kvant_gdn_args good = { .seqs = seqs,
                                  .q = buffer_a,
                                  .k = buffer_a,
                                  .v = buffer_b,
                                  .g = buffer_b,
                                  .beta = buffer_b,
                                  .state = buffer_c,
                                  .o = buffer_d,
                                  .hk = 2,
                                  .hv = 4,
                                  .dk = 4,
                                  .dv = 2,
                                  .ldq = 8,
                                  .ldk = 8,
                                  .ldv = 8,
                                  .slot_stride = 32 };

    accept(KVANT_OP_GDN_STEP, &good, "gdn_step");
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_STEP, good, seqs.n_seqs, -1);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_STEP, good, seqs.n_seqs, 0);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_STEP, good, seqs.n_tokens, -1);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_STEP, good, seqs.q0, NULL);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_STEP, good, seqs.pos0, NULL);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_STEP, good, seqs.prompt, NULL);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_STEP, good, seqs.slot_in, NULL);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_STEP, good, seqs.slot_out, NULL);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_STEP, good, q, NULL);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_STEP, good, k, NULL);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_STEP, good, v, NULL);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_STEP, good, g, NULL);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_STEP, good, beta, NULL);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_STEP, good, state, NULL);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_STEP, good, o, NULL);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_STEP, good, o, buffer_a);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_STEP, good, o, buffer_b);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_STEP, good, hk, 0);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_STEP, good, hk, 3);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_STEP, good, hv, 0);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_STEP, good, hv, 65538);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_STEP, good, dk, 0);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_STEP, good, dv, 0);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_STEP, good, dk, 513);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_STEP, good, dv, 513);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_STEP, good, interleaved, 2);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_STEP, good, ldq, 7);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_STEP, good, ldk, 7);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_STEP, good, ldv, 7);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_STEP, good, slot_stride, 31);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_STEP, good, state_type, 2);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_STEP, good, state_type, -1);
    kvant_gdn_args empty = good;
    empty.seqs.n_tokens = 0;
    empty.q = NULL;
    accept(KVANT_OP_GDN_STEP, &empty, "gdn_step of nothing");
}

static void gdn_chunk(void)
{
    const kvant_seqs seqs = { .n_seqs = 1,
                              .n_tokens = 2,
                              .q0 = ints,
                              .pos0 = ints,
                              .prompt = ints,
                              .table = ints,
                              .tail_table = ints,
                              .table_stride = 2,
                              .slot_in = ints,
                              .slot_out = ints };
    const kvant_gdn_args good = { .seqs = seqs,
                                  .q = buffer_a,
                                  .k = buffer_a,
                                  .v = buffer_b,
                                  .g = buffer_b,
                                  .beta = buffer_b,
                                  .state = buffer_c,
                                  .o = buffer_d,
                                  .hk = 2,
                                  .hv = 4,
                                  .dk = 4,
                                  .dv = 2,
                                  .ldq = 8,
                                  .ldk = 8,
                                  .ldv = 8,
                                  .slot_stride = 32 };

    accept(KVANT_OP_GDN_CHUNK, &good, "gdn_chunk");
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_CHUNK, good, seqs.n_seqs, -1);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_CHUNK, good, seqs.n_seqs, 0);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_CHUNK, good, seqs.n_tokens, -1);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_CHUNK, good, seqs.q0, NULL);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_CHUNK, good, seqs.pos0, NULL);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_CHUNK, good, seqs.prompt, NULL);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_CHUNK, good, seqs.slot_in, NULL);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_CHUNK, good, seqs.slot_out, NULL);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_CHUNK, good, q, NULL);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_CHUNK, good, k, NULL);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_CHUNK, good, v, NULL);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_CHUNK, good, g, NULL);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_CHUNK, good, beta, NULL);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_CHUNK, good, state, NULL);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_CHUNK, good, o, NULL);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_CHUNK, good, o, buffer_a);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_CHUNK, good, o, buffer_b);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_CHUNK, good, hk, 0);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_CHUNK, good, hk, 3);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_CHUNK, good, hv, 0);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_CHUNK, good, dk, 0);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_CHUNK, good, dv, 0);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_CHUNK, good, dk, 513);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_CHUNK, good, dv, 513);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_CHUNK, good, interleaved, 2);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_CHUNK, good, ldq, 7);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_CHUNK, good, ldk, 7);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_CHUNK, good, ldv, 7);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_CHUNK, good, slot_stride, 31);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_CHUNK, good, state_type, 2);
    REFUSE(kvant_gdn_args, KVANT_OP_GDN_CHUNK, good, state_type, -1);
    kvant_gdn_args empty = good;
    empty.seqs.n_tokens = 0;
    empty.q = NULL;
    accept(KVANT_OP_GDN_CHUNK, &empty, "gdn_chunk of nothing");
}

static void norm_gated(void)
{
    const kvant_norm_gated_args good = {
        .o = buffer_a, .z = buffer_b, .w = buffer_c, .y = buffer_a, .eps = 1e-6f, .n = 2, .h = 2, .dv = 4, .ldz = 8
    };

    accept(KVANT_OP_NORM_GATED, &good, "norm_gated");
    REFUSE(kvant_norm_gated_args, KVANT_OP_NORM_GATED, good, n, -1);
    REFUSE(kvant_norm_gated_args, KVANT_OP_NORM_GATED, good, h, 0);
    REFUSE(kvant_norm_gated_args, KVANT_OP_NORM_GATED, good, dv, 0);
    REFUSE(kvant_norm_gated_args, KVANT_OP_NORM_GATED, good, ldz, 7);
    REFUSE(kvant_norm_gated_args, KVANT_OP_NORM_GATED, good, o, NULL);
    REFUSE(kvant_norm_gated_args, KVANT_OP_NORM_GATED, good, z, NULL);
    REFUSE(kvant_norm_gated_args, KVANT_OP_NORM_GATED, good, w, NULL);
    REFUSE(kvant_norm_gated_args, KVANT_OP_NORM_GATED, good, y, NULL);
    REFUSE(kvant_norm_gated_args, KVANT_OP_NORM_GATED, good, eps, NAN);
    kvant_norm_gated_args empty = good;
    empty.n = 0;
    empty.o = NULL;
    accept(KVANT_OP_NORM_GATED, &empty, "norm_gated of nothing");
}

static void slot_copy(void)
{
    const kvant_slot_copy_args good = { .base = bytes, .src = ints, .dst = ints, .n = 1, .stride = 8, .bytes = 8 };

    accept(KVANT_OP_SLOT_COPY, &good, "slot_copy");
    REFUSE(kvant_slot_copy_args, KVANT_OP_SLOT_COPY, good, n, -1);
    REFUSE(kvant_slot_copy_args, KVANT_OP_SLOT_COPY, good, stride, SIZE_MAX / 2; broken.n = 3);
    REFUSE(kvant_slot_copy_args, KVANT_OP_SLOT_COPY, good, base, NULL);
    REFUSE(kvant_slot_copy_args, KVANT_OP_SLOT_COPY, good, src, NULL);
    REFUSE(kvant_slot_copy_args, KVANT_OP_SLOT_COPY, good, dst, NULL);
    REFUSE(kvant_slot_copy_args, KVANT_OP_SLOT_COPY, good, bytes, 9);
    kvant_slot_copy_args empty = good;
    empty.n = 0;
    empty.base = NULL;
    accept(KVANT_OP_SLOT_COPY, &empty, "slot_copy of nothing");
}

static void slot_zero(void)
{
    const kvant_slot_zero_args good = { .base = bytes, .dst = ints, .n = 1, .stride = 8, .bytes = 8 };

    accept(KVANT_OP_SLOT_ZERO, &good, "slot_zero");
    REFUSE(kvant_slot_zero_args, KVANT_OP_SLOT_ZERO, good, n, -1);
    REFUSE(kvant_slot_zero_args, KVANT_OP_SLOT_ZERO, good, base, NULL);
    REFUSE(kvant_slot_zero_args, KVANT_OP_SLOT_ZERO, good, dst, NULL);
    REFUSE(kvant_slot_zero_args, KVANT_OP_SLOT_ZERO, good, bytes, 9);
    kvant_slot_zero_args empty = good;
    empty.n = 0;
    empty.base = NULL;
    accept(KVANT_OP_SLOT_ZERO, &empty, "slot_zero of nothing");
}

int main(void)
{
    kvant_diag diag;

    embed();
    norm_rms();
    norm_add_rms();
    add();
    norm_l2();
    rope();
    swiglu();
    gate_mul();
    gate_add();
    matmul();
    matmul_id();
    moe_route();
    moe_combine();
    rows_gather();
    argmax();
    top_k();
    cache_write();
    tail_needs_table();
    cache_read();
    attn();
    attn_score();
    conv_step();
    conv_chunk();
    gdn_gates();
    gdn_step();
    gdn_chunk();
    norm_gated();
    slot_copy();
    slot_zero();
    CHECK(kvant_op_check(-1, buffer_a, &diag) == KVANT_EINVAL, "op -1");
    CHECK(kvant_op_check(KVANT_OP_COUNT, buffer_a, &diag) == KVANT_EINVAL, "op past the last");
    for (int id = 0; id < KVANT_OP_COUNT; id++)
        CHECK(kvant_op_check(id, NULL, &diag) == KVANT_EINVAL, "%s without arguments", kvant_op_get(id)->name);
    return check_end("check_op_args");
}
