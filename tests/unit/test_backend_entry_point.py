"""A backend from outside: the package in tests/outside, which is the example of docs/backends_contract.md."""

from __future__ import annotations

import importlib
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import stanadapt
from stanadapt.errors import ArgumentError, FindingsWarning, ModelError, StanAdaptWarning
from stanadapt.model import plugins
from stanadapt.result.container import datasets

ROOT = Path(__file__).parents[2]
OUTSIDE = ROOT / "tests" / "outside"
RUN = {"method": "mala", "chains": 2, "warmup": 60, "draws": 40, "seed": 3, "progress": False, "workers": 2}


@pytest.fixture
def outside(monkeypatch):
    """The package, installed as far as Python is concerned."""
    monkeypatch.syspath_prepend(str(OUTSIDE))
    yield importlib.import_module("outside_gaussian")
    sys.modules.pop("outside_gaussian")


@pytest.fixture
def library(gaussian_libraries):
    return str(gaussian_libraries["threads"])


def sample(model, data=None, **keywords):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", FindingsWarning)
        return stanadapt.sample(model, data, **(RUN | keywords))


def install(folder, monkeypatch, name, code, module="another_backend"):
    """A package of one module with an entry point, made in a folder on Python's path."""
    (folder / f"{module}.py").write_text(code)
    facts = folder / f"{module}-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[stanadapt.backends]\n{name} = {module}\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, module, raising=False)


def test_the_page_shows_the_package():
    page = (ROOT / "docs" / "backends_contract.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert block == (OUTSIDE / "outside_gaussian.py").read_text(encoding="utf-8")
    (point,) = re.findall(r'^    gaussian = "(\w+)"', page, re.MULTILINE)
    assert f"gaussian = {point}" in next(OUTSIDE.glob("*.dist-info/entry_points.txt")).read_text()


def test_a_backend_is_asked_for_by_name(outside, library):
    idata = sample(library, {"n": 3}, backend="gaussian", keep_unconstrained=True)
    groups = datasets(idata)
    assert groups["posterior"].attrs["backend"] == "gaussian.c 1.0"
    x = groups["unconstrained_posterior"]["x"].values
    np.testing.assert_array_equal(groups["posterior"]["x"], x[..., :2])
    np.testing.assert_array_equal(groups["posterior"]["sigma"], np.exp(x[..., 2]))
    np.testing.assert_allclose(
        groups["posterior"]["total"], x[..., :2].sum(axis=-1) + np.exp(x[..., 2]), rtol=1e-14
    )
    assert len(np.unique(groups["posterior"]["u"])) == 80
    assert int(groups["constant_data"]["n"]) == 3
    again = datasets(sample(library, {"n": 3}, backend="gaussian", workers=1))
    np.testing.assert_array_equal(groups["posterior"]["u"], again["posterior"]["u"])


def test_a_backend_takes_its_own_objects(outside, library):
    posterior = stanadapt.Posterior(outside.Library(library))
    value, score = posterior.log_density_gradient([0.5, -1.0, 2.0])
    assert value == pytest.approx(-0.5 * (0.25 + 1.0 + 4.0))
    np.testing.assert_allclose(score, [-0.5, 1.0, -2.0])
    assert posterior.log_density([0.0, 0.0, 0.0]) == 0.0
    np.testing.assert_allclose(posterior.unconstrain({"x": [1.0, 2.0], "sigma": 1.0}), [1.0, 2.0, 0.0])
    with pytest.raises(ArgumentError, match="sigma is not positive"):
        posterior.unconstrain({"x": [1.0, 2.0], "sigma": -1.0})


def test_a_dimension_may_be_an_integer_of_numpy(outside, library, monkeypatch):
    monkeypatch.setattr(outside.Gaussian, "dim", np.int64(3))
    assert len(sample(outside.Library(library))["posterior"]["x"]) == 2


def test_the_draws_are_those_of_the_density(outside, library):
    x = sample(library, backend="gaussian", draws=4000, method="fisher_hmc")
    draws = x["posterior"]["x"].values
    assert np.abs(draws.mean(axis=(0, 1))).max() < 0.1
    assert np.abs(draws.std(axis=(0, 1)) - 1.0).max() < 0.1


def test_chains_have_processes_where_threads_are_not_safe(outside, library, monkeypatch):
    together = sample(library, backend="gaussian")
    monkeypatch.setattr(outside.Gaussian, "thread_safe", False)
    apart = sample(library, backend="gaussian")
    for name in together["posterior"]:
        np.testing.assert_array_equal(together["posterior"][name], apart["posterior"][name])


def test_a_store_goes_on_with_its_backend(outside, library, tmp_path):
    whole = sample(library, backend="gaussian", draws=80)
    sample(library, backend="gaussian", store=tmp_path / "run")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FindingsWarning)
        model = outside.Library(library)
        more = stanadapt.extend(tmp_path / "run", 40, model, progress=False)
    np.testing.assert_array_equal(whole["posterior"]["x"], more["posterior"]["x"])


def test_what_no_backend_takes_is_refused(outside):
    with pytest.raises(ArgumentError, match=r"model=3\.0 is not allowed: model must be"):
        stanadapt.Posterior(3.0)
    with pytest.raises(ArgumentError, match=r"model=3\.0 is not allowed: backend='gaussian' does not take"):
        stanadapt.Posterior(3.0, backend="gaussian")
    with pytest.raises(ArgumentError, match=r"backend='gausian' is not allowed.*nearest: gaussian"):
        stanadapt.Posterior("parameters { real x; } model { x ~ std_normal(); }", backend="gausian")


def test_without_the_package_there_is_no_such_backend(library):
    assert "gaussian" not in plugins.names()
    with pytest.raises(ArgumentError, match="backend='gaussian' is not allowed"):
        stanadapt.sample(library, backend="gaussian")


def test_the_method_nuts_is_refused(outside, library):
    with pytest.raises(ArgumentError, match=r"needs a Stan program, and this model is one of gaussian\.c"):
        sample(library, backend="gaussian", method="nuts")


ODD_DIM = """
from outside_gaussian import Gaussian
class Odd(Gaussian):
    dim = 2
    def __init__(self): pass
def adopt(model, data): return Odd(), {}
"""
ODD_NAMES = """
from outside_gaussian import Gaussian
class Odd(Gaussian):
    def __init__(self): pass
    def unconstrained_names(self): return ["a", "b", "a"]
def adopt(model, data): return Odd(), {}
"""
ODD = """
from outside_gaussian import Addresses, Gaussian
class Odd(Gaussian):
    def __init__(self): pass
    def addresses(self): return Addresses(1, 1)  # nobody calls them
    def identity(self): return b""
    {member}
def adopt(model, data): return Odd(), {{}}
"""


def odd(member):
    return ODD.format(member=member)


FAULTY = {
    "dim": (odd("dim = 3.0"), "dim=3.0 is not a number of parameters"),
    "data": (odd("pass").replace("Odd(), {}", "Odd(), {1: 2}"), "a name that is no str: 1"),
    "no list": (
        odd("def unconstrained_names(self): return range(3)"),
        r"unconstrained_names\(\) is not a list",
    ),
    "no texts": (odd("def names(self, **_): return [1, 2, 3]"), r"is not a list of str: \[1, 2, 3\]"),
    "identity": (odd("def identity(self): return 'text'"), r"identity\(\) is not bytes: 'text'"),
    "no density": (odd("def addresses(self): return Addresses(0, 1)"), "address of its log density is 0"),
    "no gradient": (odd("def addresses(self): return Addresses(1, 0)"), "the address of its gradient is 0"),
    "no adopt": ("", r"has no function adopt"),
    "no import": ("import nothing_of_this_name", "cannot be imported: ModuleNotFoundError"),
    "no pair": ("def adopt(model, data): return model", "adopt must return None, or a model and a dict"),
    "no model": ("def adopt(model, data): return object(), {}", "it has no backend, library, dim"),
    "an error": ("def adopt(model, data): raise KeyError(1)", "fails: KeyError: 1"),
    "other arguments": ("def adopt(model): return None", "fails: TypeError"),
    "names": (ODD_DIM, "dim is 2, and there are 3 unconstrained names"),
    "two of a name": (ODD_NAMES, "two values have the name 'a'"),
}


@pytest.mark.parametrize("case", FAULTY)
def test_a_faulty_backend_is_named(case, outside, tmp_path, monkeypatch):
    code, reason = FAULTY[case]
    install(tmp_path, monkeypatch, "faulty", code)
    with pytest.raises(ModelError, match=f"backend 'faulty'.*{reason}") as caught:
        stanadapt.Posterior(3.0, backend="faulty")
    assert "\n" not in str(caught.value)


def test_one_that_cannot_be_imported_keeps_nobody_out(outside, library, tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "a_first_one", "import nothing_of_this_name")
    with pytest.warns(StanAdaptWarning, match="backend 'a_first_one'.*cannot be imported"):
        assert stanadapt.Posterior(outside.Library(library)).dim == 3


def test_two_of_one_name_are_refused(outside, tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "gaussian", "def adopt(model, data): return None")
    with pytest.raises(
        ModelError, match="'gaussian' is the name of two backends, another_backend and outside"
    ):
        stanadapt.Posterior(3.0, backend="gaussian")


def test_names_of_ours_stay_ours(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "stanli", "raise AssertionError('it was imported')")
    program = "parameters { real x; } model { x ~ std_normal(); }"
    assert stanadapt.Posterior(program, backend="stanli").library.startswith("stanli")
