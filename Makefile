# On a fresh machine with Python 3.11 to 3.13: `make demo`, `make test`; `make help` lists the rest.
PYTHON ?= python3
VENV ?= .venv
EXTRAS ?= embedded
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt
COMPILE := $(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true  # as pip would, on all cores; some files are no Python of today
# An editable install alone is found after any folder `palimpsest` of the working directory: a clone seen from above.
FIND := $(BIN)/python -c 'import sysconfig; open(sysconfig.get_path("purelib") + "/palimpsest_src.pth", "w").write("$(CURDIR)/src\n")'
DEMO := $(BIN)/.demo-installed
TEST := $(BIN)/.test-installed
TOOLS := build/tools/.installed

.PHONY: help demo demo-full test test-slow lint style graph docs install mutants twins coverage sbom audit

help:  ## say what each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(DEMO)  ## set up and run the main job on the embedded data set; offline after the install
	$(BIN)/palimpsest demo

demo-full: $(DEMO)  ## the same with more of everything, as docs/results/demo.md has it, in the folder full/
	$(BIN)/python -m tools.demo_full

test: $(TEST) style  ## everything CI checks; types are one of the tests, beside the others
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 3 --dist loadgroup  # on two cores: a worker waits for its processes, a server or a browser much of the time; code is compiled once

test-slow: $(TEST)  ## evidence for a release: wheel, notebooks, the commands of every page; goes on where it stopped
	$(BIN)/python -m pytest -m slow --stepwise

lint: style  ## style, import contracts, types
	$(BIN)/mypy

style: $(TEST)  ## what takes seconds
	$(BIN)/ruff check .
	$(BIN)/lint-imports

graph: $(DEMO)  ## render dvc.yaml, params.resolved.yaml and notebooks/ anew
	$(BIN)/palimpsest render
	$(BIN)/python -m bench.notebooks

docs: $(TEST)  ## the site, in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

mutants: $(TEST)  ## plant faults in the privacy code one by one; each must be noticed by a test
	$(BIN)/python -m bench.mutants --seeds 20 --write

twins: $(TEST)  ## before a release of palimpsest: attack every method end to end, as it is and broken; writes the results that ship
	OMP_NUM_THREADS=1 $(BIN)/python -m bench.twins

coverage: $(TEST)  ## which lines the tests run, those of the stages' own processes among them
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest -n 3 --dist loadgroup
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report --skip-covered --sort=miss

sbom: $(DEMO) $(TOOLS)  ## what is installed with palimpsest, as CycloneDX, in build/sbom.json
	build/tools/bin/cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml --of JSON -o build/sbom.json

audit: $(DEMO) $(TOOLS)  ## known vulnerabilities of what is installed; needs the service that pip-audit asks, and fails where it is not reached
	build/tools/bin/pip-audit --strict --skip-editable --path $$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

install: $(DEMO)  ## into .venv, with what the demo needs, or more: EXTRAS=embedded,prefect,pandas

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --upgrade pip  # what a Python of today brings along takes twice as long for the rest

$(DEMO): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) torch
	$(INSTALL) --editable '.[$(EXTRAS)]'
	$(FIND)
	$(COMPILE)
	touch $@

$(TEST): pyproject.toml constraints.txt | $(BIN)/python  # in one go, the demo's among them
	$(INSTALL) torch
	$(INSTALL) --editable '.[embedded,prefect,postgres,docs,test]'
	$(FIND)
	$(COMPILE)
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target $(VENV)/share/triton triton==3.9.0 || true  # there for Linux; apart, or each import of torch's users takes it along
	touch $(DEMO) $@

$(TOOLS):
	$(PYTHON) -m venv build/tools
	build/tools/bin/python -m pip install --quiet cyclonedx-bom==7.5.0 pip-audit==2.10.1
	touch $@
