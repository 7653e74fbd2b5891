/* vk_shaders.c: the SPIR-V of the folders' .comp files, built by glslc (cmake/vulkan.cmake) and embedded. */
#include "devices/vulkan/core/vk_dev.h"

#include "vk_shader_code.inc"

#define VK_SHADER(name)                                                                                               \
    { #name, { name##_fast_code, sizeof name##_fast_code }, { name##_plain_code, sizeof name##_plain_code } },
const vk_shader vk_shaders[VK_SHADER_COUNT] = {
#include "vk_shader_list.inc"
};
#undef VK_SHADER
