# Every target makes and updates .venv by itself; a Python of 3.11 or newer is all that a machine needs.
#
#   make demo          see it work: server, workers, a crash, a cut connection, the record
#   make test          everything that this machine can run
#   make check         format, lint, types, layers, unit and property tests
#   make services      install the servers that tests start and that are missing (Debian, as root)
#   make contract      hold every broker to the contract, and store what came of it for docs/reference/brokers.md
#   make faults        break everything once, and print how long it takes to go on
#   make soak          the property, fault and acceptance tests in full: hours
#   make bench         measure speed and size: minutes
#   make bench BROKER=redis  the same on Redis, beside redis-py and dramatiq
#   make bench-long    the same with a million jobs, ten thousand connections, more processes: longer
#   make bench-growth  how the cost of a job grows with what there is, as plots
#   make bench-peers   Tenure beside other task frameworks, in an environment of their own
#   make bench-check   measure, and fail where a ratio is a quarter worse than the stored one
#   make format        let ruff rewrite what it can
#   make reference     write what the documentation has from the code
#   make clean         remove .venv and all that was made

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test services faults soak check bench bench-long bench-growth bench-peers bench-check format reference clean

VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.installed-core
DEV := $(VENV)/.installed-dev
# What the benchmarks compare with and draw with is kept apart: it is no part of Tenure, and no tool to work on it.
BENCH := .venv-bench
PEERS := $(BENCH)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet
# Most tests wait for something half of the time, so three at once keep two cores busy.  They are handed out one by
# one, so that a folder is through before the next one begins, and each is measured alone.
PYTEST := $(BIN)/python -m pytest --timeout 60 --numprocesses 3 --maxschedchunk 1
# Hundreds of processes are started, each of which would compile all of Tenure anew.
unexport PYTHONDONTWRITEBYTECODE

CODE := src tests $(wildcard docs/*.py) $(if $(wildcard examples/*.py examples/*/*.py),examples)
# The long ones of the property tests come first, so that short ones fill what is left of the time.
FAST_TESTS := $(wildcard tests/property tests/unit)
SLOW_TESTS := $(wildcard tests/contract tests/typing tests/faults tests/acceptance)
# TENURE_CHECKED=1 says that `make check` has just passed, so its tests need no second run.
TESTS := $(if $(filter 1,$(TENURE_CHECKED)),$(SLOW_TESTS),$(FAST_TESTS) $(SLOW_TESTS))

CHECK_BUDGET := 180

help:
	@sed -n 's/^#   //p' Makefile

# The first of these that is new enough and can make virtual environments.
$(BIN)/python:
	@for python in python3 python3.13 python3.12 python3.11; do \
	  "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	  seen="$$python"; \
	  "$$python" -c 'import venv, ensurepip' 2>/dev/null || continue; \
	  echo "making $(VENV) with $$("$$python" --version)"; \
	  exec "$$python" -m venv --clear $(VENV); \
	done; \
	if [ -n "$$seen" ]; then \
	  echo "$$seen is new enough but cannot make a virtual environment: install its venv module" >&2; \
	  echo "(on Debian and Ubuntu the package python3-venv)." >&2; \
	else \
	  echo "Tenure needs Python 3.11 or newer; none of python3, python3.13, python3.12, python3.11 is." >&2; \
	fi; \
	exit 1

$(CORE): pyproject.toml | $(BIN)/python
	@echo "installing tenure"
	@$(PIP) install --editable .
	@touch $@

$(DEV): pyproject.toml | $(BIN)/python
	@echo "installing tenure and its development tools"
	@$(PIP) install --editable '.[dev]'
	@touch $(CORE) $@

demo: $(CORE)
	@$(BIN)/python -m examples.stdlib_report.demo

$(PEERS): tests/benchmarks/peers/requirements.txt | $(BIN)/python
	@echo "installing what the benchmarks compare with and draw with"
	@$(BIN)/python -m venv --clear $(BENCH)
	@$(BENCH)/bin/python -m pip --disable-pip-version-check --quiet --quiet install -r $<
	@touch $@

# ARGS goes to each of them, such as ARGS=--docs, which writes what was measured into the documentation.
# BROKER=redis measures the same on a Redis of its own, beside redis-py and dramatiq in the same run.
ifeq ($(BROKER),redis)
bench: $(DEV) $(PEERS)
	@$(BIN)/python -m tests.benchmarks.on_redis $(ARGS)
else
bench: $(DEV)
	@$(BIN)/python -m tests.benchmarks $(ARGS)
endif

bench-long: $(DEV)
	@$(BIN)/python -m tests.benchmarks --long $(ARGS)

bench-growth: $(DEV) $(PEERS)
	@$(BIN)/python -m tests.benchmarks.growth $(ARGS)

bench-peers: $(DEV) $(PEERS)
	@$(BIN)/python -m tests.benchmarks.peers $(ARGS)

bench-check: $(DEV)
	@$(BIN)/python -m tests.benchmarks.check $(ARGS)

format: $(DEV)
	@$(BIN)/ruff check --fix-only --quiet $(CODE)
	@$(BIN)/ruff format $(CODE)

reference: $(DEV)
	@$(BIN)/python -m docs.make_reference
	@$(BIN)/python -m docs.make_lifecycle

# The layers are read anew each time: a cached import of a file that was not there yet is kept as one of its package.
# All parts run, also behind one that failed, so that one run shows everything.
check: $(DEV)
	@total=0; failed=; times=; \
	part() { \
	  name=$$1; shift; begin=$$(date +%s); \
	  echo "--- $$name"; \
	  "$$@" || failed="$$failed $$name"; \
	  took=$$(( $$(date +%s) - begin )); total=$$(( total + took )); times="$$times, $$name $$took s"; \
	}; \
	part format $(BIN)/ruff format --check --quiet $(CODE); \
	part lint $(BIN)/ruff check --quiet $(CODE); \
	part types $(BIN)/mypy $(CODE); \
	part layers env NO_COLOR=1 $(BIN)/lint-imports --no-logo --no-cache; \
	part tests $(PYTEST) -q $(FAST_TESTS); \
	echo "check: $$total s of $(CHECK_BUDGET) s ($${times#, })"; \
	if [ $$total -gt $(CHECK_BUDGET) ]; then echo "!!!!!!!! check is OVER ITS BUDGET of $(CHECK_BUDGET) s !!!!!!!!"; fi; \
	if [ -n "$$failed" ]; then echo "check failed:$$failed" >&2; exit 1; fi

# pytest itself prints what each folder took against its budget (tests/conftest.py), above its closing line.
test: $(DEV)
	@$(if $(strip $(TESTS)),$(PYTEST) $(TESTS),echo "no tests left to run")

# The tests start servers of their own; only the programs have to be there.  Where one is missing, its tests are
# skipped, with TENURE_REQUIRE_SERVICES=1 they fail.  Valkey's comes with the development tools.
services:
	@missing=; \
	command -v redis-server >/dev/null || command -v valkey-server >/dev/null || missing="$$missing redis-server"; \
	command -v openssl >/dev/null || missing="$$missing openssl"; \
	if [ -z "$$missing" ]; then echo "services: all programs are there"; exit 0; fi; \
	if ! command -v apt-get >/dev/null || [ "$$(id -u)" != 0 ]; then \
	  echo "services: missing are$$missing; install them (on Debian, as root: apt-get install$$missing)" >&2; exit 1; \
	fi; \
	echo "services: installing$$missing"; \
	export DEBIAN_FRONTEND=noninteractive; \
	apt-get install --yes --quiet --no-install-recommends $$missing >/dev/null || { \
	  apt-get update --quiet >/dev/null && apt-get install --yes --quiet --no-install-recommends $$missing >/dev/null; \
	}

contract: $(DEV)
	@TENURE_CONTRACT_RUN=docs/reference/brokers.json $(PYTEST) tests/contract
	@$(BIN)/python -m docs.make_reference

faults: $(DEV)
	@$(BIN)/python -m tests.faults.rows

soak: $(DEV)
	@TENURE_SOAK=1 $(BIN)/python -m pytest --timeout 7200 -s tests/property tests/faults tests/acceptance

clean:
	rm -rf $(VENV) $(BENCH) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find src tests examples docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
