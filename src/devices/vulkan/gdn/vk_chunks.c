/* vk_chunks.c: gdn_chunk in chunks of 32 tokens: gdn_prep makes of every chunk what does not depend on the state,
 * gdn_scan goes through a sequence's chunks.  Few barriers for 32 tokens where the recurrence (gdn.comp) has five for
 * each; gates per channel stay there: their products are none of two matrices. */
#include "devices/vulkan/gdn/vk_gdn.h"

#include <math.h>

enum {
    CHUNK = 32, SLOT_BYTES = 4 * (2 * CHUNK * CHUNK + 3 * CHUNK),      /* gdn_chunk.glsl */
    LEAST_TOKENS = 16,             /* per sequence, on average: from there on a chunk costs less than its tokens */
    MOST_DK = 256, ALIGN = 256,
};
static const size_t MOST_SLOT_BYTES = 256 << 20;

/* gdn_scan's columns of a workgroup; rows and quads of columns of a thread, so many that CHUNK / rows * columns /
 * (4 quads) threads have one each; rows and threads of gdn_prep.  On a GPU many threads (not tuned); where threads are
 * turns of a loop, few with larger pieces (the fastest of ten on lavapipe). */
typedef struct shape { uint32_t cols, rows, quads, prep_rows, prep_threads; } shape;
static const shape shapes[] = { { 32, 2, 1, 2, VK_GROUP }, { 16, 1, 1, 2, VK_GROUP } },
                   software[] = { { 32, 4, 2, 4, CHUNK }, { 16, 4, 2, 4, CHUNK } };

static size_t shared_bytes(const kvant_gdn_args *a, shape s)
{
    return (size_t)s.cols * 4 * ((size_t)a->dk + 2 * CHUNK);
}

/* The largest that fits, or NULL. */
static const shape *shape_of(const vk_device *d, const kvant_gdn_args *a)
{
    const shape *list = d->caps.software ? software : shapes;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        if (shared_bytes(a, list[i]) <= d->caps.max_shared)
            return &list[i];
    return NULL;
}

static uint32_t threads_of(shape s)
{
    return CHUNK / s.rows * s.cols / (4 * s.quads);
}

static size_t slots_of(const kvant_gdn_args *a)
{
    return (size_t)a->seqs.n_tokens / CHUNK + 2 * (size_t)a->seqs.n_seqs;
}

static size_t slot_bytes(const kvant_gdn_args *a)
{
    return slots_of(a) * (size_t)a->hv * SLOT_BYTES;
}

int vk_chunks_take(const vk_device *d, const kvant_gdn_args *a)
{
    const size_t bound = (size_t)d->caps.max_range / 2,
                 most = d->caps.bda || bound > MOST_SLOT_BYTES ? MOST_SLOT_BYTES : bound;
    return !a->per_channel && a->dk % 8 == 0 && a->dk <= MOST_DK && a->dv % 4 == 0 &&
           a->seqs.n_tokens >= LEAST_TOKENS * a->seqs.n_seqs && slot_bytes(a) <= most && shape_of(d, a) != NULL &&
           (uint32_t)a->hv <= d->caps.max_groups;
}

static size_t slots_at(size_t states)
{
    return (states + ALIGN - 1) / ALIGN * ALIGN;
}

size_t vk_chunks_scratch(const kvant_gdn_args *a, size_t states)
{
    return slots_at(states) + slot_bytes(a);
}

/* Rows of q and k, and those of v, begin at multiples of 16 bytes. */
static int in_vectors(const kvant_gdn_args *a)
{
    const uintptr_t at = (uintptr_t)a->q | (uintptr_t)a->k | (uintptr_t)a->v;
    return ((at | (uintptr_t)(4 * (a->ldq | a->ldk | a->ldv))) & 15) == 0;
}

static int run_prep(vk_device *d, vk_list *l, const kvant_gdn_args *a, const void *slots, kvant_diag *diag)
{
    const kvant_seqs *q = &a->seqs;
    const size_t seqs = (size_t)q->n_seqs * 4, heads = (size_t)q->n_tokens * (size_t)a->hv * 4;
    const shape s = *shape_of(d, a);
    vk_call c;
    vk_call_begin(&c, VK_SHADER_gdn_prep);
    vk_ptr(&c, a->q, vk_gdn_rows(q, a->ldq, (int64_t)a->hk * a->dk), VK_READ);
    vk_ptr(&c, a->k, vk_gdn_rows(q, a->ldk, (int64_t)a->hk * a->dk), VK_READ);
    vk_ptr(&c, a->g, heads, VK_READ);
    vk_ptr(&c, a->beta, heads, VK_READ);
    vk_ptr(&c, slots, slot_bytes(a), VK_WRITE);
    vk_ptr(&c, q->q0, seqs + 4, VK_READ);
    vk_ptr(&c, q->pos0, seqs, VK_READ);
    vk_ptr(&c, q->prompt, seqs, VK_READ);
    vk_uint(&c, q->n_seqs);
    vk_uint(&c, (int64_t)slots_of(a));
    vk_uint(&c, a->hk);
    vk_uint(&c, a->hv);
    vk_uint(&c, a->interleaved);
    vk_uint(&c, a->ldq);
    vk_uint(&c, a->ldk);
    vk_float(&c, (float)(1.0 / sqrt((double)a->dk)));
    vk_spec(&c, (uint32_t)a->dk);
    vk_spec(&c, s.prep_threads);
    vk_spec(&c, (uint32_t)in_vectors(a));
    vk_spec(&c, s.prep_rows);
    return vk_dispatch(d, l, &c, slots_of(a) * (size_t)a->hv, 1, 1, diag);
}

static int run_scan(vk_device *d, vk_list *l, const kvant_gdn_args *a, const void *slots, size_t states,
                    kvant_diag *diag)
{
    const kvant_seqs *q = &a->seqs;
    const size_t seqs = (size_t)q->n_seqs * 4;
    const shape s = *shape_of(d, a);
    vk_call c;
    vk_call_begin(&c, VK_SHADER_gdn_scan);
    vk_ptr(&c, a->q, vk_gdn_rows(q, a->ldq, (int64_t)a->hk * a->dk), VK_READ);
    vk_ptr(&c, a->k, vk_gdn_rows(q, a->ldk, (int64_t)a->hk * a->dk), VK_READ);
    vk_ptr(&c, a->v, vk_gdn_rows(q, a->ldv, (int64_t)a->hv * a->dv), VK_READ);
    vk_ptr(&c, a->state, vk_rest(d, a->state), VK_WRITE);
    vk_ptr(&c, d->scratch, states, VK_READ);
    vk_ptr(&c, a->o, (size_t)q->n_tokens * (size_t)a->hv * (size_t)a->dv * 4, VK_WRITE);
    vk_ptr(&c, slots, slot_bytes(a), VK_READ);
    vk_ptr(&c, q->q0, seqs + 4, VK_READ);
    vk_ptr(&c, q->pos0, seqs, VK_READ);
    vk_ptr(&c, q->prompt, seqs, VK_READ);
    vk_ptr(&c, q->slot_in, seqs, VK_READ);
    vk_ptr(&c, q->slot_out, seqs, VK_READ);
    vk_uint(&c, a->hk);
    vk_uint(&c, a->hv);
    vk_uint(&c, a->dv);
    vk_uint(&c, a->interleaved);
    vk_uint(&c, a->ldq);
    vk_uint(&c, a->ldk);
    vk_uint(&c, a->ldv);
    vk_uint(&c, a->slot_stride * (int64_t)kvant_state_bytes(a->state_type) / 4);
    vk_spec(&c, (uint32_t)a->dk);
    vk_spec(&c, threads_of(s));
    vk_spec(&c, (uint32_t)in_vectors(a));
    vk_spec(&c, s.cols);
    vk_spec(&c, s.rows);
    vk_spec(&c, s.quads);
    vk_spec(&c, a->state_type == KVANT_STATE_BF16);
    return vk_dispatch(d, l, &c, ((uint64_t)a->dv + s.cols - 1) / s.cols, (uint32_t)a->hv, (uint32_t)q->n_seqs, diag);
}

int vk_chunks_run(vk_device *d, vk_list *l, const kvant_gdn_args *a, size_t states, kvant_diag *diag)
{
    const void *slots = (const char *)d->scratch + slots_at(states);
    KVANT_TRY(run_prep(d, l, a, slots, diag));
    return run_scan(d, l, a, slots, states, diag);
}
