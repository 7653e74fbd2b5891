/* matmul_pack.h: how the CPU lays out weights for matmul.  One layout per weight type, the same for every ISA and for
 * both compute modes.
 *
 * A PANEL is 16 outputs, all k.  Panel p of expert e holds W_e[16p .. 16p+15][*]; outputs past n_out are zeros.
 * Packed block: matmul_packed header (128 bytes), then n_expert * panels panels of panel_bytes (multiples of 64).
 *
 *   F32    f32[k][16]
 *   F16    u16[k][16]
 *   BF16   u16[ceil(k/2)][16][2]     pairs (k, k+1): one shift or mask makes 8 (16) floats; also vdpbf16ps' order
 *   others codes of all 32-blocks, then the scales of all spans:
 *     8 bit   [32/4][16][4]  i8, four consecutive k per output: one lane of vpdpbusd
 *     4 bit   [32/8][16][4]  byte b of group g: low nibble k = 8g+b, high nibble k = 8g+4+b
 *     6 bit   4 bit part, then [2][16][4]: byte b of half h, 2-bit field f: bits 4-5 of k = 16h+4f+b
 *   scales per span (16 outputs each):
 *     Q8_0 Q4_0  32: f16      MXFP4  32: bf16 (2^(e-128))     NVFP4  32: bf16[2] (half of the UE4M3 value)
 *     Q4_K      256: f16 d, f16 dmin, then 8 x { u8 s, u8 m }     Q6_K 256: f16 d, then 8 x { i8 s[2] }
 *   MXFP4 and NVFP4 keep the E2M1 code; kernels decode it to twice its value, an integer. */
#ifndef KVANT_CPU_MATMUL_PACK_H
#define KVANT_CPU_MATMUL_PACK_H

#include "kvant/ops.h"
#include "base/error.h"

enum { PANEL = 16, PACK_HEADER = 128 };

enum matmul_layout {
    LAYOUT_F32, LAYOUT_F16, LAYOUT_BF16, LAYOUT_Q8_0, LAYOUT_Q4_0, LAYOUT_Q4_K, LAYOUT_Q6_K, LAYOUT_MXFP4, LAYOUT_NVFP4,
    LAYOUT_COUNT
};

typedef struct matmul_packed {
    int layout;                 /* enum matmul_layout */
    int panels;                 /* per expert */
    int code_bytes;             /* per 32 k of a panel; 0 for F32 F16 BF16 */
    int span, span_bytes;       /* k per scale record, and its size */
    size_t scale_offset;        /* of the first scale record in a panel */
    size_t panel_bytes;
} matmul_packed;

/* Panel p of expert e. */
static inline const uint8_t *matmul_panel(const matmul_packed *w, int e, int64_t p)
{
    return (const uint8_t *)w + PACK_HEADER + ((size_t)e * (size_t)w->panels + (size_t)p) * w->panel_bytes;
}

/* Bytes of the packed block of w; KVANT_EUNSUPPORTED for a type without a layout. */
int matmul_pack_bytes(const kvant_weight *w, size_t *bytes, kvant_diag *diag);
/* Fills the header of w->packed (which has matmul_pack_bytes bytes). */
void matmul_pack_begin(kvant_weight *w);
/* Packs the panels of one part; all parts 0 .. parts-1 must run, in any order, on any threads. */
void matmul_pack_part(const kvant_weight *w, int part, int parts);

/* Two neighbouring ops are matmuls of the same activations in the same form: their common first stage need run only
 * once, and no barrier is needed between them.  Both must write different y. */
int matmul_same_input(const kvant_op *a, const kvant_op *b);

#endif
