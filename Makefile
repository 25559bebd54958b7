# make run    ROID on logged hopper data: offline, then online, with a table and a learning curve
# make bandits  the bandit tables and figures of the paper, beside its own numbers
# make test   lint, then the test suite
# make setup  the environment both use: .venv, made once from requirements.lock
# make lock   pin requirements.lock afresh from the ranges in setup.py
# make embedded  the dataset that comes with the package, made afresh (under an hour on two cores)

PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready
BIN := $(VENV)/bin

.PHONY: run bandits test lint format setup lock embedded clean
.DELETE_ON_ERROR:

run: setup
	@$(BIN)/python -m experiments.train

bandits: setup
	@$(BIN)/python -m experiments.bandits --workdir=runs/bandits

test: lint
	@$(BIN)/python -m pytest

lint: setup
	@$(BIN)/ruff format --check . && $(BIN)/ruff check .

format: setup
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

setup: $(READY)

# Quiet unless it fails; a failure shows what pip said and leaves no half-made environment.
# The lock names every package, so nothing is resolved: pip's resolver reads `etils[epath]` as a package
# that no line pins, and fails on the day a newer one is published.
$(READY): requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: roid_jax needs Python 3.11 or newer, but $(PYTHON) is $$($(PYTHON) -V 2>&1); name another with 'make PYTHON=python3.12'."; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "error: $(PYTHON) cannot make virtual environments; install its venv module (Debian, Ubuntu: apt install python3-venv)."; exit 1; }
	@echo "Setting up $(VENV) (about a minute, once)..."
	@rm -rf $(VENV) && $(PYTHON) -m venv $(VENV)
	@log=$$(mktemp); \
	if $(BIN)/pip install --quiet --disable-pip-version-check --no-compile --no-deps --require-hashes -r requirements.lock >$$log 2>&1 \
	  && $(BIN)/pip check >>$$log 2>&1; \
	then rm -f $$log; else cat $$log; rm -rf $$log $(VENV); echo "error: could not install requirements.lock; pip's own words are above."; exit 1; fi
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true  # pip does it on one core
	@touch $(READY)

lock: setup
	@$(BIN)/pip install --quiet pip-tools
	@$(BIN)/pip-compile --quiet --upgrade --strip-extras --allow-unsafe --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
	  --extra dev --extra mjx --output-file requirements.lock setup.py

EMBEDDED := roid_jax/data/embedded/hopper-medium

embedded: setup
	@rm -rf runs/embedded
	@MINARI_DATASETS_PATH=runs/embedded/minari $(BIN)/python -m experiments.collect \
	  --task=hopper --sets=medium --config.rows=45000 --workdir=runs/embedded/training
	@rm -rf $(EMBEDDED) && mkdir -p $(dir $(EMBEDDED))
	@cp -r runs/embedded/minari/collected/hopper-medium-v0 $(EMBEDDED)

clean:
	@rm -rf $(VENV) runs build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
