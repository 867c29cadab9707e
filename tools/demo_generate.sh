#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# demo_generate.sh BUILD - the last step of `make demo`: tokens a second of a whole model,
# NVFP4 next to bfloat16, by examples/generate.py.  It runs where python3 finds PyTorch
# and transformers, which a demo does not download (1 GB); elsewhere it says how to get
# them.
set -u
cd "$(dirname "$0")/.." || exit 2
build=$1

echo
if ! python3 -c 'import numpy, torch, transformers' 2>/dev/null; then
	cat <<-'END'
	Tokens a second of a whole model, in a Python environment of your own:
	    pip install torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu
	    pip install . transformers==5.23.0
	    python examples/generate.py --size 1b
	END
	exit 0
fi
echo "$ python examples/generate.py"
if ! NIBBLAS_LIBRARY=$PWD/$build/libnibblas.so PYTHONPATH=python${PYTHONPATH:+:$PYTHONPATH} \
	python3 examples/generate.py --rounds 2; then
	echo "demo_generate.sh: it is tested with torch 2.13.0 and transformers 5.23.0" >&2
	exit 1
fi
