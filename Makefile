# The two commands that matter: `make demo` and `make test`. Both set up .venv by themselves;
# all they need is make and a Python from 3.11 on.

SHELL := /bin/sh
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TRAINERS := $(VENV)/.trainers
BROWSER := $(VENV)/.browser
EXTRAS := canary,s3,zstd,service,postgresql,worker,otel,dev
# One thread a process: tests and ranks share the cores.
RUN := OMP_NUM_THREADS=1 PATH="$(abspath $(BIN)):$$PATH"
# One more than cores: many tests wait for processes of their own.
WORKERS ?= 3

.PHONY: help demo screenshots test prove check fuzz bench lint venv clean

help: ## say what there is
	@grep -E '^[a-z]+:.*##' Makefile | sed 's/:.*## /: /'

demo: venv ## a real training job, checkpoints that rot, who notices, from where a launcher resumes
	@$(RUN) python examples/demo/run.py

screenshots: venv $(BROWSER) ## pictures of every page, from the demo's checkpoints, into docs/screenshots
	@$(RUN) python examples/demo/screenshots.py docs/screenshots

test: lint $(BROWSER) ## everything that must hold, under 15 minutes
	CKPTGUARD_BROWSER=required $(RUN) python -m pytest -m 'not slow' -n $(WORKERS) --dist loadfile --no-loadscope-reorder

check: test ## the one door: exactly what CI runs

lint: venv
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy
	$(RUN) lint-imports

prove: venv $(TRAINERS) ## the stated numbers, printed as tables
	$(RUN) python benchmarks/corpus.py
	$(RUN) python benchmarks/detection.py --count 5000
	$(RUN) python benchmarks/detection.py --count 5000 --guarded
	$(RUN) python benchmarks/metadata_scale.py
	$(RUN) python benchmarks/speed.py
	$(RUN) python benchmarks/guarded_save.py
	$(RUN) python benchmarks/service_load.py
	$(RUN) python benchmarks/claims.py
	$(RUN) python benchmarks/kills.py --kills 200
	$(RUN) python benchmarks/guarded_kills.py --kills 200
	$(RUN) python benchmarks/guarded_races.py --races 60 --orphans 4
	$(RUN) python -m pytest -m slow -k 'not fuzz' -n $(WORKERS)

bench: venv ## speed and memory alone
	$(RUN) python benchmarks/speed.py

fuzz: venv ## the parsers against mutated input, for long
	$(RUN) python -m pytest -m slow -k fuzz -n $(WORKERS)

venv: $(STAMP)

# torch first and alone: its exact version lets pip take a CPU build where one is at hand.
$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "needs Python 3.11 or newer: make PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' constraints.txt)" -c constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $(STAMP)

# Only their own examples need the trainers (tests/trainers); none of them is needed to build or to test the rest.
$(BROWSER): tests/pages/install_browser.sh $(STAMP)
	sh tests/pages/install_browser.sh $(BIN)/python
	@touch $@

$(TRAINERS): $(STAMP) tests/trainers/olmo_core.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS),trainers]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps -r tests/trainers/olmo_core.txt
	@touch $(TRAINERS)

clean: ## remove .venv and what demo, bench and prove left
	rm -rf $(VENV) .demo .bench .prove
