"""The samplers of the race, each behind the same two calls. They run in processes of their own, see lane.py.

What is timed, for every sampler: warm-up and draws, the search for a start, and its threads. What is not:
opening the model, compiling (numba, JAX), imports, anything that the first run in a process loads, and the
way from a sampler's own arrays to ArviZ. In doubt the peers have it easier:

- ours      what `sampling_time` times: start, warm-up, draws, and the models that stanadapt opens again, one
            for every further chain; kernels of coordinates are loaded before, as a first run loads others
- stan_*    the call of stanli's `Model.sample`, with the model open
- nutpie*   from `nutpie.sample(blocking=False)` until its sampler says that it has finished; the draws stay
            in its own format
- walnutpie the call of `walnuts_stan`
- blackjax  warm-up and draws as two compiled functions, compiled before; the draws stay unconstrained

Gradients are counted by the shim, in the same way for all but stan_*: stanli's own sampler calls its model
directly, and reports its leapfrog steps. A second run, not timed, counts those of its warm-up.
"""

from __future__ import annotations

import importlib.util
import shutil
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from . import shim
from .blackjax_nuts import BlackjaxNuts
from .problems import Problem
from .racer import Clock, Outcome, Racer


def ours(method: str) -> Callable[[Problem, int, int], Racer]:
    """A method of this package at its defaults."""

    class Ours(Racer):
        def __init__(self, problem: Problem, chains: int, cores: int) -> None:
            import stanadapt

            self.posterior = stanadapt.Posterior(shim.opened(problem.bridgestan_data))
            self.posterior.model.fixed_bounds = problem.fixed_bounds  # as of a program that is given as text
            self.chains, self.cores = chains, cores

        def prepare(self, draws: int) -> None:
            # Kernels of coordinates are loaded when a posterior first needs them: a tenth of a second.
            from stanadapt.transport.fields.field_learning import learn_walk
            from stanadapt.transport.learning import learn_funnel

            learn_funnel()
            learn_walk()

        def run(self, draws: int, seed: int) -> Callable[[], Outcome]:
            import stanadapt
            from stanadapt import runs
            from stanadapt.result.container import datasets

            clock, run_chains = Clock(), runs.run

            def timed(*arguments: Any) -> Any:
                with clock:
                    return run_chains(*arguments)

            before = shim.gradients()
            with warnings.catch_warnings(), mock.patch.object(runs, "run", timed):
                warnings.simplefilter("ignore")
                result = stanadapt.sample(
                    self.posterior,
                    method=method,
                    chains=self.chains,
                    workers=self.cores,
                    draws=draws,
                    seed=seed,
                    progress=False,
                )
            gradients = shim.gradients() - before
            group = datasets(result)["posterior"]
            values = side_by_side(group, self.posterior.variables)
            return lambda: Outcome(clock.seconds, clock.cpu_seconds, gradients, values)

    return Ours


def side_by_side(group: Any, variables: dict[str, Any]) -> np.ndarray:
    """The draws of all variables side by side, in the order of Stan's flat names."""
    width = sum(variable.columns.size for variable in variables.values())
    first = group[next(iter(variables))].values
    draws = np.empty((*first.shape[:2], width))
    for name, variable in variables.items():
        values = group[name].values.reshape(*first.shape[:2], -1)
        draws[..., variable.columns.ravel()] = values
    return draws


def stan(metric: str) -> Callable[[Problem, int, int], Racer]:
    """Stan's NUTS as stanli has it; it must be called in a process's main thread."""

    class Stan(Racer):
        def __init__(self, problem: Problem, chains: int, cores: int) -> None:
            import stanli

            self.model = stanli.Model(mir=problem.intermediate, data=problem.data)
            self.chains, self.cores = chains, cores

        def run(self, draws: int, seed: int) -> Callable[[], Outcome]:
            import stanli

            with Clock() as clock:
                fit = self._sample(seed, samples=draws)
            steps = stanli.SAMPLER_COLUMNS.index("n_leapfrog__")

            def outcome() -> Outcome:
                warmup = self._sample(seed, samples=1, save_warmup=True)  # the same one again
                gradients = fit.sampler_stats[..., steps].sum() + warmup.sampler_stats[:, :-1, steps].sum()
                return Outcome(clock.seconds, clock.cpu_seconds, float(gradients), np.asarray(fit.draws()))

            return outcome

        def _sample(self, seed: int, **more: Any) -> Any:
            return self.model.sample(
                chains=self.chains,
                parallel_chains=self.cores,
                seed=seed,
                metric=metric,
                refresh=0,
                **more,
            )

    return Stan


def nutpie(**settings: Any) -> Callable[[Problem, int, int], Racer]:
    """nutpie at its defaults but for `settings`."""

    class Nutpie(Racer):
        def __init__(self, problem: Problem, chains: int, cores: int) -> None:
            from nutpie import _lib
            from nutpie.compile_stan import CompiledStanModel

            shim.copies(chains)
            library = _lib.StanLibrary(str(shim.library()))
            model = _lib.StanModel(library, {}, {}, {}, 0, problem.bridgestan_data, None)
            self.model = CompiledStanModel(
                dims={}, _coords={}, code="", data=None, library=library, model=model
            )
            self.names = problem.parameters + problem.transformed
            self.chains, self.cores = chains, cores

        def run(self, draws: int, seed: int) -> Callable[[], Outcome]:
            import nutpie

            before = shim.gradients()
            with Clock() as clock, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # newer versions have another name for the low-rank setting
                running = nutpie.sample(
                    self.model,
                    draws=draws,
                    chains=self.chains,
                    cores=self.cores,
                    seed=seed,
                    progress_bar=False,
                    blocking=False,
                    **settings,
                )
                running._sampler.wait(None)
            gradients = shim.gradients() - before
            return lambda: Outcome(clock.seconds, clock.cpu_seconds, gradients, *self._drawn(running))

        def _drawn(self, running: Any) -> tuple[np.ndarray, np.ndarray]:
            """The draws, and the leapfrog steps of each."""
            from stanadapt.model.variables import variables
            from stanadapt.result.container import datasets

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                groups = datasets(running.wait())
            draws = side_by_side(groups["posterior"], variables(self.names))
            return draws, groups["sample_stats"]["n_steps"].values

    return Nutpie


class Walnutpie(Racer):
    def __init__(self, problem: Problem, chains: int, cores: int) -> None:
        self.model = shim.opened(problem.bridgestan_data, chains)
        self.chains = chains

    def run(self, draws: int, seed: int) -> Callable[[], Outcome]:
        import walnutpie

        before = shim.gradients()
        with Clock() as clock, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its warm-up ends when chains agree, which no seed repeats
            chains = walnutpie.walnuts_stan(
                self.model,
                num_chains=self.chains,
                seed=seed,
                min_sampling_iter=draws,
                max_sampling_iter=draws,
            )
        gradients = shim.gradients() - before
        values = np.array([chain.data for chain in chains])
        return lambda: Outcome(clock.seconds, clock.cpu_seconds, gradients, values)


class Peer(NamedTuple):
    """What it takes to run a peer."""

    open: Callable[[Problem, int, int], Racer]  # problem, chains, cores
    package: str
    compilers: tuple[str, ...] = ()


PEERS = {
    "stan_diag": Peer(stan("diag_e"), "stanli"),
    "stan_dense": Peer(stan("dense_e"), "stanli"),
    "nutpie": Peer(nutpie(), "nutpie", ("gcc",)),
    "nutpie_low_rank": Peer(nutpie(low_rank_modified_mass_matrix=True), "nutpie", ("gcc",)),
    "walnutpie": Peer(Walnutpie, "walnutpie", ("gcc",)),
    "blackjax": Peer(BlackjaxNuts, "blackjax", ("gcc", "g++")),
}


def racer(name: str) -> Callable[[Problem, int, int], Racer]:
    """What opens a problem (problem, chains, cores) for a peer or one of our methods."""
    return PEERS[name].open if name in PEERS else ours(name)


def lacking(name: str) -> str:
    """What a sampler lacks here; nothing where it can run."""
    package, compilers = (
        (PEERS[name].package, PEERS[name].compilers) if name in PEERS else ("stanadapt", ("gcc",))
    )
    if importlib.util.find_spec(package) is None:
        return f"{package} is not installed; stanadapt[peers] brings it"
    missing = [compiler for compiler in compilers if shutil.which(compiler) is None]
    return f"there is no {' and no '.join(missing)}, which race/shim.py needs" if missing else ""
