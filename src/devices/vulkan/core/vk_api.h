/* vk_api.h: the Vulkan functions this device calls, as pointers: the loader is opened at run time, so that libkvant
 * runs on machines without Vulkan.  Headers only; nothing is linked. */
#ifndef KVANT_DEVICES_VK_API_H
#define KVANT_DEVICES_VK_API_H

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>
#include "kvant/error.h"

#define VK_INSTANCE_FUNCTIONS(X)                                                                                      \
    X(EnumeratePhysicalDevices) X(GetPhysicalDeviceProperties2) X(GetPhysicalDeviceFeatures2)                         \
    X(GetPhysicalDeviceMemoryProperties) X(GetPhysicalDeviceQueueFamilyProperties)                                    \
    X(EnumerateDeviceExtensionProperties) X(CreateDevice) X(GetDeviceProcAddr)

#define VK_DEVICE_FUNCTIONS(X)                                                                                        \
    X(DestroyDevice) X(GetDeviceQueue) X(QueueSubmit) X(DeviceWaitIdle) X(AllocateMemory) X(FreeMemory) X(MapMemory)  \
    X(CreateBuffer) X(DestroyBuffer) X(BindBufferMemory) X(GetBufferMemoryRequirements) X(CreateFence)                \
    X(DestroyFence) X(WaitForFences) X(ResetFences) X(CreateCommandPool) X(DestroyCommandPool)                        \
    X(AllocateCommandBuffers) X(BeginCommandBuffer) X(EndCommandBuffer) X(CmdBindPipeline) X(CmdBindDescriptorSets)   \
    X(CmdPushConstants) X(CmdDispatch) X(CmdCopyBuffer) X(CmdPipelineBarrier) X(CreateShaderModule)                   \
    X(DestroyShaderModule) X(CreateComputePipelines) X(DestroyPipeline) X(CreatePipelineLayout)                       \
    X(DestroyPipelineLayout) X(CreateDescriptorSetLayout) X(DestroyDescriptorSetLayout) X(CreateDescriptorPool)       \
    X(DestroyDescriptorPool) X(ResetDescriptorPool) X(AllocateDescriptorSets) X(UpdateDescriptorSets)                 \
    X(CreatePipelineCache) X(DestroyPipelineCache) X(GetPipelineCacheData)                            \
    X(CreateQueryPool) X(DestroyQueryPool) X(CmdResetQueryPool) X(CmdWriteTimestamp) X(GetQueryPoolResults)           \
    X(CmdFillBuffer) X(GetFenceStatus)

/* VK_KHR_cooperative_matrix, which headers before 1.3.255 lack. */
#ifndef VK_KHR_cooperative_matrix
#define VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR ((VkStructureType)1000506000)
#define VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR ((VkStructureType)1000506001)
#define VK_COMPONENT_TYPE_FLOAT16_KHR VK_COMPONENT_TYPE_FLOAT16_NV
#define VK_COMPONENT_TYPE_FLOAT32_KHR VK_COMPONENT_TYPE_FLOAT32_NV
#define VK_SCOPE_SUBGROUP_KHR VK_SCOPE_SUBGROUP_NV
typedef struct VkPhysicalDeviceCooperativeMatrixFeaturesKHR {
    VkStructureType sType;
    void *pNext;
    VkBool32 cooperativeMatrix, cooperativeMatrixRobustBufferAccess;
} VkPhysicalDeviceCooperativeMatrixFeaturesKHR;
typedef struct VkCooperativeMatrixPropertiesKHR {
    VkStructureType sType;
    void *pNext;
    uint32_t MSize, NSize, KSize;
    VkComponentTypeNV AType, BType, CType, ResultType;
    VkBool32 saturatingAccumulation;
    VkScopeNV scope;
} VkCooperativeMatrixPropertiesKHR;
typedef VkResult(VKAPI_PTR *PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR)(VkPhysicalDevice, uint32_t *,
                                                                                 VkCooperativeMatrixPropertiesKHR *);
#endif

#define VK_FUNCTION_MEMBER(name) PFN_vk##name name;
typedef struct vk_api {
    VK_INSTANCE_FUNCTIONS(VK_FUNCTION_MEMBER)
    VK_DEVICE_FUNCTIONS(VK_FUNCTION_MEMBER)
    PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesNV GetPhysicalDeviceCooperativeMatrixPropertiesNV;   /* or NULL */
    PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR GetPhysicalDeviceCooperativeMatrixPropertiesKHR; /* or NULL */
    PFN_vkGetBufferDeviceAddress GetBufferDeviceAddress;   /* NULL without device addresses */
    VkInstance instance;
    uint32_t version;                                      /* of the instance */
} vk_api;
#undef VK_FUNCTION_MEMBER

/* Opens the loader and makes an instance, once for a process; KVANT_EDEVICE with one line where there is none. */
int vk_api_open(vk_api *api, kvant_diag *diag);
/* Fills the functions of a device; addresses: also GetBufferDeviceAddress. */
int vk_api_device(vk_api *api, VkDevice device, int addresses, kvant_diag *diag);

#endif
