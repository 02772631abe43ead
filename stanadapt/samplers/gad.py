"""What gad_rwm, gad_mala_fast and gad_mala_exact share; see also numerics/speed_measure.py."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Flag, Generator, Matrix, Real, Target, Vector
from ..numerics.cholesky import transposed_factor
from ..numerics.kernel_templates import kernel_from
from ..numerics.langevin import gaussian_step_size, log_proposal_ratio, propose
from ..numerics.linear import scaled_identity, transposed_times, transposed_times_into
from ..numerics.metropolis import accept_probability_if_finite
from ..numerics.spectrum import summarise_preconditioner
from ..numerics.speed_measure import adapt_beta, climb_speed, first_squares
from ..target import log_density_gradient
from ..trace import NOTHING, Info
from .base import BOTH_SIDES, LANGEVIN, UNLESS_FAITHFUL, Facts, Handover, Stage
from .settings import NOT_NEGATIVE, SCALE, Limit

AFTER_PILOT = 0.05  # learning rate after a pilot, as a share of ours
FAITHFUL_RATE, OWN_RATE = 0.00015, 0.002  # defaults of the learning rate of the two MALAs


class Settings(NamedTuple):
    """The settings that all three methods have, behind their own."""

    beta_rate: Annotated[float, Limit(0.0, 1.0), "rho_beta: learning rate of beta"] = 0.02
    initial_scale: Annotated[float, SCALE, "L starts at initial_scale / sqrt(d) times I"] = 0.1
    faithful: Annotated[bool, "follow the paper, without our departures"] = False
    pilot: Annotated[int, NOT_NEGATIVE, "iterations of Fisher HMC that begin warm-up"] = 0


FACTS = Facts(
    module=__name__,
    family=LANGEVIN,
    needs="gradients",
    learns=("covariance",),
    warmup=20_000,
    draws=20_000,
    gradient=True,
    acceptance=BOTH_SIDES,
    climbs=UNLESS_FAITHFUL,
    unscaled=True,
)


class State(NamedTuple):
    """The state of the two MALAs; their files explain the symbols."""

    x: np.ndarray
    logp: float
    score: np.ndarray
    rotated: np.ndarray
    chol_t: np.ndarray
    square: np.ndarray
    beta: float


@kernel
def start(target: Target, settings: Any, x: Vector, rng: Generator) -> State:
    """The state of either MALA at `x` (d,)."""
    d = x.size
    score = np.empty(d)
    logp = log_density_gradient(target, x, score)
    chol_t = scaled_identity(d, settings.initial_scale / np.sqrt(d))
    return State(x.copy(), logp, score, transposed_times(chol_t, score), chol_t, first_squares(d), 1.0)


def take_over(state: State, handover: Handover, settings: Any) -> State:
    """Take L of either MALA from the pilot: its metric's factor, times the best step size for a Gaussian."""
    chol_t = gaussian_step_size(handover.z.size) * transposed_factor(handover.cov)
    return state._replace(rotated=chol_t @ state.score, chol_t=chol_t)


def step_along(ratio_gradient: Any, terms: int, gradients: int) -> Any:
    """The kernel `step` of either MALA.

    Parameters
    ----------
    ratio_gradient
        The kernel that writes grad_L of the log ratio, as a sum of outer products left_m right_m^T, to
        `left` and `right` (terms, d). It returns whether that gradient is finite.
    terms
        The number of outer products.
    gradients
        The number of gradients of the log density that `ratio_gradient` evaluates.
    """
    parts = {"ratio_gradient": ratio_gradient, "TERMS": terms, "GRADIENTS": gradients}
    return kernel_from(_step, "step", ratio_gradient, **parts)


def _step(target: Target, settings: Any, state: State, rng: Generator, adapting: Flag) -> tuple[State, Info]:
    """One iteration of Algorithm 1."""
    x, logp, score, rotated, chol_t, square, beta = state

    # Propose y = x + L (L^T grad(x) / 2 + eps).
    d = x.size
    y, v, score_y, rotated_y = np.empty(d), np.empty(d), np.empty(d), np.empty(d)
    propose(x, rotated, chol_t, 1.0, rng, y, v)
    logp_y, accept_prob = evaluate_proposal(target, x, logp, score, rotated, chol_t, y, score_y, rotated_y)
    accepted = rng.random() < accept_prob

    n_gradients, learns = 1, adapting and logp_y > -np.inf
    if learns:
        left, right = np.zeros((TERMS, d)), np.zeros((TERMS, d))  # type: ignore[name-defined] # noqa: F821
        if accept_prob < 1.0:  # else the gradient of min{0, log ratio} is zero
            n_gradients += GRADIENTS  # type: ignore[name-defined] # noqa: F821
            learns = ratio_gradient(  # type: ignore[name-defined] # noqa: F821
                target, chol_t, score, y, score_y, v, rotated_y, left, right
            )
        if learns:
            eta = learning_rate(settings, FAITHFUL_RATE, OWN_RATE)
            climb_speed(chol_t, square, left, right, beta, eta, settings.faithful)
    if accepted:
        x, logp, score, rotated = y, logp_y, score_y, rotated_y
    if adapting:
        beta = adapt_beta(beta, accepted, settings)
        rotated = transposed_times(chol_t, score)
    info = Info(accept_prob, accepted, np.nan, n_gradients, NOTHING)
    return State(x, logp, score, rotated, chol_t, square, beta), info


@kernel
def evaluate_proposal(
    target: Target,
    x: Vector,
    logp: Real,
    score: Vector,
    rotated: Vector,
    chol_t: Matrix,
    y: Vector,
    score_y: Vector,
    rotated_y: Vector,
) -> tuple[Real, Real]:
    """Log density and acceptance probability of a Langevin proposal `y` (d,).

    Its score and rotated score are written to `score_y` and `rotated_y` (d,). The code is the second half of
    `langevin_proposal`, which does not keep the noise that these methods learn from. If `langevin_proposal`
    called this function, the other samplers would lose a tenth of a microsecond an iteration.
    """
    logp_y = log_density_gradient(target, y, score_y)
    if logp_y == -np.inf:
        return logp_y, 0.0
    transposed_times_into(rotated_y, chol_t, score_y)
    ratio = log_proposal_ratio(x, score, rotated, y, score_y, rotated_y, 1.0)
    return logp_y, accept_probability_if_finite(logp_y - logp + ratio)


@kernel
def learning_rate(settings: Any, faithful: Flag, own: Real) -> Real:
    """eta: the setting, or the default, which is `faithful` (the paper's) or `own` (ours).

    Ours is large enough to find L from far away. But near the right L the noise of such steps blurs strong
    correlations, so that steps are shorter after a pilot.
    """
    if not np.isnan(settings.learning_rate):
        return settings.learning_rate
    if settings.faithful:
        return faithful
    return AFTER_PILOT * own if settings.pilot > 0 else own


def n_matrices(settings: Any) -> int:
    """L and G."""
    return 2


def stages(settings: Any, warmup: int, d: int) -> list[Stage]:
    """One stage for the whole of warm-up."""
    return [Stage("speed", warmup)]


def history(state: State) -> dict[str, float]:
    """beta and the spectrum of L L^T."""
    return {"warmup_beta": state.beta} | summarise_preconditioner(state.chol_t)


def learnt(state: State) -> dict[str, Any]:
    """L L^T and beta."""
    return {"preconditioner": state.chol_t.T @ state.chol_t, "beta": np.array(state.beta)}
