/* check_cuda_pack.c: the CUDA device's private page layout, compiled as C: for every format that has one, every width
 * and both sides, packing 64 random rows fills every byte once and unpacking gives the rows back; turbo3_tcq's V lies
 * where sums_trellis (decode_step.cuh) reads it.  Needs no GPU. */
#include <stdint.h>
#include "base/rng.h"
#include "devices/cuda/attn/pack_head.cuh"
#include "kvant/format.h"
#include "support/check.h"

enum { MOST = 64 * 272 };

typedef struct kind {
    const char *name;
    int cls, codes;
} kind;

#define CARD_FORMAT(name, values, bytes, space, cls, codes) { #name, PACK_##cls, CODES_##codes },
static const kind kinds[] = {
#include "cards/lists.inc"
};
#undef CARD_FORMAT

static int count[MOST];

static void store(uint8_t *packed, int at, const uint8_t *from, int n)
{
    for (int i = 0; i < n; i++) {
        packed[at + i] = from[i];
        count[at + i]++;
    }
}

/* What pack.cuh says; *differ: quads, scales and words of rests that pack_head.cuh packs otherwise. */
static void pack(const pack_shape *s, const uint8_t *rows, uint8_t *packed, int *differ)
{
    for (int i = 0; s->codes == CODES_WORDS && i < s->block_bytes; i++) {
        const int half = s->block_bytes / 2, block = i / half;
        store(packed, 2 * i, rows + 2 * (block * half + pack_half_from(s, i % half)), 2);
    }
    if (s->codes == CODES_WORDS)
        return;
    for (int i = 0; i < 2 * pack_quads(s) * 32; i++) {
        const int lane = i % 32, quad = i / 32 % pack_quads(s), block = i / 32 / pack_quads(s);
        uint32_t w[4], fast[4] = { 0 };
        pack_quad(s, rows, block, quad, lane, w);
        head_quad(s, rows, block, quad, lane, fast);
        *differ += memcmp(w, fast, s->cls == PACK_LUT3 ? 12 : 16) != 0;
        for (int k = 0; k < (s->cls == PACK_LUT3 ? 3 : 4); k++)
            store(packed, pack_word_at(s, block, quad, lane, k), (const uint8_t *)&w[k], 4);
    }
    for (int i = 0; i < 64 * s->n_rec; i++) {
        const int row = i / s->n_rec, c = i % s->n_rec, block = row / PACK_BLOCK;
        const uint8_t *from = rows + row * s->row_bytes + c * s->rec_bytes;
        const int scale = block * s->block_bytes + s->code_bytes + pack_scale_at(s, row % PACK_BLOCK, c);
        const int rest = 2 * s->block_bytes + i * s->rest;
        store(packed, scale, from, 2);
        store(packed, rest, from + s->rec_bytes - s->rest, s->rest);
        if (s->codes == CODES_SIGNED)
            pack_exchange(packed + scale, packed + rest);
        *differ += *(const uint16_t *)(packed + scale) != head_scale(s, from);
        for (int n = 0; n < s->rest / 4; n++)
            *differ += *(const uint32_t *)(packed + rest + 4 * n) != head_rest(s, from, n);
    }
}

/* What unpack_kernel does. */
static void unpack(const pack_shape *s, const uint8_t *packed, uint8_t *rows)
{
    const int recs = s->rec ? s->n_rec : s->d / 32, bytes = s->rec ? s->rec_bytes : 32, half = s->block_bytes / 2;
    for (int i = 0; s->codes == CODES_WORDS && i < 2 * half; i++)
        memcpy(rows + 2 * (i / half * half + pack_half_from(s, i % half)), packed + 2 * i, 2);
    for (int i = 0; s->codes != CODES_WORDS && i < 64 * recs; i++)
        pack_record(s, packed, i / recs, i % recs, rows + i / recs * s->row_bytes + i % recs * bytes);
}

/* Lane 4g + t has words 1 + 3g .. of rows 2t and 2t + 1 of eight, for four eights of a block side by side. */
static void check_trellis_v(const pack_shape *s, const uint16_t *rows, const uint16_t *packed)
{
    const int row = s->row_bytes / 2;
    int wrong = 0;
    for (int i = 0; i < 2 * s->n_rec * 32 * 4; i++) {
        const int part = i % 4, lane = i / 4 % 32, rec = i / 128 % s->n_rec, block = i / 128 / s->n_rec;
        const uint16_t *to = packed + block * s->block_bytes / 2 + 800 * rec + 2 * (4 * lane + part);
        const uint16_t *even = rows + (32 * block + 8 * part + lane % 4 * 2) * row + 26 * rec + 1 + lane / 4 * 3;
        const uint16_t *odd = even + row;
        wrong += to[0] != even[1] || to[1] != even[2] || to[256] != odd[1] || to[257] != odd[2] || to[512] != even[0] ||
                 to[513] != odd[0];
    }
    CHECK(wrong == 0, "turbo3_tcq d %d: %d of V's words are not where they are read", s->d, wrong);
}

/* pack_trellis_to is the way back of pack_half_from. */
static void check_trellis_to(const pack_shape *s)
{
    int wrong = 0;
    for (int n = 0; n < s->block_bytes / 2; n++) {
        const int from = pack_half_from(s, n), row = from / (s->row_bytes / 2), word = from % (s->row_bytes / 2);
        wrong += pack_trellis_to(s, row, word / 26, word % 26) != n;
    }
    CHECK(wrong == 0, "turbo3_tcq d %d side %d: %d words are put elsewhere than they come from", s->d, s->role, wrong);
}

static int check_kind(const kind *k, int role, int d)
{
    static uint32_t words[3][MOST / 4];
    uint8_t *rows = (uint8_t *)words[0], *packed = (uint8_t *)words[1], *back = (uint8_t *)words[2];
    const kvant_format *f = kvant_format_find(k->name);
    pack_shape s;
    rng r = { 7 };
    int wrong = 0, differ = 0;

    memset(&s, 0, sizeof s);
    if (!pack_shape_of(role, k->cls, k->codes, d, f->group, f->group_bytes, &s))
        return 0;
    const int n = 64 * s.row_bytes;
    CHECK((size_t)s.row_bytes == kvant_format_row_bytes(f, d), "%s d %d: rows of %d bytes", k->name, d, s.row_bytes);
    for (int i = 0; i < n; i++)
        rows[i] = (uint8_t)rng_below(&r, 256);
    memset(count, 0, sizeof count);
    pack(&s, rows, packed, &differ);
    CHECK(differ == 0, "%s d %d side %d: %d words of pack_head.cuh are not those of pack.cuh", k->name, d, role, differ);
    for (int i = 0; i < n; i++) {
        wrong += count[i] != 1;
        back[i] = (uint8_t)~rows[i]; /* what unpacking leaves out differs */
    }
    unpack(&s, packed, back);
    CHECK(wrong == 0, "%s d %d side %d: %d bytes of a packed page written not once", k->name, d, role, wrong);
    CHECK(memcmp(rows, back, (size_t)n) == 0, "%s d %d side %d: unpacked rows differ", k->name, d, role);
    if (s.cls == PACK_TRELLIS)
        check_trellis_to(&s);
    if (s.cls == PACK_TRELLIS && role == PACK_V)
        check_trellis_v(&s, (const uint16_t *)rows, (const uint16_t *)packed);
    return 1;
}

int main(void)
{
    int shapes = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        for (int d = 64; d <= 256; d *= 2)
            shapes += check_kind(&kinds[i], PACK_K, d) + check_kind(&kinds[i], PACK_V, d);
    CHECK(shapes == 55, "%d shapes have a private layout, wanted 55", shapes);
    return check_end("check_cuda_pack");
}
