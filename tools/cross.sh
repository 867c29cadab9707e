#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cross.sh ARCH - builds the library and the C tests that need no GPU and no
# command for ARCH (aarch64, or s390x, whose bytes are in the other order), and
# runs them in qemu-user.
set -eu
cd "$(dirname "$0")/.."
export NIB_CROSS="${1:-aarch64}" NIB_TEST_SIZE=tiny
build=build/cross-$NIB_CROSS
mkdir -p build

tests=$(find tests/format tests/api tests/cpu tests/file -name 'test_*.c' |
	sed 's|.*/||; s|\.c$||' | sort)
cmake -S . -B "$build" --toolchain tools/cross.cmake \
	-D CMAKE_BUILD_TYPE=Release -D NIB_BUILD_TESTS=ON -D NIB_WERROR=ON \
	-D NIB_BUILD_COMMAND=OFF -D NIB_CUDA=OFF >"$build.log"
# The names are words.
# shellcheck disable=SC2086
cmake --build "$build" --target nibblas nibblas_static $tests >"$build.log" || {
	tail -n 60 "$build.log"
	exit 1
}
# shellcheck disable=SC2086
ctest --test-dir "$build" --output-on-failure -j "$(nproc)" \
	-R "^($(echo $tests | tr ' ' '|'))$"

# run_on PROCESSOR TEST...: some tests again, on a processor that lacks instructions.
run_on() {
	QEMU_CPU=$1
	export QEMU_CPU
	shift
	echo "cross.sh: of $(echo "$tests" | wc -w) tests $# run on $QEMU_CPU: $*"
	ctest --test-dir "$build" --output-on-failure -j "$(nproc)" \
		-R "^($(echo "$*" | tr ' ' '|'))$"
}

if [ "$NIB_CROSS" = aarch64 ]; then
	run_on cortex-a72 test_features test_device test_ops test_same_bits
	run_on neoverse-n1 test_features test_device test_same_bits
fi
