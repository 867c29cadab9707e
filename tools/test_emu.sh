#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test_emu.sh BUILD [SEEDS] - the programs for a GPU on the software GPU of a
# build: every case in order, then a tenth of them under SEEDS (8) schedules with
# late copies, as many at once as there are processors.  The last line: N passed,
# N failed.
set -u

# run BUILD RESULTS SEED SIZE PROGRAM: one line, and its output where it fails.
if [ "${1:-}" = run ]; then
	build=$2 results=$3 seed=$4 size=$5 program=$6
	log=$results.$program.$seed
	if NIB_CUDA_LIBRARY=$build/libnibemu.so NIBEMU_SMS=16 \
		NIBEMU_SEED=$seed NIB_TEST_SIZE=$size \
		"$build/gpu_check_$program" >"$log" 2>&1; then
		result=ok
	else
		result=FAILED
		grep -v '^ok' "$log"
	fi
	echo "$program, seed $seed, $size: $result: $(tail -n 1 "$log")"
	echo "$result" >>"$results"
	exit 0
fi

build=$1
seeds=${2:-8}
cmake -S . -B "$build" -D NIB_BUILD_TESTS=ON >/dev/null || exit 2
cmake --build "$build" || exit 2
if ! NIB_CUDA_LIBRARY=$build/libnibemu.so "$build/nib" info |
	grep -q "room .*cuda-sm90: open"; then
	echo "there is no nvcc: the build has no kernels for a GPU"
	exit 2
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/results"
{
	for program in mixture multiply few_rows convert; do
		echo "0 full $program"
	done
	seed=1
	while [ "$seed" -le "$seeds" ]; do
		for program in few_rows multiply mixture; do
			echo "$seed small $program"
		done
		seed=$((seed + 1))
	done
} | xargs -P "$(nproc)" -L 1 "$0" run "$build" "$work/results"
passed=$(grep -c '^ok' "$work/results")
failed=$(grep -c FAILED "$work/results")
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
