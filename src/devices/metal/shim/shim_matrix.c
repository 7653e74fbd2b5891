/* shim_matrix.c: simdgroup matrices: an operation runs when all threads of the simdgroup have come to it, once, by the
 * last of them.  Owns no state but the fibers' operations. */
#include "devices/metal/shim/shim.h"

#include <math.h>
#include <string.h>
#include "base/half.h"

enum { SIDE = 8, ELEMENTS = SIDE * SIDE };

static int all_here(const shim_fiber *team)
{
    for (int t = 0; t < SHIM_TEAM; t++)
        if (team[t].state != SHIM_MATRIX)
            return 0;
    return 1;
}

/* Returns 1 if the matrix operations of two threads agree: in memory, and in the matrices of each. */
static int same(const shim_group *g, int a, int b)
{
    const shim_op *x = &g->fibers[a].op, *y = &g->fibers[b].op;
    int differs = x->kind != y->kind || x->line != y->line || x->bytes != y->bytes || x->p != y->p ||
                  x->stride != y->stride;

    for (int i = 0; i < 4; i++)
        differs |= (uintptr_t)x->part[i] - (size_t)a * SHIM_STACK != (uintptr_t)y->part[i] - (size_t)b * SHIM_STACK;
    return !differs;
}

static float *element(const shim_fiber *team, int matrix, int i)
{
    return &team[i / 2].op.part[matrix][i % 2];
}

static void move(const shim_fiber *team, const shim_op *o)
{
    for (int i = 0; i < ELEMENTS; i++) {
        const uint64_t at = (uint64_t)(i / SIDE) * o->stride + (uint64_t)(i % SIDE);
        unsigned char *p = (unsigned char *)o->p + at * (uint64_t)o->bytes;
        float *e = element(team, 0, i);

        shim_access(p, o->bytes, o->kind == SHIM_STORE);
        if (o->kind == SHIM_STORE)
            memcpy(p, e, sizeof *e);
        else if (o->bytes == (int)sizeof *e)
            memcpy(e, p, sizeof *e);
        else
            *e = half_to_f32(load_u16(p));
    }
}

static void gather(const shim_fiber *team, int matrix, float *out)
{
    for (int i = 0; i < ELEMENTS; i++)
        out[i] = *element(team, matrix, i);
}

static void multiply(const shim_fiber *team)
{
    float a[ELEMENTS], b[ELEMENTS], sum[ELEMENTS];

    gather(team, 1, a);
    gather(team, 2, b);
    gather(team, 3, sum);
    for (int r = 0; r < SIDE; r++)
        for (int k = 0; k < SIDE; k++)
            for (int c = 0; c < SIDE; c++)
                sum[r * SIDE + c] += a[r * SIDE + k] * b[k * SIDE + c];
    for (int i = 0; i < ELEMENTS; i++)
        *element(team, 0, i) = sum[i];
}

/* The last thread of a simdgroup has come; its accesses are the simdgroup's. */
static void perform(shim_group *g, int first)
{
    const int thread = g->view.runs;
    shim_fiber *team = &g->fibers[first];
    const shim_op *o = &g->fibers[thread].op;

    for (int t = first; t < first + SHIM_TEAM; t++)
        if (!same(g, thread, t))
            shim_found("calls the matrix operation of line %d, thread %d of its simdgroup that of line %d: not the same, "
                       "or not with the same arguments", o->line, t, g->fibers[t].op.line);
    g->view.runs = -2 - first / SHIM_TEAM;
    if (o->kind == SHIM_MULTIPLY)
        multiply(team);
    else
        move(team, o);
    g->view.runs = thread;
    for (int t = first; t < first + SHIM_TEAM; t++) {
        g->fibers[t].state = SHIM_WAITS;
        g->fibers[t].ready = t != thread;
    }
}

void shim_matrix(int kind, int line, float **parts, const void *p, uint64_t stride, int bytes)
{
    shim_group *g = shim_now;
    const int first = g->view.runs / SHIM_TEAM * SHIM_TEAM;
    shim_fiber *f = &g->fibers[g->view.runs];

    if (first + SHIM_TEAM > g->launch->threads)
        shim_found("uses a matrix in a simdgroup of %d threads", g->launch->threads - first);
    f->op = (shim_op){ kind, line, bytes, { parts[0], parts[1], parts[2], parts[3] }, p, stride };
    f->state = SHIM_MATRIX;
    if (all_here(&g->fibers[first]))
        perform(g, first);
    else
        shim_pause(SHIM_MATRIX);
}
