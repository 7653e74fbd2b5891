/* write.glsl: what cache_write and page_seal share: constants of a side, encoding one unit (a group of values, or 32
 * values of a format without groups) and storing its bytes. */
layout(constant_id = 0) const uint F = 0u;
layout(constant_id = 1) const uint BEST = 0u;
layout(constant_id = 2) const uint WIDTH = 32u;            /* values of a unit */
layout(constant_id = 3) const uint UNIT_BYTES = 18u;       /* of a whole unit */
layout(constant_id = 4) const uint BOOK = 0u;
layout(constant_id = 5) const uint BOOK_N = 0u;
const uint FMT_LUT = BOOK_N + 1u;
#include "fmt.glsl"
#include "space.glsl"
#include "encode.glsl"
#include "encode_group.glsl"

const bool BY_GROUP = F == VK_FMT_turbo3_tcq || F == VK_FMT_qjl1_256;      /* a workgroup per unit */
const bool WIDE = F <= VK_FMT_bf16 || F == VK_FMT_f8_e4m3;

/* The unit's bytes to byte b of the page; a unit without groups may be cut to `count` values. */
void unit_store(PTR page, uint b, uint count)
{
    const uint n = WIDE ? count * (UNIT_BYTES / WIDTH) : UNIT_BYTES;
    for (uint i = 0u; i < n; i += 4u)
        st_bytes(page, b + i, packed[i >> 2], min(4u, n - i));
}

void unit_clear()
{
    for (uint i = 0u; i < 32u; i++)
        packed[i] = 0u;
}

/* y[] -> packed[], by one thread. */
void unit_encode(PTR books, PTR param, uint has_param, uint count)
{
    unit_clear();
    if (WIDE)
        encode_wide(F, count, F == VK_FMT_f8_e4m3 && has_param != 0u ? ldf(param, 0u) : 1.0);
    else
        encode(books, F, BEST != 0u);
}

/* sp[128] -> packed[] of the first thread, by a workgroup. */
void unit_encode_group(PTR books, PTR param)
{
    unit_clear();
    if (F == VK_FMT_turbo3_tcq)
        encode_tcq(books, BEST != 0u);
    else
        encode_qjl(param);
}
