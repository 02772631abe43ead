"""Whether a run fits in memory, before it begins."""

from __future__ import annotations

from ... import check, samplers
from ...errors import ArgumentError
from ...model.description import Description
from ...model.posterior import Posterior
from ..draws import row_bytes
from ..job import Job
from ..request import Request

MEMORY_BYTES = 2**28  # of draws that are held in memory where a store has them as well
_CHAIN_BYTES = 5_000  # of a chain's objects
_CHAIN_POINTS = 20  # arrays of length d that a chain holds at least: its first block and its state


def check_chains(chains: int) -> None:
    """Refuse chains whose objects would not fit in memory, before any is made."""
    needed, free = _CHAIN_BYTES * chains, check.free_memory()
    if needed > free:
        raise ArgumentError(
            f"chains={chains} need {needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free: use fewer"
        )


def stays_on_disk(request: Request, job: Job, description: Description) -> bool:
    """Whether the rows of a run that has a store stay on the disk. Goals of `until` need them in memory."""
    rows = (job.rows + job.warmup_rows) * job.chains
    is_large = rows * row_bytes(job, description.n_values, description.dim) > MEMORY_BYTES
    return is_large and request.until is None


def check_memory(posterior: Posterior, job: Job, workers: int, on_disk: bool = False) -> None:
    """Refuse a run whose arrays cannot fit, and name their size; `on_disk`: memory does not hold the rows."""
    sampler, free = samplers.sampler(job.method), check.free_memory()
    d = posterior.dim
    matrices = samplers.n_matrices(sampler, job.settings)
    needed = 8 * d * d * (matrices + 1) * job.chains if matrices else 0  # + 1: the result's copy
    if needed > free:
        able = [name for name in samplers.METHODS if not _default_matrices(name)]
        raise ArgumentError(
            f"method={job.method!r} needs {needed / 2**30:.1f} GiB for the {d} x {d} matrices of "
            f"{job.chains} chains, and {free / 2**30:.1f} GiB are free. Methods that need "
            f"none: {', '.join(able)}"
        )
    if on_disk:
        return
    iterations = job.draws + (job.warmup if job.save_warmup else 0)
    stats = len(samplers.stats(sampler))
    columns = posterior.n_values + (d if job.keep_unconstrained else 0)
    size = row_bytes(job, posterior.n_values, d)
    needed += (size * (iterations // job.thin) + _CHAIN_BYTES + _CHAIN_POINTS * 8 * d) * job.chains
    if samplers.is_engine(sampler):  # what a chain hands over at its end, before it is thinned
        needed += 2 * 8 * (posterior.n_values + d + stats) * iterations * min(workers, job.chains)
    if needed > free:
        raise ArgumentError(
            f"draws={job.draws} of {job.chains} chains need {needed / 2**30:.1f} GiB for {columns} values "
            f"each, and {free / 2**30:.1f} GiB are free: use thin, fewer draws or fewer chains"
        )


def _default_matrices(name: str) -> int:
    module = samplers.sampler(name)
    return samplers.n_matrices(module, samplers.resolve(module, None))
