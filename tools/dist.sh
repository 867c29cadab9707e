#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# dist.sh - makes build/nibblas-VERSION.tar.gz of the committed tree.
set -eu
cd "$(dirname "$0")/.."
version=$(sed -n 's/^#define NIB_VERSION_\(MAJOR\|MINOR\|PATCH\) //p' \
	include/nibblas.h | paste -sd.)
mkdir -p build
git archive --format=tar.gz --prefix="nibblas-$version/" \
	-o "build/nibblas-$version.tar.gz" HEAD
echo "build/nibblas-$version.tar.gz"
