"""method="auto": its rule, the facts that it goes by, and that nothing else of a run is any different.

A run of it has the draws of the method that it names, with the same seed and settings, number by number. So
what the suites for invariance, equivalences, learning rules and calibration show of that method holds for it.
Conditionally on the choice too: the pilot's random numbers are none of the chains'.
"""

from __future__ import annotations

import itertools
import json
import math
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import stanadapt
from cases import thorough
from moments import LEVEL, limit, model_z_scores
from stanadapt import Posterior, Target, cli, samplers
from stanadapt.errors import ArgumentError, InitializationError
from stanadapt.result import files
from stanadapt.result.container import datasets
from stanadapt.run.inits import Init
from stanadapt.run.preparation import auto
from stanadapt.run.preparation.auto import PosteriorFacts

MODELS = Path(__file__).parents[2] / "models"
FUNNEL = "parameters { real v; vector[9] x; } model { v ~ normal(0, 3); x ~ normal(0, exp(v / 2)); }"
JUMPS = "parameters { vector[5] x; } model { for (i in 1:5) target += -floor(2 * abs(x[i])); }"
NORMAL = "parameters { vector[3] x; } model { x ~ normal(1, [1, 10, 100]); }"
RUN = {"method": "auto", "chains": 2, "warmup": 100, "draws": 100, "seed": 4, "progress": False}

pytestmark = pytest.mark.filterwarnings("ignore::stanadapt.StanAdaptWarning")  # few draws


def log_density(x: np.ndarray) -> float:
    return -0.5 * float(x @ x)


def log_estimate(x: np.ndarray, rng: np.random.Generator) -> float:
    return log_density(x) + rng.normal(-0.5, 1.0)


def model(name: str) -> Posterior:
    return Posterior(MODELS / name / f"{name}.stan", MODELS / name / f"{name}.json")


def draws(idata: Any) -> list[np.ndarray]:
    return [variable.values for variable in datasets(idata)["posterior"].data_vars.values()]


def looked(posterior: Any, seed: int = 1) -> PosteriorFacts:
    return auto.look(posterior if isinstance(posterior, Posterior) else Posterior(posterior), Init(2.0), seed)


@pytest.mark.parametrize(
    ("facts", "method", "reason"),
    [
        (
            PosteriorFacts(8, True, False, step=1.0),
            "fisher_hmc",
            "a trial took steps of 100 % of a trajectory",
        ),
        (
            PosteriorFacts(20, True, False, step=0.002),
            "fisher_hmc",
            "a trial took steps of 0.2 % of a trajectory",
        ),
        (PosteriorFacts(20, True, False, step=0.0019), "rlmh", "0.19 % of a trajectory: the density jumps"),
        (
            PosteriorFacts(21, True, False, step=0.0019),
            "fisher_hmc",
            "a trial took steps of 0.19 % of a trajectory",
        ),
        (PosteriorFacts(0, True, False), "fisher_hmc", "there are no parameters"),
        (PosteriorFacts(1, False, False), "rlmh", "there is no gradient in 1 dimension"),
        (PosteriorFacts(20, False, False), "rlmh", "there is no gradient in 20 dimensions"),
        (PosteriorFacts(21, False, False), "arwmh", "21 dimensions, which are many for rlmh"),
        (PosteriorFacts(2, False, True), "arwmh", "the density is only estimated"),
    ],
)
def test_the_rule(facts: PosteriorFacts, method: str, reason: str) -> None:
    choice = auto.choose(facts)
    assert choice.method == method
    assert reason in choice.reason


def test_what_is_chosen_can_run() -> None:
    for d, gradient, noisy, step in itertools.product((1, 20, 21, 500), (0, 1), (0, 1), (None, 1e-9, 1.0)):
        choice = auto.choose(PosteriorFacts(d, bool(gradient), bool(noisy and not gradient), step=step))
        sampler = samplers.sampler(choice.method)
        assert gradient or not sampler.FACTS.gradient
        if sampler.FACTS.cautious:
            assert sampler.caution(samplers.resolve(sampler, None), d) is None


def test_times_acceptance_and_the_metric_decide_nothing() -> None:
    for seconds, acceptance, condition in itertools.product((1e-9, 10.0), (0.0, 1.0), (1.0, None)):
        facts = PosteriorFacts(3, True, False, 0.7, acceptance, condition, 0.5, seconds)
        assert auto.choose(facts) == auto.choose(PosteriorFacts(3, True, False, 0.7))


def test_facts_of_a_gaussian() -> None:
    facts = looked(NORMAL)
    assert facts[:3] == (3, True, False)
    assert facts.step == 1.0
    assert facts.condition == pytest.approx(1e4, rel=0.3)
    assert facts.acceptance is not None
    assert facts.acceptance > 0.9
    assert facts.failures == 0.0
    assert facts.seconds is not None
    assert facts.seconds > 0.0


@pytest.mark.parametrize("target", [JUMPS, thorough(Target.from_python(log_density, 3, lambda x: x))])
def test_a_gradient_that_leads_nowhere_is_told_by_the_steps(target: Any) -> None:
    for seed in range(3):
        assert auto.choose(looked(target, seed)).method == "rlmh"


@pytest.mark.parametrize("name", ["funnel", "banana"])
def test_a_narrow_posterior_keeps_its_gradient(name: str) -> None:
    for seed in range(3):
        step = looked(model(name), seed).step
        assert step is not None
        assert step > 5 * auto.TINY_STEP


def test_failures_are_seen() -> None:
    edge = 'parameters { real x; } model { if (x > 0) reject("no"); x ~ std_normal(); }'
    failures = looked(edge).failures
    assert failures is not None
    assert 0.0 < failures < 0.9


@pytest.mark.parametrize("function", [log_density, log_estimate])
def test_without_a_gradient_nothing_is_evaluated(function: Any) -> None:
    def never(*_: Any) -> float:
        raise AssertionError

    noisy = function is log_estimate
    assert looked(Target.from_python(never, 4, noisy=noisy)) == PosteriorFacts(4, False, noisy)


def test_facts_depend_on_the_seed_alone() -> None:
    posterior = model("eight_schools")
    facts = [looked(posterior, seed)._replace(seconds=None) for seed in (1, 1, 2)]
    assert facts[0] == facts[1] != facts[2]


def test_given_starts_are_used() -> None:
    far = "parameters { real x; } model { if (x < 50) reject(x); x ~ normal(60, 1); }"
    facts = auto.look(Posterior(far), Init(2.0, point=np.array([60.0])), 1)
    assert facts.step is not None
    with pytest.raises(InitializationError, match=r"no finite log density and gradient at 100 tries"):
        looked(far)


@pytest.mark.parametrize("name", ["eight_schools", "eight_schools_centered"])
def test_draws_are_those_of_the_method_it_names(name: str) -> None:
    idata = stanadapt.sample(model(name), **(RUN | {"workers": 1}))
    attrs = datasets(idata)["posterior"].attrs
    same = RUN | {"method": attrs["method"], "settings": json.loads(attrs["settings"]), "workers": 2}
    named = stanadapt.sample(model(name), **same)
    again = stanadapt.sample(model(name), **(RUN | {"workers": 2}))
    for one, other, third in zip(draws(idata), draws(named), draws(again), strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one, third)


@pytest.mark.seeds(2, rate=LEVEL)
@pytest.mark.parametrize("name", ["linear_regression", "hierarchical"])
def test_moments_of_models(name: str, seed: int) -> None:
    z = model_z_scores(MODELS / name, method="auto", seed=seed, draws=5_000)
    assert np.abs(z).max() < limit(z.size), z


@pytest.mark.parametrize("container", ["memory", "netCDF"])
def test_the_result_says_what_ran_and_why(container: str, tmp_path: Path) -> None:
    idata = stanadapt.sample(FUNNEL, **RUN)
    if container == "netCDF":
        files.write(idata, tmp_path / "fit.nc")
        idata = files.read(tmp_path / "fit.nc")
    attrs = datasets(idata)["posterior"].attrs
    assert attrs["method"] == "fisher_hmc"
    assert attrs["method_requested"] == "auto"
    facts = PosteriorFacts(**json.loads(attrs["auto_facts"]))
    assert facts[:3] == (10, True, False)
    assert attrs["auto_reason"] == auto.choose(facts).reason
    assert datasets(idata)["sample_stats"].attrs["auto_reason"] == attrs["auto_reason"]


def test_a_method_by_name_has_no_reason() -> None:
    attrs = datasets(stanadapt.sample(NORMAL, **(RUN | {"method": "fisher_hmc"})))["posterior"].attrs
    assert not {"method_requested", "auto_reason", "auto_facts"} & set(attrs)


def test_facts_are_json_whatever_they_are() -> None:
    assert auto._condition(np.diag([1.0, 0.0])) == math.inf
    facts = PosteriorFacts(2, True, False, step=0.5, condition=math.inf, failures=math.nan)
    assert json.loads(facts.to_json()) == facts._replace(condition=None, failures=None)._asdict()


def test_defaults_are_those_of_the_method() -> None:
    given = {name: value for name, value in RUN.items() if name not in ("warmup", "draws")}
    posterior = datasets(stanadapt.sample(NORMAL, **given))["posterior"]
    assert posterior.attrs["tuning_steps"] == samplers.facts("fisher_hmc").warmup
    assert posterior.sizes["draw"] == samplers.facts("fisher_hmc").draws


@pytest.mark.parametrize(
    ("target", "method"),
    [
        (Target.from_python(log_density, 3, lambda x: -x), "fisher_hmc"),
        (Target.from_python(log_density, 21), "arwmh"),
        (Target.from_python(log_estimate, 3, noisy=True), "arwmh"),
    ],
)
def test_python_targets(target: Target, method: str) -> None:
    idata = stanadapt.sample(target, **(RUN | {"workers": 1}))
    assert datasets(idata)["posterior"].attrs["method"] == method


# `make test` has draws with one worker and with two above, and processes in test_python_processes.py.
@pytest.mark.thorough
def test_python_target_in_processes() -> None:
    target = Target.from_python(log_density, 3, lambda x: -x)
    one, two = (stanadapt.sample(target, **(RUN | {"workers": workers})) for workers in (1, 2))
    np.testing.assert_array_equal(draws(one), draws(two))


def test_a_model_without_parameters() -> None:
    idata = stanadapt.sample("generated quantities { real y = normal_rng(0, 1); }", **RUN)
    attrs = datasets(idata)["posterior"].attrs
    assert attrs["auto_reason"] == "there are no parameters to look at"
    assert json.loads(attrs["auto_facts"])["step"] is None


def test_no_start() -> None:
    with pytest.raises(InitializationError, match=r"First reason: .*nowhere"):
        stanadapt.sample('parameters { real x; } model { reject("nowhere"); }', **RUN)


def test_an_exception_in_the_pilot_is_the_users_own() -> None:
    evaluations = 0

    def gradient(x: np.ndarray) -> np.ndarray:
        nonlocal evaluations
        evaluations += 1
        if evaluations > 300:
            raise ZeroDivisionError("mine")
        return -x

    with pytest.raises(ZeroDivisionError, match="mine"):
        stanadapt.sample(Target.from_python(log_density, 2, gradient), **(RUN | {"workers": 1}))
    assert evaluations == 301


def test_ctrl_c_in_the_pilot_ends_the_run() -> None:
    evaluations = 0

    def gradient(x: np.ndarray) -> np.ndarray:
        nonlocal evaluations
        evaluations += 1
        if evaluations == 300:
            signal.raise_signal(signal.SIGINT)
        return -x

    with pytest.raises(KeyboardInterrupt):
        stanadapt.sample(Target.from_python(log_density, 2, gradient), **(RUN | {"workers": 1}))
    assert 300 <= evaluations < 400
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"settings": {"damping": 1}}, r"settings=\{'damping': 1\} are not allowed with method='auto'.*name"),
        ({"settings": samplers.sampler("rwm").Settings()}, r"are not allowed with method='auto'"),
        ({"settings": 3}, r"settings=3 are not allowed with method='auto'"),
        ({"method": "atuo"}, r"method='atuo' is not allowed.*, auto \(nearest: auto"),
        ({"thin": 101}, r"thin=101 is not allowed"),
        ({"dims": {"y": ["a"]}}, r"dims: variable='y' is not allowed"),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "look", lambda *_: pytest.fail("the pilot ran"))
    with pytest.raises(ArgumentError, match=message):
        stanadapt.sample(NORMAL, **(RUN | arguments))


def test_the_choice_is_told_with_progress(capsys: pytest.CaptureFixture[str]) -> None:
    stanadapt.sample(FUNNEL, **(RUN | {"progress": True}))
    assert "stanadapt: fisher_hmc, because there is a gradient" in capsys.readouterr().err


def command(*arguments: object) -> Result:
    return CliRunner().invoke(cli.main, [str(argument) for argument in arguments])


def test_from_a_shell(tmp_path: Path) -> None:
    (tmp_path / "normal.stan").write_text(NORMAL)
    short = ["--method=auto", "--seed=1", "--chains=2", "--no-progress", "--out", tmp_path / "fit.nc"]
    said = command("sample", tmp_path / "normal.stan", *short)
    assert said.exit_code == 0, said.output
    lines = said.stdout.splitlines()
    assert lines[0].startswith("fisher_hmc with stanli")
    assert lines[1].startswith("Chosen because there is a gradient, and a trial took steps of 1")
    said = command("sample", tmp_path / "normal.stan", *short, "--force", "--set", "damping=1")
    assert said.exit_code == 2
    assert "are not allowed with method='auto'" in " ".join(said.stderr.split())


def test_it_is_listed_and_its_rule_shown() -> None:
    assert command("methods").stdout.splitlines()[-1] == f"auto: {auto.DESCRIPTION}"
    said = command("methods", "auto").stdout
    assert "With a gradient it is fisher_hmc." in said
    assert "rlmh in up to 20 dimensions" in said
    assert f"{auto.WARMUP} iterations" in said
    assert f"{auto.FROZEN} frozen" in said
