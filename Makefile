# SPDX-License-Identifier: Apache-2.0
# A thin face over CMake and its presets; `make help` lists the targets.
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60
ARCH ?= aarch64
# 0: other inputs each time.
FUZZ_SEED ?= 0
SEED ?= 1
COUNT ?= 300
BUILD := build/release
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell nproc)

.PHONY: all help demo test test-emu emu-bugs test-models test-ggml bench debug clang asan ubsan tsan \
	valgrind cross fuzz mutants lint format kernels docs install uninstall clean dist \
	wheels wheels-test

all: $(BUILD)/CMakeCache.txt ## Build library and command into build/release
	@cmake --build $(BUILD)

$(BUILD)/CMakeCache.txt:
	@tools/setup.sh --check build
	@cmake --preset release -D NIB_BUILD_TESTS=OFF

help: ## List the targets
	@sed -n 's/^\([a-z -]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 18

# CMake looks again for the baselines that were installed since its last run.
demo: ## Set up, build, run a small model and the main job, draw a report
	@tools/setup.sh demo
	@tools/setup.sh baselines || echo "make demo: no baselines to compare with"
	@$(MAKE) --no-print-directory $(BUILD)/CMakeCache.txt
	@cmake $(BUILD) >$(BUILD)/configure.log
	@$(MAKE) --no-print-directory all
	@rm -rf build/demo
	@$(BUILD)/nib demo --model build/demo
	@tools/demo_generate.sh $(BUILD)

test: ## Set up, build, run every test; last line: N passed, N failed, N skipped
	@tools/setup.sh test
	@tools/run_tests.py release

test-emu: all ## All GPU tests on the software GPU (needs nvcc, no GPU)
	@tools/test_emu.sh $(BUILD)

emu-bugs: all ## Write emu/docs/bugs.md: what the software GPU finds
	@tools/emu_bugs.sh $(BUILD)

test-models: all ## Python with ModelOpt, torchao, vLLM, on real models (2 GB)
	@tools/setup.sh test
	@for test in other_formats other_directories example; do \
		OMP_WAIT_POLICY=passive \
		NIBBLAS_LIBRARY=$(CURDIR)/$(BUILD)/libnibblas.so \
		tools/python_env.py --models $(BUILD)/python-env-models \
			tests/python/test_$$test.py || exit 1; \
	done
	@NIBBLAS_LIBRARY=$(CURDIR)/$(BUILD)/libnibblas.so \
		tools/python_env.py --vllm $(BUILD)/python-env-vllm \
		tests/python/test_vllm.py

test-ggml: all ## The ggml plug-in, by ggml's own tests; GGML=DIR: ggml's source
	@cmake --install $(BUILD) --prefix $(CURDIR)/build/ggml-plugin/nibblas \
		>build/ggml-install.log
	@cmake -S ggml -B build/ggml-plugin -D GGML_SOURCE="$(GGML)" \
		-D CMAKE_PREFIX_PATH=$(CURDIR)/build/ggml-plugin/nibblas \
		>build/ggml-configure.log
	@cmake --build build/ggml-plugin --parallel
	@cd build/ggml-plugin && ctest --verbose -R '^(MUL_MAT|MUL_MAT_ID|plugin)$$' \
		>test.log; status=$$?; \
		grep -E 'tests passed|rms:|passed, |FAIL|Test +#' test.log; exit $$status

bench: all ## Measure this machine: nib bench --preset seeds, then a whole model
	@$(BUILD)/nib bench --preset seeds
	@NIBBLAS_LIBRARY=$(CURDIR)/$(BUILD)/libnibblas.so PYTHONPATH=$(CURDIR)/python \
		python3 bench/whole_model.py || [ $$? -eq 77 ]

debug clang: ## Build with assertions / by clang, and run the tests
	@tools/run_tests.py $@

asan ubsan tsan: ## Tests under AddressSanitizer + UBSan (gcc), UBSan, TSan (clang)
	@tools/setup.sh sanitize
	@tools/run_tests.py $@

cross: ## C tests for ARCH (aarch64; s390x is big-endian) in qemu-user
	@ARCH=$(ARCH) tools/setup.sh cross
	@tools/cross.sh $(ARCH)

valgrind: ## Tests under memcheck
	@tools/setup.sh valgrind
	@tools/run_tests.py $@

fuzz: ## Run each fuzzer for FUZZ_SECONDS (60)
	@tools/setup.sh fuzz
	@tools/fuzz.sh $(FUZZ_SECONDS) $(FUZZ_SEED)

mutants: ## What the C tests notice of 300 changed tokens (an hour; SEED, COUNT)
	@tools/setup.sh mutants
	@tools/mutants.py --seed $(SEED) --count $(COUNT) --json build/mutants.json

lint: ## Formatting, static analysis, warnings, layers, names, spelling
	@tools/setup.sh lint
	@tools/lint.sh

format: ## Format the C code in place
	@tools/lint.sh --format

kernels: all ## Write docs/kernels.md: registers, spills, loops of the GPU kernels
	@tools/setup.sh kernels
	@cmake --build $(BUILD) --target kernel_table

docs: all ## Build the site into build/docs/html, from docs/ and the sources
	@tools/setup.sh docs
	@tools/docs.sh $(BUILD)

install: all ## Install below PREFIX (/usr/local), DESTDIR honoured
	@cmake --install $(BUILD) --prefix $(PREFIX)

uninstall: ## Remove what `make install` installed last, DESTDIR honoured
	@cmake -P tools/uninstall.cmake $(BUILD)/install_manifest.txt

clean: ## Remove build/
	rm -rf build

dist: ## Make nibblas-VERSION.tar.gz of the committed tree
	@tools/dist.sh

wheels: ## Make build/wheels/*.whl, manylinux x86-64 and Arm, of the committed tree
	@tools/setup.sh wheels
	@tools/wheels.sh

wheels-test: ## Test build/wheels without a compiler, on an old glibc and on Arm (qemu)
	@tools/test_wheels.sh
