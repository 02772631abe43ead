"""Checks of single arguments: what they return, and that they say what is allowed, on one line."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from stanadapt import check
from stanadapt.errors import ArgumentError


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3)])
def test_integer_returns_an_int(value):
    assert check.integer("n", value, 1) == 3
    assert type(check.integer("n", value, 1)) is int


@pytest.mark.parametrize(
    "value",
    [
        0,
        -1,
        6,
        3.0,
        "3",
        True,
        np.True_,
        None,
        [3],
        np.array([3]),
        math.nan,
        Unprintable(),
        pytest.param(10**5000, id="huge"),
    ],
)
def test_integer_refuses(value):
    with pytest.raises(
        ArgumentError, match=r"n=.* is not allowed: n must be an integer from 1 to 5"
    ) as caught:
        check.integer("n", value, 1, 5)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [0.5, np.float32(0.5), Fraction(1, 2)])
def test_number_returns_a_float(value):
    assert type(check.number("r", value, 0.0)) is float
    assert check.number("r", value, 0.0) == 0.5


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, -0.1, 2.0, "0.5", True, None, 1j, Decimal("0.5"), 10**400, [0.5]]
)
def test_number_refuses(value):
    with pytest.raises(ArgumentError, match=r"r=.* r must be a finite number of at least 0 and at most 1"):
        check.number("r", value, 0.0, 1.0)


def test_number_may_exclude_its_lower_end():
    assert check.number("r", 0, 0.0) == 0.0
    with pytest.raises(ArgumentError, match="above 0"):
        check.number("r", 0.0, 0.0, open_low=True)


@pytest.mark.parametrize("value", [1, 0, "yes", None, 1.0])
def test_boolean_refuses(value):
    with pytest.raises(ArgumentError, match=r"flag=.* must be True or False"):
        check.boolean("flag", value)


@pytest.mark.parametrize(
    ("value", "near"), [("fisher-mala", "fisher_mala"), ("RMW", "rwm"), ("malla", "mala")]
)
def test_choice_names_the_nearest(value, near):
    with pytest.raises(ArgumentError, match=rf"method='{value}' .*nearest: {near}"):
        check.choice("method", value, ["rwm", "mala", "fisher_mala"])


@pytest.mark.parametrize("value", [None, 3, ["rwm"], {}, b"rwm", ""])
def test_choice_refuses_what_is_no_name(value):
    with pytest.raises(ArgumentError, match="must be one of rwm, mala"):
        check.choice("method", value, ["rwm", "mala"])


def test_choice_of_nothing_says_so():
    with pytest.raises(ArgumentError, match="'y_rep' is not allowed: the model has none"):
        check.choice("log_likelihood", "y_rep", [])


@pytest.mark.parametrize("value", [np.eye(20), "a\nb" * 100, list(range(1000))])
def test_values_are_shown_short_and_on_one_line(value):
    text = check.quote(value)
    assert len(text) <= 80
    assert "\n" not in text


def test_free_memory_is_positive():
    assert check.free_memory() > 0
