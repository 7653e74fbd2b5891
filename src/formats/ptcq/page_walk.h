/* page_walk.h: the trellis search of a page's rows (ptcq.h), a row in each lane, over vf_<isa>.h: equal to
 * ptcq_walk_ref bit for bit.
 *
 * The 2^k predecessors of a step, g 2^k + p, are the states of all upper bits p and lower bits g after it, turned by k
 * bits.  So the costs stay in place: state s lies at s turned left by `turn`, which a step makes k larger.  16 lanes of
 * them are 32 KiB, which L1 holds; two arrays would be twice that.  Which predecessor was taken is kept for four groups
 * of states in one number of at most 16 bits. */
#include "formats/ptcq/ptcq.h"

enum { WALK_LOW = PTCQ_STATES >> CARD_K, WALK_PER = 1 << CARD_K, WALK_WORDS = WALK_LOW / 4 };

typedef struct page_trellis {
    float cost[PTCQ_STATES][VF_LANES];
    float back[PTCQ_GROUP][WALK_WORDS][VF_LANES];
} page_trellis;

/* s turned left by 0 to 8 of its nine bits */
static inline int walk_turn(int s, int turn)
{
    return (s << turn | s >> (PTCQ_STATE_BITS - turn)) & (PTCQ_STATES - 1);
}

/* The states of group g: the least cost of the predecessors, in `which` the first of them behind what it held, and then
 * the new costs.  at: where predecessor p lies beside the first. */
static inline void walk_group(const float *book, vf y, float (*cost)[VF_LANES], const int *at, int g, vf *which)
{
    vf best = vf_load(cost[0]), index = vf_zero();
#define WALK_TRY(p)                                                                                         \
    if ((p) < WALK_PER) {                                                                                   \
        const vf c = vf_load(cost[at[p]]);                                                                  \
        index = vf_select_lt(c, best, vf_set1((float)(p)), index);                                          \
        best = vf_min(c, best);                                                                             \
    }
#define WALK_PUT(p)                                                                                         \
    if ((p) < WALK_PER) {                                                                                   \
        const vf e = vf_sub(y, vf_set1(book[(p) * WALK_LOW + g]));                                          \
        vf_store(cost[at[p]], vf_add(best, vf_mul(e, e)));                                                  \
    }
#define WALK_FROM4(M) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11) M(12) M(13) M(14) M(15)
    WALK_TRY(1) WALK_TRY(2) WALK_TRY(3) WALK_FROM4(WALK_TRY)
    *which = vf_add(vf_mul(*which, vf_set1(WALK_PER)), index);
    WALK_PUT(0) WALK_PUT(1) WALK_PUT(2) WALK_PUT(3) WALK_FROM4(WALK_PUT)
}

static void walk_step(const float *book, vf y, float (*cost)[VF_LANES], int turn, float (*back)[VF_LANES])
{
    int at[16];

    for (int p = 0; p < WALK_PER; p++)
        at[p] = walk_turn(p, turn);
    for (int word = 0; word < WALK_WORDS; word++) {
        vf which = vf_zero();
        for (int g = 4 * word; g < 4 * word + 4; g++)
            walk_group(book, y, cost + walk_turn(g << CARD_K, turn), at, g, &which);
        vf_store(back[word], which);
    }
}

/* The path of one lane. */
static void walk_trace(const page_trellis *t, int turn, int lane, ptcq_path *path)
{
    int s = 0;

    for (int i = 1; i < PTCQ_STATES; i++)
        s = t->cost[walk_turn(i, turn)][lane] < t->cost[walk_turn(s, turn)][lane] ? i : s;
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
    for (int row = 0; row < KVANT_PAGE; row += VF_LANES) {
        int turn = 0;
        memset(t.cost, 0, sizeof t.cost);
        for (int i = 0; i < PTCQ_GROUP; i++) {
            float column[VF_LANES];
            for (int lane = 0; lane < VF_LANES; lane++)
                column[lane] = y[row + lane][i];
            walk_step(book, vf_load(column), t.cost, turn, t.back[i]);
            turn = (turn + CARD_K) % PTCQ_STATE_BITS;
        }
        for (int lane = 0; lane < VF_LANES; lane++)
            walk_trace(&t, turn, lane, &path[row + lane]);
    }
}
