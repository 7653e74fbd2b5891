/* write.glsl: what cache_write and page_seal share: constants of a side, encoding one unit (a group of values, or 32
 * values of a format without groups) and storing its bytes. */
#include "cards/vulkan.h"
layout(constant_id = 0) const uint F = 0u;
layout(constant_id = 1) const uint BEST = 0u;
layout(constant_id = 2) const uint WIDTH = 32u;            /* values of a unit */
layout(constant_id = 3) const uint UNIT_BYTES = 18u;       /* of a whole unit */
layout(constant_id = 4) const uint BOOK = 0u;
layout(constant_id = 5) const uint BOOK_N = 0u;
layout(constant_id = 6) const uint CLASS = VK_ENCODE_FLOAT;
const uint FMT_LUT = BOOK_N + 1u;
#include "devices/vulkan/core/fmt.glsl"
#include "devices/vulkan/core/space.glsl"
#include "encode.glsl"
#include "trellis.glsl"
#include "sketch.glsl"

const bool BY_GROUP = CLASS == VK_ENCODE_TRELLIS || CLASS == VK_ENCODE_SKETCH;     /* a workgroup per unit */

/* The unit's bytes to byte b of the page; a unit without groups may be cut to `count` values. */
void unit_store(PTR page, uint b, uint count)
{
    const uint n = CLASS == VK_ENCODE_FLOAT ? count * (UNIT_BYTES / WIDTH) : UNIT_BYTES;
    for (uint i = 0u; i < n; i += 4u)
        st_bytes(page, b + i, packed[i >> 2], min(4u, n - i));
}

void unit_clear()
{
    for (uint i = 0u; i < 32u; i++)
        packed[i] = 0u;
}

/* y[] -> packed[], by one thread. */
void unit_encode(PTR books, PTR param, uint has_factor, uint count)
{
    unit_clear();
    if (CLASS == VK_ENCODE_FLOAT)
        encode_floats(F, count, UNIT_BYTES / WIDTH, has_factor != 0u ? ldf(param, 0u) : 1.0);
    else
        encode_group(books, F, BEST != 0u);
}

/* sp[128] -> packed[] of the first thread, by a workgroup. */
void unit_encode_group(PTR books, PTR param)
{
    unit_clear();
    if (CLASS == VK_ENCODE_TRELLIS)
        encode_trellis(books, BEST != 0u);
    else
        encode_sketch(param);
}
