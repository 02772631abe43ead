"""The exponentials of many numbers at once.

A call of the C library's `exp` takes longer than all else that a field does for a latent. This loop has no
call, so that the compiler makes it a loop over vectors: x = k log 2 + r with a whole number k and
|r| <= log 2 / 2, and e^x = 2^k e^r with the series of e^r. The result is right to about one unit in the last
place.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..jit import kernel

_FARTHEST = 700.0  # beyond this the result is that for it
_LOG2_E = 1.0 / math.log(2.0)
_LOG2_HIGH = 6.93147180369123816490e-01  # log 2 in two parts; k times the first one is exact
_LOG2_LOW = 1.90821492927058770002e-10
_ROUNDING = (
    6755399441055744.0  # 3 * 2^51: after its addition the last bits of a number are the whole number k
)
_BIAS, _EXPONENT = 1023, 52  # of the 64-bit format: its exponent's offset and place
# 1 / n! for n from 2 to 13
_C2, _C3, _C4, _C5, _C6, _C7 = (1.0 / math.factorial(n) for n in range(2, 8))
_C8, _C9, _C10, _C11, _C12, _C13 = (1.0 / math.factorial(n) for n in range(8, 14))


@kernel(ordered=True)
def replace_by_exponentials(x: Any) -> None:
    """Write e^x to where the numbers x (n,) are."""
    n = x.size
    shifted = np.empty(n)
    bits = shifted.view(np.int64)
    for j in range(n):
        here = min(max(x[j], -_FARTHEST), _FARTHEST)
        shifted[j] = here * _LOG2_E + _ROUNDING
        k = shifted[j] - _ROUNDING
        r = here - k * _LOG2_HIGH
        r = r - k * _LOG2_LOW
        p = _C12 + r * _C13
        p = _C11 + r * p
        p = _C10 + r * p
        p = _C9 + r * p
        p = _C8 + r * p
        p = _C7 + r * p
        p = _C6 + r * p
        p = _C5 + r * p
        p = _C4 + r * p
        p = _C3 + r * p
        p = _C2 + r * p
        p = 1.0 + r * p
        x[j] = 1.0 + r * p
    for j in range(n):
        bits[j] = (bits[j] + _BIAS) << _EXPONENT
    for j in range(n):
        x[j] *= shifted[j]
