# `make demo` and `make test` do all the set-up on a machine that has Python 3.11+ and make.
PYTHON ?= python3
TORCH ?= torch==2.13.0
BIN := .venv/bin
# Compiled code is kept, whatever the shell says: hundreds of processes of the tests would compile it anew.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Tests of the page drive a Chromium. Where it cannot be installed they are skipped, and say so.
define BROWSER
command -v chromium > /dev/null || { echo "Setting up Chromium for the tests of the page (once) ..."; \
  { apt-get update -qq && apt-get install -y -qq chromium fonts-noto-cjk; } > /dev/null 2>&1; } \
  || echo "No Chromium here, and none could be installed: tests of the page will be skipped"
endef

# One process of tests a core, two at least, for tests also wait; four at most, for each takes more than a gigabyte.
WORKERS := $(shell $(PYTHON) -c 'import os; cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2; print(max(2, min(4, cores)))' 2> /dev/null || echo 2)
PYTEST = $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal
# Tests that take seconds, all of them together.
QUICK := architecture/test_short_form.py

.PHONY: demo test test-all check lesson clean

demo: .venv/core
	$(BIN)/attendo demo

# Every promise in its short form. Shapes are checked in the tests beside the network.
test: .venv/dev
	$(PYTEST) -m "not slow"

# Everything, one test at a time, for some of them measure; shapes are checked in all.
test-all: .venv/all check
	ATTENDO_SHAPES=all $(BIN)/python -m pytest

# Types are checked beside the tests: each keeps one core busy.
check: .venv/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy & types=$$!; $(PYTEST) -q -m "not slow" $(QUICK:%=tests/%); tests=$$?; wait $$types && exit $$tests

# The numbers, outputs and pictures of docs/lesson, from its code; GALLERY=--gallery also runs its experiments anew.
lesson: .venv/dev
	$(BIN)/python docs/lesson/build.py $(GALLERY)

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis

# torch comes first and alone: asked for by another package it may bring a newer build with gigabytes of CUDA.
.venv/core: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "attendo needs Python 3.11 or newer, not " + sys.version.split()[0] + ": name one with make PYTHON=...")'
	@echo "Setting up .venv (once; torch is the large part) ..."
	$(PYTHON) -m venv .venv
	$(PIP) $(TORCH)
	$(PIP) --editable .
	@touch $@

.venv/dev: .venv/core
	$(PIP) --editable '.[dev]'
	@$(BROWSER)
	@touch $@

# Ray is large, and one test needs it.
.venv/all: .venv/dev
	$(PIP) --editable '.[dev,ray]'
	@touch $@
