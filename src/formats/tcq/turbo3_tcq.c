/* turbo3_tcq: 52 bytes per 128 values: [norm fp16][qs u8 x 49][pad u8 = 0, ignored on read].
 * qs is a little-endian bit stream: bits 0..5 the initial state >> 3, then 3-bit symbols, symbol t at bit 6 + 3t;
 * bits 390, 391 are 0.  A state has 9 bits, next = state >> 3 | symbol << 6, so state t (after symbol t) is simply
 * the 9 bits of the stream at bit 3t.  acc space: R(x);  value t = codebook[state t] * norm.
 *
 * upstream: y = R(x/|x|); the path of least squared error by Viterbi, free start; norm = |x| / |values of the path|.
 * best: that path or a second one, walked under another norm, whichever errs less; unbiased norm (search.h).
 * NaN or Inf input: all-zero stream, norm NaN or Inf.  The codebook is by spiritbuun (tables.toml).
 * Source: docs/formats/turbo3_tcq.md.  Golden: tests/golden/turbo3_tcq.json. */
#include "formats/format.h"

#include <math.h>
#include "base/half.h"
#include "formats/encoders/search.h"
#include "formats/tcq/tcq.h"
#include "cards/tables.inc"
#include "formats/turbo/turbo.h"

enum { STATES = 512, BRANCHES = 64 };

static const float codebook[STATES] = { TCQ_CODEBOOK };

/* cost'[s] = min over the 8 predecessors of s&63, plus (y - codebook[s])^2.  Ties take the smallest predecessor. */
static void viterbi_step(float y, const float *cost, float *next, uint8_t *back)
{
    float best[BRANCHES];
    for (int g = 0; g < BRANCHES; g++) {
        best[g] = cost[g << 3];
        back[g] = 0;
        for (int p = 1; p < 8; p++)
            if (cost[g << 3 | p] < best[g]) {
                best[g] = cost[g << 3 | p];
                back[g] = (uint8_t)p;
            }
    }
    for (int s = 0; s < STATES; s++) {
        float e = y - codebook[s];
        next[s] = best[s & 63] + e * e;
    }
}

static void walk_one(const float *y, tcq_path *path)
{
    float cost[2][STATES] = { { 0 } };
    uint8_t back[TURBO_GROUP][BRANCHES];
    for (int t = 0; t < TURBO_GROUP; t++)
        viterbi_step(y[t], cost[t & 1], cost[~t & 1], back[t]);

    int s = 0;                             /* after 128 steps the costs are in cost[0] */
    for (int i = 1; i < STATES; i++)
        if (cost[0][i] < cost[0][s])
            s = i;
    for (int t = TURBO_GROUP - 1; t >= 0; t--) {
        path->state[t] = (uint16_t)s;
        s = (s & 63) << 3 | back[t][s & 63];
    }
    path->start = s;
}

static void walk_ref(const float (*y)[TURBO_GROUP], int n, tcq_path *path)
{
    for (int i = 0; i < n; i++)
        walk_one(y[i], &path[i]);
}

/* qs from the path: bit i of byte b is bit 8b + i of the stream. */
static void tcq_pack(uint16_t norm, const uint16_t *state, int start, uint8_t *bytes)
{
    memset(bytes, 0, 52);
    store_u16(bytes, norm);
    bytes[2] = (uint8_t)(start >> 3);
    for (int t = 0; t < TURBO_GROUP; t++) {
        int bit = 6 + 3 * t, symbol = state[t] >> 6;
        bytes[2 + bit / 8] = (uint8_t)(bytes[2 + bit / 8] | symbol << (bit % 8));
        if (bit % 8 > 5)
            bytes[3 + bit / 8] = (uint8_t)(symbol >> (8 - bit % 8));
    }
}

/* sum (y*norm - scale*value)^2 of a path, as decoded. */
static double path_error(const float *y, float norm, const uint16_t *state, uint16_t scale)
{
    double err = 0.0;
    for (int t = 0; t < TURBO_GROUP; t++) {
        double e = (double)y[t] * norm - (double)codebook[state[t]] * half_to_f32(scale);
        err += e * e;
    }
    return err;
}

/* The stored norm of least squared error for a path. */
static uint16_t path_refit(const float *y, float norm, const uint16_t *state)
{
    double yv = 0.0, vv = 0.0;
    for (int t = 0; t < TURBO_GROUP; t++) {
        yv += (double)y[t] * codebook[state[t]];
        vv += (double)codebook[state[t]] * codebook[state[t]];
    }
    return search_storable((float)(norm * yv / vv));
}

/* The norm that leaves scores unbiased (search.h). */
static uint16_t path_unbiased(const float *y, float norm, const uint16_t *state, uint16_t scale)
{
    double yy = 0.0, yv = 0.0;
    for (int t = 0; t < TURBO_GROUP; t++) {
        yy += (double)y[t] * y[t];
        yv += (double)y[t] * codebook[state[t]];
    }
    return search_unbiased_scale(norm * yy, yv, scale);
}

/* Takes the upstream path or the second one (values 1/0.94 larger), norms refitted, whichever errs less.  On Gaussian
 * rows: upstream .02170, refit .02154, second walk .02116 (a third one .0207: not worth half as much time again). */
static const tcq_path *tcq_choose(const tcq_path *path, const float *y, float norm, uint16_t *scale)
{
    const tcq_path *best = &path[0];
    double err = path_error(y, norm, path[0].state, *scale);
    for (int i = 0; i < 2; i++) {
        uint16_t h = path_refit(y, norm, path[i].state);
        double refit = path_error(y, norm, path[i].state, h);
        if (refit < err || (i == 0 && !isfinite(err) && isfinite(refit))) {
            best = &path[i];
            *scale = h;
            err = refit;
        }
    }
    *scale = path_unbiased(y, norm, best->state, *scale);
    return best;
}

void tcq_encode_group(tcq_walk_fn *walk, const float *x, uint8_t *bytes, int encoder)
{
    float y[2][TURBO_GROUP], norm = turbo_prepare(x, y[0]), r = 0.0f;
    const int n = encoder == KVANT_ENCODER_BEST ? 2 : 1;
    tcq_path path[2];
    const tcq_path *best = path;
    for (int t = 0; t < TURBO_GROUP; t++)
        y[1][t] = y[0][t] * (1.0f / 0.94f);
    walk(y, n, path);
    for (int t = 0; t < TURBO_GROUP; t++)
        r += codebook[path[0].state[t]] * codebook[path[0].state[t]];
    uint16_t scale = format_norm(turbo_corrected(norm, r), encoder);
    if (n == 2)
        best = tcq_choose(path, y[0], norm, &scale);
    tcq_pack(scale, best->state, best->start, bytes);
}

static void turbo3_tcq_encode_group(const void *param, const float *x, uint8_t *bytes, int encoder)
{
    (void)param;
    tcq_encode_group(walk_ref, x, bytes, encoder);
}

static void turbo3_tcq_decode_group(const void *param, const uint8_t *bytes, float *acc)
{
    float norm = half_to_f32(load_u16(bytes));
    (void)param;
    for (int t = 0; t < TURBO_GROUP; t++) {
        const uint8_t *b = bytes + 2 + 3 * t / 8;      /* the last pair ends in byte 50, before the pad */
        acc[t] = codebook[(b[0] | b[1] << 8) >> (3 * t % 8) & 511] * norm;
    }
}

static void turbo3_tcq_prep_group(const void *param, const float *q, float *qp)
{
    (void)param;
    turbo_rotate(q, qp);
}

static void turbo3_tcq_finish_group(const void *param, const float *acc, float *x)
{
    (void)param;
    turbo_unrotate(acc, x);
}

KVANT_FORMAT_DEFINE(turbo3_tcq, "tbq3_tcq", 128, 52, 128, 0);
