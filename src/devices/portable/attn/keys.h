/* keys.h: queries in both their forms, and products with keys.  The host defines K_FMT, the head's size D_K, and its
 * sizes in the format, P_K (padded) and S_K (of the space that keys are stored in). */
#ifndef KVANT_PORTABLE_KEYS_H
#define KVANT_PORTABLE_KEYS_H

#ifndef K_FMT
#define K_FMT f16
#define D_K 64
#define P_K 64
#define S_K 64
#endif

/* Tail page that holds page j of sequence s exactly for a query in page `now`, or -1: the encoded page is read. */
FN int exact_page(GLOBAL const int32_t *tails, int has_tail, int stride, int s, int j, int now, int tail_pages,
                  int sink_pages)
{
    return has_tail && (now - j < tail_pages || j < sink_pages) ? tails[s * stride + j] : -1;
}

/* shared[n] of a head's page, by a group: shared_<format>; callers need a barrier after it. */
#define SHARED(format, n) (JOIN(paged_, format) ? (n) : 1)
#define LOAD_SHARED(format, n, rows, shared, t) \
    for (int e = t; e < (JOIN(paged_, format) ? (n) : 0); e += THREADS) \
        shared[e] = JOIN(shared_, format)(rows, e)

/* raw[D_K] as given, and prep[S_K] as the format's keys want it; real: room for P_K values. */
FN void load_query(GLOBAL const float *q, GLOBAL const float *param, LOCAL float *raw, LOCAL float *prep,
                   LOCAL float *real, int t)
{
    for (int e = t; e < P_K; e += THREADS) {
        const float v = e < D_K ? q[e] : 0.0f;
        real[e] = v;
        if (e < D_K)
            raw[e] = v;
    }
    space_prep(param, JOIN(space_, K_FMT), real, prep, P_K, S_K, t);
}

/* dot[i] = <query i, key> for n queries, of a row of the exact tail or of an encoded one. */
FN void exact_dots(GLOBAL const uint16_t *row, LOCAL const float *raw, int n, OWN float *dot)
{
    for (int i = 0; i < n; i++)
        dot[i] = 0.0f;
    for (int e = 0; e < D_K; e++) {
        const float v = port_half_of(row[e]);
        for (int i = 0; i < n; i++)
            dot[i] += raw[i * D_K + e] * v;
    }
}

/* Row r is of a head of an encoded page; shared[S_K]: what its rows have in common, where the format has that. */
FN void encoded_dots(GLOBAL const uint8_t *rows, int64_t row_bytes, int r, float factor, LOCAL const float *shared,
                     LOCAL const float *prep, int n, OWN float *dot)
{
    for (int i = 0; i < n; i++)
        dot[i] = 0.0f;
    for (int e = 0; e < S_K; e++) {
        const float v = JOIN(value_, K_FMT)(rows, row_bytes, r, e, factor, shared[e]);
        for (int i = 0; i < n; i++)
            dot[i] += prep[i * S_K + e] * v;
    }
}

#endif
