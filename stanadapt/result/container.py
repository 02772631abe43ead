"""The container of results: the only file that knows arviz.

Python 3.11 gets arviz 0.23 with InferenceData, 3.12 and later get arviz 1.x with xarray's DataTree. The
package builds one plain set of xarray datasets, and this file turns it into either. arviz is imported late:
it takes seconds.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import json
import warnings
from collections.abc import Container, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import xarray
from scipy.special import logsumexp

from .. import check
from ..cache import import_with_home
from ..errors import ArgumentError, StanAdaptError
from .light_arviz import inference_data_class
from .light_xarray import put_off_dask

if TYPE_CHECKING:
    from arviz import InferenceData as _Collection

    # Which of them, the installed arviz decides.
    InferenceData: TypeAlias = _Collection | xarray.DataTree

put_off_dask()

Groups = dict[str, xarray.Dataset]
OWN_GROUP = "adaptation"  # which is not of the schema
_SAME_RATIOS = 0.01  # range of the largest log ratios in which no tail is looked for
_FEWEST_IN_TAIL = 4


@functools.cache
def has_datatree() -> bool:
    """Whether the installed arviz keeps results in a DataTree (1.x) rather than in InferenceData (0.x)."""
    return int(importlib.metadata.version("arviz").split(".")[0]) >= 1


@functools.cache
def statistics() -> Any:
    """The module with arviz's statistics, imported at the first need; of arviz 1.x without the plots."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # arviz 0.23 announces arviz 1 at import
        if has_datatree():
            return import_with_home(lambda: importlib.import_module("arviz_stats"))
        return import_with_home(lambda: importlib.import_module("arviz"))


def smooth_weights(log_ratios: np.ndarray) -> tuple[np.ndarray, float]:
    """Pareto-smoothed importance weights of log ratios (n,), as normalised logs (n,), and Pareto k.

    Ratios of zero, which are -inf, keep the weight zero. If the largest ratios are the same to one percent,
    as those of a bounded ratio are, there is no tail to smooth, and k is zero. If there are too few draws for
    a tail, k is infinite.

    Source: Vehtari, Simpson, Gelman, Yao and Gabry (2024), Pareto smoothed importance sampling.
    """
    weights, inside = np.full(log_ratios.shape, -np.inf), np.isfinite(log_ratios)
    ratios = log_ratios[inside]
    if not ratios.size:
        return weights, np.inf
    tail = int(np.ceil(min(0.2 * ratios.size, 3.0 * np.sqrt(ratios.size))))  # as long as arviz takes it
    largest = np.sort(ratios)[-tail:]
    if tail <= _FEWEST_IN_TAIL:
        smooth, k = ratios, np.inf
    elif largest[-1] - largest[0] < _SAME_RATIOS:
        smooth, k = ratios, 0.0
    elif has_datatree():  # it takes log likelihoods, of which the ratios of leaving one out are the negatives
        smooth, k = importlib.import_module("arviz_stats.base").array_stats.psislw(-ratios)
    else:
        smooth, k = statistics().psislw(ratios)
    weights[inside] = smooth - logsumexp(smooth)
    return weights, float(k)


@functools.cache
def pictures() -> Any:
    """The module with arviz's pictures, which imports matplotlib."""
    return (
        import_with_home(lambda: importlib.import_module("arviz_plots")) if has_datatree() else statistics()
    )


def container(groups: Groups, attrs: Mapping[str, Any] | None = None) -> InferenceData:
    """The datasets in the container of the installed arviz; `attrs` are the attributes of the whole."""
    if has_datatree():
        tree = xarray.DataTree.from_dict(groups)
        tree.attrs.update(attrs or {})
        return tree
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # "adaptation" is no group of the schema
        return cast("InferenceData", inference_data_class()(attrs=dict(attrs or {}), **groups))


def datasets(result: InferenceData) -> Groups:
    """The datasets of an InferenceData or a DataTree, by group."""
    held: Any = result
    if hasattr(held, "children"):
        return {name: node.to_dataset() for name, node in held.children.items()}
    if not callable(getattr(held, "groups", None)):
        raise check.refusal("idata", result, "a result of stanadapt.sample")
    return {name: held[name] for name in held.groups()}


def attributes(result: InferenceData) -> dict[str, Any]:
    """The attributes of the whole."""
    return {str(name): value for name, value in result.attrs.items()}


def without_draws(groups: Groups) -> ArgumentError:
    """The error for a result that lacks draws of a posterior; it says where it has draws of a prior."""
    held = draws_of_a_prior(groups)
    return ArgumentError(f"idata has no draws: a result of stanadapt.sample with a posterior is needed{held}")


def draws_of_a_prior(groups: Container[str]) -> str:
    """The end of an error about a result without draws of a posterior, if it has draws of a prior."""
    if "prior" not in groups:
        return ""
    return "; its draws are of the prior, in the group prior, which arviz.summary(idata, group='prior') reads"


def json_attribute(attrs: Mapping[str, Any], name: str, otherwise: Any) -> Any:
    """An attribute that we write as JSON, of the type of `otherwise`.

    In the results of other programs it may be missing, or something else.
    """
    try:
        held = json.loads(attrs[name])
    except (KeyError, TypeError, ValueError):
        return otherwise
    return held if isinstance(held, type(otherwise)) else otherwise


@contextlib.contextmanager
def readable(what: str) -> Iterator[None]:
    """Turn errors at damaged or unexpected contents into an ArgumentError.

    Raises
    ------
    ArgumentError
        It names `what` is read, and what went wrong.
    """
    try:
        yield
    except StanAdaptError:
        raise
    except (TypeError, ValueError, LookupError) as error:
        raise ArgumentError(
            f"{what} is damaged, or something in it is of another kind than stanadapt.sample makes "
            f"({type(error).__name__}: {check.one_line(error)})"
        ) from error
