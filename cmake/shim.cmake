# The device metal-shim (src/devices/metal/shim), which runs the Metal kernels on the CPU to check them.  It starts the C++
# compiler, and what is installed starts no program: it is no part of the libraries nor of bin/kvant.  It is linked into
#   bin/kvant-metal-shim   the same program with this device added to its list; not installed
#   bin/check_metal_shim*  the test of the shim itself, and of what only its device can show
#   KVANT_METAL_SHIM   whether they are built (declared in portable.cmake)
if(NOT KVANT_METAL_SHIM)
    return()
endif()
file(GLOB sources CONFIGURE_DEPENDS src/devices/metal/shim/*.c)
add_library(kvant_metal_shim STATIC ${sources})
target_link_libraries(kvant_metal_shim PUBLIC kvant_flags kvant_static)
set(stdlib ${CMAKE_SOURCE_DIR}/src/devices/metal/shim/shim_abi.h ${CMAKE_SOURCE_DIR}/src/devices/metal/shim/metal_stdlib.h)
add_custom_command(OUTPUT ${KVANT_PORTABLE_DIR}/metal_stdlib.inc
    COMMAND ${CMAKE_COMMAND} "-DIN=${stdlib}" -DOUT=${KVANT_PORTABLE_DIR}/metal_stdlib.inc
        -P ${CMAKE_SOURCE_DIR}/cmake/bytes.cmake
    DEPENDS ${stdlib} cmake/bytes.cmake VERBATIM)
set_source_files_properties(src/devices/metal/shim/shim_program.c PROPERTIES INCLUDE_DIRECTORIES "${KVANT_PORTABLE_DIR}"
    OBJECT_DEPENDS ${KVANT_PORTABLE_DIR}/metal_stdlib.inc)
if(TARGET kvant_cli)
    # Its own device.c defines all that the library's does, so that the linker takes that one from no library.
    add_executable(kvant-metal-shim src/devices/device.c)
    target_compile_definitions(kvant-metal-shim PRIVATE KVANT_HAVE_METAL_SHIM)
    target_link_libraries(kvant-metal-shim PRIVATE kvant_cli kvant_metal_shim)
endif()
