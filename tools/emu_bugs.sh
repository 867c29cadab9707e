#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# emu_bugs.sh BUILD [SCHEDULES] - writes two tables of bugs, each with the schedules
# on which the software GPU reports it: emu/docs/bugs.md, the programs of
# emu/tests/check/bugs.def on 1,000 schedules, and docs/software-gpu-bugs.md, what
# tests/cuda/test_emu_mutations.py plants in the Hopper kernels, on a hundredth of
# them.  Fails if a bug is not found, or a right program is reported.
set -u
build=$1
schedules=${2:-1000}
page=emu/docs/bugs.md
kernels_page=docs/software-gpu-bugs.md

cmake -S . -B "$build" -D NIB_BUILD_TESTS=ON >/dev/null || exit 2
cmake --build "$build" >/dev/null || exit 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! "$build/test_emu_bugs" "$schedules" >"$work/bugs" 2>"$work/errors"; then
	cat "$work/bugs" "$work/errors"
	exit 1
fi
NIB=$(realpath "$build/nib") python3 tests/cuda/test_emu_mutations.py \
	$((schedules / 100)) >"$work/mutations"
case $? in
0) ;;
77) echo "no nvcc: the kernels' bugs were not tried" >"$work/mutations" ;;
*)
	cat "$work/mutations"
	exit 1
	;;
esac
# The text above a page's table stays.
sed '/^|/,$d' "$page" >"$work/page"
grep '^|' "$work/bugs" >>"$work/page"
sed '/^    /,$d' "$kernels_page" >"$work/kernels"
sed 's/^/    /' "$work/mutations" >>"$work/kernels"
cp "$work/page" "$page"
cp "$work/kernels" "$kernels_page"
echo "$page: $(grep -c "of $schedules |" "$page") bugs found"
