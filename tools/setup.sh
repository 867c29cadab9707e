#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# setup.sh [--check] NEED... - makes sure that the programs and libraries for each
# NEED are here: build, test, demo, baselines, docs, lint, sanitize, valgrind, fuzz, mutants,
# wheels.
# Missing Debian packages are installed where that is allowed (root, or sudo without
# a password); otherwise, and with --check, the script names them and fails.
#
# test and demo also want nvcc 12.9 or later for the GPU kernels, which then run on the
# software GPU.  If the machine has none, it comes from PyPI (300 MB) and goes to
# build/nvcc; without a network the build has no GPU kernels and says so.
# NIB_CUDA=OFF in the environment leaves it out.  test and kernels also want nvdisasm,
# which comes with a CUDA toolkit, or from PyPI (6 MB) and goes to build/nvdisasm.
# nvcc.txt, nvdisasm.txt, wheels.txt and numpy.txt have the versions and hashes of what comes
# from PyPI.
set -u
cd "$(dirname "$0")/.." || exit 2

# have PACKAGE: is what the Debian package brings here, from wherever it came?
have() {
	case $1 in
	gcc) command -v gcc && echo 'int main(void){return 0;}' |
		gcc -xc - -o /dev/null ;;
	libc6-dev) echo '#include <stdio.h>' | ${CC:-cc} -xc -E - ;;
	cmake) command -v cmake && cmake -E echo && cmake_is_new ;;
	libjansson-dev) pkg-config --exists jansson ;;
	libcmocka-dev) pkg-config --exists cmocka ;;
	libclang-rt-*) echo 'int main(void){return 0;}' |
		clang -xc -fsanitize=thread - -o /dev/null ;;
	libopenblas-dev) pkg-config --exists openblas ;;
	gcc-*-linux-gnu) command -v "${1#gcc-}-gcc" ;;
	qemu-user-static) command -v "qemu-$cross-static" ;;
	*-cross | *:*) dpkg-query -W -f '${Status}' "$1" | grep -q ' installed' ;;
	python3-venv) python3 -c 'import ensurepip, venv' ;;
	python3-dev) [ -f "$(python3 -c 'import sysconfig
print(sysconfig.get_path("include"))')/Python.h" ] ;;
	*) command -v "$1" ;;
	esac >/dev/null 2>&1
}

cmake_is_new() {
	cmake --version | awk 'NR == 1 { split($3, v, ".")
		exit !(v[1] > 3 || (v[1] == 3 && v[2] >= 25)) }'
}

# clang's sanitizers are packaged by version, which is known once clang is here.
clang_runtime() {
	if command -v clang >/dev/null; then
		echo "libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev"
	fi
}

# nvcc 12.9 was the first that compiles for the family of the B200 (sm_100f).
nvcc_is_new() {
	nvcc=$(command -v nvcc || ls "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc") \
		2>/dev/null && "$nvcc" --version | awk '/release/ {
		sub(/.*release /, ""); split($0, v, "[.,]")
		exit !(v[1] > 12 || (v[1] == 12 && v[2] >= 9)) }'
}

# Does nvcc have to come from PyPI?
nvcc_is_wanted() {
	[ "${NIB_CUDA:-AUTO}" != OFF ] && ! nvcc_is_new &&
		! [ -x build/nvcc/bin/nvcc ]
}

# What installing nvcc from PyPI needs.  Its g++ is the compiler of the host side.
nvcc_needs() {
	[ "${NIB_CUDA:-AUTO}" = OFF ] || echo g++
	if nvcc_is_wanted; then
		echo python3 python3-venv
	fi
}

# Puts nvcc into build/nvcc, whole or not at all.
get_nvcc() {
	echo "Installing nvcc 13.0 from PyPI into build/nvcc (300 MB)"
	mkdir -p build && rm -rf build/nvcc build/nvcc-env &&
		python3 -m venv build/nvcc-env &&
		build/nvcc-env/bin/pip --quiet --disable-pip-version-check \
			--no-input install --retries 2 --timeout 30 \
			--no-deps --only-binary :all: --require-hashes \
			-r tools/nvcc.txt &&
		mv build/nvcc-env/lib/python3*/site-packages/nvidia/cu13 build/nvcc
	status=$?
	rm -rf build/nvcc-env
	return $status
}

# Does nvdisasm have to come from PyPI?
nvdisasm_is_wanted() {
	[ "${NIB_CUDA:-AUTO}" != OFF ] && ! [ -x build/nvdisasm/bin/nvdisasm ] &&
		! command -v nvdisasm >/dev/null &&
		! [ -x "${CUDA_HOME:-/usr/local/cuda}/bin/nvdisasm" ]
}

# Puts nvdisasm into build/nvdisasm, whole or not at all.  A newer one reads the
# machine code of an older nvcc.
get_nvdisasm() {
	echo "Installing nvdisasm from PyPI into build/nvdisasm (6 MB)"
	mkdir -p build && rm -rf build/nvdisasm build/nvdisasm-env &&
		python3 -m venv build/nvdisasm-env &&
		build/nvdisasm-env/bin/pip --quiet --disable-pip-version-check \
			--no-input install --retries 2 --timeout 30 \
			--no-deps --only-binary :all: --require-hashes \
			-r tools/nvdisasm.txt &&
		mv build/nvdisasm-env/lib/python3*/site-packages/nvidia/cu13 \
			build/nvdisasm
	status=$?
	rm -rf build/nvdisasm-env
	return $status
}

# Puts what builds wheels into build/wheel-env, whole or not at all.
get_wheel_tools() {
	echo "Installing zig and scikit-build-core from PyPI into build/wheel-env (440 MB)"
	mkdir -p build && rm -rf build/wheel-env && python3 -m venv build/wheel-env &&
		build/wheel-env/bin/pip --quiet --disable-pip-version-check \
			--no-input install --retries 2 --timeout 30 \
			--no-deps --only-binary :all: --require-hashes \
			-r tools/wheels.txt &&
		cp tools/wheels.txt build/wheel-env/
}

# For which processor `cross` is, and Debian's name of it.
cross=${ARCH:-aarch64}
case $cross in
aarch64) foreign=arm64 ;;
*) foreign=$cross ;;
esac

# wanted NEED: its Debian packages.
wanted() {
	build='gcc libc6-dev make cmake pkg-config libjansson-dev'
	case $1 in
	build) echo "$build" ;;
	# Inductor compiles against Python.h; zsh and fish read their completions.
	test) echo "$build libcmocka-dev python3 python3-venv python3-dev g++" \
		"zsh fish $(nvcc_needs)" ;;
	demo) echo "$build $(nvcc_needs)" ;;
	wheels) echo "gcc libc6-dev gcc-aarch64-linux-gnu libc6-dev-arm64-cross" \
		"make cmake python3 python3-venv $(nvcc_needs)" ;;
	kernels) echo "$build python3 python3-venv $(nvcc_needs)" ;;
	# oneDNN: tools/get_onednn.sh, ggml: tools/get_ggml.sh.
	docs) echo "$build python3 python3-venv" ;;
	baselines) echo 'libopenblas-dev' ;;
	lint) echo "$build libcmocka-dev python3 clang" \
		clang-format clang-tidy cppcheck shellcheck codespell ;;
	sanitize | fuzz) echo "$build libcmocka-dev python3 clang" \
		"$(clang_runtime)" ;;
	valgrind) echo "$build libcmocka-dev python3 valgrind" ;;
	mutants) echo "$build libcmocka-dev python3" ;;
	cross) echo "$build python3 gcc-$cross-linux-gnu" \
		"libc6-dev-$foreign-cross qemu-user-static" \
		"libcmocka-dev:$foreign libjansson-dev:$foreign" ;;
	*)
		echo "setup.sh: unknown need '$1'" >&2
		exit 2
		;;
	esac
}

check=no
if [ "${1:-}" = --check ]; then
	check=yes
	shift
fi
# find_missing NEED...: sets missing.
find_missing() {
	missing=
	for need; do
		packages=$(wanted "$need") || exit 2
		for package in $packages; do
			case " $missing " in *" $package "*) continue ;; esac
			have "$package" || missing="$missing $package"
		done
	done
	missing=${missing# }
}

# finish NEED...: what no Debian package brings.
finish() {
	for need; do
		case $need in test | kernels)
			if [ $check = no ] && nvdisasm_is_wanted &&
				! get_nvdisasm >"$log" 2>&1; then
				tail -n 3 "$log" >&2
				echo "setup.sh: no nvdisasm from PyPI: the loops of" \
					"the GPU kernels are not counted" >&2
			fi
			;;
		esac
		if [ "$need" = wheels ] && [ $check = no ] &&
			! cmp -s tools/wheels.txt build/wheel-env/wheels.txt &&
			! get_wheel_tools >"$log" 2>&1; then
			tail -n 3 "$log" >&2
			echo "setup.sh: no zig from PyPI" >&2
			exit 1
		fi
		case $need in test | demo | kernels | wheels) ;; *) continue ;; esac
		if [ $check = no ] && nvcc_is_wanted && ! get_nvcc >"$log" 2>&1; then
			tail -n 3 "$log" >&2
			echo "setup.sh: no nvcc from PyPI: the build has no GPU" \
				"kernels, and their tests are skipped" >&2
		fi
	done
	exit 0
}

root=
if [ "$(id -u)" != 0 ]; then
	root='sudo -n'
fi
export DEBIAN_FRONTEND=noninteractive
apt() {
	$root apt-get -qq -o Dpkg::Use-Pty=0 -o Acquire::Retries=3 "$@" \
		</dev/null
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Twice: what the second round finds missing was not known in the first.
for round in 1 2; do
	find_missing "$@"
	[ -z "$missing" ] && finish "$@"
	if [ $check = yes ] || ! command -v apt-get >/dev/null ||
		! $root true 2>/dev/null; then
		echo "Missing for $*: $missing" >&2
		echo "On Debian: sudo apt-get install" \
			"--no-install-recommends $missing" >&2
		exit 1
	fi
	echo "Installing: $missing"
	case $missing in *:*) $root dpkg --add-architecture "$foreign" ;; esac
	# $missing is several words.
	# shellcheck disable=SC2086
	if ! { [ $round = 2 ] || apt update; } >"$log" 2>&1 ||
		! apt install -y --no-install-recommends $missing >"$log" 2>&1
	then
		cat "$log" >&2
		echo "setup.sh: apt-get could not install: $missing" >&2
		exit 1
	fi
done
find_missing "$@"
if [ -n "$missing" ]; then
	echo "setup.sh: installed, but not usable: $missing" >&2
	exit 1
fi
finish "$@"
