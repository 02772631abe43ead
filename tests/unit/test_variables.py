"""Flat names to variables with shapes."""

from __future__ import annotations

import numpy as np
import pytest

from stanadapt.model.variables import variables


def shapes(names):
    return {name: variable.shape for name, variable in variables(names).items()}


def test_order_and_shapes():
    names = ["mu", "theta.1", "theta.2", "m.1.1", "m.2.1", "m.1.2", "m.2.2", "m.1.3", "m.2.3"]
    assert shapes(names) == {"mu": (), "theta": (2,), "m": (2, 3)}
    assert list(variables(names)) == ["mu", "theta", "m"]


@pytest.mark.parametrize("head", [(), (4,), (2, 5)])
@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 3, 4)])
def test_entries_are_where_their_names_say(shape, head):
    # Stan writes the first index fastest; the value of entry [i, j] is what its digits say.
    indices = [index[::-1] for index in np.ndindex(*shape[::-1])]
    names = ["a", *["x." + ".".join(str(i + 1) for i in index) for index in indices], "b"]
    row = np.array([-1.0, *[float("".join(str(i) for i in index)) for index in indices], -2.0])
    values = np.broadcast_to(row, (*head, row.size))
    taken = variables(names)["x"].take(values)
    assert taken.shape == (*head, *shape)
    for index in np.ndindex(*shape):
        assert np.all(taken[(..., *index)] == float("".join(str(i) for i in index)))


def test_values_are_views():
    values = np.arange(24.0).reshape(2, 12)
    names = ["s", *[f"m.{i}.{j}" for j in (1, 2, 3) for i in (1, 2)], *[f"v.{i}" for i in range(1, 6)]]
    for variable in variables(names).values():
        assert np.shares_memory(variable.take(values), values)


def test_entries_in_another_order_are_put_right():
    names = ["m.1.1", "m.1.2", "m.2.1", "m.2.2"]
    np.testing.assert_array_equal(variables(names)["m"].take(np.arange(4.0)), [[0.0, 1.0], [2.0, 3.0]])


def test_complex_numbers_have_a_last_axis_of_two():
    names = ["z.real", "z.imag", "v.1.real", "v.1.imag", "v.2.real", "v.2.imag"]
    assert shapes(names) == {"z": (2,), "v": (2, 2)}
    taken = variables(names)["v"].take(np.arange(6.0))
    np.testing.assert_array_equal(taken, [[2.0, 3.0], [4.0, 5.0]])


def test_members_of_tuples_are_variables():
    assert shapes(["t:1", "t:2.1", "t:2.2"]) == {"t:1": (), "t:2": (2,)}
    assert shapes(["t:1:1", "t:1:2.1", "t:1:2.2"]) == {"t:1:1": (), "t:1:2": (2,)}
    # In an array of tuples every element is one, because members may differ in shape.
    assert shapes(["t.1:1", "t.1:2.1", "t.2:1", "t.2:2.1"]) == {
        "t.1:1": (),
        "t.1:2": (1,),
        "t.2:1": (),
        "t.2:2": (1,),
    }
    assert shapes(["t:1.real", "t:1.imag"]) == {"t:1": (2,)}


def test_names_with_underscores_and_digits():
    assert shapes(["x_1", "x1.1", "x__.1.1"]) == {"x_1": (), "x1": (1,), "x__": (1, 1)}


@pytest.mark.parametrize(
    "names", [["b.2", "c"], ["b", "b.1"], ["b.1", "b.1.1"], ["b.0", "b.1"], ["b.1", "b.3"]]
)
def test_indices_of_no_array_leave_names_as_they_are(names):
    assert shapes(names) == dict.fromkeys(names, ())
    taken = [variable.take(np.arange(2.0)) for variable in variables(names).values()]
    np.testing.assert_array_equal(taken, [0.0, 1.0])


def test_nothing():
    assert variables([]) == {}
