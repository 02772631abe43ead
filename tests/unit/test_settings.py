"""What a sampler's file declares of its settings, and what is made of it."""

from __future__ import annotations

import inspect
import pydoc
from typing import Annotated, NamedTuple

import numpy as np
import pytest
from click.testing import CliRunner

import stanadapt
from cases import methods
from stanadapt import check, cli, samplers
from stanadapt.errors import ArgumentError
from stanadapt.samplers.base import LANGEVIN, Facts
from stanadapt.samplers.settings import UNSET, Choice, Limit, parse, resolve, user_values


@pytest.mark.parametrize("method", methods())
def test_every_setting_says_what_it_does(method: str) -> None:
    module = samplers.sampler(method)
    declared = samplers.settings_of(module)
    assert list(declared) == list(module.Settings._fields)
    shown = CliRunner().invoke(cli.main, ["methods", method]).stdout
    documented = pydoc.plain(pydoc.render_doc(module.Settings))
    frame = stanadapt.methods(method)
    for name, setting in declared.items():
        assert len(setting.meaning.split()) >= 2, name
        assert setting.meaning in shown
        assert setting.meaning in documented
        assert frame.loc[name, "meaning"] == setting.meaning
        assert setting.default is not None or setting.optional, name


@pytest.mark.parametrize("method", methods())
def test_what_is_found_at_run_time_is_none(method: str) -> None:
    """Kernels get NaN, or UNSET for an integer; results have None again."""
    module = samplers.sampler(method)
    settings = resolve(module, None)
    for name, setting in samplers.settings_of(module).items():
        if setting.default is None:
            value = getattr(settings, name)
            assert value == UNSET if setting.kind is int else np.isnan(value)
    assert user_values(module, settings) == {
        name: setting.default for name, setting in samplers.settings_of(module).items()
    }


class _Settings(NamedTuple):
    size: Annotated[int | None, Limit(2, 9), "a whole number; None: found"] = None
    rate: Annotated[float, Limit(0.0, 1.0, True), "a number that is not zero"] = 0.5
    shape: Annotated[str | int, Choice(("round", "square")), "one of two"] = "square"
    fast: Annotated[bool, "yes or no"] = False


class _Method:
    Settings = _Settings
    FACTS = Facts(__name__, LANGEVIN, "nothing", (), 1, 1, False)

    @staticmethod
    def n_matrices(settings: object) -> int:
        return 0


def test_values_that_are_allowed() -> None:
    assert resolve(_Method, {"size": 9, "rate": 1, "shape": "round", "fast": True}) == (9, 1.0, 0, True)
    assert resolve(_Method, None) == (UNSET, 0.5, 1, False)
    assert resolve(_Method, _Settings(size=4)).size == 4


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("size", 0, "an integer from 2 to 9, or None"),
        ("size", 2.0, "an integer from 2 to 9, or None"),
        ("rate", 0.0, "above 0 and at most 1"),
        ("rate", None, "above 0 and at most 1"),
        ("shape", "rond", "round, square"),
        ("fast", 1, "True or False"),
        ("speed", 1, "size, rate, shape, fast"),
    ],
)
def test_values_that_are_not(name: str, value: object, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        resolve(_Method, {name: value})


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("size", "4", 4),
        ("size", "None", None),
        ("rate", "1e-2", 0.01),
        ("rate", "fast", "fast"),
        ("shape", "round", "round"),
        ("fast", "yes", True),
        ("fast", "perhaps", "perhaps"),
    ],
)
def test_texts(name: str, text: str, value: object) -> None:
    assert parse(samplers.settings_of(_Method)[name], text) == value


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"settings": {"adapt_delta": 0.9}}, "setting='adapt_delta' .*it is called target_accept here"),
        ({"iter_sampling": 5}, r"iter_sampling=5 is not allowed: .* \(it is called draws here\)"),
        ({"iter_warmup": 5}, "it is called warmup here"),
        ({"adapt_delta": 0.9}, r"it is a setting: settings=\{'target_accept': 0.9\}"),
        ({"target_accept": 0.9}, r"it is a setting: settings=\{'target_accept': 0.9\}"),
        ({"drows": 4}, "no such argument .nearest: draws"),
    ],
)
def test_names_of_other_programs_lead_to_ours(given, words):
    code = "parameters { real x; } model { x ~ std_normal(); }"
    with pytest.raises(stanadapt.ArgumentError, match=words):
        stanadapt.sample(code, method="fisher_hmc", **given)
    with pytest.raises(stanadapt.ArgumentError, match=words):
        stanadapt.sample_many(code, [None], method="fisher_hmc", **given)


def test_names_of_other_programs_are_none_of_ours():
    """So that no name is told by another where it is right."""
    ours = {
        *inspect.signature(stanadapt.sample).parameters,
        *inspect.signature(stanadapt.sample_many).parameters,
    }
    for method in samplers.METHODS:
        ours |= {*samplers.settings_of(samplers.sampler(method))}
    assert not ours & check.ELSEWHERE.keys()
    assert set(check.ELSEWHERE.values()) <= ours
