#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# get_ggml.sh - ggml for `nib bench --baselines`: takes the sources that the package
# llama-cpp-python on PyPI brings (77 MB) and builds the CPU backend for this processor
# into build/ggml, where the build of nib finds its headers (run cmake once more).
set -eu
cd "$(dirname "$0")/.."
package=llama-cpp-python==0.3.36
sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
work=build/ggml-work

rm -rf "$work" build/ggml
mkdir -p "$work"
echo "$package --hash=sha256:$sha256" >"$work/requirements.txt"
python3 -m pip --quiet --disable-pip-version-check download --no-deps \
	--no-binary :all: --require-hashes --dest "$work" -r "$work/requirements.txt"
tar -C "$work" -xzf "$work"/llama_cpp_python-*.tar.gz
source=$(echo "$work"/llama_cpp_python-*/vendor/llama.cpp/ggml)
# The package leaves out the template of a file that nothing here reads.
[ -f "$source/ggml.pc.in" ] || : >"$source/ggml.pc.in"
cmake -S "$source" -B "$work/build" -DCMAKE_BUILD_TYPE=Release \
	-DGGML_BUILD_TESTS=OFF -DGGML_BUILD_EXAMPLES=OFF -DGGML_NATIVE=ON \
	-DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_INSTALL_PREFIX="$PWD/build/ggml" >/dev/null
cmake --build "$work/build" --parallel
cmake --install "$work/build" >/dev/null
rm -rf "$work"
echo "get_ggml.sh: $package is in build/ggml"
