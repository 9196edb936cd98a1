# Everything is done by these targets; CI and the README call no other command.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RAW ?=
SOURCES ?=
ROWS ?=
TOKENIZER ?=
TOKENIZED ?=
# Data of one's own; without it the demo takes the examples, and what is for them: small settings, a small vocabulary.
, := ,
OWN = $(strip $(RAW)$(ROWS)$(TOKENIZED)$(filter %.yaml %.yml,$(subst $(,), ,$(SOURCES))))
ROOT ?= build/demo
OUT ?= /dev/shm/pairmill-demo
# The examples hold items of a benchmark.
CURATE_CONFIG ?= $(if $(OWN),,examples/curate_config.yaml)
# They are for the examples too: what is like their target, and shares of their sources.
SELECT_CONFIG ?= $(if $(OWN),,examples/select_config.yaml)
MIX_CONFIG ?= $(if $(OWN),,examples/mix_config.yaml)
OPTIONS ?=
CARGO := cargo --locked
RUST := rust/Cargo.toml rust/Cargo.lock $(shell find rust/core rust/python -name '*.rs' -o -name Cargo.toml)

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^##@ / {print "\n" substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Start

# Thousands of processes start in a third of the time where bytecode is kept, which some environments forbid.
export PYTHONDONTWRITEBYTECODE :=

# $(call pip,<folder of programs>) installs what follows it. uv takes 7 s of processor time where pip takes 65, most of it
# for bytecode that the first import writes too; where uv does not reach an index that pip knows of, pip does it.
pip = $(1)/python -m pip install --quiet --disable-pip-version-check --require-hashes

$(VENV)/.installed: requirements/dev.txt requirements/uv.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "pairmill needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": set PYTHON=")'
	@command -v cargo >/dev/null || { echo "cargo is needed to build pairmill's Rust module; rustup installs it" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(call pip,$(BIN)) -r requirements/uv.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r $< || $(call pip,$(BIN)) -r $<
	@touch $@

$(VENV)/.built: $(VENV)/.installed pyproject.toml $(RUST)
	PIP_QUIET=1 VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin develop --quiet --release
	@touch $@

.PHONY: develop
develop: $(VENV)/.built ## virtual environment with pinned dependencies, and the Rust module

.PHONY: demo
demo: export RAW := $(RAW)
demo: export SOURCES := $(SOURCES)
demo: export ROWS := $(ROWS)
demo: export TOKENIZER := $(TOKENIZER)
demo: export TOKENIZED := $(TOKENIZED)
# With data of one's own, sources without RAW are downloaded.
demo: export EXAMPLES := $(if $(OWN),,build/raw)
demo: export ROOT := $(ROOT)
demo: export OUT := $(OUT)
demo: export CURATE_CONFIG := $(CURATE_CONFIG)
demo: export SELECT_CONFIG := $(SELECT_CONFIG)
demo: export MIX_CONFIG := $(MIX_CONFIG)
demo: develop ## raw files to $(OUT) through the pipeline; RAW= SOURCES= take real data instead of examples, ROWS= TOKENIZER= TOKENIZED= what is finished
	@test -z "$$EXAMPLES" || $(BIN)/python examples/make_raw.py "$$EXAMPLES" target=problems
	@PAIRMILL_LOG=human $(BIN)/python -m pairmill run "raw=$${RAW:-$$EXAMPLES}" "root=$$ROOT" "output_path=$$OUT" \
	  $${SOURCES:+"sources=$$SOURCES"} $${ROWS:+"rows=$$ROWS"} $${TOKENIZER:+"tokenizer=$$TOKENIZER"} \
	  $${TOKENIZED:+"tokenized=$$TOKENIZED"} $${CURATE_CONFIG:+"curate_config=$$CURATE_CONFIG"} \
	  $${SELECT_CONFIG:+"select_config=$$SELECT_CONFIG"} $${MIX_CONFIG:+"mix_config=$$MIX_CONFIG"} \
	  $(if $(OWN)$(TOKENIZER),,vocab_size=512) epochs=3 $(OPTIONS)

.PHONY: clean
clean: ## remove what was built (results under $(ROOT) included)
	rm -rf build dist rust/target $(VENV) pairmill/_native*.so
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +

##@ Checks

.PHONY: check-rust
check-rust: ## format and lint of Rust, and its tests compiled
	cd rust && cargo fmt --all --check && cargo fmt --manifest-path fuzz/Cargo.toml --check
	cd rust && $(CARGO) clippy --all-targets --quiet -- -D warnings
	cargo metadata --locked --format-version 1 --manifest-path rust/fuzz/Cargo.toml >/dev/null
	cd rust && $(CARGO) test --quiet --package pairmill-core --lib --no-run

.PHONY: check
check: check-rust check-generated check-python ## format, lint, types, stubs, generated files

.PHONY: check-generated
check-generated: generate ## that what is generated is what the repository holds
	git diff --exit-code -- pipelines/compiled components pairmill docs README.md

.PHONY: check-python
check-python: develop ## format, lint, types and stubs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python tests/contract/words.py
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest pairmill._native

##@ Training

TRAIN := build/train
$(TRAIN)/sampled/_MANIFEST.json: $(VENV)/.built
	$(MAKE) --no-print-directory demo RAW= SOURCES= ROWS= TOKENIZER= TOKENIZED= SELECT_CONFIG= MIX_CONFIG= OPTIONS=holdout=0.05 ROOT=$(TRAIN)/line OUT=$(TRAIN)/sampled >/dev/null
	@touch $@

# The run is below $(TRAIN)/line/train.
.PHONY: train
train: develop build/torch/.installed $(TRAIN)/sampled/_MANIFEST.json ## train a small model on example data; stopped and started again, it goes on. OPTIONS='set=optimizer.lr=0.001'
	@run=$$(PAIRMILL_LOG=human build/torch/bin/python -m pairmill train sampled=$(TRAIN)/sampled \
	  held_out=$(TRAIN)/sampled-holdout root=$(TRAIN)/line train_config=examples/train_config.yaml $(OPTIONS)) && \
	  printf '%s\n' "$$run" "report: $$run/report.html"

# Results are below $(COMPARED); the chart is that of the README.
COMPARED := build/compare
.PHONY: compare
compare: develop build/torch/.installed ## natural shares of the example data against a mixture: 8 trainings, a verdict, docs/frontier.svg
	@$(BIN)/python examples/make_raw.py build/raw target=problems
	@PYTHONPATH=. OMP_NUM_THREADS=1 $(BIN)/python examples/compare.py build/raw $(COMPARED) build/torch/bin/python docs/frontier.svg

##@ Generated files

.PHONY: generate
generate: develop ## everything that is generated: compiled pipeline, tables of options
	$(BIN)/python -m pairmill compile
	$(BIN)/python docs/generate.py

.PHONY: golden
golden: develop ## record anew what the example data must give; commit it only for a wanted change of bytes
	$(BIN)/python -m tests.golden.record

.PHONY: pipeline
pipeline: develop ## compile the pipeline; OPTIONS='image=<name>@sha256:… output=<file>'
	$(BIN)/python -m pairmill compile $(OPTIONS)

include make/tests.mk make/bench.mk make/images.mk make/release.mk make/locks.mk
