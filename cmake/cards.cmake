# Cards -> code: tools/gen_tables writes ${CMAKE_BINARY_DIR}/generated/cards when cmake runs, and cmake runs again when a card changes.
find_package(Python3 3.11 REQUIRED COMPONENTS Interpreter)
set(KVANT_GENERATED ${CMAKE_BINARY_DIR}/generated)
file(GLOB_RECURSE KVANT_CARDS CONFIGURE_DEPENDS src/formats/*.toml)
file(GLOB KVANT_CARD_TOOLS CONFIGURE_DEPENDS tools/cards/*.py)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${KVANT_CARDS} ${KVANT_CARD_TOOLS} tools/gen_tables
    src/formats/formats.def src/formats/weights/wtypes.def)
execute_process(COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_SOURCE_DIR}/tools/gen_tables ${KVANT_GENERATED}
    RESULT_VARIABLE KVANT_CARDS_FAILED ERROR_VARIABLE KVANT_CARDS_ERROR)
if(KVANT_CARDS_FAILED)
    message(FATAL_ERROR "tools/gen_tables: ${KVANT_CARDS_ERROR}")
endif()
