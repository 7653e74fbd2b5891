/* sketch.glsl: the encoder of signs of a 128 x 256 projection, by a workgroup.  Values are in sp[128]. */
shared uint group_bits[8];

/* Bit j = <x, column j> > 0, the sum in the reference's order; norm in double. */
void encode_sketch(PTR param)
{
    const uint t = gl_LocalInvocationIndex;
    barrier();
    if (t < 8u)
        group_bits[t] = 0u;
    barrier();
    for (uint j = t; j < 256u; j += GROUP) {
        precise float sum = 0.0;
        for (uint i = 0u; i < 128u; i++)
            sum += sp[i] * ldf(param, i * 256u + j);
        if (sum > 0.0)
            atomicOr(group_bits[j >> 5], 1u << (j & 31u));
    }
    barrier();
    if (t == 0u) {
        vec2 square = vec2(0.0);
        for (uint i = 0u; i < 128u; i++)
            square = dd_add(square, dd_product(sp[i], sp[i]));
        for (uint i = 0u; i < 8u; i++)
            packed[i] = group_bits[i];
        packed[8] = to_bf16(dd_sqrt(square));
    }
}
