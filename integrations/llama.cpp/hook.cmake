# llama-server and the rest of llama.cpp with --spec-type lookup, its tree untouched:
#
#   cmake -S llama.cpp -B build -DCMAKE_PROJECT_llama.cpp_INCLUDE=.../integrations/llama.cpp/hook.cmake
#
# Three of its sources are compiled from copies in the build folder with a few more lines. Each goes to
# a line that has to be there exactly once; otherwise the configuration ends and says which.
cmake_minimum_required(VERSION 3.19)
set(LOOKUP_HOME "${CMAKE_CURRENT_LIST_DIR}" CACHE INTERNAL "")
get_filename_component(LOOKUP_ROOT "${LOOKUP_HOME}/../.." ABSOLUTE)
set(LOOKUP_ROOT "${LOOKUP_ROOT}" CACHE INTERNAL "")

# lookup_insert(BEFORE|AFTER <a whole line> <text>) changes `lookup_text`, which is `lookup_name`'s.
function(lookup_insert where anchor text)
  string(FIND "${lookup_text}" "\n${anchor}\n" first)
  string(FIND "${lookup_text}" "\n${anchor}\n" last REVERSE)
  if(first EQUAL -1)
    message(FATAL_ERROR "lookup: ${lookup_name}: found no such line, expected it once:\n${anchor}\n"
      "This llama.cpp differs from the one that the integration was made for (b11434).")
  endif()
  if(NOT first EQUAL last)
    message(FATAL_ERROR "lookup: ${lookup_name}: found this line more than once, expected it once:\n${anchor}\n"
      "This llama.cpp differs from the one that the integration was made for (b11434).")
  endif()
  if(where STREQUAL "AFTER")
    string(REPLACE "\n${anchor}\n" "\n${anchor}\n${text}\n" lookup_text "${lookup_text}")
  else()
    string(REPLACE "\n${anchor}\n" "\n${text}\n${anchor}\n" lookup_text "${lookup_text}")
  endif()
  set(lookup_text "${lookup_text}" PARENT_SCOPE)
endfunction()

# Compiles `file` of `target` from a copy that the function of its name has changed.
function(lookup_replace target file)
  get_target_property(folder ${target} SOURCE_DIR)
  get_target_property(sources ${target} SOURCES)
  if(NOT file IN_LIST sources)
    message(FATAL_ERROR "lookup: found no ${file} among the sources of ${target}, expected it there")
  endif()
  set(lookup_name "${folder}/${file}")
  file(READ "${lookup_name}" lookup_text)
  cmake_language(CALL lookup_change_${file})
  set(copy "${CMAKE_BINARY_DIR}/lookup/${file}")
  file(CONFIGURE OUTPUT "${copy}" CONTENT "#line 1 \"@lookup_name@\"\n@lookup_text@" @ONLY)
  list(TRANSFORM sources REPLACE "^${file}$" "${copy}")
  set_property(TARGET ${target} PROPERTY SOURCES "${sources}")
  target_include_directories(${target} PRIVATE "${folder}")
  target_link_libraries(${target} PRIVATE lookup-drafts)
  if(NOT MSVC) # our type is no name of upstream's list
    set_source_files_properties("${copy}" TARGET_DIRECTORY ${target} PROPERTIES COMPILE_OPTIONS "-Wno-switch")
  endif()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${lookup_name}")
endfunction()

macro(lookup_change_speculative.cpp)
  lookup_insert(AFTER "#include \"ngram-mod.h\"" "#include \"register.h\"")
  lookup_insert(AFTER "    {\"none\",          COMMON_SPECULATIVE_TYPE_NONE},"
    "    {\"lookup\", COMMON_SPECULATIVE_TYPE_LOOKUP},")
  lookup_insert(BEFORE "struct common_speculative {" "#include \"source.h\"\n")
  lookup_insert(AFTER "        case COMMON_SPECULATIVE_TYPE_NONE:          return \"none\";"
    "        case COMMON_SPECULATIVE_TYPE_LOOKUP: return \"lookup\";")
  lookup_insert(AFTER "            case COMMON_SPECULATIVE_TYPE_COUNT:"
    "                break;
            case COMMON_SPECULATIVE_TYPE_LOOKUP:
                n_max = std::max(n_max, lookup_llama::settings().n_max);")
  lookup_insert(AFTER "        add_config_if_enabled(COMMON_SPECULATIVE_TYPE_NGRAM_CACHE);"
    "        add_config_if_enabled(COMMON_SPECULATIVE_TYPE_LOOKUP);")
  lookup_insert(AFTER "        switch (config.type) {"
    "            case COMMON_SPECULATIVE_TYPE_LOOKUP:
                impls.push_back(std::make_unique<common_speculative_impl_lookup>(config.params, n_seq));
                break;")
endmacro()

macro(lookup_change_arg.cpp)
  lookup_insert(AFTER "#include \"speculative.h\"" "#include \"register.h\"")
  lookup_insert(BEFORE "    return ctx_arg;" "    lookup_llama::add_options(add_opt);\n")
endmacro()

macro(lookup_change_server-context.cpp)
  lookup_insert(AFTER "#include \"speculative.h\"" "#include \"register.h\"")
  lookup_insert(AFTER "        const bool is_resume = sleeping;"
    "        if (!lookup_llama::open_files(params.speculative)) {
            return false;
        }")
  lookup_insert(BEFORE "                spec.reset(common_speculative_init(params_base.speculative, params_base.n_parallel));"
    "                if (!lookup_llama::check_files(params_base.speculative, model_tgt)) {
                    return false;
                }")
endmacro()

function(lookup_add)
  file(GLOB core CONFIGURE_DEPENDS "${LOOKUP_ROOT}/csrc/core/*.c" "${LOOKUP_ROOT}/csrc/draft/*.c"
    "${LOOKUP_ROOT}/csrc/build/*.c" "${LOOKUP_ROOT}/csrc/files/*.c")
  file(GLOB ours CONFIGURE_DEPENDS "${LOOKUP_HOME}/*.cpp")
  add_library(lookup-drafts STATIC ${core} ${ours})
  set_target_properties(lookup-drafts PROPERTIES POSITION_INDEPENDENT_CODE ON C_STANDARD 11 CXX_STANDARD 17
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden)
  target_include_directories(lookup-drafts PUBLIC "${LOOKUP_HOME}" "${LOOKUP_ROOT}/csrc")
  if(NOT MSVC)
    # the same drafts on every machine: no a * b + c in one rounding
    set_source_files_properties(${core} PROPERTIES COMPILE_OPTIONS "-O3;-ffp-contract=off")
    target_link_libraries(lookup-drafts PRIVATE m)
  endif()
  lookup_replace(llama-common speculative.cpp)
  lookup_replace(llama-common arg.cpp)
  if(TARGET server-context)
    lookup_replace(server-context server-context.cpp)
  endif()
  message(STATUS "lookup: --spec-type lookup is built in")
endfunction()

cmake_language(DEFER CALL lookup_add)
