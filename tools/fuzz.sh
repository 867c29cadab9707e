#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh SECONDS [SEED] - builds the fuzzers and runs each for SECONDS, starting from
# its inputs in tests/fuzz/corpus/ or emu/tests/fuzz/corpus/.  New inputs are kept in
# build/fuzz/corpus/.  An input that fails is written to build/fuzz/crash/ and printed
# in base64, so that a log of CI suffices to reproduce it; add it to the inputs.  A SEED
# gives the same run each time if build/fuzz/corpus/ is empty; 0, the default, gives a
# random one.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:?seconds}
seed=${2:-0}
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --target fuzzers -j "$(nproc)" >/dev/null
mkdir -p build/fuzz/crash

for source in tests/fuzz/fuzz_*.c emu/tests/fuzz/fuzz_*.c; do
	folder=$(dirname "$source")
	name=$(basename "$source" .c)
	learnt=build/fuzz/corpus/$name
	mkdir -p "$learnt"
	dictionary=
	[ ! -f "$folder/$name.dict" ] || dictionary=-dict=$folder/$name.dict
	echo "$name: $seconds s"
	if ! build/fuzz/"$name" -max_total_time="$seconds" -timeout=10 \
		-seed="$seed" -rss_limit_mb=2048 -malloc_limit_mb=1024 -print_final_stats=1 \
		-artifact_prefix=build/fuzz/crash/ ${dictionary:+"$dictionary"} \
		"$learnt" "$folder/corpus/$name" >build/fuzz/"$name".log 2>&1
	then
		grep -m1 -A40 -E 'ERROR:|runtime error:' build/fuzz/"$name".log ||
			tail -40 build/fuzz/"$name".log
		input=$(sed -n 's/.*Test unit written to //p' build/fuzz/"$name".log)
		echo "$name: FAILED, see ${input:-build/fuzz/$name.log}"
		[ ! -f "$input" ] || gzip -9c "$input" | base64
		exit 1
	fi
	sed -n "s/^stat::number_of_executed_units: */$name: clean, runs: /p" \
		build/fuzz/"$name".log
done
