# Everything a developer or a CI job does. Needs Python >= 3.11 and make; `make setup` brings the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.noosphere-setup
PYTEST_ARGS ?=
SERVE_ARGS ?=
DEMO_ARGS ?=
FAULTS ?= 100
SEED ?= 1
SECONDS ?= 600
BENCH_ARGS ?= --publish
SEEDS ?= 1000
TRACE ?=
# Where `make up` and `make cluster` keep everything.
FLEET ?= .run
# What the tests and `make up` run.
WEAVIATE_VERSION := v1.38.11
# Images set this to stay small; here hundreds of processes would each compile all of the source again.
export PYTHONDONTWRITEBYTECODE =

.DEFAULT_GOAL := help
.PHONY: help setup run demo weaviate up cluster roll down test campaigns faults simulate mutants mutation soak check proto proto-baseline cli-reference sync-client bench capacity grpc-stops lock clean k8s

help: ## List the targets
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 18

setup: $(STAMP) ## Make the virtual environment (skipped when up to date)

# The stamp is younger than what it was made from, or pip runs again; a half-made environment has none.
$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "$(PYTHON) is too old: Python 3.11 or newer is needed (make setup PYTHON=…)")'
	rm -f $@
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

run: setup ## Serve with default settings (SERVE_ARGS="--listen 127.0.0.1:0")
	$(BIN)/noosphere serve $(SERVE_ARGS)

demo: setup ## Eight agents on one job, compared with the serial result (DEMO_ARGS="--json")
	$(BIN)/noosphere demo $(DEMO_ARGS)

weaviate: $(VENV)/.weaviate-$(WEAVIATE_VERSION) ## Build Weaviate into the virtual environment (needs Go; skipped if it is there)

# The stamp names the version: another one is built anew.
$(VENV)/.weaviate-$(WEAVIATE_VERSION): | setup
	@command -v go >/dev/null || { echo 'make weaviate: go is not installed, which builds it' >&2; exit 1; }
	GOBIN=$(abspath $(BIN)) CGO_ENABLED=0 go install github.com/weaviate/weaviate/cmd/weaviate-server@$(WEAVIATE_VERSION)
	touch $@

up: setup ## Start a real Redis with a replica, etcd and (if it is there) Weaviate on this machine (FLEET=folder)
	@$(BIN)/python -m noosphere.server.fleet up --folder $(FLEET)

cluster: setup ## The same and three servers on them, ready to use
	@$(BIN)/python -m noosphere.server.fleet cluster --folder $(FLEET)

roll: setup ## Restart the servers of `make cluster`, one after the other
	@$(BIN)/python -m noosphere.server.fleet roll --folder $(FLEET)

down: setup ## Stop what `make up` and `make cluster` have started
	@$(BIN)/python -m noosphere.server.fleet down --folder $(FLEET)

test: setup ## Run the everyday tests (PYTEST_ARGS="-k name")
	$(BIN)/pytest -n 2 -m "not engine and not campaign" $(PYTEST_ARGS)

campaigns: setup ## Run the other tests: real engines (Redis, etcd, Weaviate), many kills, all examples of properties
	TEST_EFFORT=full $(BIN)/pytest -n 2 -m "engine or campaign or thorough or hypothesis" $(PYTEST_ARGS)

faults: setup ## Faults at random over a whole fleet, for some minutes (FAULTS=100 SEED=1)
	NOOSPHERE_TEST_FAULTS=$(FAULTS) NOOSPHERE_TEST_SEED=$(SEED) $(BIN)/pytest -n0 -s tests/faults/test_fleet_campaign.py $(PYTEST_ARGS)

simulate: setup ## Many seeds of the whole system under faults in virtual time (SEEDS=1000 SEED=1; SEEDS=1 TRACE=1)
	$(BIN)/python -m tests.simulation.world --seed $(SEED) --seeds $(SEEDS) $(if $(TRACE),--trace)

mutants: setup ## Deliberate bugs: does a test fail for each? (PATCH=file tries another, MUTANTS="--only name --jobs 1")
	$(BIN)/python -m tests.mutants $(if $(PATCH),--patch $(abspath $(PATCH))) $(MUTANTS)

mutation: setup ## Every token of the rules changed, one at a time: how many changes do tests notice? (an hour)
	$(BIN)/python -m scripts.mutation $(MUTATION_ARGS)

soak: setup ## A server at steady load for long: is its memory flat? (SECONDS=600)
	$(BIN)/python -m tests.bench.soak --seconds $(SECONDS)

check: setup ## Everything that needs no running: style, types, layers, contract, generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	for project in examples/*/; do (cd $$project && MYPYPATH=src $(abspath $(BIN))/mypy --strict src tests) || exit 1; done
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_layout.py
	cd protos && ../$(BIN)/buf lint
	cd protos && ../$(BIN)/buf format --exit-code --diff
	cd protos && ../$(BIN)/buf breaking --against baseline.binpb
	$(BIN)/python scripts/gen_protos.py --check
	$(BIN)/python scripts/gen_cli_reference.py --check
	$(BIN)/python -m scripts.gen_sync_client --check

k8s: setup ## Build the manifests of k8s/ and check them: schemas of Kubernetes, and our own rules
	$(BIN)/yamllint --strict k8s
	$(BIN)/hadolint Dockerfile
	$(BIN)/python -m scripts.manifests

proto: setup ## Generate the stubs from the .proto files
	cd protos && ../$(BIN)/buf format --write
	$(BIN)/python scripts/gen_protos.py

proto-baseline: setup ## Accept the present contract as what later ones must not break (at a release)
	cd protos && ../$(BIN)/buf build --exclude-source-info --output baseline.binpb

cli-reference: setup ## Generate docs/cli.md from the CLI
	$(BIN)/python scripts/gen_cli_reference.py

sync-client: setup ## Generate the sync client from the async one
	$(BIN)/python -m scripts.gen_sync_client

bench: BENCH_ARGS ?= --publish
bench: setup ## Measure everything in 25 minutes, and write docs/benchmarks.md (BENCH_ARGS=--quick: only to bench-out)
	$(BIN)/python -m tests.bench $(BENCH_ARGS)

capacity: setup ## Measure what things cost in bytes, and write the table of docs/capacity.md
	$(BIN)/python -m tests.bench.capacity

grpc-stops: setup ## Try whether this grpcio outlives stops of servers while calls arrive (3 minutes)
	for one in 1 2 3; do $(BIN)/python scripts/grpc_stops.py --seconds 180 & tried="$$tried $$!"; done; \
	for one in $$tried; do wait $$one || exit 1; done

# weaviate-client needs grpcio < 1.80 and protobuf < 7, and 1.78 crashes (ADR 34); one lock has to serve every extra.
IMAGE_LOCK := --python-version 3.11 --generate-hashes --no-annotate --no-header --no-emit-index-url --no-emit-package noosphere --quiet
lock: setup ## Pin every dependency anew in requirements.lock
	printf '%s\n' 'grpcio<1.78' 'protobuf<7' | $(BIN)/uv pip compile pyproject.toml --all-extras --constraints - \
		--python-version 3.11 --upgrade --generate-hashes --no-annotate --no-header --no-emit-index-url \
		--no-emit-package noosphere --quiet --output-file requirements.lock
	$(BIN)/uv pip compile pyproject.toml --extra all --constraints requirements.lock $(IMAGE_LOCK) --output-file requirements-image.lock
	echo 'hatchling>=1.27' | $(BIN)/uv pip compile - --constraints requirements.lock $(IMAGE_LOCK) --output-file requirements-build.lock

clean: ## Remove everything that was made, except data folders
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
