"""CmdStan, through CmdStanPy: the executable of a `cmdstanpy.CmdStanModel` runs chains of Stan's NUTS."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import cmdstanpy
import numpy as np
import stanio
from cmdstanpy.utils import get_logger

from .... import check
from ..contract import ChainPlan, StanDraws
from .native import demangle

_DIGITS = 18  # enough to get the very same numbers back from text; CmdStan's default is 8


class CmdStanProgram:
    """See `backends.contract.StanProgram`."""

    def __init__(
        self, executable: str, data: str, constrain: Callable[[np.ndarray], Mapping[str, np.ndarray]]
    ) -> None:
        """`data` are JSON text; `constrain` gives the values of the parameters at an unconstrained point."""
        self.data = data
        self.constrain = constrain
        with _silent():
            self.model = cmdstanpy.CmdStanModel(exe_file=executable)
            info = self.model.exe_info()
        version = [info.get(f"stan_version_{part}", "") for part in ("major", "minor", "patch")]
        self.library = f"CmdStan {'.'.join(version)}" if all(version) else "CmdStan"

    def nuts(
        self, x: np.ndarray, plan: ChainPlan, *, metric: str, target_accept: float, max_tree_depth: int
    ) -> StanDraws:
        adapts = plan.warmup > 0  # CmdStanPy allows no adaptation in no iterations
        save_warmup = plan.save_warmup and adapts
        with tempfile.TemporaryDirectory(prefix="stanadapt-") as folder, _silent():
            inits = stanio.dump_stan_json(self.constrain(x))
            try:
                fit = self.model.sample(
                    data=_write_json(folder, "data", self.data),
                    inits=_write_json(folder, "inits", inits),
                    chains=1,
                    chain_ids=[plan.chain + 1],
                    seed=plan.seed,
                    iter_warmup=plan.warmup,
                    iter_sampling=plan.draws,
                    save_warmup=save_warmup,
                    metric=f"{metric}_e",
                    max_treedepth=max_tree_depth,
                    adapt_engaged=adapts,
                    adapt_delta=target_accept if adapts else None,
                    sig_figs=_DIGITS,
                    show_progress=False,
                    output_dir=folder,
                )
                return _read_draws(fit, save_warmup)
            except (RuntimeError, ValueError) as error:
                raise RuntimeError(_reason(error)) from error


def _read_draws(fit: Any, with_warmup: bool) -> StanDraws:
    """The draws in a `CmdStanMCMC` of one chain."""
    rows = fit.draws(inc_warmup=with_warmup, concat_chains=True)
    header = fit.metadata.cmdstan_config["raw_header"].split(",")
    own = [i for i, name in enumerate(header) if not name.endswith("__")]
    seconds = fit.time[0] if fit.time else {}
    return StanDraws(
        [demangle(header[i]) for i in own],
        rows[:, own],
        {name: rows[:, i] for i, name in enumerate(header) if name.endswith("__")},
        float(fit.step_size[0]),
        np.asarray(fit.inv_metric[0]),
        (seconds["warmup"], seconds["sampling"]) if {"warmup", "sampling"} <= set(seconds) else None,
    )


def _reason(error: Exception) -> str:
    """CmdStan's own words, without the files that are gone by now."""
    text = str(error).removeprefix("Error during sampling:\n").partition("Command and output files")[0]
    return check.one_line(RuntimeError(text)) if text.strip() else "its executable ended without a message"


def _write_json(folder: str, name: str, text: str) -> str:
    path = Path(folder) / f"{name}.json"
    path.write_text(text, encoding="utf-8")
    return str(path)


_LOCK = threading.Lock()
_silencers = 0


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """CmdStanPy logs nothing meanwhile; its warnings of divergences are findings of ours.

    Chains run in threads, so the last one to leave restores what the first one found.
    """
    global _silencers, _was_disabled
    logger = get_logger()
    with _LOCK:
        if _silencers == 0:
            _was_disabled = logger.disabled
            logger.disabled = True
        _silencers += 1
    try:
        yield
    finally:
        with _LOCK:
            _silencers -= 1
            if _silencers == 0:
                logger.disabled = _was_disabled


_was_disabled = False
