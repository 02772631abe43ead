"""Evidences of models: the bridge, its proposal, what is refused, and models beside each other."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import cmdstanpy
import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

import fake_cmdstan
import stanadapt
from conjugate import MODELS, drawn
from stanadapt.evidence.bridge_sampling import bridge, log_integral
from stanadapt.evidence.proposals import Coordinates, fit_proposal, to_x, to_z
from stanadapt.model.log_constants import log_constant, unit_vectors
from stanadapt.result.container import container, datasets
from stanadapt.result.files import write
from stanadapt.transport.map_table import no_transport
from stanadapt.transport.tail import Tails, tail_rows

MODEL = MODELS["regression"](3)
PLAIN = [Coordinates(no_transport(), None)]

pytestmark = pytest.mark.filterwarnings("ignore::stanadapt.StanAdaptWarning")


@pytest.fixture(scope="module")
def result() -> Any:
    """Exact draws."""
    return drawn(MODEL, 4, 400, 0.0, np.random.default_rng(1))


@pytest.fixture(scope="module")
def fit(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A run of ours, and its store."""
    store = tmp_path_factory.mktemp("store") / "run"
    run = {"method": "rwm", "chains": 2, "draws": 2000, "seed": 1, "progress": False}
    return stanadapt.sample(MODEL.code, MODEL.data, store=store, **run), store


def ratios(seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """log q - log g at draws of either, where q has the integral 1, g is N(0.5, 1.5^2), and 4 chains."""
    rng, q, g = np.random.default_rng(seed), stats.norm(), stats.norm(0.5, 1.5)
    x, y = rng.normal(size=(4, 500)), rng.normal(0.5, 1.5, 2000)
    return q.logpdf(x) - g.logpdf(x), q.logpdf(y) - g.logpdf(y)


def test_the_bridge_is_the_fixed_point_of_meng_and_wong() -> None:
    at_draws, at_proposals = ratios()
    r, s_1 = 1.0, 0.3
    for _ in range(200):
        top = np.mean(np.exp(at_proposals) / (s_1 * np.exp(at_proposals) + (1.0 - s_1) * r))
        r = top / np.mean(1.0 / (s_1 * np.exp(at_draws) + (1.0 - s_1) * r))
    found = log_integral(at_draws.ravel(), at_proposals, math.log(s_1 / (1.0 - s_1)))
    assert found == pytest.approx(math.log(r), abs=1e-8)


@pytest.mark.parametrize("constant", [0.0, 1e3, -1e5])
def test_a_constant_passes_through_the_bridge(constant: float) -> None:
    at_draws, at_proposals = ratios()
    plain, moved = bridge(at_draws, at_proposals), bridge(at_draws + constant, at_proposals + constant)
    assert abs(plain.log_integral) < 4.0 * plain.standard_error < 0.1
    assert moved.log_integral - constant == pytest.approx(plain.log_integral, abs=1e-6)
    assert moved.standard_error == pytest.approx(plain.standard_error, rel=1e-6)


def test_a_perfect_proposal_makes_no_error() -> None:
    found = bridge(np.full((2, 50), 7.0), np.full(100, 7.0))
    assert found.log_integral == pytest.approx(7.0, abs=1e-9)
    assert found.standard_error == 0.0
    np.testing.assert_allclose(found.by_chain, 7.0, atol=1e-9)


def test_where_the_proposal_is_far_away() -> None:
    nowhere = bridge(np.zeros((2, 50)), np.full(100, -np.inf))
    assert math.isnan(nowhere.log_integral)
    far = bridge(np.full((2, 50), 1e3), np.full(100, -2e3))
    assert np.isfinite(far.log_integral)
    assert -2e3 <= far.log_integral <= 1e3


def test_errors_are_those_of_draws_that_are_autocorrelated() -> None:
    """A chain that repeats each draw 10 times has sqrt(10) times the error."""
    at_draws, at_proposals = ratios()
    plain, sticky = bridge(at_draws, at_proposals), bridge(np.repeat(at_draws, 10, axis=1), at_proposals)
    assert sticky.effective_draws == pytest.approx(plain.effective_draws, rel=0.35)
    assert sticky.draw_error == pytest.approx(plain.draw_error, rel=0.35)


@pytest.mark.parametrize(("degrees", "law"), [(np.inf, "normal"), (4.5, "Student t")])
def test_a_proposal_has_the_density_of_its_draws(degrees: float, law: str) -> None:
    rng = np.random.default_rng(3)
    root = np.array([[2.0, 0.0, 0.0], [0.5, 1.0, 0.0], [-1.0, 0.3, 0.2]])
    steps = rng.normal(size=(2, 3000, 3)) @ root.T
    if np.isfinite(degrees):
        steps /= np.sqrt(rng.chisquare(degrees, size=(2, 3000, 1)) / degrees)
    proposal = fit_proposal(steps + np.array([1.0, 2.0, 3.0]), PLAIN)
    assert proposal.describe().startswith(law)
    cov = proposal.root @ proposal.root.T
    own = stats.multivariate_normal(proposal.mean, cov)
    if np.isfinite(proposal.degrees):
        nu = proposal.degrees
        own = stats.multivariate_t(proposal.mean, cov * (nu - 2.0) / nu, nu)
    z = proposal.draw(4000, rng)
    np.testing.assert_allclose(proposal.log_density(z), own.logpdf(z), rtol=1e-9)
    assert np.all(np.abs(z.mean(axis=0) - proposal.mean) < 5.0 * np.sqrt(np.diag(cov) / 2000))
    if np.isinf(proposal.degrees):
        np.testing.assert_allclose(np.cov(z.T), cov, atol=0.25 * np.diag(cov).max())


def test_a_covariance_of_few_draws_moves_towards_what_was_learnt() -> None:
    d, rng = 60, np.random.default_rng(4)
    cov = 0.95 ** np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    x = rng.multivariate_normal(np.zeros(d), cov, size=(2, 40))
    with_metric = fit_proposal(x, [Coordinates(no_transport(), 7.0 * cov)])
    without = fit_proposal(x, PLAIN)
    assert with_metric.shrinkage == 1.0
    assert without.shrinkage > 0.0
    fresh = rng.multivariate_normal(np.zeros(d), cov, size=1000)
    assert with_metric.log_density(fresh).mean() > without.log_density(fresh).mean() + 5.0


def test_learnt_coordinates_are_used_where_they_help() -> None:
    table = tail_rows(Tails(np.array([0]), np.array([1.0]), np.array([2.0])))
    rng = np.random.default_rng(5)
    z = rng.normal(size=(2000, 2))
    x, log_det = to_x(table, z)
    back, again = to_z(table, x)
    np.testing.assert_allclose(back, z, atol=1e-9)
    np.testing.assert_allclose(again, log_det, atol=1e-9)
    step = 1e-6 * np.eye(2)[0]
    slope = (to_x(table, z + step)[0] - to_x(table, z - step)[0])[:, 0] / 2e-6
    np.testing.assert_allclose(np.log(slope), log_det, atol=1e-5)
    candidates = [Coordinates(table, None), *PLAIN]
    assert len(fit_proposal(x.reshape(2, 1000, 2), candidates).transport) == 1
    assert len(fit_proposal(z.reshape(2, 1000, 2), candidates).transport) == 0


def test_the_density_in_learnt_coordinates_has_its_jacobian(monkeypatch: pytest.MonkeyPatch) -> None:
    """A heavy tail, whose integral is known, by a proposal in the coordinates in which it is normal."""
    target = stanadapt.Target.from_python(lambda x: float(stats.t(2).logpdf(x[0])), 1)
    table = tail_rows(Tails(np.array([0]), np.array([0.0]), np.array([1.2])))
    monkeypatch.setattr("stanadapt.evidence.fitted_draws._candidates", lambda *_: [Coordinates(table, None)])
    x = stats.t(2).rvs(size=(4, 500, 1), random_state=np.random.default_rng(6))
    held = container({"posterior": dataset(x[..., 0])})
    found = stanadapt.log_evidence(held, target)
    assert "learnt" in found.proposal
    assert abs(found.log_evidence) < 4.0 * found.standard_error < 0.2


def dataset(x: np.ndarray, name: str = "x") -> Any:
    """A posterior group of one vector, or scalar."""
    import xarray

    array = x[..., None] if x.ndim == 2 else x
    return xarray.Dataset({name: (("chain", "draw", "i"), array)})


def test_an_evidence_that_is_known(result: Any) -> None:
    found = stanadapt.log_evidence(result, MODEL.code, MODEL.data, seed=2)
    assert abs(found.log_evidence - MODEL.log_evidence) < 4.0 * found.standard_error < 0.1
    assert (found.log_evidence, found.standard_error) == found[:2]
    assert found.log_evidence == pytest.approx(np.mean(found.by_half))
    assert len(found.by_chain) == 4
    assert "target +=" in found.density
    assert found.findings == ()
    assert str(found).startswith(f"log evidence {found.log_evidence:.3f}, standard error ")
    again = stanadapt.log_evidence(result, MODEL.code, MODEL.data, seed=2)
    assert again.log_evidence == found.log_evidence
    other = stanadapt.log_evidence(result, MODEL.code, MODEL.data, seed=3)
    assert other.log_evidence != found.log_evidence


def test_fits_in_files_and_stores(fit: tuple[Any, Path], tmp_path: Path) -> None:
    idata, store = fit
    write(idata, tmp_path / "fit.nc")
    there = [
        stanadapt.log_evidence(tmp_path / "fit.nc", MODEL.code, MODEL.data),
        stanadapt.log_evidence(store),
        stanadapt.log_evidence(idata),  # which names its store
        stanadapt.log_evidence(idata, stanadapt.Posterior(MODEL.code, MODEL.data)),
    ]
    assert abs(there[0].log_evidence - MODEL.log_evidence) < 4.0 * there[0].standard_error
    np.testing.assert_allclose([each.log_evidence for each in there], there[0].log_evidence, rtol=1e-9)


def test_a_fit_of_cmdstanpy(tmp_path: Path) -> None:
    path = tmp_path / "model.stan"
    path.write_text(MODEL.code)
    model = cmdstanpy.CmdStanModel(stan_file=path, exe_file=fake_cmdstan.make(path))
    run: dict[str, Any] = {"chains": 2, "iter_warmup": 300, "iter_sampling": 500, "seed": 1, "sig_figs": 18}
    run |= {"metric": "diag_e", "max_treedepth": 10, "adapt_engaged": True, "show_progress": False}
    inits = {"beta": [0.1, 0.2], "v": 1.0}
    drawn_there = model.sample(data=_plain(MODEL.data), output_dir=tmp_path, inits=inits, **run)
    found = stanadapt.log_evidence(drawn_there, path, MODEL.data)
    assert abs(found.log_evidence - MODEL.log_evidence) < 4.0 * found.standard_error < 0.2
    assert found.findings == ()


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    return {name: np.asarray(value).tolist() for name, value in data.items()}


def test_draws_of_other_data_are_seen(fit: tuple[Any, Path], result: Any) -> None:
    others = MODEL.data | {"y": MODEL.data["y"] + 1.0}
    idata, _ = fit
    with pytest.raises(stanadapt.ArgumentError, match=r"data: .* these are other data"):
        stanadapt.log_evidence(idata, MODEL.code, others)
    with pytest.raises(stanadapt.ArgumentError, match="model: idata was drawn from another program"):
        stanadapt.log_evidence(idata, MODEL.code + "\n", MODEL.data)
    # Other programs' results do not say which program they are of: there it is a finding.
    groups = {name: datasets(idata)[name].copy() for name in ("posterior", "sample_stats")}
    for group in groups.values():
        group.attrs.clear()
    kinds = [each.kind for each in stanadapt.log_evidence(container(groups), MODEL.code, others).findings]
    assert "density" in kinds


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x.drop_vars("v"), "lacks the parameter v of the model"),
        (lambda x: x.isel(beta_dim_0=slice(1)), r"has beta of shape \(1,\)"),
        (lambda x: x.isel(draw=slice(30)), "result has 30 draws a chain; at least 40"),
        (lambda x: x.isel(chain=0, drop=True), "result has no draws"),
        (lambda x: x.where(x.v < np.inf, np.nan) * 0.0 + 1.0, "a chain that has not moved"),
        (lambda x: x.where(x.v < x.v.max()), "cannot be made|not finite"),
        (lambda x: -x, "cannot be made unconstrained"),
    ],
)
def test_draws_that_are_refused(change: Any, words: str, result: Any) -> None:
    posterior = change(datasets(result)["posterior"])
    with pytest.raises(stanadapt.ArgumentError, match=words):
        stanadapt.log_evidence(container({"posterior": posterior}), MODEL.code, MODEL.data)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((3, MODEL.code), "result=3 is not allowed"),
        (("nowhere.nc", MODEL.code), "result: nowhere.nc: there is no such file"),
        ((None, "parameters { real x; } model { x ~ normal(0, 1); }"), "lacks the parameter x"),
        ((None, "model { }"), "no parameters, so there is nothing to integrate"),
        ((None,), "model is missing"),
    ],
)
def test_arguments_that_are_refused(arguments: Any, words: str, result: Any) -> None:
    first, *rest = arguments
    with pytest.raises(stanadapt.ArgumentError, match=words):
        stanadapt.log_evidence(result if first is None else first, *rest)


def test_a_density_that_is_estimated_is_refused(result: Any) -> None:
    target = stanadapt.Target.from_python(lambda x, rng: -0.5 * float(x @ x) + rng.normal(), 1, noisy=True)
    with pytest.raises(stanadapt.ArgumentError, match="density is only estimated"):
        stanadapt.log_evidence(result, target)


@pytest.mark.parametrize("constant", [0.0, -700.0])
def test_a_function_in_python_is_taken_as_it_is(constant: float) -> None:
    target = stanadapt.Target.from_python(lambda x: constant - 0.5 * float(x @ x), 2)
    x = np.random.default_rng(2).normal(size=(4, 300, 2))
    found = stanadapt.log_evidence(container({"posterior": dataset(x)}), target)
    expected = constant + math.log(2.0 * math.pi)
    assert abs(found.log_evidence - expected) < 4.0 * found.standard_error < 0.1
    assert "taken as the log of likelihood times prior" in found.density


def test_bridgestan_is_asked_for_the_constants(gaussian_libraries: dict[str, Path]) -> None:
    """Of the stand-in for a compiled program, whose density is normalised where it keeps all constants."""
    posterior = stanadapt.Posterior(gaussian_libraries["threads"])
    rng = np.random.default_rng(1)
    groups = {"posterior": dataset(rng.normal(size=(4, 300, 2)), "x")}
    groups["posterior"]["sigma"] = (("chain", "draw"), np.exp(rng.normal(size=(4, 300))))
    found = stanadapt.log_evidence(container(groups), posterior)
    assert abs(found.log_evidence) < 4.0 * found.standard_error < 0.1
    assert found.density == "Stan's log density, asked for all constants"


BRANCHES = """parameters { real x; } model { if (x > 0) x ~ normal(0, 1); else x ~ normal(0, 2); }"""


def test_constants_that_depend_on_parameters_are_refused() -> None:
    """Without them, the two halves have masses of 1 to 2, and with them of 1 to 1."""
    with pytest.raises(stanadapt.ModelError, match=r"not the same everywhere \(they differ by 0\.693"):
        log_constant(stanadapt.Posterior(BRANCHES), np.array([[-1.0], [2.0]]))


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            "functions { void f_lp(real x) { x ~ cauchy(0, 1) T[0, ]; } } parameters { real<lower=0> x; }",
            "a truncation",
        ),
        ("", "its text is not known"),
    ],
)
def test_constants_that_cannot_be_found_are_refused(code: str, words: str) -> None:
    posterior = stanadapt.Posterior(f"{code} model {{ f_lp(x); }}" if code else MODEL.code, MODEL.data)
    if not code:
        posterior = stanadapt.Posterior(posterior.model.model)  # open, and without the text
    with pytest.raises(stanadapt.ModelError, match=words):
        log_constant(posterior, np.zeros((2, posterior.dim)) + 0.1)


def test_a_rewritten_program_with_another_gradient_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    other = MODEL.code.replace("1.5 * sqrt(v)", "1.6 * sqrt(v)")
    monkeypatch.setattr("stanadapt.model.log_constants.keep_constants", lambda _: other)
    posterior = stanadapt.Posterior(MODEL.code, MODEL.data)
    with pytest.raises(stanadapt.ModelError, match=r"another gradient\. Write the program's statements"):
        log_constant(posterior, np.zeros((2, posterior.dim)) + 0.1)


UNIT_VECTORS = """parameters { array[2] unit_vector[3] u; real a; }
model { a ~ normal(0, 1); for (i in 1:2) target += 0.0 * u[i][1]; }"""


def test_unit_vectors() -> None:
    """A flat density on two spheres, each of area 4 pi; what they have too much is found by their values."""
    posterior = stanadapt.Posterior(UNIT_VECTORS)
    rng = np.random.default_rng(1)
    x = rng.normal(size=(4, 300, 7))
    assert unit_vectors(posterior, x[0]) == {"u": (2, 3)}
    values = posterior.constrain(x)
    groups = {"posterior": dataset(values["a"], "a_")}
    groups["posterior"]["u"] = (("chain", "draw", "j", "k"), values["u"])
    groups["posterior"]["a"] = (("chain", "draw"), values["a"])
    with pytest.raises(stanadapt.ArgumentError, match=r"u are unit vectors, .* keep_unconstrained=True"):
        stanadapt.log_evidence(container(groups), posterior)
    groups["unconstrained_posterior"] = dataset(x, "x")
    found = stanadapt.log_evidence(container(groups), posterior)
    assert abs(found.log_evidence - 2.0 * math.log(4.0 * math.pi)) < 4.0 * found.standard_error < 0.2


def two_modes(where: np.ndarray) -> Any:
    """Draws near -4 or 4, whose target has two thirds of its mass at 4; and their target."""

    def density(x: np.ndarray) -> float:
        ends = stats.norm.logpdf(x[0], [-4.0, 4.0], [0.5, 0.5]) + np.log([1 / 3, 2 / 3])
        return float(logsumexp(ends))

    x = where + 0.5 * np.random.default_rng(1).normal(size=where.shape)
    return container({"posterior": dataset(x)}), stanadapt.Target.from_python(density, 1)


def test_findings() -> None:
    alternating = 4.0 * (1.0 - 2.0 * (np.arange(600) % 3 == 0))
    sound = stanadapt.log_evidence(*two_modes(np.tile(alternating, (4, 1))))
    assert sound.findings == ()
    assert abs(sound.log_evidence) < 4.0 * sound.standard_error < 0.2
    by_chain = stanadapt.log_evidence(*two_modes(np.repeat([-4.0, 4.0, -4.0, -4.0], 600).reshape(4, 600)))
    assert "chains" in [each.kind for each in by_chain.findings]
    by_half = stanadapt.log_evidence(*two_modes(np.tile(np.repeat([-4.0, 4.0], 300), (4, 1))))
    assert {"halves", "overlap"} & {each.kind for each in by_half.findings}
    assert by_half.standard_error >= 0.3


def test_too_few_draws_for_the_dimension() -> None:
    """240 draws in 80 dimensions: the estimate may be off by several standard errors, and says so."""
    d = 80
    cov = 0.9 ** np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    precision = np.linalg.inv(cov)
    target = stanadapt.Target.from_python(lambda x: -0.5 * float(x @ precision @ x), d)
    x = np.random.default_rng(1).multivariate_normal(np.zeros(d), cov, size=(4, 60))
    found = stanadapt.log_evidence(container({"posterior": dataset(x)}), target)
    assert [each.kind for each in found.findings] == ["overlap"]
    assert "The proposal is not near the posterior" in str(found)
    exact = 0.5 * (d * math.log(2.0 * math.pi) + float(np.linalg.slogdet(cov)[1]))
    assert abs(found.log_evidence - exact) < 5.0


def test_findings_are_warned_of(result: Any) -> None:
    few = container({"posterior": datasets(result)["posterior"].isel(draw=slice(40), chain=slice(1))})
    with pytest.warns(stanadapt.StanAdaptWarning, match="worth .* independent ones"):
        found = stanadapt.log_evidence(few, MODEL.code, MODEL.data)
    assert [each.kind for each in found.findings][:1] == ["few_draws"]


def test_models_beside_each_other() -> None:
    table = stanadapt.compare_models({"a": (-12.0, 0.1), "b": (-10.0, 0.2), "c": (-2000.0, 0.0)})
    assert list(table.index) == ["b", "a", "c"]
    assert table["probability"]["b"] == pytest.approx(1.0 / (1.0 + math.exp(-2.0)))
    assert table["log_bayes_factor"].tolist() == [0.0, 2.0, 1990.0]
    assert table["bayes_factor"]["a"] == pytest.approx(math.exp(2.0))
    assert table["bayes_factor"]["c"] == math.inf
    assert table["bayes_factor_error"].tolist() == pytest.approx([0.0, math.hypot(0.1, 0.2), 0.2])
    p = table["probability"]["b"]
    assert table["probability_error"]["b"] == pytest.approx(p * (1.0 - p) * math.hypot(0.1, 0.2))
    weighted = stanadapt.compare_models({"a": (0.0, 0.1), "b": (0.0, 0.1)}, prior={"a": 3.0, "b": 1.0})
    assert weighted["probability"]["a"] == pytest.approx(0.75)


def test_fits_beside_each_other(result: Any) -> None:
    other = MODEL.code.replace("1.5 * sqrt(v)", "15 * sqrt(v)")
    one = stanadapt.log_evidence(result, MODEL.code, MODEL.data)
    table = stanadapt.compare_models({"one": one, "other": (result, other, MODEL.data)})
    assert table["log_evidence"]["one"] == one.log_evidence
    # With ten times the prior sd of two slopes, about a hundredth.
    assert 3.0 < table["log_bayes_factor"]["other"] < 6.0


@pytest.mark.parametrize(
    ("models", "keywords", "words"),
    [
        ({"a": (0.0, 0.1)}, {}, "at least two models"),
        ([1, 2], {}, "at least two models"),
        ({"a": 1.0, "b": (0.0, 0.1)}, {}, r"models\['a'\]"),
        ({"a": (1.0, 1, 1, 1), "b": (0.0, 0.1)}, {}, r"models\['a'\]"),
        ({"a": (math.nan, 0.1), "b": (0.0, 0.1)}, {}, r"models\['a'\] has no evidence"),
        ({"a": (1.0, 0.1), "b": (0.0, 0.1)}, {"prior": {"a": 1.0}}, "prior="),
        ({"a": (1.0, 0.1), "b": (0.0, 0.1)}, {"prior": {"a": 1.0, "b": 0.0}}, r"prior\['b'\]"),
    ],
)
def test_models_that_are_refused(models: Any, keywords: Any, words: str) -> None:
    with pytest.raises(stanadapt.ArgumentError, match=words):
        stanadapt.compare_models(models, **keywords)


def test_models_of_other_data_are_warned_of(result: Any) -> None:
    one = stanadapt.log_evidence(result, MODEL.code, MODEL.data)
    two = one._replace(observed={"y": "another"})
    with pytest.warns(stanadapt.StanAdaptWarning, match="'one' and 'two' observe other values of y"):
        stanadapt.compare_models({"one": one, "two": two})
