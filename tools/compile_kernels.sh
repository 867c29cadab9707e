#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# compile_kernels.sh NVCC SOURCE.cu PREFIX FLAG... - makes PREFIX.ptx and, from
# it, PREFIX.cubin for sm_90a.  PREFIX.kernels names the kernels, PREFIX.d lists the
# headers, PREFIX.log what ptxas says of registers and spills (tools/kernel_table.py);
# warnings are shown.
set -eu
nvcc=$1
source=$2
prefix=$3
shift 3
"$nvcc" -ptx -gencode=arch=compute_90a,code=sm_90a -std=c++17 -O3 -lineinfo \
	-MD -MF "$prefix.d" -MT "$prefix.cubin" "$@" -o "$prefix.ptx" "$source"
sed -n 's/.*\.entry \([A-Za-z0-9_]*\).*/\1/p' "$prefix.ptx" | tr '\n' ' ' \
	>"$prefix.kernels"
if ! "$nvcc" -cubin -gencode=arch=compute_90a,code=sm_90a -O3 -lineinfo \
	-Xptxas -v,-warn-spills -o "$prefix.cubin" "$prefix.ptx" \
	>"$prefix.log" 2>&1; then
	cat "$prefix.log" >&2
	exit 1
fi
# ptxas calls it information that it gave up the overlap of wgmma (C75xx).
grep -E 'warning|error|C75[0-9][0-9]' "$prefix.log" >&2 || true
