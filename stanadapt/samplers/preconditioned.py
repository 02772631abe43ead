"""What fisher_mala and ada_mala share: settings, and the stages of their warm-up."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from .base import Stage
from .settings import NOT_NEGATIVE, POSITIVE, PROBABILITY, Limit


class Settings(NamedTuple):
    """The settings that both methods have, behind their own."""

    target_accept: Annotated[float, PROBABILITY, "acceptance rate that the step size aims at"] = 0.574
    step_rate: Annotated[float, Limit(0.0, 1.0), "learning rate of the squared step size"] = 0.015
    simple_mala: Annotated[int, NOT_NEGATIVE, "n_0: iterations of simple MALA at first"] = 500
    initial_step_size: Annotated[float | None, POSITIVE, "first sigma; None: search; 0.1 if faithful"] = None
    faithful: Annotated[bool, "follow the paper, without our departures"] = False
    forgetting: Annotated[float, Limit(0.0, 1.0), "share of warm-up in which old points fade"] = 0.5
    pilot: Annotated[int, NOT_NEGATIVE, "iterations of Fisher HMC that begin warm-up"] = 0


def stages(settings: Any, warmup: int, last: str) -> list[Stage]:
    """Stages of simple MALA, of learning with a short memory (unless faithful), and of the paper's recursion.

    The third stage has the name `last`. After a pilot it is the only one.
    """
    if settings.pilot:
        return [Stage(last, warmup)]
    simple = min(settings.simple_mala, warmup if settings.faithful else warmup // 4)
    rest = warmup - simple
    forgetting = 0 if settings.faithful else int(settings.forgetting * rest)
    return [Stage("simple_mala", simple), Stage("forgetting", forgetting), Stage(last, rest - forgetting)]
