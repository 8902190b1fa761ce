# make setup | demo | test | check | bench      (the last four call setup first when something changed)
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo test check bench clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: setup
	rm -rf demo
	$(BIN)/jcas demo --out demo

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: check
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations=12

bench: setup
	$(BIN)/python benchmarks/affinity.py
	$(BIN)/python benchmarks/step.py

clean:
	rm -rf $(VENV) demo runs benchmarks/out
