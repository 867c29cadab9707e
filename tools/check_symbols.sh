#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_symbols.sh LIBRARY... - checks that the visible names of each library (.so or
# .a) are exactly the functions of the headers in include/.  Prints TAP.
set -u
include=$(dirname "$0")/../include
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Comments out, declarations on one line each, then the name before "(".
sed -e 's@/\*.*\*/@@' -e '/\/\*/,/\*\//d' "$include"/*.h | tr '\n' ' ' | tr ';' '\n' |
	sed -n 's/.*NIB_API [^(]*\(nib_[a-z0-9_]*\)(.*/\1/p' |
	sort >"$work/want"
if [ "$(wc -l <"$work/want")" -lt 10 ]; then
	echo "not ok - found too few functions in $include"
	exit 1
fi

count=0
failed=0
for library; do
	count=$((count + 1))
	case $library in
	*.a) nm --defined-only --extern-only "$library" ;;
	*) nm --dynamic --defined-only "$library" ;;
	esac | awk 'NF == 3 { print $3 }' | sort >"$work/got"
	if diff "$work/want" "$work/got" >"$work/diff"; then
		echo "ok $count - $(basename "$library"): $(wc -l <"$work/got") functions"
	else
		failed=1
		echo "not ok $count - $(basename "$library") (< headers, > library)"
		grep '^[<>]' "$work/diff"
	fi
done
exit $failed
