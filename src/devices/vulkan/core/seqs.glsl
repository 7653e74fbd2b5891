/* seqs.glsl: sequences of a batch. */

/* Sequence that owns token row i: the last s with q0[s] <= i. */
uint seq_of(PTR q0, uint n_seqs, uint i)
{
    uint lo = 0u, hi = n_seqs - 1u;
    while (lo < hi) {
        const uint mid = (lo + hi + 1u) / 2u;
        if (ld(q0, mid) <= i)
            lo = mid;
        else
            hi = mid - 1u;
    }
    return lo;
}
