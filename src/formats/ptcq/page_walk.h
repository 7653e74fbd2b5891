/* page_walk.h: the trellis search of a page's rows (ptcq.h), a row in each lane, over the vector layer: equal to
 * ptcq_walk_ref bit for bit.  The costs of two neighbouring steps, of VF_N rows, are 32 KiB with 8 lanes; which
 * predecessor was taken is kept for four groups of states in one number of at most 16 bits. */
#include "formats/ptcq/ptcq.h"

enum { WALK_LOW = PTCQ_STATES >> CARD_K, WALK_PER = 1 << CARD_K, WALK_WORDS = WALK_LOW / 4 };

typedef struct page_trellis {
    float cost[2][PTCQ_STATES][VF_N];
    float back[PTCQ_GROUP][WALK_WORDS][VF_N];
} page_trellis;

/* The least cost of the predecessors of states whose low bits are g, and in `which` the first of them, behind what it
 * held. */
static inline vf walk_least(const float (*cost)[VF_N], int g, vf *which)
{
    vf best = vf_load(cost[g << CARD_K]), index = vf_zero();
#define WALK_TRY(p)                                                                                         \
    if ((p) < WALK_PER) {                                                                                   \
        const vf c = vf_load(cost[g << CARD_K | (p)]);                                                      \
        index = vf_select_lt(c, best, vf_set1((float)(p)), index);                                          \
        best = vf_min(c, best);                                                                             \
    }
    WALK_TRY(1) WALK_TRY(2) WALK_TRY(3) WALK_TRY(4) WALK_TRY(5) WALK_TRY(6) WALK_TRY(7) WALK_TRY(8)
    WALK_TRY(9) WALK_TRY(10) WALK_TRY(11) WALK_TRY(12) WALK_TRY(13) WALK_TRY(14) WALK_TRY(15)
    *which = vf_add(vf_mul(*which, vf_set1(WALK_PER)), index);
    return best;
}

static inline void walk_step(const float *book, vf y, const float (*cost)[VF_N], float (*next)[VF_N],
                             float (*back)[VF_N])
{
    for (int word = 0; word < WALK_WORDS; word++) {
        vf which = vf_zero();
        for (int g = 4 * word; g < 4 * word + 4; g++) {
            const vf best = walk_least(cost, g, &which);
            for (int s = g; s < PTCQ_STATES; s += WALK_LOW) {
                const vf e = vf_sub(y, vf_set1(book[s]));
                vf_store(next[s], vf_add(best, vf_mul(e, e)));
            }
        }
        vf_store(back[word], which);
    }
}

/* The path of one lane. */
static void walk_trace(const page_trellis *t, int lane, ptcq_path *path)
{
    int s = 0;

    for (int i = 1; i < PTCQ_STATES; i++)  /* after 128 steps the costs are in cost[0] */
        s = t->cost[0][i][lane] < t->cost[0][s][lane] ? i : s;
    for (int i = PTCQ_GROUP - 1; i >= 0; i--) {
        const int g = s & (WALK_LOW - 1), word = (int)t->back[i][g / 4][lane];
        path->symbol[i] = (uint8_t)(s >> (PTCQ_STATE_BITS - CARD_K));
        s = g << CARD_K | (word >> (CARD_K * (3 - g % 4)) & (WALK_PER - 1));
    }
    path->start = s >> CARD_K;
}

static void page_walk(const float *book, int k, const float (*y)[PTCQ_GROUP], ptcq_path *path)
{
    page_trellis t;

    (void)k;
    for (int row = 0; row < KVANT_PAGE; row += VF_N) {
        memset(t.cost[0], 0, sizeof t.cost[0]);
        for (int i = 0; i < PTCQ_GROUP; i++) {
            float column[VF_N];
            for (int lane = 0; lane < VF_N; lane++)
                column[lane] = y[row + lane][i];
            walk_step(book, vf_load(column), (const float(*)[VF_N])t.cost[i & 1], t.cost[~i & 1], t.back[i]);
        }
        for (int lane = 0; lane < VF_N; lane++)
            walk_trace(&t, lane, &path[row + lane]);
    }
}
