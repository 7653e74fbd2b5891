/* vk_api.c: opens libvulkan.so.1 and fills the table of functions.  See vk_api.h. */
#include "devices/vulkan/core/vk_api.h"

#include <dlfcn.h>
#include <string.h>
#include "base/error.h"

#ifdef __APPLE__
#define LOADER "libvulkan.1.dylib"
#else
#define LOADER "libvulkan.so.1"
#endif

/* VK_KHR_portability_enumeration and its flag, which older headers lack. */
#define PORTABILITY "VK_KHR_portability_enumeration"
enum { ENUMERATE_PORTABILITY = 1 };

/* Opened once and kept: drivers behind the loader may own threads.  One owner thread opens devices. */
static PFN_vkGetInstanceProcAddr get_proc;

static int loader_open(kvant_diag *diag)
{
    void *lib, *symbol;
    if (get_proc)
        return KVANT_OK;
    lib = dlopen(LOADER, RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return kvant_fail(diag, KVANT_EDEVICE, "device vulkan: no Vulkan loader on this machine (%.120s)", dlerror());
    symbol = dlsym(lib, "vkGetInstanceProcAddr");
    memcpy(&get_proc, &symbol, sizeof get_proc);           /* a data pointer does not convert to a function's */
    if (get_proc)
        return KVANT_OK;
    dlclose(lib);
    return kvant_fail(diag, KVANT_EDEVICE, "device vulkan: " LOADER " has no vkGetInstanceProcAddr");
}

static int missing(const char *name, kvant_diag *diag)
{
    return kvant_fail(diag, KVANT_EDEVICE, "device vulkan: the driver has no vk%s", name);
}

/* Loaders since 2022 hide drivers of part of Vulkan (MoltenVK) from who does not ask for them. */
static int shows_portability(void)
{
    enum { MOST = 128 };
    VkExtensionProperties list[MOST];
    uint32_t n = MOST;
    const PFN_vkEnumerateInstanceExtensionProperties all =
        (PFN_vkEnumerateInstanceExtensionProperties)get_proc(NULL, "vkEnumerateInstanceExtensionProperties");
    const VkResult r = all ? all(NULL, &n, list) : VK_ERROR_INITIALIZATION_FAILED;
    for (uint32_t i = 0; (r == VK_SUCCESS || r == VK_INCOMPLETE) && i < n; i++)
        if (strcmp(list[i].extensionName, PORTABILITY) == 0)
            return 1;
    return 0;
}

/* Kept like the loader: with the last instance drivers are unloaded, and may not give everything back.  On an H200
 * check_archs, which opens a device many times, found no driver any more from some time on (code -9). */
static VkInstance instance;
static uint32_t version = VK_API_VERSION_1_0;              /* of the loader */

static int make_instance(PFN_vkCreateInstance create, kvant_diag *diag)
{
    static const char *const more[] = { PORTABILITY };
    const VkApplicationInfo app = { .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .pApplicationName = "kvant",
                                    .apiVersion = version < VK_API_VERSION_1_2 ? VK_API_VERSION_1_1
                                                                               : VK_API_VERSION_1_2 };
    const int portability = shows_portability();
    const VkInstanceCreateInfo info = { .sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &app,
                                        .flags = portability ? ENUMERATE_PORTABILITY : 0,
                                        .enabledExtensionCount = portability ? 1 : 0,
                                        .ppEnabledExtensionNames = more };
    const VkResult r = create(&info, NULL, &instance);
    if (r == VK_SUCCESS)
        return KVANT_OK;
    instance = VK_NULL_HANDLE;
    return kvant_fail(diag, KVANT_EDEVICE, "device vulkan: no Vulkan driver on this machine (code %d)", (int)r);
}

static int instance_open(kvant_diag *diag)
{
    if (instance)
        return KVANT_OK;
    const PFN_vkEnumerateInstanceVersion version_of =
        (PFN_vkEnumerateInstanceVersion)get_proc(NULL, "vkEnumerateInstanceVersion");
    const PFN_vkCreateInstance create = (PFN_vkCreateInstance)get_proc(NULL, "vkCreateInstance");
    if (version_of)
        version_of(&version);
    if (!create || version < VK_API_VERSION_1_1)
        return kvant_fail(diag, KVANT_EDEVICE, "device vulkan: loader of version 1.0, wanted 1.1 or more");
    return make_instance(create, diag);
}

int vk_api_open(vk_api *api, kvant_diag *diag)
{
    memset(api, 0, sizeof *api);
    KVANT_TRY(loader_open(diag));
    KVANT_TRY(instance_open(diag));
    api->instance = instance;
    api->version = version;
#define VK_FUNCTION_LOAD(name)                                                                                        \
    api->name = (PFN_vk##name)get_proc(api->instance, "vk" #name);                                                    \
    if (!api->name)                                                                                                   \
        return missing(#name, diag);
    VK_INSTANCE_FUNCTIONS(VK_FUNCTION_LOAD)
#undef VK_FUNCTION_LOAD
    api->GetPhysicalDeviceCooperativeMatrixPropertiesNV =
        (PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesNV)get_proc(
            api->instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesNV");
    api->GetPhysicalDeviceCooperativeMatrixPropertiesKHR =
        (PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR)get_proc(
            api->instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
    return KVANT_OK;
}

int vk_api_device(vk_api *api, VkDevice device, int addresses, kvant_diag *diag)
{
#define VK_FUNCTION_LOAD(name)                                                                                        \
    api->name = (PFN_vk##name)api->GetDeviceProcAddr(device, "vk" #name);                                             \
    if (!api->name)                                                                                                   \
        return missing(#name, diag);
    VK_DEVICE_FUNCTIONS(VK_FUNCTION_LOAD)
#undef VK_FUNCTION_LOAD
    if (!addresses)
        return KVANT_OK;
    api->GetBufferDeviceAddress =
        (PFN_vkGetBufferDeviceAddress)api->GetDeviceProcAddr(device, "vkGetBufferDeviceAddress");
    if (!api->GetBufferDeviceAddress)
        api->GetBufferDeviceAddress =
            (PFN_vkGetBufferDeviceAddress)api->GetDeviceProcAddr(device, "vkGetBufferDeviceAddressKHR");
    return api->GetBufferDeviceAddress ? KVANT_OK : missing("GetBufferDeviceAddress", diag);
}
