"""Several models beside each other: their evidences, Bayes factors and posterior probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import logsumexp

from .. import check
from ..errors import ArgumentError, warn
from .evidence_estimate import Evidence, log_evidence

if TYPE_CHECKING:
    import pandas


def compare_models(
    models: Mapping[str, Any], *, prior: Mapping[str, float] | None = None, seed: int = 0
) -> pandas.DataFrame:
    """Evidences of several models of the same data, with Bayes factors and posterior model probabilities.

    This is the right question where one of the models is taken to be true, and the priors say what is known.
    A Bayes factor depends on the priors however many data there are: with the standard deviation of a vague
    prior ten times as large, the evidence is about a tenth, while the posterior stays the same. If priors are
    vague or chosen for convenience, or if the question is which model predicts best, compare models by
    cross-validation, such as arviz's `loo` and `compare`.

    Parameters
    ----------
    models
        A dict by name of evidences as `log_evidence` returns them, of pairs (log evidence, standard error),
        or of tuples (result, model, data) as `log_evidence` takes them; data may be left out.
    prior
        Prior probabilities of the models by name, up to a factor; by default all are the same.
    seed
        For `log_evidence`, where results are given.

    Returns
    -------
    pandas.DataFrame
        A row for each model, the largest evidence first, and the columns log_evidence and standard_error;
        log_bayes_factor, of the first model over this one, its standard error bayes_factor_error, and
        bayes_factor; and probability, the posterior probability of the model among these, with its standard
        error probability_error.

    Raises
    ------
    ArgumentError
        There are fewer than two models, or an entry is not one of the above; and what `log_evidence` raises.

    Notes
    -----
    Errors of Bayes factors and probabilities follow from those of the evidences to first order (delta
    method), for estimates that are independent. Kass and Raftery (1995), Bayes factors.

    Examples
    --------
    >>> table = stanadapt.compare_models({"pooled": evidence_1, "hierarchical": evidence_2})
    """
    if not isinstance(models, Mapping) or len(models) < 2:
        raise check.refusal("models", models, "a dict of at least two models by name")
    weights = _prior(prior, list(models))
    evidences = {str(name): _evidence(str(name), given, seed) for name, given in models.items()}
    _warn_of_other_data(evidences)
    return _table(evidences, weights)


def _table(evidences: Mapping[str, Evidence], weights: np.ndarray) -> pandas.DataFrame:
    import pandas

    logs = np.array([each.log_evidence for each in evidences.values()])
    errors = np.array([each.standard_error for each in evidences.values()])
    joint = logs + weights
    probability = np.exp(joint - logsumexp(joint))
    # dp_i = p_i (dz_i - sum_j p_j dz_j), to first order in the errors dz of the log evidences.
    slopes = probability[:, None] * (np.eye(len(logs)) - probability)
    best = int(np.argmax(logs))
    with np.errstate(over="ignore"):
        factor = np.exp(logs[best] - logs)
    table = pandas.DataFrame(
        {
            "log_evidence": logs,
            "standard_error": errors,
            "log_bayes_factor": logs[best] - logs,
            "bayes_factor_error": np.where(np.arange(len(logs)) == best, 0.0, np.hypot(errors, errors[best])),
            "bayes_factor": factor,
            "probability": probability,
            "probability_error": np.sqrt(slopes**2 @ errors**2),
        },
        index=pandas.Index(list(evidences), name="model"),
    )
    return table.sort_values("log_evidence", ascending=False, kind="stable")


def _evidence(name: str, given: Any, seed: int) -> Evidence:
    """One entry, as an evidence that is finite."""
    what = f"models[{name!r}]"
    allowed = "an evidence of log_evidence, (log evidence, standard error), or (result, model, data)"
    if not isinstance(given, tuple) or len(given) < 2:
        raise check.refusal(what, given, allowed)
    if isinstance(given, Evidence):
        found = given
    elif len(given) == 2 and all(np.ndim(each) == 0 and isinstance(each, int | float) for each in given):
        found = Evidence(float(given[0]), float(given[1]))
    elif len(given) <= 3:
        found = log_evidence(*given, seed=seed)
    else:
        raise check.refusal(what, given, allowed)
    if not (np.isfinite(found.log_evidence) and 0.0 <= found.standard_error < np.inf):
        raise ArgumentError(
            f"{what} has no evidence: log_evidence={found.log_evidence}, standard_error="
            f"{found.standard_error}. See its findings"
        )
    return found


def _prior(prior: Mapping[str, float] | None, names: list[str]) -> np.ndarray:
    """Logs of the prior probabilities of the models, up to a constant."""
    if prior is None:
        return np.zeros(len(names))
    if not isinstance(prior, Mapping) or set(prior) != set(names):
        raise check.refusal("prior", prior, f"a dict with a number for each of {', '.join(map(str, names))}")
    given = [check.number(f"prior[{name!r}]", prior[name], 0.0, open_low=True) for name in names]
    return np.log(given)


def _warn_of_other_data(evidences: Mapping[str, Evidence]) -> None:
    """Say which data have the same name in two models, and other values."""
    seen: dict[str, tuple[str, str]] = {}
    for name, evidence in evidences.items():
        for datum, digest in evidence.observed.items():
            other, known = seen.setdefault(datum, (name, digest))
            if known != digest:
                warn(
                    f"the models {other!r} and {name!r} observe other values of {datum}: evidences can be "
                    "compared only for the same data"
                )
