/* slots.c: scalar references of slot_copy and slot_zero.
 * slot_copy reads everything before it writes anything, so swaps, chains and forks are right in any order. */
#include <string.h>
#include "ops/op_util.h"

static void slot_gather(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_slot_copy_args *a = args;
    uint8_t *copy = work->shared;
    int64_t lo, hi;

    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++)
        memcpy(copy + (size_t)i * a->bytes, a->base + (size_t)a->src[i] * a->stride, a->bytes);
}

static void slot_scatter(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_slot_copy_args *a = args;
    const uint8_t *copy = work->shared;
    int64_t lo, hi;

    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++)
        memcpy(a->base + (size_t)a->dst[i] * a->stride, copy + (size_t)i * a->bytes, a->bytes);
}

static size_t slot_copy_shared(const void *args)
{
    const kvant_slot_copy_args *a = args;

    return (size_t)a->n * a->bytes;
}

const kvant_cpu_kernel kvant_slot_copy_ref = { .stages = 2,
                                               .fn = { slot_gather, slot_scatter },
                                               .shared_bytes = slot_copy_shared };

static void slot_zero(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_slot_zero_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++)
        memset(a->base + (size_t)a->dst[i] * a->stride, 0, a->bytes);
}

const kvant_cpu_kernel kvant_slot_zero_ref = { .stages = 1, .fn = { slot_zero } };
