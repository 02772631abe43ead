"""Where chains start: what is accepted, and what is refused before sampling."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import stanadapt
from stanadapt import Posterior
from stanadapt.errors import ArgumentError, DataError, InitializationError
from stanadapt.numerics.ascent import climb
from stanadapt.result.container import datasets
from stanadapt.run import inits
from stanadapt.run.inits import Init, find
from stanadapt.target import hessian

pytestmark = pytest.mark.filterwarnings("ignore::stanadapt.errors.StanAdaptWarning")  # few draws

MODEL = """
parameters { real<lower=0> s; simplex[3] p; real mu; real<lower=s> b; matrix[2, 3] m; }
transformed parameters { real t = mu; }
model { s ~ normal(0, 1); mu ~ normal(0, s); b ~ normal(0, 10); to_vector(m) ~ normal(0, 1); }
"""
COMPLETE = {"s": 1.0, "p": [0.2, 0.3, 0.5], "mu": 1.5, "b": 2.0, "m": [[1, 2, 3], [4, 5, 6]]}
DIM = 11


@pytest.fixture(scope="module")
def posterior():
    return Posterior(MODEL)


def draw(posterior, inits=None, **more):
    options = {"method": "rwm", "chains": 2, "warmup": 0, "draws": 5, "seed": 1, "progress": False}
    return stanadapt.sample(posterior, inits=inits, **(options | more))


def starts(result):
    return datasets(result)["adaptation"]["start"].values


def test_by_default_chains_start_within_the_radius(posterior):
    x = starts(draw(posterior))
    assert np.all(np.abs(x) < 2)
    assert not np.array_equal(x[0], x[1])
    assert np.all(np.abs(starts(draw(posterior, init_radius=0.1))) < 0.1)


@pytest.mark.parametrize("zero", [0, 0.0, np.float64(0), np.int64(0)])
def test_radius_zero_is_the_origin(posterior, zero):
    np.testing.assert_array_equal(starts(draw(posterior, zero)), np.zeros((2, DIM)))
    np.testing.assert_array_equal(starts(draw(posterior, init_radius=zero)), np.zeros((2, DIM)))


def test_a_number_is_a_radius(posterior):
    np.testing.assert_array_equal(starts(draw(posterior, 0.5)), starts(draw(posterior, init_radius=0.5)))


@pytest.mark.parametrize(
    "wrap",
    [
        dict,
        lambda values: {name: np.asarray(value) for name, value in values.items()},
        json.dumps,
        lambda values: [values, values],
        lambda values: (values, values),
        lambda values: [json.dumps(values), values],
    ],
    ids=["dict", "arrays", "JSON text", "list", "tuple", "list of JSON"],
)
def test_complete_values(posterior, wrap):
    x = starts(draw(posterior, wrap(COMPLETE)))
    np.testing.assert_array_equal(x[0], x[1])
    values = posterior.constrain(x[0])
    for name, value in COMPLETE.items():
        np.testing.assert_allclose(values[name], value, atol=1e-12)


@pytest.mark.parametrize("write", [lambda path: path, str, lambda path: [path, str(path)]])
def test_json_file(posterior, tmp_path, write):
    path = tmp_path / "inits.json"
    path.write_text(json.dumps(COMPLETE))
    assert np.ptp(starts(draw(posterior, write(path))), axis=0).max() == 0


def test_partial_values_leave_the_rest_to_chance(posterior):
    x = starts(draw(posterior, {"mu": 7.0}))
    np.testing.assert_array_equal(x[:, 3], 7)
    assert np.all(x[0, :3] != x[1, :3])
    at_origin = starts(draw(posterior, {"mu": 7.0}, init_radius=0))
    np.testing.assert_array_equal(at_origin, np.eye(DIM)[[3, 3]] * 7)
    one_each = starts(draw(posterior, [{"mu": 7.0}, {"s": 1.0}]))
    assert one_each[0, 3] == 7
    assert one_each[1, 0] == 0


def test_partial_values_that_fit_some_random_rest(posterior):
    """b > s: what is drawn for s must be drawn again until it fits the b that was given."""
    x = starts(draw(posterior, {"b": 1.0}, chains=8))
    for point in x:
        assert posterior.constrain(point)["b"] == pytest.approx(1.0)


@pytest.mark.parametrize("wrap", [np.asarray, lambda points: points.tolist(), pd.DataFrame, np.float32])
def test_unconstrained_points(posterior, wrap):
    points = np.arange(2.0 * DIM).reshape(2, DIM) / 16
    np.testing.assert_array_equal(starts(draw(posterior, wrap(points))), points)


def test_an_earlier_result_goes_on_from_its_last_draws(posterior):
    first = draw(posterior, draws=20, thin=3)
    second = starts(draw(posterior, first))
    last = datasets(first)["posterior"].isel(draw=-1)
    for i in range(2):
        values = posterior.constrain(second[i])
        for name in posterior.parameters:
            np.testing.assert_allclose(values[name], last[name].values[i], atol=1e-8)


@pytest.mark.parametrize(("chains", "rows"), [(1, [-1]), (3, [-1, -1, 9]), (5, [-1, -1, 13, 9, 6])])
def test_an_earlier_result_with_another_number_of_chains(posterior, chains, rows):
    """Chains take the earlier ones in turn, and begin far apart in the same one."""
    first = draw(posterior, draws=20)
    second = starts(draw(posterior, first, chains=chains))
    for i, row in enumerate(rows):
        draws = datasets(first)["posterior"].isel(chain=i % 2, draw=row)
        values = posterior.constrain(second[i])
        for name in posterior.parameters:
            np.testing.assert_allclose(values[name], draws[name].values, atol=1e-8)


def test_many_chains_from_one_draw(posterior):
    first = draw(posterior, draws=1, chains=1)
    x = starts(draw(posterior, first, chains=3))
    np.testing.assert_allclose(x[1:], x[:1].repeat(2, axis=0))


def test_a_function_of_the_chain_and_a_generator(posterior):
    """What it draws depends on the seed and the chain alone."""
    calls = []

    def begin(chain, rng):
        calls.append(chain)
        return {"mu": 10.0 * chain + rng.uniform(), "s": np.exp(rng.normal())}

    x = starts(draw(posterior, begin, chains=3))
    assert calls == [0, 1, 2]
    assert np.floor(x[:, 3]).tolist() == [0, 10, 20]
    assert len(set(x[:, 3] % 10)) == 3
    np.testing.assert_array_equal(starts(draw(posterior, begin, chains=2)), x[:2])
    assert (starts(draw(posterior, begin, chains=3, seed=2))[:, 3] != x[:, 3]).all()


def test_a_whole_draw_may_have_other_variables_of_the_program(posterior):
    """CmdStanPy's create_inits gives them with the parameters, and CmdStan takes no notice of them."""
    x = starts(draw(posterior, COMPLETE | {"t": 9.0}))
    np.testing.assert_array_equal(x, starts(draw(posterior, COMPLETE)))
    with pytest.raises(ArgumentError, match=r"inits\['t'\] is no parameter of the model"):
        draw(posterior, {"t": 9.0, "s": 1.0})
    with pytest.raises(ArgumentError, match=r"inits\['other'\] is no parameter of the model"):
        draw(posterior, COMPLETE | {"other": 9.0})


def test_a_function_may_give_points_or_nothing(posterior):
    given = [np.arange(DIM) / 16, None, COMPLETE]
    x = starts(draw(posterior, lambda chain, _: given[chain], chains=3))
    np.testing.assert_array_equal(x[0], given[0])
    assert np.all(np.abs(x[1]) < 2)
    np.testing.assert_allclose(posterior.constrain(x[2])["m"], COMPLETE["m"])


FUNCTIONS = {
    "fails": (lambda chain, rng: {}[chain], "inits(0, rng) fails: KeyError: 0"),
    "one argument": (lambda chain: {}, "inits(0, rng) fails: TypeError: "),
    "number": (lambda chain, rng: 3.0, "inits(0, rng)=3.0 is not allowed: inits(0, rng) must be a dict of"),
    "text": (lambda chain, rng: "mu", "an unconstrained point of shape (11,), or None"),
    "short": (lambda chain, rng: np.zeros(3), "an unconstrained point of shape (11,), or None"),
    "NaN": (lambda chain, rng: np.full(DIM, np.nan), "an unconstrained point of shape (11,), or None"),
    "unknown": (lambda chain, rng: {"sigma": 1.0}, "inits(0, rng)['sigma'] is no parameter of the model"),
    "outside": (lambda chain, rng: COMPLETE | {"s": -1.0}, "inits(0, rng): outside the support"),
}


@pytest.mark.parametrize("what", FUNCTIONS)
def test_functions_that_give_no_start(posterior, what):
    function, said = FUNCTIONS[what]
    with pytest.raises(ArgumentError, match=re.escape(said)):
        draw(posterior, function)


def test_an_earlier_result_that_does_not_fit(posterior):
    first = draw(posterior)
    other = Posterior("parameters { real<lower=0> s; real mu; real new; } model { new ~ normal(0, 1); }")
    with pytest.raises(ArgumentError, match="inits lacks parameters of the model: new"):
        draw(other, first)
    shape = Posterior("parameters { vector[2] mu; } model { mu ~ normal(0, 1); }")
    with pytest.raises(ArgumentError, match=r"inits.*'mu'.* has shape \(\); the model declares \(2,\)"):
        draw(shape, first)


REFUSED = {
    "negative radius": (-1, ["inits=-1", "at least 0"]),
    "NaN radius": (float("nan"), ["inits=nan", "finite"]),
    "infinite radius": (float("inf"), ["inits=inf", "finite"]),
    "radius that overflows": (1e308, ["inits=1e+308", "at most 1e+100"]),
    "bool": (True, ["inits=True", "a radius, a dict"]),
    "object": (object(), ["inits=<object", "a radius, a dict"]),
    "empty list": ([], ["inits has shape (0,)", "(2, 11)"]),
    "too few dicts": ([COMPLETE], ["1 chains", "chains=2"]),
    "too many dicts": ([COMPLETE] * 3, ["3 chains", "chains=2"]),
    "not all dicts": ([COMPLETE, 3], ["inits[1]=3", "a dict of constrained values"]),
    "a None": ([COMPLETE, None], ["inits[1]=None", "a dict of constrained values"]),
    "unknown": ({"sigma": 1.0}, ["inits['sigma']", "no parameter", "s, p, mu, b, m"]),
    "near": ({"mus": 1.0}, ["inits['mus']", "nearest: mu"]),
    "transformed": ({"t": 1.0}, ["inits['t']", "no parameter"]),
    "unknown in a list": ([{"mu": 1.0}, {"x": 1.0}], ["inits[1]['x']", "no parameter"]),
    "scalar as vector": ({"mu": [1.0]}, ["inits['mu']", "(1,)", "()"]),
    "short": ({"p": [0.5, 0.5]}, ["inits['p']", "(2,)", "(3,)"]),
    "transposed": ({"m": np.ones((3, 2))}, ["inits['m']", "(3, 2)", "(2, 3)"]),
    "flat": ({"m": np.ones(6)}, ["inits['m']", "(6,)", "(2, 3)"]),
    "NaN": ({"mu": np.nan}, ["inits['mu']=nan", "NaN or infinite"]),
    "infinite entry": ({"m": [[1, 2, 3], [4, 5, np.inf]]}, ["inits['m']", "NaN or infinite"]),
    "outside": (COMPLETE | {"s": -1.0}, ["inits: outside the support", "-1", "for s"]),
    "no simplex": (COMPLETE | {"p": [0.2, 0.3, 0.6]}, ["inits: outside the support", "simplex", "for p"]),
    "bound by another": (COMPLETE | {"b": 0.5}, ["inits: outside the support", "0.5", "for b"]),
    "boundary": (COMPLETE | {"s": 0.0}, ["inits: on the boundary", "in s"]),
    "points of the wrong length": (np.zeros((2, 3)), ["(2, 3)", "(chains, d) = (2, 11)"]),
    "points for one chain": (np.zeros(DIM), ["(11,)", "(chains, d) = (2, 11)"]),
    "NaN in points": (np.full((2, DIM), np.nan), ["NaN or infinite"]),
    "text in points": ([["a"] * DIM] * 2, ["inits=", "an array of shape (chains, d)"]),
    "complex points": (np.zeros((2, DIM), complex), ["inits=", "an array of shape (chains, d)"]),
    "ragged points": ([[0.0] * DIM, [0.0]], ["inits=", "an array of shape (chains, d)"]),
}


@pytest.mark.parametrize(("inits", "parts"), REFUSED.values(), ids=REFUSED)
def test_refused(posterior, inits, parts):
    with pytest.raises(ArgumentError) as caught:
        draw(posterior, inits)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


UNREADABLE = {
    "no file": ("nowhere.json", "inits='nowhere.json': there is no such file"),
    "directory": (Path(__file__).parents[1], "is a directory"),
    "no JSON": ('{"mu": ', "inits text is not valid JSON"),
    "list": ("[1, 2]", "inits text holds a list"),
    "text": ({"mu": "one"}, "inits['mu'] holds 'one' (str)"),
    "None": ({"mu": None}, "inits['mu'] holds None"),
    "ragged": ({"m": [[1, 2, 3], [4]]}, "inits['m'] is ragged"),
    "name": ({1: 2.0}, "the name 1 is not allowed"),
}


@pytest.mark.parametrize(("inits", "said"), UNREADABLE.values(), ids=UNREADABLE)
def test_unreadable(posterior, inits, said):
    with pytest.raises(DataError) as caught:
        draw(posterior, inits)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("inits", "part"), [({"s": -1.0}, "for s"), ({"p": [0.2, 0.3, 0.6]}, "for p"), ({"s": 0.0}, "Scale")]
)
def test_partial_values_that_fit_nothing(posterior, inits, part):
    with pytest.raises(
        InitializationError, match=r"chain [01]: no finite log density .* 100 tries"
    ) as caught:
        draw(posterior, inits)  # both chains fail, and either may be the first
    assert part in str(caught.value)


def test_a_point_without_density_is_named():
    steep = Posterior('parameters { real x; } model { if (x > 1) reject("too far: ", x); x ~ normal(0, 1); }')
    with pytest.raises(InitializationError, match=r"chain 1: .* at its starting point.*too far: 3"):
        draw(steep, np.array([[0.0], [3.0]]))


# To the right of zero it is defined on stripes as narrow as the step of a difference: the gradient is finite
# on them, and the Hessian is not.
STRIPES = """
parameters { real x; }
model { if (x > 0 && fmod(x, 1.2e-5) > 6e-6) reject("between stripes"); x ~ std_normal(); }
"""


def test_starts_have_a_hessian_where_it_is_needed():
    stripes = Posterior(STRIPES)

    def found(use_hessian):
        rng = np.random.default_rng(1)
        more = {"use_gradient": True, "ascend": False, "use_hessian": use_hessian}
        return np.array([find(Init(0.9), stripes, stripes.model, 0, rng, **more).x[0] for _ in range(30)])

    assert np.any(found(False) > 0)
    assert np.all(found(True) < 0)


def test_a_climb_ends_where_there_is_a_hessian():
    stripes = Posterior(STRIPES.replace("x > 0", "x > -0.2"))  # around the mode
    target = stripes.model.target()

    def has_hessian(use_hessian):
        x = find(Init(0.9), stripes, stripes.model, 0, np.random.default_rng(1), True, True, use_hessian).x
        return hessian(target, x, np.empty((1, 1)))

    assert not has_hessian(False)
    assert has_hessian(True)


def climbs(monkeypatch, target, seeds):
    """Starts of the target from so many seeds, and how many climbs each took."""
    count = []

    def counted(*given):
        count[-1] += 1
        return climb(*given)

    monkeypatch.setattr(inits, "climb", counted)
    posterior, points = Posterior(target), []
    for seed in range(seeds):
        count.append(0)
        rng = np.random.default_rng(seed)
        points.append(find(Init(2.0), posterior, posterior.model, 0, rng, True, True).x)
    return np.array(points), count


def test_chains_start_apart_from_each_other(monkeypatch):
    precision = np.array([100.0, 1.0])
    gaussian = stanadapt.Target.from_python(
        lambda x: -0.5 * float(precision @ x**2), 2, lambda x: -precision * x
    )
    points, count = climbs(monkeypatch, gaussian, 10)
    assert count == [inits.CLIMBS] * 10
    assert np.all(points**2 @ precision < 20.0)
    assert len(np.unique(points, axis=0)) == 10


def test_a_mode_without_mass_is_left(monkeypatch):
    """The mode to the left attracts half of the starts and is 100 nats below the one to the right."""
    away = stanadapt.Target.from_python(
        lambda x: -50.0 * float((abs(x[0]) - 1) ** 2) - 100.0 * float(x[0] < 0),
        1,
        lambda x: -100.0 * (np.abs(x) - 1) * np.sign(x),
    )
    points, count = climbs(monkeypatch, away, 20)
    assert np.all(points > 0)
    assert count == [inits.CLIMBS] * 20


def test_an_error_in_a_climb_is_raised():
    calls = []

    def gradient(x):
        calls.append(1)
        if len(calls) > 3:
            raise ZeroDivisionError("in the climb")
        return -100.0 * x

    posterior = Posterior(stanadapt.Target.from_python(lambda x: -50.0 * float(x @ x), 2, gradient))
    with pytest.raises(ZeroDivisionError, match="in the climb"):
        find(Init(2.0), posterior, posterior.model, 0, np.random.default_rng(1), True, True)
    assert len(calls) == 4


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        (3e-6, "beside it, where the gradient is differenced: between stripes"),
        (9e-6, "First reason: between"),
    ],
)
def test_a_point_without_hessian_is_named(at, reason):
    with pytest.raises(InitializationError, match=r"no finite log density, gradient and Hessian") as caught:
        draw(Posterior(STRIPES), np.full((2, 1), at), method="mmala")
    assert reason in str(caught.value)


def test_no_random_start_has_a_hessian():
    everywhere = STRIPES.replace("x > 0 &&", "").replace("fmod(x,", "fmod(x + 1,")
    with pytest.raises(InitializationError, match=r"and Hessian at 100 tries uniform on \(-0.5, 0.5\)"):
        draw(Posterior(everywhere), 0.5, method="mmala")


def test_the_support_may_end_beside_a_start():
    edge = Posterior("parameters { real x; } model { if (x > 1) target += negative_infinity(); }")
    with pytest.raises(InitializationError, match="the support ends beside it"):
        draw(edge, np.ones((2, 1)), method="mmala")


def test_parameters_without_entries():
    empty = Posterior(
        "data { int N; } parameters { vector[N] a; real b; } model { b ~ normal(0, 1); }", {"N": 0}
    )
    assert starts(draw(empty, {"b": 1.5})).tolist() == [[1.5], [1.5]]
    assert starts(draw(empty, {"a": [], "b": 1.5})).tolist() == [[1.5], [1.5]]


def test_names_that_are_words_of_cpp():
    words = Posterior(
        "data { real class; } parameters { vector[1] new; } model { new ~ normal(class, 1); }", {"class": 2}
    )
    assert list(words.parameters) == ["new"]
    assert words.names == words.unconstrained_names == ["new.1"]
    assert list(datasets(draw(words))["posterior"]) == ["new"]


def test_a_model_without_parameters_takes_no_values():
    nothing = Posterior("generated quantities { real y = 1; }")
    assert draw(nothing, {}) is not None
    assert draw(nothing, 1.0) is not None
    with pytest.raises(
        ArgumentError, match=r"inits\['y'\] is no parameter of the model; its parameters are none"
    ):
        draw(nothing, {"y": 1.0})
