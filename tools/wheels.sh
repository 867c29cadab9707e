#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# wheels.sh [PROCESSOR...] - builds the wheels of the committed tree, for x86_64 and
# aarch64, into build/wheels: nibblas, and nibblas-emu, the software GPU.  They run on
# glibc 2.28 and later (2018) and need nothing else: jansson is inside the command, and
# GPU kernels, made by nvcc, are the same on all processors.  gcc compiles and zig links
# (tools/zig.cmake); `make wheels` installs both.  NIB_KERNELS_BUILD names a build folder
# of the same sources, whose GPU kernels are used.
set -eu
cd "$(dirname "$0")/.."
glibc=2.28
jansson=2.14
jansson_url=http://deb.debian.org/debian/pool/main/j/jansson/jansson_$jansson.orig.tar.gz
jansson_sha256=c739578bf6b764aa0752db9a2fdadcfe921c78f1228c7ec0bb47fa804c55d17b
env=$PWD/build/wheel-env
work=$PWD/build/wheels-work
export ZIG_GLOBAL_CACHE_DIR="$PWD/build/zig-cache"
[ $# -gt 0 ] || set -- x86_64 aarch64

version=$(sed -n 's/^#define NIB_VERSION_\(MAJOR\|MINOR\|PATCH\) //p' \
	include/nibblas.h | paste -sd.)
rm -rf "$work"
mkdir -p "$work" build/wheels
tools/dist.sh
tar -C "$work" -xzf "build/nibblas-$version.tar.gz"
source=$work/nibblas-$version
# zig.cmake looks there.
mkdir "$source/build"
ln -s "$env" "$source/build/wheel-env"
if [ -x build/nvcc/bin/nvcc ]; then
	ln -s "$PWD/build/nvcc" "$source/build/nvcc"
fi
"$env/bin/python" -c 'import sys, urllib.request
urllib.request.urlretrieve(*sys.argv[1:])' "$jansson_url" "$work/jansson.tar.gz"
echo "$jansson_sha256  $work/jansson.tar.gz" | sha256sum --check --quiet
tar -C "$work" -xzf "$work/jansson.tar.gz"

# build_jansson ARCH: as $work/ARCH.
build_jansson() {
	cmake -S "$work/jansson-$jansson" -B "$work/build-jansson-$1" \
		--toolchain "$source/tools/zig.cmake" -D CMAKE_BUILD_TYPE=Release \
		-D CMAKE_INSTALL_PREFIX="$work/$1" -D CMAKE_INSTALL_LIBDIR=lib \
		-D CMAKE_POLICY_VERSION_MINIMUM=3.5 -D JANSSON_BUILD_DOCS=OFF \
		-D JANSSON_EXAMPLES=OFF -D JANSSON_WITHOUT_TESTS=ON
	cmake --build "$work/build-jansson-$1" --target install
}

# make_wheel PACKAGE FOLDER ARCH: build/wheels/PACKAGE-*_ARCH.whl of the folder's
# pyproject.toml.  The packages of an architecture share a build folder, and all
# architectures the GPU kernels of the first.
make_wheel() {
	log=build/wheels/$1-$3.log
	tag=manylinux_$(echo "$glibc" | tr . _)_$3
	"$env/bin/pip" --disable-pip-version-check wheel \
		--no-deps --no-index --no-build-isolation --verbose \
		--wheel-dir "$work/$3" \
		--config-settings cmake.toolchain-file="$source/tools/zig.cmake" \
		--config-settings install.strip=false \
		--config-settings build-dir="$work/build-$3" \
		--config-settings cmake.define.NIB_CUDA="${NIB_CUDA:-ON}" \
		--config-settings cmake.define.NIB_KERNELS_BUILD="$kernels" \
		--config-settings \
		cmake.define.NIB_JANSSON_ARCHIVE="$work/$3/lib/libjansson.a" \
		--config-settings \
		cmake.define.NIB_JANSSON_INCLUDE_DIR="$work/$3/include" \
		"$2" >"$log" 2>&1 || {
		tail -n 40 "$log"
		exit 1
	}
	rm -f build/wheels/"$1"-*_"$3".whl
	"$env/bin/wheel" tags --remove --platform-tag "$tag" \
		"$work/$3/$1"-*.whl >/dev/null
	mv "$work/$3/$1"-*.whl build/wheels/
	wheel=$(echo build/wheels/"$1-$version"-*"$3".whl)
	# An older manylinux is named as well, if symbols of no newer glibc are needed.
	"$env/bin/auditwheel" show "$wheel" >"$log.audit" 2>&1 || {
		cat "$log.audit"
		exit 1
	}
	if ! grep -q 'consistent' "$log.audit" || ! tr '\n' ' ' <"$log.audit" |
		grep -qE '"manylinux_2_(1[0-9]|2[0-8])_'"$3"'"'; then
		cat "$log.audit"
		echo "wheels.sh: $wheel is not $tag" >&2
		exit 1
	fi
	echo "$wheel: $(($(wc -c <"$wheel") / 1000)) kB, $tag by auditwheel"
}

kernels=${NIB_KERNELS_BUILD:-}
for arch; do
	export NIB_ZIG_TARGET="$arch-linux-gnu.$glibc"
	build_jansson "$arch" >"build/wheels/jansson-$arch.log" 2>&1 || {
		tail -n 40 "build/wheels/jansson-$arch.log"
		exit 1
	}
	make_wheel nibblas "$source" "$arch"
	make_wheel nibblas_emu "$source/emu" "$arch"
	if [ -z "$kernels" ] && [ "${NIB_CUDA:-ON}" != OFF ]; then
		kernels=$work/build-$arch
	fi
done
rm -rf "$work"
