##@ Benchmarks

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
