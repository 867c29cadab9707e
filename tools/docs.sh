#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# docs.sh BUILD [OUTPUT] - builds the site from the pages of the tree into OUTPUT
# (build/docs/html), and checks its links.  Sphinx and its theme come from PyPI, by the
# hashes of docs.txt, and go to build/docs-env.  BUILD has libnibblas.so, which the
# Python package loads when Sphinx imports it.
set -eu
cd "$(dirname "$0")/.."
build=$1
output=${2:-build/docs/html}
env=build/docs-env

if ! cmp -s tools/docs.txt $env/installed.txt; then
	echo "Installing Sphinx from PyPI into $env (50 MB)"
	rm -rf $env
	python3 -m venv $env
	$env/bin/pip --quiet --disable-pip-version-check --no-input install \
		--retries 2 --timeout 30 --no-deps --only-binary :all: \
		--require-hashes -r tools/docs.txt
	cp tools/docs.txt $env/installed.txt
fi
python3 docs/site/stage.py build/docs/source
rm -rf "$output"
NIBBLAS_LIBRARY=$(realpath "$build")/libnibblas.so \
	$env/bin/sphinx-build -b html -c docs/site -j auto -q -W --keep-going \
	-d build/docs/doctrees build/docs/source "$output"
tools/check_site.py "$output"
echo "$output/index.html"
