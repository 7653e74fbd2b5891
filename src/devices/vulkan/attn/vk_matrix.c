/* vk_matrix.c: whether attn_matrix may be used: the device multiplies 16 x 16 by 16 x 8 halves into f32 (the extension
 * VK_NV_cooperative_matrix), and its threads hold the elements in the order that the shader was written for. */
#include "devices/vulkan/core/vk_dev.h"

#include "base/mem.h"

enum { LANES = 32, ELEMENTS = 16 };            /* of a thread: 8 of the 16 x 16, 4 of the 16 x 8, 4 of the sums */

int vk_matrix_sizes(const vk_device *d, uint32_t n_size)
{
    VkCooperativeMatrixPropertiesNV *list;
    uint32_t n = 0;
    int found = 0;
    if (!d->api.GetPhysicalDeviceCooperativeMatrixPropertiesNV ||
        d->api.GetPhysicalDeviceCooperativeMatrixPropertiesNV(d->gpu, &n, NULL) != VK_SUCCESS || n == 0)
        return 0;
    list = kvant_calloc(n, sizeof *list);
    for (uint32_t i = 0; list && i < n; i++)
        list[i].sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_NV;
    if (list && d->api.GetPhysicalDeviceCooperativeMatrixPropertiesNV(d->gpu, &n, list) == VK_SUCCESS)
        for (uint32_t i = 0; i < n && !found; i++) {
            const VkCooperativeMatrixPropertiesNV *m = &list[i];
            found = m->MSize == 16 && m->NSize == n_size && m->KSize == 16 && m->scope == VK_SCOPE_SUBGROUP_NV &&
                    m->AType == VK_COMPONENT_TYPE_FLOAT16_NV && m->BType == VK_COMPONENT_TYPE_FLOAT16_NV &&
                    m->CType == VK_COMPONENT_TYPE_FLOAT32_NV && m->DType == VK_COMPONENT_TYPE_FLOAT32_NV;
        }
    kvant_free(list);
    return found;
}

int vk_matrix_khr(const vk_device *d, uint32_t n_size)
{
    VkCooperativeMatrixPropertiesKHR *list;
    uint32_t n = 0;
    int found = 0;
    if (!d->api.GetPhysicalDeviceCooperativeMatrixPropertiesKHR ||
        d->api.GetPhysicalDeviceCooperativeMatrixPropertiesKHR(d->gpu, &n, NULL) != VK_SUCCESS || n == 0)
        return 0;
    list = kvant_calloc(n, sizeof *list);
    for (uint32_t i = 0; list && i < n; i++)
        list[i].sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR;
    if (list && d->api.GetPhysicalDeviceCooperativeMatrixPropertiesKHR(d->gpu, &n, list) == VK_SUCCESS)
        for (uint32_t i = 0; i < n && !found; i++) {
            const VkCooperativeMatrixPropertiesKHR *m = &list[i];
            found = m->MSize == 16 && m->NSize == n_size && m->KSize == 16 && m->scope == VK_SCOPE_SUBGROUP_KHR &&
                    m->AType == VK_COMPONENT_TYPE_FLOAT16_KHR && m->BType == VK_COMPONENT_TYPE_FLOAT16_KHR &&
                    m->CType == VK_COMPONENT_TYPE_FLOAT32_KHR && m->ResultType == VK_COMPONENT_TYPE_FLOAT32_KHR;
        }
    kvant_free(list);
    return found;
}

/* Row * columns + column of an element, as attn_matrix has it. */
static uint32_t expected(uint32_t lane, uint32_t i)
{
    const uint32_t g = lane / 4, t = lane % 4, odd = i & 1;
    if (i < 8)
        return (g + 8 * (i / 4)) * 16 + 2 * t + odd + 8 * (i / 2 & 1);
    return (g + 8 * (i / 2 & 1)) * 8 + 2 * t + odd;
}

int vk_matrix_check(vk_device *d, kvant_diag *diag)
{
    uint32_t got[LANES * ELEMENTS];
    void *y = NULL;
    vk_list *l;
    vk_call c;

    if (!d->caps.matrix)
        return KVANT_OK;
    KVANT_TRY(vk_alloc(&d->base, sizeof got, &y, diag));
    vk_call_begin(&c, VK_SHADER_matrix_probe);
    vk_ptr(&c, y, sizeof got, VK_WRITE);
    KVANT_TRY(vk_list_open(d, &l, diag));
    KVANT_TRY(vk_dispatch(d, l, &c, 1, 1, 1, diag));
    KVANT_TRY(vk_copy_out(&d->base, got, y, sizeof got, diag));
    vk_free(&d->base, y);
    for (uint32_t i = 0; i < LANES * ELEMENTS; i++)
        if (got[i] != expected(i / ELEMENTS, i % ELEMENTS))
            d->caps.matrix = 0;
    return KVANT_OK;
}
