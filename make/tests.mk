##@ Tests

# For the test that bytes do not depend on numpy's version.
build/numpy-oldest/.installed: requirements/numpy-oldest.txt $(VENV)/.installed
	rm -rf $(@D)
	$(call pip,$(BIN)) --target $(@D) -r requirements/numpy-oldest.txt
	@touch $@

# Servers that tests talk to: small commands over the versions in go.mod. One build for both: they share most of what
# they need. The tag leaves out what gRPC needs for service meshes, a quarter of Google's client.
# What they link and never run, or only as they start, is compiled without optimization, which takes a seventh less.
IDLE := cel.dev cloud.google.com go.opentelemetry.io google.golang.org $(addprefix github.com/,aws cncf envoyproxy go-jose \
  google googleapis GoogleCloudPlatform hashicorp nats-io segmentio spiffe)
SERVERS := tests/support/objectstores/servers
build/object-stores/.built: $(wildcard $(SERVERS)/*/*.go) $(SERVERS)/go.mod $(SERVERS)/go.sum
	@command -v go >/dev/null || { echo "Go 1.25 or newer is needed to build the object stores that tests talk to" >&2; exit 1; }
	@mkdir -p $(@D)
	go build -C $(SERVERS) -mod=readonly -tags disable_grpc_modules $(IDLE:%='-gcflags=%/...=-N -l') -ldflags='-s -w' \
	  -o $(CURDIR)/$(@D)/ ./...
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
	cd rust && $(CARGO) test --quiet --package pairmill-core --lib
	$(BIN)/pytest -m 'not serial and not full' -n $(JOBS) --dist worksteal --durations=40 $(TESTS)

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

# kenlm has no wheel: it takes a C++ compiler. Without isolation, since pip pins nothing that builds. Models of the tests
# are tiny: it is compiled with little optimization (the last option wins), and cmake, which would make a second library of
# the same files, does nothing: 18 s of processor time in place of 62. pip does not keep what came of that.
KENLM = $(CACHE)/kenlm-$(shell cat requirements/kenlm.txt requirements/kenlm-build.txt | $(PYTHON) -c 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read() + sys.version.encode()).hexdigest()[:16])')
build/kenlm/.installed: requirements/kenlm.txt requirements/kenlm-build.txt
	@mkdir -p build $(CACHE)
	test -e $(KENLM) || { new=$$(mktemp -d $(CACHE)/kenlm.XXXXXX) && $(PYTHON) -m venv $$new/builder && \
	  $(call pip,$$new/builder/bin) -r requirements/kenlm-build.txt && \
	  printf '#!/bin/sh\nexec c++ "$$@" -O1 -g0\n' >$$new/builder/bin/lazy-c++ && chmod +x $$new/builder/bin/lazy-c++ && \
	  printf '#!/bin/sh\n' >$$new/builder/bin/cmake && chmod +x $$new/builder/bin/cmake && \
	  PATH="$$new/builder/bin:$$PATH" CC=lazy-c++ CXX=lazy-c++ \
	  $(call pip,$$new/builder/bin) --no-deps --no-build-isolation --no-cache-dir \
	    --target $$new -r requirements/kenlm.txt && rm -rf $$new/builder && \
	  { mv -T $$new $(KENLM) 2>/dev/null || rm -rf $$new; }; }
	@rm -rf build/kenlm && ln -s $(KENLM) build/kenlm && touch $@

.PHONY: torch-test
torch-test: develop build/torch/.installed object-stores $(TRAIN)/sampled/_MANIFEST.json ## what needs torch: training, killed and resumed, and the loader's adapter
	build/torch/bin/python -m pytest -m 'not full' --confcutdir=tests/pytorch tests/pytorch

# A hundred packages beside torch's, at the same versions.
build/harness/.installed: requirements/harness.txt $(VENV)/.installed
	rm -rf $(@D)
	$(call pip,$(BIN)) --no-deps --target $(@D) -r requirements/harness.txt
	@touch $@

.PHONY: harness-test
harness-test: develop build/torch/.installed build/harness/.installed ## evaluate's tasks of lm-evaluation-harness, against the harness itself
	PYTHONPATH=.:build/harness OMP_NUM_THREADS=1 build/torch/bin/python -m pytest --confcutdir=tests/harness tests/harness

# What reads exports: trainers' own readers, and the validator of Croissant, beside torch.
build/readers/.installed: requirements/readers.txt $(VENV)/.installed
	rm -rf $(@D)
	$(call pip,$(BIN)) --no-deps --target $(@D) -r requirements/readers.txt
	@touch $@

.PHONY: readers-test
readers-test: develop build/torch/.installed build/readers/.installed ## exports, read by Megatron-core and LitData; cards, by Croissant's validator
	PYTHONPATH=.:build/readers OMP_NUM_THREADS=1 build/torch/bin/python -m pytest --confcutdir=tests/readers tests/readers

# What that repository's checks need beside our own packages.
build/components/.installed: requirements/components.txt $(VENV)/.installed
	rm -rf $(@D)
	$(call pip,$(BIN)) --no-deps --target $(@D) -r requirements/components.txt
	@touch $@

# Last passed at fab64a9f35eebe0f18166ddd444931d2acd7433e.
.PHONY: components-test
components-test: develop build/components/.installed ## components/ under the checks of kubeflow/pipelines-components; CHECKOUT=<folder of it>
	@test -d '$(CHECKOUT)/scripts/validate_metadata' || { echo "CHECKOUT= is not a checkout of kubeflow/pipelines-components: $(CHECKOUT)" >&2; exit 2; }
	CHECKOUT='$(CHECKOUT)' PYTHONPATH=.:build/components $(BIN)/python -m pytest tests/snapshot

# Those of Go are kept with what else depends on a lock file alone.
LINT_TOOLS := $(CACHE)/lint-$(shell cat tests/lint/tools/go.sum requirements/lint.txt | sha256sum | cut -c1-16)
build/lint/.installed: requirements/lint.txt tests/lint/tools/go.sum
	@rm -rf $(@D) && mkdir -p $(@D) $(CACHE)
	test -e $(LINT_TOOLS) || { new=$$(mktemp -d $(CACHE)/lint.XXXXXX) && $(PYTHON) -m venv $$new && \
	  $(call pip,$$new/bin) --no-deps -r requirements/lint.txt && \
	  go build -C tests/lint/tools -mod=readonly -ldflags='-s -w' -o $$new/bin/ \
	    github.com/rhysd/actionlint/cmd/actionlint github.com/zegl/kube-score/cmd/kube-score && \
	  { mv -T $$new $(LINT_TOOLS) 2>/dev/null || rm -rf $$new; }; }
	@ln -sfn $(LINT_TOOLS)/bin $(@D)/bin && touch $@

.PHONY: lint-test
lint-test: develop build/lint/.installed ## workflows, scripts, images and manifests, by linters that nobody here wrote
	LINTERS=$(CURDIR)/build/lint/bin $(BIN)/pytest tests/lint

# A hundred packages of its own, as where it runs.
build/mlflow/.installed: requirements/mlflow.txt $(VENV)/.installed
	rm -rf $(@D) && $(PYTHON) -m venv $(@D)
	$(call pip,$(@D)/bin) --no-deps -r requirements/mlflow.txt
	@touch $@

.PHONY: mlflow-test
mlflow-test: develop build/mlflow/.installed ## the runs of a pipeline in a real MLflow server, as Kubeflow's backend makes them
	MLFLOW_PYTHON=$(CURDIR)/build/mlflow/bin/python $(BIN)/pytest tests/mlflow

.PHONY: test-long
test-long: develop object-stores build/torch/.installed $(TRAIN)/sampled/_MANIFEST.json ## 10,000 random runs of the loader, an hour of fuzz-line, kills at random instants, and hundreds of megabytes
	PAIRMILL_LOADER_SEQUENCES=10000 $(BIN)/pytest -s tests/property/test_loader.py
	PAIRMILL_DISTURBED_RUNS=30 PAIRMILL_FETCH_KILLS=40 $(BIN)/pytest tests/integration/test_stores.py tests/integration/test_fetch_kill.py
	PAIRMILL_EVERY_KILL=1 $(BIN)/pytest -s $$(grep --recursive --files-with-matches --include='test_*.py' -e stride= -e kill_points tests/integration tests/unit)
	PAIRMILL_ALL_DRAWS=1 $(BIN)/pytest $$(grep --recursive --files-with-matches --include='test_*.py' 'draws(' $(TESTS)) tests/property
	PAIRMILL_CURATE_TASKS=100000 $(BIN)/pytest -s tests/unit/stages/curate/test_many_tasks.py
	PAIRMILL_CHATS=100000 $(BIN)/pytest -s tests/unit/chats/test_encode.py -k plain_recipe
	$(BIN)/pytest -s -m full $(TESTS)
	build/torch/bin/python -m pytest -s -m full --confcutdir=tests/pytorch tests/pytorch
	$(BIN)/pytest -s tests/long
	$(MAKE) --no-print-directory readers-test
	$(MAKE) --no-print-directory fuzz-line FUZZ_SECONDS=3600
	OMP_NUM_THREADS=1 PAIRMILL_COMPARISONS=100 build/torch/bin/python -m pytest -s --confcutdir=tests/pytorch tests/pytorch/compare/test_power.py
	PAIRMILL_MEMORY_FULL=1 $(BIN)/pytest -s tests/integration/test_memory.py tests/integration/test_curate_memory.py

# Says which variables are missing: of a cluster with one node that nobody works on, or with KFP= of a Kubeflow Pipelines.
.PHONY: cluster-test
cluster-test: develop object-stores ## the manifests on a real node; KFP=<endpoint>: the pipeline on that backend, and a node; SHARES=64: a Job; CRDS=: the schemas of all kinds
	$(BIN)/pytest -x -q -s tests/cluster/$(if $(CRDS),test_manifests,$(if $(SHARES),test_jobs,$(if $(KFP),test_pipeline,test_node))).py

.PHONY: conformance
conformance: develop build/kenlm/.installed build/torch/.installed ## outputs against the reference's, recorded in PAIRMILL_SHARED (default ../shared)
	$(BIN)/pytest tests/conformance
	build/torch/bin/python -m pytest --confcutdir=tests/pytorch_conformance tests/pytorch_conformance

FUZZ_SECONDS ?= 60
FUZZ_SANITIZER ?= address
FUZZ_SEED ?=

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
