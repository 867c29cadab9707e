#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hardening.sh SOURCE OBJECT FILE... - checks that the built libraries and programs are
# hardened (emu/harden.cmake), and that a build refuses or corrects settings that would
# break this.  OBJECT is the object in the archive.  Prints TAP.
# Functions are called through check():
# shellcheck disable=SC2317
set -u
source=$1 object=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/install/tap.sh
. "$source/tests/install/tap.sh"

has_relro() {
	readelf -lW "$1" | grep GNU_RELRO && readelf -dW "$1" | grep BIND_NOW
}

has_no_executable_stack() {
	stack=$(readelf -lW "$1" | grep GNU_STACK)
	echo "$stack"
	case $stack in *RWE*) return 1 ;; *RW*) return 0 ;; *) return 1 ;; esac
}

# A library without arrays or copies has no such call.
has_guards() {
	readelf -W --dyn-syms "$1" | grep -E '__stack_chk_fail|_chk@'
}

# The linker keeps this property only if every object has it.
has_cet() {
	readelf -nW "$1" | grep 'x86 feature:.*IBT.*SHSTK'
}

# Privileged programs ignore environment variables that name code or files.
uses_secure_getenv() {
	nm -u "$object" | grep -w secure_getenv &&
		! grep -rnE '[^_]getenv\("(NIB_CUDA_LIBRARY|NIB_TUNING|NIBEMU_)' \
			"$source/src" "$source/cli" "$source/bench" "$source/emu/src"
}

# A setuid program of another user ignores the environment.
ignores_the_environment() {
	NIB_CUDA_LIBRARY=$work/none.so "$1" info | grep none.so &&
		! NIB_CUDA_LIBRARY=$work/none.so "$work/nib" info | grep none.so
}

# of_nobody PROGRAM: a copy that runs with the rights of another user, if it may.
of_nobody() {
	[ "$(id -u)" = 0 ] && chmod 755 "$work" && cp "$1" "$work/" &&
		chown nobody "$work/${1##*/}" && chmod 4755 "$work/${1##*/}"
}

# Each call of pip in the scripts of tools/ requires hashes; continued lines are joined.
downloads_by_hash() {
	sed -e ':a' -e '/\\$/N; s/\\\n//; ta' "$source"/tools/*.sh |
		grep -E 'pip .* (install|download) ' >"$work/pip" &&
		! grep -v -e --require-hashes "$work/pip"
}

# Flags that make slim LTO objects do not apply to the library's objects.
is_without_lto() {
	cmake -S "$source" -B "$work/lto" -D NIB_CUDA=OFF -D NIB_BUILD_TESTS=OFF \
		-D NIB_BUILD_COMMAND=OFF -D CMAKE_C_FLAGS=-flto \
		-D CMAKE_INTERPROCEDURAL_OPTIMIZATION=ON &&
		grep '"command".* -c .*/src/' "$work/lto/compile_commands.json" |
		grep -v '/emu/' >"$work/commands" && [ -s "$work/commands" ] &&
		! grep -vE ' -fno-lto( .*)? -c ' "$work/commands" &&
		! grep -E ' -fno-lto .*-flto' "$work/commands"
}

# CMake finds a compiler of 32 bits only where its libc is installed.
refuses_32_bits() {
	echo '#include <nibblas.h>' >"$work/m32.c"
	! ${CC:-cc} -m32 -ffreestanding -fsyntax-only -I"$source/include" \
		"$work/m32.c" 2>"$work/said" && grep '64 bits' "$work/said"
}

for file; do
	base=$(basename "$file")
	check "$base: relocations are read-only" has_relro "$file"
	check "$base: no executable stack" has_no_executable_stack "$file"
	case $base in libcuda.so*) continue ;; esac
	check "$base: guarded arrays and copies" has_guards "$file"
done
if [ "$(uname -m)" = x86_64 ]; then
	check 'libnibblas.a: indirect branches and returns' has_cet "$object"
	check 'nibblas.h refuses -m32' refuses_32_bits
fi
check 'secure_getenv for variables that load code' uses_secure_getenv
nib=$(printf '%s\n' "$@" | grep '/nib$')
# A build without kernels opens no driver; a file system may be mounted nosuid.
if of_nobody "$(command -v id)" && [ "$("$work/id" -un)" = nobody ] &&
	of_nobody "$nib" && "$nib" info | grep -q 'NVIDIA driver'; then
	check 'a privileged nib ignores NIB_CUDA_LIBRARY' \
		ignores_the_environment "$nib"
fi
check 'scripts download by hash' downloads_by_hash
check 'the archive is made without link-time optimisation' is_without_lto
exit $bad
