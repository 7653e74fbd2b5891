# What `cmake --install` puts where: the program, the libraries (.a and .so), the public headers, kvant.pc, kvant-formats.pc and
# qjl.pc, and the CMake package: find_package(kvant) gives kvant::kvant, kvant::formats, kvant::qjl and their _static twins,
# find_package(kvant COMPONENTS formats) the formats alone, which need nothing but libc and libm.
include(CMakePackageConfigHelpers)
set(KVANT_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/kvant)

if(TARGET kvant)
    install(TARGETS kvant RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
    # The man page and the completions come out of the program itself, so they cannot be stale.
    set(KVANT_DOC_DIR ${CMAKE_BINARY_DIR}/doc)
    file(MAKE_DIRECTORY ${KVANT_DOC_DIR})
    add_custom_command(OUTPUT ${KVANT_DOC_DIR}/kvant.1 ${KVANT_DOC_DIR}/kvant ${KVANT_DOC_DIR}/_kvant ${KVANT_DOC_DIR}/kvant.fish
        COMMAND kvant --man > ${KVANT_DOC_DIR}/kvant.1
        COMMAND kvant --completion bash > ${KVANT_DOC_DIR}/kvant
        COMMAND kvant --completion zsh > ${KVANT_DOC_DIR}/_kvant
        COMMAND kvant --completion fish > ${KVANT_DOC_DIR}/kvant.fish
        DEPENDS kvant VERBATIM)
    add_custom_target(kvant_docs ALL DEPENDS ${KVANT_DOC_DIR}/kvant.1)
    install(FILES ${KVANT_DOC_DIR}/kvant.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program)
    install(FILES ${KVANT_DOC_DIR}/kvant DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT program)
    install(FILES ${KVANT_DOC_DIR}/_kvant DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT program)
    install(FILES ${KVANT_DOC_DIR}/kvant.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT program)
endif()
install(DIRECTORY include/kvant ${KVANT_GENERATED}/include/kvant DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    COMPONENT dev FILES_MATCHING PATTERN "*.h" PATTERN "*.def")

foreach(library kvant_formats kvant)
    string(REPLACE _ - file ${library})
    foreach(form archive shared)
        target_include_directories(${library}_${form} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    endforeach()
    install(TARGETS ${library}_archive ${library}_shared EXPORT ${file}-targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT lib NAMELINK_COMPONENT dev)
    install(EXPORT ${file}-targets NAMESPACE kvant:: DESTINATION ${KVANT_CMAKE_DIR} COMPONENT dev)
endforeach()
install(TARGETS qjl qjl_static EXPORT kvant-formats-targets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT lib NAMELINK_COMPONENT dev)
install(FILES include/qjl.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)
configure_package_config_file(cmake/kvant-config.cmake.in ${CMAKE_BINARY_DIR}/kvant-config.cmake
    INSTALL_DESTINATION ${KVANT_CMAKE_DIR})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/kvant-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/kvant-config.cmake ${CMAKE_BINARY_DIR}/kvant-config-version.cmake
    DESTINATION ${KVANT_CMAKE_DIR} COMPONENT dev)

file(RELATIVE_PATH KVANT_PC_PREFIX /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
string(REGEX REPLACE "/$" "" KVANT_PC_PREFIX ${KVANT_PC_PREFIX})
foreach(file kvant kvant-formats qjl)
    configure_file(cmake/${file}.pc.in ${CMAKE_BINARY_DIR}/${file}.pc @ONLY)
    install(FILES ${CMAKE_BINARY_DIR}/${file}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
endforeach()

# Packages alone have the service: it names the program at /usr/bin.
if(TARGET kvant)
    install(FILES contrib/kvant.service DESTINATION lib/systemd/system COMPONENT service EXCLUDE_FROM_ALL)
    install(FILES contrib/serve.env DESTINATION ${CMAKE_INSTALL_DATADIR}/kvant COMPONENT service EXCLUDE_FROM_ALL)
endif()
