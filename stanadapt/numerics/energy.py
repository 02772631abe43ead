"""The energy of Hamiltonian trajectories, and what its error tells about the integrator."""

from __future__ import annotations

from typing import Any

from ..jit import kernel

# If the energy rises by more than this over a trajectory, the integrator has failed. It is Stan's limit, see
# Betancourt (2017), A conceptual introduction to Hamiltonian Monte Carlo, Section 6.2.
LIMIT = 1_000.0


@kernel
def diverges(rise: Any) -> Any:
    """1.0 where a trajectory along which the energy rose by `rise` has diverged, else 0.0.

    A rise above the limit, infinity and NaN count as divergences. `rise` is infinity for a trajectory that
    met a point without a log density.
    """
    return 0.0 if rise <= LIMIT else 1.0
