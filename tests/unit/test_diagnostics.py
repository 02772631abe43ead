"""Summaries against numbers by hand, and findings, each provoked by a made-up data set."""

from __future__ import annotations

import json
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import xarray
from threadpoolctl import threadpool_info, threadpool_limits

import stanadapt
from stanadapt import check
from stanadapt.diagnostics import statistics as statistics_module
from stanadapt.diagnostics.convergence import sort
from stanadapt.diagnostics.scalars import Scalars
from stanadapt.errors import ArgumentError
from stanadapt.result.container import container, datasets, statistics

MODELS = Path(__file__).parents[2] / "models"
CHAINS, DRAWS = 4, 1000
SETTINGS = json.dumps({"target_accept": 0.574})


def made_up(draws=None, *, rate=0.574, accepted=None, failures=0, attrs=None, adaptation=True):
    """A result with the given draws (chain, draw, ...); by default independent and normal."""
    rng = np.random.default_rng(11)
    if draws is None:
        draws = {"x": rng.standard_normal((CHAINS, DRAWS)), "v": rng.standard_normal((CHAINS, DRAWS, 2))}
    shape = next(iter(draws.values())).shape[:2]
    coords = {"chain": np.arange(shape[0]), "draw": np.arange(shape[1])}
    attrs = {"method": "fisher_mala", "settings": SETTINGS} | (attrs or {})
    posterior = xarray.Dataset(
        {
            name: (("chain", "draw", *[f"{name}_{i}" for i in range(a.ndim - 2)]), a)
            for name, a in draws.items()
        },
        coords=coords,
        attrs=attrs,
    )
    stats = {
        "acceptance_rate": np.full(shape, rate),
        "accepted": np.arange(shape[0] * shape[1]).reshape(shape) % 2 == 0 if accepted is None else accepted,
        "n_steps": np.ones(shape, np.int32),
    }
    groups = {
        "posterior": posterior,
        "sample_stats": xarray.Dataset(
            {name: (("chain", "draw"), value) for name, value in stats.items()}, coords=coords, attrs=attrs
        ),
    }
    if adaptation:
        groups["adaptation"] = xarray.Dataset(
            {
                "failures": ("chain", np.array([failures] + [0] * (shape[0] - 1))),
                "failures_warmup": ("chain", np.full(shape[0], 2)),
                "first_failure": (
                    "chain",
                    np.array(["scale is 0" if failures else ""] * shape[0], dtype=object),
                ),
            },
            coords={"chain": coords["chain"]},
        )
    return container(groups, {})


def kinds(idata, **keywords):
    return [finding.kind for finding in stanadapt.diagnose(idata, **keywords)]


def only(idata, kind):
    """The text of the finding, which must be the only one."""
    findings = stanadapt.diagnose(idata)
    assert [finding.kind for finding in findings] == [kind]
    assert str(findings[0]) == findings[0].text
    return findings[0].text


def autoregressive(coefficient, draws=DRAWS):
    """Stationary chains whose effective size is about (1 - c) / (1 + c) of the draws."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((CHAINS, draws))
    for i in range(1, draws):
        x[:, i] = coefficient * x[:, i - 1] + np.sqrt(1 - coefficient**2) * x[:, i]
    return x


def arviz_columns(x):
    """r_hat, ess_bulk, ess_tail and mcse_mean of draws (chain, draw) as the installed arviz has them."""
    dataset = xarray.Dataset({"x": (("chain", "draw"), x)})
    module = statistics()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        columns = [
            module.rhat(dataset),
            module.ess(dataset, method="bulk"),
            module.ess(dataset, method="tail", prob=(0.05, 0.95)),
            module.mcse(dataset, method="mean"),
        ]
    return [float(column["x"]) for column in columns]


KINDS = {
    "independent": lambda rng, shape: rng.standard_normal(shape),
    "slow": lambda rng, shape: walk(rng, shape, 0.95),
    "very slow": lambda rng, shape: walk(rng, shape, 0.999),
    "anti-correlated": lambda rng, shape: walk(rng, shape, -0.7),
    "drifting": lambda rng, shape: rng.standard_normal(shape).cumsum(axis=1),
    "apart": lambda rng, shape: rng.standard_normal(shape) + np.arange(shape[0])[:, None],
    "ties": lambda rng, shape: rng.choice([-2.0, -1.0, 0.0, 1.0, 4.0], shape),
    "rarely one": lambda rng, shape: (rng.random(shape) < 0.03).astype(float),
    "standing still": lambda rng, shape: np.repeat(rng.standard_normal(shape), 8, axis=1)[:, : shape[1]],
    "heavy tails": lambda rng, shape: rng.standard_cauchy(shape),
    # Draws that differ in the last bits alone, which the sorting by integers leaves to a second look.
    "far from zero": lambda rng, shape: 1e6 + 1e-8 * rng.standard_normal(shape),
    "nearly equal": lambda rng, shape: 1.0 + 4e-15 * rng.integers(0, 9, shape),
    "pairs": lambda rng, shape: (
        rng.choice([-3.0, 0.0, 2.0], shape) * (1 + 1e-14 * rng.integers(-4, 5, shape))
    ),
    "zeros of both signs": lambda rng, shape: rng.choice([-1.0, -0.0, 0.0, 1e-300, -1e-300, 2.0], shape),
    "constant": lambda rng, shape: np.full(shape, 0.5),
    "NaN": lambda rng, shape: np.where(np.arange(shape[1]) == 2, np.nan, rng.standard_normal(shape)),
    "infinite": lambda rng, shape: np.where(np.arange(shape[1]) == 2, np.inf, rng.standard_normal(shape)),
}


def walk(rng, shape, coefficient):
    x = rng.standard_normal(shape)
    for i in range(1, shape[1]):
        x[:, i] = coefficient * x[:, i - 1] + np.sqrt(1 - coefficient**2) * x[:, i]
    return x


@pytest.mark.parametrize("kind", KINDS)
def test_statistics_are_those_of_arviz(kind):
    rng = np.random.default_rng(8)
    for shape in [(4, 1000), (2, 501), (3, 141), (7, 64), (1, 300), (4, 11), (2, 10), (3, 6), (2, 5), (4, 4)]:
        x = KINDS[kind](rng, shape)
        row = stanadapt.summary(container({"posterior": draws_dataset(x)}, {})).loc["x"]
        wanted = arviz_columns(x)
        columns = ["r_hat", "ess_bulk", "ess_tail", "mcse_mean"]
        if shape[0] == 1:  # arviz has no R-hat of one chain
            assert np.isnan(row["r_hat"]) == (kind in ("constant", "NaN"))
            columns, wanted = columns[1:], wanted[1:]
        if kind == "constant":  # whose standard error arviz 0.23 gets wrong by rounding
            assert row["mcse_mean"] == 0.0
            columns, wanted = columns[:-1], wanted[:-1]
        if kind in ("far from zero", "nearly equal"):  # likewise, where the mean has nearly all digits
            columns, wanted = columns[:-1], wanted[:-1]
        np.testing.assert_allclose(row[columns].astype(float), wanted, rtol=1e-9, err_msg=f"{kind}, {shape}")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 5, 64, 4097])
def test_rows_are_sorted_as_numpy_does(kind, n):
    values = np.ascontiguousarray(KINDS[kind](np.random.default_rng(9), (3, n)))
    order, ordered = sort(values)
    np.testing.assert_array_equal(np.sort(order, axis=1), np.tile(np.arange(n), (3, 1)))
    np.testing.assert_array_equal(np.take_along_axis(values, order, axis=1), ordered)
    if kind != "NaN":
        np.testing.assert_array_equal(ordered, np.sort(values, axis=1))


def draws_dataset(x):
    return xarray.Dataset({"x": (("chain", "draw"), x)})


def test_tail_and_bulk_differ_as_in_arviz():
    """Draws whose tails mix more slowly than their middle: neither size stands for the other."""
    rng = np.random.default_rng(12)
    spread = np.exp(walk(rng, (CHAINS, DRAWS), 0.98))
    x = spread * rng.standard_normal((CHAINS, DRAWS))
    row = stanadapt.summary(made_up({"x": x})).loc["x"]
    _, bulk, tail, _ = arviz_columns(x)
    assert tail < 0.5 * bulk
    assert row["ess_tail"] == pytest.approx(tail, rel=1e-9)
    assert row["ess_bulk"] == pytest.approx(bulk, rel=1e-9)


def test_many_scalars_are_as_one():
    """Scalars are taken in blocks, over the bounds of variables; nothing gets into another's row."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((2, 701, 3, 40)) + rng.standard_normal((2, 1, 3, 40))
    names = {f"x{i}": x[..., i, :] for i in range(3)} | {"s": x[..., 0, 0]}
    table = stanadapt.summary(made_up(names))
    for i, j in [(0, 0), (0, 39), (1, 20), (2, 0), (2, 39)]:
        alone = stanadapt.summary(made_up({"x": x[..., i, j].copy()})).loc["x"]
        np.testing.assert_array_equal(table.loc[f"x{i}[{j}]"], alone)
    np.testing.assert_array_equal(table.loc["s"], table.loc["x0[0]"])


def test_integers_and_booleans_are_numbers():
    rng = np.random.default_rng(3)
    counts = rng.poisson(3.0, (CHAINS, DRAWS))
    table = stanadapt.summary(made_up({"n": counts, "b": counts > 2}))
    np.testing.assert_array_equal(
        table.loc["n"], stanadapt.summary(made_up({"n": counts.astype(float)})).loc["n"]
    )
    assert table.loc["b", "mean"] == (counts > 2).mean()


def test_one_chain_without_a_word_of_arviz(caplog, capfd):
    x = np.random.default_rng(1).standard_normal((1, DRAWS))
    x[0, DRAWS // 2 :] += 0.5
    table = stanadapt.summary(made_up({"x": x}))
    stanadapt.diagnose(made_up({"x": x}))
    halves = x.reshape(2, DRAWS // 2)
    within, between = halves.var(axis=1, ddof=1).mean(), halves.mean(axis=1).var(ddof=1)
    # Near the one of the draws themselves, as their ranks turned into normal scores are near them.
    assert table.loc["x", "r_hat"] == pytest.approx(np.sqrt(1 - 2 / DRAWS + between / within), abs=3e-3)
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


def test_columns_by_hand():
    rng = np.random.default_rng(1)
    draws = {
        "s": rng.standard_normal((CHAINS, DRAWS)),
        "m": 3 + 2 * rng.standard_normal((CHAINS, DRAWS, 2, 3)),
    }
    table = stanadapt.summary(made_up(draws))
    assert list(table.index) == ["s", *[f"m[{i}, {j}]" for i in range(2) for j in range(3)]]
    assert list(table.columns) == ["mean", "sd", "q5", "q95", "mcse_mean", "ess_bulk", "ess_tail", "r_hat"]
    for name, x in (("s", draws["s"]), ("m[1, 2]", draws["m"][:, :, 1, 2])):
        row = table.loc[name]
        assert row["mean"] == pytest.approx(x.mean())
        assert row["sd"] == pytest.approx(x.std(ddof=1))
        assert row["q5"] == pytest.approx(np.quantile(x, 0.05))
        assert row["q95"] == pytest.approx(np.quantile(x, 0.95))
        # Independent draws: the standard error is sd / sqrt(n), and effective sizes are near n.
        assert row["mcse_mean"] == pytest.approx(x.std() / np.sqrt(x.size), rel=0.1)
        assert row["ess_bulk"] == pytest.approx(x.size, rel=0.2)
        assert row["ess_tail"] == pytest.approx(x.size, rel=0.2)


def test_effective_size_and_standard_error_of_a_known_process():
    c = 0.8
    table = stanadapt.summary(made_up({"x": autoregressive(c, 5000)}))
    wanted = CHAINS * 5000 * (1 - c) / (1 + c)
    assert table.loc["x", "ess_bulk"] == pytest.approx(wanted, rel=0.15)
    assert table.loc["x", "mcse_mean"] == pytest.approx(1 / np.sqrt(wanted), rel=0.15)


def test_r_hat_by_hand():
    rng = np.random.default_rng(5)
    x = rng.standard_normal((CHAINS, DRAWS)) + 0.3 * np.arange(CHAINS)[:, None]
    halves = x.reshape(CHAINS * 2, DRAWS // 2)
    within = halves.var(axis=1, ddof=1).mean()
    between = halves.mean(axis=1).var(ddof=1)
    n = DRAWS // 2
    wanted = np.sqrt(((n - 1) / n * within + between) / within)
    # arviz's draws are ranks turned into normal scores, so normal draws change little.
    assert stanadapt.summary(made_up({"x": x})).loc["x", "r_hat"] == pytest.approx(wanted, rel=5e-3)


@pytest.mark.parametrize("interval", [0.5, 0.8, 0.94])
def test_other_intervals(interval):
    idata = made_up()
    table = stanadapt.summary(idata, ["x"], interval=interval)
    lower, upper = table.columns[2:4]
    x = idata["posterior"]["x"].values
    assert table.loc["x", lower] == pytest.approx(np.quantile(x, 0.5 - interval / 2))
    assert table.loc["x", upper] == pytest.approx(np.quantile(x, 0.5 + interval / 2))
    assert [float(lower[1:]), float(upper[1:])] == pytest.approx([50 - 50 * interval, 50 + 50 * interval])


@pytest.mark.parametrize("interval", [0.0, 1.0, 90, "0.9", None, float("nan")])
def test_interval_that_is_none(interval):
    with pytest.raises(ArgumentError, match="interval"):
        stanadapt.summary(made_up(), interval=interval)


def test_rows_by_coordinates_and_blocks():
    rng = np.random.default_rng(2)
    values = rng.standard_normal((2, 50, 1203))  # more than are computed at a time
    names = [f"n{i}" for i in range(1203)]
    posterior = xarray.Dataset({"v": (("chain", "draw", "name"), values)}, coords={"name": names})
    table = stanadapt.summary(container({"posterior": posterior}, {}))
    assert list(table.index) == [f"v[{name}]" for name in names]
    np.testing.assert_allclose(table["mean"], values.mean((0, 1)))


def test_dimensions_in_another_order():
    idata = made_up()
    posterior = datasets(idata)["posterior"]
    turned = container({"posterior": posterior.transpose("v_0", "draw", "chain")}, {})
    xarray.testing.assert_equal(stanadapt.summary(turned).to_xarray(), stanadapt.summary(idata).to_xarray())


def test_unknown_variables_and_no_draws():
    for function in (stanadapt.summary, stanadapt.diagnose):
        with pytest.raises(ArgumentError, match="which has x, v"):
            function(made_up(), ["y"])
        with pytest.raises(ArgumentError, match="no draws"):
            function(container({"sample_stats": xarray.Dataset({"lp": 1.0})}, {}))


@pytest.mark.parametrize("draws", [1, 2, 3])
def test_too_few_draws_have_means_and_a_finding(draws):
    idata = made_up({"x": np.arange(2.0 * draws).reshape(2, draws)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = stanadapt.summary(idata)
    assert table.loc["x", "mean"] == pytest.approx((2 * draws - 1) / 2)
    assert np.isnan(table.loc["x", "r_hat"])
    assert str(draws) in only(idata, "short")


def test_nothing_to_report():
    assert stanadapt.diagnose(made_up()) == []
    assert stanadapt.diagnose(made_up(adaptation=False)) == []
    draws = {"x": np.random.default_rng(1).standard_normal((1, DRAWS))}
    assert stanadapt.diagnose(made_up(draws)) == []


def test_good_run_has_no_finding():
    program, data = (
        MODELS / "correlated_gaussian" / f"correlated_gaussian.{end}" for end in ("stan", "json")
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", stanadapt.StanAdaptWarning)
        idata = stanadapt.sample(
            program, data, method="fisher_mala", seed=1, warmup=5000, draws=5000, progress=False
        )
    assert stanadapt.diagnose(idata) == []


def test_chains_that_disagree():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((CHAINS, DRAWS))
    x[2] += 3.0
    draws = {"x": x, "y": rng.standard_normal((CHAINS, DRAWS))}
    findings = {finding.kind: finding.text for finding in stanadapt.diagnose(made_up(draws))}
    assert "r_hat" in findings
    assert "1 of 2 quantities, worst x (1." in findings["r_hat"]
    assert kinds(made_up(draws), var_names=["y"]) == []


def test_a_chain_apart_is_named():
    x = np.random.default_rng(1).standard_normal((CHAINS, DRAWS))
    x[2] += 4.0
    found = {finding.kind: finding.text for finding in stanadapt.diagnose(made_up({"x": x}))}
    assert found["apart"].startswith("Chain 2 sits apart")
    assert "leaving" not in found
    x[3] += 8.0  # now no single chain is to blame
    assert "apart" not in {finding.kind for finding in stanadapt.diagnose(made_up({"x": x}))}


def test_the_chain_apart_is_found_by_its_spread_too():
    """R-hat of the distances from the median tells, where the means are the same."""
    x = np.random.default_rng(1).standard_normal((CHAINS, DRAWS))
    x[1] *= 20.0
    found = {finding.kind: finding.text for finding in stanadapt.diagnose(made_up({"x": x}))}
    assert found["apart"].startswith("Chain 1 sits apart")


def test_a_chain_that_leaves_is_named():
    x = np.random.default_rng(1).standard_normal((CHAINS, DRAWS))
    x[1] += np.linspace(0.0, 40.0, DRAWS)
    found = {finding.kind: finding.text for finding in stanadapt.diagnose(made_up({"x": x}))}
    assert found["leaving"].startswith("Chain 1 still moves away, in x (")


def test_the_halves_of_one_chain_are_compared():
    x = np.random.default_rng(1).standard_normal((1, DRAWS))
    assert kinds(made_up({"x": x})) == []
    x[0, DRAWS // 2 :] += 1.0
    found = {finding.kind: finding.text for finding in stanadapt.diagnose(made_up({"x": x}))}
    assert found["r_hat"].startswith("R-hat is over 1.05 for 1 of 1 quantities, worst x (1.")
    assert "the halves of the chain do not agree" in found["r_hat"]
    table = stanadapt.summary(made_up({"x": x}))
    assert table.notna().all(axis=None)
    assert 1.05 < table.loc["x", "r_hat"] < 1.5


def test_slow_chains():
    x = autoregressive(0.9)
    findings = {finding.kind: finding.text for finding in stanadapt.diagnose(made_up({"x": x}))}
    assert "ess_bulk" in findings
    assert "1 of 1 quantities, worst x (" in findings["ess_bulk"]


def test_slow_tails():
    """Draws that are independent in the middle, and visit the tails in one long stretch each."""
    rng = np.random.default_rng(4)
    x = rng.uniform(-1, 1, (CHAINS, DRAWS))
    for chain in range(CHAINS):
        x[chain, 100 * chain : 100 * chain + 60] += 3.0
    assert "ess_tail" in kinds(made_up({"x": x}))


def test_draws_that_are_not_finite():
    rng = np.random.default_rng(1)
    v = rng.standard_normal((CHAINS, DRAWS, 6))
    v[1, 10, 1:] = np.nan
    v[1, 11, 2] = np.inf
    text = only(made_up({"v": v}), "nan")
    assert text == "NaN or infinite draws in v[1], v[2], v[3] and 2 more."


def test_constants_are_fine():
    draws = {
        "x": np.random.default_rng(1).standard_normal((CHAINS, DRAWS)),
        "c": np.full((CHAINS, DRAWS), 0.1),
    }
    assert stanadapt.diagnose(made_up(draws)) == []


@pytest.mark.parametrize("chains", [1, 4])
def test_chains_that_never_move(chains):
    """Without sample_stats nothing but the draws tells."""
    x = np.full((chains, DRAWS, 2), 0.1)
    posterior = datasets(made_up({"x": x}))["posterior"]
    text = only(container({"posterior": posterior}, {}), "constant")
    assert text == "All draws are the same, in x[0], x[1]: no chain has moved."


def test_chains_that_stand_still_at_different_places():
    x = np.broadcast_to(np.arange(CHAINS, dtype=float)[:, None], (CHAINS, DRAWS))
    idata = made_up({"x": x}, accepted=np.zeros((CHAINS, DRAWS), bool))
    found = kinds(idata)
    assert "r_hat" in found
    assert "still" in found


def test_long_waits():
    accepted = np.ones((CHAINS, DRAWS), bool)
    accepted[3, 200:320] = False
    assert "chain 3 for 120 draws" in only(made_up(accepted=accepted), "still")
    accepted[3, 250] = True
    assert "chain 3 for 69 draws" in only(made_up(accepted=accepted), "still")
    accepted[:3, 500:520] = False  # where others wait too, a chain may wait five times as long
    assert stanadapt.diagnose(made_up(accepted=accepted)) == []


def test_acceptance_far_from_its_target():
    text = only(made_up(rate=0.9, attrs={"method": "fisher_mala"}), "acceptance")
    assert "target 0.574: 0.90 in chain 0, 0.90 in chain 1" in text
    method = {"method": "fisher_mala"}
    assert stanadapt.diagnose(made_up(rate=0.65, attrs=method)) == []
    for rate, kinds_of in ((0.43, []), (0.42, ["acceptance"])):  # 0.15 away from the target at most
        assert kinds(made_up(rate=rate, attrs=method)) == kinds_of
    assert stanadapt.diagnose(made_up(rate=0.9, attrs=method | {"settings": "{}"})) == []


def test_failures():
    text = only(made_up(failures=7), "failures")
    assert "failed in 7 of 4000 evaluations" in text
    assert "(and 8 in warm-up)" in text
    assert "First reason: scale is 0" in text


def test_interrupted_run():
    note = "interrupted: 4 of 4 chains, 10 of 1000 draws each"
    assert note in only(made_up(attrs={"interrupted_note": note}), "interrupted")


def test_a_run_warns_of_what_diagnose_says():
    """Of one set of quantities: also of those that the program generates.

    R-hat was too high in 50 of 50 runs of so few draws, and in 26 of 50 of five times as many.
    """
    program = """parameters { real x; } transformed parameters { real y = exp(x); }
      model { x ~ std_normal(); }
      generated quantities { real broken = log(-1 - x^2); }"""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", stanadapt.StanAdaptWarning)
        idata = stanadapt.sample(program, method="rwm", warmup=100, draws=100, seed=2, progress=False)
    (warning,) = caught
    findings = stanadapt.diagnose(idata)
    assert {"nan", "r_hat"} <= {finding.kind for finding in findings}
    assert [str(finding) for finding in warning.message.findings] == [str(finding) for finding in findings]


def test_of_very_many_draws_the_parameters_are_looked_at(monkeypatch):
    rng = np.random.default_rng(1)
    draws = {"x": rng.standard_normal((CHAINS, DRAWS)), "y": np.full((CHAINS, DRAWS, 3), np.nan)}
    idata = made_up(draws, attrs={"parameters": '["x"]'})
    assert kinds(idata) == ["nan"]
    monkeypatch.setattr(statistics_module, "_MOST_DRAWS", CHAINS * DRAWS * 3)
    assert kinds(idata) == []
    assert kinds(idata, var_names=["y"]) == ["nan"]
    assert kinds(made_up(draws)) == ["nan"]  # nobody knows which are parameters


def with_stats(stats, attrs=None, **posterior):
    """A posterior of two good chains, and other variables, by somebody else."""
    coords = {"chain": [0, 1], "draw": np.arange(DRAWS)}
    x = np.random.default_rng(6).standard_normal((2, DRAWS))
    groups = {"posterior": {"x": (("chain", "draw"), x)} | posterior, "sample_stats": stats}
    datasets = {name: xarray.Dataset(group, coords=coords) for name, group in groups.items()}
    datasets["posterior"].attrs |= attrs or {}
    return container(datasets, {})


def test_statistics_of_several_samplers():
    """PyMC has a column for each of them, where it draws with several."""
    dims = ("chain", "draw", "sampler")
    accepted = np.zeros((2, DRAWS, 2), bool)
    accepted[:, ::2, 1] = True
    diverging = np.zeros((2, DRAWS, 2), bool)
    diverging[0, 5] = True
    stats = {"accepted": (dims, accepted), "diverging": (dims, diverging), "energy": (dims, accepted * 1.0)}
    text = only(with_stats(stats), "divergences")
    assert text.startswith(f"1 of {2 * DRAWS} draws")
    accepted[1, 300:500] = False
    found = {each.kind: each.text for each in stanadapt.diagnose(with_stats(stats))}
    assert "chain 1 for 201 draws" in found["still"]


def test_statistics_without_chain_and_draw():
    stats = {
        "accepted": ("draw", np.zeros(DRAWS, bool)),
        "diverging": ("sampler", np.ones(3, bool)),
        "tree_depth": ((), 12),
        "energy": (("draw", "chain"), np.random.default_rng(1).standard_normal((DRAWS, 2))),
        "acceptance_rate": (("chain", "draw"), np.full((2, DRAWS), "high")),
    }
    assert stanadapt.diagnose(with_stats(stats, {"method": "fisher_mala", "settings": SETTINGS})) == []


@pytest.mark.parametrize("settings", ["warmup=3", "[1, 2]", "", 7, [1.5, 2.5], '{"target_accept": "high"}'])
def test_settings_of_others(settings):
    rates = {"acceptance_rate": (("chain", "draw"), np.full((2, DRAWS), 0.1))}
    attrs = {"settings": settings, "method": "fisher_mala"}
    assert stanadapt.diagnose(with_stats(rates, attrs)) == []
    attrs = {
        "settings": settings,
        "method": np.array([1, 2]),
        "noisy": np.array([0, 1]),
        "interrupted_note": "",
    }
    assert stanadapt.diagnose(with_stats(rates, attrs)) == []


def test_only_draws_of_numbers_are_looked_at():
    others = {
        "scalar": ((), 3.0),
        "place": (("chain", "draw"), np.full((2, DRAWS), "here")),
        "curve": ("time", np.arange(5.0)),
        "empty": (("chain", "draw", "nothing"), np.empty((2, DRAWS, 0))),
    }
    idata = with_stats({}, **others)
    assert stanadapt.diagnose(idata) == []
    assert list(stanadapt.summary(idata).index) == ["x"]
    for name, message in (
        ("scalar", "no dimension chain and draw"),
        ("place", "no numbers"),
        ("curve", r"only \(time\)"),
        ("empty", "no values"),
    ):
        for function in (stanadapt.diagnose, stanadapt.summary):
            with pytest.raises(ArgumentError, match=message):
                function(idata, ["x", name])


def test_a_posterior_without_chains_says_what_is_missing():
    posterior = xarray.Dataset({"x": ("draw", np.arange(100.0)), "y": ("sample", np.arange(9.0))})
    for function in (stanadapt.diagnose, stanadapt.summary):
        with pytest.raises(ArgumentError, match=r"x has no dimension chain, only \(draw\)"):
            function(container({"posterior": posterior}, {}))


def test_progress_of_what_takes_long(monkeypatch, capsys):
    monkeypatch.setattr(statistics_module, "_SILENT_SECONDS", 0.0)
    monkeypatch.setattr(statistics_module, "_BLOCK", DRAWS * CHAINS)
    idata = made_up({"x": np.random.default_rng(1).standard_normal((CHAINS, DRAWS, 4))})
    assert stanadapt.diagnose(idata, progress=True) == []
    shown = [f"stanadapt: diagnosing the draws, {share}% done" for share in (25, 50, 75, 100)]
    assert capsys.readouterr().err.splitlines() == shown
    stanadapt.diagnose(idata)
    assert capsys.readouterr().err == ""


def test_blas_has_one_thread_in_statistics():
    """Threads of BLAS would wait for those of the pool, in loops that keep all cores busy."""
    seen = []

    def count_threads(draws):
        seen.extend(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
        return Scalars.of(draws)

    columns = np.random.default_rng(0).standard_normal((CHAINS, DRAWS, 40))  # of several blocks
    with threadpool_limits(2, user_api="blas"):
        statistics_module.each_column(count_threads, [columns])
        after = {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}
    assert len(seen) > 1
    assert set(seen) == {1}
    assert after == {2}


def test_an_interrupt_leaves_what_has_not_begun(monkeypatch):
    """It comes after the first block, while the only worker is in the second one at most."""
    shut = threading.Event()
    seen = []

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait=True, *, cancel_futures=False):
            super().shutdown(False, cancel_futures=cancel_futures)
            shut.set()
            super().shutdown(wait)

    def slowly(draws):
        seen.append(draws)
        if len(seen) > 1:
            shut.wait()
        return Scalars.of(draws)

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(statistics_module, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(statistics_module, "tell", interrupt)
    monkeypatch.setattr(statistics_module, "_SILENT_SECONDS", 0.0)
    monkeypatch.setattr(statistics_module, "_BLOCK", DRAWS * CHAINS)
    monkeypatch.setattr(check, "available_cores", lambda: 1)
    posterior = datasets(made_up({"x": np.ones((CHAINS, DRAWS, 50))}))["posterior"]
    with pytest.raises(KeyboardInterrupt):
        statistics_module.each(slowly, posterior, progress=True)
    assert len(seen) <= 2


def test_statistics_without_draws_and_counts_of_another_kind_are_passed_over():
    """Files by others may have anything under our names."""
    idata = made_up(failures=7)
    groups = datasets(idata)
    none = groups["sample_stats"].isel(draw=slice(0, 0))
    odd = groups["adaptation"].assign(failures=("chain", np.full(CHAINS, 1j)))
    assert stanadapt.diagnose(container({**groups, "sample_stats": none, "adaptation": odd})) == []
    single = groups["adaptation"].drop_vars("first_failure").assign(first_failure="no scale")
    assert "First reason: no scale" in only(container({**groups, "adaptation": single}, {}), "failures")
    lost = groups["adaptation"].assign(failures=("chain", np.full(CHAINS, np.nan)))
    assert stanadapt.diagnose(container({**groups, "adaptation": lost})) == []
