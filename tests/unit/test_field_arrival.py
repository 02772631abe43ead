"""A chain that is far out when its field is found is drawn in to where draws are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stanadapt
from cases import resolve
from stanadapt.numerics.field_search import FAR, draw_in, without_poor_field
from stanadapt.samplers import windowed
from stanadapt.transport import composition
from stanadapt.transport.bend import Bend, bend_rows
from stanadapt.transport.field_table import field_rows, fields_of, middle_of_field, split
from stanadapt.transport.fields.field_learning import learn_walk
from stanadapt.transport.map_table import APART

D, HEAD = 21, 0
SPREAD = np.append(0.4, np.ones(D - 1))


@pytest.fixture(scope="module")
def posterior() -> stanadapt.Posterior:
    """A standard normal law, which lives as long as its targets are used."""
    program = "data { int d; } parameters { vector[d] x; } model { x ~ std_normal(); }"
    return stanadapt.Posterior(program, {"d": D})


@pytest.fixture(scope="module")
def target(posterior: stanadapt.Posterior) -> Any:
    return posterior.model.target()


def middle() -> np.ndarray:
    return middle_of_field(learn_walk(), D)


def test_the_middle_has_latents_at_their_means_and_heads_at_theirs() -> None:
    law, x = fields_of(learn_walk())[0][0], np.empty(D)
    assert law.mid[0] != 0.0
    np.testing.assert_array_equal(middle()[1:], 0.0)
    bent = bend_rows([Bend(HEAD, float(law.mid[0]) - 0.5, 1.5, 0.7, 1.0, 2.0)])
    bent[:, APART] = 1.0
    for rows in (field_rows(law, 0), np.concatenate((field_rows(law, 0), bent))):
        composition.into_x(rows, middle_of_field(rows, D), x)
        assert x[HEAD] == pytest.approx(law.mid[0], abs=1e-12)


@pytest.mark.parametrize("share", [0.9, 0.99])
def test_a_point_where_a_draw_may_be_stays(target: Any, share: float) -> None:
    """The squares of heads and of latents have their limits, each for itself."""
    z = middle()
    z[HEAD] += 0.4 * np.sqrt(share * (1.0 + FAR * np.sqrt(2.0)))
    z[1:] = np.sqrt(share * (1.0 + FAR * np.sqrt(2.0 / (D - 1))))
    assert draw_in(target, learn_walk(), SPREAD, z) is None


def test_what_is_far_out_comes_to_where_draws_are(target: Any) -> None:
    """It keeps its direction, and what is near stays as it is."""
    rows, direction = learn_walk(), np.random.default_rng(1).normal(size=D - 1)
    z = middle()
    z[HEAD], z[1:] = z[HEAD] + 0.3, 40.0 * direction
    found = draw_in(target, rows, SPREAD, z)
    assert found is not None
    nearer, logp, score = found
    assert nearer[HEAD] == z[HEAD]
    assert nearer[1:] @ nearer[1:] == pytest.approx(D - 1)
    np.testing.assert_allclose(nearer[1:] / np.linalg.norm(nearer[1:]), direction / np.linalg.norm(direction))
    x = np.empty(D)
    log_det = composition.into_x(rows, nearer, x)
    assert logp == pytest.approx(-0.5 * x @ x + log_det, abs=1e-10)
    wanted = -x
    composition.pull_back(rows, nearer, x, wanted)
    np.testing.assert_allclose(score, wanted, rtol=1e-8, atol=1e-10)


def test_a_head_far_out_comes_to_one_spread_of_its_middle(target: Any) -> None:
    z = middle()
    z[HEAD] -= 7.0
    z[1:] = 0.5
    found = draw_in(target, learn_walk(), SPREAD, z)
    assert found is not None
    assert found[0][HEAD] == pytest.approx(middle()[HEAD] - 0.4)
    np.testing.assert_array_equal(found[0][1:], z[1:])


def test_a_field_is_given_up_where_draws_are_better_off_without_it() -> None:
    """Those that are standard normal in its coordinates keep it, and few draws do not judge."""
    rows, rng = learn_walk(), np.random.default_rng(4)
    x = rng.normal(size=(60, D))
    assert not len(without_poor_field(rows, x, -x, 0))
    assert without_poor_field(rows, x, -x, 40) is rows
    scores = np.empty((60, D))
    for k in range(60):
        away = rng.normal(size=D)
        z = middle() + SPREAD * away
        composition.into_x(rows, z, x[k])
        scores[k] = composition.score_in_x(rows, z, x[k], -away / SPREAD)
    assert without_poor_field(rows, x, scores, 0) is rows
    # Steps that are far shorter in its second window: the chain may stand where any coordinates fit.
    assert without_poor_field(rows, x, scores, 30, 0.1) is rows
    assert without_poor_field(rows, x, scores, 0, 0.01) is rows
    assert not len(without_poor_field(rows, x, scores, 30, 0.01))


@pytest.mark.parametrize(("step_before", "is_kept"), [(0.0, True), (0.1, True), (1.0, False)])
def test_a_chain_gives_up_a_field_in_which_its_steps_have_shrunk(
    target: Any, step_before: float, is_kept: bool
) -> None:
    """Draws in its coordinates, where the chain takes steps of 0.01."""
    sampler, settings = resolve("fisher_hmc", {"curvature": False})
    rows, rng = learn_walk(), np.random.default_rng(5)
    z = middle() + SPREAD * rng.normal(size=(80, D))
    x, scores = np.empty((80, D)), np.empty((80, D))
    for k in range(80):
        composition.into_x(rows, z[k], x[k])
        scores[k] = composition.score_in_x(rows, z[k], x[k], -(z[k] - middle()) / SPREAD**2)
    start = sampler.start(target, settings, np.zeros(D), rng)
    windows = start.windows._replace(points=x, scores=scores, seen=80, before=40)
    state = start._replace(windows=windows, transport=rows, step_size=0.01, step_before=step_before)
    field, _ = split(sampler.enter("window_6", state, settings).transport)
    assert bool(len(field)) == is_kept


def test_a_chain_remembers_its_steps_when_it_moves_to_a_field(target: Any) -> None:
    sampler, settings = resolve("fisher_hmc", {"curvature": False})
    start = sampler.start(target, settings, np.full(D, 0.1), np.random.default_rng(5))
    assert start.step_before == 0.0
    moved = windowed._move_to_field(start._replace(step_size=0.2), learn_walk())
    assert (moved.step_before, moved.step_size) == (0.2, windowed.FIRST_STEP)
