# On a fresh machine, `make demo` and `make test` set up what they need. Variables: PYTHON, VENV, CONSTRAINTS, DEMO_FLAGS,
# TEST_FLAGS, BUNDLE_PYTHON.
SHELL := /bin/bash

PYTHON ?= $(shell for python in python3.12 python3.13 python3.14 python3.11 python3; do \
	$$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null && echo $$python && break; done)
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
DEMO_FLAGS ?= --quick
# worksteal keeps neighbouring tests in one process, so that they share a started grader.
# Half as many again as there are cores: tests wait for processes and files.
TEST_FLAGS ?= -n $(shell echo $$(($$(nproc) * 3 / 2))) --dist worksteal
# OpenMP's threads do not spin on cores that other tests need.
SHARED = OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest $(TEST_FLAGS)
BUNDLE_PYTHON ?= 3.12

# Hundreds of processes import the same modules, and pytest rewrites its own.
export PYTHONDONTWRITEBYTECODE =

BIN := $(VENV)/bin
# uv resolves torch in seconds, pip takes minutes. Where uv is missing, pip installs it.
UV = $(shell command -v uv || echo $(BIN)/uv)
INSTALL = $(UV) pip install --quiet --python $(BIN)/python $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS))

.PHONY: demo test test-quick test-deep check dependencies format docs bundle setup bubblewrap clean

demo: setup
	$(BIN)/grader grade submissions --db demo.db $(DEMO_FLAGS)
	$(BIN)/grader leaderboard --db demo.db --format table
	$(BIN)/grader leaderboard --db demo.db --board forward --format table

# Tests that measure time are marked `alone`: they run one by one, after the others.
test: setup
	$(SHARED) -m "not alone and not deep"
	$(BIN)/python -m pytest -n 0 -m "alone and not deep"

test-quick: setup
	$(SHARED) -m "not slow and not alone and not deep"

test-deep: setup
	$(SHARED) -m "deep and not alone"
	$(BIN)/python -m pytest -n 0 -m "deep and alone"

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -n 0 tests/test_imports.py tests/test_language.py

# That wheels of all dependencies exist for each Python that is supported, within the constraints.
dependencies: setup
	for python in 3.11 3.12 3.13 3.14; do \
		$(UV) pip compile --quiet --only-binary :all: --constraint constraints.txt --python-version $$python \
			--all-extras pyproject.toml >/dev/null && echo "Python $$python: every dependency has a wheel" || exit 1; done

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup
	$(INSTALL) --editable '.[docs]'
	$(BIN)/python -m scripts.reference_pages
	$(BIN)/mkdocs build --strict --quiet

# For a GPU host without a network: x86-64, Python $(BUNDLE_PYTHON), its own torch.
bundle: setup
	PYTHON=$(BIN)/python UV=$(UV) BUNDLE_PYTHON=$(BUNDLE_PYTHON) scripts/bundle/make

setup: bubblewrap $(VENV)/.ready

$(VENV)/.ready: pyproject.toml $(CONSTRAINTS)
	@test -n "$(PYTHON)" || { echo "no Python 3.11 to 3.14 on PATH: install one, or set it: make PYTHON=..." >&2; exit 1; }
	test -x $(BIN)/python || { command -v uv >/dev/null && uv venv --python $(PYTHON) $(VENV); } || $(PYTHON) -m venv $(VENV)
	command -v uv >/dev/null || test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet uv
	$(INSTALL) --editable '.[dev]'
	nvcc=$$($(BIN)/python -m grader.machine.toolchain) && { test -z "$$nvcc" || $(INSTALL) "$$nvcc"; }
	@# Byte-compile here what programs and workers import: workers cannot write into the environment, and for
	@# torch.compile each would compile its modules anew, which takes five seconds.
	$(BIN)/python -W ignore -c 'import alembic.command, cuda.bindings.driver, fastapi, hypothesis, jinja2, \
		playwright.sync_api, prometheus_client, pyarrow, pydantic, pygments, rich.progress, sqlmodel, typer, uvicorn, yaml; \
		import torch._dynamo, torch._inductor.compile_fx, torch.utils.cpp_extension, torch.utils.flop_counter; \
		import grader.cli.grade, grader.grading.pipeline, grader.report.site.pages, grader.serve.run' 2>/dev/null
	touch $@

bubblewrap:
	@command -v bwrap >/dev/null || { test $$(id -u) = 0 && command -v apt-get >/dev/null \
		&& apt-get update --quiet --quiet && apt-get install --quiet --quiet --yes --no-install-recommends bubblewrap; } \
		|| { echo "bubblewrap is missing and submissions do not run without it: apt-get install bubblewrap" >&2; exit 1; }

clean:
	rm -rf $(VENV) build dist bundle bundle.tar.gz site .mypy_cache .pytest_cache .ruff_cache demo.db demo.db-shm demo.db-wal
