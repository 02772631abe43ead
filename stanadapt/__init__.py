"""Adaptive MCMC for Stan programs, at native speed, into ArviZ.

import stanadapt
idata = stanadapt.sample("eight_schools.stan", "eight_schools.json", seed=1)
stanadapt.summary(idata)
"""

from __future__ import annotations

from . import errors
from .api import methods, sample
from .backends.python import Target
from .diagnostics import diagnose, summary
from .errors import StanAdaptError, StanAdaptWarning
from .posterior import Posterior

__version__ = "0.1.0"

__all__ = [
    "Posterior",
    "StanAdaptError",
    "StanAdaptWarning",
    "Target",
    "__version__",
    "diagnose",
    "errors",
    "methods",
    "sample",
    "summary",
]
