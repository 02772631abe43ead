"""The samplers, one file each. A new method is a file here and a line in METHODS."""

from __future__ import annotations

import importlib
from typing import cast

from .. import check
from . import pilot
from .base import (
    Cautious,
    Engine,
    Sampler,
    Settling,
    Stage,
    advance,
    climbs,
    keeps_adapting,
    n_matrices,
    named,
    resolve,
    stats,
)

METHODS = {
    "rwm": "random-walk Metropolis, isotropic",
    "am": "random-walk Metropolis with the running covariance of the chain, by a Cholesky recursion",
    "arwmh": "random-walk Metropolis with the running covariance and global adaptive scaling",
    "gad_rwm": "random-walk Metropolis whose covariance climbs the speed measure along gradients",
    "mala": "Metropolis-adjusted Langevin, isotropic",
    "ada_mala": "MALA preconditioned by the running covariance of the chain",
    "amala": "MALA whose step size and covariance are renewed between epochs",
    "fisher_mala": "MALA preconditioned by the inverse Fisher matrix, learnt from scores",
    "gad_mala_fast": "MALA whose preconditioner climbs the speed measure, without second derivatives",
    "gad_mala_exact": "MALA whose preconditioner climbs the speed measure, along the exact gradient",
    "mmala": "manifold MALA, simplified, with the SoftAbs metric of the Hessian",
    "hmc": "Hamiltonian Monte Carlo, identity mass, fixed number of leapfrog steps",
    "fisher_hmc": "HMC whose metric makes draws and scores agree, in short trajectories",
    "kamh": "random walk whose covariance follows the target's shape near the chain, by a kernel",
    "kmc_lite": "HMC without gradients, along a kernel model of a subsample of the chain's history",
    "kmc_finite": "HMC without gradients, along a model with random features of all of the history",
    "rlmh": "Metropolis-Hastings whose proposal's mean is a policy, trained by its squared jump distance",
    "rlmh_mala": "MALA whose step size is a policy of the position, trained by the entropy it gains",
    "nuts": "Stan's own no-U-turn sampler, the yardstick, in stanli or CmdStan",
}


def sampler(method: str) -> Sampler | Engine:
    """The module of `method`; an unknown name is refused with the nearest ones."""
    name = check.choice("method", method, METHODS)
    return cast(Sampler | Engine, importlib.import_module(f"{__name__}.{name}"))


__all__ = [
    "METHODS",
    "Cautious",
    "Engine",
    "Sampler",
    "Settling",
    "Stage",
    "advance",
    "climbs",
    "keeps_adapting",
    "n_matrices",
    "named",
    "pilot",
    "resolve",
    "sampler",
    "stats",
]
