# `make` alone lists the targets. `make sandbox` and `make test` do all their set-up themselves.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
BIN := .venv/bin
COVERAGE ?= 90# percent of lines and branches that the tests must reach
TESTS ?= tests

# What the user typed goes to the sandbox as it stands: taken unexpanded, handed over in the environment. Exporting
# CMD itself would let make expand it, and run a $(shell …) in it on this machine.
unexport CMD WORKSPACE
export BELLJAR_MAKE_CMD := $(value CMD)
export BELLJAR_MAKE_WORKSPACE := $(or $(value WORKSPACE),.)

LOCKED := $(if $(shell command -v flock),flock Makefile)
INIT_SOURCES := $(wildcard sandbox-images/init/*.c sandbox-images/init/*.h sandbox-images/init/build.py)

.PHONY: help setup engine images sandbox test lint bench soak fuzz clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

setup: .venv/.compiled ## a .venv with everything, and the init compiled

.venv/.packages: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo 'belljar: Python 3.11 or newer is needed (PYTHON=…)' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || $(LOCKED) sandbox-images/venv.sh
	@$(LOCKED) bash -euc 'test $@ -nt pyproject.toml && exit; echo "belljar: setting up .venv"; test -x $(BIN)/pip || $(PYTHON) -m venv .venv; \
	  $(BIN)/pip install -q --disable-pip-version-check "hatchling>=1.26" "ziglang>=0.13"; \
	  $(BIN)/pip install -q --disable-pip-version-check --no-build-isolation -e ".[dev]"; touch $@' >&2

.venv/.init: .venv/.packages $(INIT_SOURCES)
	@$(LOCKED) bash -euc '$(BIN)/python sandbox-images/init/build.py host; touch $@' >&2

# Where PYTHONDONTWRITEBYTECODE is set Python would compile every module anew at each start of the command line.
.venv/.compiled: .venv/.init $(wildcard src/belljar/*.py src/belljar/*/*.py)
	@$(BIN)/python -m compileall -q src/belljar >&2; touch $@

engine: ## an engine that answers, installed and started if need be
	@sandbox-images/engine.sh >&2

images: setup engine ## the base image, built if it is missing
	@$(BIN)/belljar images build base >/dev/null

sandbox: ## a safe shell on WORKSPACE=dir; CMD='…' runs one command, lines on stdin run one by one
	@$(MAKE) images </dev/null >&2
	@if [ -n "$$BELLJAR_MAKE_CMD" ]; then exec $(BIN)/belljar run --workspace "$$BELLJAR_MAKE_WORKSPACE" "$$BELLJAR_MAKE_CMD"; \
	else exec $(BIN)/belljar shell --workspace "$$BELLJAR_MAKE_WORKSPACE"; fi

test: images ## everything the tests can prove, in real containers
	@$(BIN)/python -m pytest --cov --cov-report=term --cov-fail-under=$(COVERAGE) $(TESTS) </dev/null

lint: setup ## ruff, mypy, and shellcheck where it is installed
	@$(BIN)/ruff check src tests sandbox-images
	@$(BIN)/mypy
	@if command -v shellcheck >/dev/null; then shellcheck sandbox-images/*.sh .ci/run; fi

bench: images ## the table of timings, next to native subprocess and docker exec
	@$(BIN)/python -m tests.bench

soak: images ## hours of use in minutes: leaks, orphans, drift
	@$(BIN)/python -m tests.soak

fuzz: setup ## the policy and the frame parsers, at length (by hand)
	@$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/pip install -q --disable-pip-version-check --no-build-isolation -e ".[fuzz]"
	@$(BIN)/python -m tests.fuzz

clean: ## remove what these targets made here, and ended sandboxes; images and the engine stay
	@test ! -x $(BIN)/belljar || $(BIN)/belljar prune >&2 || true
	@rm -rf .venv .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist src/belljar/_init
	@find src tests sandbox-images -name __pycache__ -type d -prune -exec rm -rf {} +
