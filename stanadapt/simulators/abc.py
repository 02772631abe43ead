"""Approximate Bayesian computation: a noisy target that consists of a simulator, a prior and data."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from .. import check
from ..errors import ArgumentError
from ..model.backends.contract import Writer
from ..model.backends.python import Target
from ..model.posterior import Posterior
from ..numerics import synthetic
from . import priors

LIKELIHOODS = ("kernel", "synthetic", "synthetic_plugin")
KERNELS = ("gaussian", "uniform")
_TRIES = 20  # draws of the prior that `try_once` makes at most, to find one with a finite log density


def abc(
    simulator: Callable[..., Any],
    observed: Any,
    prior: str | os.PathLike[str] | Posterior | Mapping[str, Any],
    *,
    epsilon: float | None = None,
    n_sim: int = 1,
    distance: Callable[[np.ndarray, np.ndarray], float] | None = None,
    kernel: str | None = None,
    likelihood: str = "kernel",
    summary: Callable[[np.ndarray], Any] | None = None,
    vectorized: bool = False,
    prior_data: Any = None,
    threads: bool = False,
) -> SimulatedTarget:
    """A posterior whose likelihood can be simulated but not computed, for `stanadapt.sample`.

    At every proposal the target estimates the likelihood from `n_sim` simulations, so that it is noisy. Any
    method that needs no gradient draws from it (`methods()` lists these methods). The noise adds no error:
    the draws have the law that the choice of `likelihood` defines. `Target.from_python` says how noisy the
    estimate may be.

    Parameters
    ----------
    simulator
        A function of (theta, rng) that returns data of the shape of `observed`. theta is a dict of the
        parameters on their own scale: floats and read-only arrays. `rng` is the chain's own
        `numpy.random.Generator`. If nothing else is random, draws depend on the run's seed alone.
    observed
        The data: an array of numbers.
    prior
        A Stan program (a path, program text, or a `Posterior`): theta has its parameters and transformed
        parameters, and the result has its generated quantities too. Or a dict of names and frozen, continuous
        distributions of scipy.stats, univariate or multivariate_normal. A distribution with array parameters
        is a vector of independent entries. A bounded parameter is sampled on a logarithmic or logit scale.
    epsilon
        Width of the kernel, in units of the distance.
    n_sim
        Simulations for each estimate.
    distance
        A function of (simulated, observed), or of their summaries, that returns a number of at least 0. By
        default the Euclidean distance.
    kernel
        "gaussian", the default: simulations have the weight exp(-distance² / (2 epsilon²)). "uniform":
        simulations with a distance of at most epsilon have the weight 1, others 0; if simulations of weight 1
        are rare, chains need `inits` near the posterior.
    likelihood
        "kernel": the mean weight of the simulations. If the data have a measurement error with the kernel as
        its density, this is an unbiased estimate of their likelihood (Marjoram et al., 2003; Sisson and Fan,
        2010). "synthetic": summaries are Gaussian, and the simulated mean and covariance give an unbiased
        estimate of their density at the observed ones (Price et al., 2018); n_sim is at least p + 4 for p
        summaries. "synthetic_plugin": the Gaussian density with this mean and covariance (Wood, 2010). It is
        biased, so that the posterior depends on n_sim, which is at least p + 1. The last two take no epsilon,
        distance or kernel.
    summary
        A function of data of the shape of `observed` that returns an array of summary statistics.
    vectorized
        Whether the simulator is a function of (theta, n_sim, rng) that returns `(n_sim, *shape)`.
    prior_data
        Data of the Stan program.
    threads
        Whether chains run in threads rather than processes, as in `Target.from_python`.

    Returns
    -------
    Target
        The target for `sample`. In the result, the group `adaptation` has the numbers of simulations of every
        chain: `n_simulations_warmup`, and `n_simulations` after warm-up.

    Raises
    ------
    ArgumentError
        An argument is not allowed; or the simulator, the summary or the distance returns something that is
        not allowed. `abc` runs one simulation to check this.
    ModelError, DataError
        The Stan program cannot be opened, or the data do not fit it.

    Notes
    -----
    Marjoram, Molitor, Plagnol and Tavaré (2003), Markov chain Monte Carlo without likelihoods. Sisson and Fan
    (2010), Likelihood-free Markov chain Monte Carlo. Wood (2010), Statistical inference for noisy nonlinear
    ecological dynamic systems. Price, Drovandi, Lee and Nott (2018), Bayesian synthetic likelihood.

    Examples
    --------
    >>> def simulator(theta, rng):
    ...     return rng.normal(theta["mu"], 1.0, 20).mean()
    >>> target = stanadapt.abc(simulator, 0.3, {"mu": scipy.stats.norm(0, 2)}, epsilon=0.1, n_sim=10)
    >>> idata = stanadapt.sample(target, method="am", seed=1)
    """
    if not callable(simulator):
        raise check.refusal("simulator", simulator, "a function of (theta, rng)")
    if distance is not None and not callable(distance):
        raise check.refusal("distance", distance, "a function of (simulated, observed), or None")
    if summary is not None and not callable(summary):
        raise check.refusal("summary", summary, "a function of data, or None")
    simulation = Simulation(
        simulator,
        summary,
        _observed_array("observed", observed),
        check.integer("n_sim", n_sim, 1, check.LARGEST_COUNT),
        check.boolean("vectorized", vectorized),
    )
    estimate: Kernel | Synthetic
    if check.choice("likelihood", likelihood, LIKELIHOODS) == "kernel":
        if epsilon is None:
            raise check.refusal("epsilon", None, "a finite number above 0, the width of the kernel")
        width = check.number("epsilon", epsilon, 0.0, open_low=True)
        kernel = check.choice("kernel", "gaussian" if kernel is None else kernel, KERNELS)
        estimate = Kernel(simulation.observed_summary, width, kernel == "gaussian", distance)
    else:
        idle = {"epsilon": epsilon, "distance": distance, "kernel": kernel}
        for name in [name for name, given in idle.items() if given is not None]:
            raise ArgumentError(
                f"{name} is not allowed with likelihood={likelihood!r}, which has no use for it"
            )
        estimate = Synthetic(simulation.observed_summary.ravel(), likelihood == "synthetic")
        estimate.check_n_sim(simulation.n_sim)
    target = SimulatedTarget(priors.read(prior, prior_data), simulation, estimate, threads)
    target.try_once()
    return target


class Simulation:
    """A simulator and the observed data."""

    def __init__(
        self,
        simulator: Callable[..., Any],
        summary: Callable[[np.ndarray], Any] | None,
        observed: np.ndarray,
        n_sim: int,
        vectorized: bool,
    ) -> None:
        self.simulator, self.summary, self.observed = simulator, summary, observed
        self.n_sim, self.vectorized = n_sim, vectorized
        self.observed_summary = observed
        if summary is not None:
            self.observed_summary = _observed_array("summary of the observed data", summary(observed.copy()))

    def run(self, theta: Mapping[str, Any], n: int, rng: np.random.Generator) -> np.ndarray:
        """The summaries of `n` simulations (n, *shape), without NaN."""
        wanted = self.observed.shape
        if self.vectorized:
            data = _check_numbers("simulator", self.simulator(dict(theta), n, rng), (n, *wanted), theta)
        else:
            data = np.empty((n, *wanted))
            for i in range(n):
                data[i] = _check_numbers("simulator", self.simulator(dict(theta), rng), wanted, theta)
        if self.summary is None:
            return data
        shape = self.observed_summary.shape
        return np.stack([_check_numbers("summary", self.summary(each), shape, theta) for each in data])


class Kernel(NamedTuple):
    """The estimate "kernel": the mean of a kernel of the distance."""

    observed: np.ndarray
    epsilon: float
    gaussian: bool
    distance: Callable[[np.ndarray, np.ndarray], float] | None

    def log_mean(self, simulated: np.ndarray, theta: Mapping[str, Any]) -> float:
        """Log of the estimate of the likelihood, up to a constant; -inf if every weight is 0."""
        distances = self.distances(simulated, theta)
        if self.gaussian:
            with np.errstate(over="ignore"):
                logs = -0.5 * np.square(distances / self.epsilon)
        else:
            logs = np.where(distances <= self.epsilon, 0.0, -np.inf)
        highest = float(np.max(logs))
        return highest if highest == -np.inf else highest + float(np.log(np.mean(np.exp(logs - highest))))

    def distances(self, simulated: np.ndarray, theta: Mapping[str, Any]) -> np.ndarray:
        """The distances (n,) of the simulations."""
        if self.distance is None:
            away = (simulated - self.observed).reshape(len(simulated), -1)
            with np.errstate(over="ignore"):
                return np.asarray(np.linalg.norm(away, axis=1))
        found = np.empty(len(simulated))
        for i, each in enumerate(simulated):
            found[i] = _check_numbers("distance", self.distance(each, self.observed.copy()), (), theta)
            if found[i] < 0.0:
                raise _return_error(f"distance returned {found[i]:g}", theta, "a number of at least 0")
        return found


class Synthetic(NamedTuple):
    """The estimate "synthetic": the density of a Gaussian with the moments of the simulations."""

    observed: np.ndarray  # (p,)
    unbiased: bool

    def check_n_sim(self, n_sim: int) -> None:
        """Refuse too few simulations."""
        p = self.observed.size
        least = p + 4 if self.unbiased else p + 1
        if n_sim < least:
            name = "synthetic" if self.unbiased else "synthetic_plugin"
            raise check.refusal(
                "n_sim", n_sim, f"at least {least}, for likelihood={name!r} with {p} summaries"
            )

    def log_mean(self, simulated: np.ndarray, theta: Mapping[str, Any]) -> float:
        """Log of the estimate of the likelihood; -inf if it is zero."""
        summaries = simulated.reshape(len(simulated), -1)
        if not np.all(np.isfinite(summaries)):
            raise _return_error(
                "simulator returned infinity", theta, "finite numbers for a synthetic likelihood"
            )
        log_density = synthetic.log_unbiased_density if self.unbiased else synthetic.log_plugin_density
        try:
            return log_density(summaries, self.observed)
        except synthetic.SingularScatterError:
            raise ArgumentError(
                f"the covariance of {len(summaries)} simulated summaries is singular at "
                f"theta={check.quote(dict(theta))}: leave out summaries that are constant, or linear "
                "combinations of others"
            ) from None


class SimulatedTarget(Target):
    """The target that `abc` returns: noisy, with the parameters of the prior."""

    def __init__(
        self, prior: priors.Prior, simulation: Simulation, estimate: Kernel | Synthetic, threads: bool
    ) -> None:
        if threads and not prior.thread_safe:
            raise ArgumentError("threads=True is not allowed: the library of the prior cannot run in threads")
        super().__init__(simulation.simulator, prior.dim, None, None, noisy=True, threads=threads)
        self.prior, self.simulation, self.estimate = prior, simulation, estimate
        self.data = {**prior.data, "observed": simulation.observed}
        self.modelled = frozenset({"observed"})
        self._simulations = 0

    def try_once(self) -> None:
        """Run one simulation at a draw of the prior, so that errors show before a run."""
        rng = np.random.default_rng(0)
        for _ in range(_TRIES):
            x = self.prior.draw(rng)
            if self.prior.log_density(x) > -np.inf:
                theta = self.prior.values(x)
                n = self.simulation.n_sim if self.simulation.vectorized else 1
                simulated = self.simulation.run(theta, n, rng)
                if isinstance(self.estimate, Kernel):
                    self.estimate.distances(simulated, theta)
                return

    def for_chain(self, index: int, seeds: np.random.SeedSequence) -> Self:
        own = super().for_chain(index, seeds)
        own.prior = self.prior.for_chain(index, seeds)
        own._simulations = 0
        return own

    def counts(self) -> dict[str, int]:
        return {"n_simulations": self._simulations}

    def carried(self) -> dict[str, Any]:
        return super().carried() | {"n_simulations": self._simulations}

    def carry(self, given: Mapping[str, Any]) -> None:
        super().carry(given)
        self._simulations = given["n_simulations"]

    def names(self, *, transformed: bool, generated: bool) -> list[str]:
        return self.prior.names(transformed=transformed, generated=generated)

    def unconstrained_names(self) -> list[str]:
        return self.prior.unconstrained_names()

    def writer(self, seed: int) -> Writer:
        return self.prior.writer(seed)

    def unconstrain(self, values: Mapping[str, Any]) -> np.ndarray:
        return self.prior.unconstrain(values)

    def unconstrain_flat(self, values: np.ndarray) -> np.ndarray:
        return self.prior.unconstrain_flat(values)

    def identity(self) -> bytes:
        facts = [self.simulation.n_sim, self.simulation.observed.tolist(), *self.estimate]
        shown = " ".join(getattr(fact, "__qualname__", None) or repr(fact) for fact in facts)
        return super().identity() + self.prior.identity() + shown.encode()

    def _evaluate(self, x: np.ndarray) -> float:
        log_prior = self.prior.log_density(x)
        if log_prior == -np.inf:
            return -np.inf
        theta = self.prior.values(x)
        if not log_prior < np.inf:
            raise ArgumentError(f"prior has the log density {log_prior} at {check.quote(theta)}")
        simulated = self.simulation.run(theta, self.simulation.n_sim, self._rng)
        self._simulations += self.simulation.n_sim
        return log_prior + self.estimate.log_mean(simulated, theta)


def _observed_array(name: str, given: Any) -> np.ndarray:
    """Observed data as an array of finite numbers."""
    try:
        array = np.asarray(given)
    except ValueError:  # ragged
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "iufb" or array.size == 0:
        raise check.refusal(name, given, "an array of numbers that is not empty")
    array = array.astype(float)
    if not np.all(np.isfinite(array)):
        raise ArgumentError(f"{name} has values that are NaN or infinite; they must be finite")
    return array


def _check_numbers(what: str, given: Any, shape: tuple[int, ...], theta: Mapping[str, Any]) -> np.ndarray:
    """Return the numbers that a user's function returned; refuse other shapes, NaN and what is no number."""
    try:
        array = np.asarray(given)
    except ValueError:
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "iufb":
        raise _return_error(f"{what} returned {check.quote(given)}", theta, "numbers")
    if array.shape != shape:
        raise _return_error(f"{what} returned shape {array.shape}", theta, f"shape {shape}")
    if np.isnan(array).any():
        raise _return_error(
            f"{what} returned NaN", theta, "numbers; infinity is allowed: infinitely far from the data"
        )
    return array.astype(float)


def _return_error(found: str, theta: Mapping[str, Any], allowed: str) -> ArgumentError:
    """The error for a user's function that returned something not allowed."""
    return ArgumentError(f"{found} at theta={check.quote(dict(theta))}; it must return {allowed}")
