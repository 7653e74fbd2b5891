# Devices of the portable kernels (src/devices/portable): their texts are embedded and compiled by the driver.
#   KVANT_OPENCL   the OpenCL device (src/devices/opencl); libOpenCL.so.1 is opened at run time, nothing is linked
option(KVANT_OPENCL "build the OpenCL device" ON)
#   KVANT_HIP      the HIP device (src/devices/hip), AMD's GPUs; libamdhip64 is opened at run time, nothing is linked
option(KVANT_HIP "build the HIP device" ON)
#   KVANT_METAL_SHIM   a second program with the device metal-shim, which checks the Metal kernels: shim.cmake
option(KVANT_METAL_SHIM "build bin/kvant-metal-shim, which checks the Metal kernels" ${KVANT_TESTS})
set(KVANT_PORTABLE_SOURCES "")

if(KVANT_OPENCL OR KVANT_HIP OR KVANT_METAL_SHIM OR APPLE)
    file(GLOB KVANT_PORTABLE_SOURCES CONFIGURE_DEPENDS src/devices/portable/*/*.c)
    file(GLOB KVANT_PORTABLE_TEXTS CONFIGURE_DEPENDS src/devices/portable.h src/devices/portable/*/*.k src/devices/portable/*/*.h
        ${KVANT_GENERATED}/cards/* ${KVANT_GENERATED}/ops/elements*)
    set(KVANT_PORTABLE_DIR ${CMAKE_BINARY_DIR}/portable)
    file(MAKE_DIRECTORY ${KVANT_PORTABLE_DIR})
    add_custom_command(OUTPUT ${KVANT_PORTABLE_DIR}/port_texts.inc
        COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_SOURCE_DIR}/tools/embed_kernels ${KVANT_PORTABLE_DIR}/port_texts.inc
            ${CMAKE_SOURCE_DIR}/src ${KVANT_GENERATED}
        DEPENDS ${KVANT_PORTABLE_TEXTS} tools/embed_kernels VERBATIM)
    set_source_files_properties(src/devices/portable/core/port_text.c PROPERTIES INCLUDE_DIRECTORIES "${KVANT_PORTABLE_DIR}"
        OBJECT_DEPENDS ${KVANT_PORTABLE_DIR}/port_texts.inc)
endif()
if(KVANT_OPENCL)
    file(GLOB sources CONFIGURE_DEPENDS src/devices/opencl/*.c)
    list(APPEND KVANT_PORTABLE_SOURCES ${sources})
    set_property(SOURCE src/devices/device.c APPEND PROPERTY COMPILE_DEFINITIONS KVANT_HAVE_OPENCL)
endif()
if(KVANT_HIP)
    file(GLOB sources CONFIGURE_DEPENDS src/devices/hip/*.c)
    list(APPEND KVANT_PORTABLE_SOURCES ${sources})
    set_property(SOURCE src/devices/device.c APPEND PROPERTY COMPILE_DEFINITIONS KVANT_HAVE_HIP)
endif()
if(APPLE)       # docs/metal.md: nobody has run this branch
    enable_language(OBJC)
    list(APPEND KVANT_PORTABLE_SOURCES src/devices/metal/metal_device.m)
    set_source_files_properties(src/devices/metal/metal_device.m PROPERTIES COMPILE_OPTIONS -fobjc-arc)
    link_libraries("-framework Metal" "-framework Foundation")
endif()
