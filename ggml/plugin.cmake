# SPDX-License-Identifier: Apache-2.0
# The target ggml-nibblas: the plug-in as ggml-nibblas.so, next to libnibblas.so.
# GGML_SOURCE: a folder of ggml's source whose headers replace those in include/.
# It is linked with no ggml: at load it finds that of the program (host.c).
set(GGML_SOURCE "" CACHE PATH "ggml's source, the folder of its CMakeLists.txt")
set(ggml_headers "${CMAKE_CURRENT_LIST_DIR}/include")
if(GGML_SOURCE)
  if(NOT EXISTS "${GGML_SOURCE}/src/ggml-backend-impl.h")
    message(FATAL_ERROR "GGML_SOURCE = '${GGML_SOURCE}': must be a folder of ggml's "
      "source, with src/ggml-backend-impl.h (llama.cpp has it as ggml/)")
  endif()
  set(ggml_headers "${GGML_SOURCE}/include" "${GGML_SOURCE}/src")
endif()

set(ggml_plugin_sources)
foreach(name backend host layout products weights)
  list(APPEND ggml_plugin_sources "${CMAKE_CURRENT_LIST_DIR}/${name}.c")
endforeach()
add_library(ggml-nibblas MODULE ${ggml_plugin_sources})
set_target_properties(ggml-nibblas PROPERTIES PREFIX "" C_STANDARD 17 C_EXTENSIONS ON
  C_VISIBILITY_PRESET hidden BUILD_RPATH_USE_ORIGIN ON INSTALL_RPATH "$ORIGIN")
target_compile_options(ggml-nibblas PRIVATE -Wall -Wextra -Wshadow -Wconversion
  -Wno-sign-conversion)
# So that ggml_backend_init() is visible.
target_compile_definitions(ggml-nibblas PRIVATE GGML_BACKEND_SHARED
  GGML_BACKEND_BUILD _GNU_SOURCE)
target_include_directories(ggml-nibblas SYSTEM PRIVATE ${ggml_headers})
target_link_libraries(ggml-nibblas PRIVATE nibblas::nibblas ${CMAKE_DL_LIBS})
