# The two libraries, each static and shared.  Everything is hidden but what the public headers declare.
#   libkvant-formats   formats, ops and the CPU's kernels of both: libc and libm alone, no allocation, no threads of its own
#   libkvant           the engine over it: texts, models, caches, devices
# Making model files (convert, quantize, importance matrices) is a static library over them, kvant_make, that the program has.
file(GLOB_RECURSE KVANT_FORMATS_SOURCES CONFIGURE_DEPENDS src/formats/*.c src/ops/*.c src/devices/cpu/*.c
    ${KVANT_GENERATED}/formats/*.c)
list(FILTER KVANT_FORMATS_SOURCES EXCLUDE REGEX "/(cpu_device|fuse)\\.c$")   # a device owns threads and memory; lists are its own
list(APPEND KVANT_FORMATS_SOURCES src/base/cpu.c src/base/error.c)
kvant_isa_sources(KVANT_FORMATS_SOURCES)

file(GLOB_RECURSE KVANT_SOURCES CONFIGURE_DEPENDS
    src/base/*.c src/ops/fuse/*.c src/devices/device.c src/devices/device_public.c src/devices/cpu/cpu_device.c src/devices/cuda/*.c src/text/*.c src/model/*.c
    src/cache/*.c src/engine/*.c)
list(FILTER KVANT_SOURCES EXCLUDE REGEX "/base/(cpu|error)\\.c$")
include(cmake/vulkan.cmake)
include(cmake/portable.cmake)
list(APPEND KVANT_SOURCES ${KVANT_VULKAN_SOURCES} ${KVANT_PORTABLE_SOURCES})

# The commit in `kvant --version`, which reports quote: cmake runs again when another one is checked out.  Absent in a source
# archive.
execute_process(COMMAND git -C ${CMAKE_SOURCE_DIR} rev-parse --short HEAD OUTPUT_VARIABLE KVANT_COMMIT
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
execute_process(COMMAND git rev-parse --path-format=absolute --git-path logs/HEAD WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
    OUTPUT_VARIABLE KVANT_HEAD_LOG OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(EXISTS "${KVANT_HEAD_LOG}")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${KVANT_HEAD_LOG})
endif()
if(KVANT_COMMIT)
    set_source_files_properties(src/base/version.c PROPERTIES COMPILE_DEFINITIONS KVANT_COMMIT_TEXT="${KVANT_COMMIT}")
endif()
set_source_files_properties(src/devices/cuda/core/cuda.c PROPERTIES
    COMPILE_DEFINITIONS KVANT_CUDA_LIBDIR="${CMAKE_INSTALL_FULL_LIBDIR}")

# kvant_archive(target file-name export-name): target_archive, the static library that users link.  Its one object has been
# through the linker, so that what is hidden in the shared library is local here: names such as sha256 stay the user's own.
function(kvant_archive target file export)
    set(whole ${CMAKE_BINARY_DIR}/archives/${file}.o)
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/archives)
    add_custom_command(OUTPUT ${whole}
        COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -Wl,--whole-archive $<TARGET_FILE:${target}_static> -Wl,--no-whole-archive -o ${whole}
        COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${whole}
        DEPENDS ${target}_static COMMENT "Making the public names of ${file}.a" VERBATIM)
    add_library(${target}_archive STATIC ${whole})
    set_target_properties(${target}_archive PROPERTIES LINKER_LANGUAGE C OUTPUT_NAME ${file} EXPORT_NAME ${export}_static)
endfunction()

# kvant_library(target file-name export-name sources...): target_objects, target_static, target_archive and target_shared.
#   target_static   with all names, for the program and the tests; not installed
#   target_archive  with the public names alone, the static library that is installed
function(kvant_library target file export)
    add_library(${target}_objects OBJECT ${ARGN})
    target_link_libraries(${target}_objects PRIVATE kvant_flags)
    add_library(${target}_static STATIC $<TARGET_OBJECTS:${target}_objects>)
    add_library(${target}_shared SHARED $<TARGET_OBJECTS:${target}_objects>)
    set_target_properties(${target}_static PROPERTIES OUTPUT_NAME ${file}-all)
    kvant_archive(${target} ${file} ${export})
    set_target_properties(${target}_shared PROPERTIES OUTPUT_NAME ${file} EXPORT_NAME ${export}
        VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} INSTALL_RPATH "$ORIGIN")
    target_link_libraries(${target}_shared PRIVATE kvant_flags)
    if(NOT KVANT_SANITIZE AND NOT KVANT_FUZZ)
        target_link_options(${target}_shared PRIVATE -Wl,-z,defs)       # a missing symbol is found here, not by the user
    endif()
endfunction()

kvant_library(kvant_formats kvant-formats formats ${KVANT_FORMATS_SOURCES})
target_link_libraries(kvant_formats_static PUBLIC Threads::Threads m)
target_link_libraries(kvant_formats_shared PRIVATE Threads::Threads m)   # pthread_once, in libc since glibc 2.34
target_link_libraries(kvant_formats_archive INTERFACE Threads::Threads m)
kvant_library(kvant kvant kvant ${KVANT_SOURCES})
set(KVANT_NEEDS PkgConfig::PCRE2 PkgConfig::UTF8PROC Threads::Threads)
target_link_libraries(kvant_objects PRIVATE ${KVANT_NEEDS})
target_link_libraries(kvant_static PUBLIC kvant_formats_static ${KVANT_NEEDS} ${CMAKE_DL_LIBS} m)
target_link_libraries(kvant_archive INTERFACE kvant_formats_archive ${KVANT_NEEDS} ${CMAKE_DL_LIBS} m)
target_link_libraries(kvant_shared PUBLIC kvant_formats_shared PRIVATE ${KVANT_NEEDS} ${CMAKE_DL_LIBS} m)

file(GLOB_RECURSE KVANT_MAKE_SOURCES CONFIGURE_DEPENDS src/make/*.c)
add_library(kvant_make STATIC ${KVANT_MAKE_SOURCES})
target_link_libraries(kvant_make PUBLIC kvant_flags kvant_static)
