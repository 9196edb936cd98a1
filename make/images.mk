##@ Images

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
dist/ours/.built: $(VENV)/.built README.md LICENSE $(shell find pairmill -type f -not -name '*.pyc' -not -name '*.so')
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
