# libqjl (include/qjl.h): the format qjl1_256 alone, for programs that want no more.  Its own objects, shared and static; global
# names are those of its header, so that it may be linked beside libkvant-formats, which has the same code.
set(KVANT_QJL_SOURCES src/qjl/qjl.c src/base/cpu.c src/base/error.c src/base/sha256.c src/formats/reference.c
    ${KVANT_GENERATED}/formats/qjl1_256_avx2.c ${KVANT_GENERATED}/formats/qjl1_256_avx512.c ${KVANT_GENERATED}/formats/qjl1_256_neon.c
    ${KVANT_GENERATED}/formats/f32_avx2.c ${KVANT_GENERATED}/formats/f32_avx512.c ${KVANT_GENERATED}/formats/f32_neon.c)    # products of decoded values
file(GLOB KVANT_QJL_FORMAT CONFIGURE_DEPENDS src/formats/qjl/*.c)
list(APPEND KVANT_QJL_SOURCES ${KVANT_QJL_FORMAT})
kvant_isa_sources(KVANT_QJL_SOURCES)
add_library(qjl_objects OBJECT ${KVANT_QJL_SOURCES})
target_link_libraries(qjl_objects PRIVATE kvant_flags)

add_library(qjl SHARED $<TARGET_OBJECTS:qjl_objects>)
target_link_libraries(qjl PRIVATE kvant_flags Threads::Threads m)
set_target_properties(qjl PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
target_link_options(qjl PRIVATE -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/qjl.map)
if(NOT KVANT_SANITIZE AND NOT KVANT_FUZZ)
    target_link_options(qjl PRIVATE -Wl,-z,defs)
endif()

set(KVANT_QJL_WHOLE ${CMAKE_BINARY_DIR}/archives/qjl.o)
add_custom_command(OUTPUT ${KVANT_QJL_WHOLE}
    COMMAND ${CMAKE_C_COMPILER} -r -nostdlib $<TARGET_OBJECTS:qjl_objects> -o ${KVANT_QJL_WHOLE}
    COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=qjl_* ${KVANT_QJL_WHOLE}
    DEPENDS qjl_objects $<TARGET_OBJECTS:qjl_objects> COMMAND_EXPAND_LISTS COMMENT "Making the public names of libqjl.a" VERBATIM)
add_library(qjl_static STATIC ${KVANT_QJL_WHOLE})
set_target_properties(qjl_static PROPERTIES LINKER_LANGUAGE C OUTPUT_NAME qjl)
target_link_libraries(qjl_static INTERFACE Threads::Threads m)
foreach(library qjl qjl_static)
    target_include_directories(${library} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()
