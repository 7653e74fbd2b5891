/* check_metal_shim_attn.c: what a token holds does not reach the tokens before it, whose rows share its tile on Metal's
 * matrices (0 times infinity is no number).  On the device metal-shim; the op harness has the rest. */
#include <string.h>
#include "base/error.h"
#include "base/half.h"
#include "support/shim_here.h"

enum { TOKENS = 20, HEADS = 2, D = 64, BAD = 13, COLUMN = 35 };      /* 20: from nine on matrices are used */

typedef struct data {
    float q[TOKENS * HEADS * D], out[TOKENS * HEADS * D];
    uint16_t k[KVANT_PAGE * D], v[KVANT_PAGE * D];
    int32_t q0[2], pos0[1], prompt[1], table[1];
} data;

static void fill(data *d)
{
    static float rows[2 * KVANT_PAGE * D];

    memset(d, 0, sizeof *d);
    check_fill(d->q, TOKENS * HEADS * D, -1.0f, 1.0f, 3);
    check_fill(rows, 2 * KVANT_PAGE * D, -1.0f, 1.0f, 4);
    for (int i = 0; i < KVANT_PAGE * D; i++) {
        d->k[i] = f32_to_half(rows[i]);
        d->v[i] = f32_to_half(rows[KVANT_PAGE * D + i]);
    }
    d->q0[1] = TOKENS;
    d->prompt[0] = 1;
}

/* d: of the device, whose memory is the program's. */
static int attend(data *d)
{
    const size_t row = D * sizeof(uint16_t);
    const kvant_format *f16 = kvant_format_find("f16");
    const kvant_kv_side side = { .fmt = f16, .page_bytes = row * KVANT_PAGE, .head_bytes = row * KVANT_PAGE,
                                 .row_bytes = row };
    kvant_attn_args a = { .seqs = { .n_seqs = 1, .n_tokens = TOKENS, .q0 = d->q0, .pos0 = d->pos0, .prompt = d->prompt,
                                    .table = d->table, .table_stride = 1 },
                          .k = side, .v = side, .q = d->q, .out = d->out, .ldq = HEADS * D, .gq = D, .ldo = HEADS * D,
                          .h = HEADS, .h_kv = 1, .d_k = D, .d_v = D, .scale = 0.125f, .max_pos = TOKENS - 1 };
    const kvant_op op = { .id = KVANT_OP_ATTN, .args = &a };

    a.k.pages = (uint8_t *)d->k;
    a.v.pages = (uint8_t *)d->v;
    KVANT_TRY(dev->vt->submit(dev, &op, 1, 0, &diag));
    return dev->vt->sync(dev, &diag);
}

static void isolation(data *d, uint16_t bad)
{
    static float sound[TOKENS * HEADS * D];

    fill(d);
    CHECK(attend(d) == KVANT_OK, "%s", diag.text);
    memcpy(sound, d->out, sizeof sound);
    d->v[BAD * D + COLUMN] = bad;
    CHECK(attend(d) == KVANT_OK, "%s", diag.text);
    for (int i = 0; i < TOKENS * HEADS * D; i++)
        if (i / (HEADS * D) >= BAD && i % D == COLUMN)
            CHECK(!isfinite(d->out[i]), "token %d does not see what token %d holds", i / (HEADS * D), BAD);
        else
            CHECK(d->out[i] == sound[i], "column %d of token %d is changed by token %d", i % D, i / (HEADS * D), BAD);
}

static void tests(void *d)
{
    isolation(d, 0x7c00);                       /* infinity */
    isolation(d, 0x7e01);                       /* NaN */
}

int main(void)
{
    return shim_here("check_metal_shim_attn", sizeof(data), tests);
}
