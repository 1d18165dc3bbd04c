# `make demo` and `make test` set up everything on a machine with Python 3.11+ and make.
PYTHON ?= python3
TORCH ?= torch==2.13.0
BIN := .venv/bin
# Always keep compiled bytecode. Otherwise each of hundreds of test processes compiles the sources again.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# The tests of the page need Chromium. If it cannot be installed, they are skipped with a message.
define BROWSER
command -v chromium > /dev/null || { echo "Setting up Chromium for the tests of the page (once) ..."; \
  { apt-get update -qq && apt-get install -y -qq chromium fonts-noto-cjk; } > /dev/null 2>&1; } \
  || echo "Chromium is missing and could not be installed: the tests of the page are skipped"
endef

# One test process more than cores, because tests also wait.
# At most four processes, because each needs more than 1 GB.
WORKERS := $(shell $(PYTHON) -c 'import os; cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2; print(min(4, cores + 1))' 2> /dev/null || echo 3)
PYTEST = $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal
# The quick tests are a thousand tests in half a minute: source rules, layers, tokenizers, data.
NOT_QUICK := %/test_documents.py %/test_dependencies.py %/test_layers.py
QUICK := $(filter-out $(NOT_QUICK),$(wildcard tests/architecture/test_*.py)) tests/golden \
	tests/unit/nn tests/unit/model tests/unit/text tests/unit/metrics tests/unit/data

.PHONY: demo test test-all check lesson docs clean

demo: .venv/extras
	$(BIN)/attendo demo

# Test every guarantee with few cases. Shape checks are enabled for the network tests only.
test: .venv/dev
	$(PYTEST) -m "not slow"

# All tests, with shape checks. Server and reliability tests run one at a time, because some measure time.
MEASURE := tests/reliability tests/unit/serve
test-all: .venv/all check
	ATTENDO_SHAPES=all $(PYTEST) $(addprefix --ignore ,$(MEASURE)); most=$$?; \
	ATTENDO_SHAPES=all $(BIN)/python -m pytest $(MEASURE) && exit $$most

# Type checks run in parallel with the tests: each uses one core.
check: .venv/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy & types=$$!; $(PYTEST) -q -m "not slow" $(QUICK); tests=$$?; wait $$types && exit $$tests

# Rebuild numbers, outputs and pictures of docs/lesson from its code; GALLERY=--gallery also repeats its experiments.
lesson: .venv/dev
	$(BIN)/python docs/lesson/build.py $(GALLERY)

# The documentation as a web site in site/, with the page of the demo's model. It opens from disk: site/index.html.
SENTENCE := The child who likes juice is her classmate
docs: .venv/docs runs/demo/model
	@mkdir -p site
	$(BIN)/attendo trace runs/demo/model "$(SENTENCE)" --html site/live.html
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs site
	@echo "Open site/index.html"

runs/demo/model: | .venv/extras
	$(BIN)/attendo demo

clean:
	rm -rf site .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Check that PYTHON exists, is new enough and can create virtual environments. Each check has one error line.
define PYTHON_CHECK
command -v "$(PYTHON)" > /dev/null || { echo "make: there is no $(PYTHON) here: install Python 3.11 or newer, or name one with make PYTHON=..." >&2; exit 1; }; \
"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: attendo needs Python 3.11 or newer, not $$("$(PYTHON)" -V 2>&1): name one with make PYTHON=..." >&2; exit 1; }; \
"$(PYTHON)" -c 'import ensurepip, venv' 2> /dev/null || { echo "make: $(PYTHON) cannot make virtual environments: apt install python3-venv (Debian, Ubuntu), or name another with make PYTHON=..." >&2; exit 1; }
endef
PIP_FAILED = { echo "make: pip could not install this: check the network and the disk; the next make continues here" >&2; exit 1; }

# Install torch first: as a dependency, pip may choose a newer build with gigabytes of CUDA.
# An environment without pip, after an interrupted set-up, is created again; one with pip is kept.
.venv/core: pyproject.toml constraints.txt
	@$(PYTHON_CHECK)
	@echo "Setting up .venv (once; torch is the large part) ..."
	@$(BIN)/python -c 'import pip' 2> /dev/null || "$(PYTHON)" -m venv --clear .venv
	$(PIP) $(TORCH) || $(PIP_FAILED)
	$(PIP) --editable . || $(PIP_FAILED)
	@touch $@

# Packages for the commands of the README. The demo runs without them: if an extra cannot be installed, make prints a message.
.venv/extras: .venv/core
	@echo "Setting up the packages of evaluate, plot, explore, serve, export and import (once) ..."
	@if $(PIP) --editable '.[all]'; then touch $@; \
	else echo "make: some extras could not be installed; a command that needs one names it" >&2; fi

.venv/dev: .venv/core
	$(PIP) --editable '.[dev]' || $(PIP_FAILED)
	@$(BROWSER)
	@touch $@

# Ray and pyarrow are large, and few tests need them. One test builds the documentation.
.venv/all: .venv/dev
	$(PIP) --editable '.[dev,docs,ray,corpora]' || $(PIP_FAILED)
	@touch $@

.venv/docs: .venv/core
	$(PIP) --editable '.[docs]' || $(PIP_FAILED)
	@touch $@
