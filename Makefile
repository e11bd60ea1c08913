# `make demo` and `make test` are all that a fresh machine needs. Variables: PYTHON, VENV, CONSTRAINTS, DEMO_FLAGS, TEST_FLAGS,
# BUNDLE_PYTHON.
SHELL := /bin/bash

PYTHON ?= $(shell for python in python3.12 python3.11 python3; do \
	$$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null && echo $$python && break; done)
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
DEMO_FLAGS ?= --quick
TEST_FLAGS ?= -n auto
BUNDLE_PYTHON ?= 3.12

BIN := $(VENV)/bin
# uv resolves torch in seconds where pip takes minutes; pip brings it along where the machine has none.
UV = $(shell command -v uv || echo $(BIN)/uv)
INSTALL = $(UV) pip install --quiet --python $(BIN)/python $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS))

.PHONY: demo test test-quick test-deep check format docs bundle setup bubblewrap clean

demo: setup
	$(BIN)/grader grade submissions --db demo.db $(DEMO_FLAGS)
	$(BIN)/grader leaderboard --db demo.db
	$(BIN)/grader leaderboard --db demo.db --board forward

test: setup
	$(BIN)/python -m pytest $(TEST_FLAGS)

test-quick: setup
	$(BIN)/python -m pytest $(TEST_FLAGS) -m "not slow and not deep"

test-deep: setup
	$(BIN)/python -m pytest $(TEST_FLAGS) -m deep

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup
	$(INSTALL) --editable '.[docs]'
	$(BIN)/mkdocs build --strict --quiet

# For a GPU host without a network: x86-64, Python $(BUNDLE_PYTHON), a torch of its own.
bundle: setup
	PYTHON=$(BIN)/python UV=$(UV) BUNDLE_PYTHON=$(BUNDLE_PYTHON) scripts/bundle/make

setup: bubblewrap $(VENV)/.ready

$(VENV)/.ready: pyproject.toml $(CONSTRAINTS)
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or 3.12 on PATH; install one, or name it: make PYTHON=..." >&2; exit 1; }
	test -x $(BIN)/python || { command -v uv >/dev/null && uv venv --python $(PYTHON) $(VENV); } || $(PYTHON) -m venv $(VENV)
	command -v uv >/dev/null || test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet uv
	$(INSTALL) --editable '.[dev]'
	nvcc=$$($(BIN)/python -m grader.machine.toolchain) && { test -z "$$nvcc" || $(INSTALL) "$$nvcc"; }
	@# Workers cannot write into the environment: compile what is imported once, here, whatever the shell's Python is told.
	$(BIN)/python -W ignore -c 'import sys; sys.dont_write_bytecode = False; \
		import alembic.command, cuda.bindings.driver, jinja2, pydantic, pygments, rich.progress, sqlmodel, typer; \
		import torch.utils.cpp_extension, torch.utils.flop_counter' 2>/dev/null
	touch $@

bubblewrap:
	@command -v bwrap >/dev/null || { test $$(id -u) = 0 && command -v apt-get >/dev/null \
		&& apt-get update --quiet --quiet && apt-get install --quiet --quiet --yes --no-install-recommends bubblewrap; } \
		|| { echo "bubblewrap is missing, and submissions are not run without it: apt-get install bubblewrap" >&2; exit 1; }

clean:
	rm -rf $(VENV) build dist bundle bundle.tar.gz site .mypy_cache .pytest_cache .ruff_cache demo.db demo.db-shm demo.db-wal
