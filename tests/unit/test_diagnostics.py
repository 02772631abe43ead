"""Summaries against numbers by hand, and findings, each provoked by a made-up data set."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import xarray

import stanadapt
from stanadapt.errors import ArgumentError
from stanadapt.result.container import container, datasets

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
    assert stanadapt.diagnose(made_up(accepted=accepted)) == []


def test_acceptance_far_from_its_target():
    text = only(made_up(rate=0.9, attrs={"method": "fisher_mala"}), "acceptance")
    assert "target 0.574: 0.90 in chain 0, 0.90 in chain 1" in text
    method = {"method": "fisher_mala"}
    assert stanadapt.diagnose(made_up(rate=0.65, attrs=method)) == []
    assert stanadapt.diagnose(made_up(rate=0.9, attrs=method | {"settings": "{}"})) == []


def test_failures():
    text = only(made_up(failures=7), "failures")
    assert "failed in 7 of 4000 evaluations" in text
    assert "(and 8 in warm-up)" in text
    assert "First reason: scale is 0" in text


def test_interrupted_run():
    note = "interrupted: 4 of 4 chains, 10 of 1000 draws each"
    assert note in only(made_up(attrs={"interrupted_note": note}), "interrupted")


def test_warning_of_a_run_is_about_parameters():
    program = """parameters { real x; } model { x ~ std_normal(); }
      generated quantities { real broken = log(-1 - x^2); }"""
    keywords = {"method": "rwm", "warmup": 2000, "draws": 10_000, "seed": 2, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("error", stanadapt.StanAdaptWarning)
        idata = stanadapt.sample(program, **keywords)
    assert kinds(idata) == ["nan"]
