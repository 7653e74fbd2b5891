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

# Tests of sessions again on several devices, all of them the CPU: layers over two, routed experts on a third; and every
# layer in parts over two (tests/support/serve_rig.c).
function(kvant_tensor_test name program)
    add_test(NAME ${name} COMMAND ${CMAKE_CROSSCOMPILING_EMULATOR} ${CMAKE_BINARY_DIR}/bin/${program} ${ARGN} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "KVANT_TEST_TENSOR=cpu:1,cpu:2")
endfunction()
function(kvant_placed_test name program)
    add_test(NAME ${name} COMMAND ${CMAKE_CROSSCOMPILING_EMULATOR} ${CMAKE_BINARY_DIR}/bin/${program} ${ARGN} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "KVANT_TEST_DEVICES=cpu:1,cpu:2")
endfunction()
kvant_placed_test(check_neighbours_placed check_neighbours)
kvant_placed_test(check_session_placed check_session)
kvant_placed_test(check_store_placed check_store)
kvant_placed_test(check_spec_placed check_spec tests/golden/tiny/qwen3moe.gguf)
kvant_tensor_test(check_neighbours_tensor check_neighbours)
kvant_tensor_test(check_session_tensor check_session)
kvant_tensor_test(check_store_tensor check_store)
kvant_tensor_test(check_spec_tensor check_spec tests/golden/tiny/qwen35moe.gguf)

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
        elseif(NOT name MATCHES "^check_(serve|server|vulkan|metal_shim)" AND NOT KVANT_TESTS_ONLY)     # those that this build may lack
            message(FATAL_ERROR "${list}: no test ${name}")
        endif()
    endforeach()
endfunction()
kvant_label(slow)       # left out by the sanitizer runs
kvant_label(cpu)        # ./dev masked runs them again on a lower rung of the CPU

# The longest begin first, so that a clone that has never run does not wait for one of them with the other cores idle; of those
# that tests/seconds.txt does not have, ctest remembers what it measured.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS tests/seconds.txt)
file(STRINGS tests/seconds.txt KVANT_LONGEST REGEX "^check_")
foreach(line ${KVANT_LONGEST})
    string(REPLACE " " ";" line ${line})
    list(POP_FRONT line name seconds)
    if(TEST ${name})
        set_tests_properties(${name} PROPERTIES COST ${seconds})
    endif()
endforeach()

# Tests of the program know what a CPU gives; on a machine with an NVIDIA GPU it would take that.
get_property(tests DIRECTORY PROPERTY TESTS)
list(FILTER tests EXCLUDE REGEX "^check_(cuda|archs|devices|golden)")
set_property(TEST ${tests} APPEND PROPERTY ENVIRONMENT "CUDA_VISIBLE_DEVICES=")

# A test that compares times with each other needs the machine for itself.
foreach(name check_serve_neighbours check_serve_hostile check_serve_grammar)
    if(TEST ${name})
        set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
    endif()
endforeach()
