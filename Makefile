# Everything a developer runs. On a fresh machine `make demo` or `make test` is enough: it needs Python 3.11 or
# newer with venv, make and git. What is installed goes to .venv; a second run installs nothing.

PYTHON ?= python3
# Pinned here and not in pyproject.toml: users may train with any torch from 2.5 on, the tests run with this one.
TORCH ?= torch==2.13.0
# Test processes at once.
JOBS ?= 2

VENV := .venv
BIN := $(VENV)/bin
# Not compiled here: what is imported gets compiled then, and most of what is installed never is.
INSTALL := $(BIN)/python -m pip --disable-pip-version-check --quiet install --no-compile

MADE := $(VENV)/.made
CORE := $(VENV)/.core
DEV := $(VENV)/.dev
NODE := $(VENV)/.node
# Names the npm package that two of the bench's methods need, and its version.
AUGURS := src/trainminder/bench/methods/augurs.py

.PHONY: help demo test lint docs models bench bench-page clean
.DELETE_ON_ERROR:

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-10s %s\n", $$1, $$2}' Makefile

demo: $(CORE) ## Simulate a task with a fault, find it, write the report
	@$(BIN)/trainminder demo

test: lint $(NODE) ## Lint, then all tests; installs the servers they need
	@tools/install_servers.sh
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(PYTEST_ARGS)

lint: $(DEV) ## Ruff, mypy, and the direction of imports
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports

docs: $(DEV) ## Write the reference pages: settings, commands, metrics
	@$(BIN)/python tools/build_docs.py

models: $(DEV) ## Train the shipped denoising models again
	@$(BIN)/python tools/build_models.py

bench: $(DEV) ## Time a pass and the start of the command line
	@$(BIN)/python benchmarks/start.py
	@$(BIN)/python benchmarks/pass.py

bench-page: $(DEV) $(NODE) ## Compare the methods on the standard set; write docs/bench.md and the thresholds
	@$(BIN)/trainminder bench --page docs/bench.md --write-thresholds src/trainminder/bench/thresholds.toml

clean: ## Remove .venv and everything that was built
	@rm -rf $(VENV) build dist demo bench-results .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .grimp_cache
	@find src tests tools benchmarks -name __pycache__ -prune -exec rm -rf {} +

$(MADE):
	@command -v $(PYTHON) >/dev/null || { \
	  echo "error: $(PYTHON) is not there: install Python 3.11 or newer, or say make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: $(PYTHON) is $$($(PYTHON) --version 2>&1), and Python 3.11 or newer is needed:" \
	    "say make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "error: $(PYTHON) cannot make virtual environments: install its venv package" \
	    "(Debian: apt-get install python3-venv)" >&2; exit 1; }
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(CORE): $(MADE) pyproject.toml
	@echo "installing trainminder"
	@$(INSTALL) --editable .
	@touch $@

$(DEV): $(MADE) pyproject.toml
	@echo "installing trainminder with what training and the tests need"
	@$(INSTALL) '$(TORCH)'
	@$(INSTALL) --editable '.[train,bench,scale,dev]'
	@touch $(CORE) $@

$(NODE): $(MADE) $(AUGURS) | $(DEV)
	@{ command -v node && command -v npm; } >/dev/null || tools/install_servers.sh
	@package=$$($(BIN)/python -c 'from trainminder.bench.methods.augurs import PACKAGE, VERSION; print(PACKAGE + "@" + VERSION)') && \
	  echo "installing $$package" && \
	  npm install --no-save --no-audit --no-fund --no-update-notifier --loglevel=error --prefix $(VENV) "$$package" >/dev/null
	@touch $@
