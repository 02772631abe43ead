"""The energy of Hamiltonian trajectories, and what its error says of the integrator."""

from __future__ import annotations

from typing import Any

from ..jit import kernel

# Rise of the energy over a trajectory beyond which the integrator is said to have failed: Stan's limit, see
# Betancourt (2017), A conceptual introduction to Hamiltonian Monte Carlo, Section 6.2.
LIMIT = 1_000.0


@kernel
def diverges(rise: Any) -> Any:
    """1.0 where a trajectory along which the energy rose by `rise` has diverged, else 0.0.

    It has where the energy at its end is beyond the limit or no number, or where it has met a point without a
    log density, for which `rise` is infinity.
    """
    return 0.0 if rise <= LIMIT else 1.0
