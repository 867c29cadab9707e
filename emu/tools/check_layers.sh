#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_layers.sh [OBJECT...] - checks the layers of src/, each of which may use itself
# and those before it:
#   hardware     memory, floats, tensor cores, mbarrier words, tensor memory
#   check        the order of accesses (happens-before)
#   ptx          the parser, and the types of a module
#   machine      warps, CTAs, clusters, grids, asynchronous units
#   instruction  the functions of opcodes, and their table
#   driver       the CUDA driver interface
#   runtime      the CUDA runtime interface
# Prints every include of a higher layer or of a file outside src/, and every cycle of
# files (a .c and its .h are one).  With the objects of the library it does the same for
# calls.  Silent, with exit code 0, if there is none.
set -u
cd "$(dirname "$0")/.." || exit 2
layers='hardware check ptx machine instruction driver runtime'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# judge WHAT FILE: FILE has pairs of files, the first of which uses the second.
judge() {
	awk -v layers="$layers" -v what="$1" '
		BEGIN { n = split(layers, list, " ")
			for (i = 1; i <= n; i++) rank[list[i]] = i }
		{ split($1, a, "/"); split($2, b, "/")
		  if (!rank[a[1]] || !rank[b[1]])
			print what ": " $1 " -> " $2 ": not in a layer"
		  else if (rank[a[1]] < rank[b[1]])
			print what ": " $1 " -> " $2 ": a higher layer" }' "$2"
	awk '$1 != $2' "$2" | tsort 2>&1 >/dev/null | sed "s/^/$1: /"
}

# Includes, as they are written: from src/.
grep -rHoE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"[^"]*"' src |
	sed 's/^src\///; s/:.*"\(.*\)"/ \1/' | while read -r file name; do
	[ -f "src/$name" ] || {
		echo "include: src/$file: \"$name\" is not in src/"
		continue
	}
	case $name in *.def) continue ;; esac
	echo "${file%.*} ${name%.*}" >>"$work/includes"
done >"$work/found"
judge include "$work/includes" >>"$work/found"

if [ $# -gt 0 ]; then
	for object; do
		stem=${object##*/emu_objects.dir/}
		stem=${stem#./}
		stem=${stem#src/}
		stem=${stem%.c.o}
		# A function that is compiled for several instruction sets has a suffix.
		nm -g -P "$object" | awk -v stem="$stem" '{
			sub(/\..*/, "", $1)
			print ($2 == "U" ? "uses" : "has"), $1, stem }'
	done | sort -u >"$work/symbols"
	awk '$1 == "has" { owner[$2] = $3; next }
		{ uses[$0] = 1 }
		END { for (u in uses) {
			split(u, p, " ")
			if (owner[p[2]] && owner[p[2]] != p[3])
				print p[3], owner[p[2]] } }' \
		"$work/symbols" | sort -u >"$work/calls"
	[ -s "$work/calls" ] || echo "call: no symbols in the objects" >>"$work/found"
	judge call "$work/calls" >>"$work/found"
fi
cat "$work/found"
[ ! -s "$work/found" ]
