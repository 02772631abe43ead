"""NUTS of blackjax after its window adaptation, on a C function that XLA calls without Python between."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from . import shim
from .problems import Problem
from .racer import Clock, Outcome, Racer

WARMUP = 1000  # which is also its default
_TRIES = 100  # for a start at which the density is finite


class BlackjaxNuts(Racer):
    def __init__(self, problem: Problem, chains: int, cores: int) -> None:
        self.model = shim.opened(problem.bridgestan_data, chains)
        self.chains, self.cores, self.d = chains, cores, problem.d
        self.log_density = log_density(self.model, problem.d)
        self.compiled: dict[int, Any] = {}

    def prepare(self, draws: int) -> None:
        """Compile for this number of draws."""
        import jax

        key = jax.random.key(0)
        self.compiled[draws] = (
            jax.jit(functools.partial(chain, self.log_density, draws))
            .lower(key, jax.numpy.zeros(self.d))
            .compile()
        )

    def run(self, draws: int, seed: int) -> Callable[[], Outcome]:
        before = shim.gradients()
        with Clock() as clock, ThreadPoolExecutor(self.cores) as threads:
            chains = list(threads.map(lambda i: self._chain(draws, seed, i), range(self.chains)))
        gradients = shim.gradients() - before

        def outcome() -> Outcome:
            values = np.array([self._constrained(x) for x in chains])
            return Outcome(clock.seconds, clock.cpu_seconds, gradients, values)

        return outcome

    def _chain(self, draws: int, seed: int, index: int) -> np.ndarray:
        import jax

        rng = np.random.default_rng([seed, index])
        key = jax.random.fold_in(jax.random.key(seed), index)
        return np.asarray(self.compiled[draws](key, self._start(rng)))

    def _start(self, rng: np.random.Generator) -> np.ndarray:
        """Uniform on (-2, 2), as with the others."""
        for _ in range(_TRIES):
            x = rng.uniform(-2.0, 2.0, self.d)
            try:
                value, score = self.model.log_density_gradient(x)
            except RuntimeError:
                continue
            if np.isfinite(value) and np.isfinite(score).all():
                return x
        raise RuntimeError(f"no start found in {_TRIES} tries")

    def _constrained(self, draws: np.ndarray) -> np.ndarray:
        return np.array([self.model.param_constrain(x, include_tp=True) for x in draws])


def chain(log_density: Callable[[Any], Any], draws: int, key: Any, x: Any) -> Any:
    """Warm-up and draws (n, d), for JAX to compile."""
    import blackjax
    import jax

    for_warmup, for_draws = jax.random.split(key)
    adaptation = blackjax.window_adaptation(blackjax.nuts, log_density)
    (state, parameters), _ = adaptation.run(for_warmup, x, num_steps=WARMUP)
    step = blackjax.nuts(log_density, **parameters).step

    def next_draw(state: Any, key: Any) -> tuple[Any, Any]:
        state, _ = step(key, state)
        return state, state.position

    return jax.lax.scan(next_draw, state, jax.random.split(for_draws, draws))[1]


def log_density(model: Any, d: int) -> Callable[[Any], Any]:
    """The log density for JAX; value and gradient come from one call."""
    import jax

    _register()
    result = jax.ShapeDtypeStruct((), np.float64), jax.ShapeDtypeStruct((d,), np.float64)
    call = jax.ffi.ffi_call("stan_gradient", result, vmap_method="sequential")
    function = ctypes.cast(model.stanlib.bs_log_density_gradient, ctypes.c_void_p).value
    evaluate = functools.partial(call, function=np.int64(function), model=np.int64(model.model))

    @jax.custom_vjp
    def value(x: Any) -> Any:
        return evaluate(x)[0]

    value.defvjp(lambda x: evaluate(x), lambda score, weight: (weight * score,))
    return value


@functools.cache
def _register() -> None:
    import jax

    jax.config.update("jax_enable_x64", True)
    source = Path(__file__).with_name("jax_gradient.cc")
    library = shim.built("g++", source, ["-std=c++17", f"-I{jax.ffi.include_dir()}"], [jax.__version__])
    function = ctypes.CDLL(str(library)).stan_gradient
    jax.ffi.register_ffi_target("stan_gradient", jax.ffi.pycapsule(function), platform="cpu")
