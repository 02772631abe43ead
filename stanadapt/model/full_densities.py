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

The last one leaves the truncation as it is, since its terms are never dropped. What cannot be read is
refused, and the caller compares the densities of both programs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..errors import ModelError
from .statements import Edit, ProgramSyntax, edit_text, line_of, read_tokens

_UNNORMALISED = re.compile(r"(\w+)_lup([dm]f)")
# The distributions of integers that Stan has; all others are of reals.
_DISCRETE = re.compile(
    "bernoulli|bernoulli_logit|bernoulli_logit_glm|beta_binomial|beta_neg_binomial|binomial|binomial_logit"
    "|binomial_logit_glm|categorical|categorical_logit|categorical_logit_glm|dirichlet_multinomial"
    "|discrete_range|hypergeometric|multinomial|multinomial_logit|neg_binomial|neg_binomial_2"
    "|neg_binomial_2_log|neg_binomial_2_log_glm|ordered_logistic|ordered_logistic_glm|ordered_probit"
    "|poisson|poisson_log|poisson_log_glm"
)


def keep_constants(code: str) -> str:
    """The program, with includes written in place, whose density keeps all constants.

    Raises
    ------
    ModelError
        A part of the program cannot be read or rewritten; the message names it.
    """
    program = _Program(code)
    edits = [*program.edits_of_statements(), *program.edits_of_calls()]
    written = edit_text(code, edits)
    left = [token.text for token in read_tokens(written) if token.text == "~"]
    left += [token.text for token in read_tokens(written) if _UNNORMALISED.fullmatch(token.text)]
    if len(left) != 2 * program.truncated:
        raise ModelError(f"a part of the program still drops constants after it was rewritten: {left[0]}")
    return written


class _Program(ProgramSyntax):
    """A program whose statements are written again."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.truncated = 0  # statements with a truncation that were rewritten

    def edits_of_statements(self) -> Iterator[Edit]:
        """Of every statement with a `~`, in the model block and in functions that may have them."""
        seen = 0
        for block, bodies in (("functions", self.bodies()), ("model", self.model())):
            for first, last in bodies:
                for begin, end, _ in self.statements(first, last):
                    tilde = self.find("~", begin, end)
                    if tilde is not None:
                        seen += 1
                        yield from self._sampling_statement(begin, tilde, end, in_model=block == "model")
        tildes = [token for token in self.tokens if token.text == "~"]
        if len(tildes) != seen:
            raise ModelError(f"{line_of(self.code, tildes[-1].start)}: a statement with ~ cannot be read")

    def edits_of_calls(self) -> Iterator[Edit]:
        """Of every function that drops constants: it becomes the one that keeps them."""
        for token in self.tokens:
            if found := _UNNORMALISED.fullmatch(token.text):
                yield Edit(token.start, token.end, f"{found[1]}_lp{found[2]}")

    def _sampling_statement(self, begin: int, tilde: int, end: int, *, in_model: bool) -> Iterator[Edit]:
        """Of the statement `lhs ~ name(args) T[lower, upper];` with its `;` at the place `end`."""
        where = line_of(self.code, self.tokens[begin].start)
        opening = tilde + 2
        if tilde == begin or opening not in self.closing or self.tokens[opening].text != "(":
            raise ModelError(f"{where}: the statement with ~ cannot be read")
        name, closed = self.tokens[tilde + 1].text, self.closing[opening]
        kept, start = f"{name}_{self._suffix(name, where)}", self.tokens[begin].start
        if closed + 1 == end:
            yield Edit(start, start, f"target += {kept}(")
            yield Edit(self.tokens[tilde].start, self.tokens[opening].end, "| ")
            return
        truncation = closed + 1
        is_read = self.tokens[truncation].text == "T" and self.closing.get(truncation + 1) == end - 1
        if not is_read or not in_model:
            what = "a truncation inside of a function" if is_read else "what follows the distribution"
            raise ModelError(f"{where}: {what} cannot be rewritten")
        if self._may_be_many(begin, tilde):
            raise ModelError(
                f"{where}: the truncation of more than one number cannot be rewritten; write it in "
                "a loop over the elements"
            )
        given = f"{self._copy(begin, tilde)} | {self._copy(opening + 1, closed)}"
        dropped = f"{name}_{'lupmf' if kept.endswith('_lpmf') else 'lupdf'}"
        self.truncated += 1
        yield Edit(start, start, f"{{ target += {kept}({given}) - {dropped}({given}); ")
        yield Edit(self.tokens[end].end, self.tokens[end].end, " }")

    def _may_be_many(self, begin: int, end: int) -> bool:
        """Whether the outcome of a statement may have several elements.

        Backends drop the constant truncation of a vector, and keep that of a number.
        """
        texts = [token.text for token in self.tokens[begin:end]]
        if ":" in texts or not texts[0].isidentifier():
            return True
        if len(texts) > 1:  # an element, if nothing but an index follows the name
            return texts[1] != "["
        declared = rf"\b(?:\w*vector|matrix|array|\w*ordered|\w*simplex)\b[^;{{}}]*\b{texts[0]}\b\s*[;=,]"
        return re.search(declared, self.code) is not None

    def _suffix(self, name: str, where: str) -> str:
        """lpdf or lpmf; which of them a program defines itself comes first."""
        own = [suffix for suffix in ("lpdf", "lpmf") if f"{name}_{suffix}" in self.functions]
        if len(own) == 2:
            raise ModelError(f"{where}: the program defines both {name}_lpdf and {name}_lpmf")
        return own[0] if own else "lpmf" if _DISCRETE.fullmatch(name) else "lpdf"

    def _copy(self, begin: int, end: int) -> str:
        """Tokens as text, without comments, whose functions keep constants."""
        return " ".join(_UNNORMALISED.sub(r"\1_lp\2", token.text) for token in self.tokens[begin:end])
