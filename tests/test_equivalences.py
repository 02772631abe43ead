"""Suite 2: methods that must be one another, draw for draw, with the same random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cases import resolve
from exact import gaussian
from stanadapt.trace import Trace, empty_trace

X = np.array([0.3, -0.2, 1.0])
STEP = 0.3


def _run(
    method: str, settings: dict[str, Any], *, n: int = 500, adapting: bool = False, **state_fields: Any
) -> Trace:
    sampler, resolved = resolve(method, {"initial_step_size": STEP} | settings)
    exact = gaussian()
    target = exact.target.target()
    rng = np.random.default_rng(3)
    state = sampler.start(target, resolved, X, rng)._replace(**state_fields)
    trace = empty_trace(n, X.size)
    sampler.sweep(target, resolved, state, rng, adapting, trace)
    return trace


@pytest.mark.parametrize("method", ["fisher_mala", "ada_mala"])
def test_nothing_learnt_is_mala(method: str) -> None:
    mala, other = _run("mala", {}), _run(method, {})
    np.testing.assert_allclose(other.x, mala.x, rtol=1e-9)
    np.testing.assert_array_equal(other.accepted, mala.accepted)
    assert 0 < mala.accepted.mean() < 1


@pytest.mark.parametrize("method", ["rwm", "mala", "ada_mala", "fisher_mala"])
def test_zero_learning_rate_is_the_frozen_sampler(method: str) -> None:
    frozen = _run(method, {})
    learning_nothing = _run(method, {"step_rate": 0.0}, adapting=True)
    np.testing.assert_allclose(learning_nothing.x, frozen.x, rtol=1e-12)


def test_scale_of_the_root_does_not_matter() -> None:
    """The proposal is normalised by tr(A)/d, so A and kA are the same preconditioner (Equation 7)."""
    root = np.array([[1.0, 0.0, 0.0], [0.5, 2.0, 0.0], [-0.3, 0.1, 0.4]])
    exact = gaussian()
    score = np.empty(3)
    from stanadapt.target import log_density_gradient

    log_density_gradient(exact.target.target(), X, score)
    traces = [
        _run(
            "fisher_mala",
            {},
            root_t=np.ascontiguousarray(k * root.T),
            rotated=k * (root.T @ score),
            trace=float(k**2 * (root**2).sum()),
        )
        for k in (1.0, 100.0)
    ]
    np.testing.assert_allclose(traces[1].x, traces[0].x, rtol=1e-9)


def test_draws_do_not_depend_on_where_blocks_end() -> None:
    sampler, settings = resolve("fisher_mala", {})
    exact = gaussian()
    target = exact.target.target()

    def draws(blocks: tuple[int, ...]) -> np.ndarray:
        rng = np.random.default_rng(4)
        state = sampler.start(target, settings, X, rng)
        state = sampler.enter("fisher", state, settings)
        parts = []
        for n in blocks:
            trace = empty_trace(n, X.size)
            state = sampler.sweep(target, settings, state, rng, True, trace)
            parts.append(trace.x)
        return np.concatenate(parts)

    np.testing.assert_array_equal(draws((300,)), draws((1, 99, 200)))
