# make demo   set up .venv, fit models/eight_schools, print the summary, write fit.nc and trace.png
# make check  set up .venv with the test tools and run the unit tests: two minutes where kernels are compiled
# make test   the same with all tests, in one process more than there are cores
# make thorough   what has a cheaper relative in make test: slighter faults, more methods of each kind, more models of
#   each method, more settings and signals, more of the papers' tables
# make calibrate   the same for simulation-based calibration, of every method or of METHODS="rwm mala"; BATCH=1, 2 and so
#   on have 400 other data sets of each model
# make proof   run the statistical tests with 50 other seeds, or SEEDS=20, and count what fails; hours, so name TESTS
# make same-record, make same   before and after a change of the code that is to change no draw
# make docs   build the site into docs/_build/html: some minutes, since its pages run; then only what has changed
# make linkcheck   try the site's links to other sites, which needs the network
# make mutate   whether the tests notice a list of one-line changes of the code; half an hour
# make lint   ruff and mypy, as pre-commit and CI run them
# make wheel   dist/ with a wheel that brings the machine code of all methods, on Linux on x86-64: two to four minutes
# make release   check the version and the changelog, build, check what was built and try it; it uploads nothing
# Another Python or folder: make test PYTHON=python3.12 VENV=.venv-3.12
# Some tests, or options of pytest: make test TESTS=tests/end_to_end/test_cli.py OPTIONS=--durations=25

PYTHON ?= python3
VENV ?= .venv
TESTS ?= tests
OPTIONS ?=
SEEDS ?= 50
BIN = $(VENV)/bin
# Each process has tests that stand together, which share what they make, and at the end takes some of another's.
PARALLEL = --numprocesses=auto --dist=worksteal

# Images of containers often set it; then each of the hundreds of processes that tests start would compile all sources.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo check test thorough calibrate proof same-record same mutate docs linkcheck lint wheel release clean

demo: $(VENV)/demo
	$(BIN)/stanadapt sample models/eight_schools/eight_schools.stan --data models/eight_schools/eight_schools.json \
		--method fisher_mala --chains 4 --seed 1 --out fit.nc --force
	$(BIN)/python examples/trace_plot.py fit.nc trace.png

check: TESTS = tests/unit
check test: $(VENV)/test
	$(BIN)/python -m pytest $(PARALLEL) $(OPTIONS) $(TESTS)

thorough: $(VENV)/test
	$(BIN)/python -m pytest $(PARALLEL) -m thorough $(OPTIONS) $(TESTS)

calibrate: $(VENV)/test
	CALIBRATE="$(METHODS)" CALIBRATE_BATCH="$(BATCH)" $(BIN)/python -m pytest -vv -m calibration tests/statistical/test_calibration.py

proof: TESTS = tests/statistical
proof: $(VENV)/test
	$(BIN)/python -m pytest $(PARALLEL) --proof=$(SEEDS) --tb=line $(OPTIONS) $(TESTS)

same-record: $(VENV)/test
	$(BIN)/python tests/same.py --record

same: $(VENV)/test
	$(BIN)/python tests/same.py

docs: $(VENV)/docs
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

linkcheck: $(VENV)/docs
	$(BIN)/python -m sphinx -b linkcheck docs docs/_build/linkcheck

mutate: $(VENV)/test
	$(BIN)/python tests/mutate.py

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

wheel: $(VENV)/release
	rm -f dist/*.whl
	$(BIN)/python -m build --wheel --outdir dist
	$(BIN)/python tests/compiled_wheels.py dist/*.whl

release: $(VENV)/release
	$(BIN)/python tests/release.py

# One rule sets the folder up for each need; the file it leaves says with what. Python compiles a module when it is
# first imported; to compile all of all packages at once would take half of the time.
# uv takes a fifth of pip's time. Where only pip is told where packages are, pip installs them.
$(VENV)/test: EXTRAS = [test]
$(VENV)/dev: EXTRAS = [dev]
$(VENV)/docs: EXTRAS = [docs]
$(VENV)/release: EXTRAS = [release]
$(VENV)/demo $(VENV)/test $(VENV)/dev $(VENV)/docs $(VENV)/release: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/python -m uv pip install --quiet --python $(BIN)/python --editable ".$(EXTRAS)" || \
		$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --editable ".$(EXTRAS)"
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache docs/_build fit.nc trace.png
