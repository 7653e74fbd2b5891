/* vk_list.c: lists of commands: recording with barriers where they are needed, argument blocks and descriptors,
 * submission and waiting.  A barrier stands before a command only if it touches a range that a command since the last
 * barrier wrote, or writes one that was read. */
#include "devices/vulkan/core/vk_dev.h"

#include <sched.h>

#include "base/clock.h"
#include "base/mem.h"

enum { CHUNK_BYTES = 65536, POOL_SETS = 128, ARGS_BYTES = 512 };
static const int64_t LOOK_NS = 20000000;

/* Between dispatches only, unless a copy may be on either side: that costs more on some queues. */
static void barrier(const vk_device *d, vk_list *l, int copies)
{
    const VkPipelineStageFlags stages =
        VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | (copies ? VK_PIPELINE_STAGE_TRANSFER_BIT : 0);
    const VkMemoryBarrier m = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | (copies ? VK_ACCESS_TRANSFER_WRITE_BIT : 0),
        .dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT |
                         (copies ? VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT : 0),
    };
    d->api.CmdPipelineBarrier(l->cmd, stages, stages, 0, 1, &m, 0, NULL, 0, NULL);
    l->n_ranges = 0;
    l->dirty = 0;
}

static int clashes(const vk_list *l, const vk_range *r, int n)
{
    int clash = l->dirty || l->n_ranges + n > VK_MAX_RANGES;
    for (int i = 0; i < n && !clash; i++)
        for (int j = 0; j < l->n_ranges && !clash; j++)
            clash = r[i].begin < l->ranges[j].end && l->ranges[j].begin < r[i].end &&
                    (r[i].write || l->ranges[j].write);
    return clash;
}

static void add_ranges(vk_list *l, const vk_range *r, int n)
{
    memcpy(l->ranges + l->n_ranges, r, (size_t)n * sizeof *r);
    l->n_ranges += n;
}

void vk_list_copies(vk_device *d, vk_list *l, const vk_range *r, int n)
{
    if (l->narrow || clashes(l, r, n)) {
        barrier(d, l, 1);
        l->narrow = 0;
    }
    l->copied = 1;
    add_ranges(l, r, n);
}

void vk_list_touch(vk_device *d, vk_list *l, const vk_range *r, int n)
{
    if (clashes(l, r, n)) {
        barrier(d, l, l->copied);
        l->narrow = !l->copied;
        l->copied = 0;
    }
    add_ranges(l, r, n);
}

int vk_list_begin(vk_device *d, vk_list *l, kvant_diag *diag)
{
    const VkCommandBufferAllocateInfo info = { .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                               .commandPool = d->pool, .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                               .commandBufferCount = 1 };
    const VkCommandBufferBeginInfo begin = { .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO };
    if (!l->cmd)
        VK_TRY_R(d, d->api.AllocateCommandBuffers(d->dev, &info, &l->cmd), "making a command buffer", diag);
    VK_TRY_R(d, d->api.BeginCommandBuffer(l->cmd, &begin), "beginning a command buffer", diag);
    l->dirty = 1;                  /* after whatever was submitted before */
    l->copied = 1;
    l->narrow = 0;
    l->n_ranges = 0;
    return KVANT_OK;
}

void vk_list_reset(vk_device *d, vk_list *l)
{
    for (int i = 0; i < l->n_chunks; i++)
        l->chunks[i].used = 0;
    for (int i = 0; i < l->n_pools; i++)
        d->api.ResetDescriptorPool(d->dev, l->pools[i], 0);
    l->pool_used = 0;
}

void vk_list_free(vk_device *d, vk_list *l)
{
    for (int i = 0; i < l->n_chunks; i++)
        vk_block_drop(d, &l->chunks[i].block);
    for (int i = 0; i < l->n_pools; i++)
        d->api.DestroyDescriptorPool(d->dev, l->pools[i], NULL);
    kvant_free(l->chunks);
    kvant_free(l->pools);
    memset(l, 0, sizeof *l);
}

int vk_list_open(vk_device *d, vk_list **out, kvant_diag *diag)
{
    if (d->lost)
        return vk_check(d, VK_ERROR_DEVICE_LOST, "an earlier submission", diag);
    if (!d->open) {
        if (d->in_flight || d->n_used == VK_LISTS) {
            KVANT_TRY(vk_flush(d, diag));
            KVANT_TRY(vk_wait(d, diag));
        }
        KVANT_TRY(vk_list_begin(d, &d->lists[d->n_used], diag));
        d->n_used++;
        d->open = 1;
    }
    *out = &d->lists[d->n_used - 1];
    return KVANT_OK;
}

/* ---- argument blocks and descriptor sets ---- */

/* An array of `each` bytes per item with one more item, all zero; NULL: out of memory (the old one stays). */
static void *grown(void *old, int n, size_t each)
{
    void *more = kvant_calloc((size_t)n + 1, each);
    if (!more)
        return NULL;
    if (n)
        memcpy(more, old, (size_t)n * each);
    kvant_free(old);
    return more;
}

/* Room for one argument block that lives as long as the list. */
static int block_take(vk_device *d, vk_list *l, const vk_block **b, uint64_t *at, kvant_diag *diag)
{
    vk_chunk *c = l->n_chunks ? &l->chunks[0] : NULL;
    for (int i = 0; i < l->n_chunks; i++)
        if (l->chunks[i].used + ARGS_BYTES <= CHUNK_BYTES) {
            c = &l->chunks[i];
            break;
        }
    if (!c || c->used + ARGS_BYTES > CHUNK_BYTES) {
        vk_chunk *more = grown(l->chunks, l->n_chunks, sizeof *more);
        if (!more)
            return kvant_fail(diag, KVANT_ENOMEM, "device vulkan: out of memory");
        l->chunks = more;
        c = &l->chunks[l->n_chunks];
        KVANT_TRY(vk_block_make(d, CHUNK_BYTES,
                                VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
                                VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, &c->block, diag));
        l->n_chunks++;
    }
    *b = &c->block;
    *at = c->used;
    c->used += ARGS_BYTES;         /* more than any block, and a multiple of every offset alignment */
    return KVANT_OK;
}

static int set_take(vk_device *d, vk_list *l, VkDescriptorSetLayout layout, VkDescriptorSet *out, kvant_diag *diag)
{
    const VkDescriptorPoolSize size = { VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, POOL_SETS * (VK_MAX_PTRS + 1) };
    const VkDescriptorPoolCreateInfo info = { .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
                                              .maxSets = POOL_SETS, .poolSizeCount = 1, .pPoolSizes = &size };
    const int i = l->pool_used / POOL_SETS;
    if (i == l->n_pools) {
        VkDescriptorPool *more = grown(l->pools, l->n_pools, sizeof *more);
        if (!more)
            return kvant_fail(diag, KVANT_ENOMEM, "device vulkan: out of memory");
        l->pools = more;
        VK_TRY_R(d, d->api.CreateDescriptorPool(d->dev, &info, NULL, &l->pools[i]), "making descriptors", diag);
        l->n_pools++;
    }
    const VkDescriptorSetAllocateInfo take = { .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
                                               .descriptorPool = l->pools[i], .descriptorSetCount = 1,
                                               .pSetLayouts = &layout };
    VK_TRY_R(d, d->api.AllocateDescriptorSets(d->dev, &take, out), "taking descriptors", diag);
    l->pool_used++;
    return KVANT_OK;
}

/* The plain form binds this range for a pointer: from an offset that may be bound, whole words and one vector more. */
static void bound_range(const vk_device *d, const vk_call *c, int i, const vk_block *b, uint64_t *base, uint64_t *bytes)
{
    const uint64_t at = c->ptr[i].addr ? c->ptr[i].addr - b->addr : 0;
    *base = at & ~(d->caps.offset_align - 1);
    *bytes = (at - *base + c->ptr[i].bytes + 31) & ~(uint64_t)15;
    *bytes = *bytes < b->bytes - *base ? *bytes : b->bytes - *base;
}

/* Binds every pointer's range, and writes what remains of its offset into the arguments. */
static int plain_bind(vk_device *d, vk_list *l, const vk_call *c, VkPipelineLayout layout, const vk_block *args,
                      uint64_t args_at, uint64_t *resolved, kvant_diag *diag)
{
    VkDescriptorBufferInfo info[VK_MAX_PTRS + 1];
    VkDescriptorSet set;

    KVANT_TRY(set_take(d, l, d->pipelines.set_layouts[c->n_ptr], &set, diag));
    for (int i = 0; i < c->n_ptr; i++) {
        const vk_block *b = c->ptr[i].addr ? vk_block_of(d, c->ptr[i].addr) : &d->dummy;
        uint64_t base, bytes;
        if (!b)
            return kvant_fail(diag, KVANT_EINVAL, "device vulkan: %s: pointer %d is no address of this device",
                              vk_shaders[c->shader].name, i);
        bound_range(d, c, i, b, &base, &bytes);
        if (bytes > d->caps.max_range)
            return kvant_fail(diag, KVANT_EUNSUPPORTED,
                              "device vulkan: %s: %.1f MiB in one buffer, this device binds at most %.1f MiB",
                              vk_shaders[c->shader].name, (double)bytes / 1048576,
                              (double)d->caps.max_range / 1048576);
        info[i] = (VkDescriptorBufferInfo){ b->buffer, base, bytes };
        resolved[i] = c->ptr[i].addr ? c->ptr[i].addr - b->addr - base : 0;
    }
    if (args)
        info[c->n_ptr] = (VkDescriptorBufferInfo){ args->buffer, args_at, ARGS_BYTES };
    const VkWriteDescriptorSet w[2] = {
        { .sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET, .dstSet = set, .dstBinding = 0,
          .descriptorCount = (uint32_t)c->n_ptr, .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
          .pBufferInfo = info },
        { .sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET, .dstSet = set, .dstBinding = 1, .descriptorCount = 1,
          .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, .pBufferInfo = info + c->n_ptr },
    };
    d->api.UpdateDescriptorSets(d->dev, args ? 2 : 1, w, 0, NULL);
    d->api.CmdBindDescriptorSets(l->cmd, VK_PIPELINE_BIND_POINT_COMPUTE, layout, 0, 1, &set, 0, NULL);
    return KVANT_OK;
}

/* ---- one dispatch ---- */

void vk_call_begin(vk_call *c, int shader)
{
    memset(c, 0, sizeof *c);
    c->shader = shader;
}

void vk_ptr(vk_call *c, const void *addr, size_t bytes, int write)
{
    c->ptr[c->n_ptr].addr = (uint64_t)(uintptr_t)addr;
    c->ptr[c->n_ptr].bytes = bytes;
    c->ptr[c->n_ptr++].write = write;
}

void vk_uint(vk_call *c, int64_t v)
{
    c->scalar[c->n_scalar++] = (uint32_t)v;
}

void vk_float(vk_call *c, float v)
{
    memcpy(&c->scalar[c->n_scalar++], &v, sizeof v);
}

void vk_spec(vk_call *c, uint32_t v)
{
    c->spec[c->n_spec++] = v;
}

/* The plain form binds an array of ranges, a little wider than what is touched; what is written is known of the array,
 * not of its elements: each counts as written. */
static vk_range touched(const vk_device *d, const vk_call *c, int i)
{
    const vk_block *b = c->ptr[i].addr ? vk_block_of(d, c->ptr[i].addr) : &d->dummy;
    uint64_t base, bytes;
    if (d->caps.bda || !b)
        return (vk_range){ c->ptr[i].addr, c->ptr[i].addr + c->ptr[i].bytes, c->ptr[i].write };
    bound_range(d, c, i, b, &base, &bytes);
    return (vk_range){ b->addr + base, b->addr + base + bytes, VK_WRITE };
}

static void touch_call(vk_device *d, vk_list *l, const vk_call *c)
{
    vk_range r[VK_MAX_PTRS];
    for (int i = 0; i < c->n_ptr; i++)
        r[i] = touched(d, c, i);
    vk_list_touch(d, l, r, c->n_ptr);
}

/* Pointers, then scalars: the layout of the shader's arguments. */
static uint32_t pack_args(const vk_call *c, const uint64_t *ptr, unsigned char *out)
{
    memcpy(out, ptr, (size_t)c->n_ptr * 8);
    memcpy(out + (size_t)c->n_ptr * 8, c->scalar, (size_t)c->n_scalar * 4);
    return (uint32_t)(c->n_ptr * 8 + c->n_scalar * 4);
}

int vk_dispatch(vk_device *d, vk_list *l, const vk_call *c, uint64_t x, uint32_t y, uint32_t z, kvant_diag *diag)
{
    unsigned char packed[VK_MAX_PTRS * 8 + VK_MAX_SCALARS * 4];
    uint64_t ptr[VK_MAX_PTRS], at = 0;
    uint32_t n = (uint32_t)(c->n_ptr * 8 + c->n_scalar * 4);
    const int big = n > VK_PUSH_BYTES;
    const vk_block *args = NULL;
    VkPipelineLayout layout;
    VkPipeline pipeline;

    if (x == 0 || y == 0 || z == 0)
        return KVANT_OK;
    if (x > (uint64_t)d->caps.max_groups * d->caps.max_groups || y > d->caps.max_groups || z > d->caps.max_groups)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "device vulkan: %s: %llu x %u x %u groups, wanted at most %u each",
                          vk_shaders[c->shader].name, (unsigned long long)x, y, z, d->caps.max_groups);
    KVANT_TRY(vk_layout_get(d, d->caps.bda ? 0 : c->n_ptr, &layout, diag));
    KVANT_TRY(vk_pipeline_get(d, c, &pipeline, diag));
    touch_call(d, l, c);
    for (int i = 0; i < c->n_ptr; i++)
        ptr[i] = c->ptr[i].addr;
    if (big)
        KVANT_TRY(block_take(d, l, &args, &at, diag));
    if (!d->caps.bda)
        KVANT_TRY(plain_bind(d, l, c, layout, args, at, ptr, diag));
    n = pack_args(c, ptr, packed);
    if (big) {
        memcpy(args->map + at, packed, n);
        at += args->addr;
        memcpy(packed, &at, n = 8);
    }
    d->api.CmdBindPipeline(l->cmd, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
    d->api.CmdPushConstants(l->cmd, layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, (n + 3) & ~3u, packed);
    if (x > d->caps.max_groups) {          /* folded over y: the shaders count groups over both */
        const uint32_t rows = (uint32_t)((x + d->caps.max_groups - 1) / d->caps.max_groups);
        if (y > 1)
            return kvant_fail(diag, KVANT_EUNSUPPORTED, "device vulkan: %s: %llu groups, wanted at most %u",
                              vk_shaders[c->shader].name, (unsigned long long)x, d->caps.max_groups);
        d->api.CmdDispatch(l->cmd, d->caps.max_groups, rows, z);
        return KVANT_OK;
    }
    d->api.CmdDispatch(l->cmd, (uint32_t)x, y, z);
    return KVANT_OK;
}

/* ---- submission ---- */

int vk_list_end(vk_device *d, vk_list *l, kvant_diag *diag)
{
    const VkMemoryBarrier m = { .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
                                .dstAccessMask = VK_ACCESS_HOST_READ_BIT };
    d->api.CmdPipelineBarrier(l->cmd, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
                              VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &m, 0, NULL, 0, NULL);
    VK_TRY_R(d, d->api.EndCommandBuffer(l->cmd), "ending a command buffer", diag);
    return KVANT_OK;
}

int vk_close_list(vk_device *d, kvant_diag *diag)
{
    if (!d->open)
        return KVANT_OK;
    d->open = 0;
    KVANT_TRY(vk_list_end(d, &d->lists[d->n_used - 1], diag));
    d->pending[d->n_pending++] = d->lists[d->n_used - 1].cmd;
    return KVANT_OK;
}

int vk_flush(vk_device *d, kvant_diag *diag)
{
    if (d->lost)
        return vk_check(d, VK_ERROR_DEVICE_LOST, "an earlier submission", diag);
    KVANT_TRY(vk_close_list(d, diag));
    if (d->n_pending == 0)
        return KVANT_OK;
    if (d->in_flight) {
        VK_TRY_R(d, d->api.WaitForFences(d->dev, 1, &d->fence, VK_TRUE, UINT64_MAX), "waiting", diag);
        d->in_flight = 0;
    }
    const VkSubmitInfo info = { .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO, .commandBufferCount = (uint32_t)d->n_pending,
                                .pCommandBuffers = d->pending };
    VK_TRY_R(d, d->api.ResetFences(d->dev, 1, &d->fence), "resetting a fence", diag);
    d->n_submits++;
    if (d->lose_at && d->n_submits >= d->lose_at)
        return vk_check(d, VK_ERROR_DEVICE_LOST, "running a list", diag);
    VK_TRY_R(d, d->api.QueueSubmit(d->queue, 1, &info, d->fence), "running a list", diag);
    d->n_pending = 0;
    d->in_flight = 1;
    return KVANT_OK;
}

/* The thread looks at the fence for a while before it sleeps: waking up took 4 % of a step of one token (H200).  If the
 * device is the CPU it sleeps at once. */
static VkResult fence_wait(const vk_device *d)
{
    const int64_t until = clock_ns() + LOOK_NS;
    VkResult r = VK_NOT_READY;
    while (!d->caps.software && r == VK_NOT_READY && clock_ns() < until) {
        r = d->api.GetFenceStatus(d->dev, d->fence);
        sched_yield();
    }
    return r != VK_NOT_READY ? r : d->api.WaitForFences(d->dev, 1, &d->fence, VK_TRUE, UINT64_MAX);
}

int vk_wait(vk_device *d, kvant_diag *diag)
{
    if (d->lost)
        return vk_check(d, VK_ERROR_DEVICE_LOST, "an earlier submission", diag);
    if (!d->in_flight)
        return KVANT_OK;
    VK_TRY_R(d, fence_wait(d), "waiting for the GPU", diag);
    d->in_flight = 0;
    for (int i = 0; i < d->n_used; i++)
        vk_list_reset(d, &d->lists[i]);
    d->n_used = 0;
    d->stage_used = 0;
    return KVANT_OK;
}
