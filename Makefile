# make demo   set up .venv, fit models/eight_schools, print the summary, write fit.nc and trace.png
# make test   set up .venv with the test tools and run the tests
# make calibrate   the same for simulation-based calibration, of every method or of METHODS="rwm mala"
# make same-record, make same   before and after a change of the code that is to change no draw
# make lint   ruff and mypy, as pre-commit and CI run them
# Another Python or folder: make test PYTHON=python3.12 VENV=.venv-3.12; some tests: TESTS=tests/test_cli.py

PYTHON ?= python3
VENV ?= .venv
TESTS ?= tests
BIN = $(VENV)/bin

.PHONY: demo test calibrate same-record same lint clean

demo: $(VENV)/demo
	$(BIN)/stanadapt sample models/eight_schools/eight_schools.stan --data models/eight_schools/eight_schools.json \
		--method fisher_mala --chains 4 --seed 1 --out fit.nc --force
	$(BIN)/python examples/trace_plot.py fit.nc trace.png

test: $(VENV)/test
	$(BIN)/python -m pytest $(TESTS)

calibrate: $(VENV)/test
	CALIBRATE="$(METHODS)" $(BIN)/python -m pytest -vv -m calibration tests/test_calibration.py

same-record: $(VENV)/test
	$(BIN)/python tests/same.py --record

same: $(VENV)/test
	$(BIN)/python tests/same.py

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# One rule sets the folder up for each need; the file it leaves says with what.
$(VENV)/demo: EXTRAS = plot
$(VENV)/test: EXTRAS = test
$(VENV)/dev: EXTRAS = dev
$(VENV)/demo $(VENV)/test $(VENV)/dev: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$(EXTRAS)]"
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache fit.nc trace.png
