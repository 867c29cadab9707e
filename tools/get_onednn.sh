#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# get_onednn.sh - oneDNN 3 for `nib bench --baselines`: headers and library into
# build/onednn, where the build of nib finds the headers (run cmake once more).
#
# The package onednn on PyPI runs on SYCL, whose number of threads cannot be set, so the
# library is the one with OpenMP threads that paddlepaddle brings (195 MB): 3.6.2.
# NIB_ONEDNN=FILE takes another libdnnl.so.3 when nib runs.
set -eu
cd "$(dirname "$0")/.."
library=paddlepaddle==3.3.1
library_sha256=bb22396233d807f6957d9c4a6a1edc76693fb589c4ee3d17caf7e39113ca4047
headers=onednn-devel==2026.1.0
headers_sha256=5dc592efaed768834ac02d9086b350e08440501b11ea3f6b230a66551c9b5fac
work=build/onednn-work

# download REQUIREMENT SHA256 OPTION...
download() {
	echo "$1 --hash=sha256:$2" >"$work/requirements.txt"
	shift 2
	python3 -m pip --quiet --disable-pip-version-check download --no-deps \
		--only-binary :all: --require-hashes --dest "$work" "$@" \
		-r "$work/requirements.txt"
}

rm -rf "$work" build/onednn
mkdir -p "$work" build/onednn/lib
download "$library" "$library_sha256" \
	--python-version 3.11 --implementation cp --abi cp311 --platform manylinux1_x86_64
download "$headers" "$headers_sha256" --platform manylinux_2_28_x86_64
for wheel in "$work"/*.whl; do
	python3 -m zipfile -e "$wheel" "$work/files"
done
mv "$work/files/paddle/libs/libdnnl.so.3" build/onednn/lib/
mv "$work"/files/onednn_devel-*.data/data/include build/onednn/
rm -rf "$work"
echo "get_onednn.sh: $library's oneDNN is in build/onednn"
