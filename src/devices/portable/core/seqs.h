/* seqs.h: the sequences of a batch, and their pages. */
#ifndef KVANT_PORTABLE_SEQS_H
#define KVANT_PORTABLE_SEQS_H

#define PAGE 64                            /* KVANT_PAGE */

/* The sequence that owns token row i: the last with q0[s] <= i. */
FN int seq_of(GLOBAL const int32_t *q0, int n_seqs, int i)
{
    int lo = 0, hi = n_seqs - 1;
    while (lo < hi) {
        const int mid = (lo + hi + 1) / 2;
        if (q0[mid] <= i)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

#endif
