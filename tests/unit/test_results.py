"""From arrays to ArviZ: groups, shapes, labels, netCDF, and that draws are held once."""

from __future__ import annotations

import inspect
import json
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
import xarray

import stanadapt
from stanadapt.errors import ArgumentError, FindingsWarning, ModelError, OutputError
from stanadapt.result import files
from stanadapt.result.build import build
from stanadapt.result.container import datasets, has_datatree
from stanadapt.run.preparation.prepare import prepare
from stanadapt.run.request import resolve
from stanadapt.run.workers import turns

MODELS = Path(__file__).parents[2] / "models"
SCHOOLS = MODELS / "eight_schools" / "eight_schools"
RUN = {"method": "mala", "chains": 2, "warmup": 60, "draws": 40, "seed": 5, "progress": False}
RUN_ARGUMENTS = dict.fromkeys(inspect.signature(resolve).parameters) | RUN
RUN_ARGUMENTS |= {"thin": 1, "init_radius": 2.0, "workers": 1, "backend": "auto", "save_warmup": False}
RUN_ARGUMENTS |= {
    "log_likelihood": (),
    "posterior_predictive": (),
    "keep_unconstrained": False,
    "log_prior": False,
}
PROGRAM = """
data { int N; vector[N] y; matrix[2, N] w; real<lower=0> scale; }
parameters { vector[N] theta; real<lower=0> tau; }
transformed parameters { vector[N] doubled = 2 * theta; }
model { theta ~ normal(0, 1); tau ~ exponential(1); y ~ normal(theta, scale); }
generated quantities {
  matrix[2, N] q;
  array[2] vector[N] a;
  vector[N] log_lik;
  array[N] real y_rep = normal_rng(theta, scale);
  for (i in 1:2) for (j in 1:N) { q[i, j] = 10 * i + j; a[i, j] = 10 * i + j; }
  for (j in 1:N) log_lik[j] = normal_lpdf(y[j] | theta[j], scale);
}
"""
DATA = {"N": 3, "y": [1.0, 2.0, 3.0], "w": [[1, 2, 3], [4, 5, 6]], "scale": 2.0}


def sample(model, data=None, **keywords):
    """A short run, without the findings that a short run gives."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FindingsWarning)
        return stanadapt.sample(model, data, **(RUN | keywords))


@pytest.fixture(scope="module")
def program():
    return stanadapt.Posterior(PROGRAM, DATA)


@pytest.fixture(scope="module")
def full(program):
    """A run with every group."""
    return sample(
        program,
        method="fisher_mala",
        save_warmup=True,
        keep_unconstrained=True,
        log_likelihood="log_lik",
        posterior_predictive=["y_rep"],
        coords={"unit": ["a", "b", "c"]},
        dims={"theta": ["unit"], "y": ["unit"], "q": ["row", "unit"], "log_lik": ["unit"], "y_rep": ["unit"]},
    )


def base(array):
    """The array that owns the memory of a view."""
    while array.base is not None:
        array = array.base
    return array


def test_groups(full):
    assert set(datasets(full)) == {
        "posterior",
        "sample_stats",
        "adaptation",
        "unconstrained_posterior",
        "warmup_posterior",
        "warmup_sample_stats",
        "observed_data",
        "constant_data",
        "log_likelihood",
        "posterior_predictive",
    }
    plain = sample(f"{SCHOOLS}.stan", f"{SCHOOLS}.json")
    assert set(datasets(plain)) == {
        "posterior",
        "sample_stats",
        "adaptation",
        "observed_data",
        "constant_data",
    }


def test_shapes_are_the_declared_ones(full):
    shapes = {name: array.shape[2:] for name, array in datasets(full)["posterior"].items()}
    assert shapes == {"theta": (3,), "tau": (), "doubled": (3,), "q": (2, 3), "a": (2, 3)}
    assert all(array.shape[:2] == (2, 40) for array in datasets(full)["posterior"].values())


def test_matrices_are_not_transposed(full):
    for name in ("q", "a"):
        draws = datasets(full)["posterior"][name].values
        np.testing.assert_array_equal(draws, np.broadcast_to([[11, 12, 13], [21, 22, 23]], draws.shape))


def test_blocks_agree(full):
    groups = datasets(full)
    np.testing.assert_array_equal(groups["posterior"]["doubled"], 2 * groups["posterior"]["theta"].values)
    x = groups["unconstrained_posterior"]["x"]
    assert list(x["unconstrained"].values) == ["theta.1", "theta.2", "theta.3", "tau"]
    np.testing.assert_array_equal(x.values[..., :3], groups["posterior"]["theta"].values)
    np.testing.assert_allclose(np.exp(x.values[..., 3]), groups["posterior"]["tau"].values)
    theta = groups["posterior"]["theta"].values
    wanted = -0.5 * ((np.array(DATA["y"]) - theta) / 2) ** 2 - np.log(2) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(groups["log_likelihood"]["log_lik"], wanted)


def test_lp_is_the_density_of_the_draw(full, program):
    groups = datasets(full)
    for prefix in ("", "warmup_"):
        lp = groups[f"{prefix}sample_stats"]["lp"].values
        assert lp.shape == groups[f"{prefix}posterior"]["tau"].shape
    x = groups["unconstrained_posterior"]["x"].values
    np.testing.assert_allclose(
        groups["sample_stats"]["lp"].values, np.apply_along_axis(program.log_density, -1, x), rtol=1e-12
    )


def test_moved_variables_are_in_one_group(full):
    groups = datasets(full)
    assert list(groups["log_likelihood"].data_vars) == ["log_lik"]
    assert list(groups["posterior_predictive"].data_vars) == ["y_rep"]
    for group in ("posterior", "warmup_posterior"):
        assert not {"log_lik", "y_rep"} & set(groups[group])


def test_labels(full):
    posterior = datasets(full)["posterior"]
    assert posterior["theta"].dims == ("chain", "draw", "unit")
    assert posterior["q"].dims == ("chain", "draw", "row", "unit")
    assert posterior["doubled"].dims == ("chain", "draw", "doubled_dim_0")
    assert list(posterior["unit"].values) == ["a", "b", "c"]
    assert list(posterior["chain"].values) == [0, 1]
    assert list(posterior["draw"].values) == list(range(40))
    assert datasets(full)["observed_data"]["y"].sel(unit="b") == 2.0
    assert np.all(posterior["q"].sel(unit="c").isel(row=1) == 23.0)


def test_data(full):
    groups = datasets(full)
    assert set(groups["observed_data"]) - {"unit"} == {"y"}
    assert set(groups["constant_data"].data_vars) == {"N", "w", "scale"}
    np.testing.assert_array_equal(groups["constant_data"]["w"], DATA["w"])


def test_sample_stats(full):
    stats = datasets(full)["sample_stats"]
    assert set(stats.data_vars) == {"lp", "acceptance_rate", "accepted", "step_size", "n_steps"}
    assert stats["accepted"].dtype == bool
    assert np.all((stats["acceptance_rate"] >= 0.0) & (stats["acceptance_rate"] <= 1.0))
    # Kept draws come from a frozen kernel, those of warm-up do not.
    assert np.all(stats["step_size"] == stats["step_size"].isel(draw=0))
    warmup = datasets(full)["warmup_sample_stats"]
    assert np.all(np.diff(warmup["step_size"]) != 0.0)
    # A chain stands where it was exactly when nothing was accepted.
    moved = np.any(np.diff(datasets(full)["unconstrained_posterior"]["x"], axis=1) != 0.0, axis=-1)
    np.testing.assert_array_equal(moved, stats["accepted"].values[:, 1:])


def test_adaptation(full):
    groups = datasets(full)
    adaptation = groups["adaptation"]
    iteration = adaptation["iteration"].values
    assert np.all(np.diff(iteration) > 0)
    assert iteration[-1] == 60
    assert list(dict.fromkeys(adaptation["stage"].values)) == ["simple_mala", "forgetting", "fisher"]
    # What is learnt is what the kept draws use.
    np.testing.assert_array_equal(adaptation["step_size"][:, -1], groups["sample_stats"]["step_size"][:, 0])
    matrix = adaptation["preconditioner"]
    assert matrix.dims == ("chain", "unconstrained", "unconstrained_2")
    np.testing.assert_allclose(matrix.values, matrix.values.swapaxes(1, 2), rtol=1e-10)
    trace = np.trace(matrix.values, axis1=1, axis2=2)
    np.testing.assert_allclose(adaptation["preconditioner_trace"][:, -1], trace, rtol=1e-10)
    np.testing.assert_allclose(
        adaptation["preconditioner_log_det"][:, -1], np.linalg.slogdet(matrix.values)[1], rtol=1e-8
    )
    # The acceptance noted is the mean since the note before.
    rate = groups["warmup_sample_stats"]["acceptance_rate"].values
    between = slice(iteration[-2], iteration[-1])
    np.testing.assert_allclose(adaptation["acceptance_rate"][:, -1], rate[:, between].mean(1))
    assert np.all(adaptation["failures"] == 0)
    assert adaptation["start"].dims == ("chain", "unconstrained")


def test_what_is_learnt_is_what_is_used(full, program):
    """The acceptance rates of kept draws follow from the preconditioner and step size in `adaptation`."""
    groups = datasets(full)
    x = groups["unconstrained_posterior"]["x"].values
    cov = groups["adaptation"]["preconditioner"].values
    step_size = groups["adaptation"]["step_size"].values[:, -1]
    accepted = groups["sample_stats"]["accepted"].values
    reported = groups["sample_stats"]["acceptance_rate"].values
    for chain in range(2):
        proposal = step_size[chain] ** 2 * cov[chain] / (np.trace(cov[chain]) / program.dim)
        inverse = np.linalg.inv(proposal)

        def log_joint(here, there, proposal=proposal, inverse=inverse):
            """Log density at `here` times that of proposing `there` from it, up to a constant."""
            value, score = program.log_density_gradient(here)
            noise = there - here - 0.5 * proposal @ score
            return value - 0.5 * noise @ inverse @ noise

        moves = np.flatnonzero(accepted[chain, 1:]) + 1
        assert len(moves) > 10
        for i in moves:
            ratio = log_joint(x[chain, i], x[chain, i - 1]) - log_joint(x[chain, i - 1], x[chain, i])
            assert reported[chain, i] == pytest.approx(np.exp(min(0.0, ratio)), rel=1e-8)


def test_attributes(full):
    for name, group in datasets(full).items():
        assert all(isinstance(value, str | int | float) for value in group.attrs.values()), name
    attrs = datasets(full)["posterior"].attrs
    assert attrs["method"] == "fisher_mala"
    assert attrs["seed"] == 5
    assert attrs["tuning_steps"] == 60
    assert attrs["inference_library"] == "stanadapt"
    assert json.loads(attrs["settings"])["signal"] == "rao_blackwell"
    assert attrs["sampling_time"] > 0.0
    assert attrs["interrupted"] == 0
    assert len(attrs["model_hash"]) == 16


def test_attributes_of_the_whole_survive_files(full, tmp_path):
    """People look for them on the result itself; they stand on every group too, and in files.

    The program is on the result alone: it may be long.
    """
    expected = dict(full.attrs)
    of_groups = {name: value for name, value in expected.items() if name != "model_code"}
    assert datasets(full)["posterior"].attrs == of_groups
    assert "vector[N] theta" in expected["model_code"]
    files.write(full, tmp_path / "ours.nc")
    full.to_netcdf(str(tmp_path / "arviz.nc"))
    tree = full if has_datatree() else full.to_datatree()
    tree.to_zarr(tmp_path / "fit.zarr")
    with xarray.open_datatree(tmp_path / "fit.zarr", engine="zarr") as store:
        found = dict(store.attrs)
    for attrs in (
        files.read(tmp_path / "ours.nc").attrs,
        files.read(tmp_path / "arviz.nc").attrs,
        found,
    ):
        assert {name: attrs[name] for name in expected} == expected


def test_netcdf_and_back(full, tmp_path):
    path = tmp_path / "run.nc"
    files.write(full, path)
    again = files.read(path)
    assert type(again) is type(full)
    before, after = datasets(full), datasets(again)
    assert set(before) == set(after)
    for name in before:
        xarray.testing.assert_identical(before[name], after[name])
    # arviz reads it as well, and what arviz writes is read here.
    xarray.testing.assert_identical(arviz_read(path)["posterior"], before["posterior"])
    full.to_netcdf(tmp_path / "theirs.nc")
    theirs = datasets(files.read(tmp_path / "theirs.nc"))
    xarray.testing.assert_equal(theirs["adaptation"], before["adaptation"])


def arviz_read(path):
    import arviz

    return datasets(arviz.from_netcdf(str(path)))


def test_tuples_and_complex_numbers(gaussian_libraries, tmp_path):
    idata = sample(gaussian_libraries["threads"])
    posterior = datasets(idata)["posterior"]
    shapes = {name: array.shape[2:] for name, array in posterior.items()}
    assert {"z": (2,), "t:1": (), "t:2": (2,), "q": (2, 3)}.items() <= shapes.items()
    np.testing.assert_array_equal(posterior["z"].values[..., 0], posterior["x"].values[..., 0])
    np.testing.assert_array_equal(posterior["z"].values[..., 1], posterior["sigma"].values)
    np.testing.assert_array_equal(posterior["t:2"].values, posterior["x"].values)
    files.write(idata, tmp_path / "run.nc")
    again = datasets(files.read(tmp_path / "run.nc"))["posterior"]
    xarray.testing.assert_identical(again, posterior)


def test_what_cannot_be_written_or_read(full, tmp_path):
    with pytest.raises(OutputError):
        files.write(full, tmp_path / "nowhere" / "run.nc")
    with pytest.raises(OutputError, match="no such file"):
        files.read(tmp_path / "gone.nc")
    (tmp_path / "text.nc").write_text("no netCDF")
    with pytest.raises(OutputError, match="cannot be read"):
        files.read(tmp_path / "text.nc")
    xarray.Dataset({"x": 1.0}).to_netcdf(tmp_path / "other.nc", engine="h5netcdf")
    with pytest.raises(OutputError, match="no group named posterior"):
        files.read(tmp_path / "other.nc")


@pytest.mark.parametrize("engine", ["scipy", "h5netcdf"])
def test_files_without_groups(engine, tmp_path):
    rng = np.random.default_rng(1)
    posterior = xarray.Dataset(
        {"x": (("chain", "draw"), rng.standard_normal((2, 100)))}, attrs={"by": "hand"}
    )
    posterior.to_netcdf(tmp_path / "run.nc", engine=engine)
    idata = files.read(tmp_path / "run.nc")
    xarray.testing.assert_identical(datasets(idata)["posterior"], posterior)
    posterior.isel(chain=0).to_netcdf(tmp_path / "other.nc", engine=engine)
    with pytest.raises(OutputError, match="no variables with the dimensions chain and draw"):
        files.read(tmp_path / "other.nc")


@pytest.mark.parametrize("engine", ["scipy", "h5netcdf"])
def test_damaged_files(engine, tmp_path):
    path = tmp_path / "run.nc"
    xarray.Dataset({"x": (("chain", "draw"), np.ones((2, 100)))}).to_netcdf(path, engine=engine)
    whole = path.read_bytes()
    for end in (0, 3, 10, len(whole) // 2):
        path.write_bytes(whole[:end])
        with pytest.raises(OutputError, match="cannot be read as netCDF"):
            files.read(path)


def test_chains_keep_their_labels_when_one_has_no_draws():
    """Chain 1 of 3 was stopped before its first draw."""
    posterior = stanadapt.Posterior(PROGRAM, DATA)
    request = resolve(**(RUN_ARGUMENTS | {"chains": 3}))
    prepared = prepare(request, posterior)
    run = turns.run(prepared.turns, turns.Work(posterior, prepared.job, prepared.inits))
    run.chains[1].draws.n = 0
    idata = build(run, prepared, request, 1.0)
    for name in ("posterior", "sample_stats", "adaptation"):
        assert list(datasets(idata)[name]["chain"].values) == [0, 2], name
    theta = posterior.variables["theta"].take(run.draws.values[[0, 2]])
    np.testing.assert_array_equal(datasets(idata)["posterior"]["theta"], theta)
    start = datasets(idata)["adaptation"]["start"].values
    np.testing.assert_array_equal(start, [run.chains[0].start, run.chains[2].start])
    assert "2 of 3 chains" in datasets(idata)["posterior"].attrs["interrupted_note"]


def test_draws_are_cut_to_the_shortest_chain_that_has_any():
    posterior = stanadapt.Posterior(PROGRAM, DATA)
    request = resolve(**(RUN_ARGUMENTS | {"chains": 3}))
    prepared = prepare(request, posterior)
    run = turns.run(prepared.turns, turns.Work(posterior, prepared.job, prepared.inits))
    run.chains[0].draws.n, run.chains[2].draws.n = 0, 3
    groups = datasets(build(run, prepared, request, 1.0))
    for name in ("posterior", "sample_stats"):
        assert dict(groups[name].sizes) | {"chain": 2, "draw": 3} == dict(groups[name].sizes)
    theta = posterior.variables["theta"].take(run.draws.values[[1, 2], :3])
    np.testing.assert_array_equal(groups["posterior"]["theta"], theta)


@pytest.mark.filterwarnings("ignore")
def test_arviz_works_on_it(full):
    import arviz

    summary = arviz.summary(full, var_names=["theta", "tau"])
    assert len(summary) == 4
    ours = stanadapt.summary(full, ["theta", "tau"])
    # arviz rounds for the eye.
    np.testing.assert_allclose(summary["mean"].astype(float), ours["mean"], rtol=0.05, atol=0.01)
    r_hat = datasets(arviz.rhat(full)) if has_datatree() else {"posterior": arviz.rhat(full)}
    values = next(iter(r_hat.values()))["theta"] if r_hat else arviz.rhat(full)["theta"]
    np.testing.assert_allclose(values, ours["r_hat"][:3])
    loo = arviz.loo(full)
    assert np.isfinite(getattr(loo, "elpd", None) or loo.elpd_loo)


def test_draws_are_held_once(full, program):
    groups = datasets(full)
    names = [*groups["posterior"].data_vars]
    owner = base(groups["posterior"][names[0]].values)
    assert owner.shape == (2, 40, program.n_values)
    for name in names:
        assert np.shares_memory(groups["posterior"][name].values, owner), name
    assert np.shares_memory(groups["log_likelihood"]["log_lik"].values, owner)


def test_a_run_needs_little_more_memory_than_its_draws():
    program = """parameters { real x; } model { x ~ std_normal(); }
      generated quantities { vector[500] g = rep_vector(x, 500); }"""
    posterior = stanadapt.Posterior(program)
    sample(posterior)  # so that what is imported and compiled once does not count
    tracemalloc.start()
    idata = sample(posterior, draws=5000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.2 * 8 * datasets(idata)["posterior"]["g"].size


def test_thin_keeps_every_third_of_the_same_run():
    posterior = stanadapt.Posterior(f"{SCHOOLS}.stan", f"{SCHOOLS}.json")
    keywords = {"draws": 41, "warmup": 50, "save_warmup": True, "keep_unconstrained": True}
    whole = datasets(sample(posterior, **keywords))
    thinned = datasets(sample(posterior, thin=3, **keywords))
    for group, name in (
        ("posterior", "theta"),
        ("sample_stats", "lp"),
        ("unconstrained_posterior", "x"),
        ("warmup_posterior", "theta"),
        ("warmup_sample_stats", "step_size"),
    ):
        np.testing.assert_array_equal(thinned[group][name], whole[group][name][:, 2::3])
    assert thinned["posterior"].sizes["draw"] == 13
    assert thinned["posterior"].attrs["thin"] == 3


def test_what_is_kept_does_not_change_the_draws(full, program):
    plain = datasets(sample(program, method="fisher_mala"))["posterior"]
    for name in ("theta", "y_rep"):
        group = "posterior_predictive" if name == "y_rep" else "posterior"
        np.testing.assert_array_equal(plain[name], datasets(full)[group][name])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"dims": {"thta": ["unit"]}}, "nearest: theta"),
        ({"dims": {"theta": ["unit", "more"]}}, "at most 1 names"),
        ({"dims": {"theta": "unit"}}, "list of names"),
        ({"dims": {"q": ["unit", "unit"]}}, "different names"),
        ({"dims": {"theta": ["draw"]}}, "not chain or draw"),
        ({"dims": {"theta": ["tau"]}}, "no variables"),
        ({"dims": {"q": ["unit"], "theta": ["unit"]}}, "'unit' has length"),
        ({"dims": {"theta": ["unit"]}, "coords": {"unit": ["a", "b"]}}, "of length 3"),
        ({"coords": {"theta_dim_0": ["a", "b"]}}, "of length 3"),
        ({"dims": ["unit"]}, "dims=.*a dict"),
        ({"coords": [1, 2]}, "coords=.*a dict"),
    ],
)
def test_labels_are_checked_before_sampling(labels, message, program):
    with pytest.raises(ArgumentError, match=message):
        sample(program, draws=10**9, thin=10**6, **labels)


def test_variable_named_like_a_dimension():
    with pytest.raises(ModelError, match="draw"):
        sample("parameters { real draw; } model { draw ~ std_normal(); }")
    posterior = datasets(
        sample("data { int draw; } parameters { real x; } model { x ~ std_normal(); }", {"draw": 1})
    )
    assert posterior["constant_data"]["draw"] == 1


@pytest.mark.parametrize("keyword", ["log_likelihood", "posterior_predictive"])
def test_only_generated_quantities_move(keyword, program):
    with pytest.raises(ArgumentError, match=keyword):
        sample(program, **{keyword: "theta"})


@pytest.mark.parametrize("size", [{"draws": 1}, {"chains": 1, "draws": 1, "warmup": 0}, {"chains": 1}])
def test_small_runs(size, tmp_path):
    idata = sample(f"{SCHOOLS}.stan", f"{SCHOOLS}.json", save_warmup=True, **size)
    run = RUN | size
    theta = datasets(idata)["posterior"]["theta"]
    assert theta.shape == (run["chains"], run["draws"], 8)
    assert np.all(np.isfinite(theta))
    assert datasets(idata)["warmup_posterior"]["theta"].shape == (run["chains"], run["warmup"], 8)
    files.write(idata, tmp_path / "run.nc")
    xarray.testing.assert_equal(datasets(files.read(tmp_path / "run.nc"))["posterior"]["theta"], theta)


def test_program_without_parameters():
    idata = sample("generated quantities { real u = normal_rng(0, 1); }", draws=500)
    u = datasets(idata)["posterior"]["u"].values
    assert u.shape == (2, 500)
    assert len(np.unique(u)) == 1000
    assert abs(u.mean()) < 4 / np.sqrt(1000)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "outputs",
    ["vector[5000] g = rep_vector(x, 5000);", "".join(f"real g{i} = x + {i};" for i in range(1000))],
    ids=["vector", "scalars"],
)
def test_thousands_of_generated_quantities(outputs):
    program = f"parameters {{ real x; }} model {{ x ~ std_normal(); }} generated quantities {{ {outputs} }}"
    posterior = datasets(sample(program, draws=10, warmup=10))["posterior"]
    last = posterior["g"].values[..., -1] if "g" in posterior else posterior["g999"].values - 999
    np.testing.assert_allclose(last, posterior["x"].values, atol=1e-9)
