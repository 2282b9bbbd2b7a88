# A fresh machine needs python3 (3.11) and make: every target below first makes .venv when it must.
#
#   make replay          replay the bundled trace (TRACE=path for another)
#   make test            tests and notebooks          make slow        the tests marked slow
#   make check           what CI runs: lint, types, contracts, test
#   make bench           benchmarks                   make notebooks   the notebooks alone
#   make format          let ruff rewrite             make lock        renew requirements.lock
#   make setup           .venv alone                  make clean       remove all that make made

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet

TRACE     ?= datasets/traces/cnn_step
NOTEBOOKS := $(wildcard notebooks/*.ipynb)
BENCHES   := $(wildcard tests/bench/*_bench.py)
NBMAKE    := --nbmake --nbmake-timeout=600

.DEFAULT_GOAL := check
.PHONY: setup replay test slow check lint types contracts bench notebooks format lock clean

setup: $(STAMP)

$(STAMP): requirements.lock setup.cfg pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -r requirements.lock
	$(PIP) install --no-deps --no-build-isolation -e .
	touch $@

replay: $(STAMP)
	$(BIN)/makespan replay $(TRACE)

check: lint types contracts test

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(STAMP)
	$(BIN)/basedpyright

contracts: $(STAMP)
	$(BIN)/lint-imports

# Tests and notebooks share one pytest run, so that the closing line counts both.
test: $(STAMP)
	$(BIN)/python -m pytest -q -m "not slow" tests $(if $(NOTEBOOKS),$(NBMAKE) $(NOTEBOOKS))

slow: $(STAMP)
	$(BIN)/python -m pytest -q -m slow tests || test $$? -eq 5  # 5: no test is marked slow

bench: $(STAMP)
	for bench in $(BENCHES); do echo "== $$bench"; $(BIN)/python $$bench || exit 1; done

notebooks: $(STAMP)
	$(if $(NOTEBOOKS),$(BIN)/python -m pytest -q $(NBMAKE) $(NOTEBOOKS),@echo "no notebooks yet: notebooks/*.ipynb")

format: $(STAMP)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# The newest releases that requirements.in allows, resolved in an environment of their own. A local
# version label (torch's "+cpu") is dropped, so that the pin fits whichever build pip is pointed to.
lock:
	rm -rf $(VENV)-lock
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip --disable-pip-version-check --quiet install -r requirements.in
	{ echo "# Every package of the development environment; written by \`make lock\` from requirements.in."; \
	  $(VENV)-lock/bin/python -m pip --disable-pip-version-check freeze --all --exclude pip \
	  | sed -e 's/+[A-Za-z0-9.]*$$//' ; } > requirements.lock.new
	mv requirements.lock.new requirements.lock
	rm -rf $(VENV)-lock

clean:
	rm -rf $(VENV) $(VENV)-lock build dist *.egg-info .hypothesis .pytest_cache .ruff_cache \
	  .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
