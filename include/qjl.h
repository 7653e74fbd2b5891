/* qjl.h: keys of a cache as one sign per value of a random projection (1-bit JL transform): 34 bytes in place of 256
 * bytes of bf16, and scores of queries against them.  libqjl is this header alone: no other part of kvant is needed
 * or visible.
 *
 * Shapes: a key or query is f32[128], a sketch f32[256], a projection f32[128][256], row-major:
 * sketch[j] = sum_i x[i]*pi[i][j].  One projection for each layer: blocks of one projection mean nothing under another,
 * so it travels with them.
 * <q, k> is about 1.2533141/256 * |k| * sum_j sign_j * sketch_j(q), without bias; its variance is
 * (pi/2 |q|^2 |k|^2 - <q,k>^2)/256.
 * All functions are pure, without allocation, from any thread; those that read files say so.  Buffers are the caller's
 * and do not overlap.  The code is chosen by this CPU (qjl_isa; KVANT_CPU=avx2 in the environment takes a lower rung).
 * Bytes: docs/formats/qjl1_256.md. */
#ifndef QJL_H
#define QJL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)     /* what libqjl.so exports */

enum {
    QJL_DIM = 128,
    QJL_SKETCH = 256,
    QJL_PROJECTION = 128 * 256, /* values of a projection */
    QJL_SEED = 42,              /* of the projection that kvant makes where it is given none */
    QJL_FINGERPRINT = 32,       /* bytes */
};

enum qjl_status { QJL_OK = 0, QJL_EINVAL = -1, QJL_EIO = -3, QJL_EFORMAT = -4, QJL_ENOENT = -5 };

/* One sentence about an error: the thing, the value found, the value wanted. */
typedef struct qjl_diag {
    char text[256];
} qjl_diag;

/* A key.  Bit j of the sketch, 1 where it is above zero, is signs[j/8] bit j%8; norm: |key| as bf16, in the CPU's
 * order. */
typedef struct block_qjl1_256 {
    uint8_t signs[32];
    uint16_t norm;
} block_qjl1_256;

/* The rung in use: "ref", "avx2", "avx512" or "neon"; int8: that of qjl_score_i8, "avx512vnni" among them. */
const char *qjl_isa(void);
const char *qjl_isa_i8(void);

/* A projection out of a seed: pi f32[QJL_PROJECTION].  splitmix64 and Box-Muller in double (docs/formats/qjl1_256.md
 * has every constant and the first number); not torch.randn, not numpy's: those come by file. */
void qjl_projection_build(uint64_t seed, float *pi);

/* Reads the projections of `layers` layers out of a file: f32 little-endian, one behind the other, or numpy's .npy
 * of shape (128, 256) or (layers, 128, 256).  pi f32[layers][QJL_PROJECTION].  fingerprint: NULL, or QJL_FINGERPRINT
 * bytes that these must have (qjl_fingerprint).  QJL_EINVAL: another number of layers; QJL_EFORMAT: no such file
 * format, a value that is not finite, a column of zeros, another fingerprint; QJL_ENOENT, QJL_EIO.  After an error
 * pi may hold a part.  diag may be NULL. */
int qjl_projections_read(const char *path, int layers, const uint8_t *fingerprint, float *pi, qjl_diag *diag);

/* SHA-256 of the values as they lie in a raw file: what sha256sum says of it. */
void qjl_fingerprint(const float *pi, int layers, uint8_t fingerprint[QJL_FINGERPRINT]);

/* n keys f32[n][128] -> blocks.  Sums of a sketch are in f32: a sign whose sum is within 1e-6 |key| of zero may
 * differ from another program's.  A key of NaN or infinity has such a norm. */
void qjl_quantize(const float *pi, const float *keys, int n, block_qjl1_256 *blocks);

/* n queries f32[n][128] -> sketches f32[n][256]. */
void qjl_project(const float *pi, const float *queries, int n, float *sketches);

/* Scores f32[heads][tokens] of sketches f32[heads][256]: head h reads blocks[h / (heads/kv_heads)][tokens].
 * QJL_EINVAL: a negative number, no heads, or heads no multiple of kv_heads. */
int qjl_score(const float *sketches, int heads, const block_qjl1_256 *blocks, int kv_heads, int tokens, float *scores);

/* n sketches -> int8 q[n][256] and a scale for each: max|sketch|/127, 1 if all are zero. */
void qjl_query_i8(const float *sketches, int n, int8_t *q, float *scales);

/* As qjl_score, of int8 queries: integers within a row, so that every rung gives the same bits.  The error of a
 * score is at most half a step of the query per value. */
int qjl_score_i8(const int8_t *q, const float *scales, int heads, const block_qjl1_256 *blocks, int kv_heads,
                 int tokens, float *scores);

/* Blocks -> f32[n][128] estimates of the keys, for debugging: the sketch keeps scores, not rows. */
void qjl_dequantize(const float *pi, const block_qjl1_256 *blocks, int n, float *keys);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
