"""Divisions of integers that no processor carries out: an error message instead of a dead process.

The smallest integer, -2147483648, divided by -1 is one more than the largest. C++ leaves the result
undefined. Processors of the kind x86-64 raise a signal (SIGFPE), which ends Python, and Stan Math does not
look before it divides, neither for `%/%` nor for `%`; on other processors the quotient is -2147483648 again.

So a handler of that signal does here what other processors do: it leaves the dividend as the quotient, with
the remainder zero, and goes on behind the instruction. It records that this happened. The caller of the
program checks the record with `check_division`, or calls the program within `checked_divisions`, before it
uses the returned values. A program that divides nothing, or divides well, costs nothing.

The instruction itself causes the signal, in the thread that runs it, so the handler may be written in
Python. It acts only on a signed division within a library that holds Stan programs. Any other signal goes to
the handler before it or, without one, to the system, which ends the process.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import platform
import signal
import sys
import threading
from collections.abc import Iterator

SMALLEST = -(2**31)

_IS_HANDLED = sys.platform == "linux" and platform.machine() == "x86_64" and sys.maxsize > 2**32
_CODE_BYTES = 15  # of the longest instruction
_REGISTERS = 40  # bytes of a `ucontext_t` before its general registers, eight bytes each
_CODE = 8  # bytes of a `siginfo_t` before the code that says why
_RDX, _RAX, _RIP = 12, 13, 16  # their places among these
_SA_SIGINFO = 4
_LONG_OPERAND = 0x08  # the bit W of a REX prefix: operands of eight bytes
_IDIV = 7  # what the middle bits of the second byte say after the opcode 0xF7


class _Action(ctypes.Structure):
    """The C library's `struct sigaction`."""

    _fields_ = [
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ubyte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    ]


class _Where(ctypes.Structure):
    """The C library's `Dl_info`."""

    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


_failed = threading.local()  # `dividend` of such a division in this thread
_failed_elsewhere = False  # or one that Python did not start, such as those that a library has of its own
_before = _Action()  # the handler of the signal before ours


def watch_divisions() -> None:
    """Have divisions of Stan programs fail in words from now on.

    It is called wherever a program is opened, since others may have taken the signal meanwhile.
    """
    if not _IS_HANDLED:
        return
    present = _Action()
    _C.sigaction(signal.SIGFPE, None, ctypes.byref(present))
    if present.handler != _OURS.handler:
        _C.sigaction(signal.SIGFPE, ctypes.byref(_OURS), ctypes.byref(_before))


@contextlib.contextmanager
def checked_divisions() -> Iterator[None]:
    """A Stan program that is called meanwhile: RuntimeError if one of its divisions has failed.

    So it is where the program has failed for another reason too, which may be a consequence.
    """
    watch_divisions()
    _take_failure()
    try:
        yield
    except RuntimeError as error:
        try:
            check_division()
        except RuntimeError as first:
            raise first from error
        raise
    check_division()


def check_division() -> None:
    """Raise RuntimeError if a division has failed in this thread since this was asked last."""
    has_failed, dividend = _take_failure()
    if not has_failed:
        return
    if dividend in (None, SMALLEST):
        raise RuntimeError(
            f"the Stan program divides the smallest integer, {SMALLEST}, by -1 (with %/%, % or /), and the "
            "quotient is larger than any integer"
        )
    raise RuntimeError(f"the Stan program divides the integer {dividend} by zero")


def _take_failure() -> tuple[bool, int | None]:
    """Whether a division has failed, and what was divided, where it is known; from here on, none has."""
    global _failed_elsewhere
    dividend = getattr(_failed, "dividend", None)
    has_failed = dividend is not None or _failed_elsewhere
    if has_failed:
        _failed.dividend, _failed_elsewhere = None, False
    return has_failed, dividend


def _handle(number: int, information: int, context: int) -> None:
    global _failed_elsewhere
    registers = (ctypes.c_uint64 * 23).from_address(context + _REGISTERS)
    at = registers[_RIP]
    length, is_long = _idiv(ctypes.string_at(at, _CODE_BYTES)) if _is_ours(at) else (0, False)
    is_sent = ctypes.c_int.from_address(information + _CODE).value <= 0  # by a process, and by no instruction
    if is_sent or not length:  # it comes again, to the handler before: the instruction is run again
        _C.sigaction(number, ctypes.byref(_before), None)
        if is_sent:
            getattr(_C, "raise")(number)
        return
    dividend = ctypes.c_int64(registers[_RAX]) if is_long else ctypes.c_int32(registers[_RAX])
    registers[_RAX] &= 2**64 - 1 if is_long else 2**32 - 1
    registers[_RDX] = 0
    registers[_RIP] = at + length
    if threading.get_ident() in {thread.ident for thread in threading.enumerate()}:
        _failed.dividend = dividend.value
    else:
        _failed_elsewhere = True


def _is_ours(at: int) -> bool:
    """Whether the code at an address is a library's that holds Stan programs."""
    where = _Where()
    found = _C.dladdr(ctypes.c_void_p(at), ctypes.byref(where))
    return bool(found and where.file) and _holds_programs(where.file)


@functools.cache
def _holds_programs(library: bytes) -> bool:
    """Whether a library, which is loaded, has BridgeStan's C functions."""
    try:
        return hasattr(ctypes.CDLL(library.decode(errors="surrogateescape")), "bs_model_construct")
    except OSError:
        return False


def _idiv(code: bytes) -> tuple[int, bool]:
    """Length of the signed division that begins here, and whether its operands are long; 0 if none begins."""
    begin = int(0x40 <= code[0] <= 0x4F)  # a REX prefix
    is_long = begin == 1 and bool(code[0] & _LONG_OPERAND)
    if code[begin] != 0xF7 or (code[begin + 1] >> 3) & 7 != _IDIV:
        return 0, False
    mode, base = code[begin + 1] >> 6, code[begin + 1] & 7
    length = begin + 2
    if mode != 3 and base == 4:  # a byte follows that says how an address is made
        length, base = length + 1, code[length] & 7
    is_absolute = mode == 0 and base == 5
    return length + (4 if mode == 2 or is_absolute else int(mode == 1)), is_long


if _IS_HANDLED:
    _C = ctypes.CDLL(None)
    _HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(_handle)
    _OURS = _Action(handler=ctypes.cast(_HANDLER, ctypes.c_void_p).value, flags=_SA_SIGINFO)
