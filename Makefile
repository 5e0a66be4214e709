PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test format docs clean

demo: .venv/ready
	$(BIN)/regard demo

test: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest

format: .venv/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: .venv/ready
	$(BIN)/python docs/parts.py

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/pip install --quiet -c constraints.txt torch
	$(BIN)/pip install --quiet -c constraints.txt -e . --group dev
	touch $@

clean:
	rm -rf .venv .pytest_cache .ruff_cache .mypy_cache
