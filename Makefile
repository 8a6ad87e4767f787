# `make` alone lists the targets. `make sandbox` and `make test` do all their set-up themselves.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV ?= .venv# where everything that is installed or compiled goes
JOBS ?= $(shell echo $$(( $$(nproc) + 1 )))# tests side by side; many wait for an engine rather than compute
COVERAGE ?=# percent of lines and branches that the tests must reach; measured if it is set, which CI does
TESTS ?= tests

# What the user typed goes to the sandbox as it stands: taken unexpanded, handed over in the environment. Exporting
# CMD itself would let make expand it, and run a $(shell …) in it on this machine.
unexport CMD WORKSPACE
export BELLJAR_MAKE_CMD := $(value CMD)
export BELLJAR_MAKE_WORKSPACE := $(or $(value WORKSPACE),.)

BIN := $(VENV)/bin
CHECK_PYTHON = "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
  { echo 'belljar: Python 3.11 or newer is needed (PYTHON=…)' >&2; exit 1; }
SETUP = @$(CHECK_PYTHON); "$(PYTHON)" -B sandbox-images/setup --venv "$(VENV)"

.PHONY: help setup engine images sandbox test browser-test lint format lock fresh vm-test kubernetes-test adapters-test aarch64-test projects bench bench-scale soak fuzz mutants deb deb-test cast sbom clean

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

setup: ## a virtual environment with the tools for tests, and the init compiled
	$(SETUP) test </dev/null >&2

engine: ## a Docker or Podman that answers, installed and started if need be
	$(SETUP) engine </dev/null >&2

images: ## the base image, built if it is missing
	$(SETUP) images </dev/null >&2

sandbox: images ## a safe shell on WORKSPACE=dir; CMD='…' runs one command, lines on stdin run one by one
	@if [ -n "$$BELLJAR_MAKE_CMD" ]; then exec "$(BIN)/belljar" run --workspace "$$BELLJAR_MAKE_WORKSPACE" "$$BELLJAR_MAKE_CMD"; \
	elif [ -t 0 ]; then "$(BIN)/belljar" shell --workspace "$$BELLJAR_MAKE_WORKSPACE" || [ $$? -ne 125 ]; \
	else exec "$(BIN)/belljar" shell --workspace "$$BELLJAR_MAKE_WORKSPACE"; fi

test: ## everything the tests can prove, in real containers
	$(SETUP) test engine images </dev/null >&2
	@env -u PYTHONDONTWRITEBYTECODE "$(BIN)/python" -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -m 'not soak' $(TESTS) </dev/null \
	  $(if $(strip $(COVERAGE)),--cov --cov-report=term --cov-fail-under=$(strip $(COVERAGE)))

browser-test: ## the dashboard in a real Chromium, which it installs (Debian, root)
	$(SETUP) test engine images </dev/null >&2
	@command -v chromium >/dev/null || apt-get install -y --no-install-recommends chromium fonts-dejavu-core >&2
	@"$(BIN)/python" -m pytest -n 2 --dist loadfile tests/surfaces/http/dashboard </dev/null

lint: setup ## ruff, mypy, shellcheck and clang-format
	@"$(BIN)/ruff" check
	@"$(BIN)/ruff" format --check
	@"$(BIN)/mypy"
	@if [ -x "$(BIN)/shellcheck" ]; then "$(BIN)/shellcheck" sandbox-images/*.sh .ci/run src/belljar/session/*.bash src/belljar/surfaces/cli/*.bash; fi
	@"$(BIN)/clang-format" --dry-run --Werror sandbox-images/init/*.[ch] src/belljar/surfaces/local/client.c

format: setup ## let ruff and clang-format write the code as it should be
	@"$(BIN)/ruff" check --fix
	@"$(BIN)/ruff" format
	@"$(BIN)/clang-format" -i sandbox-images/init/*.[ch] src/belljar/surfaces/local/client.c

lock: ## renew sandbox-images/setup/lock/*.txt: the versions and hashes that set-up installs
	@$(CHECK_PYTHON); "$(PYTHON)" -B sandbox-images/setup/lock.py

fresh: ## the README's two commands in bare Debian trees, as root and as a user (needs root and mmdebstrap)
	@$(CHECK_PYTHON); "$(PYTHON)" -B -m tests.fresh $(TREES)

vm-test: ## a part of the tests in a virtual machine with cgroup v2 (needs root; emulated it takes more than an hour)
	$(SETUP) test engine images </dev/null >&2
	@"$(BIN)/python" -m tests.vm $(PLATFORMS)

kubernetes-test: ## the engine kubernetes on a cluster of two nodes, built once from Debian's sources (needs root; 10 minutes, then 20)
	$(SETUP) test engine images </dev/null >&2
	@"$(BIN)/python" -m tests.kubernetes $(PARTS)

adapters-test: ## agent frameworks on Belljar, each judged by its own suite; NAMES='inspect mini' chooses
	$(SETUP) test engine images </dev/null >&2
	@"$(BIN)/python" -m tests.adapters $(NAMES)

aarch64-test: setup ## the init's commands and kept output on aarch64, emulated by qemu (needs root and Linux 6.7; 2 minutes)
	@"$(BIN)/python" -m tests.aarch64

projects: ## the suites of three real projects (Python, C, Node), inside and outside (needs the image dev)
	$(SETUP) test engine images </dev/null >&2
	@"$(BIN)/python" -m pytest -n 0 tests/projects.py </dev/null

bench: ## the table of timings, next to native subprocess and docker exec
	$(SETUP) test engine images </dev/null >&2
	@"$(BIN)/python" -m tests.bench

bench-scale: ## a thousand idle sandboxes on the engine oci: start, memory, speed beside them, end (BELLJAR_BENCH_SCALE=N)
	$(SETUP) test engine images </dev/null >&2
	@"$(BIN)/python" -m tests.bench.scale

soak: ## an hour of mixed work, and an hour of a service: leaks, orphans, drift
	$(SETUP) test engine images </dev/null >&2
	@"$(BIN)/python" -m pytest -m soak $(TESTS) </dev/null
	@"$(BIN)/python" -m tests.soak
	@"$(BIN)/python" -m tests.soak_service

fuzz: setup ## the policy, the frame parsers and the link, at length; FUZZ='10 link' says how many minutes and what
	@"$(BIN)/python" -c 'import atheris' 2>/dev/null || "$(BIN)/python" -m pip install -q --only-binary :all: 'atheris>=3'
	@"$(BIN)/python" -m tests.fuzz $(FUZZ)

mutants: setup images ## do the tests notice changes in code that holds a protection? an hour (needs root); MUTANTS='20 staged' chooses
	@"$(BIN)/python" -m tests.mutants $(MUTANTS)

deb: setup ## a Debian package of this checkout, in dist/
	@"$(BIN)/python" sandbox-images/package/deb.py

deb-test: setup ## builds it twice, installs, uses and removes it in a bare Debian (needs root and mmdebstrap)
	@"$(BIN)/python" -m tests.deb

cast: setup images ## the README's picture, from a terminal in which its commands are run
	@"$(BIN)/python" -m tests.cast

sbom: setup ## what the package consists of, as CycloneDX JSON
	@"$(BIN)/python" sandbox-images/package/sbom.py

clean: ## remove what these targets made here, and ended sandboxes; images and the engine stay
	@test ! -x "$(BIN)/belljar" || "$(BIN)/belljar" prune >&2 || true
	@rm -rf "$(VENV)" .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist src/belljar/_init
	@find src tests sandbox-images -name __pycache__ -type d -prune -exec rm -rf {} +
