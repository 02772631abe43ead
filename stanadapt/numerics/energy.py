"""The energy of Hamiltonian trajectories, and what its error says of the integrator."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import kernel

# Rise of the energy over a trajectory beyond which the integrator is said to have failed, see Betancourt
# (2017), A conceptual introduction to Hamiltonian Monte Carlo, Section 6.2. Of many leapfrog steps: Stan's
# limit, since an unstable trajectory grows exponentially and passes any limit soon.
LEAPFROG_LIMIT = 1_000.0
# Of the two-stage integrator, whose trajectories are mostly one step: at the neck of a funnel there are no
# steps in which the error could grow, and rises of some hundreds are as typical as those beyond 1000.
SPLITTING_LIMIT = 200.0
# Share of the draws that may diverge on a good posterior. Where a tail is steep, a long step towards it now
# and then ends far up the slope, and there is nothing behind that could be missed. Of fisher_hmc on 108
# runs with necks, walls and ridges, all had a larger share beyond 200; of 168 runs on good posteriors, six
# had, all of them on two hierarchies. With "any beyond 1000" 28 of these would be accused, and with this
# share beyond 1000 there would be 24 misses. Figures by seeds that had no part in this choice, and of hmc,
# stand in examples/benchmarks/README.md.
HARMLESS_SHARE = 0.002


@kernel
def energy_of(logp: Any, kinetic: Any) -> Any:
    """H = kinetic - logp at the end of a trajectory, and infinity where there is no energy.

    There is none where the point has no log density, nor where the momentum has overflowed. Such a momentum's
    kinetic energy p^T A p / 2 is not always infinity: its terms have both signs, and their sum may be NaN,
    -infinity or any negative number, which would look like an energy so low that it must be accepted.
    """
    if logp == -np.inf or not (0.0 <= kinetic < np.inf):
        return np.inf
    return kinetic - logp


@kernel
def diverges(rise: Any, limit: Any) -> Any:
    """1.0 where a trajectory along which the energy rose by `rise` has diverged, else 0.0.

    It has where the rise is beyond `limit` or no number, or where the trajectory has ended at a point without
    an energy, for which `rise` is infinity.
    """
    return 0.0 if rise <= limit else 1.0
