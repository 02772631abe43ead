"""The log prior density of draws, as ArviZ's power-scaling needs it beside the log likelihood.

On the unconstrained scale Stan's log density is that of the parameters plus the log Jacobian determinant of
the transforms. An empty model block leaves the latter alone. So the log prior of the parameters is the
difference of two log densities: of the program without its likelihood, and of its parameters alone
(model/without_jacobian.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray

from ..errors import ArgumentError
from ..model.full_densities import keep_constants
from ..model.posterior import Posterior
from ..model.source import Contents
from ..model.without_jacobian import term_program
from ..result.container import attributes, container, datasets
from ..result.labels import SAMPLE_DIMS
from .prior_program import EVALUATED_ELSEWHERE, prior_program
from .saved_draws import ParameterDraws, read_parameters, read_saved

if TYPE_CHECKING:
    from ..result.container import InferenceData

GROUP = "log_prior"  # of the result, and the name of the variable in it


class LogPrior:
    """The log prior density of a posterior's parameters, with all constants.

    Raises
    ------
    ModelError, DataError
        It cannot be told which statements of the program are the prior.
    """

    def __init__(self, posterior: Posterior) -> None:
        prior = prior_program(posterior, None, None, is_proper=False, elsewhere=EVALUATED_ELSEWHERE)
        self.posterior = posterior
        self.prior = Posterior(Contents(keep_constants(prior.code)), prior.data, seed=posterior.seed)
        self.transforms = Posterior(Contents(term_program(prior.whole)), prior.data, seed=posterior.seed)

    def at(self, draws: ParameterDraws) -> np.ndarray:
        """The log prior densities (m, n) of draws.

        Raises
        ------
        ArgumentError, EvaluationError
            A draw is outside of the support of the prior.
        """
        m, n, p = draws.flat.shape
        x = self.posterior.model.unconstrain_rows(draws.flat.reshape(m * n, p))
        if not np.isfinite(x).all():
            raise ArgumentError(
                "log_prior: some draws lie on the boundary of their support, where the density of the prior "
                "cannot be evaluated"
            )
        prior, transforms = self.prior, self.transforms
        values = [prior.log_density(point) - transforms.log_density(point) for point in x]
        return np.array(values, dtype=float).reshape(m, n)

    def group(self, draws: ParameterDraws, like: xarray.Dataset) -> xarray.Dataset:
        """The group of a result, with the chains and draws of another group."""
        coords = {dim: like.coords[dim] for dim in SAMPLE_DIMS if dim in like.coords}
        return xarray.Dataset({GROUP: (SAMPLE_DIMS, self.at(draws))}, coords=coords)

    def add(self, idata: InferenceData) -> InferenceData:
        """A result with this group added."""
        saved = read_saved(idata)
        group = self.group(read_parameters(saved, self.posterior), saved.groups["posterior"])
        group.attrs.update(saved.groups["posterior"].attrs)
        return container({**datasets(idata), GROUP: group}, attributes(idata))
