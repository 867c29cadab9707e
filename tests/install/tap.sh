# SPDX-License-Identifier: Apache-2.0
# tap.sh - check(), which prints TAP; for scripts that set work, a folder of theirs, and
# read count and bad at their end.
# shellcheck shell=sh disable=SC2034,SC2154
count=0
bad=0

# check NAME COMMAND...: one TAP line, the command's output when it fails.
check() {
	name=$1
	shift
	count=$((count + 1))
	if "$@" >"$work/log" 2>&1; then
		echo "ok $count - $name"
	else
		bad=1
		echo "not ok $count - $name"
		sed 's/^/# /' "$work/log"
	fi
}
