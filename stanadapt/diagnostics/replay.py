"""Did adaptation break the target? The draws of a run, taken up again by its kernel and by another one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import check
from ..errors import ArgumentError
from ..model.plugins import check_backend
from ..model.posterior import Posterior
from ..result.container import attributes
from ..result.record import RunRecord
from ..result.stores.disk_draws import read_store
from ..result.stores.reopening import reopen_posterior
from ..result.stores.store import Store, open_store
from ..run.inits import plan
from ..run.job import Job
from ..run.preparation.compiling import compile_model, compile_steps, job_steps, reference_step
from ..run.preparation.prepare import open_posterior
from ..run.rerun import Frozen, log_densities, run_on, step_from, warm_up_again
from ..samplers import is_engine, sampler
from .convergence import convergence
from .finding import Finding
from .law import SPREAD, DrawFrame, Means, adjust, batch_test, names
from .scalars import ESS_PER_CHAIN

if TYPE_CHECKING:
    import pandas

    from ..result.container import InferenceData

KERNEL, REFERENCE = "frozen kernel", "reference kernel"
ERROR_RATE = 0.001
_KERNEL_SHARE = 1 / 3  # of the budget; the rest is the reference's
_STEP_COST = 3.0  # evaluations of a pair of the reference's proposals
_FEWEST = 16  # draws a chain
_PER_BATCH = 5.0  # independent draws in a batch of the reference's
_FEWEST_BATCHES = 8
_MOST_NUMBERS = 10_000_000  # coordinates of the draws from which either kernel starts
_SUSPECT = 0.05  # p-value, corrected, above which nothing is said to be seen
_STILL = 0.01  # share of iterations that move, under which the frozen kernel's check says nothing


@dataclass(frozen=True)
class Replay:
    """What a replay has shown.

    Attributes
    ----------
    finding : Finding or None
        What is wrong with the draws, if anything is.
    p_value : float
        The smallest of all tests, corrected for their number; under `error_rate` it is a finding.
    error_rate : float
        Probability of a finding where the draws are from the target, and the chains have been everywhere.
    tests : pandas.DataFrame
        A row for each test, the smallest p-value first: check, quantity, what of it, effect, z, p, and p
        corrected for the number of tests. The effect says about how much the draws are off: by how many
        standard deviations they lie too high, or by which share they spread too wide.
    notes : tuple of str
        What was not done, and what to bear in mind.
    """

    finding: Finding | None
    p_value: float
    error_rate: float
    tests: pandas.DataFrame
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The verdict in a sentence, and the notes."""
        verdict = str(self.finding)
        if self.finding is None:
            first = self.tests.iloc[0]
            verdict = (
                f"Nothing speaks against the draws: none of {len(self.tests)} tests fails at an error rate "
                f"of {self.error_rate:g}; the smallest p-value is {self.p_value:.2g}, of {_subject(first)} "
                f"under the {first.check}."
            )
        return " ".join((verdict, *self.notes))


class _Check(NamedTuple):
    """What one of the kernels has shown."""

    name: str
    means: Means
    effect: np.ndarray  # (k,)


def replay(
    idata: InferenceData | str | os.PathLike[str],
    model: Any = None,
    data: Any = None,
    *,
    seed: int = 0,
    error_rate: float = ERROR_RATE,
    budget: float = 1.0,
    kernel: bool = True,
    inits: Any = None,
    init_radius: float = 2.0,
    backend: str = "auto",
    workers: int | None = None,
    progress: bool = True,
) -> Replay:
    """Say whether adaptation, or the kernel itself, has broken the law of a run's draws.

    Two checks, each of whether the law of the draws changes under a kernel:

    1. The *frozen kernel* of the run. Warm-up is run once more from the run's seed, which gives the kernel of
       every chain as it was when adaptation ended. It runs on from draws so far apart that they are about
       independent. A law that changes was not that of the frozen kernel: adaptation has touched the draws, or
       warm-up was too short.
    2. A *reference kernel* that is known to be right: one Metropolis step (a Langevin proposal where there is
       a gradient, else a random walk) from many draws, with acceptance probabilities in place of decisions,
       and with two proposals of opposite noise from each draw. As steps get short, this is Stein's identity.
       A law that changes is not the target's; and if the frozen kernel keeps it, the kernel itself is wrong.

    Both look at the location and the spread of every unconstrained parameter, at the log density, and at the
    distance from the middle. All p-values are corrected for the number of tests (Bonferroni), and there is
    one verdict. It is about the draws that there are. Of modes and tails that no chain has seen it knows
    nothing; `diagnose` looks at these.

    Parameters
    ----------
    idata
        A result of `stanadapt.sample`, or the folder of a run with `store`: that has its model, and the
        chains' kernels, so warm-up is not run again.
    model, data
        The program and the data of the run, as `stanadapt.sample` takes them; of a run without a store, or
        whose model was no Stan program.
    seed
        Of the replay.
    error_rate
        Probability of a finding where all is well, between 0 and 0.5.
    budget
        Evaluations of the density that it may take, as a share of those that the draws took. Warm-up comes on
        top.
    kernel
        False leaves out the first check, for a run of another machine or version, whose warm-up cannot be run
        again.
    inits, init_radius
        Those of the run.
    backend, workers, progress
        As for `stanadapt.sample`. Python functions run in this process, one chain after another.

    Returns
    -------
    Replay
        The finding, or None; all tests; and, printed, the verdict in a sentence.

    Raises
    ------
    ArgumentError
        The result cannot be replayed: another program or data, a noisy density, too few draws, or a warm-up
        that comes to something else than the run's.
    ModelError, DataError
        The model cannot be opened, or the data do not fit.

    Notes
    -----
    The error rate is that of chains that have converged; examples/benchmarks/README.md has measured rates.
    Sources: Barbour (1990), Stein's method for diffusion approximations, and Hodgkinson, Salomone and Roosta
    (2020), The reproducing Stein kernel approach for post-hoc corrected sampling, on tests by the step of a
    Markov chain; Douc and Robert (2011), A vanilla Rao-Blackwellization of Metropolis-Hastings algorithms, on
    probabilities in place of decisions.

    Examples
    --------
    >>> print(stanadapt.replay(idata, "eight_schools.stan", "eight_schools.json"))
    """
    seed = check.integer("seed", seed, 0, 2**32 - 1)
    _check_numbers(error_rate, budget)
    kernel, progress = check.boolean("kernel", kernel), check.boolean("progress", progress)
    init_radius = check.number("init_radius", init_radius, 0.0, check.LARGEST_RADIUS)
    check_backend(backend)
    workers = check.available_cores() if workers is None else check.integer("workers", workers, 1)
    store = _store_of(idata, model)
    record = RunRecord.of(idata if store is None else read_store(store))
    if model is None and store is None:
        raise ArgumentError(
            "model is missing: a result does not hold the program and the data of its run, unless that was "
            "kept in a store"
        )
    if isinstance(model, Posterior) and data is not None:
        raise ArgumentError("data are not allowed with a Posterior: it was opened with its data")
    if store is not None:
        posterior = reopen_posterior(store, model, data)
    elif isinstance(model, Posterior):
        posterior = model
    else:
        posterior = open_posterior(record.method, model, data, backend)
    check_target(posterior)
    record.check_model(posterior)
    job = record.job()
    draws, spacing = record.unconstrain(posterior)
    _check_draws(draws)  # before warm-up takes its time
    frozen, notes, method = None, [], sampler(job.method)
    if is_engine(method):
        notes.append(f"{job.method} runs chains as a whole: its kernel was not run again.")
    elif method.FACTS.has_replicas:
        notes.append(f"A chain of {job.method} has replicas beside its draws: its kernel was not run again.")
    elif not kernel:
        notes.append("The frozen kernel was not run again.")
    else:
        compile_steps(job_steps(job, posterior), progress)
        if store is not None:
            values = [store.checkpoint(i)["value"] for i in record.chains]
            frozen = [Frozen(value.state, value.transport) for value in values]
        else:
            starts = plan(inits, init_radius, posterior, job.chains, job.seed)
            frozen, results = warm_up_again(posterior, job, starts, record.chains, workers, progress)
            record.check_warmup(results)
    return replay_draws(
        posterior,
        job,
        frozen,
        draws,
        seed,
        spacing=spacing,
        error_rate=error_rate,
        budget=budget,
        workers=workers,
        progress=progress,
        notes=notes,
    )


def _store_of(given: Any, model: Any) -> Store | None:
    """The folder of the run, if it is given, or if the result has one and no model is given."""
    if isinstance(given, str | os.PathLike):
        return open_store(given)
    known = attributes(given).get("store") if model is None and hasattr(given, "attrs") else None
    return open_store(str(known)) if known else None


def replay_draws(
    posterior: Posterior,
    job: Job,
    frozen: Sequence[Frozen] | None,
    draws: np.ndarray,
    seed: int,
    *,
    spacing: int = 1,
    error_rate: float = ERROR_RATE,
    budget: float = 1.0,
    workers: int = 1,
    progress: bool = False,
    notes: Sequence[str] = (),
) -> Replay:
    """The same for plain things.

    Parameters
    ----------
    posterior, job
        The target, and what the run was asked for.
    frozen
        What every chain has come to; None leaves out the frozen kernel's check.
    draws
        Unconstrained draws (C, n, d) of the same chains, maybe thinned: see `result.record.thinning`.
    seed
        Of the replay.
    spacing
        Iterations from a draw to the next.
    error_rate, budget, workers, progress
        As `replay` has them.
    notes
        What is to be told with the verdict.

    Raises
    ------
    ArgumentError
        The density is noisy, there are no parameters or too few draws, or some are not finite.
    """
    _check_numbers(error_rate, budget)
    check_target(posterior)
    draws = np.ascontiguousarray(draws)
    _check_draws(draws)
    chains, n = draws.shape[:2]
    compile_model(posterior, progress)
    compile_steps([reference_step(posterior)], progress)
    size = _effective_size(draws)
    apart = min(int(np.ceil(chains * n / size)), n // _FEWEST) if size < chains * n / 2 else 2
    apart = max(apart, -(-draws.size // _MOST_NUMBERS))
    starts = np.ascontiguousarray(draws[:, apart - 1 :: apart])
    logp = log_densities(posterior, starts)
    if not np.isfinite(logp).all():
        raise ArgumentError("idata has draws at which the log density is not finite: it is another target")
    frame = DrawFrame.of(draws, logp)
    told, checks, evaluations = list(notes), [], _STEP_COST
    if frozen is not None:
        iterations = max(1, round(_KERNEL_SHARE * budget * apart * spacing))
        moves = run_on(posterior, job, frozen, starts, iterations, seed, workers, progress)
        after = frame.functions(moves.ends, log_densities(posterior, moves.ends))
        means = batch_test(after - frame.functions(starts, logp), max(size, _FEWEST_BATCHES))
        checks.append(_Check(KERNEL, means, -means.mean / frame.slopes(starts, logp)))
        evaluations = (1.0 - _KERNEL_SHARE) * moves.evaluations
        if moves.moved < _STILL:
            told.append(f"The frozen kernel moves in {moves.moved:.2%} of its iterations only.")
    most = min(n, max(_FEWEST, _MOST_NUMBERS // (chains * draws.shape[2])))
    rows = int(np.clip(budget * evaluations * spacing * n / _STEP_COST, _FEWEST, most))
    points = np.ascontiguousarray(draws[:, np.linspace(0, n - 1, rows).astype(int)])
    steps = step_from(posterior, job, points, frame.yardstick, seed, workers, progress)
    checks.append(_reference(frame, points, steps, max(size / _PER_BATCH, _FEWEST_BATCHES)))
    if size < ESS_PER_CHAIN * chains:
        told.append(
            f"The draws are worth {size:.0f} independent ones only, and chains that have not been everywhere "
            "may be the reason of a finding here: see stanadapt.diagnose."
        )
    tests = _table(checks, posterior.unconstrained_names)
    p_value = float(tests["p_corrected"].iloc[0])
    finding = None if p_value >= error_rate else Finding("replay", _words(tests, error_rate, len(checks)))
    return Replay(finding, p_value, error_rate, tests, tuple(told))


def check_target(posterior: Posterior) -> None:
    """Refuse a target on which there is nothing to replay."""
    if not posterior.dim:
        raise ArgumentError("model: it has no parameters, so no kernel has drawn anything")
    if posterior.model.noisy:
        raise ArgumentError(
            "model: its density is only estimated, and draws do not tell the estimates that they were "
            "accepted with: no kernel can be started from them in its own law"
        )


def _check_numbers(error_rate: Any, budget: Any) -> None:
    check.number("error_rate", error_rate, 0.0, 0.5, open_low=True)
    check.number("budget", budget, 0.0, 1e6, open_low=True)


def _check_draws(draws: np.ndarray) -> None:
    if draws.shape[1] < _FEWEST:
        raise ArgumentError(f"idata has {draws.shape[1]} draws a chain; at least {_FEWEST} are needed")
    if not np.isfinite(draws).all():
        raise ArgumentError("idata has draws that are NaN or infinite")
    if (draws == draws[:, :1]).all(axis=1).any():
        raise ArgumentError("idata has a chain that has not moved; see stanadapt.diagnose")


def _effective_size(draws: np.ndarray) -> float:
    """The smallest effective sample size of a coordinate of the draws (C, n, d), in the bulk or the tails."""
    found = convergence(np.ascontiguousarray(draws.transpose(2, 0, 1)))
    return float(np.nanmin([found.ess_bulk, found.ess_tail]))


def _reference(frame: DrawFrame, points: np.ndarray, steps: Any, batches: float) -> _Check:
    """What the reference kernel shows, of draws (C, m, d) and its steps from there.

    For an f that decays under the kernel like e^-ct, what the draws' mean is off by is the drift over -c. Of
    any f, c is about the mean of half the squared change over the variance (its Dirichlet form).
    """
    before = frame.functions(points, steps.logp[..., 0])
    drift, energy = np.zeros_like(before), np.zeros(before.shape[-1])
    for side in range(2):
        accept = steps.accept[:, :, side, None]
        with np.errstate(all="ignore"):  # proposals may be infinite
            change = frame.functions(steps.proposals[:, :, side], steps.logp[..., side + 1]) - before
        change = np.where(accept > 0.0, change, 0.0)
        drift += 0.5 * accept * change
        energy += 0.25 * (accept * change**2).mean(axis=(0, 1))
    means = batch_test(drift, batches)
    decay = energy / before.var(axis=(0, 1))
    slopes = frame.slopes(points, steps.logp[..., 0])
    with np.errstate(all="ignore"):  # where no proposal is accepted nothing changes
        effect = -means.mean / (decay * slopes)
    return _Check(REFERENCE, means, effect)


def _table(checks: Sequence[_Check], coordinates: list[str]) -> pandas.DataFrame:
    import pandas

    quantities = names(coordinates)
    parts = [
        pandas.DataFrame(
            {
                "check": each.name,
                "quantity": [quantity for quantity, _ in quantities],
                "what": [what for _, what in quantities],
                "effect": each.effect,
                "z": each.means.z,
                "p": each.means.p,
                "p_corrected": adjust(each.means.p, len(checks)),
            }
        )
        for each in checks
    ]
    table = pandas.concat(parts, ignore_index=True)
    return table.sort_values(["p_corrected", "p"], kind="stable", ignore_index=True)


def _subject(row: Any) -> str:
    return f"the {row.what} of {row.quantity}"


def _size(row: Any) -> str:
    """By how much the draws are off."""
    if row.what == SPREAD:
        return f"about {abs(row.effect):.1%} too {'wide' if row.effect > 0.0 else 'narrow'}"
    return f"about {abs(row.effect):.2g} standard deviations too {'high' if row.effect > 0.0 else 'low'}"


def _words(tests: pandas.DataFrame, error_rate: float, checks: int) -> str:
    """The finding: which check has failed, in what, by how much, and what that means."""
    failed = tests[tests["p_corrected"] < error_rate]
    first = failed.iloc[0]
    others = f", and {len(failed) - 1} more tests fail" if len(failed) > 1 else ""
    text = (
        f"The draws do not have the law that they should have. Under the {first.check} {_subject(first)} "
        f"changes: it is {_size(first)} (z = {first.z:.1f}, p = {first.p_corrected:.1g} corrected for "
        f"{len(tests)} tests, at an error rate of {error_rate:g}){others}. "
    )
    names_of_failed = set(failed["check"])
    if checks == 1:
        return (
            text
            + "Either adaptation has touched the draws, or warm-up was too short, or the kernel is wrong."
        )
    if names_of_failed == {REFERENCE}:
        smallest = tests[tests["check"] == KERNEL]["p_corrected"].min()
        if smallest < _SUSPECT:
            return text + (
                f"The frozen kernel of the run may change it too (smallest p-value {smallest:.2g}): then "
                "adaptation has touched the draws, or warm-up was too short; else the kernel itself is wrong."
            )
        return text + (
            f"The frozen kernel of the run is not seen to change it (smallest p-value {smallest:.2g}): then "
            "the kernel itself is wrong, or its starts are too few to tell."
        )
    if names_of_failed == {KERNEL}:
        return text + (
            "The reference kernel is not seen to change it: then the draws are nearer to the target than the "
            "frozen kernel's law is, and that kernel is wrong."
        )
    return text + ("Both kernels change it: adaptation has touched the draws, or warm-up was too short.")
