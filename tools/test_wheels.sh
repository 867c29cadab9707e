#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test_wheels.sh - tests the wheels in build/wheels where no compiler is in PATH:
# in a fresh environment of this Debian's Python, in Debian 11 (glibc 2.31; its Python
# 3.9 is too old for the package, so C programs only) if debootstrap and root are here,
# and on Arm in qemu-user with Debian's Python.  Prints TAP, times, and sizes.
# Functions are called through check():
# shellcheck disable=SC2317
set -u
cd "$(dirname "$0")/.." || exit 2
version=$(sed -n 's/^#define NIB_VERSION_\(MAJOR\|MINOR\|PATCH\) //p' \
	include/nibblas.h | paste -sd.)
tag=$version-py3-none-manylinux_2_28
x86=$PWD/build/wheels/nibblas-${tag}_x86_64.whl
arm=$PWD/build/wheels/nibblas-${tag}_aarch64.whl
x86_emu=$PWD/build/wheels/nibblas_emu-${tag}_x86_64.whl
arm_emu=$PWD/build/wheels/nibblas_emu-${tag}_aarch64.whl
# common.py has the oracle.
tests=$PWD/tests/python
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/install/tap.sh
. tests/install/tap.sh

cat >"$work/try.py" <<'END'
import os, shutil, time
begin = time.perf_counter()
import numpy as np
numpy_s = time.perf_counter() - begin
begin = time.perf_counter()
import nibblas
import_s = time.perf_counter() - begin
assert not any(shutil.which(name) for name in ("cc", "gcc", "clang")), os.environ["PATH"]
x = np.random.default_rng(1).standard_normal((33, 160)).astype(np.float32)
q = nibblas.quantize(x, layout="linear")
args = q.codes, q.scales, q.codes, q.scales
alpha = q.global_scale ** 2
begin = time.perf_counter()
c = nibblas.gemm(*args, alpha=alpha, a_layout="linear", b_layout="linear")
first_s = time.perf_counter() - begin
import common
from nibblas import _abi as abi
operand = q.codes, q.scales
bad, worst = common.failures(abi.NIB_OP_GEMM, operand, operand, c,
                             abi.NIB_ARITHMETIC_BLOCKS,
                             alpha=np.array([alpha], np.float32))
assert not bad, f"{bad} of {c.size} are outside the bound: {worst}"
c[32, 32] += 2 ** -12 * abs(c[32, 32])
bad, _ = common.failures(abi.NIB_OP_GEMM, operand, operand, c,
                         abi.NIB_ARITHMETIC_BLOCKS,
                         alpha=np.array([alpha], np.float32))
assert bad == 1, bad
print(f"{nibblas.__version__}: {c.size} elements within the bound of the exact oracle; "
      f"import nibblas {import_s * 1e3:.0f} ms after numpy ({numpy_s * 1e3:.0f} ms), "
      f"first product {first_s * 1e3:.0f} ms")
END

# run_X COMMAND...: in an environment without a compiler.
run_x86() {
	env -i PATH="$work/venv/bin" HOME="$work" PYTHONPATH="$tests" "$@"
}
# requirements WHEEL: it and NumPy, by hash.
requirements() {
	cat tools/numpy.txt
	printf '%s --hash=sha256:%s\n' "$1" "$(sha256sum "$1" | cut -d ' ' -f 1)"
}
make_venv() {
	requirements "$x86" >"$work/x86.txt"
	python3 -m venv "$work/venv" && "$work/venv/bin/pip" --quiet \
		--disable-pip-version-check install --only-binary :all: \
		--require-hashes -r "$work/x86.txt"
}
run_arm() {
	env -i PATH="$work" HOME="$work" PYTHONPATH="$work/arm-site:$tests" \
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
# The software GPU where `nib` looks for it: pip install --target leaves it out.
add_arm_emu() {
	mkdir "$work/arm-emu" "$work/arm-site/lib" &&
		python3 -m zipfile -e "$arm_emu" "$work/arm-emu" &&
		cp -r "$work"/arm-emu/nibblas_emu-*.data/data/lib/. "$work/arm-site/lib"
}
cat >"$work/images.py" <<'END'
# The fat binaries of GPU code in each library: their headers begin with 0xBA55ED50,
# 16 bits of version, 16 of the header's size, 64 of the size of what follows.
import hashlib, re, struct, sys
found = []
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        data = file.read()
    images = set()
    for match in re.finditer(rb"\x50\xed\x55\xba\x01\x00\x10\x00", data):
        size, = struct.unpack_from("<Q", data, match.start() + 8)
        images.add((hashlib.sha256(data[match.start():match.start() + 16 + size])
                    .hexdigest(), 16 + size))
    found.append(images)
    print(f"{len(images)} images of GPU kernels, {sum(n for _, n in images)} bytes, in "
          f"a library of {len(data)} bytes")
assert all(found) and found[0] == found[1], [len(images) for images in found]
END
# The driver is opened when it is used: neither library needs it.
same_kernels() {
	x86_library=$(echo "$work"/venv/lib/python3*/site-packages/nibblas/lib/libnibblas.so)
	arm_library=$work/arm-site/nibblas/lib/libnibblas.so
	for library in "$x86_library" "$arm_library"; do
		readelf -d "$library" | grep NEEDED
		! readelf -d "$library" | grep -q 'NEEDED.*cuda' &&
			grep -q 'libcuda\.so\.1' "$library" || return 1
	done
	python3 "$work/images.py" "$x86_library" "$arm_library"
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

# said WHERE: the last command's output, as comments.
said() {
	sed "s/^/# $1: /" "$work/log"
}
misses_emu() {
	! "$@" check --device emu:h100 --op gemm --shape 64x128x256 &&
		grep -q 'libnibemu.so' "$work/log"
}
add_emu() {
	printf '%s --hash=sha256:%s\n' "$x86_emu" \
		"$(sha256sum "$x86_emu" | cut -d ' ' -f 1)" >"$work/emu.txt"
	"$work/venv/bin/pip" --quiet --disable-pip-version-check install \
		--no-index --require-hashes -r "$work/emu.txt"
}
# on_h100 COMMAND...: nib.  Against the exact oracle.
on_h100() {
	"$@" check --device emu:h100 --op gemm --shape 64x128x256
}
cat >"$work/kernel.py" <<'END'
# A kernel that stores 7, launched through the driver as programs open it.
import ctypes as C
driver = C.CDLL("libcuda.so.1")
def call(name, *args):
    assert getattr(driver, name)(*args) == 0, name
PTX = b""".version 8.0
.target sm_90
.address_size 64
.visible .entry store(.param .u64 to)
{
	.reg .b64 %a;
	ld.param.u64 %a, [to];
	st.global.u32 [%a], 7;
	ret;
}"""
context, module, kernel, memory, value = (C.c_void_p(), C.c_void_p(), C.c_void_p(),
                                          C.c_uint64(), C.c_uint32())
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", C.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuModuleLoadData", C.byref(module), PTX)
call("cuModuleGetFunction", C.byref(kernel), module, b"store")
call("cuMemAlloc_v2", C.byref(memory), C.c_size_t(4))
parameters = (C.c_void_p * 1)(C.cast(C.byref(memory), C.c_void_p))
call("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, None, parameters, None)
call("cuCtxSynchronize")
call("cuMemcpyDtoH_v2", C.byref(value), memory, C.c_size_t(4))
assert value.value == 7, value.value
END
# runs_program COMMAND...: nibemu.
runs_program() {
	"$@" run "$work/venv/bin/python" "$work/kernel.py" && grep -q clean "$work/log"
}
finds_emu() {
	[ "$("$@" -m nibblas_emu)" = "$(readlink -f "$work/venv")/lib/libnibemu.so" ]
}

check 'x86-64: pip installs the wheel' make_venv
check 'x86-64: nib --version' shows_version run_x86 "$work/venv/bin/nib" --version
check 'x86-64: nib info' run_x86 "$work/venv/bin/nib" info
check 'x86-64: nib selftest --quick' run_x86 "$work/venv/bin/nib" selftest --quick \
	-o "$work/x86.json"
check 'x86-64: python -m nibblas.ggml' finds_plugin run_x86 python
check 'x86-64: a product from Python is exact within its bound' run_x86 python \
	"$work/try.py"
said x86-64
check 'x86-64: nib says that the software GPU is missing' misses_emu run_x86 \
	"$work/venv/bin/nib"
check 'x86-64: pip installs nibblas-emu' add_emu
check 'x86-64: nib check on an H100 in software' on_h100 run_x86 "$work/venv/bin/nib"
said x86-64
check 'x86-64: nib bench on an H100 in software' run_x86 "$work/venv/bin/nib" bench \
	--device emu:h100 --op gemm --shape 64x128x256
check 'x86-64: nibemu run' runs_program run_x86 "$work/venv/bin/nibemu"
check 'x86-64: python -m nibblas_emu' finds_emu run_x86 python
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
	check 'Arm: a product from Python is exact within its bound' run_arm "$python" \
		"$work/try.py"
	said Arm
	check 'Arm: has the GPU kernels of x86-64' same_kernels
	said Arm
	check 'Arm: unpacks nibblas-emu' add_arm_emu
	check 'Arm: nib check on an H100 in software' on_h100 run_arm \
		"$work/arm-site/bin/nib"
	said Arm
fi
wc -c "$x86" "$arm" "$x86_emu" "$arm_emu" 2>/dev/null | sed '/total$/d; s/^/# bytes: /'
exit $bad
