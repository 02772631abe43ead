"""The coordinates that chains have learnt, in words."""

from __future__ import annotations

import numpy as np

from stanadapt.result.coordinates import coordinates_text

NAMES = ["theta.1", "theta.2", "theta.3", "lambda.1", "lambda.2", "lambda.3", "mu", "tau"]


def chain(
    heads: list[int], locations: list[int], bends: dict[int, float] | None = None
) -> dict[str, np.ndarray]:
    """What a chain has learnt that moves the first coordinates; the first of them stay as they are."""
    rest = len(NAMES) - len(heads)
    bend = np.zeros(len(NAMES))
    for place, strength in (bends or {}).items():
        bend[place] = strength
    return {
        "scale_head": np.array(heads + [-1] * rest),
        "scale_location": np.array(locations + [-1] * rest),
        "data_weight": np.concatenate(([0.9], np.full(len(heads) - 1, 0.1), np.full(rest, np.nan)))
        if heads
        else np.full(rest, np.nan),
        "bend": bend,
    }


def test_a_shared_head_and_location() -> None:
    text = coordinates_text([chain([7, 7, 7], [6, 6, 6])] * 2, NAMES)
    assert text == "theta with the scale of tau around mu: 2 of 3 as in a program that is not centred"


def test_heads_of_their_own_go_by_the_name_of_their_variable() -> None:
    text = coordinates_text([chain([3, 4, 5], [-1, -1, -1])], NAMES)
    assert text == "theta with the scale of lambda: 2 of 3 as in a program that is not centred"


def test_locations_of_their_own_go_by_the_name_of_their_variable() -> None:
    text = coordinates_text([chain([7, 7, 7], [3, 4, 4])], NAMES)
    assert text == "theta with the scale of tau around lambda: 2 of 3 as in a program that is not centred"


def test_locations_that_are_scaled_are_told_with_what_they_are_added_to() -> None:
    learnt = chain([7, 7, 7], [6, 6, 6]) | {"scale_part": np.array([3, 4, 4, -1, -1, -1, -1, -1])}
    text = coordinates_text([learnt], NAMES)
    assert text.startswith("theta with the scale of tau around mu + lambda times its scale: ")


def test_bends_are_told_by_their_side() -> None:
    left = dict.fromkeys((0, 1, 2, 3, 7), -1.0)
    text = coordinates_text([chain([], [], left | {6: 2.0})], NAMES)
    assert text == (
        "the long left tail of theta.1, theta.2, theta.3 and 2 others made normal; "
        "the long right tail of mu made normal"
    )


def test_chains_that_differ_are_counted() -> None:
    chains = [chain([], [], {7: -1.0}), chain([], [], {7: -0.5}), chain([], [])]
    assert coordinates_text(chains, NAMES) == "2 of 3 chains: the long left tail of tau made normal"
    assert coordinates_text([chain([], [])] * 3, NAMES) == ""


def field(roles: list[int]) -> dict[str, np.ndarray]:
    """What a chain with a field has learnt, in which the coordinates have these roles."""
    return chain([], []) | {"field_role": np.array(roles)}


def test_a_field_is_told_by_the_variables_of_its_latents_and_by_its_heads() -> None:
    text = coordinates_text([field([1, 1, 1, 1, 1, 1, 2, 2])] * 2, NAMES)
    assert text == "a latent field of 3 theta, 3 lambda whose law depends on mu and tau"
    text = coordinates_text([field([1, 1, 1, 2, 2, 2, 1, 0])], NAMES)
    assert text == "a latent field of 3 theta, mu whose law depends on lambda.1, lambda.2 and lambda.3"


def test_heads_whose_law_depends_on_one_of_them_are_told() -> None:
    root = np.array([-1, -1, -1, -1, -1, -1, 7, -1])
    text = coordinates_text([field([1, 1, 1, 0, 0, 0, 2, 2]) | {"field_root": root}], NAMES)
    assert text == "a latent field of 3 theta whose law depends on mu and tau (mu given tau)"
    root = np.array([-1, -1, -1, -1, 3, -1, -1, 6])
    text = coordinates_text([field([1, 1, 1, 2, 2, 0, 2, 2]) | {"field_root": root}], NAMES)
    heads = "lambda.1, lambda.2, mu and tau"
    laws = "lambda.2 given lambda.1; tau given mu"
    assert text == f"a latent field of 3 theta whose law depends on {heads} ({laws})"


def test_effects_are_told_with_their_scales_and_correlations() -> None:
    effects = np.array([2, 2, 2, 2, 2, 2, 0, 0])
    text = coordinates_text([field([1, 1, 1, 1, 1, 1, 2, 2]) | {"field_effects": effects}], NAMES)
    assert text == "3 theta, 3 lambda: 2 effects of each group, with scales and correlations mu, tau"
    effects = np.array([2, 2, 2, 1, 1, 1, 0, 0])
    more = {"field_effects": effects, "field_entries": np.maximum(effects - 1, 0)}
    text = coordinates_text([field([1, 1, 1, 1, 1, 1, 2, 2]) | more], NAMES)
    both = "3 theta: 2 effects of each group; 3 lambda: 1 effect of each group"
    assert text == f"{both}, with scales and correlations mu, tau"


def test_effects_that_the_data_tie_are_told_beside_groups() -> None:
    effects, entries = np.array([1, 1, 1, 1, 1, 1, 0, 0]), np.array([0, 0, 0, 2, 2, 2, 0, 0])
    more = {"field_effects": effects, "field_entries": entries}
    text = coordinates_text([field([1, 1, 1, 1, 1, 1, 2, 2]) | more], NAMES)
    both = "3 theta: 1 effect of each group; 3 lambda: effects of one scale, which the data tie"
    assert text == f"{both}, with scales and correlations mu, tau"


def test_weights_are_told_beside_coefficients() -> None:
    weights = np.array([1, 1, 1, 0, 0, 0, 2, 0])
    text = coordinates_text([field([1, 1, 1, 2, 2, 2, 1, 2]) | {"field_weights": weights}], NAMES)
    beside = "3 theta: weights, beside the coefficients mu"
    assert (
        text == f"{beside}, with scales and errors that depend on lambda.1, lambda.2, lambda.3 and 1 others"
    )
    weights = np.array([1, 1, 1, 0, 0, 0, 0, 0])
    text = coordinates_text([field([1, 1, 1, 0, 0, 0, 2, 2]) | {"field_weights": weights}], NAMES)
    assert text == "3 theta: weights, with scales and errors that depend on mu, tau"


def test_a_field_without_heads_and_beside_a_bend() -> None:
    text = coordinates_text(
        [field([1, 1, 1, 0, 0, 0, 0, 0]) | {"bend": chain([], [], {7: -1.0})["bend"]}], NAMES
    )
    assert text == "the long left tail of tau made normal; a latent field of 3 theta"


def test_what_has_the_scale_of_errors_is_told() -> None:
    scale = np.array([7, 7, 7, 6, -1, -1, 7, -1])
    text = coordinates_text([chain([], []) | {"error_scale": scale}] * 4, NAMES)
    assert text == "theta, mu on the scale of tau; lambda on the scale of mu"


def ridges(places: dict[int, tuple[int, int]], terms: int = 1) -> dict[str, np.ndarray]:
    """What a chain has learnt in which coordinates have these parents."""
    numbers = np.full((2, len(NAMES)), -1)
    for child, pair in places.items():
        numbers[:, child] = pair
    own = {"ridge_terms": terms * (numbers[0] >= 0), "ridge_parent": numbers[0], "ridge_partner": numbers[1]}
    return chain([], []) | own


def test_ridges_are_told_by_their_parents() -> None:
    text = coordinates_text([ridges({6: (7, 7)})] * 2, NAMES)
    assert text == "mu around the square of tau"
    text = coordinates_text([ridges({0: (6, 7), 1: (6, 7)}, 3)], NAMES)
    assert text == "theta.1, theta.2 around mu times tau and 2 more terms"
    text = coordinates_text([ridges({0: (6, 6), 1: (7, 7), 2: (3, 3), 4: (5, 7)})], NAMES)
    assert text == (
        "3 theta, lambda around squares and products of other parameters, "
        "like theta.1 around the square of mu"
    )


def test_chains_without_a_field_are_counted() -> None:
    roles = [[1, 1, 1, 0, 0, 0, 0, 2]] * 3 + [[0] * 8]
    text = coordinates_text([field(each) for each in roles], NAMES)
    assert text == "3 of 4 chains: a latent field of 3 theta whose law depends on tau"
