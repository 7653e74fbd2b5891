/* vk_memory.c: allocations, their addresses, and copies through a staging block.  Copies are recorded in order with the
 * ops: a copy in costs no submission, a copy out is where all that is pending is submitted once and waited for.
 * Small allocations are mapped where the device allows it: written by the CPU while nothing is pending, so that the
 * inputs of a step cost no command. */
#include "devices/vulkan/core/vk_dev.h"

#include "base/mem.h"

enum {
    PAD = 64,                      /* behind every allocation: shaders read whole words and vectors */
    SMALL = 1 << 20,               /* allocations up to here are mapped where the device's memory can be */
    PEEK = 4096,                   /* read through such a mapping; it is not cached */
};
static const uint64_t STAGE = 16u << 20;

static int memory_type(const vk_device *d, uint32_t bits, VkMemoryPropertyFlags want)
{
    for (uint32_t i = 0; i < d->mem.memoryTypeCount; i++)
        if ((bits >> i & 1u) && (d->mem.memoryTypes[i].propertyFlags & want) == want)
            return (int)i;
    return -1;
}

static int bind_memory(vk_device *d, VkMemoryPropertyFlags want, VkMemoryPropertyFlags like, vk_block *b,
                       kvant_diag *diag)
{
    const VkMemoryAllocateFlagsInfo flags = { .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                              .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT };
    VkMemoryRequirements need;
    VkResult r;
    void *map = NULL;
    int type;

    d->api.GetBufferMemoryRequirements(d->dev, b->buffer, &need);
    if (need.size > d->caps.most_alloc)
        return kvant_fail(diag, KVANT_ENOMEM, "device vulkan: %.1f MiB wanted in one piece, %.60s allocates at most %.1f MiB",
                          (double)need.size / 1048576, d->caps.name, (double)d->caps.most_alloc / 1048576);
    type = memory_type(d, need.memoryTypeBits, want | like);
    type = type < 0 ? memory_type(d, need.memoryTypeBits, want) : type;
    type = type < 0 ? memory_type(d, need.memoryTypeBits, 0) : type;
    const VkMemoryAllocateInfo info = { .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                        .pNext = d->caps.bda ? &flags : NULL, .allocationSize = need.size,
                                        .memoryTypeIndex = (uint32_t)type };
    r = d->api.AllocateMemory(d->dev, &info, NULL, &b->memory);
    if (r == VK_ERROR_OUT_OF_DEVICE_MEMORY || r == VK_ERROR_OUT_OF_HOST_MEMORY || r == VK_ERROR_TOO_MANY_OBJECTS)
        return kvant_fail(diag, KVANT_ENOMEM, "device vulkan: %.1f MiB wanted, the driver has no room (code %d); it reports "
                          "allocations of up to %.1f MiB", (double)need.size / 1048576, (int)r,
                          (double)d->caps.max_alloc / 1048576);
    VK_TRY_R(d, r, "allocating memory", diag);
    VK_TRY_R(d, d->api.BindBufferMemory(d->dev, b->buffer, b->memory, 0), "binding memory", diag);
    if ((want | like) & d->mem.memoryTypes[type].propertyFlags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT)
        VK_TRY_R(d, d->api.MapMemory(d->dev, b->memory, 0, VK_WHOLE_SIZE, 0, &map), "mapping memory", diag);
    b->map = map;
    return KVANT_OK;
}

int vk_block_make(vk_device *d, uint64_t bytes, VkMemoryPropertyFlags want, VkMemoryPropertyFlags like, vk_block *out,
                  kvant_diag *diag)
{
    vk_block b = { .bytes = (bytes + PAD + 255) & ~(uint64_t)255 };
    const VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .size = b.bytes,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                 VK_BUFFER_USAGE_TRANSFER_DST_BIT | (d->caps.bda ? VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT : 0u),
    };
    int rc;

    VK_TRY_R(d, d->api.CreateBuffer(d->dev, &info, NULL, &b.buffer), "making a buffer", diag);
    rc = bind_memory(d, want, like, &b, diag);
    if (rc < 0) {
        vk_block_drop(d, &b);
        return rc;
    }
    const VkBufferDeviceAddressInfo at = { .sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, .buffer = b.buffer };
    b.addr = d->caps.bda ? d->api.GetBufferDeviceAddress(d->dev, &at) : (d->next_addr += (uint64_t)1 << 40);
    *out = b;
    return KVANT_OK;
}

void vk_block_drop(vk_device *d, vk_block *b)
{
    if (b->buffer)
        d->api.DestroyBuffer(d->dev, b->buffer, NULL);
    if (b->memory)
        d->api.FreeMemory(d->dev, b->memory, NULL);
    memset(b, 0, sizeof *b);
}

/* Position of the last block that begins at or before addr, or -1. */
static int block_index(const vk_device *d, uint64_t addr)
{
    int lo = 0, hi = d->n_blocks;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (d->blocks[mid].addr <= addr)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo - 1;
}

const vk_block *vk_block_of(const vk_device *d, uint64_t addr)
{
    int i = block_index(d, addr);
    return i >= 0 && addr - d->blocks[i].addr < d->blocks[i].bytes ? &d->blocks[i] : NULL;
}

size_t vk_rest(const vk_device *d, const void *addr)
{
    const vk_block *b = vk_block_of(d, (uint64_t)(uintptr_t)addr);
    return b ? (size_t)(b->addr + b->bytes - (uint64_t)(uintptr_t)addr) : 0;
}

int vk_alloc(kvant_device *base, size_t bytes, void **addr, kvant_diag *diag)
{
    vk_device *d = (vk_device *)base;
    vk_block b;
    int at;

    if (d->n_blocks == d->cap_blocks) {
        const int cap = d->cap_blocks ? 2 * d->cap_blocks : 64;
        vk_block *more = kvant_calloc((size_t)cap, sizeof *more);
        if (!more)
            return kvant_fail(diag, KVANT_ENOMEM, "device vulkan: out of memory");
        if (d->n_blocks)
            memcpy(more, d->blocks, (size_t)d->n_blocks * sizeof *more);
        kvant_free(d->blocks);
        d->blocks = more;
        d->cap_blocks = cap;
    }
    KVANT_TRY(vk_block_make(d, bytes, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
                            bytes <= SMALL ? VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
                                           : 0,
                            &b, diag));
    at = block_index(d, b.addr) + 1;
    memmove(d->blocks + at + 1, d->blocks + at, (size_t)(d->n_blocks - at) * sizeof b);
    d->blocks[at] = b;
    d->n_blocks++;
    *addr = (void *)(uintptr_t)b.addr;
    return KVANT_OK;
}

void vk_free(kvant_device *base, void *addr)
{
    vk_device *d = (vk_device *)base;
    int i = block_index(d, (uint64_t)(uintptr_t)addr);
    if (!addr || i < 0 || d->blocks[i].addr != (uint64_t)(uintptr_t)addr)
        return;
    vk_flush(d, NULL);             /* what is recorded may name the block; a lost device fails here and is said later */
    vk_wait(d, NULL);
    vk_block_drop(d, &d->blocks[i]);
    memmove(d->blocks + i, d->blocks + i + 1, (size_t)(d->n_blocks - i - 1) * sizeof *d->blocks);
    d->n_blocks--;
}

/* ---- copies ---- */

static int stage_ready(vk_device *d, kvant_diag *diag)
{
    const VkMemoryPropertyFlags host = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    if (!d->stage_in.buffer)
        KVANT_TRY(vk_block_make(d, STAGE, host, 0, &d->stage_in, diag));
    if (!d->stage_out.buffer)
        KVANT_TRY(vk_block_make(d, STAGE, host, VK_MEMORY_PROPERTY_HOST_CACHED_BIT, &d->stage_out, diag));
    return KVANT_OK;
}

static int copy_target(const vk_device *d, const void *addr, size_t bytes, const vk_block **b, kvant_diag *diag)
{
    *b = vk_block_of(d, (uint64_t)(uintptr_t)addr);
    if (!*b || bytes > vk_rest(d, addr))
        return kvant_fail(diag, KVANT_EINVAL, "device vulkan: copy of %zu bytes outside every allocation", bytes);
    return KVANT_OK;
}

static int copy_record(vk_device *d, const vk_block *from, uint64_t from_at, const vk_block *to, uint64_t to_at,
                       uint64_t bytes, kvant_diag *diag)
{
    const VkBufferCopy region = { from_at, to_at, bytes };
    const vk_range touched[2] = { { from->addr + from_at, from->addr + from_at + bytes, VK_READ },
                                  { to->addr + to_at, to->addr + to_at + bytes, VK_WRITE } };
    vk_list *l;
    KVANT_TRY(vk_list_open(d, &l, diag));
    vk_list_copies(d, l, touched, 2);
    d->api.CmdCopyBuffer(l->cmd, from->buffer, to->buffer, 1, &region);
    return KVANT_OK;
}

int vk_copy_in(kvant_device *base, void *dst, const void *src, size_t bytes, kvant_diag *diag)
{
    vk_device *d = (vk_device *)base;
    const unsigned char *from = src;
    uint64_t at = 0, n;
    const vk_block *b;

    if (bytes == 0)
        return KVANT_OK;
    KVANT_TRY(copy_target(d, dst, bytes, &b, diag));
    if (b->map && !d->lost && !d->open && d->n_pending == 0 && !d->in_flight) {    /* nobody reads it now */
        memcpy(b->map + ((uint64_t)(uintptr_t)dst - b->addr), src, bytes);
        return KVANT_OK;
    }
    KVANT_TRY(stage_ready(d, diag));
    for (; at < bytes; at += n) {
        if (d->stage_used >= STAGE) {
            KVANT_TRY(vk_flush(d, diag));
            KVANT_TRY(vk_wait(d, diag));
        }
        n = bytes - at < STAGE - d->stage_used ? bytes - at : STAGE - d->stage_used;
        memcpy(d->stage_in.map + d->stage_used, from + at, n);
        KVANT_TRY(copy_record(d, &d->stage_in, d->stage_used, b, (uint64_t)(uintptr_t)dst + at - b->addr, n, diag));
        d->stage_used += (n + 15) & ~(uint64_t)15;
    }
    return KVANT_OK;
}

int vk_copy_out(kvant_device *base, void *dst, const void *src, size_t bytes, kvant_diag *diag)
{
    vk_device *d = (vk_device *)base;
    unsigned char *to = dst;
    uint64_t n;
    const vk_block *b;

    if (bytes == 0)
        return KVANT_OK;
    KVANT_TRY(copy_target(d, src, bytes, &b, diag));
    if (b->map && bytes <= PEEK) {
        KVANT_TRY(vk_flush(d, diag));
        KVANT_TRY(vk_wait(d, diag));
        memcpy(dst, b->map + ((uint64_t)(uintptr_t)src - b->addr), bytes);
        return KVANT_OK;
    }
    KVANT_TRY(stage_ready(d, diag));
    for (uint64_t at = 0; at < bytes; at += n) {
        n = bytes - at < STAGE ? bytes - at : STAGE;
        KVANT_TRY(copy_record(d, b, (uint64_t)(uintptr_t)src + at - b->addr, &d->stage_out, 0, n, diag));
        KVANT_TRY(vk_flush(d, diag));
        KVANT_TRY(vk_wait(d, diag));
        memcpy(to + at, d->stage_out.map, n);
    }
    return KVANT_OK;
}
