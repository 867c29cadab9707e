#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test_emu.sh BUILD [SEEDS] - the programs for a GPU on the software GPU of a
# build: every case in order, then a tenth of them under SEEDS (8) schedules with
# late copies.  The last line: N passed, N failed.
set -u
build=$1
seeds=${2:-8}
cmake -S . -B "$build" -D NIB_BUILD_TESTS=ON >/dev/null || exit 2
cmake --build "$build" || exit 2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0
failed=0

# run SEED SIZE PROGRAM: its output only where it fails.
run() {
	if NIB_CUDA_LIBRARY=$build/libnibemu.so NIBEMU_SMS=16 NIBEMU_SEED=$1 \
		NIB_TEST_SIZE=$2 "$build/gpu_check_$3" >"$log" 2>&1; then
		result=ok
		passed=$((passed + 1))
	else
		result=FAILED
		failed=$((failed + 1))
		grep -v '^ok' "$log"
	fi
	echo "$3, seed $1${2:+, $2}: $result: $(tail -n 1 "$log")"
}

for program in convert few_rows mixture multiply; do
	run 0 "" "$program"
done
seed=1
while [ "$seed" -le "$seeds" ]; do
	for program in few_rows multiply mixture; do
		run "$seed" small "$program"
	done
	seed=$((seed + 1))
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
