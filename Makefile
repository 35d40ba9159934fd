# Everything runs in a virtual environment of its own, made on first use.
# CI runs these same words (.ci/run).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
OUT ?= runs

.PHONY: demo test check lint types arch format upstream chaos fuzz bench docs golden clean

demo: $(READY)        ## look into a model, train it, measure it, ask it, explain it: about a minute
	$(BIN)/vitrail demo

test: $(READY)        ## the whole default suite, under ten minutes on two cores
	$(BIN)/python -m pytest

check: lint types arch

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

arch: $(READY)
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

upstream: $(VENV)/.peers   ## against the real transformers, timm, torchvision, and the goldens
	$(BIN)/python -m pytest -m upstream

chaos: $(READY)       ## kills, floods and corrupts on purpose; slow
	$(BIN)/python -m pytest -m chaos

fuzz: $(READY)        ## a million inputs per reader
	$(BIN)/python -m pip install --quiet --constraint constraints.txt atheris
	$(BIN)/python -m fuzz

bench: $(VENV)/.peers ## peers side by side in one run; writes bench/RESULTS.md
	$(BIN)/python -m bench

docs: $(READY)        ## regenerate docs/cli.md and run every example
	$(BIN)/python docs/generate.py
	$(BIN)/python -m pytest docs README.md tests/surface

golden: $(READY)      ## regenerate our own goldens and print what moved
	$(BIN)/python tests/golden/regenerate.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

# constraints.txt holds the versions this was tested with. Where its torch build does not exist (CUDA, macOS),
# `pip install -e .[dev]` takes the ranges of pyproject.toml instead.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

# timm and torchvision would pull CUDA builds; their code alone is enough for an oracle.
$(VENV)/.peers: $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt transformers accelerate
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps timm torchvision
	touch $@
