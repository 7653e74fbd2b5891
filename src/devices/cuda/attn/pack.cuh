/* pack.cuh: the private page layout: a permutation of the 64 rows of one head of one page, made for the operand
 * order of mma.m16n8k16, so that a lane's codes are whole 16-byte (4-bit, 8-bit) or 4-byte (3-bit) words.  Compiles
 * as C too.
 *
 * A head page is two blocks of 32 rows, each: all codes, then all scales; what no kernel reads (the residual bytes
 * of q4_polar) follows the second block row by row.  Per block and 32 values of a row there is one QUAD per 16 rows
 * (K) or per 32 rows (V): 4 words for each of 32 lanes, a word for each k-tile (K) or (m-tile, k-tile) (V).  Lane 4g
 * + t.
 *
 *   K   row = 16*m + 8*hi + g, value = 32*c + 8*t + 4*sub + 2*p + x: A operand, rows are tokens
 *   V   row = 16*k + 8*p + 2*t + x, value = 32*c + 4*g + 2*sub + hi: A operand, rows are values (V transposed)
 *
 * LUT4, LUT3: byte 2*p + hi of a word is the pair (x = 0, x = 1).  LUT3 stores 3 words of a quad; the low six bits
 * of a byte are its pair, the upper two bits of the three words hold the fourth word.  SYM4 is LUT4, LUT3 any book,
 * whose lower half mirrors the upper one: their fourth words hold sign and magnitude (pack_mirror4, pack_mirror3),
 * which a kernel decodes by byte permutes while the tables serve the others.  8-bit: see pack_byte.
 * TRELLIS (values 32t + i (K) or 16g + i (V) of a group of 128) and SIGN (bits 64t + i): see pack_half_from.
 * Scales: K [m][g][record] (hi = 0, hi = 1); V [record][t][k][p] (x = 0, x = 1). */
#ifndef KVANT_CUDA_PACK_CUH
#define KVANT_CUDA_PACK_CUH

#include "devices/portable.h"

#ifdef __CUDACC__
#define PACK_FN static __host__ __device__ inline
#else
#define PACK_FN static inline
#endif

enum pack_class {
    PACK_NONE, PACK_LUT4, PACK_SYM4, PACK_LUT3, PACK_INT8, PACK_FLOAT8, PACK_HALF, PACK_TRELLIS, PACK_SIGN,
    PACK_BF16, PACK_PAGE /* page scope: no private layout */
};
enum pack_role { PACK_ROWS, PACK_K, PACK_V };
enum { PACK_BLOCK = 32 };
/* How a record holds its codes, after a 2-byte scale: nibbles e and e + 16 of 32 in a byte; nibbles 2e and 2e + 1; a
 * stream of 3 bits; 2-bit and 1-bit planes; bytes.  PLAIN: bytes without a scale.  SIGNED: PAIRS, and the first bit
 * behind them counts too: a packed page has it where rows have the scale's sign, which is +, and that sign there. */
enum pack_codes {
    CODES_NONE,
    CODES_HALVES,
    CODES_PAIRS,
    CODES_STREAM,
    CODES_PLANES,
    CODES_BYTE,
    CODES_PLAIN,
    CODES_WORDS,
    CODES_SIGNED
};

PACK_FN int pack_in_pairs(int codes)
{
    return codes == CODES_PAIRS || codes == CODES_SIGNED;
}

/* SIGNED, both ways: a scale's sign and the bit behind the codes change places. */
PACK_FN void pack_exchange(uint8_t *scale, uint8_t *rest)
{
    const int other = scale[1] >> 7 ^ (rest[0] & 1);
    scale[1] ^= (uint8_t)(other << 7);
    rest[0] ^= (uint8_t)other;
}

/* A packed head: sizes in bytes; records are the values that share a scale (0: none). */
typedef struct pack_shape {
    int role, cls, codes, d;
    int rec, n_rec, rec_bytes; /* of the row layout, as row_bytes */
    int row_bytes;
    int code_bytes, block_bytes; /* of a block: its codes; all of it */
    int rest;                    /* bytes of a row that no kernel reads */
} pack_shape;

PACK_FN int pack_code_bytes(int cls, int d)
{
    return cls == PACK_LUT4 || cls == PACK_SYM4 ? d / 2 : cls == PACK_LUT3 ? d / 8 * 3 : d;
}

/* Quads of four words of one lane: where a quad lies in its block. */
PACK_FN int pack_quads(const pack_shape *s)
{
    const int words = s->cls == PACK_LUT3 ? 3 : 4;
    return s->code_bytes / (128 * words);
}

/* The row and value that (quad, word, byte, x) of a lane holds; for 8-bit codes x is a byte of the pair. */
typedef struct pack_place {
    int row, value;
} pack_place;

PACK_FN pack_place pack_lut(const pack_shape *s, int quad, int lane, int word, int byte, int x)
{
    const int g = lane / 4, t = lane % 4, p = byte / 2, hi = byte % 2;
    pack_place o;
    if (s->role == PACK_K) {
        const int per = s->d / 64, m = quad / per, kt = quad % per * 4 + word;
        o.row = 16 * m + 8 * hi + g;
        o.value = 16 * (kt & ~1) + 8 * t + 4 * (kt & 1) + 2 * p + x;
    } else {
        const int sub = word / 2, kt = word % 2;
        o.row = 16 * kt + 8 * p + 2 * t + x;
        o.value = 32 * quad + 4 * g + 2 * sub + hi;
    }
    return o;
}

/* 8-bit codes: word 2*sub + hi of a quad, byte 2*p + x; quads [m][c] (K), [c][k] (V). */
PACK_FN pack_place pack_byte(const pack_shape *s, int quad, int lane, int word, int byte)
{
    const int g = lane / 4, t = lane % 4, sub = word / 2, hi = word % 2, p = byte / 2, x = byte % 2;
    pack_place o;
    if (s->role == PACK_K) {
        const int m = quad / (s->d / 32), c = quad % (s->d / 32);
        o.row = 16 * m + 8 * hi + g;
        o.value = 32 * c + 8 * t + 4 * sub + 2 * p + x;
    } else {
        const int c = quad / 2, kt = quad % 2;
        o.row = 16 * kt + 8 * p + 2 * t + x;
        o.value = 32 * c + 4 * g + 2 * sub + hi;
    }
    return o;
}

/* Offset in the block's scales of row `row` (0..31), record c. */
PACK_FN int pack_scale_at(const pack_shape *s, int row, int c)
{
    const int m = row / 16, in = row % 16;
    if (s->role == PACK_K)
        return ((m * 8 + in % 8) * s->n_rec + c) * 4 + in / 8 * 2;
    return (c * 4 + in % 8 / 2) * 16 + (m * 2 + in / 8) * 4 + in % 2 * 2;
}

/* ---- codes of the row layout ---- */

PACK_FN int pack_get(int codes, const uint8_t *rec, int j)
{
    const uint8_t *b = rec + 2;
    switch (codes) {
    case CODES_HALVES: return b[j & 15] >> (j & 16 ? 4 : 0) & 15;
    case CODES_SIGNED:
    case CODES_PAIRS: return b[j / 2] >> (4 * (j & 1)) & 15;
    case CODES_STREAM: {
        const uint8_t *c = b + 3 * (j >> 3);
        return (c[0] | c[1] << 8 | c[2] << 16) >> (3 * (j & 7)) & 7;
    }
    case CODES_PLANES: return (b[j / 4] >> (2 * (j & 3)) & 3) | (b[8 + j / 8] >> (j & 7) & 1) << 2;
    case CODES_BYTE: return b[j];
    default: return rec[j];
    }
}

/* Into a record of zeros. */
PACK_FN void pack_put(int codes, uint8_t *rec, int j, int v)
{
    uint8_t *b = rec + 2;
    switch (codes) {
    case CODES_HALVES: b[j & 15] |= (uint8_t)(v << (j & 16 ? 4 : 0)); break;
    case CODES_SIGNED:
    case CODES_PAIRS: b[j / 2] |= (uint8_t)(v << (4 * (j & 1))); break;
    case CODES_STREAM:
        for (int i = 0; i < 3; i++) {
            const int bit = 3 * j + i;
            b[bit / 8] |= (uint8_t)((v >> i & 1) << (bit & 7));
        }
        break;
    case CODES_PLANES:
        b[j / 4] |= (uint8_t)((v & 3) << (2 * (j & 3)));
        b[8 + j / 8] |= (uint8_t)((v >> 2) << (j & 7));
        break;
    case CODES_BYTE: b[j] = (uint8_t)v; break;
    default: rec[j] = (uint8_t)v; break;
    }
}

/* Code of (row, value) of a head of rows. */
PACK_FN int pack_code(const pack_shape *s, const uint8_t *rows, int row, int value)
{
    const int rec = s->rec ? value / s->rec : 0;
    return pack_get(s->codes, rows + (size_t)row * s->row_bytes + rec * s->rec_bytes, value - rec * s->rec);
}

/* ---- fourth words: codes 0 .. 7 are its bytes' pairs, sign (1: below the middle) and magnitude each ---- */

PACK_FN int pack_sign_at(int k, int second)
{
    return k < 4 ? 8 * k + 7 : 8 * (k - 4) + second;
}

/* Magnitudes stay in the nibbles; signs of codes 0 .. 3 are the bytes' top bits, of 4 .. 7 their bits 3. */
PACK_FN uint32_t pack_mirror4(uint32_t w)
{
    uint32_t o = 0;
    for (int k = 0; k < 8; k++) {
        const uint32_t c = w >> (4 * k) & 15, low = c < 8;
        o |= (low ? 7 - c : c - 8) << (4 * k) | low << pack_sign_at(k, 3);
    }
    return o;
}

PACK_FN uint32_t pack_mirror4_back(uint32_t w)
{
    uint32_t o = 0;
    for (int k = 0; k < 8; k++) {
        const uint32_t m = w >> (4 * k) & 7;
        o |= (w >> pack_sign_at(k, 3) & 1 ? 7 - m : 8 + m) << (4 * k);
    }
    return o;
}

/* Three words' upper bits: magnitudes of even codes in to[0], of odd ones in to[1], signs in to[2]. */
PACK_FN void pack_mirror3(uint32_t c, int k, uint32_t *to)
{
    const uint32_t low = c < 4;
    to[k % 2] |= (low ? 3 - c : c - 4) << (8 * (k / 2) + 6);
    to[2] |= low << pack_sign_at(k, 6);
}

PACK_FN uint32_t pack_mirror3_back(const uint32_t *w, int k)
{
    const uint32_t m = w[k % 2] >> (8 * (k / 2) + 6) & 3;
    return w[2] >> pack_sign_at(k, 6) & 1 ? 3 - m : 4 + m;
}

/* ---- one lane's quad, both ways ---- */

/* The words of a quad, from rows; to: 4 words, LUT3: 3. */
PACK_FN void pack_quad(const pack_shape *s, const uint8_t *rows, int block, int quad, int lane, uint32_t *to)
{
    const int lut3 = s->cls == PACK_LUT3;
    for (int w = 0; w < 4; w++)
        to[w] = 0;
    for (int w = 0; w < 4; w++)
        for (int b = 0; b < 4; b++) {
            uint32_t v = 0;
            if (s->cls == PACK_INT8 || s->cls == PACK_FLOAT8) {
                const pack_place at = pack_byte(s, quad, lane, w, b);
                v = (uint32_t)pack_code(s, rows, block * PACK_BLOCK + at.row, at.value);
            } else
                for (int x = 0; x < 2; x++) {
                    const pack_place at = pack_lut(s, quad, lane, w, b, x);
                    v |= (uint32_t)pack_code(s, rows, block * PACK_BLOCK + at.row, at.value) << ((lut3 ? 3 : 4) * x);
                }
            if (lut3 && w == 3) {
                pack_mirror3(v & 7, 2 * b, to);
                pack_mirror3(v >> 3, 2 * b + 1, to);
            } else
                to[w] |= v << (8 * b);
        }
    if (s->cls == PACK_SYM4)
        to[3] = pack_mirror4(to[3]);
}

/* The pair or byte in byte b of word w of a quad. */
PACK_FN int pack_unit(const pack_shape *s, const uint32_t *quad, int w, int b)
{
    if (s->cls == PACK_LUT3)
        return w < 3 ? (int)(quad[w] >> (8 * b) & 63)
                     : (int)(pack_mirror3_back(quad, 2 * b) | pack_mirror3_back(quad, 2 * b + 1) << 3);
    return (int)((s->cls == PACK_SYM4 && w == 3 ? pack_mirror4_back(quad[3]) : quad[w]) >> (8 * b) & 255);
}

/* The place of (row of the block, value): the inverse of pack_lut and pack_byte. */
typedef struct pack_seat {
    int quad, lane, word, byte, x;
} pack_seat;

PACK_FN pack_seat pack_find(const pack_shape *s, int row, int value)
{
    const int c = value / 32, bytes = s->cls == PACK_INT8 || s->cls == PACK_FLOAT8;
    pack_seat o;
    if (s->role == PACK_K) {
        const int m = row / 16, hi = row / 8 % 2, g = row % 8, t = value / 8 % 4, sub = value / 4 % 2,
                  p = value / 2 % 2;
        o.lane = 4 * g + t;
        o.x = value % 2;
        o.quad = bytes ? m * (s->d / 32) + c : m * (s->d / 64) + c / 2;
        o.word = bytes ? 2 * sub + hi : 2 * (c % 2) + sub;
        o.byte = bytes ? 2 * p + o.x : 2 * p + hi;
    } else {
        const int kt = row / 16, p = row / 8 % 2, t = row / 2 % 4, g = value / 4 % 8, sub = value / 2 % 2,
                  hi = value % 2;
        o.lane = 4 * g + t;
        o.x = row % 2;
        o.quad = bytes ? 2 * c + kt : c;
        o.word = bytes ? 2 * sub + hi : 2 * sub + kt;
        o.byte = bytes ? 2 * p + o.x : 2 * p + hi;
    }
    return o;
}

/* Byte offset in a packed head of word `word` of a quad of a lane. */
PACK_FN int pack_word_at(const pack_shape *s, int block, int quad, int lane, int word)
{
    const int at = block * s->block_bytes;
    return s->cls == PACK_LUT3 ? at + ((quad * 3 + word) * 32 + lane) * 4 : at + ((quad * 32 + lane) * 4 + word) * 4;
}

/* Bytes of record `rec` of row `row` (0..63), as the row layout has them, from a packed head: out[rec_bytes].  Without
 * records: 32 values from 32*rec on. */
PACK_FN void pack_record(const pack_shape *s, const uint8_t *packed, int row, int rec, uint8_t *out)
{
    const int block = row / PACK_BLOCK, n = s->rec ? s->rec : 32, bytes = s->rec ? s->rec_bytes : 32;
    const uint8_t *scales = packed + block * s->block_bytes + s->code_bytes;
    for (int i = 0; i < bytes; i++)
        out[i] = 0;
    if (s->rec) {
        const uint8_t *from = scales + pack_scale_at(s, row % PACK_BLOCK, rec);
        out[0] = from[0];
        out[1] = from[1];
    }
    for (int j = 0; j < n; j++) {
        const pack_seat at = pack_find(s, row % PACK_BLOCK, rec * n + j);
        uint32_t quad[4];
        const int words = s->cls == PACK_LUT3 ? 3 : 4;
        for (int w = 0; w < words; w++)
            quad[w] = *(const uint32_t *)(packed + pack_word_at(s, block, at.quad, at.lane, w));
        const int unit = pack_unit(s, quad, at.word, at.byte), bits = s->cls == PACK_LUT3 ? 3 : 4;
        const int wide = s->cls == PACK_INT8 || s->cls == PACK_FLOAT8;
        pack_put(s->codes, out, j, wide ? unit : unit >> (bits * at.x) & ((1 << bits) - 1));
    }
    for (int i = 0; i < s->rest; i++) /* one record per row then */
        out[bytes - s->rest + i] = packed[2 * s->block_bytes + (row * s->n_rec + rec) * s->rest + i];
    if (s->codes == CODES_SIGNED)
        pack_exchange(out, out + bytes - s->rest);
}

/* ---- formats that are permuted by 16-bit words: turbo3_tcq and qjl1_256 ---- */

/* Row and record of the scale in place n (16-bit words) of a block's scales. */
PACK_FN int pack_scale_from(const pack_shape *s, int n, int *rec)
{
    if (s->role == PACK_K) {
        const int hi = n % 2, c = n / 2 % s->n_rec, g = n / 2 / s->n_rec % 8, m = n / 2 / s->n_rec / 8;
        *rec = c;
        return 16 * m + 8 * hi + g;
    }
    *rec = n / 32;
    return 16 * (n / 4 % 2) + 8 * (n / 2 % 2) + 2 * (n / 8 % 4) + n % 2;
}

/* TRELLIS: the stream's first 384 bits are 24 words of 16 bits after the norm (word 0); word 25 has the rest.  A lane
 * has three pairs of the 24 for a token (K) or three of them for two tokens (V): of 32 lanes the second ones, the third
 * ones, the first ones, then the rests of their tokens: there a lane of the last values finds what the others find in
 * the next lane's first one.  K: in the order of lanes 8t + g, so that rests are in other banks of shared memory than
 * what is read with them.  V: the first words of both tokens are one of 32 bits, the others of a token another; those
 * of a lane's four pairs of tokens are neighbours, which it reads as 16 bytes. */
PACK_FN int pack_trellis_from(const pack_shape *s, int n, int *word)
{
    const int ng = s->n_rec, low = n % 2;
    int row;
    if (s->role == PACK_K) {
        const int r = n / 200, in = n % 200, lane = in / 2 % 32, j = (in / 64 + 1) % 3;
        const int g = in < 192 ? lane % 8 : in - 192, t = lane / 8;
        row = 16 * (r / ng / 2) + 8 * (r / ng % 2) + g;
        *word = 26 * (r % ng) + (in < 192 ? 1 + 2 * (3 * t + j) + low : 25);
    } else {
        const int c = n / 800, at = n % 800, part = at / 2 % 4, own = at / 8 % 32, g = own / 4, t = own % 4;
        const int k = (at / 256 + 1) % 3, rest = at >= 768;
        row = 16 * (part / 2) + 8 * (part % 2) + 2 * t + (rest || !k ? low : k - 1);
        *word = 26 * c + (rest ? 25 : 1 + 3 * g + (k ? 1 + low : 0));
    }
    return row;
}

/* The way back: the place in its block of a word of a record (0: its scale). */
PACK_FN int pack_trellis_to(const pack_shape *s, int row, int rec, int word)
{
    const int ng = s->n_rec, part = row / 8, g = row % 8, t = g / 2, x = row % 2;
    if (s->role == PACK_K) {
        const int pair = (word - 1) / 2, low = (word - 1) % 2, lane = pair / 3 * 8 + g;
        if (word == 0)
            return s->code_bytes / 2 + 2 * ((part / 2 * 8 + g) * ng + rec) + part % 2;
        return 200 * (part * ng + rec) + (word == 25 ? 192 + g : (pair + 2) % 3 * 64 + 2 * lane + low);
    }
    const int third = (word - 1) / 3, low = (word - 1) % 3, own = 4 * third + t;
    if (word == 0)
        return s->code_bytes / 2 + 32 * rec + 8 * t + part / 2 * 4 + part % 2 * 2 + x;
    if (word == 25)
        return 800 * rec + 768 + 8 * t + 2 * part + x;
    return 800 * rec + 8 * own + 2 * part + (low == 0 ? 512 + x : 256 * x + low - 1);
}

/* Which 16-bit word of the rows (of one block) is word n of the packed block. */
PACK_FN int pack_half_from(const pack_shape *s, int n)
{
    int row, word, rec;
    if (n >= s->code_bytes / 2) {
        row = pack_scale_from(s, n - s->code_bytes / 2, &rec);
        word = s->cls == PACK_SIGN ? 17 * rec + 16 : 26 * rec;
    } else if (s->cls == PACK_SIGN) {
        const int q = n / 2 % 4, lane = n / 8 % 32;
        row = 16 * (n / 256) + 8 * (q % 2) + lane / 4;
        word = 2 * (2 * (lane % 4) + q / 2) + n % 2;
    } else
        row = pack_trellis_from(s, n, &word);
    return row * (s->row_bytes / 2) + word;
}

/* Fills in a shape; 0: this format and width keep rows. */
PACK_FN int pack_shape_of(int role, int cls, int codes, int d, int group, int group_bytes, pack_shape *s)
{
    const int has_rec = codes != CODES_PLAIN;
    s->role = role;
    s->cls = cls;
    s->codes = codes;
    s->d = d;
    s->rec = !has_rec ? 0 : pack_in_pairs(codes) || codes == CODES_WORDS ? 128 : 32;
    if (role == PACK_ROWS || codes == CODES_NONE || d % 64 || d % group || (s->rec && d % s->rec))
        return 0;
    s->n_rec = s->rec ? d / s->rec : 0;
    s->rec_bytes = s->rec ? group_bytes * s->rec / group : 0;
    s->row_bytes = s->rec ? s->n_rec * s->rec_bytes : d;
    if (cls == PACK_SIGN && (role != PACK_K || d != 128))
        return 0;
    s->code_bytes = codes == CODES_WORDS ? PACK_BLOCK * s->n_rec * (group_bytes - 2)
                                         : PACK_BLOCK * pack_code_bytes(cls, d);
    s->block_bytes = s->code_bytes + PACK_BLOCK * 2 * s->n_rec;
    s->rest = pack_in_pairs(codes) ? s->rec_bytes - 66 : 0;
    return 1;
}

#endif
