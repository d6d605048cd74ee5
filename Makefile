# `make demo` shows it, `make test` checks it. Each sets up .venv on its own, from Python 3.11 and pip alone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
JOBS ?= 2

all: test

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: Intaglio needs Python 3.11 or newer; name one with \`make PYTHON=python3.12\`" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: $(STAMP)
	$(BIN)/intaglio demo

lint: $(STAMP)
	$(BIN)/ruff check src tests tools scripts benchmarks plugins
	$(BIN)/mypy

test: lint
	$(BIN)/pytest -n $(JOBS) -m "not slow"

test-all: lint
	$(BIN)/pytest -n $(JOBS)

bench: $(STAMP)
	$(BIN)/python benchmarks/run.py

bench-mcu: $(STAMP)
	$(BIN)/python benchmarks/mcu.py

bench-memory: $(STAMP)
	$(BIN)/python benchmarks/memory.py

# SANITIZE=1 builds every test with ASan and UBSan (needs gcc).
conformance: $(STAMP)
	$(BIN)/python tools/conformance.py --jobs $(JOBS) $(if $(SANITIZE),--sanitize)

clean:
	rm -rf build .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

.PHONY: all demo lint test test-all bench bench-mcu bench-memory conformance clean
