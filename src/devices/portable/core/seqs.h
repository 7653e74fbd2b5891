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

/* Positions from .. to of sequence s; none: to is below from. */
struct seq_span {
    int s, from, to;
};

/* Number `at` of the spans of all sequences, which end before multiples of n or with their sequence. */
FN struct seq_span find_span(GLOBAL const int32_t *q0, GLOBAL const int32_t *pos0, int n_seqs, int n, int at)
{
    struct seq_span w = { 0, 0, -1 };
    for (int s = 0; s < n_seqs && w.to < w.from; s++) {
        const int begin = pos0[s], end = begin + q0[s + 1] - q0[s], whole = begin / n;
        const int spans = end > begin ? (end - 1) / n - whole + 1 : 0;
        if (at < spans) {
            w.s = s;
            w.from = max(begin, (whole + at) * n);
            w.to = min(end, (whole + at + 1) * n) - 1;
        }
        at -= spans;
    }
    return w;
}

#endif
