/* matmul_pack.h: how the CPU lays out weights for matmul.  One layout per weight type, the same for every ISA and for
 * both compute modes.  The functions are public: kvant_cpu_pack_bytes and its neighbours in ops.h.
 *
 * A PANEL is 16 outputs, all k.  Panel p of expert e holds W_e[16p .. 16p+15][*]; outputs past n_out are zeros.
 * Packed block: matmul_packed header (128 bytes), then n_expert * panels panels of panel_bytes (multiples of 64).
 *
 *   F32    f32[k][16]
 *   F16    u16[k][16]
 *   BF16   u16[ceil(k/2)][16][2]     pairs (k, k+1): one shift or mask makes 8 (16) floats; also vdpbf16ps' order
 *   others codes of all 32-blocks, then the scales of all spans.  Which of these a type has follows from its card
 *          (tools/cards/weight.py), never from its name; a new type of known parts needs nothing here.
 *
 * Codes of a 32-block are planes; group g is 4 consecutive k per output, one lane of a byte product:
 *   byte   [32/4][16][4]  signed bytes
 *   four   [32/8][16][4]  byte b of group g: low nibble k = 8g+b, high nibble k = 8g+4+b
 *   two    [2][16][4]     byte b of half h, 2-bit field f: k = 16h+4f+b
 *   one    [16][4]        byte b, bit g: k = 4g+b
 * store byte: byte; nibble, table, wide: four; two: two; three: two, one; five: four, one; six: four, two (lowest bits
 * first).  The signed code is the stored one less `centre`; table (levels up to 15) and wide: levels[stored].
 *
 * Scales of a span, 16 outputs each (F = groups of 32 k, 1 or 2):
 *   f16      f16 d                         bf16     bf16 d[F]
 *   f16_min  f16 d, f16 m                  sub      f16 d, then per 32-block i8 s[F]: d * s
 *   part     as sub: d * s * factor        sub_min  f16 d, f16 m, then per 32-block u8 s[F], u8 t[F]: d * s, m * t */
#ifndef KVANT_CPU_MATMUL_PACK_H
#define KVANT_CPU_MATMUL_PACK_H

#include "kvant/ops.h"
#include "base/error.h"
#include "cards/layouts.h"

enum { PANEL = 16, PACK_HEADER = 128 };

#define LAYOUT_ENTRY(name, store, scales, group, with_min, steps) LAYOUT_##name,
enum matmul_layout { LAYOUT_F32, LAYOUT_F16, LAYOUT_BF16, INT_LAYOUTS(LAYOUT_ENTRY) LAYOUT_COUNT };
#undef LAYOUT_ENTRY

typedef struct matmul_packed {
    int layout;                 /* enum matmul_layout */
    int panels;                 /* per expert */
    int code_bytes;             /* per 32 k of a panel; 0 for F32 F16 BF16 */
    int span, span_bytes;       /* k per scale record, and its size */
    int last;                   /* 32-blocks of a span, less one */
    int centre;                 /* of unsigned codes; table: makes the levels unsigned; byte, wide: 0 */
    uint32_t min_sign;          /* sign bit: minima are taken away; 0: added */
    float factor;               /* scales part: of every scale, a power of two */
    int8_t levels[16];          /* stores table and wide */
    size_t scale_offset;        /* of the first scale record in a panel */
    size_t panel_bytes;
} matmul_packed;

/* Panel p of expert e. */
static inline const uint8_t *matmul_panel(const matmul_packed *w, int e, int64_t p)
{
    return (const uint8_t *)w + PACK_HEADER + ((size_t)e * (size_t)w->panels + (size_t)p) * w->panel_bytes;
}

#endif
