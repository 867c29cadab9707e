#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test_races.sh NIBEMU PROGRAM... - runs each case of the programs (races.cu) on seed 0:
# the wrong version must have a report, the right one must be clean.  With --time, the
# wrong version must have the same report, or the verdict must say that the order of
# accesses was not checked.  Cases whose names end with _strict run with --strict.
# Prints a table.
set -u
nibemu=$1
shift
found=0 clean=0 said=0 all=0
for program in "$@"; do
	for name in $("$program"); do
		all=$((all + 1))
		rule=none strict=
		case $name in *_strict) strict=--strict ;; esac
		# shellcheck disable=SC2086
		out=$("$nibemu" run $strict "$program" "$name" wrong 2>&1)
		if [ $? = 1 ]; then
			found=$((found + 1))
			rule=$(printf '%s\n' "$out" | sed -n 's/^  rule: \([a-z0-9-]*\):.*/\1/p')
		fi
		# shellcheck disable=SC2086
		if out=$("$nibemu" run $strict "$program" "$name" right 2>&1); then
			clean=$((clean + 1))
		else
			printf '%s, without its bug:\n%s\n' "$name" "$out"
		fi
		# shellcheck disable=SC2086
		out=$("$nibemu" run --time $strict "$program" "$name" wrong 2>&1)
		case $?,$out in
		1,*"rule: $rule:"*) said=$((said + 1)) ;;
		0,*'not checked: '*'the order of accesses (--time, '*)
			said=$((said + 1))
			;;
		*) printf '%s, with --time:\n%s\n' "$name" "$out" ;;
		esac
		printf '| %s | %s |\n' "$name" "$rule"
	done
done
echo "found $found of $all on seed 0, clean without the bug: $clean of $all"
echo "with --time, found or not checked: $said of $all"
[ "$found" = "$all" ] && [ "$clean" = "$all" ] && [ "$said" = "$all" ] && [ "$all" -gt 0 ]
