"""Kernels with the code of other kernels.

A kernel that takes another one as an argument, or closes over it, would miss numba's cache in every process,
which costs three seconds each time. So `kernel_from` makes a new function from the code of a template. That
function belongs to the file of its owner, and the other kernel is one of its globals.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from ..jit import kernel


def kernel_from(
    template: Callable[..., Any], name: str, owner: Any, *, counted: bool = True, **names: Any
) -> Any:
    """The kernel `name` with the code of `template`, compiled and cached as a part of the file of `owner`.

    `owner` is a kernel of that file. `names` are globals which the template uses and does not define, or to
    which it is to have another value. `counted` is as `kernel` has it, but it is not copied in any case.
    """
    own = owner.py_func
    code = template.__code__.replace(
        co_filename=own.__code__.co_filename, co_firstlineno=own.__code__.co_firstlineno, co_name=name
    )
    made = types.FunctionType(code, {**template.__globals__, **names, "__name__": own.__module__}, name)
    made.__module__, made.__qualname__, made.__doc__ = own.__module__, name, template.__doc__
    return kernel(made) if counted else kernel(counted=False, copied=False)(made)
