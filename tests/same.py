"""Whether a change of the code has changed a draw: hashes of what every method gives, on this machine.

    make same-record   before the change: runs every method and writes the hashes to .same.json
    make same          after it: runs them again, compares, and lists what differs

Each method runs at its defaults, and with `faithful` where it has that, on three models with two seeds. What
is hashed is every variable of posterior, sample_stats and adaptation but the times, bit for bit. A variable
that was not there before is listed and is no difference; one that is gone is. Other machines, and other
versions of numba or NumPy, round otherwise: the file is for one machine and is no part of the project.
"""

from __future__ import annotations

import hashlib
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import stanadapt

ROOT = Path(__file__).parents[1]
RECORD = ROOT / ".same.json"
MODELS = ("eight_schools", "linear_regression", "correlated_gaussian")
SEEDS = (1, 2)
CHAINS = 2
GROUPS = ("posterior", "sample_stats", "adaptation")


def variants() -> dict[str, dict[str, Any]]:
    """Name of a run -> method and settings."""
    runs = {}
    for method, row in stanadapt.methods().iterrows():
        runs[str(method)] = {"method": method}
        if "faithful=" in row.settings:
            runs[f"{method} faithful"] = {"method": method, "settings": {"faithful": True}}
    return runs | {
        "auto": {"method": "auto"},
        "fisher_mala pilot": {"method": "fisher_mala", "warmup": 1_000, "settings": {"pilot": 500}},
        "fisher_mala thinned": {"method": "fisher_mala", "thin": 3, "save_warmup": True},
    }


def hashes(idata: Any) -> dict[str, str]:
    """Group and variable -> hash of its type, shape and bytes."""
    found = {}
    for group in GROUPS:
        dataset = idata[group]
        dataset = dataset.to_dataset() if hasattr(dataset, "to_dataset") else dataset
        for name in sorted(map(str, dataset.variables)):
            if name.startswith("seconds"):
                continue
            values = np.asarray(dataset[name].values)
            content = values.tobytes() if values.dtype != object else repr(values.tolist()).encode()
            shape = f"{values.dtype} {values.shape} {dataset[name].dims}".encode()
            found[f"{group}/{name}"] = hashlib.sha256(shape + content).hexdigest()[:16]
    return found


def run(only: list[str]) -> dict[str, dict[str, str]]:
    """The hashes of every run, or of those whose method is named in `only`."""
    found = {}
    for name, arguments in variants().items():
        if only and name.split()[0] not in only:
            continue
        for model in MODELS:
            for seed in SEEDS:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    idata = stanadapt.sample(
                        ROOT / "models" / model / f"{model}.stan",
                        ROOT / "models" / model / f"{model}.json",
                        chains=CHAINS,
                        seed=seed,
                        progress=False,
                        **arguments,
                    )
                found[f"{name}, {model}, seed {seed}"] = hashes(idata)
        print(name, flush=True)
    return found


def compare(before: dict[str, dict[str, str]], after: dict[str, dict[str, str]]) -> list[str]:
    """What differs, a line each."""
    lines, added = [], set()
    for name, now in after.items():
        then = before.get(name)
        if then is None:
            lines.append(f"{name}: was not recorded")
            continue
        gone = sorted(set(then) - set(now))
        changed = sorted(key for key in set(then) & set(now) if then[key] != now[key])
        added |= set(now) - set(then)
        if gone or changed:
            lines.append(f"{name}: changed {changed}, gone {gone}")
    if added:
        print(f"New, and no difference: {', '.join(sorted(added))}")
    return lines


def main() -> int:
    record, only = "--record" in sys.argv, [word for word in sys.argv[1:] if not word.startswith("--")]
    found = run(only)
    if record:
        RECORD.write_text(json.dumps(found, indent=1), encoding="utf-8")
        print(f"{len(found)} runs recorded in {RECORD.name}")
        return 0
    differences = compare(json.loads(RECORD.read_text(encoding="utf-8")), found)
    print("\n".join(differences) or f"{len(found)} runs are the same, bit for bit")
    return len(differences) > 0


if __name__ == "__main__":
    sys.exit(main())
