# libkvant-cuda.so: the CUDA device, loaded at run time (src/devices/cuda/core/cuda.c).  nvcc builds it by custom commands:
# the CPU build knows no CUDA at all.  One file per op family and object; one library for all architectures.
#   KVANT_CUDA        AUTO (built where nvcc is found), ON (an error without it), OFF
#   KVANT_CUDA_ARCHS  machine code to include; the last one also as PTX for later GPUs
#   KVANT_CUDA_CHECK  ON: compile quickly, into slow kernels, as the device then says; for machines that only check that
#                     everything compiles
#   KVANT_CUDA_SOME   names of files (attn.cu) to compile and no library: what the CI does while no file changed
set(KVANT_CUDA AUTO CACHE STRING "build libkvant-cuda.so: AUTO, ON or OFF")
set(KVANT_CUDA_ARCHS 80 90a 100 120 CACHE STRING "compute capabilities of libkvant-cuda.so")
set(KVANT_CUDA_CHECK OFF CACHE BOOL "compile libkvant-cuda.so quickly, into slow kernels")
set(KVANT_CUDA_SOME "" CACHE STRING "CUDA files to compile instead of libkvant-cuda.so")
set_property(CACHE KVANT_CUDA PROPERTY STRINGS AUTO ON OFF)

if(NOT KVANT_CUDA STREQUAL "OFF" AND NOT KVANT_SANITIZE AND NOT KVANT_FUZZ)
    find_program(KVANT_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
    if(KVANT_CUDA STREQUAL "ON" AND NOT KVANT_NVCC)
        message(FATAL_ERROR "KVANT_CUDA=ON: nvcc not found, wanted in PATH, \$CUDA_HOME/bin or /usr/local/cuda/bin")
    endif()
endif()

if(KVANT_NVCC AND NOT KVANT_CUDA STREQUAL "OFF" AND NOT KVANT_SANITIZE AND NOT KVANT_FUZZ)
    set(KVANT_CUDA_GENCODE "")
    foreach(arch ${KVANT_CUDA_ARCHS})
        list(APPEND KVANT_CUDA_GENCODE -gencode arch=compute_${arch},code=sm_${arch})
    endforeach()
    list(GET KVANT_CUDA_ARCHS -1 KVANT_CUDA_LAST)
    list(APPEND KVANT_CUDA_GENCODE -gencode arch=compute_${KVANT_CUDA_LAST},code=compute_${KVANT_CUDA_LAST})
    # -fmad=false: the references' roundings; sums that may fuse call fmaf.  The suppressed remarks are about the
    # references of the encoders, which encode_math.cuh reads as device code.
    set(KVANT_CUDA_FLAGS -std=c++20 -O3 -fmad=false -diag-suppress 20037,20014,20091,20039
        -Xcompiler -fPIC,-fvisibility=hidden,-Wall -I${CMAKE_SOURCE_DIR}/src -I${CMAKE_SOURCE_DIR}/include -I${KVANT_GENERATED}
        -I${KVANT_GENERATED}/include)
    if(KVANT_CUDA_CHECK)            # a third to a sixth of the time; from CUDA 12.9 on
        execute_process(COMMAND ${KVANT_NVCC} --help OUTPUT_VARIABLE KVANT_NVCC_HELP)
        if(KVANT_NVCC_HELP MATCHES "--Ofast-compile")
            list(REMOVE_ITEM KVANT_CUDA_FLAGS -O3)          # the host's part, which no test runs either
            list(APPEND KVANT_CUDA_FLAGS -Ofc max -DKVANT_CUDA_CHECK)
        else()
            message(STATUS "KVANT_CUDA_CHECK: this nvcc has no --Ofast-compile, wanted CUDA 12.9 or later; compiled as always")
        endif()
    endif()
    file(GLOB_RECURSE KVANT_CUDA_SOURCES CONFIGURE_DEPENDS src/devices/cuda/*.cu)
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/cuda ${CMAKE_BINARY_DIR}/lib)
    set(KVANT_CUDA_OBJECTS "")
    foreach(source ${KVANT_CUDA_SOURCES})
        get_filename_component(name ${source} NAME_WE)
        set(object ${CMAKE_BINARY_DIR}/cuda/${name}.o)
        add_custom_command(OUTPUT ${object}
            COMMAND ${CMAKE_C_COMPILER_LAUNCHER} ${KVANT_NVCC} ${KVANT_CUDA_FLAGS} ${KVANT_CUDA_GENCODE} -MD -MF ${object}.d -c ${source} -o ${object}
            DEPENDS ${source} DEPFILE ${object}.d COMMENT "CUDA ${name}" VERBATIM COMMAND_EXPAND_LISTS)
        list(APPEND KVANT_CUDA_OBJECTS ${object})
    endforeach()
    if(KVANT_CUDA_SOME)
        list(TRANSFORM KVANT_CUDA_SOME REPLACE "^(.*)\\.cu$" "${CMAKE_BINARY_DIR}/cuda/\\1.o" OUTPUT_VARIABLE KVANT_CUDA_SOME_OBJECTS)
        add_custom_target(kvant_cuda ALL DEPENDS ${KVANT_CUDA_SOME_OBJECTS})
        return()
    endif()
    # Fused forms are found by libkvant's matcher, of which this library has its own.
    add_library(kvant_cuda_fuse OBJECT src/ops/fuse/fuse.c)
    target_link_libraries(kvant_cuda_fuse PRIVATE kvant_flags)
    set_target_properties(kvant_cuda_fuse PROPERTIES INTERPROCEDURAL_OPTIMIZATION OFF)
    set(KVANT_CUDA_LIBRARY ${CMAKE_BINARY_DIR}/lib/libkvant-cuda.so)
    add_custom_command(OUTPUT ${KVANT_CUDA_LIBRARY}
        COMMAND ${KVANT_NVCC} --shared -cudart static ${KVANT_CUDA_GENCODE} ${KVANT_CUDA_OBJECTS} $<TARGET_OBJECTS:kvant_cuda_fuse>
            -o ${KVANT_CUDA_LIBRARY}
        DEPENDS ${KVANT_CUDA_OBJECTS} $<TARGET_OBJECTS:kvant_cuda_fuse> COMMENT "CUDA libkvant-cuda.so" VERBATIM COMMAND_EXPAND_LISTS)
    add_custom_target(kvant_cuda ALL DEPENDS ${KVANT_CUDA_LIBRARY})
    install(PROGRAMS ${KVANT_CUDA_LIBRARY} DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
