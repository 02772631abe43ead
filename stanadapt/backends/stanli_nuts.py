"""Stan's NUTS inside of stanli: a chain is one call, which holds no lock of Python's."""

from __future__ import annotations

import json
import re
import warnings

import numpy as np
import stanli

from .base import StanDraws
from .native import NativeModel, demangled, strings_for_non_finite, without_notes
from .stanli import compiled, without_generated

_CHAIN_FAILED = re.compile(r"^1 of 1 chains failed; first: (chain 1: )?")


class StanliProgram:
    """See `backends.base.StanProgram`.

    Generated quantities are left out where the program can be had without them: stanli loses all of a draw
    when they fail, and their random numbers would change the draws that follow.
    """

    def __init__(self, intermediate: str, data: str) -> None:
        """The program in stanli's intermediate form, and data as JSON text."""
        self.intermediate = intermediate
        self.data = data
        self.library = f"stanli {stanli.__version__}"

    @classmethod
    def of_model(cls, model: NativeModel) -> StanliProgram:
        """The program of a model that stanli has open."""
        data = json.loads(model.model.data)
        manifest = data.pop("__stanli")
        return cls(model.spare or manifest["mir"], json.dumps(data))

    @classmethod
    def of_code(cls, code: str, data: str) -> StanliProgram:
        """A program that another backend has open. Raises ModelError where stanli does not cover it."""
        program = cls(without_generated(code, None) or compiled(code, None), strings_for_non_finite(data))
        program._open(1)
        return program

    def nuts(
        self,
        x: np.ndarray,
        *,
        chain: int,
        seed: int,
        warmup: int,
        draws: int,
        save_warmup: bool,
        metric: str,
        target_accept: float,
        max_tree_depth: int,
    ) -> StanDraws:
        model = self._open(seed)
        try:
            fit = model.sample(
                chains=1,
                parallel_chains=1,
                seed=seed,
                warmup=warmup,
                samples=draws,
                save_warmup=save_warmup,
                inits=x,
                metric=f"{metric}_e",
                delta=target_accept,
                max_depth=max_tree_depth,
                refresh=0,
            )
        except RuntimeError as error:
            raise RuntimeError(_CHAIN_FAILED.sub("", str(error))) from error
        stats = dict(zip(stanli.SAMPLER_COLUMNS, fit.sampler_stats[0].T, strict=True))
        names = [_flat(name) for name in fit.names]
        return StanDraws(names, fit.draws()[0], stats, float(fit.step_size[0]), fit.inv_metric[0], None)

    def _open(self, seed: int) -> stanli.Model:
        """A model of this chain alone: stanli locks one while it evaluates it."""
        with without_notes():
            warnings.simplefilter("ignore", RuntimeWarning)  # said when the posterior was opened
            return stanli.Model(mir=self.intermediate, data=self.data, seed=seed)


def _flat(name: str) -> str:
    """`theta[1,2]` as `theta.1.2`."""
    base, bracket, index = name.partition("[")
    return demangled(base + bracket.replace("[", ".") + index.rstrip("]").replace(",", "."))
