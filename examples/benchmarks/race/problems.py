"""What is raced on: posteriors of PosteriorDB, a Stan program with data, Gaussians of any dimension."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import stanli

import stanadapt
from posteriordb import program_and_data, unzipped
from stanadapt.diagnostics.estimates import STATISTICS, Estimates
from stanadapt.diagnostics.statistics import each_column
from stanadapt.model.backends.stan.stanli_nuts import StanliProgram
from stanadapt.model.steady import find_steady


@dataclass(frozen=True)
class Reference:
    """Means of known draws and their standard errors, by flat name."""

    names: list[str]
    mean: np.ndarray
    error: np.ndarray


@dataclass(frozen=True)
class Problem:
    """A Stan program with data, as stanli takes them; without its generated quantities.

    No sampler spends time on generated quantities then, and none is ahead because it leaves them out.
    """

    name: str
    intermediate: str  # the program, in stanli's form
    data: str  # JSON
    d: int
    parameters: list[str]  # flat names, `theta.1.2`
    transformed: list[str]
    steady: np.ndarray  # of the parameters, those that never move or repeat another one: no ESS for them
    reference: Reference | None = None
    fixed_bounds: bool = False  # of all parameters, as the program's text says

    @functools.cached_property
    def bridgestan_data(self) -> str:
        """Data that hold the program too, which is how stanli opens it behind BridgeStan's interface."""
        program = {"build_id": stanli.build_id(), "mir": self.intermediate, "name": "raced_model"}
        return json.dumps(json.loads(self.data) | {"__stanli": program})


def opened(name: str, model: Path | str, data: object, reference: Reference | None = None) -> Problem:
    """A problem from a .stan file, or its text, and data."""
    posterior = stanadapt.Posterior(model, data, backend="stanli")
    program = StanliProgram.of_model(posterior.model)
    everything = posterior.model.names(transformed=True, generated=False)
    return Problem(
        name,
        program.intermediate,
        program.data,
        posterior.dim,
        posterior.names,
        everything[len(posterior.names) :],
        find_steady(posterior),
        reference,
        posterior.model.fixed_bounds,
    )


def posteriordb_names(database: Path) -> list[str]:
    return sorted(path.stem for path in (database / "posteriors").glob("*.json"))


def from_posteriordb(database: Path, name: str) -> Problem:
    return opened(name, *program_and_data(database, name), _reference(database, name))


def _reference(database: Path, name: str) -> Reference | None:
    """Of PosteriorDB's reference draws, where there are any."""
    path = database / "reference_posteriors" / "draws" / "draws" / f"{name}.json.zip"
    if not path.is_file():
        return None
    chains = unzipped(path)
    draws = np.array([[chain[key] for key in chains[0]] for chain in chains])  # (chains, scalars, n)
    mean, error = mean_and_error(draws.transpose(0, 2, 1))
    return Reference([flat(key) for key in chains[0]], mean, error)


def mean_and_error(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means (k,) of draws (chains, n, k), and their standard errors."""
    found = each_column(Estimates.of, [draws])
    place = STATISTICS.index("mean")
    return found.value[:, place], found.error[:, place]


def flat(name: str) -> str:
    """`theta[1,2]` as `theta.1.2`."""
    return name.replace("[", ".").replace(",", ".").rstrip("]")


def small() -> Problem:
    """Something to load a sampler with."""
    return opened("small", "parameters { vector[2] x; } model { x ~ std_normal(); }", None)


GAUSSIAN = """
data {
  int<lower=1> d;
  int<lower=0> layers;
  int<lower=0> pairs;
  array[layers, pairs] int first;
  array[layers, pairs] int second;
  array[layers] vector[pairs] cosine;
  array[layers] vector[pairs] sine;
  vector<lower=0>[d] sd;
}
parameters {
  vector[d] x;
}
model {
  vector[d] y = x;
  for (i in 1:layers) {
    vector[pairs] u = y[first[i]];
    vector[pairs] v = y[second[i]];
    y[first[i]] = cosine[i] .* u - sine[i] .* v;
    y[second[i]] = sine[i] .* u + cosine[i] .* v;
  }
  target += -0.5 * dot_self(y ./ sd);
}
"""


def gaussian(d: int, condition: float = 1e4, seed: int = 0) -> Problem:
    """A Gaussian whose covariance has eigenvalues from 1 to `condition`, log-uniform, in rotated axes.

    The rotation is four layers of plane rotations, by random angles between random pairs of axes: every
    eigenvector has weight on up to 16 axes. It costs O(d) instead of a dense matrix's O(d²).
    """
    rng = np.random.default_rng([seed, d])
    pairs, layers = d // 2, min(4, d - 1)
    order = np.array([rng.permutation(d) for _ in range(layers)]).reshape(layers, d) + 1
    angle = rng.uniform(0.0, 2 * np.pi, (layers, pairs))
    data = {
        "d": d,
        "layers": layers,
        "pairs": pairs,
        "first": order[:, :pairs],
        "second": order[:, pairs : 2 * pairs],
        "cosine": np.cos(angle),
        "sine": np.sin(angle),
        "sd": np.sqrt(np.geomspace(1.0, condition, d)) if d > 1 else np.ones(1),
    }
    reference = Reference([f"x.{i + 1}" for i in range(d)], np.zeros(d), np.zeros(d))  # exact
    return opened(f"gaussian-{d}", GAUSSIAN, data, reference)
