"""Names for `Any` that tell readers what an argument of compiled code is.

numba infers the types of a kernel from the arguments of a call, and does not read annotations. So these
names are for readers: they tell a vector from a matrix, and an integer from a real number. All of them are
`Any`, because a type checker cannot follow what numba does with them. Where one class fits, a signature names
the class.
"""

from __future__ import annotations

from typing import Any

Vector = Any  # one-dimensional array, (d,) where nothing else is said: a point, a score, a momentum
Matrix = Any  # two-dimensional array: (d, d), or rows (n, d)
Real = Any  # floating-point number: a log density, a step size, a probability
Integer = Any  # integer: how many there are of something, an index, a code
Flag = Any  # True or False
Target = Any  # log density of a model, a `NativeTarget` (target.py)
Generator = Any  # random numbers, a `numpy.random.Generator`
ChainState = Any  # what a chain carries between iterations: the `State` of a method in samplers/
