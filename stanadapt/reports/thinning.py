"""Results that are larger than memory: reports read some of their draws, evenly spread."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from ..result.container import attributes, container, datasets

if TYPE_CHECKING:
    from ..result.container import InferenceData

MOST_NUMBERS = 2**26  # numbers of the posterior that a report reads: half a GiB


class Thinned(NamedTuple):
    """A result that fits in memory."""

    idata: InferenceData
    step: int  # it has every step-th draw


def thin(idata: InferenceData) -> Thinned:
    """Return the result itself or, if its posterior is large, every n-th draw of it.

    Of a store it reads these draws only.
    """
    groups = datasets(idata)
    posterior = groups.get("posterior")
    size = 0 if posterior is None else sum(each.size for each in posterior.data_vars.values())
    step = math.ceil(size / MOST_NUMBERS)
    if step <= 1:
        return Thinned(idata, 1)
    thinned = {
        name: group.isel(draw=slice(None, None, step)) if "draw" in group.sizes else group
        for name, group in groups.items()
    }
    return Thinned(container(thinned, attributes(idata)), step)
