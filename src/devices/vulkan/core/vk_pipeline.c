/* vk_pipeline.c: pipelines, made at first use and kept; their layouts; the driver's cache of them on disk, in
 * $XDG_CACHE_HOME/kvant (or ~/.cache/kvant), one file per device and driver.  A file that is missing, cut or of another
 * driver costs compile time, nothing else. */
#include "devices/vulkan/core/vk_dev.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/mem.h"

static int set_layout_get(vk_device *d, int n, VkDescriptorSetLayout *out, kvant_diag *diag)
{
    const VkDescriptorSetLayoutBinding b[2] = {
        { 0, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, (uint32_t)n, VK_SHADER_STAGE_COMPUTE_BIT, NULL },
        { 1, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1, VK_SHADER_STAGE_COMPUTE_BIT, NULL },
    };
    const VkDescriptorSetLayoutCreateInfo info = { .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
                                                   .bindingCount = 2, .pBindings = b };
    if (!d->pipelines.set_layouts[n])
        VK_TRY_R(d, d->api.CreateDescriptorSetLayout(d->dev, &info, NULL, &d->pipelines.set_layouts[n]),
                 "making a descriptor layout", diag);
    *out = d->pipelines.set_layouts[n];
    return KVANT_OK;
}

int vk_layout_get(vk_device *d, int n_ptr, VkPipelineLayout *out, kvant_diag *diag)
{
    const VkPushConstantRange push = { VK_SHADER_STAGE_COMPUTE_BIT, 0, VK_PUSH_BYTES };
    VkDescriptorSetLayout set = VK_NULL_HANDLE;
    if (!d->pipelines.layouts[n_ptr]) {
        if (n_ptr)
            KVANT_TRY(set_layout_get(d, n_ptr, &set, diag));
        const VkPipelineLayoutCreateInfo info = { .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                                  .setLayoutCount = n_ptr ? 1 : 0, .pSetLayouts = &set,
                                                  .pushConstantRangeCount = 1, .pPushConstantRanges = &push };
        VK_TRY_R(d, d->api.CreatePipelineLayout(d->dev, &info, NULL, &d->pipelines.layouts[n_ptr]),
                 "making a pipeline layout", diag);
    }
    *out = d->pipelines.layouts[n_ptr];
    return KVANT_OK;
}

static int module_get(vk_device *d, int shader, VkShaderModule *out, kvant_diag *diag)
{
    const vk_code *code = d->caps.bda ? &vk_shaders[shader].fast : &vk_shaders[shader].plain;
    const VkShaderModuleCreateInfo info = { .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                            .codeSize = code->bytes, .pCode = code->words };
    if (!d->pipelines.modules[shader])
        VK_TRY_R(d, d->api.CreateShaderModule(d->dev, &info, NULL, &d->pipelines.modules[shader]),
                 vk_shaders[shader].name, diag);
    *out = d->pipelines.modules[shader];
    return KVANT_OK;
}

static int pipeline_make(vk_device *d, const vk_call *c, VkPipeline *out, kvant_diag *diag)
{
    const uint32_t n = (uint32_t)c->n_spec;
    VkSpecializationMapEntry entries[VK_MAX_SPEC + 1];
    uint32_t values[VK_MAX_SPEC + 1];
    VkShaderModule module;
    VkPipelineLayout layout;

    KVANT_TRY(module_get(d, c->shader, &module, diag));
    KVANT_TRY(vk_layout_get(d, d->caps.bda ? 0 : c->n_ptr, &layout, diag));
    for (uint32_t i = 0; i <= n; i++) {
        entries[i] = (VkSpecializationMapEntry){ i < n ? i : VK_HALVES_ID, i * 4, 4 };
        values[i] = i < n ? c->spec[i] : (uint32_t)d->caps.subnormal16;
    }
    const VkSpecializationInfo spec = { n + 1, entries, (n + 1) * sizeof values[0], values };
    const VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = { .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO, .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                   .module = module, .pName = "main", .pSpecializationInfo = &spec },
        .layout = layout,
    };
    VK_TRY_R(d, d->api.CreateComputePipelines(d->dev, d->pipelines.cache, 1, &info, NULL, out),
             vk_shaders[c->shader].name, diag);
    return KVANT_OK;
}

int vk_pipeline_get(vk_device *d, const vk_call *c, VkPipeline *out, kvant_diag *diag)
{
    for (int i = 0; i < d->pipelines.n; i++) {
        const vk_pipeline *p = &d->pipelines.list[i];
        if (p->shader == c->shader && p->n_spec == c->n_spec &&
            memcmp(p->spec, c->spec, (size_t)c->n_spec * sizeof *c->spec) == 0) {
            *out = p->handle;
            return KVANT_OK;
        }
    }
    if (d->pipelines.n == d->pipelines.cap) {
        const int cap = d->pipelines.cap ? 2 * d->pipelines.cap : 64;
        vk_pipeline *more = kvant_calloc((size_t)cap, sizeof *more);
        if (!more)
            return kvant_fail(diag, KVANT_ENOMEM, "device vulkan: out of memory");
        if (d->pipelines.n)
            memcpy(more, d->pipelines.list, (size_t)d->pipelines.n * sizeof *more);
        kvant_free(d->pipelines.list);
        d->pipelines.list = more;
        d->pipelines.cap = cap;
    }
    vk_pipeline p = { .shader = c->shader, .n_spec = c->n_spec };
    memcpy(p.spec, c->spec, sizeof p.spec);
    KVANT_TRY(pipeline_make(d, c, &p.handle, diag));
    d->pipelines.list[d->pipelines.n++] = p;
    *out = p.handle;
    return KVANT_OK;
}

void vk_pipelines_drop(vk_device *d)
{
    for (int i = 0; i < d->pipelines.n; i++)
        d->api.DestroyPipeline(d->dev, d->pipelines.list[i].handle, NULL);
    for (int i = 0; i < VK_SHADER_COUNT; i++)
        if (d->pipelines.modules[i])
            d->api.DestroyShaderModule(d->dev, d->pipelines.modules[i], NULL);
    for (int i = 0; i <= VK_MAX_PTRS; i++) {
        if (d->pipelines.layouts[i])
            d->api.DestroyPipelineLayout(d->dev, d->pipelines.layouts[i], NULL);
        if (d->pipelines.set_layouts[i])
            d->api.DestroyDescriptorSetLayout(d->dev, d->pipelines.set_layouts[i], NULL);
    }
    kvant_free(d->pipelines.list);
    if (d->pipelines.cache)
        d->api.DestroyPipelineCache(d->dev, d->pipelines.cache, NULL);
}

/* ---- the cache on disk ---- */

/* $XDG_CACHE_HOME/kvant/vulkan-<cache UUID>.bin; empty where no place for it is known. */
static void cache_name(const VkPhysicalDeviceProperties *p, char *path, size_t cap)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char folder[384], id[2 * VK_UUID_SIZE + 1];
    path[0] = 0;
    for (unsigned i = 0; i < VK_UUID_SIZE; i++)
        snprintf(id + 2 * i, 3, "%02x", p->pipelineCacheUUID[i]);
    if (xdg && xdg[0] == '/' && strlen(xdg) < 300)
        snprintf(folder, sizeof folder, "%s", xdg);
    else if (home && home[0] == '/' && strlen(home) < 300)
        snprintf(folder, sizeof folder, "%s/.cache", home);
    else
        return;
    mkdir(folder, 0700);
    snprintf(path, cap, "%s/kvant", folder);
    mkdir(path, 0700);
    snprintf(path, cap, "%s/kvant/vulkan-%08x-%s.bin", folder, p->deviceID, id);
}

/* The header that every driver writes must name this device and driver; the driver checks the rest. */
static int header_fits(const unsigned char *data, size_t n, const VkPhysicalDeviceProperties *p)
{
    uint32_t h[4];
    if (n < 32)
        return 0;
    memcpy(h, data, sizeof h);
    return h[0] == 32 && h[1] == (uint32_t)VK_PIPELINE_CACHE_HEADER_VERSION_ONE && h[2] == p->vendorID &&
           h[3] == p->deviceID && memcmp(data + 16, p->pipelineCacheUUID, VK_UUID_SIZE) == 0;
}

static unsigned char *file_read(const char *path, size_t *n)
{
    FILE *f = path[0] ? fopen(path, "rb") : NULL;
    unsigned char *data = NULL;
    struct stat st;
    *n = 0;
    if (f && fstat(fileno(f), &st) == 0 && st.st_size > 0 && st.st_size < 256 << 20 &&
        (data = kvant_alloc((size_t)st.st_size)) != NULL)
        *n = fread(data, 1, (size_t)st.st_size, f);
    if (f)
        fclose(f);
    return data;
}

void vk_cache_read(vk_device *d)
{
    VkPhysicalDeviceProperties2 p = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2 };
    unsigned char *data;
    size_t n;

    d->api.GetPhysicalDeviceProperties2(d->gpu, &p);
    cache_name(&p.properties, d->pipelines.path, sizeof d->pipelines.path);
    data = file_read(d->pipelines.path, &n);
    if (!header_fits(data, n, &p.properties))
        n = 0;
    const VkPipelineCacheCreateInfo info = { .sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO,
                                             .initialDataSize = n, .pInitialData = n ? data : NULL };
    d->pipelines.bytes = n;
    if (d->api.CreatePipelineCache(d->dev, &info, NULL, &d->pipelines.cache) != VK_SUCCESS)
        d->pipelines.cache = VK_NULL_HANDLE;               /* pipelines are made without one */
    kvant_free(data);
}

/* Through a file of its own name, so that a reader never sees half of it. */
void vk_cache_write(vk_device *d)
{
    char part[560];
    size_t n = 0;
    void *data;
    FILE *f;

    if (!d->pipelines.cache || !d->pipelines.path[0] || d->lost ||
        d->api.GetPipelineCacheData(d->dev, d->pipelines.cache, &n, NULL) != VK_SUCCESS || n <= d->pipelines.bytes)
        return;
    data = kvant_alloc(n);
    snprintf(part, sizeof part, "%s.%ld", d->pipelines.path, (long)getpid());
    if (data && d->api.GetPipelineCacheData(d->dev, d->pipelines.cache, &n, data) == VK_SUCCESS &&
        (f = fopen(part, "wb"))) {
        const int whole = fwrite(data, 1, n, f) == n;
        if (fclose(f) != 0 || !whole || rename(part, d->pipelines.path) != 0)
            remove(part);
    }
    kvant_free(data);
}
