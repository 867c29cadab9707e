# SPDX-License-Identifier: Apache-2.0
# Compiles by gcc (aarch64-linux-gnu-gcc for Arm) and links by zig's linker with the
# symbols of an older glibc (build/wheel-env, tools/setup.sh wheels):
#   NIB_ZIG_TARGET=aarch64-linux-gnu.2.28 cmake --toolchain tools/zig.cmake ...
# as tools/wheels.sh does.  A function that this glibc lacks fails to link.
#
# zig's own compiler, clang 22, makes loops whose products of NVFP4 with 128 rows take
# 1.40 times as long as gcc 12's with avx512vnni, and 1.13 times with avx2 (Zen 4).
file(GLOB nib_zig
  "${CMAKE_CURRENT_LIST_DIR}/../build/wheel-env/lib/python3*/site-packages/ziglang/zig")
if(NOT nib_zig)
  message(FATAL_ERROR "no zig in build/wheel-env: tools/setup.sh wheels installs it")
endif()
if(NOT "$ENV{NIB_ZIG_TARGET}" MATCHES "^(x86_64|aarch64)-linux-gnu[.]2[.][0-9]+$")
  message(FATAL_ERROR "NIB_ZIG_TARGET = '$ENV{NIB_ZIG_TARGET}': must be "
    "x86_64-linux-gnu.2.28, aarch64-linux-gnu.2.28, ...")
endif()
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${CMAKE_MATCH_1})
set(CMAKE_C_COMPILER ${CMAKE_SYSTEM_PROCESSOR}-linux-gnu-gcc)
set(nib_link "${nib_zig} cc -target $ENV{NIB_ZIG_TARGET} -Wl,-s")
set(CMAKE_C_LINK_EXECUTABLE
  "${nib_link} <LINK_FLAGS> <OBJECTS> -o <TARGET> <LINK_LIBRARIES>")
set(CMAKE_C_CREATE_SHARED_LIBRARY "${nib_link} -shared <LINK_FLAGS> \
<SONAME_FLAG><TARGET_SONAME> <OBJECTS> -o <TARGET> <LINK_LIBRARIES>")
set(CMAKE_C_CREATE_SHARED_MODULE ${CMAKE_C_CREATE_SHARED_LIBRARY})
# gcc's own folders remain; those of other libraries are not looked at.
set(CMAKE_FIND_ROOT_PATH ${CMAKE_BINARY_DIR}/no-root)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
