# SPDX-License-Identifier: Apache-2.0
# Compiles and links as distributions do, so that a fault in reading a file is harder to
# exploit.  It is here, and not in tools/, because the software GPU is also a project of
# its own.  The options hold for targets that are added after include().
#
# Sanitizers and fuzzers check more, and some of it in other ways: they are built without.
# nib_leaf_options take away again what changes the code of a loop: a leaf that indexes by
# sizes which were checked has no use for a stack protector or checked copies.
include_guard(GLOBAL)
include(CheckCCompilerFlag)
include(CheckCSourceCompiles)
option(NIB_HARDENING "Stack protector, fortified libc, RELRO, CET" ON)
set(nib_leaf_options)

# The level of _FORTIFY_SOURCE that compiler and libc support with this build's flags;
# empty without optimisation, where libc only warns.
function(nib_find_fortify_level out)
  set(CMAKE_TRY_COMPILE_CONFIGURATION ${CMAKE_BUILD_TYPE})
  foreach(level 3 2)
    set(CMAKE_REQUIRED_FLAGS "-Werror -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=${level}")
    check_c_source_compiles("
      #include <stdio.h>
      #if !defined(__OPTIMIZE__) || __USE_FORTIFY_LEVEL != ${level}
      #error not fortified
      #endif
      int main(void) { return 0; }" NIB_HAS_FORTIFY_${level})
    if(NIB_HAS_FORTIFY_${level})
      set(${out} ${level} PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

if(NIB_HARDENING AND NOT NIB_SANITIZE AND NOT NIBEMU_SANITIZE)
  nib_find_fortify_level(fortify_level)
  if(fortify_level)
    add_compile_options(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=${fortify_level})
  endif()
  set(control_flow)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(control_flow -fcf-protection)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    set(control_flow -mbranch-protection=standard)
  endif()
  foreach(flag -fstack-protector-strong ${control_flow})
    string(MAKE_C_IDENTIFIER "NIB_HAS${flag}" has)
    check_c_compiler_flag(${flag} ${has})
    if(${has})
      add_compile_options($<$<OR:$<COMPILE_LANGUAGE:C>,$<COMPILE_LANGUAGE:CXX>>:${flag}>)
    endif()
  endforeach()
  if(NIB_HAS_fstack_protector_strong)
    set(nib_leaf_options -fno-stack-protector -U_FORTIFY_SOURCE)
  endif()
  # The linker of macOS does so by itself.
  if(NOT APPLE)
    add_link_options(-Wl,-z,relro,-z,now,-z,noexecstack)
  endif()
endif()
