"""The prior of a Stan program, as a program: by a flag among its data, or without its likelihood."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from ..errors import ModelError
from ..model import PROGRAM_BACKENDS
from ..model.labelled_data import Amended
from ..model.likelihood import without_likelihood
from ..model.posterior import Posterior, as_posterior
from ..model.program import data_declarations, has_includes
from ..model.source import is_opened, read_source

FLAG = "prior_only"  # brms and others have it among their data: 1 leaves the likelihood out


class PriorProgram(NamedTuple):
    """A program whose density is the prior, with its data."""

    whole: str  # the program as it was, with includes written in place
    code: str
    data: Any
    likelihood: tuple[str, ...]  # the statements that were left out, where that was done here
    how: str  # in words


DRAWN_ELSEWHERE = (
    "For models of PyMC and NumPyro their own functions draw from the prior: pymc.sample_prior_predictive, "
    "numpyro.infer.Predictive"
)
EVALUATED_ELSEWHERE = (
    "Of a model of PyMC, pymc.stats.compute_log_prior(idata, model=model) adds the group to a result; of one "
    "of NumPyro, numpyro.infer.util.compute_log_probs gives the log density of each site at a draw, and "
    "those of the parameters add up to it"
)


def prior_program(
    model: Any,
    data: Any,
    observed: Collection[str] | None,
    *,
    is_proper: bool = True,
    elsewhere: str = DRAWN_ELSEWHERE,
    include_paths: Any = (),
) -> PriorProgram:
    """The prior of what stands for a program; the arguments are those of `prior_predictive`.

    `elsewhere` says what to call for models that are no Stan programs; `include_paths` are as for `sample`.

    Raises
    ------
    ArgumentError, ModelError, DataError
        It is no Stan program whose text is known, or it cannot be told what its likelihood is.
    """
    if isinstance(model, Posterior):
        opened = as_posterior(model, data, include_paths=include_paths)
        code, data = opened.code, opened.data
    elif is_opened(model):
        raise _no_text("it is none", elsewhere)
    else:
        code = read_source(model, include_paths).code
    if not code:
        is_stan = isinstance(model, Posterior) and model.model.backend in PROGRAM_BACKENDS
        raise _no_text("a compiled library does not tell its text" if is_stan else "it is none", elsewhere)
    if has_includes(code):
        raise _no_text("it includes a file that cannot be read here", elsewhere)
    if observed is None and FLAG in data_declarations(code):
        return PriorProgram(code, code, Amended(data, {FLAG: 1}), (), f"{FLAG} = 1 in the data")
    prior = without_likelihood(code, observed, is_proper=is_proper)
    how = f"the program without its likelihood of {', '.join(sorted(prior.observed))}"
    return PriorProgram(code, prior.code, data, prior.likelihood, how)


def _no_text(reason: str, elsewhere: str) -> ModelError:
    return ModelError(f"model: the prior is found in the text of a Stan program, and {reason}. {elsewhere}")
