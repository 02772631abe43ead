"""A Stan program rewritten so that its log density keeps all constants.

A statement `y ~ normal(mu, sigma);` adds the log density without terms that do not depend on parameters, such
as -log(sqrt(2 pi)), and so does a call of `normal_lupdf`. For draws this is no matter; for an evidence it is.
Stan's C++ code can be asked to keep the terms (`propto=false`). Where a backend cannot, this file writes the
program again with what keeps them in any backend:

    y ~ normal(mu, sigma);              target += normal_lpdf(y | mu, sigma);
    n ~ poisson(lambda);                target += poisson_lpmf(n | lambda);
    target += normal_lupdf(y | ...);    target += normal_lpdf(y | ...);
    y ~ normal(mu, sigma) T[0, ];       { target += normal_lpdf(y | ...) - normal_lupdf(y | ...);
                                          y ~ normal(mu, sigma) T[0, ]; }

The last one leaves the truncation as it is, since its terms are never dropped. The text is read by tokens and
statements, as the language has them: comments, texts, brackets, and statements without braces below an `if`
or a loop. What cannot be read is refused, and the caller compares the densities of both programs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ..errors import ModelError

_TOKEN = re.compile(
    r"""(?P<blank>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<text>"[^"\n]*")
    |(?P<word>[A-Za-z]\w*)
    |(?P<number>(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?i?)
    |(?P<sign>[^\s\w"\#])""",
    re.DOTALL | re.VERBOSE,
)
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_UNNORMALISED = re.compile(r"(\w+)_lup([dm]f)")
# The distributions of integers that Stan has; all others are of reals.
_DISCRETE = re.compile(
    "bernoulli|bernoulli_logit|bernoulli_logit_glm|beta_binomial|beta_neg_binomial|binomial|binomial_logit"
    "|binomial_logit_glm|categorical|categorical_logit|categorical_logit_glm|dirichlet_multinomial"
    "|discrete_range|hypergeometric|multinomial|multinomial_logit|neg_binomial|neg_binomial_2"
    "|neg_binomial_2_log|neg_binomial_2_log_glm|ordered_logistic|ordered_logistic_glm|ordered_probit"
    "|poisson|poisson_log|poisson_log_glm"
)


class _Token(NamedTuple):
    text: str
    start: int
    end: int


class _Edit(NamedTuple):
    """The text that takes the place of code[start:end]."""

    start: int
    end: int
    text: str


def keep_constants(code: str) -> str:
    """The program, with includes written in place, whose density keeps all constants.

    Raises
    ------
    ModelError
        A part of the program cannot be read or rewritten; the message names it.
    """
    program = _Program(code)
    edits = [*program.edits_of_statements(), *program.edits_of_calls()]
    written = _edited(code, edits)
    left = [token.text for token in _tokens(written) if token.text == "~"]
    left += [token.text for token in _tokens(written) if _UNNORMALISED.fullmatch(token.text)]
    if len(left) != 2 * program.truncated:
        raise ModelError(f"a part of the program still drops constants after it was rewritten: {left[0]}")
    return written


def _tokens(code: str) -> list[_Token]:
    """All tokens but blanks and comments."""
    found, place = [], 0
    while place < len(code):
        match = _TOKEN.match(code, place)
        if match is None:
            raise ModelError(f"{_line(code, place)}: {code[place]!r} cannot be read here")
        if match.lastgroup != "blank":
            found.append(_Token(match[0], match.start(), match.end()))
        place = match.end()
    return found


def _line(code: str, place: int) -> str:
    return f"line {code.count(chr(10), 0, place) + 1} of the program"


def _edited(code: str, edits: list[_Edit]) -> str:
    parts, place = [], 0
    for edit in sorted(edits):
        parts += [code[place : edit.start], edit.text]
        place = edit.end
    return "".join((*parts, code[place:]))


class _Program:
    """The tokens of a program, and where brackets close."""

    def __init__(self, code: str) -> None:
        self.code, self.tokens = code, _tokens(code)
        self.closing = self._closing()
        self.blocks = dict(self._blocks())
        self.functions = self._function_names()
        self.truncated = 0  # statements with a truncation that were rewritten

    def edits_of_statements(self) -> Iterator[_Edit]:
        """Of every statement with a `~`, in the model block and in functions that may have them."""
        seen = 0
        for block, bodies in (("functions", self._bodies()), ("model", self._model())):
            for first, last in bodies:
                for begin, end in self._statements(first, last):
                    tilde = self._find("~", begin, end)
                    if tilde is not None:
                        seen += 1
                        yield from self._sampling(begin, tilde, end, in_model=block == "model")
        tildes = [token for token in self.tokens if token.text == "~"]
        if len(tildes) != seen:
            raise ModelError(f"{_line(self.code, tildes[-1].start)}: a statement with ~ cannot be read")

    def edits_of_calls(self) -> Iterator[_Edit]:
        """Of every function that drops constants: it becomes the one that keeps them."""
        for token in self.tokens:
            if found := _UNNORMALISED.fullmatch(token.text):
                yield _Edit(token.start, token.end, f"{found[1]}_lp{found[2]}")

    def _closing(self) -> dict[int, int]:
        """The place of the closing bracket of each opening one."""
        closing, open_ones = {}, []
        for i, token in enumerate(self.tokens):
            if token.text in _CLOSING:
                open_ones.append(i)
            elif token.text in _CLOSING.values():
                if not open_ones or _CLOSING[self.tokens[open_ones[-1]].text] != token.text:
                    raise ModelError(f"{_line(self.code, token.start)}: {token.text} closes nothing")
                closing[open_ones.pop()] = i
        if open_ones:
            raise ModelError(f"{_line(self.code, self.tokens[open_ones[-1]].start)}: a bracket is not closed")
        return closing

    def _blocks(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """The blocks of the program by name: the places of their first token, and of their closing brace."""
        i = 0
        while i < len(self.tokens):
            words = []
            while i < len(self.tokens) and self.tokens[i].text != "{":
                words.append(self.tokens[i].text)
                i += 1
            if i < len(self.tokens):
                yield " ".join(words), (i + 1, self.closing[i])
                i = self.closing[i] + 1

    def _model(self) -> list[tuple[int, int]]:
        return [self.blocks["model"]] if "model" in self.blocks else []

    def _definitions(self) -> Iterator[tuple[str, tuple[int, int] | None]]:
        """The functions of the program: name, and the places of the body; None for a mere declaration."""
        i, last = self.blocks.get("functions", (0, 0))
        while i < last:
            name, place = "", i
            while self.tokens[place].text not in "{;":
                if self.tokens[place].text == "(":
                    name = self.tokens[place - 1].text  # the arguments are the last bracket before the body
                place = self.closing.get(place, place) + 1
                if place >= last:
                    raise ModelError(f"{_line(self.code, self.tokens[i].start)}: a function cannot be read")
            has_body = self.tokens[place].text == "{"
            yield name, (place + 1, self.closing[place]) if has_body else None
            i = (self.closing[place] if has_body else place) + 1

    def _bodies(self) -> list[tuple[int, int]]:
        return [body for _, body in self._definitions() if body is not None]

    def _function_names(self) -> set[str]:
        return {name for name, _ in self._definitions()}

    def _statements(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Statements between two places that have no statements in them: place of the first token, of `;`."""
        i = first
        while i < last:
            text = self.tokens[i].text
            if text == "{" and self._is_block(i):
                yield from self._statements(i + 1, self.closing[i])
                i = self.closing[i] + 1
            elif text in ("if", "while", "for", "profile") and self.tokens[i + 1].text == "(":
                i = self.closing[i + 1] + 1  # what follows is a statement
            elif text == "else":
                i += 1
            else:
                end = self._find(";", i, last)
                if end is None:
                    raise ModelError(f"{_line(self.code, self.tokens[i].start)}: a statement has no end")
                yield i, end
                i = end + 1

    def _is_block(self, i: int) -> bool:
        """Whether the brace at place `i` opens a block: else it is an array such as {1, 2}."""
        texts = {token.text for token in self.tokens[i + 1 : self.closing[i]]}
        return ";" in texts or texts <= {"{", "}"}

    def _find(self, text: str, begin: int, end: int) -> int | None:
        """The first place of a token outside of brackets."""
        i = begin
        while i < end:
            if self.tokens[i].text == text:
                return i
            i = self.closing.get(i, i) + 1
        return None

    def _sampling(self, begin: int, tilde: int, end: int, *, in_model: bool) -> Iterator[_Edit]:
        """Of the statement `lhs ~ name(args) T[lower, upper];` with its `;` at the place `end`."""
        where = _line(self.code, self.tokens[begin].start)
        opening = tilde + 2
        if tilde == begin or opening not in self.closing or self.tokens[opening].text != "(":
            raise ModelError(f"{where}: the statement with ~ cannot be read")
        name, closed = self.tokens[tilde + 1].text, self.closing[opening]
        kept, start = f"{name}_{self._suffix(name, where)}", self.tokens[begin].start
        if closed + 1 == end:
            yield _Edit(start, start, f"target += {kept}(")
            yield _Edit(self.tokens[tilde].start, self.tokens[opening].end, "| ")
            return
        truncation = closed + 1
        is_read = self.tokens[truncation].text == "T" and self.closing.get(truncation + 1) == end - 1
        if not is_read or not in_model:
            what = "a truncation inside of a function" if is_read else "what follows the distribution"
            raise ModelError(f"{where}: {what} cannot be rewritten")
        given = f"{self._copy(begin, tilde)} | {self._copy(opening + 1, closed)}"
        dropped = f"{name}_{'lupmf' if kept.endswith('_lpmf') else 'lupdf'}"
        self.truncated += 1
        yield _Edit(start, start, f"{{ target += {kept}({given}) - {dropped}({given}); ")
        yield _Edit(self.tokens[end].end, self.tokens[end].end, " }")

    def _suffix(self, name: str, where: str) -> str:
        """lpdf or lpmf; which of them a program defines itself comes first."""
        own = [suffix for suffix in ("lpdf", "lpmf") if f"{name}_{suffix}" in self.functions]
        if len(own) == 2:
            raise ModelError(f"{where}: the program defines both {name}_lpdf and {name}_lpmf")
        return own[0] if own else "lpmf" if _DISCRETE.fullmatch(name) else "lpdf"

    def _copy(self, begin: int, end: int) -> str:
        """Tokens as text, without comments, whose functions keep constants."""
        return " ".join(_UNNORMALISED.sub(r"\1_lp\2", token.text) for token in self.tokens[begin:end])
