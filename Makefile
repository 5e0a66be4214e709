PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test checks tests browser format docs tour page clean

demo: .venv/ready
	$(BIN)/regard demo

# Two at a time: while one waits for a disk or a browser, the other goes on.
test:
	@$(MAKE) --no-print-directory -j 2 .venv/ready browser
	@$(MAKE) --no-print-directory -j 2 checks tests

checks: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# One thread each: two that wait for one another are slower than one as soon as anything else runs.
tests: .venv/ready browser
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 4 --dist loadfile --no-loadscope-reorder

# The browser tests want a Chromium, best the one without windows (a third less work): it is installed where that may
# be done, and said where it cannot.
browser:
	@for name in chromium-headless-shell chromium chromium-browser google-chrome; do \
		command -v $$name >/dev/null && exit 0; done; export DEBIAN_FRONTEND=noninteractive; \
	[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get -qq update >/dev/null && \
	{ apt-get -qq install -y --no-install-recommends chromium-headless-shell >/dev/null 2>&1 || \
	apt-get -qq install -y --no-install-recommends chromium >/dev/null; } || \
	echo "No Chromium here, and none could be installed: the browser tests will be skipped."

format: .venv/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: .venv/ready
	$(BIN)/python docs/parts.py

# The pictures of the README, from the shipped models.
tour: .venv/ready browser
	$(BIN)/python docs/tour.py

# The explorer's page, built into the package; only who changes it needs Node.
page:
	cd explorer && npm ci && npm run check && npm run build

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade "pip>=25.1"
	# Python compiles what is imported; to compile all of torch and transformers first takes a minute.
	$(BIN)/pip install --quiet --no-compile -c constraints.txt torch
	$(BIN)/pip install --quiet --no-compile -c constraints.txt -e . --group dev
	touch $@

clean:
	rm -rf .venv .pytest_cache .ruff_cache .mypy_cache
