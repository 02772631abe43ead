"""Reasons of stanli for not opening a program, in words for the author of the program.

stanli names parts of its own form of a program, and not their lines. So this file translates each reason into
a feature of the language, with the first place in the program's text where that feature stands.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .... import check
from ....errors import DataError, ModelError, StanAdaptError
from ...includes import ProgramText, find_place
from ...program import block
from ..contract import RefusedDataError, RefusedError

WHO = "stanli, which runs Stan programs without a compiler,"


class _Feature(NamedTuple):
    """A feature of the language that stanli does not cover."""

    reason: str  # a regular expression for what stanli says
    name: str  # in words; NAME stands for the reason's first group
    place: str  # a regular expression for it in a program; the same
    advice: str = ""  # what does the same and is covered


_FEATURES = (
    _Feature(
        "JacobianPE",
        "`jacobian +=`",
        r"\bjacobian\s*\+=",
        "`target +=` in the model block does the same",
    ),
    _Feature(
        "StochasticColumn",
        "column_stochastic_matrix",
        r"\bcolumn_stochastic_matrix\b",
        "an array of simplexes for the columns is covered",
    ),
    _Feature(
        "StochasticRow",
        "row_stochastic_matrix",
        r"\brow_stochastic_matrix\b",
        "an array of simplexes for the rows is covered",
    ),
    _Feature(
        r"\bSComplex|\bUComplex|unsupported function to_complex",
        "complex numbers",
        r"\b(to_)?complex\w*\b",
        "real numbers for the real and the imaginary parts are covered",
    ),
    _Feature(
        r"\bSTuple|\bUTuple|malformed (?:un)?sized declaration type",
        "tuples",
        r"\btuple\b|(?<![\w)\]])\(\s*\w+(\s*,\s*\w+)+\s*\)\s*=(?!=)",
        "a variable for each of their parts is covered",
    ),
    _Feature("FnFatalError", "fatal_error", r"\bfatal_error\s*\("),
    _Feature(
        r"UDF recursion too deep in (\w+)",
        "a recursion as deep as that of NAME",
        r"\bNAME\s*\(",
        "a loop is covered",
    ),
    _Feature(
        "UDF recursion too deep",
        "a recursion as deep as this one",
        r"\bfunctions\s*\{",
        "a loop is covered",
    ),
    _Feature("while loop did not terminate", "a while loop of so many turns", r"\bwhile\b"),
    _Feature(r"unsupported (?:statement )?function (\w+?)(?:__)?\b", "the function NAME", r"\bNAME\s*\("),
)

# stanli's own words for values that do not go together, which it meets when it opens a program with data.
_OF_VALUES = re.compile(
    "out of bounds|out-of-range|negative|overflow|must match|mismatch|do not match|by zero|divisor is"
)
_OWN = re.compile(r"(stanli|mir)\b")
_STAGE = re.compile(r"(?:stanli [\w ]+|mir): ")
_FORM = re.compile(r" \| in: .*|\(\(pattern .*")
_MEMORY = re.compile(r"bad_alloc|length_error|bad_array_new_length|vector::\w+")


def in_words(reason: str, program: ProgramText) -> StanAdaptError:
    """The error for a program that stanli does not open, by its reason.

    It is a RefusedError for features that stanli does not cover and a RefusedDataError for values that
    stanli itself refuses; another backend may accept both. It is a DataError where the program's own checks
    or Stan Math say that the data are wrong; and a ModelError where there are no data that could be, or too
    little memory.
    """
    if _MEMORY.search(reason):
        return ModelError(
            "model: there is not enough memory to open the Stan program with sizes as large as its data make "
            f"them ({check.free_memory() / 2**30:.1f} GiB are free)"
        )
    is_own = _OWN.match(reason) and not reason.startswith("stanli MIR check:")
    if is_own:
        for feature in _FEATURES:
            if found := re.search(feature.reason, reason):
                return _refusal(feature, found, program)
    has_data = bool(block(program.code, "data").strip())
    text = _plain(reason)
    if is_own and not _OF_VALUES.search(text):
        return RefusedError(f"{WHO} does not cover this program: {text}")
    if is_own and has_data:
        return RefusedDataError(f"data: the Stan program cannot be opened with them: {text}")
    if is_own:
        return RefusedError(f"the Stan program cannot be opened: {text}")
    if not has_data:
        return ModelError(f"model: the Stan program cannot be opened, and it has no data: {text}")
    return DataError(f"data do not fit the Stan program: {text}")


def _refusal(feature: _Feature, found: re.Match[str], program: ProgramText) -> RefusedError:
    """The error for a feature that is not covered, with its place in the program."""
    name = found[1] if found.re.groups and found[1] else ""
    place = find_place(program, feature.place.replace("NAME", re.escape(name)))
    where = f", {place}" if place else ""
    advice = f" ({feature.advice})" if feature.advice else ""
    return RefusedError(f"{WHO} does not cover {feature.name.replace('NAME', name)}{where}{advice}")


def _plain(reason: str) -> str:
    """A reason without the names of stanli's stages, which may be nested, and without its own forms."""
    text = _FORM.sub("", reason)
    while (shorter := _STAGE.sub("", text)) != text:
        text = shorter
    return text.strip()
