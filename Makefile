# `make demo` shows it, `make test` checks it. Each sets up .venv on its own, from Python 3.11 and pip alone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO := $(VENV)/.installed-for-demo
PLUGINS := $(VENV)/.installed-plugins
CLIENTS := $(VENV)/.installed-for-serve
KINDS := $(VENV)/.installed-for-packages
BENCH := $(VENV)/.installed-for-bench
DOCS := $(VENV)/.installed-for-docs
JOBS ?= 2

all: test

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# PoCL refuses every kernel on a processor that is newer than its LLVM; Intel's driver runs there.
OPENCL := $(BIN)/python scripts/opencl_driver.py || $(PIP) -e '.[opencl-intel]' || echo "no OpenCL driver for this processor" >&2

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: Intaglio needs Python 3.11 or newer; name one with \`make PYTHON=python3.12\`" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

# With what the tests compare with: PyTorch, Keras and LiteRT among them.
$(STAMP): pyproject.toml | $(BIN)/python
	$(PIP) -e '.[dev]'
	@$(OPENCL)
	@touch $@ $(DEMO)

$(DEMO): pyproject.toml | $(BIN)/python
	$(PIP) -e '.[emulator,opencl]'
	@$(OPENCL)
	@touch $@

# The NPU of plugins/, as anybody would install it.
$(PLUGINS): $(STAMP) $(shell find plugins/example_npu -name '*.py' -o -name '*.[ch]' -o -name '*.toml')
	$(PIP) --no-deps --force-reinstall ./plugins/example_npu
	@rm -rf plugins/example_npu/build
	@touch $@

# Tools that check packages of their kind; tests of one that cannot be installed here are skipped.
$(KINDS): | $(STAMP)
	$(PIP) platformio idf-component-manager || echo "not all tools for packages could be installed" >&2
	@touch $@

# A client of `intaglio serve` that wants other versions of what the server needs, so it has an environment of its own. Its tests are
# skipped where it cannot be installed.
$(CLIENTS): | $(STAMP)
	@rm -rf $(VENV)/kserve && $(BIN)/python -m venv $(VENV)/kserve
	$(VENV)/kserve/bin/python -m pip install --quiet --disable-pip-version-check kserve || \
	  { echo "kserve could not be installed" >&2; rm -rf $(VENV)/kserve; }
	@touch $@

# The peers of `make bench`; one that cannot be installed here is a line of its report.
$(BENCH): pyproject.toml | $(STAMP)
	$(BIN)/python benchmarks/install.py
	@touch $@

$(DOCS): pyproject.toml | $(BIN)/python
	$(PIP) -e '.[docs]'
	@touch $@

demo: $(DEMO)
	$(BIN)/intaglio demo

# Train a network on gestures, compile it for a microcontroller with and without an NPU, run it in the emulator; and live.
example-gesture: $(PLUGINS)
	$(BIN)/python examples/gesture/gesture.py

example-gesture-live: $(PLUGINS)
	@test -f build/gesture/core/bin/gesture_live.elf || $(BIN)/python examples/gesture/gesture.py
	$(BIN)/python examples/gesture/live.py

lint: $(STAMP)
	$(BIN)/ruff check src tests tools scripts benchmarks plugins examples
	$(BIN)/mypy

# The linters run beside the tests: they need one core for half a minute.
test: $(STAMP)
	@$(MAKE) --no-print-directory -j 2 lint pytest

test-all: $(STAMP) $(KINDS) $(CLIENTS)
	@$(MAKE) --no-print-directory -j 2 lint pytest SLOW=1

# Tests of one file share fixtures such as compiled packages: they go to one process, in the order of tests/conftest.py.
# Tests start Python often: its bytecode is kept, also where the environment says otherwise.
pytest: export PYTHONDONTWRITEBYTECODE :=
pytest: $(STAMP)
	$(if $(SLOW),PATH="$(abspath $(BIN)):$$PATH") $(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(if $(SLOW),,-m "not slow")

# Against the best runtime of every model; `make bench ONLY=resnet` runs those whose names match.
bench: $(BENCH)
	$(BIN)/python benchmarks/run.py $(if $(ONLY),--only '$(ONLY)')

bench-mcu: $(STAMP)
	$(BIN)/python benchmarks/mcu.py

# Forests against emlearn, m2cgen, micromlgen and treelite; half an hour, most of it in the compiler of peers' code.
bench-trees: $(BENCH)
	$(BIN)/python benchmarks/trees.py

bench-memory: $(STAMP)
	$(BIN)/python benchmarks/memory.py

bench-opencl: $(STAMP)
	$(BIN)/python benchmarks/opencl.py

# `intaglio serve` beside ONNX Runtime and mlserver; bad requests; overload. MLSERVER names the command of an environment that has it.
bench-serve: $(STAMP)
	$(BIN)/python benchmarks/serve.py $(if $(MLSERVER),--mlserver '$(MLSERVER)')

bench-fleet: $(STAMP)
	$(BIN)/python benchmarks/fleet.py

# Kills at random times; the table must be that of an undisturbed run.
fleet-kills: $(STAMP)
	$(BIN)/python scripts/fleet_kills.py

# Instructions, RAM, flash and accuracy against benchmarks/gate.json; MLPerf Tiny too where ../shared is.
gate: $(STAMP)
	$(BIN)/pytest tests/fleet/test_gate.py

gate-figures: $(STAMP)
	INTAGLIO_MODELS=$(abspath ../shared/models/models) $(BIN)/intaglio fleet benchmarks/gate.toml --export benchmarks/gate.json

# SANITIZE=1 builds every test with ASan and UBSan (needs gcc).
conformance: $(STAMP)
	$(BIN)/python tools/conformance.py --jobs $(JOBS) $(if $(SANITIZE),--sanitize)

# Mutants of every format that is read, for some minutes; finds are in build/fuzz. ONLY=onnx,tflite takes some formats.
MINUTES ?= 5
fuzz: $(STAMP)
	$(BIN)/python tools/fuzzing/run.py --minutes $(MINUTES) $(if $(ONLY),--only '$(ONLY)') $(if $(FIRST),--first $(FIRST))

# Our own checks, broken in one place each: do their tests notice? SAMPLE=40 places of each; ONLY=checker takes some.
SAMPLE ?= 40
mutants: $(STAMP)
	$(BIN)/python tools/mutants.py --sample $(SAMPLE) $(if $(ONLY),--only '$(ONLY)')

# Models at random, computed in every way there is; differences are in build/hunt, reduced, as tests.
hunt: $(STAMP)
	$(BIN)/python tools/hunting/hunt.py --minutes $(MINUTES) $(if $(FIRST),--first $(FIRST))

# The documentation as a site that opens from disk: build/site/index.html.
docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "wrote build/site/index.html"

clean:
	rm -rf build .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

.PHONY: all demo example-gesture example-gesture-live lint pytest test test-all bench bench-mcu bench-trees bench-memory bench-opencl bench-serve bench-fleet fleet-kills gate gate-figures conformance fuzz hunt mutants docs clean
