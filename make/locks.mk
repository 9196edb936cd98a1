##@ Lock files

LOCK := $(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header --python-version 3.11
IMAGE_LOCK := $(LOCK) --python-platform linux --constraints requirements/dev.txt

.PHONY: lock
lock: $(VENV)/.installed ## pin the dependencies of pyproject.toml with hashes, for all platforms, and those of the images
	$(call pip,$(BIN)) -r requirements/uv.txt
	$(LOCK) --universal --extra stages --extra curate --extra evaluate --extra excel --extra pipelines --extra dev -o requirements/dev.txt pyproject.toml
	$(LOCK) --universal -o requirements/uv.txt requirements/uv.in
	$(LOCK) --universal -o requirements/bench.txt requirements/bench.in
	$(LOCK) --universal --excludes requirements/bench-curate-without.in -o requirements/bench-curate.txt requirements/bench-curate.in
	$(LOCK) --universal -o requirements/bench-select.txt requirements/bench-select.in
	$(LOCK) --universal -o requirements/numpy-oldest.txt requirements/numpy-oldest.in
	$(LOCK) --universal --constraints requirements/dev.txt --no-emit-package triton --no-emit-package nvidia-cusolver \
	  --extra train -o requirements/torch.txt pyproject.toml requirements/torch.in
	$(LOCK) --universal --constraints requirements/dev.txt --constraints requirements/torch.txt --extra harness \
	  -o requirements/harness.txt pyproject.toml
	$(LOCK) --universal --constraints requirements/dev.txt --constraints requirements/torch.txt \
	  $$(sed -n 's/^\(torch\|nvidia-[a-z0-9-]*\|cuda-[a-z]*\)==.*/--no-emit-package \1/p' requirements/torch.txt) \
	  --no-emit-package triton --no-emit-package nvidia-cusolver -o requirements/readers.txt requirements/readers.in
	$(LOCK) --universal -o requirements/lint.txt requirements/lint.in
	$(LOCK) --universal -o requirements/mlflow.txt requirements/mlflow.in
	$(LOCK) --universal -o requirements/components.txt requirements/components.in
	$(LOCK) --universal -o requirements/release.txt requirements/release.in
	$(LOCK) --universal --constraints requirements/dev.txt -o requirements/site.txt requirements/site.in
	$(LOCK) --universal -o requirements/kenlm.txt requirements/kenlm.in
	$(LOCK) --universal -o requirements/kenlm-build.txt requirements/kenlm-build.in
	$(IMAGE_LOCK) --extra sampler -o requirements/sampler.txt pyproject.toml
	$(IMAGE_LOCK) --extra stages --extra curate -o requirements/pipeline.txt pyproject.toml
	$(IMAGE_LOCK) --constraints requirements/torch.txt --extra train --extra evaluate --extra stages -o requirements/trainer.txt pyproject.toml
	$(IMAGE_LOCK) -o requirements/images.txt requirements/images.in
