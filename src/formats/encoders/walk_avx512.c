/* walk_avx512.c: the trellis search of turbo3_tcq (see turbo3_tcq.c) with AVX-512: two walks at once, eight lanes
 * each. The encoder `best` needs two, the upstream one runs the same values twice.  The codebook is by spiritbuun.
 *
 * The order of states is that of trellis.h: cost[a][b][c], and the axis that held the lowest digit takes the
 * new one.  Here a vector holds the c of both walks; comparisons go to mask registers, which cost a third of AVX2's
 * blends, and the branch of a minimum is kept in a byte. */
#include "base/simd/vf_avx512.h"
#include <string.h>
#include "formats/format.h"
#include "formats/simd/simd_rep.h"
#include "formats/tcq/tcq.h"
#include "cards/tables.inc"

#define INLINE static inline __attribute__((always_inline))

typedef __m512 vw; /* eight values of walk 0, then eight of walk 1 */

enum { STATES = 512, STEPS = 128 };

static const float codebook[STATES] = { TCQ_CODEBOOK };

typedef struct wide_trellis {
    float cost[8][8][16], book[3][8][8][8];
    uint8_t back[STEPS][8][16];
} wide_trellis;

static void trellis_open(wide_trellis *t)
{
    memset(t->cost, 0, sizeof t->cost);
    for (int a = 0; a < 8; a++)
        for (int b = 0; b < 8; b++)
            for (int c = 0; c < 8; c++) {
                t->book[0][a][b][c] = codebook[64 * c + 8 * a + b];
                t->book[1][a][b][c] = codebook[64 * b + 8 * c + a];
                t->book[2][a][b][c] = codebook[64 * a + 8 * b + c];
            }
}

/* The least of v[0 .. 7] lane by lane; the first index of it goes to back[16]. */
INLINE vw least(const vw *v, uint8_t *back)
{
    vw best = v[0];
    __m512i which = _mm512_setzero_si512();
#define LEAST(p)                                                                                                       \
    {                                                                                                                  \
        which = _mm512_mask_mov_epi32(which, _mm512_cmp_ps_mask(v[p], best, _CMP_LT_OQ), _mm512_set1_epi32(p));        \
        best = _mm512_min_ps(v[p], best);                                                                              \
    }
    LEAST(1)
    LEAST(2)
    LEAST(3) LEAST(4) LEAST(5) LEAST(6) LEAST(7) store128(back, _mm512_cvtepi32_epi8(which));
    return best;
}

INLINE void extend(float *cost, vw best, vw y, const float *book)
{
    vw e = _mm512_sub_ps(y, _mm512_broadcast_f32x8(_mm256_loadu_ps(book)));
    _mm512_storeu_ps(cost, _mm512_add_ps(best, _mm512_mul_ps(e, e)));
}

/* v[c] lane b = cost[b] lane c, for both walks. */
INLINE void transposed(float (*cost)[16], vw *v)
{
    const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
    const __m512i high = _mm512_or_si512(low, _mm512_set1_epi32(4));
#define PAIR(i, j)                                                                                                     \
    vw e##i = _mm512_unpacklo_ps(_mm512_loadu_ps(cost[i]), _mm512_loadu_ps(cost[j])),                                  \
       e##j = _mm512_unpackhi_ps(_mm512_loadu_ps(cost[i]), _mm512_loadu_ps(cost[j]));
    PAIR(0, 1)
    PAIR(2, 3)
    PAIR(4, 5) PAIR(6, 7)
#define FOURS(k, x, z, x4, z4, how)                                                                                    \
    {                                                                                                                  \
        vw f = _mm512_shuffle_ps(e##x, e##z, how), g = _mm512_shuffle_ps(e##x4, e##z4, how);                           \
        v[k] = _mm512_permutex2var_ps(f, low, g);                                                                      \
        v[(k) + 4] = _mm512_permutex2var_ps(f, high, g);                                                               \
    }
        FOURS(0, 0, 2, 4, 6, 0x44) FOURS(1, 0, 2, 4, 6, 0xee) FOURS(2, 1, 3, 5, 7, 0x44) FOURS(3, 1, 3, 5, 7, 0xee)
}

/* The minimum runs over lanes. */
static void step_lanes(wide_trellis *t, vw y, uint8_t (*back)[16])
{
    for (int a = 0; a < 8; a++) {
        vw v[8];
        transposed(t->cost[a], v);
        vw best = least(v, back[a]);
#define SPREAD(b)                                                                                                      \
    extend(                                                                                                            \
        t->cost[a][b],                                                                                                 \
        _mm512_permutexvar_ps(                                                                                         \
            _mm512_setr_epi32(b, b, b, b, b, b, b, b, 8 + b, 8 + b, 8 + b, 8 + b, 8 + b, 8 + b, 8 + b, 8 + b), best),  \
        y, t->book[0][a][b]);
        REP8(SPREAD)
    }
}

#define TAKE_B(b) _mm512_loadu_ps(t->cost[k][b]),
#define TAKE_A(a) _mm512_loadu_ps(t->cost[a][k]),
#define PUT_B(b)  extend(t->cost[k][b], best, y, t->book[1][k][b]);
#define PUT_A(a)  extend(t->cost[a][k], best, y, t->book[2][a][k]);

static void step_b(wide_trellis *t, vw y, uint8_t (*back)[16])
{
    for (int k = 0; k < 8; k++) {
        const vw v[8] = { REP8(TAKE_B) };
        vw best = least(v, back[k]);
        REP8(PUT_B)
    }
}

static void step_a(wide_trellis *t, vw y, uint8_t (*back)[16])
{
    for (int k = 0; k < 8; k++) {
        const vw v[8] = { REP8(TAKE_A) };
        vw best = least(v, back[k]);
        REP8(PUT_A)
    }
}

/* The first least final state; after 128 steps a state is (h, m, l) = (b, c, a). */
static int trellis_end(const wide_trellis *t, int walk)
{
    int s = 0;
    float best = t->cost[0][0][8 * walk];
    for (int i = 1; i < STATES; i++) {
        float c = t->cost[i & 7][i >> 6][8 * walk + (i >> 3 & 7)];
        if (c < best) {
            best = c;
            s = i;
        }
    }
    return s;
}

static void trace(const wide_trellis *t, int walk, tcq_path *path)
{
    int s = trellis_end(t, walk);
    for (int i = STEPS - 1; i >= 0; i--) {
        int g = s & 63, at = i % 3 == 1 ? (g & 7) * 8 + (g >> 3) : g; /* back of step 1 lies at [m][h] */
        path->state[i] = (uint16_t)s;
        s = g << 3 | t->back[i][at >> 3][8 * walk + (at & 7)];
    }
    path->start = s;
}

void tcq_walk_avx512(const float (*y)[STEPS], int n, tcq_path *path)
{
    wide_trellis t;
    trellis_open(&t);
    for (int i = 0; i < STEPS; i++) {
        vw v = _mm512_insertf32x8(_mm512_set1_ps(y[0][i]), _mm256_set1_ps(y[n - 1][i]), 1);
        if (i % 3 == 0)
            step_lanes(&t, v, t.back[i]);
        else if (i % 3 == 1)
            step_b(&t, v, t.back[i]);
        else
            step_a(&t, v, t.back[i]);
    }
    for (int walk = 0; walk < n; walk++)
        trace(&t, walk, &path[walk]);
}
