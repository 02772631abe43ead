"""When a run stops: its goals, its limits, and the schedule of the pauses in which they are checked.

The statistics themselves are `diagnostics.until`'s. Nothing here depends on time. The places of the looks
depend on the goals, on the number of chains and, with a limit of gradients, on the number of gradients so
far.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .. import check
from ..errors import ArgumentError
from ..model.posterior import Posterior

FIRST = 50  # rows a chain at the first look: R-hat and sizes of fewer are mostly noise
FACTOR = 1.1  # from one look to the next; examples/benchmarks/README.md has what others cost
MINIMUM = 4  # rows a chain that the statistics need
PROBE = 10  # rows after which the cost of a row in gradients is known

_UNITS = {"h": 3600.0, "min": 60.0, "s": 1.0}
_LIMIT = re.compile(rf"(?P<number>[^\s]+?)\s*(?P<unit>{'|'.join(_UNITS)}|gradients)")
_GRAMMAR = (
    "goals and limits with commas between them, such as 'ess 400, rhat 1.01, 10 min': ess NUMBER, "
    "rhat NUMBER, mcse VARIABLE NUMBER, of VARIABLE VARIABLE ..., NUMBER s, NUMBER min, NUMBER h, "
    "NUMBER gradients"
)


@dataclass(frozen=True)
class Until:
    """When a run has drawn enough: at the first look at which all goals hold, or at a limit.

    As text, `until="ess 400, rhat 1.01, 10 min"`, it is a list with commas, in any order, of

        ess NUMBER              rhat NUMBER             mcse VARIABLE NUMBER
        of VARIABLE ...         NUMBER s|min|h          NUMBER gradients

    each once, but for mcse, which may come once for every variable. `str` writes the same text.

    Parameters
    ----------
    ess
        The effective sample size that every quantity must have, in draws of all chains together: both the
        bulk's and the tail's, so the smaller one of the worst quantity.
    rhat
        What the rank-normalised split R-hat of every quantity may be at most, above 1; of a single chain it
        compares its halves.
    seconds
        A limit of time, from the call on, warm-up included. Where it falls depends on the machine: the
        attributes of the result say at which draw it was.
    gradients
        A limit of gradient evaluations, of all chains and with warm-up. It is looked at where the run pauses
        anyway and where it is about to be reached, so that it depends on the seed alone; it may be exceeded
        by some draws' worth.
    mcse
        For each variable named, what the Monte Carlo standard error of the mean may be at most in every one
        of its elements, in the variable's own units.
    of
        The variables that ess and rhat are about; by default the parameters. As in mcse, transformed
        parameters and generated quantities may be named too.

    Raises
    ------
    ArgumentError
        A value is not allowed, there is neither a goal nor a limit, or `of` has nothing that it is about.

    Notes
    -----
    The definitions of R-hat and of the sizes are those of Vehtari, Gelman, Simpson, Carpenter and Bürkner
    (2021), Bayesian Analysis 16(2). Looks are some per cent of the draws apart, so runs draw a little more
    than they need; examples/benchmarks has figures.
    """

    ess: float | None = None
    rhat: float | None = None
    seconds: float | None = None
    gradients: int | None = None
    mcse: Mapping[str, float] = field(default_factory=dict, hash=False)
    of: Sequence[str] = ()

    def __post_init__(self) -> None:
        values = {
            "ess": _above(self.ess, "until.ess", 0.0),
            "rhat": _above(self.rhat, "until.rhat", 1.0),
            "seconds": _above(self.seconds, "until.seconds", 0.0),
            "gradients": self.gradients
            if self.gradients is None
            else check.integer("until.gradients", self.gradients, 1, orelse=", or None"),
            "mcse": _errors(self.mcse),
            "of": _names(self.of),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        if not self.has_goals and self.seconds is None and self.gradients is None:
            raise ArgumentError(f"until has neither a goal nor a limit: it must be {_GRAMMAR}")
        if self.of and self.ess is None and self.rhat is None:
            raise check.refusal("until.of", self.of, "left out where neither ess nor rhat is given")

    @property
    def has_goals(self) -> bool:
        """Whether anything about the draws is asked for, and not only a limit."""
        return self.ess is not None or self.rhat is not None or bool(self.mcse)

    @property
    def goals(self) -> str:
        """The goals alone, as text; empty where there are none."""
        parts = [f"ess {_digits(self.ess)}"] if self.ess is not None else []
        parts += [f"rhat {_digits(self.rhat)}"] if self.rhat is not None else []
        parts += [f"mcse {name} {_digits(error)}" for name, error in self.mcse.items()]
        parts += [f"of {' '.join(self.of)}"] if self.of else []
        return ", ".join(parts)

    @property
    def limits(self) -> dict[str, str]:
        """The limits as text, by their names."""
        limits = {}
        if self.seconds is not None:
            unit = next(
                unit for unit, length in _UNITS.items() if self.seconds % length == 0.0 or unit == "s"
            )
            limits["seconds"] = f"{_digits(self.seconds / _UNITS[unit])} {unit}"
        if self.gradients is not None:
            limits["gradients"] = f"{self.gradients} gradients"
        return limits

    def __str__(self) -> str:
        """The text that `parse` reads as the same; of variables whose names have no blanks and commas."""
        return ", ".join(part for part in (self.goals, *self.limits.values()) if part)

    @classmethod
    def parse(cls, given: Any) -> Until | None:
        """Read what a user gives for `until`: None, a text, a mapping of the parameters, or an Until.

        Raises
        ------
        ArgumentError
            It is none of these, or a value is not allowed.
        """
        if given is None or isinstance(given, cls):
            return given
        if isinstance(given, str):
            return cls(**_read(given))
        if not isinstance(given, Mapping):
            raise check.refusal("until", given, f"a stanadapt.Until, a mapping, or a text of {_GRAMMAR}")
        known = [each.name for each in dataclasses.fields(cls)]
        for name in given:
            check.choice("a goal or limit of until", name, known)
        return cls(**given)


class Schedule(NamedTuple):
    """Where a run pauses: rows a chain at which all chains wait, and are looked at together."""

    until: Until
    chains: int
    most: int  # rows a chain

    @property
    def first(self) -> int:
        """Rows of the first look: as many as a goal needs if draws are independent."""
        ess = self.until.ess or 0.0
        return max(FIRST, math.ceil(ess / self.chains))

    def next(self, rows: int, gradients: int = 0, before: int = 0, not_before: float = 0.0) -> int:
        """Rows of the next pause after `rows`, at most the run's own; `rows` itself where a limit has fallen.

        `gradients` counts the gradients of all chains up to `rows`, and `before` counts those before the
        first row. Only a limit of gradients needs both; it has pauses of its own, and `is_look` tells in
        which of them the draws are looked at. `not_before` is the last look's, see `status.Status`: looks
        before it are left out, and so the pauses of a run depend on what its looks have said. One that is
        taken up again makes those of its first rows again.
        """
        if self.limit(rows, gradients, before):
            return rows
        pause = self.most
        if self.until.has_goals:
            pause = min(self._look(rows, not_before), pause)
        if self.until.gradients is not None:
            left, cost = self.until.gradients - gradients, _cost(rows, gradients, before)
            # Halfway there, and again, since rows may come to cost more; and at most five times as many
            # rows, since those so far may have been cheap ones.
            more = min(left / cost / 2, 4 * rows if gradients > before else math.inf, self.most)
            pause = min(pause, PROBE if rows == 0 else rows + math.ceil(more))
        return pause

    def is_look(self, rows: int, not_before: float = 0.0) -> bool:
        """Whether draws are to be looked at in a pause at `rows`; where a limit falls they are anyway."""
        return self.until.has_goals and rows in (self._look(rows - 1, not_before), self.most)

    def _look(self, rows: int, not_before: float) -> int:
        """Rows of the next look after `rows`, if the run is so long."""
        look = self.first
        while look <= rows or look * FACTOR <= not_before:
            look = math.ceil(FACTOR * look)
        return look

    def limit(self, rows: int, gradients: int = 0, before: int = 0) -> str:
        """The limit that has fallen at `rows`, "gradients" or "draws"; empty where none has.

        The limit of gradients has fallen where the rest is less than a row of all chains takes on average.
        """
        most = self.until.gradients
        if most is not None and most - gradients < (_cost(rows, gradients, before) if rows else 1):
            return "gradients"
        return "draws" if rows >= self.most else ""


def check_until(until: Until, posterior: Posterior, chains: int, rows: int) -> None:
    """Refuse goals that a run of `chains` chains with at most `rows` rows each cannot reach.

    Raises
    ------
    ArgumentError
        A variable is unknown, no variable is left for a goal, or a goal needs more draws than there are.
    """
    for name in until.of:
        check.choice("until.of", name, posterior.variables)
    for name in until.mcse:
        check.choice("a variable of until.mcse", name, posterior.variables)
    if not (until.of or until.mcse or posterior.parameters) and until.has_goals:
        raise ArgumentError(
            f"until={str(until)!r} is not allowed: the model has no parameters, so name variables, as in "
            "'of x'"
        )
    if until.has_goals and rows < MINIMUM:
        raise ArgumentError(
            f"until={str(until)!r} is not allowed: its goals need {MINIMUM} draws of each chain, and there "
            f"are {rows} at most (draws // thin)"
        )
    if until.ess is not None and until.ess > chains * rows:
        raise check.refusal(
            "until.ess",
            until.ess,
            f"at most {chains * rows}, as there are {chains} chains of {rows} kept draws at most: raise "
            "draws, or lower thin",
        )


def _cost(rows: int, gradients: int, before: int) -> float:
    """Gradients that a row of all chains takes; nearly nothing where draws take none."""
    return max((gradients - before) / max(rows, 1), 1e-9)


def _above(value: Any, name: str, low: float) -> float | None:
    if value is None:
        return None
    return check.number(name, value, low, open_low=True, orelse=", or None")


def _errors(given: Any) -> dict[str, float]:
    """The Monte Carlo standard errors, by variable."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) and name for name in given):
        raise check.refusal("until.mcse", given, "a mapping of variables to positive numbers")
    return {
        name: check.number(f"until.mcse[{name!r}]", error, 0.0, open_low=True)
        for name, error in given.items()
    }


def _names(given: Any) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else given
    if names is None:
        return ()
    if not isinstance(names, Sequence) or not all(isinstance(name, str) and name for name in names):
        raise check.refusal("until.of", given, "a variable or a list of variables")
    return tuple(dict.fromkeys(names))


def _digits(number: float) -> str:
    """The shortest text of a number that is read as the same."""
    return str(int(number)) if number == int(number) and abs(number) < 1e15 else repr(number)


def _read(text: str) -> dict[str, Any]:
    """The parameters of Until from its text."""
    found: dict[str, Any] = {}
    for clause in text.split(","):
        name, value = _read_clause(clause.strip(), text)
        if name == "mcse" and not value.keys() & found.get("mcse", {}).keys():
            value = found.pop("mcse", {}) | value
        if name in found:
            raise check.refusal("until", text, f"{_GRAMMAR}; {clause.strip()!r} comes a second time in it")
        found[name] = value
    return found


def _read_clause(clause: str, text: str) -> tuple[str, Any]:
    """One of the parameters, with its value."""
    try:
        match clause.split():
            case ["ess" | "rhat" as name, number]:
                return name, float(number)
            case ["mcse", variable, number]:
                return "mcse", {variable: float(number)}
            case ["of", *variables] if variables:
                return "of", variables
        if limit := _LIMIT.fullmatch(clause):
            amount = float(limit["number"])
            if limit["unit"] == "gradients":
                return "gradients", int(amount) if amount.is_integer() else amount
            return "seconds", amount * _UNITS[limit["unit"]]
    except ValueError:  # no number where one is due
        pass
    raise check.refusal("until", text, f"{_GRAMMAR}; {clause!r} is none of these")
