# SPDX-License-Identifier: Apache-2.0
# libnibblas_submission.so: the library without the CPU backend and kernels,
# for files that are submitted to a contest (tools/submission.c).
add_library(nibblas_submission SHARED tools/submission.c
  $<FILTER:$<TARGET_OBJECTS:nib_objects>,EXCLUDE,/src/backend/cpu/>)
target_include_directories(nibblas_submission PRIVATE include src)
target_compile_definitions(nibblas_submission PRIVATE NIB_BUILD)
target_link_libraries(nibblas_submission PRIVATE m ${CMAKE_DL_LIBS})
target_link_options(nibblas_submission PRIVATE
  -Wl,--wrap=getenv -Wl,--wrap=secure_getenv -Wl,--no-undefined -Wl,--gc-sections -Wl,--as-needed -Wl,-s
  -Wl,--version-script=${PROJECT_SOURCE_DIR}/tools/submission.map)
set_property(TARGET nibblas_submission PROPERTY
  LINK_DEPENDS ${PROJECT_SOURCE_DIR}/tools/submission.map)
