/* shim_run.c: the groups of a launch, one after the other; the threads of a group as fibers from barrier to barrier.  A
 * fiber is made by makecontext and switched by SHIM_MARK and SHIM_JUMP, which cost no system call. */
#include "devices/metal/shim/shim.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

_Thread_local shim_group *shim_now;

/* ---- what fibers call ---- */

/* Functions of their own: a mark and a jump may not stand in one. */
static __attribute__((noinline)) _Noreturn void jump(shim_mark *to)
{
    SHIM_JUMP(*to);
}

static __attribute__((noinline)) void change(shim_mark *from, shim_mark *to)
{
    if (SHIM_MARK(*from) == 0)
        jump(to);
}

void shim_found(const char *format, ...)
{
    shim_group *g = shim_now;
    va_list args;
    const int thread = g->view.runs, team = thread < 0;
    int n = snprintf(g->found, sizeof g->found, "%s: %s %d of group %u,%u,%u ", g->launch->kernel,
                     team ? "simdgroup" : "thread", team ? -2 - thread : thread, g->at[0], g->at[1], g->at[2]);

    va_start(args, format);
    vsnprintf(g->found + n, sizeof g->found - (size_t)n, format, args);
    va_end(args);
    jump(&g->scheduler);
}

/* Returns the mark to go on at when this thread pauses: its simdgroup's next, as in run_team, else the scheduler. */
static shim_mark *successor(shim_group *g)
{
    const int next = g->view.runs + g->step;

    if (next < g->team || next >= g->team + g->team_threads || !g->fibers[next].ready ||
        g->fibers[next].state == SHIM_FRESH)
        return &g->scheduler;
    g->fibers[next].ready = 0;
    g->view.runs = next;
    return &g->fibers[next].at;
}

void shim_pause(int state)
{
    shim_fiber *f = &shim_now->fibers[shim_now->view.runs];

    f->state = state;
    change(&f->at, successor(shim_now));
}

static void barrier(int device, int line)
{
    shim_fiber *f = &shim_now->fibers[shim_now->view.runs];

    f->device = device;
    f->line = line;
    shim_pause(SHIM_WAITS);
}

const shim_hooks shim_hooks_here = { shim_access, shim_word, shim_local, barrier, shim_matrix };

static void run_kernel(void)
{
    shim_group *g = shim_now;
    const shim_launch *l = g->launch;
    uint32_t group[3] = { g->at[0], g->at[1], g->at[2] }, thread[3] = { (uint32_t)g->view.runs, 0, 0 },
             team = thread[0] / SHIM_TEAM;
    void *args[SHIM_BUFFERS + 3];

    for (int i = 0; i < l->n_buffers; i++)
        args[i] = l->buffers[i].addr;
    args[l->n_buffers] = group;
    args[l->n_buffers + 1] = thread;
    args[l->n_buffers + 2] = &team;
    l->program->entry(args);
}

/* One run of the kernel after the other, a group's each. */
static void fiber_main(void)
{
    for (;;) {
        run_kernel();
        shim_pause(SHIM_ENDED);
    }
}

/* ---- the scheduler ---- */

static void start(shim_group *g, int thread)
{
    ucontext_t context;

    getcontext(&context);
    context.uc_stack.ss_sp = (unsigned char *)g->view.stacks + (size_t)thread * SHIM_STACK;
    context.uc_stack.ss_size = SHIM_STACK;
    context.uc_link = NULL;
    makecontext(&context, fiber_main, 0);
    setcontext(&context);
}

/* Runs a thread, and those that follow it, until one waits that has no successor, or something is found. */
static __attribute__((noinline)) void resume(shim_group *g, int thread)
{
    g->view.runs = thread;
    g->fibers[thread].ready = 0;
    if (g->fibers[thread].state != SHIM_FRESH)
        change(&g->scheduler, &g->fibers[thread].at);
    else if (SHIM_MARK(g->scheduler) == 0)
        start(g, thread);
}

/* All threads wait at one barrier, or all have ended: 1 to go on. */
static int together(shim_group *g)
{
    const shim_fiber *first = &g->fibers[0];

    for (int t = 1; t < g->launch->threads; t++) {
        const shim_fiber *f = &g->fibers[t];
        if (f->state == first->state &&
            (f->state == SHIM_ENDED || (f->line == first->line && f->device == first->device)))
            continue;
        const int ends = f->state == SHIM_ENDED ? t : 0;
        const size_t n = sizeof g->found;
        const char *kernel = g->launch->kernel;
        if (f->state != first->state)
            snprintf(g->found, n, "%s: thread %d ends while thread %d waits at the barrier of line %d", kernel, ends,
                     t - ends, g->fibers[t - ends].line);
        else
            snprintf(g->found, n, "%s: thread 0 waits at the barrier of line %d, thread %d at that of line %d", kernel,
                     first->line, t, f->line);
        return 0;
    }
    return first->state == SHIM_WAITS;
}

static void next_moment(shim_group *g)
{
    const int device = g->fibers[0].device;

    if (++g->view.moment == UINT32_MAX)
        snprintf(g->found, sizeof g->found, "%s: more than 2^32 stretches between barriers", g->launch->kernel);
    if (device)
        g->device_moment = g->view.moment;
}

/* A simdgroup up to the next barrier: its matrix operations make threads that waited at them ready again. */
static void run_team(shim_group *g, int first, int n, int back)
{
    int stuck = -1;

    g->team = first;
    g->team_threads = n;
    g->step = back ? -1 : 1;
    for (int t = 0; t < n; t++)
        g->fibers[first + t].ready = 1;
    for (int moved = 1; moved;) {
        moved = 0;
        for (int i = 0; i < n && !g->found[0]; i++) {
            const int t = first + (back ? n - 1 - i : i);
            if (!g->fibers[t].ready)
                continue;
            resume(g, t);
            moved = 1;
        }
    }
    for (int t = first; t < first + n; t++)
        stuck = g->fibers[t].state == SHIM_MATRIX ? t : stuck;
    if (stuck >= 0 && !g->found[0])
        snprintf(g->found, sizeof g->found,
                 "%s: thread %d waits at the matrix operation of line %d, which not every "
                 "thread of its simdgroup calls",
                 g->launch->kernel, stuck, g->fibers[stuck].op.line);
}

/* Every other stretch the last thread goes first: what depends on the order has a second way to be seen. */
static void run_group(shim_group *g)
{
    const int n = g->launch->threads, teams = (n + SHIM_TEAM - 1) / SHIM_TEAM;

    memset(g->array_at, 0, sizeof g->array_at);
    g->n_arrays = 0;
    g->local_used = 0;
    g->first_moment = g->device_moment = ++g->view.moment;
    for (int t = 0; t < n; t++)
        g->fibers[t].arrays = 0;
    for (int back = 0;; back ^= 1) {
        for (int i = 0; i < teams && !g->found[0]; i++) {
            const int first = (back ? teams - 1 - i : i) * SHIM_TEAM;
            run_team(g, first, n - first < SHIM_TEAM ? n - first : SHIM_TEAM, back);
        }
        if (g->found[0] || !together(g))
            return;
        next_moment(g);
    }
}

static void run_groups(shim_group *g)
{
    const shim_launch *l = g->launch;

    g->launch_moment = ++g->view.moment;
    for (uint32_t z = 0; z < l->groups[2]; z++)
        for (uint32_t y = 0; y < l->groups[1]; y++)
            for (uint32_t x = 0; x < l->groups[0] && !g->found[0]; x++) {
                g->at[0] = x, g->at[1] = y, g->at[2] = z;
                run_group(g);
            }
}

/* ---- memory of a launch ---- */

static size_t whole_pages(size_t bytes)
{
    return (bytes + 4095) & ~(size_t)4095;
}

/* The group, at a multiple of SHIM_REGION; then stacks, threadgroup memory, stamps.  Pages that nobody touches cost
 * nothing. */
static shim_group *reserve(int threads, size_t n_stamps)
{
    const size_t stacks = whole_pages(sizeof(shim_group)), local = stacks + whole_pages((size_t)threads * SHIM_STACK),
                 stamps = local + 2 * SHIM_LOCAL, all = SHIM_REGION + stamps + n_stamps * sizeof(shim_stamp);
    void *block = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (block == MAP_FAILED)
        return NULL;
    const uintptr_t at = ((uintptr_t)block + SHIM_REGION - 1) & ~(uintptr_t)(SHIM_REGION - 1);
    shim_group *g = (shim_group *)at;
    g->block = block;
    g->block_bytes = all;
    g->view.stacks = at + stacks;
    g->view.stacks_bytes = (size_t)threads * SHIM_STACK;
    g->view.local = at + local;
    g->stamps = (shim_stamp *)(at + stamps);
    return g;
}

static int open_group(shim_group **out, const shim_launch *l, kvant_diag *diag)
{
    size_t n = 2 * SHIM_LOCAL, at[SHIM_BUFFERS];

    for (int i = 0; i < l->n_buffers; i++) {
        at[i] = n;
        n += l->buffers[i].write ? l->buffers[i].bytes + 8 : 0;
    }
    shim_group *g = *out = reserve(l->threads, n);
    if (!g)
        return kvant_fail(diag, KVANT_ENOMEM, "metal-shim: %s: out of memory for the record of %zu written bytes",
                          l->kernel, n);
    g->launch = l;
    for (int i = 0; i < l->n_buffers; i++) {
        const uintptr_t begin = (uintptr_t)l->buffers[i].addr & ~(uintptr_t)3;
        g->buffers[i] = (shim_record){ .begin = begin, .stamps = g->stamps + at[i], .first = SIZE_MAX, .shift = 2 };
    }
    return KVANT_OK;
}

static int check_launch(const shim_launch *l, kvant_diag *diag)
{
    if (l->threads < 1 || l->threads > SHIM_THREADS)
        return kvant_fail(diag, KVANT_EINVAL, "metal-shim: %s: %d threads a group; Metal has 1 to %d", l->kernel,
                          l->threads, SHIM_THREADS);
    if (l->n_buffers != l->program->n_args)
        return kvant_fail(diag, KVANT_EINVAL, "metal-shim: %s: the host binds %d buffers, the kernel has %d", l->kernel,
                          l->n_buffers, l->program->n_args);
    return KVANT_OK;
}

int shim_run(const shim_launch *l, kvant_diag *diag)
{
    shim_group *g;

    KVANT_TRY(check_launch(l, diag));
    KVANT_TRY(open_group(&g, l, diag));
    shim_now = g;
    run_groups(g);
    shim_now = NULL;
    const int code = g->found[0] ? kvant_fail(diag, KVANT_EINVAL, "metal-shim: %s", g->found) : KVANT_OK;
    munmap(g->block, g->block_bytes);
    return code;
}
