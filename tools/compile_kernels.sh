#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# compile_kernels.sh NVCC SOURCE.cu PREFIX PTX DEBUG FLAG... - makes of SOURCE, the
# image whose name is that of PREFIX and begins with its architecture (sm80_, sm90_, sm100_):
#
#   PTX             for the software GPU, with line numbers; its first line is
#                   "// nibblas NAME ID"
#   PREFIX.cubin    machine code, with line numbers if DEBUG is ON
#   PREFIX.fatbin   the same, compressed: a fifth of the bytes.  For sm80 also machine
#                   code for 8.9, and PTX for GPUs without kernels of their own
#   PREFIX.words    NAME, ID and the names of the kernels, which are embedded
#                   next to the fatbin: a library takes no PTX of another build
#   PREFIX.d        the headers, for the build
#   PREFIX.log      what ptxas says of registers and spills (kernel_table.py)
#
# Warnings of ptxas are shown.
set -eu
nvcc=$1
source=$2
prefix=$3
ptx=$4
debug=$5
shift 5
name=$(basename "$prefix")
more=
case $name in
# 8.6 and 8.7 run the code for 8.0: of mma.cu it has 28,552 instructions, and code for
# 8.6 has 28,560 in another order.  From 8.9 on, instructions convert e4m3, so that code
# and PTX are smaller.
sm80_*)
	version=80
	more=89
	;;
sm90_*) version=90a ;;
sm100_*) version=100f ;; # of the family: for 10.0 and 10.3
*)
	echo "compile_kernels.sh: $name: which architecture?" >&2
	exit 2
	;;
esac
arch=-gencode=arch=compute_$version,code=sm_$version

"$nvcc" -ptx "$arch" -std=c++17 -O3 -lineinfo \
	-MD -MF "$prefix.d" -MT "$prefix.cubin" "$@" -o "$prefix.raw" "$source"
# No folder of this machine is in what is installed.
root=$(cd "$(dirname "$0")/.." && pwd)
sed "s@^\\([[:space:]]*\\.file[^\"]*\"\\)$root/@\\1@" "$prefix.raw" >"$ptx"
id=$(cksum <"$ptx" | tr ' ' '-')
sed -i "1i // nibblas $name $id" "$ptx"
{
	printf '%s %s' "$name" "$id"
	sed -n 's/.*\.entry \([A-Za-z0-9_]*\).*/ \1/p' "$ptx" | tr -d '\n'
} >"$prefix.words"

# ptxas makes debugging data of line numbers whether it is asked to or not:
# three quarters of a cubin.  The machine code is the same without.
if [ "$debug" = ON ]; then
	cp "$ptx" "$prefix.bare.ptx"
else
	sed -e '/^[[:space:]]*\.section/,$d' \
		-e '/^[[:space:]]*\.\(loc\|file\)[[:space:]]/d' "$ptx" \
		>"$prefix.bare.ptx"
fi
if ! "$nvcc" -cubin "$arch" -O3 -Xptxas -v,-warn-spills \
	-o "$prefix.cubin" "$prefix.bare.ptx" >"$prefix.log" 2>&1; then
	cat "$prefix.log" >&2
	exit 1
fi
rm -f "$prefix.raw" "$prefix.bare.ptx"
# zstd: from nvcc 13 on, machine code needs a driver of CUDA 13, and drivers can unpack it
# since CUDA 12.4.  For older ones LZ4.  nvcc before 12.8 has no option for it, because it
# supports nothing else.  tools/kernels.cmake has the sizes.
release=$("$nvcc" --version | sed -n 's/.*release \([0-9]*\).*/\1/p')
mode=-compress-mode=speed
if [ "$release" -ge 13 ]; then
	mode=-compress-mode=size
fi
"$nvcc" --help | grep -q -e --compress-mode || mode=
if [ -n "$more" ]; then
	"$nvcc" -ptx -gencode=arch=compute_$more,code=compute_$more -std=c++17 -O3 "$@" \
		-o "$prefix.$more.ptx" "$source"
	"$nvcc" -cubin -gencode=arch=compute_$more,code=sm_$more -O3 \
		-o "$prefix.$more.cubin" "$prefix.$more.ptx"
	# nvcc would compile the first two again.
	top=$("$nvcc" -dryrun -fatbin -o "$prefix.fatbin" "$prefix.cubin" 2>&1 |
		sed -n 's/^#\$ TOP=//p')
	"$top/bin/fatbinary" --create="$prefix.fatbin" -64 --compress-all ${mode:+-$mode} \
		"--image3=kind=elf,sm=$version,file=$prefix.cubin" \
		"--image3=kind=elf,sm=$more,file=$prefix.$more.cubin" \
		"--image3=kind=ptx,sm=$more,file=$prefix.$more.ptx"
	rm -f "$prefix.$more.ptx" "$prefix.$more.cubin"
else
	"$nvcc" -fatbin "$arch" -Xfatbin=--compress-all $mode \
		-o "$prefix.fatbin" "$prefix.cubin"
fi
# ptxas calls it information that it gave up the overlap of wgmma (C75xx).
grep -E 'warning|error|C75[0-9][0-9]' "$prefix.log" >&2 || true
