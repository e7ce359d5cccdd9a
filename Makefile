# Two commands on a fresh machine with Python 3.11 or newer: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO := $(BIN)/.demo-installed
TEST := $(BIN)/.test-installed

.PHONY: demo demo-full test lint graph install mutants coverage

demo: $(DEMO)  ## set up and run the main job on the embedded data set; offline after the install
	$(BIN)/palimpsest register
	$(BIN)/palimpsest keys new --keep
	$(BIN)/palimpsest run --yes  # its rows are invented: whoever runs it owns them

demo-full: $(DEMO)  ## the same with more of everything, as docs/results/demo.md has it, in the folder full/
	mkdir -p full
	cp params.full.yaml full/params.yaml
	test -d full/.dvc || (cd full && $(CURDIR)/$(BIN)/dvc init --quiet --no-scm)
	cd full && export PATH="$(CURDIR)/$(BIN):$$PATH" && palimpsest render && palimpsest register \
		&& palimpsest keys new --keep && palimpsest run --yes

test: $(TEST) lint  ## everything CI checks
	$(BIN)/python -m pytest -n 2 --dist loadgroup

lint: $(TEST)
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy

graph: $(DEMO)  ## render dvc.yaml, params.resolved.yaml and docs/params.md anew
	$(BIN)/palimpsest render
	$(BIN)/python -c 'from palimpsest.params.reference import render; open("docs/params.md", "w").write(render())'

mutants: $(TEST)  ## plant faults in the privacy code one by one; each must be noticed by a test
	$(BIN)/python -m bench.mutants --seeds 20 --write docs/results

coverage: $(TEST)  ## which lines the tests run, those of the stages' own processes among them
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest -n 2 --dist loadgroup
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report --skip-covered --sort=miss

install: $(DEMO)

$(DEMO): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[embedded,prefect]'
	touch $@

$(TEST): $(DEMO)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[embedded,prefect,postgres,test]'
	touch $@
