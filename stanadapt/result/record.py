"""The facts about a run that its result records, and that a rerun needs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray

from .. import check, samplers
from ..errors import ArgumentError
from ..model.posterior import Posterior
from ..run.draws import ChainResult
from ..run.job import Job
from .container import OWN_GROUP, Groups, attributes, datasets, readable, without_draws
from .labels import SAMPLE_DIMS

if TYPE_CHECKING:
    from .container import InferenceData

_MOST_ROWS = 20_000  # draws that are looked at, of all chains;
_MOST_NUMBERS = 40_000_000  # of all their coordinates;
_FEWEST_ROWS = 100  # but at least so many of each chain
ATTRIBUTES = ("method", "settings", "seed", "tuning_steps", "thin", "model_hash")
_HISTORY = ("step_size", "acceptance_rate")  # of all that is noted in warm-up, what every method has
_LOOKED_AT = 20  # draws whose log density is computed again
_CLOSE = 1e-5  # relative; values that were written as text and read back are not the same to the last digit


class RunRecord(NamedTuple):
    """A result with what its attributes say of the run."""

    groups: Groups
    attrs: dict[str, Any]

    @classmethod
    def of(cls, idata: InferenceData) -> RunRecord:
        """Of a result of `stanadapt.sample`.

        Raises
        ------
        ArgumentError
            It is another object, it has no draws, or attributes are missing.
        """
        groups = datasets(idata)
        posterior = groups.get("posterior")
        if posterior is None or not set(SAMPLE_DIMS) <= set(posterior.sizes) or not posterior.sizes["draw"]:
            raise without_draws(groups)
        attrs = posterior.attrs | attributes(idata)
        missing = [name for name in ATTRIBUTES if name not in attrs]
        if missing:
            raise ArgumentError(
                f"idata lacks the attributes {', '.join(missing)}: a result of stanadapt.sample is needed"
            )
        if attrs["method"] not in samplers.METHODS:
            raise ArgumentError(
                f"idata is of the method {check.quote(attrs['method'])}, which is unknown here"
            )
        return cls(groups, attrs)

    @property
    def method(self) -> str:
        return str(self.attrs["method"])

    @property
    def chains(self) -> list[int]:
        """The numbers of the chains whose draws there are."""
        return [int(i) for i in self.groups["posterior"]["chain"].values]

    @readable("idata")
    def job(self) -> Job:
        """The arguments of the run, as far as the warm-up of chains depends on them.

        Raises
        ------
        ArgumentError
            This version has other settings.
        """
        sampler = samplers.sampler(self.method)
        thin = int(self.attrs["thin"])
        return Job(
            method=self.method,
            settings=samplers.resolve(sampler, json.loads(self.attrs["settings"])),
            warmup=int(self.attrs["tuning_steps"]),
            draws=thin * self.groups["posterior"].sizes["draw"],
            thin=thin,
            chains=max(self.chains) + 1,
            seed=int(self.attrs["seed"]),
            save_warmup=False,
            keep_unconstrained=False,
        )

    @readable("idata")
    def check_model(self, posterior: Posterior) -> None:
        """Refuse a posterior that is not the run's: by its program, and by the log density of some draws.

        Another backend may leave out other constants, so the log densities may differ by one number.
        """
        if posterior.digest() != self.attrs["model_hash"]:
            raise ArgumentError("model: idata was drawn from another program")
        if not same_density(self.groups, posterior):
            raise ArgumentError(
                "data: the log density of the draws is not what the run has recorded: these are other data"
            )

    @readable("idata")
    def unconstrain(self, posterior: Posterior) -> tuple[np.ndarray, int]:
        """Unconstrained draws (C, n, d), and the iterations from one to the next: thinned if there are many.

        Raises
        ------
        ArgumentError
            Parameters are missing or have other shapes, or rounding has put draws on the boundary.
        """
        sizes = self.groups["posterior"].sizes
        stride = thinning(sizes["chain"], sizes["draw"], posterior.dim)
        rows = np.arange(stride - 1, sizes["draw"], stride)
        points = unconstrained_points(self.groups, posterior, rows)
        return points, stride * int(self.attrs["thin"])

    @readable("idata")
    def check_warmup(self, results: Sequence[ChainResult]) -> None:
        """Refuse chains whose warm-up has ended differently from the run's.

        Raises
        ------
        ArgumentError
            It says what differs, or that nothing is there to compare with.
        """
        own = self.groups.get(OWN_GROUP)
        if own is None or "start" not in own:
            raise ArgumentError(
                "idata has no group adaptation, by which to see that warm-up has been run again as it was; "
                "kernel=False replays without it"
            )
        for row, result in enumerate(results):
            if not _is_close(own["start"].values[row], result.start):
                raise ArgumentError(
                    f"chain {result.index} of the run started elsewhere: pass inits and init_radius as they "
                    "were; kernel=False replays without the warm-up"
                )
            notes = own.sizes.get("note", 0)  # of the chain that has the most of them
            reached: dict[str, Any] = {
                name: result.history[name][:notes] for name in _HISTORY if name in result.history and notes
            }
            reached |= result.learnt | {"warmup_iterations": result.warmup_iterations}
            for name, value in reached.items():
                if name not in own and not np.size(value):  # results leave out a map that no chain has
                    continue
                if name not in own or not _is_close(own[name].values[row], value):
                    raise ArgumentError(
                        f"chain {result.index} comes to another {name} when its warm-up is run again: the "
                        "run was made by another version or on another machine, whose rounding differs; "
                        "kernel=False replays without the warm-up"
                    )


def same_density(groups: Groups, posterior: Posterior) -> bool:
    """Whether the recorded log density of some draws is that of a posterior, up to one number.

    It is taken to be where nothing is recorded. A few draws may lie where rounding decides.
    """
    stats = groups.get("sample_stats")
    if not posterior.dim or posterior.model.noisy or stats is None or "lp" not in stats:
        return True
    lp = stats["lp"].transpose(*SAMPLE_DIMS).values
    rows = np.linspace(0, lp.shape[1] - 1, min(_LOOKED_AT, lp.shape[1])).astype(int)
    there = [_log_density(posterior, x) for x in unconstrained_points(groups, posterior, rows)[0]]
    apart = np.array(there) - lp[0, rows]
    same = np.abs(apart - np.nanmedian(apart)) <= _CLOSE * (1.0 + np.abs(lp[0, rows]))
    return bool(same.mean() > 0.5)


def unconstrained_points(groups: Groups, posterior: Posterior, rows: np.ndarray) -> np.ndarray:
    """Rows of the draws of a result, unconstrained (C, rows, d): as they were kept, or found again.

    Raises
    ------
    ArgumentError
        Parameters are missing or have other shapes, or rounding has put draws on the boundary.
    """
    kept = groups.get("unconstrained_posterior")
    if kept is not None and "x" in kept and kept["x"].shape[-1] == posterior.dim:
        return np.asarray(kept["x"].transpose(*SAMPLE_DIMS, ...).values[:, rows])
    draws = groups["posterior"].isel(draw=rows)
    flat = np.empty((draws.sizes["chain"], len(rows), len(posterior.names)))
    for name, variable in posterior.parameters.items():
        flat[..., variable.columns] = _values(draws, name, variable.shape)
    points = np.empty((*flat.shape[:2], posterior.dim))
    for place in np.ndindex(*flat.shape[:2]):
        try:
            points[place] = posterior.model.unconstrain_flat(flat[place])
        except RuntimeError as error:
            raise ArgumentError(
                f"idata: draw {rows[place[1]]} of chain {draws['chain'].values[place[0]]} cannot be made "
                f"unconstrained ({check.one_line(error)}): rounding has put it on the boundary of its "
                "support. Draw with keep_unconstrained=True"
            ) from error
    if not np.isfinite(points).all():
        raise ArgumentError(
            "idata has draws that rounding has put on the boundary of their support, or that are not "
            "finite: draw with keep_unconstrained=True"
        )
    return points


def thinning(chains: int, draws: int, d: int) -> int:
    """Every how many-th draw is to be looked at, so that there are no more than can be held and worked on."""
    most = min(_MOST_ROWS, _MOST_NUMBERS // d)
    return max(1, min(-(-chains * draws // most), draws // _FEWEST_ROWS))


def _values(draws: xarray.Dataset, name: str, shape: tuple[int, ...]) -> np.ndarray:
    if name not in draws:
        raise ArgumentError(f"idata lacks the parameter {name} of the model")
    values = draws[name].transpose(*SAMPLE_DIMS, ...).values
    if values.shape[2:] != shape:
        raise ArgumentError(f"idata has {name} of shape {values.shape[2:]}; the model declares {shape}")
    return np.asarray(values)


def _log_density(posterior: Posterior, x: np.ndarray) -> float:
    try:
        return posterior.model.log_density(x)
    except RuntimeError:  # the model rejects the point
        return np.nan


def _is_close(recorded: Any, value: Any) -> bool:
    """Whether a chain's value is what its result has, which may be padded with NaN."""
    recorded, value = np.asarray(recorded), np.asarray(value)
    if recorded.ndim != value.ndim or any(a < b for a, b in zip(recorded.shape, value.shape, strict=True)):
        return False
    part = recorded[tuple(slice(n) for n in value.shape)]
    margin = _CLOSE * float(np.nanmax(np.abs(value), initial=0.0))
    return bool(np.allclose(part, value, rtol=_CLOSE, atol=margin, equal_nan=True))
