# Two commands do it all on a fresh machine: `make chaos` and `make test`. `make help` lists the rest.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
ARGS   ?=

.DEFAULT_GOAL := help
.PHONY: help venv chaos test check lint types imports unit bench node docs lock clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

venv: $(STAMP) ## create .venv with everything, versions as in requirements.lock
$(STAMP): pyproject.toml requirements.lock
	$(PYTHON) -c 'import sys; sys.exit("Moorage needs Python 3.11 or newer; this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	touch $(STAMP)

chaos: venv ## the main job: three replicas and a Redis on this machine, every row of the matrix
	$(BIN)/python run_all.py $(ARGS)

test: check unit ## everything this machine can test

check: lint types imports ## ruff, mypy --strict, import contracts

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check server operator chaos conftest.py run_all.py

types: venv
	$(BIN)/mypy

imports: venv
	$(BIN)/lint-imports

unit: venv
	@status=0; for tree in server operator chaos; do \
	  echo "== $$tree"; $(BIN)/python -m pytest $$tree/tests $(ARGS) || status=1; \
	done; exit $$status

bench: venv ## the figures of the design, beside Node in the same run (writes build/bench.json)
	$(BIN)/python -m moorage_chaos.bench $(ARGS)
	@if test -n "$$KUBECONFIG" -o -e "$(BOX_KUBECONFIG)"; then $(MAKE) --no-print-directory bench-operator ARGS=; \
	else echo "the operator's figures are skipped: no cluster (make cluster)"; fi

node: ## the Node packages that the peer tests and the benchmark use
	cd chaos/peers/node && npm ci --no-audit --no-fund

docs: venv ## write the generated pages anew
	$(BIN)/moorage settings --markdown > docs/settings.md

lock: ## write requirements.lock anew from pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --extra dev --no-emit-index-url --no-annotate pyproject.toml -o requirements.lock

-include operator.mk

clean: ## remove what was built
	rm -rf $(VENV) build dist
