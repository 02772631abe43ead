"""Reading the text of a Stan program: the data that it declares, and which of them it observes.

Backends know names and sizes of parameters, but not of data. Reading the declarations lets a missing variable
or a wrong shape be named before native code sees it; some native parsers take a transposed matrix, or a
nested list for a flat one, without a word. What cannot be read here is left out, never guessed: a valid data
set must not be refused.
"""

from __future__ import annotations

import ast
import functools
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

# Strings come first, so that `//` inside of one starts no comment; includes last, so that one in a comment is
# none.
TOKEN = re.compile(
    r'(?P<text>"[^"\n]*")|(?P<comment>//[^\n]*|/\*.*?\*/)'
    r'|#include[ \t]+(?P<include>"[^"\n]*"|<[^>\n]*>|\S+)',
    re.DOTALL,
)
_WORD = re.compile(r"\s*([A-Za-z]\w*)\s*")
_NAMES = re.compile(r"\s*[A-Za-z]\w*\s*(,\s*[A-Za-z]\w*\s*)*")
_CLOSING = {"[": "]", "(": ")", "<": ">"}
_DIMENSIONS = {"int": 0, "real": 0, "complex": 0, "vector": 1, "row_vector": 1, "matrix": 2, "simplex": 1}
_DIMENSIONS |= {"unit_vector": 1, "ordered": 1, "positive_ordered": 1, "sum_to_zero_vector": 1}
_DIMENSIONS |= {"cov_matrix": 2, "corr_matrix": 2, "cholesky_factor_cov": 2, "cholesky_factor_corr": 2}
_DIMENSIONS |= {"column_stochastic_matrix": 2, "row_stochastic_matrix": 2, "sum_to_zero_matrix": 2}
_DIMENSIONS |= {"complex_vector": 1, "complex_row_vector": 1, "complex_matrix": 2, "tuple": 0}


class Declaration(NamedTuple):
    """A variable of a block."""

    type: str
    sizes: tuple[str, ...]  # expressions, array sizes first

    @property
    def is_complex(self) -> bool:
        return self.type.startswith("complex")

    def shape(self, known: Mapping[str, Any]) -> tuple[int | None, ...]:
        """The declared shape, None for a size that cannot be worked out from `known` data alone."""
        return tuple(_evaluate(size, known) for size in self.sizes)

    def __str__(self) -> str:
        return f"{self.type}, sizes [{', '.join(self.sizes)}]" if self.sizes else f"a single {self.type}"


def blank(code: str) -> str:
    """The program with blanks for comments, texts and #include directives, all else where it was."""
    return TOKEN.sub(lambda token: re.sub(r"[^\n]", " ", token[0]), code)


def has_includes(code: str) -> bool:
    """Whether a program asks for other files, beside what it says in comments and texts."""
    return any(token["include"] is not None for token in TOKEN.finditer(code))


def without_comments(code: str) -> str:
    """The program with comments and #include directives blanked, and texts emptied."""
    return TOKEN.sub(lambda token: '""' if token["text"] else " ", code)


@functools.lru_cache(maxsize=64)  # of some programs that are opened again and again
def block(code: str, name: str) -> str:
    """The text between the braces of a block, without comments; empty if the program has no such block."""
    text = re.sub(r"transformed\s+", "transformed ", without_comments(code))
    opening = re.search(r"(?<!transformed )\b" + r"\s+".join(name.split()) + r"\s*\{", text)
    if opening is None:
        return ""
    depth = 1
    for end in range(opening.end(), len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return text[opening.end() : end]
    return ""


def declarations(code: str, name: str) -> dict[str, Declaration]:
    """Variables that the block declares, as far as they can be read; not the local ones of its statements."""
    declared: dict[str, Declaration] = {}
    text = block(code, name)
    if name not in ("data", "parameters"):
        text = _without_scopes(text)
    for statement in text.split(";"):
        declared |= _declared_variables(statement)
    return declared


def has_fixed_bounds(code: str) -> bool:
    """Whether no parameter stands in the bounds, the offset or the multiplier of another one.

    So it is if the block of parameters can be read, and has the name of each one once.
    """
    text = block(code, "parameters")
    declared = [_declared_variables(part) for part in text.split(";") if part.strip()]
    words = re.findall(r"[A-Za-z]\w*", text)
    are_apart = all(words.count(name) == 1 for names in declared for name in names)
    return are_apart and all(declared) and not has_includes(code)


def in_order_of_values(code: str, names: Sequence[str]) -> list[str]:
    """The names of unconstrained coordinates in the order in which these are.

    Stan names the entries of an array of vectors or matrices as if its first index ran first, as in b.1.1 and
    b.2.1. But the coordinates of each element follow each other. Names of a program without text, or of
    variables that cannot be read, stay as they are.
    """
    declared = declarations(code, "parameters")
    ordered: list[str] = []
    for variable, group in itertools.groupby(names, key=lambda name: name.partition(".")[0]):
        own, kind = list(group), declared.get(variable)
        is_known = kind is not None and kind.type != "tuple" and not kind.is_complex
        n_array = len(kind.sizes) - _DIMENSIONS[kind.type] if kind and is_known else 0
        ordered += sorted(own, key=functools.partial(_place_of, n_array=n_array)) if n_array else own
    return ordered


def _place_of(name: str, n_array: int) -> tuple[list[int], list[int]]:
    """What sorts the entries of an array with `n_array` dimensions of its own, by their names."""
    indices = [int(index) for index in name.split(".")[1:]]
    return indices[:n_array], indices[n_array:][::-1]


def data_declarations(code: str) -> dict[str, Declaration]:
    """Variables of the data block, as far as they can be read."""
    return declarations(code, "data")


def undeclared_names(code: str, names: Iterable[str]) -> list[str]:
    """The names that the data block does not contain; an empty list where a part of it cannot be read."""
    if any(token["include"] for token in TOKEN.finditer(code)):
        return []
    words = set(re.findall(r"[A-Za-z]\w*", block(code, "data")))
    return [name for name in names if name not in words]


def observed_names(code: str) -> set[str]:
    """Data that stand on the left of a `~`, or first in an lpdf or lpmf, in the model block."""
    model = block(code, "model")
    left = re.findall(r"([A-Za-z]\w*)\s*(?:\[[^\]]*\])?\s*~", model)
    first = re.findall(r"_lu?p[dm]f\s*\(\s*([A-Za-z]\w*)", model)
    return (set(left) | set(first)) & set(data_declarations(code))


def draws_data(code: str) -> str:
    """The function that draws random numbers in `transformed data`, or nothing; its name ends in `_rng`."""
    found = re.search(r"\b([A-Za-z]\w*_rng)\s*\(", block(code, "transformed data"))
    return found[1] if found else ""


def _without_scopes(text: str) -> str:
    """The text outside of braces; a semicolon stands for each pair."""
    kept, depth = [], 0
    for letter in text:
        depth += letter == "{"
        if depth == 0:
            kept.append(letter)
        elif letter == "}":
            depth -= 1
            kept.append(";" if depth == 0 else "")
    return "".join(kept)


def _declared_variables(statement: str) -> dict[str, Declaration]:
    """The variables of one statement; empty unless it is a declaration."""
    word, rest = _next_word(statement)
    sizes: tuple[str, ...] = ()
    if word == "array":
        inside, rest = _split_brackets(rest, "[")
        sizes = _split(inside)
        word, rest = _next_word(rest)
    if word not in _DIMENSIONS:
        return {}
    kind = word
    if kind == "tuple":
        _, rest = _split_brackets(rest, "(")
    _, rest = _split_brackets(rest, "<")
    inside, rest = _split_brackets(rest, "[")
    own = _split(inside)
    if len(own) == 1 and _DIMENSIONS[kind] == 2:
        own *= 2  # square
    if len(own) != _DIMENSIONS[kind]:
        return {}
    names = rest.partition("=")[0]
    if not _NAMES.fullmatch(names):
        return {}
    return {name.strip(): Declaration(kind, sizes + own) for name in names.split(",")}


def _next_word(text: str) -> tuple[str, str]:
    found = _WORD.match(text)
    return (found[1], text[found.end() :]) if found else ("", text)


def _split_brackets(text: str, opening: str) -> tuple[str, str]:
    """What stands in the brackets that `text` begins with, and what follows; nothing if it has none."""
    text = text.lstrip()
    if not text.startswith(opening):
        return "", text
    depth = 0
    for i, letter in enumerate(text):
        if i and depth == 1 and letter == _CLOSING[opening]:
            return text[1:i], text[i + 1 :].lstrip()
        depth += (letter in "[({" or i == 0) - (letter in "])}" and i > 0)
    return "", ""


def _split(text: str) -> tuple[str, ...]:
    """Expressions between commas that stand outside of brackets."""
    parts, depth, begin = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter in "[({") - (letter in "])}")
        if letter == "," and depth == 0:
            parts.append(text[begin:i].strip())
            begin = i + 1
    return (*parts, text[begin:].strip()) if text.strip() else ()


def _evaluate(expression: str, known: Mapping[str, Any]) -> int | None:
    """Value of an integer expression in known data; None where it holds anything else."""
    try:
        tree = ast.parse(f"({expression.replace('%/%', '//')})", mode="eval")
        value = _value(tree.body, known)
    except (SyntaxError, ArithmeticError, LookupError, TypeError, ValueError, RecursionError, MemoryError):
        return None
    return value if isinstance(value, int) else None


def _value(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """An integer or an array of them; on anything else, one of the exceptions that `_evaluate` expects."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return _integers(known[node.id])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, known)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_scalar(node.left, known), _scalar(node.right, known))
    if isinstance(node, ast.Subscript):
        index = [_scalar(part, known) for part in _elements(node.slice)]
        if min(index) < 1:
            raise IndexError(index)
        return _integers(_value(node.value, known)[tuple(i - 1 for i in index)])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        return _call(node.func.id, node.args, known)
    raise ValueError(type(node).__name__)


def _call(function: str, arguments: list[ast.expr], known: Mapping[str, Any]) -> int:
    if len(arguments) == 1 and isinstance(arguments[0], ast.Name):
        shape = np.shape(known[arguments[0].id])  # of any type, so not through _value
        if (function, len(shape)) in _SIZES:
            return int(_SIZES[function, len(shape)](shape))
    values = [_value(argument, known) for argument in arguments]
    if function in ("min", "max", "sum") and len(values) == 1:
        return int(getattr(np, function)(values[0]))
    if function in ("min", "max") and len(values) == 2:
        return int(getattr(np, function)([_whole(value) for value in values]))
    raise ValueError(function)


def _integers(value: Any) -> Any:
    if isinstance(value, int):
        return value
    array = np.asarray(value)
    if array.dtype.kind not in "iu":
        raise TypeError(array.dtype)
    return int(array) if array.ndim == 0 else array


def _scalar(node: ast.expr, known: Mapping[str, Any]) -> int:
    return _whole(_value(node, known))


def _whole(value: Any) -> int:
    if isinstance(value, int):
        return value
    raise TypeError(type(value))


def _elements(node: ast.expr) -> list[ast.expr]:
    return list(node.elts) if isinstance(node, ast.Tuple) else [node]


def _divide_towards_zero(left: int, right: int) -> int:
    """Stan's division of integers, which rounds towards zero."""
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


_OPERATORS: dict[type, Any] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.Div: _divide_towards_zero,
    ast.FloorDiv: _divide_towards_zero,
    ast.Mod: lambda left, right: left - right * _divide_towards_zero(left, right),
}
# Stan's size() counts the entries of a matrix but the rows of an array, which look alike here.
_SIZES: dict[tuple[str, int], Any] = {
    ("size", 1): math.prod,
    ("rows", 2): lambda shape: shape[0],
    ("cols", 2): lambda shape: shape[1],
    ("num_elements", 1): math.prod,
    ("num_elements", 2): math.prod,
}
