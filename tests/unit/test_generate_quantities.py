"""Quantities over saved draws: exact copies, the right laws, and random numbers from the seed alone."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray
from click.testing import CliRunner
from scipy import stats

import fake_cmdstan
import stanadapt
from stanadapt.cli import main
from stanadapt.errors import ArgumentError, EvaluationError, ModelError, StanAdaptWarning
from stanadapt.reports import reproduce
from stanadapt.result.container import attributes, container, datasets
from stanadapt.result.files import read, write
from stanadapt.result.labels import Labels

MODELS = Path(__file__).parents[2] / "models"
SCHOOLS = MODELS / "eight_schools" / "eight_schools.stan"
SCHOOLS_DATA = MODELS / "eight_schools" / "eight_schools.json"

CONSTRAINED = """
data { int N; }
parameters {
  real m; real<lower=0> s; real<lower=-1, upper=3> b; simplex[3] p; ordered[2] o; unit_vector[3] u;
  cholesky_factor_corr[3] L; cov_matrix[2] S; matrix[2, 3] A; array[2] vector<lower=1>[2] v;
}
model { m ~ normal(0, 1); s ~ exponential(1); to_vector(A) ~ std_normal(); }
"""
COPIES = """
generated quantities {
  real m_ = m; real s_ = s; real b_ = b; vector[3] p_ = p; vector[2] o_ = o; vector[3] u_ = u;
  matrix[3, 3] L_ = L; matrix[2, 2] S_ = S; matrix[2, 3] A_ = A; array[2] vector[2] v_ = v;
  real twice = 2 * m;
}
"""
RANDOM = (
    "parameters { real m; } model { m ~ std_normal(); } generated quantities { real y = normal_rng(m, 2); }"
)
REJECTS = """
parameters { real m; } transformed parameters { real twice = 2 * m; } model { m ~ std_normal(); }
generated quantities { real y = m; if (m > 1) reject("too large: ", m); }
"""


def result(arrays: dict[str, np.ndarray], **groups: dict[str, np.ndarray]) -> Any:
    """A result with these draws, (chain, draw, ...)."""
    made = {}
    for name, held in {"posterior": arrays, **groups}.items():
        chains, draws = next(iter(held.values())).shape[:2]
        head = {"chain": np.arange(chains), "draw": np.arange(draws)}
        made[name] = Labels({}, {}).dataset(held, head)
    return container(made)


def normal_draws(chains: int = 2, n: int = 50, seed: int = 3) -> Any:
    return result({"m": np.random.default_rng(seed).normal(size=(chains, n))})


def values(idata: Any, name: str, group: str = "posterior") -> np.ndarray:
    return np.asarray(datasets(idata)[group][name].values)


def generate(*args: Any, **keywords: Any) -> Any:
    return stanadapt.generate_quantities(*args, progress=False, **keywords)


@pytest.fixture(scope="module")
def constrained() -> tuple[Any, Any]:
    """Draws of parameters of many kinds, with and without the unconstrained points."""
    posterior = stanadapt.Posterior(CONSTRAINED, {"N": 1})
    x = np.random.default_rng(1).normal(size=(2, 40, posterior.dim))
    plain = result(posterior.constrain(x))
    groups = datasets(plain)
    groups["unconstrained_posterior"] = xarray.Dataset(
        {"x": (("chain", "draw", "unconstrained"), x)},
        coords={"chain": [0, 1], "draw": np.arange(40), "unconstrained": posterior.unconstrained_names},
    )
    return plain, container(groups)


def test_copies_are_the_draws(constrained: tuple[Any, Any]) -> None:
    """To the last bit where the unconstrained points were kept; else up to rounding on the way and back."""
    plain, kept = constrained
    names = [str(name) for name in datasets(plain)["posterior"].data_vars]
    assert len(names) == 10
    for source, tolerance in ((kept, 0.0), (plain, 2e-14)):
        made = generate(CONSTRAINED + COPIES, source, {"N": 1}, seed=1)
        for name in names:
            drawn = values(source, name)
            np.testing.assert_array_equal(values(made, name), drawn)
            np.testing.assert_allclose(values(made, f"{name}_"), drawn, rtol=tolerance, atol=tolerance)
        np.testing.assert_array_equal(values(made, "twice"), 2 * values(source, "m"))


def test_points_that_mean_other_parameters_are_not_used(constrained: tuple[Any, Any]) -> None:
    """The lower bound of another program is 0.5 lower: its points for the same values are others."""
    _, kept = constrained
    lower = CONSTRAINED.replace("real<lower=0> s", "real<lower=-0.5> s")
    made = generate(lower + COPIES, kept, {"N": 1}, seed=1)
    np.testing.assert_allclose(values(made, "s_"), values(kept, "s"), rtol=1e-13)


def test_random_quantities_have_their_law() -> None:
    """y - m is normal with sd 2, and independent of m, each at level 0.01. One of 50 other seeds failed."""
    idata = normal_draws(4, 5000)
    y, m = values(generate(RANDOM, idata, seed=11), "y"), values(idata, "m")
    assert stats.kstest((y - m).ravel(), stats.norm(0, 2).cdf).pvalue > 0.01
    assert abs(np.corrcoef((y - m).ravel(), m.ravel())[0, 1]) < 2.6 / np.sqrt(y.size)
    assert len(np.unique(y - m)) > 0.999 * y.size


@pytest.mark.parametrize("workers", [2, 3, 7])
def test_seeds_alone_decide(workers: int) -> None:
    idata = normal_draws(3, 333)
    first = generate(RANDOM, idata, seed=5, workers=1)
    again = generate(RANDOM, idata, seed=5, workers=workers)
    np.testing.assert_array_equal(values(first, "y"), values(again, "y"))
    other = generate(RANDOM, idata, seed=6, workers=workers)
    assert not np.any(values(first, "y") == values(other, "y"))


def test_a_draw_has_its_numbers_whatever_is_beside_it() -> None:
    whole = normal_draws(3, 100)
    part = result({"m": values(whole, "m")[:2, :37]})
    y, some = values(generate(RANDOM, whole, seed=5), "y"), values(generate(RANDOM, part, seed=5), "y")
    np.testing.assert_array_equal(y[:2, :37], some)
    noise = y - values(whole, "m")
    assert np.abs(noise[0] - noise[1]).min() > 1e-6


def test_a_fresh_seed_is_recorded() -> None:
    idata = normal_draws()
    first = generate(RANDOM, idata)
    seed = attributes(first)["quantities_seed"]
    np.testing.assert_array_equal(values(first, "y"), values(generate(RANDOM, idata, seed=seed), "y"))


@pytest.fixture(scope="module")
def schools() -> Any:
    return stanadapt.sample(
        SCHOOLS,
        SCHOOLS_DATA,
        method="fisher_hmc",
        chains=2,
        draws=100,
        seed=1,
        progress=False,
        coords={"school": list("ABCDEFGH")},
        dims={"theta": ["school"], "y": ["school"]},
        log_likelihood={"y": "log_lik"},
        posterior_predictive={"y": "y_rep"},
    )


def test_groups_are_those_of_sample(schools: Any) -> None:
    made = generate(
        SCHOOLS,
        schools,
        SCHOOLS_DATA,
        seed=2,
        log_likelihood={"y": "log_lik"},
        posterior_predictive={"y": "y_rep"},
    )
    before, after = datasets(schools), datasets(made)
    assert set(after) == set(before)
    for group in before:
        assert {str(name) for name in after[group].data_vars} == {str(n) for n in before[group].data_vars}
        for name in before[group].data_vars:
            assert after[group][name].dims == before[group][name].dims, (group, name)
    np.testing.assert_allclose(after["log_likelihood"]["y"], before["log_likelihood"]["y"], rtol=1e-12)
    np.testing.assert_allclose(after["posterior"]["theta"], before["posterior"]["theta"], rtol=1e-12)
    assert list(after["posterior_predictive"]["school"].values) == list("ABCDEFGH")
    assert json.loads(attributes(made)["quantities"])["posterior_predictive"] == {"y": "y_rep"}
    assert attributes(made)["method"] == "fisher_hmc"
    assert attributes(made)["quantities_failed"] == 0


def test_what_reads_results_reads_it(schools: Any, tmp_path: Path) -> None:
    made = generate(SCHOOLS, schools, SCHOOLS_DATA, seed=2, posterior_predictive={"y": "y_rep"})
    assert len(stanadapt.summary(made, ["mu", "tau"])) == 2
    stanadapt.diagnose(made)
    stanadapt.report(made, tmp_path / "report.html")
    stanadapt.export(made, tmp_path / "draws.csv", progress=False)
    assert "y_rep[8]" in (tmp_path / "draws.csv").read_text().partition("\n")[0]
    write(made, tmp_path / "made.nc")
    again = generate(SCHOOLS, tmp_path / "made.nc", SCHOOLS_DATA, seed=2)
    np.testing.assert_allclose(values(again, "y_rep"), values(made, "y", "posterior_predictive"), rtol=1e-12)


def test_predictions_for_other_data(schools: Any) -> None:
    code = SCHOOLS.read_text()
    code = code.replace(
        "array[J] real<lower=0> sigma; // their standard errors", "array[J] real<lower=0> sigma; int K;"
    )
    code = code.replace("vector[J] log_lik;", "vector[J] log_lik; vector[K] y_new;").replace(
        "for (j in 1 : J) {", "for (k in 1 : K) y_new[k] = normal_rng(mu, tau);\n  for (j in 1 : J) {"
    )
    data = {**json.loads(SCHOOLS_DATA.read_text()), "K": 3}
    made = generate(code, schools, data, seed=2, predictions="y_new")
    groups = datasets(made)
    assert groups["predictions"]["y_new"].shape == (2, 100, 3)
    assert "y_new" not in groups["posterior"]
    assert int(groups["predictions_constant_data"]["K"]) == 3
    assert "K" not in groups["constant_data"]  # those of the fit
    np.testing.assert_array_equal(groups["observed_data"]["y"], data["y"])
    named = generate(code, schools, data, seed=2, predictions={"effect": "y_new"})
    np.testing.assert_array_equal(values(named, "effect", "predictions"), groups["predictions"]["y_new"])
    with pytest.raises(ArgumentError, match="posterior_predictive and predictions both name 'y_new'"):
        generate(code, schools, data, posterior_predictive="y_new", predictions="y_new")


def test_other_data_keep_only_dimensions_that_fit(schools: Any) -> None:
    """A program whose parameters do not depend on the number of data."""
    line = "data { int N; vector[N] y; } parameters { real mu; } model { y ~ normal(mu, 1); } "
    line += "generated quantities { vector[N] y_new; for (n in 1:N) y_new[n] = normal_rng(mu, 1); }"
    made = generate(line, schools, {"N": 2, "y": [1.0, 2.0]}, seed=1)
    assert datasets(made)["posterior"]["y_new"].dims == ("chain", "draw", "y_new_dim_0")
    assert "tau" not in datasets(made)["posterior"]


def test_quantities_that_fail_are_told() -> None:
    idata = normal_draws(2, 200)
    large = values(idata, "m") > 1
    chain, draw = np.argwhere(large)[0]
    with pytest.warns(StanAdaptWarning) as seen:
        made = generate(REJECTS, idata, seed=1)
    (message,) = [str(each.message) for each in seen]
    assert f"fail at {large.sum()} of 400 draws" in message
    assert f"chain {chain}, draw {draw}" in message
    assert "too large: " in message
    assert attributes(made)["quantities_failed"] == large.sum()
    np.testing.assert_array_equal(np.isnan(values(made, "y")), large)
    np.testing.assert_array_equal(values(made, "twice"), 2 * values(idata, "m"))
    with pytest.raises(EvaluationError, match=r"fail at every draw; at chain 0, draw 0: .*too large"):
        generate(REJECTS, result({"m": np.full((1, 5), 2.0)}))


def test_nan_that_a_program_computes_is_told() -> None:
    code = (
        "parameters { real m; } model { m ~ std_normal(); } generated quantities { vector[2] y; y[1] = m; }"
    )
    with pytest.warns(StanAdaptWarning, match="leaves values unset: y at 100 draws"):
        made = generate(code, normal_draws(), seed=1)
    assert attributes(made)["quantities_failed"] == 0


def test_quantities_that_do_not_fail_are_not_warned_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        generate(RANDOM, normal_draws(), seed=1)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": np.zeros((1, 5))}, "result lacks parameters of the model: m; it has a"),
        ({"m": np.zeros((1, 5, 2))}, r"has the parameter m with shape \(2,\), and the model declares \(\)"),
        ({"m": np.full((1, 5), np.nan)}, "5 of 5 draws that the model does not take.*not finite"),
    ],
)
def test_draws_that_do_not_fit_are_refused(arrays: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        generate(RANDOM, result(arrays))


def test_draws_outside_of_the_support_are_refused() -> None:
    code = (
        "parameters { real<lower=0> m; } model { m ~ exponential(1); } generated quantities { real y = m; }"
    )
    with pytest.raises(ArgumentError, match=r"1 of 3 draws .* chain 0, draw 1: .*greater than or equal to 0"):
        generate(code, result({"m": np.array([[1.0, -1.0, 2.0]])}))
    edge = generate(code, result({"m": np.array([[1.0, 0.0, 2.0]])}))
    np.testing.assert_array_equal(values(edge, "y"), [[1.0, 0.0, 2.0]])


def test_what_has_no_quantities_is_refused() -> None:
    with pytest.raises(ModelError, match="nothing to generate"):
        generate("parameters { real m; } model { m ~ std_normal(); }", normal_draws())
    target = stanadapt.Target.from_python(lambda x: -0.5 * float(x @ x), 1)
    with pytest.raises(ModelError, match="nothing to generate"):
        generate(target, result({"x": np.zeros((1, 5, 1))}))
    with pytest.raises(ArgumentError, match="predictions='z' is not allowed"):
        generate(RANDOM, normal_draws(), predictions="z")
    with pytest.raises(ArgumentError, match="result has no draws"):
        generate(RANDOM, container({"prior": xarray.Dataset()}))


def stan_csv(path: Path, m: np.ndarray, warmup: int = 0) -> Path:
    head = (
        f"# method = sample (Default)\n#     num_warmup = {warmup}\n#     save_warmup = {int(bool(warmup))}\n"
    )
    rows = [f"-1.5,{value!r}" for value in [*([99.0] * warmup), *m.tolist()]]
    path.write_text(
        "\n".join([head + "#   seed = 4", "lp__,m", *rows[:warmup], "# Adaptation", *rows[warmup:]]) + "\n#\n"
    )
    return path


@pytest.mark.parametrize("warmup", [0, 4])
def test_stan_csv_files(warmup: int, tmp_path: Path) -> None:
    idata = normal_draws(2, 30)
    m = values(idata, "m")
    files = [stan_csv(tmp_path / f"fit_{i}.csv", m[i], warmup) for i in range(2)]
    made = generate(RANDOM, files, seed=5)
    np.testing.assert_array_equal(values(made, "y"), values(generate(RANDOM, idata, seed=5), "y"))
    np.testing.assert_array_equal(values(made, "lp", "sample_stats"), np.full((2, 30), -1.5))
    alone = generate(RANDOM, str(files[0]), seed=5)
    np.testing.assert_array_equal(values(alone, "y"), values(made, "y")[:1])


def test_our_own_stan_csv_files(schools: Any, tmp_path: Path) -> None:
    files = stanadapt.export(schools, tmp_path / "fit.csv", "stancsv", progress=False)
    made = generate(SCHOOLS, files, SCHOOLS_DATA, seed=3)
    np.testing.assert_array_equal(
        values(made, "y_rep"), values(generate(SCHOOLS, schools, SCHOOLS_DATA, seed=3), "y_rep")
    )


def test_csv_files_that_do_not_go_together(tmp_path: Path) -> None:
    first = stan_csv(tmp_path / "a.csv", np.zeros(5))
    second = stan_csv(tmp_path / "b.csv", np.zeros(4))
    with pytest.raises(ArgumentError, match="chains must be of one length"):
        generate(RANDOM, [first, second])
    second.write_text(first.read_text().replace("lp__,m", "lp__,n"))
    with pytest.raises(ArgumentError, match="other columns"):
        generate(RANDOM, [first, second])
    second.write_text("# method = optimize\nlp__,m\n1,2\n")
    with pytest.raises(ArgumentError, match="method optimize, whose files have no draws"):
        generate(RANDOM, second)
    second.write_text("lp__,m\n1,x\n")
    with pytest.raises(ArgumentError, match="no Stan CSV file, or it is damaged"):
        generate(RANDOM, second)
    with pytest.raises(ArgumentError, match="cannot be read"):
        generate(RANDOM, tmp_path / "none.csv")


def test_a_store(tmp_path: Path) -> None:
    idata = stanadapt.sample(
        RANDOM, method="fisher_hmc", chains=2, draws=50, seed=1, progress=False, store=tmp_path / "run"
    )
    made = generate(RANDOM, tmp_path / "run", seed=5)
    np.testing.assert_array_equal(values(made, "y"), values(generate(RANDOM, idata, seed=5), "y"))


def test_in_a_shell(schools: Any, tmp_path: Path) -> None:
    write(schools, tmp_path / "fit.nc")
    words = ["generate", str(SCHOOLS), str(tmp_path / "fit.nc"), "--data", str(SCHOOLS_DATA), "--seed", "2"]
    words += ["--posterior-predictive", "y=y_rep", "--log-likelihood", "y=log_lik", "--no-progress"]
    words += ["--out", str(tmp_path / "made.nc")]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert "2 chains, 100 draws each, seed 2" in done.output
    assert "posterior_predictive: y\n" in done.output
    made = generate(SCHOOLS, schools, SCHOOLS_DATA, seed=2)
    np.testing.assert_array_equal(
        values(read(tmp_path / "made.nc"), "y", "posterior_predictive"), values(made, "y_rep")
    )
    again = CliRunner().invoke(main, words)
    assert again.exit_code == 2
    assert "use --force to replace it" in again.output


def test_files_of_chains_in_a_shell(tmp_path: Path) -> None:
    (tmp_path / "random.stan").write_text(RANDOM)
    m = values(normal_draws(2, 30), "m")
    files = [str(stan_csv(tmp_path / f"fit_{i}.csv", m[i])) for i in range(2)]
    words = ["generate", str(tmp_path / "random.stan"), *files, "--seed", "5", "--quiet"]
    done = CliRunner().invoke(main, [*words, "--out", str(tmp_path / "made.nc")])
    assert (done.exit_code, done.output) == (0, "")
    made = generate(RANDOM, normal_draws(2, 30), seed=5)
    np.testing.assert_array_equal(values(read(tmp_path / "made.nc"), "y"), values(made, "y"))


def test_lines_that_make_it_again(schools: Any) -> None:
    """The dict is from names in the group to those in the program, as `sample` takes it."""
    drawn = reproduce.lines(datasets(schools), attributes(schools))
    assert drawn is not None
    assert "log_likelihood={'y': 'log_lik'}, posterior_predictive={'y': 'y_rep'}" in drawn.python
    assert "--log-likelihood y=log_lik --posterior-predictive y=y_rep" in drawn.shell
    made = generate(SCHOOLS, schools, SCHOOLS_DATA, seed=2, log_prior=True, predictions={"new": "y_rep"})
    again = reproduce.lines(datasets(made), attributes(made))
    assert again is not None
    first, second = again.python.splitlines()[1:]
    assert "y_rep" not in first
    assert second == (
        "idata = stanadapt.generate_quantities(program, idata, data, seed=2, predictions={'new': 'y_rep'}, "
        "log_prior=True)"
    )
    assert again.shell == ""


def test_a_fit_of_cmdstanpy(tmp_path: Path) -> None:
    """From the object and from its files, which have all digits."""
    cmdstanpy = pytest.importorskip("cmdstanpy")
    stan_file = tmp_path / "random.stan"
    stan_file.write_text(RANDOM)
    model = cmdstanpy.CmdStanModel(stan_file=stan_file, exe_file=fake_cmdstan.make(stan_file))
    run: dict[str, Any] = {"chains": 2, "iter_warmup": 100, "iter_sampling": 60, "seed": 1, "sig_figs": 17}
    run |= {"metric": "diag_e", "max_treedepth": 10, "save_warmup": True, "show_progress": False}
    fit = model.sample(data={"N": 1}, inits={"m": 0.1}, output_dir=tmp_path, **run)
    draws = fit.draws().transpose(1, 0, 2)[:, :, fit.column_names.index("m")]
    made = generate(RANDOM, fit, seed=5)
    np.testing.assert_array_equal(values(made, "m"), draws)
    np.testing.assert_array_equal(
        values(made, "y"), values(generate(RANDOM, result({"m": draws}), seed=5), "y")
    )
    files = generate(RANDOM, fit.runset.csv_files, seed=5)
    np.testing.assert_array_equal(values(files, "y"), values(made, "y"))


def test_quantities_that_fail_where_a_backend_gives_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """stanli gives no parameters either, if it has no program without the quantities to ask."""
    idata = normal_draws(2, 200)
    posterior = stanadapt.Posterior(REJECTS)
    monkeypatch.setattr(posterior.model, "spare", "")
    with pytest.warns(StanAdaptWarning, match=f"fail at {(values(idata, 'm') > 1).sum()} of 400 draws"):
        made = generate(posterior, idata, seed=1, workers=1)
    np.testing.assert_array_equal(values(made, "m"), values(idata, "m"))
    np.testing.assert_array_equal(np.isnan(values(made, "y")), values(idata, "m") > 1)
