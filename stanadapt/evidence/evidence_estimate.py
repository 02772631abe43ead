"""The evidence of a model from a fit of it, by bridge sampling."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.stats import chi2

from ..diagnostics.convergence import convergence, r_hat
from ..diagnostics.finding import Finding
from ..errors import ArgumentError, ModelError, warn
from ..model.log_constants import LogConstant, log_constant
from ..model.posterior import Posterior
from .bridge_sampling import Bridge, bridge
from .fitted_draws import FittedDraws, check_seed, open_fit
from .proposals import Proposal, fit_proposal, to_x, to_z

if TYPE_CHECKING:
    from ..result.container import InferenceData

LARGE_ERROR = 0.2  # of the log, so a fifth of the evidence
FEW = 100  # effective draws, of the posterior or of the proposal
APART = 3.5  # standard errors between the two halves, which chance exceeds once in 2,000 times
CHAINS_LEVEL = 0.001  # p-value under which chains do not agree
R_HAT = 1.05
_LOOKED_AT = 40  # draws at which the constant is found; and as many points near them


class Evidence(NamedTuple):
    """The evidence of a model, which is the integral of likelihood times prior over the parameters.

    Attributes
    ----------
    log_evidence : float
        Its log.
    standard_error : float
        The standard error of the log: about the relative error of the evidence.
    by_half : tuple of float
        The estimates from the first and the second halves of the chains, whose mean `log_evidence` is.
    by_chain : tuple of float
        The estimates from the draws of each chain alone.
    effective_draws, effective_proposals : float
        What the draws of the posterior and of the proposal are worth, of the half where it is less.
    proposal : str
        The law of the proposal, in words.
    density : str
        Whose density it is, and how its constants were found, in words.
    findings : tuple of Finding
        What speaks against the estimate.
    observed : Mapping
        Hashes of the observed data by name, which `compare_models` compares.
    """

    log_evidence: float
    standard_error: float
    by_half: tuple[float, ...] = ()
    by_chain: tuple[float, ...] = ()
    effective_draws: float = float("nan")
    effective_proposals: float = float("nan")
    proposal: str = ""
    density: str = ""
    findings: tuple[Finding, ...] = ()
    observed: Mapping[str, str] = {}

    def __str__(self) -> str:
        """The estimate in a line, what it is of, and the findings."""
        head = f"log evidence {self.log_evidence:.3f}, standard error {self.standard_error:.2g}"
        lines = [head, f"density: {self.density}", f"proposal: {self.proposal}"]
        return "\n".join([*(line for line in lines if not line.endswith(": ")), *map(str, self.findings)])


def log_evidence(
    result: InferenceData | str | os.PathLike[str],
    model: Any = None,
    data: Any = None,
    *,
    seed: int = 0,
    backend: str = "auto",
) -> Evidence:
    """The log of a model's evidence (marginal likelihood), from a fit, by bridge sampling.

    Half of the draws of every chain fit a proposal: a normal or Student t law in the coordinates that the fit
    has learnt. The other half and as many draws of the proposal give an estimate. Then the halves change
    places, and the mean of both estimates is taken.

    Parameters
    ----------
    result
        A result of `sample`, the path of its netCDF file, or the folder of a run with `store`, which has its
        model. Or the draws of another program in such a container, with all parameters of the model, or a
        `cmdstanpy.CmdStanMCMC`.
    model, data
        The program and the data of the fit, as `sample` takes them.
    seed
        Of the proposal's draws.
    backend
        As for `sample`.

    Returns
    -------
    Evidence
        A named tuple: log_evidence and standard_error first. `findings` has what speaks against the estimate,
        which is warned of too.

    Raises
    ------
    ArgumentError
        The result has too few draws, lacks parameters, or is of another program or other data; or the density
        is only estimated.
    ModelError, DataError
        The model cannot be opened, or the constants that its log density lacks cannot be found: no number
        comes that is wrong by a constant.

    Notes
    -----
    The log density needs all its constants, which `~` drops. BridgeStan keeps them when asked. For stanli the
    program is rewritten with `target +=` and functions that end in `_lpdf` and `_lpmf`; the difference of
    both log densities is the constant, which must be the same at many points, as the gradients must be.
    Densities of PyMC and NumPyro have all constants. Your own function is taken as it is: if it lacks
    constants, the evidence lacks them too. A parameter without a prior has the density 1 on its support,
    which is a prior only where that is bounded, and of volume 1.

    The standard error is that of Frühwirth-Schnatter (2004), with effective sample sizes for draws that are
    autocorrelated; errors of both estimates that come from draws of the fit count as the same. If the halves
    differ by more than it explains, half their difference takes its place.

    Sources: Meng and Wong (1996), Simulating ratios of normalizing constants via a simple identity; Gronau et
    al. (2017), A tutorial on bridge sampling; Frühwirth-Schnatter (2004), Estimating marginal likelihoods for
    mixture and Markov switching models using bridge sampling techniques.

    Examples
    --------
    >>> idata = stanadapt.sample("eight_schools.stan", "eight_schools.json", method="fisher_hmc", seed=1)
    >>> print(stanadapt.log_evidence(idata, "eight_schools.stan", "eight_schools.json"))
    """
    rng = np.random.default_rng(check_seed(seed))
    posterior, fit = open_fit(result, model, data, backend)
    constant = log_constant(posterior, _points(posterior, fit.x, rng))
    evidence = estimate(posterior, fit, constant, rng)
    for finding in evidence.findings:
        warn(str(finding))
    return evidence


def estimate(
    posterior: Posterior, fit: FittedDraws, constant: LogConstant, rng: np.random.Generator
) -> Evidence:
    """The evidence from draws, with the constant that the log density lacks."""
    density = _log_densities(posterior, fit.x)
    if not np.isfinite(density).all():
        raise ArgumentError(
            f"result: the model has no density at {np.count_nonzero(~np.isfinite(density))} of its draws: "
            "they are of another model, or rounding has put them on a boundary: draw with "
            "keep_unconstrained=True"
        )
    halves, proposals = [], []
    for own, other in _halves(fit.x.shape[1]):
        proposal = fit_proposal(fit.x[:, own], fit.candidates)
        halves.append(bridge_half(posterior, proposal, fit.x[:, other], density[:, other], rng))
        proposals.append(proposal)
    logs = np.array([each.log_integral for each in halves])
    error = _mean_error(halves)
    apart = abs(logs[0] - logs[1])
    spread = max(error, 0.5 * apart) if apart > 2.0 * APART * error else error
    draws, proposed = (
        min(getattr(each, name) for each in halves) for name in ("effective_draws", "effective_proposals")
    )
    found = [*fit.findings, *_findings(fit.x, halves, spread)]
    return Evidence(
        float(logs.mean()) + constant.value,
        spread,
        tuple(map(float, logs + constant.value)),
        tuple(map(float, np.mean([each.by_chain for each in halves], axis=0) + constant.value)),
        draws,
        proposed,
        " | ".join(dict.fromkeys(each.describe() for each in proposals)),
        constant.density,
        tuple(found),
        _digests(posterior),
    )


def bridge_half(
    posterior: Posterior, proposal: Proposal, x: np.ndarray, density: np.ndarray, rng: np.random.Generator
) -> Bridge:
    """The bridge between a proposal and draws `x` (C, n, d), with their log `density` (C, n)."""
    chains, n, d = x.shape
    z, log_det = to_z(proposal.transport, np.ascontiguousarray(x).reshape(-1, d))
    at_draws = density.reshape(-1) + log_det - proposal.log_density(z)
    z = proposal.draw(chains * n, rng)
    points, log_det = to_x(proposal.transport, z)
    inside = np.isfinite(log_det) & np.isfinite(points).all(axis=1)
    at_proposals = np.full(len(z), -np.inf)
    values = _log_densities(posterior, points[inside]) + log_det[inside]
    at_proposals[inside] = values - proposal.log_density(z[inside])
    return bridge(at_draws.reshape(chains, n), at_proposals)


def _halves(n: int) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
    """The draws that fit a proposal and those that it is bridged to, twice; of an odd number all but one."""
    first, second = slice(0, n // 2), slice(n - n // 2, n)
    return (first, second), (second, first)


def _mean_error(halves: list[Bridge]) -> float:
    """The standard error of the mean of both estimates.

    Draws of the proposals are independent. Draws of the posterior are not: where that is nearly normal, the
    error of an estimate is a product of what is off in the half that has fitted the proposal and in the half
    that is bridged to it, and the other estimate has the same product. So their errors are added as if they
    were the same, which makes the standard error too large by a factor of up to sqrt(2) elsewhere.
    """
    draws, proposals = ([getattr(each, name) for each in halves] for name in ("draw_error", "proposal_error"))
    return float(np.hypot(np.mean(draws), 0.5 * np.linalg.norm(proposals)))


def _log_densities(posterior: Posterior, points: np.ndarray) -> np.ndarray:
    """Log densities (...) at points (..., d); -inf where the model has none."""
    values = np.full(points.shape[:-1], -np.inf)
    for place in np.ndindex(*values.shape):
        try:
            value = posterior.model.log_density(np.ascontiguousarray(points[place]))
        except RuntimeError:  # the model rejects the point
            continue
        values[place] = value if value < np.inf else -np.inf
    return values


def _points(posterior: Posterior, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Some draws, and points as far from them as they are from each other, where the density is positive."""
    flat = x.reshape(-1, x.shape[-1])
    some = flat[rng.choice(len(flat), size=min(_LOOKED_AT, len(flat)), replace=False)]
    others = some + rng.normal(size=some.shape) * flat.std(axis=0)
    points = np.concatenate((some, others))
    points = points[np.isfinite(_log_densities(posterior, points))]
    if not len(points):
        raise ModelError("model: its log density is not finite at any of the draws: these are others' draws")
    return np.asarray(points)


def _findings(x: np.ndarray, halves: list[Bridge], error: float) -> list[Finding]:
    """What speaks against an estimate from draws (C, n, d)."""
    found = []
    draws = min(each.effective_draws for each in halves)
    proposed = min(each.effective_proposals for each in halves)
    if not draws >= FEW:
        found.append(_few_draws(draws))
    if not (error <= LARGE_ERROR and proposed >= FEW):
        found.append(_no_overlap(error, proposed))
    logs = [each.log_integral for each in halves]
    expected = float(np.linalg.norm([each.standard_error for each in halves]))
    if abs(logs[0] - logs[1]) > APART * expected:
        found.append(_halves_apart(logs, expected))
    if (finding := _chains_apart(x, halves)) is not None:
        found.append(finding)
    return found


def _few_draws(draws: float) -> Finding:
    text = (
        f"The draws are worth {draws:.0f} independent ones in the half where they are worth less: the "
        f"standard error is not reliable under {FEW}. Draw more"
    )
    return Finding("few_draws", text, numbers={"effective_draws": draws, "limit": FEW})


def _no_overlap(error: float, proposed: float) -> Finding:
    text = (
        f"The proposal is not near the posterior: its draws are worth {proposed:.0f} independent ones, and "
        f"the standard error of the log evidence is {error:.2g}, which may itself be too small. Draw more, "
        "so that the proposal fits better; fit with method='fisher_hmc', whose coordinates the proposal "
        "uses; or write the parameters so that their posterior is nearly normal"
    )
    return Finding("overlap", text, numbers={"standard_error": error, "effective_proposals": proposed})


def _halves_apart(logs: list[float], expected: float) -> Finding:
    text = (
        f"The halves of the draws give log evidences that differ by {abs(logs[0] - logs[1]):.2g}, and chance "
        f"explains {expected:.2g}: the chains have not converged, or a tail or a mode is missing in one of "
        "them. See stanadapt.diagnose, and draw more"
    )
    return Finding("halves", text, numbers={"first": logs[0], "second": logs[1]})


def _chains_apart(x: np.ndarray, halves: list[Bridge]) -> Finding | None:
    """Whether chains give other estimates than each other, or are in other places."""
    chains, n, _ = x.shape
    if chains < 2:
        return None
    p_values = []
    for each in halves:
        weights = each.chain_errors**-2.0
        apart = each.by_chain - (weights * each.by_chain).sum() / weights.sum()
        p_values.append(float(chi2.sf((weights * apart**2).sum(), chains - 1)))
    scalars = convergence(np.ascontiguousarray(x.transpose(2, 0, 1)))
    largest = float(np.nanmax(r_hat(scalars.moments, n), initial=1.0))
    p_value = min(1.0, 2.0 * min(p_values))
    if p_value >= CHAINS_LEVEL and largest <= R_HAT:
        return None
    by_chain = np.mean([each.by_chain for each in halves], axis=0)
    text = (
        f"The chains do not agree: R-hat is up to {largest:.3g}, and alone they give log evidences that lie "
        f"{np.ptp(by_chain):.2g} apart (p = {p_value:.1g}). If they are in several modes, the share of each "
        "mode is arbitrary, and the evidence with it. Run longer chains, or a method that jumps between modes"
    )
    return Finding("chains", text, numbers={"r_hat": largest, "p_value": p_value})


def _digests(posterior: Posterior) -> dict[str, str]:
    """Hashes of the observed data by name."""
    observed = posterior.split_data()[0]
    return {
        name: hashlib.sha256(np.ascontiguousarray(value, dtype=float).tobytes()).hexdigest()[:16]
        for name, value in observed.items()
    }
