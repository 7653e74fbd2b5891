/* tiles.glsl: tiles of query rows: the heads of one KV head for up to args.tokens tokens of one page, on the absolute
 * grid of args.tokens positions.  A page is then read exactly, or encoded, by the whole tile. */
struct tile { uint seq, first, count, pos; };
shared uint tile_count[GROUP];
shared tile tile_found;
shared bool tile_ok;

/* Tile number n of the batch; false past the last.  By the whole workgroup. */
bool tile_at(PTR q0, PTR pos0, uint n, out tile o)
{
    const uint t = gl_LocalInvocationIndex;
    uint left = n;
    if (t == 0u)
        tile_ok = false;
    for (uint base = 0u; base < args.n_seqs; base += GROUP) {
        const uint s = base + t;
        uint rows = 0u, pos = 0u, first = 0u;
        if (s < args.n_seqs) {
            first = ld(q0, s);
            rows = ld(q0, s + 1u) - first;
            pos = ld(pos0, s);
        }
        barrier();
        tile_count[t] = rows > 0u ? (pos + rows - 1u) / args.tokens - pos / args.tokens + 1u : 0u;
        barrier();
        uint before = 0u, all = 0u;
        for (uint i = 0u; i < GROUP && base + i < args.n_seqs; i++) {
            before += i < t ? tile_count[i] : 0u;
            all += tile_count[i];
        }
        if (left >= before && left < before + tile_count[t]) {
            const uint from = (pos / args.tokens + left - before) * args.tokens, a = max(from, pos),
                       b = min(from + args.tokens, pos + rows);
            tile_found = tile(s, first + a - pos, b - a, a);
            tile_ok = true;
        }
        if (left < all)
            break;
        left -= all;
    }
    barrier();
    o = tile_found;
    return tile_ok;
}

/* Row r of a tile: token r / heads, head r % heads of the tile; token -1: none. */
struct row_id { int token; uint head, pos; };

row_id row_of(tile t, uint kv_tile, uint r)
{
    const uint group = args.h / args.h_kv, i = r / args.heads, g = kv_tile % args.head_tiles * args.heads + r % args.heads;
    row_id o = row_id(-1, 0u, 0u);
    if (i < t.count && g < group && r < args.tokens * args.heads) {
        o.token = int(t.first + i);
        o.head = kv_tile / args.head_tiles * group + g;
        o.pos = t.pos + i;
    }
    return o;
}

/* First value of the partial result of row r in one part: m, l, then values in acc space (the tail's part: real). */
uint part_at(uint t, uint kv_tile, uint part, uint r)
{
    const uint unit = (t * args.h_kv * args.head_tiles + kv_tile) * args.n_part + part;
    return (unit * args.tokens * args.heads + r) * args.width;
}
