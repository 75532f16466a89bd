# Doors of the project. `make` alone shows them. Every door sets up what it needs by itself.

CARGO ?= cargo
RELEASE := target/release
STANDIN := target/standin
STANDIN_PACKAGES := standin-hal standin-runtime standin-acl-impl standin-acl standin-mstx standin-profiling \
	standin-op-compiler standin-dcmi standin-opapi
TORCH_VENV ?= target/torch-venv

PYTHON ?= python3
VENV := target/venv
HAZARDS_IN_PYTHON := $(wildcard tests/python/test_hazards*.py)
PYTHON_SOURCES := python tests bench examples standin scripts/terminal-picture
# Modules of torch are compiled once and kept, whatever the environment says: compiling them takes longer than most tests.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help build standin demo demo-torch test test-fast test-standin test-torch test-budget test-hazards test-versions \
	torch-venv lint bench test-aarch64 wheel python test-python test-wheel test-browser

help:
	@echo "make build         build the program and its libraries into $(RELEASE)"
	@echo "make demo          record a small leaking job on the stand-in device and show what is found"
	@echo "make demo-torch    the same with torch_npu: train a small transformer that keeps too much"
	@echo "make test          test-fast, test-wheel, test-torch and test-browser"
	@echo "make test-fast     formatting, lints, tests of Rust, C and the Python package, instructions per event"
	@echo "make test-hazards  only what programs do to break a recording, or a recording to break them; part of test-fast"
	@echo "make test-torch    the real torch_npu on the stand-in device"
	@echo "make test-browser  the viewer in Chromium, on recordings of the examples"
	@echo "make test-versions Python stacks with every CPython that can be had, other releases of torch_npu"
	@echo "make bench         measure the cost of recording; writes docs/benchmarks*.md"
	@echo "make test-python   the Python package, without any framework"
	@echo "make test-wheel    install the wheel into a fresh environment and use it"
	@echo "make wheel         build the Python wheel, with the program and the libraries, into dist"
	@echo "make standin       build the stand-in Ascend device into $(STANDIN)"
	@echo "make torch-venv    install torch and torch_npu into $(TORCH_VENV) (1.5 GB)"
	@echo "make test-aarch64  take stacks in emulated aarch64 programs"

build:
	$(CARGO) build --release --workspace

standin:
	$(CARGO) build --release $(addprefix -p ,$(STANDIN_PACKAGES))
	scripts/standin-install $(RELEASE) $(STANDIN)

demo: build standin
	@scripts/demo

# Makes python/ importable: the extension module, the libraries and the program go into the package.
python: build
	scripts/python-package $(RELEASE)

# Tools for building and testing the Python package.
$(VENV)/ready: scripts/python-requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet -r scripts/python-requirements.txt
	touch $@

wheel: python $(VENV)/ready
	mkdir -p target/wheel.data/scripts
	install -m 755 packaging/msmemscope target/wheel.data/scripts/msmemscope
	install -m 755 packaging/msmemscope target/wheel.data/scripts/msleaks
	$(VENV)/bin/maturin build --release --out dist

demo-torch: python standin torch-venv
	@scripts/demo-torch $(TORCH_VENV)/bin/python

# The wheels first: where there is no room for them, nothing else is begun.
test: torch-venv test-fast test-wheel test-torch test-browser

# The tests run the release libraries inside C programs, on the stand-in device.
test-fast: lint build standin test-python
	$(CARGO) test --workspace
	$(MAKE) test-budget

# What is in a module `hazards` of a crate's suite or in tests/python/test_hazards*.py; test-fast runs it with the rest.
test-hazards: build standin
	$(CARGO) test --workspace --test suite hazards::
	$(if $(HAZARDS_IN_PYTHON),$(MAKE) python $(VENV)/ready && $(VENV)/bin/python -m pytest $(HAZARDS_IN_PYTHON))

# Instructions per event of the hot paths; times would depend on the machine's mood.
test-budget: python standin
	python3 bench/instruction_budget.py

# The real framework, from the wheels on PyPI.
torch-venv:
	scripts/torch-venv $(TORCH_VENV)

test-torch: python standin torch-venv
	scripts/standin-run $(TORCH_VENV)/bin/python -m pytest --numprocesses=2 --dist=worksteal tests/torch

test-versions: build python standin
	scripts/test-python-versions
	scripts/test-torch-versions

bench: build python standin
	python3 bench/run.py
	python3 bench/analysis.py
	python3 bench/watch.py
	python3 bench/python.py
	python3 bench/viewer.py

test-python: python standin $(VENV)/ready
	$(VENV)/bin/ruff check $(PYTHON_SOURCES)
	$(VENV)/bin/ruff format --check $(PYTHON_SOURCES)
	$(VENV)/bin/mypy
	$(VENV)/bin/python -m pytest

test-wheel: wheel standin
	scripts/test-wheel

# The front end by itself, then every view in a real browser; left out, in one line, without Node or Chromium.
test-browser: python standin
	TORCH_VENV=$(TORCH_VENV) scripts/test-browser

test-standin: standin
	$(CARGO) test -p standin-support -p standin-truth -p standin-hal -p standin-compute -p standin-testing

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	scripts/check-aarch64
	$(CARGO) check --manifest-path fuzz/Cargo.toml --target-dir target --no-default-features

# Native stacks on the other architecture, emulated.
test-aarch64:
	scripts/test-aarch64
