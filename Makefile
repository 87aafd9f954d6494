# Every target makes the environment first when it is missing or older than the locks.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
LOCKS  := $(addprefix requirements/,gateway.txt pipeline.txt embedded.txt cli.txt docx.txt storage.txt cache.txt bench.txt dev.txt models.txt)
READY  := $(VENV)/.ready
# The layout backend `transformers` has an environment of its own, so that `make test` stays light. Which build of PyTorch
# it gets is this one line: a requirement, a wheel's path, or with options (TORCH='torch==2.13.0 --index-url …').
TORCH       ?= torch==2.13.0
TORCH_VENV  := .venv-torch
TORCH_BIN   := $(TORCH_VENV)/bin
TORCH_READY := $(TORCH_VENV)/.ready
PADDLEX_VENV  := .venv-paddlex
PADDLEX_READY := $(PADDLEX_VENV)/.ready
# The linters of the containers' files have one too.
CHECKS_VENV  := .venv-checks
CHECKS_BIN   := $(CHECKS_VENV)/bin
CHECKS_READY := $(CHECKS_VENV)/.ready
DCLINT       := tests/compose/dclint
CODE   := src gateway model_repo tests benchmarks samples

.DEFAULT_GOAL := help
.PHONY: help setup setup-torch demo up test compose-check compose-test test-torch check format unit contract e2e setup-paddlex bench bench-compare bench-record soak settings fuzz fault-test audit lock clean

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/make \1	\2/p' $(MAKEFILE_LIST) | expand -t 22

setup: $(READY) ## the environment with everything in it, and the command hps

$(READY): $(LOCKS) pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v < (3, 13) else f"Python 3.11 or 3.12 is needed, $(PYTHON) is %d.%d: make PYTHON=..." % v)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes $(addprefix -r ,$(LOCKS))
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

setup-torch: $(TORCH_READY) ## the environment with PyTorch, for HPS_LAYOUT_BACKEND=transformers

$(TORCH_READY): $(LOCKS) requirements/torch.txt pyproject.toml
	$(PYTHON) -m venv $(TORCH_VENV)
	$(TORCH_BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes $(addprefix -r ,$(LOCKS) requirements/torch.txt)
	$(TORCH_BIN)/pip install --quiet --disable-pip-version-check $(TORCH)
	$(TORCH_BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup ## start the service, parse two sample documents, print their Markdown, stop
	$(BIN)/python samples/demo.py

up: setup ## run the service on http://127.0.0.1:8080 until Ctrl-C
	$(BIN)/hps up

test: check ## everything: lint, types, unit, contract, end to end with the real Triton
	$(BIN)/pytest -q tests --ignore tests/compose

compose-check: $(CHECKS_READY) ## lint of Dockerfiles, Compose files and scripts
	$(CHECKS_BIN)/hadolint gateway.Dockerfile pipeline.Dockerfile prepare.Dockerfile vlm/Dockerfile tests/compose/triton-base.Dockerfile
	$(CHECKS_BIN)/shellcheck .ci/run $(wildcard *.sh) vlm/*.sh tests/compose/*.sh benchmarks/gpu/*.sh requirements/*.sh
	$(CHECKS_BIN)/check-jsonschema --builtin-schema vendor.compose-spec compose.yaml compose.triton.yaml compose.cache.yaml
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory dclint; else echo "dclint LEFT OUT: npm is not installed"; fi

.PHONY: dclint
dclint: $(DCLINT)/node_modules/.ready
	$(DCLINT)/node_modules/.bin/dclint -c .dclintrc.yaml $(wildcard compose*.yaml)

$(DCLINT)/node_modules/.ready: $(DCLINT)/package-lock.json
	npm --prefix $(DCLINT) ci --silent --no-audit --no-fund
	@touch $@

$(CHECKS_READY): requirements/checks.txt
	$(PYTHON) -m venv $(CHECKS_VENV)
	$(CHECKS_BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/checks.txt
	@touch $@

compose-test: setup $(CHECKS_READY) ## the containers for real, with a Docker Engine of their own (Debian 12, root)
	$(BIN)/pytest -q tests/compose

test-torch: setup-torch ## the layout backend on PyTorch, with tiny models, also through the real Triton
	$(TORCH_BIN)/pytest -q tests/torch

check: setup ## lint and types
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy

unit: setup ## the quick tests only
	$(BIN)/pytest -q tests/unit tests/conformance tests/contract

e2e: setup ## the end-to-end tests only
	$(BIN)/pytest -q tests/e2e

format: setup
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

setup-paddlex: $(PADDLEX_READY) ## the environment with PaddleX's own pipeline, to measure against

$(PADDLEX_READY): requirements/paddlex.txt
	$(PYTHON) -m venv $(PADDLEX_VENV)
	$(PADDLEX_VENV)/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/paddlex.txt
	@touch $@

bench: setup setup-paddlex ## the figures of docs/performance.md (40 minutes); adds to benchmarks/results.jsonl
	$(BIN)/python -m benchmarks --compare --record

bench-compare: setup ## the short benchmark against its last result in benchmarks/results.jsonl (3 minutes)
	$(BIN)/python -m benchmarks throughput_short --compare

bench-record: setup ## the same, kept there
	$(BIN)/python -m benchmarks throughput_short --compare --record

soak: setup ## 20,000 pages (about an hour): does any process grow?
	$(BIN)/python -m benchmarks.soak

settings: setup ## rewrite .env.example and the settings in compose.yaml, README.md and docs/settings.md
	$(BIN)/python -m hps.settings_reference

fuzz: setup ## 40,000 mutated files on the decoders, schemathesis on the gateway (some minutes)
	$(BIN)/python -m tests.fuzz

fault-test: setup ## one fault after the other on the running chain under load: the table of docs/reliability.md (9 minutes)
	$(BIN)/python -m tests.faults --write docs/reliability.md

audit: setup ## known weaknesses of what the locks pin; without the Internet it says so (AUDIT=strict: fails)
	$(BIN)/python requirements/audit.py

lock: ## rewrite the lock files (needs uv)
	requirements/lock.sh

clean:
	rm -rf $(VENV) $(TORCH_VENV) .venv-audit $(CHECKS_VENV) $(DCLINT)/node_modules $(PADDLEX_VENV) build dist .mypy_cache .pytest_cache .ruff_cache
