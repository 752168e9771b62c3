# Each target sets up what it needs; a second call finds it done.
SHELL := /bin/bash
.DEFAULT_GOAL := help

VENV ?= .venv
BIN := $(VENV)/bin
# The other accountants pull in heavy packages, so they live in an environment of their own.
BENCH_VENV ?= .venv-bench
# So do Flower, pfl and NVFlare.
FEDERATED_VENV ?= .venv-federated
# Files of tests share what they compute, so a file stays with one worker.
PARALLEL ?= -n 2 --dist loadfile
# Which fifth of the slow tests `make test-share` runs: any hexadecimal number, by default the commit.
SHARE ?= $(shell git rev-parse HEAD 2>/dev/null || echo 0)
# What has not begun by then waits for another commit, which begins elsewhere.
SHARE_SECONDS ?= 120
export CALIPERS_TURN = $(SHARE)
# What Python compiles is kept, whatever the shell says: tests start many processes.
export PYTHONDONTWRITEBYTECODE =
# Groups of pyproject.toml (PEP 735) need a newer pip than Python 3.11 brings along.
PIP := 'pip>=25.1'
PIP_INSTALL := $(BIN)/python -m pip --disable-pip-version-check --no-input install -qq
# What the installed metadata is made from: a change here means installing again.
METADATA := pyproject.toml hatch_build.py src/calipers/_version.py

.PHONY: help run test test-share test-slow durations test-adapters test-federated test-explorer fuzz mutations certificates lint format types layers docs bench first-five-minutes reproduce house package words notebooks clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(VENV)/.calipers ## measure the example run
	$(BIN)/calipers measure examples/mnist.toml
	@echo
	@echo "Call it yourself with $(BIN)/calipers, or with calipers after: source $(BIN)/activate"

test: $(VENV)/.group-test ## the quick tests, on two cores; says what it leaves out
	$(BIN)/python -m pytest $(PARALLEL)

test-share: $(VENV)/.group-test $(VENV)/.extra-dp-accounting $(VENV)/.extra-dask $(VENV)/.libraries ## a fifth of the slow and heavy tests, chosen by the commit
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "(slow or heavy) and not explorer and not jax_privacy and not callbacks and not flower and not pfl and not nvflare" --share $(SHARE) --share-seconds $(SHARE_SECONDS)
	# Status 5: this share holds none of them.
	KERAS_BACKEND=torch $(BIN)/python -m pytest -m "(slow or heavy) and (jax_privacy or callbacks)" --share $(SHARE) --share-seconds 60 || [ $$? -eq 5 ]

test-slow: $(VENV)/.group-test ## all tests that `make test` leaves out for their time
	$(BIN)/python -m pytest -m "(slow or heavy) and not flower and not pfl and not nvflare"

durations: $(VENV)/.group-test ## measure every test that needs no library; tests/durations.txt says which are slow
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PARALLEL) -m "not dp_accounting and not dask and not opacus and not torch and not jax_privacy and not explorer and not callbacks and not flower and not pfl and not nvflare and not heavy" --write-durations tests/durations.txt

test-adapters: $(VENV)/.group-test $(VENV)/.extra-dp-accounting $(VENV)/.extra-dask $(VENV)/.libraries ## the tests that need other libraries (installs PyTorch and JAX)
	$(BIN)/python -m pytest $(PARALLEL) -m "(dp_accounting or opacus or torch or dask) and not jax_privacy and not slow and not heavy"
	# In a process of its own: where JAX runs, PyTorch's loaders must not fork.
	$(BIN)/python -m pytest -m "jax_privacy and not slow and not heavy"
	KERAS_BACKEND=torch $(BIN)/python -m pytest -m "callbacks and not slow and not heavy"

test-federated: $(FEDERATED_VENV)/.libraries ## the tests with Flower, pfl and NVFlare, and the simulation of examples/federated (installs them)
	$(FEDERATED_VENV)/bin/python -m pytest $(PARALLEL) -m "flower or pfl or nvflare" tests/federated tests/house/test_docs_examples.py

test-explorer: $(VENV)/.group-test $(VENV)/.extra-explorer $(VENV)/.group-browser ## the tests of the local page, in Chromium
	.ci/chromium
	$(BIN)/python -m pytest -m explorer

fuzz: $(VENV)/.group-test ## a hundred hostile command lines and files; all 5,000: --count 5000 (tests/RANDOM.md)
	mkdir -p build
	OMP_NUM_THREADS=1 $(BIN)/python tests/drivers/fuzz_cli.py --seed 1 --count 100 --log build/fuzz.jsonl

mutations: $(VENV)/.group-test ## lines broken on purpose, each must fail a quick test (tests/MUTATIONS.md); OF=10: a tenth, chosen by the commit
	$(BIN)/python tests/drivers/mutations.py --share $(SHARE) --of $(or $(OF),1)

certificates: $(VENV)/.group-test ## check the example certificates with the checker alone
	$(BIN)/python -m calipers_verify examples/certificates/*.cert.json

package: $(VENV)/.group-test ## build wheel and sdist, check both, install them in an environment of their own and use them
	.ci/package $(BIN)/python

words: $(VENV)/.group-test ## private words in README, docs, help, messages and reports: there should be none
	OMP_NUM_THREADS=1 $(BIN)/python tests/drivers/private_words.py

lint: $(VENV)/.group-dev ## style: ruff check, ruff format --check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.group-dev ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.group-dev ## mypy --strict on src
	$(BIN)/mypy --strict src

layers: $(VENV)/.group-dev ## which room may import which
	$(BIN)/lint-imports --no-logo

docs: $(VENV)/.group-docs ## the documentation, in build/docs; GALLERY=none leaves the papers' figures out
	CALIPERS_GALLERY=$(or $(GALLERY),quick) $(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs
	@echo "build/docs/index.html"

notebooks: $(VENV)/.group-notebooks $(VENV)/.libraries ## run the notebooks of the documentation and compare what comes out
	$(BIN)/python docs/_generate/notebooks.py --check

bench: $(BENCH_VENV)/.peers ## time and precision beside other accountants (installs PyTorch for Opacus)
	$(BENCH_VENV)/bin/python -m benchmarks.bench

house: $(VENV)/.calipers ## figures of the source, and brackets of 129 runs beside the stored ones (two minutes)
	PYTHONPATH=src $(BIN)/python tests/drivers/house_figures.py
	OMP_NUM_THREADS=1 PYTHONPATH=src $(BIN)/python tests/drivers/reference_brackets.py

first-five-minutes: ## every command of README, in a fresh clone and environment
	tests/first_five_minutes.sh .

reproduce: $(VENV)/.calipers ## the papers' tables and figures
	$(BIN)/calipers reproduce --all

clean: ## remove the environment, caches and builds
	rm -rf .venv .venv-bench .venv-federated build dist docs/generated .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.made:
	@echo "setting up $(VENV)"
	@.ci/venv $(VENV)
	@touch $@

$(BENCH_VENV)/.peers: benchmarks/requirements.txt $(METADATA)
	@echo "setting up $(BENCH_VENV) with the other accountants"
	@.ci/venv $(BENCH_VENV)
	@$(BENCH_VENV)/bin/python -m pip --disable-pip-version-check --no-input install -qq "$$(grep '^torch' $<)"
	@$(BENCH_VENV)/bin/python -m pip --disable-pip-version-check --no-input install -qq -r $< --editable .
	@touch $@

$(FEDERATED_VENV)/.libraries: tests/federated/requirements.txt tests/federated/libraries.txt $(METADATA)
	@echo "setting up $(FEDERATED_VENV) with Flower, pfl and NVFlare"
	@.ci/venv $(FEDERATED_VENV)
	@$(FEDERATED_VENV)/bin/python -m pip --disable-pip-version-check --no-input install -qq $(PIP)
	@$(FEDERATED_VENV)/bin/python -m pip --disable-pip-version-check --no-input install -qq -r $< --group test --editable .
	@$(FEDERATED_VENV)/bin/python -m pip --disable-pip-version-check --no-input install -qq --no-deps -r tests/federated/libraries.txt
	@touch $@

# PyTorch first and by its own name and version: with Opacus alone pip would choose one.
$(VENV)/.libraries: benchmarks/requirements.txt $(METADATA) $(VENV)/.pip
	@echo "installing Opacus, JAX-Privacy, Lightning, Transformers and Keras"
	@$(PIP_INSTALL) "$$(grep '^torch' $<)"
	@$(PIP_INSTALL) --group libraries --editable '.[opacus,jax-privacy,lightning,transformers,keras]'
	@touch $@

$(VENV)/.calipers: $(METADATA) $(VENV)/.made
	@echo "installing calipers"
	@$(PIP_INSTALL) --editable .
	@touch $@

$(VENV)/.pip: $(VENV)/.made
	@$(PIP_INSTALL) $(PIP)
	@touch $@

$(VENV)/.group-%: $(METADATA) $(VENV)/.pip
	@echo "installing calipers with the group $*"
	@$(PIP_INSTALL) --group $* --editable .
	@touch $@

$(VENV)/.extra-%: $(METADATA) $(VENV)/.made
	@echo "installing calipers[$*]"
	@$(PIP_INSTALL) --editable '.[$*]'
	@touch $@
