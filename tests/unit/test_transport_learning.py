"""What a map learns of hierarchies from exact draws of known laws, and what it leaves alone."""

from __future__ import annotations

import numpy as np
import pytest

from cases import thorough
from stanadapt.transport import learning
from stanadapt.transport.bend import bends_of
from stanadapt.transport.composition import is_map, transport_draws
from stanadapt.transport.grouping.fit import _solve_place
from stanadapt.transport.grouping.groups import (
    Group,
    ScoredDraws,
    View,
    divergence,
    group_rows,
    groups_of,
    pull_draws,
    same_law,
)
from stanadapt.transport.learning import learn_funnel, learn_transport
from stanadapt.transport.map_table import OWN, UNIT, no_transport
from stanadapt.transport.shape import divergence_of_all

M = 12  # members of a group


def weights(eta: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-2.0 * (eta[:, None] - thresholds)))


def normal_score(x: np.ndarray, mean: np.ndarray | float, sd: np.ndarray | float) -> np.ndarray:
    return -(x - mean) / np.square(sd)


def hierarchy(
    n: int,
    seed: int,
    *,
    beta: float = 1.0,
    centred: bool = True,
    located: bool = True,
    thresholds: object = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Draws and scores of (u, p, v, x_1 ... x_M), with the thresholds and y; v is independent.

    Given u and p, x has the prior N(p, e^(2 beta u)) and the likelihood N(y, e^(2 a)). Unless `centred`, the
    coordinate is (x - p) e^(-beta u) instead of x.
    """
    rng = np.random.default_rng(seed)
    u, p, v = (
        rng.normal(0.0, 0.8 / abs(beta), n),
        rng.normal(0.0, 1.0 if located else 1e-9, n),
        rng.normal(size=n),
    )
    a = rng.normal(0.3, 0.4, M) if thresholds is None else np.broadcast_to(thresholds, M)
    y = rng.normal(0.0, 1.5, M)
    z = rng.normal(size=(n, M))

    def log_density(u: np.ndarray, p: np.ndarray, x: np.ndarray) -> np.ndarray:
        eta = (beta if centred else -beta) * u
        w = weights(eta, a if centred else -a)
        place, scale = means(w, p)
        scale_u = 0.8 / abs(beta)
        logs = -0.5 * np.square((x - place) / scale) - np.log(scale)
        return logs.sum(axis=1) - 0.5 * np.square(u / scale_u) - 0.5 * np.square(p)

    def means(w: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        at = p[:, None] if located else 0.0 * p[:, None]
        if centred:
            return (1.0 - w) * at + w * y, np.exp(a) * np.sqrt(w)
        return np.sqrt(w * (1.0 - w)) * np.exp(-a) * (y - at), np.sqrt(w)

    place, scale = means(weights((beta if centred else -beta) * u, a if centred else -a), p)
    x = place + scale * z
    h = 1e-5
    score_u = (log_density(u + h, p, x) - log_density(u - h, p, x)) / (2 * h)
    score_p = (log_density(u, p + h, x) - log_density(u, p - h, x)) / (2 * h)
    points = np.column_stack((u, p, v, x))
    scores = np.column_stack((score_u, score_p, -v, normal_score(x, place, scale)))
    return points, scores, a, y


GROUPS = np.array([0, 1, 2] + [3] * M)


def learn(points: np.ndarray, scores: np.ndarray, groups: np.ndarray = GROUPS) -> list[Group]:
    return groups_of(learn_transport(no_transport(), points, scores, groups, 0))


@pytest.mark.parametrize("beta", [1.0, 0.5])
@pytest.mark.parametrize("seed", range(5))
def test_a_centred_hierarchy_is_found_with_its_numbers(seed: int, beta: float) -> None:
    points, scores, a, y = hierarchy(400, seed, beta=beta)
    (group,) = learn(points, scores)
    assert (group.members.tolist(), group.scales.tolist()) == (list(range(3, 3 + M)), [0])
    assert (group.beta, group.locations.tolist(), group.slope) == (beta, [1], 1.0)
    np.testing.assert_allclose(group.thresholds, a, atol=0.5)
    np.testing.assert_allclose(group.data, y, atol=4.0 * np.exp(a.max()) / 20.0 * 2.0)
    z, scores_z = transport_draws(group_rows([group], points), points, scores)
    cov = np.cov(np.column_stack((z, scores_z)).T)
    d = len(points[0])
    np.testing.assert_allclose(np.diag(cov)[:d] * np.diag(cov)[d:], 1.0, atol=0.4)


@pytest.mark.parametrize("seed", range(5))
def test_a_hierarchy_that_is_not_centred_is_found(seed: int) -> None:
    """The data are so precise that the centred program would be the better one."""
    points, scores, *_ = hierarchy(400, seed, centred=False, thresholds=-1.5)
    (group,) = learn(points, scores)
    assert (group.scales.tolist(), group.beta, group.locations.tolist()) == ([0], -1.0, [1])
    assert group.slope == pytest.approx(-1.0, abs=0.3)
    np.testing.assert_allclose(group.thresholds, 1.5, atol=0.6)


@pytest.mark.parametrize(("slope", "offset"), [(0.0, 2.5), (3.0, -2.0)])
def test_a_location_with_an_offset(slope: float, offset: float) -> None:
    """The prior mean is 2.5, or 3 p - 2; without the offset a map would not reach the neck."""
    points, scores, *_ = hierarchy(250, 2, thresholds=40.0, located=False)
    p = np.random.default_rng(1).normal(size=len(points))
    points[:, 1], scores[:, 1] = p, -p - slope * scores[:, 3:].sum(axis=1)
    points[:, 3:] += (slope * p + offset)[:, None]
    (group,) = learn(points, scores)
    assert group.offset == pytest.approx(offset, abs=0.02)
    assert (group.locations.tolist(), group.slope) == (([1], slope) if slope else ([-1], 0.0))


def test_half_of_a_hierarchy_tells_all_of_it() -> None:
    """A map learned outside of the neck is right in the neck, because the model has the same law there."""
    points, scores, *_ = hierarchy(2_000, 1, thresholds=40.0, located=False)
    seen = points[:, 0] > 0.0
    (group,) = learn(points[seen][:200], scores[seen][:200])
    z, scores_z = transport_draws(group_rows([group], points), points, scores)
    members = slice(3, None)
    np.testing.assert_allclose(z[~seen, members].std(axis=0) / z[seen, members].std(axis=0), 1.0, atol=0.15)
    np.testing.assert_allclose(scores_z[:, 0], -points[:, 0] / 0.64, atol=1e-3)


def test_a_pure_funnel_has_no_knee() -> None:
    for seed in range(20):
        points, scores, *_ = hierarchy(120, seed, thresholds=40.0, located=False)
        (group,) = learn(points, scores)
        assert np.all(group.thresholds > points[:, 0].max() + 3.0)


@pytest.mark.parametrize("seed", range(5))
def test_without_names_the_group_is_found_in_the_draws(seed: int) -> None:
    points, scores, *_ = hierarchy(250, seed, thresholds=40.0, located=False)
    pairs = learn(points, scores, np.zeros(3 + M, np.int64))
    assert [group.scales.tolist() for group in pairs][:1] == [[0]]
    assert set(range(3, 3 + M)) == {int(i) for group in pairs for i in group.members}


def horseshoe(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log scales u_0, u_1 ... u_M and x_i ~ N(0, e^(2 (u_0 + u_i)))."""
    rng = np.random.default_rng(seed)
    u, own, z = rng.normal(0.0, 0.7, n), rng.normal(0.0, 0.8, (n, M)), rng.normal(size=(n, M))
    scale = np.exp(u[:, None] + own)
    x = scale * z
    pulls = np.square(z) - 1.0
    points = np.column_stack((u, rng.normal(size=n), own, x))
    scores = np.column_stack((-u / 0.49 + pulls.sum(axis=1), -points[:, 1], -own / 0.64 + pulls, -z / scale))
    return points, scores, np.array([0, 1] + [2] * M + [3] * M)


@pytest.mark.parametrize("seed", range(5))
def test_own_heads_and_a_second_one(seed: int) -> None:
    points, scores, groups = horseshoe(300, seed)
    table = no_transport()
    for _ in range(3):  # windows
        table = learn_transport(table, points, scores, groups, 100)
    (group,) = groups_of(table)
    assert group.members.tolist() == list(range(2 + M, 2 + 2 * M))
    if len(group.scales) > 1:
        assert (group.scales.tolist(), group.beta) == (list(range(2, 2 + M)), 1.0)
        assert (group.second, group.beta_2) == (0, 1.0)
    z, scores_z = transport_draws(table, points, scores)
    members = slice(2 + M, None)
    before = (points.var(axis=0) * scores.var(axis=0))[members]
    after = (z.var(axis=0) * scores_z.var(axis=0))[members]
    assert np.all(after < 2.0)
    assert np.median(before) > 10.0


PARENTS = np.tile(np.arange(6), 5)


def two_levels(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log scales u and v, p, mu_j ~ N(p, e^(2v)) and x_i ~ N(mu_j, e^(2u)), where j is the parent of i."""
    rng = np.random.default_rng(seed)
    u, v, p = 0.8 * rng.normal(size=(3, n))
    z, z_mu = rng.normal(size=(n, len(PARENTS))), rng.normal(size=(n, 6))
    mu = p[:, None] + np.exp(v)[:, None] * z_mu
    x = mu[:, PARENTS] + np.exp(u)[:, None] * z
    s, prior = -z * np.exp(-u)[:, None], -z_mu * np.exp(-v)[:, None]
    s_mu = prior - np.array([s[:, j == PARENTS].sum(axis=1) for j in range(6)]).T
    s_u = -u / 0.64 + (np.square(z) - 1.0).sum(axis=1)
    s_v = -v / 0.64 + (np.square(z_mu) - 1.0).sum(axis=1)
    points = np.column_stack((u, v, p, mu, x))
    scores = np.column_stack((s_u, s_v, -p / 0.64 - prior.sum(axis=1), s_mu, s))
    return points, scores, np.repeat(np.arange(5), [1, 1, 1, 6, len(PARENTS)])


@pytest.mark.parametrize("seed", range(5))
def test_two_levels_are_found_with_the_location_of_each_member(seed: int) -> None:
    """The upper level comes first in the map, even if it is found last; with both, all is normal."""
    points, scores, groups = two_levels(300, seed)
    upper, lower = learn(points, scores, groups)
    assert (upper.members.tolist(), upper.scales.tolist()) == (list(range(3, 9)), [1])
    assert (upper.locations.tolist(), upper.slope) == ([2], 1.0)
    assert (lower.members.tolist(), lower.scales.tolist()) == (list(range(9, 39)), [0])
    np.testing.assert_array_equal(lower.locations, 3 + PARENTS)
    assert lower.slope == 1.0
    z, scores_z = transport_draws(group_rows([upper, lower], points), points, scores)
    assert np.abs(np.log(z.var(axis=0) * scores_z.var(axis=0))).max() < 0.7


@pytest.mark.parametrize("seed", range(3))
def test_pairs_are_undone_as_the_map_undoes_them(seed: int) -> None:
    """`pull_draws` gives the same draws as the map, except for units."""
    for points, scores, groups in (two_levels(200, seed), horseshoe(200, seed)):
        pairs = learn(points, scores, groups)
        table = group_rows(pairs, points)
        pulled, (z, scores_z) = (
            pull_draws(ScoredDraws(points, scores), pairs),
            transport_draws(table, points, scores),
        )
        unit = np.ones(points.shape[1])
        unit[table[:, OWN].astype(int)] = table[:, UNIT]
        np.testing.assert_allclose(pulled.points, z * unit, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(pulled.scores, scores_z / unit, rtol=1e-8, atol=1e-8)


def light(kind: str, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws and scores of a law without scales that vary."""
    rng = np.random.default_rng(seed)
    d = 3 + M
    if kind == "normal":
        x = rng.normal(size=(n, d))
        return x, -x
    if kind == "correlated":
        root = np.linalg.cholesky(0.95 + 0.05 * np.eye(d))
        x = rng.normal(size=(n, d)) @ root.T
        return x, -np.linalg.solve(root @ root.T, x.T).T
    if kind == "skewed":
        x = np.log(rng.gamma(3.0, size=(n, d)))
        return x, 3.0 - np.exp(x)
    x = rng.standard_t(6.0, size=(n, d))
    return x, -7.0 * x / (6.0 + x**2)


@pytest.mark.parametrize("kind", ["normal", "correlated", "skewed", "t"])
@pytest.mark.parametrize("n", [45, thorough(100), thorough(250)])
def test_what_is_no_hierarchy_is_left_alone(kind: str, n: int) -> None:
    """With and without names of variables, at most two of a hundred windows find something."""
    found = 0
    for seed in range(50):
        points, scores = light(kind, n, seed)
        for groups in (GROUPS, np.zeros(3 + M, np.int64)):
            found += len(learn(points, scores, groups)) > 0
    assert found <= 2


def test_a_pair_that_serves_stays_and_one_that_does_not_goes() -> None:
    points, scores, *_ = hierarchy(300, 3)
    table = learn_transport(no_transport(), points, scores, GROUPS, 150)
    again = learn_transport(table, points, scores, GROUPS, 150)
    assert len(table) == M
    np.testing.assert_array_equal(again, table)
    wrong = groups_of(table)[0]._replace(scales=np.array([2]))
    judged = learn_transport(group_rows([wrong], points), points, scores, GROUPS, 150)
    assert same_law(judged, table)


def test_a_pair_goes_where_draws_have_become_normal() -> None:
    points, scores, *_ = hierarchy(300, 3)
    group = groups_of(learn_transport(no_transport(), points, scores, GROUPS, 150))[0]
    normal = np.random.default_rng(1).normal(size=points.shape)
    assert not len(learn_transport(group_rows([group], normal), normal, -normal, GROUPS, 150, new=False))


@pytest.mark.parametrize("seed", range(3))
def test_the_newer_half_of_the_draws_must_bear_a_pair_out(seed: int) -> None:
    """Only the older half is a funnel; all draws together would still show one."""
    points, scores, *_ = hierarchy(200, seed, thresholds=40.0, located=False)
    assert learn(points, scores)
    rng = np.random.default_rng(seed)
    points[100:, 3:] = rng.normal(size=(100, M))
    scores[100:, 3:] = -points[100:, 3:]
    scores[100:, 0] = -points[100:, 0] / 0.64
    assert not learn(points, scores)


def test_the_last_window_adds_nothing() -> None:
    points, scores, *_ = hierarchy(300, 4)
    assert not len(learn_transport(no_transport(), points, scores, GROUPS, 150, new=False))


def test_few_draws_and_draws_that_are_not_finite_teach_nothing() -> None:
    points, scores, *_ = hierarchy(60, 5)
    assert not len(learn_transport(no_transport(), points[:44], scores[:44], GROUPS, 0))
    scores[3, 3] = np.inf
    assert not len(learn_transport(no_transport(), points, scores, GROUPS, 0))


@pytest.mark.parametrize("scale", [0.0, 1e-200, 1e6, 1e100])
def test_draws_of_a_chain_that_is_on_its_way_do_no_harm(scale: float) -> None:
    """Some coordinates stand still, run off or nearly overflow, while others move as usual."""
    rng = np.random.default_rng(7)
    points, scores, *_ = hierarchy(120, 7)
    for place in (0, 1, 5):
        far, pulls = points.copy(), scores.copy()
        far[:, place] = scale * np.arange(120.0)
        pulls[:, place] = rng.normal(size=120)
        for groups in (GROUPS, np.zeros(3 + M, np.int64)):
            table = learn_transport(no_transport(), far, pulls, groups, 60)
            assert np.isfinite(table[:, 2]).all()


def test_divergence_is_that_of_the_transported_draws() -> None:
    points, scores, *_ = hierarchy(200, 6)
    (group,) = learn(points, scores)
    z, scores_z = transport_draws(group_rows([group], points), points, scores)
    spread = z.var(axis=0) * scores_z.var(axis=0)
    wanted = 0.5 * np.log(spread[group.members]).sum() + 0.5 * np.log1p(spread[[0, 1]]).sum()
    assert divergence(ScoredDraws(points, scores), group) == pytest.approx(wanted, rel=1e-8)


def test_a_funnel_that_is_learnt_before_chains_start_needs_all_parts_of_a_map() -> None:
    """It compiles all that learning calls: its scale has a bend, and its members have a location."""
    table = learn_funnel()
    assert [one.place for one in bends_of(table)] == [0]
    (group,) = groups_of(table)
    assert (group.scales.tolist(), group.locations.tolist()) == ([0], [1])
    assert group.members.tolist() == [2, 3, 4, 5, 6, 7]
    assert table is learn_funnel()


@pytest.mark.parametrize("groups", [GROUPS, np.zeros(3 + M, np.int64)], ids=["named", "one variable"])
def test_what_is_plain_teaches_nothing(groups: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """`_is_plain` holds for most normal draws, and never where the whole search finds a map."""
    plain, rng = [], np.random.default_rng(8)
    for n in (60, 150, 400):
        for strength in (0.0, 0.0, 0.3, 0.6, 1.0):
            points = rng.normal(size=(n, 3 + M))
            scores = -points.copy()
            scale = np.exp(strength * points[:, :1])
            scores[:, 0] += strength * (np.square(points[:, 3:]).sum(axis=1) - M)
            points[:, 3:] *= scale
            scores[:, 3:] /= scale
            points[:, 1] = np.sinh(2.0 * strength * points[:, 1])
            scores[:, 1] = (
                -1.5 * points[:, 1] / (1.0 + np.square(points[:, 1])) if strength else -points[:, 1]
            )
            for new in (False, True):
                is_plain = bool(learning._is_plain(points, scores, groups, new))
                with monkeypatch.context() as patch:
                    patch.setattr(learning, "_is_plain", lambda *_: False)
                    found = learn_transport(no_transport(), points, scores, groups, 0, new=new)
                assert not (is_plain and len(found))
                plain.append((strength == 0.0, is_plain))
    assert np.mean([is_plain for normal, is_plain in plain if normal]) > 0.7
    assert not all(is_plain for normal, is_plain in plain if not normal)


@pytest.mark.parametrize("seed", range(5))
def test_a_wrong_location_is_put_right(seed: int) -> None:
    """The first draws may show v as the location, even with p itself moved by the same scale."""
    points, scores, *_ = hierarchy(200, seed, thresholds=6.0)
    (right,) = learn(points, scores)
    wrong = [right._replace(locations=np.array([2]))]
    numbers = np.array([2]), 1.0, 0.0, np.array([6.0]), np.zeros(1)
    for pairs in (wrong, [Group(np.array([1]), right.scales, 1.0, -1, 0.0, *numbers), *wrong]):
        table = group_rows(pairs, points)
        for _ in range(2):  # a group that moves p is judged when p is a location again
            table = learn_transport(table, points, scores, GROUPS, 100)
        (group,) = groups_of(table)
        assert (group.members.tolist(), group.locations.tolist()) == (right.members.tolist(), [1])


@pytest.mark.parametrize(("located", "offset"), [(True, True), (True, False), (False, True)])
def test_draws_that_tell_nothing_of_a_location_leave_it(located: bool, offset: bool) -> None:
    """The thresholds are so far beyond the draws that the prior of no member matters."""
    rng = np.random.default_rng(4)
    x, p = rng.normal(size=(3, 40)), rng.normal(size=(1, 40))
    view = View(x, -x, np.full((1, 40), 40.0), p, True, np.ones(40))
    group = Group(
        np.arange(3), np.array([3]), 1.0, -1, 0.0, np.array([4]), 0.5, 0.25, np.zeros(3), x.mean(axis=1)
    )
    slope, shift = _solve_place(view, group, located, offset)
    assert slope == (0.5 if located else 0.0)
    assert shift == (0.25 if offset else 0.0)


@pytest.mark.parametrize("start", [0.0, 50.0])
def test_few_draws_of_a_correlated_normal_law_have_no_divergence(start: float) -> None:
    rng = np.random.default_rng(3)
    root = rng.normal(size=(5, 5))
    points = start + rng.normal(size=(20, 5)) * 3.0  # on their way, far from the law
    assert abs(divergence_of_all(points, -points @ np.linalg.inv(root @ root.T))) < 1e-8


def test_the_divergence_of_independent_laws_adds_up() -> None:
    """For Student's t with nu degrees, V(x) V(s) = nu / (nu - 2) (nu + 1) / (nu + 3)."""
    nu, d, n = 9.0, 3, 400_000
    x = np.random.default_rng(4).standard_t(nu, (n, d))
    expected = 0.5 * d * np.log(nu / (nu - 2.0) * (nu + 1.0) / (nu + 3.0))
    np.testing.assert_allclose(divergence_of_all(x, -(nu + 1.0) * x / (nu + x * x)), expected, rtol=0.05)


def test_no_law_is_looked_for_where_a_metric_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bool:
        raise AssertionError("it is plain already")

    monkeypatch.setattr(learning, "_is_plain", refuse)
    x = np.random.default_rng(5).normal(size=(100, 4))
    variables = np.array([0, 1, 2, 2])
    assert not len(learn_transport(no_transport(), x, -x, variables, 40))
    with pytest.raises(AssertionError, match="plain"):
        learn_transport(no_transport(), x, -np.sinh(x), variables, 40)


def test_a_variable_whose_only_neighbour_is_larger_has_no_location() -> None:
    """Members have locations among variables that are no larger than theirs, and here there are none."""
    rng, n = np.random.default_rng(1), 300
    wide = np.exp(0.8 * rng.normal(size=(n, 1)))
    points = wide * rng.normal(size=(n, 7))
    table = learn_transport(no_transport(), points, -points / wide**2, np.repeat([0, 1], [3, 4]), n // 2)
    assert is_map(table, 7)
