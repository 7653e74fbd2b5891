# Op cards -> code: tools/gen_ops writes ${KVANT_GENERATED}/include/kvant and ${KVANT_GENERATED}/ops when cmake runs, and cmake runs again when a card changes.
file(GLOB_RECURSE KVANT_OP_CARDS CONFIGURE_DEPENDS src/ops/cards/*.toml)
file(GLOB KVANT_OP_TOOLS CONFIGURE_DEPENDS tools/ops/*.py)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${KVANT_OP_CARDS} ${KVANT_OP_TOOLS} tools/gen_ops)
execute_process(COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_SOURCE_DIR}/tools/gen_ops ${KVANT_GENERATED}
    RESULT_VARIABLE KVANT_OPS_FAILED ERROR_VARIABLE KVANT_OPS_ERROR)
if(KVANT_OPS_FAILED)
    message(FATAL_ERROR "tools/gen_ops: ${KVANT_OPS_ERROR}")
endif()
