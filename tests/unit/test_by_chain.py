"""Findings on one chain that is unlike the others, each provoked by made-up draws of healthy chains."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray
from scipy.signal import lfilter

import stanadapt
from stanadapt.diagnostics.convergence import FEWEST, convergence, sort
from stanadapt.diagnostics.shares import count_tails, find_unlike
from stanadapt.result.container import container

CHAINS, DRAWS = 4, 2000
SETTINGS = json.dumps({"target_accept": 0.8})


def autoregressive(rng, shape, coefficient):
    """Stationary chains of standard normal draws."""
    noise = rng.standard_normal(shape)
    noise[..., 0] /= np.sqrt(1.0 - coefficient**2)
    return lfilter([np.sqrt(1.0 - coefficient**2)], [1.0, -coefficient], noise, axis=-1)


def result(draws=None, *, attrs=None, adaptation=None, **stats):
    """A result of draws {name: (chain, draw, ...)}, by default healthy ones, and statistics (chain, draw)."""
    rng = np.random.default_rng(1)
    if draws is None:
        draws = {"x": rng.standard_normal((CHAINS, DRAWS))}
    shape = next(iter(draws.values())).shape[:2]
    coords = {"chain": np.arange(shape[0]), "draw": np.arange(shape[1])}
    attrs = {"method": "fisher_hmc", "settings": SETTINGS} if attrs is None else attrs
    variables = {
        name: (("chain", "draw", *(f"{name}_{i}" for i in range(values.ndim - 2))), values)
        for name, values in draws.items()
    }
    groups = {"posterior": xarray.Dataset(variables, coords=coords, attrs=attrs)}
    if stats:
        columns = {
            name: (("chain", "draw"), np.broadcast_to(np.asarray(v), shape)) for name, v in stats.items()
        }
        groups["sample_stats"] = xarray.Dataset(columns, coords=coords, attrs=attrs)
    if adaptation is not None:
        groups["adaptation"] = adaptation
    return container(groups, {})


def by_kind(idata):
    found = {}
    for finding in stanadapt.diagnose(idata):
        found.setdefault(finding.kind, []).append(finding)
    return found


def reflected(draws, limit):
    """Draws that are kept from going below a limit, as by a map that ends there."""
    return np.where(draws < limit, 2.0 * limit - draws, draws)


def test_a_chain_that_misses_a_tail_of_one_per_cent():
    """60,000 draws without one under the 1 % quantile of the others: R-hat and sizes say nothing.

    Under the quantile of all chains, which is higher, it has 0.39 % (standard deviation 0.04 %).
    """
    draws = autoregressive(np.random.default_rng(2), (CHAINS, 60_000), 0.5)
    draws[1] = reflected(draws[1], -2.3263)
    found = by_kind(result({"x": draws}))
    assert set(found) == {"tails"}
    (finding,) = found["tails"]
    assert finding.chains == (1,)
    assert finding.variables == ("x",)
    limit = np.sort(draws, axis=None)[draws.size // 100 - 1]
    share, *others = (draws[[1, 0, 2, 3]] <= limit).mean(axis=1)
    assert finding.numbers["quantile"] == 0.01
    assert finding.numbers["share"] == pytest.approx(share)
    assert finding.numbers["others"] == pytest.approx(np.mean(others))
    assert share < 0.006 < 0.0113 < np.mean(others)
    assert finding.numbers["standard_errors"] > 8
    text = f"Chain 1 has {share:.2%} of its draws under the 1% quantile of x, where the others"
    assert finding.text.startswith(text)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("side", [-1, 1])
def test_a_chain_that_hardly_visits_a_tail_of_five_per_cent(seed, side):
    """Its share there is a tenth of what it should be; healthy quantities beside it are not named."""
    rng = np.random.default_rng(seed)
    v = autoregressive(rng, (30, CHAINS, 5000), 0.3).transpose(1, 2, 0)
    out = (v[3, :, 7] < -1.645) & (rng.random(5000) < 0.9)
    v[3, :, 7] = np.where(out, -3.29 - v[3, :, 7], v[3, :, 7])
    v[:, :, 7] *= side
    found = by_kind(result({"v": v}))
    assert set(found) == {"tails"}
    assert [finding.chains for finding in found["tails"]] == [(3,)]
    assert found["tails"][0].variables == ("v[7]",)


def test_the_odd_one_is_named_where_it_alone_has_the_tail():
    draws = autoregressive(np.random.default_rng(3), (CHAINS, 20_000), 0.3)
    draws[[0, 1, 3]] = reflected(draws[[0, 1, 3]], -1.9)
    assert [finding.chains for finding in by_kind(result({"x": draws}))["tails"]] == [(2,)]


def test_two_of_four_that_miss_a_tail_are_named():
    draws = autoregressive(np.random.default_rng(3), (CHAINS, 20_000), 0.3)
    draws[[1, 3]] = reflected(draws[[1, 3]], -1.645)
    assert [finding.chains for finding in by_kind(result({"x": draws}))["tails"]] == [(1,), (3,)]


def test_of_two_chains_both_are_named():
    draws = autoregressive(np.random.default_rng(3), (2, 20_000), 0.3)
    draws[1] = reflected(draws[1], -1.9)
    (finding,) = by_kind(result({"x": draws}))["tails"]
    assert finding.chains == (0, 1)
    assert "where chain 1 has 0.00%" in finding.text


def test_chains_that_r_hat_tells_apart_have_no_second_finding():
    draws = np.random.default_rng(3).standard_normal((CHAINS, DRAWS))
    draws[2] += 3.0
    found = by_kind(result({"x": draws}))
    assert {"r_hat", "apart"} <= set(found)
    assert "tails" not in found


@pytest.mark.parametrize("n", [1, FEWEST, 63, 64, 101, 1001])
def test_hits_are_those_of_numpy(n):
    """Of every chain the draws up to the one that ends the tail, ties included."""
    rng = np.random.default_rng(4)
    x = np.stack([rng.standard_normal((3, n)), rng.poisson(3.0, (3, n)).astype(float)])
    hits = convergence(x).tail_hits
    if n < 64:
        assert not hits.any()
        return
    x = x[..., np.arange(n) != n // 2] if n % 2 else x
    flat = np.sort(x.reshape(2, -1), axis=1)
    places = [max(1, int(p * flat.shape[1])) - 1 for p in (0.01, 0.05)]
    for row in range(2):
        for tail, place in ((0, places[0]), (1, places[1]), (2, -1 - places[1]), (3, -1 - places[0])):
            beyond = x[row] <= flat[row, place] if tail < 2 else x[row] >= flat[row, place]
            np.testing.assert_array_equal(hits[row, tail], beyond.sum(axis=1))


def test_a_tail_that_is_most_of_the_draws_is_none():
    """Of draws that are 1 in 3 % and 0 otherwise, the highest 5 % would be all of them."""
    x = np.where(np.random.default_rng(5).random((1, CHAINS, 1000)) < 0.03, 1.0, 0.0)
    hits = convergence(x).tail_hits[0]
    assert not hits[:3].any()
    np.testing.assert_array_equal(hits[3], (x[0] == 1.0).sum(axis=1))


@pytest.mark.parametrize("length", [1, 5, 20])
def test_the_size_of_clumps(length):
    """Draws that are repeated so many times: the variance of a number of hits is so many times as large."""
    rng = np.random.default_rng(6)
    x = np.repeat(rng.standard_normal((50, CHAINS, 8000 // length)), length, axis=2)
    order, ordered = sort(x.reshape(50, -1))
    _, clumps = count_tails(order, ordered, CHAINS)
    assert length * 0.9 < np.median(clumps[:, 1:3]) < length * 2.0


def test_a_single_long_clump_is_not_taken_for_a_tail():
    """A chain that stays in a tail once, for long, has more draws there than the others by chance alone."""
    draws = np.random.default_rng(7).standard_normal((CHAINS, 1000))
    draws[2, 300:360] = 3.0 + 0.1 * draws[2, 300:360]
    assert "tails" not in by_kind(result({"x": draws}))


@pytest.mark.parametrize("kind", ["normal", "slow", "cauchy", "counts", "rare", "rounded"])
def test_healthy_chains_have_no_finding(kind):
    """200 runs of ten quantities for each kind.

    One run in 10,000 or fewer has such a finding (examples/benchmarks/chains.py), so one in 50 seeds of this
    whole test at most.
    """
    rng, shape = np.random.default_rng(8), (10, CHAINS, 1000)
    for _ in range(200):
        x = {
            "normal": lambda: rng.standard_normal(shape),
            "slow": lambda: autoregressive(rng, shape, 0.8),
            "cauchy": lambda: rng.standard_cauchy(shape),
            "counts": lambda: rng.poisson(2.0, shape).astype(float),
            "rare": lambda: (rng.random(shape) < 0.02).astype(float),
            "rounded": lambda: np.round(rng.standard_normal(shape), 1),
        }[kind]()
        order, ordered = sort(x.reshape(10, -1))
        assert not find_unlike(*count_tails(order, ordered, CHAINS), np.ones(10, bool), 1000)


def test_one_chain_with_another_step_size_and_cost():
    steps = np.full((CHAINS, DRAWS), 2)
    steps[3] = 36
    sizes = np.array([[1.6], [1.7], [1.5], [0.22]])
    (finding,) = by_kind(result(step_size=sizes, n_steps=steps))["uneven"]
    assert finding.chains == (3,)
    assert (
        "its step size is 0.22, and theirs 1.6; an iteration takes it 36 evaluations, and them 2"
        in finding.text
    )
    wanted = {"step_size": 0.22, "others_step_size": 1.6, "n_steps": 36.0, "others_n_steps": 2.0}
    assert finding.numbers == pytest.approx(wanted)
    assert not by_kind(result(step_size=np.array([[1.6], [1.7], [1.5], [0.7]]), n_steps=steps[:1]))


def test_two_chains_with_other_step_sizes():
    found = by_kind(result(step_size=np.array([[1.6], [0.3], [1.5], [0.22]])))["uneven"]
    assert [finding.chains for finding in found] == [(1,), (3,)]
    assert all("theirs 1.55" in finding.text for finding in found)


def learnt(bend, chains=CHAINS):
    """What chains have learnt of two coordinates."""
    return xarray.Dataset(
        {"bend": (("chain", "unconstrained"), np.array(bend))},
        coords={"chain": np.arange(chains), "unconstrained": ["theta.1", "tau"]},
    )


def test_a_chain_without_a_coordinate_that_all_others_have():
    without = learnt([[0.0, -8.0], [0.0, -4.0], [0.0, 0.0], [0.0, -8.0]])
    sizes = np.array([[1.6], [1.7], [0.8], [1.5]])
    (finding,) = by_kind(result(adaptation=without, step_size=sizes))["uneven"]
    assert finding.chains == (2,)
    assert "Chain 2 is unlike the others: it has not learnt the bend of tau, as they have." in finding.text
    assert not by_kind(result(adaptation=without, step_size=np.full((CHAINS, 1), 1.6)))
    other_side = learnt([[0.0, -8.0], [0.0, 4.0], [0.0, 0.0], [0.0, -8.0]])  # the others do not agree
    assert not by_kind(result(adaptation=other_side, step_size=sizes))


def test_of_many_coordinates_their_number_is_said():
    heads, labels = np.full((CHAINS, 7), -1), ["tau", "phi", *(f"theta.{i}" for i in range(1, 6))]
    heads[[0, 1, 3], 1:] = 0
    without = xarray.Dataset(
        {"scale_head": (("chain", "unconstrained"), heads)},
        coords={"chain": np.arange(CHAINS), "unconstrained": labels},
    )
    sizes = np.array([[1.6], [1.7], [0.8], [1.5]])
    (finding,) = by_kind(result(adaptation=without, step_size=sizes))["uneven"]
    assert "it has not learnt what rules the scale of phi and 5 coordinates of theta, as" in finding.text
    assert finding.numbers["coordinates"] == 6


def with_roles(roles):
    """What chains have learnt of a field: 0 is outside of it, 1 a latent and 2 a head."""
    return xarray.Dataset(
        {"field_role": (("chain", "unconstrained"), np.array(roles))},
        coords={"chain": np.arange(CHAINS), "unconstrained": ["h.1", "h.2", "phi", "sigma"]},
    )


def test_a_chain_without_the_latent_field_of_the_others():
    roles, sizes = [[1, 1, 2, 2]] * CHAINS, np.array([[1.6], [1.7], [0.8], [1.5]])
    roles[2] = [0, 0, 0, 0]
    (finding,) = by_kind(result(adaptation=with_roles(roles), step_size=sizes))["uneven"]
    assert "it has not learnt the latent field of 4 coordinates, as they have." in finding.text
    assert finding.numbers["coordinates"] == 1
    roles[0] = [0, 0, 0, 0]  # then the others are not alike
    assert not by_kind(result(adaptation=with_roles(roles), step_size=sizes))


def test_a_chain_whose_field_lacks_a_head():
    roles, sizes = [[1, 1, 2, 2]] * CHAINS, np.array([[1.6], [1.7], [0.8], [1.5]])
    roles[2] = [1, 1, 1, 2]
    (finding,) = by_kind(result(adaptation=with_roles(roles), step_size=sizes))["uneven"]
    assert "it has not learnt how the latent field depends on phi, as they have." in finding.text


def test_a_chain_that_stands_still_in_a_long_run():
    """122 of 5,000 iterations are under the limit for all runs, but no other chain waits for more than 20."""
    accepted = np.ones((CHAINS, 5000), bool)
    accepted[:, 100:120] = False
    accepted[1, 3000:3122] = False
    draws = {"x": np.random.default_rng(9).standard_normal((CHAINS, 5000))}
    (finding,) = by_kind(result(draws, accepted=accepted))["still"]
    assert finding.chains == (1,)
    assert "chain 1 for 122 draws" in finding.text
    accepted[:, 1000:1030] = False
    assert not by_kind(result(draws, accepted=accepted))


def diverging(counts):
    flags = np.zeros((CHAINS, 5000), bool)
    for chain, count in enumerate(counts):
        flags[chain, np.linspace(100, 4900, count).astype(int)] = True
    return {"x": np.random.default_rng(9).standard_normal((CHAINS, 5000))}, flags


def test_divergences_of_one_chain():
    """20 of 5,000 draws of one chain are 0.1 % of the run's, which the method has on good posteriors too."""
    draws, flags = diverging([0, 0, 20, 0])
    (finding,) = by_kind(result(draws, diverging=flags))["divergences"]
    assert finding.chains == (2,)
    assert finding.text.startswith("20 of 20000 draws ended in a divergence (all of them in chain 2): ")
    draws, flags = diverging([5, 6, 5, 4])
    assert not by_kind(result(draws, diverging=flags))
    draws, flags = diverging([2, 60, 40, 1])
    (finding,) = by_kind(result(draws, diverging=flags))["divergences"]
    assert finding.chains == (1, 2)
    assert "(60 of them in chain 1, 40 of them in chain 2)" in finding.text


def test_divergences_of_other_programs_name_the_chain():
    """Of NUTS every divergence is a finding; one chain is named where it has most of them."""
    draws, flags = diverging([1, 0, 0, 0])
    assert by_kind(result(draws, attrs={}, diverging=flags))["divergences"][0].chains == ()
    draws, flags = diverging([1, 0, 30, 0])
    assert by_kind(result(draws, attrs={}, diverging=flags))["divergences"][0].chains == (2,)


def test_columns_of_other_programs():
    """Step sizes and costs by the names of ArviZ's schema; what is of another kind is passed over."""
    sizes = np.array([[0.5], [0.4], [0.6], [0.05]])
    assert by_kind(result(attrs={}, step_size=sizes))["uneven"][0].chains == (3,)
    assert not by_kind(result(attrs={}, step_size=np.full((CHAINS, DRAWS), "small")))
    for odd in (np.nan, np.inf, 0.0, -1.0):
        with np.errstate(all="ignore"):
            by_kind(result(attrs={}, step_size=np.array([[0.5], [0.4], [0.6], [odd]])))
    other = learnt([[0.0, -8.0]], chains=1)  # of one of the chains
    assert not by_kind(result(adaptation=other, step_size=np.array([[1.6], [1.7], [0.8], [1.5]])))
    odd = xarray.Dataset({"bend": ("chain", ["a"] * CHAINS)}, coords={"chain": np.arange(CHAINS)})
    assert not by_kind(result(adaptation=odd, step_size=0.5))


def test_the_chain_apart_is_told_with_log_densities():
    x = np.random.default_rng(1).standard_normal((CHAINS, DRAWS))
    x[1] += 10.0
    lp = np.array([[-424.0], [-475.0], [-424.25], [-424.0]]) * np.ones(DRAWS)
    (finding,) = by_kind(result({"x": x}, lp=lp))["apart"]
    assert finding.text.endswith(
        "The mean log density is -424 in chain 0, -475 in chain 1, -424.25 in chain 2, -424 in chain 3."
    )
    assert "log density" not in by_kind(result({"x": x}, lp=lp * np.nan))["apart"][0].text
    assert "log density" not in by_kind(result({"x": x}))["apart"][0].text


def test_the_worst_are_those_that_fail():
    """Of three quantities one is over the limit; the words name no other."""
    rng = np.random.default_rng(12)
    x = rng.standard_normal((CHAINS, DRAWS, 3))
    x[0, :, 1] += 0.4
    (finding,) = by_kind(result({"x": x}))["r_hat"]
    assert "for 1 of 3 quantities, worst x[1] (1.0" in finding.text
    assert "x[0]" not in finding.text
    assert "x[2]" not in finding.text
    assert finding.variables == ("x[1]",)
