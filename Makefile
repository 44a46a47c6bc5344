# Every target sets up .venv by itself; all it takes is Python 3.11 or newer, pip and a C++ compiler.
PYTHON ?= python3
BIN := .venv/bin
# Installed editable: a change to Python takes effect at once, a change to the files below builds and installs again.
# READY is enough to use foredraft, READY_TO_DEVELOP has the tools for tests and checks as well.
READY := .venv/ready
READY_TO_DEVELOP := .venv/ready-to-develop
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Builds the kernels' test program in the folder $(1) with the CMake options $(2).
BUILD_NATIVE_TESTS = $(BIN)/cmake -S . -B $(1) -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	-DFOREDRAFT_NATIVE_TESTS=ON $(2) > /dev/null && $(BIN)/cmake --build $(1)
ARM_CXX ?= aarch64-linux-gnu-g++
BUILT_FROM := pyproject.toml CMakeLists.txt $(wildcard csrc/* csrc/*/*)

.PHONY: demo test load-test check sanitize test-models test-arm bench bench-governor docs clean

demo: $(READY)
	$(BIN)/foredraft demo

test: $(READY_TO_DEVELOP)
	$(BIN)/pytest

test-models: $(READY_TO_DEVELOP)
	$(BIN)/pytest -m models

check: $(READY_TO_DEVELOP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/test_imports.py
	$(BIN)/python tools/docs.py --check

# Five minutes of many clients at once, some of which leave early or ask for nonsense.
load-test: $(READY_TO_DEVELOP)
	$(BIN)/python tests/load.py

sanitize: $(READY_TO_DEVELOP)
	$(call BUILD_NATIVE_TESTS,build/native-address,-DFOREDRAFT_SANITIZE=address)
	build/native-address/tests/native/native_tests
	$(call BUILD_NATIVE_TESTS,build/native-thread,-DFOREDRAFT_SANITIZE=thread)
	build/native-thread/tests/native/native_tests

# The portable kernels give the same bits on ARM, emulated, as here.
test-arm: $(READY_TO_DEVELOP)
	@{ command -v $(ARM_CXX) && command -v qemu-aarch64; } > /dev/null || { echo "make test-arm needs a compiler and an emulator for ARM: apt-get install g++-aarch64-linux-gnu qemu-user" >&2; exit 1; }
	$(call BUILD_NATIVE_TESTS,build/native)
	$(call BUILD_NATIVE_TESTS,build/native-arm,-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
		-DCMAKE_CXX_COMPILER=$(ARM_CXX) -DCMAKE_EXE_LINKER_FLAGS=-static)
	build/native/tests/native/native_tests > build/native/results.txt
	qemu-aarch64 build/native-arm/tests/native/native_tests | tee build/native-arm/results.txt
	diff build/native/results.txt build/native-arm/results.txt

bench: $(READY)
	$(BIN)/foredraft pull qwen2.5-coder-1.5b qwen2.5-coder-0.5b
	$(BIN)/foredraft bench --model qwen2.5-coder-1.5b --draft qwen2.5-coder-0.5b

# The figures of benchmarks/governor.md, into build/governor. On two cores the grid with the 1.5B model takes several
# hours, that with SmolLM2 about one, the rest together about two. A grid that was broken off goes on.
GRID := --concurrency 1,2,4,8,16,32 --workloads edit,quote,chat,write,ideas --prefix-cache
FIGURES := build/governor
bench-governor: $(READY_TO_DEVELOP)
	mkdir -p $(FIGURES)
	$(BIN)/foredraft pull smollm2-135m qwen2.5-coder-1.5b qwen2.5-coder-0.5b
	$(BIN)/python benchmarks/governor.py mixed --model smollm2-135m --json $(FIGURES)/mixed.json
	$(BIN)/python benchmarks/governor.py convergence --model qwen2.5-coder-1.5b \
		--json $(FIGURES)/convergence.json --plot $(FIGURES)/convergence.svg
	$(BIN)/python benchmarks/governor.py convergence --model qwen2.5-coder-1.5b --draft qwen2.5-coder-0.5b \
		--json $(FIGURES)/convergence-draft.json --plot $(FIGURES)/convergence-draft.svg
	$(BIN)/python benchmarks/governor.py overhead --model smollm2-135m --json $(FIGURES)/overhead.json
	$(BIN)/foredraft bench --model smollm2-135m --concurrency 64 --workloads enrichment --prefix-cache --rounds 8 \
		--arms off,on:lookup:4,auto --json $(FIGURES)/incident.json
	$(BIN)/foredraft bench --model smollm2-135m $(GRID) --arms off,on:lookup:2,on:lookup:8,on:lookup:4,auto \
		--json $(FIGURES)/grid-smollm2-135m.json --heat-map $(FIGURES)/grid-smollm2-135m.svg
	$(BIN)/foredraft bench --model qwen2.5-coder-1.5b --draft qwen2.5-coder-0.5b $(GRID) \
		--arms off,on:lookup:2,on:lookup:8,on:draft_model:4,auto \
		--json $(FIGURES)/grid-qwen2.5-coder-1.5b.json --heat-map $(FIGURES)/grid-qwen2.5-coder-1.5b.svg

docs: $(READY_TO_DEVELOP)
	$(BIN)/python tools/docs.py

$(READY): $(BUILT_FROM)
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("foredraft needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + "; try make PYTHON=python3.12")'
	@command -v "$${CXX:-c++}" > /dev/null || { echo "foredraft needs a C++ compiler; install g++ or clang++, or set CXX" >&2; exit 1; }
	@$(BIN)/python -m pip --version > /dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	$(PIP_INSTALL) --editable .
	@touch $@

$(READY_TO_DEVELOP): $(READY)
	$(PIP_INSTALL) $$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["dev"])')
	@touch $@

clean:
	rm -rf .venv build
