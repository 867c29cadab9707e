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

# The machine code of the kernels that the contest's products need, which have A of
# NVFP4, and the words of tools/compile_kernels.sh, for the same files.
set(submission_kernels)
foreach(source ${nib_kernels})
  string(REGEX REPLACE ".*/([^/]+)/([^/]+)[.]cu$" "\\1_\\2" name ${source})
  if(NOT name MATCHES "_(quantize|peaks|activations|gemv_dense|mma|.*f16)$")
    list(APPEND submission_kernels ${name}.cubin ${name}.words)
  endif()
endforeach()
if(submission_kernels)
  list(TRANSFORM submission_kernels PREPEND ${kernels_dir}/ OUTPUT_VARIABLE files)
  set(submission_archive ${PROJECT_BINARY_DIR}/nibblas_submission.tar.xz)
  add_custom_command(OUTPUT ${submission_archive}
    COMMAND ${CMAKE_COMMAND} -E tar cJf ${submission_archive} --format=gnutar
      --mtime=1970-01-01 -- ${submission_kernels}
    DEPENDS ${files}
    WORKING_DIRECTORY ${kernels_dir}
    COMMENT "Packing the kernels for submissions"
    VERBATIM)
  add_custom_target(submission_archive DEPENDS ${submission_archive})
  # One of the two compiles the kernels.
  add_dependencies(submission_archive nib_images)
  add_dependencies(nibblas_submission submission_archive)
endif()
