"""What can be read off the text of a Stan program: the data it declares, and which of them it observes.

Backends know names and sizes of parameters, but not of data. Reading the declarations lets a missing variable
or a wrong shape be named before native code sees it; some native parsers take a transposed matrix, or a
nested list for a flat one, without a word.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import NamedTuple

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|^\s*#[^\n]*", re.DOTALL | re.MULTILINE)
_DECLARATION = re.compile(
    r"^\s*(?:array\s*\[(?P<array>.*?)\]\s*)?"
    r"(?P<type>int|real|complex|vector|row_vector|matrix|simplex|unit_vector|ordered|positive_ordered"
    r"|cov_matrix|corr_matrix|cholesky_factor_cov|cholesky_factor_corr)\b\s*"
    r"(?:<(?P<limits>[^;]*?)>\s*(?=\[|[A-Za-z]))?"
    r"(?:\[(?P<sizes>.*?)\]\s*)?"
    r"(?P<name>[A-Za-z]\w*)\s*$",
    re.DOTALL,
)
_SQUARE = ("cov_matrix", "corr_matrix", "cholesky_factor_corr")


class Declaration(NamedTuple):
    """A variable of the data block."""

    type: str
    sizes: tuple[str, ...]  # expressions, array sizes first

    def shape(self, known: Mapping[str, object]) -> tuple[int | None, ...]:
        """The declared shape, None for a size that cannot be worked out from the data alone."""
        return tuple(_evaluate(size, known) for size in self.sizes)


def without_comments(code: str) -> str:
    """The program with comments and #include lines blanked."""
    return _COMMENT.sub(" ", code)


def block(code: str, name: str) -> str:
    """The text between the braces of a block, without comments; empty if there is none."""
    text = without_comments(code)
    pattern = r"(?<!transformed )\b" + r"\s+".join(name.split()) + r"\s*\{"
    opening = re.search(pattern, re.sub(r"transformed\s+", "transformed ", text))
    if opening is None:
        return ""
    text = re.sub(r"transformed\s+", "transformed ", text)
    depth = 1
    for end in range(opening.end(), len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return text[opening.end() : end]
    return ""


def data_declarations(code: str) -> dict[str, Declaration]:
    """Variables of the data block, as far as they can be read; tuples and included files are left out."""
    declared = {}
    for statement in block(code, "data").split(";"):
        found = _DECLARATION.match(statement)
        if found is None:
            continue
        sizes = _split_sizes(found["array"]) + _split_sizes(found["sizes"])
        one_size = len(_split_sizes(found["sizes"])) == 1
        if found["type"] in _SQUARE or (found["type"] == "cholesky_factor_cov" and one_size):
            sizes += sizes[-1:]
        elif found["type"] == "complex":
            continue  # written as pairs: left to the backend
        declared[found["name"]] = Declaration(found["type"], sizes)
    return declared


def observed_names(code: str) -> set[str]:
    """Data that stand on the left of a `~`, or first in an lpdf or lpmf, in the model block."""
    model = block(code, "model")
    left = re.findall(r"([A-Za-z]\w*)\s*(?:\[[^\]]*\])?\s*~", model)
    first = re.findall(r"_lu?p[dm]f\s*\(\s*([A-Za-z]\w*)", model)
    return (set(left) | set(first)) & set(data_declarations(code))


def _split_sizes(text: str | None) -> tuple[str, ...]:
    """Sizes separated by commas that stand outside of parentheses."""
    if not text:
        return ()
    return tuple(part.strip() for part in re.split(r",(?![^(\[]*[)\]])", text))


def _evaluate(expression: str, known: Mapping[str, object]) -> int | None:
    """Value of an integer expression in known data; None where it holds anything else."""
    try:
        return _value(ast.parse(expression, mode="eval").body, known)
    except (SyntaxError, ZeroDivisionError, KeyError, TypeError, ValueError):
        return None


def _value(node: ast.expr, known: Mapping[str, object]) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        value = known[node.id]
        if isinstance(value, int):
            return value
        raise TypeError(node.id)
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, known), _value(node.right, known)
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.Mult):
            return left * right
        if isinstance(node.op, ast.Div):
            return int(left / right)  # Stan's integer division truncates
    raise ValueError(ast.dump(node))
