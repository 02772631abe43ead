"""The job of a run: what was asked, as all of its chains share it."""

from __future__ import annotations

from typing import Any, NamedTuple


class Job(NamedTuple):
    """What every chain of a run shares."""

    method: str
    settings: Any  # the sampler's Settings, resolved
    warmup: int
    draws: int
    thin: int
    chains: int
    seed: int
    save_warmup: bool
    keep_unconstrained: bool

    @property
    def rows(self) -> int:
        """Draws that each chain keeps."""
        return self.draws // self.thin

    @property
    def warmup_rows(self) -> int:
        """Iterations of warm-up that each chain keeps."""
        return self.warmup // self.thin if self.save_warmup else 0
