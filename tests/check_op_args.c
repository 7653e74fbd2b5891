/* check_op_args.c: kvant_op_check refuses every precondition that is broken, one at a time, with a message that names
 * the op; and accepts the unbroken arguments, and empty batches.  The examples are made of the cards
 * (tools/gen_ops); what no card says is at the end. */
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include "support/check.h"
#include "kvant/ops.h"

enum { MAX_HEADS = 65536, MAX_CHANNELS = 1 << 24 };     /* as src/ops/arg_check.h has them */

static float buffers[24][64];
static int32_t ints[64];
static uint8_t bytes[64];

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

/* Two heads of 32 values in q8_0, or of four in f32: head_dim is the card's. */
static kvant_kv_side side_of_two_heads(void)
{
    return (kvant_kv_side){ .fmt = kvant_format_find("q8_0"),
                            .pages = bytes,
                            .page_bytes = 34 * 64 * 2,
                            .head_bytes = 34 * 64,
                            .row_bytes = 34,
                            .tail = (uint16_t *)buffers[23] };
}

static kvant_weight weights[5];

/* The next weight, of n experts. */
static kvant_weight *one_more(int i, int n)
{
    weights[i] = (kvant_weight){
        .type = kvant_wtype_find("Q8_0"), .data = bytes, .n_in = 32, .n_out = 2, .n_expert = n, .name = "w"
    };
    return &weights[i];
}

static const kvant_weight *weight(int n)
{
    return one_more(n == 1 ? 0 : 1, n);
}

static const kvant_weight *weight_without_type(void)
{
    kvant_weight *w = one_more(2, 1);
    w->type = NULL;
    return w;
}

static const kvant_weight *weight_without_data(void)
{
    kvant_weight *w = one_more(2, 1);
    w->data = NULL;
    return w;
}

static const kvant_weight *weight_of_33(void)
{
    kvant_weight *w = one_more(3, 1);
    w->n_in = 33;
    return w;
}

static const kvant_weight *weight_of_3_scales(void)
{
    kvant_weight *w = one_more(4, 1);
    w->scale = buffers[0];
    w->n_scale = 3;
    return w;
}

static void refuse(int id, const void *args, const char *what)
{
    kvant_diag diag = { "" };
    const char *name = kvant_op_get(id)->name;
    const int rc = kvant_op_check(id, args, &diag);

    CHECK(rc == KVANT_EINVAL, "%s: %s was accepted", name, what);
    CHECK(rc == KVANT_OK || strstr(diag.text, name) != NULL || strstr(diag.text, "head_dim") != NULL,
          "%s: %s: the message does not name the op: '%s'", name, what, diag.text);
}

static void accept(int id, const void *args, const char *what)
{
    kvant_diag diag = { "" };

    CHECK(kvant_op_check(id, args, &diag) == KVANT_OK, "%s, %s, was refused: %s", kvant_op_get(id)->name, what,
          diag.text);
    CHECK(kvant_op_check(id, args, NULL) == KVANT_OK, "%s, %s, without a diag", kvant_op_get(id)->name, what);
}

#include "ops/refusals.inc"

/* Products of sizes that no 64 bits hold, and optional operands. */
static void beside_the_cards(void)
{
    kvant_norm_layer_args norm;
    kvant_attn_args attn;

    good_norm_layer(&norm);
    norm.b = NULL;
    accept(KVANT_OP_NORM_LAYER, &norm, "no bias");
    good_attn(&attn);
    attn.k.tail = attn.v.tail = NULL;
    attn.seqs.tail_table = NULL;
    accept(KVANT_OP_ATTN, &attn, "no tail");
    attn.sinks = buffers[0];
    attn.window = 5;
    accept(KVANT_OP_ATTN, &attn, "window and sinks");
}

int main(void)
{
    kvant_diag diag;

    refuse_all();
    beside_the_cards();
    CHECK(kvant_op_check(-1, buffers, &diag) == KVANT_EINVAL, "op -1");
    CHECK(kvant_op_check(KVANT_OP_COUNT, buffers, &diag) == KVANT_EINVAL, "op past the last");
    for (int id = 0; id < KVANT_OP_COUNT; id++)
        CHECK(kvant_op_check(id, NULL, &diag) == KVANT_EINVAL, "%s without arguments", kvant_op_get(id)->name);
    return check_end("check_op_args");
}
