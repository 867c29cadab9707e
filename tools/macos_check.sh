#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# macos_check.sh [FOLDER] - compiles the library for macOS on Arm and links it, shared and
# static, and a program with it, by zig's C compiler (PyPI: ziglang), which has the headers
# and stub libraries of macOS.  Nothing is run: no machine here can.  FOLDER (default
# build/macos) has the build.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/macos}
mkdir -p "$build/bin"
bin=$(cd "$build" && pwd)/bin

if ! [ -x "$bin/../zig/bin/python" ]; then
	python3 -m venv "$bin/../zig"
	"$bin/../zig/bin/pip" --quiet --disable-pip-version-check install \
		--only-binary :all: 'ziglang==0.15.2'
fi
# CMake needs each tool as one program.
for tool in cc ar ranlib; do
	{
		echo '#!/bin/sh'
		# zig has other names of processors than clang.
		# shellcheck disable=SC2016
		[ $tool = cc ] && echo 'for word do shift
case $word in -mcpu=apple-m1*) word=-mcpu=apple_m1${word#*m1} ;; esac
set -- "$@" "$word"; done'
		printf 'exec "%s" -m ziglang %s' "$bin/../zig/bin/python" "$tool"
		[ $tool = cc ] && printf ' -target aarch64-macos.12.0'
		# The words are for the script that is written.
		# shellcheck disable=SC2016
		echo ' "$@"'
	} >"$bin/$tool"
	chmod +x "$bin/$tool"
done
# Only changes paths inside installed libraries.
printf '#!/bin/sh\n' >"$bin/install_name_tool" && chmod +x "$bin/install_name_tool"

cmake -S . -B "$build" -D CMAKE_SYSTEM_NAME=Darwin -D CMAKE_SYSTEM_PROCESSOR=arm64 \
	-D CMAKE_C_COMPILER="$bin/cc" -D CMAKE_AR="$bin/ar" \
	-D CMAKE_RANLIB="$bin/ranlib" \
	-D CMAKE_INSTALL_NAME_TOOL="$bin/install_name_tool" \
	-D CMAKE_BUILD_TYPE=Release -D NIB_WERROR=ON -D NIB_BUILD_TESTS=OFF \
	-D NIB_BUILD_COMMAND=OFF -D NIB_CUDA=OFF
cmake --build "$build" --target nibblas nibblas_static -j "$(nproc)"
"$bin/cc" -Iinclude examples/linear.c "$build/libnibblas.dylib" -o "$build/linear"
"$bin/cc" -Iinclude examples/linear.c "$build/libnibblas.a" -o "$build/linear_static"
file "$build/libnibblas.dylib" "$build/linear" "$build/linear_static"
