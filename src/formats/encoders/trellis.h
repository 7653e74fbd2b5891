/* trellis.h: the trellis search of codes that are windows of a stream (turbo3_tcq.c), over simd_encode_<isa>.h. */
#include "formats/simd/simd_card.h"
#include "formats/simd/simd_rep.h"
#include "formats/tcq/tcq.h"

static const float codebook[CARD_N] = { CARD_LEVELS };

/* The trellis search, with the 512 costs as cost[a][b][c].  A state is three octal digits (h, m, l); a step takes the
 * minimum over l and its new digit comes in front: (sym, h, m).  So the axis that was l takes the new digit, and the
 * others stay where they are:
 *   step 0 of 3: (h, m, l) = (a, b, c), afterwards (c, a, b): the minimum runs over lanes, through a transposition
 *   step 1:      (h, m, l) = (c, a, b), afterwards (b, c, a)
 *   step 2:      (h, m, l) = (b, c, a), afterwards (a, b, c) */
enum { TCQ_STATES = 512, TCQ_STEPS = 128 };

typedef struct trellis {
    float cost[TCQ_STATES], book[3][TCQ_STATES];     /* book[k]: the codebook as laid out after a step k */
    int32_t back[TCQ_STEPS][64];
} trellis;

static void trellis_open(trellis *t)
{
    memset(t->cost, 0, sizeof t->cost);
    for (int a = 0; a < 8; a++)
        for (int b = 0; b < 8; b++)
            for (int c = 0; c < 8; c++) {
                int at = 64 * a + 8 * b + c;
                t->book[0][at] = codebook[64 * c + 8 * a + b];
                t->book[1][at] = codebook[64 * b + 8 * c + a];
                t->book[2][at] = codebook[at];
            }
}

/* best, which: the least of v0 .. v7 lane by lane, and the first index of it. */
#define LEAST_STEP(p)                                                                                       \
    {                                                                                                       \
        which = vf_select_lt(v##p, best, vf_of_bits(p), which);                                                 \
        best = vf_select_lt(v##p, best, v##p, best);                                                        \
    }
#define LEAST8                                                                                              \
    vf best = v0, which = vf_zero();                                                                        \
    LEAST_STEP(1) LEAST_STEP(2) LEAST_STEP(3) LEAST_STEP(4) LEAST_STEP(5) LEAST_STEP(6) LEAST_STEP(7)

static inline vf extended(vf best, vf y, const float *book)
{
    vf e = vf_sub(y, vf_load(book));
    return vf_add(best, vf_mul(e, e));
}

static inline void put_which(int32_t *back, vf which)
{
    vi_store(back, vf_to_bits(which));
}

static void step_lanes(trellis *t, vf y, int32_t *back)
{
    for (int a = 0; a < 8; a++) {
        float *cost = t->cost + 64 * a, low[8];
        const float *book = t->book[0] + 64 * a;
        vf v[8];
        transpose8(cost, v);               /* rows b, lanes l -> rows l, lanes b */
        vf v0 = v[0], v1 = v[1], v2 = v[2], v3 = v[3], v4 = v[4], v5 = v[5], v6 = v[6], v7 = v[7];
        LEAST8
        vf_store(low, best);
        put_which(back + 8 * a, which);
#define TCQ_SPREAD(b) vf_store(cost + 8 * (b), extended(vf_set1(low[b]), y, book + 8 * (b)));
        REP8(TCQ_SPREAD)
    }
}

/* The digit at distance OVER is replaced; ALONG is the distance of the other axis that is not in lanes. */
#define TCQ_OVER(p, over) vf v##p = vf_load(cost + (over) * (p));
#define TCQ_EXTEND(p, over) vf_store(cost + (over) * (p), extended(best, y, book + (over) * (p)));
#define TCQ_EACH(M, over) M(0, over) M(1, over) M(2, over) M(3, over) M(4, over) M(5, over) M(6, over) M(7, over)
#define TCQ_STEP(name, BOOK, OVER, ALONG)                                                                   \
    static void name(trellis *t, vf y, int32_t *back)                                                       \
    {                                                                                                       \
        for (int k = 0; k < 8; k++) {                                                                       \
            float *cost = t->cost + (ALONG) * k;                                                            \
            const float *book = t->book[BOOK] + (ALONG) * k;                                                \
            TCQ_EACH(TCQ_OVER, OVER)                                                                        \
            LEAST8                                                                                          \
            put_which(back + 8 * k, which);                                                                 \
            TCQ_EACH(TCQ_EXTEND, OVER)                                                                      \
        }                                                                                                   \
    }

TCQ_STEP(step_b, 1, 8, 64)
TCQ_STEP(step_a, 2, 64, 8)

/* The first least final state; after 128 steps (h, m, l) = (b, c, a). */
static int trellis_end(const trellis *t)
{
    int s = 0;
    float best = t->cost[0];
    for (int i = 1; i < TCQ_STATES; i++) {
        float c = t->cost[64 * (i & 7) + 8 * (i >> 6) + (i >> 3 & 7)];
        if (c < best) {
            best = c;
            s = i;
        }
    }
    return s;
}

static void tcq_walk_one(const float *y, tcq_path *path)
{
    trellis t;
    trellis_open(&t);
    for (int i = 0; i < TCQ_STEPS; i++) {
        vf v = vf_set1(y[i]);
        if (i % 3 == 0)
            step_lanes(&t, v, t.back[i]);
        else if (i % 3 == 1)
            step_b(&t, v, t.back[i]);
        else
            step_a(&t, v, t.back[i]);
    }
    int s = trellis_end(&t);
    for (int i = TCQ_STEPS - 1; i >= 0; i--) {
        int g = s & 63, at = i % 3 == 1 ? (g & 7) * 8 + (g >> 3) : g;    /* back of step 1 lies at [m][h] */
        path->state[i] = (uint16_t)s;
        s = g << 3 | t.back[i][at];
    }
    path->start = s;
}

static void tcq_walk(const float (*y)[TCQ_STEPS], int n, tcq_path *path)
{
    for (int i = 0; i < n; i++)
        tcq_walk_one(y[i], &path[i]);
}

static void card_encode(const void *param, const float *x, uint8_t *row, int d, int encoder)
{
    (void)param;
    for (int g = 0; g < d; g += CARD_VALUES, row += CARD_BYTES_OF_RECORD)
        tcq_encode_group(tcq_walk, x + g, row, encoder);
}
