"""The loop that all samplers share.

`kernel_from` puts a step in the place of the name `step`, which mypy and ruff cannot see: that is
what `type: ignore` and `noqa` are for.
"""

from __future__ import annotations

from typing import Any

from ..numerics.kernel_templates import kernel_from
from ..trace import record


def make_sweep(step: Any) -> Any:
    """The kernel `sweep(target, settings, state, rng, adapting, trace)` of a sampler's `step`.

    It runs one iteration for every row of `trace` and returns the state after the last. The step is copied
    into it: nothing else calls the step, and to hand over all arguments takes time in every iteration.
    """
    step.copied = True
    return kernel_from(_sweep, "sweep", step, step=step)


def _sweep(target: Any, settings: Any, state: Any, rng: Any, adapting: Any, trace: Any) -> Any:
    """Run one iteration for every row of `trace`."""
    for i in range(trace.logp.size):
        state, info = step(target, settings, state, rng, adapting)  # type: ignore[name-defined] # noqa: F821
        record(trace, i, state.x, state.logp, info)
    return state


def make_policy_sweep(step: Any, state: type[Any]) -> tuple[Any, Any]:
    """The `sweep` of a method with a policy, and the kernel that it calls.

    The `step` takes and returns all fields of `state` but the last one, the policy. That has thirty arrays,
    which change in place: without them there is less to hand over in every iteration, and to compile. So the
    step is not copied, and is optimised once.
    """
    scans = kernel_from(_scan, "scans", step, step=step)

    def sweep(target: Any, settings: Any, before: Any, rng: Any, adapting: bool, trace: Any) -> Any:
        """Run one iteration for every row of `trace`."""
        *moving, policy = before
        return state(*scans(target, settings, tuple(moving), policy, rng, adapting, trace), policy)

    return sweep, scans


def _scan(target: Any, settings: Any, moving: Any, policy: Any, rng: Any, adapting: Any, trace: Any) -> Any:
    """Run one iteration for every row of `trace`."""
    for i in range(trace.logp.size):
        moving, info = step(target, settings, moving, policy, rng, adapting)  # type: ignore[name-defined] # noqa: F821
        record(trace, i, moving[0], moving[1], info)
    return moving
