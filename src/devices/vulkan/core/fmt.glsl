/* fmt.glsl: the decoders of the cache formats, eight values at a time.  Byte layouts: docs/formats.
 *
 * fmt8(F, p, b, c, lut, param, v) decodes values 8c .. 8c+7 of the row at byte b of p, in acc space: value = v[i] * result.
 * The result is the scale of these eight (1 for the wide formats).  lut: where fmt_fill put the format's table.
 * param: the factor of a format that has one.  F is a specialisation constant, so one branch is left.
 * row8: the same of a row of a head's, whatever the format's scope.
 * FMT_LUT: room for the tables of all formats that the shader reads; at least 1. */
#include "cards/vulkan.h"

shared float fmt_lut[FMT_LUT];

/* n values of the books from `from` on, to fmt_lut[base ..].  Needs a barrier before the first use. */
void fmt_fill(PTR books, uint from, uint n, uint base)
{
    for (uint i = gl_LocalInvocationIndex; i < n; i += GROUP)
        fmt_lut[base + i] = ldf(books, from + i);
}

#define CARDS_FORMATS
#define SRC PTR
#include "cards/decode.glsl"
#undef SRC
#undef CARDS_FORMATS

/* Values 8c .. 8c+7 of row r of the head whose rows (or pages of page scope) begin at byte `head` of p. */
float row8(uint F, PTR p, uint head, uint row_bytes, uint r, uint c, uint lut, float param, out float v[8])
{
    if (F >= VK_FMT_COUNT)
        return page8(F, p, head, r, c, lut, v);
    return fmt8(F, p, head + r * row_bytes, c, lut, param, v);
}

/* Values i .. i+7 of a tail page, which is f16; their scale. */
float tail8(PTR page, uint i, out float v[8])
{
    eight_f16(page, 2u * i, v);
    return 1.0;
}
