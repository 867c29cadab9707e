#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_layers.sh - checks which part includes which (docs/architecture.md):
#   cli/shared          include/ and its own files
#   bench               cli/shared, include/
#   cli                 bench, cli/shared, include/
#   src/core            core/
#   src/format          format/, core/
#   src/file            file/, format/, core/
#   src/backend/<kind>  its own folder, backend/backend.h, format/, core/: never
#                       another backend
#   src/backend/cuda    common/ sees no folder of an architecture (sm90/, ...), and
#                       these do not see each other; the same in kernels/
#   src/api             api/, backend/backend.h, format/, core/
#   emu                 nothing but emu/src (emu/tools/check_layers.sh: its layers)
# Inside src, and inside cli and bench, no files see each other in a circle, where a .c
# and its .h are one.
# Prints each include that breaks a rule; silent when there is none.
set -u
cd "$(dirname "$0")/.." || exit 2
failed=0

# Quoted includes as "file:include", the names written from src/ or next to file.
includes() {
	grep -rHoE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"[^"]*"' \
		--include='*.c' --include='*.h' "$@" 2>/dev/null |
		sed 's/:.*"\(.*\)"/:\1/'
}

# refuse RULE: prints the lines of stdin as broken.
refuse() {
	while IFS= read -r line; do
		echo "$line: $1"
		echo x >>"$broken"
	done
}
broken=$(mktemp)
trap 'rm -f "$broken"' EXIT

includes src cli bench tests | grep -E ':(.*/)?\.\./' |
	refuse 'write includes from src/, not with ..'

# A name belongs to the file's own folder if that has it.
includes cli bench | while IFS=: read -r file name; do
	folders='cli/shared'
	case $file in
	bench/*) folders='bench cli/shared' ;;
	cli/shared/*) ;;
	*) folders='cli bench cli/shared' ;;
	esac
	[ -e "include/$name" ] && continue
	for folder in $folders; do
		[ -e "$folder/$name" ] && continue 2
	done
	echo "$file:$name"
done | refuse 'this part may not see that one'

# In src: a name with a folder belongs to it, one without to the file's own.
includes src | while IFS=: read -r file name; do
	part=${file#src/}
	case $part in
	backend/*/*) part=${part#backend/} && part=backend/${part%%/*} ;;
	*) part=${part%%/*} ;;
	esac
	case $name in
	nibblas.h | nibblas_tune.h) continue ;;
	backend/*/*) target=${name#backend/} && target=backend/${target%%/*} ;;
	*/*) target=${name%%/*} ;;
	*) target=$part ;;
	esac
	[ "$part" = "$target" ] && continue
	case $part:$target in
	core:*) ;;
	*:core | backend/*:backend) continue ;;
	file:format | backend/*:format | api:format | api:backend) continue ;;
	esac
	echo "$file:$name"
done | refuse 'this part may not see that one'

# The folders of architectures: those of kernels/ as well, .cu and .cuh included.
grep -rHoE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"[^"]*"' \
	src/backend/cuda | sed 's/:.*"\(.*\)"/:\1/' | while IFS=: read -r file name; do
	own=$(echo "$file" | grep -oE '/sm[0-9]+[a-z]*/')
	other=$(echo "/$name" | grep -oE '/sm[0-9]+[a-z]*/')
	[ -z "$other" ] || [ "$own" = "$other" ] || echo "$file:$name"
done | refuse 'common sees no architecture, and an architecture no other one'

# refuse_circles: reads pairs "file included", a .c and its .h as one name.  tsort
# prints the names of each circle below a line of its own.
refuse_circles() {
	sed 's/\.[ch]\( \|$\)/\1/g' | awk '$1 != $2' | LC_ALL=C tsort 2>&1 >/dev/null |
		sed 's/^tsort: //; s/^-: //' | refuse 'files that see each other'
}

includes src | while IFS=: read -r file name; do
	if [ ! -e "src/$name" ]; then
		folder=${file%/*}
		name=${folder#src/}/$name
	fi
	echo "${file#src/} $name"
done | refuse_circles

# No two files of cli and bench have one name.
includes cli bench | while IFS=: read -r file name; do
	echo "${file##*/} $name"
done | refuse_circles

# Intrinsics and cpuid: other processors build the rest.
grep -rnE '(immintrin|cpuid|x86intrin)\.h|__builtin_cpu_|\b_mm[0-9]*_' src tests |
	grep -vE '^[^:]*(_x86|_avx2|_avxvnni|_avx512vnni|_avx512bw|_avx512bf16|_amx)\.[ch]:' |
	grep -vE '^(tests/common/float_mode\.c|[^:]*(_vector|256|512|epilogue|float_out)\.inc\.h):' |
	refuse 'x86 instructions belong into files of x86'

[ -s "$broken" ] && failed=1
emu/tools/check_layers.sh || failed=1
exit $failed
