"""Whether an earlier result is one to begin with."""

from __future__ import annotations

from typing import Any

from ..errors import warn
from ..result.learned import open_result, read_warm
from ..run.preparation.warm_start import Warm
from .findings import diagnose


def begin_from(given: Any) -> Warm:
    """What an earlier result has learnt; one line of warning where there is something to say against it.

    Raises
    ------
    ArgumentError
        Nothing can be taken from it, see `read_warm`.
    """
    result = open_result(given)
    warm = read_warm(result)
    kinds = [finding.kind for finding in diagnose(result, list(warm.draws) or None)]
    if kinds:
        warn(
            f"warm: the earlier run has findings ({', '.join(dict.fromkeys(kinds))}; stanadapt.diagnose has "
            "them in words): what its chains have learnt, and where they start from, may be poor"
        )
    return warm
