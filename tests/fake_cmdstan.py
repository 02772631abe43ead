"""A stand-in for the executable that CmdStan makes of a Stan program: its command line, its CSV files.

Underneath is stanli, with the stream of random numbers that CmdStan has for a seed and a chain. It writes
what CmdStanPy reads of CmdStan 2.36.
"""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

DEFAULTS = {"num_warmup": "1000", "num_samples": "1000", "thin": "1", "save_warmup": "0", "engaged": "1"}
DEFAULTS |= {"metric": "diag_e", "max_depth": "10", "sig_figs": "8", "id": "1", "init": "2"}
INFO = "stan_version_major = 2\nstan_version_minor = 36\nstan_version_patch = 0\nSTAN_THREADS = false\n"


def make(stan_file: Path) -> Path:
    """Write the executable of a Stan file beside it, as CmdStan does."""
    executable = stan_file.with_suffix("")
    executable.write_text(
        textwrap.dedent(f"""\
            #!{sys.executable}
            import sys
            sys.path.insert(0, {str(Path(__file__).parent)!r})
            import fake_cmdstan
            sys.exit(fake_cmdstan.main({str(stan_file)!r}, sys.argv[1:]))
        """)
    )
    executable.chmod(0o755)
    return executable


def main(stan_file: str, words: list[str]) -> int:
    if words == ["info"]:
        print(INFO, end="")
        return 0
    given = DEFAULTS | dict(word.split("=", 1) for word in words if "=" in word and word != "file")
    files = [word.partition("=")[2] for word in words if word.startswith("file=")]
    if given.get("method") != "sample" or len(files) != 2:
        print(f"Error: {' '.join(words)}")
        return 70
    try:
        fit = _run(stan_file, files[0], given)
    except RuntimeError as error:
        print(f"Error: {error}")
        return 70
    Path(files[1]).write_text(_csv(fit, given))
    return 0


def _run(stan_file: str, data: str, given: dict[str, str]) -> Any:
    import stanli

    text, chain = Path(data).read_text(), int(given["id"])
    start = stanli.bridgestan_model(stan_file=stan_file, data=text)
    inits = _start(start, given)
    model = stanli.Model(stan_file=stan_file, data=text, seed=int(given["seed"]))
    return model.sample(
        chains=chain,  # the last of them has the stream of this one
        seed=int(given["seed"]),
        warmup=int(given["num_warmup"]),
        samples=int(given["num_samples"]),
        save_warmup=given.get("save_warmup") == "1",
        inits=inits,
        metric=given["metric"],
        max_depth=int(given["max_depth"]),
        adapt_engaged=given["engaged"] == "1",
        delta=float(given.get("delta", 0.8)),
        refresh=0,
    )


def _start(model: Any, given: dict[str, str]) -> np.ndarray:
    """The start that a file names; or a random one, also where the file leaves parameters out."""
    if Path(given["init"]).is_file():
        try:
            return np.asarray(model.param_unconstrain_json(Path(given["init"]).read_text()))
        except RuntimeError:
            given["init"] = "2"
    rng, radius = np.random.default_rng([int(given["seed"]), int(given["id"])]), float(given["init"])
    return rng.uniform(-radius, radius, model.param_unc_num())


def _csv(fit: Any, given: dict[str, str]) -> str:
    import stanli

    names = [name.replace("[", ".").replace(",", ".").rstrip("]") for name in fit.names]
    rows = np.concatenate([fit.sampler_stats[-1], fit.draws()[-1]], axis=1)
    digits = int(given["sig_figs"])
    lines = [",".join(f"{value:.{digits}g}" for value in row) for row in rows]
    saved = int(given["num_warmup"]) if given.get("save_warmup") == "1" else 0
    dense = given["metric"] == "dense_e"
    metric = np.atleast_2d(fit.inv_metric[-1])
    title = "Elements of inverse mass matrix:" if dense else "Diagonal elements of inverse mass matrix:"
    return "\n".join(
        [
            *_comments(given),
            ",".join([*stanli.SAMPLER_COLUMNS, *names]),
            *lines[: saved : int(given["thin"])],
            "# Adaptation terminated",
            f"# Step size = {fit.step_size[-1]:.{digits}g}",
            f"# {title}",
            *("# " + ", ".join(f"{value:.{digits}g}" for value in row) for row in metric),
            *lines[saved :: int(given["thin"])],
            "# ",
            "#  Elapsed Time: 0.25 seconds (Warm-up)",
            "#                0.5 seconds (Sampling)",
            "#                0.75 seconds (Total)",
            "# ",
            "",
        ]
    )


def _comments(given: dict[str, str]) -> list[str]:
    facts = {
        "stan_version_major": 2,
        "stan_version_minor": 36,
        "stan_version_patch": 0,
        "model": "model",
        "method": "sample (Default)",
        "num_samples": given["num_samples"],
        "num_warmup": given["num_warmup"],
        "save_warmup": "true" if given.get("save_warmup") == "1" else "false",
        "thin": given["thin"],
        "algorithm": "hmc (Default)",
        "engine": "nuts (Default)",
        "max_depth": given["max_depth"],
        "metric": given["metric"],
        "id": given["id"],
        "seed": given["seed"],
        "words": json.dumps(given).replace("=", " "),
    }
    return [f"# {name} = {value}" for name, value in facts.items()]
