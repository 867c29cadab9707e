#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test_command.sh COMMAND PROGRAM MARKED OLD STATIC [RACE LIBRARY] - tests the command
# nibemu.  PROGRAM is program.c; MARKED is the same with a text of the static runtime
# library; OLD is linked with a libcudart.so.12, and STATIC is linked statically.  With
# RACE (emu_race) and LIBRARY (libnibemu.so) it also collects reports.
set -u
nibemu=$1 program=$2 marked=$3 old=$4 static=$5 race=${6:-} library=${7:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TMPDIR="$work/tmp"
mkdir "$TMPDIR"
failed=0

# expect STATUS TEXT ARGUMENT...: nibemu's status, and a part of what it prints.
expect() {
	status=$1 text=$2
	shift 2
	"$nibemu" "$@" >"$work/out" 2>&1 </dev/null
	got=$?
	if [ "$got" != "$status" ] || ! grep -qF -- "$text" "$work/out"; then
		echo "nibemu $*: status $got, not $status with: $text"
		sed 's/^/	/' "$work/out"
		failed=1
	fi
}

# also TEXT: another part of the same.
also() {
	grep -qF -- "$1" "$work/out" && return
	echo "no such line: $1"
	sed 's/^/	/' "$work/out"
	failed=1
}

# The command line.
expect 0 'nibemu run ./program' --help
expect 0 'usage: nibemu run' run --help
expect 0 'usage: nibemu rules' rules --help
expect 0 'usage: nibemu devices' devices --help
expect 0 'nibemu 0.' --version
expect 0 'rtx5090' devices
expect 0 '(sm_80 and older), 108 SMs, 163 KB' devices
expect 0 'never-written' rules
expect 0 'may be waived: nibemu run --waive order' rules order
expect 0 'may not be waived' rules deadlock
expect 2 'rules orders: no rule has this name' rules orders
expect 2 'walk: no such command' walk
expect 2 'no program' run
expect 2 '--seeds 5: two numbers' run --seeds 5 "$program"
expect 2 '--seeds 5..4: two numbers' run --seeds 5..4 "$program"
expect 2 '--seeds 0..100000: at most 100000' run --seeds 0..100000 "$program"
expect 2 '--seed -1: a number' run --seed -1 "$program"
NIBEMU_SEED=one expect 2 'NIBEMU_SEED one: a number' run "$program"
expect 2 '--jobs 0: 1 to 1024' run --jobs 0 "$program"
expect 2 '--timeout 1x: seconds' run --timeout 1x "$program"
expect 2 '--device b300: h200, h100, b200, a100, rtx4090 or rtx5090' run --device b300 "$program"
expect 2 '--waive: ordr: no rule has this name' run --waive ordr "$program"
expect 2 'deadlock: a launch cannot go on' run --waive deadlock "$program"
expect 2 "nibemu run: unrecognized option '--timout" run --timout 1 "$program"
also 'nibemu run --help'
expect 2 'only for seed 0' run --time --seed 1 "$program"

# Programs that cannot be started.
echo text >"$work/text"
cp "$work/text" "$work/executable"
chmod +x "$work/executable"
expect 2 'missing: No such file' run "$work/missing"
expect 2 'not found in PATH' run no_such_program_anywhere
expect 2 'may not be executed' run "$work/text"
expect 2 'but a folder' run "$work"
expect 2 'not a program of this machine' run "$work/executable"
expect 2 'not a program of this machine' run --seeds 0..3 "$work/executable"
if [ "$(id -u)" = 0 ]; then
	cp "$program" "$work/privileged"
	chown 65534 "$work/privileged"
	chmod u+s "$work/privileged"
	expect 2 'has privileges' run "$work/privileged"
else
	echo "skipped: setuid programs (only root can make one)"
fi

# Programs that run no kernel here.
expect 5 'never opened the software GPU' run "$program"
expect 5 'build it with nvcc -cudart shared' run "$marked"
expect 5 'is built for libcudart.so.12' run "$old"
[ "$static" = none ] ||
	expect 5 'it is linked statically' run "$static"
LD_PRELOAD=/nowhere/libcuda.so.1 \
	expect 5 'LD_PRELOAD=/nowhere/libcuda.so.1 comes before' run "$program"
# Programs that print much, in many runs: the last lines of the first are shown.
expect 5 'line 100000 of 100000' run --seeds 7..9 "$program" prints 100000
also '0 of 3 schedules clean (seeds 7 to 9'
also '3 schedules: no kernel ran'
also 'Again: nibemu run --seed 7'
if grep -q 'line 99000 of' "$work/out"; then
	echo "all of 100000 lines are shown"
	failed=1
fi
expect 5 "'a b'" run --seeds 0..1 "$program" prints 1 'a b'

# JSON on standard output is not mixed with what the program prints.
"$nibemu" run --json - "$program" prints 3 >"$work/json" 2>"$work/out"
also 'line 3 of 3'
python3 -c 'import json, sys; assert json.load(sys.stdin)["status"] == 5' \
	<"$work/json" || failed=1

# Time, and Ctrl-C, end the program and what it has started.
gone() {
	while read -r one; do
		for id in $one; do
			state=$(sed -n 's/^State:[[:space:]]*//p' \
				"/proc/$id/status" 2>/dev/null)
			case $state in '' | Z*) continue ;; esac
			echo "process $id is still there: $state"
			failed=1
		done
	done <"$1"
}
expect 4 'took longer than 1 s' run --timeout 1 "$program" hangs "$work/ids"
gone "$work/ids"
expect 4 '2 schedules: took longer than 1 s' run --seeds 0..1 --timeout 1 \
	"$program" hangs "$work/ids2"
gone "$work/ids2"
"$nibemu" run --jobs 2 --seeds 0..9 "$program" hangs "$work/ids3" \
	>"$work/out" 2>&1 &
id=$!
while [ "$(wc -l 2>/dev/null <"$work/ids3" || echo 0)" -lt 2 ]; do
	sleep 0.1
done
kill -INT $id
wait $id
[ $? = 130 ] || {
	echo "Ctrl-C: another status than 130"
	failed=1
}
also '2 schedules: interrupted'
gone "$work/ids3"

# Runs of kernels.
if [ -n "$race" ]; then
	expect 1 'rule: ' run "$race" "$library"
	expect 0 'clean: 56 rules checked on 1 schedule; not checked: the additional' \
		run "$race" "$library" fixed
	expect 0 'clean: 57 rules checked on 1 schedule' run --strict "$race" "$library" fixed
	expect 0 'clean: 55 rules' run --waive order "$race" "$library" fixed
	# Without the order of accesses, its rules do not count as checked.
	NIBEMU_UNCHECKED=1 expect 0 ', the order of accesses (--time, NIBEMU_UNCHECKED)' \
		run "$race" "$library" fixed
	also 'clean: 38 rules checked'
	expect 0 'clean: 38 rules checked' run --time "$race" "$library" fixed
	expect 0 '8 of 8 schedules clean (seeds 0 to 7, H200 in software)' \
		run --seeds 0..7 "$race" "$library" fixed
	also '  clean: 56 rules checked on 8 schedules; not checked: '
	expect 1 '0 of 20 schedules clean' run --seeds 0..19 --jobs 3 \
		"$race" "$library"
	also '  20 schedules: never-written, reverse, PTX line 21'
	also '      seeds 0-19'
	also 'The first report, of seed 0'
	also 'again: NIBEMU_SEED=0'
	also 'Again: nibemu run --seed 0 '
	# A waived report does not count; the program then fails by its wrong result.
	expect 3 'ended with status 1' run --waive order,never-written "$race" \
		"$library"
	expect 1 'result: 3 reports' run --continue "$race" "$library"
	expect 5 'needs another device than the B200' run --device b200 "$race" "$library"
	expect 5 'it ended with status 2' run "$race" /nowhere/libnibemu.so
	# In a Python wheel, which contains no links.
	built=$nibemu
	nibemu=$work/wheel/nibemu
	mkdir -p "$work/wheel/cuda"
	cp "$built" "$work/wheel"
	expect 2 'libnibemu is missing' run "$race" libcuda.so.1
	cp "$library" "$work/wheel"
	expect 0 'clean: 56 rules checked' run "$race" libcuda.so.1 fixed
	expect 1 'never-written' run "$race" libcudart.so.13
	nibemu=$built
	expect 5 'waited for no kernel' run "$program" opens
	NIBEMU_SMS=133 expect 5 'NIBEMU_SMS=133: must be 1 to 132, the multiprocessors of h200' \
		run "$program" opens
	NIBEMU_TIME=2 expect 5 'could not be opened: NIBEMU_TIME=2: must be 0, or 1' \
		run "$program" opens
	NIBEMU_TIME=only expect 5 'NIBEMU_TIME=only: must be a number' \
		run "$program" opens
	NIBEMU_DEVICE=v100 expect 5 'could not be opened: NIBEMU_DEVICE=v100: h200' \
		run "$program" opens
	NIBEMU_SMS=all expect 5 'could not be opened: NIBEMU_SMS=all: must be a' \
		run "$program" opens
	NIBEMU_MEMORY_BYTES=1000 expect 5 'NIBEMU_MEMORY_BYTES=1000: at least' \
		run "$program" opens
	expect 5 'the loader did not find' run "$program" exits 127
	expect 5 'it ended by signal 11' run --verbose --seeds 1..2 "$program" \
		signals 11

	"$nibemu" run --seeds 0..3 --json "$work/json" "$race" "$library" \
		>/dev/null 2>&1
	python3 - "$work/json" <<-'PYTHON' || failed=1
		import json, sys
		all = json.load(open(sys.argv[1]))
		assert all["clean"] == 0 and all["status"] == 1, all
		assert all["rules"] == 56, all
		assert all["unwatched"] == ["the additional checks of --strict"], all
		assert [run["seed"] for run in all["runs"]] == [0, 1, 2, 3]
		for run in all["runs"]:
		    report = run["reports"][0]
		    assert run["result"] == "report" and run["status"] == 1
		    assert report["seed"] == run["seed"]
		    assert report["kernel"] == "reverse", report
		    assert report["place"] == "PTX line 21", report
		    assert not report["waived"] and report["count"] == 1
		    assert "\n  rule: " + report["rule"] in report["text"]
	PYTHON
	expect 2 '--json /nowhere/file: No such file' run --json /nowhere/file \
		"$race" "$library" fixed
else
	echo "skipped: reports (a sanitised library cannot be opened)"
fi

# No file is left.
[ -z "$(ls "$TMPDIR")" ] || {
	echo "left: $(ls "$TMPDIR")"
	failed=1
}
exit $failed
