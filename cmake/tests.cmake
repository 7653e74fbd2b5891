# Tests that are scripts (tests/check_*.sh and *.py; they get the build folder as their argument), and the label "slow".
file(GLOB KVANT_TEST_SCRIPTS CONFIGURE_DEPENDS tests/check_*.sh tests/check_*.py)
function(kvant_script_test name)      # arguments of the script, after the build folder
    add_test(NAME ${name} COMMAND ${interpreter} ${script} ${CMAKE_BINARY_DIR} ${ARGN} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "CC=${CMAKE_C_COMPILER}")
endfunction()
foreach(script ${KVANT_TEST_SCRIPTS})
    get_filename_component(name ${script} NAME_WE)
    if(script MATCHES "\\.py$")
        set(interpreter python3)
    else()
        set(interpreter sh)
    endif()
    file(STRINGS ${script} parts REGEX "^PARTS = ")
    if(parts)                       # minutes: its parts are tests that run side by side
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${script})
        string(REGEX REPLACE ".* or \\[(.*)\\]" "\\1" parts "${parts}")
        string(REGEX MATCHALL "[a-z]+" parts "${parts}")
        foreach(part ${parts})
            kvant_script_test(${name}_${part} ${part})
            list(APPEND KVANT_PARTS_${name} ${name}_${part})
        endforeach()
    else()
        kvant_script_test(${name})
    endif()
endforeach()

# Labels: tests/<label>_tests.txt has one name per line, then the reason; `#` begins a comment.
function(kvant_label label)
    set(list tests/${label}_tests.txt)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${list})
    file(STRINGS ${list} lines REGEX "^[a-z]")
    foreach(line ${lines})
        string(REGEX REPLACE "[ \t].*" "" name "${line}")
        if(KVANT_PARTS_${name})
            set_property(TEST ${KVANT_PARTS_${name}} APPEND PROPERTY LABELS ${label})
        elseif(TEST ${name})
            set_property(TEST ${name} APPEND PROPERTY LABELS ${label})
        elseif(NOT name MATCHES "^check_(serve|server|vulkan|metal_shim)")          # those that this build may lack
            message(FATAL_ERROR "${list}: no test ${name}")
        endif()
    endforeach()
endfunction()
kvant_label(slow)       # left out by the sanitizer runs
kvant_label(cpu)        # ./dev masked runs them again on a lower rung of the CPU

# The longest begin first, in this order, so that a clone that has never run does not wait for one of them with the other
# cores idle.  Seconds on two cores, with no cache of a driver filled; of the others, ctest remembers what it measured.
set(KVANT_LONGEST check_vulkan_archs 100 check_metal_attn 100 check_metal_weights 100 check_vulkan_forms 95
    check_vulkan_ops 90 check_vulkan_plain 90 check_vulkan_caches 85 check_vulkan_attn 75 check_vulkan_profiles 70 check_metal_caches 60
    check_add_format 60 check_engine 52 check_variants 48 check_vulkan_golden 35 check_serve_http 34 check_serve_load 34
    check_metal_models 28 check_add_weight 28 check_metal_ops 24 check_howto 21 check_archs 19 check_make_golden 18
    check_opencl_caches 17 check_vulkan_layers 15 check_kernels 15 check_opencl_weights 14 check_vulkan_models 14
    check_serve_limits 13 check_serve_page 13 check_golden 12)
while(KVANT_LONGEST)
    list(POP_FRONT KVANT_LONGEST name seconds)
    if(TEST ${name})
        set_tests_properties(${name} PROPERTIES COST ${seconds})
    endif()
endwhile()

# Tests of the program know what a CPU gives; on a machine with an NVIDIA GPU it would take that.
get_property(tests DIRECTORY PROPERTY TESTS)
list(FILTER tests EXCLUDE REGEX "^check_(cuda|archs|devices|golden)")
set_property(TEST ${tests} APPEND PROPERTY ENVIRONMENT "CUDA_VISIBLE_DEVICES=")

# A test that compares times with each other needs the machine for itself.
foreach(name check_serve_neighbours check_serve_grammar)
    if(TEST ${name})
        set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
    endif()
endforeach()
