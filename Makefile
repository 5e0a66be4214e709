PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test checks tests checked-tests other-tests browser format docs tour page notebooks release-check clean

# Compiled modules are kept: without them, every process that imports torch takes four seconds more.
export PYTHONDONTWRITEBYTECODE :=

demo: .venv/ready
	$(BIN)/regard demo

# Jobs in parallel: one runs while another waits for the disk or the browser.
test:
	@$(MAKE) --no-print-directory -j 2 .venv/ready browser
	@$(MAKE) --no-print-directory -j 3 checks tests

checks: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Shapes are checked at run time in the direct tests of the packages that have shapes, CHECKED. In the
# others, checks would double the time: a function that is called for every word is 30 times slower.
# Both parts run side by side, with workers in proportion to their work.
# One thread per worker: on a busy machine, two threads that synchronise are slower than one.
CHECKED := attention facts models positions search test_pooling.py test_ragged.py text trace vectors \
	$(patsubst %,contracts/test_%.py,attention models positions templates tokenizers traces)
PYTEST = OMP_NUM_THREADS=1 $(BIN)/pytest --dist loadfile --no-loadscope-reorder

tests: checked-tests other-tests

checked-tests: .venv/ready
	$(PYTEST) -n 1 $(CHECKED:%=tests/%)

other-tests: .venv/ready browser
	$(PYTEST) -n 4 --jaxtyping-packages= tests $(CHECKED:%=--ignore=tests/%)

# The browser tests need Chromium, preferably the headless shell (a third less work). It is
# installed where permitted; otherwise a message says that the tests are skipped.
browser:
	@for name in chromium-headless-shell chromium chromium-browser google-chrome; do \
		command -v $$name >/dev/null && exit 0; done; export DEBIAN_FRONTEND=noninteractive; \
	[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get -qq update >/dev/null && \
	{ apt-get -qq install -y --no-install-recommends chromium-headless-shell >/dev/null 2>&1 || \
	apt-get -qq install -y --no-install-recommends chromium >/dev/null; } || \
	echo "Chromium is not installed and could not be installed: the browser tests are skipped."

format: .venv/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The documentation site in site/, built strictly and without a network, and its generated pages.
docs: .venv/ready
	$(BIN)/python docs/scripts/build.py

# The pictures of the documentation, from the included models.
tour: .venv/ready browser
	$(BIN)/python docs/scripts/tour.py

# The notebooks, executed from start to end; their outputs are stored.
notebooks: .venv/ready
	$(BIN)/python scripts/run_notebooks.py --write

# Builds dist/*.whl and dist/*.tar.gz, installs them in a new environment elsewhere and uses them there.
release-check:
	$(PYTHON) scripts/release_check.py

# The explorer's page, built into the package. Node is needed only to change it.
page:
	cd explorer && npm ci && npm run check && npm run build

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade "pip>=25.1"
	# Python compiles modules on import; compiling all of torch and transformers here takes a minute.
	$(BIN)/pip install --quiet --no-compile -c constraints.txt torch
	$(BIN)/pip install --quiet --no-compile -c constraints.txt -e . --group dev
	touch $@

clean:
	rm -rf .venv build site .pytest_cache .ruff_cache .mypy_cache
