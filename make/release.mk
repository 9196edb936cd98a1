##@ Release

build/release/.installed: requirements/release.txt
	$(PYTHON) -m venv build/release
	$(call pip,build/release/bin) -r requirements/release.txt
	@touch $@

# zig links against the C library of the platform's name, not this machine's; auditwheel says whether it did, where it knows
# the library: musl's it can only read on a system that has it.
TARGET ?= $(shell uname -m)-unknown-linux-gnu
PLATFORM = $(if $(findstring musl,$(TARGET)),musllinux_1_2,manylinux_2_28)
.PHONY: wheel
wheel: build/release/.installed ## a wheel for any Linux since 2018, into dist/release; TARGET=aarch64-unknown-linux-gnu (rustup target add)
	PATH="$(CURDIR)/build/release/bin:$$PATH" maturin build --quiet --release --locked --zig --target $(TARGET) \
	  --compatibility $(PLATFORM) --out dist/release
	$(if $(findstring musl,$(TARGET)),,build/release/bin/auditwheel show dist/release/pairmill-*-$(PLATFORM)_$(firstword $(subst -, ,$(TARGET))).whl)

.PHONY: sdist
sdist: build/release/.installed ## the sources, for systems that have no wheel, into dist/release
	build/release/bin/maturin sdist --quiet --out dist/release

# Without WHEEL= it is the wheel that `make develop` compiled: for this machine alone, but of the same files.
.PHONY: wheel-test
wheel-test: develop $(if $(filter %.whl,$(WHEEL)),,dist/ours/.built) dist/wheels/pipeline dist/wheels/images ## the wheel in an empty container, as a user types; WHEEL=<file> BASE_IMAGE=
	WHEEL="$(or $(filter %.whl,$(WHEEL)),$$(ls dist/ours/*.whl))" BASE_IMAGE='$(BASE_IMAGE)' $(BIN)/pytest tests/wheel

# The pages that there are, as a site with a search: a link that leads nowhere is a warning, and a warning fails it.
build/site-tools/.installed: requirements/site.txt requirements/uv.txt
	$(PYTHON) -m venv build/site-tools
	$(call pip,build/site-tools/bin) -r requirements/uv.txt
	build/site-tools/bin/uv pip install --quiet --python build/site-tools/bin/python --require-hashes -r $< || $(call pip,build/site-tools/bin) -r $<
	@touch $@

.PHONY: site
site: build/site-tools/.installed ## the documents as a site with a search, into build/site
	build/site-tools/bin/sphinx-build --quiet --fail-on-warning --keep-going --jobs auto -d build/site-trees -c docs/site . build/site
