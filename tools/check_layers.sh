#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_layers.sh - who may include whom (docs/architecture.md):
#   cli, bench   nibblas.h and their own files
#   src/format   format/ and the library's errors
#   src/api      api/ and format/; rooms only through room.h
#   src/file     file/, format/ and the library's errors
#   src/<room>   its own folder, format/, api/: never another room; of file/
#                only the JSON reader, and only src/cuda
# Prints each include that breaks a rule; silent when there is none.
set -u
cd "$(dirname "$0")/.." || exit 2
failed=0

# Quoted includes as "file:include", the names written from src/ or beside file.
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

includes cli bench | while IFS=: read -r file name; do
	[ "$name" = nibblas.h ] || [ -e "cli/$name" ] || [ -e "bench/$name" ] ||
		echo "$file:$name"
done | refuse 'cli and bench see nibblas.h alone'

# In src: a name with a folder belongs to it, one without to the file's own.
includes src | while IFS=: read -r file name; do
	part=${file#src/}
	part=${part%%/*}
	case $name in
	nibblas.h) continue ;;
	*/*) target=${name%%/*} ;;
	*) target=$part ;;
	esac
	[ "$part" = "$target" ] && continue
	case $part:$target in
	format:api | file:api) [ "$name" = api/error.h ] && continue ;;
	cuda:file) [ "$name" = file/json.h ] && continue ;;
	*:format) continue ;;
	api:* | file:* | format:* | *:file) ;;
	*:api) continue ;;
	esac
	echo "$file:$name"
done | refuse 'this part may not see that one'

[ -s "$broken" ] && failed=1
exit $failed
