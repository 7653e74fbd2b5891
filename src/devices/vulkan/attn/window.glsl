/* window.glsl: the first key that any row of a tile sees, on the absolute grid of tiles: wherever a prompt was cut. */
uint window_begin(tile o)
{
    const uint at = o.pos / args.tokens * args.tokens;
    return args.window > 0u && at >= args.window ? at - args.window + 1u : 0u;
}
