# SPDX-License-Identifier: Apache-2.0
# The GPU kernels: each of src/backend/cuda/kernels/<arch>/*.cu becomes machine code for
# the architecture of its folder, which nib_images embeds, and PTX.  Without
# nvcc, or with NIB_CUDA=OFF, the table of images is empty, and the CUDA backend says
# why it is closed.
set(NIB_CUDA AUTO CACHE STRING
  "GPU kernels: ON (nvcc is needed), OFF, AUTO (if nvcc is installed)")
set_property(CACHE NIB_CUDA PROPERTY STRINGS AUTO ON OFF)
set(NIB_KERNELS_BUILD "" CACHE PATH
  "A build folder of the same sources: its GPU kernels are used, without nvcc")
mark_as_advanced(NIB_KERNELS_BUILD)

set(nib_kernels)
if(NIB_KERNELS_BUILD)
  file(GLOB nib_kernels CONFIGURE_DEPENDS src/backend/cuda/kernels/*/*.cu)
elseif(NIB_CUDA)
  # build/nvcc: where tools/setup.sh puts one if the machine has none that is new
  # enough.
  find_program(NIB_NVCC nvcc HINTS ${PROJECT_SOURCE_DIR}/build/nvcc
    ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  mark_as_advanced(NIB_NVCC)
  if(NIB_NVCC)
    file(GLOB nib_kernels CONFIGURE_DEPENDS src/backend/cuda/kernels/*/*.cu)
    execute_process(COMMAND ${NIB_NVCC} --version OUTPUT_VARIABLE nvcc_version)
    string(REGEX MATCH "release ([0-9.]+)" _ "${nvcc_version}")
    if(CMAKE_MATCH_1 VERSION_LESS 12.9)
      message(STATUS "nvcc is ${CMAKE_MATCH_1}: no kernels for Blackwell, which "
        "need 12.9")
      list(FILTER nib_kernels EXCLUDE REGEX "/sm100/[^/]*$")
    endif()
  elseif(NIB_CUDA STREQUAL AUTO)
    message(STATUS "nvcc was not found: no GPU kernels, CPU backends only")
  else()
    message(FATAL_ERROR "NIB_CUDA=${NIB_CUDA}, but nvcc was not found: "
      "set NIB_NVCC, or NIB_CUDA=OFF for a build without GPU kernels")
  endif()
endif()

option(NIB_CUDA_LINEINFO
  "Line numbers in the GPU kernels, for Nsight Compute: 6 MB" OFF)

# The library embeds a fat binary and the words of tools/compile_kernels.sh for each
# image.  The images of sm90 and sm100 have 6.9 MB of machine code, 1.4 MB by zstd and
# 2.9 MB by LZ4.  The PTX of the folder nibblas, next to the software GPU's library, is
# only for that GPU.
set(kernels_dir ${PROJECT_BINARY_DIR}/kernels)
set(NIB_PTX_DIR ${PROJECT_BINARY_DIR}/nibblas)
file(MAKE_DIRECTORY ${kernels_dir} ${NIB_PTX_DIR})
set(images_source ${kernels_dir}/images.c)
if(NIB_KERNELS_BUILD)
  set(kernels_dir ${NIB_KERNELS_BUILD}/kernels)
  set(NIB_PTX_DIR ${NIB_KERNELS_BUILD}/nibblas)
endif()
set(image_data)
set(image_lines)
set(image_files)
set(ptx_files)
set(kernel_logs)
foreach(source ${nib_kernels})
  # kernels/sm90/gemm.cu is the image sm90_gemm.
  string(REGEX REPLACE ".*/([^/]+)/([^/]+)[.]cu$" "\\1_\\2" name ${source})
  set(prefix ${kernels_dir}/${name})
  set(ptx ${NIB_PTX_DIR}/${name}.ptx)
  if(NOT NIB_KERNELS_BUILD)
    add_custom_command(
      OUTPUT ${prefix}.cubin ${prefix}.fatbin ${ptx} ${prefix}.words ${prefix}.log
      COMMAND ${PROJECT_SOURCE_DIR}/tools/compile_kernels.sh ${NIB_NVCC} ${source}
        ${prefix} ${ptx} $<IF:$<BOOL:${NIB_CUDA_LINEINFO}>,ON,OFF>
        -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_SOURCE_DIR}/src
      DEPENDS ${source} ${PROJECT_SOURCE_DIR}/tools/compile_kernels.sh
      DEPFILE ${prefix}.d
      COMMENT "Compiling the kernels of ${name}.cu"
      VERBATIM)
  endif()
  list(APPEND image_files ${prefix}.fatbin ${prefix}.words)
  list(APPEND ptx_files ${ptx})
  list(APPEND kernel_logs ${prefix}.log)
  string(APPEND image_data "IMAGE(${name}, \"${prefix}\")\n")
  string(APPEND image_lines "\t{${name}_words, ${name}_fatbin},\n")
endforeach()
configure_file(tools/images.c.in ${images_source} @ONLY)
set_source_files_properties(${images_source} PROPERTIES
  OBJECT_DEPENDS "${image_files}")
add_library(nib_images OBJECT ${images_source})
if(NIB_HAS_NO_LTO)
  target_compile_options(nib_images PRIVATE -fno-lto)
endif()
target_include_directories(nib_images PRIVATE include src)

# docs/kernels.md: registers, shared memory, spills and loops of every kernel; and
# what test_sass_loops.py compares with.
if(nib_kernels)
  find_package(Python3 COMPONENTS Interpreter)
  if(Python3_FOUND)
    add_custom_target(kernel_table
      COMMAND ${CMAKE_COMMAND} -E env NIB_NVCC=${NIB_NVCC} ${Python3_EXECUTABLE}
        ${PROJECT_SOURCE_DIR}/tests/cuda/test_sass_loops.py --record ${kernels_dir}
      COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tools/kernel_table.py
        -o ${PROJECT_SOURCE_DIR}/docs/kernels.md --ptx ${NIB_PTX_DIR} ${kernel_logs}
      DEPENDS ${kernel_logs}
      VERBATIM)
    # One of the two compiles them.
    add_dependencies(kernel_table nib_images)
  endif()
endif()
