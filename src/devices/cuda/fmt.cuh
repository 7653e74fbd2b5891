/* fmt.cuh: the decoders of the cache formats, one value at a time: fmt_<format>(row, j, scale) is value j of a row in
 * acc space, with the roundings of the reference (compiled without contraction).  Byte layouts: docs/formats.
 * scale: f8_e4m3's parameter; the others ignore it.  Compiles as C too (portable.cuh). */
#ifndef KVANT_CUDA_FMT_CUH
#define KVANT_CUDA_FMT_CUH

#include "devices/cuda/portable.cuh"
#include "formats/polar/polar_tables.inc"
#include "formats/tbq/tbq_tables.inc"
#include "formats/tcq/tcq_tables.inc"
#include "formats/turbo/turbo_tables.inc"

PORT_TABLE float fmt_c_tbq4[16] = { TBQ4_CENTROIDS };
PORT_TABLE float fmt_c_tbq3[8] = { TBQ3_CENTROIDS };
PORT_TABLE float fmt_c_turbo3[8] = { TURBO3_CENTROIDS };
PORT_TABLE float fmt_c_turbo4[16] = { TURBO4_CENTROIDS };
PORT_TABLE float fmt_c_turbo4_66[16] = { TURBO4_66_CENTROIDS };
PORT_TABLE float fmt_c_tcq[512] = { TCQ_CODEBOOK };
PORT_TABLE float fmt_c_polar[16] = { POLAR_CENTROIDS };
PORT_TABLE float fmt_c_signs[128] = { POLAR_SIGNS };

/* Code j of a 32-value record of nibbles after its two-byte scale: low nibbles first. */
PORT_FN int fmt_nibble32(const uint8_t *record, int j)
{
    return record[2 + (j & 15)] >> (j & 16 ? 4 : 0) & 15;
}

PORT_FN float fmt_f32(const uint8_t *row, int j, float scale)
{
    (void)scale;
    return port_f32(row + 4 * j);
}

PORT_FN float fmt_f16(const uint8_t *row, int j, float scale)
{
    (void)scale;
    return port_half(row + 2 * j);
}

PORT_FN float fmt_bf16(const uint8_t *row, int j, float scale)
{
    (void)scale;
    return port_bf16(row + 2 * j);
}

PORT_FN float fmt_q8_0(const uint8_t *row, int j, float scale)
{
    const uint8_t *b = row + (j >> 5) * 34;
    (void)scale;
    return port_half(b) * (float)(int8_t)b[2 + (j & 31)];
}

PORT_FN float fmt_q4_0(const uint8_t *row, int j, float scale)
{
    const uint8_t *b = row + (j >> 5) * 18;
    (void)scale;
    return port_half(b) * (float)(fmt_nibble32(b, j & 31) - 8);
}

PORT_FN float fmt_tbq4_0(const uint8_t *row, int j, float scale)
{
    const uint8_t *b = row + (j >> 5) * 18;
    (void)scale;
    return port_half(b) * fmt_c_tbq4[fmt_nibble32(b, j & 31)];
}

PORT_FN float fmt_tbq3_0(const uint8_t *row, int j, float scale)
{
    const uint8_t *b = row + (j >> 5) * 14, *c = b + 2 + 3 * (j >> 3 & 3);
    uint32_t word = c[0] | (uint32_t)c[1] << 8 | (uint32_t)c[2] << 16;
    (void)scale;
    return port_half(b) * fmt_c_tbq3[word >> (3 * (j & 7)) & 7];
}

PORT_FN float fmt_turbo3(const uint8_t *row, int j, float scale)
{
    const uint8_t *b = row + (j >> 5) * 14;
    int e = j & 31, code = (b[2 + e / 4] >> (2 * (e & 3)) & 3) | (b[10 + e / 8] >> (e & 7) & 1) << 2;
    (void)scale;
    return fmt_c_turbo3[code] * port_half(b);
}

PORT_FN float fmt_turbo4(const uint8_t *row, int j, float scale)
{
    const uint8_t *b = row + (j >> 5) * 18;
    (void)scale;
    return fmt_c_turbo4[fmt_nibble32(b, j & 31)] * port_half(b);
}

PORT_FN float fmt_turbo4_66(const uint8_t *row, int j, float scale)
{
    const uint8_t *b = row + (j >> 7) * 66;
    int e = j & 127;
    (void)scale;
    return fmt_c_turbo4_66[b[2 + e / 2] >> (4 * (e & 1)) & 15] * port_half(b);
}

/* State t is the nine bits of the stream at bit 3t. */
PORT_FN float fmt_turbo3_tcq(const uint8_t *row, int j, float scale)
{
    const uint8_t *b = row + (j >> 7) * 52;
    int bit = 3 * (j & 127);
    const uint8_t *w = b + 2 + bit / 8;
    (void)scale;
    return fmt_c_tcq[(w[0] | w[1] << 8) >> (bit & 7) & 511] * port_half(b);
}

PORT_FN float fmt_qjl1_256(const uint8_t *row, int j, float scale)
{
    const uint8_t *b = row + (j >> 8) * 34;
    int e = j & 255;
    float v = port_bits(0x3ba06c99u) * port_bf16(b + 32);  /* sqrt(pi/2)/256 */
    (void)scale;
    return b[e / 8] >> (e & 7) & 1 ? v : -v;
}

PORT_FN float fmt_q4_polar(const uint8_t *row, int j, float scale)
{
    const uint8_t *b = row + (j >> 7) * 82;
    int e = j & 127;
    (void)scale;
    return fmt_c_polar[b[2 + e / 2] >> (4 * (e & 1)) & 15] * port_half(b);
}

PORT_FN float fmt_q4_polar_r(const uint8_t *row, int j, float scale)
{
    const uint8_t *b = row + (j >> 7) * 82;
    int e = j & 127;
    float r = port_bits(0x3d3504f3u);                      /* 0.5/sqrt(128) */
    (void)scale;
    r = (b[66] & 1 ? r : -r) * fmt_c_signs[e];
    return (fmt_c_polar[b[2 + e / 2] >> (4 * (e & 1)) & 15] + r) * port_half(b);
}

PORT_FN float fmt_f8_e4m3(const uint8_t *row, int j, float scale)
{
    uint32_t b = row[j], e = b >> 3 & 15u, m = b & 7u;
    float v = e ? (float)(8u + m) * port_bits((e + 117u) << 23) : (float)m * port_bits(118u << 23);
    v = (b & 0x7fu) == 0x7fu ? port_bits(0x7fc00000u) : v;
    return (b & 0x80u ? -v : v) * scale;
}

#endif
