"""Is the result to be trusted? Tables, and findings in words."""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import xarray

from . import check
from .errors import ArgumentError
from .results import arviz, datasets

R_HAT_LIMIT = 1.01  # Vehtari et al. (2021)
ESS_PER_CHAIN = 100  # likewise
ACCEPTANCE_MARGIN = 0.15
APART_R_HAT = 1.1  # above which a chain is looked for without which the others agree
APART_SHARE = 0.1  # of what R-hat exceeds 1 by, which may be left then
LEAVING = 3.0  # standard deviations of a quarter of the draws
STILL_SHARE = 0.05  # of a chain's draws without one acceptance in between
BFMI_LIMIT = 0.3  # Betancourt (2016), Diagnosing Suboptimal Cotangent Disintegrations in HMC
# Findings that the noise of a noisy target may be the reason of.
_BY_NOISE = {"r_hat", "ess_bulk", "acceptance", "still"}
_WORST = 3  # parameters that a finding names
_FEWEST = 4  # draws a chain that split R-hat needs
_BLOCK = 4_000_000  # draws of scalars at a time


class Finding(NamedTuple):
    """Something that a user should know."""

    kind: str
    text: str

    def __str__(self) -> str:
        return self.text


def summary(idata: Any, var_names: list[str] | None = None, interval: float = 0.9) -> Any:
    """Posterior summary as a pandas DataFrame, a row for every scalar.

    Parameters
    ----------
    idata
        A result of `stanadapt.sample`.
    var_names
        Variables of the posterior group; all by default.
    interval
        Probability of the central interval.

    Returns
    -------
    pandas.DataFrame
        mean, sd, the ends of the interval, mcse_mean (standard error of the mean), ess_bulk, ess_tail and
        r_hat (rank-normalised, split), as in Vehtari et al. (2021).

    Raises
    ------
    ArgumentError
        A variable is unknown, or the interval is not between 0 and 1.
    """
    import pandas

    posterior = _posterior(idata, var_names)
    if not posterior.sizes["draw"]:
        note = posterior.attrs.get("interrupted_note", "the posterior is empty")
        raise ArgumentError(f"idata has no draws to summarise ({note})")
    if not (isinstance(interval, float) and 0.0 < interval < 1.0):
        raise ArgumentError(f"interval={interval!r} is not allowed: it must be between 0 and 1")
    lower, upper = 0.5 - interval / 2, 0.5 + interval / 2
    columns: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "mean": lambda draws: draws.mean((0, 1)),
        "sd": lambda draws: draws.std((0, 1), ddof=1),
        f"q{100 * lower:.4g}": lambda draws: np.quantile(draws, lower, (0, 1)),
        f"q{100 * upper:.4g}": lambda draws: np.quantile(draws, upper, (0, 1)),
        "mcse_mean": _mcse_mean,
        "ess_bulk": _ess_bulk,
        "ess_tail": _ess_tail,
        "r_hat": _r_hat,
    }
    return pandas.DataFrame(
        {name: _each(function, posterior) for name, function in columns.items()}, index=_row_names(posterior)
    )


def diagnose(idata: Any, var_names: list[str] | None = None) -> list[Finding]:
    """Worded findings on a result; empty when there is nothing to report.

    Looks at R-hat over 1.01, chains that sit apart from the others or still move away, effective sample sizes
    under 100 a chain, acceptance far from its target, chains that stand still or have learnt nothing,
    failed evaluations of the log density, and an interrupted run; of NUTS at divergences, trees that were cut
    short, and the energy's Bayesian fraction of missing information (E-BFMI) under 0.3; and has a word on
    noise where that may be the reason.
    """
    groups = datasets(idata)
    posterior = _posterior(idata, var_names)
    findings = []
    if note := posterior.attrs.get("interrupted_note"):
        findings.append(Finding("interrupted", f"The run was {note}."))
    if posterior.sizes["draw"] < _FEWEST:
        return [*findings, Finding("short", f"There are {posterior.sizes['draw']} draws a chain: too few.")]
    findings += _convergence(posterior)
    if "sample_stats" in groups:
        findings += _movement(groups["sample_stats"], posterior.attrs)
        findings += _trajectories(groups["sample_stats"], posterior.attrs)
    if "adaptation" in groups:
        findings += _ignorance(groups["adaptation"])
    if "failures" in groups.get("adaptation", {}):
        findings += _failures(groups["adaptation"], groups.get("sample_stats"))
    if posterior.attrs.get("noisy") and any(finding.kind in _BY_NOISE for finding in findings):
        findings.append(Finding("noise", _NOISE))
    return findings


def _convergence(posterior: xarray.Dataset) -> list[Finding]:
    findings = []
    names = _row_names(posterior)
    chains = posterior.sizes["chain"]
    constant = _each(lambda draws: np.all(draws == draws[0, 0], (0, 1)), posterior).astype(bool)
    bad = _each(lambda draws: ~np.all(np.isfinite(draws), (0, 1)), posterior).astype(bool)
    if bad.any():
        findings.append(Finding("nan", f"NaN or infinite draws in {_listed(names, bad)}."))
    usable = ~constant & ~bad
    if chains > 1:
        r_hat = np.where(usable, _each(_r_hat, posterior), 1.0)
        high = ~(r_hat <= R_HAT_LIMIT)
        if high.any():
            findings.append(
                Finding(
                    "r_hat",
                    f"R-hat is over {R_HAT_LIMIT} for {high.sum()} of {len(names)} quantities, worst "
                    f"{_worst(names, r_hat, largest=True)}: the chains do not agree yet. "
                    "Run longer (warmup, draws), or see whether the posterior has several modes.",
                )
            )
            findings += _apart(posterior, usable, float(np.nanmax(r_hat)))
    findings += _leaving(posterior, usable, names)
    for kind, function in (("bulk", _ess_bulk), ("tail", _ess_tail)):
        ess = np.where(usable, _each(function, posterior), np.inf)
        low = ~(ess >= ESS_PER_CHAIN * chains)
        if low.any():
            findings.append(
                Finding(
                    f"ess_{kind}",
                    f"The {kind} effective sample size is under {ESS_PER_CHAIN} a chain for {low.sum()} of "
                    f"{len(names)} quantities, worst {_worst(names, ess, largest=False)}. Draw more.",
                )
            )
    return findings


def _apart(posterior: xarray.Dataset, usable: np.ndarray, worst: float) -> list[Finding]:
    """Chains without which the others agree."""
    chains = posterior["chain"].values
    if len(chains) < 3 or not worst > APART_R_HAT:
        return []
    findings = []
    for chain in chains:
        others = posterior.sel(chain=chains[chains != chain])
        without = float(np.nanmax(np.where(usable, _each(_r_hat, others), 1.0)))
        if without - 1.0 < APART_SHARE * (worst - 1.0):
            text = (
                f"Chain {chain} sits apart from the others: without it the largest R-hat is {without:.3g}, "
                f"with it {worst:.3g}. See whether it has missed the posterior's mass or found another mode."
            )
            findings.append(Finding("apart", text))
    return findings


def _leaving(posterior: xarray.Dataset, usable: np.ndarray, names: list[str]) -> list[Finding]:
    """Chains whose mean moves the same way from quarter to quarter of the draws, far beyond their spread."""
    if posterior.sizes["draw"] < 4 * _FEWEST:
        return []
    findings = []
    for chain in posterior["chain"].values:
        path = np.where(usable, _each(_travelled, posterior.sel(chain=[chain])), 0.0)
        far = path > LEAVING
        if far.any():
            text = (
                f"Chain {chain} still moves away, in {_worst(names, path, largest=True)} spreads of a "
                "quarter of its draws: warm-up has not found the posterior's mass, or it is improper."
            )
            findings.append(Finding("leaving", text))
    return findings


def _travelled(draws: np.ndarray) -> np.ndarray:
    """Distance of the mean of the last quarter from that of the first, in standard deviations of a quarter.

    It is 0 where the quarters' means do not go one way.
    """
    n = draws.shape[1] // 4
    quarters = draws[0, : 4 * n].reshape(4, n, -1)
    means = quarters.mean(axis=1)
    moves = np.diff(means, axis=0)
    one_way = np.all(moves > 0.0, axis=0) | np.all(moves < 0.0, axis=0)
    return np.where(one_way, np.abs(means[3] - means[0]) / quarters.std(axis=1).max(axis=0), 0.0)


def _movement(stats: xarray.Dataset, attrs: dict[str, Any]) -> list[Finding]:
    return [*_acceptance(stats, attrs), *(_stillness(stats) if "accepted" in stats else [])]


def _acceptance(stats: xarray.Dataset, attrs: dict[str, Any]) -> list[Finding]:
    target = _settings(attrs).get("target_accept")
    if target is None or "warm_start" in _settings(
        attrs
    ):  # a policy moves on from what the warm start aims at
        return []
    acceptance = stats["acceptance_rate"].mean("draw").values
    chains = stats["chain"].values
    distance = target - acceptance
    # NUTS only wastes steps when it accepts more than it aims at, and Fisher HMC takes none longer than its
    # trajectories.
    if "tree_depth" not in stats and "trajectory" not in _settings(attrs):
        distance = np.abs(distance)
    far = distance > ACCEPTANCE_MARGIN
    if not far.any():
        return []
    shown = ", ".join(f"{acceptance[i]:.2f} in chain {chains[i]}" for i in np.flatnonzero(far))
    return [
        Finding(
            "acceptance",
            f"The acceptance rate is far from its target {target:g}: {shown}. {_advice(_settings(attrs))}",
        )
    ]


def _advice(settings: dict[str, Any]) -> str:
    for size in ("subsample", "basis"):
        if size in settings:
            return f"What was learnt of the target is not near enough to it: warm up longer, raise {size}."
    return "Warm up longer; in a funnel, reparametrise the model."


def _ignorance(adaptation: xarray.Dataset) -> list[Finding]:
    """Chains of methods that learn from their history, and had nothing to learn from; and of policies."""
    if not int(adaptation.attrs.get("tuning_steps", 0)):
        return []
    if "uses_policy" in adaptation:
        return _without_policy(adaptation)
    if "fits" not in adaptation:
        return []
    none = adaptation["chain"].values[adaptation["fits"].values == 0]
    if not none.size:
        return []
    shown = ", ".join(map(str, none))
    text = (
        f"Chains {shown} have learnt nothing in warm-up, since no point of their history differed from the "
        "others, and are random walks. Start elsewhere (inits), or warm up longer."
    )
    return [Finding("nothing_learnt", text)]


def _without_policy(adaptation: xarray.Dataset) -> list[Finding]:
    without = adaptation["chain"].values[adaptation["uses_policy"].values == 0]
    if not without.size:
        return []
    text = (
        f"Chains {', '.join(map(str, without))} have no policy that works, and draw by the walk that their "
        "warm start has learnt: it found too few points, or nearly every proposal of every policy "
        "was rejected. Warm up longer, start elsewhere (inits), or use another method."
    )
    return [Finding("nothing_learnt", text)]


def _stillness(stats: xarray.Dataset) -> list[Finding]:
    chains, accepted = stats["chain"].values, stats["accepted"].values
    limit = max(100, int(STILL_SHARE * accepted.shape[1]))
    still = [(chains[i], _longest_wait(row)) for i, row in enumerate(accepted)]
    long = [(chain, wait) for chain, wait in still if wait >= min(limit, accepted.shape[1])]
    if not long:
        return []
    shown = ", ".join(f"chain {chain} for {wait} draws" for chain, wait in long)
    return [Finding("still", f"Chains stood still: {shown} without one accepted proposal.")]


def _trajectories(stats: xarray.Dataset, attrs: dict[str, Any]) -> list[Finding]:
    """What only NUTS has columns for."""
    findings = []
    draws = stats.sizes["chain"] * stats.sizes["draw"]
    if "diverging" in stats and (count := int(stats["diverging"].sum())):
        findings.append(
            Finding(
                "divergences",
                f"{count} of {draws} draws ended in a divergence: the posterior bends more sharply than the "
                "step size can follow, and what lies there is missed. Raise target_accept, or reparametrise.",
            )
        )
    deepest = _settings(attrs).get("max_tree_depth")
    if "tree_depth" in stats and deepest is not None:
        count = int((stats["tree_depth"] >= deepest).sum())
        if count:
            findings.append(
                Finding(
                    "tree_depth",
                    f"{count} of {draws} draws hit max_tree_depth={deepest}: their trajectories were cut "
                    "short, which costs efficiency. Try metric='dense', or raise it.",
                )
            )
    if "energy" in stats:
        bfmi = _bfmi(stats["energy"].transpose("chain", "draw").values)
        low = np.flatnonzero(bfmi < BFMI_LIMIT)
        if low.size:
            shown = ", ".join(f"{bfmi[i]:.2f} in chain {stats['chain'].values[i]}" for i in low)
            findings.append(
                Finding(
                    "energy",
                    f"E-BFMI is under {BFMI_LIMIT}: {shown}. The energy changes too slowly for the tails to "
                    "be explored; reparametrise the model.",
                )
            )
    return findings


def _bfmi(energy: np.ndarray) -> np.ndarray:
    """Mean squared change of the energy over its variance, of every chain (chain, draw); as arviz has it."""
    with np.errstate(invalid="ignore", divide="ignore"):  # one draw, or an energy that never changes
        return np.asarray(np.square(np.diff(energy, axis=1)).mean(axis=1) / energy.var(axis=1, ddof=1))


def _failures(adaptation: xarray.Dataset, stats: xarray.Dataset | None) -> list[Finding]:
    during = int(adaptation["failures"].sum())
    if not during:
        return []
    total = int(stats["n_steps"].sum()) if stats is not None else 0
    before = int(adaptation["failures_warmup"].sum())
    first = next((str(text) for text in adaptation["first_failure"].values if str(text)), "")
    return [
        Finding(
            "failures",
            f"The log density failed in {during} of {total} evaluations of kept iterations (and {before} in "
            f"warm-up); such proposals are rejected. First reason: {first}",
        )
    ]


# Doucet et al. (2015), Sherlock et al. (2015).
_NOISE = (
    "The target is noisy: where an estimate comes out far too high, a chain stands still, and steps shrink "
    "where no step is accepted as often as target_accept. If that is the reason, average more estimates, so "
    "that the variance of the logarithm of the density's estimate is about 1 to 3 in the bulk of the "
    "posterior, or lower target_accept."
)


def _settings(attrs: dict[str, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads(attrs.get("settings", "{}"))
    return settings


def _longest_wait(accepted: np.ndarray) -> int:
    """The longest run of rejections."""
    moved = np.flatnonzero(np.concatenate(([True], accepted.astype(bool), [True])))
    return int(np.diff(moved).max()) - 1


def _posterior(idata: Any, var_names: list[str] | None) -> xarray.Dataset:
    groups = datasets(idata)
    if "posterior" not in groups or not groups["posterior"].data_vars:
        raise ArgumentError("idata has no draws: a result of stanadapt.sample with a posterior is needed")
    posterior = groups["posterior"]
    if var_names is None:
        return posterior
    if isinstance(var_names, str):
        var_names = [var_names]
    if not isinstance(var_names, list | tuple) or not var_names:
        raise check.refused("var_names", var_names, "a list of variables")
    unknown = [name for name in var_names if name not in posterior]
    if unknown:
        known = ", ".join(str(name) for name in posterior.data_vars)
        raise ArgumentError(f"var_names={unknown!r} are not in the posterior, which has {known}")
    return posterior[list(var_names)]


def _variables(posterior: xarray.Dataset) -> dict[str, xarray.Variable]:
    """The variables without their coordinates, which xarray would attach to every one in a millisecond."""
    return {str(name): posterior.variables[name] for name in posterior.data_vars}


def _row_names(posterior: xarray.Dataset) -> list[str]:
    """`theta[0]`, by the coordinates of theta's own dimensions."""
    names = []
    for name, values in _variables(posterior).items():
        own = [dim for dim in values.dims if dim not in ("chain", "draw")]
        labels = [
            posterior.variables[dim].values if dim in posterior.variables else np.arange(values.sizes[dim])
            for dim in own
        ]
        for index in np.ndindex(*[values.sizes[dim] for dim in own]):
            shown = ", ".join(str(label[i]) for label, i in zip(labels, index, strict=True))
            names.append(f"{name}[{shown}]" if own else name)
    return names


def _each(function: Callable[[np.ndarray], np.ndarray], posterior: xarray.Dataset) -> np.ndarray:
    """A statistic of every scalar, in the order of `_row_names`.

    `function` takes draws (chain, draw, k) to values (k,). It sees `_BLOCK` numbers at a time: arviz takes
    ten times as long when it gets scalars one by one, and copies of all draws might not fit in memory.
    """
    scalars = []
    for values in _variables(posterior).values():
        array = values.transpose("chain", "draw", ...).values
        scalars.append(array.reshape(*array.shape[:2], -1))
    places = [(array, i) for array in scalars for i in range(array.shape[2])]
    results = []
    together = max(1, _BLOCK // (posterior.sizes["chain"] * posterior.sizes["draw"]))
    for first in range(0, len(places), together):
        draws = np.stack([array[:, :, i] for array, i in places[first : first + together]], axis=2)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # one draw has no standard deviation
            results.append(np.asarray(function(draws.astype(float)), dtype=float))
    return np.concatenate(results)


def _by_arviz(draws: np.ndarray, statistic: str, **options: Any) -> np.ndarray:
    """A statistic of arviz's; NaN where there are too few draws for it."""
    if draws.shape[1] < _FEWEST:
        return np.full(draws.shape[2], np.nan)
    dataset = xarray.Dataset({"x": (("chain", "draw", "scalar"), draws)})
    return np.asarray(getattr(arviz(), statistic)(dataset, **options)["x"].values)


_ess_bulk = functools.partial(_by_arviz, statistic="ess", method="bulk")
_ess_tail = functools.partial(_by_arviz, statistic="ess", method="tail")
_mcse_mean = functools.partial(_by_arviz, statistic="mcse", method="mean")
_r_hat = functools.partial(_by_arviz, statistic="rhat")


def _listed(names: list[str], chosen: np.ndarray) -> str:
    picked = [names[i] for i in np.flatnonzero(chosen)]
    more = f" and {len(picked) - _WORST} more" if len(picked) > _WORST else ""
    return ", ".join(picked[:_WORST]) + more


def _worst(names: list[str], values: np.ndarray, *, largest: bool) -> str:
    order = np.argsort(np.where(np.isnan(values), np.inf if largest else -np.inf, values))
    picked = order[::-1][:_WORST] if largest else order[:_WORST]
    return ", ".join(f"{names[i]} ({values[i]:.4g})" for i in picked)
