#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh [FOLDER] - on a machine with a Hopper GPU: runs the programs that ask it,
# and leaves NAME_h200.txt in FOLDER (this one), where the tests
# test_emu_*_recorded read them.  Says what differs from the software GPU; exit
# code 1 if anything does.
#
# It builds them first, for which it needs nvcc.  Without nvcc there:
#	run.sh --build PROGRAMS			where nvcc is, no GPU needed
#	PROGRAMS=folder run.sh [FOLDER]		where the GPU is
set -u
cd "$(dirname "$0")/../.." || exit 2
status=0

# build NAME SOURCE...: NAME.cu and NAME_cases.c with these other files.
build() {
	name=$1
	shift
	"${NVCC:-nvcc}" -O2 -std=c++17 \
		-gencode=arch=compute_90a,code=sm_90a -Iemu -Isrc \
		-o "$programs/$name" "tests/gpu_probe/$name.cu" \
		"tests/gpu_probe/${name}_cases.c" "$@" emu/error.c || exit 2
}

build_all() {
	mkdir -p "$programs" || exit 2
	build wgmma emu/tensor_core.c emu/wgmma.c
	build mbarrier tests/gpu_probe/children.c emu/mbarrier.c
	build tensor tests/gpu_probe/children.c emu/tensor_map.c emu/floats.c
}

if [ "${1:-}" = --build ]; then
	programs=${2:?a folder for the programs}
	build_all
	exit 0
fi
folder=${1:-tests/gpu_probe}
mkdir -p "$folder" || exit 2
programs=${PROGRAMS:-}
if [ -z "$programs" ]; then
	programs=$(mktemp -d)
	trap 'rm -rf "$programs"' EXIT
	build_all
fi
for name in wgmma mbarrier tensor; do
	echo "== $name"
	"$programs/$name" "$folder/${name}_h200.txt" || status=1
done
exit $status
