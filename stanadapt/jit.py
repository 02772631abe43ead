"""The one file that compiles with numba.

numba's disk cache notices an edit only in the file that holds the cached function. A kernel that calls a
function of another file would keep the old version of that function. So the name of the cache folder is a
hash of all files that hold kernels, and of all files that they import. An edit of any of them gives a new
folder. Without edits a kernel is compiled once per machine.

numba copies the machine code of a function into each function that calls it, and optimises every copy again.
It also gives each function a wrapper that Python calls, though kernels call most of our kernels. Both
together took half of the time before a first draw. So here a kernel is compiled once, without a wrapper,
and other kernels call it by its address; Python calls a function of one line that calls it. Copied are only
small kernels that run in every iteration (`counted=False`), and the step of a sampler into its loop.
Kernels that few runs come to are compiled at the first call (`late`), while their callers already run.

numba has no types, so mypy cannot check classes that derive from numba's, nor functions that it or ctypes
decorates: that is what each `type: ignore` here is for.

Kernels release the GIL, so that chains run in threads. `reassoc` lets the compiler vectorise sums, and
`contract` lets it fuse a product and a sum. NaN and infinity keep their meaning.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import ctypes
import functools
import hashlib
import inspect
import os
import pickle
import re
import shutil
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, overload

import numba
import numba.extending
import numba.np.random.generator_core  # says how generators lie in memory, which stubs need
import numpy as np
from llvmlite import binding as llvm
from llvmlite import ir as llvm_ir
from numba.core import caching, compiler, ir
from numba.core.ccallback import CFunc
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import register_pass
from numba.core.funcdesc import FunctionDescriptor
from numba.core.lowering import Lower
from numba.core.registry import CPUDispatcher
from numba.core.runtime import rtsys
from numba.core.serialize import dumps
from numba.core.typed_passes import NativeLowering

from . import cache
from .direct_call import DirectCall, KernelError, direct_call, is_direct, lay_flat
from .errors import StanAdaptWarning
from .late_modules import put_off
from .lean_compiler import Library, lean

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

# SciPy copies all names of NumPy, and so imports this compiler of Fortran: a tenth of a second.
put_off(np, "f2py")

_PACKAGE = Path(__file__).parent
_KEEP_DAYS = 30
_MANY_TUPLES = 2_000  # direct calls with tuples as results, each of which takes 0.1 ms more than a wrapper
_LONGEST_WAIT, _PAUSE = 60.0, 0.02  # seconds, for a kernel that another process compiles
_OPTIONS = {
    "nopython": True,
    "nogil": True,
    "error_model": "numpy",
    "boundscheck": None,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
_REORDERED = {"reassoc", "contract"}
# A text that only looks like one does no harm. To parse all sources would take half a second.
_RELATIVE_IMPORT = re.compile(r"^ *from (\.+)([\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)
_IMPORT_OF_JIT = re.compile(r"^from \.+jit import .*\b(kernel|callback)\b", re.MULTILINE)


def processor() -> str:
    """The type of the processor that kernels are compiled for; the last bits of draws may depend on it."""
    import llvmlite.binding

    return str(llvmlite.binding.get_host_cpu_name())


@functools.cache
def cache_folder() -> Path:
    """The folder for kernels that were compiled from exactly this version of the sources.

    Raises
    ------
    OSError
        No folder can be used, not even a temporary one.
    """
    stamp = cache.cache_folder("stamps") / _stamp()
    try:
        digest = stamp.read_text("ascii")
    except OSError:
        digest = _digest()
        with contextlib.suppress(OSError):  # without the file the next process reads the sources again
            _write_whole(stamp, digest.encode())
    folder = cache.cache_folder("kernels", digest)
    with contextlib.suppress(OSError):
        for used in (folder, stamp):
            os.utime(used)
            _prune(used)
    return folder


def _stamp() -> str:
    """A hash of the places, sizes and times of the package's files, which changes if any of them is written.

    To read and parse the sources takes half a second in every process; this takes some milliseconds.
    """
    found = hashlib.sha256(f"{numba.__version__} {sys.version} {_PACKAGE}".encode())
    for path in sorted(_PACKAGE.rglob("*.py")):
        about = path.stat()
        found.update(
            f"{path} {about.st_size} {about.st_mtime_ns} {about.st_ctime_ns} {about.st_ino}".encode()
        )
    return found.hexdigest()[:32]


def _digest() -> str:
    """A hash of all sources that compiled code depends on."""
    found = hashlib.sha256(f"{numba.__version__} {sys.version}".encode())
    for source in sorted(_kernel_sources()):
        found.update(source.relative_to(_PACKAGE).as_posix().encode())
        found.update(source.read_bytes())
    return found.hexdigest()[:16]


def _write_whole(path: Path, content: bytes) -> None:
    """Write a file that other processes see whole or not at all."""
    part = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        part.write_bytes(content)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _kernel_sources() -> set[Path]:
    """The files of the package that hold kernels, and all files of the package that these import."""
    waiting = [path for path in _PACKAGE.rglob("*.py") if _IMPORT_OF_JIT.search(path.read_text("utf-8"))]
    found = {Path(__file__)}
    front = _PACKAGE / "__init__.py"  # it imports everything and holds no kernel
    while waiting:
        path = waiting.pop()
        if path in found or path == front:
            continue
        found.add(path)
        for dots, module, names in _RELATIVE_IMPORT.findall(path.read_text("utf-8")):
            base = path.parents[len(dots) - 1].joinpath(*module.split("."))
            places = [base, *(base / name for name in re.findall(r"\w+", names))]
            files = [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")]
            waiting += [file for file in files if file.is_file()]
    return found


def _prune(current: Path) -> None:
    """Remove what stands beside `current`, of other versions, and what no process has used for a month."""
    oldest = time.time() - _KEEP_DAYS * 86_400
    for path in current.parent.iterdir():
        if path != current and path.stat().st_mtime < oldest:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()


@overload
def kernel(function: Callable[..., Any]) -> Any: ...
@overload
def kernel(
    *, ordered: bool = False, counted: bool = True, late: bool = False
) -> Callable[[Callable[..., Any]], Any]: ...
def kernel(
    function: Callable[..., Any] | None = None,
    *,
    ordered: bool = False,
    counted: bool = True,
    late: bool = False,
) -> Any:
    """Compile a function to machine code at its first call. It runs without the GIL and is cached on disk.

    It is a decorator, `@kernel` or `@kernel(ordered=True)`.

    Parameters
    ----------
    function
        What is compiled.
    ordered
        Whether sums keep the order in which they are written. A kernel without `counted` is copied into the
        kernels that call it, and the compiler optimises each copy by itself. If it may reorder sums, two
        copies can differ in the last digit.

        Every kernel may fuse a product with a sum. In a b + c d the compiler can fuse either product, and the
        last digits differ. So add products one at a time, to a value that is no product itself:
        (e + a b) + c d.
    counted
        Whether it counts references to arrays, by atomic instructions. It does not count its arguments, since
        the caller holds them meanwhile. But it counts each array that it makes, takes from a tuple or gives
        another name. A kernel that does not count at all may neither make an array, nor take one that another
        kernel returns, nor return one; NumPy's views of rows are fine.

        A kernel that does not count is small and runs in every iteration, so it is copied into the kernels
        that call it. All others are compiled once and called, unless their `copied` is set.
    late
        Whether the kernel is compiled, or loaded, only when it is called for the first time, and not with the
        kernels that call it. That is for what few runs come to. Callers must know the type of the result
        before, so the annotation of the result says it: it is one of `_RESULTS`.
    """
    if function is None:
        return functools.partial(kernel, ordered=ordered, counted=counted, late=late)
    options = {**_OPTIONS, "_nrt": counted, "fastmath": False if ordered else _REORDERED}
    made = CompiledKernel(function, targetoptions=options, pipeline_class=_Compiler)
    made.copied = not counted and not late
    made = _cached(made, function, shared=True)
    if late:
        made = LateKernel(made, options)
    _kernels[_place(function)] = made
    return made


class _Called(NamedTuple):
    """A kernel for one tuple of argument types, by which a process finds the machine code of a symbol."""

    place: tuple[str, int, str]
    types: tuple[Any, ...]


_kernels: dict[tuple[str, int, str], CompiledKernel] = {}  # by their places
_symbols: dict[str, _Called] = {}


def _place(function: Callable[..., Any]) -> tuple[str, int, str]:
    """Where a function stands, its file, line and name: two modules of one name may be loaded in turn."""
    return _origin(function.__code__.co_filename)[0], function.__code__.co_firstlineno, function.__qualname__


class _Lower(Lower):  # type: ignore[misc]
    """numba's generator of machine code, which here counts no references to arguments.

    numba counts each array among the arguments, in a tuple or alone, when a function begins, and counts it
    back when the function has used it last. It counts it again when a part of a tuple gets a name. The caller
    holds all arguments until the function returns, so that all of this can be left out. A sampler's step has
    about ten arrays, and the state of a policy has thirty; counting them took a tenth of an iteration on a
    small model, and a tenth of the time to compile it.
    """

    def pre_lower(self) -> None:
        """See numba."""
        super().pre_lower()
        assigned = [line for block in self.blocks.values() for line in block.find_insts(ir.Assign)]
        times = collections.Counter(line.target.name for line in assigned)
        once = [line for line in assigned if times[line.target.name] == 1]  # others get further values
        self._held = {line.target.name for line in once if isinstance(line.value, ir.Arg)}
        self._parts: dict[str, tuple[str, int | None]] = {}  # held by what, and at which place of a tuple
        n = -1
        while n < len(self._held):
            n = len(self._held)
            for line in once:
                part = self._part(line.target.name, line.value)
                if part is not None and part[0] in self._held:
                    self._held.add(line.target.name)
                    self._parts[line.target.name] = part
        self._counts = True

    def _part(self, name: str, value: Any) -> tuple[str, int | None] | None:
        """The variable whose value, or a part of it, `name` is another name for; and which part."""
        if isinstance(value, ir.Var):
            return (value.name, None) if self.typeof(value.name) == self.typeof(name) else None
        if not isinstance(value, ir.Expr) or value.op not in ("exhaust_iter", "static_getitem", "getattr"):
            return None
        whole = self.typeof(value.value.name)
        if not isinstance(whole, numba.types.BaseTuple):
            return None
        place: int | None = None
        if value.op == "static_getitem":
            if not isinstance(value.index, int) or not 0 <= value.index < len(whole):
                return None
            place = value.index
        elif value.op == "getattr":
            if not isinstance(whole, numba.types.BaseNamedTuple) or value.attr not in whole.fields:
                return None
            place = whole.fields.index(value.attr)
        kind = whole if place is None else whole[place]
        return (value.value.name, place) if kind == self.typeof(name) else None

    def lower_assign(self, ty: Any, inst: Any) -> Any:
        """See numba."""
        if inst.target.name in self._parts:
            whole, place = self._parts[inst.target.name]
            value = self.loadvar(whole)
            return value if place is None else self.builder.extract_value(value, place)
        with self._counting(inst.target.name):
            return super().lower_assign(ty, inst)

    def storevar(self, value: Any, name: str, argidx: Any = None) -> None:
        """See numba: the value that the variable had is given up."""
        with self._counting(name):
            super().storevar(value, name, argidx)

    def delvar(self, name: str) -> None:
        """See numba: nothing uses the variable from here on."""
        with self._counting(name):
            super().delvar(name)

    @contextlib.contextmanager
    def _counting(self, name: str) -> Iterator[None]:
        """Count references to the value of the variable `name`, unless the caller holds it."""
        self._counts = name not in self._held
        yield
        self._counts = True

    def incref(self, typ: Any, val: Any) -> None:
        """See numba."""
        if self._counts:
            super().incref(typ, val)

    def decref(self, typ: Any, val: Any) -> None:
        """See numba."""
        if self._counts:
            super().decref(typ, val)


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(NativeLowering):  # type: ignore[misc]
    _name = "stanadapt_lowering"

    @property
    def lowering_class(self) -> type[_Lower]:
        return _Lower

    def run_pass(self, state: Any) -> bool:
        """See numba."""
        _make_library(state, _open_kernels[-1].copied, False)
        return bool(super().run_pass(state))


def _make_library(state: Any, is_copied: bool, is_wrapper: bool) -> None:
    """Make what the machine code of a function goes to."""
    state.library = Library(state.targetctx.codegen(), state.func_id.func_qualname)
    state.library.is_copied, state.library.is_wrapper = is_copied, is_wrapper
    state.library.enable_object_caching()


@register_pass(mutates_CFG=True, analysis_only=False)
class _EntryLowering(NativeLowering):  # type: ignore[misc]
    _name = "stanadapt_entry_lowering"

    def run_pass(self, state: Any) -> bool:
        """See numba."""
        _make_library(state, False, True)
        return bool(super().run_pass(state))


class _Compiler(compiler.CompilerBase):  # type: ignore[misc]
    """numba's compiler with our `_Lower`."""

    lowering: type[NativeLowering] = _Lowering

    def define_pipelines(self) -> list[Any]:
        """See numba."""
        passes = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [(self.lowering if one is NativeLowering else one, why) for one, why in passes.passes]
        passes.finalize()
        return [passes]


class _EntryCompiler(_Compiler):
    """The compiler of what Python calls, which counts references to arguments."""

    lowering = _EntryLowering


_open_kernels: list[CompiledKernel] = []  # each one is compiled because the one before calls it
_under_way = 0  # kernels that are being compiled or loaded, or wait for it


def is_compiling() -> bool:
    """Whether this process compiles or loads kernels at the moment."""
    return _under_way > 0


class CompiledKernel(CPUDispatcher):  # type: ignore[misc]
    """A function that is compiled at its first call, for the types of its arguments.

    Its machine code has a symbol of its own, whose address this process tells the linker. A kernel that calls
    it names the symbol only. So the two are compiled, optimised and stored apart.

    Attributes
    ----------
    copied
        Whether kernels that call it get a copy of its machine code instead.
    """

    copied: bool
    _needs_entry = False  # whether a call has come that cannot be direct: then the next ones are like it
    _tuples_read = 0  # by direct calls; a wrapper is faster, and after many it is worth its compilation

    @functools.cached_property
    def entry(self) -> Any:
        """The compiled function that Python calls in place of this one: it calls this one."""
        function, code = self.py_func, self.py_func.__code__
        name = f"enter_{function.__name__}"
        names = list(inspect.signature(function).parameters)
        source = f"def {name}({', '.join(names)}):\n    return core({', '.join(names)})\n"
        scope = {"core": self, "__name__": function.__module__}
        exec(compile(source, code.co_filename, "exec"), scope)
        made = scope[name]
        made.__code__ = made.__code__.replace(co_firstlineno=code.co_firstlineno)
        made.__defaults__, made.__doc__ = function.__defaults__, function.__doc__
        options = {"nopython": True, "nogil": True}
        return _cached(_Entry(made, targetoptions=options, pipeline_class=_EntryCompiler), made)

    @functools.cached_property
    def _direct_calls(self) -> dict[tuple[Any, ...], DirectCall | None]:
        """How Python calls this kernel, by what tells the types of arguments; None: through its entry."""
        return {}

    def __call__(self, *args: Any, **kws: Any) -> Any:
        words: list[Any] = []
        key: list[Any] = []
        lent: dict[int, Any] = {}
        if self.copied or kws or self._needs_entry or not lay_flat(args, words, key, lent):
            self._needs_entry = True
            return self.entry(*args, **kws)
        place = tuple(key)
        if place not in self._direct_calls:
            self._direct_calls[place] = self._direct(tuple(map(numba.typeof, args)), words)
        call = self._direct_calls[place]
        try:
            if call is not None:
                self._tuples_read += isinstance(call.result, numba.types.BaseTuple)
                self._needs_entry = self._tuples_read >= _MANY_TUPLES
                return call(words, lent)
        except KernelError:  # the entry raises the exception
            pass
        self._needs_entry = True
        return self.entry(*args)

    def _direct(self, kinds: tuple[Any, ...], words: list[Any]) -> DirectCall | None:
        if len(kinds) < len(inspect.signature(self.py_func).parameters):
            return None
        self.compile(kinds)
        compiled = self.overloads[kinds]
        result = compiled.signature.return_type
        form = self.targetctx.call_conv.get_function_type(result, kinds)
        if not is_direct(result, kinds) or len(form.args) != len(words) + 2:
            return None
        name = compiled.fndesc.llvm_func_name
        return direct_call(compiled.library.get_pointer_to_function(name), result, words)

    def prepare(self, kinds: tuple[Any, ...]) -> Any:
        """Compile or load what a call from Python needs, for these types. Returns the type of the result."""
        if self.copied:
            self.entry.compile(kinds)
            return self.entry.overloads[kinds].signature.return_type
        self.compile(kinds)
        result = self.overloads[kinds].signature.return_type
        if not is_direct(result, kinds):
            self.entry.compile(kinds)
        return result

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """See numba. A literal such as 0 has a type of its own there, and would have all compiled again."""
        plain = tuple(numba.types.unliteral(kind) for kind in args)
        return super().get_call_template(plain, {name: numba.types.unliteral(kws[name]) for name in kws})

    def compile(self, sig: Any) -> Any:
        """See numba. Where another process is compiling this kernel, this one waits and loads the result."""
        global _under_way
        _under_way += 1  # a number that is wrong for a moment would do no harm
        try:
            with lean(self.targetctx.codegen()):
                _open_kernels.append(self)
                try:
                    return super().compile(sig)
                finally:
                    _open_kernels.pop()
        finally:
            _under_way -= 1
            if isinstance(self._cache, _Cache):
                self._cache.end_turn()

    def add_overload(self, cres: Any) -> None:
        """See numba: `cres` is machine code that has just been compiled or loaded."""
        super().add_overload(cres)
        if self.copied:
            return
        place, sig = _place(self.py_func), cres.signature
        text = f"{place}{sig.args}{sig.return_type}"
        symbol = f"stanadapt.{self.py_func.__name__}.{hashlib.sha256(text.encode()).hexdigest()[:24]}"
        llvm.add_symbol(symbol, cres.library.get_pointer_to_function(cres.fndesc.llvm_func_name))
        _symbols[symbol] = _Called(place, tuple(sig.args))
        description = copy.copy(cres.fndesc)
        description.mangled_name = symbol
        self.targetctx.remove_user_function(cres.entry_point)  # which would link the machine code
        self.targetctx.insert_user_function(cres.entry_point, description, [])


class _Entry(CPUDispatcher):  # type: ignore[misc]
    """What Python calls in place of a kernel."""

    def compile(self, sig: Any) -> Any:
        """See numba."""
        with lean(self.targetctx.codegen()):
            return super().compile(sig)


class LateKernel(CompiledKernel):
    """A kernel that is compiled or loaded when it is called for the first time.

    What its callers call in its place is a stub: it jumps to the machine code, if it has the address, and
    asks Python for the address otherwise. It leaves all arguments where they are, so that the jump takes
    about a nanosecond.

    Attributes
    ----------
    core
        The kernel itself.
    result
        numba's type of what it returns.
    """

    core: CompiledKernel

    def __init__(self, core: CompiledKernel, options: dict[str, Any]) -> None:
        super().__init__(core.py_func, targetoptions=options)
        self.core, self.copied = core, False
        self.result = _RESULTS[core.py_func.__annotations__["return"]]

    def __call__(self, *args: Any, **kws: Any) -> Any:
        return self.core(*args, **kws)

    def prepare(self, kinds: tuple[Any, ...]) -> Any:
        """See `CompiledKernel`."""
        return self.core.prepare(kinds)

    @global_compiler_lock  # type: ignore[untyped-decorator]
    def compile(self, sig: Any) -> Any:
        """Make the stub for these types of arguments."""
        args, _ = numba.core.sigutils.normalize_signature(sig)
        if args not in self.overloads:
            text = f"{_place(self.py_func)}{args}{self.result}"
            symbol = (
                f"stanadapt.late.{self.py_func.__name__}.{hashlib.sha256(text.encode()).hexdigest()[:24]}"
            )
            stub = _Stub(self.core, args, self.result, symbol)
            llvm.add_symbol(symbol, stub.address)
            _symbols[symbol] = _Called(_place(self.py_func), args)
            self.overloads[args] = stub
            self.targetctx.insert_user_function(stub.entry_point, stub.fndesc, [])
        return self.overloads[args].entry_point


_RESULTS = {
    "Real": numba.types.float64,
    "Integer": numba.types.int64,
    "Flag": numba.types.boolean,
    "None": numba.types.none,
    "tuple[Real, Integer]": numba.types.Tuple((numba.types.float64, numba.types.int64)),
}


class _Stub:
    """The stub of a late kernel for one tuple of argument types; numba takes it for a compiled function."""

    objectmode = False

    def __init__(self, core: CompiledKernel, args: tuple[Any, ...], result: Any, symbol: str) -> None:
        self.core, self.args, self.symbol = core, args, symbol
        self.signature, self.entry_point = result(*args), object()
        names = list(inspect.signature(core.py_func).parameters)
        about = (True, core.py_func.__module__, core.py_func.__qualname__, symbol, "")
        self.fndesc = FunctionDescriptor(*about, None, result, None, names, None, argtypes=args)
        self.fndesc.mangled_name = symbol
        self.place = ctypes.c_int64(0)  # of the machine code
        _stubs.append(self)
        self.address = self._generate(len(_stubs) - 1)

    def _generate(self, number: int) -> int:
        """The address of the stub's own machine code."""
        context = self.core.targetctx
        library = Library(context.codegen(), self.symbol)
        library.is_copied = False
        module = library.create_ir_module(self.symbol)
        kind = context.call_conv.get_function_type(self.signature.return_type, self.args)
        function, word = llvm_ir.Function(module, kind, self.symbol), llvm_ir.IntType(64)
        builder = llvm_ir.IRBuilder(function.append_basic_block())
        place = builder.inttoptr(word(ctypes.addressof(self.place)), word.as_pointer())
        found = builder.alloca(word)
        builder.store(builder.load_atomic(place, "acquire", 8), found)
        with builder.if_then(builder.icmp_signed("==", builder.load(found), word(0)), likely=False):
            ask = builder.inttoptr(
                word(ctypes.cast(_find_code, ctypes.c_void_p).value),
                llvm_ir.FunctionType(word, [word]).as_pointer(),
            )
            builder.store(builder.call(ask, [word(number)]), found)
            with builder.if_then(builder.icmp_signed("==", builder.load(found), word(0)), likely=False):
                builder.ret(kind.return_type(-1))  # numba's code for a Python exception
        code = builder.inttoptr(builder.load(found), kind.as_pointer())
        builder.ret(builder.call(code, function.args, tail="musttail"))
        library.add_ir_module(module)
        library.finalize()
        return int(library.get_pointer_to_function(self.symbol))

    def find(self) -> int:
        """The address of the kernel, which is compiled or loaded now."""
        self.core.compile(self.args)
        compiled = self.core.overloads[self.args]
        name = compiled.fndesc.llvm_func_name
        if compiled.signature.return_type != self.signature.return_type:
            raise TypeError(f"{name} returns {compiled.signature.return_type}, not what its annotation says")
        self.place.value = compiled.library.get_pointer_to_function(name)
        return self.place.value


_stubs: list[_Stub] = []


@ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)  # type: ignore[untyped-decorator]
def _find_code(number: int) -> int:
    """What a stub calls, in the thread of the kernel that calls it. Zero ends that kernel by an error."""
    try:
        return _stubs[number].find()
    except BaseException:
        traceback.print_exc()
        return 0


def intrinsic(definition: Callable[..., Any]) -> Any:
    """A function for kernels to call; `definition` generates its machine code."""
    return numba.extending.intrinsic(definition)


def callback(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function to a C callback of the given numba signature, cached on disk."""

    def decorate(function: Callable[..., Any]) -> Any:
        compiled = _cached(_callback(function, signature), function)
        compiled.compile()
        return compiled

    return decorate


def compile_here(function: Callable[..., Any], signature: Any = None) -> Any:
    """Compile a function that calls code compiled in this process, and so cannot be kept on disk.

    With a numba signature the result is a C callback, else a function that runs without the GIL. No sums are
    reordered.
    """
    if signature is None:
        return numba.njit(nogil=True)(function)
    compiled = _callback(function, signature)
    compiled.compile()
    return compiled


def _callback(function: Callable[..., Any], signature: Any) -> Any:
    sig = numba.core.sigutils.normalize_signature(signature)
    return CFunc(function, sig, locals={}, options={"nopython": True})


def _cached(compiled: Any, function: Callable[..., Any], *, shared: bool = False) -> Any:
    """`compiled` with our own cache, which replaces the one of numba's option `cache=True`."""
    compiled._cache = _Cache(function, shared)
    return compiled


@functools.cache
def _origin(file: str) -> tuple[str, ...]:
    """What tells a source file in the cache: a file of the package by its place there, so that the cache
    holds no paths; another one by its path and what it holds.
    """
    path = Path(file)
    if path.is_relative_to(_PACKAGE):
        return (path.relative_to(_PACKAGE).as_posix(),)
    try:
        return file, hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:  # it was read from an archive, or typed in
        return (file,)


class _Cache(caching._Cache):  # type: ignore[misc]
    """The machine code of a function on the disk: a file for each tuple of argument types.

    The name of a file is a digest of all that its machine code depends on beside the sources, which name the
    folder. It ends in a digest of what it holds, because damaged code would crash the process. A fault in
    the cache never ends a run: a file that cannot be read is compiled and written again, and if it cannot be
    written, each process compiles.
    """

    def __init__(self, function: Callable[..., Any], shared: bool) -> None:
        self._function, self._shared = function, shared
        self._turn: Any = None  # the open lock file while this process compiles the function

    @property
    def cache_path(self) -> str:
        """See numba."""
        try:
            return str(_files())
        except OSError:
            return ""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Machine code from the disk; None if there is none, and this process is to compile it."""
        try:
            path = self._path(sig, target_context.codegen())
        except OSError as error:
            _tell_once(error)
            return None
        found = _load(path, sig, target_context)
        if found is None and self._shared and self._turn is None:
            self._turn = _take_turn(path.with_suffix(".turn"))
            found = _load(path, sig, target_context)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write machine code; other processes see the file whole or not at all."""
        try:
            if data.library.has_dynamic_globals:  # addresses, which die with the process
                return
            functions = data.library._final_module.functions
            called = [function.name for function in functions if function.is_declaration]
            parts = data._replace(type_annotation="")._reduce()  # a text with all types, which nobody reads
            kernels = [_symbols[name] for name in called if name in _symbols]
            others = [name for name in called if name not in _symbols and not name.startswith("llvm.")]
            content = dumps((kernels, others, parts))
            _write_whole(self._path(sig, data.codegen), content + hashlib.sha256(content).digest())
        except Exception as error:  # for example, the disk is full
            _tell_once(error)

    def end_turn(self) -> None:
        """Let other processes compile the function, or load what this one has compiled."""
        if self._turn is not None:
            self._turn.close()
            self._turn = None

    def _path(self, sig: Any, codegen: Any) -> Path:
        code = self._function.__code__
        cells = [cell.cell_contents for cell in self._function.__closure__ or ()]
        about = (*_origin(code.co_filename), code.co_firstlineno, sig, codegen.magic_tuple())
        found = hashlib.sha256("\n".join(map(str, about)).encode())
        found.update(code.co_code + (dumps(cells) if cells else b""))
        name = re.sub(r"[^\w.]", "", f"{Path(code.co_filename).stem}.{self._function.__qualname__}")
        return _files() / f"{name}-{found.hexdigest()[:32]}.code"

    def enable(self) -> None:
        """See numba."""

    def disable(self) -> None:
        """See numba."""

    def flush(self) -> None:
        """See numba."""


@functools.cache
def _files() -> Path:
    """The folder of machine code."""
    return cache.private_folder(cache_folder() / "code")


def _load(path: Path, sig: Any, target_context: Any) -> Any:
    """The machine code of a file for types of arguments, or None."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    try:
        if hashlib.sha256(content[:-32]).digest() != content[-32:]:
            raise pickle.UnpicklingError(f"{path} is damaged")
        called, others, parts = pickle.loads(content[:-32])
        # What it calls must be there first, or the linker ends the process.
        for place, types in called:
            if types not in _kernels[place].overloads:
                _kernels[place].compile(types)  # its module is imported, since the caller's module imports it
        # numba would load here all that it compiles with, a hundred modules. Machine code needs its symbols.
        rtsys.initialize(target_context)
        if not all(map(llvm.address_of_symbol, others)):
            target_context.refresh()
        found = compiler.CompileResult._rebuild(target_context, *parts)
        if tuple(found.signature.args) != tuple(numba.core.sigutils.normalize_signature(sig)[0]):
            raise TypeError(f"{path} is for other types")  # whose names are the same
    except Exception:  # a damaged pickle may raise anything
        with contextlib.suppress(OSError):
            path.unlink()
        return None
    return found


def _take_turn(path: Path) -> Any:
    """The open file at `path`, locked; None if it cannot be locked, or if its owner does not get on.

    Kernels that call each other form no circle, so processes that hold a lock while they wait for another one
    do not wait for each other.
    """
    if fcntl is None:
        return None
    try:
        cache.private_folder(path.parent)
        file = path.open("w")
    except OSError:
        return None
    last = time.monotonic() + _LONGEST_WAIT
    while time.monotonic() < last:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE)
        except OSError:  # some network file systems lock nothing
            break
        else:
            return file
    file.close()
    return None


_told: list[str] = []


def _tell_once(error: Exception) -> None:
    """Warn once that kernels are not kept: a warning for each kernel would make a hundred lines."""
    if not _told:
        _told.append(str(error))
        warnings.warn(
            f"compiled code cannot be kept ({error}): the next run compiles it again",
            StanAdaptWarning,
            stacklevel=2,
        )
