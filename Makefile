# The two commands a newcomer needs are `make demo` and `make test`; each sets everything up.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
OLD := .venv-duckdb-1.5
OLD_STAMP := $(OLD)/.installed
PEERS := .venv-peers
PEERS_STAMP := $(PEERS)/.installed
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

.PHONY: demo test check test-all test-duckdb-1.5 test-wheel conformance bench lock clean

demo: $(STAMP)
	$(BIN)/oteval demo

test: $(STAMP)
	$(BIN)/pytest -q -n 2

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# What needs more than the locked environment: the oldest DuckDB we support, the built wheel in an
# environment of its own, and the public tests of agentevals.
test-all: test-duckdb-1.5 test-wheel conformance

test-duckdb-1.5: $(OLD_STAMP)
	$(OLD)/bin/pytest -q -n 2

test-wheel:
	rm -rf build/wheel && mkdir -p build/wheel
	$(PYTHON) -m venv build/wheel/env
	$(PIP) build/wheel/env/bin/pip install -q .
	cd build/wheel && env/bin/oteval --version && env/bin/oteval demo --dir demo > demo.txt
	grep -q "not evaluated" build/wheel/demo.txt

conformance: $(PEERS_STAMP)
	$(PEERS)/bin/python tests/conformance/run.py

bench: $(STAMP) $(PEERS_STAMP)
	$(BIN)/python -m benchmarks --peer $(PEERS)/bin/python

# The lock names versions and hashes, and neither an index nor a host.
lock: $(STAMP)
	$(BIN)/uv pip compile pyproject.toml --group dev --generate-hashes --universal \
	  --no-emit-index-url --no-header --quiet --output-file requirements.lock

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(BIN)/pip install -q --require-hashes -r requirements.lock
	$(PIP) $(BIN)/pip install -q --no-deps --no-build-isolation -e .
	touch $@

$(OLD_STAMP): $(STAMP)
	$(PYTHON) -m venv $(OLD)
	grep -v '^ *#' requirements.lock > $(OLD)/lock.txt
	$(PIP) $(OLD)/bin/pip install -q --require-hashes -r $(OLD)/lock.txt
	$(PIP) $(OLD)/bin/pip install -q --no-deps 'duckdb==1.5.5'
	$(PIP) $(OLD)/bin/pip install -q --no-deps --no-build-isolation -e .
	touch $@

$(PEERS_STAMP): pyproject.toml
	$(PYTHON) -m venv $(PEERS)
	$(PIP) $(PEERS)/bin/pip install -q -e '.[peers]' pytest pytest-asyncio
	touch $@

clean:
	rm -rf $(VENV) $(OLD) $(PEERS) build dist oteval-demo .mypy_cache .ruff_cache .pytest_cache
