"""The energy of Hamiltonian trajectories, and what its error tells about the integrator."""

from __future__ import annotations

import numpy as np

from ..jit import kernel
from ..kinds import Real

# Rise of the energy over a trajectory beyond which the integrator is said to have failed: Stan's limit, see
# Betancourt (2017), A conceptual introduction to Hamiltonian Monte Carlo, Section 6.2. It serves the
# two-stage integrator too, although its trajectories are mostly one step, in which no error can grow: rises
# at necks have heavier tails than those on good posteriors, so lower limits tell the two apart less well.
LIMIT = 1_000.0
# Share of the draws that may diverge on a good posterior. Where a tail is steep, a long step towards it now
# and then ends far up the slope, and nothing behind it is missed. Of 350 runs of fisher_hmc on good
# posteriors, this share accuses three that have no other finding, all on two hierarchies; a single
# divergence would accuse 55. Of 250 runs on necks, walls and ridges it leaves 24 to other findings, to a
# low E-BFMI above all. A limit of 200 and twice the share would accuse 13 and leave two. See
# examples/benchmarks/divergences.py.
HARMLESS_SHARE = 0.001


@kernel
def energy_of(logp: Real, kinetic: Real) -> Real:
    """H = kinetic - logp at the end of a trajectory, and infinity where there is no energy.

    There is none where the point has no log density, nor where the momentum has overflowed. Such a momentum's
    kinetic energy p^T A p / 2 is not always infinity: its terms have both signs, and their sum may be NaN,
    -infinity or any negative number, which would look like an energy so low that it must be accepted.
    """
    if logp == -np.inf or not (0.0 <= kinetic < np.inf):
        return np.inf
    return kinetic - logp


@kernel
def diverges(rise: Real) -> Real:
    """1.0 where a trajectory along which the energy rose by `rise` has diverged, else 0.0.

    A rise above the limit, infinity and NaN count as divergences. `rise` is infinity for a trajectory that
    ended at a point without an energy.
    """
    return 0.0 if rise <= LIMIT else 1.0
