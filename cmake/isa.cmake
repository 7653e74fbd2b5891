# Instruction sets by file name: foo_avx2.c, foo_avx512.c, foo_avx512vnni.c, foo_neon.c, foo_dotprod.c, foo_i8mm.c.  Only
# these files may use intrinsics; they are reached only after the CPU mask allowed them.  Files of another processor family
# are left out.
set(KVANT_FLAGS_avx2 -mavx2 -mfma -mf16c)
set(KVANT_FLAGS_avx512 ${KVANT_FLAGS_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl)
set(KVANT_FLAGS_avx512vnni ${KVANT_FLAGS_avx512} -mavx512vnni -mavx512bf16 -mavx512vbmi -mavx512vpopcntdq -mavx512bitalg
    -mgfni)
set(KVANT_FLAGS_neon "")
set(KVANT_FLAGS_dotprod -march=armv8.2-a+dotprod)
set(KVANT_FLAGS_i8mm -march=armv8.2-a+dotprod+i8mm)

function(kvant_isa_sources var)
    set(kept "")
    foreach(source ${${var}})
        if(source MATCHES "_(avx2|avx512|avx512vnni|neon|dotprod|i8mm)\\.c$")
            set(isa ${CMAKE_MATCH_1})
            if(isa MATCHES "^(neon|dotprod|i8mm)$")
                set(wanted "aarch64|arm64")
            else()
                set(wanted "x86_64|AMD64")
            endif()
            if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "${wanted}")
                continue()
            endif()
            set(flags ${KVANT_FLAGS_${isa}})
            # Row kernels are inline functions over values in registers: gcc's limit for -O2 would pass some through
            # memory.  (clang has no such limit and refuses the flag.)
            if(isa MATCHES "avx512" AND source MATCHES "/formats/" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
                list(APPEND flags -finline-limit=4000)
            endif()
            # What fuzzing makes up reaches no kernel of these, and they are most of what there is to instrument; their
            # own tests run instrumented: ./dev asan.
            if(KVANT_FUZZ AND source MATCHES "/devices/cpu/(attn|gdn|matmul|ops)/")
                list(APPEND flags -fno-sanitize=all)
            endif()
            set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${flags}")
        endif()
        list(APPEND kept ${source})
    endforeach()
    set(${var} ${kept} PARENT_SCOPE)
endfunction()
