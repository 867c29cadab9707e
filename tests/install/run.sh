#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh SOURCE BUILD CC - installs BUILD in a fresh folder and uses it as other
# projects do: pkg-config and find_package, shared and static, DESTDIR, and the program
# of README.md.  Prints TAP.
# Functions are called through check():
# shellcheck disable=SC2317
set -u
source=$1 build=$2 cc=$3
here=$source/tests/install
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/usr
share=$prefix/share
version=$(sed -n 's/^#define NIB_VERSION_\(MAJOR\|MINOR\|PATCH\) //p' \
	"$source/include/nibblas.h" | paste -sd.)
# Until 1.0 a minor version may change the ABI.
case $version in
0.*) soname=libnibblas.so.${version%.*} ;;
*) soname=libnibblas.so.${version%%.*} ;;
esac
# shellcheck source=tests/install/tap.sh
. "$here/tap.sh"

# The folders of an install depend on the prefix (Debian: multiarch below /usr).
find_folders() {
	libdir=$(dirname "$(find "$prefix" -name "$soname")")
	export PKG_CONFIG_PATH="$libdir/pkgconfig"
	# A system package directory must not answer instead.
	[ -f "$PKG_CONFIG_PATH/nibblas.pc" ]
}

prints_answer() {
	"$@" | tee /dev/stderr | grep -qx "$version 32"
}

# with_pkg_config OUT CFILE [--static]
with_pkg_config() {
	out=$1 file=$2
	shift 2
	# Flags are several words.
	# shellcheck disable=SC2046
	"$cc" -std=c17 -Wall -Werror -o "$out" "$file" \
		$(pkg-config --cflags nibblas) $("$@")
}

has_soname() {
	readelf -d "$libdir/libnibblas.so" | grep -q "SONAME.*\[$soname\]" &&
		[ -f "$libdir/libnibblas.so.$version" ]
}

has_no_shared() {
	! readelf -d "$1" | grep -q 'NEEDED.*nibblas'
}

plugin_finds_library() {
	ldd "$libdir/ggml-nibblas.so" | tee /dev/stderr |
		grep -qF "$soname => $libdir/$soname "
}

# A project that knows C++ alone.
cmake_cxx_project() {
	cmake -S "$here/cmake_cxx" -B "$work/cmake_cxx" \
		-D CMAKE_PREFIX_PATH="$prefix"
}

# Nothing of the install is left, and files next to it are.
uninstalls() {
	touch "$prefix/include/other.h" &&
		cmake -P "$source/tools/uninstall.cmake" \
			"$build/install_manifest.txt" &&
		[ "$(find "$prefix" ! -type d)" = "$prefix/include/other.h" ] &&
		! find "$prefix" -type d -name nibblas | grep .
}

cmake_project() {
	cmake -S "$here/cmake" -B "$work/cmake" -D CMAKE_PREFIX_PATH="$prefix" \
		-D CMAKE_C_COMPILER="$cc" -D WANTED_VERSION="$1"
}

pc_version() {
	[ "$(pkg-config --modversion nibblas)" = "$version" ]
}

stage() {
	cmake --install "$build" --prefix "$prefix"
}

with_destdir() {
	DESTDIR=$work/dest cmake --install "$build" --prefix "$prefix" &&
		[ -f "$work/dest$prefix/include/nibblas.h" ] &&
		[ -f "$work/dest$prefix/include/nibblas_tune.h" ] &&
		! grep -r "$work/dest" "$work/dest$prefix" --include='*.pc' \
			--include='*.cmake'
}

# page_program PAGE: its blocks of C are one program.
page_program() {
	awk '/^```c$/ { on = 1; next } /^```/ { on = 0 } on' \
		"$source/$1" >"$work/readme.c"
	[ -s "$work/readme.c" ] &&
		with_pkg_config "$work/readme" "$work/readme.c" \
			pkg-config --libs nibblas &&
		[ "$(LD_LIBRARY_PATH=$libdir "$work/readme")" = \
			"$(sed -n 's/.*printf(.*; \/\* \(.*\) \*\//\1/p' \
				"$work/readme.c")" ]
}

# example FILE.c: it says itself whether its results are right.
example() {
	with_pkg_config "$work/example" "$source/examples/$1" \
		pkg-config --libs nibblas &&
		LD_LIBRARY_PATH=$libdir "$work/example"
}

# The same in C++.
example_cxx() {
	# Flags are several words.
	# shellcheck disable=SC2046
	"${CXX:-c++}" -std=c++17 -Wall -Wextra -Werror -o "$work/example" \
		"$source/examples/$1" $(pkg-config --cflags --libs nibblas) &&
		LD_LIBRARY_PATH=$libdir "$work/example"
}

# Builds with assertions have debugging data as well.
is_small() {
	strip -o "$work/stripped.so" "$libdir/libnibblas.so" &&
		ls -l "$work/stripped.so" &&
		[ "$(wc -c <"$work/stripped.so")" -le "$1" ]
}

check 'installs' stage
check 'nibblas.pc is where the library is' find_folders
check 'nibblas.pc has the version of the header' pc_version
check "SONAME is $soname" has_soname
check 'libnibblas_submission.so is next to it, for bundles' \
	test -s "$libdir/libnibblas_submission.so"
check 'pkg-config, shared: builds' with_pkg_config "$work/shared" \
	"$here/multiply.c" pkg-config --libs nibblas
check 'pkg-config, shared: runs' prints_answer \
	env LD_LIBRARY_PATH="$libdir" "$work/shared"
mkdir "$work/only_static"
cp "$libdir/libnibblas.a" "$work/only_static/"
check 'pkg-config, static: builds' with_pkg_config "$work/static" \
	"$here/multiply.c" sh -c "echo -L'$work/only_static' &&
		pkg-config --static --libs nibblas | sed 's@-L$libdir@@'"
check 'pkg-config, static: runs alone' prints_answer "$work/static"
check 'pkg-config, static: needs no libnibblas.so' has_no_shared "$work/static"
check 'find_package: configures' cmake_project "${version%.*}"
check 'find_package: builds' cmake --build "$work/cmake"
check 'find_package, shared: runs' prints_answer "$work/cmake/shared"
check 'find_package, static: runs' prints_answer "$work/cmake/static"
check 'find_package, static: needs no libnibblas.so' \
	has_no_shared "$work/cmake/static"
rm -rf "$work/cmake"
check 'find_package: refuses a later version' \
	sh -c "! cmake -S '$here/cmake' -B '$work/cmake' \
		-D CMAKE_PREFIX_PATH='$prefix' -D WANTED_VERSION=999"
check 'find_package, C++ alone: configures' cmake_cxx_project
check 'find_package, C++ alone: builds' cmake --build "$work/cmake_cxx"
check 'find_package, C++ alone, shared: runs' \
	prints_answer "$work/cmake_cxx/shared"
check 'find_package, C++ alone, static: runs' \
	prints_answer "$work/cmake_cxx/static"
check 'DESTDIR is honoured and written nowhere' with_destdir
if [ -f "$build/ggml-nibblas.so" ]; then
	check 'the ggml plug-in finds the library next to it' plugin_finds_library
fi
check 'the command runs' "$prefix/bin/nib" --version
check 'man page and completion are there' test -s "$share/man/man1/nib.1" \
	-a -s "$share/bash-completion/completions/nib" \
	-a -s "$share/zsh/site-functions/_nib" \
	-a -s "$share/fish/vendor_completions.d/nib.fish"
# Kernels are three quarters of it, and only where nvcc was.
if [ -d "$libdir/nibblas" ]; then
	check 'libnibblas.so with GPU kernels has at most 5 MB' is_small 5000000
	check 'the kernels for bundles are next to it' \
		test -s "$libdir/nibblas_submission.tar.xz"
	check 'the software GPU runs the kernels next to it' \
		env NIBEMU_SMS=4 "$prefix/bin/nib" check --device emu:h200 \
		--op gemm --shape 9x20x64
else
	check 'libnibblas.so has at most 1 MB' is_small 1000000
fi
check 'the program of README.md builds and prints what it says' page_program \
	README.md
check 'the program of docs/start-c.md builds and prints what it says' \
	page_program docs/start-c.md
check 'examples/linear.c builds and is right' example linear.c
check 'examples/engine.cpp builds and is right' example_cxx engine.cpp
check 'installs again' stage
check 'uninstalls what it installed and nothing else' uninstalls
exit $bad
