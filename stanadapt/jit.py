"""The one file that compiles with numba; compiler/ has the parts of it.

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

import copy
import ctypes
import functools
import hashlib
import inspect
import traceback
from collections.abc import Callable
from typing import Any, overload

import numba
import numba.extending
import numba.np.random.generator_core  # says how generators lie in memory, which stubs need
import numpy as np
from llvmlite import binding as llvm
from llvmlite import ir as llvm_ir
from numba.core.ccallback import CFunc
from numba.core.cgutils import get_or_insert_function
from numba.core.compiler_lock import global_compiler_lock
from numba.core.funcdesc import FunctionDescriptor
from numba.core.imputils import user_function
from numba.core.registry import CPUDispatcher

from .compiler.direct_call import DirectCall, KernelError, direct_call, is_direct, lay_flat
from .compiler.kernel_compiler import EntryCompiler, KernelCompiler, open_kernels
from .compiler.kernel_files import Called, KernelFiles, kernels, place_of, symbols, text_of_types
from .compiler.lean_compiler import lean
from .late_modules import put_off

# SciPy copies all names of NumPy, and so imports this compiler of Fortran: a tenth of a second.
put_off(np, "f2py")

_PACKAGE = __name__.partition(".")[0]
_MANY_CALLS = 4_000  # direct calls, each of which takes 6 us more than a wrapper, and with tuples up to 50 us
_OPTIONS = {
    "nopython": True,
    "nogil": True,
    "error_model": "numpy",
    "boundscheck": None,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
_REORDERED = {"reassoc", "contract"}


@overload
def kernel(function: Callable[..., Any]) -> Any: ...
@overload
def kernel(
    *,
    ordered: bool = False,
    counted: bool = True,
    copied: bool | None = None,
    seldom: bool = False,
    late: bool = False,
) -> Callable[[Callable[..., Any]], Any]: ...
def kernel(
    function: Callable[..., Any] | None = None,
    *,
    ordered: bool = False,
    counted: bool = True,
    copied: bool | None = None,
    seldom: bool = False,
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

    copied
        Whether it is copied into the kernels that call it; all others are compiled once and called. By
        default those are copied that do not count, since they are small and run in every iteration. One that
        takes many times as long as a call, some nanoseconds for each array among its arguments, need not be.
    seldom
        Whether it runs so seldom that its loops need not be vectorised, which takes long.
    late
        Whether the kernel is compiled, or loaded, only when it is called for the first time, and not with the
        kernels that call it. That is for what few runs come to. Callers must know the type of the result
        before, so the annotation of the result says it: it is one of `_RESULTS`.
    """
    if function is None:
        chosen = {"ordered": ordered, "counted": counted, "copied": copied, "seldom": seldom, "late": late}
        return functools.partial(kernel, **chosen)
    options = {**_OPTIONS, "_nrt": counted, "fastmath": False if ordered else _REORDERED}
    made = CompiledKernel(function, targetoptions=options, pipeline_class=KernelCompiler)
    made.copied = not late and (not counted if copied is None else copied)
    made.seldom = seldom
    made = _with_own_cache(made, function, shared=True)
    if late:
        made = LateKernel(made, options)
    kernels[place_of(function)] = made
    return made


def is_compiling() -> bool:
    """Whether this process compiles a kernel at the moment, or waits for another one that does."""
    return any(kernel.is_missing for kernel in [*open_kernels])


class CompiledKernel(CPUDispatcher):  # type: ignore[misc]
    """A function that is compiled at its first call, for the types of its arguments.

    Its machine code has a symbol of its own, whose address this process tells the linker. A kernel that calls
    it names the symbol only. So the two are compiled, optimised and stored apart.

    Attributes
    ----------
    copied
        Whether kernels that call it get a copy of its machine code instead.
    seldom
        Whether its machine code is to be made quickly.
    """

    copied: bool
    seldom: bool = False
    _needs_entry = False  # whether a call has come that cannot be direct: then the next ones are like it
    _slow_calls = 0  # direct ones that a wrapper makes much faster; after many it is worth its compilation
    _is_small = False  # whether it is the entry of a kernel that is copied

    @functools.cached_property
    def entry(self) -> Any:
        """The compiled function that Python calls in place of this one: it calls this one.

        Where this one is copied it is a kernel too, which Python calls by its address. It has a wrapper
        otherwise.
        """
        function, code = self.py_func, self.py_func.__code__
        name = f"enter_{function.__name__}"
        names = list(inspect.signature(function).parameters)
        source = f"def {name}({', '.join(names)}):\n    return core({', '.join(names)})\n"
        scope = {"core": self, "__name__": function.__module__}
        exec(compile(source, code.co_filename, "exec"), scope)
        made = scope[name]
        made.__code__ = made.__code__.replace(co_firstlineno=code.co_firstlineno)
        made.__defaults__, made.__doc__ = function.__defaults__, function.__doc__
        if self.copied:
            kept = CompiledKernel(made, targetoptions=_OPTIONS, pipeline_class=KernelCompiler)
            kept.copied, kept._is_small = False, True
            return _with_own_cache(kept, made, shared=True)
        options = {"nopython": True, "nogil": True}
        return _with_own_cache(_Entry(made, targetoptions=options, pipeline_class=EntryCompiler), made)

    @functools.cached_property
    def _direct_calls(self) -> dict[tuple[Any, ...], DirectCall | None]:
        """How Python calls this kernel, by what tells the types of arguments; None: through its entry."""
        return {}

    @property
    def is_missing(self) -> bool:
        """Whether the machine code that is asked for at the moment is on no disk."""
        return not isinstance(self._cache, KernelFiles) or self._cache.is_missing

    def __call__(self, *args: Any, **kws: Any) -> Any:
        words: list[Any] = []
        key: list[Any] = []
        lent: dict[int, Any] = {}
        if self.copied:
            return self.entry(*args, **kws)
        if kws or self._needs_entry or not lay_flat(args, words, key, lent):
            self._needs_entry = True
            return self.entry(*args, **kws)
        place = tuple(key)
        try:
            call = self._direct_calls[place]
        except KeyError:
            call = self._direct_calls[place] = self._direct(tuple(map(numba.typeof, args)), words)
        try:
            if call is not None:
                self._slow_calls += self._is_small or isinstance(call.result, numba.types.BaseTuple)
                self._needs_entry = self._slow_calls >= _MANY_CALLS
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
            return self.entry.prepare(kinds)
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
        try:
            with lean(self.targetctx):
                open_kernels.append(self)
                try:
                    return super().compile(sig)
                finally:
                    open_kernels.pop()
        finally:
            if isinstance(self._cache, KernelFiles):
                self._cache.end_turn()

    def add_overload(self, cres: Any) -> None:
        """See numba: `cres` is machine code that has just been compiled or loaded."""
        super().add_overload(cres)
        if self.copied:
            return
        place, sig = place_of(self.py_func), cres.signature
        text = f"{place}{text_of_types((*sig.args, sig.return_type))}"
        symbol = f"stanadapt.{self.py_func.__name__}.{hashlib.sha256(text.encode()).hexdigest()[:24]}"
        llvm.add_symbol(symbol, cres.library.get_pointer_to_function(cres.fndesc.llvm_func_name))
        symbols[symbol] = Called(place, tuple(sig.args))
        description = copy.copy(cres.fndesc)
        description.mangled_name = symbol
        self.targetctx.remove_user_function(cres.entry_point)  # which would link the machine code
        self.targetctx.insert_user_function(cres.entry_point, description, [])


class _Entry(CPUDispatcher):  # type: ignore[misc]
    """What Python calls in place of a kernel."""

    def compile(self, sig: Any) -> Any:
        """See numba."""
        with lean(self.targetctx):
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
            text = f"{place_of(self.py_func)}{text_of_types((*args, self.result))}"
            symbol = (
                f"stanadapt.late.{self.py_func.__name__}.{hashlib.sha256(text.encode()).hexdigest()[:24]}"
            )
            stub = _Stub(self.core, args, self.result, symbol)
            symbols[stub.symbol_of_place] = Called(place_of(self.py_func), args)
            self.overloads[args] = stub
            call = stub.call()
            self.targetctx.insert_func_defn([(call, stub.entry_point, call.signature)])
        return self.overloads[args].entry_point


_RESULTS = {
    "Real": numba.types.float64,
    "Integer": numba.types.int64,
    "Flag": numba.types.boolean,
    "None": numba.types.none,
    "tuple[Real, Integer]": numba.types.Tuple((numba.types.float64, numba.types.int64)),
}


class _Stub:
    """The stub of a late kernel for one tuple of argument types; numba takes it for a compiled function.

    The module of each kernel that calls it has the code of the stub too, so that it is compiled and stored
    with this kernel. What differs from process to process are two addresses, which the code names by symbols:
    of the word that holds the address of the machine code, and of the function that finds it.
    """

    objectmode = False

    def __init__(self, core: CompiledKernel, args: tuple[Any, ...], result: Any, symbol: str) -> None:
        self.core, self.args, self.symbol = core, args, symbol
        self.signature, self.entry_point = result(*args), object()
        names = list(inspect.signature(core.py_func).parameters)
        about = (True, core.py_func.__module__, core.py_func.__qualname__, symbol, "")
        self.fndesc = FunctionDescriptor(*about, None, result, None, names, None, argtypes=args)
        self.fndesc.mangled_name = symbol
        self.place = ctypes.c_int64(0)  # of the machine code
        _stubs[ctypes.addressof(self.place)] = self
        llvm.add_symbol(self.symbol_of_place, ctypes.addressof(self.place))

    @property
    def symbol_of_place(self) -> str:
        return f"{self.symbol}.place"

    def call(self) -> Any:
        """What numba generates a call with: it puts the stub into the module of the caller first."""
        call = user_function(self.fndesc, [])

        @functools.wraps(call)  # numba asks it for the signature
        def call_stub(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            function = context.declare_function(builder.module, self.fndesc)
            if function.is_declaration:
                self._define(function)
            return call(context, builder, signature, values)

        return call_stub

    def _define(self, function: Any) -> None:
        """Generate the stub as this function of a module."""
        function.linkage = "linkonce_odr"  # what is copied into another module may bring the same one
        function.attributes.add("noinline")
        module, word = function.module, llvm_ir.IntType(64)
        place = llvm_ir.GlobalVariable(module, word, self.symbol_of_place)
        place.linkage = "external"
        find = get_or_insert_function(module, llvm_ir.FunctionType(word, [word.as_pointer()]), _FIND)
        builder = llvm_ir.IRBuilder(function.append_basic_block())
        found = builder.alloca(word)
        builder.store(builder.load_atomic(place, "acquire", 8), found)
        with builder.if_then(builder.icmp_signed("==", builder.load(found), word(0)), likely=False):
            builder.store(builder.call(find, [place]), found)
            with builder.if_then(builder.icmp_signed("==", builder.load(found), word(0)), likely=False):
                builder.ret(function.ftype.return_type(-1))  # numba's code for a Python exception
        code = builder.inttoptr(builder.load(found), function.ftype.as_pointer())
        builder.ret(builder.call(code, function.args, tail="musttail"))

    def find(self) -> int:
        """The address of the kernel, which is compiled or loaded now."""
        self.core.compile(self.args)
        compiled = self.core.overloads[self.args]
        name = compiled.fndesc.llvm_func_name
        if compiled.signature.return_type != self.signature.return_type:
            raise TypeError(f"{name} returns {compiled.signature.return_type}, not what its annotation says")
        self.place.value = compiled.library.get_pointer_to_function(name)
        return self.place.value


_stubs: dict[int, _Stub] = {}  # by the addresses of their words


def compile_late_kernels() -> None:
    """Compile or load all late kernels of the package that the kernels in this process may call."""
    ours = f"{_PACKAGE}."
    while left := [
        stub
        for stub in [*_stubs.values()]
        if not stub.place.value and stub.core.py_func.__module__.startswith(ours)
    ]:
        for stub in left:  # late kernels may call others, whose stubs come meanwhile
            stub.find()


@ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)  # type: ignore[untyped-decorator]
def _find_code(place: int) -> int:
    """What a stub calls, in the thread of the kernel that calls it. Zero ends that kernel by an error."""
    try:
        return _stubs[place].find()
    except BaseException:
        traceback.print_exc()
        return 0


_FIND = "stanadapt.find_late_code"  # its symbol
llvm.add_symbol(_FIND, ctypes.cast(_find_code, ctypes.c_void_p).value)


def intrinsic(definition: Callable[..., Any]) -> Any:
    """A function for kernels to call; `definition` generates its machine code."""
    return numba.extending.intrinsic(definition)


def callback(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function to a C callback of the given numba signature, cached on disk."""

    def decorate(function: Callable[..., Any]) -> Any:
        compiled = _with_own_cache(_callback(function, signature), function)
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


def _with_own_cache(compiled: Any, function: Callable[..., Any], *, shared: bool = False) -> Any:
    """`compiled` with our own cache, which replaces the one of numba's option `cache=True`."""
    compiled._cache = KernelFiles(function, shared)
    return compiled
