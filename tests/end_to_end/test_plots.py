"""Pictures by their properties: lines, labels and axes, and that no data of users break them."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import xarray

import stanadapt
from cases import methods, partly_thorough, thorough
from stanadapt.diagnostics.statistics import row_names, rows_of
from stanadapt.diagnostics.worst import Ranking
from stanadapt.errors import ArgumentError, StanAdaptError
from stanadapt.plots import canvas
from stanadapt.result.container import container, datasets
from stanadapt.samplers import fisher_hmc, rlmh, rlmh_mala
from stanadapt.samplers import sampler as find_sampler
from stanadapt.samplers.base import POLICY
from stanadapt.transport.field import Field, n_features
from stanadapt.transport.field_table import field_rows
from stanadapt.transport.map_table import COLUMNS

pytestmark = pytest.mark.filterwarnings("ignore::stanadapt.StanAdaptWarning")

PICTURES = (
    "plot_adaptation",
    "plot_approximation",
    "plot_preconditioner",
    "plot_field",
    "plot_path",
    "plot_policy",
    "plot_ess",
    "plot_chains",
)
GAUSSIAN = stanadapt.Target.from_python(
    lambda x: -0.5 * float(x @ x), 3, lambda x: -x, names=["location", "scale.1", "scale.2"]
)
TWO = stanadapt.Target.from_python(lambda x: -0.5 * float(x @ x), 2, lambda x: -x)
WARMUP, DRAWS = {"rlmh": 3_000, "rlmh_mala": 3_000}, 60


def short_run(method: str, target: Any = GAUSSIAN, **options: Any) -> Any:
    warmup = WARMUP.get(method, 300)
    settings = {"episode": 100} if method in WARMUP else None
    return stanadapt.sample(
        target,
        method=method,
        warmup=warmup,
        draws=DRAWS,
        seed=3,
        chains=2,
        settings=settings,
        progress=False,
        workers=1,
        **options,
    )


def made_up(draws: dict[str, np.ndarray], attrs: dict[str, Any] | None = None, **groups: Any) -> Any:
    """A result with these draws (chain, draw, ...) and groups."""
    shape = next(iter(draws.values())).shape
    coords = {"chain": np.arange(shape[0]), "draw": np.arange(shape[1])}
    variables = {
        name: (("chain", "draw", *[f"{name}_{i}" for i in range(values.ndim - 2)]), values)
        for name, values in draws.items()
    }
    return container({"posterior": xarray.Dataset(variables, coords=coords, attrs=attrs), **groups})


def normal(*shape: int, seed: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def learnt(matrices: np.ndarray, names: list[str] | None = None, method: str = "am") -> Any:
    """A result whose chains have learnt these preconditioners (chain, d, d), or diagonals (chain, d)."""
    d = matrices.shape[-1]
    names = names or [f"x.{i + 1}" for i in range(d)]
    kind = "preconditioner" if matrices.ndim == 3 else "preconditioner_diagonal"
    dims = ("chain", "unconstrained", "unconstrained_2")[: matrices.ndim]
    coords = {"chain": np.arange(len(matrices)), "unconstrained": names}
    own = xarray.Dataset({kind: (dims, matrices)}, coords=coords, attrs={"method": method})
    return made_up({"x": normal(len(matrices), 20)}, adaptation=own)


@pytest.fixture(autouse=True)
def _close() -> Any:
    canvas.matplotlib().use("Agg")
    yield
    canvas.pyplot().close("all")


@pytest.fixture(scope="module")
def runs() -> dict[str, Any]:
    """Results of methods, each made when it is first asked for."""
    return {}


def result(runs: dict[str, Any], method: str) -> Any:
    if method not in runs:
        if find_sampler(method).FACTS.whole_chains:
            program = (
                "parameters { real location; vector<lower=0>[2] scale; } model { location ~ normal(0, 1);"
            )
            target: Any = program + " scale ~ lognormal(0, 1); }"
        else:
            target = GAUSSIAN
        runs[method] = short_run(method, target)
    return runs[method]


def draw(axes: np.ndarray) -> None:
    """Have the whole figure drawn, which reads all of its texts."""
    axes.flat[0].figure.canvas.draw()


def legend(axes: np.ndarray) -> list[str]:
    return [text.get_text() for text in axes.flat[0].figure.legends[0].get_texts()]


def title(ax: Any) -> str:
    return str(ax.get_title(loc="left"))


# Of all methods


# The first of those that tell of their adaptation in the same way; `make thorough` draws the others too.
PICTURED = (
    "rwm",
    "fisher_mala",
    "fisher_hmc",
    "mmala",
    "rlmh",
    "tempered",
    "nuts",
)


@pytest.mark.parametrize("method", partly_thorough(methods(), PICTURED))
def test_pictures_of_every_method(runs: dict[str, Any], method: str) -> None:
    idata = result(runs, method)
    own = datasets(idata)["adaptation"]
    possible = {
        "plot_adaptation": "note" in own.dims,
        "plot_approximation": False,  # the draws are the posterior's
        "plot_preconditioner": bool({"preconditioner", "preconditioner_diagonal"} & set(own.data_vars)),
        "plot_field": False,  # three coordinates are no field
        "plot_path": method == "tempered",
        "plot_policy": find_sampler(method).FACTS.family == POLICY,
        "plot_ess": True,
        "plot_chains": True,
    }
    for name in PICTURES:
        plot = getattr(stanadapt, name)
        if not possible[name]:
            with pytest.raises(ArgumentError, match="idata has no"):
                plot(idata)
            continue
        axes = plot(idata)
        assert isinstance(axes, np.ndarray)
        assert all(ax.has_data() for ax in axes.flat)
        labelled = axes[:, 0] if name == "plot_ess" else axes.flat  # its rows share their labels
        assert all(ax.get_xlabel() or ax.get_ylabel() or title(ax) for ax in labelled)
        if name != "plot_ess" and not (name == "plot_policy" and axes.shape == (2,)):
            assert legend(axes)[:2] == ["chain 0", "chain 1"]
        draw(axes)


# Adaptation


def test_adaptation_shows_what_the_history_has(runs: dict[str, Any]) -> None:
    idata = result(runs, "fisher_mala")
    own, stats = datasets(idata)["adaptation"], datasets(idata)["sample_stats"]
    names = ["step_size", "preconditioner_log_det", "acceptance_rate"]
    axes = stanadapt.plot_adaptation(idata, names)
    assert axes.shape == (3,)
    for ax, name in zip(axes, names, strict=True):
        for chain in range(2):
            np.testing.assert_array_equal(ax.lines[chain].get_xdata(), own["iteration"])
            np.testing.assert_array_equal(ax.lines[chain].get_ydata(), own[name][chain])
            assert ax.lines[chain].get_color() == canvas.COLOURS[chain]
    # What draws were made with is to the right of warm-up.
    marks = axes[0].collections[0].get_offsets()
    np.testing.assert_array_equal(marks[:, 1], stats["step_size"][:, -1])
    assert np.all(marks[:, 0] > own["iteration"].values[-1])
    assert "0.574" in title(axes[2])
    assert legend(axes)[-1] == "draws"


def test_adaptation_shades_every_second_stage(runs: dict[str, Any]) -> None:
    own = datasets(result(runs, "fisher_mala"))["adaptation"]
    first = stanadapt.plot_adaptation(result(runs, "fisher_mala"))[0]
    assert [text.get_text() for text in first.texts] == ["fisher", "forgetting", "simple mala"]
    ends = {name: int(own["iteration"][own["stage"] == name].max()) for name in np.unique(own["stage"])}
    (shade,) = first.patches
    assert shade.get_x() == ends["simple_mala"]
    assert shade.get_x() + shade.get_width() == ends["forgetting"]


def test_adaptation_of_chains_whose_warmup_ends_at_different_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of what the longest chain has noted is there; the others end in NaN."""
    answers = itertools.cycle([True, False])  # one worker asks for each chain in its turn
    monkeypatch.setattr(fisher_hmc, "is_settled", lambda state: next(answers))
    model = Path(__file__).parents[2] / "models" / "eight_schools_centered"
    idata = stanadapt.sample(
        model / "eight_schools_centered.stan",
        model / "eight_schools_centered.json",
        method="fisher_hmc",
        draws=20,
        seed=1,
        progress=False,
        workers=1,
    )
    own = datasets(idata)["adaptation"]
    lengths = own["warmup_iterations"].values
    assert len(set(lengths.tolist())) > 1
    notes = own["iteration"].values
    assert notes[-1] == lengths.max()
    known = np.isfinite(own["step_size"].values)
    np.testing.assert_array_equal(known, notes <= lengths[:, None])
    draw(stanadapt.plot_adaptation(idata))


def test_rewards_are_noted_from_the_first_episode_on(runs: dict[str, Any]) -> None:
    own = datasets(result(runs, "rlmh"))["adaptation"]
    rewards, episodes = own["warmup_reward"].values, own["stage"].values == "episodes"
    assert np.isnan(rewards[:, ~episodes]).all()
    np.testing.assert_array_equal(rewards[:, -1], own["episode_reward"][:, -1])
    axes = stanadapt.plot_adaptation(result(runs, "rlmh"), ["warmup_reward"])
    assert "reward" in title(axes[0])


@pytest.mark.parametrize("method", ["gad_rwm", "arwmh"])
def test_history_of_beta_is_kept_beside_its_last_value(runs: dict[str, Any], method: str) -> None:
    own = datasets(result(runs, method))["adaptation"]
    assert own["warmup_beta"].dims == ("chain", "note")
    np.testing.assert_array_equal(own["warmup_beta"][:, -1], own["beta"])


def test_warmup_that_was_kept_is_shown_where_there_is_no_history() -> None:
    rates = np.repeat([[0.0, 1.0]], 2, axis=0).repeat(100, axis=1)  # (chain, 200)
    coords = {"chain": [0, 1], "draw": np.arange(200)}
    columns = {"acceptance_rate": rates, "step_size": 0.5 + rates}
    kept = xarray.Dataset({name: (("chain", "draw"), rows) for name, rows in columns.items()}, coords=coords)
    axes = stanadapt.plot_adaptation(made_up({"x": normal(2, 20)}, warmup_sample_stats=kept))
    assert [title(ax) for ax in axes] == ["step size", "acceptance rate"]
    np.testing.assert_array_equal(axes[1].lines[0].get_ydata(), np.repeat([0.0, 1.0], 25))
    assert axes[1].lines[0].get_xdata()[-1] == 200


# Preconditioners


def test_correlations_stand_together_with_what_they_go_with() -> None:
    """Parameters 0 and 3 are correlated, and so are 1 and 2."""
    a = np.eye(4)
    a[0, 3] = a[3, 0] = 0.8
    a[1, 2] = a[2, 1] = -0.6
    sd = np.array([1.0, 2.0, 3.0, 0.5])
    axes = stanadapt.plot_preconditioner(learnt(np.repeat([a * np.outer(sd, sd)], 3, axis=0)))
    assert axes.shape == (3,)
    order = [int(label.get_text()[2:]) - 1 for label in axes[0].get_yticklabels()]
    assert abs(order.index(0) - order.index(3)) == abs(order.index(1) - order.index(2)) == 1
    shown = np.ma.filled(axes[0].images[0].get_array(), np.nan)
    expected = a[np.ix_(order, order)]
    off = ~np.eye(4, dtype=bool)
    np.testing.assert_allclose(shown[off], expected[off], atol=1e-12)
    assert np.isnan(shown[~off]).all()
    np.testing.assert_allclose(axes[1].collections[0].get_offsets()[:, 0], sd[order])
    assert title(axes[2]) == "chains differ by 0 (rms)"


def test_chains_that_disagree_are_seen() -> None:
    a = np.repeat([np.eye(2)], 2, axis=0)
    a[1, 0, 1] = a[1, 1, 0] = 0.4
    axes = stanadapt.plot_preconditioner(learnt(a))
    assert title(axes[2]) == "chains differ by 0.2 (rms)"
    points = [each.get_offsets()[0] for each in axes[2].collections]
    np.testing.assert_allclose(points, [(0.2, 0.0), (0.2, 0.4)])


def test_largest_correlations_of_many_parameters() -> None:
    a = np.eye(100)
    a[7, 93] = a[93, 7] = 0.9
    a[20, 21] = a[21, 20] = -0.5
    axes = stanadapt.plot_preconditioner(learnt(np.array([a])), most=4)
    labels = {label.get_text() for label in axes[0].get_yticklabels()}
    assert labels == {"x.8", "x.94", "x.21", "x.22"}
    assert title(axes[0]) == "the 4 of 100 parameters with the largest correlations"
    assert title(axes[2]) == "a single chain"


def test_largest_and_smallest_scales_of_a_diagonal() -> None:
    scales = np.exp(np.linspace(-3.0, 3.0, 10_000))
    axes = stanadapt.plot_preconditioner(learnt(np.array([scales**2, 1.21 * scales**2])), most=6)
    assert axes.shape == (2,)
    labels = [label.get_text() for label in axes[0].get_yticklabels()]
    assert labels == ["x.10000", "x.9999", "x.9998", "x.3", "x.2", "x.1"]
    assert "largest and smallest of 10,000" in title(axes[0])
    assert title(axes[1]) == "chains differ by 4.9 % (rms)"  # sqrt(1.1), from the geometric mean
    draw(axes)


def test_chains_that_agree_up_to_a_factor_agree_where_a_method_has_no_scale() -> None:
    a = np.array([np.diag([1.0, 4.0]), np.diag([3.0, 12.0])])
    unscaled = next(name for name in methods() if find_sampler(name).FACTS.unscaled)
    for method, is_same in ((unscaled, True), ("am", False)):
        axes = stanadapt.plot_preconditioner(learnt(a, method=method))
        one, other = (each.get_offsets()[:, 0] for each in axes[1].collections)
        assert np.allclose(one, other) == is_same


def test_parameters_are_asked_for_by_their_names_or_their_variables() -> None:
    names = ["mu", "theta.1", "theta.2", "theta_trans.1"]
    idata = learnt(np.repeat([np.eye(4)], 2, axis=0), names)
    for wanted, shown in ((["theta"], names[1:3]), (["theta.2", "mu"], ["theta.2", "mu"])):
        axes = stanadapt.plot_preconditioner(idata, wanted)
        assert {label.get_text() for label in axes[0].get_yticklabels()} == set(shown)
    with pytest.raises(ArgumentError, match="nearest: theta"):
        stanadapt.plot_preconditioner(idata, ["thetha"])


# Latent fields

FIELD_NAMES = ["tau", "mu", "h.1", "h.2", "h.3"]


def funnel_rows() -> np.ndarray:
    """A field with the head tau: h_j = e^tau z_j, but h_3 stays as it is; mu is outside of it."""
    one, own = np.ones(1), np.array([2, 3, 4])
    basis, none = np.zeros((1, n_features(1))), np.zeros((0, n_features(1)))
    basis[0, 0] = 1.0
    scales = np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 0.0]])
    starts, later = np.zeros(4, int), np.zeros(0, int)
    numbers = scales, np.zeros((1, 3)), np.zeros((1, 0))
    law = (np.zeros(1, int), 0.0 * one, one, one, (basis, none, none))
    return field_rows(Field(*law, np.zeros(3), own, starts, later, numbers), 100)


def funnel(without: tuple[int, ...] = (), *, keep: bool = True) -> Any:
    """Draws of the funnel by three chains with this field, but for chains `without` it."""
    z = normal(3, 400, 5)
    x = z.copy()
    x[..., 2:4] *= np.exp(z[..., :1])
    rows = funnel_rows()
    tables = np.full((3, len(rows), COLUMNS), np.nan)
    for chain in set(range(3)) - set(without):
        tables[chain] = rows
    coords = {"chain": np.arange(3), "unconstrained": FIELD_NAMES}
    own = xarray.Dataset({"transport": (("chain", "row", "column"), tables)}, coords=coords)
    groups = {"adaptation": own}
    if keep:
        dims, coords = ("chain", "draw", "unconstrained"), coords | {"draw": np.arange(400)}
        groups["unconstrained_posterior"] = xarray.Dataset({"x": (dims, x)}, coords=coords)
    return made_up({"tau": x[..., 0]}, **groups), z


def test_latents_are_shown_before_and_after_a_field() -> None:
    idata, z = funnel()
    axes = stanadapt.plot_field(idata, most=2)
    assert axes.shape == (2, 2)
    assert {ax.get_xlabel() for ax in axes[1]} == {"h.1, learned coordinate", "h.2, learned coordinate"}
    assert axes[0, 0].get_ylabel() == "tau"
    above = next(ax for ax in axes[0] if ax.get_xlabel() == "h.1 minus its regression")
    shown = np.concatenate([each.get_offsets() for each in above.collections])
    h = (np.exp(z[..., 0]) * z[..., 2]).ravel()
    np.testing.assert_allclose(shown[:, 0], h - h.mean())
    below = next(ax for ax in axes[1] if ax.get_xlabel().startswith("h.1"))
    for chain in range(3):
        np.testing.assert_allclose(below.collections[chain].get_offsets(), z[chain][:, [2, 0]])
    draw(axes)


def test_latents_and_heads_of_a_field_are_asked_for_by_name() -> None:
    idata, _ = funnel()
    axes = stanadapt.plot_field(idata, ["h.3", "mu"], head="tau")  # mu is no latent
    assert axes.shape == (2, 1)
    assert axes[1, 0].get_xlabel() == "h.3, learned coordinate"
    for options, words in (
        ({"head": "h.1"}, "head"),
        ({"var_names": ["mu"]}, "var_names: none of them"),
        ({"most": 0}, "most"),
        ({"var_names": ["h"], "axes": []}, "axes"),
    ):
        with pytest.raises(ArgumentError, match=words):
            stanadapt.plot_field(idata, **options)


def test_chains_without_a_field_are_left_out_of_its_picture() -> None:
    axes = stanadapt.plot_field(funnel((1,))[0])
    assert {len(ax.collections) for ax in axes.flat} == {2}
    assert axes[0, 0].collections[1].get_facecolor()[0, 0] == pytest.approx(0.0, abs=0.01)  # chain 2, green


def test_a_picture_of_a_field_needs_a_field_and_unconstrained_draws() -> None:
    with pytest.raises(ArgumentError, match="idata has no latent field with heads"):
        stanadapt.plot_field(funnel((0, 1, 2))[0])
    with pytest.raises(ArgumentError, match="keep_unconstrained=True"):
        stanadapt.plot_field(funnel(keep=False)[0])


# Policies


@pytest.mark.parametrize("method", ["rlmh", "rlmh_mala"])
def test_policy_is_the_one_that_proposals_are_made_with(runs: dict[str, Any], method: str) -> None:
    """The curves after learning are what the sampler's own code has, at the frozen state of the chain."""
    from stanadapt.plots import policy_plot as pictures
    from stanadapt.samplers import policy as shared
    from stanadapt.samplers import resolve

    own = datasets(result(runs, method))["adaptation"]
    module = rlmh if method == "rlmh" else rlmh_mala
    settings = resolve(find_sampler(method), {"episode": 100})
    for policy in pictures.find_policies(own):
        x = np.array([0.3, -1.1, 0.7])
        place = settings, shared.EPISODES, policy.shape, policy.after
        u = shared.into_space(policy.space, x)
        found = policy.at(policy.after, x[None])
        if method == "rlmh":
            a = module.proposal_mean(*place, policy.step_size, u)
            np.testing.assert_allclose(found[0], shared.out_of_space(policy.space, a), rtol=1e-10)
        else:
            a = module.log_step(*place, u)
            np.testing.assert_allclose(found[0], policy.step_size * np.exp(a[0]), rtol=1e-10)


def test_policy_before_learning_is_what_pretraining_aims_at() -> None:
    """In one dimension phi is linear before, with the slope -sqrt(1 - 2 s²) in the coordinates u."""
    one = stanadapt.Target.from_python(lambda x: -0.5 * float(x @ x), 1, lambda x: -x)
    idata = short_run("rlmh", one, keep_unconstrained=True)
    own = datasets(idata)["adaptation"]
    axes = stanadapt.plot_policy(idata)
    assert axes.shape == (1,)
    at = axes[0].lines[0].get_xdata()
    for chain in range(2):
        before, after = (axes[0].lines[2 * chain + i] for i in (0, 1))
        assert (before.get_linestyle(), after.get_linestyle()) == (":", "-")
        s, mean = float(own["final_step_size"][chain]), float(own["mean"][chain, 0])
        sd = float(np.sqrt(own["preconditioner"][chain, 0, 0]))
        inside = np.abs(at - mean) < 2.0 * sd
        aim = mean - np.sqrt(max(0.0, 1.0 - 2.0 * s * s)) * (at - mean)
        np.testing.assert_allclose(before.get_ydata()[inside], aim[inside], atol=0.35 * sd)
        assert not np.allclose(before.get_ydata(), after.get_ydata())
    assert axes[0].patches, "the unconstrained draws were kept, and are to be seen"
    assert legend(axes)[2:] == ["before", "φ(x) = x"]
    draw(axes)


def test_policy_in_two_dimensions() -> None:
    axes = stanadapt.plot_policy(short_run("rlmh", TWO))
    assert ["before" in title(axes[0]), "after" in title(axes[1])] == [True, True]
    before, after = (ax.collections[0] for ax in axes)
    assert before.N == after.N > 50
    assert not np.allclose(before.U, after.U)
    np.testing.assert_allclose(np.hypot(after.U, after.V), 1.0)
    assert before.get_clim() == after.get_clim()
    maps = stanadapt.plot_policy(short_run("rlmh_mala", TWO))
    first, second = (ax.collections[0].get_array() for ax in maps)
    assert np.ptp(first) == 0.0  # before learning the step size is the same everywhere
    assert np.ptp(second) > 0.0


def test_policy_along_some_parameters(runs: dict[str, Any]) -> None:
    idata = result(runs, "rlmh")
    (ax,) = stanadapt.plot_policy(idata, ["location"])
    assert ax.get_xlabel() == "location"
    axes = stanadapt.plot_policy(idata, ["scale"])
    assert [axes[0].get_xlabel(), axes[0].get_ylabel()] == ["scale.1", "scale.2"]
    assert stanadapt.plot_policy(idata).shape == (3,)


def test_chains_that_draw_by_the_walk_have_no_policy(runs: dict[str, Any]) -> None:
    groups = datasets(result(runs, "rlmh"))
    own = groups["adaptation"].copy()
    own["uses_policy"] = ("chain", [False, True])
    (ax,) = stanadapt.plot_policy(container(groups | {"adaptation": own}), ["location"])
    assert {line.get_color() for line in ax.lines} == {canvas.COLOURS[1], canvas.GREY}
    own["uses_policy"] = ("chain", [False, False])
    with pytest.raises(ArgumentError, match="all chains draw by the walk"):
        stanadapt.plot_policy(container(groups | {"adaptation": own}))


# Effective sample sizes


def test_ess_ends_where_the_summary_has_it() -> None:
    x = normal(4, 400, 6)
    x[:, :, 2] = np.cumsum(x[:, :, 2], axis=1) / 20.0
    idata = made_up({"x": x}, {"sampling_time": 10.0})
    table = stanadapt.summary(idata)
    axes = stanadapt.plot_ess(idata)
    assert axes.shape == (2, 2)
    names = [line.get_label() for line in axes[0, 0].lines]
    assert names[0] == "x[2]"
    for row, kind in enumerate(("ess_bulk", "ess_tail")):
        assert kind[4:] in axes[row, 0].get_ylabel()
        for line in axes[row, 0].lines[:-1]:
            name = line.get_label().partition(" (")[0]
            assert line.get_ydata()[-1] == pytest.approx(table.loc[name, kind])
            assert line.get_xdata()[-1] == 1600
        assert axes[row, 0].lines[-1].get_ydata()[0] == 400  # 100 a chain
    median = table["ess_bulk"].sort_values().index[3]
    assert any(name == f"{median} (median of 6)" for name in names) or median in names


def test_ess_against_time_begins_after_warmup() -> None:
    own = xarray.Dataset(
        {"seconds_warmup": ("chain", [3.0, 3.0]), "seconds_total": ("chain", [4.0, 4.0])}, {"chain": [0, 1]}
    )
    idata = made_up({"x": normal(2, 100)}, {"sampling_time": 8.0}, adaptation=own)
    right = stanadapt.plot_ess(idata)[0, 1]
    at = right.lines[0].get_xdata()
    draws = stanadapt.plot_ess(idata)[0, 0].lines[0].get_xdata() / 2  # a chain
    np.testing.assert_allclose(at, 6.0 + 2.0 * draws / 100)
    assert [text.get_text() for text in right.texts] == ["warm-up"]


def test_ess_without_time() -> None:
    axes = stanadapt.plot_ess(made_up({"x": normal(2, 100)}))
    assert axes.shape == (2, 1)


# Chains


def worst(draws: dict[str, np.ndarray], most: int = 4) -> list[tuple[str, tuple[str, ...]]]:
    found = Ranking(datasets(made_up(draws))["posterior"]).worst(most)
    return [(each.name, each.faults) for each in found]


def test_what_is_wrong_comes_first_one_of_every_kind() -> None:
    x = normal(4, 400, 10_000)
    x[:, :, 10] += 3.0 * np.arange(4)[:, None]  # R-hat
    x[:, :, 30] += 2.0 * np.arange(4)[:, None]
    x[2, :, 20] += np.linspace(0.0, 80.0, 400)  # moves away
    x[0, 5, 40] = np.nan
    x[:, :, 50] = 1.0
    found = worst({"x": x}, 5)
    names = [name for name, _ in found]
    faults = dict(found)
    assert names[:2] == ["x[40]", "x[50]"]
    assert faults["x[40]"] == ("NaN or infinite draws",)
    assert faults["x[50]"] == ("all draws are the same",)
    assert {"x[10]", "x[20]", "x[30]"} == set(names[2:5])
    assert any(text.startswith("R-hat") for text in faults["x[10]"])
    assert "chain 2 moves away" in faults["x[20]"]
    assert any(text.startswith("bulk ESS") and text.endswith("< 400") for text in faults["x[10]"])


def test_the_worst_are_those_that_findings_name() -> None:
    x = normal(4, 400, 50)
    x[:, :, 7] += np.arange(4)[:, None]
    idata = made_up({"x": x})
    texts = " ".join(finding.text for finding in stanadapt.diagnose(idata))
    (name, faults), *_ = worst({"x": x})
    assert name == "x[7]"
    assert f"worst {name}" in texts
    assert len(faults) == len(stanadapt.diagnose(idata)) - texts.count("sits apart")


def test_where_nothing_is_wrong_titles_say_so() -> None:
    idata = made_up({"x": normal(4, 1_000, 20)})
    table = stanadapt.summary(idata)
    axes = stanadapt.plot_chains(idata)
    assert axes.shape == (4, 3)
    titles = [title(ax) for ax in axes[:, 0]]
    assert titles[0].startswith(f"{table['r_hat'].idxmax()}: R-hat {table['r_hat'].max():.3f} (the largest)")
    assert f"bulk ESS {table['ess_bulk'].min():,.0f} (the smallest)" in titles[1]
    assert f"tail ESS {table['ess_tail'].min():,.0f} (the smallest)" in " ".join(titles)


def test_traces_are_the_draws() -> None:
    x = normal(3, 50, 2)
    axes = stanadapt.plot_chains(made_up({"x": x, "y": normal(3, 50)}), ["x"], most=1)
    assert axes.shape == (1, 3)
    trace, ranks, density = axes[0]
    row = int(title(trace)[2])
    drawn = [line for line in trace.lines if len(line.get_xdata()) == 50]
    assert [line.get_color() for line in drawn] == list(canvas.COLOURS[:3])
    for chain, line in enumerate(drawn):
        np.testing.assert_array_equal(line.get_ydata(), x[chain, :, row])
    assert len(density.lines) == 3
    assert {line.get_color() for line in ranks.lines} >= set(canvas.COLOURS[:3])
    assert [ax.get_xlabel() for ax in (trace, density)] == ["draw", "value"]
    assert "rank" in ranks.get_xlabel()


def test_densities_of_chains_that_lie_apart_are_drawn_at_their_own_scales() -> None:
    """The density of a chain that hardly moves would make flat lines of the others."""
    x = normal(4, 300)
    x[2] = 8.0 + 0.02 * x[2]
    density = stanadapt.plot_chains(made_up({"x": x}))[0, 2]
    assert [np.max(line.get_ydata()) for line in density.lines] == [1.0] * 4
    assert density.get_ylabel() == "density, own scales"
    together = stanadapt.plot_chains(made_up({"x": normal(4, 300)}))[0, 2]
    assert len({np.max(line.get_ydata()) for line in together.lines}) == 4
    assert together.get_ylabel() == "density"


def test_divergences_are_marked() -> None:
    diverging = np.zeros((2, 100), bool)
    diverging[1, 30] = True
    coords = {"chain": [0, 1], "draw": np.arange(100)}
    stats = xarray.Dataset({"diverging": (("chain", "draw"), diverging)}, coords=coords)
    axes = stanadapt.plot_chains(made_up({"x": normal(2, 100)}, sample_stats=stats))
    assert legend(axes) == ["chain 0", "chain 1", "divergence"]
    marks = [line for line in axes[0, 0].lines if line.get_marker() == "|"]
    places = [np.asarray(line.get_xdata()) for line in marks]
    places += [each.get_offsets()[:, 0] for each in axes[0, 0].collections]
    found = np.concatenate(places) if places else np.array([])
    assert 30 in found[np.isfinite(found)]
    draw(axes)


@pytest.mark.parametrize("kind", ["constant", "nan", "infinite", "integers", "short", "boolean"])
def test_odd_draws_are_drawn(kind: str) -> None:
    x: Any = normal(2, 60)
    if kind == "constant":
        x[:] = 2.0
    elif kind == "nan":
        x[0, 3] = np.nan
    elif kind == "infinite":
        x[1, 3] = -np.inf
    elif kind == "integers":
        x = np.random.default_rng(1).poisson(2.0, (2, 60))
    elif kind == "boolean":
        x = x > 0.0
    elif kind == "short":
        x = x[:, :2]
    axes = stanadapt.plot_chains(made_up({"x": x}))
    draw(axes)
    if kind in ("constant", "nan", "infinite", "short"):
        words = {"constant": "the same", "short": "too few"}.get(kind, "NaN or infinite")
        assert words in title(axes[0, 0])
    if kind != "short":
        draw(stanadapt.plot_ess(made_up({"x": x})))


# All of them


def test_axes_of_users() -> None:
    idata = made_up({"x": normal(4, 100, 3)})
    figure, given = canvas.pyplot().subplots(3, 3)
    before = len(canvas.pyplot().get_fignums())
    axes = stanadapt.plot_chains(idata, axes=given)
    assert np.array_equal(axes, given)
    assert not figure.legends
    assert len(canvas.pyplot().get_fignums()) == before
    with pytest.raises(ArgumentError, match=r"axes: 9 are given, and this picture needs 6"):
        stanadapt.plot_chains(idata, axes=given, most=2)
    with pytest.raises(ArgumentError, match="axes"):
        stanadapt.plot_chains(idata, axes=["here"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"figsize": 3}, "figsize"),
        ({"figsize": (3, -1)}, "figsize"),
        ({"most": 0}, "most"),
        ({"var_names": ["unknown"]}, "unknown"),
        ({"var_names": []}, "var_names"),
    ],
)
def test_bad_arguments(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        stanadapt.plot_chains(made_up({"x": normal(2, 50)}), **options)


@pytest.mark.parametrize("name", ["plot_adaptation", "plot_preconditioner", "plot_policy"])
@pytest.mark.parametrize("wanted", [[], 3, ["unknown"], [3]])
def test_bad_names(runs: dict[str, Any], name: str, wanted: Any) -> None:
    with pytest.raises(ArgumentError, match="var_names"):
        getattr(stanadapt, name)(result(runs, "rlmh"), wanted)


@pytest.mark.parametrize("name", PICTURES)
def test_what_is_no_result_is_refused(name: str) -> None:
    with pytest.raises(StanAdaptError, match="idata"):
        getattr(stanadapt, name)({"x": 3})


def test_figures_have_the_size_that_is_asked_for() -> None:
    axes = stanadapt.plot_ess(made_up({"x": normal(2, 50)}), figsize=(3.0, 2.0))
    assert tuple(axes[0, 0].figure.get_size_inches()) == (3.0, 2.0)


@pytest.mark.parametrize(
    "name", ["$\\frac{1}$", "<script>", thorough("\x1b[31m"), thorough("_hidden"), thorough("a/b\\c")]
)
def test_names_of_users_are_texts(name: str) -> None:
    """matplotlib takes dollars for mathematics and would fail at some of it."""
    x = normal(4, 50, 1)
    coords = {"chain": np.arange(4), "draw": np.arange(50), "who": [name]}
    posterior = xarray.Dataset({"x": (("chain", "draw", "who"), x)}, coords=coords)
    for idata in (container({"posterior": posterior}), learnt(np.array([np.eye(2)] * 2), [name, "other"])):
        plots = [stanadapt.plot_chains, stanadapt.plot_ess] if idata is not None else []
        if "adaptation" in datasets(idata):
            plots = [stanadapt.plot_preconditioner]
        for plot in plots:
            text = canvas.to_svg(plot, idata)
            assert "<script>" not in text
            assert "\x1b" not in text


@pytest.mark.parametrize(
    ("name", "shown"), [("a$b$", "a$b$"), ("a\\b", "a\\b"), ("_x", " _x"), ("\n", "\\n")]
)
def test_names_are_shown_as_they_are(name: str, shown: str) -> None:
    text = canvas.to_svg(stanadapt.plot_ess, made_up({name: normal(2, 50)}))
    found = [each.text for each in ElementTree.fromstring(text).iter() if each.tag.endswith("}text")]
    assert shown in found


def test_an_svg_stands_in_a_page() -> None:
    idata = made_up({"x": normal(4, 100, 2)})
    before = canvas.pyplot().get_fignums()
    text = canvas.to_svg(stanadapt.plot_chains, idata, most=1)
    assert text.startswith("<svg")
    assert "currentColor" in text
    assert canvas.pyplot().get_fignums() == before
    assert text == canvas.to_svg(stanadapt.plot_chains, idata, most=1)


def test_many_chains() -> None:
    axes = stanadapt.plot_chains(made_up({"x": normal(40, 50)}))
    assert legend(axes) == ["chain 0", "chain 39"]
    assert len(set(map(tuple, canvas.colours(40)))) == 40


def test_settings_of_users_stay() -> None:
    settings = canvas.matplotlib().rcParams
    before = dict(settings)
    stanadapt.plot_chains(made_up({"x": normal(2, 50)}))
    assert {key: value for key, value in settings.items() if before[key] != value} == {}


def test_rows_of_a_posterior_by_their_places() -> None:
    draws = {"a": normal(2, 5), "b": normal(2, 5, 2, 3), "c": normal(2, 5, 4)}
    posterior = datasets(made_up(draws))["posterior"]
    flat = np.concatenate([values.reshape(2, 5, -1) for values in draws.values()], axis=2)
    rows = [0, 1, 6, 7, 10, 3]
    np.testing.assert_array_equal(rows_of(posterior, rows), flat[:, :, rows].transpose(2, 0, 1))
    assert row_names(posterior)[6] == "b[1, 2]"


def test_matplotlib_is_imported_with_the_first_picture_alone() -> None:
    code = (
        "import sys, stanadapt; stanadapt.plot_chains; "
        "print('matplotlib' in sys.modules, 'arviz' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "False"]


def test_without_a_display_no_backend_is_chosen() -> None:
    """A figure is made and written where there is no display, and pyplot is left as it decides."""
    code = (
        "import numpy as np, xarray, stanadapt\n"
        "from stanadapt.result.container import container\n"
        "x = np.random.default_rng(1).standard_normal((2, 50))\n"
        "axes = stanadapt.plot_ess(container({'posterior': xarray.Dataset({'x': (('chain', 'draw'), x)}, "
        "{'chain': [0, 1], 'draw': np.arange(50)})}))\n"
        "import matplotlib; axes[0, 0].figure.canvas.draw(); print(matplotlib.get_backend().lower())"
    )
    import os

    kept = {key: value for key, value in os.environ.items() if key not in ("DISPLAY", "MPLBACKEND")}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=kept)
    assert found.stdout.split()[-1] == "agg"
