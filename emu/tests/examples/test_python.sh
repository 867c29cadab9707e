#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test_python.sh NIBEMU EXAMPLE PYTHON MODULE LINE - runs an example of a Python framework
# with seed 0 and one other, and its race, whose report must name the only line of the
# example that has the text LINE ("": the framework has no source lines).  Skipped where
# PYTHON has no MODULE.
set -u
nibemu=$1 example=$2 python=$3 module=$4 line=$5

"$python" -c "from importlib.util import find_spec as find
raise SystemExit(not (find('numpy') and find('$module')))" 2>/dev/null || {
	echo "skipped: $python has no $module and numpy"
	exit 0
}
if [ "$module" = cupy ] && [ ! -f "${CUPY_RUNTIME:-}" ]; then
	echo "skipped: CUPY_RUNTIME is not a file of examples/cupy_runtime.sh"
	exit 0
fi
"$nibemu" run --seeds 0..1 "$python" "$example" || exit 1

place="rule: "
[ -z "$line" ] ||
	place="$(basename "$example"):$(grep -n -F "$line" "$example" | cut -d: -f1): "
report=$("$nibemu" run "$python" "$example" race 2>&1)
status=$?
case $status:$report in
1:*"$place"*) echo "race: reported ($place)" ;;
*)
	echo "race: status $status, not 1 with \"$place\": $report"
	exit 1
	;;
esac
