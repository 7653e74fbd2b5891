/* vk_time.c: the device's own clock: timestamps around a recorded list, after a fill of other memory that leaves the
 * caches cold.  Copies are timed as the faster of vkCmdCopyBuffer and a shader: on a compute queue the former may take
 * an engine that cannot use the memory's speed. */
#include "devices/vulkan/core/vk_dev.h"

#include "base/clock.h"
#include "base/mem.h"

enum { COPY_GROUPS = 4096 };
static const uint64_t COLD = 256u << 20; /* larger than the last cache of any GPU known here */
static const int64_t WARM_NS = 500000000;

typedef struct vk_stopwatch {
    VkQueryPool pool;
    void *a, *b; /* n = 0: copied; else a is filled */
    double ns;   /* of one tick */
} vk_stopwatch;

static int stamps_open(vk_device *d, uint32_t count, vk_stopwatch *w, kvant_diag *diag)
{
    const VkQueryPoolCreateInfo info = { .sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                         .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                         .queryCount = count };
    if (d->caps.tick_ns <= 0.0f)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "device vulkan: %.60s has no timestamps on this queue",
                          d->caps.name);
    w->ns = (double)d->caps.tick_ns;
    VK_TRY_R(d, d->api.CreateQueryPool(d->dev, &info, NULL, &w->pool), "making timestamps", diag);
    return KVANT_OK;
}

/* After an error a list may be open that names the pool: it runs before the pool goes. */
static void stamps_close(vk_device *d, const vk_stopwatch *w, int rc)
{
    if (rc < 0 && w->pool && vk_flush(d, NULL) == KVANT_OK)
        vk_wait(d, NULL);
    if (w->pool)
        d->api.DestroyQueryPool(d->dev, w->pool, NULL);
}

static int stopwatch_open(vk_device *d, int copies, vk_stopwatch *w, kvant_diag *diag)
{
    KVANT_TRY(stamps_open(d, 2, w, diag));
    KVANT_TRY(vk_alloc(&d->base, copies ? KVANT_TIME_COPY : COLD, &w->a, diag));
    return copies ? vk_alloc(&d->base, KVANT_TIME_COPY, &w->b, diag) : KVANT_OK;
}

static int copy_by_shader(vk_device *d, vk_list *l, const vk_stopwatch *w, kvant_diag *diag)
{
    vk_call c;
    vk_call_begin(&c, VK_SHADER_copy);
    vk_ptr(&c, w->a, KVANT_TIME_COPY, VK_READ);
    vk_ptr(&c, w->b, KVANT_TIME_COPY, VK_WRITE);
    vk_uint(&c, KVANT_TIME_COPY / 16);
    return vk_dispatch(d, l, &c, COPY_GROUPS, 1, 1, diag);
}

static int record(vk_device *d, vk_list *l, const kvant_op *ops, int n, const vk_stopwatch *w, int shader,
                  kvant_diag *diag)
{
    const vk_block *a = vk_block_of(d, (uint64_t)(uintptr_t)w->a), *b = vk_block_of(d, (uint64_t)(uintptr_t)w->b);
    const vk_range all = { 0, UINT64_MAX, VK_WRITE };
    const VkBufferCopy region = { 0, 0, KVANT_TIME_COPY };

    d->api.CmdResetQueryPool(l->cmd, w->pool, 0, 2);
    vk_list_copies(d, l, &all, 1);
    if (n > 0)
        d->api.CmdFillBuffer(l->cmd, a->buffer, 0, COLD, 0);
    vk_list_copies(d, l, &all, 1);
    d->api.CmdWriteTimestamp(l->cmd, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, w->pool, 0);
    if (n > 0)
        KVANT_TRY(vk_record_ops(d, l, ops, n, diag));
    else if (shader)
        KVANT_TRY(copy_by_shader(d, l, w, diag));
    else
        d->api.CmdCopyBuffer(l->cmd, a->buffer, b->buffer, 1, &region);
    vk_list_copies(d, l, &all, 1);
    d->api.CmdWriteTimestamp(l->cmd, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, w->pool, 1);
    return KVANT_OK;
}

static int time_once(vk_device *d, const kvant_op *ops, int n, const vk_stopwatch *w, int shader, double *us,
                     kvant_diag *diag)
{
    uint64_t t[2];
    vk_list *l;
    KVANT_TRY(vk_list_open(d, &l, diag));
    KVANT_TRY(record(d, l, ops, n, w, shader, diag));
    KVANT_TRY(vk_flush(d, diag));
    KVANT_TRY(vk_wait(d, diag));
    VK_TRY_R(d,
             d->api.GetQueryPoolResults(d->dev, w->pool, 0, 2, sizeof t, t, sizeof t[0],
                                        VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT),
             "reading timestamps", diag);
    *us = (double)(t[1] - t[0]) * w->ns / 1000.0;
    return KVANT_OK;
}

/* Makes the pipelines; then works for a while: a GPU that waited, for a compiler say, has lowered its clock (an H200
 * to a fifth within two seconds) and takes some tenths of a second of work to raise it. */
static int warm_up(vk_device *d, const kvant_op *ops, int n, const vk_stopwatch *w, kvant_diag *diag)
{
    double us;
    int rc = time_once(d, ops, n, w, 1, &us, diag);
    for (const int64_t from = clock_ns(); rc == KVANT_OK && clock_ns() - from < WARM_NS;)
        rc = time_once(d, ops, n, w, 1, &us, diag);
    return rc;
}

int vk_time(kvant_device *base, const kvant_op *ops, int n, int reps, double *us, kvant_diag *diag)
{
    vk_device *d = (vk_device *)base;
    vk_stopwatch w = { 0 };
    double other;
    int rc = vk_reserve_scratch(d, ops, n, diag);

    if (rc == KVANT_OK)
        rc = stopwatch_open(d, n == 0, &w, diag);
    if (rc == KVANT_OK)
        rc = warm_up(d, ops, n, &w, diag);
    for (int i = 0; rc == KVANT_OK && i < reps; i++) {
        rc = time_once(d, ops, n, &w, 0, &us[i], diag);
        if (rc == KVANT_OK && n == 0)
            rc = time_once(d, ops, n, &w, 1, &other, diag);
        if (rc == KVANT_OK && n == 0 && other < us[i])
            us[i] = other;
    }
    stamps_close(d, &w, rc);
    vk_free(base, w.a);
    vk_free(base, w.b);
    return rc;
}

/* ---- microseconds by op ---- */

/* Behind everything that the list has so far. */
static void stamp(vk_device *d, vk_list *l, const vk_stopwatch *w, uint32_t i)
{
    const vk_range all = { 0, UINT64_MAX, VK_WRITE };
    vk_list_copies(d, l, &all, 1);
    d->api.CmdWriteTimestamp(l->cmd, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, w->pool, i);
}

/* us: 0 where a launch begins, -1 for the other ops that it does. */
static int record_stamped(vk_device *d, vk_list *l, const kvant_op *ops, int n, const vk_stopwatch *w, double *us,
                          uint32_t *stamps, kvant_diag *diag)
{
    d->api.CmdResetQueryPool(l->cmd, w->pool, 0, (uint32_t)n + 1);
    stamp(d, l, w, (*stamps)++);
    for (int i = 0; i < n;) {
        const int took = vk_record_next(d, l, ops + i, n - i, diag);
        if (took < 0)
            return took;
        for (int j = 0; j < took; j++)
            us[i + j] = j ? -1.0 : 0.0;
        i += took;
        stamp(d, l, w, (*stamps)++);
    }
    return KVANT_OK;
}

static int read_stamps(vk_device *d, int n, const vk_stopwatch *w, double *us, uint64_t *t, uint32_t stamps,
                       kvant_diag *diag)
{
    VK_TRY_R(d,
             d->api.GetQueryPoolResults(d->dev, w->pool, 0, stamps, stamps * sizeof *t, t, sizeof *t,
                                        VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT),
             "reading timestamps", diag);
    for (int i = 0, k = 0; i < n; i++)
        if (us[i] >= 0.0) {
            us[i] = (double)(t[k + 1] - t[k]) * w->ns / 1000.0;
            k++;
        }
    return KVANT_OK;
}

static int run_stamped(vk_device *d, const kvant_op *ops, int n, const vk_stopwatch *w, double *us, uint64_t *t,
                       kvant_diag *diag)
{
    uint32_t stamps = 0;
    vk_list *l;

    KVANT_TRY(vk_list_open(d, &l, diag));
    KVANT_TRY(record_stamped(d, l, ops, n, w, us, &stamps, diag));
    KVANT_TRY(vk_flush(d, diag));
    KVANT_TRY(vk_wait(d, diag));
    return read_stamps(d, n, w, us, t, stamps, diag);
}

int vk_profile(kvant_device *base, const kvant_op *ops, int n, double *us, kvant_diag *diag)
{
    vk_device *d = (vk_device *)base;
    vk_stopwatch w = { 0 };
    if (n <= 0)
        return KVANT_OK;
    KVANT_TRY(vk_reserve_scratch(d, ops, n, diag));
    uint64_t *t = kvant_calloc((size_t)n + 1, sizeof *t);
    int rc = t ? stamps_open(d, (uint32_t)n + 1, &w, diag)
               : kvant_fail(diag, KVANT_ENOMEM, "device vulkan: no memory for %d timestamps", n + 1);
    if (rc == KVANT_OK)
        rc = run_stamped(d, ops, n, &w, us, t, diag);
    stamps_close(d, &w, rc);
    kvant_free(t);
    return rc;
}
