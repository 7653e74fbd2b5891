#version 450
/* cache_write: K or V rows of every token into its page (encoded) or, where its position has one, its tail page (f16). */
#define SLOTS 9
#define ARGS ARGPTR x; ARGPTR pages; ARGPTR tail; ARGPTR books; ARGPTR param; ARGPTR q0; ARGPTR pos0; ARGPTR table; \
    ARGPTR tails; uint n; uint n_seqs; uint stride; uint ldx; uint h; uint d; uint units; uint page_words; \
    uint head_bytes; uint row_bytes; uint has_tail; uint has_factor;
#include "devices/vulkan/core/kv.glsl"
layout(local_size_x = 128) in;
#include "write.glsl"
#include "devices/vulkan/core/seqs.glsl"

/* f16 values g .. g+count-1 of a tail row that begins at half `at`. */
void tail_store(PTR tail, uint from, uint count, PTR x, uint x_at)
{
    for (uint i = 0u; i < count; i++)
        st_bytes(tail, 2u * (from + i), to_half(ldf(x, x_at + i)), 2u);
}

void main()
{
    const uint u = BY_GROUP ? group_at() : group_at() * GROUP + gl_LocalInvocationIndex, t = gl_LocalInvocationIndex;
    const uint k = u % args.units, head = u / args.units % args.h, row = u / args.units / args.h, g = k * WIDTH;
    PTR x = P(0, x), pages = P(1, pages), tail = P(2, tail), books = P(3, books), param = P(4, param), q0 = P(5, q0);
    fmt_fill(books, BOOK, BOOK_N, 0u);
    barrier();
    if (row >= args.n)
        return;
    const uint s = seq_of(q0, args.n_seqs, row), pos = ld(P(6, pos0), s) + row - ld(q0, s), j = pos / PAGE,
               r = pos % PAGE, count = g < args.d ? min(WIDTH, args.d - g) : 0u, x_at = row * args.ldx + head * args.d + g;
    const int t_page = args.has_tail != 0u ? ldi(P(8, tails), s * args.stride + j) : -1;
    if (t_page >= 0) {
        PTR page = at_mul(tail, uint(t_page) * args.h + head, PAGE * args.d / 2u);
        if (!BY_GROUP || t == 0u)
            tail_store(page, r * args.d + g, count, x, x_at);
        return;
    }
    if (CLASS == VK_ENCODE_PAGE)       /* there is none (kvant_op_check) */
        return;
    PTR page = at_mul(pages, ld(P(7, table), s * args.stride + j), args.page_words);
    if (BY_GROUP) {
        for (uint i = t; i < 128u; i += GROUP)
            sp[i] = i < count ? ldf(x, x_at + i) : 0.0;
        unit_encode_group(books, param);
        if (t == 0u)
            unit_store(page, head * args.head_bytes + r * args.row_bytes + k * UNIT_BYTES, count);
        return;
    }
    for (uint i = 0u; i < WIDTH; i++)
        y[i] = i < count ? ldf(x, x_at + i) : 0.0;
    unit_encode(books, param, args.has_factor, count);
    unit_store(page, head * args.head_bytes + r * args.row_bytes + k * UNIT_BYTES, count);
}
