#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# dist.sh - makes nibblas-VERSION.tar.gz of the committed tree.
set -eu
cd "$(dirname "$0")/.."
version=$(sed -n 's/^#define NIB_VERSION_\(MAJOR\|MINOR\|PATCH\) //p' \
	include/nibblas.h | paste -sd.)
git archive --format=tar.gz --prefix="nibblas-$version/" \
	-o "nibblas-$version.tar.gz" HEAD
echo "nibblas-$version.tar.gz"
