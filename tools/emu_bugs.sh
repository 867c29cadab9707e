#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# emu_bugs.sh BUILD [SCHEDULES] - writes docs/software-gpu-bugs.md.  The page lists
# each bug of emu/tests/check/bugs.def, and each that
# tests/cuda/test_emu_mutations.py plants in the Hopper kernels, with the schedules
# (1,000; a hundredth of them for the kernels) on which the software GPU reports it.
# Fails if a bug is not found, or a right program is reported.
set -u
build=$1
schedules=${2:-1000}
page=docs/software-gpu-bugs.md

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
{
	cat <<-END
		# Bugs that the software GPU finds

		Written by \`make emu-bugs\`. Each bug is a short program of
		\`emu/tests/check/bugs.def\`, which also exists without the bug: that one has
		no report on any of the schedules.

	END
	grep '^|' "$work/bugs"
	cat <<-END

		Planted in the products for Hopper
		(\`tests/cuda/test_emu_mutations.py\`), on $((schedules / 100)) schedules:

	END
	sed 's/^/    /' "$work/mutations"
} >"$page"
echo "$page: $(grep -c "of $schedules |" "$page") bugs found"
