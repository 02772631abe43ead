"""Handlers of NumPyro's effects that NumPyro has not. NumPyro is imported with this module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpyro import prng_key
from numpyro.distributions import Unit
from numpyro.primitives import Messenger


def draw_observed(model: Callable[..., Any]) -> Callable[..., Any]:
    """A model whose observed sites are drawn, in the shapes of their data.

    `numpyro.handlers.uncondition` differs in two places. It draws a single number where one distribution
    without a plate has all data, as in `sample("y", Normal(mu, 1), obs=y)`. And in `control_flow.scan` it
    comes too late: each step depends on the data before it rather than on what was drawn there.
    """
    return _DrawObserved(model)


class _DrawObserved(Messenger):  # type: ignore[misc] # NumPyro has no types
    def process_message(self, message: dict[str, Any]) -> None:
        if message["type"] == "control_flow":
            message["args"] = tuple(
                _DrawObserved(each) if callable(each) else each for each in message["args"]
            )
            given = message["kwargs"].get("substitute_stack", [])
            message["kwargs"]["substitute_stack"] = [each for each in given if each[0] != "condition"]
        if message["type"] != "sample" or not message["is_observed"] or isinstance(message["fn"], Unit):
            return
        fn, shape = message["fn"], np.shape(message["value"])
        batch = np.broadcast_shapes(fn.batch_shape, shape[: len(shape) - fn.event_dim])
        if batch != fn.batch_shape:
            message["fn"] = fn.expand(batch)
        message["is_observed"], message["value"] = False, None
        if message["kwargs"]["rng_key"] is None:
            message["kwargs"]["rng_key"] = prng_key()
