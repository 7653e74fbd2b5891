# The Vulkan device (src/devices/vulkan): SPIR-V from its folders' *.comp by glslc in two forms (fast: device addresses and
# subgroups; plain: descriptors), embedded as C arrays.  The loader is opened at run time; nothing is linked.
#   KVANT_VULKAN   AUTO (built where glslc and the Vulkan headers are found), ON (an error without them), OFF
set(KVANT_VULKAN AUTO CACHE STRING "build the Vulkan device: AUTO, ON or OFF")
set_property(CACHE KVANT_VULKAN PROPERTY STRINGS AUTO ON OFF)
set(KVANT_VULKAN_SOURCES "")

if(NOT KVANT_VULKAN STREQUAL "OFF")
    find_program(KVANT_GLSLC glslc)
    find_path(KVANT_VULKAN_HEADERS vulkan/vulkan.h)
    if(KVANT_VULKAN STREQUAL "ON" AND (NOT KVANT_GLSLC OR NOT KVANT_VULKAN_HEADERS))
        message(FATAL_ERROR "KVANT_VULKAN=ON: glslc and vulkan/vulkan.h wanted (Debian: glslc, libvulkan-dev)")
    endif()
endif()

if(KVANT_GLSLC AND KVANT_VULKAN_HEADERS AND NOT KVANT_VULKAN STREQUAL "OFF")
    set(KVANT_VULKAN_DIR ${CMAKE_BINARY_DIR}/vulkan)
    file(MAKE_DIRECTORY ${KVANT_VULKAN_DIR})
    file(GLOB KVANT_SHADERS CONFIGURE_DEPENDS src/devices/vulkan/*/*.comp)
    file(GLOB KVANT_VULKAN_SOURCES CONFIGURE_DEPENDS src/devices/vulkan/*/*.c)
    set(KVANT_SPIRV_KHR ${CMAKE_SOURCE_DIR}/tools/spirv_khr.py)
    set(KVANT_SHADER_LIST "")
    set(KVANT_SHADER_CODE "")
    set(KVANT_SHADER_FILES "")
    foreach(shader ${KVANT_SHADERS})
        get_filename_component(name ${shader} NAME_WE)
        string(APPEND KVANT_SHADER_LIST "VK_SHADER(${name})\n")
        foreach(form fast plain)
            string(TOUPPER ${form} define)
            set(out ${KVANT_VULKAN_DIR}/${name}_${form}.inc)
            set(made -mfmt=c ${shader} -o ${out})
            if(name MATCHES "_khr$" AND form STREQUAL "fast")      # matrices as newer drivers want them
                set(made ${shader} -o ${out}.spv COMMAND ${Python3_EXECUTABLE} ${KVANT_SPIRV_KHR} ${out}.spv ${out})
            endif()
            add_custom_command(OUTPUT ${out}
                COMMAND ${KVANT_GLSLC} --target-env=vulkan1.1 -O -D${define} -MD -MF ${out}.d -MT ${out}
                    -I ${CMAKE_SOURCE_DIR}/src -I ${KVANT_GENERATED} ${made}
                DEPENDS ${shader} ${KVANT_SPIRV_KHR} DEPFILE ${out}.d COMMENT "SPIR-V ${name} ${form}" VERBATIM)
            list(APPEND KVANT_SHADER_FILES ${out})
            string(APPEND KVANT_SHADER_CODE "static const uint32_t ${name}_${form}_code[] =\n#include \"${name}_${form}.inc\"\n;\n")
        endforeach()
    endforeach()
    file(CONFIGURE OUTPUT ${KVANT_VULKAN_DIR}/vk_shader_list.inc CONTENT "${KVANT_SHADER_LIST}" @ONLY)
    file(CONFIGURE OUTPUT ${KVANT_VULKAN_DIR}/vk_shader_code.inc CONTENT "${KVANT_SHADER_CODE}" @ONLY)
    set_source_files_properties(src/devices/vulkan/core/vk_shaders.c PROPERTIES OBJECT_DEPENDS "${KVANT_SHADER_FILES}")
    set_source_files_properties(${KVANT_VULKAN_SOURCES} PROPERTIES INCLUDE_DIRECTORIES "${KVANT_VULKAN_DIR}")
    set_source_files_properties(src/devices/device.c PROPERTIES COMPILE_DEFINITIONS KVANT_HAVE_VULKAN)
endif()
