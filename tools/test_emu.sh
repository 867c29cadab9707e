#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test_emu.sh BUILD [SEEDS] - runs the programs for a GPU on the software GPU of a
# build: every case in order, then a fifteenth of them under SEEDS (4) schedules with
# late copies, the bugs of emu/tests/check/bugs.def on 200 schedules, and on a software
# B200 the contest's tests by the Python package and its bundles, and a count of what
# the contest's products load.  Runs one program on each processor.  The last line: N
# passed, N failed.
set -u

# run BUILD RESULTS SEED SIZE PROGRAM: prints one line, and the output of a failure.
if [ "${1:-}" = run ]; then
	build=$2 results=$3 seed=$4 size=$5 program=$6
	log=$results.$program.$seed
	begin=$(date +%s)
	export NIB_CUDA_LIBRARY="$build/libnibemu.so" NIBEMU_SEED="$seed" \
		NIB_TEST_SIZE="$size" NIBEMU_SMS=16 NIBEMU_THREADS=1
	case $program in
	b200_*) export NIBEMU_DEVICE=b200 ;;
	esac
	command=$build/gpu_check_${program#b200_}
	case $program in
	*recorded) unset NIBEMU_SMS ;; # the planner uses all of them
	bugs) command="$build/test_emu_bugs 200" ;;
	schedules) command="tools/emu_schedules.py $build" ;;
	gpumode)
		unset NIBEMU_SMS
		NIBBLAS_LIBRARY=$(realpath "$build/libnibblas.so")
		export NIBBLAS_LIBRARY
		command="tools/python_env.py $build/python-env
			tests/python/test_gpumode_emulated.py"
		;;
	traffic)
		export NIB="$build/nib"
		command="tests/cuda/test_sm100_traffic.py --seeds"
		;;
	esac
	$command >"$log" 2>&1
	case $? in
	0) result=ok ;;
	77) result=skipped ;;
	*)
		result=FAILED
		grep -v '^ok' "$log"
		;;
	esac
	echo "$result" >>"$results"
	echo "$(wc -l <"$results") of $RUNS: $program, seed $seed, $size," \
		"$(($(date +%s) - begin)) s: $result: $(tail -n 1 "$log")"
	exit 0
fi

build=$1
seeds=${2:-4}
cmake -S . -B "$build" -D NIB_BUILD_TESTS=ON >/dev/null || exit 2
cmake --build "$build" >/dev/null || exit 2
if ! NIB_CUDA_LIBRARY=$build/libnibemu.so "$build/nib" info |
	grep -q "^backend cuda-sm90 *open"; then
	echo "there is no nvcc: the build has no kernels for a GPU"
	exit 2
fi
tools/python_env.py "$build/python-env"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/results"
# The longest first, so that no processor waits at the end.
{
	for program in gpumode recorded traffic moe same_bits dense multiply \
		b200_recorded b200_moe b200_same_bits b200_multiply schedules; do
		echo "0 medium $program"
	done
	seed=1
	while [ "$seed" -le "$seeds" ]; do
		for program in dense moe multiply few_rows b200_moe \
			b200_multiply b200_few_rows; do
			echo "$seed small $program"
		done
		seed=$((seed + 1))
	done
	for program in contest bugs convert few_rows b200_contest \
		b200_convert b200_few_rows; do
		echo "0 medium $program"
	done
} >"$work/list"
RUNS=$(wc -l <"$work/list")
export RUNS
xargs -P "$(nproc)" -L 1 "$0" run "$build" "$work/results" <"$work/list"
passed=$(grep -c '^ok' "$work/results")
failed=$(grep -c FAILED "$work/results")
skipped=$(grep -c skipped "$work/results")
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
