# SPDX-License-Identifier: Apache-2.0
# What `make install` puts where: libraries, headers, command, documentation, and
# the package files for pkg-config and find_package(nibblas).
include(CMakePackageConfigHelpers)

install(FILES include/nibblas.h include/nibblas_tune.h TYPE INCLUDE)
install(TARGETS nibblas nibblas_static EXPORT nibblasTargets)
# What `python -m nibblas.gpumode bundle` packs: it looks next to libnibblas.so.
if(TARGET nibblas_submission)
  install(TARGETS nibblas_submission LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(FILES ${submission_archive} DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
if(TARGET ggml-nibblas)
  install(TARGETS ggml-nibblas LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(FILES ggml/include/LICENSE TYPE DOC RENAME LICENSE.ggml)
endif()
# The kernels that the library loads where its driver is nibemu.
if(nib_kernels)
  install(FILES ${ptx_files} DESTINATION ${CMAKE_INSTALL_LIBDIR}/nibblas)
endif()
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/nibblas)
install(EXPORT nibblasTargets NAMESPACE nibblas:: DESTINATION ${package_dir})
configure_package_config_file(tools/nibblasConfig.cmake.in nibblasConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(nibblasConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/nibblasConfig.cmake
  ${PROJECT_BINARY_DIR}/nibblasConfigVersion.cmake DESTINATION ${package_dir})

# The prefix is known for certain only when installing (--prefix).
cmake_path(APPEND pc_includedir "\${prefix}" ${CMAKE_INSTALL_INCLUDEDIR})
cmake_path(APPEND pc_libdir "\${prefix}" ${CMAKE_INSTALL_LIBDIR})
set(pc_prefix "@CMAKE_INSTALL_PREFIX@")
configure_file(tools/nibblas.pc.in nibblas.pc.in @ONLY)
install(CODE "configure_file([[${PROJECT_BINARY_DIR}/nibblas.pc.in]]
  [[${PROJECT_BINARY_DIR}/nibblas.pc]] @ONLY)")
install(FILES ${PROJECT_BINARY_DIR}/nibblas.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The command writes its own manual and completion; crossing, nobody can ask it.
if(TARGET nib)
  install(TARGETS nib)
  if(NOT CMAKE_CROSSCOMPILING)
    add_custom_command(TARGET nib POST_BUILD
      COMMAND nib completion man >nib.1
      COMMAND nib completion bash >nib.bash
      COMMAND nib completion zsh >nib.zsh
      COMMAND nib completion fish >nib.fish
      WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
    install(FILES ${PROJECT_BINARY_DIR}/nib.1
      DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
    install(FILES ${PROJECT_BINARY_DIR}/nib.bash RENAME nib
      DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
    install(FILES ${PROJECT_BINARY_DIR}/nib.zsh RENAME _nib
      DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
    install(FILES ${PROJECT_BINARY_DIR}/nib.fish
      DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
  endif()
endif()
install(FILES LICENSE README.md NEWS.md TYPE DOC)
