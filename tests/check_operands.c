/* check_operands.c: the operand tables (ops/operands.h): every pointer of an op's arguments is named once, with its
 * access; how far it reaches, and whether all of that is written.  A store may be left out on these answers. */
#include "support/check.h"
#include "ops/operands.h"

static float x[256], w[64], y[256];

static op_operand find(const op_operands *o, const void *at)
{
    for (int i = 0; i < o->n; i++)
        if (o->list[i].at == at)
            return o->list[i];
    CHECK(0, "no operand at the address");
    return (op_operand){ 0 };
}

static void expect(int id, const void *args, const void *at, int access, size_t bytes, int dense)
{
    const op_operands o = op_operands_of(id, args);
    const op_operand f = find(&o, at);
    const char *name = kvant_op_get(id)->name;

    CHECK(f.access == access, "%s: access %d, wanted %d", name, f.access, access);
    CHECK(f.bytes == bytes, "%s: %zu bytes, wanted %zu", name, f.bytes, bytes);
    CHECK((f.access & OPERAND_WRITE) == 0 || f.dense == dense, "%s: dense %d, wanted %d", name, f.dense, dense);
}

static void rows(void)
{
    kvant_norm_rms_args a = { .x = x, .w = w, .y = y, .n = 3, .h = 2, .d = 8, .ldx = 32, .gx = 8, .ldy = 16, .gy = 8 };

    expect(KVANT_OP_NORM_RMS, &a, x, OPERAND_READ, 4 * (2 * 32 + 16), 0);
    expect(KVANT_OP_NORM_RMS, &a, w, OPERAND_READ, 4 * 8, 0);
    expect(KVANT_OP_NORM_RMS, &a, y, OPERAND_WRITE, 4 * 48, 1);
    a.ldy = 17;
    expect(KVANT_OP_NORM_RMS, &a, y, OPERAND_WRITE, 4 * (2 * 17 + 16), 0);
    a.ldy = 18, a.gy = 9;
    expect(KVANT_OP_NORM_RMS, &a, y, OPERAND_WRITE, 4 * (2 * 18 + 17), 0);
    a.n = 0;
    expect(KVANT_OP_NORM_RMS, &a, y, OPERAND_WRITE, 0, 0);
    const kvant_add_args add = { x, y, 3, 8 };
    expect(KVANT_OP_ADD, &add, x, OPERAND_READ | OPERAND_WRITE, 4 * 24, 1);
    const kvant_rows_copy_args copy = { .x = x, .y = y, .n = 5, .h = 1, .d = 8, .ldx = 0, .gx = 8, .ldy = 8, .gy = 8 };
    expect(KVANT_OP_ROWS_COPY, &copy, x, OPERAND_READ, 4 * 8, 0);
    expect(KVANT_OP_ROWS_COPY, &copy, y, OPERAND_WRITE, 4 * 40, 1);
}

/* A state's slots and a cache's pages have no end that the arguments tell; rows of other sequences stay untouched. */
static void sequences(void)
{
    const int32_t q0[2] = { 0, 2 };
    const kvant_seqs seqs = { .n_seqs = 1, .n_tokens = 2, .q0 = q0 };
    const kvant_conv_args a = { .seqs = seqs, .x = x, .w = w, .state = x + 128, .y = y, .c = 4, .k = 4, .ldx = 4 };
    const kvant_kv_side side = { .pages = (uint8_t *)x, .tail = (uint16_t *)w };
    const kvant_page_seal_args seal = { .side = side, .src = q0, .dst = q0 + 1, .n = 1, .h = 1, .d = 32 };

    expect(KVANT_OP_CONV_STEP, &a, q0, OPERAND_READ, 8, 0);
    expect(KVANT_OP_CONV_STEP, &a, x + 128, OPERAND_READ | OPERAND_WRITE, 0, 0);
    expect(KVANT_OP_CONV_CHUNK, &a, y, OPERAND_WRITE, 4 * 8, 0);
    expect(KVANT_OP_PAGE_SEAL, &seal, x, OPERAND_READ | OPERAND_WRITE, 0, 0);
}

static void products(void)
{
    const kvant_weight weight = { .n_in = 8, .n_out = 16, .n_expert = 4 };
    kvant_matmul_args a = { .w = &weight, .x = x, .y = y, .m = 3, .ldx = 8, .ldy = 16 };
    const kvant_matmul_id_args e = {
        .w = &weight, .x = x, .ids = (int32_t *)w, .y = y, .n = 2, .k = 2, .x_div = 2, .ldx = 8
    };

    expect(KVANT_OP_MATMUL, &a, &weight, OPERAND_WEIGHT, 0, 0);
    expect(KVANT_OP_MATMUL, &a, y, OPERAND_WRITE, 4 * 48, 1);
    a.ldy = 20;
    expect(KVANT_OP_MATMUL, &a, y, OPERAND_WRITE, 4 * 56, 0);
    expect(KVANT_OP_MATMUL_ID, &e, x, OPERAND_READ, 4 * 16, 0);
    expect(KVANT_OP_MATMUL_ID, &e, y, OPERAND_WRITE, 4 * 64, 1);
}

int main(void)
{
    rows();
    sequences();
    products();
    return check_end("check_operands");
}
