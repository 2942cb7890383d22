# Two commands do everything on a fresh machine: `make run` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: run test bench results lint install clean

# Train on the generated Minesweeper board and print what it reached.
run: install
	$(BIN)/polyformer train

# Everything that CI runs.
test: install lint
	POLYFORMER_KERNEL=native $(BIN)/python -c "from polyformer.native import kernel_name; assert kernel_name() == 'native'"
	$(BIN)/python -m pytest --cov=polyformer --cov-report=term-missing:skip-covered $(PYTEST_ARGS)

# Ratios against scipy, torch and a literal implementation, growth, scores, large graphs; an hour or more.
bench: install
	$(BIN)/python -m benchmarks

# The page of all tables, from the records under results/.
results: install
	$(BIN)/polyformer reproduce --page docs/results.md

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

install: $(INSTALLED)

$(INSTALLED): pyproject.toml setup.py constraints.txt $(wildcard src/polyformer/native/*.cpp src/polyformer/native/*.h)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt setuptools wheel
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) build src/*.egg-info src/polyformer/native/*.so
