#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lint.sh [--format | STEP...] - runs every check that does not run the code, or the
# steps named; --format formats the C code in place.  Prints one line for each step,
# and the output of the steps that fail.
# Steps are called by name:
# shellcheck disable=SC2317
set -u
cd "$(dirname "$0")/.." || exit 2
jobs=$(nproc)

# Versions of clang-format differ in their output; the tree follows this one.
format_version=14
max_lines=800
max_columns=88
# The interface is one file.
max_header_lines=1200

c_files() {
	find include src cli bench emu tests examples ggml ! -path 'ggml/include/*' \
		\( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) | sort
}

python_files() {
	find tools tests bench python examples docs/site -name '*.py' | sort
}

shell_files() {
	find tools tests emu .ci \( -name '*.sh' -o -path .ci/run \)
	echo CMakeLists.txt
	find cmake tools tests emu ggml -name '*.cmake' -o -name CMakeLists.txt 2>/dev/null
}

format_tool() {
	for tool in clang-format-$format_version clang-format; do
		if $tool --version 2>/dev/null |
			grep -q "version $format_version\."; then
			echo "$tool"
			return
		fi
	done
	echo "clang-format $format_version is not here" >&2
	return 1
}

step_format() {
	tool=$(format_tool) || return 1
	c_files | xargs -n 32 -P "$jobs" "$tool" --dry-run --Werror --ferror-limit=1 || {
		echo "make format"
		return 1
	}
}

step_length() {
	{ c_files && python_files; } | xargs wc -l | awk -v plain="$max_lines" \
		-v header="$max_header_lines" '$2 != "total" {
			max = $2 == "include/nibblas.h" ? header : plain
			if ($1 > max) {
				print $2 ": " $1 " lines, at most " max
				bad = 1
			}
		} END { exit bad }'
}

step_functions() {
	tools/check_functions.py
}

# No line is wider than max_columns, with tabs of 8, but for those that cannot be broken.
step_columns() {
	{ c_files && python_files; } | xargs python3 -c 'import sys
failed = False
for path in sys.argv[2:]:
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            width = len(line.rstrip("\n").expandtabs(8))
            words = line.split()
            # One word; an import; a line of C that is a string, as of a help text; text
            # that another program writes or prints.
            if (width > int(sys.argv[1]) and len(words) > 1 and words[0] != "from"
                    and not (words[0][0] == "\"" and not path.endswith(".py"))
                    and path not in ("cli/model_table.c", "tools/kernel_table.py",
                        "src/backend/cuda/kernels/common/probe_params.h")):
                print(f"{path}:{number}: {width} columns, at most {sys.argv[1]}")
                failed = True
sys.exit(failed)
' "$max_columns"
}

step_spdx() {
	{ c_files && python_files && shell_files; } | xargs grep -L SPDX-License-Identifier |
		sed 's/$/: no SPDX-License-Identifier/' >"$log.format"
	cat "$log.format"
	[ ! -s "$log.format" ]
}

step_layers() {
	tools/check_layers.sh
}

step_imports() {
	tools/check_imports.py
}

step_abi() {
	tools/check_abi.py
}

step_commits() {
	tools/check_commits.sh
}

step_spelling() {
	codespell
}

step_words() {
	tools/check_words.sh
}

step_docs() {
	tools/check_docs.py
}

step_shell() {
	find tools tests emu .ci \( -name '*.sh' -o -path .ci/run \) \
		-exec shellcheck {} +
}

# Python parses, and no function takes the place of another of its name.
step_python() {
	python_files | xargs python3 -c 'import ast, sys
failed = False
for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read(), path)
    for scope in ast.walk(tree):
        if not isinstance(scope, (ast.Module, ast.ClassDef)):
            continue
        seen = set()
        for node in scope.body:
            if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                continue
            # Setters have decorators.
            if node.name in seen and not node.decorator_list:
                print(f"{path}:{node.lineno}: {node.name} is defined twice")
                failed = True
            seen.add(node.name)
sys.exit(failed)
'
}

step_header() {
	text=$(cd include && printf '#include "%s"\n' *.h)
	for standard in c99 c17; do
		for compiler in gcc clang; do
			echo "$text" | $compiler -Iinclude -xc - \
				-std="$standard" -Wall -Wextra -Wpedantic -Wundef \
				-Werror -fsyntax-only || return 1
		done
	done
	echo "$text" | clang -Iinclude -xc++ - -std=c++11 \
		-Wall -Wextra -Wpedantic -Werror -fsyntax-only
}

# Every target with warnings as errors.  Not among the usual steps: `make asan` builds
# by gcc with warnings as errors, `make tsan` by clang.
step_gcc() {
	cmake --preset lint-gcc && cmake --build --preset lint-gcc -j "$jobs"
}

step_clang() {
	cmake --preset lint-clang && cmake --build --preset lint-clang -j "$jobs"
}

# Checks are chosen in .clang-tidy; flags come from the clang build.  The analyzer is
# nearly all of the time: a function gets a third of its usual 225,000 states, unless
# TIDY_STATES says otherwise.
step_tidy() {
	states=max-nodes=${TIDY_STATES:-75000}
	cmake --preset lint-clang >/dev/null || return 1
	# Files for NEON do not compile for x86; make cross has warnings as errors.
	find src cli bench emu/src emu/command -name '*.c' ! -name '*_neon*.c' -print0 |
		xargs -0 -n 1 -P "$jobs" clang-tidy -p build/lint-clang --quiet \
			--warnings-as-errors='*' --extra-arg=-Xclang \
			--extra-arg=-analyzer-config --extra-arg=-Xclang \
			--extra-arg="$states" 2>/dev/null
}

step_cppcheck() {
	cppcheck --quiet --std=c11 --language=c -j "$jobs" --inline-suppr \
		--enable=warning,performance,portability --error-exitcode=1 \
		--suppressions-list=.cppcheck-suppress \
		-D__x86_64__ -D__GNUC__ -D_GNU_SOURCE \
		--library=tools/cppcheck.cfg \
		-Iinclude -Isrc -Icli -Icli/shared -Ibench -Iemu/src \
		src cli bench emu/src emu/command emu/examples
}

if [ "${1:-}" = --format ]; then
	tool=$(format_tool) || exit 1
	c_files | xargs "$tool" -i
	exit
fi
[ $# -gt 0 ] || set -- format length columns functions spdx layers imports abi commits spelling words shell python \
	header tidy cppcheck

log=$(mktemp)
trap 'rm -f "$log" "$log.format"' EXIT
failed=
for step; do
	begin=$(date +%s)
	if "step_$step" >"$log" 2>&1; then
		echo "lint: $step: ok ($(($(date +%s) - begin)) s)"
	else
		failed="$failed $step"
		cat "$log"
		echo "lint: $step: FAILED"
	fi
done
[ -z "$failed" ] && exit 0
echo "lint: failed:$failed"
exit 1
