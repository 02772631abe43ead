"""The text of a Stan program by tokens and statements: where each one begins and ends.

It is read as the language has it: comments, texts, brackets, and statements without braces below an `if` or a
loop. What cannot be read is refused.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
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


class Token(NamedTuple):
    text: str
    start: int
    end: int


class Statement(NamedTuple):
    """A statement without others in it, by places of tokens."""

    first: int
    end: int  # of its semicolon
    controls: tuple[
        tuple[int, int], ...
    ]  # `if (...)`, `for (...)` around it: the word and the closing bracket


class Edit(NamedTuple):
    """The text that takes the place of code[start:end]."""

    start: int
    end: int
    text: str


def read_tokens(code: str) -> list[Token]:
    """All tokens but blanks and comments."""
    found, place = [], 0
    while place < len(code):
        match = _TOKEN.match(code, place)
        if match is None:
            raise ModelError(f"{line_of(code, place)}: {code[place]!r} cannot be read here")
        if match.lastgroup != "blank":
            found.append(Token(match[0], match.start(), match.end()))
        place = match.end()
    return found


def line_of(code: str, place: int) -> str:
    return f"line {code.count(chr(10), 0, place) + 1} of the program"


def edit_text(code: str, edits: list[Edit]) -> str:
    parts, place = [], 0
    for edit in sorted(edits):
        parts += [code[place : edit.start], edit.text]
        place = edit.end
    return "".join((*parts, code[place:]))


class ProgramSyntax:
    """The tokens of a program, and where brackets close."""

    def __init__(self, code: str) -> None:
        self.code, self.tokens = code, read_tokens(code)
        self.closing = self._closing()
        self.blocks = dict(self._blocks())
        self.functions = self._function_names()

    def _closing(self) -> dict[int, int]:
        """The place of the closing bracket of each opening one."""
        closing, open_ones = {}, []
        for i, token in enumerate(self.tokens):
            if token.text in _CLOSING:
                open_ones.append(i)
            elif token.text in _CLOSING.values():
                if not open_ones or _CLOSING[self.tokens[open_ones[-1]].text] != token.text:
                    raise ModelError(f"{line_of(self.code, token.start)}: {token.text} closes nothing")
                closing[open_ones.pop()] = i
        if open_ones:
            raise ModelError(
                f"{line_of(self.code, self.tokens[open_ones[-1]].start)}: a bracket is not closed"
            )
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

    def model(self) -> list[tuple[int, int]]:
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
                    raise ModelError(f"{line_of(self.code, self.tokens[i].start)}: a function cannot be read")
            has_body = self.tokens[place].text == "{"
            yield name, (place + 1, self.closing[place]) if has_body else None
            i = (self.closing[place] if has_body else place) + 1

    def bodies(self) -> list[tuple[int, int]]:
        return [body for _, body in self._definitions() if body is not None]

    def _function_names(self) -> set[str]:
        return {name for name, _ in self._definitions()}

    def statements(self, first: int, last: int) -> Iterator[Statement]:
        """Statements between two places that have no statements in them."""
        i = first
        while i < last:
            i = yield from self._statement(i, last, ())

    def _statement(
        self, i: int, last: int, controls: tuple[tuple[int, int], ...]
    ) -> Generator[Statement, None, int]:
        """The statement that begins at place `i`, or those in it; returns the place behind."""
        text = self.tokens[i].text
        if text == "{" and self._is_block(i):
            inside, end = i + 1, self.closing[i]
            while inside < end:
                inside = yield from self._statement(inside, end, controls)
            return end + 1
        if text in ("if", "while", "for", "profile") and self.tokens[i + 1].text == "(":
            controls = (*controls, (i, self.closing[i + 1]))
            i = yield from self._statement(self.closing[i + 1] + 1, last, controls)
            while text == "if" and i < last and self.tokens[i].text == "else":
                i = yield from self._statement(i + 1, last, controls)
            return i
        semicolon = self.find(";", i, last)
        if semicolon is None:
            raise ModelError(f"{line_of(self.code, self.tokens[i].start)}: a statement has no end")
        yield Statement(i, semicolon, controls)
        return semicolon + 1

    def _is_block(self, i: int) -> bool:
        """Whether the brace at place `i` opens a block: else it is an array such as {1, 2}."""
        texts = {token.text for token in self.tokens[i + 1 : self.closing[i]]}
        return ";" in texts or texts <= {"{", "}"}

    def find(self, text: str, begin: int, end: int) -> int | None:
        """The first place of a token outside of brackets."""
        i = begin
        while i < end:
            if self.tokens[i].text == text:
                return i
            i = self.closing.get(i, i) + 1
        return None


def block_texts(code: str) -> dict[str, str]:
    """The blocks of a program by name, each as its text with both braces.

    Raises
    ------
    ModelError
        A part of the program cannot be read.
    """
    program = ProgramSyntax(code)
    return {
        name: code[program.tokens[first - 1].start : program.tokens[last].end]
        for name, (first, last) in program.blocks.items()
    }


def words_of(code: str) -> set[str]:
    """All words of a part of a program: names, types and functions, without comments and texts."""
    return {token.text for token in read_tokens(code) if token.text[0].isalpha()}
