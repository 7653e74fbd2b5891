/* chunks.h: chunks of prompts for the gated delta rule on the matrices of Metal's simdgroups.  Within a chunk of n
 * tokens, with c_t the sum of its gates up to t, S the state before it, and r_t = beta_t (v_t - exp(c_t) S^T k_t):
 *   u = T r,  T = (1 + A)^-1,  A_tj = beta_t exp(c_t - c_j) <k_t, k_j> for j < t, else 0
 *   o_t = scale (exp(c_t) S^T q_t + sum of P_tj u_j),  P_tj = exp(c_t - c_j) <q_t, k_j> for j <= t, else 0
 *   S <- exp(c_n) S + sum of exp(c_n - c_t) k_t u_t^T
 * T and P hang on no state: gdn_chunks.k makes them for all chunks at once, gdn_matrix.k goes from chunk to chunk. */
#ifndef KVANT_PORTABLE_CHUNKS_H
#define KVANT_PORTABLE_CHUNKS_H

#ifndef DK
#define DK 128
#endif
#define CHUNK 64                           /* KVANT_PAGE, and THREADS: a thread has a token */
#define SIDE 8                             /* of a matrix */
#define DEEP 32                            /* values of keys that pass through threadgroup memory at once */

/* gdn_chunks.k leaves this of token j and a head: column j of T, column j of P, exp(c_j), exp(c_n - c_j). */
#define MIX (2 * CHUNK + 2)

FN int64_t mix_at(int i, int hv, int head)
{
    return ((int64_t)i * hv + head) * MIX;
}

FN int key_head(struct p_gdn p, int head)
{
    return p.interleaved ? head / (p.hv / p.hk) : head % p.hk;
}

/* Values e .. e+DEEP-1 of rows 0 .. rows-1, row by row; 0 behind their end, and from row n on. */
FN void put_rows(GLOBAL const float *x, int64_t ld, int n, int rows, int e, LOCAL float *to, int t)
{
    for (int i = t; i < rows * DEEP; i += THREADS)
        to[i] = i / DEEP < n && e + i % DEEP < DK ? x[i / DEEP * ld + e + i % DEEP] : 0.0f;
}

/* As put_rows, for CHUNK rows, which it puts as columns. */
FN void put_columns(GLOBAL const float *x, int64_t ld, int n, int e, LOCAL float *to, int t)
{
    for (int i = 0; i < DEEP; i++)
        to[i * CHUNK + t] = t < n && e + i < DK ? x[t * ld + e + i] : 0.0f;
}

#endif
