"""Methods that need no gradient never call one, not even to find a start or to say why a point failed."""

from __future__ import annotations

import ctypes
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest

import stanadapt
from cases import kernel_methods
from stanadapt import samplers
from stanadapt.errors import ArgumentError, InitializationError
from stanadapt.model.backends.own import LOG_DENSITY as _SHORT
from stanadapt.model.backends.own import LOG_DENSITY_GRADIENT as _LONG
from stanadapt.model.backends.stan.native import NativeModel
from stanadapt.target import NativeTarget

WITHOUT = [method for method in kernel_methods() if not samplers.facts(method).gradient]
# It has points without a density and points that it rejects, so that reasons are asked for.
PROGRAM = """
parameters { vector[2] x; real<lower=0> s; }
model {
  if (x[1] > 1.5) reject("x[1] is above 1.5");
  if (x[2] > 1.5) target += negative_infinity();
  x ~ std_normal();
  s ~ exponential(1);
}
"""
NOWHERE = 'parameters { real x; } model { reject("nowhere"); }'
RUN = {"chains": 2, "warmup": 300, "draws": 300, "seed": 5, "progress": False, "workers": 1}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the functions of Stan models are called: by kernels, at their addresses, and from Python."""
    counter: Counter[str] = Counter()
    alive: list[Any] = []  # a callback must outlive the run
    target, gradient = NativeModel.target, NativeModel.log_density_gradient

    def address(name: str, kind: Any, original: int) -> int:
        function = kind(original)

        def counted(*arguments: Any) -> int:
            counter[name] += 1
            return int(function(*arguments))

        alive.append(kind(counted))
        return ctypes.cast(alive[-1], ctypes.c_void_p).value or 0

    def counting(model: NativeModel) -> NativeTarget:
        plain = target(model)
        return plain._replace(
            log_density=address("density", _SHORT, plain.log_density),
            log_density_gradient=address("gradient", _LONG, plain.log_density_gradient),
        )

    def counted_gradient(model: NativeModel, x: np.ndarray) -> tuple[float, np.ndarray]:
        counter["gradient from Python"] += 1
        return gradient(model, x)

    monkeypatch.setattr(NativeModel, "target", counting)
    monkeypatch.setattr(NativeModel, "log_density_gradient", counted_gradient)
    return counter


def run(program: str, method: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stanadapt.StanAdaptWarning)
        return stanadapt.sample(program, method=method, **RUN)


def test_tempered_with_a_walk_calls_no_gradient(calls: Counter[str]) -> None:
    settings = dict(samplers.facts("tempered").gradient_free)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stanadapt.StanAdaptWarning)
        idata = stanadapt.sample(PROGRAM, method="tempered", settings=settings, **RUN)
    assert calls.pop("gradient", 0) <= int(idata["adaptation"]["search_evaluations"])
    calls.pop("gradient from Python", 0)  # after the draws, to check the constant of the evidence
    assert set(calls) == {"density"}


def test_tempered_draws_from_a_density_without_a_gradient() -> None:
    def density(x: np.ndarray) -> float:
        return float(
            -0.5 * np.log(2.0 * np.pi) + np.logaddexp(-0.5 * (x[0] - 8) ** 2, -0.5 * (x[0] + 8) ** 2)
        )

    target = stanadapt.Target.from_python(density, 1)
    settings = dict(samplers.facts("tempered").gradient_free)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stanadapt.StanAdaptWarning)
        idata = stanadapt.sample(target, method="tempered", settings=settings, **RUN)
    right = (idata["posterior"]["x"].values > 0.0).mean(axis=1)
    assert ((right > 0.1) & (right < 0.9)).all()  # each chain is at both
    assert abs(idata["posterior"].attrs["log_evidence"] - np.log(2.0)) < 0.5


def test_tempered_says_which_settings_need_no_gradient() -> None:
    target = stanadapt.Target.from_python(lambda x: -0.5 * float(x @ x), 2)
    with pytest.raises(ArgumentError, match="'kernel': 'arwmh', 'pilot': 0, 'search': 0"):
        stanadapt.sample(target, method="tempered", settings={"kernel": "arwmh"}, **RUN)
    with pytest.raises(ArgumentError, match="settings\\['kernel'\\]='nuts'"):
        stanadapt.sample(target, method="tempered", settings={"kernel": "nuts"}, **RUN)


@pytest.mark.parametrize("method", WITHOUT)
def test_gradients_of_a_stan_program_are_never_called(method: str, calls: Counter[str]) -> None:
    idata = run(PROGRAM, method)
    # The search for modes, after the draws, takes gradients where a model has them.
    assert calls.pop("gradient", 0) <= int(idata["adaptation"]["search_evaluations"])
    assert set(calls) == {"density"}
    assert calls["density"] >= 2 * (1 + 300 + 300)
    assert int(idata["adaptation"]["failures"].sum() + idata["adaptation"]["failures_warmup"].sum()) > 0
    assert "x[1] is above 1.5" in set(idata["adaptation"]["first_failure"].values)
    assert float(idata["posterior"]["x"].max()) <= 1.5


@pytest.mark.parametrize("method", WITHOUT)
def test_nor_where_there_is_no_start(method: str, calls: Counter[str]) -> None:
    with pytest.raises(InitializationError, match=r"First reason: .*nowhere"):
        run(NOWHERE, method)
    assert set(calls) == {"density"}


def test_a_gradient_that_is_called_is_counted(calls: Counter[str]) -> None:
    run(PROGRAM, "mala")
    assert calls["gradient"] >= 2 * (1 + 300 + 300)
    assert calls["gradient from Python"] > 0
