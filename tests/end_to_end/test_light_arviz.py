"""A result of arviz 0.x is made without arviz' pictures, and arviz is whole as soon as somebody asks it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cases import thorough
from stanadapt.result.container import has_datatree

pytestmark = pytest.mark.skipif(has_datatree(), reason="arviz 1.x keeps results in xarray's DataTree")

_MADE = """
import sys
import numpy as np, xarray
from stanadapt.result.container import container
made = container({"posterior": xarray.Dataset({"x": (("chain", "draw"), np.arange(8.0).reshape(2, 4))})})
assert "x" in repr(made) + made._repr_html_()
"""


def run(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return done.stdout


def test_a_result_imports_no_pictures():
    run(_MADE + "assert not {'matplotlib', 'arviz.plots', 'scipy.stats'} & {*sys.modules}")


@pytest.mark.parametrize(
    "asks",
    [
        "import arviz; assert arviz.__version__; assert 'plot_trace' in dir(arviz)",
        thorough("from arviz import *; import arviz; assert callable(plot_trace)"),
        thorough("import arviz.stats; import arviz; assert 'arviz.plots' in sys.modules"),
    ],
)
def test_the_rest_of_arviz_is_there_when_it_is_asked_for(asks):
    run(
        _MADE
        + asks
        + """
import types
import matplotlib.pyplot
assert type(arviz) is types.ModuleType
assert isinstance(made, arviz.InferenceData)
assert arviz.utils.plt is matplotlib.pyplot
assert arviz.convert_to_inference_data(made) is made
assert arviz.summary(made).shape[0] == 1
"""
    )


def test_an_arviz_that_the_user_has_imported_is_taken():
    run("import arviz\n" + _MADE + "assert type(made) is arviz.InferenceData")


def test_another_layout_of_arviz_is_imported_whole():
    fault = """
from stanadapt.result import light_arviz
def fail():
    sys.modules["arviz"] = object()
    raise AttributeError("utils")
light_arviz._import_without_pictures = fail
"""
    run("import sys" + fault + _MADE + "import arviz; assert callable(arviz.plot_trace)")
