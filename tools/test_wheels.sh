#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test_wheels.sh - tests the wheels in build/wheels where no compiler is in PATH:
# in a fresh environment of this Debian's Python, in Debian 11 (glibc 2.31; its Python
# 3.9 is too old for the package, so C programs only) if debootstrap and root are here,
# and on Arm in qemu-user with Debian's Python.  Prints TAP and what was measured.
# Functions are called through check():
# shellcheck disable=SC2317
set -u
cd "$(dirname "$0")/.." || exit 2
# NumPy for Python 3.11, Debian 12's: x86-64, Arm.
numpy="numpy==2.4.6 --hash=sha256:89cd468399cfd2504718f0ba50e410dca55a170b61a02ad92bb18c8a65186e93
 --hash=sha256:0ab0a9c4ffb1a6d95ef519fe4247dba8eb6b18ad93999f76b7f657039acabd47"
version=$(sed -n 's/^#define NIB_VERSION_\(MAJOR\|MINOR\|PATCH\) //p' \
	include/nibblas.h | paste -sd.)
x86=$PWD/build/wheels/nibblas-$version-py3-none-manylinux_2_28_x86_64.whl
arm=$PWD/build/wheels/nibblas-$version-py3-none-manylinux_2_28_aarch64.whl
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/install/tap.sh
. tests/install/tap.sh

cat >"$work/try.py" <<'END'
import ctypes, os, shutil, sys, time
begin = time.perf_counter()
import numpy as np
numpy_s = time.perf_counter() - begin
begin = time.perf_counter()
import nibblas
import_s = time.perf_counter() - begin
assert not any(shutil.which(name) for name in ("cc", "gcc", "clang")), os.environ["PATH"]
x = np.random.default_rng(1).standard_normal((33, 160)).astype(np.float32)
q = nibblas.quantize(x)
args = q.codes, q.scales, q.codes, q.scales
begin = time.perf_counter()
c = nibblas.gemm(*args, alpha=q.global_scale ** 2)
first_s = time.perf_counter() - begin
# NumPy multiplies the dequantised values in fp64.
values = nibblas.dequantize(q.codes, q.scales).astype(np.float64) * q.global_scale
want = values @ values.T
bound = 2.0 ** -8 * (np.abs(values) @ np.abs(values).T)
assert np.all(np.abs(c - want) <= bound), np.max(np.abs(c - want) / bound)
print(f"{nibblas.__version__}: import nibblas {import_s * 1e3:.0f} ms after numpy "
      f"({numpy_s * 1e3:.0f} ms), first product {first_s * 1e3:.0f} ms")
if "--timed" in sys.argv:
    assert import_s < 0.2 and first_s < 1, (import_s, first_s)
END

# run_X COMMAND...: in an environment without a compiler.
run_x86() {
	env -i PATH="$work/venv/bin" HOME="$work" "$@"
}
# requirements WHEEL: it and NumPy, by hash.
requirements() {
	echo "$numpy" | tr '\n' ' '
	printf '\n%s --hash=sha256:%s\n' "$1" "$(sha256sum "$1" | cut -d ' ' -f 1)"
}
make_venv() {
	requirements "$x86" >"$work/x86.txt"
	python3 -m venv "$work/venv" && "$work/venv/bin/pip" --quiet \
		--disable-pip-version-check install --only-binary :all: \
		--require-hashes -r "$work/x86.txt"
}
run_arm() {
	env -i PATH="$work" HOME="$work" PYTHONPATH="$work/arm-site" \
		"$qemu" -L "$work/arm-root" "$@"
}
make_arm() {
	mkdir "$work/debs" "$work/arm-site" && cd "$work/debs" &&
		apt-get -qq -o APT::Sandbox::User=root download \
			python3.11-minimal:arm64 libpython3.11-minimal:arm64 \
			libpython3.11-stdlib:arm64 libc6:arm64 libexpat1:arm64 \
			zlib1g:arm64 libssl3:arm64 libffi8:arm64 libbz2-1.0:arm64 \
			liblzma5:arm64 libgcc-s1:arm64 libstdc++6:arm64 \
			libuuid1:arm64 && cd - || return 1
	for package in "$work"/debs/*.deb; do
		dpkg -x "$package" "$work/arm-root" || return 1
	done
	requirements "$arm" >"$work/arm.txt"
	python3 -m pip --quiet --disable-pip-version-check install --require-hashes \
		--target "$work/arm-site" --only-binary :all: --python-version 3.11 \
		--platform manylinux_2_28_aarch64 --platform manylinux2014_aarch64 \
		--platform manylinux_2_27_aarch64 -r "$work/arm.txt"
}
make_old() {
	debootstrap --variant=minbase bullseye "$work/old" \
		http://deb.debian.org/debian >"$work/log" && mkdir "$work/old/wheel" &&
		python3 -m zipfile -e "$x86" "$work/old/wheel" &&
		cp "$work"/old/wheel/nibblas-*.data/scripts/nib "$work/old/wheel/" &&
		chmod 755 "$work/old/wheel/nib"
}
run_old() {
	chroot "$work/old" "$@"
}
shows_version() {
	[ "$("$@")" = "nib $version" ]
}
# Modules find the plug-in; ggml need not be here.
finds_plugin() {
	"$@" -m nibblas.ggml | grep -q 'lib/ggml-nibblas\.so$'
}

check 'x86-64: pip installs the wheel' make_venv
check 'x86-64: nib --version' shows_version run_x86 "$work/venv/bin/nib" --version
check 'x86-64: nib info' run_x86 "$work/venv/bin/nib" info
check 'x86-64: nib selftest --quick' run_x86 "$work/venv/bin/nib" selftest --quick \
	-o "$work/x86.json"
check 'x86-64: python -m nibblas.ggml' finds_plugin run_x86 python
check 'x86-64: a product from Python' run_x86 python "$work/try.py" --timed
run_x86 python "$work/try.py" | sed 's/^/# x86-64: /'
if [ "$(id -u)" = 0 ] && command -v debootstrap >/dev/null; then
	check 'glibc 2.31: Debian 11' make_old
	check 'glibc 2.31: nib --version' shows_version run_old /wheel/nib --version
	# selftest starts nib again, and finds it by /proc.
	check 'glibc 2.31: nib check' run_old /wheel/nib check --preset small
fi
qemu=$(command -v qemu-aarch64-static)
if [ -n "$qemu" ] && [ -f "$arm" ]; then
	check 'Arm: pip unpacks the wheel' make_arm
	python=$work/arm-root/usr/bin/python3.11
	check 'Arm: nib --version' shows_version run_arm "$work/arm-site/bin/nib" \
		--version
	check 'Arm: nib info' run_arm "$work/arm-site/bin/nib" info
	check 'Arm: nib check' run_arm "$work/arm-site/bin/nib" check --preset small
	check 'Arm: python -m nibblas.ggml' finds_plugin run_arm "$python"
	check 'Arm: a product from Python' run_arm "$python" "$work/try.py"
fi
wc -c "$x86" "$arm" 2>/dev/null | sed '/total$/d; s/^/# bytes: /'
exit $bad
