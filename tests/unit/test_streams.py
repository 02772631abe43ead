"""Random numbers of generated quantities: a function of seed, chain and iteration alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import stanadapt
from stanadapt.model.backends.stan.streams import Streams, begin
from stanadapt.result.container import datasets

pytestmark = pytest.mark.filterwarnings("ignore::stanadapt.StanAdaptWarning")  # few draws

K = 40  # more than MIXMAX has words
UNIFORM = f"""
parameters {{ real x; }}
model {{ x ~ std_normal(); }}
generated quantities {{
  real twice = 2 * x;
  array[{K}] real u;
  for (k in 1:{K}) u[k] = uniform_rng(0, 1);
}}
"""
ALONE = "generated quantities { real u = uniform_rng(0, 1); }"


@pytest.fixture(scope="module")
def posterior() -> stanadapt.Posterior:
    return stanadapt.Posterior(UNIFORM)


@pytest.fixture(params=["MIXMAX", "another generator"])
def opened(request: pytest.FixtureRequest, gaussian_libraries: dict[str, Path]) -> stanadapt.Posterior:
    """A program in stanli, and the stand-in for a library, whose generator BridgeStan has to seed."""
    return stanadapt.Posterior(UNIFORM if request.param == "MIXMAX" else gaussian_libraries["threads"])


def sample(model: object, **keywords: object) -> dict[str, object]:
    options = {"method": "rwm", "chains": 2, "warmup": 20, "draws": 30, "seed": 3, "progress": False}
    return dict(datasets(stanadapt.sample(model, **(options | keywords))))


def test_the_generator_is_recognised(
    posterior: stanadapt.Posterior, gaussian_libraries: dict[str, Path]
) -> None:
    assert Streams(posterior.model.model, 1).stream.state.size == 19
    library = stanadapt.Posterior(gaussian_libraries["threads"])
    assert Streams(library.model.model, 1).stream.state.size == 0


def test_a_state_is_one_of_mixmax(posterior: stanadapt.Posterior) -> None:
    """17 words below p, their sum modulo p, and the counter of a generator that has drawn nothing."""
    stream = Streams(posterior.model.model, 1).stream
    counter, p = int(stream.state[18]), 2**61 - 1
    seen = set()
    for iteration in range(100):
        begin(stream, iteration)
        words = [int(word) for word in stream.state[:17]]
        assert max(words) < p
        assert sum(words) % p == int(stream.state[17])
        assert int(stream.state[18]) == counter
        seen |= set(words)
    assert len(seen) == 1700


def test_rows_do_not_depend_on_what_was_written_before(opened: stanadapt.Posterior) -> None:
    x = np.random.default_rng(1).normal(size=(20, opened.dim))
    iterations = np.arange(5, 25)

    def written(*blocks: slice) -> np.ndarray:
        write, values = opened.model.writer(7), np.empty((20, opened.n_values))
        for block in blocks:
            write(x[block], values[block], iterations[block])
        return values

    whole = written(slice(None))
    np.testing.assert_array_equal(written(slice(0, 1), slice(1, 13), slice(13, None)), whole)
    np.testing.assert_array_equal(written(slice(1, None, 2), slice(0, None, 2)), whole)
    random = whole[:, opened.generated_quantities["u"].columns]
    assert len(np.unique(random)) == random.size


def test_seeds_and_iterations_have_streams_of_their_own(opened: stanadapt.Posterior) -> None:
    x, rows = np.zeros((50, opened.dim)), []
    for seed in (0, 1, 2**32 - 1, 2**64 - 1):
        values = np.empty((50, opened.n_values))
        opened.model.writer(seed)(x, values, np.arange(50))
        rows.append(values[:, np.ravel(opened.generated_quantities["u"].columns)])
    assert len(np.unique(rows)) == np.size(rows)


def test_a_row_that_fails_takes_nothing_from_the_next() -> None:
    code = """parameters { real x; } model { x ~ std_normal(); }
      generated quantities { real u = uniform_rng(0, 1); if (x > 0) reject("positive"); }"""
    posterior = stanadapt.Posterior(code)
    failing = posterior.constrain([[1.0], [-1.0]], generated=True)["u"]
    assert np.isnan(failing[0])
    assert failing[1] == posterior.constrain([[-1.0], [-1.0]], generated=True)["u"][1]


def test_random_numbers_are_uniform_and_independent(posterior: stanadapt.Posterior) -> None:
    """Of one row and between rows; 44 tests at 1e-5 each."""
    n = 20_000
    u = posterior.constrain(np.zeros((n, 1)), generated=True, seed=5)["u"]
    p_values = [stats.kstest(column, "uniform").pvalue for column in u.T]
    for first, second in (
        (u[:-1, 0], u[1:, 0]),
        (u[:, 0], u[:, 1]),
        (u[:, 15], u[:, 16]),
        (u[:, 0], u[:, 17]),
    ):
        counts = np.histogram2d(first, second, bins=10, range=[[0, 1], [0, 1]])[0]
        p_values.append(stats.chisquare(counts.ravel()).pvalue)
    assert min(p_values) > 1e-5


def test_thin_does_not_change_random_numbers(opened: stanadapt.Posterior) -> None:
    whole = sample(opened, save_warmup=True)
    thinned = sample(opened, save_warmup=True, thin=3)
    for group in ("posterior", "warmup_posterior"):
        for name in ("x", "u"):
            np.testing.assert_array_equal(thinned[group][name], whole[group][name][:, 2::3])
    u = whole["posterior"]["u"].values
    assert len(np.unique(u)) == u.size
    assert not np.isin(u, whole["warmup_posterior"]["u"]).any()


def test_thin_of_a_program_without_parameters() -> None:
    np.testing.assert_array_equal(
        sample(ALONE, thin=3)["posterior"]["u"], sample(ALONE)["posterior"]["u"][:, 2::3]
    )


def test_more_draws_and_workers_do_not_change_random_numbers(opened: stanadapt.Posterior) -> None:
    few, many = sample(opened, workers=1)["posterior"], sample(opened, workers=2, draws=60)["posterior"]
    np.testing.assert_array_equal(few["u"], many["u"][:, :30])


def test_nuts_fills_in_what_stan_left_out() -> None:
    whole, thinned = (sample(UNIFORM, method="nuts", thin=thin)["posterior"] for thin in (1, 3))
    np.testing.assert_array_equal(thinned["u"], whole["u"][:, 2::3])


REJECTS = """
parameters { real x; }
transformed parameters {
  real y = 3 * x;
  if (x > 1) reject("no");
}
model { x ~ std_normal(); }
"""


@pytest.mark.parametrize("code", [REJECTS, UNIFORM], ids=["rejects", "draws random numbers"])
def test_rows_written_at_once_are_those_written_alone(code: str) -> None:
    """A point that repeats, as after a rejected proposal, too; and one at which the program fails."""
    model = stanadapt.Posterior(code).model
    x = np.array([0.5, 0.5, 2.0, 2.0, 0.5, 0.25, 0.25])[:, None]
    width = len(model.names(transformed=True, generated=True))
    together, alone, iterations = np.empty((7, width)), np.empty((7, width)), np.arange(7)
    model.writer(3)(x, together, iterations)
    for i in range(7):
        model.writer(3)(x[i : i + 1], alone[i : i + 1], iterations[i : i + 1])
    np.testing.assert_array_equal(together, alone)
    assert np.isnan(together[2:4]).any() == (code is REJECTS)
    assert np.all(together[[0, 1, 4, 5, 6], 0] == x[[0, 1, 4, 5, 6], 0])
    if code is UNIFORM:
        assert len(np.unique(together[:, 2:])) == 7 * K
