#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh [FOLDER] - on a machine with a Hopper GPU and nvcc: builds the programs
# that ask it, runs them, and leaves NAME_h200.txt in FOLDER (this one), where the
# tests test_emu_*_recorded read them.  Says what differs from the software GPU;
# exit code 1 if anything does.
set -u
cd "$(dirname "$0")/../.." || exit 2
folder=${1:-tests/gpu_probe}
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
status=0

# ask NAME SOURCE...: NAME.cu and NAME_cases.c with these files of the model.
ask() {
	name=$1
	shift
	echo "== $name"
	"${NVCC:-nvcc}" -O2 -std=c++17 \
		-gencode=arch=compute_90a,code=sm_90a -Iemu -Isrc \
		-o "$build/$name" "tests/gpu_probe/$name.cu" \
		"tests/gpu_probe/${name}_cases.c" "$@" emu/error.c || exit 2
	"$build/$name" "$folder/${name}_h200.txt" || status=1
}

ask wgmma emu/tensor_core.c emu/wgmma.c
ask mbarrier emu/mbarrier.c
ask tensor emu/tensor_map.c
exit $status
