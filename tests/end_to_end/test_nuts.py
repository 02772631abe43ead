"""Stan's own NUTS: its law, what comes out of it, what it refuses, Ctrl-C, and CmdStan's executables."""

from __future__ import annotations

import json
import re
import shutil
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import cmdstanpy
import numpy as np
import pytest
import stanli
import xarray
from click.testing import CliRunner
from scipy import stats
from test_interrupt import TALKATIVE, Child

import fake_cmdstan
import stanadapt
from cases import partly_thorough, thorough
from exact import STAN_LAWS, STAN_WITHOUT_JACOBIAN, StanLaw
from stanadapt import Posterior, check, cli, samplers
from stanadapt.diagnostics.statistics import e_bfmi
from stanadapt.errors import ArgumentError, ChainError, FindingsWarning, InitializationError
from stanadapt.model.backends.stan import stanli_nuts
from stanadapt.model.program import draws_data
from stanadapt.result import files
from stanadapt.result.container import container, datasets, has_datatree
from stanadapt.samplers import nuts

MODELS = Path(__file__).parents[2] / "models"
SCHOOLS = MODELS / "eight_schools" / "eight_schools"
RUN = {"method": "nuts", "chains": 2, "warmup": 200, "draws": 100, "seed": 5, "progress": False}
PROGRAM = """
data { int N; vector[N] y; }
parameters { vector[N] theta; real<lower=0> tau; simplex[3] p; matrix[2, 3] w; }
transformed parameters { vector[N] doubled = 2 * theta; }
model { theta ~ std_normal(); tau ~ exponential(1); y ~ normal(theta, 1); to_vector(w) ~ std_normal(); }
generated quantities {
  vector[N] log_lik; array[N] real y_rep = normal_rng(theta, 1); matrix[2, 3] v = 2 * w;
  for (j in 1:N) log_lik[j] = normal_lpdf(y[j] | theta[j], 1);
}
"""
DATA = {"N": 2, "y": [1.0, 2.0]}
RANDOM_DATA = """
functions { real mine_rng() { return normal_rng(0, 1); } }
transformed data { real u = mine_rng(); }
parameters { real x; } model { x ~ normal(u, 1); }
"""
NORMAL = "parameters { real x; } model { x ~ std_normal(); }"


def sample(model: Any, data: Any = None, **keywords: Any) -> Any:
    """The datasets of a short run, without the findings that a short run gives."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FindingsWarning)
        return datasets(stanadapt.sample(model, data, **(RUN | keywords)))


@pytest.fixture(scope="module")
def program() -> Posterior:
    return Posterior(PROGRAM, DATA)


FULL: dict[str, Any] = {
    "save_warmup": True,
    "keep_unconstrained": True,
    "log_likelihood": "log_lik",
    "posterior_predictive": "y_rep",
    "coords": {"unit": ["a", "b"]},
    "dims": {"theta": ["unit"], "log_lik": ["unit"]},
}


@pytest.fixture(scope="module")
def full(program: Posterior) -> Any:
    """A run with every group."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FindingsWarning)
        return stanadapt.sample(program, **(RUN | FULL))


# Suite 1 for a sampler whose kernel is not ours: as in test_invariance.py, with each exact draw as the start
# of a chain without adaptation. Family-wise level of 0.1 % in each test.
LEVEL, DRAWS, STEPS = 0.001, 8_000, 10
METRICS = {
    "diag_e": np.array([1.0, 0.4, 3.0]),
    "dense_e": np.array([[1.0, 0.5, -0.2], [0.5, 1.5, 0.3], [-0.2, 0.3, 2.0]]),
}


def law_is_kept(law: StanLaw, metric: str) -> bool:
    rng = np.random.default_rng(1)
    exact = law.exact()
    model = stanli.Model(stan_code=law.code, data=law.data)
    fit = model.sample(
        chains=DRAWS,
        samples=STEPS,
        warmup=0,
        adapt_engaged=False,
        metric=metric,
        inv_metric=METRICS[metric],
        step_size=0.5,
        inits=exact.draw(DRAWS, rng),
        seed=1,
        refresh=0,
    )
    uniforms = exact.probabilities(law.unconstrain(fit.draws()[:, -1]))
    p_values = np.array([stats.kstest(column, "uniform").pvalue for column in uniforms.T])
    return bool(p_values.min() > LEVEL / p_values.size)


# The law that is not symmetric sees most.
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("law", partly_thorough(STAN_LAWS, ("skewed",)))
def test_law_is_invariant(law: str, metric: str) -> None:
    assert law_is_kept(STAN_LAWS[law], metric)


@pytest.mark.parametrize("metric", METRICS)
def test_suite_goes_red_without_the_jacobian(metric: str) -> None:
    assert not law_is_kept(STAN_WITHOUT_JACOBIAN, metric)


@pytest.mark.parametrize("law", STAN_LAWS)
def test_programs_have_the_densities_of_their_laws(law: str) -> None:
    stan, target = STAN_LAWS[law], STAN_LAWS[law].exact().target
    posterior = Posterior(stan.code, stan.data)
    points = stan.exact().draw(5, np.random.default_rng(1))
    ours = [posterior.log_density(x) - target.log_density(x) for x in points]
    np.testing.assert_allclose(ours, ours[0], atol=1e-10)
    (constrained,) = posterior.constrain(points).values()
    np.testing.assert_allclose(constrained, stan.constrain(points))


def test_groups_and_shapes(full: Any) -> None:
    groups = datasets(full)
    plain = {"posterior", "sample_stats", "adaptation", "observed_data", "constant_data"}
    asked = {"unconstrained_posterior", "warmup_posterior", "warmup_sample_stats", "log_likelihood"}
    assert set(groups) == plain | asked | {"posterior_predictive"}
    shapes = {name: array.shape for name, array in groups["posterior"].items()}
    assert shapes == {
        "theta": (2, 100, 2),
        "tau": (2, 100),
        "p": (2, 100, 3),
        "w": (2, 100, 2, 3),
        "doubled": (2, 100, 2),
        "v": (2, 100, 2, 3),
    }
    assert groups["warmup_posterior"]["w"].shape == (2, 200, 2, 3)
    assert groups["unconstrained_posterior"]["x"].shape == (2, 100, 11)
    assert groups["posterior"]["theta"].dims == ("chain", "draw", "unit")
    assert list(groups["log_likelihood"]["unit"].values) == ["a", "b"]


def test_values_belong_together(full: Any, program: Posterior) -> None:
    """Parameters come from Stan's sampler and generated quantities from here, for the same draws."""
    groups = datasets(full)
    posterior = groups["posterior"]
    np.testing.assert_array_equal(posterior["doubled"], 2 * posterior["theta"].values)
    np.testing.assert_allclose(posterior["v"], 2 * posterior["w"].values, rtol=1e-12)
    wanted = stats.norm(posterior["theta"].values, 1).logpdf(DATA["y"])
    np.testing.assert_allclose(groups["log_likelihood"]["log_lik"], wanted, rtol=1e-10)
    assert len(np.unique(groups["posterior_predictive"]["y_rep"])) == 400
    x = groups["unconstrained_posterior"]["x"].values
    again = program.constrain(x)
    for name, value in again.items():
        np.testing.assert_allclose(posterior[name], value, rtol=1e-10, atol=1e-12, err_msg=name)
    lp = np.apply_along_axis(program.log_density, -1, x)
    np.testing.assert_allclose(groups["sample_stats"]["lp"], lp, rtol=1e-10)


def test_statistics(full: Any, program: Posterior) -> None:
    groups = datasets(full)
    for name in ("sample_stats", "warmup_sample_stats"):
        found = groups[name]
        assert list(found) == list(nuts.STATS)  # in particular no `accepted`
        assert {column: found[column].dtype for column in found} == nuts.STATS
        depth, steps = found["tree_depth"].values, found["n_steps"].values
        assert depth.min() >= 0
        assert depth.max() <= 10
        # A trajectory of depth j took 2^j - 1 steps, and at most as many again for a half that was dropped.
        assert np.all(steps >= 2**depth - 1)
        assert np.all(steps <= 2 ** (depth + 1) - 1)
        rate = found["acceptance_rate"].values
        assert np.all((rate >= 0) & (rate <= 1))
        assert np.all(found["energy"].values + found["lp"].values >= 0)  # the kinetic energy
    kept = groups["sample_stats"]["step_size"]
    assert np.all(kept == kept.isel(draw=0))
    assert np.ptp(groups["warmup_sample_stats"]["step_size"].values) > 0


def test_energy_of_a_gaussian() -> None:
    """Half of d degrees of freedom in the position, half in the momentum."""
    law = STAN_LAWS["gaussian"]
    energy = sample(law.code, law.data, warmup=500, draws=4_000)["sample_stats"]["energy"].values
    assert abs(energy.mean() - 3) < 5 * np.sqrt(3 / 1_000)


@pytest.mark.parametrize("metric", ["diag", "dense"])
def test_what_is_learnt(metric: str) -> None:
    law = STAN_LAWS["gaussian"]
    groups = sample(law.code, law.data, settings={"metric": metric}, warmup=3_000, keep_unconstrained=True)
    adaptation = groups["adaptation"]
    cov = law.data["chol"] @ law.data["chol"].T
    if metric == "dense":
        assert adaptation["preconditioner"].dims == ("chain", "unconstrained", "unconstrained_2")
        np.testing.assert_allclose(adaptation["preconditioner"], [cov, cov], atol=0.6)
    else:
        assert adaptation["preconditioner_diagonal"].dims == ("chain", "unconstrained")
        np.testing.assert_allclose(adaptation["preconditioner_diagonal"], [np.diag(cov)] * 2, rtol=0.3)
    np.testing.assert_array_equal(adaptation["step_size"], groups["sample_stats"]["step_size"][:, 0])
    assert list(adaptation["unconstrained"].values) == ["x.1", "x.2", "x.3"]
    assert np.all(np.abs(adaptation["start"].values) <= 2)  # where Stan starts, without our climb
    total = adaptation["seconds_total"].values
    np.testing.assert_allclose(adaptation["seconds_warmup"] + adaptation["seconds"], total)
    assert np.all(total > 0)
    # What stanli does not tell is not claimed.
    assert not {"failures", "failures_warmup", "first_failure"} & set(adaptation)
    assert json.loads(groups["posterior"].attrs["settings"])["metric"] == metric


def test_dense_metric_takes_fewer_steps_where_parameters_are_correlated() -> None:
    code = """parameters { vector[2] x; }
    model { x[1] ~ normal(0, 1); x[2] ~ normal(x[1], 0.02); }"""
    steps = {
        metric: sample(code, settings={"metric": metric}, warmup=1_000)["sample_stats"][
            "n_steps"
        ].values.mean()
        for metric in ("diag", "dense")
    }
    assert steps["dense"] < 0.2 * steps["diag"]


def test_draws_are_stans_own(program: Posterior) -> None:
    """Bit for bit those of stanli for the chain's seed and start."""
    groups = sample(SCHOOLS.with_suffix(".stan"), SCHOOLS.with_suffix(".json"), chains=3)
    code = SCHOOLS.with_suffix(".stan").read_text().partition("generated quantities")[0]
    model = stanli.Model(stan_code=code, data=SCHOOLS.with_suffix(".json"))
    for chain in range(3):
        seed = int(np.random.SeedSequence(5, spawn_key=(chain,)).generate_state(2, np.uint32)[1] >> 1)
        start = groups["adaptation"]["start"].values[chain]
        fit = model.sample(chains=1, seed=seed, inits=start, warmup=200, samples=100, refresh=0)
        np.testing.assert_array_equal(groups["posterior"]["theta"].values[chain], fit.draws("theta")[0])


def assert_same(one: Any, other: Any) -> None:
    assert set(one) == set(other)
    for group in one:
        for name in set(one[group]) - {"seconds_warmup", "seconds", "seconds_total"}:
            np.testing.assert_array_equal(one[group][name], other[group][name], err_msg=name)


@pytest.mark.parametrize(
    "change", [thorough({}), {"workers": 1}, thorough({"workers": 3}), {"progress": True}]
)
def test_draws_depend_on_the_seed_alone(change: dict[str, Any], program: Posterior) -> None:
    kept: dict[str, Any] = {"save_warmup": True, "keep_unconstrained": True, "chains": 3}
    assert_same(sample(program, workers=2, **kept), sample(program, **(kept | change)))


def test_chains_and_seeds_differ(program: Posterior) -> None:
    one, other = sample(program)["posterior"], sample(program, seed=6)["posterior"]
    assert len(np.unique(np.concatenate([one["tau"], other["tau"]]))) > 390  # NUTS stays now and then


def test_what_is_kept_does_not_change_the_draws(full: Any, program: Posterior) -> None:
    plain, groups = sample(program)["posterior"], datasets(full)
    for name, group in (("theta", "posterior"), ("y_rep", "posterior_predictive")):
        np.testing.assert_array_equal(plain[name], groups[group][name])


def test_thin_keeps_every_third_of_the_same_run(program: Posterior) -> None:
    keywords: dict[str, Any] = {"draws": 41, "warmup": 50, "save_warmup": True, "keep_unconstrained": True}
    whole, thinned = sample(program, **keywords), sample(program, thin=3, **keywords)
    for group, name in (
        ("posterior", "v"),
        ("sample_stats", "energy"),
        ("unconstrained_posterior", "x"),
        ("warmup_posterior", "theta"),
        ("warmup_sample_stats", "step_size"),
    ):
        np.testing.assert_array_equal(thinned[group][name], whole[group][name][:, 2::3])
    assert thinned["posterior"].sizes["draw"] == 13


def test_in_processes(program: Posterior) -> None:
    apart = Posterior(PROGRAM, DATA)
    apart.model.thread_safe = False
    with pytest.warns(stanadapt.StanAdaptWarning, match="run in processes"):
        found = sample(apart, chains=2, workers=2)
    assert_same(found, sample(program, chains=2))


def test_starts_are_those_that_were_given(program: Posterior) -> None:
    inits = np.random.default_rng(1).uniform(-1, 1, (2, program.dim))
    assert np.array_equal(sample(program, inits=inits)["adaptation"]["start"], inits)
    values = [program.constrain(point) for point in inits]
    np.testing.assert_allclose(sample(program, inits=values)["adaptation"]["start"], inits, atol=1e-12)


def test_generated_quantities_that_reject_are_nan() -> None:
    """And the parameters of such a draw stay, which stanli itself would lose."""
    code = NORMAL + ' generated quantities { real y = x; if (x > 0) reject("no"); }'
    posterior = sample(code)["posterior"]
    fails = posterior["x"].values > 0
    assert 0 < fails.sum() < fails.size
    np.testing.assert_array_equal(np.isnan(posterior["y"].values), fails)
    np.testing.assert_array_equal(posterior["y"].values[~fails], posterior["x"].values[~fails])


def test_names_that_are_words_of_cpp() -> None:
    """stanli has no way back to their unconstrained point, so generated quantities are its own."""
    code = """parameters { real double; real<lower=0> and; }
    model { double ~ std_normal(); and ~ exponential(1); }
    generated quantities { real class = double + and; }"""
    posterior = sample(code)["posterior"]
    assert set(posterior.data_vars) == {"double", "and", "class"}
    np.testing.assert_allclose(posterior["class"], posterior["double"] + posterior["and"])


def test_values_that_round_to_their_boundary() -> None:
    """They have no unconstrained point; the draws themselves are kept."""
    code = """parameters { real<lower=1e16> far; real x; }
    model { target += -(far - 1e16); x ~ std_normal(); }
    generated quantities { real y = x + 1; }"""
    groups = sample(code, keep_unconstrained=True, settings={"max_tree_depth": 3})
    posterior, x = groups["posterior"], groups["unconstrained_posterior"]["x"].values
    edge = posterior["far"].values == 1e16
    assert 0 < edge.sum() < edge.size
    assert np.all(np.isfinite(posterior["x"]))
    np.testing.assert_array_equal(np.isfinite(x).all(axis=2), ~edge)
    np.testing.assert_array_equal(np.isnan(posterior["y"].values), edge)


def test_netcdf_and_back(full: Any, tmp_path: Path) -> None:
    files.write(full, tmp_path / "fit.nc")
    before, after = datasets(full), datasets(files.read(tmp_path / "fit.nc"))
    assert set(before) == set(after)
    for name in before:
        xarray.testing.assert_identical(before[name], after[name])


@pytest.mark.filterwarnings("ignore")
def test_arviz_knows_the_names(full: Any) -> None:
    import arviz
    import matplotlib

    matplotlib.use("Agg")
    assert {"diverging", "energy", "tree_depth", "lp"} <= set(datasets(full)["sample_stats"])
    arviz.plot_energy(full)
    bfmi = np.ravel(arviz.bfmi(full)["energy"] if has_datatree() else arviz.bfmi(full))
    energy = datasets(full)["sample_stats"]["energy"].values
    np.testing.assert_allclose(bfmi, e_bfmi(energy), rtol=0.02)


def with_stats(**columns: Any) -> Any:
    """A result of NUTS with some statistics replaced."""
    groups = sample(NORMAL, draws=1_000, warmup=500)
    for name, column in columns.items():
        groups["sample_stats"][name] = (("chain", "draw"), np.broadcast_to(column, (2, 1_000)))
    return container(groups)


def test_findings() -> None:
    rng = np.random.default_rng(1)
    slow = np.cumsum(rng.standard_normal((2, 1_000)), axis=1)
    deep = np.where(np.arange(1_000) < 7, 10, 3)
    cases: dict[str, tuple[dict[str, Any], str]] = {
        "divergences": ({"diverging": np.arange(1_000) < 4}, r"^8 of 2000 draws.*target_accept"),
        "tree_depth": ({"tree_depth": deep}, r"^14 of 2000 draws hit max_tree_depth=10.*metric='dense'"),
        "energy": ({"energy": slow}, r"E-BFMI is under 0.3: 0.0\d in chain 0, 0.0\d in chain 1"),
        "acceptance": ({"acceptance_rate": 0.5}, "0.50 in chain 0"),
    }
    for kind, (columns, text) in cases.items():
        found = stanadapt.diagnose(with_stats(**columns))
        assert [finding.kind for finding in found] == [kind]
        assert re.search(text, str(found[0]))
    assert stanadapt.diagnose(with_stats(acceptance_rate=0.99)) == []  # more than it aims at does no harm
    assert stanadapt.diagnose(with_stats()) == []


def test_funnel_has_divergences() -> None:
    code = "parameters { real v; vector[9] x; } model { v ~ normal(0, 3); x ~ normal(0, exp(v / 2)); }"
    with pytest.warns(FindingsWarning, match="divergence"):
        idata = stanadapt.sample(code, **(RUN | {"draws": 500, "settings": {"target_accept": 0.5}}))
    assert datasets(idata)["sample_stats"]["diverging"].values.any()


def test_settings_reach_the_sampler(program: Posterior) -> None:
    shallow = sample(program, settings={"max_tree_depth": 2})["sample_stats"]
    assert shallow["tree_depth"].max() == 2
    assert shallow["n_steps"].max() <= 3
    eager = sample(program, settings={"target_accept": 0.5}, warmup=500)["adaptation"]["step_size"]
    careful = sample(program, settings={"target_accept": 0.95}, warmup=500)["adaptation"]["step_size"]
    assert eager.min() > careful.max()


def test_progress_tells_of_chains_that_are_whole(capsys: pytest.CaptureFixture[str]) -> None:
    sample(SLOW.replace("200", "100"), draws=100, warmup=100, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert "0/2 chains" in lines[0]  # though it says how many iterations are done
    assert lines[-1].startswith("nuts: 100%, 400/400 iterations")
    assert re.search(r"spent, 2/2 chains, accept 0\.\d\d, step 0\.\d+$", lines[-1])


@pytest.mark.usefixtures("never_runs")
class TestRefusals:
    def refused(self, parts: list[str], model: Any, **keywords: Any) -> None:
        with pytest.raises(ArgumentError) as caught:
            sample(model, **keywords)
        assert "\n" not in str(caught.value)
        for part in parts:
            assert part in str(caught.value)

    def test_python_target(self) -> None:
        target = stanadapt.Target.from_python(lambda x: -0.5 * float(x @ x), 1, lambda x: -x)
        self.refused(["method='nuts'", "needs a Stan program", "Python functions"], target)

    def test_compiled_library(self, gaussian_libraries: dict[str, Path]) -> None:
        parts = ["method='nuts'", "compiled library (bridgestan", "stanli covers", "CmdStanModel"]
        self.refused(parts, gaussian_libraries["threads"])

    def test_program_that_stanli_does_not_cover(self) -> None:
        posterior = Posterior(NORMAL)
        posterior.model.backend = "bridgestan"
        posterior.code = "parameters { complex z; real x; } model { x ~ std_normal(); }"
        self.refused(["method='nuts'", "stanli covers", "CmdStanModel", "SComplex"], posterior)

    def test_data_that_are_random(self) -> None:
        self.refused(["transformed data draw random numbers (mine_rng)", "pass them as data"], RANDOM_DATA)
        adopted = stanli.bridgestan_model(stan_code=RANDOM_DATA, data={})
        self.refused(["random numbers (another seed", "pass them as data"], adopted)
        sized = """transformed data { int k = 1 + poisson_rng(30); }
        parameters { vector[k] x; } model { x ~ std_normal(); }"""
        self.refused(["transformed data"], stanli.bridgestan_model(stan_code=sized, data={}))

    def test_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        large = Posterior(
            "data { int N; } parameters { vector[N] x; } model { x ~ std_normal(); }", {"N": 10_000}
        )
        monkeypatch.setattr(check, "free_memory", lambda: 3 * 2.0**30)
        parts = ["method='nuts'", "8.9 GiB", "10000 x 10000", "3.0 GiB are free", "Methods that need none: "]
        self.refused(parts, large, settings={"metric": "dense"})
        self.refused(["draws=100000 of 2 chains", "thin"], large, draws=100_000)

    @pytest.mark.parametrize(
        ("settings", "part"),
        [
            ({"metric": "unit"}, "one of diag, dense"),
            ({"metric": 1}, "one of diag, dense"),
            ({"target_accept": 1.0}, "at most 0.9999"),
            ({"target_accept": 0.0}, "above 0"),
            ({"max_tree_depth": 0}, "from 1 to 30"),
            ({"max_tree_depth": 31}, "from 1 to 30"),
            ({"step_size": 1}, "metric, target_accept, max_tree_depth"),
        ],
    )
    def test_settings(self, settings: dict[str, Any], part: str) -> None:
        self.refused(["setting", part], NORMAL, settings=settings)


def test_random_data_are_seen_in_the_text() -> None:
    assert draws_data(RANDOM_DATA) == "mine_rng"
    assert draws_data("transformed data { // normal_rng(0, 1)\n real x = 1; } model {}") == ""
    assert draws_data(PROGRAM) == ""


def test_open_model_of_stanli_is_sampled() -> None:
    code = NORMAL + " generated quantities { real y = x + 1; }"
    adopted = sample(stanli.bridgestan_model(stan_code=code, data={}))["posterior"]
    np.testing.assert_array_equal(adopted["y"], adopted["x"] + 1)


def test_program_that_bridgestan_has_open_goes_to_stanli() -> None:
    posterior = Posterior(PROGRAM, DATA)
    wanted = sample(posterior)
    posterior.model.backend = "bridgestan"
    found = sample(posterior)
    np.testing.assert_array_equal(found["posterior"]["theta"], wanted["posterior"]["theta"])
    assert found["posterior"].attrs["backend"] == f"stanli {stanli.__version__}"


def test_posterior_that_is_improper() -> None:
    with pytest.raises(ChainError, match=r"^chain \d: stanli .* failed: Posterior is improper"):
        sample("parameters { real x; } model { }")


def test_process_that_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    died = (
        sys.executable,
        "-c",
        "import os, sys; print('last words', file=sys.stderr, flush=True); os.abort()",
    )
    monkeypatch.setattr(stanli_nuts, "WORKER", died)
    with pytest.raises(
        ChainError, match=r"chain \d: stanli .*its process died with exit status -6: last words"
    ):
        sample(NORMAL)


def test_runs_outside_the_main_thread() -> None:
    """With a density that stanli itself can only sample in the main thread."""
    law, found = STAN_LAWS["gaussian"], []
    thread = threading.Thread(target=lambda: found.append(sample(law.code, law.data)))
    thread.start()
    thread.join()
    assert_same(found[0], sample(law.code, law.data))


def test_no_start() -> None:
    code = 'parameters { real x; } model { reject("never"); }'
    with pytest.raises(InitializationError, match=r"chain \d: no finite log density and gradient.*never"):
        sample(code)


def test_program_without_parameters() -> None:
    y = sample("generated quantities { real y = normal_rng(0, 1); }", draws=50)["posterior"]["y"]
    assert len(np.unique(y)) == 100


# So costly that a chain takes seconds.
SLOW = """
parameters { vector[200] x; }
model {
  x ~ std_normal();
  for (i in 1:200) for (j in 1:200) target += -square(x[i] - 0.5 * x[j]) / 400;
}
"""
SCRIPT = (
    TALKATIVE
    + """
import sys
import stanadapt
from stanadapt.result import files

program, out, draws = sys.argv[1:]
idata = stanadapt.sample(
    program, method="nuts", seed=1, warmup=100, draws=int(draws), chains=4, workers=1, save_warmup=True
)
files.write(idata, out)
print("goes on")
"""
)


# Chains 0 and 2 wait for the end of the run instead of drawing, as if they were slow.
WAITING = """
import threading
from stanadapt.samplers import nuts

def run(program, settings, x, plan, draw=nuts.run):
    if plan.chain in (1, 3):
        return draw(program, settings, x, plan)
    while not plan.stopped():
        threading.Event().wait(0.02)
    raise RuntimeError("the run has ended")

nuts.run = run
"""


@pytest.mark.timeout(180)
def test_interrupt_keeps_chains_that_are_whole(tmp_path: Path) -> None:
    """Under their own labels: those of the chains that were not are left out."""
    script = WAITING + SCRIPT.replace("workers=1", "workers=4")
    child = Child(script, "parameters { vector[3] x; } model { x ~ std_normal(); }", tmp_path / "fit.nc", 300)
    child.wait_for("2/4 chains")
    child.interrupt()
    status, stdout, stderr = child.end()
    assert (status, stdout) == (0, "goes on\n"), stderr
    assert "stopping with the chains that are whole" in stderr
    groups = datasets(files.read(tmp_path / "fit.nc"))
    for name in ("posterior", "sample_stats", "warmup_posterior", "adaptation"):
        assert list(groups[name]["chain"].values) == [1, 3]
        for values in groups[name].values():
            assert np.all(np.isfinite(values))
    assert groups["posterior"].sizes["draw"] == 300
    note = "interrupted: 2 of 4 chains, 300 of 300 draws each"
    assert groups["posterior"].attrs["interrupted_note"] == note


# `make test` has chains that are whole and others that are not, and interrupts before there are draws.
@pytest.mark.thorough
@pytest.mark.timeout(180)
def test_interrupt_before_a_chain_is_whole(tmp_path: Path) -> None:
    child = Child(SCRIPT, SLOW, tmp_path / "fit.nc", 10**5)
    child.wait_for("0/4 chains")
    child.interrupt()
    status, stdout, stderr = child.end()
    assert (status, stdout) == (0, "goes on\n"), stderr
    idata = files.read(tmp_path / "fit.nc")
    assert datasets(idata)["posterior"].sizes["draw"] == 0
    assert [finding.kind for finding in stanadapt.diagnose(idata)] == ["interrupted", "short"]


def test_command(tmp_path: Path) -> None:
    said = CliRunner().invoke(cli.main, ["methods", "nuts"])
    rows = [line.split() for line in said.stdout.splitlines()[3:]]
    assert ["metric", "diag", "diag,", "dense"] in [row[:4] for row in rows]
    assert ["max_tree_depth", "10", "integer", "of", "at", "least", "1,", "at", "most", "30"] in [
        row[:10] for row in rows
    ]
    assert "Stan's own no-U-turn sampler" in CliRunner().invoke(cli.main, ["methods"]).stdout
    arguments = [
        f"{SCHOOLS}.stan",
        f"--data={SCHOOLS}.json",
        "--method=nuts",
        "--set=metric=dense",
        "--seed=1",
    ]
    arguments += ["--draws=500", "--no-progress", f"--out={tmp_path / 'fit.nc'}"]
    said = CliRunner().invoke(cli.main, ["sample", *arguments])
    assert said.exit_code == 0, said.output
    assert "nuts with stanli" in said.stdout
    groups = datasets(files.read(tmp_path / "fit.nc"))
    assert groups["adaptation"]["preconditioner"].shape == (4, 10, 10)


def test_methods_list_it() -> None:
    row = stanadapt.methods().loc["nuts"]
    assert (row.gradient, row.warmup, row.draws) == (True, 1_000, 1_000)
    assert row.settings == "metric='diag', target_accept=0.8, max_tree_depth=10"
    assert samplers.is_engine(samplers.sampler("nuts"))
    assert not samplers.is_engine(samplers.sampler("rwm"))


# CmdStan: CmdStanPy itself runs an executable that is a stand-in.

# Unconstrained, so that a start keeps all its digits on the way through the file of starting values.
CMDSTAN = """
data { int N; vector[N] y; }
parameters { vector[N] theta; real tau; matrix[2, 3] w; }
transformed parameters { vector[N] doubled = 2 * theta; }
model { theta ~ normal(0, exp(tau)); tau ~ std_normal(); y ~ normal(theta, 1); to_vector(w) ~ std_normal(); }
"""


@pytest.fixture
def cmdstan(tmp_path: Path) -> cmdstanpy.CmdStanModel:
    return cmdstan_model(tmp_path, CMDSTAN)


def cmdstan_model(folder: Path, code: str) -> cmdstanpy.CmdStanModel:
    path = folder / "model.stan"
    path.write_text(code)
    return cmdstanpy.CmdStanModel(stan_file=path, exe_file=fake_cmdstan.make(path))


@pytest.mark.parametrize("metric", ["diag", thorough("dense")])
def test_cmdstan(metric: str, cmdstan: cmdstanpy.CmdStanModel) -> None:
    """The first chain is that of stanli, number by number; the second has another stream in CmdStan."""
    keywords: dict[str, Any] = {"settings": {"metric": metric, "max_tree_depth": 5}, "thin": 2}
    keywords |= {"save_warmup": True, "keep_unconstrained": True}
    theirs, ours = sample(cmdstan, DATA, **keywords), sample(CMDSTAN, DATA, **keywords)
    assert theirs["posterior"].attrs["backend"] == "CmdStan 2.36.0"
    for group in (
        "posterior",
        "warmup_posterior",
        "sample_stats",
        "warmup_sample_stats",
        "unconstrained_posterior",
    ):
        assert set(theirs[group]) == set(ours[group])
        for name in ours[group]:
            assert theirs[group][name].shape == ours[group][name].shape
            assert theirs[group][name].dtype == ours[group][name].dtype
            first = theirs[group][name].values[0]
            np.testing.assert_array_equal(first, ours[group][name].values[0], err_msg=name)
    kind = "preconditioner" if metric == "dense" else "preconditioner_diagonal"
    for name in (kind, "step_size", "start"):
        np.testing.assert_array_equal(theirs["adaptation"][name][0], ours["adaptation"][name][0])
    # CmdStan tells these apart.
    assert np.all(theirs["adaptation"]["seconds_warmup"] == 0.25)
    assert np.all(theirs["adaptation"]["seconds"] == 0.5)
    assert len(np.unique(theirs["posterior"]["tau"])) > 90


def test_cmdstan_with_constraints_and_generated_quantities(tmp_path: Path, program: Posterior) -> None:
    """Every group comes from the executable, and its values belong to the densities of the program."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FindingsWarning)
        groups = datasets(stanadapt.sample(cmdstan_model(tmp_path, PROGRAM), DATA, **(RUN | FULL)))
    x = groups["unconstrained_posterior"]["x"].values
    np.testing.assert_allclose(
        groups["sample_stats"]["lp"], np.apply_along_axis(program.log_density, -1, x), rtol=1e-10
    )
    wanted = stats.norm(groups["posterior"]["theta"].values, 1).logpdf(DATA["y"])
    np.testing.assert_allclose(groups["log_likelihood"]["log_lik"], wanted, rtol=1e-10)
    np.testing.assert_allclose(groups["posterior"]["v"], 2 * groups["posterior"]["w"].values)
    np.testing.assert_allclose(groups["posterior"]["p"].sum(axis=-1), 1)
    assert len(np.unique(groups["posterior_predictive"]["y_rep"])) == 400


def test_cmdstan_says_nothing_of_its_own(
    cmdstan: cmdstanpy.CmdStanModel, capfd: pytest.CaptureFixture[str]
) -> None:
    sample(cmdstan, DATA, settings={"max_tree_depth": 1}, workers=2)
    assert capfd.readouterr() == ("", "")
    assert not cmdstanpy.utils.get_logger().disabled


@pytest.mark.parametrize("warmup", [0, 1])
def test_cmdstan_with_hardly_any_warmup(warmup: int, cmdstan: cmdstanpy.CmdStanModel) -> None:
    groups = sample(cmdstan, DATA, warmup=warmup, draws=5, save_warmup=True)
    assert groups["posterior"]["tau"].shape == (2, 5)
    assert groups["warmup_posterior"]["tau"].shape == (2, warmup)


def test_cmdstans_error_has_the_number_of_the_chain(tmp_path: Path) -> None:
    model = cmdstan_model(tmp_path, "parameters { real x; } model { }")
    with pytest.raises(ChainError, match=r"^chain \d: CmdStan 2.36.0 failed: Error: .*improper") as caught:
        sample(model)
    assert str(tmp_path) not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_executable_of_another_program(tmp_path: Path, cmdstan: cmdstanpy.CmdStanModel) -> None:
    posterior = Posterior(cmdstan, DATA)
    (tmp_path / "model.stan").write_text(CMDSTAN.replace("doubled", "twice"))
    with pytest.raises(ChainError, match=r"chain \d: CmdStan .*another program.*twice"):
        sample(posterior)


def test_executable_that_is_gone(cmdstan: cmdstanpy.CmdStanModel) -> None:
    posterior = Posterior(cmdstan, DATA)
    Path(str(cmdstan.exe_file)).unlink()
    with pytest.raises(ArgumentError, match=r"executable, and .*model is gone"):
        sample(posterior)
    assert sample(posterior, method="mala")["posterior"]["tau"].shape == (2, 100)


# `make test` has processes with stanli, and CmdStan without them.
@pytest.mark.thorough
def test_cmdstan_in_processes(cmdstan: cmdstanpy.CmdStanModel) -> None:
    posterior = Posterior(cmdstan, DATA)
    wanted = sample(posterior)
    posterior.model.thread_safe = False
    with pytest.warns(stanadapt.StanAdaptWarning, match="run in processes"):
        found = sample(posterior, workers=2)
    np.testing.assert_array_equal(found["posterior"]["w"], wanted["posterior"]["w"])


def _has_cmdstan() -> bool:
    with cmdstanpy.disable_logging():
        return cmdstanpy.utils.cmdstan_version() is not None


@pytest.mark.toolchain
@pytest.mark.skipif(not _has_cmdstan(), reason="CmdStan is not on this machine")
def test_real_cmdstan(tmp_path: Path) -> None:
    program = shutil.copy(f"{SCHOOLS}.stan", tmp_path)  # CmdStan puts its executable beside it
    model = cmdstanpy.CmdStanModel(stan_file=program)
    theirs = sample(model, f"{SCHOOLS}.json", warmup=1_000, draws=1_000, chains=4)
    assert theirs["posterior"].attrs["backend"].startswith("CmdStan 2.")
    truth = json.loads((MODELS / "eight_schools" / "truth.json").read_text())["moments"]["mu"]
    assert abs(theirs["posterior"]["mu"].values.mean() - truth["mean"]) < 0.5
    assert np.all(theirs["adaptation"]["seconds"] > 0)
