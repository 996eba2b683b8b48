# The extension lookup_tools/_core.
find_package(Python REQUIRED COMPONENTS Interpreter Development.Module ${SKBUILD_SABI_COMPONENT})

set(headers "${CMAKE_CURRENT_SOURCE_DIR}/csrc/lookup.cdef.h" "${CMAKE_CURRENT_SOURCE_DIR}/csrc/lookup_build.cdef.h")
set(cdef "${CMAKE_CURRENT_BINARY_DIR}/_core.cdef.h")
set(generated "${CMAKE_CURRENT_BINARY_DIR}/_core.c")
# cffi takes one file of declarations.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${headers})
file(WRITE "${cdef}.new" "")
foreach(header IN LISTS headers)
  file(READ "${header}" text)
  file(APPEND "${cdef}.new" "${text}\n")
endforeach()
configure_file("${cdef}.new" "${cdef}" COPYONLY)

add_custom_command(
  OUTPUT "${generated}"
  COMMAND Python::Interpreter -m cffi.gen_src read-sources lookup_tools._core
          "${cdef}" "${CMAKE_CURRENT_SOURCE_DIR}/csrc/_core.csrc" "${generated}"
  DEPENDS "${cdef}" csrc/_core.csrc
  VERBATIM)

if(SKBUILD_SABI_VERSION)
  python_add_library(_core MODULE "${generated}" WITH_SOABI USE_SABI ${SKBUILD_SABI_VERSION})
else()
  python_add_library(_core MODULE "${generated}" WITH_SOABI)
  target_compile_definitions(_core PRIVATE _CFFI_NO_LIMITED_API)
endif()
# The wrapper is not ours: its warnings say nothing.
add_library(core OBJECT ${sources})
lookup_compile(core)
set_target_properties(core PROPERTIES POSITION_INDEPENDENT_CODE ON)
set_target_properties(_core PROPERTIES C_STANDARD 11 C_EXTENSIONS OFF C_VISIBILITY_PRESET hidden)
target_include_directories(_core PRIVATE csrc)
target_link_libraries(_core PRIVATE core)
if(NOT MSVC)
  target_link_libraries(_core PRIVATE m)
endif()
if(LOOKUP_SANITIZE)
  target_link_options(_core PRIVATE -fsanitize=address,undefined)
endif()

install(TARGETS _core DESTINATION lookup_tools)
file(GLOB manifests "${CMAKE_CURRENT_SOURCE_DIR}/corpora/*.toml")
install(FILES ${manifests} DESTINATION lookup_tools/_corpora)
