#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# emu_bugs.sh BUILD [SCHEDULES] - writes three tables of bugs, each with the
# schedules on which the software GPU reports it: emu/docs/bugs.md, the programs of
# emu/tests/check/bugs.def on 1,000 schedules, and on a hundredth of them what
# tests/cuda/test_emu_mutations.py plants in the Hopper kernels and test_emu_b200.py
# in those for Blackwell: docs/software-gpu-bugs.md and software-gpu-bugs-b200.md.
# Fails if a bug is not found, or a right program is reported.
set -u
build=$1
schedules=${2:-1000}
page=emu/docs/bugs.md

cmake -S . -B "$build" -D NIB_BUILD_TESTS=ON >/dev/null || exit 2
cmake --build "$build" >/dev/null || exit 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! "$build/test_emu_bugs" "$schedules" >"$work/bugs" 2>"$work/errors"; then
	cat "$work/bugs" "$work/errors"
	exit 1
fi
# plant SCRIPT PAGE [ARGUMENT]: writes the table of a script after a page's text.
plant() {
	NIB=$(realpath "$build/nib") python3 "tests/cuda/$1" \
		$((schedules / 100)) ${3:+"$3"} >"$work/mutations"
	case $? in
	0) ;;
	77) echo "no nvcc: the kernels' bugs were not tried" >"$work/mutations" ;;
	*)
		cat "$work/mutations"
		exit 1
		;;
	esac
	sed '/^    /,$d' "$2" >"$work/kernels"
	sed 's/^/    /' "$work/mutations" >>"$work/kernels"
	cp "$work/kernels" "$2"
}
plant test_emu_mutations.py docs/software-gpu-bugs.md
plant test_emu_b200.py docs/software-gpu-bugs-b200.md all
# The text above a page's table stays.
sed '/^|/,$d' "$page" >"$work/page"
grep '^|' "$work/bugs" >>"$work/page"
cp "$work/page" "$page"
echo "$page: $(grep -c "of $schedules |" "$page") bugs found"
