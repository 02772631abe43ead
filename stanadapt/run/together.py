"""Chains that learn together: from the draws of all of them, at the ends of the windows of warm-up.

With the setting `pooled` a chain pauses where a window has ended, and waits for the others. Whoever runs the
chains then has their sampler learn once from all windows and look for a latent field (`teach`), and lets
every chain begin its next window with what has been learned. So draws depend on the seed and on the number of
chains, but not on the workers.

A run can be stopped between the checkpoints of two chains. Then one chain has begun its next window, and its
draws before are gone, while another one still waits. So a chain keeps the last lesson, and the other one
takes it from there. No chain is farther ahead, because all checkpoints are written before any chain goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from ..model.backends.contract import Model
from ..numerics.windows import Lesson
from ..samplers import Sampler, sampler
from .job import Job
from .warmup import plan


class Taught(NamedTuple):
    """What chains have learned together at the end of a window."""

    stage: int  # the window that has ended
    lesson: Lesson | None  # None where it was the last

    @property
    def is_over(self) -> bool:
        return self.lesson is None


def learn_together(job: Job) -> bool:
    """Whether the chains of a job learn together."""
    return bool(getattr(job.settings, "pooled", False))


def are_warm(values: Sequence[Any]) -> bool:
    """Whether warm-up is over for all chains, so that none waits for another one."""
    return all(
        value is not None
        and (value.warmup_iterations is not None or (value.taught is not None and value.taught.is_over))
        for value in values
    )


def teach(
    job: Job, values: Sequence[Any], model: Model, keep: Callable[[int], None] = lambda chain: None
) -> None:
    """Let all chains that wait, given as their values, learn together and go on.

    `model` gives the density, for a search for a latent field. `keep` is called with the number of every
    chain before one of them can go on.
    """
    stage = min(value.place.stage for value in values if value.is_waiting)
    ahead = [value.taught for value in values if value.taught is not None and value.taught.stage == stage]
    own = cast(Any, cast(Sampler, sampler(job.method)))
    stages = plan(own, job.settings, job.warmup, values[0].start.size)[0].stages
    if ahead:
        taught = ahead[0]
    elif stage + 1 == len(stages):
        taught = Taught(stage, None)
    else:
        with np.errstate(all="ignore"):  # chains may be on their way to infinity; that is diagnosed later
            name, states = stages[stage + 1].name, [value.state for value in values]
            lesson = own.learn_together(name, states, job.settings)
            if lesson is not None:
                lesson = own.explore_together(model.target(), name, states, lesson, job.settings)
                model.raise_pending()
            taught = Taught(stage, lesson)
    for chain, value in enumerate(values):
        if value.is_waiting and value.place.stage == stage:
            value.taught = taught
            if taught.lesson is not None:
                lesson = taught.lesson
                if chain:  # one Hessian will do for all chains, and one of them counts what a search took
                    lesson = lesson._replace(wanted=False, field_gradients=0.0, kink_gradients=0.0)
                with np.errstate(all="ignore"):
                    value.state = own.take_lesson(lesson, value.state, job.settings, model.target())
                value.transport = lesson.transport
                value.place = value.place._replace(stage=stage + 1, left=stages[stage + 1].length)
        keep(chain)
