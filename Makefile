# Every target sets up what it needs in .venv; nothing but Python 3.11+ and pip has to be there.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadgroup
# torch comes first and pinned: other packages' ranges would fetch a build with gigabytes of CUDA.
TORCH := torch==2.13.0
FLOOR := .venv-floor
# Those of the core that tell most in little time. What they need beyond it and is not there is skipped, with a word.
FLOOR_TESTS := test_architecture.py test_floor.py test_progress.py records/test_arrays.py records/test_group.py \
  stores/test_local.py stores/test_remote.py stores/test_urls_and_sizes.py formats/test_columns.py formats/test_jsonl.py \
  formats/test_parquet.py formats/test_pipe.py formats/test_tar.py dataset/test_index.py dataset/test_source.py \
  offline/test_group.py offline/test_in_place.py offline/test_planning.py offline/test_shuffle.py online/test_loader.py \
  order/test_permutations.py proof cli

.PHONY: help install demo test quick floor check format bench bench-peers experiments chaos fuzz clean

help:  ## List the targets.
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile

install: $(VENV)/all.done  ## Install everything, all extras, editable.

demo: $(VENV)/demo.done  ## Measure, plan, shuffle, verify and train, on a small data set; writes a report.
	$(BIN)/corgi2 demo

test: $(VENV)/test.done  ## Run all tests.
	$(PYTEST)

quick: $(VENV)/test.done  ## Run the tests that are not slow.
	$(PYTEST) -m "not slow"

floor: $(FLOOR)/done  ## Run quick tests of the core with the lowest versions that pyproject.toml names, without pandas.
	CORGI2_FLOOR=1 $(FLOOR)/bin/python -m pytest -n 2 --dist loadgroup -m "not slow" -rs $(FLOOR_TESTS:%=tests/%)

check: $(VENV)/test.done  ## Check format, lint, types and the direction of imports.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_architecture.py

format: $(VENV)/test.done  ## Format the code.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/test.done  ## Measure against peers and limits, as ratios in one run.
	$(BIN)/python -m benchmarks.foundation
	$(BIN)/python -m benchmarks.offline
	$(BIN)/python -m benchmarks.pieces
	$(BIN)/python -m benchmarks.online
	$(BIN)/python -m benchmarks.formats
	$(BIN)/python -m benchmarks.cache
	$(BIN)/python -m benchmarks.network
	$(BIN)/python -m benchmarks.workers
	$(BIN)/python -m benchmarks.decode
	$(BIN)/python -m benchmarks.scale

bench-peers: $(VENV)/test.done  ## Measure against loaders with formats of their own; installs gigabytes.
	$(BIN)/python -m benchmarks.peers

experiments: export OMP_NUM_THREADS = 1
experiments: $(VENV)/test.done  ## Train and draw everything in docs/results.md; hours, goes on where cut off. DATA='--data FOLDER'
	for name in figure1 theorem1 table1 theorem2; do $(BIN)/python -m experiments.$$name || exit 1; done
	for name in figure5 passes; do $(BIN)/python -m experiments.$$name $(DATA) || exit 1; done
	for name in cifar10 fashion-mnist tiny-imagenet; do $(BIN)/python -m experiments.images $$name $(DATA) || exit 1; done
	for name in har flights covtype imdb; do $(BIN)/python -m experiments.tables $$name $(DATA) || exit 1; done
	$(BIN)/python -m experiments.show
	$(BIN)/python -m experiments.document

chaos: $(VENV)/test.done  ## Kill, stop and starve shuffles, on disks, S3 and Ray, and check every byte; TRIALS=1000 SEED=…
	$(BIN)/python -m benchmarks.chaos --trials $(or $(TRIALS),1000) $(if $(SEED),--seed $(SEED))

fuzz: $(VENV)/test.done  ## Throw mutated shards at the readers of all formats; COUNT=1000000 SEED=…
	$(BIN)/python -m benchmarks.fuzz --count $(or $(COUNT),1000000) $(if $(SEED),--seed $(SEED))

clean:  ## Remove what the targets made.
	rm -rf $(VENV) $(FLOOR) .demo .bench
	test ! -d .data || find .data -mindepth 1 -maxdepth 1 ! -name runs -exec rm -rf {} +  # runs took hours

$(VENV)/bin/python $(FLOOR)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "corgi2 needs Python 3.11 or later; name one: make PYTHON=/path/to/python3.11 …"; exit 1; }
	$(PYTHON) -m venv $(@:/bin/python=)

$(VENV)/demo.done: pyproject.toml | $(VENV)/bin/python
	$(PIP) -e '.[demo]'
	@touch $@

$(VENV)/test.done: pyproject.toml | $(VENV)/bin/python
	$(PIP) $(TORCH)
	$(PIP) -e '.[test,dev]'
	@touch $@

$(VENV)/all.done: pyproject.toml | $(VENV)/bin/python
	$(PIP) $(TORCH)
	$(PIP) -e '.[torch,ray,experiments,test,dev]'
	@touch $@ $(VENV)/demo.done $(VENV)/test.done

$(FLOOR)/done: pyproject.toml tests/floor.py | $(FLOOR)/bin/python
	$(FLOOR)/bin/python -m pip install --quiet --disable-pip-version-check $$($(FLOOR)/bin/python tests/floor.py)
	$(FLOOR)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@
