"""Kinks: a chain whose steps are short since the gradient jumps takes longer steps, not trajectories."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stanadapt
from cases import resolve
from fits import run
from stanadapt.numerics import kinks
from stanadapt.numerics.kinks import IN_VAIN, SHARE, has_kinks
from stanadapt.numerics.windows import first_window
from stanadapt.samplers import windowed
from tail_models import MODELS

LENGTH, STEP = 1.9, 0.12
QUANTILES = MODELS["quantiles"].program, MODELS["quantiles"].data(10)
WITH_KINKS = {
    "double exponential": (25, "x ~ double_exponential(0, 1);"),
    "absolute value": (25, "x ~ std_normal(); target += -abs(x[1] - x[2]) - 3 * sum(abs(x));"),
    # a smooth part that is larger than all jumps
    "in few of many": (100, "x ~ std_normal(); head(x, 10) ~ double_exponential(0, 0.5);"),
    # so many that each piece of a line has some
    "many small ones": (40, "for (k in -20:20) target += -0.25 * sum(abs(x - 0.25 * k));"),
}
WITHOUT = {
    "normal": (25, "x ~ std_normal();"),
    "heavy tails": (25, "x ~ student_t(1, 0, 1);"),
    # bends that are narrower than a piece of a line: |x|, smoothed
    "narrow bend": (25, "x ~ std_normal(); target += -3 * sum(sqrt(square(x) + square(1e-3)));"),
    # a smooth change that is large wherever it is looked at
    "steep bend": (25, "x ~ std_normal(); target += -1e6 * sum(sqrt(square(x) + square(1e-4)));"),
    "funnel": (9, "x[1] ~ normal(0, 3); x[2:9] ~ normal(0, exp(0.5 * x[1]));"),
    "one of many": (100, "x ~ std_normal(); x[1] ~ double_exponential(0, 1);"),
    "a small one": (25, "x ~ std_normal(); target += -0.02 * abs(x[1]);"),
}


def program(body: str) -> str:
    return "data { int d; } parameters { vector[d] x; } model { " + body + " }"


def look(name: str, step: float = STEP, n: int = 40) -> tuple[bool, int]:
    """At draws that are normal, whatever the law."""
    d, body = (WITH_KINKS | WITHOUT)[name]
    posterior = stanadapt.Posterior(program(body), {"d": d})
    points = 0.7 * np.random.default_rng(1).normal(size=(n, d))
    return has_kinks(posterior.model.target(), points, step, LENGTH)


@pytest.mark.parametrize("name", WITH_KINKS)
def test_kinks_are_seen(name: str) -> None:
    found, gradients = look(name)
    assert found
    assert gradients <= kinks.LINES * (IN_VAIN + kinks._HALVINGS)


@pytest.mark.parametrize("name", WITHOUT)
def test_where_there_is_none_that_matters_none_is_seen(name: str) -> None:
    assert not look(name)[0]


def test_a_smooth_density_costs_one_line() -> None:
    assert look("normal") == (False, IN_VAIN)


def test_kinks_that_make_no_steps_short_are_not_the_reason() -> None:
    """Where steps are a hundred times as short as kinks ask for, something else makes them short."""
    assert look("double exponential")[0]
    assert not look("double exponential", step=STEP / 100.0)[0]


def test_a_line_on_which_the_density_is_missing_tells_nothing() -> None:
    wall = program("x ~ double_exponential(0, 1); if (dot_self(x) < 1) reject(x);")
    posterior = stanadapt.Posterior(wall, {"d": 4})
    points = np.array([[-1.0] * 4, [1.5] * 4] * kinks.LINES)
    assert has_kinks(posterior.model.target(), points, STEP, LENGTH) == (False, kinks._PIECES + 1)


def test_the_square_of_one_jump_is_measured() -> None:
    """The slope of -3 |x| along a line of length 2 through the kink jumps by 12."""
    posterior = stanadapt.Posterior(program("target += -3 * abs(x[1]);"), {"d": 1})
    line = kinks._Line(kinks.ProgramGradient(posterior.model.target()), np.array([-0.7]), np.array([1.3]))
    assert line.squares_of_jumps() == pytest.approx(144.0, rel=1e-6)


@pytest.fixture(scope="module")
def posterior() -> stanadapt.Posterior:
    return stanadapt.Posterior(program(WITH_KINKS["double exponential"][1]), {"d": 25})


def seen_by(posterior: stanadapt.Posterior, n: int = 40, **values: Any) -> tuple[Any, Any, Any]:
    """A target, a state after a window of `n` draws, and the settings."""
    method, settings = resolve("fisher_hmc", {})
    target, rng = posterior.model.target(), np.random.default_rng(1)
    points = rng.normal(size=(n, posterior.dim))
    state = method.start(target, settings, points[0], rng)._replace(step_size=STEP, most=16, **values)
    windows = first_window(points, np.sign(-points))._replace(before=0)
    return target, state._replace(windows=windows), settings


@pytest.mark.parametrize("stage", ["window_3", windowed.LAST])
def test_a_chain_looks_at_the_end_of_a_window(posterior: stanadapt.Posterior, stage: str) -> None:
    target, state, settings = seen_by(posterior)
    found = windowed.explore(target, stage, state, settings)
    assert found.kinks
    assert found.kink_gradients > 0.0
    again = windowed.explore(target, stage, found, settings)
    assert again.kink_gradients == found.kink_gradients  # it does not look again


def test_a_look_is_a_small_share_of_a_window(posterior: stanadapt.Posterior) -> None:
    """A trajectory takes 2 * 16 gradients here."""
    enough = int(np.ceil(IN_VAIN / SHARE / 32.0))
    for n, looks in ((enough - 1, False), (enough, True)):
        target, state, settings = seen_by(posterior, n)
        assert windowed._look_for_kinks(target, state, settings).kinks == looks


def test_a_chain_whose_steps_are_long_does_not_look(posterior: stanadapt.Posterior) -> None:
    target, state, settings = seen_by(posterior, 400)
    long = state._replace(step_size=settings.trajectory / 2.9)
    assert windowed._look_for_kinks(target, long, settings).kink_gradients == 0.0


@pytest.mark.parametrize(("refused", "most"), [(0.1, 16), (0.9, 32), (0.99, 64)])
def test_with_kinks_trajectories_are_as_long_as_those_of_a_gaussian(
    posterior: stanadapt.Posterior, refused: float, most: int
) -> None:
    """Unless draws hardly move."""
    _, state, settings = seen_by(posterior, 100, kinks=True)
    state = state._replace(most=32)
    points, rng = state.windows.points, np.random.default_rng(2)
    for k in range(1, 100):
        if rng.random() < refused:
            points[k] = points[k - 1]
    assert np.ceil(settings.trajectory / STEP) == 16
    assert windowed._next_most(state, settings) == most
    assert windowed._next_most(state._replace(kinks=False), settings) == 64


@pytest.mark.parametrize("settings", [{}, {"pooled": True}], ids=str)
def test_a_run_takes_long_steps(settings: dict[str, Any]) -> None:
    """And no finding calls its acceptance rate low."""
    _, adaptation, findings = run(*QUANTILES, seed=1, settings=settings)
    assert adaptation["kinks"].all()
    assert (adaptation["field_gradients"] > 0.0).any()
    assert (adaptation["evaluations"] < 20.0 * 2_000).all()
    assert "acceptance" not in findings
    _, careful, _ = run(*QUANTILES, seed=1, settings={"kinks_accept": 0.9, **settings})
    assert careful["evaluations"].sum() > 1.5 * adaptation["evaluations"].sum()


def test_a_rate_under_the_one_for_kinks_is_told() -> None:
    with pytest.warns(stanadapt.FindingsWarning):
        idata = stanadapt.sample(*QUANTILES, method="fisher_hmc", seed=1, draws=200, progress=False)
    told = {finding.kind: finding for finding in stanadapt.diagnose(idata)}
    assert "acceptance" not in told
    idata["sample_stats"]["acceptance_rate"].values[:] = 0.4
    told = {finding.kind: finding for finding in stanadapt.diagnose(idata)}
    assert told["acceptance"].numbers["target"] == 0.75
