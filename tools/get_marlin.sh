#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# get_marlin.sh - Marlin's NVFP4 kernels as build/marlin/libmarlin.so, a baseline of
# bench/gpu_baselines.py.  Takes the sources of the package vllm on PyPI (47 MB) and
# compiles its kernels of fp16 by NVFP4, dense and of experts, for compute_80, as vLLM
# does, and translates them to machine code of each ARCH.
#
#     tools/get_marlin.sh [ARCH...]     # default: 80 90
#
# Needs nvcc ($NVCC, else in PATH) and two minutes.
set -eu
cd "$(dirname "$0")/.."
version=0.33.0
sha256=f4c33c2503d52bb411146afa9618a4f48bed68912f617e6803ac8d76e4c74112
nvcc=${NVCC:-nvcc}
work=build/marlin-work
source=$work/vllm-$version/csrc
[ $# -gt 0 ] || set -- 80 90

rm -rf "$work"
mkdir -p "$work/torch/headeronly/util" build/marlin
# pip would build the package to learn its dependencies; unearth only downloads it.
python3 -m pip --quiet --disable-pip-version-check install --require-hashes \
	--target "$work/python" -r tools/unearth.txt
PYTHONPATH=$work/python python3 -m unearth --no-binary --download "$work" \
	"vllm==$version" >/dev/null
echo "$sha256  $work/vllm-$version.tar.gz" | sha256sum --check --quiet
tar -C "$work" -xzf "$work/vllm-$version.tar.gz" "vllm-$version/csrc"

# What is left of torch in the parts that are used.
cat >"$work/torch/headeronly/util/Exception.h" <<'END'
#pragma once
#include <sstream>
#include <stdexcept>
template <class... T> [[noreturn]] void marlin_fail(const T &...parts)
{
	std::ostringstream text;
	((text << parts), ...);
	throw std::runtime_error(text.str());
}
#define STD_TORCH_CHECK(is_true, ...)                                                  \
	((is_true) ? (void)0 : marlin_fail("Marlin: ", ##__VA_ARGS__))
END

# host FILE: a file without its functions of torch's tensors, which follow the namespace.
host() {
	sed -e '/#include <torch/d' -e '/#include "torch_utils.h"/d' \
		-e '/^#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 750/,/^#else/d' \
		-e '/^} *\/\/ namespace /q' "$1"
}

# kernels FOLDER: a file for each number of 16 rows (0: of 8), and kernel_selector.h.
kernels() {
	types="vllm::kFloat16.id(), vllm::kFE2M1f.id(), vllm::kFloat16.id()"
	types="$types, vllm::kFE4M3fn.id()"
	: >"$1/kernel_selector.h"
	for blocks in 0 1 2 3 4; do
		rows=$((blocks ? blocks : 1)) is_8=$((blocks ? 0 : 1))
		wide="256 8 8" # threads, n and k in units of 16
		[ "$rows" -eq 1 ] || wide="256 16 4"
		file=$1/nvfp4_$blocks.cu
		printf '#include "kernel.h"\n#include "marlin_template.h"\n' >"$file"
		printf 'namespace MARLIN_NAMESPACE_NAME {\n' >>"$file"
		printf '%s\n' "$wide" "128 8 4" "128 4 8" |
			while read -r threads n k; do
				kernel="Marlin<$types, $threads, $rows, $n, $k, $is_8, 4, 1, 0>"
				echo "template __global__ void $kernel(MARLIN_KERNEL_PARAMS);" \
					>>"$file"
				printf '%s\n\t%s\n' "if (threads == $threads &&
    thread_m_blocks == $rows && thread_n_blocks == $n && thread_k_blocks == $k &&
    m_block_size_8 == $is_8 && stages == 4 && group_blocks == 1)" \
					"kernel = $kernel;" >>"$1/kernel_selector.h"
			done
		echo "}" >>"$file"
	done
}

dense=$source/quantization/marlin experts=$source/moe/marlin_moe_wna16
kernels "$dense"
kernels "$experts"
{
	host "$dense/marlin.cu"
	host "$dense/gptq_marlin_repack.cu"
} >"$dense/host.cuh"
host "$experts/ops.cu" >"$experts/host.cuh"

codes="-gencode arch=compute_80,code=compute_80"
for arch; do
	codes="$codes -gencode arch=compute_80,code=sm_$arch"
done
# compile FOLDER FILE OPTION...
compile() {
	folder=$1 file=$2
	shift 2
	# shellcheck disable=SC2086
	"$nvcc" -std=c++17 -O2 --expt-relaxed-constexpr \
		-static-global-template-stub=false -Xcompiler -fPIC -w $codes \
		-I "$work" -I "$folder" -I "$source" "$@" -c "$file" \
		-o "$folder/$(basename "$file" .cu).o"
}
for folder in "$dense" "$experts"; do
	for file in "$folder"/nvfp4_*.cu; do
		compile "$folder" "$file"
	done
done
compile "$dense" bench/gpu_marlin.cu '-DHOST="host.cuh"' \
	"-DVERSION=\"vllm $version\""
compile "$experts" bench/gpu_marlin.cu '-DHOST="host.cuh"' -DMARLIN_EXPERTS
"$nvcc" -shared -cudart static -o build/marlin/libmarlin.so \
	"$dense"/*.o "$experts"/*.o
rm -rf "$work"
echo "get_marlin.sh: Marlin of vllm $version is build/marlin/libmarlin.so ($codes)"
