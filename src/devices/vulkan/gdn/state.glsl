/* state.glsl: values of a recurrent state, f32 or, where BF16, two of bf16 in a word; a thread's are side by side, two and
 * two.  The shader has LANES and BF16. */

/* Which value of its column or row a thread has as number i. */
uint element(uint i, uint lane)
{
    return 2u * (lane + LANES * (i / 2u)) + i % 2u;
}

float state_at(PTR p, uint e)
{
    if (!BF16)
        return ldf(p, e);
    return bf16_of(ld(p, e / 2u) >> 16u * (e % 2u) & 0xffffu);
}

/* Value e, and where BF16 the next one too. */
void state_put(PTR p, uint e, float v, float next)
{
    if (BF16)
        st(p, e / 2u, to_bf16(v) | to_bf16(next) << 16u);
    else
        stf(p, e, v);
}
