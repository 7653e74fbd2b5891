/* check_op_args.c: kvant_op_check refuses every precondition that is broken, one at a time, with a message that names
 * the op; and accepts the same arguments unbroken, and empty batches. */
#include <stdint.h>
#include "support/check.h"
#include "kvant/ops.h"

static float buffer_a[64], buffer_b[64], buffer_c[64], buffer_d[64];
static int32_t ints[64];
static uint8_t bytes[64];

static const float numbers[64];

static const kvant_seqs sequences = { .n_seqs = 1,
                                      .n_tokens = 2,
                                      .q0 = ints,
                                      .pos0 = ints,
                                      .prompt = ints,
                                      .table = ints,
                                      .tail_table = ints,
                                      .table_stride = 2,
                                      .slot_in = ints,
                                      .slot_out = ints };

/* A side of two heads of 32 values in q8_0. */
static kvant_kv_side cache_side(uint16_t *tail)
{
    return (kvant_kv_side){ .fmt = kvant_format_find("q8_0"),
                            .pages = bytes,
                            .page_bytes = 34 * 64 * 2,
                            .head_bytes = 34 * 64,
                            .row_bytes = 34,
                            .tail = tail };
}

static kvant_weight weight(int n_expert)
{
    return (kvant_weight){
        .type = kvant_wtype_find("Q8_0"), .data = numbers, .n_in = 32, .n_out = 2, .n_expert = n_expert, .name = "w"
    };
}

/* good with one field changed must be refused. */
#define REFUSE(id, good, field, value)                                                                                 \
    do {                                                                                                               \
        __typeof__(good) broken = good;                                                                                \
        broken.field = value;                                                                                          \
        refuse(id, &broken, #field " = " #value);                                                                      \
    } while (0)

/* What every op refuses that finds its rows by the pages of sequences. */
#define REFUSE_PAGES(id, good)                                                                                         \
    do {                                                                                                               \
        REFUSE(id, good, seqs.n_seqs, -1);                                                                             \
        REFUSE(id, good, seqs.n_ones, 2);                                                                              \
        REFUSE(id, good, seqs.n_seqs, 0);                                                                              \
        REFUSE(id, good, seqs.n_tokens, -1);                                                                           \
        REFUSE(id, good, seqs.q0, NULL);                                                                               \
        REFUSE(id, good, seqs.pos0, NULL);                                                                             \
        REFUSE(id, good, seqs.table, NULL);                                                                            \
        REFUSE(id, good, seqs.table_stride, 0);                                                                        \
    } while (0)

/* ... by the state slots of sequences. */
#define REFUSE_SLOTS(id, good)                                                                                         \
    do {                                                                                                               \
        REFUSE(id, good, seqs.n_seqs, -1);                                                                             \
        REFUSE(id, good, seqs.n_seqs, 0);                                                                              \
        REFUSE(id, good, seqs.n_tokens, -1);                                                                           \
        REFUSE(id, good, seqs.q0, NULL);                                                                               \
        REFUSE(id, good, seqs.pos0, NULL);                                                                             \
        REFUSE(id, good, seqs.prompt, NULL);                                                                           \
        REFUSE(id, good, seqs.slot_in, NULL);                                                                          \
        REFUSE(id, good, seqs.slot_out, NULL);                                                                         \
    } while (0)

/* ... of a side of the cache. */
#define REFUSE_SIDE(id, good, side)                                                                                    \
    do {                                                                                                               \
        REFUSE(id, good, side.fmt, NULL);                                                                              \
        REFUSE(id, good, side.pages, NULL);                                                                            \
        REFUSE(id, good, side.row_bytes, 33);                                                                          \
        REFUSE(id, good, side.head_bytes, 34 * 63);                                                                    \
        REFUSE(id, good, side.page_bytes, 34 * 64);                                                                    \
        REFUSE(id, good, side.encoder, 2);                                                                             \
        REFUSE(id, good, side.fmt, kvant_format_find("qjl1_256"));                                                     \
    } while (0)

/* ... of queries that a side of keys answers: 4 heads of 32 values, 2 of the keys. */
#define REFUSE_QUERIES(id, good)                                                                                       \
    do {                                                                                                               \
        REFUSE(id, good, q, NULL);                                                                                     \
        REFUSE(id, good, ldq, 127);                                                                                    \
        REFUSE(id, good, gq, 31);                                                                                      \
        REFUSE(id, good, h, 5);                                                                                        \
        REFUSE(id, good, h_kv, 0);                                                                                     \
        REFUSE(id, good, d_k, 64);                                                                                     \
        REFUSE(id, good, tail_pages, -1);                                                                              \
    } while (0)

/* good with the changes, which leave no rows and name no rows, must be accepted. */
#define ACCEPT_NOTHING(id, good, changes)                                                                              \
    do {                                                                                                               \
        __typeof__(good) empty = good;                                                                                 \
        changes;                                                                                                       \
        accept(id, &empty, kvant_op_get(id)->name);                                                                    \
    } while (0)

static void refuse(int id, const void *args, const char *what)
{
    kvant_diag diag = { "" };
    const int rc = kvant_op_check(id, args, &diag);

    CHECK(rc == KVANT_EINVAL, "%s: %s was accepted", kvant_op_get(id)->name, what);
    CHECK(rc == KVANT_OK || strstr(diag.text, kvant_op_get(id)->name) != NULL || strstr(diag.text, "head_dim") != NULL,
          "%s: %s: the message does not name the op: '%s'", kvant_op_get(id)->name, what, diag.text);
}

static void accept(int id, const void *args, const char *what)
{
    kvant_diag diag = { "" };

    CHECK(kvant_op_check(id, args, &diag) == KVANT_OK, "%s was refused: %s", what, diag.text);
    CHECK(kvant_op_check(id, args, NULL) == KVANT_OK, "%s without a diag", what);
}

static void embed(void)
{
    const kvant_weight w = weight(1);
    kvant_embed_args good = { .w = &w, .ids = ints, .y = buffer_a, .n = 1 };

    accept(KVANT_OP_EMBED, &good, "embed");
    REFUSE(KVANT_OP_EMBED, good, n, -1);
    REFUSE(KVANT_OP_EMBED, good, w, NULL);
    REFUSE(KVANT_OP_EMBED, good, ids, NULL);
    REFUSE(KVANT_OP_EMBED, good, y, NULL);
    ACCEPT_NOTHING(KVANT_OP_EMBED, good, empty.n = 0; empty.ids = NULL; empty.y = NULL);
}

static void norm_rms(void)
{
    kvant_norm_rms_args good = { .x = buffer_a,
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
    REFUSE(KVANT_OP_NORM_RMS, good, n, -1);
    REFUSE(KVANT_OP_NORM_RMS, good, h, 0);
    REFUSE(KVANT_OP_NORM_RMS, good, d, 0);
    REFUSE(KVANT_OP_NORM_RMS, good, x, NULL);
    REFUSE(KVANT_OP_NORM_RMS, good, w, NULL);
    REFUSE(KVANT_OP_NORM_RMS, good, y, NULL);
    REFUSE(KVANT_OP_NORM_RMS, good, ldx, 15);
    REFUSE(KVANT_OP_NORM_RMS, good, gx, 7);
    REFUSE(KVANT_OP_NORM_RMS, good, ldy, 15);
    REFUSE(KVANT_OP_NORM_RMS, good, gy, 7);
    REFUSE(KVANT_OP_NORM_RMS, good, eps, -1.0f);
    REFUSE(KVANT_OP_NORM_RMS, good, eps, NAN);
    REFUSE(KVANT_OP_NORM_RMS, good, eps, 2.0f);
    ACCEPT_NOTHING(KVANT_OP_NORM_RMS, good, empty.n = 0; empty.x = NULL; empty.w = NULL; empty.y = NULL);
}

static void norm_layer(void)
{
    kvant_norm_layer_args good = { .x = buffer_a,
                                   .w = buffer_b,
                                   .b = buffer_b,
                                   .y = buffer_c,
                                   .eps = 1e-6f,
                                   .n = 2,
                                   .h = 2,
                                   .d = 8,
                                   .ldx = 16,
                                   .gx = 8,
                                   .ldy = 16,
                                   .gy = 8 };

    accept(KVANT_OP_NORM_LAYER, &good, "norm_layer");
    REFUSE(KVANT_OP_NORM_LAYER, good, n, -1);
    REFUSE(KVANT_OP_NORM_LAYER, good, h, 0);
    REFUSE(KVANT_OP_NORM_LAYER, good, d, 0);
    REFUSE(KVANT_OP_NORM_LAYER, good, x, NULL);
    REFUSE(KVANT_OP_NORM_LAYER, good, w, NULL);
    REFUSE(KVANT_OP_NORM_LAYER, good, y, NULL);
    REFUSE(KVANT_OP_NORM_LAYER, good, ldx, 15);
    REFUSE(KVANT_OP_NORM_LAYER, good, gx, 7);
    REFUSE(KVANT_OP_NORM_LAYER, good, ldy, 15);
    REFUSE(KVANT_OP_NORM_LAYER, good, gy, 7);
    REFUSE(KVANT_OP_NORM_LAYER, good, gw, 7);
    REFUSE(KVANT_OP_NORM_LAYER, good, gw, -8);
    REFUSE(KVANT_OP_NORM_LAYER, good, eps, -1.0f);
    REFUSE(KVANT_OP_NORM_LAYER, good, eps, NAN);
    ACCEPT_NOTHING(KVANT_OP_NORM_LAYER, good, empty.n = 0; empty.x = NULL; empty.w = NULL; empty.y = NULL);
}

static void norm_add_rms(void)
{
    kvant_norm_add_rms_args good = {
        .x = buffer_a, .add = buffer_b, .w = buffer_c, .y = buffer_d, .eps = 1e-6f, .n = 2, .d = 8
    };

    accept(KVANT_OP_NORM_ADD_RMS, &good, "norm_add_rms");
    REFUSE(KVANT_OP_NORM_ADD_RMS, good, n, -1);
    REFUSE(KVANT_OP_NORM_ADD_RMS, good, d, 0);
    REFUSE(KVANT_OP_NORM_ADD_RMS, good, x, NULL);
    REFUSE(KVANT_OP_NORM_ADD_RMS, good, add, NULL);
    REFUSE(KVANT_OP_NORM_ADD_RMS, good, w, NULL);
    REFUSE(KVANT_OP_NORM_ADD_RMS, good, y, NULL);
    REFUSE(KVANT_OP_NORM_ADD_RMS, good, y, buffer_a);
    REFUSE(KVANT_OP_NORM_ADD_RMS, good, y, buffer_b);
    REFUSE(KVANT_OP_NORM_ADD_RMS, good, add, buffer_a);
    REFUSE(KVANT_OP_NORM_ADD_RMS, good, eps, NAN);
    ACCEPT_NOTHING(KVANT_OP_NORM_ADD_RMS, good, empty.n = 0; empty.x = NULL);
}

static void add(void)
{
    kvant_add_args good = { .x = buffer_a, .y = buffer_b, .n = 1, .d = 3 };

    accept(KVANT_OP_ADD, &good, "add");
    REFUSE(KVANT_OP_ADD, good, n, -1);
    REFUSE(KVANT_OP_ADD, good, d, -3);
    REFUSE(KVANT_OP_ADD, good, x, NULL);
    REFUSE(KVANT_OP_ADD, good, y, NULL);
    ACCEPT_NOTHING(KVANT_OP_ADD, good, empty.n = 0; empty.x = NULL; empty.y = NULL);
}

static void bias(void)
{
    kvant_bias_args good = { .y = buffer_a, .b = buffer_b, .n = 2, .d = 3, .ldy = 4, .n_b = 1 };

    accept(KVANT_OP_BIAS, &good, "bias");
    REFUSE(KVANT_OP_BIAS, good, n, -1);
    REFUSE(KVANT_OP_BIAS, good, d, 0);
    REFUSE(KVANT_OP_BIAS, good, ldy, 2);
    REFUSE(KVANT_OP_BIAS, good, n_b, 0);
    REFUSE(KVANT_OP_BIAS, good, y, NULL);
    REFUSE(KVANT_OP_BIAS, good, b, NULL);
    ACCEPT_NOTHING(KVANT_OP_BIAS, good, empty.n = 0; empty.y = NULL);
}

static void rows_copy(void)
{
    kvant_rows_copy_args good = {
        .x = buffer_a, .y = buffer_b, .n = 2, .h = 2, .d = 3, .ldx = 8, .gx = 4, .ldy = 9, .gy = 5
    };

    accept(KVANT_OP_ROWS_COPY, &good, "rows_copy");
    REFUSE(KVANT_OP_ROWS_COPY, good, n, -1);
    REFUSE(KVANT_OP_ROWS_COPY, good, h, 0);
    REFUSE(KVANT_OP_ROWS_COPY, good, d, 0);
    REFUSE(KVANT_OP_ROWS_COPY, good, ldx, 6);
    REFUSE(KVANT_OP_ROWS_COPY, good, gx, 2);
    REFUSE(KVANT_OP_ROWS_COPY, good, ldy, 7);
    REFUSE(KVANT_OP_ROWS_COPY, good, ldy, 0);
    REFUSE(KVANT_OP_ROWS_COPY, good, gy, 2);
    REFUSE(KVANT_OP_ROWS_COPY, good, x, NULL);
    REFUSE(KVANT_OP_ROWS_COPY, good, y, NULL);
    REFUSE(KVANT_OP_ROWS_COPY, good, y, buffer_a);
    good.ldx = 0;
    accept(KVANT_OP_ROWS_COPY, &good, "rows_copy of one row");
    ACCEPT_NOTHING(KVANT_OP_ROWS_COPY, good, empty.n = 0; empty.y = NULL);
}

static void scale(void)
{
    kvant_scale_args good = { .x = buffer_a, .s = 0.5f, .n = 2, .d = 3 };

    accept(KVANT_OP_SCALE, &good, "scale");
    REFUSE(KVANT_OP_SCALE, good, n, -1);
    REFUSE(KVANT_OP_SCALE, good, d, 0);
    REFUSE(KVANT_OP_SCALE, good, s, NAN);
    REFUSE(KVANT_OP_SCALE, good, s, -INFINITY);
    REFUSE(KVANT_OP_SCALE, good, x, NULL);
    ACCEPT_NOTHING(KVANT_OP_SCALE, good, empty.n = 0; empty.x = NULL);
}

static void softcap(void)
{
    kvant_softcap_args good = { .x = buffer_a, .cap = 30.0f, .n = 2, .d = 3 };

    accept(KVANT_OP_SOFTCAP, &good, "softcap");
    REFUSE(KVANT_OP_SOFTCAP, good, n, -1);
    REFUSE(KVANT_OP_SOFTCAP, good, d, 0);
    REFUSE(KVANT_OP_SOFTCAP, good, cap, 0.0f);
    REFUSE(KVANT_OP_SOFTCAP, good, cap, NAN);
    REFUSE(KVANT_OP_SOFTCAP, good, x, NULL);
    ACCEPT_NOTHING(KVANT_OP_SOFTCAP, good, empty.n = 0; empty.x = NULL);
}

static void attn_temp(void)
{
    kvant_attn_temp_args good = { .x = buffer_a, .pos = ints, .beta = 0.1f, .length = 8, .n = 2, .d = 3, .ldx = 4 };

    accept(KVANT_OP_ATTN_TEMP, &good, "attn_temp");
    REFUSE(KVANT_OP_ATTN_TEMP, good, n, -1);
    REFUSE(KVANT_OP_ATTN_TEMP, good, d, 0);
    REFUSE(KVANT_OP_ATTN_TEMP, good, length, 0);
    REFUSE(KVANT_OP_ATTN_TEMP, good, beta, -0.1f);
    REFUSE(KVANT_OP_ATTN_TEMP, good, beta, NAN);
    REFUSE(KVANT_OP_ATTN_TEMP, good, ldx, 2);
    REFUSE(KVANT_OP_ATTN_TEMP, good, x, NULL);
    REFUSE(KVANT_OP_ATTN_TEMP, good, pos, NULL);
    ACCEPT_NOTHING(KVANT_OP_ATTN_TEMP, good, empty.n = 0; empty.x = NULL);
}

static void norm_l2(void)
{
    kvant_norm_l2_args good = { .x = buffer_a, .eps = 1e-6f, .n = 2, .h = 2, .d = 8, .ldx = 16, .gx = 8 };

    accept(KVANT_OP_NORM_L2, &good, "norm_l2");
    REFUSE(KVANT_OP_NORM_L2, good, n, -1);
    REFUSE(KVANT_OP_NORM_L2, good, h, 0);
    REFUSE(KVANT_OP_NORM_L2, good, d, 0);
    REFUSE(KVANT_OP_NORM_L2, good, x, NULL);
    REFUSE(KVANT_OP_NORM_L2, good, ldx, 15);
    REFUSE(KVANT_OP_NORM_L2, good, gx, 7);
    REFUSE(KVANT_OP_NORM_L2, good, eps, -1.0f);
    ACCEPT_NOTHING(KVANT_OP_NORM_L2, good, empty.n = 0; empty.x = NULL);
}

static void rope(void)
{
    kvant_rope_args good = { .x = buffer_a,
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
    REFUSE(KVANT_OP_ROPE, good, n, -1);
    REFUSE(KVANT_OP_ROPE, good, n_rot, 0);
    REFUSE(KVANT_OP_ROPE, good, n_rot, 7);
    REFUSE(KVANT_OP_ROPE, good, neox, 2);
    REFUSE(KVANT_OP_ROPE, good, h, 0);
    REFUSE(KVANT_OP_ROPE, good, ldx, 15);
    REFUSE(KVANT_OP_ROPE, good, gx, 7);
    REFUSE(KVANT_OP_ROPE, good, x, NULL);
    REFUSE(KVANT_OP_ROPE, good, pos, NULL);
    REFUSE(KVANT_OP_ROPE, good, inv_freq, NULL);
    ACCEPT_NOTHING(KVANT_OP_ROPE, good, empty.n = 0; empty.x = NULL);
}

static void mul(void)
{
    kvant_mul_args good = { .y = buffer_a, .x = buffer_b, .n = 2, .d = 8, .ldy = 8, .ldx = 16 };

    accept(KVANT_OP_MUL, &good, "mul");
    REFUSE(KVANT_OP_MUL, good, n, -1);
    REFUSE(KVANT_OP_MUL, good, d, 0);
    REFUSE(KVANT_OP_MUL, good, ldy, 7);
    REFUSE(KVANT_OP_MUL, good, ldx, 7);
    REFUSE(KVANT_OP_MUL, good, y, NULL);
    REFUSE(KVANT_OP_MUL, good, x, NULL);
    ACCEPT_NOTHING(KVANT_OP_MUL, good, empty.n = 0; empty.y = NULL);
}

static void swiglu(void)
{
    kvant_swiglu_args good = {
        .gate = buffer_a, .up = buffer_b, .y = buffer_c, .n = 2, .f = 8, .ldg = 16, .ldu = 16, .ldy = 8
    };

    accept(KVANT_OP_SWIGLU, &good, "swiglu");
    REFUSE(KVANT_OP_SWIGLU, good, n, -1);
    REFUSE(KVANT_OP_SWIGLU, good, f, 0);
    REFUSE(KVANT_OP_SWIGLU, good, ldg, 7);
    REFUSE(KVANT_OP_SWIGLU, good, ldu, 7);
    REFUSE(KVANT_OP_SWIGLU, good, ldy, 7);
    REFUSE(KVANT_OP_SWIGLU, good, gate, NULL);
    REFUSE(KVANT_OP_SWIGLU, good, up, NULL);
    REFUSE(KVANT_OP_SWIGLU, good, y, NULL);
    REFUSE(KVANT_OP_SWIGLU, good, y, buffer_a);
    REFUSE(KVANT_OP_SWIGLU, good, y, buffer_b);
    ACCEPT_NOTHING(KVANT_OP_SWIGLU, good, empty.n = 0; empty.y = NULL);
}

static void glu(void)
{
    kvant_glu_args good = {
        .gate = buffer_a, .up = buffer_b, .y = buffer_c, .n = 2, .f = 8, .ldg = 16, .ldu = 16, .ldy = 8
    };

    accept(KVANT_OP_GLU, &good, "glu");
    REFUSE(KVANT_OP_GLU, good, n, -1);
    REFUSE(KVANT_OP_GLU, good, f, 0);
    REFUSE(KVANT_OP_GLU, good, ldg, 7);
    REFUSE(KVANT_OP_GLU, good, ldu, 7);
    REFUSE(KVANT_OP_GLU, good, ldy, 7);
    REFUSE(KVANT_OP_GLU, good, gate, NULL);
    REFUSE(KVANT_OP_GLU, good, up, NULL);
    REFUSE(KVANT_OP_GLU, good, y, NULL);
    REFUSE(KVANT_OP_GLU, good, y, buffer_a);
    REFUSE(KVANT_OP_GLU, good, y, buffer_b);
    REFUSE(KVANT_OP_GLU, good, kind, 4);
    REFUSE(KVANT_OP_GLU, good, kind, -1);
    REFUSE(KVANT_OP_GLU, good, kind, 1);            /* without alpha and limit */
    REFUSE(KVANT_OP_GLU, good, kind, 1; broken.limit = 7.0f);
    ACCEPT_NOTHING(KVANT_OP_GLU, good, empty.n = 0; empty.y = NULL);
}

static void gate_mul(void)
{
    kvant_gate_mul_args good = {
        .y = buffer_a, .gate = buffer_b, .n = 2, .h = 2, .d = 4, .ldy = 8, .gy = 4, .ldg = 16, .gg = 8
    };

    accept(KVANT_OP_GATE_MUL, &good, "gate_mul");
    REFUSE(KVANT_OP_GATE_MUL, good, n, -1);
    REFUSE(KVANT_OP_GATE_MUL, good, h, 0);
    REFUSE(KVANT_OP_GATE_MUL, good, d, 0);
    REFUSE(KVANT_OP_GATE_MUL, good, ldy, 7);
    REFUSE(KVANT_OP_GATE_MUL, good, gy, 3);
    REFUSE(KVANT_OP_GATE_MUL, good, ldg, 11);
    REFUSE(KVANT_OP_GATE_MUL, good, gg, 3);
    REFUSE(KVANT_OP_GATE_MUL, good, y, NULL);
    REFUSE(KVANT_OP_GATE_MUL, good, gate, NULL);
    ACCEPT_NOTHING(KVANT_OP_GATE_MUL, good, empty.n = 0; empty.y = NULL);
}

static void gate_add(void)
{
    kvant_gate_add_args good = { .y = buffer_a, .x = buffer_b, .gate = buffer_c, .n = 1, .d = 4 };

    accept(KVANT_OP_GATE_ADD, &good, "gate_add");
    REFUSE(KVANT_OP_GATE_ADD, good, n, -1);
    REFUSE(KVANT_OP_GATE_ADD, good, d, 0);
    REFUSE(KVANT_OP_GATE_ADD, good, y, NULL);
    REFUSE(KVANT_OP_GATE_ADD, good, x, NULL);
    REFUSE(KVANT_OP_GATE_ADD, good, gate, NULL);
    ACCEPT_NOTHING(KVANT_OP_GATE_ADD, good, empty.n = 0; empty.y = NULL);
}

static void matmul(void)
{
    const kvant_weight w = weight(1);
    kvant_matmul_args good = { .w = &w, .x = buffer_a, .y = buffer_b, .m = 2, .ldx = 32, .ldy = 2 };

    accept(KVANT_OP_MATMUL, &good, "matmul");
    REFUSE(KVANT_OP_MATMUL, good, m, -1);
    REFUSE(KVANT_OP_MATMUL, good, w, NULL);
    REFUSE(KVANT_OP_MATMUL, good, x, NULL);
    REFUSE(KVANT_OP_MATMUL, good, y, NULL);
    REFUSE(KVANT_OP_MATMUL, good, y, buffer_a);
    REFUSE(KVANT_OP_MATMUL, good, ldx, 31);
    REFUSE(KVANT_OP_MATMUL, good, ldy, 1);
    REFUSE(KVANT_OP_MATMUL, good, compute, 2);
    ACCEPT_NOTHING(KVANT_OP_MATMUL, good, empty.m = 0; empty.x = NULL);
}

static void matmul_id(void)
{
    const kvant_weight w = weight(4);
    kvant_matmul_id_args good = {
        .w = &w, .x = buffer_a, .ids = ints, .y = buffer_b, .n = 1, .k = 2, .x_div = 2, .ldx = 32
    };

    accept(KVANT_OP_MATMUL_ID, &good, "matmul_id");
    REFUSE(KVANT_OP_MATMUL_ID, good, n, -1);
    REFUSE(KVANT_OP_MATMUL_ID, good, w, NULL);
    REFUSE(KVANT_OP_MATMUL_ID, good, k, 0);
    REFUSE(KVANT_OP_MATMUL_ID, good, k, 5);
    REFUSE(KVANT_OP_MATMUL_ID, good, x_div, 3);
    REFUSE(KVANT_OP_MATMUL_ID, good, x_div, 0);
    REFUSE(KVANT_OP_MATMUL_ID, good, x, NULL);
    REFUSE(KVANT_OP_MATMUL_ID, good, ids, NULL);
    REFUSE(KVANT_OP_MATMUL_ID, good, y, NULL);
    REFUSE(KVANT_OP_MATMUL_ID, good, compute, -1);
    ACCEPT_NOTHING(KVANT_OP_MATMUL_ID, good, empty.n = 0; empty.x = NULL);
}

static void moe_route(void)
{
    kvant_moe_route_args good = {
        .logits = buffer_a, .ids = ints, .wts = buffer_b, .n = 1, .n_expert = 4, .k = 2, .scale = 1
    };

    accept(KVANT_OP_MOE_ROUTE, &good, "moe_route");
    REFUSE(KVANT_OP_MOE_ROUTE, good, n, -1);
    REFUSE(KVANT_OP_MOE_ROUTE, good, n_expert, 0);
    REFUSE(KVANT_OP_MOE_ROUTE, good, k, 0);
    REFUSE(KVANT_OP_MOE_ROUTE, good, k, 5);
    REFUSE(KVANT_OP_MOE_ROUTE, good, gating, -1);
    REFUSE(KVANT_OP_MOE_ROUTE, good, gating, 3);
    REFUSE(KVANT_OP_MOE_ROUTE, good, n_group, -1);
    REFUSE(KVANT_OP_MOE_ROUTE, good, n_group, 3);
    REFUSE(KVANT_OP_MOE_ROUTE, good, logits, NULL);
    REFUSE(KVANT_OP_MOE_ROUTE, good, ids, NULL);
    REFUSE(KVANT_OP_MOE_ROUTE, good, wts, NULL);
    ACCEPT_NOTHING(KVANT_OP_MOE_ROUTE, good, empty.n = 0; empty.logits = NULL);
    good.n_group = good.top_groups = good.group_best = 2;
    accept(KVANT_OP_MOE_ROUTE, &good, "moe_route with groups");
    REFUSE(KVANT_OP_MOE_ROUTE, good, top_groups, 0);
    REFUSE(KVANT_OP_MOE_ROUTE, good, top_groups, 3);
    REFUSE(KVANT_OP_MOE_ROUTE, good, group_best, 0);
    REFUSE(KVANT_OP_MOE_ROUTE, good, group_best, 3);
    good.k = 4;
    REFUSE(KVANT_OP_MOE_ROUTE, good, top_groups, 1);
}

static void moe_combine(void)
{
    kvant_moe_combine_args good = { .x = buffer_a, .wts = buffer_b, .y = buffer_c, .n = 1, .k = 2, .d = 4 };

    accept(KVANT_OP_MOE_COMBINE, &good, "moe_combine");
    REFUSE(KVANT_OP_MOE_COMBINE, good, n, -1);
    REFUSE(KVANT_OP_MOE_COMBINE, good, k, 0);
    REFUSE(KVANT_OP_MOE_COMBINE, good, d, 0);
    REFUSE(KVANT_OP_MOE_COMBINE, good, x, NULL);
    REFUSE(KVANT_OP_MOE_COMBINE, good, wts, NULL);
    REFUSE(KVANT_OP_MOE_COMBINE, good, y, NULL);
    REFUSE(KVANT_OP_MOE_COMBINE, good, y, buffer_a);
    ACCEPT_NOTHING(KVANT_OP_MOE_COMBINE, good, empty.n = 0; empty.x = NULL);
}

static void rows_gather(void)
{
    kvant_rows_gather_args good = { .x = buffer_a, .idx = ints, .y = buffer_b, .n = 1, .d = 4 };

    accept(KVANT_OP_ROWS_GATHER, &good, "rows_gather");
    REFUSE(KVANT_OP_ROWS_GATHER, good, n, -1);
    REFUSE(KVANT_OP_ROWS_GATHER, good, d, 0);
    REFUSE(KVANT_OP_ROWS_GATHER, good, x, NULL);
    REFUSE(KVANT_OP_ROWS_GATHER, good, idx, NULL);
    REFUSE(KVANT_OP_ROWS_GATHER, good, y, NULL);
    REFUSE(KVANT_OP_ROWS_GATHER, good, y, buffer_a);
    ACCEPT_NOTHING(KVANT_OP_ROWS_GATHER, good, empty.n = 0; empty.x = NULL);
}

static void argmax(void)
{
    kvant_argmax_args good = { .x = buffer_a, .ids = ints, .n = 1, .d = 4 };

    accept(KVANT_OP_ARGMAX, &good, "argmax");
    REFUSE(KVANT_OP_ARGMAX, good, n, -1);
    REFUSE(KVANT_OP_ARGMAX, good, d, 0);
    REFUSE(KVANT_OP_ARGMAX, good, x, NULL);
    REFUSE(KVANT_OP_ARGMAX, good, ids, NULL);
    ACCEPT_NOTHING(KVANT_OP_ARGMAX, good, empty.n = 0; empty.x = NULL);
}

static void top_k(void)
{
    kvant_top_k_args good = { .x = buffer_a, .values = buffer_b, .ids = ints, .n = 1, .d = 4, .k = 2 };

    accept(KVANT_OP_TOP_K, &good, "top_k");
    REFUSE(KVANT_OP_TOP_K, good, n, -1);
    REFUSE(KVANT_OP_TOP_K, good, d, 0);
    REFUSE(KVANT_OP_TOP_K, good, k, 0);
    REFUSE(KVANT_OP_TOP_K, good, k, KVANT_TOP_K_MOST + 1);
    REFUSE(KVANT_OP_TOP_K, good, x, NULL);
    REFUSE(KVANT_OP_TOP_K, good, values, NULL);
    REFUSE(KVANT_OP_TOP_K, good, ids, NULL);
    ACCEPT_NOTHING(KVANT_OP_TOP_K, good, empty.n = 0; empty.x = NULL);
}

static void cache_write(void)
{
    const kvant_kv_side side = cache_side(NULL);
    kvant_cache_write_args good = { .seqs = sequences, .side = side, .x = buffer_a, .ldx = 64, .h = 2, .d = 32 };

    accept(KVANT_OP_CACHE_WRITE, &good, "cache_write");
    REFUSE_PAGES(KVANT_OP_CACHE_WRITE, good);
    REFUSE_SIDE(KVANT_OP_CACHE_WRITE, good, side);
    REFUSE(KVANT_OP_CACHE_WRITE, good, x, NULL);
    REFUSE(KVANT_OP_CACHE_WRITE, good, ldx, 63);
    REFUSE(KVANT_OP_CACHE_WRITE, good, h, 0);
    REFUSE(KVANT_OP_CACHE_WRITE, good, d, 0);
    REFUSE(KVANT_OP_CACHE_WRITE, good, d, 31);
    ACCEPT_NOTHING(KVANT_OP_CACHE_WRITE, good, empty.seqs.n_tokens = 0; empty.x = NULL);
}

static void tail_needs_table(void)
{
    const kvant_kv_side side = cache_side((uint16_t *)(void *)buffer_d);
    kvant_cache_write_args write = { .seqs = sequences, .side = side, .x = buffer_a, .ldx = 64, .h = 2, .d = 32 };

    accept(KVANT_OP_CACHE_WRITE, &write, "cache_write into a tail");
    REFUSE(KVANT_OP_CACHE_WRITE, write, seqs.tail_table, NULL);
    kvant_page_seal_args seal = { .side = side, .src = ints, .dst = ints, .n = 1, .h = 2, .d = 32 };
    accept(KVANT_OP_PAGE_SEAL, &seal, "page_seal");
    REFUSE(KVANT_OP_PAGE_SEAL, seal, side.tail, NULL);
    REFUSE(KVANT_OP_PAGE_SEAL, seal, src, NULL);
    REFUSE(KVANT_OP_PAGE_SEAL, seal, dst, NULL);
    REFUSE(KVANT_OP_PAGE_SEAL, seal, n, -1);
    REFUSE(KVANT_OP_PAGE_SEAL, seal, h, 3);
    REFUSE(KVANT_OP_PAGE_SEAL, seal, d, 64);
}

static void cache_read(void)
{
    const kvant_kv_side side = cache_side(NULL);
    kvant_cache_read_args good = { .side = side, .page = ints, .row = ints, .y = buffer_a, .n = 1, .h = 2, .d = 32 };

    accept(KVANT_OP_CACHE_READ, &good, "cache_read");
    REFUSE_SIDE(KVANT_OP_CACHE_READ, good, side);
    REFUSE(KVANT_OP_CACHE_READ, good, n, -1);
    REFUSE(KVANT_OP_CACHE_READ, good, page, NULL);
    REFUSE(KVANT_OP_CACHE_READ, good, row, NULL);
    REFUSE(KVANT_OP_CACHE_READ, good, y, NULL);
    REFUSE(KVANT_OP_CACHE_READ, good, h, 3);
    ACCEPT_NOTHING(KVANT_OP_CACHE_READ, good, empty.n = 0; empty.page = NULL);
}

static void attn(void)
{
    const kvant_kv_side side = cache_side(NULL);
    kvant_attn_args good = { .seqs = sequences,
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
    REFUSE_PAGES(KVANT_OP_ATTN, good);
    REFUSE_SIDE(KVANT_OP_ATTN, good, k);
    REFUSE_SIDE(KVANT_OP_ATTN, good, v);
    REFUSE_QUERIES(KVANT_OP_ATTN, good);
    REFUSE(KVANT_OP_ATTN, good, scale, 0.0f);
    REFUSE(KVANT_OP_ATTN, good, h, 65536 * 2);
    REFUSE(KVANT_OP_ATTN, good, seqs.n_seqs, 65537);
    REFUSE(KVANT_OP_ATTN, good, scale, -1.0f);
    REFUSE(KVANT_OP_ATTN, good, scale, NAN);
    REFUSE(KVANT_OP_ATTN, good, out, NULL);
    REFUSE(KVANT_OP_ATTN, good, out, buffer_a);
    REFUSE(KVANT_OP_ATTN, good, ldo, 127);
    REFUSE(KVANT_OP_ATTN, good, h, 0);
    REFUSE(KVANT_OP_ATTN, good, h_kv, 4);
    REFUSE(KVANT_OP_ATTN, good, d_v, 16);
    REFUSE(KVANT_OP_ATTN, good, compute, 3);
    REFUSE(KVANT_OP_ATTN, good, max_pos, 128);
    REFUSE(KVANT_OP_ATTN, good, max_pos, -1);
    REFUSE(KVANT_OP_ATTN, good, window, -1);
    REFUSE(KVANT_OP_ATTN, good, softcap, -1.0f);
    REFUSE(KVANT_OP_ATTN, good, softcap, NAN);
    REFUSE(KVANT_OP_ATTN, good, k.tail, (uint16_t *)(void *)buffer_d; broken.seqs.tail_table = NULL);
    REFUSE(KVANT_OP_ATTN, good, v.tail, (uint16_t *)(void *)buffer_d; broken.seqs.tail_table = NULL);
    ACCEPT_NOTHING(KVANT_OP_ATTN, good, empty.seqs.n_tokens = 0; empty.q = NULL);
}

static void attn_score(void)
{
    const kvant_kv_side side = cache_side(NULL);
    kvant_attn_score_args good = { .seqs = sequences,
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
    REFUSE_PAGES(KVANT_OP_ATTN_SCORE, good);
    REFUSE_SIDE(KVANT_OP_ATTN_SCORE, good, k);
    REFUSE_QUERIES(KVANT_OP_ATTN_SCORE, good);
    REFUSE(KVANT_OP_ATTN_SCORE, good, s, NULL);
    REFUSE(KVANT_OP_ATTN_SCORE, good, lds, 0);
    ACCEPT_NOTHING(KVANT_OP_ATTN_SCORE, good, empty.seqs.n_tokens = 0; empty.q = NULL);
}

static void conv(int id)
{
    kvant_conv_args good = { .seqs = sequences,
                             .x = buffer_a,
                             .w = buffer_b,
                             .state = buffer_c,
                             .y = buffer_d,
                             .c = 8,
                             .k = 4,
                             .slot_stride = 24,
                             .ldx = 8 };

    accept(id, &good, kvant_op_get(id)->name);
    REFUSE_SLOTS(id, good);
    REFUSE(id, good, x, NULL);
    REFUSE(id, good, w, NULL);
    REFUSE(id, good, state, NULL);
    REFUSE(id, good, y, NULL);
    REFUSE(id, good, y, buffer_a);
    REFUSE(id, good, c, 0);
    REFUSE(id, good, c, (1 << 24) + 1);
    REFUSE(id, good, k, 1);
    REFUSE(id, good, k, 9);
    REFUSE(id, good, slot_stride, 23);
    REFUSE(id, good, ldx, 7);
    ACCEPT_NOTHING(id, good, empty.seqs.n_tokens = 0; empty.x = NULL);
}

static void gdn_gates(void)
{
    kvant_gdn_gates_args good = { .alpha = buffer_a, .beta = buffer_b, .a = buffer_c, .dt = buffer_d, .n = 1, .h = 2 };

    accept(KVANT_OP_GDN_GATES, &good, "gdn_gates");
    REFUSE(KVANT_OP_GDN_GATES, good, n, -1);
    REFUSE(KVANT_OP_GDN_GATES, good, h, 0);
    REFUSE(KVANT_OP_GDN_GATES, good, channels, -1);
    REFUSE(KVANT_OP_GDN_GATES, good, channels, 513);
    REFUSE(KVANT_OP_GDN_GATES, good, alpha, NULL);
    REFUSE(KVANT_OP_GDN_GATES, good, beta, NULL);
    REFUSE(KVANT_OP_GDN_GATES, good, a, NULL);
    REFUSE(KVANT_OP_GDN_GATES, good, dt, NULL);
    ACCEPT_NOTHING(KVANT_OP_GDN_GATES, good, empty.n = 0; empty.alpha = NULL);
}

static void gdn(int id)
{
    kvant_gdn_args good = { .seqs = sequences,
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

    accept(id, &good, kvant_op_get(id)->name);
    REFUSE_SLOTS(id, good);
    REFUSE(id, good, q, NULL);
    REFUSE(id, good, k, NULL);
    REFUSE(id, good, v, NULL);
    REFUSE(id, good, g, NULL);
    REFUSE(id, good, beta, NULL);
    REFUSE(id, good, state, NULL);
    REFUSE(id, good, o, NULL);
    REFUSE(id, good, o, buffer_a);
    REFUSE(id, good, o, buffer_b);
    REFUSE(id, good, hk, 0);
    REFUSE(id, good, hk, 3);
    REFUSE(id, good, hv, 0);
    REFUSE(id, good, hv, 65538);
    REFUSE(id, good, dk, 0);
    REFUSE(id, good, dv, 0);
    REFUSE(id, good, dk, 513);
    REFUSE(id, good, dv, 513);
    REFUSE(id, good, interleaved, 2);
    REFUSE(id, good, per_channel, 2);
    REFUSE(id, good, compute, 2);
    REFUSE(id, good, ldq, 7);
    REFUSE(id, good, ldk, 7);
    REFUSE(id, good, ldv, 7);
    REFUSE(id, good, slot_stride, 31);
    REFUSE(id, good, state_type, 2);
    REFUSE(id, good, state_type, -1);
    ACCEPT_NOTHING(id, good, empty.seqs.n_tokens = 0; empty.q = NULL);
}

static void ssm(int id)
{
    kvant_ssm_args good = { .seqs = sequences, .x = buffer_a, .dt = buffer_b, .b = buffer_a, .c = buffer_a,
                            .a = buffer_b, .d = buffer_b, .dt_bias = buffer_b, .state = buffer_c, .y = buffer_d,
                            .h = 4, .p = 2, .g = 2, .n = 4, .ldx = 8, .lddt = 4, .ldb = 8, .slot_stride = 32 };

    accept(id, &good, kvant_op_get(id)->name);
    REFUSE_SLOTS(id, good);
    REFUSE(id, good, x, NULL);
    REFUSE(id, good, dt, NULL);
    REFUSE(id, good, b, NULL);
    REFUSE(id, good, c, NULL);
    REFUSE(id, good, a, NULL);
    REFUSE(id, good, d, NULL);
    REFUSE(id, good, dt_bias, NULL);
    REFUSE(id, good, state, NULL);
    REFUSE(id, good, y, NULL);
    REFUSE(id, good, y, buffer_a);
    REFUSE(id, good, y, buffer_b);
    REFUSE(id, good, h, 0);
    REFUSE(id, good, h, 65538);
    REFUSE(id, good, g, 0);
    REFUSE(id, good, g, 3);
    REFUSE(id, good, p, 0);
    REFUSE(id, good, p, 513);
    REFUSE(id, good, n, 0);
    REFUSE(id, good, n, 513);
    REFUSE(id, good, ldx, 7);
    REFUSE(id, good, lddt, 3);
    REFUSE(id, good, ldb, 7);
    REFUSE(id, good, slot_stride, 31);
    REFUSE(id, good, state_type, 2);
}

static void norm_gated(void)
{
    kvant_norm_gated_args good = {
        .o = buffer_a, .z = buffer_b, .w = buffer_c, .y = buffer_a, .eps = 1e-6f, .n = 2, .h = 2, .dv = 4, .ldz = 8
    };

    accept(KVANT_OP_NORM_GATED, &good, "norm_gated");
    REFUSE(KVANT_OP_NORM_GATED, good, n, -1);
    REFUSE(KVANT_OP_NORM_GATED, good, h, 0);
    REFUSE(KVANT_OP_NORM_GATED, good, dv, 0);
    REFUSE(KVANT_OP_NORM_GATED, good, ldz, 7);
    REFUSE(KVANT_OP_NORM_GATED, good, o, NULL);
    REFUSE(KVANT_OP_NORM_GATED, good, z, NULL);
    REFUSE(KVANT_OP_NORM_GATED, good, w, NULL);
    REFUSE(KVANT_OP_NORM_GATED, good, y, NULL);
    REFUSE(KVANT_OP_NORM_GATED, good, eps, NAN);
    ACCEPT_NOTHING(KVANT_OP_NORM_GATED, good, empty.n = 0; empty.o = NULL);
}

static void slot_copy(void)
{
    kvant_slot_copy_args good = { .base = bytes, .src = ints, .dst = ints, .n = 1, .stride = 8, .bytes = 8 };

    accept(KVANT_OP_SLOT_COPY, &good, "slot_copy");
    REFUSE(KVANT_OP_SLOT_COPY, good, n, -1);
    REFUSE(KVANT_OP_SLOT_COPY, good, stride, SIZE_MAX / 2; broken.n = 3);
    REFUSE(KVANT_OP_SLOT_COPY, good, base, NULL);
    REFUSE(KVANT_OP_SLOT_COPY, good, src, NULL);
    REFUSE(KVANT_OP_SLOT_COPY, good, dst, NULL);
    REFUSE(KVANT_OP_SLOT_COPY, good, bytes, 9);
    ACCEPT_NOTHING(KVANT_OP_SLOT_COPY, good, empty.n = 0; empty.base = NULL);
}

static void slot_zero(void)
{
    kvant_slot_zero_args good = { .base = bytes, .dst = ints, .n = 1, .stride = 8, .bytes = 8 };

    accept(KVANT_OP_SLOT_ZERO, &good, "slot_zero");
    REFUSE(KVANT_OP_SLOT_ZERO, good, n, -1);
    REFUSE(KVANT_OP_SLOT_ZERO, good, base, NULL);
    REFUSE(KVANT_OP_SLOT_ZERO, good, dst, NULL);
    REFUSE(KVANT_OP_SLOT_ZERO, good, bytes, 9);
    ACCEPT_NOTHING(KVANT_OP_SLOT_ZERO, good, empty.n = 0; empty.base = NULL);
}

int main(void)
{
    kvant_diag diag;

    embed();
    norm_rms();
    norm_layer();
    norm_add_rms();
    add();
    bias();
    rows_copy();
    scale();
    softcap();
    attn_temp();
    norm_l2();
    rope();
    mul();
    swiglu();
    glu();
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
    conv(KVANT_OP_CONV_STEP);
    conv(KVANT_OP_CONV_CHUNK);
    gdn_gates();
    gdn(KVANT_OP_GDN_STEP);
    gdn(KVANT_OP_GDN_CHUNK);
    ssm(KVANT_OP_SSM_STEP);
    ssm(KVANT_OP_SSM_CHUNK);
    norm_gated();
    slot_copy();
    slot_zero();
    CHECK(kvant_op_check(-1, buffer_a, &diag) == KVANT_EINVAL, "op -1");
    CHECK(kvant_op_check(KVANT_OP_COUNT, buffer_a, &diag) == KVANT_EINVAL, "op past the last");
    for (int id = 0; id < KVANT_OP_COUNT; id++)
        CHECK(kvant_op_check(id, NULL, &diag) == KVANT_EINVAL, "%s without arguments", kvant_op_get(id)->name);
    return check_end("check_op_args");
}
