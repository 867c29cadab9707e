#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cupy_runtime.sh PYTHON OUTPUT - builds one module of CuPy, cupy_backends.cuda.api.runtime,
# with the shared runtime library in place of NVIDIA's static one, which requires
# NVIDIA's driver.  All other modules of CuPy call CUDA through this one.
#
#     examples/cupy_runtime.sh python3 ~/cupy_runtime.so
#
# PYTHON has the package cupy-cuda13x, whose source of the same version is taken from
# PyPI.  CUDA_HOME (default: /usr/local/cuda) has CUDA 13's headers and libcudart.so.
set -eu
[ $# -eq 2 ] || {
	echo "usage: $0 PYTHON OUTPUT" >&2
	exit 2
}
python=$1
output=$(realpath "$2")
cuda=${CUDA_HOME:-/usr/local/cuda}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
version=$("$python" -c 'from importlib.metadata import version
print(version("cupy-cuda13x"))')

"$python" -m venv "$work/venv"
"$work/venv/bin/pip" -q install unearth "Cython>=3.2,<3.3"
"$work/venv/bin/python" -m unearth --no-binary --download "$work" "cupy==$version" \
	>"$work/log"
tar -C "$work" -xzf "$work/cupy-$version.tar.gz"
cd "$work/cupy-$version"
"$work/venv/bin/cython" -3 --cplus --no-docstrings \
	-X c_api_binop_methods=True,binding=False,freethreading_compatible=True \
	-E CUPY_USE_CUDA_PYTHON=0,CUPY_CUFFT_STATIC=0,CUPY_HIP_VERSION=0 \
	-E CUPY_CUDA_VERSION=13000 cupy_backends/cuda/api/runtime.pyx \
	-o cupy_backends/cuda/api/runtime.cpp 2>"$work/log" ||
	{
		cat "$work/log" >&2
		exit 1
	}
"${CXX:-c++}" -O1 -fPIC -shared -w '-DCYTHON_EXTERN_C=extern "C"' \
	-DNPY_TARGET_VERSION=NPY_2_0_API_VERSION \
	-I "$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')" \
	-I "$("$python" -c 'import numpy; print(numpy.get_include())')" \
	-I "$cuda/include" -I cupy_backends/cuda/api \
	cupy_backends/cuda/api/runtime.cpp -o "$output" \
	-L "$cuda/lib64" -L "$cuda/lib" -lcudart
echo "$output: CuPy $version's runtime module with libcudart.so.13"
