/* space.glsl: prep_q and finish_out of all formats, by a whole workgroup on sp[] in shared memory, in the references'
 * order of operations.  Needs kv.glsl and cards/vulkan.h. */
const uint SP_MAX = 1024u;         /* twice the largest head_dim: sketches */
shared float sp[SP_MAX];
shared float sp_real[SP_MAX / 2u]; /* the real side of a sketch */

/* Unnormalised Hadamard over blocks of `size` values of sp[n]. */
void space_butterfly(uint n, uint size)
{
    for (uint h = 1u; h < size; h *= 2u) {
        barrier();
        for (uint p = gl_LocalInvocationIndex; p < n / 2u; p += GROUP) {
            const uint i = p / h * 2u * h + p % h;
            const float a = sp[i], b = sp[i + h];
            sp[i] = a + b;
            sp[i + h] = a - b;
        }
    }
    barrier();
}

/* sp *= k, and the signs of a book unless period is 0. */
void space_times(PTR books, uint n, uint from, uint period, float k)
{
    barrier();
    for (uint i = gl_LocalInvocationIndex; i < n; i += GROUP) {
        precise float v = sp[i] * k;
        sp[i] = period != 0u ? v * ldf(books, from + i % period) : v;
    }
    barrier();
}

/* The rotation of a space, in place on sp[n]; back: its inverse. */
void space_rotate(PTR books, uint space, bool back, uint n)
{
    if (space == VK_SPACE_P32) {
        if (!back)
            space_times(books, n, VK_BOOK_tbq_signs32, 32u, 1.0);
        space_butterfly(n, 32u);
        space_times(books, n, VK_BOOK_tbq_signs32, back ? 32u : 0u, uintBitsToFloat(0x3e3504f3u));
    } else if (space == VK_SPACE_R128) {
        space_times(books, n, back ? VK_BOOK_wht_signs2 : VK_BOOK_wht_signs1, 128u, 1.0);
        space_butterfly(n, 128u);
        space_times(books, n, back ? VK_BOOK_wht_signs1 : VK_BOOK_wht_signs2, 128u, uintBitsToFloat(0x3db504f3u));
    } else if (space == VK_SPACE_H128) {
        space_butterfly(n, 128u);
        space_times(books, n, 0u, 0u, 1.0 / 128.0);
    }
}

/* sp_real[dp] -> sp[sdim]. */
void space_prep(PTR books, PTR param, uint space, uint dp, uint sdim)
{
    barrier();
    if (space == VK_SPACE_SKETCH) {
        for (uint j = gl_LocalInvocationIndex; j < sdim; j += GROUP) {
            precise float sum = 0.0;
            for (uint i = 0u; i < 128u; i++)
                sum += sp_real[j / 256u * 128u + i] * ldf(param, i * 256u + j % 256u);
            sp[j] = sum;
        }
        barrier();
        return;
    }
    for (uint j = gl_LocalInvocationIndex; j < dp; j += GROUP)
        sp[j] = sp_real[j];
    space_rotate(books, space, false, dp);
    barrier();
}

/* sp[sdim] -> sp_real[dp]. */
void space_finish(PTR books, PTR param, uint space, uint dp)
{
    barrier();
    if (space == VK_SPACE_SKETCH) {
        for (uint i = gl_LocalInvocationIndex; i < dp; i += GROUP) {
            float sum = 0.0;
            for (uint j = 0u; j < 256u; j++)
                sum += ldf(param, i % 128u * 256u + j) * sp[i / 128u * 256u + j];
            sp_real[i] = sum;
        }
        barrier();
        return;
    }
    space_rotate(books, space, true, dp);
    for (uint j = gl_LocalInvocationIndex; j < dp; j += GROUP)
        sp_real[j] = sp[j];
    barrier();
}
