#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh [FOLDER] - runs the probes on a machine with a Hopper GPU, and writes
# NAME_h200.txt to FOLDER (by default this one), where test_*_recorded.c read them.
# Prints the differences from the software GPU; exit code 1 if there are any.
# time_h200.txt is the source of the constants in src/machine/time_h200.def, and is
# compared with nothing.
#
# It first builds the probes, which needs nvcc.  If the machine has no nvcc:
#	run.sh --build PROGRAMS			where nvcc is, no GPU needed
#	PROGRAMS=folder run.sh [FOLDER]		where the GPU is
set -u
cd "$(dirname "$0")/.." || exit 2
status=0

# build NAME SOURCE...: NAME.cu and NAME_cases.c with these other files.
build() {
	name=$1
	shift
	# The nvcc of PyPI does not find its own libraries.
	folder=$(dirname "$(command -v "${NVCC:-nvcc}")")
	"${NVCC:-nvcc}" -O2 -std=c++17 -L"$folder/../lib" \
		-gencode=arch=compute_90a,code=sm_90a -Isrc \
		-o "$programs/$name" "probes/$name.cu" \
		"probes/${name}_cases.c" "$@" src/hardware/error.c || exit 2
}

build_all() {
	mkdir -p "$programs" || exit 2
	build wgmma src/hardware/tensor_core.c src/hardware/wgmma.c
	build mbarrier probes/children.c src/hardware/mbarrier.c
	build tensor probes/children.c src/hardware/tensor_map.c \
		src/hardware/floats.c
	"${NVCC:-nvcc}" -O2 -std=c++17 -L"$folder/../lib" \
		-gencode=arch=compute_90a,code=sm_90a \
		-o "$programs/time" probes/time.cu || exit 2
}

if [ "${1:-}" = --build ]; then
	programs=${2:?a folder for the programs}
	build_all
	exit 0
fi
folder=${1:-probes}
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
echo "== time"
"$programs/time" >"$folder/time_h200.txt" || status=1
exit $status
