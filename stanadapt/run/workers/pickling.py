"""What goes to worker processes, as bytes: users' functions too, which name their files in tracebacks."""

from __future__ import annotations

import io
from collections.abc import Callable
from types import CodeType
from typing import Any


def dump(value: Any) -> bytes:
    """Pickle a value by cloudpickle, which takes lambdas, closures and functions of a session."""
    import cloudpickle  # here, since few runs need it

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types; a pickler asks its class
        """From 3.1.3 on cloudpickle itself leaves out the name of the file that a function comes from."""

        dispatch_table = cloudpickle.Pickler.dispatch_table.new_child({CodeType: _reduce_code})

    file = io.BytesIO()
    Pickler(file).dump(value)
    return file.getvalue()


def _reduce_code(code: CodeType) -> tuple[Callable[..., CodeType], tuple[Any, ...]]:
    import cloudpickle

    make, numbers = cloudpickle.Pickler.dispatch_table[CodeType](code)
    return _code_of, (code.co_filename, make, numbers)


def _code_of(file: str, make: Callable[..., CodeType], numbers: tuple[Any, ...]) -> CodeType:
    return make(*numbers).replace(co_filename=file)
