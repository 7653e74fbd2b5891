/* pack_head.cuh: a head of rows in shared memory to the private layout (pack.cuh), by the threads of a block or of a
 * part of one: pack.cu, encode_seal.cu.  Codes are read four at a time, so a word takes some ten instructions;
 * check_cuda_pack compares its words with those of pack.cuh, which compiles as C too, as this does. */
#ifndef KVANT_CUDA_PACK_HEAD_CUH
#define KVANT_CUDA_PACK_HEAD_CUH

#include "devices/cuda/attn/pack.cuh"

/* Byte n of the result: byte `how >> 4 n & 7` of a (0 .. 3) and b (4 .. 7). */
PACK_FN uint32_t head_bytes_of(uint32_t a, uint32_t b, uint32_t how)
{
#ifdef __CUDA_ARCH__
    return __byte_perm(a, b, how);
#else
    const uint64_t both = a | (uint64_t)b << 32;
    uint32_t o = 0;
    for (int n = 0; n < 4; n++)
        o |= (uint32_t)(both >> 8 * (how >> 4 * n & 7) & 255) << 8 * n;
    return o;
#endif
}

/* Codes j .. j + 3 of a record, a byte each; j a multiple of 4, records at even addresses. */
PACK_FN uint32_t head_four(int codes, const uint8_t *rec, int j)
{
    const uint16_t *h = (const uint16_t *)(rec + 2);
    uint32_t x;
    switch (codes) {
    case CODES_HALVES:
        h += (j & 15) / 2;
        return (h[0] | (uint32_t)h[1] << 16) >> (j & 16 ? 4 : 0) & 0x0f0f0f0fu;
    case CODES_SIGNED:
    case CODES_PAIRS:
        x = h[j / 4];
        x = (x | x << 8) & 0x00ff00ffu;
        return (x | x << 4) & 0x0f0f0f0fu;
    case CODES_STREAM:
        x = (h[3 * j / 16] | (uint32_t)h[j < 28 ? 3 * j / 16 + 1 : 5] << 16) >> 3 * j % 16;
        x = (x & 0x3fu) | (x & 0xfc0u) << 10;
        return (x & 0x00070007u) | (x & 0x00380038u) << 5;
    case CODES_PLANES:
        x = rec[2 + j / 4];
        x = (x | x << 12) & 0x000f000fu;
        x = (x | x << 6) & 0x03030303u;
        return x | ((rec[10 + j / 8] >> (j & 4) & 15u) * 0x00204081u & 0x01010101u) << 2;
    case CODES_BYTE: return h[j / 2] | (uint32_t)h[j / 2 + 1] << 16;
    default: return *(const uint32_t *)(rec + j);
    }
}

/* As head_four, for (row, value) of a head of rows. */
PACK_FN uint32_t head_row_four(const pack_shape *s, const uint8_t *rows, int row, int value)
{
    const int rec = s->rec ? value / s->rec : 0;
    return head_four(s->codes, rows + row * s->row_bytes + rec * s->rec_bytes, value - rec * s->rec);
}

/* Magnitudes stay in the nibbles; signs of codes 0 .. 3 are the bytes' top bits, of 4 .. 7 their bits 3. */
PACK_FN uint32_t head_mirror4(uint32_t w)
{
    const uint32_t low = ~w & 0x88888888u;
    return ((w & 0x77777777u) ^ (low - (low >> 3))) | (head_bytes_of(low, low << 4, 0x1504) & 0x80808080u) |
           (head_bytes_of(low, low >> 4, 0x7362) & 0x08080808u);
}

/* Three words' upper bits, of the pairs in w: magnitudes of even codes in to[0], of odd ones in to[1], signs in
 * to[2]. */
PACK_FN void head_mirror3(uint32_t w, uint32_t *to)
{
    const uint32_t odd = w >> 3, low0 = ~w & 0x04040404u, low1 = ~odd & 0x04040404u;
    to[0] |= ((w & 0x03030303u) ^ (low0 >> 1 | low0 >> 2)) << 6;
    to[1] |= ((odd & 0x03030303u) ^ (low1 >> 1 | low1 >> 2)) << 6;
    to[2] |= head_bytes_of(low0, low1, 0x5140) << 5 | head_bytes_of(low0, low1, 0x7362) << 4;
}

/* K: rows `row` and 8 more, values 8 t .. 8 t + 7 of each 32. */
PACK_FN void head_quad_k(const pack_shape *s, const uint8_t *rows, int row, int value, uint32_t *to)
{
    const int bytes = s->cls == PACK_INT8 || s->cls == PACK_FLOAT8, up = s->cls == PACK_LUT3 ? 5 : 4;
    for (int w = 0; w < 4; w += bytes ? 2 : 1) {
        const int at = bytes ? value + 2 * w : value + w / 2 * 32 + w % 2 * 4;
        const uint32_t a = head_row_four(s, rows, row, at), b = head_row_four(s, rows, row + 8, at);
        to[w] = bytes ? a : head_bytes_of(a | a >> up, b | b >> up, 0x6240);
        if (bytes)
            to[w + 1] = b;
    }
}

/* V: rows `row`, 1, 8 and 9 more, four values each, of as many 16 rows as there are. */
PACK_FN void head_quad_v(const pack_shape *s, const uint8_t *rows, int row, int value, uint32_t *to)
{
    const int bytes = s->cls == PACK_INT8 || s->cls == PACK_FLOAT8, up = s->cls == PACK_LUT3 ? 3 : 4;
    for (int k = 0; k < (bytes ? 1 : 2); k++) {
        uint32_t x[4];
        for (int i = 0; i < 4; i++)
            x[i] = head_row_four(s, rows, row + 16 * k + i / 2 * 8 + i % 2, value);
        if (bytes) {
            const uint32_t a = head_bytes_of(x[0], x[1], 0x5140), b = head_bytes_of(x[2], x[3], 0x5140);
            const uint32_t c = head_bytes_of(x[0], x[1], 0x7362), d = head_bytes_of(x[2], x[3], 0x7362);
            to[0] = head_bytes_of(a, b, 0x5410), to[1] = head_bytes_of(a, b, 0x7632);
            to[2] = head_bytes_of(c, d, 0x5410), to[3] = head_bytes_of(c, d, 0x7632);
        } else {
            const uint32_t a = x[0] | x[1] << up, b = x[2] | x[3] << up;
            to[k] = head_bytes_of(a, b, 0x5410), to[2 + k] = head_bytes_of(a, b, 0x7632);
        }
    }
}

/* The words of a quad, from rows; to: 4 words, LUT3: 3 of them count. */
PACK_FN void head_quad(const pack_shape *s, const uint8_t *rows, int block, int quad, int lane, uint32_t *to)
{
    const int g = lane / 4, t = lane % 4, bytes = s->cls == PACK_INT8 || s->cls == PACK_FLOAT8;
    const int per = s->d / (bytes ? 32 : 64), row = block * PACK_BLOCK;
    if (s->role == PACK_K)
        head_quad_k(s, rows, row + 16 * (quad / per) + g, quad % per * (bytes ? 32 : 64) + 8 * t, to);
    else if (bytes)
        head_quad_v(s, rows, row + 16 * (quad % 2) + 2 * t, 32 * (quad / 2) + 4 * g, to);
    else
        head_quad_v(s, rows, row + 2 * t, 32 * quad + 4 * g, to);
    if (s->cls == PACK_SYM4)
        to[3] = head_mirror4(to[3]);
    if (s->cls == PACK_LUT3)
        head_mirror3(to[3], to);
}

/* The codes of all rows precede these: a record's scale, and word n of the bytes that no kernel reads, whole words.
 * SIGNED: as pack_exchange has them. */
PACK_FN uint32_t head_scale(const pack_shape *s, const uint8_t *rec)
{
    const uint16_t *h = (const uint16_t *)rec;
    return s->codes == CODES_SIGNED ? (h[0] & 0x7fffu) | (h[s->rec_bytes / 2 - s->rest / 2] & 1u) << 15 : h[0];
}

PACK_FN uint32_t head_rest(const pack_shape *s, const uint8_t *rec, int n)
{
    const uint16_t *h = (const uint16_t *)(rec + s->rec_bytes - s->rest) + 2 * n;
    const uint32_t w = h[0] | (uint32_t)h[1] << 16;
    return s->codes == CODES_SIGNED && n == 0 ? (w & ~1u) | *(const uint16_t *)rec >> 15 : w;
}

#ifdef __CUDACC__

/* Thread `me` of `all`.  A code is a shift or two where the compiler knows class, codes, role and records of the shape;
 * places are constants where it knows all of it. */
static __device__ __forceinline__ void head_codes(const pack_shape &p, uint8_t *at, const uint8_t *head, int me,
                                                  int all)
{
    const int quads = pack_quads(&p);
    for (int i = me; i < 2 * quads * 32; i += all) {
        const int lane = i % 32, quad = i / 32 % quads, block = i / 32 / quads;
        uint32_t w[4];
        head_quad(&p, head, block, quad, lane, w);
        if (p.cls == PACK_LUT3)
            for (int k = 0; k < 3; k++)
                *(uint32_t *)(at + pack_word_at(&p, block, quad, lane, k)) = w[k];
        else
            *(uint4 *)(at + pack_word_at(&p, block, quad, lane, 0)) = make_uint4(w[0], w[1], w[2], w[3]);
    }
    for (int i = me; i < KVANT_PAGE * p.n_rec; i += all) {
        const int row = i / p.n_rec, c = i % p.n_rec, block = row / PACK_BLOCK;
        *(uint16_t *)(at + block * p.block_bytes + p.code_bytes + pack_scale_at(&p, row % PACK_BLOCK, c)) =
            (uint16_t)head_scale(&p, head + i * p.rec_bytes);
    }
    const int words = p.rest / 4;
    for (int i = me; i < KVANT_PAGE * p.n_rec * words; i += all)
        ((uint32_t *)(at + 2 * p.block_bytes))[i] = head_rest(&p, head + i / words * p.rec_bytes, i % words);
}

/* Returns this shape, with constants that the compiler then knows. */
template <int CLS, int CODES, int REC> static __device__ __forceinline__ pack_shape head_shape(const pack_shape &p)
{
    pack_shape o = p;
    o.cls = CLS, o.codes = CODES, o.rec = REC;
    o.rest = pack_in_pairs(CODES) ? o.rest : 0;
    return o;
}

#endif
#endif
