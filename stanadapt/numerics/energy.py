"""The energy of Hamiltonian trajectories, and what its error tells about the integrator."""

from __future__ import annotations

import numpy as np

from ..jit import kernel
from ..kinds import Real

# A trajectory has diverged if its energy rises by more than this: Stan's limit, see Betancourt (2017), A
# conceptual introduction to Hamiltonian Monte Carlo, Section 6.2. The limit serves the two-stage integrator
# too, although most of its trajectories are a single step, in which no error can grow. At necks the rises
# have heavier tails than on good posteriors, so a lower limit tells the two apart less well.
LIMIT = 1_000.0
# Share of the draws that may diverge on a good posterior. If a tail is steep, a long step towards it
# sometimes ends far up the slope, but the chain misses nothing behind it. In 350 runs of fisher_hmc on good
# posteriors, this share accuses three runs that have no other finding, all on two hierarchies; a rule that
# allows no divergence would accuse 55. In 250 runs on necks, walls and ridges, it leaves 24 runs to other
# findings, most of all to a low E-BFMI. A limit of 200 with twice the share would accuse 13 and leave two.
# See examples/benchmarks/divergences.py.
HARMLESS_SHARE = 0.001


@kernel(counted=False)
def energy_of(logp: Real, kinetic: Real) -> Real:
    """H = kinetic - logp at the end of a trajectory, or infinity if there is no energy.

    There is none if the point has no log density, or if the momentum has overflowed. After an overflow the
    kinetic energy p^T A p / 2 is not always infinity. Its terms have both signs, and their sum may be NaN,
    -infinity or any negative number. The energy would then seem so low that the point must be accepted.
    """
    if logp == -np.inf or not (0.0 <= kinetic < np.inf):
        return np.inf
    return kinetic - logp


@kernel(counted=False)
def diverges(rise: Real) -> Real:
    """1.0 if a trajectory has diverged, else 0.0; `rise` is the rise of the energy along it.

    A rise above the limit, infinity and NaN count as divergences. `rise` is infinity for a trajectory that
    ended at a point without an energy.
    """
    return 0.0 if rise <= LIMIT else 1.0
