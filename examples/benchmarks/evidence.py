"""How right `stanadapt.log_evidence` is, and how honest its standard error, where the evidence is known.

    python examples/benchmarks/evidence.py [--seeds 100] [--model NAME ...] [--dim D ...] [--fit METHOD]

Conjugate models (tests/conjugate.py) with 4 chains of 1000 draws from the exact posterior; in the second of
two rows each chain stays where it is with a probability of 0.8, which divides the effective size by 9. With
--fit the draws are those of a method at its defaults; of tempered the evidence is that of its path. The
columns: the log evidence; the share of seeds in which the estimate is within 3 standard errors; the root
mean square of its errors in standard errors, which is 1 if these are honest; the root mean square error
itself; and the share of seeds with a finding.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np

import stanadapt
from stanadapt.result.container import datasets
from stanadapt.samplers import METHODS

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from conjugate import MODELS, drawn

DIMENSIONS = (1, 2, 5, 10, 20, 50)
STAY = (0.0, 0.8)
CHAINS, DRAWS = 4, 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--model", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--dim", nargs="*", type=int, default=list(DIMENSIONS))
    parser.add_argument("--fit", choices=list(METHODS))
    asked = parser.parse_args()
    warnings.simplefilter("ignore", stanadapt.StanAdaptWarning)
    print("| model | d | draws | log evidence | within 3 | rms of z | rms error | findings |")
    print("| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |")
    for name in asked.model:
        for d in asked.dim:
            if name == "regression" and d < 2:
                continue
            model = MODELS[name](d)
            posterior = stanadapt.Posterior(model.code, model.data)
            for stay in (None,) if asked.fit else STAY:
                errors, units, findings = [], [], 0
                for seed in range(asked.first, asked.first + asked.seeds):
                    if stay is None:
                        fit = {"method": asked.fit, "seed": seed, "progress": False}
                        result = stanadapt.sample(posterior, **fit)
                    else:
                        result = drawn(model, CHAINS, DRAWS, stay, np.random.default_rng([seed, 1]))
                    if asked.fit == "tempered":
                        attrs = datasets(result)["posterior"].attrs
                        value, unit = attrs["log_evidence"], attrs["log_evidence_error"]
                        findings += bool(stanadapt.diagnose(result))
                    else:
                        found = stanadapt.log_evidence(result, posterior, seed=seed)
                        value, unit = found.log_evidence, found.standard_error
                        findings += bool(found.findings)
                    errors.append(value - model.log_evidence)
                    units.append(unit)
                e, z = np.array(errors), np.array(errors) / np.array(units)
                kind = asked.fit if stay is None else f"exact, stay {stay:g}"
                print(
                    f"| {name} | {d} | {kind} | {model.log_evidence:.2f} | {np.mean(np.abs(z) <= 3):.2f} | "
                    f"{np.sqrt(np.mean(z**2)):.2f} | {np.sqrt(np.mean(e**2)):.2g} | "
                    f"{findings / asked.seeds:.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
