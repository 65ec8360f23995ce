# Everything is installed into .venv; nothing is installed or changed elsewhere.
#   PYTHON=python3.13 make test     another interpreter (3.11 or newer)
#   LASH_USE_UV=1 make test         demand uv (it is used by itself when it is on PATH); LASH_USE_UV= forbids it
#   ARGS="-k lease" make test       arguments for the program that the target runs
#   JOBS=0 make test                one process for all tests; by default three for two cores

PYTHON ?= python3
LASH_USE_UV ?= $(if $(shell command -v uv 2>/dev/null),1,)
ARGS ?=
JOBS ?= auto
MODULE ?=
MINUTES ?=

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
RUNTIME := $(VENV)/.runtime
PLAN_TESTS := $(wildcard tests/rules/test_*.py)
SCENARIO ?=

# Tests start hundreds of Python processes, each of which would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup test proof check lint types imports rules plan-coverage format demo bench faults contention fleet soak docs clean model sweep planted mutation fuzz audit peers wheel adapters adapters-install
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

setup: $(INSTALLED) ## create .venv with all that development needs

# Whichever process is idle takes tests from the other.
PYTEST := $(BIN)/python -m pytest --numprocesses $(JOBS) --dist worksteal

test: $(INSTALLED) ## every rule and guarantee once, on SQLite and on a real PostgreSQL
	$(PYTEST) -m "not proof" $(ARGS)

proof: export LASH_CONTENTION_SECONDS ?= 8
proof: export LASH_CRASH_POINTS ?= 6
proof: export LASH_SOAK_SECONDS ?= 10
proof: export LASH_SWEEP ?= 2
proof: $(INSTALLED) ## the long kinds: state machines, sweep, faults, contention, soak, fuzz, mutants, planted bugs
	$(PYTEST) -m "proof or sampled" $(ARGS)
	$(BIN)/python -m tools.planted --sample

model: $(INSTALLED) ## state machines on both backends, from random seeds; LASH_MODEL_EXAMPLES=n for each (default 500)
	LASH_MODEL_EXAMPLES=$${LASH_MODEL_EXAMPLES:-500} $(BIN)/python -m pytest tests/proof/model -rP \
	  --numprocesses $(JOBS) --dist loadscope $(ARGS)

check: lint types imports rules plan-coverage ## run every check that is not a test

lint: $(INSTALLED) ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED) ## mypy, strict
	$(BIN)/mypy

imports: $(INSTALLED) ## the direction of imports
	$(BIN)/lint-imports

rules: $(INSTALLED) ## this repository's own rules, on real databases
	$(BIN)/python -m tools.check_repository

plan-coverage: $(INSTALLED) ## plan/ is covered whole, by its pure tests alone
ifneq ($(PLAN_TESTS),)
	$(BIN)/coverage run -m pytest --quiet tests/rules
	$(BIN)/coverage report
endif

planted: $(INSTALLED) ## plant each bug of tests/proof/planted in a copy of the tree: its check must fail; ARGS=word narrows
	$(BIN)/python -m tools.planted --verify-checks $(ARGS)

audit: $(INSTALLED) ## known vulnerabilities of what is installed; asks PyPI, ARGS=--strict demands its answer
	$(BIN)/python -m tools.audit $(ARGS)

wheel: export LASH_USE_UV := $(LASH_USE_UV)
wheel: $(INSTALLED) ## build the sdist and the wheel, install the wheel into an empty environment, run the demonstration there
	$(BIN)/python -m tools.wheel

fuzz: $(INSTALLED) ## hostile text, files, values and rows, new ones in each round: MINUTES=10
	$(BIN)/python -m tools.fuzz --minutes $(or $(MINUTES),10) $(ARGS)

mutation: $(INSTALLED) ## break plan/ in every small way: its tests must notice; MODULE=plan/lease narrows, a broken-off run goes on
	$(BIN)/python -m tools.mutation $(MODULE)

format: $(INSTALLED) ## let ruff format and mend what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# What development needs takes minutes to fetch, and the demonstration does without.
demo: $(if $(wildcard $(INSTALLED)),$(INSTALLED),$(RUNTIME)) ## kill a worker in the middle of a turn; nothing is lost or repeated
	$(BIN)/python -m lash.demo $(ARGS)

bench: $(INSTALLED) ## measure, as ratios within one run; SCENARIO=name for one, ARGS=--quick for a look
	@$(BIN)/python -m benchmarks.run $(SCENARIO) $(ARGS)

adapters: $(INSTALLED) ## prove the adapters with the frameworks' own tests, each in its own environment; ARGS=name narrows, LATEST=1 unpins
	$(BIN)/python -m tools.adapters $(if $(LATEST),--latest) $(if $(SAMPLE),--sample) $(ARGS)

adapters-install: $(INSTALLED) ## create the environments of the adapters and run nothing
	$(BIN)/python -m tools.adapters --install

peers: ## install the libraries that lash is compared with, each in its own environment
	@PYTHON=$(PYTHON) benchmarks/peers/setup.sh $(ARGS)

contention: export LASH_CONTENTION_SECONDS = $(shell echo $$(( $(or $(MINUTES),1) * 60 )))
contention: $(INSTALLED) ## kill and stop processes on one database and judge their history; MINUTES=1 for each backend
	$(BIN)/python -m pytest --capture no tests/proof/contention $(ARGS)

fleet: export LASH_FLEET_SECONDS ?= 120
fleet: export LASH_FLEET_WORKERS ?= 16
fleet: $(INSTALLED) ## kill a third of 16 workers again and again for two minutes, on each database; LASH_FLEET_SECONDS, LASH_FLEET_WORKERS
	$(BIN)/python -m pytest --capture no tests/proof/contention/test_fleet.py $(ARGS)

soak: export LASH_SOAK_MINUTES = $(or $(MINUTES),1)
soak: export LASH_SOAK_REPORT = $(CURDIR)/soak
soak: $(INSTALLED) ## watch a worker under load, with a report in soak/; MINUTES=1 for each backend
	$(BIN)/python -m pytest --capture no tests/proof/soak $(ARGS)

# How many times as much as in make test: 10 takes some twenty minutes.
FAULTS ?= 10
faults: $(INSTALLED) ## disk, server and power faults, FAULTS=10 times as many as in make test
	LASH_FAULTS=$(FAULTS) $(BIN)/python -m pytest --timeout 3600 --numprocesses $(JOBS) --dist loadscope $(ARGS) tests/proof/faults
sweep: $(INSTALLED) ## strike every operation at every one of its statements (make proof: a sample); ARGS="-k Queue" for a part
	LASH_SWEEP=all $(BIN)/python -m pytest --timeout 3600 --numprocesses $(JOBS) --dist load $(ARGS) tests/proof/sweep

# Material for MkDocs prints an announcement of its makers at every start.
docs: export NO_MKDOCS_2_WARNING = 1
docs: $(INSTALLED) ## build the documentation into site/; ARGS=serve shows it while you write
	$(BIN)/python -m mkdocs $(or $(ARGS),build --strict)

clean: ## remove everything that make created
	rm -rf $(VENV) .adapters benchmarks/peers/.venvs dist site soak .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf .import_linter_cache .mutation
	find src tests tools benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# Debian may come without ensurepip: then the system's pip puts a pip into an environment made without one.
# pip installs dependency groups from 25.1 on, and the one that venv brings is usually older. Compiling every module in
# advance takes as long as all the rest, and most are never imported.
ifneq ($(LASH_USE_UV),)
define install
	@test -x $(BIN)/python || uv venv --quiet --python $(PYTHON) $(VENV)
	uv pip install --quiet --python $(BIN)/python --editable $(1)
endef
else
define install
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) >/dev/null || $(PYTHON) -m venv --clear --without-pip $(VENV)
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m pip install --quiet \
	  --target "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --no-compile --editable $(1)
endef
endif

$(INSTALLED) $(RUNTIME): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "lash needs Python 3.11 or newer; name one: PYTHON=python3.13 make ..." >&2; exit 1; }
	$(call install,$(if $(filter $@,$(RUNTIME)),'.[postgres]','.[postgres,s3,encryption,otel,testing]' --group dev))
	@touch $@
