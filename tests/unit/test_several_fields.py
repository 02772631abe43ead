"""Series with heads of their own: which coordinates each of them has, and what is learned for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from test_correlated_effects import ProgramDensity

from densities import in_maps
from stanadapt.transport.field_table import bends_of_heads, fields_of, split
from stanadapt.transport.fields import several
from stanadapt.transport.fields.field_learning import learn_field
from stanadapt.transport.fields.learned_law import Learned
from stanadapt.transport.fields.precision import Precision
from stanadapt.transport.fields.probes import ScaledDensity, couple
from stanadapt.transport.fields.several import Part, find_parts

SERIES, LENGTH = 5, 24
PANEL = """
data {{ int T; int K; matrix[T, K] y; }}
parameters {{ {declared} vector[K] log_s; matrix[T, K] x; }}
model {{
  {priors}
  for (k in 1:K) {{
    x[1, k] ~ normal(0, 2); x[2:T, k] ~ normal(x[1:T-1, k], exp(log_s[k]));
    y[, k] ~ normal({mean}, {noise});
  }}
}}
"""


def panel(**parts: str) -> str:
    plain = {"declared": "", "priors": "log_s ~ std_normal();", "mean": "x[, k]", "noise": "0.5"}
    return PANEL.format(**(plain | parts))


def parts_of(program: str, series: int = SERIES) -> tuple[list[Part], list[str]]:
    density, names, variables, x = begin(program, series)
    scaled = ScaledDensity(density, np.full(x.size, 0.5))
    coupling = couple(scaled, x / 0.5, variables)
    assert coupling is not None
    return find_parts(scaled, coupling, x / 0.5, variables), names


def begin(program: str, series: int, length: int = LENGTH) -> tuple[Any, list[str], np.ndarray, np.ndarray]:
    """The density, the names of the coordinates, their variables, and a point that may be a draw."""
    rng = np.random.default_rng(3)
    walks = np.cumsum(rng.normal(size=(length, series)), axis=0)
    y = walks + 0.5 * rng.normal(size=(length, series))
    density = ProgramDensity(program, {"T": length, "K": series, "y": y.tolist()})
    names = list(density.model.unconstrained_names())
    variables = np.unique([name.partition(".")[0] for name in names], return_inverse=True)[1]
    x = np.zeros(len(names))
    x[-y.size :] = walks.ravel(order="F")
    return density, names, variables, x


def learn(program: str) -> tuple[Learned, Any, list[str]]:
    density, names, variables, x = begin(program, SERIES)
    learned, _ = learn_field(in_maps(density), x, np.full(x.size, 0.5), variables)
    assert learned is not None
    return learned, density, names


def heads_of(part: Part, names: list[str]) -> list[str]:
    return [names[i] for i in part.places[part.heads]]


def test_each_series_has_its_latents_and_its_scale() -> None:
    parts, names = parts_of(panel())
    assert len(parts) == SERIES
    for k, part in enumerate(parts, 1):
        assert {names[i] for i in part.places} == {
            f"log_s.{k}",
            *(f"x.{t}.{k}" for t in range(1, LENGTH + 1)),
        }
        assert heads_of(part, names) == [f"log_s.{k}"]
        assert part.alone


def test_few_heads_need_no_parts() -> None:
    """One field does for four heads: the same model with four series, or one scale."""
    assert not parts_of(panel(), series=4)[0]
    one = panel().replace("vector[K] log_s", "real log_s").replace("log_s[k]", "log_s")
    assert not parts_of(one)[0]


def test_a_head_of_all_series_is_one_of_each() -> None:
    parts, names = parts_of(panel(declared="real u;", priors="u ~ std_normal();", noise="exp(u)"))
    assert [heads_of(part, names) for part in parts] == [["u", f"log_s.{k}"] for k in range(1, SERIES + 1)]
    assert not any(part.alone for part in parts)


NOISE_OF_ALL = panel(declared="real u;", priors="u ~ std_normal();", noise="exp(u)")


@pytest.mark.parametrize(("series", "left", "reach"), [(SERIES, 0.2, 0.0), (10, 0.2, 1.2), (10, 0.5, 0.0)])
def test_what_many_series_tell_of_a_shared_head_is_loosened_where_it_is_much(
    monkeypatch: pytest.MonkeyPatch, series: int, left: float, reach: float
) -> None:
    """In the density of each, with its latents in place, so much is kept that the head reaches as far."""
    monkeypatch.setattr(several, "_left_to_followers", lambda *_: left)
    density, names, _, x = begin(NOISE_OF_ALL, series)
    parts, _ = parts_of(NOISE_OF_ALL, series)
    part, u = parts[-1], names.index("u")
    here, there = x / 0.5, x / 0.5
    there[u] += 0.8
    (logp, _), (moved, slope) = (part.density(point[part.places]) for point in (here, there))
    score = np.empty(x.size)
    whole = -density(here * 0.5, score)
    whole += density(there * 0.5, score)
    held = 1.0 / series + (reach**-2 - 1.0 / series) * left if reach else 1.0
    assert np.isclose(moved - logp, held * whole)
    assert np.isclose(slope[part.places == u][0], held * 0.5 * score[u])
    there[part.places[0]] += 0.3  # of the latents, of which nothing is taken
    _, with_latents = part.density(there[part.places])
    density(there * 0.5, score)
    assert np.allclose(with_latents[part.places != u], 0.5 * score[part.places[part.places != u]])


@pytest.mark.parametrize(("u", "found"), [(-0.7, True), (1.5, False)])
def test_it_is_not_where_the_head_is_far_from_its_mode(u: float, found: bool) -> None:
    """What latents leave of the precision of a noise is 0.5 and more in a walk that data know well."""
    density, names, variables, x = begin(NOISE_OF_ALL, 10)
    x[names.index("u")] = u
    scaled = ScaledDensity(density, np.full(x.size, 0.5))
    coupling = couple(scaled, x / 0.5, variables)
    assert coupling is not None
    narrow = np.array([name.startswith("x") for name in names])
    precision = Precision(scaled, coupling, np.flatnonzero(~narrow))
    left = several._left_to_followers(precision, x / 0.5, names.index("u"))
    assert (0.0 < left < 1.0) if found else left == 0.0


@pytest.mark.parametrize(
    ("heights", "left"),
    [((-0.1, 0.0, -0.1), 0.2), ((0.2, 0.0, -0.2), 0.05), ((0.7, 0.0, -0.7), 0.0), ((None, 0.0, -0.1), 0.0)],
)
def test_what_is_left_of_the_precision_where_latents_follow(
    monkeypatch: pytest.MonkeyPatch, heights: tuple[float | None, ...], left: float
) -> None:
    """By heights at the head's place, and at the standard deviation on each side that it has if they stay."""
    by_place = dict(zip((-0.5, 0.0, 0.5), heights, strict=True))
    density = SimpleNamespace(curvature=lambda x, move: 4.0 * move)

    def mode(_: Any, x: np.ndarray) -> SimpleNamespace | None:
        height = by_place[float(x[1])]
        return None if height is None else SimpleNamespace(x=x, logp=height)

    monkeypatch.setattr(several, "find_mode", mode)
    precision: Any = SimpleNamespace(density=density)
    assert np.isclose(several._left_to_followers(precision, np.zeros(3), 1), left)


def test_a_location_of_all_series_has_no_part() -> None:
    """A latent has one law, so it cannot be one of several series."""
    parts, names = parts_of(panel(declared="real m;", priors="m ~ std_normal();", mean="m + x[, k]"))
    assert len(parts) == SERIES
    assert not any(names.index("m") in part.places for part in parts)


def test_a_location_with_a_law_of_its_own_is_a_head() -> None:
    """Its prior may change with parameters that no part has; one without such a law is a latent."""
    declared, mean = "real<lower=0> t; vector[K] m;", "m[k] + x[, k]"
    free = panel(declared=declared, priors="t ~ std_normal(); m ~ std_normal();", mean=mean)
    parts, names = parts_of(free)
    assert heads_of(parts[0], names) == ["log_s.1"]
    assert names.index("m.1") in parts[0].places
    assert parts[0].alone
    parts, names = parts_of(free.replace("m ~ std_normal()", "m ~ normal(0, t)"))
    assert heads_of(parts[0], names) == ["m.1", "log_s.1"]
    assert not parts[0].alone
    parts, names = parts_of(panel(declared="real a;", priors="log_s ~ normal(a, 1);"))
    assert heads_of(parts[0], names) == ["log_s.1"]
    assert not parts[0].alone


def test_heads_are_looked_at_where_their_own_law_holds_them_least() -> None:
    """A search may begin while the scale of the heads is small, and draws come much farther later."""
    program = panel(declared="real v;", priors="v ~ std_normal(); log_s ~ normal(0, exp(v));", noise="1")
    density, names, variables, x = begin(program, SERIES)
    x[names.index("v")] = -3.0
    learned, _ = learn_field(in_maps(density), x, np.full(x.size, 0.5), variables)
    assert learned is not None
    laws, _ = fields_of(split(learned.rows)[0])
    assert len(laws) == SERIES
    assert all(law.scale[0] > 0.1 for law in laws)  # where they are held, it is 0.05


def test_a_constraint_on_the_sum_of_all_ties_them() -> None:
    program = panel(priors="log_s ~ std_normal(); sum(x) ~ normal(0, 0.01);")
    assert not parts_of(program)[0]


def test_all_latents_are_normal_in_the_coordinates_of_their_fields() -> None:
    """Where the heads move, and with the gradient that the fields pass on to the head of all series."""
    program = panel(declared="real u;", priors="u ~ std_normal(); log_s ~ std_normal();", noise="exp(u)")
    learned, density, names = learn(program)
    laws, of_heads = fields_of(split(learned.rows)[0])
    assert len(laws) == SERIES
    assert not of_heads
    heads = [0, *range(1, 1 + SERIES)]
    assert {names[i] for i in np.unique(np.concatenate([law.heads for law in laws]))} == {
        names[i] for i in heads
    }
    moved, rng = in_maps(density)(learned.rows), np.random.default_rng(8)
    for move in (-0.5, 0.0, 0.5):
        z, score = rng.normal(size=len(names)), np.empty(len(names))
        for law in laws:
            z[law.heads] = law.mid + move
        assert np.isfinite(moved(z, score))
        assert np.sqrt(np.mean(np.square(score + z)[len(heads) :])) < 0.3
    assert learned.scale[heads] == pytest.approx(np.full(len(heads), 0.2), rel=1.0)
    np.testing.assert_array_equal(learned.scale[len(heads) :], 1.0)
    assert not learned.directions[:, 0].any()


@pytest.mark.parametrize(("length", "found"), [(6, True), (3, False)])
def test_short_series_are_one_field_if_there_are_many(length: int, found: bool) -> None:
    """Pairs and triples may be effects of groups, which have another law."""
    program = panel().replace("vector[K] log_s", "real log_s").replace("log_s[k]", "log_s")
    density, _, variables, x = begin(program, 12, length)
    learned, _ = learn_field(in_maps(density), x, np.full(x.size, 0.5), variables)
    assert (learned is not None) == found
    if learned is not None:
        ((law,), _) = fields_of(split(learned.rows)[0])
        np.testing.assert_array_equal(np.sort(law.own), np.arange(1, 1 + 12 * length))
        np.testing.assert_array_equal(law.heads, [0])


def test_the_law_of_heads_is_learned_where_they_depend_on_nothing_else() -> None:
    """A bend or a law of a head would be that of the search's place, where a mean of all moves it."""
    bends = []
    for priors in ("log_s ~ normal(-1, 2);", "log_s ~ normal(a, 2);"):
        program = panel(declared="real a;", priors=f"a ~ std_normal(); {priors}", noise="5")
        rows = split(learn(program)[0].rows)[0]
        assert len(fields_of(rows)[0]) == SERIES
        bends.append(len(bends_of_heads(rows)))
    assert bends[0] > 0
    assert bends[1] == 0
