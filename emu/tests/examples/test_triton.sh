#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test_triton.sh NIBEMU EXAMPLE PYTHON DEVICE - runs examples/triton_kernels.py with
# seed 0 and one other.  Skipped where PYTHON has no Triton or cannot compile its
# launcher.  The recorded PTX of tests/triton is tested without Triton.
set -u
nibemu=$1 example=$2 python=$3 device=$4

"$python" -c 'import numpy, triton' 2>/dev/null || {
	echo "skipped: $python has no triton and numpy (pip install triton numpy)"
	exit 0
}
headers=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
[ -f "$headers/Python.h" ] || {
	echo "skipped: $python has no Python.h, which Triton's launcher needs"
	exit 0
}
exec "$nibemu" run --device "$device" --seeds 0..1 "$python" "$example"
