# Two commands on a fresh machine with Python 3.11 and make: `make run` and `make test`.

comma := ,
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := .make

# Without an NVIDIA GPU, Python 3.11 takes the CPU build of torch that the constraints name;
# with one, or on another Python, pip's default build.
GPU := $(shell command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L 2>/dev/null | grep -q GPU && echo yes)
MINOR := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
CONSTRAINTS := $(if $(GPU),,$(if $(filter 3.11,$(MINOR)),-c constraints-cpu.txt))
EXTRAS := $(if $(GPU),gpu)

PIP := $(BIN)/python -m pip --disable-pip-version-check
WORKERS ?= 2

.PHONY: run test lint unit wheel-test golden check-isaacgym bench-check node vsix test-editor clean help

help:
	@echo "make run    install into .venv and train the quickstart"
	@echo "make test   install with the development tools, then linters, type checker and the whole test suite"
	@echo "make check-isaacgym  check the Isaac Gym adapter against the published types of Isaac Gym (isaacgym-stubs)"
	@echo "make vsix   build the VS Code extension, vscode-ext/gmiflow.vsix (needs Node 20 or newer)"
	@echo "make test-editor  check, lint and test the extension against this checkout's language server, then package it"
	@echo "make clean  remove .venv, caches and builds"
	@echo "PYTHON=...  the Python to use, 3.11 or newer (default: python3)"

$(STAMP)/venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "gmiflow needs Python 3.11 or newer; $(PYTHON) is $(MINOR). Another one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@mkdir -p $(STAMP)
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(STAMP)/install: $(STAMP)/venv pyproject.toml constraints-cpu.txt
	@echo "installing torch, MuJoCo and the rest into $(VENV): a few minutes"
	$(PIP) install -q $(CONSTRAINTS) -e ".$(if $(EXTRAS),[$(EXTRAS)])"
	@touch $@

$(STAMP)/dev: $(STAMP)/install
	$(PIP) install -q $(CONSTRAINTS) -e ".[dev,lsp$(if $(EXTRAS),$(comma)$(EXTRAS))]"
	@touch $@

run: $(STAMP)/install
	$(BIN)/gmiflow run examples/quickstart.gmi

test: lint unit

lint: $(STAMP)/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python

# What the tests of a file share is made once: one worker runs them all.
unit: $(STAMP)/dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

# The Isaac Gym adapter, strictly, against the types that are published of Isaac Gym (it cannot be installed itself).
check-isaacgym: $(STAMP)/dev
	$(PIP) install -q --no-deps --upgrade --target $(STAMP)/isaacgym-stubs isaacgym-stubs==1.1rc4
	$(BIN)/pyright --pythonpath $(BIN)/python -p tests/sim/isaacgym_types.json

golden: $(STAMP)/dev
	$(BIN)/python -m pytest tests/golden --update-golden

# The editor extension: npm packages only, at the versions of package-lock.json.
NODE := $(shell command -v node 2>/dev/null)
NODE_MODULES := vscode-ext/node_modules/.package-lock.json

node:
	@if [ -z "$(NODE)" ] || ! command -v npm >/dev/null; then \
	  echo "the editor extension needs Node 20 or newer with npm, and there is none on the PATH" >&2; exit 1; fi
	@node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' || { \
	  echo "the editor extension needs Node 20 or newer; this is $$(node --version)" >&2; exit 1; }

$(NODE_MODULES): vscode-ext/package.json vscode-ext/package-lock.json vscode-ext/.npmrc | node
	cd vscode-ext && npm ci
	@touch $@

vsix: node $(NODE_MODULES)
	cd vscode-ext && npm run --silent package

test-editor: node $(NODE_MODULES) $(STAMP)/dev
	cd vscode-ext && npm run --silent check
	cd vscode-ext && GMIFLOW_PYTHON=$(BIN)/python npm test --silent
	cd vscode-ext && npm run --silent package

clean:
	rm -rf vscode-ext/node_modules vscode-ext/out vscode-ext/dist vscode-ext/gmiflow.vsix
	rm -rf $(VENV) $(STAMP) dist build .pytest_cache .ruff_cache
