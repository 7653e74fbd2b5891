/* walk.h: the path of least error of 128 values through a trellis of 512 states, WALK_K new bits a step, free start,
 * by a group.  Thread t has the branches t and, where there are more of them than threads, t + THREADS; branch g is
 * that of the predecessors g << WALK_K .. and of the states whose lowest bits are g. */
#ifndef KVANT_PORTABLE_WALK_H
#define KVANT_PORTABLE_WALK_H

#define WALK_K JOIN(step_, FMT)
#define STATES 512
#define BRANCHES (STATES >> WALK_K)
#define OWN_BRANCHES ((BRANCHES + THREADS - 1) / THREADS)
#define WORD_STEPS (32 / WALK_K)           /* in a word of back[] */
#define BACK_WORDS ((127 / WORD_STEPS + 1) * BRANCHES)
#define PATH 129                           /* values of a path: its states, and the one before them */

/* The cheapest of a branch's predecessors. */
FN float walk_branch(LOCAL const float *from, OWN uint32_t *which)
{
    float best = from[0];
    *which = 0u;
    for (uint32_t q = 1u; q < 1u << WALK_K; q++)
        if (from[q] < best) {
            best = from[q];
            *which = q;
        }
    return best;
}

FN void trellis_step(LOCAL const float *y, LOCAL float *cost, LOCAL uint32_t *back, int t, int step, float wide,
                     OWN uint32_t *word)
{
    LOCAL const float *from = cost + (step & 1) * STATES;
    LOCAL float *to = cost + (1 - (step & 1)) * STATES;
    const float v = y[step] * wide;
    for (int i = 0; i < OWN_BRANCHES; i++) {
        const int g = (t + THREADS * i) % BRANCHES;            /* more threads than branches: each is walked twice */
        uint32_t which = 0u;               /* at first all states cost nothing */
        const float best = step == 0 ? 0.0f : walk_branch(from + (g << WALK_K), &which);
        word[i] |= which << WALK_K * (step % WORD_STEPS);
        if (step % WORD_STEPS == WORD_STEPS - 1 || step == 127) {
            if (t < BRANCHES)
                back[step / WORD_STEPS * BRANCHES + g] = word[i];
            word[i] = 0u;
        }
        for (int s = t + THREADS * i; s < STATES; s += THREADS * OWN_BRANCHES) {
            const float e = v - LEVEL(s);
            to[s] = best + e * e;
        }
    }
    BARRIER();
}

/* The cheapest path from its end: its states, and in path[128] the state before them. */
FN void trellis_walk(LOCAL const float *cost, LOCAL const uint32_t *back, LOCAL int32_t *path)
{
    int s = 0;
    for (int i = 1; i < STATES; i++)
        if (cost[i] < cost[s])
            s = i;
    for (int step = 127; step >= 0; step--) {
        const int g = s & (BRANCHES - 1);
        path[step] = s;
        const uint32_t word = back[step / WORD_STEPS * BRANCHES + g] >> WALK_K * (step % WORD_STEPS);
        s = g << WALK_K | (int)(word & ((1u << WALK_K) - 1u));
    }
    path[128] = s;
}

/* The path of the values, and where `best` a second one, of values 1/0.94 times as large; for thread 0.  While it
 * walks back, the others begin the next path, which reads nothing of the one before and writes the other half of
 * cost[].  One loop for both: a compiler of OpenCL gave wrong paths of two loops. */
FN void trellis_paths(LOCAL const float *y, LOCAL float *cost, LOCAL uint32_t *back, LOCAL int32_t *path, int t,
                      int best)
{
    uint32_t word[OWN_BRANCHES];
    for (int i = 0; i < OWN_BRANCHES; i++)
        word[i] = 0u;
    for (int n = 0; n < 128 * (1 + best); n++) {
        trellis_step(y, cost, back, t, n % 128, n < 128 ? 1.0f : 1.0f / 0.94f, word);
        if (t == 0 && n % 128 == 127)
            trellis_walk(cost, back, path + PATH * (n / 128));
    }
}

#endif
