# SPDX-License-Identifier: Apache-2.0
# Builds for another processor with Debian's cross compilers and its libraries of
# that architecture (tools/setup.sh cross), and runs programs in qemu-user:
#   NIB_CROSS=aarch64 cmake --toolchain tools/cross.cmake ...
# as tools/cross.sh does.
set(nib_cross $ENV{NIB_CROSS})
if(NOT nib_cross)
  message(FATAL_ERROR "NIB_CROSS is not set: aarch64, s390x, ...")
endif()
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${nib_cross})
set(CMAKE_C_COMPILER ${nib_cross}-linux-gnu-gcc)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-${nib_cross}-static)
set(NIB_TEST_LAUNCHER qemu-${nib_cross}-static CACHE STRING "")
set(ENV{PKG_CONFIG_LIBDIR}
  /usr/lib/${nib_cross}-linux-gnu/pkgconfig:/usr/share/pkgconfig)
