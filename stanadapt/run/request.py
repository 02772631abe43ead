"""The arguments of `sample`, checked once."""

from __future__ import annotations

import secrets
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from .. import check, samplers
from ..model.plugins import check_backend
from .job import Job
from .preparation import auto
from .preparation.warm_start import Warm, shorten
from .stopping import Until

_TIMES = 50  # times a method's number of draws, which a run with `until` may have


class Request(NamedTuple):
    """The arguments of `sample`, checked as far as they can be without the model."""

    method: str
    settings: Any  # as given
    chains: int
    warmup: int | None  # None: the method's default
    draws: int | None
    thin: int
    seed: int
    inits: Any
    init_radius: float
    workers: int
    backend: str
    progress: bool
    save_warmup: bool
    coords: Mapping[str, Sequence[Any]]
    dims: Mapping[str, Sequence[str]]
    log_likelihood: Mapping[str, str]  # generated quantity -> its name in the group
    posterior_predictive: Mapping[str, str]
    keep_unconstrained: bool
    until: Until | None
    warm: Warm | None = None
    log_prior: bool = False

    @property
    def quantities(self) -> dict[str, Mapping[str, str]]:
        """By group of the result: the generated quantities that go there, with their names in it."""
        return {"log_likelihood": self.log_likelihood, "posterior_predictive": self.posterior_predictive}

    def job(self, method: str, settings: Any) -> Job:
        """The job for a method, with the method's default where an entry here is None."""
        sampler = samplers.sampler(method)
        most = sampler.FACTS.draws * (1 if self.until is None else _TIMES)
        draws = min(most, check.LARGEST_COUNT) if self.draws is None else self.draws
        warmup = sampler.FACTS.warmup if self.warmup is None else self.warmup
        resolved = samplers.resolve(sampler, settings)
        if self.warm is not None:
            warmup, resolved = shorten(method, self.warmup, resolved, settings)
        if getattr(resolved, "pooled", False) and (self.chains == 1 or self.warm is not None):
            resolved = resolved._replace(pooled=False)
        return Job(
            method=method,
            settings=resolved,
            warmup=warmup,
            draws=draws,
            thin=check.integer("thin", self.thin, 1, draws),
            chains=self.chains,
            seed=self.seed,
            save_warmup=self.save_warmup,
            keep_unconstrained=self.keep_unconstrained,
        )


def resolve(
    *,
    method: Any,
    chains: Any,
    warmup: Any,
    draws: Any,
    thin: Any,
    seed: Any,
    inits: Any,
    init_radius: Any,
    workers: Any,
    backend: Any,
    settings: Any,
    progress: Any,
    save_warmup: Any,
    coords: Any,
    dims: Any,
    log_likelihood: Any,
    posterior_predictive: Any,
    keep_unconstrained: Any,
    until: Any = None,
    warm: Warm | None = None,
    log_prior: Any = False,
) -> Request:
    """The arguments of `sample`, checked before anything is opened or run.

    Raises
    ------
    ArgumentError
        An argument or a setting has a value that is not allowed.
    """
    auto.check_method(method, settings)
    most = check.LARGEST_COUNT
    draws = None if draws is None else check.integer("draws", draws, 1, most)
    request = Request(
        method=method,
        settings=settings,
        chains=check.integer("chains", chains, 1, most),
        warmup=None if warmup is None else check.integer("warmup", warmup, 0, most),
        draws=draws,
        thin=check.integer("thin", thin, 1, draws or most),
        seed=secrets.randbits(32) if seed is None else check.integer("seed", seed, 0, 2**32 - 1),
        inits=inits,
        init_radius=check.number("init_radius", init_radius, 0.0, check.LARGEST_RADIUS),
        workers=check.available_cores() if workers is None else check.integer("workers", workers, 1, most),
        backend=check_backend(backend),
        progress=check.boolean("progress", progress),
        save_warmup=check.boolean("save_warmup", save_warmup),
        coords=parse_labels("coords", coords),
        dims=parse_labels("dims", dims),
        log_likelihood=parse_quantities("log_likelihood", log_likelihood),
        posterior_predictive=parse_quantities("posterior_predictive", posterior_predictive),
        keep_unconstrained=check.boolean("keep_unconstrained", keep_unconstrained),
        until=Until.parse(until),
        warm=warm,
        log_prior=check.boolean("log_prior", log_prior),
    )
    if method != auto.NAME:
        request.job(method, settings)
    return request


def parse_labels(name: str, given: Any) -> Mapping[str, Any]:
    """The argument `coords` or `dims`, checked without the model. Raises ArgumentError."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(key, str) and key for key in given):
        raise check.refusal(name, given, "a dict with names as keys")
    return given


def parse_quantities(name: str, given: Any) -> dict[str, str]:
    """Generated quantities with their names in the group: their own names, or those of their data.

    A text is a name, or `y=log_lik` with the data that the quantity is of.

    Raises
    ------
    ArgumentError
        The argument `name` is of another kind, or names a quantity twice.
    """
    listed = [given] if isinstance(given, str) else given
    if isinstance(listed, Mapping):
        pairs = [(quantity, own) for own, quantity in listed.items()]
    elif isinstance(listed, Sequence):
        pairs = [_pair(name, each) for each in listed]
    else:
        raise check.refusal(
            name,
            given,
            "a name or a list of names of generated quantities, with their data as in 'y=log_lik', or a dict "
            "from data to quantities",
        )
    for quantity, own in pairs:  # the open model tells whether they are its quantities
        if not isinstance(quantity, Hashable) or not (isinstance(own, str) or own is quantity):
            raise check.refusal(name, given, "made of names, which are texts")
    owners = [own for _, own in pairs]
    if len(dict(pairs)) < len(set(pairs)) or len(set(owners)) < len({*pairs}):
        raise check.refusal(name, given, "made of different generated quantities, with different names")
    return dict(pairs)


def _pair(name: str, given: Any) -> tuple[Any, Any]:
    """A quantity and its name in the group, of `log_lik` or `y=log_lik`."""
    if not isinstance(given, str) or "=" not in given:
        return given, given
    own, _, quantity = (part.strip() for part in given.partition("="))
    if not own or not quantity:
        raise check.refusal(name, given, "a name of a generated quantity, or DATA=NAME such as 'y=log_lik'")
    return quantity, own
