# Doors of the project. `make` alone shows them. Every door sets up what it needs by itself.

CARGO ?= cargo
# Nothing is built with other versions of foreign crates than those in Cargo.lock.
LOCKED := --locked
RELEASE := target/release
STANDIN := target/standin
TORCH_VENV ?= target/torch-venv
FLEET_VENV ?= target/fleet-venv
MINDSPORE_VERSION ?= 2.10.0
MINDSPORE_VENV ?= target/mindspore-$(MINDSPORE_VERSION)-venv

# How long each test took: see scripts/timed-test.
TEST_TIMES := target/test-times
HOST := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
ARCHITECTURE := $(shell uname -m)
# Properties are tried with the same inputs every time; without the seed `cargo test` looks for new ones.
TIMED_TESTS = TEST_TIMES=$(CURDIR)/$(TEST_TIMES) PROPTEST_RNG_SEED=7 \
	CARGO_TARGET_$(shell echo $(HOST) | tr a-z- A-Z_)_RUNNER=$(CURDIR)/scripts/timed-test
export CARGO_HOME := $(shell scripts/cargo-home $(CURDIR)/target/cargo-home)
# The package of a crate: most are called msmemscope-<name>.
PACKAGE = $(if $(wildcard crates/dev/$(CRATE)),$(CRATE),msmemscope-$(patsubst msmemscope-%,%,$(CRATE)))

PYTHON ?= python3
VENV := target/venv
WHEEL_TOOLS := target/wheel-tools
LOCAL_WHEEL := target/local-wheel
DOCS_VENV := target/docs-venv
HAZARDS := hazards:: security:: supervision:: guest:: bombs:: bad_files:: every_pause_makes_room the_smallest_file_makes_room
HAZARDS_IN_PYTHON := $(wildcard tests/python/test_hazards*.py)
PYTHON_SOURCES := python tests bench examples standin scripts/terminal-picture scripts/python-reference \
	crates/job/recorder/src/import_package.py crates/job/recorder/src/follow_request.py
# Modules of torch are compiled once and kept, whatever the environment says: compiling them takes longer than most tests.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help build standin demo demo-torch test test-fast test-standin test-torch test-budget test-hazards test-versions \
	test-models test-kernels torch-venv lint bench docs test-aarch64 test-old-glibc wheel wheels python test-python \
	test-wheel test-browser test-replay test-flight-recorder test-crate test-fleet test-atb test-frameworks test-mindspore

help:
	@echo "make build         build the program and its libraries into $(RELEASE)"
	@echo "make demo          record a small leaking job on the stand-in device and show what is found"
	@echo "make demo-torch    the same with torch_npu: train a small transformer that keeps too much"
	@echo "make test          test-fast, test-wheel, test-torch and test-browser"
	@echo "make test-fast     formatting, lints, tests of Rust, C and the Python package, instructions per event"
	@echo "make test-crate CRATE=timeline   lints and tests of one crate"
	@echo "make test-hazards  only what programs do to break a recording, or a recording to break them; part of test-fast"
	@echo "make test-torch    the real torch_npu on the stand-in device"
	@echo "make test-browser  the viewer in Chromium, on recordings of the examples"
	@echo "make test-versions Python stacks with every CPython that can be had, other releases of torch_npu"
	@echo "make test-models   real model families of transformers train without a false alarm (150 MB more)"
	@echo "make test-frameworks  the hooks against real frameworks: Trainer, accelerate, DeepSpeed, Megatron-core, verl"
	@echo "make test-kernels  a million kernels, kills, an hour of drifting clocks (DRIFT_SECONDS=60 for less)"
	@echo "make test-replay   the model behind 'replay' against the real allocator: all examples under six settings"
	@echo "make test-flight-recorder  10^8 events through a file of 64 MiB, held against the truth"
	@echo "make test-fleet    a job of 256 ranks as a dataset, asked with DuckDB and a Spark cluster of this machine (1 GB more)"
	@echo "make test-atb      10^5 operations of ATB by four threads, in both ABIs and every order of preloading"
	@echo "make test-mindspore  the real MindSpore on the stand-in device (1.6 GB more; MINDSPORE_VERSION=2.7.0 for another)"
	@echo "make bench         measure the cost of recording; writes docs/benchmarks*.md"
	@echo "make test-python   the Python package, without any framework"
	@echo "make test-wheel    install the wheel and the installer made of it into fresh places, use them, remove them"
	@echo "make wheel         the Python wheel of this architecture, with the program and the libraries, into dist (glibc 2.17)"
	@echo "make wheels        wheels and installers for x86_64 and aarch64 that run on old systems (glibc 2.17)"
	@echo "make standin       build the stand-in Ascend device into $(STANDIN)"
	@echo "make torch-venv    install torch and torch_npu into $(TORCH_VENV) (1.5 GB)"
	@echo "make docs          write the references anew, all pages as a site into target/site, those of the crates into target/doc"
	@echo "make test-aarch64  the aarch64 wheel in an emulated Debian: recording, kills, findings, a training with torch_npu (4 GB)"
	@echo "make test-old-glibc  the x86_64 wheel on Debian 11 (glibc 2.31, Python 3.9)"

build:
	$(CARGO) build $(LOCKED) --release --workspace

# With the whole workspace: on their own the packages would be built with other features of the crates they share, and
# again by whoever builds next.
standin: build
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

$(DOCS_VENV)/ready: scripts/docs-requirements.txt
	$(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/pip install --quiet -r scripts/docs-requirements.txt
	touch $@

# The linker and the tools for wheels that old systems take; 0.5 GB.
$(WHEEL_TOOLS)/ready: scripts/wheel-requirements.txt
	$(PYTHON) -m venv $(WHEEL_TOOLS)
	$(WHEEL_TOOLS)/bin/pip install --quiet -r scripts/wheel-requirements.txt
	touch $@

# Like `wheels`, for machines such as this one only.
wheel: $(WHEEL_TOOLS)/ready
	rm -f dist/*_$(ARCHITECTURE).whl
	scripts/wheels $(WHEEL_TOOLS) $(ARCHITECTURE)

# For x86_64 and aarch64 from one machine, from glibc 2.17 on, and the files that install without a network.
wheels: $(WHEEL_TOOLS)/ready
	rm -f dist/*.whl dist/*.run
	scripts/wheels $(WHEEL_TOOLS)
	scripts/offline-installer target/wheels/build/$(HOST)/release dist dist/*manylinux*2_17_*.whl
	CXX= scripts/standin-cross $(WHEEL_TOOLS) $(ARCHITECTURE) target/wheels/standin
	scripts/test-installer dist/msmemscope-*-$(ARCHITECTURE).run target/wheels/standin
	rm -rf target/wheels/unpacked
	$(PYTHON) -m zipfile -e dist/*_$(ARCHITECTURE).whl target/wheels/unpacked
	chmod 755 target/wheels/unpacked/msmemscope/bin/msmemscope.bin
	STANDIN_HOME=$(CURDIR)/target/wheels/standin $(PYTHON) bench/instruction_budget.py --package target/wheels/unpacked

demo-torch: python standin torch-venv
	@scripts/demo-torch $(TORCH_VENV)/bin/python

# The wheels first: where there is no room for them, nothing else is begun.
test: torch-venv test-fast test-wheel test-torch test-browser

# The tests run the release libraries inside C programs, on the stand-in device.
test-fast: lint build standin test-python
	@rm -f $(TEST_TIMES) $(TEST_TIMES).unsteady
	$(TIMED_TESTS) $(CARGO) test $(LOCKED) --workspace
	@scripts/slowest-tests $(TEST_TIMES)
	$(MAKE) test-budget

# One crate by its short name, with its lints: make test-crate CRATE=timeline. Tests that run programs need `make build
# standin` first, and say so if what was built is older than its sources.
test-crate:
	$(if $(CRATE),,$(error which crate? make test-crate CRATE=timeline))
	$(CARGO) fmt --all --check
	$(CARGO) clippy $(LOCKED) -p $(PACKAGE) --all-targets -- -D warnings
	@rm -f $(TEST_TIMES) $(TEST_TIMES).unsteady
	$(TIMED_TESTS) $(CARGO) test $(LOCKED) -p $(PACKAGE)
	@scripts/slowest-tests $(TEST_TIMES) 5

# What is in a module `hazards` of a crate's suite or in tests/python/test_hazards*.py, and modules that are about nothing
# else: hostile files and users, signals, closed terminals, full disks. test-fast runs all of it with the rest.
test-hazards: build standin
	$(CARGO) test $(LOCKED) --workspace --test suite -- $(HAZARDS)
	$(if $(HAZARDS_IN_PYTHON),$(MAKE) python $(VENV)/ready && $(VENV)/bin/python -m pytest $(HAZARDS_IN_PYTHON))

# Instructions per event of the hot paths; times would depend on the machine's mood.
test-budget: python standin
	python3 bench/instruction_budget.py

# The real framework, from the wheels on PyPI.
torch-venv:
	scripts/torch-venv $(TORCH_VENV)

test-torch: python standin torch-venv
	scripts/standin-run scripts/pytest-twice $(TORCH_VENV)/bin/python --numprocesses=2 --dist=worksteal tests/torch

# Not part of `make test`: it installs transformers and its friends.
test-models: python standin torch-venv
	scripts/models-venv target/models-venv $(TORCH_VENV)
	scripts/standin-run target/models-venv/bin/python -m pytest tests/models

# Not part of `make test`: an environment of its own with the real frameworks (0.7 GB more).
test-frameworks: python standin torch-venv
	scripts/frameworks-venv target/frameworks-venv $(TORCH_VENV)
	scripts/standin-run target/frameworks-venv/bin/python -m pytest tests/frameworks

# Not part of `make test`: the clocks of cards drift for an hour.
test-kernels: build standin $(VENV)/ready
	$(VENV)/bin/python -m pytest -rP tests/kernels

# Not part of `make test`, where tests/torch/test_replay.py asks about two examples: it runs every example six times.
test-replay: python standin torch-venv
	scripts/standin-run $(TORCH_VENV)/bin/python -m pytest tests/replay

# Not part of `make test`, which sends five million events through 8 MiB: a hundred million through 64 MiB.
test-flight-recorder:
	$(CARGO) test $(LOCKED) --release --package msmemscope-trace --test suite -- --ignored --nocapture a_hundred_million

# Not part of `make test`: it installs PySpark, and Java if there is none.
test-fleet: python standin torch-venv
	$(CARGO) build $(LOCKED) --release --package made-recordings --example made_fleet
	scripts/fleet-venv $(FLEET_VENV)
	$(FLEET_VENV)/bin/python -m pytest tests/fleet
# Not part of `make test`: it installs MindSpore, 0.8 GB to download.
test-mindspore: python standin
	scripts/mindspore-venv $(MINDSPORE_VENV) $(MINDSPORE_VERSION)
	STANDIN_HOME=$(CURDIR)/$(MINDSPORE_VENV)/standin/latest scripts/standin-run \
		$(MINDSPORE_VENV)/bin/python -m pytest tests/mindspore
# Not part of `make test`, which runs the same with fewer operations.
test-atb: build standin
	ATB_LAYERS=5000 $(CARGO) test $(LOCKED) -p msmemscope-recorder --test suite atb::

test-versions: build python standin
	scripts/test-python-versions
	scripts/test-torch-versions

bench: build python standin
	python3 bench/run.py
	python3 bench/analysis.py
	python3 bench/watch.py
	python3 bench/kernels.py
	python3 bench/atb.py
	python3 bench/python.py
	python3 bench/viewer.py
	python3 bench/export.py
	python3 bench/replay.py
	python3 bench/fleet.py

# The references from the code, then all pages as a site; a link that leads nowhere fails.
docs: $(DOCS_VENV)/ready
	UPDATE_GOLDEN=1 $(CARGO) test -q -p msmemscope-config reference_page
	scripts/python-reference
	scripts/docs-site $(DOCS_VENV)
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" $(CARGO) doc $(LOCKED) --workspace --no-deps --document-private-items

test-python: python standin $(VENV)/ready
	$(VENV)/bin/ruff check $(PYTHON_SOURCES)
	$(VENV)/bin/ruff format --check $(PYTHON_SOURCES)
	$(VENV)/bin/mypy
	scripts/pytest-twice $(VENV)/bin/python

# What is built anyway, packed: compiling once more for old systems, as `wheel` does, is not part of `make test`.
test-wheel: python standin $(VENV)/ready
	scripts/local-wheel $(VENV) $(LOCAL_WHEEL)
	scripts/test-wheel $(LOCAL_WHEEL)
	scripts/offline-installer $(RELEASE) target $(LOCAL_WHEEL)/*.whl
	scripts/test-installer target/msmemscope-*-$(ARCHITECTURE).run $(STANDIN)

# The front end by itself, then every view in a real browser; left out, in one line, without Node or Chromium.
test-browser: python standin $(VENV)/ready
	$(CARGO) build $(LOCKED) --release --package made-recordings --example viewer_input --example made_fleet
	VENV=$(VENV) TORCH_VENV=$(TORCH_VENV) scripts/test-browser

test-standin: standin
	$(CARGO) test $(LOCKED) -p standin-support -p standin-truth -p standin-hal -p standin-compute -p standin-testing

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy $(LOCKED) --workspace --all-targets -- -D warnings
	scripts/check-aarch64
	$(CARGO) check $(LOCKED) --manifest-path fuzz/Cargo.toml --target-dir target --no-default-features

# Not part of `make test`: emulated, and with another torch.
test-aarch64: $(VENV)/ready $(WHEEL_TOOLS)/ready
	scripts/test-aarch64 $(VENV) $(WHEEL_TOOLS)

# Not part of `make test`: it takes the packages of an old release and builds a Python there.
test-old-glibc: $(VENV)/ready $(WHEEL_TOOLS)/ready
	scripts/test-old-glibc $(VENV) $(WHEEL_TOOLS)
