# kvant serve: src/server/ as one static library over libkvant, where libmicrohttpd and jansson are found.  The files of the web
# page become byte arrays.  KVANT_SERVER_LIBRARY is empty when the server is not built; `kvant serve` then says what is missing.
set(KVANT_SERVER_LIBRARY "")
if(KVANT_SERVER)
    pkg_check_modules(MICROHTTPD IMPORTED_TARGET libmicrohttpd>=0.9.71)
    pkg_check_modules(JANSSON IMPORTED_TARGET jansson>=2.13)
    if(MICROHTTPD_FOUND AND JANSSON_FOUND)
        file(GLOB_RECURSE KVANT_SERVER_SOURCES CONFIGURE_DEPENDS src/server/*.c)
        file(GLOB KVANT_UI_FILES CONFIGURE_DEPENDS src/server/ui/*)
        # Formulas of the page: KaTeX, as the distribution has it (Debian: libjs-katex); without it they are shown as they are written.
        find_file(KVANT_KATEX katex.js PATHS /usr/share/javascript/katex NO_DEFAULT_PATH)
        if(NOT KVANT_KATEX)
            message(STATUS "the page shows no formulas: katex.js is not there (Debian: libjs-katex)")
            file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/katex/katex.js CONTENT "// This build has no KaTeX.\n" @ONLY)
        endif()
        set(katex ${CMAKE_BINARY_DIR}/generated/katex/katex.js)
        if(KVANT_KATEX)
            set(katex ${KVANT_KATEX})
        endif()
        add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/generated/ui_files.inc
            COMMAND ${CMAKE_COMMAND} -DOUT=${CMAKE_BINARY_DIR}/generated/ui_files.inc -DDIR=${CMAKE_SOURCE_DIR}/src/server/ui
                    -DMORE=${katex} -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
            DEPENDS ${KVANT_UI_FILES} ${katex} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake VERBATIM)
        add_library(kvant_server STATIC ${KVANT_SERVER_SOURCES} ${CMAKE_BINARY_DIR}/generated/ui_files.inc)
        target_include_directories(kvant_server PRIVATE ${CMAKE_BINARY_DIR}/generated)
        target_link_libraries(kvant_server PRIVATE kvant_flags)
        target_link_libraries(kvant_server PUBLIC kvant_static PkgConfig::MICROHTTPD PkgConfig::JANSSON)
        target_compile_definitions(kvant_server INTERFACE KVANT_HAVE_SERVER=1)
        set(KVANT_SERVER_LIBRARY kvant_server)
    else()
        message(STATUS "kvant serve is not built: libmicrohttpd and jansson are not both there (pkg-config)")
    endif()
endif()
