# liblookup: static and shared, headers, lookup.pc, find_package(lookup).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
add_library(lookup_shared SHARED ${sources})
add_library(lookup_static STATIC ${sources})
add_library(lookup::lookup ALIAS lookup_shared)
add_library(lookup::lookup_static ALIAS lookup_static)
# Speed matters where drafts are made; the rest is kept small.
if(NOT MSVC)
  foreach(source IN LISTS sources)
    if(source MATCHES "/csrc/(build|core/meta|files)")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-Os")
    endif()
  endforeach()
endif()
foreach(target lookup_shared lookup_static)
  lookup_compile(${target})
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON OUTPUT_NAME lookup)
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/csrc> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/lookup>)
  if(NOT MSVC)
    target_link_libraries(${target} PRIVATE m)
  endif()
endforeach()
# Before 1.0 a minor version may change the interface, so it is part of the soname.
set_target_properties(lookup_shared PROPERTIES EXPORT_NAME lookup
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set_target_properties(lookup_static PROPERTIES EXPORT_NAME lookup_static)
target_compile_definitions(lookup_shared PRIVATE LOOKUP_SHARED)
if(WIN32) # the import library would have the static library's name
  set_target_properties(lookup_shared PROPERTIES WINDOWS_EXPORT_ALL_SYMBOLS ON)
  set_target_properties(lookup_static PROPERTIES OUTPUT_NAME lookup_static)
endif()

install(TARGETS lookup_shared lookup_static EXPORT lookup
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES csrc/lookup.h csrc/lookup.cdef.h csrc/lookup_build.h csrc/lookup_build.cdef.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lookup)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/lookup)
install(EXPORT lookup NAMESPACE lookup:: FILE lookupTargets.cmake DESTINATION ${package})
configure_package_config_file(cmake/lookupConfig.cmake.in lookupConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(lookupConfigVersion.cmake COMPATIBILITY SameMinorVersion)
configure_file(cmake/lookup.pc.in lookup.pc @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/lookupConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/lookupConfigVersion.cmake"
  DESTINATION ${package})
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/lookup.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
