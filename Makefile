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
FUZZ_SECONDS ?= 60
FUZZ_SANITIZER ?= address
FUZZ_SEED ?=
# Nobody steps through the tests, and to compile them without debug information takes two thirds of the time.
export CARGO_PROFILE_DEV_DEBUG := 0
CARGO := cargo --locked
RUST := rust/Cargo.toml rust/Cargo.lock $(shell find rust/core rust/python -name '*.rs' -o -name Cargo.toml)

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

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

.PHONY: check-rust
check-rust: ## format and lint of Rust, and its tests compiled
	cd rust && cargo fmt --all --check && cargo fmt --manifest-path fuzz/Cargo.toml --check
	cd rust && $(CARGO) clippy --all-targets --quiet -- -D warnings
	cargo metadata --locked --format-version 1 --manifest-path rust/fuzz/Cargo.toml >/dev/null
	cd rust && $(CARGO) test --quiet --package pairmill-core --no-run

.PHONY: check
check: check-rust check-generated check-python ## format, lint, types, stubs, generated files

.PHONY: check-generated
check-generated: generate ## that what is generated is what the repository holds
	git diff --exit-code -- pipelines/compiled components sources docs README.md

.PHONY: check-python
check-python: develop ## format, lint, types and stubs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python tests/contract/words.py
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest pairmill._native

# For the test that bytes do not depend on numpy's version.
build/numpy-oldest/.installed: requirements/numpy-oldest.txt $(VENV)/.installed
	rm -rf $(@D)
	$(call pip,$(BIN)) --target $(@D) -r requirements/numpy-oldest.txt
	@touch $@

# Servers that tests talk to: small commands over the versions in go.mod. One build for both: they share most of what
# they need. The tag leaves out what gRPC needs for service meshes, a quarter of Google's client.
SERVERS := tests/support/objectstores/servers
build/object-stores/.built: $(wildcard $(SERVERS)/*/*.go) $(SERVERS)/go.mod $(SERVERS)/go.sum
	@command -v go >/dev/null || { echo "Go 1.24 or newer is needed to build the object stores that tests talk to" >&2; exit 1; }
	@mkdir -p $(@D)
	go build -C $(SERVERS) -mod=readonly -tags disable_grpc_modules -ldflags='-s -w' -o $(CURDIR)/$(@D)/ ./...
	@touch $@

.PHONY: object-stores
object-stores: build/object-stores/.built ## an S3 server and one of Google Cloud Storage, for tests on loopback

# What takes long and depends on a lock file alone is kept here, beside what cargo, go and pip keep of their own.
CACHE := $(or $(PAIRMILL_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/pairmill)

# Many wait for processes of their own, or for the disk: four at once keep two cores busy.
JOBS ?= 4
TESTS := $(addprefix tests/,integration unit property contract golden browser)

# Nets of the tests are tiny: more threads of torch would only wait for each other, beside other tests.
torch-test conformance: export OMP_NUM_THREADS := 1

.PHONY: test
test: test-beside test-serial ## unit, contract, integration and browser tests, Rust and Python

.PHONY: test-beside
test-beside: develop build/numpy-oldest/.installed build/kenlm/.installed object-stores ## those that anything may run beside
	cd rust && $(CARGO) test --quiet --package pairmill-core
	$(BIN)/pytest -m 'not serial' -n $(JOBS) --dist worksteal --durations=40 $(TESTS)

.PHONY: test-serial
test-serial: develop object-stores ## those that the clock decides, so nothing may run beside them
	$(BIN)/pytest -m serial $$(grep --recursive --files-with-matches --include='test_*.py' mark.serial $(TESTS))

# torch's wheel for Linux links the libraries of a GPU, 4 GB, and does not start without them; triton and cusolver, 1.3 GB
# more, are only asked for by what runs on one. So they are not in the lock, and nothing may look for them. uv takes a third
# of pip's processor time for 4 GB; where it does not reach an index that pip knows of, pip does it.
TORCH = $(CACHE)/torch-$(shell cat requirements/torch.txt | $(PYTHON) -c 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read() + sys.version.encode()).hexdigest()[:16])')
build/torch/.installed: requirements/torch.txt requirements/uv.txt
	@mkdir -p build $(CACHE)
	test -e $(TORCH) || { new=$$(mktemp -d $(CACHE)/torch.XXXXXX) && $(PYTHON) -m venv $$new && \
	  pip="$(call pip,$$new/bin)" && $$pip --no-compile -r requirements/uv.txt && \
	  { $$new/bin/uv --cache-dir $$new.cache pip install --quiet --python $$new/bin/python --no-deps --require-hashes -r $< || \
	    $$pip --no-deps -r $<; } && rm -rf $$new.cache && \
	  { mv -T $$new $(TORCH) 2>/dev/null || rm -rf $$new; }; }
	@rm -rf build/torch && ln -s $(TORCH) build/torch && touch $@

# kenlm has no wheel: it takes a minute, cmake and a C++ compiler. Without isolation, since pip pins nothing that builds.
KENLM = $(CACHE)/kenlm-$(shell cat requirements/kenlm.txt requirements/kenlm-build.txt | $(PYTHON) -c 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read() + sys.version.encode()).hexdigest()[:16])')
build/kenlm/.installed: requirements/kenlm.txt requirements/kenlm-build.txt
	@mkdir -p build $(CACHE)
	test -e $(KENLM) || { new=$$(mktemp -d $(CACHE)/kenlm.XXXXXX) && $(PYTHON) -m venv $$new/builder && \
	  $(call pip,$$new/builder/bin) -r requirements/kenlm-build.txt && \
	  $(call pip,$$new/builder/bin) --no-deps --no-build-isolation \
	    --target $$new -r requirements/kenlm.txt && rm -rf $$new/builder && \
	  { mv -T $$new $(KENLM) 2>/dev/null || rm -rf $$new; }; }
	@rm -rf build/kenlm && ln -s $(KENLM) build/kenlm && touch $@

TRAIN := build/train
$(TRAIN)/sampled/_MANIFEST.json: $(VENV)/.built
	$(MAKE) --no-print-directory demo RAW= SOURCES= ROWS= TOKENIZER= TOKENIZED= SELECT_CONFIG= MIX_CONFIG= OPTIONS=holdout=0.05 ROOT=$(TRAIN)/line OUT=$(TRAIN)/sampled >/dev/null
	@touch $@

.PHONY: torch-test
torch-test: develop build/torch/.installed object-stores $(TRAIN)/sampled/_MANIFEST.json ## what needs torch: training, killed and resumed, and the loader's adapter
	build/torch/bin/python -m pytest --confcutdir=tests/pytorch tests/pytorch

# A hundred packages beside torch's, at the same versions.
build/harness/.installed: requirements/harness.txt $(VENV)/.installed
	rm -rf $(@D)
	$(call pip,$(BIN)) --no-deps --target $(@D) -r requirements/harness.txt
	@touch $@

.PHONY: harness-test
harness-test: develop build/torch/.installed build/harness/.installed ## evaluate's tasks of lm-evaluation-harness, against the harness itself
	PYTHONPATH=.:build/harness OMP_NUM_THREADS=1 build/torch/bin/python -m pytest --confcutdir=tests/harness tests/harness

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

.PHONY: test-long
test-long: develop object-stores build/torch/.installed ## 10,000 random runs of the loader, an hour of fuzz-line, kills at random instants, and hundreds of megabytes
	PAIRMILL_LOADER_SEQUENCES=10000 $(BIN)/pytest -s tests/property/test_loader.py
	PAIRMILL_DISTURBED_RUNS=30 PAIRMILL_FETCH_KILLS=40 $(BIN)/pytest tests/integration/test_stores.py tests/integration/test_fetch_kill.py
	PAIRMILL_EVERY_KILL=1 $(BIN)/pytest -s $$(grep --recursive --files-with-matches --include='test_*.py' -e STRIDE -e kill_points tests/integration tests/unit)
	PAIRMILL_CURATE_TASKS=100000 $(BIN)/pytest -s tests/unit/stages/curate/test_many_tasks.py
	$(BIN)/pytest -s tests/long
	$(MAKE) --no-print-directory fuzz-line FUZZ_SECONDS=3600
	OMP_NUM_THREADS=1 PAIRMILL_COMPARISONS=100 build/torch/bin/python -m pytest -s --confcutdir=tests/pytorch tests/pytorch/compare/test_power.py
	PAIRMILL_MEMORY_FULL=1 $(BIN)/pytest -s tests/integration/test_memory.py tests/integration/test_curate_memory.py

# Says which variables are missing: of a cluster with one node that nobody works on, or with KFP= of a Kubeflow Pipelines.
.PHONY: cluster-test
cluster-test: develop object-stores ## the manifests on a real node; KFP=<endpoint>: the pipeline on that backend, and a node
	$(BIN)/pytest -x -q -s tests/cluster/$(if $(KFP),test_pipeline,test_node).py

.PHONY: conformance
conformance: develop build/kenlm/.installed build/torch/.installed ## outputs against the reference's, recorded in PAIRMILL_SHARED (default ../shared)
	$(BIN)/pytest tests/conformance
	build/torch/bin/python -m pytest --confcutdir=tests/pytorch_conformance tests/pytorch_conformance

build/fuzz/bin/cargo-fuzz:
	cargo install --quiet --locked --version 0.13.2 --root build/fuzz --target-dir build/fuzz/target cargo-fuzz

# Sanitizers and coverage are switches of a nightly compiler that the stable one has too, under RUSTC_BOOTSTRAP; where it
# was built without the sanitizer, FUZZ_SANITIZER=none. Comparisons are not traced: that takes half of the time and finds
# fewer new ways. What is found lies in build/fuzz/found; the next run starts from what this one learned. Needs a C++
# compiler.
.PHONY: fuzz
fuzz: develop build/fuzz/bin/cargo-fuzz ## random inputs against the reference, each target for FUZZ_SECONDS, and the property tests as long
	cargo fetch --quiet --locked --manifest-path rust/fuzz/Cargo.toml
	@mkdir -p build/fuzz/found
	set -e; for target in encode train bytes; do \
	  mkdir -p build/fuzz/corpus/$$target; \
	  PATH="$(CURDIR)/build/fuzz/bin:$$PATH" RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir rust/fuzz --target-dir build/fuzz/target \
	    --no-trace-compares --sanitizer $(FUZZ_SANITIZER) $$target build/fuzz/corpus/$$target -- \
	    -artifact_prefix=build/fuzz/found/$$target- -max_total_time=$(FUZZ_SECONDS) -max_len=1024 -len_control=5 -timeout=20 -verbosity=0 -print_final_stats=1; \
	done
	PAIRMILL_PROPERTY_SECONDS=$(FUZZ_SECONDS) $(BIN)/pytest tests/property

# A sequence that fails is made shorter, and shown with its seed.
.PHONY: fuzz-line
fuzz-line: develop ## random changes, kills and damage over the whole line, and hostile input, for FUZZ_SECONDS; FUZZ_SEED= plays one again
	PAIRMILL_FUZZ_SECONDS=$(FUZZ_SECONDS) PAIRMILL_FUZZ_SEED=$(FUZZ_SEED) $(BIN)/pytest -q tests/fuzz

# The peers that cannot share an environment with the wheel that is the reference.
build/bench/.installed: requirements/bench.txt
	$(PYTHON) -m venv build/bench
	$(call pip,build/bench/bin) -r requirements/bench.txt
	@touch $@

.PHONY: bench
bench: develop build/bench/.installed object-stores ## speed and memory against the named peers, in one run
	$(BIN)/python tests/bench/bench.py

# Without --no-deps pip would ask for what requirements/bench-curate-without.in leaves out.
build/bench-curate/.installed: requirements/bench-curate.txt
	$(PYTHON) -m venv build/bench-curate
	$(call pip,build/bench-curate/bin) --no-deps -r requirements/bench-curate.txt
	@touch $@

.PHONY: bench-curate
bench-curate: develop build/bench-curate/.installed ## curate against its named peers; OPTIONS='rows=1000000 peer_rows=20000 only=near'
	$(BIN)/python tests/bench/bench_curate.py $(OPTIONS)

build/bench-select/.installed: requirements/bench-select.txt
	$(PYTHON) -m venv build/bench-select
	$(call pip,build/bench-select/bin) -r requirements/bench-select.txt
	@touch $@

.PHONY: bench-select
bench-select: develop build/bench-select/.installed ## select against data-selection, and its memory at 10 million rows; OPTIONS='only=weights'
	$(BIN)/python tests/bench/bench_select.py $(OPTIONS)

.PHONY: bench-train
bench-train: develop build/torch/.installed ## train against a plain loop of PyTorch, in turns; OPTIONS='only=hrm'
	PYTHONPATH=. build/torch/bin/python tests/bench/bench_trainer.py $(OPTIONS)

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

LOCK := $(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header --python-version 3.11
IMAGE_LOCK := $(LOCK) --python-platform linux --constraints requirements/dev.txt

.PHONY: lock
lock: $(VENV)/.installed ## pin the dependencies of pyproject.toml with hashes, for all platforms, and those of the images
	$(call pip,$(BIN)) -r requirements/uv.txt
	$(LOCK) --universal --extra stages --extra curate --extra evaluate --extra pipelines --extra dev -o requirements/dev.txt pyproject.toml
	$(LOCK) --universal -o requirements/uv.txt requirements/uv.in
	$(LOCK) --universal -o requirements/bench.txt requirements/bench.in
	$(LOCK) --universal --excludes requirements/bench-curate-without.in -o requirements/bench-curate.txt requirements/bench-curate.in
	$(LOCK) --universal -o requirements/bench-select.txt requirements/bench-select.in
	$(LOCK) --universal -o requirements/numpy-oldest.txt requirements/numpy-oldest.in
	$(LOCK) --universal --constraints requirements/dev.txt --no-emit-package triton --no-emit-package nvidia-cusolver \
	  --extra train -o requirements/torch.txt pyproject.toml requirements/torch.in
	$(LOCK) --universal --constraints requirements/dev.txt --constraints requirements/torch.txt --extra harness \
	  -o requirements/harness.txt pyproject.toml
	$(LOCK) --universal -o requirements/kenlm.txt requirements/kenlm.in
	$(LOCK) --universal -o requirements/kenlm-build.txt requirements/kenlm-build.in
	$(IMAGE_LOCK) --extra sampler -o requirements/sampler.txt pyproject.toml
	$(IMAGE_LOCK) --extra stages --extra curate -o requirements/pipeline.txt pyproject.toml
	$(IMAGE_LOCK) --constraints requirements/torch.txt --extra train --extra evaluate --extra stages -o requirements/trainer.txt pyproject.toml
	$(IMAGE_LOCK) -o requirements/images.txt requirements/images.in

# For the images' Python, whatever this machine's is; without --no-deps pip would ask this machine's for the markers.
ARCHITECTURE := $(subst arm64,aarch64,$(shell uname -m))
GLIBC := manylinux_2_28 manylinux_2_17 manylinux2014
# CUDA's libraries name what each was compiled with; the base has 2.36.
dist/wheels/trainer: GLIBC += $(addprefix manylinux_2_,34 31 27 25 24 18)
dist/wheels/%: requirements/%.txt | $(VENV)/.installed
	@rm -rf $@
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary :all: \
	  --implementation cp --python-version 3.11 --abi cp311 --abi abi3 --abi none \
	  $(foreach tag,$(GLIBC),--platform $(tag)_$(ARCHITECTURE)) --requirement $< --dest $@.new
	@mv $@.new $@ && touch $@

dist/vendor: rust/Cargo.lock
	@rm -rf $@
	$(CARGO) vendor --quiet --manifest-path rust/Cargo.toml $@ >/dev/null
	@touch $@

# The wheel as this machine compiles it, out of what `make develop` has compiled already.
dist/ours/.built: $(VENV)/.built README.md LICENSE $(shell find pairmill -name '*.py' -o -name '*.pyi' -o -name '*.css')
	@rm -rf $(@D)
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin build --quiet --release --locked --out $(@D)
	@touch $@

# WHEEL=ours takes that wheel, so that no Rust is compiled for the images: where the base's C library is not an older one.
WHEEL ?=
.PHONY: images
images: $(if $(WHEEL),dist/ours/.built,dist/vendor) dist/wheels/images dist/wheels/sampler dist/wheels/pipeline ## container images; ENGINE= BASE_IMAGE= RUST_IMAGE=
	@ENGINE='$(ENGINE)' BASE_IMAGE='$(BASE_IMAGE)' RUST_IMAGE='$(RUST_IMAGE)' WHEEL=$(if $(WHEEL),"$$(ls dist/ours/*.whl)") images/build.sh

# Its wheels are 3 GB, most of it CUDA's libraries: neither built in CI nor with the other images.
.PHONY: images-train
images-train: $(if $(WHEEL),dist/ours/.built,dist/vendor) dist/wheels/images dist/wheels/trainer ## the image that trains and evaluates, 7 GB; ENGINE= BASE_IMAGE= RUST_IMAGE=
	@ENGINE='$(ENGINE)' BASE_IMAGE='$(BASE_IMAGE)' RUST_IMAGE='$(RUST_IMAGE)' TARGETS=trainer WHEEL=$(if $(WHEEL),"$$(ls dist/ours/*.whl)") images/build.sh

# Podman alone plays a pod without a cluster; its images are not those of a docker engine on the same machine.
.PHONY: images-test
images-test: ENGINE := podman
images-test: develop images object-stores ## real containers of the images, and the DaemonSet's pod; BASE_IMAGE= RUST_IMAGE=
	BASE_IMAGE='$(BASE_IMAGE)' $(BIN)/pytest tests/images

.PHONY: clean
clean: ## remove what was built (results under $(ROOT) included)
	rm -rf build dist rust/target $(VENV) pairmill/_native*.so
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
