"""The learned policies of rlmh and rlmh_mala: the proposal that they make from every point."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray

from .. import check
from ..diagnostics.origin import settings_of
from ..errors import ArgumentError
from ..numerics.actor_critic import action
from ..numerics.networks import Shape
from ..result.container import OWN_GROUP, Groups, datasets
from ..samplers.policy import Space
from ..samplers.policy_stages import make_space
from ..samplers.rlmh_mala import WIDEST
from . import canvas
from .preconditioner import find_parameters

if TYPE_CHECKING:
    from ..result.container import InferenceData

_SPREAD = 3.5  # standard deviations of the warm start on either side that are shown
_POINTS, _ARROWS, _CELLS = 201, 15, 60  # of a curve; along each side of a field of arrows, and of a map
_SLICES = 4  # coordinates that are shown, where nobody chooses


class _Policy(NamedTuple):
    """The policy of a chain, and its coordinates u = R^-1 (x - m)."""

    place: int  # the chain's place among all chains
    space: Space
    before: np.ndarray  # (p,) weights of the actor before any reward
    after: np.ndarray
    shape: Shape
    radius: float
    step_size: float  # s_0 of rlmh_mala

    @property
    def steps(self) -> bool:
        """Whether the policy chooses a step size, as in rlmh_mala, and not a place."""
        return self.shape.n_out < len(self.space.center)

    def at(self, weights: np.ndarray, points: np.ndarray) -> np.ndarray:
        """Compute the means of the proposals (n, d), or the step sizes (n,), at points (n, d)."""
        u = (points - self.space.center) @ self.space.inverse_t
        actions = np.empty((len(u), self.shape.n_out))
        for point, out in zip(u, actions, strict=True):
            action(self.shape, weights, self.radius, point, out)
        if self.steps:
            return np.asarray(self.step_size * np.exp(np.clip(actions[:, 0], -WIDEST, WIDEST)))
        return np.asarray(self.space.center + actions @ self.space.root_t)


def plot_policy(
    idata: InferenceData,
    var_names: list[str] | None = None,
    *,
    axes: Any = None,
    figsize: tuple[float, float] | None = None,
) -> np.ndarray:
    """Draw the policy of rlmh before and after it learned from rewards.

    A policy chooses the mean phi(x) of a proposal from x; in rlmh_mala it chooses the size of the step from
    x. Before it learns from rewards it is the result of pre-training. In one dimension phi is a curve for
    each chain. In two dimensions arrows show the direction from x to phi(x), and their colours show the
    distance, for the first chain with a policy. In more dimensions the picture shows coordinates of phi along
    the same coordinates of x, with all other coordinates at their mean. If the result
    has the unconstrained draws (keep_unconstrained=True), it shows them too.

    Parameters
    ----------
    idata
        A result of `stanadapt.sample` with method="rlmh" or "rlmh_mala".
    var_names
        Parameters on the unconstrained scale, or variables with all of their entries. Two of them give
        arrows, and any other number gives curves. By default, all if there are one or two, and otherwise the
        four along which learning changed the policy most.
    axes
        Axes to draw on: two for arrows, one for each curve.
    figsize
        Width and height of a new figure in inches.

    Returns
    -------
    numpy.ndarray
        matplotlib's Axes: (2,) before and after, of arrows or of maps of step sizes; (parameters,) of curves.

    Raises
    ------
    ArgumentError
        The result has no policy, a parameter is unknown, or the number of axes is wrong.
    """
    groups = datasets(idata)
    own = groups.get(OWN_GROUP, xarray.Dataset())
    policies = find_policies(own)
    names = own["unconstrained"].values
    rows = find_parameters(names, var_names)
    draws = _draws(groups, len(names))
    with canvas.style():
        if len(rows) == 2:
            return _draw_plane(policies[0], own["chain"].values, names, rows, draws, axes, figsize)
        many = var_names is None and len(rows) > _SLICES
        if many:
            rows = rows[np.argsort([-_change(policies, int(row)) for row in rows], kind="stable")[:_SLICES]]
        k = len(rows)
        columns = 1 if k == 1 else 2
        grid = -(-k // columns)
        if axes is not None:
            made: np.ndarray = canvas.make_axes(1, k, axes, figsize, (1.0, 1.0))[0]
        else:
            size = (5.0, 4.2) if k == 1 else (8.5, 0.8 + 3.0 * grid)
            cells = canvas.make_axes(grid, columns, None, figsize, size).ravel()
            made, spare = cells[:k], cells[k:]
            for ax in spare:
                ax.remove()
        for ax, row in zip(made, rows, strict=True):
            _draw_curve(ax, policies, int(row), str(names[row]), draws)
        if many:
            text = f"the {k} of {len(names)} parameters along which the policy has changed most"
            made[0].figure.suptitle(text, x=0.01, ha="left", fontsize=9.5)
        if axes is None:
            marks = {"before": {"lw": 1.2, "ls": ":", "color": canvas.GREY}}
            marks |= {} if policies[0].steps else {"φ(x) = x": {"lw": 0.8, "ls": "--", "color": canvas.GREY}}
            canvas.name_chains(made[0], own["chain"].values, marks)
    return made


def _draw_curve(ax: Any, policies: list[_Policy], row: int, name: str, draws: np.ndarray | None) -> None:
    """Draw phi before and after along a coordinate, with a curve for each chain."""
    inks = canvas.colours(1 + max(policy.place for policy in policies))
    at = _line(policies, row)
    for policy in policies:
        points = _along(policy, row, at)
        for weights, look in ((policy.before, {"ls": ":", "alpha": 0.7}), (policy.after, {})):
            found = policy.at(weights, points)
            ax.plot(at, found if policy.steps else found[:, row], color=inks[policy.place], **look)
    written = canvas.plain(name)
    ax.set_xlabel(written)
    ax.set_xlim(at[0], at[-1])
    if policies[0].steps:
        ax.set_ylabel("step size")
        ax.set_ylim(bottom=0.0)
    else:
        ax.plot(at, at, color=canvas.GREY, lw=0.8, ls="--", zorder=0)
        ax.set_ylabel(f"φ(x), its {written}" if len(policies[0].space.center) > 1 else "φ(x)")
    if draws is not None:
        low, high = ax.get_ylim()
        counts, edges = np.histogram(draws[..., row].ravel(), bins=60, range=(at[0], at[-1]))
        heights = 0.25 * (high - low) * counts / max(1, counts.max())
        ax.stairs(low + heights, edges, baseline=low, fill=True, color=canvas.SHADE, alpha=0.25, zorder=0)
        ax.set_ylim(low, high)


def _draw_plane(
    policy: _Policy,
    chains: np.ndarray,
    names: np.ndarray,
    rows: np.ndarray,
    draws: np.ndarray | None,
    axes: Any,
    figsize: Any,
) -> np.ndarray:
    """Draw arrows from x to phi(x), or maps of step sizes, before and after."""
    made: np.ndarray = canvas.make_axes(1, 2, axes, figsize, (9.0, 4.3), sharex=True, sharey=True)[0]
    number = _CELLS if policy.steps else _ARROWS
    sides = [_line([policy], int(row), number) for row in rows]
    first, second = np.meshgrid(*sides)
    points = np.repeat(policy.space.center[None], first.size, axis=0)
    points[:, rows[0]], points[:, rows[1]] = first.ravel(), second.ravel()
    if not policy.steps:  # far outside, the policy has learned nothing
        u = (points - policy.space.center) @ policy.space.inverse_t
        points = points[np.linalg.norm(u, axis=1) <= _SPREAD]
    found = [policy.at(weights, points) for weights in (policy.before, policy.after)]
    if policy.steps:
        _draw_steps(made, sides, found)
    else:
        _draw_arrows(made, points[:, rows], [one[:, rows] for one in found])
    for ax, when in zip(made, ("before", "after"), strict=True):
        if draws is not None:
            shown = draws.reshape(-1, draws.shape[-1])[:: max(1, draws[..., 0].size // 2_000)]
            ax.scatter(*shown[:, rows].T, s=3, lw=0, color=canvas.GREY, alpha=0.25, zorder=0, rasterized=True)
        ax.set_xlabel(canvas.plain(names[rows[0]]))
        ax.set(xlim=sides[0][[0, -1]], ylim=sides[1][[0, -1]])
        what = "step size" if policy.steps else "direction of φ(x) − x"
        ax.set_title(f"{what}, {when} learning (chain {canvas.plain(chains[policy.place])})")
    made[0].set_ylabel(canvas.plain(names[rows[1]]))
    return made


def _draw_arrows(axes: np.ndarray, points: np.ndarray, found: list[np.ndarray]) -> None:
    """Draw arrows of equal length in the direction of phi(x) - x; their colours show the distance.

    A policy that reflects takes most points to the other side, and arrows of true length would cover each
    other.
    """
    moves = [one - points for one in found]
    lengths = [np.linalg.norm(move, axis=1) for move in moves]
    longest = max(float(length.max()) for length in lengths)
    for ax, move, length in zip(axes, moves, lengths, strict=True):
        directions = move / np.where(length > 0.0, length, 1.0)[:, None]
        arrows = ax.quiver(
            *points.T,
            *directions.T,
            length,
            angles="xy",
            scale=1.2 * _ARROWS,
            cmap="viridis_r",
            clim=(0.0, longest),
        )
        ax.set_aspect("equal")
    axes[0].figure.colorbar(arrows, ax=list(axes), label="distance from x to φ(x)", shrink=0.8)


def _draw_steps(axes: np.ndarray, sides: list[np.ndarray], found: list[np.ndarray]) -> None:
    """Draw maps of step sizes on one scale of colours."""
    high = max(float(one.max()) for one in found)
    low = min(float(one.min()) for one in found)
    n = len(sides[0])
    for ax, one in zip(axes, found, strict=True):
        image = ax.pcolormesh(
            *sides,
            one.reshape(n, n),
            cmap=canvas.SEQUENTIAL,
            vmin=low,
            vmax=high,
            rasterized=True,
            shading="gouraud",
        )
    axes[0].figure.colorbar(image, ax=list(axes), label="step size", shrink=0.8)


def _line(policies: list[_Policy], row: int, n: int = _POINTS) -> np.ndarray:
    """Return values (n,) of a coordinate over the range of the warm starts of all chains."""
    spreads = [(policy.space.center[row], _sd(policy, row)) for policy in policies]
    low = min(center - _SPREAD * sd for center, sd in spreads)
    high = max(center + _SPREAD * sd for center, sd in spreads)
    return np.linspace(low, high, n)


def _along(policy: _Policy, row: int, at: np.ndarray) -> np.ndarray:
    """Make points (n, d) with a coordinate at these values and the others at their mean."""
    points = np.repeat(policy.space.center[None], len(at), axis=0)
    points[:, row] = at
    return points


def _sd(policy: _Policy, row: int) -> float:
    return float(np.linalg.norm(policy.space.root_t[:, row]))


def _change(policies: list[_Policy], row: int) -> float:
    """Measure how much learning changed the policies along a coordinate, in standard deviations."""
    total = 0.0
    for policy in policies:
        points = _along(policy, row, _line([policy], row, 41))
        difference = policy.at(policy.after, points) - policy.at(policy.before, points)
        if not policy.steps:
            difference = difference[:, row] / _sd(policy, row)
        total += float(np.square(difference).mean())
    return total


def _draws(groups: Groups, d: int) -> np.ndarray | None:
    """Return the unconstrained draws (chain, draw, d); None if the result does not have them."""
    kept = groups.get("unconstrained_posterior")
    if kept is None or "x" not in kept or kept["x"].shape[-1] != d or not kept["x"].size:
        return None
    return np.asarray(kept["x"].values)


def find_policies(own: xarray.Dataset) -> list[_Policy]:
    """Find the policies of the chains that draw with one."""
    if not {"actor", "pretrained_actor", "uses_policy", "mean", "preconditioner"} <= set(own.data_vars):
        raise ArgumentError("idata has no policy: rlmh and rlmh_mala learn one")
    settings = settings_of(own.attrs)
    d, p = own.sizes["unconstrained"], own["actor"].shape[1]
    hidden = check.integer("idata: settings['hidden']", settings.get("hidden"), 1)
    radius = check.number("idata: settings['radius']", settings.get("radius"), 0.0, open_low=True)
    outputs, rest = divmod(p - hidden * (d + 1), hidden + 1)
    found = []
    for place in np.flatnonzero(own["uses_policy"].values):
        cov = own["preconditioner"].values[place]
        sd = np.sqrt(np.diag(cov))
        space = make_space(own["mean"].values[place], sd, cov / np.outer(sd, sd))
        before, after = (own[name].values[place].copy() for name in ("pretrained_actor", "actor"))
        if space is None or rest or not (np.isfinite(before).all() and np.isfinite(after).all()):
            continue
        step_size = float(own["final_step_size"].values[place]) if "final_step_size" in own else np.nan
        shape = Shape(d, hidden, outputs)
        found.append(_Policy(int(place), space, before, after, shape, radius, step_size))
    if not found:
        raise ArgumentError("idata has no policy: all chains draw by the walk of their warm start")
    return found
