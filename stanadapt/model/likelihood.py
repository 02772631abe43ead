"""Which statements of a Stan program are its likelihood, and the program without them: its prior.

A program adds up one log density. Its statements are told apart by their outcomes: what stands on the left of
a `~`, or before the bar in a call such as `normal_lpdf(y | mu, sigma)`.

- A statement whose outcome is data is likelihood: `y ~ normal(mu, sigma);`. These data are the observed ones.
- A statement whose outcome is a parameter is prior, also where its arguments have data that are not observed:
  `beta ~ normal(0, scale);`.
- A statement without outcomes is likelihood if it depends on observed data, by way of other variables and of
  the conditions around it too; else it is prior: `target += log(sigma);`.

What could be either is refused: a sum of both in one statement, a parameter whose prior depends on observed
data, an outcome that is made of data and parameters. The user may name the observed data; then outcomes that
depend on them are observed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from .. import check
from ..errors import ArgumentError, ModelError
from .program import declarations
from .statements import Edit, ProgramSyntax, Statement, edit_text, line_of

_WORD = re.compile(r"[A-Za-z]\w*")
_OUTCOME = re.compile(r"\w+_(?:lu?p[dm]f|l?c?cdf)")  # functions whose first argument is an outcome
_CDF = re.compile(r"\w+_l?c?cdf")
_TYPES = {
    "int", "real", "complex", "vector", "row_vector", "matrix", "simplex", "unit_vector", "ordered",
    "positive_ordered", "sum_to_zero_vector", "sum_to_zero_matrix", "cov_matrix", "corr_matrix",
    "cholesky_factor_cov", "cholesky_factor_corr", "column_stochastic_matrix", "row_stochastic_matrix",
    "complex_vector", "complex_row_vector", "complex_matrix", "tuple", "array",
}  # fmt: skip
# Of these all values lie in a bounded set, so that a density which is constant there is a prior.
_COMPACT = {
    "simplex", "unit_vector", "corr_matrix", "cholesky_factor_corr", "column_stochastic_matrix",
    "row_stochastic_matrix",
}  # fmt: skip
_OTHER_WORDS = {"lower", "upper", "offset", "multiplier", "in", "if", "else", "for", "while", "profile"}
_OTHER_WORDS |= {"print", "reject", "fatal_error", "break", "continue", "return", "target", "jacobian"}
_PASSIVE = {"print", "reject", "fatal_error", "break", "continue", "return"}  # statements that add no density
_ADVICE = (
    "Name the observed data, observed=[...], or give the program a flag `int prior_only` among its data that "
    "leaves the likelihood out"
)


class PriorText(NamedTuple):
    """A program without its likelihood."""

    code: str
    observed: frozenset[str]  # data, or transformed data, that the likelihood is of
    likelihood: tuple[str, ...]  # the statements that were left out


class _Term(NamedTuple):
    """A part of a statement: what its outcomes are made of, and what it depends on."""

    observed: bool  # whether an outcome is observed
    parameters: bool  # whether an outcome is a parameter
    depends: bool  # whether it depends on observed data at all
    uses: bool  # whether it depends on parameters
    truncates: bool  # whether it is a distribution function at a constant, which goes with another term


def without_likelihood(
    code: str, observed: Collection[str] | None = None, *, is_proper: bool = True
) -> PriorText:
    """The program, with includes written in place, without its likelihood.

    `observed` names the data that the likelihood is of. By default they are those that are outcomes. With
    `is_proper` every parameter must have a prior.

    Raises
    ------
    ArgumentError
        `observed` names other things than data.
    ModelError
        It cannot be told what the likelihood is, or no prior is left for a parameter; the message says why.
    """
    return _Dependences(code, observed).prior(is_proper)


def _closure(words: Iterable[str], edges: Mapping[str, Collection[str]]) -> set[str]:
    """The words with all that can be reached from them."""
    found: set[str] = set()
    waiting = list(words)
    while waiting:
        word = waiting.pop()
        if word not in found:
            found.add(word)
            waiting += edges.get(word, ())
    return found


class _Dependences(ProgramSyntax):
    """A program, with what each variable depends on."""

    def __init__(self, code: str, named: Collection[str] | None) -> None:
        super().__init__(code)
        if "model" not in self.blocks:
            raise ModelError("model: the program has no model block")
        self.data = set(declarations(code, "data"))
        self.transformed_data = set(declarations(code, "transformed data"))
        self.parameters = set(declarations(code, "parameters"))
        self.sizes = {
            word
            for name in ("data", "transformed data", "parameters", "transformed parameters")
            for each in declarations(code, name).values()
            for size in each.sizes
            for word in _WORD.findall(size)
        }
        self.named = None if named is None else self._check_named(named)
        self.edges: dict[str, set[str]] = defaultdict(set)  # variable -> what its value depends on
        self.values: dict[str, set[str]] = defaultdict(set)  # the same without indices and conditions
        self.made: dict[str, list[tuple[int, int]]] = defaultdict(list)  # variable -> statements that set it
        self.known = self.data | self.transformed_data | self.parameters
        for name in ("transformed data", "transformed parameters", "model"):
            for statement in self._of(name):
                self._read_assignment(statement)
        self.observed: frozenset[str] = frozenset()

    def prior(self, is_proper: bool) -> PriorText:
        """The program without its likelihood; see `without_likelihood`."""
        statements = [each for each in self._of("model") if self._adds(each)]
        self._refuse_hidden()
        self._check_words(statements)
        self.observed = frozenset(self.named if self.named is not None else self._outcomes(statements))
        if not self.observed:
            raise ModelError(
                f"model: it cannot be told which data are observed: none stands on the left of a ~. {_ADVICE}"
            )
        likelihood, given = [], set()
        for statement in statements:
            if self._is_likelihood(statement):
                likelihood.append(statement)
            else:
                given |= self._has_prior(statement)
        if is_proper:
            self._check_proper(given)
        edits = [Edit(self.tokens[each.first].start, self.tokens[each.end].end, ";") for each in likelihood]
        left_out = tuple(self._text(each) for each in likelihood)
        return PriorText(edit_text(self.code, edits), self.observed, left_out)

    def _check_named(self, named: Collection[str]) -> set[str]:
        for name in named:
            check.choice("observed", name, sorted(self.data | self.transformed_data))
        if not named:
            raise ArgumentError("observed=[] is not allowed: at least one name of data is needed")
        return set(named)

    def _check_words(self, statements: list[Statement]) -> None:
        """Refuse a word that is read nowhere else, and whose dependences are therefore not known."""
        for statement in statements:
            words = self._with_dependencies(self._words(statement.first, statement.end))
            if unknown := sorted(words - self.known):
                raise ModelError(
                    f"model: {unknown[0]} cannot be read, on which {self._where(statement)} "
                    f"depends. {_ADVICE}"
                )

    def _of(self, block: str) -> list[Statement]:
        return list(self.statements(*self.blocks[block])) if block in self.blocks else []

    def _text(self, statement: Statement) -> str:
        begin, end = self.tokens[statement.first].start, self.tokens[statement.end].end
        return " ".join(self.code[begin:end].split())

    def _where(self, statement: Statement) -> str:
        begin = self.tokens[statement.first].start
        return f"{line_of(self.code, begin)}, {check.quote(self._text(statement))}"

    def _read_assignment(self, statement: Statement) -> None:
        first, end, controls = statement
        for opening, closing in controls:
            if self.tokens[opening].text == "for":
                self._read_loop(opening, closing)
        texts = [token.text for token in self.tokens[first:end]]
        if not texts or texts[0] in _PASSIVE or self._adds(statement):
            return
        if texts[0] in _TYPES:
            first = self._names_begin(first, end)
            names = self._declared_names(first, end)
        else:
            names = self._assigned_names(first, end)
        words = set(self._words(first, end))
        for opening, closing in controls:
            words |= set(self._words(opening, closing))
        for name in names:
            self.known.add(name)
            self.edges[name] |= words - {name}
            self.values[name] |= {*self._words(first, end, indices=False)} - {name}
            self.made[name].append((first, end))

    def _read_loop(self, opening: int, closing: int) -> None:
        """`for (n in 1:N)` gives n a number; `for (v in y)` gives it a part of y."""
        name = self.tokens[opening + 2].text
        self.known.add(name)
        if self.find(":", opening + 4, closing) is None:
            for edges in (self.edges, self.values):
                edges[name] |= set(self._words(opening + 4, closing))

    def _names_begin(self, first: int, end: int) -> int:
        """The place in a declaration behind its type with sizes and bounds."""
        i = first
        while i < end and (self.tokens[i].text in {*_TYPES, "[", "(", "<"}):
            if self.tokens[i].text == "<":  # a `>` in bounds would have to be in brackets
                while i < end and self.tokens[i].text != ">":
                    i = self.closing.get(i, i) + 1
            i = self.closing.get(i, i) + 1
        return i

    def _declared_names(self, first: int, end: int) -> list[str]:
        """The variables that a declaration has from place `first` on, with or without values."""
        names: list[str] = []
        is_name, i = True, first
        while i < end:
            if is_name and _WORD.fullmatch(self.tokens[i].text):
                names.append(self.tokens[i].text)
                is_name = False
            elif self.tokens[i].text == ",":
                is_name = True
            i = self.closing.get(i, i) + 1
        return names

    def _assigned_names(self, first: int, end: int) -> list[str]:
        """The variables that a statement sets: the first word, or those of `(a, b) = f(x)`."""
        if self.tokens[first].text == "(":
            return [t.text for t in self.tokens[first : self.closing[first]] if _WORD.fullmatch(t.text)]
        return [self.tokens[first].text] if self.find("=", first, end) is not None else []

    def _words(self, first: int, end: int, *, indices: bool = True) -> Iterator[str]:
        """The names of variables between two places, with or without those in indices."""
        i = first
        while i < end:
            text = self.tokens[i].text
            if text == "[" and not indices and i > first and self._is_index(i):
                i = self.closing[i] + 1
                continue
            if _WORD.fullmatch(text) and not self._is_function(i):
                yield text
            i += 1

    def _is_index(self, i: int) -> bool:
        """Whether the bracket at place `i` follows a value; else it is a row vector."""
        before = self.tokens[i - 1].text
        return bool(_WORD.fullmatch(before)) or before in ("]", ")")

    def _is_function(self, i: int) -> bool:
        """Whether the word at place `i` is a function, which is called or passed on, or a keyword."""
        text = self.tokens[i].text
        if text in self.known:
            return False
        if text in _TYPES or text in _OTHER_WORDS:
            return True
        is_called = i + 1 < len(self.tokens) and self.tokens[i + 1].text == "("
        is_cut = text == "T" and self.tokens[i + 1].text == "["
        return is_called or is_cut or re.sub(r"_lup([dm]f)$", r"_lp\1", text) in self.functions

    def _with_dependencies(self, words: Iterable[str]) -> set[str]:
        """The words with all that they depend on."""
        return _closure(words, self.edges)

    def _outcome(self, first: int, end: int) -> set[str]:
        """What an outcome between two places is computed from."""
        return _closure(self._words(first, end, indices=False), self.values)

    def _adds(self, statement: Statement) -> bool:
        """Whether a statement adds to the density."""
        first, end, _ = statement
        if self.tokens[first].text in _PASSIVE or first == end:
            return False
        return self.find("~", first, end) is not None or self._is_target(statement)

    def _is_target(self, statement: Statement) -> bool:
        texts = [token.text for token in self.tokens[statement.first : statement.first + 3]]
        return texts == ["target", "+", "="]

    def _refuse_hidden(self) -> None:
        """Refuse what adds to the density, or reads it, where this file does not look."""
        for block in ("transformed parameters", "model"):
            first, end = self.blocks.get(block, (0, 0))
            for i in range(first, end):
                text = self.tokens[i].text
                is_hidden = text == "target" or (text.endswith("_lp") and text in self.functions)
                if is_hidden and self.tokens[i + 1].text == "(":
                    raise ModelError(
                        f"model: it cannot be told whether {text}() is prior or likelihood at "
                        f"{line_of(self.code, self.tokens[i].start)}. Give the program a flag "
                        "`int prior_only` among its data that leaves the likelihood out"
                    )

    def _parts(self, statement: Statement) -> list[tuple[int, int]]:
        """The terms of a sum: a statement with ~ is one of them."""
        first, end, _ = statement
        if not self._is_target(statement):
            return [(first, end)]
        parts, begin, i = [], first + 3, first + 3
        while i < end:
            is_operator = i > begin and self.tokens[i - 1].text not in "+-*/=<>!&|?:^%,."
            if self.tokens[i].text in ("+", "-") and is_operator:
                parts.append((begin, i))
                begin = i + 1
            i = self.closing.get(i, i) + 1
        return [*parts, (begin, end)]

    def _outcome_places(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """The places of the outcomes between two places: before a ~, or before the bar of a call."""
        tilde = self.find("~", first, end)
        if tilde is not None:
            yield first, tilde
            return
        for i in range(first, end):
            if _OUTCOME.fullmatch(self.tokens[i].text) and self.tokens[i + 1].text == "(":
                bar = self.find("|", i + 2, self.closing[i + 1])
                if bar is not None:
                    yield i + 2, bar

    def _outcomes(self, statements: list[Statement]) -> set[str]:
        """Data that are outcomes, and no sizes."""
        found: set[str] = set()
        for statement in statements:
            for places in self._parts(statement):
                for first, end in self._all_outcomes(places):
                    direct = set(self._words(first, end, indices=False))
                    made_of = self._outcome(first, end)
                    data = made_of & (self.data | self.transformed_data)
                    is_size = bool(data) and not data - self.sizes
                    if data and (is_size or made_of & self.parameters):
                        what = "a size is observed" if is_size else "data or parameters are modelled"
                        raise ModelError(
                            f"model: it cannot be told whether {what} at {self._where(statement)}. {_ADVICE}"
                        )
                    found |= (direct & data or data) - self.sizes
        return found

    def _all_outcomes(self, places: tuple[int, int]) -> Iterator[tuple[int, int]]:
        """Outcomes in a part of a statement, and in the statements that set the variables it uses."""
        yield from self._outcome_places(*places)
        if self.find("~", *places) is not None:
            return
        for word in self._with_dependencies(self._words(*places)):
            for first, end in self.made.get(word, ()):
                yield from self._outcome_places(first, end)

    def _term(self, places: tuple[int, int], statement: Statement) -> _Term:
        around = {
            word for opening, closing in statement.controls for word in self._control_words(opening, closing)
        }
        reached = self._with_dependencies({*self._words(*places), *around})
        seen = parameters = False
        is_constant = any(True for _ in self._outcome_places(*places))
        for first, end in self._all_outcomes(places):
            outcome = self._outcome(first, end)
            is_constant = is_constant and not outcome
            if outcome & self.observed:
                seen = True
            elif outcome & self.parameters:
                parameters = True
        functions = [token.text for token in self.tokens[places[0] : places[1]]]
        called = [text for text in functions if _OUTCOME.fullmatch(text)]
        truncates = is_constant and bool(called) and all(map(_CDF.fullmatch, called))
        if is_constant and not truncates and not reached & self.observed:
            raise ModelError(
                "model: it cannot be told whether it is prior or likelihood: the outcome is a constant at "
                f"{self._where(statement)}. {_ADVICE}"
            )
        return _Term(
            seen,
            parameters,
            bool(reached & self.observed),
            bool(reached & self.parameters),
            truncates,
        )

    def _control_words(self, opening: int, closing: int) -> Iterator[str]:
        """The variables of a condition or of a loop's range."""
        return self._words(opening + (4 if self.tokens[opening].text == "for" else 2), closing)

    def _is_likelihood(self, statement: Statement) -> bool:
        """Raises ModelError where it cannot be told."""
        terms = [self._term(places, statement) for places in self._parts(statement)]
        where = self._where(statement)
        for term in terms:
            if term.parameters and (term.observed or term.depends):
                raise ModelError(
                    f"model: it cannot be told whether it is prior or likelihood: at {where}, a parameter's "
                    f"density depends on observed data ({', '.join(sorted(self.observed))}). {_ADVICE}"
                )
        kinds = {
            term.observed or term.depends
            for term in terms
            if term.observed or term.parameters or term.depends or (term.uses and not term.truncates)
        }
        if len(kinds) == 2:
            raise ModelError(
                f"model: prior and likelihood are in one statement: {where}. Write a statement for each"
            )
        is_likelihood = kinds == {True}
        if not is_likelihood and self.named is None:
            self._check_unseen(statement, where)
        return is_likelihood

    def _check_unseen(self, statement: Statement, where: str) -> None:
        """Refuse a statement without outcomes whose data may be observed ones."""
        if any(True for places in self._parts(statement) for _ in self._all_outcomes(places)):
            return
        words = {w for places in self._parts(statement) for w in self._words(*places, indices=False)}
        unsure = (self._with_dependencies(words) & self.data) - self.sizes
        if unsure:
            raise ModelError(
                f"model: it cannot be told whether {', '.join(sorted(unsure))} are observed at {where}. "
                f"{_ADVICE}"
            )

    def _has_prior(self, statement: Statement) -> set[str]:
        """Parameters to which a statement of the prior gives a density of their own."""
        found: set[str] = set()
        for places in self._parts(statement):
            outcomes = list(self._all_outcomes(places))
            for first, end in outcomes or [places]:
                found |= self._with_dependencies(self._words(first, end)) & self.parameters
        return found

    def _check_proper(self, given: set[str]) -> None:
        """Refuse parameters without a prior: a density that is flat without bounds cannot be drawn from."""
        flat = []
        for first, end, _ in self._of("parameters"):
            texts = {token.text for token in self.tokens[first:end]}
            if not texts & _COMPACT and not {"lower", "upper"} <= texts:
                names = self._declared_names(self._names_begin(first, end), end)
                flat += [name for name in names if name not in given]
        if flat:
            raise ModelError(
                f"model: no prior is left for {', '.join(flat)} without the likelihood: the density is flat "
                "and has no bounds, so nothing can be drawn from it. Give the program a prior for it"
            )
