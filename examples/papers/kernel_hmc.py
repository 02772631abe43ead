"""Strathmann et al. (2015), Gradient-free Hamiltonian Monte Carlo: the paper's figures beside ours.

    python examples/papers/kernel_hmc.py [--part 1 2 3 4] [--repeats N] [--quick] [--figures] [--out FOLDER]

    1  acceptance along trajectories on a learnt surrogate, Gaussian targets (Figure 2)
    2  the 8-d banana (Figure 3)
    3  Gaussian process classification of UCI Glass, its likelihood estimated (Figure 4, left)
    4  approximate Bayesian computation on a skew normal (Figure 4, middle and right)

What the text of the paper leaves open is as in the authors' published code.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import banana
import glass
import skew_normal
import trajectories
from common import AT_A_TIME, pool
from targets import CLASSIFICATION

PARTS = {1: trajectories.run, 2: banana.run, 3: glass.run, 4: skew_normal.run}


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add = parser.add_argument
    add("--part", type=int, nargs="+", choices=sorted(PARTS), default=sorted(PARTS))
    add("--repeats", type=int, help="of every row; default 100, 30, 3 and 5")
    add("--quick", action="store_true", help="few and short chains: shows that everything runs")
    add("--figures", action="store_true", help="draw the paper's figures into pictures/ too")
    add(
        "--out", type=Path, metavar="FOLDER", help="write the measured rows, one a repeat, to csv files in it"
    )
    data = Path(os.environ.get("CLASSIFICATION", CLASSIFICATION))
    add("--data", type=Path, default=data, metavar="FOLDER", help="with glass.csv; CLASSIFICATION")
    add("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.repeats is not None and given.repeats < 1:
        parser.error(f"--repeats {given.repeats}: it must be at least 1")
    if given.out and not given.out.is_dir():
        parser.error(f"--out {given.out}: no such folder")
    return given


def main() -> None:
    given = options()
    print(f"At most {AT_A_TIME} chains at a time, one core each. Times are wall times.")
    if given.quick:
        print("Chains are too short here to be compared with the paper's.")
    with pool() as workers:
        for part in given.part:
            began = time.perf_counter()
            found = PARTS[part](workers, given)
            if found is None:
                continue
            print(f"\n{time.perf_counter() - began:.0f} s for part {part}")
            if given.out:
                found.rows.to_csv(given.out / f"kernel_hmc_{part}.csv", index=False)
            if given.figures:
                import kernel_figures

                kernel_figures.DRAW[part](*found)


if __name__ == "__main__":
    main()
