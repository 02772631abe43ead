"""Kernels that move the replica on a rung (tempering.py), each with the rung's metric and step size.

Those of Fisher HMC are the trajectories of trajectory.py along the density of the rung. The others are made
of the same parts, and compiled when a run takes one of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Flag, Generator, Integer, Real, Vector
from ..trace import Info
from .kernel_templates import kernel_from
from .metric import momentum_into, velocity_into
from .metropolis import accept_probability
from .splitting import Room, leapfrog_steps, room, split_steps
from .step_size import DualAveraging, average_step_size, final_step_size
from .tempering import Rung, rung_density
from .trajectory import trajectory

KERNELS = ("fisher_hmc", "hmc", "mala", "arwmh")  # that move replicas on their rungs
FISHER_HMC, HMC, MALA, WALK = range(len(KERNELS))
REPORT = 6  # numbers that `move_otherwise` writes
_STEPS_EACH = 2  # of a walk, for each dimension
_AIMS = (0.8, 0.8, 0.574, 0.234)  # acceptance rates, by kernel
_SHORT = 3.0  # steps are short if a trajectory is longer than so many of them
_CAREFUL = 0.9  # then the acceptance rate to aim at, as in fisher_hmc.py
_LONGEST_WALK = 10.0  # step size of a walk
_WARM_STEPS = 8  # of a trajectory on a rung that is not the posterior's, unless the posterior's takes more


@kernel
def count_leapfrogs(settings: Any, step_size: Real, most: Any, d: Any, rng: Generator) -> Integer:
    """The steps of a trajectory, in place of `draw_steps`: the Langevin algorithm is Hamiltonian with one."""
    return 1 if settings.kernel == MALA else settings.n_leapfrog


rung_steps = kernel_from(
    split_steps.py_func,
    "rung_steps",
    count_leapfrogs,
    counted=False,
    log_density_gradient=rung_density,
)
rung_trajectory = kernel_from(
    trajectory.py_func,
    "rung_trajectory",
    count_leapfrogs,
    counted=False,
    split_steps=rung_steps,
)

rung_leapfrogs = kernel_from(
    leapfrog_steps.py_func,
    "rung_leapfrogs",
    count_leapfrogs,
    counted=False,
    log_density_gradient=rung_density,
)
leapfrog_trajectory = kernel_from(
    trajectory.py_func,
    "leapfrog_trajectory",
    count_leapfrogs,
    split_steps=rung_leapfrogs,
    draw_steps=count_leapfrogs,
)


@kernel(late=True)
def move_otherwise(
    rung: Rung,
    settings: Any,
    metric: Any,
    x: Vector,
    score: Vector,
    logp: Real,
    step_size: Real,
    most: Integer,
    room: Any,
    rng: Generator,
    report: Vector,
) -> None:
    """Move the replica at `x` (d,) by the kernel of the settings, where it is not that of Fisher HMC.

    Where the replica moves, the parts of the rung are those of its new point. Written to `report` (6,): the
    acceptance probability, whether it has moved, evaluations, and three columns of trajectories.
    """
    if settings.kernel == WALK:
        walk_on_rung(rung, metric, x, logp, step_size, most, room, rng, report)
        return
    _, info, _ = leapfrog_trajectory(rung, settings, metric, x, score, logp, step_size, most, 1, room, rng)
    energy: Any = info.own
    report[0], report[1], report[2] = info.accept_prob, 1.0 * info.accepted, 1.0 * info.n_steps
    report[3], report[4], report[5] = energy


@kernel
def walk_on_rung(
    rung: Rung,
    metric: Any,
    x: Vector,
    logp: Real,
    step_size: Real,
    most: Integer,
    room: Any,
    rng: Generator,
    report: Vector,
) -> None:
    """Two steps of a random walk with covariance s² A for each dimension, at most `most`.

    They need no gradient, and have no energy.
    """
    y, n, broad, fitted, posterior = room.y, min(most, _STEPS_EACH * x.size), 0.0, 0.0, 0.0
    for i in range(REPORT):
        report[i] = 0.0
    for _ in range(n):
        for i in range(x.size):
            room.z[i] = rng.standard_normal()
        momentum_into(room.momentum, metric, room.z)
        velocity_into(room.velocity, metric, room.momentum)  # A p has the covariance A
        for i in range(x.size):
            y[i] = x[i] + step_size * room.velocity[i]
        logp_y = rung_density(rung, y, room.score)
        accept_prob = accept_probability(logp_y - logp)
        report[0] += accept_prob / n
        if rng.random() < accept_prob:
            logp, report[1] = logp_y, 1.0
            broad, fitted, posterior = rung.heights
            for i in range(x.size):
                x[i] = y[i]
    report[2], report[3] = n, -logp
    if report[1] > 0.0:
        rung.heights[0], rung.heights[1], rung.heights[2] = broad, fitted, posterior


@kernel
def most_steps(settings: Any, most: Integer, step_size: Real, is_cold: Flag) -> Integer:
    """The largest number of steps on a rung, at most `most`; `step_size` is that of the posterior's rung.

    Warm rungs may be stiff where the posterior is not: far out, scales of parameters with limits differ by
    orders of magnitude. A trajectory that is long enough to cross such a rung would take most of a run's
    gradients. But exchanges bring new draws of the references to it, and it only has to move between two of
    them, so that a few steps serve as well.
    """
    if is_cold or settings.kernel != FISHER_HMC:
        return most
    return min(most, max(_WARM_STEPS, int(np.ceil(settings.trajectory / step_size))))


@kernel(counted=False)
def move_on_rung(
    rung: Rung,
    settings: Any,
    metric: Any,
    x: Vector,
    score: Vector,
    logp: Real,
    step_size: Real,
    most: Integer,
    d: Integer,
    room: Any,
    rng: Generator,
    report: Vector,
) -> Any:
    """Move the replica at `x` (d,) by the kernel of the settings; the arguments are those of `trajectory`.

    Returns the Info. `report` (6,) is work space. Where the replica moves, the parts of the rung are those of
    its new point.
    """
    if settings.kernel == FISHER_HMC:
        _, info, _ = rung_trajectory(rung, settings, metric, x, score, logp, step_size, most, d, room, rng)
        return info
    move_otherwise(rung, settings, metric, x, score, logp, step_size, most, room, rng, report)
    columns = report[3], report[4], report[5]
    return Info(report[0], report[1] > 0.0, step_size, int(report[2]), columns)


class ScanRoom(NamedTuple):
    """Work space of a scan."""

    room: Room  # of a trajectory
    heights: np.ndarray  # (3,)
    slopes: np.ndarray  # (3, d)
    away: np.ndarray  # (d,) as are the next two
    white: np.ndarray
    score: np.ndarray
    report: np.ndarray  # (6,)
    longest: float  # step size


def scan_room(settings: Any, d: int) -> ScanRoom:
    """Work space in dimension `d`."""
    away, white, score = np.empty((3, d))
    heights, slopes, report, longest = (
        np.empty(3),
        np.empty((3, d)),
        np.empty(REPORT),
        _longest_step(settings),
    )
    return ScanRoom(room.py_func(d), heights, slopes, away, white, score, report, longest)


def _longest_step(settings: Any) -> float:
    """The largest step size of the kernel."""
    return float(_LONGEST_WALK if settings.kernel == WALK else settings.trajectory)


@kernel
def search_step_size(
    settings: Any, search: Vector, step_size: Real, accept_prob: Real, longest: Real
) -> Real:
    """The next step size of a rung. The numbers (4,) of its search, a `DualAveraging`, change in place."""
    aim = _AIMS[settings.kernel] if np.isnan(settings.target_accept) else settings.target_accept
    if settings.kernel == FISHER_HMC and _SHORT * step_size < settings.trajectory:
        aim = max(aim, _CAREFUL)
    before = DualAveraging(search[0], search[1], search[2], search[3])
    after, step_size = average_step_size(before, accept_prob, aim, longest)
    search[0], search[1], search[2], search[3] = after
    return step_size


def end_searches(settings: Any, searches: np.ndarray, step_sizes: np.ndarray) -> None:
    """Write the step sizes (K,) that the draws have, where rungs have searched for them."""
    for j, numbers in enumerate(searches):
        search = DualAveraging(*numbers)
        if search.t > 0.0:
            step_sizes[j] = final_step_size.py_func(search, _longest_step(settings))
