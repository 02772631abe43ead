"""Where chains start."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import check
from ..errors import ArgumentError, InitializationError
from ..model.backends.contract import Model
from ..model.data import read
from ..model.posterior import Posterior
from ..numerics.ascent import MAX_GRADIENTS, climb, far_below
from ..samplers import Handover
from ..target import hessian, log_density, log_density_gradient

TRIES = 100  # Stan's number
# Number of random starts from which a chain climbs, so that it does not start in a mode without mass. In
# PosteriorDB one such mode attracts six starts in ten (bball_drive_event_0-hmm_drive_0), so that a few climbs
# to the same mode prove nothing.
CLIMBS = 10
_SPAWN_KEY = 0x696E6974  # of the random numbers of a user's function


class Init(NamedTuple):
    """The start of one chain: a point, or some values and the radius from which the rest is drawn."""

    radius: float
    point: np.ndarray | None = None  # (d,) unconstrained
    values: dict[str, Any] | None = None  # constrained; perhaps not of all parameters
    may_fail: bool = False  # whether another start is drawn where the point has no finite density
    warm: Handover | None = None  # what the chain takes over from one of an earlier run, see warm_start.py
    modes: np.ndarray | None = None  # (k, d) unconstrained, that all chains know, see known_modes.py


class Start(NamedTuple):
    """Where a chain starts, and what the search for it has found."""

    x: np.ndarray  # (d,)
    tops: np.ndarray  # (k, d) the highest points of the climbs; k = 0 where there were none


def plan(inits: Any, radius: float, posterior: Posterior, chains: int, seed: int) -> list[Init]:
    """One `Init` for each chain from the user's `inits`, which `stanadapt.sample` describes.

    The random numbers of a function depend on `seed` and the chain alone.
    """
    if inits is None:
        return [Init(radius)] * chains
    if isinstance(inits, bool | np.bool_):
        raise check.refusal("inits", inits, _ALLOWED)
    if isinstance(inits, int | float | np.number):
        return [Init(check.number("inits", inits, 0.0, check.LARGEST_RADIUS))] * chains
    if isinstance(inits, str | os.PathLike):
        inits = read(inits, "inits")
    if callable(inits) and not hasattr(inits, "groups"):
        return [_read_function(inits, radius, posterior, chain, seed) for chain in range(chains)]
    if isinstance(inits, Mapping) and not hasattr(inits, "groups"):  # an earlier result is a Mapping too
        return [_read_values(inits, radius, posterior, "inits")] * chains
    if hasattr(inits, "groups"):
        return _read_inference_data(inits, radius, posterior, chains)
    if isinstance(inits, Sequence) and any(isinstance(entry, _PER_CHAIN) for entry in inits):
        _check_chains(len(inits), chains)
        return [_read_values(entry, radius, posterior, f"inits[{i}]") for i, entry in enumerate(inits)]
    try:
        points = np.asarray(inits)
    except Exception as error:  # ragged, or an array of another library with its own error
        raise check.refusal("inits", inits, _ALLOWED) from error
    if points.dtype.kind not in "iuf":
        raise check.refusal("inits", inits, _ALLOWED)
    points = points.astype(float)
    if points.shape != (chains, posterior.dim):
        raise ArgumentError(
            f"inits has shape {points.shape}; unconstrained starting points need (chains, d) = "
            f"({chains}, {posterior.dim})"
        )
    if not np.all(np.isfinite(points)):
        raise ArgumentError("inits has entries that are NaN or infinite; starting points must be finite")
    return [Init(radius, point=point) for point in points]


def describe(inits: Any, radius: float) -> dict[str, Any]:
    """The starts as attributes of a result: the radius, and whether `inits` gave more than a radius."""
    if isinstance(inits, int | float | np.number):
        return {"init_radius": float(inits)}
    return {"init_radius": radius} | ({} if inits is None else {"inits": "given"})


_PER_CHAIN = (Mapping, str, os.PathLike)
_ALLOWED = (
    "None, a radius, a dict of constrained values or a list of one per chain, a path to JSON, a function of "
    "a chain's number and a numpy Generator, an array of shape (chains, d), or an earlier InferenceData"
)


def find(
    init: Init,
    posterior: Posterior,
    model: Model,
    chain: int,
    rng: np.random.Generator,
    use_gradient: bool,
    ascend: bool,
    use_hessian: bool = False,
) -> Start:
    """A starting point with a finite log density, and finite gradient and Hessian if they are used.

    `model` is the chain's own. If the model draws random numbers, it does so in the chain's order.

    If `ascend` is set, a random start is the end of a short climb out of the far tail. There are climbs from
    `CLIMBS` points. The first is kept, unless another one ends so much higher that the first mode can have no
    mass.

    Raises
    ------
    InitializationError
        The given point is no start, or 100 tries have found none. The message has the first reason.
    """
    need = _Need(use_gradient, use_hessian)
    try:
        x = _find_finite(init, posterior, model, chain, rng, need)
    except InitializationError:
        if not init.may_fail:
            raise
        init = Init(init.radius)
        x = _find_finite(init, posterior, model, chain, rng, need)
    if not (ascend and need.gradient and init.point is None and init.values is None and init.radius > 0):
        return Start(x, np.empty((0, posterior.dim)))
    x, logp, top = _climb_out(x, model, need)
    tops = [top]
    for _ in range(CLIMBS - 1):
        other, higher, top = _climb_out(_find_finite(init, posterior, model, chain, rng, need), model, need)
        tops.append(top)
        if far_below(logp, higher, posterior.dim):
            x, logp = other, higher
    model.raise_pending()
    return Start(x, np.array(tops))


class _Need(NamedTuple):
    """What must be finite at a start, in addition to the log density."""

    gradient: bool
    hessian: bool

    def __str__(self) -> str:
        parts = ["log density", *["gradient"] * self.gradient, *["Hessian"] * self.hessian]
        return check.join_names(parts)


def _climb_out(x: np.ndarray, model: Model, need: _Need) -> tuple[np.ndarray, float, np.ndarray]:
    """The end of the climb from `x` and the log density there; `x` itself if that end is no start.

    The third value is the climb's highest point.
    """
    target = model.target()
    end, logp, _, top = climb(target, x, MAX_GRADIENTS)
    if need.hessian and not _has_hessian(target, end):
        return x, log_density(target, x), top
    return end, logp, top


def _has_hessian(target: Any, x: np.ndarray) -> bool:
    """Whether the Hessian at `x` (d,) is finite."""
    second = np.empty((x.size, x.size))
    return bool(hessian(target, x, second)) and bool(np.all(np.isfinite(second)))


def _find_finite(
    init: Init, posterior: Posterior, model: Model, chain: int, rng: np.random.Generator, need: _Need
) -> np.ndarray:
    """The first candidate at which all that is needed is finite."""
    target = model.target()
    score = np.empty(posterior.dim)
    complete = init.values is not None and all(name in init.values for name in posterior.parameters)
    random = init.point is None and not complete and init.radius > 0
    tries = TRIES if random else 1
    reason = ""
    for _ in range(tries):
        try:
            x = _candidate(init, posterior, rng)
        except RuntimeError as error:  # the random values may contradict the given ones
            reason = reason or f"inits are outside the support of the model: {check.one_line(error)}"
            continue
        logp = log_density_gradient(target, x, score) if need.gradient else log_density(target, x)
        model.raise_pending()
        if logp == -np.inf:
            reason = reason or posterior.failure(x, need.gradient)
        elif need.hessian and not _has_hessian(target, x):
            model.raise_pending()
            reason = reason or _hessian_failure(posterior, target)
        else:
            return x
    where = (
        f"{tries} tries uniform on (-{init.radius:g}, {init.radius:g})" if random else "its starting point"
    )
    if random and init.values:
        where += f" with {', '.join(init.values)} as inits say"
    raise InitializationError(f"chain {chain}: no finite {need} at {where}. First reason: {reason}")


def _hessian_failure(posterior: Posterior, target: Any) -> str:
    """Why the Hessian is not finite: it is made of gradients around the point, and one of them failed."""
    if not target.failures.total[0]:
        return "the support ends beside it, or the Hessian overflows"
    return f"beside it, where the gradient is differenced: {posterior.failure(target.failures.first, True)}"


def _candidate(init: Init, posterior: Posterior, rng: np.random.Generator) -> np.ndarray:
    """A point to try (d,). Raises RuntimeError with the model's message for values outside its support."""
    if init.point is not None:
        return init.point.copy()
    x = rng.uniform(-init.radius, init.radius, posterior.dim)
    if init.values is None:
        return x
    return posterior.model.unconstrain(posterior.constrain(x) | init.values)


def _read_values(values: Any, radius: float, posterior: Posterior, what: str) -> Init:
    """The start that constrained values, or a path to them, describe."""
    if isinstance(values, str | os.PathLike):
        values = read(values, what)
    if not isinstance(values, Mapping):
        raise check.refusal(what, values, "a dict of constrained values, or a path to JSON")
    plain = read(values, what)
    own = posterior.parameters
    is_whole = all(name in plain for name in own)
    if own and is_whole:  # a whole draw, as CmdStanPy's create_inits gives it, has other variables too
        others = posterior.variables.keys() - own.keys()
        plain = {name: value for name, value in plain.items() if name not in others}
    posterior.check_parameters(what, plain)
    for name, value in plain.items():
        if not np.all(np.isfinite(value)):
            raise ArgumentError(f"{what}[{name!r}]={check.quote(value)} has entries that are NaN or infinite")
    if is_whole:
        _check_support(plain, posterior, what)
    return Init(radius, values=plain)


def _read_function(function: Any, radius: float, posterior: Posterior, chain: int, seed: int) -> Init:
    """The start that a user's function gives a chain: constrained values, an unconstrained point, or None."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_SPAWN_KEY, chain)))
    what = f"inits({chain}, rng)"
    try:
        given = function(chain, rng)
    except Exception as error:
        raise ArgumentError(f"{what} fails: {type(error).__name__}: {check.one_line(error)}") from error
    if given is None:
        return Init(radius)
    if isinstance(given, Mapping):
        return _read_values(given, radius, posterior, what)
    allowed = f"a dict of constrained values, an unconstrained point of shape ({posterior.dim},), or None"
    try:
        point = np.asarray(given)
    except Exception as error:
        raise check.refusal(what, given, allowed) from error
    if point.dtype.kind not in "iuf" or point.shape != (posterior.dim,) or not np.all(np.isfinite(point)):
        raise check.refusal(what, given, allowed)
    return Init(radius, point=point.astype(float))


def _check_support(values: dict[str, Any], posterior: Posterior, what: str) -> None:
    """Refuse values of all parameters that are outside the support or on its boundary."""
    try:
        x = posterior.model.unconstrain(values)
    except RuntimeError as error:
        raise ArgumentError(f"{what}: outside the support of the model: {check.one_line(error)}") from error
    if not np.all(np.isfinite(x)):
        edge = posterior.unconstrained_names[int(np.argmin(np.isfinite(x)))]
        raise ArgumentError(f"{what}: on the boundary of the support in {edge}; it must be inside")


def _read_inference_data(inits: Any, radius: float, posterior: Posterior, chains: int) -> list[Init]:
    """Starts at the last draws of an earlier result, of its chains in turn, or some of an approximation.

    Where it has fewer chains, those that begin in the same one do so at draws that are far apart.
    """
    try:
        group = inits["posterior"]
        given = int(group.sizes["chain"])
        length = int(group.sizes["draw"])
    except (KeyError, TypeError, AttributeError):
        raise ArgumentError(
            "inits has no group named posterior with dimensions chain and draw; an earlier result is needed"
        ) from None
    if length == 0:
        raise ArgumentError("inits has no draws in its posterior group; its last draws are needed")
    missing = [name for name in posterior.parameters if name not in group]
    if missing:
        raise ArgumentError(f"inits lacks parameters of the model: {', '.join(missing)}")
    if group.attrs.get("approximation"):
        order = approximate_order(group, inits)
        rows = [(0, int(order[i % len(order)])) for i in range(chains)]
    else:
        shares = [len(range(i % given, chains, given)) for i in range(chains)]  # that begin in the same chain
        rows = [(i % given, length - 1 - (i // given) * length // shares[i]) for i in range(chains)]
    return [
        _read_values(
            {name: group[name].isel(chain=source, draw=row).values for name in posterior.parameters},
            radius,
            posterior,
            f"inits (chain {source})",
        )
        for source, row in rows
    ]


def approximate_order(group: Any, result: Any) -> np.ndarray:
    """Draws of an approximation in the order in which chains begin at them.

    Draws are taken by their importance weights, where the result has them, and without replacement: the
    largest of log weights with Gumbel noise come first (Efraimidis and Spirakis, 2006, Weighted random
    sampling with a reservoir). Repeated draws come last. The noise depends on the seed of the approximation.
    """
    n = int(group.sizes["draw"])
    try:
        stats = result["sample_stats"]
    except KeyError:
        stats = {}
    weights = np.zeros(n) if "log_weight" not in stats else np.ravel(stats["log_weight"].values)
    noise = np.random.default_rng(int(group.attrs.get("seed", 0))).gumbel(size=n)
    order = np.argsort(-(weights + noise), kind="stable")
    if "lp" not in stats:
        return order
    _, first = np.unique(np.ravel(stats["lp"].values)[order], return_index=True)
    is_first = np.zeros(n, dtype=bool)
    is_first[first] = True
    return np.concatenate((order[is_first], order[~is_first]))


def _check_chains(given: int, chains: int) -> None:
    """Refuse a number of starting points that is not the number of chains."""
    if given != chains:
        raise ArgumentError(f"inits has starting points for {given} chains; chains={chains} need one each")
