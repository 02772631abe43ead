"""PyMC models that tests share; each is compiled once in a process, and what it is compiled to is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
SCHOOLS = list("ABCDEFGH")


def schools() -> Any:
    """The program of models/eight_schools."""
    with pm.Model(coords={"school": SCHOOLS, "unused": [1, 2]}) as model:
        sigma = pm.Data("sigma", ERRORS, dims="school")
        mu = pm.Normal("mu", 0.0, 5.0)
        tau = pm.HalfCauchy("tau", 5.0)
        theta_trans = pm.Normal("theta_trans", 0.0, 1.0, dims="school")
        theta = pm.Deterministic("theta", mu + tau * theta_trans, dims="school")
        pm.Normal("y", theta, sigma, observed=EFFECTS, dims="school")
    return model


def normal(prior: float = 1.0) -> Any:
    """A mean whose posterior is known, see `exact_normal`."""
    with pm.Model() as model:
        y = pm.Data("data", np.array([1.0, 2.0, 4.0]))
        pm.Normal("y", pm.Normal("mu", 0.0, prior), 1.0, observed=y)
    return model


def exact_normal(y: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation of the posterior of `normal()`."""
    return float(y.sum() / (len(y) + 1.0)), float(1.0 / np.sqrt(len(y) + 1.0))


class Twice(pytensor.graph.op.Op):
    """An op of a user, which numba does not know."""

    __props__ = ()

    def make_node(self, x: Any) -> Any:
        x = pt.as_tensor(x)
        return pytensor.graph.basic.Apply(self, [x], [x.type()])

    def perform(self, node: Any, inputs: Any, outputs: Any) -> None:
        outputs[0][0] = np.asarray(2.0 * inputs[0])

    def grad(self, inputs: Any, gradients: Any) -> Any:  # of PyTensor 2
        return [2.0 * gradients[0]]

    def pullback(self, inputs: Any, outputs: Any, gradients: Any) -> Any:  # and of PyTensor 3
        return [2.0 * gradients[0]]


class Blind(Twice):
    """The same without a gradient."""

    def grad(self, inputs: Any, gradients: Any) -> Any:
        raise NotImplementedError("it has no gradient")

    def pullback(self, inputs: Any, outputs: Any, gradients: Any) -> Any:
        raise NotImplementedError("it has no gradient")


def own_op(op: Any) -> Any:
    with pm.Model() as model:
        pm.Normal("y", op(pm.Normal("mu", 0.0, 1.0, shape=2)), 1.0, observed=[1.0, 2.0])
    return model


def value_point(model: Any, x: np.ndarray) -> dict[str, np.ndarray]:
    """An unconstrained point as PyMC's own functions take it."""
    point, begin = {}, 0
    for name, value in model.initial_point().items():
        point[name] = x[begin : begin + value.size].reshape(value.shape)
        begin += value.size
    assert begin == x.size
    return point
