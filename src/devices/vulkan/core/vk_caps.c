/* vk_caps.c: what the device offers, and what of it is used; what is lacking is said in one line.  vk_mask.c takes
 * away. */
#include "devices/vulkan/core/vk_dev.h"

#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"

/* MATRIX_SHARED: of the shaders on matrix units; LEAST_SHARED: of those that do not choose by what there is. */
enum { GUESSED_CORES = 64, MATRIX_SHARED = 48 << 10, LEAST_SHARED = 16 << 10 };

static int has_extension(const vk_device *d, const char *name)
{
    VkExtensionProperties *list;
    uint32_t n = 0;
    int found = 0;
    if (d->api.EnumerateDeviceExtensionProperties(d->gpu, NULL, &n, NULL) != VK_SUCCESS || n == 0)
        return 0;
    list = kvant_calloc(n, sizeof *list);
    if (list && d->api.EnumerateDeviceExtensionProperties(d->gpu, NULL, &n, list) == VK_SUCCESS)
        for (uint32_t i = 0; i < n && !found; i++)
            found = strcmp(list[i].extensionName, name) == 0;
    kvant_free(list);
    return found;
}

static void read_limits(vk_device *d)
{
    VkPhysicalDeviceDriverProperties driver = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES };
    VkPhysicalDeviceMaintenance3Properties m3 = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES,
                                                  .pNext = &driver };
    VkPhysicalDeviceFloatControlsProperties controls = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FLOAT_CONTROLS_PROPERTIES, .pNext = &m3
    };
    VkPhysicalDeviceShaderSMBuiltinsPropertiesNV sm = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV, .pNext = &controls
    };
    VkPhysicalDeviceSubgroupProperties sg = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES,
                                              .pNext = &sm };
    VkPhysicalDeviceProperties2 p = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &sg };
    vk_caps *c = &d->caps;

    d->api.GetPhysicalDeviceProperties2(d->gpu, &p);
    const VkPhysicalDeviceLimits *l = &p.properties.limits;
    c->api = p.properties.apiVersion;
    c->software = p.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    if (c->api < VK_API_VERSION_1_2 && !has_extension(d, "VK_KHR_driver_properties"))
        memset(driver.driverName, 0, sizeof driver.driverName);
    c->cores = has_extension(d, "VK_NV_shader_sm_builtins") && sm.shaderSMCount ? sm.shaderSMCount : GUESSED_CORES;
    c->subnormal16 = c->api >= VK_API_VERSION_1_2 && controls.shaderDenormPreserveFloat16;
    snprintf(c->name, sizeof c->name, "%.200s", p.properties.deviceName);
    snprintf(c->driver, sizeof c->driver, "%.120s %.120s", driver.driverName, driver.driverInfo);
    c->subgroup_size = sg.subgroupSize;
    c->subgroup = (sg.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT) && sg.subgroupSize >= 4 &&
                  sg.subgroupSize <= VK_GROUP && (sg.supportedOperations & VK_SUBGROUP_FEATURE_ARITHMETIC_BIT);
    c->matrix = (sg.supportedOperations & VK_SUBGROUP_FEATURE_SHUFFLE_BIT) &&
                (sg.supportedOperations & VK_SUBGROUP_FEATURE_VOTE_BIT);
    c->max_range = l->maxStorageBufferRange;
    c->offset_align = l->minStorageBufferOffsetAlignment < 16 ? 16 : l->minStorageBufferOffsetAlignment;
    c->max_alloc = m3.maxMemoryAllocationSize;
    c->most_alloc = UINT64_MAX;
    c->max_groups = 65535;
    c->max_shared = l->maxComputeSharedMemorySize;
    c->max_invocations = l->maxComputeWorkGroupInvocations;
    c->max_bindings = l->maxPerStageDescriptorStorageBuffers;
    c->push_bytes = l->maxPushConstantsSize;
    c->tick_ns = l->timestampPeriod;
    c->portability = has_extension(d, "VK_KHR_portability_subset");
}

static void read_features(vk_device *d)
{
    VkPhysicalDeviceBufferDeviceAddressFeatures bda = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_BUFFER_DEVICE_ADDRESS_FEATURES
    };
    VkPhysicalDevice16BitStorageFeatures s16 = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES,
                                                 .pNext = &bda };
    VkPhysicalDevice8BitStorageFeatures s8 = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES,
                                               .pNext = &s16 };
    VkPhysicalDeviceShaderFloat16Int8Features f16 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES, .pNext = &s8
    };
    VkPhysicalDeviceShaderIntegerDotProductFeatures dot = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES, .pNext = &f16
    };
    VkPhysicalDeviceCooperativeMatrixFeaturesNV matrix = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_NV, .pNext = &dot
    };
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR khr = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR, .pNext = &matrix
    };
    VkPhysicalDeviceVulkanMemoryModelFeatures model = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES,
        .pNext = has_extension(d, "VK_KHR_cooperative_matrix") ? (void *)&khr : &matrix
    };
    VkPhysicalDeviceFeatures2 f = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &model };
    vk_caps *c = &d->caps;

    d->api.GetPhysicalDeviceFeatures2(d->gpu, &f);
    c->int64 = f.features.shaderInt64 != 0;
    c->indexing = f.features.shaderStorageBufferArrayDynamicIndexing != 0;
    c->bda = bda.bufferDeviceAddress && c->int64 &&
             (c->api >= VK_API_VERSION_1_2 || has_extension(d, "VK_KHR_buffer_device_address"));
    c->storage8 = s8.storageBuffer8BitAccess != 0;
    c->storage16 = s16.storageBuffer16BitAccess != 0;
    c->float16 = f16.shaderFloat16 != 0;
    c->half = c->float16 && (c->api >= VK_API_VERSION_1_2 || has_extension(d, "VK_KHR_shader_float16_int8"));
    c->int_dot = dot.shaderIntegerDotProduct && has_extension(d, "VK_KHR_shader_integer_dot_product");
    c->dot = c->int_dot;
    c->coopmat = has_extension(d, "VK_NV_cooperative_matrix") && matrix.cooperativeMatrix;
    c->wide = 1;
    c->fuse = 1;
    c->khr = has_extension(d, "VK_KHR_cooperative_matrix") && khr.cooperativeMatrix;
    c->fits_matrix = model.vulkanMemoryModel && c->api >= VK_API_VERSION_1_2 && c->half &&
                     c->subgroup_size == 32;
}

/* KVANT_VK_FORCE, for tests: matrix: attn_matrix, attn_wide and matmul_matrix in their plain form, product by product:
 * slow, for their indices.  gpu: a software driver is given a GPU's sizes of work. */
static int forced(vk_caps *c, int *matrix, kvant_diag *diag)
{
    const char *force = getenv("KVANT_VK_FORCE");
    const int gpu = force && strcmp(force, "gpu") == 0;
    *matrix = force && strcmp(force, "matrix") == 0;
    c->software = c->software && !gpu;
    if (force && *force && !*matrix && !gpu)
        return kvant_fail(diag, KVANT_EINVAL, "KVANT_VK_FORCE: \"%.40s\", wanted matrix or gpu", force);
    return KVANT_OK;
}

static void choose_matrix(vk_device *d, int plain_matrix)
{
    vk_caps *c = &d->caps;
    /* half: not in the plain form */
    const int fits = c->fits_matrix && c->half && c->subnormal16 && c->max_shared >= MATRIX_SHARED;
    c->matrix = c->bda ? c->matrix && fits && c->coopmat && vk_matrix_sizes(d, 8) : plain_matrix;
    c->products = !c->bda                                        ? (plain_matrix ? VK_PRODUCTS_NV : VK_PRODUCTS_NONE)
                  : fits && c->khr && vk_matrix_khr(d, 16)       ? VK_PRODUCTS_KHR
                  : fits && c->coopmat && vk_matrix_sizes(d, 16) ? VK_PRODUCTS_NV
                                                                 : VK_PRODUCTS_NONE;
}

/* Refuses a device that lacks something that every form of the shaders needs. */
static int refuse(const vk_caps *c, kvant_diag *diag)
{
    if (c->api < VK_API_VERSION_1_1)
        return kvant_fail(diag, KVANT_EDEVICE, "device vulkan: %.60s offers Vulkan %u.%u, wanted 1.1", c->name,
                          VK_API_VERSION_MAJOR(c->api), VK_API_VERSION_MINOR(c->api));
    if (c->push_bytes < VK_PUSH_BYTES)
        return kvant_fail(diag, KVANT_EDEVICE, "device vulkan: %.60s has %u bytes of push constants, wanted %d", c->name,
                          c->push_bytes, VK_PUSH_BYTES);
    if (c->max_shared < LEAST_SHARED || c->max_invocations < VK_GROUP)
        return kvant_fail(diag, KVANT_EDEVICE,
                          "device vulkan: %.60s has workgroups of %u threads with %u bytes of shared memory, wanted %d "
                          "and %d", c->name, c->max_invocations, c->max_shared, VK_GROUP, LEAST_SHARED);
    if (c->bda)
        return KVANT_OK;
    if (c->max_bindings < VK_MAX_PTRS + 1)
        return kvant_fail(diag, KVANT_EDEVICE, "device vulkan: %.60s binds %u storage buffers, wanted %d", c->name,
                          c->max_bindings, VK_MAX_PTRS + 1);
    if (!c->indexing)
        return kvant_fail(diag, KVANT_EDEVICE, "device vulkan: %.60s lacks shaderStorageBufferArrayDynamicIndexing",
                          c->name);
    return KVANT_OK;
}

int vk_caps_read(vk_device *d, const char *mask, kvant_diag *diag)
{
    vk_caps *c = &d->caps;
    int plain_matrix = 0;

    read_limits(d);
    read_features(d);
    KVANT_TRY(vk_mask(d, mask, diag));
    if (c->max_invocations < VK_WIDE_GROUP)
        c->subgroup = 0;           /* the fast form has workgroups of that size */
    c->bda = c->bda && c->subgroup;                        /* it uses both; lacking one gives the plain form */
    c->half = c->half && c->bda;
    c->dot = c->dot && c->bda;
    KVANT_TRY(forced(c, &plain_matrix, diag));
    choose_matrix(d, plain_matrix);
    return refuse(c, diag);
}
