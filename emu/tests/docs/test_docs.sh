#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test_docs.sh SOURCE NVCC CUDART - runs the commands of README.md and examples/ci.yml in
# a fresh copy of SOURCE, as a new user does: builds, installs, compiles
# examples/pipeline.cu as kernel.cu, and runs it.  CUDART is the folder of
# libcudart.so.13.  Steps that need a network are skipped by name.
set -u
source=$1 nvcc=$(command -v "$2") cudart=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HOME="$work/home" TMPDIR="$work"
unset NIBEMU_SEED NIBEMU_DEVICE LD_LIBRARY_PATH
mkdir -p "$HOME" "$work/bin" "$work/nibblas" "$work/objects"
# The commands build the library twice.  The second build takes the first one's objects;
# other tests run the optimised library.
cat >"$work/bin/compile" <<-END
	#!/bin/sh
	command="\$*"
	object=\${command##* -o }
	object=\${object%% *}
	kept=$work/objects/\$(echo "\$object" | tr / _)
	cp "\$kept" "\$object" 2>/dev/null ||
		{ "\$@" && cp "\$object" "\$kept"; }
END
chmod +x "$work/bin/compile"
export CMAKE_BUILD_TYPE=None CFLAGS=-O1 CMAKE_C_COMPILER_LAUNCHER="$work/bin/compile"
for part in CMakeLists.txt runtime.map harden.cmake command src stub examples tests probes \
	docs README.md; do
	cp -r "$source/$part" "$work/nibblas/"
done
cd "$work/nibblas" || exit 2
printf '#!/bin/sh\nexec %s "$@"\n' "$nvcc" >"$work/bin/nvcc"
chmod +x "$work/bin/nvcc"
PATH="$work/bin:$PATH"
failed=0

# expect TEXT FILE: the file has the text.
expect() {
	grep -qF -- "$1" "$2" && return
	echo "missing: $1"
	failed=1
}

# wanted STATUS GOT WHAT FILE
wanted() {
	[ "$1" = "$2" ] && return
	echo "$3: status $2, not $1"
	sed 's/^/	/' "$4"
	failed=1
}

# ---- README.md: its first two blocks -----------------------------------------

# block N: the lines of block N of sh.
block() {
	awk -v wanted="$1" '/^```sh$/ { n++; on = 1; next } /^```/ { on = 0 }
		on && n == wanted' README.md
}
# Without tests, which would be built if cmocka is installed.
mkdir "$work/cmake"
echo 'set(NIBEMU_BUILD_TESTS OFF CACHE BOOL "")' >"$work/cmake/first.cmake"
block 1 | sed "s@cmake -S \.@& -C $work/cmake/first.cmake@" >"$work/block1"
expect 'cmake -S . -C' "$work/block1"
expect 'nibemu run ./kernel' "$work/block1"
cp examples/pipeline.cu kernel.cu
# PATH is set in the block, for the next one.
{
	cat "$work/block1"
	echo 'echo "status $?" >status; exec 2>&1'
	block 2
	echo 'echo "status $?" >>status'
} >"$work/blocks"
sh "$work/blocks" >"$work/out" 2>"$work/log" </dev/null
got=$?
wanted 0 $got README.md "$work/log"
wanted "1 1" "$(sed 's/status //' status | paste -sd' ')" \
	'README.md: nibemu run' "$work/log"
expect 'nibemu: 0 of 20 schedules clean (seeds 1 to 20, H200 in software)' \
	"$work/out"
# README.md shows the current output of the example.
for line in '^nibemu: 0 of 20' '^  20 schedules: order' '^      seeds 1-20' \
	'^  rule: order: ' '^Again: nibemu run --seed 1'; do
	shown=$(grep -- "$line" README.md)
	printed=$(grep -- "$line" "$work/out" |
		sed 's@[^ ]*/kernel\.cu@pipeline.cu@')
	if [ -z "$shown" ] || [ "$shown" != "$printed" ]; then
		echo "README.md shows: $shown"
		echo "it prints:       $printed"
		failed=1
	fi
done
# Also its report, which is wrapped there; the line of the PTX may differ.
report() {
	tr '\n' ' ' <"$1" |
		sed 's@[^ ]*/kernel\.cu@pipeline.cu@g; s@ kernel\.cu:@ pipeline.cu:@g' |
		grep -o 'row_sums<false>, cluster.* or no wait for one' |
		sed 's/PTX line [0-9]*/PTX line/g'
}
if [ -z "$(report README.md)" ] ||
	[ "$(report README.md)" != "$(report "$work/out")" ]; then
	echo "README.md shows: $(report README.md)"
	echo "it prints:       $(report "$work/out")"
	failed=1
fi

# ---- examples/ci.yml ---------------------------------------------------------

ci=$work/nibblas/examples/ci.yml

# step NAME: the lines of its run.
step() {
	awk -v name="      - name: $1" '
		/^      - / { on = $0 == name; lines = 0 }
		on && /^        run: \|/ { lines = 1; next }
		on && /^        run: / { sub(/^        run: /, ""); print }
		on && lines && /^          / { sub(/^          /, ""); print }' \
		"$ci"
}
# do_step STATUS NAME
do_step() {
	step "$2" >"$work/step"
	[ -s "$work/step" ] || {
		echo "ci.yml: $2: no such step"
		failed=1
	}
	sh -e "$work/step" >"$work/out" 2>&1 </dev/null
	wanted "$1" $? "ci.yml: $2" "$work/out"
}

# Replaces the results of the steps that need a network.
echo "skipped: Cache, Fetch, Install, Keep of ci.yml (they need a network)"
mkdir -p "$HOME/nibblas" "$HOME/cuda/lib/python3/site-packages/nvidia/cu13"
ln -s "$work/nibblas" "$HOME/nibblas/emu"
ln -s "$work/bin" "$HOME/cuda/lib/python3/site-packages/nvidia/cu13/bin"
ln -s "$cudart" "$HOME/cuda/lib/python3/site-packages/nvidia/cu13/lib"

mkdir "$work/repository"
cp examples/pipeline.cu "$work/repository/kernel.cu"
expect "- name: Fetch nibemu" "$ci"
expect "- name: Install nvcc" "$ci"
# Without CCCL no kernel that includes cuda_pipeline.h or cuda/barrier compiles.
step 'Install nvcc' >"$work/step"
for package in cuda-nvcc cuda-crt nvvm cuda-runtime cuda-cccl; do
	expect "'nvidia-$package==13.0.*'" "$work/step"
done
do_step 0 'Build nibemu'
cd "$work/repository" || exit 2
do_step 0 'Compile the kernels'
do_step 1 'Run ten schedules'
expect '"clean":0,"status":1' nibemu.json
sed -i 's/const bool is_fixed = .*/const bool is_fixed = true;/' kernel.cu
do_step 0 'Compile the kernels'
do_step 0 'Run ten schedules'
expect '10 of 10 schedules clean' "$work/out"
expect '"clean":10,"status":0' nibemu.json
exit $failed
